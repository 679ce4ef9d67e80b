"""Between what bounds devices may answer: the same inputs under every plausible arithmetic.

The centre is NNAPI's CPU. Of each arithmetic the largest and the root mean square deviation from it is known for each output;
the *envelope* of an output is the widest of them. An answer of someone else, a runtime or a device, is *within* if neither of its
own deviations is wider. Rounding errors have no preferred sign, so that deviations count and not which side they are on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from nnbridge.compare.arithmetics import Runner, arithmetics
from nnbridge.compare.arrays import Array
from nnbridge.compare.comparison import OutputComparison, new_comparisons
from nnbridge.compare.detections import recognised
from nnbridge.compare.results import DeviceResult
from nnbridge.compare.samples import Endings, Sample, in_model, named_outputs
from nnbridge.compare.tolerance import DEFAULT_TOLERANCE, Tolerance, Tolerances
from nnbridge.devices.evidence import Evidence
from nnbridge.model import Model
from nnbridge.operations.numerics import Numerics
from nnbridge.records import dataclass

_ROUNDED = 1 - 2.0**-20
"""Deviations are differences of float32 numbers, whose last places are rounded on either side."""


@dataclass(frozen=True)
class Deviation:
    """One output under one arithmetic, or as someone else answers it, beside NNAPI's CPU."""

    output: str
    arithmetic: str
    """The arithmetic's name, or the other side's."""
    text: str
    elements: int
    unequal: int
    largest: float
    """In the output's unit: real numbers, or steps of integers."""
    rmse: float
    beyond: int
    """Elements that are not within the tolerance of comparisons."""
    classified: int
    """Samples of which the output names a class."""
    top1_changes: int
    """Those whose first class is another."""
    within: bool | None = None
    """Of another side's answers: whether they are within the envelope."""
    reached_by: str = ""
    """The mildest arithmetic that deviates as far."""
    nearest: str = ""
    """The arithmetic whose answers are the nearest."""
    nearest_unequal: int | None = None
    """Elements that are not equal to that arithmetic's."""

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        counts = {"elements": self.elements, "mismatches": self.unequal, "beyond": self.beyond}
        size = {"max_abs_diff": self.largest, "rmse": self.rmse}
        return {**counts, **size, "classified": self.classified, "top1_changes": self.top1_changes}


@dataclass(frozen=True, repr=False)
class Envelope(DeviceResult):
    """The range of a model's outputs over every arithmetic, and whether other outputs are inside it."""

    model: str
    samples: int
    deviations: tuple[Deviation, ...]
    """Of arithmetics, output by output from the mildest."""
    others: tuple[Deviation, ...] = ()
    """Of other sides' answers."""
    interrupted: bool = False
    ended: tuple[tuple[str, str], ...] = ()
    """Samples at which a runtime's process ended, and how: they are not compared."""
    stated: Mapping[str, str] = field(default_factory=dict)
    """Device → the only arithmetic, beside NNAPI's CPU, that it can have."""
    evidence: tuple[Evidence, ...] = ()
    """The evidence of each driver that ran something."""
    idle: tuple[str, ...] = ()
    """The devices that were offered the model where none of them ran anything."""
    devices: str = ""
    """The name of the devices' side among the others."""

    @property
    def passed(self) -> bool:
        """True if every other side's answers are within."""
        return all(other.within for other in self.others)

    @property
    def failed(self) -> bool:
        """True if what was compared did not pass: samples at which a process ended are no judgement."""
        return (self.samples > 0 or not self.ended) and not self.passed

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs' names."""
        return tuple(dict.fromkeys(deviation.output for deviation in self.deviations))

    def span(self, output: str) -> tuple[float, float]:
        """The widest largest and root mean square deviation of an output."""
        found = [d for d in self.deviations if d.output == output]
        return max(d.largest for d in found), max(d.rmse for d in found)

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        reserved = [f"{', '.join(self.unknown or self.idle)}: {self.reservation}"] if self.reservation else []
        known = [f"{name} states {arithmetic}" for name, arithmetic in self.stated.items()]
        return "; ".join([*reserved, *known, *self._top1_lines(), *self._other_lines()])

    @property
    def verdict(self) -> str:
        """``pass`` if every other side is within, else ``FAIL``; or why that cannot be said of the devices."""
        return self.reservation or ("pass" if self.passed else "FAIL")

    def reserved(self, side: str) -> str:
        """The reservation on another side's answers, empty for a reference's."""
        return self.reservation if side == self.devices else ""

    def _top1_lines(self) -> list[str]:
        lines = []
        for output in self.outputs:
            found = [d for d in self.deviations if d.output == output and d.classified]
            if not found:
                continue
            whose = f"{output}: " if len(self.outputs) > 1 else ""
            changed = [d for d in found if d.top1_changes]
            most = max((d.top1_changes for d in changed), default=0)
            count = f"{most:,} of {found[0].classified:,} inputs"
            if not changed:
                lines.append(f"{whose}top-1 changes on none of {found[0].classified:,} inputs")
            elif len(changed) < len(found) - 1:
                lines.append(f"{whose}top-1 changes on {count}, only with {', '.join(d.arithmetic for d in changed)}")
            else:
                lines.append(f"{whose}top-1 changes on {count}")
        if not lines:
            spans = [f"{name} by {self.span(name)[0]:.2g}" for name in self.outputs]
            lines.append(f"outputs deviate up to: {', '.join(spans)}")
        return lines

    def _other_lines(self) -> list[str]:
        lines = []
        for name in dict.fromkeys(other.arithmetic for other in self.others):
            outside = [o.output for o in self.others if o.arithmetic == name and not o.within]
            if outside:
                lines.append(f"{name} is outside the envelope ({', '.join(outside)})")
            elif not self.reserved(name):  # Else NNAPI's CPU computed, which is the centre.
                lines.append(f"{name} is within the envelope")
        return lines

    def records(self) -> Sequence[Mapping[str, Any]]:
        """A row for each output and arithmetic or other side."""
        return [
            {
                "output": d.output,
                "arithmetic": d.arithmetic,
                "max diff": d.largest,
                "rmse": d.rmse,
                "unequal": d.unequal / max(d.elements, 1),
                "top-1 changes": d.top1_changes if d.classified else None,
                "within": None if self.reserved(d.arithmetic) else d.within,
                "reached by": d.reached_by,
                "nearest": f"{d.nearest} ({d.nearest_unequal} unequal)" if d.nearest else "",
            }
            for d in (*self.deviations, *self.others)
        ]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        outputs = []
        for name in self.outputs:
            largest, rmse = self.span(name)
            by = [{"arithmetic": d.arithmetic, "text": d.text, **d.as_dict()} for d in self.deviations if d.output == name]
            others = [
                {
                    "name": d.arithmetic,
                    **d.as_dict(),
                    "within": d.within,
                    "reached_by": d.reached_by or None,
                    "nearest": d.nearest,
                    "nearest_mismatches": d.nearest_unequal,
                }
                for d in self.others
                if d.output == name
            ]
            outputs.append({"name": name, "span": {"max_abs_diff": largest, "rmse": rmse}, "arithmetics": by, "others": others})
        head = {"model": self.model, "samples": self.samples, "pass": self.passed, "verdict": self.verdict}
        head |= {"interrupted": self.interrupted, "idle": list(self.idle)}
        if self.ended:
            head["ended"] = [{"sample": label, "reason": why} for label, why in self.ended]
        if self.stated:
            head["stated"] = dict(self.stated)
        return self.judged({**head, "sentence": self.sentence, "outputs": outputs})


class _Side:
    """One side's answers beside the centre's, added up over samples."""

    def __init__(self, model: Model, name: str, text: str, tolerance: Tolerance | Tolerances) -> None:
        self.name, self.text, self.operands = name, text, named_outputs(model)
        self.comparisons = new_comparisons(model, tolerance)
        self.changes = [0] * len(self.comparisons)
        self.classified = [0] * len(self.comparisons)

    def add(self, outputs: Mapping[str, Array], centre: Mapping[str, Array], label: str = "") -> None:
        detections = recognised(self.operands, centre)
        boxes = () if detections is None else detections.outputs
        for k, comparison in enumerate(self.comparisons):
            here, there = outputs[comparison.name], centre[comparison.name]
            comparison.add(here, there, label)
            if comparison.name not in boxes and _names_classes(there) and here.shape == there.shape:
                self.classified[k] += 1
                self.changes[k] += int(here.argmax()) != int(there.argmax())

    def deviations(self) -> list[Deviation]:
        return [
            Deviation(
                c.name,
                self.name,
                self.text,
                c.elements,
                c.mismatches,
                float("inf") if c.non_finite_unequal or c.problem else c.largest,
                float("inf") if c.non_finite_unequal or c.problem else c.metrics.rmse or 0.0,
                c.beyond,
                self.classified[k],
                self.changes[k],
            )
            for k, c in enumerate(self.comparisons)
        ]


def _names_classes(array: Array) -> bool:
    """Scores of one sample: a row of more than one number."""
    return array.size > 1 and array.size == array.shape[-1] and array.ndim <= 2 and array.dtype.kind in "fiu"


def envelope(
    model: Model,
    samples: Iterable[Sample],
    others: Mapping[str, Callable[[Sample], Mapping[str, Array]]] | None = None,
    tolerance: Tolerance | Tolerances = DEFAULT_TOLERANCE,
    advance: Callable[[int], None] = lambda done: None,
    stated: Mapping[str, str] | None = None,
) -> Envelope:
    """Run every sample under every arithmetic that matters to the model; ``stated``: only those of devices, by name.

    ``others``: name → the outputs of someone else for a sample, by name, in the model's types. ``advance`` is called with 1 after
    each run. After KeyboardInterrupt the samples that are done are the result.
    """
    runners = [Runner(model, numerics) for numerics in arithmetics(model, stated)]
    sides = [_Side(model, r.numerics.name, r.numerics.text, tolerance) for r in runners]
    asked = others or {}
    theirs = {name: _Side(model, name, "", tolerance) for name in asked}
    beside = {name: [new_comparisons(model, tolerance) for _ in runners] for name in asked}
    count, interrupted, endings = 0, False, Endings()
    try:
        for _, sample in endings.left(samples):
            answers = []
            for runner in runners:
                answers.append(runner.run(sample.inputs, continues=sample.continues))
                advance(1)
            found = {name: ask(sample) for name, ask in asked.items()}
            for side, answer in zip(sides, answers, strict=True):
                side.add(answer, answers[0], sample.label)
            for name, outputs in found.items():
                theirs[name].add(outputs, answers[0], sample.label)
                for comparisons, own in zip(beside[name], answers, strict=True):
                    for comparison in comparisons:
                        comparison.add(own[comparison.name], outputs[comparison.name])
            count += 1
    except KeyboardInterrupt:
        if not count:
            raise
        interrupted = True
    deviations = [d for side in sides for d in side.deviations()]
    order = {name: k for k, name in enumerate(named_outputs(model))}
    deviations.sort(key=lambda d: order[d.output])
    placed = [
        _placed(d, deviations, [found[k] for found in beside[name]], [r.numerics for r in runners])
        for name, side in theirs.items()
        for k, d in enumerate(side.deviations())
    ]
    return Envelope(model.name, count, tuple(deviations), tuple(placed), interrupted, tuple(endings.rows), stated or {})


def _placed(
    other: Deviation, known: Sequence[Deviation], beside: Sequence[OutputComparison], names: Sequence[Numerics]
) -> Deviation:
    """Another side's deviation with where it is in the envelope."""
    mine = [d for d in known if d.output == other.output]
    largest, rmse = other.largest * _ROUNDED, other.rmse * _ROUNDED
    within = largest <= max(d.largest for d in mine) and rmse <= max(d.rmse for d in mine)
    reached = next((d.arithmetic for d in mine if largest <= d.largest and rmse <= d.rmse), "")
    nearest = min(range(len(beside)), key=lambda k: (beside[k].mismatches > 0, beside[k].metrics.noise, k))
    return replace(
        other, within=within, reached_by=reached, nearest=names[nearest].name, nearest_unequal=beside[nearest].mismatches
    )


def reference_answers(model: Model) -> Callable[[Sample], Mapping[str, Array]]:
    """The reference's outputs of a sample, in the model's types; what :func:`envelope` asks for its reference."""
    operands = named_outputs(model)

    def stated(sample: Sample) -> Mapping[str, Array]:
        outputs = sample.outputs
        named = outputs if isinstance(outputs, Mapping) else dict(zip(operands, outputs, strict=True))
        fitted = {name: in_model(operand, np.asarray(named[name])) for name, operand in operands.items()}
        return {name: a if a.shape else a.reshape(1) for name, a in fitted.items()}

    return stated

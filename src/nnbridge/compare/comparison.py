"""Comparing a model's outputs with a reference: LiteRT, ONNX Runtime or stored arrays.

How far they may differ: :mod:`nnbridge.compare.tolerance`. Samples are streamed: memory does not grow with their
number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, field
from functools import partial
from typing import Any

import numpy as np

from nnbridge.compare.acceptance import Check, Checks, check_as_dict, check_sentence
from nnbridge.compare.arrays import Array
from nnbridge.compare.causes import Cause
from nnbridge.compare.metrics import Metrics
from nnbridge.compare.results import DeviceResult
from nnbridge.compare.samples import Endings, Sample, in_model, named_outputs
from nnbridge.compare.tolerance import DEFAULT_TOLERANCE, Magnitudes, Tolerance, Tolerances, as_tolerances
from nnbridge.devices.evidence import Evidence, evidences, idle_devices
from nnbridge.extensions import codec_of, operand_dtype
from nnbridge.model import Model
from nnbridge.records import dataclass
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.plan import Share
from nnbridge.runtime.states import States


@dataclass(frozen=True)
class Worst:
    """Of the elements that are not equal the one that is furthest beyond its tolerance, or nearest to it."""

    sample: str
    index: tuple[int, ...]
    actual: complex
    expected: complex
    difference: float


@dataclass
class OutputComparison:
    """One output over all samples."""

    name: str
    type: str
    tolerance: Tolerance = DEFAULT_TOLERANCE
    arrays: int = 0
    """Pairs of arrays of the same shape and kind: where every array is empty, they are all that was compared."""
    elements: int = 0
    compared: int = 0
    """Elements that are finite on both sides, whose differences are counted."""
    non_finite: int = 0
    """Elements that are infinite or NaN on one side or both."""
    non_finite_unequal: int = 0
    """Those of them that are not the same on both sides."""
    largest: float = 0.0
    """Largest difference of finite elements."""
    max_quant_diff: int | None = None
    """Largest difference in steps, for integer outputs."""
    sum_abs_diff: float = 0.0
    mismatches: int = 0
    """Elements that are not equal."""
    worst: Worst | None = None
    problem: str = ""
    """Why the arrays could not be compared."""
    zero_point: int = 0
    metrics: Metrics = field(default_factory=Metrics)
    low: float = np.inf
    high: float = -np.inf
    """The reference's smallest and largest value, of floating outputs."""
    check: Check | None = None
    """Decides in place of the elements."""
    _dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float32), repr=False)
    _magnitudes: Magnitudes = field(default_factory=Magnitudes, repr=False)
    _excesses: Array | None = field(default=None, repr=False)
    """How many differences exceed what rtol allows, by the absolute tolerance that they need: an index of :attr:`_grid`."""
    _worst_excess: float = field(default=-np.inf, repr=False)

    @property
    def rtol(self) -> float:
        """The relative tolerance."""
        return self.tolerance.relative(self._dtype)

    @property
    def atol(self) -> float:
        """The absolute tolerance."""
        return float(self._grid[self._allowed])

    @property
    def beyond(self) -> int:
        """Elements outside tolerance."""
        return self.non_finite_unequal + (0 if self._excesses is None else int(self._excesses[self._allowed + 1 :].sum()))

    @property
    def within(self) -> bool:
        """True if something was compared and all of it is within tolerance."""
        return self.beyond == 0 and not self.problem and self.arrays > 0

    @property
    def passed(self) -> bool:
        """True if what decides does: the check, else the elements."""
        return self.within if self.check is None else self.check.passes(self)

    @property
    def max_abs_diff(self) -> float | None:
        """Largest difference of finite elements; None if there are elements, but none that are finite on both sides."""
        return self.largest if self.compared or not self.elements else None

    @property
    def mean_abs_diff(self) -> float | None:
        """Mean difference of finite elements; None as above."""
        return self.sum_abs_diff / max(self.compared, 1) if self.compared or not self.elements else None

    @property
    def range(self) -> float:
        """The range of a floating reference; a constant output has none, its magnitude is used."""
        return self.high - self.low or abs(self.high) if self.high >= self.low else 0.0

    @property
    def span(self) -> float:
        """The range that differences are a share of: 256 steps of integers, or the range."""
        return self.range if self.max_quant_diff is None else 256.0

    @property
    def _grid(self) -> Array:
        """The candidates for atol: one value if it is known, otherwise many, one of which is chosen when all samples are
        known."""
        return self.tolerance.absolute(self._dtype)

    @property
    def _allowed(self) -> int:
        """Index of the absolute tolerance."""
        grid = self._grid
        return min(int(np.searchsorted(grid, self.rtol * self._magnitudes.typical())), len(grid) - 1) if len(grid) > 1 else 0

    def add(self, actual: Array, expected: Array, sample: str = "") -> None:
        """Compare one pair of arrays."""
        if not expected.shape and actual.shape == (1,):
            # NNAPI has no scalars among tensors.
            expected = expected.reshape(1)
        if actual.shape != expected.shape or actual.dtype.kind != expected.dtype.kind:
            self.problem = f"{expected.dtype}{list(expected.shape)} in the reference, {actual.dtype}{list(actual.shape)} here"
            return
        if actual.dtype.isbuiltin != 1:
            # Types that NumPy does not have, such as float8 and int4: it knows neither their limits nor infinities among them.
            actual, expected = actual.astype(np.float32), expected.astype(np.float32)
        self.arrays += 1
        self.elements += actual.size
        if actual.size == 0:
            return
        self._dtype = expected.dtype
        ours, theirs = np.ascontiguousarray(actual).reshape(-1), np.ascontiguousarray(expected).reshape(-1)
        for start in range(0, ours.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            self._add_block(ours[block], theirs[block], start, expected.shape, sample)

    def _add_block(self, actual: Array, expected: Array, start: int, shape: tuple[int, ...], sample: str) -> None:
        """A part of one pair of arrays, which begins at the element ``start`` of their shape."""
        theirs, ours = _parts(expected), _parts(actual)
        with np.errstate(all="ignore"):
            finite = np.isfinite(theirs) & np.isfinite(ours)
            same = (theirs == ours) | ((theirs != theirs) & (ours != ours))
            difference = np.where(finite, _differences(ours, theirs), 0)
            magnitudes = np.abs(theirs[finite].astype(np.float64))
            excess = np.where(finite, difference.astype(np.float64), np.inf)
            excess[finite] -= self.rtol * magnitudes
            excess[same] = -np.inf
        count = int(finite.sum())
        self.metrics.add(*((ours, theirs) if count == theirs.size else (ours[finite], theirs[finite])), self.zero_point)
        self.compared += count
        self.non_finite += int((~finite).sum())
        self.non_finite_unequal += int((~finite & ~same).sum())
        self.mismatches += int((~same).sum())
        self.largest = max(self.largest, float(difference.max()))
        self.sum_abs_diff += float(difference.sum(dtype=np.float64))
        if expected.dtype.kind in "fc":
            self._magnitudes.add(magnitudes)
            self.low = float(np.min(theirs, initial=self.low, where=finite))
            self.high = float(np.max(theirs, initial=self.high, where=finite))
        else:
            self.max_quant_diff = max(self.max_quant_diff or 0, int(difference.max()))
        grid = self._grid
        if self._excesses is None:
            self._excesses = np.zeros(len(grid) + 1, np.int64)
        above = excess[finite & (excess > grid[0])]
        self._excesses += np.bincount(np.searchsorted(grid, above), minlength=len(grid) + 1)
        if excess.max() > self._worst_excess:
            k = int(excess.argmax())
            self._worst_excess = float(excess[k])
            at = k // (theirs.size // expected.size)
            index = tuple(map(int, np.unravel_index(start + at, shape)))
            difference_there = float(difference[k]) if finite[k] else np.nan
            self.worst = Worst(sample, index, actual[at].item(), expected[at].item(), difference_there)

    @property
    def decided_by(self) -> str:
        """The form of the check that decided whether the output passes: ``boxes`` or ``classes``; empty for its elements."""
        return self.check.form if self.check is not None and self.check.passed == self.passed else ""

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready counts and differences."""
        worst = None
        if self.worst is not None:
            values = {key: [v.real, v.imag] if isinstance(v, complex) else v for key, v in asdict(self.worst).items()}
            worst = {**values, "index": list(self.worst.index)}
        subject = {"name": self.name, "type": self.type, "elements": self.elements}
        differences = {
            "max_abs_diff": self.max_abs_diff,
            "max_quant_diff": self.max_quant_diff,
            "mean_abs_diff": self.mean_abs_diff,
        }
        tolerance = {"atol": self.atol, "rtol": self.rtol, "beyond": self.beyond, "worst": worst}
        non_finite = {"non_finite": self.non_finite, "non_finite_unequal": self.non_finite_unequal}
        by = {"pass_by": self.decided_by} if self.decided_by else {}
        ends = {"pass": self.passed, **by, **({"problem": self.problem} if self.problem else {})}
        return {
            **subject,
            **differences,
            "mismatches": self.mismatches,
            **self.metrics.as_dict(),
            **tolerance,
            **non_finite,
            **ends,
        }


_BLOCK = 1 << 18
"""Elements that are compared at a time: their differences take some ten times their memory."""


def _parts(array: Array) -> Array:
    """A flat array, in which a complex number is two numbers and floats are doubles."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind == "c":
        return flat.astype(np.complex128).view(np.float64)
    return flat.astype(np.float64) if flat.dtype.kind == "f" else flat


def _differences(a: Array, b: Array) -> Array:
    """Absolute differences, exact for integers of any size (unsigned 64-bit then)."""
    if a.dtype.kind == "f":
        return np.abs(a - b)
    # Subtraction modulo 2**64 of the smaller from the larger is exact for signed and unsigned integers alike.
    return np.where(a > b, a.astype(np.uint64) - b.astype(np.uint64), b.astype(np.uint64) - a.astype(np.uint64))


@dataclass(frozen=True, repr=False)
class Comparison(DeviceResult):
    """Every output of a model on some devices against a reference."""

    model: str
    device: str
    """The devices that ran something."""
    reference: str
    samples: int
    outputs: tuple[OutputComparison, ...]
    fallbacks: tuple[str, ...] = ()
    """What fell back to the CPU, when the model was compiled or while it ran, and why."""
    shares: tuple[Share, ...] = ()
    """The part of the model that each offered driver accepted."""
    causes: tuple[Cause, ...] = ()
    """What explains differences (:mod:`nnbridge.compare.explanation`)."""
    interrupted: bool = False
    ended: tuple[tuple[str, str], ...] = ()
    """Samples at which a runtime's process ended, and how: they are not compared."""
    evidence: tuple[Evidence, ...] = ()
    """The evidence of each driver that ran something."""
    idle: tuple[str, ...] = ()
    """The devices that were offered the model where none of them ran anything: others computed all that was compared."""

    @property
    def checks(self) -> list[tuple[Check, list[OutputComparison]]]:
        """The checks that decide in place of elements, with their outputs."""
        found = {id(output.check): output.check for output in self.outputs if output.check is not None}
        return [(check, [output for output in self.outputs if output.check is check]) for check in found.values()]

    @property
    def check_sentences(self) -> list[str]:
        """One for each."""
        return [check_sentence(*each, bool(self.reservation)) for each in self.checks]

    @property
    def verdict(self) -> str:
        """``pass`` or ``FAIL`` and what decided in place of elements, or why that cannot be said of the devices."""
        found = "pass" if self.passed else "FAIL" if self.failed else "not all compared"
        by = f" by {' and '.join(check.title for check, _ in self.checks)}" if self.checks else ""
        return self.reservation or f"{found}{by}"

    @property
    def verdict_line(self) -> str:
        """The verdict with what it is about, for the end of a long output; where it says nothing of the devices, also what was
        computed."""
        computed = f"; what was computed is {'within' if self.passed else 'outside'} tolerance" if self.reservation else ""
        return f"{self.model} on {self.device}: {self.verdict}{computed}"

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        others = [output for output in self.outputs if output.check is None]
        failing = [output.name for output in others if not output.passed]
        elements = f"beyond tolerance: {', '.join(failing)}" if failing else "all outputs are within tolerance"
        elements = elements.replace("all", "the other", 1) if self.checks else elements
        verdict = "; ".join([*self.check_sentences, *([elements] if others else [])])
        verdict = f"{self.reservation}; of what was computed, {verdict}" if self.reservation else verdict
        samples = f"{self.samples} sample{'' if self.samples == 1 else 's'}"
        ended = f"; not compared, as {self.ended[0][1]}: {', '.join(label for label, _ in self.ended)}" if self.ended else ""
        return f"{self.model} on {self.device} against {self.reference}, {samples}: {verdict}{ended}"

    def records(self) -> Sequence[Mapping[str, Any]]:
        """A row for each output; ``pass`` is None where the numbers say nothing of the devices."""
        return [
            {
                "output": o.name,
                "type": o.type,
                "elements": o.elements,
                "max diff": o.max_abs_diff,
                "mean diff": o.mean_abs_diff,
                "rmse": o.metrics.rmse,
                "sqnr dB": o.metrics.sqnr,
                "cosine": o.metrics.cosine,
                "unequal": o.mismatches / max(o.elements, 1),
                "atol": o.atol,
                "rtol": o.rtol,
                "pass": None if self.reservation else o.passed,
                "by": o.check.title if o.check is not None else "",
                "problem": o.problem,
            }
            for o in self.outputs
        ]

    @property
    def passed(self) -> bool:
        """True if every output is within tolerance or passes its check, and every sample was compared."""
        return all(output.passed for output in self.outputs) and bool(self.outputs) and not self.ended

    @property
    def failed(self) -> bool:
        """True if what was compared did not pass: samples at which a process ended are no judgement."""
        compared = [output for output in self.outputs if output.arrays or output.problem or not self.ended]
        return not all(output.passed for output in compared) or not self.outputs

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready counts and differences."""
        ran = {"model": self.model, "device": self.device, "reference": self.reference, "samples": self.samples}
        outputs = [output.as_dict() for output in self.outputs]
        offered = [asdict(share) for share in self.shares]
        why = {"causes": [cause.as_dict() for cause in self.causes], "interrupted": self.interrupted}
        ended = {"ended": [{"sample": label, "reason": why} for label, why in self.ended]} if self.ended else {}
        found = {
            **ran,
            **ended,
            "pass": self.passed,
            "verdict": self.verdict,
            "evidence": [each.as_dict() for each in self.evidence],
            "idle": list(self.idle),
            "outputs": outputs,
            "checks": [check_as_dict(*each, bool(self.reservation)) for each in self.checks],
            "fallbacks": list(self.fallbacks),
            "offered": offered,
            **why,
        }
        return self.judged(found)


def compare(
    compilation: Compilation,
    reference: str,
    samples: Iterable[Sample],
    tolerance: Tolerance | Tolerances = DEFAULT_TOLERANCE,
    observe: Callable[[Sample, Mapping[str, Array]], None] | None = None,
) -> Comparison:
    """Run every sample on a finished compilation and compare with the reference's outputs.

    ``observe`` is called with each sample and the outputs that were computed for it. After KeyboardInterrupt the samples that are
    done are the result.
    """
    model = compilation.model
    outputs = new_comparisons(model, tolerance)
    checks = Checks(model, as_tolerances(tolerance).accept, partial(_of_names, model, tolerance))
    count = 0
    states = States(model)
    fallbacks: dict[str, None] = {}
    ran: dict[str, None] = {}
    interrupted, endings = False, Endings()
    try:
        for _, sample in endings.left(samples):
            if not sample.continues:
                states.reset()
            execution = Execution(compilation, states)
            with endings.at(sample):
                answers = execution.run(sample.inputs)
                add_sample(model, outputs, answers, sample.outputs, sample.label)
                checks.add(answers, sample.outputs, sample.label)
                if observe is not None:
                    observe(sample, answers)
                fallbacks.update(dict.fromkeys(fallbacks_of(execution)))
                ran.update(dict.fromkeys(execution.report.devices))
                count += 1
    except KeyboardInterrupt:
        if not count:
            raise
        interrupted = True
    for check in checks.deciding(outputs):
        for output in outputs:
            output.check = check if output.name in check.outputs else output.check
    devices = ", ".join(ran) or "no device"
    known = evidences(device for device in compilation.devices if device.name in ran)
    return Comparison(
        model.name,
        devices,
        reference,
        count,
        tuple(outputs),
        tuple(fallbacks),
        compilation.shares(),
        (),
        interrupted,
        tuple(endings.rows),
        tuple(known),
        idle_devices(compilation.devices, ran) if count else (),
    )


def new_comparisons(model: Model, tolerance: Tolerance | Tolerances = DEFAULT_TOLERANCE) -> list[OutputComparison]:
    """A comparison for each of the model's outputs, still without samples."""
    operands = named_outputs(model)
    tolerances = as_tolerances(tolerance).check(operands)
    return [
        OutputComparison(name, str(operand_dtype(o)), tolerances.of(name), zero_point=o.zero_point)
        for name, o in operands.items()
    ]


def _of_names(model: Model, tolerance: Tolerance | Tolerances, names: Sequence[str]) -> list[OutputComparison]:
    return [output for output in new_comparisons(model, tolerance) if output.name in names]


def add_sample(
    model: Model,
    outputs: Sequence[OutputComparison],
    answers: Mapping[str, Array],
    expected: Sequence[Array] | Mapping[str, Array],
    label: str = "",
) -> None:
    """Compare one run's outputs, by name, with a reference's."""
    in_order = [expected[output.name] for output in outputs] if isinstance(expected, Mapping) else list(expected)
    for output, operand, theirs in zip(outputs, named_outputs(model).values(), in_order, strict=True):
        codec, found = codec_of(operand), answers[output.name]
        if codec is None:
            output.add(found, in_model(operand, theirs), label)
        else:
            _add_unpacked(output, codec.unpack(found), codec.unpack(theirs), label)


def _add_unpacked(output: OutputComparison, found: Sequence[Array], expected: Sequence[Array], label: str) -> None:
    """Compare the tensors of a sequence as one array, texts by whether they are equal."""
    sides = [[(array.dtype, array.shape) for array in side] for side in (found, expected)]
    if sides[0] != sides[1]:
        shown = (", ".join(f"{dtype}{list(shape)}" for dtype, shape in side) or "nothing" for side in sides)
        output.problem = output.problem or "{}, reference {}".format(*shown)
        return
    ours, theirs = (np.concatenate([np.ravel(array) for array in side] or [np.zeros(0)]) for side in (found, expected))
    output.type = str(ours.dtype)
    if ours.dtype.kind in "OUS":
        numbers = np.unique(np.concatenate([ours, theirs]).astype(str), return_inverse=True)[1].astype(np.int64)
        ours, theirs = np.split(numbers, 2)
    output.add(ours, theirs, label)


def fallbacks_of(execution: Execution) -> list[str]:
    """The operations that fell back to the CPU in a run or already when the model was compiled, and the reasons."""
    report, compiled = execution.report, execution.compilation.plan.fallback
    wholes = [f"whole model: {why}" for why in (compiled, report.fallback) if why is not None]
    return wholes + [f"step {step.step}: {step.fallback}" for step in report.steps if step.fallback is not None]

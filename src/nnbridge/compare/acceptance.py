"""Outputs of known forms, accepted by what they show: boxes matched at any position, the class in first place.

Detections that are beyond tolerance by position are compared as their boxes match, by default within the same tolerances;
``--accept-iou`` and ``--accept-top1`` state what is enough instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from nnbridge.compare.arrays import Array
from nnbridge.compare.detections import (
    LAYOUTS,
    SAME_BOX,
    Boxes,
    BoxLayout,
    Pair,
    SelectedBoxes,
    pairs,
    recognised,
    selected_outputs,
    selection,
)
from nnbridge.compare.samples import dequantised, named_outputs, outputs_in_model
from nnbridge.compare.tolerance import Acceptance
from nnbridge.errors import InputError, Reason
from nnbridge.extensions import codec_of
from nnbridge.model import Model, Operand
from nnbridge.records import dataclass


class Elements(Protocol):
    """The elements of an output over all samples."""

    name: str
    arrays: int
    problem: str

    @property
    def beyond(self) -> int:
        """The number outside tolerance."""

    @property
    def within(self) -> bool:
        """True if all of them are within tolerance."""

    def add(self, actual: Array, expected: Array, sample: str = "") -> None:
        """Compare one pair of arrays."""


@dataclass
class BoxCheck:
    """Boxes of both sides, matched and counted over images."""

    form: ClassVar[str] = "boxes"
    title: ClassVar[str] = "matched boxes"
    asked: Acceptance
    layout: BoxLayout | SelectedBoxes
    compared: Sequence[Elements]
    """The outputs' numbers of matched boxes, in the reference's order."""
    images: int = 0
    boxes: int = 0
    """The reference's that need a counterpart."""
    found: int = 0
    extra: int = 0
    """Boxes here that need one and have none."""
    worst: float | None = None
    """The smallest overlap of a pair."""
    score_difference: float = 0.0
    missed: str = ""
    """The first box of the reference without a counterpart, in words."""
    problem: str = ""
    blamed: str = ""
    """The output that fails where boxes do and each output by itself is within tolerance."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs that it decides of: of a NonMaxSuppression's candidates only where an overlap is asked for."""
        layout = self.layout
        return (layout.selected,) if isinstance(layout, SelectedBoxes) and self.asked.iou is None else layout.outputs

    def passes(self, output: Elements) -> bool:
        """True if an output passes: by the boxes, or as what fails them is in others."""
        return self.passed or (output.within and output.name != self.blamed)

    def add(self, operands: Mapping[str, Operand], ours: Mapping[str, Array], theirs: Mapping[str, Array], label: str) -> None:
        """Count in one sample."""
        expected, found = self.layout.images(operands, theirs), self.layout.images(operands, ours)
        if expected is None or found is None or len(found) != len(expected):
            self.problem = self.problem or f"the outputs here have other dimensions than the reference's at {label or 'a sample'}"
            return
        for k, (there, here) in enumerate(zip(expected, found, strict=True)):
            at = label if len(found) == 1 else f"{label}, image {k}"
            matched = self._count(there, here, at)
            rows = np.array([(pair.ours, pair.theirs) for pair in matched], np.int64).reshape(-1, 2)
            for output in self.compared:
                output.add(here.stored[output.name][rows[:, 0]], there.stored[output.name][rows[:, 1]], at)

    def _count(self, there: Boxes, here: Boxes, label: str) -> list[Pair]:
        asked = self.asked
        floor = -np.inf if asked.score_threshold is None else asked.score_threshold
        iou, score = (SAME_BOX if asked.iou is None else asked.iou), (np.inf if asked.score is None else asked.score)
        matched = pairs(there, here, iou, score, floor)
        needed, others = ([k for k in range(len(side)) if not side.scores[k] < floor] for side in (there, here))
        lone = sorted(set(needed) - {pair.theirs for pair in matched})
        self.images += 1
        self.boxes += len(needed)
        self.found += len(needed) - len(lone)
        self.extra += len(set(others) - {pair.ours for pair in matched})
        counted = [pair for pair in matched if pair.theirs in needed or pair.ours in others]
        self.worst = min([pair.iou for pair in counted] + ([] if self.worst is None else [self.worst]), default=None)
        distances = [abs(float(there.scores[pair.theirs] - here.scores[pair.ours])) for pair in counted]
        self.score_difference = max([self.score_difference, *distances])
        if lone and not self.missed:
            corners = ", ".join(f"{corner:.4g}" for corner in there.corners[lone[0]])
            kind = f"class {there.classes[lone[0]]:.0f}, score {there.scores[lone[0]]:.3g}"
            self.missed = f"{kind}, corners {corners}, of {label}" if label else f"{kind}, corners {corners}"
        return matched

    @property
    def passed(self) -> bool:
        """True if each box has its counterpart, by default with numbers within tolerance."""
        differs = self.asked.iou is None and not all(output.within for output in self.compared if output.arrays)
        return self.images > 0 and not self.problem and self.found == self.boxes and not self.extra and not differs

    @property
    def counts(self) -> str:
        """The figures in words."""
        if self.problem:
            return self.problem
        worst = "" if self.worst is None else f", worst IoU {_rounded_down(self.worst)}"
        enough = "" if self.asked.iou is None else f", {self.asked.iou:g} required"
        extra = f", {self.extra} more here" if self.extra else ""
        beyond_tolerance = sum(output.beyond for output in self.compared) if self.asked.iou is None else 0
        beyond = f"; {beyond_tolerance:,} of their values beyond tolerance" if beyond_tolerance else ""
        return f"{self.found} of {self.boxes}{extra}{worst}{enough}{beyond}"

    @property
    def why(self) -> list[str]:
        """An example of what fails, in words, or what to do."""
        if self.missed:
            return [f"a box of the reference without a counterpart here: {self.missed}"]
        paired = self.boxes and self.found == self.boxes and not self.extra and not self.problem
        if not paired or self.passed or self.asked.iou is not None:
            return []
        return ["each box has its counterpart, with other numbers; --accept-iou 0.5 asks only for the overlap"]

    def figures(self) -> dict[str, Any]:
        """JSON-ready."""
        asked = {
            "min_iou": self.asked.iou,
            "score_threshold": self.asked.score_threshold,
            "allowed_score_difference": self.asked.score,
        }
        counts = {"images": self.images, "reference": self.boxes, "found": self.found, "extra": self.extra}
        return {**asked, **counts, "worst_iou": self.worst, "max_score_difference": self.score_difference, "missed": self.missed}


@dataclass
class ClassCheck:
    """The class in first place on both sides, counted over samples and, of a batch, its rows."""

    form: ClassVar[str] = "classes"
    title: ClassVar[str] = "top class"
    asked: float
    output: str
    samples: int = 0
    agreed: int = 0
    missed: str = ""
    """The first sample whose top class differs, in words."""

    def passes(self, output: Elements) -> bool:
        """True if the output passes."""
        return self.passed

    @property
    def outputs(self) -> tuple[str, ...]:
        """The name of the output."""
        return (self.output,)

    def add(self, operands: Mapping[str, Operand], ours: Mapping[str, Array], theirs: Mapping[str, Array], label: str) -> None:
        """Count in one sample. Where classes share the first place in the reference, each of them is right."""
        there = _class_rows(theirs[self.output])
        here = (
            _class_rows(ours[self.output]) if ours[self.output].size == theirs[self.output].size else np.full_like(there, np.nan)
        )
        for k, (mine, expected) in enumerate(zip(here, there, strict=True)):
            top = int(mine.argmax())
            agrees = not np.isnan(mine).any() and bool(expected[top] == expected.max())
            self.samples += 1
            self.agreed += agrees
            if not agrees and not self.missed:
                at = label if len(there) == 1 else f"{label}, row {k}"
                self.missed = f"class {top} here, {int(expected.argmax())} in the reference, of {at}"

    @property
    def passed(self) -> bool:
        """True if the share of samples is reached."""
        return self.samples > 0 and self.agreed >= self.asked * self.samples - _ROUNDING

    @property
    def counts(self) -> str:
        """The figures in words."""
        return f"{self.agreed} of {self.samples} samples, {self.asked:.4g} required"

    @property
    def why(self) -> list[str]:
        """An example of what differs, in words."""
        return [f"another class in first place: {self.missed}"] if self.missed else []

    def figures(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"required": self.asked, "samples": self.samples, "agreed": self.agreed, "missed": self.missed}


Check = BoxCheck | ClassCheck
_ROUNDING = 1e-9


def check_sentence(check: Check, outputs: Sequence[Elements], reserved: bool = False) -> str:
    """A check's verdict, by what it was reached, and what the elements say; ``reserved``: it is none on the devices."""
    beyond = sum(output.beyond for output in outputs)
    others = sorted({output.problem for output in outputs if output.problem})
    by = "by position" if isinstance(check, BoxCheck) else "by element"
    values = (
        f"{beyond:,} value{'s are' if beyond != 1 else ' is'} beyond tolerance" if beyond else "all values are within tolerance"
    )
    elements = "the outputs cannot be compared" if others else values
    words = ("differ", "agree") if reserved else ("FAIL", "pass")
    verdict = words[check.passed]
    return f"{verdict} by {check.title} ({check.counts}); {by} {elements}"


def check_as_dict(check: Check, outputs: Sequence[Elements], reserved: bool = False) -> dict[str, Any]:
    """JSON-ready."""
    said = check_sentence(check, outputs, reserved)
    head = {"form": check.form, "outputs": list(check.outputs), "pass": check.passed, "sentence": said}
    return {**head, **check.figures(), "beyond": sum(output.beyond for output in outputs)}


class Checks:
    """The results of outputs of known forms, over samples."""

    def __init__(self, model: Model, asked: Acceptance, fresh: Callable[[Sequence[str]], Sequence[Elements]]) -> None:
        self._model, self._operands, self._asked = model, named_outputs(model), asked
        self._fresh = fresh
        self._selected = selected_outputs(model)
        self._boxes: BoxCheck | None = None
        self._classes: dict[str, ClassCheck] = {}
        self._unlike = False

    def add(self, answers: Mapping[str, Array], expected: Sequence[Array] | Mapping[str, Array], label: str = "") -> None:
        """Count in one sample; InputError where figures are asked for and no output has the form."""
        theirs = outputs_in_model(self._model, expected)
        if not self._unlike:
            self._add_boxes(answers, theirs, label)
        if self._asked.top1 is not None:
            self._add_classes(self._asked.top1, answers, theirs, label)

    def _add_boxes(self, ours: Mapping[str, Array], theirs: Mapping[str, Array], label: str) -> None:
        layout = self._layout(theirs)
        if layout is None or (self._boxes is not None and set(layout.outputs) != set(self._boxes.layout.outputs)):
            self._unlike = True
            if self._asked.iou is not None:
                raise InputError(Reason(f"detections among the outputs ({LAYOUTS})", _shapes(theirs), operand="--accept-iou"))
            return
        if self._boxes is None:
            self._boxes = BoxCheck(self._asked, layout, self._fresh(layout.by_box))
        self._boxes.layout = layout
        self._boxes.add(self._operands, ours, theirs, label)

    def _layout(self, theirs: Mapping[str, Array]) -> BoxLayout | SelectedBoxes | None:
        found = recognised(self._operands, theirs)
        return found or (selection(self._selected[0], self._operands, theirs) if len(self._selected) == 1 else None)

    def _add_classes(self, share: float, ours: Mapping[str, Array], theirs: Mapping[str, Array], label: str) -> None:
        if not self._classes:
            self._classes = {name: ClassCheck(share, name) for name in self._of_classes(theirs)}
        for check in self._classes.values():
            check.add(self._operands, ours, theirs, label)

    def _of_classes(self, theirs: Mapping[str, Array]) -> Sequence[str]:
        """The names of outputs with a score for each class: the only one that may have them, or those with probabilities."""
        covered = () if self._boxes is None else self._boxes.outputs
        found = {
            n: a for n, a in theirs.items() if n not in covered and codec_of(self._operands[n]) is None and _may_be_classes(a)
        }
        scores = [n for n, array in found.items() if _are_shares(dequantised(self._operands[n], array))]
        chosen = list(found) if len(found) == 1 else scores
        if not chosen:
            rule = "an output [classes] or [batch, classes] with a score for each"
            others = f"{', '.join(found)}, none of them with numbers from 0 to 1" if found else _shapes(theirs)
            boxes = f"detections ({covered[0]}), which --accept-iou is for" if covered else ""
            raise InputError(Reason(rule, boxes or others, operand="--accept-top1"))
        return chosen

    def deciding(self, outputs: Sequence[Elements]) -> list[Check]:
        """The checks that decide: those that were asked for, and boxes where positions fail."""
        by_name = {output.name: output for output in outputs}
        boxes = None if self._unlike else self._boxes
        asked = self._asked.iou is not None
        # Without a count, rows of zeros are no boxes, or no detections at all.
        likely = boxes is not None and bool(boxes.layout.count or boxes.boxes)
        inside = boxes is not None and all(by_name[name].within for name in boxes.outputs)
        matched = boxes is not None and (asked or (likely and not inside))
        if boxes is not None and inside:
            boxes.blamed = boxes.layout.boxes or boxes.outputs[0]
        return [*self._classes.values(), *([boxes] if boxes is not None and matched else [])]


def _shapes(outputs: Mapping[str, Array]) -> str:
    return ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in outputs.items())


def _may_be_classes(array: Array) -> bool:
    return array.ndim > 0 and array.shape[-1] > 1 and array.dtype.kind in "fiu" and array.size in (array.shape[-1], _batch(array))


def _batch(array: Array) -> int:
    """The number of elements of an array if all dimensions but the first and last are 1."""
    return int(array.shape[0] * array.shape[-1]) if array.ndim > 1 else int(array.size)


def _are_shares(array: Array) -> bool:
    return bool(array.size and (array >= 0).all() and (array <= 1.0001).all() and array.max() > 0)


def _class_rows(array: Array) -> Array:
    return array.reshape(-1, array.shape[-1]).astype(np.float64)


def _rounded_down(share: float) -> str:
    """Three digits, of which no rounding makes a share that is lower look like one that is required."""
    return f"{np.floor(share * 1000) / 1000:.3f}"

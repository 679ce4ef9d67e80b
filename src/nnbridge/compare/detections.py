"""Detections: boxes of known layouts, matched one to one at any position.

A layout is recognised by the reference's outputs of a sample: boxes [n, 4] or [batch, n, 4] as corners, the first two no larger
than the last two, with a class and a score for each, and their count where there is one; or rows of corners, score and class
[batch, n, 6]. Where no count is stated, rows without a positive score are padding. Or the rows [n, 3] of a NonMaxSuppression,
which say which boxes it took: batch, class, box; the model says which output has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np

from nnbridge.compare.arrays import Array
from nnbridge.compare.samples import dequantised, named_outputs
from nnbridge.compare.tolerance import RELATIVE_TOLERANCE
from nnbridge.extensions import codec_of
from nnbridge.model import Model, Operand, Operation
from nnbridge.records import dataclass

SAME_BOX = 0.5
"""Intersection over union from which two boxes of a class show the same object, as in Pascal VOC."""
LAYOUTS = (
    "boxes [n, 4] as corners with classes [n] and scores [n], rows [batch, n, 6] of corners, score and class, or the rows of a "
    "NonMaxSuppression"
)
_MOST_BOXES = 2048
"""More are candidates that nothing has suppressed yet, which have positions."""
_SMALLEST = 1e-7
_DIGITS = 4
"""Of overlaps: boxes that are nearer than this are ordered by their scores."""
_CLASSES, _SCORES = re.compile("class|label|categor", re.IGNORECASE), re.compile("score|conf|prob", re.IGNORECASE)


@dataclass(frozen=True)
class Boxes:
    """The boxes of one image."""

    corners: Array
    """[n, 4]"""
    classes: Array
    """[n]"""
    scores: Array
    """[n]"""
    stored: Mapping[str, Array] = field(default_factory=dict)
    """The same as the outputs hold it, by the outputs' names: [n, …]."""

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True)
class Pair:
    """A box of the reference, by its index, and the one here that shows the same object."""

    theirs: int
    ours: int
    iou: float


@dataclass(frozen=True)
class BoxLayout:
    """The outputs that have each part of detections, by name; rows have all of it in ``boxes``."""

    boxes: str
    classes: str = ""
    scores: str = ""
    count: str = ""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of all of them."""
        return tuple(name for name in (self.boxes, self.classes, self.scores, self.count) if name)

    @property
    def by_box(self) -> tuple[str, ...]:
        """The names of those with numbers for each box."""
        return tuple(name for name in self.outputs if name != self.count)

    def images(self, operands: Mapping[str, Operand], outputs: Mapping[str, Array]) -> list[Boxes] | None:
        """The boxes of each image; None where the shapes are not the layout's."""
        real = {name: dequantised(operands[name], outputs[name]) for name in self.outputs}
        boxes = real[self.boxes]
        if boxes.ndim not in (2, 3) or boxes.shape[-1] != (4 if self.scores else 6):
            return None
        lead, batch = boxes.shape[:-1], boxes.shape[0] if boxes.ndim == 3 else 1
        if any(real[name].shape != lead for name in (self.classes, self.scores) if name):
            return None
        if self.count and real[self.count].size != batch:
            return None
        each = (batch, lead[-1])
        rows = boxes.reshape(*each, boxes.shape[-1]).astype(np.float64)
        ends = (real[self.classes], real[self.scores]) if self.scores else (rows[..., 5], rows[..., 4])
        classes, scores = (np.asarray(array, np.float64).reshape(each) for array in ends)
        chosen = [np.flatnonzero(~(row <= 0)) for row in scores]
        if self.count:
            chosen = [np.arange(_whole_count(count, lead[-1])) for count in real[self.count].reshape(batch)]
        stored = {name: outputs[name].reshape(*each, *outputs[name].shape[boxes.ndim - 1 :]) for name in self.by_box}
        return [
            Boxes(rows[k, i, :4], classes[k, i], scores[k, i], {name: array[k, i] for name, array in stored.items()})
            for k, i in enumerate(chosen)
        ]


@dataclass(frozen=True)
class SelectedBoxes:
    """The output of a NonMaxSuppression, by name, and the outputs that have its candidates, where there are any.

    Without these a row stands for itself: it matches the same row at any position.
    """

    selected: str
    boxes: str = ""
    """[batch, n, 4]: two corners, or where no corners are in order centre and size."""
    scores: str = ""
    """[batch, classes, n]"""
    count: str = ""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of all of them."""
        return (self.selected, *self.by_box)

    @property
    def by_box(self) -> tuple[str, ...]:
        """The names of those with numbers for each box."""
        return (self.boxes, self.scores) if self.boxes else ()

    def images(self, operands: Mapping[str, Operand], outputs: Mapping[str, Array]) -> list[Boxes] | None:
        """The boxes that were taken, of each image; None where the shapes are not the layout's, or a row names no box."""
        rows = outputs[self.selected].astype(np.int64)
        if rows.ndim != 2 or rows.shape[1] != len(_SELECTED):
            return None
        rows = rows[(rows >= 0).all(1)]  # Others are padding.
        if not self.boxes:
            corners = np.concatenate([rows[:, [0, 2]], rows[:, [0, 2]] + 1], 1).astype(np.float64)
            return [Boxes(corners, rows[:, 1].astype(np.float64), np.ones(len(rows)))]
        boxes, scores = outputs[self.boxes], outputs[self.scores]
        if boxes.ndim != 3 or scores.ndim != 3 or (rows >= (boxes.shape[0], scores.shape[1], boxes.shape[1])).any():
            return None
        real = {name: dequantised(operands[name], outputs[name]) for name in self.by_box}
        found = []
        for image in range(len(boxes)):
            _, classes, index = rows[rows[:, 0] == image].T
            stored = {self.boxes: boxes[image, index], self.scores: scores[image, classes, index]}
            taken = real[self.scores][image, classes, index].astype(np.float64)
            found.append(Boxes(_corners(real[self.boxes][image, index]), classes.astype(np.float64), taken, stored))
        return found


_SELECTED = ("batch", "class", "box")
_PASSED_ON = frozenset({"Cast", "Identity"})


def _corners(boxes: Array) -> Array:
    """Boxes as corners, the smaller numbers first: ONNX has any two corners of a diagonal, or centre and size."""
    first, second = boxes[:, :2].astype(np.float64), boxes[:, 2:].astype(np.float64)
    if (first > second).any() and (second > 0).all():
        return np.concatenate([first - second / 2, first + second / 2], 1)
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], 1)


def selected_outputs(model: Model) -> tuple[str, ...]:
    """The names of outputs that have the rows of a NonMaxSuppression of ONNX, or these in another type."""
    main, found = model.main, []
    for name, index in zip(named_outputs(model), model.own_outputs, strict=True):
        producer = main.producers.get(index)
        while producer is not None and _operator(main.operations[producer]) in _PASSED_ON:
            producer = main.producers.get(main.operations[producer].inputs[0])
        if producer is not None and _operator(main.operations[producer]) == "NonMaxSuppression":
            found.append(name)
    return tuple(found)


def _operator(operation: Operation) -> str:
    return "" if operation.source is None else operation.source.operator


def selection(name: str, operands: Mapping[str, Operand], outputs: Mapping[str, Array]) -> SelectedBoxes | None:
    """The layout of the rows of a NonMaxSuppression, with the only boxes and scores that have their candidates, if there are."""
    held = {n: array for n, array in outputs.items() if n != name and codec_of(operands[n]) is None and array.ndim == 3}
    pairs_of = [
        SelectedBoxes(name, boxes, scores)
        for boxes, b in held.items()
        for scores, s in held.items()
        if boxes != scores and b.shape[2] == 4 and (s.shape[0], s.shape[2]) == b.shape[:2]
    ]
    layout = pairs_of[0] if len(pairs_of) == 1 else SelectedBoxes(name)
    return layout if layout.images(operands, outputs) is not None else None


def recognised(operands: Mapping[str, Operand], outputs: Mapping[str, Array]) -> BoxLayout | None:
    """The layout of a sample's outputs, if they are detections of one that is known."""
    held = {name: array for name, array in outputs.items() if codec_of(operands[name]) is None and array.dtype.kind in "fiu"}
    found = [layout for name in held for layout in _layouts(name, held) if _fits(layout, operands, held)]
    return found[0] if found and len({layout.boxes for layout in found}) == 1 else None


def _layouts(name: str, outputs: Mapping[str, Array]) -> Iterator[BoxLayout]:
    """The possible roles of outputs of which one has boxes, the likelier roles first."""
    boxes = outputs[name]
    if boxes.ndim not in (2, 3) or boxes.shape[-2] > _MOST_BOXES:
        return
    if boxes.shape[-1] == 6 and boxes.ndim == 3:  # [batch, 6] are scores of six classes.
        yield BoxLayout(name)
    if boxes.shape[-1] != 4:
        return
    lead, batch = boxes.shape[:-1], boxes.shape[0] if boxes.ndim == 3 else 1
    pair = [other for other, array in outputs.items() if array.shape == lead]
    counts = [o for o, array in outputs.items() if array.size == batch and array.ndim <= 2 and o not in (name, *pair)]
    if len(pair) == 2 and len(counts) <= 1:
        if lead == (1,) and not max(_likelihood(pair[0], pair[1], outputs), _likelihood(pair[1], pair[0], outputs)):
            return  # Three outputs of four numbers, one and one may be anything.
        for classes, scores in sorted((pair, pair[::-1]), key=lambda roles: -_likelihood(roles[0], roles[1], outputs)):
            yield BoxLayout(name, classes, scores, *counts)


def _likelihood(classes: str, scores: str, outputs: Mapping[str, Array]) -> int:
    """A score of how well the names and types of two outputs fit these roles."""
    named = bool(_CLASSES.search(classes)) + bool(_SCORES.search(scores))
    return 2 * named + (outputs[classes].dtype.kind in "iu" and outputs[scores].dtype.kind == "f")


def _fits(layout: BoxLayout, operands: Mapping[str, Operand], outputs: Mapping[str, Array]) -> bool:
    """True if the values may be classes, scores and corners; those that are no numbers say nothing."""
    if layout.count and not np.isfinite(dequantised(operands[layout.count], outputs[layout.count])).all():
        return False
    images = layout.images(operands, outputs)
    if images is None:
        return False
    step = operands[layout.classes or layout.boxes].scale / 2
    for boxes in images:
        unlike = np.abs(boxes.classes - np.rint(boxes.classes)) > step
        unlike |= (boxes.corners[:, :2] > boxes.corners[:, 2:]).any(-1)
        if not layout.scores:
            unlike |= (boxes.scores < 0) | (boxes.scores > 1)
        if unlike.any():
            return False
    return True


def _whole_count(count: float, most: int) -> int:
    return int(np.clip(np.rint(count), 0, most)) if np.isfinite(count) else 0


def overlaps(theirs: Array, ours: Array) -> Array:
    """Intersection over union [theirs, ours] of corners; NaN where one is no number.

    Boxes without area have none in common; where their corners are the same within float32's rounding, it is 1.
    """
    one, other = theirs[:, None, :].astype(np.float64), ours[None, :, :].astype(np.float64)
    with np.errstate(all="ignore"):
        sides = np.minimum(one[..., 2:], other[..., 2:]) - np.maximum(one[..., :2], other[..., :2])
        shared = np.maximum(sides, 0).prod(-1)
        areas = [np.maximum(box[..., 2:] - box[..., :2], 0).prod(-1) for box in (one, other)]
        union = areas[0] + areas[1] - shared
        same = np.isclose(one, other, RELATIVE_TOLERANCE, _SMALLEST).all(-1)
        found: Array = np.where(union > 0, shared / union, np.where(same, 1.0, 0 * union))
    return found


def pairs(theirs: Boxes, ours: Boxes, iou: float = SAME_BOX, score: float = np.inf, floor: float = -np.inf) -> list[Pair]:
    """Boxes of both sides, each in one pair at most: of one class, with this overlap and difference of scores or better.

    Boxes from ``floor`` of the score on go first, then the best overlaps, of equal ones the nearest scores; then as many more as
    any choice of pairs allows: the order of the boxes has no say. A box that is on both sides, with its score, is its own
    counterpart and makes up for no box that is missing.
    """
    if not len(theirs) or not len(ours):
        return []
    overlap = overlaps(theirs.corners, ours.corners)
    with np.errstate(invalid="ignore"):
        distance = np.abs(theirs.scores[:, None] - ours.scores)
        allowed = (np.rint(theirs.classes)[:, None] == np.rint(ours.classes)) & (overlap >= iou) & (distance <= score)
    rows, columns = np.nonzero(allowed)
    low = (theirs.scores[rows] < floor) | (ours.scores[columns] < floor)
    best = np.lexsort((distance[rows, columns], -overlap[rows, columns].round(_DIGITS), low))
    partner: dict[int, int] = {}
    mine: dict[int, int] = {}
    for row, column in zip(rows[best].tolist(), columns[best].tolist(), strict=True):
        if row not in partner and column not in mine:
            partner[row], mine[column] = column, row
    for row, column in partner.items():
        if overlap[row, column].round(_DIGITS) == 1 and distance[row, column].round(_DIGITS) == 0:
            allowed[row], allowed[:, column] = False, False
    for row in np.argsort(-theirs.scores, kind="stable").tolist():
        if row not in partner and allowed[row].any():
            _augment(row, allowed, partner, mine)
    return [Pair(row, column, float(overlap[row, column])) for row, column in sorted(partner.items())]


def _augment(start: int, allowed: Array, partner: dict[int, int], mine: dict[int, int]) -> None:
    """Pair a row by giving others another partner, where none of them loses its own by that."""
    reached_from: dict[int, int] = {}
    rows: Sequence[int] = [start]
    while rows:
        following = []
        for row in rows:
            for column in np.flatnonzero(allowed[row]).tolist():
                if column in reached_from:
                    continue
                reached_from[column] = row
                if column not in mine:
                    _exchange(column, reached_from, partner, mine)
                    return
                following.append(mine[column])
        rows = following


def _exchange(free: int, reached_from: Mapping[int, int], partner: dict[int, int], mine: dict[int, int]) -> None:
    column: int | None = free
    while column is not None:
        row = reached_from[column]
        before = partner.get(row)
        partner[row], mine[column] = column, row
        column = before

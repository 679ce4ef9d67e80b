"""Agreement of two sides' results: classes, boxes matched by overlap, masks, points of a body, counted over samples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from nnbridge.compare import Sample
from nnbridge.compare.arrays import Array
from nnbridge.compare.detections import Boxes, pairs
from nnbridge.compare.samples import outputs_in_model
from nnbridge.model import Model
from nnbridge.records import dataclass
from nnbridge.report.answers import Answer, Box, Classification, Detection, Pose, Segmentation, answers


def both_answers(
    model: Model, sample: Sample, outputs: Mapping[str, Array], names: Mapping[str, Sequence[str]] | None = None
) -> tuple[list[Answer], list[Answer]]:
    """The results in a run's outputs and in the reference's; nothing where their sizes differ."""
    references = outputs_in_model(model, sample.outputs)
    if any(references[name].size != array.size for name, array in outputs.items()):
        return [], []
    return answers(model, outputs, names), answers(model, references, names)


@dataclass
class Agreement:
    """Counts over samples. An answer that only one side has counts as one that differs."""

    classified: int = 0
    """Samples and outputs that name classes."""
    top1: int = 0
    """Those whose first class is the same."""
    top5: int = 0
    """Those whose first five classes are the same, in any order."""
    boxes: int = 0
    """The reference's boxes."""
    own_boxes: int = 0
    matched: int = 0
    """Pairs of one class that overlap by :data:`~nnbridge.compare.detections.SAME_BOX` at least; each box is of one pair."""
    overlap: float = 0.0
    """The sum of the pairs' intersection over union."""
    score_difference: float = 0.0
    """The largest of a pair."""
    points: int = 0
    distance: float = 0.0
    """The sum of the points' distances, in shares of the image's sides."""
    furthest: float = 0.0
    pixels: Counter[int] = field(default_factory=Counter)
    """Class → pixels that either side's masks have."""
    shared_pixels: Counter[int] = field(default_factory=Counter)

    def observe(self, model: Model, sample: Sample, outputs: Mapping[str, Array]) -> None:
        """Count in one sample."""
        self.add(*both_answers(model, sample, outputs))

    def add(self, ours: Sequence[Answer], theirs: Sequence[Answer]) -> None:
        """Count in one sample's answers."""
        own = {answer.output: answer for answer in ours}
        for answer in theirs:
            _COUNTING[type(answer)](self, own.get(answer.output), answer)

    def _classes(self, ours: Answer | None, theirs: Classification) -> None:
        self.classified += 1
        if isinstance(ours, Classification):
            first, second = ([ranked.index for ranked in side.top] for side in (ours, theirs))
            self.top1 += first[:1] == second[:1]
            self.top5 += sorted(first) == sorted(second)

    def _boxes(self, ours: Answer | None, theirs: Detection) -> None:
        there, here = _numbers(theirs.boxes), _numbers(ours.boxes if isinstance(ours, Detection) else ())
        self.boxes += len(there)
        self.own_boxes += len(here)
        for pair in pairs(there, here):
            self.matched += 1
            self.overlap += pair.iou
            distance = abs(float(there.scores[pair.theirs] - here.scores[pair.ours]))
            self.score_difference = max(self.score_difference, distance)

    def _mask(self, ours: Answer | None, theirs: Segmentation) -> None:
        same_form = isinstance(ours, Segmentation) and ours.mask.shape == theirs.mask.shape
        own = ours.mask if isinstance(ours, Segmentation) and same_form else np.full(theirs.mask.shape, -1)
        for index in np.union1d(own[own >= 0], theirs.mask).astype(int).tolist():
            here, there = own == index, theirs.mask == index
            self.pixels[index] += int((here | there).sum())
            self.shared_pixels[index] += int((here & there).sum())

    def _points(self, ours: Answer | None, theirs: Pose) -> None:
        for (_, y, x, _), (_, row, column, _) in zip(ours.points if isinstance(ours, Pose) else (), theirs.points, strict=False):
            distance = math.hypot(y - row, x - column)
            self.points += 1
            self.distance += distance
            self.furthest = max(self.furthest, distance)

    @property
    def mean_iou(self) -> float | None:
        """Of masks: intersection over union of each class that either side has, averaged over the classes."""
        shares = [self.shared_pixels[index] / pixels for index, pixels in self.pixels.items()]
        return sum(shares) / len(shares) if shares else None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; null for forms of answers that the outputs do not have."""
        boxes = {
            "reference": self.boxes,
            "own": self.own_boxes,
            "matched": self.matched,
            "mean_iou": self.overlap / self.matched if self.matched else None,
            "max_score_difference": self.score_difference,
        }
        points = {"compared": self.points, "mean_distance": self.distance / max(self.points, 1), "max_distance": self.furthest}
        classes = {"compared": self.classified, "top1": self.top1, "top5": self.top5}
        return {
            "classes": classes if self.classified else None,
            "boxes": boxes if self.boxes or self.own_boxes else None,
            "masks": {"classes": len(self.pixels), "mean_iou": self.mean_iou} if self.pixels else None,
            "points": points if self.points else None,
        }

    def lines(self) -> list[str]:
        """One for each form of answers that the outputs have."""
        lines = []
        if self.classified:
            same = f"top-1 agreement: {self.top1} of {self.classified} samples"
            lines.append(f"{same}; top-5 agreement: {self.top5}")
        if self.boxes or self.own_boxes:
            mean = f", mean IoU {self.overlap / self.matched:.4f}" if self.matched else ""
            found = f"{self.matched} of the reference's {self.boxes}, {self.own_boxes} here{mean}"
            lines.append(f"boxes that overlap by at least half: {found}")
        if self.pixels:
            lines.append(f"masks: mean IoU {self.mean_iou:.4f} over {len(self.pixels)} classes")
        if self.points:
            lines.append(f"points: {self.distance / self.points:.4f} apart on average, {self.furthest:.4f} at most")
        return lines


def _numbers(boxes: Sequence[Box]) -> Boxes:
    rows = np.array([(b.top, b.left, b.bottom, b.right, b.index, b.score) for b in boxes], np.float64).reshape(-1, 6)
    return Boxes(rows[:, :4], rows[:, 4], rows[:, 5])


_COUNTING: Mapping[type, Any] = {
    Classification: Agreement._classes,
    Detection: Agreement._boxes,
    Segmentation: Agreement._mask,
    Pose: Agreement._points,
}

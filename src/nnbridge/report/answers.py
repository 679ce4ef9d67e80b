"""Results in outputs of known forms: classes, boxes, a mask's classes, a body's points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from typing import Any, ClassVar

import numpy as np

from nnbridge.compare import named_outputs, unpacked
from nnbridge.compare.arrays import Array
from nnbridge.compare.detections import recognised
from nnbridge.compare.samples import dequantised
from nnbridge.converters.inspection import TensorInfo
from nnbridge.errors import InputError, Reason
from nnbridge.extensions import codec_of
from nnbridge.inputs import class_index, metadata_by_name
from nnbridge.model import Model, Operand
from nnbridge.records import dataclass

TOP = 5
_SMALLEST_MASK = 16
"""Height and width from which an output is a mask rather than features."""
BODY = (
    *("nose", "left eye", "right eye", "left ear", "right ear", "left shoulder", "right shoulder", "left elbow", "right elbow"),
    *("left wrist", "right wrist", "left hip", "right hip", "left knee", "right knee", "left ankle", "right ankle"),
)
"""COCO's points of a body, as pose models list them."""


@dataclass(frozen=True)
class Ranked:
    """One class with its score, or with its share of a mask."""

    index: int
    label: str
    score: float

    @property
    def title(self) -> str:
        """The label, else the number."""
        return self.label or f"class {self.index}"


@dataclass(frozen=True)
class Classification:
    """The classes with the highest scores, the highest first."""

    form: ClassVar[str] = "classification"
    output: str
    top: tuple[Ranked, ...]

    def lines(self) -> list[str]:
        """One for each class."""
        return [
            f"{self.output}: the top {len(self.top)}",
            *(f"  {r.score:.4f}  {r.index:4}  {r.label}".rstrip() for r in self.top),
        ]


@dataclass(frozen=True)
class Box:
    """An object found: its class, and its borders as shares of the input's height and width."""

    index: int
    label: str
    score: float
    top: float
    left: float
    bottom: float
    right: float

    @property
    def title(self) -> str:
        """The label, else the number, with the score."""
        return f"{self.label or f'class {self.index}'} {self.score:.2f}"


@dataclass(frozen=True)
class Detection:
    """The boxes of TFLite_Detection_PostProcess's four outputs, as many as it counts."""

    form: ClassVar[str] = "detection"
    output: str
    boxes: tuple[Box, ...]

    def lines(self) -> list[str]:
        """One for each box."""
        rows = [
            f"  {box.title}: rows {box.top:.3f} to {box.bottom:.3f}, columns {box.left:.3f} to {box.right:.3f}"
            for box in self.boxes
        ]
        return [f"{len(self.boxes)} {'box' if len(self.boxes) == 1 else 'boxes'} as shares of height and width", *rows]


@dataclass(frozen=True)
class Segmentation:
    """A mask: the class of each pixel, and each class's share of them, the largest first."""

    form: ClassVar[str] = "segmentation"
    output: str
    classes: tuple[Ranked, ...]
    mask: Array
    threshold: float | None = None
    """Of a mask that one number for each pixel states: class 1 is where it is larger, the background is class 0."""

    def lines(self) -> list[str]:
        """One for each class."""
        height, width = self.mask.shape
        rows = [f"  {r.score:7.2%}  {r.index:4}  {r.label}".rstrip() for r in self.classes]
        by = "" if self.threshold is None else f" (1 above {self.threshold:g})"
        return [f"{self.output}: a mask of {height} x {width}, its classes{by} by share", *rows]


@dataclass(frozen=True)
class Pose:
    """Points of a body, each at shares of the input's height and width."""

    form: ClassVar[str] = "pose"
    output: str
    points: tuple[tuple[str, float, float, float], ...]
    """Name, row, column, score."""

    def lines(self) -> list[str]:
        """One for each point."""
        rows = [f"  {score:.4f}  {name}: row {y:.3f}, column {x:.3f}" for name, y, x, score in self.points]
        return [f"{self.output}: points of a body as shares of height and width", *rows]


Answer = Classification | Detection | Segmentation | Pose


def answers(model: Model, outputs: Mapping[str, Array], labels: Mapping[str, Sequence[str]] | None = None) -> list[Answer]:
    """The results in a run's outputs of known forms; ``labels``: the names of classes by output."""
    operands = named_outputs(model)
    real = {n: dequantised(operands[n], array) for n, array in outputs.items() if codec_of(operands[n]) is None}
    labels = labels or {}
    found = _detection(operands, outputs, labels)
    if found is not None:
        return [found]
    each = (_answer(name, array, labels.get(name, ()), len(real) == 1) for name, array in real.items())
    return [answer for answer in each if answer is not None]


def answer_as_dict(answer: Answer) -> dict[str, Any]:
    """JSON-ready; the mask itself is left out, as it follows from the output's values."""
    data = {"form": answer.form, **asdict(answer)}
    data.pop("mask", None)
    if isinstance(answer, Pose):
        data["points"] = [dict(zip(("name", "row", "column", "score"), point, strict=True)) for point in answer.points]
    return data


def label_names(
    model: Model, stated: Sequence[TensorInfo], typed: Sequence[str], outputs: Mapping[str, Array]
) -> dict[str, Sequence[str]]:
    """The names of classes by output: those that were typed, else the file's own. InputError where they do not fit."""
    names = tuple(named_outputs(model))
    if not typed:
        return {name: facts.labels for name, facts in metadata_by_name(names, stated).items() if facts.labels}
    if len(names) == 1:
        [(name, array)] = outputs.items()
        if array.ndim == 2 and array.shape[0] == 1 and array.shape[1] != len(typed):
            raise InputError(Reason(f"{array.shape[1]} labels for {name}", str(len(typed)), operand="labels"))
    return dict.fromkeys(names, typed)


@dataclass
class Accuracy:
    """The number of labelled samples that have their class in first place, and among the first five."""

    labelled: int = 0
    top1: int = 0
    top5: int = 0
    unknown: dict[str, None] = field(default_factory=dict)
    """Labels that are no class's."""

    def add(self, found: Sequence[Answer], label: str, labels: Mapping[str, Sequence[str]]) -> None:
        """Count in the first classification among the answers for one sample."""
        answer = next((a for a in found if isinstance(a, Classification)), None)
        if not label or answer is None:
            return
        index = class_index(label, labels.get(answer.output, ()))
        if index is None:
            self.unknown[label] = None
            return
        ranks = [ranked.index for ranked in answer.top]
        self.labelled += 1
        self.top1 += index in ranks[:1]
        self.top5 += index in ranks

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"labelled": self.labelled, "top1": self.top1, "top5": self.top5, "unknown_labels": list(self.unknown)}

    def lines(self, whose: str) -> list[str]:
        """Nothing where no sample has a label."""
        shares = f"{whose}: top-1 {self.top1} of {self.labelled} ({self.top1 / max(self.labelled, 1):.2%}), "
        lines = [shares + f"top-5 {self.top5} ({self.top5 / max(self.labelled, 1):.2%})"] if self.labelled else []
        return lines + ([f"labels of no class: {', '.join(self.unknown)}"] if self.unknown else [])


def real_numbers(model: Model, outputs: Mapping[str, Array], values: bool) -> list[dict[str, Any]]:
    """Of each output scale and zero point with the range of its real numbers, where it is quantised, and its ``values``."""
    described: list[dict[str, Any]] = []
    held = named_outputs(model)
    for name, array in unpacked(held, outputs).items():
        real, item = (dequantised(held[name], array) if name in held else array), {}
        if real is not array and real.size:
            item = {"scale": held[name].scale, "zero_point": held[name].zero_point}
            item |= {"real_min": float(real.min()), "real_max": float(real.max())}
        if values:
            item["values"] = (np.stack([real.real, real.imag], -1) if real.dtype.kind == "c" else real).tolist()
        described.append({"name": name, **item})
    return described


def _answer(name: str, array: Array, labels: Sequence[str], alone: bool) -> Answer | None:
    if array.size == 0 or array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        return None
    whole = array[0] if array.shape[:1] == (1,) else array
    if array.shape[1:] == (1, len(BODY), 3) and _shares(array):
        return Pose(name, tuple((n, *map(float, point)) for n, point in zip(BODY, whole[0], strict=True)))  # type: ignore[misc]
    if whole.ndim == 1 and array.ndim <= 2 and len(whole) > 1 and (len(labels) == len(whole) or _scores(whole)):
        labels = labels if len(labels) == len(whole) else ()
        order = np.argsort(-whole.astype(np.float64), kind="stable")[:TOP]
        return Classification(name, tuple(Ranked(int(i), _label(labels, int(i)), float(whole[i])) for i in order))
    if not alone or array.shape[:1] != (1,):
        return None
    channel = _one_channel(whole)
    if channel is not None:
        return _foreground(name, channel, labels)
    mask = _mask(whole, len(labels))
    if mask is None:
        return None
    classes, counts = np.unique(mask, return_counts=True)
    ranked = [Ranked(int(c), _label(labels, int(c)), float(n / mask.size)) for c, n in zip(classes, counts, strict=True)]
    return Segmentation(name, tuple(sorted(ranked, key=lambda r: -r.score)), mask)


def _label(labels: Sequence[str], index: int) -> str:
    return labels[index] if 0 <= index < len(labels) else ""


def _shares(array: Array) -> bool:
    return bool(array.dtype.kind == "f" and (array >= -0.5).all() and (array <= 1.5).all())


def _scores(array: Array) -> bool:
    """True for what may be probabilities, of one choice or of each class by itself."""
    return bool(array.dtype.kind == "f" and (array >= 0).all() and (array <= 1.0001).all() and array.max() > 0)


def _one_channel(array: Array) -> Array | None:
    """The numbers [height, width] of an output that has one real number for each pixel."""
    if array.dtype.kind != "f" or array.ndim not in (2, 3) or (array.ndim == 3 and 1 not in (array.shape[0], array.shape[-1])):
        return None
    plane = array if array.ndim == 2 else array[..., 0] if array.shape[-1] == 1 else array[0]
    return plane if min(plane.shape) >= _SMALLEST_MASK else None


def _foreground(name: str, plane: Array, labels: Sequence[str]) -> Segmentation | None:
    """The mask of what one number for each pixel states: a probability, or with a label any number, which is positive there."""
    threshold = 0.5 if (plane >= 0).all() and (plane <= 1.0001).all() else 0.0
    if threshold == 0 and not 0 < len(labels) <= 2:
        return None
    mask = (plane > threshold).astype(np.int64)
    share = float(mask.mean())
    background, foreground = labels if len(labels) == 2 else ("background", labels[0] if labels else "")
    ranked = [Ranked(1, foreground, share), Ranked(0, background, 1 - share)]
    return Segmentation(name, tuple(sorted(ranked, key=lambda r: -r.score)), mask, threshold)


def _mask(array: Array, labels: int) -> Array | None:
    """The class of each pixel, of [height, width] classes or of scores by class, in the last or first axis."""
    if min(array.shape[-2:], default=0) < _SMALLEST_MASK and array.ndim == 2:
        return None
    if array.ndim == 2 and array.dtype.kind in "iu":
        return array
    if array.ndim != 3:
        return None
    first = array.shape[0] < min(array.shape[1:]) and array.shape[2] >= _SMALLEST_MASK and array.shape[0] < array.shape[2]
    scores = np.moveaxis(array, 0, -1) if first else array
    classes = scores.shape[-1]
    if min(scores.shape[:2]) < _SMALLEST_MASK:
        return None
    if classes == 1 and np.array_equal(scores, np.rint(scores)) and scores.dtype.kind in "iu":
        return scores[..., 0]
    # Three or four channels may be those of an image.
    return scores.argmax(-1) if classes == 2 or classes > 4 or (labels and classes == labels) else None


def _detection(
    operands: Mapping[str, Operand], outputs: Mapping[str, Array], labels: Mapping[str, Sequence[str]]
) -> Detection | None:
    """Those of one image, where the layout is the one of TFLite_Detection_PostProcess: with a count, as shares of the image."""
    layout = recognised(operands, outputs) if len(outputs) == 4 else None
    images = None if layout is None or not layout.count else layout.images(operands, outputs)
    if layout is None or not images or len(images) != 1:
        return None
    (found,) = images
    names: Sequence[str] = next((listed for listed in labels.values() if listed), ())
    rows = zip(found.corners, found.classes, found.scores, strict=True)
    return Detection(layout.boxes, tuple(Box(int(c), _label(names, int(c)), float(s), *map(float, b)) for b, c, s in rows))

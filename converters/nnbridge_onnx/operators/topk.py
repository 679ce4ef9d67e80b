"""Operators that find the largest numbers: ArgMax, TopK, NonMaxSuppression."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnbridge.converters.declaration import Option, lowers
from nnbridge.converters.draft import Value
from nnbridge.model import Array
from nnbridge.types import OperandCode
from nnbridge_onnx.declaration import MOVED, operator
from nnbridge_onnx.host.evaluator import HostCall
from nnbridge_onnx.lowerer import C, Lowerer

_OPTIONS = (
    Option("axis", 0, "the axis to search"),
    Option("keepdims", 1, "1 to retain the axis with a size of 1"),
    Option("select_last_index", 0, "1 for the last of equal ones"),
)
ARG_MAX = operator("ArgMax", 7, "data -> reduced", "Indexes of the largest numbers.", options=_OPTIONS, folding=MOVED)
ARG_MIN = operator("ArgMin", 8, "data -> reduced", "Indexes of the smallest numbers.", options=_OPTIONS, folding=MOVED)


@lowers(ARG_MAX, ARG_MIN)
def _extreme(to: Lowerer) -> None:
    """ARGMAX and ARGMIN, which find the first place."""
    rank, x = to.rank(), to.input()
    to.require(not to.option("select_last_index"), "select_last_index 0 (the first of equal ones)", "1")
    to.require(to.is_float(x) or x.type == OperandCode.TENSOR_INT32, "numbers", OperandCode(x.type).name)
    axis = to.axis(to.option("axis"), rank)
    code = C.ARGMAX if to.node.type == "ArgMax" else C.ARGMIN
    if to.option("keepdims") and rank > 1:
        shape = [1 if i == axis else d for i, d in enumerate(to.shape())]
        found = to.emit(code, x, to.scalar(axis), out=Value(OperandCode.TENSOR_INT32))
        to.finish(C.RESHAPE, found, to.vector(shape))
        return
    to.require(rank > 1, "rank 2 at least", rank)
    to.finish(code, x, to.scalar(axis))


TOP_K = operator(
    "TopK", 196, "X K!? -> Values Indices", "The largest or smallest numbers along an axis, and their indexes.", folding=MOVED,
    options=(
        Option("axis", -1, "the axis to search"),
        Option("k", 0, "how many, before opset 10"),
        Option("largest", 1, "0 for the smallest"),
    ),
)  # fmt: skip


@TOP_K.lowering()
def _top(to: Lowerer) -> None:
    """TOPK_V2 along the last axis, of negated values for the smallest ones."""
    rank, x = to.rank(), to.input()
    count = to.option("k") if to.node.version < 10 else int(np.ravel(to.constant(1))[0])
    largest = bool(to.option("largest"))
    to.require(to.axis(to.option("axis"), rank) == rank - 1 and rank > 0, "the last axis", to.option("axis"))
    to.require(count > 0 and (largest or to.is_float(x)), "floating values for the smallest ones", count)
    to.require(to.is_float(x) or x.type == OperandCode.TENSOR_INT32, "numbers", OperandCode(x.type).name)
    source = x if largest else to.emit(C.NEG, x)
    outputs = [to.temporary(x), Value(OperandCode.TENSOR_INT32)]
    values, places = to.emit_all(C.TOPK_V2, [source, to.scalar(count)], outputs)
    if not largest:
        values = to.emit(C.NEG, values, like=x)
    for position, found in enumerate((values, places)):
        if position < len(to.node.outputs) and to.node.outputs[position]:
            found.name = to.node.outputs[position]
            to.result(found, position)


@TOP_K.host_kernel
def _compute(call: HostCall) -> Sequence[Array] | None:
    """Among equal ones the first come first."""
    if call.optional(1) is None:
        return None  # k was an attribute once
    data, count = call.input(0), int(np.ravel(call.input(1))[0])
    axis = call.option("axis") % data.ndim
    size = data.shape[axis]
    if not 0 <= count <= size:
        raise ValueError(f"k from 0 to {size}, found {count}")
    if call.option("largest"):
        # Backwards, so that a stable sort leaves equal ones in order when it is reversed.
        order = size - 1 - np.flip(np.argsort(np.flip(data, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(data, axis, kind="stable")
    places = np.take(order, range(count), axis)
    return [np.take_along_axis(data, places, axis), places.astype(np.int64)]


NON_MAX_SUPPRESSION = operator(
    "NonMaxSuppression", 113,
    "boxes scores max_output_boxes_per_class? iou_threshold? score_threshold? -> selected_indices",
    "The boxes of the highest scores that do not overlap better ones.",
    options=(Option("center_point_box", 0, "1 for boxes as centre and size"),),
)  # fmt: skip


@NON_MAX_SUPPRESSION.host_kernel
def _non_max_suppression(call: HostCall) -> Sequence[Array]:
    """For each image and class the boxes of the highest scores; among equal scores the first."""
    boxes, scores = _corners(call), call.input(1)
    most, overlap = (0.0 if limit is None else float(np.ravel(limit)[0]) for limit in (call.optional(2), call.optional(3)))
    least = call.optional(4)
    chosen: list[tuple[int, int, int]] = []
    for image, of_image in enumerate(scores):
        rows = boxes[image].T
        for label, of_class in enumerate(of_image):
            left = np.flatnonzero(of_class > np.ravel(least)[0]) if least is not None else np.arange(of_class.size)
            left = left[np.argsort(-of_class[left], kind="stable")]
            chosen += [(image, label, int(left[i])) for i in _selected(rows[:, left], most, overlap)]
    return [np.array(chosen, np.int64).reshape(-1, 3)]


def _selected(rows: Array, most: float, overlap: float) -> list[int]:
    """Places of at most so many boxes, best first, none of which shares more than a part of its union with a better one.

    ``rows`` [4, boxes] are lowest and highest corners.
    """
    chosen: list[int] = []
    places = np.arange(rows.shape[1])
    areas = (rows[2] - rows[0]) * (rows[3] - rows[1])
    with np.errstate(all="ignore"):
        while places.size and len(chosen) < most:
            chosen.append(int(places[0]))
            best, rest, area, others = rows[:, 0], rows[:, 1:], areas[0], areas[1:]
            height = np.minimum(rest[2], best[2]) - np.maximum(rest[0], best[0])
            width = np.minimum(rest[3], best[3]) - np.maximum(rest[1], best[1])
            shared = np.maximum(height, 0) * np.maximum(width, 0)
            apart = np.flatnonzero(~((shared > 0) & (shared / (area + others - shared) > overlap)))
            rows, areas, places = rest[:, apart], others[apart], places[1:][apart]
    return chosen


def _corners(call: HostCall) -> Array:
    """Boxes as their lowest and highest corner."""
    boxes = call.input(0)
    if call.option("center_point_box"):
        half = boxes[..., 2:] / 2
        one, other = boxes[..., :2] - half, boxes[..., :2] + half
    else:
        one, other = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(one, other), np.maximum(one, other)], axis=-1)


operator("NonZero", 114, "X! -> Y", "Indexes of the numbers other than 0.", folding=MOVED)
UNIQUE = operator(
    "Unique", 199, "X! -> Y indices? inverse_indices? counts?", "Every number once.", folding=MOVED,
    options=(Option("axis", None, "the axis of slices that differ"), Option("sorted", 1, "0 for the order of first occurrence")),
)  # fmt: skip


@UNIQUE.host_kernel
def _unique(call: HostCall) -> Sequence[Array]:
    axis = call.option("axis")
    found, first, inverse, counts = np.unique(call.input(0), True, True, True, axis)
    inverse = np.ravel(inverse)
    if not call.option("sorted"):
        order = np.argsort(first)
        ranks = np.empty_like(order)
        ranks[order] = np.arange(len(order))
        found, first, inverse, counts = found.take(order, axis or 0), first[order], ranks[inverse], counts[order]
    results = (found, *(array.astype(np.int64) for array in (first, inverse, counts)))
    return [result for result, name in zip(results, call.node.proto.output, strict=False) if name]

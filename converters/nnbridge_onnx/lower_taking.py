"""Operators that take elements along axes at places that are known: nearest neighbours and paddings of any kind; running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nnbridge.types import OperationCode
from nnbridge_onnx.graph import Array
from nnbridge_onnx.lowering import Lowerer, lowers
from nnbridge_onnx.values import LAST

C = OperationCode
MAX_SUMMED = 2048
"""Running sums are products with a triangle of this size at most."""


def _taken(to: Lowerer, places: Mapping[int, Sequence[int]]) -> None:
    """The input with elements taken along some axes."""
    rank = to.rank()
    to.require(0 < rank <= 4 and all(len(p) for p in places.values()), "rank 4 at most, elements to take", rank)
    images = to.channels_last and to.values.is_image(to.name(0))
    x = to.image() if images else to.value()
    steps = [(LAST[rank].index(axis) if images else axis, list(chosen)) for axis, chosen in places.items()]
    to.require(steps, "an axis that changes", "none")
    for axis, chosen in steps[:-1]:
        x = to.emit(C.GATHER, [x, to.scalar(axis), to.values.draft.ints(chosen)], to.temporary(x))
    axis, chosen = steps[-1]
    to.finish_alike(C.GATHER, [x, to.scalar(axis), to.values.draft.ints(chosen)], images)


@lowers("Pad")
def _pad(to: Lowerer) -> None:
    """GATHER for paddings with edges, reflections and repetitions."""
    shape, mode = to.shape(), to.attribute("mode", "constant")
    to.require(mode in ("edge", "wrap", "reflect"), "mode edge, wrap or reflect", mode)
    pads = to.ints("pads", []) if to.node.version < 11 else to.whole(to.constant(1))
    chosen = to.optional_constant(3) if to.node.version >= 18 else None
    axes = list(range(len(shape))) if chosen is None else [int(a) % len(shape) for a in np.ravel(chosen)]
    to.require(len(pads) == 2 * len(axes) and min(pads, default=0) >= 0, "two paddings of at least 0 for each axis", pads)
    places = {}
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        to.values.draft.spend(shape[axis] + before + after)
        if before or after:
            places[axis] = np.pad(np.arange(shape[axis]), (before, after), mode).tolist()
    _taken(to, places)


_POSITIONS: Mapping[str, Callable[[Array, float, int, int], Array]] = {
    "half_pixel": lambda i, s, n, m: (i + 0.5) / s - 0.5,
    "half_pixel_symmetric": lambda i, s, n, m: n / 2 * (1 - m / (s * n)) + (i + 0.5) / s - 0.5,
    "pytorch_half_pixel": lambda i, s, n, m: (i + 0.5) / s - 0.5 if m > 1 else i * 0.0,
    "align_corners": lambda i, s, n, m: i * (n - 1) / (m - 1) if m > 1 else i * 0.0,
    "asymmetric": lambda i, s, n, m: i / s,
    "tf_half_pixel_for_nn": lambda i, s, n, m: (i + 0.5) / s,
}
"""Rule → where an output's place i lies in the input, for a scale s from n to m places."""

_ROUNDINGS: Mapping[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@lowers("Resize", "Upsample")
def _nearest(to: Lowerer) -> None:
    """GATHER of nearest neighbours by any of ONNX's rules."""
    shape, wanted = to.shape(), to.out_shape()
    old = to.node.version < 11
    rule = "asymmetric" if old else to.attribute("coordinate_transformation_mode", "half_pixel")
    rounding = "floor" if old else to.attribute("nearest_mode", "round_prefer_floor")
    to.require(to.attribute("mode", "nearest") == "nearest", "mode nearest", to.attribute("mode", "nearest"))
    to.require(rule in _POSITIONS and rounding in _ROUNDINGS, "positions inside the input", [rule, rounding])
    to.require(to.attribute("keep_aspect_ratio_policy", "stretch") == "stretch", "no ratio to keep", "another policy")
    scales, places = _scales(to, shape, wanted), {}
    for axis, (size, out, scale) in enumerate(zip(shape, wanted, scales, strict=True)):
        if size == out and math.isclose(scale, 1):
            continue
        to.values.draft.spend(out)
        found = _ROUNDINGS[rounding](_POSITIONS[rule](np.arange(out, dtype=np.float64), scale, size, out))
        places[axis] = np.clip(found, 0, size - 1).astype(int).tolist()
    _taken(to, places)


def _scales(to: Lowerer, shape: Sequence[int], wanted: Sequence[int]) -> list[float]:
    """The scale of each axis, as it is given or as the sizes tell."""
    scales = [out / size if size else 1.0 for size, out in zip(shape, wanted, strict=True)]
    position = 1 if to.node.type == "Upsample" or to.node.version < 11 else 2
    given = to.attribute("scales") if to.node.type == "Upsample" and to.node.version < 9 else None
    if given is None and to.name(position):
        given = to.constant(position)
    numbers = [] if given is None else [float(s) for s in np.ravel(given)]
    axes = [a % len(shape) for a in to.ints("axes", range(len(shape)))]
    to.require(not numbers or len(numbers) == len(axes), "a scale for each axis", numbers)
    for axis, number in zip(axes, numbers, strict=False):
        to.require(number > 0 and math.isfinite(number), "scales above 0", number)
        scales[axis] = number
    return scales


@lowers("CumSum")
def _running_sum(to: Lowerer) -> None:
    """FULLY_CONNECTED with a triangle of ones."""
    shape, x = to.shape(), to.value()
    rank = len(shape)
    axis = int(np.ravel(to.constant(1))[0]) % max(rank, 1)
    to.require(to.is_float(x) and 0 < rank <= 4 and 0 not in shape, "floating values of rank 4 at most", list(shape))
    size = shape[axis]
    to.require(size <= MAX_SUMMED, f"{MAX_SUMMED} values to sum at most", size)
    to.values.draft.spend(size * size)
    triangle = np.tril(np.ones((size, size)), -1 if to.attribute("exclusive", 0) else 0)
    weights = triangle.T if to.attribute("reverse", 0) else triangle
    order = [i for i in range(rank) if i != axis] + [axis]
    if axis != rank - 1:
        x = to.emit(C.TRANSPOSE, [x, to.vector(order)], to.temporary(x))
    rows = to.emit(C.RESHAPE, [x, to.vector([math.prod(shape) // size, size])], to.temporary(x))
    operands = [rows, to.real(weights, x), to.real(np.zeros(size), x), to.scalar(0)]
    made = to.emit(C.FULLY_CONNECTED, operands, to.temporary(x))
    dims = to.vector([shape[i] for i in order])
    if axis == rank - 1:
        to.finish(C.RESHAPE, [made, dims])
        return
    spread = to.emit(C.RESHAPE, [made, dims], to.temporary(x))
    to.finish(C.TRANSPOSE, [spread, to.vector([order.index(i) for i in range(rank)])])

"""NumPy kernels for operators that the reference evaluator runs element by element, or wrongly.

A kernel takes a :class:`Call` and answers with the outputs, or with None for a form that it does not know; then the evaluator
runs. It may raise what NumPy raises: the host says that the operands do not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from nnbridge_onnx.graph import Array


@dataclass(frozen=True)
class Call:
    """One run of a node."""

    inputs: tuple[Array | None, ...]
    attributes: Mapping[str, Any]
    outputs: int
    """How many outputs are wanted."""
    version: int
    """The opset."""

    def input(self, position: int) -> Array:
        """An input that must be there."""
        found = self.optional(position)
        if found is None:
            raise ValueError(f"input {position} is missing")
        return found

    def optional(self, position: int) -> Array | None:
        """An input, None where it is omitted."""
        return self.inputs[position] if position < len(self.inputs) else None

    def text(self, name: str, default: str) -> str:
        """An attribute of text."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)


Kernel: TypeAlias = "Callable[[Call], Sequence[Array] | None]"
KERNELS: dict[str, Kernel] = {}


def kernel(*names: str) -> Callable[[Kernel], Kernel]:
    """Register a kernel."""

    def register(function: Kernel) -> Kernel:
        KERNELS.update(dict.fromkeys(names, function))
        return function

    return register


# -- selection -----------------------------------------------------------------------------------------------------------


@kernel("GatherElements")
def _gather_elements(call: Call) -> Sequence[Array]:
    data, places = call.input(0), call.input(1)
    axis = int(call.attributes.get("axis", 0)) % data.ndim
    size = data.shape[axis]
    if places.size and not (-size <= places.min() and places.max() < size):
        raise IndexError(f"indexes in [{-size}, {size}) expected")
    seen = data[tuple(slice(None) if a == axis else slice(0, n) for a, n in enumerate(places.shape))]
    return [np.take_along_axis(seen, places % max(size, 1), axis)]


@kernel("TopK")
def _top_k(call: Call) -> Sequence[Array] | None:
    """Among equal ones the first come first."""
    if call.optional(1) is None:
        return None  # k was an attribute once
    data, count = call.input(0), int(np.ravel(call.input(1))[0])
    axis = int(call.attributes.get("axis", -1)) % data.ndim
    size = data.shape[axis]
    if not 0 <= count <= size:
        raise ValueError(f"k in [0, {size}] expected, found {count}")
    if call.attributes.get("largest", 1):
        # Backwards, so that a stable sort leaves equal ones in order when it is turned round.
        order = size - 1 - np.flip(np.argsort(np.flip(data, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(data, axis, kind="stable")
    places = np.take(order, range(count), axis)
    return [np.take_along_axis(data, places, axis), places.astype(np.int64)]


@kernel("NonMaxSuppression")
def _non_max_suppression(call: Call) -> Sequence[Array]:
    """For each image and class the boxes of the highest scores; among equal scores the first."""
    boxes, scores = _corners(call), call.input(1)
    most, overlap = (0.0 if given is None else float(np.ravel(given)[0]) for given in (call.optional(2), call.optional(3)))
    least = call.optional(4)
    chosen: list[tuple[int, int, int]] = []
    for image, of_image in enumerate(scores):
        rows = boxes[image].T
        for label, given in enumerate(of_image):
            left = np.flatnonzero(given > np.ravel(least)[0]) if least is not None else np.arange(given.size)
            left = left[np.argsort(-given[left], kind="stable")]
            chosen += [(image, label, int(left[i])) for i in _kept(rows[:, left], most, overlap)]
    return [np.array(chosen, np.int64).reshape(-1, 3)]


def _kept(rows: Array, most: float, overlap: float) -> list[int]:
    """Places of at most so many boxes, best first, none of which shares more than a part of its union with a better one.

    ``rows`` [4, boxes] are lowest and highest corners.
    """
    kept: list[int] = []
    places = np.arange(rows.shape[1])
    areas = (rows[2] - rows[0]) * (rows[3] - rows[1])
    with np.errstate(all="ignore"):
        while places.size and len(kept) < most:
            kept.append(int(places[0]))
            best, rest, area, others = rows[:, 0], rows[:, 1:], areas[0], areas[1:]
            height = np.minimum(rest[2], best[2]) - np.maximum(rest[0], best[0])
            width = np.minimum(rest[3], best[3]) - np.maximum(rest[1], best[1])
            shared = np.maximum(height, 0) * np.maximum(width, 0)
            apart = np.flatnonzero(~((shared > 0) & (shared / (area + others - shared) > overlap)))
            rows, areas, places = rest[:, apart], others[apart], places[1:][apart]
    return kept


def _corners(call: Call) -> Array:
    """Boxes as their lowest and highest corner."""
    given = call.input(0)
    if call.attributes.get("center_point_box", 0):
        half = given[..., 2:] / 2
        one, other = given[..., :2] - half, given[..., :2] + half
    else:
        one, other = given[..., :2], given[..., 2:]
    return np.concatenate([np.minimum(one, other), np.maximum(one, other)], axis=-1)


# -- windows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Windows:
    """Where the windows of a convolution or pooling lie, for each spatial axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    """Padding, as the node says."""
    extra: tuple[int, ...]
    """What windows that are rounded up reach beyond that."""

    def of(self, data: Array, fill: float) -> Array:
        """The windows of [batch, channels, ...]: [batch, channels, places ..., kernel ...]."""
        pairs = [(0, 0), (0, 0), *((b, e + x) for b, e, x in zip(self.begin, self.end, self.extra, strict=True))]
        padded = np.pad(data, pairs, constant_values=fill)
        reach = tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))
        axes = tuple(range(2, data.ndim))
        seen = np.lib.stride_tricks.sliding_window_view(padded, reach, axes)
        places = tuple(slice(None, None, s) for s in self.strides)
        inside = tuple(slice(None, None, d) for d in self.dilations)
        at = (slice(None), slice(None), *places, *inside)
        return seen[at]


def windows(call: Call, shape: Sequence[int], size: Sequence[int]) -> Windows | None:
    """The windows of ``size`` that a node's attributes describe; None if there is none of them."""
    rank = len(shape)
    strides, dilations = (tuple(call.attributes.get(name) or (1,) * rank) for name in ("strides", "dilations"))
    reach = [(k - 1) * d + 1 for k, d in zip(size, dilations, strict=True)]
    automatic = call.text("auto_pad", "NOTSET")
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        totals = [max((-(-n // s) - 1) * s + r - n, 0) for n, s, r in zip(shape, strides, reach, strict=True)]
        halves = [t // 2 for t in totals]
        rest = [t - h for t, h in zip(totals, halves, strict=True)]
        begin, end = (halves, rest) if automatic == "SAME_UPPER" else (rest, halves)
    else:
        pads = (call.attributes.get("pads") if automatic == "NOTSET" else None) or (0,) * 2 * rank
        begin, end = list(pads[:rank]), list(pads[rank:])
    free = [n + b + e - r for n, b, e, r in zip(shape, begin, end, reach, strict=True)]
    if min(free, default=0) < 0 or min(*begin, *end, *(d - 1 for d in dilations), *(s - 1 for s in strides)) < 0:
        return None
    extra = [0] * rank
    if call.attributes.get("ceil_mode", 0):
        for i, (n, s, room) in enumerate(zip(shape, strides, free, strict=True)):
            # A window that would start behind the input and its first padding is left out.
            last = -(-room // s) if -(-room // s) * s < n + begin[i] else room // s
            extra[i] = max(last * s - room, 0)
    return Windows(tuple(size), strides, dilations, tuple(begin), tuple(end), tuple(extra))


def _pooled(call: Call) -> tuple[Array, Windows | None]:
    data = call.input(0)
    return data, windows(call, data.shape[2:], call.attributes["kernel_shape"])


@kernel("MaxPool")
def _max_pool(call: Call) -> Sequence[Array] | None:
    data, found = _pooled(call)
    if found is None or call.outputs > 1:
        return None
    lowest = -np.inf if data.dtype.kind == "f" else np.iinfo(data.dtype).min
    return [found.of(data, lowest).max(axis=tuple(range(data.ndim, 2 * data.ndim - 2)))]


@kernel("AveragePool")
def _average_pool(call: Call) -> Sequence[Array] | None:
    data, found = _pooled(call)
    if found is None or data.dtype.kind != "f":
        return None
    inside = tuple(range(data.ndim, 2 * data.ndim - 2))
    sums = found.of(data, 0.0).sum(axis=inside)
    ones = np.ones((1, 1, *data.shape[2:]), data.dtype)
    if call.attributes.get("count_include_pad", 0):
        # What is counted is the padding that the node says, not what rounding up adds to it.
        pairs = [(0, 0), (0, 0), *zip(found.begin, found.end, strict=True)]
        ones = np.pad(ones, pairs, constant_values=1)
        found = Windows(found.kernel, found.strides, found.dilations, *((0,) * len(found.kernel),) * 2, found.extra)
    return [(sums / found.of(ones, 0.0).sum(axis=inside)).astype(data.dtype)]


@kernel("LpPool")
def _lp_pool(call: Call) -> Sequence[Array] | None:
    data, found = _pooled(call)
    if found is None or data.dtype.kind != "f":
        return None
    power = float(call.attributes.get("p", 2))
    sums = (np.abs(found.of(data, 0.0)) ** power).sum(axis=tuple(range(data.ndim, 2 * data.ndim - 2)))
    return [(sums ** (1 / power)).astype(data.dtype)]


@kernel("Conv")
def _conv(call: Call) -> Sequence[Array] | None:
    data, weights, bias = call.input(0), call.input(1), call.optional(2)
    found = windows(call, data.shape[2:], weights.shape[2:])
    groups = int(call.attributes.get("group", 1))
    if found is None or data.dtype.kind != "f" or data.shape[1] != weights.shape[1] * groups or len(weights) % groups:
        return None
    seen = found.of(data, 0.0)
    spatial = seen.shape[2 : data.ndim]
    depth, count = weights.shape[1] * math.prod(found.kernel), math.prod(spatial)
    # [batch, groups, places, numbers of a window] times [groups, numbers, outputs]
    apart = seen.reshape(len(data), groups, -1, *seen.shape[2:])
    rows = np.moveaxis(apart, 2, 2 + len(spatial)).reshape(len(data), groups, count, depth)
    turned = weights.reshape(groups, -1, depth).swapaxes(1, 2)
    made = (rows @ turned).swapaxes(2, 3).reshape(len(data), len(weights), *spatial)
    return [made if bias is None else made + bias.reshape(-1, *(1,) * len(spatial))]

"""Parts shared by host kernels: numbers of tensors, and how results are stored.

A kernel gets :class:`~nnbridge.extensions.Arg` inputs and outputs and the operator's options, the declared defaults
included, and returns the output arrays. It raises ValueError for what it does not compute. Quantised tensors are computed in
real numbers and quantised again where :func:`stored` is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from nnbridge.extensions import Arg
from nnbridge.model import Array
from nnbridge.operations.arithmetic import mbqm, quantize_multiplier, saturate
from nnbridge_tflite.host.codes import CHANNELS

__all__ = ["Arg", "Array", "Options", "Tensors"]

Tensors: TypeAlias = Sequence[Arg]
Options: TypeAlias = Mapping[str, Any]

MAX_ELEMENTS = 2**28
"""Most elements that a kernel creates from sizes that it reads as data."""


def data_of(tensor: Arg) -> Array:
    """A tensor's array; an omitted one is refused, an empty constant is an empty array."""
    if tensor.value is not None:
        return tensor.value
    if 0 in tensor.dims:
        return np.zeros(tensor.dims, tensor.dtype)
    raise ValueError("a required input is missing")


def first(tensor: Arg) -> Any:
    """A tensor's first element."""
    return data_of(tensor).reshape(-1)[0]


def quantised(tensor: Arg) -> bool:
    """True for 8- and 16-bit integers that stand for real numbers."""
    return tensor.scale > 0 and tensor.dtype.kind in "iu" and tensor.dtype.itemsize <= 2


def real(tensor: Arg) -> Array:
    """A tensor's numbers; quantised ones as float32."""
    data = data_of(tensor)
    if not quantised(tensor):
        return data
    return (data.astype(np.int32) - tensor.zero_point).astype(np.float32) * np.float32(tensor.scale)


def stored(array: Array, out: Arg) -> Array:
    """Numbers as the output's elements: quantised, or converted."""
    if array.dtype.kind == "c" and out.dtype.kind != "c":
        raise ValueError(f"real numbers, found {array.dtype}")
    if not quantised(out):
        return array.astype(out.dtype, copy=False)
    limits = np.iinfo(str(out.dtype))
    rounded = half_away(array.astype(np.float64) / out.scale) + out.zero_point
    return np.clip(rounded, limits.min, limits.max).astype(out.dtype)


def is_truth(tensor: Arg) -> bool:
    """True for truth values, whose bytes are 0 and 1: NNAPI's integers of 8 bits have a scale."""
    return tensor.dtype == np.bool_ or (tensor.dtype == np.uint8 and tensor.scale == 0)


def by_table(numbers: Array, out: Arg) -> Array:
    """Numbers as the output's elements, where LiteRT fills a table: 8-bit steps are counted in float32."""
    if not quantised(out) or out.dtype.itemsize != 1:
        return stored(numbers, out)
    limits = np.iinfo(str(out.dtype))
    steps = half_away(numbers.astype(np.float32) * (np.float32(1) / np.float32(out.scale))) + np.float32(out.zero_point)
    return np.clip(steps, limits.min, limits.max).astype(out.dtype)


def half_away(numbers: Array) -> Array:
    """Rounded to whole numbers, halves away from zero, as TFLite rounds."""
    below_half = np.nextafter(numbers.dtype.type(0.5), numbers.dtype.type(0))  # 0.5 itself would carry what is just below it.
    return np.trunc(numbers + np.copysign(below_half, numbers))


def requantised(sums: Array, factor: float, out: Arg) -> Array:
    """Integer sums times a factor, offset by the output's zero point, in its element type."""
    return saturate(mbqm(sums, *quantize_multiplier(factor)) + out.zero_point, out.dtype)


def quotient(data: Arg, out: Arg) -> float:
    """The input's scale divided by the output's, in float32, as TFLite's activations have it."""
    return float(np.float32(data.scale) / np.float32(out.scale))


def centred_integers(tensor: Arg) -> Array:
    """Stored integers less the zero point, as int64."""
    return data_of(tensor).astype(np.int64) - tensor.zero_point


def channel_scales(tensor: Arg, i: int, options: Options) -> Array:
    """The scale of input ``i``, or one for each channel."""
    channels: Mapping[str, Any] | None = options.get(CHANNELS, {}).get(str(i))
    return np.array([tensor.scale] if channels is None else channels["scales"], np.float64)


def optional(inputs: Tensors, i: int) -> Arg | None:
    """Input ``i``, or None if it is omitted."""
    return inputs[i] if i < len(inputs) and inputs[i].value is not None else None


ACTIVATIONS: Mapping[int, Callable[[Array], Array]] = {
    0: lambda a: a,
    1: lambda a: np.maximum(a, 0),
    2: lambda a: np.clip(a, -1, 1),
    3: lambda a: np.clip(a, 0, 6),
    4: np.tanh,
}
"""TFLite's fused activations by code."""


def activated(array: Array, options: Options) -> Array:
    """An array after the operator's fused activation: real numbers are no longer infinite, even where the file names none."""
    return array if options.get("fused_activation_function") is None else ended(cell_activated(array, options))


def ended(array: Array) -> Array:
    """Real numbers that end at the largest one."""
    return array.clip(-_LARGEST, _LARGEST) if array.dtype.kind == "f" else array


def cell_activated(array: Array, options: Options) -> Array:
    """An array after a recurrent cell's activation."""
    return ACTIVATIONS[options.get("fused_activation_function") or 0](array)


_LARGEST = np.finfo(np.float32).max


def integers(tensor: Arg) -> list[int]:
    """A tensor's values as a flat list of integers."""
    array = data_of(tensor)
    if array.dtype.kind not in "biu":
        raise ValueError(f"integers, found {array.dtype}")
    return [int(v) for v in array.reshape(-1)]


def axes(tensor: Arg, rank: int) -> tuple[int, ...]:
    """A tensor of axes, counted from the front."""
    return tuple(sorted({a % rank for a in integers(tensor)})) if rank else ()


def joined(shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Shapes that are broadcast together, with as few dimensions as do the same: neighbours that repeat alike are one.

    >>> joined([(1, 2, 3, 4, 5), (4, 1)])
    [(6, 4, 5), (1, 4, 1)]
    """
    rank = max(map(len, shapes))
    columns = zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True)
    merged: list[list[int]] = []
    repeats: list[bool] = []
    for column in (list(c) for c in columns if max(c) != 1):
        alike = [d == 1 for d in column]
        if merged and alike == repeats:
            merged[-1] = [a * b for a, b in zip(merged[-1], column, strict=True)]
        else:
            merged.append(column)
        repeats = alike
    return [tuple(dims) for dims in zip(*merged, strict=True)] if merged else [(1,)] * len(shapes)


def bounded(dims: Sequence[int]) -> Sequence[int]:
    """Dimensions that a kernel may create; ValueError for others."""
    if any(d < 0 for d in dims):
        raise ValueError(f"dimensions of at least 0, found {list(dims)}")
    if math.prod(dims) > MAX_ELEMENTS:
        raise ValueError(f"at most {MAX_ELEMENTS} elements, found {list(dims)}")
    return dims


def padding_pairs(tensor: Arg) -> list[tuple[int, int]]:
    """The padding (or cropping) before and after, by dimension."""
    return [(int(before), int(after)) for before, after in data_of(tensor).reshape(-1, 2)]


def broadcast_along(numbers: Sequence[float], axis: int, rank: int, dtype: Any) -> Array:
    """Numbers for each index along an axis, to be broadcast."""
    shape = [1] * rank
    shape[axis] = -1
    return np.asarray(numbers, dtype).reshape(shape)

"""NumPy kernels over windows and volumes: three-dimensional convolutions, dilation, reductions of windows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nnbridge_tflite.kernels import Array, Options, Tensors, activated, given, integers, kernel, real, stored

SAME = 0
_AXES = ("d", "h", "w")


def _steps(options: Options) -> tuple[list[int], list[int]]:
    """Strides and dilations by depth, height, width."""
    strides = [int(options.get(f"stride_{a}") or 1) for a in _AXES]
    return strides, [int(options.get(f"dilation_{a}_factor") or 1) for a in _AXES]


def _places(kernel_shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*map(range, kernel_shape))


def _same_before(size: int, window: int, stride: int, dilation: int, out: int) -> int:
    """Elements that SAME padding puts in front."""
    return max((out - 1) * stride + (window - 1) * dilation + 1 - size, 0) // 2


def _with_bias(total: Array, inputs: Tensors, place: int) -> Array:
    return total + real(inputs[place]) if len(inputs) > place and inputs[place].data is not None else total


def _within(slices: Iterable[slice]) -> tuple[slice, ...]:
    """Slices of depth, height and width, behind all of the batch."""
    return (slice(None), *slices)


@kernel("CONV_3D")
def convolution(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """[batch, depth, height, width, channels] by a filter [depth, height, width, channels, units]."""
    data, weights = real(inputs[0]), real(inputs[1])
    (strides, dilations), window, sizes = _steps(options), weights.shape[:3], data.shape[1:4]
    reach = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
    if options.get("padding", SAME) == SAME:
        outs = [-(-n // s) for n, s in zip(sizes, strides, strict=True)]
        before = [_same_before(*parts) for parts in zip(sizes, window, strides, dilations, outs, strict=True)]
    else:
        outs = [(n - r) // s + 1 for n, r, s in zip(sizes, reach, strides, strict=True)]
        before = [0, 0, 0]
    after = [max((o - 1) * s + r - n - b, 0) for o, s, r, n, b in zip(outs, strides, reach, sizes, before, strict=True)]
    padded = np.pad(data, [(0, 0), *zip(before, after, strict=True), (0, 0)])
    total = np.zeros((data.shape[0], *outs, weights.shape[4]), data.dtype)
    for place in _places(window):
        starts = [k * d for k, d in zip(place, dilations, strict=True)]
        seen = _within(slice(a, a + (o - 1) * s + 1, s) for a, o, s in zip(starts, outs, strides, strict=True))
        total += padded[seen] @ weights[place]
    return [stored(activated(_with_bias(total, inputs, 2), options), outputs[0])]


@kernel("CONV_3D_TRANSPOSE")
def transposed_convolution(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The gradient of CONV_3D: output shape, filter [depth, height, width, units, channels], data."""
    shape, weights, data = integers(inputs[0]), real(inputs[1]), real(inputs[2])
    (strides, dilations), window, sizes = _steps(options), weights.shape[:3], data.shape[1:4]
    same = options.get("padding", SAME) == SAME
    cut = [
        _same_before(n, k, s, d, o) if same else 0
        for n, k, s, d, o in zip(shape[1:4], window, strides, dilations, sizes, strict=True)
    ]
    spans = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(sizes, strides, window, dilations, strict=True)]
    room = [max(span, c + n) for span, c, n in zip(spans, cut, shape[1:4], strict=True)]
    total = np.zeros((shape[0], *room, weights.shape[3]), data.dtype)
    for place in _places(window):
        starts = [k * d for k, d in zip(place, dilations, strict=True)]
        seen = _within(slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(starts, sizes, strides, strict=True))
        total[seen] += data @ weights[place].T
    kept = _within(slice(c, c + n) for c, n in zip(cut, shape[1:4], strict=True))
    return [stored(activated(_with_bias(total[kept], inputs, 3), options), outputs[0])]


def dilated(data: Array, steps: Sequence[int], filler: Any) -> Array:
    """An array whose elements lie so many places apart, with a value in between."""
    sizes = [(n - 1) * s + 1 if n else 0 for n, s in zip(data.shape, steps, strict=True)]
    made = np.full(sizes, filler, data.dtype)
    made[tuple(slice(None, None, s) for s in steps)] = data
    return made


@kernel("DILATE")
def dilate(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Elements moved apart, a given value in between."""
    return [dilated(given(inputs[0]), integers(inputs[1]), given(inputs[2]).reshape(-1)[0])]


WINDOW_FUNCTIONS: Mapping[int, Callable[..., Array]] = {
    1: np.add,
    2: np.multiply,
    3: np.minimum,
    4: np.maximum,
    5: np.logical_and,
    6: np.logical_or,
}
"""ReduceWindowFunction → what gathers a window."""


def windows_reduced(
    data: Array,
    first: Any,
    function: Callable[..., Array],
    shape: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Array:
    """One element for each window that lies inside the array, gathered from a first value on."""
    reach = [(k - 1) * d + 1 for k, d in zip(shape, dilations, strict=True)]
    outs = [max((n - r) // s + 1, 0) for n, r, s in zip(data.shape, reach, strides, strict=True)]
    total = np.full(outs, first, data.dtype)
    if math.prod(outs) == 0:
        return total
    for place in _places(shape):
        starts = [k * d for k, d in zip(place, dilations, strict=True)]
        seen = tuple(slice(a, a + (o - 1) * s + 1, s) for a, o, s in zip(starts, outs, strides, strict=True))
        total = function(total, data[seen]).astype(data.dtype, copy=False)
    return total


@kernel("REDUCE_WINDOW")
def reduce_window(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Windows of a shape, with strides and dilations, by the function that the options name."""
    function = WINDOW_FUNCTIONS.get(options.get("reduce_function") or 0)
    if function is None:
        raise ValueError(f"a reduction of {', '.join(map(str, WINDOW_FUNCTIONS))}, found {options.get('reduce_function')}")
    shape, strides, dilations = (integers(tensor) for tensor in inputs[2:5])
    return [windows_reduced(given(inputs[0]), given(inputs[1]).reshape(-1)[0], function, shape, strides, dilations)]

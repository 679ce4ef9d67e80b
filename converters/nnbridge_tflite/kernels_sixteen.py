"""NumPy kernels of operators on 16-bit activations (int16x8 files), with TFLite's integer arithmetic bit for bit.

NNAPI computes nothing with such tensors. Sums are exact in float64: 16-bit data times 8-bit weights leave 30 bits for the
count of products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from nnbridge.extensions import HostKernel, HostTensor
from nnbridge.operations.arithmetic import mbqm, quantize_multiplier, quantize_multipliers, saturate
from nnbridge.operations.shapes import Window, implicit_padding
from nnbridge_tflite.kernels import CHANNELS, Array, Options, Tensors, given, integers
from nnbridge_tflite.kernels_quantised import mean

Rescale: TypeAlias = "Callable[[Array, Array, Array], Array]"

SIXTEEN: dict[str, HostKernel] = {"MEAN": mean}
"""Operator name → kernel for 16-bit activations."""

_RELU, _RELU_N1_TO_1, _RELU6 = 1, 2, 3
_BOUNDS: Mapping[int, tuple[float, float]] = {
    _RELU: (0.0, math.inf),
    _RELU_N1_TO_1: (-1.0, 1.0),
    _RELU6: (0.0, 6.0),
}
_STEPS = 24
"""Steps of the logistic table from one whole number to the next."""


def _logistic_table() -> Array:
    """The logistic function times 2^16, less half of what lines between the places are off at their middles."""
    exact = 65536 / (1 + np.exp(-np.arange(-1, 257) / _STEPS))
    bent = exact[2:] - 2 * exact[1:-1] + exact[:-2]
    table = np.round(exact[1:-1] - bent / 16)
    table[-1] = 65535
    return table.astype(np.int64)


_TABLE = _logistic_table()


def sixteen(*names: str) -> Callable[[HostKernel], HostKernel]:
    """Register a kernel for 16-bit activations."""

    def register(function: HostKernel) -> HostKernel:
        SIXTEEN.update(dict.fromkeys(names, function))
        return function

    return register


def is_sixteen(tensors: Sequence[HostTensor]) -> bool:
    """True if one of the tensors is quantised to 16 bits."""
    return any(t.dtype == np.int16 and t.scale > 0 for t in tensors)


def _by_upper_bits(sums: Array, multiplier: Array, shift: Array) -> Array:
    """``sums * M / 2**31 * 2**shift`` of 64-bit sums, by the multiplier's upper 16 bits, rounded once."""
    upper = np.where(multiplier < 0x7FFF0000, (multiplier + (1 << 15)) >> 16, 0x7FFF)
    total = 15 - shift
    return (sums * upper + (np.int64(1) << (total - 1))) >> total


def _once(sums: Array, multiplier: Array, shift: Array) -> Array:
    """``sums * M / 2**31 * 2**shift`` rounded once, ties up; in two halves, as the products may need more than 64 bits."""
    if np.any(shift > 14):
        raise ValueError("a product of scales below 2^14")
    total = 31 - shift
    low = sums * (multiplier & 0xFFFF) + (np.int64(1) << (total - 1))
    return (sums * (multiplier >> 16) + (low >> 16)) >> (total - 16)


def _activated(values: Array, out: HostTensor, options: Options) -> Array:
    """Clamped to the output's type and to its fused activation."""
    low, high = _BOUNDS.get(options.get("fused_activation_function") or 0, (-math.inf, math.inf))
    limits = np.iinfo(str(out.dtype))
    first = limits.min if low == -math.inf else max(limits.min, out.zero_point + round(low / out.scale))
    last = limits.max if high == math.inf else min(limits.max, out.zero_point + round(high / out.scale))
    return np.clip(values, first, last).astype(out.dtype)


def _stored(tensor: HostTensor) -> Array:
    if tensor.dtype.kind not in "iu":
        raise ValueError(f"quantised numbers, found {tensor.dtype}")
    return given(tensor)


def _centred(tensor: HostTensor) -> Array:
    return _stored(tensor).astype(np.float64) - tensor.zero_point


def _scales(tensor: HostTensor, place: int, options: Options) -> Array:
    channels: Mapping[str, Any] | None = options.get(CHANNELS, {}).get(str(place))
    return np.array([tensor.scale] if channels is None else channels["scales"], np.float64)


def _finished(
    sums: Array,
    inputs: Tensors,
    places: tuple[int, int, int],
    out: HostTensor,
    options: Options,
    rescale: Rescale | None = None,
) -> Array:
    """The output of sums of products; ``places`` are those of the data, the weights and the bias."""
    data, weights, bias = places
    units = inputs[bias] if len(inputs) > bias and inputs[bias].data is not None else None
    exact = sums.astype(np.int64) + (0 if units is None else given(units).astype(np.int64))
    scales = float(inputs[data].scale) * _scales(inputs[weights], weights, options) / float(out.scale)
    multiplier, shift = quantize_multipliers(scales)
    # Sums start from the bias, and are as wide as it is.
    rescale = rescale or (_by_upper_bits if units is None or units.dtype.itemsize == 8 else mbqm)
    return _activated(rescale(exact, multiplier, shift) + out.zero_point, out, options)


def _windows(dims: Sequence[int], size: Sequence[int], options: Options) -> tuple[Window, Window]:
    """The windows over height and width."""
    made = []
    for axis, length, cells in zip("hw", dims, size, strict=True):
        stride = max(int(options.get(f"stride_{axis}") or 1), 1)
        dilation = max(int(options.get(f"dilation_{axis}_factor") or 1), 1)
        padding = implicit_padding(length, cells, stride, dilation, (options.get("padding") or 0) + 1)
        made.append(Window(cells, stride, dilation, *padding))
    return made[0], made[1]


def _seen(padded: Array, window: tuple[Window, Window], y: int, x: int, size: tuple[int, int]) -> Array:
    """What one cell of the window sees at every position."""
    (rows, columns), (height, width) = window, size
    top, left = y * rows.dilation, x * columns.dilation
    return padded[:, top :: rows.stride, left :: columns.stride][:, :height, :width]


def _padded(tensor: HostTensor, window: tuple[Window, Window]) -> Array:
    return np.pad(_centred(tensor), ((0, 0), *((w.before, w.after) for w in window), (0, 0)))


@sixteen("CONV_2D")
def conv_2d(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Products over a sliding window; fewer channels in the weights than in the data make groups."""
    data, weights = inputs[0], _centred(inputs[1])
    units, height, width, depth = weights.shape
    window = _windows(data.dims[1:3], (height, width), options)
    size = window[0].positions(data.dims[1]), window[1].positions(data.dims[2])
    groups, padded = data.dims[3] // depth, _padded(data, window)
    sums = np.zeros((data.dims[0], *size, units))
    share = units // groups
    for group in range(groups):
        read, made = slice(group * depth, (group + 1) * depth), slice(group * share, (group + 1) * share)
        for y in range(height):
            for x in range(width):
                sums[..., made] += _seen(padded, window, y, x, size)[..., read] @ weights[made, y, x].T
    return [_finished(sums, inputs, (0, 1, 2), outputs[0], options)]


@sixteen("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Each channel of the data with weights of its own."""
    data, weights = inputs[0], _centred(inputs[1])
    _, height, width, units = weights.shape
    window = _windows(data.dims[1:3], (height, width), options)
    size = window[0].positions(data.dims[1]), window[1].positions(data.dims[2])
    padded = np.repeat(_padded(data, window), units // data.dims[3], axis=3)
    sums = np.zeros((data.dims[0], *size, units))
    for y in range(height):
        for x in range(width):
            sums += _seen(padded, window, y, x, size) * weights[0, y, x]
    return [_finished(sums, inputs, (0, 1, 2), outputs[0], options)]


@sixteen("TRANSPOSE_CONV")
def transpose_conv(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Each input cell spread over a window of the output."""
    shape, weights, data = integers(inputs[0]), _centred(inputs[1]), _centred(inputs[2])
    units, height, width, _ = weights.shape
    rows, columns = _windows(shape[1:3], (height, width), {**options, "dilation_h_factor": 1, "dilation_w_factor": 1})
    spread = [(n - 1) * w.stride + w.size for n, w in zip(data.shape[1:3], (rows, columns), strict=True)]
    whole = np.zeros(
        (data.shape[0], *(max(s, w.before + d) for s, w, d in zip(spread, (rows, columns), shape[1:3], strict=True)), units)
    )
    for y in range(height):
        for x in range(width):
            whole[:, y : y + spread[0] - height + 1 : rows.stride, x : x + spread[1] - width + 1 : columns.stride] += (
                data @ weights[:, y, x].T
            )
    sums = whole[:, rows.before : rows.before + shape[1], columns.before : columns.before + shape[2]]
    return [_finished(sums, inputs, (2, 1, 3), outputs[0], options)]


@sixteen("FULLY_CONNECTED")
def fully_connected(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """A product with a matrix of weights."""
    weights = _centred(inputs[1])
    data = _centred(inputs[0])
    sums = data.reshape(-1, weights.shape[1]) @ weights.T
    result = _finished(sums, inputs, (0, 1, 2), outputs[0], options, _once)
    return [result.reshape(*data.shape[:-1], -1) if options.get("keep_num_dims") else result]


@sixteen("QUANTIZE")
def requantize(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Quantised numbers with other parameters, and real ones, which are divided in float32."""
    data, out = inputs[0], outputs[0]
    if data.dtype.kind == "f":
        scaled = given(data).astype(np.float32) / np.float32(out.scale)
        return [saturate(np.trunc(scaled + np.copysign(np.float32(0.5), scaled)) + out.zero_point, out.dtype)]
    factor = quantize_multiplier(float(data.scale) / float(out.scale))
    return [saturate(mbqm(_stored(data).astype(np.int64) - data.zero_point, *factor) + out.zero_point, out.dtype)]


@sixteen("MUL")
def mul(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Products, rescaled."""
    a, b, out = inputs[0], inputs[1], outputs[0]
    factor = quantize_multiplier(float(np.float32(a.scale) * np.float32(b.scale) / np.float32(out.scale)))
    products = _centred(a).astype(np.int64) * _centred(b).astype(np.int64)
    return [_activated(mbqm(products, *factor) + out.zero_point, out, options)]


def _power_of_two(scale: float) -> bool:
    return math.frexp(scale)[0] == 0.5


def _sum(inputs: Tensors, outputs: Tensors, options: Options, *, sign: int) -> Sequence[Array]:
    """Sums or differences on a common scale with 15 bits more."""
    a, b, out = inputs[0], inputs[1], outputs[0]
    if all(_power_of_two(t.scale) for t in (a, b, out)) and options.get("pot_scale_int16"):
        raise ValueError("scales that are not all powers of two")
    common = 2.0 * max(a.scale, b.scale)
    first, second = (mbqm(_centred(t).astype(np.int64) << 15, *quantize_multiplier(float(t.scale) / common)) for t in (a, b))
    factor = quantize_multiplier(common / ((1 << 15) * float(out.scale)))
    return [_activated(mbqm(first + sign * second, *factor) + out.zero_point, out, options)]


SIXTEEN["ADD"] = partial(_sum, sign=1)
SIXTEEN["SUB"] = partial(_sum, sign=-1)


def _table_argument(tensor: HostTensor) -> Array:
    """Numbers in steps of 1/(24 * 512), rounded half up, as the table's kernels see them."""
    mantissa, exponent = math.frexp(tensor.scale)
    data = _stored(tensor).astype(np.int64)
    if mantissa == 0.5 and exponent - 1 + 12 in (0, 1):
        return data * (3 << (exponent - 1 + 12))
    factor, shift = tensor.scale * 4096.0 * 3.0, 0
    while factor <= 32767.0 / 2.0 and shift <= 30:
        factor, shift = factor * 2.0, shift + 1
    return (data * int(factor) + ((1 << (shift - 1)) if shift else 0)) >> shift


def _interpolated(argument: Array, bits: int, highest: int) -> Array:
    """The table at ``argument / 2**bits``, times ``2**bits``."""
    place, rest = argument >> bits, argument & ((1 << bits) - 1)
    low = np.minimum(place, 254)
    between = (_TABLE[low] << bits) + rest * (_TABLE[low + 1] - _TABLE[low])
    return np.where(place >= 255, highest, between)


@sixteen("LOGISTIC")
def logistic(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """From a table of 256 places, between which lines are drawn."""
    argument = _table_argument(inputs[0])
    result = _interpolated(np.abs(argument), 9, 0x7FFF << 10)
    turned = np.where(argument >= 0, result + (1 << 9), (1 << 25) - result + (1 << 9) - 1)
    return [(turned >> 10).astype(np.int16)]


@sixteen("TANH")
def tanh(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """From the logistic function's table: tanh(x) = 2 logistic(2x) - 1."""
    argument = _table_argument(inputs[0])
    result = _interpolated(np.abs(argument), 8, 0xFFFF << 8)
    turned = np.where(argument >= 0, result - (1 << 23) + (1 << 7), (1 << 23) - result + (1 << 7) - 1)
    return [(turned >> 8).astype(np.int16)]

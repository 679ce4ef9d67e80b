"""Arithmetic of 16-bit activations (int16x8 files), which NNAPI computes nothing with: TFLite's, bit for bit.

Sums are exact in float64: 16-bit data times 8-bit weights leave 30 bits for the count of products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from nnbridge.operations.arithmetic import mbqm, quantize_multipliers, wrap32
from nnbridge_tflite.host.numbers import Arg, Array, Options, Tensors, channel_scales, data_of, half_away, optional

Rescale: TypeAlias = "Callable[[Array, Array, Array], Array]"

_RELU, _RELU_N1_TO_1, _RELU6 = 1, 2, 3
_BOUNDS: Mapping[int, tuple[float, float]] = {_RELU: (0.0, math.inf), _RELU_N1_TO_1: (-1.0, 1.0), _RELU6: (0.0, 6.0)}
_STEPS = 24
"""Steps of the logistic table from one whole number to the next."""


def _logistic_table() -> Array:
    """The logistic function times 2^16, less half the error of linear interpolation at the middle of two positions."""
    exact = 65536 / (1 + np.exp(-np.arange(-1, 257) / _STEPS))
    bent = exact[2:] - 2 * exact[1:-1] + exact[:-2]
    table = np.round(exact[1:-1] - bent / 16)
    table[-1] = 65535
    return table.astype(np.int64)


_TABLE = _logistic_table()


def is_sixteen(tensors: Sequence[Arg]) -> bool:
    """True if one of the tensors is quantised to 16 bits."""
    return any(t.dtype == np.int16 and t.scale > 0 for t in tensors)


def by_upper_bits(sums: Array, multiplier: Array, shift: Array) -> Array:
    """``sums * M / 2**31 * 2**shift`` of 64-bit sums, by the multiplier's upper 16 bits, rounded once; wraps in 32 bits."""
    upper = np.where(multiplier < 0x7FFF0000, (multiplier + (1 << 15)) >> 16, 0x7FFF)
    total = 15 - shift
    return wrap32((sums * upper + (np.int64(1) << (total - 1))) >> total)


def rescaled_once(sums: Array, multiplier: Array, shift: Array) -> Array:
    """``sums * M / 2**31 * 2**shift`` rounded once, ties up; in two halves where the products may need more than 64 bits."""
    total = 31 - shift
    if np.all(np.abs(sums) < 2**31):
        return (sums * multiplier + (np.int64(1) << (total - 1))) >> total
    if np.any(shift > 14):
        raise ValueError("a product of scales below 2^14")
    low = sums * (multiplier & 0xFFFF) + (np.int64(1) << (total - 1))
    return (sums * (multiplier >> 16) + (low >> 16)) >> (total - 16)


def clamped(values: Array, out: Arg, options: Options) -> Array:
    """Clamped to the output's type and to its fused activation, whose bounds are rounded half away from zero."""
    low, high = _BOUNDS.get(options.get("fused_activation_function") or 0, (-math.inf, math.inf))
    limits = np.iinfo(str(out.dtype))
    steps = half_away(np.array([low, high], np.float32) / np.float32(out.scale)) + out.zero_point
    return np.clip(values, max(limits.min, steps[0]), min(limits.max, steps[1])).astype(out.dtype)


def looked_up(function: Callable[[Array], Array], data: Arg, out: Arg) -> Array:
    """A function of 16-bit numbers from LiteRT's table of 513 float32 samples, less half the error of lines in between.

    Where the next sample leaves float32, the error is infinite and the sample the lowest number; what is no number is 0.
    Slopes and results wrap in 16 bits.
    """
    low, high = np.float32(-32768), np.float32(32767)
    first, last = ((end - data.zero_point) * np.float32(data.scale) for end in (low, high))
    lowest, highest = ((end - out.zero_point) * np.float32(out.scale) for end in (low, high))
    step, steps_of_one = (last - first) / np.float32(512), np.float32(65536) / (highest - lowest)
    at = first + np.arange(513, dtype=np.float32) * step
    at[-1] = last
    with np.errstate(all="ignore"):
        behind = function(np.append(at[1:-1], first + np.float32(512) * step)) * steps_of_one
        samples, middles = half_away(function(at) * steps_of_one), half_away(function(at[:-1] + step / 2) * steps_of_one)
        bent = half_away((half_away((behind + samples[:-1]) / 2) - middles) / 2)
        samples[:-1] -= bent
    table = np.where(np.isnan(samples), 0, np.clip(samples, low, high)).astype(np.int64)
    slopes = np.diff(table).astype(np.int16).astype(np.int64)
    values = data_of(data).astype(np.int64)
    index, rest = 256 + (values >> 7), values & 127
    return (table[index] + ((slopes[index] * rest + 64) >> 7)).astype(out.dtype)


def require_integers(tensor: Arg) -> Array:
    if tensor.dtype.kind not in "iu":
        raise ValueError(f"quantised numbers, found {tensor.dtype}")
    return data_of(tensor)


def centred(tensor: Arg) -> Array:
    return require_integers(tensor).astype(np.float64) - tensor.zero_point


def finished(
    sums: Array,
    inputs: Tensors,
    positions: tuple[int, int, int],
    out: Arg,
    options: Options,
    rescale: Rescale | None = None,
) -> Array:
    """The output of sums of products; ``places`` are those of the data, the weights and the bias."""
    data, weights, bias = positions
    units = optional(inputs, bias)
    exact = sums.astype(np.int64) + (0 if units is None else data_of(units).astype(np.int64))
    scales = float(inputs[data].scale) * channel_scales(inputs[weights], weights, options) / float(out.scale)
    multiplier, shift = quantize_multipliers(scales)
    # Sums start from the bias, and are as wide as it is.
    rescale = rescale or (by_upper_bits if units is None or units.dtype.itemsize == 8 else mbqm)
    return clamped(rescale(exact, multiplier, shift) + out.zero_point, out, options)


def table_argument(tensor: Arg) -> Array:
    """Numbers in steps of 1/(24 * 512), rounded half up, as the table's kernels see them."""
    mantissa, exponent = math.frexp(tensor.scale)
    data = require_integers(tensor).astype(np.int64)
    if mantissa == 0.5 and exponent - 1 + 12 in (0, 1):
        return data * (3 << (exponent - 1 + 12))
    factor, shift = tensor.scale * 4096.0 * 3.0, 0
    while factor <= 32767.0 / 2.0 and shift <= 30:
        factor, shift = factor * 2.0, shift + 1
    return wrap32(data * int(factor) + ((1 << (shift - 1)) if shift else 0)) >> shift


def interpolated(argument: Array, bits: int, highest: int) -> Array:
    """The table at ``argument / 2**bits``, times ``2**bits``."""
    position, rest = argument >> bits, argument & ((1 << bits) - 1)
    low = np.minimum(position, 254)
    between = (_TABLE[low] << bits) + rest * (_TABLE[low + 1] - _TABLE[low])
    return np.where(position >= 255, highest, between)

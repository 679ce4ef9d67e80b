"""Arithmetic of dynamic-range operators: float activations are quantised to 8 bits at each run, beside weights of 8 bits.

As LiteRT's hybrid kernels compute: sums of integers, then products with the scales in float32, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnbridge.model import Array
from nnbridge_tflite.host.numbers import Arg, Options, Tensors, activated, channel_scales, data_of, optional

_HIGHEST = 127
_WEIGHTS = (("int8", 0), ("uint8", 128))


def is_hybrid(inputs: Sequence[Arg]) -> bool:
    """True for float activations beside signed 8-bit weights of zero point 0, which may be stored sign-flipped.

    Weights are the first input after the data that is not omitted: coupled LSTMs have none of the input gate.
    """
    filter = next((one for one in inputs[1:] if one.present), None)
    return filter is not None and inputs[0].dtype == np.float32 and (filter.dtype.name, filter.zero_point) in _WEIGHTS


def scales(tensor: Arg, position: int, options: Options) -> Array:
    """The scale of weights, or one for each channel, in float32."""
    return channel_scales(tensor, position, options).astype(np.float32)


def _rounded(values: Array, low: int) -> Array:
    """Halves away from zero, in int32."""
    return np.clip(np.trunc(values + np.copysign(np.float32(0.5), values)), low, _HIGHEST).astype(np.int32)


def symmetric(rows: Array) -> tuple[Array, Array]:
    """Rows in steps of their largest number / 127, and these steps; 1 for rows of zeros."""
    most = np.abs(rows).max(axis=1, initial=0)
    empty = most == 0
    factors = np.float32(_HIGHEST) / np.where(empty, np.float32(1), most)
    steps = np.where(empty, np.float32(1), most / np.float32(_HIGHEST)).astype(np.float32)
    return _rounded(rows * factors[:, np.newaxis].astype(np.float32), -_HIGHEST).astype(np.float64), steps


def centred_asymmetric(rows: Array) -> tuple[Array, Array]:
    """Rows in 256 steps from their smallest number to their largest one, 0 among them, less their zero points; and the steps."""
    low, high = rows.min(axis=1, initial=0), rows.max(axis=1, initial=0)
    empty = low == high
    exact = np.where(empty, 1.0, (high - low) / 255.0)
    below, above = low / exact, high / exact
    point = np.where(128 + np.abs(below) < 127 + np.abs(above), -128 - below, 127 - above)
    points = np.where(empty, 0, np.clip(np.floor(np.abs(point) + 0.5) * np.sign(point), -128, 127)).astype(np.int32)
    steps = exact.astype(np.float32)
    moved = points[:, np.newaxis].astype(np.float32) + rows * (np.float32(1) / steps)[:, np.newaxis]
    return (_rounded(moved, -128) - points[:, np.newaxis]).astype(np.float64), steps


def biased(sums: Array, inputs: Tensors, position: int, options: Options) -> Array:
    """Sums with the bias and the fused activation."""
    bias = optional(inputs, position)
    return activated(sums if bias is None else sums + data_of(bias), options).astype(np.float32)

"""Faster kernels, bound to shapes and constants at preparation, under the same operation names.

Products of 8-bit values run through BLAS in float32 while their sums stay exact (in float64 above that). The fixed-point
rescaling that follows is done in float64 with the very roundings of Android's integers: see :class:`_Rescaler`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnbridge.cpu.binding import Binding, Frame, Step, faster
from nnbridge.operations.arithmetic import (
    activation_range,
    fused_activation,
    is_quant8,
)
from nnbridge.operations.call import Call
from nnbridge.operations.convolution import check_bias_scale, depthwise_sums, multipliers, operand_values, patches, sum_dtype
from nnbridge.operations.shapes import Window, windows
from nnbridge.types import FuseCode, OperandCode, OperationCode

Values: TypeAlias = "npt.NDArray[Any]"

_BLOCK = 1 << 14
"""Elements that a rescaling works on at a time: about what stays in a core's cache."""


class _Rescaler:
    """From sums of products [rows, channels] to 8-bit values: bias, multiplier, zero point, clamp, conversion.

    Android rounds twice: first the product with the 31-bit multiplier to nearest (ties up), then the shift by e to nearest
    (ties away from zero). Nested floors make that one: floor(y + 1/2 + 2**-(e+1)) for y >= 0 and
    floor(y + 1/2 - 2**-(e+1)) below, with y the exact product, which float64 holds to within 2**-53.
    """

    def __init__(self, call: Call, offset: Values, binding: Binding, channels: int) -> None:
        out = call.out
        multiplier, shift = multipliers(call)
        self._factor: Values = np.ldexp(multiplier.astype(np.float64), (shift - 31).astype(np.int64))
        tie = np.where(shift < 0, np.ldexp(1.0, np.minimum(shift, 0).astype(np.int64) - 1), 0.0)
        low, high = activation_range(out, fused_activation(call))
        # Unsigned bytes are made of non-negative values, where truncation is floor; signed ones by flipping a bit.
        self._signed = out.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
        lift = out.zero_point + (128 if self._signed else 0)
        self._low, self._high = (float(bound - out.zero_point + lift) for bound in (low, high))
        # Where values below the zero point are clamped away, the rounding of negative ones does not matter.
        self._one_sided = low >= out.zero_point
        self._tie = tie
        rounding = 0.5 + lift + (tie if self._one_sided else 0.0)
        self._offset = offset * self._factor + (rounding if self._one_sided else 0.0)
        self._lift = 0.5 + lift
        self._rows = max(1, _BLOCK // channels)
        self._work = binding.scratch((self._rows, channels), np.float64)

    def __call__(self, frame: Frame, sums: Values, out: Values) -> None:
        """Rescale ``sums`` [rows, channels] into ``out`` of the same shape."""
        target = out.view(np.uint8)
        work = frame[self._work]
        for start in range(0, len(sums), self._rows):
            part = sums[start : start + self._rows]
            y = work[: len(part)]
            np.multiply(part, self._factor, out=y)
            np.add(y, self._offset, out=y)
            if not self._one_sided:
                y += np.copysign(self._tie, y)
                y += self._lift
            np.clip(y, self._low, self._high, out=y)
            np.copyto(target[start : start + self._rows], y, casting="unsafe")
        if self._signed:
            np.bitwise_xor(target, 0x80, out=target)


_BOUNDS: dict[int, tuple[float | None, float | None]] = {
    FuseCode.NONE: (None, None),
    FuseCode.RELU: (0.0, None),
    FuseCode.RELU1: (-1.0, 1.0),
    FuseCode.RELU6: (0.0, 6.0),
}


def _float_epilogue(call: Call, channels: int) -> Callable[[Values], None]:
    """Bias and clamp in place, block by block so that the data stays in the cache."""
    low, high = _BOUNDS[fused_activation(call)]
    bias = call["bias"].data
    rows = max(1, _BLOCK // channels)

    def finish(out: Values) -> None:
        for start in range(0, len(out), rows):
            part = out[start : start + rows]
            np.add(part, bias, out=part)
            if low is not None and high is not None:
                np.clip(part, low, high, out=part)
            elif low is not None:
                np.maximum(part, low, out=part)

    return finish


def _ready(call: Call, *constants: str) -> bool:
    """True for NHWC data in float32 or 8-bit with constant weights, which is what the kernels here are for."""
    layout = call.get("nchw")
    if layout is not None and (layout.value is None or bool(layout.data.item())):
        return False
    x = call["input"]
    typed = x.type == OperandCode.TENSOR_FLOAT32 or is_quant8(x.type)
    parameters = (arg for arg in call.args if arg.name not in ("input", *constants))
    return typed and all(call[name].constant for name in constants) and all(arg.constant for arg in parameters)


def _quantised_offset(call: Call, totals: Values) -> Values:
    """What is added to sums of raw values: the bias, less the zero point times the weights' totals."""
    return call["bias"].data.astype(np.float64) - call["input"].zero_point * totals.astype(np.float64)


# -- CONV_2D ---------------------------------------------------------------------------------------------------------


def _product(binding: Binding, columns: Values, rows: int) -> tuple[Any, Callable[[Frame, Values, Values], None]]:
    """Element type of the left matrix, and a step from it and the output [rows, units] through bias and activation.

    ``columns`` are the weights less their zero point, [terms, units].
    """
    call, x = binding.call, binding.call["input"]
    units = columns.shape[1]
    dtype = sum_dtype(x, columns.T)
    weights = np.ascontiguousarray(columns, dtype)
    if not is_quant8(x.type):
        finish = _float_epilogue(call, units)

        def plain(frame: Frame, left: Values, out: Values) -> None:
            np.matmul(left, weights, out=out)
            finish(out)

        return dtype, plain
    check_bias_scale(call)
    rescale = _Rescaler(call, _quantised_offset(call, columns.sum(axis=0, dtype=np.int64)), binding, units)
    sums = binding.scratch((rows, units), dtype)

    def quantised(frame: Frame, left: Values, out: Values) -> None:
        np.matmul(left, weights, out=frame[sums])
        rescale(frame, frame[sums], out)

    return dtype, quantised


@faster(OperationCode.CONV_2D)
def conv_2d(binding: Binding) -> Step | None:
    """Pointwise convolutions multiply as they are; others gather their windows into a matrix first."""
    call = binding.call
    if not _ready(call, "filter", "bias"):
        return None
    x, w, out = call["input"], call["filter"], call.out
    terms, units = math.prod(w.dims[1:]), w.dims[0]
    columns = operand_values(w).reshape(units, terms).T
    rows, cols = windows(call, x.dims[1], x.dims[2], w.dims[1], w.dims[2])
    count = math.prod(out.dims[:3])
    dtype, multiply = _product(binding, columns, count)
    source, target = binding.index("input"), binding.outputs[0]
    pointwise = rows.size == cols.size == rows.stride == cols.stride == 1 and out.dims[1:3] == x.dims[1:3]
    if pointwise and x.dtype == dtype:

        def direct(frame: Frame) -> None:
            multiply(frame, frame[source].reshape(count, terms), frame[target].reshape(count, units))

        return direct
    left = binding.scratch((count, terms), dtype)
    if pointwise:

        def converted(frame: Frame) -> None:
            np.copyto(frame[left], frame[source].reshape(count, terms))
            multiply(frame, frame[left], frame[target].reshape(count, units))

        return converted
    pad = _padder(binding, rows, cols, dtype)

    def gathered(frame: Frame) -> None:
        seen = patches(pad(frame), rows, cols, out.dims[1], out.dims[2])
        np.copyto(frame[left].reshape(seen.shape), seen)
        multiply(frame, frame[left], frame[target].reshape(count, units))

    return gathered


def _padder(binding: Binding, rows: Window, columns: Window, dtype: Any) -> Callable[[Frame], Values]:
    """The input in a floating type with its padding around it; 8-bit padding is the zero point."""
    x = binding.call["input"]
    source = binding.index("input")
    batch, height, width, depth = x.dims
    if not (rows.before or rows.after or columns.before or columns.after) and x.dtype == dtype:
        return lambda frame: frame[source]
    shape = (batch, height + rows.before + rows.after, width + columns.before + columns.after, depth)
    wide = binding.scratch(shape, dtype, fill=float(x.zero_point))
    inside = (slice(None), slice(rows.before, rows.before + height), slice(columns.before, columns.before + width))

    def pad(frame: Frame) -> Values:
        padded: Values = frame[wide]
        np.copyto(padded[inside], frame[source])
        return padded

    return pad


# -- DEPTHWISE_CONV_2D -----------------------------------------------------------------------------------------------


@faster(OperationCode.DEPTHWISE_CONV_2D)
def depthwise_conv_2d(binding: Binding) -> Step | None:
    """One filter for each channel."""
    call = binding.call
    x, w, out = call["input"], call["filter"], call.out
    if not _ready(call, "filter", "bias") or w.dims[3] != x.dims[3]:
        return None
    columns = operand_values(w)[0]
    rows, cols = windows(call, x.dims[1], x.dims[2], w.dims[1], w.dims[2])
    dtype = sum_dtype(x, columns.reshape(-1, w.dims[3]).T)
    add_up = depthwise_sums(np.ascontiguousarray(columns, dtype), rows, cols, *out.dims[:3])
    pad = _padder(binding, rows, cols, dtype)
    source_count, units = math.prod(out.dims[:3]), out.dims[3]
    target = binding.outputs[0]
    if not is_quant8(x.type):
        finish = _float_epilogue(call, units)

        def plain(frame: Frame) -> None:
            add_up(pad(frame), frame[target])
            finish(frame[target].reshape(source_count, units))

        return plain
    check_bias_scale(call)
    rescale = _Rescaler(call, _quantised_offset(call, columns.sum(axis=(0, 1), dtype=np.int64)), binding, units)
    sums = binding.scratch(out.dims, dtype)

    def quantised(frame: Frame) -> None:
        add_up(pad(frame), frame[sums])
        rescale(frame, frame[sums].reshape(source_count, units), frame[target].reshape(source_count, units))

    return quantised

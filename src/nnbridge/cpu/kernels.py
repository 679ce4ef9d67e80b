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
    integer_range,
    is_quant8,
    mbqm,
    quantize_multiplier,
)
from nnbridge.operations.call import Arg, Call
from nnbridge.operations.convolution import check_bias_scale, multipliers, patches
from nnbridge.operations.elementwise import PAIRS
from nnbridge.operations.shapes import Window, windows
from nnbridge.types import FuseCode, OperandCode, OperationCode

Values: TypeAlias = "npt.NDArray[Any]"

_einsum: Callable[..., Values] = np.einsum
"""``np.einsum``, whose annotations do not know arrays of any element type."""

_BLOCK = 1 << 14
"""Elements that a rescaling works on at a time: about what stays in a core's cache."""
_EXACT_FLOAT32 = 2**24


class _Rescaler:
    """From sums of products [rows, channels] to 8-bit values: bias, multiplier, zero point, clamp, conversion.

    Android rounds twice: first the product with the 31-bit multiplier to nearest (ties up), then the shift by e to nearest
    (ties away from zero). Nested floors make that one: floor(y + 1/2 + 2**-(e+1)) for y >= 0 and
    floor(y + 1/2 - 2**-(e+1)) below, with y the exact product, which float64 holds to within 2**-53. FULLY_CONNECTED rounds
    once: floor(y + 1/2).
    """

    def __init__(self, call: Call, offset: Values, binding: Binding, channels: int) -> None:
        out = call.out
        multiplier, shift = multipliers(call)
        self._factor: Values = np.ldexp(multiplier.astype(np.float64), (shift - 31).astype(np.int64))
        twice = (shift < 0) & (call.definition.code != OperationCode.FULLY_CONNECTED)
        tie = np.where(twice, np.ldexp(1.0, np.minimum(shift, 0).astype(np.int64) - 1), 0.0)
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


def _weights(arg: Arg) -> Values:
    """Weights less their zero point, in float64 for the bounds that are worked out from them."""
    data = arg.data
    return data.astype(np.float64) if data.dtype.kind == "f" else data.astype(np.float64) - arg.zero_point


def _sum_type(x: Arg, per_output: Values) -> type[np.float32] | type[np.float64]:
    """float32 while the largest possible sum of raw values times weights is exact in it."""
    if not is_quant8(x.type):
        return np.float32
    largest = max(abs(bound) for bound in integer_range(x))
    return np.float32 if float(per_output.max(initial=0.0)) * largest < _EXACT_FLOAT32 else np.float64


def _quantised_offset(call: Call, totals: Values) -> Values:
    """What is added to sums of raw values: the bias, less the zero point times the weights' totals."""
    return call["bias"].data.astype(np.float64) - call["input"].zero_point * totals


# -- CONV_2D, FULLY_CONNECTED ----------------------------------------------------------------------------------------


def _product(binding: Binding, columns: Values, rows: int) -> tuple[Any, Callable[[Frame, Values, Values], None]]:
    """Element type of the left matrix, and a step from it and the output [rows, units] through bias and activation.

    ``columns`` are the weights [terms, units], in float64.
    """
    call, x = binding.call, binding.call["input"]
    units = columns.shape[1]
    dtype = _sum_type(x, np.abs(columns).sum(axis=0))
    weights = np.ascontiguousarray(columns, dtype)
    if not is_quant8(x.type):
        finish = _float_epilogue(call, units)

        def plain(frame: Frame, left: Values, out: Values) -> None:
            np.matmul(left, weights, out=out)
            finish(out)

        return dtype, plain
    check_bias_scale(call)
    rescale = _Rescaler(call, _quantised_offset(call, columns.sum(axis=0)), binding, units)
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
    columns = _weights(w).reshape(units, terms).T
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


@faster(OperationCode.FULLY_CONNECTED)
def fully_connected(binding: Binding) -> Step | None:
    """One product."""
    call = binding.call
    if not _ready(call, "weights", "bias"):
        return None
    w = call["weights"]
    # The shared rescaling reads the weights' scale under the name that convolutions give them.
    units, size = w.dims
    renamed = _with_filter(call)
    count = math.prod(call["input"].dims) // size
    inner = Binding(renamed, binding.inputs, binding.outputs, binding.first_scratch, binding.buffers, binding.fills)
    dtype, multiply = _product(inner, _weights(w).T, count)
    source, target = binding.index("input"), binding.outputs[0]
    left = binding.scratch((count, size), dtype)

    def step(frame: Frame) -> None:
        np.copyto(frame[left], frame[source].reshape(count, size))
        multiply(frame, frame[left], frame[target].reshape(count, units))

    return step


class _Renamed(Call):
    """A FULLY_CONNECTED call whose weights also answer to ``filter``."""

    def __getitem__(self, name: str) -> Arg:
        return super().__getitem__("weights" if name == "filter" else name)


def _with_filter(call: Call) -> Call:
    return _Renamed(call.definition, call.signature, call.args, call.outs)


# -- DEPTHWISE_CONV_2D -----------------------------------------------------------------------------------------------


@faster(OperationCode.DEPTHWISE_CONV_2D)
def depthwise_conv_2d(binding: Binding) -> Step | None:
    """Products summed over a view of all windows; one filter for each channel."""
    call = binding.call
    x, w, out = call["input"], call["filter"], call.out
    if not _ready(call, "filter", "bias") or w.dims[3] != x.dims[3]:
        return None
    columns = _weights(w)[0]
    rows, cols = windows(call, x.dims[1], x.dims[2], w.dims[1], w.dims[2])
    dtype = _sum_type(x, np.abs(columns).sum(axis=(0, 1)))
    weights: Values = np.ascontiguousarray(columns, dtype)
    pad = _padder(binding, rows, cols, dtype)
    source_count, units = math.prod(out.dims[:3]), out.dims[3]
    target = binding.outputs[0]
    if not is_quant8(x.type):
        finish = _float_epilogue(call, units)

        def plain(frame: Frame) -> None:
            seen = patches(pad(frame), rows, cols, out.dims[1], out.dims[2])
            _einsum("bhwijc,ijc->bhwc", seen, weights, out=frame[target])
            finish(frame[target].reshape(source_count, units))

        return plain
    check_bias_scale(call)
    rescale = _Rescaler(call, _quantised_offset(call, columns.sum(axis=(0, 1))), binding, units)
    sums = binding.scratch(out.dims, dtype)

    def quantised(frame: Frame) -> None:
        seen = patches(pad(frame), rows, cols, out.dims[1], out.dims[2])
        _einsum("bhwijc,ijc->bhwc", seen, weights, out=frame[sums])
        rescale(frame, frame[sums].reshape(source_count, units), frame[target].reshape(source_count, units))

    return quantised


# -- ADD, SUB of 8-bit values ----------------------------------------------------------------------------------------


def _sum_of_tables(binding: Binding, sign: int) -> Step | None:
    """The first rescaling of either operand has 256 results: they come from tables, and only the sum is rescaled."""
    call = binding.call
    a, b, out = call["input1"], call["input2"], call.out
    if not is_quant8(out.type) or a.dims != b.dims or a.constant or b.constant:
        return None
    twice_max = 2.0 * max(np.float32(a.scale), np.float32(b.scale))
    real_out = twice_max / float(np.float32(2**20) * np.float32(out.scale))
    if real_out >= 1 or math.prod(out.dims) >= PAIRS:
        # The reference kernel refuses the one and looks the other up, pair by pair of values.
        return None
    first, second = (_table(arg, twice_max) for arg in (a, b))
    second = sign * second
    multiplier, shift = quantize_multiplier(real_out)
    low, high = activation_range(out, fused_activation(call))
    left, right, target = binding.inputs[0], binding.inputs[1], binding.outputs[0]
    shape = out.dims
    raw, other = (binding.scratch(shape, np.int32) for _ in range(2))

    def step(frame: Frame) -> None:
        total, added = frame[raw], frame[other]
        np.take(first, frame[left].view(np.uint8), out=total, mode="clip")
        np.take(second, frame[right].view(np.uint8), out=added, mode="clip")
        np.add(total, added, out=total)
        rescaled = mbqm(total, multiplier, shift)
        rescaled += out.zero_point
        np.copyto(frame[target], np.clip(rescaled, low, high), casting="unsafe")

    return step


def _table(arg: Arg, twice_max: float) -> npt.NDArray[np.int32]:
    """The operand's values at the common scale, by the byte that holds them."""
    values = np.arange(256, dtype=np.uint8).view(arg.dtype).astype(np.int64) - arg.zero_point
    multiplier, shift = quantize_multiplier(float(np.float32(arg.scale)) / twice_max)
    return mbqm(values * (1 << 20), multiplier, shift).astype(np.int32)


@faster(OperationCode.ADD)
def add(binding: Binding) -> Step | None:
    """8-bit sums."""
    return _sum_of_tables(binding, 1)


@faster(OperationCode.SUB)
def sub(binding: Binding) -> Step | None:
    """8-bit differences."""
    return _sum_of_tables(binding, -1)

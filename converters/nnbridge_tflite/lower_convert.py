"""Changes of type, quantisation, and reductions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnbridge.converters.draft import Value
from nnbridge.types import OperandCode, OperationCode
from nnbridge_tflite.lowering import FLOAT32, FLOATS, INT32, QUANT8, Lowerer, lowers, product

REDUCTIONS = {
    "REDUCE_ALL": OperationCode.REDUCE_ALL,
    "REDUCE_ANY": OperationCode.REDUCE_ANY,
    "REDUCE_MAX": OperationCode.REDUCE_MAX,
    "REDUCE_MIN": OperationCode.REDUCE_MIN,
    "REDUCE_PROD": OperationCode.REDUCE_PROD,
    "SUM": OperationCode.REDUCE_SUM,
}


@lowers("CAST")
def cast(x: Lowerer) -> None:
    """CAST between types that NNAPI casts."""
    x.require(x.tensor(0).type.name != "INT8" and x.output_tensor().type.name != "INT8", "no int8", x.tensor(0))
    x.emit(OperationCode.CAST, x.input(0))


@lowers("QUANTIZE")
def quantize(x: Lowerer) -> None:
    """QUANTIZE of floats; a change of 8-bit parameters goes through DEQUANTIZE."""
    x.quantised(x.dequantised(x.input(0)))


@lowers("DEQUANTIZE")
def dequantize(x: Lowerer) -> None:
    """DEQUANTIZE; float16 is cast."""
    half = x.input(0).type in FLOATS
    x.emit(OperationCode.CAST if half else OperationCode.DEQUANTIZE, x.input(0))


def _axes(x: Lowerer) -> list[int]:
    return sorted({x.axis(a, x.input(0).rank) for a in x.integers(1)})


def _reduced(x: Lowerer, axes: Sequence[int]) -> tuple[int, ...]:
    """The dimensions that a reduction leaves."""
    shape = x.shape(0)
    if x.option("keep_dims", False):
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)


@lowers("MEAN")
def mean(x: Lowerer) -> None:
    """MEAN; its flag is an INT32."""
    data, axes = x.input(0), _axes(x)
    keep = x.i32(bool(x.option("keep_dims", False)))
    truncates = data.type in QUANT8 and x.mapping != "delegate"
    x.require(not truncates, "a float mean (NNAPI's 8-bit mean truncates, TFLite's rounds)", x.tensor(0))
    same = data.type not in QUANT8 or (data.scale, data.zero_point) == (x.out.scale, x.out.zero_point)
    x.require(same or not x.free, "one scale and zero point for input and output", [data.scale, x.out.scale])
    if same:
        x.emit(OperationCode.MEAN, data, x.ints(axes), keep)
        return
    # The delegate adds zero to change parameters.
    made = x.temp(OperationCode.MEAN, data, x.ints(axes), keep, dims=_reduced(x, axes) or (1,))
    zero = data.like(dims=(1,), scale=1.0, zero_point=0)
    zero.data = np.zeros(1, np.int8 if data.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED else np.uint8)
    x.emit(OperationCode.ADD, made, zero, x.i32(0))


@lowers(*REDUCTIONS)
def reduce(x: Lowerer) -> None:
    """The reduction of the same meaning; its flag is a BOOL."""
    x.emit(REDUCTIONS[x.name], x.input(0), x.ints(_axes(x)), x.flag(x.option("keep_dims", False)))


@lowers("SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", wide=True)
def reduce_through_float(x: Lowerer) -> None:
    """8-bit reductions by float32."""
    x.require(x.input(0).type in QUANT8, "an 8-bit tensor", x.tensor(0))
    axes, keep = _axes(x), x.flag(x.option("keep_dims", False))
    real = x.dequantised(x.input(0))
    x.quantised(x.temp(REDUCTIONS[x.name], real, x.ints(axes), keep, dims=_reduced(x, axes) or (1,)))


@lowers("FILL")
def fill(x: Lowerer) -> None:
    """FILL with a constant."""
    value = x.constant(1).reshape(-1)
    x.require(value.size == 1, "one value", value.size)
    number = x.i32(int(value[0])) if x.out.type == INT32 else x.real(float(value[0]), x.out)
    x.emit(OperationCode.FILL, x.ints(x.integers(0)), number)


@lowers("CUMSUM", wide=True)
def cumulative_sum(x: Lowerer) -> None:
    """Sums of prefixes along the last dimension as a product with a triangular matrix of ones."""
    data = x.input(0)
    x.require(data.type == FLOAT32 and x.axis(x.integer(1), data.rank) == data.rank - 1, "float32, the last axis", data.dims)
    size = data.dims[-1]
    x.require(0 < size <= 512, "1 to 512 elements", size)
    ones = np.tri(size, k=-1 if x.option("exclusive", False) else 0, dtype=np.float32)
    matrix = x.array(np.ascontiguousarray(ones.T if x.option("reverse", False) else ones), data)
    nothing = x.array(np.zeros(size, np.float32), data)
    rows = product(data.dims[:-1])
    flat = x.emit(OperationCode.FULLY_CONNECTED, data, matrix, nothing, x.i32(0), out=Value(FLOAT32, (rows, size)))
    x.reshaped(flat, data.dims, out=x.out)

"""Convolutions and matrix products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nnbridge.converters.draft import Value
from nnbridge.types import OperandCode, OperationCode, PaddingCode
from nnbridge_tflite.lowering import FLOAT32, FLOATS, INT32, QUANT8, Lowerer, lowers, product, real_numbers

PADDINGS = (PaddingCode.SAME, PaddingCode.VALID)
"""TFLite's paddings by code."""


def padding(x: Lowerer) -> Value:
    """The operator's padding as NNAPI's scheme."""
    code = x.option("padding")
    x.require(code in (0, 1), "padding SAME or VALID", code)
    return x.i32(PADDINGS[code])


def strides(x: Lowerer) -> tuple[Value, Value]:
    """Strides over width and height."""
    return x.i32(x.option("stride_w")), x.i32(x.option("stride_h"))


def dilations(x: Lowerer) -> tuple[Value, ...]:
    """NHWC flag and dilations over width and height, where they are not 1."""
    wide, high = x.option("dilation_w_factor", 1), x.option("dilation_h_factor", 1)
    return () if (wide, high) == (1, 1) else (x.flag(False), x.i32(wide), x.i32(high))


def bias(x: Lowerer, i: int, data: Value, filter: Value, units: int) -> Value:
    """Input ``i``, or zeros: float, or int32 with the scale that NNAPI wants, data's times filter's."""
    if not x.has(i):
        x.draft.spend(units)
    if data.type in FLOATS:
        return x.input(i) if x.has(i) else x.array(np.zeros(units, np.dtype("f4" if data.type == FLOAT32 else "f2")), data)
    scale = 0.0 if filter.channel_quant is not None else float(np.float32(data.scale) * np.float32(filter.scale))
    if not x.has(i):
        return Value(INT32, (units,), scale=scale, data=np.zeros(units, np.int32))
    given = x.input(i)
    x.require(given.type == INT32, "an int32 bias", x.tensor(i))
    return replace(given, scale=scale, zero_point=0)


def weights(x: Lowerer, i: int, data: Value) -> Value:
    """A filter; 8-bit weights of float activations become float32, which is the only copy of weights that is made."""
    filter = x.input(i)
    if data.type not in FLOATS or filter.type in FLOATS:
        return filter
    x.require(filter.data is not None, "constant weights for float activations", x.tensor(i))
    if not x.free:
        return _dequantised_at_run(x, filter)
    x.mapping = "wide"
    x.draft.spend(product(filter.dims))
    return Value(FLOAT32, filter.dims, name=filter.name, data=real_numbers(filter))


def _dequantised_at_run(x: Lowerer, filter: Value) -> Value:
    """What the delegate does with hybrid weights: symmetric 8-bit behind a DEQUANTIZE."""
    x.require(filter.channel_quant is None and filter.zero_point == 0, "symmetric per-tensor weights", filter.name)
    stored = replace(filter, type=OperandCode.TENSOR_QUANT8_SYMM)
    return x.emit(OperationCode.DEQUANTIZE, stored, out=Value(FLOAT32, filter.dims))


@lowers("CONV_2D")
def conv_2d(x: Lowerer) -> None:
    """CONV_2D with implicit padding."""
    data = x.input(0)
    filter = weights(x, 1, data)
    x.require(filter.rank == 4 and data.rank == 4, "rank 4", [data.rank, filter.rank])
    units = bias(x, 2, data, filter, filter.dims[0])
    x.require(data.dims[3] == filter.dims[3], "one group", f"{data.dims[3]} channels, filters of {filter.dims[3]}")
    tail = dilations(x)
    x.emit_fused(OperationCode.CONV_2D, data, filter, units, padding(x), *strides(x), *tail, at=6)


@lowers("CONV_2D", wide=True)
def grouped_conv_2d(x: Lowerer) -> None:
    """GROUPED_CONV_2D, which Android's delegate does not use."""
    data = x.input(0)
    filter = weights(x, 1, data)
    x.require(filter.rank == 4 and data.rank == 4 and filter.dims[3] > 0, "rank 4", [data.rank, filter.rank])
    groups, rest = divmod(data.dims[3], filter.dims[3])
    x.require(rest == 0 and groups > 1 and not dilations(x), "undilated groups", groups)
    units = bias(x, 2, data, filter, filter.dims[0])
    inputs = (data, filter, units, padding(x), *strides(x), x.i32(groups), x.flag(False))
    x.emit_fused(OperationCode.GROUPED_CONV_2D, *inputs, at=7)


@lowers("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(x: Lowerer) -> None:
    """DEPTHWISE_CONV_2D; the multiplier follows from the channels, as in LiteRT."""
    data = x.input(0)
    filter = weights(x, 1, data)
    x.require(filter.rank == 4 and data.rank == 4 and data.dims[3] > 0, "rank 4", [data.rank, filter.rank])
    units = bias(x, 2, data, filter, filter.dims[3])
    multiplier = x.i32(filter.dims[3] // data.dims[3])
    tail = dilations(x)
    x.emit_fused(OperationCode.DEPTHWISE_CONV_2D, data, filter, units, padding(x), *strides(x), multiplier, *tail, at=7)


@lowers("TRANSPOSE_CONV")
def transpose_conv(x: Lowerer) -> None:
    """TRANSPOSE_CONV_2D: TFLite has the output shape first and the data third."""
    data = x.input(2)
    filter = weights(x, 1, data)
    shape = x.integers(0)
    x.require(filter.rank == 4 and len(shape) == 4, "rank 4", [filter.rank, len(shape)])
    units = bias(x, 3, data, filter, filter.dims[0])
    inputs = (data, filter, units, x.ints(shape), padding(x), *strides(x), x.flag(False))
    x.emit_fused(OperationCode.TRANSPOSE_CONV_2D, *inputs, at=7)


@lowers("FULLY_CONNECTED")
def fully_connected(x: Lowerer) -> None:
    """FULLY_CONNECTED; leading dimensions that are kept come back by RESHAPE."""
    data = x.input(0)
    filter = weights(x, 1, data)
    x.require(x.option("weights_format") == 0, "weights in default format", x.option("weights_format"))
    x.require(filter.rank == 2, "weights of rank 2", filter.rank)
    # As a 1x1 convolution such sums would be rounded twice, where TFLite rounds them once.
    x.require(filter.channel_quant is None, "one scale for all weights", "one for each unit")
    units = bias(x, 2, data, filter, filter.dims[0])
    if not _keeps_dims(x):
        x.emit_fused(OperationCode.FULLY_CONNECTED, data, filter, units)
        return
    rows = product(data.dims) // max(filter.dims[1], 1)
    flat = x.out.like(dims=(rows, filter.dims[0]))
    kept = x.out
    x.outputs[0] = flat
    x.emit_fused(OperationCode.FULLY_CONNECTED, data, filter, units)
    x.outputs[0] = kept
    x.reshaped(flat, (*data.dims[:-1], filter.dims[0]), out=kept)


def _keeps_dims(x: Lowerer) -> bool:
    return bool(x.option("keep_num_dims", False)) and x.input(0).rank != 2


@lowers("BATCH_MATMUL", wide=True)
def batch_matmul(x: Lowerer) -> None:
    """BATCH_MATMUL of equal ranks; a side with fewer or smaller batches is repeated."""
    from nnbridge_tflite.lower_elementwise import broadcast

    left, right = x.inputs()
    rank = max(left.rank, right.rank)
    x.require(0 not in (*left.dims, *right.dims), "known dimensions", [left.dims, right.dims])
    batches = [(1,) * (rank - v.rank) + v.dims[:-2] for v in (left, right)]
    common = tuple(max(a, b) for a, b in zip(*batches, strict=True))
    left, right = (broadcast(x, v, (*common, *v.dims[-2:])) for v in (left, right))
    x.emit(OperationCode.BATCH_MATMUL, left, right, x.flag(x.option("adj_x")), x.flag(x.option("adj_y")))


@lowers("BATCH_MATMUL", wide=True)
def matmul_by_constant(x: Lowerer) -> None:
    """A product with a constant matrix as FULLY_CONNECTED, for feature levels and types without BATCH_MATMUL."""
    left, right = x.inputs()
    x.require(right.data is not None and product(right.dims[:-2]) == 1, "a constant matrix on the right", right.dims)
    x.require(not x.option("adj_x") and left.type in (*FLOATS, *QUANT8), "floats or 8-bit integers", x.tensor(0))
    assert right.data is not None
    matrix = right.data.reshape(right.dims[-2:])
    turned = right.like(dims=matrix.shape if x.option("adj_y") else matrix.shape[::-1])
    turned.data = matrix if x.option("adj_y") else np.ascontiguousarray(matrix.T)
    units, depth = turned.dims
    rows = product(left.dims) // max(depth, 1)
    flat = x.emit(
        OperationCode.FULLY_CONNECTED,
        left if left.rank <= 4 else x.reshaped(left, (rows, depth)),
        turned,
        bias(x, x.count, left, turned, units),
        x.i32(0),
        out=x.out.like(dims=(rows, units)),
    )
    x.reshaped(flat, (*left.dims[:-1], units), out=x.out)

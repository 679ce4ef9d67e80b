"""Matrix products: FULLY_CONNECTED, BATCH_MATMUL."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnbridge.errors import Reason
from nnbridge.model import Array
from nnbridge.operations import work
from nnbridge.operations.arithmetic import (
    FLOAT_RANGES,
    activation_range,
    fused_activation,
    is_quant8,
    mbqm,
    mbqm_once,
    product_multiplier,
    product_scale,
    quantize_multiplier,
    wrap32,
)
from nnbridge.operations.call import Call
from nnbridge.operations.convolution import ACTIVATION
from nnbridge.operations.correlation import bias_scale, exact_dtype, operand_values, sum_dtype
from nnbridge.operations.declaration import Input, Output, operation, rank, tensors, types, up_to
from nnbridge.operations.kernels import Function, InPlace, prepared
from nnbridge.operations.numerics import real_product
from nnbridge.operations.shapes import broadcast
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode


def _connected_shape(call: Call) -> tuple[int, ...]:
    x, w, b = call["input"], call["weights"], call["bias"]
    units, size = w.dims
    call.require(size > 0, "weights with a second dimension above 0", list(w.dims), "weights")
    count = math.prod(x.dims)
    call.require(count % size == 0, f"an input that divides into rows of {size}", list(x.dims), "input")
    call.require(b.dims == (units,), f"a bias of [{units}]", list(b.dims), "bias")
    return count // size, units


def _check_rank_and_size(call: Call) -> Reason | None:
    """Compare the rank of the input, and sizes that are known, as Android's validator does."""
    x, w = call["input"], call["weights"]
    if x.dims and x.rank < 2:
        return Reason("rank at least 2", str(x.rank), call.definition.name, "input")
    known = len(w.dims) == 2 and w.dims[1] > 0 and x.dims and 0 not in x.dims
    if known and math.prod(x.dims) % w.dims[1]:
        return Reason(f"an input that divides into rows of {w.dims[1]}", str(list(x.dims)), call.definition.name, "input")
    return None


def _connected_level(call: Call) -> tuple[int, str] | None:
    """Level 3 unless the output scale exceeds input scale x weights scale."""
    x, w, out = call["input"], call["weights"], call.out
    if x.type == T.TENSOR_QUANT8_ASYMM and not np.float32(out.scale) > product_scale(x.scale, w.scale):
        return 3, "an output scale of at most input scale x weights scale"
    return None


@operation(
    OperationCode.FULLY_CONNECTED,
    since=1,
    summary="Rows of weights against the flattened input.",
    work=work.FULLY_CONNECTED,
    types=[
        types(1, T=T.TENSOR_FLOAT32, B=T.TENSOR_FLOAT32),
        types(3, T=T.TENSOR_FLOAT16, B=T.TENSOR_FLOAT16),
        types(1, T=T.TENSOR_QUANT8_ASYMM, B=T.TENSOR_INT32),
        types(4, T=T.TENSOR_QUANT8_ASYMM_SIGNED, B=T.TENSOR_INT32),
    ],
    inputs=[
        Input("input", "T", "data, flattened to [batch, input_size]", rank=up_to(4, low=2, build=True)),
        Input("weights", "T", "weights [units, input_size]", rank=rank(2, build=True)),
        Input("bias", "B", "bias [units]", rank=rank(1, build=True)),
        *ACTIVATION,
    ],
    outputs=[Output("output", "T", "[batch, units]")],
    shape=_connected_shape,
    level_rules=(_connected_level,),
    build_checks=(_check_rank_and_size,),
    zero_sized=True,
)
@prepared("input")
def fully_connected(call: Call) -> Function | InPlace:
    """Products with the transposed weights, bias, rescaling and the fused activation.

    8-bit sums are rescaled with one rounding, as LiteRT does, where Android's executor rounds twice (N5): in one sum of
    about a hundred the results differ by 1, which Android's conformance cases allow and their values do not decide.
    """
    activation = fused_activation(call)
    x, w, b, out = call["input"], call["weights"], call["bias"], call.out
    size, values, bias = w.dims[1], operand_values(w), b.data
    if not is_quant8(out.type):
        columns, multiply, bounds = values.T, real_product(), FLOAT_RANGES[activation]

        def add(buffers: Sequence[Array], data: Array) -> None:
            [result] = buffers
            np.add(multiply(data.reshape(-1, size), columns), bias, result)
            result.clip(*bounds, result)

        return InPlace(add)
    call.require(*bias_scale(x, w, b), "bias")
    dtype = sum_dtype(x, values)
    columns = values.astype(dtype).T
    offset = bias.astype(np.int64) - x.zero_point * values.sum(axis=1, dtype=np.int64)
    real = product_multiplier(x.scale, w.scale, out.scale)
    call.require(real < 2**30, "input scale x weights scale / output scale below 2**30", real, "output")
    multiplier, shift = quantize_multiplier(real)
    limits = activation_range(out, activation)

    def rescale(data: Array) -> Array:
        sums = data.reshape(-1, size).astype(dtype) @ columns
        rescaled = mbqm_once(sums.astype(np.int64) + offset, multiplier, shift)
        rescaled += out.zero_point
        return np.clip(rescaled, *limits, out=rescaled)

    return rescale


def _matmul_dims(call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Dimensions of both operands after their adjoint flags."""
    sides = []
    for name, flag in (("input1", "adj_x"), ("input2", "adj_y")):
        dims = call[name].dims
        sides.append((*dims[:-2], dims[-1], dims[-2]) if call.scalar(flag) else dims)
    return sides[0], sides[1]


def _matmul_shape(call: Call) -> tuple[int, ...]:
    a, b = _matmul_dims(call)
    call.require(len(a) == len(b), "operands of equal rank", f"{len(a)} and {len(b)}")
    call.require(a[-1] == b[-2], f"{a[-1]} rows of the second operand", b[-2], "input2")
    return (*broadcast(call, a[:-2], b[:-2]), a[-2], b[-1])


@operation(
    OperationCode.BATCH_MATMUL,
    since=6,
    summary="Products of stacked matrices, either transposed on demand.",
    work=work.STACKED_PRODUCTS,
    types=tensors(FLOAT32=6, FLOAT16=6, INT32=6, QUANT8_ASYMM_SIGNED=6),
    inputs=[
        Input("input1", "T", "[…, m, k], or [..., k, m] with adj_x", rank=up_to(4, low=2, build=True)),
        Input("input2", "T", "[…, k, n], or [..., n, k] with adj_y", rank=up_to(4, low=2, build=True)),
        Input("adj_x", T.BOOL, "transpose the first operand's matrices"),
        Input("adj_y", T.BOOL, "transpose the second operand's matrices"),
    ],
    outputs=[Output("output", "T", "[…, m, n]")],
    shape=_matmul_shape,
    half="native",
)
def batch_matmul(call: Call) -> Array:
    """INT32 wraps; signed 8-bit is rescaled by the product of the scales; half precision sums in half."""
    a, b, out = call["input1"], call["input2"], call.out
    left, right = operand_values(a), operand_values(b)
    left = left.swapaxes(-1, -2) if call.scalar("adj_x") else left
    right = right.swapaxes(-1, -2) if call.scalar("adj_y") else right
    if out.type == T.TENSOR_INT32:
        return np.matmul(
            a.data.swapaxes(-1, -2) if call.scalar("adj_x") else a.data,
            b.data.swapaxes(-1, -2) if call.scalar("adj_y") else b.data,
        )
    if out.type != T.TENSOR_QUANT8_ASYMM_SIGNED:
        return real_product()(left, right)
    dtype = exact_dtype(left.shape[-1])
    sums = np.matmul(left.astype(dtype), right.astype(dtype)).astype(np.int64)
    multiplier, shift = quantize_multiplier(product_multiplier(a.scale, b.scale, out.scale))
    result = mbqm(wrap32(sums) if left.shape[-1] > _TERMS else sums, multiplier, shift)
    result += out.zero_point
    return result.clip(-128, 127, result)


_TERMS = 2**31 // 255**2
"""Products of 8-bit differences whose sums fit into 32 bits."""

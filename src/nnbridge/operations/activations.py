"""Activation functions: the RELU family, LOGISTIC, TANH, ELU, HARD_SWISH, SOFTMAX, LOG_SOFTMAX."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nnbridge.model import Array
from nnbridge.operations.arithmetic import (
    activate,
    activation_range,
    by_table,
    clz32,
    every_value,
    integer_range,
    is_quant8,
    mbqm,
    quantize_multiplier,
    rdbp,
    rdbp16,
    sat16,
    srdhm,
    srdhm16,
)
from nnbridge.operations.call import Call
from nnbridge.operations.declaration import Input, Output, at_least, fixed, like, operation, tensors, types, up_to
from nnbridge.operations.fixedpoint import exp_on_negative, logistic, one_over_one_plus_x, tanh
from nnbridge.operations.kernels import Function, prepared
from nnbridge.operations.numerics import current, interpolated
from nnbridge.operations.shapes import same_as_input
from nnbridge.types import FuseCode, OperationCode
from nnbridge.types import OperandCode as T

_FIRST_TYPES = tensors(FLOAT32=1, FLOAT16=3, QUANT8_ASYMM=1, QUANT8_ASYMM_SIGNED=4)
_INPUT = Input("input", "T", "any values", rank=up_to(4, build=True))


def _relu(code: OperationCode, summary: str, activation: FuseCode) -> None:
    @operation(
        code,
        since=1,
        summary=summary,
        types=_FIRST_TYPES,
        inputs=[_INPUT],
        outputs=[Output("output", "T", "clamped values", like("input"))],
        shape=same_as_input,
        zero_sized=True,
    )
    @prepared("input")
    def kernel(call: Call) -> Function:
        x = call["input"]
        if not is_quant8(x.type):
            return lambda values: activate(values, activation)
        # The range is that of the input's parameters, which the output shares (N49).
        # Bounds of the values' own type keep np.clip from the slower ufunc of one bound.
        low, high = (x.dtype.type(bound) for bound in activation_range(x, activation))
        return lambda values: np.clip(values, low, high)


_relu(OperationCode.RELU, "max(0, x).", FuseCode.RELU)
_relu(OperationCode.RELU1, "x clamped to [-1, 1].", FuseCode.RELU1)
_relu(OperationCode.RELU6, "x clamped to [0, 6].", FuseCode.RELU6)


def _saturating_function(call: Call, function: Callable[[Array, int], Array], bits: int) -> Array:
    """N44, N45: a function with 4 integer bits on all inputs; beyond the radius it has its limits. Results before offset."""
    x = call["input"]
    real = float(np.float32(x.scale)) * 2**27
    call.require(real > 1, "an input scale above 2**-27", x.scale, "input")
    multiplier, shift = quantize_multiplier(real)
    radius = math.floor(15 * 2**27 / 2**shift)
    values = every_value(x)
    inside = np.clip(values, -radius, radius)
    raw = rdbp(function(mbqm(inside, multiplier, shift), 4), bits)
    limit = 1 << (31 - bits)
    lowest = 0 if function is logistic else -limit
    return np.where(values <= -radius, lowest, np.where(values >= radius, limit, raw))


def _squash(
    code: OperationCode,
    summary: str,
    level8: int,
    parameters: dict[T, tuple[float, int]],
    plain: Callable[[Array], Array],
    function: Callable[[Array, int], Array],
    bits: int,
) -> None:
    @operation(
        code,
        since=1,
        summary=summary,
        types=[*_FIRST_TYPES[:2], types(level8, T=T.TENSOR_QUANT8_ASYMM), _FIRST_TYPES[3]],
        inputs=[_INPUT],
        outputs=[Output("output", "T", "result; 8-bit parameters are fixed", fixed(parameters))],
        shape=same_as_input,
        zero_sized=True,
    )
    @prepared("input")
    def kernel(call: Call) -> Function:
        if not is_quant8(call.out.type):
            return interpolated(plain, -_TABLE_END, _TABLE_END) if current().tables else plain
        if current().real_functions:
            x, scale = call["input"], call.out.scale
            real = plain(every_value(x) * np.float64(x.scale))
            return by_table(x, call.out, np.clip(np.rint(real / scale) + call.out.zero_point, *integer_range(call.out)))
        results = _saturating_function(call, function, bits) + call.out.zero_point
        return by_table(call["input"], call.out, np.clip(results, *integer_range(call.out)))


_TABLE_END = 10.0
"""The largest argument of a table of an exponential function, as in LiteRT's 16-bit kernels."""


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


_squash(
    OperationCode.LOGISTIC,
    "1 / (1 + exp(-x)).",
    1,
    {T.TENSOR_QUANT8_ASYMM: (1 / 256, 0), T.TENSOR_QUANT8_ASYMM_SIGNED: (1 / 256, -128)},
    _sigmoid,
    logistic,
    23,
)
_squash(
    OperationCode.TANH,
    "Hyperbolic tangent.",
    3,
    {T.TENSOR_QUANT8_ASYMM: (1 / 128, 128), T.TENSOR_QUANT8_ASYMM_SIGNED: (1 / 128, 0)},
    np.tanh,
    tanh,
    24,
)


@operation(
    OperationCode.ELU,
    since=4,
    summary="max(0, x) + min(0, alpha * (exp(x) - 1)).",
    types=[types(4, T=T.TENSOR_FLOAT32, S=T.FLOAT32), types(4, T=T.TENSOR_FLOAT16, S=T.FLOAT16)],
    inputs=[Input("input", "T", "any values", rank=at_least(1)), Input("alpha", "S", "slope at minus infinity")],
    outputs=[Output("output", "T", "result")],
    shape=same_as_input,
)
@prepared("input")
def elu(call: Call) -> Function:
    """N56."""
    alpha = np.float32(call.scalar("alpha"))
    return lambda x: np.maximum(0, x) + np.minimum(0, alpha * (np.exp(x) - 1))


@operation(
    OperationCode.HARD_SWISH,
    since=4,
    summary="x * max(0, min(6, x + 3)) / 6.",
    types=[types(4, T=t) for t in (t.types["T"] for t in _FIRST_TYPES)],
    inputs=[Input("input", "T", "any values", rank=at_least(1))],
    outputs=[Output("output", "T", "result; its scale and zero point are its own")],
    shape=same_as_input,
    zero_sized=True,
)
@prepared("input")
def hard_swish(call: Call) -> Function:
    """N48 for 8-bit values."""
    return by_table(call["input"], call.out, _hard_swish_table(call)) if is_quant8(call.out.type) else _hard_swish


# Arrays: NumPy converts a number to one on every call.
_THREE, _MINUS_THREE, _SIX = np.array(3, np.float32), np.array(-3, np.float32), np.array(6, np.float32)


def _hard_swish(x: Array) -> Array:
    # Clamped before 3 is added: the same numbers, and one pass less that fills a new array.
    gate: Array = x.clip(_MINUS_THREE, _THREE)
    gate += _THREE
    gate *= x
    gate /= _SIX
    return gate


def _hard_swish_table(call: Call) -> Array:
    x, out = call["input"], call.out
    fine = np.float32(x.scale) / np.float32(128)
    real = float(fine) / float(np.float32(out.scale))
    call.require(real < 1, "input scale / 128 / output scale below 1", real, "output")
    out_multiplier, out_exponent = quantize_multiplier(float(np.float32(fine / np.float32(out.scale))))
    relu_multiplier, relu_exponent = quantize_multiplier(float(np.float32(fine / np.float32(3 / 32768))))

    def to16(multiplier: int) -> int:
        return 32767 if multiplier >= 2**31 - 1 - 2**15 else (multiplier + 2**15) >> 16

    high_resolution = (every_value(x) * 128).astype(np.int32)
    product = srdhm16(high_resolution, to16(out_multiplier))
    gate = high_resolution
    if relu_exponent > 0:
        # 16 bits to the left saturate every value but 0; more would leave the 32 bits that hold them here.
        gate = sat16(gate << min(relu_exponent - 1, 15))
    gate = srdhm16(gate, to16(relu_multiplier))
    if relu_exponent > 0:
        gate = sat16(gate << 1)
    elif relu_exponent < 0:
        gate = rdbp16(gate, -relu_exponent)
    gate = (gate + 32768) >> 1
    scaled = (gate.astype(np.int64) * product / 32768).astype(np.int64)
    # A quotient of float32 below 1 is rounded to one below 1: the exponent is at most 0. The zero point is added in 16 bits.
    offset = (rdbp16(scaled, -out_exponent) + out.zero_point).astype(np.int16)
    return np.clip(offset.astype(np.int32), *integer_range(out))


def _short_softmax_level(call: Call) -> tuple[int, str] | None:
    """Without an axis, ranks other than 2 and 4 need level 3."""
    x = call["input"]
    if len(call.args) == 2 and x.dims and x.rank not in (2, 4):
        return 3, "a rank other than 2 and 4"
    return None


def _softmax_shape(call: Call) -> tuple[int, ...]:
    call.axis("axis", call["input"].rank)
    beta = call.scalar("beta")
    call.require(beta > 0, "beta above 0", beta, "beta")
    return call["input"].dims


@operation(
    OperationCode.SOFTMAX,
    since=1,
    summary="exp((x - max) * beta) / sum, along an axis.",
    types=[
        types(1, T=T.TENSOR_FLOAT32, S=T.FLOAT32),
        types(3, T=T.TENSOR_FLOAT16, S=T.FLOAT16),
        types(1, T=T.TENSOR_QUANT8_ASYMM, S=T.FLOAT32),
        types(4, T=T.TENSOR_QUANT8_ASYMM_SIGNED, S=T.FLOAT32),
    ],
    inputs=[
        _INPUT,
        Input("beta", "S", "scale of the exponent, above 0"),
        Input("axis", T.INT32, "axis of the sums, counted from the end if negative", default=-1),
    ],
    counts={2: 1, 3: 3},
    outputs=[
        Output(
            "output",
            "T",
            "shares of 1; 8-bit parameters are fixed",
            fixed({T.TENSOR_QUANT8_ASYMM: (1 / 256, 0), T.TENSOR_QUANT8_ASYMM_SIGNED: (1 / 256, -128)}),
        )
    ],
    shape=_softmax_shape,
    level_rules=(_short_softmax_level,),
    zero_sized=True,
)
@prepared("input")
def softmax(call: Call) -> Function:
    """N46, N47."""
    axis = call.axis("axis", call["input"].rank)
    x, out, real = call["input"], call.out, _softmax_real(axis, call.scalar("beta"))
    if not is_quant8(out.type):
        return real
    if not current().real_functions:
        return _softmax_quantised(call, axis)
    scale, limits = np.float32(x.scale), integer_range(out)
    return lambda steps: np.clip(np.rint(real(steps * scale) / np.float32(out.scale)) + out.zero_point, *limits)


def _below_maximum(x: Array, axis: int, factor: np.float32) -> Array:
    """The differences to the largest value along an axis, times a factor."""
    scaled: Array = x - np.maximum.reduce(x, axis=axis, keepdims=True)
    if factor != 1:
        scaled *= factor
    return scaled


def _softmax_real(axis: int, beta: float) -> Function:
    factor = np.float32(beta)
    table = interpolated(np.exp, -_TABLE_END, 0) if current().tables else None

    def compute(x: Array) -> Array:
        exponents = _below_maximum(x, axis, factor)
        exponents = np.exp(exponents, out=exponents) if table is None else table(exponents)
        exponents /= np.add.reduce(exponents, axis=axis, keepdims=True)
        return exponents

    return compute


_FEW_ROWS = 8
"""Up to so many rows, Python's integers are faster than arrays of a few elements."""


def _softmax_quantised(call: Call, axis: int) -> Function:
    """N46: exponentials come from tables of all differences to the maximum, as do the results of a row."""
    exponentials, counted, terms = softmax_tables(call)
    low, high = integer_range(call.out)
    dtype = call.out.dtype

    def results(reciprocal: Any, leading: Any) -> Array:
        """The result of each difference in rows whose sums have these reciprocals and leading zeros."""
        scaled = rdbp(srdhm(reciprocal, exponentials), 35 - leading)
        return np.where(counted, np.clip(scaled + low, low, high), low).astype(dtype)

    def row(index: Array) -> Array:
        total = int(terms[index].sum())
        if total >> 32:
            # So many terms that Android's 32-bit sum overflows; all_rows gives the shares, which are 0.
            return all_rows(index)
        leading = 32 - total.bit_length()
        table = results(one_over_one_plus_x((total << leading) - (1 << 31)), leading)
        return np.frombuffer(bytearray(index).translate(table.tobytes()), dtype)

    def all_rows(index: Array) -> Array:
        totals = terms[index].sum(axis=-1, keepdims=True)
        leading = clz32(totals)
        reciprocals = one_over_one_plus_x((totals << leading) - (1 << 31))
        if totals.size * 256 < index.size:
            # Rows longer than the table: the result of each difference is computed once for each row.
            index_in_tables = index + np.arange(totals.size).reshape(totals.shape) * 256
            return results(reciprocals.reshape(-1, 1), leading.reshape(-1, 1)).take(index_in_tables)
        scaled = rdbp(srdhm(reciprocals, exponentials[index]), 35 - leading)
        return np.where(counted[index], np.clip(scaled + low, low, high), low).astype(dtype)

    def compute(x: Array) -> Array:
        rows = x.swapaxes(axis, -1)
        # Differences of -255 to 0 as indexes of 0 to 255: bytes wrap.
        index = rows.view(np.uint8) - np.maximum.reduce(rows, axis=-1, keepdims=True).view(np.uint8) - np.uint8(1)
        if index.size > _FEW_ROWS * index.shape[-1]:
            return all_rows(index).swapaxes(axis, -1)
        found = [row(each) for each in index.reshape(-1, index.shape[-1])]
        return (found[0] if len(found) == 1 else np.stack(found)).reshape(index.shape).swapaxes(axis, -1)

    return compute


def softmax_tables(call: Call) -> tuple[Array, Array, Array]:
    """For differences of -255 to 0: the exponential, whether it counts, and what it adds to the sum."""
    x = call["input"]
    real = min(float(call.scalar("beta")) * float(np.float32(x.scale)) * 2**26, 2.0**31 - 1)
    call.require(real > 1, "beta * input scale above 2**-26", real, "beta")
    multiplier, shift = quantize_multiplier(real)
    smallest = -math.floor(31 * 2**26 / 2**shift)
    differences = np.arange(-255, 1, dtype=np.int64)
    inside = np.maximum(differences, smallest)
    exponentials = exp_on_negative(srdhm(inside << shift, multiplier), 5)
    counted = differences >= smallest
    return exponentials, counted, np.where(counted, rdbp(exponentials, 12), 0)


@operation(
    OperationCode.LOG_SOFTMAX,
    since=3,
    summary="(x - max) * beta - log(sum of exp((x - max) * beta)), along an axis.",
    types=[types(3, T=T.TENSOR_FLOAT32, S=T.FLOAT32), types(3, T=T.TENSOR_FLOAT16, S=T.FLOAT16)],
    inputs=[
        Input("input", "T", "any values", rank=at_least(1)),
        Input("beta", "S", "scale of the exponent"),
        Input("axis", T.INT32, "axis of the sums, counted from the end if negative"),
    ],
    outputs=[Output("output", "T", "logarithms of shares of 1")],
    shape=lambda call: call["input"].dims if call.axis("axis", call["input"].rank) >= 0 else (),
)
@prepared("input")
def log_softmax(call: Call) -> Function:
    """N47."""
    axis, factor = call.axis("axis", call["input"].rank), np.float32(call.scalar("beta"))

    def compute(x: Array) -> Array:
        scaled = _below_maximum(x, axis, factor)
        scaled -= np.log(np.add.reduce(np.exp(scaled), axis=axis, keepdims=True))
        return scaled

    return compute

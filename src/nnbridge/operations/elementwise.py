"""Element-wise arithmetic with and without broadcast, comparisons, logic and selection."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnbridge.errors import Reason
from nnbridge.extensions import real_numbers
from nnbridge.model import Array
from nnbridge.operations.arithmetic import (
    FLOAT_RANGES,
    activation_range,
    by_table,
    every_value,
    fused_activation,
    integer_range,
    is_quant8,
    mbqm,
    product_multiplier,
    product_scale,
    quantize_multiplier,
    repeated,
    round_half_away,
    sum_multipliers,
    with_each_row,
)
from nnbridge.operations.call import Arg, Call
from nnbridge.operations.declaration import Input, Output, TypeSet, at_least, operation, tensors, types, up_to
from nnbridge.operations.kernels import Function, InPlace, prepared
from nnbridge.operations.shapes import broadcast, same_as_input
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode

Dims = tuple[int, ...]
Combine = Callable[[Array, Array], Array]
"""Of two arrays, broadcast against each other."""

PAIRS = 1 << 16
"""The number of pairs of 8-bit values."""

_ACTIVATION = Input("activation", T.INT32, "fused activation: 0 none, 1 RELU, 2 RELU1, 3 RELU6")
_FLOATS = tensors(FLOAT32=3, FLOAT16=3)


def _pair(rank: Any) -> tuple[Input, Input]:
    return (
        Input("input1", "T", "first operand", rank=rank),
        Input("input2", "T", "second operand, broadcast against the first", rank=rank),
    )


def _broadcast_shape(call: Call) -> tuple[int, ...]:
    return broadcast(call, call["input1"].dims, call["input2"].dims)


# -- arithmetic with a fused activation ------------------------------------------------------------------------------


def _by_pairs(a: Arg, b: Arg, out: Arg, function: Combine, limits: tuple[int, int]) -> Combine:
    """A function of two 8-bit values, with clamps. From as many elements on as there are pairs, all pairs are worked out once."""
    if math.prod(out.dims) < PAIRS:
        return lambda x, y: np.clip(function(x, y), *limits)
    every = np.arange(256, dtype=np.uint8)
    results = function(every.view(a.dtype)[:, None], every.view(b.dtype))
    pairs = np.clip(results, *limits).astype(out.dtype).ravel()

    def look_up(x: Array, y: Array) -> Array:
        index = x.view(np.uint8).astype(np.uint16)
        index <<= 8
        # No index is outside; wrap is the fastest mode.
        return pairs.take(index | y.view(np.uint8), mode="wrap")

    return look_up


def _add_quantised(call: Call, sign: int) -> Combine:
    """N40: both operands brought to a common scale with 20 extra bits, added, rescaled to the output."""
    a, b, out = call["input1"], call["input2"], call.out
    of_first, of_second, of_sum = sum_multipliers(a.scale, b.scale, out.scale)
    _require_share(call, "2 * max(input scales) / (2**20 * output scale)", of_sum)
    first, second = _at_common_scale(a, of_first), _at_common_scale(b, of_second)
    second *= sign
    multiplier, shift = quantize_multiplier(of_sum)

    def add(x: Array, y: Array) -> Array:
        raw = first.take(x.view(np.uint8), mode="wrap") + second.take(y.view(np.uint8), mode="wrap")
        return mbqm(raw, multiplier, shift) + out.zero_point

    return add


def _require_share(call: Call, formula: str, multiplier: float) -> None:
    """Android refuses multipliers of 1 and more, and those that are 0 in its arithmetic."""
    call.require(multiplier < 1, f"{formula} below 1", multiplier, "output")
    call.require(multiplier > 0, f"{formula} above 0", multiplier, "output")


def _at_common_scale(arg: Arg, multiplier: float) -> Array:
    """The first rescaling of all 256 values, by the byte that holds them."""
    values = np.arange(256, dtype=np.uint8).view(arg.dtype).astype(np.int64) - arg.zero_point
    return mbqm(values * (1 << 20), *quantize_multiplier(multiplier))


def _multiply_quantised(call: Call) -> Combine:
    """N41."""
    a, b, out = call["input1"], call["input2"], call.out
    real = product_multiplier(a.scale, b.scale, out.scale)
    _require_share(call, "input1 scale * input2 scale / output scale", real)
    multiplier, shift = quantize_multiplier(real)

    def multiply(x: Array, y: Array) -> Array:
        product = (x.astype(np.int32) - a.zero_point) * (y.astype(np.int32) - b.zero_point)
        return mbqm(product, multiplier, shift) + out.zero_point

    return multiply


def _divide_integers(a: Array, b: Array) -> Array:
    """N42: towards minus infinity; 0 for a zero divisor."""
    return np.where(b == 0, 0, a // np.where(b == 0, 1, b))


def _check_product_scale(call: Call) -> Reason | None:
    """MUL: the output scale exceeds the product of the input scales, at every feature level."""
    a, b, out = call["input1"], call["input2"], call.out
    if not is_quant8(a.type) or np.float32(out.scale) > product_scale(a.scale, b.scale):
        return None
    rule = f"an output scale above {float(product_scale(a.scale, b.scale)):g}, the product of the input scales"
    return Reason(rule, f"{out.scale:g}", call.definition.name, "output")


_SHORT, _MANY = 256, 1 << 13
"""Rows below this length, of outputs from this many elements on, are faster several at a time."""


def _by_rows(function: np.ufunc, first: Dims, second: Dims, out: Dims) -> Callable[[Array, Array, Array], object]:
    """The function of two arrays, into a third one; where one of the two is a short row of the other, by several rows."""
    short, swapped = (second, False) if first == out else (first, True)
    if out not in (first, second) or not 1 < math.prod(short) < _SHORT or math.prod(out) < _MANY:
        return function
    row = short[next(axis for axis, d in enumerate(short) if d != 1) :]
    if out[-len(row) :] != row:
        return function

    def combine(x: Array, y: Array, result: Array) -> None:
        matrix, one = (y, x) if swapped else (x, y)
        with_each_row(
            function, matrix.reshape(-1, one.size), repeated(one, 2 * _SHORT), result.reshape(-1, one.size), first=swapped
        )

    return combine


def _arithmetic(
    code: OperationCode,
    summary: str,
    levels: dict[T, int],
    plain: np.ufunc,
    quantised: Callable[[Call], Combine] | None,
    integers: Combine | None = None,
    **options: Any,
) -> None:
    @operation(
        code,
        since=min(levels.values()),
        summary=summary,
        types=[types(level, T=kind) for kind, level in levels.items()],
        inputs=[*_pair(up_to(4, build=True)), _ACTIVATION],
        outputs=[Output("output", "T", "result; its scale and zero point are its own")],
        shape=_broadcast_shape,
        zero_sized=True,
        **options,
    )
    @prepared("input1", "input2")
    def kernel(call: Call) -> Combine | InPlace:
        activation, out = fused_activation(call), call.out
        if is_quant8(out.type):
            call.require(quantised is not None, "a type other than 8-bit", out.type.__str__(), "input1")
            assert quantised is not None
            limits = activation_range(out, activation)
            return _by_pairs(call["input1"], call["input2"], out, quantised(call), limits)
        if out.type == T.TENSOR_INT32:
            call.require(activation == 0, "no activation for TENSOR_INT32", activation, "activation")
            return integers or plain

        bounds, function = FLOAT_RANGES[activation], _by_rows(plain, call["input1"].dims, call["input2"].dims, out.dims)

        def combine(buffers: Sequence[Array], x: Array, y: Array) -> None:
            [result] = buffers
            function(x, y, result)
            result.clip(*bounds, result)

        return InPlace(combine)


_F32, _F16, _U8, _I8, _I32 = (
    T.TENSOR_FLOAT32,
    T.TENSOR_FLOAT16,
    T.TENSOR_QUANT8_ASYMM,
    T.TENSOR_QUANT8_ASYMM_SIGNED,
    T.TENSOR_INT32,
)

_arithmetic(
    OperationCode.ADD,
    "Element-wise sum with broadcast.",
    {_F32: 1, _F16: 3, _U8: 1, _I8: 4, _I32: 4},
    np.add,
    lambda call: _add_quantised(call, 1),
)
_arithmetic(
    OperationCode.SUB,
    "Element-wise difference with broadcast.",
    {_F32: 2, _F16: 3, _U8: 3, _I8: 4, _I32: 4},
    np.subtract,
    lambda call: _add_quantised(call, -1),
)
_arithmetic(
    OperationCode.MUL,
    "Element-wise product with broadcast.",
    {_F32: 1, _F16: 3, _U8: 1, _I8: 4, _I32: 4},
    np.multiply,
    _multiply_quantised,
    build_checks=(_check_product_scale,),
)
# Android's validator lets TENSOR_QUANT8_ASYMM_SIGNED through, though nothing computes it.
_arithmetic(
    OperationCode.DIV,
    "Element-wise quotient with broadcast; INT32 rounds towards minus infinity.",
    {_F32: 2, _F16: 3, _I8: 4, _I32: 4},
    np.divide,
    None,
    _divide_integers,
)


# -- functions of one operand ----------------------------------------------------------------------------------------


def _unary(
    code: OperationCode,
    summary: str,
    function: Function,
    extra: Sequence[TypeSet] = (),
    quantised: Callable[[Call], Array] | None = None,
) -> None:
    @operation(
        code,
        since=3,
        summary=summary,
        types=[*_FLOATS, *extra],
        inputs=[Input("input", "T", "any values", rank=at_least(1))],
        outputs=[Output("output", "T", "result, of the input's shape")],
        shape=same_as_input,
    )
    @prepared("input")
    def kernel(call: Call) -> Function:
        if quantised is not None and is_quant8(call.out.type):
            return by_table(call["input"], call.out, quantised(call))
        return function


def _rsqrt_quantised(call: Call) -> Array:
    """N54: of the real value; the result of zero and negative values is the highest."""
    x, out = call["input"], call.out
    reals = every_value(x).astype(np.float32) * np.float32(x.scale)
    inverse = 1 / np.sqrt(np.where(reals > 0, reals, np.float32(1)))
    scaled = out.zero_point + round_half_away(inverse / np.float32(out.scale))
    return np.where(reals > 0, np.clip(scaled, *integer_range(out)), integer_range(out)[1])


_unary(OperationCode.ABS, "Element-wise magnitude.", np.abs, tensors(INT32=4))
_unary(OperationCode.NEG, "Element-wise negation.", np.negative, tensors(INT32=3))
_unary(OperationCode.EXP, "Element-wise e to the power of x.", np.exp)
_unary(OperationCode.LOG, "Element-wise natural logarithm.", np.log)
_unary(OperationCode.SIN, "Element-wise sine of radians.", np.sin)
_unary(OperationCode.SQRT, "Element-wise square root.", np.sqrt)
_unary(
    OperationCode.RSQRT,
    "Element-wise reciprocal of the square root.",
    lambda x: 1 / np.sqrt(x),
    tensors(QUANT8_ASYMM=7, QUANT8_ASYMM_SIGNED=7),
    _rsqrt_quantised,
)


@operation(
    OperationCode.FLOOR,
    since=1,
    summary="Element-wise floor.",
    types=tensors(FLOAT32=1, FLOAT16=3),
    inputs=[Input("input", "T", "any values", rank=up_to(4, build=True))],
    outputs=[Output("output", "T", "largest integers not above the input")],
    shape=same_as_input,
)
@prepared("input")
def floor(call: Call) -> Function:
    """Floor."""
    return np.floor


# -- functions of two operands without activation --------------------------------------------------------------------


@operation(
    OperationCode.POW,
    since=3,
    summary="Element-wise power with broadcast.",
    types=_FLOATS,
    inputs=[
        Input("base", "T", "base", rank=at_least(1)),
        Input("exponent", "T", "exponent, broadcast against the base", rank=at_least(1)),
    ],
    outputs=[Output("output", "T", "base to the power of the exponent")],
    shape=lambda call: broadcast(call, call["base"].dims, call["exponent"].dims),
    handled="executor",
)
@prepared("base", "exponent")
def power(call: Call) -> Combine:
    """C's ``pow``."""
    return np.power


def _at_output_scale(arg: Arg, out: Arg) -> Function:
    """N11: 8-bit values requantised where their parameters differ; equal ones come out as they are anyway."""
    if not is_quant8(out.type) or (arg.scale, arg.zero_point) == (out.scale, out.zero_point):
        return lambda x: x
    real = every_value(arg).astype(np.float32) * np.float32(arg.scale)
    scaled = real.astype(np.float64) / float(np.float32(out.scale)) + out.zero_point
    return by_table(arg, out, round_half_away(np.clip(scaled, *integer_range(out))))


def _extreme(code: OperationCode, summary: str, choose: Combine) -> None:
    @operation(
        code,
        since=3,
        summary=summary,
        types=[*_FLOATS, types(3, T=_U8), types(4, T=_I8), types(3, T=_I32)],
        inputs=_pair(at_least(1)),
        outputs=[Output("output", "T", "result; 8-bit values are rescaled to its parameters")],
        shape=_broadcast_shape,
        handled="executor",
        half="native",
    )
    @prepared("input1", "input2")
    def kernel(call: Call) -> Combine:
        first, second = (_at_output_scale(call[name], call.out) for name in ("input1", "input2"))
        return lambda x, y: choose(first(x), second(y))


def _keeping_the_first(choose: np.ufunc) -> Combine:
    """C++'s std::max and std::min: the first value unless the second is strictly better, also against NaN (N35)."""

    def chosen(a: Array, b: Array) -> Array:
        result: Array = choose(a, b)
        if b.dtype.kind == "f" and (unordered := np.isnan(b)).any():
            return np.where(unordered, a, result)
        return result

    return chosen


_extreme(OperationCode.MAXIMUM, "Element-wise maximum with broadcast.", _keeping_the_first(np.maximum))
_extreme(OperationCode.MINIMUM, "Element-wise minimum with broadcast.", _keeping_the_first(np.minimum))


def _comparison(code: OperationCode, sign: str, compare: Combine) -> None:
    @operation(
        code,
        since=3,
        summary=f"Element-wise x {sign} y with broadcast.",
        types=[types(3, T=T.TENSOR_BOOL8), *_FLOATS, types(3, T=_I32), types(3, T=_U8), types(4, T=_I8)],
        inputs=_pair(at_least(1)),
        outputs=[Output("output", T.TENSOR_BOOL8, "1 where it holds, else 0")],
        shape=_broadcast_shape,
        half="native",
    )
    @prepared("input1", "input2")
    def kernel(call: Call) -> Combine:
        a, b = call["input1"], call["input2"]
        if not is_quant8(a.type) or (a.scale, a.zero_point) == (b.scale, b.zero_point):
            return compare
        # 8-bit operands are compared as real numbers (N51), whose order is that of the raw ones where parameters are the same.
        first, second = (real_numbers(arg) for arg in (a, b))
        return lambda x, y: compare(first(x), second(y))


_comparison(OperationCode.EQUAL, "=", np.equal)
_comparison(OperationCode.NOT_EQUAL, "≠", np.not_equal)
_comparison(OperationCode.LESS, "<", np.less)
_comparison(OperationCode.LESS_EQUAL, "≤", np.less_equal)
_comparison(OperationCode.GREATER, ">", np.greater)
_comparison(OperationCode.GREATER_EQUAL, "≥", np.greater_equal)


def _logical(code: OperationCode, word: str, combine: Combine) -> None:
    @operation(
        code,
        since=3,
        summary=f"Element-wise logical {word} with broadcast.",
        types=tensors(BOOL8=3),
        inputs=_pair(at_least(1)),
        outputs=[Output("output", "T", "0 or 1")],
        shape=_broadcast_shape,
    )
    @prepared("input1", "input2")
    def kernel(call: Call) -> Combine:
        return combine


_logical(OperationCode.LOGICAL_AND, "and", np.logical_and)
_logical(OperationCode.LOGICAL_OR, "or", np.logical_or)


@operation(
    OperationCode.LOGICAL_NOT,
    since=3,
    summary="Element-wise logical not.",
    types=tensors(BOOL8=3),
    inputs=[Input("input", "T", "any non-zero byte is true", rank=at_least(1))],
    outputs=[Output("output", "T", "0 or 1")],
    shape=same_as_input,
)
@prepared("input")
def logical_not(call: Call) -> Function:
    """Not."""
    return np.logical_not


# -- selection -------------------------------------------------------------------------------------------------------


def _select_shape(call: Call) -> tuple[int, ...]:
    condition, a, b = call["condition"], call["input1"], call["input2"]
    rule = "condition and inputs of the same shape"
    call.require(condition.dims == a.dims == b.dims, rule, f"{condition.dims}, {a.dims}, {b.dims}")
    return a.dims


@operation(
    OperationCode.SELECT,
    since=3,
    summary="Element-wise choice between two tensors.",
    types=[*_FLOATS, types(3, T=_U8), types(4, T=_I8), types(3, T=_I32)],
    inputs=[
        Input("condition", T.TENSOR_BOOL8, "true selects the first input", rank=at_least(1)),
        Input("input1", "T", "selected where the condition is true", rank=at_least(1)),
        Input("input2", "T", "selected elsewhere", rank=at_least(1)),
    ],
    outputs=[Output("output", "T", "result; 8-bit values are rescaled to its parameters")],
    shape=_select_shape,
    half="native",
)
@prepared("condition", "input1", "input2")
def select(call: Call) -> Callable[[Array, Array, Array], Array]:
    """Choice by the condition; no broadcast."""
    first, second = (_at_output_scale(call[name], call.out) for name in ("input1", "input2"))
    return lambda condition, x, y: _chosen(condition, first(x), second(y))


def _chosen(condition: Array, x: Array, y: Array) -> Array:
    """``np.where`` by bits: the time does not depend on how the condition changes from one element to the next."""
    bits = np.dtype(f"i{x.itemsize}")
    # As bytes: NumPy compares booleans with a number as 64-bit integers.
    selected = np.not_equal(condition.view(np.uint8), np.uint8(0))
    mask = np.negative(selected.view(np.int8)).astype(bits, copy=False)
    result = x.view(bits) ^ y.view(bits)
    result &= mask
    result ^= y.view(bits)
    return result.view(x.dtype)


@operation(
    OperationCode.PRELU,
    since=3,
    summary="x where x is at least 0, alpha * x elsewhere, with broadcast.",
    types=[*_FLOATS, types(3, T=_U8), types(4, T=_I8)],
    inputs=[
        Input("input", "T", "any values", rank=at_least(1)),
        Input("alpha", "T", "slope for negative values, broadcast against the input", rank=at_least(1)),
    ],
    outputs=[Output("output", "T", "result; its scale and zero point are its own")],
    shape=lambda call: broadcast(call, call["input"].dims, call["alpha"].dims),
)
@prepared("input", "alpha")
def prelu(call: Call) -> Combine:
    """N50 for 8-bit values."""
    x, alpha, out = call["input"], call["alpha"], call.out
    if not is_quant8(out.type):
        return lambda values, slopes: np.where(values >= 0, values, values * slopes)
    positive = quantize_multiplier(float(np.float32(np.float32(x.scale) / np.float32(out.scale))))
    negative = quantize_multiplier(product_multiplier(x.scale, alpha.scale, out.scale))

    def scaled(values: Array, slopes: Array) -> Array:
        value = values.astype(np.int32) - x.zero_point
        product = value * (slopes.astype(np.int32) - alpha.zero_point)
        return np.where(value >= 0, mbqm(value, *positive), mbqm(product, *negative)) + out.zero_point

    return _by_pairs(x, alpha, out, scaled, integer_range(out))

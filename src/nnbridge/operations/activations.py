"""Activation functions: the RELU family, LOGISTIC, TANH, ELU, HARD_SWISH, SOFTMAX, LOG_SOFTMAX."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nnbridge.operations.arithmetic import (
    activate,
    activation_range,
    clz32,
    integer_range,
    is_quant8,
    mbqm,
    quantize_multiplier,
    rdbp,
    srdhm,
    srdhm16,
)
from nnbridge.operations.declaration import (
    Input,
    Output,
    at_least,
    fixed,
    like,
    operation,
    types,
    up_to,
)
from nnbridge.operations.fixedpoint import exp_on_negative, logistic, one_over_one_plus_x, tanh
from nnbridge.operations.shapes import same_as_input
from nnbridge.types import FuseCode, OperationCode
from nnbridge.types import OperandCode as T

if TYPE_CHECKING:
    from nnbridge.model import Array
    from nnbridge.operations.call import Arg, Call

Values = npt.NDArray[Any]

_FIRST_TYPES = [
    types(1, T=T.TENSOR_FLOAT32),
    types(3, T=T.TENSOR_FLOAT16),
    types(1, T=T.TENSOR_QUANT8_ASYMM),
    types(4, T=T.TENSOR_QUANT8_ASYMM_SIGNED),
]
_INPUT = Input("input", "T", "any values", rank=up_to(4, build=True))


def _by_table(call: Call, make: Callable[[], Values]) -> Array:
    """An 8-bit function as a table of all its 256 inputs, looked up by the byte that holds the input."""
    x = call["input"].data

    def table() -> bytes:
        # The bytes of negative values lie behind those of positive ones.
        return np.roll(make(), integer_range(call["input"])[0]).astype(call.out.dtype).tobytes()

    # translate looks bytes up in less time than np.take does.
    return np.frombuffer(bytearray(x).translate(call.once("table", table)), call.out.dtype).reshape(x.shape)


def _every_input(x: Arg) -> Values:
    """All values of an 8-bit input, less the zero point."""
    low, high = integer_range(x)
    return np.arange(low, high + 1, dtype=np.int64) - x.zero_point


# -- RELU, RELU1, RELU6 ----------------------------------------------------------------------------------------------


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
    def kernel(call: Call) -> Array:
        x = call["input"]
        if is_quant8(x.type):
            # The range is that of the input's parameters, which the output shares (N49).
            return np.clip(x.data, *activation_range(x, activation))
        return activate(x.data, activation)


_relu(OperationCode.RELU, "max(0, x).", FuseCode.RELU)
_relu(OperationCode.RELU1, "x clamped to [-1, 1].", FuseCode.RELU1)
_relu(OperationCode.RELU6, "x clamped to [0, 6].", FuseCode.RELU6)


# -- LOGISTIC, TANH --------------------------------------------------------------------------------------------------


def _saturating_function(call: Call, function: Callable[[Values, int], Values], bits: int) -> Values:
    """N44, N45: a function with 4 integer bits on all inputs; beyond the radius it has its limits. Results before offset."""
    x = call["input"]
    real = float(np.float32(x.scale)) * 2**27
    call.require(real > 1, "an input scale above 2**-27", x.scale, "input")
    multiplier, shift = quantize_multiplier(real)
    radius = math.floor(15 * 2**27 / 2**shift)
    values = _every_input(x)
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
    plain: Callable[[Values], Values],
    function: Callable[[Values, int], Values],
    bits: int,
) -> None:
    @operation(
        code,
        since=1,
        summary=summary,
        types=[*_FIRST_TYPES[:2], types(level8, T=T.TENSOR_QUANT8_ASYMM), _FIRST_TYPES[3]],
        inputs=[_INPUT],
        outputs=[Output("output", "T", "result; 8-bit parameters are laid down", fixed(parameters))],
        shape=same_as_input,
        zero_sized=True,
    )
    def kernel(call: Call) -> Array:
        if not is_quant8(call.out.type):
            return plain(call["input"].data)

        def table() -> Values:
            return np.clip(_saturating_function(call, function, bits) + call.out.zero_point, *integer_range(call.out))

        return _by_table(call, table)


def _sigmoid(x: Values) -> Values:
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


# -- ELU, HARD_SWISH -------------------------------------------------------------------------------------------------


@operation(
    OperationCode.ELU,
    since=4,
    summary="max(0, x) + min(0, alpha * (exp(x) - 1)).",
    types=[types(4, T=T.TENSOR_FLOAT32, S=T.FLOAT32), types(4, T=T.TENSOR_FLOAT16, S=T.FLOAT16)],
    inputs=[Input("input", "T", "any values", rank=at_least(1)), Input("alpha", "S", "slope at minus infinity")],
    outputs=[Output("output", "T", "result")],
    shape=same_as_input,
)
def elu(call: Call) -> Array:
    """N56."""
    x, alpha = call["input"].data, np.float32(call.scalar("alpha"))
    return np.maximum(0, x) + np.minimum(0, alpha * (np.exp(x) - 1))


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
def hard_swish(call: Call) -> Array:
    """N48 for 8-bit values."""
    x = call["input"]
    if not is_quant8(x.type):
        gate = x.data + np.float32(3)
        np.clip(gate, 0, 6, out=gate)
        gate *= x.data
        gate /= np.float32(6)
        return gate
    return _by_table(call, lambda: _hard_swish_table(call))


def _hard_swish_table(call: Call) -> Values:
    x, out = call["input"], call.out
    fine = np.float32(x.scale) / np.float32(128)
    real = float(fine) / float(np.float32(out.scale))
    call.require(real < 1, "input scale / 128 / output scale below 1", real, "output")
    out_multiplier, out_exponent = quantize_multiplier(float(np.float32(fine / np.float32(out.scale))))
    relu_multiplier, relu_exponent = quantize_multiplier(float(np.float32(fine / np.float32(3 / 32768))))

    def to16(multiplier: int) -> int:
        return 32767 if multiplier >= 2**31 - 1 - 2**15 else (multiplier + 2**15) >> 16

    def sat16(raw: Values) -> Values:
        return np.clip(raw, -32768, 32767)

    high_resolution = (_every_input(x) * 128).astype(np.int32)
    product = srdhm16(high_resolution, to16(out_multiplier))
    gate = high_resolution
    if relu_exponent > 0:
        gate = sat16(gate << (relu_exponent - 1))
    gate = srdhm16(gate, to16(relu_multiplier))
    if relu_exponent > 0:
        gate = sat16(gate << 1)
    elif relu_exponent < 0:
        gate = rdbp(gate, -relu_exponent)
    gate = (gate + 32768) >> 1
    scaled = (gate.astype(np.int64) * product / 32768).astype(np.int64)
    result = rdbp(scaled, -out_exponent) if out_exponent <= 0 else scaled << out_exponent
    return np.clip(result + out.zero_point, *integer_range(out))


# -- SOFTMAX, LOG_SOFTMAX --------------------------------------------------------------------------------------------


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
            "shares of 1; 8-bit parameters are laid down",
            fixed({T.TENSOR_QUANT8_ASYMM: (1 / 256, 0), T.TENSOR_QUANT8_ASYMM_SIGNED: (1 / 256, -128)}),
        )
    ],
    shape=_softmax_shape,
    level_rules=(_short_softmax_level,),
    zero_sized=True,
)
def softmax(call: Call) -> Array:
    """N46, N47."""
    x, axis = call["input"], call.axis("axis", call["input"].rank)
    if is_quant8(x.type):
        return np.moveaxis(_softmax_quantised(call, np.moveaxis(x.data, axis, -1)), -1, axis)
    exponents = x.data - x.data.max(axis=axis, keepdims=True)
    exponents *= np.float32(call.scalar("beta"))
    np.exp(exponents, out=exponents)
    exponents /= exponents.sum(axis=axis, keepdims=True)
    return exponents


def _softmax_quantised(call: Call, data: Values) -> Values:
    """N46 along the last axis: exponentials come from tables of all differences to the maximum."""
    exponentials, counted, terms = call.once("tables", lambda: _softmax_tables(call))
    index = data - (data.max(axis=-1, keepdims=True).astype(np.int64) - 255)
    total = terms[index].sum(axis=-1, keepdims=True)
    leading = clz32(total)
    shifted = (total << leading) - (1 << 31)
    reciprocal = one_over_one_plus_x(shifted)
    low, high = integer_range(call.out)
    shift = 12 - leading + 23
    if total.size * 256 < index.size:
        # Rows longer than the table: what each difference gives is worked out once for each row.
        index = index + np.arange(total.size).reshape(total.shape) * 256
        scaled = rdbp(srdhm(reciprocal.reshape(-1, 1), exponentials), shift.reshape(-1, 1))
        return np.where(counted, np.clip(scaled + low, low, high), low).astype(call.out.dtype).take(index)
    scaled = rdbp(srdhm(reciprocal, exponentials[index]), shift)
    return np.where(counted[index], np.clip(scaled + low, low, high), low)


def _softmax_tables(call: Call) -> tuple[Values, Values, Values]:
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
def log_softmax(call: Call) -> Array:
    """N47."""
    x, axis = call["input"].data, call.axis("axis", call["input"].rank)
    scaled = (x - x.max(axis=axis, keepdims=True)) * np.float32(call.scalar("beta"))
    return scaled - np.log(np.exp(scaled).sum(axis=axis, keepdims=True))

"""Activations, softmax among them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnbridge.converters.declaration import Lowering, Option
from nnbridge.converters.mapping import MappingKind
from nnbridge.converters.rules import since
from nnbridge.errors import Stage
from nnbridge.operations.arithmetic import mbqm, product_multiplier, quantize_multiplier, saturate, wrap32
from nnbridge.types import FLOATS, QUANT8, FuseCode, OperationCode
from nnbridge_tflite import dims
from nnbridge_tflite.declaration import TfliteOperator, inputs
from nnbridge_tflite.host import ordered
from nnbridge_tflite.host.numbers import (
    Arg,
    Array,
    Options,
    Tensors,
    by_table,
    centred_integers,
    data_of,
    half_away,
    quantised,
    quotient,
    real,
    stored,
)
from nnbridge_tflite.host.ordered import total
from nnbridge_tflite.host.sixteen_bits import interpolated, looked_up, table_argument
from nnbridge_tflite.loads import (
    OUT,
    SAME,
    PreparedOperator,
    broadcast,
    no_zero_point,
    parameters,
    ranked,
    requires,
    zero_centred,
)
from nnbridge_tflite.lowerer import FLOAT32, Lowerer, Value, through_float
from nnbridge_tflite.operators.elementwise import Function, unary
from nnbridge_tflite.rules import FLOAT, FLOAT_QUANT8, RANK_4, DelegateRule, Past, from_level, input_rank, output_in

_HARD_SWISH_SCALES = requires(
    "an input scale below 128 times the output's",
    lambda node: node.type(OUT) not in ("UINT8", "INT8") or not _scale(node, OUT) or _scale(node, 0) / 128 < _scale(node, OUT),
    lambda node: f"{_scale(node, 0):g} for {_scale(node, OUT):g}",
)
_ALPHA_FITS = requires(
    "an alpha that broadcasts to the input",
    lambda node: np.broadcast_shapes(node.shape(0), node.shape(1)) == node.shape(0),
)


def _scale(node: PreparedOperator, number: int) -> float:
    tensor = node.at(number)
    return 0.0 if tensor is None else parameters(tensor)[0]


_RELU = DelegateRule(version=2, types=FLOAT_QUANT8)


def _clamp(name: str, low: float, high: float, code: OperationCode | None = None, **facts: Any) -> TfliteOperator:
    """Numbers clamped to ``low`` and ``high``; NNAPI's operations cannot change scale or zero point."""

    def integers(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
        data, out = inputs[0], outputs[0]
        steps = mbqm(centred_integers(data), *quantize_multiplier(quotient(data, out))) + out.zero_point
        ends = half_away(np.array([low, high], np.float32) / np.float32(out.scale)) + out.zero_point
        return [saturate(np.minimum(np.maximum(steps, ends[0]), ends[1]), out.dtype)]

    summary = f"min(max(x, {low:g}), {high:g})" if high < math.inf else f"max(x, {low:g})"
    return unary(
        name, summary, lambda a: np.clip(a, low, high), code, integers=integers, loads=(SAME, zero_centred(0, OUT)), **facts
    )


RELU = _clamp("RELU", 0, math.inf, OperationCode.RELU, delegate=_RELU, versions=(1, 3))
RELU6 = _clamp("RELU6", 0, 6, OperationCode.RELU6, delegate=_RELU, versions=(1, 3))
RELU_N1_TO_1 = _clamp("RELU_N1_TO_1", -1, 1, OperationCode.RELU1, delegate=_RELU)
RELU_0_TO_1 = _clamp("RELU_0_TO_1", 0, 1)
LOGISTIC = unary(
    "LOGISTIC",
    "1 / (1 + e^-x)",
    lambda a: 1 / (1 + np.exp(-a)),
    OperationCode.LOGISTIC,
    tabled=True,
    delegate=_RELU,
    versions=(1, 3),
    written={"UINT8": (1 / 256, None), "INT8": (1 / 256, None), "INT16": (1 / 32768, 0)},
    loads=(SAME, zero_centred(0, OUT)),
)
TANH = unary(
    "TANH",
    "tanh x",
    np.tanh,
    OperationCode.TANH,
    tabled=True,
    delegate=DelegateRule(
        version=2, types=FLOAT_QUANT8, conditions=(from_level(3, "8-bit tensors", lambda node: node.type(0) == "FLOAT32"),)
    ),
    versions=(1, 3),
    written={"INT16": (1 / 32768, 0)},
    written_within=7e-4,
    loads=(SAME, zero_centred(0, OUT)),
)
HARD_SWISH = unary(
    "HARD_SWISH",
    "x · min(max(x + 3, 0), 6) / 6",
    lambda a: a * np.clip(a + 3, 0, 6) / 6,
    OperationCode.HARD_SWISH,
    delegate=DelegateRule(version=99, types=FLOAT_QUANT8),
    loads=(SAME, _HARD_SWISH_SCALES),
)
ELU = unary(
    "ELU",
    "x where it is above 0, else e^x - 1.",
    lambda a: np.where(a > 0, a, np.expm1(np.minimum(a, 0))),
    tabled=True,
    delegate=DelegateRule(version=1, level=4, types=FLOAT, past=(Past(until="2.4", types=()),)),
    loads=(SAME,),
)
GELU = TfliteOperator(
    "GELU",
    "x/2 · (1 + erf(x / √2)), or its approximation by tanh.",
    options=(Option("approximate", False, "by tanh"),),
    tabled=True,
    versions=(1, 3),
    loads=(SAME,),
    dims=dims.like(),
)
LEAKY_RELU = TfliteOperator(
    "LEAKY_RELU",
    "max(x, 0) + alpha · min(x, 0)",
    options=(Option("alpha", 0.0, "slope below 0"),),
    delegate=DelegateRule(version=1, level=3, types=FLOAT_QUANT8, since="2.5"),
    versions=(1, 2),
    loads=(SAME, zero_centred(0, OUT)),
    dims=dims.like(),
)
PRELU = TfliteOperator(
    "PRELU",
    "max(x, 0) + alpha · min(x, 0) with an alpha for each channel.",
    inputs("input", "alpha"),
    delegate=DelegateRule(version=1, level=3, types=FLOAT_QUANT8, past=(Past(until="2.3", types=("FLOAT32", "UINT8")),)),
    lowerings=[Lowering(lambda to: to.finish(OperationCode.PRELU, to.input(0), to.input(1)))],
    loads=(broadcast(0, 1), _ALPHA_FITS),
    dims=dims.broadcast(),
    writes_type=0,
)
SOFTMAX = TfliteOperator(
    "SOFTMAX",
    "Exponentials over the last dimension, divided by their sum.",
    options=(Option("beta", 1.0, "factor of the numbers"),),
    delegate=DelegateRule(
        version=2,
        types=FLOAT_QUANT8,
        conditions=(RANK_4, since("2.5", output_in(*FLOAT_QUANT8)), input_rank("an input of rank 2 or 4", 2, 4, below=3)),
    ),
    rows=True,
    lowerings=[Lowering(lambda to: to.finish(OperationCode.SOFTMAX, to.input(0), _beta(to)))],
    versions=(1, 4),
    written={"INT8": (1 / 256, -128), "INT16": (1 / 32768, 0)},
    written_within=1e-3,
    loads=(
        ranked(0, 1, 0),
        no_zero_point("16-bit integers with a zero point of 0", ("INT16",), 0, OUT, beside=("INT16",)),
    ),
    dims=dims.like(),
)
LOG_SOFTMAX = TfliteOperator(
    "LOG_SOFTMAX",
    "The logarithm of softmax over the last dimension.",
    delegate=DelegateRule(version=1, level=3, types=FLOAT),
    lowerings=[
        Lowering(lambda to: to.finish(OperationCode.LOG_SOFTMAX, to.input(0), to.float_scalar(1.0, to.input(0)), to.scalar(-1)))
    ],
    versions=(1, 2),
    written={"UINT8": (16 / 256, 255), "INT8": (16 / 256, 127)},
    loads=(SAME,),
    dims=dims.like(),
)


ELU.lowering()(lambda to: to.finish(OperationCode.ELU, to.input(), to.float_scalar(1.0, to.input())))
through_float(ELU, LOG_SOFTMAX)


@HARD_SWISH.lowering()
def hard_swish_in_parts(to: Lowerer) -> None:
    """Below feature level 4, as the delegate does it: x/2 · relu1(x/3) + x/2, each part with parameters of its own."""
    data = to.input(0)
    to.require(to.draft.feature_level < 4, "a feature level below 4", to.draft.feature_level)
    to.require(data.type == FLOAT32 or not to.free, "floats (8-bit parts are rounded several times)", to.declared(0))
    low, high = (b * data.scale for b in (-data.zero_point, 255 - data.zero_point))
    ends = max(low / 3, -1.0), min(high / 3, 1.0)
    third = _times(to, 1 / 3, FuseCode.RELU1, _spread(*ends))
    half = _times(to, 0.5, FuseCode.NONE, (data.scale / 2, data.zero_point))
    most = _spread(0.0, max(ends[1] * high / 2, ends[0] * low / 2))
    product = to.emit(OperationCode.MUL, third, half, scale=most[0], zero_point=most[1])
    to.finish(OperationCode.ADD, product, half)


def _spread(low: float, high: float) -> tuple[float, int]:
    """Scale and zero point of uint8 from one number to another; none for floats, which span nothing."""
    scale = (high - low) / 255
    return (scale, min(max(int(-low / scale), 0), 255)) if scale > 0 else (0.0, 0)


def _times(to: Lowerer, factor: float, fused: FuseCode, parameters: tuple[float, int]) -> Value:
    """The input times a number, which 8-bit tensors have as 64 steps."""
    data = to.input(0)
    steps = 64
    if data.type == FLOAT32:
        return to.emit(OperationCode.MUL, data, to.fill(factor, data), to.scalar(fused))
    number = to.tensor(np.array([steps], np.uint8), data, scale=factor / steps, zero_point=0)
    return to.emit(OperationCode.MUL, data, number, to.scalar(fused), scale=parameters[0], zero_point=parameters[1])


@RELU_0_TO_1.lowering(wide=True)
def relu_0_to_1(to: Lowerer) -> None:
    """min(max(x, 0), 1)."""
    value = to.input(0)
    to.require(value.type in FLOATS, "floats", to.declared(0))
    to.finish(OperationCode.MINIMUM, to.emit(OperationCode.RELU, value), to.fill(1.0, value))


@GELU.lowering(wide=True)
def gelu(to: Lowerer) -> None:
    """The approximation by tanh: x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))."""
    value = to.dequantised(to.input(0))
    to.require(value.type in FLOATS, "floats or 8-bit integers", to.declared(0))
    to.require(to.option("approximate"), "the approximation by tanh (NNAPI has no error function)", "the exact form")

    def times(a: Value, b: Value) -> Value:
        return to.emit(OperationCode.MUL, a, b)

    def plus(a: Value, b: Value) -> Value:
        return to.emit(OperationCode.ADD, a, b)

    cube = times(times(value, value), value)
    inner = times(plus(value, times(cube, to.fill(0.044715, value))), to.fill(math.sqrt(2 / math.pi), value))
    gate = plus(to.emit(OperationCode.TANH, inner), to.fill(1.0, value))
    half = times(value, to.fill(0.5, value))
    if to.out.type in QUANT8:
        to.finish_quantised(times(half, gate))
        return
    to.finish(OperationCode.MUL, half, gate)


_SQUARE_ROOT_OF_2_BY_PI = np.float32(math.sqrt(2 / math.pi))
_OF_FLOATS: tuple[Function, Function] = np.tanh, np.vectorize(math.erfc, otypes=[np.float32])
_OF_TABLES: tuple[Function, Function] = ordered.TANH, ordered.ERFC
"""tanh and erfc: where LiteRT has Eigen's, and where it fills a table by the C library's."""


@GELU.host_kernel
def host_gelu(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """In float32, steps of 8-bit outputs included, whose table LiteRT computes so."""
    functions = _OF_TABLES if quantised(inputs[0]) else _OF_FLOATS
    return [by_table(_gelu(real(inputs[0]), options["approximate"], functions), outputs[0])]


@GELU.kernel_16_bit
def gelu_16_bit(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """From a table of 513 positions."""
    return [looked_up(lambda a: _gelu(a, options["approximate"], _OF_TABLES), inputs[0], outputs[0])]


def _gelu(a: Array, approximate: bool, functions: tuple[Function, Function]) -> Array:
    tanh, erfc = functions
    if approximate:
        cubic = a + a.dtype.type(0.044715) * a * a * a
        found: Array = a.dtype.type(0.5) * a * (1 + tanh(_SQUARE_ROOT_OF_2_BY_PI.astype(a.dtype) * cubic))
        return found
    exact: Array = a.dtype.type(0.5) * a * erfc(a * a.dtype.type(-math.sqrt(0.5))).astype(a.dtype)
    return exact


@PRELU.kernel_16_bit
def prelu_16_bit(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Rescaled by one multiplier above 0, by another below, where the product wraps in 32 bits."""
    data, alpha, out = *inputs, outputs[0]
    steps = centred_integers(data)
    above = mbqm(steps, *quantize_multiplier(quotient(data, out)))
    slope = float(np.float32(data.scale) * np.float32(alpha.scale) / np.float32(out.scale))
    below = mbqm(wrap32(steps * centred_integers(alpha)), *quantize_multiplier(slope))
    return [saturate(np.where(steps >= 0, above, below) + out.zero_point, out.dtype)]


@PRELU.host_kernel
def host_prelu(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    a, alpha = real(inputs[0]), real(inputs[1])
    return [stored(np.where(a >= 0, a, a * alpha), outputs[0])]


@LEAKY_RELU.lowering()
def leaky_relu(to: Lowerer) -> None:
    """PRELU with one alpha: as a float, or as the quantised number 1 with alpha for its scale."""
    value, alpha = to.input(0), float(to.option("alpha"))
    if value.type not in QUANT8:
        to.finish(OperationCode.PRELU, value, to.fill(alpha, value))
        return
    # It is the scale of an operand, which NNAPI does not add otherwise.
    to.require(alpha > 0, "an alpha above 0 for 8-bit tensors", alpha, stage=Stage.BUILDING)
    to.require(
        to.mapping == MappingKind.DELEGATE or _same_as_prelu(value, alpha, to.out),
        "an alpha that PRELU's multiplier, a different float from TFLite's, rounds equally for all numbers below 0",
        alpha,
    )
    one = Value(value.type, (1,), scale=alpha)
    dtype = "u1" if value.type == QUANT8[0] else "i1"
    to.finish(OperationCode.PRELU, value, to.tensor(np.ones(1, dtype), one))


def _slope(data: Value | Arg, alpha: float, out: Value | Arg) -> float:
    """TFLite's multiplier of numbers below 0: a quotient of float32."""
    return float(np.float32(data.scale) * np.float32(alpha) / np.float32(out.scale))


def _same_as_prelu(data: Value, alpha: float, out: Value) -> bool:
    steps = np.arange(-255, 0, dtype=np.int32)
    multipliers = _slope(data, alpha, out), product_multiplier(data.scale, alpha, out.scale)
    ours, theirs = (np.maximum(mbqm(steps, *quantize_multiplier(m)), -255) for m in multipliers)
    return np.array_equal(ours, theirs)


@LEAKY_RELU.host_kernel
def host_leaky_relu(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    a = real(inputs[0])
    return [stored(np.where(a >= 0, a, a * np.float32(options["alpha"])), outputs[0])]


@LEAKY_RELU.integer_kernel
def leaky_relu_integers(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Rescaled by one multiplier above 0 and by another below, which is applied without its sign."""
    data, out = inputs[0], outputs[0]
    steps = centred_integers(data)
    below = _slope(data, options["alpha"], out)
    above = mbqm(steps, *quantize_multiplier(quotient(data, out)))
    sloped = mbqm(steps, *quantize_multiplier(abs(below))) * (-1 if below < 0 else 1)
    return [saturate(np.where(steps >= 0, above, sloped) + out.zero_point, out.dtype)]


def _beta(to: Lowerer) -> Value:
    data = to.input()
    return to.float_scalar(to.option("beta"), data if data.type in FLOATS else Value(FLOAT32))


@SOFTMAX.lowering(wide=True)
def softmax_flattened(to: Lowerer) -> None:
    """Ranks that NNAPI does not support: all but the last dimension as one."""
    data = to.input(0)
    to.require(0 not in data.dims, "known dimensions", data.dims)
    flat = to.reshaped(data, (-1 if data.rank == 1 else math.prod(data.dims[:-1]), data.dims[-1]))
    soft = to.emit(OperationCode.SOFTMAX, flat, _beta(to), out=to.out.like(dims=flat.dims))
    to.reshaped(soft, data.dims, out=to.out)


@SOFTMAX.host_kernel
def host_softmax(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    exponentials = np.exp(_shifted(inputs) * np.float32(options["beta"]))
    return [stored(exponentials / exponentials.sum(-1, keepdims=True), outputs[0])]


@functools.cache
def _table_16_bit(function: Callable[[Array], Array], low: float, high: float) -> Array:
    """512 samples of a function and its last value times 2^15, less half the error of linear interpolation in between."""
    step = (high - low) / 512
    at = low + np.arange(513) * step
    samples = half_away(function(at) * 32768)
    middle = half_away((function(at[1:]) * 32768 + samples[:-1]) / 2) - half_away(function(at[:-1] + step / 2) * 32768)
    samples[:-1] -= half_away(middle / 2)
    return saturate(samples, np.int16).astype(np.int64)


def _looked_up(values: Array, table: Array) -> Array:
    """The table at 16-bit positions from -32768 to 32767, linear in between."""
    clipped = np.clip(values, -32768, 32767)
    index, rest = 256 + (clipped >> 7), clipped & 127
    return table[index] + (((table[index + 1] - table[index]) * rest + 64) >> 7)


def _reciprocal(x: Array) -> Array:
    return 1 / (1 + x)


def _softmax_of_bytes(data: Arg, out: Arg, beta: np.float32) -> Array:
    """From a table of 256 powers, summed in order, as LiteRT's optimised kernel; its reference kernel has fixed point."""
    powers = ordered.EXP(-np.float32(data.scale) * beta * np.arange(256, dtype=np.float32))
    numbers = data_of(data).astype(np.int64)
    found = powers[numbers.max(-1, keepdims=True) - numbers]
    steps = half_away(found * (np.float32(1) / (total(found) * np.float32(out.scale))))
    return saturate(steps + out.zero_point, out.dtype)


@SOFTMAX.kernel_16_bit
def softmax_16_bit(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """From tables of e^x between -10 and 0 and of 1 / (1 + x); 8-bit numbers by a table of their own."""
    if inputs[0].dtype.itemsize == 1:
        return [_softmax_of_bytes(inputs[0], outputs[0], np.float32(options["beta"]))]
    data = data_of(inputs[0]).astype(np.int64)
    factor = float(inputs[0].scale) * float(options["beta"]) / (10.0 / 65535.0)
    below = mbqm(data - data.max(-1, keepdims=True), *quantize_multiplier(factor))
    exponentials = _looked_up(below + 32767, _table_16_bit(np.exp, -10.0, 0.0))
    sums = exponentials.sum(-1, keepdims=True)
    zeros = 32 - np.frexp(sums)[1].astype(np.int64)
    shifted = ((sums << (zeros - 1)) + (1 << 13)) >> 14
    scale = _looked_up(shifted - (1 << 15) - (1 << 16), _table_16_bit(_reciprocal, 0.0, 1.0))
    right = 31 - zeros
    return [np.clip((exponentials * scale + (np.int64(1) << (right - 1))) >> right, 0, 32767).astype(np.int16)]


@LOG_SOFTMAX.host_kernel
def host_log_softmax(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    shifted = _shifted(inputs)
    return [stored(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)), outputs[0])]


def _shifted(inputs: Tensors) -> Array:
    a = real(inputs[0])
    return a - a.max(-1, keepdims=True)


@LOGISTIC.kernel_16_bit
def logistic_16_bit(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """From a table of 256 positions, linear in between."""
    argument = table_argument(inputs[0])
    result = interpolated(np.abs(argument), 9, 0x7FFF << 10)
    signed = np.where(argument >= 0, result + (1 << 9), (1 << 25) - result + (1 << 9) - 1)
    return [(signed >> 10).astype(np.int16)]


@TANH.kernel_16_bit
def tanh_16_bit(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """From the logistic function's table: tanh(x) = 2 logistic(2x) - 1."""
    argument = table_argument(inputs[0])
    result = interpolated(np.abs(argument), 8, 0xFFFF << 8)
    signed = np.where(argument >= 0, result - (1 << 23) + (1 << 7), (1 << 23) - result + (1 << 7) - 1)
    return [(signed >> 8).astype(np.int16)]

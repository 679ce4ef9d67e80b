"""Element-wise operators: arithmetic, comparisons, activations."""

from __future__ import annotations

import math

import numpy as np

from nnbridge.converters.draft import Value
from nnbridge.types import FuseCode, OperandCode, OperationCode
from nnbridge_tflite.lowering import BOOL8, FLOAT32, FLOATS, INT32, QUANT8, Lowerer, lowers, product

SIGNED = OperandCode.TENSOR_QUANT8_ASYMM_SIGNED

UNARY = {
    "ABS": OperationCode.ABS,
    "EXP": OperationCode.EXP,
    "FLOOR": OperationCode.FLOOR,
    "HARD_SWISH": OperationCode.HARD_SWISH,
    "LOG": OperationCode.LOG,
    "LOGICAL_NOT": OperationCode.LOGICAL_NOT,
    "LOGISTIC": OperationCode.LOGISTIC,
    "NEG": OperationCode.NEG,
    "RELU": OperationCode.RELU,
    "RELU6": OperationCode.RELU6,
    "RELU_N1_TO_1": OperationCode.RELU1,
    "RSQRT": OperationCode.RSQRT,
    "SIN": OperationCode.SIN,
    "SQRT": OperationCode.SQRT,
    "TANH": OperationCode.TANH,
}

BINARY = {
    "EQUAL": OperationCode.EQUAL,
    "GREATER": OperationCode.GREATER,
    "GREATER_EQUAL": OperationCode.GREATER_EQUAL,
    "LESS": OperationCode.LESS,
    "LESS_EQUAL": OperationCode.LESS_EQUAL,
    "LOGICAL_AND": OperationCode.LOGICAL_AND,
    "LOGICAL_OR": OperationCode.LOGICAL_OR,
    "MAXIMUM": OperationCode.MAXIMUM,
    "MINIMUM": OperationCode.MINIMUM,
    "NOT_EQUAL": OperationCode.NOT_EQUAL,
    "POW": OperationCode.POW,
}

ARITHMETIC = {
    "ADD": OperationCode.ADD,
    "DIV": OperationCode.DIV,
    "MUL": OperationCode.MUL,
    "SUB": OperationCode.SUB,
}


@lowers(*UNARY)
def unary(x: Lowerer) -> None:
    """The operation of the same meaning."""
    x.emit(UNARY[x.name], x.input(0))


@lowers(*UNARY, wide=True)
def unary_through_float(x: Lowerer) -> None:
    """8-bit tensors whose parameters NNAPI's operation cannot have, or that it does not take at all, go by float32."""
    x.require(x.name not in ("LOG", "NEG"), "an operator of the numbers that integers stand for", x.name)
    x.require(x.input(0).type in QUANT8 and x.out.type in QUANT8, "an 8-bit tensor", x.tensor(0))
    real = x.dequantised(x.input(0))
    x.quantised(x.temp(UNARY[x.name], real))


@lowers(*BINARY)
def binary(x: Lowerer) -> None:
    """The operation of the same meaning."""
    x.emit(BINARY[x.name], x.input(0), x.input(1))


@lowers("MAXIMUM", "MINIMUM", "POW", wide=True)
def binary_through_float(x: Lowerer) -> None:
    """8-bit tensors with parameters of their own go by float32."""
    x.require(x.input(0).type in QUANT8 and x.out.type in QUANT8, "8-bit tensors", x.tensor(0))
    x.quantised(x.temp(BINARY[x.name], x.dequantised(x.input(0)), x.dequantised(x.input(1)), dims=x.out.dims))


@lowers(*ARITHMETIC)
def arithmetic(x: Lowerer) -> None:
    """The operation of the same meaning, with its fused activation."""
    truncates = x.name == "DIV" and x.input(0).type == INT32
    x.require(not truncates, "a division of floats (NNAPI's integer division rounds down, TFLite's to zero)", x.tensor(0))
    x.require(x.name != "DIV" or x.input(0).type not in QUANT8, "a division of floats", x.tensor(0))
    fused = x.option("fused_activation_function")
    x.require(x.input(0).type != INT32 or not fused, "no activation of integers", fused)
    x.emit_fused(ARITHMETIC[x.name], x.input(0), x.input(1))


@lowers("DIV", wide=True)
def division_through_float(x: Lowerer) -> None:
    """An 8-bit division that NNAPI does not have."""
    x.require(x.input(0).type in QUANT8 and x.out.type in QUANT8, "8-bit tensors", x.tensor(0))
    quotient = Value(FLOAT32, x.out.dims)
    fused = x.i32(x.option("fused_activation_function"))
    x.emit(OperationCode.DIV, x.dequantised(x.input(0)), x.dequantised(x.input(1)), fused, out=quotient)
    x.quantised(quotient)


def _none(x: Lowerer) -> Value:
    return x.i32(0)


@lowers("HARD_SWISH")
def hard_swish_in_parts(x: Lowerer) -> None:
    """Below feature level 4, as the delegate does it: x/2 · relu1(x/3) + x/2, each part with parameters of its own."""
    data = x.input(0)
    x.require(x.draft.feature_level < 4, "a feature level below 4", x.draft.feature_level)
    x.require(data.type == FLOAT32 or not x.free, "floats (8-bit parts are rounded several times)", x.tensor(0))
    low, high = (b * data.scale for b in (-data.zero_point, 255 - data.zero_point))
    ends = max(low / 3, -1.0), min(high / 3, 1.0)
    third = _times(x, 1 / 3, FuseCode.RELU1, _spread(*ends))
    half = _times(x, 0.5, FuseCode.NONE, (data.scale / 2, data.zero_point))
    most = _spread(0.0, max(ends[1] * high / 2, ends[0] * low / 2))
    product = x.temp(OperationCode.MUL, third, half, _none(x), scale=most[0], zero_point=most[1])
    x.emit(OperationCode.ADD, product, half, _none(x))


def _spread(low: float, high: float) -> tuple[float, int]:
    """Scale and zero point of uint8 from one number to another; none for floats, which span nothing."""
    scale = (high - low) / 255
    return (scale, min(max(int(-low / scale), 0), 255)) if scale > 0 else (0.0, 0)


def _times(x: Lowerer, factor: float, fused: FuseCode, parameters: tuple[float, int]) -> Value:
    """The input times a number, which 8-bit tensors have as 64 steps."""
    data = x.input(0)
    steps = 64
    if data.type == FLOAT32:
        return x.temp(OperationCode.MUL, data, x.fill(factor, data), x.i32(fused))
    number = x.array(np.array([steps], np.uint8), data, scale=factor / steps, zero_point=0)
    return x.temp(OperationCode.MUL, data, number, x.i32(fused), scale=parameters[0], zero_point=parameters[1])


@lowers("SQUARE", wide=True)
def square(x: Lowerer) -> None:
    """x · x."""
    x.emit(OperationCode.MUL, x.input(0), x.input(0), _none(x))


@lowers("SQUARED_DIFFERENCE")
def squared_difference(x: Lowerer) -> None:
    """(a − b)²; 8-bit tensors by float32, because a difference has no parameters of its own, but for the delegate."""
    if x.out.type in QUANT8 and not x.free:
        largest = (127 if x.out.type == SIGNED else 255) - x.out.zero_point
        scale = 2 * math.sqrt(max(largest, 0) * x.out.scale) / 254
        x.require(scale > 0, "an output that reaches above 0", x.output_tensor())
        changes = {"dims": x.out.dims, "scale": scale, "zero_point": 0 if x.out.type == SIGNED else 128}
        step = x.temp(OperationCode.SUB, x.input(0), x.input(1), _none(x), like=x.out, **changes)
        x.emit(OperationCode.MUL, step, step, _none(x))
        return
    real = [x.dequantised(v) if v.type in QUANT8 else v for v in x.inputs()]
    difference = x.temp(OperationCode.SUB, *real, _none(x), dims=x.out.dims)
    if x.out.type not in QUANT8:
        x.emit(OperationCode.MUL, difference, difference, _none(x))
        return
    x.quantised(x.temp(OperationCode.MUL, difference, difference, _none(x)))


@lowers("FLOOR_DIV", wide=True)
def floor_div(x: Lowerer) -> None:
    """NNAPI's integer division rounds down; floats are divided, then floored."""
    if x.input(0).type == INT32:
        x.emit(OperationCode.DIV, x.input(0), x.input(1), _none(x))
        return
    x.require(x.input(0).type in FLOATS, "floats or int32", x.tensor(0))
    x.emit(OperationCode.FLOOR, x.temp(OperationCode.DIV, x.input(0), x.input(1), _none(x), dims=x.out.dims))


@lowers("FLOOR_MOD", wide=True)
def floor_mod(x: Lowerer) -> None:
    """a − ⌊a / b⌋ · b on integers; on floats the rounding of the quotient would show."""
    a, b = x.inputs()
    x.require(a.type == INT32, "int32", x.tensor(0))
    quotient = x.temp(OperationCode.DIV, a, b, _none(x), dims=x.out.dims)
    x.emit(OperationCode.SUB, a, x.temp(OperationCode.MUL, quotient, b, _none(x)), _none(x))


@lowers("ADD_N", wide=True)
def add_n(x: Lowerer) -> None:
    """A chain of additions."""
    total, *rest = x.inputs()
    x.require(rest and total.type in (*FLOATS, INT32), "two or more float or int32 tensors", x.tensor(0))
    for value in rest[:-1]:
        total = x.temp(OperationCode.ADD, total, value, _none(x))
    x.emit(OperationCode.ADD, total, rest[-1], _none(x))


@lowers("COS", wide=True)
def cosine(x: Lowerer) -> None:
    """sin(x + π/2)."""
    value = x.input(0)
    x.require(value.type in FLOATS, "floats", x.tensor(0))
    x.emit(OperationCode.SIN, x.temp(OperationCode.ADD, value, x.fill(math.pi / 2, value), _none(x)))


@lowers("CEIL", wide=True)
def ceiling(x: Lowerer) -> None:
    """−⌊−x⌋."""
    x.emit(OperationCode.NEG, x.temp(OperationCode.FLOOR, x.temp(OperationCode.NEG, x.input(0))))


@lowers("RELU_0_TO_1", wide=True)
def relu_0_to_1(x: Lowerer) -> None:
    """min(max(x, 0), 1)."""
    value = x.input(0)
    x.require(value.type in FLOATS, "floats", x.tensor(0))
    x.emit(OperationCode.MINIMUM, x.temp(OperationCode.RELU, value), x.fill(1.0, value))


@lowers("ELU")
def elu(x: Lowerer) -> None:
    """ELU with alpha 1."""
    x.emit(OperationCode.ELU, x.input(0), x.real(1.0, x.input(0)))


@lowers("ELU", wide=True)
def elu_through_float(x: Lowerer) -> None:
    """8-bit ELU by float32."""
    x.require(x.input(0).type in QUANT8, "an 8-bit tensor", x.tensor(0))
    real = x.dequantised(x.input(0))
    x.quantised(x.temp(OperationCode.ELU, real, x.real(1.0, real)))


@lowers("GELU", wide=True)
def gelu(x: Lowerer) -> None:
    """The approximation by tanh: x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))."""
    value = x.dequantised(x.input(0))
    x.require(value.type in FLOATS, "floats or 8-bit integers", x.tensor(0))
    x.require(x.option("approximate", False), "the approximation by tanh (NNAPI has no error function)", "the exact form")

    def times(a: Value, b: Value) -> Value:
        return x.temp(OperationCode.MUL, a, b, _none(x))

    def plus(a: Value, b: Value) -> Value:
        return x.temp(OperationCode.ADD, a, b, _none(x))

    cube = times(times(value, value), value)
    inner = times(plus(value, times(cube, x.fill(0.044715, value))), x.fill(math.sqrt(2 / math.pi), value))
    gate = plus(x.temp(OperationCode.TANH, inner), x.fill(1.0, value))
    half = times(value, x.fill(0.5, value))
    if x.out.type in QUANT8:
        x.quantised(times(half, gate))
        return
    x.emit(OperationCode.MUL, half, gate, _none(x))


@lowers("PRELU")
def prelu(x: Lowerer) -> None:
    """PRELU; alpha is broadcast."""
    x.emit(OperationCode.PRELU, x.input(0), x.input(1))


@lowers("LEAKY_RELU")
def leaky_relu(x: Lowerer) -> None:
    """PRELU with one alpha: as a float, or as the quantised number 1 with alpha for its scale."""
    value, alpha = x.input(0), float(x.option("alpha", 0.0))
    if value.type not in QUANT8:
        x.emit(OperationCode.PRELU, value, x.fill(alpha, value))
        return
    x.require(alpha > 0, "an alpha above 0 for 8-bit tensors", alpha)
    one = Value(value.type, (1,), scale=alpha)
    dtype = "u1" if value.type == QUANT8[0] else "i1"
    x.emit(OperationCode.PRELU, value, x.array(np.ones(1, dtype), one))


@lowers("SELECT", "SELECT_V2")
def select(x: Lowerer) -> None:
    """SELECT of tensors of one shape."""
    x.emit(OperationCode.SELECT, x.input(0), x.input(1), x.input(2))


@lowers("SELECT", "SELECT_V2", "WHERE", wide=True)
def select_broadcast(x: Lowerer) -> None:
    """SELECT of tensors that are broadcast first: the condition by LOGICAL_OR, values by TILE."""
    x.require(x.count == 3, "a condition and two tensors", x.count)
    dims = x.out.dims
    condition, *values = x.inputs()
    x.require(condition.type == BOOL8 and 0 not in dims, "a boolean condition and known dimensions", list(dims))
    x.require(x.name != "SELECT" or condition.rank == len(dims), "a condition of the tensors' rank", condition.rank)
    x.emit(OperationCode.SELECT, broadcast(x, condition, dims), *(broadcast(x, v, dims) for v in values))


@lowers("BROADCAST_TO", wide=True)
def broadcast_to(x: Lowerer) -> None:
    """RESHAPE to the new rank, then TILE."""
    value = x.input(0)
    dims = tuple(x.integers(1))
    x.require(dims and value.dims != dims, "dimensions that grow", list(dims))
    aligned, multiples = _tiling(x, value, dims)
    x.emit(OperationCode.TILE, aligned, x.ints(multiples))


def _tiling(x: Lowerer, value: Value, dims: tuple[int, ...]) -> tuple[Value, list[int]]:
    """A value seen with the rank of ``dims``, and how often each dimension repeats."""
    padded = (1,) * (len(dims) - value.rank) + value.dims
    fits = len(padded) == len(dims) and all(have in (1, want) for have, want in zip(padded, dims, strict=True))
    x.require(fits, f"dimensions that broadcast to {list(dims)}", list(value.dims))
    multiples = [want if have == 1 else 1 for have, want in zip(padded, dims, strict=True)]
    return (value, multiples) if padded == value.dims else (x.reshaped(value, padded), multiples)


def broadcast(x: Lowerer, value: Value, dims: tuple[int, ...]) -> Value:
    """A value with its dimensions grown to ``dims``."""
    if value.dims == dims:
        return value
    if value.constant or value.type == BOOL8:
        x.draft.spend(product(dims))
    if value.data is not None:
        grown = value.like(dims=dims)
        grown.data = np.ascontiguousarray(np.broadcast_to(value.data, dims))
        return grown
    if value.type == BOOL8:
        nothing = Value(BOOL8, dims, data=np.zeros(dims, np.uint8))
        return x.temp(OperationCode.LOGICAL_OR, value, nothing, dims=dims)
    aligned, multiples = _tiling(x, value, dims)
    return x.temp(OperationCode.TILE, aligned, x.ints(multiples), dims=dims)

"""Arithmetic: sums and products, extremes, powers and logarithms, trigonometry, bits, running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nnbridge.converters.declaration import Option, lowers
from nnbridge.converters.draft import Value
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import Why
from nnbridge.model import Array
from nnbridge.types import OperandCode, OperationCode
from nnbridge_onnx.declaration import BROADCAST, MOVED, Affine, AffineOf, Channels, OnnxOperator, Quantised, operator
from nnbridge_onnx.host.evaluator import HostCall
from nnbridge_onnx.lowerer import C, Lowerer
from nnbridge_onnx.operators.elementwise import composed, evaluated, unary
from nnbridge_onnx.read.graph import Node
from nnbridge_onnx.rules import BINARY, SINCE_3, Provider, condition

# -- two operands ------------------------------------------------------------------------------------------------------------


def _affine(of: Callable[[Array, bool], Affine | None]) -> AffineOf:
    """The scale and offset that arithmetic with a constant applies to each channel, by the constant and whether the value is
    the first operand."""

    def affine(node: Node, name: str, constants: Mapping[str, Array], channels: Channels) -> Affine | None:
        if len(node.inputs) != 2 or node.inputs[0] == node.inputs[1]:
            return None
        first = node.inputs[0] == name
        constant = constants.get(node.inputs[1 if first else 0])
        numbers = None if constant is None else channels.numbers(constant)
        return None if numbers is None else of(numbers, first)

    return affine


def _arithmetic(
    name: str, number: int, code: OperationCode, summary: str, affine: Callable[[Array, bool], Affine | None], provider: Provider,
    quantised: Quantised | None = None,
) -> OnnxOperator:  # fmt: skip
    definition = operator(
        name, number, "A B -> C", summary, folding=BROADCAST, fuses_activation=True, affine=_affine(affine), provider=provider,
        quantised=quantised,
    )  # fmt: skip

    @definition.lowering()
    def lower(to: Lowerer) -> None:
        to.require_exact()
        inputs, images = to.aligned(0, 1)
        to.require_numbers(*inputs)
        to.require(code != C.DIV or to.is_float(inputs[0]), "floating values", "integers (NNAPI rounds down)")
        to.require(
            to.operands.mapping is MappingKind.PROVIDER or to.node.outputs[0] not in to.operands.questioned,
            f"a result whose infinities nothing needs: {code.name} ends at the largest number",
            "IsInf, IsNaN or a comparison with infinity",
        )
        to.finish(code, *inputs, to.activation(), images=images)

    if quantised is not None:

        @definition.quantised_lowering
        def lower_quantised(to: Lowerer) -> None:
            """A constant is an 8-bit constant."""
            inputs, images = to.aligned(0, 1)
            to.finish(code, *inputs, to.activation(), images=images)

    return definition


_PAIR = Quantised(2, activation=True)
_arithmetic(
    "Add", 4, C.ADD, "Sum.", lambda a, first: Affine(np.ones_like(a), a), Provider(conditions=BINARY, grouped=True), _PAIR
)
_arithmetic(
    "Sub", 186, C.SUB, "Difference.", lambda a, first: Affine(np.ones_like(a), -a) if first else Affine(-np.ones_like(a), a),
    Provider(2, conditions=BINARY), _PAIR,
)  # fmt: skip
_arithmetic(
    "Mul", 109, C.MUL, "Product.", lambda a, first: Affine(a, np.zeros_like(a)), Provider(conditions=BINARY, grouped=True), _PAIR
)
_arithmetic(
    "Div", 49, C.DIV, "Quotient; of integers, rounded towards 0.",
    lambda a, first: Affine(1 / a, np.zeros_like(a)) if first else None, Provider(2, conditions=BINARY),
)  # fmt: skip

POW = operator(
    "Pow", 123, "X Y -> Z", "Power.", folding=BROADCAST,
    provider=Provider(
        3,
        conditions=(
            *BINARY,
            condition("two float operands", lambda u: u.type(1) == "FLOAT", lambda u: u.type(1), kind=Why.INPUT_TYPE),
        ),
    ),
)  # fmt: skip


@POW.lowering()
def _pow(to: Lowerer) -> None:
    inputs, images = to.aligned(0, 1)
    to.require_numbers(*inputs)
    to.require(to.is_float(inputs[0]) and inputs[0].type == inputs[1].type, "floats of one type")
    to.finish(C.POW, *inputs, images=images)


MOD = operator(
    "Mod", 108, "A B -> C", "Remainder, of the divisor's sign, or of the dividend's with fmod.", folding=BROADCAST,
    options=(Option("fmod", 0, "1 for the remainder of C"),),
)  # fmt: skip


@MOD.lowering()
def _mod(to: Lowerer) -> None:
    """x - floor(x / y) * y, which is Python's remainder."""
    divisor = to.constant(1)
    to.require(np.isfinite(divisor).all() and divisor.all(), "a finite divisor other than 0", "others")
    (x, y), images = to.aligned(0, 1)
    to.require(to.is_float(x) and not to.option("fmod"), "floating values without fmod", x.name)
    quotient = to.emit(C.FLOOR, to.emit(C.DIV, x, y))
    to.finish(C.SUB, x, to.emit(C.MUL, quotient, y), images=images)


# -- any number of operands --------------------------------------------------------------------------------------------------

_EXTREME = Provider(
    3, conditions=(condition("two operands", lambda u: len(u.inputs) == 2, lambda u: len(u.inputs), kind=Why.VARIANT),)
)
MIN = operator("Min", 106, "data_0+ -> min", "Smallest numbers.", folding=BROADCAST, provider=_EXTREME)
MAX = operator("Max", 99, "data_0+ -> max", "Largest numbers.", folding=BROADCAST, provider=_EXTREME)
SUM = operator("Sum", 187, "data_0+ -> sum", "Sum of all inputs.", folding=BROADCAST, fuses_activation=True)
MEAN = operator("Mean", 103, "data_0+ -> mean", "Mean of all inputs.", folding=BROADCAST)


@MEAN.host_kernel
def _run_mean(call: HostCall) -> Sequence[Array]:
    inputs = [call.input(i) for i in range(len(call.node.proto.input))]
    total = sum(inputs[1:], start=inputs[0])
    return [np.asarray(total / len(inputs)).astype(inputs[0].dtype)]


_CODES = {"Min": C.MINIMUM, "Max": C.MAXIMUM, "Sum": C.ADD, "Mean": C.ADD}


@lowers(MIN, MAX, SUM, MEAN)
def _many(to: Lowerer) -> None:
    """Any number of inputs, two at a time."""
    kind, code = to.node.type, _CODES[to.node.type]
    if code is C.ADD:
        to.require_exact()
    inputs, images = to.aligned(*range(len(to.node.inputs)))
    to.require_numbers(*inputs)
    to.require(len(inputs) > 1, "two inputs or more", len(inputs))
    to.require(kind != "Mean" or to.is_float(inputs[0]), "floating values", "integers")
    total = inputs[0]
    for value in inputs[1:-1]:
        total = to.emit(code, total, value)
    if kind != "Mean":
        to.finish(code, total, inputs[-1], *([to.activation()] if kind == "Sum" else []), images=images)
        return
    total = to.emit(code, total, inputs[-1])
    to.finish(C.MUL, total, to.float_tensor([1 / len(inputs)], total), images=images)


# -- one operand -------------------------------------------------------------------------------------------------------------

unary("Abs", 1, C.ABS, "Absolute value.", provider=SINCE_3)
unary("Neg", 111, C.NEG, "Negative value.", provider=SINCE_3)
unary("Exp", 56, C.EXP, "Exponential function.", "input -> output", provider=SINCE_3)
unary("Log", 92, C.LOG, "Natural logarithm.", "input -> output", provider=SINCE_3)
unary("Sqrt", 181, C.SQRT, "Square root.", provider=SINCE_3)
unary("Floor", 60, C.FLOOR, "Largest whole number that is not larger.", provider=Provider())
unary("Sin", 170, C.SIN, "Sine.", "input -> output", provider=SINCE_3)

composed(evaluated("Reciprocal", 134, "1 / x.", "X -> Y"))(lambda to, x: to.compute(C.DIV, 1.0, x))
composed(evaluated("Ceil", 27, "Smallest whole number that is not smaller.", "X -> Y"))(
    lambda to, x: to.compute(C.MUL, to.compute(C.FLOOR, to.compute(C.MUL, x, -1.0)), -1.0)
)


@composed(evaluated("Cos", 40, "Cosine."))
def cosine(to: Lowerer, x: Value) -> Value:
    """1 - 2 sin(x/2)², whose argument is exact: sums with a quarter of a turn lose the digits of large numbers."""
    to.require(x.type != OperandCode.TENSOR_FLOAT16, "float32", "float16")
    sine = to.compute(C.SIN, to.compute(C.MUL, x, 0.5))
    return to.compute(C.SUB, 1.0, to.compute(C.MUL, to.compute(C.MUL, sine, sine), 2.0))


def _hyperbolic(to: Lowerer, x: Value, code: OperationCode) -> Value:
    """exp(x) / 2 and exp(-x) / 2, added or subtracted; halved in the exponent, so that it overflows no sooner than the result."""
    half = math.log(2)
    up, down = to.compute(C.EXP, to.compute(C.SUB, x, half)), to.compute(C.EXP, to.compute(C.SUB, -half, x))
    return to.compute(code, up, down)


@composed(evaluated("Sinh", 171, "Hyperbolic sine."))
def _sine(to: Lowerer, x: Value) -> Value:
    """2t / (1 - t²) with t = tanh(x/2) below 1, where the difference of two exponentials would lose digits."""
    tangent = to.compute(C.TANH, to.compute(C.MUL, x, 0.5))
    rest = to.compute(C.SUB, 1.0, to.compute(C.MUL, tangent, tangent))
    near = to.compute(C.DIV, to.compute(C.ADD, tangent, tangent), rest)
    return to.below(to.compute(C.ABS, x), 1.0, near, _hyperbolic(to, x, C.SUB))


composed(evaluated("Cosh", 41, "Hyperbolic cosine."))(lambda to, x: _hyperbolic(to, x, C.ADD))

SIGN = evaluated("Sign", 169, "-1, 0 or 1.")


@SIGN.lowering()
def _sign(to: Lowerer) -> None:
    """The difference of two comparisons, as numbers."""
    (x,), images = to.aligned(0)
    to.require(to.is_float(x) and x.dims and 0 not in x.dims, "floating values of known shape", list(x.dims), x.name)
    ones, zeros = to.float_tensor(np.ones(x.dims), x), to.float_tensor(np.zeros(x.dims), x)
    parts = []
    for code in (C.GREATER, C.LESS):
        holds = to.emit(code, x, to.float_tensor([0.0], x), out=to.bools(x.dims))
        parts.append(to.emit(C.SELECT, holds, ones, zeros, like=x))
    to.named_result(to.compute(C.SUB, *parts), images=images)


evaluated("Round", 152, "Nearest whole number, halves to even.", "X -> Y")
evaluated("Tan", 190, "Tangent.")
evaluated("Asin", 9, "Inverse of sine.")
evaluated("Acos", 2, "Inverse of cosine.")
evaluated("Atan", 11, "Inverse of tangent.")
evaluated("Asinh", 10, "Inverse of hyperbolic sine.")
evaluated("Acosh", 3, "Inverse of hyperbolic cosine.")
evaluated("Atanh", 12, "Inverse of hyperbolic tangent.")
DET = operator("Det", 48, "X -> Y", "Determinants of the last two axes.")


@DET.host_kernel
def _determinant(call: HostCall) -> Sequence[Array]:
    return [np.asarray(np.linalg.det(call.input(0)))]


# -- bits --------------------------------------------------------------------------------------------------------------------

evaluated("BitwiseNot", 20, "All bits of integers inverted.", "X -> Y")
operator("BitwiseAnd", 19, "A B -> C", "Bits that both integers have.", folding=BROADCAST)
operator("BitwiseOr", 21, "A B -> C", "Bits that one of two integers has.", folding=BROADCAST)
operator("BitwiseXor", 22, "A B -> C", "Bits that only one of two integers has.", folding=BROADCAST)
operator("BitShift", 18, "X Y -> Z", "Bits of integers, moved left or right.", folding=BROADCAST)

# -- running sums ------------------------------------------------------------------------------------------------------------

MAX_SUMMED = 2048
"""Running sums are products with a triangle of this size at most."""
_RUNNING = (Option("exclusive", 0, "1 to leave out the element itself"), Option("reverse", 0, "1 to start at the end"))
CUMSUM = operator("CumSum", 43, "x axis -> y", "Running sums along an axis.", options=_RUNNING, folding=MOVED)
CUMPROD = operator("CumProd", 42, "x axis -> y", "Running products along an axis.", folding=MOVED)


@CUMSUM.host_kernel
@CUMPROD.host_kernel
def _run_running(call: HostCall) -> Sequence[Array]:
    """An axis may be a list of one, as in ONNX Runtime."""
    data, axis = call.node.proto.input[:2]
    return call.node.evaluate({data: call.input(0), axis: call.input(1).reshape(())})


@CUMSUM.lowering()
def _running_sum(to: Lowerer) -> None:
    """FULLY_CONNECTED with a triangle of ones."""
    shape, x = to.shape(), to.input()
    rank = len(shape)
    axis = int(np.ravel(to.constant(1))[0]) % max(rank, 1)
    to.require(to.is_float(x) and 0 < rank <= 4 and 0 not in shape, "floating values of rank 4 at most", list(shape))
    size = shape[axis]
    to.require(size <= MAX_SUMMED, f"{MAX_SUMMED} values to sum at most", size)
    to.draft.spend(size * size)
    triangle = np.tril(np.ones((size, size)), -1 if to.option("exclusive") else 0)
    weights = triangle.T if to.option("reverse") else triangle
    order = [i for i in range(rank) if i != axis] + [axis]
    if axis != rank - 1:
        x = to.emit(C.TRANSPOSE, x, to.vector(order))
    rows = to.emit(C.RESHAPE, x, to.vector([math.prod(shape) // size, size]))
    operands = [rows, to.float_tensor(weights, x), to.float_tensor(np.zeros(size), x), to.scalar(0)]
    made = to.emit(C.FULLY_CONNECTED, *operands, like=x)
    dims = to.vector([shape[i] for i in order])
    if axis == rank - 1:
        to.finish(C.RESHAPE, made, dims)
        return
    spread = to.emit(C.RESHAPE, made, dims, like=x)
    to.finish(C.TRANSPOSE, spread, to.vector([order.index(i) for i in range(rank)]))

"""Activations: rectifiers, sigmoids, exponential and Gaussian units, softmax."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from nnbridge.converters.declaration import Option, lowers
from nnbridge.converters.draft import Value
from nnbridge.converters.rules import since
from nnbridge.errors import Why
from nnbridge.model import Array
from nnbridge.types import FuseCode, OperandCode, OperationCode
from nnbridge_onnx.declaration import AXIS, MOVED, Quantised, operator
from nnbridge_onnx.host.evaluator import HostCall
from nnbridge_onnx.lowerer import C, Lowerer
from nnbridge_onnx.operands import LAST
from nnbridge_onnx.operators.elementwise import binary, composed, constant_like, evaluated, unary
from nnbridge_onnx.read.graph import Node
from nnbridge_onnx.rules import BINARY, RANK_4, SCALE_256, Provider, condition, uint8_parameters


def _alpha(default: float, meaning: str) -> Option:
    return Option("alpha", default, meaning)


# -- those that NNAPI's operations compute along with their results ---------------------------------------------------------

RELU = unary(
    "Relu", 146, C.RELU, "The larger of a number and 0.", provider=Provider(), quantised=Quantised(),
    activation=lambda node, constants: FuseCode.RELU,
)  # fmt: skip

_FUSED: dict[tuple[float | None, float | None], tuple[FuseCode, OperationCode]] = {
    (0.0, 6.0): (FuseCode.RELU6, C.RELU6),
    (-1.0, 1.0): (FuseCode.RELU1, C.RELU1),
    (0.0, None): (FuseCode.RELU, C.RELU),
}
"""Bounds of Clip that NNAPI has an activation and an operation for."""


def _clip_activation(node: Node, constants: Mapping[str, Array]) -> FuseCode | None:
    """The activation that a Clip is, None for other or computed bounds."""

    def bound(attribute: str, i: int) -> float | None:
        if attribute in node.attributes:
            return float(node.attributes[attribute])
        array = constants.get(node.name_of(i))
        if array is None:
            return math.nan if node.name_of(i) else None
        return float(array.item()) if array.size == 1 else math.nan

    found = _FUSED.get((bound("min", 1), bound("max", 2)))
    return None if found is None else found[0]


CLIP = operator(
    "Clip", 30, "input min? max? -> output", "Numbers between two bounds.",
    options=(Option("min", None, "the lower bound before opset 11"), Option("max", None, "the upper bound before opset 11")),
    folding=MOVED, bounded=True, activation=_clip_activation,
    provider=Provider(
        conditions=(
            condition(
                "bounds of 0 and 6 or -1 and 1",
                lambda u: _clip_activation(u.node, u.graph.constants) in (FuseCode.RELU6, FuseCode.RELU1),
                lambda u: "others",
            ),
        )
    ),
)  # fmt: skip


@CLIP.lowering()
def _clip(to: Lowerer) -> None:
    """RELU6, RELU1 or RELU where the bounds say so, else MAXIMUM and MINIMUM."""
    (x,), images = to.aligned(0)
    low, high = _bound(to, "min", 1), _bound(to, "max", 2)
    if (low, high) in _FUSED and to.is_float(x):
        to.finish(_FUSED[low, high][1], x, images=images)
        return
    bounds = [(code, v) for code, v in ((C.MAXIMUM, low), (C.MINIMUM, high)) if v is not None]
    for code, bound in bounds[:-1]:
        x = to.emit(code, x, constant_like(to, x, bound))
    if not bounds:
        to.finish(C.MAXIMUM, x, x, images=images)
        return
    code, bound = bounds[-1]
    to.finish(code, x, constant_like(to, x, bound), images=images)


def _bound(to: Lowerer, attribute: str, i: int) -> float | None:
    """A bound of Clip, None where there is none."""
    if to.option(attribute) is not None:
        return float(to.option(attribute))
    array = to.optional(i)
    if array is None or (array.dtype.kind == "f" and not math.isfinite(array.item())):
        return None
    return float(array.item())


# -- one operation each ------------------------------------------------------------------------------------------------------

unary(
    "Sigmoid",
    168,
    C.LOGISTIC,
    "1 / (1 + exp(-x)).",
    provider=Provider(conditions=(since("1.13", RANK_4),)),
    quantised=Quantised(),
    bounded=True,
)
unary("Tanh", 191, C.TANH, "Hyperbolic tangent.", "input -> output", provider=Provider(), quantised=Quantised(), bounded=True)
unary("HardSwish", 77, C.HARD_SWISH, "x * max(0, min(1, x / 6 + 0.5)).")
binary(
    "PRelu",
    121,
    C.PRELU,
    "x where it is positive, else x times a slope.",
    "X slope -> Y",
    provider=Provider(3, conditions=BINARY),
)

LEAKY_RELU = evaluated(
    "LeakyRelu", 88, "x where it is positive, else alpha * x.", "X -> Y", options=(_alpha(0.01, "slope below 0"),),
    provider=Provider(conditions=(RANK_4,)),
)  # fmt: skip


@LEAKY_RELU.lowering()
def _leaky_relu(to: Lowerer) -> None:
    """PRELU with one slope."""
    (x,), images = to.aligned(0)
    to.require_float(x)
    to.finish(C.PRELU, x, to.float_tensor([to.option("alpha")], x), images=images)


@LEAKY_RELU.provider_lowering
def _leaky_relu_as_built(to: Lowerer) -> None:
    """SELECT between x and its product by alpha, where LESS says so."""
    (x,), images = to.aligned(0)
    negative = to.emit(C.LESS, x, to.float_tensor([0.0], x), out=to.bools(x.dims))
    to.finish(C.SELECT, negative, to.compute(C.MUL, x, to.option("alpha")), x, images=images)


@composed(LEAKY_RELU)
def _leaky(to: Lowerer, x: Value) -> Value:
    above = to.compute(C.MAXIMUM, x, 0.0)
    return to.compute(C.ADD, above, to.compute(C.MUL, to.compute(C.MINIMUM, x, 0.0), to.option("alpha")))


# -- several operations ------------------------------------------------------------------------------------------------------

ERF = evaluated("Erf", 55, "Error function.", bounded=True)
_SERIES = tuple((-1) ** n * 2 / math.sqrt(math.pi) / (math.factorial(n) * (2 * n + 1)) for n in range(6))
"""The error function's series in odd powers: below 1/2 it is off by 3e-8 of its value."""


@composed(ERF)
def _error_function(to: Lowerer, x: Value) -> Value:
    """The series for small numbers, of which a difference from 1 would leave no digits."""
    square = to.compute(C.MUL, x, x)
    total = to.compute(C.ADD, to.compute(C.MUL, square, _SERIES[-1]), _SERIES[-2])
    for coefficient in _SERIES[-3::-1]:
        total = to.compute(C.ADD, to.compute(C.MUL, total, square), coefficient)
    return to.below(to.compute(C.ABS, x), 0.5, to.compute(C.MUL, x, total), _erf(to, to.bound(x, 6.0)))


def _erf(to: Lowerer, x: Value) -> Value:
    """Abramowitz and Stegun 7.1.26 with its sign from tanh's branch: |error| below 1.5e-7."""
    size = to.compute(C.ABS, x)
    t = to.compute(C.DIV, 1.0, to.compute(C.ADD, to.compute(C.MUL, size, 0.3275911), 1.0))
    total = to.compute(C.ADD, to.compute(C.MUL, t, 1.061405429), -1.453152027)
    for coefficient in (1.421413741, -0.284496736, 0.254829592):
        total = to.compute(C.ADD, to.compute(C.MUL, total, t), coefficient)
    polynomial, square = to.compute(C.MUL, total, t), to.compute(C.MUL, size, size)
    tail = to.compute(C.MUL, polynomial, to.compute(C.EXP, to.compute(C.MUL, square, -1.0)))
    positive = to.compute(C.SUB, 1.0, tail)
    # The sign: -1, 0 or 1, as x / max(|x|, tiny), which must not be 0 in float16.
    tiny = 1e-30 if x.type == OperandCode.TENSOR_FLOAT32 else 2.0**-14
    return to.compute(C.MUL, positive, to.compute(C.DIV, x, to.compute(C.MAXIMUM, size, tiny)))


GELU = evaluated(
    "Gelu", 65, "x times the standard normal CDF of x.", "X -> Y",
    options=(Option("approximate", "none", "tanh for the formula with tanh"),),
)  # fmt: skip


@composed(GELU)
def _gelu(to: Lowerer, x: Value) -> Value:
    half = to.compute(C.MUL, x, 0.5)
    if to.option("approximate") == "tanh":
        cube = to.compute(C.MUL, to.compute(C.MUL, to.compute(C.MUL, x, x), x), 0.044715)
        inner = to.compute(C.TANH, to.compute(C.MUL, to.compute(C.ADD, x, cube), math.sqrt(2 / math.pi)))
    else:
        inner = _erf(to, to.compute(C.MUL, x, math.sqrt(0.5)))
    return to.compute(C.MUL, half, to.compute(C.ADD, inner, 1.0))


HARD_SIGMOID = evaluated(
    "HardSigmoid", 76, "max(0, min(1, alpha * x + beta)).", "X -> Y", bounded=True,
    options=(_alpha(0.2, "slope"), Option("beta", 0.5, "offset")),
)  # fmt: skip


@composed(HARD_SIGMOID)
def _hard_sigmoid(to: Lowerer, x: Value) -> Value:
    scaled = to.compute(C.ADD, to.compute(C.MUL, x, to.option("alpha")), to.option("beta"))
    return to.compute(C.MINIMUM, to.compute(C.MAXIMUM, scaled, 0.0), 1.0)


ELU = evaluated(
    "Elu", 53, "x where it is positive, else alpha * (exp(x) - 1).", "X -> Y", options=(_alpha(1.0, "limit below 0"),),
    provider=Provider(4),
)  # fmt: skip


@composed(ELU)
def _elu(to: Lowerer, x: Value) -> Value:
    return to.emit(C.ELU, x, to.float_scalar(to.option("alpha"), x))


SELU = evaluated(
    "Selu", 158, "gamma times Elu.", "X -> Y",
    options=(_alpha(1.67326319217681884765625, "limit below 0"), Option("gamma", 1.05070102214813232421875, "factor")),
)  # fmt: skip


@composed(SELU)
def _selu(to: Lowerer, x: Value) -> Value:
    return to.compute(C.MUL, _elu(to, x), to.option("gamma"))


CELU = evaluated("Celu", 28, "Elu of x / alpha, times alpha.", "X -> Y", options=(_alpha(1.0, "limit below 0"),))


@composed(CELU)
def _celu(to: Lowerer, x: Value) -> Value:
    to.require(to.option("alpha") != 0, "an alpha other than 0", 0, "alpha")
    inner = to.emit(C.ELU, to.compute(C.DIV, x, to.option("alpha")), to.float_scalar(1.0, x))
    return to.compute(C.MUL, inner, to.option("alpha"))


SOFTPLUS = evaluated("Softplus", 176, "log(1 + exp(x)).", "X -> Y")


@composed(SOFTPLUS)
def _softplus(to: Lowerer, x: Value) -> Value:
    """max(x, 0) + log(1 + exp(-|x|)), which does not overflow; what the sum 1 + exp(-|x|) loses is added to its logarithm."""
    exponential = to.compute(C.EXP, to.compute(C.MUL, to.compute(C.ABS, x), -1.0))
    total = to.compute(C.ADD, exponential, 1.0)
    lost = to.compute(C.SUB, exponential, to.compute(C.SUB, total, 1.0))
    tail = to.compute(C.ADD, to.compute(C.LOG, total), to.compute(C.DIV, lost, total))
    return to.compute(C.ADD, to.compute(C.MAXIMUM, x, 0.0), tail)


MISH = evaluated("Mish", 107, "x * tanh(softplus(x)).", "X -> Y")
SOFTSIGN = evaluated("Softsign", 177, "x / (1 + |x|).", bounded=True)
SWISH = operator("Swish", 189, "X -> Y", "x * sigmoid(alpha * x).", options=(_alpha(1.0, "factor inside"),))
THRESHOLDED_RELU = evaluated(
    "ThresholdedRelu", 194, "x where it is above alpha, else 0.", "X -> Y", options=(_alpha(1.0, "threshold"),)
)
composed(MISH)(lambda to, x: to.compute(C.MUL, x, to.compute(C.TANH, _softplus(to, x))))


@SOFTSIGN.host_kernel
def _run_softsign(call: HostCall) -> Sequence[Array]:
    x = call.input(0)
    return [np.asarray(x / (1 + np.abs(x))).astype(x.dtype)]


composed(SOFTSIGN)(lambda to, x: to.compute(C.DIV, x, to.compute(C.ADD, to.compute(C.ABS, x), 1.0)))
composed(SWISH)(lambda to, x: to.compute(C.MUL, x, to.compute(C.LOGISTIC, to.compute(C.MUL, x, to.option("alpha")))))


@composed(THRESHOLDED_RELU)
def _thresholded(to: Lowerer, x: Value) -> Value:
    above = to.emit(C.GREATER, x, to.float_tensor([to.option("alpha")], x), out=to.bools(x.dims))
    to.draft.spend(math.prod(x.dims))
    return to.emit(C.SELECT, above, x, to.float_tensor(np.zeros(x.dims), x), like=x)


# -- along an axis -----------------------------------------------------------------------------------------------------------

SOFTMAX = operator(
    "Softmax", 174, "input -> output", "Exponentials along an axis, divided by their sum.", options=(AXIS,), folding=MOVED,
    quantised=Quantised(), bounded=True,
    provider=Provider(
        2,
        conditions=(
            uint8_parameters(),
            SCALE_256,
            since(
                "1.16",
                condition(
                    "rank 4 at most from opset 13 on",
                    lambda u: u.node.version < 13 or len(u.shape()) <= 4,
                    lambda u: len(u.shape()),
                    kind=Why.RANK,
                ),
            ),
            since(
                "1.16",
                condition(
                    "rank 2 or 4 from opset 13 on, below feature level 3",
                    lambda u: u.node.version < 13 or len(u.shape()) in (2, 4),
                    lambda u: len(u.shape()),
                    3, Why.RANK,
                ),
            ),
            since(
                "1.16",
                condition(
                    "the last axis from opset 13 on, below feature level 3",
                    lambda u: u.node.version < 13 or u.attribute("axis", -1) in (-1, len(u.shape()) - 1),
                    lambda u: u.attribute("axis", -1),
                    3, Why.ARGUMENT,
                ),
            ),
        ),
        grouped=True,
    ),
)  # fmt: skip
LOG_SOFTMAX = operator("LogSoftmax", 93, "input -> output", "Logarithm of Softmax.", options=(AXIS,), folding=MOVED)


@lowers(SOFTMAX, LOG_SOFTMAX)
def _softmax(to: Lowerer) -> None:
    """Along one axis of up to four; before opset 13 over all axes from it on, as one."""
    x, rank = to.input(), to.rank()
    to.require_numbers(x)
    recent = to.node.version >= 13
    axis = to.axis(to.option("axis", -1 if recent else 1), rank)
    code, one = C.SOFTMAX if to.node.type == "Softmax" else C.LOG_SOFTMAX, to.float_scalar(1.0, x)
    alone = recent or axis == rank - 1
    if alone and rank <= 4:
        # The last axis of a matrix needs no number, which feature levels below 3 do not know.
        plain = code is C.SOFTMAX and rank == 2 and axis == 1
        to.finish(code, x, one, *([] if plain else [to.scalar(axis)]))
        return
    shape = to.shape()
    behind = [shape[axis], math.prod(shape[axis + 1 :])] if alone else [math.prod(shape[axis:])]
    flat = to.emit(C.RESHAPE, x, to.vector([math.prod(shape[:axis]), *behind]))
    to.finish(C.RESHAPE, to.emit(code, flat, one, to.scalar(1)), to.vector(shape))


@SOFTMAX.provider_lowering
def _softmax_as_built(to: Lowerer) -> None:
    """Along one axis; before opset 13 of a matrix that the axes from it on are a row of."""
    rank, recent = to.rank(), to.node.version >= 13
    axis = to.axis(to.option("axis", -1 if recent else 1), rank)
    if recent or (rank, axis) == (2, 1):
        (x,), images = to.aligned(0)
        place = LAST[rank].index(axis) if images else axis
        axes = [to.scalar(place)] if to.draft.feature_level > 2 else []
        to.finish(C.SOFTMAX, x, to.float_scalar(1.0, x), *axes, images=images)
        return
    x, shape = to.input(), to.shape()
    rows = to.emit(C.RESHAPE, x, to.vector([math.prod(shape[:axis]), math.prod(shape[axis:])]))
    made = to.emit(C.SOFTMAX, rows, to.float_scalar(1.0, x), like=to.output())
    to.finish(C.RESHAPE, made, to.vector(shape))


# -- the host's --------------------------------------------------------------------------------------------------------------

evaluated("Shrink", 167, "Numbers beyond a threshold, brought nearer to 0; else 0.")
HARDMAX = evaluated("Hardmax", 78, "1 at the largest number along an axis, else 0.", options=(AXIS,))


def _as_rows(call: HostCall) -> tuple[Array, int]:
    """The numbers and the axis; before opset 13 rows of all axes from it on."""
    x, recent = call.input(0), call.version >= 13
    axis = call.option("axis", -1 if recent else 1)
    return (x, axis) if recent else (x.reshape(math.prod(x.shape[:axis]), -1), 1)


@HARDMAX.host_kernel
def _hardmax(call: HostCall) -> Sequence[Array]:
    x, axis = _as_rows(call)
    made = np.zeros_like(x)
    np.put_along_axis(made, np.expand_dims(x.argmax(axis), axis), 1, axis)
    return [made.reshape(call.input(0).shape)]


@SOFTMAX.host_kernel
def _run_softmax(call: HostCall) -> Sequence[Array]:
    x, axis = _as_rows(call)
    powers = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
    return [(powers / powers.sum(axis, keepdims=True)).astype(x.dtype).reshape(call.input(0).shape)]


@LOG_SOFTMAX.host_kernel
def _run_log_softmax(call: HostCall) -> Sequence[Array]:
    x, axis = _as_rows(call)
    below = x - x.max(axis, keepdims=True, initial=-np.inf)
    return [(below - np.log(np.exp(below).sum(axis, keepdims=True))).astype(x.dtype).reshape(call.input(0).shape)]


operator("SwiGLU", 188, "A B -> Y", "Swish of one input times the other one.")

"""Element-wise operators: arithmetic, comparisons, logic, activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nnbridge.converters.draft import Value
from nnbridge.types import OperandCode, OperationCode
from nnbridge_onnx.graph import Dims
from nnbridge_onnx.lowering import Lowerer, lowers
from nnbridge_onnx.values import INT64

C = OperationCode

_ARITHMETIC = {"Add": C.ADD, "Sub": C.SUB, "Mul": C.MUL, "Div": C.DIV}
_PAIRS = {
    "Pow": C.POW,
    "Equal": C.EQUAL,
    "Greater": C.GREATER,
    "GreaterOrEqual": C.GREATER_EQUAL,
    "Less": C.LESS,
    "LessOrEqual": C.LESS_EQUAL,
    "And": C.LOGICAL_AND,
    "Or": C.LOGICAL_OR,
    "Xor": C.NOT_EQUAL,
    "PRelu": C.PRELU,
}
_UNARY = {
    "Relu": C.RELU,
    "Sigmoid": C.LOGISTIC,
    "Tanh": C.TANH,
    "Abs": C.ABS,
    "Neg": C.NEG,
    "Exp": C.EXP,
    "Log": C.LOG,
    "Sqrt": C.SQRT,
    "Floor": C.FLOOR,
    "Sin": C.SIN,
    "HardSwish": C.HARD_SWISH,
    "Not": C.LOGICAL_NOT,
}


@lowers(*_ARITHMETIC)
def _arithmetic(to: Lowerer) -> None:
    to.require_exact()
    inputs, images = to.alike(0, 1)
    to.require_numbers(*inputs)
    to.require(_ARITHMETIC[to.node.type] != C.DIV or to.is_float(inputs[0]), "floating values", "integers (NNAPI rounds down)")
    to.finish_alike(_ARITHMETIC[to.node.type], [*inputs, to.activation()], images)


@lowers(*_PAIRS)
def _pair(to: Lowerer) -> None:
    inputs, images = to.alike(0, 1)
    to.require_numbers(*inputs)
    to.require(to.node.type != "Pow" or (to.is_float(inputs[0]) and inputs[0].type == inputs[1].type), "floats of one type")
    to.finish_alike(_PAIRS[to.node.type], inputs, images)


@lowers("Min", "Max", "Sum", "Mean")
def _many(to: Lowerer) -> None:
    """Any number of inputs, two at a time."""
    if to.node.type in ("Sum", "Mean"):
        to.require_exact()
    inputs, images = to.alike(*range(len(to.node.inputs)))
    to.require_numbers(*inputs)
    to.require(len(inputs) > 1, "two inputs or more", len(inputs))
    codes = {"Min": C.MINIMUM, "Max": C.MAXIMUM, "Sum": C.ADD, "Mean": C.ADD}
    extra = [to.scalar(0)] if codes[to.node.type] is C.ADD else []
    to.require(to.node.type != "Mean" or to.is_float(inputs[0]), "floating values", "integers")
    total = inputs[0]
    for value in inputs[1:-1]:
        total = to.emit(codes[to.node.type], [total, value, *extra], to.temporary(total))
    last = [total, inputs[-1], *([to.activation()] if to.node.type == "Sum" else extra)]
    if to.node.type != "Mean":
        to.finish_alike(codes[to.node.type], last, images)
        return
    total = to.emit(C.ADD, last, to.temporary(total))
    to.finish_alike(C.MUL, [total, to.real([1 / len(inputs)], total), to.scalar(0)], images)


@lowers(*_UNARY)
def _unary(to: Lowerer) -> None:
    to.require_exact()
    (x,), images = to.alike(0)
    to.require_numbers(x)
    to.finish_alike(_UNARY[to.node.type], [x], images)


@lowers("Clip")
def _clip(to: Lowerer) -> None:
    """RELU6, RELU1 or RELU where the bounds say so, else MAXIMUM and MINIMUM."""
    (x,), images = to.alike(0)
    low, high = _bound(to, "min", 1), _bound(to, "max", 2)
    known: dict[tuple[float | None, float | None], OperationCode] = {
        (0.0, 6.0): C.RELU6,
        (-1.0, 1.0): C.RELU1,
        (0.0, None): C.RELU,
    }
    code = known.get((low, high)) if to.is_float(x) else None
    if code is not None:
        to.finish_alike(code, [x], images)
        return
    bounds = [(code, v) for code, v in ((C.MAXIMUM, low), (C.MINIMUM, high)) if v is not None]
    for code, bound in bounds[:-1]:
        x = to.emit(code, [x, _one(to, x, bound)], to.temporary(x))
    if not bounds:
        to.finish_alike(C.MAXIMUM, [x, x], images)
        return
    code, bound = bounds[-1]
    to.finish_alike(code, [x, _one(to, x, bound)], images)


def _bound(to: Lowerer, attribute: str, position: int) -> float | None:
    if attribute in to.node.attributes:
        return float(to.attribute(attribute))
    array = to.optional_constant(position)
    if array is None or (array.dtype.kind == "f" and not math.isfinite(array.item())):
        return None
    return float(array.item())


def _one(to: Lowerer, like: Value, number: float) -> Value:
    """A constant of one element beside a tensor."""
    if like.type == OperandCode.TENSOR_INT32:
        return to.vector([int(number)])
    return to.real([number], like)


# -- by decomposition --------------------------------------------------------------------------------------------------

Build = Callable[["_Steps", Value], Value]


class _Steps:
    """A chain of element-wise operations on temporaries of one type."""

    def __init__(self, to: Lowerer, like: Value) -> None:
        self.to = to
        self._like = like

    def do(self, code: OperationCode, *inputs: Value | float) -> Value:
        """One operation; numbers become constants."""
        values = [v if isinstance(v, Value) else self.to.real([v], self._like) for v in inputs]
        extra = [self.to.scalar(0)] if code in (C.ADD, C.SUB, C.MUL, C.DIV) else []
        return self.to.emit(code, [*values, *extra], self.to.temporary(self._like))


def _erf(s: _Steps, x: Value) -> Value:
    """Abramowitz and Stegun 7.1.26 with its sign from tanh's branch: |error| below 1.5e-7."""
    size = s.do(C.ABS, x)
    t = s.do(C.DIV, 1.0, s.do(C.ADD, s.do(C.MUL, size, 0.3275911), 1.0))
    total: Value = s.do(C.ADD, s.do(C.MUL, t, 1.061405429), -1.453152027)
    for coefficient in (1.421413741, -0.284496736, 0.254829592):
        total = s.do(C.ADD, s.do(C.MUL, total, t), coefficient)
    tail = s.do(C.MUL, s.do(C.MUL, total, t), s.do(C.EXP, s.do(C.MUL, s.do(C.MUL, size, size), -1.0)))
    positive = s.do(C.SUB, 1.0, tail)
    # The sign: -1, 0 or 1, as x / max(|x|, tiny).
    return s.do(C.MUL, positive, s.do(C.DIV, x, s.do(C.MAXIMUM, size, 1e-30)))


def _gelu(s: _Steps, x: Value) -> Value:
    half = s.do(C.MUL, x, 0.5)
    if s.to.attribute("approximate", "none") == "tanh":
        cube = s.do(C.MUL, s.do(C.MUL, s.do(C.MUL, x, x), x), 0.044715)
        inner = s.do(C.TANH, s.do(C.MUL, s.do(C.ADD, x, cube), math.sqrt(2 / math.pi)))
    else:
        inner = _erf(s, s.do(C.MUL, x, math.sqrt(0.5)))
    return s.do(C.MUL, half, s.do(C.ADD, inner, 1.0))


def _leaky(s: _Steps, x: Value) -> Value:
    slope = float(s.to.attribute("alpha", 0.01))
    return s.do(C.ADD, s.do(C.MAXIMUM, x, 0.0), s.do(C.MUL, s.do(C.MINIMUM, x, 0.0), slope))


def _hard_sigmoid(s: _Steps, x: Value) -> Value:
    scaled = s.do(C.ADD, s.do(C.MUL, x, float(s.to.attribute("alpha", 0.2))), float(s.to.attribute("beta", 0.5)))
    return s.do(C.MINIMUM, s.do(C.MAXIMUM, scaled, 0.0), 1.0)


def _elu(s: _Steps, x: Value) -> Value:
    return s.to.emit(C.ELU, [x, s.to.like_scalar(x, float(s.to.attribute("alpha", 1.0)))], s.to.temporary(x))


def _selu(s: _Steps, x: Value) -> Value:
    alpha = float(s.to.attribute("alpha", 1.67326319217681884765625))
    return s.do(
        C.MUL,
        s.to.emit(C.ELU, [x, s.to.like_scalar(x, alpha)], s.to.temporary(x)),
        float(s.to.attribute("gamma", 1.05070102214813232421875)),
    )


def _softplus(s: _Steps, x: Value) -> Value:
    """max(x, 0) + log(1 + exp(-|x|)), which does not overflow."""
    tail = s.do(C.LOG, s.do(C.ADD, s.do(C.EXP, s.do(C.MUL, s.do(C.ABS, x), -1.0)), 1.0))
    return s.do(C.ADD, s.do(C.MAXIMUM, x, 0.0), tail)


def _celu(s: _Steps, x: Value) -> Value:
    alpha = float(s.to.attribute("alpha", 1.0))
    inner = s.to.emit(C.ELU, [s.do(C.DIV, x, alpha), s.to.like_scalar(x, 1.0)], s.to.temporary(x))
    return s.do(C.MUL, inner, alpha)


def _thresholded(s: _Steps, x: Value) -> Value:
    above = s.to.emit(
        C.GREATER, [x, s.to.real([float(s.to.attribute("alpha", 1.0))], x)], Value(OperandCode.TENSOR_BOOL8, x.dims)
    )
    s.to.values.draft.spend(math.prod(x.dims))
    return s.to.emit(C.SELECT, [above, x, s.to.real(np.zeros(x.dims), x)], s.to.temporary(x))


_CHAINS: dict[str, Build] = {
    "Erf": _erf,
    "Gelu": _gelu,
    "LeakyRelu": _leaky,
    "HardSigmoid": _hard_sigmoid,
    "Elu": _elu,
    "Selu": _selu,
    "Softplus": _softplus,
    "Mish": lambda s, x: s.do(C.MUL, x, s.do(C.TANH, _softplus(s, x))),
    "Softsign": lambda s, x: s.do(C.DIV, x, s.do(C.ADD, s.do(C.ABS, x), 1.0)),
    "Swish": lambda s, x: s.do(C.MUL, x, s.do(C.LOGISTIC, s.do(C.MUL, x, float(s.to.attribute("alpha", 1.0))))),
    "Celu": _celu,
    "ThresholdedRelu": _thresholded,
    "Reciprocal": lambda s, x: s.do(C.DIV, 1.0, x),
    "Ceil": lambda s, x: s.do(C.MUL, s.do(C.FLOOR, s.do(C.MUL, x, -1.0)), -1.0),
    "Cos": lambda s, x: s.do(C.SIN, s.do(C.ADD, x, math.pi / 2)),
    "Sinh": lambda s, x: s.do(C.MUL, s.do(C.SUB, s.do(C.EXP, x), s.do(C.EXP, s.do(C.MUL, x, -1.0))), 0.5),
    "Cosh": lambda s, x: s.do(C.MUL, s.do(C.ADD, s.do(C.EXP, x), s.do(C.EXP, s.do(C.MUL, x, -1.0))), 0.5),
}


@lowers("LeakyRelu")
def _leaky_relu(to: Lowerer) -> None:
    """PRELU with one slope."""
    (x,), images = to.alike(0)
    to.require(to.is_float(x), "floating values", OperandCode(x.type).name, x.name)
    to.finish_alike(C.PRELU, [x, to.real([float(to.attribute("alpha", 0.01))], x)], images)


@lowers(*_CHAINS)
def _chain(to: Lowerer) -> None:
    (x,), images = to.alike(0)
    to.require(to.is_float(x), "floating values", OperandCode(x.type).name, x.name)
    to.require(x.dims and 0 not in x.dims, "an input of known shape (see --shape)", list(x.dims), x.name)
    result = _CHAINS[to.node.type](_Steps(to, x), x)
    result.name = to.node.outputs[0]
    if images:
        to.image_result(result)
    else:
        to.result(result)


@lowers("Cast", "CastLike")
def _cast(to: Lowerer) -> None:
    """CAST between the types that NNAPI has, bytes as numbers; booleans go by comparison and selection."""
    (x,), images = to.alike(0)
    out = to.output()
    if to.values.tensor(to.name(0)).type == to.values.tensor(to.node.outputs[0]).type:
        to.values.alias(to.node.outputs[0], to.name(0))
        return
    if x.type == out.type == OperandCode.TENSOR_INT32:
        to.result(x)
        return
    wide = to.values.tensor(to.node.outputs[0]).type == INT64
    to.require(not wide or not to.is_float(x), "whole numbers for int64", OperandCode(x.type).name)
    plain = (OperandCode.TENSOR_FLOAT16, OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_INT32)
    bytes_ = (OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED)
    if out.type == OperandCode.TENSOR_BOOL8:
        to.require(x.type in plain, "numbers to compare with 0", OperandCode(x.type).name)
        to.finish_alike(C.NOT_EQUAL, [x, _one(to, x, 0)], images)
        return
    to.require(out.type in plain, "float16, float32 or int32", OperandCode(out.type).name)
    if x.type == OperandCode.TENSOR_BOOL8:
        to.require(x.dims and 0 not in x.dims, "an input of known shape (see --shape)", list(x.dims), x.name)
        to.finish_alike(C.SELECT, [x, *(_full(to, out, x.dims, number) for number in (1, 0))], images)
        return
    to.require(x.type in (*plain, *bytes_), "numbers", OperandCode(x.type).name)
    to.finish_alike(C.CAST, [x], images)


def _full(to: Lowerer, like: Value, dims: Dims, number: int) -> Value:
    """A constant of one number everywhere."""
    to.values.draft.spend(math.prod(dims))
    if like.type == OperandCode.TENSOR_INT32:
        return to.values.draft.ints([number] * math.prod(dims), dims)
    return to.real(np.full(dims, number), like)


@lowers("Identity", "Dropout")
def _identity(to: Lowerer) -> None:
    """One name more for a value."""
    to.require(len([n for n in to.node.outputs if n]) == 1, "one output", len(to.node.outputs))
    training = to.optional_constant(2) if to.node.type == "Dropout" else None
    to.require(training is None or not training.item(), "inference", "training_mode")
    to.values.alias(to.node.outputs[0], to.name(0))


@lowers("Sign")
def _sign(to: Lowerer) -> None:
    """The difference of two comparisons, as numbers."""
    (x,), images = to.alike(0)
    to.require(to.is_float(x) and x.dims and 0 not in x.dims, "floating values of known shape", list(x.dims), x.name)
    steps = _Steps(to, x)
    ones = to.real(np.ones(x.dims), x)
    zeros = to.real(np.zeros(x.dims), x)
    parts: list[Any] = []
    for code in (C.GREATER, C.LESS):
        holds = to.emit(code, [x, to.real([0.0], x)], Value(OperandCode.TENSOR_BOOL8, x.dims))
        parts.append(to.emit(C.SELECT, [holds, ones, zeros], to.temporary(x)))
    result = steps.do(C.SUB, *parts)
    result.name = to.node.outputs[0]
    (to.image_result if images else to.result)(result)

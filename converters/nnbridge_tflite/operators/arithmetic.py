"""Arithmetic of two tensors, which are broadcast."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from nnbridge.converters.declaration import Option, lowers
from nnbridge.converters.folding import Folding, elements_broadcast
from nnbridge.converters.rules import since
from nnbridge.errors import Why
from nnbridge.extensions import HostKernel
from nnbridge.operations.arithmetic import mbqm, quantize_multiplier, rdbp, saturate, squared_differences
from nnbridge.types import FLOATS, QUANT8, OperandCode, OperationCode
from nnbridge_tflite import dims
from nnbridge_tflite.declaration import FUSED, TfliteOperator, inputs
from nnbridge_tflite.host.numbers import Array, Options, Tensors, activated, centred_integers, ended, real, stored
from nnbridge_tflite.host.sixteen_bits import centred, clamped
from nnbridge_tflite.loads import (
    ACTIVATED,
    ACTIVATED_IF_SCALED,
    BINARY,
    ONE_SHAPE,
    ONE_TYPE,
    OUT,
    QUANTISED,
    Prepare,
    PreparedOperator,
    alike,
    no_zero_point,
    parameters,
    requires,
    typed,
)
from nnbridge_tflite.lowerer import INT32, Lowerer, through_float
from nnbridge_tflite.operators.elementwise import host_as_stored
from nnbridge_tflite.rules import (
    FLOAT,
    FLOAT_QUANT8,
    NUMBERS,
    RANK_4,
    Condition,
    DelegateRule,
    OperatorView,
    Past,
    first_type,
    from_level,
    input_in,
    no_activation,
    version_at_most,
)


def _shifts(node: PreparedOperator) -> list[float] | None:
    """The scales of 16-bit operands that the kernel computes by shifts: powers of two, where the option says so."""
    scales = [parameters(one)[0] for one in node.there((0, 1, OUT))]
    powers = all(scale > 0 and abs(math.log2(scale) - round(math.log2(scale))) < 1e-3 for scale in scales)
    return scales if node.type(0) == "INT16" and node.option("pot_scale_int16") and powers and len(scales) == 3 else None


SHIFTED = requires(
    "16-bit scales of which the output's is the larger of the inputs', where all are powers of two",
    lambda node: (scales := _shifts(node)) is None or abs(math.log2(scales[2] / max(scales[:2]))) < 0.5,
    lambda node: ", ".join(f"{scale:g}" for scale in _shifts(node) or ()),
    Why.QUANTISATION_PARAMETERS,
)

SIGNED = OperandCode.TENSOR_QUANT8_ASYMM_SIGNED


def _host_binary(function: Callable[[Array, Array], Array]) -> HostKernel:
    def run(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
        return [stored(activated(function(real(inputs[0]), real(inputs[1])), options), outputs[0])]

    return run


def binary(
    name: str, summary: str, function: Callable[[Array, Array], Array] | None, code: OperationCode | None = None, **facts: Any
) -> TfliteOperator:
    """An operator that applies a function to pairs of elements; ``code`` is NNAPI's operation of the same meaning."""
    declared = TfliteOperator(name, summary, inputs("a", "b"), folding=Folding(elements_broadcast), elementwise=True, **facts)
    if function is not None:
        declared.host_kernel((host_as_stored if declared.as_stored else _host_binary)(function))
    if code is not None:
        declared.lowering()(lambda to: to.finish(code, to.input(0), to.input(1)))
    return declared


def _scalars_are_constant(node: OperatorView) -> bool:
    return all(t is None or t.shape or node.constant(i) for i in (0, 1) for t in [node.input(i)])


_INT32 = (no_activation(("INT32",)), from_level(4, "int32", lambda node: node.type(0) != "INT32"))
_CONDITIONS = (*_INT32, since("2.12", RANK_4))
_NO_INT32 = Past(until="2.3", types=FLOAT_QUANT8)
_LARGER = DelegateRule(
    version=3,
    level=3,
    types=NUMBERS,
    conditions=(Condition("scalars that are constant", _scalars_are_constant, first_type, kind=Why.NOT_CONSTANT),),
)
_FLOATS_FIRST = from_level(3, "8-bit tensors", lambda node: node.type(0) in ("FLOAT32", "INT32"))
_SHIFT16 = Option("pot_scale_int16", False, "scales of 16-bit tensors may be powers of two, which are then computed by shifts")


def _multiplies(node: PreparedOperator) -> bool:
    """True if products of constants, which the kernel computes when it is prepared, have types that it multiplies."""
    if any(node.stored(one) is None for one in node.inputs):
        return True
    scaled = [bool(one.quantisation.scales) for one in node.there((0, OUT))]
    eight = bool({node.type(0), node.type(OUT)} & {"UINT8", "INT8"}) or (node.type(0) == "INT16" and all(scaled))
    return (
        node.type(0) in _PRODUCTS and node.type(OUT) in (*_PRODUCTS, "FLOAT16") and (not eight or node.type(0) == node.type(OUT))
    )


_PRODUCTS = ("FLOAT32", "COMPLEX64", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT32")
_MULTIPLIED = requires("constants of types that the kernel multiplies", _multiplies, kind=Why.INPUT_TYPE)
_REAL_ACTIVATED = requires(
    "no fused activation of complex numbers",
    lambda node: node.type(OUT) != "COMPLEX64" or not node.option("fused_activation_function"),
    kind=Why.ACTIVATION,
)


def _rescales(node: PreparedOperator, *, larger: bool) -> bool:
    """True if quantised terms have scales that the kernel divides by, else LiteRT ends. ``larger``: an output's may be any."""
    if node.type(0) not in QUANTISED or (node.type(0) == "INT16" and _shifts(node) is not None):
        return True
    scales = [parameters(one)[0] for one in node.there((0, 1, OUT))]
    if node.type(0) == "INT16" and not larger and not (any(scales) and node.there((0,))[0].quantisation.scales):
        return True  # numbers as they are stored
    steps = 2 ** (15 if node.type(0) == "INT16" else 20)
    return min(scales[:2]) > 0 and (larger or 2 * max(scales[:2]) < steps * scales[-1])


def _rescaled(*, larger: bool) -> Prepare:
    return requires(
        "scales above 0 that fit each other, without which LiteRT ends the process",
        lambda node: _rescales(node, larger=larger),
        lambda node: tuple(f"{parameters(one)[0]:g}" for one in node.there((0, 1, OUT))),
        Why.QUANTISATION_PARAMETERS,
    )


_TERMS_CENTRED = no_zero_point("16-bit integers with a zero point of 0", QUANTISED, 0, 1, OUT, beside=("INT16",))
_RANKS = requires("inputs of one rank", lambda node: len(node.shape(0)) == len(node.shape(1)), kind=Why.RANK)


def _squares_rescale(node: PreparedOperator) -> bool:
    """True if the squares of 8-bit terms, shifted by twice 7 bits, are below a step of the output."""
    if node.type(0) != "INT8":
        return True
    *scales, out = (parameters(one)[0] for one in node.there((0, 1, OUT)))
    return min(scales) > 0 and out > 0 and (2 * max(scales)) ** 2 < 2**14 * out


_EIGHT_BITS = replace(_rescaled(larger=True), holds=_squares_rescale)
ADD = binary(
    "ADD",
    "a + b",
    np.add,
    options=(FUSED, _SHIFT16),
    delegate=DelegateRule(version=2, types=NUMBERS, conditions=_CONDITIONS, past=(_NO_INT32,)),
    versions=(1, 6),
    loads=(*BINARY, _TERMS_CENTRED, SHIFTED, _rescaled(larger=False), ACTIVATED_IF_SCALED),
    writes_type=1,
)
SUB = binary(
    "SUB",
    "a - b",
    np.subtract,
    options=(FUSED, _SHIFT16),
    delegate=DelegateRule(version=3, level=2, types=NUMBERS, conditions=(*_INT32, RANK_4, _FLOATS_FIRST), past=(_NO_INT32,)),
    versions=(1, 5),
    loads=(*BINARY, _TERMS_CENTRED, SHIFTED, _rescaled(larger=True), ACTIVATED),
    writes_type=1,
)
MUL = binary(
    "MUL",
    "a · b",
    np.multiply,
    options=(FUSED,),
    known_when_prepared=True,
    delegate=DelegateRule(
        version=3,
        types=NUMBERS,
        conditions=(*_CONDITIONS, version_at_most(2, lambda node: node.accelerated)),
        past=(_NO_INT32, Past(until="2.5", version=2)),
    ),
    versions=(1, 8),
    loads=(*BINARY, _REAL_ACTIVATED, _MULTIPLIED, ACTIVATED_IF_SCALED),
)
DIV = binary(
    "DIV",
    "a / b; integers are rounded towards zero.",
    None,
    options=(FUSED,),
    delegate=DelegateRule(version=1, level=2, types=FLOAT, conditions=(since("2.12", RANK_4),)),
    versions=(1, 2),
    loads=(*BINARY, ACTIVATED),
    writes_type=1,
)
MAXIMUM = binary(
    "MAXIMUM",
    "The larger of a and b.",
    np.maximum,
    OperationCode.MAXIMUM,
    delegate=_LARGER,
    versions=(1, 4),
    loads=(*BINARY,),
    writes_type=0,
)
MINIMUM = binary(
    "MINIMUM",
    "The smaller of a and b.",
    np.minimum,
    OperationCode.MINIMUM,
    delegate=_LARGER,
    versions=(1, 4),
    loads=(*BINARY,),
    writes_type=0,
)
POW = binary(
    "POW",
    "a to the power of b.",
    np.power,
    OperationCode.POW,
    delegate=DelegateRule(version=1, level=3, types=FLOAT),
    loads=(*BINARY, typed(0, "FLOAT32", "INT32")),
    writes_type=0,
)
SQUARED_DIFFERENCE = binary(
    "SQUARED_DIFFERENCE",
    "(a - b)²",
    lambda a, b: np.square(a - b),
    delegate=DelegateRule(
        version=2,
        level=2,
        types=NUMBERS,
        conditions=(RANK_4, input_in("FLOAT32", "UINT8", below=4), input_in("FLOAT32", below=3)),
        since="2.7",
    ),
    versions=(1, 2),
    loads=(*BINARY, _EIGHT_BITS),
    writes_type=1,
)


def _floored(a: Array, b: Array) -> Array:
    """Of floats the quotient, rounded down; NumPy's own works with the remainder, which is NaN of infinity."""
    found: Array = np.floor(a / b) if a.dtype.kind == "f" else np.floor_divide(a, b)
    return found


FLOOR_DIV = binary(
    "FLOOR_DIV",
    "⌊a / b⌋",
    _floored,
    as_stored=True,
    versions=(1, 3),
    loads=(*BINARY, typed(0, "FLOAT32", "INT32", "INT16", "INT8")),
    writes_type=0,
)
FLOOR_MOD = binary(
    "FLOOR_MOD",
    "a - ⌊a / b⌋ · b",
    np.mod,
    as_stored=True,
    versions=(1, 2),
    loads=(*BINARY, typed(0, "FLOAT32", "INT32", "INT16", "INT8", "INT64")),
    writes_type=0,
)
ATAN2 = binary(
    "ATAN2",
    "The angle of the point (b, a).",
    np.arctan2,
    loads=(_RANKS, alike(0, 1, OUT), typed(0, "FLOAT32", "FLOAT64", "FLOAT16", "BFLOAT16")),
)
BITWISE_XOR = binary("BITWISE_XOR", "Bits that differ.", np.bitwise_xor, as_stored=True, loads=(*BINARY,), writes_type=0)
RIGHT_SHIFT = binary(
    "RIGHT_SHIFT", "a shifted right by b bits, with its sign.", np.right_shift, as_stored=True, loads=(*BINARY,), writes_type=0
)
ADD_N = TfliteOperator(
    "ADD_N",
    "The sum of all inputs.",
    inputs("terms*"),
    loads=(requires("two inputs at least", lambda node: len(node.operator.inputs) > 1), ONE_SHAPE, ONE_TYPE),
    dims=dims.like(),
    writes_type=0,
)


@lowers(ADD, DIV, MUL, SUB)
def arithmetic(to: Lowerer) -> None:
    """The operation of the same meaning, with its fused activation."""
    truncates = to.name == "DIV" and to.input(0).type == INT32
    to.require(not truncates, "a division of floats (NNAPI's integer division rounds down, TFLite's to zero)", to.declared(0))
    to.require(to.name != "DIV" or to.input(0).type not in QUANT8, "a division of floats", to.declared(0))
    fused = to.option("fused_activation_function")
    to.require(to.input(0).type != INT32 or not fused, "no activation of integers", fused)
    to.finish_fused(OperationCode[to.name], to.input(0), to.input(1))


through_float(DIV, MAXIMUM, MINIMUM, POW)


@DIV.host_kernel
def host_divide(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Division; integers are rounded towards zero, and end at the largest: LiteRT clamps the lowest divided by -1."""
    a, b = real(inputs[0]), real(inputs[1])
    if a.dtype.kind in "iu":
        if (b == 0).any():
            raise ZeroDivisionError("division by zero")
        wide, by = a.astype(np.int64), b.astype(np.int64)
        quotients = np.sign(wide) * np.sign(by) * (np.abs(wide) // np.abs(by))
        return [saturate(activated(quotients, options), outputs[0].dtype)]
    return [stored(activated(a / b, options), outputs[0])]


@SQUARED_DIFFERENCE.lowering()
def squared_difference(to: Lowerer) -> None:
    """(a − b)²; 8-bit tensors by float32, because a difference has no parameters of its own, but for the delegate."""
    if to.out.type in QUANT8 and not to.free:
        largest = (127 if to.out.type == SIGNED else 255) - to.out.zero_point
        scale = 2 * math.sqrt(max(largest, 0) * to.out.scale) / 254
        to.require(scale > 0, "an output that reaches above 0", to.declared_output())
        middle = 0 if to.out.type == SIGNED else 128
        step = to.emit(OperationCode.SUB, *to.inputs(), like=to.out, dims=to.out.dims, scale=scale, zero_point=middle)
        to.finish(OperationCode.MUL, step, step)
        return
    real = [to.dequantised(v) if v.type in QUANT8 else v for v in to.inputs()]
    difference = to.emit(OperationCode.SUB, *real, dims=to.out.dims)
    if to.out.type not in QUANT8:
        to.finish(OperationCode.MUL, difference, difference)
        return
    to.finish_quantised(to.emit(OperationCode.MUL, difference, difference))


@SQUARED_DIFFERENCE.integer_kernel
def squared_difference_integers(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """On a common scale, rounded once more when it is squared."""
    a, b, out = *inputs, outputs[0]
    steps = squared_differences(centred_integers(a), centred_integers(b), (a.scale, b.scale), out.scale)
    return [saturate(steps + out.zero_point, out.dtype)]


@FLOOR_DIV.lowering(wide=True)
def floor_div(to: Lowerer) -> None:
    """NNAPI's integer division rounds down; floats are divided, then floored."""
    if to.input(0).type == INT32:
        to.finish(OperationCode.DIV, to.input(0), to.input(1))
        return
    to.require(to.input(0).type in FLOATS, "floats or int32", to.declared(0))
    to.finish(OperationCode.FLOOR, to.emit(OperationCode.DIV, to.input(0), to.input(1), dims=to.out.dims))


@FLOOR_MOD.lowering(wide=True)
def floor_mod(to: Lowerer) -> None:
    """a − ⌊a / b⌋ · b on integers; on floats the rounding of the quotient would show."""
    a, b = to.inputs()
    to.require(a.type == INT32, "int32", to.declared(0))
    quotient = to.emit(OperationCode.DIV, a, b, dims=to.out.dims)
    to.finish(OperationCode.SUB, a, to.emit(OperationCode.MUL, quotient, b), to.scalar(0))


@ADD_N.lowering(wide=True)
def add_n(to: Lowerer) -> None:
    """A chain of additions."""
    total, *rest = to.inputs()
    to.require(rest and total.type in (*FLOATS, INT32), "two or more float or int32 tensors", to.declared(0))
    for value in rest[:-1]:
        total = to.emit(OperationCode.ADD, total, value)
    to.finish(OperationCode.ADD, total, rest[-1])


@ADD_N.host_kernel
def host_add_n(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    total = real(inputs[0])
    for tensor in inputs[1:]:
        total = ended(total + real(tensor))
    return [stored(total, outputs[0])]


@MUL.integer_kernel
def mul_integers(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Products, rescaled by a quotient of float32 numbers."""
    a, b, out = inputs[0], inputs[1], outputs[0]
    factor = quantize_multiplier(float(np.float32(a.scale) * np.float32(b.scale) / np.float32(out.scale)))
    products = centred(a).astype(np.int64) * centred(b).astype(np.int64)
    return [clamped(mbqm(products, *factor) + out.zero_point, out, options)]


def _power_of_two(scale: float) -> int | None:
    """The exponent of a scale that LiteRT takes for a power of two: its logarithm is whole to a thousandth."""
    logarithm = math.log2(scale) if scale > 0 else 0.5
    exponent = round(logarithm)
    return exponent if abs(logarithm - exponent) < 1e-3 else None


def _sum_16_bit(inputs: Tensors, outputs: Tensors, options: Options, *, sign: int) -> Sequence[Array]:
    """Sums or differences on a common scale with 15 bits more; of scales that are powers of two, on the output's."""
    a, b, out = inputs[0], inputs[1], outputs[0]
    powers = [power for t in (a, b, out) if (power := _power_of_two(t.scale)) is not None]
    if options["pot_scale_int16"] and len(powers) == 3:
        shifts = [powers[2] - power for power in powers[:2]]
        if min(shifts) != 0 or any(t.zero_point for t in (a, b, out)):
            raise ValueError("zero points of 0, and an output with the larger scale of the inputs where all are powers of two")
        first, second = (rdbp(centred_integers(t), shift) for t, shift in zip((a, b), shifts, strict=True))
        return [clamped(np.clip(first + sign * second, -(2**15), 2**15 - 1), out, options)]
    common = 2.0 * max(a.scale, b.scale)
    real_multiplier = common / ((1 << 15) * float(out.scale))
    if not real_multiplier < 1:  # LiteRT's ADD ends the process, its SUB shifts by a negative number; real sums saturate.
        raise ValueError(f"2 * max(input scales) / (2**15 * output scale) below 1, found {real_multiplier:g}")
    first, second = (mbqm(centred(t).astype(np.int64) << 15, *quantize_multiplier(float(t.scale) / common)) for t in (a, b))
    factor = quantize_multiplier(real_multiplier)
    return [clamped(mbqm(first + sign * second, *factor) + out.zero_point, out, options)]


ADD.kernel_16_bit(partial(_sum_16_bit, sign=1))
SUB.kernel_16_bit(partial(_sum_16_bit, sign=-1))

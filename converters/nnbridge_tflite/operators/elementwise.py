"""Element-wise functions of one tensor, and how such operators are declared, lowered and computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnbridge.converters.folding import Folding
from nnbridge.errors import Why
from nnbridge.extensions import HostKernel
from nnbridge.operations.arithmetic import saturate
from nnbridge.types import FLOATS, OperationCode
from nnbridge_tflite.declaration import TfliteOperator
from nnbridge_tflite.host import ordered
from nnbridge_tflite.host.numbers import (
    Arg,
    Array,
    Options,
    Tensors,
    by_table,
    centred_integers,
    data_of,
    quantised,
    quotient,
    real,
    requantised,
)
from nnbridge_tflite.host.sixteen_bits import is_sixteen, looked_up
from nnbridge_tflite.loads import OUT, QUANTISED, SAME, affine, no_zero_point, requires, typed, zero_centred
from nnbridge_tflite.lowerer import Lowerer, through_float
from nnbridge_tflite.rules import FLOAT, FLOAT_QUANT8, DelegateRule, Past, input_in

_COMPLEX = (
    typed(0, "COMPLEX64", "COMPLEX128"),
    requires(
        "an output of the input's precision",
        lambda node: (node.type(0), node.type(OUT)) in (("COMPLEX64", "FLOAT32"), ("COMPLEX128", "FLOAT64")),
        lambda node: f"{node.type(OUT)} for {node.type(0)}",
        Why.OUTPUT_TYPE,
    ),
)
_ROUNDED = (typed(0, "FLOAT32", "FLOAT16", "BFLOAT16"),)
_AFFINE = affine(("INT8", "INT16"), 0, OUT, loose=("INT16",))
_CENTRED = zero_centred(0, OUT)
_SCALED = (_AFFINE, replace(_CENTRED, holds=lambda node: not node.inputs[0].quantisation.scales or _CENTRED.holds(node)))

Function = Callable[[Array], Array]


def host_unary(function: Function) -> HostKernel:
    """A host kernel that applies a function to real numbers, for 8 bits as TFLite's tables do."""

    def run(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
        return [by_table(function(real(inputs[0])), outputs[0])]

    return run


def host_as_stored(function: Callable[..., Array]) -> HostKernel:
    """A host kernel that applies a function to integers as they are stored."""

    def run(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
        return [function(*map(data_of, inputs))]

    return run


def unary(
    name: str,
    summary: str,
    function: Function | None,
    code: OperationCode | None = None,
    *,
    integers: HostKernel | None = None,
    **facts: Any,
) -> TfliteOperator:
    """An operator that applies a function to each element; ``code`` is NNAPI's operation of the same meaning.

    ``integers`` computes quantised tensors as TFLite does. Without it they are computed as float32.
    """
    declared = TfliteOperator(name, summary, folding=Folding(), elementwise=True, **facts)
    if function is not None:
        declared.host_kernel((host_as_stored if declared.as_stored else host_unary)(function))
    if code is not None:
        declared.lowering()(lambda to: to.finish(code, to.input()))
        if integers is None:
            through_float(declared)
    if integers is not None:
        declared.integer_kernel(integers)
    return declared


def _absolute_integers(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, out = inputs[0], outputs[0]
    steps = np.abs(centred_integers(data))
    if data.scale == out.scale:
        return [saturate(steps + out.zero_point, out.dtype)]
    return [requantised(steps, quotient(data, out), out)]


def _root_integers(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """√x in whole steps: LiteRT cuts the rest off."""
    out = outputs[0]
    with np.errstate(all="ignore"):
        steps = np.trunc(np.sqrt(real(inputs[0])) / np.float32(out.scale)).astype(np.int64)
    return [saturate(steps + out.zero_point, out.dtype)]


_MATH = DelegateRule(version=1, level=3, types=FLOAT)
ABS = unary(
    "ABS",
    "|x|",
    np.abs,
    OperationCode.ABS,
    integers=_absolute_integers,
    delegate=_MATH,
    versions=(1, 5),
    loads=(SAME, typed(0, "FLOAT32", "INT8", "INT16", "INT32"), *_SCALED),
)
EXP = unary(
    "EXP",
    "e to the power of x",
    np.exp,
    OperationCode.EXP,
    tabled=True,
    delegate=_MATH,
    versions=(1, 2),
    loads=(no_zero_point("16-bit integers with a zero point of 0", QUANTISED, 0, OUT, beside=("INT16",)),),
    writes_type=0,
)
SIN = unary(
    "SIN",
    "sin x",
    np.sin,
    OperationCode.SIN,
    delegate=_MATH,
    versions=(1, 2),
    loads=(SAME, typed(0, "FLOAT32", "FLOAT16")),
)
SQRT = unary(
    "SQRT",
    "√x",
    np.sqrt,
    OperationCode.SQRT,
    integers=_root_integers,
    delegate=_MATH,
    versions=(1, 2),
    loads=(SAME, typed(0, "FLOAT32", "INT8", "INT16"), *_SCALED),
)
RSQRT = unary(
    "RSQRT",
    "1 / √x",
    lambda a: 1 / np.sqrt(a),
    OperationCode.RSQRT,
    tabled=True,
    delegate=DelegateRule(
        version=2,
        level=3,
        types=FLOAT_QUANT8,
        conditions=(input_in(*FLOAT, below=7),),
        past=(Past(until="2.7", version=1, types=FLOAT),),
    ),
    versions=(1, 3),
    loads=(SAME, typed(0, "FLOAT32", "INT8", "INT16"), *_SCALED),
)
COS = unary(
    "COS",
    "cos x",
    np.cos,
    delegate=DelegateRule(version=1, level=3, types=FLOAT, since="2.14"),
    versions=(1, 2),
    loads=(SAME, typed(0, "FLOAT32", "FLOAT16")),
)
FLOOR = unary("FLOOR", "⌊x⌋", np.floor, OperationCode.FLOOR, delegate=DelegateRule(version=1), loads=_ROUNDED, writes_type=0)
LOG = unary(
    "LOG",
    "Natural logarithm; the lowest quantised number where there is none.",
    None,
    OperationCode.LOG,
    delegate=_MATH,
    tabled=True,
    as_stored=True,
    versions=(1, 2),
    loads=(SAME, typed(0, "FLOAT32", "INT8", "INT16"), *_SCALED),
)
NEG = unary(
    "NEG",
    "-x",
    np.negative,
    OperationCode.NEG,
    delegate=DelegateRule(version=2, level=3, types=("FLOAT32", "INT32"), past=(Past(until="2.6", level=2),)),
    as_stored=True,
    writes_type=0,
)


def _magnitude(x: Array) -> Array:
    """Rounded as C's hypot, which computes float32 in float64."""
    return np.abs(x.astype(np.complex128)).astype(np.float32) if x.dtype == np.complex64 else np.hypot(x.real, x.imag)


CEIL, COMPLEX_ABS, IMAG, REAL, ROUND, SIGN, SQUARE, ZEROS_LIKE = (
    unary(name, summary, function, versions=(1, last), loads=loads)
    for name, summary, function, last, loads in (
        ("CEIL", "⌈x⌉", np.ceil, 1, (typed(0, "FLOAT32"),)),
        ("COMPLEX_ABS", "Magnitudes of complex numbers.", _magnitude, 1, _COMPLEX),
        ("IMAG", "Imaginary parts of complex numbers.", np.imag, 1, _COMPLEX),
        ("REAL", "Real parts of complex numbers.", np.real, 1, _COMPLEX),
        ("ROUND", "The nearest whole number, halves to even.", np.rint, 1, _ROUNDED),
        ("SIGN", "-1, 0 or 1.", np.sign, 2, (SAME,)),
        ("SQUARE", "x²", np.square, 1, (SAME, typed(0, "FLOAT32"))),
        ("ZEROS_LIKE", "Zeros of the input's shape and type.", np.zeros_like, 1, ()),
    )
)
for _operator in (CEIL, ROUND, ZEROS_LIKE):
    _operator.writes_type = 0


@EXP.kernel_16_bit
def exponential_16_bit(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """From a table of 513 positions."""
    return [looked_up(ordered.EXP, inputs[0], outputs[0])]


@RSQRT.kernel_16_bit
def inverse_root_16_bit(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """From a table of 513 positions, which has the output's largest number where there is no root."""
    most = np.float32(outputs[0].scale) * np.float32(32767 - outputs[0].zero_point)
    return [looked_up(lambda a: np.where(a > 0, 1 / np.sqrt(a), most).astype(np.float32), inputs[0], outputs[0])]


def _logarithm_16_bit(data: Arg, out: Arg) -> Array:
    """From a table of 513 positions, which has the output's lowest number where there is no logarithm."""
    least = np.float32(out.scale) * np.float32(-32768 - out.zero_point)
    return looked_up(lambda a: np.where(a > 0, ordered.LOG(np.maximum(a, 0)), least), data, out)


@LOG.host_kernel
def host_logarithm(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Natural logarithms; where there is none, quantised tensors hold the lowest number."""
    if is_sixteen(inputs):
        return [_logarithm_16_bit(inputs[0], outputs[0])]
    a = real(inputs[0])
    return [by_table(np.where(a > 0, np.log(a), -np.inf) if quantised(outputs[0]) else np.log(a), outputs[0])]


@SQUARE.lowering(wide=True)
def square(to: Lowerer) -> None:
    """x · x."""
    to.finish(OperationCode.MUL, to.input(0), to.input(0))


@COS.lowering()
def cosine(to: Lowerer) -> None:
    """sin(π/2 - x), as the delegate does it."""
    value = to.input(0)
    to.require(value.type in FLOATS, "floats", to.declared(0))
    to.finish(OperationCode.SIN, to.emit(OperationCode.SUB, to.fill(math.pi / 2, value, value.dims), value, to.scalar(0)))


@CEIL.lowering(wide=True)
def ceiling(to: Lowerer) -> None:
    """−⌊−x⌋."""
    to.finish(OperationCode.NEG, to.emit(OperationCode.FLOOR, to.emit(OperationCode.NEG, to.input(0))))

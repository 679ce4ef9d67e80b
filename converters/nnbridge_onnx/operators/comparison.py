"""Comparisons, logic and selection by conditions."""

from __future__ import annotations

import math

import numpy as np

from nnbridge.converters.draft import Value
from nnbridge.types import OperandCode
from nnbridge_onnx.declaration import BROADCAST, operator
from nnbridge_onnx.lowerer import C, Lowerer
from nnbridge_onnx.operators.elementwise import binary, evaluated, unary
from nnbridge_onnx.read.graph import Dims

binary("Equal", 54, C.EQUAL, "True where numbers are equal.")
binary("Greater", 70, C.GREATER, "True where the first number is larger.")
binary("GreaterOrEqual", 71, C.GREATER_EQUAL, "True where the first number is not smaller.")
binary("Less", 89, C.LESS, "True where the first number is smaller.")
binary("LessOrEqual", 90, C.LESS_EQUAL, "True where the first number is not larger.")
binary("And", 6, C.LOGICAL_AND, "True where both are.")
binary("Or", 120, C.LOGICAL_OR, "True where one of two is.")
binary("Xor", 203, C.NOT_EQUAL, "True where exactly one of two is.")
unary("Not", 115, C.LOGICAL_NOT, "True where the input is not.")
evaluated("IsInf", 83, "True where a number is infinite.", "X -> Y")
evaluated("IsNaN", 84, "True where a value is not a number.", "X -> Y")
WHERE = operator("Where", 202, "condition X Y -> output", "One input where a condition holds, else another.", folding=BROADCAST)


@WHERE.lowering()
def _where(to: Lowerer) -> None:
    """SELECT; its operands are brought into one shape."""
    shapes = [to.shape(i) for i in range(3)]
    if len(set(shapes)) == 1:
        inputs, images = to.aligned(0, 1, 2)
        to.finish(C.SELECT, *inputs, images=images)
        return
    shape = np.broadcast_shapes(*shapes) or (1,)
    to.require(0 not in shape, "an output with elements", list(shape))
    to.finish(C.SELECT, *(_spread(to, i, shape) for i in range(3)))


def _spread(to: Lowerer, i: int, shape: Dims) -> Value:
    """An input, repeated until it has a shape that it broadcasts to."""
    value, own = to.input(i), to.shape(i)
    if value.data is not None:
        to.draft.spend(math.prod(shape))
        return value.like(dims=shape, data=np.ascontiguousarray(np.broadcast_to(value.data.reshape(own), shape)))
    if own == shape:
        return value
    if value.type == OperandCode.TENSOR_BOOL8:
        # TILE does not support booleans; LOGICAL_OR repeats its operands by itself.
        to.draft.spend(math.prod(shape))
        return to.emit(C.LOGICAL_OR, value, Value(OperandCode.TENSOR_BOOL8, shape, data=np.zeros(shape, np.uint8)))
    wide = (1,) * (len(shape) - len(own)) + own
    if wide != value.dims:
        value = to.emit(C.RESHAPE, value, to.vector(wide))
    repeats = [n // d for d, n in zip(wide, shape, strict=True)]
    return value if set(repeats) == {1} else to.emit(C.TILE, value, to.vector(repeats))

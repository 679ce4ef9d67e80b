"""8-bit operations computed again as LiteRT's reference kernels compute them, where NNAPI's arithmetic is another one.

Each function takes a model of one operation, or of the few that stand for one of LiteRT's, and the values of its inputs; the
result is None where the model is of another form. ``like`` has the result's shape and type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from nnbridge.builder import ModelBuilder
from nnbridge.compare.arithmetics import operand_value
from nnbridge.compare.arrays import Array
from nnbridge.model import Model, Operand, Operation
from nnbridge.operations.arithmetic import mbqm, quantize_multiplier, saturate, squared_differences
from nnbridge.operations.matching import input_places
from nnbridge.operations.resizing import by_corners, neighbours
from nnbridge.types import OperationCode

Again: TypeAlias = Callable[[Model, Sequence[Array], Array], Array | None]
"""``again(model, inputs, like)``."""

_CONVERSIONS = {OperationCode.DEQUANTIZE, OperationCode.QUANTIZE}
"""What integers become that change scale or zero point."""
_COMPARISONS: Mapping[int, Callable[[Array, Array], Array]] = {
    OperationCode.EQUAL: np.equal,
    OperationCode.NOT_EQUAL: np.not_equal,
    OperationCode.GREATER: np.greater,
    OperationCode.GREATER_EQUAL: np.greater_equal,
    OperationCode.LESS: np.less,
    OperationCode.LESS_EQUAL: np.less_equal,
}
_COMMON_STEPS = 256
"""Steps of the scale on which LiteRT compares 8-bit numbers, in 1."""
_ALIGNMENT = ("align_corners", "half_pixel_centers")
_GATED = [OperationCode.MUL, OperationCode.MUL, OperationCode.MUL, OperationCode.ADD]
"""What TFLite's delegate makes of HARD_SWISH where NNAPI has no such operation."""


def resized_to_nearest(model: Model, inputs: Sequence[Array], like: Array) -> Array | None:
    """RESIZE_BILINEAR of uint8: the float32 sums of NNAPI's kernel and a half, truncated. Of int8 both compute in integers."""
    flags = _alignment(model)
    if flags is None or len(inputs) != 1 or inputs[0].dtype != np.uint8 or like.dtype != np.uint8:
        return None
    rows, columns = (neighbours(inputs[0].shape[k], like.shape[k], **flags) for k in (1, 2))
    sums: Array = by_corners(rows, columns)(inputs[0])
    return (sums + np.float32(0.5)).astype(np.uint8)


def _alignment(model: Model) -> dict[str, bool] | None:
    """Flags of a lone RESIZE_BILINEAR; None of other models, and of NCHW."""
    operation = model.main.operations[0]
    if len(model.main.operations) > 1 or operation.type != OperationCode.RESIZE_BILINEAR:
        return None
    flags = {name: _flag(model, operation, name) for name in ("nchw", *_ALIGNMENT)}
    if flags.pop("nchw") is not False or None in flags.values():
        return None
    return {name: bool(flag) for name, flag in flags.items()}


def rescaled(model: Model, inputs: Sequence[Array], like: Array) -> Array | None:
    """Integers that change scale or zero point by two conversions, rescaled by LiteRT's multiplier instead."""
    main = model.main
    if {operation.type for operation in main.operations} != _CONVERSIONS or len(main.inputs) != 1:
        return None
    first, last = main.operands[main.inputs[0]], main.operands[main.outputs[0]]
    if not first.scale or not last.scale:
        return None
    result = mbqm(_steps(inputs[0], first), *quantize_multiplier(first.scale / last.scale))
    return saturate(result + last.zero_point, like.dtype).reshape(like.shape)


def compared(model: Model, inputs: Sequence[Array], like: Array) -> Array | None:
    """A comparison of 8-bit numbers on LiteRT's common scale."""
    return _compared(model, inputs, mbqm)


def compared_by_sign(model: Model, inputs: Sequence[Array], like: Array) -> Array | None:
    """The same where a scale is 1 or more: it asks for a shift to the left, and what LiteRT has instead leaves 1 or -1."""
    return _compared(
        model, inputs, lambda x, multiplier, shift: np.where(x < 0, -1, 1) if shift > 0 else mbqm(x, multiplier, shift)
    )


def _compared(model: Model, inputs: Sequence[Array], rescale: Callable[[Array, int, int], Array]) -> Array | None:
    main = model.main
    first, sides = main.operations[0], []
    if len(main.operations) > 1 or first.type not in _COMPARISONS or not all(main.operands[i].scale for i in first.inputs):
        return None
    for i in first.inputs:
        steps = _steps(_value(model, inputs, i), main.operands[i]) * _COMMON_STEPS
        sides.append(rescale(steps, *quantize_multiplier(main.operands[i].scale)))
    return _COMPARISONS[first.type](*sides)


def leaky_relu(model: Model, inputs: Sequence[Array], like: Array) -> Array | None:
    """8-bit LEAKY_RELU, which NNAPI has as PRELU of one slope: numbers below 0 have a multiplier of float32 arithmetic."""
    operation, operands = model.main.operations[0], model.main.operands
    if len(model.main.operations) > 1 or operation.type != OperationCode.PRELU:
        return None
    first, slope, last = (operands[i] for i in (*operation.inputs, *operation.outputs))
    value = model.value(slope)
    if value is None or value.size > 1 or not first.scale or not last.scale:
        return None
    steps, scale = _steps(_value(model, inputs, operation.inputs[0]), first), np.float32(first.scale)
    alpha = np.float32(_steps(value, slope).item()) * np.float32(slope.scale)
    above, below = (
        mbqm(steps, *quantize_multiplier(float(factor / np.float32(last.scale)))) for factor in (scale, scale * alpha)
    )
    return saturate(np.where(steps >= 0, above, below) + last.zero_point, like.dtype)


def hard_swish(model: Model, inputs: Sequence[Array], like: Array) -> Array | None:
    """8-bit HARD_SWISH, which NNAPI has as MUL and ADD below feature level 4: by its own operation, which is LiteRT's."""
    main = model.main
    if [operation.type for operation in main.operations] != _GATED or len(main.inputs) != 1 or like.dtype.itemsize != 1:
        return None
    builder = ModelBuilder("hard swish")
    ends = [main.operands[i] for i in (main.inputs[0], main.outputs[0])]
    x, y = (builder.add_operand(end.type, like.shape, scale=end.scale, zero_point=end.zero_point) for end in ends)
    builder.add_operation(OperationCode.HARD_SWISH, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    return operand_value(builder.finish(), {x: inputs[0]}, y)


def squared_difference(model: Model, inputs: Sequence[Array], like: Array) -> Array | None:
    """SQUARED_DIFFERENCE of int8, which NNAPI has as SUB and MUL: rounded to 8 bits once it is squared."""
    main = model.main
    sides = _subtracted(model)
    if sides is None or like.dtype != np.int8:
        return None
    last, scales = main.operands[main.outputs[0]], tuple(main.operands[i].scale for i in sides)
    if not last.scale or len(scales) != 2 or not all(scales):
        return None
    left, right = (_steps(_value(model, inputs, i), main.operands[i]) for i in sides)
    return saturate(squared_differences(left, right, scales, last.scale) + last.zero_point, like.dtype)


def _subtracted(model: Model) -> tuple[int, int] | None:
    """The 8-bit operands of a SUB, if the model squares their difference by MUL; both may be dequantised before."""
    main = model.main
    made_by = {i: operation for operation in main.operations for i in operation.outputs}
    found = {operation.type: operation for operation in main.operations if operation.type not in _CONVERSIONS}
    if found.keys() != {OperationCode.SUB, OperationCode.MUL}:
        return None
    difference, square = found[OperationCode.SUB], found[OperationCode.MUL]
    if square.inputs[0] != square.inputs[1] or made_by.get(square.inputs[0]) is not difference:
        return None
    left, right = (made_by[i].inputs[0] if i in made_by else i for i in difference.inputs[:2])
    return left, right


def _value(model: Model, inputs: Sequence[Array], i: int) -> Array:
    """The value of an operand that is a constant or an input of the model."""
    constant = model.value(model.main.operands[i])
    return inputs[model.main.inputs.index(i)] if constant is None else constant


def _steps(value: Array, operand: Operand) -> Array:
    return value.astype(np.int64) - operand.zero_point


def _flag(model: Model, operation: Operation, name: str) -> bool | None:
    """An optional flag, which is false if it is left out; None if it is not a constant."""
    place = input_places(model, operation).get(name)
    if place is None:
        return False
    value = model.value(model.main.operands[operation.inputs[place]])
    return None if value is None else bool(value)

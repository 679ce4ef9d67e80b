"""Quantisation with computed scales, and products of bytes: as numbers of their own in float32.

Bytes stand as 8-bit values of scale 1, so that casting and quantising turn numbers into bytes and back. Products of bytes are
whole numbers that float32 holds exactly up to 2**24.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from nnbridge.converters.draft import Value
from nnbridge.types import OperandCode, OperationCode
from nnbridge_onnx.lower_convolution import convolve, filter_order, plane
from nnbridge_onnx.lowering import Lowerer, lowers
from nnbridge_onnx.values import FIRST

C = OperationCode
_BYTES = (OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED)
_TINY = 1e-30


class _Floats:
    """Float operations on values of any shape."""

    def __init__(self, to: Lowerer) -> None:
        self.to = to
        self.like = Value(OperandCode.TENSOR_FLOAT32)

    def number(self, value: float) -> Value:
        return self.to.real([value], self.like)

    def emit(self, code: OperationCode, *inputs: Value) -> Value:
        extra = [self.to.scalar(0)] if code in (C.ADD, C.SUB, C.MUL, C.DIV) else []
        return self.to.emit(code, [*inputs, *extra], self.to.temporary(self.like))

    def whole(self, value: Value) -> Value:
        """Bytes or INT32 as float32."""
        plain = value.type == OperandCode.TENSOR_INT32 or (value.type in _BYTES and (value.scale, value.zero_point) == (1.0, 0))
        self.to.require(plain, "bytes or whole numbers", OperandCode(value.type).name, value.name)
        if value.data is not None:
            return self.to.real(value.data, self.like, value.dims)
        return self.emit(C.CAST, value)

    def without(self, value: Value, point: Value | None) -> Value:
        """Whole numbers counted from a zero point."""
        if point is None or (point.data is not None and not point.data.any()):
            return value
        return self.emit(C.SUB, value, point)


def _along(to: Lowerer, position: int, rank: int, axis: int) -> tuple[int, ...]:
    """The dimensions in which a scale or zero point meets a tensor of this rank."""
    shape = to.shape(position)
    to.require(len(shape) <= 1, "one scale for the tensor or for each channel", list(shape))
    count = math.prod(shape)
    return (1,) if count == 1 else tuple(count if i == axis % rank else 1 for i in range(rank))


def _parameter(to: Lowerer, floats: _Floats, position: int, axis: int) -> Value:
    """A scale or zero point as float32, in dimensions that meet the first input."""
    value, dims = to.value(position), _along(to, position, to.rank(), axis)
    found = value if value.type == OperandCode.TENSOR_FLOAT32 else floats.whole(value)
    if found.data is not None:
        return to.real(found.data, floats.like, dims)
    return found if len(dims) == 1 else floats.emit(C.RESHAPE, found, to.vector(dims))


@lowers("DequantizeLinear")
def _dequantise(to: Lowerer) -> None:
    """(x - zero point) * scale in float32, for scales that are computed or several."""
    floats, axis = _Floats(to), int(to.attribute("axis", 1))
    to.require(not to.attribute("block_size", 0), "no blocks", to.attribute("block_size"))
    numbers = floats.whole(to.value())
    point = _parameter(to, floats, 2, axis) if to.name(2) else None
    to.finish(C.MUL, [floats.without(numbers, point), _parameter(to, floats, 1, axis), to.scalar(0)])


@lowers("QuantizeLinear")
def _quantise(to: Lowerer) -> None:
    """QUANTIZE of x / scale + zero point to bytes, for scales that are computed or several."""
    floats, axis = _Floats(to), int(to.attribute("axis", 1))
    to.require(not to.attribute("block_size", 0), "no blocks", to.attribute("block_size"))
    x, out = to.value(), to.output()
    to.require(x.type == OperandCode.TENSOR_FLOAT32, "float32 values", OperandCode(x.type).name)
    to.require((out.scale, out.zero_point) == (1.0, 0), "an output of bytes", [out.scale, out.zero_point])
    counted = floats.emit(C.DIV, x, _parameter(to, floats, 1, axis))
    if to.name(2):
        counted = floats.emit(C.ADD, counted, _parameter(to, floats, 2, axis))
    to.finish(C.QUANTIZE, [counted])


@lowers("DynamicQuantizeLinear")
def _dynamic(to: Lowerer) -> None:
    """Scale and zero point from the smallest and largest value, 0 among them."""
    floats, rank, x = _Floats(to), to.rank(), to.value()
    to.require(x.type == OperandCode.TENSOR_FLOAT32 and rank > 0, "float32 values of rank 1 at least", rank)
    axes, keep = to.vector(range(rank)), to.flag(False)
    low = floats.emit(C.MINIMUM, floats.emit(C.REDUCE_MIN, x, axes, keep), floats.number(0))
    high = floats.emit(C.MAXIMUM, floats.emit(C.REDUCE_MAX, x, axes, keep), floats.number(0))
    span = floats.emit(C.MAXIMUM, floats.emit(C.SUB, high, low), floats.number(_TINY))
    scale = floats.emit(C.DIV, span, floats.number(255))
    scale.name = to.node.outputs[1]
    point = to.emit(C.QUANTIZE, [floats.emit(C.SUB, floats.number(0), floats.emit(C.DIV, low, scale))], to.output(2))
    counted = floats.emit(C.ADD, floats.emit(C.DIV, x, scale), floats.emit(C.CAST, point))
    to.finish(C.QUANTIZE, [counted])
    to.result(scale, 1)
    to.result(point, 2)


def _point(to: Lowerer, floats: _Floats, position: int) -> Value | None:
    """A zero point as float32."""
    return floats.whole(to.value(position)) if to.name(position) else None


@lowers("MatMulInteger")
def _product(to: Lowerer) -> None:
    """BATCH_MATMUL, or FULLY_CONNECTED with constant weights, in float32."""
    floats, left, right = _Floats(to), to.shape(0), to.shape(1)
    first, point = _point(to, floats, 2), _point(to, floats, 3)
    to.require(first is None or math.prod(to.shape(2)) == 1, "one zero point of the first operand", "several")
    a = floats.without(floats.whole(to.value(0)), first)
    to.require(min(len(left), len(right)) >= 2, "matrices", [list(left), list(right)])
    weights = to.values.constants.get(to.name(1))
    if weights is not None and weights.ndim == 2 and (point is None or point.data is not None):
        numbers = weights.astype(np.float64) - (0 if point is None or point.data is None else point.data)
        units = right[1]
        flat = floats.emit(C.RESHAPE, a, to.vector([math.prod(left[:-1]), left[-1]]))
        inputs = [flat, to.real(numbers.T, floats.like), to.real(np.zeros(units), floats.like), to.scalar(0)]
        made = floats.emit(C.FULLY_CONNECTED, *inputs)
        shaped = floats.emit(C.RESHAPE, made, to.vector([*left[:-1], units]))
    else:
        b = floats.without(floats.whole(to.value(1)), point)
        to.require(len(left) == len(right) <= 4, "matrices of one rank, 4 at most", [len(left), len(right)])
        shaped = floats.emit(C.BATCH_MATMUL, a, b, to.flag(False), to.flag(False))
    to.finish(C.CAST, [shaped])


@lowers("ConvInteger")
def _convolution(to: Lowerer) -> None:
    """CONV_2D and its relatives with constant weights, in float32."""
    floats, weights = _Floats(to), to.constant(1)
    to.require(weights.ndim == 4, "weights of rank 4", weights.ndim)
    count, point = weights.shape[0], to.optional_constant(3)
    zero = np.zeros(1) if point is None else np.ravel(point).astype(np.float64)
    to.require(zero.size in (1, count), "one zero point, or one for each channel", zero.size)
    numbers = weights.astype(np.float64) - zero.reshape(-1, 1, 1, 1)
    found = plane(to)
    image = replace(found, x=floats.without(floats.whole(found.x), _point(to, floats, 2)))
    filter = to.real(numbers.transpose(filter_order(to, weights.shape)), floats.like)
    made = convolve(to, image, weights.shape, filter, to.real(np.zeros(count), floats.like), to.temporary(floats.like))
    if to.channels_last:
        # TRANSPOSE does not take INT32: the result in ONNX's own order is cast after it was turned.
        turned = floats.emit(C.TRANSPOSE, made, to.vector(FIRST[4]))
        to.finish(C.CAST, [turned])
    to.finish_image(C.CAST, [made])

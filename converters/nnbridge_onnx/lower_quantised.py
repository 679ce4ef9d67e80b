"""Quantised operators: QuantizeLinear and DequantizeLinear as they stand, and groups of them as operations on 8-bit values."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nnbridge.converters.draft import Value
from nnbridge.model import ChannelQuant
from nnbridge.types import OperandCode, OperationCode
from nnbridge_onnx.fusing import Group, Weights
from nnbridge_onnx.graph import Array
from nnbridge_onnx.lower_convolution import convolve, filter_order, plane
from nnbridge_onnx.lower_products import rows
from nnbridge_onnx.lowering import LOWERINGS, Lowerer, lowers

C = OperationCode
_UNSIGNED, _SIGNED = OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED


@lowers("QuantizeLinear")
def _quantize(to: Lowerer) -> None:
    """QUANTIZE. NNAPI rounds halves away from zero, ONNX to even."""
    _require_parameters(to, to.output())
    (x,), images = to.alike(0)
    to.finish_alike(C.QUANTIZE, [x], images)


@lowers("DequantizeLinear")
def _dequantize(to: Lowerer) -> None:
    """DEQUANTIZE of a computed value."""
    (x,), images = to.alike(0)
    _require_parameters(to, x)
    to.finish_alike(C.DEQUANTIZE, [x], images)


def _require_parameters(to: Lowerer, value: Value) -> None:
    """An 8-bit value has to have the node's scale and zero point."""
    scale, point = to.constant(1), to.optional_constant(2)
    to.require(scale.size == 1, "one scale for the tensor", scale.size)
    zero = 0 if point is None else int(np.ravel(point)[0])
    found = (value.scale, value.zero_point)
    to.require(found == (float(np.ravel(scale)[0]), zero), f"a value of scale {value.scale:.6g}, {value.zero_point}", found)


# -- groups ------------------------------------------------------------------------------------------------------------


def lower_group(to: Lowerer, group: Group) -> None:
    """A group as one operation on 8-bit values; Unmappable where NNAPI cannot express it."""
    special = _SPECIAL.get(group.node.type)
    if special is not None:
        special(to, group)
        return
    to.require(not group.constants or group.node.type == "Concat", "computed inputs", "constants")
    lowerings = LOWERINGS[group.node.type]
    lowerings[0](to)


def _convolution(to: Lowerer, group: Group) -> None:
    """CONV_2D and its relatives; weights keep a scale for each output where they have them."""
    stored = _stored(to, group.constants.get(1))
    image = plane(to)
    to.require(stored.ndim == len(to.shape()), "weights of the image's rank", list(stored.shape))
    stored, x = stored.reshape(*stored.shape[:2], *image.pair(stored.shape[2:])), image.x
    filter, scales = _filter(to, group.constants[1], stored, x, filter_order(to, stored.shape))
    bias = _bias(to, group, x, scales, stored.shape[0])
    image.finish(to, convolve(to, image, stored.shape, filter, bias, image.output(to)))


def _product(to: Lowerer, group: Group) -> None:
    """FULLY_CONNECTED with one scale for the weights; BATCH_MATMUL of two computed operands."""
    gemm = group.node.type == "Gemm"
    if not gemm and 1 not in group.constants:
        to.finish(C.BATCH_MATMUL, [to.value(0), to.value(1), to.flag(False), to.flag(False)])
        return
    stored, shape = _stored(to, group.constants.get(1)), to.shape()
    to.require(stored.ndim == 2 and len(shape) >= 2, "a matrix of weights", [list(stored.shape), len(shape)])
    plain = not gemm or (to.attribute("alpha", 1.0), to.attribute("beta", 1.0), to.attribute("transA", 0)) == (1.0, 1.0, 0)
    to.require(plain, "alpha and beta of 1, the first operand as it is", "others")
    transposed = gemm and bool(to.attribute("transB", 0))
    x, turned = rows(to, stored if transposed else stored.T)
    filter, scales = _filter(to, group.constants[1], turned, x, (0, 1))
    to.require(scales.size == 1, "one scale for the weights", scales.size)
    units = filter.dims[0]
    if len(shape) > 2:
        x = to.emit(C.RESHAPE, [x, to.vector([math.prod(shape[:-1]), shape[-1]])], to.temporary(x))
    inputs = [x, filter, _bias(to, group, x, scales, units), to.activation()]
    if len(shape) == 2:
        to.finish(C.FULLY_CONNECTED, inputs)
        return
    made = to.emit(C.FULLY_CONNECTED, inputs, to.output().like())
    to.finish(C.RESHAPE, [made, to.vector([*shape[:-1], units])])


def _sum(to: Lowerer, group: Group) -> None:
    """ADD, SUB, MUL; a constant is an 8-bit constant."""
    codes = {"Add": C.ADD, "Sub": C.SUB, "Mul": C.MUL}
    inputs, images = to.alike(0, 1)
    to.finish_alike(codes[group.node.type], [*inputs, to.activation()], images)


def _average(to: Lowerer, group: Group) -> None:
    """The mean over an image as AVERAGE_POOL_2D, whose input and output share their parameters."""
    _, _, height, width = to.shape()
    x, one = to.image(), to.scalar(1)
    none = [to.scalar(0)] * 4
    window = [*none, one, one, to.scalar(width), to.scalar(height), to.scalar(0), *to.layout()]
    to.finish_image(C.AVERAGE_POOL_2D, [x, *window])


_SPECIAL: dict[str, Callable[[Lowerer, Group], None]] = {
    "Conv": _convolution,
    "Gemm": _product,
    "MatMul": _product,
    "Add": _sum,
    "Sub": _sum,
    "Mul": _sum,
    "GlobalAveragePool": _average,
}


def _stored(to: Lowerer, weights: Weights | None) -> Array:
    if weights is None:
        to.refuse("constant weights behind DequantizeLinear", "computed ones")
    return to.values.constants[weights.name]


def _filter(to: Lowerer, weights: Weights, stored: Array, x: Value, order: tuple[int, ...]) -> tuple[Value, Array]:
    """The weights in NNAPI's type and order of axes, and their scales."""
    constants = to.values.constants
    scales = np.ravel(constants[weights.scale]).astype(np.float32)
    points = np.ravel(constants[weights.zero_point]).astype(np.int64) if weights.zero_point else np.zeros(1, np.int64)
    moved = np.ascontiguousarray(stored.transpose(order))
    to.require(stored.dtype in (np.int8, np.uint8), "8-bit weights", stored.dtype)
    if scales.size > 1:
        axis = order.index(weights.axis % stored.ndim)
        to.require(
            stored.dtype == np.int8 and not points.any(), "signed weights with zero points of 0 for several scales", stored.dtype
        )
        quant = ChannelQuant(tuple(float(s) for s in scales), axis)
        type = OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL
        return Value(type, moved.shape, channel_quant=quant, name=weights.name, data=moved), scales
    point = int(points[0])
    # Weights and data have the same type in NNAPI: signed and unsigned values are 128 apart.
    if x.type == _UNSIGNED and moved.dtype == np.int8:
        moved, point = (moved.view(np.uint8) ^ np.uint8(0x80)), point + 128
    elif x.type == _SIGNED and moved.dtype == np.uint8:
        moved, point = (moved ^ np.uint8(0x80)).view(np.int8), point - 128
    return Value(x.type, moved.shape, float(scales[0]), point, name=weights.name, data=moved), scales


def _bias(to: Lowerer, group: Group, x: Value, scales: Array, count: int) -> Value:
    """INT32 of scale input scale x weights scale."""
    steps = np.float32(x.scale) * scales
    weights = group.constants.get(2)
    if weights is None:
        to.require(not to.name(2), "a constant bias behind DequantizeLinear", to.name(2))
        data = np.zeros(count, np.int32)
    else:
        stored, declared = to.values.constants[weights.name], np.ravel(to.values.constants[weights.scale])
        real = stored.astype(np.float64) * declared
        data = np.rint(real / steps).astype(np.int32)
    to.require(data.shape == (count,), f"a bias of [{count}]", list(data.shape))
    scale = float(steps[0]) if scales.size == 1 else 0.0
    return Value(OperandCode.TENSOR_INT32, (count,), scale, name=to.name(2), data=data)

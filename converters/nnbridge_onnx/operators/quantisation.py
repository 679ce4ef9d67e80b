"""Quantisation: QuantizeLinear and DequantizeLinear as they stand, and what operators on 8-bit values share.

With computed scales, bytes stand as 8-bit values of scale 1, so that casting and quantising turn numbers into bytes and back.
Products of bytes are whole numbers that float32 holds exactly up to 2**24.
"""

from __future__ import annotations

import math

import numpy as np

from nnbridge.converters.declaration import Option
from nnbridge.converters.draft import Value
from nnbridge.converters.mapping import MappingKind
from nnbridge.model import Array, ChannelQuant
from nnbridge.types import QUANT8, OperandCode, OperationCode
from nnbridge_onnx.declaration import MOVED, QuantisedIo, operator
from nnbridge_onnx.lowerer import C, Lowerer
from nnbridge_onnx.rules import Provider, uint8_parameters

_UNSIGNED, _SIGNED = QUANT8
_TINY = 1e-30
_OPTIONS = (
    Option("axis", 1, "the axis of several scales"),
    Option("block_size", 0, "elements of the axis that share a scale, 0 without blocks"),
)

QUANTIZE = operator(
    "QuantizeLinear", 126, "x y_scale y_zero_point? -> y", "x / scale + zero point, as 8-bit values.", options=_OPTIONS,
    folding=MOVED, quantised_io=QuantisedIo(((0,),), (1, 2)), provider=Provider(3, None, (uint8_parameters(),)),
)  # fmt: skip
DEQUANTIZE = operator(
    "DequantizeLinear", 47, "x x_scale x_zero_point? -> y", "(x - zero point) * scale.", options=_OPTIONS, folding=MOVED,
    quantised_io=QuantisedIo(((0, 1, 2),)), provider=Provider(types=None, conditions=(uint8_parameters(),)),
)  # fmt: skip
DYNAMIC_QUANTIZE = operator(
    "DynamicQuantizeLinear", 51, "x -> y y_scale y_zero_point", "Bytes with a scale and zero point for the range of the input.",
    folding=MOVED,
)  # fmt: skip


@QUANTIZE.lowering()
def _quantize(to: Lowerer) -> None:
    """QUANTIZE. NNAPI rounds halves away from zero, ONNX to even."""
    _require_parameters(to, to.output())
    (x,), images = to.aligned(0)
    to.finish(C.QUANTIZE, x, images=images)


@DEQUANTIZE.lowering()
def _dequantize(to: Lowerer) -> None:
    """DEQUANTIZE of a computed value."""
    (x,), images = to.aligned(0)
    _require_parameters(to, x)
    to.finish(C.DEQUANTIZE, x, images=images)


def _require_parameters(to: Lowerer, value: Value) -> None:
    """An 8-bit value has to have the node's scale and zero point."""
    scale, point = to.constant(1), to.optional(2)
    to.require(scale.size == 1, "one scale for the tensor", scale.size)
    zero = 0 if point is None else int(np.ravel(point)[0])
    found = (value.scale, value.zero_point)
    to.require(found == (float(np.ravel(scale)[0]), zero), f"a value of scale {value.scale:.6g}, {value.zero_point}", found)


# -- numbers of bytes, in float32 --------------------------------------------------------------------------------------------


class Numbers:
    """Float operations on bytes and whole numbers of any shape."""

    def __init__(self, to: Lowerer) -> None:
        self.to = to
        self.like = Value(OperandCode.TENSOR_FLOAT32)

    def number(self, value: float) -> Value:
        """A constant."""
        return self.to.float_tensor([value], self.like)

    def emit(self, code: OperationCode, *inputs: Value) -> Value:
        """An operation on floats."""
        return self.to.emit(code, *inputs, like=self.like)

    def whole(self, value: Value) -> Value:
        """Bytes or INT32 as float32."""
        plain = value.type == OperandCode.TENSOR_INT32 or (value.type in QUANT8 and (value.scale, value.zero_point) == (1.0, 0))
        self.to.require(plain, "bytes or whole numbers", OperandCode(value.type).name, value.name)
        if value.data is not None:
            return self.to.float_tensor(value.data, self.like, value.dims)
        return self.emit(C.CAST, value)

    def point(self, i: int) -> Value | None:
        """An optional zero point as float32."""
        return self.whole(self.to.input(i)) if self.to.has(i) else None

    def without(self, value: Value, point: Value | None) -> Value:
        """Whole numbers counted from a zero point."""
        if point is None or (point.data is not None and not point.data.any()):
            return value
        return self.emit(C.SUB, value, point)

    def parameter(self, i: int) -> Value:
        """A scale or zero point as float32, in dimensions that broadcast against the first input along the node's axis."""
        to, value, rank = self.to, self.to.input(i), self.to.rank()
        shape, axis = to.shape(i), to.option("axis")
        to.require(len(shape) <= 1, "one scale for the tensor or for each channel", list(shape))
        count = math.prod(shape)
        dims = (1,) if count == 1 else tuple(count if k == axis % rank else 1 for k in range(rank))
        found = value if value.type == OperandCode.TENSOR_FLOAT32 else self.whole(value)
        if found.data is not None:
            return to.float_tensor(found.data, self.like, dims)
        return found if len(dims) == 1 else self.emit(C.RESHAPE, found, to.vector(dims))


@DEQUANTIZE.lowering()
def _dequantise(to: Lowerer) -> None:
    """(x - zero point) * scale in float32, for scales that are computed or several."""
    floats = Numbers(to)
    to.require(not to.option("block_size"), "no blocks", to.option("block_size"))
    numbers = floats.whole(to.input())
    point = floats.parameter(2) if to.has(2) else None
    to.finish(C.MUL, floats.without(numbers, point), floats.parameter(1))


@QUANTIZE.lowering()
def _quantise(to: Lowerer) -> None:
    """QUANTIZE of x / scale + zero point to bytes, for scales that are computed or several."""
    floats = Numbers(to)
    to.require(not to.option("block_size"), "no blocks", to.option("block_size"))
    x, out = to.input(), to.output()
    to.require(x.type == OperandCode.TENSOR_FLOAT32, "float32 values", OperandCode(x.type).name)
    to.require((out.scale, out.zero_point) == (1.0, 0), "an output of bytes", [out.scale, out.zero_point])
    counted = floats.emit(C.DIV, x, floats.parameter(1))
    if to.has(2):
        counted = floats.emit(C.ADD, counted, floats.parameter(2))
    to.finish(C.QUANTIZE, counted)


@DYNAMIC_QUANTIZE.lowering()
def _dynamic(to: Lowerer) -> None:
    """Scale and zero point from the smallest and largest value, 0 among them."""
    floats, rank, x = Numbers(to), to.rank(), to.input()
    to.require(x.type == OperandCode.TENSOR_FLOAT32 and rank > 0, "float32 values of rank 1 at least", rank)
    axes, keep = to.vector(range(rank)), to.flag(False)
    low = floats.emit(C.MINIMUM, floats.emit(C.REDUCE_MIN, x, axes, keep), floats.number(0))
    high = floats.emit(C.MAXIMUM, floats.emit(C.REDUCE_MAX, x, axes, keep), floats.number(0))
    span = floats.emit(C.MAXIMUM, floats.emit(C.SUB, high, low), floats.number(_TINY))
    scale = floats.emit(C.DIV, span, floats.number(255))
    scale.name = to.node.outputs[1]
    point = to.emit(C.QUANTIZE, floats.emit(C.SUB, floats.number(0), floats.emit(C.DIV, low, scale)), out=to.output(2))
    counted = floats.emit(C.ADD, floats.emit(C.DIV, x, scale), floats.emit(C.CAST, point))
    to.finish(C.QUANTIZE, counted)
    to.result(scale, 1)
    to.result(point, 2)


# -- constants of groups -----------------------------------------------------------------------------------------------------


def stored_weights(to: Lowerer, i: int) -> Array:
    """The 8-bit constant after DequantizeLinear that input ``i`` is."""
    if to.group is None or i not in to.group.constants:
        to.refuse("constant weights after DequantizeLinear", "computed ones")
    return to.operands.constants[to.group.constants[i].name]


def quantised_filter(to: Lowerer, stored: Array, x: Value, order: tuple[int, ...]) -> tuple[Value, Array]:
    """The weights in NNAPI's type and order of axes, and their scales."""
    assert to.group is not None
    weights, constants = to.group.constants[1], to.operands.constants
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


def quantised_bias(to: Lowerer, x: Value, scales: Array, count: int) -> Value:
    """INT32 of scale input scale x weights scale."""
    assert to.group is not None
    steps = np.float32(x.scale) * scales
    weights = to.group.constants.get(2)
    if weights is None:
        to.require(not to.has(2), "a constant bias after DequantizeLinear", to.name(2))
        data = np.zeros(count, np.int32)
    else:
        stored, declared = to.operands.constants[weights.name], np.ravel(to.operands.constants[weights.scale])
        real = stored.astype(np.float64) * declared
        # The provider's builders hand the numbers over as they are, whatever their scale.
        as_stored = to.mapping == MappingKind.PROVIDER and stored.dtype == np.int32
        data = stored if as_stored else np.rint(real / steps).astype(np.int32)
    to.require(data.shape == (count,), f"a bias of [{count}]", list(data.shape))
    scale = float(steps[0]) if scales.size == 1 else 0.0
    return Value(OperandCode.TENSOR_INT32, (count,), scale, name=to.name(2), data=data)

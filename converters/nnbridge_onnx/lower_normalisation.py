"""Normalisation: batch, instance, group, layer, root mean square, local response."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnbridge.converters.draft import Value
from nnbridge.types import OperationCode
from nnbridge_onnx.chains import batch_normalisation
from nnbridge_onnx.lowering import Lowerer, lowers

C = OperationCode


@lowers("BatchNormalization")
def _batch(to: Lowerer) -> None:
    """A product and a sum with constants, one of each for a channel."""
    to.require(not to.attribute("training_mode", 0) and len([n for n in to.node.outputs if n]) == 1, "inference", "training")
    found = batch_normalisation([to.constant(i) for i in range(1, 5)], float(to.attribute("epsilon", 1e-5)))
    rank = to.rank()
    images = to.channels_last and (rank == 4 or to.values.is_image(to.name(0)))
    x = to.image() if images else to.value()
    to.require(to.is_float(x), "floating values")
    dims = (found.factor.size,) + (() if images else (1,) * (rank - 2))
    scaled = to.emit(C.MUL, [x, to.real(found.factor, x, dims), to.scalar(0)], to.temporary(x))
    to.finish_alike(C.ADD, [scaled, to.real(found.offset, x, dims), to.scalar(0)], images)


class _Normaliser:
    """Steps of (x - mean) / sqrt(variance + epsilon) over some axes."""

    def __init__(self, to: Lowerer, axes: Sequence[int]) -> None:
        self.to = to
        self._axes = to.vector(axes)

    def mean(self, x: Value) -> Value:
        return self.to.emit(C.MEAN, [x, self._axes, self.to.scalar(1)], self.to.temporary(x))

    def pair(self, code: OperationCode, a: Value, b: Value) -> Value:
        return self.to.emit(code, [a, b, self.to.scalar(0)], self.to.temporary(a))

    def inverse_deviation(self, x: Value, epsilon: float) -> Value:
        """1 / sqrt(mean(x * x) + epsilon)."""
        raised = self.pair(C.ADD, self.mean(self.pair(C.MUL, x, x)), self.to.real([epsilon], x))
        return self.to.emit(C.RSQRT, [raised], self.to.temporary(raised))

    def normalised(self, x: Value, epsilon: float, *, centre: bool = True) -> Value:
        moved = self.pair(C.SUB, x, self.mean(x)) if centre else x
        return self.pair(C.MUL, moved, self.inverse_deviation(moved, epsilon))


def _scaled(to: Lowerer, x: Value, scale: Value, bias: Value | None) -> None:
    """The last steps: scale and bias, and the output."""
    if bias is None:
        to.finish(C.MUL, [x, scale, to.scalar(0)])
        return
    scaled = to.emit(C.MUL, [x, scale, to.scalar(0)], to.temporary(x))
    to.finish(C.ADD, [scaled, bias, to.scalar(0)])


@lowers("LayerNormalization", "RMSNormalization")
def _layer(to: Lowerer) -> None:
    """Over all axes from one on."""
    to.require(len([n for n in to.node.outputs if n]) == 1, "one output", len(to.node.outputs))
    rank, x = to.rank(), to.value()
    to.require(to.is_float(x) and rank <= 4, "floating values of rank 4 at most", rank)
    axis = to.axis("axis", -1, rank)
    normaliser = _Normaliser(to, range(axis, rank))
    centre = to.node.type == "LayerNormalization"
    made = normaliser.normalised(x, float(to.attribute("epsilon", 1e-5)), centre=centre)
    _scaled(to, made, to.operand(1, x), to.operand(2, x) if to.name(2) else None)


@lowers("InstanceNormalization")
def _instance(to: Lowerer) -> None:
    """Each channel of each image on its own."""
    rank, x = to.rank(), to.value()
    to.require(3 <= rank <= 4 and to.is_float(x), "floating values of rank 3 or 4", rank)
    made = _Normaliser(to, range(2, rank)).normalised(x, float(to.attribute("epsilon", 1e-5)))
    dims = (to.shape(1)[0],) + (1,) * (rank - 2)
    _scaled(to, made, to.operand(1, x, dims), to.operand(2, x, dims))


@lowers("GroupNormalization")
def _group(to: Lowerer) -> None:
    """Groups of channels of each image; scale and bias for each channel (since opset 21)."""
    shape, x = to.shape(), to.value()
    groups = int(to.attribute("num_groups", 1))
    to.require(to.is_float(x) and len(shape) <= 4 and shape[1] % groups == 0, "floating values in whole groups", list(shape))
    each = shape[1] // groups
    flat = to.emit(C.RESHAPE, [x, to.vector([shape[0], groups, each * math.prod(shape[2:])])], to.temporary(x))
    made = _Normaliser(to, [2]).normalised(flat, float(to.attribute("epsilon", 1e-5)))
    back = to.emit(C.RESHAPE, [made, to.vector(shape)], to.temporary(x))
    dims = (shape[1],) + (1,) * (len(shape) - 2)
    if to.shape(1) == (groups,) and groups != shape[1]:
        # Before opset 21 there is one number for each group.
        scale, bias = (to.real(np.repeat(to.constant(i), each), x, dims) for i in (1, 2))
    else:
        scale, bias = to.operand(1, x, dims), to.operand(2, x, dims)
    _scaled(to, back, scale, bias)


@lowers("MeanVarianceNormalization")
def _mean_variance(to: Lowerer) -> None:
    """Over batches and places, unless other axes are given."""
    rank, x = to.rank(), to.value()
    to.require(rank <= 4 and to.is_float(x), "floating values of rank 4 at most", rank)
    steps = _Normaliser(to, [a % rank for a in to.ints("axes", [0, 2, 3])])
    moved = steps.pair(C.SUB, x, steps.mean(x))
    spread = to.emit(C.SQRT, [steps.mean(steps.pair(C.MUL, moved, moved))], to.temporary(x))
    to.finish(C.DIV, [moved, steps.pair(C.ADD, spread, to.real([1e-9], x)), to.scalar(0)])


@lowers("LpNormalization")
def _lp(to: Lowerer) -> None:
    """L2_NORMALIZATION."""
    rank, x = to.rank(), to.value()
    to.require(int(to.attribute("p", 2)) == 2 and to.is_float(x) and rank <= 4, "p of 2 and rank 4 at most", rank)
    to.finish(C.L2_NORMALIZATION, [x, to.scalar(to.axis("axis", -1, rank))])


@lowers("LRN")
def _local_response(to: Lowerer) -> None:
    """LOCAL_RESPONSE_NORMALIZATION; ONNX divides alpha by the size of the window."""
    size = int(to.attribute("size", 1))
    to.require(size % 2 == 1 and to.rank() == 4, "a window of odd size over images", size)
    images = to.channels_last
    x = to.image() if images else to.value()
    numbers = [
        to.scalar(size // 2),
        to.like_scalar(x, float(to.attribute("bias", 1.0))),
        to.like_scalar(x, float(to.attribute("alpha", 1e-4)) / size),
        to.like_scalar(x, float(to.attribute("beta", 0.75))),
    ]
    axis = [] if images else [to.scalar(1)]
    to.finish_alike(C.LOCAL_RESPONSE_NORMALIZATION, [x, *numbers, *axis], images)

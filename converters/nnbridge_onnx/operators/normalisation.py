"""Normalisation: batch, instance, group, layer, root mean square, local response."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from nnbridge.converters.declaration import Option, lowers
from nnbridge.converters.draft import Value
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import Why
from nnbridge.model import Array
from nnbridge_onnx.declaration import EPSILON, MOVED, Affine, Channels, attribute, operator
from nnbridge_onnx.host.evaluator import HostCall
from nnbridge_onnx.lowerer import C, Lowerer
from nnbridge_onnx.read.graph import Node
from nnbridge_onnx.rules import MAX_RANK, Provider, condition, constant_input, one_of, ranks

# -- batches -----------------------------------------------------------------------------------------------------------------


def _constant_batch(arrays: Sequence[Array], epsilon: float) -> Affine:
    """Batch normalisation with constant scale, bias, mean and variance."""
    scale, bias, mean, variance = arrays
    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
    return Affine(factor, bias.astype(np.float64) - mean.astype(np.float64) * factor)


def _batch_affine(node: Node, name: str, constants: Mapping[str, Array], channels: Channels) -> Affine | None:
    arrays = [constants[n] for n in node.inputs[1:5] if n in constants]
    if attribute(node, "training_mode") or node.inputs[0] != name or [a.shape for a in arrays] != [(channels.count,)] * 4:
        return None
    return _constant_batch(arrays, float(attribute(node, "epsilon")))


BATCH_NORMALIZATION = operator(
    "BatchNormalization", 15, "X scale B input_mean input_var -> Y running_mean? running_var?",
    "Each channel minus its mean, divided by its deviation, scaled and moved.", affine=_batch_affine,
    options=(EPSILON, Option("training_mode", 0, "1 to compute mean and variance")),
    provider=Provider(
        conditions=(
            condition(
                "one output, as for inference",
                lambda u: len(u.node.outputs) == 1,
                lambda u: len(u.node.outputs),
                kind=Why.VARIANT,
            ),
            ranks(0, MAX_RANK),
            one_of("spatial", 1),
            *(constant_input(i, what) for i, what in enumerate(("scale", "bias", "mean", "variance"), 1)),
        )
    ),
)  # fmt: skip


@BATCH_NORMALIZATION.lowering()
def _batch(to: Lowerer) -> None:
    """A product and a sum with constants, one of each for a channel."""
    to.require(not to.option("training_mode") and len(to.node.results) == 1, "inference", "training")
    found = _constant_batch([to.constant(i) for i in range(1, 5)], to.option("epsilon"))
    rank = to.rank()
    images = to.channels_last and (rank == 4 or to.is_image)
    x = to.image_if(images)
    to.require_float(x)
    dims = (found.factor.size,) + (() if images else (1,) * (rank - 2))
    scaled = to.emit(C.MUL, x, to.float_tensor(found.factor, x, dims))
    to.finish(C.ADD, scaled, to.float_tensor(found.offset, x, dims), images=images)


# -- rows, images and groups of channels -------------------------------------------------------------------------------------


class _Normaliser:
    """Steps of (x - mean) / sqrt(variance + epsilon) over some axes."""

    def __init__(self, to: Lowerer, axes: Sequence[int]) -> None:
        self._to = to
        self._axes = to.vector(axes)

    def mean(self, x: Value) -> Value:
        return self._to.emit(C.MEAN, x, self._axes, self._to.scalar(1))

    def normalised(self, x: Value, epsilon: float, *, centre: bool = True) -> Value:
        to = self._to
        moved = to.emit(C.SUB, x, self.mean(x)) if centre else x
        raised = to.compute(C.ADD, self.mean(to.emit(C.MUL, moved, moved)), epsilon)
        return to.emit(C.MUL, moved, to.emit(C.RSQRT, raised))


def _scaled(to: Lowerer, x: Value, scale: Value, bias: Value | None) -> None:
    """The last steps: scale and bias, and the output."""
    if bias is None:
        to.finish(C.MUL, x, scale)
    else:
        to.finish(C.ADD, to.emit(C.MUL, x, scale), bias)


_FIRST_AXIS = Option("axis", -1, "the first axis to normalise")
LAYER_NORMALIZATION = operator(
    "LayerNormalization", 87, "X Scale B? -> Y Mean? InvStdDev?", "Rows minus their mean, divided by their deviation, scaled.",
    options=(_FIRST_AXIS, EPSILON), folding=MOVED,
)  # fmt: skip
RMS_NORMALIZATION = operator(
    "RMSNormalization", 127, "X scale -> Y", "Rows divided by the root of the mean of their squares, and scaled.",
    options=(_FIRST_AXIS, EPSILON),
)  # fmt: skip


@lowers(LAYER_NORMALIZATION, RMS_NORMALIZATION)
def _layer(to: Lowerer) -> None:
    """Over all axes from one on."""
    to.require_one_output()
    rank, x = to.rank(), to.input()
    to.require(to.is_float(x) and rank <= 4, "floating values of rank 4 at most", rank)
    axis = to.axis(to.option("axis"), rank)
    normaliser = _Normaliser(to, range(axis, rank))
    centre = to.node.type == "LayerNormalization"
    made = normaliser.normalised(x, to.option("epsilon"), centre=centre)
    _scaled(to, made, to.operand(1, x), to.operand(2, x) if to.has(2) else None)


INSTANCE_NORMALIZATION = operator(
    "InstanceNormalization",
    82,
    "input scale B -> output",
    "Each channel of each image, normalised on its own.",
    options=(EPSILON,),
)


@INSTANCE_NORMALIZATION.lowering()
def _instance(to: Lowerer) -> None:
    """Each channel of each image on its own."""
    rank, x = to.rank(), to.input()
    to.require(3 <= rank <= 4 and to.is_float(x), "floating values of rank 3 or 4", rank)
    for i in (1, 2):
        to.require(to.shape(i) == (to.shape()[1],), "a number for each channel", list(to.shape(i)))
    made = _Normaliser(to, range(2, rank)).normalised(x, to.option("epsilon"))
    dims = (to.shape(1)[0],) + (1,) * (rank - 2)
    _scaled(to, made, to.operand(1, x, dims), to.operand(2, x, dims))


GROUP_NORMALIZATION = operator(
    "GroupNormalization", 73, "X scale bias -> Y", "Groups of channels of each image, normalised.",
    options=(EPSILON, Option("num_groups", 1, "groups of channels", at_least=1)),
)  # fmt: skip


@GROUP_NORMALIZATION.lowering()
def _group(to: Lowerer) -> None:
    """Groups of channels of each image; scale and bias for each channel (since opset 21)."""
    shape, x = to.shape(), to.input()
    groups = to.option("num_groups")
    to.require(to.is_float(x) and len(shape) <= 4 and shape[1] % groups == 0, "floating values in whole groups", list(shape))
    each = shape[1] // groups
    flat = to.emit(C.RESHAPE, x, to.vector([shape[0], groups, each * math.prod(shape[2:])]))
    made = _Normaliser(to, [2]).normalised(flat, to.option("epsilon"))
    back = to.emit(C.RESHAPE, made, to.vector(shape), like=x)
    dims = (shape[1],) + (1,) * (len(shape) - 2)
    if to.shape(1) == (groups,) and groups != shape[1]:
        # Before opset 21 there is one number for each group.
        scale, bias = (to.float_tensor(np.repeat(to.constant(i), each), x, dims) for i in (1, 2))
    else:
        scale, bias = to.operand(1, x, dims), to.operand(2, x, dims)
    _scaled(to, back, scale, bias)


MEAN_VARIANCE_NORMALIZATION = operator(
    "MeanVarianceNormalization", 104, "X -> Y", "Minus the mean, divided by the deviation.",
    options=(Option("axes", (0, 2, 3), "the axes of one mean"),),
)  # fmt: skip


@MEAN_VARIANCE_NORMALIZATION.lowering()
def _mean_variance(to: Lowerer) -> None:
    """Over batches and places, unless other axes are named."""
    rank, x = to.rank(), to.input()
    to.require(rank <= 4 and to.is_float(x), "floating values of rank 4 at most", rank)
    steps = _Normaliser(to, [a % rank for a in to.option("axes")])
    moved = to.emit(C.SUB, x, steps.mean(x))
    spread = to.emit(C.SQRT, steps.mean(to.emit(C.MUL, moved, moved)))
    to.finish(C.DIV, moved, to.compute(C.ADD, spread, 1e-9))


@MEAN_VARIANCE_NORMALIZATION.host_kernel
def _run_mean_variance(call: HostCall) -> Sequence[Array]:
    x, axes = call.input(0), tuple(call.option("axes"))
    moved = x - x.mean(axes, keepdims=True)
    return [(moved / (np.sqrt((moved * moved).mean(axes, keepdims=True)) + 1e-9)).astype(x.dtype)]


LP_NORMALIZATION = operator(
    "LpNormalization", 95, "input -> output", "Divided by the norm along an axis.", folding=MOVED,
    options=(Option("axis", -1, "the axis of a vector"), Option("p", 2, "the power of the norm")),
)  # fmt: skip


@LP_NORMALIZATION.lowering()
def _lp(to: Lowerer) -> None:
    """L2_NORMALIZATION."""
    rank, x = to.rank(), to.input()
    to.require(to.option("p") == 2 and to.is_float(x) and rank <= 4, "p of 2 and rank 4 at most", rank)
    to.finish(C.L2_NORMALIZATION, x, to.scalar(to.axis(to.option("axis"), rank)))


@LP_NORMALIZATION.host_kernel
def _run_lp(call: HostCall) -> Sequence[Array]:
    """Vectors of zeros stay zeros."""
    x, axis = call.input(0), call.option("axis")
    norm = np.sum(np.abs(x), axis, keepdims=True) if call.option("p") == 1 else np.sqrt(np.sum(x * x, axis, keepdims=True))
    return [np.asarray(x / np.where(norm == 0, 1, norm)).astype(x.dtype)]


LRN = operator(
    "LRN", 85, "X -> Y", "Divided by a power of the squares of the channels around.",
    options=(
        Option("alpha", 1e-4, "factor of the squares"),
        Option("beta", 0.75, "the power"),
        Option("bias", 1.0, "offset of the squares"),
        Option("size", 1, "channels of a window"),
    ),
    provider=Provider(2, conditions=(ranks(4, 4),), builds=(
        condition(
            "channels last below feature level 3", lambda u: not u.nchw, lambda u: "NCHW", 3, Why.FEATURE_LEVEL,
            says=lambda u: "NCHW format is not supported on android api level 28",
        ),
    )),
)  # fmt: skip


@LRN.host_kernel
def _run_local_response(call: HostCall) -> Sequence[Array]:
    x, size = call.input(0), call.option("size")
    before, behind = (size - 1) // 2, size // 2
    squares = np.pad(x * x, [(0, 0), (before, behind)] + [(0, 0)] * (x.ndim - 2))
    sums = np.lib.stride_tricks.sliding_window_view(squares, size, 1).sum(-1)
    return [(x / (call.option("bias") + call.option("alpha") / size * sums) ** call.option("beta")).astype(x.dtype)]


@LRN.lowering()
def _local_response(to: Lowerer) -> None:
    """LOCAL_RESPONSE_NORMALIZATION; ONNX divides alpha by the size of the window."""
    size, as_built = to.option("size"), to.mapping == MappingKind.PROVIDER
    # The provider rounds the radius of an even size down, and what NNAPI computes is not ONNX's result.
    to.require((as_built or size % 2 == 1) and to.rank() == 4, "a window of odd size over images", size)
    images = to.channels_last
    x = to.image_if(images)
    numbers = [
        to.scalar((size - 1) // 2),
        to.float_scalar(to.option("bias"), x),
        to.float_scalar(to.option("alpha") / size, x),
        to.float_scalar(to.option("beta"), x),
    ]
    axis = [to.scalar(3 if images else 1)] if not images or (as_built and to.draft.feature_level > 2) else []
    to.finish(C.LOCAL_RESPONSE_NORMALIZATION, x, *numbers, *axis, images=images)

"""Operators that change the shape or the order of axes, and those that only copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from nnbridge.converters.declaration import Option, lowers
from nnbridge.converters.draft import Value
from nnbridge.converters.folding import Folding
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import Stage, Why
from nnbridge.model import Array
from nnbridge_onnx.declaration import MOVED, Quantised, by_shape, operator
from nnbridge_onnx.host.evaluator import HostCall
from nnbridge_onnx.lowerer import C, Lowerer
from nnbridge_onnx.operands import FIRST, LAST, keeps_order
from nnbridge_onnx.passes.folding import Known
from nnbridge_onnx.read.graph import INT64, Dims, Node
from nnbridge_onnx.rules import (
    FLOAT_OR_UINT8,
    NCHW,
    RANK_4,
    Provider,
    condition,
    constant_input,
    one_of,
    ranks,
    uint8_parameters,
)  # fmt: skip

MAX_RANK = 4
_UNSPECIFIED = "BAD_DATA: setOperandValue of an operand type that is not fully specified"
_MOVES = Quantised(moves=True)
_AXES = (RANK_4, constant_input(1, "list of axes"))
_FROM_ARRAY = Folding(lambda array, shape: by_shape(shape, array.size))

FLATTEN = operator(
    "Flatten", 59, "input -> output", "All axes before one as one, and all from it on as one.", folding=MOVED, quantised=_MOVES,
    keeps_quantisation=True, provider=Provider(conditions=(RANK_4,), copies=True),
)  # fmt: skip
RESHAPE = operator(
    "Reshape", 147, "data shape! -> reshaped", "The same elements in another shape.", folding=MOVED, quantised=_MOVES,
    keeps_quantisation=True, options=(Option("allowzero", 0, "1 if a size of 0 means 0"),),
    provider=Provider(
        conditions=(
            uint8_parameters(),
            condition("a constant shape", lambda u: u.constant(1) is not None, lambda u: "a computed one", kind=Why.NOT_CONSTANT),
            RANK_4,
            condition(
                "no 0 where allowzero is set",
                lambda u: not u.attribute("allowzero", 0) or np.all(u.constant(1)),
                kind=Why.ARGUMENT,
            ),
        ),
        grouped=True,
        copies=True,
        builds=(
            condition(
                "a shape with an axis: a constant without elements is not fully specified",
                lambda u: (shape := u.constant(1)) is not None and shape.size,
                lambda u: "a scalar",
                kind=Why.OPERAND_SIZE, stage=Stage.BUILDING, says=lambda u: _UNSPECIFIED,
            ),
        ),
    ),
)  # fmt: skip
SQUEEZE = operator(
    "Squeeze", 182, "data axes!? -> squeezed", "Without axes of size 1.", folding=MOVED, quantised=_MOVES,
    keeps_quantisation=True,
    provider=Provider(2, conditions=_AXES, builds=(
        condition(
            "an axis of size 1: a constant without elements is not fully specified",
            lambda u: 1 in u.shape(), lambda u: list(u.shape()),
            kind=Why.OPERAND_SIZE, stage=Stage.BUILDING, says=lambda u: _UNSPECIFIED,
        ),
    )),
)  # fmt: skip
UNSQUEEZE = operator(
    "Unsqueeze", 200, "data axes!? -> expanded", "With further axes of size 1.", folding=MOVED, quantised=_MOVES,
    keeps_quantisation=True, provider=Provider(conditions=_AXES),
)  # fmt: skip


@FLATTEN.host_kernel
def _run_flatten(call: HostCall) -> Sequence[Array]:
    x, axis = call.input(0), int(call.option("axis", 1))
    axis += x.ndim if axis < 0 else 0
    return [x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))]


@lowers(FLATTEN, RESHAPE, SQUEEZE, UNSQUEEZE)
def _reshape(to: Lowerer) -> None:
    """RESHAPE to the output's shape, which inference has found or a folded shape states; NNAPI computes one open dimension."""
    stated = to.node.type == "Reshape" and to.known(1) is not None and to.operands.shape(to.name(0)) is not None
    shape = _requested_shape(to) if stated else to.out_shape(open_dimensions=1)
    to.require(0 not in shape, "an output with elements", list(shape))
    as_it_is = to.mapping == MappingKind.PROVIDER  # The provider transposes the image.
    image = to.operands.shape(to.name(0)) if to.is_image and not as_it_is else None
    if image is not None and shape == (image[0], math.prod(image[1:])):
        _flatten_image(to, image, shape)
        return
    to.finish(C.RESHAPE, to.input(), to.vector(shape or (1,)))


@SQUEEZE.provider_lowering
def _squeeze(to: Lowerer) -> None:
    """SQUEEZE of the axes, by default of all of size 1."""
    shape = to.shape()
    found = to.option("axes", []) if to.node.version < 13 else [] if not to.has(1) else to.whole(to.constant(1))
    axes = [to.axis(int(axis), len(shape)) for axis in found] or [i for i, size in enumerate(shape) if size == 1]
    to.finish(C.SQUEEZE, to.input(), to.vector(axes))


@UNSQUEEZE.host_kernel
def _run_unsqueeze(call: HostCall) -> Sequence[Array]:
    """Axes count in the result, whatever their order."""
    axes = call.option("axes") if call.version < 13 else np.ravel(call.input(1))
    return [np.expand_dims(call.input(0), tuple(int(a) for a in axes))]


@SQUEEZE.host_kernel
def _run_squeeze(call: HostCall) -> Sequence[Array]:
    """Axes count in the input, whatever their order."""
    axes = call.option("axes") if call.version < 13 else call.optional(1)
    return [np.squeeze(call.input(0), None if axes is None else tuple(int(a) for a in np.ravel(axes)))]


def _flatten_image(to: Lowerer, image: Dims, shape: Dims) -> None:
    """An image as rows: a matrix product with constants takes them in the order of the channels-last image."""
    rows = to.emit(C.RESHAPE, to.image(), to.vector(shape), out=to.output())
    if keeps_order(image, LAST[len(image)]):
        to.result(rows)
    else:
        to.operands.set_flat(to.node.outputs[0], rows, to.name(0))


def _requested_shape(to: Lowerer) -> tuple[int, ...]:
    """The shape of the second input: 0 copies an axis, -1 is what is left."""
    shape, required = to.shape(), to.whole(to.constant(1))
    keep = not to.option("allowzero")
    to.require(not keep or all(d != 0 or i < len(shape) for i, d in enumerate(required)), "axes to copy", required)
    sizes = [shape[i] if d == 0 and keep else d for i, d in enumerate(required)]
    if -1 in sizes:
        known = math.prod(d for d in sizes if d != -1)
        to.require(known > 0 and math.prod(shape) % known == 0, f"a shape for {math.prod(shape)} elements", required)
        sizes[sizes.index(-1)] = math.prod(shape) // known
    to.require(math.prod(sizes) == math.prod(shape), f"a shape for {math.prod(shape)} elements", required)
    return tuple(sizes)


TRANSPOSE = operator(
    "Transpose", 197, "data -> transposed", "Axes in another order.", folding=MOVED, quantised=_MOVES, keeps_quantisation=True,
    options=(Option("perm", None, "the axes in their new order, backwards by default"),),
    provider=Provider(2, FLOAT_OR_UINT8, (uint8_parameters(), RANK_4), grouped=True, follows=True),
)  # fmt: skip


@TRANSPOSE.lowering()
def _transpose(to: Lowerer) -> None:
    """TRANSPOSE; between an image's two orders of axes nothing needs to be done."""
    rank = to.rank()
    order = tuple(to.option("perm", range(rank)[::-1]))
    to.require(sorted(order) == list(range(rank)), "an order of the axes", list(order))
    if order == LAST.get(rank) and to.is_image:
        to.result(to.image())
        return
    if order == FIRST.get(rank) and to.channels_last and not to.input().constant:
        to.result(to.input(), images=True)
        return
    if rank <= MAX_RANK:
        to.finish(C.TRANSPOSE, to.input(), to.vector(order))
        return
    shape = to.shape()
    groups = _moving_together(shape, order)
    to.require(len(groups) <= MAX_RANK, f"{MAX_RANK} groups of axes that move at most", len(groups))
    places = sorted(groups)
    x = regrouped(to, to.input(), [math.prod(shape[axis] for axis in group) for group in places])
    if places != groups:
        x = to.emit(C.TRANSPOSE, x, to.vector([places.index(group) for group in groups]))
    to.finish(C.RESHAPE, x, to.vector([shape[axis] for axis in order]))


def _moving_together(shape: Dims, order: Dims) -> list[list[int]]:
    """Axes in their new order, those that stay side by side in groups; axes of size 1 need no place."""
    groups: list[list[int]] = []
    wide = [axis for axis in range(len(shape)) if shape[axis] != 1]
    behind = dict(pairwise(wide))
    for axis in (axis for axis in order if shape[axis] != 1):
        if groups and behind.get(groups[-1][-1]) == axis:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups or [[0]]


def regrouped(to: Lowerer, x: Value, dims: Sequence[int]) -> Value:
    """A value in other dimensions; RESHAPE makes values of more than four axes, but reads none: what it made them of is read."""
    if x.rank > MAX_RANK and not x.constant:
        step = next((s for s in reversed(to.draft.steps) if any(output is x for output in s.outputs)), None)
        to.require(step is not None and step.code == C.RESHAPE, f"rank {MAX_RANK} at most, or a reshaped value", x.rank, x.name)
        assert step is not None
        x = step.inputs[0]
    return to.emit(C.RESHAPE, x, to.vector(dims))


# -- repetition --------------------------------------------------------------------------------------------------------------

TILE = operator(
    "Tile",
    195,
    "input repeats! -> output",
    "Repeated along axes.",
    folding=_FROM_ARRAY,
    quantised=_MOVES,
    keeps_quantisation=True,
)
EXPAND = operator(
    "Expand",
    57,
    "input shape! -> output",
    "Broadcast to a shape.",
    folding=_FROM_ARRAY,
    quantised=_MOVES,
    keeps_quantisation=True,
)


@TILE.lowering()
def _tile(to: Lowerer) -> None:
    repeats = to.whole(to.constant(1))
    to.require(min(repeats, default=0) > 0, "repeats above 0", repeats)
    to.finish(C.TILE, to.input(), to.vector(repeats))


@EXPAND.lowering()
def _expand(to: Lowerer) -> None:
    """TILE of axes of size 1."""
    shape, required = to.shape(), to.out_shape()
    to.require(0 not in required, "an output with elements", list(required))
    padded = (1,) * (len(required) - len(shape)) + shape
    x = to.input()
    repeats = [1 if a == b else b for a, b in zip(padded, required, strict=True)]
    if all(r == 1 for r in repeats):
        to.finish(C.RESHAPE, x, to.vector(required or (1,)))
        return
    if padded != shape:
        x = to.emit(C.RESHAPE, x, to.vector(padded))
    to.finish(C.TILE, x, to.vector(repeats))


# -- blocks of an image ------------------------------------------------------------------------------------------------------

_BLOCKS = (
    Option("blocksize", 1, "height and width of a block"),
    Option("mode", "DCR", "CRD for channels before the pixels of a block", choices=("DCR", "CRD")),
)
DEPTH_TO_SPACE = operator(
    "DepthToSpace", 46, "input -> output", "Channels as blocks of pixels.", options=_BLOCKS, folding=MOVED, quantised=_MOVES,
    provider=Provider(conditions=(ranks(4, 4), NCHW, one_of("mode", "DCR"))),
)  # fmt: skip
SPACE_TO_DEPTH = operator("SpaceToDepth", 178, "input -> output", "Blocks of pixels as channels.", options=_BLOCKS, folding=MOVED)


@lowers(DEPTH_TO_SPACE, SPACE_TO_DEPTH)
def _blocks(to: Lowerer) -> None:
    """NNAPI orders depth as ONNX's DCR does; channels in the order of CRD are brought into that one."""
    to.require(to.rank() == 4, "rank 4", to.rank())
    block, x, count = to.option("blocksize"), to.image(), to.shape()[1]
    size, axis = [to.scalar(block), *to.layout()], to.scalar(3 if to.channels_last else 1)
    turns = to.option("mode") == "CRD"
    if to.node.type == "DepthToSpace":
        if turns:
            order = np.arange(count).reshape(-1, block * block).T.ravel()
            x = to.emit(C.GATHER, x, axis, to.draft.ints(order.tolist()))
        to.finish(C.DEPTH_TO_SPACE, x, *size, images=True)
        return
    if not turns:
        to.finish(C.SPACE_TO_DEPTH, x, *size, images=True)
        return
    deep = to.emit(C.SPACE_TO_DEPTH, x, *size)
    to.draft.spend(count * block * block)
    order = np.arange(count * block * block).reshape(block * block, count).T.ravel()
    to.finish(C.GATHER, deep, axis, to.draft.ints(order.tolist()), images=True)


# -- copies ------------------------------------------------------------------------------------------------------------------

IDENTITY = operator(
    "Identity", 79, "input -> output", "The input itself.", folding=MOVED, keeps_quantisation=True, provider=Provider(copies=True)
)
DROPOUT = operator("Dropout", 50, "data ratio? training_mode? -> output mask?", "The input itself, unless it trains.")


@lowers(IDENTITY, DROPOUT)
def _identity(to: Lowerer) -> None:
    """One name more for a value."""
    to.require_one_output()
    training = to.optional(2) if to.node.type == "Dropout" else None
    to.require(training is None or not training.item(), "inference", "training_mode")
    to.operands.alias(to.node.outputs[0], to.name(0))


# -- shapes as values --------------------------------------------------------------------------------------------------------


def _fold_shape(node: Node, known: Known) -> bool:
    """The shape of a value, or the number of its elements, as far as it is known."""
    shape = known.tensor(node.inputs[0]).shape
    if shape is None:
        return False
    part = shape[slice(node.attributes.get("start", 0), node.attributes.get("end"))] if node.type == "Shape" else shape
    if any(d < 0 for d in part):
        return False
    array: Array = np.array(part if node.type == "Shape" else math.prod(part), np.int64)
    known.fold(node.outputs[0], array, INT64)
    return True


operator("Shape", 166, "data -> shape", "The dimensions of a tensor.", fold=_fold_shape, bounded=True)
operator("Size", 172, "data -> size", "The number of elements of a tensor.", fold=_fold_shape, bounded=True)

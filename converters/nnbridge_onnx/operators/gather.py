"""Gathering and scattering along axes and element by element; one-hot rows and triangles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from nnbridge.converters.declaration import Option, lowers
from nnbridge.converters.draft import Value
from nnbridge.converters.folding import Folding
from nnbridge.converters.lowerer import DTYPES
from nnbridge.errors import Stage, Why
from nnbridge.model import Array
from nnbridge.types import OperandCode
from nnbridge_onnx.declaration import MOVED, MULTIPLIED, operator
from nnbridge_onnx.host.evaluator import HostCall
from nnbridge_onnx.lowerer import C, Lowerer
from nnbridge_onnx.operands import LAST
from nnbridge_onnx.operators.reshaping import MAX_RANK, regrouped
from nnbridge_onnx.read.graph import Dims
from nnbridge_onnx.rules import RANK_4, Provider, condition

_AXIS = Option("axis", 0, "the axis to gather or scatter along")

GATHER = operator(
    "Gather", 62, "data indices -> output", "Elements along an axis, by their indexes.", options=(_AXIS,), folding=MULTIPLIED,
    keeps_quantisation=True,
    provider=Provider(
        3,
        conditions=(
            RANK_4,
            condition(
                "constant indexes, or int32 ones",
                lambda u: u.type(1) == "INT32" or u.constant(1) is not None,
                lambda u: u.type(1),
                kind=Why.NOT_CONSTANT,
            ),
            condition("an input with elements", lambda u: 0 not in u.shape(), lambda u: list(u.shape()), kind=Why.OPERAND_SIZE),
        ),
        builds=(
            # Only constants of other types are squeezed after GATHER, whose result has one axis more than the builder declares.
            condition(
                "indexes with an axis, or a constant of int64",
                lambda u: u.type(1) != "INT32" or u.shape(1),
                lambda u: "an int32 scalar",
                kind=Why.RANK, stage=Stage.RUNNING,
            ),
            # What is squeezed is declared with an axis beside the one that a scalar has in NNAPI.
            condition(
                "a result with an axis",
                lambda u: len(u.shape()) > 1 or len(u.shape(1)) > 0,
                lambda u: "a scalar",
                kind=Why.RANK, stage=Stage.RUNNING,
            ),
            condition(
                "indexes from 0 on",
                lambda u: (known := u.constant(1)) is None or not known.size or known.min() >= 0,
                lambda u: "others",
                kind=Why.RANGE, stage=Stage.RUNNING,
            ),
        ),
    ),
)  # fmt: skip


def indexes_from_front(to: Lowerer, position: int, size: int) -> Value:
    """Indexes counted from the front of an axis: NNAPI knows no negative ones."""
    known = to.known(position)
    if known is not None:
        numbers = to.whole(known)
        to.require(all(-size <= v < size for v in numbers), f"indexes in [{-size}, {size})", numbers[:8])
        return to.draft.ints([v % size for v in numbers], known.shape or (1,))
    indexes, shape = to.indexes(position), to.shape(position) or (1,)
    negative = to.emit(C.LESS, indexes, to.vector([0]), out=Value(OperandCode.TENSOR_BOOL8, shape))
    from_front = to.emit(C.ADD, indexes, to.vector([size]))
    return to.emit(C.SELECT, negative, from_front, indexes, like=indexes)


def gather_along(to: Lowerer, chosen: Mapping[int, Sequence[int]]) -> None:
    """The input with elements gathered along some axes at known indexes, as the output."""
    rank = to.rank()
    to.require(
        0 < rank <= MAX_RANK and all(len(p) for p in chosen.values()),
        "rank 1 to 4, and indexes that are not empty",
        rank,
    )
    images = to.is_image
    x = to.image_if(images)
    steps = [(LAST[rank].index(axis) if images else axis, list(indexes)) for axis, indexes in chosen.items()]
    to.require(steps, "an axis that changes", "none")
    for axis, indexes in steps[:-1]:
        x = to.emit(C.GATHER, x, to.scalar(axis), to.draft.ints(indexes))
    axis, indexes = steps[-1]
    to.finish(C.GATHER, x, to.scalar(axis), to.draft.ints(indexes), images=images)


@GATHER.lowering()
def _gather(to: Lowerer) -> None:
    """GATHER along an axis by constant or computed indexes."""
    x, rank = to.input(), to.rank()
    axis = to.axis(to.option("axis"), rank)
    known = to.shape(1)
    size = to.shape()[axis]
    places = indexes_from_front(to, 1, size)
    if rank > MAX_RANK:
        shape = to.shape()
        x, axis = regrouped(to, x, [math.prod(shape[:axis]), size, math.prod(shape[axis + 1 :])]), 1
    elif known:
        to.finish(C.GATHER, x, to.scalar(axis), places)
        return
    picked = to.emit(C.GATHER, x, to.scalar(axis), places)
    to.finish(C.RESHAPE, picked, to.vector(to.out_shape() or (1,)))


@GATHER.provider_lowering
def _gather_as_they_are(to: Lowerer) -> None:
    """GATHER by the indexes as they are; SQUEEZE after a constant scalar."""
    (x,), images = to.aligned(0)
    axis = to.axis(to.option("axis"), to.rank())
    known = to.known(1)
    indexes = to.indexes(1) if known is None else to.draft.ints(to.whole(known), known.shape or (1,))
    if images and len(to.shape(1)) == 1:
        to.finish(C.GATHER, x, to.scalar(LAST[x.rank].index(axis)), indexes, images=True)
        return
    x = to.input()
    if to.shape(1):
        to.finish(C.GATHER, x, to.scalar(axis), indexes)
        return
    to.finish(C.SQUEEZE, to.emit(C.GATHER, x, to.scalar(axis), indexes), to.vector([axis]))


# -- element by element, at constant indexes ---------------------------------------------------------------------------------

GATHER_ELEMENTS = operator(
    "GatherElements", 63, "data indices -> output", "One element along an axis for each index.", options=(_AXIS,), folding=MOVED
)
GATHER_ND = operator(
    "GatherND", 64, "data indices -> output", "Slices at tuples of indexes.", folding=MULTIPLIED,
    options=(Option("batch_dims", 0, "leading axes that data and indexes share"),),
)  # fmt: skip
_REDUCTION = Option("reduction", "none", "how updates and data are combined")
SCATTER_ELEMENTS = operator(
    "ScatterElements", 156, "data indices updates -> output", "Data with elements replaced along an axis.",
    options=(_AXIS, _REDUCTION), folding=MOVED,
)  # fmt: skip
SCATTER = operator(
    "Scatter", 155, "data indices updates -> output", "ScatterElements before opset 11.", options=(_AXIS,), folding=MOVED
)
SCATTER_ND = operator(
    "ScatterND", 157, "data indices updates -> output", "Data with slices replaced at tuples of indexes.", options=(_REDUCTION,),
    folding=MOVED,
)  # fmt: skip


def _positions(to: Lowerer, shape: Dims) -> Array:
    """The number of each element of a shape, in its order."""
    to.draft.spend(math.prod(shape))
    return np.arange(math.prod(shape)).reshape(shape)


def _within(to: Lowerer, indexes: Array, size: int) -> Array:
    to.require(np.all((indexes >= -size) & (indexes < size)), f"indexes in [{-size}, {size})", "others")
    return indexes % size


def _of_elements(to: Lowerer, indexes: Array, shape: Dims, axis: int) -> Array:
    """The element that each index along an axis means."""
    grids: list[Array] = list(np.indices(indexes.shape))
    grids[axis] = _within(to, indexes, shape[axis])
    found: Array = _positions(to, shape)[tuple(grids)]
    return found


def _of_tuples(to: Lowerer, indexes: Array, shape: Dims, batch: int) -> Array:
    """The elements that tuples of indexes mean, after axes of batches."""
    depth = indexes.shape[-1]
    parts = [_within(to, indexes[..., i], shape[batch + i]) for i in range(depth)]
    places = (*np.indices(indexes.shape[:-1])[:batch], *parts)
    found: Array = _positions(to, shape)[places]
    return found


def _gathered(to: Lowerer, x: Value, places: Array) -> None:
    """Elements of a flat value, as the output."""
    to.require(places.size and x.rank <= 4, "a value of rank 4 at most, and indexes that are not empty", x.rank)
    picked = to.emit(C.GATHER, x, to.scalar(0), to.draft.ints(np.ravel(places).tolist()))
    to.finish(C.RESHAPE, picked, to.vector(places.shape or (1,)))


def _flat(to: Lowerer, position: int) -> Value:
    value = to.input(position)
    to.require(0 not in to.shape(position), "elements", list(to.shape(position)))
    return to.emit(C.RESHAPE, value, to.vector([math.prod(to.shape(position))]))


@lowers(GATHER_ELEMENTS, GATHER_ND)
def _gather_elements(to: Lowerer) -> None:
    """GATHER of single elements."""
    _gathered(to, _flat(to, 0), _found(to, to.shape(), to.constant(1)))


def _found(to: Lowerer, shape: Dims, indexes: Array) -> Array:
    if to.node.type.endswith("ND"):
        return _of_tuples(to, indexes, shape, to.option("batch_dims", 0))
    return _of_elements(to, indexes, shape, to.axis(to.option("axis"), len(shape)))


@lowers(SCATTER_ELEMENTS, SCATTER, SCATTER_ND)
def _scatter(to: Lowerer) -> None:
    """GATHER from the data and the updates side by side."""
    to.require(to.option("reduction", "none") == "none", "no reduction", to.option("reduction", "none"))
    shape = to.shape()
    targets = np.ravel(_found(to, shape, to.constant(1)))
    places = np.ravel(_positions(to, shape)).copy()
    places[targets] = len(places) + np.arange(targets.size)
    parts: Sequence[Value] = [_flat(to, 0), _flat(to, 2)]
    joined = to.emit(C.CONCATENATION, *parts, to.scalar(0), like=parts[0])
    _gathered(to, joined, places.reshape(shape))


@GATHER_ELEMENTS.host_kernel
def _compute(call: HostCall) -> Sequence[Array]:
    data, places = call.input(0), call.input(1)
    axis = call.option("axis") % data.ndim
    size = data.shape[axis]
    if places.size and not (-size <= places.min() and places.max() < size):
        raise ValueError(f"indexes from {-size} to {size - 1}, found {places.min()} to {places.max()}")
    seen = data[tuple(slice(None) if a == axis else slice(0, n) for a, n in enumerate(places.shape))]
    return [np.take_along_axis(seen, places % max(size, 1), axis)]


# -- one-hot rows and triangles ----------------------------------------------------------------------------------------------

ONE_HOT = operator(
    "OneHot", 116, "indices depth! values -> output", "For each index a row of one value, with another one at the index.",
    options=(Option("axis", -1, "the axis of the rows"),),
    folding=Folding(lambda indices, depth, values: indices.size * float(np.ravel(depth)[0])),
)  # fmt: skip
TRILU = operator(
    "Trilu", 198, "input k? -> output", "The triangle above or below a diagonal, else 0.", folding=MOVED,
    options=(Option("upper", 1, "1 for the upper triangle"),),
)  # fmt: skip


@ONE_HOT.lowering()
def _one_hot(to: Lowerer) -> None:
    """SELECT by the comparison of each index with all places."""
    shape, out, pair = to.shape(), to.out_shape(), to.constant(2)
    depth = int(np.ravel(to.constant(1))[0])
    axis = to.option("axis") % (len(shape) + 1)
    to.require(0 not in out and len(out) <= 4 and pair.size == 2, "an output of rank 4 at most with elements", list(out))
    result = to.output()
    to.require(result.type in DTYPES, "floating or int32 values", OperandCode(result.type).name)
    to.draft.spend(2 * math.prod(out) + depth)
    places = indexes_from_front(to, 0, depth)
    wide = to.emit(C.RESHAPE, places, to.vector([*shape[:axis], 1, *shape[axis:]]))
    along = [depth if i == axis else 1 for i in range(len(out))]
    holds = to.emit(C.EQUAL, wide, to.draft.ints(range(depth), tuple(along)), out=to.bools())
    off, on = (Value(result.type, out, data=np.full(out, pair[i], DTYPES[OperandCode(result.type)])) for i in (0, 1))
    to.result(to.emit(C.SELECT, holds, on, off, out=result))


@ONE_HOT.host_kernel
def _compute_one_hot(call: HostCall) -> Sequence[Array]:
    """Indexes, depth and values may have three element types; indexes out of range leave their row off."""
    depth, values = int(np.ravel(call.input(1))[0]), call.input(2)
    indexes = call.input(0).astype(np.int64)
    axis = call.option("axis") % (indexes.ndim + 1)
    indexes = np.expand_dims(np.where(indexes < 0, indexes + depth, indexes), axis)
    holds = indexes == np.arange(depth).reshape(-1, *[1] * (indexes.ndim - 1 - axis))
    return [np.where(holds, values[1], values[0])]


@TRILU.lowering()
def _triangle(to: Lowerer) -> None:
    """SELECT by a constant mask."""
    shape, x = to.shape(), to.input()
    shift = to.optional(1)
    k = 0 if shift is None else int(np.ravel(shift)[0])
    to.require(len(shape) >= 2 and (to.is_float(x) or x.type == OperandCode.TENSOR_INT32), "matrices of numbers", list(shape))
    to.draft.spend(2 * math.prod(shape))
    triangle = np.broadcast_to(np.triu(np.ones(shape[-2:]), k) if to.option("upper") else np.tril(np.ones(shape[-2:]), k), shape)
    mask = Value(OperandCode.TENSOR_BOOL8, shape, data=np.ascontiguousarray(triangle, np.uint8))
    zeros = np.zeros(shape, np.int32)
    nothing = Value(x.type, shape, data=zeros) if x.type == OperandCode.TENSOR_INT32 else to.float_tensor(zeros, x)
    to.finish(C.SELECT, mask, x, nothing)


# -- the host's --------------------------------------------------------------------------------------------------------------

operator("Compress", 32, "input condition! -> output", "Elements along an axis where a condition holds.", folding=MOVED)
operator(
    "TensorScatter", 192, "past_cache update write_indices? -> present_cache", "A cache with rows replaced from an index on."
)
operator("EyeLike", 58, "input -> output", "A diagonal of ones in the shape of the input.")

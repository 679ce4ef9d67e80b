"""Selections: Where, ArgMax, TopK, OneHot, Trilu, and gathering and scattering element by element."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnbridge.converters.draft import Value
from nnbridge.types import OperandCode, OperationCode
from nnbridge_onnx.graph import Array, Dims
from nnbridge_onnx.lower_shapes import places_of
from nnbridge_onnx.lowering import Lowerer, lowers

C = OperationCode
_BOOL = OperandCode.TENSOR_BOOL8


@lowers("Where")
def _where(to: Lowerer) -> None:
    """SELECT; its operands are brought into one shape."""
    shapes = [to.shape(i) for i in range(3)]
    if len(set(shapes)) == 1:
        inputs, images = to.alike(0, 1, 2)
        to.finish_alike(C.SELECT, inputs, images)
        return
    shape = np.broadcast_shapes(*shapes) or (1,)
    to.require(0 not in shape, "an output with elements", list(shape))
    to.finish(C.SELECT, [_spread(to, i, shape) for i in range(3)])


def _spread(to: Lowerer, position: int, shape: Dims) -> Value:
    """An input, repeated until it has a shape that it broadcasts to."""
    value, own = to.value(position), to.shape(position)
    if value.data is not None:
        to.values.draft.spend(math.prod(shape))
        return value.like(dims=shape, data=np.ascontiguousarray(np.broadcast_to(value.data.reshape(own), shape)))
    if own == shape:
        return value
    if value.type == _BOOL:
        # TILE does not take booleans; LOGICAL_OR repeats its operands by itself.
        to.values.draft.spend(math.prod(shape))
        nothing = Value(_BOOL, shape, data=np.zeros(shape, np.uint8))
        return to.emit(C.LOGICAL_OR, [value, nothing], Value(_BOOL))
    wide = (1,) * (len(shape) - len(own)) + own
    if wide != value.dims:
        value = to.emit(C.RESHAPE, [value, to.vector(wide)], to.temporary(value))
    repeats = [n // d for d, n in zip(wide, shape, strict=True)]
    return value if set(repeats) == {1} else to.emit(C.TILE, [value, to.vector(repeats)], to.temporary(value))


@lowers("ArgMax", "ArgMin")
def _extreme(to: Lowerer) -> None:
    """ARGMAX and ARGMIN, which find the first place."""
    rank, x = to.rank(), to.value()
    to.require(not to.attribute("select_last_index", 0), "the first place", "select_last_index")
    to.require(to.is_float(x) or x.type == OperandCode.TENSOR_INT32, "numbers", OperandCode(x.type).name)
    axis = to.axis("axis", 0, rank)
    code = C.ARGMAX if to.node.type == "ArgMax" else C.ARGMIN
    if to.attribute("keepdims", 1) and rank > 1:
        shape = [1 if i == axis else d for i, d in enumerate(to.shape())]
        found = to.emit(code, [x, to.scalar(axis)], Value(OperandCode.TENSOR_INT32))
        to.finish(C.RESHAPE, [found, to.vector(shape)])
        return
    to.require(rank > 1, "rank 2 at least", rank)
    to.finish(code, [x, to.scalar(axis)])


@lowers("TopK")
def _top(to: Lowerer) -> None:
    """TOPK_V2 along the last axis, of negated values for the smallest ones."""
    rank, x = to.rank(), to.value()
    count = int(to.attribute("k", 0)) if to.node.version < 10 else int(np.ravel(to.constant(1))[0])
    largest = bool(to.attribute("largest", 1))
    to.require(to.axis("axis", -1, rank) == rank - 1 and rank > 0, "the last axis", to.attribute("axis", -1))
    to.require(count > 0 and (largest or to.is_float(x)), "floating values for the smallest ones", count)
    to.require(to.is_float(x) or x.type == OperandCode.TENSOR_INT32, "numbers", OperandCode(x.type).name)
    source = x if largest else to.emit(C.NEG, [x], to.temporary(x))
    outputs = [to.temporary(x), Value(OperandCode.TENSOR_INT32)]
    values, places = to.emit_all(C.TOPK_V2, [source, to.scalar(count)], outputs)
    if not largest:
        values = to.emit(C.NEG, [values], to.temporary(x))
    for position, found in enumerate((values, places)):
        if position < len(to.node.outputs) and to.node.outputs[position]:
            found.name = to.node.outputs[position]
            to.result(found, position)


@lowers("OneHot")
def _one_hot(to: Lowerer) -> None:
    """SELECT by the comparison of each index with all places."""
    shape, out, pair = to.shape(), to.out_shape(), to.constant(2)
    depth = int(np.ravel(to.constant(1))[0])
    axis = int(to.attribute("axis", -1)) % (len(shape) + 1)
    to.require(0 not in out and len(out) <= 4 and pair.size == 2, "an output of rank 4 at most with elements", list(out))
    result = to.output()
    kinds = {OperandCode.TENSOR_FLOAT32: np.float32, OperandCode.TENSOR_FLOAT16: np.float16, OperandCode.TENSOR_INT32: np.int32}
    to.require(result.type in kinds, "floating or int32 values", OperandCode(result.type).name)
    to.values.draft.spend(2 * math.prod(out) + depth)
    places = places_of(to, 0, depth)
    wide = to.emit(C.RESHAPE, [places, to.vector([*shape[:axis], 1, *shape[axis:]])], to.temporary(places))
    along = [depth if i == axis else 1 for i in range(len(out))]
    holds = to.emit(C.EQUAL, [wide, to.values.draft.ints(range(depth), tuple(along))], Value(_BOOL))
    off, on = (Value(result.type, out, data=np.full(out, pair[i], kinds[OperandCode(result.type)])) for i in (0, 1))
    to.result(to.emit(C.SELECT, [holds, on, off], result))


@lowers("Trilu")
def _triangle(to: Lowerer) -> None:
    """SELECT by a constant mask."""
    shape, x = to.shape(), to.value()
    shift = to.optional_constant(1)
    k = 0 if shift is None else int(np.ravel(shift)[0])
    to.require(len(shape) >= 2 and (to.is_float(x) or x.type == OperandCode.TENSOR_INT32), "matrices of numbers", list(shape))
    to.values.draft.spend(2 * math.prod(shape))
    kept = np.broadcast_to(
        np.triu(np.ones(shape[-2:]), k) if to.attribute("upper", 1) else np.tril(np.ones(shape[-2:]), k), shape
    )
    mask = Value(_BOOL, shape, data=np.ascontiguousarray(kept, np.uint8))
    zeros = np.zeros(shape, np.int32)
    nothing = Value(x.type, shape, data=zeros) if x.type == OperandCode.TENSOR_INT32 else to.real(zeros, x)
    to.finish(C.SELECT, [mask, x, nothing])


# -- element by element, at constant places ------------------------------------------------------------------------------


def _positions(to: Lowerer, shape: Dims) -> Array:
    """The number of each element of a shape, in its order."""
    to.values.draft.spend(math.prod(shape))
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
    """The elements that tuples of indexes mean, behind axes of batches."""
    depth = indexes.shape[-1]
    parts = [_within(to, indexes[..., i], shape[batch + i]) for i in range(depth)]
    places = (*np.indices(indexes.shape[:-1])[:batch], *parts)
    found: Array = _positions(to, shape)[places]
    return found


def _taken(to: Lowerer, x: Value, places: Array) -> None:
    """Elements of a flat value, as the output."""
    to.require(places.size and x.rank <= 4, "a value of rank 4 at most, elements to take", x.rank)
    picked = to.emit(C.GATHER, [x, to.scalar(0), to.values.draft.ints(np.ravel(places).tolist())], to.temporary(x))
    to.finish(C.RESHAPE, [picked, to.vector(places.shape)])


def _flat(to: Lowerer, position: int) -> Value:
    value = to.value(position)
    to.require(0 not in to.shape(position), "elements", list(to.shape(position)))
    return to.emit(C.RESHAPE, [value, to.vector([math.prod(to.shape(position))])], to.temporary(value))


@lowers("GatherElements", "GatherND")
def _gather(to: Lowerer) -> None:
    """GATHER of single elements."""
    _taken(to, _flat(to, 0), _found(to, to.shape(), to.constant(1)))


def _found(to: Lowerer, shape: Dims, indexes: Array) -> Array:
    if to.node.type.endswith("ND"):
        return _of_tuples(to, indexes, shape, int(to.attribute("batch_dims", 0)))
    return _of_elements(to, indexes, shape, to.axis("axis", 0, len(shape)))


@lowers("ScatterElements", "Scatter", "ScatterND")
def _scatter(to: Lowerer) -> None:
    """GATHER from the data and the updates side by side."""
    to.require(to.attribute("reduction", "none") == "none", "no reduction", to.attribute("reduction", "none"))
    shape = to.shape()
    targets = np.ravel(_found(to, shape, to.constant(1)))
    places = np.ravel(_positions(to, shape)).copy()
    places[targets] = len(places) + np.arange(targets.size)
    parts: Sequence[Value] = [_flat(to, 0), _flat(to, 2)]
    joined = to.emit(C.CONCATENATION, [*parts, to.scalar(0)], to.temporary(parts[0]))
    _taken(to, joined, places.reshape(shape))

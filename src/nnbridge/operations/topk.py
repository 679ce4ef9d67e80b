"""Choosing by value, and expanding sparse tensors: TOPK_V2, ARGMAX, ARGMIN, DENSIFY."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnbridge.model import Array
from nnbridge.operations.arithmetic import integer_range
from nnbridge.operations.call import Call
from nnbridge.operations.declaration import Input, Output, at_least, like, operation, rank, signature, types
from nnbridge.operations.kernels import prepared
from nnbridge.operations.reshaping import ANY_RANK, moved_types
from nnbridge.types import FeatureLevel, OperationCode
from nnbridge.types import OperandCode as T


def _topk_shape(call: Call) -> list[tuple[int, ...]]:
    dims, k = call["input"].dims, int(call.scalar("k"))
    call.require(0 < k <= dims[-1], f"k from 1 to {dims[-1]}", k, "k")
    return [(*dims[:-1], k)] * 2


@operation(
    OperationCode.TOPK_V2,
    since=3,
    summary="The k largest values along the last axis, descending, and where they stand.",
    types=moved_types(3, integers=3),
    inputs=[ANY_RANK, Input("k", T.INT32, "how many values")],
    outputs=[
        Output("values", "T", "values in descending order", like("input")),
        Output("indices", T.TENSOR_INT32, "their indexes; of equal values the larger index comes first"),
    ],
    shape=_topk_shape,
)
@prepared("input")
def topk_v2(call: Call) -> Callable[[Array], Sequence[Array]]:
    """N89."""
    x, dims, k = call["input"], call.out.dims, int(call.scalar("k"))
    size, count = x.dims[-1], math.prod(x.dims[:-1])

    def sort(x: Array) -> Sequence[Array]:
        places = _places_of_largest(x.reshape(count, size), k)
        return x.reshape(-1).take(places).reshape(dims), (places % size).astype(_INDEX).reshape(dims)

    if k > _FEW or (count > 1 and (size < _LONG * (k - 1) or count * size < _MANY * k**2)):
        return sort
    # Each maximum that was found makes way to the next one by becoming the lowest value. One that is the lowest itself could
    # have been found before. Backwards, because the first of equal values is found and the last is wanted.
    lowest: Any = -math.inf if x.dtype.kind == "f" else integer_range(x)[0]
    picks, last, rows, empty = range(k - 1), size - 1, np.arange(count), np.empty

    def pick_of_one(x: Array) -> Sequence[Array]:
        row, places = x.ravel(), empty(dims, _PLACE)
        rest, found = row[::-1].copy(), places.ravel()
        for i in picks:
            place = rest.argmax()
            rest[place] = lowest
            found[i] = last - place
        place = rest.argmax()
        found[-1] = last - place
        return (row[places], places.astype(_INDEX)) if rest.item(place) != lowest else sort(x)

    def pick_of_each(x: Array) -> Sequence[Array]:
        places = empty((count, k), _PLACE)
        rest = x.reshape(count, size)[:, ::-1].copy()
        for i in picks:
            place = rest.argmax(axis=1)
            rest[rows, place] = lowest
            np.subtract(last, place, out=places[:, i])
        place = rest.argmax(axis=1)
        if (rest[rows, place] == lowest).any():
            return sort(x)
        np.subtract(last, place, out=places[:, -1])
        values = np.take_along_axis(x.reshape(count, size), places, axis=1)
        return values.reshape(dims), places.astype(_INDEX).reshape(dims)

    return pick_of_one if count == 1 else pick_of_each


_FEW, _LONG, _MANY = 8, 25, 500
"""Up to as many values take less time when they are picked one after the other: those of one row, or of rows so long for each
further value and, together, so many for the square of their number."""
_PLACE, _INDEX = np.dtype(np.intp), np.dtype(np.int32)


def _places_of_largest(rows: Array, k: int) -> Array:
    """Where the k largest values of each row stand in all of them, descending; of equal ones the last comes first."""
    count, size = rows.shape
    # What is not below the k-th largest is sorted alone, unless ties make it more than k. What is not a number is the largest.
    least = np.partition(rows, size - k, axis=1)[:, size - k, None]
    found = (~(rows < least)).reshape(-1).nonzero()[0]
    if len(found) != count * k:
        return rows.argsort(axis=1, kind="stable")[:, ::-1][:, :k] + np.arange(0, rows.size, size)[:, None]
    order = rows.reshape(-1).take(found).reshape(-1, k).argsort(axis=1, kind="stable")[:, ::-1]
    return found.take(order + np.arange(0, len(found), k)[:, None] if count > 1 else order)


def _arg_shape(call: Call) -> tuple[int, ...]:
    dims = call["input"].dims
    axis = call.axis("axis", len(dims))
    return (*dims[:axis], *dims[axis + 1 :]) or (1,)


def _arg(code: OperationCode, word: str, function: Callable[..., Array]) -> None:
    @operation(
        code,
        since=3,
        summary=f"Index of the {word} value along an axis; the first of equal ones.",
        types=moved_types(3, integers=3),
        inputs=[ANY_RANK, Input("axis", T.INT32, "axis, counted from the end if negative")],
        outputs=[Output("output", T.TENSOR_INT32, "indexes; the axis is dropped")],
        shape=_arg_shape,
        handled="executor",
        half="native",
    )
    @prepared("input")
    def kernel(call: Call) -> Callable[[Array], Array]:
        dims = call["input"].dims
        axis, indexes = call.axis("axis", len(dims)), np.dtype(np.int32)
        if dims[axis] <= 255 and math.prod(dims) >= _MANY_ROWS * dims[axis]:
            return _by_lanes(np.maximum if word == "largest" else np.minimum, function, axis, dims)
        return lambda x: function(x, axis, keepdims=len(dims) == 1).astype(indexes)


_MANY_ROWS = 256
"""From as many short rows on, comparing them all at once takes less time than one after the other."""


def _by_lanes(best: np.ufunc, function: Callable[..., Array], axis: int, dims: tuple[int, ...]) -> Callable[[Array], Array]:
    """Where along a short axis the best value stands first, for all rows at once; one by one if any is not a number."""
    order, count = (axis, *(a for a in range(len(dims)) if a != axis)), dims[axis]
    # The first lane that holds the best value counts most, and says so in a byte.
    weights = np.arange(255, 255 - count, -1, dtype=np.uint8).reshape(-1, *[1] * (len(dims) - 1))

    def find(x: Array) -> Array:
        lanes = np.ascontiguousarray(x.transpose(order))
        found = best.reduce(lanes, axis=0)
        if found.dtype.kind == "f" and np.isnan(found).any():
            return function(x, axis).astype(np.int32)
        held: Array = (lanes == found).view(np.uint8)
        held *= weights
        return np.subtract(255, np.maximum.reduce(held, axis=0), dtype=np.int32)

    return find


_arg(OperationCode.ARGMAX, "largest", np.ndarray.argmax)
_arg(OperationCode.ARGMIN, "smallest", np.ndarray.argmin)


# -- DENSIFY ---------------------------------------------------------------------------------------------------------

_DENSE, _SPARSE = 0, 1


def _levels(call: Call) -> tuple[list[int], list[int], list[int], list[int]]:
    """Traversal order, block map, dimension formats and dimension sizes."""
    names = ("traversal", "block_map", "formats", "sizes")
    order, blocks, formats, sizes = (
        [] if (arg := call.get(name)) is None else [int(v) for v in arg.data.reshape(-1)] for name in names
    )
    depth = len(order)
    call.require(len(formats) == len(sizes) == depth, f"{depth} formats and sizes", f"{len(formats)}, {len(sizes)}")
    call.require(sorted(order) == list(range(depth)), f"a permutation of 0 to {depth - 1}", order, "traversal")
    call.require(len(call.repeated("metadata")) == 2 * depth, f"{2 * depth} segments and indexes", len(call.args) - 5)
    outer = depth - len(blocks)
    call.require(all(0 <= b < outer for b in blocks), f"block dimensions below {outer}", blocks, "block_map")
    return order, blocks, formats, sizes


def _densify_shape(call: Call) -> tuple[int, ...]:
    order, blocks, _, sizes = _levels(call)
    size_of = dict(zip(order, sizes, strict=True))
    outer = len(order) - len(blocks)
    dims = [size_of[d] for d in range(outer)]
    for k, dimension in enumerate(blocks):
        dims[dimension] *= size_of[outer + k]
    return tuple(dims)


_SPARSE_TYPES = (
    T.TENSOR_FLOAT32,
    T.TENSOR_FLOAT16,
    T.TENSOR_INT32,
    T.TENSOR_BOOL8,
    T.TENSOR_QUANT8_ASYMM,
    T.TENSOR_QUANT8_ASYMM_SIGNED,
    T.TENSOR_QUANT8_SYMM,
    T.TENSOR_QUANT16_ASYMM,
    T.TENSOR_QUANT16_SYMM,
)


@operation(
    OperationCode.DENSIFY,
    since=FeatureLevel.EXPERIMENTAL,
    summary="A dense tensor from a sparse one in TFLite's hybrid format (experimental).",
    types=[types(FeatureLevel.EXPERIMENTAL, T=kind) for kind in _SPARSE_TYPES],
    signatures=[
        signature(
            [
                Input("values", "T", "the stored values", rank=at_least(1)),
                Input("traversal", T.TENSOR_INT32, "order in which dimensions are walked, blocks last", rank=rank(1)),
                Input("block_map", T.TENSOR_INT32, "dimension that each block belongs to", rank=rank(1), optional=True),
                Input("formats", T.TENSOR_INT32, "0 dense, 1 compressed, for each walked dimension", rank=rank(1)),
                Input("sizes", T.TENSOR_INT32, "size of each walked dimension", rank=rank(1)),
                Input("metadata", T.TENSOR_INT32, "segments and indexes of each walked dimension", optional=True, repeat=True),
            ],
            {},
            minimum=5,
        )
    ],
    outputs=[Output("output", "T", "the dense tensor; what is not stored is zero", like("values"))],
    shape=_densify_shape,
    omitted=True,
    half="native",
)
def densify(call: Call) -> Array:
    """Walk the dimensions level by level; each level turns every node into its children."""
    order, blocks, formats, sizes = _levels(call)
    metadata = call.repeated("metadata")
    parents = 1
    coordinates: list[Array] = []
    for level, (form, size) in enumerate(zip(formats, sizes, strict=True)):
        call.require(form in (_DENSE, _SPARSE), "a format of 0 (dense) or 1 (compressed)", form, "formats")
        if form == _DENSE:
            owner = np.repeat(np.arange(parents), size)
            here = np.tile(np.arange(size), parents)
        else:
            segments, indexes = metadata[2 * level], metadata[2 * level + 1]
            call.require(segments.present and indexes.present, "segments and indexes", "none", f"dimension {level}")
            begin = segments.data
            sound = len(begin) == parents + 1 and (np.diff(begin) >= 0).all() and begin[-1] == len(indexes.data)
            call.require(sound, f"{parents + 1} segments that end with the indexes", begin.tolist(), f"dimension {level}")
            owner = np.repeat(np.arange(parents), np.diff(begin))
            here = indexes.data
            call.require(((here >= 0) & (here < size)).all(), f"indexes below {size}", here.tolist(), f"dimension {level}")
        coordinates = [c[owner] for c in coordinates] + [here]
        parents = len(here)
    values = call["values"]
    call.require(values.data.size == parents, f"{parents} values", values.data.size, "values")
    position = dict(zip(order, coordinates, strict=True))
    size_of = dict(zip(order, sizes, strict=True))
    outer = len(order) - len(blocks)
    place = [position[d] for d in range(outer)]
    for k, dimension in enumerate(blocks):
        place[dimension] = place[dimension] * size_of[outer + k] + position[outer + k]
    dense = np.full(math.prod(call.out.dims), values.zero_point, values.data.dtype).reshape(call.out.dims)
    dense[tuple(place)] = values.data.reshape(-1)
    return dense

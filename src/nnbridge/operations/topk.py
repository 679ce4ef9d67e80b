"""The largest and smallest values: TOPK_V2, ARGMAX, ARGMIN."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnbridge.model import Array
from nnbridge.operations.arithmetic import integer_range
from nnbridge.operations.call import Call
from nnbridge.operations.declaration import Input, Output, like, operation
from nnbridge.operations.kernels import InPlace, prepared
from nnbridge.operations.reshaping import ANY_RANK, moved_types
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode


def _topk_shape(call: Call) -> list[tuple[int, ...]]:
    dims, k = call["input"].dims, int(call.scalar("k"))
    call.require(0 < k <= dims[-1], f"k from 1 to {dims[-1]}", k, "k")
    return [(*dims[:-1], k)] * 2


@operation(
    OperationCode.TOPK_V2,
    since=3,
    summary="The k largest values along the last axis, descending, and their indexes.",
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
        indexes = _indexes_of_largest(x.reshape(count, size), k)
        return x.reshape(-1).take(indexes).reshape(dims), (indexes % size).astype(_INDEX).reshape(dims)

    if k > _FEW or (count > 1 and (size < _LONG * (k - 1) or count * size < _MANY * k**2)):
        return sort
    # Each maximum that was found is replaced by the lowest value, so that the next one is found. One that is the lowest itself
    # could have been found before. Backwards, because the first of equal values is found and the last is required.
    lowest: Any = -math.inf if x.dtype.kind == "f" else integer_range(x)[0]
    picks, last, rows, empty = range(k - 1), size - 1, np.arange(count), np.empty

    def pick_of_one(x: Array) -> Sequence[Array]:
        row, indexes = x.ravel(), empty(dims, _PLACE)
        rest, found = row[::-1].copy(), indexes.ravel()
        for i in picks:
            index = rest.argmax()
            rest[index] = lowest
            found[i] = last - index
        index = rest.argmax()
        found[-1] = last - index
        return (row[indexes], indexes.astype(_INDEX)) if rest.item(index) != lowest else sort(x)

    def pick_of_each(x: Array) -> Sequence[Array]:
        indexes = empty((count, k), _PLACE)
        rest = x.reshape(count, size)[:, ::-1].copy()
        for i in picks:
            index = rest.argmax(axis=1)
            rest[rows, index] = lowest
            np.subtract(last, index, out=indexes[:, i])
        index = rest.argmax(axis=1)
        if (rest[rows, index] == lowest).any():
            return sort(x)
        np.subtract(last, index, out=indexes[:, -1])
        values = np.take_along_axis(x.reshape(count, size), indexes, axis=1)
        return values.reshape(dims), indexes.astype(_INDEX).reshape(dims)

    return pick_of_one if count == 1 else pick_of_each


_FEW, _LONG, _MANY = 8, 25, 500
"""Up to as many values are faster picked one after the other: those of one row, or of rows so long for each
further value and, together, so many for the square of their number."""
_PLACE, _INDEX = np.dtype(np.intp), np.dtype(np.int32)


def _indexes_of_largest(rows: Array, k: int) -> Array:
    """Indexes of the k largest values of each row, descending; of equal ones the last comes first."""
    count, size = rows.shape
    # What is not below the k-th largest is sorted separately, unless ties make it more than k. NaN is the largest.
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
    def kernel(call: Call) -> Callable[[Array], Array] | InPlace:
        dims = call["input"].dims
        axis = call.axis("axis", len(dims))
        if dims[axis] <= 255 and math.prod(dims) >= _MANY_ROWS * dims[axis]:
            return _by_lanes(np.maximum if word == "largest" else np.minimum, function, axis, dims)
        return _one_by_one(function, call["input"].dtype, axis, dims)


def _one_by_one(function: Callable[..., Array], dtype: np.dtype[Any], axis: int, dims: tuple[int, ...]) -> InPlace:
    """``function`` of each row; of floats, the numbers that it finds are looked at: it finds what is not a number first."""

    def best(buffers: Sequence[Array], x: Array) -> None:
        buffers[0][...] = function(x, axis)

    def best_of_one_row(buffers: Sequence[Array], x: Array) -> None:
        found = function(x, axis)
        is_nan = math.isnan(x.item(found.item()))
        buffers[0][...] = _best_beside_nan(function, x, axis) if is_nan else found

    if dtype.kind != "f" or math.prod(dims) == dims[axis]:
        return InPlace(best_of_one_row if dtype.kind == "f" else best)
    step = math.prod(dims[axis + 1 :])
    # Where each row begins among all numbers.
    rows = np.arange(math.prod(dims[:axis]))[:, None] * (step * dims[axis]) + np.arange(step)
    starts = rows.reshape((*dims[:axis], *dims[axis + 1 :]))

    def best_of_floats(buffers: Sequence[Array], x: Array) -> None:
        found = function(x, axis)
        values = x.ravel()[found * step + starts if step > 1 else found + starts].ravel()
        is_nan = math.isnan(values.dot(values))  # Squares are NaN for NaN only.
        buffers[0][...] = _best_beside_nan(function, x, axis) if is_nan else found

    return InPlace(best_of_floats)


def _best_beside_nan(function: Callable[..., Array], x: Array, axis: int) -> Array:
    """``function`` of a row, in which nothing is better than NaN at its beginning, and NaN elsewhere than nothing."""
    first, worst = np.isnan(x.take([0], axis)), -np.inf if function is np.ndarray.argmax else np.inf
    found = np.where(first, 0, function(np.where(np.isnan(x), x.dtype.type(worst), x), axis, keepdims=True))
    return found.squeeze(axis)


_MANY_ROWS = 256
"""From as many short rows on, comparing them all at once is faster than one after the other."""


def _by_lanes(best: np.ufunc, function: Callable[..., Array], axis: int, dims: tuple[int, ...]) -> Callable[[Array], Array]:
    """The first index of the best value along a short axis, for all rows at once; one by one if any is not a number."""
    order, count = (axis, *(a for a in range(len(dims)) if a != axis)), dims[axis]
    # The first lane that holds the best value counts most, and says so in a byte.
    weights = np.arange(255, 255 - count, -1, dtype=np.uint8).reshape(-1, *[1] * (len(dims) - 1))

    def find(x: Array) -> Array:
        lanes = np.ascontiguousarray(x.transpose(order))
        found = best.reduce(lanes, axis=0)
        if found.dtype.kind == "f" and np.isnan(found).any():
            return _best_beside_nan(function, x, axis).astype(np.int32)
        held: Array = (lanes == found).view(np.uint8)
        held *= weights
        return np.subtract(255, np.maximum.reduce(held, axis=0), dtype=np.int32)

    return find


_arg(OperationCode.ARGMAX, "largest", np.ndarray.argmax)
_arg(OperationCode.ARGMIN, "smallest", np.ndarray.argmin)

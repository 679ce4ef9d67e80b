"""Parts of tensors: SLICE, STRIDED_SLICE, GATHER."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnbridge.model import Array
from nnbridge.operations.call import Call
from nnbridge.operations.declaration import Input, rank
from nnbridge.operations.kernels import Function, prepared
from nnbridge.operations.reshaping import ANY_RANK, UP_TO_4, moved_types, moves
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode


def _integers(call: Call, name: str, count: int) -> list[int]:
    values = [int(v) for v in call[name].data.reshape(-1)]
    call.require(len(values) == count, f"{count} values", len(values), name)
    return values


def _slice_shape(call: Call) -> tuple[int, ...]:
    dims = call["input"].dims
    begin, size = _integers(call, "begin", len(dims)), _integers(call, "size", len(dims))
    # A size of -1 means all that is left, as TFLite's SLICE does and Android's conformance cases expect.
    size = [d - b if s == -1 else s for d, b, s in zip(dims, begin, size, strict=True)]
    inside = all(0 <= b <= d and 0 <= s <= d - b for b, s, d in zip(begin, size, dims, strict=True))
    call.require(inside, f"a part of {list(dims)}", f"{size} from {begin}", "begin")
    return tuple(size)


@moves(
    OperationCode.SLICE,
    since=3,
    summary="A block of a tensor.",
    types=moved_types(3, integers=3),
    inputs=[
        ANY_RANK,
        Input("begin", T.TENSOR_INT32, "where the block starts, one index for each axis", rank=rank(1)),
        Input("size", T.TENSOR_INT32, "dimensions of the block", rank=rank(1)),
    ],
    shape=_slice_shape,
    zero_sized=True,
)
@prepared("input")
def slice_block(call: Call) -> Function:
    """Values of the block."""
    begin = [int(b) for b in call["begin"].data.reshape(-1)]
    block = tuple(slice(b, b + s) for b, s in zip(begin, call.out.dims, strict=True))
    return lambda x: x[block]


def _ranges(call: Call) -> list[tuple[int, int, int]]:
    """Start, stop and step along each axis after masks and clamping (N99)."""
    dims = call["input"].dims
    begin, end, strides = (_integers(call, name, len(dims)) for name in ("begin", "end", "strides"))
    begin_mask, end_mask, shrink_mask = (int(call.scalar(name)) for name in ("begin_mask", "end_mask", "shrink_axis_mask"))
    found = []
    for axis, (n, first, last, step) in enumerate(zip(dims, begin, end, strides, strict=True)):
        call.require(step != 0, "strides other than 0", strides, "strides")
        shrink = bool(shrink_mask >> axis & 1)
        call.require(not shrink or step > 0, "a stride above 0 along a dropped axis", step, "strides")
        low, high = (0, n) if step > 0 else (-1, n - 1)

        def clamp(index: int, n: int = n, low: int = low, high: int = high) -> int:
            return min(max(index + n if index < 0 else index, low), high)

        start = (0 if step > 0 else n - 1) if begin_mask >> axis & 1 else clamp(first)
        stop = (n if step > 0 else -1) if end_mask >> axis & 1 else clamp(last)
        count = len(range(start, stop, step))
        call.require(not shrink or count == 1, "exactly one element along a dropped axis", count, "end")
        found.append((start, stop, step))
    return found


def _remaining_axes(call: Call) -> list[bool]:
    mask = int(call.scalar("shrink_axis_mask"))
    return [not mask >> axis & 1 for axis in range(call["input"].rank)]


def _strided_shape(call: Call) -> tuple[int, ...]:
    sizes = [len(range(*bounds)) for bounds in _ranges(call)]
    remaining = tuple(size for size, keep in zip(sizes, _remaining_axes(call), strict=True) if keep)
    return remaining or (1,)


@moves(
    OperationCode.STRIDED_SLICE,
    since=2,
    summary="Every n-th element of ranges along each axis.",
    types=moved_types(2),
    inputs=[
        UP_TO_4,
        Input("begin", T.TENSOR_INT32, "first index along each axis, counted from the end if negative", rank=rank(1)),
        Input("end", T.TENSOR_INT32, "index after the last one", rank=rank(1)),
        Input("strides", T.TENSOR_INT32, "steps, not 0", rank=rank(1)),
        Input("begin_mask", T.INT32, "bit i: axis i starts at its beginning"),
        Input("end_mask", T.INT32, "bit i: axis i goes to its end"),
        Input("shrink_axis_mask", T.INT32, "bit i: axis i is dropped and only its first index selected"),
    ],
    counts={7: 2},
    shape=_strided_shape,
)
@prepared("input")
def strided_slice(call: Call) -> Function:
    """Values of the ranges."""
    # A stop of -1 means "to before the first element" here, which Python writes as None.
    bounds, dims = tuple(slice(start, None if stop < 0 else stop, step) for start, stop, step in _ranges(call)), call.out.dims
    return lambda x: x[bounds].reshape(dims)


def _gather_shape(call: Call) -> tuple[int, ...]:
    x, indices = call["input"], call["indices"]
    axis = call.axis("axis", x.rank)
    return (*x.dims[:axis], *indices.dims, *x.dims[axis + 1 :])


@moves(
    OperationCode.GATHER,
    since=3,
    summary="Slices of a tensor by index along an axis.",
    types=moved_types(3, integers=3),
    inputs=[
        ANY_RANK,
        Input("axis", T.INT32, "axis, counted from the end if negative"),
        Input("indices", T.TENSOR_INT32, "indexes from 0 to the dimension - 1"),
    ],
    shape=_gather_shape,
)
@prepared("input", "indices")
def gather(call: Call) -> Callable[[Array, Array], Array]:
    """Slices in the order of the indexes."""
    axis = call.axis("axis", call["input"].rank)
    size = call["input"].dims[axis]

    def pick(x: Array, indices: Array) -> Array:
        lowest, highest = indices.min(initial=0), indices.max(initial=0)
        found = lowest if lowest < 0 else highest
        call.require(0 <= found < size or not indices.size, f"indexes from 0 to {size - 1}", found, "indices")
        return np.take(x, indices, axis=axis)

    return pick

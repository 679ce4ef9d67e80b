"""Pooling: AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nnbridge.operations.arithmetic import activate, activation_range, fused_activation, is_quant8
from nnbridge.operations.convolution import (
    ACTIVATION,
    EXPLICIT_PADDING,
    IMPLICIT_PADDING,
    LAYOUT,
    NCHW,
    STRIDES,
    scalars,
)
from nnbridge.operations.declaration import Input, Output, Signature, TypeSet, like, operation, rank, signature, types
from nnbridge.operations.shapes import Window, windows
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode

if TYPE_CHECKING:
    from nnbridge.model import Array
    from nnbridge.operations.call import Call

_FLOAT = [types(1, T=T.TENSOR_FLOAT32), types(3, T=T.TENSOR_FLOAT16)]
_FLOAT_AND_8BIT = [*_FLOAT, types(1, T=T.TENSOR_QUANT8_ASYMM), types(4, T=T.TENSOR_QUANT8_ASYMM_SIGNED)]


def _forms() -> list[Signature]:
    images = Input("input", "T", "images [batch, h, w, depth]", rank=rank(4))
    window = scalars(filter_w="window width", filter_h="window height")
    made = []
    for name, padding in (("explicit padding", EXPLICIT_PADDING), ("implicit padding", IMPLICIT_PADDING)):
        inputs = (images, *padding, *STRIDES, *window, *ACTIVATION, NCHW)
        made.append(signature(inputs, {len(inputs) - 1: 1, len(inputs): 3}, name=name))
    return made


def _windows(call: Call) -> tuple[Window, Window]:
    x = call["input"]
    return windows(call, x.dims[1], x.dims[2], int(call.scalar("filter_h")), int(call.scalar("filter_w")))


def _shape(call: Call) -> tuple[int, ...]:
    x = call["input"]
    call.require(0 not in x.dims[1:], "height, width and depth above 0", list(x.dims), "input")
    rows, columns = _windows(call)
    size = rows.positions(x.dims[1]), columns.positions(x.dims[2])
    call.require(min(size) > 0, "a window that fits into the padded input", list(x.dims), "filter")
    return x.dims[0], *size, x.dims[3]


def _taps(x: npt.NDArray[Any], rows: Window, columns: Window, start: npt.NDArray[Any], ufunc: np.ufunc) -> npt.NDArray[Any]:
    """Combine what each cell of the window sees, over all positions at once; cells in the padding add nothing."""
    out_h, out_w = start.shape[1:3]
    for i in range(rows.size):
        for j in range(columns.size):
            (r0, r1), (c0, c1) = _inside(rows, i, x.shape[1], out_h), _inside(columns, j, x.shape[2], out_w)
            if r0 >= r1 or c0 >= c1:
                continue
            top, left = r0 * rows.stride - rows.before + i, c0 * columns.stride - columns.before + j
            seen = x[:, top :: rows.stride, left :: columns.stride][:, : r1 - r0, : c1 - c0]
            part = start[:, r0:r1, c0:c1]
            ufunc(part, seen, out=part)
    return start


def _inside(window: Window, tap: int, length: int, positions: int) -> tuple[int, int]:
    """First and last + 1 output position whose tap lies inside the input."""
    first = max(0, -(-(window.before - tap) // window.stride))
    last = (length - 1 + window.before - tap) // window.stride
    return first, min(positions, last + 1)


def _counts(call: Call, rows: Window, columns: Window) -> npt.NDArray[np.int32]:
    """How many cells of each window lie inside the input, [1, out_h, out_w, 1]."""
    x = call["input"]

    def along(window: Window, length: int) -> npt.NDArray[np.int32]:
        begin = np.arange(window.positions(length)) * window.stride - window.before
        return (np.minimum(begin + window.size, length) - np.maximum(begin, 0)).astype(np.int32)

    return (along(rows, x.dims[1])[:, None] * along(columns, x.dims[2]))[None, :, :, None]


def _average(call: Call, rows: Window, columns: Window) -> Array:
    """N67: 8-bit means of raw values round half away from zero."""
    x, out = call["input"], call.out
    quantised = is_quant8(out.type)
    start = np.zeros(out.dims, np.int32 if quantised else np.float32)
    sums, count = _taps(x.data, rows, columns, start, np.add), _counts(call, rows, columns)
    if not quantised:
        return sums / count.astype(np.float32)
    return np.sign(sums) * ((np.abs(sums) + count // 2) // count)


def _maximum(call: Call, rows: Window, columns: Window) -> Array:
    x = call["input"].data
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else np.finfo(np.float32).min
    return _taps(x, rows, columns, np.full(call.out.dims, lowest, x.dtype), np.maximum)


def _l2(call: Call, rows: Window, columns: Window) -> Array:
    squares = np.square(call["input"].data, dtype=np.float32)
    sums = _taps(squares, rows, columns, np.zeros(call.out.dims, np.float32), np.add)
    return np.sqrt(sums / _counts(call, rows, columns).astype(np.float32))


_POOLS: tuple[tuple[OperationCode, str, list[TypeSet], Callable[[Call, Window, Window], Array]], ...] = (
    (OperationCode.AVERAGE_POOL_2D, "Mean over a sliding window.", _FLOAT_AND_8BIT, _average),
    (OperationCode.MAX_POOL_2D, "Maximum over a sliding window.", _FLOAT_AND_8BIT, _maximum),
    (OperationCode.L2_POOL_2D, "Root of the mean square over a sliding window.", _FLOAT, _l2),
)


def _declare(code: OperationCode, summary: str, type_sets: list[TypeSet], pool: Callable[[Call, Window, Window], Array]) -> None:
    @operation(
        code,
        since=1,
        summary=summary,
        types=type_sets,
        signatures=_forms(),
        outputs=[Output("output", "T", "[batch, out_h, out_w, depth]", like("input"))],
        shape=_shape,
        layout=LAYOUT,
        zero_sized=True,
    )
    def kernel(call: Call) -> Array:
        activation = fused_activation(call)
        pooled = pool(call, *_windows(call))
        if is_quant8(call.out.type):
            return np.clip(pooled, *activation_range(call.out, activation))
        return activate(pooled, activation)


for _pool in _POOLS:
    _declare(*_pool)

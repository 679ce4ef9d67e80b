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
    from nnbridge.operations.call import Arg, Call

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


def _known_windows(call: Call) -> tuple[Window, Window]:
    """The windows, made once where their parameters are constants."""
    return call.once("windows", lambda: _windows(call), *_parameters(call))


def _parameters(call: Call) -> tuple[Arg, ...]:
    """All arguments but the images."""
    return call.args[1:]


def _shape(call: Call) -> tuple[int, ...]:
    x = call["input"]
    call.require(0 not in x.dims[1:], "height, width and depth above 0", list(x.dims), "input")
    rows, columns = _windows(call)
    size = rows.positions(x.dims[1]), columns.positions(x.dims[2])
    call.require(min(size) > 0, "a window that fits into the padded input", list(x.dims), "filter")
    return x.dims[0], *size, x.dims[3]


def _taps(x: npt.NDArray[Any], window: Window, axis: int, fill: Any, ufunc: np.ufunc) -> npt.NDArray[Any]:
    """Combine what the window sees along one axis, one cell of the window at a time for all positions at once.

    Cells in the padding add nothing; those that are in it for every position are passed over. A window over height and
    width is this along either axis.
    """
    positions = window.positions(x.shape[axis])
    x = x.swapaxes(axis, 0)
    if positions == 1:
        return ufunc.reduce(x[: window.size - window.before], axis=0, keepdims=True, initial=fill).swapaxes(0, axis)
    result = np.full((positions, *x.shape[1:]), fill, x.dtype)
    reach = window.before - (positions - 1) * window.stride
    for tap in range(max(0, reach), min(window.size, len(x) + window.before)):
        first, last = _inside(window, tap, len(x), positions)
        if first < last:
            start = first * window.stride - window.before + tap
            seen = x[start :: window.stride][: last - first]
            ufunc(result[first:last], seen, out=result[first:last])
    return result.swapaxes(0, axis)


def _over_windows(x: npt.NDArray[Any], rows: Window, columns: Window, fill: Any, ufunc: np.ufunc) -> npt.NDArray[Any]:
    """Combine what each window over height and width sees."""
    return _taps(_taps(x, rows, 1, fill, ufunc), columns, 2, fill, ufunc)


def _inside(window: Window, tap: int, length: int, positions: int) -> tuple[int, int]:
    """First and last + 1 output position whose tap lies inside the input."""
    first = max(0, -(-(window.before - tap) // window.stride))
    last = (length - 1 + window.before - tap) // window.stride
    return first, min(positions, last + 1)


def _counts(call: Call, rows: Window, columns: Window) -> npt.NDArray[np.int32]:
    """How many cells of each window lie inside the input, [1, out_h, out_w, 1]."""
    return call.once("counts", lambda: _counted(call["input"], rows, columns), *_parameters(call))


def _counted(x: Arg, rows: Window, columns: Window) -> npt.NDArray[np.int32]:

    def along(window: Window, length: int) -> npt.NDArray[np.int32]:
        begin = np.arange(window.positions(length)) * window.stride - window.before
        return (np.minimum(begin + window.size, length) - np.maximum(begin, 0)).astype(np.int32)

    return (along(rows, x.dims[1])[:, None] * along(columns, x.dims[2]))[None, :, :, None]


def _average(call: Call, rows: Window, columns: Window) -> Array:
    """N67: 8-bit means of raw values round half away from zero."""
    x, out = call["input"], call.out
    quantised = is_quant8(out.type)
    # Sums of small windows fit 16 bits, which take half the time of 32.
    integers = np.int16 if rows.size * columns.size * 255 < 2**15 else np.int32
    values = x.data.astype(integers if quantised else np.float32, copy=False)
    sums, count = _over_windows(values, rows, columns, 0, np.add), _counts(call, rows, columns)
    if not quantised:
        return sums / count.astype(np.float32)
    return np.sign(sums) * ((np.abs(sums.astype(np.int32, copy=False)) + count // 2) // count)


def _maximum(call: Call, rows: Window, columns: Window) -> Array:
    x = call["input"].data
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else np.finfo(np.float32).min
    return _over_windows(x, rows, columns, lowest, np.maximum)


def _l2(call: Call, rows: Window, columns: Window) -> Array:
    squares = np.square(call["input"].data, dtype=np.float32)
    sums = _over_windows(squares, rows, columns, 0, np.add)
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
        pooled = pool(call, *_known_windows(call))
        if is_quant8(call.out.type):
            return np.clip(pooled, *activation_range(call.out, activation))
        return activate(pooled, activation)


for _pool in _POOLS:
    _declare(*_pool)

"""Pooling: AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from nnbridge.model import Array
from nnbridge.operations.arithmetic import FLOAT_RANGES, activation_range, fused_activation, integer_range, is_quant8
from nnbridge.operations.call import Arg, Call
from nnbridge.operations.convolution import ACTIVATION, LAYOUT, NCHW, padded_forms, scalars
from nnbridge.operations.declaration import Input, Output, TypeSet, like, operation, rank, tensors, types
from nnbridge.operations.kernels import Function, InPlace, prepared
from nnbridge.operations.shapes import Window, positions, require_pixels, windows
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode

_FLOAT = tensors(FLOAT32=1, FLOAT16=3)
_FLOAT_AND_8BIT = [*_FLOAT, types(1, T=T.TENSOR_QUANT8_ASYMM), types(4, T=T.TENSOR_QUANT8_ASYMM_SIGNED)]


_IMAGES = Input("input", "T", "images [batch, h, w, depth]", rank=rank(4))
_TAIL = (*scalars(filter_w="window width", filter_h="window height"), *ACTIVATION, NCHW)


def _windows(call: Call) -> tuple[Window, Window]:
    x = call["input"]
    return windows(call, x.dims[1], x.dims[2], int(call.scalar("filter_h")), int(call.scalar("filter_w")))


def _shape(call: Call) -> tuple[int, ...]:
    x = call["input"]
    require_pixels(call)
    return x.dims[0], *positions(call, _windows(call), "a window"), x.dims[3]


def _taps(x: Array, window: Window, axis: int, fill: Any, ufunc: np.ufunc, dtype: Any) -> Array:
    """Combine what the window sees along one axis, one cell of the window at a time for all positions at once.

    Cells in the padding add nothing; those that are in it for every position are passed over. A window over height and
    width is this along either axis.
    """
    positions = window.positions(x.shape[axis])
    x = x.swapaxes(axis, 0)
    if positions == 1:
        seen = x[: window.size - window.before]
        return ufunc.reduce(seen, axis=0, dtype=dtype, keepdims=True, initial=fill).swapaxes(0, axis)
    x = x.astype(dtype, copy=False)
    result = np.full((positions, *x.shape[1:]), fill, dtype)
    reach = window.before - (positions - 1) * window.stride
    for tap in range(max(0, reach), min(window.size, len(x) + window.before)):
        first, last = _inside(window, tap, len(x), positions)
        if first < last:
            start = first * window.stride - window.before + tap
            seen = x[start :: window.stride][: last - first]
            ufunc(result[first:last], seen, out=result[first:last])
    return result.swapaxes(0, axis)


def _over_windows(rows: Window, columns: Window, fill: Any, ufunc: np.ufunc, dtype: Any) -> Function:
    """Combines what each window over height and width sees, in this type."""
    return lambda x: _taps(_taps(x, rows, 1, fill, ufunc, dtype), columns, 2, fill, ufunc, dtype)


def _inside(window: Window, tap: int, length: int, positions: int) -> tuple[int, int]:
    """First and last + 1 output position whose tap is inside the input."""
    first = max(0, -(-(window.before - tap) // window.stride))
    last = (length - 1 + window.before - tap) // window.stride
    return first, min(positions, last + 1)


def _counts(x: Arg, rows: Window, columns: Window) -> Array:
    """The number of cells of each window inside the input, [1, out_h, out_w, 1]; one number where they are all the same."""

    def along(window: Window, length: int) -> npt.NDArray[np.int32]:
        begin = np.arange(window.positions(length)) * window.stride - window.before
        return (np.minimum(begin + window.size, length) - np.maximum(begin, 0)).astype(np.int32)

    counts = (along(rows, x.dims[1])[:, None] * along(columns, x.dims[2]))[None, :, :, None]
    return counts.reshape(-1)[:1] if (counts == counts.reshape(-1)[0]).all() else counts


def _average(call: Call, rows: Window, columns: Window) -> Function:
    """N67: 8-bit means of raw values round half away from zero."""
    counts = _counts(call["input"], rows, columns)
    if not is_quant8(call.out.type):
        add, divisors = _over_windows(rows, columns, 0, np.add, np.float32), counts.astype(np.float32)
        return lambda x: add(x) / divisors
    # Sums of small windows fit 16 bits, which are twice as fast as 32.
    small = rows.size * columns.size * 255 < 2**15
    add = _over_windows(rows, columns, 0, np.add, np.int16 if small else np.int32)
    # Numbers, not arrays, where there is one: NumPy divides by them without dividing.
    divisors = counts if counts.size > 1 else counts[0]
    halves = divisors // 2

    def mean(x: Array) -> Array:
        sums = add(x).astype(np.int32, copy=False)
        means = np.abs(sums)
        means += halves
        means //= divisors
        return np.negative(means, where=sums < 0, out=means)

    return mean


def _maximum(call: Call, rows: Window, columns: Window) -> Function:
    """N35: NaN is never above what was seen before; a window of nothing else has the lowest number."""
    dtype = call.out.dtype if is_quant8(call.out.type) else np.dtype(np.float32)
    lowest = integer_range(call.out)[0] if dtype.kind in "iu" else np.finfo(np.float32).min
    return _over_windows(rows, columns, lowest, np.fmax if dtype.kind == "f" else np.maximum, dtype)


def _l2(call: Call, rows: Window, columns: Window) -> Function:
    add, counts = _over_windows(rows, columns, 0, np.add, np.float32), _counts(call["input"], rows, columns).astype(np.float32)
    return lambda x: np.sqrt(add(np.square(x, dtype=np.float32)) / counts)


Pool = Callable[["Call", Window, Window], Function]

_POOLS: tuple[tuple[OperationCode, str, list[TypeSet], Pool], ...] = (
    (OperationCode.AVERAGE_POOL_2D, "Mean over a sliding window.", _FLOAT_AND_8BIT, _average),
    (OperationCode.MAX_POOL_2D, "Maximum over a sliding window.", _FLOAT_AND_8BIT, _maximum),
    (OperationCode.L2_POOL_2D, "Root of the mean square over a sliding window.", _FLOAT, _l2),
)


def _declare(code: OperationCode, summary: str, type_sets: list[TypeSet], pool: Pool) -> None:
    @operation(
        code,
        since=1,
        summary=summary,
        types=type_sets,
        signatures=padded_forms((_IMAGES,), _TAIL, {1: 1, 0: 3}),
        outputs=[Output("output", "T", "[batch, out_h, out_w, depth]", like("input"))],
        shape=_shape,
        layout=LAYOUT,
        zero_sized=True,
    )
    @prepared("input")
    def kernel(call: Call) -> Function | InPlace:
        activation, compute = fused_activation(call), pool(call, *_windows(call))
        if not is_quant8(call.out.type):
            bounds = FLOAT_RANGES[activation]
            return InPlace(lambda buffers, x: compute(x).clip(*bounds, buffers[0]))
        limits = activation_range(call.out, activation)
        return lambda x: np.clip(compute(x), *limits)


for _pool in _POOLS:
    _declare(*_pool)

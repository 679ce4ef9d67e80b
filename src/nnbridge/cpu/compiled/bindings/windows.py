"""Pooling, means, SOFTMAX and bilinear resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnbridge.cpu.compiled.bindings.binding import (
    BOUNDS,
    MOST_PIECES,
    Binding,
    binds,
    constant_data,
    limits_of,
    require,
    require_at_most,
    require_types,
    transpose,
    window_arguments,
    zero_of,
)
from nnbridge.cpu.compiled.bindings.moves import MOST_ELEMENTS, move_pieces
from nnbridge.cpu.compiled.kernels.pooling import LARGEST
from nnbridge.cpu.compiled.kernels.resizing import POSITION_FIELDS
from nnbridge.cpu.compiled.program import (
    Argument,
    Place,
    element_of,
    is_half,
    is_signed,
    size_of,
)
from nnbridge.cpu.compiled.requantise import Rescaling
from nnbridge.model import Array
from nnbridge.operations.activations import softmax_tables
from nnbridge.operations.arithmetic import (
    fused_activation,
)
from nnbridge.operations.call import Arg
from nnbridge.operations.integer_mean import IntegerMean
from nnbridge.operations.resizing import neighbours_fixed_of, neighbours_of
from nnbridge.operations.shapes import Window, windows
from nnbridge.types import FuseCode, OperandCode, OperationCode

_POOLS = {
    OperationCode.AVERAGE_POOL_2D: "average",
    OperationCode.MAX_POOL_2D: "maximum",
    OperationCode.L2_POOL_2D: "l2",
}

_SUMS = ("average", "l2")
"""Kinds of pools that add; the windows of reductions have one cell in each row."""
_LONG_SUM = 256
"""Terms from which on real numbers are added row by row. Fewer are added in order, as NNAPI's own kernels do."""
_LARGEST_HALF = 65504.0
"""The largest finite float16 number."""


def _is_boolean(x: Arg) -> bool:
    return x.type == OperandCode.TENSOR_BOOL8


def _pool(
    b: Binding,
    x: Arg,
    source: Place | Array,
    kind: str,
    images: tuple[int, int, int, int],
    rows: Window,
    columns: Window,
    activation: int | None,
    rescaling: Rescaling | None = None,
    start: float = 0.0,
) -> None:
    """Windows over images [batch, height, width, depth]; real numbers' totals begin with ``start``.

    ``activation`` is ``None`` where none may be fused.
    """
    real = not _is_boolean(x) and require_types(x, b.out)
    batch, height, width, depth = images
    element = 4 if real else 1
    low: float
    high: float
    low, high = BOUNDS[activation] if real else (0, 1) if _is_boolean(x) else limits_of(b.out, activation or FuseCode.NONE)
    outs = rows.positions(height), columns.positions(width)
    require(rows.size * columns.size * 255 < 2**30, "windows whose sums 32 bits hold")
    arguments = {
        **window_arguments(source, b.target(), (batch, height, width), outs, depth * element, rows, columns),
        "channels": depth,
        "size_y": rows.size,
        "size_x": columns.size,
        "stride_y": rows.stride,
        "stride_x": columns.stride,
        "start": start if real else 0,
        "low": low,
        "high": high,
        "zero_point": 0,
        "parameters": 0,
    }
    form = "relu"
    if rescaling is not None:
        lanes, form = b.instructions.lanes, rescaling.form
        bias = np.array([-rows.size * columns.size * zero_of(x)])
        arguments.update(zero_point=rescaling.zero_point, parameters=rescaling.packed(bias, np.zeros(lanes, np.int64), lanes))
    us = batch * math.prod(outs) * depth * rows.size * columns.size / (4_000 if real else 8_000)
    long = real and kind in _SUMS and min(rows.size, height) * min(columns.size, width) > _LONG_SUM
    b.step("pool", us, arguments, kind=kind, real=real, signed=is_signed(x), form=form, by_rows=long)


@binds(*_POOLS)
def pool(b: Binding) -> None:
    """AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D."""
    call, x = b.call, b.call["input"]
    batch, height, width, depth = x.dims
    rows, columns = windows(call, height, width, int(call.scalar("filter_h")), int(call.scalar("filter_w")))
    images = (batch, height, width, depth)
    kind = _POOLS[OperationCode(call.definition.code)]
    start = -LARGEST if kind == "maximum" else 0.0
    _pool(b, x, b.source(x), kind, images, rows, columns, fused_activation(call), start=start)


@binds(OperationCode.MEAN)
def mean(b: Binding) -> None:
    """MEAN."""
    _reduce_axes(b, "mean")


_REDUCTIONS = {
    OperationCode.REDUCE_MAX: "maximum",
    OperationCode.REDUCE_MIN: "minimum",
    OperationCode.REDUCE_SUM: "sum",
    OperationCode.REDUCE_PROD: "product",
    # Of booleans, which are bytes: the extreme, 1 at most.
    OperationCode.REDUCE_ANY: "maximum",
    OperationCode.REDUCE_ALL: "minimum",
}


@binds(*_REDUCTIONS)
def reduction(b: Binding) -> None:
    """REDUCE_MAX, REDUCE_MIN, REDUCE_SUM, REDUCE_PROD, REDUCE_ANY, REDUCE_ALL."""
    _reduce_axes(b, _REDUCTIONS[OperationCode(b.call.definition.code)])


def _reduce_axes(b: Binding, kind: str) -> None:
    x = b.call["input"]
    _reduce(b, x, kind, [int(axis) % x.rank for axis in constant_data(b.call["axes"]).reshape(-1)])


def _reduce(b: Binding, x: Arg, kind: str, over: Sequence[int], rescaling: Rescaling | None = None) -> None:
    """One window for each position before neighbouring axes; others are brought to the end, which is left to a step before."""
    axes = sorted(set(over))
    require(axes, "axes to reduce")
    source, stay = b.source(x), [axis for axis in range(x.rank) if axis not in axes]
    if is_half(x) and kind in ("sum", "product"):
        _fold_half(b, x, kind, [*axes, *stay])
        return
    before, inside = math.prod(x.dims[: axes[0]]), math.prod(x.dims[axis] for axis in axes)
    behind = math.prod(x.dims[axes[-1] + 1 :])
    if before * inside * behind != math.prod(x.dims):
        count = math.prod(x.dims)
        require_at_most(MOST_ELEMENTS, count, "elements")
        target, index = b.scratch(size_of(x)), np.arange(count, dtype=np.int32).reshape(x.dims).transpose(*stay, *axes)
        move_pieces(b, source, target, index, element_of(x))
        source, before, behind = target, count // inside, 1
    real = not _is_boolean(x) and require_types(x, b.out)
    if behind == 1 and (real or kind in ("maximum", "minimum")):
        arguments: dict[str, Argument] = {"source": source, "target": b.target(), "rows": before, "length": inside}
        if not real:
            arguments["high"] = 1 if _is_boolean(x) else 255
        if real:
            arguments["start"] = _start(x, kind)
        b.step("reduce_rows" if real else "extreme_bytes", before * (inside / 5_000 + 0.01), arguments, kind=kind)
        return
    images = (before, inside, 1, behind)
    one = Window(1, 1, 1, 0, 0)
    _pool(b, x, source, kind, images, Window(inside, 1, 1, 0, 0), one, None, rescaling, _start(x, kind))


def _start(x: Arg, kind: str) -> float:
    """The start value of a reduction of real numbers: extremes from the end of the operand's own range (fact N36)."""
    largest = _LARGEST_HALF if is_half(x) else LARGEST
    return {"maximum": -largest, "minimum": largest, "product": 1.0}.get(kind, 0.0)


def _fold_half(b: Binding, x: Arg, kind: str, order: Sequence[int]) -> None:
    """Sums and products of float16 are rounded after each number: with the axes in front, many go on side by side."""
    source, count = b.source(x), math.prod(x.dims)
    if [axis for axis in order if x.dims[axis] > 1] != [axis for axis in range(x.rank) if x.dims[axis] > 1]:
        require_at_most(MOST_ELEMENTS, count, "elements")
        target, index = b.scratch(size_of(x)), np.arange(count, dtype=np.int32).reshape(x.dims).transpose(order)
        move_pieces(b, source, target, index, element_of(x))
        source = target
    rows = math.prod(b.out.dims)
    arguments: dict[str, Argument] = {"source": source, "target": b.target(), "rows": rows, "length": count // rows}
    b.step("fold_half", count / 2_000, arguments, kind=kind)


def integer_mean(b: Binding, mean: IntegerMean) -> None:
    """TFLite's quantised mean."""
    rescaling = Rescaling.twice(np.array(mean.multiplier), np.array(mean.shift), zero_of(b.out))
    _reduce(b, b.call.args[0], "rescaled", mean.axes, rescaling)


@binds(OperationCode.SOFTMAX)
def softmax(b: Binding) -> None:
    """SOFTMAX along any axis, which is brought to the end."""
    call, x, out = b.call, b.call["input"], b.out
    axis = call.axis("axis", x.rank)
    length, rows, behind = x.dims[axis], math.prod(x.dims[:axis]), math.prod(x.dims[axis + 1 :])
    if behind == 1:
        _softmax_rows(b, b.source(x), b.target(), rows, length)
        return
    source, target = transpose(b, b.source(x), (rows, length, behind), element_of(x)), b.scratch(size_of(out))
    _softmax_rows(b, source, target, rows * behind, length)
    transpose(b, target, (rows, behind, length), element_of(out), b.target())


def _softmax_rows(b: Binding, source: Place | Array, target: Place, rows: int, length: int) -> None:
    call, x, out = b.call, b.call["input"], b.out
    arguments: dict[str, Argument] = {"source": source, "target": target, "rows": rows, "length": length}
    if require_types(x, out):
        arguments["beta"] = float(call.scalar("beta"))
        lanes = b.instructions.lanes
        # Several rows to a vector, where one divides the other.
        together = length if 1 < length < lanes and lanes % length == 0 else 0
        us = rows * length / (4_000 if together else 1_500) + rows * (0.0 if together else 0.01)
        b.step("softmax_real", us, arguments, together=together)
        return
    require(length < 8192, "rows of fewer than 8192 values, whose sums 32 bits hold")
    exponentials, counted, terms = softmax_tables(call)
    arguments["exponentials"] = np.where(counted, exponentials, 0).astype(np.int32)
    arguments["terms"] = terms.astype(np.int32)
    b.step("softmax_bytes", rows * length / 500, arguments)


@binds(OperationCode.RESIZE_BILINEAR)
def resize_bilinear(b: Binding) -> None:
    """RESIZE_BILINEAR."""
    call, x, out = b.call, b.call["input"], b.out
    require(all(arg.constant for arg in call.args[1:]), "constant sizes")
    require_at_most(MOST_PIECES, max(out.dims[1:3]), "rows or columns")
    real = require_types(x, out)
    element = 4 if real else 1
    batch, height, width, depth = x.dims
    find = neighbours_fixed_of if is_signed(x) else neighbours_of
    tables = []
    for axis, step in ((1, width * depth * element), (2, depth * element)):
        lower, upper, share = find(call, x.dims[axis], out.dims[axis])
        table = np.empty((len(lower), POSITION_FIELDS), np.int32)
        table[:, 0], table[:, 1] = lower * step, upper * step
        table[:, 2] = share.astype(np.int32 if is_signed(x) else np.float32).view(np.int32)
        tables.append(table)
    arguments: dict[str, Argument] = {
        "source": b.source(x),
        "image": height * width * depth * element,
        "target": b.target(),
        "images": batch,
        "out_height": out.dims[1],
        "out_width": out.dims[2],
        "out_pixel": depth * element,
        "channels": depth,
        "rows": tables[0],
        "columns": tables[1],
    }
    kind = "real" if real else "signed" if is_signed(x) else "unsigned"
    b.step("resize_bilinear", math.prod(out.dims) / 4_000, arguments, kind=kind)

"""Operations that move data without looking at it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnbridge.cpu.compiled.bindings.binding import (
    MOST_PIECES,
    Binding,
    as_inside,
    binds,
    byte_values,
    constant_data,
    is_real,
    offset_of,
    reference_results,
    require,
    require_at_most,
    run_reference,
    transpose,
    zero_of,
)
from nnbridge.cpu.compiled.program import (
    Argument,
    Join,
    Place,
    element_of,
)
from nnbridge.model import Array
from nnbridge.operations.arithmetic import (
    is_quant8,
)
from nnbridge.operations.call import Arg, Call
from nnbridge.types import OperandCode, OperationCode

MOST_ELEMENTS = 1 << 21
"""Elements of an operand up to which indexes show where each one goes: some 20 bytes for each, while a program is planned. Larger
operands are moved no faster by a program than by NumPy, and to plan one takes seconds."""


@binds(OperationCode.RESHAPE, OperationCode.SQUEEZE, OperationCode.EXPAND_DIMS)
def reshape(b: Binding) -> None:
    """The same buffer."""
    x = b.call.args[0]
    require(not x.constant, "an operand that is not constant")
    require(x.type == b.out.type, "operands of one type")
    b.view(b.candidate.outputs[0], b.operand(x))


def move_pieces(b: Binding, source: Place | Array, target: Place, index: Array, element: int, fill: int = 0) -> None:
    """Elements by their index in the source, -1 for ``fill``, in pieces as long as neighbours stay together."""
    index = index.reshape(-1)
    size = _piece(index)
    starts = index[::size]
    matrices = _transposed(starts // size if size > 1 else starts) if size * element in (1, 2, 4, 8) else None
    if matrices is not None:
        transpose(b, source, matrices, size * element, target)
        return
    require_at_most(MOST_PIECES, len(starts), "pieces")
    arguments: dict[str, Argument] = {
        "source": source,
        "target": target,
        "size": size * element,
        "count": len(starts),
        "sources": (starts * element).astype(np.int32),
        "targets": 0,
    }
    scattered = bool((starts < 0).any())
    if scattered:
        inside = starts >= 0
        targets = np.arange(len(starts), dtype=np.int64)[inside] * size * element
        b.step("fill", 0.0, {"target": target, "size": len(index) * element, "value": fill})
        arguments.update(count=int(inside.sum()), sources=(starts[inside] * element).astype(np.int32))
        arguments["targets"] = targets.astype(np.int32)
    piece = size * element if size * element in (1, 2, 4, 8) else 0
    us = len(starts) * (0.002 + size * element / 20_000)
    b.step("move", us, arguments, piece=piece, scattered=scattered)


def _piece(index: Array) -> int:
    """The greatest length of pieces, all of one length, in which elements stay neighbours."""
    # Most often each element goes its own way, which the first two show without a list of all.
    if len(index) > 1 and not _neighbours(index[:2])[0]:
        return 1
    return int(np.gcd.reduce(np.append(np.flatnonzero(~_neighbours(index)) + 1, len(index))))


def _neighbours(index: Array) -> Array:
    """True if the element after each one stays after it: -1 and 0 are no neighbours."""
    return np.where(index[:-1] < 0, index[1:] < 0, index[1:] - index[:-1] == 1)


def _transposed(index: Array) -> tuple[int, int, int] | None:
    """The number, rows and columns of matrices that are transposed, if that is what indexes do."""
    columns = int(index[1] - index[0]) if len(index) > 1 else 0
    if columns < 2 or index[0] != 0:
        return None
    other = index[1:] - index[:-1] != columns
    rows = int(other.argmax()) + 1 if other.any() else len(index)
    if len(index) % (rows * columns):
        return None
    firsts = np.arange(0, len(index), rows * columns, dtype=np.int32)
    matrix = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns).T
    same = bool((index.reshape(-1, columns, rows) - firsts[:, None, None] == matrix).all())
    return (len(firsts), rows, columns) if same else None


_MOVES = (
    OperationCode.TRANSPOSE,
    OperationCode.SLICE,
    OperationCode.STRIDED_SLICE,
    OperationCode.SPACE_TO_DEPTH,
    OperationCode.DEPTH_TO_SPACE,
    OperationCode.SPACE_TO_BATCH_ND,
    OperationCode.BATCH_TO_SPACE_ND,
    OperationCode.CHANNEL_SHUFFLE,
    OperationCode.RESIZE_NEAREST_NEIGHBOR,
    OperationCode.REVERSE,
    OperationCode.TILE,
    OperationCode.SPLIT,
)


@binds(*_MOVES, any_layout=True)
def move(b: Binding) -> None:
    """Operations that move data without looking at it: the reference kernel, run on indexes, shows where each element goes."""
    call, x = b.call, b.call.args[0]
    require(not x.constant, "an operand that is not constant")
    require(all(arg.constant for arg in call.args[1:]), "parameters that are constant")
    element = element_of(x)
    count = math.prod(x.dims)
    require_at_most(MOST_ELEMENTS, max(count, *(math.prod(out.dims) for out in call.outs)), "elements")
    # Counted from 1: what the operation adds of its own is 0.
    indexes = np.arange(1, count + 1, dtype=np.int32).reshape(x.dims)
    for k, index in enumerate(reference_results(call, indexes, OperandCode.TENSOR_INT32)):
        flat = np.subtract(index, 1, dtype=np.int32).reshape(-1)
        if flat[0] >= 0 and flat[-1] - flat[0] == len(flat) - 1 and _piece(flat) == len(flat):
            b.view(b.candidate.outputs[k], b.operand(x), int(flat[0]) * element)
        else:
            require(element == 1 or (flat >= 0).all() or not is_quant8(x.type), "zeros to fill with")
            move_pieces(b, b.source(x), b.target(k), flat, element, zero_of(x) if is_quant8(x.type) else 0)


@binds(OperationCode.PAD, OperationCode.PAD_V2)
def pad(b: Binding) -> None:
    """PAD and PAD_V2."""
    call, x = b.call, b.call["input"]
    require(not x.constant, "an operand that is not constant")
    require(element_of(x) in (1, 4), "elements of 1 or 4 bytes")
    value = 0.0
    if call.get("value") is not None:
        value = float(constant_data(call["value"]).reshape(()))
    fill = 0
    if is_quant8(x.type):
        fill = zero_of(x) if call.get("value") is None else (int(value) + offset_of(x)) & 0xFF
    else:
        require(value == 0 and not np.signbit(value), "zeros to fill with")
    border = border_of(call)
    if border is not None:
        add_border(b, x, x.dims, b.source(x), (*border[0], *border[1]), b.target(), widen=False)
        return
    require_at_most(MOST_ELEMENTS, math.prod(b.out.dims), "elements")
    index = np.arange(math.prod(x.dims), dtype=np.int32).reshape(x.dims)
    pairs = [(int(before), int(after)) for before, after in constant_data(call["paddings"])]
    padded = np.pad(index, pairs, constant_values=-1)
    move_pieces(b, b.source(x), b.target(), padded, element_of(x), fill)


@binds(OperationCode.PACK)
def pack(b: Binding) -> None:
    """PACK: parts in turn along the new axis."""
    call = b.call
    parts, axis = call.repeated("inputs"), call.axis("axis", len(b.out.dims))
    outer = math.prod(b.out.dims[:axis])
    _join(b, parts, outer, [math.prod(part.dims[axis:]) * element_of(part) for part in parts], [])


@binds(OperationCode.CONCATENATION)
def concatenation(b: Binding) -> None:
    """CONCATENATION. Parts that lie in one piece are written where they belong; bytes of other parameters go through tables."""
    call, out = b.call, b.out
    parts, axis = call.repeated("inputs"), int(call.scalar("axis"))
    require(all(part.dtype == out.dtype for part in parts), "operands of one type")
    outer = math.prod(out.dims[:axis])
    sizes = [math.prod(part.dims[axis:]) * element_of(out) for part in parts]
    _join(b, parts, outer, sizes, _joined_tables(b, parts))


def _join(b: Binding, parts: Sequence[Arg], outer: int, sizes: Sequence[int], tables: Sequence[Array]) -> None:
    """``outer`` times a piece of each part in turn, of these sizes in bytes, which go through tables if there are any."""
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).tolist()
    if outer == 1 and not tables and not any(part.constant for part in parts):
        joined = tuple((b.operand(part), at, size) for part, at, size in zip(parts, starts, sizes, strict=True))
        if len({operand for operand, _, _ in joined}) == len(joined):
            b.bound.append(Join(joined, b.candidate.outputs[0], b.candidate.index))
            return
    require_at_most(MOST_PIECES, outer, "pieces of each part")
    whole = sum(sizes)
    for k, (part, at, size) in enumerate(zip(parts, starts, sizes, strict=True)):
        source: Place | Array = b.source(part)
        if tables and (tables[k] != np.arange(256)).any():
            rescaled = b.scratch(outer * size)
            looked: dict[str, Argument] = {"source": source, "target": rescaled, "count": outer * size, "table": tables[k]}
            b.step("look_up", outer * size / 1_000, looked)
            source = rescaled
        arguments: dict[str, Argument] = {
            "source": source,
            "target": b.target(),
            "size": size,
            "count": outer,
            "sources": (np.arange(outer) * size).astype(np.int32),
            "targets": (np.arange(outer) * whole + at).astype(np.int32),
        }
        us = outer * (0.002 + size / 20_000)
        b.step("move", us, arguments, piece=size if size in (1, 2, 4, 8) else 0, scattered=True)


def _joined_tables(b: Binding, parts: Sequence[Arg]) -> list[Array]:
    """Table for each part's bytes; nothing where all have the output's parameters."""
    call, out = b.call, b.out
    if not is_quant8(out.type) or all((p.scale, p.zero_point) == (out.scale, out.zero_point) for p in parts):
        return []
    args = []
    for arg in call.args:
        part = any(arg is one for one in parts)
        args.append(arg.replace(value=byte_values(arg), dims=(256,)) if part else arg.replace(value=np.zeros((), np.int32)))
    made = Call(call.definition, call.signature, tuple(args), (out.replace(dims=(256 * len(parts),)),))
    return list(as_inside(run_reference(made)[0], out).reshape(-1, 256))


def border_of(call: Call) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Rows and columns that a PAD puts around images, with what windows pad with; None for other operations."""
    x, pads = call.args[0], call.get("paddings")
    if call.definition.code not in (OperationCode.PAD, OperationCode.PAD_V2) or x.constant or x.rank != 4:
        return None
    if pads is None or not pads.constant or not (is_real(x) or is_quant8(x.type)):
        return None
    value = call.get("value")
    if value is not None and not (value.constant and float(value.data.reshape(())) == x.zero_point):
        return None
    batch, rows, columns, depth = ((int(before), int(after)) for before, after in pads.data)
    return None if any((*batch, *depth)) else (rows, columns)


def add_border(
    b: Binding, x: Arg, images: Sequence[int], source: Place | Array, pads: Sequence[int], target: Place, *, widen: bool
) -> None:
    """Images [batch, height, width, depth] with ``pads`` (top, bottom, left, right) around them, written to ``target``."""
    batch, height, width, depth = images
    top, bottom, left, right = pads
    real = is_real(x)
    inner, element = (4, 4) if real else (1, 2 if widen else 1)
    full_h, target_row = top + height + bottom, (left + width + right) * depth * element
    row = width * depth * inner
    arguments: dict[str, Argument] = {
        "source": source,
        "image": height * row,
        "row": row,
        "rows": height,
        "target": target,
        "target_image": full_h * target_row,
        "target_row": target_row,
        "target_rows": full_h,
        "images": batch,
        "top": top,
        "before": left * depth * element,
        "value": 0 if real else zero_of(x),
    }
    b.step("border", batch * full_h * target_row / 10_000, arguments, widen=widen and not real)

"""Moving bytes: into and out of the arena, pieces by a table, borders, tables of bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from nnbridge.cpu.compiled.declared import Fields, kernel
from nnbridge.cpu.compiled.emitter import Emitter
from nnbridge.cpu.compiled.values import F32, I8, I16, I32, I64, IrValue, vector


@kernel("source target size")
def transfer(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, kind: str, inwards: bool) -> None:
    """Copy between the arena and the caller's array, whose address lies at ``source`` (inwards) or ``target``.

    ``size``: bytes in the arena. ``kind``: the ``same`` bytes, ``flipped``: signed ones become unsigned ones and back, by their
    highest bit, or ``half``: float16, which is float32 in the arena.
    """
    source, target = (e.load(f.source), f.target) if inwards else (f.source, e.load(f.target))
    if kind == "same":
        first, last = e.share(f.size, part, parts)
        e.copy(target + first, source + first, last - first)
        return

    def flip(width: int) -> Callable[[IrValue], None]:
        return lambda i: e.store(e.load(source + i, vector(I8, width)) ^ -128, target + i)

    def convert(width: int) -> Callable[[IrValue], None]:
        def several(i: IrValue) -> None:
            if inwards:
                e.store(e.from_half(e.load(source + i * 2, vector(I16, width))), target + i * 4)
            else:
                e.store(e.to_half(e.load(source + i * 4, vector(F32, width))), target + i * 2)

        return several

    lanes = e.instructions.lanes
    body, width, count = (convert, lanes, f.size // 4) if kind == "half" else (flip, 4 * lanes, f.size)
    first, last = e.share(count // width, part, parts)
    e.loop(first * width, last * width, body(width), step=width)
    e.when((part + 1).is_(parts), lambda: e.loop(count // width * width, count, body(1)))


@kernel("values count")
def round_half(e: Emitter, f: Fields, part: IrValue, parts: IrValue) -> None:
    """Each float32 value becomes the nearest one that float16 has."""
    lanes = e.instructions.lanes
    first, last = e.share_vectors(f.count, part, parts)

    def several(block: IrValue) -> None:
        at = f.values + block * (4 * lanes)
        x = e.from_half(e.to_half(e.load(at, vector(F32, lanes))))
        e.store_first(x, at, f.count - block * lanes)

    e.loop(first, last, several)


@kernel("source target size count sources targets")
def move(
    e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, piece: int = 0, scattered: bool = False, outer: bool = False
) -> None:
    """Copy ``count`` pieces of ``size`` bytes from offsets in a table to one after the other, or to offsets as well.

    ``piece``: the size where it is 1, 2, 4 or 8 bytes; 0 otherwise. ``outer``: the address of the source lies at ``source``.
    """
    base = e.load(f.source) if outer else f.source
    first, last = e.share(f.count, part, parts)
    element = {1: I8, 2: I16, 4: I32, 8: I64}.get(piece)

    def one(i: IrValue) -> None:
        source = base + e.load(f.sources + i * 4, I32).signed(I64)
        offset = e.load(f.targets + i * 4, I32).signed(I64) if scattered else i * (piece or f.size)
        if element is None:
            e.copy(f.target + offset, source, f.size)
        else:
            e.store(e.load(source, element), f.target + offset)

    e.loop(first, last, one)


@kernel("source target count rows columns")
def transpose(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, size: int) -> None:
    """``count`` matrices [rows, columns] of elements of 1, 2, 4 or 8 bytes, transposed in blocks of 128 bits by as many."""
    side = 16 // size
    element = {1: I8, 2: I16, 4: I32, 8: I64}[size]
    kind = vector(element, side)
    # Rows that fill a cache line of the target; of bytes fewer, which keeps the code short.
    together = 1 if size == 1 else 4
    tall = side * together
    bands = (f.rows + (tall - 1)) // tall
    first, last = e.share(f.count * bands, part, parts)

    def block(source: IrValue, target: IrValue, row: IrValue, column: IrValue, whole: bool) -> None:
        lines = [e.load(source + (e.smin(row + k, f.rows - 1) * f.columns + column) * size, kind) for k in range(side)]
        for _ in range(side.bit_length() - 1):
            pairs = zip(lines[: side // 2], lines[side // 2 :], strict=True)
            lines = [e.interleave(a, b, high) for a, b in pairs for high in (False, True)]

        def store(k: int) -> None:
            e.store_first(lines[k], target + ((column + k) * f.rows + row) * size, f.rows - row)

        for k, line in enumerate(lines):
            if whole:
                e.store(line, target + ((column + k) * f.rows + row) * size)
            else:
                e.when((column + k) < f.columns, partial(store, k))

    def band(index: IrValue) -> None:
        matrix = index // bands
        row = (index - matrix * bands) * tall
        at = matrix * f.rows * f.columns * size
        source, target = f.source + at, f.target + at
        columns = f.columns // side * side
        begin = e.select((row + tall) > f.rows, 0, columns)

        def several(column: IrValue) -> None:
            for k in range(together):
                block(source, target, row + side * k, column, True)

        e.loop(0, begin, several, step=side)

        def edge(line: IrValue) -> None:
            whole = e.select((line + side) > f.rows, begin, columns)
            if together > 1:
                e.loop(begin, whole, lambda column: block(source, target, line, column, True), step=side)
            e.loop(whole, f.columns, lambda column: block(source, target, line, column, False), step=side)

        e.loop(row, e.smin(row + tall, f.rows), edge, step=side)

    e.loop(first, last, band)


@kernel("target size value")
def fill(e: Emitter, f: Fields, part: IrValue, parts: IrValue) -> None:
    """Fill memory with one byte."""
    first, last = e.share(f.size, part, parts)
    e.fill(f.target + first, f.value, last - first)


@kernel("source image row rows target target_image target_row target_rows images top before value")
def border(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, widen: bool = False, outer: bool = False) -> None:
    """Images [rows, row bytes] with a border of one byte's value around them.

    ``top`` rows and ``before`` bytes come first; ``widen`` turns bytes into 16-bit numbers, whose sizes the target's fields give;
    ``outer``: the address of the source lies at ``source``.
    """
    base = e.load(f.source) if outer else f.source
    first, last = e.share(f.images * f.target_rows, part, parts)
    scale = 2 if widen else 1

    def blank(at: IrValue, size: IrValue) -> None:
        if not widen:
            e.fill(at, f.value, size)
            return
        value = f.value.truncated(I16)
        e.loop(0, size // 2, lambda i: e.store(value, at + i * 2))

    def row(index: IrValue) -> None:
        image = index // f.target_rows
        y = index - image * f.target_rows
        at = f.target + image * f.target_image + y * f.target_row
        source_y = y - f.top
        source = base + image * f.image + source_y * f.row

        def inside() -> None:
            size = f.row * scale
            blank(at, f.before)
            if widen:
                _widened(e, source, at + f.before, f.row)
            else:
                e.copy(at + f.before, source, f.row)
            blank(at + f.before + size, f.target_row - f.before - size)

        e.when(source_y.below(f.rows), inside, lambda: blank(at, f.target_row))

    e.loop(first, last, row)


def _widened(e: Emitter, source: IrValue, target: IrValue, count: IrValue) -> None:
    """Bytes as 16-bit numbers."""
    lanes = 2 * e.instructions.lanes
    whole = count // lanes * lanes

    def several(i: IrValue) -> None:
        e.store(e.load(source + i, vector(I8, lanes)).unsigned(I16), target + i * 2)

    e.loop(0, whole, several, step=lanes)
    e.loop(whole, count, lambda i: e.store(e.load(source + i, I8).unsigned(I16), target + i * 2))


@kernel("source target count table")
def look_up(e: Emitter, f: Fields, part: IrValue, parts: IrValue) -> None:
    """Each byte through a table of 256."""
    first, last = e.share(f.count, part, parts)
    e.loop(first, last, lambda i: e.store(e.load(f.table + e.load(f.source + i, I8).unsigned(I64), I8), f.target + i))

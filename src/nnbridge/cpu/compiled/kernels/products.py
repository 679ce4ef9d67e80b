"""Matrix products for convolutions and fully connected layers, 8-bit and float32.

Rows of the left matrix are found through a table of offsets, one for each output pixel, and are read in segments (the rows of a
filter), so that one kernel serves any filter size, stride, dilation and group. The right matrix is packed in strips of columns.
Tiles of rows x columns stay in registers; the last tile of too few rows starts earlier and computes some rows again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from nnbridge.cpu.compiled.constants import Constant
from nnbridge.cpu.compiled.declared import Fields, kernel
from nnbridge.cpu.compiled.emitter import Emitter
from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.requantise import Narrowing, Rescaling, column_order, load_parameters, rescale, rows_of
from nnbridge.cpu.compiled.values import F32, I8, I32, I64, IrValue, vector
from nnbridge.model import Array
from nnbridge.records import dataclass

STRIP_FIELDS = 5
"""Fields of a strip's entry in the table: width in columns, offsets of its weights and parameters from the table,
first column in bytes of output, columns."""

_LEAST_ROWS = 12
"""Parts start at multiples of these rows, which most tiles divide."""


class TileShape(NamedTuple):
    """Columns of a tile in vectors of so many lanes, and its rows."""

    vectors: int
    lanes: int
    rows: int

    @property
    def width(self) -> int:
        """Columns."""
        return self.vectors * self.lanes


WORDS = {"real": F32, "integer": I32}
"""Forms of products of 32-bit elements."""


def tile_shapes(instructions: InstructionSet, form: str) -> list[TileShape]:
    """Widest first. Tiles of words may have short vectors, which waste less on few columns; bytes come from whole ones."""
    lanes = instructions.lanes
    shapes = [TileShape(vectors, lanes, rows) for vectors, rows in instructions.tiles]
    return [*shapes, TileShape(1, lanes // 2, shapes[-1].rows)] if form in WORDS and lanes > 4 else shapes


def strip_entry(e: Emitter, f: Fields, index: IrValue, fields: Sequence[int] = range(STRIP_FIELDS)) -> Iterator[IrValue]:
    """A strip's fields in the table."""
    entry = f.strips + index * (8 * STRIP_FIELDS)
    return (e.load(entry, I64, 8 * i) for i in fields)


class _Shape(Protocol):
    @property
    def width(self) -> int: ...


_S = TypeVar("_S", bound=_Shape)


def by_shape(e: Emitter, shapes: Sequence[_S], width: IrValue, emit: Callable[[_S], None]) -> None:
    """Code for each shape, of which that of a strip's width runs."""
    if len(shapes) == 1:
        emit(shapes[0])
    else:
        e.when(width.is_(shapes[0].width), lambda: emit(shapes[0]), lambda: by_shape(e, shapes[1:], width, emit))


def shares(e: Emitter, f: Fields, part: IrValue, parts: IrValue, least: int) -> tuple[IrValue, IrValue, IrValue, IrValue]:
    """First and last + 1 of a part's rows, multiples of ``least``, and of its strips; one of both is all."""
    by_rows = f.by_strip.is_(0)
    blocks = (e.select(by_rows, f.count, e.number(1)) + (least - 1)) // least
    first, last = e.share(blocks, part, parts)
    strip0, strip1 = e.share(f.strip_count, part, parts)
    return (
        e.select(by_rows, first * least, e.number(0)),
        e.select(by_rows, e.smin(last * least, f.count), f.count),
        e.select(by_rows, e.number(0), strip0),
        e.select(by_rows, f.strip_count, strip1),
    )


@kernel(
    "left rows count out out_stride segments segment_table steps strips strip_count weights by_strip zero_point low high"
    " factor sums"
)
def product(
    e: Emitter,
    f: Fields,
    part: IrValue,
    parts: IrValue,
    *,
    form: str,
    row_sums: str = "",
    column_sums: bool = False,
    single: bool = False,
) -> None:
    """``out[row] = epilogue(sum over segments and steps of left[rows[row] + segment + step] * weights)``.

    ``form``: a requantisation form, ``real`` for float32 with bounds, or ``integer`` for INT32, which wraps. ``row_sums``: the
    sums of a row's bytes times ``factor`` are added, which weights with a zero point need: ``inner`` sums in the tile, ``table``
    reads them from ``sums``. ``column_sums``: each strip of weights begins with what is added to its columns. ``single``: one row
    at a time, for fewer rows than a tile has. ``by_strip``: parts share strips instead of rows. Weights come after ``weights``.
    """
    row0, row1, strip0, strip1 = shares(e, f, part, parts, _LEAST_ROWS)

    def strip(index: IrValue) -> None:
        width, weights, parameters, column, columns = strip_entry(e, f, index)
        weights, parameters = f.weights + weights, f.strips + parameters

        def tiles(shape: TileShape) -> None:
            rows = shape.rows
            if row_sums == "inner" and shape.vectors > 1:
                # Registers for the sums too.
                rows = {6: 5, 12: 8}.get(rows, rows)
            rows = 1 if single else rows

            def tile(at: IrValue) -> None:
                start = e.smin(at, e.smax(f.count - rows, 0))
                Tile(e, f, shape, rows, form, row_sums, column_sums).emit(start, weights, parameters, f.out + column, columns)

            e.loop(row0, row1, tile, step=rows)

        by_shape(e, tile_shapes(e.instructions, form), width, tiles)

    e.loop(strip0, strip1, strip)


class Tile:
    """One tile of rows x (vectors * lanes) columns."""

    def __init__(self, e: Emitter, f: Fields, shape: TileShape, rows: int, form: str, row_sums: str, column_sums: bool) -> None:
        self.e, self.f = e, f
        self.rows, self.vectors, self.lanes = rows, shape.vectors, shape.lanes
        self.form, self.row_sums, self.column_sums = form, row_sums, column_sums
        self.kind = vector(WORDS.get(form, I32), self.lanes)
        self.block = 4 * self.lanes * (1 if form in WORDS else rows_of(form))

    def emit(self, start: IrValue, weights: IrValue, parameters: IrValue, out: IrValue, columns: IrValue) -> None:
        """From row ``start``."""
        e, f, lanes = self.e, self.f, self.lanes
        numbers = [e.load(f.rows + start * 4, I32, 4 * r).signed(I64) for r in range(self.rows)]
        addresses = [f.left + number for number in numbers]
        bias = [e.load(parameters, self.kind, v * self.block) for v in range(self.vectors)]
        if self.column_sums:
            bias = [b + e.load(weights, self.kind, 4 * lanes * v) for v, b in enumerate(bias)]
            weights = weights + 4 * lanes * self.vectors
        initial = [bias[v] for _ in range(self.rows) for v in range(self.vectors)]
        if self.row_sums == "inner":
            initial += [e.constant(self.kind, 0)] * self.rows
        read = self.vectors + (self.row_sums == "inner")
        add: Callable[[IrValue, IrValue, IrValue], IrValue] = {
            "real": lambda total, a, b: e.fma(a, b, total),
            "integer": lambda total, a, b: total + a * b,
        }.get(self.form, e.dot)

        def step(_: IrValue, offset: IrValue, packed: IrValue, *totals: IrValue) -> list[IrValue]:
            columns_ = [e.load(packed, self.kind, 4 * lanes * v) for v in range(read)]
            results, extra = [], []
            for r, address in enumerate(addresses):
                values = e.splat(e.load(address + offset, WORDS.get(self.form, I32)), lanes)
                results += [add(totals[r * self.vectors + v], values, columns_[v]) for v in range(self.vectors)]
                if self.row_sums == "inner":
                    extra.append(e.dot(totals[self.rows * self.vectors + r], values, columns_[self.vectors]))
            return [offset + 4, packed + 4 * lanes * read, *results, *extra]

        def segment(index: IrValue, packed: IrValue, *totals: IrValue) -> list[IrValue]:
            offset = e.load(f.segment_table + index * 4, I32).signed(I64)
            return e.repeat(f.steps, step, [offset, packed, *totals])[1:]

        totals = e.repeat(f.segments, segment, [weights, *initial])[1:]
        sums = totals[: self.rows * self.vectors]
        grouped = [sums[r * self.vectors : (r + 1) * self.vectors] for r in range(self.rows)]
        self.finish(grouped, start, parameters, out, columns, totals[self.rows * self.vectors :])

    def finish(
        self,
        grouped: list[list[IrValue]],
        start: IrValue,
        parameters: IrValue,
        out: IrValue,
        columns: IrValue,
        inner: Sequence[IrValue] = (),
    ) -> None:
        """Post-processing of the sums of rows from ``start``; ``inner``: the sums of each row's bytes."""
        e, f, lanes = self.e, self.f, self.lanes
        target = out + start * f.out_stride
        if self.form in WORDS:
            self._store(grouped if self.form == "integer" else self._bounded(grouped), target, columns)
            return
        grouped = self._with_row_sums(grouped, inner, start)
        for v in range(self.vectors):
            loaded = load_parameters(e, parameters + v * self.block, lanes, self.form)
            for row in grouped:
                row[v] = rescale(e, row[v], loaded, self.form)
        narrowing = Narrowing(e, self.form, lanes, f.zero_point, f.low, f.high)
        self._store([[made] for made in narrowing.rows(grouped)], target, columns)

    def _with_row_sums(self, grouped: list[list[IrValue]], inner: Sequence[IrValue], start: IrValue) -> list[list[IrValue]]:
        e = self.e
        if not self.row_sums:
            return grouped
        if self.row_sums == "inner":
            factor = e.splat(self.f.factor.truncated(I32), self.lanes)
            sums = [total * factor for total in inner]
        else:
            sums = [e.splat(e.load(self.f.sums + start * 4, I32, 4 * r), self.lanes) for r in range(self.rows)]
        return [[x + total for x in row] for row, total in zip(grouped, sums, strict=True)]

    def _bounded(self, grouped: list[list[IrValue]]) -> list[list[IrValue]]:
        e = self.e
        low, high = (e.splat_real(bound, self.lanes) for bound in (self.f.low, self.f.high))
        return [[e.clamp_real(x, low, high) for x in row] for row in grouped]

    def _store(self, rows: list[list[IrValue]], target: IrValue, columns: IrValue) -> None:
        """Whole vectors where the strip is full, otherwise as many columns as it has."""
        addresses = [target]
        for _ in rows[1:]:
            addresses.append(addresses[-1] + self.f.out_stride)
        self.e.store_rows(rows, addresses, columns)


@kernel("left rows count length segments segment_table factor sums")
def row_sums(e: Emitter, f: Fields, part: IrValue, parts: IrValue) -> None:
    """``sums[row] = factor * sum of the row's bytes``, which is what weights with a zero point add to each product."""
    size = 4 * e.instructions.lanes
    kind = vector(I8, size)
    lanes = e.constant(kind, [i if i < 128 else i - 256 for i in range(size)])
    ones = e.constant(vector(I8, size), 1).bits(vector(I32, size // 4))
    first, last = e.share(f.count, part, parts)

    def row(index: IrValue) -> None:
        start = f.left + e.load(f.rows + index * 4, I32).signed(I64)

        def segment(number: IrValue, total: IrValue) -> list[IrValue]:
            base = start + e.load(f.segment_table + number * 4, I32).signed(I64)

            def piece(at: IrValue, inner: IrValue) -> list[IrValue]:
                left = e.splat(e.smin(f.length - at, size).truncated(I8), size)
                values = e.select(lanes.below(left), e.load(base + at, kind), e.constant(kind, 0))
                return [e.dot(inner, values.bits(inner.type), ones)]

            return e.loop(0, f.length, piece, step=size, carried=[total])

        total = e.loop(0, f.segments, segment, carried=[e.constant(vector(I32, size // 4), 0)])[0]
        e.store(e.total(total) * f.factor.truncated(I32), f.sums + index * 4)

    e.loop(first, last, row)


@dataclass(frozen=True)
class StripGroup:
    """Strips of one shape, one after the other."""

    width: int
    first: int
    """The first column of the first strip."""
    weights: Array
    """[strips, ...], in any order in memory."""
    parameters: Array
    """[strips, ...]."""


@dataclass(frozen=True)
class Strips:
    """Packed weights and parameters of every strip."""

    groups: list[StripGroup]
    columns: int

    @property
    def count(self) -> int:
        """The number of strips."""
        return sum(len(group.weights) for group in self.groups)

    def block(self, element: int) -> Constant:
        """One constant: the table, then weights and parameters at multiples of 64 bytes. ``element``: bytes of an output."""
        shapes = tuple(
            (group.first, group.width, len(group.weights), group.weights[0].nbytes, group.parameters[0].nbytes)
            for group in self.groups
        )
        table, places, size = strip_table(shapes, self.columns, element)
        made = Constant.of(size)
        made.data[: table.nbytes] = table
        for group, (at, stride, behind) in zip(self.groups, places, strict=True):
            area = made.data[at : at + len(group.weights) * stride].reshape(-1, stride)
            for array, start in ((group.weights, 0), (group.parameters, behind)):
                area[:, start : start + array[0].nbytes].view(array.dtype).reshape(array.shape)[...] = array
        return made


@lru_cache(maxsize=256)
def strip_table(
    groups: Sequence[tuple[int, int, int, int, int]], columns: int, element: int
) -> tuple[Array, Sequence[tuple[int, int, int]], int]:
    """The table in front of strips, each group's place, stride and the place of parameters in a strip, and the size of all.

    A group is its first column, its width, its strips, and the bytes of weights and of parameters of each.
    """
    at = sum(strips for _, _, strips, _, _ in groups) * 8 * STRIP_FIELDS
    at += -at % 64
    rows, places = [], []
    for first, width, strips, weights, parameters in groups:
        behind = weights + -weights % 64
        stride = behind + parameters + -parameters % 64
        places.append((at, stride, behind))
        for column in range(first, first + strips * width, width):
            rows.append((width, at, at + behind, column * element, min(columns - column, width)))
            at += stride
    return np.array(rows, np.int64).reshape(-1).view(np.uint8), places, at


def strips_of(shapes: Sequence[TileShape], count: int) -> Iterator[tuple[TileShape, int, int]]:
    """Shape, first column and number of strips of one width at a time, the widest first."""
    columns, first = -(-count // shapes[-1].width) * shapes[-1].width, 0
    while first < count:
        shape = next(shape for shape in shapes if shape.width <= columns - first)
        strips = (columns - first) // shape.width
        yield shape, first, strips
        first += strips * shape.width


def pack_strips(
    instructions: InstructionSet, weights: Array, bias: Array, rescaling: Rescaling | None, *, ones: bool = False
) -> Strips:
    """Weights [columns, segments, elements] in strips: int8 or int16 for the dot product, float32 without ``rescaling``.

    ``ones``: one more vector in each step holds 1 for every element that there is, to sum the left matrix's rows.
    """
    count, segments, length = weights.shape
    shapes = tile_shapes(instructions, "real" if rescaling is None else rescaling.form)
    elements = 1 if rescaling is None else instructions.step_elements
    steps = -(-length // elements)
    # Columns up to whole tiles, elements up to whole steps.
    columns = -(-count // shapes[-1].width) * shapes[-1].width
    padded = weights
    if (columns, steps * elements) != (count, length):
        padded = np.zeros((columns, segments, steps * elements), weights.dtype)
        padded[:count, :, :length] = weights
    # The elements of a step lie side by side: they move as one word of 32 bits.
    words = np.ascontiguousarray(padded).view(np.uint32).reshape(columns, segments * steps)
    groups = []
    for shape, first, strips in strips_of(shapes, count):
        width, lanes = shape.width, shape.lanes
        part = words[first : first + strips * width]
        if rescaling is None:
            part = part.reshape(strips, width, -1).transpose(0, 2, 1)
            parameters = np.zeros(strips * width, np.float32)
            parameters[: count - first] = bias[first : first + strips * width]
        else:
            # In the order of :func:`column_order`: vectors, then blocks of four lanes. Whole rows are moved first, which is fast.
            part = part.reshape(strips, lanes // 4, shape.vectors, 4, -1).transpose(0, 2, 1, 3, 4).reshape(strips, width, -1)
            part = part.transpose(0, 2, 1)
            order = (column_order(shape.vectors, lanes) + np.arange(first, first + strips * width, width)[:, None]).reshape(-1)
            if first + strips * width > count:
                order[order >= count] = -1
            parameters = rescaling.packed(bias, order, lanes)
        if ones:
            extra = np.zeros((segments, steps * elements), weights.dtype)
            extra[:, :length] = 1
            sums = np.broadcast_to(extra.view(np.uint32).reshape(-1, 1), (strips, segments * steps, lanes))
            part = np.concatenate([part, sums], axis=2)
        groups.append(StripGroup(width, first, part, parameters.reshape(strips, -1)))
    return Strips(groups, count)

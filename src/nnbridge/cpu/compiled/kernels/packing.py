"""Packing of matrices into the strips that products read, as :func:`pack_strips` does: computed ones, and constant bytes."""

from __future__ import annotations

from nnbridge.cpu.compiled.declared import Fields, kernel
from nnbridge.cpu.compiled.emitter import Emitter
from nnbridge.cpu.compiled.kernels.products import WORDS, TileShape, by_shape, strip_entry, tile_shapes
from nnbridge.cpu.compiled.requantise import rows_of
from nnbridge.cpu.compiled.values import I8, I16, I32, IrValue, vector


@kernel("source target strips strip_count count steps columns row zero factor constant element")
def pack_computed(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, form: str, transposed: bool) -> None:
    """A matrix [count, columns], or [columns, count] if ``transposed``, rows of ``row`` bytes, as strips of ``steps`` words.

    ``form``: that of the product. Before the strips of bytes stands ``factor`` times each column's sum, plus ``constant``.
    Bytes are those of signed numbers, offset by 128; ``zero`` is the zero point that pairs of 16 bits are stored without.
    """
    first, last = e.share(f.strip_count, part, parts)

    def strip(index: IrValue) -> None:
        width, weights, column = strip_entry(e, f, index, (0, 1, 3))

        def emit(shape: TileShape) -> None:
            _PackedStrip(e, f, shape, form, transposed, column // f.element).emit(f.target + weights)

        by_shape(e, tile_shapes(e.instructions, form), width, emit)

    e.loop(first, last, strip)


class _PackedStrip:
    """One strip, in pieces of four columns: a word of 32 bits for each column, with the elements of one step."""

    def __init__(self, e: Emitter, f: Fields, shape: TileShape, form: str, transposed: bool, first: IrValue) -> None:
        self.e, self.f, self.words = e, f, form in WORDS
        self.each = 1 if self.words else e.instructions.step_elements
        self.pieces, self.row = shape.width // 4, 4 * shape.width
        across, lanes = shape.vectors, shape.lanes
        # Words lie in their order, bytes in that of ``column_order``.
        self.places = [16 * p if self.words else 4 * (p % across * lanes + p // across * 4) for p in range(self.pieces)]
        if transposed:
            self.starts = [f.source + e.smin(first + k, f.columns - 1) * f.row for k in range(shape.width)]
            self.read = self._gathered
        else:
            self.starts = [f.source + first * f.element]
            self.read = self._interleaved

    def emit(self, target: IrValue) -> None:
        e, f = self.e, self.f
        kind = vector(I32, 4)
        sums = [] if self.words else [e.constant(kind, 0)] * self.pieces
        start = target if self.words else target + self.row
        ones = e.constant(vector(I8, 16), 1) if self.each == 4 else e.constant(vector(I16, 8), 1)

        def step(index: IrValue, *totals: IrValue) -> list[IrValue]:
            packed = self.read(index * self.each)[: self.pieces]
            for place, words in zip(self.places, packed, strict=True):
                e.store(words, start + index * self.row, place)
            return [e.dot(total, ones.bits(kind), words) for total, words in zip(totals, packed, strict=False)]

        totals = e.loop(0, f.steps, step, carried=sums)
        factor, constant = (e.splat(value.truncated(I32), 4) for value in (f.factor, f.constant))
        for place, total in zip(self.places, totals, strict=False):
            e.store(total * factor + constant, target, place)

    def _gathered(self, k: IrValue) -> list[IrValue]:
        """Words of columns that lie one after the other."""
        e, each = self.e, self.each
        element = I16 if each == 2 else I32
        pieces = []
        for p in range(0, len(self.starts), 4):
            piece = e.undefined(vector(element, 4))
            for lane, column in enumerate(self.starts[p : p + 4]):
                piece = e.insert(piece, e.load(column + k * (4 // each if self.words else 1), element), lane)
            pieces.append(piece)
        if self.words:
            return pieces
        bytes_ = [self._signed(piece.bits(vector(I8, 4 * each))) for piece in pieces]
        number = e.constant(bytes_[0].type, [i % each for i in range(4 * each)])
        inside = number < e.splat(e.smin(self.f.count - k, each).truncated(I8 if each == 4 else I16), 4 * each)
        return [e.select(inside, piece, 0).bits(vector(I32, 4)) for piece in bytes_]

    def _interleaved(self, k: IrValue) -> list[IrValue]:
        """Words of the rows from ``k`` on, element by element."""
        e, each = self.e, self.each
        if self.words:
            row = self.starts[0] + k * self.f.row
            return [e.load(row, vector(I32, 4), 16 * p) for p in range(self.pieces)]
        pieces: list[IrValue] = []
        for p in range(0, self.pieces, each):
            rows = []
            for i in range(each):
                inside = (k + i) < self.f.count
                row = self.starts[0] + e.select(inside, k + i, 0) * self.f.row
                read = self._signed(e.load(row, vector(I8, 4 * each), 4 * p))
                rows.append(e.select(inside, read, 0))
            pairs = [e.interleave(rows[0], rows[1], high) for high in (False, True)]
            if each == 4:
                wide = vector(I16, 8)
                others = [e.interleave(rows[2], rows[3], high) for high in (False, True)]
                pairs = [
                    e.interleave(a.bits(wide), b.bits(wide), high)
                    for a, b in zip(pairs, others, strict=True)
                    for high in (False, True)
                ]
            pieces += [pair.bits(vector(I32, 4)) for pair in pairs]
        return pieces

    def _signed(self, x: IrValue) -> IrValue:
        """Bytes as signed ones, or as 16 bits less the zero point."""
        if self.each == 4:
            return x ^ -128
        return x.unsigned(I16) - self.e.splat(self.f.zero.truncated(I16), x.count)


@kernel("weights row words count zeros bias zero each multiplier constant shift correction left strips strip_count")
def pack_constant(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, form: str) -> None:
    """Signed bytes [count, 4 * words], rows of ``row`` bytes, as strips with the parameters of their requantisation.

    From the bias, ``zero`` times the sum of each row is taken. Parameters of a channel are ``each`` bytes from those before;
    ``zeros`` is a row for the columns of a strip that no channel has.
    """
    first, last = e.share(f.strip_count, part, parts)

    def strip(index: IrValue) -> None:
        width, weights, parameters, column = strip_entry(e, f, index, range(4))

        def emit(shape: TileShape) -> None:
            for v in range(shape.vectors):
                _pack_vector(e, f, shape, form, column, v, f.strips + weights, f.strips + parameters)

        by_shape(e, tile_shapes(e.instructions, form), width, emit)

    e.loop(first, last, strip)


def _pack_vector(
    e: Emitter, f: Fields, shape: TileShape, form: str, column: IrValue, v: int, out: IrValue, parameters: IrValue
) -> None:
    """The channels of one vector of a strip: words of weights, and after all vectors a block of parameters."""
    across, lanes = shape.vectors, shape.lanes
    kind, general = vector(I32, lanes), form == "general"
    # As :func:`column_order` has it.
    channels = [column + (lane // 4 * (4 * across) + v * 4 + lane % 4) for lane in range(lanes)]
    rows = [e.select(channel < f.count, f.weights + channel * f.row, f.zeros) for channel in channels]

    def step(word: IrValue, total: IrValue) -> list[IrValue]:
        packed = e.undefined(kind)
        for lane, row in enumerate(rows):
            packed = e.insert(packed, e.load(row + word * 4, I32), lane)
        e.store(packed, out + word * (4 * lanes * across), 4 * lanes * v)
        return [e.dot(total, ones, packed)]

    ones = e.constant(kind, 0x01010101)
    total = e.repeat(f.words, step, [e.constant(kind, 0)])[0]
    block = parameters + v * (rows_of(form) * 4 * lanes)
    bias = e.constant(kind, 0)
    for lane, channel in enumerate(channels):
        inside, at = channel < f.count, e.smin(channel, f.count - 1)
        bias = e.insert(bias, e.select(inside, e.load(f.bias + at * 4, I32), 0), lane)
        phase, pair = lane % 2, 8 * (lane // 2)

        def number(source: IrValue, inside: IrValue = inside, at: IrValue = at) -> IrValue:
            return e.select(inside, e.load(source + at * f.each), 0)

        shift = e.select(inside, e.load(f.shift + at * f.each) - (0 if general or not phase else 32), 0)
        for first, value in ((1, number(f.multiplier)), (3, number(f.constant)), (5, shift)):
            e.store(value, block, (first + phase) * 4 * lanes + pair)
        if general:
            e.store(number(f.left).truncated(I32), block, 7 * 4 * lanes + 4 * lane)
            e.store(e.number(0) - number(f.correction), block, (8 + phase) * 4 * lanes + pair)
    e.store(bias - total * e.splat(f.zero.truncated(I32), lanes), block)

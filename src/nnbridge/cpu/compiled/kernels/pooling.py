"""Windows over images and means over axes, of bytes and float32."""

from __future__ import annotations

from collections.abc import Callable

from nnbridge.cpu.compiled.declared import Fields, kernel
from nnbridge.cpu.compiled.emitter import Emitter
from nnbridge.cpu.compiled.kernels.elementwise import exponential
from nnbridge.cpu.compiled.requantise import Narrowing, load_parameters, rescale
from nnbridge.cpu.compiled.values import F32, F64, I1, I8, I32, I64, IrValue, vector

LARGEST = 3.4028234663852886e38
"""The largest finite float32 number."""
_EXTREMES = ("maximum", "minimum")


def accumulate(e: Emitter, kind: str, total: IrValue, x: IrValue) -> IrValue:
    """A total of real numbers and one more; extremes pass over NaN, and products with 0 are 0 of either sign (fact N86)."""
    if kind == "maximum":
        return e.select(x > total, x, total)
    if kind == "minimum":
        return e.select(x < total, x, total)
    if kind == "product":
        return e.select(x.is_(0.0), x, e.select(total.is_(0.0), total, total * x))
    return total + x


def completed(e: Emitter, kind: str, total: IrValue) -> IrValue:
    """The result of a total: products that are 0 have no sign."""
    return e.select(total.is_(0.0), e.constant(total.type, 0.0), total) if kind == "product" else total


def fold(e: Emitter, kind: str, total: IrValue) -> IrValue:
    """All lanes of a total as a vector of one: the upper half onto the lower one, again and again."""
    width = total.count
    while width > 1:
        width //= 2
        low, high = (e.shuffle(total, range(k, k + width)) for k in (0, width))
        total = accumulate(e, kind, low, high)
    return total


@kernel("source target rows length start")
def reduce_rows(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, kind: str) -> None:
    """Each row's ``sum``, ``product``, ``mean``, ``maximum`` or ``minimum`` of real numbers, from ``start`` on."""
    lanes = e.instructions.lanes
    first, last = e.share(f.rows, part, parts)
    identity = e.splat_real(f.start, lanes)
    numbers = e.constant(vector(I32, lanes), list(range(lanes)))

    def row(index: IrValue) -> None:
        source = f.source + index * f.length * 4

        def several(i: IrValue, total: IrValue) -> list[IrValue]:
            inside = numbers < e.splat(e.smin(f.length - i, lanes).truncated(I32), lanes)
            x = e.load(source + i * 4, vector(F32, lanes))
            return [accumulate(e, kind, total, e.select(inside, x, identity))]

        total = e.loop(0, f.length, several, step=lanes, carried=[identity])[0]
        total = fold(e, kind, total)
        result = total / e.splat(f.length.real(), 1) if kind == "mean" else completed(e, kind, total)
        e.store(result, f.target + index * 4)

    e.loop(first, last, row)


@kernel("source target rows length")
def fold_half(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, kind: str) -> None:
    """The ``sum`` or ``product`` of each row of [length, rows] numbers that float16 has, rounded to such after each step."""
    lanes = e.instructions.lanes
    numbers = vector(F32, lanes)
    first, last = e.share_vectors(f.rows, part, parts)

    def several(block: IrValue) -> None:
        at = f.source + block * (4 * lanes)

        def step(i: IrValue, total: IrValue) -> list[IrValue]:
            total = accumulate(e, kind, total, e.load(at + i * f.rows * 4, numbers))
            return [e.from_half(e.to_half(total))]

        [total] = e.loop(1, f.length, step, carried=[e.load(at, numbers)])
        e.store_first(completed(e, kind, total), f.target + block * (4 * lanes), f.rows - block * lanes)

    e.loop(first, last, several)


@kernel("source target rows length high")
def extreme_bytes(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, kind: str) -> None:
    """Each row's ``maximum`` or ``minimum`` of unsigned bytes, ``high`` at most."""
    size = 4 * e.instructions.lanes
    bytes_, join = vector(I8, size), e.umax if kind == "maximum" else e.umin
    first, last = e.share(f.rows, part, parts)
    identity = e.constant(bytes_, 0 if kind == "maximum" else -1)
    numbers = e.constant(bytes_, list(range(size)))

    def row(index: IrValue) -> None:
        source = f.source + index * f.length

        def several(i: IrValue, total: IrValue) -> list[IrValue]:
            inside = numbers.below(e.splat(e.smin(f.length - i, size).truncated(I8), size))
            return [join(total, e.select(inside, e.load(source + i, bytes_), identity))]

        total = e.loop(0, f.length, several, step=size, carried=[identity])[0]
        name = "umax" if kind == "maximum" else "umin"
        found = e.call(f"llvm.vector.reduce.{name}.v{size}i8", I8, total)
        e.store(e.umin(found, f.high.truncated(I8)), f.target + index)

    e.loop(first, last, row)


@kernel(
    "input height width pixel row image out out_height out_width out_pixel images channels"
    " size_y size_x stride_y stride_x top left start low high zero_point parameters"
)
def pool(
    e: Emitter,
    f: Fields,
    part: IrValue,
    parts: IrValue,
    *,
    kind: str,
    real: bool,
    signed: bool = False,
    form: str = "relu",
    by_rows: bool = False,
) -> None:
    """Each window's ``average``, ``mean`` (truncated instead of rounded), ``maximum`` or ``l2``, over the cells inside the image.

    Of windows without borders also the ``minimum``, and the ``sum`` and ``product`` of real numbers, which begin with ``start``.
    ``rescaled`` is the sum with the bias in ``parameters``, requantised in a ``form``. ``signed``: bytes stand for signed values,
    which matters to how means round. ``by_rows``: a window's rows are summed each by itself, then their sums: adding thousands of
    numbers one by one loses more than float32's last digits.
    """
    work = _Window(e, f, kind, real, signed, form, by_rows)
    first, last = e.share(f.images * f.out_height, part, parts)

    def span(position: IrValue, stride: IrValue, before: IrValue, size: IrValue, length: IrValue) -> tuple[IrValue, IrValue]:
        start = position * stride - before
        return e.smax(start, 0), e.smin(start + size, length)

    def output_row(index: IrValue) -> None:
        image = index // f.out_height
        rows = span(index - image * f.out_height, f.stride_y, f.top, f.size_y, f.height)

        def pixel(x: IrValue) -> None:
            columns = span(x, f.stride_x, f.left, f.size_x, f.width)
            target = f.out + (index * f.out_width + x) * f.out_pixel
            work.emit(f.input + image * f.image, rows, columns, target)

        e.loop(0, f.out_width, pixel)

    e.loop(first, last, output_row)


class _Window:
    """All channels of one window."""

    def __init__(self, e: Emitter, f: Fields, kind: str, real: bool, signed: bool, form: str, by_rows: bool) -> None:
        self.e, self.f, self.kind, self.real, self.form, self.by_rows = e, f, kind, real, form, by_rows
        self.lanes = e.instructions.lanes
        self.offset = 128 if signed else 0
        if real:
            self.start, self.low, self.high = (e.splat_real(x, self.lanes) for x in (f.start, f.low, f.high))
        else:
            self.narrowing = Narrowing(e, form, self.lanes, f.zero_point, f.low, f.high)
            self.bounds = [e.splat(x.truncated(I8), 4 * self.lanes) for x in (f.low, f.high)]

    def emit(self, image: IrValue, rows: tuple[IrValue, IrValue], columns: tuple[IrValue, IrValue], target: IrValue) -> None:
        e, f, lanes = self.e, self.f, self.lanes
        count = (rows[1] - rows[0]) * (columns[1] - columns[0])
        size = 1 if not self.real else 4
        whole = self.kind in _EXTREMES and not self.real
        step = lanes if self.real else 4 * lanes
        if self.real:
            initial = [self.start]
        elif whole:
            initial = [e.constant(vector(I8, step), 0 if self.kind == "maximum" else -1)]
        else:
            initial = [e.constant(vector(I32, lanes), 0)] * 4

        def channels(at: IrValue) -> None:
            base = image + at * size

            def row(y: IrValue, *totals: IrValue) -> list[IrValue]:
                def cell(x: IrValue, *inner: IrValue) -> list[IrValue]:
                    return self._add(base + y * f.row + x * f.pixel, list(inner))

                if not self.by_rows:
                    return e.loop(columns[0], columns[1], cell, carried=totals)
                none = [e.constant(vector(F32, lanes), 0.0)]
                return [totals[0] + e.loop(columns[0], columns[1], cell, carried=none)[0]]

            totals = e.loop(rows[0], rows[1], row, carried=initial)
            result = self._finish(totals, count)
            remaining = f.channels - at
            place = target + at * size
            e.store_rest(result, place, remaining)

        e.loop(0, f.channels, channels, step=step)

    def _add(self, address: IrValue, totals: list[IrValue]) -> list[IrValue]:
        e, lanes = self.e, self.lanes
        if self.real:
            x = e.load(address, vector(F32, lanes))
            return [accumulate(e, self.kind, totals[0], x * x if self.kind == "l2" else x)]
        if self.kind in _EXTREMES:
            join = e.umax if self.kind == "maximum" else e.umin
            return [join(e.load(address, totals[0].type), totals[0])]
        return [t + e.load(address, vector(I8, lanes), v * lanes).unsigned(I32) for v, t in enumerate(totals)]

    def _finish(self, totals: list[IrValue], count: IrValue) -> IrValue:
        e, f, lanes = self.e, self.f, self.lanes
        if self.real:
            x = totals[0]
            if self.kind in ("sum", "product"):
                return completed(e, self.kind, x)
            if self.kind not in _EXTREMES:
                x = x / e.splat(count.real(), lanes)
            return e.clamp_real(e.sqrt(x) if self.kind == "l2" else x, self.low, self.high)
        if self.kind in _EXTREMES:
            return e.umin(e.umax(totals[0], self.bounds[0]), self.bounds[1])
        if self.kind == "rescaled":
            bias = e.load(f.parameters, vector(I32, lanes))
            loaded = load_parameters(e, f.parameters, lanes, self.form)
            return self.narrowing.in_order([rescale(e, total + bias, loaded, self.form) for total in totals])
        # A half more than the integer leaves quotients far enough from integers for the reciprocal's error.
        inverse = e.splat(e.constant(F64, 1) / count.real(F64), lanes)
        half = e.splat((count // 2).truncated(I32), lanes) if self.kind == "average" else e.constant(vector(I32, lanes), 0)
        offsets = e.splat((count * self.offset).truncated(I32), lanes)
        results = []
        for total in totals:
            raw = total - offsets
            negative = raw < 0
            quotient = ((e.select(negative, -raw, raw) + half).real(F64) + 0.5) * inverse
            steps = quotient.integer()
            results.append(e.select(negative, -steps, steps) + self.offset)
        return self.narrowing.in_order(results)


_INT32_MAX = 2**31 - 1


def _high_product(e: Emitter, a: IrValue, b: IrValue) -> IrValue:
    """``a * b / 2**31`` of 32-bit numbers in 64 bits, to nearest, ties up (SRDHM)."""
    return e.smin((a * b + (1 << 30)) >> 31, _INT32_MAX)


def _reciprocal(e: Emitter, x: IrValue) -> IrValue:
    """``1 / (1 + x)`` of a fraction without integer bits, by three steps of Newton's iteration (fact N18)."""
    half = (x + 2**31) >> 1
    y = _high_product(e, half, e.number(-1010580540)) + 1515870810
    for _ in range(3):
        correction = e.number(1 << 29) - _high_product(e, half, y)
        step = _high_product(e, y, correction) << 2
        y = y + e.smin(e.smax(step, -(2**31)), _INT32_MAX)
    return e.smin(e.smax(y << 1, -(2**31)), _INT32_MAX)


@kernel("source target rows length exponentials terms")
def softmax_bytes(e: Emitter, f: Fields, part: IrValue, parts: IrValue) -> None:
    """Shares of 1 in steps of 1/256 along rows. Tables by difference to the maximum, from -255 to 0 (fact N46)."""
    first, last = e.share(f.rows, part, parts)

    def row(index: IrValue) -> None:
        source, target = f.source + index * f.length, f.target + index * f.length

        def byte(i: IrValue) -> IrValue:
            return e.load(source + i, I8).unsigned(I64)

        largest = e.loop(0, f.length, lambda i, m: [e.smax(m, byte(i))], carried=[e.number(0)])[0]
        base = e.number(255) - largest

        def entry(table: IrValue, i: IrValue) -> IrValue:
            return e.load(table + (base + byte(i)) * 4, I32).signed(I64)

        total = e.loop(0, f.length, lambda i, t: [t + entry(f.terms, i)], carried=[e.number(0)])[0]
        leading = e.call("llvm.ctlz.i64", I64, total, e.constant(I1, 0)) - 32
        reciprocal = _reciprocal(e, (total << leading) - 2**31)
        exponent = e.number(35) - leading
        half = (e.number(1) << exponent) >> 1

        def share(i: IrValue) -> None:
            scaled = (_high_product(e, reciprocal, entry(f.exponentials, i)) + half) >> exponent
            e.store(e.smin(scaled, 255).truncated(I8), target + i)

        e.loop(0, f.length, share)

    e.loop(first, last, row)


@kernel("source target rows length beta")
def softmax_real(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, together: int = 0) -> None:
    """``exp((x - maximum) * beta)`` over its sum along rows. ``together``: the rows' length, of which lanes are a multiple."""
    lanes = e.instructions.lanes
    kind = vector(F32, lanes)
    if together:
        _softmax_groups(e, f, part, parts, together)
        return
    number = e.constant(vector(I32, lanes), list(range(lanes)))
    beta = e.splat_real(f.beta, lanes)
    first, last = e.share(f.rows, part, parts)

    def row(index: IrValue) -> None:
        source, target = f.source + index * f.length * 4, f.target + index * f.length * 4

        def values(i: IrValue, nothing: float) -> IrValue:
            inside = number < e.splat((f.length - i).truncated(I32), lanes)
            return e.select(inside, e.load(source + i * 4, kind), nothing)

        largest = e.loop(
            0,
            f.length,
            lambda i, m: [e.select(m > values(i, -LARGEST), m, values(i, -LARGEST))],
            step=lanes,
            carried=[e.constant(kind, -LARGEST)],
        )[0]
        top = e.splat(e.call(f"llvm.vector.reduce.fmax.v{lanes}f32", F32, largest), lanes)

        def term(i: IrValue, total: IrValue) -> list[IrValue]:
            power = exponential(e, (values(i, float("-inf")) - top) * beta)
            e.store_first(power, target + i * 4, f.length - i)
            return [total + power]

        sums = e.loop(0, f.length, term, step=lanes, carried=[e.constant(kind, 0)])[0]
        total = e.lane(sums, 0)
        for lane in range(1, lanes):
            total = total + e.lane(sums, lane)
        divisor = e.splat(total, lanes)

        def divide(i: IrValue) -> None:
            e.store_first(e.load(target + i * 4, kind) / divisor, target + i * 4, f.length - i)

        e.loop(0, f.length, divide, step=lanes)

    e.loop(first, last, row)


def _softmax_groups(e: Emitter, f: Fields, part: IrValue, parts: IrValue, length: int) -> None:
    """Rows of a power of 2, several in a vector: every lane gets its row's maximum and sum by exchanges between lanes."""
    lanes = e.instructions.lanes
    kind = vector(F32, lanes)
    beta = e.splat_real(f.beta, lanes)
    count = f.rows * length
    first, last = e.share_vectors(count, part, parts)

    def over_rows(x: IrValue, combine: Callable[[IrValue, IrValue], IrValue]) -> IrValue:
        distance = 1
        while distance < length:
            x = combine(x, e.shuffle(x, [i ^ distance for i in range(lanes)]))
            distance *= 2
        return x

    def several(block: IrValue) -> None:
        at = block * (4 * lanes)
        x = e.load(f.source + at, kind)
        power = exponential(e, (x - over_rows(x, lambda a, b: e.select(a > b, a, b))) * beta)
        e.store_first(power / over_rows(power, lambda a, b: a + b), f.target + at, count - block * lanes)

    e.loop(first, last, several)

"""Element-wise kernels with broadcasting: sums and products of bytes with rescaling, arithmetic and functions of float32.

The data is seen as rows: a table has each operand's offset for each row, and within a row an operand either advances with the
output or repeats one element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from nnbridge.cpu.compiled.declared import Fields, kernel
from nnbridge.cpu.compiled.emitter import Emitter
from nnbridge.cpu.compiled.requantise import Narrowing, load_parameters, rescale, rows_of
from nnbridge.cpu.compiled.values import F32, I8, I16, I32, I64, IrValue, Type, vector

Body = Callable[[IrValue, Sequence[IrValue], IrValue], None]
"""Computes a vector: its first element's offset in the row, the operands' addresses, how many elements are left."""


def each_row(
    e: Emitter, f: Fields, part: IrValue, parts: IrValue, width: int, element: int, body: Body, result: int | None = None
) -> None:
    """Calls ``body`` for each vector of each row; elements have so many bytes, those of the result maybe others."""
    first, last = e.share(f.rows, part, parts)

    def row(index: IrValue) -> None:
        sources = [
            base + e.load(table + index * 4, I32).signed(I64)
            for base, table in ((f.first, f.first_table), (f.second, f.second_table))
        ]
        target = f.target + index * f.length * (element if result is None else result)
        e.loop(0, f.length, lambda i: body(i * element, [*sources, target], f.length - i), step=width)

    e.loop(first, last, row)


def operands(e: Emitter, addresses: Sequence[IrValue], at: IrValue, kind: Type, repeats: Sequence[bool]) -> Iterator[IrValue]:
    """Vectors of 32-bit elements of both operands, one element in all lanes of what repeats."""
    lanes = e.instructions.lanes
    return (
        e.splat(e.load(addresses[k], kind), lanes) if repeats[k] else e.load(addresses[k] + at, vector(kind, lanes))
        for k in (0, 1)
    )


@kernel("first second target rows length first_table second_table parameters first_zero second_zero zero_point low high")
def combine_bytes(
    e: Emitter,
    f: Fields,
    part: IrValue,
    parts: IrValue,
    *,
    operator: str,
    forms: tuple[str, ...],
    repeats: tuple[bool, bool],
    left: tuple[int, int] = (0, 0),
    vectors: int = 4,
) -> None:
    """Bytes less their zero points, ``add``, ``sub`` or ``mul``, rescaled to bytes. Sums rescale their operands first.

    ``forms``: of the operands and the result (of the result only for products); ``left``: bits that operands are shifted by;
    ``vectors``: how many of 32-bit numbers hold a row, 4 for longer rows.
    """
    lanes = e.instructions.lanes
    size = 4 * lanes
    block = 4 * lanes
    offsets = [sum(rows_of(form) for form in forms[:k]) * block for k in range(len(forms))]
    loaded = [load_parameters(e, f.parameters + at, lanes, form) for at, form in zip(offsets, forms, strict=True)]
    zeros = [e.splat(z.truncated(I32), lanes) for z in (f.first_zero, f.second_zero)]
    narrowing = Narrowing(e, forms[-1], lanes, f.zero_point, f.low, f.high)
    bytes_ = vector(I8, lanes)

    def values(address: IrValue, k: int) -> list[IrValue]:
        """Vectors less the zero point, rescaled for sums."""
        count = 1 if repeats[k] else vectors
        read = [e.splat(e.load(address, I8), lanes) if repeats[k] else e.load(address, bytes_, v * lanes) for v in range(count)]
        made = [x.unsigned(I32) - zeros[k] for x in read]
        if operator != "mul":
            made = [rescale(e, x << left[k], loaded[k], forms[k]) for x in made]
        return made * (vectors // len(made))

    def body(at: IrValue, addresses: Sequence[IrValue], remaining: IrValue) -> None:
        a, b = (values(addresses[k] if repeats[k] else addresses[k] + at, k) for k in (0, 1))
        combined = [x * y if operator == "mul" else x + y if operator == "add" else x - y for x, y in zip(a, b, strict=True)]
        made = [rescale(e, x, loaded[-1], forms[-1]) for x in combined]
        result = narrowing.in_order([*made, *made[-1:] * (4 - vectors)])
        target = addresses[2] + at
        e.store_rest(result, target, remaining)

    each_row(e, f, part, parts, size, 1, body)


@kernel("first second target rows length first_table second_table table")
def look_up_pairs(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, repeats: tuple[bool, bool]) -> None:
    """Each pair of bytes through a table of 65,536."""

    def body(at: IrValue, addresses: Sequence[IrValue], remaining: IrValue) -> None:
        a, b = (e.load(addresses[k] if repeats[k] else addresses[k] + at, I8).unsigned(I64) for k in (0, 1))
        e.store(e.load(f.table + (a << 8) + b, I8), addresses[2] + at)

    each_row(e, f, part, parts, 1, 1, body)


@kernel("source target count low high")
def clamp_bytes(e: Emitter, f: Fields, part: IrValue, parts: IrValue) -> None:
    """Bytes within bounds."""
    size = 4 * e.instructions.lanes
    first, last = e.share(f.count, part, parts)
    low, high = (e.splat(bound.truncated(I8), size) for bound in (f.low, f.high))

    def several(i: IrValue) -> None:
        value = e.umin(e.umax(e.load(f.source + i, vector(I8, size)), low), high)
        e.when(last - i < size, lambda: e.store_first(value, f.target + i, last - i), lambda: e.store(value, f.target + i))

    e.loop(first, last, several, step=size)


# -- float32 ---------------------------------------------------------------------------------------------------------


def exponential(e: Emitter, x: IrValue) -> IrValue:
    """e to the power of x within 2 units in the last place; 0 below the smallest normal result's logarithm."""
    kind = x.type
    high = e.constant(kind, 88.7228394)
    low = e.constant(kind, -87.3365447505531)
    inside = e.clamp_real(x, low, high)
    whole = e.floor(inside * 1.44269504088896341 + 0.5)
    # The logarithm of 2 in two parts, the first with few bits, so that its product is exact.
    rest = inside - whole * 0.693359375
    rest = rest - whole * -2.12194440e-4
    series = e.constant(kind, 1.9875691500e-4)
    for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        series = e.fma(series, rest, e.constant(kind, coefficient))
    power = e.fma(series, rest * rest, rest + 1.0)
    # The power of 2 in two factors: the largest one by itself is no number.
    exponent = whole.integer()
    half = exponent >> 1
    for part in (half, exponent - half):
        power = power * ((part + 127) << 23).bits(kind)
    result = e.select(x < low, 0.0, power)
    # Beyond the largest result infinity, and NaN of NaN.
    result = e.select(x > high, float("inf"), result)
    return e.select(x.compare("==", x), result, x)


def _logarithm(e: Emitter, x: IrValue) -> IrValue:
    """The natural logarithm within 2 units in the last place: minus infinity of 0, NaN below."""
    kind, whole = x.type, vector(I32, x.count)
    # Numbers too small to be normal are made larger by 2**23.
    small = x < 1.17549435e-38
    bits = e.select(small, x * 8388608.0, x).bits(whole)
    exponent = (bits >> 23) - e.select(small, e.constant(whole, 126 + 23), e.constant(whole, 126))
    mantissa = ((bits & 0x7FFFFF) | 0x3F000000).bits(kind)
    low = mantissa < 0.707106781186547524
    exponent = (exponent - low.unsigned(I32)).real()
    part = e.select(low, mantissa + mantissa, mantissa) - 1.0
    series = e.constant(kind, 7.0376836292e-2)
    for coefficient in (
        -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1,
        -2.4999993993e-1, 3.3333331174e-1,
    ):  # fmt: skip
        series = e.fma(series, part, e.constant(kind, coefficient))
    square = part * part
    tail = e.fma(exponent, e.constant(kind, -2.12194440e-4), series * part * square)
    result = e.fma(exponent, e.constant(kind, 0.693359375), part + (tail - square * 0.5))
    result = e.select(x > 3.4028234663852886e38, x, result)
    result = e.select(x.is_(0.0), float("-inf"), result)
    return e.select(x.compare(">=", 0.0), result, float("nan"))


def _logistic(e: Emitter, x: IrValue) -> IrValue:
    one = e.constant(x.type, 1)
    return one / (exponential(e, -x) + 1.0)


def _tanh(e: Emitter, x: IrValue) -> IrValue:
    """Of small values by a series, where a quotient would lose digits."""
    size = e.magnitude(x)
    square = x * x
    series = e.constant(x.type, -5.70498872745e-3)
    for coefficient in (2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1):
        series = e.fma(series, square, e.constant(x.type, coefficient))
    small = e.fma(series * square, size, size)
    large = e.constant(x.type, 1) - e.constant(x.type, 2) / (exponential(e, size + size) + 1.0)
    return e.with_sign(e.select(size < 0.625, small, large), x)


def _hard_swish(e: Emitter, x: IrValue) -> IrValue:
    gate = e.clamp_real(x, e.constant(x.type, -3), e.constant(x.type, 3)) + 3.0
    return gate * x / 6.0


FUNCTIONS: dict[str, Callable[[Emitter, IrValue], IrValue]] = {
    "logistic": _logistic,
    "tanh": _tanh,
    "hard_swish": _hard_swish,
    "exp": exponential,
    "log": _logarithm,
    "abs": lambda e, x: e.magnitude(x),
    "neg": lambda e, x: -x,
    "sqrt": lambda e, x: e.sqrt(x),
    "rsqrt": lambda e, x: e.constant(x.type, 1) / e.sqrt(x),
    "floor": lambda e, x: e.floor(x),
    "clamp": lambda e, x: x,
}
"""Functions of one float32 operand; ``clamp`` is its bounds only."""

OPERATORS: dict[str, Callable[[Emitter, IrValue, IrValue], IrValue]] = {
    "add": lambda e, a, b: a + b,
    "sub": lambda e, a, b: a - b,
    "mul": lambda e, a, b: a * b,
    "div": lambda e, a, b: a / b,
    # The first operand unless the second is strictly better, also against NaN.
    "maximum": lambda e, a, b: e.select(b > a, b, a),
    "minimum": lambda e, a, b: e.select(b < a, b, a),
    "prelu": lambda e, a, b: e.select(a.compare(">=", 0.0), a, a * b),
}
"""Functions of two float32 operands."""


@kernel("source target count low high")
def map_real(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, function: str) -> None:
    """A function of each float32 value, within bounds."""
    lanes = e.instructions.lanes
    first, last = e.share_vectors(f.count, part, parts)
    low, high = (e.splat_real(bound, lanes) for bound in (f.low, f.high))

    def several(block: IrValue) -> None:
        at = block * (4 * lanes)
        x = FUNCTIONS[function](e, e.load(f.source + at, vector(F32, lanes)))
        e.store_first(e.clamp_real(x, low, high), f.target + at, f.count - block * lanes)

    e.loop(first, last, several)


@kernel("first second target rows length first_table second_table low high")
def combine_real(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, operator: str, repeats: tuple[bool, bool]) -> None:
    """A function of two float32 operands, within bounds."""
    lanes = e.instructions.lanes
    low, high = (e.splat_real(bound, lanes) for bound in (f.low, f.high))

    def body(at: IrValue, addresses: Sequence[IrValue], remaining: IrValue) -> None:
        a, b = operands(e, addresses, at, F32, repeats)
        result = e.clamp_real(OPERATORS[operator](e, a, b), low, high)
        target = addresses[2] + at
        e.store_rest(result, target, remaining)

    each_row(e, f, part, parts, lanes, 4, body)


def _floor_quotient(e: Emitter, a: IrValue, b: IrValue) -> IrValue:
    """Towards minus infinity; 0 for a divisor of 0. In 64 bits, where nothing overflows."""
    x, y = a.signed(I64), b.signed(I64)
    nothing = y.is_(0)
    y = e.select(nothing, 1, y)
    quotient = x // y
    down = ((x - quotient * y).compare("!=", 0)) & ((x ^ y) < 0)
    return e.select(nothing, 0, e.select(down, quotient - 1, quotient)).truncated(I32)


@kernel("first second target rows length first_table second_table")
def combine_integers(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, operator: str, repeats: tuple[bool, bool]) -> None:
    """A function of two INT32 operands; sums and products wrap."""
    lanes = 1 if operator == "div" else e.instructions.lanes

    def body(at: IrValue, addresses: Sequence[IrValue], remaining: IrValue) -> None:
        target = addresses[2] + at
        if operator == "div":
            a, b = (e.load(addresses[k] if repeats[k] else addresses[k] + at, I32) for k in (0, 1))
            e.store(_floor_quotient(e, a, b), target)
            return
        a, b = operands(e, addresses, at, I32, repeats)
        result = OPERATORS[operator](e, a, b)
        e.store_rest(result, target, remaining)

    each_row(e, f, part, parts, lanes, 4, body)


@kernel("source target count")
def cast(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, bytes_: bool, real: bool) -> None:
    """INT32 or unsigned bytes (``bytes_``) as float32 (``real``) or INT32."""
    lanes = e.instructions.lanes
    first, last = e.share_vectors(f.count, part, parts)

    def several(block: IrValue) -> None:
        if bytes_:
            x = e.load(f.source + block * lanes, vector(I8, lanes)).unsigned(I32)
        else:
            x = e.load(f.source + block * (4 * lanes), vector(I32, lanes))
        e.store_first(x.real() if real else x, f.target + block * (4 * lanes), f.count - block * lanes)

    e.loop(first, last, several)


# -- between float32 and bytes ---------------------------------------------------------------------------------------


@kernel("source target count scale low high lifting sticky flip")
def quantise(e: Emitter, f: Fields, part: IrValue, parts: IrValue) -> None:
    """``round(x / scale) + zero point`` as bytes, ties away from zero; NaN becomes the zero point.

    A quotient with bits of ``sticky`` set in its last places is never a tie; ``lifting`` leaves the sum with a last place of 1.
    """
    lanes = e.instructions.lanes
    first, last = e.share_vectors(f.count, part, parts)
    scale, low, high, lifting = (e.splat_real(x, lanes) for x in (f.scale, f.low, f.high, f.lifting))
    sticky, flip = (e.splat(x.truncated(I32), lanes) for x in (f.sticky, f.flip))

    def several(block: IrValue) -> None:
        quotient = e.clamp_real(e.load(f.source + block * (4 * lanes), vector(F32, lanes)) / scale, low, high)
        moved = (quotient.bits(vector(I32, lanes)) | sticky).bits(vector(F32, lanes))
        steps = ((moved + lifting).bits(vector(I32, lanes)) ^ flip).truncated(I8)
        e.store_first(steps, f.target + block * lanes, f.count - block * lanes)

    e.loop(first, last, several)


@kernel("source target count scale zero_point")
def dequantise(e: Emitter, f: Fields, part: IrValue, parts: IrValue) -> None:
    """``(byte - zero point) * scale``."""
    lanes = e.instructions.lanes
    first, last = e.share_vectors(f.count, part, parts)
    scale = e.splat_real(f.scale, lanes)
    zero_point = e.splat(f.zero_point.truncated(I16), lanes)

    def several(block: IrValue) -> None:
        steps = e.load(f.source + block * lanes, vector(I8, lanes)).unsigned(I16) - zero_point
        e.store_first(steps.signed(I32).real() * scale, f.target + block * (4 * lanes), f.count - block * lanes)

    e.loop(first, last, several)

"""Picking elements by index or by value: GATHER, ARGMAX, ARGMIN, comparisons, SELECT."""

from __future__ import annotations

from collections.abc import Sequence

from nnbridge.cpu.compiled.declared import Fields, kernel
from nnbridge.cpu.compiled.emitter import Emitter
from nnbridge.cpu.compiled.kernels.elementwise import each_row, operands
from nnbridge.cpu.compiled.values import F32, I8, I16, I32, I64, IrValue, vector


@kernel("source target indices count limit outer size fault")
def gather(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, piece: int = 0) -> None:
    """``count`` pieces of ``size`` bytes by index, ``outer`` times. An index outside of 0 to ``limit`` - 1 is a fault: the
    lowest one below 0, else the highest. ``piece``: the size where it is 1, 2, 4 or 8 bytes; 0 otherwise."""
    element = {1: I8, 2: I16, 4: I32, 8: I64}.get(piece)

    def index(k: IrValue) -> IrValue:
        return e.load(f.indices + k * 4, I32).signed(I64)

    def widen(k: IrValue, low: IrValue, high: IrValue) -> list[IrValue]:
        return [e.smin(low, index(k)), e.smax(high, index(k))]

    def check() -> None:
        low, high = e.loop(0, f.count, widen, carried=[e.number(0), e.number(0)])
        found = e.select(low < 0, low, high)
        good = found.below(f.limit)

        def report() -> None:
            e.store(found, f.fault, 8)
            e.store(e.number(1), f.fault)

        e.when(good.is_(0), report)

    e.when(part.is_(0), check)
    first, last = e.share(f.outer * f.count, part, parts)

    def one(i: IrValue) -> None:
        row = i // f.count
        at = e.smin(e.smax(index(i - row * f.count), 0), f.limit - 1)
        source, target = f.source + (row * f.limit + at) * f.size, f.target + i * f.size
        if element is None:
            e.copy(target, source, f.size)
        else:
            e.store(e.load(source, element), target)

    e.loop(first, last, one)


@kernel("source target outer length inner")
def arg_extreme(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, largest: bool, element: str, alone: bool) -> None:
    """The first index of the best value along an axis, as INT32; NaN is never better, nor is what follows it.

    Data is [outer, length, inner] of ``real``, ``integer`` or ``byte`` elements; ``alone``: ``inner`` is 1.
    """
    lanes = e.instructions.lanes
    kind = {"real": F32, "integer": I32, "byte": I8}[element]
    size = 1 if element == "byte" else 4
    loaded, found = (kind, I32) if alone else (vector(kind, lanes), vector(I32, lanes))
    first, last = e.share(f.outer, part, parts)

    def load(address: IrValue) -> IrValue:
        value = e.load(address, loaded)
        return value.unsigned(I32) if element == "byte" else value

    def row(n: IrValue) -> None:
        def several(i: IrValue) -> None:
            start = f.source + (n * f.length * f.inner + i) * size

            def one(k: IrValue, best: IrValue, at: IrValue) -> list[IrValue]:
                value = load(start + k * f.inner * size)
                better = value > best if largest else value < best
                where = k.truncated(I32)
                return [e.select(better, value, best), e.select(better, where if alone else e.splat(where, lanes), at)]

            _, at = e.loop(1, f.length, one, carried=[load(start), e.constant(found, 0)])
            target = f.target + (n * f.inner + i) * 4
            if alone:
                e.store(at, target)
            else:
                e.store_first(at, target, f.inner - i)

        e.loop(0, f.inner, several, step=1 if alone else lanes)

    e.loop(first, last, row)


@kernel("first second target rows length first_table second_table")
def compare_values(
    e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, sign: str, negated: bool, real: bool, repeats: tuple[bool, bool]
) -> None:
    """The result of a comparison of float32 or INT32, or of its opposite (``negated``), as bytes of 1 and 0."""
    lanes = e.instructions.lanes

    def body(at: IrValue, addresses: Sequence[IrValue], remaining: IrValue) -> None:
        a, b = operands(e, addresses, at, F32 if real else I32, repeats)
        holds = a.compare(sign, b).unsigned(I8)
        e.store_first(holds ^ 1 if negated else holds, addresses[2] + (at >> 2), remaining)

    each_row(e, f, part, parts, lanes, 4, body, result=1)


@kernel("condition first second target count")
def select_values(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, size: int) -> None:
    """Elements of ``size`` bytes of the first operand where the condition is not 0, of the second elsewhere."""
    lanes = e.instructions.lanes
    kind = vector({1: I8, 4: I32}[size], lanes)
    first, last = e.share_vectors(f.count, part, parts)

    def several(block: IrValue) -> None:
        at = block * (lanes * size)
        chosen = e.load(f.condition + block * lanes, vector(I8, lanes)).compare("!=", 0)
        result = e.select(chosen, e.load(f.first + at, kind), e.load(f.second + at, kind))
        e.store_first(result, f.target + at, f.count - block * lanes)

    e.loop(first, last, several)

"""SVDF: each filter's last values times its weights in time, of float32 and of 16-bit integers."""

from __future__ import annotations

from nnbridge.cpu.compiled.declared import Fields, kernel
from nnbridge.cpu.compiled.emitter import Emitter
from nnbridge.cpu.compiled.kernels.pooling import fold
from nnbridge.cpu.compiled.kernels.recurrent import ACTIVATIONS, rescaled, within
from nnbridge.cpu.compiled.values import F32, I8, I16, I32, I64, IrValue, Type, vector

_FIELDS = "projected state weights bias last_state output filters memory units length batch"


class _Filters:
    """The filters of one member of a batch."""

    def __init__(self, e: Emitter, f: Fields, member: IrValue, element: Type, size: int) -> None:
        self.e, self.f, self.element, self.size = e, f, element, size
        self.bytes = f.filters * f.memory * size
        self.projected = f.projected + member * f.filters * 4
        self.output = f.output + member * f.units * (size if element == F32 else 1)

    def set_last(self, line: IrValue, *, zero: bool = False) -> None:
        """The newest value of each filter, or 0."""
        e, f = self.e, self.f

        def one(i: IrValue) -> None:
            at = line + ((i + 1) * f.memory - 1) * self.size
            e.store(e.constant(self.element, 0) if zero else self._newest(i), at)

        e.loop(0, f.filters, one)

    def _newest(self, i: IrValue) -> IrValue:
        """The filter's newest sums from the input."""
        e, f = self.e, self.f
        if self.element == F32:
            return e.load(self.projected + i * 4, F32)
        raw = e.load(self.projected + i * 4, I32).signed(I64)
        return within(e, rescaled(e, raw, f.parameters, 0), -32768, 32767).truncated(I16)

    def unit(self, line: IrValue, u: IrValue) -> IrValue:
        """The sum of a unit's filters, as a vector of one."""
        e, f, lanes = self.e, self.f, self.e.instructions.lanes
        start, weights = line + u * f.length * self.size, f.weights + u * f.length * self.size
        kind = vector(F32 if self.element == F32 else I32, lanes)
        numbers, zero = e.constant(vector(I32, lanes), list(range(lanes))), e.constant(kind, 0)

        def several(i: IrValue, total: IrValue) -> list[IrValue]:
            values, factors = (e.load(at + i * self.size, vector(self.element, lanes)) for at in (start, weights))
            product = values * factors if self.element == F32 else values.signed(I32) * factors.signed(I32)
            inside = numbers < e.splat(e.smin(f.length - i, lanes).truncated(I32), lanes)
            return [total + e.select(inside, product, zero)]

        total = e.loop(0, f.length, several, step=lanes, carried=[zero])[0]
        return fold(e, "sum", total) if self.element == F32 else e.total(total)


@kernel(f"{_FIELDS} line")
def svdf_real(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, activation: int) -> None:
    """A step of float32: the newest values are summed before the state moves on by one."""
    lanes = e.instructions.lanes
    first, last = e.share(f.batch, part, parts)

    def member(n: IrValue) -> None:
        filters = _Filters(e, f, n, F32, 4)
        line, moved = f.line + n * filters.bytes, f.last_state + n * filters.bytes
        e.copy(line, f.state + n * filters.bytes, filters.bytes)
        filters.set_last(line)
        e.loop(0, f.units, lambda u: e.store(filters.unit(line, u), filters.output + u * 4))
        e.copy(moved, line + 4, filters.bytes - 4)
        filters.set_last(moved, zero=True)

        def activated(u: IrValue) -> None:
            at = filters.output + u * 4
            sums = e.load(at, vector(F32, lanes)) + e.load(f.bias + u * 4, vector(F32, lanes))
            e.store_first(ACTIVATIONS[activation](e, sums), at, f.units - u)

        e.loop(0, f.units, activated, step=lanes)

    e.loop(first, last, member)


@kernel(f"{_FIELDS} parameters zero_point")
def svdf_bytes(e: Emitter, f: Fields, part: IrValue, parts: IrValue) -> None:
    """A step to bytes by a state of 16 bits, which moves on first. ``parameters``: of the projections, then of the output."""
    first, last = e.share(f.batch, part, parts)

    def member(n: IrValue) -> None:
        filters = _Filters(e, f, n, I16, 2)
        line = f.last_state + n * filters.bytes
        e.copy(line, f.state + n * filters.bytes + 2, filters.bytes - 2)
        filters.set_last(line)

        def unit(u: IrValue) -> None:
            total = (filters.unit(line, u) + e.load(f.bias + u * 4, I32)).signed(I64)
            shown = rescaled(e, total, f.parameters, 1) + f.zero_point
            e.store(within(e, shown, 0, 255).truncated(I8), filters.output + u)

        e.loop(0, f.units, unit)

    e.loop(first, last, member)

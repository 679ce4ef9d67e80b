"""Exact requantisation: from 32-bit sums to bytes, the roundings collapsed into one multiplication, addition and shift.

gemmlowp rounds twice: ``y = (x*M + 2**30) >> 31`` (ties up), then ``z = (y + 2**(s-1) - (y < 0)) >> s`` (ties away from zero).
Nested floors make that ``z = (x*M + C) >> (31 + s)`` with ``C = 2**30 + 2**(30 + s)``, less ``2**31`` where ``x*M`` is negative
and ``s`` is not 0. (``x*M < 0`` and ``y < 0`` differ only at ``y == 0``, where both constants give 0.) Left shifts wrap in 32
bits first. The zero point is part of C where nothing overflows.

Three forms, the fastest that is exact is chosen at preparation:

* ``relu``: always C, for outputs whose negative results are clamped to the zero point anyway, and for single roundings;
* ``signed``: C with the correction for negative products; both need shifts of 32 to 53 and no left shift;
* ``general``: left shifts, any shift, the zero point added with saturation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

import numpy as np

from nnbridge.cpu.compiled.emitter import Emitter
from nnbridge.cpu.compiled.values import I8, I16, I32, I64, IrValue, vector
from nnbridge.model import Array
from nnbridge.records import dataclass

_FOLDED = 53
"""The largest shift for which zero points fit into the constant: 255 * 2**53 + 2**62 + 2**61 is below 2**63."""


class Inexact(Exception):
    """Sums or results that 32 bits do not hold."""


Numbers: TypeAlias = "Array | int"
"""One for each channel, or one for all."""


def _least(numbers: Numbers) -> int:
    return numbers if isinstance(numbers, int) else int(numbers.min())


def _most(numbers: Numbers) -> int:
    return numbers if isinstance(numbers, int) else int(numbers.max())


def _form_of(most_left: int, least_shift: int, most_shift: int, uncorrected: bool) -> str:
    if most_left > 0 or least_shift < 32 or most_shift > _FOLDED:
        return "general"
    return "relu" if uncorrected else "signed"


Rounded: TypeAlias = "tuple[Numbers, Numbers, Numbers, Numbers, Numbers]"
"""Multiplier, left shift, constant without zero point, correction and shift."""


def roundings(m: Numbers, e: Numbers) -> Rounded:
    """The numbers of two roundings of ``x * m / 2**31 * 2**e``; channels of several operations may lie one after the other."""
    right, left = -e * (e < 0), e * (e > 0)
    if _least(m) == 0:
        right, left = np.where(m == 0, 1, right), np.where(m == 0, 0, left)
    to_right = (right > 0) * 1
    return m, left, (1 << 30) + (to_right << (30 + right)), to_right << 31, 31 + right


@dataclass(frozen=True)
class Rescaling:
    """``((x << left) * multiplier + constant - (correction if negative)) >> shift``, plus the zero point, for each channel."""

    multiplier: Array
    left: Array
    constant: Array
    correction: Array
    shift: Array
    zero_point: int
    form: str

    @classmethod
    def twice(cls, multiplier: Array, exponent: Array, zero_point: int, *, negative_clamped: bool = False) -> Rescaling:
        """Android's two roundings of ``x * M / 2**31 * 2**exponent`` (``mbqm``). Multipliers are 0 or 2**30 to 2**31 - 1."""
        # Python's integers are several times faster than arrays of one.
        single = multiplier.size == 1 and abs(exponent.item()) < 32
        rounded = roundings(multiplier.item(), exponent.item()) if single else roundings(multiplier, exponent)
        return cls.of(rounded, zero_point, negative_clamped=negative_clamped)

    @classmethod
    def once(cls, multiplier: int, exponent: int, zero_point: int, bound: int) -> Rescaling:
        """One rounding, ties up (``mbqm_once``); raises :class:`Inexact` if results of sums up to ``bound`` exceed 32 bits.

        So do sums that the shift to the left takes beyond 32 bits, where the reference kernel wraps.
        """
        shift = 31 - exponent
        if shift < 1 or (exponent > 0 and bound << exponent >= 2**31) or (bound * multiplier >> shift) >= 2**31 - 1:
            raise Inexact(f"an output scale with results below 2**31 (a multiplier of {multiplier} * 2**{exponent - 31})")
        return cls.of((multiplier, 0, 1 << (shift - 1), 0, shift), zero_point)

    @classmethod
    def of(cls, rounded: Rounded, zero_point: int, *, negative_clamped: bool = False) -> Rescaling:
        """The fastest form that is exact."""
        m, left, constant, correction, shift = rounded
        form = _form_of(_most(left), _least(shift), _most(shift), negative_clamped or _most(correction) == 0)
        if form != "general":
            constant = constant + (zero_point << shift)
        listed = (m, left, constant, correction, shift)
        m, left, constant, correction, shift = (np.array(numbers, np.int64, ndmin=1, copy=None) for numbers in listed)
        return cls(m, left, constant, correction, shift, zero_point, form)

    @classmethod
    def each(
        cls, multipliers: Array, exponents: Array, ends: Array, zero_points: Sequence[int], clamped: Sequence[bool]
    ) -> list[Rescaling]:
        """:meth:`twice` of several operations at once, whose channels lie one after the other up to ``ends``."""
        m, left, constant, correction, shift = (np.asarray(numbers) for numbers in roundings(multipliers, exponents))
        starts = np.append(0, ends[:-1])
        folded = constant + (np.repeat(zero_points, ends - starts) << np.minimum(shift, _FOLDED))
        most_left, most_shift, most_correction = (np.maximum.reduceat(a, starts).tolist() for a in (left, shift, correction))
        listed = most_left, np.minimum.reduceat(shift, starts).tolist(), most_shift, most_correction, zero_points, clamped
        made = []
        for start, end, high, least, most, signed, zero, relu in zip(starts.tolist(), ends.tolist(), *listed, strict=True):
            form, part = _form_of(high, least, most, relu or signed == 0), slice(start, end)
            constants = (constant if form == "general" else folded)[part]
            made.append(cls(m[part], left[part], constants, correction[part], shift[part], zero, form))
        return made

    def for_channels(self, count: int) -> Rescaling:
        """Parameters of one for all channels, repeated for each."""
        if len(self.multiplier) == count:
            return self
        return self._each(lambda array: np.broadcast_to(array, count))

    def part(self, first: int, last: int) -> Rescaling:
        """Parameters of some of the channels."""
        return self._each(lambda array: array[first:last])

    def _each(self, change: Callable[[Array], Array]) -> Rescaling:
        m, left, constant, correction, shift = map(
            change, (self.multiplier, self.left, self.constant, self.correction, self.shift)
        )
        return Rescaling(m, left, constant, correction, shift, self.zero_point, self.form)

    def packed(self, bias: Array, order: Array, lanes: int) -> Array:
        """Parameter blocks of vectors of ``lanes``; ``order`` names the channel of each lane, -1 for none."""
        general = self.form == "general"
        # What lanes without a channel read stands last.
        table = np.zeros((len(bias) + 1, 7 if general else 5), np.int64)
        odd_shift = self.shift if general else self.shift - 32
        listed = (bias, self.multiplier, self.constant, self.shift, odd_shift, -self.correction, self.left)
        for entries, values in zip(table.T, listed, strict=False):
            entries[:-1] = values
        # [vectors, pairs of lanes, even or odd, parameters]
        picked = table[order].reshape(-1, lanes // 2, 2, table.shape[1])
        blocks = np.empty((len(picked), rows_of(self.form), lanes), np.int32)
        wide = blocks.view(np.int64)
        blocks[:, 0] = picked[..., 0].reshape(-1, lanes)
        for phase in (0, 1):
            lane = picked[:, :, phase]
            wide[:, 1 + phase], wide[:, 3 + phase], wide[:, 5 + phase] = lane[..., 1], lane[..., 2], lane[..., 3 + phase]
            if general:
                wide[:, 8 + phase] = lane[..., 5]
        if general:
            blocks[:, 7] = picked[..., 6].reshape(-1, lanes)
        return blocks

    def uniform(self, lanes: int) -> Array:
        """The block of :meth:`packed` for one channel without bias in all lanes, much faster."""
        general = self.form == "general"
        m, constant, shift = self.multiplier[0], self.constant[0], self.shift[0]
        wide = [m, m, constant, constant, shift, shift if general else shift - 32]
        block = np.zeros((1, rows_of(self.form), lanes), np.int32)
        block[0, 1:7].view(np.int64)[:] = np.array(wide)[:, None]
        if general:
            block[0, 7] = self.left[0]
            block[0, 8:].view(np.int64)[:] = -self.correction[0]
        return block


def rows_of(form: str) -> int:
    """Rows of a parameter block: bias, multipliers, constants and shifts, and what the general form has besides."""
    return 10 if form == "general" else 7


def load_parameters(e: Emitter, address: IrValue, lanes: int, form: str) -> list[IrValue]:
    """The rows of a parameter block after the bias."""
    kinds = [vector(I64, lanes // 2)] * 6
    if form == "general":
        kinds += [vector(I32, lanes), *[vector(I64, lanes // 2)] * 2]
    return [e.load(address, kind, (1 + i) * 4 * lanes) for i, kind in enumerate(kinds)]


def rescale(e: Emitter, x: IrValue, parameters: Sequence[IrValue], form: str) -> IrValue:
    """A vector of sums, rescaled; the zero point is in but for the general form."""
    lanes = x.count
    wide = vector(I64, lanes // 2)
    multipliers, constants, shifts = parameters[0:2], list(parameters[2:4]), parameters[4:6]
    if form == "general":
        x = x << parameters[6]
    both = x.bits(wide)
    # Sign-extended 32-bit numbers times each other: LLVM selects the instruction that multiplies low halves.
    products = [(((both << 32) >> 32) if phase == 0 else (both >> 32)) * ((multipliers[phase] << 32) >> 32) for phase in (0, 1)]
    if form == "signed":
        down = e.constant(wide, -(1 << 31))
        constants = [e.select(p < 0, c + down, c) for p, c in zip(products, constants, strict=True)]
    elif form == "general":
        constants = [e.select(p < 0, c + d, c) for p, c, d in zip(products, constants, parameters[7:9], strict=True)]
    even, odd = ((p + c) >> n for p, c, n in zip(products, constants, shifts, strict=True))
    if form == "general":
        odd = odd << 32
    # Odd results lie in the upper halves: their shifts are 32 less.
    narrow = vector(I32, lanes)
    return e.shuffle(even.bits(narrow), [i if i % 2 == 0 else lanes + i for i in range(lanes)], odd.bits(narrow))


class Narrowing:
    """From rescaled vectors to clamped bytes."""

    def __init__(self, e: Emitter, form: str, lanes: int, zero_point: IrValue, low: IrValue, high: IrValue) -> None:
        self._e = e
        self._zero_point = e.splat(zero_point.truncated(I16), 2 * lanes) if form == "general" else None
        self._low, self._high = (e.splat(bound.truncated(I8), 4 * lanes) for bound in (low, high))

    def bytes_of(self, vectors: Sequence[IrValue]) -> IrValue:
        """Four vectors as one of bytes: in blocks of 128 bits four lanes of each. Saturation is harmless before a clamp."""
        pairs = [self._e.narrow(a, b) for a, b in (vectors[0:2], vectors[2:4])]
        if self._zero_point is not None:
            pairs = [self._e.add_saturated(pair, self._zero_point) for pair in pairs]
        packed = self._e.narrow(*pairs, unsigned=True)
        return self._e.umin(self._e.umax(packed, self._low), self._high)

    def in_order(self, vectors: Sequence[IrValue]) -> IrValue:
        """Four vectors as one of bytes, one vector after the other."""
        packed, lanes = self.bytes_of(vectors), vectors[0].count
        order = [block * 4 + v for v in range(4) for block in range(lanes // 4)]
        return self._e.shuffle(packed.bits(vector(I32, lanes)), order).bits(packed.type)

    def rows(self, rows: Sequence[Sequence[IrValue]]) -> list[IrValue]:
        """One vector of bytes for each row of 1, 2 or 4 vectors, in the order of :func:`column_order`."""
        across = len(rows[0])
        if across == 4:
            return [self.bytes_of(row) for row in rows]
        together = 4 // across
        made: list[IrValue] = []
        for first in range(0, len(rows), together):
            group = [rows[min(first + k, len(rows) - 1)] for k in range(together)]
            packed = self.bytes_of([v for row in group for v in row])
            unit, units = (I64, packed.count // 8) if across == 2 else (I32, packed.count // 4)
            # Each block of 128 bits holds a unit of every row: bring those of a row together.
            order = [k + together * block for k in range(together) for block in range(units // together)]
            sorted_ = self._e.shuffle(packed.bits(vector(unit, units)), order).bits(vector(I8, packed.count))
            size = packed.count // together
            made += [self._e.shuffle(sorted_, range(size * k, size * (k + 1))) for k in range(together)]
        return made[: len(rows)]


@cache
def column_order(across: int, lanes: int) -> Array:
    """The column that each lane of ``across`` vectors stands for, so that narrowing leaves bytes in their natural order."""
    vectors, lane = np.divmod(np.arange(across * lanes), lanes)
    order: Array = lane // 4 * (4 * across) + vectors * 4 + lane % 4
    order.flags.writeable = False
    return order

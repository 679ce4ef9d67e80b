"""The work after sums of products in convolutions: bias, rescaling and the fused activation."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nnbridge.model import Array
from nnbridge.operations.arithmetic import (
    FLOAT_RANGES,
    activation_range,
    fused_activation,
    integer_range,
    is_quant8,
    mbqm,
    mbqm_once,
    wrap32,
)
from nnbridge.operations.call import Arg, Call
from nnbridge.operations.correlation import Epilogue, bias_scale, multipliers
from nnbridge.operations.numerics import current
from nnbridge.records import dataclass
from nnbridge.types import OperandCode as T

_BLOCK, _REAL_BLOCK = 1 << 14, 1 << 16
"""Elements that an epilogue works on at a time, integers in 64 bits or floats: what stays in a core's cache."""
_LONG, _SHORT = 1 << 13, 256
"""Elements of rows that NumPy need not loop over, and channels of a row that are too few for it."""


def epilogue(call: Call, w: Array, *, centred: bool = False) -> Epilogue:
    """Bias, rescaling and the fused activation after sums of products with the weights ``w`` [channels, terms].

    8-bit values are multiplied as they are, and their zero point times the weights is subtracted here, unless ``centred``.
    """
    x, out, bias = call["input"], call.out, call["bias"].data
    activation, together = fused_activation(call), _together(math.prod(out.dims[:-1]), out.dims[-1])
    if not is_quant8(out.type):
        return _by_blocks(_real_epilogue(activation, np.tile(bias, together)), together, _REAL_BLOCK)
    call.require(*bias_scale(call["input"], call["filter"], call["bias"]), "bias")
    weights, size = w.sum(axis=1, dtype=np.int64), np.abs(w).sum(axis=1, dtype=np.int64)
    plus, minus = (size + weights) // 2, (size - weights) // 2
    offset = bias.astype(np.int64) - (0 if centred else x.zero_point * weights)
    low, high = (bound - (x.zero_point if centred else 0) for bound in integer_range(x))
    sums = np.stack([low * plus - high * minus, high * plus - low * minus])
    rounding = current().rounding
    rescale = mbqm_once if rounding == "matrix" else mbqm
    rescaling = _Rescaling(rescale, offset, *multipliers(call), out, activation_range(out, activation))
    if rounding in ("nnapi", "double") and rescaling.is_exact_in_doubles(sums):
        return _by_blocks(rescaling.in_doubles(together), together)
    return _by_blocks(rescaling.in_integers, 1)


def _together(rows: int, channels: int) -> int:
    """The number of rows that are treated as one long row: all rows consist of such, where that leaves them long."""
    most = max(1, min(rows, _LONG // channels)) if 0 < channels < _SHORT else 1
    divisor = next(count for count in range(most, 0, -1) if rows % count == 0)
    return divisor if 4 * divisor > most else most


def _by_blocks(finish: Epilogue, together: int, block: int = _BLOCK) -> Epilogue:
    """``finish`` of several rows ``together`` as one, and of a few such at a time, so that they stay in the cache."""

    def apply(sums: Array, out: Array) -> None:
        channels = out.shape[-1]
        rows, targets = sums.reshape(-1, channels), out.reshape(-1, channels)
        several = len(rows) - len(rows) % together
        for part, width in ((slice(several), together * channels), (slice(several, None), channels)):
            some, results = rows[part].reshape(-1, width), targets[part].reshape(-1, width)
            count = max(1, block // width)
            for start in range(0, len(some), count):
                finish(some[start : start + count], results[start : start + count])

    return apply


def _real_epilogue(activation: int, biases: Array) -> Epilogue:
    bounds = FLOAT_RANGES[activation]

    def finish(sums: Array, out: Array) -> None:
        np.add(sums, biases[: out.shape[1]], out)
        out.clip(*bounds, out)

    return finish


@dataclass(frozen=True)
class _Rescaling:
    """Sums and offsets [channels] times ``multiplier * 2**(shift - 31)``, as bytes."""

    rescale: Callable[[Array, Array, Array], Array]
    offset: Array
    multiplier: Array
    shift: Array
    out: Arg
    limits: tuple[int, int]

    def in_integers(self, sums: Array, target: Array) -> None:
        """Android's and LiteRT's sums wrap in 32 bits, and so does the shift to the left."""
        part = self.rescale(wrap32(sums.astype(np.int64) + self.offset), self.multiplier, self.shift)
        part += self.out.zero_point
        np.clip(part, *self.limits, out=part)
        target[...] = part

    def in_doubles(self, together: int = 1) -> Epilogue:
        """Android's two roundings in one pass over doubles, for sums that wrap nowhere.

        Android rounds the product with the 31-bit multiplier to nearest (ties up), then its shift by e to nearest (ties away from
        zero). Nested floors combine to one: floor(y + 1/2 + 2**-(e+1)) for y >= 0 and floor(y + 1/2 - 2**-(e+1)) below, with y
        the exact product. Where float64 does not hold all of its bits, it still keeps the order of sums. So many rows are
        treated ``together``.
        """
        out, shift = self.out, self.shift
        factor = np.ldexp(self.multiplier.astype(np.float64), (shift - 31).astype(np.int64))
        tie = np.where(shift < 0, np.ldexp(1.0, np.minimum(shift, 0).astype(np.int64) - 1), 0.0)
        # Unsigned bytes come from non-negative values, for which truncation is floor; signed ones from flipping a bit of these.
        signed = out.type == T.TENSOR_QUANT8_ASYMM_SIGNED
        lift = out.zero_point + (128 if signed else 0)
        low, high = (float(bound - out.zero_point + lift) for bound in self.limits)
        # Where values below the zero point are clamped away, the rounding of negative ones does not matter.
        one_sided = self.limits[0] >= out.zero_point
        added, rounding = self.offset * factor, 0.5 + lift
        if one_sided:
            added = added + (rounding + tie)
        added = np.tile(added, together)
        if factor.size > 1:
            factor, tie = np.tile(factor, together), np.tile(tie, together)

        def finish(sums: Array, target: Array) -> None:
            width = sums.shape[1]
            y = np.multiply(sums, factor[:width], dtype=np.float64)
            y += added[:width]
            if not one_sided:
                y += np.copysign(tie[:width], y)
                y += rounding
            y.clip(low, high, y)
            unsigned = target.view(np.uint8)
            np.copyto(unsigned, y, casting="unsafe")
            if signed:
                np.bitwise_xor(unsigned, 0x80, out=unsigned)

        return finish

    def is_exact_in_doubles(self, sums: Array) -> bool:
        """True if sums between two bounds, [2, channels], may be rescaled in doubles.

        float64 holds everything exactly if 53 bits do: sums, offsets and both together times the multiplier, a half, and results
        with all that is added to them, below 512, are multiples of 2**(shift - 31). For other channels, results are compared.
        """
        shift, furthest = self.shift, np.abs(sums + self.offset).max(axis=0)
        if np.ldexp(furthest.astype(np.float64), np.maximum(shift, 0)).max(initial=0) >= 2**31:
            return False
        largest = np.maximum(np.abs(sums).max(axis=0), np.maximum(np.abs(self.offset), furthest))
        held = largest.astype(np.float64) * self.multiplier + np.ldexp(512.0, 31 - shift) <= 2.0**53
        return bool(held.all()) or self._is_exact_at_steps(np.flatnonzero(~held), furthest)

    def _is_exact_at_steps(self, channels: Array, furthest: Array) -> bool:
        """True if both ways agree in these channels about the least sum for each result and the one below it.

        Both keep the order of sums: if they agree there, they agree everywhere.
        """
        arrays = (self.offset, self.multiplier, self.shift, furthest)
        offset, multiplier, shift, furthest = (np.broadcast_to(a, self.offset.shape)[channels] for a in arrays)
        if shift.max() >= 0 or shift.min() < -30:
            return False  # beyond the formula or its 64 bits
        results = np.arange(self.limits[0], self.limits[1] + 1)[:, None] - self.out.zero_point
        reach = (furthest * multiplier >> (31 - shift)) + 1
        least = np.clip(results, -reach, reach) << (31 - shift)
        least -= (1 << 30) + (np.int64(1) << (30 - shift))
        least += (results <= 0).astype(np.int64) << 31  # ties of negative products go down
        least = -(-least // multiplier)
        sums = np.clip(np.concatenate([least, least - 1]), -furthest, furthest) - offset
        some = _Rescaling(mbqm, offset, multiplier, shift, self.out, self.limits)
        found, expected = np.empty((2, *sums.shape), self.out.dtype)
        some.in_doubles()(sums, found)
        some.in_integers(sums, expected)
        return np.array_equal(found, expected)

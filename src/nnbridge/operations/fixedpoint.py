"""gemmlowp's fixed-point functions, vectorised: exp, logistic, tanh and reciprocals on raw integers.

A raw of ``bits`` bits with ``m`` integer bits stands for ``raw / 2**(bits - 1 - m)``. The 32-bit forms work on int64
arrays, the 16-bit ones on int32 arrays, so that nothing overflows on the way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nnbridge.model import Array
from nnbridge.operations.arithmetic import INT32_MAX, INT32_MIN, clz32, rdbp, srdhm, srdhm16

_EXP_MINUS_EIGHTH = 1895147668
_THIRD = 715827883
_EXP_STEPS = ((-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401), (4, 242))
"""Exponent e and the raw of exp(-2**e) without integer bits."""
_48_OVER_17 = 1515870810
_MINUS_32_OVER_17 = -1010580540


class _Width:
    """Arithmetic of one raw width."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.high = (1 << (bits - 1)) - 1
        self.dtype = np.int64 if bits == 32 else np.int32
        self.mul = srdhm if bits == 32 else srdhm16

    def constant(self, raw32: int) -> int:
        """A constant of a 32-bit raw value, at this width."""
        return raw32 if self.bits == 32 else int(rdbp(np.int64(raw32), 16))

    def saturate(self, raw: Array) -> Array:
        """At most the highest raw. None is below a quarter of the lowest, where gemmlowp would saturate too."""
        return min(raw, self.high) if isinstance(raw, int) else np.minimum(raw, self.high)

    def rescale(self, raw: Array, source: int, target: int) -> Array:
        """As many integer bits or fewer, by a shift to the left with saturation."""
        return self.saturate(raw << (source - target))


_W32, _W16 = _Width(32), _Width(16)


def _exp_quarter(a: Array, w: _Width) -> Array:
    """exp on [-1/4, 0), no integer bits (N16)."""
    x = a + (1 << (w.bits - 4))
    x2 = w.mul(x, x)
    x3 = w.mul(x2, x)
    x4 = w.mul(x2, x2)
    inner = rdbp(w.mul(rdbp(x4, 2) + x3, w.constant(_THIRD)) + x2, 1)
    eighth = w.constant(_EXP_MINUS_EIGHTH)
    return w.saturate(eighth + w.mul(eighth, x + inner))


def _widened(raw: npt.ArrayLike, bits: int) -> tuple[_Width, Array]:
    w = _W32 if bits == 32 else _W16
    return w, np.asarray(raw, w.dtype)


def exp_on_negative(raw: npt.ArrayLike, integer_bits: int, bits: int = 32) -> Array:
    """exp of raws that are at most 0; the result has no integer bits (N17)."""
    w, a = _widened(raw, bits)
    fraction = bits - 1 - integer_bits
    quarter = 1 << (fraction - 2)
    rest = (a & (quarter - 1)) - quarter
    result = _exp_quarter(w.rescale(rest, integer_bits, 0), w)
    remainder = rest - a
    for exponent, multiplier in _EXP_STEPS:
        if integer_bits > exponent:
            bit_set = (remainder & (1 << (fraction + exponent))) != 0
            result = np.where(bit_set, w.mul(result, w.constant(multiplier)), result)
    if integer_bits > 5:
        result = np.where(a < -(1 << (fraction + 5)), 0, result)
    return np.where(a == 0, w.high, result)


def _half_reciprocal(raw: Array, w: _Width) -> Array:
    """Half of 1 / (1 + x) times two integer bits: y of N18, for x in [0, 1] without integer bits."""
    # The sum is never negative, so that half of it rounds by one more before the shift.
    half = (raw + w.high + 1) >> 1
    y = w.constant(_48_OVER_17) + w.mul(half, w.constant(_MINUS_32_OVER_17))
    one = 1 << (w.bits - 3)
    for _ in range(3):
        # y has 2 integer bits, half none; their product has 2, the next one 4.
        correction = one - w.mul(half, y)
        y = y + w.rescale(w.mul(y, correction), 4, 2)
    return y


def one_over_one_plus_x(raw: npt.ArrayLike, bits: int = 32) -> Array:
    """1 / (1 + x) for x in [0, 1]; argument and result without integer bits. Of one of Python's integers the result is one."""
    w = _W32 if bits == 32 else _W16
    # Half of the sum was inverted, so that y is twice the result: one integer bit less.
    return w.rescale(_half_reciprocal(raw if isinstance(raw, int) else np.asarray(raw, w.dtype), w), 1, 0)


def logistic(raw: npt.ArrayLike, integer_bits: int, bits: int = 32) -> Array:
    """1 / (1 + exp(-x)); the result has no integer bits."""
    w, a = _widened(raw, bits)
    positive = one_over_one_plus_x(exp_on_negative(-np.abs(a), integer_bits, bits), bits)
    result = np.where(a < 0, w.high - positive, positive)
    return np.where(a == 0, 1 << (bits - 2), result)


def tanh(raw: npt.ArrayLike, integer_bits: int, bits: int = 32) -> Array:
    """Hyperbolic tangent; the result has no integer bits."""
    w, a = _widened(raw, bits)
    # exp(-2|x|): the same raw with one integer bit more.
    e = exp_on_negative(-np.abs(a), integer_bits + 1, bits)
    # (1 - e) / (1 + e) = 2 / (1 + e) - 1.
    y = _half_reciprocal(e, w)
    result = w.saturate(w.rescale(y - (1 << (bits - 3)), 2, 0))
    return np.where(a == 0, 0, np.where(a < 0, -result, result))


def logistic16(raw: npt.ArrayLike) -> Array:
    """:func:`logistic` on 16-bit raws with three integer bits; int32."""
    return _table16(logistic, 3)[np.asarray(raw)].astype(np.int32)


def tanh16(raw: npt.ArrayLike, integer_bits: int = 3) -> Array:
    """:func:`tanh` on 16-bit raws; int32."""
    return _table16(tanh, integer_bits)[np.asarray(raw)].astype(np.int32)


Function16: TypeAlias = "Callable[[npt.ArrayLike, int, int], Array]"
"""A function of raws, their integer bits and their width."""
_PIECE = 1 << 13
"""Raws that are computed at a time: what lies between takes tens of bytes for each."""


def table16(function: Function16, integer_bits: int) -> Array:
    """A function of every 16-bit raw, int16; as in Python, those of negative raws are counted from the end."""
    raws = np.arange(1 << 16).astype(np.uint16).view(np.int16).reshape(-1, _PIECE)
    results = np.empty(raws.shape, np.int16)
    for piece, result in zip(raws, results, strict=True):
        result[:] = function(piece, integer_bits, 16)
    return results.reshape(-1)


@functools.cache
def _table16(function: Function16, integer_bits: int) -> Array:
    return table16(function, integer_bits)


def _high(a: Array, b: Array | int) -> Array:
    """:func:`srdhm` where nothing overflows, of arrays that are int64 already."""
    product: Array = a * b
    product += 1 << 30
    product >>= 31
    return product


def inverse_sqrt_multiplier(values: npt.ArrayLike) -> tuple[Array, Array]:
    """1 / sqrt(s) of int32 values as multiplier and shift for ``mbqm`` (N82); for s of 1 or less it is one."""
    s = np.asarray(values, np.int64)
    small = s <= 1
    x = np.where(small, 4, s)
    shift = np.full(x.shape, 11, np.int64)
    while (large := x >= 1 << 29).any():
        x = np.where(large, x // 4, x)
        shift = shift + large
    left = (clz32(x) - 1) // 2 - 1
    shift = shift - left
    x = x << (2 * left)
    # Newton's iteration for 1 / sqrt with 3 integer bits; a half of x, one and a half as constants. x is at least 1/2 and below
    # 2, so that what is iterated stays below 1.5 and its cube below 4: Android's saturation to 8 never comes into play.
    half_x = rdbp(x >> 1, 1)
    three_halves = (1 << 28) + (1 << 27)
    y = np.full(x.shape, 1 << 28, np.int64)
    for _ in range(5):
        cube = _high(_high(y, y), y) << 6
        y = (_high(y, three_halves) - _high(half_x, cube)) << 3
    multiplier = srdhm(y, 1518500250)
    multiplier = np.where(shift < 0, multiplier << np.maximum(-shift, 0), multiplier)
    shift = np.maximum(shift, 0)
    return (np.where(small, INT32_MAX, np.clip(multiplier, INT32_MIN, INT32_MAX)), np.where(small, 0, -shift))

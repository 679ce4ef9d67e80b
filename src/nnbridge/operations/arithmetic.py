"""The arithmetic that NNAPI's quantised kernels share: rounding, fixed-point multipliers, saturation, activations.

Every function is vectorised and exact in integers. Sources: Android 13's ``common/QuantUtils.h`` and
``common/OperationsExecutionUtils.cpp``, gemmlowp's ``fixedpoint.h`` (their names: SRDHM is
SaturatingRoundingDoublingHighMul, RDBP RoundingDivideByPOT, MBQM MultiplyByQuantizedMultiplier).
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from nnbridge.model import Array
from nnbridge.operations.call import Arg, Call
from nnbridge.operations.kernels import Function
from nnbridge.operations.numerics import current
from nnbridge.types import QUANT8, FuseCode

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


def round_half_away(x: npt.ArrayLike) -> Array:
    """C's ``round``: to nearest, ties away from zero, in the type of ``x``."""
    x = np.asarray(x)
    # The number below a half, with the sign of x: 0.49999997 stays below 1, and where a half is a tie the sum itself rounds up
    # to the integer. The sign is moved as a bit, which is ten times as fast as np.copysign.
    bits = np.dtype(f"i{x.itemsize}").type
    below_half = np.nextafter(x.dtype.type(0.5), x.dtype.type(0))
    moved = np.asarray(x.view(bits) & bits(np.iinfo(bits).min))  # NumPy 1 would widen a scalar for the other one
    moved |= below_half.view(bits)
    rounded = moved.view(x.dtype)
    rounded += x
    return np.trunc(rounded, out=rounded)


def quantize_multiplier(real: float) -> tuple[int, int]:
    """A real multiplier ≥ 0 as ``(M, shift)`` with value ``M / 2**31 * 2**shift`` (``QuantizeMultiplier``)."""
    if real == 0:
        return 0, 0
    mantissa, shift = math.frexp(real)
    multiplier = math.floor(mantissa * 2**31 + 0.5)
    if multiplier == 2**31:
        multiplier //= 2
        shift += 1
    return (0, 0) if shift < -31 else (multiplier, shift)


def quantize_multipliers(reals: npt.ArrayLike) -> tuple[Array, Array]:
    """:func:`quantize_multiplier` for an array: multipliers and shifts as int64 arrays."""
    values = np.asarray(reals, np.float64)
    if not np.isfinite(values).all():
        for value in values[~np.isfinite(values)].tolist():
            quantize_multiplier(value)  # raises
    mantissas, exponents = np.frexp(values)
    multipliers, shifts = np.floor(mantissas * 2**31 + 0.5).astype(np.int64), exponents.astype(np.int64)
    if (full := multipliers == 2**31).any():
        multipliers, shifts = multipliers >> full, shifts + full
    held = shifts >= -31
    if held.all() and values.all():
        return multipliers, shifts
    held &= values != 0
    return np.where(held, multipliers, 0), np.where(held, shifts, 0)


def srdhm(a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
    """``a * b / 2**31`` of int32 values, to nearest, ties up; the one overflow saturates. Result int64.

    Of two of Python's integers the result is one.
    """
    if isinstance(a, int) and isinstance(b, int):
        return min((a * b + (1 << 30)) >> 31, INT32_MAX)
    product = np.asarray(a, np.int64) * np.asarray(b, np.int64)
    return np.minimum((product + (1 << 30)) >> 31, INT32_MAX)


def sat16(x: Array) -> Array:
    """Integers clamped to 16 bits."""
    return np.clip(x, -32768, 32767)


def srdhm16(a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
    """The 16-bit form of :func:`srdhm`: ``a * b / 2**15``. Result int32."""
    product = np.asarray(a, np.int32) * np.asarray(b, np.int32)
    return np.minimum((product + (1 << 14)) >> 15, 32767)


def rdbp(x: npt.ArrayLike, exponent: npt.ArrayLike) -> Array:
    """``x / 2**exponent`` to nearest, ties away from zero. Of two of Python's integers the result is one."""
    if isinstance(x, int) and isinstance(exponent, int):
        half = (1 << exponent) >> 1
        return (x + half - (x < 0 < half)) >> exponent
    x = np.asarray(x)
    exponent = np.asarray(exponent, x.dtype)
    half = (np.asarray(1, x.dtype) << exponent) >> 1
    # An arithmetic shift rounds down; a negative value is reduced by one, so that its ties go down too.
    return (x + half + (x >> (8 * x.itemsize - 1)) * (half > 0)) >> exponent


def rdbp16(x: Array, exponent: int) -> Array:
    """:func:`rdbp` of 16-bit values, as gemmlowp computes it in 16 bits.

    From an exponent of 16 on its mask of the bits that are shifted out has no further bit, and all that is not negative is 1.
    """
    return rdbp(x, exponent) if exponent < 16 else np.where(x < 0, x.dtype.type(-1), x.dtype.type(1))


def mbqm(x: npt.ArrayLike, multiplier: npt.ArrayLike, shift: npt.ArrayLike) -> Array:
    """``x * M / 2**31 * 2**shift`` with Android's two roundings; the left shift wraps in 32 bits. Result int64.

    The same as ``rdbp(srdhm(x << left, M), right)`` for multipliers that are not negative, in place on one array. With another
    arithmetic than NNAPI's (:mod:`nnbridge.operations.numerics`) once, or in float32.
    """
    rounding = current().rounding
    if rounding in _ONCE:
        return _ONCE[rounding](x, multiplier, shift)
    return _rescaled_twice(x, multiplier, shift)


def _rescaled_twice(x: npt.ArrayLike, multiplier: npt.ArrayLike, shift: npt.ArrayLike) -> Array:
    shifts = np.asarray(shift, np.int64)
    if shifts.size > 1 and (shifts == shifts.flat[0]).all():
        # One number for all is three times as fast as an array that is broadcast.
        shifts = shifts.reshape(-1)[:1]
    right = np.maximum(-shifts, 0)
    left = np.maximum(shifts, 0)
    value = wrap32(np.asarray(x, np.int64) << left) if left.any() else np.asarray(x, np.int64)
    result: Array = np.asarray(value * np.asarray(multiplier, np.int64))
    result += 1 << 30
    result >>= 31
    if right.any():
        half = (np.int64(1) << right) >> 1
        down = result >> 63
        if not half.all():
            down *= half > 0
        down += half
        result += down
        result >>= right
    return result


def mbqm_once(x: npt.ArrayLike, multiplier: npt.ArrayLike, shift: npt.ArrayLike) -> Array:
    """``x * M / 2**31 * 2**shift`` rounded once, ties up; the left shift wraps in 32 bits. Result int64."""
    rounding = current().rounding
    products = {"double": _rescaled_twice, "matrix": _rescaled_upwards}
    return products.get(rounding, _ONCE.get(rounding, _rescaled_once))(x, multiplier, shift)


def _rescaled_once(x: npt.ArrayLike, multiplier: npt.ArrayLike, shift: npt.ArrayLike) -> Array:
    shift = np.asarray(shift, np.int64)
    value, right = wrap32(np.asarray(x, np.int64) << np.maximum(shift, 0)), np.minimum(shift, 0)
    return (value * np.asarray(multiplier, np.int64) + (np.int64(1) << (30 - right))) >> (31 - right)


def _rescaled_upwards(x: npt.ArrayLike, multiplier: npt.ArrayLike, shift: npt.ArrayLike) -> Array:
    """Two roundings, the second with ties up instead of away from zero, as ruy's kernels of matrix products."""
    shift = np.asarray(shift, np.int64)
    right = np.maximum(-shift, 0)
    high = _rescaled_once(x, multiplier, np.maximum(shift, 0))
    return (high + ((np.int64(1) << right) >> 1)) >> right


def _rescaled_in_float(x: npt.ArrayLike, multiplier: npt.ArrayLike, shift: npt.ArrayLike) -> Array:
    """As devices and libraries do that convert a sum to float32, multiply and round ties to even."""
    factor = np.ldexp(np.asarray(multiplier, np.float64), np.asarray(shift, np.int64) - 31).astype(np.float32)
    return np.rint(np.asarray(x).astype(np.float32) * factor).astype(np.int64)


_ONCE = {"single": _rescaled_once, "float": _rescaled_in_float}
"""Rounding of :class:`~nnbridge.operations.numerics.Numerics` that replaces Android's two → the function."""


def wrap32(x: npt.ArrayLike) -> Array:
    """Integers reduced to 32 bits as C's int32 wraps, stored in int64."""
    return np.asarray(x, np.int64).astype(np.int32).astype(np.int64)


def saturate(x: npt.ArrayLike, dtype: npt.DTypeLike) -> Array:
    """Integers clamped to a type's range and converted to it."""
    info = np.iinfo(np.dtype(dtype))
    return np.clip(x, info.min, info.max).astype(dtype)


def product_scale(a: float, b: float) -> np.float32:
    """The product of two scales as Android stores it: rounded to float32, which may be infinite."""
    with np.errstate(over="ignore"):
        return np.float32(np.float32(a) * np.float32(b))


def product_multiplier(input_scale: float, filter_scale: float, output_scale: float) -> float:
    """The real multiplier of products (CONV_2D, FULLY_CONNECTED, …): float32 product, then a double quotient."""
    return float(product_scale(input_scale, filter_scale)) / float(np.float32(output_scale))


def squared_differences(left: Array, right: Array, scales: tuple[float, float], out_scale: float) -> Array:
    """(left - right)² of centred steps, in the output's steps: TFLite's, which NNAPI has as SUB and MUL.

    Both sides go to twice the larger scale with seven bits more, and are rounded there.
    """
    bits, common = 7, 2 * max(scales)
    left, right = (
        mbqm(steps << bits, *quantize_multiplier(scale / common)) for steps, scale in zip((left, right), scales, strict=True)
    )
    return mbqm((left - right) ** 2, *quantize_multiplier(common * common / ((1 << 2 * bits) * out_scale)))


def sum_multipliers(first: float, second: float, out: float) -> tuple[float, float, float]:
    """N40: the real multipliers of ADD and SUB, of either operand to twice the larger scale and of their sum to the output's.

    The scales and their products with whole numbers are float32, the quotients double: NumPy's own would be float32 as well.
    """
    with np.errstate(over="ignore"):
        twice = float(np.float32(2) * max(np.float32(first), np.float32(second)))
        fine = float(np.float32(1 << 20) * np.float32(out))
    return float(np.float32(first)) / twice, float(np.float32(second)) / twice, twice / fine


def integer_range(arg: Arg) -> tuple[int, int]:
    """Smallest and largest value of an integer type."""
    return _range_of(arg.dtype)


@cache
def _range_of(dtype: np.dtype[Any]) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def activation_range(out: Arg, activation: int) -> tuple[int, int]:
    """Smallest and largest quantised value of an 8-bit output under a fused activation."""
    return _activation_range(*integer_range(out), out.scale, out.zero_point, activation)


@lru_cache(maxsize=1024)
def _activation_range(low: int, high: int, scale: float, zero_point: int, activation: int) -> tuple[int, int]:
    def quantised(real: float) -> int:
        exact = float(np.float32(real) / np.float32(scale))
        return zero_point + int(math.copysign(math.floor(abs(exact) + 0.5), exact))

    if activation == FuseCode.RELU:
        low = max(low, zero_point)
    elif activation == FuseCode.RELU6:
        low, high = max(low, zero_point), min(high, quantised(6.0))
    elif activation == FuseCode.RELU1:
        low, high = max(low, quantised(-1.0)), min(high, quantised(1.0))
    return low, high


_ACTIVATIONS = frozenset(FuseCode)

_LARGEST = np.finfo(np.float32).max
FLOAT_RANGES: dict[int, tuple[np.float32, np.float32]] = {
    FuseCode.NONE: (-_LARGEST, _LARGEST),
    FuseCode.RELU: (np.float32(0), _LARGEST),
    FuseCode.RELU1: (np.float32(-1), np.float32(1)),
    FuseCode.RELU6: (np.float32(0), np.float32(6)),
}
"""Fused activation → bounds of real numbers, which are finite: no result is infinite where an activation may be fused (N29)."""


def activate(x: Array, activation: int) -> Array:
    """An activation on numbers of float32. NaN stays NaN.

    Results of TENSOR_FLOAT16 come here as float32 too and are rounded afterwards: those beyond it become infinite.
    """
    return x.clip(*FLOAT_RANGES[activation])


def repeated(row: Array, length: int) -> Array:
    """A short row as often as makes a long one, for :func:`with_each_row`: NumPy's loop over short rows costs more than these."""
    return np.broadcast_to(row.reshape(-1), (max(1, length // row.size), row.size)).reshape(-1)


def with_each_row(function: np.ufunc, matrix: Array, several: Array, out: Array, *, first: bool = False) -> None:
    """A function of each row of a matrix and of one row, its second operand or its ``first`` one, into ``out``.

    ``several`` is the row as :func:`repeated` has it: as many rows of the matrix are computed at once.
    """
    width = matrix.shape[1]
    together = several.size // width if out.flags.c_contiguous else 1
    whole = len(out) - len(out) % together
    for part, many in ((slice(whole), several[: together * width]), (slice(whole, len(out)), several[:width])):
        if part.start != part.stop:
            rows, target = matrix[part].reshape(-1, many.size), out[part].reshape(-1, many.size)
            function(*((many, rows) if first else (rows, many)), target)


def fused_activation(call: Call) -> int:
    """The call's fused activation code; refused unless it is one of the four."""
    code = int(call.scalar("activation"))
    call.require(code in _ACTIVATIONS, "a fused activation code of 0 to 3", code, "activation")
    return code


def quantise(x: npt.ArrayLike, out: Arg) -> Array:
    """Real numbers (float32) to an output's quantised type: ``round(x / scale + zero_point)``, clamped (N12)."""
    scaled = np.asarray(x, np.float32) / np.float32(out.scale) + np.float32(out.zero_point)
    return round_half_away(np.clip(scaled, *integer_range(out))).astype(out.dtype)


def is_quant8(code: int) -> bool:
    """True for the two 8-bit asymmetric types."""
    return code in QUANT8


def clz32(x: npt.ArrayLike) -> Array:
    """Leading zeros of positive int32 values; 32 for 0."""
    x = np.asarray(x, np.int64)
    return 32 - np.frexp(x.astype(np.float64))[1].astype(np.int64) * (x > 0)


# -- functions of single 8-bit values, as tables of their 256 results ------------------------------------------------------

_LARGE = 1 << 17
"""From so many elements on, looking up pairs of bytes is faster, and building their table does not matter."""


def every_value(x: Arg) -> Array:
    """All values of an 8-bit operand in ascending order, less the zero point."""
    low, high = integer_range(x)
    return np.arange(low, high + 1, dtype=np.int64) - x.zero_point


class Typed(Protocol):
    """A value with an element type and dimensions."""

    @property
    def dims(self) -> tuple[int, ...]:
        """Its dimensions."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""


def by_table(x: Typed, out: Typed, results: Array) -> Function:
    """The function that has these results, of ``out``'s type, for :func:`every_value` of ``x``."""
    dtype = out.dtype
    # The byte that holds a value is its index in the table: those of negative values follow those of positive ones.
    table = np.roll(results, _range_of(x.dtype)[0]).astype(dtype).view(np.uint8)
    count = math.prod(x.dims)
    if count >= _LARGE and count % 2 == 0:
        pairs = table[np.arange(1 << 16, dtype=np.uint16).view(np.uint8)].view(np.uint16)
        # No index is outside; wrap is the fastest mode.
        return lambda values: (
            pairs.take(np.ascontiguousarray(values).reshape(-1).view(np.uint16), mode="wrap").view(dtype).reshape(values.shape)
        )
    # translate is faster than np.take.
    by_byte = table.tobytes()
    return lambda values: np.frombuffer(bytearray(values).translate(by_byte), dtype).reshape(values.shape)

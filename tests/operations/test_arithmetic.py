"""The integer arithmetic that quantised kernels share, against its definition in exact fractions."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nnbridge.operations.arithmetic import (
    clz32,
    mbqm,
    mbqm_once,
    quantize_multiplier,
    rdbp,
    round_half_away,
    srdhm,
)
from nnbridge.operations.fixedpoint import exp_on_negative, inverse_sqrt_multiplier, logistic, logistic16, tanh, tanh16

INT32 = st.integers(-(2**31), 2**31 - 1)


def half_away(x: Fraction) -> int:
    return floor(x + Fraction(1, 2)) if x >= 0 else -floor(-x + Fraction(1, 2))


@given(INT32, INT32)
def test_srdhm_is_the_product_over_two_to_the_31_with_ties_up(a: int, b: int) -> None:
    expected = min(floor(Fraction(a * b, 2**31) + Fraction(1, 2)), 2**31 - 1)
    assert int(srdhm(a, b)) == expected


@given(INT32, st.integers(0, 31))
def test_rdbp_divides_by_a_power_of_two_with_ties_away_from_zero(x: int, exponent: int) -> None:
    assert int(rdbp(np.int64(x), exponent)) == half_away(Fraction(x, 2**exponent))


@pytest.mark.parametrize("x", [2**30, -(2**30) - 1, 2**31 - 2, -(2**31)])
def test_rdbp_divides_numbers_at_the_ends_of_32_bits(x: int) -> None:
    assert int(rdbp(np.array([x], np.int32), 1)[0]) == half_away(Fraction(x, 2))


@given(st.floats(1e-9, 1e9, allow_nan=False))
def test_a_multiplier_holds_31_bits_of_the_real(real: float) -> None:
    multiplier, shift = quantize_multiplier(real)
    assert 2**30 <= multiplier < 2**31
    assert abs(multiplier / 2**31 * 2.0**shift / real - 1) < 2**-30


def test_a_multiplier_below_two_to_the_minus_32_is_zero() -> None:
    assert quantize_multiplier(2.0**-33) == (0, 0)
    assert quantize_multiplier(0.0) == (0, 0)


@given(st.integers(-(2**24), 2**24), st.floats(1e-6, 0.99))
def test_mbqm_is_within_one_of_the_real_product(x: int, real: float) -> None:
    assert abs(int(mbqm(x, *quantize_multiplier(real))) - x * real) <= 1


@given(st.floats(-1e6, 1e6, width=32))
def test_round_half_away_is_c_round(x: float) -> None:
    assert int(round_half_away(np.float32(x))) == half_away(Fraction(x))


def test_round_half_away_does_not_round_the_largest_below_one_half_up() -> None:
    assert round_half_away(np.nextafter(np.float32(0.5), np.float32(0))) == 0


@given(st.integers(1, 2**31 - 1))
def test_clz32_counts_leading_zeros(x: int) -> None:
    assert int(clz32(x)) == 32 - x.bit_length()


def test_fixed_point_functions_are_near_the_real_ones() -> None:
    x = np.linspace(-7.9, 7.9, 401)
    raw = np.round(x * 2**28).astype(np.int64)  # 3 integer bits
    np.testing.assert_allclose(logistic(raw, 3) / 2**31, 1 / (1 + np.exp(-x)), atol=2e-8)
    np.testing.assert_allclose(tanh(raw, 3) / 2**31, np.tanh(x), atol=2e-7)
    negative = raw[x <= 0]
    np.testing.assert_allclose(exp_on_negative(negative, 3) / 2**31, np.exp(x[x <= 0]), atol=2e-7)
    short = np.round(x * 2**12).astype(np.int32)
    np.testing.assert_allclose(logistic16(short) / 2**15, 1 / (1 + np.exp(-short / 2**12)), atol=4e-4)
    np.testing.assert_allclose(tanh16(short) / 2**15, np.tanh(short / 2**12), atol=4e-4)


@given(st.integers(2, 2**31 - 1))
@example(2**29)
def test_inverse_square_roots_are_near_the_real_ones(s: int) -> None:
    multiplier, shift = inverse_sqrt_multiplier(s)
    assert abs(float(multiplier) / 2**31 * 2.0 ** float(shift) * s**0.5 - 1) < 1e-5


def test_one_rounding_keeps_what_the_first_of_two_would_round_up() -> None:
    # 3 / 8 = 0.375 is 0; rounded to a quarter-fine 0.5 first, it would become 1.
    multiplier, shift = quantize_multiplier(1 / 8)
    assert int(mbqm_once(3, multiplier, shift)) == 0
    assert int(mbqm_once(4, multiplier, shift)) == 1
    assert int(mbqm_once(-4, multiplier, shift)) == 0


@pytest.mark.parametrize("integer_bits", [0, 3, 5, 6])
def test_exponentials_of_any_integer_bits_are_near_the_real_ones(integer_bits: int) -> None:
    x = -np.linspace(0, 1, 401) * 2.0**integer_bits
    raw = np.round(x * 2.0 ** (31 - integer_bits)).astype(np.int64)
    np.testing.assert_allclose(exp_on_negative(raw, integer_bits) / 2**31, np.exp(x), atol=2e-7)


def inverse_sqrt(s: int) -> tuple[int, int]:
    """N82, in Python's integers: Newton's iteration for 1 / sqrt with 3 integer bits, five times."""
    if s <= 1:
        return 2**31 - 1, 0
    shift = 11
    while s >= 2**29:
        s, shift = s // 4, shift + 1
    pairs = (31 - s.bit_length()) // 2 - 1
    shift, s = shift - pairs, s << 2 * pairs

    def product(a: int, b: int) -> int:
        return floor(Fraction(a * b, 2**31) + Fraction(1, 2))

    y, half, three_halves = 2**28, half_away(Fraction(s >> 1, 2)), 2**28 + 2**27
    for _ in range(5):
        cube = product(product(y, y), y) << 6
        y = (product(y, three_halves) - product(half, cube)) << 3
    return product(y, 1518500250) << max(-shift, 0), -max(shift, 0)


@given(st.integers(0, 2**31 - 1))
@example(2**29)
def test_inverse_square_roots_are_their_rule_step_by_step(s: int) -> None:
    assert tuple(int(part) for part in inverse_sqrt_multiplier(s)) == inverse_sqrt(s)


def test_the_exponential_of_less_than_minus_32_is_0() -> None:
    assert exp_on_negative(np.array([-33, -63]) << 25, 6).tolist() == [0, 0]


def test_the_exponential_of_0_is_the_highest_raw() -> None:
    assert exp_on_negative(0, 5).item() == 2**31 - 1
    assert exp_on_negative(0, 5, 16).item() == 2**15 - 1


def test_each_channel_has_its_own_shift() -> None:
    # Halves of 100, one of them eight times over.
    assert mbqm(np.array([100, 100]), np.array([2**30, 2**30]), np.array([0, 3])).tolist() == [50, 400]

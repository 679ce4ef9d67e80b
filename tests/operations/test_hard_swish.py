"""8-bit HARD_SWISH, number by number in the order of its rule (N48)."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nnbridge.errors import NnapiError
from nnbridge.operations.arithmetic import quantize_multiplier
from nnbridge.types import OperationCode
from tests.operations.calls import I8, output, run, tensor


def sat16(value: int) -> int:
    return min(max(value, -32768), 32767)


def srdhm16(a: int, b: int) -> int:
    return min(floor(Fraction(a * b, 2**15) + Fraction(1, 2)), 32767)


def rdbp(value: int, exponent: int) -> int:
    if exponent > 15:
        return -1 if value < 0 else 1  # the mask of 16 bits cannot grow
    half = Fraction(abs(value), 2**exponent) + Fraction(1, 2)
    return floor(half) if value >= 0 else -floor(half)


def to16(multiplier: int) -> int:
    return 32767 if multiplier >= 2**31 - 1 - 2**15 else (multiplier + 2**15) >> 16


def hard_swish(centred: int, scale: np.float32, out_scale: np.float32, zero_point: int) -> int:
    fine = np.float32(scale) / np.float32(128)
    out_multiplier, out_exponent = (int(part) for part in quantize_multiplier(float(fine / out_scale)))
    multiplier, exponent = (int(part) for part in quantize_multiplier(float(fine / np.float32(3 / 32768))))
    h = centred * 128
    p, r = srdhm16(h, to16(out_multiplier)), h
    if exponent > 0:
        r = sat16(r * 2 ** (exponent - 1))
    r = srdhm16(r, to16(multiplier))
    if exponent > 0:
        r = sat16(2 * r)
    if exponent < 0:
        r = rdbp(r, -exponent)
    r = (r + 32768) >> 1
    shown = rdbp(int(Fraction(r * p, 2**15)), -out_exponent) + zero_point
    return min(max(shown, -128), 127)


@settings(max_examples=60, deadline=None)
@given(
    scale=st.floats(2**-10, 0.25, width=32),
    ratio=st.floats(2**-4, 100, width=32),
    points=st.tuples(*[st.integers(-128, 127)] * 2),
)
@example(scale=0.01, ratio=1.0, points=(3, 5))
@example(scale=0.05, ratio=float(np.float32(1 - 2**-17)), points=(-128, 0))
# A multiplier of 16 bits that is not held to 32767 gives 103 for 134 steps, where the rule gives 102.
@example(scale=0.011863840743899345, ratio=0.9999943375587463, points=(-128, 0))
# Beyond 15 bits to the right, of the result and of the gate, gemmlowp's 16 bits round up; beyond 16 to the left they saturate.
@example(scale=0.25, ratio=2.0**-11, points=(0, 0))
@example(scale=2.0**-24, ratio=1.0, points=(-5, 3))
@example(scale=float(np.float32(37580.4765625)), ratio=float(np.float32(27.0)), points=(1, -2))
def test_hard_swish_is_its_rule_number_by_number(scale: float, ratio: float, points: tuple[int, int]) -> None:
    step, out_step = np.float32(scale), np.float32(scale) / np.float32(ratio)
    x = tensor(np.arange(-128, 128), I8, scale=float(step), zero_point=points[0])
    [y] = run(OperationCode.HARD_SWISH, [x], output(I8, scale=float(out_step), zero_point=points[1]))
    assert y.tolist() == [hard_swish(v - points[0], step, out_step, points[1]) for v in range(-128, 128)]


def test_steps_of_the_output_are_larger_than_a_128th_of_the_input_s() -> None:
    with pytest.raises(NnapiError, match="input scale / 128 / output scale below 1, found 1"):
        run(OperationCode.HARD_SWISH, [tensor([1], I8, scale=1.5)], output(I8, scale=1 / 128))

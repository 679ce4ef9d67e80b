"""MEAN and the REDUCE family: axes, rounding, what they do with infinity and NaN."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnbridge.errors import OpFailedError
from nnbridge.types import OperandCode, OperationCode
from tests.operations.calls import FLOAT, I8, U8, integers, output, run, scalar, tensor

Op = OperationCode
BOOLEANS, HALF = OperandCode.TENSOR_BOOL8, OperandCode.TENSOR_FLOAT16
DROP, KEEP = scalar(False, OperandCode.BOOL), scalar(True, OperandCode.BOOL)


def test_a_reduction_drops_or_keeps_its_axes() -> None:
    # Rows of [[1, 2], [3, 4]] sum to 3 and 7.
    x = tensor([[1, 2], [3, 4]])
    assert run(Op.REDUCE_SUM, [x, integers([1]), DROP])[0].tolist() == [3, 7]
    assert run(Op.REDUCE_SUM, [x, integers([1]), KEEP])[0].tolist() == [[3], [7]]


def test_reducing_everything_leaves_one_element() -> None:
    [y] = run(Op.REDUCE_PROD, [tensor([[1, 2], [3, 4]]), integers([0, 1]), DROP])
    assert y.tolist() == [24]


def test_an_axis_named_twice_counts_once() -> None:
    # -1 is axis 1 again.
    [y] = run(Op.MEAN, [tensor([[1, 2], [3, 5]]), integers([1, -1]), scalar(0)])
    assert y.tolist() == [1.5, 4]


def test_mean_keeps_dimensions_only_for_numbers_above_0() -> None:
    x = tensor([[1, 3]])
    assert run(Op.MEAN, [x, integers([1]), scalar(1)])[0].shape == (1, 1)
    assert run(Op.MEAN, [x, integers([1]), scalar(-1)])[0].shape == (1,)


def test_an_axis_outside_is_refused() -> None:
    with pytest.raises(OpFailedError, match=r"axes in \[-2, 2\), found 2"):
        run(Op.REDUCE_MAX, [tensor([[1, 2]]), integers([2]), DROP])


def test_signed_mean_truncates_towards_0() -> None:
    # (-1 - 2) / 2 = -1.5 becomes -1, (1 + 2) / 2 = 1.5 becomes 1.
    x = tensor([[-1, -2], [1, 2]], I8, scale=1.0)
    [y] = run(Op.MEAN, [x, integers([1]), scalar(0)], output(I8, scale=1.0))
    assert y.tolist() == [-1, 1]


@given(st.lists(st.integers(0, 255), min_size=1, max_size=300))
def test_8_bit_mean_is_the_integer_quotient(values: list[int]) -> None:
    [y] = run(Op.MEAN, [tensor(values, U8, scale=1.0), integers([0]), scalar(0)], output(U8, scale=1.0))
    assert y.tolist() == [sum(values) // len(values)]


def test_extremes_of_8_bit_values_are_of_the_raw_values() -> None:
    x = tensor([[3, 250], [7, 6]], U8, scale=0.5, zero_point=9)
    same = output(U8, scale=0.5, zero_point=9)
    assert run(Op.REDUCE_MAX, [x, integers([1]), DROP], same)[0].tolist() == [250, 7]
    assert run(Op.REDUCE_MIN, [x, integers([1]), DROP], same)[0].tolist() == [3, 6]


def test_extremes_start_from_the_largest_finite_value_and_pass_over_nan() -> None:
    # As std::max(so far, next) from the lowest float: neither -infinity nor NaN is ever larger.
    x, largest = tensor([[-np.inf, -np.inf], [np.nan, 1]]), np.finfo(np.float32).max
    assert run(Op.REDUCE_MAX, [x, integers([1]), DROP])[0].tolist() == [-largest, 1]
    assert run(Op.REDUCE_MIN, [tensor(-x.data), integers([1]), DROP])[0].tolist() == [largest, -1]


def test_a_factor_of_0_wins_against_infinity() -> None:
    [y] = run(Op.REDUCE_PROD, [tensor([[np.inf, 0], [np.inf, 2]]), integers([1]), DROP])
    assert y.tolist() == [0, np.inf]


def test_a_float16_product_that_became_0_stays_0() -> None:
    # 2**-13 * 2**-13 is 0 in float16, before infinity is met.
    [y] = run(Op.REDUCE_PROD, [tensor([[2**-13, 2**-13, np.inf], [2, np.inf, 3]], HALF), integers([1]), DROP], output(HALF))
    assert y.tolist() == [0, np.inf]


def test_float16_sums_round_after_each_step() -> None:
    # From 2048 on, float16 has only even numbers, and 2048 + 1 rounds back to 2048.
    [y] = run(Op.REDUCE_SUM, [tensor(np.ones((2, 3, 1000)), HALF), integers([0, 2, 1]), DROP], output(HALF))
    assert y.dtype == np.float16
    assert y.tolist() == [2048]


def test_float16_mean_rounds_once() -> None:
    [y] = run(Op.MEAN, [tensor(np.ones((2, 3000)), HALF), integers([0, 1]), scalar(0)], output(HALF))
    assert y.tolist() == [1]


def test_any_non_zero_byte_is_true() -> None:
    x = tensor([[2, 0], [3, 1], [0, 0]], BOOLEANS)
    assert run(Op.REDUCE_ALL, [x, integers([1]), DROP], output(BOOLEANS))[0].tolist() == [0, 1, 0]
    assert run(Op.REDUCE_ANY, [x, integers([1]), DROP], output(BOOLEANS))[0].tolist() == [1, 1, 0]


@given(st.sets(st.integers(-4, 3)))
def test_axes_reduce_as_numpy_does(axes: set[int]) -> None:
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    reduced = tuple({a % 4 for a in axes})
    if not reduced:
        return
    [y] = run(Op.REDUCE_MAX, [tensor(x), integers(sorted(axes)), KEEP], output(FLOAT))
    np.testing.assert_array_equal(y, x.max(axis=reduced, keepdims=True))

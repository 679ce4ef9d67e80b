"""L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION and INSTANCE_NORMALIZATION."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnbridge.errors import OpFailedError
from nnbridge.operations import definitions
from nnbridge.operations.call import Arg
from nnbridge.operations.evaluate import evaluate, make_call
from nnbridge.types import OperandCode, OperationCode
from tests.operations.calls import FLOAT, I8, U8, output, run, scalar, tensor

Op = OperationCode
F32, HALF = OperandCode.FLOAT32, OperandCode.TENSOR_FLOAT16


L2 = definitions()[Op.L2_NORMALIZATION]


def real(value: float) -> Arg:
    """A FLOAT32 scalar."""
    return scalar(value, F32)


def test_l2_normalization_divides_by_the_length_along_the_last_axis() -> None:
    # |(3, 4)| = 5.
    [y] = run(Op.L2_NORMALIZATION, [tensor([[3, 4], [0, 2]])])
    np.testing.assert_allclose(y, [[0.6, 0.8], [0.0, 1.0]], rtol=1e-6)


def test_l2_normalization_along_another_axis() -> None:
    [y] = run(Op.L2_NORMALIZATION, [tensor([[3, 0], [4, 2]]), scalar(-2)])
    np.testing.assert_allclose(y, [[0.6, 0], [0.8, 1]], rtol=1e-6)


def test_l2_normalization_of_zeros_is_zeros() -> None:
    [y] = run(Op.L2_NORMALIZATION, [tensor([[0, 0]])])
    assert y.tolist() == [[0, 0]]


def test_l2_normalization_of_8_bit_values_has_fixed_parameters() -> None:
    # (3, -4) / 5 = (0.6, -0.8): 0.6 * 128 = 76.8 and -0.8 * 128 = -102.4, and 128 is added for unsigned values.
    call = make_call(L2, [tensor([[13, 6]], U8, scale=0.1, zero_point=10)], [output(U8)])
    [y] = evaluate(call)
    assert (y.scale, y.zero_point) == (1 / 128, 128)
    assert y.data.tolist() == [[128 + 77, 128 - 102]]


def test_the_widest_8_bit_values_are_normalised_beside_others() -> None:
    # The length of four values of 255 and one of 60 is 513.5: 128 * 255 / 513.5 = 63.6, 128 * 60 / 513.5 = 15.0.
    [y] = run(Op.L2_NORMALIZATION, [tensor([[255] * 4 + [60]], U8, scale=1.0)], output(U8))
    assert y.tolist() == [[128 + 64] * 4 + [128 + 15]]


@pytest.mark.parametrize(("zero_point", "count"), [(223, 700_000), (255, 600_000)])
def test_equal_8_bit_values_of_a_very_long_row_are_0(zero_point: int, count: int) -> None:
    # 128 / sqrt(600,000) = 0.17 for each of so many equal values.
    [y] = run(Op.L2_NORMALIZATION, [tensor(np.zeros((1, count)), U8, scale=1.0, zero_point=zero_point)], output(U8))
    assert set(y.ravel().tolist()) == {128}


@given(st.lists(st.integers(-127, 127), min_size=1, max_size=64))
def test_signed_l2_normalization_is_the_unsigned_one_less_128(values: list[int]) -> None:
    # Along an axis that is not the last one.
    column = np.reshape(values, (-1, 1))
    signed = run(Op.L2_NORMALIZATION, [tensor(column, I8, scale=1.0), scalar(0)], output(I8))[0]
    unsigned = run(Op.L2_NORMALIZATION, [tensor(column + 128, U8, scale=1.0, zero_point=128), scalar(0)], output(U8))[0]
    np.testing.assert_array_equal(signed.astype(int), unsigned.astype(int) - 128)


def test_signed_values_are_multiplied_by_128_behind_the_first_rounding_along_the_last_axis() -> None:
    # 128 * 12 / 148**0.5 is 126.25: 126 by LiteRT's kernel of signed values, Android's for the last axis, 127 by the other.
    values = [[2, 12]]
    assert run(Op.L2_NORMALIZATION, [tensor(values, I8, scale=1.0)], output(I8))[0].tolist() == [[21, 126]]
    assert run(Op.L2_NORMALIZATION, [tensor(values, U8, scale=1.0)], output(U8))[0].tolist() == [[128 + 21, 128 + 127]]


@given(st.lists(st.integers(-128, 127), min_size=1, max_size=64).filter(any))
def test_8_bit_l2_normalization_is_within_one_step_of_the_real_quotient(values: list[int]) -> None:
    [y] = run(Op.L2_NORMALIZATION, [tensor([values], I8, scale=1.0)], output(I8))
    exact = np.clip(128 * np.array(values) / np.sqrt(np.sum(np.square(values))), -128, 127)
    assert np.abs(y[0] - exact).max() <= 1


def test_local_response_sums_squares_in_a_window_cut_at_the_ends() -> None:
    # Squares 1, 4, 9 and 16; radius 1 gives 5, 14, 29, 25; (1 + 2 * sum) ** -1 = 1/11, 1/29, 1/59, 1/51.
    [y] = run(Op.LOCAL_RESPONSE_NORMALIZATION, [tensor([[1, 2, 3, 4]]), scalar(1), real(1), real(2), real(1)])
    np.testing.assert_allclose(y, [[1 / 11, 2 / 29, 3 / 59, 4 / 51]], rtol=1e-6)


def test_a_radius_beyond_the_axis_takes_all_of_it() -> None:
    # 1 + 4 = 5 for both; 5 ** -0.5.
    inputs = [tensor([[1], [2]]), scalar(100), real(0), real(1), real(0.5), scalar(0)]
    [y] = run(Op.LOCAL_RESPONSE_NORMALIZATION, inputs)
    np.testing.assert_allclose(y, np.array([[1], [2]]) / np.sqrt(5), rtol=1e-6)


def test_a_large_neighbour_leaves_no_trace_outside_its_window() -> None:
    # The last two see squares 1 + 1 = 2 only; a running sum would have lost them next to 1e20.
    inputs = [tensor([[1e10, 0, 0, 1, 1]]), scalar(1), real(0), real(1), real(0.5)]
    [y] = run(Op.LOCAL_RESPONSE_NORMALIZATION, inputs)
    np.testing.assert_allclose(y[0, 3:], 1 / np.sqrt(2), rtol=1e-6)


def test_a_negative_radius_is_refused() -> None:
    with pytest.raises(OpFailedError, match="a radius of at least 0, found -1"):
        run(Op.LOCAL_RESPONSE_NORMALIZATION, [tensor([[1]]), scalar(-1), real(0), real(1), real(0.5)])


def test_instance_normalization_takes_each_image_and_channel_for_itself() -> None:
    # Values 1 and 3: mean 2, variance 1; 2 * (x - 2) / sqrt(1 + 3) + 10 = 9 and 11. The other channel is constant.
    x = tensor([[[[1, 5], [3, 5]]]])
    nchw = scalar(False, OperandCode.BOOL)
    [y] = run(Op.INSTANCE_NORMALIZATION, [x, real(2), real(10), real(3), nchw])
    np.testing.assert_allclose(y, [[[[9, 10], [11, 10]]]], rtol=1e-6)


def test_instance_normalization_of_nchw_data() -> None:
    x = np.random.default_rng(1).normal(size=(2, 3, 4, 5)).astype(np.float32)
    parameters = [real(1), real(0), real(1e-3)]
    [nhwc] = run(Op.INSTANCE_NORMALIZATION, [tensor(x), *parameters, scalar(False, OperandCode.BOOL)])
    flipped = tensor(x.transpose(0, 3, 1, 2))
    [nchw] = run(Op.INSTANCE_NORMALIZATION, [flipped, *parameters, scalar(True, OperandCode.BOOL)])
    np.testing.assert_array_equal(nchw.transpose(0, 2, 3, 1), nhwc)


def test_short_forms_of_other_ranks_need_feature_level_3() -> None:
    [rule] = L2.level_rules
    short = make_call(L2, [Arg(FLOAT, (2, 3))], [Arg(FLOAT, (2, 3))])
    assert rule(short) == (3, "a rank other than 4")
    assert rule(make_call(L2, [Arg(FLOAT, (1, 1, 2, 3))], [Arg(FLOAT, ())])) is None


def test_float16_is_normalised_in_float32() -> None:
    # 300 ** 2 + 400 ** 2 = 250000 is beyond float16; the length is 500.
    [y] = run(Op.L2_NORMALIZATION, [tensor([[300, 400]], HALF)], output(HALF))
    np.testing.assert_array_equal(y, np.array([[0.6, 0.8]], np.float16))

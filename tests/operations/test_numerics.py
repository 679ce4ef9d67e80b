"""Arithmetics of devices, number by number."""

from __future__ import annotations

import numpy as np
import pytest

from nnbridge.operations.arithmetic import mbqm, mbqm_once
from nnbridge.operations.numerics import NUMERICS, PRODUCTS, STORED, using
from nnbridge.types import OperandCode, OperationCode
from tests.operations.calls import I8, U8, integers, output, run, scalar, tensor

Op = OperationCode


def test_bfloat16_has_8_bits_and_ties_to_even() -> None:
    step = 2.0**-7
    numbers = np.array([1 + step / 2, 1 + 1.5 * step, 1 + step / 2 + 2.0**-23, -1.75 * step, np.inf, -np.inf, np.nan], np.float32)
    expected = [1, 1 + 2 * step, 1 + step, -1.75 * step, np.inf, -np.inf, np.nan]
    np.testing.assert_array_equal(STORED["bfloat16"](numbers), np.array(expected, np.float32))


@pytest.mark.parametrize("order", sorted(PRODUCTS))
@pytest.mark.parametrize("terms", [1, 2, 3, 5, 8, 9, 20])
def test_every_order_of_sums_adds_every_product_once(order: str, terms: int) -> None:
    left, right = np.arange(2 * terms, dtype=np.float32).reshape(2, terms), np.eye(terms, 3, dtype=np.float32) + 1
    np.testing.assert_array_equal(PRODUCTS[order](left, right), left.astype(int) @ right.astype(int))


def test_ties_of_float_rescaling_are_to_even_and_those_of_matrices_upwards() -> None:
    # Halves of 3, 5, 7 and -5; quarters of 5, 7 and -6 in two steps: 2.5 is 3 and 1.5 is 2, but -1.5 is -1; doubles are exact.
    half = 2**30
    with using(NUMERICS["float_rescaled"]):
        assert mbqm(np.array([3, 5, 7, -5]), half, 0).tolist() == [2, 2, 4, -2]
    with using(NUMERICS["matrix_rounding"]):
        assert mbqm_once(np.array([5, 7, -6]), half, -1).tolist() == [2, 2, -1]
        assert mbqm_once(np.array([5, -6]), half, 2).tolist() == [10, -12]


def test_means_to_nearest() -> None:
    with using(NUMERICS["single_rounding"]):
        x = tensor([[1, 2, 2], [-1, -2, -2]], I8, scale=1.0)
        [y] = run(Op.MEAN, [x, integers([1]), scalar(0)], output(I8, scale=1.0))
    assert y.tolist() == [2, -2]


def test_functions_of_real_numbers_are_rounded_once() -> None:
    # Logistic of 1 and 3 is 0.7311 and 0.9526: 187.2 and 243.9 of 256.
    with using(NUMERICS["matrix_rounding"]):
        [y] = run(Op.LOGISTIC, [tensor([2, 6], U8, scale=0.5)], output(U8, scale=1 / 256))
    assert y.tolist() == [187, 244]


def test_depthwise_sums_one_after_another_are_those_of_each_channel() -> None:
    # Small whole numbers, whose sums are the same in any order.
    image, filters = np.arange(48).reshape(2, 3, 4, 2), np.arange(24).reshape(1, 2, 3, 4)
    parameters = [*[scalar(v) for v in (0, 0, 0, 0, 1, 1, 2, 0)], scalar(False, OperandCode.BOOL)]
    arguments = [tensor(image), tensor(filters), tensor(np.zeros(4)), *parameters]
    [plain] = run(Op.DEPTHWISE_CONV_2D, arguments)
    with using(NUMERICS["sequential_sums"]):
        [ordered] = run(Op.DEPTHWISE_CONV_2D, arguments)
    np.testing.assert_array_equal(ordered, plain)

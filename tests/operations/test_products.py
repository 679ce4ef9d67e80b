"""Sums of 8-bit products: exact however many there are, saturated, within their limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from nnbridge.errors import NnapiError
from nnbridge.types import OperandCode, OperationCode
from tests.operations.calls import I8, U8, integers, output, run, scalar, tensor

Op = OperationCode
MANY = 299 * 255**2 + 4
"""299 products of 255 by 255 and one of 2 by 2: an odd number beyond 24 bits, where floats hold even numbers only."""


def row(*dims: int) -> npt.NDArray[Any]:
    """300 values, all of them 255 but the first."""
    values = np.full(300, 255)
    values[0] = 2
    return values.reshape(dims)


def test_a_fully_connected_layer_is_exact_beyond_24_bits() -> None:
    # Whatever the sums of others are: the second unit has no weights.
    x, w = tensor(row(1, 300), U8, scale=1.0), tensor([row(300), np.zeros(300)], U8, scale=1.0)
    bias = integers([5 - MANY, 2]).replace(scale=1.0)
    [y] = run(Op.FULLY_CONNECTED, [x, w, bias, scalar(0)], output(U8, scale=1.0))
    assert y.tolist() == [[5, 2]]


def test_a_product_of_matrices_is_exact_beyond_24_bits_and_saturates() -> None:
    flags = [scalar(False, OperandCode.BOOL)] * 2
    left = tensor(np.stack([row(300), np.zeros(300, np.int64)])[None] - 128, I8, scale=1.0, zero_point=-128)
    right = tensor(row(1, 300, 1) - 128, I8, scale=1.0, zero_point=-128)
    # The next number would be 2.5 of these steps, and round up.
    [y] = run(Op.BATCH_MATMUL, [left, right, *flags], output(I8, scale=(MANY + 1) / 2.5))
    assert y.reshape(-1).tolist() == [2, 0]
    [y] = run(Op.BATCH_MATMUL, [left, right, *flags], output(I8, scale=MANY / 128))
    assert y.reshape(-1).tolist() == [127, 0]
    negative = tensor(128 - row(1, 300, 1) - 1, I8, scale=1.0, zero_point=127)
    [y] = run(Op.BATCH_MATMUL, [left, negative, *flags], output(I8, scale=MANY / 129))
    assert y.reshape(-1).tolist() == [-128, 0]


def test_a_multiplier_of_30_bits_is_refused() -> None:
    one, bias = tensor([[1]], U8, scale=1.0), integers([0]).replace(scale=1.0)
    with pytest.raises(NnapiError, match=r"below 2\*\*30, found"):
        run(Op.FULLY_CONNECTED, [one, one, bias, scalar(0)], output(U8, scale=2.0**-30))


def test_a_window_larger_than_its_image_by_one_is_refused() -> None:
    sizes = [scalar(v) for v in (0, 0, 0, 0, 1, 1, 3, 3, 0)]
    with pytest.raises(NnapiError, match="a window that fits into the padded input"):
        run(Op.MAX_POOL_2D, [tensor(np.ones((1, 2, 3, 1))), *sizes])


def test_a_product_of_scales_as_large_as_the_output_s_is_refused() -> None:
    one = tensor([1], U8, scale=1.0)
    with pytest.raises(NnapiError, match="output scale below 1, found 1"):
        run(Op.MUL, [one, one, scalar(0)], output(U8, scale=1.0))


def test_windows_of_implicit_padding_begin_by_their_own_side() -> None:
    # SAME, 2 by 2 in steps of 2: three rows have one of padding behind, four columns none.
    sizes = [scalar(v) for v in (1, 2, 2, 2, 2, 0)]
    [y] = run(Op.MAX_POOL_2D, [tensor(np.arange(12).reshape(1, 3, 4, 1)), *sizes])
    assert y.reshape(2, 2).tolist() == [[5, 7], [9, 11]]


def test_8_bit_lengths_of_just_more_than_512_are_rounded_in_more_than_16_bits() -> None:
    # 255 / 512.06 * 128 = 63.7, above the zero point of 128.
    row = tensor([[255, 255, 255, 255, 46]], U8, scale=1.0)
    [y] = run(Op.L2_NORMALIZATION, [row], output(U8, scale=1 / 128, zero_point=128))
    assert y[0, 0] == 192


def test_a_product_of_matrices_wraps_in_32_bits() -> None:
    # 33,100 products of 255 * 255 are 2,152,327,500, which 32 bits hold as -2,142,639,796.
    row = tensor(np.full((1, 33_100), 127), I8, scale=1.0, zero_point=-128)
    flags = [scalar(False, OperandCode.BOOL), scalar(True, OperandCode.BOOL)]
    assert run(Op.BATCH_MATMUL, [row, row, *flags], output(I8, scale=2.0**25))[0].tolist() == [[-64]]

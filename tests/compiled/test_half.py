"""Float16 operands on compiled kernels: float32 inside programs, each operation's results rounded to float16."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.types import OperationCode
from tests.compiled.hybrid import Hybrid
from tests.compiled.models import F16, F32, I32, U8, Tensor, check, model_of, random_data

RNG = np.random.default_rng(5)


def half(*dims: int, value: Any = None) -> Tensor:
    """A float16 operand."""
    return Tensor(F16, dims, value=value)


def constant(*dims: int) -> Tensor:
    """A float16 constant."""
    return half(*dims, value=random_data(RNG, F16, dims))


def integers(*values: int) -> Tensor:
    """A constant of INT32."""
    return Tensor(I32, (len(values),), value=np.array(values, np.int32))


X = half(2, 5, 7, 19)
CASES = {
    "CONV_2D": ([X, constant(9, 3, 3, 19), constant(9), 1, 1, 1, 3], half(2, 5, 7, 9)),
    "DEPTHWISE_CONV_2D": ([X, constant(1, 3, 3, 19), constant(19), 1, 1, 1, 1, 0], X),
    "FULLY_CONNECTED": ([half(3, 33), constant(17, 33), constant(17), 1], half(3, 17)),
    "AVERAGE_POOL_2D": ([X, 1, 1, 1, 2, 2, 0], X),
    "ADD": ([X, half(19), 0], X),
    "MUL": ([X, X, 2], X),
    "DIV": ([X, X, 0], X),
    "MAXIMUM": ([X, half(19)], X),
    "PRELU": ([X, constant(19)], X),
    "LOGISTIC": ([X], X),
    "TANH": ([X], X),
    "EXP": ([X], X),
    "MEAN": ([X, integers(1, 2), 1], half(2, 1, 1, 19)),
    "REDUCE_MAX": ([X, integers(3), True], half(2, 5, 7, 1)),
    "REDUCE_SUM": ([X, integers(3), False], half(2, 5, 7)),
    "REDUCE_PROD": ([X, integers(0, 2), True], half(1, 5, 1, 19)),
    "BATCH_MATMUL": ([half(3, 5, 17), half(1, 23, 17), False, True], half(3, 5, 23)),
    "CONCATENATION": ([X, X, 3], half(2, 5, 7, 38)),
    "PAD": ([X, Tensor(I32, (4, 2), value=np.array([[0, 0], [1, 2], [0, 1], [0, 0]], np.int32))], half(2, 8, 8, 19)),
    "RESIZE_BILINEAR": ([X, 9, 6], half(2, 6, 9, 19)),
    "GATHER": ([X, 3, integers(4, 18, 0)], half(2, 5, 7, 3)),
    "ARGMAX": ([X, 3], Tensor(I32, (2, 5, 7))),
    "QUANTIZE": ([X], Tensor(U8, (2, 5, 7, 19), 0.02, 128)),
    "CAST": ([Tensor(F32, (2, 5, 7, 19))], X),
}


@pytest.mark.parametrize("name", CASES)
def test_float16(isa: InstructionSet, name: str) -> None:
    inputs, output = CASES[name]
    check(model_of(OperationCode[name], inputs, [output]), isa, np.random.default_rng(0))


def test_every_float16_number_survives(isa: InstructionSet) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    hybrid = Hybrid(model_of(OperationCode.TRANSPOSE, [half(256, 256), integers(1, 0)], [half(256, 256)]), isa)
    found = hybrid.run([bits.reshape(256, 256)])[0].T.reshape(-1)
    np.testing.assert_array_equal(found, bits)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(bits))


def test_results_are_rounded_to_the_nearest_of_float16_ties_to_even(isa: InstructionSet) -> None:
    values = RNG.integers(0, 1 << 32, 1 << 16, np.uint32).view(np.float32)
    ties = np.float32([2049, 2051, 65519.99, 65520, 2**-25, 3 * 2**-25, 2**-24 * 1.5, -(2**-14) * 0.99999, np.inf, np.nan, -0.0])
    data = np.concatenate([values, ties])
    hybrid = Hybrid(model_of(OperationCode.CAST, [Tensor(F32, data.shape)], [half(*data.shape)]), isa)
    assert not hybrid.plan.left
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(hybrid.run([data])[0], data.astype(np.float16))


@pytest.mark.parametrize("code", [OperationCode.REDUCE_SUM, OperationCode.REDUCE_PROD])
@pytest.mark.parametrize("axes", [(0,), (2,), (0, 2), (1, 0, 2)])
def test_sums_and_products_are_rounded_after_each_number(isa: InstructionSet, code: OperationCode, axes: tuple[int, ...]) -> None:
    rng, dims = np.random.default_rng(3), (6, 5, 37)
    left = [d for i, d in enumerate(dims) if i not in axes] or [1]
    hybrid = Hybrid(model_of(code, [half(*dims), integers(*axes), False], [half(*left)]), isa)
    assert not hybrid.plan.left
    for scale in (1.0, 0.01, 30.0, 2000.0):
        data = (rng.standard_normal(dims) * scale).astype(np.float16)
        special = rng.choice(np.array([0, -0.0, np.inf, -np.inf, np.nan, 6e-8, 65504], np.float16), dims)
        data = np.where(rng.random(dims) < 0.01, special, data)
        for expected, found in zip(hybrid.reference([data]), hybrid.run([data]), strict=True):
            np.testing.assert_array_equal(found, expected)

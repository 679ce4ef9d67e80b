"""NaN and infinity on compiled kernels: what the reference kernels, which NNAPI's own rules decide, make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.executor import Executor
from nnbridge.cpu.settings import Tier
from nnbridge.types import OperandCode, OperationCode
from tests.compiled.hybrid import Hybrid
from tests.compiled.models import F16, F32, I32, Tensor, assert_same, model_of

NAN, INF = np.nan, np.inf
SPREAD = np.float32([NAN, INF, -INF, 0, 1, -2])


def tiers(model: Any, isa: InstructionSet, *inputs: Any) -> tuple[Any, Any]:
    """The outputs of the compiled and of the reference kernels."""
    hybrid = Hybrid(model, isa)
    return hybrid.run(list(inputs))[0], hybrid.reference(list(inputs))[0]


@pytest.mark.parametrize("size", [(2, 6), (1, 3), (5, 4)])
def test_resized_images_have_them_where_android_multiplies_them(isa: InstructionSet, size: tuple[int, int]) -> None:
    image = np.random.default_rng(0).choice(SPREAD, (3, 2, 3, 5)).astype(np.float32)
    model = model_of(OperationCode.RESIZE_BILINEAR, [Tensor(F32, image.shape), size[1], size[0]], [Tensor(F32, (3, *size, 5))])
    found, expected = tiers(model, isa, image)
    assert_same(found, expected)
    assert np.isnan(expected).any()


@pytest.mark.parametrize("name", ["REDUCE_MAX", "REDUCE_MIN"])
@pytest.mark.parametrize("value", [NAN, -INF, INF])
@pytest.mark.parametrize("axis", [0, 1])
def test_extremes_of_float16_start_from_the_end_of_its_range(isa: InstructionSet, name: str, value: float, axis: int) -> None:
    # Fact N36: 65504 for float16, which no NaN and no infinity of the other sign replaces.
    axes = Tensor(I32, (1,), value=np.int32([axis]))
    model = model_of(OperationCode[name], [Tensor(F16, (3, 3)), axes, False], [Tensor(F16, (3,))])
    found, expected = tiers(model, isa, np.full((3, 3), value, np.float16))
    limit = -65504 if name == "REDUCE_MAX" else 65504
    assert found.tolist() == expected.tolist() == [value if value == np.copysign(INF, -limit) else limit] * 3


@pytest.mark.parametrize("value", [NAN, INF])
def test_a_weight_of_a_transposed_convolution_meets_pixels_alone(value: float) -> None:
    # Pixels 2 apart, a filter of 1: nothing is multiplied between them.
    weights = Tensor(F32, (1, 1, 1, 1), value=np.full((1, 1, 1, 1), value, np.float32))
    bias, shape = Tensor(F32, (1,), value=np.float32([3])), Tensor(I32, (4,), value=np.int32([1, 1, 3, 1]))
    model = model_of(
        OperationCode.TRANSPOSE_CONV_2D,
        [Tensor(F32, (1, 1, 2, 1)), weights, bias, shape, 2, 2, 1, 0, False],
        [Tensor(F32, (1, 1, 3, 1))],
    )
    [found] = Executor(model, kernels=Tier.COMPILED).run([np.ones((1, 1, 2, 1), np.float32)])
    ends = min(value, np.finfo(np.float32).max)
    np.testing.assert_array_equal(found.value.reshape(-1), [ends, 3, ends])


@pytest.mark.parametrize("name", ["ADD", "SUB", "MUL", "DIV", "MAXIMUM"])
@pytest.mark.parametrize("kind", [F32, F16])
def test_results_are_finite_where_an_activation_may_be_fused(isa: InstructionSet, name: str, kind: OperandCode) -> None:
    # Fact N29, in float32: what is rounded to float16 afterwards is infinite again.
    dtype = np.float32 if kind == F32 else np.float16
    first, second = np.array([INF, -INF, 60000, -60000, NAN], dtype), np.array([1, 2, 2**-15, 2**-15, 1], dtype)
    activation = [] if name == "MAXIMUM" else [0]
    model = model_of(OperationCode[name], [Tensor(kind, (5,)), Tensor(kind, (5,)), *activation], [Tensor(kind, (5,))])
    found, expected = tiers(model, isa, first, second)
    assert_same(found, expected)
    assert np.isinf(expected).any() == (kind == F16 or name == "MAXIMUM")


@pytest.mark.parametrize(("name", "ends"), [("RELU", [0, 3.4028234663852886e38]), ("EXP", [0, INF])])
def test_relu_ends_at_the_largest_number_and_other_functions_do_not(isa: InstructionSet, name: str, ends: list[float]) -> None:
    found, expected = tiers(model_of(OperationCode[name], [Tensor(F32, (2,))], [Tensor(F32, (2,))]), isa, np.float32([-INF, INF]))
    assert found.tolist() == expected.tolist() == ends


def test_a_float16_product_that_became_0_stays_0(isa: InstructionSet) -> None:
    axes = Tensor(I32, (1,), value=np.int32([1]))
    model = model_of(OperationCode.REDUCE_PROD, [Tensor(F16, (2, 3)), axes, False], [Tensor(F16, (2,))])
    found, expected = tiers(model, isa, np.float16([[2**-13, 2**-13, INF], [2, INF, 3]]))
    assert found.tolist() == expected.tolist() == [0, INF]


@pytest.mark.parametrize("name", ["TANH", "HARD_SWISH", "FLOOR"])
def test_minus_0_stays_itself(isa: InstructionSet, name: str) -> None:
    found, expected = tiers(
        model_of(OperationCode[name], [Tensor(F32, (3,))], [Tensor(F32, (3,))]), isa, np.float32([-0.0, 0.0, -0.0])
    )
    assert np.signbit(found).tolist() == np.signbit(expected).tolist() == [True, False, True]


@pytest.mark.parametrize("kind", [F32, F16])
def test_a_product_of_minus_0_has_no_sign(isa: InstructionSet, kind: OperandCode) -> None:
    axes = Tensor(I32, (1,), value=np.int32([1]))
    model = model_of(OperationCode.REDUCE_PROD, [Tensor(kind, (2, 3)), axes, False], [Tensor(kind, (2,))])
    numbers = np.array([[-0.0, 2, 3], [-1, 0, 2]], np.float32 if kind == F32 else np.float16)
    found, expected = tiers(model, isa, numbers)
    assert np.signbit(found).tolist() == np.signbit(expected).tolist() == [False, False]

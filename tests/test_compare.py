"""Seeded inputs, tolerances and stored references."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from nnbridge.compare import (
    DEFAULT_TOLERANCE,
    SINGLE_OPERATION,
    OutputComparison,
    Tolerance,
    compare,
    random_array,
    seeded_inputs,
    seeded_samples,
    stored_samples,
)
from nnbridge.compare.comparison import Worst
from nnbridge.errors import InputError, Reason
from nnbridge.runtime.compilation import Compilation
from nnbridge.types import OperationCode
from tests.graphs import unary_chain


def test_seeded_inputs_are_numpys_default_generator_in_model_order() -> None:
    expected = np.random.default_rng(7).standard_normal((1, 4)).astype(np.float32)
    np.testing.assert_array_equal(seeded_inputs(unary_chain(OperationCode.FLOOR), 7)["x"], expected)


@pytest.mark.parametrize(("dtype", "low", "high"), [("u1", 0, 255), ("i1", -128, 127), ("i2", -32768, 32767)])
def test_small_integers_come_from_their_full_range(dtype: str, low: int, high: int) -> None:
    values = random_array(np.random.default_rng(0), np.dtype(dtype), (400000,))
    assert values.dtype == dtype
    assert (values.min(), values.max()) == (low, high)


@pytest.mark.parametrize("dtype", ["i4", "i8"])
def test_large_integers_come_from_0_to_7(dtype: str) -> None:
    values = random_array(np.random.default_rng(0), np.dtype(dtype), (1000,))
    assert (values.min(), values.max()) == (0, 7)


def compared(actual: object, expected: object, tolerance: Tolerance = DEFAULT_TOLERANCE) -> OutputComparison:
    comparison = OutputComparison("y", "", tolerance)
    comparison.add(np.asarray(actual), np.asarray(expected))
    return comparison


def test_floats_may_differ_by_a_ten_thousandth_of_the_typical_magnitude() -> None:
    # The mean magnitude of elements other than 0 is 10, so 0.001 is allowed.
    assert compared(np.float32([0.0009, 10]), np.float32([0, 10])).passed
    assert not compared(np.float32([0.0011, 10]), np.float32([0, 10])).passed


def test_a_single_operation_is_held_to_the_harness_tolerance() -> None:
    # 1e-5 + 5 * 2**-23 * 10 = 1.6e-5.
    for difference, passes in ((1.5e-5, True), (1.8e-5, False)):
        assert compared(np.float64([10 + difference, 0]), np.float64([10, 0]), SINGLE_OPERATION).passed == passes


def test_8_bit_values_may_differ_by_one_step() -> None:
    assert compared(np.uint8([1, 2]), np.uint8([2, 2])).passed
    result = compared(np.uint8([0, 2]), np.uint8([2, 2]))
    assert not result.passed
    assert (result.max_quant_diff, result.mismatches, result.beyond) == (2, 1, 1)


def test_int32_values_are_exact() -> None:
    assert not compared(np.int32([1]), np.int32([2])).passed


@pytest.mark.parametrize(
    ("actual", "expected", "difference"),
    [
        (2**53 + 1, 2**53, 1),
        (2**63 - 1, 2**63 - 300, 299),
        (-(2**63), 2**63 - 1, 2**64 - 1),
    ],
)
def test_int64_values_beyond_2_to_the_53_are_exact(actual: int, expected: int, difference: int) -> None:
    result = compared(np.int64([actual]), np.int64([expected]))
    assert (result.passed, result.mismatches, result.max_quant_diff) == (False, 1, difference)


def test_uint64_values_are_exact() -> None:
    assert compared(np.uint64([2**64 - 1]), np.uint64([2**64 - 3])).max_quant_diff == 2


@pytest.mark.parametrize("masked", [1, 7, 50, 89])
def test_a_mask_among_the_values_does_not_loosen_the_tolerance_of_the_others(masked: int) -> None:
    reference = np.linspace(1, 2, 100, dtype=np.float32)
    reference[:masked] = -1e9
    shifted = reference.copy()
    shifted[masked:] += 1000
    result = compared(shifted, reference)
    assert (result.passed, result.beyond) == (False, 100 - masked)
    # 1e-4 of a mean from 1 to 2.
    assert 1e-4 < result.atol <= 2e-4


def test_each_element_is_allowed_a_ten_thousandth_of_itself() -> None:
    reference = np.float32([1e6, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    assert compared(reference + np.float32([90] + [0] * 11), reference).passed
    assert not compared(reference + np.float32([110] + [0] * 11), reference).passed
    assert not compared(reference + np.float32([0] * 11 + [0.001]), reference).passed


def test_a_reference_of_zeros_allows_what_rounding_leaves() -> None:
    zeros = np.zeros(4, np.float32)
    assert compared(np.float32([1e-9, 0, 0, 0]), zeros).passed
    assert compared(zeros, zeros).atol == pytest.approx(2e-7)
    assert not compared(np.float32([1e-6, 0, 0, 0]), zeros).passed


def test_half_precision_may_differ_by_its_last_place() -> None:
    # Neighbours of 1 in float16 are 2**-10 apart.
    assert compared(np.float16([1 + 2**-10]), np.float16([1])).passed
    assert not compared(np.float16([1 + 3 * 2**-10]), np.float16([1])).passed


def test_tolerances_that_are_asked_for_are_used() -> None:
    assert compared(np.float32([1.1]), np.float32([1]), Tolerance(atol=0.2)).passed
    assert not compared(np.float32([1.1]), np.float32([1]), Tolerance(atol=0, rtol=0.05)).passed
    assert compared(np.uint8([4]), np.uint8([1]), Tolerance(steps=3)).passed
    assert not compared(np.int32([4]), np.int32([1]), Tolerance(steps=3)).passed


def test_values_that_are_not_finite_are_counted_and_do_not_hide_the_others() -> None:
    result = compared(np.float32([np.inf, np.nan, 1, 2.5]), np.float32([np.inf, 3, 1, 2]))
    assert (result.non_finite, result.non_finite_unequal, result.compared) == (2, 1, 2)
    assert (result.max_abs_diff, result.mean_abs_diff) == (0.5, 0.25)
    assert (result.mismatches, result.beyond, result.passed) == (2, 2, False)
    equal = compared(np.float32([-np.inf, 1]), np.float32([-np.inf, 1]))
    assert (equal.passed, equal.non_finite, equal.non_finite_unequal) == (True, 1, 0)


def test_the_worst_element_has_its_sample_index_and_values() -> None:
    comparison = OutputComparison("y", "")
    comparison.add(np.float32([[1, 2], [3, 4]]), np.float32([[1, 2], [3, 4]]), "first")
    assert comparison.worst is None
    comparison.add(np.float32([[1, 2], [3.5, 4]]), np.float32([[1, 2], [3, 4.25]]), "second")
    assert comparison.worst == Worst("second", (1, 0), 3.5, 3.0, 0.5)


def test_samples_are_not_retained() -> None:
    comparison = OutputComparison("y", "")
    sample = np.ones(200_000, np.float32)
    comparison.add(sample, sample)
    tracemalloc.start()
    for _ in range(20):
        comparison.add(sample, sample)
    retained, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert retained < sample.nbytes


def test_the_tolerance_follows_from_all_samples() -> None:
    comparison = OutputComparison("y", "")
    comparison.add(np.float32([0.005]), np.float32([0.004]))
    assert not comparison.passed
    comparison.add(np.float32([100.0]), np.float32([100.0]))
    # The mean of 0.004 and 100 (within 4,096 times of each other? no: 100 is an outlier to 0.004).
    assert not comparison.passed
    comparison.add(np.float32([10.0]), np.float32([10.0]))
    comparison.add(np.full(20, 10, np.float32), np.full(20, 10, np.float32))
    # Now 0.004 is less than a tenth of the elements: the mean is (0.004 + 100 + 210) / 23 = 13.5.
    assert comparison.passed
    assert comparison.atol == pytest.approx(0.0014)


def test_an_open_dimension_that_a_reference_refuses_is_named(tmp_path: Path) -> None:
    class Refusing:
        name = "refusing"

        def reset(self) -> None: ...

        def run(self, inputs: object) -> list[np.ndarray]:
            raise InputError(Reason("inputs that it runs", "no"))

    model = unary_chain(OperationCode.FLOOR, dims=(1, 0))
    with pytest.raises(InputError, match=r"input x leaves dimension 1 of \[1, \?\] open and 1 was used: .* --shape x=1,N"):
        list(seeded_samples(model, Refusing(), [0]))


def test_other_shapes_and_nothing_at_all_fail() -> None:
    assert not compared(np.float32([[1]]), np.float32([1])).passed
    assert not compared(np.zeros((0, 3), np.float32), np.zeros((0, 2), np.float32)).passed
    assert not OutputComparison("y", "").passed


def test_outputs_without_elements_on_both_sides_agree() -> None:
    assert compared(np.float32([]), np.float32([])).passed


def test_nan_agrees_with_nan_only() -> None:
    assert compared(np.float32([np.nan, 1]), np.float32([np.nan, 1])).passed
    assert not compared(np.float32([np.nan, 1]), np.float32([1, 1])).passed


def _stored(folder: Path, **arrays: np.ndarray) -> Path:
    path = folder / "reference.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def test_stored_samples_are_stacks_of_inputs_and_outputs(tmp_path: Path) -> None:
    model = unary_chain(OperationCode.FLOOR)
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 1, 4)
    path = _stored(tmp_path, **{"input:x": x, "output:y": np.floor(x)})
    compilation = Compilation.create(model, [])
    compilation.finish()
    result = compare(compilation, "stored", stored_samples(model, path))
    assert result.passed
    assert result.samples == 3
    assert result.as_dict()["outputs"][0]["elements"] == 12


def test_a_reference_without_the_right_arrays_says_which(tmp_path: Path) -> None:
    path = _stored(tmp_path, **{"input:x": np.zeros((1, 1, 4), np.float32)})
    with pytest.raises(InputError, match="output:y"):
        list(stored_samples(unary_chain(OperationCode.FLOOR), path))


def test_a_reference_that_is_no_npz_is_named(tmp_path: Path) -> None:
    path = tmp_path / "reference.npz"
    path.write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"reference\.npz"):
        list(stored_samples(unary_chain(OperationCode.FLOOR), path))

"""Seeded inputs, tolerances and stored references."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnbridge.compare import OutputComparison, compare, random_array, seeded_inputs, stored_samples
from nnbridge.errors import InputError
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


def compared(actual: object, expected: object) -> OutputComparison:
    comparison = OutputComparison("y", "")
    comparison.add(np.asarray(actual), np.asarray(expected))
    return comparison


def test_floats_may_differ_by_a_ten_thousandth_of_the_references_range() -> None:
    # The range is 10, so 0.001 is allowed.
    assert compared(np.float32([0.0009, 10]), np.float32([0, 10])).passed
    assert not compared(np.float32([0.0011, 10]), np.float32([0, 10])).passed


def test_a_single_operation_is_held_to_the_harness_tolerance() -> None:
    # 1e-5 + 5 * 2**-23 * 10 = 1.6e-5.
    for difference, passes in ((1.5e-5, True), (1.8e-5, False)):
        comparison = OutputComparison("y", "", single=True)
        comparison.add(np.float64([10 + difference, 0]), np.float64([10, 0]))
        assert comparison.passed == passes


def test_8_bit_values_may_differ_by_one_step() -> None:
    assert compared(np.uint8([1, 2]), np.uint8([2, 2])).passed
    result = compared(np.uint8([0, 2]), np.uint8([2, 2]))
    assert not result.passed
    assert (result.max_quant_diff, result.mismatches, result.beyond) == (2, 1, 1)


def test_int32_values_are_exact() -> None:
    assert not compared(np.int32([1]), np.int32([2])).passed


def test_other_shapes_and_nothing_at_all_fail() -> None:
    assert not compared(np.float32([[1]]), np.float32([1])).passed
    assert not compared(np.float32([]), np.float32([])).passed


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

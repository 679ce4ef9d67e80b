"""Integers where NNAPI has no operation: LiteRT's answers, bit for bit, from its reference kernels where no other is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tflite.agreement import Array, converted, run
from tests.tflite.files import TfliteBuilder

Stored = tuple[str, float, int]
"""Element type, scale and zero point."""


def computed(
    folder: Path, name: str, data: Array, scale: float, out: Stored, options: Any, *more: tuple[Array, float, int]
) -> Any:
    """The answer of one operator of data with zero point 0; ``more`` are constants with their scales and zero points."""
    builder = TfliteBuilder()
    x, y = (builder.tensor(data.shape, t, scale=s, zero_point=z) for t, s, z in ((data.dtype.name, scale, 0), out))
    builder.operator(name, [x, *(builder.constant(v, None, scale=s, zero_point=z) for v, s, z in more)], [y], options, 2)
    model, _ = converted(builder.write(folder / "m.tflite", [x], [y]))
    return run(model, {model.main.operands[model.main.inputs[0]].name: data})[0].ravel().tolist()


def test_8_bit_matrix_products_of_five_dimensions_are_rounded_as_tflite_rounds(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    scales = ((1, 1, 1, 4, 1), 0.125), ((1, 1, 1, 1, 1), 0.5), ((1, 1, 1, 4, 1), 0.25)
    x, w, y = (builder.tensor(shape, "int8", scale=scale) for shape, scale in scales)
    builder.operator("BATCH_MATMUL", [x, w], [y], {}, 2)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [x, w], [y]))
    data = np.array([-30, -26, -22, 22], np.int8).reshape(1, 1, 1, 4, 1)
    found = run(model, {"t0": data, "t1": np.ones((1, 1, 1, 1, 1), np.int8)})[0]
    assert found.ravel().tolist() == [-8, -7, -6, 6]


def test_16_bit_prelu_has_tflite_s_multipliers(tmp_path: Path) -> None:
    data, alpha = np.array([[29497], [22302], [659], [-659]], np.int16), np.array([-99], np.int8)
    out = "int16", 0.09074939042329788, 0
    found = computed(tmp_path, "PRELU", data, 0.012449114583432674, out, None, (alpha, 0.0017214328981935978, -126))
    assert found == [4047, 3060, 91, -4]


def test_a_table_of_powers_beyond_float32_wraps_as_litert_s(tmp_path: Path) -> None:
    data = np.array([4173, 4200, 32700], np.int16)
    assert computed(tmp_path, "EXP", data, 0.02, ("int16", 0.02, 0), {}) == [13056, 6144, 15360]


def test_the_sample_before_an_infinite_one_is_the_lowest_number(tmp_path: Path) -> None:
    data = np.array([0, 128], np.int16)
    assert computed(tmp_path, "EXP", data, 1.0, ("int16", 1.0, 0), {}) == [-32768, 0]


def test_16_bit_softmax_of_8_bits_is_that_of_litert_s_optimised_kernel(tmp_path: Path) -> None:
    data = np.array([117, -89, 86, -71, -52, -12, -2, 90], np.int8)
    found = computed(tmp_path, "SOFTMAX", data, 0.03072589635848999, ("int16", 1 / 65536, -32768), {"beta": 1.0})
    assert found == [2142, -32706, -19300, -32660, -32574, -32105, -31866, -17539]


@pytest.mark.parametrize("type", [np.float32, np.float64])
def test_rounding_leaves_what_is_just_below_a_half_and_what_has_no_fraction(type: Any) -> None:
    from nnbridge_tflite.host.numbers import half_away

    below, whole = np.nextafter(type(0.5), type(0)), type(2.0 ** np.finfo(type).nmant) + type(1)
    numbers = np.array([below, -below, 0.5, -0.5, 2.5, whole], type)
    assert half_away(numbers).tolist() == [0, 0, 1, -1, 3, whole]


def test_8_bit_matrix_products_into_32_bits_are_those_of_the_stored_numbers(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, w = (builder.tensor((1, 2, 2), "int8", scale=0.5, zero_point=3) for _ in range(2))
    y = builder.tensor((1, 2, 2), "int32")
    builder.operator("BATCH_MATMUL", [x, w], [y], {}, 2)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [x, w], [y]))
    data = np.array([1, 2, 3, 4], np.int8).reshape(1, 2, 2)
    assert run(model, {"t0": data, "t1": data})[0].ravel().tolist() == [7, 10, 15, 22]

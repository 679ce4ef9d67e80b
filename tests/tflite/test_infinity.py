"""Numbers beyond float32: TFLite's and Android's operators end at the largest number where an activation may be fused (N29)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tflite.agreement import Array, converted, litert, run
from tests.tflite.files import TfliteBuilder

pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
INF, LARGEST = np.inf, float(np.finfo(np.float32).max)
NUMBERS = np.float32([INF, -INF, 3e38, -3e38, 2, -1])


def answers(
    folder: Path, name: str, inputs: list[Array | None], shape: tuple[int, ...], *given: Array, **options: Any
) -> list[Any]:
    """The results of nnbridge, by all that NNAPI has and as the phone does, and of LiteRT; ``None`` stands for one of
    ``given``."""
    builder, left = TfliteBuilder(), iter(given)
    computed, ends = [], []
    for constant in inputs:
        ends.append(builder.tensor(next(left).shape) if constant is None else builder.constant(constant, constant.dtype.name))
        if constant is None:
            computed.append(ends[-1])
    y = builder.tensor(shape)
    builder.operator(name, ends, [y], options, 1)
    path = builder.write(folder / "m.tflite", computed, [y])
    feeds = {f"t{k}": array for k, array in zip(computed, given, strict=True)}
    ours = [run(converted(path, mapping=mapping)[0], feeds)[0] for mapping in ("wide", "delegate")]
    return [array.reshape(-1).tolist() for array in (*ours, litert(path, list(given))[0])]


@pytest.mark.parametrize("dims", [(6,), (1, 1, 1, 1, 6)])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ADD", [LARGEST, -LARGEST, LARGEST, -LARGEST, 4, -2]),
        ("SUB", [np.nan, np.nan, 0, 0, 0, 0]),
        ("MUL", [LARGEST, LARGEST, LARGEST, LARGEST, 4, 1]),
    ],
)
def test_sums_and_products_end_at_the_largest_number(
    dims: tuple[int, ...], name: str, expected: list[float], tmp_path: Path
) -> None:
    numbers = NUMBERS.reshape(dims)
    for found in answers(tmp_path, name, [None, None], dims, numbers, numbers, fused_activation_function=0):
        np.testing.assert_array_equal(found, expected)


def test_a_quotient_by_0_is_the_largest_number(tmp_path: Path) -> None:
    zeros = np.zeros(6, np.float32)
    for found in answers(tmp_path, "DIV", [None, None], (6,), NUMBERS, zeros, fused_activation_function=1):
        assert found == [LARGEST, 0, LARGEST, 0, LARGEST, 0]


@pytest.mark.parametrize("name", ["CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_windows_end_at_the_largest_number(name: str, tmp_path: Path) -> None:
    size = {"filter_height": 1, "filter_width": 1} if name.endswith("POOL_2D") else {}
    weights = [] if size else [np.ones((1, 1, 1, 1), np.float32), np.zeros(1, np.float32)]
    options = {"padding": 1, "stride_h": 1, "stride_w": 1, "fused_activation_function": 0, **size}
    for found in answers(tmp_path, name, [None, *weights], (1, 1, 6, 1), NUMBERS.reshape(1, 1, 6, 1), **options):
        np.testing.assert_array_equal(found, np.clip(NUMBERS, -LARGEST, LARGEST))


def test_a_convolution_of_the_host_ends_at_the_largest_number(tmp_path: Path) -> None:
    weights, options = np.full((1, 1, 1, 1, 1), 2, np.float32), {"padding": 1, "stride_d": 1, "stride_h": 1, "stride_w": 1}
    shape = (1, 1, 1, 6, 1)
    dilations = {f"dilation_{axis}_factor": 1 for axis in "dhw"}
    given = NUMBERS.reshape(shape)
    for found in answers(tmp_path, "CONV_3D", [None, weights], shape, given, fused_activation_function=0, **options, **dilations):
        assert found == [LARGEST, -LARGEST, LARGEST, -LARGEST, 4, -2]


def test_extremes_keep_infinity(tmp_path: Path) -> None:
    for found in answers(tmp_path, "MAXIMUM", [None, None], (6,), NUMBERS, np.full(6, -3, np.float32)):
        assert found == [INF, -3, float(np.float32(3e38)), -3, 2, -1]


def test_a_diagonal_has_zeros_beside_infinity(tmp_path: Path) -> None:
    for found in answers(tmp_path, "MATRIX_DIAG", [None], (2, 2), np.float32([INF, 1])):
        assert found == [INF, 0, 0, 1]


def test_relu_is_nnapi_s_which_ends_at_the_largest_number(tmp_path: Path) -> None:
    *ours, litert = answers(tmp_path, "RELU", [None], (6,), NUMBERS)
    for found in ours:
        assert found == [LARGEST, 0, float(np.float32(3e38)), 0, 2, 0]
    assert litert[0] == INF


def test_each_partial_sum_ends_at_the_largest_number(tmp_path: Path) -> None:
    first, second, third = np.float32([3e38, 1, 3e38]), np.float32([3e38, 2, 1]), np.float32([-3e38, 3, 3e38])
    for found in answers(tmp_path, "ADD_N", [None] * 3, (3,), first, second, third):
        assert found == [float(np.float32(LARGEST) - np.float32(3e38)), 6, LARGEST]


def test_a_quotient_of_infinity_is_rounded_down_to_infinity_on_the_host(tmp_path: Path) -> None:
    _, host, litert = answers(tmp_path, "FLOOR_DIV", [None, None], (6,), NUMBERS, np.full(6, -1.5, np.float32))
    assert host == litert == [-INF, INF, float(np.float32(-2e38)), float(np.float32(2e38)), -2, 0]

"""Random operators without seeds, evaluated by what they draw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tflite.agreement import Array, converted, run
from tests.tflite.files import TfliteBuilder


def _drawn(folder: Path, name: str, inputs: list[Any], out: tuple[tuple[int, ...], str], options: dict[str, int]) -> Array:
    builder = TfliteBuilder()
    made = builder.tensor(*out)
    builder.operator(name, [builder.constant(*given) for given in inputs], [made], options)
    model, _ = converted(builder.write(folder / "m.tflite", [], [made]))
    return run(model, {})[0]


def test_uniform_numbers_fill_the_unit_interval_evenly(tmp_path: Path) -> None:
    drawn = _drawn(tmp_path, "RANDOM_UNIFORM", [([100_000], "int32")], ((100_000,), "float32"), {})
    assert (drawn.min() >= 0, drawn.max() < 1) == (True, True)
    # A tenth each, with a standard deviation of 95 numbers.
    assert np.abs(np.histogram(drawn, 10, (0, 1))[0] - 10_000).max() < 600


def test_normal_numbers_have_mean_0_and_deviation_1(tmp_path: Path) -> None:
    drawn = _drawn(tmp_path, "RANDOM_STANDARD_NORMAL", [([100_000], "int32")], ((100_000,), "float32"), {})
    assert abs(drawn.mean()) < 0.02
    assert abs(drawn.std() - 1) < 0.02
    # 68.27 % lie within one deviation.
    assert abs((np.abs(drawn) < 1).mean() - 0.6827) < 0.01


def test_classes_are_as_likely_as_their_logits_say(tmp_path: Path) -> None:
    inputs = [([[0, np.log(3), -np.inf, np.log(4)]], "float32"), (50_000, "int32")]
    drawn = _drawn(tmp_path, "MULTINOMIAL", inputs, ((1, 50_000), "int64"), {})
    shares = np.bincount(drawn.reshape(-1), minlength=4) / 50_000
    np.testing.assert_allclose(shares, [1 / 8, 3 / 8, 0, 1 / 2], atol=0.02)


@pytest.mark.parametrize(("options", "same"), [({"seed": 3}, True), ({}, False)])
def test_seeds_name_a_stream_and_no_seeds_name_none(options: dict[str, int], same: bool, tmp_path: Path) -> None:
    first, second = (_drawn(tmp_path, "RANDOM_UNIFORM", [([20], "int32")], ((20,), "float32"), options) for _ in range(2))
    assert np.array_equal(first, second) == same

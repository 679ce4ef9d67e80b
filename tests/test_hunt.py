"""The hunter: what counts as a difference, which rule explains it, and the operator that differs alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.tflite.files import TfliteBuilder

pytest.importorskip("ai_edge_litert")

from scripts.nets import hunt

from nnbridge.engines import accelerator


def test_small_differences_and_equal_infinities_are_none() -> None:
    right = np.array([0.0, 1.0, np.inf], np.float32)
    assert hunt.difference([right + np.float32(1e-5)], [right]) == ""
    assert hunt.difference([np.array([3], np.int8)], [np.array([4], np.int8)]) == ""


@pytest.mark.parametrize(
    ("ours", "right", "symptom"),
    [
        (np.zeros((2, 1)), np.zeros(2), "other dimensions"),
        (np.array([np.nan]), np.array([1.0]), "not finite"),
        (np.array([0.5, 1.0]), np.array([0.0, 1.0]), "other numbers"),
        (np.array([1], np.int8), np.array([4], np.int8), "other integers"),
        (np.array([1], np.int32), np.array([2], np.int32), "other integers"),
        (np.array([True]), np.array([False]), "other integers"),
    ],
)
def test_what_differs_has_a_symptom(ours: np.ndarray, right: np.ndarray, symptom: str) -> None:
    assert hunt.difference([ours], [right]).startswith(symptom)


def _relu_then_constant(folder: Path) -> bytes:
    file = TfliteBuilder()
    value, middle, out = file.tensor((8, 16)), file.tensor((8, 16)), file.tensor((8, 16))
    file.operator("TANH", [value], [middle], {})
    constant = file.constant(np.arange(128).reshape(8, 16), "float32")
    file.operator("ADD", [middle, constant], [out], {"fused_activation_function": 0})
    return file.write(folder / "m.tflite", [value], [out]).read_bytes()


def test_a_caught_graph_is_reduced_to_the_operator_and_its_rule_named(tmp_path: Path) -> None:
    if (missing := accelerator.unavailable()) is not None:
        pytest.skip(str(missing))
    content = _relu_then_constant(tmp_path)
    (cold,) = hunt.Hunt(["litert-gpu-float32"], cold=True).catches(content)
    assert (cold.operators, cold.known) == (("TANH", "ADD"), "")
    (warm,) = hunt.Hunt(["litert-gpu-float32"], cold=False).catches(content)
    assert "constant of lower rank" in warm.known
    found = hunt.Hunt(["litert-gpu-float32"], cold=True).reduced(cold)
    assert found.operators == ("ADD",)
    assert "litert-gpu-float32 | other numbers" in hunt.page(found, 2, "m.tflite")

"""Nodes that ONNX Runtime's NNAPI provider would hand over."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.converters import ConversionOptions
from nnbridge.errors import ConversionError
from nnbridge.file import ModelFile, load
from tests.conftest import MODELS
from tests.onnx.test_convert import model, quantised_network

onnx = pytest.importorskip("onnx")
make = onnx.helper.make_node


def placed(path: Path, level: int = 8, layout: str = "auto") -> dict[str, str]:
    """Node -> why the provider leaves it, or nothing."""
    _, mapped = ModelFile(path, ConversionOptions(level, "provider", layout)).converted
    return {m.operator: m.reasons[0].rule if m.mapping == "host" else "" for m in mapped}


WEIGHTS = {"w": np.ones((4, 4, 1, 1), np.float32)}
VECTOR = {"a": np.ones((1, 4, 1, 1), np.float32)}

CASES: list[tuple[str, Any, dict[str, np.ndarray], int, str]] = [
    ("plain", make("Conv", ["x", "w"], ["y"]), WEIGHTS, 2, ""),
    ("level", make("Conv", ["x", "w"], ["y"]), WEIGHTS, 1, "feature level 2"),
    ("1d", make("Conv", ["x", "w"], ["y"], dilations=[2, 2]), WEIGHTS, 2, "feature level 3 for dilations"),
    ("atan", make("Atan", ["x"], ["y"]), {}, 8, "an operator that the provider maps"),
    ("erf", make("Erf", ["x"], ["y"]), {}, 8, "an operator that the provider maps"),
    ("relu6", make("Clip", ["x", "l", "h"], ["y"]), {"l": np.float32(0), "h": np.float32(6)}, 1, ""),
    ("clip", make("Clip", ["x", "l", "h"], ["y"]), {"l": np.float32(0), "h": np.float32(5)}, 8, "bounds of 0 and 6 or -1 and 1"),
    ("pow", make("Pow", ["x", "a"], ["y"]), VECTOR, 2, "feature level 3"),
    ("sum", make("Max", ["x", "a", "a"], ["y"]), VECTOR, 8, "two operands"),
    ("elu", make("Elu", ["x"], ["y"]), {}, 3, "feature level 4"),
    ("ceil", make("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], ceil_mode=1), {}, 8, "ceil_mode of 0"),
    ("counted", make("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], count_include_pad=1), {}, 8, "count_include_pad of 0"),
    ("softmax", make("Softmax", ["x"], ["y"], axis=1), {}, 3, ""),
    ("axis", make("Softmax", ["x"], ["y"], axis=2), {}, 2, "the last axis from opset 13 on, below feature level 3"),
    ("alone", make("Identity", ["x"], ["y"]), {}, 8, "more than one node that only copies"),
    ("reflect", make("Pad", ["x", "p"], ["y"], mode="reflect"), {"p": np.array([0, 0, 1, 1] * 2)}, 8, "mode of constant"),
]


@pytest.mark.parametrize(("node", "constants", "level", "rule"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_the_reason_of_each_operator(node: Any, constants: dict[str, np.ndarray], level: int, rule: str, tmp_path: Path) -> None:
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    assert placed(model(tmp_path, [node], [1, 4, 6, 6], arrays), level)[node.op_type] == rule


def test_pooling_in_the_files_own_layout_needs_feature_level_3(tmp_path: Path) -> None:
    path = model(tmp_path, [make("GlobalAveragePool", ["x"], ["y"])], [1, 4, 6, 6], {})
    assert placed(path, 2)["GlobalAveragePool"] == ""
    assert placed(path, 2, "nchw")["GlobalAveragePool"] == "feature level 3 for the NCHW layout"


def test_what_is_refused_alone_is_not_fused_into_what_is_taken(tmp_path: Path) -> None:
    nodes = [make("Conv", ["x", "w"], ["c"]), make("Clip", ["c", "l"], ["y"])]
    path = model(tmp_path, nodes, [1, 4, 6, 6], {**WEIGHTS, "l": np.array(0, np.float32)})
    assert placed(path) == {"Conv": "", "Clip": "bounds of 0 and 6 or -1 and 1"}


def test_a_group_between_quantisations_is_taken_whole(tmp_path: Path) -> None:
    nodes, constants = quantised_network(per_channel=True)
    found = placed(model(tmp_path, nodes, [1, 4, 5, 5], constants))
    assert set(found.values()) == {""}


@pytest.mark.parametrize(("dtype", "rule"), [(np.uint8, ""), (np.int8, "UINT8 values")])
def test_the_scales_of_a_resize_do_not_keep_it_out_of_a_group(dtype: Any, rule: str, tmp_path: Path) -> None:
    constants = {"s": np.array(0.05, np.float32), "z": np.array(0, dtype), "k": np.array([1, 1, 2, 2], np.float32)}
    modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    nodes = [
        make("QuantizeLinear", ["x", "s", "z"], ["q"]),
        make("DequantizeLinear", ["q", "s", "z"], ["d"]),
        make("Resize", ["d", "", "k"], ["r"], **modes),
        make("QuantizeLinear", ["r", "s", "z"], ["p"]),
        make("DequantizeLinear", ["p", "s", "z"], ["y"]),
    ]
    found = placed(model(tmp_path, nodes, [1, 4, 6, 6], constants))["Resize"]
    assert found.partition(" with")[0] == rule


def test_a_group_of_an_operator_without_a_quantised_form_is_left_whole(tmp_path: Path) -> None:
    constants = {"s": np.array(0.05, np.float32), "z": np.array(128, np.uint8)}
    nodes = [
        make("QuantizeLinear", ["x", "s", "z"], ["a"]),
        make("DequantizeLinear", ["a", "s", "z"], ["b"]),
        make("Sigmoid", ["b"], ["c"]),
        make("QuantizeLinear", ["c", "s", "z"], ["d"]),
        make("DequantizeLinear", ["d", "s", "z"], ["y"]),
    ]
    path = model(tmp_path, nodes, [1, 4], constants)
    _, mapped = ModelFile(path, ConversionOptions(mapping="provider")).converted
    assert [m.mapping for m in mapped] == ["provider", "host", "host", "host", "provider"]
    assert "between DequantizeLinear and QuantizeLinear" in mapped[1].reasons[0].rule


def test_the_digit_classifier_is_taken_whole() -> None:
    converted, mapped = ModelFile(MODELS / "digits_float32.onnx", ConversionOptions(mapping="provider")).converted
    assert Counter(m.mapping for m in mapped)["host"] == 0
    assert {operation.mapping for operation in converted.main.operations} == {"provider"}


def test_a_mapping_of_another_format_is_refused() -> None:
    with pytest.raises(ConversionError, match="mapping"):
        load(MODELS / "digits_float32.onnx", ConversionOptions(mapping="delegate"))

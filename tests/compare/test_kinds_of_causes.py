"""Every kind of cause that a comparison names has a test that shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.compare.causes import KINDS, LoneOperation, explain
from nnbridge.compare.explanation import AMPLIFIED, FUSIONS
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode
from tests.commands import call
from tests.conftest import REPOSITORY

SHOWN = {
    "random_numbers": "tests/onnx/test_repair.py::test_random_numbers_are_named_as_the_cause_of_a_difference",
    "state_dropped": "tests/compare/test_causes_of_runs.py::test_a_state_that_the_delegate_drops_is_the_cause",
    "device_arithmetic": "tests/compare/test_causes.py::test_what_nnapis_cpu_computes_as_the_reference_does_is_the_devices",
    "mean_truncates": "tests/compare/test_causes.py::test_a_mean_that_the_reference_rounds_is_explained",
    "sign_flipped": "tests/compare/test_causes.py::test_an_average_of_int8_that_android_10_computes_on_uint8_is_explained",
    "qdq_in_float": "tests/compare/test_kinds_of_causes.py::test_a_resize_between_quantisations_has_its_cause",
    "resize_truncates": "tests/compare/test_litert_arithmetic.py::test_resized_uint8_has_litert_s_values",
    "rescaling": "tests/compare/test_causes.py::test_a_scale_that_the_reference_changes_in_fixed_point_is_explained",
    "tie_order": "tests/compare/test_causes.py::test_boxes_of_equal_scores_in_another_order_are_explained",
    "sum_order": "tests/compare/test_kinds_of_causes.py::test_a_sum_in_another_order_is_explained_and_a_larger_difference_is_not",
    "function_rounding": "tests/compare/test_causes.py::"
    "test_last_digits_beside_values_that_are_not_finite_on_either_side_are_explained",
    "dynamic_range": "tests/compare/test_causes.py::test_json_names_the_operators_that_explain_a_difference",
    FUSIONS: "tests/compare/test_network_causes.py::test_",
    AMPLIFIED: "tests/compare/test_network_causes.py::test_",
}


def test_every_kind_has_a_test_and_no_other_is_listed() -> None:
    assert [*SHOWN] == [*KINDS, FUSIONS, AMPLIFIED]
    for test in SHOWN.values():
        file, name = test.split("::")
        assert f"def {name}" in (REPOSITORY / file).read_text()


@pytest.mark.parametrize("mapping", ["wide", "provider"])
@pytest.mark.parametrize(
    ("mode", "rule", "type"),
    [
        ("linear", "asymmetric", np.uint8),
        ("linear", "asymmetric", np.int8),
        ("linear", "half_pixel", np.uint8),
        ("linear", "half_pixel", np.int8),
        ("cubic", "asymmetric", np.uint8),
    ],
)
def test_a_resize_between_quantisations_has_its_cause(mode: str, rule: str, type: Any, mapping: str, tmp_path: Path) -> None:
    """ONNX Runtime computes it in floats and rounds ties to even; last digits that differ move values over the middle."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    make, array = onnx.helper.make_node, onnx.numpy_helper.from_array
    point = type(120 if type is np.uint8 else -8)
    nodes = [
        make("QuantizeLinear", ["x", "s", "z"], ["q"]),
        make("DequantizeLinear", ["q", "s", "z"], ["a"]),
        make("Resize", ["a", "", "k"], ["b"], mode=mode, coordinate_transformation_mode=rule),
        make("QuantizeLinear", ["b", "s", "z"], ["r"]),
        make("DequantizeLinear", ["r", "s", "z"], ["y"]),
    ]
    constants = {"s": np.float32(0.02), "z": point, "k": np.float32([1, 1, 2, 2])}
    ends = [onnx.helper.make_tensor_value_info(*end) for end in (("x", 1, [1, 2, 7, 7]), ("y", 1, None))]
    graph = onnx.helper.make_graph(nodes, "graph", ends[:1], ends[1:], [array(np.asarray(v), n) for n, v in constants.items()])
    path = tmp_path / "resize.onnx"
    opsets = [onnx.helper.make_opsetid("", 18)]
    path.write_bytes(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())
    shown = call(
        "compare", path, "--reference", "onnxruntime", "--layers", "--mapping", mapping, "--host", "nnbridge", "--seeds", "0-9",
        "--json",
    )  # fmt: skip
    found = json.loads(shown.stdout)
    causes = {row["operator"].split()[1]: row["cause"]["kind"] for row in found["layers"] if row["cause"]}
    expected = {"QuantizeLinear": "qdq_in_float", "Resize": "function_rounding"}
    if mapping == "provider" and type is np.uint8 and mode == "linear":  # NNAPI's RESIZE_BILINEAR of 8 bits
        expected = {"Resize": "qdq_in_float"}
    assert causes.items() <= expected.items()
    assert set(causes) & {"Resize", "QuantizeLinear"}
    assert all(row["cause"] for row in found["layers"] if row["own_error"] and row["own_error"]["mismatches"])


def product(actual: float, expected: float) -> LoneOperation:
    """1e8 + 1 - 1e8 as the only element of a FULLY_CONNECTED."""
    builder = ModelBuilder("product")
    x = builder.add_operand(T.TENSOR_FLOAT32, (1, 3))
    weights, bias = builder.add_operand(T.TENSOR_FLOAT32, (1, 3)), builder.add_operand(T.TENSOR_FLOAT32, (1,))
    activation = builder.add_operand(T.INT32)
    builder.set_operand_value(weights, np.ones((1, 3), np.float32))
    builder.set_operand_value(bias, np.zeros(1, np.float32))
    builder.set_operand_value(activation, np.int32(0))
    y = builder.add_operand(T.TENSOR_FLOAT32, (1, 1))
    builder.add_operation(OperationCode.FULLY_CONNECTED, [x, weights, bias, activation], [y])
    builder.identify_inputs_and_outputs([x], [y])
    sides = (np.float32([[value]]) for value in (actual, expected))
    numbers = [np.float32([[1e8, 1, -1e8]])]
    return LoneOperation(builder.finish(), numbers, *sides, "0 FULLY_CONNECTED", "FULLY_CONNECTED", "litert", "nnapi-reference")


def test_a_sum_in_another_order_is_explained_and_a_larger_difference_is_not() -> None:
    # In float32, 1e8 + 1 is 1e8: the sum is 0 from the left and 1 in float64; 100 is no order's.
    cause = explain(product(0, 1))
    assert cause is not None
    assert (cause.kind, "other orders of the sums change as much" in cause.sentence) == ("sum_order", True)
    assert (found := explain(product(0, 100))) is None or found.kind != "sum_order"

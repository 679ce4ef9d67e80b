"""Causes of differences: each is verified by computing the operation again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from flatbuffers import flexbuffers

from nnbridge.builder import ModelBuilder
from nnbridge.compare.causes import KINDS, Cause, LoneOperation, explain
from nnbridge.model import Model
from nnbridge.report.outputs import cause_lines
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode
from tests.commands import call
from tests.conftest import MODELS, REPOSITORY
from tests.tflite.files import TfliteBuilder


def mean_of_four(scale: float = 1.0) -> Model:
    builder = ModelBuilder("mean")
    x = builder.add_operand(T.TENSOR_QUANT8_ASYMM, (1, 4), scale=1.0, zero_point=0)
    axes, keep = builder.add_operand(T.TENSOR_INT32, (1,)), builder.add_operand(T.INT32)
    builder.set_operand_value(axes, np.int32([1]))
    builder.set_operand_value(keep, np.int32(0))
    y = builder.add_operand(T.TENSOR_QUANT8_ASYMM, (1,), scale=1.0, zero_point=0)
    builder.add_operation(OperationCode.MEAN, [x, axes, keep], [y])
    if scale != 1:
        real, z = builder.add_operand(T.TENSOR_FLOAT32, (1,)), builder.add_operand(T.TENSOR_QUANT8_ASYMM, (1,), scale=scale)
        builder.add_operation(OperationCode.DEQUANTIZE, [y], [real])
        builder.add_operation(OperationCode.QUANTIZE, [real], [z])
        y = z
    builder.identify_inputs_and_outputs([x], [y])
    return builder.finish()


def mean_case(expected: int) -> LoneOperation:
    # (1 + 1 + 1 + 0) / 4 is 0 truncated, 1 to nearest.
    x = np.uint8([[1, 1, 1, 0]])
    return LoneOperation(mean_of_four(), [x], np.uint8([0]), np.uint8([expected]), "7 MEAN", "MEAN", "litert", "nnapi-reference")


def test_a_mean_that_the_reference_rounds_is_explained() -> None:
    cause = explain(mean_case(1))
    assert cause is not None
    assert (cause.kind, cause.operation, cause.operator) == ("mean_truncates", "MEAN", "7 MEAN")


def test_a_mean_that_changes_scale_is_explained() -> None:
    # 0.75 is 3 steps of 1/4; truncated before it changes scale it is 0.
    case = replace(mean_case(3), model=mean_of_four(0.25), operation="QUANTIZE")
    assert (cause := explain(case)) is not None
    assert (cause.kind, cause.operation) == ("mean_truncates", "MEAN")


def test_what_no_arithmetic_computes_is_not_explained() -> None:
    assert explain(mean_case(9)) is None


def test_what_nnapis_cpu_computes_as_the_reference_does_is_the_devices() -> None:
    case = replace(mean_case(0), actual=np.uint8([5]), device="my-npu")
    cause = explain(case)
    assert cause is not None
    assert (cause.kind, "my-npu" in cause.sentence) == ("device_arithmetic", True)


def halves(expected: list[int]) -> LoneOperation:
    builder = ModelBuilder("halves")
    x = builder.add_operand(T.TENSOR_QUANT8_ASYMM_SIGNED, (2,), scale=0.5)
    real = builder.add_operand(T.TENSOR_FLOAT32, (2,))
    y = builder.add_operand(T.TENSOR_QUANT8_ASYMM_SIGNED, (2,), scale=1.0)
    builder.add_operation(OperationCode.DEQUANTIZE, [x], [real])
    builder.add_operation(OperationCode.QUANTIZE, [real], [y])
    builder.identify_inputs_and_outputs([x], [y])
    inputs, actual = [np.int8([-1, 1])], np.int8([-1, 1])
    return LoneOperation(
        builder.finish(), inputs, actual, np.int8(expected), "2 QUANTIZE", "QUANTIZE", "litert", "nnapi-reference"
    )


def test_a_scale_that_the_reference_changes_in_fixed_point_is_explained() -> None:
    # -1/2 is -1 as a real number that is rounded; in fixed point halves go up.
    cause = explain(halves([0, 1]))
    assert cause is not None
    assert (cause.kind, cause.operation, cause.operator) == ("rescaling", "QUANTIZE", "2 QUANTIZE")


def test_a_scale_that_is_changed_otherwise_is_not_explained() -> None:
    assert explain(halves([1, 0])) is None


def four_boxes(expected: list[list[float]]) -> LoneOperation:
    """Boxes at 1, 1, 3 and 5, of which the second, suppressed by the first, leaves its place to the last."""
    builder = ModelBuilder("boxes")
    scores, deltas = (builder.add_operand(T.TENSOR_FLOAT32, dims) for dims in ((1, 4, 2), (1, 4, 4)))
    centres = np.float32([[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 2, 2], [5, 5, 2, 2]])
    anchors = builder.add_operand(T.TENSOR_FLOAT32, (4, 4))
    builder.set_operand_value(anchors, centres)
    numbers = [1.0, 1.0, 1.0, 1.0, False, 3, 1, 3, 0.1, 0.5, False]
    types = {float: (T.FLOAT32, np.float32), bool: (T.BOOL, np.bool_), int: (T.INT32, np.int32)}
    scalars = [builder.add_operand(types[type(number)][0]) for number in numbers]
    for operand, number in zip(scalars, numbers, strict=True):
        builder.set_operand_value(operand, types[type(number)][1](number))
    types_out = (T.TENSOR_FLOAT32, (1, 3)), (T.TENSOR_FLOAT32, (1, 3, 4)), (T.TENSOR_INT32, (1, 3)), (T.TENSOR_INT32, (1,))
    outputs = [builder.add_operand(*one) for one in types_out]
    builder.add_operation(OperationCode.DETECTION_POSTPROCESSING, [scores, deltas, anchors, *scalars], outputs)
    builder.identify_inputs_and_outputs([scores, deltas], [outputs[1]])
    of_each = np.float32([[[0, 0.9], [0, 0.8], [0, 0.5], [0, 0.5]]])
    actual, theirs = (np.float32([[[c - 1, c - 1, c + 1, c + 1] for c in row]]) for row in ([1, 5, 3], expected))
    return LoneOperation(
        builder.finish(),
        [of_each, np.zeros((1, 4, 4), np.float32)],
        actual,
        theirs,
        "63 TFLite_Detection_PostProcess",
        "DETECTION_POSTPROCESSING",
        "litert",
        "nnapi-reference",
    )


def test_boxes_of_equal_scores_in_another_order_are_explained() -> None:
    cause = explain(four_boxes([1, 3, 5]))
    assert cause is not None
    assert (cause.kind, cause.operation) == ("tie_order", "DETECTION_POSTPROCESSING")


def test_boxes_of_unequal_scores_in_another_order_are_not_explained() -> None:
    assert explain(four_boxes([5, 1, 3])) is None


def quantize_file(path: Path) -> Path:
    builder = TfliteBuilder()
    x, y = builder.tensor((1000,), "uint8", scale=0.0371, zero_point=128), builder.tensor((1000,), "int8", scale=0.25)
    builder.operator("QUANTIZE", [x], [y], {}, 2)
    return builder.write(path, [x], [y])


def test_a_comparison_of_real_numbers_is_not_explained_by_scales() -> None:
    builder = ModelBuilder("equal")
    x, y = (builder.add_operand(T.TENSOR_FLOAT32, (2,)) for _ in range(2))
    out = builder.add_operand(T.TENSOR_BOOL8, (2,))
    builder.add_operation(OperationCode.EQUAL, [x, y], [out])
    builder.identify_inputs_and_outputs([x, y], [out])
    inputs, actual, theirs = [np.float32([1, 2]), np.float32([3, 4])], np.array([False] * 2), np.array([True] * 2)
    case = LoneOperation(builder.finish(), inputs, actual, theirs, "0 EQUAL", "EQUAL", "litert", "nnapi-reference")
    assert explain(case) is None


def test_numbers_without_an_input_are_not_explained() -> None:
    builder = ModelBuilder("fill")
    dims, value, out = (builder.add_operand(*t) for t in ((T.TENSOR_INT32, (1,)), (T.INT32,), (T.TENSOR_INT32, (2,))))
    builder.set_operand_value(dims, np.int32([2]))
    builder.set_operand_value(value, np.int32(7))
    builder.add_operation(OperationCode.FILL, [dims, value], [out])
    builder.identify_inputs_and_outputs([], [out])
    model, found = builder.finish(), np.int32([7, 7])
    assert explain(LoneOperation(model, [], found, np.int32([8, 8]), "0 FILL", "FILL", "litert", "nnapi-reference")) is None


def equal_file(path: Path) -> Path:
    # One step of either is 1/256, rounded: LiteRT takes them for equal.
    builder = TfliteBuilder()
    x, y = (builder.tensor((1000,), "uint8", scale=scale, zero_point=4) for scale in (0.003, 0.004))
    out = builder.tensor((1000,), "bool")
    builder.operator("EQUAL", [x, y], [out], {}, 2)
    return builder.write(path, [x, y], [out])


def topk_file(path: Path) -> Path:
    builder = TfliteBuilder()
    x, y = (builder.tensor((size,), "int8", scale=0.1) for size in (1000, 9))
    places = builder.tensor((9,), "int32")
    builder.operator("TOPK_V2", [x, builder.constant(np.int32(9))], [y, places], {}, 2)
    return builder.write(path, [x], [y, places])


def detection_file(path: Path, *, regular: bool) -> Path:
    builder, rng, boxes, limit = TfliteBuilder(), np.random.default_rng(0), 400, 20
    deltas = builder.tensor((1, boxes, 4), "uint8", scale=0.02, zero_point=128)
    scores = builder.tensor((1, boxes, 3), "uint8", scale=1 / 256)
    # LiteRT reads anchors as it reads boxes. They are large, so that most of them are suppressed.
    anchors = builder.constant(rng.integers(100, 200, (boxes, 4)), "uint8", scale=0.004)
    outputs = [builder.tensor(dims) for dims in ((1, limit, 4), (1, limit), (1, limit), (1,))]
    numbers = {"y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0, "nms_iou_threshold": 0.6}
    numbers |= {"max_detections": limit, "max_classes_per_detection": 1, "num_classes": 2, "nms_score_threshold": 0.1}
    options = bytes(flexbuffers.Dumps(numbers | {"use_regular_nms": regular, "detections_per_class": 100}))
    builder.operator("TFLite_Detection_PostProcess", [deltas, scores, anchors], outputs, custom=options)
    return builder.write(path, [deltas, scores], outputs)


@pytest.mark.parametrize(
    ("write", "mapping", "kind", "operation"),
    [
        (quantize_file, "wide", "rescaling", "QUANTIZE"),
        (equal_file, "wide", "rescaling", "EQUAL"),
        (topk_file, "delegate", "tie_order", "TOPK_V2"),
        (partial(detection_file, regular=False), "wide", "tie_order", "DETECTION_POSTPROCESSING"),
        (partial(detection_file, regular=True), "wide", "tie_order", "DETECTION_POSTPROCESSING"),
    ],
)
def test_what_litert_computes_otherwise_has_its_cause_once(
    write: Callable[[Path], Path], mapping: str, kind: str, operation: str, tmp_path: Path
) -> None:
    pytest.importorskip("ai_edge_litert")
    causes = compared(write(tmp_path / "one.tflite"), "litert", "--mapping", mapping, "--seeds", "0")["causes"]
    assert isinstance(causes, list)
    assert [(cause["kind"], cause["operation"]) for cause in causes] == [(kind, operation)]


@pytest.mark.parametrize("document", ["layers.md", "schemas/common.json"])
def test_every_kind_is_documented(document: str) -> None:
    text = (REPOSITORY / "docs" / document).read_text()
    assert [kind for kind in KINDS if f"`{kind}`" not in text and f'"{kind}"' not in text] == []


def logarithm(actual: list[float]) -> LoneOperation:
    builder = ModelBuilder("log")
    x, y = builder.add_operand(T.TENSOR_FLOAT32, (3,)), builder.add_operand(T.TENSOR_FLOAT32, (3,))
    builder.add_operation(OperationCode.LOG, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    inputs, expected = [np.float32([-1, 0, 3])], np.float32([np.nan, -np.inf, np.log(3)])
    return LoneOperation(builder.finish(), inputs, np.float32(actual), expected, "0 LOG", "LOG", "litert", "nnapi-reference")


def test_last_digits_beside_values_that_are_not_finite_on_either_side_are_explained() -> None:
    cause = explain(logarithm([np.nan, -np.inf, np.nextafter(np.float32(np.log(3)), np.float32(2))]))
    assert cause is not None
    assert cause.kind == "function_rounding"


@pytest.mark.parametrize("actual", [[0, -np.inf, np.log(3)], [np.nan, np.inf, np.log(3)]])
def test_values_that_are_not_finite_on_one_side_are_not_explained(actual: list[float]) -> None:
    assert explain(logarithm(actual)) is None


def compared(name: str | Path, reference: str, *options: str) -> dict[str, object]:
    path = str(MODELS / name)
    asked = ["--reference", reference, "--mapping", "wide", "--seeds", "2", "--json", *options]
    result = call("compare", path, *asked)
    data: dict[str, object] = json.loads(result.stdout)
    return data


def test_an_average_of_int8_that_android_10_computes_on_uint8_is_explained() -> None:
    pytest.importorskip("ai_edge_litert")
    causes = compared("digits_int8.tflite", "litert", "--feature-level", "3")["causes"]
    assert isinstance(causes, list)
    assert [(cause["kind"], cause["operator"]) for cause in causes] == [("sign_flipped", "4 AVERAGE_POOL_2D")]


@pytest.mark.parametrize("layers", [(), ("--layers",)])
@pytest.mark.parametrize(
    ("name", "reference", "kind"),
    [("digits_dynamic.tflite", "litert", "dynamic_range"), ("digits_qdq.onnx", "onnxruntime", "qdq_in_float")],
)
def test_json_names_the_operators_that_explain_a_difference(
    name: str, reference: str, kind: str, layers: tuple[str, ...]
) -> None:
    causes = compared(name, reference, *layers)["causes"]
    assert isinstance(causes, list)
    found = [cause for cause in causes if cause["kind"] == kind]
    assert found
    assert all(set(cause) == {"kind", "operation", "operator", "sentence"} for cause in causes)
    assert all(cause["operator"][0].isdigit() for cause in found)


def test_averages_that_onnx_runtime_rounds_to_even_are_explained() -> None:
    causes = compared("digits_qdq.onnx", "onnxruntime", "--layers")["causes"]
    assert isinstance(causes, list)
    assert [cause["kind"] for cause in causes if cause["operator"] == "25 AveragePool"] == ["qdq_in_float"]


def test_equal_outputs_have_no_causes() -> None:
    assert compared("digits_int8.tflite", "litert", "--layers")["causes"] == []


def test_a_profile_that_rounds_otherwise_is_named(tmp_path: Path) -> None:
    profile = tmp_path / "npu.toml"
    profile.write_text(
        '[[device]]\nname = "npu"\nnumerics = "float_requantised"\noperations.others = {}\nperformance.other = [0.5, 0.5]'
    )
    data = compared("digits_uint8.tflite", "litert", "--layers", "--device", str(profile), "--quant-steps", "0")
    causes = data["causes"]
    assert isinstance(causes, list)
    assert {cause["kind"] for cause in causes} == {"device_arithmetic"}


def cause(operator: str, text: str) -> Cause:
    return Cause("device_arithmetic", "CONV_2D", operator, f"{operator}: {text}" if operator else text)


@pytest.mark.parametrize(
    ("operators", "line"),
    [
        ((), None),
        (("0 CONV_2D",), "0 CONV_2D: npu rounds differently"),
        (("",), "npu rounds differently"),
        (("0 CONV_2D", "0 CONV_2D"), "0 CONV_2D: npu rounds differently"),
        (("0 A", "1 B", "2 C"), "0 A, 1 B, 2 C: npu rounds differently"),
        (("0 A", "1 B", "2 C", "3 D"), "4 operators (0 A, 1 B, 2 C, …): npu rounds differently"),
    ],
)
def test_operators_with_one_cause_are_one_line(operators: tuple[str, ...], line: str | None) -> None:
    assert cause_lines([cause(each, "npu rounds differently") for each in operators]) == ([line] if line else [])


def test_different_causes_are_a_line_each_and_those_beyond_ten_are_counted() -> None:
    lines = cause_lines([cause(f"{k} MEAN", f"by {k}") for k in range(12)], "Cause: ")
    assert lines[0] == "Cause: 0 MEAN: by 0"
    assert lines[-1] == "2 more causes: see --json"
    assert len(lines) == 11

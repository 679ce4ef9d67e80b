"""Causes of differences: each is verified by computing the operation again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.compare.causes import LoneOperation, explain
from nnbridge.model import Model
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode
from tests.commands import call
from tests.conftest import MODELS


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


def compared(name: str, reference: str, *options: str) -> dict[str, object]:
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

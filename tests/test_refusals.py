"""Refusals as data: their kinds, a plan in one sentence, and what no device accepts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nnbridge
from nnbridge.errors import Why
from tests.commands import call
from tests.conftest import MODELS
from tests.tflite.files import TfliteBuilder
from tests.tflite.shared import real_model

DIGITS = str(MODELS / "digits_float32.tflite")
DOCUMENT = Path(__file__).parents[1] / "docs" / "refusals.md"


def plan(*arguments: str, status: int = 0) -> Any:
    result = call("plan", *arguments, "--json")
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def reasons(data: Any) -> list[dict[str, str]]:
    """All reasons of a plan: the devices', and those of the conversion."""
    found = [reason for operation in data["operations"] for reason in operation["reasons"]]
    return found + [reason for outcome in data["conversion"].values() for o in outcome["operators"] for reason in o["reasons"]]


def test_the_kinds_cover_the_failure_types_of_tflites_compatibility_checker() -> None:
    # tensorflow/lite/tools/delegates/compatibility/protos/compatibility_result.proto, in its order
    types = """UNSUPPORTED_QUANTIZATION_PARAMETERS INVALID_ARGUMENT INTERNAL_ERROR UNIMPLEMENTED_ERROR OUT_OF_RANGE
        UNSUPPORTED_OPERATOR UNSUPPORTED_VERSION UNSUPPORTED_OPERATOR_VERSION UNSUPPORTED_INPUT_TYPE
        NOT_RESTRICTED_SCALE_COMPLIANT UNSUPPORTED_OUTPUT_TYPE UNSUPPORTED_OPERAND_SIZE UNSUPPORTED_OPERAND_VALUE
        UNSUPPORTED_HYBRID_OPERATOR UNSUPPORTED_QUANTIZATION_TYPE MISSING_REQUIRED_OPERAND UNSUPPORTED_OPERAND_RANK
        INPUT_TENSOR_SHOULD_HAVE_CONSTANT_SHAPE UNSUPPORTED_OPERATOR_VARIANT NO_ACTIVATION_EXPECTED"""
    assert {kind.failure for kind in Why} - {""} == {f"DCC_{name}" for name in types.split()}


def test_the_document_lists_every_kind_with_its_failure_type() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| [^|]+ \| `?([A-Z_]*)`?", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(kind.value, kind.failure.removeprefix("DCC_")) for kind in Why]


@pytest.mark.parametrize("mapping", ["phone", "wide"])
@pytest.mark.parametrize("model", ["yamnet_wavin_quantized_mel_relu6", "movenet_single_pose_lightning_ptq"])
def test_every_no_has_a_kind(model: str, mapping: str) -> None:
    data = plan(str(real_model(model)), "--mapping", mapping, "--device", "arm-nn-21.11,aosp-minimal", "--android", "11")
    assert reasons(data)
    assert [reason for reason in reasons(data) if reason.get("kind") not in set(Why) - {Why.UNSTATED}] == []


def test_the_delegates_refusals_are_all_stated(tmp_path: Path) -> None:
    file = TfliteBuilder()
    a, b = file.tensor((1, 2, 2, 1, 1)), file.tensor((1, 2, 2, 1, 1))
    out = file.tensor((1, 2, 2, 1, 1))
    file.operator("SUB", [a, b], [out], version=5)
    path = file.write(tmp_path / "sub.tflite", [a, b], [out])
    (outcome,) = plan(str(path), "--feature-level", "1")["conversion"]["delegate"]["operators"]
    assert [reason["kind"] for reason in outcome["reasons"]] == ["operator-version", "feature-level", "rank"]


def test_a_plan_begins_with_a_sentence() -> None:
    shown = call("plan", DIGITS, "--device", "nnapi-sample_minimal", "--android", "11").stdout.splitlines()
    summary = plan(DIGITS, "--device", "nnapi-sample_minimal", "--android", "11")["summary"]
    assert shown[:2] == [f"{summary['judgement']}.", f"{summary['sentence']}."]
    assert shown[1].startswith("On nnapi-sample_minimal, Android 11: TFLite's NNAPI delegate hands over ")


@pytest.mark.parametrize(
    ("device", "judgement"),
    [
        ("nnapi-sample_float_fast", "All 11 operators run on nnapi-sample_float_fast, in 1 partition"),
        ("arm-nn-21.11,nnapi-sample_minimal", "All 11 operators run on arm-nn-21.11, in 1 partition"),
        ("nnapi-sample_minimal", "5 of 11 operators (64.1 % of the multiply-adds) run on nnapi-sample_minimal"),
    ],
)
def test_a_judgement_comes_before_the_figures(device: str, judgement: str) -> None:
    assert plan(DIGITS, "--device", device)["summary"]["judgement"] == judgement


def test_a_judgement_names_the_few_operators_that_stay() -> None:
    detector = str(real_model("ssd_mobilenet_v1_quant_postprocess"))
    for device in ("vsi-imx-1.3.0", "ethos-u55-128"):
        stays = f"Runs on {device} except 1 operator (0 % of the multiply-adds): TFLite_Detection_PostProcess"
        assert plan(detector, "--device", device)["summary"]["judgement"] == stays


def test_a_judgement_without_operators_on_the_device_says_what_is_required() -> None:
    summary = plan(DIGITS.replace("float32", "int8"), "--device", "nnapi-sample_float_fast", "--android", "9")["summary"]
    assert summary["judgement"].startswith("No operator runs on nnapi-sample_float_fast; required: ")


def test_what_a_driver_refuses_is_not_the_delegates_rule() -> None:
    digits = DIGITS.replace("float32", "uint8")
    command = "plan", digits, "--device", "arm-nn-18.05", "--android", "12"
    shown = " ".join(call(*command).stdout.split())
    assert "arm-nn-18.05 (input 0): requires TENSOR_FLOAT32, found TENSOR_QUANT8_ASYMM" in shown
    assert "TFLite's NNAPI delegate: requires one of the 3 largest" in shown
    found = [reason for one in plan(*command[1:])["conversion"]["delegate"]["operators"] for reason in one["reasons"]]
    assert [(reason.get("device"), reason["kind"]) for reason in found] == [
        ("arm-nn-18.05", "input-type"),
        ("arm-nn-18.05", "input-type"),
        ("arm-nn-18.05", "input-type"),
        (None, "partitions"),
    ]


@pytest.mark.parametrize(
    ("model", "judgement", "figures"),
    [
        (
            "ultraface_rfb_320",
            "No operator runs on NNAPI: TFLite refuses the delegate for this file",
            "83 of 115 operators; without the delegate 115 run on TFLite's CPU",
        ),
        (
            "keras_lstm_mnist_ptq",
            "The app's interpreter is not created: NNAPI refuses operator 1 UNIDIRECTIONAL_SEQUENCE_LSTM when the model is built",
            "the app's interpreter is not created; without the delegate 6 run on TFLite's CPU",
        ),
    ],
)
def test_a_refusal_of_the_phone_is_the_judgement(model: str, judgement: str, figures: str) -> None:
    summary = plan(str(real_model(model)), "--device", "vsi-imx-1.3.0")["summary"]
    assert summary["judgement"] == judgement
    assert summary["sentence"].endswith(figures)


def test_a_judgement_warns_of_many_partitions() -> None:
    summary = replace(nnbridge.plan(DIGITS, device="nnapi-sample_minimal").summary, device_partitions=31)
    assert summary.judgement.endswith("; 31 partitions are probably slower than the CPU")


def test_the_sentence_counts_operators_of_the_file_by_where_they_run() -> None:
    yamnet = str(real_model("yamnet_wavin_quantized_mel_relu6"))
    summary = plan(yamnet, "--device", "arm-nn-21.11")["summary"]
    assert summary["sentence"] == (
        "On arm-nn-21.11, Android 13: TFLite's NNAPI delegate hands over 40 of 47 operators in 3 partitions, the device accepts "
        "42, 2 of them left out by the limit on partitions; 7 run on TFLite's CPU"
    )
    assert summary["on_device"] + sum(summary["elsewhere"].values()) == summary["operators"] == 47
    assert summary["elsewhere_places"] == {"tflite_cpu": 7}


def test_before_android_10_nnapi_runs_what_the_device_refuses() -> None:
    for android, place, old in (("9", "nnapi_cpu", "NNAPI's CPU"), ("10", "tflite_cpu", "TFLite's CPU")):
        found = plan(DIGITS, "--device", "aosp-quant", "--android", android)["summary"]
        assert (set(found["elsewhere"]), set(found["elsewhere_places"])) == ({old}, {place})


def test_an_operation_names_its_operator_in_the_file() -> None:
    first = plan(DIGITS)["operations"][0]
    assert first["operator"] == {"index": 0, "operator": "CONV_2D", "subgraph": 0}


def test_without_fallback_what_the_devices_refuse_is_listed() -> None:
    data = plan(DIGITS, "--device", "nnapi-sample_minimal", "--no-fallback", status=2)
    assert not {refusal["type"] for refusal in data["refusals"]} & {"ADD", "CONCATENATION", "CONV_2D"}
    assert data["refusals"][0]["reasons"][0]["kind"] == "operator"
    shown = call("plan", DIGITS, "--device", "nnapi-sample_minimal", "--no-fallback")
    assert shown.exit_code == 2
    assert "What no device of digits_float32's list accepts" in shown.stdout

"""compare_doors.py sees every difference between two doors; over the digit classifiers there is none."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from tests.conftest import MODELS, REPOSITORY, requires_recent_onnx_runtime


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts" / "comparisons"))
    return import_module("compare_doors")


@pytest.mark.parametrize("door", ["python", "report", "matrix"])
@pytest.mark.parametrize(
    ("file", "device"), [("digits_dynamic.tflite", "arm-nn-18.05"), ("digits_uint8.tflite", "ethos-u55-128")]
)
def test_doors_agree_on_a_digit_classifier(script: Any, door: str, file: str, device: str) -> None:
    assert script.compared(door, script.Asked(MODELS / file, device, "12")) == []


def test_stock_litert_agrees_on_a_digit_classifier(script: Any) -> None:
    pytest.importorskip("ai_edge_litert")
    asked = script.Asked(MODELS / "digits_int8.tflite", "arm-nn-18.05", "13")
    assert script.delegate_facts(asked) == {"refused": False, "LiteRT refuses": False, "nodes": 4, "partitions": 3}
    assert script.compared("delegate", asked) == []


def test_stock_onnx_runtime_agrees_on_a_digit_classifier(script: Any) -> None:
    pytest.importorskip("onnxruntime")
    requires_recent_onnx_runtime()
    assert script.compared("provider", script.Asked(MODELS / "digits_float32.onnx", "arm-nn-21.11", "13")) == []


def test_a_file_that_every_door_refuses_is_refused_with_one_sentence(script: Any) -> None:
    asked = script.Asked(MODELS / "digits_float32.onnx", "ethos-u55-128", "12")
    assert script.plan_facts(asked)["refused"] is True
    assert script.compared("python", asked) == []


def test_what_both_say_must_be_equal_and_what_one_says_need_not(script: Any) -> None:
    ours = {"refused": False, "on device": 3, "steps": [1, 2], "sentence": "x"}
    theirs = {"refused": False, "on device": 4, "steps": [1, 3], "partitions": 9}
    assert script.differences(ours, theirs) == ["on device: plan 3, there 4", "steps: plan [1] 2, there 3"]


def test_a_refusal_at_one_door_alone_is_a_difference(script: Any) -> None:
    assert script.differences({"refused": False}, {"refused": True, "error": "no"}) == ["refused: plan False, there True: 'no'"]


def test_the_delegate_is_asked_about_the_newest_android_and_nnapi_devices_only(script: Any) -> None:
    def doors(device: str, android: str) -> list[str]:
        return list(script.doors_of(script.Asked(MODELS / "digits_int8.tflite", device, android), "13", script.is_before_nnapi))

    assert doors("arm-nn-18.05", "13") == ["python", "report", "matrix", "delegate"]
    assert doors("arm-nn-18.05", "12") == ["python", "report", "matrix"]
    assert doors("ethos-u55-128", "13") == ["python", "report", "matrix"]

"""Timelines of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands import call
from tests.conftest import MODELS
from tests.test_overlay import abs_then_custom

FLOAT = str(MODELS / "digits_float32.tflite")


def traced(folder: Path, model: str, *options: str) -> list[dict[str, Any]]:
    file = folder / "trace.json"
    result = call("run", model, "--seed", "0", "--trace", file, *options, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))["traceEvents"]
    return found


def tracks(events: list[dict[str, Any]]) -> dict[int, str]:
    return {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}


def test_each_device_has_a_track_with_its_steps(tmp_path: Path) -> None:
    events = traced(tmp_path, str(abs_then_custom(tmp_path)), "--device", "aosp-minimal", "--mapping", "wide")
    names = tracks(events)
    steps = [(names[event["tid"]], event["name"]) for event in events if event.get("cat") == "step"]
    assert steps == [("nnapi-reference", "step 0: ABS"), ("aosp-minimal", "step 1: ADD")]


def test_slices_of_a_track_begin_in_order_and_lie_within_their_run(tmp_path: Path) -> None:
    events = traced(tmp_path, FLOAT, "--device", "aosp-minimal", "--repeat", "3")
    runs = [event for event in events if event.get("cat") == "run"]
    steps = [event for event in events if event.get("cat") == "step"]
    assert [run["name"] for run in runs] == ["run 0", "run 1", "run 2"]
    assert [step["ts"] for step in steps] == sorted(step["ts"] for step in steps)
    for step in steps:
        around = [run for run in runs if run["ts"] <= step["ts"] <= step["ts"] + step["dur"] <= run["ts"] + run["dur"] + 0.01]
        assert len(around) == 1


def test_what_crosses_between_devices_has_its_bytes_and_an_arrow(tmp_path: Path) -> None:
    events = traced(tmp_path, str(abs_then_custom(tmp_path)), "--device", "aosp-minimal", "--mapping", "wide")
    (copy,) = [event for event in events if event.get("cat") == "copy" and event["ph"] == "X"]
    assert copy["args"] == {"tensor": "absolute", "bytes": 8, "from": "nnapi-reference", "to": "aosp-minimal"}
    arrows = {event["ph"]: tracks(events)[event["tid"]] for event in events if event["ph"] in "sf"}
    assert arrows == {"s": "nnapi-reference", "f": "aosp-minimal"}


@pytest.mark.parametrize("operations", ["ADD = ['FLOAT32']", "ADD = ['FLOAT32']\nABS = ['FLOAT32']"], ids=["step", "model"])
def test_a_fallback_is_marked_with_its_reason(tmp_path: Path, operations: str) -> None:
    profile = tmp_path / "npu.toml"
    performance = "[device.performance]\nother = [0.5, 0.5]"
    profile.write_text(
        f'[[device]]\nname = "npu"\n{performance}\n[device.operations]\n{operations}\n[device.faults]\nfails_at = 1\n'
    )
    events = traced(tmp_path, str(abs_then_custom(tmp_path)), "--device", str(profile), "--mapping", "wide")
    names = tracks(events)
    assert [names[event["tid"]] for event in events if event.get("cat") == "failed"] == ["npu"]
    (mark,) = [event for event in events if event["ph"] == "i"]
    assert names[mark["tid"]] == "nnapi-reference"
    assert "npu" in mark["args"]["reason"]


def test_batches_have_no_steps_to_trace(tmp_path: Path) -> None:
    result = call("run", FLOAT, "--batch", "2", "--trace", tmp_path / "t.json")
    assert result.exit_code == 2
    assert "--batch" in result.stderr


def test_names_are_in_utf_8_as_they_are(tmp_path: Path) -> None:
    events = traced(tmp_path, FLOAT)
    assert any("×" in event["name"] for event in events)
    assert "\\u00d7" not in (tmp_path / "trace.json").read_text("utf-8")

"""Numbers that nothing emulates: no door calls them a pass, and the exit status is about what NNAPI's CPU computes instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nnbridge
from nnbridge.devices.evidence import IDLE, NUMBERS_UNKNOWN
from tests.commands import call, data
from tests.conftest import MODELS

UINT8 = str(MODELS / "digits_uint8.tflite")
STORED = str(MODELS / "digits_uint8.litert.npz")
UNKNOWN, EMULATED, IDLES = "vsi-imx-1.3.0", "nnapi-sample_all", "nnapi-sample_float_fast"
DOORS = {
    "outputs": ("compare", UINT8, "--reference", STORED),
    "layers": ("compare", UINT8, "--reference", "litert", "--seeds", "0", "--layers"),
    "envelope": ("compare", UINT8, "--reference", "litert", "--seeds", "0", "--envelope"),
    "several": ("compare", UINT8, "--reference", "litert,litert-reference", "--seeds", "0"),
    "report": ("report", UINT8, "--reference", "litert", "--seeds", "0", "-o", "{folder}/page.html"),
}


def passes(found: Any) -> list[object]:
    """The values of ``pass`` of a result, at any depth."""
    if isinstance(found, list):
        return [value for item in found for value in passes(item)]
    if not isinstance(found, dict):
        return []
    own = [found["pass"]] if "pass" in found else []
    return own + [value for item in found.values() for value in passes(item)]


def filled(door: str, folder: Path) -> list[str]:
    if "--seeds" in DOORS[door]:
        pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    return [word.format(folder=folder) for word in DOORS[door]]


@pytest.mark.parametrize("door", DOORS)
def test_json_never_passes_unknown_numbers_and_says_what_was_computed(door: str, tmp_path: Path) -> None:
    found = data(*filled(door, tmp_path), "--device", UNKNOWN)
    assert (found["pass"], found["within"], found["verdict"]) == (None, True, NUMBERS_UNKNOWN)
    assert set(passes(found)) <= ({None, True} if door == "several" else {None})


@pytest.mark.parametrize("door", DOORS)
def test_json_passes_numbers_that_are_emulated(door: str, tmp_path: Path) -> None:
    found = data(*filled(door, tmp_path), "--device", EMULATED)
    assert (found["pass"], found["within"], found["verdict"]) == (True, True, "pass")


@pytest.mark.parametrize("door", [door for door in DOORS if door != "report"])
def test_the_first_and_the_last_line_say_that_numbers_are_unknown(door: str, tmp_path: Path) -> None:
    lines = call(*filled(door, tmp_path), "--device", UNKNOWN).stdout.splitlines()
    assert "numbers unknown" in lines[0] or door == "several"
    assert "numbers unknown" in lines[-1]


@pytest.mark.parametrize("door", [door for door in DOORS if door != "envelope"])
def test_unknown_numbers_lead_on_to_the_envelope(door: str, tmp_path: Path) -> None:
    text = call(*filled(door, tmp_path), "--device", UNKNOWN).stdout
    assert "Next: `compare --envelope` shows" in text
    assert "Next:" not in call(*filled(door, tmp_path), "--device", EMULATED).stdout


def test_an_envelope_places_references_and_no_device_whose_numbers_are_unknown(tmp_path: Path) -> None:
    lines = call(*filled("envelope", tmp_path), "--device", UNKNOWN).stdout.splitlines()
    assert lines[0].startswith(f"{UNKNOWN}: {NUMBERS_UNKNOWN}; ")
    assert f"{UNKNOWN} is within" not in lines[0]
    assert lines[0].endswith("litert is within the envelope")


def test_an_envelope_of_a_device_that_runs_nothing_says_so(tmp_path: Path) -> None:
    found = data(*filled("envelope", tmp_path), "--device", IDLES)
    assert (found["pass"], found["within"], found["verdict"]) == (None, True, IDLE)


@pytest.mark.parametrize(("steps", "status"), [("100", 0), ("0", 1)])
def test_the_exit_status_is_about_what_was_computed(steps: str, status: int) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    options = ("--reference", "xnnpack", "--seeds", "0-4", "--quant-steps", steps)
    result = call("compare", UINT8, *options, "--device", UNKNOWN, "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["pass"], found["within"]) == (status, None, not status)


def test_between_references_agreement_stays_known() -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    found = data("compare", UINT8, "--reference", "litert,litert-reference", "--seeds", "0", "--device", UNKNOWN)
    assert {(pair["first"] == UNKNOWN): pair["pass"] for pair in found["pairs"]} == {True: None, False: True}


def test_cells_of_a_matrix_pass_only_where_numbers_are_emulated(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    options = ("--devices", f"{UNKNOWN},{EMULATED},{IDLES}", "--reference", "litert", "--seeds", "0")
    found = data("matrix", UINT8, *options, "--store", tmp_path / "m.db", "--jobs", "1")["cells"]
    shown = {cell["device"]: (cell["passed"], cell["within"], cell["verdict"]) for cell in found}
    assert shown == {
        UNKNOWN: (None, True, NUMBERS_UNKNOWN),
        EMULATED: (True, True, "pass"),
        IDLES: (None, True, IDLE),
    }


def test_a_result_in_python_knows_the_same() -> None:
    found = nnbridge.compare(UINT8, STORED, device=UNKNOWN)
    assert (found.passed, found.verdict, found.as_dict()["pass"]) == (True, NUMBERS_UNKNOWN, None)

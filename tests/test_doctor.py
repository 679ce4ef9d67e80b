"""``doctor``: what there is to compute with, and having it ready."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nnbridge.cpu import compiled
from nnbridge.cpu.compiled.instructions import INSTRUCTION_SETS
from nnbridge.runtime.warmup import typical_models
from tests.commands import call
from tests.conftest import MODELS


def invoked(*arguments: str, status: int = 0) -> str:
    """The output of a command."""
    result = call(*arguments)
    assert result.exit_code == status, result.output
    return result.stdout if status == 0 else result.output


def doctor(*arguments: str) -> dict[str, object]:
    """The command's JSON."""
    found: dict[str, object] = json.loads(invoked("doctor", "--json", *arguments))
    return found


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; skips the test where there is no compiler."""
    if (reason := compiled.unavailable()) is not None:
        pytest.skip(reason)
    from nnbridge.cpu.compiled import objects

    monkeypatch.setenv("NNBRIDGE_CACHE", str(tmp_path / "kernels"))
    monkeypatch.setattr(objects, "LIBRARIES", {})
    return tmp_path / "kernels"


def test_doctor_states_the_tier_and_the_instruction_set(cache: Path) -> None:
    found = doctor()
    assert (found["tier"], found["why_not_compiled"]) == ("compiled", "")
    assert found["compiled"]["instructions"] in INSTRUCTION_SETS
    assert found["compiled"]["cache"] == str(cache)
    assert found["extras"]["fast"]["version"]


def test_doctor_states_why_there_is_no_other_tier() -> None:
    found = doctor("--kernels", "reference")
    assert found["tier"] == "reference"
    assert "reference" in found["why_not_compiled"] or "llvmlite" in found["why_not_compiled"]
    assert "kernels" in invoked("doctor")


def test_doctor_states_why_nothing_is_cached(cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    assert "exists" in doctor()["compiled"]["cache_fault"].lower()


def test_warming_a_cache_that_cannot_be_written_is_an_error_with_the_counts(cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    result = call("doctor", "--warm", MODELS / "digits_float32.tflite", "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["schema"], found["error"]["operand"]) == (2, "nnbridge/error", "--warm")
    assert found["cache_fault"] in found["error"]["message"]


def test_warming_fills_the_cache_and_finds_it_filled(cache: Path) -> None:
    first = json.loads(invoked("doctor", "--warm", "--json"))
    assert first["compiled"] == len(list(cache.glob("*.o"))) > 20
    from nnbridge.cpu.compiled import objects

    objects.LIBRARIES.clear()
    again = json.loads(invoked("doctor", "--warm", "--json"))
    assert (again["compiled"], again["loaded"]) == (0, first["compiled"])


def test_warming_for_a_missing_file_is_bad_input(cache: Path, tmp_path: Path) -> None:
    assert "missing.tflite" in invoked("doctor", "--warm", str(tmp_path / "missing.tflite"), status=2)


def test_typical_networks_are_compiled_whole() -> None:
    if (reason := compiled.unavailable()) is not None:
        pytest.skip(reason)
    from tests.compiled.hybrid import compile_model

    assert [compile_model(model).left for model in typical_models()] == [{}] * 18

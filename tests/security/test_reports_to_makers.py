"""Libraries that nnbridge starts report nothing to their makers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nnbridge import trust
from tests.conftest import MODELS

ONNX = str(MODELS / "digits_float32.onnx")
VARIABLE = "ORT_DISABLE_TELEMETRY"


def environment(folder: Path) -> dict[str, str]:
    """The environment of a user who has never heard of reports, with folders that are empty."""
    found = {**os.environ, "TMPDIR": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    found.pop(VARIABLE, None)
    return found


@pytest.mark.parametrize(
    "command",
    [
        ("plan", ONNX),
        ("run", ONNX, "--seed", "0", "--host", "onnxruntime"),
        ("compare", ONNX, "--reference", "onnxruntime", "--seeds", "0"),
        ("bench", ONNX, "--seconds", "0.1", "--rounds", "3"),
        ("matrix", ONNX, "--devices", "nnapi-sample_all", "--jobs", "1", "--store", "m.db", "--reference", "auto"),
        ("doctor",),
    ],
    ids=lambda command: command[0],
)
def test_no_command_leaves_the_traces_of_a_report(tmp_path: Path, command: tuple[str, ...]) -> None:
    pytest.importorskip("onnxruntime")
    tmp_path.chmod(0o755)
    nnbridge = str(Path(sys.executable).with_name("nnbridge"))
    ended = subprocess.run([nnbridge, *command], cwd=tmp_path, env=environment(tmp_path), capture_output=True, check=False)
    assert ended.returncode in (0, 1), ended.stderr
    # A report begins with a session's file and with a number of the machine.
    assert not (tmp_path / ".ses").exists()
    assert not (tmp_path / "cache" / "Microsoft").exists()


def test_a_function_in_a_program_reports_nothing(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    code = f"import nnbridge; nnbridge.compare({ONNX!r}, reference='onnxruntime', seeds=[0])"
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert not (tmp_path / ".ses").exists()


def test_who_wants_reports_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    assert trust.environment()[VARIABLE] == "0"
    trust.decline_reports()
    assert os.environ[VARIABLE] == "0"


def test_processes_decline_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PATH", os.environ["PATH"])
    assert trust.environment()[VARIABLE] == "1"
    trust.clean_path()
    assert os.environ[VARIABLE] == "1"

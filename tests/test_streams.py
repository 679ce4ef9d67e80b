"""Standard streams of the commands: only results on output, JSON that is JSON, and no tracebacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nnbridge.devices import driver
from nnbridge.devices.device import PreparedModel, Request, Result
from nnbridge.model import Model, Operation
from tests.commands import call
from tests.conftest import MODELS, REPOSITORY
from tests.runtime.drivers import Driver

DIGITS = str(MODELS / "digits_float32.tflite")
REFERENCE = str(MODELS / "digits_float32.litert.npz")
BY_REFERENCE = ("compare", DIGITS, "--reference", REFERENCE)


@driver("loud")
def LOUD(model: Model, operation: Operation) -> bool:
    print("printed")
    os.write(1, b"written\n")
    return True


class _NanAnswers(PreparedModel):
    def execute(self, request: Request) -> Result:
        for output in request.outputs:
            if output.data is not None:
                output.data.view(np.float32)[...] = np.nan
        return Result()


class _Nan(Driver):
    def prepare_model(self, model: Model, *args: object, **options: object) -> PreparedModel:
        return _NanAnswers()


NAN = _Nan("nan")
_HERE = "tests.test_streams:"


def nnbridge(*arguments: str, redirect: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, its output redirected by the shell."""
    environment = {"PYTHONUNBUFFERED": "", **environment}
    command = ["sh", "-c", f'"$@" {redirect}', "sh", sys.executable, "-c", "from nnbridge.cli import main; main()", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=REPOSITORY, env={**os.environ, **environment}, check=False, timeout=120
    )


@pytest.mark.parametrize("where", ["", "process:"])
@pytest.mark.parametrize("arguments", [("plan", DIGITS), ("run", DIGITS, "--seed", "0"), BY_REFERENCE])
def test_what_drivers_print_goes_to_standard_error(arguments: tuple[str, ...], where: str) -> None:
    done = nnbridge(*arguments, "--device", f"{where}{_HERE}LOUD", "--json")
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    assert {"printed", "written"} <= set(done.stderr.splitlines())


def test_what_drivers_print_goes_to_standard_error_in_conformance_runs(cases: Path) -> None:
    done = nnbridge(
        "vts", str(cases), "--spec", "relu_float_1", "--spec", "add", "--device", f"{_HERE}LOUD", "--json", "--jobs=2"
    )
    assert json.loads(done.stdout)["pass"], done.stderr
    assert {"printed", "written"} <= set(done.stderr.splitlines())


def test_numbers_that_are_not_finite_are_null_in_json() -> None:
    for arguments in (("run", DIGITS, "--seed", "0"), BY_REFERENCE):
        result = call(*arguments, "--device", f"{_HERE}NAN", "--json")
        found = json.loads(result.stdout, parse_constant=pytest.fail)
        assert {"run": "min", "compare": "max_abs_diff"}[arguments[0]] in found["outputs"][0]
        assert None in found["outputs"][0].values()


def test_an_option_of_the_list_of_devices_is_refused_before_check() -> None:
    result = call("devices", "--json", "check", "x.toml")
    assert (result.exit_code, json.loads(result.stdout)["error"]["kind"]) == (2, "usage")
    assert "--json belongs to the list of devices" in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's full device")
@pytest.mark.parametrize("arguments", [("plan", DIGITS), ("run", DIGITS, "--seed", "0", "--json"), ("--help",), ("devices",)])
def test_output_that_cannot_be_written_is_reported_in_one_line(arguments: tuple[str, ...]) -> None:
    done = nnbridge(*arguments, redirect="> /dev/full")
    assert (done.returncode, done.stderr) == (2, "nnbridge: standard output: No space left on device\n")


def test_output_that_nobody_reads_ends_quietly_and_is_no_failed_comparison() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        for arguments in (("plan", DIGITS), ("run", DIGITS, "--seed", "0", "--json")):
            command = [sys.executable, "-c", "from nnbridge.cli import main; main()", *arguments]
            done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False, timeout=120)
            assert (done.returncode, done.stderr) == (141, b"")
    finally:
        os.close(writing)


def test_output_in_ascii_has_escapes_for_what_ascii_lacks() -> None:
    done = nnbridge("plan", DIGITS, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "CONV_2D\\xd73" in done.stdout


def test_an_interrupt_is_no_failed_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nnbridge_tflite.TfliteModelFile.convert", interrupted)
    assert call(*BY_REFERENCE).exit_code == 130


@pytest.mark.parametrize("arguments", [("plan", DIGITS), ("devices", "--json")])
def test_output_that_is_closed_is_an_error(arguments: tuple[str, ...]) -> None:
    done = nnbridge(*arguments, redirect=">&-")
    assert (done.returncode, done.stderr) == (2, "nnbridge: standard output: closed\n")

"""Faults that ``run`` and ``compare`` report of the drivers that were offered a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from nnbridge.devices import driver
from nnbridge.devices.device import PreparedModel, Support
from nnbridge.devices.functions import FunctionPreparedModel
from nnbridge.model import Model, Operation
from tests.commands import call, data
from tests.conftest import MODELS
from tests.runtime.drivers import Driver

DIGITS = str(MODELS / "digits_float32.tflite")
RUN = ("run", DIGITS, "--seed", "0", "--fallback", "cpu")
COMPARE = ("compare", DIGITS, "--reference", str(MODELS / "digits_float32.litert.npz"), "--fallback", "cpu")


class _Raises(Driver):
    def supported_operations(self, model: Model) -> Sequence[Support]:
        raise RuntimeError("[/no] license")


class _Divides(Driver):
    def prepare_model(self, model: Model, *args: object, **options: object) -> PreparedModel:
        return FunctionPreparedModel(model, [lambda inputs, outputs: 1 // 0] * len(model.main.operations))


RAISES = _Raises("raises")
DIVIDES = _Divides("divides")


@driver("numpy")
def NUMPY(model: Model, operation: Operation) -> bool:
    return np.bool_(model.operation_name(operation) == "ADD")  # type: ignore[return-value]  # as users write it


@driver("fickle")
def FICKLE(model: Model, operation: Operation) -> bool:
    return len(model.main.operations) > 1 and model.operation_name(operation) == "ADD"


@pytest.fixture
def faulty(tmp_path: Path) -> str:
    """A profile's driver that takes everything and prepares nothing."""
    path = tmp_path / "faulty.toml"
    path.write_text('[[device]]\nname = "faulty"\n[device.performance]\nother = [0.5, 0.5]\n')
    path.write_text(path.read_text() + "[device.operations]\nothers = {}\n[device.faults]\nprepare = true\n")
    return str(path)


def printed(*arguments: str) -> str:
    """All that a command prints, in one line."""
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def name(what: str) -> str:
    return f"tests.devices.test_reported_faults:{what}"


@pytest.mark.parametrize("command", [RUN, COMPARE], ids=["run", "compare"])
def test_a_driver_that_was_never_used_is_reported(command: tuple[str, ...], faulty: str) -> None:
    shown, found = printed(*command, "--device", faulty), data(*command, "--device", faulty)
    why = "faulty: expected a driver that prepares models, found the fault 'prepare'"
    assert "faulty accepted 11 of 11 operations and runs 0" in shown
    assert why in shown
    assert why in json.dumps(found.get("fallbacks", found.get("fallback")))
    assert found["offered"] == [{"device": "faulty", "operations": 0, "of": 11, "wrong_answer": "", "accepted": 11, "asked": 11}]


@pytest.mark.parametrize("command", [RUN, COMPARE], ids=["run", "compare"])
def test_a_driver_that_raises_when_asked_is_reported(command: tuple[str, ...]) -> None:
    wrong = "its reply to getSupportedOperations was malformed: RuntimeError: [/no] license"
    assert f"raises accepted 0 of 11 operations; {wrong}" in printed(*command, "--device", name("RAISES"))
    [share] = data(*command, "--device", name("RAISES"))["offered"]
    assert share["wrong_answer"] == "RuntimeError: [/no] license (test_reported_faults.py line 27)"


def test_the_title_names_the_devices_that_ran(faulty: str) -> None:
    assert "digits_float32 on nnapi-reference against" in printed(*COMPARE, "--device", faulty)
    assert data(*COMPARE, "--device", name("DIVIDES"))["device"] == "nnapi-reference"
    assert data(*COMPARE, "--device", f"{name('RAISES')},{name('NUMPY')}")["device"] == "nnapi-reference, numpy"


def test_a_drivers_failure_is_reported_with_its_name_operation_and_type() -> None:
    shown = printed(*RUN, "--device", name("DIVIDES"))
    assert "1 failed" in shown
    assert "repeated on the CPU: divides: CONV_2D" in shown
    assert "found ZeroDivisionError: integer division or modulo by zero" in shown


def test_a_step_that_fell_back_names_its_driver(faulty: str) -> None:
    text = Path(faulty).read_text().replace("others", "ADD").replace("prepare = true", "dies_at = 1")
    Path(faulty).write_text(text)
    [fallback] = data(*COMPARE, "--device", faulty)["fallbacks"]
    assert fallback == "step 1: faulty: expected a driver that is alive, found dead since execution 1"
    assert f"Fell back: {fallback}" in printed(*COMPARE, "--device", faulty)
    assert "faulty accepted 1 of 11 operations" in printed(*RUN, "--device", faulty)


def test_a_driver_that_refuses_what_it_took_is_named() -> None:
    result = call(*RUN, "--device", name("FICKLE"))
    assert result.exit_code == 2
    assert "fickle: expected an operation that the device supports, found ADD" in result.stderr


def test_a_model_that_fell_back_is_no_requirement_of_the_driver(faulty: str) -> None:
    shown = printed("plan", DIGITS, "--device", faulty, "--fallback", "cpu")
    assert "faulty: accepted it, but" in shown
    assert "requires fell back" not in shown


@pytest.mark.parametrize("prefix", ["", "process:"])
def test_a_function_may_answer_with_numpys_booleans(prefix: str) -> None:
    [share] = data(*COMPARE, "--device", f"{prefix}{name('NUMPY')}")["offered"]
    assert share["operations"] == 1

"""The provider's options: what each does, and what is refused; failures are errors of ONNX Runtime's, never the host's end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from nnbridge import Compilation, Execution, InputError, devices, provider
from nnbridge.cli.commands import cli
from nnbridge.devices import driver
from nnbridge.provider import session as provided
from nnbridge.provider.options import READERS, ProviderOptions, parse
from nnbridge.types import OperationCode
from tests.conftest import REPOSITORY
from tests.provider.sessions import DEVICE, chain, claimed, model, needs, node, session

needs()

X = np.array([[-1, 0, 2], [3, -4, 5]], np.float32)
PREFIX = "ep.nnapiexecutionprovider."


def parsed(entries: dict[str, str]) -> ProviderOptions:
    return parse("NnapiExecutionProvider", {f"{PREFIX}{key}": value for key, value in entries.items()})


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Compilation]:
    """The compilations during a test."""
    found: list[Compilation] = []
    finish = Compilation.finish

    def finished(self: Compilation) -> None:
        found.append(self)
        finish(self)

    monkeypatch.setattr(Compilation, "finish", finished)
    return found


def image(operator: str = "MaxPool") -> bytes:
    return model([node(operator, "x", "y", kernel_shape=[2, 2])], {"x": (1, 2, 4, 4)}, ["y"])


# -- reading them ----------------------------------------------------------------------------------------------------------


def test_other_entries_of_a_session_are_none_of_the_providers() -> None:
    assert parse("NnapiExecutionProvider", {"session.x": "1", "ep.other.use_fp16": "1"}) == ProviderOptions()


def test_flags_are_names_or_their_sum() -> None:
    assert parsed({"nnapi_flags": "7"}) == ProviderOptions(use_fp16=True, use_nchw=True, cpu_disabled=True)
    assert parsed({"nnapi_flags": "8"}) == parsed({"cpu_only": "true"}) == ProviderOptions(cpu_only=True)
    assert parsed({"nnapi_flags": "1", "use_nchw": "on"}) == ProviderOptions(use_fp16=True, use_nchw=True)


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({"use_fp": "1"}, f"provider options: expected an option of {', '.join(READERS)}, found use_fp"),
        ({"use_fp16": "maybe"}, "provider option use_fp16: expected true or false, found 'maybe'"),
        ({"nnapi_flags": "16"}, "expected a sum of 1 (use_fp16), 2 (use_nchw), 4 (cpu_disabled), 8 (cpu_only), found '16'"),
        ({"nnapi_flags": "-1"}, "found '-1'"),
        ({"nnapi_flags": "²"}, "found '²'"),
        ({"nnapi_flags": "12"}, "provider options: expected one of cpu_disabled and cpu_only, found both"),
        ({"nnbridge_plan": ""}, "provider option nnbridge_plan: expected the name of a file, found ''"),
    ],
)
def test_a_wrong_option_is_refused_with_its_name_and_value(entries: dict[str, str], text: str) -> None:
    with pytest.raises(InputError, match=re.escape(text)):
        parsed(entries)
    with pytest.raises(Exception, match=re.escape(text)):
        session(chain("Relu"), **entries)


# -- their effects ---------------------------------------------------------------------------------------------------------


def test_use_fp16_relaxes_the_models(compilations: list[Compilation]) -> None:
    for value in (False, True):
        session(chain("Relu"), use_fp16=value)
    assert [c.model.relaxed for c in compilations] == [False, True]


def test_use_nchw_leaves_images_as_they_are(compilations: list[Compilation]) -> None:
    x = np.random.default_rng(0).random((1, 2, 4, 4), np.float32)
    answers = [session(image(), use_nchw=value).run(None, {"x": x})[0].tolist() for value in (False, True)]
    counts = [[o.type for o in c.model.main.operations].count(OperationCode.TRANSPOSE) for c in compilations]
    assert (counts, answers[0]) == ([2, 0], answers[1])


@pytest.mark.parametrize(
    ("settings", "names", "explicit"),
    [
        ({}, [DEVICE, "nnapi-reference"], False),
        ({"cpu_only": True}, ["nnapi-reference"], True),
        ({"cpu_disabled": True}, [DEVICE], True),
        ({"nnapi_flags": 4}, [DEVICE], True),
    ],
)
def test_flags_choose_the_devices(
    settings: dict[str, Any], names: list[str], explicit: bool, compilations: list[Compilation]
) -> None:
    assert session(chain("Relu"), **settings).run(None, {"x": X})[0].tolist() == np.maximum(X, 0).tolist()
    assert [device.name for device in compilations[0].plan.devices] == names
    assert compilations[0].explicit is explicit


def test_the_highest_feature_level_of_the_devices_decides() -> None:
    # PRELU exists from feature level 3 on, as the provider's rule says.
    data = model([node("PRelu", "x s", "y")], {"x": (1, 2, 2, 2)}, ["y"], {"s": np.ones((2, 1, 1), np.float32)})
    assert claimed(session(data, f"{DEVICE}@2")) == [["y"]]
    assert claimed(session(data, f"{DEVICE}@2", cpu_disabled=True)) == []


def test_several_devices_may_be_named(compilations: list[Compilation]) -> None:
    session(chain("Relu"), "nnapi-sample_minimal, nnapi-sample_full")
    assert [device.name for device in compilations[0].plan.devices] == [
        "nnapi-sample_minimal", "nnapi-sample_full", "nnapi-reference",
    ]  # fmt: skip


def test_a_device_object_may_be_passed(compilations: list[Compilation]) -> None:
    session(chain("Relu"), ACCEPTS_RELUS)
    assert compilations[0].plan.devices[0] is ACCEPTS_RELUS


def test_the_plan_is_written(tmp_path: Path) -> None:
    session(chain("Relu", "Sinh", "Abs"), cpu_disabled=True, nnbridge_plan=tmp_path / "plan.json")
    found = json.loads((tmp_path / "plan.json").read_text())["partitions"]
    assert [partition["nodes"] for partition in found] == [[0], [2]]
    assert found[0]["plan"]["operations"][0]["device"] == DEVICE


# -- failures --------------------------------------------------------------------------------------------------------------


def test_a_device_that_there_is_not_is_refused() -> None:
    with pytest.raises(Exception, match=r"nowhere\.toml"):
        session(chain("Relu"), "nowhere.toml")


def test_cpu_disabled_needs_another_device() -> None:
    with pytest.raises(Exception, match="expected a device besides NNAPI's CPU for cpu_disabled, found none"):
        session(chain("Relu"), "nnapi-reference", cpu_disabled=True)


def test_without_the_cpu_what_devices_refuse_fails_the_session_as_on_android() -> None:
    text = r"The model cannot run using current set of target devices, \[Name: \[relus\], Type \[4\]\]"
    with pytest.raises(Exception, match=text):
        session(chain("Abs"), ACCEPTS_RELUS, cpu_disabled=True)
    assert session(chain("Abs"), ACCEPTS_RELUS).run(None, {"x": X})[0].tolist() == np.abs(X).tolist()


def test_storing_compiled_models_is_refused() -> None:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.add_session_config_entry("ep.context_enable", "1")
    with pytest.raises(Exception, match=r"expected a session that does not store compiled models, found ep\.context_enable 1"):
        session(chain("Relu"), options=options)


def test_a_graph_that_the_importer_refuses_stays_with_onnx_runtime(capfd: pytest.CaptureFixture[str]) -> None:
    data = model([node("Relu", "x", "y")], {"x": (2, 3)}, ["y"], ir=8)

    def refuse(*_: object) -> Any:
        raise provided.ConversionError("no reason at all")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provided, "converters", lambda: (type("C", (), {"runtime_graph": staticmethod(refuse)}),))
        running = session(data, log=2)
    assert "nothing is handed to NNAPI: no reason at all" in capfd.readouterr().err
    assert running.run(None, {"x": X})[0].tolist() == np.maximum(X, 0).tolist()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RuntimeError("a fault of ours"), "nnbridge failed: RuntimeError"),
        (SystemExit(1), "nnbridge failed: SystemExit"),
        (MemoryError(), "not enough memory"),
        (RuntimeError("can't start new thread"), "no thread could be started"),
    ],
    ids=repr,
)
def test_whatever_fails_in_a_run_is_the_runs_error(error: BaseException, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    running = session(chain("Relu"))

    def fail(*_: object) -> Any:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Execution, "run", fail)
        with pytest.raises(Exception, match=text):
            running.run(None, {"x": X})
    assert running.run(None, {"x": X})[0].tolist() == np.maximum(X, 0).tolist()


def test_an_interrupt_in_a_run_is_raised_behind_it() -> None:
    program = """
import signal, time
import numpy as np
from nnbridge import Execution
from tests.provider.sessions import chain, session
running = session(chain("Relu"))
signal.signal(signal.SIGINT, signal.default_int_handler)  # what starts the tests may ignore it
Execution.run = lambda *_: signal.raise_signal(signal.SIGINT) or time.sleep(60)
try:
    try:
        running.run(None, {"x": np.ones((2, 3), np.float32)})
    except Exception as error:
        print(str(error).strip().endswith("Status Message: interrupted"), flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("KeyboardInterrupt")
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, check=True, cwd=REPOSITORY, timeout=50, capture_output=True, text=True)
    assert ended.stdout.split()[-1] == "KeyboardInterrupt", ended.stderr


def test_a_driver_that_is_killed_fails_the_run_and_no_other_session() -> None:
    name = f"process:{DEVICE}"
    running, with_cpu, other = (
        session(chain("Relu"), name, cpu_disabled=True),
        session(chain("Relu"), name),
        session(chain("Relu")),
    )
    os.kill(devices.device(name).pid, signal.SIGKILL)  # type: ignore[attr-defined]  # of a device in a process of its own
    with pytest.raises(Exception, match="Non-zero status code returned while running"):
        running.run(None, {"x": X})
    for session_left in (with_cpu, other, session(chain("Relu"), name, cpu_disabled=True)):
        assert session_left.run(None, {"x": X})[0].tolist() == np.maximum(X, 0).tolist()


# -- the command -----------------------------------------------------------------------------------------------------------


def test_the_command_builds_the_library_and_lists_options(tmp_path: Path) -> None:
    built = CliRunner().invoke(cli, ["provider", "build", str(tmp_path), "--json"])
    head = {"schema": "nnbridge/build-provider", "version": 1}
    assert json.loads(built.stdout) == {**head, "library": str(tmp_path / provider.LIBRARY), "options": list(READERS)}
    assert (tmp_path / provider.LIBRARY).is_file()


def test_a_folder_that_cannot_hold_the_library_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(cli, ["provider", "build", str(tmp_path / "file" / "below")])
    assert (result.exit_code, result.stdout) == (2, "")


@driver("relus")
def ACCEPTS_RELUS(model: Any, operation: Any) -> bool:
    """A driver that supports RELU and RELU6 alone."""
    return operation.type in (OperationCode.RELU, OperationCode.RELU6)

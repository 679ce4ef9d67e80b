"""A user's own defaults, and the options that every command has."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnbridge.cli.commands import cli
from nnbridge.cli.defaults import read_defaults
from nnbridge.errors import InputError
from tests.conftest import MODELS

INT8 = str(MODELS / "digits_int8.tflite")
PLAN = ("plan", INT8)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with an empty folder below it, which is the current one."""
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    return tmp_path


def call(*typed: str) -> Result:
    return CliRunner().invoke(cli, typed, catch_exceptions=False)


def planned(*typed: str) -> Any:
    result = call(*typed, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def write(path: Path, *lines: str) -> None:
    path.write_text("\n".join(lines))


def test_defaults_stand_in_a_project_s_file_above_the_current_folder(folder: Path) -> None:
    write(folder / "pyproject.toml", "[tool.nnbridge]", 'device = ["aosp-minimal", "aosp-quant"]', "android = 10")
    data = planned(*PLAN)
    assert data["summary"]["devices"] == ["aosp-minimal", "aosp-quant"]
    assert data["summary"]["android"] == "Android 10"


def test_the_command_line_wins(folder: Path) -> None:
    write(folder / "pyproject.toml", "[tool.nnbridge]", 'device = "aosp-minimal"')
    assert planned(*PLAN, "--device", "aosp-quant")["summary"]["devices"] == ["aosp-quant"]


def test_an_option_that_excludes_a_default_silences_it(folder: Path) -> None:
    write(folder / "pyproject.toml", "[tool.nnbridge]", "android = 10")
    assert planned(*PLAN, "--feature-level", "1")["summary"]["android"] == "Android 8.1"


def test_a_command_s_table_is_over_the_common_one(folder: Path) -> None:
    write(folder / "nnbridge.toml", 'mapping = "delegate"', "[plan]", 'mapping = "wide"')
    assert planned(*PLAN)["summary"]["mapping"] == "wide"


def test_the_nearest_file_counts_and_nnbridge_s_own_before_a_project_s(folder: Path) -> None:
    write(folder / "nnbridge.toml", 'mapping = "delegate"')
    write(folder / "below" / "pyproject.toml", "[tool.nnbridge]", 'mapping = "wide"')
    assert planned(*PLAN)["summary"]["mapping"] == "wide"
    write(folder / "below" / "nnbridge.toml", 'mapping = "delegate"')
    assert planned(*PLAN)["summary"]["mapping"] == "delegate"


def test_a_project_s_file_without_the_table_is_passed_by(folder: Path) -> None:
    write(folder / "nnbridge.toml", 'mapping = "wide"')
    write(folder / "below" / "pyproject.toml", "[project]", 'name = "of-nnbridge"')
    assert planned(*PLAN)["summary"]["mapping"] == "wide"


def test_config_names_a_file_or_none(folder: Path) -> None:
    write(folder / "pyproject.toml", "[tool.nnbridge]", 'mapping = "wide"')
    write(folder / "other.toml", 'device = "aosp-quant"')
    assert planned("--config", "none", *PLAN)["summary"]["mapping"] == "delegate"
    data = planned("--config", str(folder / "other.toml"), *PLAN)["summary"]
    assert (data["mapping"], data["devices"]) == ("delegate", ["aosp-quant"])


def test_files_are_named_from_the_folder_of_the_defaults(folder: Path) -> None:
    write(folder / "npu.toml", "[[device]]", 'name = "npu"', "[device.operations]", 'SOFTMAX = ["QUANT8_ASYMM_SIGNED"]')
    write(folder / "nnbridge.toml", 'device = "npu.toml"')
    assert planned(*PLAN)["summary"]["devices"] == ["npu"]


def test_every_unknown_key_is_refused_with_what_could_be_meant(folder: Path) -> None:
    write(folder / "pyproject.toml", "[tool.nnbridge]", 'devise = "x"', "[tool.nnbridge.plan]", "costs = true")
    result = call(*PLAN)
    assert result.exit_code == 2
    first, second = result.stderr.splitlines()
    assert "[tool.nnbridge] devise" in first
    assert "did you mean device?" in first
    assert "[tool.nnbridge.plan] costs" in second
    assert "did you mean cost?" in second


@pytest.mark.parametrize("line", ['mapping = "wid"', "max-partitions = -1", 'cost = "yes"', "device = true", "mapping = {}"])
def test_a_value_that_an_option_does_not_take_is_refused_with_its_place(folder: Path, line: str) -> None:
    write(folder / "nnbridge.toml", "[plan]", line)
    result = call(*PLAN)
    assert result.exit_code == 2
    assert f"nnbridge.toml [plan] {line.split()[0]}" in result.stderr


@pytest.mark.parametrize("content", [b"[tool", b"\xff", b"[tool]\nnnbridge = 1"])
def test_a_damaged_file_is_refused_with_its_name(folder: Path, content: bytes) -> None:
    (folder / "nnbridge.toml").write_bytes(content)
    result = call(*PLAN)
    assert result.exit_code == 2
    assert "nnbridge.toml" in result.stderr


def test_verbose_states_what_came_from_the_file_and_every_decision(folder: Path) -> None:
    write(folder / "nnbridge.toml", 'device = "aosp-minimal"', 'mapping = "wide"')
    lines = call("-v", *PLAN, "--mapping", "delegate", "--fallback", "cpu").stderr.splitlines()
    assert lines[0].startswith("defaults of ")
    assert "--device" in lines[0]
    assert "--mapping" not in lines[0]
    assert "I/ExecutionPlan: Device aosp-minimal can't do operation CONV_2D:0" in lines
    assert any(line.startswith("nnbridge: operation 0 CONV_2D: aosp-minimal requires ") for line in lines)
    assert any(line.endswith("findBestDeviceForEachOperation(CONV_2D:0) = 1 (nnapi-reference)") for line in lines)


def test_quiet_leaves_the_answer_alone(folder: Path) -> None:
    loud, quiet = call("run", INT8, "--seed", "0", "--repeat", "2"), call("run", INT8, "--seed", "0", "--repeat", "2", "-q")
    assert loud.stderr
    assert not quiet.stderr
    assert quiet.stdout == loud.stdout


def test_errors_are_printed_even_if_quiet(folder: Path) -> None:
    assert "no such" in call("-q", "plan", "no such").stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("plann", INT8), "plan"),
        (("plan", INT8, "--devices", "x"), "--device"),
        (("plan", INT8, "--device", "aosp-qant"), "aosp-quant"),
        (("run", INT8, "--input", "imag=x.npy"), "image"),
        (("plan", INT8, "--shape", "imag=1,28,28,1"), "image"),
    ],
    ids=["command", "option", "device", "input", "shape"],
)
def test_what_could_be_meant_is_said(folder: Path, typed: tuple[str, ...], meant: str) -> None:
    result = call(*typed)
    assert result.exit_code == 2
    assert meant in result.stderr.replace(INT8, "").replace(typed[-1], "")


KEYS = st.sampled_from(["device", "devices", "plan", "compare", "mapping", "seeds", "cost", "ndk", "env", "config", "json", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def as_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {as_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return json.dumps(value) if not isinstance(value, float) else repr(value)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_whatever_a_file_holds_it_gives_defaults_or_an_error(tmp_path: Path, table: dict[str, Any]) -> None:
    file = tmp_path / "nnbridge.toml"
    file.write_text("\n".join(f"{json.dumps(key)} = {as_toml(value)}" for key, value in table.items()))
    with suppress(InputError):
        found = read_defaults(str(file), cli)
        assert found is not None
        found.left_for("plan", [])

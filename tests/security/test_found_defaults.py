"""Files of defaults that are found, and not named: whose they may be, and what they may decide."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nnbridge.cli.commands import cli
from tests.conftest import MODELS
from tests.security.others import give_away

PLAN = ("plan", str(MODELS / "digits_int8.tflite"))
pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners by number on this system")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder above the current one, with a module that leaves a file when it is imported."""
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    (below / "planted.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    return tmp_path


def call(*typed: str) -> Result:
    return CliRunner().invoke(cli, typed, catch_exceptions=False)


def by_group(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o020)


def by_others(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o002)


@pytest.mark.parametrize("name", ["nnbridge.toml", "pyproject.toml"])
@pytest.mark.parametrize("where", ["file", "folder"])
@pytest.mark.parametrize("spoil", [give_away, by_group, by_others])
def test_a_file_that_others_may_write_is_passed_over_with_one_line(
    folder: Path, spoil: Callable[[Path], None], where: str, name: str
) -> None:
    file = folder / name
    file.write_text('[tool.nnbridge]\nmapping = "wide"\n')
    spoil(file if where == "file" else folder)
    result = call(*PLAN)
    assert result.exit_code == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"defaults of {file} are not used: ")
    assert "delegate" in result.stdout
    assert not call("-q", *PLAN).stderr
    assert not call("--config", str(file), *PLAN).stderr


def test_a_project_of_others_that_says_nothing_of_nnbridge_is_not_mentioned(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[project]\n")
    (folder / "pyproject.toml").chmod(0o666)
    assert not call(*PLAN).stderr


def test_a_link_is_passed_over(folder: Path) -> None:
    (folder / "other.toml").write_text('mapping = "wide"')
    (folder / "nnbridge.toml").symlink_to(folder / "other.toml")
    assert "nnbridge.toml are not used: it is a link" in call(*PLAN).stderr


def test_a_sticky_folder_is_passed_over_as_well(folder: Path) -> None:
    (folder / "nnbridge.toml").write_text('mapping = "wide"')
    folder.chmod(0o1777)
    assert "its folder: its group or others may write to it" in call(*PLAN).stderr


def test_the_search_goes_on_above_a_file_that_is_passed_over(folder: Path) -> None:
    (folder / "nnbridge.toml").write_text('device = "aosp-minimal"')
    other = folder / "below" / "nnbridge.toml"
    other.write_text('device = "aosp-quant"')
    other.chmod(0o666)
    result = call(*PLAN)
    assert "aosp-minimal" in result.stdout
    assert len(result.stderr.splitlines()) == 2


def test_one_line_says_which_file_is_used_and_for_what(folder: Path) -> None:
    (folder / "nnbridge.toml").write_text('[plan]\ndevice = "aosp-minimal"')
    file = folder / "nnbridge.toml"
    assert call(*PLAN).stderr == f"defaults of {file}: --device ('aosp-minimal',)\n"
    assert not call("-q", *PLAN).stderr
    assert not call(*PLAN, "-q").stderr
    assert not call("doctor").stderr


FORBIDDEN = (
    ("plan", 'device = "planted:X"'),
    ("plan", 'device = ["aosp-minimal", "planted:X"]'),
    ("plan", 'device = "aosp-minimal,planted:X"'),
    ("plan", 'devices = ["process:aosp-minimal"]'),
    ("plan", 'device = "socket:/tmp/x"'),
    ("plan", 'device = "caching:planted:X"'),
    ("plan", 'device = "caching:process:planted:X"'),
    ("plan", 'device = "planted:X@3"'),
    ("plan", 'device = " planted:X"'),
    ("plan", 'cache-dir = "cache"'),
    ("inspect", 'device = "planted:X"'),
    ("reduce", "predicate = \"sh -c 'touch ../ran'\""),
    ("reduce", 'predicate = "planted.py"'),
    ("reduce", 'against = "planted:X"'),
    ("reduce", 'output = "../ran"'),
    ("compare", 'against = "planted:X"'),
    ("compare", 'csv = "../ran"'),
    ("matrix", 'scheduler = "tcp://127.0.0.1:9"'),
    ("matrix", 'devices = "aosp-minimal+planted:X"'),
    ("matrix", 'store = "../ran"'),
    ("matrix", 'html = "../ran"'),
    ("matrix", 'reports = "../ran"'),
    ("run", 'trace = "../ran"'),
    ("run", 'samples = "../ran.npz"'),
    ("vts", 'device = "planted:X"'),
    ("bench", 'trace = "../ran"'),
    ("report", 'device = "planted:X"'),
    ("run", 'input = "https://127.0.0.1:9/x.png"'),
)


@pytest.mark.parametrize(("command", "line"), FORBIDDEN)
@pytest.mark.parametrize("common", [False, True])
def test_a_found_file_does_not_decide_what_is_run_imported_written_or_connected_to(
    folder: Path, command: str, line: str, common: bool
) -> None:
    (folder / "nnbridge.toml").write_text(line if common else f"[{command}]\n{line}")
    result = call(command, PLAN[1])
    assert result.exit_code == 2
    assert f"nnbridge.toml {'' if common else f'[{command}] '}{line.split()[0]}" in result.stderr
    assert "or a file that --config names" in result.stderr
    assert not list(folder.glob("ran*"))


def test_what_is_typed_silences_what_a_found_file_may_not_decide(folder: Path) -> None:
    (folder / "nnbridge.toml").write_text('[plan]\ndevice = "planted:X"')
    assert call(*PLAN, "--device", "aosp-minimal").exit_code == 0
    assert call("--config", "none", *PLAN).exit_code == 0
    assert call("inspect", PLAN[1]).exit_code == 0
    assert not (folder / "ran").exists()


def test_a_file_that_is_named_decides_all(folder: Path) -> None:
    (folder / "named.toml").write_text('[plan]\ndevice = "planted:X"')
    call("--config", str(folder / "named.toml"), *PLAN)
    assert (folder / "ran").exists()


def test_a_profile_is_data_and_may_be_named_by_a_found_file(folder: Path) -> None:
    (folder / "npu.toml").write_text('[[device]]\nname = "npu"\n[device.operations]\nSOFTMAX = ["QUANT8_ASYMM_SIGNED"]\n')
    (folder / "nnbridge.toml").write_text('device = "npu.toml"')
    assert "npu" in call(*PLAN).stdout

"""Every block of docs/drivers.md, in the order of the page and in one folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import MODELS, REPOSITORY, shared_folder

GUIDE = REPOSITORY / "docs" / "drivers.md"
NNBRIDGE = f'"{sys.executable}" -c "from nnbridge.cli import main; main()"'


@dataclass(frozen=True)
class Block:
    """A fenced block: its language ("" for commands), the file that it names, its text."""

    language: str
    file: str
    text: str


def blocks() -> Iterator[Block]:
    for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL):
        named = re.match(r"# (\S+\.(?:py|toml))\n", text)
        yield Block(language, named[1] if named else "", text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reader's folder: every file of the guide, a TFLite model with LiteRT's answers and what ``client.py`` saves."""
    folder = tmp_path_factory.mktemp("guide")
    shutil.copy(MODELS / "digits_float32.tflite", folder / "model.tflite")
    shutil.copy(MODELS / "digits_float32.litert.npz", folder / "model.npz")
    for block in blocks():
        if block.file:
            (folder / block.file).write_text(block.text)
    _shell("python client.py", folder)
    return folder


def _shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    refused = command.startswith("! ")
    command = command.removeprefix("! ").replace("nnbridge ", f"{NNBRIDGE} ", 1).replace("FOLDER", str(shared_folder() / "vts"))
    command = re.sub(r"^python ", f'"{sys.executable}" ', command)
    environment = {**os.environ, "PYTHONPATH": ""}
    ended = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, env=environment, timeout=120)
    assert (ended.returncode == 0) is not refused, f"{command}\n{ended.stdout}{ended.stderr}"
    return ended


def commands() -> list[str]:
    return [line for block in blocks() if block.language == "" for line in block.text.splitlines()]


@pytest.mark.parametrize("command", commands())
def test_every_command_of_the_guide_does_what_it_says(command: str, folder: Path) -> None:
    if "FOLDER" in command and not (shared_folder() / "vts").is_dir():
        pytest.skip("no conformance cases")
    ended = _shell(command, folder)
    if command.startswith("! "):
        assert "may use vendor extensions" in ended.stderr


def test_every_python_block_is_code_that_runs(folder: Path) -> None:
    for block in blocks():
        if block.language == "python":
            _shell(f"python {block.file}", folder)


def test_drivers_by_function_class_and_entry_point_have_less_than_30_lines() -> None:
    lines = {block.file: block.text.count("\n") for block in blocks()}
    assert all(lines[file] < 30 for file in ("my_npu.py", "my_relu.py", "pyproject.toml", "my-npu.toml")), lines


def test_published_drivers_are_listed_and_the_broken_one_is_reported(folder: Path, tmp_path: Path) -> None:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    installed = tmp_path / "my_npu-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-npu\nVersion: 1.0\n")
    group = {**project["entry-points"]["nnbridge.devices"], "broken": "my_npu:NOTHING"}
    lines = "\n".join(f"{name} = {value}" for name, value in group.items())
    (installed / "entry_points.txt").write_text(f"[nnbridge.devices]\n{lines}\n")
    code = "from nnbridge.devices import drivers; print([d.name for d in drivers()])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(folder)])}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert "'my-npu', 'my-relu'" in ended.stdout
    assert "not listed" in ended.stderr


def test_pip_installs_the_package_of_the_guide(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="70.1")  # the first that builds wheels by itself
    source = tmp_path / "source"
    shutil.copytree(folder, source, ignore=shutil.ignore_patterns("__pycache__", "cache"))
    offline = ("--no-build-isolation", "--no-deps", "--no-index", "--quiet", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "install", *offline, "--target", str(tmp_path / "installed"), str(source)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    ended = subprocess.run(f"{NNBRIDGE} devices", shell=True, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert "my-npu" in ended.stdout
    assert "my-relu" in ended.stdout


def test_the_second_plan_reads_what_the_first_one_cached(folder: Path) -> None:
    command = next(c for c in commands() if "--cache-dir" in c).replace("--cache-dir cache", "--cache-dir twice")
    for expected in ("written", "read"):
        lines = [line for line in _shell(command, folder).stdout.splitlines() if line.startswith("Cache of ")]
        assert lines
        assert set(lines) == {f"Cache of my-caching-npu: {expected}"}


def test_the_guides_adder_runs_and_agrees_with_litert(folder: Path) -> None:
    shown = _shell(next(c for c in commands() if "my_add:" in c), folder).stdout
    assert "my-add against" in " ".join(shown.split())
    assert "my-add accepted 1 of 11 operations" in shown


def test_the_guide_names_tests_and_files_that_exist() -> None:
    text = GUIDE.read_text()
    tests = "".join(path.read_text() for path in (REPOSITORY / "tests").rglob("*.py"))
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}(" in tests, name
    for path in re.findall(r"`((?:tests|scripts|examples|models)/[\w/.]+)`", text):
        assert (REPOSITORY / path).exists(), path
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (GUIDE.parent / link).exists(), link


def test_the_running_example_negates() -> None:
    import numpy as np

    from nnbridge.devices.device import OutputBuffer, Request

    block = next(block for block in blocks() if block.file == "my_copy.py")
    names: dict[str, type] = {}
    exec(block.text, names)
    out, x = np.zeros(8, np.uint8), np.array([1, -2], np.float32)
    result = names["Negated"]().execute(Request((x,), (OutputBuffer(out, (2,)),)))
    assert out.view(np.float32).tolist() == [-1, 2]
    assert result.shapes[0].dims == (2,)
    small = names["Negated"]().execute(Request((x,), (OutputBuffer(out[:4], (2,)),)))
    assert not small.shapes[0].sufficient

"""The delegate in programs of its own: a C program that has no Python, and the example of the guide."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nnbridge import delegate
from nnbridge_tflite.read.placed import placed_tensors
from tests.conftest import MODELS, REPOSITORY
from tests.delegate.interpreters import graph, needs

needs()

EXAMPLE = REPOSITORY / "examples" / "delegate.py"
HOST = Path(__file__).with_name("host.c")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, with the library beside it."""
    folder = tmp_path_factory.mktemp("host")
    delegate.build(folder)
    command = ["cc", "-Wall", "-Wextra", "-Werror", str(HOST), "-ldl", "-lpthread", "-o", str(folder / "host")]
    subprocess.run(command, check=True)
    return folder / "host"


def run(host: Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    path = graph(folder, "ABS")
    places = placed_tensors(memoryview(path.read_bytes()))
    assert places is not None
    offsets = [str(name.offset) for name, _ in places[0] if name is not None]
    command = [host, host.with_name(delegate.LIBRARY), path, *offsets]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120, check=False)


def test_a_c_program_is_delegated(host: Path, tmp_path: Path) -> None:
    ended = run(host, tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "computed\n"), ended.stderr
    refused, created, replaced = ended.stderr.splitlines()
    assert refused.startswith("ERROR: delegate options: expected an option of execution_preference, accelerator_name")
    assert created == "INFO: Created TensorFlow Lite delegate for NNAPI."
    assert replaced.startswith("INFO: Replacing 1 out of 1 node(s) with delegate (TfLiteNnapiDelegate) node, yielding 1 part")


def test_a_library_that_cannot_start_says_why(host: Path, tmp_path: Path) -> None:
    ended = run(host, tmp_path, NNBRIDGE_LOG="loud")
    assert ended.returncode == 1
    assert "libnnbridge_delegate.so cannot start: NNBRIDGE_LOG: expected one of info, debug, warning" in ended.stderr


def test_devices_of_the_environment_are_the_programs(host: Path, tmp_path: Path) -> None:
    ended = run(host, tmp_path, NNBRIDGE_DEVICES="nnapi-sample_minimal")
    assert "Could not find" not in ended.stderr  # a device may be named that is not listed
    assert ended.returncode == 0


def test_the_example_agrees_with_litert() -> None:
    command = [sys.executable, str(EXAMPLE), str(MODELS / "digits_int8.tflite"), "nnapi-sample_quant"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout == "greatest difference to LiteRT: 0\n"
    assert "Replacing 11 out of 11 node(s)" in ended.stderr

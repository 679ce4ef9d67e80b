"""Every script has ``--help``, and ends with one line where a package or a file is missing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

SCRIPTS = REPOSITORY / "scripts"
NAMES = sorted(str(path.relative_to(SCRIPTS)) for path in SCRIPTS.glob("*/*.py"))
RUN_WITHOUT = """
import runpy, sys
without, script, *sys.argv[1:] = sys.argv[1:]
sys.modules.update(dict.fromkeys(without.split(",")))
sys.path.insert(0, script.rpartition("/")[0])
sys.argv[0] = script
runpy.run_path(script, run_name="__main__")
"""


def ended(script: str, *arguments: str, without: str = "nothing") -> subprocess.CompletedProcess[str]:
    """Run a script to its end; the modules that ``without`` names cannot be imported."""
    command = [sys.executable, "-c", RUN_WITHOUT, without, str(SCRIPTS / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=REPOSITORY)


@pytest.mark.parametrize("script", NAMES)
def test_a_script_has_help_with_an_example(script: str) -> None:
    done = ended(script, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage:")
    assert f"python scripts/{script}" in done.stdout.split("options:")[0]


def test_the_folder_s_page_has_a_line_for_each_script() -> None:
    links = re.findall(r"^\| \[`([\w./]+)`\]\(\1\) \| \S", (SCRIPTS / "README.md").read_text(), re.MULTILINE)
    called = [
        str(path.relative_to(SCRIPTS))
        for pattern in ("street.py", "*/*.py", "*/*.mjs", "documentation/site/*.py")
        for path in SCRIPTS.glob(pattern)
    ]
    assert sorted(links) == sorted(called)
    assert sorted(path.name for path in SCRIPTS.glob("*.py")) == ["script_support.py", "street.py"]


def test_help_works_without_the_packages_and_names_them() -> None:
    done = ended("benchmarks/benchmark.py", "--help", without="threadpoolctl")
    assert (done.returncode, done.stderr) == (0, "")
    assert "python scripts/benchmarks/benchmark.py" in done.stdout
    assert "pip install '.[dev]'" in done.stdout


@pytest.mark.parametrize(
    ("script", "without"),
    [
        ("benchmarks/benchmark.py", "threadpoolctl"),
        ("benchmarks/benchmark_kernels.py", "ai_edge_litert"),
        ("benchmarks/benchmark_runtime.py", "threadpoolctl"),
    ],
)
def test_a_script_without_its_packages_names_them(script: str, without: str) -> None:
    done = ended(script, without=without)
    assert (done.returncode, done.stdout) == (2, "")
    assert without in done.stderr
    assert done.stderr.endswith("(pip install '.[dev]')\n")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("script", ["benchmarks/benchmark.py", "benchmarks/benchmark_runtime.py"])
def test_a_script_without_its_file_names_it(script: str) -> None:
    done = ended(script, "missing.tflite")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"{script}: missing.tflite: no such file\n")


def test_growth_is_timed_by_image_and_by_operation() -> None:
    done = ended("benchmarks/benchmark_runtime.py", "--growth", "--rounds", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[:2] for line in done.stdout.splitlines()][4:7] == [
        ["16", "images:"],
        ["32", "images:"],
        ["1", "operations:"],
    ]


def test_answers_to_a_picture_are_litert_s(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("ai_edge_litert")
    image.linear_gradient("L").resize((28, 28)).save(tmp_path / "grey.png")
    done = ended("comparisons/compare_inputs.py", "models/digits_int8.tflite", "--input", str(tmp_path / "grey.png"))
    rows = [line.split() for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert rows[1][:6] == ["digits_int8.tflite", "grey.png", "phone", "0", "0", "10"]
    assert rows[-1] == ["2", "of", "2", "as", "they", "must", "be"]

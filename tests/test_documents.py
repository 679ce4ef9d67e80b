"""The documents are true: tests, files and links that they name exist, and their examples run."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nnbridge
from tests.commands import call
from tests.conftest import REPOSITORY

TESTS = REPOSITORY / "tests"
NAMES = {name for path in TESTS.rglob("*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)}
FILES = {path.name for path in TESTS.rglob("*.py")}
DOCS = REPOSITORY / "docs"
PAGES = [*REPOSITORY.glob("*.md"), *DOCS.glob("*.md"), *TESTS.glob("*.md"), REPOSITORY / "models" / "README.md"]


@pytest.mark.parametrize("document", ["facts.md", "android-tests.md"])
def test_every_test_that_a_document_names_exists(document: str) -> None:
    text = (TESTS / document).read_text()
    named = re.findall(r"\b(test_\w+)(\.py|…|_…)?", text)
    assert len(named) > 50
    missing = []
    for name, tail in named:
        if tail == ".py":
            found = f"{name}.py" in FILES
        elif tail:
            found = any(known.startswith(name) for known in NAMES)
        else:
            found = name in NAMES
        if not found:
            missing.append(name + tail)
    assert not missing


COUNTS = {
    "M": 59, "V": 38, "D": 21, "C": 34, "P": 37, "E": 66, "R": 32, "S": 13, "Y": 31, "X": 27, "U": 31,
    "F": 7, "B": 17, "G": 9, "T": 3,
}  # fmt: skip
"""Prefix → how many facts have it."""


@pytest.mark.parametrize(("letter", "count"), COUNTS.items())
def test_every_fact_has_its_line(letter: str, count: int) -> None:
    text = (TESTS / "facts.md").read_text()
    listed: set[int] = set()
    for first in re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE):
        for start, end in re.findall(rf"\b{letter}(\d+)(?:–{letter}(\d+))?", first):
            listed |= set(range(int(start), int(end or start) + 1))
    assert sorted(set(range(1, count + 1)) - listed) == []


def test_every_fact_that_a_source_cites_is_stated() -> None:
    listed = r"[A-Z]\d{1,3}(?:(?:, | and | to |–)[A-Z]\d{1,3})*"
    cited: set[str] = set()
    for path in [*(REPOSITORY / "src").rglob("*.py"), *(REPOSITORY / "converters").rglob("*.py")]:
        text = path.read_text()
        for found in re.findall(rf"[Ff]acts?\s+({listed})", text) + re.findall(r"\bN\d{1,3}\b", text):
            cited |= set(re.findall(r"[A-Z]\d+", found))
    stated = set(re.findall(r"^- \*\*([A-Z]\d+)\*\*:", (REPOSITORY / "tests" / "cited-facts.md").read_text(), re.MULTILINE))
    assert len(cited) > 150
    assert sorted(cited - stated) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_linked_files_exist(page: Path) -> None:
    missing = [link for link in re.findall(r"\]\(((?!http)[^)#]+)", page.read_text()) if not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/measurements.md"])
def test_named_files_exist(page: str) -> None:
    text = (REPOSITORY / page).read_text()
    named = re.findall(r"`(?:python )?((?:src|converters|tests|scripts|docs|models)/[\w./-]*)(?=[` ])", text)
    assert len(named) > 10
    assert [name for name in named if not re.search("FAMILY|NAME", name) and not (REPOSITORY / name).exists()] == []


def test_names_of_the_code_that_contributing_has_exist() -> None:
    sources = (path.read_text() for folder in ("src", "converters", "tests") for path in (REPOSITORY / folder).rglob("*.py"))
    known = set(re.findall(r"\w+", " ".join(sources)))
    named = re.findall(r"`([A-Za-z_]\w*(?:\.\w+)?)`", (REPOSITORY / "CONTRIBUTING.md").read_text())
    assert len(named) > 100
    assert [name for name in named if not known.issuperset(name.split("."))] == []


def test_every_environment_variable_of_the_sources_has_a_row() -> None:
    sources = "".join(path.read_text() for path in (REPOSITORY / "src").rglob("*.py"))
    internal = {"NNBRIDGE_VERSION", "NNBRIDGE_NDK", "NNBRIDGE_NEURAL_NETWORKS_H"}  # names of generated C and CMake
    between_processes = {
        "NNBRIDGE_FOLDER",
        "NNBRIDGE_NEURON_FILE",
        "NNBRIDGE_NEURON_REPORT",
    }  # set by nnbridge for its own processes
    listed = set(re.findall(r"^\| `_?(NNBRIDGE_\w+)`", (DOCS / "environment.md").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bNNBRIDGE_[A-Z_]*[A-Z]", sources)) - internal - between_processes == listed - {"NNBRIDGE_COMPLETE"}


def test_the_readmes_python_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").symlink_to(REPOSITORY / "models", target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    code = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["compared"].passed
    assert [value.shape for value in names["outputs"].values()] == [(1, 10)]
    assert names["planned"].summary.accepted == 11
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_sample_output_is_what_the_commands_print() -> None:
    command = [sys.executable, str(REPOSITORY / "scripts" / "documentation" / "make_samples.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\n$ nnbridge plan " in (REPOSITORY / "README.md").read_text()


def test_the_readmes_commands_stand_where_continuous_integration_reads_them() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    for name in ("main-command", "test-command"):
        assert re.search(rf"^<!-- {name} -->\n```\npython3 -m venv .*\n```$", readme, re.MULTILINE)


def test_the_version_stands_in_the_package_alone() -> None:
    assert call("--version").output.endswith(f" {nnbridge.__version__}\n")
    assert f"\n## [{nnbridge.__version__}]" in (REPOSITORY / "CHANGELOG.md").read_text()
    assert "\nversion = " not in (REPOSITORY / "pyproject.toml").read_text()


def words(path: Path, text: str, monkeypatch: pytest.MonkeyPatch, search: str = "found") -> list[tuple[int, str]]:
    """Lines and words that a search of scripts/documentation/check_words.py finds in a file."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts" / "documentation"))
    module = importlib.import_module("check_words")
    monkeypatch.setattr(module, "REPOSITORY", path.parent)
    path.write_text(text)
    return [(line, word) for line, word, _ in getattr(module, search)(path)]


def test_home_made_words_of_a_page_are_found_outside_of_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Nobody knows.\n\n```\n$ anew\n```\n\nSee `nobody` in [it](anew.md), one\nbehind the other.\n"
    assert sorted(words(tmp_path / "page.md", text, monkeypatch)) == [(1, "Nobody"), (7, "one behind the other"), (8, "behind")]


def test_home_made_words_of_python_are_found_in_strings_and_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = '"""Made anew, as ``anew``."""\nanew = f"for {1} nobody"  # one behind\n# the other\nnobody = alone = 1\n'
    assert sorted(words(tmp_path / "module.py", text, monkeypatch)) == [
        (1, "anew"),
        (2, "behind"),
        (2, "nobody"),
        (2, "one behind the other"),
    ]


def test_docstrings_that_begin_with_a_question_word_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = '"""What this is."""\n\n\nclass Whatever:\n    """Whatever it is."""\n\n    def f(self):\n        """Where."""\n'
    assert words(tmp_path / "module.py", text, monkeypatch, "questions") == [(1, "What"), (8, "Where")]


def test_documents_messages_and_docstrings_have_no_home_made_words() -> None:
    command = [sys.executable, str(REPOSITORY / "scripts" / "documentation" / "check_words.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "no home-made words\n")

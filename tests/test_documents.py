"""What the documents say of tests is true: every test that they name exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

TESTS = REPOSITORY / "tests"
NAMES = {name for path in TESTS.rglob("*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)}
FILES = {path.name for path in TESTS.rglob("*.py")}


@pytest.mark.parametrize("document", ["facts.md", "android-tests.md"])
def test_every_test_that_a_document_names_exists(document: str) -> None:
    text = (REPOSITORY / "docs" / document).read_text()
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


@pytest.mark.parametrize(
    ("prefix", "count"),
    [
        ("m", 59),
        ("v", 38),
        ("d", 21),
        ("c", 34),
        ("p", 37),
        ("e", 66),
        ("r", 32),
        ("s", 13),
        ("y", 31),
        ("x", 27),
        ("u", 31),
        ("f", 7),
        ("b", 17),
        ("g", 9),
        ("t", 3),
    ],
)
def test_every_fact_has_its_line(prefix: str, count: int) -> None:
    text = (REPOSITORY / "docs" / "facts.md").read_text()
    letter = prefix.upper()
    told: set[int] = set()
    for first in re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE):
        for start, end in re.findall(rf"\b{letter}(\d+)(?:–{letter}(\d+))?", first):
            told |= set(range(int(start), int(end or start) + 1))
    assert told >= set(range(1, count + 1)), sorted(set(range(1, count + 1)) - told)


def test_documents_are_found_where_the_readme_links_them() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    missing = [link for link in re.findall(r"\]\(((?!http)[^)#]+)", readme) if not Path(REPOSITORY / link).exists()]
    assert not missing


def test_every_document_is_linked_in_the_readme() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    assert [page.name for page in (REPOSITORY / "docs").glob("*.md") if f"](docs/{page.name})" not in readme] == []


def test_the_readmes_python_runs_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    code = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["outputs"]["PartitionedCall:0"].sum() == pytest.approx(1.0)

"""The documentation site: every page is in its navigation, every block of code runs, every example is a command.

Blocks of Python run, and blocks of commands with a line that begins with ``nnbridge``: those of a page in one folder, in the
order of the page. A comment before a block says otherwise: ``<!-- not run: WHY -->``. ``<!-- file: NAME -->`` makes a block a
file of the folder, as a first line does that is a comment with a file's name. scripts/make_samples.py and
tests/devices/test_guide.py run theirs.
"""

from __future__ import annotations

import importlib
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from nnbridge.cli.commands import cli
from nnbridge.converters import converters
from tests.conftest import MODELS, REPOSITORY

DOCS = REPOSITORY / "docs"
BLOCK = re.compile(r"^(?:<!-- (not run|file): (.+?) -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:! )?nnbridge ")
ELSEWHERE = {"drivers.md": "tests/devices/test_guide.py", "cli.md": "generated"}


@dataclass(frozen=True)
class Block:
    """A fenced block, and what the comment before it says."""

    mark: str
    text_of_mark: str
    language: str
    text: str

    @property
    def file(self) -> str:
        """The file that it is, if any."""
        named = re.match(r"# (\S+\.(?:py|toml))\n", self.text)
        return self.text_of_mark if self.mark == "file" else named[1] if named else ""

    @property
    def commands(self) -> list[str]:
        """Its lines, joined where one goes on, if it holds commands of nnbridge's."""
        if self.language not in ("", "console", "shell"):
            return []
        lines = [re.sub(r"\s+# .*", "", line) for line in self.text.replace("\\\n", " ").splitlines()]
        return lines if any(map(COMMAND.match, lines)) else []


def blocks(page: Path) -> Iterator[Block]:
    return (Block(*found) for found in BLOCK.findall(page.read_text(encoding="utf-8")))


PAGES = [
    page
    for page in (REPOSITORY / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("questions/*.md")))
    if page.name not in ELSEWHERE
]
RUNNING = [p for p in PAGES if any(b.mark != "not run" and (b.language == "python" or b.commands) for b in blocks(p))]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The reader's folder: the repository's models, and a model and images under the names that pages use."""
    (tmp_path / "models").mkdir()
    for name, model in {"my": "digits_float32", "model": "digits_float32", "kws": "digits_int8"}.items():
        shutil.copy(MODELS / f"{model}.tflite", tmp_path / f"{name}.tflite")
    (tmp_path / "zoo").mkdir()
    shutil.copy(MODELS / "digits_uint8.tflite", tmp_path / "zoo")
    (tmp_path / "my-npu.toml").write_text('[[device]]\nname = "my-npu"\n[device.operations]\nCONV_2D = ["FLOAT32"]\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    converters.cache_clear()


@pytest.mark.parametrize("page", RUNNING, ids=lambda page: page.name)
def test_every_block_of_a_page_runs(page: Path, folder: Path) -> None:
    names: dict[str, Any] = {}
    # A folder of models is one of those that the page names.
    for name in set(re.findall(r"models/([\w.]+\.(?:tflite|onnx|npz))", page.read_text(encoding="utf-8"))) or {
        "digits_uint8.tflite"
    }:
        (folder / "models" / name).symlink_to(MODELS / name)
    for block in blocks(page):
        if block.mark == "not run":
            continue
        if block.file:
            (folder / block.file).write_text(block.text)
        elif "[[device]]" in block.text and block.language == "toml":
            (folder / "page.toml").write_text(block.text)
            _run("nnbridge devices check page.toml", folder)
        elif block.language == "python":
            exec(compile(block.text, str(page), "exec"), names)
        for command in block.commands:
            _run(command, folder)


def _run(command: str, folder: Path) -> None:
    if command == "pip install .":
        _install(folder)
        return
    refused = command.startswith("! ")
    if command.startswith("mkdir "):
        (folder / command.removeprefix("mkdir ")).mkdir()
        return
    assert COMMAND.match(command), (
        f'{command}: what is not nnbridge\'s does not run here; write "<!-- not run: WHY -->" before the block'
    )
    done = CliRunner().invoke(cli, shlex.split(command.removeprefix("! "))[1:])
    assert done.exit_code == (2 if refused else 0), f"{command}\n{done.output}"


def _install(folder: Path) -> None:
    """What pip writes of a package that lies in the folder: its entry points."""
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    installed = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        f"[{group}]\n{name} = {value}\n" for group, points in project["entry-points"].items() for name, value in points.items()
    ]
    (installed / "entry_points.txt").write_text("".join(lines))
    importlib.invalidate_caches()
    converters.cache_clear()


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r": ([\w/-]+\.(?:md|ipynb))$", (REPOSITORY / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {path.relative_to(DOCS).as_posix() for suffix in ("md", "ipynb") for path in DOCS.rglob(f"*.{suffix}")}
    assert not {f"docs/{page}: add it to nav in mkdocs.yml" for page in pages - listed}
    assert listed - pages == {"CONTRIBUTING.md", "CHANGELOG.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_headings_hold(page: Path) -> None:
    missing = []
    for file, heading in re.findall(r"\]\(([^):#]*)#([\w-]+)\)", page.read_text(encoding="utf-8")):
        target = page.parent / file if file else page
        titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
        if heading not in {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}:
            missing.append(f"{file}#{heading}")
    assert not missing


def test_what_does_not_run_is_a_command_with_its_options_as_every_example_of_the_help() -> None:
    shown = [block for page in PAGES for block in blocks(page) if block.mark == "not run"] + list(blocks(DOCS / "cli.md"))
    examples = [line for block in shown for line in block.commands if line.startswith("nnbridge ")]
    assert len(examples) > 30
    for example in examples:
        context, command, words = click.Context(cli, info_name="nnbridge"), cli, shlex.split(example)[1:]
        while isinstance(command, click.Group) and words:
            if words[0].startswith("-"):
                break
            _, found, words = command.resolve_command(context, words)
            assert found is not None, example
            context, command = click.Context(found, parent=context), found
        command.make_parser(context).parse_args(words)


def test_notebooks_hold_no_output_and_have_a_title() -> None:
    # The site's build runs them.
    notebooks = [json.loads(path.read_text()) for path in sorted((DOCS / "notebooks").glob("*.ipynb"))]
    assert len(notebooks) == 2
    for notebook in notebooks:
        assert "".join(notebook["cells"][0]["source"]).startswith("# ")
        assert not [cell for cell in notebook["cells"] if cell.get("outputs") or cell.get("execution_count")]

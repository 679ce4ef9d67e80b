"""The documentation site: every page is in its navigation, every block of code runs, every example is a command.

What a block is (CONTRIBUTING.md, Documentation): ``tests/site/blocks.py``. Who runs it: ``tests/site/reader.py``.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from nnbridge.cli.commands import cli
from nnbridge.converters import converters
from tests.conftest import REPOSITORY, requires_recent_onnx_runtime
from tests.site.blocks import DOCS, PAGES, blocks
from tests.site.machine import furnish, missing_models
from tests.site.reader import Reader

ELSEWHERE = {"drivers.md": "tests/devices/test_guide.py"}
"""Pages whose blocks others run; those of docs/cli: test_every_example_of_the_help_is_a_command."""
BY_CI = ("main-command", "test-command")
"""Blocks that .ci/run runs in new environments."""
LIBRARIES = {
    "delegate.md": "ai_edge_litert",
    "neuron.md": "ai_edge_litert",
    "provider.md": "onnxruntime",
    "ndk.md": "",
    "source.md": "",
}
"""Pages that compile libraries with cffi and a C compiler on Linux, and what loads these."""
RUNNING = [page for page in PAGES if page.name not in ELSEWHERE and any(blocks(page))]


def _requires(page: Path) -> None:
    """Skip a page whose compilers and packages are not there."""
    if page.name not in LIBRARIES:
        return
    if sys.platform != "linux":
        pytest.skip("the C libraries are there on Linux alone")
    for name in filter(None, ("cffi", LIBRARIES[page.name])):
        pytest.importorskip(name)
    if page.name == "provider.md":
        requires_recent_onnx_runtime()  # The library of older ones finds its parts beside programs alone.
    for program in ("gcc", "c++", *(("cmake",) if page.name == "source.md" else ())):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} on this machine")


@pytest.mark.parametrize("page", RUNNING, ids=lambda page: page.name)
def test_every_block_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _requires(page)
    furnish(tmp_path, "".join(block.text + block.text_of_mark for block in blocks(page)))
    reader = Reader(tmp_path, monkeypatch)
    for block in blocks(page):
        if block.mark in BY_CI:
            continue
        if missing := missing_models(tmp_path, block.text):
            reader.skipped.append(f"published models: {', '.join(missing)}")
        else:
            reader.follow(block)
    converters.cache_clear()
    if reader.skipped:
        pytest.skip(f"all but {len(reader.skipped)} of the blocks ran; needs {'; '.join(reader.skipped)}")


def test_continuous_integration_runs_the_blocks_that_are_left_to_it() -> None:
    script = (REPOSITORY / ".ci" / "run").read_text()
    readme = [block.mark for block in blocks(REPOSITORY / "README.md")]
    assert all(name in script and name in readme for name in BY_CI)


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r": ([\w/-]+\.(?:md|ipynb))$", (REPOSITORY / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {path.relative_to(DOCS).as_posix() for suffix in ("md", "ipynb") for path in DOCS.rglob(f"*.{suffix}")}
    assert not {f"docs/{page}: add it to nav in mkdocs.yml" for page in pages - listed}
    assert listed - pages == {"CONTRIBUTING.md", "CHANGELOG.md"}


@pytest.mark.parametrize(
    "page", [*PAGES, *(REPOSITORY / name for name in ("CONTRIBUTING.md", "CHANGELOG.md"))], ids=lambda page: page.name
)
def test_links_to_headings_hold(page: Path) -> None:
    missing = []
    for file, heading in re.findall(r"\]\(([^):#]*)#([\w-]+)\)", page.read_text(encoding="utf-8")):
        target = page.parent / file if file else page
        titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
        if heading not in {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}:
            missing.append(f"{file}#{heading}")
    assert not missing


def test_broken_links_of_a_built_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<a href="api/#load">a</a><a href="api/#gone">b</a><a href="no.html">c</a>')
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "index.html").write_text(
        '<h2 id="load">load</h2><a href="..">up</a><a href="https://example.org/">else</a>'
    )
    command = [sys.executable, str(REPOSITORY / "scripts" / "documentation" / "site" / "check_links.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()) == (
        1,
        [
            "index.html: api/#gone: expected an anchor of index.html, found none",
            "index.html: no.html: expected a file of the site, found none",
        ],
    )


def test_every_example_of_the_help_is_a_command() -> None:
    pages = sorted((DOCS / "cli").glob("*.md"))
    assert [page.stem for page in pages] == sorted(["index", *cli.list_commands(click.Context(cli))])
    examples = [line for page in pages for block in blocks(page) for line in block.lines if line.startswith("nnbridge ")]
    assert len(examples) > 30
    for example in examples:
        context, command, words = click.Context(cli, info_name="nnbridge"), cli, shlex.split(example, comments=True)[1:]
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

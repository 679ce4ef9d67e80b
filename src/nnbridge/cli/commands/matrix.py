"""``nnbridge matrix``: many models on many devices."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from nnbridge.cli import completion
from nnbridge.cli.arguments import check_outputs, input_files, parse_preparation, parse_seeds, refuse_options
from nnbridge.cli.options import (
    PREPARATION,
    WRITTEN,
    file_options,
    in_section,
    of_comparison,
    of_conversion,
    of_devices,
    of_output,
    option,
    release_options,
)
from nnbridge.cli.output import echo, json_option, print_blocks, print_json, progress, shown_rows
from nnbridge.cli.sections import RUN, command
from nnbridge.engines import REFERENCES
from nnbridge.errors import NO_SUCH_FILE, InputError, Reason, cannot_read
from nnbridge.target import PREFERENCES
from nnbridge.types import ANDROID_LEVELS, RUNTIME_FEATURE_LEVEL

if TYPE_CHECKING:
    from nnbridge.matrix.cells import Cell, Task

_PATH = click.Path(path_type=Path)
_FOLDER = click.Path(path_type=Path, file_okay=False)
_STORE = Path("matrix.db")
_ROWS = 40
"""Rows of each list where --top states none."""
_REFERENCE = f"Compare with it: {', '.join(REFERENCES)}; auto: litert or onnxruntime, whichever reads the file."
_OF_RUNS = (
    *(
        "--device",
        "--android",
        "--feature-level",
        "--mapping",
        "--tflite",
        "--ort",
        "--preference",
        "--reference",
        "--seeds",
        "--input",
        *PREPARATION,
        "--time",
    ),
    "--store",
    *("--fresh", "--html", "--reports", "--csv", "--markdown", "--github", "--jobs", "--timeout", "--scheduler"),
)
"""Options of a run, which ``--diff`` has no use for."""

of_run = in_section(RUN)


@command(short_help="Plan, run and compare many models on many devices.")
@click.argument("models", nargs=-1, shell_complete=completion.files)
@option(
    "--device",
    "--devices",
    "devices",
    multiple=True,
    metavar="NAME[,NAME…]",
    help="profiles, samples, patterns (vsi-*), names, FILE.toml; A+B: both.",
)
@of_conversion(
    "--android",
    "androids",
    multiple=True,
    metavar="VERSION[,…]",
    shell_complete=completion.words(lambda: ANDROID_LEVELS),
    help="Android versions, such as 10,13.",
)
@of_conversion("--feature-level", "levels", multiple=True, metavar="N[,N…]", help="NNAPI's feature levels. Default: 8.")
@of_conversion("--mapping", values=("phone", "wide"), default="phone", help="What is handed to NNAPI, as for plan.")
@release_options
@of_devices("--preference", values=PREFERENCES, default="fast", help="As for plan.")
@of_comparison("--reference", values=("auto", *REFERENCES), metavar="NAME", help=_REFERENCE)
@of_comparison("--seeds", default="0", metavar="N[,N…]", help="Seeds that inputs are drawn with.")
@file_options
@of_run("--time", "timed", is_flag=True, help="Also measure runs of the emulation on this machine.")
@of_run("--store", type=_PATH, metavar="FILE", help="Store results here; a run that ended continues. Default: matrix.db")
@of_run("--fresh", is_flag=True, help="Compute stored cells again.")
@option("--html", type=WRITTEN, metavar="FILE", help="Write a page.")
@of_output("--reports", type=_FOLDER, metavar="FOLDER", help="Write the report of each cell there; the page has links to them.")
@of_output("--csv", "csv_file", type=WRITTEN, metavar="FILE", help="Write a row for each cell.")
@of_output("--markdown", type=WRITTEN, metavar="FILE", help="Write tables in Markdown.")
@of_output("--junit", type=WRITTEN, metavar="FILE", help="Write JUnit XML; with --diff, of what got worse.")
@of_output("--github", is_flag=True, help="Append Markdown to the step summary of a GitHub workflow.")
@option("--budget", type=_PATH, metavar="FILE.toml", help="Limits; exit status 1 if one is exceeded.")
@of_run("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes. Default: one for each core.")
@of_run("--timeout", type=click.FloatRange(min=0, min_open=True), default=300.0, metavar="S", help="Seconds for a cell.")
@of_run("--scheduler", default="", metavar="ADDRESS", help="Compute on the workers of a Dask scheduler.")
@option(
    "--diff", nargs=2, metavar="OLD[@DEVICE] NEW[@DEVICE]", shell_complete=completion.files, help="Changes between two stores."
)
@option("--fail-on", values=("worse",), help="With --diff: exit status 1 if a cell got worse or is gone (docs/matrix.md).")
@json_option
def matrix(
    models: tuple[str, ...],
    devices: tuple[str, ...],
    androids: tuple[str, ...],
    levels: tuple[str, ...],
    mapping: str,
    tflite: str,
    ort: str,
    preference: str,
    reference: str | None,
    seeds: str,
    inputs: tuple[str, ...],
    timed: bool,
    store: Path | None,
    fresh: bool,
    html: Path | None,
    reports: Path | None,
    csv_file: Path | None,
    markdown: Path | None,
    junit: Path | None,
    github: bool,
    budget: Path | None,
    jobs: int | None,
    timeout: float,
    scheduler: str,
    diff: tuple[str, str] | None,
    fail_on: str | None,
    as_json: bool,
    **prepared: Any,
) -> None:
    """Plan every model on every device; with --reference, run and compare it. One failure does not stop the others.

    Exit status 1 if a cell failed, differs beyond tolerance or exceeds a limit. n/a is not a failure: the device is for
    files of another format.

    \b
    Examples:
      nnbridge matrix models/ --devices profiles --android 10,13 --html matrix.html
      nnbridge matrix 'zoo/**/*.tflite' --devices my-npu.toml --reference auto --budget budget.toml --junit out.xml
      nnbridge matrix models/ --devices vsi-imx-1.1.8 --store old.db
      nnbridge matrix --diff old.db new.db --fail-on worse --junit worse.xml
    """
    from nnbridge.devices.evidence import evidence_lines
    from nnbridge.matrix import tables
    from nnbridge.matrix.budget import broken_limits, read_budgets, unused_limits
    from nnbridge.matrix.cells import MatrixSettings, tasks
    from nnbridge.matrix.models import evidence_of, find_devices, find_models
    from nnbridge.matrix.page import as_html
    from nnbridge.storage.atomic import atomic_write, written_together

    if diff is not None:
        if models:
            raise click.UsageError("--diff compares two stores; models belong to a run.")
        refuse_options(*_OF_RUNS, why="--diff compares two stores: it prints the changes, --json as data, --junit as tests")
        worse = _show_changes(*diff, budget, junit, as_json)
        sys.exit(1 if worse and fail_on else 0)
    refuse_options("--fail-on", why="it belongs to --diff")
    if not models or not devices:
        raise click.UsageError(f"Missing {'models' if not models else 'option --devices'}.")
    _refuse_unused(reference, inputs, scheduler)
    outputs = {"--html": html, "--csv": csv_file, "--markdown": markdown, "--junit": junit}
    budgets = read_budgets(budget) if budget is not None else ()
    summary = _summary_file() if github else None
    # Copies of files from addresses lie beside the store.
    path = store or _STORE
    if not path.name:
        raise InputError(Reason("a file's name", f"the folder {str(path)!r}", operand="--store"))
    found = find_models(models, path.with_name(f"{path.name}.models"))
    check_outputs({"--store": path, **outputs}, {"a model": found.values()})
    how, _ = parse_preparation(**prepared)
    drawn, compared = tuple(parse_seeds(seeds)), (inputs, _content(inputs), how)
    settings = MatrixSettings(mapping, reference or "", drawn, timed, PREFERENCES[preference], tflite, ort, *compared)
    named = find_devices(devices)
    groups = tasks(found, named, _levels(androids, levels), settings, _folder(reports))
    cells = _computed(groups, path, fresh, as_json, jobs=jobs or os.cpu_count() or 1, scheduler=scheduler, timeout=timeout)
    for note in dict.fromkeys([*(note for cell in cells for note in cell.notes), *unused_limits(budgets, cells)]):
        echo(note, err=True)
    broken, known = broken_limits(budgets, cells), evidence_of(named)
    evidence = evidence_lines(known)
    written_reports = _reports(groups, cells, html)
    written: tuple[tuple[Path | None, Callable[[], str]], ...] = (
        (html, lambda: as_html(cells, broken, known, written_reports)),
        (csv_file, lambda: tables.as_csv(cells)),
        (markdown, lambda: tables.as_markdown(cells, broken, evidence)),
        (junit, lambda: tables.as_junit(cells, broken)),
    )
    with written_together():
        for file, content in written:
            if file is not None:
                with atomic_write(file) as out:
                    out.write(content().encode())
        if summary is not None:
            with summary.open("a", encoding="utf-8") as out_text:
                out_text.write(tables.as_markdown(cells, broken, evidence) + "\n")
    if as_json:
        limits, evidences = tables.limit_lines(cells, broken), [each.as_dict() for each in known]
        data = {"cells": [cell.as_dict() for cell in cells], "broken": limits, "evidence": evidences, "store": str(path)}
        print_json("matrix", data)
    else:
        print_blocks(tables.matrix_tables(cells, broken, evidence, shown_rows(_ROWS)), top=0)
    for why in dict.fromkeys(cell.error for cell in cells if cell.shortage):
        echo(f"nnbridge: {why}", err=True)
    sys.exit(tables.judgement(cells, broken)[0])


def _refuse_unused(reference: str | None, inputs: Sequence[str], scheduler: str) -> None:
    """UsageError for options of a run that would do nothing."""
    if reference is None:
        refuse_options("--input", "--seeds", why="nothing runs without --reference")
    if not inputs:
        refuse_options(*PREPARATION, why="no --input has a file")
    if scheduler:
        refuse_options("--jobs", "--timeout", why="the cluster of --scheduler decides")


def _content(inputs: Sequence[str]) -> str:
    """A checksum of the files that inputs are read from; empty without any. InputError where none are: no cell is at fault."""
    from nnbridge.storage.atomic import file_checksum

    files: list[Path] = []
    for text in inputs:
        named = [path for path in input_files([text]) if os.path.exists(path)]
        inside = [file for path in named if path.is_dir() for file in path.rglob("*") if file.is_file()]
        found = [*inside, *(path for path in named if not path.is_dir())]
        if not found:
            what = "an empty folder" if named else NO_SUCH_FILE
            raise InputError(Reason("a file, or a folder of files", f"{text}: {what}", operand="--input"))
        files += found
    return hashlib.sha256("".join(map(file_checksum, sorted(files))).encode()).hexdigest() if files else ""


def _folder(reports: Path | None) -> str:
    """The folder of reports, created; empty for none."""
    if reports is None:
        return ""
    try:
        reports.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(Reason("a folder that can be created", cannot_read(error), operand="--reports")) from error
    return str(reports.absolute())


def _computed(groups: Sequence[Sequence[Task]], path: Path, fresh: bool, as_json: bool, **how: Any) -> list[Cell]:
    """The cells, from the store or computed."""
    from nnbridge.matrix.runner import run
    from nnbridge.matrix.store import Store
    from nnbridge.report.terminal import counted

    with Store(path) as cached:
        if fresh:
            cached.remove(task.key for group in groups for task in group)
        count = sum(map(len, groups))
        with progress("Computing cells", count, as_json) as advance:
            try:
                return run(groups, cached, progress=advance, **how)
            except KeyboardInterrupt:
                done = len(cached.find(task.key for group in groups for task in group))
                echo(f"Interrupted: {path} has {done:,} of {counted(count, 'cell')}; the same command continues.", err=True)
                raise


def _reports(groups: Sequence[Sequence[Task]], cells: Sequence[Cell], html: Path | None) -> dict[int, str]:
    """The address of each cell's report from the page, by the cell's position. A note says how many could not be written."""
    pages = [task.report for group in groups for task in group]
    expected = {i: page for i, (page, cell) in enumerate(zip(pages, cells, strict=True)) if page is not None and cell.answered}
    there = {i: page for i, page in expected.items() if page.is_file()}
    if len(there) < len(expected):
        echo(f"--reports: {len(expected) - len(there):,} of {len(expected):,} were not written", err=True)
    if expected:
        echo(f"--reports: {len(there):,} in {next(iter(expected.values())).parent}", err=True)
    return {} if html is None else {i: _address(page, html.absolute().parent) for i, page in there.items()}


def _address(page: Path, folder: Path) -> str:
    """A page's address from a folder; an absolute one from another drive."""
    try:
        return quote(Path(os.path.relpath(page, folder)).as_posix())
    except ValueError:
        return page.as_uri()


def _levels(androids: Sequence[str], levels: Sequence[str]) -> list[int]:
    """Feature levels of both options, each once."""
    found: dict[int, None] = {}
    for text in (part.strip() for group in androids for part in group.split(",")):
        if text not in ANDROID_LEVELS:
            raise InputError(Reason(f"a version of Android ({', '.join(ANDROID_LEVELS)})", text, operand="--android"))
        found[int(ANDROID_LEVELS[text])] = None
    for text in (part.strip() for group in levels for part in group.split(",")):
        if not text.isdecimal() or not 1 <= int(text) <= RUNTIME_FEATURE_LEVEL:
            raise InputError(Reason(f"a feature level of 1 to {int(RUNTIME_FEATURE_LEVEL)}", text, operand="--feature-level"))
        found[int(text)] = None
    return list(found) or [int(RUNTIME_FEATURE_LEVEL)]


def _summary_file() -> Path:
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        raise InputError(Reason("the variable GITHUB_STEP_SUMMARY, as workflows have it", "none", operand="--github"))
    return Path(path)


def _show_changes(old: str, new: str, budget: Path | None, junit: Path | None, as_json: bool) -> bool:
    """Print the changes; True if a cell got worse, or if a model, device or Android version is missing."""
    from nnbridge.matrix.budget import read_budgets
    from nnbridge.matrix.changes import change_lines, changes, changes_as_junit
    from nnbridge.storage.atomic import atomic_write

    check_outputs({"--junit": junit}, {"a store": [_store_file(text)[0] for text in (old, new)]})
    found = changes(_stored(old), _stored(new), read_budgets(budget) if budget is not None else ())
    if junit is not None:
        with atomic_write(junit) as out:
            out.write(changes_as_junit(found).encode())
    if as_json:
        print_json("matrix", {**found.as_dict(), "old": old, "new": new})
    else:
        print_blocks(change_lines(found, shown_rows(_ROWS)), top=0)
    return bool(found.worse or found.removed)


def _store_file(text: str) -> tuple[Path, str]:
    """The file of ``FILE`` or ``FILE@DEVICE``, and the device."""
    name, _, device = text.rpartition("@") if not os.path.isfile(text) else (text, "", "")
    return Path(name or text), device


def _stored(text: str) -> list[Cell]:
    """The cells of ``FILE`` or ``FILE@DEVICE``."""
    from nnbridge.matrix.store import Store

    path, device = _store_file(text)
    with Store.existing(path) as stored:
        cells = stored.all()
    chosen = [cell for cell in cells if device in ("", cell.device)]
    if not chosen:
        names = ", ".join(dict.fromkeys(cell.device for cell in cells)) or "no device"
        raise InputError(Reason(f"a device of {path} ({names})", device or "no cell", operand="--diff"))
    return chosen

"""``nnbridge matrix``: many models on many devices."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nnbridge.cli import completion
from nnbridge.cli.arguments import check_outputs, parse_seeds, refuse_options
from nnbridge.cli.options import WRITTEN, in_section, of_comparison, of_conversion, of_devices, of_output, option, release_options
from nnbridge.cli.output import echo, json_option, print_blocks, print_json, progress
from nnbridge.cli.sections import RUN, command
from nnbridge.errors import InputError, Reason
from nnbridge.target import PREFERENCES
from nnbridge.types import ANDROID_LEVELS, RUNTIME_FEATURE_LEVEL

if TYPE_CHECKING:
    from nnbridge.matrix.cells import Cell

_PATH = click.Path(path_type=Path)
_STORE = Path("matrix.db")
_OF_RUNS = (
    *(
        "--devices",
        "--android",
        "--feature-level",
        "--mapping",
        "--tflite",
        "--ort",
        "--preference",
        "--reference",
        "--seeds",
        "--time",
    ),
    "--store",
    *("--fresh", "--html", "--csv", "--markdown", "--junit", "--github", "--budget", "--jobs", "--timeout", "--scheduler"),
)
"""Options of a run, which ``--diff`` has no use for."""

of_run = in_section(RUN)


@command(short_help="Plan, run and compare many models on many devices.")
@click.argument("models", nargs=-1, shell_complete=completion.files)
@option(
    "--devices", multiple=True, metavar="NAME[,NAME…]", help="profiles, samples, patterns (vsi-*), names, FILE.toml; A+B: both."
)
@of_conversion(
    "--android",
    "androids",
    multiple=True,
    metavar="VERSION[,…]",
    shell_complete=completion.words(lambda: ANDROID_LEVELS),
    help="Android's versions, such as 10,13.",
)
@of_conversion("--feature-level", "levels", multiple=True, metavar="N[,N…]", help="NNAPI's feature levels. Default: 8.")
@of_conversion("--mapping", values=("phone", "wide"), default="phone", help="What is handed to NNAPI, as for plan.")
@release_options
@of_devices("--preference", values=PREFERENCES, default="fast", help="As for plan.")
@of_comparison("--reference", values=("auto", "litert", "onnxruntime"), help="Compare with it; auto: whichever reads the file.")
@of_comparison("--seeds", default="0", metavar="N[,N…]", help="Seeds that inputs are drawn with.")
@of_run("--time", "timed", is_flag=True, help="Measure runs of the emulation on this machine, too.")
@of_run("--store", type=_PATH, metavar="FILE", help="Store results here; a run that ended continues. Default: matrix.db")
@of_run("--fresh", is_flag=True, help="Compute stored cells again.")
@option("--html", type=WRITTEN, metavar="FILE", help="Write a page.")
@of_output("--csv", "csv_file", type=WRITTEN, metavar="FILE", help="Write a row for each cell.")
@of_output("--markdown", type=WRITTEN, metavar="FILE", help="Write tables in Markdown.")
@of_output("--junit", type=WRITTEN, metavar="FILE", help="Write JUnit XML.")
@of_output("--github", is_flag=True, help="Append Markdown to the step summary of a GitHub workflow.")
@option("--budget", type=_PATH, metavar="FILE.toml", help="Limits; exit status 1 if one is not met.")
@of_run("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes. Default: one for each core.")
@of_run("--timeout", type=click.FloatRange(min=0, min_open=True), default=300.0, metavar="S", help="Seconds for a cell.")
@of_run("--scheduler", default="", metavar="ADDRESS", help="Compute on the workers of a Dask scheduler.")
@option(
    "--diff", nargs=2, metavar="OLD[@DEVICE] NEW[@DEVICE]", shell_complete=completion.files, help="Changes between two stores."
)
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
    timed: bool,
    store: Path | None,
    fresh: bool,
    html: Path | None,
    csv_file: Path | None,
    markdown: Path | None,
    junit: Path | None,
    github: bool,
    budget: Path | None,
    jobs: int | None,
    timeout: float,
    scheduler: str,
    diff: tuple[str, str] | None,
    as_json: bool,
) -> None:
    """Plan every model on every device; with --reference, run and compare it. One failure does not stop the others.

    Exit status 1 if a cell failed, differs beyond tolerance or does not meet a limit.

    \b
    Examples:
      nnbridge matrix models/ --devices profiles --android 10,13 --html matrix.html
      nnbridge matrix 'zoo/**/*.tflite' --devices my-npu.toml --reference auto --budget budget.toml --junit out.xml
      nnbridge matrix models/ --devices vsi-imx-1.1.8 --store old.db
      nnbridge matrix --diff old.db new.db
    """
    from nnbridge.matrix import tables
    from nnbridge.matrix.budget import broken_limits, read_budgets
    from nnbridge.matrix.cells import MatrixSettings, tasks
    from nnbridge.matrix.models import find_devices, find_models
    from nnbridge.matrix.page import as_html
    from nnbridge.matrix.runner import run
    from nnbridge.matrix.store import Store
    from nnbridge.report.terminal import counted
    from nnbridge.storage.atomic import atomic_write, written_together

    if diff is not None:
        if models:
            raise click.UsageError("--diff compares two stores; models belong to a run.")
        refuse_options(*_OF_RUNS, why="--diff compares two stores and prints the changes, --json as data")
        _show_changes(*diff, as_json)
        return
    if not models or not devices:
        raise click.UsageError(f"Missing {'models' if not models else 'option --devices'}.")
    if scheduler:
        refuse_options("--jobs", "--timeout", why="the cluster of --scheduler decides")
    outputs = {"--html": html, "--csv": csv_file, "--markdown": markdown, "--junit": junit}
    budgets = read_budgets(budget) if budget is not None else ()
    summary = _summary_file() if github else None
    # Copies of files from addresses lie beside the store.
    path = store or _STORE
    if not path.name:
        raise InputError(Reason("a file's name", f"the folder {str(path)!r}", operand="--store"))
    found = find_models(models, path.with_name(f"{path.name}.models"))
    check_outputs({"--store": path, **outputs}, {"a model": found.values()})
    settings = MatrixSettings(mapping, reference or "", tuple(parse_seeds(seeds)), timed, PREFERENCES[preference], tflite, ort)
    groups = tasks(found, find_devices(devices), _levels(androids, levels), settings)
    with Store(path) as cached:
        if fresh:
            cached.remove(task.key for group in groups for task in group)
        count = sum(map(len, groups))
        with progress("Computing cells", count, as_json) as advance:
            try:
                cells = run(
                    groups, cached, jobs=jobs or os.cpu_count() or 1, scheduler=scheduler, timeout=timeout, progress=advance
                )
            except KeyboardInterrupt:
                done = len(cached.find(task.key for group in groups for task in group))
                echo(f"Interrupted: {path} has {done:,} of {counted(count, 'cell')}; the same command continues.", err=True)
                raise
    broken = broken_limits(budgets, cells)
    written: tuple[tuple[Path | None, Callable[[], str]], ...] = (
        (html, lambda: as_html(cells, broken)),
        (csv_file, lambda: tables.as_csv(cells)),
        (markdown, lambda: tables.as_markdown(cells)),
        (junit, lambda: tables.as_junit(cells, broken)),
    )
    with written_together():
        for file, content in written:
            if file is not None:
                with atomic_write(file) as out:
                    out.write(content().encode())
    if summary is not None:
        with summary.open("a", encoding="utf-8") as out_text:
            out_text.write(tables.as_markdown(cells) + "\n")
    limits = [f"{cells[i].model} on {cells[i].device}: {line}" for i, lines in broken.items() for line in lines]
    if as_json:
        print_json({"cells": [cell.as_dict() for cell in cells], "broken": limits, "store": str(path)})
    else:
        print_blocks([*tables.matrix_tables(cells), *(f"Limit not met: {line}" for line in limits)])
    sys.exit(1 if limits or any(cell.error or cell.passed is False for cell in cells) else 0)


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


def _show_changes(old: str, new: str, as_json: bool) -> None:
    from nnbridge.matrix.changes import as_dict, change_tables, changes

    before, after = _stored(old), _stored(new)
    found = changes(before, after)
    if as_json:
        print_json({**as_dict(found, len(after)), "old": old, "new": new})
    else:
        print_blocks(change_tables(found, len(after)))
    if not found:
        echo("no change", err=True)


def _stored(text: str) -> list[Cell]:
    """The cells of ``FILE`` or ``FILE@DEVICE``."""
    from nnbridge.matrix.store import Store

    name, _, device = text.rpartition("@") if not os.path.isfile(text) else (text, "", "")
    with Store.existing(Path(name or text)) as stored:
        cells = stored.all()
    chosen = [cell for cell in cells if device in ("", cell.device)]
    if not chosen:
        names = ", ".join(dict.fromkeys(cell.device for cell in cells)) or "no device"
        raise InputError(Reason(f"a device of {name} ({names})", device or "no cell", operand="--diff"))
    return chosen

"""``nnbridge report``: a plan, its cost and its comparison with a reference as one page, or over Model Explorer's graph."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnbridge.cli.arguments import check_outputs, device_files, parse_acceptance, parse_preparation, parse_seeds, refuse_options
from nnbridge.cli.options import (
    ACCEPTANCE,
    MODEL,
    PREPARATION,
    WRITTEN,
    acceptance_options,
    begin_runtime,
    compute_options,
    device_options,
    file_of,
    input_options,
    model_options,
    named_devices,
    of_comparison,
    of_reference,
    option,
    planned,
    seeds_option,
    target_of,
    tell_host,
)
from nnbridge.cli.output import INTERRUPTED, drivers_apart, echo, json_option, print_blocks, print_json, progress
from nnbridge.cli.overlay import check_overlay, overlay_layers, show_overlay, write_overlay
from nnbridge.cli.sections import command

if TYPE_CHECKING:
    from nnbridge.report.page import PageFacts

OF_PAGES = ("--open", "--no-layers", "--against-device", "--repeat", "--input", "--labels")
"""Options that an overlay has no use for."""
FILE = """The page to write. Default: MODEL.html in the current folder. FILE.json is an overlay for Model Explorer
(docs/model-explorer.md): FILE.json has the placement; files beside it, such as FILE.reason.json, have the rest."""


@command(short_help="Write plan, cost and comparison as one page, or for Model Explorer.")
@MODEL
@option("-o", "--output", type=WRITTEN, metavar="FILE.html|FILE.json", help=FILE)
@option("--open", "opened", is_flag=True, help="Open the page in the browser.")
@option("--overlay", type=WRITTEN, metavar="FILE.json", help="Write the files for Model Explorer as well as the page.")
@of_reference(help="Compare outputs with this, and every tensor on the way.")
@of_comparison("--no-layers", is_flag=True, help="With --reference: compare outputs only.")
@option(
    "--against-device",
    "against",
    multiple=True,
    metavar="NAME[,NAME…]",
    help="Another plan, for these devices, beside the first.",
)
@option("--time", "with_time", is_flag=True, help="In an overlay: the time of each operation, run by itself on this machine.")
@option("--repeat", type=click.IntRange(min=1), metavar="N", help="Run N times and show each partition's time.")
@input_options
@seeds_option
@acceptance_options
@device_options
@compute_options
@model_options
@json_option
def report(
    model: Path,
    output: Path | None,
    opened: bool,
    overlay: Path | None,
    with_time: bool,
    reference: str | None,
    no_layers: bool,
    against: tuple[str, ...],
    repeat: int | None,
    inputs: tuple[str, ...],
    labels: Path | None,
    seeds: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Write a page to read and to send: what runs where and why, what it costs, where it differs (docs/report.md).

    The page is one file, needs no network and holds no weights. Nothing runs without --reference or --repeat. Differences beyond
    tolerance are on the page and in --json; the exit status is 0 where the page was written.

    \b
    Examples:
      nnbridge report model.tflite --device arm-nn-21.11 --open
      nnbridge report model.tflite --device arm-nn-21.11 --reference litert --repeat 5 -o report.html
      nnbridge report model.onnx --device intel-nn-hal-gpu --reference onnxruntime --seeds 0-9 -o report.html
      nnbridge report model.tflite --device arm-nn-21.11 --against-device intel-nn-hal-gpu -o report.html
      nnbridge report model.tflite --device arm-nn-21.11 --reference litert --time -o overlay.json
    """
    begin_runtime(model, reference)
    from nnbridge.api import report as write_report
    from nnbridge.report.page import default_page
    from nnbridge.storage.atomic import written_together

    how, options = parse_preparation(**options)
    accept, options = parse_acceptance(**options)
    numbers = parse_seeds(seeds)
    output = default_page(model) if output is None else output
    if output.suffix.lower() == ".json":
        _write_overlay(model, output, reference, numbers, with_time, as_json, options)
        return
    check_outputs({"--output": output}, suffix=".html")
    if overlay is not None:
        check_overlay("--overlay", overlay)
    else:
        refuse_options("--time", why="the page has --repeat; it belongs to --overlay and -o FILE.json")
    if reference is None:
        refuse_options("--no-layers", "--labels", *ACCEPTANCE, why="it belongs to --reference")
    if reference is None and repeat is None:
        refuse_options("--seeds", "--input", *PREPARATION, why="nothing runs without --reference or --repeat")
    if not inputs:
        refuse_options("--labels", *PREPARATION, why="no --input has a file")
    if reference is not None and reference.endswith(".npz") and not inputs and repeat is None:
        refuse_options("--seeds", why="--reference FILE.npz has its own samples")
    with written_together():
        facts = write_report(
            file_of(model, options),
            output,
            reference=reference or "",
            layers=not no_layers,
            against=named_devices(against),
            inputs=inputs,
            seeds=numbers,
            how=how,
            labels=labels,
            accept_iou=accept.iou,
            accept_score=accept.score,
            score_threshold=accept.score_threshold,
            accept_top1=accept.top1,
            repeat=repeat or 0,
            progress=partial(progress, quiet=as_json),
            commands=[_command()],
            notes=_notes((*options["devices"], *against)),
            target=target_of(options),
        )
        made = None if overlay is None else write_overlay(facts.planned, overlay, facts.layers, numbers[0] if with_time else None)
    found = facts.comparison
    if reference is not None or repeat is not None:
        tell_host(facts.planned.compilation, options["host"])
    if opened:
        _open_in_browser(output)
    _show(facts, output, reference, made, as_json)
    if (found is not None and found.interrupted) or (facts.layers is not None and facts.layers.interrupted):
        sys.exit(INTERRUPTED)


def _open_in_browser(page: Path) -> None:
    """Open a page in the user's browser; a note says so where there is none."""
    import webbrowser

    with drivers_apart():
        shown = webbrowser.open(page.absolute().as_uri())
    if not shown:
        echo(f"--open: no browser was found; {page} is the page", err=True)


def _show(facts: PageFacts, output: Path, reference: str | None, made: dict[str, Any] | None, as_json: bool) -> None:
    """Print the plan's sentence, the evidence of its devices, the verdict, and what was written."""
    from nnbridge.devices.evidence import evidence_lines, evidences, next_step

    found, summary, evidence = facts.comparison, facts.planned.summary, evidences(facts.planned.drivers)
    size = output.stat().st_size
    if as_json:
        checks = [] if found is None else found.as_dict()["checks"]
        verdict: dict[str, Any] = {"pass": None, "within": None, "verdict": None}
        if found is not None:
            verdict = {**found.judged({"pass": found.passed}), "verdict": found.verdict}
        verdict |= {"checks": checks, "reference": reference}
        beside = {"evidence": [each.as_dict() for each in evidence], **({} if made is None else {"overlay": made})}
        written = {"model": str(facts.planned.file.path), "output": str(output), "bytes": size}
        print_json("report", {**written, **verdict, "summary": summary.as_dict(), **beside})
        return
    said = [] if found is None else [found.sentence, *([f"Next: {next_step(found.reference)}"] if found.unknown else [])]
    print_blocks([*summary.lines, *evidence_lines(evidence), *said])
    echo(f"{output}: {size:,} bytes")
    if made is not None:
        show_overlay(made)


def _write_overlay(
    model: Path, output: Path, reference: str | None, seeds: list[int], timed: bool, as_json: bool, options: dict[str, Any]
) -> None:
    """The overlay without a page."""
    refuse_options("--overlay", why="-o names the overlay already")
    refuse_options(*OF_PAGES, *PREPARATION, *ACCEPTANCE, why="an overlay has no place for it, only a page (-o FILE.html)")
    if reference is None and not timed:
        refuse_options("--seeds", why="nothing is run without --reference or --time")
    check_overlay("--output", output)
    plan = planned(model, options)
    layers = None if reference is None else overlay_layers(plan, reference, seeds, as_json)
    made = write_overlay(plan, output, layers, seeds[0] if timed else None)
    if layers is not None or timed:
        tell_host(plan.compilation, options["host"])
    if as_json:
        print_json("report", {"model": str(model), **made})
    else:
        show_overlay(made)


def _command() -> str:
    """The command line as typed, with the names of files only: paths are not disclosed."""
    context = click.get_current_context()
    words = []
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        # Options of the output, which no parameter is passed for, change nothing on the page.
        typed = context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if not (typed and parameter.expose_value):
            continue
        name = max(parameter.opts, key=len) if isinstance(parameter, click.Option) else ""
        for one in value if isinstance(value, (tuple, list)) else [value]:
            if name:
                words += [name] if one is True else [name, _without_folder(one)]
            else:
                # A file that is named like an option is none.
                words.append(f"./{Path(str(one)).name}" if Path(str(one)).name.startswith("-") else Path(str(one)).name)
    return f"nnbridge {context.command.name} {shlex.join(words)}"


def _without_folder(value: object) -> str:
    parts = []
    for part in str(value).split(","):
        head, mark, path = part.rpartition("=")
        parts.append(f"{head}{mark}{Path(path).name}" if "/" in path or "\\" in path else part)
    return ",".join(parts)


def _notes(devices: Sequence[str]) -> list[str]:
    own = [path.name for path in device_files(devices) if path.suffix == ".toml"]
    return [f"{name} is a custom profile; running the command needs that file." for name in dict.fromkeys(own)]

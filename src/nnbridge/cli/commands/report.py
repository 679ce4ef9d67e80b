"""``nnbridge report``: a plan, its cost and its comparison with a reference as one page."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnbridge.cli.arguments import check_outputs, device_files, parse_preparation, parse_seeds, refuse_options
from nnbridge.cli.options import (
    MODEL,
    PREPARATION,
    WRITTEN,
    compiled,
    compute_options,
    conversion_of,
    device_options,
    input_options,
    interface_of,
    model_options,
    option,
    summary_of,
    tell_host,
)
from nnbridge.cli.output import INTERRUPTED, echo, json_option, print_json, progress, working

if TYPE_CHECKING:
    from nnbridge.cli.sampling import Runtime
    from nnbridge.report.page import PageFacts
    from nnbridge.runtime.compilation import Compilation
    from nnbridge.runtime.plan_runner import RunReport

_PACKAGES = {"litert": ("LiteRT", "ai-edge-litert"), "onnxruntime": ("ONNX Runtime", "onnxruntime")}


@click.command(short_help="Write plan, cost and comparison as one HTML page.")
@MODEL
@option("-o", "--output", type=WRITTEN, required=True, metavar="FILE.html", help="The page to write.")
@option("--reference", metavar="litert|onnxruntime|FILE.npz", help="Compare outputs with this, and every tensor on the way.")
@option("--no-layers", is_flag=True, help="With --reference: compare outputs alone.")
@option(
    "--against-device",
    "against",
    multiple=True,
    metavar="NAME[,NAME…]",
    help="Another plan, for these devices, beside the first.",
)
@option("--repeat", type=click.IntRange(min=1), metavar="N", help="Run N times and show each partition's time.")
@input_options
@option("--seeds", default="0,1", metavar="N[,N-N…]", help="Seeds that inputs are drawn with.")
@device_options
@compute_options
@model_options
@json_option
def report(
    model: Path,
    output: Path,
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
      nnbridge report model.tflite --device arm-nn-21.11 -o report.html
      nnbridge report model.tflite --device arm-nn-21.11 --reference litert --repeat 5 -o report.html
      nnbridge report model.onnx --device intel-nn-hal-gpu --reference onnxruntime --seeds 0-9 -o report.html
      nnbridge report model.tflite --device arm-nn-21.11 --against-device intel-nn-hal-gpu -o report.html
    """
    from nnbridge.report.page import page, page_data
    from nnbridge.storage.atomic import atomic_write

    how, options = parse_preparation(**options)
    numbers = parse_seeds(seeds)
    check_outputs({"--output": output}, suffix=".html")
    if reference is None:
        refuse_options("--no-layers", "--labels", why="it belongs to --reference")
    if reference is None and repeat is None:
        refuse_options("--seeds", "--input", *PREPARATION, why="nothing runs without --reference or --repeat")
    if not inputs:
        refuse_options("--labels", *PREPARATION, why="no --input has a file")
    facts = _planned(model, options, against)
    interrupted = False
    if reference is not None:
        stored = Path(reference) if reference.endswith(".npz") else None
        if stored and not inputs and repeat is None:
            refuse_options("--seeds", why="--reference FILE.npz has its own samples")
        facts, interrupted = _compared(facts, reference, stored, not no_layers, (inputs, labels, how, options, numbers), as_json)
    if repeat is not None and not interrupted:
        from nnbridge.inputs import Dataset

        stated = interface_of(model, options).inputs
        items = Dataset.of(facts.compilation.model, inputs, seed=numbers[0], how=how, stated=stated)
        facts = replace(facts, runs=_measured(facts.compilation, next(iter(items)).inputs, repeat, as_json), machine=_machine())
    if reference is not None or repeat is not None:
        tell_host(facts.compilation, options["host"])
    with working("Writing the page"):
        data = page_data(facts)
        content = page(data)
    with atomic_write(output) as file:
        file.write(content)
    if as_json:
        found = facts.comparison
        verdict = {"pass": None if found is None else found.passed, "reference": reference}
        print_json(
            {"model": str(model), "output": str(output), "bytes": len(content), **verdict, "summary": facts.summary.as_dict()}
        )
    else:
        echo(facts.summary.sentence)
        if facts.comparison is not None:
            echo(facts.comparison.sentence)
        echo(f"{output}: {len(content):,} bytes")
    if interrupted:
        sys.exit(INTERRUPTED)


def _planned(model: Path, options: dict[str, Any], against: tuple[str, ...]) -> PageFacts:
    """The plan, and the other devices' one."""
    import platform
    from datetime import datetime, timezone
    from importlib.metadata import version

    from nnbridge import __version__
    from nnbridge.loading import mapping_of
    from nnbridge.report.page import PageFacts

    compilation, mapped = compiled(model, **options)
    summary = summary_of(compilation, mapped, model, options)
    facts = PageFacts(
        model,
        compilation,
        mapped,
        mapping_of(model, conversion_of(options)),
        summary,
        [_command()],
        {"nnbridge": __version__, "Python": platform.python_version(), "NumPy": version("numpy")},
        datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z"),
        notes=_notes((*options["devices"], *against)),
    )
    if not against:
        return facts
    other, _ = compiled(model, **{**options, "devices": against, "cache_dir": None})
    return replace(facts, against=other, against_summary=summary_of(other, mapped, model, options))


def _command() -> str:
    """The command line as typed, with files by their names alone: where they lie is nobody else's business."""
    context = click.get_current_context()
    words = []
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if context.get_parameter_source(parameter.name or "") is not click.core.ParameterSource.COMMANDLINE:
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
    return [f"{name} is a profile of one's own; the command needs it at hand." for name in dict.fromkeys(own)]


def _compared(
    facts: PageFacts, reference: str, stored: Path | None, layers: bool, drawing: tuple[Any, ...], quiet: bool
) -> tuple[PageFacts, bool]:
    """The comparison of outputs, and of every tensor on the way where the reference has them."""
    from nnbridge import compare as comparing
    from nnbridge.cli.sampling import samples_of
    from nnbridge.compare.arrays import load_arrays
    from nnbridge.compare.layers import compare_layers
    from nnbridge.compare.references import reference as reference_runtime
    from nnbridge.compare.tensors import stored_tensors, tensors_of

    compilation, path = facts.compilation, facts.path
    inputs, _, _, options, seeds = drawing
    layers = layers and (stored is None or any(name.startswith("tensor:") for name in load_arrays(stored)))
    runtime: Runtime | None = None
    if stored is None:
        runtime = reference_runtime(reference, path, options["signature"], preserve=layers)
    drawn = samples_of(compilation.model, path, stored if runtime is None else runtime, *drawing)
    with progress("Comparing outputs", drawn.total, quiet) as advance:
        found = comparing.compare(compilation, reference, drawn.counted(advance))
    which = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}" if len(seeds) <= 12 else f"{len(seeds)} seeds"
    which = "inputs from files" if inputs else f"samples of {stored.name}" if stored else which
    versions = dict(facts.versions)
    if reference in _PACKAGES:
        versions |= _version(*_PACKAGES[reference])
    facts = replace(facts, comparison=found, samples=which, versions=versions)
    if not layers or found.interrupted:
        return facts, found.interrupted
    tensors = stored_tensors(stored) if stored is not None else tensors_of(runtime) if runtime is not None else None
    assert tensors is not None
    with progress("Comparing tensors", drawn.total, quiet) as advance:
        by_layer = compare_layers(compilation, reference, drawn.counted(advance), tensors, mapped=facts.mapped)
    return replace(facts, layers=by_layer), by_layer.interrupted


def _version(title: str, package: str) -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    with suppress(PackageNotFoundError):
        return {title: version(package)}
    return {}


def _measured(compilation: Compilation, inputs: Any, repeat: int, quiet: bool) -> list[RunReport]:
    """The reports of so many runs, behind one that is not counted."""
    from nnbridge.runtime.execution import Execution
    from nnbridge.runtime.states import States

    reports = []
    states = States(compilation.model)
    with progress("Measuring", repeat + 1, quiet) as advance:
        for _ in range(repeat + 1):
            execution = Execution(compilation, states)
            execution.measure_steps()
            execution.run(inputs)
            reports.append(execution.report)
            advance(1)
    return reports[1:]


def _machine() -> str:
    import os
    import platform

    cores = os.cpu_count() or 1
    return f"{platform.machine()}, {cores} core{'' if cores == 1 else 's'}, {platform.system()}"

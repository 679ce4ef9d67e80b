"""``nnbridge export-overlay``: facts of a plan and a comparison for Model Explorer, which draws them over the file's graph."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnbridge.cli.arguments import check_outputs, parse_seeds, refuse_options
from nnbridge.cli.options import MODEL, WRITTEN, device_options, model_options, option, planned, tell_host
from nnbridge.cli.output import echo, json_option, print_json, progress, working
from nnbridge.report.json_data import json_text
from nnbridge.report.terminal import counted

if TYPE_CHECKING:
    from nnbridge.compare.layers import LayerComparison
    from nnbridge.plan import Planned

OUTPUT = """The file with the placement; what else is known is written beside it, such as overlay.reason.json beside overlay.json,
as the viewer shows one kind of facts for each file."""


@click.command(name="export-overlay", short_help="Write placement and errors for Model Explorer.")
@MODEL
@option("-o", "--output", type=WRITTEN, required=True, metavar="FILE.json", help=OUTPUT)
@option("--reference", metavar="litert|onnxruntime|FILE.npz", help="Add own error and drift, as compare --layers has them.")
@option("--seeds", default="0", metavar="N[,N-N…]", help="Seeds that inputs are drawn with.")
@option("--time", "with_time", is_flag=True, help="Add the time of each operation, run alone on this machine.")
@device_options
@model_options
@json_option
def export_overlay(
    model: Path, output: Path, reference: str | None, seeds: str, with_time: bool, as_json: bool, **options: Any
) -> None:
    """Write which device runs each operator, why, and how far its values are off, as node data for Model Explorer.

    The files open over the plain .tflite or .onnx file; docs/model-explorer.md shows how.

    \b
    Examples:
      nnbridge export-overlay model.tflite --device nnapi-sample_quant -o overlay.json
      nnbridge export-overlay model.tflite --device arm-nn-21.11 --reference litert --time -o overlay.json
    """
    from nnbridge.compare.samples import seeded_inputs
    from nnbridge.compare.timing import operation_times
    from nnbridge.report.outcomes import outcomes_of
    from nnbridge.report.overlay import overlays
    from nnbridge.storage.atomic import atomic_write, written_together

    numbers = parse_seeds(seeds)
    stored = reference is not None and reference.endswith(".npz")
    if reference is None and not with_time:
        refuse_options("--seeds", why="nothing is run without --reference or --time")
    check_outputs({"--output": output}, suffix=".json")
    files = {kind: _beside(output, kind) for kind in ("placement", "reason", "own-error", "drift", "time")}
    check_outputs(dict(list(files.items())[1:]), suffix=".json")
    plan = planned(model, options)
    compilation, graphs, own = plan.compilation, plan.file.graphs, plan.file.has_graphs
    facts = outcomes_of(compilation, plan.mapped, graphs, own=own)
    layers = None if reference is None else _layers(plan, reference, stored, numbers, as_json)
    times: dict[tuple[int, int], float] = {}
    if with_time:
        with working("Timing operations"):
            found = operation_times(compilation, seeded_inputs(compilation.model, numbers[0]))
        for index, milliseconds in found.items():
            at = compilation.model.main.operations[index].source
            key = (0, index) if not own or at is None else at.key
            times[key] = times.get(key, 0.0) + milliseconds
    if layers is not None or with_time:
        tell_host(compilation, options["host"])
    offered = [device.name for device in compilation.plan.devices if device.kind == "device"]
    written = {}
    with written_together():
        for kind, data in overlays(graphs, facts, offered, layers, times).items():
            with atomic_write(files[kind]) as file:
                file.write(json_text(data, indent=1, readable=True).encode("utf-8", "backslashreplace"))
            written[kind] = files[kind]
    command = ["model-explorer", *([] if model.suffix == ".tflite" else ["--extensions=nnbridge.explorer"])]
    command += [str(model), f"--node_data_paths={','.join(map(str, written.values()))}"]
    if as_json:
        listed = {kind: str(path) for kind, path in written.items()}
        print_json({"model": str(model), "files": listed, "operators": len(facts), "command": command})
        return
    for kind, path in written.items():
        echo(f"{path}: {kind}")
    echo(f"{counted(len(facts), 'operator')}; open with: {shlex.join(command)}")


def _beside(output: Path, kind: str) -> Path:
    return output if kind == "placement" else output.with_name(f"{output.stem}.{kind}{output.suffix}")


def _layers(planned: Planned, reference: str, stored: bool, seeds: list[int], quiet: bool) -> LayerComparison:
    from nnbridge.compare.layers import compare_layers
    from nnbridge.compare.references import reference as reference_runtime
    from nnbridge.compare.tensors import stored_tensors, tensors_of
    from nnbridge.sampling import drawn_samples

    compilation, file = planned.compilation, planned.file
    runtime = None if stored else reference_runtime(reference, file.path, file.asked.signature, preserve=True)
    samples = drawn_samples(compilation.model, Path(reference) if runtime is None else runtime, seeds)
    tensors = stored_tensors(Path(reference)) if runtime is None else tensors_of(runtime)
    with progress("Comparing samples", samples.total, quiet) as advance:
        return compare_layers(compilation, reference, samples.counted(advance), tensors, mapped=planned.mapped, explained=False)

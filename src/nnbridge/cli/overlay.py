"""Facts of a plan and a comparison for Model Explorer: ``nnbridge report -o FILE.json``, or ``--overlay`` beside a page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnbridge.cli.arguments import check_outputs
from nnbridge.cli.output import echo, progress, working
from nnbridge.json_data import json_text
from nnbridge.report.terminal import counted

if TYPE_CHECKING:
    from nnbridge.compare.layers import LayerComparison
    from nnbridge.plan import Planned

KINDS = ("placement", "reason", "own-error", "drift", "time")


def check_overlay(option: str, output: Path) -> None:
    """InputError for a file of an overlay that is in use, such as the model's."""
    check_outputs({option: output}, suffix=".json")
    check_outputs({kind: _beside(output, kind) for kind in KINDS[1:]}, suffix=".json")


def write_overlay(plan: Planned, output: Path, layers: LayerComparison | None, timed_with: int | None) -> dict[str, Any]:
    """Write which device runs each operator, why, and how far its values are off, as node data for Model Explorer: the files,
    how many operators, and the command that opens them. ``timed_with``: the seed of inputs that operations are timed with.
    """
    from nnbridge.compare.samples import seeded_inputs
    from nnbridge.compare.timing import operation_times
    from nnbridge.report.outcomes import outcomes_of
    from nnbridge.report.overlay import overlays
    from nnbridge.storage.atomic import atomic_write, written_together

    compilation, graphs, own, model = plan.compilation, plan.file.graphs, plan.file.has_graphs, plan.file.path
    facts = outcomes_of(compilation, plan.mapped, graphs, own=own)
    times: dict[tuple[int, int], float] = {}
    if timed_with is not None:
        with working("Timing operations"):
            found = operation_times(compilation, seeded_inputs(compilation.model, timed_with))
        for index, milliseconds in found.items():
            at = compilation.model.main.operations[index].source
            key = (0, index) if not own or at is None else at.key
            times[key] = times.get(key, 0.0) + milliseconds
    offered = [device.name for device in compilation.plan.devices if device.kind == "device"]
    written = {}
    with written_together():
        for kind, data in overlays(graphs, facts, offered, layers, times).items():
            written[kind] = _beside(output, kind)
            with atomic_write(written[kind]) as file:
                file.write(json_text(data, indent=1, readable=True).encode("utf-8", "backslashreplace"))
    command = ["model-explorer", *([] if model.suffix == ".tflite" else ["--extensions=nnbridge.explorer"])]
    command += [str(model), f"--node_data_paths={','.join(map(str, written.values()))}"]
    return {
        "files": {kind.replace("-", "_"): str(path) for kind, path in written.items()},
        "operators": len(facts),
        "command": command,
    }


def show_overlay(made: dict[str, Any]) -> None:
    """Print the files and the command that opens them."""
    for kind, path in made["files"].items():
        echo(f"{path}: {kind.replace('_', '-')}")
    echo(f"{counted(made['operators'], 'operator')}; open with: {shlex.join(made['command'])}")


def _beside(output: Path, kind: str) -> Path:
    return output if kind == "placement" else output.with_name(f"{output.stem}.{kind}{output.suffix}")


def overlay_layers(planned: Planned, reference: str, seeds: Sequence[int], quiet: bool) -> LayerComparison:
    """A plan's tensors beside a reference's, without a search for causes."""
    from nnbridge.compare.layers import compare_layers
    from nnbridge.compare.references import reference as reference_runtime
    from nnbridge.compare.tensors import stored_tensors, tensors_of
    from nnbridge.sampling import drawn_samples

    compilation, file, stored = planned.compilation, planned.file, reference.endswith(".npz")
    runtime = None if stored else reference_runtime(reference, file.path, file.asked.signature, preserve=True)
    samples = drawn_samples(compilation.model, Path(reference) if runtime is None else runtime, seeds)
    tensors = stored_tensors(Path(reference)) if runtime is None else tensors_of(runtime)
    with progress("Comparing samples", samples.total, quiet) as advance:
        return compare_layers(compilation, reference, samples.counted(advance), tensors, mapped=planned.mapped, explained=False)

"""The data of a page, from a finished compilation, its cost and estimates, and what was compared and measured."""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import field
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from nnbridge import __version__
from nnbridge.compare import Comparison, OutputComparison
from nnbridge.compare.causes import Cause, shared_causes
from nnbridge.compare.layers import Layer, LayerComparison
from nnbridge.compare.observation import source_label
from nnbridge.compare.references import REFERENCE_RUNTIMES
from nnbridge.cost import PlanCost, cost_of, tensor_bytes
from nnbridge.devices.evidence import evidences, next_step
from nnbridge.devices.source_profiles import BoundDevice
from nnbridge.extensions import TYPES, body_roles, is_options, readable_operation
from nnbridge.model import Model, Operand, Operation, Subgraph
from nnbridge.operations.matching import input_places
from nnbridge.plan import Planned
from nnbridge.records import dataclass
from nnbridge.report.estimate import estimate_for_page, estimate_on
from nnbridge.report.page.numbering import Numbering
from nnbridge.report.page.placement import against_data, plan_data
from nnbridge.report.page.schema import SCHEMA, Json, OperandData, OperationData, PageData, SourceData
from nnbridge.runtime.plan import Plan
from nnbridge.runtime.plan_runner import RunReport
from nnbridge.storage.atomic import file_checksum
from nnbridge.types import Lifetime, is_extension


def compared_as_dict(comparison: Comparison, model: Model, samples: str) -> Json:
    """The comparison of outputs, as ``compare --json`` has it, with each output's operand."""
    data = comparison.as_dict()
    outputs = [{**row, "operand": i} for row, i in zip(data["outputs"], model.own_outputs, strict=True)]
    following = f"{next_step(comparison.reference).replace('`', '')}." if comparison.unknown else ""
    return {**data, "outputs": outputs, "reference": _title(comparison.reference), "which": samples, "next": following}


def layers_as_dict(layers: LayerComparison, plan: Plan, samples: str) -> Json:
    """Own error and drift of each operation, the worst of its outputs."""
    by_position = {layer.position: layer for layer in layers.layers}
    rows: list[Json | None] = []
    for source, graph in enumerate(plan.partition.sources):
        label = source_label(plan, source)
        for operation in graph.model.main.operations:
            found = [by_position[label, i] for i in operation.outputs if (label, i) in by_position]
            rows.append(_row(found) if found else None)
    return {
        "reference": _title(layers.reference),
        "samples": layers.samples,
        "which": samples,
        "sentence": layers.sentence,
        "rows": rows,
        "causes": _causes(layers.causes),
        **layers.judged({"pass": layers.passed}),
    }


def _causes(causes: Sequence[Cause]) -> list[Json]:
    """Causes with the number of operators that have each, the most frequent first."""
    return [{"kind": each.kind, "sentence": each.text, "operators": len(each.operators)} for each in shared_causes(causes)]


def _row(layers: Sequence[Layer]) -> Json:
    drifts, owns = (
        [c for c in side if c is not None and c.elements] for side in zip(*((x.drift, x.own) for x in layers), strict=True)
    )
    why = next((layer.cause.sentence for layer in layers if layer.cause is not None), "")
    note = next((layer.note for layer in layers if layer.note), "")
    return {"drift": _worst(drifts), "own": _worst(owns), "why": why, "note": note}


def _worst(comparisons: Sequence[OutputComparison]) -> Json | None:
    return max((_figures(comparison) for comparison in comparisons), key=lambda figures: figures["rel"], default=None)


def _figures(comparison: OutputComparison) -> Json:
    """Largest and mean difference, in steps and as a share of the reference's range; the share of elements that differ."""
    return {
        "max": None if comparison.non_finite_unequal else comparison.max_abs_diff,
        "steps": comparison.max_quant_diff,
        "rel": _share(comparison),
        "mean": comparison.mean_abs_diff,
        "ne": comparison.mismatches / comparison.elements,
        "sqnr": comparison.metrics.sqnr,
        "beyond": comparison.beyond,
    }


def _share(comparison: OutputComparison) -> float:
    """The largest difference as a share of a range: 1 at most, and where only one side is not finite."""
    if comparison.non_finite_unequal or not comparison.span:
        return float(comparison.mismatches > 0)
    return min(1.0, comparison.largest / comparison.span)


def times_as_dict(runs: Sequence[RunReport], steps: int, machine: str) -> Json:
    """Median, least and largest milliseconds of each step over the runs; a step that did not run took none."""
    per_run = []
    for report in runs:
        times = [0.0] * steps
        for step in report.steps:
            if step.step < steps:
                times[step.step] += step.nanoseconds / 1e6
        per_run.append(times)
    columns = list(zip(*per_run, strict=True))
    listed = [[round(figure, 4) for figure in (median(c), min(c), max(c))] for c in columns]
    return {"runs": len(runs), "machine": machine, "steps": listed}


def _title(reference: str) -> str:
    known = REFERENCE_RUNTIMES.get(reference)
    return reference.replace("\\", "/").rpartition("/")[2] if known is None else known.title


_LIFETIMES = {
    Lifetime.TEMPORARY_VARIABLE: "t",
    Lifetime.SUBGRAPH_INPUT: "i",
    Lifetime.SUBGRAPH_OUTPUT: "o",
    Lifetime.CONSTANT_COPY: "c",
    Lifetime.CONSTANT_REFERENCE: "c",
    Lifetime.NO_VALUE: "n",
    Lifetime.SUBGRAPH: "s",
}
_MOST_VALUES = 8
"""Elements of a constant that is shown."""
_EXACT = 2**53
"""From here on JavaScript's numbers skip integers."""
_FORMATS = {".tflite": "TFLite", ".onnx": "ONNX", ".nnapi": "NNAPI model"}


@dataclass(frozen=True)
class PageFacts:
    """The facts that a page is made of."""

    planned: Planned
    commands: Sequence[str]
    versions: dict[str, str]
    when: str
    comparison: Comparison | None = None
    layers: LayerComparison | None = None
    samples: str = ""
    """What the samples of the comparison are, such as ``seeds 0, 1``."""
    runs: Sequence[RunReport] = ()
    """Runs that were measured."""
    machine: str = ""
    against: Planned | None = None
    """The plan of the same file for other devices."""
    notes: Sequence[str] = field(default=())

    @classmethod
    def of(cls, planned: Planned, commands: Sequence[str] = (), **known: Any) -> PageFacts:
        """The facts of a plan, with this process's versions and the time."""
        versions = {"nnbridge": __version__, "Python": platform.python_version(), "NumPy": version("numpy")}
        now = datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
        return cls(planned, commands, versions, now, **known)


def page_data(facts: PageFacts) -> PageData:
    """The data of a page."""
    planned, compilation, model = facts.planned, facts.planned.compilation, facts.planned.model
    partition = compilation.plan.partition
    numbering = Numbering.of(partition)
    cost = cost_of(compilation.plan)
    types = _Types()
    sources = [source.model for source in partition.sources]
    operands = [_operand(m, operand, types) for m in sources for operand in m.main.operands]
    plan = plan_data(planned, numbering, cost)
    return {
        "schema": SCHEMA,
        "model": _model(planned.file.path, model, cost),
        "mapping": planned.mapping,
        "operands": operands,
        "ops": _operations(sources, numbering, cost, types),
        "types": types.names,
        "sources": [
            _source(numbering, partition.within(k), k, s.role, s.parent, s.model.main) for k, s in enumerate(partition.sources)
        ],
        "plan": plan,
        "against": None if facts.against is None else against_data(facts.against, planned),
        "evidence": [each.as_dict() for each in evidences(planned.drivers)],
        "compare": None if facts.comparison is None else compared_as_dict(facts.comparison, model, facts.samples),
        "layers": None if facts.layers is None else layers_as_dict(facts.layers, compilation.plan, facts.samples),
        "times": times_as_dict(facts.runs, len(plan["steps"]), facts.machine) if facts.runs else None,
        "estimates": [
            estimate_for_page(estimate_on(device))
            for device in planned.drivers
            if isinstance(device, BoundDevice) and device.profile.cost is not None
        ],
        "made": {
            "when": facts.when,
            "commands": list(facts.commands),
            "versions": facts.versions,
            "notes": list(facts.notes),
            "preference": compilation.preference,
            "max_partitions": planned.max_partitions,
        },
    }


class _Types:
    """Names of types, each once."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        return self._index.setdefault(name, len(self._index))

    @property
    def names(self) -> list[str]:
        return list(self._index)


def _model(path: Path, model: Model, cost: PlanCost) -> Json:
    return {
        "name": path.stem,
        "file": path.name,
        "format": _FORMATS.get(path.suffix.lower(), path.suffix),
        "bytes": path.stat().st_size,
        "sha256": file_checksum(path),
        "inputs": list(model.own_inputs),
        "outputs": list(model.own_outputs),
        "relaxed": model.relaxed,
        "states": len(model.states),
        "multiply_adds": cost.multiply_adds,
        "parameters": cost.parameters,
        "parameter_bytes": cost.parameter_bytes,
    }


def _operand(model: Model, operand: Operand, types: _Types) -> OperandData:
    size = tensor_bytes(operand) if operand.is_tensor else 0
    name = TYPES.readable(operand.type)
    data: OperandData = {
        "n": operand.name,
        "t": types(name),
        "d": list(operand.dims),
        "l": _LIFETIMES[operand.lifetime],
        "b": size,
    }
    if operand.scale:
        data["s"], data["z"] = operand.scale, operand.zero_point
    if operand.channel_quant:
        data["q"] = len(operand.channel_quant.scales)
    if operand.source_type:
        data["f"] = operand.source_type
    value = _small_value(model, operand)
    if value is not None:
        data["v"] = value
    return data


def _small_value(model: Model, operand: Operand) -> Any:
    """The value of a scalar or short vector; None for others. Integers beyond what JavaScript holds are text."""
    if not operand.is_constant or is_extension(operand.type) or is_options(operand) or math.prod(operand.dims) > _MOST_VALUES:
        return None
    value = model.value(operand)
    if value is None:
        return None
    if value.dtype.kind in "iu" and value.size and max(abs(int(value.min())), abs(int(value.max()))) > _EXACT:
        return [str(v) for v in value.ravel()]
    return value.tolist()


def _operations(sources: Sequence[Model], numbering: Numbering, cost: PlanCost, types: _Types) -> list[OperationData]:
    listed = [(g, model, operation) for g, model in enumerate(sources) for operation in model.main.operations]
    found: list[OperationData] = []
    for (g, model, operation), work in zip(listed, cost.operations, strict=True):
        names = [""] * len(operation.inputs)
        for name, place in input_places(model, operation).items():
            names[place] = name
        outputs = [tensor_bytes(o) if o.is_tensor else 0 for o in (model.main.operands[i] for i in operation.outputs)]
        at = operation.source
        found.append(
            {
                "t": types(readable_operation(model, operation)),
                "n": operation.name,
                "m": operation.mapping,
                "f": "" if at is None else f"{at.index} {at.operator}",
                "g": g,
                "i": [numbering.operand(g, i) for i in operation.inputs],
                "o": [numbering.operand(g, i) for i in operation.outputs],
                "a": names,
                "mac": work.multiply_adds,
                "pb": work.parameter_bytes,
                "ob": None if None in outputs else sum(size or 0 for size in outputs),
                "e": _bodies(model, operation),
            }
        )
    return found


def _bodies(model: Model, operation: Operation) -> list[tuple[str, list[tuple[str, int]]]]:
    """The bodies of an operation: what they hold."""
    bodies = [model.referenced[number] for number in model.main.bodies(operation)]
    return [(role, _types_of(model, body)) for role, body in zip(body_roles(model, operation), bodies, strict=False)]


def _types_of(model: Model, body: Subgraph) -> list[tuple[str, int]]:
    return Counter(readable_operation(model, operation) for operation in body.operations).most_common()


def _source(
    numbering: Numbering, within: str, number: int, role: str, parent: tuple[int, int] | None, main: Subgraph
) -> SourceData:
    return {
        "role": role,
        "parent": None if parent is None else numbering.operation(*parent),
        "within": within,
        "inputs": [numbering.operand(number, i) for i in main.inputs],
        "outputs": [numbering.operand(number, i) for i in main.outputs],
    }

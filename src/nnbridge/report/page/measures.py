"""What was compared and measured, as a page's data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from nnbridge.compare import Comparison, OutputComparison
from nnbridge.compare.causes import Cause
from nnbridge.compare.layers import Layer, LayerComparison
from nnbridge.compare.observation import source_label
from nnbridge.model import Model
from nnbridge.report.page.schema import Json
from nnbridge.runtime.plan import Plan
from nnbridge.runtime.plan_runner import RunReport

_TITLES = {"litert": "LiteRT", "onnxruntime": "ONNX Runtime"}


def compared_as_dict(comparison: Comparison, model: Model, samples: str) -> Json:
    """The comparison of outputs, as ``compare --json`` has it, with each output's operand."""
    data = comparison.as_dict()
    outputs = [{**row, "operand": i} for row, i in zip(data["outputs"], model.own_outputs, strict=True)]
    return {**data, "outputs": outputs, "reference": _title(comparison.reference), "which": samples}


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
        "pass": layers.passed,
    }


def _causes(causes: Sequence[Cause]) -> list[Json]:
    """Causes with the number of operators that have each, the most frequent first."""
    counts = Counter((cause.kind, cause.sentence.removeprefix(f"{cause.operator}: ")) for cause in causes)
    return [{"kind": kind, "sentence": sentence, "operators": count} for (kind, sentence), count in counts.most_common()]


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
    """The largest difference as a share of a range: 1 at most, and where one side alone is not finite."""
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
    return _TITLES.get(reference, reference.replace("\\", "/").rpartition("/")[2])

"""Plans, comparisons and conformance runs as JSON-ready data and as tables for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nnbridge.converters.inspection import count_transposes, transposes_as_dict
from nnbridge.devices.host import HOST_NAME
from nnbridge.extensions import readable_operation
from nnbridge.model import Model, Operation
from nnbridge.report.wording import Names, counted
from nnbridge.runtime.caching import CacheRecord
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.partitioner import ExecutionStep, GotoStep, IfStep, LogicalStep, WhileStep
from nnbridge.runtime.placement import Placement
from nnbridge.runtime.plan import INTERPRETER, Plan

if TYPE_CHECKING:
    from rich.table import Table

    from nnbridge.compare import Comparison, OutputComparison
    from nnbridge.conformance.run import Outcome
    from nnbridge.devices.device import Device

PLACES = {"device": "device", "cpu": "NNAPI CPU", "host": "host", "runtime": "NNAPI runtime"}
"""Kind of device → kind of place in reports. The runtime itself runs control flow whose bodies go to devices."""


MARKS = {
    "wide": "beyond what TFLite's delegate or ONNX Runtime's provider gives to NNAPI",
    "host": "not expressible in NNAPI",
}
"""Mapping that operations are marked with in tables → what it means."""


def plan_as_dict(compilation: Compilation) -> dict[str, Any]:
    """Every operation with its place and the reasons of whoever did not take it; steps; counts by place.

    Operations of interpreted bodies come after the main subgraph's, with ``source`` and ``within``; ``index`` counts within
    the source. ``program`` is the plan's flat order: steps, and the jumps of control flow between them.
    """
    plan = compilation.plan
    sources = plan.partition.sources
    operations = [_operation_as_dict(plan, source, sources[source].model, placement) for source, placement in plan.placed()]
    steps = [
        {
            "device": plan.devices[step.device].name,
            "place": PLACES[plan.devices[step.device].kind],
            "source": step.source,
            "operations": list(step.operations),
            "inputs": [_label(sources[step.source].model, i) for i in step.inputs],
            "outputs": [_label(sources[step.source].model, i) for i in step.outputs],
        }
        for step in plan.steps
    ]
    return {
        "model": compilation.model.name,
        "preference": compilation.preference,
        "max_partitions": compilation.max_partitions,
        "devices": [device.name for device in plan.devices],
        "operations": operations,
        "steps": steps,
        "program": [_logical_step_as_dict(item) for item in plan.partition.program],
        "counts": {
            **Counter(str(operation["place"]) for operation in operations),
            **transposes_as_dict(count_transposes(compilation.model)),
        },
        "fallback": plan.fallback.as_dict() if plan.fallback else None,
        "cache": [cache_as_dict(record) for record in plan.cache],
    }


def _operation_as_dict(plan: Plan, source: int, model: Model, placement: Placement) -> dict[str, Any]:
    device = plan.device_of(placement.operation, source)
    operation = model.main.operations[placement.operation]
    return {
        "index": placement.operation,
        "source": source,
        "within": plan.partition.within(source),
        "type": readable_operation(model, operation),
        "name": operation.name,
        "mapping": operation.mapping,
        "place": PLACES[device.kind],
        "device": device.name,
        "reasons": reasons(plan, placement, source),
    }


def _logical_step_as_dict(item: LogicalStep) -> dict[str, Any]:
    if isinstance(item, ExecutionStep):
        return {"step": item.number}
    if isinstance(item, IfStep):
        place = {"source": item.source, "operation": item.operation}
        return {"if": place, "then": item.then.start, "else": item.otherwise.start}
    if isinstance(item, WhileStep):
        place = {"source": item.source, "operation": item.operation}
        return {"while": place, "condition": item.condition.start, "body": item.body.start, "end": item.end}
    return {"goto": item.target}


def cache_as_dict(record: CacheRecord) -> dict[str, Any]:
    """What the compilation cache did for a step, and what was wrong with it."""
    notes = [note.as_dict() for note in record.notes]
    return {"device": record.device, "token": record.token, "result": record.result, "notes": notes}


def reasons(plan: Plan, placement: Placement, source: int = 0) -> list[dict[str, Any]]:
    """Why each device that does not run an operation does not: its own reason, or the figure that lost.

    The runtime interprets control flow that the CPU won, at the CPU's figure.
    """
    chosen = plan.device_of(placement.operation, source).name
    winner = placement.answers[placement.device].device if placement.interpreted and placement.device is not None else chosen
    won = next((a.performance for a in placement.answers if a.device == winner), None)
    model = plan.partition.sources[source].model
    operation = model.main.operations[placement.operation]
    found: list[dict[str, Any]] = []
    for answer in placement.answers:
        if answer.device in (chosen, winner):
            continue
        if answer.reason is not None:
            shown = {key: _readable(model, operation, text) for key, text in answer.reason.as_dict().items()}
            found.append({"device": answer.device, **shown})
        elif plan.fallback is not None:
            found.append({"device": answer.device, "fallback": str(plan.fallback)})
        else:
            rule = "a figure below the chosen device's"
            figures = {"figure": answer.performance, "winner": winner, "best": won}
            found.append({"device": answer.device, "rule": rule, **figures})
    return found


def _readable(model: Model, operation: Operation, text: str) -> str:
    """A reason's text with the operation's readable name in place of its number within an extension."""
    return readable_operation(model, operation) if text == model.operation_name(operation) else text


def _label(model: Model, operand: int) -> str:
    return model.main.operands[operand].name or f"operand {operand}"


# -- tables ----------------------------------------------------------------------------------------------------------


def plan_tables(compilation: Compilation, full: bool = False) -> list[Table | str]:
    """A table of steps, then one of operations grouped by type, place and reasons (or one by one)."""
    from rich.table import Table

    data = plan_as_dict(compilation)
    counts = data["counts"]
    title = f"Plan of {data['model']}: {_counts(counts)} in {counted(len(data['steps']), 'step')}{_turned(counts)}"
    steps = Table(title=title, padding=(0, 0))
    for column in ("step", "device", "place", "operations"):
        steps.add_column(column, justify="right" if column == "step" else "left", no_wrap=column == "place")
    for number, item in enumerate(compilation.plan.partition.program):
        steps.add_row(str(number), *map(Names, _step_row(compilation.plan, item)))
    tables: list[Table | str] = [steps, _operations_table(data, full)]
    if data["fallback"]:
        tables.append(f"The whole model fell back to the CPU: {compilation.plan.fallback}")
    return [*tables, *cache_lines(compilation)]


def _step_row(plan: Plan, item: LogicalStep) -> tuple[str, str, str]:
    """Device, place and operations of a step; where control flow goes on."""
    runtime = (INTERPRETER.name, PLACES[INTERPRETER.kind])
    if isinstance(item, GotoStep):
        return *runtime, f"go to {item.target}"
    model, inside = plan.partition.sources[item.source].model, plan.partition.within(item.source)
    where = f"{inside}: " if inside else ""
    if isinstance(item, IfStep):
        return *runtime, f"{where}IF, then {item.then.start}, else {item.otherwise.start}"
    if isinstance(item, WhileStep):
        return *runtime, f"{where}WHILE, condition {item.condition.start}, body {item.body.start}, end {item.end}"
    device = plan.devices[item.device]
    kinds = Counter(readable_operation(model, model.main.operations[i]) for i in item.operations)
    return device.name, PLACES[device.kind], where + _listed(kinds)


def cache_lines(compilation: Compilation) -> list[str]:
    """What the compilation cache did for each step, if the client asked for one."""
    records = compilation.plan.cache
    lines = [f"Cache of {record.device}: {record.result}{_cache_notes(record)}" for record in records]
    unused = compilation.caching is not None and not any(record.token for record in records)
    return [*lines, "Cache: no step runs on a device that keeps what it compiles"] if unused else lines


def _cache_notes(record: CacheRecord) -> str:
    return "".join(f"; {note}" for note in record.notes)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{counts[place]} on {place}" for place in PLACES.values() if place in counts)


def _turned(counts: dict[str, int]) -> str:
    inner, outer = counts["transposes"], counts["interface transposes"]
    return f", {inner} transposes between operations, {outer} at inputs and outputs" if inner + outer else ""


def _operations_table(data: dict[str, Any], full: bool) -> Table:
    """Operations that run on the same device for the same reasons stand in one row, or each in its own."""
    from rich.table import Table

    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for operation in data["operations"]:
        # The host is offered nothing that NNAPI can express.
        others = [reason for reason in operation["reasons"] if reason["device"] != HOST_NAME]
        why = "\n".join(_reason_line(reason, operation["type"]) for reason in others)
        groups.setdefault((operation["device"], why, operation["name"] if full else ""), []).append(operation)
    marks = {_mark(operation) for operation in data["operations"]} - {""}
    table = Table(title="Why there and not elsewhere", show_lines=True, padding=(0, 0))  # a sample driver's name fits whole
    table.caption = "; ".join(f"({mark}): {MARKS[mark]}" for mark in sorted(marks)) or None
    for column in ("runs on", "operations", "why not elsewhere"):
        table.add_column(column)
    for (device, why, name), members in groups.items():
        listed = name or _listed(Counter(_mapped(operation) for operation in members))
        table.add_row(*map(Names, (device, listed, why or "-")))
    return table


def _mapped(operation: dict[str, Any]) -> str:
    """An operation's type, and its mapping and the body that it stands in, where they are worth a word."""
    mark, within = _mark(operation), operation["within"]
    shown = f"{operation['type']} ({mark})" if mark else str(operation["type"])
    return f"{shown} ({within})" if within else shown


def _mark(operation: dict[str, Any]) -> str:
    mapping = str(operation["mapping"])
    return mapping if mapping in MARKS else ""


def _listed(kinds: Counter[str]) -> str:
    return ", ".join(f"{kind}×{count}" if count > 1 else kind for kind, count in kinds.items())


def _reason_line(reason: dict[str, Any], kind: str) -> str:
    if "fallback" in reason:
        return f"{reason['device']}: took it, but the whole model fell back to the CPU"
    if "figure" in reason and reason["figure"] == reason["best"]:
        return f"{reason['device']}: figure {reason['figure']:.4g}, as {reason['winner']}'s, which wins ties"
    if "figure" in reason:
        return f"{reason['device']}: figure {reason['figure']:.4g}, {reason['winner']}'s is {reason['best']:.4g}"
    where = f" ({reason['operand']})" if "operand" in reason else ""
    found = reason.get("found", "")
    tail = f", found {found}" if found and found != kind else ""
    return f"{reason['device']}{where}: wants {reason['rule']}{tail}"


def comparison_tables(comparison: Comparison) -> list[Table | str]:
    """One row for each output, and below the table why some could not be compared."""
    from rich.table import Table

    verdict = "pass" if comparison.passed else "FAIL"
    table = Table(
        padding=(0, 0),
        title=f"{comparison.model} on {comparison.device} against {comparison.reference}, "
        f"{counted(comparison.samples, 'sample')}: {verdict}",
    )
    for column in ("output", "type", "elements", "max diff", "mean diff", "unequal", "allowed", "verdict"):
        left = column in ("output", "type", "verdict")
        table.add_column(column, justify="left" if left else "right", no_wrap=column != "output")
    for output in comparison.outputs:
        verdict = "pass" if output.passed else "FAIL"
        table.add_row(Names(output.name), output.type, str(output.elements), *_differences(output), verdict)
    return [table, *(f"{output.name}: {output.problem}" for output in comparison.outputs if output.problem)]


def _differences(output: OutputComparison) -> tuple[str, ...]:
    if output.problem or not output.elements:
        return ("-",) * 4
    mean, unequal = output.sum_abs_diff / output.elements, output.mismatches / output.elements
    return f"{output.max_abs_diff:.3g}", f"{mean:.2g}", f"{unequal:.2%}", f"{output.atol:.3g}"


def devices_as_dict(devices: Sequence[Device]) -> list[dict[str, Any]]:
    """Name, kind, level and figures of each device."""
    from nnbridge.types import OperandCode

    shown = (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16, OperandCode.TENSOR_QUANT8_ASYMM)
    listed = []
    for device in devices:
        capabilities = device.capabilities
        figures = {code.name: capabilities.of(code, relaxed=False) for code in shown}
        figures["relaxed float32"] = capabilities.relaxed_tensor
        listed.append(
            {
                "name": device.name,
                "place": PLACES[device.kind],
                "version": device.version,
                "feature_level": int(device.level),
                "type": device.type.name,
                "performance": {
                    name: {"execTime": figure.exec_time, "powerUsage": figure.power_usage} for name, figure in figures.items()
                },
                "extensions": [extension.name for extension in device.supported_extensions()],
            }
        )
    return listed


def devices_table(listed: list[dict[str, Any]]) -> Table:
    """One row for each device; figures as time/power relative to the CPU."""
    from rich.table import Table

    table = Table(title="Devices", padding=(0, 0), caption="execTime / powerUsage, relative to the CPU's 1.0")
    for column in ("name", "place", "level", "float32", "relaxed", "quant8"):
        table.add_column(column, no_wrap=True)
    for device in listed:
        figures = device["performance"]
        shown = [figures[n] for n in ("TENSOR_FLOAT32", "relaxed float32", "TENSOR_QUANT8_ASYMM")]
        table.add_row(
            device["name"],
            device["place"],
            str(device["feature_level"]),
            *("-" if device["place"] == PLACES["host"] else _pair(figure) for figure in shown),
        )
    return table


def _pair(figure: dict[str, float]) -> str:
    if figure["execTime"] > 1e30:
        return "-"
    return f"{figure['execTime']:g} / {figure['powerUsage']:g}"


def conformance_table(outcome: Outcome, title: str) -> Table:
    """Counts by suite, then a row of sums."""
    from rich.table import Table

    table = Table(title=title)
    counted = ("passed", "failed", "refused_as_expected", "not_taken", "total")
    for column in ("suite", *(name.replace("_", " ") for name in counted)):
        table.add_column(column, justify="left" if column == "suite" else "right")
    tallies = sorted(outcome.suites.items())
    for name, t in tallies:
        table.add_row(name, *(str(getattr(t, count)) for count in counted))
    sums = [sum(getattr(t, count) for _, t in tallies) for count in counted]
    table.add_row("all", *(str(n) for n in sums), style="bold")
    return table

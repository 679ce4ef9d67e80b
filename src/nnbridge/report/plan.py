"""Devices and plans as JSON-ready data and as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from nnbridge.converters.inspection import count_transposes, transposes_as_dict
from nnbridge.devices.device import Device
from nnbridge.devices.host import HOST_NAME
from nnbridge.errors import Why
from nnbridge.extensions import readable_operation
from nnbridge.model import Model, Operation
from nnbridge.report import MARKS, PLACES, PREFERENCES
from nnbridge.report.operators import operators_as_dict, operators_tables
from nnbridge.report.terminal import Table, counted, counted_kinds
from nnbridge.runtime.caching import CacheRecord
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.partitioner import ExecutionStep, GotoStep, IfStep, LogicalStep, WhileStep
from nnbridge.runtime.placement import Placement
from nnbridge.runtime.plan import INTERPRETER, Plan
from nnbridge.types import OperandCode


def plan_as_dict(compilation: Compilation) -> dict[str, Any]:
    """Every operation with its place and why the other devices do not run it; steps; counts by place.

    Operations of interpreted bodies come after the main subgraph's, with ``source`` and ``within``; ``index`` counts within
    the source. ``program`` is the plan's flat order: steps, and the jumps of control flow between them.
    """
    plan = compilation.plan
    sources = plan.partition.sources
    operations = []
    doubts = _Doubts(plan)
    for source, placement in plan.placed():
        device, model = plan.device_of(placement.operation, source), sources[source].model
        operation = model.main.operations[placement.operation]
        operations.append(
            {
                "index": placement.operation,
                "source": source,
                "within": plan.partition.within(source),
                "type": readable_operation(model, operation),
                "name": operation.name,
                "operator": operator_as_dict(operation),
                "mapping": operation.mapping,
                "place": PLACES[device.kind],
                "device": device.name,
                "reasons": reasons(plan, placement, source),
                **doubts.of(source, placement.operation),
            }
        )
    steps = []
    for step in plan.steps:
        device, operands = plan.devices[step.device], sources[step.source].model.main.operands
        inputs, outputs = ([operands[i].name or f"operand {i}" for i in side] for side in (step.inputs, step.outputs))
        listed = {"operations": list(step.operations), "inputs": inputs, "outputs": outputs}
        steps.append({"device": device.name, "place": PLACES[device.kind], "source": step.source, **listed})
    return {
        "model": compilation.model.name,
        "preference": compilation.preference,
        "preference_name": next(name for name, code in PREFERENCES.items() if code == compilation.preference),
        "max_partitions": compilation.max_partitions,
        "devices": [device.name for device in plan.devices],
        "operations": operations,
        **operators_as_dict(plan),
        "steps": steps,
        "program": [_logical_step_as_dict(item) for item in plan.partition.program],
        "counts": {
            **Counter(str(operation["place"]) for operation in operations),
            **transposes_as_dict(count_transposes(compilation.model)),
        },
        "fallback": plan.fallback.as_dict() if plan.fallback else None,
        "cache": [cache_as_dict(record) for record in plan.cache],
    }


class _Doubts:
    """Why answers of devices are open, where their profiles say so."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._known: dict[int, dict[str, Sequence[str]]] = {}

    def of(self, source: int, operation: int) -> dict[str, dict[str, str]]:
        """``uncertain``: device → why, for one operation; nothing where no answer is open."""
        if source not in self._known:
            model = self._plan.partition.sources[source].model
            self._known[source] = {device.name: device.uncertainties(model) for device in self._plan.devices}
        found = {name: texts[operation] for name, texts in self._known[source].items() if texts[operation]}
        return {"uncertain": found} if found else {}


def _logical_step_as_dict(item: LogicalStep) -> dict[str, Any]:
    if isinstance(item, ExecutionStep):
        return {"step": item.number}
    if isinstance(item, GotoStep):
        return {"goto": item.target}
    place = {"source": item.source, "operation": item.operation}
    if isinstance(item, IfStep):
        return {"if": place, "then": item.then.start, "else": item.otherwise.start}
    return {"while": place, "condition": item.condition.start, "body": item.body.start, "end": item.end}


def cache_as_dict(record: CacheRecord) -> dict[str, Any]:
    """What the compilation cache did for a step, and what was wrong with it."""
    notes = [note.as_dict() for note in record.notes]
    return {"device": record.device, "token": record.token, "result": record.result, "notes": notes}


def reasons(plan: Plan, placement: Placement, source: int = 0) -> list[dict[str, Any]]:
    """Why each device that does not run an operation does not: its own reason, or that its performance is worse.

    The runtime interprets control flow that the CPU won, at the CPU's performance.
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
            found.append({"device": answer.device, "fallback": str(plan.fallback), "kind": Why.FALLBACK.value})
        else:
            rule = "better performance than the chosen device's"
            found.append(
                {
                    "device": answer.device,
                    "rule": rule,
                    "figure": answer.performance,
                    "winner": winner,
                    "best": won,
                    "kind": Why.PERFORMANCE.value,
                }
            )
    return found


def _readable(model: Model, operation: Operation, text: str) -> str:
    """A reason's text with the operation's readable name in place of its number within an extension."""
    return readable_operation(model, operation) if text == model.operation_name(operation) else text


def refusals_as_dict(compilation: Compilation) -> list[dict[str, Any]]:
    """Operations that no device of a compilation supports, after a finish that failed, with each device's reason."""
    model = compilation.model
    refused = []
    for placement in compilation.placements:
        if placement.device is None:
            operation = model.main.operations[placement.operation]
            said = [{"device": a.device, **a.reason.as_dict()} for a in placement.answers if a.reason is not None]
            named = {"type": readable_operation(model, operation), "name": operation.name}
            refused.append({"index": placement.operation, **named, "operator": operator_as_dict(operation), "reasons": said})
    return refused


def operator_as_dict(operation: Operation) -> dict[str, Any] | None:
    """The operator of the source file that an operation was converted from; None where it has none."""
    at = operation.source
    return None if at is None else {"index": at.index, "operator": at.operator, "subgraph": at.subgraph}


def refusals_table(name: str, refused: list[dict[str, Any]]) -> Table:
    """Refused operations, those of one type with the same reasons in one row."""
    groups = Counter(
        (
            item["type"],
            tuple(reason_line(reason, item["type"], "") for reason in item["reasons"] if reason["device"] != HOST_NAME),
        )
        for item in refused
    )
    rows = [(kind, str(count), why) for (kind, why), count in groups.items()]
    return Table(f"What no device of {name}'s list accepts", ("operation", "count", "why"), rows, ruled=True)


def plan_tables(compilation: Compilation, full: bool = False) -> list[Table | str]:
    """A table of steps, then one of operations grouped by type, place and reasons (or one by one)."""
    data = plan_as_dict(compilation)
    counts, steps = data["counts"], data["steps"]
    changes = sum(a["device"] != b["device"] for a, b in pairwise(steps))
    title = f"Plan of {data['model']}: {', '.join(f'{counts[p]} on {p}' for p in PLACES.values() if p in counts)}"
    title += f" in {counted(len(steps), 'step')}" + (f" with {counted(changes, 'change')} of device" if changes else "")
    if counts["transposes"] or counts["interface transposes"]:
        title += f", {counts['transposes']} transposes between operations, {counts['interface transposes']} at inputs and outputs"
    program = [(str(n), *_step_row(compilation.plan, item)) for n, item in enumerate(compilation.plan.partition.program)]
    tables = [Table(title, ("step", "device", "place", "operations"), program), _operations_table(data, full)]
    fallback = [f"The whole model fell back to the CPU: {compilation.plan.fallback}"] if data["fallback"] else []
    return [*tables, *operators_tables(compilation.plan, full), *fallback, *cache_lines(compilation)]


def _step_row(plan: Plan, item: LogicalStep) -> tuple[str, str, str]:
    """Device, place and operations of a step; the jumps of control flow."""
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
    return device.name, PLACES[device.kind], where + counted_kinds(kinds)


def cache_lines(compilation: Compilation) -> list[str]:
    """What the compilation cache did for each step, if the client asked for one."""
    records = compilation.plan.cache
    lines = [f"Cache of {record.device}: {'; '.join(map(str, (record.result, *record.notes)))}" for record in records]
    unused = compilation.caching is not None and not any(record.token for record in records)
    return [*lines, "Cache: no step runs on a device that caches compiled models"] if unused else lines


def _operations_table(data: dict[str, Any], full: bool) -> Table:
    """Operations that run on the same device for the same reasons share a row, or each has its own."""
    measure = "power use" if data["preference_name"] == "low-power" else "execution time"
    groups: dict[tuple[str, tuple[str, ...], str], list[dict[str, Any]]] = {}
    for operation in data["operations"]:
        why: tuple[str, ...] = ("not an NNAPI operation",)
        if operation["place"] != PLACES["host"]:
            # The host is offered nothing that NNAPI can express.
            others = [reason for reason in operation["reasons"] if reason["device"] != HOST_NAME]
            doubts = [f"{device}: uncertain, {text}" for device, text in operation.get("uncertain", {}).items()]
            why = (*(reason_line(reason, operation["type"], measure) for reason in others), *doubts) or ("-",)
        groups.setdefault((operation["device"], why, operation["name"] if full else ""), []).append(operation)
    marks = {operation["mapping"] for operation in data["operations"]} & MARKS.keys()
    rows = [(device, name or counted_kinds(map(_mapped, members)), why) for (device, why, name), members in groups.items()]
    columns = ("device", "operations", "why no other device")
    return Table("Placement", columns, rows, "; ".join(f"({mark}): {MARKS[mark]}" for mark in sorted(marks)), ruled=True)


def _mapped(operation: dict[str, Any]) -> str:
    """An operation's type, with its mapping and the body that it is part of where they are special."""
    mark = f" ({operation['mapping']})" if operation["mapping"] in MARKS else ""
    return f"{operation['type']}{mark}" + (f" ({operation['within']})" if operation["within"] else "")


def reason_line(reason: dict[str, Any], kind: str, measure: str) -> str:
    device = reason["device"]
    if "fallback" in reason:
        return f"{device}: accepted it, but the whole model fell back to the CPU"
    if "figure" in reason and reason["figure"] == reason["best"]:
        return f"{device}: relative {measure} {reason['figure']:.4g}, the same as {reason['winner']}'s, which wins ties"
    if "figure" in reason:
        return f"{device}: relative {measure} {reason['figure']:.4g}, {reason['winner']}'s is {reason['best']:.4g}"
    where = f" ({reason['operand']})" if "operand" in reason else ""
    found = reason.get("found", "")
    tail = f", found {found}" if found and found != kind else ""
    says = f' ("{reason["says"]}")' if "says" in reason else ""
    return f"{device}{where}: requires {reason['rule']}{tail}{says}"


def devices_as_dict(devices: Sequence[Device]) -> list[dict[str, Any]]:
    """Name, kind, level and performance of each device."""
    listed = []
    for device in devices:
        capabilities = device.capabilities
        codes = (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16, OperandCode.TENSOR_QUANT8_ASYMM)
        performance = {code.name: capabilities.of(code, relaxed=False) for code in codes}
        performance["relaxed float32"] = capabilities.relaxed_tensor
        listed.append(
            {
                "name": device.name,
                "place": PLACES[device.kind],
                "version": device.version,
                "feature_level": int(device.level),
                "type": device.type.name,
                "performance": {
                    name: {"execTime": each.exec_time, "powerUsage": each.power_usage} for name, each in performance.items()
                },
                "extensions": [extension.name for extension in device.supported_extensions()],
            }
        )
    return listed


def devices_table(listed: list[dict[str, Any]]) -> Table:
    """One row for each device, with time and power relative to the CPU."""
    rows = []
    for device in listed:
        performance = (device["performance"][n] for n in ("TENSOR_FLOAT32", "relaxed float32", "TENSOR_QUANT8_ASYMM"))
        unknown = device["place"] == PLACES["host"]
        shown = ("-" if unknown or p["execTime"] > 1e30 else f"{p['execTime']:g} / {p['powerUsage']:g}" for p in performance)
        rows.append((device["name"], device["place"], str(device["feature_level"]), *shown))
    columns = ("name", "place", "level", "float32", "relaxed", "quant8")
    return Table("Devices", columns, rows, "execution time / power use, relative to the CPU's 1.0")

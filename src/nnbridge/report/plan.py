"""Devices and plans as JSON-ready data and as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from nnbridge.devices.device import Device
from nnbridge.devices.evidence import Evidence, evidence
from nnbridge.devices.host import HOST_NAME
from nnbridge.devices.source_profiles import BoundDevice
from nnbridge.extensions import readable_operation
from nnbridge.plan import Planned
from nnbridge.plan_data import NUMERICS, PLACES, bound_devices, operators_of, plan_as_dict, ran_on
from nnbridge.report import MARKS
from nnbridge.report.terminal import Table, counted, counted_kinds
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.partitioner import GotoStep, IfStep, LogicalStep, WhileStep
from nnbridge.runtime.plan import INTERPRETER, Plan
from nnbridge.summary import who_refuses
from nnbridge.types import OperandCode


def operators_tables(plan: Plan, full: bool = False) -> list[Table | str]:
    """The operators that stay on the CPU grouped by reason, or each one; nothing without such devices."""
    devices = bound_devices(plan)
    return _tables(operators_of(devices, dict(ran_on(plan))), full) if devices else []


def operators_only(devices: list[BoundDevice], full: bool = False) -> list[Table | str]:
    """The same of a file that is not converted."""
    return _tables(operators_of(devices, {}), full)


def _tables(rows: list[dict[str, Any]], full: bool) -> list[Table | str]:
    placed = Counter(row["device"] for row in rows)
    title = f"Operators of the file: {', '.join(f'{count} on {name}' for name, count in placed.items())}"
    if full:
        listed = [(str(row["index"]), row["operator"], row["device"], "; ".join(_texts(row))) for row in rows]
        return [Table(title, ("operator", "type", "place", "why not the device"), listed), f"Numbers: {NUMERICS}."]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["place"] == "cpu" or "uncertain" in row:
            groups.setdefault((row["device"], "; ".join(_texts(row))), []).append(row)
    listed = [(_kinds(members), counted(len(members), "operator"), place, why) for (place, why), members in groups.items()]
    tables: list[Table | str] = [Table(title, ("type", "", "place", "why not the device"), listed)] if listed else [title + "."]
    return [*tables, f"Numbers: {NUMERICS}."]


def _kinds(members: list[dict[str, Any]]) -> str:
    return counted_kinds(row["operator"] for row in members)


def _texts(row: Mapping[str, Any]) -> list[str]:
    reasons = [f"{r['device']}: requires {r['rule']}" for r in row["reasons"]]
    return [*reasons, *(f"uncertain: {doubt}" for doubt in row.get("uncertain", ()))]


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


def plan_tables(planned: Planned, full: bool = False) -> list[Table | str]:
    """A table of steps, then one of operations grouped by type, place and reasons (or one by one)."""
    compilation = planned.compilation
    data = plan_as_dict(compilation)
    counts, steps = data["counts"], data["steps"]
    changes = sum(a["device"] != b["device"] for a, b in pairwise(steps))
    title = f"Plan of {data['model']}: {', '.join(f'{counts[p]} on {p}' for p in PLACES.values() if p in counts)}"
    title += f" in {counted(len(steps), 'step')}" + (f" with {counted(changes, 'change')} of device" if changes else "")
    if counts["transposes"] or counts["interface transposes"]:
        title += f", {counts['transposes']} transposes between operations, {counts['interface transposes']} at inputs and outputs"
    names = {(each["source"], each["index"]): _type(each) for each in data["operations"]}
    program = [(str(n), *_step_row(compilation.plan, item, names)) for n, item in enumerate(compilation.plan.partition.program)]
    tables = [
        Table(title, ("step", "device", "place", "operations"), program),
        _operations_table(data, _not_handed(planned), full),
    ]
    fallback = [f"The whole model fell back to the CPU: {compilation.plan.fallback}"] if data["fallback"] else []
    return [*tables, *operators_tables(compilation.plan, full), *fallback, *cache_lines(compilation)]


def _step_row(plan: Plan, item: LogicalStep, names: Mapping[tuple[int, int], str]) -> tuple[str, str, str]:
    """Device, place and operations of a step, by their ``names``; the jumps of control flow."""
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
    kinds = Counter(names.get((item.source, i)) or readable_operation(model, model.main.operations[i]) for i in item.operations)
    return device.name, PLACES[device.kind], where + counted_kinds(kinds)


def cache_lines(compilation: Compilation) -> list[str]:
    """What the compilation cache did for each step, if the client asked for one."""
    records = compilation.plan.cache
    lines = [f"Cache of {record.device}: {'; '.join(map(str, (record.result, *record.notes)))}" for record in records]
    unused = compilation.caching is not None and not any(record.token for record in records)
    return [*lines, "Cache: no step runs on a device that caches compiled models"] if unused else lines


def _not_handed(planned: Planned) -> dict[tuple[int, int], str]:
    """Operator of the file → why it is not handed to NNAPI."""
    return {
        m.key: reason_line({"device": who_refuses(m.reasons[0], planned.mapping), **m.reasons[0].as_dict()}, m.operator, "")
        for m in planned.mapped
        if m.reasons and m.mapping == "host"
    }


def _operations_table(data: dict[str, Any], not_handed: Mapping[tuple[int, int], str], full: bool) -> Table:
    """Operations that run on the same device for the same reasons share a row, or each has its own."""
    measure = "power use" if data["preference_name"] == "low-power" else "execution time"
    groups: dict[tuple[str, tuple[str, ...], str], list[dict[str, Any]]] = {}
    for operation in data["operations"]:
        at = operation["operator"] or {}
        why: tuple[str, ...] = (not_handed.get((at.get("subgraph", 0), at.get("index", -1)), "NNAPI has no such operation"),)
        if operation["place"] != PLACES["host"]:
            # The host is offered nothing that NNAPI can express.
            others = [reason for reason in operation["reasons"] if reason["device"] != HOST_NAME]
            doubts = [f"{device}: uncertain, {text}" for device, text in operation.get("uncertain", {}).items()]
            why = (*(reason_line(reason, operation["type"], measure) for reason in others), *doubts) or ("-",)
        groups.setdefault((operation["device"], why, operation["name"] if full else ""), []).append(operation)
    marks = {operation["mapping"] for operation in data["operations"]} & MARKS.keys()
    rows = [(device, name or counted_kinds(map(_mapped, members)), why) for (device, why, name), members in groups.items()]
    columns = ("device", "operations", "why not elsewhere")
    return Table("Placement", columns, rows, "; ".join(f"({mark}): {MARKS[mark]}" for mark in sorted(marks)), ruled=True)


def _mapped(operation: dict[str, Any]) -> str:
    """An operation's type, with its mapping and the body that it is part of where they are special."""
    mark = f" ({operation['mapping']})" if operation["mapping"] in MARKS else ""
    return f"{_type(operation)}{mark}" + (f" ({operation['within']})" if operation["within"] else "")


def _type(operation: Mapping[str, Any]) -> str:
    """The operation's type; of what the host runs the operator's name in the file, such as the one of a custom operator."""
    operator = operation["operator"] if operation["place"] == PLACES["host"] else None
    return str(operator["operator"] if operator else operation["type"])


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
                "evidence": evidence(device).as_dict(),
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
        known = Evidence(**device["evidence"])
        rows.append(
            (
                device["name"],
                device["place"],
                str(device["feature_level"]),
                *shown,
                (known.verified, known.numbers.partition(" (")[0]),
            )
        )
    columns = ("name", "place", "level", "float32", "relaxed", "quant8", "evidence")
    return Table("Devices", columns, rows, "declared by the driver, not measured: execution time / power use, CPU = 1")

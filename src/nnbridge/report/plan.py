"""Devices and plans as JSON-ready data and as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from nnbridge.devices.cpu import CPU_NAME
from nnbridge.devices.device import Device
from nnbridge.devices.evidence import Evidence, evidence
from nnbridge.devices.host import HOST_NAME
from nnbridge.devices.source_profiles import BoundDevice
from nnbridge.extensions import plain_operation, readable_operation
from nnbridge.plan import Planned
from nnbridge.plan_data import PLACE_KEYS, PLACES, bound_devices, operators_of, plan_as_dict, ran_on
from nnbridge.report.terminal import Cell, Table, counted, counted_kinds
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.partitioner import GotoStep, IfStep, LogicalStep, WhileStep
from nnbridge.runtime.plan import INTERPRETER, Plan
from nnbridge.summary import who_refuses
from nnbridge.types import OperandCode

_WIDE = "beyond what TFLite's delegate or ONNX Runtime's provider hands to NNAPI"

_FOUND = ", found "
_UNDECLARED = 1e30
"""Performance figures from here on are Android's default, FLT_MAX, of drivers that state none."""


def operators_tables(plan: Plan, full: bool = False) -> list[Table | str]:
    """The operators that stay on the CPU grouped by reason, or each one; nothing without such devices."""
    devices = bound_devices(plan)
    ran = dict(ran_on(plan))
    return _tables(operators_of(devices, ran), full, ran) if devices else []


def operators_only(devices: list[BoundDevice], full: bool = False) -> list[Table | str]:
    """The same of a file that is not converted."""
    return _tables(operators_of(devices, {}), full, {})


def _tables(rows: list[dict[str, Any]], full: bool, ran: Mapping[int, str]) -> list[Table | str]:
    for row in rows:
        if row["place"] == "cpu":
            on = ran.get(row["index"], HOST_NAME)
            row["device"] = {CPU_NAME: PLACES["cpu"], HOST_NAME: PLACES["host"]}.get(on, on)
    placed = Counter(row["device"] for row in rows)
    title = f"Operators of the file: {', '.join(f'{count} on {name}' for name, count in placed.items())}"
    if full:
        listed = [(str(row["index"]), row["operator"], row["device"], _why(row, found=True)) for row in rows]
        return [Table(title, ("operator", "type", "on", "why not the device, or uncertain"), listed)]
    refused, doubtful = (_grouped(row for row in rows if (row["place"] == "cpu") is off) for off in (True, False))
    found: list[Table | str] = [Table(title, ("operators", "on", "why not the device"), refused)] if refused else [title + "."]
    return [*found, *([Table(_UNCERTAIN, ("operators", "on", "why"), doubtful)] if doubtful else [])]


_UNCERTAIN = "Uncertain replies"
"""The table of operations that a device accepts as far as is known."""


def _grouped(rows: Iterable[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """A row for operators in one place for the same reasons; none for those without any."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["place"] == "cpu" or "uncertain" in row:
            groups.setdefault((row["device"], _why(row, found=False)), []).append(row)
    return [(_kinds(members), place, _shared_why(members, why)) for (place, why), members in groups.items()]


def _kinds(members: list[dict[str, Any]]) -> str:
    return counted_kinds(row["operator"].removeprefix("CUSTOM:") for row in members)


def _why(row: Mapping[str, Any], *, found: bool) -> str:
    """The reasons of an operator; ``found``: with what it has in place of what is required."""
    reasons = [
        f"{r['device']}: requires {r['rule']}" + (f"{_FOUND}{r['found']}" if found and r.get("found") else "")
        for r in row["reasons"]
    ]
    return "; ".join([*reasons, *(f"uncertain: {doubt}" for doubt in row.get("uncertain", ()))])


def _shared_why(members: Sequence[Mapping[str, Any]], why: str) -> str:
    """The reasons of operators, with what they have where that is the same in all."""
    full = {_why(row, found=True) for row in members}
    return full.pop() if len(full) == 1 else why


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


def plan_tables(planned: Planned, full: bool = False, performance: bool = False) -> list[Table | str]:
    """A table of steps, then one of the operations that no device runs, grouped by device and reasons; ``full``: every operation.

    ``performance``: also why a device does not run what another device runs faster.
    """
    compilation = planned.compilation
    data = plan_as_dict(compilation)
    counts, steps = data["counts"], data["steps"]
    changes = sum(a["device"] != b["device"] for a, b in pairwise(steps))
    title = f"Plan of {data['model']}: {', '.join(f'{counts[p]} on {PLACES[k]}' for k, p in PLACE_KEYS.items() if p in counts)}"
    title += f" in {counted(len(steps), 'step')}" + (f" with {counted(changes, 'change')} of device" if changes else "")
    if counts["transposes"] or counts["interface_transposes"]:
        title += f", {counts['transposes']} transposes between operations, {counts['interface_transposes']} at inputs and outputs"
    program = [(str(n), *_step_row(compilation.plan, item)) for n, item in enumerate(compilation.plan.partition.program)]
    operators = operators_tables(compilation.plan, full)
    # Of devices that look at the file, the operators' table says why.
    listed = [] if operators and not full else _operations_tables(data, _not_handed(planned), full, performance)
    beyond = f"(wide): {_WIDE}" if any(operation["mapping"] == "wide" for operation in data["operations"]) else ""
    tables = [Table(title, ("step", "device", "operations"), program, beyond), *(table for table in listed if table.rows)]
    fallback = [f"The whole model fell back to the CPU: {compilation.plan.fallback}"] if data["fallback"] else []
    return [*tables, *operators, *fallback, *cache_lines(compilation)]


def _place(name: str, place: str) -> str:
    """A driver by its name, other places by theirs."""
    return name if place == PLACES["device"] else place


def _step_row(plan: Plan, item: LogicalStep) -> tuple[str, str]:
    """Device and operations of a step; the jumps of control flow."""
    runtime = PLACES[INTERPRETER.kind]
    if isinstance(item, GotoStep):
        return runtime, f"go to {item.target}"
    model, inside = plan.partition.sources[item.source].model, plan.partition.within(item.source)
    where = f"{inside}: " if inside else ""
    if isinstance(item, IfStep):
        return runtime, f"{where}IF, then {item.then.start}, else {item.otherwise.start}"
    if isinstance(item, WhileStep):
        return runtime, f"{where}WHILE, condition {item.condition.start}, body {item.body.start}, end {item.end}"
    device = plan.devices[item.device]
    operations = (model.main.operations[i] for i in item.operations)
    kinds = (_plain(readable_operation(model, o), o.source.operator if o.source else "", o.mapping) for o in operations)
    return _place(device.name, PLACES[device.kind]), where + counted_kinds(kinds)


def _plain(kind: str, operator: str, mapping: str) -> str:
    """An operation's type as the file has it: without the host extension's name, custom operators by their own name.

    What only the wide mapping has is marked.
    """
    if kind.endswith(".CUSTOM") and operator:
        return operator.removeprefix("CUSTOM:")
    plain = plain_operation(kind)
    return f"{plain} (wide)" if mapping == "wide" else plain


def cache_lines(compilation: Compilation) -> list[str]:
    """The compilation cache's result for each step, if the client asked for one."""
    records = compilation.plan.cache
    lines = [f"Cache of {record.device}: {'; '.join(map(str, (record.result, *record.notes)))}" for record in records]
    unused = compilation.caching is not None and not any(record.token for record in records)
    return [*lines, "Cache: no step runs on a device that caches compiled models"] if unused else lines


def _not_handed(planned: Planned) -> dict[tuple[int, int], str]:
    """Operator of the file → why it is not handed to NNAPI, or to the devices before NNAPI."""
    if planned.bound:
        rows = operators_of(planned.bound, dict(ran_on(planned.compilation.plan)))
        return {(planned.bound[0].graph.subgraph, row["index"]): _why(row, found=True) for row in rows if row["reasons"]}
    return {
        m.key: reason_line({"device": who_refuses(m.reasons[0], planned.mapping), **m.reasons[0].as_dict()}, m.operator, "")
        for m in planned.mapped
        if m.reasons and m.mapping == "host"
    }


def _operations_tables(
    data: dict[str, Any], not_handed: Mapping[tuple[int, int], str], full: bool, performance: bool
) -> list[Table]:
    """A row for operations on the same device for the same reasons, none for those without a reason; ``full``: one row each.

    Those that run where they should and of which a reply is uncertain are in a table after it.
    """
    measure = "power use" if data["preference_name"] == "low-power" else "execution time"
    groups: dict[tuple[str, tuple[str, ...], str], list[dict[str, Any]]] = {}
    for operation in data["operations"]:
        at = operation["operator"] or {}
        why: tuple[str, ...] = (not_handed.get((at.get("subgraph", 0), at.get("index", -1)), "NNAPI has no such operation"),)
        if operation["place"] != PLACES["host"]:
            # The host is offered nothing that NNAPI can express.
            others = [reason for reason in operation["reasons"] if reason["device"] != HOST_NAME]
            if operation["place"] == PLACES["device"] and not performance:
                others = [reason for reason in others if "figure" not in reason]
            doubts = [f"{device}{_DOUBT}{text}" for device, text in operation.get("uncertain", {}).items()]
            why = (*(reason_line(reason, operation["type"], measure) for reason in others), *doubts)
        if why or full:
            place = _place(operation["device"], operation["place"])
            groups.setdefault((place, why, operation["name"] if full else ""), []).append(operation)
    alike = groups if full else _merged(groups)
    rows = [(name or counted_kinds(map(_mapped, members)), place, why or "-") for (place, why, name), members in alike.items()]
    columns = ("operations", "on", "why")
    if full:
        return [Table("Operations", columns, rows, ruled=True)]
    elsewhere = any(operation["place"] != PLACES["device"] for members in groups.values() for operation in members)
    title = "Why not on a device" if elsewhere else "Why not on another device"
    only_doubts = [all(_DOUBT in line for line in why) for _, why, _ in alike]
    parts = {title: False, _UNCERTAIN: True}
    return [
        Table(name, columns, [row for row, doubts in zip(rows, only_doubts, strict=True) if doubts is kept], ruled=True)
        for name, kept in parts.items()
    ]


_DOUBT = ": uncertain, "
_Group: TypeAlias = "tuple[str, tuple[str, ...], str]"
_FEW_FOUND = 3
"""Rows of one rule that differ in what was found only; more are one row."""


def _merged(groups: Mapping[_Group, list[dict[str, Any]]]) -> dict[_Group, list[dict[str, Any]]]:
    """The groups, those that break the same rules by many different findings as one, with the first finding."""
    by_rules: dict[_Group, list[_Group]] = {}
    for key in groups:
        place, why, name = key
        by_rules.setdefault((place, tuple(line.partition(_FOUND)[0] for line in why), name), []).append(key)
    found: dict[_Group, list[dict[str, Any]]] = {}
    for keys in by_rules.values():
        if len(keys) <= _FEW_FOUND:
            found |= {key: groups[key] for key in keys}
            continue
        place, why, name = keys[0]
        lines = tuple(f"{line} and others" if _FOUND in line else line for line in why)
        found[place, lines, name] = [member for key in keys for member in groups[key]]
    return found


def _mapped(operation: dict[str, Any]) -> str:
    """An operation's type, and the body that it is part of."""
    kind = _plain(operation["type"], (operation["operator"] or {}).get("operator", ""), operation["mapping"])
    return kind + (f" ({operation['within']})" if operation["within"] else "")


def reason_line(reason: dict[str, Any], kind: str, measure: str) -> str:
    device = reason["device"]
    winner = PLACES["cpu"] if reason.get("winner") == CPU_NAME else reason.get("winner")
    if "fallback" in reason:
        return f"{device}: accepted it, but the whole model fell back to the CPU"
    if "figure" in reason and reason["figure"] == reason["best"]:
        return f"{device}: relative {measure} {reason['figure']:.4g}, the same as {winner}'s, which wins ties"
    if "figure" in reason:
        figure = f"relative {measure} {reason['figure']:.4g}" if reason["figure"] < _UNDECLARED else f"declares no {measure}"
        return f"{device}: {figure}, {winner}'s is {reason['best']:.4g}"
    where = f" ({reason['operand']})" if "operand" in reason else ""
    found = reason.get("found", "")
    tail = f"{_FOUND}{found}" if found and found != kind else ""
    says = f' ("{reason["says"]}")' if "says" in reason else ""
    return f"{device}{where}: requires {reason['rule']}{tail}{says}"


def devices_as_dict(devices: Sequence[Device]) -> list[dict[str, Any]]:
    """Name, kind, level and performance of each device; :func:`devices_with_extensions` has its extensions, too."""
    from nnbridge.devices.families import group_of

    listed = []
    for device in devices:
        capabilities = device.capabilities
        codes = (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16, OperandCode.TENSOR_QUANT8_ASYMM)
        performance = {code.name: capabilities.of(code, relaxed=False) for code in codes}
        performance["relaxed_float32"] = capabilities.relaxed_tensor
        listed.append(
            {
                "name": device.name,
                "place": PLACES[device.kind],
                "family": group_of(device),
                "version": device.version,
                "feature_level": int(device.level),
                "type": device.type.name,
                "performance": {
                    name: {"exec_time": each.exec_time, "power_usage": each.power_usage} for name, each in performance.items()
                },
                "evidence": evidence(device).as_dict(),
            }
        )
    return listed


def devices_with_extensions(devices: Sequence[Device]) -> list[dict[str, Any]]:
    """The devices for ``--json``. The host's extensions are those of all importers, which are imported for it."""
    return [
        {**listed, "extensions": [extension.name for extension in device.supported_extensions()]}
        for device, listed in zip(devices, devices_as_dict(devices), strict=True)
    ]


def devices_table(listed: list[dict[str, Any]], title: str = "Devices") -> Table:
    """One row for each device, with time and power relative to the CPU; evidence that all have is below the rows."""
    rows: list[Sequence[Cell]] = []
    evidences = [_evidence_lines(Evidence(**device["evidence"])) for device in listed]
    shared = len(listed) > 1 and len(set(evidences)) == 1
    for device, known in zip(listed, evidences, strict=True):
        performance = (device["performance"][n] for n in ("TENSOR_FLOAT32", "relaxed_float32", "TENSOR_QUANT8_ASYMM"))
        unknown = device["place"] == PLACES["host"]
        shown = (
            "-" if unknown or p["exec_time"] > _UNDECLARED else f"{p['exec_time']:g} / {p['power_usage']:g}" for p in performance
        )
        rows.append((device["name"], device["place"], str(device["feature_level"]), *shown, *(() if shared else (known,))))
    columns = ("name", "place", "level", "float32", "relaxed", "quant8", *(() if shared else ("evidence",)))
    below = "declared by the driver, not measured: execution time / power use, CPU = 1"
    return Table(title, columns, rows, f"{'; '.join(evidences[0])}; {below}" if shared else below)


def _evidence_lines(known: Evidence) -> tuple[str, str]:
    return known.verified, known.numbers.partition(" (")[0]

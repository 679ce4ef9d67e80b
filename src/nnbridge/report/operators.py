"""A file's own operators in reports: which of them a device accepts that looks at them before NNAPI, and why not the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from nnbridge.devices.source_profiles import BoundDevice
from nnbridge.report.terminal import Table, counted, counted_kinds
from nnbridge.runtime.plan import Plan

NUMERICS = "computed with the CPU's arithmetic; the device's own is not emulated"


def bound_devices(plan: Plan) -> list[BoundDevice]:
    """The devices of a plan that looked at the file."""
    return [device for device in plan.devices if isinstance(device, BoundDevice)]


def operators_as_dict(plan: Plan) -> dict[str, Any]:
    """``operators``: each operator of the file with its place, ``device`` or ``cpu``, and the reasons.

    Nothing without devices that look at the file. An operator that no operation came from, such as a reshaping that was
    folded, is where the device's answer puts it.
    """
    devices = bound_devices(plan)
    if not devices:
        return {}
    ran = dict(_ran_on(plan))
    return {"operators": operators_of(devices, ran), "numerics": NUMERICS}


def operators_of(devices: list[BoundDevice], ran: Mapping[int, str]) -> list[dict[str, Any]]:
    """Each operator of the file; ``ran``: operator → what its operations run on, where a plan has any of them."""
    rows = []
    for operator in devices[0].graph.operators:
        answers = {device.name: device.answer(operator.index) for device in devices}
        accepting = next((name for name, answer in answers.items() if answer is None), "")
        on = ran.get(operator.index, accepting)
        chosen = on if on in answers else ""
        reasons = [{"device": name, **reason.as_dict()} for name, reason in answers.items() if reason is not None]
        if accepting and not chosen:
            reasons.append({"device": accepting, "rule": "a partition that is delegated", "found": on})
        doubts = [d.claims[operator.index].uncertain for d in devices if d.claims[operator.index].uncertain]
        rows.append(
            {
                "index": operator.index,
                "operator": operator.name,
                "place": "device" if chosen else "cpu",
                "device": chosen or "cpu",
                "reasons": reasons,
                **({"uncertain": doubts} if doubts else {}),
            }
        )
    return rows


def _ran_on(plan: Plan) -> Iterator[tuple[int, str]]:
    """Operator → the device of its operations in the main graph."""
    for source, placement in plan.placed():
        operation = plan.partition.sources[source].model.main.operations[placement.operation]
        if source == 0 and operation.source is not None:
            at = operation.source
            yield (at.callers[0] if at.callers else at.index), plan.device_of(placement.operation, source).name


def operators_tables(plan: Plan, full: bool = False) -> list[Table | str]:
    """The operators that stay on the CPU grouped by reason, or each one; nothing without such devices."""
    devices = bound_devices(plan)
    return _tables(operators_of(devices, dict(_ran_on(plan))), full) if devices else []


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

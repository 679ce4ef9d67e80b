"""A file's own operators in reports: which of them a device accepts that looks at them before NNAPI, and why not the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from nnbridge.devices.source_profiles import BoundDevice
from nnbridge.plan_data import NUMERICS, bound_devices, operators_of, ran_on
from nnbridge.report.terminal import Table, counted, counted_kinds
from nnbridge.runtime.plan import Plan


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

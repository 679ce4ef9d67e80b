"""Who computed what no device got: a runtime or nnbridge's own host, as JSON-ready data and as lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nnbridge.devices.host import Computing, HostDevice
from nnbridge.model import Source
from nnbridge.report.terminal import counted
from nnbridge.runtime.compilation import Compilation

_MOST = 5
"""Operators that a line names."""


def host_as_dict(compilation: Compilation) -> dict[str, Any] | None:
    """The host's name, version and operators, and why others than the phone's computed; None where nothing is left to it.

    ``computed`` has an entry for each that computed and each reason.
    """
    groups: dict[Computing, list[str]] = {}
    for host, source in _hosted(compilation):
        groups.setdefault(host.computing(source), []).append(f"{source.index}: {source.operator}")
    if not groups:
        return None
    first = min(groups, key=lambda computing: computing.reason is not None)
    computed = [
        {"name": found.by, "operators": operators, "reason": found.reason and str(found.reason)}
        for found, operators in groups.items()
    ]
    return {"name": first.by, "version": first.version, "reason": first.reason and str(first.reason), "computed": computed}


def host_lines(host: Mapping[str, Any] | None) -> list[str]:
    """A line for each entry of ``computed``."""
    if host is None:
        return []
    lines = []
    for entry in host["computed"]:
        name = (entry["name"] == host["name"] and host["version"]) or entry["name"]
        names = entry["operators"]
        listed = ", ".join([*names[:_MOST], *(["…"] if len(names) > _MOST else [])]) if entry["reason"] else ""
        what = counted(len(names), "operator") + (f" ({listed})" if listed else "")
        why = f": {entry['reason']}" if entry["reason"] else ""
        lines.append(f"host: {name} computed {what}{why}")
    return lines


def _hosted(compilation: Compilation) -> Iterator[tuple[HostDevice, Source]]:
    """The file's operators that a host computes, in the plan's order."""
    plan, seen = compilation.plan, set()
    for step in plan.steps:
        host = plan.devices[step.device]
        for operation in step.model.main.operations if isinstance(host, HostDevice) else ():
            if isinstance(host, HostDevice) and operation.source is not None and operation.source not in seen:
                seen.add(operation.source)
                yield host, operation.source

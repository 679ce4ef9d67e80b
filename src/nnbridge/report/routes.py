"""Routes of a file as a table: selected, compiles, right."""

from __future__ import annotations

from collections.abc import Sequence

from nnbridge.report.terminal import Table
from nnbridge.routes import FileRoute, RouteVerdict

_LONGEST = 90
"""Characters of a reason in a cell."""


def routes_table(routes: Sequence[FileRoute], name: str) -> Table:
    """One row for each route."""
    columns = ("route", "selected", "partitions", "compiles", "right", "what keeps it from being whole")
    rows = [
        (
            route.name,
            "not known" if route.selected is None else f"{route.selected} of {route.operators}",
            "" if route.partitions is None else str(route.partitions),
            _cell(route.compiles),
            _cell(route.right),
            _short(route.obstacle),
        )
        for route in routes
    ]
    return Table(f"Routes of {name}", columns, rows)


def _cell(verdict: RouteVerdict) -> str:
    """The word, who says it, and why not."""
    by = {"engine": " (the engine)", "emulation": " (emulated)", "rules": " (its rules)"}.get(verdict.by, "")
    why = f": {_short(verdict.why)}" if verdict.why and (verdict.holds is not True or verdict.why != "asked") else ""
    return f"{verdict.word}{by}{why}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"

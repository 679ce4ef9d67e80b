"""Routes of a file as a table: selected, compiles, right."""

from __future__ import annotations

from collections.abc import Sequence

from nnbridge.report.terminal import Table
from nnbridge.routes import FileRoute, RouteVerdict


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
            " ".join(route.obstacle.split()),
        )
        for route in routes
    ]
    return Table(f"Routes of {name}", columns, rows)


def _cell(verdict: RouteVerdict) -> str:
    """The word, who says it, and why not."""
    by = {"engine": " (the engine)", "emulation": " (emulated)", "rules": " (its rules)"}.get(verdict.by, "")
    why = f": {' '.join(verdict.why.split())}" if verdict.why and (verdict.holds is not True or verdict.why != "asked") else ""
    return f"{verdict.word}{by}{why}"

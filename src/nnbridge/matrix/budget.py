"""Limits from a TOML file, held against cells: a build fails where one is exceeded.

[[budget]]
models = "mobilenet*"        # patterns; all without them
devices = "vsi-imx-*"
off_device = 2               # operations that may stay off the device
partitions = 3
transfers = 500_000          # bytes across borders
share = 0.9                  # least share of operations on the device
mac_share = 0.95
difference = 1               # largest difference from the reference
within_tolerance = true      # nothing on the device is not
time_ms = 40
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from nnbridge.errors import InputError, Reason, near
from nnbridge.matrix.cells import Cell
from nnbridge.records import dataclass
from nnbridge.toml import read_toml

_Value = float | int | bool | None
_MOST: Mapping[str, Callable[[Cell], _Value]] = {
    "off_device": lambda cell: cell.operations - cell.on_device,
    "partitions": lambda cell: cell.partitions,
    "transfers": lambda cell: cell.transfers,
    "difference": lambda cell: None if cell.idle else cell.difference,
    "time_ms": lambda cell: cell.time_ms,
    "estimated_ms": lambda cell: cell.estimated_ms,
}
"""Limits from above."""
_LEAST: Mapping[str, Callable[[Cell], _Value]] = {
    "share": lambda cell: cell.share,
    "mac_share": lambda cell: cell.mac_share,
}
_PATTERNS = ("models", "devices")
_FLAG = "within_tolerance"


@dataclass(frozen=True)
class MatrixLimit:
    """One table of limits."""

    models: str = "*"
    devices: str = "*"
    limits: Mapping[str, float | bool] = field(default_factory=dict)

    def concerns(self, cell: Cell) -> bool:
        """True for a cell of its models and devices."""
        return fnmatchcase(cell.model, self.models) and fnmatchcase(cell.device, self.devices)

    def broken(self, cell: Cell) -> list[str]:
        """The limits that a cell exceeds; a limit on what was not measured is exceeded, too.

        A cell that failed fails the build by itself, one whose device does not apply has nothing to hold.
        """
        if not self.concerns(cell) or not cell.answered:
            return []
        return [line for key, limit in self.limits.items() if (line := _check(key, limit, cell))]


def _check(key: str, limit: float | bool, cell: Cell) -> str:
    if key == _FLAG:
        found = "outside tolerance" if cell.within is False else cell.verdict
        return "" if not limit or (cell.within and not cell.idle) else f"{key}: {found}"
    value = (_MOST.get(key) or _LEAST[key])(cell)
    if value is None:
        return f"{key}: at {'most' if key in _MOST else 'least'} {limit}, not measured"
    if value > limit if key in _MOST else value < limit:
        return f"{key}: at {'most' if key in _MOST else 'least'} {limit}, found {value:.4g}"
    return ""


def read_budgets(path: Path) -> tuple[MatrixLimit, ...]:
    """The limits of a file; InputError for unknown keys and wrong values."""
    data = read_toml(path, "a budget in TOML")
    tables = data.get("budget")
    if set(data) != {"budget"} or not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InputError(Reason("only [[budget]] tables", ", ".join(data) or "none", file=str(path)))
    return tuple(_budget(table, f"{path} budget {number}") for number, table in enumerate(tables, 1))


def _budget(table: Mapping[str, Any], where: str) -> MatrixLimit:
    known = (*_PATTERNS, *_MOST, *_LEAST, _FLAG)
    for key, value in table.items():
        if key not in known:
            hint = near(key, known) or f" ({', '.join(known)})"
            raise InputError(Reason(f"a key of a budget{hint}", key, operand=where))
        required = str if key in _PATTERNS else bool if key == _FLAG else (int, float)
        if not isinstance(value, required) or (isinstance(value, bool) and key != _FLAG):
            kind = "a pattern" if key in _PATTERNS else "true or false" if key == _FLAG else "a number"
            raise InputError(Reason(kind, repr(value), operand=f"{where}: {key}"))
    patterns = {key: table[key] for key in _PATTERNS if key in table}
    return MatrixLimit(**patterns, limits={key: value for key, value in table.items() if key not in _PATTERNS})


def unused_limits(budgets: Sequence[MatrixLimit], cells: Sequence[Cell]) -> list[str]:
    """A line for each table that concerns no cell, such as one with a misspelt pattern: it limits nothing."""
    return [
        f"--budget: table {number} limits nothing: no cell has models {budget.models!r} and devices {budget.devices!r}"
        for number, budget in enumerate(budgets, 1)
        if not any(map(budget.concerns, cells))
    ]


def broken_limits(budgets: Sequence[MatrixLimit], cells: Sequence[Cell]) -> dict[int, list[str]]:
    """The limits that each cell exceeds, by its position; cells that exceed none are not listed."""
    found = {i: [line for budget in budgets for line in budget.broken(cell)] for i, cell in enumerate(cells)}
    return {i: lines for i, lines in found.items() if lines}

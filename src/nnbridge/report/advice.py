"""Advice as a table."""

from __future__ import annotations

from collections.abc import Sequence

from nnbridge.advice import Advice, Advised, Unmoved
from nnbridge.report.terminal import Table

_KINDS = {"round": "edit, rounding differs", "change": "edit, results change", "calibrate": "edit, scales from data"}


def advice_tables(found: Advised) -> list[Table | str]:
    """A numbered row for each change, with what it does; then the operators that none of them is about."""
    return [_changes(found.advice), *([_unmoved(found.unmoved)] if found.unmoved else [])]


def _changes(found: Sequence[Advice]) -> Table | str:
    if not found:
        return "Advice: no edit or setting that nnbridge knows puts more on the devices."
    rows = []
    for number, advice in enumerate(found, 1):
        before, after = advice.before.figures, advice.after.figures
        changes = (f"{before[key]:,} → {after[key]:,}" if before[key] != after[key] else f"{after[key]:,}" for key in before)
        rows.append((str(number), advice.text, _KINDS.get(advice.kind, advice.kind), *changes))
    columns = ("advice", "change", "kind", "operators off the device", "partitions", "steps", "multiply-adds on devices")
    return Table(
        "Advice",
        columns,
        rows,
        "each was planned; to apply number N: nnbridge rewrite MODEL --device NAME --advice N -o FILE (an edit needs --inexact)",
    )


def _unmoved(found: Sequence[Unmoved]) -> Table:
    """Operators that are searched alike in one row."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for one in found:
        tried = ", ".join(text.partition(":")[0] for text in one.tried) or "nothing that can be changed"
        groups.setdefault((one.operator, tried, one.alone), []).append(str(one.index))
    rows = [(", ".join(at), operator, alone or "none", tried) for (operator, tried, alone), at in groups.items()]
    title = "No change helps these operators"
    return Table(title, ("operator", "type", "would work in isolation, not in this file", "tried"), rows)

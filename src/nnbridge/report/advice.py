"""Advice as a table."""

from __future__ import annotations

from collections.abc import Sequence

from nnbridge.advice import Advice
from nnbridge.report.terminal import Table


def advice_table(found: Sequence[Advice]) -> Table | str:
    """A numbered row for each change, with what it does."""
    if not found:
        return "Advice: no rewrite or setting that nnbridge knows brings more to the devices."
    rows = []
    for number, advice in enumerate(found, 1):
        before, after = advice.before.figures, advice.after.figures
        changes = (f"{before[key]:,} → {after[key]:,}" if before[key] != after[key] else f"{after[key]:,}" for key in before)
        rows.append((str(number), advice.text, "rewrite" if advice.edit else "setting", *changes))
    columns = ("advice", "change", "kind", "operators elsewhere", "partitions", "steps", "multiply-adds on devices")
    return Table("Advice", columns, rows, "each was planned; nnbridge rewrite MODEL --advice N -o FILE makes a rewrite")

"""Advice as a table."""

from __future__ import annotations

from collections.abc import Sequence

from nnbridge.advice import Advice, Advised, Unmoved
from nnbridge.report.terminal import Table

_KINDS = {"round": "edit, rounding differs", "change": "edit, results change", "calibrate": "edit, needs calibration"}


def advice_tables(found: Advised) -> list[Table | str]:
    """A numbered row for each change, with what it does; then the operators that none of them is about."""
    return [_changes(found.advice), *_sources(found.advice), *([_unmoved(found.unmoved)] if found.unmoved else [])]


def _sources(found: Sequence[Advice]) -> list[Table | str]:
    """Changes of the source that do the same."""
    numbers: dict[str, list[str]] = {}
    for number, advice in enumerate(found, 1):
        numbers.setdefault(advice.converter, []).append(str(number))
    rows = [(", ".join(those), converter) for converter, those in numbers.items() if converter]
    return [Table("The same at the source", ("advice", "in the model or its converter"), rows)] if rows else []


def _changes(found: Sequence[Advice]) -> Table | str:
    if not found:
        return "Advice: no edit or setting that nnbridge knows puts more on the devices."
    rows, refused = [], any(advice.before.standing for advice in found)
    for number, advice in enumerate(found, 1):
        before, after = advice.before.figures, advice.after.figures
        changes = (f"{before[key]:,} → {after[key]:,}" if before[key] != after[key] else f"{after[key]:,}" for key in before)
        whole = ["still refused" if advice.after.standing else "no longer refused"] * refused
        rows.append((str(number), advice.text, _KINDS.get(advice.kind, advice.kind), *whole, *changes))
    columns = ["advice", "change", "kind", "operators off the device", "partitions", "steps", "multiply-adds on devices"]
    columns[3:3] = ["the file as a whole"] * refused
    return Table(
        "Advice",
        tuple(columns),
        rows,
        "each was planned; to apply number N: nnbridge rewrite MODEL --device NAME --advice N -o FILE (an edit needs --inexact)",
    )


def _share(ones: Sequence[Unmoved]) -> str:
    """The share of the file's multiply-adds."""
    return "-" if ones[0].share is None else f"{sum(one.share or 0 for one in ones):.1%}"


def _unmoved(found: Sequence[Unmoved]) -> Table:
    """Operators that are searched alike in one row."""
    groups: dict[tuple[str, ...], list[Unmoved]] = {}
    for one in found:
        tried = ", ".join(text.partition(":")[0] for text in one.tried)
        groups.setdefault((one.operator, one.alone, tried, one.converter), []).append(one)
    rows = [(", ".join(str(one.index) for one in ones), row[0], _share(ones), *row[1:]) for row, ones in groups.items()]
    columns = ("operator", "type", "work", "would work by itself", "tried", "at the source")
    return Table("No change helps these operators", columns, rows)

"""The explanation of a phone's log as text."""

from __future__ import annotations

from collections.abc import Iterator

from nnbridge.phone_log.explaining import ExplainedLine, LogExplanation
from nnbridge.report.terminal import Table, counted


def log_tables(found: LogExplanation) -> list[Table | str]:
    """The first sentence, then each line in the log's order; lines of no known form are counted where they are."""
    explained = [(one.number, list(_paragraph(one))) for one in found.lines]
    others = [(first, [_stretch(first, last)]) for first, last in found.unmatched]
    rows = [text for _, several in sorted([*explained, *others]) for text in several]
    return [found.sentence, *([f"The plan: {found.plan}"] if found.plan else ()), *rows]


def _stretch(first: int, last: int) -> str:
    place = f"line {first}" if first == last else f"lines {first} to {last}"
    return f"{place}: {counted(last - first + 1, 'line')} of no known form"


def _paragraph(one: ExplainedLine) -> Iterator[str]:
    marks = " (cut)" * one.cut + f" ({one.times} times)" * (one.times != "1")
    yield f"line {one.number}{marks}: {one.text}"
    yield f"    {one.writer}: {one.says}"
    if one.operators:
        yield f"    {'' if one.certain else 'one of: '}{', '.join(map(str, one.operators))}"
    if one.rule:
        yield f"    rule: {one.rule}"
    if one.next:
        yield f"    next: {one.next}"

"""Searches as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from nnbridge.report.terminal import Table


class _SearchAnswer(Protocol):
    @property
    def sentence(self) -> str: ...

    def records(self) -> Sequence[Mapping[str, Any]]: ...


def search_tables(found: _SearchAnswer, title: str) -> list[Table | str]:
    """The sentence, and a row for each operation that was found."""
    records = found.records()
    if not records:
        return [found.sentence]
    columns = [name for name in records[0] if any(record[name] not in ("", None) for record in records)]
    return [found.sentence, Table(title, tuple(columns), [tuple(str(r[name]) for name in columns) for r in records])]

"""Rows as CSV that spreadsheets show and do not compute."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from nnbridge.report.terminal import printable

_UNSAFE = ("=", "+", "-", "@", "\t", "\r")
"""What a text must not start with: spreadsheets would compute it."""


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """One line for each row; control characters of texts are escaped, None is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([_safe(value) for value in row] for row in rows)
    return out.getvalue()


def _safe(value: object) -> object:
    if not isinstance(value, str):
        return "" if value is None else value
    return f"'{printable(value)}" if value.startswith(_UNSAFE) else printable(value)

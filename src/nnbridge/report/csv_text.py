"""Rows as CSV that spreadsheets show and do not compute."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable

from nnbridge.report.terminal import printable

_FORMULA = re.compile("(^|;)([ \u3000]*[=+@\uff1d\uff0b\uff0d\uff20-])")
"""What a cell must not start with: spreadsheets would compute it. In many countries a semicolon ends a cell."""


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """One line for each row; control characters of texts are escaped, None is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([_safe(value) for value in row] for row in rows)
    return out.getvalue()


def _safe(value: object) -> object:
    if not isinstance(value, str):
        return "" if value is None else value
    return _FORMULA.sub(r"\1'\2", printable(value))

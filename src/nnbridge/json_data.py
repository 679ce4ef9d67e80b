"""Data as JSON can hold it, and its text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any


def json_ready(value: Any) -> Any:
    """The same with Python's numbers, None for those that are not finite, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    if isinstance(value, Integral):
        return value if isinstance(value, int) else int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    return value


def json_text(data: Any, indent: int | None = None, readable: bool = False) -> str:
    """JSON that every reader accepts. ``readable``: names of any language as they are, where a tool shows them so."""
    return json.dumps(json_ready(data), indent=indent, ensure_ascii=not readable, allow_nan=False)

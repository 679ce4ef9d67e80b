"""Data as JSON can hold it."""

from __future__ import annotations

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

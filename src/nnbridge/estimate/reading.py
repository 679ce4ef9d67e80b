"""The ``[device.cost]`` table of a profile, checked key by key."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from nnbridge.estimate.numbers import ArrayNumbers, Band, Cost, PartitionCost, RateNumbers

Note = Callable[[str, str, object], None]
"""``note(key, rule, found)`` records a mistake."""
_ELEMENTWISE = ("add", "mul", "other", "pool", "table", "softmax")
_ARRAY: Mapping[str, tuple[int, bool]] = {
    # Key → how many numbers, and whether they are whole.
    "clock_mhz": (1, False),
    "granule": (3, True),
    "step_cycles": (1, False),
    "depth": (1, True),
    "kernel_step": (2, True),
    "weight_floor": (1, False),
    "latency": (1, False),
    "weight_latency": (1, False),
    "burst": (1, True),
    "weight_burst": (1, True),
    "banks": (1, True),
    "bank_granules": (4, True),
    "stalls": (2, True),
    "pool_step_cycles": (1, False),
    "channel_multiple": (1, True),
    "cores": (1, True),
    "scale_bytes": (1, True),
    "on_chip": (1, True),
}
_OPTIONAL = {"pool_step_cycles": 0, "channel_multiple": 1, "cores": 1, "scale_bytes": 0, "on_chip": 0}
_TABLES = {"elementwise": _ELEMENTWISE, "bandwidth": ("maps", "weights"), "passes": ("softmax", "lstm")}
_KEYS = (*_ARRAY, *_TABLES, "weights", "macs_per_second", "bytes_per_second", "call_us", "copy_gbps", "band", "source")


def cost_of(table: Mapping[str, Any], note: Note) -> Cost:
    """The cost model of a table: an array's numbers, or two rates."""
    for key in table:
        if key not in _KEYS:
            note(key, f"one of {', '.join(_KEYS)} in cost", key)
    source = table.get("source")
    if not isinstance(source, str) or not source:
        note("source", "where the numbers of the cost model were read", source)
    rates = ("macs_per_second", "bytes_per_second")
    found = {key: _number(table, key, note) for key in rates if key in table}
    array = _array(table, note) if "granule" in table else None
    if array is None and len(found) < len(rates):
        note("cost", f"an array (granule and its numbers), or {' and '.join(rates)}", ", ".join(table) or None)
    return Cost(
        str(source),
        array,
        RateNumbers(*(found[key] for key in rates)) if len(found) == len(rates) else None,
        PartitionCost(*(_number(table, key, note, 0.0) for key in ("call_us", "copy_gbps"))),
        _band(table.get("band"), note),
    )


def _array(table: Mapping[str, Any], note: Note) -> ArrayNumbers:
    values: dict[str, Any] = {}
    for key, (count, whole) in _ARRAY.items():
        value = table.get(key, _OPTIONAL.get(key))
        listed = value if isinstance(value, list) else [value]
        kind = int if whole else (int, float)
        least = 0 if key in _OPTIONAL else 1e-9
        right = all(isinstance(v, kind) and not isinstance(v, bool) and least <= v < 2**40 for v in listed)
        if not right or len(listed) != count:
            note(key if key in table else "cost", f"{key}: {count} number(s) above 0", value)
            listed = [1] * count
        values[key] = tuple(listed) if count > 1 else listed[0]
    for key, names in _TABLES.items():
        typed = table.get(key, {})
        if not isinstance(typed, dict) or (key != "passes" and set(typed) != set(names)) or not set(typed) <= set(names):
            note(key, f"a table of {', '.join(names)}", typed)
            typed = dict.fromkeys(names, 1.0)
        values[key] = {name: _number(typed, name, note) for name in typed}
    weights = table.get("weights", "plain")
    if weights not in ("plain", "rice"):
        note("weights", "plain or rice", weights)
    return ArrayNumbers(**values, compressed_weights=weights == "rice")


def _number(table: Mapping[str, Any], key: str, note: Note, default: float | None = None) -> float:
    value = table.get(key, default)
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if known and value is not None and (value > 0 or (value == 0 and default is not None)):
        return float(value)
    note(key, "a number above 0", value)
    return 1.0


def _band(table: Any, note: Note) -> Band | None:
    """``network`` (a factor), ``networks`` (how many), ``oracle``, and kinds with two factors."""
    if table is None:
        return None
    if not isinstance(table, dict) or not {"network", "networks", "oracle"} <= table.keys():
        note("band", "a table with network, networks and oracle", table)
        return None
    kinds = {key: value for key, value in table.items() if key not in ("network", "networks", "oracle")}
    for key, value in kinds.items():
        if not isinstance(value, list) or len(value) != 2 or not all(isinstance(v, (int, float)) and v > 0 for v in value):
            note(key, "two factors above 0", value)
            return None
    found = {key: (float(low), float(high)) for key, (low, high) in kinds.items()}
    return Band(_number(table, "network", note), int(_number(table, "networks", note)), str(table["oracle"]), found)

"""Data as JSON can hold it, and its text; the documents of docs/schemas, with the name and version of their schema."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

_NAMES = """
bench bisect build-delegate build-ndk build-ndk-env build-neuron build-neuron-file build-provider compare convert
delegate-plans devices devices-ask devices-check devices-explain devices-family devices-find devices-learn devices-serve doctor
error inspect matrix plan provider-plans reduce report rewrite run vts
"""
VERSIONS: Mapping[str, int] = {**dict.fromkeys(_NAMES.split(), 1), "compare": 2, "matrix": 2, "report": 2, "vts": 2}
"""Schema → its version, which grows when a key goes or means something else."""
OLD_KEYS: Mapping[str, Mapping[str, str]] = {
    "counts": {"nnapi_cpu": "NNAPI CPU", "nnapi_runtime": "NNAPI runtime", "interface_transposes": "interface transposes"},
    "files": {"own_error": "own-error"},
    "operations": {"all_others": "all others"},
    "performance": {"relaxed_float32": "relaxed float32"},
    "performance.*": {"exec_time": "execTime", "power_usage": "powerUsage"},
}
"""The key of an object (``.*``: of each object in it) → its keys, and their names in the last release, which are printed as well
for one release; docs/schemas/README.md lists them."""


def document(schema: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Data with the name and version of its schema; ValueError for data that has other meanings for these keys."""
    head = {"schema": f"nnbridge/{schema}", "version": VERSIONS[schema]}
    clash = [key for key in (*head, "error") if key in data and data[key] != head.get(key)]
    if clash:
        raise ValueError(f"{schema}: {clash[0]} is a key of every document")
    return {**head, **_with_old_keys(data)}


def error_document(error: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """A document in place of a result: what is wrong, and with its own keys what was found before."""
    head = {**document("error", {}), "error": dict(error)}
    return {**head, **{key: value for key, value in found.items() if key not in head}}


def _with_old_keys(value: Any, key: str = "", around: str = "") -> Any:
    if isinstance(value, (list, tuple)):
        return [_with_old_keys(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    found = {name: _with_old_keys(item, name, key) for name, item in value.items()}
    old = {**OLD_KEYS.get(key, {}), **OLD_KEYS.get(f"{around}.*", {})}
    return {**found, **{before: found[now] for now, before in old.items() if now in found}}


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

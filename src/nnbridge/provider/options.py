"""The provider's options: the flags of ONNX Runtime's NNAPI provider by name, and nnbridge's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nnbridge.errors import InputError, Reason
from nnbridge.records import dataclass

FLAGS = {"use_fp16": 1, "use_nchw": 2, "cpu_disabled": 4, "cpu_only": 8}
"""Options by name, and their bits of NNAPIFlags."""
STOPS_ENTRY = "ep.nnapi.partitioning_stop_ops"
"""The entry of a session's configuration that Android's provider reads."""
_CONTEXT = "ep.context_enable"
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


@dataclass(frozen=True)
class ProviderOptions:
    """The options that a session passes to the provider."""

    use_fp16: bool = False
    """float32 may be computed with float16's precision."""
    use_nchw: bool = False
    """Images stay channels-first."""
    cpu_disabled: bool = False
    """All devices but NNAPI's CPU."""
    cpu_only: bool = False
    """NNAPI's CPU only."""
    stops: frozenset[str] | None = None
    """Types of nodes from which on nothing is NNAPI's; None for the provider's own."""
    nnbridge_devices: tuple[str, ...] = ()
    nnbridge_plan: Path | None = None


def parse(provider: str, entries: Mapping[str, str]) -> ProviderOptions:
    """The options of a provider among a session's configuration entries; InputError for unknown names and wrong values."""
    prefix = f"ep.{provider.lower()}."
    found: dict[str, Any] = {}
    for entry, text in entries.items():
        if not entry.startswith(prefix):
            continue
        name = entry[len(prefix) :]
        if name not in READERS:
            raise InputError(Reason(f"an option of {', '.join(READERS)}", name, operand="provider options"))
        for key, value in READERS[name](name, text.strip()).items():
            found[key] = found.get(key, False) or value if key in FLAGS else value
    if found.get("cpu_disabled") and found.get("cpu_only"):
        raise InputError(Reason("one of cpu_disabled and cpu_only", "both", operand="provider options"))
    if entries.get(_CONTEXT, "0") not in ("", "0"):
        raise InputError(Reason("a session that does not store compiled models", f"{_CONTEXT} {entries[_CONTEXT]}"))
    if STOPS_ENTRY in entries:
        found["stops"] = frozenset(_names(entries[STOPS_ENTRY]))
    return ProviderOptions(**found)


def _fails(name: str, rule: str, text: str) -> InputError:
    return InputError(Reason(rule, repr(text), operand=f"provider option {name}"))


def _boolean(name: str, text: str) -> dict[str, Any]:
    if text.lower() not in (*_TRUE, *_FALSE):
        raise _fails(name, "true or false", text)
    return {name: text.lower() in _TRUE}


def _flags(name: str, text: str) -> dict[str, Any]:
    known = sum(FLAGS.values())
    if not (text.isascii() and text.isdigit()) or int(text) & ~known:
        raise _fails(name, f"a sum of {', '.join(f'{bit} ({flag})' for flag, bit in FLAGS.items())}", text)
    return {flag: bool(int(text) & bit) for flag, bit in FLAGS.items()}


def _devices(name: str, text: str) -> dict[str, Any]:
    return {name: tuple(_names(text))}


def _plan(name: str, text: str) -> dict[str, Any]:
    if not text:
        raise _fails(name, "the name of a file", text)
    return {name: Path(text)}


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


READERS: Mapping[str, Callable[[str, str], dict[str, Any]]] = {
    **dict.fromkeys(FLAGS, _boolean),
    "nnapi_flags": _flags,
    "nnbridge_devices": _devices,
    "nnbridge_plan": _plan,
}
"""The names of options, and what their values mean."""

"""The delegate's options: names and defaults of Android's NNAPI delegate, and nnbridge's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from nnbridge.errors import InputError, Reason
from nnbridge.records import dataclass
from nnbridge.types import PreferenceCode, PriorityCode

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
Hint = tuple[str, int, bytes]
"""An extension's name, an attribute's number within it, its value."""


@dataclass(frozen=True)
class DelegateOptions:
    """The options that a delegate was created with."""

    execution_preference: int = -1
    """A PreferenceCode; -1 leaves NNAPI's own."""
    accelerator_name: str = ""
    cache_dir: str = ""
    model_token: str = ""
    disallow_nnapi_cpu: bool = True
    max_number_delegated_partitions: int = 3
    allow_fp16: bool = False
    execution_priority: int = PriorityCode.MEDIUM
    max_compilation_timeout_duration_ns: int = 0
    max_execution_timeout_duration_ns: int = 0
    max_execution_loop_timeout_duration_ns: int = 0
    allow_dynamic_dimensions: bool = False
    use_burst_computation: bool = False
    max_execution_cache_size: int = 4
    vendor_compilation_hints: tuple[Hint, ...] = ()
    vendor_execution_hints: tuple[Hint, ...] = ()
    verbose_validation: bool = False
    nnbridge_devices: tuple[str, ...] = field(default=())
    nnbridge_plan: Path | None = None


def parse(pairs: Sequence[tuple[str, str]]) -> DelegateOptions:
    """Options as text; InputError for unknown names, one that is there twice, and wrong values."""
    found: dict[str, Any] = {}
    for key, text in pairs:
        bare = key.removeprefix("nnapi_")
        name = _ALIASES.get(bare, bare)
        if name in REFUSED:
            raise InputError(Reason(f"no {name}, {REFUSED[name]}", key, operand="delegate options"))
        if name not in READERS:
            raise InputError(Reason(f"an option of {', '.join(READERS)}", key, operand="delegate options"))
        if name in found:
            raise InputError(Reason(f"{name} once", f"{key} again", operand="delegate options"))
        found[name] = READERS[name](name, text.strip())
    return DelegateOptions(**found)


def _fails(name: str, rule: str, text: str) -> InputError:
    return InputError(Reason(rule, repr(text), operand=f"delegate option {name}"))


def _text(name: str, text: str) -> str:
    return "" if text == "None" else text


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in (*_TRUE, *_FALSE):
        raise _fails(name, "true or false", text)
    return text.lower() in _TRUE


def _number(least: int | None) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        rule = "a whole number" if least is None else f"a whole number of at least {least}"
        try:
            value = int(text)
        except ValueError:
            raise _fails(name, rule, text) from None
        if least is not None and value < least:
            raise _fails(name, rule, text)
        return value

    return read


def _one_of(values: Mapping[str, int]) -> Callable[[str, str], int]:
    """A word, in any spelling of Android's and of benchmark_model's, or its number."""

    def read(name: str, text: str) -> int:
        word = text.lower()
        if word in values:
            return values[word]
        if word in map(str, values.values()):
            return int(word)
        raise _fails(name, f"one of {', '.join(values)}", text)

    return read


_HINT = re.compile(r"([\w.]+)/(\d{1,5})=((?:[0-9a-fA-F]{2})*)")


def _hints(name: str, text: str) -> tuple[Hint, ...]:
    found = []
    for part in text.split(",") if _text(name, text) else ():
        match = _HINT.fullmatch(part.strip())
        if match is None:
            raise _fails(name, "EXTENSION/NUMBER=HEXADECIMAL BYTES, joined by commas", part)
        found.append((match[1], int(match[2]), bytes.fromhex(match[3])))
    return tuple(found)


def _names(name: str, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip()) if _text(name, text) else ()


def _path(name: str, text: str) -> Path | None:
    return Path(text) if _text(name, text) else None


_PREFERENCES = {
    "undefined": -1,
    "low_power": int(PreferenceCode.LOW_POWER),
    "fast_single_answer": int(PreferenceCode.FAST_SINGLE_ANSWER),
    "sustained_speed": int(PreferenceCode.SUSTAINED_SPEED),
}
_PRIORITIES = {
    "default": int(PriorityCode.MEDIUM),
    "low": int(PriorityCode.LOW),
    "medium": int(PriorityCode.MEDIUM),
    "high": int(PriorityCode.HIGH),
}
READERS: Mapping[str, Callable[[str, str], Any]] = {
    "execution_preference": _one_of(_PREFERENCES),
    "accelerator_name": _text,
    "cache_dir": _text,
    "model_token": _text,
    "disallow_nnapi_cpu": _boolean,
    "max_number_delegated_partitions": _number(None),
    "allow_fp16": _boolean,
    "execution_priority": _one_of(_PRIORITIES),
    "max_compilation_timeout_duration_ns": _number(0),
    "max_execution_timeout_duration_ns": _number(0),
    "max_execution_loop_timeout_duration_ns": _number(0),
    "allow_dynamic_dimensions": _boolean,
    "use_burst_computation": _boolean,
    "max_execution_cache_size": _number(0),
    "vendor_compilation_hints": _hints,
    "vendor_execution_hints": _hints,
    "verbose_validation": _boolean,
    "nnbridge_devices": _names,
    "nnbridge_plan": _path,
}
REFUSED: Mapping[str, str] = {
    "vendor_plugin": "an object of the program's, which text cannot name",
    "tensor_max_size_hints": "since dynamic outputs get the size that each run computes",
    "support_library_path": "since devices are emulated: name one by accelerator_name",
    "support_library_handle": "since devices are emulated: name one by accelerator_name",
    "disable_debugging_diagnostics_callbacks": "since there is no support library that would call them",
    "use_nnapi_cpu": "but its opposite, disallow_nnapi_cpu",
}
"""Options of Android's delegate, without ``nnapi_``, that have no counterpart here: why."""
_ALIASES = {
    "disable_nnapi_cpu": "disallow_nnapi_cpu",
    "disable_cpu": "disallow_nnapi_cpu",
    "max_delegated_partitions": "max_number_delegated_partitions",
    "use_burst": "use_burst_computation",
    "use_burst_mode": "use_burst_computation",
    "delegate_serialize_dir": "cache_dir",
    "delegate_serialize_token": "model_token",
}
"""Names that Java's interface and benchmark_model have for the same, without ``nnapi_``."""

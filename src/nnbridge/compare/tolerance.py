"""How far an output may be from the reference's: for all outputs, or for each by name from a TOML file.

The file has the keys of :class:`Tolerance` for every output, and tables ``[output.NAME]`` for single ones::

    rtol = 1e-3

    [output.scores]
    atol = 0.01

    [output."detection:0"]
    steps = 2
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from nnbridge.errors import InputError, Reason, near
from nnbridge.toml import read_toml


@dataclass(frozen=True)
class Tolerance:
    """How far an output may be from the reference's."""

    atol: float | None = None
    """Of floating outputs; None: rtol times the output's typical magnitude, rounded up to two digits, at least 1e-7."""
    rtol: float | None = None
    """Of floating outputs; None: 1e-4, or a unit in the last place of types with fewer digits (float16)."""
    steps: int = 1
    """Of 8- and 16-bit integers. Other integers and booleans must be equal."""


DEFAULT_TOLERANCE = Tolerance()
SINGLE_OPERATION = Tolerance(1e-5, 5 * 2.0**-23)
"""The tolerance of Android's conformance harness for float32."""


@dataclass(frozen=True)
class Tolerances:
    """A tolerance for each output."""

    default: Tolerance = DEFAULT_TOLERANCE
    by_name: Mapping[str, Tolerance] = field(default_factory=dict)
    source: str = ""
    """The file that they come from."""

    def of(self, name: str) -> Tolerance:
        """The tolerance of an output."""
        return self.by_name.get(name, self.default)

    def check(self, names: Collection[str]) -> Tolerances:
        """These tolerances; InputError if one is for an output that there is not."""
        for name in self.by_name:
            if name not in names:
                raise InputError(Reason(f"one of {', '.join(names)}{near(name, names)}", name, operand=f"{self.source} [output]"))
        return self


def as_tolerances(tolerance: Tolerance | Tolerances) -> Tolerances:
    """One tolerance as that of every output."""
    return tolerance if isinstance(tolerance, Tolerances) else Tolerances(tolerance)


def read_tolerances(path: Path, typed: Mapping[str, Any]) -> Tolerances:
    """Tolerances from a TOML file; ``typed`` are the fields that an option states, which the file's general ones yield to."""
    source, table = str(path), read_toml(path, "a TOML file of tolerances")
    outputs = table.pop("output", {})
    if not isinstance(outputs, dict):
        raise InputError(Reason("tables [output.NAME]", repr(outputs), operand=source))
    general = replace(_fields(DEFAULT_TOLERANCE, table, source), **typed)
    by_name = {name: _fields(general, found, f"{source} [output.{name}]") for name, found in outputs.items()}
    return Tolerances(general, by_name, source)


def _fields(base: Tolerance, table: Any, where: str) -> Tolerance:
    if not isinstance(table, dict):
        raise InputError(Reason("a table of atol, rtol and steps", repr(table), operand=where))
    known = asdict(base)
    for key, value in table.items():
        if key not in known:
            raise InputError(Reason(f"one of {', '.join(known)} or a table [output.NAME]", key, operand=where))
        number = isinstance(value, int if key == "steps" else (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value < math.inf:
            kind = "whole" if key == "steps" else "finite"
            raise InputError(Reason(f"a {kind} number from 0 for {key}", repr(value), operand=where))
    return replace(base, **table)

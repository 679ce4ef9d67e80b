"""The permitted distance of an output from the reference's: for all outputs, or for each by name from a TOML file.

An element of a floating output agrees if ``|a - b| <= atol + rtol * |b|``, b being the reference's; 8- and 16-bit integers may
differ by ``steps``, everything else not at all (docs/comparisons.md has the reasons).

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
from dataclasses import asdict, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nnbridge.compare.arrays import Array
from nnbridge.errors import InputError, Reason, near
from nnbridge.records import dataclass
from nnbridge.toml import read_toml

RELATIVE_TOLERANCE = 1e-4
"""Largest relative difference of a network's floating output, unless its type has fewer digits."""
OUTLIER_OCTAVES = 12
"""Magnitudes so many powers of two above the smallest tenth are outliers: masks and fill values, not the network's arithmetic."""


@dataclass(frozen=True)
class Tolerance:
    """The tolerance of an output."""

    atol: float | None = None
    """Of floating outputs; None: rtol times the output's typical magnitude, rounded up to two digits, at least 2e-7."""
    rtol: float | None = None
    """Of floating outputs; None: 1e-4, or a unit in the last place of types with fewer digits (float16)."""
    steps: int = 1
    """Of 8- and 16-bit integers. Other integers and booleans must be equal."""

    def relative(self, dtype: np.dtype[Any]) -> float:
        """rtol of outputs of this type; 0 unless they are floating."""
        if dtype.kind not in "fc":
            return 0.0
        return max(RELATIVE_TOLERANCE, float(np.finfo(dtype).eps)) if self.rtol is None else self.rtol

    def absolute(self, dtype: np.dtype[Any]) -> Array:
        """The candidates for atol of outputs of this type: one value, or many of which the output's typical magnitude decides."""
        if dtype.kind not in "fc":
            return np.array([float(self.steps) if dtype.itemsize <= 2 and dtype.kind in "iu" else 0.0])
        return _absolute_tolerances() if self.atol is None else np.array([self.atol])


@cache
def _absolute_tolerances() -> Array:
    """The candidates for atol: two digits, from 2e-7 on, which float32's rounding leaves where numbers of about 1 cancel.

    It is also what ONNX Runtime's Sigmoid is off by.
    """
    return np.outer(10.0 ** np.arange(-8, 307), np.arange(10, 100)).ravel()[10:]


class Magnitudes:
    """Magnitudes of many elements, counted and added up by power of two."""

    _LOWEST, _SIZE = -1080, 2110

    def __init__(self) -> None:
        self._counts = np.zeros(self._SIZE, np.int64)
        self._sums = np.zeros(self._SIZE)

    def add(self, magnitudes: Array) -> None:
        """Count in finite magnitudes; zeros say nothing of the scale."""
        mantissas, exponents = np.frexp(magnitudes[magnitudes > 0])
        octaves = exponents - self._LOWEST
        self._counts += np.bincount(octaves, minlength=self._SIZE)
        self._sums += np.bincount(octaves, mantissas, self._SIZE)

    def typical(self) -> float:
        """The mean magnitude without outliers; 0 if there are no elements but zeros."""
        total = int(self._counts.sum())
        if total == 0:
            return 0.0
        low = int(np.searchsorted(np.cumsum(self._counts), total / 10))
        last = low + OUTLIER_OCTAVES + 1
        means = self._sums[:last] / self._counts[:last].sum()
        return float(np.ldexp(means, np.arange(len(means)) + self._LOWEST).sum())


DEFAULT_TOLERANCE = Tolerance()
SINGLE_OPERATION = Tolerance(1e-5, 5 * 2.0**-23)
"""The tolerance of Android's conformance harness for float32."""


@dataclass(frozen=True)
class Acceptance:
    """Figures that are enough for outputs of known forms, in place of tolerances; None: the tolerances."""

    iou: float | None = None
    """Intersection over union of each box with its counterpart, from 0 to 1."""
    score: float | None = None
    """Largest difference of their scores; None: any."""
    score_threshold: float | None = None
    """Boxes of lower scores need no counterpart."""
    top1: float | None = None
    """Share of samples whose top class agrees, from 0 to 1."""

    def __post_init__(self) -> None:
        for name, value, most in (("iou", self.iou, 1.0), ("top1", self.top1, 1.0), ("score", self.score, math.inf)):
            if value is not None and not 0 <= value <= most:
                rule = "a number from 0 to 1" if most == 1 else "a number from 0"
                raise InputError(Reason(rule, str(value), operand=f"--accept-{name}"))
        if self.score_threshold is not None and not math.isfinite(self.score_threshold):
            raise InputError(Reason("a finite number", str(self.score_threshold), operand="--score-threshold"))
        for name, value in (("accept-score", self.score), ("score-threshold", self.score_threshold)):
            if value is not None and self.iou is None:
                raise InputError(Reason("--accept-iou beside it", "none", operand=f"--{name}"))


@dataclass(frozen=True)
class Tolerances:
    """A tolerance for each output."""

    default: Tolerance = DEFAULT_TOLERANCE
    by_name: Mapping[str, Tolerance] = field(default_factory=dict)
    source: str = ""
    """The file that they come from."""
    accept: Acceptance = Acceptance()
    """What is enough for outputs of known forms instead."""

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
    """Tolerances from a TOML file; ``typed`` are the fields that an option states, which override the file's general ones."""
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

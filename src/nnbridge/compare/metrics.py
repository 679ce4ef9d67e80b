"""Distances of a whole output from the reference's, added up over samples: RMSE, SQNR, cosine, steps.

Differences are in the output's own unit: real numbers, or steps of integers. Signal and cosine are those of values less
their zero point.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import field
from typing import Any

import numpy as np

from nnbridge.model import Array
from nnbridge.records import dataclass

LAST_STEP = 16
"""Differences of integers beyond so many steps share one row of the histogram on either side."""


@dataclass
class Metrics:
    """Sums over the elements that are finite on both sides."""

    elements: int = 0
    noise: float = 0.0
    """Of squared differences."""
    signal: float = 0.0
    """Of the reference's squares."""
    own: float = 0.0
    """Of squares here."""
    products: float = 0.0
    steps: Counter[int] = field(default_factory=Counter)
    """Of integers: steps above the reference → elements."""

    def add(self, actual: Array, expected: Array, zero_point: int = 0) -> None:
        """Flat arrays of one kind of numbers, all of them finite."""
        real = actual.dtype.kind == "f"
        ours, theirs = (values.astype(np.float64, copy=False) - (0 if real else zero_point) for values in (actual, expected))
        difference = ours - theirs
        self.elements += difference.size
        # Squares of the largest floats are infinite, as are the sums then.
        with np.errstate(over="ignore", invalid="ignore"):
            # Not by BLAS, whose threads wait for each other where other processes use the cores.
            self.noise += float(np.einsum("i,i", difference, difference))
            self.signal += float(np.einsum("i,i", theirs, theirs))
            self.own += float(np.einsum("i,i", ours, ours))
            self.products += float(np.einsum("i,i", ours, theirs))
        if not real:
            clipped = np.clip(difference, -LAST_STEP - 1, LAST_STEP + 1).astype(np.int64)
            found, counts = np.unique(clipped, return_counts=True)
            self.steps.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))

    @property
    def rmse(self) -> float | None:
        """Root of the mean squared difference; None without elements."""
        return math.sqrt(self.noise / self.elements) if self.elements else None

    @property
    def sqnr(self) -> float | None:
        """Signal to noise in dB; infinite without noise, None without elements or signal."""
        if not self.elements or not self.signal:
            return None
        ratio = self.noise / self.signal
        return -10 * math.log10(ratio) if ratio > 0 else math.inf if ratio == 0 else None

    @property
    def cosine(self) -> float | None:
        """Of the angle between both outputs as vectors; None where one of them is 0 or their squares exceed what floats hold."""
        scale = math.sqrt(self.signal) * math.sqrt(self.own)
        found = self.products / scale if 0 < scale < math.inf else math.nan
        return None if math.isnan(found) else max(-1.0, min(1.0, found))

    def histogram(self) -> dict[str, int]:
        """Of integers: steps above the reference, as text, → elements; the last ones on either side share a row."""
        names = {-LAST_STEP - 1: f"<-{LAST_STEP}", LAST_STEP + 1: f">{LAST_STEP}"}
        return {names.get(step, str(step)): self.steps[step] for step in sorted(self.steps)}

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; an infinite SQNR is null, as without a difference there is no noise."""
        return {"rmse": self.rmse, "sqnr_db": self.sqnr, "cosine": self.cosine, "histogram": self.histogram()}

"""Two rates and a call from published latencies of whole networks, for devices without a data sheet.

``latency = call + sum of max(multiply-adds / rate, bytes / bandwidth)`` over a network's operators. Below :data:`LEAST` networks
nothing is fitted. The error is that of leaving one network out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnbridge.errors import InputError, Reason
from nnbridge.model import Array

LEAST = 5
"""Networks; three numbers are fitted."""
_RATES = np.geomspace(1e8, 2e12, 90)
_BANDWIDTHS = np.geomspace(2e7, 2e11, 90)


@dataclass(frozen=True)
class Measured:
    """A network's operators and its published latency."""

    name: str
    macs: Sequence[int]
    bytes: Sequence[int]
    """Of inputs, outputs and weights, for each operator."""
    ms: float


@dataclass(frozen=True)
class Calibration:
    """Fitted numbers, and the error of networks that were left out."""

    call_us: float
    macs_per_second: float
    bytes_per_second: float
    networks: int
    median_error: float
    worst_error: float

    def us(self, network: Measured) -> float:
        """Estimated time."""
        macs, moved = np.asarray(network.macs, float), np.asarray(network.bytes, float)
        return self.call_us + 1e6 * float(np.maximum(macs / self.macs_per_second, moved / self.bytes_per_second).sum())


def calibrate(networks: Sequence[Measured]) -> Calibration:
    """Fit to all networks; InputError with fewer than five."""
    if len(networks) < LEAST:
        raise InputError(Reason(f"latencies of at least {LEAST} networks", str(len(networks)), "calibration"))
    table = np.array([_times(each) for each in networks])
    actual = np.array([each.ms * 1e3 for each in networks])
    errors = []
    for left in range(len(networks)):
        others = np.arange(len(networks)) != left
        call, at = _fit(table[others], actual[others])
        errors.append(abs((call + table[left][at]) / actual[left] - 1))
    call, at = _fit(table, actual)
    rate, bandwidth = np.unravel_index(at, (len(_RATES), len(_BANDWIDTHS)))
    return Calibration(
        round(float(call), 3),
        float(_RATES[rate]),
        float(_BANDWIDTHS[bandwidth]),
        len(networks),
        float(np.median(errors)),
        float(max(errors)),
    )


def _times(network: Measured) -> Array:
    """Time in microseconds for every rate and bandwidth of the grid, without the call."""
    macs, moved = np.asarray(network.macs, float), np.asarray(network.bytes, float)
    slow = macs[:, None] / _RATES
    wide = moved[:, None] / _BANDWIDTHS
    return np.array([np.maximum(slow[:, k, None], wide).sum(0) for k in range(len(_RATES))]).reshape(-1) * 1e6


def _fit(table: Array, actual: Array) -> tuple[float, int]:
    """The call and the place in the grid with the least sum of squared relative errors."""
    weights = 1 / actual**2
    calls = np.maximum(((actual[:, None] - table) * weights[:, None]).sum(0) / weights.sum(), 0)
    errors = (((calls + table) / actual[:, None] - 1) ** 2).sum(0)
    at = int(np.argmin(errors))
    return float(calls[at]), at

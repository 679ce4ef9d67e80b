"""Fit call, rate and bandwidth of devices to published latencies of MobileNets.

LATENCIES is a table with tabs: network, device, accelerator, milliseconds, source. Networks named
mobilenet_v1_WIDTH_SIDE_quant are used; their operators follow from width and side. Prints the numbers of a
`[device.cost]` table and the error of networks that were left out:
latency = call + sum of max(multiply-adds / rate, bytes / bandwidth) over a network's operators.

Example:
  python scripts/profiles/calibrate_latency.py latency.tsv --device "Pixel 3, Android 10" --accelerator NNAPI
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, one_line_errors

with one_line_errors():
    from nnbridge.errors import InputError, Reason
    from nnbridge.model import Array

LEAST = 5
"""Networks; three numbers are fitted."""
_RATES = np.geomspace(1e8, 2e12, 90)
_BANDWIDTHS = np.geomspace(2e7, 2e11, 90)
BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
"""MobileNet v1: output channels and stride of each depthwise block."""
_NAME = re.compile(r"mobilenet_v1_([\d.]+)_(\d+)_quant")


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


def mobilenet_v1(width: float, side: int, ms: float = 0.0) -> Measured:
    """Multiply-adds and bytes of each operator, one byte an element."""
    macs: list[int] = []
    moved: list[int] = []

    def add(rows: int, read: int, written: int, inputs: int, outputs: int, weights: int) -> None:
        macs.append(written * written * weights if rows else weights)
        moved.append(read * read * inputs + written * written * outputs + weights)

    channels, at = max(8, int(32 * width)), -(-side // 2)
    add(1, side, at, 3, channels, 27 * channels)
    for outputs, stride in BLOCKS:
        to, wide = -(-at // stride), max(8, int(outputs * width))
        add(1, at, to, channels, channels, 9 * channels)
        add(1, to, to, channels, wide, channels * wide)
        at, channels = to, wide
    add(0, 1, 1, channels, 1001, channels * 1001)
    return Measured(f"mobilenet_v1_{width}_{side}", macs, moved, ms)


def main() -> None:
    """Print a table."""
    parser = argument_parser()
    parser.add_argument("latencies", type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--accelerator", required=True)
    options = parser.parse_args()
    rows = [line.split("\t") for line in options.latencies.read_text().splitlines() if not line.startswith("#")]
    matching = [row for row in rows if row[1:3] == [options.device, options.accelerator]]
    named = [(match, float(row[3])) for row in matching if (match := _NAME.fullmatch(row[0]))]
    found = calibrate([mobilenet_v1(float(match[1]), int(match[2]), ms) for match, ms in named])
    print(f"call_us = {found.call_us:.0f}")
    print(f"macs_per_second = {found.macs_per_second:.3g}")
    print(f"bytes_per_second = {found.bytes_per_second:.3g}")
    print(f"# {found.networks} networks; one left out: median {found.median_error:.1%}, worst {found.worst_error:.1%}")


if __name__ == "__main__":
    with one_line_errors():
        main()

"""Time both ways to sum a 3 x 3 depthwise convolution: by the filter's taps and by windows.

    python scripts/benchmarks/benchmark_depthwise.py

Each cell is the time by taps over the time by windows, below 1 where taps are faster; a star marks the way that
``correlation.depthwise_sums`` chooses: ``*`` taps, none windows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser

from nnbridge.operations import correlation
from nnbridge.operations.shapes import Window

DEPTHS = (1, 8, 32, 64, 96, 160, 192, 384)
SIDES = (4, 7, 14, 28, 56, 112)


def main() -> None:
    """Print one table for each stride."""
    argument_parser().parse_args()
    for stride in (1, 2):
        print(f"stride {stride}", *(f"{side:>7}" for side in SIDES))
        for depth in DEPTHS:
            print(f"{depth:8}", *(f"{_cell(depth, side, stride):>7}" for side in SIDES))


def _cell(depth: int, side: int, stride: int) -> str:
    window = Window(3, stride, 1, 0, 0)
    length = (side - 1) * stride + 3
    images = np.ones((1, length, length, depth), np.float32)
    weights, sums = np.ones((3, 3, depth), np.float32), np.empty((1, side, side, depth), np.float32)
    ways = [way(weights, window, window, side, side) for way in (correlation.by_taps, correlation.by_windows)]
    taps, windows = (_seconds(partial(add_up, images, sums)) for add_up in ways)
    chosen = correlation.depthwise_sums(weights, window, window, 1, side, side)
    return f"{taps / windows:.2f}" + ("*" if "by_taps" in chosen.__qualname__ else " ")


def _seconds(run: Callable[[], None], budget: float = 0.02) -> float:
    best, end = float("inf"), time.perf_counter() + budget
    while time.perf_counter() < end or best == float("inf"):
        start = time.thread_time()
        run()
        best = min(best, time.thread_time() - start)
    return best


if __name__ == "__main__":
    main()

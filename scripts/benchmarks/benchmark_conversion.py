"""Time and memory of converting a large TFLite file, beyond reading it.

    python scripts/benchmarks/benchmark_conversion.py
    python scripts/benchmarks/benchmark_conversion.py --megabytes 400 mobilenet_v2.tflite

Files of 100 MB are made: float32 FULLY_CONNECTED layers, and int8 CONV_2D layers with a scale for each channel. Each file is
read and converted in a process of its own; files that are named are measured beside them. ``read`` is the time to read the
file's bytes, ``convert`` the time from the path to the model (the best of several), ``allocated`` the peak of what Python and
NumPy allocate while converting, ``resident`` what the process's own memory has grown by, ``made`` the constants that do not lie
in the mapped file. Exit status 1 if converting a made file takes a second more than reading it, or needs a tenth of its size.
"""

from __future__ import annotations

import argparse
import json
import mmap
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, milliseconds, one_line_errors

from nnbridge import load
from tests.tflite.files import TfliteBuilder

SECONDS, SHARE = 1.0, 0.1
ROUNDS = 5
HEAD = f"{'file':<34} {'MB':>7} {'read':>9} {'convert':>9} {'allocated':>10} {'resident':>9} {'made':>9}  verdict"


def dense(size: int) -> bytes:
    """Float32 layers of 1,792 units each, as many as fill ``size`` bytes."""
    units = 1792
    builder = TfliteBuilder()
    rng = np.random.default_rng(0)
    value = first = builder.tensor((1, units))
    for _ in range(max(1, round(size / (4 * units * units)))):
        weights = builder.constant(rng.standard_normal((units, units), np.float32))
        out = builder.tensor((1, units))
        builder.operator("FULLY_CONNECTED", [value, weights, builder.constant(np.zeros(units, np.float32))], [out], {})
        value = out
    return builder.content([first], [value])


def convolutions(size: int) -> bytes:
    """Int8 layers of 1,024 channels each with a scale for each, as many as fill ``size`` bytes."""
    channels = 1024
    builder = TfliteBuilder()
    rng = np.random.default_rng(0)
    value = first = builder.tensor((1, 4, 4, channels), "int8", scale=0.05)
    scales = rng.uniform(0.001, 0.01, channels)
    options = {"padding": 0, "stride_w": 1, "stride_h": 1}
    for _ in range(max(1, round(size / (9 * channels * channels)))):
        numbers = rng.integers(-127, 128, (channels, 3, 3, channels), np.int8)
        weights = builder.constant(numbers, scale=[float(s) for s in scales])
        bias = builder.constant(np.zeros(channels, np.int32), scale=[float(s) * 0.05 for s in scales])
        out = builder.tensor((1, 4, 4, channels), "int8", scale=0.05)
        builder.operator("CONV_2D", [value, weights, bias], [out], options, version=3)
        value = out
    return builder.content([first], [value])


MADE: dict[str, Callable[[int], bytes]] = {"dense_float32": dense, "convolutions_int8": convolutions}


def measure(path: Path) -> dict[str, float]:
    """Times in seconds and memory in bytes for one file; called in a process of its own."""
    load(path)  # what is imported on first use is not this file's cost
    before = _anonymous()
    model = load(path)
    resident = _anonymous() - before
    reading, converting = (min(milliseconds(work) for _ in range(ROUNDS)) / 1e3 for work in (path.read_bytes, lambda: load(path)))
    tracemalloc.start()
    load(path)
    allocated = tracemalloc.get_traced_memory()[1]
    made = len(model.operand_values) + sum(len(pool) for pool in model.pools if not isinstance(pool.owner, mmap.mmap))
    return {"read": reading, "convert": converting, "allocated": allocated, "resident": resident, "made": made}


def _anonymous() -> int:
    """Bytes of memory of the process's own, without mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024


def row(path: Path, checked: bool) -> tuple[str, bool]:
    """A line of the table, and whether it holds."""
    child = subprocess.run([sys.executable, __file__, "--measure", str(path)], capture_output=True, text=True, check=True)
    found, size = json.loads(child.stdout), path.stat().st_size
    holds = found["convert"] - found["read"] < SECONDS and max(found["allocated"], found["resident"]) < SHARE * size
    times = f"{found['read'] * 1e3:>6.1f} ms {found['convert'] * 1e3:>6.1f} ms"
    memory = f"{found['allocated'] / 1e6:>7.2f} MB {found['resident'] / 1e6:>6.2f} MB {found['made'] / 1e6:>6.2f} MB"
    return f"{path.name:<34} {size / 1e6:>7.1f} {times} {memory}  {('pass' if holds else 'FAIL') if checked else ''}", holds


def main() -> None:
    """Make the files, measure, print a table."""
    parser = argument_parser()
    parser.add_argument("files", nargs="*", type=Path, help="measured beside the made ones")
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    print(HEAD)
    held = True
    with tempfile.TemporaryDirectory() as folder:
        for name, make in MADE.items():
            path = Path(folder) / f"{name}.tflite"
            path.write_bytes(make(options.megabytes * 1_000_000))
            line, holds = row(path, True)
            print(line, flush=True)
            held &= holds
    for path in options.files:
        print(row(path, False)[0], flush=True)
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    with one_line_errors():
        main()

"""Time a TFLite model on nnapi-reference beside LiteRT's kernels, alternating in one run, on one thread.

    python scripts/benchmark.py mobilenet_v2_1.0_224_quant.tflite --rounds 15

Prints medians in milliseconds and ratios, and what conversion and preparation take.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from plainly import plainly
from rich.console import Console
from rich.table import Table

from nnbridge import Compilation, Execution, load
from nnbridge.compare import seeded_inputs
from nnbridge.compare.references import LiteRT

with plainly():
    from threadpoolctl import threadpool_limits


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each contender (default 15)")
    options = parser.parse_args()
    with threadpool_limits(1):
        measure(options.model, options.rounds)


def measure(path: Path, rounds: int) -> None:
    """Alternate the contenders and print their medians."""
    load(path)
    convert = _median([_timed(lambda: load(path)) for _ in range(5)])
    model = load(path)
    compilation = Compilation.create(model, [])
    prepare = _timed(compilation.finish)
    inputs = seeded_inputs(model, 0)
    contenders: dict[str, Callable[[], object]] = {"nnbridge": lambda: Execution(compilation).run(inputs)}
    for kernels in ("reference", "optimised"):
        contenders[f"LiteRT {kernels}"] = partial(LiteRT(path, kernels=kernels).run, inputs)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        run()
    for _ in range(rounds):
        for name, run in contenders.items():
            times[name].append(_timed(run))
    table = Table(title=f"{path.name}, {rounds} alternating rounds, one thread")
    for column in ("contender", "median ms", "fastest ms", "nnbridge takes"):
        table.add_column(column, justify="left" if column == "contender" else "right")
    ours = _median(times["nnbridge"])
    for name, values in times.items():
        table.add_row(name, f"{_median(values):.2f}", f"{min(values):.2f}", f"{ours / _median(values):.2f} of it")
    Console().print(table)
    Console().print(f"conversion {convert:.1f} ms (median of 5), preparation {prepare:.1f} ms")


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def _median(values: list[float]) -> float:
    return statistics.median(values)


if __name__ == "__main__":
    with plainly():
        main()

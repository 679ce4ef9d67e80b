"""Time a TFLite model on nnapi-reference and on LiteRT's kernels, alternating in one run, on one thread.

    python scripts/benchmark.py mobilenet_v2_1.0_224_quant.tflite --rounds 15

Prints medians in milliseconds and ratios, and the time of conversion and preparation.
"""

from __future__ import annotations

import statistics
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table
from script_support import alternating, argument_parser, medians, milliseconds, one_line_errors

from nnbridge import Compilation, Execution, load
from nnbridge.compare import seeded_inputs
from nnbridge.compare.references import LiteRT

with one_line_errors():
    from threadpoolctl import threadpool_limits


def main() -> None:
    """Measure and print."""
    parser = argument_parser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each contender (default 15)")
    options = parser.parse_args()
    with threadpool_limits(1):
        measure(options.model, options.rounds)


def measure(path: Path, rounds: int) -> None:
    """Alternate the contenders and print their medians."""
    load(path)
    conversion = statistics.median(milliseconds(lambda: load(path)) for _ in range(5))
    model = load(path)
    compilation = Compilation.create(model, [])
    preparation = milliseconds(compilation.finish)
    inputs = seeded_inputs(model, 0)
    contenders = {"nnbridge": lambda: Execution(compilation).run(inputs)} | {
        f"LiteRT {kernels}": partial(LiteRT(path, kernels=kernels).run, inputs) for kernels in ("reference", "optimised")
    }
    times = alternating(contenders, rounds)
    middle = medians(times)
    table = Table(title=f"{path.name}, {rounds} alternating rounds, one thread")
    for column in ("contender", "median ms", "fastest ms", "nnbridge takes"):
        table.add_column(column, justify="left" if column == "contender" else "right")
    for name, values in times.items():
        table.add_row(name, f"{middle[name]:.2f}", f"{min(values):.2f}", f"{middle['nnbridge'] / middle[name]:.2f} of it")
    Console().print(table)
    Console().print(f"conversion {conversion:.1f} ms (median of 5), preparation {preparation:.1f} ms")


if __name__ == "__main__":
    with one_line_errors():
        main()

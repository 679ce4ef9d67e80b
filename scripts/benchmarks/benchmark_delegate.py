"""Time at the delegate's border: an invoke of a delegated graph beside the same execution in nnbridge only.

python scripts/benchmarks/benchmark_delegate.py
python scripts/benchmarks/benchmark_delegate.py --repeat 5000 --rounds 1000

Graphs of one ADD over 16 to 65536 floats, in stock LiteRT behind the delegate, and the partition's own execution with
buffers bound once. Both are measured alternately in one process; medians in microseconds. ``--rounds``: interpreters that are
created with the delegate, run once and freed; the process's memory after a quarter of them and after all. Exit status 0 if the
border costs at most 30 µs everywhere and memory grows by at most 8 MB.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, medians, one_line_errors

from nnbridge import delegate
from nnbridge.bench.measure import alternating
from nnbridge.delegate.kernel import DelegateKernel

LIMIT = 30.0
"""Microseconds."""
GROWTH = 8_000_000
"""Bytes: what allocators retain of a process."""


def measured(file: Path, device: str, repeat: int) -> tuple[float, float]:
    """Microseconds of an invoke, and of the partition's execution in nnbridge."""
    from ai_edge_litert.interpreter import Interpreter

    kernels: list[DelegateKernel] = []
    created = DelegateKernel.__init__

    def watched(kernel: DelegateKernel, *arguments: Any) -> None:
        created(kernel, *arguments)
        kernels.append(kernel)

    DelegateKernel.__init__ = watched  # type: ignore[method-assign]  # to measure the delegate's own execution
    try:
        interpreter = Interpreter(str(file), experimental_delegates=[delegate.load(device)])
    finally:
        DelegateKernel.__init__ = created  # type: ignore[method-assign]
    interpreter.allocate_tensors()
    interpreter.invoke()
    (kernel,) = kernels
    found = medians(alternating({"invoke": interpreter.invoke, "execution": kernel.compute}, repeat, 60.0))
    return found["invoke"] * 1e3, found["execution"] * 1e3


def memory_after(file: Path, device: str, rounds: int) -> int:
    """Bytes of the process after so many interpreters."""
    from ai_edge_litert.interpreter import Interpreter

    for _ in range(rounds):
        interpreter = Interpreter(str(file), experimental_delegates=[delegate.load(device)])
        interpreter.allocate_tensors()
        interpreter.invoke()
        del interpreter
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    from tests.tflite.files import TfliteBuilder

    parser = argument_parser()
    parser.add_argument("--repeat", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--device", default="nnapi-sample_all")
    options = parser.parse_args()
    borders = []
    print(f"{'elements':>9} {'invoke':>9} {'execution':>9} {'border':>9}   microseconds")
    with tempfile.TemporaryDirectory() as folder:
        for elements in (16, 1024, 65536):
            builder = TfliteBuilder()
            x, y = builder.tensor((1, elements)), builder.tensor((1, elements))
            builder.operator("ADD", [x, x], [y])
            file = builder.write(Path(folder) / f"add_{elements}.tflite", [x], [y])
            invoke, execution = measured(file, options.device, options.repeat)
            borders.append(invoke - execution)
            print(f"{elements:>9} {invoke:>9.1f} {execution:>9.1f} {borders[-1]:>9.1f}")
        grown = 0
        if options.rounds:
            first = memory_after(file, options.device, options.rounds // 4)
            grown = memory_after(file, options.device, options.rounds - options.rounds // 4) - first
            print(f"{options.rounds} interpreters created and freed: {first / 1e6:.1f} MB, then {grown / 1e6:+.1f} MB")
    return 0 if max(borders) <= LIMIT and grown <= GROWTH else 1


if __name__ == "__main__":
    with one_line_errors("'.[dev]'"):
        sys.exit(main())

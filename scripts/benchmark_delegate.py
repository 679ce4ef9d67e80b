"""What the delegate's border costs: an invoke of a delegated graph beside the same execution in nnbridge alone.

python scripts/benchmark_delegate.py
python scripts/benchmark_delegate.py --repeat 5000

Graphs of one ADD over 16 to 65536 floats, in stock LiteRT behind the delegate, and the partition's own execution with
buffers bound once. Both are measured alternately in one process; medians in microseconds. Exit status 0 if the border costs at
most 30 µs everywhere.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from script_support import argument_parser, medians, one_line_errors

from nnbridge import delegate
from nnbridge.bench.measure import alternating
from nnbridge.delegate.kernel import DelegateKernel

LIMIT = 30.0
"""Microseconds."""


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


def main() -> int:
    from tests.tflite.files import TfliteBuilder

    parser = argument_parser()
    parser.add_argument("--repeat", type=int, default=2000)
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
    return 0 if max(borders) <= LIMIT else 1


if __name__ == "__main__":
    with one_line_errors("'.[dev]'"):
        sys.exit(main())

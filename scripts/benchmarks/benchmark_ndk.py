"""The cost of the C interface: one execution of a one-operation model through libneuralnetworks.so and the Python API.

    python scripts/benchmarks/benchmark_ndk.py

Both sides create an execution, set its input and output, compute and free it; they alternate in one run. The difference is the C
interface's: calls from C into Python, conversion of arguments, look-up of handles.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import medians, one_line_errors

from nnbridge import Compilation, Execution, ModelBuilder, OperandCode, OperationCode, clib, ndk
from nnbridge.bench.measure import alternating

SIZE = 64
INNER = 500


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each side (default 15)")
    options = parser.parse_args()
    builder = ModelBuilder()
    x, y = (builder.add_operand(OperandCode.TENSOR_FLOAT32, (SIZE,)) for _ in range(2))
    builder.add_operation(OperationCode.RELU, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    compilation = Compilation.create(builder.finish(), [])
    compilation.finish()
    sides = {"Python API": _python(compilation), "C library": _c(compilation)}
    times = medians(alternating({name: _repeated(side) for name, side in sides.items()}, options.rounds, 60.0))
    times = {name: time / INNER * 1e3 for name, time in times.items()}
    for name, time in times.items():
        print(f"{name}: {time:.1f} us an execution")
    print(f"the C interface: {times['C library'] - times['Python API']:.1f} us")


def _repeated(side: Callable[[], Any]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(INNER):
            side()

    return run


def _python(compilation: Compilation) -> Callable[[], Any]:
    data, out = np.ones(SIZE, np.float32), np.empty(SIZE, np.float32)

    def side() -> None:
        execution = Execution(compilation)
        execution.set_input_buffer(0, data)
        execution.set_output(0, out)
        execution.compute()

    return side


def _c(compilation: Compilation) -> Callable[[], Any]:
    library = ctypes.CDLL(str(clib.preload()))
    prefix = "ANeuralNetworksExecution_"
    create, free, compute = (getattr(library, prefix + name) for name in ("create", "free", "compute"))
    set_input, set_output = (getattr(library, prefix + name) for name in ("setInput", "setOutput"))
    compilation_handle = ctypes.c_void_p(ndk.HANDLES.add(compilation))
    data, out = np.ones(SIZE, np.float32), np.empty(SIZE, np.float32)
    source, target = (ctypes.c_void_p(a.ctypes.data) for a in (data, out))
    length, index = ctypes.c_size_t(data.nbytes), ctypes.c_int32(0)

    def side() -> None:
        execution = ctypes.c_void_p()
        create(compilation_handle, ctypes.byref(execution))
        set_input(execution, index, None, source, length)
        set_output(execution, index, None, target, length)
        if compute(execution):
            raise RuntimeError("compute failed")
        free(execution)

    return side


if __name__ == "__main__":
    with one_line_errors():
        main()

"""What the C border costs: one execution of a one-operation model through libneuralnetworks.so beside the Python API.

    python scripts/benchmark_ndk.py

Both sides make an execution, set its input and output, compute and free it; they alternate in one run. The difference is the
border's: C calls into Python, arguments turned over, handles looked up.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from script_support import one_line_errors

from nnbridge import Compilation, Execution, ModelBuilder, OperandCode, OperationCode, clib, ndk

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
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(options.rounds):
        for name, side in sides.items():
            start = time.perf_counter()
            for _ in range(INNER):
                side()
            times[name].append((time.perf_counter() - start) / INNER * 1e6)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    for name, median in medians.items():
        print(f"{name}: {median:.1f} us an execution")
    print(f"the border: {medians['C library'] - medians['Python API']:.1f} us")


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

"""What the runtime adds to a driver's own time: ``PreparedModel.execute`` beside ``Execution.compute``, alternating in one run.

    python scripts/benchmark_runtime.py mobilenet_v2_1.0_224_quant.tflite --rounds 15

Both sides compute the same model on NNAPI's CPU from the same buffers into the same buffers, on one thread; the second one
creates an execution, sets its inputs and outputs and computes. The difference is the runtime's.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from script_support import alternating, medians, one_line_errors

from nnbridge import Compilation, Execution, load
from nnbridge.compare import seeded_inputs
from nnbridge.devices.device import OutputBuffer, Request
from nnbridge.errors import InputError, Reason
from nnbridge.runtime.driver_calls import size_of
from nnbridge.runtime.states import States

with one_line_errors():
    from threadpoolctl import threadpool_limits


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each side (default 15)")
    options = parser.parse_args()
    with threadpool_limits(1):
        driver, runtime = measure(options.model, options.rounds)
    print(f"driver alone {driver:.3f} ms, through the runtime {runtime:.3f} ms: {100 * (runtime / driver - 1):+.2f} %")


def measure(path: Path, rounds: int) -> tuple[float, float]:
    """Medians in milliseconds of the driver alone and through the runtime."""
    model = load(path)
    compilation = Compilation.create(model, [])
    compilation.finish()
    plan = compilation.plan
    if not plan.simple:
        raise InputError(Reason("a model that one device runs whole", f"{len(plan.steps)} steps", str(path)))
    given = {**seeded_inputs(model, 0), **States(model).values}
    main = model.main
    inputs = [np.ascontiguousarray(given[main.operands[i].name]) for i in main.inputs]
    operands = [main.operands[i] for i in main.outputs]
    sizes = [size_of(operand, operand.dims) for operand in operands]
    outputs = [np.empty(size, np.uint8) for size in sizes if size is not None]
    buffers = tuple(OutputBuffer(data, operand.dims) for data, operand in zip(outputs, operands, strict=True))

    def driver() -> None:
        plan.prepared[0].execute(Request(tuple(inputs), buffers))

    def runtime() -> None:
        execution = Execution(compilation)
        for i, value in enumerate(inputs):
            execution.set_input_buffer(i, value)
        for i, data in enumerate(outputs):
            execution.set_output(i, data)
        execution.compute()

    times = medians(alternating({"driver": driver, "runtime": runtime}, rounds))
    return times["driver"], times["runtime"]


if __name__ == "__main__":
    with one_line_errors():
        main()

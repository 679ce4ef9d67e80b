"""Time that the runtime adds to a driver's own: ``PreparedModel.execute`` beside ``Execution.compute``, alternating in one run.

    python scripts/benchmarks/benchmark_runtime.py mobilenet_v2_1.0_224_quant.tflite --rounds 15

Both sides compute the same model on NNAPI's CPU from the same buffers into the same buffers, on one thread; the second one
creates an execution, sets its inputs and outputs and computes. The difference is the runtime's.

    python scripts/benchmarks/benchmark_runtime.py --growth

Repeated computations on bound arrays as a batch grows (convolutions of 28 x 28 x 64 values) and as a chain of sums of 64 values
grows: time by image and by operation.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import medians, one_line_errors

from nnbridge import Compilation, Execution, load
from nnbridge.bench.contenders import bound
from nnbridge.bench.measure import alternating
from nnbridge.builder import ModelBuilder
from nnbridge.compare import seeded_inputs
from nnbridge.devices.device import OutputBuffer, Request
from nnbridge.errors import InputError, Reason
from nnbridge.model import Array, Model
from nnbridge.runtime.driver_calls import size_of
from nnbridge.runtime.states import States
from nnbridge.types import OperandCode, OperationCode

with one_line_errors():
    from threadpoolctl import threadpool_limits


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--growth", action="store_true", help="time as batches and chains of operations grow")
    parser.add_argument("--rounds", type=int, default=15, help="runs of each side (default 15)")
    options = parser.parse_args()
    if options.model is None and not options.growth:
        parser.error("a model, or --growth")
    if options.growth:
        growth(options.rounds)
    if options.model is None:
        return
    with threadpool_limits(1):
        driver, runtime = measure(options.model, options.rounds)
    print(f"driver alone {driver:.3f} ms, through the runtime {runtime:.3f} ms: {100 * (runtime / driver - 1):+.2f} %")


def growth(rounds: int) -> None:
    """Print medians by batch and by number of operations."""
    for unit, sizes, made in (("image", (1, 2, 4, 8, 16, 32), _images), ("operation", (1, 4, 16, 64, 256), _chain)):
        runs = {}
        for size in sizes:
            model = made(size)
            runs[str(size)] = bound(model, seeded_inputs(model, 0), "auto", 1)
        for name, milliseconds in medians(alternating(runs, rounds, 60.0)).items():
            print(f"{name:>4} {unit}s: {1e3 * milliseconds:9.2f} µs, {1e3 * milliseconds / int(name):7.2f} µs each")


def _images(batch: int) -> Model:
    """Two convolutions of a batch of images."""
    builder = ModelBuilder("images")
    value = first = builder.add_operand(OperandCode.TENSOR_FLOAT32, (batch, 28, 28, 64))
    scalars = [_constant(builder, OperandCode.INT32, np.array(n, np.int32)) for n in (1, 1, 1, 0)]
    for _ in range(2):
        filter_ = _constant(builder, OperandCode.TENSOR_FLOAT32, np.full((64, 1, 1, 64), 0.01, np.float32))
        bias = _constant(builder, OperandCode.TENSOR_FLOAT32, np.zeros(64, np.float32))
        result = builder.add_operand(OperandCode.TENSOR_FLOAT32, (batch, 28, 28, 64))
        builder.add_operation(OperationCode.CONV_2D, [value, filter_, bias, *scalars], [result])
        value = result
    return _finished(builder, first, value)


def _chain(length: int) -> Model:
    """Sums one after the other."""
    builder = ModelBuilder("chain")
    value = first = builder.add_operand(OperandCode.TENSOR_FLOAT32, (1, 64))
    none = _constant(builder, OperandCode.INT32, np.array(0, np.int32))
    for _ in range(length):
        result = builder.add_operand(OperandCode.TENSOR_FLOAT32, (1, 64))
        builder.add_operation(OperationCode.ADD, [value, first, none], [result])
        value = result
    return _finished(builder, first, value)


def _constant(builder: ModelBuilder, kind: OperandCode, value: Array) -> int:
    index = builder.add_operand(kind, value.shape)
    builder.set_operand_value(index, value)
    return index


def _finished(builder: ModelBuilder, first: int, last: int) -> Model:
    builder.identify_inputs_and_outputs([first], [last])
    return builder.finish()


def measure(path: Path, rounds: int) -> tuple[float, float]:
    """Medians in milliseconds of the driver alone and through the runtime."""
    model = load(path)
    compilation = Compilation.create(model, [])
    compilation.finish()
    plan = compilation.plan
    if not plan.simple:
        raise InputError(Reason("a model that one device runs whole", f"{len(plan.steps)} steps", str(path)))
    values = {**seeded_inputs(model, 0), **States(model).values}
    main = model.main
    inputs = [np.ascontiguousarray(values[main.operands[i].name]) for i in main.inputs]
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

    times = medians(alternating({"driver": driver, "runtime": runtime}, rounds, 60.0))
    return times["driver"], times["runtime"]


if __name__ == "__main__":
    with one_line_errors():
        main()

"""LiteRT's MediaTek route with an emulated device as the NPU: compiled by LiteRT's compiler, run by LiteRT's runtime.

python examples/neuron.py models/digits_int8.tflite nnapi-sample_quant

Prints the partitions, and whether LiteRT's CompiledModel and nnbridge answer the same. Needs a C compiler, Linux and
`pip install '.[neuron,litert]'`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.environment import Environment
from ai_edge_litert.hardware_accelerator import HardwareAccelerator

from nnbridge import Compilation, Execution, neuron
from nnbridge.file import load
from nnbridge.neuron.compiling import compile_file


def main(path: str, device: str) -> None:
    """Compile a file and run it twice."""
    with tempfile.TemporaryDirectory() as folder:
        compiled = compile_file(Path(path), Path(folder) / "compiled.tflite", [device])
        for partition in compiled.partitions:
            print(f"{partition.name}: {', '.join(partition.operators)}")
        libraries = Path(folder) / "libraries"
        neuron.build(libraries)
        environment = Environment.create(dispatch_library_path=str(libraries))
        accelerators = HardwareAccelerator.NPU | HardwareAccelerator.CPU
        model = CompiledModel.from_file(str(compiled.path), hardware_accel=accelerators, environment=environment)
        compilation = Compilation.create(load(compiled.path), [device])
    compilation.finish()
    execution = Execution(compilation)
    main_graph = compilation.model.main
    (operand,) = (main_graph.operands[i] for i in main_graph.inputs)
    name = operand.name
    x = np.random.default_rng(0).integers(0, 100, operand.dims).astype(DTYPES[operand.type])
    (ours,) = execution.run({name: x}).values()
    inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
    inputs[0].write(x)
    model.run_by_index(0, inputs, outputs)
    theirs = outputs[0].read(ours.size, ours.dtype.type)
    print("equal" if theirs.tobytes() == ours.tobytes() else "different")


DTYPES = {3: np.float32, 5: np.uint8, 14: np.int8}

if __name__ == "__main__":
    main(*sys.argv[1:])

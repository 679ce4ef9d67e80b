"""LiteRT's CompiledModel as a reference: files of which LiteRT's MediaTek compiler has compiled parts for nnbridge's devices.

TFLite's interpreter does not know their operator DISPATCH_OP. Partitions run on the devices that they were compiled for, by the
dispatch library; everything else by LiteRT's own kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnbridge.compare.arrays import Array
from nnbridge.compare.litert import LiteRT, NamedTensors
from nnbridge.errors import InputError, PackageError, Reason
from nnbridge.file import load
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution

KERNELS = {"reference": "REFERENCE", "optimised": "BUILTIN", "xnnpack": "XNNPACK"}
"""nnbridge's names for LiteRT's sets of kernels → LiteRT's own; the first two compute alike in 2.3.0."""


class CompiledLiteRT(LiteRT):
    """A compiled file in LiteRT; it has no state, and shows no tensors but its outputs."""

    def __init__(self, path: Path, kernels: str = "reference") -> None:
        try:
            from ai_edge_litert.compiled_model import CompiledModel
            from ai_edge_litert.cpu_kernel_mode import CpuKernelMode
            from ai_edge_litert.cpu_options import CpuOptions
            from ai_edge_litert.environment import Environment
            from ai_edge_litert.hardware_accelerator import HardwareAccelerator
            from ai_edge_litert.options import Options
        except ImportError as error:
            raise PackageError.needed("LiteRT with CompiledModel", "ai-edge-litert", error, file=str(path)) from error
        from nnbridge import neuron

        self._model = load(path)
        mode = CpuKernelMode[KERNELS[kernels]]
        accelerators = HardwareAccelerator.NPU | HardwareAccelerator.CPU
        options = Options(hardware_accelerators=accelerators, cpu_options=CpuOptions(kernel_mode=mode))
        environment = Environment.create(dispatch_library_path=str(neuron.dispatch_library().cached().parent))
        try:
            self._compiled: Any = CompiledModel.from_file(str(path), environment=environment, options=options)
            # Without the question LiteRT does not learn the dimensions of outputs before it runs.
            self._compiled.get_output_tensor_details(next(iter(self._compiled.get_signature_list())))
        except (RuntimeError, ValueError) as error:
            raise InputError(Reason("a compiled file that LiteRT runs", str(error), file=str(path))) from error

    def reset(self) -> None:
        """There is nothing to reset."""

    def tensors(self) -> NamedTensors:
        """None."""
        return NamedTensors()

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Outputs in the file's order; inputs in the file's order, whatever their names."""
        from ai_edge_litert.tensor_buffer import TensorBuffer

        arrays = list(inputs.values())
        try:
            read = self._compiled.create_input_buffers(0)
            for buffer, array in zip(read, arrays, strict=True):
                buffer.write(array.view(np.bool_) if array.dtype == np.bool_ else array)
            # LiteRT's own buffers are of the dimensions that the file declares, and it would write beyond them.
            empty = self._zeros(arrays)
            written = [TensorBuffer.create_from_host_memory(array) for array in empty]
            self._compiled.run_by_index(0, read, written)
            return [b.read(a.size, a.dtype.type).reshape(a.shape) for b, a in zip(written, empty, strict=True)]
        except (RuntimeError, ValueError) as error:
            raise InputError(Reason("inputs that LiteRT runs", str(error), operand="reference litert")) from error

    def _zeros(self, inputs: Sequence[Array]) -> list[Array]:
        """Zeros for the outputs: of the dimensions that nnbridge computes, some of which only a run knows."""
        compilation = Compilation.create(self._model, [])
        compilation.finish()
        return [np.zeros_like(array) for array in Execution(compilation).run(inputs).values()]

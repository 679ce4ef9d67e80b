"""LiteRT's MediaTek compiler and its runtime, where they are installed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import pytest

from nnbridge import Compilation, Execution, neuron
from nnbridge.compare.samples import seeded_inputs
from nnbridge.errors import InputError
from nnbridge.file import load
from nnbridge.model import Model

Array = npt.NDArray[Any]
CPU = "nnapi-reference"


def needs() -> None:
    """Skip a module of tests where something is missing."""
    pytest.importorskip("cffi")
    pytest.importorskip("ai_edge_litert.compiled_model")
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("there is no C compiler on this machine", allow_module_level=True)
    from nnbridge.neuron.compiling import litert_folder

    try:
        litert_folder()
    except InputError as error:
        pytest.skip(f"needs LiteRT's MediaTek compiler: {error}", allow_module_level=True)


def drawn(model: Model) -> list[Array]:
    """Random inputs."""
    return list(seeded_inputs(model, 0).values())


def ours(path: Path, inputs: Sequence[Array], device: str = CPU) -> list[Array]:
    """A file's outputs in nnbridge."""
    compilation = Compilation.create(load(path), [device])
    compilation.finish()
    return list(Execution(compilation).run(inputs).values())


def litert(path: Path, inputs: Sequence[Array], like: Sequence[Array], **settings: str) -> list[Array]:
    """A file's outputs in LiteRT's runtime with nnbridge's dispatch library."""
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.environment import Environment
    from ai_edge_litert.hardware_accelerator import HardwareAccelerator

    environment = Environment.create(dispatch_library_path=str(neuron.dispatch_library().cached().parent), **settings)
    accelerators = HardwareAccelerator.NPU | HardwareAccelerator.CPU
    model = CompiledModel.from_file(str(path), hardware_accel=accelerators, environment=environment)
    given, written = model.create_input_buffers(0), model.create_output_buffers(0)
    for buffer, array in zip(given, inputs, strict=True):
        buffer.write(array)
    model.run_by_index(0, given, written)
    return [b.read(a.size, a.dtype.type).reshape(a.shape) for b, a in zip(written, like, strict=True)]

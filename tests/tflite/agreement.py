"""Runs a file through nnbridge and through LiteRT's reference kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from nnbridge import devices
from nnbridge.compare import seeded_inputs
from nnbridge.converters import ConversionOptions
from nnbridge.converters.inspection import Mapped
from nnbridge.file import ModelFile
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.states import States

Array = npt.NDArray[Any]


def converted(path: Path, **options: Any) -> tuple[Model, tuple[Mapped, ...]]:
    """The model, and what became of each operator that is not in a called subgraph."""
    model, placements = ModelFile(path, ConversionOptions(**options)).converted
    return model, tuple(p for p in placements if p.subgraph == placements[0].subgraph)


def run(model: Model, inputs: dict[str, Array], calls: int = 1) -> list[Array]:
    """The model's outputs on NNAPI's CPU and the host, after so many calls that go on from each other."""
    compilation = Compilation.create_for_devices(model, [devices.cpu()])
    compilation.finish()
    states = States(model)
    for _ in range(calls):
        answers = Execution(compilation, states).run(inputs)
    return list(answers.values())


def litert(path: Path, inputs: list[Array], kernels: str = "BUILTIN_REF", calls: int = 1) -> list[Array]:
    """LiteRT's outputs, by default with its reference kernels, after so many calls without a reset."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    try:
        made = _interpreter(interpreter, path, kernels)
    except ValueError:
        # A few operators have no reference kernel of their own.
        made = _interpreter(interpreter, path, "BUILTIN_WITHOUT_DEFAULT_DELEGATES")
    made.allocate_tensors()
    for _ in range(calls):
        for detail, value in zip(made.get_input_details(), inputs, strict=True):
            made.set_tensor(detail["index"], value.reshape(detail["shape"]))
        made.invoke()
    return [np.array(made.get_tensor(d["index"])) for d in made.get_output_details()]


def _interpreter(module: Any, path: Path, kernels: str) -> Any:
    resolver = getattr(module.OpResolverType, kernels)
    return module.Interpreter(model_path=str(path), experimental_op_resolver_type=resolver, num_threads=1)


def differences(
    path: Path, seed: int = 0, kernels: str = "BUILTIN_REF", calls: int = 1, **options: Any
) -> tuple[list[float], tuple[Mapped, ...]]:
    """The largest difference of each output: in steps for integers, as a share of the range for floats."""
    model, placements = converted(path, **options)
    inputs = seeded_inputs(model, seed)
    expected = litert(path, list(inputs.values()), kernels, calls)
    got = run(model, inputs, calls)
    return [_difference(a, b) for a, b in zip(got, expected, strict=True)], placements


def _difference(got: Array, expected: Array) -> float:
    assert got.size == expected.size, f"{got.shape} for {expected.shape}"
    assert got.dtype.kind == expected.dtype.kind, f"{got.dtype} for {expected.dtype}"
    if got.size == 0:
        return 0.0
    a, b = got.reshape(-1).astype(np.complex128), expected.reshape(-1).astype(np.complex128)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    largest = float(np.abs(np.where(same, 0, a - b)).max())
    if expected.dtype.kind in "iub":
        return largest
    finite = b[np.isfinite(b)]
    span = float(np.abs(finite.max() - finite.min())) if finite.size else 0.0
    return largest / (span or float(np.abs(finite).max(initial=0.0)) or 1.0)

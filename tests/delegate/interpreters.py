"""Small files, and LiteRT's interpreter with the delegate."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from nnbridge import delegate
from nnbridge.devices import Device
from tests.tflite.files import TfliteBuilder

Array = npt.NDArray[Any]
SHAPE = (2, 3)


def needs() -> None:
    """Skip a module of tests where something is missing."""
    pytest.importorskip("cffi")
    pytest.importorskip("ai_edge_litert.interpreter")
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("there is no C compiler on this machine", allow_module_level=True)


def graph(folder: Path, *operators: str, shape: tuple[int, ...] = SHAPE) -> Path:
    """A chain of unary operators from x to y."""
    builder = TfliteBuilder()
    first = at = builder.tensor(shape, name="x")
    for name in operators:
        out = builder.tensor(shape, name=f"{name.lower()} {len(builder.tensors)}")
        builder.operator(name, [at], [out], {})
        at = out
    return builder.write(folder / "m.tflite", [first], [at])


def accumulator(folder: Path) -> Path:
    """A cell that adds its input to its state."""
    builder = TfliteBuilder()
    data, out = builder.tensor((1, 1), name="x"), builder.tensor((1, 1), name="y")
    one, zero = builder.constant([[1.0]], "float32"), builder.constant([0.0], "float32")
    state = builder.tensor((1, 1), is_variable=True, name="state")
    builder.operator("RNN", [data, one, one, zero, state], [out], {"fused_activation_function": 0})
    return builder.write(folder / "m.tflite", [data], [out])


def interpreter(path: Path, device: str | Device = "nnapi-sample_all", **options: object) -> Any:
    """An interpreter with its own reference kernels for what is not delegated; tensors allocated."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    delegates, kernels = [delegate.load(device, **options)], OpResolverType.BUILTIN_REF
    made = Interpreter(str(path), experimental_delegates=delegates, experimental_op_resolver_type=kernels)
    made.allocate_tensors()
    return made


def answer(of: Any, *inputs: npt.ArrayLike) -> Array:
    """The first output."""
    for detail, value in zip(of.get_input_details(), inputs, strict=True):
        of.set_tensor(detail["index"], np.asarray(value, detail["dtype"]))
    of.invoke()
    found: Array = of.get_tensor(of.get_output_details()[0]["index"])
    return found

"""float64 by choice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnbridge.compare import compare, seeded_samples
from nnbridge.compare.onnx_runtime import OnnxRuntime
from nnbridge.converters import ConversionOptions
from nnbridge.errors import ConversionError
from nnbridge.file import ModelFile
from nnbridge.runtime.compilation import Compilation
from nnbridge.types import OperandCode

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
helper = onnx.helper
DOUBLE, FLOAT = onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT


def network(folder: Path, factor: float = 0.1, kind: int = DOUBLE) -> Path:
    """Products with a float64 constant, between casts for float32 inputs."""
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=DOUBLE),
        helper.make_node("Mul", ["a", "w"], ["b"]),
        helper.make_node("Cast", ["b"], ["y"], to=kind),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", kind, [2, 3])],
        [helper.make_tensor_value_info("y", kind, [2, 3])],
        [onnx.numpy_helper.from_array(np.full((3,), factor), "w")],
    )
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def test_float64_is_the_hosts_unless_something_else_is_chosen(tmp_path: Path) -> None:
    _, mapped = ModelFile(network(tmp_path, kind=FLOAT), ConversionOptions()).converted
    assert [m.mapping for m in mapped] == ["host"] * 3


@pytest.mark.parametrize("kind", [FLOAT, DOUBLE])
def test_narrowed_float64_is_float32_on_nnapi(kind: int, tmp_path: Path) -> None:
    path = network(tmp_path, kind=kind)
    model, mapped = ModelFile(path, ConversionOptions(float64="narrow")).converted
    assert "host" not in {m.mapping for m in mapped}
    assert model.main.operands[model.main.inputs[0]].type == OperandCode.TENSOR_FLOAT32
    compilation = Compilation.create(model, [])
    compilation.finish()
    assert compare(compilation, "onnxruntime", seeded_samples(model, OnnxRuntime(path), [0, 1])).passed


def test_refused_float64_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"no float64.*'w'"):
        _ = ModelFile(network(tmp_path, kind=FLOAT), ConversionOptions(float64="refuse")).converted


def test_a_constant_that_does_not_fit_into_float32_is_not_narrowed(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"1e\+200"):
        _ = ModelFile(network(tmp_path, 1e200), ConversionOptions(float64="narrow")).converted


def test_another_choice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="float64: expected host, narrow, refuse, found double"):
        _ = ModelFile(network(tmp_path), ConversionOptions(float64="double")).converted

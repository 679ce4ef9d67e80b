"""ONNX files: convolutional networks against ONNX Runtime, and files that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.compare import compare, seeded_samples
from nnbridge.errors import ConversionError
from nnbridge.loading import load
from nnbridge.references import OnnxRuntime
from nnbridge.runtime.compilation import Compilation
from tests.conftest import MODELS

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT


def model(folder: Path, nodes: list[Any], dims: list[int], constants: dict[str, np.ndarray], opset: int = 17) -> Path:
    """A file with one input x and one output y."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, dims)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path = folder / "model.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(made), str(path))
    return path


def agrees(path: Path) -> bool:
    """True if nnbridge and ONNX Runtime agree on seeded inputs."""
    compilation = Compilation.create(load(path), [])
    compilation.finish()
    return compare(compilation, "onnxruntime", seeded_samples(compilation.model, OnnxRuntime(path), [0, 1])).passed


def test_the_digit_classifier_agrees_with_onnx_runtime() -> None:
    assert agrees(MODELS / "digits_float32.onnx")


def test_a_quantised_digit_classifier_has_quantised_tensors_between_its_float_operations() -> None:
    kinds = {operation.name.split()[1] for operation in load(MODELS / "digits_qdq.onnx").main.operations}
    assert {"QuantizeLinear", "DequantizeLinear", "Conv"} <= kinds


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("attributes", [{"pads": [1, 0, 2, 1]}, {"auto_pad": "SAME_LOWER"}, {"strides": [2, 1]}])
def test_convolutions(groups: int, attributes: dict[str, Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.normal(size=(4, 4 // groups, 3, 3)).astype(np.float32),
        "b": rng.normal(size=4).astype(np.float32),
    }
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], group=groups, **attributes)
    assert agrees(model(tmp_path, [node], [1, 4, 7, 6], constants))


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("Relu", {}),
        ("Sigmoid", {}),
        ("Tanh", {}),
        ("Softmax", {"axis": 1}),
        ("Transpose", {"perm": [0, 2, 3, 1]}),
        ("Flatten", {}),
        ("GlobalAveragePool", {}),
        ("MaxPool", {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [0, 1, 1, 1]}),
        ("AveragePool", {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0]}),
    ],
)
def test_operators_of_one_input(kind: str, attributes: dict[str, Any], tmp_path: Path) -> None:
    assert agrees(model(tmp_path, [helper.make_node(kind, ["x"], ["y"], **attributes)], [1, 4, 6, 6], {}))


@pytest.mark.parametrize("bounds", [(0, 6), (-1, 1), (-0.5, 0.25), (0, None), (None, 0.5)])
def test_clip_between_any_bounds(bounds: tuple[float | None, float | None], tmp_path: Path) -> None:
    constants = {name: np.float32(value) for name, value in zip(("low", "high"), bounds, strict=True) if value is not None}
    names = [name if name in constants else "" for name in ("low", "high")]
    arrays = {name: np.array(value, np.float32) for name, value in constants.items()}
    assert agrees(model(tmp_path, [helper.make_node("Clip", ["x", *names], ["y"])], [1, 4, 3, 3], arrays))


def test_gemm_with_factors(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    constants = {"w": rng.normal(size=(5, 3)).astype(np.float32), "b": rng.normal(size=3).astype(np.float32)}
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], alpha=0.5, beta=2.0)
    assert agrees(model(tmp_path, [node], [2, 5], constants))


def test_an_operator_that_cannot_be_converted_is_named(tmp_path: Path) -> None:
    path = model(tmp_path, [helper.make_node("Erf", ["x"], ["y"], name="gelu")], [1, 4], {})
    with pytest.raises(ConversionError, match="node 0 Erf 'gelu'"):
        load(path)


def test_an_old_opset_is_refused(tmp_path: Path) -> None:
    path = model(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], [1, 4], {}, opset=6)
    with pytest.raises(ConversionError, match="opset 7 or later, found 6"):
        load(path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    content = (MODELS / "digits_float32.onnx").read_bytes()
    path = tmp_path / "half.onnx"
    for length in range(0, len(content), 997):
        path.write_bytes(content[:length])
        with pytest.raises(ConversionError, match=r"half\.onnx"):
            load(path)

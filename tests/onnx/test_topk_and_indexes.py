"""Selections, indexes of 64 bits and sums of products on NNAPI, beside ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.compare.onnx_runtime import OnnxRuntime
from nnbridge.converters import ConversionOptions
from nnbridge.errors import NnapiError
from nnbridge.file import ModelFile
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from tests.conftest import requires_recent_onnx_runtime

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
helper = onnx.helper
make = helper.make_node
FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
RNG = np.random.default_rng(2)


def saved(
    folder: Path, nodes: list[Any], inputs: dict[str, tuple[int, list[int]]], constants: dict[str, Any], outputs: dict[str, int]
) -> Path:
    """A file with outputs of unknown shapes but known ranks."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "model.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(made), str(path))
    return path


def hosts_and_answers(path: Path, inputs: dict[str, np.ndarray]) -> tuple[list[str], list[np.ndarray], list[np.ndarray]]:
    """Nodes on the host, and the answers of nnbridge and of ONNX Runtime."""
    model, mapped = ModelFile(path, ConversionOptions()).converted
    compilation = Compilation.create(model, [])
    compilation.finish()
    found = list(Execution(compilation).run(list(inputs.values())).values())
    return [m.operator for m in mapped if m.mapping == "host"], found, OnnxRuntime(path).run(inputs)


X = {"x": (FLOAT, [2, 3, 4])}
CASES: dict[str, tuple[Any, dict[str, Any], dict[str, int]]] = {
    "argmax": (make("ArgMax", ["x"], ["y"], axis=1), {}, {"y": INT64}),
    "argmin": (make("ArgMin", ["x"], ["y"], axis=-1, keepdims=0), {}, {"y": INT64}),
    "largest": (make("TopK", ["x", "k"], ["v", "y"]), {"k": np.array([2])}, {"v": FLOAT, "y": INT64}),
    "smallest": (make("TopK", ["x", "k"], ["v", "y"], largest=0), {"k": np.array([3])}, {"v": FLOAT, "y": INT64}),
    "elements": (make("GatherElements", ["x", "i"], ["y"], axis=2), {"i": RNG.integers(-4, 4, (2, 3, 2))}, {"y": FLOAT}),
    "tuples": (make("GatherND", ["x", "i"], ["y"]), {"i": np.array([[0, -1], [1, 0]])}, {"y": FLOAT}),
    "batches": (make("GatherND", ["x", "i"], ["y"], batch_dims=1), {"i": np.array([[2], [-3]])}, {"y": FLOAT}),
    "scatter": (
        make("ScatterElements", ["x", "i", "u"], ["y"], axis=1),
        {"i": np.array([[[0, 1, 2, -1]], [[2, 2, 0, 0]]]), "u": RNG.normal(size=(2, 1, 4)).astype(np.float32)},
        {"y": FLOAT},
    ),
    "scatter tuples": (
        make("ScatterND", ["x", "i", "u"], ["y"]),
        {"i": np.array([[1, 2], [0, 0]]), "u": RNG.normal(size=(2, 4)).astype(np.float32)},
        {"y": FLOAT},
    ),
    "upper": (make("Trilu", ["x", "k"], ["y"]), {"k": np.array(1)}, {"y": FLOAT}),
    "lower": (make("Trilu", ["x"], ["y"], upper=0), {}, {"y": FLOAT}),
    "where": (
        make("Where", ["c", "x", "o"], ["y"]),
        {"c": RNG.integers(0, 2, (3, 1)).astype(bool), "o": np.float32(7)},
        {"y": FLOAT},
    ),
    "trace": (make("Einsum", ["x"], ["y"], equation="bij->jb"), {}, {"y": FLOAT}),
    "products": (
        make("Einsum", ["x", "w"], ["y"], equation="bij,kj->bki"),
        {"w": RNG.normal(size=(5, 4)).astype(np.float32)},
        {"y": FLOAT},
    ),
    "implicit": (
        make("Einsum", ["x", "w"], ["y"], equation="bij,bjk"),
        {"w": RNG.normal(size=(2, 4, 5)).astype(np.float32)},
        {"y": FLOAT},
    ),
    "inner": (
        make("Einsum", ["x", "w"], ["y"], equation="bij,bkj->bi"),
        {"w": RNG.normal(size=(2, 5, 4)).astype(np.float32)},
        {"y": FLOAT},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_selection_stays_on_nnapi(name: str, tmp_path: Path) -> None:
    if name == "trace":
        requires_recent_onnx_runtime()
    node, constants, outputs = CASES[name]
    path = saved(tmp_path, [node], X, constants, outputs)
    hosts, found, expected = hosts_and_answers(path, {"x": RNG.normal(size=(2, 3, 4)).astype(np.float32)})
    assert hosts == []
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def embedding(folder: Path) -> Path:
    """Rows of a table by computed indexes, and where an index is not 0."""
    nodes = [
        make("Unsqueeze", ["i", "a"], ["u"]),
        make("Gather", ["t", "i"], ["y"]),
        make("Equal", ["u", "z"], ["e"]),
        make("Cast", ["e"], ["m"], to=FLOAT),
    ]
    constants = {"t": RNG.normal(size=(10, 4)).astype(np.float32), "a": np.array([1]), "z": np.array(0)}
    return saved(folder, nodes, {"i": (INT64, [2, 3])}, constants, {"y": FLOAT, "m": FLOAT})


def test_indexes_of_64_bits_are_narrowed_once(tmp_path: Path) -> None:
    path = embedding(tmp_path)
    model, _ = ModelFile(path, ConversionOptions()).converted
    hosts, found, expected = hosts_and_answers(path, {"i": np.array([[0, -1, 3], [9, -10, 5]])})
    assert hosts == []
    assert [operation.name for operation in model.main.operations if operation.mapping == "host"] == ["Cast i"]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_index_that_does_not_fit_into_32_bits_is_refused(tmp_path: Path) -> None:
    compilation = Compilation.create(ModelFile(embedding(tmp_path), ConversionOptions()).converted[0], [])
    compilation.finish()
    with pytest.raises(NnapiError, match="32 bits"):
        Execution(compilation).run([np.array([[1 << 32, 0, 0], [0, 0, 0]])])


def test_arithmetic_of_64_bits_is_the_hosts(tmp_path: Path) -> None:
    path = saved(tmp_path, [make("Mul", ["i", "i"], ["y"])], {"i": (INT64, [3])}, {}, {"y": INT64})
    hosts, found, _ = hosts_and_answers(path, {"i": np.array([1 << 20, 2, -3])})
    assert hosts == ["Mul"]
    assert found[0].tolist() == [1 << 40, 4, 9]


def test_booleans_are_repeated_as_they_are(tmp_path: Path) -> None:
    inputs = {"c": (BOOL, [3, 1]), "x": (FLOAT, [2, 3, 4])}
    path = saved(tmp_path, [make("Where", ["c", "x", "o"], ["y"])], inputs, {"o": np.float32(7)}, {"y": FLOAT})
    given = {"c": np.array([[True], [False], [True]]), "x": RNG.normal(size=(2, 3, 4)).astype(np.float32)}
    hosts, found, expected = hosts_and_answers(path, given)
    assert hosts == []
    np.testing.assert_array_equal(found[0], expected[0])

"""Constants that are computed at conversion: large ones too, as ONNX Runtime's optimiser folds them before its provider looks."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.converters import ConversionOptions
from nnbridge.file import ModelFile

onnx = pytest.importorskip("onnx")
make, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
ROWS = 1 << 16
"""Times 80 columns: above the limit for results that the file does not hold."""


def write(folder: Path, nodes: list[Any], constants: dict[str, np.ndarray]) -> Path:
    """A file that looks rows of a table ``t`` up, which nodes compute of constants."""
    graph = onnx.helper.make_graph(
        [*nodes, make("Gather", ["t", "ids"], ["y"])],
        "embedding",
        [info("ids", INT64, [1, 2])],
        [info("y", FLOAT, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    path = folder / "embedding.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


STORED = np.zeros((ROWS, 80), np.int8)
TABLE = np.zeros((ROWS, 80), np.float32)
PATTERNS: dict[str, tuple[list[Any], dict[str, np.ndarray]]] = {
    "integers beside a scale": (
        [make("Cast", ["q"], ["f"], to=FLOAT), make("Mul", ["f", "s"], ["t"])],
        {"q": STORED, "s": np.ones((ROWS, 1), np.float32)},
    ),
    "integers minus a zero point": (
        [make("Cast", ["q"], ["f"], to=FLOAT), make("Sub", ["f", "z"], ["t"])], {"q": STORED, "z": np.float32([3])},
    ),
    "a transposed table": ([make("Transpose", ["w"], ["t"])], {"w": TABLE.T.copy()}),
    "a table in another shape": ([make("Reshape", ["w", "s"], ["t"])], {"w": TABLE.ravel(), "s": np.array([ROWS, 80])}),
    "two tables as one": ([make("Concat", ["w", "v"], ["t"], axis=1)], {"w": TABLE[:, :70], "v": TABLE[:, :10]}),
    "a part of a table": (
        [make("Slice", ["w", "b", "e"], ["t"])], {"w": TABLE, "b": np.array([1]), "e": np.array([ROWS])},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "constants"), PATTERNS.values(), ids=PATTERNS)
def test_tables_that_the_file_computes_itself_are_no_operators(nodes: list[Any], constants: Any, tmp_path: Path) -> None:
    path = write(tmp_path, nodes, constants)
    assert [one.mapping for one in ModelFile(path, ConversionOptions(mapping="provider")).mapped[:-1]] == ["folded"] * len(nodes)
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(tmp_path / "optimised.onnx"), 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    assert [node.op_type for node in onnx.load(str(tmp_path / "optimised.onnx")).graph.node] == ["Gather"]


def test_a_small_file_cannot_ask_for_a_large_constant(tmp_path: Path) -> None:
    path = write(tmp_path, [make("Expand", ["w", "s"], ["t"])], {"w": np.ones((1, 80), np.float32), "s": np.array([ROWS, 80])})
    assert ModelFile(path, ConversionOptions(mapping="provider")).mapped[0].mapping == "host"


def test_what_large_constants_are_made_into_is_bounded_in_all(tmp_path: Path) -> None:
    names = ["w", *(f"t{i}" for i in range(5)), "t"]
    nodes = [make("Neg", [before], [after]) for before, after in itertools.pairwise(names)]
    outcomes = [
        one.mapping for one in ModelFile(write(tmp_path, nodes, {"w": TABLE}), ConversionOptions(mapping="provider")).mapped
    ]
    assert outcomes[:3] == ["folded"] * 3
    assert outcomes[3] == "provider"


def test_weights_that_are_dequantised_stay_as_they_are_stored(tmp_path: Path) -> None:
    path = write(tmp_path, [make("DequantizeLinear", ["q", "s"], ["t"])], {"q": STORED, "s": np.float32(0.1)})
    assert ModelFile(path, ConversionOptions(mapping="provider")).mapped[0].mapping == "host"

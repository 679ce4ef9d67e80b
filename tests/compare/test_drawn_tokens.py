"""Inputs that are drawn: floats that are tokens are whole numbers, as indexes below 0 are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.compare import seeded_inputs
from nnbridge.converters import ConversionOptions
from nnbridge.file import load

onnx = pytest.importorskip("onnx")
helper, FLOAT, INT32, INT64 = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.INT32, onnx.TensorProto.INT64


def drawn(path: Path, nodes: list[Any], mapping: str, dims: list[Any]) -> np.ndarray:
    table = onnx.numpy_helper.from_array(np.ones((43, 4), np.float32), "table")
    one = onnx.numpy_helper.from_array(np.int32([1]), "one")
    ends = helper.make_tensor_value_info("x", FLOAT, dims), helper.make_tensor_value_info("y", FLOAT, None)
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [table, one])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return seeded_inputs(load(path, ConversionOptions(mapping=mapping)), 0)["x"]


CAST = helper.make_node("Cast", ["x"], ["i"], to=INT32)
ROWS = helper.make_node("Gather", ["table", "i"], ["y"])
TOKENS = {
    "int32": [CAST, ROWS],
    "int64": [helper.make_node("Cast", ["x"], ["i"], to=INT64), ROWS],
    "shifted": [CAST, helper.make_node("Add", ["i", "one"], ["j"]), helper.make_node("Gather", ["table", "j"], ["y"])],
    "reshaped": [CAST, helper.make_node("Flatten", ["i"], ["j"]), helper.make_node("Gather", ["table", "j"], ["y"])],
    "read as floats, too": [
        CAST,
        helper.make_node("Gather", ["table", "i"], ["t"]),
        helper.make_node("ReduceSum", ["x"], ["s"]),
        helper.make_node("Mul", ["t", "s"], ["y"]),
    ],
}
OTHERS = {
    "no index": [CAST, helper.make_node("Cast", ["i"], ["y"], to=FLOAT)],
    "what is gathered": [helper.make_node("Gather", ["x", "one"], ["y"])],
    "a shape": [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["table", "s"], ["t"]),
        helper.make_node("ReduceSum", ["x"], ["r"]),
        helper.make_node("Mul", ["t", "r"], ["y"]),
    ],
}


@pytest.mark.parametrize("dims", [[2, 5], ["batch", "length"]], ids=["known", "open"])
@pytest.mark.parametrize("mapping", ["provider", "wide"])
@pytest.mark.parametrize("name", TOKENS)
def test_floats_that_are_cast_to_indexes_are_whole_numbers(name: str, mapping: str, dims: list[Any], tmp_path: Path) -> None:
    found = drawn(tmp_path / "m.onnx", TOKENS[name], mapping, dims)
    assert found.dtype == np.float32
    assert ((found >= 0) & (found < 8) & (found % 1 == 0)).all()


@pytest.mark.parametrize("name", OTHERS)
def test_other_floats_are_drawn_as_floats(name: str, tmp_path: Path) -> None:
    assert (drawn(tmp_path / "m.onnx", OTHERS[name], "wide", [2, 5]) % 1 != 0).any()

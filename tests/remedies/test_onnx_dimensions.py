"""Dimensions of ONNX files that are stated, and numbers computed of them that become constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.file import ModelFile
from nnbridge.plan import plan
from nnbridge.target import Target
from nnbridge_onnx.edits import MATRICES
from nnbridge_tflite.edits import FIXED
from tests.remedies.files import PHONE, Nodes, advice, flattened, npu, onnx_file, same_bits, written


def enlarged() -> tuple[Nodes, dict[str, Any]]:
    """``interpolate(x, size=(2 * h, 2 * w))``."""
    nodes: Nodes = [
        ("Shape", ["x"], ["s"]),
        ("Slice", ["s", "two", "four"], ["sides"]),
        ("Slice", ["s", "none", "two"], ["front"]),
        ("Mul", ["sides", "two"], ["twice"]),
        ("Concat", ["front", "twice"], ["dims"], {"axis": 0}),
        (
            "Resize",
            ["x", "", "", "dims"],
            ["y"],
            {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
        ),
    ]
    return nodes, {"none": np.int64([0]), "two": np.int64([2]), "four": np.int64([4])}


def by_float() -> tuple[Nodes, dict[str, Any]]:
    """A Reshape to dimensions that went through float32, the last one in a Constant node."""
    onnx = pytest.importorskip("onnx")
    last = onnx.numpy_helper.from_array(np.int64([-1]))
    nodes: Nodes = [
        ("Constant", [], ["rest"], {"value": last}),
        ("Shape", ["x"], ["s"]),
        ("Slice", ["s", "zero", "one"], ["n"]),
        ("Cast", ["n"], ["real"], {"to": 1}),
        ("Div", ["real", "unit"], ["same"]),
        ("Floor", ["same"], ["whole"]),
        ("Cast", ["whole"], ["count"], {"to": 7}),
        ("Concat", ["count", "rest"], ["dims"], {"axis": 0}),
        ("Reshape", ["x", "dims"], ["y"]),
    ]
    return nodes, {"zero": np.int64([0]), "one": np.int64([1]), "unit": np.float32([1])}


def expanded() -> tuple[Nodes, dict[str, Any]]:
    """Zeros of the input's dimensions, added to it."""
    onnx = pytest.importorskip("onnx")
    zeros = onnx.numpy_helper.from_array(np.float32([0.5]))
    return [("Shape", ["x"], ["s"]), ("ConstantOfShape", ["s"], ["z"], {"value": zeros}), ("Add", ["x", "z"], ["y"])], {}


@pytest.mark.parametrize("batch", [2, "batch"])
@pytest.mark.parametrize("make", [flattened, enlarged, by_float, expanded])
def test_what_nodes_compute_of_dimensions_becomes_constants_with_the_same_bits(
    make: Callable[[], tuple[Nodes, dict[str, Any]]], batch: int | str, tmp_path: Path
) -> None:
    onnx, _ = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    nodes, constants = make()
    path = onnx_file(tmp_path / "chain.onnx", nodes, [batch, 2, 4, 4], [None] * (2 if "Reshape" in nodes[-1] else 4), constants)
    (edit,) = (one for one in ModelFile(path, PHONE).edits if one.text.endswith(FIXED))
    after = tmp_path / "after.onnx"
    edit.content().write(after)
    made = onnx.load(str(after))
    onnx.checker.check_model(made, full_check=True)
    assert [node.op_type for node in made.graph.node] == [nodes[-1][0]]
    dims = [dim.dim_value for value in (*made.graph.input, *made.graph.output) for dim in value.type.tensor_type.shape.dim]
    assert (min(dims), dims[0]) == ((2 if batch == 2 else 1), (2 if batch == 2 else 1))
    assert same_bits("onnxruntime", path, after)


def test_a_graph_of_open_dimensions_is_advised_the_file_of_stated_ones(tmp_path: Path) -> None:
    nodes, constants = flattened()
    path = onnx_file(
        tmp_path / "chain.onnx", [("Relu", ["x"], ["r"]), *_of("r", nodes)], ["batch", 2, 4, 4], [None, None], constants
    )
    device = npu(tmp_path, "RELU", "RESHAPE")
    (found,) = (one for one in advice(path, device) if one.edit is not None and FIXED in one.text)
    assert len(found.after.elsewhere) == 0 < len(found.before.elsewhere)
    assert "make_dynamic_shape_fixed" in found.converter
    after = written(found, tmp_path, ".onnx")
    assert plan(ModelFile(after, PHONE), Target.of(device)).summary.elsewhere == {}


def _of(name: str, nodes: Nodes) -> Nodes:
    """Nodes that read another value than ``x``."""
    return [(kind, [name if one == "x" else one for one in inputs], *rest) for kind, inputs, *rest in nodes]


def test_requested_dimensions_are_those_of_the_file_that_is_written(tmp_path: Path) -> None:
    nodes, constants = flattened()
    path = onnx_file(tmp_path / "chain.onnx", nodes, ["batch", 2, "h", "w"], [None, None], constants)
    (edit,) = (one for one in ModelFile(path, replace(PHONE, shapes={"x": (3, 2, 5, 5)})).edits if one.text.endswith(FIXED))
    after = tmp_path / "after.onnx"
    edit.content().write(after)
    assert [tensor.shape for tensor in ModelFile(after, PHONE).inspection.inputs] == [(3, 2, 5, 5)]


def test_products_of_an_open_sequence_are_stated_and_of_two_matrices(tmp_path: Path) -> None:
    """Stated dimensions leave the product where it is; what is open is not reshaped."""
    pytest.importorskip("onnxruntime")
    nodes: Nodes = [("MatMul", ["x", "w"], ["m"]), ("Relu", ["m"], ["y"])]
    path = onnx_file(tmp_path / "a.onnx", nodes, [1, "sequence", 3], [1, "sequence", 4], {"w": np.ones((3, 4), np.float32)})
    found = advice(path, npu(tmp_path, "FULLY_CONNECTED", "RESHAPE", "RELU"))[0]
    assert (found.kind, len(found.before.elsewhere), len(found.after.elsewhere)) == ("round", 2, 0)
    assert found.text.endswith(f"; {MATRICES}")
    assert same_bits("onnxruntime", path, written(found, tmp_path, ".onnx"))

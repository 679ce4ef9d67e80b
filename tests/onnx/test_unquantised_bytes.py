"""Bytes that nothing quantises, and quantised values that state no type, as ONNX Runtime takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.file import load
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

X = np.float32([[-1, 0, 0.74, 100]])


def answers(folder: Path, nodes: list[Any], outputs: list[Any], constants: dict[str, Any]) -> list[Any]:
    """The outputs of a file whose input ``x`` is ``X``."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "graph", [x], outputs, tensors)
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    compilation = Compilation.create(load(path), [])
    compilation.finish()
    return list(Execution(compilation).run([X]).values())


@pytest.mark.parametrize("type", [np.uint8, np.int8])
def test_a_constant_of_bytes_needs_no_scale(type: Any, tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["k"], ["y"]), helper.make_node("Relu", ["x"], ["z"])]
    outputs = [
        helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(type)), [3]),
        helper.make_tensor_value_info("z", TensorProto.FLOAT, X.shape),
    ]
    y, z = answers(tmp_path, nodes, outputs, {"k": np.array([1, 2, 100], type)})
    assert (y.dtype, y.tolist()) == (type, [1, 2, 100])
    np.testing.assert_array_equal(z, np.maximum(X, 0))


def test_a_quantised_output_without_a_stated_type_has_that_of_its_zero_point(tmp_path: Path) -> None:
    node = helper.make_node("QuantizeLinear", ["x", "s", "o"], ["y"])
    [y] = answers(tmp_path, [node], [onnx.ValueInfoProto(name="y")], {"s": np.float32(0.5), "o": np.int8(3)})
    # -1 / 0.5 + 3 = 1, 1.48 rounds to 1, and 203 is beyond int8.
    assert (y.dtype, y.tolist()) == (np.int8, [[1, 3, 4, 127]])

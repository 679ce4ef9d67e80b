"""Bodies are checked by the onnx package once, with their file; files may use the names that nnbridge gives in bodies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnbridge
from nnbridge.compare.onnx_runtime import OnnxRuntime
from nnbridge.errors import ConversionError

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from nnbridge_onnx import native  # noqa: E402
from nnbridge_onnx.native_process import CHECK, CHECK_IN  # noqa: E402

helper = onnx.helper
make, info = helper.make_node, helper.make_tensor_value_info
FLOAT, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL


def nested(folder: Path, nodes: list[Any], depth: int = 3) -> Path:
    """Nodes that make ``z`` from ``x`` [2], in branches of branches by a computed condition."""
    body = helper.make_graph(nodes, "inner", [], [info("z", FLOAT, [2])])
    for k in range(depth):
        choice = make("If", ["c"], ["z" if k < depth - 1 else "y"], then_branch=body, else_branch=body)
        body = helper.make_graph([choice], f"b{k}", [], [info("z", FLOAT, [2])])
    begins = [make("ReduceSum", ["x"], ["s"], keepdims=0), make("Cast", ["s"], ["c"], to=BOOL)]
    graph = helper.make_graph([*begins, *body.node], "graph", [info("x", FLOAT, [2])], [info("y", FLOAT, [2])])
    path = folder / "model.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    return path


def test_a_file_of_nested_bodies_is_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: Counter[int] = Counter()
    asked = native.Native.asked

    def counted(self: native.Native, kind: int, content: bytes) -> Any:
        kinds[kind] += 1
        return asked(self, kind, content)

    monkeypatch.setattr(native.Native, "asked", counted)
    nnbridge.plan(nested(tmp_path, [make("Relu", ["x"], ["z"])], 5), device="nnapi-sample_all", mapping="wide")
    assert (kinds[CHECK], kinds[CHECK_IN]) == (1, 0)


WRONG: dict[str, Callable[[], list[Any]]] = {
    "No Op registered for Nothing": lambda: [make("Nothing", ["x"], ["z"])],
    "has input size 2 not in range": lambda: [make("Relu", ["x", "x"], ["z"])],
    "single static assignment": lambda: [make("Relu", ["x"], ["z"]), make("Abs", ["x"], ["z"])],
    "Unrecognized attribute: high": lambda: [make("Relu", ["x"], ["z"], high=1)],
    "not output of any previous nodes": lambda: [make("Relu", ["missing"], ["z"])],
    "Required attribute 'to' is missing": lambda: [make("Cast", ["x"], ["z"])],
}


@pytest.mark.parametrize("words", WRONG)
def test_what_is_wrong_in_a_nested_body_is_refused_with_the_file(words: str, tmp_path: Path) -> None:
    path = nested(tmp_path, WRONG[words]())
    with pytest.raises(ConversionError, match=words) as refused:
        nnbridge.load(path)
    assert str(path) in str(refused.value)


def choice(folder: Path, nodes: list[Any], constants: dict[str, Any], out: int) -> Path:
    """Nodes that make ``z`` from ``x`` [2] and constants of the file, in both branches."""
    body = helper.make_graph(nodes, "body", [], [info("z", out, [2])])
    begins = [make("ReduceSum", ["x"], ["s"], keepdims=0), make("Cast", ["s"], ["c"], to=BOOL)]
    nodes = [*begins, make("If", ["c"], ["y"], then_branch=body, else_branch=body)]
    tensors = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "graph", [info("x", FLOAT, [2])], [info("y", out, [2])], tensors)
    path = folder / "model.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    return path


@pytest.mark.parametrize("value", [False, [False], [False, False], [True, False], [False, True]])
def test_a_constant_with_a_name_of_nnbridge_s_keeps_its_value(value: Any, tmp_path: Path) -> None:
    nodes = [make("Greater", ["x", "zero"], ["g"]), make("Or", ["g", "nnbridge true"], ["z"])]
    path = choice(tmp_path, nodes, {"zero": np.float32(0), "nnbridge true": value}, BOOL)
    x = {"x": np.float32([3, -5])}
    np.testing.assert_array_equal(nnbridge.plan(path, mapping="wide").run(x)["y"], OnnxRuntime(path).run(x)[0])


def test_a_name_that_would_be_used_twice_leaves_the_operator_to_the_host(tmp_path: Path) -> None:
    path = choice(tmp_path, [make("Add", ["x", "x"], ["z out 0"]), make("Sub", ["z out 0", "x"], ["z"])], {}, FLOAT)
    plan, x = nnbridge.plan(path, mapping="wide"), {"x": np.float32([3, -5])}
    assert any("values have different names" in str(reason) for one in plan.mapped for reason in one.reasons)
    np.testing.assert_array_equal(plan.run(x)["y"], OnnxRuntime(path).run(x)[0])

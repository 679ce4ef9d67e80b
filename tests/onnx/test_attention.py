"""ONNX's Attention on NNAPI, beside the onnx package's evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.types import OperationCode as C

onnx = pytest.importorskip("onnx")

from onnx.reference import ReferenceEvaluator  # noqa: E402

from nnbridge_onnx.passes.conversion import convert_proto  # noqa: E402

helper = onnx.helper
RNG = np.random.default_rng(6)


def attention(queries: list[int], keys: list[int], mask: np.ndarray | None = None, **attributes: Any) -> Any:
    """A model with one Attention node."""
    names = ["q", "k", "v"] + (["m"] if mask is not None else [])
    info = [
        helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, d) for n, d in zip("qkv", (queries, keys, keys), strict=True)
    ]
    graph = helper.make_graph(
        [helper.make_node("Attention", names, ["y"], **attributes)],
        "graph",
        info,
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [] if mask is None else [onnx.numpy_helper.from_array(mask, "m")],
    )
    return onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)]))


HIDING = np.array([[True, False, True, True], [False, True, True, False], [True, True, True, True]])
FORMS: dict[str, tuple[list[int], list[int], np.ndarray | None, dict[str, Any]]] = {
    "plain": ([2, 4, 3, 8], [2, 4, 5, 8], None, {}),
    "causal": ([1, 2, 4, 8], [1, 2, 4, 8], None, {"is_causal": 1, "scale": 0.25}),
    "shared heads": ([2, 6, 3, 8], [2, 2, 5, 8], None, {}),
    "side by side": ([2, 3, 24], [2, 5, 8], None, {"q_num_heads": 6, "kv_num_heads": 2}),
    "boolean mask": ([1, 2, 3, 8], [1, 2, 4, 8], HIDING, {}),
    "added mask": ([1, 2, 3, 8], [1, 2, 4, 8], RNG.normal(size=(2, 3, 4)).astype(np.float32), {}),
}


@pytest.mark.parametrize("form", FORMS)
def test_attention_is_two_products_and_a_softmax(form: str) -> None:
    queries, keys, mask, attributes = FORMS[form]
    proto = attention(queries, keys, mask, **attributes)
    inputs = [RNG.normal(size=dims).astype(np.float32) for dims in (queries, keys, keys)]
    model, _, mapped = convert_proto(proto)
    assert [m.mapping for m in mapped] == ["wide"]
    codes = [operation.type for operation in model.main.operations]
    assert (codes.count(C.BATCH_MATMUL), codes.count(C.SOFTMAX)) == (2, 1)
    compilation = Compilation.create(model, [])
    compilation.finish()
    (expected,) = ReferenceEvaluator(proto).run(None, dict(zip("qkv", inputs, strict=True)))
    np.testing.assert_allclose(Execution(compilation).run(inputs)["y"], expected, rtol=1e-5, atol=1e-6)


def test_scores_of_mode_0_are_those_before_softcap() -> None:
    (queries, keys), wide = RNG.normal(size=(2, 1, 1, 2, 4)).astype(np.float32), [1, 1, 2, 4]
    node = helper.make_node("Attention", ["q", "k", "v"], ["y", "", "", "s"], softcap=0.5, scale=1.0)
    info = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, wide) for name in "qkv"]
    results = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "ys"]
    model = helper.make_model(helper.make_graph([node], "graph", info, results), opset_imports=[helper.make_opsetid("", 23)])
    compilation = Compilation.create(convert_proto(model)[0], [])
    compilation.finish()
    scores = Execution(compilation).run([queries, keys, keys])["s"]
    np.testing.assert_allclose(scores, queries @ keys.swapaxes(2, 3), rtol=1e-5)

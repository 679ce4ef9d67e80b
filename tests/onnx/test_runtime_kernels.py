"""Operators without a kernel on nnbridge's own host: the installed ONNX Runtime computes them, and a line says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnbridge
from nnbridge.errors import OpFailedError
from nnbridge_onnx.host import runtime

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

helper = onnx.helper
FLOAT, INT32, INT64, UINT8 = (getattr(onnx.TensorProto, name) for name in ("FLOAT", "INT32", "INT64", "UINT8"))
RNG = np.random.default_rng(0)


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def whole(*shape: int) -> Any:
    return RNG.integers(1, 200, shape).astype(np.uint8)


def written(
    path: Path, nodes: list[Any], inputs: dict[str, Any], constants: dict[str, Any], outputs: list[str], opset: int = 17
) -> Path:
    typed = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()]
    results = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
    tensors = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "graph", typed, results, tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    return path


def microsoft(kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return helper.make_node(kind, inputs, outputs, domain="com.microsoft", **attributes)


EMBEDDED = {"ids": np.int32([[1, 2, 3]]), "types": np.int32([[0, 1, 0]])}
TABLES = {"w": numbers(16, 8), "p": numbers(4, 8), "t": numbers(2, 8), "g": numbers(8), "b": numbers(8)}
LSTM = {"W": whole(1, 4, 16), "R": whole(1, 4, 16), "k": np.float32([0.01]), "z": np.uint8([100])}
FUSED: dict[str, tuple[list[Any], dict[str, Any], dict[str, Any]]] = {
    "MatMulNBits": (
        [
            microsoft("MatMulNBits", ["x", "w", "s"], ["a"], K=32, N=8, bits=4, block_size=16),
            helper.make_node("Relu", ["a"], ["y"]),
        ],
        {"x": numbers(2, 32)},
        {"w": whole(8, 2, 8), "s": np.abs(numbers(16))},
    ),
    "Attention": (
        [microsoft("Attention", ["x", "w", "b"], ["a"], num_heads=2), helper.make_node("Add", ["a", "x"], ["y"])],
        {"x": numbers(1, 4, 8)},
        {"w": numbers(8, 24), "b": numbers(24)},
    ),
    "EmbedLayerNormalization": (
        [
            microsoft("EmbedLayerNormalization", ["ids", "types", "w", "p", "t", "g", "b"], ["e", "mask"]),
            microsoft("SkipLayerNormalization", ["e", "e", "g", "b"], ["s"]),
            microsoft("Gelu", ["s"], ["y"]),
        ],
        EMBEDDED,
        TABLES,
    ),
    "DynamicQuantizeLSTM": (
        [
            microsoft("DynamicQuantizeLSTM", ["x", "W", "R", *[""] * 5, "k", "z", "k", "z"], ["a"], hidden_size=4),
            helper.make_node("Squeeze", ["a", "one"], ["y"]),
        ],
        {"x": numbers(3, 1, 4)},
        {**LSTM, "one": np.int64([1])},
    ),
    "GroupQueryAttention": (
        [
            microsoft(
                "GroupQueryAttention", ["q", "k", "k", "", "", "n", "t"], ["a", "keys", "values"], num_heads=2, kv_num_heads=1
            ),
            helper.make_node("Neg", ["a"], ["y"]),
        ],
        {"q": numbers(1, 4, 32), "k": numbers(1, 4, 16)},
        {"n": np.int32([3]), "t": np.int32(4)},
    ),
    "CDist in a branch": (
        [
            helper.make_node(
                "If",
                ["c"],
                ["y"],
                then_branch=helper.make_graph(
                    [microsoft("CDist", ["x", "x"], ["d"])], "t", [], [helper.make_tensor_value_info("d", FLOAT, None)]
                ),
                else_branch=helper.make_graph(
                    [helper.make_node("Neg", ["x"], ["e"])], "e", [], [helper.make_tensor_value_info("e", FLOAT, None)]
                ),
            )
        ],
        {"x": numbers(3, 4), "c": np.array(True)},
        {},
    ),
}


@pytest.mark.parametrize("mapping", ["provider", "wide"])
@pytest.mark.parametrize("name", FUSED)
def test_an_operator_that_only_onnx_runtime_has_is_computed_by_it(
    name: str, mapping: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes, inputs, constants = FUSED[name]
    path = written(tmp_path / "fused.onnx", nodes, inputs, constants, ["y"])
    (expected,) = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, inputs)
    found = nnbridge.plan(path, mapping=mapping).run(inputs)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert "nnbridge's own host has no kernel for it" in caplog.text


def test_the_shapes_of_a_quantised_lstm_are_those_of_onnxs_own(tmp_path: Path) -> None:
    nodes = [
        microsoft("DynamicQuantizeLSTM", ["x", "W", "R", "", "", "", "", "", "k", "z", "k", "z"], ["y", "h"], hidden_size=4),
        helper.make_node("Shape", ["y"], ["shape"]),
        helper.make_node("Reshape", ["h", "flat"], ["last"]),
        helper.make_node("Cast", ["shape"], ["sizes"], to=FLOAT),
    ]
    constants = {**LSTM, "flat": np.int64([-1])}
    path = written(tmp_path / "model.onnx", nodes, {"x": numbers(3, 2, 4)}, constants, ["sizes", "last"])
    planned = nnbridge.plan(path, mapping="wide")
    assert [name for name in ("Shape", "Reshape") if name in {m.operator for m in planned.mapped if m.mapping == "host"}] == []
    assert planned.run({"x": numbers(3, 2, 4)})["sizes"].tolist() == [3, 1, 2, 4]


def test_a_refusal_has_onnx_runtimes_cause_and_the_nodes_name(tmp_path: Path) -> None:
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1, name="/head/fc2/Gemm")
    constants = {"w": numbers(64, 16), "b": numbers(32)}
    path = written(tmp_path / "gemm.onnx", [node], {"x": numbers(1, 16)}, constants, ["y"])
    with pytest.raises(OpFailedError, match=r"'/head/fc2/Gemm': .*Invalid bias shape for broadcast"):
        nnbridge.plan(path, host="nnbridge").run({"x": numbers(1, 16)})


CHANNELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a convolution's bias": (helper.make_node("Conv", ["x", "w", "b"], ["y"]), {"w": numbers(8, 4, 1, 1), "b": numbers(1)}),
    "a transposed convolution's bias": (
        helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"]),
        {"w": numbers(4, 8, 1, 1), "b": numbers(1)},
    ),
    "scale and bias": (helper.make_node("InstanceNormalization", ["x", "s", "s"], ["y"]), {"s": numbers(1)}),
}
WRONG: dict[str, tuple[Any, dict[str, Any]]] = {
    "slopes": (helper.make_node("PRelu", ["x", "s"], ["y"]), {"s": numbers(3)}),
    "a shape": (helper.make_node("Reshape", ["x", "s"], ["y"]), {"s": np.int64([3, 2])}),
    "parts": (helper.make_node("Split", ["x"], ["y", "b", "c", "d"], axis=2, num_outputs=4), {}),
}


def refusal(node: Any, constants: dict[str, Any], mapping: str, path: Path) -> str:
    x = numbers(1, 4, 5, 5)
    written(path, [node], {"x": x}, constants, [*node.output], opset=18)
    with pytest.raises(OpFailedError) as caught:
        nnbridge.plan(path, mapping=mapping, host="nnbridge").run({"x": x})
    return str(caught.value)


@pytest.mark.parametrize("mapping", ["provider", "wide"])
@pytest.mark.parametrize("name", WRONG)
def test_what_onnx_runtime_refuses_is_not_repeated_until_it_fits(name: str, mapping: str, tmp_path: Path) -> None:
    node, constants = WRONG[name]
    assert f", found {node.op_type} '': " in refusal(node, constants, mapping, tmp_path / "m.onnx")


@pytest.mark.parametrize("mapping", ["provider", "wide"])
@pytest.mark.parametrize("name", CHANNELS)
def test_parameters_of_other_channels_are_refused_whatever_onnx_runtime_does(name: str, mapping: str, tmp_path: Path) -> None:
    node, constants = CHANNELS[name]
    said = refusal(node, constants, mapping, tmp_path / "m.onnx")
    assert "a number for each of " in said
    assert "channels, found [1]" in said


def test_without_onnx_runtime_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "find_spec", lambda name: None)
    path = written(tmp_path / "m.onnx", [microsoft("Inverse", ["x"], ["y"])], {"x": numbers(2, 2)}, {}, ["y"])
    with pytest.raises(OpFailedError, match=r"com\.microsoft\.Inverse: .*pip install onnxruntime"):
        nnbridge.plan(path, host="nnbridge").run({"x": numbers(2, 2)})


def test_a_map_is_its_numbers_in_the_order_of_its_keys(tmp_path: Path) -> None:
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[7, 3])
    path = written(tmp_path / "m.onnx", [node], {"x": numbers(2, 2)}, {}, ["y"])
    model = onnx.load(path)
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    kind = helper.make_map_type_proto(INT64, helper.make_tensor_type_proto(FLOAT, []))
    model.graph.output[0].type.CopyFrom(helper.make_sequence_type_proto(kind))
    onnx.save(model, path)
    found = nnbridge.plan(path).run({"x": np.float32([[1, 2], [3, 4]])})["y"]
    assert [one.tolist() for one in found] == [[2, 1], [4, 3]]
    assert nnbridge.compare(path, reference="onnxruntime").passed


def test_scalars_text_and_sequences_are_inputs_and_outputs_in_python(tmp_path: Path) -> None:
    text = helper.make_tensor_value_info("t", onnx.TensorProto.STRING, [2])
    scalar = helper.make_tensor_value_info("k", FLOAT, [])
    nodes = [
        helper.make_node("StringConcat", ["t", "t"], ["joined"]),
        helper.make_node("SequenceConstruct", ["k", "k"], ["s"]),
    ]
    outputs = [
        helper.make_tensor_value_info("joined", onnx.TensorProto.STRING, [2]),
        helper.make_tensor_sequence_value_info("s", FLOAT, []),
    ]
    graph = helper.make_graph(nodes, "graph", [text, scalar], outputs)
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString())
    found = nnbridge.plan(path).run({"t": np.array(["a", "b"]), "k": np.array(2, np.float32)})
    assert found["joined"].tolist() == ["aa", "bb"]
    assert [float(one) for one in found["s"]] == [2, 2]


def learned(operator: str, **attributes: Any) -> Any:
    return helper.make_node(operator, ["x"], [*attributes.pop("first", []), "y"], domain="ai.onnx.ml", **attributes)


ROWS = np.float32([[-1, 2, 0.5], [0.25, -3, 1]])
LEARNED = {
    "one-hot rows of floats": (learned("OneHotEncoder", cats_int64s=[0, 1, 2], zeros=1), np.float32([0.5, 2.9, -1])),
    "whole numbers scaled": (learned("Scaler", offset=[0.1], scale=[2.0]), np.int64([[3, 1], [0, 5]])),
    "labels before probit": (
        learned(
            "LinearClassifier", first=["label"], coefficients=[-1.0, 0, 0.5, 1, 1, 0.2], intercepts=[0.1, 0.2],
            classlabels_ints=[0, 1], post_transform="PROBIT",
        ),
        ROWS,
    ),
    "largest of whole numbers": (learned("Normalizer", norm="MAX"), np.int64([[3, -7, 1], [0, 0, 0]])),
    "missing whole numbers": (learned("Imputer", imputed_value_int64s=[9], replaced_value_int64=1), np.int64([[3, 1], [1, 5]])),
    "doubles above a threshold": (learned("Binarizer", threshold=0.5), ROWS),
}  # fmt: skip


@pytest.mark.parametrize("name", LEARNED)
def test_operators_of_trees_and_linear_models_are_onnx_runtimes(name: str, tmp_path: Path) -> None:
    """The file imports their domain alone, as the oldest converters write it."""
    node, rows = LEARNED[name]
    outputs = [onnx.ValueInfoProto(name=one) for one in node.output]
    x = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(rows.dtype), rows.shape)
    opsets = [helper.make_opsetid("ai.onnx.ml", 3)]
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(helper.make_graph([node], "g", [x], outputs), opset_imports=opsets, ir_version=8), path)
    expected = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": rows})
    found = nnbridge.run(path, {"x": rows}, host="nnbridge")
    for one, value in zip(node.output, expected, strict=True):
        np.testing.assert_allclose(found[one], value, rtol=1e-6, equal_nan=True)

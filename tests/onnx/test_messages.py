"""Strings, sequences, optionals and maps as operands hold them: the bytes of ONNX's own messages."""

from __future__ import annotations

import contextlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnbridge
from nnbridge import Compilation, Execution, load, storage
from nnbridge.errors import OpFailedError

onnx = pytest.importorskip("onnx")

from onnx import helper, numpy_helper  # noqa: E402

from nnbridge_onnx import backend  # noqa: E402
from nnbridge_onnx.host.messages import decode, encode  # noqa: E402
from nnbridge_onnx.read.graph import MAP, OPTIONAL, SEQUENCE, STRING  # noqa: E402

FLOAT, STRINGS = onnx.TensorProto.FLOAT, onnx.TensorProto.STRING


def appended() -> onnx.ModelProto:
    """The sequence ``s`` with ``x`` behind it, and both side by side."""
    nodes = [
        helper.make_node("SequenceInsert", ["s", "x"], ["t"]),
        helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=0),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    inputs = [helper.make_tensor_sequence_value_info("s", FLOAT, None), helper.make_tensor_value_info("x", FLOAT, [2])]
    outputs = [helper.make_tensor_value_info("z", FLOAT, ["n"]), helper.make_tensor_sequence_value_info("t", FLOAT, None)]
    return helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )


@pytest.mark.parametrize("strings", [[], ["a"], ["", "ä", "日本"], [["x", "y"]]])
def test_strings_keep_text_and_shape(strings: list[str]) -> None:
    array = np.array(strings, object)
    found = decode(encode(array, STRING), STRING)
    assert found.tolist() == strings
    assert found.shape == array.shape


def test_an_empty_sequence_and_an_empty_optional_are_messages_with_bytes() -> None:
    for value, type in (([], SEQUENCE), (None, OPTIONAL), ([], OPTIONAL)):
        data = encode(value, type)
        assert data.size > 0
        assert decode(data, type) == value


@given(st.binary(max_size=64), st.sampled_from([STRING, SEQUENCE, OPTIONAL]))
def test_bytes_that_are_no_message_raise_op_failed_and_nothing_else(data: bytes, type: int) -> None:
    with contextlib.suppress(OpFailedError):
        decode(np.frombuffer(data, np.uint8), type, "s")


def test_a_sequence_enters_and_leaves_between_host_and_device() -> None:
    z, t = backend.run_model(appended(), [[np.float32([-1, 2])], np.float32([3, -4])], "nnapi-sample_all")
    assert z.tolist() == [0.0, 2.0, 3.0, 0.0]
    assert [one.tolist() for one in t] == [[-1.0, 2.0], [3.0, -4.0]]


def test_a_saved_model_computes_on_sequences(tmp_path: Path) -> None:
    onnx.save(appended(), tmp_path / "m.onnx")
    storage.save(load(tmp_path / "m.onnx"), tmp_path / "m.nnapi")
    compilation = Compilation.create(load(tmp_path / "m.nnapi"), [])
    compilation.finish()
    message = numpy_helper.from_list([np.float32([7])]).SerializeToString()
    outputs = Execution(compilation).run({"s": np.frombuffer(message, np.uint8), "x": np.float32([1, 2])})
    assert outputs["z"].tolist() == [7.0, 1.0, 2.0]
    assert [one.tolist() for one in decode(outputs["t"], SEQUENCE)] == [[7.0], [1.0, 2.0]]


def test_constants_of_strings_are_read() -> None:
    graph = helper.make_graph(
        [helper.make_node("StringConcat", ["x", "k"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", STRINGS, [2])],
        [helper.make_tensor_value_info("y", STRINGS, [2])],
        [helper.make_tensor("k", STRINGS, [1], [b"!"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    assert backend.run_model(model, [np.array(["a", "b"], object)])[0].tolist() == ["a!", "b!"]


def test_optional_and_its_element_are_each_other_s_inverse() -> None:
    nodes = [helper.make_node("Optional", ["x"], ["o"]), helper.make_node("OptionalGetElement", ["o"], ["y"])]
    ends = [helper.make_tensor_value_info(name, FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    assert backend.run_model(model, [np.float32([1, 2])])[0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "value", [{"a": 1.5, "b": -2.0}, {3: 0.5, 1: 2.0}, {"x": 7}, {-1: 8, 2**40: 9}, {1: "one", 2: "two"}, {}], ids=str
)
def test_a_map_keeps_its_keys_in_their_order_and_its_values(value: dict[object, object]) -> None:
    found = decode(encode(value, MAP), MAP)
    assert (found, list(found)) == (value, list(value))


@pytest.mark.parametrize("value", [[1.0], {1.5: 2.0}, {"a": 1.0, "b": 2.0, 3: 4.0}.keys()], ids=str)
def test_what_is_no_map_of_onnx_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError):
        encode(value, MAP)


def vectoriser(path: Path) -> Path:
    entries = helper.make_map_type_proto(STRINGS, helper.make_tensor_type_proto(FLOAT, []))
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", string_vocabulary=["a", "b", "c"])
    ends = helper.make_value_info("x", entries), helper.make_tensor_value_info("y", FLOAT, [1, 3])
    opsets = [helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:]), opset_imports=opsets, ir_version=8), path)
    return path


def test_a_map_is_a_dictionary_in_python_and_keys_and_values_in_a_file(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = vectoriser(tmp_path / "m.onnx")
    assert nnbridge.plan(path).run({"x": {"c": 2.0, "a": 1.5}})["y"].tolist() == [[1.5, 0.0, 2.0]]
    np.savez(tmp_path / "x.npz", keys=np.array(["c", "a"]), values=np.float32([2, 1.5]))
    assert nnbridge.compare(path, "onnxruntime", [f"x={tmp_path / 'x.npz'}"]).passed


def as_text(values: np.ndarray) -> list[str]:
    kind = helper.np_dtype_to_tensor_dtype(values.dtype)
    ends = helper.make_tensor_value_info("x", kind, values.shape), helper.make_tensor_value_info("y", STRINGS, values.shape)
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], to=STRINGS)], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    found = backend.run_model(model, [values])[0].tolist()
    if find_spec("onnxruntime") is not None:
        session = onnxruntime().InferenceSession(model.SerializeToString())
        assert session.run(None, {"x": values})[0].tolist() == found
    return found


def onnxruntime() -> Any:
    return pytest.importorskip("onnxruntime")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (np.array([True, False]), ["1", "0"]),
        (np.float32([1 / 3, 0.1, -0.0]), ["0.33333334", "0.1", "-0"]),
        (np.float64([1 / 3, 1e20, 123456789.123]), ["0.33333333", "1e+20", "1.2345679e+08"]),
        (np.float16([1.3457031, 2]), ["1.3457031", "2"]),
        (np.float32([np.inf, -np.inf, np.nan]), ["INF", "-INF", "NaN"]),
        (np.int64([-(2**53) - 1]), ["-9007199254740993"]),
        (np.uint8([200]), ["200"]),
    ],
    ids=["bool", "float32", "float64", "float16", "not finite", "int64", "uint8"],
)
def test_numbers_become_text_as_onnx_runtime_writes_them(values: np.ndarray, text: list[str]) -> None:
    assert as_text(values) == text

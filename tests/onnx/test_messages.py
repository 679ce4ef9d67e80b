"""Strings, sequences and optionals as operands hold them: the bytes of ONNX's own messages."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnbridge import Compilation, Execution, load, storage
from nnbridge.errors import OpFailedError

onnx = pytest.importorskip("onnx")

from onnx import helper, numpy_helper  # noqa: E402

from nnbridge_onnx import backend  # noqa: E402
from nnbridge_onnx.host.messages import decode, encode  # noqa: E402
from nnbridge_onnx.read.graph import OPTIONAL, SEQUENCE, STRING  # noqa: E402

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

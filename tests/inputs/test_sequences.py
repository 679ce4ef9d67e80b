"""Sequences and text of ONNX files as inputs and outputs, beside ONNX Runtime."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.commands import call
from tests.conftest import requires_recent_onnx_runtime

onnx = pytest.importorskip("onnx")
TENSORS = [np.full((k, 4), k, np.float32) for k in (1, 2, 3)]


@pytest.fixture
def inserting(tmp_path: Path) -> Path:
    """A file that puts x [2, 4] before a sequence."""
    make = onnx.helper
    ends = [make.make_tensor_sequence_value_info(name, 1, [None, 4]) for name in ("before", "after")]
    x, first = make.make_tensor_value_info("x", 1, [2, 4]), onnx.numpy_helper.from_array(np.int64(0), "first")
    node = make.make_node("SequenceInsert", ["before", "x", "first"], ["after"])
    graph = make.make_graph([node], "g", [ends[0], x], ends[1:], [first])
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8), str(tmp_path / "insert.onnx"))
    np.save(tmp_path / "x.npy", np.zeros((2, 4), np.float32))
    return tmp_path / "insert.onnx"


def files(folder: Path) -> Path:
    """A data set of one sequence in each form."""
    folder.mkdir()
    np.savez(folder / "a.npz", *TENSORS)
    np.save(folder / "b.npy", TENSORS[1])
    (folder / "c.pb").write_bytes(onnx.numpy_helper.from_list(TENSORS[:2]).SerializeToString())
    return folder


def test_a_folder_of_sequences_is_a_data_set(inserting: Path, tmp_path: Path) -> None:
    requires_recent_onnx_runtime()
    inputs = ("--input", f"before={files(tmp_path / 'set')}", "--input", f"x={tmp_path / 'x.npy'}")
    found = json.loads(call("compare", inserting, *inputs, "--reference", "onnxruntime", "--json").stdout)
    (output,) = found["outputs"]
    # Three times eight zeros before 24, 8 and 12 numbers.
    assert (found["samples"], found["within"], output["type"], output["elements"]) == (3, True, "float32", 3 * 8 + 24 + 8 + 12)


def test_the_tensors_of_a_sequence_are_written_one_by_one(inserting: Path, tmp_path: Path) -> None:
    inputs = ("--input", f"before={files(tmp_path / 'set') / 'a.npz'}", "--input", f"x={tmp_path / 'x.npy'}")
    assert call("run", inserting, *inputs, "-o", tmp_path / "out.npz").exit_code == 0
    with np.load(tmp_path / "out.npz") as written:
        assert [written[f"after[{k}]"].shape for k in range(4)] == [(2, 4), (1, 4), (2, 4), (3, 4)]
        assert np.array_equal(written["after[3]"], TENSORS[2])


def test_a_sequence_that_differs_fails(inserting: Path, tmp_path: Path) -> None:
    inputs = ("--input", f"before={files(tmp_path / 'set') / 'a.npz'}", "--input", f"x={tmp_path / 'x.npy'}")
    for name, value in (("same", 0), ("other", 1)):
        np.save(tmp_path / "x.npy", np.full((2, 4), value, np.float32))
        assert call("run", inserting, *inputs, "--samples", tmp_path / f"{name}.npz").exit_code == 0
    assert call("compare", inserting, *inputs, "--reference", tmp_path / "other.npz").exit_code == 0
    assert call("compare", inserting, *inputs, "--reference", tmp_path / "same.npz").exit_code == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text.txt", "expected a file of its tensors (.npz, .npy, .pb), found .txt"),
        ("bad.pb", "expected the bytes of an ONNX SequenceProto"),
    ],
)
def test_a_file_that_is_no_sequence_is_refused(content: str, message: str, inserting: Path, tmp_path: Path) -> None:
    (tmp_path / content).write_bytes(b"\xff\xff")
    result = call("run", inserting, "--seed", "0", "--input", f"before={tmp_path / content}")
    assert (result.exit_code, message in result.stderr) == (2, True)


def test_a_sequence_is_not_drawn(inserting: Path) -> None:
    result = call("run", inserting, "--seed", "0")
    assert (result.exit_code, "before: expected a file" in result.stderr) == (2, True)


def test_text_is_compared_as_text(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    make = onnx.helper
    ends = [make.make_tensor_value_info(name, onnx.TensorProto.STRING, [None]) for name in ("words", "chosen")]
    node, order = (
        make.make_node("Gather", ["words", "order"], ["chosen"]),
        onnx.numpy_helper.from_array(np.array([1, 0, 1]), "order"),
    )
    graph = make.make_graph([node], "g", ends[:1], ends[1:], [order])
    path, words = tmp_path / "chosen.onnx", tmp_path / "words.npy"
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8), str(path))
    np.save(words, np.array(["edge", "phone"]))
    found = json.loads(call("compare", path, "--input", words, "--reference", "onnxruntime", "--json").stdout)
    assert (found["within"], found["outputs"][0]["elements"]) == (True, 3)
    (output,) = json.loads(call("run", path, "--input", words, "--json").stdout)["outputs"]
    assert (output["name"], output["values"]) == ("chosen", ["phone", "edge", "phone"])

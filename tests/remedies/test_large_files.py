"""Files too large to be held in memory: edits leave the weights where they are until the edited file is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.file import ModelFile
from nnbridge_tflite.read.reader import read
from tests.commands import call
from tests.remedies.files import PHONE, advice, npu, products, same_bits, written
from tests.tflite.files import TfliteBuilder

SIDE = 64
"""Weights of 64 times 64 floats are 16 KiB: more than what is inside tables and messages of a large file."""
DENSE = {"fused_activation_function": 0, "weights_format": 0, "keep_num_dims": False}


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file counts as large."""
    monkeypatch.setattr("nnbridge.converters.edits.LARGE", 1)


def dense(folder: Path, after: bool = False) -> Path:
    """FULLY_CONNECTED, then SQUARE; its weights inside the tables, or after them."""
    random, file = np.random.default_rng(0), TfliteBuilder()
    x, m, y = (file.tensor((2, SIDE)) for _ in range(3))
    weights = file.constant(random.standard_normal((SIDE, SIDE)), "float32")
    bias = file.constant(random.standard_normal(SIDE), "float32")
    file.operator("FULLY_CONNECTED", [x, weights, bias], [m], DENSE)
    file.operator("SQUARE", [m], [y], {})
    if not after:
        return file.write(folder / "dense.tflite", [x], [y])
    place = file.tensors[weights]["buffer"]
    data = file.buffers[place]["data"]
    size = len(file.content([x], [y])) - len(data) + 256 & ~15
    file.buffers[place] = {"offset": size, "size": len(data)}
    path = file.write(folder / "dense.tflite", [x], [y])
    path.write_bytes(path.read_bytes().ljust(size, b"\0") + data.tobytes())
    return path


def external(path: Path) -> Path:
    """An ONNX file with all constants in another file."""
    onnx = pytest.importorskip("onnx")
    onnx.save_model(onnx.load(str(path)), str(path), save_as_external_data=True, size_threshold=0, location="w.bin")
    return path


@pytest.mark.parametrize("after", [False, True])
def test_a_tflite_file_is_advised_and_written_with_its_weights_after_the_tables(after: bool, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = dense(tmp_path, after)
    found = next(one for one in advice(path, npu(tmp_path, "FULLY_CONNECTED", "MUL")) if one.kind == "rewrite")
    assert "MUL" in found.text
    edited = written(found, tmp_path, ".tflite")
    assert [operator.name for operator in read(edited).graph.main.operators] == ["FULLY_CONNECTED", "MUL"]
    assert edited.stat().st_size - path.stat().st_size < 2048
    assert same_bits("litert", path, edited)


@pytest.mark.parametrize("outside", [False, True])
def test_an_onnx_file_is_advised_and_written_with_its_weights_inside(outside: bool, tmp_path: Path) -> None:
    """ONNX Runtime's provider takes no constant of another file."""
    onnx, _ = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    path = products(tmp_path / "a.onnx", [1, 4, SIDE], (SIDE, SIDE))
    path = external(path) if outside else path
    found = next(one for one in advice(path, npu(tmp_path, "FULLY_CONNECTED", "RESHAPE", "RELU")) if "two matrices" in one.text)
    assert len(found.after.elsewhere) == 0 < len(found.before.elsewhere)
    edited = written(found, tmp_path, ".onnx")
    assert [len(one.raw_data) for one in onnx.load(str(edited)).graph.initializer if one.name == "w0"] == [4 * SIDE * SIDE]
    assert same_bits("onnxruntime", path, edited)


def test_weights_that_protobuf_does_not_read_are_beside_the_written_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx, _ = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    monkeypatch.setattr("nnbridge_onnx.weights._MOST", 1 << 12)
    path = external(products(tmp_path / "a.onnx", [1, 4, SIDE], (SIDE, SIDE), (SIDE, SIDE)))
    (edit,) = (one for one in ModelFile(path, PHONE).edits if "two matrices" in one.text and one.index == 0)
    edited = tmp_path / "after.onnx"
    edit.content().write(edited)
    placed = [one for one in onnx.load(str(edited), load_external_data=False).graph.initializer if one.external_data]
    assert [{one.key: one.value for one in tensor.external_data} for tensor in placed] == [
        {"location": "after.onnx.data", "offset": str(offset), "length": "16384"} for offset in (0, 16384)
    ]
    assert same_bits("onnxruntime", path, edited)


def test_constants_of_another_file_are_advised_inside(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = external(products(tmp_path / "a.onnx", [4, SIDE], (SIDE, SIDE)))
    found = advice(path, npu(tmp_path, "FULLY_CONNECTED", "RELU"))[0]
    assert (found.text, found.kind, len(found.after.elsewhere)) == ("whole file: constants inside the file", "rewrite", 0)
    assert same_bits("onnxruntime", path, written(found, tmp_path, ".onnx"))


def test_no_plan_of_an_edit_writes_weights(tmp_path: Path) -> None:
    """A plan reads none: they are holes in its file, which has the size of the whole one."""
    path = dense(tmp_path)
    (edit,) = (one for one in ModelFile(path, PHONE).edits if "MUL" in one.text)
    edit.content().write(tmp_path / "planned.tflite", weights=False)
    edit.content().write(tmp_path / "whole.tflite")
    planned, whole = ((tmp_path / f"{name}.tflite").read_bytes() for name in ("planned", "whole"))
    (buffer,) = (one for one in read(tmp_path / "whole.tflite").graph.main.tensors if one.shape == (SIDE, SIDE))
    assert buffer.data is not None
    first, last = buffer.data.offset, buffer.data.offset + buffer.data.length
    assert len(planned) == len(whole)
    assert not any(planned[first:last])
    assert planned[:first] + planned[last:] == whole[:first] + whole[last:]


@pytest.mark.parametrize("make", [dense, lambda folder: external(products(folder / "a.onnx", [1, 4, SIDE], (SIDE, SIDE)))])
def test_rewrite_writes_all_files_of_an_edit(make: Any, tmp_path: Path) -> None:
    path = make(tmp_path)
    operations = ("FULLY_CONNECTED", "RESHAPE" if path.suffix == ".onnx" else "MUL")
    device = ["--device", npu(tmp_path, *operations)]
    output = tmp_path / "new" / f"better{path.suffix}"
    output.parent.mkdir()
    made = call("rewrite", path, *device, "--advice", 1, "-o", output, "--inexact")
    assert made.exit_code == 0, made.output
    assert [file.name for file in output.parent.iterdir()] == [output.name]
    assert ModelFile(output, PHONE).model.main.operations

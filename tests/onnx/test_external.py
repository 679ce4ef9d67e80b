"""Constants in other files: planning reads none of them, and a file that is cut short is refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from nnbridge import Compilation, Execution, load
from nnbridge.errors import ConversionError, NnbridgeError
from nnbridge.model import ArrayPool, Model

onnx = pytest.importorskip("onnx")

from onnx import helper, numpy_helper  # noqa: E402

WEIGHTS = np.arange(48 * 32, dtype=np.float32).reshape(48, 32) / 100


def saved(folder: Path) -> Path:
    """A product with a matrix that lies in ``w.bin``."""
    tensor = numpy_helper.from_array(WEIGHTS, "w")
    onnx.external_data_helper.set_external_data(tensor, "w.bin")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 48])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 32])],
        [tensor],
    )
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    assert (folder / "w.bin").stat().st_size == WEIGHTS.nbytes
    return path


def planned(model: Model) -> Compilation:
    compilation = Compilation.create(model, [])
    compilation.finish()
    return compilation


def test_planning_copies_no_matrix_that_nnapi_has_transposed(tmp_path: Path) -> None:
    model = load(saved(tmp_path))
    planned(model)
    (pool,) = [pool for pool in model.pools if isinstance(pool, ArrayPool)]
    assert "data" not in vars(pool)


def test_the_transposed_matrix_is_that_of_the_file(tmp_path: Path) -> None:
    row = np.ones((1, 48), np.float32)
    found = Execution(planned(load(saved(tmp_path)))).run([row])["y"]
    np.testing.assert_allclose(found, row @ WEIGHTS, rtol=1e-6)


def test_external_data_that_is_cut_short_after_loading_is_refused(tmp_path: Path) -> None:
    model = load(saved(tmp_path))
    with (tmp_path / "w.bin").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(NnbridgeError, match=f"keeps its {WEIGHTS.nbytes} bytes while in use, found 100 bytes"):
        planned(model)


def test_external_data_that_is_shorter_than_stated_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    with (tmp_path / "w.bin").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(ConversionError, match="6144 bytes inside the file's 100"):
        load(path)


def as_exported(path: Path) -> None:
    """Takes the shape of the output from a file, and puts its nodes in another order than that of their computation."""
    model = onnx.load(path, load_external_data=False)
    model.graph.node.insert(0, helper.make_node("Relu", ["y"], ["z"]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None))
    path.write_bytes(model.SerializeToString())


def test_external_data_lies_beside_files_that_are_completed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "models"
    elsewhere.mkdir()
    folder.mkdir()
    path = saved(folder)
    as_exported(path)
    monkeypatch.chdir(elsewhere)
    row = np.ones((1, 48), np.float32)
    np.testing.assert_allclose(Execution(planned(load(path))).run([row])["z"], row @ WEIGHTS, rtol=1e-6)
    # What the current folder has under this name is not what is read.
    (folder / "w.bin").rename(tmp_path / "secret.bin")
    (folder / "w.bin").symlink_to(tmp_path / "secret.bin")
    (elsewhere / "w.bin").write_bytes(WEIGHTS.tobytes())
    with pytest.raises(ConversionError, match="symbolic link"):
        load(path)


def test_files_whose_path_is_not_utf_8_are_read_and_checked(tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    saved(tmp_path / "saved")
    folder = (tmp_path / "saved").rename(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    path = folder / "m.onnx"
    assert len(load(path).main.operations) == 1
    (folder / "w.bin").rename(folder / "secret.bin")
    (folder / "w.bin").symlink_to(folder / "secret.bin")
    with pytest.raises(ConversionError, match="symbolic link"):
        load(path)

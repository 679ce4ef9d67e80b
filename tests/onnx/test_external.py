"""Constants in other files: planning reads none of them, and a file that is cut short is refused."""

from __future__ import annotations

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

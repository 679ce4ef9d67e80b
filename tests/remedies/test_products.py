"""Products of transformers by one matrix."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnbridge import load
from nnbridge.compare import seeded_inputs
from nnbridge.compare.references import reference
from nnbridge.file import ModelFile
from tests.remedies.files import PHONE, advice, npu, onnx_file, products, same_bits, written
from tests.tflite.files import TfliteBuilder


@pytest.mark.parametrize(
    ("x", "weights"),
    [
        ([1, 32, 16], [(16, 8), (8, 4)]),
        ([2, 3, 4, 16], [(16, 8)]),
        ([1, 5, 16], [(1, 16, 8)]),
        ([7, 16], [(1, 16, 8)]),
        ([2, 3, 16], [(16, 1)]),
    ],
)
def test_products_by_one_matrix_run_on_a_device_of_two_dimensions(
    x: list[int], weights: list[tuple[int, ...]], tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    path = products(tmp_path / "products.onnx", x, *weights)
    found = advice(path, npu(tmp_path, "FULLY_CONNECTED", "RESHAPE", "RELU"))[0]
    title = f"{len(weights)} MatMul" if len(weights) > 1 else "0 MatMul"
    assert (found.text, found.kind) == (f"{title}: MatMul of two matrices, between Reshapes", "round")
    assert len(found.after.elsewhere) == 0 < len(found.before.elsewhere)
    assert same_bits("onnxruntime", path, written(found, tmp_path, ".onnx"))


def test_products_of_two_computed_batches_stay(tmp_path: Path) -> None:
    path = onnx_file(tmp_path / "a.onnx", [("MatMul", ["x", "x"], ["y"])], [2, 4, 4], [2, 4, 4], {})
    assert [one.text for one in ModelFile(path, PHONE).edits if one.index == 0] == []


@pytest.mark.parametrize("transposed", [False, True])
def test_a_batch_matmul_by_a_constant_matrix_becomes_fully_connected(transposed: bool, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    file, random = TfliteBuilder(), np.random.default_rng(0)
    x, y = file.tensor((2, 3, 8)), file.tensor((2, 3, 4))
    weights = file.constant(random.standard_normal((1, 4, 8) if transposed else (1, 8, 4)).astype(np.float32))
    file.operator("BATCH_MATMUL", [x, weights], [y], {"adj_x": False, "adj_y": transposed})
    path = file.write(tmp_path / "matmul.tflite", [x], [y])
    found = advice(path, npu(tmp_path, "FULLY_CONNECTED", "RESHAPE"))[0]
    assert (found.kind, len(found.after.elsewhere)) == ("round", 0)
    values, after = seeded_inputs(load(path), 0), written(found, tmp_path, ".tflite")
    one, other = (reference("litert", each).run(values)[0] for each in (path, after))
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dims", [(1,), ()])
def test_a_bias_of_one_element_is_written_for_each_channel(dims: tuple[int, ...], tmp_path: Path) -> None:
    """ONNX Runtime runs no convolution with the original: the judge is a file with the bias three times."""
    pytest.importorskip("onnxruntime")
    weights = np.random.default_rng(0).standard_normal((3, 2, 3, 3)).astype(np.float32)
    node = [("Conv", ["x", "w", "b"], ["y"], {"kernel_shape": [3, 3]})]
    paths = [
        onnx_file(tmp_path / f"{name}.onnx", node, [1, 2, 6, 6], [1, 3, 4, 4], {"w": weights, "b": bias})
        for name, bias in (("one", np.full(dims, 0.5, np.float32)), ("three", np.float32([0.5, 0.5, 0.5])))
    ]
    found = advice(paths[0], npu(tmp_path, "CONV_2D", "TRANSPOSE"))[0]
    assert (found.text, found.kind) == ("0 Conv: a bias for each output channel in place of one for all", "rewrite")
    assert len(found.after.elsewhere) == 0 < len(found.before.elsewhere)
    assert same_bits("onnxruntime", paths[1], written(found, tmp_path, ".onnx"))

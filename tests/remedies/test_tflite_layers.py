"""Layers of TFLite files with one scale, a bias, fewer dimensions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnbridge import load
from nnbridge.compare import seeded_inputs
from nnbridge.compare.references import reference
from nnbridge.errors import InputError
from nnbridge.file import ModelFile
from tests.remedies.files import PHONE, RELU, advice, npu, same_bits, written
from tests.tflite.files import TfliteBuilder
from tests.tflite.test_edits import call
from tests.tflite.test_varied import blocks


def dense(folder: Path, *, layers: int = 2, bias: bool = True) -> Path:
    """Int8 FULLY_CONNECTEDs with a scale for each unit, as today's converter writes them."""
    file, random = TfliteBuilder(), np.random.default_rng(0)
    data = first = file.tensor((1, 16), "int8", scale=0.05)
    for _ in range(layers):
        scales = [float(s) for s in np.float32(random.uniform(0.004, 0.008, 16))]
        weights = file.constant(random.integers(-127, 128, (16, 16)), "int8", scale=scales)
        steps = [float(np.float32(0.05) * np.float32(s)) for s in scales]
        added = file.constant(random.integers(-500, 500, 16), "int32", scale=steps) if bias else -1
        out = file.tensor((1, 16), "int8", scale=0.05)
        file.operator("FULLY_CONNECTED", [data, weights, added], [out], {"fused_activation_function": 0, "weights_format": 0}, 5)
        data = out
    return file.write(folder / "dense.tflite", [first], [data])


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_dense_layers_with_a_scale_for_each_unit_get_one_that_nnapi_builds(layers: int, bias: bool, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = dense(tmp_path, layers=layers, bias=bias)
    found = advice(path, npu(tmp_path, "FULLY_CONNECTED"))
    first = found[0]
    title = "0 FULLY_CONNECTED" if layers == 1 else f"{layers} FULLY_CONNECTED"
    assert (first.text, first.kind) == (f"{title}: one scale for the filter", "change")
    assert (first.before.standing, first.after.standing, len(first.after.elsewhere)) == (1, 0, 0)
    assert "_experimental_disable_per_channel_quantization_for_dense_layers" in first.converter
    after, model = written(first, tmp_path, ".tflite"), load(path)
    one, other = (reference("litert", file).run(seeded_inputs(model, 0))[0].astype(int) for file in (path, after))
    # Weights move by half a step of the largest scale at most: 16 products of inputs of up to 6.4.
    assert np.abs(one - other).max() <= 3 * layers


def test_rewrite_measures_what_an_edit_that_changes_results_does(tmp_path: Path) -> None:
    path, target, device = dense(tmp_path), tmp_path / "after.tflite", npu(tmp_path, "FULLY_CONNECTED")
    done = call("rewrite", str(path), "--device", device, "--advice", "1", "-o", str(target), "--inexact")
    (measured,) = done["deviations"].values()
    assert done["inputs"] == 10
    assert 0 < measured["rmse"] < 3
    assert measured["sqnr_db"] > 20


def test_a_hybrid_filter_gets_one_scale_and_its_bias_stays_float(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    file, random = TfliteBuilder(), np.random.default_rng(0)
    x, y = file.tensor((2, 16)), file.tensor((2, 4))
    weights = file.constant(random.integers(-127, 128, (4, 16)), "int8", scale=[0.01, 0.02, 0.015, 0.012])
    file.operator("FULLY_CONNECTED", [x, weights, file.constant(np.float32([1, 2, 3, 4]))], [y], {"weights_format": 0}, 5)
    path = file.write(tmp_path / "hybrid.tflite", [x], [y])
    (edit,) = (one for one in ModelFile(path, PHONE).edits if one.text == "one scale for the filter")
    after = tmp_path / "after.tflite"
    edit.content().write(after)
    values = seeded_inputs(load(path), 0)
    one, other = (reference("litert", file).run(values)[0] for file in (path, after))
    assert np.abs(one - other).max() < 0.05 * np.abs(one).max()


def test_a_convolution_without_bias_that_litert_does_not_load_gets_one(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    file = TfliteBuilder()
    x, y = file.tensor((1, 3, 3, 2), "int8", scale=0.5), file.tensor((1, 2, 2, 2), "int8", scale=2.0)
    filter = file.constant(np.arange(-8, 8).reshape(2, 2, 2, 2), "int8", scale=[0.25, 0.5])
    ones = dict.fromkeys(("stride_h", "stride_w", "dilation_h_factor", "dilation_w_factor"), 1)
    file.operator("CONV_2D", [x, filter], [y], {"padding": 1, **ones}, 3)
    path = file.write(tmp_path / "conv.tflite", [x], [y])
    values = {"t0": np.arange(18, dtype=np.int8).reshape(1, 3, 3, 2)}
    with pytest.raises(InputError, match="has_bias was not true"):
        reference("litert", path)
    (edit,) = (one for one in ModelFile(path, PHONE).edits if one.text == "a bias of zeros")
    after = tmp_path / "after.tflite"
    edit.content().write(after)
    # The first window is x = 0 1 2 3 6 7 8 9; its sum with -8 … -1 is -104, with 0 … 7 it is 184: -6.5 and 23 steps.
    assert reference("litert", after).run(values)[0][0, 0, 0].tolist() == [-7, 23]


def test_a_transpose_of_five_dimensions_that_nnapi_does_not_build_gets_three(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    file = TfliteBuilder()
    x, y = file.tensor((1, 4, 4, 2, 3)), file.tensor((1, 4, 4, 3, 2))
    file.operator("TRANSPOSE", [x, file.constant(np.int32([0, 1, 2, 4, 3]))], [y], {})
    path = file.write(tmp_path / "shuffle.tflite", [x], [y])
    first = advice(path, npu(tmp_path, "TRANSPOSE", "RESHAPE"))[0]
    # RESHAPE from and to five dimensions stays with TFLite.
    assert (first.kind, first.before.standing, first.after.standing, len(first.after.elsewhere)) == ("rewrite", 1, 0, 2)
    after = written(first, tmp_path, ".tflite")
    assert [len(one.outputs[0].shape) for one in ModelFile(after, PHONE).source_graph.operators] == [3, 3, 5]
    assert same_bits("litert", path, after)


@pytest.mark.parametrize("order", [(0, 3, 1, 2), (2, 0, 1, 3), (3, 2, 1, 0), (1, 0, 3, 2), (0, 1, 3, 2), (1, 2, 3, 0)])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 5), (2, 1, 1, 5)])
def test_a_transpose_of_fewer_dimensions_moves_elements_alike(
    order: tuple[int, ...], shape: tuple[int, ...], tmp_path: Path
) -> None:
    pytest.importorskip("ai_edge_litert")
    file = TfliteBuilder()
    x, y = file.tensor(shape), file.tensor([shape[axis] for axis in order])
    file.operator("TRANSPOSE", [x, file.constant(np.int32(order))], [y], {})
    path, after = file.write(tmp_path / "transpose.tflite", [x], [y]), tmp_path / "after.tflite"
    for edit in (one for one in ModelFile(path, PHONE).edits if "fewer dimensions" in one.text):
        edit.content().write(after)
        assert same_bits("litert", path, after, seeds=1)


@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"])
def test_a_bias_of_one_element_that_tflite_does_not_load_is_written_out(kind: str, tmp_path: Path) -> None:
    """Each output is the sum of one window: of an image of ones and weights of ones, with a bias of 3."""
    pytest.importorskip("ai_edge_litert")
    file, ones = TfliteBuilder(), dict.fromkeys(("stride_h", "stride_w", "dilation_h_factor", "dilation_w_factor"), 1)
    flat = kind == "FULLY_CONNECTED"
    x = file.tensor((1, 2) if flat else (1, 1, 1, 2))
    y = file.tensor((1, 4) if flat else (1, 1, 1, 4))
    sides = {"FULLY_CONNECTED": (4, 2), "DEPTHWISE_CONV_2D": (1, 1, 1, 4)}.get(kind, (4, 1, 1, 2))
    filter, bias = file.constant(np.ones(sides, np.float32)), file.constant(np.float32([3]))
    inputs = [x, filter, bias]
    options = {"weights_format": 0, **RELU} if flat else {"padding": 1, **ones, **RELU}
    if kind == "DEPTHWISE_CONV_2D":
        options["depth_multiplier"] = 2
    if kind == "TRANSPOSE_CONV":
        inputs = [file.constant(np.int32([1, 1, 1, 4])), filter, x, bias]
        options = {"padding": 1, "stride_h": 1, "stride_w": 1}
    file.operator(kind, inputs, [y], options, 3 if kind == "TRANSPOSE_CONV" else 1)
    path, target = file.write(tmp_path / "bias.tflite", [x], [y]), tmp_path / "after.tflite"
    device = npu(tmp_path, "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV_2D")
    first = advice(path, device)[0]
    assert (first.text, first.before.loads, first.after.standing) == (
        f"0 {kind}: a bias for each output channel in place of one for all",
        False,
        0,
    )
    done = call("rewrite", str(path), "--device", device, "--advice", "1", "-o", str(target))
    assert done["inputs"] == 0
    (found,) = reference("litert", target).run({"t0": np.ones((1, 2) if flat else (1, 1, 1, 2), np.float32)})
    assert found.ravel().tolist() == [4 if kind == "DEPTHWISE_CONV_2D" else 5] * 4


def test_weights_by_blocks_become_the_numbers_that_they_stand_for(tmp_path: Path) -> None:
    """[1, 2, 3, 4] and [7, -1, -2, -8] in blocks of two with scales of 0.5, 2, 1 and 0.25."""
    pytest.importorskip("ai_edge_litert")
    path = blocks(tmp_path)
    (found,) = (one for one in advice(path, npu(tmp_path, "FULLY_CONNECTED")) if "blocks" in one.text)
    assert (found.kind, len(found.before.elsewhere), len(found.after.elsewhere)) == ("change", 1, 0)
    (result,) = reference("litert", written(found, tmp_path, ".tflite")).run({"t0": np.float32([[1, 10, 100, 1000]])})
    assert result.tolist() == [[0.5 * 21 + 2 * 4300, -3 + 0.25 * -8200]]

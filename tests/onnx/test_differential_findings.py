"""Findings of random files beside ONNX Runtime, one case each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper, numpy_helper  # noqa: E402

from nnbridge_onnx import backend  # noqa: E402

RNG = np.random.default_rng(2)


def run(nodes: Any, inputs: list[np.ndarray], opset: int, constants: dict[str, np.ndarray] | None = None) -> np.ndarray:
    """The output ``y`` of nodes on ``x0``, ``x1``, ..."""
    nodes = nodes if isinstance(nodes, list) else [nodes]
    info = [
        helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for i, a in enumerate(inputs)
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "graph", info, [onnx.ValueInfoProto(name="y")], tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    (answer,) = backend.run_model(helper.make_model(graph, opset_imports=opsets), inputs)
    return np.asarray(answer)


@pytest.mark.parametrize(("padding", "size", "expected"), [({}, 6, [0, 3]), ({"auto_pad": "SAME_UPPER"}, 7, [0, 3, 6])])
def test_a_window_that_would_start_behind_the_input_is_left_out(
    padding: dict[str, Any], size: int, expected: list[float]
) -> None:
    node = helper.make_node("MaxPool", ["x0"], ["y"], kernel_shape=[1], strides=[3], ceil_mode=1, **padding)
    found = run(node, [np.arange(size, dtype=np.float32).reshape(1, 1, size)], 12)
    np.testing.assert_array_equal(found, [[expected]])


def test_a_scalar_is_gathered_by_one_index() -> None:
    node = helper.make_node("GatherND", ["x0", "i"], ["y"])
    found = run(node, [np.float32([3, 4, 5])], 13, {"i": np.array([1])})
    assert found.item() == 4


def test_hyperbolic_cosine_of_float16_does_not_overflow_before_its_result() -> None:
    found = run(helper.make_node("Cosh", ["x0"], ["y"]), [np.float16([11.5])], 13)
    np.testing.assert_allclose(found.astype(np.float64), np.cosh([11.5]), rtol=0.02)


@pytest.mark.parametrize(("operator", "opset"), [("Erf", 13), ("Gelu", 20)])
def test_zero_of_float16_stays_zero(operator: str, opset: int) -> None:
    np.testing.assert_array_equal(run(helper.make_node(operator, ["x0"], ["y"]), [np.float16([0, 0])], opset), [0, 0])


def test_an_output_scale_that_is_almost_the_inputs_is_another_one() -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["x0", "s", "z"], ["a"]),
        helper.make_node("GlobalAveragePool", ["a"], ["b"]),
        helper.make_node("QuantizeLinear", ["b", "t", "z"], ["y"]),
    ]
    constants = {"s": np.float32(0.999999), "t": np.float32(1), "z": np.array(128, np.uint8)}
    constants = {name: np.asarray(array) for name, array in constants.items()}
    found = run(nodes, [np.arange(8, dtype=np.uint8).reshape(2, 1, 2, 2) + 100], 17, constants)
    np.testing.assert_array_equal(found.ravel(), [102, 106])  # 101.5 and 105.5


def test_a_transposed_fused_product() -> None:
    a, b = RNG.normal(size=(4, 2)).astype(np.float32), RNG.normal(size=(3, 4)).astype(np.float32)
    node = helper.make_node("FusedMatMul", ["x0", "x1"], ["y"], domain="com.microsoft", transA=1, transB=1, alpha=0.5)
    np.testing.assert_allclose(run(node, [a, b], 17), a.T @ b.T / 2, rtol=1e-4, atol=1e-5)


def test_skip_normalisation_before_opset_17() -> None:
    a, b, scale, bias = (RNG.normal(size=size).astype(np.float32) for size in ((1, 3, 4), (1, 3, 4), (4,), (4,)))
    node = helper.make_node("SkipLayerNormalization", [f"x{i}" for i in range(4)], ["y"], domain="com.microsoft", epsilon=0.1)
    moved = a + b - (a + b).mean(-1, keepdims=True)
    expected = moved / np.sqrt((moved**2).mean(-1, keepdims=True) + 0.1) * scale + bias
    np.testing.assert_allclose(run(node, [a, b, scale, bias], 13), expected, rtol=1e-4, atol=1e-5)


def test_a_layer_over_sequences_of_their_own_lengths_ends_with_zeros() -> None:
    weights = {name: RNG.normal(size=(1, 2, n)).astype(np.float32) for name, n in (("w", 3), ("r", 2))}
    node = helper.make_node("RNN", ["x0", "w", "r", "", "n"], ["y"], hidden_size=2)
    found = run(node, [RNG.normal(size=(3, 2, 3)).astype(np.float32)], 14, {**weights, "n": np.array([3, 1], np.int32)})
    assert found[:, 0, 0].all()
    assert not found[1:, 0, 1].any()


def test_truth_values_whose_order_a_transposition_keeps_are_transposed() -> None:
    found = run(helper.make_node("Transpose", ["x0"], ["y"], perm=[0, 3, 1, 2]), [np.array([[[[True, False]]]])], 7)
    assert found.tolist() == [[[[True]], [[False]]]]


@pytest.mark.parametrize("name", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(("size", "stride"), [(3, 2), (4, 3), (3, 1), (2, 2)])
def test_a_pooling_window_beyond_the_image_is_onnx_runtime_s(name: str, size: int, stride: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    node = helper.make_node(name, ["x0"], ["y"], kernel_shape=[4], strides=[stride])
    data = np.abs(RNG.normal(size=(1, 2, size))).astype(np.float32)
    info = [helper.make_tensor_value_info("x0", 1, data.shape)]
    graph = helper.make_graph([node], "graph", info, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=8)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x0": data})[0]
    found = run(node, [data], 12)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["Conv", "MaxPool"])
def test_a_window_that_no_image_holds_is_refused_by_its_sizes(name: str) -> None:
    node = helper.make_node(name, ["x0", "w"] if name == "Conv" else ["x0"], ["y"], kernel_shape=[4])
    with pytest.raises(Exception, match="a window that fits into the padded image, found 4 in 2"):
        run(node, [np.zeros((1, 1, 2), np.float32)], 12, {"w": np.zeros((1, 1, 4), np.float32)} if name == "Conv" else {})


def test_near_numbers_are_normalised_in_groups_without_losing_digits() -> None:
    # Of [-1.3112545, -1.2848958], in float64 by hand; the mean of squares less the square of the mean is 1e-4 off.
    node = helper.make_node("GroupNormalization", ["x0", "s", "b"], ["y"], num_groups=1)
    constants = {"s": np.float32([0.2740211]), "b": np.float32([-0.5809608])}
    found = run(node, [np.float32([-1.3112545, -1.2848958]).reshape(1, 1, 1, 2)], 21, constants)
    np.testing.assert_allclose(found.reshape(-1), [-0.847419, -0.314503], atol=3e-6)


@pytest.mark.parametrize(("axis", "mask", "expected"), [(None, [0, 1, 1, 0], [-1, -2]), (1, [0, 0, 1], [[-2], [-5]])])
def test_a_compress_before_opset_11_needs_no_stated_type(axis: int | None, mask: list[int], expected: list[Any]) -> None:
    chosen = helper.make_node("Compress", ["x0", "x1"], ["c"], **({} if axis is None else {"axis": axis}))
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = run([chosen, helper.make_node("Neg", ["c"], ["y"])], [data, np.array(mask, bool)], 9)
    np.testing.assert_array_equal(found, expected)

"""Kernels of our own for the host, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from nnbridge.engines.onnx_session import open_session  # noqa: E402
from nnbridge_onnx import backend  # noqa: E402
from nnbridge_onnx.declaration import REGISTRY  # noqa: E402
from nnbridge_onnx.host.evaluator import HostCall, HostNode  # noqa: E402
from nnbridge_onnx.host.extension import encoded  # noqa: E402
from tests.conftest import requires_recent_onnx_runtime  # noqa: E402

helper = onnx.helper
RNG = np.random.default_rng(0)


def real(*dims: int) -> np.ndarray:
    return RNG.standard_normal(dims).astype(np.float32)


def half(*dims: int) -> np.ndarray:
    """Random numbers of 16 bits."""
    return real(*dims).astype(np.float16)


def ties(*dims: int) -> np.ndarray:
    """Few different numbers, so that order among equal ones shows."""
    return RNG.integers(0, 4, dims).astype(np.float32)


def boxes(count: int) -> np.ndarray:
    corner = RNG.random((2, count, 2)).astype(np.float32)
    return np.concatenate([corner, corner + 0.3 * RNG.random((2, count, 2)).astype(np.float32)], axis=-1)


def regions(count: int) -> np.ndarray:
    """Left, top, right, bottom; some reach outside."""
    corner = RNG.uniform(-2, 5, (count, 2))
    return np.concatenate([corner, corner + RNG.uniform(0.5, 5, (count, 2))], axis=1).astype(np.float32)


def layer(gates: int) -> list[np.ndarray]:
    """Inputs of a recurrent layer of 4 units over 5 steps of 3 numbers, for sequences of 5 and 2 steps, with a state."""
    weights = [real(1, gates * 4, 3), real(1, gates * 4, 4), real(1, gates * 8)]
    return [real(5, 2, 3), *weights, np.array([5, 2], np.int32), real(1, 2, 4)]


def quantised(data: np.ndarray) -> list[np.ndarray]:
    """Inputs of a QLinearConv of 3 channels, with a scale for each."""
    byte = (data * 30 + 100).clip(0, 255).astype(np.uint8)
    weights = RNG.integers(-128, 128, (3, data.shape[1], 2, 2, 2)).astype(np.int8)
    scales = np.float32([0.02, 0.03, 0.01])
    points = [np.array(90, np.uint8), np.zeros(3, np.int8), np.array(128, np.uint8)]
    return [byte, np.array(0.1, np.float32), points[0], weights, scales, points[1], np.array(2, np.float32), points[2]]


DEFORMED = {"group": 2, "offset_group": 2, "pads": [1, 0, 1, 0]}
LIMITS = [np.array([5]), np.array([0.3], np.float32), np.array([0.2], np.float32)]
NOTHING = np.zeros(0, np.float32)
CASES: list[tuple[str, list[Any], dict[str, Any], int, int]] = [
    ("GatherElements", [real(5, 6), RNG.integers(-6, 6, (5, 9))], {"axis": 1}, 1, 17),
    ("GatherElements", [real(5, 6, 2), RNG.integers(-5, 5, (3, 6, 2))], {}, 1, 17),
    ("OneHot", [np.array([[0, -1], [2, 7]], np.int64), np.float32([4]), np.array([2, 5], np.int32)], {}, 1, 17),
    ("OneHot", [np.float32([0, 3, -4, -5]), np.float32([4]), np.float32([0, 1])], {"axis": 0}, 1, 17),
    ("OneHot", [np.array([[0, 1]], np.int32), np.array([3], np.int32), np.float32([-1, 1])], {"axis": 1}, 1, 11),
    ("TopK", [ties(3, 20), np.array([7])], {}, 2, 17),
    ("TopK", [ties(20, 3), np.array([7])], {"axis": 0, "largest": 0}, 2, 17),
    ("TopK", [RNG.integers(0, 9, (4, 9)), np.array([3])], {}, 2, 17),
    ("NonMaxSuppression", [boxes(60), RNG.random((2, 3, 60)).astype(np.float32), *LIMITS], {}, 1, 17),
    ("NonMaxSuppression", [boxes(60), ties(2, 3, 60) / 4, *LIMITS], {"center_point_box": 1}, 1, 17),
    ("NonMaxSuppression", [boxes(20)[..., [2, 1, 0, 3]], ties(2, 1, 20) / 4, *LIMITS[:2]], {}, 1, 17),
    ("NonMaxSuppression", [boxes(20), ties(2, 1, 20)], {}, 1, 17),
    (
        "MaxPool",
        [real(2, 3, 9, 10)],
        {"kernel_shape": [3, 2], "dilations": [2, 3], "strides": [2, 1], "pads": [1, 0, 2, 1]},
        1,
        17,
    ),
    ("MaxPool", [real(1, 2, 5, 6, 7)], {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2], "ceil_mode": 1}, 1, 17),
    ("MaxPool", [real(1, 2, 11)], {"kernel_shape": [3], "strides": [2], "auto_pad": "SAME_LOWER"}, 1, 17),
    ("AveragePool", [real(1, 2, 5, 6, 7)], {"kernel_shape": [2, 3, 2], "pads": [0, 1, 1, 1, 1, 0]}, 1, 17),
    ("AveragePool", [real(1, 2, 7, 8)], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, 1, 22),
    (
        "AveragePool",
        [real(1, 2, 8, 8)],
        {"kernel_shape": [3, 3], "strides": [3, 3], "pads": [1, 1, 0, 0], "ceil_mode": 1, "count_include_pad": 1},
        1,
        22,
    ),
    ("LpPool", [real(1, 2, 7, 8)], {"kernel_shape": [3, 2], "p": 3, "strides": [2, 1]}, 1, 18),
    *(
        ("GridSample", [real(2, 3, 5, 6), 1.5 * real(2, 4, 7, 2)], {"mode": m, "padding_mode": p, "align_corners": a}, 1, 16)
        for m in ("bilinear", "nearest")
        for p in ("zeros", "border", "reflection")
        for a in (0, 1)
    ),
    ("GridSample", [real(1, 2, 4, 5, 6), real(1, 2, 3, 4, 3)], {}, 1, 20),
    ("RoiAlign", [real(2, 3, 9, 8), regions(6), np.array([0, 1, 1, 0, 0, 1])], {"output_height": 3, "output_width": 2}, 1, 16),
    (
        "RoiAlign",
        [real(1, 3, 9, 8), regions(4), np.zeros(4, np.int64)],
        {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.5},
        1,
        10,
    ),
    ("DeformConv", [real(2, 4, 7, 6), real(6, 2, 3, 2), real(2, 24, 7, 5), real(6)], DEFORMED, 1, 19),
    ("DeformConv", [real(1, 2, 6, 6), real(3, 2, 2, 2), real(1, 8, 3, 3), real(3), real(1, 4, 3, 3)], {"strides": [2, 2]}, 1, 19),
    ("Conv", [real(2, 4, 5, 6, 7), real(6, 2, 3, 2, 2), real(6)], {"group": 2, "pads": [1, 0, 1, 0, 1, 0]}, 1, 17),
    ("Conv", [real(1, 4, 15), real(4, 1, 3)], {"group": 4, "strides": [2], "auto_pad": "SAME_UPPER"}, 1, 17),
    ("Conv", [real(1, 3, 9, 8), real(5, 3, 3, 2)], {"strides": [2, 3], "dilations": [1, 2]}, 1, 17),
    ("MaxPool", [real(2, 3, 7)], {"kernel_shape": [3], "pads": [1, 1]}, 2, 17),
    ("MaxPool", [real(2, 3, 5, 6)], {"kernel_shape": [2, 3], "strides": [2, 1], "storage_order": 1}, 2, 17),
    ("GridSample", [real(1, 2, 3, 4), real(1, 2, 3, 2)], {"mode": "bicubic", "padding_mode": "border"}, 1, 16),
    ("GlobalMaxPool", [real(2, 3, 4, 5, 6)], {}, 1, 17),
    ("GlobalLpPool", [real(2, 3, 5)], {"p": 3}, 1, 17),
    ("MaxRoiPool", [real(2, 3, 9, 8), np.float32([[1, 0, 1, 5, 7], [0, 3, 2, 3, 2]])], {"pooled_shape": [2, 3]}, 1, 17),
    ("Det", [real(3, 4, 4)], {}, 1, 17),
    ("Mean", [real(3, 1, 2), real(4, 1), real()], {}, 1, 17),
    ("Softsign", [real()], {}, 1, 17),
    ("Softmax", [real(2, 3, 4)], {"axis": -2}, 1, 11),
    ("LogSoftmax", [real(2, 3, 4)], {}, 1, 11),
    ("Hardmax", [real(2, 3, 4)], {"axis": 1}, 1, 11),
    ("Hardmax", [real(2, 3, 4)], {"axis": 1}, 1, 13),
    ("ReduceLogSum", [np.abs(real(2, 3, 4)), np.array([-1, 0])], {"keepdims": 0}, 1, 18),
    ("ReduceLogSumExp", [real(2, 3, 4)], {"axes": [1]}, 1, 13),
    ("ReduceLogSum", [np.abs(real(2, 3))], {"noop_with_empty_axes": 1}, 1, 18),
    ("LpNormalization", [real(2, 3, 4)], {"axis": 1, "p": 1}, 1, 17),
    ("MeanVarianceNormalization", [real(2, 3, 4, 5)], {}, 1, 13),
    ("LRN", [real(2, 6, 4, 3)], {"size": 3, "alpha": 0.5}, 1, 13),
    ("Unsqueeze", [real(2, 3)], {"axes": [2, 0]}, 1, 11),
    ("Squeeze", [real(1, 3, 2, 1)], {"axes": [-4, 3]}, 1, 12),
    ("Slice", [real(3, 4), *(np.array(v) for v in ([-5, -1], [-9, 9], [0, 1], [-2, 1]))], {}, 1, 13),
    ("Slice", [real(3, 4)], {"starts": [1], "ends": [9], "axes": [-1]}, 1, 9),
    ("Pad", [real(3, 4), np.array([1, -1, 0, 2]), np.array(7, np.float32)], {}, 1, 13),
    ("Pad", [real(3, 4)], {"pads": [0, 1, 1, 2], "mode": "reflect"}, 1, 7),
    ("Unique", [RNG.integers(0, 5, (9,))], {"sorted": 0}, 4, 17),
    ("Unique", [np.array([[3, 1, 3], [2, 0, 2]])], {"sorted": 0, "axis": 1}, 1, 17),
    ("Upsample", [real(1, 2, 3, 4)], {"scales": [1.0, 1.0, 2.0, 1.5], "mode": "linear"}, 1, 7),
    ("Resize", [real(2, 3), np.float32([1.5, 2])], {}, 1, 10),
    *(
        (
            "Resize",
            [real(1, 1, 3, 5), NOTHING, np.float32([1, 1, 0.5, 0.3])],
            {"coordinate_transformation_mode": rule, **more},
            1,
            19,
        )
        for rule in ("pytorch_half_pixel", "half_pixel_symmetric", "asymmetric")
        for more in (
            {"mode": "nearest", "nearest_mode": "ceil"},
            {"mode": "linear"},
            {"mode": "linear", "antialias": 1},
            {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5},
        )
    ),
    ("ConvTranspose", [real(2, 4, 3, 4, 2), real(4, 2, 2, 3, 1), real(4)], {"group": 2, "strides": [2, 1, 3]}, 1, 17),
    ("ConvTranspose", [real(1, 2, 5), real(2, 3, 3)], {"strides": [2], "auto_pad": "SAME_LOWER"}, 1, 17),
    ("QLinearConv", quantised(real(1, 2, 3, 4, 5)), {"pads": [1, 0, 1, 0, 0, 1]}, 1, 17),
    *(
        (operator, layer(gates), {"direction": way, "hidden_size": 4, **more}, outputs, 14)
        for operator, gates, outputs, more in (
            ("RNN", 1, 2, {"activations": ["LeakyRelu"], "activation_alpha": [0.3]}),
            ("GRU", 3, 2, {"activations": ["HardSigmoid", "Softsign"]}),
            ("GRU", 3, 2, {"linear_before_reset": 1, "clip": 0.4}),
            ("LSTM", 4, 3, {"activations": ["Sigmoid", "Tanh", "Relu"]}),
            ("LSTM", 4, 3, {"input_forget": 1}),
        )
        for way in ("forward", "reverse")
    ),
    *(
        (loss, [real(2, 3, 4), np.int64([[0, 1, 2, 1], [2, 2, 0, 0]]), *weights], {"reduction": reduction, **ignored}, 1, 13)
        for loss in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
        for weights in ([], [np.float32([0.5, 2, 1])])
        for reduction in ("none", "sum", "mean")
        for ignored in ({}, {"ignore_index": 2})
    ),
    ("SoftmaxCrossEntropyLoss", [real(2, 3), np.int64([0, 2])], {}, 2, 13),
    ("SoftmaxCrossEntropyLoss", [np.float32([[0, 300, -300]]), np.int64([2])], {}, 1, 13),
    ("CumSum", [real(2, 3), np.int32([1])], {"reverse": 1}, 1, 14),
    ("CumProd", [real(2, 3), np.int32([-2])], {"exclusive": 1}, 1, 26),
    ("Flatten", [real(0, 3, 2)], {"axis": -1}, 1, 13),
    ("GlobalAveragePool", [real(0, 3, 2, 2)], {}, 1, 13),
]


RECENT = ("CumProd", "DeformConv", "ReduceLogSum")
"""What ONNX Runtime before 1.24 does not run in each of these forms."""


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "count", "opset"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)]
)
def test_kernels_agree_with_onnx_runtime(
    operator: str, inputs: list[np.ndarray], attributes: dict[str, Any], count: int, opset: int
) -> None:
    if operator in RECENT:
        requires_recent_onnx_runtime()
    names = [f"i{n}" for n in range(len(inputs))]
    node = helper.make_node(operator, names, [f"o{n}" for n in range(count)], **attributes)
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, inputs, strict=True)
    ]
    graph = helper.make_graph([node], "graph", infos, [onnx.ValueInfoProto(name=name) for name in node.output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    session = open_session(model.SerializeToString())
    feeds = dict(zip(names, inputs, strict=True))
    expected = session.run(None, feeds)
    prepared = HostNode({"op": operator, "domain": "", "opset": opset, "node": encoded(node), "types": {}})
    kernel = REGISTRY[operator].kernel
    assert kernel is not None
    answers = kernel(HostCall(prepared, feeds))
    assert answers is not None
    for got, other in zip(answers, expected, strict=True):
        assert got.dtype == other.dtype
        np.testing.assert_allclose(got, other, rtol=1e-5, atol=1e-5)


def test_every_kernel_is_tested() -> None:
    # These are the evaluator's, brought into a form that it computes rightly: the backend suite tests them.
    evaluated = {"Attention", "Cast", "CastLike", "If", "Loop", "Scan", "Split"}
    random = {"Bernoulli", "Multinomial"}  # tests/onnx/test_repair.py
    assert {case[0] for case in CASES} == {definition.name for definition in REGISTRY if definition.kernel} - evaluated - random


def test_a_gemm_s_column_of_biases_differs_for_each_row() -> None:
    node = helper.make_node("Gemm", ["x", "w", "c"], ["y"])
    inputs = [np.float32([[1, 2], [3, 4]]), np.eye(2, dtype=np.float32), np.float32([[10], [20]])]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 2])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 2])],
        [onnx.numpy_helper.from_array(array, name) for array, name in zip(inputs[1:], "wc", strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert backend.run_model(model, inputs[:1])[0].tolist() == [[11.0, 12.0], [23.0, 24.0]]

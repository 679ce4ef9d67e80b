"""Operators of float16 and bfloat16 on the host: computed in float32, rounded once."""

from __future__ import annotations

import base64
from collections import Counter
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
pytest.importorskip("ml_dtypes")

import ml_dtypes
from onnx import TensorProto, helper

from nnbridge_onnx.host.evaluator import HostNode
from tests.conftest import requires_recent_onnx_runtime
from tests.onnx.halves import operators, ordered, verdicts

IMAGE = np.full((1, 1, 256, 256), 1.5, np.float16)
MANY = np.full((1, 2), 40000, np.float16)


def host(operator: str, *inputs: Any, opset: int = 17, outputs: int = 1, **attributes: Any) -> list[Any]:
    """The host's results for a node."""
    names = [f"i{i}" for i in range(len(inputs))]
    node = helper.make_node(operator, names, [f"o{i}" for i in range(outputs)], **attributes)
    types = {name: int(helper.np_dtype_to_tensor_dtype(array.dtype)) for name, array in zip(names, inputs, strict=True)}
    encoded = base64.b64encode(node.SerializeToString()).decode()
    prepared = HostNode({"op": operator, "domain": "", "opset": opset, "node": encoded, "types": types})
    return list(prepared.run(dict(zip(names, inputs, strict=True))))


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_every_operator_is_within_a_unit_of_onnx_runtime_or_of_float64(half: str) -> None:
    requires_recent_onnx_runtime()
    found = list(verdicts(range(3), 7, operators(half), half))
    assert [verdict for verdict in found if verdict.outcome in ("differs", "fails")] == []
    assert Counter(verdict.outcome for verdict in found)["equal"] > 300


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "opset", "expected"),
    [
        ("ReduceMean", [IMAGE], {"axes": [2, 3]}, 13, 1.5),  # The sum is 98,304.
        ("ReduceL2", [IMAGE], {"axes": [2, 3]}, 13, 384),
        ("ReduceSumSquare", [np.float16([256, 0.5])], {}, 13, np.inf),
        ("AveragePool", [IMAGE], {"kernel_shape": [256, 256]}, 17, 1.5),
        ("LpPool", [IMAGE], {"kernel_shape": [256, 256]}, 18, 384),
        ("GlobalLpPool", [IMAGE], {}, 17, 384),
        ("Mean", [MANY, MANY, MANY], {}, 13, 40000),
        ("Sum", [MANY, -MANY, MANY], {}, 13, 40000),
        ("MatMul", [np.full((1, 4096), 4, np.float16), np.full((4096, 1), 2, np.float16)], {}, 13, 32768),
        ("Gemm", [MANY, np.full((2, 1), 0.75, np.float16)], {}, 13, 60000),
        ("LpNormalization", [np.full((1, 4), 30000, np.float16)], {"axis": 1}, 17, 0.5),
        ("Softmax", [np.zeros((1, 4096), np.float16)], {}, 17, 1 / 4096),
        ("CumSum", [np.full(4097, 0.5, np.float16), np.int64(0)], {}, 14, None),
    ],
)
def test_sums_are_of_float32(operator: str, inputs: list[Any], attributes: dict[str, Any], opset: int, expected: Any) -> None:
    (found,) = host(operator, *inputs, opset=opset, **attributes)
    assert found.dtype == np.float16
    assert found.flat[-1] == (np.float16(2048.5) if expected is None else np.float16(expected))


def test_statistics_stay_float32_where_the_operator_says_so() -> None:
    x = np.float16([[1, 2, 3, 4]])
    y, mean, deviation = host("LayerNormalization", x, np.ones(4, np.float16), outputs=3)
    assert (y.dtype, mean.dtype, deviation.dtype) == (np.float16, np.float32, np.float32)


def test_what_depends_on_the_type_of_an_input_sees_it() -> None:
    assert host("CastLike", np.float32([0.1]), np.float16([0]), opset=19)[0].dtype == np.float16
    assert host("EyeLike", np.zeros((2, 2), np.float16), opset=9)[0].dtype == np.float16
    assert host("Cast", np.float16([0.1]), to=TensorProto.STRING)[0].tolist() == ["0.099975586"]  # as ONNX Runtime writes it
    assert host("DequantizeLinear", np.int8([3]), np.float16(0.5), opset=23)[0].dtype == np.float16
    rounded = host("DequantizeLinear", np.int8([3]), np.float16(0.5), opset=23, output_dtype=TensorProto.FLOAT)[0]
    assert rounded.dtype == np.float32


def test_units_in_the_last_place_are_counted_over_zero() -> None:
    numbers = np.float16([-6e-8, -0.0, 0.0, 6e-8, 1.0, 1.001])
    assert ordered(numbers).tolist() == [-1, 0, 0, 1, 0x3C00, 0x3C01]


def test_a_sum_of_bfloat16_is_rounded_once() -> None:
    one, small = ml_dtypes.bfloat16(1), ml_dtypes.bfloat16(2.0**-9)
    (found,) = host("ReduceSum", np.array([one, *[small] * 256]), opset=13, keepdims=0)
    assert found.dtype == ml_dtypes.bfloat16
    assert float(found) == 1.5  # Each small number is less than half of the last place of 1.


def test_a_cross_entropy_whose_softmax_vanishes_is_finite() -> None:
    scores = np.float32([[0, 200], [0, 2000]])
    (losses,) = host("SoftmaxCrossEntropyLoss", scores, np.int64([0, 0]), opset=13, reduction="none")
    assert losses.tolist() == [200, 2000]

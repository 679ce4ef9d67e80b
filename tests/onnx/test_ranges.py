"""Functions of one number over the whole range of float32, beside ONNX Runtime: small results lose no digits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, helper

from nnbridge.engines.onnx_session import open_session
from tests.differential import computed

SIZES = np.concatenate([10.0 ** np.arange(-36, 37), np.linspace(0.1, 20, 97), np.linspace(20, 84, 61), [0]])
NUMBERS = np.concatenate([-SIZES[::-1], SIZES]).astype(np.float32)
LARGEST = float(np.finfo(np.float32).max)
"""Where NNAPI's sums, products and quotients end; ONNX Runtime's are infinite."""
LOST = 1e-7
"""What functions that begin at 0 like x may lose of 1: exp(x) - 1 of NNAPI's ELU, and ONNX Runtime's logistic function."""


def both(tmp_path: Path, operators: tuple[str, ...], x: Any, mapping: str) -> tuple[Any, Any]:
    """A chain's outputs here and in ONNX Runtime."""
    names = ["x", *(f"v{i}" for i in range(len(operators)))]
    nodes = [helper.make_node(operator, [a], [b]) for operator, a, b in zip(operators, names[:-1], names[1:], strict=True)]
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in (names[0], names[-1])]
    model = helper.make_model(
        helper.make_graph(nodes, "g", kinds[:1], kinds[1:]), opset_imports=[helper.make_opsetid("", 22)], ir_version=10
    )
    onnx.save(model, tmp_path / "m.onnx")
    ((ours,), _) = computed(tmp_path / "m.onnx", mapping, [x])
    return ours, open_session(model.SerializeToString()).run(None, {"x": x})[0]


def bounded(numbers: Any) -> Any:
    return np.clip(numbers, -LARGEST, LARGEST)


@pytest.mark.parametrize("mapping", ["wide", "provider"])
@pytest.mark.parametrize(
    "operator",
    [
        "Softplus",
        "Mish",
        "Sinh",
        "Cosh",
        "Erf",
        "Tanh",
        "Asinh",
        "Atan",
        "Exp",
        "Reciprocal",
        "Softsign",
        "HardSwish",
        "Floor",
        "Ceil",
    ],
)
def test_results_of_any_size_agree(tmp_path: Path, operator: str, mapping: str) -> None:
    ours, theirs = both(tmp_path, (operator,), NUMBERS, mapping)
    np.testing.assert_allclose(bounded(ours), bounded(theirs), rtol=2e-6, atol=1e-37)


@pytest.mark.parametrize("mapping", ["wide", "provider"])
@pytest.mark.parametrize("operator", ["Cos", "Sin", "Elu", "Selu", "Celu", "Sigmoid", "Gelu"])
def test_results_agree_to_a_ten_millionth_of_one(tmp_path: Path, operator: str, mapping: str) -> None:
    ours, theirs = both(tmp_path, (operator,), NUMBERS, mapping)
    np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=4 * LOST)


@pytest.mark.parametrize(
    "operators", [("Softplus", "Log"), ("Mish", "Abs", "Log"), ("Erf", "Abs", "Log"), ("Sinh", "Abs", "Log")]
)
def test_logarithms_of_small_results_agree(tmp_path: Path, operators: tuple[str, ...]) -> None:
    x = np.linspace(-80, -0.001, 200, dtype=np.float32)
    ours, theirs = both(tmp_path, operators, x, "wide")
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("operator", "low", "high"), [("Softplus", 0, 3e38), ("Mish", 0, 3e38), ("Erf", -1, 1), ("Sinh", -LARGEST, LARGEST)]
)
def test_the_largest_numbers_have_results(tmp_path: Path, operator: str, low: float, high: float) -> None:
    ours, _ = both(tmp_path, (operator,), np.float32([-3e38, 3e38]), "wide")
    assert bounded(ours).tolist() == np.float32([low, high]).tolist()

"""Operations after convolutions and matrix products become part of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.file import load
from nnbridge.types import FuseCode, OperationCode
from tests.onnx.test_convert import agrees, model
from tests.tflite.shared import FOLDER, real_model

onnx = pytest.importorskip("onnx")
make = onnx.helper.make_node
C = OperationCode
RNG = np.random.default_rng(7)


def numbers(*shape: int) -> np.ndarray:
    """Seeded factors around 1."""
    return (1 + 0.3 * RNG.normal(size=shape)).astype(np.float32)


def normalisation(source: str, target: str, count: int) -> tuple[Any, dict[str, np.ndarray]]:
    """A batch normalisation and its constants."""
    node = make("BatchNormalization", [source, "s", "o", "m", "v"], [target], epsilon=1e-3)
    return node, {"s": numbers(count), "o": numbers(count), "m": numbers(count), "v": numbers(count) ** 2 + 0.1}


def codes(path: Path) -> list[int]:
    """The operations of a conversion."""
    return [operation.type for operation in load(path).main.operations]


PRODUCTS: dict[str, tuple[Any, dict[str, np.ndarray], list[int], int, OperationCode]] = {
    "conv": (make("Conv", ["x", "w", "b"], ["p"]), {"w": numbers(6, 4, 2, 2), "b": numbers(6)}, [1, 4, 5, 5], 6, C.CONV_2D),
    "depthwise": (make("Conv", ["x", "w"], ["p"], group=4), {"w": numbers(8, 1, 2, 2)}, [1, 4, 5, 5], 8, C.DEPTHWISE_CONV_2D),
    "transposed": (
        make("ConvTranspose", ["x", "w"], ["p"], strides=[2, 2]), {"w": numbers(4, 3, 2, 2)}, [1, 4, 5, 5], 3,
        C.TRANSPOSE_CONV_2D,
    ),
    "gemm": (
        make("Gemm", ["x", "w", "b"], ["p"], alpha=0.5, beta=2.0, transB=1),
        {"w": numbers(6, 4), "b": numbers(6)}, [3, 4], 6, C.FULLY_CONNECTED,
    ),
    "matmul": (make("MatMul", ["x", "w"], ["p"]), {"w": numbers(4, 6)}, [3, 4], 6, C.FULLY_CONNECTED),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_batch_normalisation_goes_into_the_product_before_it(name: str, tmp_path: Path) -> None:
    product, constants, dims, count, code = PRODUCTS[name]
    node, more = normalisation("p", "y", count)
    path = model(tmp_path, [product, node], dims, {**constants, **more})
    assert [c for c in codes(path) if c != C.TRANSPOSE] == [code]
    assert agrees(path)


def test_products_sums_and_an_activation_go_into_a_convolution(tmp_path: Path) -> None:
    nodes = [
        make("Conv", ["x", "w"], ["a"]),
        make("Mul", ["a", "f"], ["b"]),
        make("Sub", ["o", "b"], ["c"]),
        make("Div", ["c", "d"], ["e"]),
        make("Clip", ["e", "low", "high"], ["y"]),
    ]
    constants = {"w": numbers(6, 4, 1, 1), "f": numbers(6, 1, 1), "o": numbers(1, 6, 1, 1), "d": np.float32([2.5])}
    bounds = {"low": np.array(0, np.float32), "high": np.array(6, np.float32)}
    path = model(tmp_path, nodes, [1, 4, 3, 3], {**constants, **bounds})
    converted = load(path)
    (conv,) = (o for o in converted.main.operations if o.type == C.CONV_2D)
    assert Counter(codes(path)) == {C.TRANSPOSE: 2, C.CONV_2D: 1}
    assert int(converted.value(converted.main.operands[conv.inputs[9]])) == FuseCode.RELU6
    assert agrees(path)


def test_a_constant_that_varies_along_the_image_stays_an_operation(tmp_path: Path) -> None:
    nodes = [make("Conv", ["x", "w"], ["a"]), make("Add", ["a", "o"], ["y"])]
    path = model(tmp_path, nodes, [1, 4, 3, 3], {"w": numbers(6, 4, 1, 1), "o": numbers(6, 3, 3)})
    assert C.ADD in codes(path)
    assert agrees(path)


def test_what_is_read_twice_stays_an_operation(tmp_path: Path) -> None:
    nodes = [make("Conv", ["x", "w"], ["a"]), make("Relu", ["a"], ["r"]), make("Add", ["a", "r"], ["y"])]
    path = model(tmp_path, nodes, [1, 4, 3, 3], {"w": numbers(6, 4, 1, 1)})
    assert {C.RELU, C.ADD} <= set(codes(path))
    assert agrees(path)


def test_a_factor_that_makes_weights_infinite_stays_an_operation(tmp_path: Path) -> None:
    nodes = [make("Conv", ["x", "w"], ["a"]), make("Mul", ["a", "f"], ["y"])]
    path = model(tmp_path, nodes, [1, 1, 3, 3], {"w": np.float32([[[[1e30]]]]), "f": np.float32([1e30])})
    assert C.MUL in codes(path)


def test_an_activation_goes_into_a_residual_sum(tmp_path: Path) -> None:
    nodes = [make("Conv", ["x", "w"], ["a"]), make("Add", ["a", "x"], ["s"]), make("Relu", ["s"], ["y"])]
    path = model(tmp_path, nodes, [1, 4, 3, 3], {"w": numbers(4, 4, 1, 1)})
    assert C.RELU not in codes(path)
    assert agrees(path)


def test_the_same_network_from_either_format_has_the_same_operations() -> None:
    twin = FOLDER.parent / "onnx" / "ultraface_rfb_320.onnx"
    other = Counter(codes(real_model("ultraface_rfb_320")))
    found = Counter(codes(twin))
    # The other file pads, spreads and scales by operations of their own, and takes images with channels last.
    extra = {C.PAD, C.SPACE_TO_BATCH_ND, C.BATCH_TO_SPACE_ND, C.MUL, C.ADD, C.TRANSPOSE}
    assert {c: n for c, n in found.items() if c not in extra} == {c: n for c, n in other.items() if c not in extra}
    assert (found[C.MUL], found[C.ADD], found[C.TRANSPOSE]) == (0, 1, 1)


def test_a_matrix_product_turns_its_second_operand_itself(tmp_path: Path) -> None:
    nodes = [make("Transpose", ["x"], ["t"], perm=[0, 2, 1]), make("MatMul", ["x", "t"], ["y"])]
    path = model(tmp_path, nodes, [2, 3, 4], {})
    assert codes(path) == [C.BATCH_MATMUL]
    assert agrees(path)


def test_a_mean_over_an_image_without_its_axes_reads_it_as_it_is(tmp_path: Path) -> None:
    nodes = [make("Conv", ["x", "w"], ["a"]), make("ReduceMean", ["a"], ["y"], axes=[2, 3], keepdims=0)]
    path = model(tmp_path, nodes, [1, 4, 3, 3], {"w": numbers(6, 4, 1, 1)})
    assert Counter(codes(path)) == {C.TRANSPOSE: 1, C.CONV_2D: 1, C.MEAN: 1}
    assert agrees(path)

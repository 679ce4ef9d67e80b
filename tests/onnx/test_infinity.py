"""Infinity, at which NNAPI's ADD, SUB, MUL and DIV do not arrive: they end at the largest number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnbridge import Compilation, Execution
from nnbridge.converters import ConversionOptions
from nnbridge.converters.mapping import MappingKind

onnx = pytest.importorskip("onnx")

from nnbridge_onnx.passes.conversion import convert_proto  # noqa: E402

helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT
LARGEST = np.finfo(np.float32).max
MASK = np.float32([0, -np.inf])


def file(nodes: list[tuple[str, str, str]], type: int = FLOAT) -> Any:
    """Nodes ``(operator, inputs, output)`` from x to y, both of two numbers, with the constant ``mask``."""
    graph = helper.make_graph(
        [helper.make_node(operator, inputs.split(), [output]) for operator, inputs, output in nodes],
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, [2])],
        [helper.make_tensor_value_info("y", type, [2])],
        [onnx.numpy_helper.from_array(MASK, "mask")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def answer(proto: Any, mapping: str = "wide") -> tuple[str, list[Any]]:
    """The mapping of the first node, and the file's results for 1 and 3e38."""
    model, _, mapped = convert_proto(proto, ConversionOptions(mapping=mapping))
    compilation = Compilation.create(model, [])
    compilation.finish()
    found = Execution(compilation).run([np.float32([1, 3e38])])
    return next(one.mapping.value for one in mapped if one.operator in ("Add", "Mul")), found["y"].tolist()


def test_a_masked_number_that_the_file_outputs_is_infinite() -> None:
    assert answer(file([("Add", "x mask", "y")])) == ("host", [1, -np.inf])


@pytest.mark.parametrize("question", ["IsInf", "IsNaN"])
def test_sums_of_which_a_file_asks_whether_they_are_infinite_are(question: str) -> None:
    nodes = [("Add", "x x", "s"), (question, "s", "y")]
    assert answer(file(nodes, onnx.TensorProto.BOOL)) == ("host", [False, question == "IsInf"])


def test_a_sum_that_is_compared_with_infinity_is_infinite() -> None:
    nodes = [("Add", "x mask", "s"), ("Equal", "s mask", "y")]
    assert answer(file(nodes, onnx.TensorProto.BOOL)) == ("host", [False, True])


def test_scores_behind_a_mask_stay_with_nnapi() -> None:
    assert answer(file([("Add", "x mask", "s"), ("Softmax", "s", "y")])) == ("wide", [1, 0])


def test_the_phone_ends_at_the_largest_number() -> None:
    assert answer(file([("Add", "x mask", "y")]), "provider") == (MappingKind.PROVIDER.value, [1, -LARGEST])


def test_products_that_nothing_asks_of_end_at_the_largest_number() -> None:
    assert answer(file([("Mul", "x x", "y")])) == ("wide", [1, LARGEST])

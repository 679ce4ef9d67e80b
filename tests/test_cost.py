"""Costs of plans: multiply-adds by hand and by published figures, bytes across borders, peak memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nnbridge import Compilation, Model, load
from nnbridge.builder import ModelBuilder
from nnbridge.converters import ConversionOptions
from nnbridge.cost import PlanCost, cost_of
from nnbridge.operations import definitions
from nnbridge.types import OperandCode, OperationCode
from tests.conftest import MODELS
from tests.graphs import unary_chain
from tests.tflite.shared import real_model

DOCUMENT = (Path(__file__).parents[1] / "docs" / "cost.md").read_text(encoding="utf-8")


def cost(model: Model, *devices: str) -> PlanCost:
    compilation = Compilation.create(model, devices)
    compilation.finish()
    return cost_of(compilation.plan)


def one(code: OperationCode, tensors: list[tuple[int, ...]], scalars: list[int], out: tuple[int, ...]) -> Model:
    """One float operation on inputs of these dimensions, then INT32 scalars."""
    builder = ModelBuilder()
    inputs = [builder.add_operand(OperandCode.TENSOR_FLOAT32, dims) for dims in tensors]
    numbers = []
    for value in scalars:
        numbers.append(builder.add_operand(OperandCode.INT32))
        builder.set_operand_value(numbers[-1], value)
    output = builder.add_operand(OperandCode.TENSOR_FLOAT32, out)
    builder.add_operation(code, [*inputs, *numbers], [output])
    builder.identify_inputs_and_outputs(inputs, [output])
    return builder.finish()


@pytest.mark.parametrize(
    ("code", "tensors", "scalars", "out", "expected"),
    [
        # 4 x 4 positions of 5 channels, each a sum over 3 x 3 x 2
        (OperationCode.CONV_2D, [(1, 4, 4, 2), (5, 3, 3, 2), (5,)], [1, 1, 1, 0], (1, 4, 4, 5), 4 * 4 * 5 * 3 * 3 * 2),
        # SAME padding, stride 2: 2 x 2 positions of 6 channels, 3 x 3 each
        (OperationCode.DEPTHWISE_CONV_2D, [(1, 4, 4, 2), (1, 3, 3, 6), (6,)], [1, 2, 2, 3, 0], (1, 2, 2, 6), 2 * 2 * 6 * 9),
        (OperationCode.FULLY_CONNECTED, [(2, 7), (3, 7), (3,)], [0], (2, 3), 2 * 3 * 7),
        (OperationCode.ADD, [(2, 7), (2, 7)], [0], (2, 7), 0),
    ],
)
def test_multiply_adds_are_those_counted_by_hand(
    code: OperationCode, tensors: list[tuple[int, ...]], scalars: list[int], out: tuple[int, ...], expected: int
) -> None:
    assert cost(one(code, tensors, scalars, out)).multiply_adds == expected


@pytest.mark.parametrize(
    ("name", "millions", "parameters"),
    # TensorFlow's lists of MobileNet v1 and v2 models: millions of multiply-adds and of parameters
    [("mobilenet_v1_0.25_224_float", 41, 0.47), ("mobilenet_v2_1.0_224_quant", 300, 3.47)],
)
def test_networks_cost_what_was_published_with_them(name: str, millions: float, parameters: float) -> None:
    found = cost(load(real_model(name)))
    assert found.multiply_adds == pytest.approx(millions * 1e6, rel=0.01)
    assert found.parameters == pytest.approx(parameters * 1e6, rel=0.01)


def test_an_lstm_multiplies_all_its_matrices_at_each_step() -> None:
    # 28 steps of 28 numbers, 20 units: four gates of 20 x 28 and 20 x 20; then 10 classes over 28 x 20 states
    for options in (ConversionOptions(), ConversionOptions(1, "phone")):  # on NNAPI, and on the host
        found = cost(load(real_model("mnist_lstm_float"), options)).operations
        assert [o.multiply_adds for o in found if o.multiply_adds] == [28 * 4 * 20 * (28 + 20), 10 * 28 * 20]


@pytest.mark.parametrize("name", ["digits_int8.tflite", "digits_dynamic.tflite", "digits_qdq.onnx", "digits_float32.onnx"])
def test_multiply_adds_on_the_host_are_those_of_the_same_operators_on_nnapi(name: str) -> None:
    # Int8 files, hybrid ones and ONNX's came with later feature levels: at level 1 the host has them.
    if name.endswith(".onnx"):
        pytest.importorskip("onnx")
    old, wide = load(MODELS / name, ConversionOptions(1, "phone")), load(MODELS / name, ConversionOptions(mapping="wide"))
    assert any(old.extension_of(operation.type) for operation in old.main.operations)
    assert cost(old).multiply_adds == cost(wide).multiply_adds


def test_two_values_live_at_once_between_three_unary_operations() -> None:
    # Each value of 4 floats is rounded up to 64 bytes; the second is written while the first is read.
    assert cost(unary_chain(OperationCode.RELU, OperationCode.RELU, OperationCode.RELU)).peak_bytes == 128


def test_what_crosses_between_steps_is_counted_in_bytes() -> None:
    model = load(real_model("mobilenet_v1_0.25_224_float"))
    found = cost(model, "nnapi-sample_minimal")
    assert len(found.steps) > 2
    assert found.crossing_bytes == sum(step.outputs.bytes or 0 for step in found.steps[:-1])
    assert cost(model).crossing_bytes == 0


def test_the_document_has_every_formula() -> None:
    rows = re.findall(r"^\| ([A-Z0-9_, ]+) \| (.+) \|$", DOCUMENT, re.MULTILINE)
    documented = {name: text for names, text in rows for name in names.split(", ")}
    assert documented == {one.name: one.work.text for one in definitions().values() if one.work is not None}

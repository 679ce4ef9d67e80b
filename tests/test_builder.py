"""ModelBuilder: NNAPI's construction protocol and its refusals (ModelBuilder.cpp, ANeuralNetworksModel_*)."""

from __future__ import annotations

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.errors import BadDataError, BadStateError
from nnbridge.model import Pool
from nnbridge.types import Lifetime, OperandCode, OperationCode
from tests.graphs import FLOAT, unary_chain

ADD, FLOOR, CONV = OperationCode.ADD, OperationCode.FLOOR, OperationCode.CONV_2D
INT32 = OperandCode.INT32


def test_small_values_are_copied_at_once_and_large_ones_read_at_finish() -> None:
    builder = ModelBuilder()
    small, large = np.zeros(32, np.float32), np.zeros(33, np.float32)
    for name, value in (("small", small), ("large", large)):
        x = builder.add_operand(FLOAT, value.shape, name=f"{name} x")
        c = builder.add_operand(FLOAT, value.shape, name=name)
        builder.set_operand_value(c, value)
        none = builder.add_operand(INT32)
        builder.set_operand_value(none, 0)
        y = builder.add_operand(FLOAT, value.shape, name=f"{name} y")
        builder.add_operation(ADD, [x, c, none], [y])
    small[:] = large[:] = 7
    builder.identify_inputs_and_outputs([0, 4], [3, 7])
    model = builder.finish()
    values = {o.name: (o.lifetime, model.value(o)) for o in model.main.operands if o.name in ("small", "large")}
    # 32 floats are 128 bytes, the most that is copied when it is set.
    assert values["small"][0] is Lifetime.CONSTANT_COPY
    assert values["large"][0] is Lifetime.CONSTANT_REFERENCE
    np.testing.assert_array_equal(values["small"][1], 0)
    np.testing.assert_array_equal(values["large"][1], 7)


def test_large_values_start_at_multiples_of_64_bytes() -> None:
    builder = ModelBuilder()
    total = x = builder.add_operand(FLOAT, (40,))
    none = builder.add_operand(INT32)
    builder.set_operand_value(none, 0)
    for _ in range(3):
        c = builder.add_operand(FLOAT, (40,))
        builder.set_operand_value(c, np.ones(40, np.float32))
        made = builder.add_operand(FLOAT, (40,))
        builder.add_operation(ADD, [total, c, none], [made])
        total = made
    builder.identify_inputs_and_outputs([x], [total])
    model = builder.finish()
    offsets = [o.location.offset for o in model.main.operands if o.lifetime is Lifetime.CONSTANT_REFERENCE]
    assert offsets == [0, 192, 384]  # 160 bytes each, rounded up


def test_values_from_memory_are_not_copied() -> None:
    data = np.arange(64, dtype=np.float32)
    pool = Pool.of(data)
    builder = ModelBuilder()
    x = builder.add_operand(FLOAT, (64,))
    c = builder.add_operand(FLOAT, (64,), name="c")
    builder.set_operand_value_from_memory(c, pool, 0, 256)
    none = builder.add_operand(INT32)
    builder.set_operand_value(none, 0)
    y = builder.add_operand(FLOAT, (64,))
    builder.add_operation(ADD, [x, c, none], [y])
    builder.identify_inputs_and_outputs([x], [y])
    model = builder.finish()
    value = model.value(next(o for o in model.main.operands if o.name == "c"))
    assert value is not None
    assert np.shares_memory(value, data)
    assert not value.flags.writeable


def test_run_order_takes_the_last_ready_operation_first() -> None:
    # A and B are independent, C reads A's output: Android's stack gives B, A, C.
    builder = ModelBuilder()
    x = builder.add_operand(FLOAT, (2,))
    a, b, c = (builder.add_operand(FLOAT, (2,)) for _ in range(3))
    builder.add_operation(FLOOR, [x], [a], name="A")
    builder.add_operation(FLOOR, [x], [b], name="B")
    builder.add_operation(FLOOR, [a], [c], name="C")
    builder.identify_inputs_and_outputs([x], [b, c])
    model = builder.finish()
    assert [o.name for o in model.main.operations] == ["B", "A", "C"]
    assert builder.run_order == (1, 0, 2)


def test_operations_may_be_added_before_their_inputs_are_produced() -> None:
    builder = ModelBuilder()
    x, t, y = (builder.add_operand(FLOAT, (2,)) for _ in range(3))
    builder.add_operation(FLOOR, [t], [y], name="second")
    builder.add_operation(FLOOR, [x], [t], name="first")
    builder.identify_inputs_and_outputs([x], [y])
    assert [o.name for o in builder.finish().main.operations] == ["first", "second"]


def test_a_cycle_is_bad_data_and_makes_the_builder_invalid() -> None:
    builder = ModelBuilder()
    x, a, b = (builder.add_operand(FLOAT, (2,)) for _ in range(3))
    builder.add_operation(FLOOR, [a], [b])
    builder.add_operation(FLOOR, [b], [a])
    builder.identify_inputs_and_outputs([x], [b])
    with pytest.raises(BadDataError):
        builder.finish()
    with pytest.raises(BadStateError):
        builder.finish()


def test_every_change_after_finish_is_bad_state() -> None:
    builder = ModelBuilder()
    x, y = builder.add_operand(FLOAT, (2,)), builder.add_operand(FLOAT, (2,))
    builder.add_operation(FLOOR, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    builder.finish()
    for change in (
        lambda: builder.add_operand(FLOAT, (2,)),
        lambda: builder.set_operand_value(x, np.zeros(2, np.float32)),
        lambda: builder.add_operation(FLOOR, [x], [y]),
        lambda: builder.identify_inputs_and_outputs([x], [y]),
        lambda: builder.relax_computation_float32_to_float16(True),
        builder.finish,
    ):
        with pytest.raises(BadStateError):
            change()


@pytest.mark.parametrize(
    ("kind", "dims", "scale", "zero_point"),
    [
        (OperandCode.INT32, (1,), 0.0, 0),  # a scalar has no dimensions
        (OperandCode.TENSOR_QUANT8_ASYMM, (2,), 0.0, 0),  # a scale is needed
        (OperandCode.TENSOR_QUANT8_ASYMM, (2,), 1.0, 256),
        (OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, (2,), 1.0, 128),
        (OperandCode.TENSOR_QUANT16_SYMM, (2,), 1.0, 1),
        (OperandCode.TENSOR_FLOAT32, (2,), 1.0, 0),  # no scale is allowed
        (OperandCode.TENSOR_FLOAT32, (65536, 65536), 0.0, 0),  # 2**34 bytes
        (OperandCode.TENSOR_FLOAT32, (-1,), 0.0, 0),
        (9999, (2,), 0.0, 0),
    ],
)
def test_operands_that_cannot_be(kind: int, dims: tuple[int, ...], scale: float, zero_point: int) -> None:
    with pytest.raises(BadDataError):
        ModelBuilder().add_operand(kind, dims, scale=scale, zero_point=zero_point)


def test_a_value_of_wrong_length_names_what_was_expected() -> None:
    builder = ModelBuilder()
    x = builder.add_operand(FLOAT, (3,), name="weights")
    with pytest.raises(BadDataError, match=r"weights: expected 12 bytes for TENSOR_FLOAT32\[3\], found 8 bytes"):
        builder.set_operand_value(x, np.zeros(2, np.float32))


def test_a_constant_needs_known_dimensions() -> None:
    builder = ModelBuilder()
    x = builder.add_operand(FLOAT, (0, 3))
    with pytest.raises(BadDataError):
        builder.set_operand_value(x, np.zeros(3, np.float32))


def test_an_operand_is_written_once() -> None:
    builder = ModelBuilder()
    x, y = builder.add_operand(FLOAT, (2,)), builder.add_operand(FLOAT, (2,))
    builder.add_operation(FLOOR, [x], [y])
    builder.add_operation(FLOOR, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    with pytest.raises(BadDataError):
        builder.finish()


def test_an_operand_has_one_role() -> None:
    builder = ModelBuilder()
    x = builder.add_operand(FLOAT, (2,))
    with pytest.raises(BadDataError):
        builder.identify_inputs_and_outputs([x, x], [])


def test_a_model_without_operations_is_bad_data() -> None:
    builder = ModelBuilder()
    x = builder.add_operand(FLOAT, (2,))
    builder.identify_inputs_and_outputs([x], [])
    with pytest.raises(BadDataError):
        builder.finish()


def test_an_operation_that_fits_no_signature_is_named_with_operand_and_types() -> None:
    builder = ModelBuilder()
    x, y = builder.add_operand(OperandCode.TENSOR_INT32, (2,)), builder.add_operand(FLOAT, (2,))
    with pytest.raises(BadDataError, match="FLOOR input: expected TENSOR_FLOAT16 or TENSOR_FLOAT32, found TENSOR_INT32"):
        builder.add_operation(FLOOR, [x], [y])


def test_per_channel_scales_count_as_the_channel_dimension() -> None:
    builder = ModelBuilder()
    w = builder.add_operand(OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, (2, 1, 1, 3))
    with pytest.raises(BadDataError, match="2 scales, found 3"):
        builder.set_operand_symm_per_channel_quant_params(w, [1.0, 1.0, 1.0], 0)
    builder.set_operand_symm_per_channel_quant_params(w, [1.0, 0.5], 0)


def test_trailing_defaults_are_dropped_so_that_older_devices_can_run_it() -> None:
    # Implicit padding with the layout flag false and both dilations 1: 10 inputs become 7.
    builder = ModelBuilder()
    x = builder.add_operand(FLOAT, (1, 4, 4, 1))
    w, b = builder.add_operand(FLOAT, (1, 1, 1, 1)), builder.add_operand(FLOAT, (1,))
    builder.set_operand_value(w, np.ones((1, 1, 1, 1), np.float32))
    builder.set_operand_value(b, np.zeros(1, np.float32))
    numbers = []
    for value in (1, 1, 1, 0):
        numbers.append(builder.add_operand(INT32))
        builder.set_operand_value(numbers[-1], value)
    flag = builder.add_operand(OperandCode.BOOL)
    builder.set_operand_value(flag, False)
    ones = numbers[1]
    y = builder.add_operand(FLOAT, (1, 4, 4, 1))
    builder.add_operation(CONV, [x, w, b, *numbers, flag, ones, ones], [y])
    builder.identify_inputs_and_outputs([x], [y])
    assert len(builder.finish().main.operations[0].inputs) == 7


def test_operands_that_nothing_uses_are_gone_from_the_devices_view() -> None:
    builder = ModelBuilder()
    x, unused, y = (builder.add_operand(FLOAT, (2,)) for _ in range(3))
    builder.set_operand_value(unused, np.zeros(2, np.float32))
    builder.add_operation(FLOOR, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    model = builder.finish()
    assert len(model.main.operands) == 2
    assert (model.main.inputs, model.main.outputs) == ((0,), (1,))


def test_control_flow_needs_matching_models() -> None:
    body = unary_chain(FLOOR, dims=(2,))
    builder = ModelBuilder()
    condition = builder.add_operand(OperandCode.TENSOR_BOOL8, (1,))
    then, otherwise = builder.add_operand(OperandCode.MODEL), builder.add_operand(OperandCode.MODEL)
    builder.set_operand_value_from_model(then, body)
    x, y = builder.add_operand(FLOAT, (3,)), builder.add_operand(FLOAT, (3,))
    with pytest.raises(BadDataError, match="a model set as value"):
        builder.add_operation(OperationCode.IF, [condition, then, otherwise, x], [y])
    builder.set_operand_value_from_model(otherwise, body)
    with pytest.raises(BadDataError, match=r"then inputs\[0\]"):
        builder.add_operation(OperationCode.IF, [condition, then, otherwise, x], [y])


def test_a_loop_whose_models_are_not_set_is_refused() -> None:
    builder = ModelBuilder()
    models = [builder.add_operand(OperandCode.MODEL) for _ in range(2)]
    x, y = (builder.add_operand(FLOAT, (1,)) for _ in range(2))
    with pytest.raises(BadDataError, match="WHILE operand 0: expected a model set as value"):
        builder.add_operation(OperationCode.WHILE, [*models, x], [y])

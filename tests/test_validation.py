"""Feature levels and refusals of finished models."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.errors import Reason
from nnbridge.model import Location, Model, Operand, Pool, Subgraph
from nnbridge.operations.validation import is_sound, validate_model, validate_operand, validate_operation
from nnbridge.runtime.placement import required_level
from nnbridge.types import Lifetime, OperandCode, OperationCode
from tests.graphs import unary_chain


def test_a_models_level_is_the_highest_of_its_operations() -> None:
    # FLOOR is of level 1, ABS of level 3.
    assert validate_model(unary_chain(OperationCode.FLOOR)).level == 1
    assert validate_model(unary_chain(OperationCode.FLOOR, OperationCode.ABS)).level == 3
    assert required_level(unary_chain(OperationCode.FLOOR, OperationCode.ABS)) == 3


def test_relaxed_models_need_no_higher_level() -> None:
    assert validate_model(unary_chain(OperationCode.FLOOR, relaxed=True)).level == 1


def test_an_unknown_rank_needs_level_3() -> None:
    builder = ModelBuilder()
    x, y = builder.add_operand(OperandCode.TENSOR_FLOAT32), builder.add_operand(OperandCode.TENSOR_FLOAT32)
    builder.add_operation(OperationCode.FLOOR, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    assert validate_model(builder.finish()).level == 3


def test_signed_8_bit_data_needs_level_4() -> None:
    builder = ModelBuilder()
    quant = {"scale": 0.5, "zero_point": -3}
    x = builder.add_operand(OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, (2,), **quant)
    y = builder.add_operand(OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, (2,), **quant)
    builder.add_operation(OperationCode.RELU, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    assert validate_model(builder.finish()).level == 4


def test_a_reason_says_operation_operand_rule_and_what_was_found() -> None:
    model = unary_chain(OperationCode.FLOOR)
    operation = replace(model.main.operations[0], inputs=(0, 0))
    verdict = validate_operation(operation, model.main.operands)
    assert verdict.reason == Reason("1 inputs", "2", "FLOOR")
    assert not verdict.valid


@pytest.mark.parametrize("lifetime", Lifetime)
def test_the_quick_look_accepts_no_operand_that_has_a_fault(lifetime: Lifetime) -> None:
    model = Model(Subgraph((), (), (), ()), operand_values=bytes(8), pools=(Pool.of(bytes(16)),))
    accepted = 0
    codes = (OperandCode.INT32, OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_INT32, 77)
    dims, places = ((), (0,), (2,), (2, 2)), (*range(-1, 3), 8, 12)
    for code, shape, scale, zero, pool, offset, length in product(
        codes, dims, (0.0, 0.5), (0, 300), (0, 1), places, (0, 2, 4, 8)
    ):
        operand = Operand(code, shape, scale, zero, None, lifetime, Location(pool, offset, length))
        if is_sound(operand, 8, [16]):
            accepted += 1
            assert validate_operand(operand, 0, model) is None
    assert (accepted > 0) == (lifetime is not Lifetime.SUBGRAPH)

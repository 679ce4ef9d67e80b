"""Operations, inputs and outputs of a model: facts M28 to M38 of Android's runtime (ModelBuilder.cpp), by number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.errors import BadDataError, NnapiError
from nnbridge.extensions import TYPES
from nnbridge.runtime.execution import Execution
from nnbridge.types import Lifetime, OperandCode, OperationCode
from tests.graphs import FLOAT, unary_chain
from tests.runtime.test_facts_building import complete, conditional, half_built, lifetimes, on_cpu

ADD, FLOOR, OEM = OperationCode.ADD, OperationCode.FLOOR, OperationCode.OEM_OPERATION
INT32 = OperandCode.INT32
EXTENSION = "com.example.facts"


# -- addOperation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [-1, 107, 9999, 10001, 0x7FFF0000])
def test_m28_unknown_operations(code: int) -> None:
    with pytest.raises(BadDataError):
        half_built().add_operation(code, [0], [1])


def test_m28_m33_of_an_extensions_operation_only_the_prefix_and_the_indexes_are_checked() -> None:
    builder = half_built()
    builder.add_operation(TYPES.code(EXTENSION, 0xABC), [0, 0, 1], [1, 0])
    builder.add_operation(TYPES.code(EXTENSION, 0xABC), [], [])
    with pytest.raises(BadDataError):
        builder.add_operation(TYPES.code(EXTENSION, 0xABC), [2], [1])


def test_m28_of_the_oem_operation_only_the_indexes_are_checked() -> None:
    builder = half_built()
    builder.add_operation(OEM, [0, 0], [])
    with pytest.raises(BadDataError):
        builder.add_operation(OEM, [0], [2])


@pytest.mark.parametrize(("inputs", "outputs"), [([0, 0], [1]), ([0], []), ([0], [1, 1]), ([], [1]), ([2], [1]), ([0], [2])])
def test_m29_the_signature_is_checked_at_once(inputs: list[int], outputs: list[int]) -> None:
    builder = half_built()
    builder.add_operand(INT32)
    with pytest.raises(BadDataError):
        builder.add_operation(FLOOR, inputs, outputs)


def test_m30_values_are_looked_at_when_computing() -> None:
    builder = ModelBuilder()
    x, activation, y = builder.add_operand(FLOAT, (2,)), builder.add_operand(INT32), builder.add_operand(FLOAT, (2,))
    builder.set_operand_value(activation, 99)
    builder.add_operation(ADD, [x, x, activation], [y])
    builder.identify_inputs_and_outputs([x], [y])
    compilation = on_cpu(builder.finish())
    with pytest.raises(NnapiError, match="99"):
        Execution(compilation).run([np.zeros(2, np.float32)])


@pytest.mark.parametrize(("code", "fits"), [(FLOAT, True), (INT32, False)])
def test_m31_an_omitted_operand_has_the_type_of_a_present_one(code: int, fits: bool) -> None:
    """The bias of FULLY_CONNECTED cannot be left out, but its type is checked whether it has a value or not."""
    builder = ModelBuilder()
    dims: tuple[int, ...] = () if code == INT32 else (2,)
    x, w, b = builder.add_operand(FLOAT, (1, 2)), builder.add_operand(FLOAT, (2, 2)), builder.add_operand(code, dims)
    builder.set_operand_value(b, None)
    none, y = builder.add_operand(INT32), builder.add_operand(FLOAT, (1, 2))
    if fits:
        assert builder.add_operation(OperationCode.FULLY_CONNECTED, [x, w, b, none], [y]) == 0
        return
    with pytest.raises(BadDataError):
        builder.add_operation(OperationCode.FULLY_CONNECTED, [x, w, b, none], [y])


def test_m32_control_flow_needs_its_models_first() -> None:
    body = unary_chain(FLOOR)
    assert conditional(body, body).finish().main.operations[0].type == OperationCode.IF
    with pytest.raises(BadDataError):
        conditional(body, body, first="operation")


# -- inputs and outputs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("inputs", "outputs"), [([2], [1]), ([0], [2]), ([-1], [1])])
def test_m35_named_operands_exist(inputs: list[int], outputs: list[int]) -> None:
    with pytest.raises(BadDataError):
        half_built().identify_inputs_and_outputs(inputs, outputs)


def constant_named(builder: ModelBuilder) -> None:
    builder.set_operand_value(0, bytes(8))
    builder.identify_inputs_and_outputs([0], [1])


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda b: b.identify_inputs_and_outputs([0], [1, 0]), id="input is output"),
        pytest.param(lambda b: b.identify_inputs_and_outputs([0, 1], [1]), id="output is input"),
        pytest.param(lambda b: b.identify_inputs_and_outputs([0, 0], [1]), id="duplicate inputs"),
        pytest.param(lambda b: b.identify_inputs_and_outputs([0], [1, 1]), id="duplicate outputs"),
        pytest.param(constant_named, id="a constant"),
    ],
)
def test_m35_each_operand_has_one_role(call: Callable[[ModelBuilder], None]) -> None:
    with pytest.raises(BadDataError):
        call(half_built())


def test_m35_what_was_named_before_a_refusal_stays_named() -> None:
    builder = half_built()
    with pytest.raises(BadDataError):
        builder.identify_inputs_and_outputs([0], [1, 1])
    with pytest.raises(BadDataError):
        builder.identify_inputs_and_outputs([0], [1])


def test_m36_a_second_list_does_not_take_back_the_first() -> None:
    builder = half_built()
    builder.identify_inputs_and_outputs([0], [])
    builder.identify_inputs_and_outputs([], [1])
    with pytest.raises(BadDataError):
        builder.finish()


def test_m37_lists_may_be_empty() -> None:
    builder = half_built()
    builder.set_operand_value(0, bytes(8))
    builder.identify_inputs_and_outputs([], [])
    assert lifetimes(builder.finish()) == [Lifetime.CONSTANT_COPY, Lifetime.TEMPORARY_VARIABLE]


def test_m37_what_is_read_has_a_value_or_a_writer() -> None:
    builder = half_built()
    builder.identify_inputs_and_outputs([], [1])
    with pytest.raises(BadDataError):
        builder.finish()


@pytest.mark.parametrize(("calls", "relaxed"), [([], False), ([True], True), ([True, False], False), ([False, True], True)])
def test_m38_the_last_relaxation_counts(calls: list[bool], relaxed: bool) -> None:
    builder = complete()
    for allow in calls:
        builder.relax_computation_float32_to_float16(allow)
    assert builder.finish().relaxed is relaxed

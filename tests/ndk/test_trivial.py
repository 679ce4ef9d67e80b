"""Counterparts of Android's TestTrivialModel.cpp, TestWrapper.cpp and TestFree.cpp, through the NDK's functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from nnbridge import ndk
from nnbridge.ndk import OperandType
from nnbridge.types import OperandCode, OperationCode, ResultCode

ADD, MUL = OperationCode.ADD, OperationCode.MUL
FLOAT, INT32 = OperandCode.TENSOR_FLOAT32, OperandCode.INT32
MATRIX1 = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
MATRIX2 = 100 * MATRIX1
MATRIX2B = np.float32([100, 200, 300, 400])
MATRIX3 = np.float32([[20, 30, 40, 50], [21, 22, 23, 24], [31, 32, 33, 34]])
EXPECTED2 = [[101, 202, 303, 404], [505, 606, 707, 808], [909, 1010, 1111, 1212]]
EXPECTED2B = [[101, 202, 303, 404], [105, 206, 307, 408], [109, 210, 311, 412]]
EXPECTED2C = [[100, 400, 900, 1600], [500, 1200, 2100, 3200], [900, 2000, 3300, 4800]]
EXPECTED3 = [[121, 232, 343, 454], [526, 628, 730, 832], [940, 1042, 1144, 1246]]
EXPECTED3B = [[22, 34, 46, 58], [31, 34, 37, 40], [49, 52, 55, 58]]


def operands(*types: OperandType) -> int:
    """A model with these operands and an activation of none behind them."""
    model = int(ndk.ANeuralNetworksModel_create()[1])
    for type in (*types, OperandType(INT32)):
        assert ndk.ANeuralNetworksModel_addOperand(model, type) == 0
    assert ndk.ANeuralNetworksModel_setOperandValue(model, len(types), bytes(4)) == 0
    return model


def finished(model: int, inputs: Sequence[int], outputs: Sequence[int]) -> int:
    assert ndk.ANeuralNetworksModel_identifyInputsAndOutputs(model, inputs, outputs) == 0
    assert ndk.ANeuralNetworksModel_finish(model) == 0
    return model


def two(code: int, dims: tuple[int, ...] = (3, 4), other: tuple[int, ...] = (3, 4)) -> int:
    model = operands(OperandType(FLOAT, dims), OperandType(FLOAT, other), OperandType(FLOAT, dims))
    assert ndk.ANeuralNetworksModel_addOperation(model, code, [0, 1, 3], [2]) == 0
    return finished(model, [0, 1], [2])


def three() -> int:
    """The second input plus the first, plus a constant."""
    model = operands(*[OperandType(FLOAT, (3, 4))] * 5)
    assert ndk.ANeuralNetworksModel_setOperandValue(model, 4, MATRIX3) == 0
    assert ndk.ANeuralNetworksModel_addOperation(model, ADD, [0, 2, 5], [1]) == 0
    assert ndk.ANeuralNetworksModel_addOperation(model, ADD, [1, 4, 5], [3]) == 0
    return finished(model, [2, 0], [3])


def compiled(model: int) -> int:
    compilation = int(ndk.ANeuralNetworksCompilation_create(model)[1])
    assert ndk.ANeuralNetworksCompilation_finish(compilation) == 0
    return compilation


def bound(compilation: int, inputs: Sequence[Any], output: Any) -> int:
    execution = int(ndk.ANeuralNetworksExecution_create(compilation)[1])
    for i, value in enumerate(inputs):
        assert ndk.ANeuralNetworksExecution_setInput(execution, i, None, value) == 0
    assert ndk.ANeuralNetworksExecution_setOutput(execution, 0, None, output) == 0
    return execution


def computed(model: int, *inputs: Any) -> Any:
    output = np.zeros((3, 4), np.float32)
    assert ndk.ANeuralNetworksExecution_compute(bound(compiled(model), inputs, output)) == 0
    return output


def test_add_two() -> None:
    np.testing.assert_array_equal(computed(two(ADD), MATRIX1, MATRIX2), EXPECTED2)


def test_add_three() -> None:
    model = three()
    np.testing.assert_array_equal(computed(model, MATRIX1, MATRIX2), EXPECTED3)
    np.testing.assert_array_equal(computed(model, MATRIX1, MATRIX1), EXPECTED3B)


def test_fenced_add_three() -> None:
    compilation = compiled(three())
    first, second = (np.zeros((3, 4), np.float32) for _ in range(2))
    start = ndk.ANeuralNetworksExecution_startComputeWithDependencies
    code, event = start(bound(compilation, [MATRIX1, MATRIX2], first), [], 0)
    assert code == 0
    code, last = start(bound(compilation, [MATRIX1, MATRIX1], second), [event], 0)
    assert (code, ndk.ANeuralNetworksEvent_wait(last)) == (0, 0)
    np.testing.assert_array_equal(first, EXPECTED3)
    np.testing.assert_array_equal(second, EXPECTED3B)
    for made in (event, last):
        ndk.ANeuralNetworksEvent_free(made)


@pytest.mark.parametrize(("code", "expected"), [(ADD, EXPECTED2B), (MUL, EXPECTED2C)])
def test_broadcast_add_two_and_broadcast_mul_two(code: int, expected: list[list[float]]) -> None:
    np.testing.assert_array_equal(computed(two(code, (1, 1, 3, 4), (4,)), MATRIX1, MATRIX2B), expected)


# -- TestWrapper ------------------------------------------------------------------------------------------------------


def unary() -> int:
    model = operands(OperandType(FLOAT, (2,)), OperandType(FLOAT, (2,)))
    assert ndk.ANeuralNetworksModel_addOperation(model, OperationCode.FLOOR, [0], [1]) == 0
    return model


def test_wrapper_good() -> None:
    finished(unary(), [0], [1])


def test_wrapper_bad_identify() -> None:
    model = unary()
    assert ndk.ANeuralNetworksModel_identifyInputsAndOutputs(model, [0], [5]) == ResultCode.BAD_DATA


def test_wrapper_bad_finish() -> None:
    model = unary()
    assert ndk.ANeuralNetworksModel_finish(model) == ResultCode.BAD_DATA
    assert ndk.ANeuralNetworksModel_finish(model) == ResultCode.BAD_STATE


# -- TestFree ---------------------------------------------------------------------------------------------------------


def test_free_what_is_not_finished() -> None:
    ndk.ANeuralNetworksModel_free(ndk.ANeuralNetworksModel_create()[1])
    model = two(ADD)
    cpu = ndk.ANeuralNetworks_getDevice(ndk.ANeuralNetworks_getDeviceCount()[1] - 1)[1]
    ndk.ANeuralNetworksCompilation_free(ndk.ANeuralNetworksCompilation_create(model)[1])
    ndk.ANeuralNetworksCompilation_free(ndk.ANeuralNetworksCompilation_createForDevices(model, [cpu])[1])
    compilation = compiled(model)
    execution = ndk.ANeuralNetworksExecution_create(compilation)[1]
    ndk.ANeuralNetworksExecution_free(execution)
    assert ndk.ANeuralNetworksExecution_compute(execution) == ResultCode.BAD_DATA  # it is gone
    ndk.ANeuralNetworksCompilation_free(compilation)
    ndk.ANeuralNetworksModel_free(model)

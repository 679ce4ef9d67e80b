"""Executions: inputs and outputs, dynamic shapes, fallback, threads."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike

from nnbridge.builder import ModelBuilder
from nnbridge.cpu.executor import Executor
from nnbridge.cpu.settings import Tier
from nnbridge.devices import cpu, device
from nnbridge.devices.cpu import CpuDevice
from nnbridge.devices.device import OutputShape, Result
from nnbridge.devices.functions import driver
from nnbridge.errors import (
    BadDataError,
    BadStateError,
    InputError,
    MissedDeadlineTransientError,
    OpFailedError,
    OutOfMemoryError,
    OutputInsufficientSizeError,
)
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.types import OperandCode, OperationCode, ResultCode
from tests.graphs import FLOAT, add_then, constant_add, unary_chain
from tests.runtime.drivers import Driver, FailsToExecute

ADD, FLOOR, ABS, LESS, IF, WHILE = (OperationCode[n] for n in ("ADD", "FLOOR", "ABS", "LESS", "IF", "WHILE"))
DOCS = Path(__file__).parents[2] / "docs"
X = np.array([[-1.5, 0.5, 1.5, 2.5]], np.float32)


def finished(model: Model, *devices: Driver) -> Compilation:
    compilation = Compilation.create(model, devices)
    compilation.finish()
    return compilation


def test_outputs_come_by_name() -> None:
    outputs = Execution(finished(unary_chain(FLOOR))).run({"x": X})
    np.testing.assert_array_equal(outputs["y"], np.floor(X))


def test_a_missing_input_is_named() -> None:
    with pytest.raises(InputError, match="none for x"):
        Execution(finished(unary_chain(FLOOR))).run({})


def test_an_unknown_input_is_named() -> None:
    with pytest.raises(InputError, match="z"):
        Execution(finished(unary_chain(FLOOR))).run({"x": X, "z": X})


@pytest.mark.parametrize("value", [X.astype(np.float64), X[0], X.reshape(4, 1)])
def test_an_input_of_wrong_type_or_shape_is_bad_data(value: np.ndarray) -> None:
    with pytest.raises(BadDataError):
        Execution(finished(unary_chain(FLOOR))).run({"x": value})


def test_an_argument_is_set_once() -> None:
    execution = Execution(finished(unary_chain(FLOOR)))
    execution.set_input(0, X)
    with pytest.raises(BadStateError):
        execution.set_input(0, X)


def test_computing_before_everything_is_set_is_bad_data() -> None:
    execution = Execution(finished(unary_chain(FLOOR)))
    with pytest.raises(BadDataError, match="every input and output set"):
        execution.compute()


def test_an_execution_computes_once() -> None:
    execution = Execution(finished(unary_chain(FLOOR)))
    y = np.empty((1, 4), np.float32)
    execution.set_input(0, X)
    execution.set_output(0, y)
    execution.compute()
    np.testing.assert_array_equal(y, np.floor(X))
    assert execution.output_dims(0) == (1, 4)
    with pytest.raises(BadStateError):
        execution.compute()


def _reshape_to_input() -> Model:
    """RESHAPE to dimensions that come with the execution."""
    builder = ModelBuilder()
    x = builder.add_operand(FLOAT, (0, 4), name="x")
    shape = builder.add_operand(OperandCode.TENSOR_INT32, (2,), name="shape")
    y = builder.add_operand(FLOAT, (0, 0), name="y")
    builder.add_operation(OperationCode.RESHAPE, [x, shape], [y])
    builder.identify_inputs_and_outputs([x, shape], [y])
    return builder.finish()


def test_dimensions_that_only_execution_knows() -> None:
    compilation = finished(_reshape_to_input())
    for dims in ((2, 4), (8, 1)):
        y = Execution(compilation).run({"x": np.arange(8, dtype=np.float32).reshape(2, 4), "shape": np.array(dims, np.int32)})
        assert y["y"].shape == dims


def test_too_small_an_output_says_how_large_it_must_be() -> None:
    execution = Execution(finished(_reshape_to_input()))
    execution.set_input(0, np.zeros((2, 4), np.float32))
    execution.set_input(1, np.array([4, 2], np.int32))
    execution.set_output(0, np.empty(3, np.float32))
    with pytest.raises(OutputInsufficientSizeError):
        execution.compute()
    assert execution.output_dims(0) == (4, 2)


@pytest.mark.parametrize("kernels", ["reference", "compiled"])
def test_an_output_of_other_dimensions_than_stated_writes_nothing_beyond_its_buffer(kernels: str) -> None:
    builder = ModelBuilder()
    rows, both = builder.add_operand(FLOAT, (0, 2)), builder.add_operand(FLOAT, (0, 2))
    axis = builder.add_operand(OperandCode.INT32)
    builder.set_operand_value(axis, np.array([0], np.int32))
    builder.add_operation(OperationCode.CONCATENATION, [rows, rows, axis], [both])
    builder.identify_inputs_and_outputs([rows], [both])
    compilation = Compilation.create(builder.finish(), [], kernels=kernels)
    compilation.finish()
    execution, memory = Execution(compilation), np.zeros(1000, np.float32)
    execution.set_input_buffer(0, np.ones((300, 2), np.float32), (300, 2))
    execution.set_output(0, memory[:2], (1, 2))
    with pytest.raises(OpFailedError, match=r"expected an output of \[1, 2\] .*found \[600, 2\]"):
        execution.compute()
    assert not memory.any()


def test_a_temporary_of_unknown_size_crosses_from_device_to_device() -> None:
    builder = ModelBuilder()
    x, t, y = builder.add_operand(FLOAT, (0, 4), name="x"), builder.add_operand(FLOAT, (0, 4)), builder.add_operand(FLOAT, (0, 4))
    builder.add_operation(FLOOR, [x], [t])
    builder.add_operation(ABS, [t], [y])
    builder.identify_inputs_and_outputs([x], [y])
    compilation = finished(builder.finish(), Driver("floors", frozenset({FLOOR})))
    assert len(compilation.plan.steps) == 2
    value = np.linspace(-3, 3, 20, dtype=np.float32).reshape(5, 4)
    [y_value] = Execution(compilation).run([value]).values()
    np.testing.assert_array_equal(y_value, np.abs(np.floor(value)))


def test_a_failing_step_is_repeated_on_the_cpu_and_the_rest_continues() -> None:
    broken = FailsToExecute("broken", frozenset({FLOOR}))
    compilation = finished(add_then(FLOOR, ABS), broken)
    execution = Execution(compilation)
    y = execution.run({"x": X})["y"]
    np.testing.assert_array_equal(y, np.abs(np.floor(X + 1)))
    fallen = [step for step in execution.report.steps if step.fallback]
    assert len(fallen) == 1
    assert fallen[0].device == "nnapi-reference"


@pytest.mark.parametrize(
    "ends",
    [
        Result(ResultCode.OP_FAILED),
        ZeroDivisionError("a bug of the driver"),
        Result(ResultCode.NO_ERROR, (OutputShape((7, 7)),)),  # contradicts the model
        Result(ResultCode.NO_ERROR, (OutputShape((1, 4), sufficient=False),)),  # success with too small a buffer
        Result(ResultCode.OUTPUT_INSUFFICIENT_SIZE, ()),  # no shapes
    ],
)
def test_a_whole_model_whose_device_fails_or_answers_wrongly_runs_on_the_cpu(ends: Result | Exception) -> None:
    execution = Execution(finished(unary_chain(FLOOR), FailsToExecute("broken", ends=ends)))
    np.testing.assert_array_equal(execution.run({"x": X})["y"], np.floor(X))
    assert execution.report.fallback is not None


def test_explicit_devices_do_not_fall_back() -> None:
    compilation = Compilation.create_for_devices(unary_chain(FLOOR), [FailsToExecute("broken")])
    compilation.finish()
    with pytest.raises(Exception, match="OP_FAILED"):
        Execution(compilation).run({"x": X})


def test_sixteen_threads_on_one_compilation_give_the_same_answers_as_one() -> None:
    compilation = finished(add_then(FLOOR, ABS, dims=(64, 64)), Driver("floors", frozenset({FLOOR})))
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(64, 64)).astype(np.float32) * 10 for _ in range(64)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda x: Execution(compilation).run({"x": x})["y"], inputs))
    for x, y in zip(inputs, answers, strict=True):
        np.testing.assert_array_equal(y, np.abs(np.floor(x + 1)))


def _loop(step: float) -> Model:
    """While x < 10: x += step."""
    body = constant_add(np.array([step], np.float32))
    builder = ModelBuilder()
    x, limit = builder.add_operand(FLOAT, (1,)), builder.add_operand(FLOAT, (1,))
    builder.set_operand_value(limit, np.array([10], np.float32))
    answer = builder.add_operand(OperandCode.TENSOR_BOOL8, (1,))
    builder.add_operation(LESS, [x, limit], [answer])
    builder.identify_inputs_and_outputs([x], [answer])
    condition = builder.finish()
    builder = ModelBuilder()
    models = [builder.add_operand(OperandCode.MODEL) for _ in range(2)]
    builder.set_operand_value_from_model(models[0], condition)
    builder.set_operand_value_from_model(models[1], body)
    x, y = builder.add_operand(FLOAT, (1,), name="x"), builder.add_operand(FLOAT, (1,), name="y")
    builder.add_operation(WHILE, [*models, x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    return builder.finish()


def test_a_loop_runs_until_its_condition_fails() -> None:
    # 1, 5, 9, 13; and 20 at once.
    compilation = finished(_loop(4.0))
    assert Execution(compilation).run([np.array([1], np.float32)])["y"].tolist() == [13]
    assert Execution(compilation).run([np.array([20], np.float32)])["y"].tolist() == [20]


def test_an_endless_loop_misses_its_deadline() -> None:
    execution = Execution(finished(_loop(0.0)))
    execution.set_loop_timeout(5_000_000)
    with pytest.raises(MissedDeadlineTransientError):
        execution.run([np.array([1], np.float32)])


def test_rounding_to_float16_is_what_a_device_may_do_with_a_relaxed_model() -> None:
    model = add_then(dims=(1, 4))
    value = np.full((1, 4), 2048.25, np.float32)
    exact = Executor(model).run([value])[0].data
    assert exact.tolist() == [[2049.25] * 4]
    rounded = Executor(replace(model, relaxed=True), numerics="float16").run([value])[0].data
    assert rounded.tolist() == [[2050.0] * 4]  # float16 has steps of 2 above 2048


def test_every_sample_driver_computes_what_the_cpu_computes() -> None:
    model = add_then(FLOOR, ABS)
    expected = Execution(finished(model)).run({"x": X})["y"]
    for name in ("float_fast", "float_slow", "minimal", "quant", "all", "full"):
        compilation = Compilation.create(model, [device(f"nnapi-sample_{name}")])
        compilation.finish()
        np.testing.assert_array_equal(Execution(compilation).run({"x": X})["y"], expected)


def test_the_reference_kernels_alone_give_the_same_answers() -> None:
    model = add_then(FLOOR)
    compilation = Compilation.create_for_devices(model, [CpuDevice(Tier.REFERENCE)])
    compilation.finish()
    expected = Compilation.create_for_devices(model, [cpu()])
    expected.finish()
    np.testing.assert_array_equal(Execution(compilation).run([X])["y"], Execution(expected).run([X])["y"])


# -- what Python callers may hand over ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [[[1, -2, 3, -4]], ((1.0, -2.0, 3.0, -4.0),), [np.float32([1, -2, 3, -4])]])
def test_lists_of_numbers_are_converted(value: ArrayLike) -> None:
    [y] = Execution(finished(unary_chain(OperationCode.ABS))).run({"x": value}).values()
    np.testing.assert_array_equal(y, np.float32([[1, 2, 3, 4]]))


@pytest.mark.parametrize(
    ("value", "found"),
    [(b"0123456789abcdef", "bytes"), ("text", "str"), ([["a", "b", "c", "d"]], "'a'"), ([[1, 2], [3]], "inhomogeneous")],
)
def test_what_is_no_array_is_refused_with_one_message(value: object, found: str) -> None:
    with pytest.raises(BadDataError, match=found):
        Execution(finished(unary_chain(OperationCode.ABS))).run({"x": value})  # type: ignore[dict-item]


@pytest.mark.parametrize("value", [[[0, 1, 2, 256]], [[0, 1, 2, -1]], [[0, 1, 2, 2.5]]])
def test_numbers_that_the_element_type_does_not_have_are_refused(value: ArrayLike) -> None:
    builder = ModelBuilder()
    x, y = (builder.add_operand(OperandCode.TENSOR_QUANT8_ASYMM, (1, 4), scale=1.0) for _ in range(2))
    builder.add_operation(OperationCode.RELU, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    with pytest.raises(BadDataError, match="numbers of uint8"):
        Execution(finished(builder.finish())).run([value])


def test_outputs_that_memory_cannot_hold_are_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    execution = Execution(finished(unary_chain(OperationCode.ABS)))

    def nothing_left(*args: object) -> None:
        raise MemoryError

    monkeypatch.setattr("nnbridge.runtime.plan_runner.np.empty", nothing_left)
    with pytest.raises(OutOfMemoryError, match="16 bytes"):
        execution.run([np.zeros((1, 4), np.float32)])


def test_devices_may_be_named() -> None:
    compilation = Compilation.create(unary_chain(OperationCode.ABS), ["nnapi-sample_float_fast"])
    assert compilation.finish().device_of(0).name == "nnapi-sample_float_fast"
    single = Compilation.create_for_devices(unary_chain(OperationCode.ABS), ["nnapi-reference"])
    assert single.explicit_single


@pytest.mark.parametrize("create", [Compilation.create, Compilation.create_for_devices])
def test_a_device_twice_or_none_is_refused(create: Callable[..., Compilation]) -> None:
    model = unary_chain(OperationCode.ABS)
    with pytest.raises(BadDataError, match="each device once, found nnapi-sample_all, nnapi-sample_all"):
        create(model, ["nnapi-sample_all"] * 2)
    with pytest.raises(BadDataError, match="devices or their names, found int"):
        create(model, [1])


def test_a_repeated_plan_of_several_steps_runs_on_bound_buffers() -> None:
    model = unary_chain(ABS, FLOOR, ABS)
    compilation = Compilation.create(model, [driver("floors")(lambda _, operation: operation.type == FLOOR)])
    compilation.finish()
    assert len(compilation.plan.steps) == 3
    execution, x, out = Execution(compilation), X.copy(), np.zeros(X.shape, np.float32)
    execution.set_reusable(True)
    execution.set_input(0, x)
    execution.set_output(0, out)
    for change in (0, 3, -7):
        x[...] = X + np.float32(change)
        execution.compute()
        np.testing.assert_array_equal(out, np.abs(np.floor(np.abs(x))))
        assert [step.step for step in execution.report.steps] == [0, 1, 2]
    assert [step.device for step in execution.report.steps] == ["nnapi-reference", "floors", "nnapi-reference"]


def test_an_output_in_an_inputs_place_is_written_there_and_right_where_nothing_reads_the_input_afterwards() -> None:
    """Buffers are used in place, as on a phone; what a later operation reads of the input would be undefined."""
    execution = Execution(finished(unary_chain(ABS)))
    buffer = X.copy()
    execution.set_input(0, buffer)
    execution.set_output(0, buffer)
    execution.compute()
    assert buffer.tolist() == np.abs(X).tolist()


def test_an_output_in_its_input_s_place_is_written_there() -> None:
    # Undefined where a later operation reads the input, as the documents say; one operation of elements writes what it read.
    execution, buffer = Execution(finished(unary_chain(FLOOR))), X.copy()
    execution.set_input_buffer(0, buffer)
    execution.set_output(0, buffer)
    execution.compute()
    assert buffer.tolist() == [[-2, 0, 1, 2]]


@pytest.mark.parametrize("said", [Execution.set_output.__doc__ or "", (DOCS / "ndk.md").read_text()])
def test_the_documents_say_that_outputs_which_overlap_inputs_are_undefined(said: str) -> None:
    assert re.search(r"overlaps an input, a constant or another output \w+ undefined results", said)

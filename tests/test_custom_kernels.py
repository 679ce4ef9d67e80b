"""Operations that a device computes itself, as steps of the executor beside NNAPI's."""

from __future__ import annotations

import gc
import json
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.cpu.control_flow import Limits
from nnbridge.cpu.custom import CustomKernel
from nnbridge.cpu.executor import Executor
from nnbridge.devices.device import OutputBuffer, Request
from nnbridge.devices.functions import FunctionPreparedModel, Tensor
from nnbridge.devices.host import HostPreparedModel
from nnbridge.errors import MissedDeadlineTransientError
from nnbridge.extensions import OPTIONS_TYPE, TYPES, Arg, ExtensionOperandType, HostExtension, HostOperation
from nnbridge.model import Array, Model
from nnbridge.types import OperandCode, OperationCode, ResultCode

NAME = "test.custom"
TWICE, SAME, WHILE, DOUBLES = 0, 1, 2, 0
FLOAT, BOOL = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_BOOL8


def _twice(inputs: Sequence[Arg], outputs: Sequence[Arg], options: Mapping[str, Any]) -> list[Array]:
    return [np.concatenate([inputs[0].data, inputs[0].data])]


def _same(inputs: Sequence[Arg], outputs: Sequence[Arg], options: Mapping[str, Any]) -> list[Array]:
    return [inputs[0].data[:]]


@pytest.fixture(autouse=True)
def extension() -> Iterator[None]:
    operations = {
        TWICE: HostOperation("TWICE", _twice),
        SAME: HostOperation("SAME", _same),
        WHILE: HostOperation("WHILE", control="while"),
    }
    TYPES.register(HostExtension(NAME, (ExtensionOperandType(DOUBLES, True, 8, "DOUBLES", "f8"), OPTIONS_TYPE), operations))
    yield
    TYPES._extensions.pop(NAME)


def code(number: int) -> int:
    return TYPES.code(NAME, number)


def options(builder: ModelBuilder) -> int:
    text = json.dumps({}).encode()
    operand = builder.add_operand(code(OPTIONS_TYPE.number), (len(text),))
    builder.set_operand_value(operand, text)
    return operand


def relu_of_same() -> Model:
    """y = SAME(RELU(x)), z = RELU(y): SAME's result is a view of what RELU wrote."""
    builder = ModelBuilder()
    x, a, b, y, z = (builder.add_operand(FLOAT, (4,)) for _ in range(5))
    builder.add_operation(OperationCode.RELU, [x], [a])
    builder.add_operation(code(SAME), [a, options(builder)], [b])
    builder.add_operation(OperationCode.RELU, [b], [y])
    builder.add_operation(OperationCode.RELU, [y], [z])
    builder.identify_inputs_and_outputs([x], [b, z])
    return builder.finish()


def growing(most: float) -> Model:
    """WHILE sum(x) < most: x = x ++ x; the state is of another size at each run of the bodies."""

    def condition() -> Model:
        builder = ModelBuilder()
        x = builder.add_operand(FLOAT, (0,))
        axes = builder.add_operand(OperandCode.TENSOR_INT32, (1,))
        builder.set_operand_value(axes, np.int32([0]))
        keep = builder.add_operand(OperandCode.BOOL)
        builder.set_operand_value(keep, True)
        total, go = builder.add_operand(FLOAT, (1,)), builder.add_operand(BOOL, (1,))
        limit = builder.add_operand(FLOAT, (1,))
        builder.set_operand_value(limit, np.float32([most]))
        builder.add_operation(OperationCode.REDUCE_SUM, [x, axes, keep], [total])
        builder.add_operation(OperationCode.LESS, [total, limit], [go])
        builder.identify_inputs_and_outputs([x], [go])
        return builder.finish()

    def body() -> Model:
        builder = ModelBuilder()
        x, y = builder.add_operand(FLOAT, (0,)), builder.add_operand(FLOAT, (0,))
        builder.add_operation(code(TWICE), [x, options(builder)], [y])
        builder.identify_inputs_and_outputs([x], [y])
        return builder.finish()

    builder = ModelBuilder()
    bodies = [builder.add_operand(OperandCode.MODEL) for _ in range(2)]
    x, y = builder.add_operand(FLOAT, (0,)), builder.add_operand(FLOAT, (0,))
    for operand, model in zip(bodies, (condition(), body()), strict=True):
        builder.set_operand_value_from_model(operand, model)
    builder.add_operation(code(WHILE), [*bodies, x, options(builder)], [y])
    builder.identify_inputs_and_outputs([x], [y])
    return builder.finish()


def executed(prepared: Any, x: Array, size: int, **rest: Any) -> tuple[ResultCode, Array, tuple[int, ...]]:
    place = np.zeros(4 * size, np.uint8)
    result = prepared.execute(Request((x,), (OutputBuffer(place),), **rest))
    dims = result.shapes[0].dims if result.shapes else ()
    return result.code, place.view(np.float32), dims


def test_a_view_of_what_nnapis_kernel_wrote_outlives_the_buffer() -> None:
    prepared = HostPreparedModel(relu_of_same(), mixed=True)
    b, z = (np.zeros(16, np.uint8) for _ in range(2))
    x = np.float32([-1, 2, -3, 4])
    result = prepared.execute(Request((x,), (OutputBuffer(b, (4,)), OutputBuffer(z, (4,)))))
    assert result.code is ResultCode.NO_ERROR
    assert [b.view(np.float32).tolist(), z.view(np.float32).tolist()] == [[0, 2, 0, 4]] * 2


def test_a_loop_of_the_host_carries_states_of_other_sizes() -> None:
    prepared = HostPreparedModel(growing(100))
    code, values, dims = executed(prepared, np.float32([1]), 256)
    assert (code, dims, values[:128].tolist()) == (ResultCode.NO_ERROR, (128,), [1] * 128)


def test_a_loop_that_is_not_entered_leaves_its_state() -> None:
    code, values, dims = executed(HostPreparedModel(growing(0)), np.float32([5, 6]), 2)
    assert (code, dims, values.tolist()) == (ResultCode.NO_ERROR, (2,), [5, 6])


def test_a_loop_of_the_host_ends_at_its_time_out_and_at_the_deadline() -> None:
    prepared = HostPreparedModel(growing(np.inf))
    started = time.monotonic_ns()
    assert executed(prepared, np.float32([0]), 1, loop_timeout=0)[0] is ResultCode.MISSED_DEADLINE_TRANSIENT
    assert executed(prepared, np.float32([0]), 1, deadline=started + 10_000_000)[0] in (
        ResultCode.MISSED_DEADLINE_TRANSIENT,
        ResultCode.MISSED_DEADLINE_PERSISTENT,
    )


def test_bodies_report_what_they_read_and_compute() -> None:
    seen: list[tuple[int, int, int]] = []
    prepared = HostPreparedModel(growing(3))
    place = np.zeros(64, np.uint8)
    prepared.execute(
        Request((np.float32([1]),), (OutputBuffer(place),), observe=lambda graph, i, value: seen.append((graph, i, value.size)))
    )
    assert [(graph, size) for graph, i, size in seen if graph == 2] == [(2, 1), (2, 2), (2, 2), (2, 4)]


def test_values_of_an_extensions_type_are_written_in_place() -> None:
    builder = ModelBuilder()
    x, y = (builder.add_operand(code(DOUBLES), (2,)) for _ in range(2))
    builder.add_operation(code(SAME), [x, options(builder)], [y])
    builder.identify_inputs_and_outputs([x], [y])
    place = np.zeros(16, np.uint8)
    request = Request((np.float64([1.5, 2]),), (OutputBuffer(place, (2,)),))
    prepared = HostPreparedModel(builder.finish())
    assert prepared.execute(request).code is ResultCode.NO_ERROR
    assert place.view(np.float64).tolist() == [1.5, 2]
    run = prepared.bind(request)
    assert run is not None
    place[:] = 0
    run()
    assert place.view(np.float64).tolist() == [1.5, 2]


def doubling(dims: tuple[int, ...]) -> Model:
    builder = ModelBuilder()
    x, y = (builder.add_operand(FLOAT, dims) for _ in range(2))
    builder.add_operation(code(TWICE), [x, options(builder)], [y])
    builder.identify_inputs_and_outputs([x], [y])
    return builder.finish()


def test_a_bound_run_of_open_dimensions_states_another_size() -> None:
    sizes = [2, 2, 3]

    def compute(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Array]:
        return [np.ones(sizes.pop(0), np.float32)]

    prepared = FunctionPreparedModel(doubling((0,)), [compute])
    place = np.zeros(8, np.uint8)
    request = Request((np.float32([1]),), (OutputBuffer(place, (2,)),))
    assert prepared.execute(request).code is ResultCode.NO_ERROR
    run = prepared.bind(request)
    assert run is not None
    run()
    assert place.view(np.float32).tolist() == [1, 1]
    with pytest.raises(Exception, match=r"dimensions that it had before, found \[3\]"):
        run()


def test_a_prepared_model_is_freed_without_the_garbage_collector() -> None:
    prepared = HostPreparedModel(growing(3))
    executed(prepared, np.float32([1]), 8)
    seen = weakref.ref(prepared._executor)
    gc.disable()
    try:
        del prepared
        assert seen() is None
    finally:
        gc.enable()


def test_a_deadline_is_checked_before_each_custom_kernel() -> None:
    ran: list[int] = []

    def slow(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Array]:
        ran.append(1)
        time.sleep(0.05)
        return [inputs[0].data]

    builder = ModelBuilder()
    x, a, y = (builder.add_operand(FLOAT, (1,)) for _ in range(3))
    for ends in ((x, a), (a, y)):
        builder.add_operation(OperationCode.RELU, [ends[0]], [ends[1]])
    builder.identify_inputs_and_outputs([x], [y])
    model = builder.finish()
    kernels = {k: CustomKernel("slow", o.inputs, slow) for k, o in enumerate(model.main.operations)}
    with pytest.raises(MissedDeadlineTransientError):
        Executor(model, custom=[kernels]).run([np.float32([1])], None, Limits(time.monotonic_ns() + 20_000_000))
    assert ran == [1]


def test_an_observed_run_prepares_nothing_again() -> None:
    prepared_for: list[tuple[int, ...]] = []

    def prepare(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Any:
        prepared_for.append(inputs[0].dims)
        return lambda arrays: [arrays[0]]

    builder = ModelBuilder()
    x, y = (builder.add_operand(FLOAT, (2,)) for _ in range(2))
    builder.add_operation(OperationCode.RELU, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    kernel = CustomKernel("same", (x,), lambda inputs, outputs: [], prepare)
    executor, seen = Executor(builder.finish(), custom=[{0: kernel}]), []
    executor.run([np.float32([1, 2])], None, Limits(observe=lambda graph, i, value: seen.append(value.tolist())))
    assert (prepared_for, seen) == ([(2,)], [[1, 2]])

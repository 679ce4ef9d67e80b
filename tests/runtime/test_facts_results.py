"""Results that executions leave: facts E5, E20, E38 to E42, E58, E61, E62 and U12 of Android's runtime, by number."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field

import numpy as np
import pytest

from nnbridge import devices as device_list
from nnbridge import ndk
from nnbridge.builder import ModelBuilder
from nnbridge.devices.cpu import CpuPreparedModel
from nnbridge.devices.device import PreparedModel, Request, Result
from nnbridge.errors import BadDataError, BadStateError, NnapiError, OpFailedError, OutputInsufficientSizeError
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.event import Event
from nnbridge.runtime.execution import UNKNOWN_DURATION, Execution
from nnbridge.runtime.memory import Memory
from nnbridge.types import DurationCode, OperandCode, OperationCode
from tests.graphs import FLOAT, add_then, unary_chain
from tests.runtime.drivers import Driver

FLOOR, RANK, TOPK, TILE = OperationCode.FLOOR, OperationCode.RANK, OperationCode.TOPK_V2, OperationCode.TILE
X = np.float32([[0.5, -1.5, 2, 3]])


@dataclass
class Gated(Driver):
    """Computes once it is given leave; remembers what it was asked."""

    leave: threading.Event = field(default_factory=threading.Event)
    requests: list[Request] = field(default_factory=list)

    def prepare_model(self, model: Model, *args: object, **options: object) -> PreparedModel:
        return _Gated(self, CpuPreparedModel(model))


class _Gated(PreparedModel):
    def __init__(self, driver: Gated, right: PreparedModel) -> None:
        self._driver, self._right = driver, right

    def execute(self, request: Request) -> Result:
        self._driver.requests.append(request)
        assert self._driver.leave.wait(10)
        return self._right.execute(request)


def open_gate() -> Gated:
    gate = Gated("gated")
    gate.leave.set()
    return gate


def compiled(model: Model, *devices: Driver) -> Compilation:
    compilation = Compilation.create_for_devices(model, devices or [device_list.cpu()])
    compilation.finish()
    return compilation


def bound(compilation: Compilation, out: object | None) -> Execution:
    execution = Execution(compilation)
    execution.set_input(0, X)
    execution.set_output(0, out)
    return execution


# -- freeing and fences -----------------------------------------------------------------------------------------------


def test_e5_freeing_an_execution_that_runs_is_safe() -> None:
    gate = Gated("gated")
    out = np.zeros((1, 4), np.float32)
    execution = bound(compiled(unary_chain(FLOOR), gate), out)
    handle, event = ndk.HANDLES.add(execution), execution.start_compute()
    ndk.ANeuralNetworksExecution_free(handle)
    gate.leave.set()
    event.wait()
    np.testing.assert_array_equal(out, np.floor(X))


def until_done(event: Event) -> None:
    """Wait for a fence as a driver would, without telling the runtime; without a fence all is done already."""
    if not event.has_fence:
        return
    fence = Event.from_sync_fence_fd(event.sync_fence_fd())
    fence.wait()
    fence.close()


@pytest.mark.parametrize("devices", [[], [Driver("driver")], [Driver("old", feature_level=3)]], ids=["cpu", "driver", "old"])
@pytest.mark.parametrize("way", ["wait", "free"])
def test_e58_a_fenced_execution_computes_until_its_event_is_waited_for_or_freed(way: str, devices: list[Driver]) -> None:
    execution = bound(compiled(unary_chain(FLOOR), *devices), np.empty((1, 4), np.float32))
    event = execution.start_compute_with_dependencies([])
    until_done(event)
    with pytest.raises(BadStateError):
        execution.output_rank(0)
    event.wait() if way == "wait" else event.close()
    assert execution.output_rank(0) == 2


def test_e58_a_reusable_execution_starts_again_once_its_event_was_waited_for() -> None:
    execution = Execution(compiled(unary_chain(FLOOR)))
    execution.set_reusable(True)
    execution.set_input(0, X)
    execution.set_output(0, np.empty((1, 4), np.float32))
    event = execution.start_compute_with_dependencies([])
    until_done(event)
    with pytest.raises(BadStateError):
        execution.compute()
    event.wait()
    execution.compute()


def test_e58_being_a_dependency_is_not_being_waited_for() -> None:
    compilation = compiled(unary_chain(FLOOR), Driver("driver"))
    first, second = (bound(compilation, np.empty((1, 4), np.float32)) for _ in range(2))
    event = first.start_compute_with_dependencies([])
    second.start_compute_with_dependencies([event]).wait()
    with pytest.raises(BadStateError):
        first.output_rank(0)


def test_e58_an_event_that_is_dropped_is_freed() -> None:
    execution = bound(compiled(unary_chain(FLOOR), Driver("driver")), np.empty((1, 4), np.float32))
    until_done(execution.start_compute_with_dependencies([]))
    limit = time.monotonic() + 10
    while time.monotonic() < limit:  # until the thread has let go of it
        try:
            assert execution.output_rank(0) == 2
            return
        except BadStateError:
            time.sleep(0.001)
    pytest.fail("the execution is still computing")


def test_e57_the_cpu_and_old_drivers_are_waited_for_and_give_no_fence() -> None:
    for devices in ([], [Driver("old", feature_level=3)]):
        out = np.zeros((1, 4), np.float32)
        event = bound(compiled(unary_chain(FLOOR), *devices), out).start_compute_with_dependencies([])
        np.testing.assert_array_equal(out, np.floor(X))
        with pytest.raises(BadDataError):
            event.sync_fence_fd()


def test_e57_a_driver_computes_on_and_its_fence_signals_the_end() -> None:
    gate, out = Gated("gated"), np.zeros((1, 4), np.float32)
    event = bound(compiled(unary_chain(FLOOR), gate), out).start_compute_with_dependencies([])
    assert not out.any()
    gate.leave.set()
    until_done(event)
    np.testing.assert_array_equal(out, np.floor(X))


def test_e57_errors_of_the_cpu_are_reported_at_once() -> None:
    execution = Execution(compiled(topk()))
    execution.set_input(0, X)
    execution.set_output(0, np.empty((1, 1), np.float32))
    execution.set_output(1, None)
    with pytest.raises(OpFailedError):
        execution.start_compute_with_dependencies([])
    with pytest.raises(BadStateError, match="an execution that has completed, found one that ended with OP_FAILED"):
        execution.output_rank(0)


def test_e54_a_plan_with_temporaries_of_open_size_is_started_like_any_other() -> None:
    builder = ModelBuilder()
    x, times = builder.add_operand(FLOAT, (1, 4)), builder.add_operand(OperandCode.TENSOR_INT32, (2,))
    middle, y = builder.add_operand(FLOAT), builder.add_operand(FLOAT, (2, 4))
    builder.set_operand_value(times, np.int32([2, 1]))
    builder.add_operation(TILE, [x, times], [middle])
    builder.add_operation(FLOOR, [middle], [y])
    builder.identify_inputs_and_outputs([x], [y])
    compilation = compiled(builder.finish(), Driver("a", frozenset({TILE})), Driver("b", frozenset({FLOOR})))
    assert compilation.plan.has_dynamic_temporaries
    out = np.zeros((2, 4), np.float32)
    event = bound(compilation, out).start_compute_with_dependencies([])
    with pytest.raises(BadDataError):
        event.sync_fence_fd()
    event.wait()
    np.testing.assert_array_equal(out, np.floor(np.tile(X, (2, 1))))


def test_e61_a_fenced_execution_reports_the_dimensions_that_were_set() -> None:
    execution = Execution(compiled(unary_chain(OperationCode.RELU, dims=(0, 4))))
    execution.set_input(0, X)
    execution.set_output(0, np.empty((1, 4), np.float32), (1, 4))
    execution.start_compute_with_dependencies([]).wait()
    assert execution.output_dims(0) == (1, 4)


def test_e62_a_fence_that_breaks_is_a_failure() -> None:
    # The other end of the pipe is closed without a byte: the descriptor hangs up, and nothing was signalled.
    reader, writer = os.pipe()
    broken = Event.from_sync_fence_fd(reader)
    os.close(reader)
    os.close(writer)
    with pytest.raises(OpFailedError):
        broken.wait()
    execution = bound(compiled(unary_chain(FLOOR)), np.empty((1, 4), np.float32))
    with pytest.raises(OpFailedError):
        execution.start_compute_with_dependencies([broken]).wait()


# -- dimensions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setter", ["set_input_buffer", "set_output"])
def test_e8_stated_dimensions_make_no_more_than_4_gib(setter: str) -> None:
    # Android's DimensionProductOverflow: the product wraps around to a small number there.
    execution = Execution(compiled(unary_chain(OperationCode.RELU, dims=(0, 0, 0))))
    with pytest.raises(BadDataError, match="4294967295 bytes"):
        getattr(execution, setter)(0, None, (2**16, 2**16, 2**16))


def test_e38_a_scalar_output_has_rank_0_and_no_dimensions() -> None:
    builder = ModelBuilder()
    x, rank = builder.add_operand(FLOAT, (1, 4)), builder.add_operand(OperandCode.INT32)
    builder.add_operation(RANK, [x], [rank])
    builder.identify_inputs_and_outputs([x], [rank])
    out = np.zeros(1, np.int32)
    execution = bound(compiled(builder.finish()), out)
    execution.compute()
    assert (execution.output_rank(0), out[0]) == (0, 2)
    with pytest.raises(BadDataError):
        execution.output_dims(0)


def test_e39_declared_dimensions_stand_where_the_device_reports_none() -> None:
    class Silent(Driver):
        def prepare_model(self, *args: object, **options: object) -> PreparedModel:
            return _Silent()

    execution = bound(compiled(unary_chain(FLOOR), Silent("silent")), np.empty((1, 4), np.float32))
    execution.compute()
    assert execution.output_dims(0) == (1, 4)


class _Silent(PreparedModel):
    def execute(self, request: Request) -> Result:
        return Result()


def topk() -> Model:
    """The largest value of each row and where it stands."""
    builder = ModelBuilder()
    x, k, values, places = (
        builder.add_operand(FLOAT, (1, 4)),
        builder.add_operand(OperandCode.INT32),
        builder.add_operand(FLOAT, (1, 1)),
        builder.add_operand(OperandCode.TENSOR_INT32, (1, 1)),
    )
    builder.set_operand_value(k, 1)
    builder.add_operation(TOPK, [x, k], [values, places])
    builder.identify_inputs_and_outputs([x], [values, places])
    return builder.finish()


def chain_of_outputs(*dims: tuple[int, ...]) -> Model:
    """RELU after RELU, each an output with these dimensions."""
    builder = ModelBuilder()
    made = [builder.add_operand(FLOAT, (1, 4))]
    for shape in dims:
        made.append(builder.add_operand(FLOAT, shape))
        builder.add_operation(OperationCode.RELU, made[-2:-1], made[-1:])
    builder.identify_inputs_and_outputs(made[:1], made[1:])
    return builder.finish()


def test_u11_outputs_behind_the_one_whose_buffer_was_too_small_are_as_declared() -> None:
    execution = Execution(compiled(chain_of_outputs((), (1, 0), (1, 0), ())))
    execution.set_input(0, X)
    capacities = (16, 4, 16, 4)
    for i, capacity in enumerate(capacities):
        execution.set_output(i, np.empty(capacity, np.uint8))
    with pytest.raises(OutputInsufficientSizeError):
        execution.compute()
    assert [execution.output_sufficient(i) for i in range(4)] == [True, False, True, True]
    assert [execution.output_rank(i) for i in range(4)] == [2, 2, 2, 0]
    assert [execution.output_dims(i) for i in range(3)] == [(1, 4), (1, 4), (1, 0)]


def test_u11_run_gets_all_of_them_in_the_end() -> None:
    outputs = Execution(compiled(chain_of_outputs((), (1, 0), (), (0, 4)))).run([X])
    assert [output.shape for output in outputs.values()] == [(1, 4)] * 4


def test_u12_an_operation_that_sets_every_operand_fails_without_a_buffer() -> None:
    execution = Execution(compiled(topk()))
    execution.set_input(0, X)
    execution.set_output(0, np.empty((1, 1), np.float32))
    execution.set_output(1, None)
    with pytest.raises(OpFailedError, match="omitted"):
        execution.compute()


def tiled() -> Model:
    builder = ModelBuilder()
    x, times, y = (
        builder.add_operand(FLOAT, (1, 4)),
        builder.add_operand(OperandCode.TENSOR_INT32, (2,)),
        builder.add_operand(FLOAT),
    )
    builder.set_operand_value(times, np.int32([2, 1]))
    builder.add_operation(TILE, [x, times], [y])
    builder.identify_inputs_and_outputs([x], [y])
    return builder.finish()


def test_e40_u12_an_omitted_output_has_too_small_a_buffer_and_no_dimensions() -> None:
    # TILE is one of the older operations, of which the executor checks the inputs alone.
    execution = bound(compiled(tiled()), None)
    with pytest.raises(OutputInsufficientSizeError):
        execution.compute()
    assert (execution.output_rank(0), execution.output_sufficient(0)) == (0, False)
    with pytest.raises(BadDataError):
        execution.output_dims(0)


# -- timing, time-outs, attributes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["compute", "start_compute", "start_compute_with_dependencies"])
@pytest.mark.parametrize("device", ["nnapi-reference", "nnapi-sample_all", "process:nnapi-sample_all"])
def test_the_longest_timeout_is_none_to_speak_of(device: str, way: str) -> None:
    # Android's ExecutionSetTimeoutMaximum.
    compilation = Compilation.create_for_devices(unary_chain(FLOOR), [device_list.device(device)])
    compilation.set_timeout(2**64 - 1)
    compilation.finish()
    out = np.zeros((1, 4), np.float32)
    execution = bound(compilation, out)
    execution.set_timeout(2**64 - 1)
    execution.set_loop_timeout(2**64 - 1)
    if way == "compute":
        execution.compute()
    elif way == "start_compute":
        execution.start_compute().wait()
    else:
        execution.start_compute_with_dependencies([], 2**64 - 1).wait()
    np.testing.assert_array_equal(out, np.floor(X))


def test_e20_attributes_reach_the_driver_each_once() -> None:
    gate = open_gate()
    execution = bound(compiled(unary_chain(FLOOR), gate), np.empty((1, 4), np.float32))
    execution.add_extension_attribute("com.example", 0, b"first")
    execution.add_extension_attribute("com.example", 2, b"")
    with pytest.raises(BadDataError):
        execution.add_extension_attribute("com.example", 0, b"second")
    execution.compute()
    assert gate.requests[0].hints == (("com.example", 0, b"first"), ("com.example", 2, b""))
    with pytest.raises(BadStateError):
        execution.add_extension_attribute("com.example", 3, b"")


def test_e20_attributes_are_for_exactly_one_explicit_device() -> None:
    gate = open_gate()
    several, all_devices = compiled(unary_chain(FLOOR), gate, Driver("b")), Compilation.create(unary_chain(FLOOR), [])
    all_devices.finish()
    for compilation in (several, all_devices):
        with pytest.raises(BadDataError):
            Execution(compilation).add_extension_attribute("com.example", 0, b"value")


def test_e42_the_cpu_never_measures() -> None:
    execution = bound(compiled(unary_chain(FLOOR)), np.empty((1, 4), np.float32))
    execution.set_measure_timing(True)
    execution.compute()
    assert [execution.duration(code) for code in DurationCode] == [UNKNOWN_DURATION] * 4


def test_fenced_durations_leave_out_what_was_waited_for_fences() -> None:
    fence = os.eventfd(0)
    compilation = compiled(unary_chain(FLOOR), Driver("driver"))
    execution = bound(compilation, np.empty((1, 4), np.float32))
    execution.set_measure_timing(True)
    with Event.from_sync_fence_fd(fence) as dependency, execution.start_compute_with_dependencies([dependency]) as event:
        time.sleep(0.02)
        os.eventfd_write(fence, 1)
        event.wait()
    os.close(fence)
    found = {code: execution.duration(code) for code in DurationCode}
    assert found[DurationCode.ON_HARDWARE] == found[DurationCode.FENCED_ON_HARDWARE]
    assert found[DurationCode.IN_DRIVER] - found[DurationCode.FENCED_IN_DRIVER] > 15_000_000


def test_each_step_reports_what_its_device_measured() -> None:
    compilation = Compilation.create(
        add_then(FLOOR), [Driver("driver", frozenset({FLOOR})), Driver("old", feature_level=2, exec_time=0.9)]
    )
    compilation.finish()
    for asked in (False, True):
        execution = Execution(compilation)
        if asked:
            execution.measure_steps()
        execution.run([X])
        first, second = execution.report.steps
        assert (first.device, second.device) == ("old", "driver")
        assert min(first.nanoseconds, second.nanoseconds) > 0
        assert first.on_device is None  # drivers below level 3 do not measure
        if not asked:
            assert second.on_device is None
            continue
        assert second.on_device is not None
        assert second.in_driver is not None
        assert 0 < second.on_device <= second.in_driver <= second.nanoseconds


def test_e63_a_fenced_execution_initialises_its_memory() -> None:
    compilation = compiled(unary_chain(FLOOR))
    memory = Memory.shared(16)
    execution = Execution(compilation)
    execution.set_input(0, X)
    execution.set_output_from_memory(0, memory, 0, 16)
    execution.start_compute_with_dependencies([]).wait()
    np.testing.assert_array_equal(memory.content.view(np.float32), np.floor(X)[0])


def test_errors_of_fenced_executions_come_from_the_event() -> None:
    class Failing(Driver):
        def prepare_model(self, *args: object, **options: object) -> PreparedModel:
            return _Failing()

    execution = bound(compiled(unary_chain(FLOOR), Failing("failing")), np.empty((1, 4), np.float32))
    event = execution.start_compute_with_dependencies([])
    with pytest.raises(NnapiError):
        event.wait()
    with pytest.raises(BadStateError):
        execution.output_rank(0)


class _Failing(PreparedModel):
    def execute(self, request: Request) -> Result:
        raise OpFailedError("no")

"""Facts of Android's runtime on executions, one test per number (E1 to E66); tests/facts.md names the tests of the others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.devices import cpu
from nnbridge.devices.cpu import CpuPreparedModel
from nnbridge.devices.device import PreparedModel, Request, Result
from nnbridge.errors import (
    BadDataError,
    BadStateError,
    MissedDeadlinePersistentError,
    OpFailedError,
    OutputInsufficientSizeError,
    UnexpectedNullError,
)
from nnbridge.model import Model
from nnbridge.runtime.burst import Burst
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.event import Event
from nnbridge.runtime.execution import UNKNOWN_DURATION, Execution
from nnbridge.runtime.memory import Memory, MemoryDesc
from nnbridge.types import OperandCode, OperationCode, ResultCode
from tests.graphs import FLOAT, unary_chain
from tests.runtime.drivers import Driver, FailsToExecute

FLOOR = OperationCode.FLOOR
X = np.array([-1.5, 0.5, 1.5, 2.5], np.float32)
FLOORED = [-2, 0, 1, 2]


def compiled(model: Model | None = None, *devices: Driver, explicit: bool = False) -> Compilation:
    model = model or unary_chain(FLOOR)
    compilation = Compilation.create_for_devices(model, devices or [cpu()]) if explicit else Compilation.create(model, devices)
    compilation.finish()
    return compilation


def bound(compilation: Compilation | None = None, *, reusable: bool = False) -> tuple[Execution, np.ndarray]:
    """An execution with everything set, and its output."""
    execution, out = Execution(compilation or compiled()), np.zeros(4, np.float32)
    execution.set_reusable(reusable)
    execution.set_input_buffer(0, X)
    execution.set_output(0, out)
    return execution, out


def open_model(dims: tuple[int, ...] = (0, 4)) -> Model:
    """FLOOR whose dimensions are left open in the model."""
    return unary_chain(FLOOR, dims=dims)


class _Waits(PreparedModel):
    def __init__(self, driver: Gate, model: Model) -> None:
        self._driver, self._inner = driver, CpuPreparedModel(model)

    def execute(self, request: Request) -> Result:
        self._driver.entered.set()
        self._driver.go.wait(10)
        return self._inner.execute(request)


@dataclass
class Gate(Driver):
    """Computes once it is let through."""

    entered: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def prepare_model(self, model: Model, *args: object, **options: object) -> PreparedModel:
        return _Waits(self, model)


SETTERS: dict[str, Callable[[Execution], None]] = {
    "setInput": lambda e: e.set_input_buffer(0, X),
    "setOutput": lambda e: e.set_output(0, np.zeros(4, np.float32)),
    "setInputFromMemory": lambda e: e.set_input_from_memory(0, Memory.of(X), 0, 16),
    "setOutputFromMemory": lambda e: e.set_output_from_memory(0, Memory.shared(16), 0, 16),
    "setReusable": lambda e: e.set_reusable(True),
    "setLoopTimeout": lambda e: e.set_loop_timeout(1),
    "setTimeout": lambda e: e.set_timeout(1),
    "setMeasureTiming": lambda e: e.set_measure_timing(True),
    "enablePadding": lambda e: e.enable_input_and_output_padding(True),
}


@pytest.mark.parametrize("name", SETTERS)
def test_e1_nothing_is_set_after_computing(name: str) -> None:
    execution, _ = bound(compiled(explicit=True))
    execution.compute()
    with pytest.raises(BadStateError):
        SETTERS[name](execution)


def test_e1_an_unfinished_compilation_has_no_executions() -> None:
    with pytest.raises(BadStateError):
        Execution(Compilation.create(unary_chain(FLOOR), []))


@pytest.mark.parametrize("reusable", [False, True])
def test_e2_a_second_compute_while_the_first_runs_is_bad_state(reusable: bool) -> None:
    gate = Gate("gate")
    execution, out = bound(compiled(None, gate), reusable=reusable)
    with execution.start_compute() as event:
        gate.entered.wait(10)
        with pytest.raises(BadStateError):
            execution.compute()
        gate.go.set()
        event.wait()
    assert out.tolist() == FLOORED


def test_e3_a_reusable_execution_computes_in_every_way() -> None:
    compilation = compiled()
    execution, out = bound(compilation, reusable=True)
    for compute in (
        execution.compute,
        lambda: execution.start_compute().wait(),
        lambda: Burst(compilation).compute(execution),
        lambda: execution.start_compute_with_dependencies([]).wait(),
    ):
        out[:] = 0
        compute()
        assert out.tolist() == FLOORED


def test_e4_a_compute_that_is_refused_spends_the_execution() -> None:
    execution = Execution(compiled())
    execution.set_input_buffer(0, X)
    with pytest.raises(BadDataError):
        execution.compute()
    with pytest.raises(BadStateError):
        execution.set_output(0, np.zeros(4, np.float32))


def test_e6_a_refused_size_leaves_the_argument_unset() -> None:
    execution = Execution(compiled())
    with pytest.raises(BadDataError):
        execution.set_input_buffer(0, X[:3])
    execution.set_input_buffer(0, X)


def test_e6_the_index_is_looked_at_before_the_argument() -> None:
    with pytest.raises(BadDataError):
        Execution(compiled()).set_input_buffer(1, X)


def test_e7_an_argument_is_set_once() -> None:
    execution, _ = bound()
    with pytest.raises(BadStateError):
        execution.set_input_buffer(0, X)
    with pytest.raises(BadStateError):
        execution.set_output(0, np.zeros(4, np.float32))


@pytest.mark.parametrize("dims", [(2, 3), (2, 4, 1), (2,)])
def test_e8_stated_dimensions_fit_the_models(dims: tuple[int, ...]) -> None:
    with pytest.raises(BadDataError):
        Execution(compiled(open_model())).set_input_buffer(0, np.zeros(8, np.float32), dims)


def test_e9_an_input_is_fully_specified() -> None:
    execution = Execution(compiled(open_model()))
    with pytest.raises(BadDataError):
        execution.set_input_buffer(0, X)
    with pytest.raises(BadDataError):
        execution.set_input_from_memory(0, Memory.of(X), 0, 16)
    execution.set_input_buffer(0, X, (1, 4))


def test_e11_an_empty_buffer_is_bad_data() -> None:
    with pytest.raises(BadDataError):
        Execution(compiled()).set_input_buffer(0, b"")


@pytest.mark.parametrize("length", [12, 20])
def test_e12_the_length_is_exact(length: int) -> None:
    with pytest.raises(BadDataError):
        Execution(compiled()).set_output(0, bytearray(length))


def test_e13_an_output_of_unknown_size_accepts_any_buffer() -> None:
    execution, out = Execution(compiled(open_model())), np.zeros(9, np.float32)
    execution.set_input_buffer(0, X, (1, 4))
    execution.set_output(0, out)
    execution.compute()
    assert out[:4].tolist() == FLOORED
    assert execution.output_dims(0) == (1, 4)


def test_e15_padding_is_enabled_before_anything_is_set() -> None:
    execution = Execution(compiled())
    with pytest.raises(BadDataError):
        execution.set_input_buffer(0, np.zeros(5, np.float32))
    with pytest.raises(BadStateError):
        execution.enable_input_and_output_padding(True)


def test_e15_with_padding_buffers_may_be_longer() -> None:
    execution, out = Execution(compiled()), np.zeros(6, np.float32)
    execution.enable_input_and_output_padding(True)
    execution.set_input_buffer(0, np.append(X, X))
    execution.set_output(0, out)
    execution.compute()
    assert out[:4].tolist() == FLOORED


@pytest.mark.parametrize(("offset", "length"), [(0, 0), (4, 16), (-4, 16), (0, 20)])
def test_e16_a_place_in_memory_is_inside(offset: int, length: int) -> None:
    with pytest.raises(BadDataError):
        Execution(compiled()).set_input_from_memory(0, Memory.of(X), offset, length)


def test_e16_arguments_lie_anywhere_in_a_memory() -> None:
    memory, execution = Memory.shared(64), Execution(compiled())
    memory.content[4:20] = X.view(np.uint8)
    execution.set_input_from_memory(0, memory, 4, 16)
    execution.set_output_from_memory(0, memory, 40, 16)
    execution.compute()
    assert memory.content[40:56].view(np.float32).tolist() == FLOORED


def test_e16_with_padding_a_place_in_memory_may_be_longer() -> None:
    memory, execution = Memory.shared(64), Execution(compiled())
    memory.content[:16] = X.view(np.uint8)
    execution.enable_input_and_output_padding(True)
    execution.set_input_from_memory(0, memory, 0, 24)
    execution.set_output_from_memory(0, memory, 32, 32)
    execution.compute()
    assert memory.content[32:48].view(np.float32).tolist() == FLOORED


def test_e24_open_outputs_are_computed_anew() -> None:
    execution, out = Execution(compiled(open_model())), np.zeros(4, np.float32)
    execution.set_reusable(True)
    execution.set_input_buffer(0, X, (1, 4))
    execution.set_output(0, out)
    for _ in range(2):
        execution.compute()
        assert execution.output_dims(0) == (1, 4)


@pytest.mark.parametrize("name", ["setTimeout", "setMeasureTiming"])
def test_e20_needs_an_explicit_device_before_it_looks_at_the_state(name: str) -> None:
    execution, _ = bound()
    execution.compute()
    with pytest.raises(BadDataError):
        SETTERS[name](execution)


def test_e22_every_argument_is_set() -> None:
    with pytest.raises(BadDataError):
        Execution(compiled()).start_compute()


def device_memory(compilation: Compilation) -> Memory:
    desc = MemoryDesc()
    desc.add_input_role(compilation, 0, 1.0)
    desc.add_output_role(compilation, 0, 1.0)
    desc.finish()
    return desc.create()


def from_device_memory(compilation: Compilation) -> Execution:
    execution = Execution(compilation)
    execution.set_input_from_memory(0, device_memory(compilation))
    execution.set_output(0, np.zeros(4, np.float32))
    return execution


def test_e23_an_uninitialised_memory_is_no_input() -> None:
    with pytest.raises(OpFailedError):
        from_device_memory(compiled()).compute()


def test_e25_a_deadline_that_has_passed_before_the_start_is_missed_for_good() -> None:
    execution, _ = bound(compiled(explicit=True))
    execution.set_timeout(1)
    with pytest.raises(MissedDeadlinePersistentError):
        execution.compute()


def test_e26_what_is_found_before_launching_is_reported_at_once() -> None:
    with pytest.raises(OpFailedError):
        from_device_memory(compiled()).start_compute()


def test_e27_waiting_twice_gives_the_same() -> None:
    broken = FailsToExecute("broken")
    execution, _ = bound(compiled(None, broken, explicit=True))
    with execution.start_compute() as event:
        for _ in range(2):
            with pytest.raises(OpFailedError):
                event.wait()


@pytest.mark.parametrize(
    ("code", "reported"), [(ResultCode.OUT_OF_MEMORY, ResultCode.OP_FAILED), (ResultCode.UNEXPECTED_NULL, ResultCode.BAD_DATA)]
)
def test_e28_events_speak_the_drivers_errors(code: ResultCode, reported: ResultCode) -> None:
    execution, _ = bound(compiled(None, FailsToExecute("broken", ends=Result(code)), explicit=True))
    assert execution.start_compute().result is reported


def test_e30_a_buffer_that_is_too_small_is_never_tried_again() -> None:
    execution = Execution(compiled(open_model(), Driver("all")))
    execution.set_input_buffer(0, X, (1, 4))
    execution.set_output(0, bytearray(4))
    with pytest.raises(OutputInsufficientSizeError):
        execution.compute()
    assert execution.report.fallback is None


def test_e32_the_driver_is_tried_again_next_time() -> None:
    execution, _ = bound(compiled(None, FailsToExecute("broken")), reusable=True)
    for _ in range(2):
        execution.compute()
        assert [step.device for step in execution.report.steps] == ["broken", "nnapi-reference"]


def test_e35_an_output_above_4_gib_fails() -> None:
    # TestValidation's DynamicOutputShapeOverflow: 2**16 * 2**16 floats.
    builder, large = ModelBuilder(), 1 << 16
    x, weights = builder.add_operand(FLOAT, (0, 0)), builder.add_operand(FLOAT, (0, 0))
    bias, fused, y = builder.add_operand(FLOAT, (0,)), builder.add_operand(OperandCode.INT32), builder.add_operand(FLOAT, (0, 0))
    builder.set_operand_value(fused, 0)
    builder.add_operation(OperationCode.FULLY_CONNECTED, [x, weights, bias, fused], [y])
    builder.identify_inputs_and_outputs([x, weights, bias], [y])
    execution, data = Execution(compiled(builder.finish())), np.zeros(large, np.float32)
    for i, dims in enumerate([(large, 1), (large, 1), (large,)]):
        execution.set_input_buffer(i, data, dims)
    execution.set_output(0, data.copy())
    with pytest.raises(OpFailedError):
        execution.compute()


def test_e36_dimensions_are_reported_after_completion() -> None:
    execution, _ = bound()
    with pytest.raises(BadStateError):
        execution.output_rank(0)
    execution.compute()
    assert (execution.output_rank(0), execution.output_dims(0)) == (2, (1, 4))
    with pytest.raises(BadDataError):
        execution.output_dims(1)


def test_e36_a_failed_execution_has_no_dimensions() -> None:
    execution, _ = bound(compiled(None, FailsToExecute("broken"), explicit=True))
    with pytest.raises(OpFailedError):
        execution.compute()
    with pytest.raises(BadStateError):
        execution.output_dims(0)


def test_e37_a_buffer_that_is_too_small_reports_the_true_dimensions() -> None:
    execution = Execution(compiled(open_model()))
    execution.set_input_buffer(0, np.zeros(12, np.float32), (3, 4))
    execution.set_output(0, bytearray(4))
    with pytest.raises(OutputInsufficientSizeError):
        execution.compute()
    assert (execution.output_dims(0), execution.output_sufficient(0)) == ((3, 4), False)


def test_e41_durations_are_for_measured_successes() -> None:
    execution, _ = bound(compiled(explicit=True))
    execution.compute()
    with pytest.raises(BadStateError):
        execution.duration()
    with pytest.raises(BadDataError):
        execution.duration(4)


def test_e42_a_device_that_does_not_measure() -> None:
    silent = FailsToExecute("silent", ends=Result(ResultCode.NO_ERROR))
    execution, _ = bound(compiled(None, silent, explicit=True))
    execution = Execution(execution.compilation)
    execution.set_measure_timing(True)
    execution.set_input_buffer(0, X)
    execution.set_output(0, np.zeros(4, np.float32))
    execution.compute()
    assert execution.duration() == UNKNOWN_DURATION


def test_e44_without_dependencies_fenced_durations_are_the_plain_ones() -> None:
    execution = Execution(compiled(explicit=True))
    execution.set_measure_timing(True)
    execution.set_input_buffer(0, X)
    execution.set_output(0, np.zeros(4, np.float32))
    execution.compute()
    assert (execution.duration(0), execution.duration(1)) == (execution.duration(2), execution.duration(3))


def test_e45_burst_and_execution_are_of_one_compilation() -> None:
    execution, _ = bound()
    with pytest.raises(BadDataError):
        Burst(compiled()).compute(execution)


def test_e46_a_burst_computes_one_at_a_time() -> None:
    gate = Gate("gate")
    compilation = compiled(None, gate)
    burst, (first, out), (second, _) = Burst(compilation), bound(compilation), bound(compilation)
    thread = threading.Thread(target=burst.compute, args=(first,))
    thread.start()
    gate.entered.wait(10)
    with pytest.raises(BadStateError):
        burst.compute(second)
    gate.go.set()
    thread.join()
    assert out.tolist() == FLOORED
    burst.compute(second)


def test_e52_a_dependency_is_not_null() -> None:
    with pytest.raises(UnexpectedNullError):
        bound()[0].start_compute_with_dependencies([None])


def test_e53_how_a_dependency_ended_does_not_matter() -> None:
    failed, _ = bound(compiled(None, FailsToExecute("broken"), explicit=True))
    execution, out = bound()
    execution.start_compute_with_dependencies([failed.start_compute()]).wait()
    assert out.tolist() == FLOORED


def test_e53_a_fenced_execution_waits_for_its_fences() -> None:
    fd = os.eventfd(0)
    execution, out = bound(compiled(None, Driver("driver"), explicit=True))
    with Event.from_sync_fence_fd(fd) as fence, execution.start_compute_with_dependencies([fence]) as event:
        assert out.tolist() == [0, 0, 0, 0]
        os.eventfd_write(fd, 1)
        event.wait()
    os.close(fd)
    assert out.tolist() == FLOORED


def test_e55_a_duration_needs_an_explicit_device() -> None:
    execution, _ = bound()
    with pytest.raises(BadDataError):
        execution.start_compute_with_dependencies([], 1_000_000)
    with pytest.raises(BadStateError):
        execution.compute()


def test_e56_fenced_outputs_are_fully_specified() -> None:
    execution = Execution(compiled(open_model()))
    execution.set_input_buffer(0, X, (1, 4))
    execution.set_output(0, bytearray(16))
    with pytest.raises(BadDataError):
        execution.start_compute_with_dependencies([])


def test_e59_an_ordinary_event_has_no_fence() -> None:
    with bound()[0].start_compute() as event, pytest.raises(BadDataError):
        event.sync_fence_fd()


@pytest.mark.parametrize("fd", [-1, 0])
def test_e59_a_fence_has_a_descriptor_above_0(fd: int) -> None:
    with pytest.raises(BadDataError):
        Event.from_sync_fence_fd(fd)


def test_e63_an_execution_decides_whether_its_output_memory_is_initialised() -> None:
    for devices, initialised in (([], True), ([FailsToExecute("broken")], False)):
        compilation = compiled(None, *devices, explicit=True)
        memory, execution = device_memory(compilation), Execution(compilation)
        execution.set_input_buffer(0, X)
        execution.set_output_from_memory(0, memory)
        _ = execution.start_compute().result
        assert memory.initialised is initialised


def test_unused_builder_names_are_named_by_position() -> None:
    builder = ModelBuilder()
    x, y = (builder.add_operand(FLOAT, (1, 4)) for _ in range(2))
    builder.add_operation(FLOOR, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    assert list(Execution(compiled(builder.finish())).run({"input0": X.reshape(1, 4)})) == ["output0"]

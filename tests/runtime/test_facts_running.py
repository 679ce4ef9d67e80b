"""Facts of running a partitioned plan, by number (R3 to R21, R31); those of control flow stand in test_control_flow.py."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from nnbridge.devices import cpu
from nnbridge.devices.cpu import CpuDevice
from nnbridge.devices.device import OutputShape, PreparedModel, Result
from nnbridge.errors import NnapiError, OpFailedError, OutputInsufficientSizeError
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation, PartitioningMode
from nnbridge.runtime.execution import Execution
from nnbridge.types import OperandCode, OperationCode, ResultCode
from tests.graphs import unary_chain
from tests.runtime.drivers import CannotPrepare, Driver, FailsToExecute
from tests.runtime.planning import Graph, compiled, picky, program, scripted

ABS, NEG = OperationCode.ABS, OperationCode.NEG
CPU = "nnapi-reference"
X = np.array([[-1, 2, -3, 4]], np.float32)
FAILED, SMALL = ResultCode.OP_FAILED, ResultCode.OUTPUT_INSUFFICIENT_SIZE


def run(compilation: Compilation, *inputs: np.ndarray) -> tuple[list[np.ndarray], Execution]:
    execution = Execution(compilation)
    return list(execution.run(inputs).values()), execution


def compute(compilation: Compilation, x: np.ndarray = X) -> tuple[np.ndarray, Execution]:
    """One computing, into a buffer that is large enough."""
    execution, y = Execution(compilation), np.empty((1, 4), np.float32)
    execution.set_input(0, x)
    execution.set_output(0, y)
    execution.compute()
    return y, execution


def explicit(model: Model, *drivers: Driver) -> Compilation:
    """Compiled for these drivers and the CPU, without fallback."""
    compilation = Compilation.create_for_devices(model, [*drivers, cpu()])
    compilation.finish()
    return compilation


def growing(code: OperationCode = NEG) -> Model:
    """``x → ABS → t → code → y`` with an open dimension throughout."""
    return unary_chain(ABS, code, dims=(1, 0))


def test_r1_temporaries_are_aligned_as_devices_prefer() -> None:
    makers = [scripted("abs", "ABS"), scripted("exp", "EXP")]
    run(compiled(unary_chain(ABS, NEG, OperationCode.EXP, NEG, dims=(1, 3)), *makers), X[:, :3])
    run(compiled(growing(), makers[0]), X)
    for request in (request for maker in makers for request in maker.requests):
        assert request.outputs[0].data.ctypes.data % 64 == 0


def test_r3_steps_get_the_clients_buffers() -> None:
    first, last = scripted("first", "ABS"), scripted("last", "NEG")
    y, _ = compute(compiled(unary_chain(ABS, NEG), first, last))
    assert np.shares_memory(first.requests[0].inputs[0], X)
    assert np.shares_memory(last.requests[0].outputs[0].data, y)


def test_r4_a_model_output_that_a_step_reads_has_the_dimensions_learned() -> None:
    graph = Graph()
    x = graph.operand("x", (0,))
    a = graph.add("ABS", [x], "a", (0,))
    reader = scripted("reader", "NEG")
    run(compiled(graph.finish([x], [a, graph.add("NEG", [a], "n", (0,))]), reader), X[0])
    assert reader.requests[0].inputs[0].shape == (4,)


def test_r6_every_step_has_the_same_deadline_and_loop_timeout() -> None:
    driver = scripted("driver", "ABS", "EXP")
    execution = Execution(compiled(unary_chain(ABS, NEG, OperationCode.EXP), driver))
    execution.set_loop_timeout(7_000_000)
    execution.run([X])
    assert [request.loop_timeout for request in driver.requests] == [7_000_000] * 2
    assert {request.deadline for request in driver.requests} == {None}


def test_r7_a_step_whose_shapes_are_wrong_has_failed() -> None:
    wrong = scripted("wrong", "ABS", results=[Result(ResultCode.NO_ERROR, (OutputShape((1, 5)),))])
    [y], execution = run(compiled(unary_chain(ABS, NEG), wrong), X)
    np.testing.assert_array_equal(y, -np.abs(X))
    assert "as declared" in str(execution.report.steps[1].fallback)


@pytest.mark.parametrize(
    "result",
    [
        Result(FAILED, (OutputShape((1, 4)),)),  # E34: shapes with another error
        Result(SMALL, (OutputShape((1, 4)),)),  # E34: nothing that is insufficient
        Result(ResultCode.NO_ERROR, (OutputShape((), True),)),  # E34: success without a rank
        Result(SMALL, (OutputShape((), False),)),  # E35: what was known is known no more
        Result(ResultCode.NO_ERROR, (OutputShape((1, 5), True),)),  # E35: another dimension
    ],
)
def test_e34_e35_what_a_device_may_not_answer(result: Result) -> None:
    wrong = scripted("wrong", "ABS", results=[result])
    with pytest.raises(OpFailedError):
        run(explicit(unary_chain(ABS, NEG), wrong), X)


@pytest.mark.parametrize("dims", [(1, 5), (1, 2**31), (1, 2**40)])
def test_e34_an_output_that_cannot_fit_is_not_sufficient(dims: tuple[int, ...]) -> None:
    wrong = scripted("wrong", "NEG", results=[Result(ResultCode.NO_ERROR, (OutputShape(dims),))])
    with pytest.raises(OpFailedError):
        compute(explicit(growing(), wrong))


def test_r9_a_dynamic_temporary_begins_with_one_element() -> None:
    driver = scripted("driver", "ABS")
    compute(compiled(growing(), driver))
    assert [len(request.outputs[0].data) for request in driver.requests] == [4, 16]


def test_r10_nothing_new_about_temporaries_ends_the_execution() -> None:
    # The temporary is as large as the driver said, and it still says too small.
    too_small = Result(SMALL, (OutputShape((1, 4), False),))
    driver = scripted("driver", "ABS", results=[too_small] * 5)
    with pytest.raises(OutputInsufficientSizeError):
        compute(compiled(growing(), driver))
    assert [len(request.outputs[0].data) for request in driver.requests] == [4, 16]


def test_r10_an_output_that_is_too_small_ends_the_execution_with_the_shapes_known() -> None:
    execution = Execution(compiled(growing(), scripted("driver", "NEG")))
    execution.set_input(0, X)
    execution.set_output(0, np.empty(3, np.float32))
    with pytest.raises(OutputInsufficientSizeError):
        execution.compute()
    assert execution.output_dims(0) == (1, 4)
    assert not execution.output_sufficient(0)


def test_r11_unknown_dimensions_double_the_buffer() -> None:
    vague = Result(SMALL, (OutputShape((1, 0), False),))
    driver = scripted("driver", "ABS", results=[vague, vague, vague])
    y, _ = compute(compiled(growing(), driver))
    np.testing.assert_array_equal(y, -np.abs(X))
    assert [len(request.outputs[0].data) for request in driver.requests] == [4, 8, 16, 32]


def test_r11_a_temporary_is_declared_with_what_was_reported() -> None:
    driver = scripted("driver", "ABS")
    compute(compiled(growing(), driver))
    assert [request.outputs[0].dims for request in driver.requests] == [(1, 0), (1, 4)]


def test_r11_a_temporary_above_2_gib_fails() -> None:
    huge = Result(SMALL, (OutputShape((1, 2**30), False),))
    with pytest.raises(OpFailedError, match="temporary"):
        run(explicit(growing(), scripted("driver", "ABS", results=[huge])), X)


def test_r13_a_step_reads_a_temporary_with_the_dimensions_reported() -> None:
    reader = scripted("reader", "NEG")
    run(compiled(growing(), reader), X)
    assert reader.requests[0].inputs[0].shape == (1, 4)


def test_r15_a_tensor_without_elements_between_steps_moves_the_model_to_the_cpu() -> None:
    empty = scripted("empty", "ABS", results=[Result(ResultCode.NO_ERROR, (OutputShape((1, 0)),))])
    reader = scripted("reader", "NEG")
    y, execution = compute(compiled(growing(), empty, reader))
    np.testing.assert_array_equal(y, -np.abs(X))
    assert "elements between steps" in str(execution.report.fallback)
    assert reader.requests == []
    assert [step.device for step in execution.report.steps] == ["empty", CPU]


def test_r15_without_fallback_it_fails() -> None:
    empty = scripted("empty", "ABS", results=[Result(ResultCode.NO_ERROR, (OutputShape((1, 0)),))])
    with pytest.raises(OpFailedError, match="elements between steps"):
        run(explicit(growing(), empty), X)


def test_r15_an_output_without_elements_that_no_step_reads_is_fine() -> None:
    empty = scripted("empty", "NEG", results=[Result(ResultCode.NO_ERROR, (OutputShape((1, 0)),))])
    [y], execution = run(compiled(growing(), empty), X)
    assert y.shape == (1, 0)
    assert execution.report.fallback is None


@pytest.mark.parametrize("code", [FAILED, ResultCode.BAD_DATA, ResultCode.MISSED_DEADLINE_TRANSIENT, ResultCode.DEAD_OBJECT])
def test_r16_without_fallback_a_steps_error_is_returned_as_it_is(code: ResultCode) -> None:
    for mode in (PartitioningMode.WITHOUT_FALLBACK, None):
        driver = scripted("driver", "ABS", results=[Result(code)])
        model = unary_chain(ABS, NEG)
        compilation = explicit(model, driver) if mode is None else compiled(model, driver, mode=mode)
        with pytest.raises(NnapiError) as caught:
            run(compilation, X)
        assert caught.value.code is code


def test_r17_one_failing_step_goes_to_the_cpu_and_the_next_stays_where_it_was() -> None:
    driver = scripted("driver", "ABS", "EXP", results=[Result(FAILED)])
    [y], execution = run(compiled(unary_chain(ABS, NEG, OperationCode.EXP), driver), X)
    np.testing.assert_allclose(y, np.exp(-np.abs(X)), rtol=1e-6)
    assert [step.device for step in execution.report.steps] == ["driver", CPU, CPU, "driver"]
    assert execution.report.fallback is None


def test_r17_a_step_that_fails_on_the_cpu_repeats_the_whole_model() -> None:
    # A GATHER out of range fails on the CPU, once as a step and once as a part of the whole.
    graph = Graph()
    x, at = graph.operand("x", (4,)), graph.operand("at", (1,), OperandCode.TENSOR_INT32)
    axis = graph.constant(0, OperandCode.INT32)
    found = graph.add("GATHER", [graph.add("ABS", [x], "a", (4,)), axis, at], "found", (1,))
    execution = Execution(compiled(graph.finish([x, at], [found]), picky("abs", 0.5, "ABS")))
    with pytest.raises(OpFailedError):
        execution.run([X[0], np.array([9], np.int32)])
    assert [step.device for step in execution.report.steps] == ["abs", CPU, CPU]
    assert execution.report.fallback is not None


def test_r18_a_failing_step_that_the_cpu_cannot_run_either_repeats_the_whole_model() -> None:
    graph = Graph()
    x, at = graph.operand("x", (4,)), graph.operand("at", (1,), OperandCode.TENSOR_INT32)
    axis = graph.constant(0, OperandCode.INT32)
    found = graph.add("GATHER", [graph.add("ABS", [x], "a", (4,)), axis, at], "found", (1,))
    execution = Execution(compiled(graph.finish([x, at], [found]), scripted("gather", "GATHER", results=[Result(FAILED)])))
    with pytest.raises(OpFailedError):
        execution.run([X[0], np.array([9], np.int32)])
    assert [step.device for step in execution.report.steps] == [CPU, "gather", CPU, CPU]


def test_r18_a_step_on_the_cpu_grows_its_temporaries_as_well() -> None:
    driver = scripted("driver", "ABS", results=[Result(FAILED)])
    [y], execution = run(compiled(growing(), driver), X)
    np.testing.assert_array_equal(y, -np.abs(X))
    assert execution.report.fallback is None


class CountingCpu(CpuDevice):
    """The CPU, with the number of its preparations."""

    def __init__(self) -> None:
        super().__init__()
        self.prepared: list[Model] = []

    def prepare_model(self, model: Model, *args: Any, **options: Any) -> PreparedModel:
        self.prepared.append(model)
        return super().prepare_model(model, *args, **options)


@pytest.mark.parametrize("codes", [(ABS,), (ABS, NEG)], ids=["the whole model", "one step of two"])
def test_r17_r20_what_falls_back_is_prepared_for_the_cpu_once(codes: tuple[OperationCode, ...]) -> None:
    cpu = CountingCpu()
    drivers = [FailsToExecute("fails", frozenset({ABS})), Driver("works", frozenset({NEG}))]
    compilation = Compilation.create(unary_chain(*codes), [*drivers, cpu])
    compilation.finish()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: Execution(compilation).run([np.float32([[-1, 2, -3, 4]])])["y"], range(20)))
    assert all((np.abs(answer) == [[1, 2, 3, 4]]).all() for answer in answers)
    assert len(cpu.prepared) == 1


def test_r20_full_fallback_computes_everything_anew() -> None:
    empty = scripted("empty", "NEG", results=[None, None])
    compilation = compiled(unary_chain(ABS, NEG, ABS), empty)
    for _ in range(2):
        [y], _ = run(compilation, X)
        np.testing.assert_array_equal(y, np.abs(X))


def test_r31_steps_run_one_after_another() -> None:
    order: list[str] = []

    class Slow(Driver):
        def prepare_model(self, *args: object, **options: object) -> object:  # type: ignore[override]
            prepared = super().prepare_model(*args, **options)  # type: ignore[arg-type]
            execute = prepared.execute

            def slowly(request: object) -> Result:
                order.append(f"{self.name} begins")
                time.sleep(0.01)
                result = execute(request)  # type: ignore[arg-type]
                order.append(f"{self.name} ends")
                return result

            prepared.execute = slowly  # type: ignore[method-assign]
            return prepared

    graph = Graph()
    x = graph.operand("x")
    model = graph.finish([x], [graph.add("ABS", [x]), graph.add("NEG", [x])])
    run(compiled(model, Slow("a", frozenset({ABS})), Slow("b", frozenset({NEG}))), X[0, :2])
    assert order == ["b begins", "b ends", "a begins", "a ends"]


def test_p29_hosts_apart_the_whole_model_moves_when_a_step_has_no_inputs() -> None:
    graph = Graph()
    x = graph.operand("x")
    two = graph.constant([2.0, 2.0], OperandCode.TENSOR_FLOAT32, (2,))
    model = graph.finish([x], [graph.add("ADD0", [graph.add("ABS", [two]), x])])
    assert program(compiled(model, picky("abs", 0.5, "ABS"))) == [CPU]
    with pytest.raises(OpFailedError, match="inputs"):
        explicit(model, picky("abs", 0.5, "ABS"))


def test_c13_a_model_that_the_cpu_cannot_run_gives_the_drivers_error() -> None:
    graph = Graph()
    x = graph.operand("x")
    model = graph.finish([x], [graph.add("OEM_OPERATION", [graph.add("ABS", [x])])])
    with pytest.raises(OpFailedError, match="broken"):
        compiled(model, CannotPrepare("broken", frozenset({OperationCode.OEM_OPERATION})))

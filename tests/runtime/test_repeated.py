"""Computations that repeat go a short way, and differ in nothing else: reusable executions, single runs of small models."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nnbridge import Compilation, Execution, Model, ModelBuilder, NnapiError
from nnbridge.devices.cpu import CpuPreparedModel
from nnbridge.devices.device import Request, Result
from nnbridge.errors import BadDataError, BadStateError
from nnbridge.runtime.memory import Memory
from nnbridge.types import OperandCode, OperationCode
from tests.counting import calls
from tests.graphs import unary_chain

FLOAT, INT = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_INT32
KERNELS = pytest.mark.parametrize("kernels", ["reference", "auto"])
RELUS = unary_chain(OperationCode.RELU, OperationCode.RELU6, OperationCode.SIN)


@pytest.fixture
def executions(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """The requests that were executed the long way."""
    seen: list[Request] = []
    execute = CpuPreparedModel.execute

    def counted(self: CpuPreparedModel, request: Request) -> Result:
        seen.append(request)
        return execute(self, request)

    monkeypatch.setattr(CpuPreparedModel, "execute", counted)
    return seen


def bound(model: Model, kernels: str, *inputs: np.ndarray, size: int) -> tuple[Execution, np.ndarray]:
    """A reusable execution on these arrays, and its output's bytes."""
    compilation = Compilation.create(model, [], kernels=kernels)
    compilation.finish()
    execution, out = Execution(compilation), np.zeros(size, np.uint8)
    execution.set_reusable(True)
    for i, array in enumerate(inputs):
        execution.set_input_buffer(i, array, array.shape)
    execution.set_output(0, out)
    return execution, out


def gather_of_three() -> Model:
    """One of three numbers, by an index that comes with the run."""
    builder = ModelBuilder("gather")
    x, axis, at = builder.add_operand(FLOAT, (3,)), builder.add_operand(OperandCode.INT32), builder.add_operand(INT, (1,))
    builder.set_operand_value(axis, 0)
    y = builder.add_operand(FLOAT, (1,))
    builder.add_operation(OperationCode.GATHER, [x, axis, at], [y])
    builder.identify_inputs_and_outputs([x, at], [y])
    return builder.finish()


@KERNELS
def test_buffers_are_read_and_written_anew_each_time(kernels: str, executions: list[Request]) -> None:
    x = np.zeros((1, 4), np.float32)
    execution, out = bound(RELUS, kernels, x, size=16)
    for value in (1.0, -2.0, 7.0, 3.0):
        x[:] = value
        execution.compute()
        np.testing.assert_allclose(out.view(np.float32), np.sin(np.float32(min(max(value, 0), 6))), rtol=1e-6)
        assert execution.output_dims(0) == (1, 4)
        assert [(step.device, step.runs) for step in execution.report.steps] == [("nnapi-reference", 1)]
    assert len(executions) == 1


@KERNELS
def test_memories_are_read_and_written_anew_each_time(kernels: str, executions: list[Request]) -> None:
    compilation = Compilation.create(RELUS, [], kernels=kernels)
    compilation.finish()
    execution, memory = Execution(compilation), Memory.of(bytearray(32))
    execution.set_reusable(True)
    execution.set_input_from_memory(0, memory, 0, 16)
    execution.set_output_from_memory(0, memory, 16, 16)
    for value in (1.0, 2.0):
        memory.content[:16].view(np.float32)[:] = value
        execution.compute()
        np.testing.assert_allclose(memory.content[16:].view(np.float32), np.sin(np.float32(value)), rtol=1e-6)
    assert len(executions) == 1


@KERNELS
def test_an_observer_that_comes_later_sees_everything(kernels: str) -> None:
    execution, _ = bound(RELUS, kernels, np.ones((1, 4), np.float32), size=16)
    execution.compute()
    seen: list[int] = []
    execution.observer = lambda plan, step, device, subgraph, operand, value: seen.append(operand)
    execution.compute()
    assert set(seen) == {0, 1, 2, 3}


@KERNELS
def test_what_fails_the_second_time_reports_why_and_may_succeed_again(kernels: str) -> None:
    index = np.array([1], np.int32)
    execution, out = bound(gather_of_three(), kernels, np.array([5, 6, 7], np.float32), index, size=4)
    for _ in range(2):
        execution.compute()
    index[:] = 9
    with pytest.raises(NnapiError, match="index"):
        execution.compute()
    index[:] = 2
    execution.compute()
    assert out.view(np.float32)[0] == 7.0


@KERNELS
def test_shapes_that_depend_on_values_are_executed_the_long_way(kernels: str, executions: list[Request]) -> None:
    execution, shape, out = dynamic_chain(2, kernels)
    for rows, columns in ((2, 6), (3, 4), (4, 3), (3, 4)):
        shape[:] = rows, columns
        execution.compute()
        assert execution.output_dims(0) == (rows, columns)
        assert out.view(np.float32).tolist() == list(range(12))
    assert len(executions) == 4


def dynamic_chain(operations: int, kernels: str = "auto") -> tuple[Execution, np.ndarray, np.ndarray]:
    """RESHAPE to dimensions that come with the run, then operations whose dimensions follow from them."""
    builder = ModelBuilder("dynamic")
    x, shape = builder.add_operand(FLOAT, (2, 6)), builder.add_operand(INT, (2,))
    value, code, read = x, OperationCode.RESHAPE, [x, shape]
    for _ in range(operations + 1):
        value = builder.add_operand(FLOAT, (0, 0))
        builder.add_operation(code, read, [value])
        code, read = OperationCode.RELU, [value]
    builder.identify_inputs_and_outputs([x, shape], [value])
    dims = np.array([3, 4], np.int32)
    data = np.arange(12, dtype=np.float32).reshape(2, 6)
    execution, out = bound(builder.finish(), kernels, data, dims, size=48)
    return execution, dims, out


@pytest.mark.parametrize(("kernels", "limit"), [("auto", 30), ("reference", 75)])
def test_the_fixed_cost_of_a_run_is_small(kernels: str, limit: int) -> None:
    # About 20 and 50 calls; docs/performance.md has what they take.
    execution, _ = bound(RELUS, kernels, np.ones((1, 4), np.float32), size=16)
    assert calls(execution.compute) < limit


def test_dynamic_operations_cost_little_each() -> None:
    few, many = dynamic_chain(1)[0], dynamic_chain(41)[0]
    assert (calls(many.compute) - calls(few.compute)) / 40 < 30


def test_cost_grows_linearly_with_operations() -> None:
    chains = [unary_chain(*[OperationCode.RELU] * count) for count in (50, 200)]
    short, long = (bound(chain, "reference", np.ones((1, 4), np.float32), size=16)[0] for chain in chains)
    assert calls(long.compute) <= 4 * calls(short.compute)


def test_a_small_output_of_unknown_size_is_computed_once(executions: list[Request]) -> None:
    compilation = Compilation.create(unary_chain(OperationCode.RELU, dims=(0, 4)), [])
    compilation.finish()
    for rows in (3, 2000):
        executions.clear()
        found = Execution(compilation).run([np.full((rows, 4), -1, np.float32)])
        assert next(iter(found.values())).shape == (rows, 4)
        assert len(executions) == (1 if rows == 3 else 2)


# -- Execution.run, again and again --------------------------------------------------------------------------------------


def finished(model: Model, kernels: str = "auto") -> Compilation:
    compilation = Compilation.create(model, [], kernels=kernels)
    compilation.finish()
    return compilation


@KERNELS
def test_small_models_are_bound_for_runs_of_one_shape(kernels: str, executions: list[Request]) -> None:
    compilation = finished(unary_chain(OperationCode.RELU, dims=(0, 4)), kernels)
    for rows in (1, 3, 1, 3, 1, 3):
        execution = Execution(compilation)
        found = execution.run([np.full((rows, 4), rows, np.float32)])
        np.testing.assert_array_equal(found["y"], np.full((rows, 4), rows))
        assert execution.output_dims(0) == (rows, 4)
        assert [(step.device, step.runs) for step in execution.report.steps] == [("nnapi-reference", 1)]
    assert len(executions) == 4


def test_answers_of_bound_runs_are_the_callers_own() -> None:
    compilation = finished(RELUS)
    answers = [Execution(compilation).run({"x": np.full((1, 4), k, np.float32)})["y"] for k in range(5)]
    np.testing.assert_allclose([answer[0, 0] for answer in answers], np.sin(np.arange(5)), rtol=1e-6)


def test_an_execution_that_ran_bound_has_completed() -> None:
    compilation = finished(RELUS)
    for _ in range(3):
        execution = Execution(compilation)
        execution.run([np.ones((1, 4), np.float32)])
        with pytest.raises(BadStateError):
            execution.run([np.ones((1, 4), np.float32)])


def test_inputs_that_do_not_fit_are_refused_as_before_the_run_was_bound() -> None:
    compilation = finished(RELUS)
    messages = []
    for _ in range(3):
        with pytest.raises(BadDataError) as refused:
            Execution(compilation).run([np.ones((1, 5), np.float32)])
        messages.append(str(refused.value))
        Execution(compilation).run([np.ones((1, 4), np.float32)])
    assert len(set(messages)) == 1


def test_a_bound_run_that_fails_is_repeated_the_whole_way(executions: list[Request]) -> None:
    compilation = finished(gather_of_three())
    data = np.array([5, 6, 7], np.float32)
    for index in (1, 2, 0):
        assert next(iter(Execution(compilation).run([data, np.array([index], np.int32)]).values())) == data[index]
    assert len(executions) == 2
    for _ in range(2):
        with pytest.raises(NnapiError, match="index"):
            Execution(compilation).run([data, np.array([9], np.int32)])
    assert len(executions) == 4


def test_threads_share_no_arrays_of_bound_runs() -> None:
    compilation = finished(RELUS)

    def many(k: int) -> bool:
        x = np.full((1, 4), k / 4, np.float32)
        return all(np.allclose(Execution(compilation).run([x])["y"], np.sin(k / 4), rtol=1e-6) for _ in range(200))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(many, range(8)))


def test_large_models_are_not_copied(executions: list[Request]) -> None:
    compilation = finished(unary_chain(OperationCode.RELU, dims=(100, 200)))
    for _ in range(4):
        Execution(compilation).run([np.ones((100, 200), np.float32)])
    assert len(executions) == 4


def test_the_fixed_cost_of_a_single_run_is_small() -> None:
    compilation, x = finished(RELUS), np.ones((1, 4), np.float32)
    # About 85 calls; docs/compiled-kernels.md has what they take.
    assert calls(lambda: Execution(compilation).run([x])) < 130

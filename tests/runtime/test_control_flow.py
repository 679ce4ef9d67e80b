"""IF and WHILE that the runtime runs itself (facts P7 to P13, P22, P36, R19, R22 to R30); counterparts of TestControlFlow.cpp."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from nnbridge.cpu.executor import Executor
from nnbridge.devices import cpu
from nnbridge.devices.device import Capabilities, Performance, Result, uniform_capabilities
from nnbridge.errors import BadDataError, MissedDeadlineTransientError, OpFailedError
from nnbridge.extensions import TYPES
from nnbridge.model import Location, Model, Subgraph
from nnbridge.runtime import partitioner as steps
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.types import Lifetime, OperandCode, OperationCode, ResultCode
from tests.runtime.drivers import CannotPrepare, Driver, FailsToExecute
from tests.runtime.planning import (
    BOOL8,
    Graph,
    Picky,
    below,
    binary,
    compiled,
    counting,
    if_model,
    nested,
    picky,
    places,
    program,
    while_model,
)

INT = OperandCode.TENSOR_INT32
X, Y = np.array([3, 5], np.float32), np.array([2, 7], np.float32)
CPU = "nnapi-reference"


def run(compilation: Compilation, *inputs: object, loop_timeout: int | None = None) -> list[np.ndarray]:
    execution = Execution(compilation)
    if loop_timeout is not None:
        execution.set_loop_timeout(loop_timeout)
    return list(execution.run([np.asarray(x) for x in inputs]).values())


def numbers(value: float) -> np.ndarray:
    return np.array([value], np.float32)


# -- TestPartitioning.cpp, ControlFlowPartitioningTest ----------------------------------------------------------------


def test_if_interpreted() -> None:
    compilation = compiled(if_model(binary("ADD0"), binary("ADD0")), picky("old", 0.9, level=1))
    assert program(compilation) == ["IF", "old", "GOTO", "old"]
    assert places(compilation) == ["NNAPI"]


def test_while_interpreted() -> None:
    # LESS is of level 3: the condition stays on the CPU.
    compilation = compiled(while_model(), picky("old", 0.9, level=1))
    assert program(compilation) == ["WHILE", CPU, "GOTO", "old", "GOTO"]


def test_if_simple_plan() -> None:
    compilation = compiled(if_model(binary("ADD0"), binary("MUL0")), picky("all", 0.4))
    assert program(compilation) == ["all"]


def test_while_simple_plan() -> None:
    compilation = compiled(while_model(), picky("all", 0.2))
    assert program(compilation) == ["all"]


@pytest.mark.parametrize(
    ("main", "then", "otherwise"), [c for c in itertools.product([(2,), (0,)], repeat=3) if c != ((2,), (2,), (2,))]
)
def test_if_unknown_size(main: tuple[int, ...], then: tuple[int, ...], otherwise: tuple[int, ...]) -> None:
    model = if_model(binary("ADD0", then), binary("MUL0", otherwise), main)
    assert program(compiled(model, picky("all", 0.2))) == [CPU]


@pytest.mark.parametrize(("main", "inner"), [((0,), (2,)), ((2,), (0,)), ((0,), (0,))])
def test_while_unknown_size(main: tuple[int, ...], inner: tuple[int, ...]) -> None:
    condition = Graph()
    a = condition.operand("a", inner)
    first, size = condition.constant([0], INT, (1,)), condition.constant([1], INT, (1,))
    head = condition.add("SLICE", [a, first, size], "head", (1,))
    limit = condition.constant([0.0], OperandCode.TENSOR_FLOAT32, (1,))
    test = condition.finish([a], [condition.add("LESS", [head, limit], "more", (1,), BOOL8)])
    body = Graph()
    b = body.operand("b", inner)
    graph = Graph()
    x, y = graph.operand("x", main), graph.operand("y", main)
    graph.loop(test, body.finish([b], [body.add("ADD0", [b, b], "sum", inner)]), [x], [y])
    assert program(compiled(graph.finish([x], [y]), picky("all", 0.2))) == [CPU]


def test_p9_without_the_cpu_control_flow_of_unknown_size_has_no_device() -> None:
    model = if_model(binary("ADD0", (0,)), binary("ADD0"))
    with pytest.raises(BadDataError, match="known size"):
        Compilation.create_for_devices(model, [picky("all", 0.2)]).finish()


def test_p7_the_figure_of_if_adds_half_of_both_branches() -> None:
    # f + 0.5 * (f + f) = 2 f against the CPU's 2; a tie is the CPU's.
    for figure, expected in ((0.99, "driver"), (1.0, "NNAPI"), (1.01, "NNAPI")):
        assert places(compiled(if_model(binary("ADD0"), binary("MUL0")), picky("driver", figure))) == [expected]


@pytest.mark.parametrize(("main", "inner", "device"), [(False, True, "driver"), (True, False, "NNAPI")])
def test_p8_the_relaxed_flag_of_a_body_is_its_own(main: bool, inner: bool, device: str) -> None:
    # The driver is at 0.4 for relaxed float32 and at 1.5 else; a branch of its costs 1 + 0.4, or 1 + 1.5, against the CPU's 2.
    class Rated(Picky):
        @property
        def capabilities(self) -> Capabilities:
            return uniform_capabilities(Performance(1, 1), Performance(1.5, 1.5), Performance(0.4, 0.4))

    branch = Graph()
    branch.builder.relax_computation_float32_to_float16(inner)
    a, b = branch.operand("a"), branch.operand("b")
    model = branch.finish([a, b], [branch.add("ADD0", [a, b])])
    graph = Graph()
    graph.builder.relax_computation_float32_to_float16(main)
    condition, a, b = graph.operand("condition", (1,), BOOL8), graph.operand("a"), graph.operand("b")
    y = graph.operand("y")
    graph.branch(condition, model, model, [a, b], [y])
    compilation = compiled(graph.finish([condition, a, b], [y]), Rated("driver"))
    assert places(compilation) == [device]
    # Where the runtime interprets, the bodies' placement looks at their own flag too, and steps have the main model's.
    if device == "NNAPI":
        assert program(compilation) == ["IF", CPU, "GOTO", CPU]
        assert all(step.model.relaxed for step in compilation.plan.steps)


def test_p10_a_body_without_a_device_is_bad_data() -> None:
    oem = Graph()
    a, b = oem.operand("a"), oem.operand("b")
    then = oem.finish([a, b], [oem.add("OEM_OPERATION", [a, b], "y")])
    with pytest.raises(BadDataError, match="OEM_OPERATION"):
        compiled(if_model(then, binary("ADD0")), picky("old", 0.9, level=1))


# -- TestControlFlow.cpp ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drivers", [(), (picky("body", 0.5, "ADD0"),), (picky("all", 0.2),)])
def test_infinite_loop(drivers: tuple[object, ...]) -> None:
    graph = Graph()
    i, n = graph.operand("i", (1,)), graph.operand("n", (1,))
    condition = graph.finish([i, n], [graph.add("GREATER_EQUAL", [i, n], "more", (1,), BOOL8)])
    graph = Graph()
    i, n = graph.operand("i", (1,)), graph.operand("n", (1,))
    one = graph.constant([1.0], OperandCode.TENSOR_FLOAT32, (1,))
    body = graph.finish([i, n], [graph.add("ADD0", [i, one], "next", (1,))])
    graph = Graph()
    start, n = graph.constant([1.0], OperandCode.TENSOR_FLOAT32, (1,)), graph.operand("n", (1,))
    out = graph.operand("i", (1,))
    graph.loop(condition, body, [start, n], [out])
    compilation = compiled(graph.finish([n], [out]), *drivers)  # type: ignore[arg-type]
    with pytest.raises(MissedDeadlineTransientError):
        run(compilation, numbers(0), loop_timeout=1_000_000)


# -- running ---------------------------------------------------------------------------------------------------------

DEALS = {
    "the CPU alone": (),
    "bodies on one driver": (picky("old", 0.9, level=1),),
    "bodies over three devices": (picky("a", 0.9, "ADD0"), picky("b", 0.9, "ADD1")),
    "everything on one driver": (picky("all", 0.1),),
}


@pytest.mark.parametrize("drivers", DEALS.values(), ids=DEALS)
def test_r22_the_condition_chooses_the_branch(drivers: tuple[object, ...]) -> None:
    compilation = compiled(if_model(binary("ADD0"), binary("MUL0")), *drivers)  # type: ignore[arg-type]
    for condition, expected in ((True, X + Y), (False, X * Y)):
        [y] = run(compilation, np.array([condition]), X, Y)
        np.testing.assert_array_equal(y, expected)


def test_r22_any_byte_but_zero_is_true() -> None:
    compilation = compiled(if_model(binary("ADD0"), binary("MUL0")), picky("old", 0.9, level=1))
    execution = Execution(compilation)
    y = np.empty(2, np.float32)
    for i, value in enumerate((np.array([2], np.uint8), X, Y)):
        execution.set_input_buffer(i, value)
    execution.set_output(0, y)
    execution.compute()
    np.testing.assert_array_equal(y, X + Y)


@pytest.mark.parametrize(("value", "expected"), [(True, X + Y), (False, X * Y)])
def test_r22_the_condition_may_be_a_constant_a_temporary_or_an_output(value: bool, expected: np.ndarray) -> None:
    graph = Graph()
    a, b, given = graph.operand("a"), graph.operand("b"), graph.operand("given", (1,), BOOL8)
    constant = graph.constant(np.array([value]), BOOL8, (1,))
    temporary = graph.add("LOGICAL_AND", [given, constant], "temporary", (1,), BOOL8)
    output = graph.add("LOGICAL_OR", [given, constant], "output", (1,), BOOL8)
    made = []
    for condition in (constant, temporary, output):
        made.append(graph.operand(f"y{condition}"))
        graph.branch(condition, binary("ADD0"), binary("MUL0"), [a, b], [made[-1]])
    compilation = compiled(graph.finish([a, b, given], [output, *made]), picky("logic", 0.5, "LOGICAL_AND", "LOGICAL_OR"))
    assert program(compilation).count("IF") == 3
    _, *results = run(compilation, X, Y, np.array([value]))
    for result in results:
        np.testing.assert_array_equal(result, expected)


def test_r22_an_omitted_condition_fails() -> None:
    compilation = Compilation.create_for_devices(if_model(binary("ADD0"), binary("MUL0")), [cpu()])
    compilation.finish()
    with pytest.raises(OpFailedError, match="condition"):
        Execution(compilation).run([None, X, Y])


def test_r23_only_the_chosen_branch_runs() -> None:
    broken = FailsToExecute("broken", frozenset({OperationCode.MUL}))
    compilation = compiled(if_model(binary("ADD0"), binary("MUL0")), broken)
    execution = Execution(compilation)
    [y] = execution.run([np.array([True]), X, Y]).values()
    np.testing.assert_array_equal(y, X + Y)
    assert [step.device for step in execution.report.steps] == [CPU]


@pytest.mark.parametrize("drivers", DEALS.values(), ids=DEALS)
@pytest.mark.parametrize(("n", "total"), [(0, 1), (1, 2), (2, 5), (5, 58)])
def test_r24_r27_loops_carry_values_and_end_with_the_last(drivers: tuple[object, ...], n: int, total: int) -> None:
    # total doubles and adds i: 1, 2, 5, 12, 27, 58.
    i, last = run(compiled(while_model(), *drivers), numbers(0), np.ones(2, np.float32), numbers(n))  # type: ignore[arg-type]
    np.testing.assert_array_equal(i, [n])
    np.testing.assert_array_equal(last, [total, total])


def test_r24_state_that_does_not_come_out() -> None:
    [i] = run(compiled(while_model(outputs=1), picky("old", 0.9, level=1)), numbers(0), X, numbers(4))
    np.testing.assert_array_equal(i, [4])


def test_r27_a_loop_in_the_middle_of_a_model() -> None:
    graph = Graph()
    i, start, n = graph.operand("i", (1,)), graph.operand("start"), graph.operand("n", (1,))
    total = graph.add("ADD0", [start, start], "total")
    made = [graph.operand("i out", (1,)), graph.operand("total out")]
    graph.loop(below(), counting(), [i, total, n], made)
    y = graph.add("MUL0", [made[1], total], "y")
    compilation = compiled(graph.finish([i, start, n], [y]), picky("add", 0.9, "ADD0"))
    assert program(compilation) == ["add", "WHILE", CPU, "GOTO", "add", CPU, "GOTO", CPU]
    for count, factor in ((0, 2), (2, 9)):
        # Twice 1 is 2; two rounds make 4, then 9.
        [result] = run(compilation, numbers(0), np.ones(2, np.float32), numbers(count))
        np.testing.assert_array_equal(result, [2 * factor] * 2)


def test_r26_the_time_is_looked_at_before_the_condition() -> None:
    # No iteration is due, yet a limit of no time at all is exceeded once the condition was evaluated.
    compilation = compiled(while_model(), picky("old", 0.9, level=1))
    with pytest.raises(MissedDeadlineTransientError):
        run(compilation, numbers(5), X, numbers(0), loop_timeout=0)


def test_r19_a_loop_that_takes_too_long_does_not_fall_back() -> None:
    compilation = compiled(while_model(), picky("old", 0.9, level=1))
    execution = Execution(compilation)
    execution.set_loop_timeout(1_000_000)
    with pytest.raises(MissedDeadlineTransientError):
        execution.run([numbers(0), X, numbers(1e9)])
    assert execution.report.fallback is None


def test_nested_control_flow_is_partitioned_into_one_flat_list() -> None:
    compilation = compiled(nested(), picky("a", 0.9, "ADD0"), picky("m", 0.9, "MUL0"))
    # The interpreter's queue goes first.
    assert program(compilation) == ["WHILE", CPU, "GOTO", "IF", "a", "GOTO", "m", "a", "GOTO"]
    assert [source.role for source in compilation.plan.partition.sources] == ["main", "condition", "body", "then", "else"]


@pytest.mark.parametrize("drivers", DEALS.values(), ids=DEALS)
@pytest.mark.parametrize(("flag", "total"), [(True, 16), (False, 60)])
def test_r28_nested_control_flow_computes(drivers: tuple[object, ...], flag: bool, total: float) -> None:
    # From i = 1 to 5: 1 + 1 + 2 + 3 + 4 + 5 = 16; 0.5 * 1 * 2 * 3 * 4 * 5 = 60.
    start = np.full(2, 1 if flag else 0.5, np.float32)
    i, last = run(compiled(nested(), *drivers), numbers(1), start, numbers(6), np.array([flag]))  # type: ignore[arg-type]
    np.testing.assert_array_equal(i, [6])
    np.testing.assert_array_equal(last, [total] * 2)


def test_a_loop_in_a_loop_starts_anew_each_time() -> None:
    inner = Graph()
    i, total, n = inner.operand("i", (1,)), inner.operand("total"), inner.operand("n", (1,))
    one, zero = (inner.constant([v], OperandCode.TENSOR_FLOAT32, (1,)) for v in (1.0, 0.0))
    changed, dropped = inner.operand("changed"), inner.operand("j", (1,))
    inner.loop(below(), counting(), [zero, total, n], [dropped, changed])
    next_i = inner.add("ADD0", [i, one], "next i", (1,))
    body = inner.finish([i, total, n], [next_i, changed])
    graph = Graph()
    i, total, n = graph.operand("i", (1,)), graph.operand("total"), graph.operand("n", (1,))
    made = [graph.operand("i out", (1,)), graph.operand("total out")]
    graph.loop(below(), body, [i, total, n], made)
    model = graph.finish([i, total, n], made)
    expected = Executor(model).run([numbers(0), np.ones(2, np.float32), numbers(3)])[1].value
    _, last = run(compiled(model, picky("old", 0.9, level=1)), numbers(0), np.ones(2, np.float32), numbers(3))
    np.testing.assert_array_equal(last, expected)
    # 1 → 2 → 5 → 12; → 24, 49, 100; → 200, 401, 804.
    np.testing.assert_array_equal(last, [804, 804])


# -- failures --------------------------------------------------------------------------------------------------------


def test_a_body_that_cannot_be_prepared_moves_everything_to_the_cpu() -> None:
    compilation = compiled(while_model(), CannotPrepare("broken", frozenset({OperationCode.ADD})))
    assert compilation.plan.simple
    assert places(compilation) == [CPU]
    i, _ = run(compilation, numbers(0), X, numbers(3))
    np.testing.assert_array_equal(i, [3])


def test_r17_a_step_of_a_body_that_fails_is_repeated_on_the_cpu_each_time() -> None:
    compilation = compiled(while_model(), FailsToExecute("broken", frozenset({OperationCode.ADD})))
    execution = Execution(compilation)
    _, last = execution.run([numbers(0), np.ones(2, np.float32), numbers(2)]).values()
    np.testing.assert_array_equal(last, [5, 5])
    assert [(step.device, step.runs) for step in execution.report.steps if step.fallback] == [(CPU, 2)]
    assert execution.report.fallback is None


def test_a_step_of_a_body_that_fails_on_explicit_devices_ends_the_execution() -> None:
    broken = FailsToExecute("broken", frozenset({OperationCode.ADD}), ends=Result(ResultCode.OP_FAILED))
    compilation = Compilation.create_for_devices(while_model(), [broken, cpu()])
    compilation.finish()
    with pytest.raises(OpFailedError):
        run(compilation, numbers(0), X, numbers(2))


def test_p16_the_cpu_alone_interprets_too() -> None:
    compilation = Compilation.create_for_devices(while_model(), [cpu()])
    compilation.finish()
    assert program(compilation) == ["WHILE", CPU, "GOTO", CPU, "GOTO"]


def test_p29_a_branch_of_constants_alone_moves_everything_to_the_cpu() -> None:
    graph = Graph()
    a, b = graph.operand("a"), graph.operand("b")
    seven = graph.constant([7.0, 7.0], OperandCode.TENSOR_FLOAT32, (2,))
    constant = graph.finish([a, b], [graph.add("ADD0", [seven, seven], "y")])
    compilation = compiled(if_model(constant, binary("MUL0")))
    assert compilation.plan.simple
    assert "inputs" in str(compilation.plan.fallback)
    [y] = run(compilation, np.array([True]), X, Y)
    np.testing.assert_array_equal(y, [14, 14])


# -- operations of the host in bodies --------------------------------------------------------------------------------


def rounding() -> Model:
    """A branch that rounds ``a + b``, which only the host can."""
    hosted = TYPES.host_extensions()["org.tensorflow.lite"]
    [number] = [number for number, operation in hosted.operations.items() if operation.name == "ROUND"]
    graph = Graph()
    a, b, y = graph.operand("a"), graph.operand("b"), graph.operand("y")
    graph.builder.add_operation(TYPES.code("org.tensorflow.lite", number), [graph.add("ADD0", [a, b], "sum")], [y])
    return graph.finish([a, b], [y])


@pytest.mark.parametrize("driver", [picky("add", 0.5, "ADD0"), FailsToExecute("broken", frozenset({OperationCode.ADD}))])
def test_the_host_runs_its_operations_in_interpreted_bodies(driver: Driver) -> None:
    compilation = compiled(if_model(rounding(), binary("MUL0")), driver)
    assert program(compilation) == ["IF", driver.name, "host", "GOTO", CPU]
    for condition, expected in ((True, np.rint(X / 4 + Y)), (False, X / 4 * Y)):
        [y] = run(compilation, np.array([condition]), X / 4, Y)
        np.testing.assert_array_equal(y, expected)


def test_a_driver_that_fails_to_prepare_leaves_bodies_with_the_hosts_operations_to_cpu_and_host() -> None:
    compilation = compiled(if_model(rounding(), binary("MUL0")), CannotPrepare("broken", frozenset({OperationCode.ADD})))
    assert program(compilation) == ["IF", CPU, "host", "GOTO", CPU]
    [y] = run(compilation, np.array([True]), X / 4, Y)
    np.testing.assert_array_equal(y, np.rint(X / 4 + Y))


# -- limits ----------------------------------------------------------------------------------------------------------


def towers(depth: int) -> Model:
    """IF in IF in IF …, both branches of each being the same subgraph."""
    inner = if_model(binary("ADD0"), binary("MUL0"))
    main = inner.main
    models = [i for i, operand in enumerate(main.operands) if operand.lifetime is Lifetime.SUBGRAPH]

    def over(index: int) -> Subgraph:
        operands = [replace(o, location=Location(offset=index)) if i in models else o for i, o in enumerate(main.operands)]
        condition, a, b = main.inputs
        taken = replace(operands[condition], lifetime=Lifetime.CONSTANT_COPY, location=Location(0, len(inner.operand_values), 1))
        inside = [taken if i == condition else o for i, o in enumerate(operands)]
        return replace(main, operands=tuple(inside), inputs=(a, b))

    bodies = [inner.referenced[0], *(over(k) for k in range(depth - 1))]
    top = over(depth - 1)
    outer = tuple(main.operands[i] if i in main.inputs else o for i, o in enumerate(top.operands))
    top = replace(top, operands=outer, inputs=main.inputs)
    return replace(inner, main=top, referenced=tuple(bodies), operand_values=inner.operand_values + b"\x01")


def test_bodies_that_are_shared_are_planned_for_each_use_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MAX_BODIES", 100)
    few, many = compiled(towers(5), picky("add", 0.9, "ADD0")), compiled(towers(40), picky("add", 0.9, "ADD0"))
    assert len(few.plan.partition.sources) == 1 + 2 + 4 + 8 + 16 + 32
    assert program(many) == [CPU]
    assert "100 bodies" in str(many.plan.fallback)
    for compilation in (few, many):
        [y] = run(compilation, np.array([True]), X, Y)
        np.testing.assert_array_equal(y, X + Y)


def test_control_flow_that_is_nested_too_deep_is_bad_data() -> None:
    with pytest.raises(BadDataError, match="100 deep"):
        compiled(towers(101))
    everything = picky("all", 1e-30)
    assert program(compiled(towers(100), everything)) == ["all"]

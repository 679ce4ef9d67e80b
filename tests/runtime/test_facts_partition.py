"""Facts of partitioning by number (P1 to P37), with those of devices and compilations that decide over it."""

from __future__ import annotations

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.devices import cpu, device
from nnbridge.devices.device import Capabilities, Performance
from nnbridge.errors import BadDataError, MissedDeadlinePersistentError, OpFailedError
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation, supported_operations
from nnbridge.runtime.execution import Execution
from nnbridge.types import Lifetime, OperandCode, OperationCode, PreferenceCode
from tests.graphs import FLOAT, add_then, constant_add, unary_chain
from tests.runtime.drivers import CannotPrepare, Crashes, Driver, FailsToExecute, WrongCount
from tests.runtime.planning import BOOL8, Graph, binary, kind_of, picky, places, program, scripted
from tests.runtime.planning import compiled as planned

CPU = "nnapi-reference"

ADD, FLOOR, ABS, NEG, EXP = (OperationCode[name] for name in ("ADD", "FLOOR", "ABS", "NEG", "EXP"))


def compiled(model: Model, *devices: Driver, preference: int = PreferenceCode.FAST_SINGLE_ANSWER) -> Compilation:
    """A finished compilation with the CPU behind the devices."""
    compilation = Compilation.create(model, devices)
    compilation.set_preference(preference)
    compilation.finish()
    return compilation


def test_p14_a_model_of_one_best_device_goes_there_whole() -> None:
    fast, slow = Driver("fast", exec_time=0.5), Driver("slow", exec_time=0.7)
    compilation = compiled(unary_chain(FLOOR, ABS), slow, fast)
    assert compilation.plan.simple
    assert places(compilation) == ["fast", "fast"]
    assert fast.prepared == [compilation.model]


def test_p2_a_tie_goes_to_the_earlier_device() -> None:
    compilation = compiled(unary_chain(FLOOR), Driver("first"), Driver("second"))
    assert places(compilation) == ["first"]


def test_p2_a_tie_with_the_cpu_goes_to_the_cpu() -> None:
    compilation = compiled(unary_chain(FLOOR), Driver("even", exec_time=1.0))
    assert places(compilation) == ["nnapi-reference"]


def test_p3_low_power_looks_at_power_and_every_other_preference_at_time() -> None:
    quick, thrifty = Driver("quick", exec_time=0.2, power_usage=0.9), Driver("thrifty", exec_time=0.8, power_usage=0.3)
    for preference, expected in ((0, "thrifty"), (1, "quick"), (2, "quick")):
        assert places(compiled(unary_chain(FLOOR), quick, thrifty, preference=preference)) == [expected]


def test_p15_a_model_is_dealt_by_what_each_device_accepts() -> None:
    first, second = Driver("floors", frozenset({FLOOR})), Driver("others", frozenset({ABS, NEG}))
    compilation = compiled(unary_chain(FLOOR, ABS, NEG, EXP), first, second)
    assert places(compilation) == ["floors", "others", "others", "nnapi-reference"]
    assert [len(step.operations) for step in compilation.plan.steps] == [1, 2, 1]


def test_p19_p20_the_last_non_empty_queue_goes_first_and_is_emptied() -> None:
    # Two chains from x: FLOOR, ABS on device 0 and NEG, EXP on device 1. Both start; the higher queue runs first.
    builder = ModelBuilder()
    x, a, b, c, d = (builder.add_operand(FLOAT, (2,)) for _ in range(5))
    for code, source, target in ((FLOOR, x, a), (NEG, x, b), (ABS, a, c), (EXP, b, d)):
        builder.add_operation(code, [source], [target])
    builder.identify_inputs_and_outputs([x], [c, d])
    first, second = Driver("first", frozenset({FLOOR, ABS})), Driver("second", frozenset({NEG, EXP}))
    compilation = compiled(builder.finish(), first, second)
    steps = [compilation.plan.devices[s.device].name for s in compilation.plan.steps]
    assert steps == ["second", "first"]
    assert [len(s.operations) for s in compilation.plan.steps] == [2, 2]


def test_p24_step_inputs_come_as_model_inputs_then_temporaries() -> None:
    # t = floor(x) on one device; y = t + x on another reads the model input x before the temporary t.
    builder = ModelBuilder()
    x, t = builder.add_operand(FLOAT, (2,), name="x"), builder.add_operand(FLOAT, (2,), name="t")
    none = builder.add_operand(OperandCode.INT32)
    builder.set_operand_value(none, 0)
    y = builder.add_operand(FLOAT, (2,), name="y")
    builder.add_operation(FLOOR, [x], [t])
    builder.add_operation(ADD, [t, x, none], [y])
    builder.identify_inputs_and_outputs([x], [y])
    compilation = compiled(builder.finish(), Driver("floors", frozenset({FLOOR})))
    first, second = compilation.plan.steps
    operands = compilation.model.main.operands
    assert [operands[i].name for i in first.outputs] == ["t"]
    assert [operands[i].name for i in second.inputs] == ["x", "t"]
    assert [o.lifetime for o in second.model.main.operands if o.name in ("x", "t")] == [Lifetime.SUBGRAPH_INPUT] * 2


def test_p23_step_models_share_the_memory_of_constants() -> None:
    compilation = compiled(constant_add(np.ones(1000, np.float32)), Driver("driver"))
    [own], steps = compilation.model.pools, compilation.plan.steps
    assert [[pool is own for pool in step.model.pools] for step in steps] == [[True]]
    compilation = compiled(add_then(FLOOR, ABS), Driver("floors", frozenset({FLOOR})))
    assert [step.model.pools for step in compilation.plan.steps] == [compilation.model.pools] * 3


def test_p31_one_step_that_cannot_be_prepared_moves_the_whole_model_to_the_cpu() -> None:
    compilation = compiled(unary_chain(FLOOR, ABS), CannotPrepare("broken", frozenset({ABS})))
    assert places(compilation) == ["nnapi-reference", "nnapi-reference"]
    assert compilation.plan.fallback is not None
    assert "broken" in str(compilation.plan.fallback)


def test_a_driver_that_raises_anything_else_has_failed() -> None:
    compilation = compiled(unary_chain(FLOOR), Crashes("crashing"))
    assert places(compilation) == ["nnapi-reference"]
    assert "a bug of the driver" in str(compilation.plan.fallback)


def test_d13_a_wrong_number_of_answers_means_nothing_supported() -> None:
    compilation = compiled(unary_chain(FLOOR), WrongCount("wrong"))
    assert places(compilation) == ["nnapi-reference"]
    [placement] = compilation.plan.placements
    assert "2 answers for 1 operations" in str(placement.answers[0].reason)


def test_c12_explicit_devices_have_no_fallback() -> None:
    compilation = Compilation.create_for_devices(unary_chain(FLOOR), [CannotPrepare("broken")])
    with pytest.raises(Exception, match="broken"):
        compilation.finish()


def test_p10_an_operation_that_no_listed_device_accepts_is_bad_data_with_everybodys_reason() -> None:
    compilation = Compilation.create_for_devices(unary_chain(FLOOR), [Driver("picky", frozenset({ABS}))])
    with pytest.raises(BadDataError, match="picky"):
        compilation.finish()


def test_s6_a_device_of_lower_feature_level_is_asked_about_a_slice() -> None:
    # ABS is of level 3: a level-1 device sees FLOOR alone, its result as an output.
    old = Driver("old", feature_level=1)
    compilation = compiled(unary_chain(FLOOR, ABS), old)
    assert places(compilation) == ["old", "nnapi-reference"]
    [asked] = old.asked
    assert [o.type for o in asked.main.operations] == [FLOOR]
    assert len(asked.main.outputs) == 1
    reason = compilation.plan.placements[1].answers[0].reason
    assert "level 3" in str(reason)
    assert "1 at most" in str(reason)


def test_p4_a_relaxed_model_is_rated_by_the_relaxed_figure() -> None:
    # float_fast: 0.7 relaxed; a device at 0.75 loses against it only then.
    rival = Driver("rival", exec_time=0.75)
    fast = device("nnapi-sample_float_fast")
    for relaxed, expected in ((False, "rival"), (True, fast.name)):
        compilation = Compilation.create(unary_chain(FLOOR, relaxed=relaxed), [rival, fast])
        compilation.finish()
        assert places(compilation) == [expected]


def test_p14_the_cpu_alone_accepts_everything() -> None:
    compilation = Compilation.create_for_devices(unary_chain(FLOOR, ABS), [cpu()])
    assert compilation.finish().simple


def test_p1_each_device_is_asked_once_about_each_model() -> None:
    graph = Graph()
    condition, a, b = graph.operand("condition", (1,), BOOL8), graph.operand("a"), graph.operand("b")
    y = graph.operand("y")
    graph.branch(condition, binary("ADD0"), binary("MUL0"), [a, b], [y])
    driver = picky("driver", 0.9, "ADD0", "MUL0")
    planned(graph.finish([condition, a, b], [y]), driver)
    assert [[kind_of(m, o) for o in m.main.operations] for m in driver.asked] == [["IF"], ["ADD0"], ["MUL0"]]


def test_p3_sums_are_of_float32_and_nothing_but_the_figure_counts() -> None:
    # A thousand times the work does not matter; a figure that is lower by one unit in the last place does.
    slightly = float(np.nextafter(np.float32(1), np.float32(0)))
    assert places(compiled(unary_chain(FLOOR, dims=(1, 4000)), Driver("slightly", exec_time=slightly))) == ["slightly"]


def test_p5_the_figure_is_that_of_the_first_input() -> None:
    class Floats(Driver):
        @property
        def capabilities(self) -> Capabilities:
            return Capabilities({FLOAT: Performance(0.1, 0.1), OperandCode.TENSOR_INT32: Performance(2, 2)})

    # EMBEDDING_LOOKUP's first input are the indexes, however fast the driver is with the values.
    graph = Graph()
    indexes = graph.operand("indexes", (3,), OperandCode.TENSOR_INT32)
    values = graph.operand("values", (5, 2))
    y = graph.add("EMBEDDING_LOOKUP", [indexes, values], "y", (3, 2))
    assert places(compiled(graph.finish([indexes, values], [y]), Floats("floats"))) == ["nnapi-reference"]
    assert places(compiled(unary_chain(FLOOR), Floats("floats"))) == ["floats"]


def test_p5_extension_operations_run_on_a_driver_at_any_figure() -> None:
    # An operand type that the driver does not rate performs at FLT_MAX, yet nobody else takes the operation.
    class Unrated(FailsToExecute):
        @property
        def capabilities(self) -> Capabilities:
            return Capabilities()

    oem = Unrated("unrated", frozenset({OperationCode.OEM_OPERATION}))
    graph = Graph()
    x = graph.operand("x")
    assert places(compiled(graph.finish([x], [graph.add("OEM_OPERATION", [x])]), oem)) == ["unrated"]


def test_p18_operations_join_a_step_as_soon_as_their_inputs_are_there() -> None:
    # One chain of a driver's, and a second that needs the CPU in between: its rest joins no earlier step.
    graph = Graph()
    x = graph.operand("x")
    a = graph.add("ABS", [graph.add("ABS", [x], "a0")], "a1")
    b = graph.add("ABS", [graph.add("NEG", [graph.add("ABS", [x], "b0")], "b1")], "b2")
    compilation = planned(graph.finish([x], [a, b]), picky("abs", 0.5, "ABS"))
    assert program(compilation) == ["abs", "nnapi-reference", "abs"]
    assert [len(step.operations) for step in compilation.plan.steps] == [3, 1, 1]


def test_p21_a_step_may_hold_unconnected_operations() -> None:
    graph = Graph()
    x, y = graph.operand("x"), graph.operand("y")
    made = [graph.add("ABS", [x]), graph.add("ABS", [y]), graph.add("NEG", [x])]
    compilation = planned(graph.finish([x, y], made), picky("abs", 0.5, "ABS"))
    assert sorted(len(step.operations) for step in compilation.plan.steps) == [1, 2]


def test_p23_operands_of_a_step_come_in_order_of_use() -> None:
    graph = Graph()
    a, b = graph.operand("a"), graph.operand("b")
    t = graph.add("ADD0", [b, a], "t")
    model = graph.finish([a, b], [graph.add("MUL0", [t, a], "y")])
    first, second = planned(model, picky("add", 0.5, "ADD0")).plan.steps
    assert [o.name for o in first.model.main.operands] == ["b", "a", "", "t"]
    assert [o.name for o in second.model.main.operands] == ["t", "a", "", "y"]
    # Inputs come in order of use as well.
    assert [model.main.operands[i].name for i in first.inputs] == ["b", "a"]


def test_p25_step_outputs_come_as_model_outputs_then_temporaries_by_index() -> None:
    graph = Graph()
    x = graph.operand("x")
    late, early = graph.operand("late temporary"), graph.operand("other temporary")
    y = graph.operand("y")
    for code, target in ((OperationCode.NEG, early), (OperationCode.ABS, late), (OperationCode.FLOOR, y)):
        graph.builder.add_operation(code, [x], [target])
    model = graph.finish([x], [y, graph.add("ADD0", [late, early], "z")])
    first = planned(model, picky("unary", 0.5, "ABS", "NEG", "FLOOR")).plan.steps[0]
    assert [model.main.operands[i].name for i in first.outputs] == ["y", "late temporary", "other temporary"]


def test_p26_an_output_that_another_step_reads_is_read_from_the_clients_buffer() -> None:
    graph = Graph()
    x = graph.operand("x")
    a = graph.add("ABS", [x], "a")
    reader = scripted("neg", "NEG")
    execution = Execution(planned(graph.finish([x], [a, graph.add("NEG", [a], "n")]), reader))
    outputs = [np.empty(2, np.float32) for _ in range(2)]
    execution.set_input(0, np.array([-1, 2], np.float32))
    for i, output in enumerate(outputs):
        execution.set_output(i, output)
    execution.compute()
    [request] = reader.requests
    assert np.shares_memory(request.inputs[0], outputs[0])
    np.testing.assert_array_equal(outputs[1], [-1, -2])


def test_p27_temporaries_that_no_other_step_reads_stay_inside() -> None:
    graph = Graph()
    x = graph.operand("x")
    inner = graph.add("ABS", [x], "inner")
    made = graph.add("NEG", [graph.add("ABS", [inner], "made")], "y")
    first = planned(graph.finish([x], [made]), picky("abs", 0.5, "ABS")).plan.steps[0]
    [operand] = [o for o in first.model.main.operands if o.name == "inner"]
    assert operand.lifetime is Lifetime.TEMPORARY_VARIABLE
    assert len(first.outputs) == 1


@pytest.mark.parametrize("relaxed", [False, True])
def test_p28_every_step_is_relaxed_as_the_main_model_is(relaxed: bool) -> None:
    graph = Graph()
    condition, a, b = graph.operand("condition", (1,), BOOL8), graph.operand("a"), graph.operand("b")
    y = graph.operand("y")
    graph.branch(condition, binary("ADD0"), binary("MUL0"), [graph.add("ABS", [a]), b], [y])
    graph.builder.relax_computation_float32_to_float16(relaxed)
    plan = planned(graph.finish([condition, a, b], [y]), picky("abs", 0.5, "ABS")).plan
    assert [step.model.relaxed for step in plan.steps] == [relaxed] * 3


def test_p30_operations_of_a_step_are_sorted_as_finish_sorts() -> None:
    # Of two operations that are ready, the last one comes first: once in the model, and again in the step's.
    graph = Graph()
    x = graph.operand("x")
    first, second = graph.add("ABS", [x], "first"), graph.add("NEG", [x], "second")
    model = graph.finish([x], [graph.add("EXP", [first]), graph.add("EXP", [second])])
    unary = next(
        s for s in planned(model, picky("unary", 0.5, "ABS", "NEG")).plan.steps if len(s.operations) == 2 and s.device == 0
    )
    in_model = [model.main.operations[i].type for i in unary.operations]
    assert [o.type for o in unary.model.main.operations] == in_model[::-1]


def test_p31_steps_are_prepared_in_order_and_the_first_failure_ends_it() -> None:
    last = picky("last", 0.5, "NEG")
    broken = CannotPrepare("broken", frozenset({ABS}))
    compilation = planned(unary_chain(ABS, NEG), broken, last)
    assert compilation.plan.fallback is not None
    assert last.prepared == []


def test_p32_temporaries_of_unknown_size_are_the_making_steps_own() -> None:
    graph = Graph()
    x = graph.operand("x", (0,))
    inner = graph.add("ABS", [graph.add("ABS", [x], "inner", (0,))], "crossing", (0,))
    compilation = planned(graph.finish([x], [graph.add("NEG", [inner], "y", (0,))]), picky("old", 0.5, "ABS", level=3))
    main = compilation.model.main
    first = compilation.plan.steps[0]
    assert [main.operands[i].name for i in first.outputs] == ["crossing"]


def test_p33_a_device_below_level_3_makes_no_temporary_of_unknown_size() -> None:
    graph = Graph()
    x = graph.operand("x", (0,))
    model = graph.finish([x], [graph.add("EXP", [graph.add("FLOOR", [x], "t", (0,))], "y", (0,))])
    for level, devices in ((2, [CPU]), (3, ["old", CPU])):
        assert program(planned(model, picky("old", 0.5, "FLOOR", level=level))) == devices


def test_d16_a_deadline_that_has_passed_when_preparing() -> None:
    compilation = Compilation.create_for_devices(unary_chain(FLOOR), [cpu()])
    compilation.set_timeout(1)
    with pytest.raises(MissedDeadlinePersistentError):
        compilation.finish()


def test_d14_supported_operations_are_those_that_any_of_the_devices_supports() -> None:
    model = unary_chain(FLOOR, ABS, NEG)
    floors, others = picky("floors", 9.0, "FLOOR"), picky("negs", 9.0, "NEG")
    assert supported_operations(model, [floors, others]) == [True, False, True]


def test_x16_extension_and_oem_operations_never_go_to_the_cpu() -> None:
    graph = Graph()
    x = graph.operand("x")
    model = graph.finish([x], [graph.add("OEM_OPERATION", [graph.add("ABS", [x])])])
    assert supported_operations(model, [cpu()]) == [True, False]
    broken = CannotPrepare("broken", frozenset({OperationCode.OEM_OPERATION}))
    with pytest.raises(OpFailedError, match="broken"):
        planned(model, broken)


def test_operations_of_a_late_device_run_in_the_step_that_reads_them() -> None:
    """``add(neg(floor(x)), abs(floor(floor(x))))``: NEG is read by the last step alone, each FLOOR by the first or the driver."""
    graph = Graph()
    x = graph.operand("x")
    first = graph.add("FLOOR", [x], "first")
    second = graph.add("FLOOR", [first], "second")
    late = graph.add("NEG", [first], "late")
    model = graph.finish([x], [graph.add("ADD0", [late, graph.add("ABS", [second], "other")])])
    driver = picky("late", 0.5, "FLOOR", "NEG", "ADD0")
    for waits, expected in ((False, ["FLOOR FLOOR NEG", "ABS", "ADD0"]), (True, ["FLOOR FLOOR", "ABS", "ADD0 NEG"])):
        driver.late = waits
        compilation = planned(model, driver, picky("abs", 0.5, "ABS"))
        models = [step.model for step in compilation.plan.steps]
        assert [" ".join(sorted(kind_of(m, o) for o in m.main.operations)) for m in models] == expected
        (y,) = Execution(compilation).run([np.float32([1.5, -2.5])]).values()
        assert y.tolist() == [0, 6]

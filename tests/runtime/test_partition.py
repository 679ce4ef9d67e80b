"""Partitioning as Android's ExecutionPlan does it; counterparts of TestPartitioning.cpp stand under its names."""

from __future__ import annotations

import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.devices import cpu, device
from nnbridge.errors import BadDataError
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation
from nnbridge.types import Lifetime, OperandCode, OperationCode, PreferenceCode
from tests.graphs import FLOAT, add_then, unary_chain
from tests.runtime.drivers import CannotPrepare, Crashes, Driver, WrongCount

ADD, FLOOR, ABS, NEG, EXP = (OperationCode[name] for name in ("ADD", "FLOOR", "ABS", "NEG", "EXP"))


def places(compilation: Compilation) -> list[str]:
    """The device of each operation."""
    plan = compilation.plan
    return [plan.device_of(i).name for i in range(len(compilation.model.main.operations))]


def compiled(model: Model, *devices: Driver, preference: int = PreferenceCode.FAST_SINGLE_ANSWER) -> Compilation:
    """A finished compilation with the CPU behind the devices."""
    compilation = Compilation.create(model, devices)
    compilation.set_preference(preference)
    compilation.finish()
    return compilation


def test_simple_model_goes_whole_to_the_fastest_device() -> None:
    fast, slow = Driver("fast", exec_time=0.5), Driver("slow", exec_time=0.7)
    compilation = compiled(unary_chain(FLOOR, ABS), slow, fast)
    assert compilation.plan.simple
    assert places(compilation) == ["fast", "fast"]
    assert fast.prepared == [compilation.model]


def test_a_tie_goes_to_the_earlier_device() -> None:
    compilation = compiled(unary_chain(FLOOR), Driver("first"), Driver("second"))
    assert places(compilation) == ["first"]


def test_a_tie_with_the_cpu_goes_to_the_cpu() -> None:
    compilation = compiled(unary_chain(FLOOR), Driver("even", exec_time=1.0))
    assert places(compilation) == ["nnapi-reference"]


def test_low_power_looks_at_power_and_every_other_preference_at_time() -> None:
    quick, thrifty = Driver("quick", exec_time=0.2, power_usage=0.9), Driver("thrifty", exec_time=0.8, power_usage=0.3)
    for preference, expected in ((0, "thrifty"), (1, "quick"), (2, "quick")):
        assert places(compiled(unary_chain(FLOOR), quick, thrifty, preference=preference)) == [expected]


def test_slice_model_by_what_each_device_takes() -> None:
    first, second = Driver("floors", frozenset({FLOOR})), Driver("others", frozenset({ABS, NEG}))
    compilation = compiled(unary_chain(FLOOR, ABS, NEG, EXP), first, second)
    assert places(compilation) == ["floors", "others", "others", "nnapi-reference"]
    assert [len(step.operations) for step in compilation.plan.steps] == [1, 2, 1]


def test_the_last_non_empty_queue_goes_first_and_is_emptied() -> None:
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


def test_step_inputs_come_as_model_inputs_then_temporaries_and_outputs_as_outputs_then_temporaries() -> None:
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


def test_step_models_share_the_memory_of_constants() -> None:
    compilation = compiled(add_then(FLOOR, ABS), Driver("floors", frozenset({FLOOR})))
    assert len(compilation.plan.steps) == 3
    assert all(step.model.pools is compilation.model.pools for step in compilation.plan.steps)


def test_cpu_fallback_when_a_device_cannot_prepare() -> None:
    compilation = compiled(unary_chain(FLOOR, ABS), CannotPrepare("broken", frozenset({ABS})))
    assert places(compilation) == ["nnapi-reference", "nnapi-reference"]
    assert compilation.plan.fallback is not None
    assert "broken" in str(compilation.plan.fallback)


def test_a_driver_that_raises_anything_else_has_failed() -> None:
    compilation = compiled(unary_chain(FLOOR), Crashes("crashing"))
    assert places(compilation) == ["nnapi-reference"]
    assert "a bug of the driver" in str(compilation.plan.fallback)


def test_a_wrong_number_of_answers_means_nothing_supported() -> None:
    compilation = compiled(unary_chain(FLOOR), WrongCount("wrong"))
    assert places(compilation) == ["nnapi-reference"]
    [placement] = compilation.plan.placements
    assert "2 answers for 1 operations" in str(placement.answers[0].reason)


def test_explicit_devices_have_no_fallback() -> None:
    compilation = Compilation.create_for_devices(unary_chain(FLOOR), [CannotPrepare("broken")])
    with pytest.raises(Exception, match="broken"):
        compilation.finish()


def test_an_operation_that_no_listed_device_takes_is_bad_data_with_everybodys_reason() -> None:
    compilation = Compilation.create_for_devices(unary_chain(FLOOR), [Driver("picky", frozenset({ABS}))])
    with pytest.raises(BadDataError, match="picky"):
        compilation.finish()


def test_a_device_of_lower_feature_level_is_asked_about_a_slice() -> None:
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


def test_a_relaxed_model_is_rated_by_the_relaxed_figure() -> None:
    # float_fast: 0.7 relaxed; a device at 0.75 loses against it only then.
    rival = Driver("rival", exec_time=0.75)
    fast = device("nnapi-sample_float_fast")
    for relaxed, expected in ((False, "rival"), (True, fast.name)):
        compilation = Compilation.create(unary_chain(FLOOR, relaxed=relaxed), [rival, fast])
        compilation.finish()
        assert places(compilation) == [expected]


def test_the_cpu_alone_takes_everything() -> None:
    compilation = Compilation.create_for_devices(unary_chain(FLOOR, ABS), [cpu()])
    assert compilation.finish().simple

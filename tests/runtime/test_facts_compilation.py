"""Compilations: facts C1 to C34 of Android's runtime, by number (C16 to C21 stand with compilation caching)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from nnbridge import devices as device_list
from nnbridge import ndk
from nnbridge.builder import ModelBuilder
from nnbridge.devices.cpu import CpuPreparedModel
from nnbridge.devices.device import PreparedModel, PrepareModelConfig
from nnbridge.errors import (
    BadDataError,
    BadStateError,
    DeadObjectError,
    MissedDeadlinePersistentError,
    NnapiError,
    OpFailedError,
    ResourceExhaustedPersistentError,
    UnexpectedNullError,
)
from nnbridge.extensions import TYPES, Extension
from nnbridge.model import Model
from nnbridge.runtime.burst import Burst
from nnbridge.runtime.compilation import Compilation, PartitioningMode
from nnbridge.runtime.execution import Execution
from nnbridge.types import OperandCode, OperationCode, PreferenceCode, PriorityCode
from tests.graphs import FLOAT, add_then, unary_chain
from tests.runtime.drivers import Driver

ADD, FLOOR, ABS, OEM = OperationCode.ADD, OperationCode.FLOOR, OperationCode.ABS, OperationCode.OEM_OPERATION
MODEL = add_then(FLOOR)
X = np.float32([[0.5, -1.5, 2, 3]])
Y = np.float32([[1, -1, 3, 4]])  # floor(x + 1)
TYPES.register(Extension("com.example.compilation"))


@dataclass
class Recorder(Driver):
    """Remembers how it was asked to prepare, and fails on request."""

    fails: Exception | None = None
    configs: list[PrepareModelConfig] = field(default_factory=list)

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        self.prepared.append(model)
        self.configs.append(config)
        if self.fails:
            raise self.fails
        return CpuPreparedModel(model)


def names(compilation: Compilation) -> list[str]:
    plan = compilation.finish()
    return [plan.devices[step.device].name for step in plan.steps]


# -- making -----------------------------------------------------------------------------------------------------------


def test_c1_create_takes_all_devices_in_order_with_fallback() -> None:
    drivers = [Driver("a", exec_time=0.9), Driver("b", exec_time=0.9)]
    compilation = Compilation.create(MODEL, drivers)
    assert names(compilation) == ["a"]
    assert [device.name for device in compilation.plan.devices] == ["a", "b", "nnapi-reference"]
    assert (compilation.mode, compilation.allows_fallback) == (PartitioningMode.WITH_FALLBACK, True)


def test_c2_create_for_devices_takes_exactly_these_without_fallback() -> None:
    with pytest.raises(BadDataError, match="device that supports"):
        Compilation.create_for_devices(MODEL, [Driver("a", frozenset({FLOOR}))]).finish()
    both = Compilation.create_for_devices(MODEL, [Driver("a", frozenset({FLOOR})), device_list.cpu()])
    assert names(both) == ["nnapi-reference", "a"]
    assert not both.allows_fallback


@pytest.mark.parametrize(
    ("devices", "error"),
    [
        ([], BadDataError),
        ([device_list.cpu(), device_list.cpu()], BadDataError),
        ([device_list.cpu(), None], UnexpectedNullError),
        ([None], UnexpectedNullError),
    ],
)
def test_c2_lists_of_devices_that_cannot_be(devices: Any, error: type[NnapiError]) -> None:
    with pytest.raises(error):
        Compilation.create_for_devices(MODEL, devices)


def test_m54_a_model_that_is_not_finished_has_no_compilation() -> None:
    model = ndk.ANeuralNetworksModel_create()[1]
    cpu = ndk.ANeuralNetworks_getDevice(ndk.ANeuralNetworks_getDeviceCount()[1] - 1)[1]
    assert ndk.ANeuralNetworksCompilation_create(model) == (BadStateError.code, None)
    assert ndk.ANeuralNetworksCompilation_createForDevices(model, [cpu]) == (BadStateError.code, None)


# -- settings ---------------------------------------------------------------------------------------------------------

SETTERS: dict[str, Callable[[Compilation], object]] = {
    "preference": lambda c: c.set_preference(1),
    "priority": lambda c: c.set_priority(100),
    "timeout": lambda c: c.set_timeout(1),
    "caching": lambda c: c.set_caching("/", bytes(32)),
    "attribute": lambda c: c.add_extension_attribute("com.example", 0, b""),
    "finish": lambda c: c.finish(),
}


@pytest.mark.parametrize("valid", [True, False])
@pytest.mark.parametrize("name", SETTERS)
def test_c3_nothing_is_set_after_finish(name: str, valid: bool) -> None:
    compilation = Compilation.create_for_devices(MODEL, [Recorder("a", fails=None if valid else OpFailedError("no"))])
    if valid:
        compilation.finish()
    else:
        with pytest.raises(OpFailedError):
            compilation.finish()
    with pytest.raises(BadStateError):
        SETTERS[name](compilation)


@pytest.mark.parametrize(("preference", "accepted"), [(-5, True), (0, True), (2, True), (3, False), (40, False)])
def test_c4_preferences(preference: int, accepted: bool) -> None:
    driver = Recorder("a")
    compilation = Compilation.create(MODEL, [driver])
    assert compilation.preference == PreferenceCode.FAST_SINGLE_ANSWER
    if not accepted:
        with pytest.raises(BadDataError):
            compilation.set_preference(preference)
        return
    compilation.set_preference(preference)
    compilation.finish()
    assert driver.configs[0].preference == preference


@pytest.mark.parametrize(
    ("priority", "accepted"), [(90, True), (100, True), (110, True), *((p, False) for p in (0, 89, 91, 99, 101, 109, 111))]
)
def test_c5_priorities(priority: int, accepted: bool) -> None:
    compilation = Compilation.create(MODEL, [])
    assert compilation.priority == PriorityCode.MEDIUM
    if not accepted:
        with pytest.raises(BadDataError):
            compilation.set_priority(priority)
        return
    compilation.set_priority(priority)
    assert compilation.priority == priority


def test_c6_a_timeout_is_for_exactly_one_explicit_device() -> None:
    Compilation.create_for_devices(MODEL, [Driver("a")]).set_timeout(1)
    for compilation in (
        Compilation.create(MODEL, [Driver("a")]),
        Compilation.create_for_devices(MODEL, [Driver("a"), Driver("b")]),
    ):
        with pytest.raises(BadDataError):
            compilation.set_timeout(1)


def test_c6_0_removes_the_timeout() -> None:
    driver = Recorder("a")
    compilation = Compilation.create_for_devices(MODEL, [driver])
    compilation.set_timeout(1)
    compilation.set_timeout(0)
    compilation.finish()
    assert driver.configs[0].deadline is None


def test_c6_the_longest_timeout_is_none_to_speak_of() -> None:
    # Android's SetTimeoutMaximum.
    compilation = Compilation.create_for_devices(MODEL, [device_list.cpu()])
    compilation.set_timeout(2**64 - 1)
    assert names(compilation) == ["nnapi-reference"]


def test_c6_a_timeout_that_has_passed_is_a_missed_deadline() -> None:
    compilation = Compilation.create_for_devices(MODEL, [device_list.cpu()])
    compilation.set_timeout(1)
    with pytest.raises(MissedDeadlinePersistentError):
        compilation.finish()


def test_c7_attributes_are_for_exactly_one_explicit_device() -> None:
    for compilation in (
        Compilation.create(MODEL, [Driver("a")]),
        Compilation.create_for_devices(MODEL, [Driver("a"), Driver("b")]),
    ):
        with pytest.raises(BadDataError):
            compilation.add_extension_attribute("com.example", 0, b"value")


def test_c7_c25_attributes_reach_the_driver_and_are_set_once() -> None:
    driver = Recorder("a")
    compilation = Compilation.create_for_devices(MODEL, [driver])
    compilation.add_extension_attribute("com.example.unknown", 0, b"first")
    compilation.add_extension_attribute("com.example.unknown", 2, b"")
    with pytest.raises(BadDataError):
        compilation.add_extension_attribute("com.example.unknown", 0, b"second")
    compilation.finish()
    assert driver.configs[0].hints == (("com.example.unknown", 0, b"first"), ("com.example.unknown", 2, b""))


def test_c9_the_deadline_counts_from_finish() -> None:
    driver = Recorder("a")
    compilation = Compilation.create_for_devices(MODEL, [driver])
    compilation.set_timeout(10**12)
    before = time.monotonic_ns()
    compilation.finish()
    deadline = driver.configs[0].deadline
    assert deadline is not None
    assert before + 10**12 <= deadline <= time.monotonic_ns() + 10**12


# -- finish -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [BadDataError("INVALID_ARGUMENT"), UnexpectedNullError("nothing")])
def test_c11_bad_data_and_null_are_final_even_from_a_driver(error: NnapiError) -> None:
    # A driver has no code for null: it comes out as INVALID_ARGUMENT, BAD_DATA (fact T1).
    with pytest.raises(BadDataError):
        Compilation.create(MODEL, [Recorder("a", fails=error)]).finish()


@pytest.mark.parametrize(
    "error", [OpFailedError("no"), DeadObjectError("gone"), ResourceExhaustedPersistentError("full"), ZeroDivisionError("bug")]
)
def test_c12_any_other_error_moves_the_whole_model_to_the_cpu(error: Exception) -> None:
    driver = Recorder("a", frozenset({FLOOR}), fails=error)
    compilation = Compilation.create(MODEL, [driver])
    assert names(compilation) == ["nnapi-reference"]
    np.testing.assert_array_equal(Execution(compilation).run([X])["y"], Y)
    with pytest.raises(NnapiError):
        Compilation.create_for_devices(MODEL, [driver, device_list.cpu()]).finish()


def test_c12_without_fallback_the_error_is_the_answer() -> None:
    driver = Recorder("a", fails=DeadObjectError("gone"))
    with pytest.raises(DeadObjectError):
        Compilation.create(MODEL, [driver], PartitioningMode.WITHOUT_FALLBACK).finish()


def beyond_the_cpu(code: int) -> Model:
    builder = ModelBuilder()
    x, y = (builder.add_operand(OperandCode.TENSOR_OEM_BYTE, (1,)) for _ in "xy")
    builder.add_operation(code, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    return builder.finish()


@pytest.mark.parametrize("code", [OEM, TYPES.code("com.example.compilation", 0)])
def test_c13_what_the_cpu_cannot_run_has_no_fallback(code: int) -> None:
    with pytest.raises(DeadObjectError):
        Compilation.create(beyond_the_cpu(code), [Recorder("a", fails=DeadObjectError("gone"))]).finish()


def test_c14_a_compilation_that_failed_is_of_no_use() -> None:
    # Android's ValidationTestInvalidCompilation: an OEM operation that no device takes.
    compilation = Compilation.create_for_devices(beyond_the_cpu(OEM), [device_list.cpu()])
    with pytest.raises(BadDataError):
        compilation.finish()
    for use in (
        lambda: Execution(compilation),
        lambda: Burst(compilation),
        lambda: compilation.preferred_alignment("input", 0),
        lambda: compilation.preferred_padding("output", 0),
    ):
        with pytest.raises(BadStateError):
            use()


def test_c15_without_partitioning_no_device_is_asked() -> None:
    driver = Recorder("a")
    compilation = Compilation.create(MODEL, [driver], PartitioningMode.NO)
    assert names(compilation) == ["nnapi-reference"]
    assert (driver.asked, driver.prepared) == ([], [])


# -- memory preferences -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "padding"), [(8, 64), (5, 64), (4, 1), (1, 1)])
def test_c22_d18_a_simple_plans_preferences_are_its_devices(level: int, padding: int) -> None:
    compilation = Compilation.create_for_devices(MODEL, [Driver("a", feature_level=level)])
    compilation.finish()
    for direction in ("input", "output"):
        assert compilation.preferred_alignment(direction, 0) == 64
        assert compilation.preferred_padding(direction, 0) == padding


def test_c22_d18_the_cpus() -> None:
    compilation = Compilation.create(MODEL, [])
    compilation.finish()
    assert (compilation.preferred_alignment("input", 0), compilation.preferred_padding("output", 0)) == (64, 64)


def two_inputs(*, unused: bool = False) -> Model:
    """x → FLOOR → y and z → ABS → w, or an input besides that nothing reads."""
    builder = ModelBuilder()
    x, y, z, w = (builder.add_operand(FLOAT, (2,)) for _ in "xyzw")
    builder.add_operation(FLOOR, [x], [y])
    builder.add_operation(ABS, [z], [w])
    more = [builder.add_operand(FLOAT, (2,))] if unused else []
    builder.identify_inputs_and_outputs([x, z, *more], [y, w])
    return builder.finish()


def test_c23_a_compound_plans_preferences_are_those_of_all_users() -> None:
    old, new = Driver("old", frozenset({FLOOR}), feature_level=4), Driver("new", frozenset({ABS}))
    compilation = Compilation.create_for_devices(two_inputs(unused=True), [old, new])
    compilation.finish()
    found = [(compilation.preferred_alignment("input", i), compilation.preferred_padding("input", i)) for i in range(3)]
    # The last input is used by no step: the platform's largest alignment.
    assert found == [(64, 1), (64, 64), (16, 1)]
    assert [compilation.preferred_padding("output", i) for i in range(2)] == [1, 64]


@pytest.mark.parametrize("direction", ["input", "output"])
def test_c22_indexes_are_checked_after_the_state(direction: str) -> None:
    compilation = Compilation.create(MODEL, [])
    for ask in (compilation.preferred_alignment, compilation.preferred_padding):
        with pytest.raises(BadStateError):
            ask(direction, 1000)
    compilation.finish()
    for ask in (compilation.preferred_alignment, compilation.preferred_padding):
        with pytest.raises(BadDataError):
            ask(direction, 1000)


# -- preparation ------------------------------------------------------------------------------------------------------


def test_c25_a_compound_plans_steps_get_neither_deadline_nor_attributes() -> None:
    driver = Recorder("a", frozenset({FLOOR}))
    compilation = Compilation.create(MODEL, [driver])
    compilation.finish()
    assert (driver.configs[0].deadline, driver.configs[0].hints) == (None, ())


def test_c27_preference_and_priority_reach_the_driver_and_priority_does_not_steer() -> None:
    for priority in PriorityCode:
        driver = Recorder("a", exec_time=2.0, power_usage=0.5)
        compilation = Compilation.create(MODEL, [driver])
        compilation.set_priority(priority)
        compilation.set_preference(PreferenceCode.LOW_POWER)
        assert names(compilation) == ["a"]
        assert (driver.configs[0].preference, driver.configs[0].priority) == (PreferenceCode.LOW_POWER, priority)
        slow = Compilation.create(MODEL, [driver])
        slow.set_priority(priority)
        assert names(slow) == ["nnapi-reference"]


def test_c29_the_first_step_that_fails_is_the_last_that_is_prepared() -> None:
    first, second = Recorder("a", frozenset({ADD}), fails=OpFailedError("no")), Recorder("b", frozenset({FLOOR}))
    with pytest.raises(OpFailedError):
        Compilation.create_for_devices(MODEL, [first, second]).finish()
    assert (len(first.prepared), len(second.prepared)) == (1, 0)


@dataclass
class GivesNothing(Driver):
    def prepare_model(self, *args: object, **options: object) -> PreparedModel:
        return None  # type: ignore[return-value]  # what no driver should do


def test_c30_success_without_a_prepared_model_is_a_failure() -> None:
    with pytest.raises(OpFailedError, match="prepared model"):
        Compilation.create_for_devices(MODEL, [GivesNothing("a")]).finish()


def test_c32_executions_and_bursts_in_any_number() -> None:
    compilation = Compilation.create(MODEL, [])
    compilation.finish()
    bursts = [Burst(compilation) for _ in range(3)]
    for burst in bursts:
        execution, out = Execution(compilation), np.empty((1, 4), np.float32)
        execution.set_input(0, X)
        execution.set_output(0, out)
        burst.compute(execution)
        np.testing.assert_array_equal(out, Y)


def test_c33_a_model_may_be_freed_before_its_compilation() -> None:
    """On Android that is the caller's fault; here nothing is lost."""
    model = ndk.ANeuralNetworksModel_create()[1]
    for _ in range(2):
        ndk.ANeuralNetworksModel_addOperand(model, ndk.OperandType(FLOAT, (2,)))
    ndk.ANeuralNetworksModel_addOperation(model, FLOOR, [0], [1])
    ndk.ANeuralNetworksModel_identifyInputsAndOutputs(model, [0], [1])
    ndk.ANeuralNetworksModel_finish(model)
    compilation = ndk.ANeuralNetworksCompilation_create(model)[1]
    ndk.ANeuralNetworksModel_free(model)
    assert ndk.ANeuralNetworksCompilation_finish(compilation) == 0


def test_c28_the_fallback_retains_preference_and_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = Recorder("cpu")
    cpu.kind = "cpu"
    monkeypatch.setattr(device_list, "cpu", lambda: cpu)
    compilation = Compilation.create(unary_chain(FLOOR), [Recorder("a", fails=OpFailedError("no"))])
    compilation.set_preference(PreferenceCode.SUSTAINED_SPEED)
    compilation.set_priority(PriorityCode.HIGH)
    compilation.finish()
    config = cpu.configs[0]
    assert (config.preference, config.priority) == (PreferenceCode.SUSTAINED_SPEED, PriorityCode.HIGH)

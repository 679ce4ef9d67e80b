"""Devices as clients see them: facts D1 to D21, and counterparts of Android's TestIntrospectionControl.cpp."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from nnbridge import devices as device_list
from nnbridge import ndk
from nnbridge.builder import ModelBuilder
from nnbridge.devices.device import UNLISTED, Capabilities, Performance, PreparedModel, Request, Result, uniform_capabilities
from nnbridge.errors import BadDataError, BadStateError, NnapiError, UnexpectedNullError
from nnbridge.extensions import Extension
from nnbridge.model import Model
from nnbridge.runtime.burst import Burst
from nnbridge.runtime.compilation import Compilation, supported_operations
from nnbridge.runtime.execution import UNKNOWN_DURATION, Execution
from nnbridge.types import DeviceTypeCode, DurationCode, OperandCode, OperationCode, ResultCode
from tests.graphs import FLOAT, add_then, unary_chain
from tests.runtime.drivers import Driver

ADD, MUL, MAXIMUM, FLOOR, RELU, LESS, WHILE, OEM = (
    OperationCode.ADD,
    OperationCode.MUL,
    OperationCode.MAXIMUM,
    OperationCode.FLOOR,
    OperationCode.RELU,
    OperationCode.LESS,
    OperationCode.WHILE,
    OperationCode.OEM_OPERATION,
)
BAD_DATA = ResultCode.BAD_DATA


def add_and(code: OperationCode, *, reverse: bool = False, value: float = 2.0) -> Model:
    """(x + y) and then another operation with a constant; added in this order or in reverse."""
    builder = ModelBuilder()
    x, y, none, total, constant, out = (
        builder.add_operand(FLOAT, (2,), name="x"),
        builder.add_operand(FLOAT, (2,), name="y"),
        builder.add_operand(OperandCode.INT32),
        *(builder.add_operand(FLOAT, (2,)) for _ in range(2)),
        builder.add_operand(FLOAT, (2,), name="out"),
    )
    builder.set_operand_value(none, 0)
    builder.set_operand_value(constant, np.full(2, value, np.float32))
    calls: list[Callable[[], int]] = [
        lambda: builder.add_operation(ADD, [x, y, none], [total]),
        lambda: builder.add_operation(code, [total, constant, none] if code == MUL else [total, constant], [out]),
    ]
    for call in reversed(calls) if reverse else calls:
        call()
    builder.identify_inputs_and_outputs([x, y], [out])
    return builder.finish()


# -- devices ----------------------------------------------------------------------------------------------------------


def handles() -> list[int]:
    code, count = ndk.ANeuralNetworks_getDeviceCount()
    assert code == 0
    return [ndk.ANeuralNetworks_getDevice(i)[1] for i in range(count)]


def test_get_num_devices_and_get_device() -> None:
    found = handles()
    assert len(found) == len(set(found)) == len(device_list.drivers()) + 1
    assert ndk.ANeuralNetworks_getDevice(len(found)) == (BAD_DATA, None)
    assert ndk.ANeuralNetworks_getDevice(-1) == (BAD_DATA, None)


def test_d1_the_cpu_comes_last_behind_the_drivers_in_order_of_discovery() -> None:
    names = [ndk.ANeuralNetworksDevice_getName(handle)[1] for handle in handles()]
    assert names == [device.name for device in (*device_list.drivers(), device_list.cpu())]


def test_device_get_name_unique() -> None:
    names = [ndk.ANeuralNetworksDevice_getName(handle)[1] for handle in handles()]
    assert len(set(names)) == len(names)


def test_device_get_version_type_feature_level_and_wait() -> None:
    for handle in handles():
        assert ndk.ANeuralNetworksDevice_getVersion(handle)[0] == 0
        assert ndk.ANeuralNetworksDevice_getType(handle)[1] in tuple(DeviceTypeCode)
        assert ndk.ANeuralNetworksDevice_getFeatureLevel(handle)[1] in (*range(27, 32), *range(1_000_006, 1_000_009))
        assert ndk.ANeuralNetworksDevice_wait(handle) == 0


def test_d2_the_cpu_device() -> None:
    cpu = device_list.cpu()
    found = (cpu.name, cpu.type, cpu.feature_level, cpu.supported_extensions(), cpu.number_of_cache_files_needed())
    assert found == ("nnapi-reference", DeviceTypeCode.CPU, 8, (), (0, 0))


def test_d3_the_cpu_performs_at_1_for_everything() -> None:
    given = device_list.cpu().capabilities
    figures = [given.of(code, relaxed) for code in OperandCode if code < OperandCode.MODEL for relaxed in (True, False)]
    assert {*figures, given.if_performance, given.while_performance} == {Performance(1.0, 1.0)}


def test_d5_d6_a_type_that_is_not_listed_performs_at_flt_max_and_can_be_chosen() -> None:
    @dataclass
    class Unlisted(Driver):
        @property
        def capabilities(self) -> Capabilities:
            return Capabilities()

    assert Unlisted("a").capabilities.of(FLOAT, relaxed=False).exec_time == UNLISTED == np.finfo(np.float32).max
    alone = Compilation.create_for_devices(unary_chain(FLOOR), [Unlisted("a")])
    assert alone.finish().device_of(0).name == "a"
    beside = Compilation.create(unary_chain(FLOOR), [Unlisted("a")])
    assert beside.finish().device_of(0).name == "nnapi-reference"


@pytest.mark.parametrize(
    ("code", "relaxed", "figure"),
    [
        (OperandCode.TENSOR_FLOAT32, False, 2),
        (OperandCode.TENSOR_FLOAT32, True, 3),
        (OperandCode.FLOAT32, True, 3),
        (OperandCode.TENSOR_FLOAT16, True, 1),
        (OperandCode.TENSOR_QUANT8_ASYMM, True, 1),
    ],
)
def test_d7_d19_relaxed_figures_are_for_float32_in_relaxed_models(code: int, relaxed: bool, figure: float) -> None:
    given = uniform_capabilities(Performance(1, 1), Performance(2, 2), Performance(3, 3))
    assert given.of(code, relaxed).exec_time == figure
    assert given.if_performance.exec_time == given.while_performance.exec_time == 1


@pytest.mark.parametrize(("level", "constant"), [(1, 27), (2, 28), (3, 29), (4, 30), (5, 31), (6, 1_000_006), (8, 1_000_008)])
def test_d8_feature_levels_in_public_numbers(level: int, constant: int) -> None:
    assert Driver("a", feature_level=level).level.constant == constant


def test_d8_a_device_above_the_runtime_is_of_the_runtimes_level() -> None:
    # Counterpart of WhiteboxFeatureLevelTest: the smaller of the two.
    assert Driver("a", feature_level=9).level.constant == 1_000_008


def test_d10_get_extension_support_requires_the_exact_name() -> None:
    class Extended(Driver):
        def supported_extensions(self) -> tuple[Extension, ...]:
            return (Extension("com.example.introspection"),)

    handle = ndk.HANDLES.add(Extended("extended"))
    for name, supported in (("com.example.introspection", True), ("com.example", False), ("COM.EXAMPLE.INTROSPECTION", False)):
        assert ndk.ANeuralNetworksDevice_getExtensionSupport(handle, name) == (0, supported)


def test_d13_a_wrong_answer_supports_nothing() -> None:
    class Wrong(Driver):
        def supported_operations(self, model: Model) -> Any:
            return [True] * 5

    assert supported_operations(unary_chain(FLOOR, FLOOR), [Wrong("a")]) == [False, False]


def test_d14_get_supported_operations_for_devices() -> None:
    model, cpu = unary_chain(FLOOR, RELU), device_list.cpu()
    assert supported_operations(model, [Driver("a", frozenset({RELU}))]) == [False, True]
    assert supported_operations(model, [Driver("a", frozenset({RELU})), Driver("b", frozenset({FLOOR}))]) == [True, True]
    lists: list[tuple[Any, type[NnapiError]]] = [
        ([], BadDataError),
        ([cpu, cpu], BadDataError),
        ([cpu, None], UnexpectedNullError),
    ]
    for devices, error in lists:
        with pytest.raises(error):
            supported_operations(model, devices)


def test_d15_the_cpu_supports_all_but_extension_and_oem_operations() -> None:
    builder = ModelBuilder()
    x, y, z = (builder.add_operand(FLOAT) for _ in "xyz")
    builder.add_operation(OEM, [x], [y])
    builder.add_operation(FLOOR, [y], [z])
    builder.identify_inputs_and_outputs([x], [z])
    assert supported_operations(builder.finish(), [device_list.cpu()]) == [False, True]


def test_d21_a_compilation_asks_once_for_support_and_prepares_once() -> None:
    driver = Driver("a")
    Compilation.create(unary_chain(FLOOR, RELU), [driver]).finish()
    assert (len(driver.asked), len(driver.prepared)) == (1, 1)


# -- TestIntrospectionControl ------------------------------------------------------------------------------------------


def test_simple_add_model() -> None:
    compilation = Compilation.create_for_devices(add_then(), [Driver("test-all", exec_time=0.9)])
    assert compilation.finish().device_of(0).name == "test-all"
    execution, out = Execution(compilation), np.empty((1, 4), np.float32)
    execution.set_input(0, np.float32([[1, 2, 3, 4]]))
    execution.set_output(0, out)
    execution.set_measure_timing(True)
    execution.start_compute().wait()
    np.testing.assert_array_equal(out, [[2, 3, 4, 5]])
    assert 0 < execution.duration(DurationCode.ON_HARDWARE) <= execution.duration(DurationCode.IN_DRIVER) < UNKNOWN_DURATION


@dataclass
class Clock(Driver):
    """Ends with this, and measures this; waits for leave before it ends."""

    ends: Result = Result()  # noqa: RUF009 - a frozen value
    begun: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def prepare_model(self, *args: object, **options: object) -> PreparedModel:
        return _Timed(self)


class _Timed(PreparedModel):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def execute(self, request: Request) -> Result:
        self._clock.begun.set()
        assert self._clock.go_on.wait(10)
        return self._clock.ends


WAYS = ["sync", "async", "burst", "fenced"]
TIMES = {"neither": (None, None), "device": (123, None), "driver": (None, 456), "both": (123, 456)}


@dataclass
class Running:
    """A measured computation that is under way in one of four ways."""

    execution: Execution
    clock: Clock | None
    thread: threading.Thread
    errors: list[NnapiError]

    def end(self) -> list[NnapiError]:
        if self.clock is not None:
            self.clock.go_on.set()
        self.thread.join(10)
        return self.errors


def started(compilation: Compilation, way: str, clock: Clock | None = None) -> Running:
    execution = Execution(compilation)
    execution.set_input(0, np.zeros((1, 4), np.float32))
    execution.set_output(0, np.empty((1, 4), np.float32))
    execution.set_measure_timing(True)
    calls: dict[str, Callable[[], None]] = {
        "sync": execution.compute,
        "async": lambda: execution.start_compute().wait(),
        "burst": lambda: Burst(compilation).compute(execution),
        "fenced": lambda: execution.start_compute_with_dependencies([]).wait(),
    }
    errors: list[NnapiError] = []

    def run() -> None:
        try:
            calls[way]()
        except NnapiError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return Running(execution, clock, thread, errors)


def durations(execution: Execution) -> list[int]:
    return [execution.duration(code) for code in DurationCode]


@pytest.fixture
def timed() -> Iterator[Callable[..., Running]]:
    under_way: list[Running] = []

    def start(way: str, ends: Result, level: int = 8) -> Running:
        clock = Clock("clock", feature_level=level, ends=ends)
        compilation = Compilation.create_for_devices(unary_chain(FLOOR), [clock])
        compilation.finish()
        under_way.append(started(compilation, way, clock))
        assert clock.begun.wait(10)
        return under_way[-1]

    yield start
    for running in under_way:
        running.end()


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("way", WAYS)
def test_timing_of_a_driver(way: str, times: str, timed: Callable[..., Running]) -> None:
    on_device, in_driver = TIMES[times]
    running = timed(way, Result(on_device=on_device, in_driver=in_driver))
    with pytest.raises(BadStateError):
        running.execution.duration()  # it is still running
    assert running.end() == []
    expected = [UNKNOWN_DURATION if time is None else time for time in (on_device, in_driver)]
    assert durations(running.execution) == expected * 2


@pytest.mark.parametrize("way", WAYS)
def test_timing_of_a_driver_that_fails(way: str, timed: Callable[..., Running]) -> None:
    running = timed(way, Result(ResultCode.OP_FAILED))
    assert len(running.end()) == 1
    for code in DurationCode:
        with pytest.raises(BadStateError):
            running.execution.duration(code)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("level", [1, 2])
def test_timing_of_a_driver_below_level_3_is_not_known(level: int, way: str, timed: Callable[..., Running]) -> None:
    running = timed(way, Result(on_device=123, in_driver=456), level)
    assert running.end() == []
    assert durations(running.execution) == [UNKNOWN_DURATION] * 4


@pytest.mark.parametrize("way", WAYS)
def test_timing_of_the_cpu_is_not_known(way: str) -> None:
    compilation = Compilation.create_for_devices(unary_chain(FLOOR), [device_list.cpu()])
    compilation.finish()
    running = started(compilation, way)
    assert running.end() == []
    assert durations(running.execution) == [UNKNOWN_DURATION] * 4


def in_order_of_addition(model: Model, reverse: bool, devices: list[Driver]) -> list[bool]:
    """Android's run order of ADD and what follows is the same either way; clients see theirs."""
    answers = supported_operations(model, devices)
    return answers[::-1] if reverse else answers


@pytest.mark.parametrize("reverse", [False, True])
def test_slicing_add_max(reverse: bool) -> None:
    # Android's SlicingAddMax and SlicingMaxAdd: MAXIMUM needs level 3.
    model = add_and(MAXIMUM, reverse=reverse)
    assert [o.type for o in model.main.operations] == [ADD, MAXIMUM]
    answers = in_order_of_addition(model, reverse, [Driver("driver11", feature_level=2)])
    assert answers == ([False, True] if reverse else [True, False])


def test_slicing_fully_supported() -> None:
    assert supported_operations(add_and(MUL), [Driver("driver11", feature_level=2)]) == [True, True]


def condition(dims: tuple[int, ...]) -> Model:
    builder = ModelBuilder()
    x, out = builder.add_operand(FLOAT, dims), builder.add_operand(OperandCode.TENSOR_BOOL8, (1,))
    builder.add_operation(LESS, [x, x], [out])
    builder.identify_inputs_and_outputs([x], [out])
    return builder.finish()


def with_loops(*loops: tuple[int, ...], relu: bool = False) -> Model:
    """A WHILE for each of the given dimensions, and a RELU if requested."""
    builder = ModelBuilder()
    inputs, outputs = [], []
    for dims in loops:
        test, body = builder.add_operand(OperandCode.MODEL), builder.add_operand(OperandCode.MODEL)
        builder.set_operand_value_from_model(test, condition(dims))
        builder.set_operand_value_from_model(body, unary_chain(RELU, dims=dims))
        inputs.append(builder.add_operand(FLOAT, dims))
        outputs.append(builder.add_operand(FLOAT, dims))
        builder.add_operation(WHILE, [test, body, inputs[-1]], outputs[-1:])
    if relu:
        inputs.append(builder.add_operand(FLOAT, (1,)))
        outputs.append(builder.add_operand(FLOAT, (1,)))
        builder.add_operation(RELU, inputs[-1:], outputs[-1:])
    builder.identify_inputs_and_outputs(inputs, outputs)
    return builder.finish()


def test_control_flow_not_supported() -> None:
    # A loop and a RELU; a driver of level 2 is asked about the RELU alone.
    model = with_loops((1,), relu=True)
    expected = [operation.type == RELU for operation in model.main.operations]
    assert supported_operations(model, [Driver("driver11", feature_level=2)]) == expected


def test_control_flow_supported() -> None:
    assert supported_operations(with_loops((1,)), [Driver("driver13", feature_level=4)]) == [True]


def test_control_flow_failed_to_slice() -> None:
    # The dynamic loop is the runtime's alone, and without it no slice of the model is valid.
    assert supported_operations(with_loops((1,), ()), [Driver("driver13", feature_level=4)]) == [False, False]


@pytest.mark.parametrize("reverse", [False, True])
def test_partial_model_not_supported(reverse: bool) -> None:
    # Android's PartialModelNotSupported and PartialModelNotSupportedOrder.
    driver, model = Driver("test-onlyAdd", frozenset({ADD}), exec_time=0.9), add_and(MUL, reverse=reverse)
    assert in_order_of_addition(model, reverse, [driver]) == ([False, True] if reverse else [True, False])
    with pytest.raises(BadDataError):
        Compilation.create_for_devices(model, [driver]).finish()


def test_model_need_two_devices() -> None:
    drivers = [Driver("test-onlyAdd", frozenset({ADD})), Driver("test-onlyMul", frozenset({MUL}))]
    model = add_and(MUL)
    assert supported_operations(model, drivers) == [True, True]
    compilation = Compilation.create_for_devices(model, drivers)
    compilation.finish()
    execution, out = Execution(compilation), np.empty(2, np.float32)
    execution.set_input(0, np.float32([1, 2]))
    execution.set_input(1, np.float32([3, 4]))
    execution.set_output(0, out)
    execution.start_compute().wait()
    np.testing.assert_array_equal(out, [8, 12])


# -- TestFailingDriver -------------------------------------------------------------------------------------------------


@dataclass
class SqrtFailing(Driver):
    """Takes SQRT alone and fails when it runs."""

    name: str = "nnapi-test-sqrt-failing"
    takes: frozenset[OperationCode] | None = frozenset({OperationCode.SQRT})
    exec_time: float = 0.1
    executed: int = 0

    def prepare_model(self, model: Model, *args: object, **options: object) -> PreparedModel:
        self.prepared.append(model)
        return _Fails(self)


class _Fails(PreparedModel):
    def __init__(self, driver: SqrtFailing) -> None:
        self._driver = driver

    def execute(self, request: Request) -> Result:
        self._driver.executed += 1
        return Result(ResultCode.OP_FAILED)


def cast_loop() -> Model:
    """f and b; while b (an identity cast): f = f (the same); then the root of f."""
    test, body = ModelBuilder(), ModelBuilder()
    for builder, source in ((test, 1), (body, 0)):
        f, b = builder.add_operand(FLOAT, (2,)), builder.add_operand(OperandCode.TENSOR_BOOL8, (1,))
        kind, dims = ((FLOAT, (2,)), (OperandCode.TENSOR_BOOL8, (1,)))[source]
        out = builder.add_operand(kind, dims)
        builder.add_operation(OperationCode.CAST, [source], [out])
        builder.identify_inputs_and_outputs([f, b], [out])
    main = ModelBuilder()
    f, b = main.add_operand(FLOAT, (2,), name="f"), main.add_operand(OperandCode.TENSOR_BOOL8, (1,), name="b")
    kept, root = main.add_operand(FLOAT, (2,)), main.add_operand(FLOAT, (2,), name="root")
    models = [main.add_operand(OperandCode.MODEL) for _ in range(2)]
    for operand, builder in zip(models, (test, body), strict=True):
        main.set_operand_value_from_model(operand, builder.finish())
    main.add_operation(WHILE, [*models, f, b], [kept])
    main.add_operation(OperationCode.SQRT, [kept], [root])
    main.identify_inputs_and_outputs([f, b], [root])
    return main.finish()


def test_fail_after_interpreted_while() -> None:
    driver = SqrtFailing()
    compilation = Compilation.create(cast_loop(), [driver])
    plan = compilation.finish()
    kinds = [type(step).__name__ for step in plan.partition.program]
    assert kinds == ["WhileStep", "ExecutionStep", "GotoStep", "ExecutionStep", "GotoStep", "ExecutionStep"]
    assert [plan.devices[step.device].name for step in plan.steps] == ["nnapi-reference", "nnapi-reference", driver.name]
    execution = Execution(compilation)
    root = execution.run({"f": np.float32([144, 25]), "b": np.zeros(1, np.uint8)})["root"]
    np.testing.assert_array_equal(root, [12, 5])
    assert (driver.executed, execution.report.steps[-1].fallback is not None) == (1, True)


def test_failing_driver_simple_plan() -> None:
    driver = SqrtFailing()
    compilation = Compilation.create(unary_chain(OperationCode.SQRT, dims=(2,)), [driver])
    assert compilation.finish().simple
    execution = Execution(compilation)
    np.testing.assert_array_equal(execution.run([np.float32([144, 25])])["y"], [12, 5])
    assert (driver.executed, execution.report.fallback is not None) == (1, True)


def test_a_plan_without_preparation_is_shown_and_not_run() -> None:
    driver = SqrtFailing()
    compilation = Compilation.create(unary_chain(OperationCode.SQRT, dims=(2,)), [driver])
    assert [step.device for step in compilation.finish(prepare=False).steps] == [0]
    assert not compilation.is_ready
    with pytest.raises(BadStateError):
        Execution(compilation)

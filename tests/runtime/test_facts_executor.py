"""NNAPI's CPU and the sample drivers: facts U1 to U30, F1 to F6, B1 to B17 of Android's runtime, by number."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from nnbridge import devices as device_list
from nnbridge.builder import ModelBuilder
from nnbridge.cpu import control_flow, executor
from nnbridge.devices.device import OutputBuffer, Performance, PreparedModel, Request
from nnbridge.errors import (
    BadDataError,
    MissedDeadlinePersistentError,
    MissedDeadlineTransientError,
    NnapiError,
    OpFailedError,
)
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation, supported_operations
from nnbridge.runtime.execution import Execution
from nnbridge.types import OperandCode, OperationCode, PreferenceCode, ResultCode
from tests.graphs import FLOAT, unary_chain

N, T = OperationCode, OperandCode
X = np.float32([[0.5, -1.5, 2, 3]])


def on_cpu(model: Model) -> Compilation:
    compilation = Compilation.create_for_devices(model, [device_list.cpu()])
    compilation.finish()
    return compilation


def built(code: int, inputs: list[tuple[int, tuple[int, ...]]], output: tuple[int, tuple[int, ...]], **values: object) -> Model:
    """One operation; ``i1=…`` gives the value of input 1, None omits it."""
    builder = ModelBuilder()
    given = [builder.add_operand(type, dims, scale=1.0 if type == T.TENSOR_QUANT8_ASYMM else 0.0) for type, dims in inputs]
    for name, value in values.items():
        builder.set_operand_value(given[int(name[1:])], value)
    out = builder.add_operand(*output, scale=1.0 if output[0] == T.TENSOR_QUANT8_ASYMM else 0.0)
    builder.add_operation(code, given, [out])
    builder.identify_inputs_and_outputs([i for i in given if f"i{i}" not in values], [out])
    return builder.finish()


# -- the CPU executor -------------------------------------------------------------------------------------------------


def test_u1_nothing_is_retained_between_runs() -> None:
    compilation = on_cpu(unary_chain(N.FLOOR, N.ABS))
    first, second = (Execution(compilation).run([x])["y"] for x in (X, 2 * X))
    np.testing.assert_array_equal(first, np.abs(np.floor(X)))
    np.testing.assert_array_equal(second, np.abs(np.floor(2 * X)))


def test_u2_the_deadline_is_looked_at_before_each_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = device_list.cpu().prepare_model(unary_chain(N.FLOOR, N.ABS))
    clock = itertools.count()
    monkeypatch.setattr(control_flow.time, "monotonic_ns", lambda: next(clock))
    # The clock moves on with each look: the device looks first, then the executor before each operation.
    codes = [_ends_with(prepared, next(clock) + ahead) for ahead in (-2, 1, 100)]
    assert codes == [ResultCode.MISSED_DEADLINE_PERSISTENT, ResultCode.MISSED_DEADLINE_TRANSIENT, ResultCode.NO_ERROR]


def _ends_with(prepared: PreparedModel, deadline: int) -> ResultCode:
    out = OutputBuffer(np.empty(16, np.uint8), (1, 4))
    return prepared.execute(Request((X,), (out,), deadline)).code


def test_u3_the_oem_operation_fails() -> None:
    model = built(N.OEM_OPERATION, [(FLOAT, (2,))], (FLOAT, (2,)))
    with pytest.raises(OpFailedError):
        executor.Executor(model).run([np.zeros(2, np.float32)])


@pytest.mark.parametrize(
    ("code", "error"),
    [(N.MAXIMUM, BadDataError), (N.ADD, OpFailedError)],  # handled in the executor itself, and behind the resolver
)
def test_u5_a_missing_operand_is_bad_data_for_the_older_operations_only(code: OperationCode, error: type[NnapiError]) -> None:
    inputs = [(FLOAT, (2,)), (FLOAT, (2,)), *([(T.INT32, ())] if code == N.ADD else [])]
    model = built(code, inputs, (FLOAT, (2,)), i1=None, **({"i2": 0} if code == N.ADD else {}))
    with pytest.raises(error):
        Execution(on_cpu(model)).run([np.zeros(2, np.float32)])


def test_u6_a_failure_inside_an_operation_is_op_failed() -> None:
    inputs = [(FLOAT, (2,)), (T.INT32, ()), (T.TENSOR_INT32, (1,))]
    model = built(N.GATHER, inputs, (FLOAT, (1,)), i1=0, i2=np.int32([7]))
    with pytest.raises(OpFailedError):
        Execution(on_cpu(model)).run([np.zeros(2, np.float32)])


def test_u7_an_output_that_contradicts_what_is_computed() -> None:
    with pytest.raises(OpFailedError):
        Execution(on_cpu(built(N.FLOOR, [(FLOAT, (2,))], (FLOAT, (3,))))).run([np.zeros(2, np.float32)])


def quantised_chain(*scales: float) -> Model:
    """RELU after RELU of 8-bit data, whose scales should be equal."""
    builder = ModelBuilder()
    operands = [builder.add_operand(T.TENSOR_QUANT8_ASYMM, (2,), scale=scale) for scale in scales]
    for x, y in itertools.pairwise(operands):
        builder.add_operation(N.RELU, [x], [y])
    builder.identify_inputs_and_outputs(operands[:1], operands[-1:])
    return builder.finish()


def test_u8_a_temporarys_scale_is_replaced_and_an_outputs_must_be_right() -> None:
    value = np.uint8([1, 2])
    np.testing.assert_array_equal(Execution(on_cpu(quantised_chain(1.0, 0.5, 1.0))).run([value])["output0"], value)
    with pytest.raises(OpFailedError):
        Execution(on_cpu(quantised_chain(1.0, 0.5))).run([value])


def test_u10_a_larger_buffer_is_filled_as_far_as_needed() -> None:
    execution, out = Execution(on_cpu(unary_chain(N.RELU, dims=()))), np.full(6, 9, np.float32)
    execution.set_input_buffer(0, X, (1, 4))
    execution.set_output(0, out)
    execution.compute()
    np.testing.assert_array_equal(out, [0.5, 0, 2, 3, 9, 9])


def test_u17_nchw_is_the_same_in_another_order() -> None:
    inputs = [(FLOAT, (1, 2, 2, 3)), *[(T.INT32, ())] * 6, (T.BOOL, ())]
    values = {f"i{i}": 1 for i in range(2, 6)} | {"i1": 2, "i6": 0}  # VALID, 1x1 strides and windows, no activation
    nhwc = np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3)
    as_it_is = Execution(on_cpu(built(N.MAX_POOL_2D, inputs, (FLOAT, (1, 2, 2, 3)), **values, i7=0))).run([nhwc])
    moved = [(FLOAT, (1, 3, 2, 2)), *inputs[1:]]
    transposed = Execution(on_cpu(built(N.MAX_POOL_2D, moved, (FLOAT, (1, 3, 2, 2)), **values, i7=1)))
    nchw = transposed.run([np.ascontiguousarray(nhwc.transpose(0, 3, 1, 2))])
    np.testing.assert_array_equal(nchw["output0"], as_it_is["output0"].transpose(0, 3, 1, 2))


def branches(then: Model, otherwise: Model, dims: tuple[int, ...]) -> Model:
    builder = ModelBuilder()
    flag, a, b = (
        builder.add_operand(T.TENSOR_BOOL8, (1,), name="flag"),
        builder.add_operand(T.MODEL),
        builder.add_operand(T.MODEL),
    )
    x, y = builder.add_operand(FLOAT, (4,), name="x"), builder.add_operand(FLOAT, dims, name="y")
    builder.set_operand_value_from_model(a, then)
    builder.set_operand_value_from_model(b, otherwise)
    builder.add_operation(N.IF, [flag, a, b, x], [y])
    builder.identify_inputs_and_outputs([flag, x], [y])
    return builder.finish()


def tiled(times: int) -> Model:
    return built(N.TILE, [(FLOAT, (4,)), (T.TENSOR_INT32, (1,))], (FLOAT, (4 * times,)), i1=np.int32([times]))


@pytest.mark.parametrize(("flag", "times"), [(0, 3), (1, 2), (255, 2)])
def test_u18_u19_branches_may_give_different_shapes(flag: int, times: int) -> None:
    compilation = on_cpu(branches(tiled(2), tiled(3), (0,)))
    out = Execution(compilation).run({"flag": np.uint8([flag]), "x": X[0]})["y"]
    np.testing.assert_array_equal(out, np.tile(X[0], times))


def growing(limit: float) -> Model:
    """While the first of the values is below a limit: twice the values, twice as many."""
    test, body, main = ModelBuilder(), ModelBuilder(), ModelBuilder()
    x, size, start, first = (
        test.add_operand(FLOAT, (0,)),
        test.add_operand(T.TENSOR_INT32, (1,)),
        test.add_operand(T.TENSOR_INT32, (1,)),
        test.add_operand(FLOAT, (1,)),
    )
    bound, answer = test.add_operand(FLOAT, (1,)), test.add_operand(T.TENSOR_BOOL8, (1,))
    test.set_operand_value(size, np.int32([1]))
    test.set_operand_value(start, np.int32([0]))
    test.set_operand_value(bound, np.float32([limit]))
    test.add_operation(N.SLICE, [x, start, size], [first])
    test.add_operation(N.LESS, [first, bound], [answer])
    test.identify_inputs_and_outputs([x], [answer])
    x, none, doubled, axis, out = (
        body.add_operand(FLOAT, (0,)),
        body.add_operand(T.INT32),
        body.add_operand(FLOAT, (0,)),
        body.add_operand(T.INT32),
        body.add_operand(FLOAT, (0,)),
    )
    body.set_operand_value(none, 0)
    body.set_operand_value(axis, 0)
    body.add_operation(N.ADD, [x, x, none], [doubled])
    body.add_operation(N.CONCATENATION, [doubled, doubled, axis], [out])
    body.identify_inputs_and_outputs([x], [out])
    a, b = main.add_operand(T.MODEL), main.add_operand(T.MODEL)
    x, y = main.add_operand(FLOAT, (0,), name="x"), main.add_operand(FLOAT, (0,), name="y")
    main.set_operand_value_from_model(a, test.finish())
    main.set_operand_value_from_model(b, body.finish())
    main.add_operation(N.WHILE, [a, b, x], [y])
    main.identify_inputs_and_outputs([x], [y])
    return main.finish()


@pytest.mark.parametrize(("limit", "rounds"), [(0, 0), (2, 1), (5, 3)])
def test_u20_u21_u23_tensors_grow_in_loops_and_no_round_is_a_copy(limit: float, rounds: int) -> None:
    out = Execution(on_cpu(growing(limit))).run([np.float32([1, 1])])["y"]
    np.testing.assert_array_equal(out, np.full(2 * 2**rounds, 2.0**rounds, np.float32))


def test_u24_a_loop_that_takes_too_long() -> None:
    execution = Execution(on_cpu(growing(1e30)))
    execution.set_loop_timeout(0)
    execution.set_input_buffer(0, np.float32([1, 1]), (2,))
    execution.set_output(0, np.empty(64, np.uint8))
    with pytest.raises(MissedDeadlineTransientError):
        execution.compute()


def test_u27_a_deadline_that_has_passed() -> None:
    with pytest.raises(MissedDeadlinePersistentError):
        device_list.cpu().prepare_model(unary_chain(N.FLOOR), deadline=time.monotonic_ns() - 1)


def test_u30_attributes_are_ignored() -> None:
    compilation = Compilation.create_for_devices(unary_chain(N.FLOOR), [device_list.cpu()])
    compilation.add_extension_attribute("com.example", 1, b"value")
    compilation.finish()
    execution, out = Execution(compilation), np.empty((1, 4), np.float32)
    execution.add_extension_attribute("com.example", 1, b"value")
    execution.set_input(0, X)
    execution.set_output(0, out)
    execution.compute()
    np.testing.assert_array_equal(out, np.floor(X))


# -- relaxed float ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["nnapi-reference", "nnapi-sample_float_fast"])
def test_f1_u15_relaxed_models_are_computed_in_float32(device: str) -> None:
    value = np.float32([[1.0001, 70000.5, 1e-7, 3.3]])  # float16 has none of them
    model = unary_chain(N.RELU, relaxed=True)
    compilation = Compilation.create_for_devices(model, [device_list.device(device)])
    compilation.finish()
    np.testing.assert_array_equal(Execution(compilation).run([value])["y"], value)


# -- sample drivers ---------------------------------------------------------------------------------------------------

SAMPLES = {device.name: device for device in device_list.drivers() if device.name.startswith("nnapi-sample")}
FIGURES = {
    # float32, relaxed, others: execTime and powerUsage
    "nnapi-sample_float_fast": ((0.8, 1.2), (0.7, 1.1), (1.0, 1.0)),
    "nnapi-sample_float_slow": ((1.3, 0.7), (1.2, 0.6), (1.0, 1.0)),
    "nnapi-sample_minimal": ((0.4, 0.5), (0.4, 0.5), (1.0, 1.0)),
    "nnapi-sample_quant": ((50, 1.0), (50, 1.0), (50, 1.0)),
    "nnapi-sample_all": ((1.1, 1.1), (1.1, 1.1), (1.1, 1.1)),
    "nnapi-sample_full": ((1.0, 1.0), (1.0, 1.0), (1.0, 1.0)),
}


@pytest.mark.parametrize("name", FIGURES)
def test_the_sample_drivers_figures(name: str) -> None:
    given = SAMPLES[name].capabilities
    found = (given.of(T.TENSOR_FLOAT32, False), given.of(T.TENSOR_FLOAT32, True), given.of(T.TENSOR_QUANT8_ASYMM, False))
    assert found == tuple(Performance(*pair) for pair in FIGURES[name])


def test_b1_what_they_have_in_common() -> None:
    for device in SAMPLES.values():
        assert (device.version, int(device.type), int(device.feature_level)) == ("JUST_AN_EXAMPLE", 2, 8)
        assert (device.supported_extensions(), device.number_of_cache_files_needed()) == ((), (0, 0))


@pytest.mark.parametrize(
    ("name", "preference", "wins"),
    [
        ("nnapi-sample_float_fast", PreferenceCode.FAST_SINGLE_ANSWER, True),
        ("nnapi-sample_float_fast", PreferenceCode.LOW_POWER, False),
        ("nnapi-sample_float_slow", PreferenceCode.FAST_SINGLE_ANSWER, False),
        ("nnapi-sample_float_slow", PreferenceCode.LOW_POWER, True),
        ("nnapi-sample_all", PreferenceCode.FAST_SINGLE_ANSWER, False),
    ],
)
def test_b2_who_wins_against_the_cpu(name: str, preference: int, wins: bool) -> None:
    compilation = Compilation.create(unary_chain(N.FLOOR), [SAMPLES[name]])
    compilation.set_preference(preference)
    assert (compilation.finish().device_of(0).name == name) is wins


@pytest.mark.parametrize("preference", [PreferenceCode.FAST_SINGLE_ANSWER, PreferenceCode.LOW_POWER])
def test_b2_b3_the_quantised_driver_wins_never_and_has_to_be_named(preference: int) -> None:
    model, driver = quantised_chain(1.0, 1.0), SAMPLES["nnapi-sample_quant"]
    compilation = Compilation.create(model, [driver])
    compilation.set_preference(preference)
    assert compilation.finish().device_of(0).name == "nnapi-reference"
    assert Compilation.create_for_devices(model, [driver]).finish().device_of(0).name == driver.name


def test_b4_a_limited_driver_prepares_only_what_it_supports() -> None:
    with pytest.raises(BadDataError):
        SAMPLES["nnapi-sample_minimal"].prepare_model(unary_chain(N.FLOOR))
    with pytest.raises(MissedDeadlinePersistentError):
        SAMPLES["nnapi-sample_all"].prepare_model(unary_chain(N.FLOOR), deadline=time.monotonic_ns() - 1)


FLOATS, BYTES, FLAGS = (FLOAT, (2,)), (T.TENSOR_QUANT8_ASYMM, (2,)), (T.TENSOR_BOOL8, (2,))
CALLS = {
    "floor": built(N.FLOOR, [FLOATS], FLOATS),
    "add": built(N.ADD, [FLOATS, FLOATS, (T.INT32, ())], FLOATS, i2=0),
    "cast": built(N.CAST, [FLOATS], (T.TENSOR_INT32, (2,))),
    "select": built(N.SELECT, [FLAGS, FLOATS, FLOATS], FLOATS),
    "select bytes": built(N.SELECT, [FLAGS, BYTES, BYTES], BYTES),
    "relu bytes": built(N.RELU, [BYTES], BYTES),
    "dequantize": built(N.DEQUANTIZE, [BYTES], FLOATS),
    "oem": built(N.OEM_OPERATION, [FLOATS], FLOATS),
}
TAKEN = {
    "nnapi-sample_float_fast": {"floor", "add", "cast", "oem"},  # B6
    "nnapi-sample_float_slow": {"floor", "add", "cast", "oem"},
    "nnapi-sample_minimal": {"add"},  # B7
    "nnapi-sample_quant": {"select bytes", "relu bytes", "dequantize"},  # B8
    "nnapi-sample_all": set(CALLS),  # B9
    "nnapi-sample_full": set(CALLS) - {"oem"},
}


@pytest.mark.parametrize("name", TAKEN)
def test_b6_b7_b8_b9_what_they_take(name: str) -> None:
    taken = {call for call, model in CALLS.items() if supported_operations(model, [SAMPLES[name]]) == [True]}
    assert taken == TAKEN[name]


def test_b9_an_oem_operation_fails_when_it_runs() -> None:
    compilation = Compilation.create_for_devices(CALLS["oem"], [SAMPLES["nnapi-sample_all"]])
    compilation.finish()
    with pytest.raises(OpFailedError):
        Execution(compilation).run([np.zeros(2, np.float32)])


def test_b13_timing_is_the_executors_within_the_whole_call() -> None:
    compilation = Compilation.create_for_devices(unary_chain(N.FLOOR), [SAMPLES["nnapi-sample_all"]])
    compilation.finish()
    execution = Execution(compilation)
    execution.set_measure_timing(True)
    execution.set_input(0, X)
    execution.set_output(0, np.empty((1, 4), np.float32))
    execution.compute()
    assert 0 < execution.duration(0) <= execution.duration(1)

"""The NDK's functions: a client's way through them, and the code of every error."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnbridge import ndk
from nnbridge.ndk import OperandType
from nnbridge.types import ResultCode

OK, NULL, BAD_DATA, BAD_STATE = 0, ResultCode.UNEXPECTED_NULL, ResultCode.BAD_DATA, ResultCode.BAD_STATE
FLOATS = OperandType(3, (2, 3))
STALE = 0xDEAD0


def added() -> int:
    """A finished model: output = input0 + input1."""
    code, model = ndk.ANeuralNetworksModel_create()
    assert code == OK
    for operand in (FLOATS, FLOATS, OperandType(1), FLOATS):
        assert ndk.ANeuralNetworksModel_addOperand(model, operand) == OK
    assert ndk.ANeuralNetworksModel_setOperandValue(model, 2, np.int32(0), 4) == OK
    assert ndk.ANeuralNetworksModel_addOperation(model, 0, [0, 1, 2], [3]) == OK
    assert ndk.ANeuralNetworksModel_identifyInputsAndOutputs(model, [0, 1], [3]) == OK
    assert ndk.ANeuralNetworksModel_finish(model) == OK
    return int(model)


def compiled(model: int | None = None, device: str | None = None) -> int:
    """A finished compilation, for one device if it is named."""
    model = added() if model is None else model
    if device is None:
        code, compilation = ndk.ANeuralNetworksCompilation_create(model)
    else:
        code, compilation = ndk.ANeuralNetworksCompilation_createForDevices(model, [named(device)])
    assert (code, ndk.ANeuralNetworksCompilation_finish(compilation)) == (OK, OK)
    return int(compilation)


def named(name: str) -> int:
    """The handle of a device."""
    count = ndk.ANeuralNetworks_getDeviceCount()[1]
    handles = [ndk.ANeuralNetworks_getDevice(i)[1] for i in range(count)]
    return next(h for h in handles if ndk.ANeuralNetworksDevice_getName(h) == (OK, name))


X, Y = np.arange(6, dtype=np.float32), np.full(6, 0.5, np.float32)


def bound(compilation: int) -> tuple[int, np.ndarray]:
    """An execution with everything set, and its output."""
    code, execution = ndk.ANeuralNetworksExecution_create(compilation)
    assert code == OK
    out = np.zeros(6, np.float32)
    assert ndk.ANeuralNetworksExecution_setInput(execution, 0, None, X, 24) == OK
    assert ndk.ANeuralNetworksExecution_setInput(execution, 1, None, Y, 24) == OK
    assert ndk.ANeuralNetworksExecution_setOutput(execution, 0, None, out, 24) == OK
    return int(execution), out


def test_every_function_of_the_headers_is_there() -> None:
    assert len(ndk.FUNCTIONS) == 75
    assert all(getattr(ndk, name) is function for name, function in ndk.FUNCTIONS.items())


def test_a_client_computes_into_its_own_buffer() -> None:
    execution, out = bound(compiled())
    assert ndk.ANeuralNetworksExecution_compute(execution) == OK
    np.testing.assert_array_equal(out, X + Y)
    assert ndk.ANeuralNetworksExecution_getOutputOperandRank(execution, 0) == (OK, 2)
    assert ndk.ANeuralNetworksExecution_getOutputOperandDimensions(execution, 0) == (OK, (2, 3))


def test_events_bursts_and_fences_give_the_same_answer() -> None:
    compilation = compiled()
    execution, out = bound(compilation)
    code, event = ndk.ANeuralNetworksExecution_startCompute(execution)
    assert (code, ndk.ANeuralNetworksEvent_wait(event), ndk.ANeuralNetworksEvent_wait(event)) == (OK, OK, OK)
    np.testing.assert_array_equal(out, X + Y)

    execution, out = bound(compilation)
    code, burst = ndk.ANeuralNetworksBurst_create(compilation)
    assert (code, ndk.ANeuralNetworksExecution_burstCompute(execution, burst)) == (OK, OK)
    np.testing.assert_array_equal(out, X + Y)

    execution, out = bound(compilation)
    code, fenced = ndk.ANeuralNetworksExecution_startComputeWithDependencies(execution, [event], 0)
    code, fd = ndk.ANeuralNetworksEvent_getSyncFenceFd(fenced)
    assert code == OK
    waiting = ndk.ANeuralNetworksEvent_createFromSyncFenceFd(fd)[1]
    assert ndk.ANeuralNetworksEvent_wait(waiting) == OK
    os.close(fd)
    np.testing.assert_array_equal(out, X + Y)
    for handle in (event, fenced, waiting):
        ndk.ANeuralNetworksEvent_free(handle)
    assert ndk.ANeuralNetworksEvent_wait(fenced) == BAD_DATA


def test_memory_of_a_descriptor_holds_constants_inputs_and_outputs() -> None:
    fd = os.memfd_create("nnbridge-test")
    os.write(fd, np.concatenate([X, Y, np.zeros(6, np.float32)]).tobytes())
    code, memory = ndk.ANeuralNetworksMemory_createFromFd(72, 3, fd, 0)
    assert code == OK
    execution = ndk.ANeuralNetworksExecution_create(compiled())[1]
    assert ndk.ANeuralNetworksExecution_setInputFromMemory(execution, 0, None, memory, 0, 24) == OK
    assert ndk.ANeuralNetworksExecution_setInputFromMemory(execution, 1, None, memory, 24, 24) == OK
    assert ndk.ANeuralNetworksExecution_setOutputFromMemory(execution, 0, None, memory, 48, 24) == OK
    assert ndk.ANeuralNetworksExecution_compute(execution) == OK
    np.testing.assert_array_equal(np.frombuffer(os.pread(fd, 24, 48), np.float32), X + Y)
    os.close(fd)
    ndk.ANeuralNetworksMemory_free(memory)


def test_a_device_memory_carries_an_output_to_the_next_input() -> None:
    compilation = compiled()
    desc = ndk.ANeuralNetworksMemoryDesc_create()[1]
    assert ndk.ANeuralNetworksMemoryDesc_addOutputRole(desc, compilation, 0, 1.0) == OK
    assert ndk.ANeuralNetworksMemoryDesc_addInputRole(desc, compilation, 0, 0.5) == OK
    assert ndk.ANeuralNetworksMemoryDesc_setDimensions(desc, [2, 3]) == OK
    assert ndk.ANeuralNetworksMemoryDesc_finish(desc) == OK
    code, memory = ndk.ANeuralNetworksMemory_createFromDesc(desc)
    assert code == OK
    first, out = ndk.ANeuralNetworksExecution_create(compilation)[1], np.zeros(6, np.float32)
    ndk.ANeuralNetworksExecution_setInput(first, 0, None, X)
    ndk.ANeuralNetworksExecution_setInput(first, 1, None, Y)
    assert ndk.ANeuralNetworksExecution_setOutputFromMemory(first, 0, None, memory, 0, 0) == OK
    assert ndk.ANeuralNetworksExecution_compute(first) == OK
    second = ndk.ANeuralNetworksExecution_create(compilation)[1]
    assert ndk.ANeuralNetworksExecution_setInputFromMemory(second, 0, None, memory, 0, 0) == OK
    ndk.ANeuralNetworksExecution_setInput(second, 1, None, Y)
    ndk.ANeuralNetworksExecution_setOutput(second, 0, None, out)
    assert ndk.ANeuralNetworksExecution_compute(second) == OK
    np.testing.assert_array_equal(out, X + 2 * Y)


def test_an_uninitialised_device_memory_is_no_input() -> None:
    compilation = compiled()
    desc = ndk.ANeuralNetworksMemoryDesc_create()[1]
    ndk.ANeuralNetworksMemoryDesc_addInputRole(desc, compilation, 0, 1.0)
    ndk.ANeuralNetworksMemoryDesc_finish(desc)
    memory = ndk.ANeuralNetworksMemory_createFromDesc(desc)[1]
    execution = ndk.ANeuralNetworksExecution_create(compilation)[1]
    assert ndk.ANeuralNetworksExecution_setInputFromMemory(execution, 0, None, memory, 0, 0) == OK
    ndk.ANeuralNetworksExecution_setInput(execution, 1, None, Y)
    ndk.ANeuralNetworksExecution_setOutput(execution, 0, None, np.zeros(6, np.float32))
    assert ndk.ANeuralNetworksExecution_compute(execution) == ResultCode.OP_FAILED
    plain = ndk.ANeuralNetworksMemory_createFromFd(24, 3, os.memfd_create("x"), 0)[1]
    assert ndk.ANeuralNetworksMemory_copy(memory, plain) == BAD_DATA


def test_a_reusable_execution_computes_again() -> None:
    execution, out = bound(compiled())
    ndk.ANeuralNetworksExecution_free(execution)
    execution = ndk.ANeuralNetworksExecution_create(compiled())[1]
    assert ndk.ANeuralNetworksExecution_setReusable(execution, True) == OK
    data = X.copy()
    for index, value in ((0, data), (1, Y)):
        ndk.ANeuralNetworksExecution_setInput(execution, index, None, value)
    ndk.ANeuralNetworksExecution_setOutput(execution, 0, None, out)
    assert ndk.ANeuralNetworksExecution_compute(execution) == OK
    data += 1
    assert ndk.ANeuralNetworksExecution_compute(execution) == OK
    np.testing.assert_array_equal(out, X + 1 + Y)


def test_an_execution_that_is_not_reusable_computes_once() -> None:
    execution, _ = bound(compiled())
    assert ndk.ANeuralNetworksExecution_compute(execution) == OK
    assert ndk.ANeuralNetworksExecution_compute(execution) == BAD_STATE


def test_padding_is_allowed_once_it_is_enabled() -> None:
    wide = np.zeros(8, np.float32)
    execution = ndk.ANeuralNetworksExecution_create(compiled())[1]
    assert ndk.ANeuralNetworksExecution_setInput(execution, 0, None, wide) == BAD_DATA
    assert ndk.ANeuralNetworksExecution_enableInputAndOutputPadding(execution, True) == BAD_STATE
    execution = ndk.ANeuralNetworksExecution_create(compiled())[1]
    assert ndk.ANeuralNetworksExecution_enableInputAndOutputPadding(execution, True) == OK
    assert ndk.ANeuralNetworksExecution_setInput(execution, 0, None, wide) == OK
    assert ndk.ANeuralNetworksExecution_enableInputAndOutputPadding(execution, False) == BAD_STATE


def test_timing_needs_an_explicit_device_and_a_measured_success() -> None:
    execution, _ = bound(compiled())
    assert ndk.ANeuralNetworksExecution_setMeasureTiming(execution, True) == BAD_DATA
    execution, _ = bound(compiled(device="nnapi-sample_all"))
    assert ndk.ANeuralNetworksExecution_setMeasureTiming(execution, True) == OK
    assert ndk.ANeuralNetworksExecution_getDuration(execution, 0) == (BAD_STATE, 2**64 - 1)
    assert ndk.ANeuralNetworksExecution_compute(execution) == OK
    assert ndk.ANeuralNetworksExecution_getDuration(execution, 7) == (BAD_DATA, 2**64 - 1)
    on_hardware, in_driver = (ndk.ANeuralNetworksExecution_getDuration(execution, c) for c in (0, 1))
    assert (on_hardware[0], in_driver[0]) == (OK, OK)
    assert 0 < on_hardware[1] <= in_driver[1] < 2**63


def test_supported_operations_are_reported_in_order_of_addition() -> None:
    model = added()
    devices = [named("nnapi-sample_minimal")]
    assert ndk.ANeuralNetworksModel_getSupportedOperationsForDevices(model, devices) == (OK, [True])
    assert ndk.ANeuralNetworksModel_getSupportedOperationsForDevices(model, []) == (BAD_DATA, None)
    assert ndk.ANeuralNetworksModel_getSupportedOperationsForDevices(model, devices * 2) == (BAD_DATA, None)


def test_preferences_of_memory() -> None:
    compilation = compiled(device="nnapi-reference")
    assert ndk.FUNCTIONS["ANeuralNetworksCompilation_getPreferredMemoryAlignmentForInput"](compilation, 0) == (OK, 64)
    assert ndk.FUNCTIONS["ANeuralNetworksCompilation_getPreferredMemoryPaddingForOutput"](compilation, 0) == (OK, 64)
    assert ndk.FUNCTIONS["ANeuralNetworksCompilation_getPreferredMemoryPaddingForInput"](compilation, 2) == (BAD_DATA, None)


def test_devices_report_their_names_types_versions_and_levels() -> None:
    code, count = ndk.ANeuralNetworks_getDeviceCount()
    last = ndk.ANeuralNetworks_getDevice(count - 1)[1]
    assert (code, ndk.ANeuralNetworksDevice_getName(last)) == (OK, (OK, "nnapi-reference"))
    assert ndk.ANeuralNetworksDevice_getType(last) == (OK, 2)
    assert ndk.ANeuralNetworksDevice_getFeatureLevel(last) == (OK, 1000008)
    assert ndk.ANeuralNetworksDevice_getVersion(last)[0] == OK
    assert ndk.ANeuralNetworksDevice_getExtensionSupport(last, "com.example") == (OK, False)
    assert ndk.ANeuralNetworksDevice_wait(last) == OK
    assert ndk.ANeuralNetworks_getDevice(count) == (BAD_DATA, None)
    assert ndk.ANeuralNetworks_getRuntimeFeatureLevel() == 1000008


def test_loop_timeouts_are_androids() -> None:
    assert ndk.ANeuralNetworks_getDefaultLoopTimeout() == 2_000_000_000
    assert ndk.ANeuralNetworks_getMaximumLoopTimeout() == 15_000_000_000


FIRST_IS_A_HANDLE = [
    name
    for name in ndk.FUNCTIONS
    if not name.startswith("ANeuralNetworks_") and not name.endswith(("_create", "_free", "FromFd", "SyncFenceFd", "Buffer"))
]


def arguments(name: str) -> int:
    """The number of arguments that a function takes."""
    function: Callable[..., Any] = getattr(ndk.FUNCTIONS[name], "__wrapped__", ndk.FUNCTIONS[name])
    return function.__code__.co_argcount - len(function.__defaults__ or ())


@pytest.mark.parametrize("name", FIRST_IS_A_HANDLE)
@pytest.mark.parametrize(("handle", "expected"), [(None, NULL), (STALE, BAD_DATA)])
def test_null_and_stale_handles_are_refused(name: str, handle: int | None, expected: int) -> None:
    result = ndk.FUNCTIONS[name](handle, *([None] * (arguments(name) - 1)))
    assert (result[0] if isinstance(result, tuple) else result) == expected


@pytest.mark.parametrize("name", [name for name in ndk.FUNCTIONS if name.endswith("_free")])
def test_freeing_null_or_a_stale_handle_does_nothing(name: str) -> None:
    ndk.FUNCTIONS[name](None)
    ndk.FUNCTIONS[name](STALE)


def test_a_model_cannot_be_changed_once_it_is_finished() -> None:
    model = added()
    assert ndk.ANeuralNetworksModel_addOperand(model, FLOATS) == BAD_STATE
    assert ndk.ANeuralNetworksModel_relaxComputationFloat32toFloat16(model, True) == BAD_STATE
    assert ndk.ANeuralNetworksModel_finish(model) == BAD_STATE


def test_a_compilation_needs_a_finished_model() -> None:
    model = ndk.ANeuralNetworksModel_create()[1]
    assert ndk.ANeuralNetworksCompilation_create(model) == (BAD_STATE, None)
    assert ndk.ANeuralNetworksExecution_create(ndk.ANeuralNetworksCompilation_create(added())[1]) == (BAD_STATE, None)


def test_caching_takes_a_directory_and_a_token_of_32_bytes(tmp_path: Any) -> None:
    compilation = ndk.ANeuralNetworksCompilation_create(added())[1]
    assert ndk.ANeuralNetworksCompilation_setCaching(compilation, str(tmp_path), bytes(32)) == OK
    assert ndk.ANeuralNetworksCompilation_setCaching(compilation, str(tmp_path), bytes(31)) == BAD_DATA
    # Nothing is touched before finish, and a missing directory is no error then either.
    assert ndk.ANeuralNetworksCompilation_setCaching(compilation, str(tmp_path / "none"), bytes(32)) == OK
    assert ndk.ANeuralNetworksCompilation_finish(compilation) == OK


def test_options_of_a_compilation_are_checked() -> None:
    compilation = ndk.ANeuralNetworksCompilation_create(added())[1]
    assert ndk.ANeuralNetworksCompilation_setPreference(compilation, 2) == OK
    assert ndk.ANeuralNetworksCompilation_setPreference(compilation, 3) == BAD_DATA
    assert ndk.ANeuralNetworksCompilation_setPriority(compilation, 110) == OK
    assert ndk.ANeuralNetworksCompilation_setPriority(compilation, 1) == BAD_DATA
    assert ndk.ANeuralNetworksCompilation_setTimeout(compilation, 1) == BAD_DATA


def test_extension_codes_carry_the_prefix_in_their_high_bits() -> None:
    model = ndk.ANeuralNetworksModel_create()[1]
    code, operand = ndk.ANeuralNetworksModel_getExtensionOperandType(model, "com.example.ndk", 7)
    assert (code, operand & 0xFFFF, operand >> 16 > 0) == (OK, 7, True)
    assert ndk.ANeuralNetworksModel_getExtensionOperationType(model, "com.example.ndk", 7) == (OK, operand)
    assert ndk.ANeuralNetworksModel_getExtensionOperandType(model, None, 7) == (NULL, None)


def test_there_are_no_hardware_buffers() -> None:
    assert ndk.ANeuralNetworksMemory_createFromAHardwareBuffer(None) == (NULL, None)
    assert ndk.ANeuralNetworksMemory_createFromAHardwareBuffer(object()) == (ResultCode.UNMAPPABLE, None)


def test_bad_descriptors_are_refused() -> None:
    assert ndk.ANeuralNetworksMemory_createFromFd(8, 3, -1, 0) == (ResultCode.OP_FAILED, None)
    assert ndk.ANeuralNetworksEvent_createFromSyncFenceFd(0) == (BAD_DATA, None)


@pytest.mark.parametrize("memory_first", [True, False])
def test_a_burst_and_its_memories_are_freed_in_any_order(memory_first: bool) -> None:
    # Android's FreeMemoryBeforeBurst and FreeBurstBeforeMemory.
    compilation = compiled()
    fd = os.memfd_create("test")
    os.pwrite(fd, X.tobytes(), 0)
    memory = ndk.ANeuralNetworksMemory_createFromFd(X.nbytes, 3, fd, 0)[1]
    os.close(fd)
    burst = ndk.ANeuralNetworksBurst_create(compilation)[1]
    execution, out = ndk.ANeuralNetworksExecution_create(compilation)[1], np.zeros_like(X)
    assert ndk.ANeuralNetworksExecution_setInputFromMemory(execution, 0, None, memory, 0, X.nbytes) == OK
    assert ndk.ANeuralNetworksExecution_setInput(execution, 1, None, Y) == OK
    assert ndk.ANeuralNetworksExecution_setOutput(execution, 0, None, out) == OK
    assert ndk.ANeuralNetworksExecution_burstCompute(execution, burst) == OK
    np.testing.assert_array_equal(out, X + Y)
    frees = [(ndk.ANeuralNetworksMemory_free, memory), (ndk.ANeuralNetworksBurst_free, burst)]
    for free, handle in frees if memory_first else frees[::-1]:
        free(handle)


def test_an_error_inside_nnbridge_becomes_op_failed() -> None:
    model = ndk.ANeuralNetworksModel_create()[1]
    assert ndk.ANeuralNetworksModel_addOperand(model, object()) == ResultCode.OP_FAILED


def test_a_buffer_that_is_too_small_reports_the_size_that_is_needed() -> None:
    model = ndk.ANeuralNetworksModel_create()[1]
    for operand in (OperandType(3, (0,)), OperandType(3, (0,))):
        ndk.ANeuralNetworksModel_addOperand(model, operand)
    ndk.ANeuralNetworksModel_addOperation(model, 19, [0], [1])
    ndk.ANeuralNetworksModel_identifyInputsAndOutputs(model, [0], [1])
    assert ndk.ANeuralNetworksModel_finish(model) == OK
    execution = ndk.ANeuralNetworksExecution_create(compiled(model))[1]
    assert ndk.ANeuralNetworksExecution_setInput(execution, 0, None, X) == BAD_DATA
    assert ndk.ANeuralNetworksExecution_setInput(execution, 0, OperandType(3, (6,)), X) == OK
    assert ndk.ANeuralNetworksExecution_setOutput(execution, 0, None, np.zeros(2, np.float32)) == OK
    too_small = ResultCode.OUTPUT_INSUFFICIENT_SIZE
    assert ndk.ANeuralNetworksExecution_compute(execution) == too_small
    assert ndk.ANeuralNetworksExecution_getOutputOperandDimensions(execution, 0) == (too_small, (6,))


@pytest.mark.parametrize(("mode", "expected"), [("", OK), ("0", OK), ("1", OK), ("2", OK), ("3", BAD_DATA), ("yes", BAD_DATA)])
def test_partitioning_is_what_the_environment_says(mode: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNBRIDGE_PARTITION", mode)
    assert ndk.ANeuralNetworksCompilation_create(added())[0] == expected

"""Every documented error of the NDK's functions, one line each."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnbridge import ndk
from nnbridge.ndk import OperandType, SymmPerChannelQuantParams
from nnbridge.types import ResultCode
from tests.ndk.test_ndk import X, Y, added, bound, compiled, named

NULL, BAD_DATA, BAD_STATE, FAILED = (
    ResultCode.UNEXPECTED_NULL,
    ResultCode.BAD_DATA,
    ResultCode.BAD_STATE,
    ResultCode.OP_FAILED,
)


def fresh() -> int:
    """A model of two float vectors, an INT32 scalar and a per-channel tensor, not finished."""
    model = int(ndk.ANeuralNetworksModel_create()[1])
    for operand in (OperandType(3, (2, 3)), OperandType(3, (2, 3)), OperandType(1), OperandType(11, (2, 3))):
        ndk.ANeuralNetworksModel_addOperand(model, operand)
    return model


def memory(size: int = 24) -> int:
    """Plain memory."""
    fd = os.memfd_create("test")
    os.ftruncate(fd, max(size, 1))
    return int(ndk.ANeuralNetworksMemory_createFromFd(size, 3, fd, 0)[1])


def described(*, finished: bool = True, role: bool = True) -> int:
    """A descriptor of the first input of a compilation."""
    desc = int(ndk.ANeuralNetworksMemoryDesc_create()[1])
    if role:
        ndk.ANeuralNetworksMemoryDesc_addInputRole(desc, COMPILATION(), 0, 1.0)
    if finished:
        ndk.ANeuralNetworksMemoryDesc_finish(desc)
    return desc


def COMPILATION() -> int:
    """A finished compilation for all devices."""
    return compiled()


def unfinished() -> int:
    """A compilation that is still open."""
    return int(ndk.ANeuralNetworksCompilation_create(added())[1])


def execution() -> int:
    """An execution of which nothing is set."""
    return int(ndk.ANeuralNetworksExecution_create(COMPILATION())[1])


def computed() -> int:
    """An execution that has ended."""
    made, _ = bound(COMPILATION())
    ndk.ANeuralNetworksExecution_compute(made)
    return made


def half_set() -> int:
    """An execution whose first input is set."""
    made = execution()
    ndk.ANeuralNetworksExecution_setInput(made, 0, None, X)
    return made


F: dict[str, Callable[..., Any]] = ndk.FUNCTIONS
CASES: list[tuple[str, ResultCode, Callable[[], Any]]] = [
    ("Model_addOperand", NULL, lambda f: f(fresh(), None)),
    ("Model_addOperand", BAD_DATA, lambda f: f(fresh(), OperandType(77))),
    ("Model_addOperand", BAD_DATA, lambda f: f(fresh(), OperandType(5, (2,), -1.0))),
    ("Model_setOperandValue", BAD_DATA, lambda f: f(fresh(), 9, X)),
    ("Model_setOperandValue", BAD_DATA, lambda f: f(fresh(), 0, X, 20)),
    ("Model_setOperandValue", NULL, lambda f: f(fresh(), 0, None, 24)),
    ("Model_setOperandValueFromMemory", BAD_DATA, lambda f: f(fresh(), 0, memory(), 8, 24)),
    ("Model_setOperandValueFromMemory", BAD_DATA, lambda f: f(fresh(), 0, memory(), 0, 20)),
    ("Model_setOperandValueFromModel", BAD_STATE, lambda f: f(fresh(), 0, fresh())),
    ("Model_setOperandSymmPerChannelQuantParams", NULL, lambda f: f(fresh(), 3, None)),
    ("Model_setOperandSymmPerChannelQuantParams", BAD_DATA, lambda f: f(fresh(), 0, SymmPerChannelQuantParams(0, [1, 1]))),
    ("Model_setOperandSymmPerChannelQuantParams", BAD_DATA, lambda f: f(fresh(), 3, SymmPerChannelQuantParams(0, [1]))),
    ("Model_setOperandSymmPerChannelQuantParams", BAD_DATA, lambda f: f(fresh(), 3, SymmPerChannelQuantParams(2, [1, 1]))),
    ("Model_addOperation", NULL, lambda f: f(fresh(), 19, None, [1])),
    ("Model_addOperation", BAD_DATA, lambda f: f(fresh(), 999, [0], [1])),
    ("Model_addOperation", BAD_DATA, lambda f: f(fresh(), 19, [0, 1], [1])),
    ("Model_addOperation", BAD_DATA, lambda f: f(fresh(), 19, [8], [1])),
    ("Model_identifyInputsAndOutputs", NULL, lambda f: f(fresh(), None, [1])),
    ("Model_identifyInputsAndOutputs", BAD_DATA, lambda f: f(fresh(), [0], [9])),
    ("Model_identifyInputsAndOutputs", BAD_STATE, lambda f: f(added(), [0], [3])),
    ("Model_addOperand", BAD_DATA, lambda f: f(fresh(), OperandType(3, None))),
    ("Model_addOperand", BAD_STATE, lambda f: f(added(), OperandType(3, None))),
    ("Model_addOperation", BAD_DATA, lambda f: f(fresh(), 10000, [], [0])),
    ("Model_addOperation", NULL, lambda f: f(fresh(), 10000, [0], None)),
    ("Model_addOperation", BAD_STATE, lambda f: f(added(), 10000, [], [])),
    ("Model_identifyInputsAndOutputs", BAD_DATA, lambda f: f(fresh(), [0], [])),
    ("Model_identifyInputsAndOutputs", NULL, lambda f: f(added(), None, [0])),
    ("Execution_setInput", BAD_DATA, lambda f: f(execution(), 0, OperandType(3, None), X)),
    ("Model_relaxComputationFloat32toFloat16", BAD_STATE, lambda f: f(added(), True)),
    ("Model_finish", BAD_STATE, lambda f: f(added())),
    ("Model_getSupportedOperationsForDevices", BAD_STATE, lambda f: f(fresh(), [named("nnapi-reference")])),
    ("Model_getSupportedOperationsForDevices", NULL, lambda f: f(added(), [None])),
    ("Model_getExtensionOperandType", BAD_DATA, lambda f: f(fresh(), "com.example", 1 << 16)),
    ("Model_getExtensionOperationType", NULL, lambda f: f(fresh(), None, 1)),
    ("Model_setOperandExtensionData", BAD_DATA, lambda f: f(fresh(), 0, b"data")),
    ("Model_setOperandExtensionData", NULL, lambda f: f(fresh(), 0, None, 4)),
    ("Model_setOperandSymmPerChannelQuantParams", BAD_DATA, lambda f: f(fresh(), 3, SymmPerChannelQuantParams(0, None))),
    ("Memory_createFromFd", FAILED, lambda f: f(24, 3, 1 << 20, 0)),
    ("Memory_createFromDesc", BAD_STATE, lambda f: f(described(finished=False))),
    ("Memory_copy", BAD_DATA, lambda f: f(memory(8), memory(16))),
    ("Memory_copy", BAD_DATA, lambda f: f(ndk.ANeuralNetworksMemory_createFromDesc(described())[1], memory())),
    ("Memory_createFromAHardwareBuffer", ResultCode.UNMAPPABLE, lambda f: f(object())),
    ("MemoryDesc_addInputRole", BAD_DATA, lambda f: f(described(finished=False), COMPILATION(), 2, 1.0)),
    ("MemoryDesc_addInputRole", BAD_DATA, lambda f: f(described(finished=False), COMPILATION(), 0, 0.0)),
    ("MemoryDesc_addInputRole", BAD_DATA, lambda f: f(described(finished=False), unfinished(), 0, 1.0)),
    ("MemoryDesc_addInputRole", BAD_STATE, lambda f: f(described(), COMPILATION(), 0, 1.0)),
    ("MemoryDesc_addOutputRole", BAD_DATA, lambda f: f(described(finished=False), COMPILATION(), 1, 1.0)),
    ("MemoryDesc_addOutputRole", BAD_DATA, lambda f: f(described(finished=False), COMPILATION(), 0, 1.5)),
    ("MemoryDesc_setDimensions", BAD_DATA, lambda f: f(described(finished=False), [3, 3])),
    ("MemoryDesc_setDimensions", BAD_STATE, lambda f: f(described(), [2, 3])),
    ("MemoryDesc_finish", BAD_DATA, lambda f: f(described(finished=False, role=False))),
    ("MemoryDesc_finish", BAD_STATE, lambda f: f(described())),
    ("Compilation_create", BAD_STATE, lambda f: f(fresh())),
    ("Compilation_createForDevices", BAD_DATA, lambda f: f(added(), [])),
    ("Compilation_createForDevices", BAD_DATA, lambda f: f(added(), [named("nnapi-reference")] * 2)),
    ("Compilation_createForDevices", NULL, lambda f: f(added(), [None])),
    ("Compilation_setCaching", NULL, lambda f: f(unfinished(), None, bytes(32))),
    ("Compilation_setCaching", BAD_STATE, lambda f: f(COMPILATION(), "/", bytes(32))),
    ("Compilation_setPreference", BAD_STATE, lambda f: f(COMPILATION(), 1)),
    ("Compilation_setPriority", BAD_STATE, lambda f: f(COMPILATION(), 100)),
    ("Compilation_setTimeout", BAD_STATE, lambda f: f(COMPILATION(), 1)),
    ("Compilation_finish", BAD_STATE, lambda f: f(COMPILATION())),
    ("Compilation_addExtensionAttribute", BAD_DATA, lambda f: f(unfinished(), "com.example", 1, b"data")),
    ("Compilation_addExtensionAttribute", BAD_STATE, lambda f: f(COMPILATION(), "com.example", 1, b"data")),
    ("Compilation_addExtensionAttribute", NULL, lambda f: f(unfinished(), None, 1, b"data")),
    ("Compilation_getPreferredMemoryAlignmentForInput", BAD_STATE, lambda f: f(unfinished(), 0)),
    ("Compilation_getPreferredMemoryAlignmentForOutput", BAD_DATA, lambda f: f(COMPILATION(), 1)),
    ("Compilation_getPreferredMemoryPaddingForInput", BAD_DATA, lambda f: f(COMPILATION(), 2)),
    ("Compilation_getPreferredMemoryPaddingForOutput", BAD_STATE, lambda f: f(unfinished(), 0)),
    ("Execution_create", BAD_STATE, lambda f: f(unfinished())),
    ("Execution_setInput", BAD_DATA, lambda f: f(execution(), 2, None, X)),
    ("Execution_setInput", BAD_DATA, lambda f: f(execution(), 0, OperandType(3, (3, 3)), X)),
    ("Execution_setInput", BAD_DATA, lambda f: f(execution(), 0, OperandType(9999, (2, 3)), X)),
    ("Execution_setInput", BAD_DATA, lambda f: f(execution(), 0, OperandType(5, (2, 3), -1.0), X)),
    ("Execution_setInput", BAD_STATE, lambda f: f(computed(), 0, OperandType(9999, (2, 3)), X)),
    ("Execution_setInput", BAD_STATE, lambda f: f(half_set(), 0, None, X)),
    ("Execution_setInput", BAD_STATE, lambda f: f(computed(), 0, None, X)),
    ("Execution_setInputFromMemory", BAD_DATA, lambda f: f(execution(), 0, None, memory(), 0, 0)),
    ("Execution_setInputFromMemory", BAD_DATA, lambda f: f(execution(), 0, None, memory(), 8, 24)),
    ("Execution_setOutput", BAD_DATA, lambda f: f(execution(), 1, None, np.zeros(6, np.float32))),
    ("Execution_setOutput", BAD_DATA, lambda f: f(execution(), 0, None, bytes(24))),
    ("Execution_setOutput", NULL, lambda f: f(execution(), 0, None, None, 24)),
    ("Execution_setOutputFromMemory", BAD_DATA, lambda f: f(execution(), 0, None, memory(16), 0, 16)),
    ("Execution_enableInputAndOutputPadding", BAD_STATE, lambda f: f(half_set(), True)),
    ("Execution_setReusable", BAD_STATE, lambda f: f(computed(), True)),
    ("Execution_setMeasureTiming", BAD_DATA, lambda f: f(execution(), True)),
    ("Execution_setTimeout", BAD_DATA, lambda f: f(execution(), 1)),
    ("Execution_setLoopTimeout", BAD_STATE, lambda f: f(computed(), 1)),
    ("Execution_addExtensionAttribute", BAD_DATA, lambda f: f(execution(), "com.example", 1, b"data")),
    ("Execution_compute", BAD_DATA, lambda f: f(half_set())),
    ("Execution_compute", BAD_STATE, lambda f: f(computed())),
    ("Execution_startCompute", BAD_DATA, lambda f: f(half_set())),
    ("Execution_startCompute", BAD_STATE, lambda f: f(computed())),
    ("Execution_startComputeWithDependencies", NULL, lambda f: f(bound(COMPILATION())[0], [None], 0)),
    ("Execution_startComputeWithDependencies", NULL, lambda f: f(bound(COMPILATION())[0], None, 0)),
    ("Execution_startComputeWithDependencies", BAD_DATA, lambda f: f(bound(COMPILATION())[0], [], 1)),
    (
        "Execution_burstCompute",
        BAD_DATA,
        lambda f: f(bound(COMPILATION())[0], F["ANeuralNetworksBurst_create"](COMPILATION())[1]),
    ),
    ("Execution_getDuration", BAD_STATE, lambda f: f(computed(), 0)),
    ("Execution_getOutputOperandRank", BAD_STATE, lambda f: f(execution(), 0)),
    ("Execution_getOutputOperandRank", BAD_DATA, lambda f: f(computed(), 1)),
    ("Execution_getOutputOperandDimensions", BAD_STATE, lambda f: f(execution(), 0)),
    ("Execution_getOutputOperandDimensions", BAD_DATA, lambda f: f(computed(), 1)),
    (
        "Event_getSyncFenceFd",
        BAD_DATA,
        lambda f: f(ndk.ANeuralNetworksExecution_startCompute(bound(COMPILATION())[0])[1]),
    ),
    ("Event_createFromSyncFenceFd", BAD_DATA, lambda f: f(-1)),
    ("Burst_create", BAD_STATE, lambda f: f(unfinished())),
    ("Device_getExtensionSupport", NULL, lambda f: f(named("nnapi-reference"), None)),
    ("_getDevice", BAD_DATA, lambda f: f(10_000)),
]


@pytest.mark.parametrize(
    ("name", "expected", "call"), [pytest.param(*case, id=f"{case[0]}-{case[1].name}-{i}") for i, case in enumerate(CASES)]
)
def test_error(name: str, expected: ResultCode, call: Callable[[Any], Any]) -> None:
    result = call(F[f"ANeuralNetworks{name}"])
    assert (result[0] if isinstance(result, tuple) else result) == expected


def test_every_function_that_can_fail_has_an_error_here() -> None:
    never = {"_getDeviceCount", "_getRuntimeFeatureLevel", "_getDefaultLoopTimeout", "_getMaximumLoopTimeout"}
    never |= {f"{kind}_create" for kind in ("Model", "MemoryDesc")}
    # These fail for NULL and stale handles alone, which test_ndk.py tries on every function.
    handles = {"Event_wait", "Device_wait", *(f"Device_get{what}" for what in ("Name", "Type", "Version", "FeatureLevel"))}
    listed = {name for name, _, _ in CASES}
    expected = {name.removeprefix("ANeuralNetworks") for name in F if not name.endswith("_free")} - never - handles
    assert listed == expected


def test_a_fence_duration_is_for_a_single_explicit_device() -> None:
    made, out = bound(compiled(device="nnapi-reference"))
    code, event = ndk.ANeuralNetworksExecution_startComputeWithDependencies(made, [], 10**10)
    assert (code, ndk.ANeuralNetworksEvent_wait(event)) == (0, 0)
    np.testing.assert_array_equal(out, X + Y)

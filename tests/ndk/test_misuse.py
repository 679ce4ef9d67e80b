"""Any sequence of calls gives result codes: no error inside nnbridge, and what finishes is valid."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnbridge import ndk
from nnbridge.ndk import OperandType, SymmPerChannelQuantParams, core
from nnbridge.ndk.core import HANDLES, ModelHandle
from nnbridge.operations.validation import validate_model
from nnbridge.types import OperandCode, OperationCode, ResultCode
from tests.ndk.test_ndk import added, compiled

TYPES = st.sampled_from([*map(int, OperandCode), -1, 99, 0x00010000, 0x7FFF0001, 2**31])
INDEXES = st.one_of(st.integers(0, 5), st.sampled_from([-1, 6, 2**31, 2**32, 2**64]))
DIMS = st.one_of(
    st.none(),
    st.just(()),
    st.lists(st.one_of(st.integers(0, 3), st.sampled_from([2**16, 2**31, 2**32 - 1, 2**32, -1])), max_size=5).map(tuple),
)
SCALES = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 0.5]), st.floats())
POINTS = st.sampled_from([0, 1, -1, 128, 255, 65535, -(2**31), 2**31])
OPERATIONS = st.sampled_from([*map(int, OperationCode), -1, 107, 10001, 0x00010000, 2**31])
LISTS = st.one_of(st.none(), st.lists(INDEXES, max_size=6), st.lists(st.integers(0, 5), max_size=4))
BUFFERS = st.one_of(st.none(), st.sampled_from([0, 1, 2, 4, 8, 12, 128, 129]).map(bytes), st.just(np.zeros(3, np.float32)))
LENGTHS = st.one_of(st.none(), st.sampled_from([0, 1, 4, 12, 2**32]))
CALLS = st.one_of(
    st.tuples(st.just("addOperand"), st.builds(OperandType, TYPES, DIMS, SCALES, POINTS)),
    st.tuples(st.just("addOperand"), st.sampled_from([None, OperandType(3, (2,)), OperandType(3, (2, 2)), OperandType(1)])),
    st.tuples(st.just("setOperandValue"), INDEXES, BUFFERS, LENGTHS),
    st.tuples(st.just("setOperandValueFromModel"), INDEXES, st.sampled_from([None, 0x10, added()])),
    st.tuples(
        st.just("setOperandSymmPerChannelQuantParams"),
        INDEXES,
        st.one_of(
            st.none(), st.builds(SymmPerChannelQuantParams, st.integers(0, 5), st.one_of(st.none(), st.lists(SCALES, max_size=4)))
        ),
    ),
    st.tuples(st.just("setOperandExtensionData"), INDEXES, BUFFERS, LENGTHS),
    st.tuples(st.just("addOperation"), OPERATIONS, LISTS, LISTS),
    st.tuples(st.just("addOperation"), st.just(int(OperationCode.FLOOR)), st.just([0]), st.just([1])),
    st.tuples(st.just("identifyInputsAndOutputs"), LISTS, LISTS),
    st.tuples(st.just("identifyInputsAndOutputs"), st.just([0]), st.just([1])),
    st.tuples(st.just("relaxComputationFloat32toFloat16"), st.booleans()),
    st.tuples(st.just("finish")),
)
CODES = {ResultCode.NO_ERROR, ResultCode.BAD_DATA, ResultCode.BAD_STATE, ResultCode.UNEXPECTED_NULL}


@given(st.lists(CALLS, min_size=1, max_size=12))
@settings(deadline=None, max_examples=300)
def test_building_gives_result_codes_and_valid_models_alone(calls: list[tuple[Any, ...]]) -> None:
    model = ndk.ANeuralNetworksModel_create()[1]
    finished = False
    for name, *arguments in [*calls, ("finish",)]:
        code = ndk.FUNCTIONS[f"ANeuralNetworksModel_{name}"](model, *arguments)
        assert code in CODES, (name, arguments)
        if finished:
            assert code != ResultCode.NO_ERROR, (name, arguments)
        finished = finished or (name == "finish")
    built = HANDLES.get(model, ModelHandle).model
    if built is not None:
        assert validate_model(built).reason is None
    ndk.ANeuralNetworksModel_free(model)


GIVEN = st.one_of(st.none(), st.builds(OperandType, TYPES, DIMS), st.just(OperandType(3, (2, 3))))
BUFFERS = st.one_of(st.none(), st.sampled_from([1, 4, 23, 24, 25, 48]).map(bytearray), st.just(bytes(24)))
PLACES = st.sampled_from([0, 1, 8, 24, 48, 2**32, -1])
EXECUTION_CALLS = st.one_of(
    st.tuples(st.just("setInput"), INDEXES, GIVEN, BUFFERS, LENGTHS),
    st.tuples(st.just("setInput"), st.integers(0, 1), st.none(), st.just(np.ones(6, np.float32)), st.none()),
    st.tuples(st.just("setOutput"), INDEXES, GIVEN, BUFFERS, LENGTHS),
    st.tuples(st.just("setOutput"), st.just(0), st.none(), st.just(np.empty(6, np.float32)), st.none()),
    st.tuples(st.just("setInputFromMemory"), INDEXES, GIVEN, st.sampled_from([None, 0x10, "memory"]), PLACES, PLACES),
    st.tuples(st.just("setOutputFromMemory"), INDEXES, GIVEN, st.sampled_from([None, 0x10, "memory"]), PLACES, PLACES),
    st.tuples(st.just("enableInputAndOutputPadding"), st.booleans()),
    st.tuples(st.just("setReusable"), st.booleans()),
    st.tuples(st.just("setMeasureTiming"), st.booleans()),
    st.tuples(st.sampled_from(["setTimeout", "setLoopTimeout"]), st.sampled_from([0, 10**12, 2**64 - 1])),
    st.tuples(st.just("addExtensionAttribute"), st.sampled_from([None, "com.example"]), st.integers(0, 2**16), BUFFERS, LENGTHS),
    st.tuples(st.just("compute")),
    st.tuples(st.just("burstCompute"), st.sampled_from([None, 0x10, "burst"])),
    st.tuples(st.just("getDuration"), st.integers(-1, 5)),
    st.tuples(st.sampled_from(["getOutputOperandRank", "getOutputOperandDimensions"]), INDEXES),
)


@given(st.lists(EXECUTION_CALLS, min_size=1, max_size=14), st.booleans(), st.sampled_from([3, 1, 2, 0]))
@settings(deadline=None, max_examples=200)
def test_executing_gives_result_codes_alone(calls: list[tuple[Any, ...]], explicit: bool, protection: int) -> None:
    compilation = compiled(device="nnapi-sample_all" if explicit else None)
    fd = os.memfd_create("misuse")
    os.ftruncate(fd, 48)
    named = {
        "memory": ndk.ANeuralNetworksMemory_createFromFd(48, protection, fd, 0)[1],
        "burst": ndk.ANeuralNetworksBurst_create(compilation)[1],
    }
    os.close(fd)
    execution = ndk.ANeuralNetworksExecution_create(compilation)[1]
    faults: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "_log_once", faults.append)
        for name, *arguments in calls:
            given = [named.get(a, a) if isinstance(a, str) else a for a in arguments]
            result = ndk.FUNCTIONS[f"ANeuralNetworksExecution_{name}"](execution, *given)
            code = result[0] if isinstance(result, tuple) else result
            # Computing without a value for an input of ADD is OP_FAILED.
            assert code in CODES or ("ompute" in name and code == ResultCode.OP_FAILED), (name, arguments)
    assert not faults
    for free, handle in (("Memory", named["memory"]), ("Burst", named["burst"]), ("Execution", execution)):
        ndk.FUNCTIONS[f"ANeuralNetworks{free}_free"](handle)

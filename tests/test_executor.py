"""The CPU executor: its memory, its threads, its tiers of kernels."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnbridge import Compilation, Execution, builder, operations
from nnbridge.builder import ModelBuilder
from nnbridge.cpu.arena import Lease, plan_arena
from nnbridge.cpu.executor import Executor
from nnbridge.errors import OpFailedError
from nnbridge.model import Model
from nnbridge.operations import definitions
from nnbridge.operations.call import Arg
from nnbridge.operations.declaration import REGISTRY
from nnbridge.types import OperandCode, OperationCode
from tests.operations.test_convolution import convolution, sample

F32, F16, I32 = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16, OperandCode.TENSOR_INT32


def unary(code: int, *dims: int, kind: OperandCode = F32, length: int = 1) -> Model:
    """So many of the same operation, one after the other."""
    builder = ModelBuilder()
    operands = [builder.add_operand(kind, dims) for _ in range(length + 1)]
    for x, y in pairwise(operands):
        builder.add_operation(code, [x], [y])
    builder.identify_inputs_and_outputs([operands[0]], [operands[-1]])
    return builder.finish()


# -- memory ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 20), st.integers(0, 10)), max_size=30))
def test_buffers_that_live_at_the_same_time_never_overlap(sizes: list[tuple[int, int, int]]) -> None:
    leases = [Lease(i, size, first, first + length) for i, (size, first, length) in enumerate(sizes)]
    offsets, total = plan_arena(leases)
    for a in leases:
        assert offsets[a.index] % 64 == 0
        assert offsets[a.index] + a.size <= total
        for b in leases:
            if a.index < b.index and a.first <= b.last and b.first <= a.last:
                apart = offsets[a.index] + a.size <= offsets[b.index] or offsets[b.index] + b.size <= offsets[a.index]
                assert apart


def test_buffers_share_memory_when_their_lifetimes_allow_it() -> None:
    _, total = plan_arena([Lease(0, 640, 0, 1), Lease(1, 640, 1, 2), Lease(2, 640, 2, 3)])
    assert total == 1280


def test_an_output_that_is_not_contiguous_is_left_alone() -> None:
    model = convolution(np.random.default_rng(1), F32, depthwise=True, size=3, stride=1, padding=1, activation=1)
    executor, x = Executor(model), sample(np.random.default_rng(2), model)
    [expected] = executor.run([x])
    apart = np.zeros((*expected.dims, 2), np.float32)[..., 0]
    [got] = executor.run([x], [apart])
    np.testing.assert_array_equal(got.data, expected.data)
    assert not apart.any()


class Watched(np.ndarray):
    """An array that weak references may point to."""


def test_a_run_that_fails_leaves_nothing_of_the_callers_in_the_executor() -> None:
    builder = ModelBuilder()
    x = builder.add_operand(F32, (10, 10))
    indexes, axis, y = builder.add_operand(I32, (2,)), builder.add_operand(OperandCode.INT32), builder.add_operand(F32, (2, 10))
    builder.set_operand_value(axis, 0)
    builder.add_operation(OperationCode.GATHER, [x, axis, indexes], [y])
    builder.identify_inputs_and_outputs([x, indexes], [y])
    executor, values = Executor(builder.finish()), np.zeros((10, 10), np.float32).view(Watched)
    held = weakref.ref(values)
    with pytest.raises(OpFailedError, match="GATHER indices: expected indexes from 0 to 9, found 100"):
        executor.run([values, np.array([5, 100], np.int32)])
    del values
    gc.collect()
    assert held() is None


def test_many_threads_with_more_input_shapes_than_stay_bound_all_get_their_answers() -> None:
    executor, wrong, interval = Executor(unary(OperationCode.FLOOR, 0, 2)), [], sys.getswitchinterval()

    def work(seed: int) -> None:
        for count in np.random.default_rng(seed).integers(1, 40, 150):
            try:
                [got] = executor.run([np.full((count, 2), 1.5, np.float32)])
                assert got.data.tolist() == [[1.0, 1.0]] * count
            except BaseException as error:
                wrong.append(error)

    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []


# -- arguments and calls ---------------------------------------------------------------------------------------------


def test_arguments_do_not_change_and_a_misspelt_field_is_refused() -> None:
    arg = Arg(F32, (2,))
    with pytest.raises(AttributeError):
        arg.dims = (3,)  # type: ignore[misc]
    with pytest.raises(TypeError):
        arg.replace(zeropoint=5)
    assert arg.replace(zero_point=5).zero_point == 5


# -- a new operation -------------------------------------------------------------------------------------------------

TWICE = """
import numpy as np
from nnbridge.operations.call import Call
from nnbridge.operations.declaration import Input, Output, operation, types
from nnbridge.operations.kernels import Function, prepared
from nnbridge.operations.shapes import same_as_input
from nnbridge.types import OperandCode, OperationCode


@operation(
    OperationCode.TWICE,
    since=1,
    summary="Twice the input.",
    types=[types(1, T=OperandCode.TENSOR_FLOAT32)],
    inputs=[Input("input", "T")],
    outputs=[Output("output", "T")],
    shape=same_as_input,
)
@prepared("input")
def twice(call: Call) -> Function:
    return lambda x: np.multiply(2, x)
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OperationCode]:
    """The code of an operation that a module of one's own declares."""
    member = int.__new__(OperationCode, 999)
    member._name_, member._value_ = "TWICE", 999
    monkeypatch.setitem(OperationCode._member_map_, "TWICE", member)
    monkeypatch.setitem(OperationCode._value2member_map_, 999, member)
    type.__setattr__(OperationCode, "TWICE", member)
    monkeypatch.setattr(builder, "_OPERATIONS", builder._OPERATIONS | {member})
    (tmp_path / "toy_twice.py").write_text(TWICE)
    monkeypatch.setattr(operations, "__path__", [*operations.__path__, str(tmp_path)])
    definitions.cache_clear()
    yield member
    type.__delattr__(OperationCode, "TWICE")
    REGISTRY.pop(member, None)
    sys.modules.pop("nnbridge.operations.toy_twice", None)
    definitions.cache_clear()


def test_adding_an_nnapi_operation_touches_one_file_and_its_test(code: OperationCode) -> None:
    model = unary(code, 2, 3)
    compilation = Compilation.create(model, [])
    compilation.finish()
    [y] = Execution(compilation).run([np.ones((2, 3), np.float32)]).values()
    np.testing.assert_array_equal(y, np.full((2, 3), 2))


def test_a_prepared_model_is_freed_with_its_last_reference() -> None:
    executor = Executor(unary(OperationCode.RELU, 1, 4))
    executor.run([np.zeros((1, 4), np.float32)])
    freed = weakref.ref(executor)
    gc.disable()
    try:
        del executor
        assert freed() is None
    finally:
        gc.enable()


def test_a_bound_run_outlives_its_executor() -> None:
    x, y = np.array([[-1, 2]], np.float32), np.zeros((1, 2), np.float32)
    bound = Executor(unary(OperationCode.RELU, 1, 2)).bind([x], [y])
    assert bound is not None
    gc.collect()
    bound()
    np.testing.assert_array_equal(y, [[0, 2]])

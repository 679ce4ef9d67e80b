"""Facts of Android's runtime on memories, one test per number (Y1 to Y31); tests/facts.md names the tests of the others."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.errors import BadDataError, BadStateError, OpFailedError, UnmappableError
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.memory import Memory, MemoryDesc
from nnbridge.types import OperandCode, OperationCode
from tests.graphs import FLOAT, add_then, unary_chain

FLOOR = OperationCode.FLOOR
X = np.array([-1.5, 0.5, 1.5, 2.5], np.float32)
FLOORED = [-2, 0, 1, 2]
BOTH = mmap.PROT_READ | mmap.PROT_WRITE


@pytest.fixture
def fd() -> Iterator[int]:
    """A descriptor of 4 zero bytes and X."""
    made = os.memfd_create("nnbridge-test")
    os.write(made, bytes(4) + X.tobytes())
    yield made
    os.close(made)


def compiled(model: Model | None = None) -> Compilation:
    compilation = Compilation.create(model or unary_chain(FLOOR), [])
    compilation.finish()
    return compilation


def described(*compilations: Compilation, dims: tuple[int, ...] = ()) -> MemoryDesc:
    """A descriptor with the only input and output of each compilation."""
    desc = MemoryDesc()
    for compilation in compilations:
        desc.add_input_role(compilation, 0, 1.0)
        desc.add_output_role(compilation, 0, 0.5)
    if dims:
        desc.set_dimensions(dims)
    return desc


def made(*compilations: Compilation, dims: tuple[int, ...] = ()) -> Memory:
    desc = described(*compilations, dims=dims)
    desc.finish()
    return desc.create()


def floor_into(compilation: Compilation, memory: Memory) -> None:
    execution = Execution(compilation)
    execution.set_input_buffer(0, X, (1, 4))
    execution.set_output_from_memory(0, memory)
    execution.compute()


def read(memory: Memory) -> list[float]:
    """The content of a memory, through a copy to a plain one."""
    plain = Memory.shared(memory.size)
    memory.copy_to(plain)
    values: list[float] = plain.content.view(np.float32).tolist()
    return values


def test_y1_a_descriptor_is_duplicated() -> None:
    fd = os.memfd_create("nnbridge-test")
    os.write(fd, X.tobytes())
    memory = Memory.from_fd(16, BOTH, fd)
    os.close(fd)
    assert memory.content.view(np.float32).tolist() == X.tolist()


def test_y1_a_descriptor_that_cannot_be_duplicated_is_op_failed() -> None:
    with pytest.raises(OpFailedError):
        Memory.from_fd(16, BOTH, -1)


def test_y1_a_mapping_that_fails_is_found_at_use() -> None:
    read_end, write_end = os.pipe()
    memory = Memory.from_fd(16, BOTH, read_end)
    with pytest.raises(UnmappableError):
        _ = memory.content
    os.close(read_end)
    os.close(write_end)


@pytest.mark.parametrize(("size", "protection"), [(0, BOTH), (16, mmap.PROT_EXEC)])
def test_y1_a_bad_size_or_protection_is_found_at_use(fd: int, size: int, protection: int) -> None:
    memory = Memory.from_fd(size, protection, fd)
    with pytest.raises(BadDataError):
        _ = memory.content


def test_y2_reading_is_enough_for_inputs(fd: int) -> None:
    execution, out = Execution(compiled()), np.zeros(4, np.float32)
    execution.set_input_from_memory(0, Memory.from_fd(20, mmap.PROT_READ, fd), 4, 16)
    execution.set_output(0, out)
    execution.compute()
    assert out.tolist() == FLOORED


def test_a_mapping_starts_anywhere_in_the_file(fd: int) -> None:
    assert Memory.from_fd(16, BOTH, fd, 4).content.view(np.float32).tolist() == X.tolist()


def test_y8_a_finished_descriptor_does_not_change() -> None:
    compilation = compiled()
    desc = described(compilation)
    with pytest.raises(BadStateError):
        desc.create()
    desc.finish()
    for change in (desc.finish, lambda: desc.set_dimensions((1, 4)), lambda: desc.add_input_role(compiled(), 0, 1.0)):
        with pytest.raises(BadStateError):
            change()


@pytest.mark.parametrize("frequency", [0.0, 1.5, -1.0])
def test_y9_a_frequency_is_above_0_and_1_at_most(frequency: float) -> None:
    with pytest.raises(BadDataError):
        MemoryDesc().add_input_role(compiled(), 0, frequency)


def test_y10_a_role_is_one_of_a_finished_compilation() -> None:
    with pytest.raises(BadDataError):
        MemoryDesc().add_input_role(Compilation.create(unary_chain(FLOOR), []), 0, 1.0)
    with pytest.raises(BadDataError):
        MemoryDesc().add_output_role(compiled(), 1, 1.0)


def test_y11_a_role_is_added_once() -> None:
    compilation = compiled()
    desc = described(compilation)
    with pytest.raises(BadDataError):
        desc.add_input_role(compilation, 0, 1.0)
    described(compilation)


def quantised(scale: float, zero_point: int) -> Model:
    """A model of one 8-bit operation."""
    builder = ModelBuilder()
    x, y = (builder.add_operand(OperandCode.TENSOR_QUANT8_ASYMM, (1, 4), scale=scale, zero_point=zero_point) for _ in range(2))
    builder.add_operation(OperationCode.RELU, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    return builder.finish()


@pytest.mark.parametrize(
    "other", [quantised(0.5, 0), quantised(1.0, 128), unary_chain(FLOOR), unary_chain(FLOOR, dims=(1, 4, 1))]
)
def test_y12_roles_agree_in_type_scale_and_zero_point(other: Model) -> None:
    desc = described(compiled(quantised(1.0, 0)))
    with pytest.raises(BadDataError):
        desc.add_input_role(compiled(other), 0, 1.0)


def convolution(scales: list[float]) -> Model:
    """8-bit CONV_2D whose filter, with these channel scales, is an input; Android's ExtraParams."""
    builder, channels = ModelBuilder(), len(scales)
    x = builder.add_operand(OperandCode.TENSOR_QUANT8_ASYMM, (1, 16, 16, channels), scale=1.0)
    weights = builder.add_operand(OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, (channels, 3, 3, channels))
    builder.set_operand_symm_per_channel_quant_params(weights, scales, 0)
    bias = builder.add_operand(OperandCode.TENSOR_INT32, (channels,))
    scalars = [builder.add_operand(OperandCode.INT32) for _ in range(4)]
    out = builder.add_operand(OperandCode.TENSOR_QUANT8_ASYMM, (1, 16, 16, channels), scale=1.0)
    builder.add_operation(OperationCode.CONV_2D, [x, weights, bias, *scalars], [out])
    builder.identify_inputs_and_outputs([x, weights, bias, *scalars], [out])
    return builder.finish()


def test_y12_roles_agree_in_channel_scales() -> None:
    first, same, other = (compiled(convolution(scales)) for scales in ([1.0, 1.0], [1.0, 1.0], [0.5, 0.5]))
    desc = MemoryDesc()
    desc.add_input_role(first, 1, 1.0)
    with pytest.raises(BadDataError):
        desc.add_input_role(other, 1, 1.0)
    desc.add_input_role(same, 1, 1.0)


def test_y13_dimensions_combine() -> None:
    assert made(compiled(unary_chain(FLOOR, dims=(0, 4))), compiled(unary_chain(FLOOR, dims=(3, 0)))).size == 48


def test_y14_dimensions_fit_those_of_the_roles() -> None:
    desc = described(compiled(unary_chain(FLOOR, dims=(0, 4))))
    for wrong in ((2, 3), (2, 4, 1)):
        with pytest.raises(BadDataError):
            desc.set_dimensions(wrong)
    desc.set_dimensions((2, 0))


def scalar_input() -> Compilation:
    """A compilation whose second input is an INT32 scalar."""
    builder = ModelBuilder()
    x, other, y = (builder.add_operand(FLOAT, (1, 4)) for _ in range(3))
    builder.set_operand_value(other, X.reshape(1, 4))
    fused = builder.add_operand(OperandCode.INT32)
    builder.add_operation(OperationCode.ADD, [x, other, fused], [y])
    builder.identify_inputs_and_outputs([x, fused], [y])
    return compiled(builder.finish())


def test_y14_scalars_have_no_dimensions() -> None:
    before, after = MemoryDesc(), MemoryDesc()
    before.set_dimensions((1,))
    with pytest.raises(BadDataError):
        before.add_input_role(scalar_input(), 1, 1.0)
    after.add_input_role(scalar_input(), 1, 1.0)
    with pytest.raises(BadDataError):
        after.set_dimensions((1,))


def test_y15_a_refused_role_changes_nothing() -> None:
    desc = described(compiled())
    with pytest.raises(BadDataError):
        desc.add_input_role(compiled(quantised(1.0, 0)), 0, 1.0)
    desc.finish()
    assert desc.create().size == 16


def test_y16_a_descriptor_has_a_role() -> None:
    with pytest.raises(BadDataError):
        MemoryDesc().finish()


def test_y20_a_memory_of_unknown_size_is_op_failed() -> None:
    with pytest.raises(OpFailedError):
        made(compiled(unary_chain(FLOOR, dims=(0, 4))))


def test_y21_a_new_memory_is_uninitialised() -> None:
    with pytest.raises(BadDataError):
        read(made(compiled()))


def test_y22_a_memory_is_used_whole_in_its_roles() -> None:
    compilation = compiled()
    memory = made(compilation)
    with pytest.raises(BadDataError):
        Execution(compilation).set_input_from_memory(0, memory, 0, 16)
    with pytest.raises(BadDataError):
        Execution(compiled()).set_input_from_memory(0, memory)
    with pytest.raises(BadDataError):
        memory.as_pool()


def test_y23_an_input_has_the_memorys_dimensions() -> None:
    compilation = compiled(unary_chain(FLOOR, dims=(0, 4)))
    memory = made(compilation, dims=(2, 4))
    with pytest.raises(BadDataError):
        Execution(compilation).set_input_from_memory(0, memory, dims=(3, 4))


def test_y24_computing_into_a_memory_initialises_it() -> None:
    # TestMemoryDomain's SinglePartition: an output becomes the next input.
    compilation, out = compiled(add_then()), np.zeros(4, np.float32)
    memory = made(compilation)
    floor_into(compilation, memory)
    execution = Execution(compilation)
    execution.set_input_from_memory(0, memory)
    execution.set_output(0, out)
    execution.compute()
    assert out.tolist() == (X + 2).tolist()


def test_y26_a_copy_to_itself_does_nothing() -> None:
    memory = made(compiled())
    memory.copy_to(memory)
    assert not memory.initialised


def test_y28_plain_memories_of_one_size_are_copied() -> None:
    source = Memory.of(X)
    assert read(source) == X.tolist()
    with pytest.raises(BadDataError):
        source.copy_to(Memory.shared(20))


def test_y28_device_memories_of_another_type_are_not_copied() -> None:
    compilation = compiled()
    source = made(compilation)
    floor_into(compilation, source)
    with pytest.raises(BadDataError):
        source.copy_to(made(compiled(quantised(1.0, 0))))


def test_y29_device_memories_are_copied_in_every_direction() -> None:
    compilation = compiled()
    first, second = made(compilation), made(compilation)
    Memory.of(X).copy_to(first)
    first.copy_to(second)
    assert read(second) == X.tolist()


def test_y30_a_failed_copy_leaves_the_target_uninitialised() -> None:
    compilation = compiled()
    target = made(compilation)
    floor_into(compilation, target)
    with pytest.raises(BadDataError):
        made(compilation).copy_to(target)
    assert not target.initialised


def test_y31_a_copy_takes_the_dimensions_along() -> None:
    compilation = compiled(unary_chain(FLOOR, dims=(0, 4)))
    first, second = made(compilation, dims=(1, 4)), made(compilation, dims=(1, 4))
    floor_into(compilation, first)
    first.copy_to(second)
    execution, out = Execution(compilation), np.zeros(4, np.float32)
    execution.set_input_from_memory(0, second, dims=(1, 4))
    execution.set_output(0, out)
    execution.compute()
    assert out.tolist() == FLOORED


def test_memory_that_cannot_be_written_is_neither_an_output_nor_the_target_of_a_copy(fd: int) -> None:
    for memory in (Memory.from_fd(20, mmap.PROT_READ, fd), Memory.of(bytes(20))):
        with pytest.raises(BadDataError, match="memory that can be written"):
            Execution(compiled()).set_output_from_memory(0, memory, 4, 16)
        with pytest.raises(BadDataError, match="memory that can be written"):
            Memory.shared(20).copy_to(memory)
        execution, out = Execution(compiled()), np.zeros(4, np.float32)
        execution.set_input_from_memory(0, memory, 4, 16)
        execution.set_output(0, out)
        execution.compute()


def test_memories_leave_no_descriptor_behind(fd: int) -> None:
    # TestMemoryInternal's leak test.
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(8):
        memory = Memory.from_fd(20, BOTH, fd)
        assert len(memory.content) == 20
        memory.close()
        del memory
    assert len(os.listdir("/proc/self/fd")) == before

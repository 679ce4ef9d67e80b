"""Allocation of device memories: counterparts of Android's TestMemoryDomain.cpp; facts Y17 to Y20."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.devices.device import BufferRole
from nnbridge.errors import DeadObjectError, OpFailedError, Reason
from nnbridge.model import Model, Operand
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.memory import DeviceMemory, Memory, MemoryDesc
from nnbridge.types import OperandCode, OperationCode
from tests.graphs import FLOAT
from tests.runtime.drivers import Driver

ADD, SUB, MUL = OperationCode.ADD, OperationCode.SUB, OperationCode.MUL
ALL = frozenset({ADD, SUB, MUL})


def model() -> Model:
    """Android's: output0 = input0 + input1, output1 (of open size) = output0 * (input1 - input2)."""
    builder = ModelBuilder()
    inputs = [builder.add_operand(FLOAT, (1,), name=f"input{i}") for i in range(3)]
    temp, output0 = builder.add_operand(FLOAT, (1,)), builder.add_operand(FLOAT, (1,), name="output0")
    output1, none = builder.add_operand(FLOAT, (0,), name="output1"), builder.add_operand(OperandCode.INT32)
    builder.set_operand_value(none, 0)
    builder.add_operation(ADD, [inputs[0], inputs[1], none], [output0])
    builder.add_operation(SUB, [inputs[1], inputs[2], none], [temp])
    builder.add_operation(MUL, [output0, temp, none], [output1])
    builder.identify_inputs_and_outputs(inputs, [output0, output1])
    return builder.finish()


def _good(operand: Operand) -> Any:
    return np.zeros(max(int(np.prod(operand.dims)), 1) * 4, np.uint8)


def _too_small(operand: Operand) -> Any:
    return np.zeros(3, np.uint8)


def _no_bytes(operand: Operand) -> Any:
    return None


def _fails(operand: Operand) -> Any:
    raise OpFailedError(Reason("memory", "none left", "allocate"))


ANSWERS = {"ok": _good, "bad buffer": _too_small, "no buffer": _no_bytes, "bad status": _fails}


@dataclass
class Allocating(Driver):
    """Allocates in one of several ways."""

    answer: str = "ok"
    roles: list[list[BufferRole]] = field(default_factory=list)

    def allocate(self, operand: Operand, roles: Sequence[BufferRole]) -> Any:
        self.roles.append(list(roles))
        return ANSWERS[self.answer](operand)


def compiled(explicit: bool, *drivers: Driver) -> Compilation:
    compilation = Compilation.create_for_devices(model(), drivers) if explicit else Compilation.create(model(), drivers)
    compilation.finish()
    return compilation


def made(compilation: Compilation, inputs: Sequence[int] = (), outputs: Sequence[int] = ()) -> DeviceMemory:
    desc = MemoryDesc()
    for index in inputs:
        desc.add_input_role(compilation, index, 1.0)
    for index in outputs:
        desc.add_output_role(compilation, index, 0.5)
    desc.finish()
    return desc.create()


def three(answer: str = "ok") -> list[Driver]:
    return [Allocating(f"test_driver_{code.name.lower()}", frozenset({code}), answer=answer) for code in (ADD, SUB, MUL)]


def expect(compilation: Compilation, allocator: str, inputs: Sequence[int] = (), outputs: Sequence[int] = ()) -> None:
    """The memory is this device's, or where that is nobody the runtime's, which explicit lists of devices do not get."""
    if allocator or not compilation.explicit:
        assert made(compilation, inputs, outputs).allocator == allocator
        return
    with pytest.raises(OpFailedError):
        made(compilation, inputs, outputs)


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("answer", ANSWERS)
def test_single_partition(answer: str, explicit: bool) -> None:
    compilation = compiled(explicit, Allocating("test_driver", ALL, answer=answer))
    expect(compilation, "test_driver" if answer == "ok" else "", [0], [0])


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("answer", ANSWERS)
def test_multiple_partitions(answer: str, explicit: bool) -> None:
    compilation = compiled(explicit, *three(answer))
    expect(compilation, "test_driver_add" if answer == "ok" else "", [0])  # one step alone uses it
    expect(compilation, "", [1])  # ADD and SUB read it
    expect(compilation, "", [], [0])  # ADD writes it, MUL reads it


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("answer", ANSWERS)
def test_dynamic_shape(answer: str, explicit: bool) -> None:
    compilation = compiled(explicit, Allocating("test_driver", ALL, answer=answer))
    # A driver may know what capacity it allocates; the runtime has none of its own for an open size.
    if answer == "ok" or (answer == "bad buffer"):
        assert made(compilation, [], [1]).allocator == "test_driver"
        return
    with pytest.raises(OpFailedError):
        made(compilation, [], [1])


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("level", [2, 3])
def test_y17_a_driver_below_level_4_allocates_nothing(level: int, explicit: bool) -> None:
    driver = Allocating("old", frozenset({ADD, SUB, MUL}), feature_level=level)
    expect(compiled(explicit, driver), "", [0])
    assert driver.roles == []


def test_y17_the_roles_are_those_of_the_steps() -> None:
    driver = Allocating("test_driver_all", ALL)
    compilation = compiled(True, driver)
    made(compilation, [0, 2], [0])
    prepared = compilation.plan.prepared[0]
    found = {(role.direction, role.index, role.frequency) for role in driver.roles[0] if role.model is prepared}
    assert found == {("input", 0, 1.0), ("input", 2, 1.0), ("output", 0, 0.5)}


def test_y18_one_explicit_list_is_enough_to_have_no_memory_of_the_runtimes() -> None:
    free, bound = compiled(False, *three()), compiled(True, *three())
    desc = MemoryDesc()
    for compilation in (free, bound):
        desc.add_input_role(compilation, 1, 1.0)
    desc.finish()
    with pytest.raises(OpFailedError):
        desc.create()


def test_y19_a_drivers_error_is_the_answer_where_there_is_no_other_memory() -> None:
    class Dying(Driver):
        def allocate(self, operand: Operand, roles: Sequence[BufferRole]) -> Any:
            raise DeadObjectError("gone")

    with pytest.raises(DeadObjectError):
        made(compiled(True, Dying("dying", ALL)), [0])
    assert made(compiled(False, Dying("dying", ALL)), [0]).allocator == ""


@pytest.mark.parametrize("dims", [(2**16, 2**16), (2**32 - 1, 2**32 - 1), (2**31, 2**31, 2**31)])
def test_a_memory_of_more_than_4_gib_fails(dims: tuple[int, ...]) -> None:
    builder = ModelBuilder()
    x, y = (builder.add_operand(FLOAT, (0,) * len(dims)) for _ in "xy")
    builder.add_operation(OperationCode.RELU, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    compilation = Compilation.create(builder.finish(), [])
    compilation.finish()
    desc = MemoryDesc()
    desc.add_input_role(compilation, 0, 1.0)
    desc.set_dimensions(dims)
    desc.finish()
    with pytest.raises(OpFailedError, match="4294967295"):
        desc.create()


def test_y20_the_cpu_allocates_known_sizes() -> None:
    compilation = compiled(False)
    assert made(compilation, [0]).allocator == "nnapi-reference"
    with pytest.raises(OpFailedError):
        made(compilation, [], [1])


def test_the_driver_computes_in_its_own_memory_of_open_size() -> None:
    compilation = compiled(True, Allocating("test_driver", ALL))
    first, last = made(compilation, [], [0]), made(compilation, [], [1])
    execution = Execution(compilation)
    for i, value in enumerate((1, 5, 2)):
        execution.set_input(i, np.float32([value]))
    execution.set_output_from_memory(0, first)
    execution.set_output_from_memory(1, last)
    execution.compute()
    assert (last.dims, last.size) == ((1,), 4)
    plain = Memory.shared(4)
    last.copy_to(plain)
    assert plain.content.view(np.float32)[0] == (1 + 5) * (5 - 2)

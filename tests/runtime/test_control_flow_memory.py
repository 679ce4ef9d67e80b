"""Memory of interpreted control flow: roles of operands, padding, omitted outputs; counterparts of MemoryStepRoleTest."""

from __future__ import annotations

import numpy as np
import pytest

from nnbridge.devices import cpu
from nnbridge.errors import OpFailedError, OutputInsufficientSizeError
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from tests.runtime.planning import (
    binary,
    compiled,
    if_model,
    nested,
    picky,
    program,
    while_model,
)

X = np.array([3, 5], np.float32)


def numbers(value: float) -> np.ndarray:
    return np.array([value], np.float32)


def roles(compilation: Compilation, source: int, name: str) -> set[tuple[str, str]]:
    plan = compilation.plan
    operands = plan.partition.sources[source].model.main.operands
    [index] = [i for i, operand in enumerate(operands) if operand.name == name]
    return {(plan.devices[plan.steps[r.step].device].name, r.direction) for r in plan.partition.roles((source, index))}


def test_memory_step_roles_of_interpreted_if() -> None:
    compilation = compiled(if_model(binary("ADD0"), binary("MUL0")), picky("A", 0.9, "ADD0"), picky("B", 0.9, "MUL0"))
    assert program(compilation) == ["IF", "A", "GOTO", "B"]
    assert roles(compilation, 0, "condition") == set()
    assert roles(compilation, 0, "a") == roles(compilation, 0, "b") == {("A", "input"), ("B", "input")}
    assert roles(compilation, 0, "y") == {("A", "output"), ("B", "output")}


def test_memory_step_roles_of_interpreted_while() -> None:
    compilation = compiled(while_model(outputs=1), picky("A", 0.9, "LESS"), picky("B", 0.9, "ADD0", "ADD1"))
    assert program(compilation) == ["WHILE", "A", "GOTO", "B", "GOTO"]
    for name in ("i", "n"):
        assert ("A", "input") in roles(compilation, 0, name)
    assert roles(compilation, 0, "total") == {("B", "input")}
    # What comes out is copied there by the runtime.
    assert roles(compilation, 0, "i out") == set()
    assert roles(compilation, 1, "more") == {("A", "output")}
    assert roles(compilation, 2, "next i") == {("A", "input"), ("B", "input"), ("B", "output")}
    assert roles(compilation, 2, "next total") == {("B", "input"), ("B", "output")}


def test_memory_step_roles_of_nested_interpreted_control_flow() -> None:
    drivers = picky("A", 0.9, "LESS"), picky("B", 0.9, "ADD0"), picky("C", 0.9, "MUL0")
    compilation = compiled(nested(), *drivers)
    assert roles(compilation, 0, "flag") == set()
    assert roles(compilation, 0, "total") == {("B", "input"), ("C", "input")}
    assert roles(compilation, 0, "total out") == set()
    changed = {("B", "input"), ("B", "output"), ("C", "input"), ("C", "output")}
    assert roles(compilation, 2, "changed") == changed


def test_preferred_padding_follows_the_roles_in_bodies() -> None:
    compilation = compiled(if_model(binary("ADD0"), binary("ADD1")), picky("old", 0.9, level=1))
    assert [compilation.preferred_padding("input", i) for i in range(3)] == [1, 1, 1]
    assert [compilation.preferred_alignment("input", i) for i in range(3)] == [16, 64, 64]


def test_padding_of_a_loops_output_in_a_larger_buffer_is_not_touched() -> None:
    execution = Execution(compiled(while_model(outputs=1), picky("old", 0.9, level=1)))
    execution.enable_input_and_output_padding(True)
    for i, value in enumerate((numbers(0), X, numbers(2))):
        execution.set_input(i, value)
    out = np.full(3, -1, np.float32)
    execution.set_output(0, out)
    execution.compute()
    np.testing.assert_array_equal(out, [2, -1, -1])


def test_an_omitted_output_of_a_loop_fails() -> None:
    compilation = Compilation.create_for_devices(while_model(outputs=1), [cpu()])
    compilation.finish()
    execution = Execution(compilation)
    for i, value in enumerate((numbers(0), X, numbers(2))):
        execution.set_input(i, value)
    execution.set_output(0, None)
    with pytest.raises((OpFailedError, OutputInsufficientSizeError)):
        execution.compute()

"""Dimensions left open in the model and given at execution: Android's TestUnspecifiedDimensions.cpp, scenario by scenario.

    op2 = ADD(op0, op1), op4 = TRANSPOSE(op2, op3)

op0 is an input of (A, B), op1 a constant of (A, 1), op2 a temporary of (A, B), op3 (of (2,)) is omitted, op4 the output.
One operand at a time is declared, and given, with all dimensions known, one open, no rank, or no type at all; with A right or
wrong; in a buffer or a memory; with too small, exact or too large a capacity; with padding or without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.errors import BadDataError, NnapiError
from nnbridge.model import Model, Pool, known
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.memory import Memory
from nnbridge.types import OperandCode, OperationCode, ResultCode

DTYPES = {
    "Float32": (OperandCode.TENSOR_FLOAT32, np.float32),
    "Quant8": (OperandCode.TENSOR_QUANT8_ASYMM, np.uint8),
    "Float16": (OperandCode.TENSOR_FLOAT16, np.float16),
}
FULL, DIMENSION, RANK, NO_TYPE = "full", "dimension", "rank", "no type"
DECLARED, GIVEN = (FULL, DIMENSION, RANK), (FULL, DIMENSION, RANK, NO_TYPE)
RIGHT, WRONG = 2, 3
Dims = tuple[int, ...]


def shape(level: str, first: int | None, second: int, *, reverse: bool = False) -> Dims:
    """(A, B) or (B, A) at a level of knowledge: B is what is left open."""
    if level == RANK:
        return ()
    dims = tuple(d for d in (first, 0 if level == DIMENSION else second) if d is not None)
    return dims[::-1] if reverse else dims


@dataclass(frozen=True)
class Case:
    """The property of one operand that is unusual; the others are right and known."""

    operand: str
    declared: str = FULL
    given: str = FULL
    wrong_model: bool = False
    wrong_execution: bool = False
    memory: bool = False
    capacity: float = 1
    """Share of the bytes that are needed."""
    padding: bool = False
    columns: int = 2
    """B."""

    def tests(self, operand: str) -> bool:
        """True for the odd one; ``optional input`` is ``optional`` as an input instead of a constant."""
        return self.operand.split()[0] == operand

    def level(self, operand: str) -> str:
        """As in Android's tests, dimensions that other operands' tests vary are open in the model."""
        usual = DIMENSION if operand in ("input", "temporary", "output") else FULL
        return self.declared if self.tests(operand) else usual

    def rows(self, operand: str) -> int:
        return WRONG if self.wrong_model and self.operand == operand else RIGHT

    def declares(self, operand: str) -> Dims:
        if operand == "optional":
            return shape(self.level(operand), None, 2)
        columns = 1 if operand == "constant" else 2
        return shape(self.level(operand), self.rows(operand), columns, reverse=operand == "output")

    def gives(self, operand: str) -> Dims | None:
        """The dimensions at execution; None for no type."""
        level = self.given if self.tests(operand) else FULL
        if level == NO_TYPE:
            return None
        if operand == "optional":
            return shape(level, None, 2)
        rows = WRONG if self.wrong_execution and self.operand == operand else RIGHT
        return shape(level, rows, self.columns, reverse=operand == "output")

    def length(self, operand: str, size: int) -> int:
        """Bytes that are given: those of the right dimensions, or less or more."""
        rows = WRONG if self.wrong_execution and self.operand == operand else RIGHT
        return int(rows * self.columns * size * (self.capacity if self.operand == operand else 1))


@cache
def model(case: Case, kind: str) -> Model | None:
    """The model, which depends on what is declared alone; None if Android refuses it."""
    code, dtype = DTYPES[kind]
    scale = 1.0 if kind == "Quant8" else 0.0
    builder = ModelBuilder()
    names = ("input", "constant", "temporary")
    x, constant, temporary = (builder.add_operand(code, case.declares(name), scale=scale) for name in names)
    optional = builder.add_operand(OperandCode.TENSOR_INT32, case.declares("optional"))
    out, none = builder.add_operand(code, case.declares("output"), scale=scale), builder.add_operand(OperandCode.INT32)
    builder.set_operand_value(none, 0)
    value = np.array([1, 2], dtype)
    try:
        if case.memory:
            builder.set_operand_value_from_memory(constant, Pool.of(value), 0, value.nbytes)
        else:
            builder.set_operand_value(constant, value)
    except BadDataError:
        return None
    if case.operand != "optional input":
        builder.set_operand_value(optional, None)
    builder.add_operation(OperationCode.ADD, [x, constant, none], [temporary])
    builder.add_operation(OperationCode.TRANSPOSE, [temporary, optional], [out])
    builder.identify_inputs_and_outputs([x, optional] if case.operand == "optional input" else [x], [out])
    return builder.finish()


@cache
def compiled(case: Case, kind: str) -> Compilation | None:
    built = model(case, kind)
    if built is None:
        return None
    compilation = Compilation.create(built, [])
    compilation.finish()
    return compilation


def accepted(declared: Dims, given: Dims | None, length: int | None, size: int, padding: bool, *, is_input: bool) -> bool:
    """Facts E8 to E15; a length of None omits the argument."""
    if given is not None and declared and len(given) != len(declared):
        return False
    if given is not None and declared and any(d not in (0, g) for d, g in zip(declared, given, strict=True)):
        return False
    dims = declared if given is None else given
    if length is None:
        return True
    if not known(dims):
        return not is_input
    need = int(np.prod(dims)) * size
    return length == need or (length > need and padding)


def check(case: Case, kind: str) -> None:
    """One scenario from building to the answer."""
    dtype = np.dtype(DTYPES[kind][1])
    key = Case(case.operand, case.declared, wrong_model=case.wrong_model, memory=case.memory)
    compilation = compiled(key, kind)
    right = known(case.declares("constant")) and not (case.wrong_model and case.operand == "constant")
    assert (compilation is not None) is right
    if compilation is None:
        return
    execution = Execution(compilation)
    if case.padding:
        execution.enable_input_and_output_padding(True)
    values = np.arange(1, 17).astype(dtype)
    length = case.length("input", dtype.itemsize)
    fits = accepted(case.declares("input"), case.gives("input"), length, dtype.itemsize, case.padding, is_input=True)

    def set_input() -> None:
        if case.memory:
            execution.set_input_from_memory(0, Memory.of(values), 0, length, case.gives("input"))
        else:
            execution.set_input_buffer(0, values.view(np.uint8)[:length], case.gives("input"))

    if not refused_or_set(fits, set_input):
        return
    if case.operand == "optional input":
        fits = accepted(case.declares("optional"), case.gives("optional"), None, 4, case.padding, is_input=True)
        if not refused_or_set(fits, lambda: execution.set_input_buffer(1, None, case.gives("optional"))):
            return
    out = np.zeros(16, dtype)
    length = case.length("output", dtype.itemsize)
    fits = accepted(case.declares("output"), case.gives("output"), length, dtype.itemsize, case.padding, is_input=False)

    def set_output() -> None:
        if case.memory:
            execution.set_output_from_memory(0, Memory.of(out), 0, length, case.gives("output"))
        else:
            execution.set_output(0, out.view(np.uint8)[:length], case.gives("output"))

    if not refused_or_set(fits, set_output):
        return
    expected = ResultCode.NO_ERROR
    if case.wrong_model or case.wrong_execution:
        expected = ResultCode.OP_FAILED
    elif case.operand == "output" and case.capacity < 1:
        expected = ResultCode.OUTPUT_INSUFFICIENT_SIZE
    code = ResultCode.NO_ERROR
    try:
        execution.compute()
    except NnapiError as error:
        code = error.code
    assert code is expected
    if code is ResultCode.OP_FAILED:
        return
    assert execution.output_dims(0) == (case.columns, RIGHT)
    assert execution.output_sufficient(0) is (code is ResultCode.NO_ERROR)
    if code is ResultCode.NO_ERROR:
        added = values[: RIGHT * case.columns].reshape(RIGHT, case.columns) + np.array([[1], [2]], dtype)
        np.testing.assert_array_equal(out[: RIGHT * case.columns].reshape(case.columns, RIGHT), added.T)


def refused_or_set(fits: bool, call: Callable[[], None]) -> bool:
    """Call, and return whether it was accepted, which must be as expected."""
    if fits:
        call()
        return True
    with pytest.raises(BadDataError):
        call()
    return False


def cases(operand: str) -> Iterator[Case]:
    """Every scenario of an operand that Android's tests have."""
    argument = operand in ("input", "output")
    given = GIVEN if argument or operand == "optional input" else (FULL,)
    wrong = [(False, False), *([(True, False)] if "optional" not in operand else []), *([(False, True)] if argument else [])]
    capacities = (0.5, 1, 2) if argument else (1,)
    for declared, level, (model_wrong, given_wrong), memory, capacity, padding, columns in product(
        DECLARED, given, wrong, (False, True), capacities, (False, True) if argument else (False,), (1, 2)
    ):
        if (model_wrong and declared == RANK) or (given_wrong and level in (RANK, NO_TYPE)):
            continue  # nothing there that could be wrong
        case = Case(operand, declared, level, model_wrong, given_wrong, memory, capacity, padding, columns)
        if columns == 1 and FULL in (case.level("input"), case.level("temporary"), case.level("output")):
            continue  # B is 2 there
        yield case


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("operand", ["input", "constant", "temporary", "optional", "optional input", "output"])
def test_unspecified_dimensions(operand: str, kind: str) -> None:
    count = 0
    for case in cases(operand):
        count += 1
        try:
            check(case, kind)
        except (AssertionError, NnapiError) as error:
            raise AssertionError(f"{case}: {error}") from error
    assert count == {"input": 504, "constant": 20, "temporary": 16, "optional": 12, "optional input": 48, "output": 504}[operand]

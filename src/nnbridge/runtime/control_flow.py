"""Control flow that the runtime interprets: the next step of a plan's flat list, and where every operand's value lies.

Each operand has a slot. Inner operands of control flow share the slots of the outer ones, as they share
memory on Android (facts R22 to R30).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from nnbridge.devices.device import OutputBuffer, OutputShape, Request
from nnbridge.errors import Reason
from nnbridge.extensions import operand_dtype
from nnbridge.model import Array, Operand
from nnbridge.runtime.partitioner import ControlFlowBody, ExecutionStep, GotoStep, IfStep, Partition, SourceOperand, WhileStep
from nnbridge.types import DEFAULT_LOOP_TIMEOUT_NS, Lifetime, OperandCode, ResultCode


class ControlFlowError(Exception):
    """Interpreted control flow that fails."""

    def __init__(self, code: ResultCode, reason: Reason) -> None:
        super().__init__(str(reason))
        self.code = code
        self.reason = reason


class OperandValue:
    """An operand during one run: its value, or the client's buffer for it."""

    __slots__ = ("buffer", "dims", "operand", "sufficient", "value")

    def __init__(self, operand: Operand, value: Array | None = None, buffer: OutputBuffer | None = None) -> None:
        self.operand = operand
        self.value = value
        self.buffer = buffer
        self.dims = operand.dims if buffer is None else buffer.dims
        self.sufficient = True

    def assign(self, other: OperandValue) -> None:
        """Set the value at the end of a loop; in the client's buffer where this is one of the model's outputs."""
        value = other.value
        if value is None or (self.buffer is not None and self.buffer.data is None):
            raise ControlFlowError(ResultCode.OP_FAILED, Reason("a value and a buffer for the result of a loop", "none", "WHILE"))
        if self.buffer is not None and self.buffer.data is not None:
            self.buffer.data[: value.nbytes] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            value = shaped(self.buffer.data, self.operand, value.shape)
        self.value, self.dims = value, value.shape


class _Loop:
    """A running WHILE: its start, the number of runs of its body, and whether its condition is being evaluated."""

    __slots__ = ("evaluates_condition", "iteration", "started")

    def __init__(self) -> None:
        self.started = time.monotonic_ns()
        self.iteration = 0
        self.evaluates_condition = False


class Interpretation:
    """One run through a plan."""

    def __init__(self, partition: Partition, request: Request) -> None:
        self._partition = partition
        self._timeout = DEFAULT_LOOP_TIMEOUT_NS if request.loop_timeout is None else request.loop_timeout
        self._at = 0
        self._loops: dict[int, _Loop] = {}
        main = partition.sources[0].model.main
        self._slots: dict[SourceOperand, OperandValue] = {}
        for i, value in zip(main.inputs, request.inputs, strict=True):
            self._slots[0, i] = OperandValue(main.operands[i], value)
        for i, buffer in zip(main.outputs, request.outputs, strict=True):
            self._slots[0, i] = OperandValue(main.operands[i], None, buffer)

    def slot(self, place: SourceOperand) -> OperandValue:
        """The place of an operand; constants are found in the model."""
        found = self._slots.get(place)
        if found is None:
            model = self._partition.sources[place[0]].model
            operand = model.main.operands[place[1]]
            value = None
            if operand.is_constant:
                value = np.frombuffer(model.bytes_of(operand), operand_dtype(operand)).reshape(operand.dims)
            found = self._slots[place] = OperandValue(operand, value)
        return found

    def shapes(self) -> tuple[OutputShape, ...]:
        """The shapes of the model's outputs as far as they are known."""
        slots = (self._slots[0, i] for i in self._partition.sources[0].model.main.outputs)
        return tuple(OutputShape(slot.dims, slot.sufficient) for slot in slots)

    def dims(self) -> dict[SourceOperand, tuple[int, ...]]:
        """The dimensions of all operands that steps computed so far."""
        return {place: slot.dims for place, slot in self._slots.items()}

    def next_step(self) -> ExecutionStep | None:
        """The next execution step; None at the end. Control flow on the way there is run."""
        program = self._partition.program
        while self._at < len(program):
            item = program[self._at]
            if isinstance(item, ExecutionStep):
                self._at += 1
                return item
            if isinstance(item, GotoStep):
                self._at = item.target
            elif isinstance(item, IfStep):
                self._branch(item)
            else:
                self._loop(item)
        return None

    def _branch(self, step: IfStep) -> None:
        """IF: only the chosen branch's steps run, on the outer operands (facts R22, R23)."""
        branch = step.then if self._condition(step.condition, "IF") else step.otherwise
        self.enter(step, branch)
        self._at = branch.start

    def enter(self, step: IfStep, branch: ControlFlowBody) -> None:
        """Give a branch the outer operands' slots."""
        self._share(zip(step.inputs, branch.inputs, strict=True))
        self._share(zip(step.outputs, branch.outputs, strict=True))

    def _loop(self, step: WhileStep) -> None:
        """WHILE: to the condition; from there to the body or to the end (facts R24 to R28)."""
        loop = self._loops.setdefault(self._at, _Loop())
        if not loop.evaluates_condition:
            self._to_condition(step, loop)
            return
        elapsed = time.monotonic_ns() - loop.started
        if elapsed > self._timeout:
            raise ControlFlowError(
                ResultCode.MISSED_DEADLINE_TRANSIENT,
                Reason(f"a loop that ends within {self._timeout} ns", f"{elapsed} ns", "WHILE"),
            )
        loop.evaluates_condition = False
        if self._condition(step.condition.outputs[0], "WHILE"):
            self._share(zip(step.condition.inputs, step.body.inputs, strict=True))
            for place in step.body.outputs:
                # The condition still holds the slots of the last iteration.
                self._slots.pop(place, None)
            loop.iteration += 1
            self._at = step.body.start
            return
        for inner, outer in zip(step.condition.inputs, step.outputs, strict=False):
            self.slot(outer).assign(self.slot(inner))
        del self._loops[self._at]
        self._at = step.end

    def _to_condition(self, step: WhileStep, loop: _Loop) -> None:
        """The condition reads the initial values, or what the body computed last."""
        carried = step.body.outputs if loop.iteration else ()
        self._share(zip((*carried, *step.inputs[len(carried) :]), step.condition.inputs, strict=True))
        loop.evaluates_condition = True
        self._at = step.condition.start

    def _share(self, pairs: Iterable[tuple[SourceOperand, SourceOperand]]) -> None:
        for outer, inner in list(pairs):
            self._slots[inner] = self.slot(outer)

    def _condition(self, place: SourceOperand, name: str) -> bool:
        value = self.slot(place).value
        if value is None:
            raise ControlFlowError(ResultCode.OP_FAILED, Reason("a condition with a value", "none", name, "condition"))
        return bool(value.reshape(-1)[:1].view(np.uint8)[0])


def shaped(buffer: npt.NDArray[np.uint8], operand: Operand, dims: tuple[int, ...]) -> Array:
    """A buffer's first bytes as an array of an operand's element type; outputs of truth values as booleans."""
    dtype = operand_dtype(operand)
    array: Array = buffer[: math.prod(dims) * dtype.itemsize].view(dtype).reshape(dims)
    truth = operand.type == OperandCode.TENSOR_BOOL8 and operand.lifetime is Lifetime.SUBGRAPH_OUTPUT
    return array.view(np.bool_) if truth else array

"""Running a plan: steps, rooms for what only execution knows, and what falls back to the CPU."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nnbridge.devices.device import OutputBuffer, OutputShape, PreparedModel, Request, Result
from nnbridge.errors import Reason
from nnbridge.extensions import operand_dtype
from nnbridge.model import Operand, known
from nnbridge.operations.evaluate import merge_dims
from nnbridge.operations.validation import byte_size
from nnbridge.runtime.compilation import Compilation, Plan
from nnbridge.runtime.partition import Step
from nnbridge.types import Lifetime, OperandCode, ResultCode

Array = npt.NDArray[Any]

GROWTH_LIMIT = 2**31
"""Bytes that a buffer may grow to."""

FINAL = (ResultCode.NO_ERROR, ResultCode.OUTPUT_INSUFFICIENT_SIZE)
"""Results after which nothing is tried again."""


@dataclass
class StepReport:
    """What running one step took and where it really ran."""

    device: str
    nanoseconds: int
    fallback: Reason | None = None
    """Why the step ran on the CPU instead of its device."""


@dataclass
class RunReport:
    """What an execution did, step by step."""

    steps: list[StepReport] = field(default_factory=list)
    fallback: Reason | None = None
    """Why the whole model was repeated on the CPU."""


class PlanRunner:
    """One run of a finished compilation; :attr:`report` tells what happened."""

    def __init__(self, compilation: Compilation) -> None:
        self._compilation = compilation
        self._plan = compilation.plan
        self.report = RunReport()

    def execute(self, request: Request) -> Result:
        """Run the plan; what fails on a device goes to the CPU where Android's would (facts E29 to E32, R17)."""
        plan, allowed = self._plan, self._compilation.allows_fallback
        if plan.simple:
            step = plan.steps[0]
            result = self._run_step(plan, 0, plan.prepared[0], request)
            if result.code in FINAL or not allowed or plan.devices[step.device].kind != "device":
                return result
        else:
            result, fall_back = self._run_steps(plan, request, allowed)
            if not fall_back or not allowed:
                return result
        self.report.fallback = result.reason or Reason(result.code.name)
        cpu = self._compilation.cpu_plan()
        if cpu.simple:
            return self._run_step(cpu, 0, cpu.prepared[0], request)
        return self._run_steps(cpu, request, False)[0]

    def _run_step(self, plan: Plan, number: int, prepared: PreparedModel, request: Request, *, cpu: bool = False) -> Result:
        """One call to a prepared model; whatever it answers is checked (facts E34, E35)."""
        step = plan.steps[number]
        name = "nnapi-reference" if cpu else plan.devices[step.device].name
        started = time.perf_counter_ns()
        try:
            result = prepared.execute(request)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
            result = Result(ResultCode.OP_FAILED, (), Reason("an execution without failure", found, name))
        checked = _checked(result, step, request, name)
        self.report.steps.append(StepReport(name, time.perf_counter_ns() - started))
        return checked

    def _run_steps(self, plan: Plan, request: Request, allowed: bool) -> tuple[Result, bool]:
        """Steps one after another; gives the result and whether the whole model should be repeated on the CPU."""
        model = self._compilation.model
        main = model.main
        values: dict[int, Array | None] = dict(zip(main.inputs, request.inputs, strict=True))
        buffers = dict(zip(main.outputs, request.outputs, strict=True))
        shapes: dict[int, OutputShape] = {}
        for number, step in enumerate(plan.steps):
            result, rooms = self._run_with_room(plan, number, step, plan.prepared[number], request, values, buffers)
            if result.code not in FINAL and allowed:
                kind = plan.devices[step.device].kind
                if kind != "device":
                    # What failed on the host would fail there again.
                    return result, kind == "cpu"
                # Partial fallback: the same step on the CPU, then on with the next (fact R17).
                why = result.reason or Reason(result.code.name)
                result, rooms = self._run_with_room(
                    plan, number, step, self._compilation.prepare_on_cpu(step), request, values, buffers, cpu=True
                )
                self.report.steps[-1].fallback = why
                if result.code not in FINAL:
                    return result, True
            for i, shape, room in zip(step.outputs, result.shapes, rooms, strict=False):
                shapes[i] = shape
                if room.data is not None and shape.sufficient:
                    values[i] = shaped(room.data, main.operands[i], shape.dims)
            if result.code is not ResultCode.NO_ERROR:
                return Result(result.code, self._all_shapes(shapes), result.reason), False
        return Result(ResultCode.NO_ERROR, self._all_shapes(shapes)), False

    def _run_with_room(
        self,
        plan: Plan,
        number: int,
        step: Step,
        prepared: PreparedModel,
        request: Request,
        values: Mapping[int, Array | None],
        buffers: Mapping[int, OutputBuffer],
        *,
        cpu: bool = False,
    ) -> tuple[Result, list[OutputBuffer]]:
        """A step whose dynamic temporaries grow until it succeeds (facts R9 to R11)."""
        operands = self._compilation.model.main.operands
        rooms = [buffers[i] if i in buffers else _temporary(operands[i]) for i in step.outputs]
        inputs = tuple(values[i] for i in step.inputs)
        while True:
            inner = Request(inputs, tuple(rooms), request.deadline, request.loop_timeout, request.measure)
            result = self._run_step(plan, number, prepared, inner, cpu=cpu)
            if result.code is not ResultCode.OUTPUT_INSUFFICIENT_SIZE:
                return result, rooms
            if any(not shape.sufficient for i, shape in zip(step.outputs, result.shapes, strict=True) if i in buffers):
                return result, rooms
            grown = [
                room if i in buffers or shape.sufficient else _larger(room, operands[i], shape)
                for i, room, shape in zip(step.outputs, rooms, result.shapes, strict=True)
            ]
            if all(new is old for new, old in zip(grown, rooms, strict=True)):
                return result, rooms
            rooms = grown

    def _all_shapes(self, shapes: Mapping[int, OutputShape]) -> tuple[OutputShape, ...]:
        main = self._compilation.model.main
        return tuple(shapes.get(i, OutputShape(main.operands[i].dims)) for i in main.outputs)


def size_of(operand: Operand, dims: tuple[int, ...]) -> int | None:
    """Bytes of an operand with these dimensions; None if not known."""
    if operand.dims == dims:
        return byte_size(operand)
    return int(np.prod(dims)) * operand_dtype(operand).itemsize if known(dims) else None


def shaped(buffer: npt.NDArray[np.uint8], operand: Operand, dims: tuple[int, ...]) -> Array:
    dtype = operand_dtype(operand)
    count = int(np.prod(dims)) if dims else 1
    array: Array = buffer[: count * dtype.itemsize].view(dtype).reshape(dims)
    return array.view(np.bool_) if operand.type == OperandCode.TENSOR_BOOL8 and _is_output(operand) else array


def _is_output(operand: Operand) -> bool:
    return operand.lifetime is Lifetime.SUBGRAPH_OUTPUT


def _temporary(operand: Operand) -> OutputBuffer:
    """Room for a temporary between steps; one element where its size is not known (fact R9)."""
    size = byte_size(operand)
    return OutputBuffer(np.empty(size or operand_dtype(operand).itemsize, np.uint8), operand.dims)


def _larger(room: OutputBuffer, operand: Operand, shape: OutputShape) -> OutputBuffer:
    """More room for a dynamic temporary: what is reported if that is known, else twice as much."""
    assert room.data is not None
    told = int(np.prod(shape.dims)) * operand_dtype(operand).itemsize if known(shape.dims) else 2 * len(room.data)
    if told > GROWTH_LIMIT or told <= len(room.data):
        return room
    return OutputBuffer(np.empty(told, np.uint8), room.dims)


def _checked(result: Result, step: Step, request: Request, device: str) -> Result:
    """A device's answer, or OP_FAILED with what is wrong with it."""
    operands = [step.model.main.operands[i] for i in step.model.main.outputs]

    def wrong(rule: str, found: object) -> Result:
        return Result(ResultCode.OP_FAILED, (), Reason(rule, str(found), device))

    if not isinstance(result, Result):
        return wrong("a Result from execute", type(result).__name__)
    if result.code is ResultCode.NO_ERROR and not result.shapes:
        declared = [buffer.dims for buffer in request.outputs]
        if all(known(dims) or not operand.is_tensor for dims, operand in zip(declared, operands, strict=True)):
            return Result(result.code, tuple(OutputShape(d) for d in declared), None, result.on_device, result.in_driver)
        return wrong("output shapes where the model leaves them open", "none")
    if result.code not in FINAL:
        return result if not result.shapes else Result(result.code, (), result.reason)
    if len(result.shapes) != len(operands):
        return wrong(f"{len(operands)} output shapes", len(result.shapes))
    insufficient = [shape for shape in result.shapes if not shape.sufficient]
    if bool(insufficient) != (result.code is ResultCode.OUTPUT_INSUFFICIENT_SIZE):
        return wrong("insufficient outputs exactly with OUTPUT_INSUFFICIENT_SIZE", result.code.name)
    for shape, buffer, operand in zip(result.shapes, request.outputs, operands, strict=True):
        if merge_dims(buffer.dims, shape.dims) is None:
            return wrong(f"an output of {list(buffer.dims)} as declared for {operand.name}", list(shape.dims))
    return result

"""Execution: bind inputs and outputs to a finished compilation and run its plan."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from nnbridge.devices.device import OutputBuffer, OutputShape, PreparedModel, Request, Result
from nnbridge.devices.host import operand_dtype
from nnbridge.errors import (
    ERROR_OF_CODE,
    BadDataError,
    BadStateError,
    InputError,
    Reason,
)
from nnbridge.model import Operand, known
from nnbridge.operations.evaluate import merge_dims
from nnbridge.operations.validation import byte_size
from nnbridge.runtime.compilation import Compilation, Plan
from nnbridge.runtime.partition import Step
from nnbridge.types import Lifetime, OperandCode, ResultCode, is_extension, type_name

MAX_LOOP_TIMEOUT_NS = 15_000_000_000
_GROWTH_LIMIT = 2**31

Array = npt.NDArray[Any]


class _State(Enum):
    PREPARATION = "preparation"
    COMPUTATION = "computation"
    COMPLETED = "completed"


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


class Execution:
    """``ANeuralNetworksExecution`` over NumPy arrays.

    Low level: :meth:`set_input`, :meth:`set_output`, :meth:`compute`. In one call: :meth:`run`.
    """

    def __init__(self, compilation: Compilation) -> None:
        self._plan = compilation.plan
        self._compilation = compilation
        main = compilation.model.main
        self._input_operands = [main.operands[i] for i in main.inputs]
        self._output_operands = [main.operands[i] for i in main.outputs]
        self._inputs: list[Array | _Unset | None] = [_UNSET] * len(self._input_operands)
        self._outputs: list[OutputBuffer | _Unset] = [_UNSET] * len(self._output_operands)
        self._shapes: list[OutputShape] = []
        self._loop_timeout: int | None = None
        self._state = _State.PREPARATION
        self._code = ResultCode.NO_ERROR
        self.report = RunReport()
        """What the last computation did."""

    # -- low level ---------------------------------------------------------------------------------------------------

    def set_input(self, index: int, value: Array | None) -> None:
        """``setInput``: an array of the operand's element type, its shape filling in what the model leaves open.

        None omits the input. BAD_STATE if it is set already or the execution has started; BAD_DATA for a wrong index, type
        or shape.
        """
        self._require_preparation("setInput")
        operand = self._at(self._input_operands, index, "setInput")
        if not isinstance(self._inputs[index], _Unset):
            raise BadStateError(Reason("an input that is not set", "set before", "setInput", operand.name))
        if value is not None:
            check_array(operand, value, "setInput")
            value = np.ascontiguousarray(value)
        self._inputs[index] = value

    def set_output(self, index: int, buffer: Array | None, dims: Sequence[int] | None = None) -> None:
        """``setOutput``: a writable, contiguous array to fill; None omits the output.

        ``dims`` may fix dimensions that the model leaves open. Where they stay open, the buffer's size is the room there
        is.
        """
        self._require_preparation("setOutput")
        operand = self._at(self._output_operands, index, "setOutput")
        if not isinstance(self._outputs[index], _Unset):
            raise BadStateError(Reason("an output that is not set", "set before", "setOutput", operand.name))
        fixed = operand.dims
        if dims is not None:
            merged = merge_dims(operand.dims, tuple(dims))
            if merged is None:
                raise BadDataError(Reason(f"dimensions that fit {list(operand.dims)}", str(list(dims)), "setOutput"))
            fixed = merged
        if buffer is None:
            self._outputs[index] = OutputBuffer(None, fixed)
            return
        if not (buffer.flags.c_contiguous and buffer.flags.writeable):
            raise BadDataError(Reason("a contiguous, writable buffer", "another", "setOutput", operand.name))
        size = _size(operand, fixed)
        if size is not None and buffer.nbytes != size:
            raise BadDataError(Reason(f"{size} bytes", f"{buffer.nbytes}", "setOutput", operand.name))
        self._outputs[index] = OutputBuffer(buffer.reshape(-1).view(np.uint8), fixed)

    def set_loop_timeout(self, nanoseconds: int) -> None:
        """``setLoopTimeout``: time for each WHILE loop, at most 15 s (more is cut down to it)."""
        self._require_preparation("setLoopTimeout")
        self._loop_timeout = min(nanoseconds, MAX_LOOP_TIMEOUT_NS)

    def compute(self) -> None:
        """``compute``: run synchronously. Raises the NNAPI error that it ends with."""
        self._require_preparation("compute")
        self._state = _State.COMPLETED
        inputs, outputs = self._inputs, self._outputs
        for group, operands in ((inputs, self._input_operands), (outputs, self._output_operands)):
            for value, operand in zip(group, operands, strict=True):
                if isinstance(value, _Unset):
                    self._code = ResultCode.BAD_DATA
                    raise BadDataError(Reason("every input and output set", f"{operand.name or operand} is not", "compute"))
        request = Request(
            tuple(x for x in inputs if not isinstance(x, _Unset)),
            tuple(x for x in outputs if not isinstance(x, _Unset)),
            loop_timeout=self._loop_timeout,
        )
        result = self._execute(request)
        self._code = result.code
        self._shapes = list(result.shapes)
        if result.code is not ResultCode.NO_ERROR:
            raise ERROR_OF_CODE[result.code](result.reason or Reason(result.code.name))

    def output_dims(self, index: int) -> tuple[int, ...]:
        """``getOutputOperandDimensions``: known after success and after OUTPUT_INSUFFICIENT_SIZE, else BAD_STATE."""
        if self._state is not _State.COMPLETED or self._code not in (
            ResultCode.NO_ERROR,
            ResultCode.OUTPUT_INSUFFICIENT_SIZE,
        ):
            raise BadStateError(Reason("an execution that has completed", self._state.value))
        return self._at(self._shapes, index, "getOutputOperandDimensions").dims

    # -- in one call -------------------------------------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Array] | Sequence[Array | None]) -> dict[str, Array]:
        """Compute and give the outputs by name, allocating what is needed.

        ``inputs`` by operand name or in model-input order. Outputs whose size only execution knows are computed again with
        the room that NNAPI reports.
        """
        for i, value in enumerate(self._in_order(inputs)):
            self.set_input(i, value)
        rooms: list[int | None] = [None] * len(self._output_operands)
        while True:
            buffers = []
            for i, operand in enumerate(self._output_operands):
                size = _size(operand, operand.dims)
                room = size if size is not None else rooms[i] or max(1, operand_dtype(operand).itemsize)
                buffers.append(np.empty(room, np.uint8))
                self.set_output(i, buffers[-1])
            try:
                self.compute()
                break
            except ERROR_OF_CODE[ResultCode.OUTPUT_INSUFFICIENT_SIZE]:
                rooms = self._grown(rooms)
                self._outputs = [_UNSET] * len(self._output_operands)
                self._state = _State.PREPARATION
        return {
            output_name(operand, i): _shaped(buffer, operand, shape.dims)
            for i, (operand, buffer, shape) in enumerate(zip(self._output_operands, buffers, self._shapes, strict=True))
        }

    def _grown(self, rooms: list[int | None]) -> list[int | None]:
        """Room for each output as reported; doubled where only "too small" is known."""
        grown: list[int | None] = []
        for operand, shape, room in zip(self._output_operands, self._shapes, rooms, strict=True):
            itemsize = operand_dtype(operand).itemsize
            told = int(np.prod(shape.dims)) * itemsize if shape.dims and 0 not in shape.dims else 0
            grown.append(max(told, (room or itemsize) * (1 if shape.sufficient else 2)))
        if max(room or 0 for room in grown) > _GROWTH_LIMIT:
            raise ERROR_OF_CODE[ResultCode.OUTPUT_INSUFFICIENT_SIZE](Reason("outputs below 2 GiB", "more"))
        return grown

    def _in_order(self, inputs: Mapping[str, Array] | Sequence[Array | None]) -> list[Array | None]:
        operands = self._input_operands
        if isinstance(inputs, Mapping):
            names = [input_name(operand, i) for i, operand in enumerate(operands)]
            for name in inputs:
                if name not in names:
                    raise InputError(Reason(f"an input of the model ({', '.join(names)})", name))
            missing = [name for name in names if name not in inputs]
            if missing:
                raise InputError(Reason(f"a value for every input ({', '.join(names)})", f"none for {', '.join(missing)}"))
            return [inputs[name] for name in names]
        if len(inputs) != len(operands):
            raise InputError(Reason(f"{len(operands)} inputs", str(len(inputs))))
        return list(inputs)

    # -- running a plan ----------------------------------------------------------------------------------------------

    def _execute(self, request: Request) -> Result:
        plan, allowed = self._plan, self._compilation.allows_fallback
        self.report = RunReport()
        if plan.simple:
            step = plan.steps[0]
            result = self._run_step(plan, 0, plan.prepared[0], request)
            if result.code in _FINAL or not allowed or plan.devices[step.device].kind != "device":
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
            if result.code not in _FINAL and allowed:
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
                if result.code not in _FINAL:
                    return result, True
            for i, shape, room in zip(step.outputs, result.shapes, rooms, strict=False):
                shapes[i] = shape
                if room.data is not None and shape.sufficient:
                    values[i] = _shaped(room.data, main.operands[i], shape.dims)
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
            inner = Request(inputs, tuple(rooms), request.deadline, request.loop_timeout)
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

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _require_preparation(self, call: str) -> None:
        if self._state is not _State.PREPARATION:
            raise BadStateError(Reason("an execution that has not started", self._state.value, call))

    @staticmethod
    def _at(items: Sequence[Any], index: int, call: str) -> Any:
        if not 0 <= index < len(items):
            raise BadDataError(Reason(f"an index below {len(items)}", str(index), call))
        return items[index]


class _Unset:
    """An input or output that was not set yet; None means omitted."""


_UNSET = _Unset()
_FINAL = (ResultCode.NO_ERROR, ResultCode.OUTPUT_INSUFFICIENT_SIZE)


def input_name(operand: Operand, index: int) -> str:
    """The name of a model input; ``input0`` … where the file gives none."""
    return operand.name or f"input{index}"


def output_name(operand: Operand, index: int) -> str:
    """The name of a model output; ``output0`` … where the file gives none."""
    return operand.name or f"output{index}"


def check_array(operand: Operand, value: Array, call: str) -> None:
    """BAD_DATA unless an array has the operand's element type and fits its dimensions."""
    want = operand_dtype(operand)
    boolean = value.dtype == np.bool_ and operand.type in (OperandCode.TENSOR_BOOL8, OperandCode.BOOL)
    if value.dtype != want and not boolean:
        rule = f"{want} for {type_name(operand.type)}"
        raise BadDataError(Reason(rule, str(value.dtype), call, operand.name))
    if not operand.is_tensor and not is_extension(operand.type):
        fits = value.size == 1
    else:
        fits = not operand.dims or (
            value.ndim == len(operand.dims) and all(want in (0, got) for want, got in zip(operand.dims, value.shape, strict=True))
        )
    if not fits:
        raise BadDataError(Reason(f"shape {list(operand.dims)}", str(list(value.shape)), call, operand.name))


def _size(operand: Operand, dims: tuple[int, ...]) -> int | None:
    """Bytes of an operand with these dimensions; None if not known."""
    if operand.dims == dims:
        return byte_size(operand)
    return int(np.prod(dims)) * operand_dtype(operand).itemsize if known(dims) else None


def _shaped(buffer: npt.NDArray[np.uint8], operand: Operand, dims: tuple[int, ...]) -> Array:
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
    if told > _GROWTH_LIMIT or told <= len(room.data):
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
    if result.code not in _FINAL:
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

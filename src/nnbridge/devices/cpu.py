"""Devices that compute with nnbridge's CPU executor: NNAPI's reference device, and a base for sample drivers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnbridge.cpu.control_flow import Limits
from nnbridge.cpu.custom import CustomKernel
from nnbridge.cpu.executor import Executor
from nnbridge.cpu.settings import Tier
from nnbridge.devices.device import (
    Capabilities,
    Device,
    Observe,
    OutputBuffer,
    OutputShape,
    Performance,
    PreparedModel,
    PrepareModelConfig,
    Request,
    Result,
    Support,
    uniform_capabilities,
)
from nnbridge.errors import MissedDeadlinePersistentError, NnapiError, Reason, Why
from nnbridge.extensions import is_tensor, operand_dtype
from nnbridge.model import Model, Operand, Operation, known
from nnbridge.operations import definition
from nnbridge.operations.call import Arg
from nnbridge.types import (
    DEFAULT_LOOP_TIMEOUT_NS,
    TYPE_FACTS,
    DeviceTypeCode,
    OperationCode,
    ResultCode,
    is_extension,
    operation_name,
)

CPU_NAME = "nnapi-reference"


class CpuPreparedModel(PreparedModel):
    """A model on the CPU executor."""

    def __init__(
        self,
        model: Model,
        numerics: str = "exact",
        kernels: Tier | None = None,
        *,
        observed: Mapping[int, int] | None = None,
        custom: Sequence[Mapping[int, CustomKernel]] | None = None,
    ) -> None:
        """``kernels``: default as :mod:`nnbridge.cpu.settings` has it.

        ``observed``: of a rewritten model, its operands → those that observers know; the others are not reported.
        ``custom``: what the device computes itself, see :class:`~nnbridge.cpu.executor.Executor`. It is not NNAPI's CPU then:
        loops have no default time-out, and every output's shape is stated.
        """
        self._custom = custom is not None
        self._observed = observed
        self._outputs = [model.main.operands[i] for i in model.main.outputs]
        self._made = [_made(model, i) for i in model.main.outputs]
        self._needed = [None if self._custom else _refusal(model, i) for i in model.main.outputs]
        operations = () if self._custom else (operation for s in model.subgraphs() for operation in s.operations)
        self._unknown = next((name for operation in operations if (name := _unknown(operation))), "")
        """An operation that cannot be computed, which is found when it should be (facts U3, B9)."""
        self._executor = None if self._unknown else Executor(model, numerics=numerics, kernels=kernels, custom=custom)

    def execute(self, request: Request) -> Result:
        """Run; errors come as codes with reasons, insufficient buffers with the true dimensions."""
        started = time.perf_counter_ns()
        if request.deadline is not None and time.monotonic_ns() > request.deadline:
            return Result(ResultCode.MISSED_DEADLINE_PERSISTENT)
        for buffer, refusal in zip(request.outputs, self._needed, strict=True):
            if buffer.data is None and refusal is not None:
                return Result(ResultCode.OP_FAILED, reason=refusal)
        if self._executor is None:
            return Result(
                ResultCode.OP_FAILED, reason=Reason("an operation that the CPU executor knows", operation=self._unknown)
            )
        loop_timeout = DEFAULT_LOOP_TIMEOUT_NS if request.loop_timeout is None and not self._custom else request.loop_timeout
        limits = Limits(request.deadline, loop_timeout, self._observer(request.observe))
        places = self._places(request)
        try:
            results = self._executor.run(request.inputs, places, limits)
        except NnapiError as error:
            return Result(error.code, reason=error.reason)
        computed = time.perf_counter_ns()
        shapes = tuple(
            _deliver(result, place, buffer) for result, place, buffer in zip(results, places, request.outputs, strict=True)
        )
        code = ResultCode.NO_ERROR
        if not all(shape.sufficient for shape in shapes):
            code = ResultCode.OUTPUT_INSUFFICIENT_SIZE
            shapes = shapes if self._custom else self._known_so_far(shapes, request)
        if not request.measure:
            return Result(code, shapes)
        return Result(code, shapes, None, computed - started, time.perf_counter_ns() - started)

    def bind(self, request: Request) -> Callable[[], None] | None:
        """The executor's bound run."""
        places = self._places(request)
        if self._executor is None or request.deadline is not None or request.measure or request.observe is not None:
            return None
        return self._executor.bind(request.inputs, places)

    def profile(self, request: Request, rounds: int) -> list[tuple[int, str, list[float]]]:
        """For a request that can be bound: operation, tier and microseconds of each step; see :meth:`Executor.profile`."""
        places = self._places(request)
        return [] if self._executor is None or self._custom else self._executor.profile(request.inputs, places, rounds)

    def _places(self, request: Request) -> list[npt.NDArray[Any] | None]:
        """The outputs' buffers as arrays of their types."""
        return [_typed(buffer, operand) for buffer, operand in zip(request.outputs, self._outputs, strict=True)]

    def _observer(self, observe: Observe | None) -> Observe | None:
        observed = self._observed
        if observe is None or observed is None:
            return observe

        def as_original(subgraph: int, operand: int, value: npt.NDArray[Any]) -> None:
            if subgraph == 0 and operand in observed:
                observe(0, observed[operand], value)

        return as_original

    def _known_so_far(self, shapes: tuple[OutputShape, ...], request: Request) -> tuple[OutputShape, ...]:
        """Output shapes where a buffer is too small: Android stops there, later outputs stay as declared (fact U11)."""
        stop = min(made for made, shape in zip(self._made, shapes, strict=True) if not shape.sufficient)
        results = zip(self._made, shapes, request.outputs, self._outputs, strict=True)
        return tuple(
            shape if made <= stop else OutputShape(buffer.dims, _fits(buffer, operand))
            for made, shape, buffer, operand in results
        )


def _unknown(operation: Operation) -> str:
    return "" if definition(operation.type) is not None else operation_name(operation.type)


def _made(model: Model, output: int) -> tuple[int, int]:
    """The time when an output is made: its operation in run order, and its place among the operation's outputs."""
    operation = model.main.producers.get(output)
    return (-1, 0) if operation is None else (operation, model.main.operations[operation].outputs.index(output))


def _fits(buffer: OutputBuffer, operand: Operand) -> bool:
    """False if an output's declared size is known and larger than its buffer."""
    if operand.is_tensor and not known(buffer.dims):
        return True
    return math.prod(buffer.dims) * operand_dtype(operand).itemsize <= (0 if buffer.data is None else len(buffer.data))


def _refusal(model: Model, output: int) -> Reason | None:
    """The reason why an output cannot be omitted: its operation requires every operand; None if only its buffer is too small
    (fact U12)."""
    maker = model.main.operations[model.main.producers[output]] if output in model.main.producers else None
    declared = None if maker is None else definition(maker.type)
    if declared is None or declared.handled != "resolver" or declared.accepts_omitted:
        return None
    return Reason("a value", "an omitted output", declared.name, model.main.operands[output].name)


def _typed(buffer: OutputBuffer, operand: Operand) -> npt.NDArray[Any] | None:
    """The output buffer as an array of its shape and type, if it can be written in place."""
    dtype = operand_dtype(operand) if is_extension(operand.type) else TYPE_FACTS[operand.type].dtype
    if buffer.data is None or dtype is None or 0 in buffer.dims:
        return None
    size = math.prod(buffer.dims) * dtype.itemsize
    if not buffer.dims and is_tensor(operand):
        return None
    if len(buffer.data) < size:
        return None
    place = buffer.data[:size].view(dtype)
    return place.reshape(buffer.dims) if place.flags.aligned else None


def _deliver(result: Arg, place: npt.NDArray[Any] | None, buffer: OutputBuffer) -> OutputShape:
    """Copy a result that was not written in place; return its shape and whether it fitted."""
    value = result.value
    assert value is not None
    if place is not None and value is place:
        return OutputShape(value.shape)
    if buffer.data is None or len(buffer.data) < value.nbytes:
        return OutputShape(value.shape, buffer.data is not None and value.nbytes == 0)
    buffer.data[: value.nbytes] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    return OutputShape(value.shape)


class CpuDevice(Device):
    """``nnapi-reference``: supports every operation of NNAPI, at 1.0 for everything (facts D2, D3, D15)."""

    name = CPU_NAME
    version = "nnbridge"
    type = DeviceTypeCode.CPU
    kind = "cpu"

    def __init__(self, kernels: Tier | None = None) -> None:
        self._kernels = kernels

    @property
    def capabilities(self) -> Capabilities:
        """1.0 and 1.0."""
        return uniform_capabilities(Performance(1.0, 1.0))

    def supported_operations(self, model: Model) -> Sequence[Support]:
        """All but extension operations and the OEM operation."""
        return [_cpu_answer(model, operation.type) for operation in model.main.operations]

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        """Bind the model."""
        check_deadline(config.deadline)
        return CpuPreparedModel(model, kernels=self._kernels)


def _cpu_answer(model: Model, code: int) -> Support:
    extension = model.extension_of(code)
    if extension is not None:
        return Reason("an operation of NNAPI itself", f"one of {extension[0]}", kind=Why.OPERATOR)
    if code == OperationCode.OEM_OPERATION:
        return Reason("an operation of NNAPI itself", "the OEM operation", "OEM_OPERATION", kind=Why.OPERATOR)
    return True


def check_deadline(deadline: int | None) -> None:
    """MISSED_DEADLINE_PERSISTENT if the deadline has passed before the work begins."""
    if deadline is not None and time.monotonic_ns() > deadline:
        raise MissedDeadlinePersistentError("the deadline had passed before preparation")

"""Prepared models whose operations are Python functions of NumPy arrays: the host's, and those of drivers with own kernels."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnbridge.devices.cpu import CpuPreparedModel, check_deadline
from nnbridge.devices.device import (
    Capabilities,
    Device,
    OutputBuffer,
    OutputShape,
    Performance,
    PreparedModel,
    Request,
    Result,
    Support,
    uniform_capabilities,
)
from nnbridge.errors import BadDataError, MissedDeadlineTransientError, NnapiError, OpFailedError, Reason
from nnbridge.extensions import HostTensor, operand_dtype
from nnbridge.model import Model, Operation
from nnbridge.types import RUNTIME_FEATURE_LEVEL, DeviceTypeCode, OperandCode, PreferenceCode, PriorityCode, ResultCode

Array = npt.NDArray[Any]
Tensor: TypeAlias = HostTensor
"""An operand as a function sees it."""
Function: TypeAlias = "Callable[[Sequence[Tensor], Sequence[Tensor]], Sequence[Array]]"
"""``function(inputs, outputs)`` gives the output arrays; ``outputs`` carry the declared types, dimensions and parameters."""


class FunctionPreparedModel(PreparedModel):
    """Runs a model's operations in order, each by its function.

    A function refuses its operands with an :class:`~nnbridge.errors.NnapiError` or by whatever else it raises; an output
    that does not fit its declaration is refused for it. Either ends the execution with a code and a reason.
    """

    def __init__(self, model: Model, functions: Sequence[Function], names: Sequence[str] | None = None) -> None:
        """One function for each operation of the main subgraph; ``names`` are those that errors give."""
        self._model = model
        operations = model.main.operations
        named = [model.operation_name(o) for o in operations] if names is None else names
        labels = [f"{name} ({o.name})" if o.name else name for name, o in zip(named, operations, strict=True)]
        self._dtypes = [operand_dtype(operand) for operand in model.main.operands]
        self._steps = list(zip(operations, functions, labels, strict=True))

    def execute(self, request: Request) -> Result:
        """Run every operation's function."""
        started = time.perf_counter_ns()
        if request.deadline is not None and time.monotonic_ns() > request.deadline:
            return Result(ResultCode.MISSED_DEADLINE_PERSISTENT)
        main = self._model.main
        values: dict[int, Array | None] = dict(zip(main.inputs, request.inputs, strict=True))
        try:
            for operation, function, label in self._steps:
                if request.deadline is not None and time.monotonic_ns() > request.deadline:
                    raise MissedDeadlineTransientError("the execution's deadline has passed")
                self._run(operation, function, label, values)
        except NnapiError as error:
            return Result(error.code, reason=error.reason)
        shapes = tuple(_deliver(values[i], buffer) for i, buffer in zip(main.outputs, request.outputs, strict=True))
        took = time.perf_counter_ns() - started if request.measure else None
        sufficient = all(shape.sufficient for shape in shapes)
        return Result(ResultCode.NO_ERROR if sufficient else ResultCode.OUTPUT_INSUFFICIENT_SIZE, shapes, None, took, took)

    def _run(self, operation: Operation, function: Function, label: str, values: dict[int, Array | None]) -> None:
        inputs = [self._tensor(i, values) for i in operation.inputs]
        outputs = [self._tensor(i, {}) for i in operation.outputs]
        try:
            with np.errstate(all="ignore"):
                results = function(inputs, outputs)
                typed = [_typed(np.asarray(r), declared, label) for r, declared in zip(results, outputs, strict=True)]
        except NnapiError:
            raise
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
            raise OpFailedError(Reason("a function that computes the operation", found, label)) from error
        for i, declared, result in zip(operation.outputs, outputs, typed, strict=True):
            values[i] = _fitting(result, declared, label)

    def _tensor(self, i: int, values: dict[int, Array | None]) -> Tensor:
        operand, dtype = self._model.main.operands[i], self._dtypes[i]
        data = values.get(i)
        if data is None and operand.is_constant:
            data = np.frombuffer(self._model.bytes_of(operand), dtype)
            # An OEM scalar has as many bytes as its maker likes.
            data = data if operand.type == OperandCode.OEM_SCALAR else data.reshape(operand.dims)
        dims = operand.dims if data is None else data.shape
        return Tensor(data, dims, dtype, operand.scale, operand.zero_point, operand.extension_data)


def _typed(array: Array, declared: Tensor, label: str) -> Array:
    """A result in its operand's type; an imaginary part is never dropped."""
    if array.dtype.kind == "c" and declared.dtype.kind != "c":
        raise OpFailedError(Reason(f"a result of {declared.dtype}", str(array.dtype), label))
    return array.astype(declared.dtype, copy=False)


def _fitting(array: Array, declared: Tensor, label: str) -> Array:
    fits = len(declared.dims) in (0, array.ndim) and all(
        want in (0, got) for want, got in zip(declared.dims, array.shape, strict=False)
    )
    if not fits:
        raise OpFailedError(Reason(f"an output of {list(declared.dims)} as declared", str(list(array.shape)), label))
    return array


def _deliver(value: Array | None, buffer: OutputBuffer) -> OutputShape:
    """Copy a result into its buffer; tell its shape and whether it fitted."""
    assert value is not None
    fits = buffer.data is not None and len(buffer.data) >= value.nbytes
    if fits and buffer.data is not None:
        buffer.data[: value.nbytes] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    return OutputShape(value.shape, fits)


# -- a driver from a function ------------------------------------------------------------------------------------------

Claim: TypeAlias = "Callable[[Model, Operation], Support]"
"""Whether a driver takes an operation of a model: True, False, or better the reason of the no."""


@dataclass(frozen=True)
class FunctionDriver(Device):
    """A driver that is one function; what it takes is computed by NNAPI's CPU kernels."""

    name: str
    claim: Claim
    figures: Capabilities
    feature_level: int = RUNTIME_FEATURE_LEVEL
    type: DeviceTypeCode = DeviceTypeCode.OTHER
    version: str = "1"
    numerics: str = "exact"

    @property
    def capabilities(self) -> Capabilities:
        """The same figures for every type."""
        return self.figures

    def supported_operations(self, model: Model) -> Sequence[Support]:
        """The function's answer for each operation."""
        return [self.claim(model, operation) for operation in model.main.operations]

    def prepare_model(
        self,
        model: Model,
        preference: int = PreferenceCode.FAST_SINGLE_ANSWER,
        priority: int = PriorityCode.MEDIUM,
        deadline: int | None = None,
    ) -> PreparedModel:
        """BAD_DATA for a model with an operation that the function does not take."""
        check_deadline(deadline)
        for operation, answer in zip(model.main.operations, self.supported_operations(model), strict=True):
            if isinstance(answer, Reason) or not answer:
                name = model.operation_name(operation)
                refused = answer if isinstance(answer, Reason) else Reason("an operation that the device takes", name)
                raise BadDataError(refused)
        return CpuPreparedModel(model, self.numerics)


def driver(
    name: str,
    *,
    exec_time: float = 0.5,
    power_usage: float = 0.5,
    feature_level: int = RUNTIME_FEATURE_LEVEL,
    type: DeviceTypeCode = DeviceTypeCode.OTHER,
    numerics: str = "exact",
) -> Callable[[Claim], FunctionDriver]:
    """Make a function a driver: it tells for each operation whether the driver takes it.

    Figures are relative to the CPU's 1.0. ``numerics`` is how the driver computes: ``exact`` or ``float16``.
    """
    figures = uniform_capabilities(Performance(exec_time, power_usage))

    def made(claim: Claim) -> FunctionDriver:
        return FunctionDriver(name, claim, figures, feature_level, type, numerics=numerics)

    return made

"""The host: runs the operations of host extensions, which no NNAPI device can.

It stands for what a TFLite or ONNX interpreter does on a phone with the operators that its delegate leaves behind. It
goes through the vendor-extension machinery like any other device and takes nothing else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnbridge.devices.device import (
    Capabilities,
    Device,
    OutputShape,
    Performance,
    PreparedModel,
    Request,
    Result,
    Support,
)
from nnbridge.errors import BadDataError, NnapiError, OpFailedError, Reason
from nnbridge.extensions import OPTIONS_TYPE, TYPES, Extension, HostOperation, HostTensor, operand_dtype
from nnbridge.model import Model, Operand, Operation
from nnbridge.types import (
    DeviceTypeCode,
    Lifetime,
    PreferenceCode,
    PriorityCode,
    ResultCode,
    is_extension,
    split_extension_code,
)

HOST_NAME = "host"


def host_operation(model: Model, operation: Operation) -> HostOperation | Reason:
    """The host's implementation of an extension operation, or why there is none."""
    extension = model.extension_of(operation.type)
    if extension is None:
        return Reason("an operation of a host extension", "one of NNAPI")
    name, number = extension
    hosted = TYPES.host_extensions().get(name)
    if hosted is None:
        return Reason("an installed host extension", name, f"{name}#{number}")
    found = hosted.operations.get(number)
    return found or Reason(f"an operation of {name}", str(number), f"{name}#{number}")


class HostPreparedModel(PreparedModel):
    """Host operations in run order."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._dtypes = [operand_dtype(operand) for operand in model.main.operands]
        self._work = []
        for operation in model.main.operations:
            found = host_operation(model, operation)
            if isinstance(found, Reason):
                raise BadDataError(found)
            self._work.append((operation, found, _options(model, operation)))

    def execute(self, request: Request) -> Result:
        """Run every operation's NumPy kernel."""
        started = time.perf_counter_ns()
        model = self._model
        values: dict[int, npt.NDArray[Any] | None] = dict(zip(model.main.inputs, request.inputs, strict=True))
        try:
            for operation, hosted, options in self._work:
                self._run(operation, hosted, options, values)
        except NnapiError as error:
            return Result(error.code, reason=error.reason)
        shapes = []
        for i, buffer in zip(model.main.outputs, request.outputs, strict=True):
            value = values[i]
            assert value is not None
            fits = buffer.data is not None and len(buffer.data) >= value.nbytes
            if fits and buffer.data is not None:
                buffer.data[: value.nbytes] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            shapes.append(OutputShape(value.shape, fits))
        sufficient = all(shape.sufficient for shape in shapes)
        took = time.perf_counter_ns() - started if request.measure else None
        code = ResultCode.NO_ERROR if sufficient else ResultCode.OUTPUT_INSUFFICIENT_SIZE
        return Result(code, tuple(shapes), None, took, took)

    def _run(
        self,
        operation: Operation,
        hosted: HostOperation,
        options: dict[str, Any],
        values: dict[int, npt.NDArray[Any] | None],
    ) -> None:
        label = f"{hosted.name} ({operation.name})" if operation.name else hosted.name
        if hosted.kernel is None:
            raise OpFailedError(Reason(hosted.reason or "an operation that the host can run", "", label))
        inputs = [self._tensor(i, values) for i in operation.inputs if not self._is_options(i)]
        outputs = [self._tensor(i, {}) for i in operation.outputs]
        try:
            with np.errstate(all="ignore"):
                results = hosted.kernel(inputs, outputs, options)
        except NnapiError:
            raise
        except (ValueError, IndexError, TypeError, ArithmeticError, KeyError) as error:
            raise OpFailedError(Reason("operands that fit the operation", str(error), label)) from error
        for i, declared, result in zip(operation.outputs, outputs, results, strict=True):
            array = np.asarray(result).astype(declared.dtype, copy=False)
            fits = len(declared.dims) in (0, array.ndim) and all(
                want in (0, got) for want, got in zip(declared.dims, array.shape, strict=False)
            )
            if not fits:
                raise OpFailedError(Reason(f"an output of {list(declared.dims)} as declared", str(list(array.shape)), label))
            values[i] = array

    def _tensor(self, i: int, values: dict[int, npt.NDArray[Any] | None]) -> HostTensor:
        operand, dtype = self._model.main.operands[i], self._dtypes[i]
        data = values.get(i)
        if data is None and operand.is_constant:
            data = np.frombuffer(self._model.bytes_of(operand), dtype).reshape(operand.dims)
        dims = operand.dims if data is None else data.shape
        return HostTensor(data, dims, dtype, operand.scale, operand.zero_point)

    def _is_options(self, i: int) -> bool:
        return is_options(self._model.main.operands[i])


class HostDevice(Device):
    """Takes the operations of installed host extensions and nothing else."""

    name = HOST_NAME
    version = "nnbridge"
    type = DeviceTypeCode.OTHER
    kind = "host"

    @property
    def capabilities(self) -> Capabilities:
        """1.0 wherever it is asked; nobody competes with it."""
        return Capabilities({}, Performance(1.0, 1.0), Performance(1.0, 1.0))

    def supported_operations(self, model: Model) -> Sequence[Support]:
        """True for operations of host extensions, also for those that will be refused when they run."""
        found = [host_operation(model, operation) for operation in model.main.operations]
        return [answer if isinstance(answer, Reason) else True for answer in found]

    def supported_extensions(self) -> Sequence[Extension]:
        """Every installed host extension."""
        return tuple(TYPES.host_extensions().values())

    def prepare_model(
        self,
        model: Model,
        preference: int = PreferenceCode.FAST_SINGLE_ANSWER,
        priority: int = PriorityCode.MEDIUM,
        deadline: int | None = None,
    ) -> PreparedModel:
        """Look up every operation."""
        return HostPreparedModel(model)


def is_options(operand: Operand) -> bool:
    """True for the operand that holds a host operation's options."""
    return is_extension(operand.type) and split_extension_code(operand.type)[1] == OPTIONS_TYPE.number


def _options(model: Model, operation: Operation) -> dict[str, Any]:
    for i in operation.inputs:
        operand = model.main.operands[i]
        if is_options(operand):
            options: dict[str, Any] = json.loads(bytes(model.bytes_of(operand)))
            return options
    return {}


def is_omitted(operand: Operand) -> bool:
    """True for an optional operand without a value."""
    return operand.lifetime is Lifetime.NO_VALUE

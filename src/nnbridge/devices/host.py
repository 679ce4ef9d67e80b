"""The host: runs the operations of host extensions, which no NNAPI device can.

It stands for what a TFLite or ONNX interpreter does on a phone with the operators that its delegate leaves behind. It
goes through the vendor-extension machinery like any other device and takes nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nnbridge.devices.device import (
    Capabilities,
    Device,
    Performance,
    PreparedModel,
    Support,
)
from nnbridge.devices.functions import Array, Function, FunctionPreparedModel
from nnbridge.errors import BadDataError, OpFailedError, Reason
from nnbridge.extensions import OPTIONS_TYPE, TYPES, Extension, HostOperation, HostTensor
from nnbridge.model import Model, Operand, Operation
from nnbridge.types import (
    DeviceTypeCode,
    Lifetime,
    PreferenceCode,
    PriorityCode,
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


class HostPreparedModel(FunctionPreparedModel):
    """Host operations in run order."""

    def __init__(self, model: Model) -> None:
        found = [_hosted(model, operation) for operation in model.main.operations]
        functions = [_function(model, o, hosted) for o, hosted in zip(model.main.operations, found, strict=True)]
        super().__init__(model, functions, [hosted.name for hosted in found])


def _hosted(model: Model, operation: Operation) -> HostOperation:
    found = host_operation(model, operation)
    if isinstance(found, Reason):
        raise BadDataError(found)
    return found


def _function(model: Model, operation: Operation, hosted: HostOperation) -> Function:
    """The kernel of a host operation with its options bound; an operation without a kernel is refused when it runs."""
    kernel, options = hosted.kernel, _options(model, operation)
    plain = [k for k, i in enumerate(operation.inputs) if not is_options(model.main.operands[i])]

    def refuse(inputs: Sequence[HostTensor], outputs: Sequence[HostTensor]) -> Sequence[Array]:
        label = f"{hosted.name} ({operation.name})" if operation.name else hosted.name
        raise OpFailedError(Reason(hosted.reason or "an operation that the host can run", "", label))

    def run(inputs: Sequence[HostTensor], outputs: Sequence[HostTensor]) -> Sequence[Array]:
        assert kernel is not None
        return kernel([inputs[k] for k in plain], outputs, options)

    return refuse if kernel is None else run


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

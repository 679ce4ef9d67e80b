"""The host: runs the operations of host extensions, which no NNAPI device can.

It stands for what a TFLite or ONNX interpreter does on a phone with the operators that its delegate leaves behind. It
goes through the vendor-extension machinery like any other device and takes nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nnbridge.devices.device import (
    Capabilities,
    Device,
    Performance,
    PreparedModel,
    Request,
    Result,
    Support,
)
from nnbridge.devices.functions import Array, Function, FunctionPreparedModel
from nnbridge.devices.host_bodies import HostBodies, host_operation, is_options, options_of
from nnbridge.errors import BadDataError, OpFailedError, Reason
from nnbridge.extensions import TYPES, Extension, HostOperation, HostTensor
from nnbridge.model import Model, Operation
from nnbridge.types import DeviceTypeCode, PreferenceCode, PriorityCode

HOST_NAME = "host"


class HostPreparedModel(FunctionPreparedModel):
    """Host operations in run order."""

    def __init__(self, model: Model) -> None:
        found = [_hosted(model, operation) for operation in model.main.operations]
        self._bodies = HostBodies(model)
        functions = [_function(model, o, hosted, self._bodies) for o, hosted in zip(model.main.operations, found, strict=True)]
        super().__init__(model, functions, [hosted.name for hosted in found])

    def execute(self, request: Request) -> Result:
        """Run every operation; loops look at the time."""
        self._bodies.limit(request.deadline, request.loop_timeout)
        return super().execute(request)


def _hosted(model: Model, operation: Operation) -> HostOperation:
    found = host_operation(model, operation)
    if isinstance(found, Reason):
        raise BadDataError(found)
    return found


def _function(model: Model, operation: Operation, hosted: HostOperation, bodies: HostBodies) -> Function:
    """The kernel of a host operation with its options bound; an operation without a kernel is refused when it runs."""
    kernel, options = hosted.kernel, options_of(model, model.main, operation)
    plain = [k for k, i in enumerate(operation.inputs) if not is_options(model.main.operands[i])]

    def refuse(inputs: Sequence[HostTensor], outputs: Sequence[HostTensor]) -> Sequence[Array]:
        label = f"{hosted.name} ({operation.name})" if operation.name else hosted.name
        raise OpFailedError(Reason(hosted.reason or "an operation that the host can run", "", label))

    def run(inputs: Sequence[HostTensor], outputs: Sequence[HostTensor]) -> Sequence[Array]:
        assert kernel is not None
        return kernel([inputs[k] for k in plain], outputs, options)

    def control(inputs: Sequence[HostTensor], outputs: Sequence[HostTensor]) -> Sequence[Array]:
        flow = replace(operation, inputs=tuple(operation.inputs[k] for k in plain))
        return bodies.control(model.main, flow, hosted.control, [inputs[k].data for k in plain])

    if hosted.control:
        return control
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

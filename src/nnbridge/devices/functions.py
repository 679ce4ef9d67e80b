"""Drivers of Python functions: one that says what it supports, and one for each operation of a prepared model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from nnbridge.cpu.custom import CustomKernel, Function, labelled
from nnbridge.devices.cpu import CpuPreparedModel, check_deadline
from nnbridge.devices.device import (
    Capabilities,
    Device,
    Performance,
    PreparedModel,
    PrepareModelConfig,
    Support,
    uniform_capabilities,
)
from nnbridge.errors import BadDataError, Reason, Why
from nnbridge.extensions import Arg
from nnbridge.model import Array, Model, Operation
from nnbridge.records import dataclass
from nnbridge.types import RUNTIME_FEATURE_LEVEL, DeviceTypeCode

__all__ = ["Array", "Function", "FunctionDriver", "FunctionPreparedModel", "Tensor", "driver"]

Tensor: TypeAlias = Arg
"""An operand as a function sees it."""


class FunctionPreparedModel(CpuPreparedModel):
    """Runs a model's operations in order, each by its function; what goes wrong ends the execution with a code and a reason."""

    def __init__(self, model: Model, functions: Sequence[Function], names: Sequence[str] | None = None) -> None:
        """One function for each operation of the main subgraph; ``names`` are those that errors state."""
        operations = model.main.operations
        names = [model.operation_name(o) for o in operations] if names is None else names
        kernels = [
            CustomKernel(labelled(name, operation), operation.inputs, function)
            for operation, function, name in zip(operations, functions, names, strict=True)
        ]
        super().__init__(model, custom=[dict(enumerate(kernels)), *({} for _ in model.referenced)])


# -- a driver from a function ------------------------------------------------------------------------------------------

Claim: TypeAlias = "Callable[[Model, Operation], Support]"
"""A driver's reply for an operation of a model: True, False, or better the reason for a refusal."""


@dataclass(frozen=True)
class FunctionDriver(Device):
    """A driver that is one function; what it supports is computed by NNAPI's CPU kernels."""

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

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        """BAD_DATA for a model with an operation that the function does not support."""
        check_deadline(config.deadline)
        for operation, answer in zip(model.main.operations, self.supported_operations(model), strict=True):
            if isinstance(answer, Reason) or not answer:
                name = model.operation_name(operation)
                refused = (
                    answer
                    if isinstance(answer, Reason)
                    else Reason("an operation that the device supports", name, kind=Why.UNSTATED)
                )
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
    """Make a function a driver: it returns for each operation whether the driver supports it.

    Figures are relative to the CPU's 1.0. ``numerics`` is how the driver computes: ``exact`` or ``float16``.
    """
    figures = uniform_capabilities(Performance(exec_time, power_usage))

    def create(claim: Claim) -> FunctionDriver:
        return FunctionDriver(name, claim, figures, feature_level, type, numerics=numerics)

    return create

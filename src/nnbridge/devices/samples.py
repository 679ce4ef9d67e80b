"""The sample drivers of AOSP (``driver/sample``), with their claims and figures.

All compute with the CPU executor; they differ in what they claim. Each rule looks at what the C++ driver looks at and no
further: ``float_*`` support any operation whose first input is TENSOR_FLOAT32, ``minimal`` three operations, ``quant`` 8-bit
asymmetric data (of SELECT the second input decides), ``all`` and ``full`` everything but extensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

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
from nnbridge.extensions import TYPES
from nnbridge.model import Model, Operation
from nnbridge.records import dataclass
from nnbridge.types import QUANT8, DeviceTypeCode, OperandCode, OperationCode

Claim: TypeAlias = "Callable[[Model, Operation], Reason | None]"
"""Why a driver does not support an operation; None if it does."""


def _no_extension(model: Model, operation: Operation) -> Reason | None:
    extension = model.extension_of(operation.type)
    return None if extension is None else Reason("an operation of NNAPI itself", f"one of {extension[0]}", kind=Why.OPERATOR)


def _input_of(model: Model, operation: Operation, index: int, codes: Sequence[OperandCode]) -> Reason | None:
    """The rule on the type of one input, which extension operations and those without inputs never meet."""
    name = model.operation_name(operation)
    refused = _no_extension(model, operation)
    if refused is not None:
        return refused
    if len(operation.inputs) <= index:
        return Reason(f"at least {index + 1} inputs", str(len(operation.inputs)), name, kind=Why.VARIANT)
    code = model.main.operands[operation.inputs[index]].type
    if code in codes:
        return None
    rule = " or ".join(sorted(t.name for t in codes))
    return Reason(rule, TYPES.readable(code), name, f"input {index}", Why.INPUT_TYPE)


_FLOAT = (OperandCode.TENSOR_FLOAT32,)
_MINIMAL = (OperationCode.ADD, OperationCode.CONCATENATION, OperationCode.CONV_2D)


def _float_claim(model: Model, operation: Operation) -> Reason | None:
    return _input_of(model, operation, 0, _FLOAT)


def _minimal_claim(model: Model, operation: Operation) -> Reason | None:
    name = model.operation_name(operation)
    if operation.type not in _MINIMAL:
        return Reason(" or ".join(code.name for code in _MINIMAL), name, name, kind=Why.OPERATOR)
    return _input_of(model, operation, 0, _FLOAT)


def _quant_claim(model: Model, operation: Operation) -> Reason | None:
    index = 1 if operation.type == OperationCode.SELECT else 0
    return _input_of(model, operation, index, QUANT8)


def _full_claim(model: Model, operation: Operation) -> Reason | None:
    if operation.type == OperationCode.OEM_OPERATION:
        return Reason("no OEM operation", "OEM_OPERATION", "OEM_OPERATION", kind=Why.OPERATOR)
    return _no_extension(model, operation)


@dataclass(frozen=True)
class SampleDriver(Device):
    """One of AOSP's sample drivers."""

    name: str
    claim: Claim
    figures: Capabilities
    limited: bool = True
    """Refuses to prepare a model of which it does not support every operation."""
    numerics: str = "exact"
    version: str = "JUST_AN_EXAMPLE"
    type: DeviceTypeCode = DeviceTypeCode.CPU

    @property
    def capabilities(self) -> Capabilities:
        """The figures of the C++ driver."""
        return self.figures

    def supported_operations(self, model: Model) -> Sequence[Support]:
        """The driver's claim for each operation."""
        return [self.claim(model, operation) or True for operation in model.main.operations]

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        """BAD_DATA for a limited driver if an operation is not supported."""
        check_deadline(config.deadline)
        if self.limited:
            refused = next((r for o in model.main.operations if (r := self.claim(model, o))), None)
            if refused is not None:
                raise BadDataError(refused)
        return CpuPreparedModel(model, self.numerics)


def _figures(
    other: tuple[float, float], float32: tuple[float, float] | None = None, relaxed: tuple[float, float] | None = None
) -> Capabilities:
    return uniform_capabilities(
        Performance(*other),
        None if float32 is None else Performance(*float32),
        None if relaxed is None else Performance(*relaxed),
    )


_EVEN = (1.0, 1.0)

SAMPLE_DRIVERS: tuple[SampleDriver, ...] = (
    SampleDriver("nnapi-sample_float_fast", _float_claim, _figures(_EVEN, (0.8, 1.2), (0.7, 1.1))),
    SampleDriver("nnapi-sample_float_slow", _float_claim, _figures(_EVEN, (1.3, 0.7), (1.2, 0.6))),
    SampleDriver("nnapi-sample_minimal", _minimal_claim, _figures(_EVEN, (0.4, 0.5), (0.4, 0.5))),
    SampleDriver("nnapi-sample_quant", _quant_claim, _figures((50.0, 1.0))),
    SampleDriver("nnapi-sample_all", _no_extension, _figures((1.1, 1.1)), limited=False),
    # The canonical full device of driver/sample/CanonicalDevice.cpp.
    SampleDriver("nnapi-sample_full", _full_claim, _figures(_EVEN), limited=False),
)

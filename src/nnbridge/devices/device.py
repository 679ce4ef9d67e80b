"""What a device is: capabilities, supported operations, preparation, execution.

The protocol is that of NNAPI's drivers (``IDevice``, ``IPreparedModel``, HAL 1.3 and AIDL), in Python's terms. A driver
answers with values; what it may raise is an :class:`~nnbridge.errors.NnapiError`. Anything else it does wrong becomes
the NNAPI error that Android gives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnbridge.errors import Reason
from nnbridge.extensions import Extension
from nnbridge.model import Model
from nnbridge.types import (
    RUNTIME_FEATURE_LEVEL,
    DeviceTypeCode,
    FeatureLevel,
    OperandCode,
    PreferenceCode,
    PriorityCode,
    ResultCode,
)

Support: TypeAlias = "bool | Reason"
"""A device's answer for one operation: True, or False, or better the reason of the no."""

UNLISTED = float(np.finfo(np.float32).max)
"""Figure of an operand type that a device does not list (FLT_MAX)."""


@dataclass(frozen=True, slots=True)
class Performance:
    """Figures relative to the CPU's 1.0, lower is better (``PerformanceInfo``)."""

    exec_time: float = UNLISTED
    power_usage: float = UNLISTED

    def figure(self, preference: int) -> float:
        """The figure that a preference looks at: power for LOW_POWER, time otherwise."""
        return self.power_usage if preference == PreferenceCode.LOW_POWER else self.exec_time


@dataclass(frozen=True)
class Capabilities:
    """What a device says of its speed and power (``Capabilities``)."""

    operands: Mapping[int, Performance] = field(default_factory=dict)
    """Figures by operand type; a type that is missing performs at FLT_MAX."""
    relaxed_scalar: Performance = Performance()
    """FLOAT32 in relaxed models."""
    relaxed_tensor: Performance = Performance()
    """TENSOR_FLOAT32 in relaxed models."""
    if_performance: Performance = Performance()
    while_performance: Performance = Performance()

    def of(self, code: int, relaxed: bool) -> Performance:
        """Figures for an operation whose first input has this type."""
        if relaxed and code == OperandCode.FLOAT32:
            return self.relaxed_scalar
        if relaxed and code == OperandCode.TENSOR_FLOAT32:
            return self.relaxed_tensor
        return self.operands.get(code, Performance())


_RATED = [code for code in OperandCode if code < OperandCode.MODEL]


def uniform_capabilities(
    other: Performance, float32: Performance | None = None, relaxed: Performance | None = None
) -> Capabilities:
    """Figures as the sample drivers give them: one for most types, one for float32, one for relaxed float32."""
    float32 = float32 or other
    relaxed = relaxed or float32
    floats = (OperandCode.FLOAT32, OperandCode.TENSOR_FLOAT32)
    return Capabilities({code: float32 if code in floats else other for code in _RATED}, relaxed, relaxed, other, other)


@dataclass(frozen=True, slots=True)
class OutputBuffer:
    """Where an output goes: writable bytes (flat uint8; None for an omitted output) and what is known of its shape."""

    data: npt.NDArray[np.uint8] | None
    dims: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One execution: inputs in model-input order with their true shapes (None: omitted), and where outputs go."""

    inputs: tuple[npt.NDArray[Any] | None, ...]
    outputs: tuple[OutputBuffer, ...]
    deadline: int | None = None
    """``time.monotonic_ns`` after which the execution need not go on."""
    loop_timeout: int | None = None
    """Nanoseconds for each WHILE loop; None for NNAPI's default of 2 s."""
    measure: bool = False


@dataclass(frozen=True, slots=True)
class OutputShape:
    """What an execution says of an output: its dimensions, and whether the buffer was large enough."""

    dims: tuple[int, ...]
    sufficient: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """How an execution ended. Times are nanoseconds, None where not measured."""

    code: ResultCode = ResultCode.NO_ERROR
    shapes: tuple[OutputShape, ...] = ()
    reason: Reason | None = None
    on_device: int | None = None
    in_driver: int | None = None


class PreparedModel(ABC):
    """A model that a device is ready to run (``IPreparedModel``). May be executed from several threads."""

    @abstractmethod
    def execute(self, request: Request) -> Result:
        """Run once, synchronously."""


class Device(ABC):
    """An NNAPI device (``IDevice``)."""

    name: str
    version: str = "1"
    feature_level: int = RUNTIME_FEATURE_LEVEL
    type: DeviceTypeCode = DeviceTypeCode.OTHER
    kind: str = "device"
    """``device`` for drivers, ``cpu`` for NNAPI's own CPU, ``host`` for what NNAPI cannot express."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Figures for the partitioner; asked once."""

    @abstractmethod
    def supported_operations(self, model: Model) -> Sequence[Support]:
        """``getSupportedOperations``: an answer for each operation of the main subgraph, in order."""

    def supported_extensions(self) -> Sequence[Extension]:
        """``getSupportedExtensions``."""
        return ()

    @abstractmethod
    def prepare_model(
        self,
        model: Model,
        preference: int = PreferenceCode.FAST_SINGLE_ANSWER,
        priority: int = PriorityCode.MEDIUM,
        deadline: int | None = None,
    ) -> PreparedModel:
        """``prepareModel``: raise an NnapiError if it cannot be done."""

    @property
    def level(self) -> FeatureLevel:
        """The smaller of the device's and the runtime's feature level."""
        return FeatureLevel(min(self.feature_level, RUNTIME_FEATURE_LEVEL))

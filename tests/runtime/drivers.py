"""Drivers for tests: well-behaved ones with chosen figures, and some that misbehave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nnbridge.devices.cpu import CpuPreparedModel
from nnbridge.devices.device import (
    Capabilities,
    Device,
    Performance,
    PreparedModel,
    Request,
    Result,
    Support,
    uniform_capabilities,
)
from nnbridge.errors import OpFailedError, Reason
from nnbridge.model import Model
from nnbridge.types import RUNTIME_FEATURE_LEVEL, OperationCode, PreferenceCode, PriorityCode, ResultCode


@dataclass
class Driver(Device):
    """Takes some operations at some figure; remembers what it was asked."""

    name: str
    takes: frozenset[OperationCode] | None = None
    """None: all."""
    exec_time: float = 0.5
    power_usage: float = 0.5
    feature_level: int = RUNTIME_FEATURE_LEVEL
    asked: list[Model] = field(default_factory=list)
    prepared: list[Model] = field(default_factory=list)

    @property
    def capabilities(self) -> Capabilities:
        return uniform_capabilities(Performance(self.exec_time, self.power_usage))

    def supported_operations(self, model: Model) -> Sequence[Support]:
        self.asked.append(model)
        return [self.takes is None or o.type in self.takes for o in model.main.operations]

    def prepare_model(
        self,
        model: Model,
        preference: int = PreferenceCode.FAST_SINGLE_ANSWER,
        priority: int = PriorityCode.MEDIUM,
        deadline: int | None = None,
    ) -> PreparedModel:
        self.prepared.append(model)
        return CpuPreparedModel(model)


class CannotPrepare(Driver):
    """Answers GENERAL_FAILURE, which is OP_FAILED for clients."""

    def prepare_model(self, *args: object, **options: object) -> PreparedModel:
        raise OpFailedError(Reason("a model that fits", "one that does not", self.name))


class Crashes(Driver):
    """Raises what no driver should."""

    def prepare_model(self, *args: object, **options: object) -> PreparedModel:
        raise ZeroDivisionError("a bug of the driver")


class WrongCount(Driver):
    """Answers for one operation too many."""

    def supported_operations(self, model: Model) -> Sequence[Support]:
        return [True] * (len(model.main.operations) + 1)


class _Fails(PreparedModel):
    def __init__(self, result: Result | Exception) -> None:
        self._result = result

    def execute(self, request: Request) -> Result:
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


@dataclass
class FailsToExecute(Driver):
    """Prepares, then ends every execution with this."""

    ends: Result | Exception = Result(ResultCode.OP_FAILED)  # noqa: RUF009 - a frozen value

    def prepare_model(self, *args: object, **options: object) -> PreparedModel:
        return _Fails(self.ends)

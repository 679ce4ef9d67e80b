"""Drivers with faults in digits_int8's and digits_float32's operations: wrong, dead, hung, slow."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from nnbridge.devices.functions import Function, Tensor
from nnbridge.model import Array, Model
from nnbridge.types import OperationCode
from tests.compare.faults import FaultyDriver

THIRD = "2: CONV_2D BiasAdd_2;Conv2D_1;Const_51"
"""The third operation of digits_int8."""
STEP = FaultyDriver(THIRD, "filter")


@dataclass(frozen=True)
class Misbehaving(FaultyDriver):
    """A driver that computes like the CPU, but for what it does before an operation of some types."""

    target: str = ""
    fault: str = ""
    name: str = "misbehaving"
    types: Collection[OperationCode] = (OperationCode.AVERAGE_POOL_2D,)
    how: str = "die"
    refused: Collection[OperationCode] = ()

    def supported_operations(self, model: Model) -> Sequence[bool]:
        return [operation.type not in self.refused for operation in model.main.operations]

    def _function(self, model: Model, index: int) -> Function:
        right, operation = super()._function(model, index), model.main.operations[index]

        def compute(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Sequence[Array]:
            if operation.type in self.types:
                self._misbehave()
            return right(inputs, outputs)

        return compute

    def _misbehave(self) -> None:
        if self.how == "die":
            os._exit(3)
        if self.how == "raise":
            raise ValueError("a fault of the driver's")
        time.sleep(0.05 if self.how == "slow" else 1000)


DIES, HANGS = Misbehaving(how="die"), Misbehaving(how="hang")

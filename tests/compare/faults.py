"""A driver with a fault in one operation, as the ones that people look for: rounding, float16, zero point, filter, padding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nnbridge.cpu.executor import Executor
from nnbridge.devices.device import Capabilities, Device, Performance, PreparedModel, PrepareModelConfig, uniform_capabilities
from nnbridge.devices.functions import Function, FunctionPreparedModel, Tensor
from nnbridge.model import Array, Model, Operation
from nnbridge.runtime.partitioner import extract
from nnbridge.types import WRITTEN, Lifetime, OperationCode, is_extension

FILTERED = (OperationCode.CONV_2D, OperationCode.DEPTHWISE_CONV_2D, OperationCode.FULLY_CONNECTED)


POOLED = (OperationCode.AVERAGE_POOL_2D, OperationCode.MAX_POOL_2D)
FAULTS = ("rounding", "float16", "zero point", "filter", "pad")
"""Integers a step off, floats through float16, a zero point off by one, a filter transposed, padding off by one."""


def moved_down(value: Array, fill: int) -> Array:
    """Images a row further down, as with one row of padding more above them and one less below."""
    moved = np.full_like(value, fill)
    moved[:, 1:] = value[:, :-1]
    return moved


def rounded(value: Array) -> Array:
    """Floats through float16; every tenth integer a step too high."""
    if value.dtype.kind == "f":
        return value.astype(np.float16).astype(value.dtype)
    wrong = value.copy()
    flat = wrong.reshape(-1)
    flat[::10] = np.where(flat[::10] < np.iinfo(value.dtype).max, flat[::10] + 1, flat[::10] - 1)
    return wrong


def applies(fault: str, model: Model, operation: Operation) -> bool:
    """True if an operation can have a fault."""
    first = model.main.operands[operation.inputs[0]]
    if fault == "filter":
        return operation.type in FILTERED and model.main.operands[operation.inputs[1]].is_constant
    real = np.dtype(_dtype(model, operation)).kind == "f"
    if fault == "pad":
        return operation.type in (*FILTERED[:2], *POOLED) and len(first.dims) == 4 and first.dims[1] > 1
    if fault == "float16" and not real:
        return False
    if fault == "rounding" and real:
        return False
    if fault == "zero point":
        return operation.type in FILTERED and first.scale > 0
    return not is_extension(operation.type) and np.dtype(_dtype(model, operation)).itemsize in (1, 4)


def _dtype(model: Model, operation: Operation) -> Any:
    from nnbridge.extensions import operand_dtype

    return operand_dtype(model.main.operands[operation.outputs[0]])


def fingerprint(model: Model, operation: Operation) -> str:
    """The fingerprint of an operation without names: its code and operands, except sizes and constants, ordered otherwise in
    parts."""
    operands = [model.main.operands[i] for i in (*operation.inputs, *operation.outputs)]
    ends = [(int(o.type), len(o.dims), float(np.float32(o.scale)), o.zero_point, o.is_constant) for o in operands]
    return repr((int(operation.type), ends))


def recognisable(model: Model) -> list[Operation]:
    """Operations that a driver can tell from all others of the model; several of one operator may have its name."""
    of = [(operation.name, fingerprint(model, operation)) for operation in model.main.operations]
    times = Counter(of)
    return [operation for operation, key in zip(model.main.operations, of, strict=True) if times[key] == 1]


def _without_number(name: str) -> str:
    number, _, rest = name.partition(": ")
    return rest if number.isdecimal() else name


@dataclass(frozen=True)
class FaultyDriver(Device):
    """NNAPI's CPU, operation by operation; those of a name with a fault."""

    target: str
    fault: str
    name: str = "faulty"
    like: str = ""
    """The operation's :func:`fingerprint`, by which it is known among others of its name, and where operations have no names."""

    @property
    def capabilities(self) -> Capabilities:
        return uniform_capabilities(Performance(0.5, 0.5))

    def supported_operations(self, model: Model) -> Sequence[bool]:
        return [not is_extension(operation.type) for operation in model.main.operations]

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        return FunctionPreparedModel(model, [self._function(model, index) for index in range(len(model.main.operations))])

    def _is_target(self, model: Model, operation: Operation) -> bool:
        # In a part of a file operators have other numbers.
        if operation.name and _without_number(operation.name) != _without_number(self.target):
            return False
        return fingerprint(model, operation) == self.like if self.like else bool(operation.name)

    def _function(self, model: Model, index: int) -> Function:
        operation = model.main.operations[index]
        fault = self.fault if self._is_target(model, operation) else ""
        main = model.main
        read = [i for i in dict.fromkeys(operation.inputs) if main.operands[i].lifetime in (*WRITTEN, Lifetime.SUBGRAPH_INPUT)]
        prepared = extract(model, [index], read, operation.outputs)
        change: Callable[[Array], Array] = lambda value: value  # noqa: E731
        if fault == "zero point":
            part, first = prepared.main, prepared.main.operations[0].inputs[0]
            shifted = replace(part.operands[first], zero_point=part.operands[first].zero_point ^ 1)
            operands = (*part.operands[:first], shifted, *part.operands[first + 1 :])
            prepared = replace(prepared, main=replace(part, operands=operands))
        elif fault == "filter":
            read = [*read, operation.inputs[1]]
            prepared = extract(model, [index], read, operation.outputs)
            # The memory of the transposed filter, read with the shape of the filter.
            change = lambda value: np.ascontiguousarray(value.T).reshape(value.shape)  # noqa: E731
        executor, positions = Executor(prepared), [operation.inputs.index(i) for i in read]

        def compute(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Sequence[Array]:
            values = [inputs[k].data for k in positions]
            if fault == "pad":
                values[0] = moved_down(values[0], main.operands[operation.inputs[0]].zero_point)
            if fault == "filter":
                values[-1] = change(values[-1])
            results = [arg.data for arg in executor.run(values)]
            return [rounded(result) for result in results] if fault in ("rounding", "float16") else results

        return compute

"""The multiply-adds of an operation of a model, by what its declaration states."""

from __future__ import annotations

from collections.abc import Callable

from nnbridge.extensions import Dims, HostOperation, host_operation, host_options, is_options, is_tensor
from nnbridge.model import Model, Operation
from nnbridge.operations import definition
from nnbridge.types import Lifetime, is_extension


def has_multiply_adds(operation: Operation) -> bool:
    """True for an operation of NNAPI that multiplies and adds."""
    declared = definition(operation.type)
    return declared is not None and declared.work is not None


def multiply_adds(model: Model, operation: Operation) -> int | None:
    """Multiply-adds of an operation of the main subgraph; None while a dimension that counts is not known.

    0 for operations that declare none, among them those of vendor extensions.
    """
    counted = _host_work(model, operation) if is_extension(operation.type) else _work(operation)
    if counted is None:
        return 0
    operands = model.main.operands
    inputs = [operands[i] for i in operation.inputs if not is_options(operands[i])]
    tensors = [operand.dims for operand in inputs if is_tensor(operand) and operand.lifetime is not Lifetime.NO_VALUE]
    outputs = tuple(operands[i].dims for i in operation.outputs)
    if not all(dims and 0 not in dims for dims in (*tensors, *outputs)):
        return None
    try:
        return counted(tuple(() if operand.lifetime is Lifetime.NO_VALUE else operand.dims for operand in inputs), outputs)
    except (IndexError, ZeroDivisionError):
        return None


def _work(operation: Operation) -> Callable[[Dims, Dims], int] | None:
    declared = definition(operation.type)
    if declared is None or declared.work is None:
        return None
    # Forms differ in what comes after the tensors that are multiplied.
    return declared.work.of([one.name for one in declared.signatures[0].expand(len(operation.inputs))])


def _host_work(model: Model, operation: Operation) -> Callable[[Dims, Dims], int] | None:
    hosted = host_operation(model, operation)
    if not isinstance(hosted, HostOperation) or hosted.work is None:
        return None
    return hosted.work(host_options(model, model.main, operation))

"""Operands on their way through the executor: what is known before a run, results stored, results held to what is declared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from nnbridge.errors import NnapiError, OpFailedError, Reason
from nnbridge.model import Array, Model, Operand, Operation, Subgraph
from nnbridge.operations import definition
from nnbridge.operations.call import Arg, Call, NeedsValue
from nnbridge.operations.evaluate import make_call, merge_dims, resolve
from nnbridge.types import TYPE_FACTS, Lifetime, OperandCode, operation_name

Store: TypeAlias = Callable[[Array], Array]
"""What float32 numbers are rounded with before they are stored."""


def store_results(
    values: list[Any], outputs: Sequence[int], inputs: Sequence[int], results: Sequence[Array], store: Store | None
) -> None:
    """Put results where they belong: into the caller's array, or as they are, or copied if they are views of an input.

    The arena may reuse that input's buffer while the result is still needed, and the caller may change the arrays on either side.
    """
    for i, result in zip(outputs, results, strict=True):
        value = store(result) if store is not None and result.dtype == np.float32 else result
        if values[i] is not None:
            np.copyto(values[i], value)
        elif value.base is None:
            values[i] = value.copy() if any(values[k] is value for k in inputs) else value
        else:
            shared = any(np.may_share_memory(values[k], value) for k in inputs if values[k] is not None)
            values[i] = value.copy() if shared else value


_SCALARS = frozenset(code for code, facts in TYPE_FACTS.items() if not facts.tensor and facts.dtype is not None)


@lru_cache(maxsize=1024)
def _scalar(code: int, content: bytes) -> Arg:
    """A scalar's argument: networks have a few of them many times."""
    return Arg(code, value=np.frombuffer(content, TYPE_FACTS[OperandCode(code)].dtype).reshape(()), constant=True)


def constant(model: Model, operand: Operand, store: Store | None) -> Arg | None:
    """The argument for an operand that is known before a run: a constant or an omitted one."""
    if operand.lifetime is Lifetime.CONSTANT_COPY and operand.type in _SCALARS and store is None:
        at = operand.location
        return _scalar(operand.type, model.operand_values[at.offset : at.offset + at.length])
    if operand.is_constant:
        value = model.value(operand)
        if store is not None and value is not None and value.dtype == np.float32:
            value = store(value)
        return Arg.of(operand, value, present=value is None or value.size > 0)
    return Arg.of(operand, present=False) if operand.lifetime is Lifetime.NO_VALUE else None


def declaration_of(operation: Operation) -> Any:
    declared = definition(operation.type)
    if declared is None:
        name = operation_name(operation.type)
        raise OpFailedError(Reason("an operation that the CPU executor knows", name, name))
    return declared


def fully_known(operand: Operand) -> bool:
    return not operand.is_tensor or (len(operand.dims) > 0 and 0 not in operand.dims)


def as_operand(operand: Operand, arg: Arg) -> Arg:
    """A body's value as the operand outside that it stands for."""
    return Arg.of(operand, present=arg.present).with_value(arg.value, arg.dims)


def as_declared(operation: Operation, operand: Operand, computed: Arg) -> Arg:
    """A computed output checked against its declaration.

    Dimensions must agree with the declared ones. A model output must have the declared quantisation; a temporary takes
    the computed one, whatever it was declared with (facts U7 and U8).
    """
    name = operation_name(operation.type)
    dims = merge_dims(operand.dims, computed.dims)
    if dims is None:
        rule = f"an output of {list(operand.dims)} as declared"
        raise OpFailedError(Reason(rule, str(list(computed.dims)), name, operand.name))
    if operand.lifetime is Lifetime.SUBGRAPH_OUTPUT and operand.scale != 0:
        same = np.float32(computed.scale) == np.float32(operand.scale) and computed.zero_point == operand.zero_point
        if not same:
            found = f"{computed.scale}, {computed.zero_point}"
            rule = f"an output with scale {operand.scale} and zero point {operand.zero_point} as declared"
            raise OpFailedError(Reason(rule, found, name, operand.name))
    return computed.with_value(computed.value, dims)


def resolved_call(subgraph: Subgraph, operation: Operation, inputs: Sequence[Arg]) -> Call | None:
    """The call with its outputs, if their shapes can be inferred now; refusals wait until the operation runs."""
    operands = subgraph.operands
    call = make_call(declaration_of(operation), inputs, [Arg.of(operands[i]) for i in operation.outputs])
    try:
        resolved = zip(operation.outputs, resolve(call), strict=True)
        outs = tuple(as_declared(operation, operands[i], spec) for i, spec in resolved)
    except (NeedsValue, NnapiError):
        return None
    return None if any(d <= 0 for out in outs for d in out.dims) else Call(call.definition, call.signature, call.args, outs)


def declared_call(subgraph: Subgraph, operation: Operation, inputs: Sequence[Arg]) -> Call:
    """The call of an operation whose outputs were inferred from inputs as they are declared."""
    return make_call(declaration_of(operation), inputs, [Arg.of(subgraph.operands[i]) for i in operation.outputs])

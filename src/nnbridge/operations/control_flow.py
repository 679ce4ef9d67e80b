"""IF and WHILE: their declarations, and the rules on the models that they refer to.

The executor runs control flow itself; what stands here is the signature and what validation and partitioning ask.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from nnbridge.errors import Reason
from nnbridge.extensions import is_tensor
from nnbridge.model import Model, Operand, Operation, Subgraph
from nnbridge.operations.call import Call
from nnbridge.operations.declaration import Input, Output, operation, signature, types
from nnbridge.types import Lifetime, OperationCode, type_name
from nnbridge.types import OperandCode as T


def _not_a_kernel(call: Call) -> NoReturn:
    raise AssertionError(f"{call.definition.name} is run by the executor")


_OUTPUTS = [Output("outputs", "*", "as the model that ran last leaves them", repeat=True)]


def _control_flow(code: OperationCode, summary: str, *inputs: Input) -> None:
    operation(
        code,
        since=4,
        summary=summary,
        types=[types(4)],
        signatures=[signature(inputs, {}, minimum=3)],
        outputs=_OUTPUTS,
        shape=_not_a_kernel,
        zero_sized=True,
        omitted=True,
        handled="executor",
        control_flow=True,
    )(_not_a_kernel)


_control_flow(
    OperationCode.IF,
    "Runs one of two models.",
    Input("condition", T.TENSOR_BOOL8, "[1]; true runs the first model"),
    Input("then", T.MODEL, "model for true"),
    Input("else", T.MODEL, "model for false"),
    Input("inputs", "*", "inputs of both models", repeat=True),
)
_control_flow(
    OperationCode.WHILE,
    "Repeats a body model while a condition model says so.",
    Input("condition", T.MODEL, "model with one output, TENSOR_BOOL8 [1]"),
    Input("body", T.MODEL, "model that computes the next values"),
    Input("values", "*", "initial values: outputs, state, and values that stay the same", repeat=True),
)


def body(model: Model, subgraph: Subgraph, operand: int) -> Subgraph:
    """The referenced model that a MODEL operand stands for."""
    return model.referenced[subgraph.operands[operand].location.offset]


def check_control_flow(model: Model, subgraph: Subgraph, operation: Operation) -> Reason | None:
    """Check IF and WHILE as validation does: models that are not set, and boundaries that do not fit, are refused (facts V29
    to V34)."""
    name = OperationCode(operation.type).name
    models = operation.inputs[1:3] if operation.type == OperationCode.IF else operation.inputs[:2]
    for i in models:
        if subgraph.operands[i].lifetime is not Lifetime.SUBGRAPH:
            return Reason("a model set as value", subgraph.operands[i].lifetime.name, name, f"operand {i}")
    check = _check_if if operation.type == OperationCode.IF else _check_while
    reason = check(model, subgraph, operation)
    return None if reason is None else Reason(reason.rule, reason.found, name, reason.operand)


def _check_if(model: Model, subgraph: Subgraph, operation: Operation) -> Reason | None:
    condition = subgraph.operands[operation.inputs[0]]
    if condition.dims != (1,):
        return Reason("a condition of dimensions [1]", str(list(condition.dims)), operand="condition")
    outer_in = [subgraph.operands[i] for i in operation.inputs[3:]]
    outer_out = [subgraph.operands[i] for i in operation.outputs]
    for label, index in (("then", operation.inputs[1]), ("else", operation.inputs[2])):
        branch = body(model, subgraph, index)
        reason = _pairs(f"{label} inputs", outer_in, _operands(branch, branch.inputs)) or _pairs(
            f"{label} outputs", outer_out, _operands(branch, branch.outputs)
        )
        if reason is not None:
            return reason
    return None


def _check_while(model: Model, subgraph: Subgraph, operation: Operation) -> Reason | None:
    condition, loop = (body(model, subgraph, i) for i in operation.inputs[:2])
    values = [subgraph.operands[i] for i in operation.inputs[2:]]
    outer_out = [subgraph.operands[i] for i in operation.outputs]
    answers = _operands(condition, condition.outputs)
    if len(answers) != 1 or answers[0].type != T.TENSOR_BOOL8 or answers[0].dims != (1,):
        found = ", ".join(str(o) for o in answers) or "none"
        return Reason("one output, TENSOR_BOOL8[1]", found, operand="condition outputs")
    results, arguments = _operands(loop, loop.outputs), _operands(loop, loop.inputs)
    if not len(outer_out) <= len(results) <= len(arguments):
        rule = f"{len(outer_out)} to {len(arguments)} outputs"
        return Reason(rule, str(len(results)), operand="body outputs")
    return (
        _pairs("condition inputs", values, _operands(condition, condition.inputs))
        or _pairs("body inputs", values, arguments)
        or _pairs("outputs", outer_out, results[: len(outer_out)])
        or _pairs("body outputs", arguments[: len(results)], results)
    )


def _operands(subgraph: Subgraph, indexes: Iterable[int]) -> list[Operand]:
    return [subgraph.operands[i] for i in indexes]


def _pairs(label: str, outer: list[Operand], inner: list[Operand]) -> Reason | None:
    """Operands that stand for each other are as many and compatible (fact V31)."""
    if len(outer) != len(inner):
        return Reason(f"{len(outer)} operands", str(len(inner)), operand=label)
    for k, (a, b) in enumerate(zip(outer, inner, strict=True)):
        same = (a.type, a.scale, a.zero_point, a.channel_quant) == (b.type, b.scale, b.zero_point, b.channel_quant)
        fits = (
            not a.dims
            or not b.dims
            or (len(a.dims) == len(b.dims) and all(m == n or 0 in (m, n) for m, n in zip(a.dims, b.dims, strict=True)))
        )
        if not (same and fits):
            return Reason(f"{_describe(a)}", _describe(b), operand=f"{label}[{k}]")
    return None


def _describe(operand: Operand) -> str:
    quantised = f" scale {operand.scale:g} zero point {operand.zero_point}" if operand.scale else ""
    return f"{type_name(operand.type)}{list(operand.dims)}{quantised}"


def has_unknown_boundary(model: Model, subgraph: Subgraph, operation: Operation) -> bool:
    """True if an operand of the operation, or an input or output of its models, is a tensor of unknown size (fact P9)."""
    models = operation.inputs[1:3] if operation.type == OperationCode.IF else operation.inputs[:2]
    boundary = [subgraph.operands[i] for i in (*operation.inputs, *operation.outputs)]
    for i in models:
        inner = body(model, subgraph, i)
        boundary += _operands(inner, (*inner.inputs, *inner.outputs))
    return any(is_tensor(o) and (not o.dims or 0 in o.dims) for o in boundary)

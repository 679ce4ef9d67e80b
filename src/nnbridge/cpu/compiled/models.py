"""From a model to candidates for compiled programs: calls with constants and inferred dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.program import Candidate, ProgramPlan, plan
from nnbridge.errors import NnapiError
from nnbridge.model import Model, Operand, Operation, Subgraph, known
from nnbridge.operations import definition
from nnbridge.operations.call import Arg, Call, NeedsValue
from nnbridge.operations.evaluate import make_call, merge_dims, resolve
from nnbridge.types import Lifetime


def candidates(model: Model) -> list[Candidate]:
    """The operations of the main subgraph, with calls where their shapes are known before a run."""
    subgraph = model.main
    args: list[Arg | None] = [None] * len(subgraph.operands)
    for i, operand in enumerate(subgraph.operands):
        if operand.is_constant:
            value = model.value(operand)
            args[i] = Arg.of(operand, value, present=value is None or value.size > 0)
        elif operand.lifetime is Lifetime.NO_VALUE:
            args[i] = Arg.of(operand, present=False)
        elif i in subgraph.inputs:
            args[i] = _declared(operand)
    found = []
    for index, operation in enumerate(subgraph.operations):
        call, reason = _resolved(subgraph, operation, [args[i] for i in operation.inputs])
        found.append(Candidate(index, operation.inputs, operation.outputs, call, reason))
        declared = definition(operation.type)
        for k, i in enumerate(operation.outputs):
            if call is not None:
                args[i] = call.outs[k].replace()
            elif declared is None or declared.control_flow:
                # Operations of extensions and control flow leave what their outputs declare.
                args[i] = _declared(subgraph.operands[i])
    return found


def _declared(operand: Operand) -> Arg | None:
    return Arg.of(operand) if not operand.is_tensor or known(operand.dims) else None


def _resolved(subgraph: Subgraph, operation: Operation, inputs: Sequence[Arg | None]) -> tuple[Call | None, str]:
    """The call with its outputs, or why there is none."""
    declared = definition(operation.type)
    resolved = [arg.replace() for arg in inputs if arg is not None]
    if declared is None or declared.control_flow:
        return None, "requires an operation of NNAPI other than control flow"
    if len(resolved) < len(inputs):
        return None, "requires dimensions that are known before a run"
    call = make_call(declared, resolved, [Arg.of(subgraph.operands[i]) for i in operation.outputs])
    outs = []
    try:
        for i, out in zip(operation.outputs, resolve(call), strict=True):
            dims = merge_dims(subgraph.operands[i].dims, out.dims)
            if dims is None or any(d <= 0 for d in dims):
                return None, "requires dimensions that are known before a run"
            outs.append(out.replace(dims=dims))
    except (NeedsValue, NnapiError) as error:
        return None, f"requires dimensions that are known before a run ({error})"
    return Call(declared, call.signature, call.args, tuple(outs)), ""


def compile_model(model: Model, instructions: InstructionSet | None = None) -> ProgramPlan:
    """Programs for a model whose input dimensions are known."""
    return plan(candidates(model), model.main.outputs, instructions)

"""From a model to candidates for compiled programs: calls with constants and inferred dimensions."""

from __future__ import annotations

from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.planning import ProgramPlan, plan
from nnbridge.cpu.compiled.program import Candidate
from nnbridge.cpu.operands import constant, resolved_call
from nnbridge.model import Model, Operand, known
from nnbridge.operations import definition
from nnbridge.operations.call import Arg


def candidates(model: Model) -> list[Candidate]:
    """The operations of the main subgraph, with calls where their shapes are known before a run."""
    subgraph = model.main
    args = [constant(model, operand, None) for operand in subgraph.operands]
    for i in subgraph.inputs:
        args[i] = _declared(subgraph.operands[i])
    found = []
    for index, operation in enumerate(subgraph.operations):
        inputs = [arg for i in operation.inputs if (arg := args[i]) is not None]
        declared = definition(operation.type)
        computed = declared is not None and not declared.control_flow
        call = resolved_call(subgraph, operation, inputs) if computed and len(inputs) == len(operation.inputs) else None
        found.append(Candidate(index, operation.inputs, operation.outputs, call))
        for k, i in enumerate(operation.outputs):
            # Operations of extensions and control flow leave what their outputs declare.
            args[i] = call.outs[k] if call is not None else None if computed else _declared(subgraph.operands[i])
    return found


def _declared(operand: Operand) -> Arg | None:
    return Arg.of(operand) if not operand.is_tensor or known(operand.dims) else None


def compile_model(model: Model, instructions: InstructionSet | None = None) -> ProgramPlan:
    """Programs for a model whose input dimensions are known."""
    return plan(candidates(model), model.main.outputs, instructions)

"""From a model to candidates for compiled programs: calls with constants and inferred dimensions."""

from __future__ import annotations

from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.program import Candidate, Plan, plan
from nnbridge.errors import NnapiError
from nnbridge.model import Model, known
from nnbridge.operations import definition
from nnbridge.operations.call import Arg, Call, NeedsValue
from nnbridge.operations.evaluate import make_call, merge_dims, resolve
from nnbridge.types import Lifetime


def candidates(model: Model) -> list[Candidate | str]:
    """Each operation of the main subgraph as a candidate, or the reason why its shapes are not known before a run."""
    subgraph = model.main
    args: list[Arg | None] = []
    for operand in subgraph.operands:
        if operand.is_constant:
            value = model.value(operand)
            args.append(Arg.of(operand, value, present=value is None or value.size > 0))
        elif operand.lifetime is Lifetime.NO_VALUE:
            args.append(Arg.of(operand, present=False))
        else:
            args.append(None)
    for i in subgraph.inputs:
        operand = subgraph.operands[i]
        args[i] = Arg.of(operand) if not operand.is_tensor or known(operand.dims) else None
    found: list[Candidate | str] = []
    for index, operation in enumerate(subgraph.operations):
        declared, inputs = definition(operation.type), [args[i] for i in operation.inputs]
        given = [arg.replace() for arg in inputs if arg is not None]
        if declared is None or declared.control_flow or len(given) < len(inputs):
            found.append("an operation whose dimensions are known before a run")
            for i in operation.outputs if declared is None or declared.control_flow else ():
                # Operations of extensions and control flow leave what their outputs declare.
                operand = subgraph.operands[i]
                args[i] = Arg.of(operand) if not operand.is_tensor or known(operand.dims) else None
            continue
        call = make_call(declared, given, [Arg.of(subgraph.operands[i]) for i in operation.outputs])
        try:
            outs = [
                out.replace(dims=merge_dims(subgraph.operands[i].dims, out.dims))
                for i, out in zip(operation.outputs, resolve(call), strict=True)
            ]
        except (NeedsValue, NnapiError) as error:
            found.append(f"an operation whose dimensions are known before a run ({error})")
            continue
        if any(out.dims is None or any(d <= 0 for d in out.dims) for out in outs):
            found.append("an operation whose dimensions are known before a run")
            continue
        found.append(Candidate(index, Call(declared, call.signature, call.args, tuple(outs)), operation.inputs, operation.outputs))
        for i, out in zip(operation.outputs, outs, strict=True):
            args[i] = out.replace()
    return found


def compile_model(model: Model, instructions: InstructionSet | None = None) -> Plan:
    """Programs for a model whose input dimensions are known."""
    return plan(candidates(model), model.main.outputs, instructions)

"""Runs a model on compiled programs, with the reference kernels for what they leave."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.planning import ProgramPlan, plan
from nnbridge.cpu.compiled.program import Candidate
from nnbridge.cpu.executor import constant, resolved_call
from nnbridge.model import Model, Operand, known
from nnbridge.operations import definition
from nnbridge.operations.call import Arg, Call
from nnbridge.operations.evaluate import run_kernel


class Hybrid:
    """A model of known dimensions; what has none raises ``ValueError``."""

    def __init__(self, model: Model, instructions: InstructionSet | None = None) -> None:
        self.model = model
        self.calls = candidates(model)
        for candidate in self.calls:
            if candidate.resolved is None:
                raise ValueError(candidate.reason)
        self.plan: ProgramPlan = plan(self.calls, model.main.outputs, instructions)

    def run(self, inputs: list[Any]) -> list[Any]:
        """The outputs."""
        values: dict[int, Any] = dict(zip(self.model.main.inputs, inputs, strict=True))
        starts = {program.operations[0]: program for program in self.plan.programs}
        covered = set(self.plan.covered)
        for index, candidate in enumerate(self.calls):
            if index in starts:
                program = starts[index]
                outputs = [np.zeros(shape, dtype) for shape, dtype in program.shapes]
                program.run([np.ascontiguousarray(values[i]) for i in program.inputs], outputs)
                values.update(zip(program.outputs, outputs, strict=True))
            elif index not in covered:
                values.update(zip(candidate.outputs, reference(candidate, values), strict=True))
        return [values[i] for i in self.model.main.outputs]

    def reference(self, inputs: list[Any]) -> list[Any]:
        """The outputs by reference kernels alone."""
        values: dict[int, Any] = dict(zip(self.model.main.inputs, inputs, strict=True))
        for candidate in self.calls:
            values.update(zip(candidate.outputs, reference(candidate, values), strict=True))
        return [values[i] for i in self.model.main.outputs]


def reference(candidate: Candidate, values: dict[int, Any]) -> list[Any]:
    """The reference kernel's results for one operation."""
    call = candidate.call
    pairs = zip(candidate.inputs, call.args, strict=True)
    args = [arg.replace(value=values[i]) if i in values and arg.present else arg.replace() for i, arg in pairs]
    with np.errstate(all="ignore"):
        results = run_kernel(Call(call.definition, call.signature, tuple(args), tuple(out.replace() for out in call.outs)))
    return [result.data if isinstance(result, Arg) else result for result in results]


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

"""Every value that a run computes, by where it is in the model.

Observers are called by the runtime; plan, fusion and numerics are those of a run without one. Drivers in other processes, and
drivers with arithmetic of their own, show their steps' outputs only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from nnbridge.compare.arrays import Array
from nnbridge.devices.device import Device
from nnbridge.extensions import body_roles
from nnbridge.model import Model, Operation, output_name
from nnbridge.records import dataclass
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.partitioner import ExecutionStep
from nnbridge.runtime.plan import INTERPRETER, Plan
from nnbridge.runtime.states import States
from nnbridge.types import OperationCode

Position: TypeAlias = "tuple[str, int]"
"""A body's label (empty for the main subgraph) and an operand's index there."""


@dataclass(frozen=True)
class Observed:
    """A value, and what computed it; of a body that ran several times the last one."""

    value: Array
    device: str
    step: int
    computed_by: Device | None = None
    """None for the model's inputs."""


class Observation:
    """The values of one run."""

    def __init__(self, model: Model) -> None:
        self.models: dict[str, Model] = {"": model}
        """Label → the body as the main subgraph of a model."""
        self.values: dict[Position, Observed] = {}
        self._positions: dict[tuple[int, int, int], tuple[str, tuple[int, ...] | None]] = {}

    def __call__(self, plan: Plan, step: ExecutionStep, device: str, subgraph: int, operand: int, value: Array) -> None:
        """An observer of executions."""
        key = (id(plan), step.number, subgraph)
        if key not in self._positions:
            self._positions[key] = self._position(plan, step, subgraph)
        label, operands = self._positions[key]
        by = plan.devices[step.device]
        # What a driver failed at is repeated on a CPU.
        by = by if by.name == device else next((d for d in plan.devices if d.name == device), by)
        index = operand if operands is None else operands[operand]
        main = step.model.subgraphs()[subgraph]
        if operand in main.inputs and index in self.models[label].main.producers and (label, index) in self.values:
            return  # What another step computed.
        self.values[label, index] = Observed(np.array(value), device, step.number, by)

    def _position(self, plan: Plan, step: ExecutionStep, subgraph: int) -> tuple[str, tuple[int, ...] | None]:
        partition = plan.partition
        outer = source_label(plan, step.source)
        self.models.setdefault(outer, partition.sources[step.source].model)
        if subgraph == 0:
            return outer, partition.source_operands(step)
        label = _body_label(step, subgraph, outer)
        self.models.setdefault(label, replace(step.model, main=step.model.referenced[subgraph - 1], states=()))
        return label, None


def source_label(plan: Plan, source: int) -> str:
    """The label of a source that a plan interprets; empty for the main subgraph."""
    found = plan.partition.sources[source]
    if found.parent is None:
        return ""
    outer, index = found.parent
    return _label(found.role, plan.partition.sources[outer].model.main.operations[index], source_label(plan, outer))


def _body_label(step: ExecutionStep, subgraph: int, outer: str) -> str:
    """The label of a referenced subgraph by the first operation that refers to it."""
    if subgraph == 0:
        return outer
    for number, around in enumerate(step.model.subgraphs()):
        for operation in around.operations:
            for position, body in enumerate(around.bodies(operation)):
                if body == subgraph - 1 and number != subgraph:
                    role = body_roles(step.model, operation)[position]
                    return _label(role, operation, _body_label(step, number, outer))
    return f"body {subgraph}"


def _label(role: str, operation: Operation, outer: str) -> str:
    label = f"{role} of {operation.name or OperationCode(operation.type).name}"
    return f"{label} in {outer}" if outer else label


def observed_run(
    compilation: Compilation, inputs: Mapping[str, ArrayLike], states: States
) -> tuple[dict[str, Array], Observation, Execution]:
    """One run with everything that its devices show: outputs by name, the values, and the execution."""
    execution = Execution(compilation, states)
    observation = Observation(compilation.model)
    execution.observer = observation
    main = compilation.model.main
    for i, value in states.inputs().items():
        observation.values["", main.inputs[i]] = Observed(value, "", -1)
    outputs = execution.run(inputs)
    for k, i in enumerate(main.outputs):
        # What the runtime's own control flow leaves.
        if ("", i) not in observation.values and (name := output_name(main.operands[i], k)) in outputs:
            observation.values["", i] = Observed(outputs[name], INTERPRETER.name, -1)
    return outputs, observation, execution

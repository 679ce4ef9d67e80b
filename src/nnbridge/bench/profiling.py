"""The time of each operation of a compiled model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from nnbridge.compare.arrays import Array
from nnbridge.compare.observation import Observation, observed_run, source_label
from nnbridge.compare.samples import named_inputs
from nnbridge.devices.cpu import CpuPreparedModel
from nnbridge.devices.device import OutputBuffer, Request
from nnbridge.model import Model
from nnbridge.records import dataclass
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.partitioner import ExecutionStep
from nnbridge.runtime.states import States


@dataclass(frozen=True)
class OperationTime:
    """Microseconds of one operation over the runs of a profile; the least is the one that a busy machine disturbs least."""

    index: int
    """Of the operation in its subgraph; -1 for moving a step's inputs and outputs, and for a step that is timed as a whole."""
    name: str
    tier: str
    """The tier of its kernel; the device's name for a step that is timed as a whole."""
    microseconds: float
    """The least."""
    median: float
    p90: float
    runs: int
    step: int = 0
    """The step of the plan."""

    @classmethod
    def of(cls, index: int, name: str, tier: str, times: Sequence[float], step: int) -> OperationTime:
        """Of the microseconds of each run."""
        median, p90 = (float(np.percentile(times, q)) for q in (50, 90))
        return cls(index, name, tier, min(times), median, p90, len(times), step)


def profile(compilation: Compilation, inputs: Mapping[str, Array], runs: int = 20) -> list[OperationTime]:
    """The time of each operation over so many runs, after a warm-up run; each in isolation, on one thread, in run order.

    A step that nnbridge's executor does not run with bound arrays (drivers with functions of their own, other processes, other
    numerics, shapes that values decide) has one time for the whole.
    """
    model, plan = compilation.model, compilation.plan
    _, observation, _ = observed_run(compilation, inputs, States(model))
    fed = {i: inputs[name] for i, name in zip(model.own_inputs, named_inputs(model), strict=True) if name in inputs}
    found = {}
    for step in plan.steps:
        prepared, request = plan.prepared[step.number], _request(compilation, step, observation, fed)
        if isinstance(prepared, CpuPreparedModel) and request is not None:
            found[step.number] = prepared.profile(request, runs)
    whole = {} if all(map(found.get, range(len(plan.steps)))) else _whole_steps(compilation, inputs, runs)
    times = []
    for step in plan.steps:
        of_step = found.get(step.number, [])
        times += [_operation(step, *timed) for timed in of_step]
        if not of_step and step.number in whole:
            device = plan.devices[step.device].name
            name = f"step {step.number} on {device} ({_kinds(step.model)})"
            times.append(OperationTime.of(-1, name, device, whole[step.number], step.number))
    return times


def _request(compilation: Compilation, step: ExecutionStep, observation: Observation, fed: Mapping[int, Array]) -> Request | None:
    """A step's request with the values that one run had; None if the run shows one of them not."""
    label = source_label(compilation.plan, step.source)
    values = {i: seen.value for (place, i), seen in observation.values.items() if place == label}
    if not label:
        values.update(fed)
    if any(i not in values for i in (*step.inputs, *step.outputs)):
        return None
    buffers = tuple(OutputBuffer(np.empty(values[i].nbytes, np.uint8), values[i].shape) for i in step.outputs)
    return Request(tuple(values[i] for i in step.inputs), buffers)


def _operation(step: ExecutionStep, index: int, tier: str, times: Sequence[float]) -> OperationTime:
    if index < 0:
        return OperationTime.of(index, "inputs and outputs", tier, times, step.number)
    operation = step.model.main.operations[index]
    return OperationTime.of(step.operations[index], step.model.operation_name(operation), tier, times, step.number)


def _whole_steps(compilation: Compilation, inputs: Mapping[str, Array], runs: int) -> dict[int, list[float]]:
    """Microseconds of each step in each run."""
    times: dict[int, list[float]] = {}
    states = States(compilation.model)
    for _ in range(runs):
        execution = Execution(compilation, states)
        execution.measure_steps()
        execution.run(inputs)
        for timed in execution.report.steps:
            times.setdefault(timed.step, []).append(timed.nanoseconds / 1e3)
    return times


def _kinds(model: Model) -> str:
    return ", ".join(name for name, _ in Counter(map(model.operation_name, model.main.operations)).most_common(3))

"""Partitioning as Android's ``ExecutionPlan`` does it: the best device of each operation, then steps.

Everything that is decided here is kept as data: for each operation what every device answered and at what figure, so
that a plan can be explained.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnbridge.devices.device import UNLISTED, Capabilities, Device, Support
from nnbridge.errors import BadDataError, OpFailedError, Reason
from nnbridge.model import Model, Operand, Operation, Subgraph
from nnbridge.operations.control_flow import has_unknown_boundary
from nnbridge.runtime.slicing import CONTROL_FLOW, WRITTEN, Slices, requirements
from nnbridge.types import (
    FeatureLevel,
    Lifetime,
    OperationCode,
    PreferenceCode,
    is_extension,
    operation_name,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one device answered for one operation."""

    device: str
    figure: float | None
    """The figure that the preference looks at; None if the device does not take the operation."""
    reason: Reason | None = None

    @property
    def supported(self) -> bool:
        """True if the device takes the operation."""
        return self.reason is None


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one operation goes, and what every device said."""

    operation: int
    device: int | None
    """Index into the compilation's devices; None if no device takes the operation."""
    answers: tuple[Answer, ...]


@dataclass(frozen=True)
class Step:
    """Operations that run together on one device, as a model of their own.

    ``inputs`` and ``outputs`` are operands of the whole model, in the order of the step model's inputs and outputs.
    """

    device: int
    operations: tuple[int, ...]
    model: Model
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


# -- the best device of each operation -------------------------------------------------------------------------------


def place(model: Model, devices: Sequence[Device], preference: int) -> tuple[Placement, ...]:
    """The best device of every operation of the main subgraph (facts P1 to P9)."""
    slices = Slices(model)
    answers = [ask(device, model, slices) for device in devices]
    capabilities = [device.capabilities for device in devices]
    return tuple(
        _best(model, i, devices, capabilities, [answer[i] for answer in answers], preference)
        for i in range(len(model.main.operations))
    )


def ask(device: Device, model: Model, slices: Slices) -> list[Reason | None]:
    """A device's answers, None for yes. A device below the model's feature level is asked about a slice only.

    A wrong answer (an exception, another number of answers) counts as "nothing supported" (fact D13).
    """
    part, count = slices.for_device(device), len(model.main.operations)
    if part.model is None:
        gone = Reason("a slice of the model at the device's feature level", "none that is valid")
        return [part.refused.get(i, gone) for i in range(count)]
    answers: list[Reason | None] = [part.refused.get(i) for i in range(count)]
    try:
        given = list(device.supported_operations(part.model))
        if len(given) != len(part.kept):
            raise ValueError(f"{len(given)} answers for {len(part.kept)} operations")
    except Exception as error:
        wrong = Reason("a right answer of getSupportedOperations", f"{type(error).__name__}: {error}")
        return [answer or replace(wrong, operation=_name(model, i)) for i, answer in enumerate(answers)]
    for i, answer in zip(part.kept, given, strict=True):
        answers[i] = _as_reason(answer, model, i)
    return answers


def _as_reason(answer: Support, model: Model, i: int) -> Reason | None:
    if isinstance(answer, Reason):
        return answer
    return None if answer else Reason("an operation that the device takes", operation=_name(model, i))


def _name(model: Model, i: int) -> str:
    return model.operation_name(model.main.operations[i])


def _best(
    model: Model,
    i: int,
    devices: Sequence[Device],
    capabilities: Sequence[Capabilities],
    answers: Sequence[Reason | None],
    preference: int,
) -> Placement:
    """The lowest figure; on a tie the CPU, else the earlier device."""
    operation = model.main.operations[i]
    cpu_only = operation.type in CONTROL_FLOW and has_unknown_boundary(model, model.main, operation)
    best: tuple[float, int] | None = None
    given = []
    for k, (device, said) in enumerate(zip(devices, answers, strict=True)):
        if cpu_only and device.kind != "cpu" and said is None:
            said = Reason("control flow with operands of known size", "unknown size", _name(model, i))
        if said is not None:
            given.append(Answer(device.name, None, said))
            continue
        figure = _figure(model, model.main, operation, capabilities[k], preference, model.relaxed)
        given.append(Answer(device.name, figure))
        if best is None or figure < best[0] or (figure == best[0] and device.kind == "cpu"):
            best = figure, k
    return Placement(i, None if best is None else best[1], tuple(given))


def _figure(
    model: Model, subgraph: Subgraph, operation: Operation, capabilities: Capabilities, preference: int, relaxed: bool
) -> float:
    """The device's figure for an operation: its first input's type; IF and WHILE add their bodies (facts P3 to P8)."""
    if operation.type not in CONTROL_FLOW:
        if not operation.inputs:
            return UNLISTED
        return capabilities.of(subgraph.operands[operation.inputs[0]].type, relaxed).figure(preference)

    def body(position: int) -> np.float32:
        inner = model.referenced[subgraph.operands[operation.inputs[position]].location.offset]
        figures = (_figure(model, inner, o, capabilities, preference, relaxed) for o in inner.operations)
        return np.float32(sum(map(np.float32, figures), np.float32(0)))

    with np.errstate(over="ignore"):
        if operation.type == OperationCode.IF:
            own = np.float32(capabilities.if_performance.figure(preference))
            return float(own + np.float32(0.5) * (body(1) + body(2)))
        return float(np.float32(capabilities.while_performance.figure(preference)) + body(0) + body(1))


# -- parts of a model ------------------------------------------------------------------------------------------------


def _is_variable(operand: Operand) -> bool:
    return operand.lifetime in (*WRITTEN, Lifetime.SUBGRAPH_INPUT)


def extract(model: Model, operations: Sequence[Operation], inputs: Sequence[int], outputs: Sequence[int]) -> Model:
    """A model of some operations of another, which shares its constants' memory."""
    index: dict[int, int] = {}
    for i in (*inputs, *(i for o in operations for i in (*o.inputs, *o.outputs)), *outputs):
        index.setdefault(i, len(index))
    roles = dict.fromkeys(inputs, Lifetime.SUBGRAPH_INPUT) | dict.fromkeys(outputs, Lifetime.SUBGRAPH_OUTPUT)

    def operand(i: int) -> Operand:
        found = model.main.operands[i]
        if i in roles:
            return replace(found, lifetime=roles[i])
        return replace(found, lifetime=Lifetime.TEMPORARY_VARIABLE) if _is_variable(found) else found

    moved = tuple(
        replace(o, inputs=tuple(index[i] for i in o.inputs), outputs=tuple(index[i] for i in o.outputs)) for o in operations
    )
    main = Subgraph(tuple(operand(i) for i in index), moved, tuple(index[i] for i in inputs), tuple(index[i] for i in outputs))
    used = {code >> 16 for group in (main.operands, main.operations) for code in (o.type for o in group) if is_extension(code)}
    bodies = any(o.type in CONTROL_FLOW for o in operations)
    return replace(
        model,
        main=main,
        referenced=model.referenced if bodies else (),
        extensions={name: prefix for name, prefix in model.extensions.items() if prefix in used},
        states=(),
    )


# -- steps -----------------------------------------------------------------------------------------------------------


def make_steps(model: Model, placements: Sequence[Placement], device_count: int, host: int | None = None) -> tuple[Step, ...]:
    """The steps of a plan: one if a single device takes everything, else as the ready queues give them.

    BAD_DATA if an operation has no device (fact P10); OP_FAILED if a step has no inputs or no outputs (fact P29), except
    where a ``host`` runs operations: that is its index, and nothing of Android's is left to fall back to.
    """
    homes = []
    for placement in placements:
        if placement.device is None:
            raise BadDataError(_nobody(model, placement))
        homes.append(placement.device)
    main = model.main
    if len(set(homes)) == 1:
        return (Step(homes[0], tuple(range(len(homes))), model, main.inputs, main.outputs),)
    groups = _group(main, homes, device_count)
    maker = {operation: step for step, (_, members) in enumerate(groups) for operation in members}
    steps = tuple(_step(model, step, device, members, maker) for step, (device, members) in enumerate(groups))
    for step in steps if host not in homes else ():
        if not step.inputs or not step.outputs:
            what = "inputs" if not step.inputs else "outputs"
            names = ", ".join(operation_name(main.operations[i].type) for i in step.operations)
            raise OpFailedError(Reason(f"a step with {what}", f"none for {names}"))
    return steps


def _nobody(model: Model, placement: Placement) -> Reason:
    operation = model.main.operations[placement.operation]
    said = "; ".join(f"{answer.device}: {answer.reason}" for answer in placement.answers)
    return Reason("a device that takes the operation", said or "no devices", operation.name or _name(model, placement.operation))


def _group(main: Subgraph, homes: Sequence[int], device_count: int) -> list[tuple[int, list[int]]]:
    """Device and operations of each step: always the last non-empty queue, emptied in order (facts P17 to P21)."""
    queues: list[deque[int]] = [deque() for _ in range(device_count)]
    missing = []
    for i, operation in enumerate(main.operations):
        unknown = {k for k in operation.inputs if main.operands[k].lifetime in WRITTEN}
        missing.append(len(unknown))
        if not unknown:
            queues[homes[i]].append(i)
    groups: list[tuple[int, list[int]]] = []
    while any(queues):
        device = max(k for k, queue in enumerate(queues) if queue)
        members: list[int] = []
        queue = queues[device]
        while queue:
            i = queue.popleft()
            members.append(i)
            for operand in main.operations[i].outputs:
                for reader in main.consumers.get(operand, ()):
                    missing[reader] -= 1
                    if missing[reader] == 0:
                        queues[homes[reader]].append(reader)
        groups.append((device, members))
    return groups


def _step(model: Model, number: int, device: int, members: list[int], maker: dict[int, int]) -> Step:
    """One step's model, inputs and outputs in Android's order (facts P24 to P27)."""
    main = model.main
    operations = [main.operations[i] for i in members]
    here = {i for o in operations for i in o.outputs}
    kinds: dict[Lifetime, dict[int, None]] = {
        Lifetime.SUBGRAPH_INPUT: {},
        Lifetime.TEMPORARY_VARIABLE: {},
        Lifetime.SUBGRAPH_OUTPUT: {},
    }
    for o in operations:
        for i in o.inputs:
            if i not in here and _is_variable(main.operands[i]):
                kinds[main.operands[i].lifetime].setdefault(i)
    inputs = [i for found in kinds.values() for i in found]
    model_outputs = [i for o in operations for i in o.outputs if main.operands[i].lifetime is Lifetime.SUBGRAPH_OUTPUT]
    crossing = sorted(
        i
        for i in here
        if main.operands[i].lifetime is Lifetime.TEMPORARY_VARIABLE
        and any(maker[reader] != number for reader in main.consumers.get(i, ()))
    )
    outputs = [*model_outputs, *crossing]
    return Step(device, tuple(members), extract(model, operations, inputs, outputs), tuple(inputs), tuple(outputs))


def required_level(model: Model) -> FeatureLevel:
    """The lowest feature level whose devices can be asked about the whole model."""
    return FeatureLevel(max((need.level for need in requirements(model)), default=1))


DEFAULT_PREFERENCE = PreferenceCode.FAST_SINGLE_ANSWER

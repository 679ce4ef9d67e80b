"""The steps of a plan, as in Android's ``ExecutionPlan``: execution steps, and control flow that the runtime runs.

A plan is flat: IF and WHILE that are interpreted stand between the steps of their bodies and jump among them. Every
subgraph that was partitioned on the way (the main one, then bodies in order of appearance) is a *source*; an operand is
named by its source and its index there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias

from nnbridge.budget import steps_budget
from nnbridge.builder import run_order
from nnbridge.device_view import device_view
from nnbridge.devices.device import Device
from nnbridge.errors import BadDataError, OpFailedError, Reason
from nnbridge.extensions import is_tensor
from nnbridge.model import INFERRED, Model, Operand, Operation, Subgraph, known
from nnbridge.records import dataclass
from nnbridge.runtime.placement import Placement, place
from nnbridge.types import WRITTEN, FeatureLevel, Lifetime, OperationCode

MAX_BODIES = 10_000
"""Bodies that one plan may interpret: those that several IF and WHILE share are there for each."""

SourceOperand: TypeAlias = "tuple[int, int]"
"""Source and operand index."""


@dataclass(frozen=True)
class SourceModel:
    """A subgraph that was partitioned: the main one, or a body of interpreted control flow."""

    model: Model
    """The subgraph as the main one of a model of its own."""
    placements: tuple[Placement, ...]
    role: str = "main"
    """``main``, ``then``, ``else``, ``condition`` or ``body``."""
    parent: SourceOperand | None = None
    """Source and operation index of the IF or WHILE."""


@dataclass(frozen=True)
class ExecutionStep:
    """Operations that run together on one device, as a model of their own.

    ``operations``, ``inputs`` and ``outputs`` are indexes into the source, operands in the order of the step model's.
    """

    device: int
    operations: tuple[int, ...]
    model: Model
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    crossing: tuple[int, ...] = ()
    """Operands of the step model that are temporaries of the source."""
    source: int = 0
    number: int = 0
    """Execution steps before this one."""

    @cached_property
    def output_operands(self) -> tuple[Operand, ...]:
        """The step model's outputs."""
        return tuple(self.model.main.operands[i] for i in self.model.main.outputs)


@dataclass(frozen=True)
class ControlFlowBody:
    """A body of interpreted control flow: where its steps begin, its inputs and outputs."""

    start: int
    inputs: tuple[SourceOperand, ...]
    outputs: tuple[SourceOperand, ...]


@dataclass(frozen=True)
class IfStep:
    """An interpreted IF: followed by the steps of one body, a jump past the end, and the steps of the other."""

    source: int
    operation: int
    condition: SourceOperand
    inputs: tuple[SourceOperand, ...]
    outputs: tuple[SourceOperand, ...]
    then: ControlFlowBody
    otherwise: ControlFlowBody


@dataclass(frozen=True)
class WhileStep:
    """An interpreted WHILE: followed by the condition's steps and the body's, each with a jump back here."""

    source: int
    operation: int
    inputs: tuple[SourceOperand, ...]
    outputs: tuple[SourceOperand, ...]
    condition: ControlFlowBody
    body: ControlFlowBody
    end: int


@dataclass(frozen=True)
class GotoStep:
    """A jump."""

    target: int


LogicalStep: TypeAlias = "ExecutionStep | IfStep | WhileStep | GotoStep"


@dataclass(frozen=True, slots=True)
class StepRole:
    """A use of memory: an execution step's number, ``input`` or ``output``, and the index there."""

    step: int
    direction: str
    index: int


@dataclass(frozen=True)
class Partition:
    """Logical steps in order, and the subgraphs that they came from."""

    program: tuple[LogicalStep, ...]
    sources: tuple[SourceModel, ...]

    @cached_property
    def steps(self) -> tuple[ExecutionStep, ...]:
        """The execution steps only."""
        return tuple(item for item in self.program if isinstance(item, ExecutionStep))

    @cached_property
    def device_of(self) -> Mapping[tuple[int, int], int]:
        """Source and operation → index of the device that runs it; without what the runtime interprets."""
        return MappingProxyType({(step.source, i): step.device for step in self.steps for i in step.operations})

    def source_operands(self, step: ExecutionStep) -> tuple[int, ...]:
        """For each operand of a step's model its index in the source."""
        model = self.sources[step.source].model
        if step.model is model:
            return tuple(range(len(model.main.operands)))
        return tuple(_in_order_of_use([model.main.operations[i] for i in step.operations]))

    def within(self, source: int) -> str:
        """The place of a body, such as ``then of IF 2 in body of WHILE 0``; empty for the main subgraph."""
        found = self.sources[source]
        if found.parent is None:
            return ""
        outer, index = found.parent
        model, around = self.sources[outer].model, self.within(outer)
        here = f"{found.role} of {model.operation_name(model.main.operations[index])} {index}"
        return f"{here} in {around}" if around else here

    @cached_property
    def read(self) -> frozenset[SourceOperand]:
        """Operands that execution steps read."""
        return frozenset((step.source, i) for step in self.steps for i in step.inputs)

    def roles(self, operand: SourceOperand) -> frozenset[StepRole]:
        """Uses of an operand's memory as a step's input or output, in bodies of control flow too (facts P35 to P37)."""
        return frozenset(role for place in self._aliases(operand) for role in self._direct_roles.get(place, ()))

    @cached_property
    def _direct_roles(self) -> Mapping[SourceOperand, list[StepRole]]:
        found: dict[SourceOperand, list[StepRole]] = {}
        for step in self.steps:
            for direction, operands in (("input", step.inputs), ("output", step.outputs)):
                for index, i in enumerate(operands):
                    found.setdefault((step.source, i), []).append(StepRole(step.number, direction, index))
        return found

    @cached_property
    def _used_by(self) -> Mapping[SourceOperand, set[SourceOperand]]:
        """Outer operand → inner ones that may lie in its memory."""
        pairs: list[tuple[SourceOperand, SourceOperand]] = []
        for item in self.program:
            if isinstance(item, IfStep):
                for branch in (item.then, item.otherwise):
                    pairs += zip(item.inputs, branch.inputs, strict=True)
                    pairs += zip(item.outputs, branch.outputs, strict=True)
            elif isinstance(item, WhileStep):
                pairs += zip(item.inputs, item.condition.inputs, strict=True)
                pairs += zip(item.body.outputs, item.condition.inputs, strict=False)
                pairs += zip(item.condition.inputs, item.body.inputs, strict=True)
        found: dict[SourceOperand, set[SourceOperand]] = {}
        for outer, inner in pairs:
            found.setdefault(outer, set()).add(inner)
        return found

    def _aliases(self, operand: SourceOperand) -> set[SourceOperand]:
        seen, waiting = {operand}, [operand]
        while waiting:
            for inner in self._used_by.get(waiting.pop(), ()):
                if inner not in seen:
                    seen.add(inner)
                    waiting.append(inner)
        return seen


def make_steps(model: Model, placements: tuple[Placement, ...], devices: Sequence[Device], preference: int) -> Partition:
    """The plan for a model whose operations are placed: a single step if one device gets everything (fact P14).

    BAD_DATA if an operation has no device (fact P10); ExhaustedError for too many steps.
    """
    planner = _Planner(model, devices, preference)
    queues = planner.queues(placements, model)
    if len(set(queues)) == 1 and queues[0] != len(devices):
        main = model.main
        step = ExecutionStep(queues[0], tuple(range(len(queues))), model, main.inputs, main.outputs)
        return Partition((step,), (SourceModel(model, placements),))
    planner.add(model, placements)
    return Partition(tuple(planner.program), tuple(planner.sources))


def check_step(step: ExecutionStep, devices: Sequence[Device]) -> None:
    """OP_FAILED for a step without inputs or outputs (fact P29), and for one that computes a temporary of unknown size for
    another step on a device below feature level 3 (fact P33).

    The first does not hold where a host runs operations: nothing of Android's is left to fall back to then.
    """
    main, device = step.model.main, devices[step.device]
    names = ", ".join(step.model.operation_name(o) for o in main.operations)
    if not (main.inputs and main.outputs) and not any(d.kind == "host" for d in devices):
        what = "inputs" if not main.inputs else "outputs"
        raise OpFailedError(Reason(f"a step with {what}", f"none for {names}"))
    old = device.kind == "device" and device.level < FeatureLevel.LEVEL_3
    for i in step.crossing if old else ():
        operand = main.operands[i]
        if is_tensor(operand) and not known(operand.dims):
            rule = f"known sizes of what a device of feature level {device.level} computes for other steps"
            raise OpFailedError(Reason(rule, f"{operand} {operand.name}".rstrip(), names))


class _Planner:
    """Grows the flat list of steps, source by source."""

    def __init__(self, model: Model, devices: Sequence[Device], preference: int) -> None:
        self._devices = devices
        self._preference = preference
        self._steps = 0
        self._steps_left = steps_budget(sum(map(len, model.pools)))
        self.program: list[LogicalStep] = []
        self.sources: list[SourceModel] = []

    def queues(self, placements: Sequence[Placement], model: Model) -> list[int]:
        """The queue of each operation: its device's index, or for the interpreter the number of devices."""
        for placement in placements:
            if placement.device is None:
                raise BadDataError(_nobody(model, placement))
        return [len(self._devices) if p.interpreted or p.device is None else p.device for p in placements]

    def add(
        self, model: Model, placements: tuple[Placement, ...], role: str = "main", parent: SourceOperand | None = None
    ) -> int:
        """Partition a subgraph; returns its source index (facts P17 to P22)."""
        source = len(self.sources)
        if source > MAX_BODIES:
            raise OpFailedError(Reason(f"at most {MAX_BODIES} bodies of interpreted control flow", "more"))
        self.sources.append(SourceModel(model, placements, role, parent))
        groups = _group(model.main, self.queues(placements, model), len(self._devices))
        groups = _late(model.main, groups, {k for k, device in enumerate(self._devices) if device.late})
        maker = {operation: number for number, (_, members) in enumerate(groups) for operation in members}
        for number, (device, members) in enumerate(groups):
            if device == len(self._devices):
                self._interpret(source, members[0])
            else:
                self._add_step(source, number, device, members, maker)
        return source

    def _add_step(self, source: int, number: int, device: int, members: list[int], maker: dict[int, int]) -> None:
        model = self.sources[source].model
        self._steps_left.spend(1, model.name)
        inputs, outputs = _boundary(model, number, members, maker)
        part = extract(model, members, inputs, outputs)
        temporary = [model.main.operands[i].lifetime is Lifetime.TEMPORARY_VARIABLE for i in outputs]
        crossing = tuple(i for i, crosses in zip(part.main.outputs, temporary, strict=True) if crosses)
        step = ExecutionStep(device, tuple(members), part, tuple(inputs), tuple(outputs), crossing, source, self._steps)
        self.program.append(step)
        self._steps += 1

    def _interpret(self, source: int, operation: int) -> None:
        found = self.sources[source].model.main.operations[operation]
        at = len(self.program)
        self.program.append(GotoStep(at))  # replaced once the bodies' positions are known
        outputs = _of(source, found.outputs)
        if found.type == OperationCode.IF:
            then = self._add_body(source, operation, 1, "then")
            jump = len(self.program)
            self.program.append(GotoStep(jump))
            otherwise = self._add_body(source, operation, 2, "else")
            self.program[jump] = GotoStep(len(self.program))
            condition, inputs = (source, found.inputs[0]), _of(source, found.inputs[3:])
            self.program[at] = IfStep(source, operation, condition, inputs, outputs, then, otherwise)
        else:
            condition_body = self._add_body(source, operation, 0, "condition")
            self.program.append(GotoStep(at))
            loop = self._add_body(source, operation, 1, "body")
            self.program.append(GotoStep(at))
            inputs, end = _of(source, found.inputs[2:]), len(self.program)
            self.program[at] = WhileStep(source, operation, inputs, outputs, condition_body, loop, end)

    def _add_body(self, source: int, operation: int, position: int, role: str) -> ControlFlowBody:
        """Ask the devices about a body, partition it, put its steps here (facts P1, P15, P22)."""
        outer = self.sources[source].model
        operand = outer.main.operands[outer.main.operations[operation].inputs[position]]
        model = device_view(replace(outer, main=outer.referenced[operand.location.offset], states=()))
        start = len(self.program)
        # Devices are asked with the body's own relaxed flag; its steps have the main model's (facts P8 and P28).
        asked = replace(model, relaxed=model.main.relaxed)
        inner = self.add(model, place(asked, self._devices, self._preference), role, (source, operation))
        return ControlFlowBody(start, _of(inner, model.main.inputs), _of(inner, model.main.outputs))


def _of(source: int, operands: Sequence[int]) -> tuple[SourceOperand, ...]:
    return tuple((source, i) for i in operands)


def _nobody(model: Model, placement: Placement) -> Reason:
    operation = model.main.operations[placement.operation]
    said = "; ".join(f"{answer.device}: {answer.reason}" for answer in placement.answers)
    name = operation.name or model.operation_name(operation)
    return Reason("a device that supports the operation", said or "no devices", name)


def count_written(main: Subgraph, operation: Operation) -> int:
    """The number of an operation's inputs that other operations write."""
    return len({k for k in operation.inputs if main.operands[k].lifetime in WRITTEN})


def _group(main: Subgraph, queue_of: Sequence[int], device_count: int) -> list[tuple[int, list[int]]]:
    """Device and operations of each step: always the last non-empty queue, emptied in order (facts P17 to P21).

    The queue after the last device's is the interpreter's; each of its operations is separate.
    """
    queues: list[deque[int]] = [deque() for _ in range(device_count + 1)]
    missing = []
    for i, operation in enumerate(main.operations):
        missing.append(count_written(main, operation))
        if not missing[i]:
            queues[queue_of[i]].append(i)
    groups: list[tuple[int, list[int]]] = []
    while any(queues):
        device = max(k for k, queue in enumerate(queues) if queue)
        queue = queues[device]
        members: list[int] = []
        while queue:
            i = queue.popleft()
            members.append(i)
            for operand in main.operations[i].outputs:
                for reader in main.consumers.get(operand, ()):
                    missing[reader] -= 1
                    if missing[reader] == 0:
                        queues[queue_of[reader]].append(reader)
        groups.extend([(device, [i]) for i in members] if device == device_count else [(device, members)])
    return groups


def _late(main: Subgraph, groups: list[tuple[int, list[int]]], devices: Collection[int]) -> list[tuple[int, list[int]]]:
    """The groups of :func:`_group`, in which operations of some ``devices`` wait for the first group that reads them.

    They stay where another device reads them, and where they are the model's outputs.
    """
    if not devices:
        return groups
    at = {i: number for number, (_, members) in enumerate(groups) for i in members}
    for number, (device, members) in reversed([*enumerate(groups)]):
        for i in reversed(members) if device in devices else ():
            written = main.operations[i].outputs
            readers = [at[reader] for operand in written for reader in main.consumers.get(operand, ())]
            inner = all(main.operands[operand].lifetime is Lifetime.TEMPORARY_VARIABLE for operand in written)
            if inner and readers and min(readers) > number and all(groups[reader][0] == device for reader in readers):
                at[i] = min(readers)
    moved: list[tuple[int, list[int]]] = [(device, []) for device, _ in groups]
    for i, number in at.items():
        moved[number][1].append(i)
    return [group for group in moved if group[1]]


def _boundary(model: Model, number: int, members: list[int], maker: dict[int, int]) -> tuple[list[int], list[int]]:
    """One step's inputs and outputs in Android's order (facts P24 to P27)."""
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
    return inputs, [*model_outputs, *crossing]


# -- parts of a model ------------------------------------------------------------------------------------------------


def _is_variable(operand: Operand) -> bool:
    return operand.lifetime in (*WRITTEN, Lifetime.SUBGRAPH_INPUT)


def _in_order_of_use(operations: Sequence[Operation]) -> dict[int, None]:
    return dict.fromkeys(i for o in operations for i in (*o.inputs, *o.outputs))


def extract(model: Model, members: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]) -> Model:
    """A model of some operations of another's main subgraph, which shares its constants' memory (facts P23 and P30).

    Operands come in order of use; operations are sorted as finish sorts them.
    """
    operations = [model.main.operations[i] for i in members]
    index = {old: new for new, old in enumerate(_in_order_of_use(operations))}
    roles = dict.fromkeys(inputs, Lifetime.SUBGRAPH_INPUT) | dict.fromkeys(outputs, Lifetime.SUBGRAPH_OUTPUT)

    def operand(i: int) -> Operand:
        found = model.main.operands[i]
        role = roles.get(i) or (Lifetime.TEMPORARY_VARIABLE if _is_variable(found) else found.lifetime)
        return found if role is found.lifetime else replace(found, lifetime=role)

    moved = tuple(
        replace(o, inputs=tuple(index[i] for i in o.inputs), outputs=tuple(index[i] for i in o.outputs)) for o in operations
    )
    operands = tuple(operand(i) for i in index)
    order = run_order(operands, moved)
    sorted_again = tuple(moved[i] for i in order)
    main = Subgraph(operands, sorted_again, tuple(index[i] for i in inputs), tuple(index[i] for i in outputs))
    extracted = device_view(replace(model, main=main, states=()))
    # Dimensions and quantisation are those of the whole model.
    inferred = model.main.known.get(INFERRED, frozenset())
    extracted.main.known[INFERRED] = frozenset(k for k, i in enumerate(order) if members[i] in inferred)
    return extracted

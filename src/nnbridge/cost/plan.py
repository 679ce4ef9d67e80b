"""The cost of a plan: operations, steps, what crosses from step to step, and the memory that values between operations need."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import accumulate
from typing import Any, TypeAlias

from nnbridge.cost.formulas import has_multiply_adds, multiply_adds
from nnbridge.cpu.arena import Lease, plan_arena
from nnbridge.extensions import operand_dtype, readable_operation
from nnbridge.model import Model, Operand, Operation, Subgraph, known
from nnbridge.records import dataclass
from nnbridge.runtime.partitioner import ExecutionStep, GotoStep, Partition
from nnbridge.runtime.plan import Plan
from nnbridge.types import WRITTEN, Lifetime, OperandCode


@dataclass(frozen=True, slots=True)
class OperationCost:
    """One operation; None where dimensions are open."""

    index: int
    source: int
    type: str
    name: str
    multiply_adds: int | None
    parameters: int
    """Elements of its constant tensors, without the shapes and indexes among them."""
    parameter_bytes: int
    activation_bytes: int | None
    """Bytes of the computed tensors that it reads and writes."""


@dataclass(frozen=True, slots=True)
class Border:
    """The tensors that a step reads from outside or leaves to others, and their bytes, None where dimensions are open."""

    tensors: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class StepCost:
    """One step: the sums over its operations, both borders, and the memory of values inside."""

    device: str
    operations: int
    multiply_adds: int | None
    parameters: int
    inputs: Border
    outputs: Border
    peak_bytes: int | None
    """The smallest block that holds all values between its operations, as nnbridge's own executor arranges them."""


@dataclass(frozen=True, slots=True)
class PlanCost:
    """All operations and steps of a plan, and the sums; parameters that several operations read count once in sums."""

    operations: tuple[OperationCost, ...]
    steps: tuple[StepCost, ...]
    multiply_adds: int | None
    parameters: int
    parameter_bytes: int
    crossing_bytes: int | None
    """Bytes that go from step to step."""
    peak_bytes: int | None
    """Memory for the values between operations if the whole model ran in one step."""

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def cost_of(plan: Plan) -> PlanCost:
    """The cost of a finished compilation's plan."""
    operations = []
    for number, source in enumerate(plan.partition.sources):
        main = source.model.main
        operations += [_operation(source.model, number, i, operation) for i, operation in enumerate(main.operations)]
    steps = []
    for step in plan.steps:
        model = plan.partition.sources[step.source].model
        mine = [model.main.operations[i] for i in step.operations]
        costs = [_operation(model, step.source, i, model.main.operations[i]) for i in step.operations]
        steps.append(
            StepCost(
                plan.devices[step.device].name,
                len(mine),
                _sum(cost.multiply_adds for cost in costs),
                _parameters(model.main, mine)[0],
                _border(model.main, step.inputs),
                _border(model.main, step.outputs),
                _peak(step.model.main),
            )
        )
    models = [source.model for source in plan.partition.sources]
    shared = [_parameters(model.main, model.main.operations) for model in models]
    crossing = (_sum(tensor_bytes(step.model.main.operands[i]) for i in step.crossing) for step in plan.steps)
    return PlanCost(
        tuple(operations),
        tuple(steps),
        _sum(cost.multiply_adds for cost in operations),
        sum(elements for elements, _ in shared),
        sum(size for _, size in shared),
        _sum(crossing),
        _peak(models[0].main),
    )


def driver_multiply_adds(plan: Plan) -> int:
    """The multiply-adds of the steps on drivers; those of open dimensions count nothing."""
    total = 0
    for step in plan.steps:
        if plan.devices[step.device].kind == "device":
            model = plan.partition.sources[step.source].model
            total += _sum(multiply_adds(model, model.main.operations[i]) for i in step.operations) or 0
    return total


def _operation(model: Model, source: int, index: int, operation: Operation) -> OperationCost:
    operands = model.main.operands
    computed = [operands[i] for i in dict.fromkeys((*operation.inputs, *operation.outputs)) if _is_activation(operands[i])]
    elements, size = _parameters(model.main, [operation])
    return OperationCost(
        index,
        source,
        readable_operation(model, operation),
        operation.name,
        multiply_adds(model, operation),
        elements,
        size,
        _sum(map(tensor_bytes, computed)),
    )


def _is_activation(operand: Operand) -> bool:
    return operand.is_tensor and not operand.is_constant and operand.lifetime is not Lifetime.NO_VALUE


def _parameters(main: Subgraph, operations: Sequence[Operation]) -> tuple[int, int]:
    """Elements and bytes of the constant tensors that operations read, each once; of int32 ones, biases only."""
    read = dict.fromkeys(
        i
        for operation in operations
        for i in operation.inputs
        if main.operands[i].type != OperandCode.TENSOR_INT32 or has_multiply_adds(operation)
    )
    tensors = [main.operands[i] for i in read if main.operands[i].is_tensor and main.operands[i].is_constant]
    return sum(math.prod(t.dims) for t in tensors), sum(tensor_bytes(t) or 0 for t in tensors)


def tensor_bytes(operand: Operand) -> int | None:
    """Bytes of a tensor; None while its dimensions are not known."""
    return math.prod(operand.dims) * operand_dtype(operand).itemsize if known(operand.dims) else None


def _sum(numbers: Iterable[int | None]) -> int | None:
    listed = list(numbers)
    return None if None in listed else sum(n for n in listed if n is not None)


def _border(main: Subgraph, operands: Iterable[int]) -> Border:
    tensors = [main.operands[i] for i in operands if main.operands[i].is_tensor]
    return Border(len(tensors), _sum(map(tensor_bytes, tensors)))


def _peak(main: Subgraph) -> int | None:
    """Bytes of the block for temporaries; None while a size is not known."""
    leases = []
    for step, operation in enumerate(main.operations):
        for i in operation.outputs:
            operand = main.operands[i]
            if operand.lifetime not in WRITTEN or operand.lifetime is Lifetime.SUBGRAPH_OUTPUT:
                continue
            size = tensor_bytes(operand)
            if size is None:
                return None
            leases.append(Lease(i, size, step, max(main.consumers.get(i, (step,)))))
    return plan_arena(leases)[1]


SourceOperation: TypeAlias = "tuple[int, int]"
"""Source and operation index."""


def run_order(partition: Partition) -> tuple[SourceOperation, ...]:
    """Every operation once, as the plan runs them: both branches of an interpreted IF, a loop's condition and body after it."""
    found: list[SourceOperation] = []
    for item in partition.program:
        if isinstance(item, ExecutionStep):
            found += [(item.source, i) for i in item.operations]
        elif not isinstance(item, GotoStep):
            found.append((item.source, item.operation))
    return tuple(found)


def bytes_alive(partition: Partition) -> tuple[int, ...]:
    """For each operation of :func:`run_order` the bytes of inputs, outputs and temporaries that are alive while it runs.

    A tensor lives from the operation that computes it to the last that reads it, an output to the end; where interpreted control
    flow reads it, to the end of the bodies. Inputs and outputs of bodies share their memory with the tensors outside. Tensors of
    unknown size count nothing.
    """
    order = run_order(partition)
    place = {operation: n for n, operation in enumerate(order)}
    ends = _ends(partition, place)
    changes = [0] * (len(order) + 1)
    for number, source in enumerate(partition.sources):
        main = source.model.main
        coming, going = set(main.inputs), set(main.outputs)
        for i, operand in enumerate(main.operands):
            inner = number > 0 and (i in coming or i in going)
            if not operand.is_tensor or inner or operand.lifetime not in (*WRITTEN, Lifetime.SUBGRAPH_INPUT):
                continue
            readers = [ends[number, reader] for reader in main.consumers.get(i, ())]
            if i not in main.producers and i not in coming:
                continue
            first = place[number, main.producers[i]] if i in main.producers else 0
            last = len(order) - 1 if i in going else max([first, *readers])
            size = tensor_bytes(operand) or 0
            changes[first] += size
            changes[last + 1] -= size
    return tuple(accumulate(changes))[:-1]


def _ends(partition: Partition, place: dict[SourceOperation, int]) -> dict[SourceOperation, int]:
    """The end of each operation in run order: interpreted control flow ends with the last operation of its bodies."""
    ends = dict(place)
    for number in reversed(range(1, len(partition.sources))):
        source = partition.sources[number]
        inside = [ends[number, i] for i in range(len(source.model.main.operations))]
        if source.parent is not None and inside:
            ends[source.parent] = max(ends[source.parent], *inside)
    return ends

"""The order in which a plan runs its operations, and the tensors that are alive meanwhile."""

from __future__ import annotations

from itertools import accumulate
from typing import TypeAlias

from nnbridge.cost.plan import tensor_bytes
from nnbridge.runtime.partitioner import ExecutionStep, GotoStep, Partition
from nnbridge.types import WRITTEN, Lifetime

SourceOperation: TypeAlias = "tuple[int, int]"
"""Source and operation index."""


def run_order(partition: Partition) -> tuple[SourceOperation, ...]:
    """Every operation once, as the plan runs them: both branches of an interpreted IF, a loop's condition and body behind it."""
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
    """When each operation ends: interpreted control flow does with the last operation of its bodies."""
    ends = dict(place)
    for number in reversed(range(1, len(partition.sources))):
        source = partition.sources[number]
        inside = [ends[number, i] for i in range(len(source.model.main.operations))]
        if source.parent is not None and inside:
            ends[source.parent] = max(ends[source.parent], *inside)
    return ends

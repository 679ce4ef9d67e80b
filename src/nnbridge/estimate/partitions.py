"""Groups of a file's operators, as TFLite's partitioner makes them of what a delegate or compiler accepts."""

from __future__ import annotations

from collections.abc import Collection

from nnbridge.records import dataclass
from nnbridge.source import SourceGraph, SourceTensor


@dataclass(frozen=True, eq=False)
class OperatorGroup:
    """Operators that run together, in run order."""

    operators: tuple[int, ...]
    inputs: tuple[SourceTensor, ...]
    """Values that it reads and does not compute."""
    outputs: tuple[SourceTensor, ...]
    """Values that it computes for others."""

    @property
    def boundary_bytes(self) -> int:
        """Bytes that go in and out."""
        return sum(tensor.bytes for tensor in (*self.inputs, *self.outputs))


def groups(graph: SourceGraph, accepted: Collection[int]) -> tuple[OperatorGroup, ...]:
    """The accepted operators in as few groups as the order of dependence allows: each takes all that is ready."""
    waiting = {o.index: sum(t.index in graph.producers for t in set(o.computed)) for o in graph.operators}
    taken: set[int] = set()
    ready = [i for i, missing in waiting.items() if missing == 0]
    found: list[OperatorGroup] = []
    accepting = bool(ready) and ready[0] in accepted
    while ready:
        members: list[int] = []
        while now := [i for i in ready if (i in accepted) is accepting]:
            number = min(now)
            ready.remove(number)
            taken.add(number)
            members.append(number)
            for tensor in graph.operators[number].outputs:
                for reader in graph.readers.get(tensor.index, ()):
                    waiting[reader.index] -= 1
                    if waiting[reader.index] == 0 and reader.index not in taken:
                        ready.append(reader.index)
        if accepting and members:
            found.append(group(graph, members))
        accepting = not accepting
    return tuple(found)


def group(graph: SourceGraph, members: Collection[int]) -> OperatorGroup:
    """Operators as a group, with what crosses its boundary."""
    inside = set(members)
    own = {t.index for i in inside for t in graph.operators[i].outputs}
    read = {t.index: t for i in sorted(inside) for t in graph.operators[i].computed if t.index not in own}
    final = {tensor.index for tensor in graph.outputs}
    outputs = [
        tensor
        for i in sorted(inside)
        for tensor in graph.operators[i].outputs
        if tensor.index in final or any(reader.index not in inside for reader in graph.readers.get(tensor.index, ()))
    ]
    return OperatorGroup(tuple(sorted(inside)), tuple(read.values()), tuple(outputs))

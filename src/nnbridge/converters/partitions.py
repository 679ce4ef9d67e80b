"""Partitions of claimed nodes of a graph, by ONNX Runtime's rule."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import field
from typing import Protocol

from nnbridge.records import dataclass


class PartitionedNode(Protocol):
    """The properties of a node that the rule reads: names of values, empty for omitted ones."""

    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def outputs(self) -> tuple[str, ...]: ...
    @property
    def captured(self) -> tuple[str, ...]: ...


def partitions(
    nodes: Sequence[PartitionedNode], claimed: frozenset[int], folded: frozenset[int], units: Sequence[frozenset[int]]
) -> list[frozenset[int]]:
    """Groups of claimed nodes, between two of which no path leads through a node outside.

    ``folded`` nodes that depend on no other nodes join the first group that reads them. A unit counts as one node.
    """
    free = _free(nodes, folded)
    waves = _Waves.of(nodes, frozenset(range(len(nodes))) - free, units)
    groups = waves.groups(claimed - free)
    group_of = {i: number for number, group in enumerate(groups) for i in group}
    readers = _readers(nodes)
    for i in sorted(free, reverse=True):
        found = [group_of[r] for name in nodes[i].outputs for r in readers.get(name, ()) if r in group_of]
        if found:
            group_of[i] = min(found)
    return [frozenset(i for i, number in group_of.items() if number == k) for k in range(len(groups))]


def _free(nodes: Sequence[PartitionedNode], folded: frozenset[int]) -> frozenset[int]:
    """Folded nodes that read nothing that other nodes write."""
    written: set[str] = set()
    free = set()
    for i, node in enumerate(nodes):
        if i in folded and written.isdisjoint(node.inputs):
            free.add(i)
        else:
            written.update(name for name in node.outputs if name)
    return frozenset(free)


def _readers(nodes: Sequence[PartitionedNode]) -> dict[str, list[int]]:
    """The nodes that read each value."""
    found: dict[str, list[int]] = {}
    for i, node in enumerate(nodes):
        for name in dict.fromkeys((*node.inputs, *node.captured)):
            if name:
                found.setdefault(name, []).append(i)
    return found


@dataclass
class _Waves:
    """A graph of units, passed through from its inputs to its outputs."""

    members: dict[int, list[int]]
    """The nodes of each unit."""
    readers: dict[int, list[int]]
    missing: dict[int, int]
    """How many of a unit's producers have not been passed through."""
    border: set[int] = field(default_factory=set)
    """Units that read what the group writes."""

    @classmethod
    def of(cls, nodes: Sequence[PartitionedNode], included: frozenset[int], units: Sequence[frozenset[int]]) -> _Waves:
        """The graph of the included nodes.

        A node of several units is done again in each: none of them depends on another for it, as ONNX Runtime copies a
        DequantizeLinear for each of its readers.
        """
        members = {max(unit): sorted(unit) for unit in units if unit <= included}
        alone = included.difference(*members.values())
        members.update({i: [i] for i in alone})
        owners: dict[int, list[int]] = {}
        for number in sorted(members):
            for i in members[number]:
                owners.setdefault(i, []).append(number)
        writers = {name: i for i in included for name in nodes[i].outputs if name}
        readers: dict[int, list[int]] = {number: [] for number in members}
        sources: dict[int, set[int]] = {}
        for number in sorted(members):
            inside = set(members[number])
            names = {name for i in inside for name in (*nodes[i].inputs, *nodes[i].captured)}
            written = {writers[name] for name in names if name in writers} - inside
            sources[number] = {owners[i][0] for i in written} - {number}
            for source in sources[number]:
                readers[source].append(number)
        return cls(members, readers, {unit_number: len(found) for unit_number, found in sources.items()})

    def groups(self, claimed: frozenset[int]) -> list[frozenset[int]]:
        """Units whose producers are done are passed through in order; claimed ones join the group.

        One that is not, after the group, is put aside. When nothing else is left, the group is closed, and the next one begins.
        """
        ready, aside = deque(sorted(unit for unit, count in self.missing.items() if not count)), deque[int]()
        found: list[frozenset[int]] = []
        group: set[int] = set()
        while ready or aside:
            if not ready:
                found.append(frozenset(group))
                group, ready, aside = set(), aside, deque()
                self.border.clear()
                continue
            unit = ready.popleft()
            if unit in claimed:
                group.update(self.members[unit])
                self.border.update(self.readers[unit])
            elif unit in self.border:
                aside.append(unit)
                continue
            for reader in self.readers[unit]:
                self.missing[reader] -= 1
                if not self.missing[reader]:
                    ready.append(reader)
        return [group_ for group_ in (*found, frozenset(group)) if group_]

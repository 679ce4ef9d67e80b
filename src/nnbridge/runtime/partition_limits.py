"""The limit on delegated partitions that TFLite's NNAPI delegate sets (``max_number_delegated_partitions``).

TFLite groups a graph's nodes into delegated partitions and partitions that stay, alternating: the first node that is ready
decides which kind comes next, and all nodes of that kind that become ready join. If there are more delegated partitions
than the limit, those with the most nodes are delegated. What NNAPI's drivers accept here counts as delegated; a node is an
operator of the source file (:class:`~nnbridge.model.Source`), which may be several operations.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nnbridge.devices.device import Device
from nnbridge.errors import Reason, Why
from nnbridge.model import Operation, Subgraph
from nnbridge.runtime.partitioner import count_written
from nnbridge.runtime.placement import Answer, Placement

TFLITE_DEFAULT = 3
"""The default limit of TFLite's NNAPI delegate."""


def limit_partitions(
    main: Subgraph, placements: Sequence[Placement], devices: Sequence[Device], limit: int
) -> tuple[Placement, ...]:
    """Placements in which at most ``limit`` partitions go to drivers (0: no limit); the others go to the CPU.

    The largest are delegated, the earlier ones where sizes are equal. With a limit, an operator of which drivers accept only
    some operations goes to the CPU as well. The host computes what is no operation of NNAPI; an operation that neither can
    run is left without device.
    """
    if not limit:
        return tuple(placements)
    changed = list(placements)
    for i in _partly_supported(main, placements, devices):
        changed[i] = _on_cpu(
            placements[i],
            devices,
            Reason("an operator that drivers accept as a whole, as TFLite's delegate requires", kind=Why.PARTITIONS),
        )
    found = delegated_partitions(main, [_on_driver(placement, devices) for placement in changed])
    ranked = sorted(range(len(found)), key=lambda k: -_nodes(main, found[k]))
    for k in ranked[limit:]:
        why = _beyond(limit, len(found), _nodes(main, found[k]))
        for i in found[k]:
            changed[i] = _on_cpu(changed[i], devices, why)
    return tuple(changed)


def undelegated(main: Subgraph, refusals: Sequence[Reason | None], limit: int) -> Mapping[int, Reason]:
    """Operators of the source file that stay with its own runtime where NNAPI's CPU is disallowed: index → why.

    As TFLite's delegate leaves them: those of which the devices refuse an operation, and those of the smaller partitions beyond
    ``limit`` (0: no limit). ``refusals``: of each operation, None where a device supports it.
    """
    sources = [operation.source for operation in main.operations]
    left = {source: why for source, why in zip(sources, refusals, strict=True) if why is not None}
    found = delegated_partitions(main, [source not in left for source in sources])
    for members in sorted(found, key=lambda members: -_nodes(main, members))[limit or len(found) :]:
        left |= dict.fromkeys((sources[i] for i in members), _beyond(limit, len(found), _nodes(main, members)))
    return {source.index: why for source, why in left.items() if source is not None and not source.callers}


def _beyond(limit: int, partitions: int, nodes: int) -> Reason:
    """The reason why a partition of so many operators is not handed over."""
    return Reason(
        f"one of the {limit} largest of {partitions} delegated partitions (--max-partitions {limit})",
        f"one of {nodes} operator{'' if nodes == 1 else 's'}",
        kind=Why.PARTITIONS,
    )


def _on_driver(placement: Placement, devices: Sequence[Device]) -> bool:
    return placement.device is not None and devices[placement.device].kind == "device"


def _partly_supported(main: Subgraph, placements: Sequence[Placement], devices: Sequence[Device]) -> list[int]:
    """Operations on drivers whose operator in the source file has others elsewhere; the delegate leaves such operators."""
    sources = [operation.source for operation in main.operations]
    elsewhere = {sources[p.operation] for p in placements if not _on_driver(p, devices)} - {None}
    return [p.operation for p in placements if _on_driver(p, devices) and sources[p.operation] in elsewhere]


def _on_cpu(placement: Placement, devices: Sequence[Device], why: Reason) -> Placement:
    """On the CPU, or the host; drivers that accepted the operation are refused for this reason."""
    others = (k for kind in ("cpu", "host") for k, device in enumerate(devices) if device.kind == kind)
    cpu = next((k for k in others if placement.answers[k].supported), None)
    answers = tuple(
        Answer(answer.device, None, why) if answer.supported and device.kind == "device" else answer
        for answer, device in zip(placement.answers, devices, strict=True)
    )
    return replace(placement, device=cpu, answers=answers)


def delegated_partitions(main: Subgraph, delegated: Sequence[bool]) -> list[list[int]]:
    """Operations of each delegated partition, as TFLite's ``PartitionGraphIntoIndependentNodeSubsets`` groups them."""
    order = _file_order(main.operations)
    missing = []
    ready: dict[bool, list[tuple[tuple[int, ...], int]]] = {True: [], False: []}
    for i, operation in enumerate(main.operations):
        missing.append(count_written(main, operation))
        if not missing[i]:
            heapq.heappush(ready[delegated[i]], (order[i], i))
    found: list[list[int]] = []
    while ready[True] or ready[False]:
        delegated_next = not ready[False] or (bool(ready[True]) and ready[True][0] < ready[False][0])
        members = []
        while ready[delegated_next]:
            _, i = heapq.heappop(ready[delegated_next])
            members.append(i)
            for operand in main.operations[i].outputs:
                for reader in main.consumers.get(operand, ()):
                    missing[reader] -= 1
                    if missing[reader] == 0:
                        heapq.heappush(ready[delegated[reader]], (order[reader], reader))
        if delegated_next:
            found.append(members)
    return found


def _file_order(operations: Sequence[Operation]) -> list[tuple[int, ...]]:
    """A sort key for each operation: its operator's position in the source file if all have one, else its own in the model."""
    sources = [operation.source for operation in operations if operation.source is not None]
    if len(sources) == len(operations):
        return [(*source.callers, source.index) for source in sources]
    return [(i,) for i in range(len(operations))]


def _nodes(main: Subgraph, members: Sequence[int]) -> int:
    """Operators of the source file; an operation without a source is an operator of its own."""
    return len({main.operations[i].source or i for i in members})

"""The NNAPI models that a phone makes of a file: one for each group of operators that a client hands over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nnbridge.converters.delegation import FAILS_BUILDING, GraphVerdict, PhoneVerdict, stage_of
from nnbridge.converters.mapping import MappingKind
from nnbridge.devices.device import Device
from nnbridge.errors import Reason, Stage
from nnbridge.extensions import readable_operation
from nnbridge.file import ModelFile
from nnbridge.model import Model
from nnbridge.plan import Planned, delegate_target, delegate_verdict
from nnbridge.records import dataclass
from nnbridge.runtime.partition_limits import delegated_partitions
from nnbridge.target import Fallback

Key = tuple[int, int]
"""Subgraph and index of an operator of the file."""


@dataclass(frozen=True)
class HandedPart:
    """One NNAPI model."""

    operations: tuple[int, ...]
    """Indexes of a plan's operations, in its order; empty for parts of bodies, which a plan does not divide."""
    types: tuple[str, ...]
    """What the log calls each of them."""
    keys: tuple[Key, ...]
    """The operator of the file that each comes from."""


def target_drivers(planned: Planned) -> Sequence[Device]:
    """The drivers that TFLite's delegate compiles for; none where NNAPI's CPU takes part."""
    return planned.drivers if planned.fallback is Fallback.APP else ()


def tflite_verdict(planned: Planned) -> PhoneVerdict | None:
    """The verdict of TFLite's delegate on each graph; None for other clients."""
    if planned.mapping != MappingKind.DELEGATE or planned.bound:
        return None
    return delegate_verdict(planned.file, target_drivers(planned), planned.max_partitions)


def building_and_running_failures(planned: Planned) -> Mapping[Key, Reason]:
    """The operators at which the phone fails after the client took them: while it builds the model, or runs it."""
    delegation = planned.file.importer.delegation()
    if delegation is None or planned.mapping != MappingKind.DELEGATE:
        stages = (*FAILS_BUILDING, Stage.RUNNING)
        return {one.key: one.reasons[0] for one in planned.mapped if stage_of(one) in stages}
    target = delegate_target(planned.file, target_drivers(planned))
    return {
        (graph, one.index): one.reasons[0]
        for graph in delegation.graphs()
        for one in delegation.outcomes(graph, delegation.stated(graph), target)
        if stage_of(one) in (Stage.BUILDING, Stage.RUNNING)
    }


def handed_parts(model: Model, verdict: PhoneVerdict | None) -> tuple[HandedPart, ...]:
    """The NNAPI models of a plan's model, by the client's groups where they are known."""
    handed = [operation.mapping != MappingKind.HOST for operation in model.main.operations]
    if verdict is None:
        return tuple(_part(model, group) for group in delegated_partitions(model.main, handed))
    return tuple(_of_nodes(model, handed, graph.subgraph, nodes) for graph in verdict.graphs for nodes in graph.groups)


def every_part(file: ModelFile) -> tuple[HandedPart, ...]:
    """The NNAPI models where no device refuses anything, and no limit holds."""
    whole = file.with_(left=None)
    verdict = delegate_verdict(whole, (), 0) if whole.mapping == MappingKind.DELEGATE else None
    return handed_parts(whole.model, verdict if verdict is not None and verdict.created else None)


def _of_nodes(model: Model, handed: Sequence[bool], subgraph: int, nodes: Iterable[int]) -> HandedPart:
    members = {(subgraph, node) for node in nodes}
    sources = [operation.source for operation in model.main.operations]
    return _part(model, [i for i, one in enumerate(sources) if handed[i] and one and not one.callers and one.key in members])


def _part(model: Model, group: Iterable[int]) -> HandedPart:
    indexes = tuple(sorted(group))
    operations = [model.main.operations[i] for i in indexes]
    keys = tuple((0, i) if o.source is None else o.source.key for i, o in zip(indexes, operations, strict=True))
    return HandedPart(indexes, tuple(readable_operation(model, o) for o in operations), keys)


def stay(graph: GraphVerdict) -> list[int]:
    """The nodes of a graph that stay with TFLite."""
    handed = {node for group in graph.groups for node in group}
    return [node for node in range(graph.operators) if node not in handed]

"""Time of a file's operators on a device, by its cost model: each operator, each partition, all of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace

from nnbridge.estimate.buffering import Buffer
from nnbridge.estimate.cycles import PRODUCTS, Timing, operation_cycles, weight_bytes
from nnbridge.estimate.memory import peak_bytes
from nnbridge.estimate.numbers import Band, Cost
from nnbridge.estimate.partitions import OperatorGroup
from nnbridge.estimate.partitions import group as group_of
from nnbridge.estimate.work import CLAMPS, JOINS, PARTS, TABLES, Work, work_of
from nnbridge.records import dataclass
from nnbridge.source import SourceGraph, SourceOperator


@dataclass(frozen=True)
class OperatorEstimate:
    """One operator on the device."""

    index: int
    operator: str
    kind: str
    """Empty where no formula is known."""
    us: float
    band: tuple[float, float]
    """Factors: the actual time is estimated to lie between ``us`` times these."""
    cycles: float = 0.0
    macs: int = 0
    note: str = ""


@dataclass(frozen=True)
class PartitionEstimate:
    """One group of operators on the device."""

    group: OperatorGroup
    operators: tuple[OperatorEstimate, ...]
    call_us: float
    copy_us: float
    peak_bytes: int
    """Of values, and of weights while they are copied from their memory."""
    weight_bytes: int
    """As the device stores them."""
    buffers: Mapping[int, Buffer] = field(default_factory=dict)
    """Operator that runs by itself → the SRAM for its weights."""

    @property
    def us(self) -> float:
        """Time of one execution, with its call and the copies of its inputs and outputs."""
        return self.call_us + self.copy_us + sum(each.us for each in self.operators)

    @property
    def unknown(self) -> tuple[OperatorEstimate, ...]:
        """Operators without a formula."""
        return tuple(each for each in self.operators if not each.kind)


def partition_estimate(graph: SourceGraph, group: OperatorGroup, cost: Cost) -> PartitionEstimate:
    """A group's operators one by one."""
    members = frozenset(group.operators)
    estimates, weights, buffers = [], 0.0, dict[int, Buffer]()
    slack: float | None = None
    for index in group.operators:
        found, stored, timing = _operator(graph, graph.operators[index], group, members, cost, slack)
        estimates.append(found)
        weights += stored
        if timing is not None and timing.cycles:
            buffers[index], slack = timing.buffer, timing.slack
    copy = group.boundary_bytes / (cost.partition.copy_gbps * 1e3) if cost.partition.copy_gbps else 0.0
    multiple = cost.array.channel_multiple if cost.array else 1
    peak = peak_bytes(graph, group, multiple, buffers, _fused(graph, members))
    return PartitionEstimate(group, tuple(estimates), cost.partition.call_us, copy, peak, round(weights), buffers)


def arena_bytes(graph: SourceGraph, partitions: Sequence[PartitionEstimate], cost: Cost) -> int:
    """Bytes of one memory for all values of a file, those of operators on the CPU included."""
    everything = range(len(graph.operators))
    buffers = {index: buffer for each in partitions for index, buffer in each.buffers.items()}
    members = [frozenset(each.group.operators) for each in partitions]
    fused = [index for each in members for index in _fused(graph, each)]
    elsewhere = frozenset(everything).difference(*members)
    multiple = cost.array.channel_multiple if cost.array else 1
    return peak_bytes(graph, group_of(graph, everything), multiple, buffers, fused, elsewhere)


def _fused(graph: SourceGraph, members: Collection[int]) -> list[int]:
    """Operators of a group that others compute."""
    return [index for index in sorted(members) if fused_into(graph, graph.operators[index], members) is not None]


def _operator(
    graph: SourceGraph, operator: SourceOperator, group: OperatorGroup, members: Collection[int], cost: Cost, slack: float | None
) -> tuple[OperatorEstimate, float, Timing | None]:
    """The estimate, the bytes of weights, and the times on an array if it runs by itself on one."""
    work = work_of(operator)
    if work is None:
        return OperatorEstimate(operator.index, operator.name, "", 0.0, Band.UNKNOWN, note="no formula is known"), 0.0, None
    band = cost.band.of(work.kind) if cost.band else Band.UNKNOWN
    if cost.array is None:
        assert cost.rates is not None  # a cost model has one of the two
        read = work.weight_bytes + sum(t.bytes for t in (*operator.computed, *operator.outputs))
        us = 0.0 if work.kind == "view" else 1e6 * max(work.macs / cost.rates.macs_per_second, read / cost.rates.bytes_per_second)
        return OperatorEstimate(operator.index, operator.name, work.kind, us, band, 0.0, work.macs), work.weight_bytes, None
    fused = fused_into(graph, operator, members)
    if fused is not None:
        note = f"fused into operator {fused.index}"
        return OperatorEstimate(operator.index, operator.name, work.kind, 0.0, (1.0, 1.0), note=note), 0.0, None
    work = _in_place(graph, operator, work, group, members)
    timing = operation_cycles(work, cost.array, table=_looks_up(graph, operator, members), slack=slack)
    us = timing.cycles / cost.array.clock_mhz
    stored = weight_bytes(work, cost.array) if work.weight_bytes else 0.0
    found = OperatorEstimate(operator.index, operator.name, work.kind, us, band, timing.cycles, work.macs)
    return found, stored, timing


def fused_into(graph: SourceGraph, operator: SourceOperator, members: Collection[int]) -> SourceOperator | None:
    """The operator of the group that computes an activation with its own output; None if it runs by itself."""
    if operator.name not in TABLES | CLAMPS or len(operator.computed) != 1:
        return None
    source = operator.computed[0]
    producer = graph.producers.get(source.index)
    if producer is None or producer.index not in members or len(graph.readers[source.index]) > 1 or source.bits != 8:
        return None
    if any(tensor.index == source.index for tensor in graph.outputs):
        return None
    if producer.options.get("fused_activation_function"):
        return None
    work = work_of(producer)
    return producer if work is not None and work.kind in (*PRODUCTS, "elementwise", "pool") else None


def _looks_up(graph: SourceGraph, operator: SourceOperator, members: Collection[int]) -> bool:
    """True if a table is fused into an operator."""
    readers = graph.readers.get(operator.outputs[0].index, ())
    return any(reader.name in TABLES and fused_into(graph, reader, members) is operator for reader in readers)


def _in_place(graph: SourceGraph, operator: SourceOperator, work: Work, group: OperatorGroup, members: Collection[int]) -> Work:
    """The work without copies of parts that are written where they belong; maps at the boundary are stored as they are."""
    outer = {tensor.index for tensor in (*group.inputs, *group.outputs)}
    plain = tuple(tensor.index in outer for tensor in (*operator.computed, operator.outputs[0]))
    if operator.name in JOINS:
        work = _copying(work, [not _written_in_place(graph, t.index, members) for t in operator.computed])
    if operator.name in PARTS:
        work = _copying(work, [not _read_in_place(graph, t.index, outer) for t in operator.outputs])
        if len(operator.outputs) == 1 and operator.outputs[0].elements == max(t.elements for t in operator.computed):
            work = replace(work, parts=())
    return replace(work, plain=plain if len(plain) == len(work.inputs) + 1 else ())


def _copying(work: Work, copied: Sequence[bool]) -> Work:
    """The work with those of its parts that are copied."""
    return replace(work, parts=tuple(part for part, moved in zip(work.parts, copied, strict=True) if moved))


def _read_in_place(graph: SourceGraph, index: int, outer: Collection[int]) -> bool:
    """A part that only operators of the group read is read where it is, unless it is joined with others."""
    return index not in outer and not any(reader.name in JOINS for reader in graph.readers.get(index, ()))


def _written_in_place(graph: SourceGraph, index: int, members: Collection[int]) -> bool:
    producer = graph.producers.get(index)
    return producer is not None and producer.index in members and len(graph.readers[index]) == 1

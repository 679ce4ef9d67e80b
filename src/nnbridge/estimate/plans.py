"""The estimate of a file on one device beside a CPU: partitions, whether delegating pays, and which cut is best."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from nnbridge import toml
from nnbridge.errors import InputError, Reason
from nnbridge.estimate.cut import Cut, CutOption, best_cut, largest
from nnbridge.estimate.network import PartitionEstimate, arena_bytes, partition_estimate
from nnbridge.estimate.numbers import Cost
from nnbridge.estimate.partitions import OperatorGroup, group, groups
from nnbridge.estimate.reading import cost_of
from nnbridge.estimate.work import work_of
from nnbridge.records import dataclass
from nnbridge.source import SourceGraph

CPUS = Path(__file__).parent / "cpus.toml"
TFLITE_CHOICES = (1, 3, 0)
"""Numbers of partitions that TFLite's delegates take: the GPU's, NNAPI's, all."""
_RUNS = 400
"""Operators of a group up to which runs within it are looked at."""


@dataclass(frozen=True)
class Choice:
    """The delegated partitions, and their cost."""

    name: str
    cut: Cut
    us: float
    """Of the whole file, the CPU's part included."""


@dataclass(frozen=True)
class Estimate:
    """A file on a device, beside a CPU."""

    device: str
    cost: Cost
    cpu: str
    cpu_cost: Cost
    partitions: tuple[PartitionEstimate, ...]
    cpu_us: float
    """Everything on the CPU."""
    choices: tuple[Choice, ...]
    """The CPU only, TFLite's rules, and the best cut, in this order."""
    limit: int | None
    arena_bytes: int
    """One memory for all values of the file, those of the CPU included."""

    @property
    def best(self) -> Choice:
        """The best cut."""
        return self.choices[-1]

    @property
    def us(self) -> float:
        """Every partition delegated, the rest on the CPU."""
        return next(choice.us for choice in self.choices if choice.name == "all partitions")

    @property
    def unknown(self) -> tuple[str, ...]:
        """Operators on the device for which no formula is known, by name."""
        return tuple(dict.fromkeys(o.operator for p in self.partitions for o in p.unknown))


@cache
def cpus() -> dict[str, Cost]:
    """The CPUs whose rates are known, by name."""

    def refuse(key: str, rule: str, found: object) -> None:
        raise InputError(Reason(rule, str(found), str(CPUS), key))

    tables: dict[str, dict[str, Any]] = toml.parse(CPUS.read_text())
    return {name: cost_of(table, refuse) for name, table in tables.items()}


def cpu_named(name: str) -> Cost:
    """A CPU's cost model; InputError for others."""
    if name not in cpus():
        raise InputError(Reason(f"a CPU whose rates are known ({', '.join(cpus())})", name, operand="cpu"))
    return cpus()[name]


def cpu_us(graph: SourceGraph, operators: Collection[int], cost: Cost) -> float:
    """Time of operators on a CPU; those without a formula by their bytes only."""
    assert cost.rates is not None  # the CPUs have no arrays
    total = 0.0
    for index in operators:
        operator = graph.operators[index]
        work = work_of(operator)
        moved = sum(tensor.bytes for tensor in (*operator.computed, *operator.outputs))
        macs, weights, view = (work.macs, work.weight_bytes, work.kind == "view") if work else (0, 0, False)
        if not view:
            total += 1e6 * max(macs / cost.rates.macs_per_second, (moved + weights) / cost.rates.bytes_per_second)
    return total


def estimate(
    graph: SourceGraph, accepted: Collection[int], device: str, cost: Cost | None, cpu: str, limit: int | None = None
) -> Estimate:
    """Times of a file's partitions and of the choices among them; InputError where the device's numbers are not known."""
    if cost is None:
        rule = "no timing is known: the profile has no cost model (a data sheet's numbers or published latencies)"
        raise InputError(Reason(rule, operation=device))
    cpu_cost = cpu_named(cpu)
    found = groups(graph, frozenset(accepted))
    partitions = tuple(partition_estimate(graph, each, cost) for each in found)
    alone = cpu_us(graph, range(len(graph.operators)), cpu_cost)
    whole = [_option(graph, number, p, cpu_cost) for number, p in enumerate(partitions)]
    runs = [] if limit is None else _runs(graph, partitions, whole, cost, cpu_cost, limit)
    choices = [Choice("CPU only", Cut(()), alone)]
    for count in TFLITE_CHOICES:
        name = "all partitions" if count == 0 else f"the {count} largest" if count > 1 else "the largest"
        cut = largest(whole, count, None if count == 0 else limit)
        choices.append(Choice(name, cut, alone - cut.gain_us))
    best = best_cut([*whole, *runs], limit)
    choices.append(Choice("best cut", best, alone - best.gain_us))
    return Estimate(device, cost, cpu, cpu_cost, partitions, alone, tuple(choices), limit, arena_bytes(graph, partitions, cost))


def _option(graph: SourceGraph, number: int, partition: PartitionEstimate, cpu_cost: Cost) -> CutOption:
    gain = cpu_us(graph, partition.group.operators, cpu_cost) - partition.us
    needed = partition.weight_bytes + partition.peak_bytes
    return CutOption(number, partition.group.operators, gain, needed, partition.peak_bytes)


def _runs(
    graph: SourceGraph,
    partitions: Sequence[PartitionEstimate],
    whole: Sequence[CutOption],
    cost: Cost,
    cpu_cost: Cost,
    limit: int,
) -> list[CutOption]:
    """Of groups that do not fit: for each operator the longest run from it, and up to it, that fits."""
    found: dict[tuple[int, ...], CutOption] = {}
    for option, partition in zip(whole, partitions, strict=True):
        members = partition.group.operators
        if option.bytes <= limit or len(members) > _RUNS:
            continue

        def run(first: int, last: int, number: int = option.group, members: tuple[int, ...] = members) -> CutOption:
            made = found.get(members[first:last])
            if made is None:
                inner: OperatorGroup = group(graph, members[first:last])
                made = found[members[first:last]] = _option(graph, number, partition_estimate(graph, inner, cost), cpu_cost)
            return made

        end = 1
        for start in range(len(members)):
            end = max(end, start + 1)
            while end <= len(members) and run(start, end).bytes <= limit:
                end += 1
    return [option for option in found.values() if option.bytes <= limit]

"""A plan as a page's data: what runs where, why nowhere else, and what goes from partition to partition."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from nnbridge.cost import PlanCost, bytes_alive, cost_of, run_order, tensor_bytes
from nnbridge.errors import Why
from nnbridge.extensions import readable_operation
from nnbridge.model import Subgraph
from nnbridge.plan import Planned
from nnbridge.plan_data import PLACES
from nnbridge.report.outcomes import reasons_off
from nnbridge.report.page.numbering import Numbering
from nnbridge.report.page.schema import Json, PlanData, RunnerData, StepData
from nnbridge.report.plan import devices_as_dict
from nnbridge.runtime.partitioner import ExecutionStep, Partition
from nnbridge.runtime.plan import Plan

_SHARED = (Why.OPERATOR.value, Why.PARTITIONS.value)
_KEYS = {PLACES["cpu"]: "C", PLACES["host"]: "H"}


def plan_data(planned: Planned, numbering: Numbering, cost: PlanCost) -> PlanData:
    """A finished plan."""
    plan, summary = planned.compilation.plan, planned.summary
    runners = _runners(plan)
    number = {id(device): k for k, device in enumerate(plan.devices)}
    step_of = {(step.source, i): k for k, step in enumerate(plan.steps) for i in step.operations}
    known = _Reasons()
    outcomes = {m.key: m for m in planned.mapped}
    placed, why = [], []
    for source, placement in plan.placed():
        device = plan.device_of(placement.operation, source)
        placed.append(number.get(id(device), -1))
        why.append([known.index(reason) for reason in reasons_off(plan, placement, source, outcomes, planned.mapping)])
    return {
        "asked": list(summary.devices),
        "runners": runners,
        "r": placed,
        "k": [step_of.get((source, placement.operation), -1) for source, placement in plan.placed()],
        "why": why,
        "reasons": known.listed,
        "steps": [_step(plan, step, numbering, step_of) for step in plan.steps],
        "order": [numbering.operation(*at) for at in run_order(plan.partition)],
        "crossing": cost.crossing_bytes,
        "live": list(bytes_alive(plan.partition)),
        "fallback": str(plan.fallback) if plan.fallback else None,
        "judgement": summary.judgement,
        "sentence": summary.sentence,
        "counts": {
            "unit": summary.unit,
            "total": summary.operators,
            "device": summary.on_device,
            "elsewhere": summary.elsewhere,
            "foreign": summary.foreign,
            "host": summary.host,
            "refused": bool(summary.refusal or summary.graphs),
        },
    }


def against_data(other: Planned, first: Planned) -> Json:
    """Another plan of the same file: the places of the first plan's operations in it, and bodies that only it cuts."""
    mine, theirs = first.compilation.plan.partition, other.compilation.plan.partition
    numbering, cost = Numbering.of(theirs), cost_of(other.compilation.plan)
    data = plan_data(other, numbering, cost)
    there = _counterparts(mine, theirs)
    here = _counterparts(theirs, mine)
    names = {mine.within(k) for k in range(len(mine.sources))}
    inner = [
        {
            "t": readable_operation(source.model, operation),
            "of": here[number] or 0,
            "within": theirs.within(k),
            "r": data["r"][number],
            "why": data["why"][number],
            "mac": cost.operations[number].multiply_adds,
        }
        for k, source in enumerate(theirs.sources)
        if theirs.within(k) not in names
        for number, operation in enumerate(source.model.main.operations, numbering.operations[k])
    ]
    cut: Json = {
        key: data[key]
        for key in ("asked", "runners", "reasons", "steps", "crossing", "fallback", "judgement", "sentence", "counts")
    }
    places = [-1 if i is None else data["r"][i] for i in there]
    return {**cut, "r": places, "why": [[] if i is None else data["why"][i] for i in there], "inner": inner}


def _counterparts(of: Partition, among: Partition) -> list[int | None]:
    """For each operation of a partition its number in another one, or that of the IF or WHILE that a device runs whole there.

    What devices refuse changes the conversion: where the operations are not the same, an operation's counterpart is the first one
    that came from the same operator of the file; None where there is none.
    """
    numbering = Numbering.of(among)
    known = {among.within(k): k for k in range(len(among.sources))}
    places = [known.get(of.within(k)) for k in range(len(of.sources))]
    same = [
        None if place is None else _indices(of.sources[k].model.main, among.sources[place].model.main)
        for k, place in enumerate(places)
    ]

    def number(source: int, index: int) -> int | None:
        place, indices, parent = places[source], same[source], of.sources[source].parent
        if place is None or indices is None:
            return number(*parent or (0, 0))
        found = indices[index]
        return None if found is None else numbering.operation(place, found)

    return [number(k, i) for k, source in enumerate(of.sources) for i in range(len(source.model.main.operations))]


def _indices(mine: Subgraph, theirs: Subgraph) -> Sequence[int | None]:
    """For each operation of a subgraph the index of its counterpart in another conversion of the same graph."""
    if [o.type for o in mine.operations] == [o.type for o in theirs.operations]:
        return range(len(mine.operations))
    first: dict[object, int] = {}
    for index, operation in enumerate(theirs.operations):
        first.setdefault(operation.source, index)
    return [None if o.source is None else first.get(o.source) for o in mine.operations]


def _runners(plan: Plan) -> list[RunnerData]:
    """The plan's devices in its order; drivers are numbered."""
    found: list[RunnerData] = []
    for facts in devices_as_dict(plan.devices):
        drivers = sum(runner["place"] == PLACES["device"] for runner in found)
        found.append(
            {
                "name": facts["name"],
                "place": facts["place"],
                "key": _KEYS.get(facts["place"], str(drivers + 1)),
                "version": facts["version"],
                "level": facts["feature_level"],
                "type": facts["type"],
                "declared": {name.replace("_float", " float"): each["exec_time"] for name, each in facts["performance"].items()},
            }
        )
    return found


class _Reasons:
    """Reasons, each once."""

    def __init__(self) -> None:
        self.listed: list[Json] = []
        self._index: dict[str, int] = {}

    def index(self, reason: Json) -> int:
        """The number of a reason. Reasons of :data:`_SHARED` kinds find the operation itself: one is enough for all."""
        own = {"operation", "found"} if reason.get("kind") in _SHARED else {"operation"}
        stated = {key: value for key, value in reason.items() if key not in own and value is not None}
        key = json.dumps(stated, sort_keys=True, default=str)
        if key not in self._index:
            self._index[key] = len(self.listed)
            self.listed.append(stated)
        return self._index[key]


def _step(plan: Plan, step: ExecutionStep, numbering: Numbering, step_of: dict[tuple[int, int], int]) -> StepData:
    source, main = step.source, plan.partition.sources[step.source].model.main
    inner = source > 0
    passed, returned = set(main.inputs), set(main.outputs)

    def elsewhere(operand: int) -> bool:
        producer = main.producers.get(operand)
        by_other = producer is not None and step_of.get((source, producer)) != step.number
        return by_other or (inner and operand in passed)

    def leaves(operand: int) -> bool:
        readers = main.consumers.get(operand, ())
        by_other = any(step_of.get((source, reader)) != step.number for reader in readers)
        return by_other or (inner and operand in returned)

    coming = [i for i in step.inputs if elsewhere(i)]
    going = [i for i in step.outputs if leaves(i)]
    return {
        "r": step.device,
        "ops": [numbering.operation(source, i) for i in step.operations],
        "ins": [numbering.operand(source, i) for i in coming],
        "outs": [numbering.operand(source, i) for i in going],
        "bi": _sum(main, coming),
        "bo": _sum(main, going),
    }


def _sum(main: Subgraph, operands: Iterable[int]) -> int | None:
    sizes = [tensor_bytes(main.operands[i]) for i in operands if main.operands[i].is_tensor]
    return None if None in sizes else sum(size or 0 for size in sizes)

"""Outcome of each operator of a file: the devices that run it, in which steps, and why no other does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from nnbridge.compare.tensors import file_names
from nnbridge.converters.inspection import ON_NNAPI, Mapped
from nnbridge.converters.structure import FileGraph
from nnbridge.devices.cpu import CPU_NAME
from nnbridge.devices.host import HOST_NAME
from nnbridge.extensions import readable_operation
from nnbridge.model import Operation
from nnbridge.plan_data import bound_devices, reasons
from nnbridge.records import dataclass
from nnbridge.report.plan import reason_line
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.placement import Placement
from nnbridge.runtime.plan import Plan
from nnbridge.summary import who_refuses
from nnbridge.target import PREFERENCES

Key = tuple[int, int]
"""Number of a graph of the file and index of an operator there."""

NOWHERE = {
    "folded": "folded: computed when the file is converted",
    "dead": "dead: no output depends on it",
    "inlined": "inlined: the operators that it calls replace it",
    "state": "state: it reads or writes what is stored between runs",
}
"""Mapping of operators that nothing runs → what is said about them."""
_MERGED = "merged: part of another operator's operation"


@dataclass
class OperatorOutcome:
    """One operator."""

    devices: dict[str, str] = field(default_factory=dict)
    """Names of the devices that run it → their kinds."""
    steps: list[int] = field(default_factory=list)
    """Numbers of the execution steps."""
    reasons: list[str] = field(default_factory=list)
    """Why other devices do not run it."""
    nowhere: str = ""
    """Why nothing runs it."""
    merged: bool = False
    """It is part of another operator's operation, whose devices and steps these are."""

    @property
    def placement(self) -> str:
        """The devices, or why there are none."""
        return " + ".join(self.devices) + (" (merged)" if self.merged else "") if self.devices else self.nowhere

    @property
    def kind(self) -> str:
        """The kind of the slowest place: host, then NNAPI's runtime and CPU, then a device; empty for none."""
        return next((kind for kind in ("host", "runtime", "cpu", "device") if kind in self.devices.values()), "")


@dataclass(frozen=True)
class _Placed:
    key: Key
    operation: Operation
    device: str
    kind: str
    step: int | None
    reasons: tuple[str, ...]
    computes: tuple[str, ...]
    """Names of the operands that it computes."""


def outcomes_of(
    compilation: Compilation, mapped: Sequence[Mapped], graphs: Sequence[FileGraph], *, own: bool = True
) -> dict[Key, OperatorOutcome]:
    """Every operator of a finished compilation's file; ``own``: the graphs are the file's, not those of the NNAPI model."""
    found: dict[Key, OperatorOutcome] = {}
    made: dict[str, OperatorOutcome] = {}
    mappings = {m.key: m for m in mapped}
    for placed in _placed(compilation):
        at = placed.operation.source
        key = placed.key if not own or at is None else at.key
        if own and (at is None or (mapped and key not in mappings)):
            continue  # what the conversion added, or a part that other formats have inside of an operator
        outcome = found.setdefault(key, OperatorOutcome())
        outcome.devices.setdefault(placed.device, placed.kind)
        if placed.step is not None and placed.step not in outcome.steps:
            outcome.steps.append(placed.step)
        outcome.reasons += [line for line in placed.reasons if line not in outcome.reasons]
        made |= {name: outcome for computed in placed.computes for name in file_names(computed)}
    handed = not _only_before_nnapi(compilation.plan)
    for key, each in mappings.items():
        outcome = found.setdefault(key, OperatorOutcome())
        outcome.nowhere = "" if outcome.devices else NOWHERE.get(each.mapping, _MERGED)
        if each.mapping not in ON_NNAPI and handed:
            outcome.reasons += [f"NNAPI: requires {r.rule}" + (f", found {r.found}" if r.found else "") for r in each.reasons]
    for graph in graphs:
        _place_merged(graph, found, made)
    return dict(sorted(found.items()))


def reasons_off(
    plan: Plan, placement: Placement, source: int, mapped: Mapping[Key, Mapped], mapping: str
) -> list[dict[str, Any]]:
    """The reason why an operation runs nowhere else: of one on the host, the rule by which the file's operator was not handed
    to NNAPI.

    The host refuses nothing of a driver's: it takes what NNAPI cannot express. Devices before NNAPI are handed nothing: they
    answer for each operator themselves.
    """
    operation = plan.partition.sources[source].model.main.operations[placement.operation]
    on_host = plan.device_of(placement.operation, source).kind == "host"
    if on_host and operation.source is not None and not _only_before_nnapi(plan):
        found = mapped.get(operation.source.key)
        if found is not None and found.reasons:
            return [{"device": who_refuses(found.reasons[0], mapping), **found.reasons[0].as_dict(), "host": True}]
    return [reason for reason in reasons(plan, placement, source) if reason["device"] != HOST_NAME]


def _only_before_nnapi(plan: Plan) -> bool:
    """True if every driver of a plan looks at the file's operators: nothing is handed to NNAPI."""
    bound = bound_devices(plan)
    return bool(bound) and len(bound) == sum(device.kind == "device" for device in plan.devices)


def _place_merged(graph: FileGraph, found: Mapping[Key, OperatorOutcome], made: Mapping[str, OperatorOutcome]) -> None:
    """The place of an operator that another operator's operation computes is that one; of one that nothing computes, where it
    is read."""
    readers: dict[int, OperatorOutcome] = {}
    for operator in reversed(graph.operators):
        outcome = found.get((graph.number, operator.index))
        if outcome is None:
            continue
        if outcome.nowhere == _MERGED:
            computed = (made.get(graph.tensors[i]) for i in operator.outputs)
            read = (readers.get(i) for i in operator.outputs)
            other = next((o for o in (*computed, *read) if o is not None and o.devices), None)
            if other is not None:
                outcome.devices, outcome.steps, outcome.merged = dict(other.devices), list(other.steps), True
        readers |= dict.fromkeys(operator.inputs, outcome)


def _placed(compilation: Compilation) -> Iterator[_Placed]:
    """Every operation, those of bodies that a device runs as a whole included, which are where their IF or WHILE is."""
    plan, model = compilation.plan, compilation.model
    measure = "power use" if compilation.preference == PREFERENCES["low-power"] else "execution time"
    sources = plan.partition.sources
    children: dict[Key, list[int]] = {}
    for number, source in enumerate(sources):
        if source.parent is not None:
            children.setdefault(source.parent, []).append(number)
    steps = {(step.source, i): number for number, step in enumerate(plan.steps) for i in step.operations}
    subgraphs = model.subgraphs()

    def walk(graph: int, source: int | None, around: _Placed | None) -> Iterator[_Placed]:
        placements = () if source is None else plan.placements if not source else sources[source].placements
        for i, operation in enumerate(subgraphs[graph].operations):
            kind_of = readable_operation(model, operation)
            names = tuple(subgraphs[graph].operands[k].name for k in operation.outputs)
            if source is None and around is not None:
                here = _Placed((graph, i), operation, around.device, around.kind, around.step, around.reasons, names)
            else:
                number = source or 0
                device = plan.device_of(i, number)
                # The CPU computes what is left, the host what NNAPI cannot express: neither refuses anything of a driver's.
                known = {HOST_NAME, *([CPU_NAME] if device.kind == "device" else [])}
                silent = device.kind == "host" and not _only_before_nnapi(plan)
                others = () if silent else reasons(plan, placements[i], number)
                lines = tuple(reason_line(r, kind_of, measure) for r in others if r["device"] not in known)
                here = _Placed((graph, i), operation, device.name, device.kind, steps.get((number, i)), lines, names)
            yield here
            own = [] if source is None else children.get((source, i), [])
            for k, body in enumerate(subgraphs[graph].bodies(operation)):
                yield from walk(1 + body, own[k] if own else None, here)

    return walk(0, 0, None)

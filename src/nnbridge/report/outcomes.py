"""What becomes of each operator of a file: the devices that run it, in which steps, and why no other does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from nnbridge.converters.inspection import Mapped
from nnbridge.devices.host import HOST_NAME
from nnbridge.extensions import readable_operation
from nnbridge.model import Operation, Subgraph
from nnbridge.report import PREFERENCES
from nnbridge.report.inspection import ON_NNAPI
from nnbridge.report.plan import reason_line, reasons
from nnbridge.runtime.compilation import Compilation
from nnbridge.types import Lifetime

Key = tuple[int, int]
"""Number of a graph of the file and index of an operator there."""

NOWHERE = {
    "folded": "folded: computed when the file is converted",
    "dead": "dead: no output depends on it",
    "inlined": "inlined: the operators that it calls stand in its place",
    "state": "state: it reads or writes what is stored between runs",
}
"""Mapping of operators that nothing runs → what is said of them."""
MERGED = "merged: part of another operator's operation"


@dataclass
class OperatorOutcome:
    """One operator."""

    operator: str
    devices: dict[str, str] = field(default_factory=dict)
    """Names of the devices that run it → their kinds."""
    steps: list[int] = field(default_factory=list)
    """Numbers of the execution steps."""
    reasons: list[str] = field(default_factory=list)
    """Why other devices do not run it."""
    nowhere: str = ""
    """Why nothing runs it."""

    @property
    def placement(self) -> str:
        """The devices, or why there are none."""
        return " + ".join(self.devices) or self.nowhere

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
    type: str


def outcomes_of(compilation: Compilation, mapped: Sequence[Mapped] = (), *, saved: bool = False) -> dict[Key, OperatorOutcome]:
    """Every operator of a finished compilation's file, in the file's order; ``saved``: operations are the operators."""
    found: dict[Key, OperatorOutcome] = {}
    mappings = {(m.subgraph, m.index): m for m in mapped}
    for placed in _placed(compilation):
        at = placed.operation.source
        key = placed.key if saved or at is None else (at.subgraph, at.index)
        if not saved and (at is None or (mapped and key not in mappings)):
            continue  # what the conversion added, or a part that other formats keep inside of an operator
        facts = found.setdefault(key, OperatorOutcome(placed.type if at is None or saved else at.operator))
        facts.devices.setdefault(placed.device, placed.kind)
        if placed.step is not None and placed.step not in facts.steps:
            facts.steps.append(placed.step)
        facts.reasons += [line for line in placed.reasons if line not in facts.reasons]
    for key, outcome in mappings.items():
        facts = found.setdefault(key, OperatorOutcome(outcome.operator))
        if not facts.devices:
            facts.nowhere = NOWHERE.get(outcome.mapping, MERGED)
        if outcome.mapping not in ON_NNAPI:
            facts.reasons += [f"NNAPI: requires {r.rule}" + (f", found {r.found}" if r.found else "") for r in outcome.reasons]
    return dict(sorted(found.items()))


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
            if source is None and around is not None:
                here = _Placed((graph, i), operation, around.device, around.kind, around.step, around.reasons, kind_of)
            else:
                number = source or 0
                device = plan.device_of(i, number)
                others = [r for r in reasons(plan, placements[i], number) if r["device"] != HOST_NAME or device.kind == "host"]
                lines = () if device.kind == "host" else tuple(reason_line(r, kind_of, measure) for r in others)
                here = _Placed((graph, i), operation, device.name, device.kind, steps.get((number, i)), lines, kind_of)
            yield here
            own = [] if source is None else children.get((source, i), [])
            for k, body in enumerate(_bodies(subgraphs[graph], operation)):
                yield from walk(1 + body, own[k] if own else None, here)

    return walk(0, 0, None)


def _bodies(subgraph: Subgraph, operation: Operation) -> list[int]:
    operands = (subgraph.operands[i] for i in operation.inputs)
    return [operand.location.offset for operand in operands if operand.lifetime is Lifetime.SUBGRAPH]

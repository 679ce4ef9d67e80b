"""A file's graphs with their partitions as groups, as plain data that an adapter hands to a viewer."""

from __future__ import annotations

import os
import shlex
from argparse import SUPPRESS, ArgumentError, ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nnbridge.api import plan
from nnbridge.converters.structure import FileGraph, graphs_of_model
from nnbridge.errors import InputError, Reason
from nnbridge.records import dataclass
from nnbridge.releases import RUNTIMES
from nnbridge.report.outcomes import OperatorOutcome, outcomes_of
from nnbridge.report.overlay import colours

OPTIONS = "NNBRIDGE_EXPLORER"
"""The environment variable with the options of ``nnbridge plan`` that graphs are planned with."""


@dataclass(frozen=True)
class Edge:
    """From an output of one node to an input of another."""

    source: str
    output: int
    input: int


@dataclass(frozen=True)
class ExplorerNode:
    """One node: an operator, or the graph's inputs or outputs."""

    id: str
    label: str
    group: str
    """The partition; empty outside of all."""
    colour: str
    attributes: Mapping[str, str]
    edges: Sequence[Edge]
    outputs: Sequence[str]
    """Names of its output tensors."""


@dataclass(frozen=True)
class ExplorerGraph:
    """One graph of a file."""

    name: str
    nodes: Sequence[ExplorerNode]


def tint(colour: str) -> str:
    """A light shade of ``#rrggbb``: the viewer writes black on nodes."""
    parts = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return "#" + "".join(f"{255 - (255 - part) * 35 // 100:02x}" for part in parts)


def _typed(text: str) -> dict[str, Any]:
    """Keyword arguments of :func:`nnbridge.api.plan` from options as they are typed; InputError for what is not an option."""
    parser = ArgumentParser(prog=OPTIONS, add_help=False, exit_on_error=False, argument_default=SUPPRESS)
    parser.add_argument("--device", action="append")
    parser.add_argument("--shape", action="append", type=_shape)
    for name in (
        "android",
        "fallback",
        "preference",
        "partitioning",
        "host",
        "mapping",
        "layout",
        "signature",
        "float64",
        "kernels",
        *RUNTIMES,
    ):
        parser.add_argument(f"--{name}")
    for name in ("feature-level", "max-partitions", "threads"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--cache-dir", type=Path)
    parser.add_argument("--allow-dynamic-dimensions", action="store_true")
    try:
        found, others = parser.parse_known_args(shlex.split(text))
    except (ArgumentError, ValueError) as error:
        raise InputError(Reason("options of nnbridge plan", str(error), operand=OPTIONS)) from error
    if others:
        raise InputError(Reason("options of nnbridge plan", f"No such option: {others[0]}", operand=OPTIONS))
    words = vars(found)
    if "shape" in words:
        words["shapes"] = dict(words.pop("shape"))
    return words


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, dims = text.rpartition("=")
    return name, tuple(int(d) for d in dims.split(","))


def planned_graphs(path: Path, text: str | None = None) -> list[ExplorerGraph]:
    """The graphs of a file under the options of :data:`OPTIONS`, or of a text like it; InputError for what is not an option."""
    words = os.environ.get(OPTIONS, "") if text is None else text
    planned = plan(path, **_typed(words))
    compilation, mapped, found, own = planned.compilation, planned.mapped, planned.file.graphs, planned.file.has_graphs
    outcomes = outcomes_of(compilation, mapped, found, own=own)
    devices = [device.name for device in compilation.plan.devices if device.kind == "device"]
    names = {
        number: f"partition {number} on {compilation.plan.devices[s.device].name}"
        for number, s in enumerate(compilation.plan.steps)
    }
    colour = colours(devices)
    shown = [ExplorerGraph(graph.name, list(_nodes(graph, outcomes, names, colour))) for graph in found]
    if own and len(found) == 1:  # bodies that the file has within its operators are shown as NNAPI's
        inner = graphs_of_model(compilation.model)[1:]
        outcomes = outcomes_of(compilation, mapped, inner, own=False)
        shown += [ExplorerGraph(graph.name, list(_nodes(graph, outcomes, names, colour))) for graph in inner]
    return shown


def _nodes(
    graph: FileGraph, outcomes: Mapping[Any, OperatorOutcome], groups: Mapping[int, str], colour: Any
) -> Iterator[ExplorerNode]:
    made = {i: (str(o.index), k) for o in graph.operators for k, i in enumerate(o.outputs)}
    made |= {i: (_INPUTS, k) for k, i in enumerate(graph.inputs) if i not in made}
    yield ExplorerNode(_INPUTS, "inputs", "", "", {}, (), [graph.tensors[i] for i in graph.inputs])
    for operator in graph.operators:
        outcome = outcomes.get((graph.number, operator.index))
        group = groups.get(outcome.steps[0], "") if outcome is not None and outcome.steps else ""
        shown = {} if outcome is None else _attributes(outcome)
        background = "" if outcome is None else colour(outcome)
        outputs = [graph.tensors[i] for i in operator.outputs]
        yield ExplorerNode(
            str(operator.index), operator.operator, group, background, shown, _edges(operator.inputs, made), outputs
        )
    yield ExplorerNode(_OUTPUTS, "outputs", "", "", {}, _edges(graph.outputs, made), ())


_INPUTS, _OUTPUTS = "inputs", "outputs"


def _edges(tensors: Sequence[int], made: Mapping[int, tuple[str, int]]) -> list[Edge]:
    return [Edge(*made[i], position) for position, i in enumerate(tensors) if i in made]


def _attributes(outcome: OperatorOutcome) -> dict[str, str]:
    steps = ", ".join(map(str, outcome.steps))
    shown = {"placement": outcome.placement, "partition": steps, "why not elsewhere": "; ".join(outcome.reasons)}
    return {name: value for name, value in shown.items() if value}

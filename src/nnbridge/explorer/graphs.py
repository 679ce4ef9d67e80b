"""A file's graphs with their partitions as groups, as plain data that an adapter hands to a viewer."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from nnbridge.cli.options import compiled, conversion_of, device_options, model_options
from nnbridge.converters.structure import FileGraph, graphs_of_model
from nnbridge.errors import InputError, Reason
from nnbridge.loading import graphs
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
class Node:
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
class Graph:
    """One graph of a file."""

    name: str
    nodes: Sequence[Node]


def tint(colour: str) -> str:
    """A light shade of ``#rrggbb``: the viewer writes black on nodes."""
    parts = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return "#" + "".join(f"{255 - (255 - part) * 35 // 100:02x}" for part in parts)


@click.command()
@device_options
@model_options
def _planning(**options: Any) -> dict[str, Any]:
    """Only parses."""
    return options


def planned_graphs(path: Path, text: str | None = None) -> list[Graph]:
    """The graphs of a file under the options of :data:`OPTIONS`, or of a text like it; InputError for what is no option."""
    typed = os.environ.get(OPTIONS, "") if text is None else text
    try:
        options: dict[str, Any] = _planning.main(shlex.split(typed), prog_name=OPTIONS, standalone_mode=False)
    except (click.ClickException, ValueError) as error:
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        raise InputError(Reason("options of nnbridge plan", message, operand=OPTIONS)) from error
    compilation, mapped = compiled(path, **options)
    found, own = graphs(path, conversion_of(options))
    outcomes = outcomes_of(compilation, mapped, found, own=own)
    devices = [device.name for device in compilation.plan.devices if device.kind == "device"]
    names = {
        number: f"partition {number} on {compilation.plan.devices[s.device].name}"
        for number, s in enumerate(compilation.plan.steps)
    }
    colour = colours(devices)
    planned = [Graph(graph.name, list(_nodes(graph, outcomes, names, colour))) for graph in found]
    if own and len(found) == 1:  # bodies that the file has within its operators are shown as NNAPI's
        inner = graphs_of_model(compilation.model)[1:]
        outcomes = outcomes_of(compilation, mapped, inner, own=False)
        planned += [Graph(graph.name, list(_nodes(graph, outcomes, names, colour))) for graph in inner]
    return planned


def _nodes(graph: FileGraph, outcomes: Mapping[Any, OperatorOutcome], groups: Mapping[int, str], colour: Any) -> Iterator[Node]:
    made = {i: (str(o.index), k) for o in graph.operators for k, i in enumerate(o.outputs)}
    made |= {i: (_INPUTS, k) for k, i in enumerate(graph.inputs) if i not in made}
    yield Node(_INPUTS, "inputs", "", "", {}, (), [graph.tensors[i] for i in graph.inputs])
    for operator in graph.operators:
        outcome = outcomes.get((graph.number, operator.index))
        group = groups.get(outcome.steps[0], "") if outcome is not None and outcome.steps else ""
        shown = {} if outcome is None else _attributes(outcome)
        background = "" if outcome is None else colour(outcome)
        outputs = [graph.tensors[i] for i in operator.outputs]
        yield Node(str(operator.index), operator.operator, group, background, shown, _edges(operator.inputs, made), outputs)
    yield Node(_OUTPUTS, "outputs", "", "", {}, _edges(graph.outputs, made), ())


_INPUTS, _OUTPUTS = "inputs", "outputs"


def _edges(tensors: Sequence[int], made: Mapping[int, tuple[str, int]]) -> list[Edge]:
    return [Edge(*made[i], position) for position, i in enumerate(tensors) if i in made]


def _attributes(outcome: OperatorOutcome) -> dict[str, str]:
    steps = ", ".join(map(str, outcome.steps))
    shown = {"placement": outcome.placement, "partition": steps, "why no other device": "; ".join(outcome.reasons)}
    return {name: value for name, value in shown.items() if value}

"""The graphs of a model file as it stands there: what viewers show, before anything is converted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from nnbridge.extensions import body_roles, readable_operation
from nnbridge.model import Model, Subgraph
from nnbridge.records import dataclass
from nnbridge.types import Lifetime


@dataclass(frozen=True, slots=True)
class FileOperator:
    """One operator; inputs and outputs are indexes of tensors, without those that are omitted."""

    index: int
    operator: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    name: str = ""
    """Its own name, where the format has such."""


@dataclass(frozen=True)
class FileGraph:
    """A graph or subgraph of a file."""

    number: int
    """Its place in the file, by which :class:`~nnbridge.model.Source` refers to it."""
    name: str
    tensors: tuple[str, ...]
    """Names; empty where the file has none."""
    operators: tuple[FileOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @cached_property
    def counts(self) -> Counter[str]:
        """The number of tensors of each name."""
        return Counter(self.tensors)


def named_graph(
    number: int,
    name: str,
    operators: Sequence[tuple[int, str, Sequence[str], Sequence[str]]],
    inputs: Sequence[str],
    outputs: Sequence[str],
    own: Sequence[str],
) -> FileGraph:
    """A graph whose tensors have unique names; operators are (index, operator, inputs, outputs), empty names omitted ones.

    ``own``: each operator's own name, or an empty one.
    """
    every = [*inputs, *outputs, *(name for _, _, *sides in operators for side in sides for name in side)]
    known = {name: k for k, name in enumerate(dict.fromkeys(filter(None, every)))}

    def indexes(names: Sequence[str]) -> tuple[int, ...]:
        return tuple(known[name] for name in names if name)

    found = (
        FileOperator(index, operator, indexes(read), indexes(made), name)
        for (index, operator, read, made), name in zip(operators, own, strict=True)
    )
    return FileGraph(number, name, tuple(known), tuple(found), indexes(inputs), indexes(outputs))


def graphs_of_model(model: Model) -> tuple[FileGraph, ...]:
    """The subgraphs of a finished NNAPI model: operands are tensors, operations are operators."""

    def graph(number: int, subgraph: Subgraph) -> FileGraph:
        missing = {i for i, operand in enumerate(subgraph.operands) if operand.lifetime is Lifetime.NO_VALUE}
        operators = tuple(
            FileOperator(i, readable_operation(model, o), tuple(k for k in o.inputs if k not in missing), o.outputs)
            for i, o in enumerate(subgraph.operations)
        )
        name = names.get(number - 1, f"referenced model {number - 1}") if number else "main"
        return FileGraph(number, name, tuple(o.name for o in subgraph.operands), operators, subgraph.inputs, subgraph.outputs)

    names = _body_names(model)
    return tuple(graph(number, subgraph) for number, subgraph in enumerate(model.subgraphs()))


def _body_names(model: Model) -> dict[int, str]:
    """Referenced models → what they are for, such as ``then of IF 2 in body of WHILE 0``; those of one use only."""
    found: dict[int, list[str]] = {}
    for number, around in enumerate(model.subgraphs()):
        for i, operation in enumerate(around.operations):
            for role, body in zip(body_roles(model, operation), around.bodies(operation), strict=False):
                within = f" in {found[number - 1][0]}" if number and number - 1 in found else ""
                found.setdefault(body, []).append(f"{role} of {readable_operation(model, operation)} {i}{within}")
    return {body: uses[0] for body, uses in found.items() if len(uses) == 1}

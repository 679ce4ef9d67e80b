"""Node units, as ONNX Runtime's execution providers see a graph: a node alone, or with the quantisations around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nnbridge_onnx.extension import ELEMENT_TYPES
from nnbridge_onnx.graph import Array, Dims, Graph, Node


@dataclass(frozen=True, slots=True)
class Io:
    """An input or output of a unit; names of its scale and zero point where it is quantised."""

    name: str
    scale: str = ""
    point: str = ""


@dataclass(frozen=True, slots=True)
class Unit:
    """A node, or a group around it, as a condition sees it."""

    node: Node
    graph: Graph
    inputs: tuple[Io, ...]
    outputs: tuple[Io, ...]
    grouped: bool
    """True for a group with DequantizeLinear and QuantizeLinear."""
    level: int
    nchw: bool
    kind: str = ""
    """The operator that the provider sees, where the node is part of what it was spelt out into."""

    @property
    def operator(self) -> str:
        """The operator that the provider looks up."""
        return self.kind or self.node.type

    @property
    def quantised(self) -> bool:
        """True if the unit computes on 8-bit values."""
        return bool(self.inputs and self.inputs[0].scale) or self.node.type == "QuantizeLinear"

    def type(self, i: int = 0) -> str:
        """The element type of input ``i``, empty if it is not given."""
        return type_name(self.graph, self.inputs[i].name) if i < len(self.inputs) else ""

    def given(self, i: int) -> bool:
        """True if input ``i`` is not omitted."""
        return i < len(self.inputs) and bool(self.inputs[i].name)

    def constant(self, i: int) -> Array | None:
        """Input ``i`` if it is a constant."""
        return self.graph.constants.get(self.inputs[i].name) if i < len(self.inputs) else None

    def shape(self, i: int = 0) -> Dims:
        """The shape of input ``i``, which is known when conditions are checked."""
        return self.graph.tensors[self.inputs[i].name].shape or ()

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute's value."""
        return self.node.attributes.get(name, default)


def type_name(graph: Graph, name: str) -> str:
    """The element type of a value."""
    tensor = graph.tensors.get(name)
    return ELEMENT_TYPES.get(tensor.type if tensor is not None else 0, ("unknown",))[0]


QLINEAR: Mapping[str, tuple[tuple[tuple[int, ...], ...], tuple[int, int]]] = {
    "QLinearConv": (((0, 1, 2), (3, 4, 5), (8,)), (6, 7)),
    "QLinearMatMul": (((0, 1, 2), (3, 4, 5)), (6, 7)),
    "QLinearAdd": (((0, 1, 2), (3, 4, 5)), (6, 7)),
    "QLinearMul": (((0, 1, 2), (3, 4, 5)), (6, 7)),
    "QLinearSigmoid": (((0, 1, 2),), (3, 4)),
    "QLinearAveragePool": (((0, 1, 2),), (3, 4)),
    "DequantizeLinear": (((0, 1, 2),), (99, 99)),
    "QuantizeLinear": (((0,),), (1, 2)),
}
"""Operator → places of (value, scale, zero point) of its inputs, and of scale and zero point of its output."""


def io_of(node: Node) -> tuple[tuple[Io, ...], tuple[Io, ...]]:
    """Inputs and outputs of a node alone."""
    places, parameters = QLINEAR.get(node.type, (tuple((i,) for i in range(len(node.inputs))), (99, 99)))

    def at(position: int) -> str:
        return node.inputs[position] if position < len(node.inputs) else ""

    inputs = tuple(Io(*(at(p) for p in place)) for place in places if place[0] < len(node.inputs))
    first = tuple(Io(name, at(parameters[0]), at(parameters[1])) for name in node.outputs[:1])
    return inputs, (*first, *map(Io, node.outputs[1:]))

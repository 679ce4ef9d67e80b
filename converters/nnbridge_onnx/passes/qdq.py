"""QDQ groups: graphs with QuantizeLinear and DequantizeLinear as quantised operations.

8-bit values have the scale and zero point that the nodes around them state (:func:`find_quantisation`). A float node all of
whose data comes out of DequantizeLinear and whose only reader is QuantizeLinear (after an activation, maybe) is one operation on
the 8-bit values themselves (:func:`find_groups`); where NNAPI cannot express that, it stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from nnbridge.model import Array
from nnbridge.records import dataclass
from nnbridge.types import FuseCode
from nnbridge_onnx.declaration import attribute, declared
from nnbridge_onnx.read.graph import INT8, UINT8, Graph, Node


@dataclass(frozen=True, slots=True)
class QdqParameters:
    """Scale and zero point of an 8-bit value, as the nodes around it state."""

    scale: float
    zero_point: int


BYTES = QdqParameters(1.0, 0)
"""Bytes that are numbers themselves."""


@dataclass(frozen=True)
class Weights:
    """A constant after DequantizeLinear: its name, and those of its scale and zero point, with the axis of several scales."""

    name: str
    scale: str
    zero_point: str
    axis: int


@dataclass(frozen=True)
class QdqGroup:
    """A node as it is on 8-bit values."""

    node: Node
    """The node with 8-bit values as inputs and output."""
    fused: tuple[int, ...]
    """Indexes of the nodes after it that the group stands for."""
    activation: FuseCode
    constants: Mapping[int, Weights]
    """Inputs that are constants after DequantizeLinear, by position."""


def sole_readers(graph: Graph) -> dict[str, Node]:
    """The only node that reads a value, by the value's name; outputs of the graph have none."""
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in (*node.inputs, *node.captured):
            readers.setdefault(name, []).append(node)
    outputs = frozenset(graph.outputs)
    return {name: found[0] for name, found in readers.items() if len(found) == 1 and name not in outputs}


# -- parameters ----------------------------------------------------------------------------------------------------------


def find_quantisation(graph: Graph) -> dict[str, QdqParameters]:
    """Parameters by value name, for values whose every mention agrees and is a constant scalar."""
    found: dict[str, QdqParameters] = {}
    clash: set[str] = set()
    for node in graph.nodes:
        for name, quantisation in _mentions(node, graph):
            if quantisation is None or found.get(name, quantisation) != quantisation:
                clash.add(name)
            else:
                found[name] = quantisation
    # Operators that move data hand the parameters on, in either direction.
    for nodes, forwards in ((graph.nodes, True), (graph.nodes[::-1], False)):
        for node in nodes:
            definition = declared(node)
            if definition is not None and definition.keeps_quantisation and node.inputs:
                ends = (node.inputs[0], node.outputs[0])
                source, target = ends if forwards else ends[::-1]
                if source in found and source not in clash and target not in found and target not in clash:
                    found[target] = found[source]
    return {name: q for name, q in found.items() if name not in clash}


def _mentions(node: Node, graph: Graph) -> Iterator[tuple[str, QdqParameters | None]]:
    """The values whose parameters a node of ONNX's own domain states, with these; None if they are computed or several."""
    definition = declared(node)
    if definition is None or definition.quantised_io is None or node.domain:
        return
    if definition.quantised_io.output is not None:
        yield node.outputs[0], _parameters(node, graph, *definition.quantised_io.output, node.outputs[0])
    for position in definition.quantised_io.inputs:
        name = node.name_of(position[0])
        if len(position) == 3 and name in graph.tensors and graph.tensors[name].type in (UINT8, INT8):
            yield name, _parameters(node, graph, position[1], position[2], name)


def _parameters(node: Node, graph: Graph, scale: int, point: int, name: str) -> QdqParameters | None:
    scales, zero = graph.constants.get(node.inputs[scale]), 0
    if scales is None or scales.size != 1:
        return None
    if node.name_of(point):
        points = graph.constants.get(node.inputs[point])
        if points is None or points.size != 1:
            return None
        zero = int(points.reshape(()))
    if name not in graph.tensors:  # an output whose type nothing states
        return None
    value, low = float(scales.reshape(())), -128 if graph.tensors[name].type == INT8 else 0
    return QdqParameters(value, zero) if value > 0 and low <= zero <= low + 255 else None


# -- groups --------------------------------------------------------------------------------------------------------------


def find_groups(graph: Graph, quantisation: Mapping[str, QdqParameters]) -> dict[int, QdqGroup]:
    """Groups by the index of their node."""
    finder = _Finder(graph, quantisation)
    found = ((node.index, finder.group(node)) for node in graph.nodes if not node.domain)
    return {index: group for index, group in found if group is not None}


def linear_group(
    node: Node, constants: Mapping[str, Array], quantisation: Mapping[str, QdqParameters]
) -> tuple[QdqGroup, dict[str, Array]] | None:
    """QLinearConv or QLinearMatMul as a group, and the constants that the group adds; None for other nodes."""
    definition = declared(node)
    io = None if definition is None else definition.quantised_io
    if io is None or not io.computes or node.domain:
        return None
    x, x_scale, _, w, w_scale, w_point = node.inputs[:6]
    if not {x, node.outputs[0]} <= quantisation.keys() or not (w in constants or w in quantisation):
        return None
    bias = node.name_of(8)
    added, weights = {}, {1: Weights(w, w_scale, w_point, 0)} if w in constants else {}
    if bias and x_scale in constants and w_scale in constants:
        # The bias counts in steps of both scales.
        scale = f"{bias} scale of node {node.index}"
        added[scale] = np.asarray(np.float32(constants[x_scale]) * constants[w_scale].astype(np.float32))
        weights[2] = Weights(bias, scale, "", 0)
    inputs = (x, w, bias) if bias else (x, w)
    return QdqGroup(replace(node, type=io.computes, inputs=inputs), (), FuseCode.NONE, weights), added


class _Finder:
    def __init__(self, graph: Graph, quantisation: Mapping[str, QdqParameters]) -> None:
        self._graph = graph
        self._quantisation = quantisation
        self._readers = sole_readers(graph)
        self._producers = {name: node for node in graph.nodes for name in node.outputs}

    def group(self, node: Node) -> QdqGroup | None:
        definition = declared(node)
        if definition is None or definition.quantised is None or len(node.outputs) != 1:
            return None
        target = self._quantised_output(node, activation=definition.quantised.activation)
        if target is None:
            return None
        output, fused, activation = target
        count = definition.quantised.data or len(node.inputs)
        inputs, constants = list(node.inputs), {}
        for i, name in enumerate(node.inputs[:count]):
            if not name:
                continue
            source = self._dequantised(name)
            if source is None:
                return None
            inputs[i] = source.name
            if source.name in self._graph.constants:
                constants[i] = source
            elif source.name not in self._quantisation:
                return None
        if 0 in constants:
            return None
        return QdqGroup(replace(node, inputs=tuple(inputs), outputs=(output,)), fused, activation, constants)

    def _quantised_output(self, node: Node, *, activation: bool) -> tuple[str, tuple[int, ...], FuseCode] | None:
        """The 8-bit value that the node's result becomes, the nodes on the way, and the activation among them."""
        reader = self._readers.get(node.outputs[0])
        code, fused = FuseCode.NONE, []
        behind = declared(reader) if reader is not None and activation else None
        if reader is not None and behind is not None and behind.activation is not None:
            found = behind.activation(reader, self._graph.constants)
            if found is None:
                return None
            code, fused = found, [reader.index]
            reader = self._readers.get(reader.outputs[0])
        if reader is None or reader.type != "QuantizeLinear" or reader.outputs[0] not in self._quantisation:
            return None
        return reader.outputs[0], (*fused, reader.index), code

    def _dequantised(self, name: str) -> Weights | None:
        """The value before DequantizeLinear."""
        node = self._producers.get(name)
        if node is None or node.type != "DequantizeLinear" or node.domain:
            return None
        known = self._graph.tensors.get(node.inputs[0])
        computed = node.inputs[0] not in self._graph.constants
        if known is None or (computed and known.type not in (INT8, UINT8)) or node.inputs[1] not in self._graph.constants:
            return None
        point = node.name_of(2)
        if point and point not in self._graph.constants:
            return None
        return Weights(node.inputs[0], node.inputs[1], point, int(attribute(node, "axis")))

"""Scale and zero point of 8-bit values: they stand in the nodes that make or read them."""

from __future__ import annotations

from collections.abc import Iterator

from nnbridge_onnx.graph import Graph, Node
from nnbridge_onnx.values import INT8, UINT8, Quantisation

_MADE = {"QuantizeLinear": (1, 2), "QLinearConv": (6, 7), "QLinearMatMul": (6, 7)}
"""Operator → inputs that hold scale and zero point of output 0."""

_READ = {
    "DequantizeLinear": ((0, 1, 2),),
    "QLinearConv": ((0, 1, 2), (3, 4, 5)),
    "QLinearMatMul": ((0, 1, 2), (3, 4, 5)),
}
"""Operator → (input, its scale, its zero point) for inputs."""

_KEEPERS = frozenset(
    ["Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "MaxPool", "Gather", "Identity", "Expand", "Tile"]
)
"""Operators whose output 0 has the parameters of input 0."""


def find_quantisation(graph: Graph) -> dict[str, Quantisation]:
    """Parameters by value name, for values whose every mention agrees and is a constant scalar."""
    found: dict[str, Quantisation] = {}
    clash: set[str] = set()
    for node in graph.nodes:
        for name, quantisation in _mentions(node, graph):
            if quantisation is None or found.get(name, quantisation) != quantisation:
                clash.add(name)
            else:
                found[name] = quantisation
    _spread(graph, found, clash)
    return {name: q for name, q in found.items() if name not in clash}


def _mentions(node: Node, graph: Graph) -> Iterator[tuple[str, Quantisation | None]]:
    if node.domain:
        return
    if node.type in _MADE:
        yield node.outputs[0], _parameters(node, graph, *_MADE[node.type], node.outputs[0])
    for at, scale, point in _READ.get(node.type, ()):
        name = node.inputs[at]
        if graph.tensors.get(name) is not None and graph.tensors[name].type in (UINT8, INT8):
            yield name, _parameters(node, graph, scale, point, name)


def _parameters(node: Node, graph: Graph, scale: int, point: int, name: str) -> Quantisation | None:
    scales = graph.constants.get(node.inputs[scale])
    points = graph.constants.get(node.inputs[point]) if len(node.inputs) > point and node.inputs[point] else None
    given = len(node.inputs) > point and bool(node.inputs[point])
    if scales is None or scales.size != 1 or (given and (points is None or points.size != 1)):
        return None
    value = float(scales.reshape(()))
    zero = int(points.reshape(())) if points is not None else 0
    low = -128 if graph.tensors[name].type == INT8 else 0
    return Quantisation(value, zero) if value > 0 and low <= zero <= low + 255 else None


def _spread(graph: Graph, found: dict[str, Quantisation], clash: set[str]) -> None:
    """Operators that move data hand the parameters on, in either direction."""
    for nodes, ends in ((graph.nodes, (0, 1)), (graph.nodes[::-1], (1, 0))):
        for node in nodes:
            if node.type in _KEEPERS and node.inputs and not node.domain:
                pair = (node.inputs[0], node.outputs[0])
                source, target = pair[ends[0]], pair[ends[1]]
                if source in found and source not in clash and target not in found and target not in clash:
                    found[target] = found[source]

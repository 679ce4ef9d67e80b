"""The node units of a whole graph, and what ONNX Runtime's NNAPI execution provider says of each."""

from __future__ import annotations

from collections.abc import Mapping

from nnbridge.errors import Reason
from nnbridge_onnx.graph import Graph, Node
from nnbridge_onnx.node_units import Io, Unit, io_of, type_name
from nnbridge_onnx.provider import refusal

_ALONE = frozenset(["Reshape", "Flatten", "Identity"])
"""Operators that only copy: the provider does not take one of them by itself."""

_INTERNAL = frozenset(["Transpose", "Resize", "Concat", "MaxPool"])
"""Operators that compute on UINT8 values without parameters of their own: these come from a node that is taken too."""


def refusals(graph: Graph, folded: frozenset[int], level: int, *, nchw: bool) -> Mapping[int, Reason]:
    """Why the provider leaves nodes to ONNX Runtime, by the index of the node."""
    return _Units(graph, folded, level, nchw).refusals()


class _Units:
    def __init__(self, graph: Graph, folded: frozenset[int], level: int, nchw: bool) -> None:
        self._graph = graph
        self._nodes = [node for node in graph.nodes if node.index not in folded]
        self._level = level
        self._nchw = nchw
        self._makers = {name: node for node in self._nodes for name in node.outputs if name}
        self._dequantised = {n: node for node in graph.nodes if node.type == "DequantizeLinear" for n in node.outputs}
        self._readers: dict[str, list[Node]] = {}
        for node in self._nodes:
            for name in (*node.inputs, *node.captured):
                self._readers.setdefault(name, []).append(node)

    def refusals(self) -> Mapping[int, Reason]:
        found: dict[int, Reason] = {}
        members: dict[int, list[Node]] = {}
        for node in self._nodes:
            unit = self._unit(node)
            reason = refusal(unit) or self._internal(unit, found)
            if reason is not None:
                found[node.index] = reason
            if unit.grouped:
                for member in self._members(node):
                    members.setdefault(member.index, []).append(node)
        for index, centres in members.items():
            # A value that several groups read is dequantised in each of them.
            found.pop(index, None)
            if all(centre.index in found for centre in centres):
                found[index] = found[centres[0].index]
        found.update(self._lonely(found, frozenset(members)))
        return found

    def _unit(self, node: Node) -> Unit:
        grouped = self._is_group(node)
        inputs, outputs = self._group_io(node) if grouped else io_of(node)
        behind = self._behind(node.outputs[0]) if grouped else None
        origin = self._graph.origins.get(behind.outputs[0], "") if behind is not None else ""
        return Unit(node, self._graph, inputs, outputs, grouped, self._level, self._nchw, origin)

    def _is_group(self, node: Node) -> bool:
        """True if all floating inputs are dequantised and everything that is made is quantised."""
        if node.domain or node.type in ("DequantizeLinear", "QuantizeLinear") or not node.outputs:
            return False
        floating = [name for name in node.inputs if name and type_name(self._graph, name) in ("FLOAT", "FLOAT16")]
        behind = [self._behind(name) for name in node.outputs]
        return bool(floating) and all(n in self._dequantised for n in floating) and all(b is not None for b in behind)

    def _behind(self, name: str) -> Node | None:
        readers = self._readers.get(name, [])
        only = readers[0] if len(readers) == 1 and name not in self._graph.outputs else None
        return only if only is not None and only.type == "QuantizeLinear" else None

    def _group_io(self, node: Node) -> tuple[tuple[Io, ...], tuple[Io, ...]]:
        inputs = tuple(self._source(name) for name in node.inputs)
        outputs = []
        for name in node.outputs:
            quantise = self._behind(name)
            assert quantise is not None
            outputs.append(io_of(quantise)[1][0])
        return inputs, tuple(outputs)

    def _source(self, name: str) -> Io:
        node = self._dequantised.get(name)
        return Io(name) if node is None else io_of(node)[0][0]

    def _members(self, node: Node) -> list[Node]:
        """DequantizeLinear and QuantizeLinear nodes of a group."""
        before = [self._dequantised[name] for name in node.inputs if name in self._dequantised]
        return [*before, *(q for name in node.outputs if (q := self._behind(name)) is not None)]

    def _internal(self, unit: Unit, found: Mapping[int, Reason]) -> Reason | None:
        node = unit.node
        if node.type not in _INTERNAL or unit.grouped or unit.type() != "UINT8":
            return None
        for name in node.inputs if node.type == "Concat" else node.inputs[:1]:
            maker = self._makers.get(name)
            if maker is None or maker.index in found:
                return Reason("UINT8 values that the provider's own nodes make", name, node.label)
        return None

    def _lonely(self, found: Mapping[int, Reason], members: frozenset[int]) -> dict[int, Reason]:
        lonely = {}
        for node in self._nodes:
            if node.type not in _ALONE or node.index in found or self._is_group(node):
                continue
            makers = [self._makers[name] for name in node.inputs if name in self._makers]
            readers = [reader for name in node.outputs for reader in self._readers.get(name, [])]
            if all(neighbour.index in found for neighbour in (*makers, *readers)):
                lonely[node.index] = Reason("more than one node that only copies", node.type, node.label)
        return lonely

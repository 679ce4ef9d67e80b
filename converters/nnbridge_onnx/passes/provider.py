"""The provider's partition: node units, and what ONNX Runtime's NNAPI execution provider answers for each.

An operator accepts what its definition's :class:`~nnbridge_onnx.rules.Provider` states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nnbridge.converters.rules import first_refusal
from nnbridge.errors import Reason, Why
from nnbridge_onnx.declaration import CONTRIB, NO_BUILDER, REGISTRY, declared
from nnbridge_onnx.passes.qdq import sole_readers
from nnbridge_onnx.read.graph import Graph, Node
from nnbridge_onnx.rules import Io, Provider, Unit, type_name

STOPS = frozenset(["NonMaxSuppression"])
"""Operators from which on the provider leaves all nodes to ONNX Runtime, unless the session names others."""


def refusals(
    graph: Graph, folded: frozenset[int], level: int, *, nchw: bool, stops: frozenset[str] = STOPS
) -> Mapping[int, Reason]:
    """Why the provider leaves nodes to ONNX Runtime, by the index of the node."""
    return _Units(graph, folded, level, nchw, stops).refusals()


def _behind(graph: Graph, stops: frozenset[str]) -> dict[int, Reason]:
    """The nodes that depend on an operator that stops the provider's part."""
    found: dict[int, Reason] = {}
    written: set[str] = set()
    for node in graph.nodes:
        if node.type in stops or not written.isdisjoint((*node.inputs, *node.captured)):
            written.update(node.results)
            found[node.index] = Reason(f"nodes before {' and '.join(sorted(stops))}", node.type, node.label)
    return found


class _Units:
    def __init__(self, graph: Graph, folded: frozenset[int], level: int, nchw: bool, stops: frozenset[str]) -> None:
        self._graph = graph
        self._nodes = [node for node in graph.nodes if node.index not in folded]
        self._level = level
        self._nchw = nchw
        self._stopped = _behind(graph, stops)
        self._producers = {name: node for node in self._nodes for name in node.outputs if name}
        self._dequantised = {n: node for node in graph.nodes if node.type == "DequantizeLinear" for n in node.outputs}
        self._sole_readers = sole_readers(replace(graph, nodes=tuple(self._nodes)))
        self._readers: dict[str, list[Node]] = {}
        for node in self._nodes:
            for name in (*node.inputs, *node.captured):
                self._readers.setdefault(name, []).append(node)

    def refusals(self) -> Mapping[int, Reason]:
        found: dict[int, Reason] = {}
        members: dict[int, list[Node]] = {}
        for node in self._nodes:
            unit = self._unit(node)
            reason = self._stopped.get(node.index) or self._written_out(node) or _refusal(unit) or self._follows(unit, found)
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
        found.update(self._lonely(found))
        return found

    def _written_out(self, node: Node) -> Reason | None:
        """Why the operator of com.microsoft that the node is a part of stays as a whole."""
        kind = self._graph.origins.get(node.outputs[0], "") if node.outputs else ""
        rule = REGISTRY[f"{CONTRIB}.{kind}"].provider if kind else None
        return Reason(rule, f"{CONTRIB}.{kind}", node.label, kind=Why.OPERATOR) if isinstance(rule, str) else None

    def _unit(self, node: Node) -> Unit:
        grouped = self._is_group(node)
        inputs, outputs = self._group_io(node) if grouped else io_of(node)
        behind = self._behind(node.outputs[0]) if grouped else None
        origin = self._graph.origins.get(behind.outputs[0], "") if behind is not None else ""
        return Unit(node, self._graph, inputs, outputs, grouped, self._level, self._nchw, origin)

    def _is_group(self, node: Node) -> bool:
        """True if all floating inputs are dequantised and everything that is written is quantised."""
        if node.domain or node.type in ("DequantizeLinear", "QuantizeLinear") or not node.outputs:
            return False
        data = node.inputs[:1] if node.type == "Resize" else node.inputs  # ONNX Runtime expects one DequantizeLinear, not scales'
        floating = [name for name in data if name and type_name(self._graph, name) in ("FLOAT", "FLOAT16")]
        behind = [self._behind(name) for name in node.outputs]
        return bool(floating) and all(n in self._dequantised for n in floating) and all(b is not None for b in behind)

    def _behind(self, name: str) -> Node | None:
        """The only QuantizeLinear that reads a value."""
        only = self._sole_readers.get(name)
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

    def _follows(self, unit: Unit, found: Mapping[int, Reason]) -> Reason | None:
        node = unit.node
        rule = _rule(unit)
        if not isinstance(rule, Provider) or not rule.follows or unit.grouped or unit.type() != "UINT8":
            return None
        definition = declared(node)
        repeated = definition is not None and definition.inputs[0].repeat
        for name in node.inputs if repeated else node.inputs[:1]:
            producer = self._producers.get(name)
            if producer is None or producer.index in found:
                return Reason("UINT8 values that the provider's own nodes write", name, node.label, kind=Why.INPUT_TYPE)
        return None

    def _lonely(self, found: Mapping[int, Reason]) -> dict[int, Reason]:
        lonely = {}
        for node in self._nodes:
            definition = declared(node)
            rule = None if definition is None else definition.provider
            if not isinstance(rule, Provider) or not rule.copies or node.index in found or self._is_group(node):
                continue
            producers = [self._producers[name] for name in node.inputs if name in self._producers]
            readers = [reader for name in node.outputs for reader in self._readers.get(name, [])]
            if all(neighbour.index in found for neighbour in (*producers, *readers)):
                lonely[node.index] = Reason("more than one node that only copies", node.type, node.label, kind=Why.PARTITIONS)
        return lonely


def _refusal(unit: Unit) -> Reason | None:
    """Why the provider leaves a unit to ONNX Runtime; None if it accepts it."""
    node, rule = unit.node, _rule(unit)
    if not isinstance(rule, Provider):
        return Reason(rule, unit.operator, node.label, kind=Why.OPERATOR)
    if unit.grouped and not unit.kind and not rule.grouped:
        required = "an operator that the provider maps between DequantizeLinear and QuantizeLinear"
        return Reason(required, node.type, node.label, kind=Why.QUANTISATION_TYPE)
    if unit.level < rule.level:
        return Reason(f"feature level {rule.level}", str(unit.level), node.label, kind=Why.FEATURE_LEVEL)
    if node.version < rule.opset and not node.domain:
        return Reason(f"opset {rule.opset}", str(node.version), node.label, kind=Why.OPERATOR_VERSION)
    for kind, found in (
        (Why.DYNAMIC_SHAPE, _shape_problem(unit.inputs, unit.graph)),
        (Why.OPERAND_VALUE, _external_problem(unit)),
    ):
        if found is not None:
            return Reason(*found, node.label, kind=kind)
    if rule.types is not None and not unit.quantised and unit.type() not in rule.types:
        return Reason(f"an input 0 of {' or '.join(rule.types)}", unit.type(), node.label, kind=Why.INPUT_TYPE)
    return first_refusal(rule.conditions, unit, unit.level, node.label)


def _rule(unit: Unit) -> Provider | str:
    """The rule of the operator that the provider sees."""
    definition = REGISTRY.get(f"{CONTRIB}.{unit.kind}") if unit.kind else declared(unit.node)
    return NO_BUILDER if definition is None else definition.provider


def _shape_problem(inputs: Sequence[Io], graph: Graph) -> tuple[str, str] | None:
    for io in inputs:
        tensor = graph.tensors.get(io.name)
        if io.name and (tensor is None or tensor.shape is None or any(d < 0 for d in tensor.shape)):
            return "inputs of known shape (see --shape)", f"{None if tensor is None else tensor.shape} for {io.name}"
    return None


def _external_problem(unit: Unit) -> tuple[str, str] | None:
    names = [name for io in unit.inputs for name in (io.name, io.scale, io.point)]
    found = next((name for name in names if name in unit.graph.external), None)
    return None if found is None else ("constants inside the file", f"{found} in another one")


def io_of(node: Node) -> tuple[tuple[Io, ...], tuple[Io, ...]]:
    """Inputs and outputs of a node by itself."""
    definition = declared(node)
    io = None if definition is None else definition.quantised_io
    positions = tuple((i,) for i in range(len(node.inputs))) if io is None else io.inputs
    inputs = tuple(Io(*map(node.name_of, position)) for position in positions if position[0] < len(node.inputs))
    scales = () if io is None or io.output is None else map(node.name_of, io.output)
    first = tuple(Io(name, *scales) for name in node.outputs[:1])
    return inputs, (*first, *map(Io, node.outputs[1:]))

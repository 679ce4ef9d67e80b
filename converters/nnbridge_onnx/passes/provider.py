"""The provider's partition: node units, and what ONNX Runtime's NNAPI execution provider answers for each.

An operator accepts what its definition's :class:`~nnbridge_onnx.rules.Provider` states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from nnbridge.converters.partitions import partitions
from nnbridge.converters.rules import first_refusal
from nnbridge.errors import Reason, Stage, Why
from nnbridge.records import dataclass
from nnbridge.releases import NEWEST, within
from nnbridge_onnx.declaration import CONTRIB, KNOWN_DOMAIN, NO_BUILDER, REGISTRY, declared
from nnbridge_onnx.passes.qdq import sole_readers
from nnbridge_onnx.read.graph import MAX_DEPTH, Graph, Node, attribute_values, subgraphs
from nnbridge_onnx.releases import MAPPED_SINCE, checks
from nnbridge_onnx.rules import Io, Provider, Unit, parameters_of, type_name

STOPS = frozenset(["NonMaxSuppression"])
"""Operators from which on the provider leaves all nodes to ONNX Runtime, unless the session names others."""


@dataclass(frozen=True)
class ProviderVerdicts:
    """The provider's verdicts on a graph's nodes, by their indexes."""

    refused: Mapping[int, Reason] = field(default_factory=dict)
    """Why it leaves nodes to ONNX Runtime."""
    failing: Mapping[int, Reason] = field(default_factory=dict)
    """Why the model of what it accepts cannot be built, or run."""


def verdicts(
    graph: Graph,
    folded: frozenset[int],
    level: int,
    *,
    nchw: bool,
    stops: frozenset[str] = STOPS,
    release: str = NEWEST,
) -> ProviderVerdicts:
    """Both halves of the provider: its check of each node, and what it presupposes when it builds."""
    return _Units(graph, folded, level, nchw, stops, release).verdicts()


def _behind(graph: Graph, stops: frozenset[str]) -> dict[int, Reason]:
    """The nodes that depend on an operator that stops the provider's part."""
    found: dict[int, Reason] = {}
    written: set[str] = set()
    for node in graph.nodes:
        if node.type in stops or not written.isdisjoint((*node.inputs, *node.captured)):
            written.update(node.results)
            required = f"a node that does not depend on {' or '.join(sorted(stops))}, where the provider's part ends"
            found[node.index] = Reason(required, node.type, node.label, stage=Stage.PROVIDER)
    return found


class _Units:
    def __init__(self, graph: Graph, folded: frozenset[int], level: int, nchw: bool, stops: frozenset[str], release: str) -> None:
        self._graph = graph
        self._nodes = [node for node in graph.nodes if node.index not in folded]
        self._level = level
        self._nchw = nchw
        self._release = release
        self._stopped = _behind(graph, stops)
        self._producers = {name: node for node in self._nodes for name in node.outputs if name}
        self._dequantised = {n: node for node in graph.nodes if node.type == "DequantizeLinear" for n in node.outputs}
        self._sole_readers = sole_readers(replace(graph, nodes=tuple(self._nodes)))
        self._parameters: dict[str, tuple[float, int]] = {}
        """Scale and zero point of the operands so far."""
        self._readers: dict[str, list[Node]] = {}
        for node in self._nodes:
            for name in (*node.inputs, *node.captured):
                self._readers.setdefault(name, []).append(node)

    def verdicts(self) -> ProviderVerdicts:
        if self._graph.refused is not None:
            return ProviderVerdicts({node.index: self._graph.refused for node in self._nodes})
        refused: dict[int, Reason] = {}
        failing: dict[int, Reason] = {}
        members: dict[int, list[Node]] = {}
        for node in self._nodes:
            unit = self._unit(node)
            reason = (
                self._stopped.get(node.index)
                or self._written_out(node)
                or _refusal(unit, self._release)
                or self._follows(unit, refused)
            )
            if reason is not None:
                # ONNX Runtime has to run it itself.
                refused[node.index] = _unloadable(node) or without_kernel(self._graph, node) or reason
            elif (failure := _failure(unit) or self._mismatch(unit)) is not None:
                failing[node.index] = failure
            if unit.grouped:
                for member in self._members(node):
                    members.setdefault(member.index, []).append(node)
        for index, centres in members.items():
            # A value that several groups read is dequantised in each of them.
            refused.pop(index, None)
            if all(centre.index in refused for centre in centres):
                refused[index] = refused[centres[0].index]
        groups = self._groups(refused, members)
        for group in groups:
            lonely = self._nodes[min(group)]
            rule = _rule(self._unit(lonely))
            if len(group) == 1 and isinstance(rule, Provider) and rule.copies:
                required, kind = "more than one node that only copies", Why.PARTITIONS
                refused[lonely.index] = Reason(required, lonely.type, lonely.label, kind=kind, stage=Stage.PROVIDER)
        failing = {**dict(self._aliases(refused, groups)), **failing}
        return ProviderVerdicts(refused, {i: failing[i] for i in sorted(failing) if i not in refused})

    def _mismatch(self, unit: Unit) -> Reason | None:
        """The reason why an input's scale or zero point is not that of its operand: a unit's own output, or what its first
        reader states."""
        for io in unit.inputs:
            if not io.scale:
                continue
            stated = parameters_of(unit, io)
            known = self._parameters.setdefault(io.name, stated)
            if known != stated:
                i = int(known[0] == stated[0])
                what, other, own = ("scale", "zero point")[i], f"{known[i]:g}", f"{stated[i]:g}"
                required, said = f"{what} {other}, as operand {io.name} has it", f"Input [{io.name}] NNAPI input {what}: {other}"
                kind, said = Why.QUANTISATION_PARAMETERS, f"{said}, ONNX input {what}: {own}"
                return Reason(required, own, unit.node.label, kind=kind, says=said, stage=Stage.BUILDER)
        for io in unit.outputs:
            if io.scale:
                self._parameters[io.name] = parameters_of(unit, io)
        return None

    def _groups(self, refused: Mapping[int, Reason], members: Mapping[int, list[Node]]) -> list[frozenset[int]]:
        """The partitions, as positions among the nodes."""
        place = {node.index: i for i, node in enumerate(self._nodes)}
        units: dict[int, set[int]] = {}
        for index, centres in members.items():
            for centre in centres if index in place else ():
                units.setdefault(centre.index, {place[centre.index]}).add(place[index])
        claimed = frozenset(i for i, node in enumerate(self._nodes) if node.index not in refused)
        return partitions(self._nodes, claimed, frozenset(), [frozenset(unit) for unit in units.values()])

    def _aliases(self, refused: Mapping[int, Reason], groups: Sequence[frozenset[int]]) -> Iterator[tuple[int, Reason]]:
        """Identities that would make one operand an input and an output of a partition's model, or two outputs.

        ONNX Runtime removes those whose result is no output of the graph.
        """
        outputs = set(self._graph.outputs)
        group_of = {self._nodes[i].index: number for number, group in enumerate(groups) for i in group}
        passed: dict[tuple[int, str], str] = {}
        """Partition and operand → the first output that the operand is."""
        for node in self._nodes:
            if node.type != "Identity" or node.domain or node.index in refused or node.outputs[0] not in outputs:
                continue
            source, group = node.inputs[0], group_of[node.index]
            producer = self._producers.get(source)
            inside = producer is not None and group_of.get(producer.index) == group
            read_outside = any(group_of.get(reader.index) != group for reader in self._readers.get(source, ()))
            if inside and (source in outputs or read_outside):
                passed.setdefault((group, source), source)
            role = "an input" if not inside else f"output {passed[group, source]}" if (group, source) in passed else ""
            passed.setdefault((group, source), node.outputs[0])
            if role:
                said = "Can't set operand to be an input or output"
                required = "an operand with one role: Identity gives its input a second name"
                kind, found = Why.OPERAND_VALUE, f"{source}, {role} of the partition, as output {node.outputs[0]}"
                yield node.index, Reason(required, found, node.label, kind=kind, says=said, stage=Stage.BUILDING)

    def _written_out(self, node: Node) -> Reason | None:
        """The reason why the operator of com.microsoft that the node is a part of stays as a whole."""
        kind = self._graph.origins.get(node.outputs[0], "") if node.outputs else ""
        rule = REGISTRY[f"{CONTRIB}.{kind}"].provider if kind else None
        return _unmapped(rule, f"{CONTRIB}.{kind}", node) if isinstance(rule, str) else None

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
                required = "UINT8 values that the provider's own nodes write"
                return Reason(required, name, node.label, kind=Why.INPUT_TYPE, stage=Stage.PROVIDER)
        return None


def without_kernel(graph: Graph, node: Node) -> Reason | None:
    """The reason why ONNX Runtime's CPU has no kernel for a node, if that is so."""
    return next((graph.without_kernel[name] for name in node.outputs if name in graph.without_kernel), None)


def _unloadable(node: Node, depth: int = 0) -> Reason | None:
    """The reason why ONNX Runtime does not load a file with a node, or with one of its bodies; None if it does."""
    definition = declared(node)
    conditions = (KNOWN_DOMAIN, *(() if definition is None else definition.loads))
    found = first_refusal(conditions, node, 0, node.label, Stage.LOADING)
    bodies = node.proto.attribute if found is None and depth < MAX_DEPTH else ()
    for proto in (one for attribute in bodies for graph in subgraphs(attribute) for one in graph.node):
        body = f"{proto.name} in {node.type}".strip()
        inner = Node(
            node.index,
            proto.op_type,
            body,
            proto.domain,
            0,
            tuple(proto.input),
            tuple(proto.output),
            attribute_values(proto),
            proto,
        )
        found = found or _unloadable(inner, depth + 1)
    return found


def _refusal(unit: Unit, release: str) -> Reason | None:
    """The reason why the provider of a release leaves a unit to ONNX Runtime; None if it accepts it."""
    node, rule = unit.node, _rule(unit)
    if not isinstance(rule, Provider):
        return _unmapped(rule, unit.operator, node)
    first = MAPPED_SINCE.get(unit.operator, "")
    if not within(release, first, ""):
        required = f"an operator that the provider of ONNX Runtime {release} maps ({unit.operator}: from {first} on)"
        return _unmapped(required, unit.operator, node)
    return first_refusal(checks(rule, unit.operator, release), unit, unit.level, node.label, Stage.PROVIDER)


def _unmapped(rule: str, operator: str, node: Node) -> Reason:
    return Reason(rule, operator, node.label, kind=Why.OPERATOR, stage=Stage.PROVIDER)


def _failure(unit: Unit) -> Reason | None:
    """The reason why the model cannot be built, or run, with a unit that the provider accepts; None if it can."""
    rule = _rule(unit)
    assert isinstance(rule, Provider)
    return first_refusal(rule.builds, unit, unit.level, unit.node.label, Stage.BUILDER)


def _rule(unit: Unit) -> Provider | str:
    """The rule of the operator that the provider sees."""
    definition = REGISTRY.get(f"{CONTRIB}.{unit.kind}") if unit.kind else declared(unit.node)
    return NO_BUILDER if definition is None else definition.provider


def io_of(node: Node) -> tuple[tuple[Io, ...], tuple[Io, ...]]:
    """Inputs and outputs of a node by itself."""
    definition = declared(node)
    io = None if definition is None else definition.quantised_io
    positions = tuple((i,) for i in range(len(node.inputs))) if io is None else io.inputs
    inputs = tuple(Io(*map(node.name_of, position)) for position in positions if position[0] < len(node.inputs))
    scales = () if io is None or io.output is None else map(node.name_of, io.output)
    first = tuple(Io(name, *scales) for name in node.outputs[:1])
    return inputs, (*first, *map(Io, node.outputs[1:]))

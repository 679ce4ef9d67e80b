"""A graph that ONNX Runtime hands over through the same passes as a file's: what NNAPI gets, and models of groups of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnbridge.converters import ConversionOptions
from nnbridge.converters.delegation import FAILS_BUILDING, stage_of
from nnbridge.converters.draft import Unmappable
from nnbridge.converters.inspection import Mapped
from nnbridge.converters.mapping import MappingKind
from nnbridge.converters.runtime_graph import RuntimeGraph, RuntimeNode, RuntimePart
from nnbridge.errors import ConversionError, NnapiError, Reason, Stage
from nnbridge.model import Array
from nnbridge.records import dataclass
from nnbridge_onnx.passes import Facts
from nnbridge_onnx.passes.conversion import Conversion, facts_of
from nnbridge_onnx.passes.inference_view import SMALL
from nnbridge_onnx.passes.provider import ProviderVerdicts, verdicts
from nnbridge_onnx.read.graph import Graph, Node, dtype_of
from nnbridge_onnx.read.reader import graph_of

FAILS = (*FAILS_BUILDING, Stage.RUNNING)
OPAQUE = "runtime"
"""The domain of nodes that no one but ONNX Runtime can run."""
_OLDEST_IR = 8
"""Constants need not be inputs."""
_NAME = "session"


def claims(graph: RuntimeGraph, level: int, nchw: bool, stops: frozenset[str] | None) -> OnnxClaims:
    """The nodes of a graph that NNAPI gets. ConversionError where the importer refuses it as a whole."""
    options = ConversionOptions(level, MappingKind.PROVIDER.value, "nchw" if nchw else "auto")
    names = _unique_names(graph.nodes)
    read = graph_of(_proto(graph, names), options, graph.name or _NAME, weights=graph.constants)
    read = replace(read, external=graph.external)
    try:
        facts = facts_of(read, options)
        if stops is not None:
            facts = replace(facts, provider=verdicts(facts.graph, facts.folded, level, nchw=nchw, stops=stops))
        conversion = Conversion(facts, options)
        _, outcomes = conversion.run()
    except (NnapiError, Unmappable) as error:
        raise ConversionError(error.reason) from error
    known = replace(facts, graph=conversion.known())
    numbers = {name: i for i, name in enumerate(names)}
    origin = {node.index: numbers[node.name] for node in read.nodes if node.name in numbers}
    return OnnxClaims.of(graph, options, known, outcomes, origin)


@dataclass(frozen=True)
class OnnxClaims:
    """The nodes of a graph that NNAPI gets (:class:`nnbridge.converters.runtime_graph.Claims`)."""

    outcomes: tuple[Mapped, ...]
    claimed: frozenset[int]
    supported: frozenset[int]
    failing: Mapping[int, Reason]
    units: Sequence[frozenset[int]]
    _graph: RuntimeGraph
    _options: ConversionOptions
    _facts: Facts
    _origin: Mapping[int, int]
    """The runtime's node of each node that the passes left."""

    @classmethod
    def of(
        cls,
        graph: RuntimeGraph,
        options: ConversionOptions,
        facts: Facts,
        outcomes: tuple[Mapped, ...],
        origin: Mapping[int, int],
    ) -> OnnxClaims:
        """Gather the outcomes of the runtime's nodes."""
        found: dict[int, set[MappingKind]] = {}
        for mapped in outcomes:
            if mapped.index in origin:
                found.setdefault(origin[mapped.index], set()).add(MappingKind(mapped.mapping))
        allowed = {MappingKind.PROVIDER, MappingKind.FOLDED, MappingKind.DEAD}
        failing = {origin[m.index]: m.reasons[0] for m in outcomes if m.index in origin and stage_of(m) in FAILS}
        fine = {i for i, kinds in found.items() if kinds <= allowed and not graph.nodes[i].opaque}
        supported = frozenset(i for i in fine if MappingKind.PROVIDER in found[i]) | frozenset(failing)
        claimed = set(supported)
        read = {name for i in supported for name in graph.nodes[i].inputs}
        for i in reversed(range(len(graph.nodes))):
            if i in fine - claimed and MappingKind.FOLDED in found[i] and not read.isdisjoint(graph.nodes[i].outputs):
                claimed.add(i)
                read.update(graph.nodes[i].inputs)
        units = _units(facts, origin)
        return cls(outcomes, frozenset(claimed), supported, failing, units, graph, options, facts, origin)

    def part(self, nodes: frozenset[int]) -> RuntimePart:
        """A model of some nodes; ConversionError if they cannot be one."""
        known = self._facts.graph
        outcome = {mapped.index: mapped for mapped in self.outcomes}
        members = tuple(n for n in known.nodes if self._origin.get(n.index) in nodes)
        written = {name for node in members for name in node.results}
        read = dict.fromkeys(name for node in members for name in (*node.inputs, *node.captured) if name)
        outside = {n for i, node in enumerate(self._graph.nodes) if i not in nodes for n in (*node.inputs, *node.captured)}
        passed_on = [n for n in dict.fromkeys(n for m in members for n in m.results) if n in outside or n in self._graph.outputs]
        constants = {name: known.constants[name] for name in passed_on if name in known.constants}
        outputs = tuple(name for name in passed_on if name not in constants)
        if not outputs:
            raise ConversionError(Reason("a group that computes something", f"constants {', '.join(constants)}"))
        folded = frozenset(m.index for m in self.outcomes if m.mapping == MappingKind.FOLDED)
        live = _live(members, outputs, folded)
        inputs = tuple(n for n in _read_by(members, live - folded, read) if n not in written and n not in known.constants)
        graph = replace(known, inputs=inputs, outputs=outputs, nodes=members)
        facts = replace(self._facts, graph=graph, live=live, folded=folded, provider=ProviderVerdicts())
        try:
            model, outcomes = Conversion(facts, self._options).run()
        except (NnapiError, Unmappable) as error:
            raise ConversionError(error.reason) from error
        for mapped in outcomes:
            if mapped.mapping == MappingKind.HOST and outcome[mapped.index].mapping != MappingKind.HOST:
                found = "; ".join(map(str, mapped.reasons))
                raise ConversionError(Reason("an operator that NNAPI gets", found, f"node {mapped.index} {mapped.operator}"))
        return RuntimePart(model, inputs, outputs, constants, {name: _result(known, name) for name in (*outputs, *constants)})


def _live(members: Sequence[Node], outputs: Iterable[str], folded: frozenset[int]) -> frozenset[int]:
    """Indexes of the nodes that outputs depend on."""
    alive, live = set(outputs), set()
    for node in reversed(members):
        if node.index in folded or not alive.isdisjoint(node.outputs):
            live.add(node.index)
            alive.update(() if node.index in folded else (*node.inputs, *node.captured))
    return frozenset(live)


def _read_by(members: Sequence[Node], live: frozenset[int], read: Mapping[str, None]) -> list[str]:
    """The values that nodes that run read, in the order of ``read``."""
    names = {name for node in members if node.index in live for name in (*node.inputs, *node.captured)}
    return [name for name in read if name in names]


def _result(graph: Graph, name: str) -> tuple[np.dtype[Any] | None, bool]:
    """A value's element type, and whether it is a scalar."""
    tensor = graph.tensors[name]
    return dtype_of(tensor.type), tensor.shape == ()


def _units(facts: Facts, origin: Mapping[int, int]) -> list[frozenset[int]]:
    """The runtime's nodes of each group on 8-bit values, with the DequantizeLinear nodes that only the group reads."""
    graph = facts.graph
    dequantisers = {n: node for node in graph.nodes if node.type == "DequantizeLinear" and not node.domain for n in node.outputs}
    readers: dict[str, set[int]] = {}
    for node in graph.nodes:
        for name in (*node.inputs, *node.captured):
            readers.setdefault(name, set()).add(node.index)
    nodes = {node.index: node for node in graph.nodes}
    units = []
    for index, group in facts.groups.items():
        before = [dequantisers[name] for name in nodes[index].inputs if name in dequantisers]
        own = [node.index for node in before if readers[node.outputs[0]] == {index} and node.outputs[0] not in graph.outputs]
        unit = frozenset(origin[i] for i in (index, *group.fused, *own) if i in origin)
        if len(unit) > 1:
            units.append(unit)
    return units


# -- the graph as a ModelProto ---------------------------------------------------------------------------------------------


def _unique_names(nodes: Sequence[RuntimeNode]) -> list[str]:
    """A name for each node that no other has, its own where it is one."""
    names: list[str] = []
    seen: set[str] = set()
    for i, node in enumerate(nodes):
        name = node.name if node.name and node.name not in seen else f"{node.name or node.type} #{i}"
        seen.add(name)
        names.append(name)
    return names


def _proto(graph: RuntimeGraph, names: Sequence[str]) -> Any:
    """The graph as a ``ModelProto``, in which large constants have no data."""
    import onnx
    from onnx import helper

    used = {node.domain for node in graph.nodes if not node.opaque} | {""}
    opsets = [helper.make_opsetid(domain, version) for domain, version in graph.opsets.items() if domain in used]
    opsets.append(helper.make_opsetid(OPAQUE, 1))
    written = {name for node in graph.nodes for name in node.outputs if name}
    inner = [_value(onnx, name, graph) for name in sorted(written - {*graph.outputs}) if name in graph.values]
    made = helper.make_graph(
        [_node(onnx, node, name) for node, name in zip(graph.nodes, names, strict=True)],
        graph.name or _NAME,
        [_value(onnx, name, graph) for name in graph.inputs],
        [_value(onnx, name, graph) for name in graph.outputs],
        [_tensor(onnx, name, array, graph.values[name].type) for name, array in graph.constants.items()],
        value_info=inner,
    )
    return helper.make_model(made, opset_imports=opsets, ir_version=max(graph.version, _OLDEST_IR))


def _value(onnx: Any, name: str, graph: RuntimeGraph) -> Any:
    value = graph.values.get(name)
    if value is None:
        return onnx.helper.make_empty_tensor_value_info(name)
    dims = None if value.dims is None else [None if d < 0 else d for d in value.dims]
    return onnx.helper.make_tensor_value_info(name, value.type, dims)


def _tensor(onnx: Any, name: str, array: Array, type: int) -> Any:
    small = array.size <= SMALL
    tensor = onnx.numpy_helper.from_array(array, name) if small else onnx.TensorProto(name=name, dims=array.shape)
    tensor.data_type = type
    return tensor


def _node(onnx: Any, node: RuntimeNode, name: str) -> Any:
    attributes = dict(node.attributes)
    proto = onnx.helper.make_node(
        node.type,
        [*node.inputs, *(n for n in node.captured if node.opaque)],
        list(node.outputs),
        name=name,
        domain=OPAQUE if node.opaque else node.domain,
    )
    for key, value in attributes.items():
        proto.attribute.append(_attribute(onnx, key, value))
    return proto


def _attribute(onnx: Any, key: str, value: Any) -> Any:
    """An attribute; ``value`` is a pair of ONNX's name of its type and the value."""
    kind, content = value
    type = getattr(onnx.AttributeProto, kind)
    if kind == "TENSOR":
        content = onnx.numpy_helper.from_array(content)
    return onnx.helper.make_attribute(key, content, attr_type=type)

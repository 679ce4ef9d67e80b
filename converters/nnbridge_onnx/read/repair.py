"""Repair of files that ONNX Runtime accepts and the onnx package's checker refuses: they are written as the checker has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from nnbridge_onnx.declaration import CONTRIB
from nnbridge_onnx.read.graph import MAX_DEPTH, free_names, subgraphs

_CONSTANTS_ALONE_IR = 4
"""Before this IR version, every constant is an input too."""
_OWN: Mapping[str, int] = {"LayerNormalization": 17, "SimplifiedLayerNormalization": 1 << 31}
"""Operators that ONNX Runtime's optimiser writes into ONNX's own domain, and the opset from which ONNX has them itself."""
_VERSIONS: Mapping[str, int] = {"": 21, CONTRIB: 1}
"""The versions of domains that a file uses and does not import: ONNX Runtime reads the newest one that it knows."""


def repair(onnx: Any, model: Any) -> Any:
    """The model as the checker accepts it: the same one where nothing is to be repaired."""
    broken = [step for found, step in _MENDS if found(model)]
    if not broken:
        return model
    repaired = onnx.ModelProto()
    repaired.CopyFrom(model)
    for step in broken:
        step(onnx, repaired)
    return repaired


def has_type(value: Any) -> bool:
    """True for a described value that states a type."""
    return value.type.WhichOneof("value") is not None


# -- nodes in run order, values with types -----------------------------------------------------------------------------------


def _is_unordered(model: Any) -> bool:
    order = _run_order(model.graph)
    return order != list(range(len(order)))


def _order(onnx: Any, model: Any) -> None:
    nodes = list(model.graph.node)
    order = _run_order(model.graph)
    del model.graph.node[:]
    model.graph.node.extend(nodes[i] for i in order)


def _has_untyped(model: Any) -> bool:
    return not all(map(has_type, model.graph.value_info))


def _drop_untyped(onnx: Any, model: Any) -> None:
    typed = [value for value in model.graph.value_info if has_type(value)]
    del model.graph.value_info[:]
    model.graph.value_info.extend(typed)


def _run_order(graph: Any) -> list[int]:
    """Indexes of the nodes, each after those whose outputs it reads; nodes of a cycle stay where they are."""
    producers = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    reads = [
        {
            producers[name]
            for name in (*node.input, *(n for a in node.attribute for g in subgraphs(a) for n in free_names(g)))
            if name in producers
        }
        for node in graph.node
    ]
    if all(source < i for i, sources in enumerate(reads) for source in sources):
        return list(range(len(reads)))
    try:
        return list(TopologicalSorter(dict(enumerate(reads))).static_order())
    except CycleError:
        return list(range(len(reads)))


# -- names -------------------------------------------------------------------------------------------------------------------


def _is_nameless(model: Any) -> bool:
    return not model.graph.name


def _name(onnx: Any, model: Any) -> None:
    model.graph.name = "graph"


# -- constants that are no inputs, before IR version 4 -----------------------------------------------------------------------


def _lone_constants(model: Any) -> list[Any]:
    if model.ir_version >= _CONSTANTS_ALONE_IR:
        return []
    inputs = {value.name for value in model.graph.input}
    return [tensor for tensor in model.graph.initializer if tensor.name not in inputs]


def _add_inputs(onnx: Any, model: Any) -> None:
    describe = onnx.helper.make_tensor_value_info
    model.graph.input.extend(describe(t.name, t.data_type, list(t.dims)) for t in _lone_constants(model))


# -- operators of ONNX Runtime's own, and domains ----------------------------------------------------------------------------


def _nodes_of(graph: Any, depth: int = 0) -> Iterator[Any]:
    """The nodes of a graph and of those inside."""
    for node in graph.node:
        yield node
        if node.op_type in _WITH_BODIES and depth < MAX_DEPTH:
            for attribute in node.attribute:
                for inner in subgraphs(attribute):
                    yield from _nodes_of(inner, depth + 1)


_WITH_BODIES = frozenset(["If", "Loop", "Scan", "SequenceMap"])
_STANDARD = ("", "ai.onnx")


def _lacks_domains(model: Any) -> bool:
    uses = {(node.domain, node.op_type) for node in _nodes_of(model.graph)}
    own = any(type in _OWN and domain in _STANDARD for domain, type in uses)
    return (own and bool(_own_nodes(model))) or bool(_missing(model, {domain for domain, _ in uses}))


def _own_nodes(model: Any) -> list[Any]:
    """ONNX Runtime's own operators in ONNX's domain."""
    opset = next((e.version for e in model.opset_import if e.domain in _STANDARD), _VERSIONS[""])
    return [n for n in _nodes_of(model.graph) if n.domain in _STANDARD and opset < _OWN.get(n.op_type, 0)]


def _missing(model: Any, used: set[str]) -> list[str]:
    """The domains that are used and not imported; what is ONNX Runtime's own is written out in ONNX's operators."""
    imported = {"" if e.domain == "ai.onnx" else e.domain for e in model.opset_import}
    used = {"" if domain == "ai.onnx" else domain for domain in used}
    return sorted(((used | {""} if CONTRIB in used else used) - imported) & _VERSIONS.keys())


def _repair_domains(onnx: Any, model: Any) -> None:
    for node in _own_nodes(model):
        node.domain = CONTRIB
    for domain in _missing(model, {node.domain for node in _nodes_of(model.graph)}):
        model.opset_import.add(domain=domain, version=_VERSIONS[domain])


_MENDS: tuple[tuple[Callable[[Any], object], Callable[[Any, Any], None]], ...] = (
    (_is_unordered, _order),
    (_has_untyped, _drop_untyped),
    (_is_nameless, _name),
    (_lone_constants, _add_inputs),
    (_lacks_domains, _repair_domains),
)
"""A test for something broken, and its repair in a copy."""

"""A part of an ONNX file as a file of its own: the nodes between tensors of the graph."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nnbridge.converters.cutting import Excerpt, cut
from nnbridge.errors import ConversionError, Reason, first_line, pass_shortage
from nnbridge_onnx.native import infer_shapes
from nnbridge_onnx.passes.inline import branch_nodes, replace_nodes

_CONSTANTS = 4
"""The first version of the format in which initialisers need not be inputs as well."""


def part(path: Path, inputs: Mapping[str, tuple[int, ...]], outputs: Collection[str]) -> bytes:
    """The nodes that compute the named tensors from others. ConversionError for what no node computes or has no known type."""
    model = loaded(path, {*inputs, *outputs})
    types = {value.name: value for value in (*model.graph.value_info, *model.graph.input, *model.graph.output)}
    excerpt(model, list(outputs), inputs, types, str(path))
    content: bytes = model.SerializeToString()
    return content


def loaded(path: Path, names: Collection[str] = ()) -> Any:
    """The file's ``ModelProto`` with the types that the onnx package infers; branches that have tensors of ``names`` are inlined.

    ConversionError for what is no ONNX file, or too large for protobuf.
    """
    import onnx
    from google.protobuf.message import EncodeError

    try:
        model = onnx.load(str(path))
        inline_branches(model.graph, names)
        model.graph.CopyFrom(infer_shapes(onnx, model).graph)
    except EncodeError as error:
        rule = "less than 2 GiB with external data, as protobuf writes no more, to hand operators to ONNX Runtime"
        raise ConversionError(Reason(rule, "more", file=str(path), hint="--host nnbridge")) from error
    except Exception as error:
        pass_shortage(error)
        # protobuf's, the checker's and the operating system's errors have no common class.
        raise ConversionError(Reason("an ONNX model", first_line(error), file=str(path))) from error
    return model


def excerpt(model: Any, outputs: Sequence[str], inputs: Collection[str], types: Mapping[str, Any], source: str) -> Excerpt[str]:
    """Make a model one of the nodes that compute tensors from others; ``types``: a ``ValueInfoProto`` of each tensor."""
    import onnx

    graph = model.graph
    producers = {name: k for k, node in enumerate(graph.node) for name in node.output if name}
    missing = next((name for name in outputs if name not in producers), None)
    if missing is not None:
        raise ConversionError(Reason("a tensor that a node of the graph computes", missing or "none", file=source))
    constants = {tensor.name for tensor in graph.initializer} | {tensor.values.name for tensor in graph.sparse_initializer}
    found = cut(outputs, inputs, producers, [list(_reads(node)) for node in graph.node], constants.__contains__)

    def typed(names: Collection[str]) -> list[Any]:
        unknown = next((name for name in names if name not in types), None)
        if unknown is not None:
            raise ConversionError(Reason("tensors of known types at the part's ends", unknown, file=source))
        return [types[name] for name in names]

    nodes = [graph.node[k] for k in found.operators]
    read = {name for node in nodes for name in _reads(node)}
    initializers = [tensor for tensor in graph.initializer if tensor.name in read]
    # What a caller may replace is not a constant to ONNX Runtime's optimiser.
    names = read & constants if model.ir_version >= _CONSTANTS else set()
    starts = [*typed(found.inputs), *(value for value in graph.input if value.name in names)]
    made = onnx.helper.make_graph(nodes, graph.name or "part", starts, typed(outputs), initializers)
    made.sparse_initializer.extend(tensor for tensor in graph.sparse_initializer if tensor.values.name in read)
    computed = {name for node in nodes for name in node.output} - set(outputs)
    made.value_info.extend(value for value in graph.value_info if value.name in computed)
    model.graph.CopyFrom(made)
    model.ir_version = max(model.ir_version, _CONSTANTS)
    return found


def inline_branches(graph: Any, names: Collection[str]) -> None:
    """Put the branch of an If in its place that has one of these tensors, under the names that the importer gives them."""
    import onnx

    while True:
        nodes: list[Any] = []
        weights: dict[str, Any] = {}
        found = False
        for node in graph.node:
            prefix = f"{node.output[0]}/" if node.op_type == "If" and not node.domain and node.output else ""
            inside = {name.removeprefix(prefix) for name in names if prefix and name.startswith(prefix)}
            chosen = [a.g for a in node.attribute if inside and inside & _computed(a.g)]
            nodes += branch_nodes(onnx, node, chosen[0], weights) if len(chosen) == 1 else [node]
            found |= len(chosen) == 1
        if not found:
            return
        replace_nodes(onnx, graph, nodes)
        graph.initializer.extend(weights.values())


def _computed(graph: Any) -> set[str]:
    """The tensors of a body, and those of bodies inside of it under the importer's names."""
    own = {name for node in graph.node for name in node.output}
    deeper = ((node.output[0], a.g) for node in graph.node if node.op_type == "If" and node.output for a in node.attribute)
    return own | {f"{name}/{inner}" for name, body in deeper for inner in _computed(body)}


def _reads(node: Any) -> Iterator[str]:
    """The names that a node reads, its bodies' from outside included."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            known = {value.name for value in (*body.input, *body.initializer)} | {name for n in body.node for name in n.output}
            yield from (name for inner in body.node for name in _reads(inner) if name not in known)

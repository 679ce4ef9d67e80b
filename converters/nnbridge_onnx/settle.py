"""What is known once constants are folded: shapes that follow from them, and the branches of If that are always taken.

Inference by the ``onnx`` package and folding take turns until neither finds more. Weights have no part in that: inference sees
their types alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nnbridge.converters.draft import Draft
from nnbridge.types import RUNTIME_FEATURE_LEVEL
from nnbridge_onnx.fold import fold
from nnbridge_onnx.graph import Array, Graph
from nnbridge_onnx.unroll import MAX_NODES, unrolled
from nnbridge_onnx.values import Values

ROUNDS = 8
SMALL = 4096
"""Constants of more elements are weights, which tell nothing about shapes."""
MAX_PROPAGATED = 1 << 16
MAX_RANK = 64
_NUMBERS = (6, 7)
"""INT32 and INT64, of which dimensions may be made."""


def settle(onnx: Any, model: Any, read: Callable[[Any, Mapping[str, Any]], Graph], *, unrolls: bool = True) -> Graph:
    """A ``ModelProto`` as data, by ``read``, which takes a model without weights and the weights by name."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    bare = _without_weights(onnx, model)
    known: dict[str, Array] = {}
    for _ in range(ROUNDS):
        _infer(onnx, bare, weights, known)
        graph = read(bare, weights)
        constants = _folded(graph)
        found = {name: array for name, array in constants.items() if name not in weights and array.size <= SMALL}
        inlined = _inline(onnx, bare, constants, weights, graph if unrolls else None)
        if not inlined and (found.keys() == known.keys() or _complete(graph)):
            break
        known = found
    return graph


def _without_weights(onnx: Any, model: Any) -> Any:
    graph = model.graph
    bare = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    bare.graph.name = graph.name
    constants = {tensor.name for tensor in graph.initializer}
    bare.graph.input.extend(value for value in graph.input if value.name not in constants)
    for part in ("node", "output", "value_info", "sparse_initializer"):
        getattr(bare.graph, part).extend(getattr(graph, part))
    return bare


def _infer(onnx: Any, bare: Any, weights: Mapping[str, Any], known: Mapping[str, Array]) -> None:
    """Describe all values of a model as far as its small constants and those that are known tell."""
    helper, graph = onnx.helper, bare.graph
    seen = onnx.ModelProto()
    seen.CopyFrom(bare)
    wanted = {value.name for value in graph.output}
    for tensor in weights.values():
        if np.prod(tensor.dims, dtype=np.float64) <= SMALL and not tensor.external_data:
            seen.graph.initializer.append(tensor)
        else:
            seen.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    replaced = {name: array for name, array in known.items() if name not in wanted}
    seen.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in replaced.items())
    kept = [node for node in seen.graph.node if not (node.output and set(filter(None, node.output)) <= replaced.keys())]
    del seen.graph.node[:]
    seen.graph.node.extend(kept)
    for node in seen.graph.node:
        if node.op_type == "STFT" and all(attribute.name != "onesided" for attribute in node.attribute):
            # The operator's default, which inference takes for 0.
            node.attribute.append(helper.make_attribute("onesided", 1))
    inferred = onnx.shape_inference.infer_shapes(seen, strict_mode=False, data_prop=_propagates(seen.graph, {})).graph
    described = {value.name: value for value in (*graph.value_info, *inferred.value_info)}
    for name, array in replaced.items():
        described[name] = helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
    for part, values in (("value_info", described.values()), ("output", inferred.output)):
        del getattr(graph, part)[:]
        getattr(graph, part).extend(values)


def _propagates(graph: Any, sizes: dict[str, int]) -> bool:
    """False if inference would follow values that inputs or Concats make too large; it has no limit of its own.

    ``sizes`` bounds the elements of values that are known outside; those that it does not name are shapes at most.
    """
    sizes = sizes | {tensor.name: int(np.prod(tensor.dims, dtype=np.int64)) for tensor in graph.initializer}
    vectors = [(value.name, value.type.tensor_type) for value in graph.input]
    sizes.update((n, int(t.shape.dim[0].dim_value)) for n, t in vectors if t.elem_type in _NUMBERS and len(t.shape.dim) == 1)
    for node in graph.node:
        given = [sizes.get(name, MAX_RANK) for name in node.input]
        size = sum(given) if node.op_type == "Concat" else max(given, default=MAX_RANK)
        if size > MAX_PROPAGATED or not all(_propagates(a.g, sizes) for a in node.attribute if a.HasField("g")):
            return False
        sizes.update(dict.fromkeys(node.output, size))
    return True


def _folded(graph: Graph) -> Mapping[str, Array]:
    """All constants, those among them that folding finds out from small ones."""
    values = Values(graph, Draft(RUNTIME_FEATURE_LEVEL, 0))
    for node in graph.nodes:
        if all(values.constants[name].size <= SMALL for name in node.inputs if name in values.constants):
            fold(node, values)
    return values.constants


def _complete(graph: Graph) -> bool:
    """True if inference cannot tell more: the shape of every tensor is known."""
    names = [name for node in graph.nodes for name in node.outputs if name]
    shapes = [graph.tensors[name].shape if name in graph.tensors else None for name in names]
    return all(shape is not None and min(shape, default=0) >= 0 for shape in shapes)


# -- branches ----------------------------------------------------------------------------------------------------------


def _inline(onnx: Any, bare: Any, constants: Mapping[str, Array], weights: dict[str, Any], unrolled_in: Graph | None) -> bool:
    """Put the branch of each If whose condition is known in its place, and write short loops out; True if there was one."""
    nodes: list[Any] = []
    found = False
    for node in bare.graph.node:
        condition = constants.get(node.input[0]) if node.op_type == "If" and node.domain in ("", "ai.onnx") else None
        if condition is None or condition.size != 1:
            room = MAX_NODES - len(bare.graph.node) - len(nodes)
            written = None if unrolled_in is None else unrolled(onnx, node, unrolled_in, constants, weights, _renamed, room)
            nodes += [node] if written is None else written
            found |= written is not None
            continue
        found = True
        branch = next(a.g for a in node.attribute if a.name == ("then_branch" if condition.item() else "else_branch"))
        nodes += _branch(onnx, node, branch, weights)
    if found:
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del bare.graph.node[:]
        bare.graph.node.extend(copies)
    return found


def _branch(onnx: Any, node: Any, branch: Any, weights: dict[str, Any]) -> list[Any]:
    """The nodes of a branch under names that no other has, and its constants among the weights."""
    inner = {name for made in branch.node for name in made.output} | {tensor.name for tensor in branch.initializer}
    names = {name: f"{node.output[0]}/{name}" for name in inner if name}
    for tensor in branch.initializer:
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        copy.name = names[tensor.name]
        weights[copy.name] = copy
    made = [_renamed(onnx, inside, names) for inside in branch.node]
    results = zip(branch.output, node.output, strict=True)
    made += [onnx.helper.make_node("Identity", [names[r.name]], [name]) for r, name in results if name]
    return made


def _renamed(onnx: Any, node: Any, names: Mapping[str, str]) -> Any:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for part in (copy.input, copy.output):
        part[:] = [names.get(name, name) for name in part]
    for attribute in copy.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else list(attribute.graphs):
            _rename_captured(onnx, graph, names)
    return copy


def _rename_captured(onnx: Any, graph: Any, names: Mapping[str, str]) -> None:
    """New names for what a subgraph reads from outside."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own.update(name for node in graph.node for name in node.output)
    outer = {old: new for old, new in names.items() if old not in own}
    for node in graph.node:
        node.CopyFrom(_renamed(onnx, node, outer))
    for value in graph.output:
        value.name = outer.get(value.name, value.name)

"""Shape inference, in turns with folding and inlining, until none of them finds more.

Inference is the ``onnx`` package's. Weights have no part in it: it sees their types only.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from nnbridge.model import Array
from nnbridge.records import dataclass
from nnbridge_onnx import native
from nnbridge_onnx.declaration import REGISTRY
from nnbridge_onnx.host import runtime
from nnbridge_onnx.passes.folding import Known, fold
from nnbridge_onnx.passes.inference_view import MAX_PROPAGATED, SMALL, WRITTEN, correct_einsum, correct_pool, sizes_of
from nnbridge_onnx.passes.inline import inline
from nnbridge_onnx.read.graph import INT32, INT64, Fold, Graph

_log = logging.getLogger(__name__)

ROUNDS = 8
MAX_RANK = 64


@dataclass(frozen=True, slots=True)
class _Step:
    """The fields of a ``NodeProto`` that are read more than once: reading a message's fields costs more than what is done with
    them."""

    type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    deciding: tuple[str, ...]
    """Those of the inputs whose numbers decide dimensions."""
    bodies: Sequence[_NodeList]
    """The graphs among the attributes' values."""


@dataclass(frozen=True, slots=True)
class _NodeList:
    """A ``GraphProto`` and its nodes as data."""

    proto: Any
    steps: Sequence[_Step]


def _body(graph: Any) -> _NodeList:
    return _NodeList(graph, [_step(node) for node in graph.node])


def _step(node: Any) -> _Step:
    bodies = [_body(attribute.g) for attribute in node.attribute if attribute.HasField("g")]
    type, domain, inputs = node.op_type, node.domain, tuple(node.input)
    places = _deciding().get(type, ()) if domain in ("", "ai.onnx") else ()
    deciding = tuple([inputs[i] for i in places if i < len(inputs) and inputs[i]])
    return _Step(type, domain, inputs, tuple(node.output), deciding, bodies)


@functools.cache
def _deciding() -> Mapping[str, Sequence[int]]:
    """The inputs of operators that decide dimensions by their numbers."""
    return {one.name: [i for i, declared in enumerate(one.inputs) if declared.decides_shape] for one in REGISTRY}


class Reading(Protocol):
    """Reads a model as data: first what inference does not change, then the rest."""

    def read_nodes(self, model: Any, weights: Mapping[str, Any]) -> None:
        """Read the nodes of a model without weights, and the weights."""

    def graph(self, model: Any) -> Graph:
        """The model with the nodes and weights that were read last."""


class _Inference:
    """The onnx package's inference for one model, and what is done beside its next run."""

    def __init__(self, onnx: Any, weights: Mapping[str, Any], meanwhile: Callable[[], None]) -> None:
        self.onnx = onnx
        self.weights = weights
        self.described = onnx.GraphProto()
        """The weights as inference sees them."""
        _describe_weights(onnx, self.described, weights.values())
        self.follows = True
        """True if computed numbers are followed where they decide dimensions."""
        self._meanwhile: Callable[[], None] | None = meanwhile
        self._asked: dict[tuple[str, ...], Mapping[str, Any]] = {}

    def run(self, model: Any, *, follow: bool = False) -> Any:
        """The ``GraphProto`` of a ``ModelProto`` with what is found of its values."""
        meanwhile, self._meanwhile = self._meanwhile, None
        return native.infer_shapes(self.onnx, model, follow=follow, meanwhile=meanwhile).graph

    def by_runtime(self, bare: Any, names: tuple[str, ...]) -> Mapping[str, Any]:
        """The descriptions of values that inference knows nothing of, such as results of ONNX Runtime's own operators."""
        if names and names not in self._asked:
            model = self.onnx.ModelProto()
            model.CopyFrom(bare)
            model.graph.MergeFrom(self.described)
            self._asked[names] = runtime.described(model, names)
        return self._asked[names] if names else {}


def infer_shapes(onnx: Any, model: Any, reading: Reading, *, loops: bool = True) -> Graph:
    """A ``ModelProto`` as data, by ``reading``. ``loops`` are written out where their iterations are known and few."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    declared = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    bare = _without_weights(onnx, model)
    known: dict[str, Array] = {}
    folds: dict[tuple[str, ...], Fold] = {}
    inlined = True
    for _ in range(ROUNDS):
        if inlined:
            steps = _body(bare.graph).steps
            inference = _Inference(onnx, weights, functools.partial(reading.read_nodes, bare, weights))
        _describe(inference, bare, steps, known, declared)
        graph = replace(reading.graph(bare), folds=folds)
        folded = _folded(graph)
        found = {name: array for name, array in folded.constants.items() if name not in weights and array.size <= SMALL}
        inlined = inline(onnx, bare, folded, weights, loops=loops)
        if not inlined and (found.keys() == known.keys() or _complete(graph)):
            break
        known = found
    return graph


def _without_weights(onnx: Any, model: Any) -> Any:
    graph = model.graph
    # Before IR version 4, inference knows no constant that is not an input too.
    bare = onnx.ModelProto(ir_version=max(model.ir_version, 4), opset_import=model.opset_import)
    bare.graph.name = graph.name
    constants = {tensor.name for tensor in graph.initializer}
    bare.graph.input.extend(value for value in graph.input if value.name not in constants)
    _extend(bare.graph, graph, ("node", "output", "sparse_initializer"))
    return bare


def with_types_of_weights(onnx: Any, model: Any) -> Any:
    """A ``ModelProto`` as inference needs it: of constants that decide no dimensions, it has the types only."""
    bare = _without_weights(onnx, model)
    _describe_weights(onnx, bare.graph, model.graph.initializer)
    return bare


def _extend(graph: Any, other: Any, parts: Iterable[str]) -> None:
    """Copy some of another graph's lists into a graph."""
    for part in parts:
        getattr(graph, part).extend(getattr(other, part))


def _describe(
    inference: _Inference, bare: Any, steps: Sequence[_Step], known: Mapping[str, Array], declared: Mapping[str, Any]
) -> None:
    """Describe all values of a model: as inference finds, and what it leaves open as the file declares.

    Declarations never overrule what is computed, nor do they count where computed values decide the dimensions.
    """
    graph = bare.graph
    del graph.value_info[:]
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.Clear()
    _infer(inference, bare, steps, known)
    found = {value.name: value for value in (*graph.value_info, *graph.output)}
    open_names = _decided_by_values(steps, found, {*inference.weights, *known})
    described = {**inference.by_runtime(bare, _untyped(steps, found, declared)), **declared}
    declared = {**_by_schema(inference.onnx, bare, steps, found, described), **described}
    completed = (_completed(found.get(name), value, name in open_names) for name, value in declared.items())
    added = [value for value in completed if value is not None]
    outputs = {value.name: value for value in graph.output}
    for value in added:
        if value.name in outputs:
            outputs[value.name].CopyFrom(value)
    others = [value for value in added if value.name not in outputs]
    if others:
        # What follows from them is inferred as well.
        names = {value.name for value in others}
        retained = [value for value in graph.value_info if value.name not in names]
        del graph.value_info[:]
        graph.value_info.extend([*retained, *others])
        _infer(inference, bare, steps, known)


def _untyped(steps: Iterable[_Step], *described: Mapping[str, Any]) -> tuple[str, ...]:
    """Results of nodes whose type is neither found nor declared."""
    typed = {name for values in described for name, value in values.items() if _has_element(value)}
    return tuple(name for step in steps for name in step.outputs if name and name not in typed)


def _by_schema(onnx: Any, bare: Any, steps: Iterable[_Step], *described: Mapping[str, Any]) -> Mapping[str, Any]:
    """The element types of results that are those of an operand, by the operator's schema: of nodes that inference refuses."""
    versions = {entry.domain or "ai.onnx": int(entry.version) for entry in bare.opset_import}
    values = (*bare.graph.input, *bare.graph.initializer)
    known = {value.name: value.data_type if hasattr(value, "data_type") else value.type.tensor_type.elem_type for value in values}
    for part in described:
        known.update(
            {n: v.type.tensor_type.elem_type for n, v in part.items() if v.type.HasField("tensor_type") and _has_element(v)}
        )
    found = {}
    for step in steps:
        if all(name in known for name in step.outputs if name):
            continue
        domain = step.domain or "ai.onnx"
        try:
            schema = onnx.defs.get_schema(step.type, versions.get(domain, 1), "" if domain == "ai.onnx" else domain)
        except onnx.defs.SchemaError:
            continue
        types = {formal.type_str: known[name] for formal, name in zip(schema.inputs, step.inputs, strict=False) if name in known}
        for formal, name in zip(schema.outputs, step.outputs, strict=False):
            if name and name not in known and formal.type_str in types:
                known[name] = types[formal.type_str]
                found[name] = onnx.helper.make_tensor_value_info(name, known[name], None)
    return found


def _has_element(value: Any) -> bool:
    kind = value.type.WhichOneof("value")
    return kind is not None and (kind != "tensor_type" or bool(value.type.tensor_type.elem_type))


def _decided_by_values(steps: Iterable[_Step], found: Mapping[str, Any], constants: Collection[str]) -> set[str]:
    """Values with open dimensions that computed numbers decide, such as the shape of a Reshape, and what follows from them."""
    decided: set[str] = set()
    for step in steps:
        if _reads_shapes(step, constants) or not decided.isdisjoint(step.inputs):
            decided.update(name for name in step.outputs if name not in found or sizes_of(found[name]) is None)
    return decided


def _reads_shapes(step: _Step, constants: Collection[str]) -> bool:
    """True if computed numbers that the node reads decide dimensions."""
    return any(name not in constants for name in step.deciding)


def _completed(found: Any, declared: Any, open: bool) -> Any:
    """A declaration with what inference has found in it; None where inference leaves nothing open, or it adds nothing."""
    if not declared.type.HasField("tensor_type"):
        return declared if found is None else None
    stated = declared.type.tensor_type
    if found is not None and not found.type.HasField("tensor_type"):
        return None
    kind = None if found is None else found.type.tensor_type
    if kind is not None and kind.elem_type and sizes_of(found) is not None:
        return None
    value = type(declared)()
    value.CopyFrom(declared)
    tensor = value.type.tensor_type
    if kind is not None and kind.elem_type:
        tensor.elem_type = kind.elem_type
    computed = kind.shape.dim if kind is not None and kind.HasField("shape") else None
    if computed is not None and (not stated.HasField("shape") or _contradict(computed, stated.shape.dim)):
        return None
    for i, dimension in enumerate(tensor.shape.dim):
        if computed is not None and computed[i].HasField("dim_value"):
            dimension.dim_value = computed[i].dim_value
        elif open or dimension.dim_value < 0:
            dimension.Clear()
    return None if kind is not None and value.type == found.type else value


def _contradict(computed: Sequence[Any], stated: Sequence[Any]) -> bool:
    """True if two lists of dimensions cannot be those of one value: then what the file states counts nowhere."""
    known = (
        (a.dim_value, b.dim_value) for a, b in zip(computed, stated, strict=False) if a.HasField("dim_value") and b.dim_value
    )
    return len(computed) != len(stated) or any(a != b for a, b in known)


def _infer(inference: _Inference, bare: Any, steps: Sequence[_Step], known: Mapping[str, Array]) -> None:
    """Describe all values of a model as far as its small constants and those that are known decide."""
    onnx, graph = inference.onnx, bare.graph
    seen = onnx.ModelProto(ir_version=bare.ir_version, opset_import=bare.opset_import)
    seen.graph.name = graph.name
    _extend(seen.graph, graph, ("input", "output", "value_info", "sparse_initializer"))
    outputs = {value.name for value in graph.output}
    seen.graph.MergeFrom(inference.described)
    replaced = {name: array for name, array in known.items() if name not in outputs}
    seen.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in replaced.items())
    body = _NodeList(seen.graph, _left(onnx, graph, steps, {*replaced, ""}, seen.graph))
    inferred = _inferred(inference, seen, body)
    while correct_pool(onnx, seen, body.steps, inferred) or correct_einsum(onnx, seen, body.steps, inferred):
        inferred = _inferred(inference, seen, body)
    results = {name for step in steps for name in step.outputs}
    stand_ins = (value for value in seen.graph.input if value.name in results)
    described = {value.name: value for value in (*graph.value_info, *stand_ins, *inferred.value_info)}
    for name, array in replaced.items():
        described[name] = onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
    for part, values in (("value_info", described.values()), ("output", inferred.output)):
        del getattr(graph, part)[:]
        getattr(graph, part).extend(values)


def _may_decide(tensor: Any) -> bool:
    """True for constants whose numbers may decide dimensions: whole numbers, and as many real ones as there may be axes."""
    most = SMALL if tensor.data_type in (INT32, INT64) else MAX_RANK
    return math.prod(tensor.dims) <= most and not tensor.external_data


def _describe_weights(onnx: Any, graph: Any, weights: Iterable[Any]) -> None:
    """Give a graph the constants that may decide dimensions, and others as inputs of their types."""
    for tensor in weights:
        if _may_decide(tensor):
            graph.initializer.append(tensor)
        else:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))


def _left(onnx: Any, graph: Any, steps: Sequence[_Step], known: set[str], seen: Any) -> list[_Step]:
    """Add the nodes of a graph whose results are not all known to one that inference sees; what it sees of them, as data."""
    nodes: list[Any] = []
    left: list[_Step] = []
    for node, step in zip(graph.node, steps, strict=True):
        if step.outputs and known.issuperset(step.outputs):
            continue
        write = WRITTEN.get(step.type if step.domain in ("", "ai.onnx") else f"{step.domain}.{step.type}")
        written = None if write is None else write(onnx, node, seen)
        nodes += [node] if written is None else written
        left += [step] if written is None else map(_step, written)
    seen.node.extend(nodes)
    return left


def _inferred(inference: _Inference, seen: Any, body: _NodeList) -> Any:
    """The graph as inference describes it, with the numbers that it follows where they decide dimensions."""
    follows = inference.follows and _computes_shapes(body, set()) and (native.BOUNDED or _propagates(body, {}))
    if not follows:
        return inference.run(seen)
    try:
        return inference.run(seen, follow=True)
    except native.CrashError as error:  # They take more memory or time than they may: some 100 bytes for each element.
        _log.info("shape inference does not follow computed numbers: %s", error)
        inference.follows = False
        return inference.run(seen)


def _bound(step: _Step, sizes: Mapping[str, int]) -> int:
    """At most how many elements a node's results have, by those of its inputs."""
    ranks = [sizes.get(name, MAX_RANK) for name in step.inputs] or [MAX_RANK]
    return sum(ranks) if step.type == "Concat" else max(ranks)


def _computes_shapes(body: _NodeList, constants: set[str]) -> bool:
    """True if an operator of a graph or of its bodies reads computed numbers that decide dimensions."""
    constants = constants | {tensor.name for tensor in body.proto.initializer}
    for step in body.steps:
        if step.type == "Constant":
            constants.update(step.outputs)
        if _reads_shapes(step, constants):
            return True
        for inner in step.bodies:
            if _computes_shapes(inner, constants):
                return True
    return False


def _propagates(body: _NodeList, sizes: dict[str, int], *, inner: bool = False) -> bool:
    """False if inference would follow values that inputs, Concats or a body's Ranges make too large.

    ``sizes`` bounds the elements of values that are known outside; those that it does not name are shapes at most.
    """
    sizes = sizes | {tensor.name: math.prod(tensor.dims) for tensor in body.proto.initializer}
    for value in body.proto.input:
        dims = value.type.tensor_type.shape.dim
        if len(dims) == 1:  # Of any element type: inference follows the elements of floats in sums and products as well.
            sizes[value.name] = int(dims[0].dim_value)
    for step in body.steps:
        size = _bound(step, sizes)
        if (inner and step.type == "Range") or size > MAX_PROPAGATED:
            return False
        for part in step.bodies:
            if not _propagates(part, sizes, inner=True):
                return False
        for name in step.outputs:
            sizes[name] = size
    return True


def _folded(graph: Graph) -> Known:
    """The known values with the results of folding small constants."""
    known = Known(graph)
    constants = known.constants
    for node in graph.nodes:
        if not [name for name in node.inputs if name in constants and constants[name].size > SMALL]:
            fold(node, known)
    return known


def _complete(graph: Graph) -> bool:
    """True if inference cannot find more: the shape of every tensor is known."""
    names = [name for node in graph.nodes for name in node.outputs if name]
    shapes = [graph.tensors[name].shape if name in graph.tensors else None for name in names]
    return all(shape is not None and min(shape, default=0) >= 0 for shape in shapes)

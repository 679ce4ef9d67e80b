"""Repair of files that ONNX Runtime accepts and the onnx package's checker refuses: they are written as the checker has them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np

from nnbridge.errors import ConversionError, Reason
from nnbridge_onnx import native
from nnbridge_onnx.declaration import CONTRIB
from nnbridge_onnx.passes.inline import state_defaults
from nnbridge_onnx.read.graph import FLOAT, INT64, MAX_DEPTH, STRING, free_names, subgraphs

_log = logging.getLogger(__name__)
OLDEST_IR = 3
"""The oldest IR version that the checker reads. What is older, or states none, has the same messages."""
_CONSTANTS_ALONE_IR = 4
"""Before this IR version, every constant is an input too."""
_OWN: Mapping[str, int] = {"LayerNormalization": 17, "SimplifiedLayerNormalization": 1 << 31}
"""Operators that ONNX Runtime's optimiser writes into ONNX's own domain, and the opset from which ONNX has them itself."""
_UNCHECKED: Mapping[str, range] = {
    "GroupNormalization": range(18, 21),
    "MeanVarianceNormalization": range(9),
    "ThresholdedRelu": range(10),
}
"""Operators that ONNX Runtime has kernels for at opsets that do not have them, or deprecate them."""
_VERSIONS: Mapping[str, int] = {"": 26, CONTRIB: 1, "ai.onnx.ml": 5}
"""The versions of domains that a file uses and does not import: ONNX Runtime reads the newest one that it knows,
1.32 of these."""


def repair(onnx: Any, model: Any, source: str = "") -> Any:
    """The model as the checker accepts it: the same one where nothing is to be repaired.

    What changes a value that the file has, or what it may mean, is a warning.
    """
    repaired = model
    for found, step, warning in _REPAIRS:
        if not found(repaired):
            continue
        if repaired is model:
            repaired = onnx.ModelProto()
            repaired.CopyFrom(model)
        step(onnx, repaired)
        if warning:
            _log.warning("%s: %s; read as ONNX Runtime reads it", source or "the model", warning)
    return repaired


def unchecked(model: Any) -> list[Any]:
    """The nodes that the checker refuses at the model's opset, and ONNX Runtime runs."""
    opset = _opset(model)
    return [n for n in _nodes_of(model.graph) if n.domain in _STANDARD and opset in _UNCHECKED.get(n.op_type, ())]


def _opset(model: Any) -> int:
    return next((int(e.version) for e in model.opset_import if e.domain in _STANDARD), _VERSIONS[""])


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
    opset = _opset(model)
    return [n for n in _nodes_of(model.graph) if n.domain in _STANDARD and opset < _OWN.get(n.op_type, 0)]


def _missing(model: Any, used: set[str]) -> list[str]:
    """The domains that are used and not imported; what is ONNX Runtime's own is written out in ONNX's operators."""
    imported = {"" if e.domain == "ai.onnx" else e.domain for e in model.opset_import}
    used = {"" if domain == "ai.onnx" else domain for domain in (*used, *_of_functions(model))}
    return sorted(((used | {""}) - imported) & _VERSIONS.keys())


def _of_functions(model: Any) -> dict[str, int]:
    """The versions that functions import, which are written out in the graph."""
    return {e.domain: int(e.version) for function in model.functions for e in function.opset_import}


def _repair_domains(onnx: Any, model: Any) -> None:
    for node in _own_nodes(model):
        node.domain = CONTRIB
    for domain in _missing(model, {node.domain for node in _nodes_of(model.graph)}):
        newest = min(_VERSIONS[domain], onnx.defs.onnx_opset_version()) if domain == "" else _VERSIONS[domain]
        model.opset_import.add(domain=domain, version=_of_functions(model).get(domain, newest))


def _has_other_versions(model: Any) -> bool:
    """True if a function imports another version than the model."""
    versions = {e.domain: e.version for e in model.opset_import}
    return any(versions.get(e.domain, e.version) != e.version for f in model.functions for e in f.opset_import)


def _write_out_functions(onnx: Any, model: Any) -> None:
    state_defaults(model)
    model.CopyFrom(native.inline_functions(onnx, model))


# -- constants -------------------------------------------------------------------------------------------------------------


def _graphs_of(model: Any) -> Iterator[Any]:
    """The model's graph and those inside."""
    yield model.graph
    for node in _nodes_of(model.graph):
        for attribute in node.attribute if node.op_type in _WITH_BODIES else ():
            yield from subgraphs(attribute)


def _has_old_version(model: Any) -> bool:
    return 0 <= model.ir_version < OLDEST_IR


def _raise_version(onnx: Any, model: Any) -> None:
    model.ir_version = OLDEST_IR


def _sparse_nodes(graph: Any) -> list[tuple[Any, Any]]:
    """Constant nodes of sparse tensors, and the attribute of each."""
    nodes = [node for node in graph.node if node.op_type == "Constant"]
    return [(node, a) for node in nodes for a in node.attribute if a.name == "sparse_value"]


def _has_sparse(model: Any) -> bool:
    return any(graph.sparse_initializer or _sparse_nodes(graph) for graph in _graphs_of(model))


def _make_dense(onnx: Any, model: Any) -> None:
    for graph in _graphs_of(model):
        for _, attribute in _sparse_nodes(graph):
            dense = _dense(onnx, attribute.sparse_tensor)
            attribute.CopyFrom(onnx.helper.make_attribute("value", dense))
        graph.initializer.extend(_dense(onnx, sparse) for sparse in graph.sparse_initializer)
        del graph.sparse_initializer[:]


def _dense(onnx: Any, sparse: Any) -> Any:
    """A sparse tensor with its zeros. ConversionError for one that is damaged, or thousands of times as large as the file's."""
    dims, name = [int(d) for d in sparse.dims], sparse.values.name
    values, places = (onnx.numpy_helper.to_array(part) for part in (sparse.values, sparse.indices))
    size = math.prod(dims) if min(dims, default=0) >= 0 else -1
    if not 0 <= size <= _MOST_DENSE:
        raise ConversionError(Reason(f"a sparse constant of at most {_MOST_DENSE} elements", str(dims), operand=name))
    flat = places.reshape(-1) if places.ndim < 2 else places @ np.cumprod([1, *dims[:0:-1]])[::-1]
    if len(flat) != values.size or (flat.size and not 0 <= flat.min() <= flat.max() < size):
        raise ConversionError(Reason(f"one index below {size} for each value", f"{len(flat)} of {values.size}", operand=name))
    dense = np.zeros(size, values.dtype)
    dense[flat] = values.reshape(-1)
    return onnx.numpy_helper.from_array(dense.reshape(dims), name)


_MOST_DENSE = 1 << 28


def _has_twice(model: Any) -> bool:
    """True for the graph of a file; of bodies ONNX Runtime refuses it too."""
    names = _constant_names(model.graph)
    return len(names) > len(set(names))


def _constant_names(graph: Any) -> list[str]:
    """The names of constants in the order in which ONNX Runtime reads them: nodes come after initialisers."""
    made = (name for node in graph.node if node.op_type == "Constant" for name in node.output)
    return [*(tensor.name for tensor in graph.initializer), *made]


def _take_last(onnx: Any, model: Any) -> None:
    """The last constant of a name counts."""
    seen = set[str]()
    for part, names_of in ((model.graph.node, _made), (model.graph.initializer, _named)):
        for i, one in reversed([*enumerate(part)]):
            names = names_of(one)
            if not seen.isdisjoint(names):
                del part[i]
            seen.update(names)


def _made(node: Any) -> Sequence[str]:
    return tuple(node.output) if node.op_type == "Constant" else ()


def _named(tensor: Any) -> Sequence[str]:
    return (tensor.name,)


# -- what ONNX Runtime does not look at --------------------------------------------------------------------------------------


_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_VALUES: Mapping[str, tuple[int, bool]] = {
    "value_float": (FLOAT, False), "value_floats": (FLOAT, True), "value_int": (INT64, False), "value_ints": (INT64, True),
    "value_string": (STRING, False), "value_strings": (STRING, True),
}  # fmt: skip
"""Attributes of a Constant from opset 12 on -> the element type, and whether there are several."""
_KINDS: Mapping[str, str] = {
    "TENSOR": "value", "SPARSE_TENSOR": "sparse_value", "FLOAT": "value_float", "FLOATS": "value_floats", "INT": "value_int",
    "INTS": "value_ints", "STRING": "value_string", "STRINGS": "value_strings",
}  # fmt: skip
"""The type of an attribute -> the name that it has as the value of a Constant."""


def _has_unread(model: Any) -> bool:
    initialisers = model.graph.initializer
    keys = [entry.key for entry in model.metadata_props]
    own = {node.op_type for node in _nodes_of(model.graph)}
    return (
        len(keys) > len(set(keys))
        or any(not t.name or (t.HasField("raw_data") and any(len(getattr(t, f)) for f in _FIELDS)) for t in initialisers)
        or any(_is_standard_function(f) and f.name in own for f in model.functions)
    )


def _is_standard_function(function: Any) -> bool:
    """True for a function of ONNX's own domain: ONNX Runtime has kernels of its operators, and does not look at it."""
    return function.domain in _STANDARD


def _drop_unread(onnx: Any, model: Any) -> None:
    del model.metadata_props[:]
    for i, tensor in reversed([*enumerate(model.graph.initializer)]):
        if not tensor.name:
            del model.graph.initializer[i]
        elif tensor.HasField("raw_data"):
            for name in _FIELDS:
                tensor.ClearField(name)
    for i, function in reversed([*enumerate(model.functions)]):
        if _is_standard_function(function):
            del model.functions[i]


def _early_constants(model: Any) -> list[tuple[Any, Any]]:
    """Constant nodes with attributes of later opsets."""
    if _opset(model) >= 12:
        return []
    nodes = [node for node in _nodes_of(model.graph) if node.op_type == "Constant"]
    return [(node, a) for node in nodes for a in node.attribute if a.name in _VALUES]


def _write_tensors(onnx: Any, model: Any) -> None:
    for _, attribute in _early_constants(model):
        attribute.CopyFrom(onnx.helper.make_attribute("value", tensor_of(onnx, attribute)))


def tensor_of(onnx: Any, attribute: Any) -> Any:
    """The tensor that an attribute of a Constant is; None for a sparse one."""
    if attribute.name not in _VALUES:
        return attribute.t if attribute.name == "value" else None
    type, several = _VALUES[attribute.name]
    value = onnx.helper.get_attribute_value(attribute)
    values = list(value) if several else [value]
    return onnx.helper.make_tensor("", type, [len(values)] if several else [], values)


def _describes_constants(model: Any) -> bool:
    constants = {tensor.name for tensor in model.graph.initializer}
    return any(value.name in constants for value in model.graph.value_info)


def _drop_described(onnx: Any, model: Any) -> None:
    """A constant keeps its value, whatever the file says about it."""
    constants = {tensor.name for tensor in model.graph.initializer}
    described = [value for value in model.graph.value_info if value.name not in constants]
    del model.graph.value_info[:]
    model.graph.value_info.extend(described)


def _names_domain(model: Any) -> bool:
    return any(e.domain == "ai.onnx" for e in model.opset_import) or any(n.domain == "ai.onnx" for n in _nodes_of(model.graph))


def _unname_domain(onnx: Any, model: Any) -> None:
    """ONNX's own domain has two names; the checker looks up nodes and versions by either."""
    for one in (*model.opset_import, *_nodes_of(model.graph)):
        one.domain = "" if one.domain == "ai.onnx" else one.domain


# -- what is stated twice -----------------------------------------------------------------------------------------------------


def _is_opset_twice(model: Any) -> bool:
    domains = [_plain(e.domain) for e in model.opset_import]
    return len(domains) > len(set(domains))


def _plain(domain: str) -> str:
    return "" if domain in _STANDARD else domain


def _take_last_opset(onnx: Any, model: Any) -> None:
    """The last version of a domain counts."""
    last = {_plain(e.domain): e.version for e in model.opset_import}
    del model.opset_import[:]
    model.opset_import.extend(onnx.helper.make_opsetid(domain, version) for domain, version in last.items())


def _repeated_attributes(model: Any) -> list[tuple[Any, list[Any]]]:
    """Nodes with more attributes than ONNX Runtime reads, and those that it does: it does not check nodes of ONNX's domain by its
    name, whose last attribute of a name counts, nor constants, whose first attribute counts."""
    nodes = (node for node in _nodes_of(model.graph) if node.domain == "ai.onnx" or node.op_type == "Constant")
    read = ((n, [*({a.name: a for a in n.attribute}.values() if n.op_type != "Constant" else n.attribute[:1])]) for n in nodes)
    return [(node, attributes) for node, attributes in read if len(attributes) < len(node.attribute)]


def _drop_attributes(onnx: Any, model: Any) -> None:
    for node, attributes in _repeated_attributes(model):
        del node.attribute[:]
        node.attribute.extend(attributes)


def _repeated_inputs(model: Any) -> list[int]:
    """Places of inputs that are there already, and constants."""
    names, constants = [value.name for value in model.graph.input], {tensor.name for tensor in model.graph.initializer}
    return [i for i, name in enumerate(names) if name in constants and name in names[:i]]


def _drop_repeated_inputs(onnx: Any, model: Any) -> None:
    for i in reversed(_repeated_inputs(model)):
        del model.graph.input[i]


# -- ends of nodes, and dimensions -------------------------------------------------------------------------------------------


def _has_empty_ends(model: Any) -> bool:
    return any((n.input and not n.input[-1]) or (n.output and not n.output[-1]) for n in _nodes_of(model.graph))


def _drop_empty_ends(onnx: Any, model: Any) -> None:
    """Inputs and outputs that are left out at the end are as good as not there; the checker counts them."""
    for node in _nodes_of(model.graph):
        for names in (node.input, node.output):
            while names and not names[-1]:
                del names[-1]


def _unread_outputs(model: Any) -> list[Any]:
    """Nodes of ONNX Runtime's own operators in ONNX's domain whose last output, not the only one, nothing reads."""
    nodes = [node for node in _own_nodes(model) if len(node.output) > 1]
    if not nodes:
        return []
    read = {value.name for graph in _graphs_of(model) for value in graph.output}
    read.update(name for node in _nodes_of(model.graph) for name in node.input)
    return [node for node in nodes if node.output[-1] not in read]


def _drop_unread_outputs(onnx: Any, model: Any) -> None:
    """No inference knows the types of these."""
    while nodes := _unread_outputs(model):
        for node in nodes:
            del node.output[-1]


def _odd_flags(model: Any) -> list[Any]:
    """Flags of reductions that are neither 0 nor 1: ONNX Runtime retains the reduced axes only for 1."""
    nodes = (node for node in _nodes_of(model.graph) if node.op_type.startswith(("Reduce", "Arg")))
    return [a for node in nodes for a in node.attribute if a.name == "keepdims" and a.i not in (0, 1)]


def _clear_flags(onnx: Any, model: Any) -> None:
    for attribute in _odd_flags(model):
        attribute.i = 0


def _open_dimensions(model: Any) -> list[Any]:
    """Dimensions of -1, which ONNX Runtime reads as open ones."""
    graph = model.graph
    values = (*graph.input, *graph.output, *graph.value_info)
    shapes = (value.type.tensor_type.shape for value in values if value.type.HasField("tensor_type"))
    return [d for shape in shapes for d in shape.dim if d.WhichOneof("value") == "dim_value" and d.dim_value == -1]


def _open(onnx: Any, model: Any) -> None:
    for dimension in _open_dimensions(model):
        dimension.Clear()


def _unread_constants(model: Any) -> list[int]:
    """Constants that nothing reads: ONNX Runtime drops them before it looks at their bytes."""
    graph = model.graph
    if model.ir_version < _CONSTANTS_ALONE_IR or not graph.node:
        return []
    read = {value.name for value in (*graph.input, *graph.output)} | {name for node in graph.node for name in node.input}
    read |= {name for node in graph.node for a in node.attribute for inner in subgraphs(a) for name in free_names(inner)}
    return [i for i, one in enumerate(graph.initializer) if one.name not in read and one.HasField("raw_data")]


def _drop_unread_constants(onnx: Any, model: Any) -> None:
    for i in reversed(_unread_constants(model)):
        del model.graph.initializer[i]


def _value_name(attribute: Any) -> str:
    """The name that an attribute has as the value of a Constant; its own where it cannot be one."""
    kinds = type(attribute).AttributeType
    return _KINDS.get(kinds.Name(attribute.type), attribute.name) if attribute.type in kinds.values() else str(attribute.name)


def _odd_constants(model: Any) -> list[Any]:
    """Constant nodes with inputs, in a domain, or whose value has another name than its type has: ONNX Runtime looks at the first
    attribute, and at its type only."""
    nodes = (n for part in (model.graph, *model.functions) for n in _nodes_of(part) if n.op_type == "Constant")
    return [n for n in nodes if n.domain or n.input or any(_value_name(one) != one.name for one in n.attribute[:1])]


def _write_plainly(onnx: Any, model: Any) -> None:
    for node in _odd_constants(model):
        node.domain = ""
        del node.input[:]
        for attribute in node.attribute[:1]:
            attribute.name = _value_name(attribute)


_REPAIRS: tuple[tuple[Callable[[Any], object], Callable[[Any, Any], None], str], ...] = (
    (_has_old_version, _raise_version, ""),
    (_is_opset_twice, _take_last_opset, "several versions of one domain, of which the last counts"),
    (_repeated_attributes, _drop_attributes, "several attributes where one counts"),
    (_repeated_inputs, _drop_repeated_inputs, ""),
    (_has_unread, _drop_unread, ""),
    (_has_empty_ends, _drop_empty_ends, ""),
    (_unread_outputs, _drop_unread_outputs, ""),
    (_open_dimensions, _open, ""),
    (_odd_flags, _clear_flags, ""),
    (_unread_constants, _drop_unread_constants, ""),
    (_odd_constants, _write_plainly, ""),
    (_early_constants, _write_tensors, ""),
    (_has_sparse, _make_dense, ""),
    (_has_twice, _take_last, "several constants of one name, of which the last counts"),
    (_names_domain, _unname_domain, ""),
    (_has_other_versions, _write_out_functions, ""),
    (_is_unordered, _order, ""),
    (_has_untyped, _drop_untyped, ""),
    (_describes_constants, _drop_described, ""),
    (_is_nameless, _name, ""),
    (_lone_constants, _add_inputs, ""),
    (_lacks_domains, _repair_domains, ""),
)
"""A test for something broken, its repair in a copy, and a warning."""

"""Files that ONNX Runtime itself does not load: what it requires of a graph, of its nodes' types and shapes, and of its kernels.

As ``Graph::Resolve`` and ``InferenceSession::Initialize`` of ONNX Runtime have it (``core/graph/graph.cc``,
``core/session/inference_session.cc``). Types and shapes are inferred by the same functions, which are the ``onnx`` package's;
kernels are those of the release that wrote ``runtime_kernels.json`` (``scripts/documentation/make_runtime_kernels.py``).
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from nnbridge.errors import Reason, Stage, Why
from nnbridge.records import dataclass
from nnbridge_onnx import native
from nnbridge_onnx.declaration import CONTRIB
from nnbridge_onnx.passes.creation import CreatedNode, broken_rule
from nnbridge_onnx.passes.inline import state_defaults
from nnbridge_onnx.passes.shape_inference import with_types_of_weights
from nnbridge_onnx.read.graph import MAX_DEPTH, free_names, subgraphs
from nnbridge_onnx.read.repair import has_type, tensor_of

_INFERRED = re.compile(r"\(op_type:(?P<type>[^,)]+)(?:, node name: (?P<name>[^)]*))?\): *(?P<what>.*)", re.DOTALL)
_OPEN_END = 1 << 30
"""The last version of a kernel that is for one version of its operator only."""
_HALVES = ("float16",)
"""Element types beside which ONNX Runtime casts, where a kernel has float only."""
_CASTS = 6
"""The opset whose Cast takes a type's number, as ONNX Runtime writes it: before, its casts are no nodes that it accepts."""
_UNKNOWN: Mapping[int, str] = {0: "the undefined type", 14: "complex64", 15: "complex128"}
"""The numbers of element types that it does not have."""
_FUNCTIONS = ("FastGelu", "LayerNormalization", "QuickGelu")
"""Its operators that it writes out as functions, of operators that it has kernels for."""
_FLOATS = frozenset(["float", "double", "float16", "bfloat16"])
"""The element types of these."""
_ANY_ATTRIBUTES = ("LayerNormalization", "SimplifiedLayerNormalization")
"""Those of its operators in ONNX's domain that may have any attributes (``AllowUncheckedAttributes``)."""
_IR = 10
_SMALL = 1 << 12
"""Bytes of a constant that a function's shapes may depend on."""


@dataclass(frozen=True)
class _Kernels:
    """Those of ONNX Runtime's CPU, and what it has of operators' definitions beside ONNX's."""

    runtime: str
    versions: Mapping[str, int]
    """Domain → the newest version of its operators."""
    newest: Mapping[str, int]
    """ONNX's operators → the version of their newest definition."""
    own: Mapping[str, Mapping[str, tuple[Sequence[str], Sequence[str], int, int, int, int, Mapping[str, str], Sequence[int]]]]
    """By domain, operators that ONNX does not define → the type constraints of their inputs and outputs, how many of these there
    may be, attributes with their types, and the inputs that may be left empty."""
    kernels: Mapping[str, Mapping[str, Sequence[tuple[int, int, Mapping[str, str]]]]]
    """By domain and operator: versions, and type constraint → types."""


@cache
def _kernels() -> _Kernels:
    text = Path(__file__).parents[1].joinpath("runtime_kernels.json").read_text(encoding="utf-8")
    return _Kernels(**json.loads(text))


Found: TypeAlias = "tuple[Reason | None, Mapping[str, Reason]]"


def not_loaded(onnx: Any, model: Any, ordered: Any) -> Found:
    """The reason why ONNX Runtime does not load a ``ModelProto``, None where it does; and of nodes, by their first outputs, why
    its CPU has no kernel: it does not load the file unless its provider takes these.

    ``ordered``: the same as the checker accepts it, nodes in run order.
    """
    found = next(_of_structure(model), None)
    if found is not None:
        return found, {}
    bare = with_types_of_weights(onnx, ordered)
    bare.functions.extend(ordered.functions)
    _make_constants(onnx, bare.graph, 0)
    outputs = {value.name for value in (*ordered.graph.output, *bare.graph.initializer)}
    bare.graph.value_info.extend(value for value in ordered.graph.value_info if value.name not in outputs)
    typed = {one.name for one in (*ordered.graph.initializer, *ordered.graph.input, *bare.graph.initializer)}
    # The first statement of an output counts; of what else has a name ONNX Runtime knows the type.
    first = {value.name: value for value in reversed(model.graph.output)}
    left = [value for name, value in {value.name: value for value in bare.graph.output}.items() if name not in typed]
    del bare.graph.output[:]
    for value in left:
        stated = first.get(value.name, value)
        bare.graph.output.append(stated if has_type(stated) else value)
    _state_undefined(bare.graph)
    _forget_shapes(bare.graph, 0)
    _add_empty_ends(bare.graph, model.graph)
    try:
        inferred, reason = _inferred_as_known(onnx, bare, model, ordered.graph)
    except native.CrashError:
        return None, {}  # Plain inference refuses the file with its words.
    if inferred is None:
        return reason, {}
    written = {node.output[0]: i for i, node in enumerate(ordered.graph.node) if node.output}
    nodes = [(written.get(node.output[0] if node.output else "", i), i, node) for i, node in enumerate(model.graph.node)]
    labelled = ((_label(i, node), node) for _, i, node in sorted(nodes, key=lambda one: one[:2]))
    known = _Nodes.of(onnx, model, ordered.graph, inferred.graph)
    refused = next(known.refusals(labelled), None)
    return refused, known.without_kernel


def _state_undefined(graph: Any) -> None:
    """Operators that are to write the undefined type, 0: of their outputs ONNX Runtime takes the stated type."""
    stated = {value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.output)}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.type == attribute.INT and not attribute.i and node.output:
                attribute.i = stated.get(node.output[0], 0)


def _inferred_as_known(onnx: Any, bare: Any, model: Any, stated: Any) -> tuple[Any, Reason | None]:
    """As :func:`_inferred`, of no more than ONNX Runtime knows: nothing of the shapes of sequences' elements, nor of dimensions
    that are not as the file states them. What reads such a value reads an input of the graph in its place.
    """
    shapes = {value.name: _dims(value) for value in (*stated.value_info, *stated.output) if _is_shaped(value)}
    hidden = set[str]()
    while True:
        inferred, reason = _inferred(onnx, bare, model)
        found = None
        if len(hidden) < _MOST_HIDDEN:
            graph = (_plainly_inferred(onnx, bare) if inferred is None else inferred).graph
            described = {value.name: value for value in (*graph.value_info, *graph.output)}
            written = (name for node in bare.graph.node for name in node.output if name in described and name not in hidden)
            found = next((one for name in written if (one := _less_known(described[name], shapes.get(name))) is not None), None)
        if found is None:
            return inferred, reason
        hidden.add(found.name)
        place = bare.graph.input.add()
        place.CopyFrom(found)
        place.name = f"{found.name} as known"
        _read_instead(bare.graph, found.name, place.name, 0)


def _plainly_inferred(onnx: Any, bare: Any) -> Any:
    """A model with what can be inferred of it; the same one where that fails."""
    try:
        return native.infer_shapes(onnx, bare)
    except onnx.shape_inference.InferenceError:
        return bare


_MOST_HIDDEN = 32


def _less_known(value: Any, stated: tuple[int, ...] | None) -> Any:
    """A value with the dimensions that ONNX Runtime knows, where it knows fewer than inference; None for others."""
    found = type(value)()
    found.CopyFrom(value)
    if value.type.HasField("sequence_type"):
        kind = found.type.sequence_type.elem_type.tensor_type
        if not kind.HasField("shape"):
            return None
        kind.ClearField("shape")
        return found
    if stated is None or not _is_shaped(value):
        return None
    dims = _dims(value)
    if len(dims) == len(stated) and all(a == b or -1 in (a, b) for a, b in zip(dims, stated, strict=True)):
        return None
    kind = found.type.tensor_type
    if len(dims) != len(stated):
        kind.ClearField("shape")
        return found
    for dimension, a, b in zip(kind.shape.dim, dims, stated, strict=True):
        if a != b:
            dimension.Clear()
    return found


def _read_instead(graph: Any, name: str, other: str, depth: int) -> None:
    """Have nodes read another value, those of bodies too."""
    for node in graph.node:
        for i, one in enumerate(node.input):
            if one == name:
                node.input[i] = other
        for inner in (inner for attribute in node.attribute for inner in subgraphs(attribute)) if depth < MAX_DEPTH else ():
            _read_instead(inner, name, other, depth + 1)


def _inferred(onnx: Any, bare: Any, model: Any) -> tuple[Any, Reason | None]:
    """A model with types and shapes, or the reason why these do not fit, by the nodes of ``model``."""
    try:
        return native.infer_strictly(onnx, bare), None
    except onnx.shape_inference.InferenceError as error:
        reason = _of_inference(model, str(error))
        return (native.infer_shapes(onnx, bare), None) if reason is None else (None, reason)


def _make_constants(onnx: Any, graph: Any, depth: int) -> None:
    """Of a constant's node ONNX Runtime makes a constant before it looks, of any type."""
    for i, node in reversed([*enumerate(graph.node)]):
        found = _constant_nodes(onnx, [node])
        for name, tensor in found.items():
            constant = graph.initializer.add()
            constant.CopyFrom(tensor)
            constant.name = name
        if found:
            del graph.node[i]
    for node in graph.node if depth < MAX_DEPTH else ():
        for inner in (inner for attribute in node.attribute for inner in subgraphs(attribute)):
            _make_constants(onnx, inner, depth + 1)


def _add_empty_ends(graph: Any, original: Any) -> None:
    """Inputs that are left out at the end, which the checker does not accept: inference counts them."""
    counts = {node.output[0]: len(node.input) for node in original.node if node.output}
    for node in graph.node:
        lacking = counts.get(node.output[0], 0) - len(node.input) if node.output else 0
        node.input.extend([""] * lacking)


def _forget_shapes(graph: Any, depth: int) -> None:
    """ONNX Runtime warns of results of other shapes than stated, and takes what it infers."""
    for value in (*graph.output, *graph.value_info):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    for node in graph.node if depth < MAX_DEPTH else ():
        for inner in (inner for attribute in node.attribute for inner in subgraphs(attribute)):
            _forget_shapes(inner, depth + 1)


def _reason(rule: str, found: object, label: str = "", kind: Why = Why.OPERAND_VALUE) -> Reason:
    return Reason(rule, str(found), label, kind=kind, stage=Stage.LOADING)


def _label(index: int, node: Any) -> str:
    return f"node {index} {node.op_type}" + (f" '{node.name}'" if node.name else "")


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _of_structure(model: Any) -> Iterator[Reason]:
    graph = model.graph
    tensors = [value for value in (*graph.input, *graph.output) if value.type.HasField("tensor_type")]
    values = [(value.name, value.type.tensor_type.elem_type) for value in tensors]
    read = {name for node in graph.node for name in node.input}
    for name, type in (*values, *((tensor.name, tensor.data_type) for tensor in graph.initializer if tensor.name in read)):
        if type in _UNKNOWN:
            yield _reason("element types that it has", f"{_UNKNOWN[type]} of {name}", kind=Why.INPUT_TYPE)
    inputs = {value.name for value in graph.input}
    unread = (one.name for one in graph.initializer if one.name not in inputs | read)
    if model.ir_version < 4 and (name := next(unread, None)) is not None:
        yield _reason("constants that are inputs or read, before IR version 4", name)
    yield from _of_constants(model)
    known = inputs | {one.name for one in graph.initializer if one.name}
    for index, node in enumerate(graph.node):
        for name in known.intersection(node.output) if node.op_type != "Constant" else ():
            yield _reason("values with a name each", f"{name}, which is there already", _label(index, node))
    if not model.opset_import:
        yield _reason("an opset that the file imports", "none")
    for one in model.opset_import:
        newest = _kernels().versions.get(_domain(one.domain))
        if newest is not None and one.version > newest:
            yield _reason(f"version {newest} of {one.domain or 'ai.onnx'} at most", one.version, kind=Why.OPERATOR_VERSION)
    counts = Counter(node.name for node in model.graph.node if node.name)
    for index, node in enumerate(model.graph.node):
        if counts[node.name] > 1:
            yield _reason("nodes of different names", f"{counts[node.name]} of the name {node.name!r}", _label(index, node))


def _of_constants(model: Any) -> Iterator[Reason]:
    """Constants of another type or other dimensions than their name has already, as an input or as a constant."""
    constants = [(tensor.name, tensor.data_type, tuple(tensor.dims)) for tensor in model.graph.initializer if tensor.name]
    known: dict[str, tuple[int, tuple[int, ...] | None]] = {}
    for value in model.graph.input:
        if value.type.HasField("tensor_type"):
            known.setdefault(value.name, (value.type.tensor_type.elem_type, _dims(value) if _is_shaped(value) else None))
    for name, type, dims in constants:
        before, others = known.setdefault(name, (type, dims))
        if type != before:
            yield _reason("one element type of a name", f"{before} and {type} of {name}", kind=Why.INPUT_TYPE)
        if others is not None and (len(dims) != len(others) or any(a not in (b, -1) for a, b in zip(others, dims, strict=True))):
            yield _reason("one shape of a name", f"{list(others)} and {list(dims)} of {name}", kind=Why.OPERAND_SIZE)


def _dims(value: Any) -> tuple[int, ...]:
    """The stated dimensions of a value; -1 for open ones."""
    return tuple(int(d.dim_value) if d.HasField("dim_value") else -1 for d in value.type.tensor_type.shape.dim)


def _of_inference(model: Any, text: str) -> Reason | None:
    """The reason why types or shapes cannot be inferred, with the node that the message names; None where only functions do not
    fit that the onnx package writes operators out as: these are looked at where ONNX Runtime has no kernel."""
    matches = [match for line in text.splitlines() if (match := _INFERRED.search(line))]
    if not matches:
        return _reason(_FIT, " ".join(text.split()))
    types = {node.op_type for node in _all_nodes(model.graph)}
    outer = (one for one in matches if one["type"] in types)
    own = (one for one in outer if one["type"] in _WITH_BODIES or not any(words in one["what"] for words in _INNER))
    match = next(own, None)
    if match is None:
        return None
    named = (
        (i, node)
        for i, node in enumerate(model.graph.node)
        if node.op_type == match["type"] and node.name == (match["name"] or node.name)
    )
    index, node = next(named, (-1, None))
    label = match["type"] if node is None else _label(index, node)
    return _reason(_FIT, " ".join(match["what"].split()), label)


_INNER = ("Inference error(s)", "(op_type:")
_WITH_BODIES = ("If", "Loop", "Scan")
_FIT = "operands of types and shapes that fit together"


def _content(constant: Any) -> Hashable:
    """All of a constant that inference may read."""
    if constant is None:
        return None
    small = constant.ByteSize() <= _SMALL and not constant.external_data
    return constant.SerializeToString() if small else (constant.data_type, tuple(constant.dims))


class _Nodes:
    """The nodes of a model in run order, with the types of their operands."""

    def __init__(
        self,
        onnx: Any,
        model: Any,
        described: Mapping[str, Any],
        types: dict[str, str],
        stated: Mapping[str, str],
        values: Mapping[str, Any],
    ) -> None:
        self._onnx, self._model = onnx, model
        self._opsets = {_domain(one.domain): int(one.version) for one in model.opset_import}
        self._functions = {(one.domain, one.name) for one in getattr(model, "functions", ())}
        self._described, self._types, self._stated, self._values = described, types, stated, values
        self._shapes = {name: _dims(one) for name, one in described.items() if _is_shaped(one)}
        self._shapes |= {name: tuple(one.dims) for name, one in values.items()}
        self._loading: set[Hashable] = set()
        """Forms of nodes that ONNX Runtime writes out as functions and loads."""
        self._output = ""
        self.without_kernel: dict[str, Reason] = {}
        """The first output of nodes → why there is no kernel."""

    @classmethod
    def of(cls, onnx: Any, model: Any, graph: Any, inferred: Any) -> _Nodes:
        """Those of a model whose graph the checker accepts, and of which inference finds types."""

        def element(code: int) -> str:
            return f"tensor({onnx.TensorProto.DataType.Name(code).lower()})"

        def type_of(type: Any) -> str:
            """A type as ONNX's definitions write it; empty for none."""
            kind = type.WhichOneof("value")
            if kind == "tensor_type":
                return element(type.tensor_type.elem_type) if type.tensor_type.elem_type else ""
            if kind == "sequence_type":
                return f"seq({type_of(type.sequence_type.elem_type)})"
            return f"optional({type_of(type.optional_type.elem_type)})" if kind == "optional_type" else ""

        described = {value.name: value for value in (*inferred.output, *inferred.value_info, *inferred.input)}
        found = {name: type_of(value.type) for name, value in described.items()}
        constants = {tensor.name: tensor for tensor in graph.initializer} | _constant_nodes(onnx, graph.node)
        # The first statement of an output counts, and the last one of another value.
        values = (*model.graph.value_info, *reversed(model.graph.output))
        stated = {value.name: type for value in values if (type := type_of(value.type))}
        for node in graph.node:
            for name in node.output if node.op_type == "Constant" else ():
                stated.pop(name, None)
        types = found | {name: element(one.data_type) for name, one in constants.items()}
        return cls(onnx, model, described, types, stated, constants)

    def refusals(self, nodes: Iterable[tuple[str, Any]], callers: int = 0) -> Iterator[Reason]:
        """The reasons why ONNX Runtime does not load nodes in run order, with their labels."""
        for label, node in nodes:
            self._output = next(iter(node.output), "")
            for inner, depth in _with_bodies(node, 0):
                reason = self._refusal(inner, label, callers, outer=depth == 0)
                if reason is not None:
                    yield reason

    def _refusal(self, node: Any, label: str, callers: int, *, outer: bool) -> Reason | None:
        domain = _domain(node.domain)
        if node.op_type == "Constant":
            return None
        if (node.domain, node.op_type) in self._functions:
            refused, lacking = self._of_body(node, label, callers) if outer else (None, None)
            self._note(lacking)
            return refused
        if domain not in _kernels().kernels:
            return None
        schema = self._schema(node, domain) if domain != CONTRIB else None
        if schema is None:
            return self._of_contrib(node, domain, label, outer=outer) if domain in _kernels().own else None
        bounds = (schema.min_input, schema.max_input, schema.min_output, schema.max_output)
        if (miscounted := _miscounted(node, bounds, label)) is not None:
            return miscounted
        if outer and (wrong := self._wrong_type(node, schema)):
            return _reason("types that the operator has", wrong, label, Why.INPUT_TYPE)
        if outer and (misfit := self._wrong_shape(node, schema.since_version, label)) is not None:
            return misfit
        sides = [[one.type_str for one in side] for side in (schema.inputs, schema.outputs)]
        actual, has_function = self._actual(node, *sides) if outer else {}, self._has_function(schema, domain)
        # What it can write out as a function it does not cast.
        found = self._without_kernel(node, domain, schema.since_version, actual, label, casts=not has_function)
        if found is None:
            found = self._of_values(node, schema.since_version, label) if outer else None
        elif has_function:
            refused, lacking = self._of_body(node, label, callers, found) if outer else (None, None)
            found = refused or lacking
        self._note(found)
        return None

    def _note(self, found: Reason | None) -> None:
        if found is not None:
            self.without_kernel.setdefault(self._output, found)

    def _has_function(self, schema: Any, domain: str) -> bool:
        """True for an operator that ONNX Runtime writes out as a function of others where it has no kernel."""
        opset, function = self._opset(domain), self._onnx.FunctionProto()
        versions = [version for version in schema.function_opset_versions if version <= opset]
        if not versions:
            return any(version <= opset for version in schema.context_dependent_function_opset_versions)
        function.ParseFromString(schema.get_function_with_opset_version(max(versions)))
        return self._means_the_same(function, max(versions), opset)

    def _of_body(self, node: Any, label: str, callers: int, whole: Reason | None = None) -> tuple[Reason | None, Reason | None]:
        """The reason why ONNX Runtime refuses a node once it is written out as its function, and why it has no kernel then;
        ``whole`` for one that has no function with these attributes, none for what cannot be written out, as types are not known.
        """
        form = self._form(node)
        if form in self._loading:
            return None, None
        found = self._of_written_out(node, label, callers, whole)
        if form is not None and found == (None, None):
            self._loading.add(form)
        return found

    def _form(self, node: Any) -> Hashable | None:
        """All of a node that its function depends on, without names; None for one with bodies."""
        if any(True for attribute in node.attribute for _ in subgraphs(attribute)):
            return None
        places = {name: place for place, name in enumerate(dict.fromkeys(node.input))}
        inputs = tuple((self._types.get(name), self._values.get(name), self._described.get(name)) for name in places)
        known = tuple((type, _content(value), one and one.type.SerializeToString()) for type, value, one in inputs)
        outputs = tuple((bool(name), self._stated.get(name)) for name in node.output)
        attributes = tuple(sorted(attribute.SerializeToString() for attribute in node.attribute))
        return node.domain, node.op_type, attributes, tuple(map(places.get, node.input)), known, outputs

    def _of_written_out(self, node: Any, label: str, callers: int, whole: Reason | None) -> tuple[Reason | None, Reason | None]:
        body = self._written_out(node) if callers < MAX_DEPTH else None
        if body is None:
            return None, None
        if [(one.domain, one.op_type) for one in body.graph.node] == [(_domain(node.domain), node.op_type)]:
            return None, whole
        try:
            inferred, reason = _inferred(self._onnx, body, body)
        except native.CrashError:
            return None, None
        if reason is not None:
            return replace(reason, operation=label), None
        inner = _Nodes.of(self._onnx, body, body.graph, inferred.graph)
        refused = next(inner.refusals(((label, one) for one in body.graph.node), callers + 1), None)
        return refused, next(iter(inner.without_kernel.values()), None)

    def _written_out(self, node: Any) -> Any:
        """A model of a node by itself, which is written out as its function; None where that cannot be done."""
        bodies = (graph for attribute in node.attribute for graph in subgraphs(attribute))
        names = [name for name in (*node.input, *(name for body in bodies for name in free_names(body))) if name]
        inputs = [self._value(name) for name in dict.fromkeys(names)]
        if not all(map(has_type, inputs)):
            return None
        helper = self._onnx.helper
        outputs = [self._onnx.ValueInfoProto(name=name) for name in dict.fromkeys(node.output) if name]
        for one in outputs:
            if (type := self._stated.get(one.name, "")).startswith("tensor("):
                one.CopyFrom(self._tensor(one.name, type))
        held = [self._values[one.name] for one in inputs if one.name in self._values]
        constants = [one for one in held if one.ByteSize() <= _SMALL and not one.external_data]
        graph = helper.make_graph([self._with_defaults(node)], "function", inputs, outputs, constants)
        versions = {"": self._opset("")} | self._opsets
        imports = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
        model = helper.make_model(graph, opset_imports=imports, functions=self._called(node), ir_version=_IR)
        state_defaults(model)
        try:
            return native.write_out(self._onnx, model, _domain(node.domain), node.op_type)
        except RuntimeError:
            return None

    def _with_defaults(self, node: Any) -> Any:
        """A node with the defaults of attributes that it leaves out, which the onnx package does not write out."""
        schema = None if (node.domain, node.op_type) in self._functions else self._schema(node, _domain(node.domain))
        if schema is None:
            return node
        found, held = type(node)(), {one.name for one in node.attribute}
        found.CopyFrom(node)
        found.domain = _domain(node.domain)
        found.attribute.extend(
            self._onnx.AttributeProto.FromString(one.default_value.SerializeToString())
            for name, one in schema.attributes.items()
            if name not in held and one.default_value.name
        )
        return found

    def _called(self, node: Any) -> list[Any]:
        """The functions of the file that a node calls, and those that they call."""
        functions = {(one.domain, one.name): one for one in getattr(self._model, "functions", ())}
        found: dict[tuple[str, str], Any] = {}
        waiting = [node]
        while waiting:
            one = waiting.pop()
            function = functions.get(key := (one.domain, one.op_type))
            if function is not None and key not in found:
                found[key] = function
                waiting.extend(inner for part in function.node for inner, _ in _with_bodies(part, 0))
        return list(found.values())

    def _value(self, name: str) -> Any:
        """A value as it is described; of no type where that is not known."""
        constant, type = self._values.get(name), self._types.get(name, "")
        if constant is not None:
            return self._onnx.helper.make_tensor_value_info(name, constant.data_type, list(constant.dims))
        found = self._described.get(name)
        if found is not None and has_type(found):
            return found
        return self._tensor(name, type) if type.startswith("tensor(") else self._onnx.ValueInfoProto(name=name)

    def _tensor(self, name: str, type: str) -> Any:
        """A tensor of a type and of any shape."""
        return self._onnx.helper.make_tensor_value_info(name, self._onnx.TensorProto.DataType.Value(type[7:-1].upper()), None)

    def _means_the_same(self, function: Any, written: int, opset: int) -> bool:
        """True if a function's operators are, at the model's opset, those that it was written for."""
        get, error = self._onnx.defs.get_schema, self._onnx.defs.SchemaError
        try:
            types = [one.op_type for one in function.node]
            pairs = [[get(type, version, "").since_version for version in (written, opset)] for type in types]
        except error:
            return False
        return all(before == now for before, now in pairs)

    def _attributes(self, node: Any) -> Mapping[str, Any]:
        """The attributes' values, but those that a function takes of its caller."""
        return {one.name: self._onnx.helper.get_attribute_value(one) for one in node.attribute if not one.ref_attr_name}

    def _without_kernel(
        self, node: Any, domain: str, version: int, actual: Mapping[str, set[str]], label: str, *, casts: bool = True
    ) -> Reason | None:
        """The reason why there is no kernel for a version of an operator with operands of some types."""
        casts = casts and self._opset("") >= _CASTS
        for first, last, constraints in _kernels().kernels[domain].get(node.op_type, ()):
            fits = first == version or (first < version <= last != _OPEN_END)
            if fits and all(_has(words.split(), actual.get(name, ()), casts=casts) for name, words in constraints.items()):
                return None
        stated = ", ".join(f"{name}: {' and '.join(sorted(found))}" for name, found in actual.items())
        found = f"{node.op_type} of version {version}" + (f" ({stated})" if stated else "")
        return _reason("an operator that it has a kernel for", found, label, Why.OPERATOR)

    def _wrong_shape(self, node: Any, version: int, label: str) -> Reason | None:
        """Operands that do not fit, of operators whose shapes the onnx package does not infer as ONNX Runtime does."""
        rule, fits = _SHAPES.get(node.op_type) or _SHAPES.get(f"{node.op_type} {version}", ("", None))
        shapes = [self._shapes.get(name) for name in node.input]
        if fits is None or fits(shapes, self._attributes(node)):
            return None
        return _reason(rule, ", ".join(str(one) for one in shapes if one is not None), label, Why.OPERAND_SIZE)

    def _of_values(self, node: Any, version: int, label: str) -> Reason | None:
        """The attributes or constants that a kernel refuses when it is created."""
        created = CreatedNode(node, version, self._attributes(node), functools.partial(self._constant, node))
        broken = broken_rule(created)
        return None if broken is None else _reason(broken[0], broken[1], label, broken[2])

    def _constant(self, node: Any, place: int) -> Any:
        """The numbers of an input that is a constant; None for others."""
        tensor = self._values.get(node.input[place]) if 0 <= place < len(node.input) else None
        if tensor is None or tensor.external_data:
            return None
        return self._onnx.numpy_helper.to_array(tensor)

    def _opset(self, domain: str) -> int:
        """The version of a domain: the newest one of ONNX's own where the file imports none."""
        newest = min(_kernels().versions[""], self._onnx.defs.onnx_opset_version()) if domain == "" else 1
        return self._opsets.get(domain, newest)

    def _schema(self, node: Any, domain: str) -> Any:
        try:
            return self._onnx.defs.get_schema(node.op_type, self._opset(domain), domain)
        except self._onnx.defs.SchemaError:
            return None

    def _of_contrib(self, node: Any, domain: str, label: str, *, outer: bool) -> Reason | None:
        known = _kernels().own[domain].get(node.op_type)
        if known is None:
            return _reason("an operator that it has", f"{node.domain}.{node.op_type}".strip("."), label, Why.OPERATOR)
        inputs, outputs, *bounds, attributes, optional = known
        for one in node.attribute:
            type = self._onnx.AttributeProto.AttributeType.Name(one.type)
            if attributes.get(one.name, type if node.op_type in _ANY_ATTRIBUTES else "") != type:
                return _reason("attributes that the operator has", f"{one.name} of {type}", label, Why.ARGUMENT)
        if (miscounted := _miscounted(node, bounds, label)) is not None:
            return miscounted
        empty = next(
            (i for i, name in enumerate(node.input[: len(inputs)]) if not name and (i not in optional or node.op_type in _NAMED)),
            None,
        )
        if empty is not None:
            return _reason(f"an input {empty}", "one without a name", label, Why.VARIANT)
        if not outer:
            self._note(self._without_kernel(node, domain, 1, {}, label))
            return None
        actual = self._actual(node, inputs, ())
        for constraint, types in actual.items():
            allowed = {constraint[7:-1]} if constraint.startswith("tensor(") else types
            if len(types) > 1 or not types <= allowed:
                return _reason(
                    "types that the operator has", f"{' and '.join(sorted(types))} as {constraint}", label, Why.INPUT_TYPE
                )
        for name, constraint in zip(node.output, outputs, strict=False):
            bound = [f"tensor({one})" for one in actual.get(constraint, ())]
            found = next(iter(bound), constraint if constraint.startswith("tensor(") else "")
            if other := self._other_type(name, found):
                wrong = f"{other} stated of {name}, which is {found}"
                return _reason("types that the operator has", wrong, label, Why.OUTPUT_TYPE)
            if found:
                self._types[name] = found
        written_out = node.op_type in _FUNCTIONS and all(types <= _FLOATS for types in actual.values())
        lacking = None if written_out else self._without_kernel(node, domain, 1, actual, label)
        self._note(lacking or self._of_values(node, 1, label))
        return self._wrong_shape(node, 1, label)

    def _other_type(self, name: str, found: str) -> str:
        """A type that the file states of a value which has another one; empty if it does not."""
        stated = self._stated.get(name, "")
        return stated if found and stated != found else ""

    def _wrong_type(self, node: Any, schema: Any) -> str:
        """The first operand whose type the operator does not have, or not beside those of the others; empty if all fit."""
        bound: dict[str, str] = {}
        for name, formal in _formal(node.input, schema.inputs):
            found = self._types.get(name, "")
            if not found:
                continue
            homogeneous = formal.is_homogeneous
            if found not in formal.types or (homogeneous and bound.setdefault(formal.type_str, found) != found):
                return f"{found} as {formal.name}"
        for name, formal in _formal(node.output, schema.outputs):
            only = next(iter(formal.types)) if len(formal.types) == 1 else ""
            found = bound.get(formal.type_str, only) or self._types.get(name, "")
            if other := self._other_type(name, found):
                return f"{other} stated of {name}, which is {found}"
            if found:
                self._types[name] = found
        return ""

    def _actual(self, node: Any, inputs: Sequence[str], outputs: Sequence[str]) -> Mapping[str, set[str]]:
        """Type constraint → the element types of the operands that it is for."""
        found: dict[str, set[str]] = {}
        for names, constraints in ((node.input, inputs), (node.output, outputs)):
            for i, name in enumerate(names):
                type = self._types.get(name, "")
                if constraints and type.startswith("tensor("):
                    found.setdefault(constraints[min(i, len(constraints) - 1)], set()).add(type[7:-1])
        return found


_Shapes: TypeAlias = "Sequence[tuple[int, ...] | None]"
"""Those of a node's inputs, None for what is not known; -1 for an open dimension."""


def _are_losses(shapes: _Shapes, attributes: Mapping[str, Any]) -> bool:
    known = [one for one in shapes if one is not None]
    if len(known) < len(shapes):
        return True
    scores, labels, *weights = known
    pairs = zip(labels, (scores[0], *scores[2:]), strict=False) if scores else ()
    fit = all(a == b or -1 in (a, b) for a, b in pairs)
    return fit and len(scores) > 1 and len(labels) == len(scores) - 1 and all(len(one) == 1 for one in weights)


def _multiply(shapes: _Shapes, attributes: Mapping[str, Any]) -> bool:
    left, right = shapes
    if left is None or right is None:
        return True
    if not left or not right:
        return False
    *batches, _, last = _matrix((1, *left) if len(left) == 1 else left, attributes, "A", len(left) > 1)
    *others, first, _ = _matrix((*right, 1) if len(right) == 1 else right, attributes, "B", len(right) > 1)
    return _broadcast(batches, others) and (-1 in (last, first) or last == first)


def _matrix(dims: tuple[int, ...], attributes: Mapping[str, Any], side: str, whole: bool) -> Sequence[int]:
    """Dimensions of batches, rows and columns; those of a vector (not ``whole``) are in that order."""
    if whole and attributes.get(f"transBatch{side}"):
        dims = (*dims[1:-1], dims[0], dims[-1])
    return (*dims[:-2], dims[-1], dims[-2]) if whole and attributes.get(f"trans{side}") else dims


def _broadcast(left: Sequence[int], right: Sequence[int]) -> bool:
    return all(a == b or 1 in (a, b) or -1 in (a, b) for a, b in zip(reversed(left), reversed(right), strict=False))


def _are_quantised(shapes: _Shapes, attributes: Mapping[str, Any]) -> bool:
    """True for scales and zero points that are scalars, and data that broadcasts."""
    left, right = shapes[0], shapes[3]
    return _broadcast(left or (), right or ()) and not any(one for i, one in enumerate(shapes) if i not in (0, 3))


def _has_axis(shapes: _Shapes, attributes: Mapping[str, Any]) -> bool:
    rank = None if shapes[0] is None else len(shapes[0])
    return rank is None or -rank <= attributes.get("axis", -1) < rank


_NORMALISED = ("an axis of its first input", _has_axis)


def _scales_channels(shapes: _Shapes, attributes: Mapping[str, Any]) -> bool:
    """True for numbers that the function, which multiplies by channels since version 21, broadcasts."""
    data, *others = shapes
    if data is None or len(data) < 2 or 0 in data:
        # It reshapes three dimensions to those of the data, where 0 is for one of the three.
        return data is None or 0 not in data[3:]
    return all(one is None or len(one) != 1 or _broadcast(one, data[1:2]) for one in others)


_NO_SCALAR = ("an input that is no scalar", lambda shapes, _: shapes[0] != ())
_LOSSES = ("scores of rank 2 at least, a label for each of them, weights of rank 1", _are_losses)
_QUANTISED = ("scalars as scales and zero points, data that broadcasts", _are_quantised)
_SHAPES: Mapping[str, tuple[str, Callable[[_Shapes, Mapping[str, Any]], bool] | None]] = {
    "SoftmaxCrossEntropyLoss": _LOSSES,
    "NegativeLogLikelihoodLoss": _LOSSES,
    "FusedMatMul": ("matrices that fit", _multiply),
    "GroupNormalization 21": ("a scale and a bias for each channel, no empty dimension after the third", _scales_channels),
    "LayerNormalization": _NORMALISED,
    "SimplifiedLayerNormalization": _NORMALISED,
    "SkipLayerNormalization": _NO_SCALAR,
    "SkipSimplifiedLayerNormalization": _NO_SCALAR,
    "QLinearAdd": _QUANTISED,
    "QLinearMul": _QUANTISED,
}
_NAMED = ("QLinearAdd", "QLinearMul")
"""Operators whose inference reads the type of a zero point that may be left out, but not left empty."""


def _constant_nodes(onnx: Any, nodes: Iterable[Any]) -> dict[str, Any]:
    """The tensors of nodes that are constants."""
    constants = (one for one in nodes if one.op_type == "Constant" and one.output and one.attribute)
    named = [(one.output[0], one.attribute[0]) for one in constants]
    return {name: tensor for name, attribute in named if (tensor := tensor_of(onnx, attribute)) is not None}


def _is_shaped(value: Any) -> bool:
    return bool(value.type.HasField("tensor_type") and value.type.tensor_type.HasField("shape"))


def _formal(names: Sequence[str], formal: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Operands that are there, with the definition's; the last one of these may be repeated."""
    return ((name, formal[min(i, len(formal) - 1)]) for i, name in enumerate(names) if name and formal)


def _with_bodies(node: Any, depth: int) -> Iterator[tuple[Any, int]]:
    yield node, depth
    for graph in (graph for attribute in node.attribute for graph in subgraphs(attribute)) if depth < MAX_DEPTH else ():
        for inner in graph.node:
            yield from _with_bodies(inner, depth + 1)


def _all_nodes(graph: Any) -> Iterator[Any]:
    return (inner for node in graph.node for inner, _ in _with_bodies(node, 0))


def _miscounted(node: Any, bounds: Sequence[int], label: str) -> Reason | None:
    """Too few or too many operands, those without a name among them."""
    for what, names, least, most in (("inputs", node.input, *bounds[:2]), ("outputs", node.output, *bounds[2:])):
        if not least <= len(names) <= most:
            return _reason(f"from {least} to {most} {what}", len(names), label, Why.VARIANT)
    return None


def _has(kernel: Sequence[str], found: Collection[str], *, casts: bool) -> bool:
    return all(one in kernel or (casts and one in _HALVES and "float" in kernel) for one in found)

"""Files that ONNX Runtime itself does not load: what it requires of a graph, of its nodes' types and shapes, and of its kernels.

As ``Graph::Resolve`` and ``InferenceSession::Initialize`` of ONNX Runtime have it (``core/graph/graph.cc``,
``core/session/inference_session.cc``). Types and shapes are inferred by the same functions, which are the ``onnx`` package's;
kernels are those of the release that wrote ``runtime_kernels.json`` (``scripts/documentation/make_runtime_kernels.py``).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from nnbridge.errors import Reason, Stage, Why
from nnbridge.records import dataclass
from nnbridge_onnx import native
from nnbridge_onnx.declaration import CONTRIB
from nnbridge_onnx.passes.shape_inference import with_types_of_weights
from nnbridge_onnx.read.graph import MAX_DEPTH, subgraphs

_INFERRED = re.compile(r"\(op_type:(?P<type>[^,)]+)(?:, node name: (?P<name>[^)]*))?\): *(?P<what>.*)", re.DOTALL)
_OPEN_END = 1 << 30
"""The last version of a kernel that is for one version of its operator only."""
_HALVES = ("float16",)
"""Element types beside which ONNX Runtime casts, where a kernel has float only."""


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
    # Of a constant's node ONNX Runtime makes a constant before it looks.
    outputs = {value.name for value in ordered.graph.output}
    outputs |= {name for node in ordered.graph.node if node.op_type == "Constant" for name in node.output}
    bare.graph.value_info.extend(value for value in ordered.graph.value_info if value.name not in outputs)
    typed = {one.name for one in (*ordered.graph.initializer, *ordered.graph.input)}
    for i, value in reversed([*enumerate(bare.graph.output)]):
        if value.name in typed:  # ONNX Runtime knows its type.
            del bare.graph.output[i]
    _forget_shapes(bare.graph, 0)
    misfits: Mapping[str, str] = {}
    try:
        inferred = native.infer_strictly(onnx, bare)
    except onnx.shape_inference.InferenceError as error:
        reason, misfits = _of_inference(model, str(error))
        if reason is not None:
            return reason, {}
        inferred = native.infer_shapes(onnx, bare)
    except native.CrashError:
        return None, {}  # Plain inference refuses the file with its words.
    written = {node.output[0]: i for i, node in enumerate(ordered.graph.node) if node.output}
    nodes = [(written.get(node.output[0] if node.output else "", i), i, node) for i, node in enumerate(model.graph.node)]
    labelled = ((_label(i, node), node) for _, i, node in sorted(nodes, key=lambda one: one[:2]))
    known = _Nodes.of(onnx, model, ordered.graph, inferred.graph)
    known.misfits = misfits
    refused = next(known.refusals(labelled), None)
    return refused, known.without_kernel


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
    graph, complex128 = model.graph, 15  # TensorProto.COMPLEX128
    values = [(value.name, value.type.tensor_type.elem_type) for value in (*graph.input, *graph.output)]
    read = {name for node in graph.node for name in node.input}
    for name, type in (*values, *((tensor.name, tensor.data_type) for tensor in graph.initializer if tensor.name in read)):
        if type == complex128:
            yield _reason("element types that it has", f"complex128 of {name}", kind=Why.INPUT_TYPE)
    inputs = {value.name for value in graph.input}
    unread = (one.name for one in graph.initializer if one.name not in inputs | read)
    if model.ir_version < 4 and (name := next(unread, None)) is not None:
        yield _reason("constants that are inputs or read, before IR version 4", name)
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


def _of_inference(model: Any, text: str) -> tuple[Reason | None, Mapping[str, str]]:
    """The reason why types or shapes cannot be inferred, with the node that the message names; without one, the operators that
    the onnx package writes out as functions, and what does not fit in these: it counts if ONNX Runtime has no kernel."""
    matches = [match for line in text.splitlines() if (match := _INFERRED.search(line))]
    if not matches:
        return _reason(_FIT, " ".join(text.split())), {}
    with_bodies = {*_WITH_BODIES, *(one.name for one in getattr(model, "functions", ()))}
    own = (one for one in matches if one["type"] in with_bodies or not any(words in one["what"] for words in _INNER))
    match = next(own, None)
    if match is None:
        return None, {one["type"]: one["what"] for one in matches}
    named = (
        (i, node)
        for i, node in enumerate(model.graph.node)
        if node.op_type == match["type"] and node.name == (match["name"] or node.name)
    )
    index, node = next(named, (-1, None))
    label = match["type"] if node is None else _label(index, node)
    return _reason(_FIT, " ".join(match["what"].split()), label), {}


_INNER = ("Inference error(s)", "(op_type:")
_WITH_BODIES = ("If", "Loop", "Scan")
_FIT = "operands of types and shapes that fit together"


class _Nodes:
    """The nodes of a model in run order, with the types of their operands."""

    def __init__(
        self,
        onnx: Any,
        model: Any,
        types: dict[str, str],
        stated: Mapping[str, Collection[str]],
        values: Mapping[str, Any],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        self._onnx = onnx
        self._opsets = {_domain(one.domain): int(one.version) for one in model.opset_import}
        self._functions = {(one.domain, one.name) for one in getattr(model, "functions", ())}
        self._types, self._stated, self._values, self._shapes = types, stated, values, shapes
        self._output = ""
        self.without_kernel: dict[str, Reason] = {}
        """The first output of nodes → why there is no kernel."""
        self.misfits: Mapping[str, str] = {}
        """Operators without a fitting function → what does not fit."""

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

        found = {value.name: type_of(value.type) for value in (*inferred.output, *inferred.value_info, *inferred.input)}
        outputs = {value.name: type_of(value.type) for value in model.graph.output}
        inner = (value for value in model.graph.value_info if not outputs.get(value.name))
        values = [(value.name, type_of(value.type)) for value in (*inner, *model.graph.output)]
        fixed = {name for node in graph.node if node.op_type == "Constant" for name in node.output}
        stated: dict[str, set[str]] = {}
        for name, type in values:
            if type and name not in fixed:
                stated.setdefault(name, set()).add(type)
        constants = {tensor.name: tensor for tensor in graph.initializer}
        described = [value for value in (*inferred.output, *inferred.value_info, *inferred.input) if _is_shaped(value)]
        shapes = {
            value.name: tuple(int(d.dim_value) if d.HasField("dim_value") else -1 for d in value.type.tensor_type.shape.dim)
            for value in described
        }
        shapes |= {name: tuple(one.dims) for name, one in constants.items()}
        types = found | {name: element(one.data_type) for name, one in constants.items()}
        return cls(onnx, model, types, stated, constants, shapes)

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
        if (node.domain, node.op_type) in self._functions or domain not in _kernels().kernels or node.op_type == "Constant":
            return None
        schema = self._schema(node, domain) if domain != CONTRIB else None
        if schema is None:
            return self._of_contrib(node, domain, label, outer=outer) if domain in _kernels().own else None
        bounds = (schema.min_input, schema.max_input, schema.min_output, schema.max_output)
        if (miscounted := _miscounted(node, bounds, label)) is not None:
            return miscounted
        if outer and (wrong := self._wrong_type(node, schema)):
            return _reason("types that the operator has", wrong, label, Why.INPUT_TYPE)
        if outer and (misfit := self._wrong_shape(node, label)) is not None:
            return misfit
        sides = [[one.type_str for one in side] for side in (schema.inputs, schema.outputs)]
        actual = self._actual(node, *sides) if outer else {}
        found = _without_kernel(node, domain, schema.since_version, actual, label)
        body = self._body(node, schema, domain) if found is not None and callers < MAX_DEPTH else None
        if body is None:
            self._note(found or (self._of_values(node, label) if outer else None))
            return None
        if outer and node.op_type in self.misfits:
            return _reason(_FIT, self.misfits[node.op_type], label)
        given = dict(zip(body.input, (self._types.get(name, "") for name in node.input), strict=False))
        inner = _Nodes(self._onnx, body, given if outer else {}, {}, {}, {})
        refused = next(inner.refusals(((label, one) for one in body.node), callers + 1), None)
        self._note(refused or next(iter(inner.without_kernel.values()), None))
        return None

    def _note(self, found: Reason | None) -> None:
        if found is not None:
            self.without_kernel.setdefault(self._output, found)

    def _body(self, node: Any, schema: Any, domain: str) -> Any:
        """The function of ONNX's nodes that ONNX Runtime writes an operator out as, where it has no kernel; None for none."""
        opset, function = self._opsets.get(domain, 1), self._onnx.FunctionProto()
        versions = [version for version in schema.function_opset_versions if version <= opset]
        if versions:
            function.ParseFromString(schema.get_function_with_opset_version(max(versions)))
            return function if self._means_the_same(function, max(versions), opset) else None
        # Functions that depend on their operands' types the onnx package builds in native code, which some files crash: these
        # are believed to load.
        return function if schema.context_dependent_function_opset_versions else None

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

    def _wrong_shape(self, node: Any, label: str) -> Reason | None:
        """Operands that do not fit, of operators whose shapes the onnx package does not infer as ONNX Runtime does."""
        rule, fits = _SHAPES.get(node.op_type, ("", None))
        shapes = [self._shapes.get(name) for name in node.input]
        if fits is None or fits(shapes, self._attributes(node)):
            return None
        return _reason(rule, ", ".join(str(one) for one in shapes if one is not None), label, Why.OPERAND_SIZE)

    def _of_values(self, node: Any, label: str) -> Reason | None:
        """The attributes or constants that a kernel refuses when it is created."""
        place = _SCALES.get(node.op_type)
        needed = _NEEDED.get(node.op_type)
        if needed is not None and needed not in self._attributes(node):
            return _reason(f"a {needed}", "none", label, Why.ARGUMENT)
        for attribute, rule, holds in _ATTRIBUTES.get(node.op_type, ()):
            value = self._attributes(node).get(attribute)
            if value is not None and not holds(value):
                return _reason(f"{attribute} {rule}", value, label, Why.ARGUMENT)
        mode = next((one.s for one in node.attribute if one.name == "mode"), b"nearest")
        names = [name for name in node.input[place : place + 1] if name in self._values] if place is not None else []
        if not names or mode not in (b"linear", b"cubic"):
            return None
        scales = [float(one) for one in self._onnx.numpy_helper.to_array(self._values[names[0]]).ravel()]
        if not scales or _interpolates(scales, cubic=mode == b"cubic"):
            return None
        return _reason("scales of dimensions that it interpolates", scales, label)

    def _schema(self, node: Any, domain: str) -> Any:
        version = self._opsets.get(domain)
        if version is None and domain == "":
            version = _kernels().newest.get(node.op_type, 1)
        try:
            return self._onnx.defs.get_schema(node.op_type, version or 1, domain)
        except self._onnx.defs.SchemaError:
            return None

    def _of_contrib(self, node: Any, domain: str, label: str, *, outer: bool) -> Reason | None:
        known = _kernels().own[domain].get(node.op_type)
        if known is None:
            return _reason("an operator that it has", f"{node.domain}.{node.op_type}".strip("."), label, Why.OPERATOR)
        inputs, outputs, *bounds, attributes, optional = known
        for one in node.attribute:
            type = self._onnx.AttributeProto.AttributeType.Name(one.type)
            # ONNX's operators before their first version, and the like, may have any more (``AllowUncheckedAttributes``).
            if attributes.get(one.name, "" if domain else type) != type:
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
            self._note(_without_kernel(node, domain, 1, {}, label))
            return None
        actual = self._actual(node, inputs, ())
        for constraint, types in actual.items():
            allowed = {constraint[7:-1]} if constraint.startswith("tensor(") else types
            if len(types) > 1 or not types <= allowed:
                return _reason(
                    "types that the operator has", f"{' and '.join(sorted(types))} as {constraint}", label, Why.INPUT_TYPE
                )
        for name, constraint in zip(node.output, outputs, strict=False):
            found = next(iter(actual.get(constraint, ())), "")
            if other := self._other_type(name, f"tensor({found})" if found else ""):
                wrong = f"{other} stated of {name}, which is {found}"
                return _reason("types that the operator has", wrong, label, Why.OUTPUT_TYPE)
            if found:
                self._types[name] = f"tensor({found})"
        self._note(_without_kernel(node, domain, 1, actual, label) or self._of_values(node, label))
        return self._wrong_shape(node, label)

    def _other_type(self, name: str, found: str) -> str:
        """A type that the file states of a value which has another one; empty if it does not."""
        return next((one for one in self._stated.get(name, ()) if found and one != found), "")

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


_MODES = ("mode", "nearest, linear or cubic", lambda value: value in (b"nearest", b"linear", b"cubic"))
_AT_LEAST_0 = ("epsilon", "of 0 at least", lambda value: value >= 0)


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


_LOSSES = ("scores of rank 2 at least, a label for each of them, weights of rank 1", _are_losses)
_QUANTISED = ("scalars as scales and zero points, data that broadcasts", _are_quantised)
_SHAPES: Mapping[str, tuple[str, Callable[[_Shapes, Mapping[str, Any]], bool] | None]] = {
    "SoftmaxCrossEntropyLoss": _LOSSES,
    "NegativeLogLikelihoodLoss": _LOSSES,
    "FusedMatMul": ("matrices that fit", _multiply),
    "QLinearAdd": _QUANTISED,
    "QLinearMul": _QUANTISED,
}
_NAMED = ("QLinearAdd", "QLinearMul")
"""Operators whose inference reads the type of a zero point that may be left out, but not left empty."""
_DIRECTION = ("direction", "LEFT or RIGHT", lambda value: value in (b"LEFT", b"RIGHT"))
_WAYS = (
    "direction",
    "forward, reverse or bidirectional",
    lambda value: value in (b"forward", b"reverse", b"bidirectional"),
)


def _above_0(name: str) -> tuple[str, str, Callable[[Any], object]]:
    return name, "above 0", lambda value: value > 0


_UNITS = _above_0("hidden_size")
_SWITCHES = tuple((name, "0 or 1", lambda value: value in (0, 1)) for name in ("exclusive", "reverse"))
_ATTRIBUTES: Mapping[str, Sequence[tuple[str, str, Callable[[Any], object]]]] = {
    "BitShift": (_DIRECTION,),
    "CumProd": _SWITCHES,
    "CumSum": _SWITCHES,
    "LpNormalization": (("p", "1 or 2", lambda value: value in (1, 2)),),
    "Mod": (("fmod", "0 or 1", lambda value: value in (0, 1)),),
    "ReverseSequence": tuple((name, "0 or 1", lambda value: value in (0, 1)) for name in ("batch_axis", "time_axis")),
    "DepthToSpace": (("mode", "DCR or CRD", lambda value: value in (b"DCR", b"CRD")),),
    "GRU": (_WAYS, _UNITS),
    "LSTM": (_WAYS, _UNITS),
    "Pad": (("mode", "constant, reflect, edge or wrap", lambda value: value in (b"constant", b"reflect", b"edge", b"wrap")),),
    "RNN": (_WAYS,),
    "Resize": (_MODES,),
    "Upsample": (_MODES,),
    "LRN": (("size", "that is odd", lambda value: value % 2 == 1), _above_0("alpha"), _above_0("beta")),
    "MaxRoiPool": (_above_0("spatial_scale"),),
    "SkipLayerNormalization": (_AT_LEAST_0,),
    "SkipSimplifiedLayerNormalization": (_AT_LEAST_0,),
    "TensorScatter": (("mode", "linear or circular", lambda value: value in (b"linear", b"circular")),),
    "Transpose": (("perm", "of each dimension once", lambda value: sorted(value) == list(range(len(value)))),),
}
"""What kernels require of attributes when they are created."""
_NEEDED: Mapping[str, str] = {"GRU": "hidden_size", "LSTM": "hidden_size", "RNN": "hidden_size"}
"""Attributes that kernels require, and the operators' definitions do not."""
_SCALES: Mapping[str, int] = {"Resize": 2, "Upsample": 1}
"""Operators that interpolate → the input with a scale for each dimension, from the newest definition."""


def _interpolates(scales: Sequence[float], *, cubic: bool) -> bool:
    """True for dimensions that are scaled which ONNX Runtime's CPU interpolates (``upsamplebase.h``)."""
    scaled = [i for i, scale in enumerate(scales) if scale != 1]
    rank = len(scales)
    if cubic:
        return rank == 2 or (rank == 4 and scaled in ([], [2], [3], [2, 3]))
    last = all(i >= rank - 2 for i in scaled) or (rank == 4 and all(i in (1, 2) for i in scaled))
    return rank in (2, 3) or (rank == 4 and last) or (rank == 5 and not {0, 1} & {*scaled})


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


def _miscounted(node: Any, bounds: Sequence[int], label: str) -> Reason | None:
    """Too few or too many operands, those without a name among them."""
    for what, names, least, most in (("inputs", node.input, *bounds[:2]), ("outputs", node.output, *bounds[2:])):
        if not least <= len(names) <= most:
            return _reason(f"from {least} to {most} {what}", len(names), label, Why.VARIANT)
    return None


def _without_kernel(node: Any, domain: str, version: int, actual: Mapping[str, set[str]], label: str) -> Reason | None:
    """The reason why there is no kernel for a version of an operator with operands of some types."""
    for first, last, constraints in _kernels().kernels[domain].get(node.op_type, ()):
        fits = first == version or (first < version <= last != _OPEN_END)
        if fits and all(_has(words.split(), actual.get(name, ())) for name, words in constraints.items()):
            return None
    stated = ", ".join(f"{name}: {' and '.join(sorted(found))}" for name, found in actual.items())
    found = f"{node.op_type} of version {version}" + (f" ({stated})" if stated else "")
    return _reason("an operator that it has a kernel for", found, label, Why.OPERATOR)


def _has(kernel: Sequence[str], found: Collection[str]) -> bool:
    return all(one in kernel or (one in _HALVES and "float" in kernel) for one in found)

"""Passes on a file between reading and lowering, in the order of the lists here.

File passes take a ``ModelProto`` and return one, :func:`~nnbridge_onnx.passes.shape_inference.infer_shapes` makes a
:class:`~nnbridge_onnx.read.graph.Graph` of the last one's, and graph passes add to what is known about it (:class:`Facts`).
:mod:`nnbridge_onnx.passes.conversion` then lowers node by node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any

import numpy as np

from nnbridge.converters import ConversionOptions
from nnbridge.converters.assembly import needed
from nnbridge.errors import ConversionError, Reason, first_line, near
from nnbridge.records import dataclass
from nnbridge_onnx import native
from nnbridge_onnx.passes.contrib import expand_contrib
from nnbridge_onnx.passes.folding import fold_constants
from nnbridge_onnx.passes.inline import check_nodes, state_defaults
from nnbridge_onnx.passes.provider import ProviderVerdicts, verdicts
from nnbridge_onnx.passes.qdq import QdqGroup, QdqParameters, find_groups, find_quantisation
from nnbridge_onnx.read.graph import MAX_DEPTH, Graph, subgraphs

CHOICES = ("host", "narrow", "refuse")
_TYPED = ("to", "dtype", "output_dtype", "stash_type", "softmax_precision")
"""Attributes that name an element type."""


def apply_float64(onnx: Any, model: Any, choice: str, source: str) -> None:
    """Do what was chosen. ConversionError where float64 is refused, or does not fit into float32."""
    if choice not in CHOICES:
        raise ConversionError(Reason(", ".join(CHOICES), choice, source, "float64"))
    if choice == "refuse":
        found = next(_names(onnx, model.graph, 0), None)
        if found is not None:
            raise ConversionError(Reason("no float64 (--float64 narrow or host)", f"'{found}'", file=source))
    elif choice == "narrow":
        _Narrowing(onnx, source).graph(model.graph, 0)


def _names(onnx: Any, graph: Any, depth: int) -> Iterator[str]:
    """The names of float64 values: those that are described, constants, and outputs of nodes that compute from them."""
    double = onnx.TensorProto.DOUBLE
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.HasField("tensor_type") and value.type.tensor_type.elem_type == double:
            yield value.name
    yield from (tensor.name for tensor in graph.initializer if tensor.data_type == double)
    for node in graph.node:
        for attribute in node.attribute:
            named = attribute.name in _TYPED and attribute.type == onnx.AttributeProto.INT and attribute.i == double
            if named or (attribute.HasField("t") and attribute.t.data_type == double):
                yield node.output[0] if node.output else node.op_type
            if depth < MAX_DEPTH:
                for inner in subgraphs(attribute):
                    yield from _names(onnx, inner, depth + 1)


class _Narrowing:
    def __init__(self, onnx: Any, source: str) -> None:
        self._onnx = onnx
        self._source = source
        self._double, self._single = onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT

    def graph(self, graph: Any, depth: int) -> None:
        for value in (*graph.input, *graph.output, *graph.value_info):
            kind = value.type.tensor_type if value.type.HasField("tensor_type") else None
            if kind is not None and kind.elem_type == self._double:
                kind.elem_type = self._single
        for tensor in graph.initializer:
            self._tensor(tensor, tensor.name)
        for node in graph.node:
            for attribute in node.attribute:
                self._attribute(attribute, node.name or node.op_type, depth)

    def _attribute(self, attribute: Any, place: str, depth: int) -> None:
        typed = attribute.name in _TYPED and attribute.type == self._onnx.AttributeProto.INT
        if typed and attribute.i == self._double:
            attribute.i = self._single
        if attribute.HasField("t"):
            self._tensor(attribute.t, place)
        if depth < MAX_DEPTH:
            for inner in subgraphs(attribute):
                self.graph(inner, depth + 1)

    def _tensor(self, tensor: Any, place: str) -> None:
        if tensor.data_type != self._double:
            return
        if tensor.data_location == self._onnx.TensorProto.EXTERNAL:
            raise ConversionError(
                Reason("float64 constants inside the file, to be narrowed", "external data", self._source, place)
            )
        array = self._onnx.numpy_helper.to_array(tensor)
        with np.errstate(over="ignore"):
            single = array.astype(np.float32)
        if np.any(np.isinf(single) & np.isfinite(array)):
            found = array[np.isinf(single) & np.isfinite(array)][0]
            raise ConversionError(Reason("float64 constants that fit into float32", str(found), self._source, place))
        tensor.CopyFrom(self._onnx.numpy_helper.from_array(single, tensor.name))


FIRST_OPSET = 7


def opset_of(model: Any) -> int | None:
    """The opset of ONNX's own domain."""
    return next((int(e.version) for e in model.opset_import if e.domain in ("", "ai.onnx")), None)


# -- passes on files -------------------------------------------------------------------------------------------------------


@dataclass
class FileContext:
    """The files that passes read beside a file."""

    onnx: Any
    """The ``onnx`` package, which is imported when the first file is read."""
    options: ConversionOptions
    source: str
    size: int
    """Bytes of the file and of those that hold its constants."""
    origins: dict[str, str] = field(default_factory=dict)
    """Outputs of operators that were written out, and these operators."""


def _check_nodes(model: Any, file: FileContext) -> Any:
    check_nodes(model, file.source, file.size)
    return model


def _renew(model: Any, file: FileContext) -> Any:
    """A model of an opset before the first that lowerings know, converted to it by the ``onnx`` package."""
    opset = opset_of(model)
    if opset is None or opset >= FIRST_OPSET:
        return model
    try:
        return native.convert_version(file.onnx, model, FIRST_OPSET)
    except RuntimeError as error:
        rule = f"an opset from {FIRST_OPSET} on, or one that the onnx package can bring up to it"
        raise ConversionError(Reason(rule, f"{opset} ({first_line(error)})", file=file.source)) from error


def _expand(model: Any, file: FileContext) -> Any:
    file.origins.update(expand_contrib(file.onnx, model, opset_of(model) or FIRST_OPSET))
    return model


def _inline_functions(model: Any, file: FileContext) -> Any:
    if not model.functions:
        return model
    state_defaults(model)
    return native.inline_functions(file.onnx, model)


def _float64(model: Any, file: FileContext) -> Any:
    apply_float64(file.onnx, model, file.options.float64, file.source)
    return model


def _set_shapes(model: Any, file: FileContext) -> Any:
    """Dimensions that a user asks for by name."""
    inputs = {value.name: value.type.tensor_type for value in model.graph.input if value.type.HasField("tensor_type")}
    for name, dims in file.options.shapes.items():
        if name not in inputs or (inputs[name].HasField("shape") and len(inputs[name].shape.dim) != len(dims)):
            ranks = {n: str(len(t.shape.dim)) if t.HasField("shape") else "any" for n, t in inputs.items()}
            known = ", ".join(f"{n}[{rank} dimensions]" for n, rank in ranks.items())
            raise ConversionError(
                Reason(
                    f"an input ({known}){near(name, inputs) if name not in inputs else ''}",
                    f"{name}={list(dims)}",
                    file.source,
                    "--shape",
                )
            )
        if not inputs[name].HasField("shape"):
            inputs[name].shape.dim.extend([file.onnx.TensorShapeProto.Dimension()] * len(dims))
        for dimension, size in zip(inputs[name].shape.dim, dims, strict=True):
            if dimension.HasField("dim_value") and dimension.dim_value >= 0 and dimension.dim_value != size:
                rule = f"{name} with {dimension.dim_value} where the file fixes it"
                raise ConversionError(Reason(rule, str(list(dims)), operand="shape", file=file.source))
            dimension.dim_value = size
    if file.options.shapes:
        # What was inferred for other dimensions may no longer hold.
        del model.graph.value_info[:]
        for value in model.graph.output:
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.ClearField("shape")
    return model


FILE_PASSES: tuple[Callable[[Any, FileContext], Any], ...] = (
    _check_nodes,
    _renew,
    _expand,  # into operators of an opset that lowerings know
    _inline_functions,
    _check_nodes,  # those that operators were written out to, too
    _float64,  # once all nodes are in the graph or in subgraphs
    _set_shapes,
)


# -- passes on graphs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Facts:
    """A graph and what passes have found out about it."""

    graph: Graph
    live: frozenset[int] = frozenset()
    """Indexes of nodes that an output depends on."""
    folded: frozenset[int] = frozenset()
    """Indexes of nodes whose results are constants of the graph."""
    quantised: Mapping[str, QdqParameters] = field(default_factory=dict)
    groups: Mapping[int, QdqGroup] = field(default_factory=dict)
    provider: ProviderVerdicts = field(default_factory=ProviderVerdicts)
    """What the provider makes of nodes; for its mapping only."""


def _check_names(facts: Facts, options: ConversionOptions) -> Facts:
    graph = facts.graph
    known = {*graph.inputs, *graph.constants}
    for node in graph.nodes:
        for name in (*node.inputs, *node.captured):
            if name and name not in known:
                raise ConversionError(Reason("inputs that exist before the node", name, node.label))
        for name in node.results:
            if name in known:
                raise ConversionError(Reason("outputs that are written once", name, node.label))
            known.add(name)
    missing = [name for name in graph.outputs if name not in known]
    if missing or not graph.outputs:
        raise ConversionError(Reason("outputs that are written", ", ".join(missing) or "no outputs"))
    return facts


def _find_live(facts: Facts, options: ConversionOptions) -> Facts:
    graph = facts.graph
    nodes = needed(graph.nodes, graph.outputs, lambda node: (*node.inputs, *node.captured), lambda node: node.outputs)
    return replace(facts, live=frozenset(node.index for node in nodes))


def _fold(facts: Facts, options: ConversionOptions) -> Facts:
    with np.errstate(all="ignore"):
        graph, folded = fold_constants(facts.graph, facts.live)
    return replace(facts, graph=graph, folded=folded)


def _quantisation(facts: Facts, options: ConversionOptions) -> Facts:
    return replace(facts, quantised=find_quantisation(facts.graph))


def _groups(facts: Facts, options: ConversionOptions) -> Facts:
    return replace(facts, groups=find_groups(facts.graph, facts.quantised))


def _partition(facts: Facts, options: ConversionOptions) -> Facts:
    if options.mapping != "provider":
        return facts
    nchw, graph = options.layout == "nchw", facts.graph
    # To ONNX Runtime, what a caller may replace is not a constant.
    seen = replace(graph, constants={name: a for name, a in graph.constants.items() if name not in graph.overridable})
    return replace(facts, provider=verdicts(seen, facts.folded, options.feature_level, nchw=nchw, release=options.ort))


GRAPH_PASSES: tuple[Callable[[Facts, ConversionOptions], Facts], ...] = (
    _check_names,
    _find_live,
    _fold,  # live nodes only
    _quantisation,  # scales and zero points are constants now
    _groups,
    _partition,
)

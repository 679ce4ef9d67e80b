"""What is done with a file between reading and lowering, as passes in the order of the lists here.

File passes take a ``ModelProto`` and return one, :func:`~nnbridge_onnx.passes.shape_inference.infer_shapes` makes a
:class:`~nnbridge_onnx.read.graph.Graph` of the last one's, and graph passes add to what is known of it (:class:`Facts`).
:mod:`nnbridge_onnx.passes.conversion` then lowers node by node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from nnbridge.converters import ConversionOptions
from nnbridge.converters.assembly import needed
from nnbridge.errors import ConversionError, Reason, first_line, near
from nnbridge_onnx import native
from nnbridge_onnx.passes.contrib import expand_contrib
from nnbridge_onnx.passes.float64 import apply_float64
from nnbridge_onnx.passes.folding import fold_constants
from nnbridge_onnx.passes.inline import check_functions, state_defaults
from nnbridge_onnx.passes.provider import refusals
from nnbridge_onnx.passes.qdq import Group, Quantisation, find_groups, find_quantisation
from nnbridge_onnx.read.graph import Graph

FIRST_OPSET = 7
T = TypeVar("T")
Context = TypeVar("Context")


@dataclass(frozen=True, slots=True)
class Pass(Generic[T, Context]):
    """One pass: what it requires of its input, and what it ensures of its result."""

    run: Callable[[T, Context], T]
    requires: str
    ensures: str


def opset_of(model: Any) -> int | None:
    """The opset of ONNX's own domain."""
    return next((int(e.version) for e in model.opset_import if e.domain in ("", "ai.onnx")), None)


# -- passes on files -------------------------------------------------------------------------------------------------------


@dataclass
class FileContext:
    """What passes on a file read beside it."""

    onnx: Any
    """The ``onnx`` package, which is imported when the first file is read."""
    options: ConversionOptions
    source: str
    origins: dict[str, str] = field(default_factory=dict)
    """Outputs of operators that were written out, and these operators."""


def _renew(model: Any, file: FileContext) -> Any:
    """A model of an opset before the first that lowerings know, converted to it by the ``onnx`` package."""
    opset = opset_of(model)
    if opset is None or opset >= FIRST_OPSET:
        return model
    try:
        return native.convert_version(file.onnx, model, FIRST_OPSET)
    except RuntimeError as error:
        rule = f"an opset from {FIRST_OPSET} on, or one that the onnx package can bring up to it"
        raise ConversionError(Reason(rule, f"{opset} ({first_line(error)})", file.source)) from error


def _expand(model: Any, file: FileContext) -> Any:
    file.origins.update(expand_contrib(file.onnx, model, opset_of(model) or FIRST_OPSET))
    return model


def _inline_functions(model: Any, file: FileContext) -> Any:
    if not model.functions:
        return model
    check_functions(model, file.source)
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
            if dimension.HasField("dim_value") and dimension.dim_value > 0 and dimension.dim_value != size:
                rule = f"{name} with {dimension.dim_value} where the file fixes it"
                raise ConversionError(Reason(rule, str(list(dims)), file.source, "--shape"))
            dimension.dim_value = size
    if file.options.shapes:
        # What was inferred for other dimensions may no longer hold.
        del model.graph.value_info[:]
        for value in model.graph.output:
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.ClearField("shape")
    return model


FILE_PASSES: tuple[Pass[Any, FileContext], ...] = (
    Pass(_renew, "a model that the onnx package's checker accepts", f"an opset of {FIRST_OPSET} at least"),
    Pass(_expand, f"an opset of {FIRST_OPSET} at least", "no operator of com.microsoft that can be written out"),
    Pass(_inline_functions, "functions of the model's own", "no call of one of them"),
    Pass(_float64, "all nodes in the graph or in subgraphs", "float64 values as the user chose: left, narrowed or refused"),
    Pass(_set_shapes, "inputs by their names in the file", "the dimensions that the user asked for"),
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
    quantised: Mapping[str, Quantisation] = field(default_factory=dict)
    groups: Mapping[int, Group] = field(default_factory=dict)
    refused: Mapping[int, Reason] = field(default_factory=dict)
    """Why the provider leaves nodes to ONNX Runtime; for its mapping alone."""


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
    # To ONNX Runtime, what a caller may replace is no constant.
    seen = replace(graph, constants={name: a for name, a in graph.constants.items() if name not in graph.overridable})
    return replace(facts, refused=refusals(seen, facts.folded, options.feature_level, nchw=nchw))


GRAPH_PASSES: tuple[Pass[Facts, ConversionOptions], ...] = (
    Pass(_check_names, "shapes as far as they can be inferred", "every value is written once, before it is read"),
    Pass(_find_live, "run order", "the nodes that an output depends on"),
    Pass(_fold, "live nodes", "results of nodes with known inputs as constants"),
    Pass(_quantisation, "scales and zero points as constants", "parameters of 8-bit values"),
    Pass(_groups, "parameters of 8-bit values", "nodes between DequantizeLinear and QuantizeLinear"),
    Pass(_partition, "constants of folded nodes", "why the provider leaves nodes to ONNX Runtime"),
)

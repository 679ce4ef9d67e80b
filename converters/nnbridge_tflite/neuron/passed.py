"""Prediction, without the compiler, of the operators that LiteRT's MediaTek compiler passes on, and of facts that its calls
leave out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nnbridge.converters import ConversionOptions
from nnbridge.converters.draft import Draft
from nnbridge.converters.mapping import MappingKind
from nnbridge.converters.recorded import Passed
from nnbridge.errors import ConversionError, NnapiError, Reason
from nnbridge.types import RUNTIME_FEATURE_LEVEL
from nnbridge_tflite.declaration import FUSED
from nnbridge_tflite.neuron.expressed import NeuronGraph
from nnbridge_tflite.neuron.recorded import EXTENDED, FORMS
from nnbridge_tflite.passes.conversion import Context, Conversion
from nnbridge_tflite.passes.nodes import budget_for
from nnbridge_tflite.passes.states import Variables
from nnbridge_tflite.read.graph import Operator, TfliteSubgraph
from nnbridge_tflite.read.reader import TfliteFile

PASSED = {form.operator for form in (*FORMS.values(), *EXTENDED.values())} | {"LEAKY_RELU"}
"""The operators that the compiler passes on."""
_TYPES = ("FLOAT32", "FLOAT16", "BOOL", "INT32", "UINT8")
_QUANTISED = ("INT8", "INT16", "UINT16", "INT4")
"""Element types that the compiler passes on, and those that it does with scales only; int64 in constants."""


MAX_CALLED = 1000
"""Operators of called subgraphs that are looked into."""


_LOST: Mapping[str, Mapping[str, str]] = {
    "CONCATENATION": {FUSED.name: "no fused activation, which the compiler drops"},
    "STRIDED_SLICE": {
        "ellipsis_mask": "no ellipsis, which the compiler drops",
        "new_axis_mask": "no new axes, which the compiler drops",
    },
}
"""Operator → options that calls do not pass on, and what is required of them."""


def passed(file: TfliteFile, number: int) -> Passed:
    """The operators of a subgraph that the compiler passes on."""
    subgraph = file.graph.subgraphs[number]
    reasons = {operator.index: _refusal(operator, subgraph) for operator in subgraph.operators}
    unreadable = {index: reason for index, reason in reasons.items() if reason is not None}
    dims = _computed_dims(file, number)
    # Calls name no operator that the compiler cannot pass on.
    found = {o.index: unreadable.get(o.index) or _loss(o, subgraph, dims) for o in subgraph.operators}
    lost = {index: reason for index, reason in found.items() if reason is not None}
    tensors = tuple(tensor if tensor.has_rank else replace(tensor, signature=()) for tensor in subgraph.tensors)
    expressed = NeuronGraph(replace(subgraph, tensors=tensors), file.pool).without(unreadable)
    return Passed(expressed, tuple(operator.name for operator in subgraph.operators), lost)


def _refusal(operator: Operator, subgraph: TfliteSubgraph) -> Reason | None:
    """The reason why the compiler does not pass an operator on; None if it does."""
    if operator.name not in PASSED or operator.custom:
        return Reason("an operator that the compiler passes on", operator.name, operator.label)
    for i in (*operator.inputs, *operator.outputs):
        tensor = subgraph.tensors[i] if i >= 0 else None
        if tensor is None or tensor.type.name in _TYPES:
            continue
        constant = tensor.type.name == "INT64" and tensor.data is not None
        if not constant and not (tensor.type.name in _QUANTISED and tensor.quantisation.scales):
            return Reason("element types that the compiler passes on", str(tensor), operator.label, tensor.label)
    return None


def _computed_dims(file: TfliteFile, number: int) -> Mapping[int, tuple[int, ...]]:
    """The dimensions of a subgraph's tensors as they are computed from those of its inputs; empty where that is not possible."""
    options = ConversionOptions(RUNTIME_FEATURE_LEVEL, MappingKind.WIDE.value)
    draft, graph = Draft(RUNTIME_FEATURE_LEVEL, budget_for(file.pool)), file.graph.subgraphs[number]
    main = Conversion(Context(file, options, MAX_CALLED), number, graph, draft, Variables())
    try:
        main.check_interface()
        main.convert()
    except (ConversionError, NnapiError):
        return {}
    return {i: main.values.value(i).dims for operator in graph.operators for i in operator.outputs}


def _loss(operator: Operator, subgraph: TfliteSubgraph, dims: Mapping[int, tuple[int, ...]]) -> Reason | None:
    """The facts about an operator that the compiler's calls leave out; None if they state all."""
    for option, rule in _LOST.get(operator.name, {}).items():
        value = operator.options.get(option) or 0
        if value:
            return Reason(rule, str(value), operator.label)
    if operator.name == "GELU" and not operator.options.get("approximate"):
        return Reason("the approximate GELU, which the compiler passes on for both", "the exact one", operator.label)
    for i in (*operator.inputs, *operator.outputs):
        tensor = subgraph.tensors[i] if i >= 0 else None
        if tensor is None:
            continue
        if tensor.type.name == "INT4" and tensor.quantisation.per_channel:
            rule = "4-bit weights with one scale, as the compiler passes no others on"
            return Reason(rule, f"{len(tensor.quantisation.scales)}", operator.label, tensor.label)
        declared = tensor.shape or (1,)
        if dims.get(i, declared) != declared:
            rule = f"declared dimensions, which the compiler passes on, of {list(dims[i])} as computed"
            return Reason(rule, f"{list(declared)}", operator.label, tensor.label)
    return None

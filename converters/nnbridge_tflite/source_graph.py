"""A file's operators as compilers and delegates that evaluate TFLite operators see them: types, options, shapes, constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from nnbridge.converters import ConversionOptions
from nnbridge.converters.draft import Draft
from nnbridge.model import Array
from nnbridge.source import CUSTOM, SourceDeclaration, SourceGraph, SourceInput, SourceOperator, SourceTensor
from nnbridge_tflite.convert import requested_signature
from nnbridge_tflite.declaration import REGISTRY, definition_of
from nnbridge_tflite.dimensions import of_graph
from nnbridge_tflite.passes.dynamic import dynamic_tensor
from nnbridge_tflite.passes.nodes import budget_for
from nnbridge_tflite.passes.values import TensorValues
from nnbridge_tflite.read.graph import ELEMENT_TYPES, Operator, Tensor, TfliteSubgraph
from nnbridge_tflite.read.reader import TfliteFile
from nnbridge_tflite.read.schema import builtin_codes


def source_graph(file: TfliteFile, options: ConversionOptions) -> SourceGraph:
    """The operators of subgraph 0, or of the subgraph that the requested signature calls, as they are in the file."""
    path = file.path
    signature = requested_signature(file.graph, options.signature)
    number = signature.subgraph if signature else 0
    subgraph = file.graph.subgraphs[number]
    if options.shapes:
        dims = of_graph(file, options.signature, options.shapes).dims
        sized = (replace(t, shape=dims.get((number, t.index), t.shape)) for t in subgraph.tensors)
        tensors = tuple(replace(t, signature=()) if (number, t.index) in dims else t for t in sized)
        subgraph = replace(subgraph, tensors=tensors)
    values = TensorValues(file, subgraph.tensors, subgraph.written, Draft(options.feature_level, budget_for(file.pool)))
    found = [_tensor(tensor, subgraph, values) for tensor in subgraph.tensors]
    inputs, outputs = (tuple(found[i] for i in side) for side in (subgraph.inputs, subgraph.outputs))
    operators = tuple(_operator(operator, found) for operator in subgraph.operators)
    dynamic = dynamic_tensor(file.graph, number)
    return SourceGraph("tflite", path.stem, operators, inputs, outputs, number, None if dynamic is None else dynamic.reason())


def declared() -> tuple[SourceDeclaration, ...]:
    """Every builtin operator, those that have no declaration here by name only, and the custom ones that have one."""
    types = tuple(element.name for element in ELEMENT_TYPES.values())
    found = {f"{CUSTOM}{each.name}" if each.custom else each.name: each for each in REGISTRY}
    return tuple(
        SourceDeclaration(name, types=types)
        if name not in found
        else SourceDeclaration(
            name,
            tuple(SourceInput(each.name, each.repeat) for each in found[name].inputs),
            {option.name: option.default for option in found[name].options},
            types,
        )
        for name in dict.fromkeys((*builtin_codes(), *found))
    )


def _tensor(tensor: Tensor, subgraph: TfliteSubgraph, values: TensorValues) -> SourceTensor:
    quantisation = tensor.quantisation
    held = tensor.data is not None and tensor.index not in subgraph.written and tensor.type.dtype is not None
    read: Callable[[], Array] | None = partial(_value, values, tensor.index) if held else None
    return SourceTensor(
        tensor.index,
        tensor.name,
        tensor.type.name,
        tensor.type.bits,
        tensor.shape,
        tuple(k for k, d in enumerate(tensor.signature) if d < 0),
        quantisation.scales,
        quantisation.zero_points,
        quantisation.axis,
        quantisation.stated,
        tensor.is_variable,
        read,
    )


def _value(values: TensorValues, index: int) -> Array:
    found = values.constant(index)
    assert found is not None  # the tensor has data, and nothing writes it
    return found


def _operator(operator: Operator, tensors: list[SourceTensor]) -> SourceOperator:
    declared = definition_of(operator)
    return SourceOperator(
        operator.index,
        f"{CUSTOM}{operator.name}" if operator.custom else operator.name,
        operator.version,
        tuple(None if i < 0 else tensors[i] for i in operator.inputs),
        tuple(tensors[i] for i in operator.outputs),
        operator.options if declared is None else declared.complete(operator.options),
    )

"""Element types and dimensions that TFLite's kernels give to their outputs when they are prepared, whatever a file states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nnbridge_tflite.declaration import TfliteOperator, definition_of
from nnbridge_tflite.loads import PreparedOperator, UnknownError
from nnbridge_tflite.read.graph import ELEMENT_TYPES, ElementType, Operator, TfliteSubgraph, element_type


def prepared_dims(declared: TfliteOperator, node: PreparedOperator) -> Sequence[tuple[int, ...]] | None:
    """The dimensions of an operator's outputs; None where they are not known, or its inputs do not fit together."""
    try:
        return None if declared.dims is None else declared.dims(node)
    except (UnknownError, ArithmeticError, IndexError, ValueError):
        return None


def with_written_types(graph: TfliteSubgraph) -> TfliteSubgraph:
    """A subgraph whose tensors have the types that kernels write."""
    types: dict[int, ElementType] = {}
    for operator in graph.operators:
        declared = definition_of(operator)
        written = None if declared is None else _written(declared, operator, graph, types)
        if declared is not None and written is not None:
            types.update(dict.fromkeys(operator.outputs if declared.writes_all else operator.outputs[:1], written))
    changed = {i: one for i, one in types.items() if 0 <= i < len(graph.tensors) and graph.tensors[i].type != one}
    if not changed:
        return graph
    return replace(graph, tensors=tuple(replace(t, type=changed.get(t.index, t.type)) for t in graph.tensors))


def _written(
    declared: TfliteOperator, operator: Operator, graph: TfliteSubgraph, types: dict[int, ElementType]
) -> ElementType | None:
    """The element type that a kernel gives to its first output; None where it leaves the file's."""
    source = declared.writes_type
    if isinstance(source, int):
        index = operator.inputs[source] if source < len(operator.inputs) else -1
        return types.get(index, graph.tensors[index].type) if 0 <= index < len(graph.tensors) else None
    if source in operator.options or not source:
        return ELEMENT_TYPES.get(int(operator.options[source])) if source else None
    return element_type(source) if source.isupper() else None

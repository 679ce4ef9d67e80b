"""``nnbridge inspect`` for ONNX files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nnbridge.converters.delegation import refusal_of
from nnbridge.converters.inspection import Inspection, Mapped, TensorInfo, count_transposes, histogram
from nnbridge.converters.mapping import MappingKind
from nnbridge.converters.structure import FileGraph, named_graph
from nnbridge.errors import ConversionError, Stage
from nnbridge.model import Model
from nnbridge_onnx.passes.qdq import find_quantisation
from nnbridge_onnx.read.graph import ELEMENT_TYPES, Graph, Tensor


def inspect(path: Path, graph: Graph, convert: Callable[[str], tuple[Model, tuple[Mapped, ...]]]) -> Inspection:
    """Look into a file, given its conversion under a mapping; a note states what cannot be converted."""
    quantised = find_quantisation(graph)
    mappings: dict[str, tuple[Mapped, ...]] = {}
    transposes = {}
    notes = []
    for mapping in ("provider", "wide"):
        try:
            model, mappings[mapping] = convert(mapping)
            transposes[mapping] = count_transposes(model)
        except ConversionError as error:
            notes.append(f"not converted under the {mapping} mapping: {error}")
    opsets = {name or "ai.onnx": version for name, version in graph.opsets.items()}
    return Inspection(
        str(path),
        "onnx",
        path.stat().st_size,
        sum(array.nbytes for array in graph.constants.values()),
        tuple(_info(name, graph) for name in graph.inputs),
        tuple(_info(name, graph) for name in graph.outputs),
        histogram([node.operator for node in graph.nodes]),
        histogram([_type(tensor) for tensor in graph.tensors.values()]),
        len(quantised),
        mappings=mappings,
        transposes=transposes,
        metadata={"opsets": opsets},
        notes=tuple(notes),
        loads=_loads(mappings),
    )


def _loads(mappings: Mapping[str, Sequence[Mapped]]) -> bool | None:
    """True if ONNX Runtime loads a file; what is not converted may be loaded or not."""
    if MappingKind.PROVIDER not in mappings:
        return None
    refusal = refusal_of(mappings[MappingKind.PROVIDER], MappingKind.PROVIDER)
    return refusal is None or refusal.stage is not Stage.LOADING


def graphs(graph: Graph) -> tuple[FileGraph, ...]:
    """The main graph, with the operators of functions in place of their calls."""
    operators = [(node.index, node.operator, node.inputs, node.outputs) for node in graph.nodes]
    own = [node.name for node in graph.nodes]
    return (named_graph(0, graph.name or "main", operators, graph.inputs, graph.outputs, own),)


def _info(name: str, graph: Graph) -> TensorInfo:
    tensor = graph.tensors[name]
    return TensorInfo(name, _type(tensor), tensor.shape)


def _type(tensor: Tensor) -> str:
    return ELEMENT_TYPES[tensor.type][0] if tensor.type in ELEMENT_TYPES else "other"

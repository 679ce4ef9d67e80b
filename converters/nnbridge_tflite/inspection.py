"""``nnbridge inspect`` for TFLite files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nnbridge.converters import ConversionOptions
from nnbridge.converters.inspection import (
    Inspection,
    Mapped,
    SignatureInfo,
    TensorInfo,
    TensorMetadata,
    count_transposes,
    histogram,
)
from nnbridge.converters.mapping import MappingKind
from nnbridge.converters.structure import FileGraph, FileOperator
from nnbridge.errors import ConversionError, OptionError
from nnbridge_tflite.convert import convert, distinct_signatures
from nnbridge_tflite.custom import foreign, remarks
from nnbridge_tflite.passes.loading import not_loaded
from nnbridge_tflite.read.graph import Graph, Tensor, TfliteSubgraph
from nnbridge_tflite.read.metadata import metadata, tensor_metadata
from nnbridge_tflite.read.reader import TfliteFile


def inspect(file: TfliteFile, options: ConversionOptions) -> Inspection:
    """Look into a file; a note states what cannot be converted."""
    graph, path = file.graph, file.path
    tensors = [tensor for subgraph in graph.subgraphs for tensor in subgraph.tensors]
    mappings: dict[str, tuple[Mapped, ...]] = {}
    transposes = {}
    notes = []
    keys = distinct_signatures(graph)
    # Each operator counts once, whichever signatures reach it.
    called = keys if len(keys) > 1 and not options.signature else [options.signature]
    for mapping in (MappingKind.DELEGATE.value, MappingKind.WIDE.value):
        try:
            found = [convert(file, replace(options, mapping=mapping, signature=key)) for key in called]
            mappings[mapping] = tuple({m.key: m for _, mapped in found for m in mapped}.values())
            between, outer = zip(*(count_transposes(model) for model, _ in found), strict=True)
            transposes[mapping] = sum(between), sum(outer)
        except OptionError:
            raise
        except ConversionError as error:
            notes.append(f"not converted under the {mapping} mapping: {error}")
    if len(graph.subgraphs) > 1:
        notes.append(f"{len(graph.subgraphs)} subgraphs: " + ", ".join(s.name or "unnamed" for s in graph.subgraphs))
    carried = [tensor.name for tensor in tensors if tensor.is_variable] + [
        str(operator.options.get("shared_name"))
        for s in graph.subgraphs
        for operator in s.operators
        if operator.name == "VAR_HANDLE"
    ]
    if carried:
        notes.append("stored from run to run: " + ", ".join(dict.fromkeys(carried)))
    dropped = _dropped(graph, mappings.get(MappingKind.DELEGATE.value, ()))
    if dropped:
        notes.append(f"of these, TFLite's NNAPI delegate drops {', '.join(dropped)}: each run starts from the first state")
    refusals = []
    if MappingKind.DELEGATE not in mappings and (reason := not_loaded(file)) is not None:
        what = f"{reason.operation}: TFLite requires {reason.rule}, found {reason.found}"
        refusals = [f"TFLite does not load this file: {what}."]
    stated = metadata(file)
    main = _interface(graph, graph.main, stated)
    weights = {tensor.data for tensor in tensors if tensor.data is not None}
    return Inspection(
        str(path),
        "tflite",
        path.stat().st_size,
        sum(span.length for span in weights),
        main.inputs,
        main.outputs,
        histogram([operator.name for subgraph in graph.subgraphs for operator in subgraph.operators]),
        histogram([tensor.type.name for tensor in tensors]),
        sum(bool(tensor.quantisation.scales) for tensor in tensors),
        tuple(_signatures(graph, stated)),
        mappings,
        transposes,
        {**({"description": graph.description} if graph.description else {}), **stated},
        tuple(notes),
        (*refusals, *remarks(file)),
        _loads(file, mappings),
    )


def _loads(file: TfliteFile, mappings: Mapping[str, Sequence[Mapped]]) -> bool | None:
    """True if TFLite loads a file; what is not converted for another reason may be loaded or not."""
    if foreign(file.graph) or not_loaded(file) is not None:
        return False
    return True if MappingKind.DELEGATE in mappings else None


def _dropped(graph: Graph, mapped: Iterable[Mapped]) -> list[str]:
    """States of operators that the delegate hands over without their state outputs, by name."""
    sequences = [one.key for one in mapped if "_SEQUENCE_" in one.operator and one.mapping == MappingKind.DELEGATE]
    read = ((graph.subgraphs[s].tensors, i) for s, index in sequences for i in graph.subgraphs[s].operators[index].inputs)
    return list(dict.fromkeys(tensors[i].name for tensors, i in read if i >= 0 and tensors[i].is_variable))


def graphs(file: TfliteFile) -> tuple[FileGraph, ...]:
    """The file's subgraphs; those without a name have the ones that Model Explorer gives them."""
    return tuple(
        FileGraph(
            number,
            subgraph.name or ("main" if not number else f"subgraph_{number}"),
            tuple(tensor.name for tensor in subgraph.tensors),
            tuple(FileOperator(o.index, o.name, tuple(i for i in o.inputs if i >= 0), o.outputs) for o in subgraph.operators),
            subgraph.inputs,
            subgraph.outputs,
        )
        for number, subgraph in enumerate(file.graph.subgraphs)
    )


def interface(file: TfliteFile, options: ConversionOptions) -> SignatureInfo:
    """The inputs and outputs of a file, or of the requested signature, with the file's metadata."""
    stated = metadata(file)
    named = (signature for signature in _signatures(file.graph, stated) if signature.key == options.signature)
    return next(named, _interface(file.graph, file.graph.main, stated))


def _interface(graph: Graph, subgraph: TfliteSubgraph, stated: Mapping[str, Any]) -> SignatureInfo:
    """All inputs and outputs of a subgraph, in order."""
    infos = _infos(graph, subgraph, stated)
    return SignatureInfo("", tuple(infos[i] for i in subgraph.inputs), tuple(infos[i] for i in subgraph.outputs))


def _signatures(graph: Graph, stated: Mapping[str, Any]) -> Iterable[SignatureInfo]:
    for signature in graph.signatures:
        subgraph = graph.subgraphs[signature.subgraph]
        sides = (signature.inputs, signature.outputs)
        # A signature may name tensors that are neither inputs nor outputs of its subgraph.
        named = {i: _info(subgraph.tensors[i]) for side in sides for i in side.values()}
        infos = named | _infos(graph, subgraph, stated)
        yield SignatureInfo(signature.key, *(tuple(replace(infos[i], name=name) for name, i in side.items()) for side in sides))


def _infos(graph: Graph, subgraph: TfliteSubgraph, stated: Mapping[str, Any]) -> dict[int, TensorInfo]:
    """The inputs and outputs of a subgraph by tensor index; metadata lists them in the subgraph's order."""
    subgraphs = stated.get("subgraph_metadata", ())
    number = next(k for k, candidate in enumerate(graph.subgraphs) if candidate is subgraph)
    tables = subgraphs[number] if number < len(subgraphs) else {}
    found = {}
    for side, indexes in (("input", subgraph.inputs), ("output", subgraph.outputs)):
        described = tables.get(f"{side}_tensor_metadata", ())
        for k, index in enumerate(indexes):
            facts = tensor_metadata(described[k], stated.get("labels", {})) if k < len(described) else TensorMetadata()
            found[index] = replace(_info(subgraph.tensors[index]), metadata=facts)
    return found


def _info(tensor: Tensor) -> TensorInfo:
    quantisation = tensor.quantisation
    return TensorInfo(
        tensor.name, tensor.type.name, tensor.signature or tensor.shape, float(quantisation.scale), quantisation.zero_point
    )

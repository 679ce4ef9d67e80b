"""``nnbridge inspect`` for TFLite files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from nnbridge.converters import ConversionOptions
from nnbridge.converters.inspection import Inspection, Mapped, SignatureInfo, TensorInfo, count_transposes, histogram
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import ConversionError, OptionError
from nnbridge_tflite.convert import convert_with_report, distinct_signatures
from nnbridge_tflite.read.graph import Graph, Subgraph, Tensor
from nnbridge_tflite.read.metadata import metadata
from nnbridge_tflite.read.reader import read


def inspect(path: Path, options: ConversionOptions) -> Inspection:
    """Look into a file. ConversionError if it cannot be read; what cannot be converted is said in a note."""
    file = read(path)
    graph = file.graph
    tensors = [tensor for subgraph in graph.subgraphs for tensor in subgraph.tensors]
    mappings: dict[str, tuple[Mapped, ...]] = {}
    transposes = {}
    notes = []
    keys = distinct_signatures(graph)
    # Each operator counts once, whichever signatures reach it.
    called = keys if len(keys) > 1 and not options.signature else [options.signature]
    for mapping in (MappingKind.DELEGATE.value, MappingKind.WIDE.value):
        try:
            found = [convert_with_report(path, replace(options, mapping=mapping, signature=key)) for key in called]
            mappings[mapping] = tuple({(m.subgraph, m.index): m for _, mapped in found for m in mapped}.values())
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
        notes.append("kept from run to run: " + ", ".join(dict.fromkeys(carried)))
    main = graph.main
    weights = {tensor.data for tensor in tensors if tensor.data is not None}
    return Inspection(
        str(path),
        "tflite",
        path.stat().st_size,
        sum(span.length for span in weights),
        _infos(main, main.inputs),
        _infos(main, main.outputs),
        histogram([operator.name for subgraph in graph.subgraphs for operator in subgraph.operators]),
        histogram([tensor.type.name for tensor in tensors]),
        sum(bool(tensor.quantisation.scales) for tensor in tensors),
        tuple(_signatures(graph)),
        mappings,
        transposes,
        {**({"description": graph.description} if graph.description else {}), **metadata(file)},
        tuple(notes),
    )


def _signatures(graph: Graph) -> Iterable[SignatureInfo]:
    for signature in graph.signatures:
        subgraph = graph.subgraphs[signature.subgraph]
        yield SignatureInfo(signature.key, _named(subgraph, signature.inputs), _named(subgraph, signature.outputs))


def _named(subgraph: Subgraph, names: Mapping[str, int]) -> tuple[TensorInfo, ...]:
    return tuple(replace(_info(subgraph.tensors[i]), name=name) for name, i in names.items())


def _infos(subgraph: Subgraph, indexes: Iterable[int]) -> tuple[TensorInfo, ...]:
    return tuple(_info(subgraph.tensors[i]) for i in indexes)


def _info(tensor: Tensor) -> TensorInfo:
    quantisation = tensor.quantisation
    return TensorInfo(
        tensor.name, tensor.type.name, tensor.signature or tensor.shape, float(quantisation.scale), quantisation.zero_point
    )

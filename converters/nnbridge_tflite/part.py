"""A part of a TFLite file as a file of its own: the operators between tensors of the main subgraph."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnbridge.converters.cutting import Excerpt, cut
from nnbridge.errors import ConversionError, Reason
from nnbridge_tflite.read.reader import TfliteFile
from nnbridge_tflite.tables import Table, decoded, drop_unused, is_constant, listed
from nnbridge_tflite.unrolling import REFERRING
from nnbridge_tflite.write import encode


def part(file: TfliteFile, inputs: Mapping[str, tuple[int, ...]], outputs: Collection[str]) -> bytes:
    """The operators that compute the named tensors from others, without signatures and metadata.

    ConversionError for names that no tensor has, or several.
    """
    model, path = decoded(file), file.path
    main = model["subgraphs"][0]
    tensors, producers = main["tensors"], _producers(main)
    named = _Names(path, tensors)
    ends = [named.index(name) for name in outputs]
    missing = next((name for name, t in zip(outputs, ends, strict=True) if t not in producers), None)
    if missing is not None:
        raise ConversionError(Reason("a tensor that an operator of the main subgraph computes", missing, file=str(path)))

    starts = {named.index(name): dims for name, dims in inputs.items()}
    for t, dims in starts.items():
        # What is computed for a tensor overrules what the file states.
        if len(dims) == len(listed(tensors[t].get("shape"))) and all(dims):
            tensors[t]["shape"] = np.asarray(dims, "<i4")
    excerpt(model, main, ends, starts)
    drop_unused(model)
    return encode(model)


def _producers(graph: Table) -> dict[int, int]:
    """Each computed tensor's operator."""
    return {int(t): k for k, operator in enumerate(graph["operators"]) for t in listed(operator["outputs"])}


def excerpt(model: Table, graph: Table, ends: Sequence[int], starts: Collection[int]) -> Excerpt[int]:
    """Make a file's tables those of the operators of a subgraph that compute tensors from others."""
    tensors, operators = graph["tensors"], graph["operators"]
    reads = [[t for t in listed(operator["inputs"]) if t >= 0] for operator in operators]
    found = cut(ends, starts, _producers(graph), reads, lambda t: is_constant(model, tensors[t]))
    chosen = [operators[k] for k in found.operators]
    calling = any(REFERRING in option for operator in chosen for option in operator.get("builtin_options") or {})
    if calling and graph is not model["subgraphs"][0]:
        raise ConversionError(Reason("operators of the main subgraph, where they call subgraphs", graph.get("name") or "another"))
    graph.update(operators=chosen, inputs=np.asarray(found.inputs, "<i4"), outputs=np.asarray(ends, "<i4"))
    if not calling:
        model["subgraphs"] = [graph]
    return found


class _Names:
    """Tensors of the main subgraph by name."""

    def __init__(self, path: Path, tensors: list[Mapping[str, Any]]) -> None:
        self._path = path
        self._indexes: dict[str, list[int]] = {}
        for k, tensor in enumerate(tensors):
            self._indexes.setdefault(tensor.get("name") or "", []).append(k)

    def index(self, name: str) -> int:
        found = self._indexes.get(name, [])
        if len(found) != 1:
            count = f"{len(found) or 'no'} tensor{'' if len(found) == 1 else 's'} named {name!r}"
            raise ConversionError(Reason("one tensor of each name at the part's ends", count, file=str(self._path)))
        return found[0]

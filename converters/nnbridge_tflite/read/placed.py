"""Where a file's names lie: a running interpreter points at them, which proves that it holds this file."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from nnbridge_tflite.read.flatbuffer import Decoder, Malformed, Span
from nnbridge_tflite.read.schema import Field, Kind, fields


def tensor_names(data: memoryview) -> tuple[tuple[Span | None, ...], ...] | None:
    """For each subgraph where the names of its tensors lie; None if the bytes are no TFLite file."""
    try:
        root = Decoder(data, _fields).root("Model")
        return tuple(tuple(tensor["name"] for tensor in subgraph["tensors"] or ()) for subgraph in root["subgraphs"] or ())
    except Malformed:
        return None


@cache
def _fields(table: str) -> tuple[Field, ...]:
    """The schema's fields as far as names are concerned, which are read as bytes."""
    known = {"Model": ("subgraphs",), "SubGraph": ("tensors",), "Tensor": ("name",)}
    return tuple(
        replace(field, kind=Kind.SCALARS, format="B", size=1) if table == "Tensor" else field
        for field in fields(table)
        if field.name in known.get(table, ())
    )

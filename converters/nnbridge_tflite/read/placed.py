"""Places of a file's names and constants in memory: a running interpreter points at them, which proves that it holds this
file."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from nnbridge.budget import WorkBudget
from nnbridge_tflite.read.flatbuffer import Decoder, Malformed, Span, Table
from nnbridge_tflite.read.schema import Field, Kind, fields

Placed = tuple[Span | None, Span | None]
"""A tensor's name and its constant data."""


def placed_tensors(data: memoryview, work: WorkBudget | None = None) -> tuple[tuple[Placed, ...], ...] | None:
    """For each subgraph where the names and constants of its tensors lie; None if the bytes are no TFLite file.

    ``work``: tables that may be decoded, where several places are tried.
    """
    try:
        root = Decoder(data, _fields, work=work).root("Model")
    except Malformed:
        return None
    buffers = root["buffers"] or ()
    return tuple(
        tuple((tensor["name"], _constant(buffers, tensor["buffer"])) for tensor in subgraph["tensors"] or ())
        for subgraph in root["subgraphs"] or ()
    )


def _constant(buffers: tuple[Table, ...], index: int) -> Span | None:
    """The bytes of a buffer inside the flatbuffer."""
    span: Span | None = buffers[index]["data"] if index < len(buffers) else None
    return span if span is not None and span.length else None


@cache
def _fields(table: str) -> tuple[Field, ...]:
    """The schema's fields as far as places are concerned; names are read as bytes."""
    known = {"Model": ("subgraphs", "buffers"), "SubGraph": ("tensors",), "Tensor": ("name", "buffer"), "Buffer": ("data",)}
    return tuple(
        replace(field, kind=Kind.SCALARS, format="B", size=1) if field.name == "name" else field
        for field in fields(table)
        if field.name in known.get(table, ())
    )

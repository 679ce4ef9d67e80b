"""Writes TFLite files: tables packed by the schema that the importer reads.

A model is what :class:`~nnbridge_tflite.read.flatbuffer.Decoder` reads: nested dictionaries, field name → value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flatbuffers
import numpy as np

from nnbridge.converters.edits import Chunk
from nnbridge.storage.flatbuffer import write_offsets
from nnbridge_tflite.read.schema import Field, Kind, enum_names, fields


def pack(builder: flatbuffers.Builder, table: str, values: Mapping[str, Any]) -> int:
    """Write a table and what it refers to; its offset."""
    declared = fields(table)
    children = {
        f.slot: _child(builder, f, values) for f in declared if f.kind is not Kind.SCALAR and values.get(f.name) is not None
    }
    builder.StartObject(max((f.slot for f in declared), default=2) // 2 - 1)
    for f in sorted(declared, key=lambda f: -f.size):
        index = f.slot // 2 - 2
        if f.slot in children:
            builder.PrependUOffsetTRelativeSlot(index, children[f.slot], 0)
        elif f.kind is Kind.SCALAR and f.name in values:
            _SCALARS[f.format](builder)(index, values[f.name], f.default)
    return int(builder.EndObject())


_SCALARS: dict[str, Any] = {
    "?": lambda b: b.PrependBoolSlot,
    "b": lambda b: b.PrependInt8Slot,
    "B": lambda b: b.PrependUint8Slot,
    "h": lambda b: b.PrependInt16Slot,
    "H": lambda b: b.PrependUint16Slot,
    "d": lambda b: b.PrependFloat64Slot,
    "i": lambda b: b.PrependInt32Slot,
    "I": lambda b: b.PrependUint32Slot,
    "q": lambda b: b.PrependInt64Slot,
    "Q": lambda b: b.PrependUint64Slot,
    "f": lambda b: b.PrependFloat32Slot,
}


def _child(builder: flatbuffers.Builder, f: Field, values: Mapping[str, Any]) -> int:
    value = values[f.name]
    if f.kind is Kind.STRING:
        return int(builder.CreateString(value))
    if f.kind is Kind.SCALARS:
        return _numbers(builder, np.asarray(value, np.dtype("<" + f.format)))
    if f.kind is Kind.TABLE:
        return pack(builder, f.target, value)
    if f.kind is Kind.UNION:
        return pack(builder, enum_names(f.target)[values[f.name + "_type"]], value)
    make = builder.CreateString if f.kind is Kind.STRINGS else lambda v: pack(builder, f.target, v)
    return write_offsets(builder, [make(v) for v in value])


def _numbers(builder: flatbuffers.Builder, array: np.ndarray[Any, Any]) -> int:
    # Like real files: every vector of bytes starts at a multiple of 16.
    builder.StartVector(array.itemsize, array.size, 16 if array.itemsize == 1 else array.itemsize)
    builder.head -= array.nbytes
    builder.Bytes[builder.Head() : builder.Head() + array.nbytes] = array.tobytes()
    return int(builder.EndVector())


def encode(model: Mapping[str, Any]) -> bytes:
    """A file's bytes."""
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(pack(builder, "Model", model), b"TFL3")
    return bytes(builder.Output())


def in_pieces(model: Mapping[str, Any]) -> list[Chunk]:
    """A file's bytes where it is too large for one flatbuffer: weights are after the tables, as views of where they are."""
    large = [k for k, buffer in enumerate(model["buffers"]) if buffer.get("data") is not None and len(buffer["data"]) > _SMALL]

    def tables(first: int) -> tuple[bytes, list[Chunk]]:
        buffers, pieces, end = list(model["buffers"]), list[Chunk](), first
        for k in large:
            data = np.ascontiguousarray(buffers[k]["data"]).data
            buffers[k] = {"offset": end, "size": len(data)}
            gap = -(end + len(data)) % _ALIGNED
            pieces += [data, bytes(gap)]
            end += len(data) + gap
        return encode({**model, "buffers": buffers}), pieces

    # Offsets have a size of their own in the tables, whatever they are.
    length = len(tables(_ALIGNED)[0])
    first = length + -length % _ALIGNED
    head, pieces = tables(first)
    return [head, bytes(first - length), *pieces]


_ALIGNED = 16
_SMALL = 4096
"""Bytes up to which buffers are in the tables."""

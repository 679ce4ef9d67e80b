"""FlatBuffers by schema: writing plain values, and reading them back with every offset checked.

The ``flatbuffers`` package has no verifier in Python, and generated readers follow whatever offset a file holds. This
reader takes the ``.fbs`` schema itself (tables of scalars, strings, tables and vectors of these: what nnbridge's own
format needs), checks each offset and length against the file before it follows it, and limits depth and total work.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import flatbuffers
import numpy as np
from flatbuffers.table import Table

from nnbridge.budget import WorkBudget
from nnbridge.errors import ConversionError, Reason
from nnbridge.records import dataclass

_SCALARS: dict[str, tuple[str, int, str]] = {
    "bool": ("?", 1, "Bool"),
    "ubyte": ("B", 1, "Uint8"),
    "byte": ("b", 1, "Int8"),
    "ushort": ("H", 2, "Uint16"),
    "short": ("h", 2, "Int16"),
    "uint": ("I", 4, "Uint32"),
    "int": ("i", 4, "Int32"),
    "float": ("f", 4, "Float32"),
    "ulong": ("Q", 8, "Uint64"),
    "long": ("q", 8, "Int64"),
    "double": ("d", 8, "Float64"),
}
"""Scalar of the schema → its code of ``struct``, its size, its name in the builder's methods."""
_MAX_DEPTH = 16


@dataclass(frozen=True)
class Schema:
    """Tables with their fields in order, the root table and the file identifier."""

    tables: Mapping[str, tuple[tuple[str, str], ...]]
    root: str
    identifier: bytes
    """Empty for formats without one."""


def parse_schema(text: str) -> Schema:
    """Read the subset of the FlatBuffers schema language that nnbridge uses."""
    text = re.sub(r"//[^\n]*", "", text)
    tables = {
        name: tuple((field, kind) for field, kind in re.findall(r"(\w+)\s*:\s*(\[?\w+\]?)", body))
        for name, body in re.findall(r"table\s+(\w+)\s*\{([^}]*)\}", text)
    }
    root = re.search(r"root_type\s+(\w+)\s*;", text)
    identifier = re.search(r'file_identifier\s+"(.{4})"\s*;', text)
    assert root is not None, "a schema needs a root type"
    return Schema(tables, root[1], b"" if identifier is None else identifier[1].encode())


# -- writing ---------------------------------------------------------------------------------------------------------


def write(schema: Schema, values: Mapping[str, Any]) -> bytearray:
    """A FlatBuffer of the root table; absent fields and None are left out. :func:`put` can still change its scalars."""
    builder = flatbuffers.Builder(1024)
    builder.ForceDefaults(True)
    root = _write_table(schema, builder, schema.root, values)
    builder.Finish(root, file_identifier=schema.identifier or None)
    return bytearray(builder.Output())


def put(schema: Schema, data: bytearray, field: str, value: float) -> None:
    """Change a scalar of the root table that was written."""
    fields = schema.tables[schema.root]
    slot, kind = next((slot, kind) for slot, (name, kind) in enumerate(fields) if name == field)
    table = Table(data, int(struct.unpack_from("<I", data)[0]))
    struct.pack_into("<" + _SCALARS[kind][0], data, table.Pos + table.Offset(4 + 2 * slot), value)


def _write_table(schema: Schema, builder: Any, table: str, values: Mapping[str, Any]) -> int:
    fields = schema.tables[table]
    offsets = {
        name: _write_value(schema, builder, kind, values[name])
        for name, kind in fields
        if kind not in _SCALARS and values.get(name) is not None
    }
    builder.StartObject(len(fields))
    for slot, (name, kind) in enumerate(fields):
        if name in offsets:
            builder.PrependUOffsetTRelativeSlot(slot, offsets[name], 0)
        elif kind in _SCALARS and values.get(name) is not None:
            getattr(builder, f"Prepend{_SCALARS[kind][2]}Slot")(slot, values[name], 0)
    return int(builder.EndObject())


def _write_value(schema: Schema, builder: Any, kind: str, value: Any) -> int:
    if kind == "string":
        # Names that come from paths may hold bytes that are no UTF-8.
        return int(builder.CreateString(value, errors="backslashreplace"))
    if not kind.startswith("["):
        return _write_table(schema, builder, kind, value)
    element = kind[1:-1]
    if element in _SCALARS:
        code = _SCALARS[element][0]
        array = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else np.asarray(value, np.dtype(code))
        return int(builder.CreateNumpyVector(array))
    return write_offsets(builder, [_write_value(schema, builder, element, item) for item in value])


def write_offsets(builder: Any, offsets: Sequence[int]) -> int:
    """A vector of strings or tables that have been written."""
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


# -- reading ---------------------------------------------------------------------------------------------------------


def read(schema: Schema, data: memoryview, source: str, version: int | None = None) -> dict[str, Any]:
    """The root table as plain values: scalars, strings, bytes for vectors of ubyte, lists, dicts.

    Absent fields get 0, "", empty or None (tables). ConversionError names the source and the field for anything that
    is not inside ``data``, for a wrong identifier, for another ``version`` than the one required, if there is one, and for
    files that repeat parts beyond their size.
    """
    reader = _TableReader(schema, data, source)
    reader.need(0, 8, "the header")
    if schema.identifier and bytes(data[4:8]) != schema.identifier:
        reader.fail(f"the identifier {schema.identifier!r}", repr(bytes(data[4:8])), "the header")
    values = reader.table(schema.root, reader.uint(0, "the root table"), schema.root, 0)
    if version is not None and values["version"] != version:
        raise ConversionError(Reason(f"format version {version}", str(values["version"]), file=source))
    return values


class _TableReader:
    def __init__(self, schema: Schema, data: memoryview, source: str) -> None:
        self._schema = schema
        self._data = data

        def refused(rule: str, found: str, place: str) -> ConversionError:
            # No method: a cycle with the budgets would keep the memory, and its descriptor, until a collection.
            return ConversionError(Reason(rule, found, operand=place, file=source))

        self._refused = refused
        # Tables may share parts, but an honest file never reads much more than it holds.
        self._bytes_left = WorkBudget(4 * len(data) + 4096, "bytes of parts, those that are repeated each time", refused)
        self._tables_left = WorkBudget(len(data) // 16 + 4096, "tables, those that are repeated each time", refused)

    def fail(self, rule: str, found: str, place: str) -> NoReturn:
        raise self._refused(rule, found, place)

    def need(self, at: int, size: int, place: str) -> None:
        if at < 0 or at + size > len(self._data):
            self.fail(f"{size} bytes inside the file's {len(self._data)}", f"offset {at}", place)
        self._bytes_left.spend(max(size, 1), place)

    def uint(self, at: int, place: str) -> int:
        self.need(at, 4, place)
        return int(struct.unpack_from("<I", self._data, at)[0])

    def table(self, name: str, at: int, place: str, depth: int) -> dict[str, Any]:
        if depth > _MAX_DEPTH:
            self.fail(f"at most {_MAX_DEPTH} nested tables", "more", place)
        self._tables_left.spend(place=place)
        self.need(at, 4, place)
        vtable = at - int(struct.unpack_from("<i", self._data, at)[0])
        self.need(vtable, 4, place)
        vtable_size, table_size = struct.unpack_from("<HH", self._data, vtable)
        self.need(vtable, max(vtable_size, 4), place)
        self.need(at, table_size, place)
        values: dict[str, Any] = {}
        for slot, (field, kind) in enumerate(self._schema.tables[name]):
            entry = 4 + 2 * slot
            relative = 0
            if entry + 2 <= vtable_size:
                relative = struct.unpack_from("<H", self._data, vtable + entry)[0]
            if relative == 0:
                values[field] = _absent(kind)
                continue
            size = _SCALARS[kind][1] if kind in _SCALARS else 4
            if relative + size > table_size:
                self.fail(f"a field inside its table of {table_size} bytes", str(relative), f"{place}.{field}")
            values[field] = self._value(kind, at + relative, f"{place}.{field}", depth)
        return values

    def _value(self, kind: str, at: int, place: str, depth: int) -> Any:
        if kind in _SCALARS:
            code, size, _ = _SCALARS[kind]
            self.need(at, size, place)
            return struct.unpack_from("<" + code, self._data, at)[0]
        target = at + self.uint(at, place)
        if kind == "string":
            raw = self._bytes(target, 1, place)
            try:
                return bytes(raw).decode()
            except UnicodeDecodeError:
                self.fail("UTF-8 text", repr(bytes(raw[:16])), place)
        if not kind.startswith("["):
            return self.table(kind, target, place, depth + 1)
        element = kind[1:-1]
        if element in _SCALARS:
            code, size, _ = _SCALARS[element]
            raw = self._bytes(target, size, place)
            return bytes(raw) if element == "ubyte" else np.frombuffer(raw, np.dtype(code).newbyteorder("<")).tolist()
        count = len(self._bytes(target, 4, place)) // 4
        return [self._value(element, target + 4 + 4 * i, f"{place}[{i}]", depth + 1) for i in range(count)]

    def _bytes(self, at: int, size: int, place: str) -> memoryview:
        count = self.uint(at, place)
        self.need(at + 4, count * size, place)
        return self._data[at + 4 : at + 4 + count * size]


def _absent(kind: str) -> Any:
    if kind in _SCALARS:
        return False if kind == "bool" else 0
    if kind == "string":
        return ""
    if kind == "[ubyte]":
        return b""
    return [] if kind.startswith("[") else None

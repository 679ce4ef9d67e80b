"""Decodes FlatBuffers tables into plain Python values, checking every offset before it is followed.

The work and memory of one file are bounded: a table or vector that many offsets point at is decoded once, and the number of
tables and vector elements has a ceiling that no real model comes near.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nnbridge_tflite.read.schema import Field, Kind, enum_names, fields

MAX_TABLES = 200_000
MAX_ELEMENTS = 4_000_000

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_SCALARS = {letter: struct.Struct("<" + letter) for letter in "?bBhHiIqQfd"}

Table = dict[str, Any]


class Span(NamedTuple):
    """Bytes of the file."""

    offset: int
    length: int


class Malformed(Exception):
    """The bytes are not what the schema says."""

    def __init__(self, rule: str, found: object) -> None:
        super().__init__(rule)
        self.rule = rule
        self.found = str(found)
        self.path: list[str] = []

    @property
    def place(self) -> str:
        """Where in the tree of tables, such as ``subgraphs[0].tensors[3].shape``."""
        return ".".join(self.path).replace(".[", "[") or "root"


@dataclass(slots=True)
class Budget:
    """What may still be decoded."""

    tables: int = MAX_TABLES
    elements: int = MAX_ELEMENTS


class Decoder:
    """Decodes one buffer by a schema: the fields of a table, and the members of a union's enumeration."""

    def __init__(
        self,
        data: memoryview,
        fields: Callable[[str], tuple[Field, ...]] = fields,
        members: Callable[[str], Mapping[int, str]] = enum_names,
    ) -> None:
        self._data = data
        self._fields = fields
        self._members = members
        self._size = len(data)
        self._budget = Budget()
        self._tables: dict[tuple[str, int], Table] = {}
        self._vectors: dict[tuple[Field, int], Any] = {}
        self._layouts: dict[str, tuple[dict[int, Field], Table]] = {}
        self._vtables: dict[int, list[tuple[int, int]]] = {}
        self._of_kind = {
            Kind.STRING: self._string,
            Kind.SCALARS: self._scalars,
            Kind.STRINGS: self._strings,
            Kind.TABLES: self._vector_of_tables,
        }

    def root(self, table: str) -> Table:
        """The root table."""
        return self.table(table, self._u32(0))

    def table(self, name: str, at: int) -> Table:
        """The table of class ``name`` at a position: field name → value; unknown fields are passed over."""
        known = self._tables.get((name, at))
        if known is not None:
            return known
        self._budget.tables -= 1
        if self._budget.tables < 0:
            raise Malformed(f"at most {MAX_TABLES} tables", "more")
        present, (declared, defaults) = self._vtable(at), self._layout(name)
        values: Table = defaults.copy()
        for slot, offset in present:
            field = declared.get(slot)
            if field is None:
                continue
            try:
                place = at + offset
                # Some writers understate the size of a table, so the end of the file is what counts.
                if place + field.size > self._size:
                    raise Malformed(f"a field inside {self._size} bytes", f"byte {place}")
                values[field.name] = self._value(field, place, values)
            except Malformed as error:
                error.path.insert(0, field.name)
                raise
        self._tables[name, at] = values
        return values

    def _layout(self, name: str) -> tuple[dict[int, Field], Table]:
        """A table's fields by slot, and what they hold where they are absent."""
        found = self._layouts.get(name)
        if found is None:
            listed = self._fields(name)
            found = self._layouts[name] = {f.slot: f for f in listed}, {f.name: f.default for f in listed}
        return found

    def _vtable(self, at: int) -> list[tuple[int, int]]:
        """The slots of a table's present fields and their offsets."""
        if at + 4 > self._size:
            raise Malformed(f"a table inside {self._size} bytes", f"byte {at}")
        vtable = at - _I32.unpack_from(self._data, at)[0]
        found = self._vtables.get(vtable)
        if found is None:
            if not 0 <= vtable <= self._size - 4:
                raise Malformed(f"a vtable inside {self._size} bytes", f"byte {vtable}")
            length = _U16.unpack_from(self._data, vtable)[0]
            if length < 4 or length % 2 or vtable + length > self._size:
                raise Malformed("a vtable of even length inside the file", f"{length} bytes at byte {vtable}")
            words = struct.unpack_from(f"<{length // 2}H", self._data, vtable)
            found = self._vtables[vtable] = [(2 * i, offset) for i, offset in enumerate(words) if offset and i > 1]
        return found

    def _value(self, field: Field, place: int, values: Table) -> Any:
        if field.kind is Kind.SCALAR:
            return _SCALARS[field.format].unpack_from(self._data, place)[0]
        target = place + self._u32(place)
        if field.kind is Kind.UNION:
            return self._union(field, target, values)
        if field.kind is Kind.TABLE:
            return self.table(field.target, target)
        return self._of_kind[field.kind](field, target)

    def _union(self, field: Field, target: int, values: Table) -> Table | None:
        member = self._members(field.target).get(values.get(f"{field.name}_type") or 0, "")
        # A member that this version of the schema does not know is ignored like any newer field.
        return None if member in ("", "NONE") else self.table(member, target)

    def _string(self, _field: Field, target: int) -> str:
        length = self._length(target, 1)
        self._spend(length)
        return bytes(self._data[target + 4 : target + 4 + length]).decode("utf-8", "replace")

    def _scalars(self, field: Field, target: int) -> Span | npt.NDArray[Any]:
        """Bytes as a :class:`Span`, other scalars as a read-only view of the file."""
        length = self._length(target, field.size)
        if field.format == "B":
            return Span(target + 4, length)
        return np.frombuffer(self._data, np.dtype("<" + field.format), length, target + 4)

    def _strings(self, field: Field, target: int) -> tuple[str, ...]:
        return self._elements(field, target, lambda at: self._string(field, at))

    def _vector_of_tables(self, field: Field, target: int) -> tuple[Table, ...]:
        return self._elements(field, target, lambda at: self.table(field.target, at))

    def _elements(self, field: Field, target: int, decode: Any) -> tuple[Any, ...]:
        known = self._vectors.get((field, target))
        if known is not None:
            return known
        length = self._length(target, 4)
        self._spend(length)
        offsets = struct.unpack_from(f"<{length}I", self._data, target + 4)
        found = []
        for i, offset in enumerate(offsets):
            try:
                found.append(decode(target + 4 + 4 * i + offset))
            except Malformed as error:
                error.path.insert(0, f"[{i}]")
                raise
        self._vectors[field, target] = tuple(found)
        return self._vectors[field, target]

    def _length(self, target: int, size: int) -> int:
        length = self._u32(target)
        if target + 4 + length * size > self._size:
            raise Malformed(f"a vector inside {self._size} bytes", f"{length} elements of {size} bytes at byte {target}")
        return length

    def _u32(self, at: int) -> int:
        if at + 4 > self._size:
            raise Malformed(f"an offset inside {self._size} bytes", f"byte {at}")
        return int(_U32.unpack_from(self._data, at)[0])

    def _spend(self, elements: int) -> None:
        self._budget.elements -= elements
        if self._budget.elements < 0:
            raise Malformed(f"at most {MAX_ELEMENTS} elements in vectors and strings", "more")

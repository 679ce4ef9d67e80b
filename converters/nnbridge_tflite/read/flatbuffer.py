"""Decodes FlatBuffers tables into plain Python values, checking every offset before it is followed.

The work and memory of one file are bounded: a table or vector that many offsets point at is decoded once, and the number of
tables and vector elements has a ceiling that no real model comes near.

What can be decoded may be refused by FlatBuffers' own verifier (``flatbuffers/verifier.h``), which TFLite asks first: it requires
aligned numbers, strings that end with a zero byte, and offsets that lead somewhere else. :func:`refused_by_verifier` finds it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nnbridge.budget import WorkBudget
from nnbridge.records import dataclass
from nnbridge_tflite.read.schema import Field, Kind, enum_names, fields

MAX_TABLES = 200_000
MAX_ELEMENTS = 4_000_000
_ELEMENTS_OF_TABLE = 16
"""Elements of a vector that take as long as a table."""

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")

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
        """The place in the tree of tables, such as ``subgraphs[0].tensors[3].shape``."""
        return ".".join(self.path).replace(".[", "[") or "root"


def malformed(rule: str, found: str, _: str) -> Malformed:
    """The error of a budget."""
    return Malformed(rule, found)


@dataclass(frozen=True, slots=True)
class _Reading:
    """The reader of all tables of one class with one vtable: every scalar and offset by few calls of ``struct``."""

    size: int
    """Bytes from the table's position to the end of its last field."""
    parts: tuple[tuple[Callable[[memoryview, int], tuple[Any, ...]], tuple[str, ...]], ...]
    """What reads fields that do not overlap, in order of their offsets, and their names. Most tables have one part."""
    offsets: tuple[tuple[str, int, Callable[[int, Table], Any]], ...]
    """Names of fields that stand elsewhere, where the table holds an offset to them, and what reads them, in order of slots."""
    defaults: Table
    """What the fields hold where they are absent."""
    alignment: tuple[int, int]
    """The table is aligned if its position plus the first of these is a multiple of the second; never if that is 0."""


class _Layout(NamedTuple):
    """The common properties of all files with a vtable of these words; see :class:`_Reading`."""

    size: int
    parts: tuple[tuple[struct.Struct, tuple[str, ...]], ...]
    elsewhere: Sequence[tuple[Field, int]]
    defaults: Table
    alignment: tuple[int, int]


@lru_cache(maxsize=1024)
def _layout(fields: Callable[[str], tuple[Field, ...]], name: str, words: tuple[int, ...]) -> _Layout:
    """The declared fields that a vtable lists, and what they hold where they are absent."""
    declared = {field.slot: field for field in fields(name)}
    present = [(declared[2 * i], offset) for i, offset in enumerate(words) if offset and 2 * i in declared]
    parts: list[tuple[struct.Struct, tuple[str, ...]]] = []
    rest = sorted(present, key=lambda entry: entry[1])
    while rest:
        format, names, end, overlapping = "<", [], 0, []
        for field, offset in rest:
            if offset < end:
                overlapping.append((field, offset))
                continue
            format += f"{offset - end}x{field.format if field.kind is Kind.SCALAR else 'I'}"
            names.append(field.name)
            end = offset + (field.size if field.kind is Kind.SCALAR else 4)
        parts.append((struct.Struct(format), tuple(names)))
        rest = overlapping
    size = max((part.size for part, _ in parts), default=4)
    elsewhere = [(field, offset) for field, offset in present if field.kind is not Kind.SCALAR]
    defaults = {field.name: field.default for field in declared.values()}
    sizes = [(offset, field.size if field.kind is Kind.SCALAR else 4) for field, offset in present]
    return _Layout(size, tuple(parts), elsewhere, defaults, _alignment(sizes))


def _alignment(fields: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The alignment of a table with fields of these offsets and sizes: see :class:`_Reading`."""
    shift, unit = max(((offset, size) for offset, size in fields if size == 8), default=(0, 4))
    agree = all((offset - shift if size == 8 else offset) % size == 0 for offset, size in fields)
    return (shift, unit) if agree and shift % 4 == 0 else (0, 0)


class Decoder:
    """Decodes one buffer by a schema: the fields of a table, and the members of a union's enumeration.

    ``work``: a budget of tables that several decoders spend from together. ``strict``: Malformed for what FlatBuffers' verifier
    refuses, too, where :attr:`irregular` is only set otherwise.
    """

    def __init__(
        self,
        data: memoryview,
        fields: Callable[[str], tuple[Field, ...]] = fields,
        members: Callable[[str], Mapping[int, str]] = enum_names,
        work: WorkBudget | None = None,
        *,
        strict: bool = False,
    ) -> None:
        self._data = data
        self._strict = strict
        self.irregular = False
        self._fields = fields
        self._members = members
        self._size = len(data)
        self._left = work or WorkBudget(MAX_TABLES, "tables", malformed)
        self._elements_left = WorkBudget(MAX_ELEMENTS, "elements in vectors and strings", malformed)
        self._tables: dict[tuple[str, int], Table] = {}
        self._vectors: dict[tuple[str, Kind, int], Any] = {}
        self._readings: dict[tuple[str, int], _Reading] = {}
        self._dtypes = {letter: np.dtype("<" + letter) for letter in "?bBhHiIqQfd"}

    def root(self, table: str) -> Table:
        """The root table."""
        try:
            return self.table(table, self._length(0, 0))
        finally:
            # What refers to the decoder itself would keep all tables until Python looks for cycles.
            self._readings.clear()

    def table(self, name: str, at: int) -> Table:
        """The table of class ``name`` at a position: field name → value; unknown fields are passed over."""
        known = self._tables.get((name, at))
        if known is not None:
            return known
        self._left.spend()
        if at + 4 > self._size:
            raise Malformed(f"a table inside {self._size} bytes", f"byte {at}")
        vtable = at - _I32.unpack_from(self._data, at)[0]
        reading = self._readings.get((name, vtable))
        if reading is None:
            reading = self._readings[name, vtable] = self._reading(name, vtable)
        shift, unit = reading.alignment
        if not unit or (at + shift) % unit:
            self._refuse("a table whose numbers are aligned", f"byte {at}")
        # Some writers understate the size of a table, so the end of the file is what counts.
        if at + reading.size > self._size:
            raise Malformed(f"a table of {reading.size} bytes inside {self._size} bytes", f"byte {at}")
        values = reading.defaults.copy()
        for unpack, names in reading.parts:
            values.update(zip(names, unpack(self._data, at)))  # noqa: B905 - as many as there are; checking takes its time
        for field, offset, elsewhere in reading.offsets:
            try:
                if not values[field]:
                    self._refuse("an offset that leads elsewhere", "0")
                values[field] = elsewhere(at + offset + values[field], values)
            except Malformed as error:
                error.path.insert(0, field)
                raise
        self._tables[name, at] = values
        return values

    def _reading(self, name: str, vtable: int) -> _Reading:
        """The declared fields that a vtable lists."""
        if not 0 <= vtable <= self._size - 4:
            raise Malformed(f"a vtable inside {self._size} bytes", f"byte {vtable}")
        length = _U16.unpack_from(self._data, vtable)[0]
        if length < 4 or length % 2 or vtable + length > self._size:
            raise Malformed("a vtable of even length inside the file", f"{length} bytes at byte {vtable}")
        # A hostile file may have long vtables that overlap; what comes after the last declared field is not read.
        count = min(length, max([field.slot for field in self._fields(name)], default=0) + 2) // 2
        layout = _layout(self._fields, name, struct.unpack_from(f"<{count}H", self._data, vtable))
        offsets = tuple([(field.name, offset, self._reader(field)) for field, offset in layout.elsewhere])
        parts = tuple([(part.unpack_from, names) for part, names in layout.parts])
        return _Reading(layout.size, parts, offsets, layout.defaults, (0, 0) if vtable % 2 else layout.alignment)

    def _refuse(self, rule: str, found: str) -> None:
        """Note what FlatBuffers' verifier refuses and this decoder reads."""
        if self._strict:
            raise Malformed(rule, found)
        self.irregular = True

    def _reader(self, field: Field) -> Callable[[int, Table], Any]:
        """The reader of a field at the place that an offset leads to; the other fields of its table name a union's class."""
        if field.kind is Kind.SCALARS:
            return self._span if field.format == "B" else self._scalars(field)
        if field.kind is Kind.TABLE:
            return lambda target, _: self.table(field.target, target)
        if field.kind is Kind.STRING:
            return self._string
        if field.kind is Kind.UNION:
            return lambda target, values: self._union(field, target, values)
        return lambda target, _: self._elements(field, target)

    def _union(self, field: Field, target: int, values: Table) -> Table | None:
        member = self._members(field.target).get(values.get(f"{field.name}_type") or 0, "")
        # A member that this version of the schema does not know is ignored like any newer field.
        return None if member in ("", "NONE") else self.table(member, target)

    def _string(self, target: int, _: Table | None = None) -> str:
        length = self._length(target, 1)
        self._elements_left.spend(length)
        end = target + 4 + length
        if end >= self._size or self._data[end]:
            self._refuse("a zero byte after a string", f"{self._data[end]}" if end < self._size else "the end of the file")
        return str(self._data[target + 4 : target + 4 + length], "utf-8", "replace")

    def _span(self, target: int, _: Table) -> Span:
        """Bytes."""
        return Span(target + 4, self._length(target, 1))

    def _scalars(self, field: Field) -> Callable[[int, Table], npt.NDArray[Any]]:
        """Other scalars as a read-only view of the file."""
        data, dtype, size, last, length_of = self._data, self._dtypes[field.format], field.size, self._size - 4, self._length

        def scalars(target: int, _: Table) -> npt.NDArray[Any]:
            # There are thousands: what is inside the file is seen without a call.
            length = _U32.unpack_from(data, target)[0] if target <= last else -1
            if length < 0 or target + length * size > last or target % 4:
                length = length_of(target, size)
            return np.frombuffer(data, dtype, length, target + 4)

        return scalars

    def _elements(self, field: Field, target: int) -> tuple[Any, ...]:
        """A vector of strings or tables."""
        key = (field.target, field.kind, target)
        known = self._vectors.get(key)
        if known is not None:
            return known
        length = self._length(target, 4)
        self._elements_left.spend(length)
        self._left.spend(length // _ELEMENTS_OF_TABLE)
        found: list[Any] = []
        for i, offset in enumerate(struct.unpack_from(f"<{length}I", self._data, target + 4)):
            at = target + 4 + 4 * i + offset
            try:
                found.append(self.table(field.target, at) if field.kind is Kind.TABLES else self._string(at))
            except Malformed as error:
                error.path.insert(0, f"[{i}]")
                raise
        self._vectors[key] = tuple(found)
        return self._vectors[key]

    def _length(self, target: int, size: int) -> int:
        """The number before a vector's elements."""
        try:
            length: int = _U32.unpack_from(self._data, target)[0]
        except struct.error:
            raise Malformed(f"an offset inside {self._size} bytes", f"byte {target}") from None
        if target % 4:
            self._refuse("an aligned offset, vector or string", f"byte {target}")
        if target + 4 + length * size > self._size:
            raise Malformed(f"a vector inside {self._size} bytes", f"{length} elements of {size} bytes at byte {target}")
        return length


def refused_by_verifier(data: memoryview, root: str) -> Malformed | None:
    """The first thing that FlatBuffers' verifier refuses of a buffer that can be read, which is read again; None for none."""
    try:
        Decoder(data, strict=True).root(root)
    except Malformed as error:
        return error
    return None

"""Write converters/nnbridge_tflite/read/schema.json: the TFLite schema, worked out from the ``tflite`` package's classes.

python scripts/documentation/make_schema.py           write the file
python scripts/documentation/make_schema.py --check   exit with 1 if it is not up to date

Each accessor is called once on a recording table: its calls state the field's slot, kind, element type, default and, for
sub-tables, their class. Nothing of the schema is written down here but which enumeration names the members of a union, so a newer
``tflite`` package brings newer fields and options along. Importing the package takes 31 ms, a tenth of ``nnbridge inspect``:
it has a module for each table.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from flatbuffers import number_types
from script_support import REPOSITORY, write_or_check

from nnbridge_tflite.read.schema import UNION_ENUMS, Field, Kind

TARGET = REPOSITORY / "converters" / "nnbridge_tflite" / "read" / "schema.json"
_NOT_FIELDS = re.compile(r"Init|GetRootAs.*|.*BufferHasIdentifier|.+(AsNumpy|Length|IsNone)")
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class _Recorder:
    """Replacement for a FlatBuffers table; remembers what an accessor asks of it first.

    First, because an accessor may fall back on another field: ``builtin_code`` does, on its deprecated predecessor.
    """

    Pos = 0

    def __init__(self, present: bool) -> None:
        self.Bytes = bytearray(64)
        self.present = present
        self.slot = 0
        self.flags: Any = None
        self.string = self.vector = self.union = False

    def Offset(self, slot: int) -> int:
        self.slot = self.slot or slot
        return slot if self.present else 0

    def Get(self, flags: Any, _at: int) -> int:
        self.flags = self.flags or flags
        return 0

    def String(self, _at: int) -> bytes:
        self.string = True
        return b""

    def Vector(self, _at: int) -> int:
        self.vector = True
        return 0

    def Indirect(self, at: int) -> int:
        return at

    def Union(self, _table: Any, _at: int) -> None:
        self.union = True


_NEWER_TABLES = {
    "BlockwiseQuantization": tuple(
        Field(name, 4 + 2 * i, Kind.SCALAR, "i", default=0) for i, name in enumerate(("scales", "zero_points", "block_size"))
    )
}
_NEWER_MEMBERS = {"QuantizationDetails": {"BlockwiseQuantization": 2}}
"""What the schema has that a ``tflite`` package may lack."""


def classes() -> Iterator[type]:
    """The classes of the package: tables and enumerations."""
    import tflite  # Only developers have it; the script's help needs it not.

    found = (getattr(tflite, name) for name in sorted(vars(tflite)))
    yield from (one for one in found if isinstance(one, type) and one.__module__ == f"tflite.{one.__name__}")


def fields(table: type) -> list[Field]:
    """The fields of a table's class, in order of their slots."""
    accessors = [name for name, member in vars(table).items() if isinstance(member, FunctionType)]
    found = [_field(table, name) for name in accessors if not _NOT_FIELDS.fullmatch(name)]
    return sorted(found, key=lambda field: field.slot)


def _field(cls: type, accessor: str) -> Field:
    indexed = getattr(cls, accessor).__code__.co_argcount == 2
    record, accessed = _ask(cls, accessor, indexed, present=True)
    name = _snake(accessor)
    if record.union:
        return Field(name, record.slot, Kind.UNION, target=UNION_ENUMS[name])
    if record.string:
        return Field(name, record.slot, Kind.STRINGS if record.vector else Kind.STRING)
    if record.flags is None:
        return Field(name, record.slot, Kind.TABLES if record.vector else Kind.TABLE, target=type(accessed).__name__)
    flags = record.flags
    letter = "?" if flags is number_types.BoolFlags else flags.packer_type.format.lstrip("<")
    if record.vector:
        return Field(name, record.slot, Kind.SCALARS, letter, flags.bytewidth)
    _, default = _ask(cls, accessor, indexed, present=False)
    return Field(name, record.slot, Kind.SCALAR, letter, flags.bytewidth, default)


def _ask(cls: type, accessor: str, indexed: bool, *, present: bool) -> tuple[_Recorder, Any]:
    table: Any = cls()
    table._tab = record = _Recorder(present)
    return record, getattr(table, accessor)(*([0] if indexed else []))


def _snake(name: str) -> str:
    return _WORD.sub("_", name).lower()


def document() -> str:
    """The file's content: a line for each table and enumeration."""
    tables = {one.__name__: fields(one) for one in classes() if hasattr(one, "Init")} | _NEWER_TABLES
    enums = {one.__name__: _members(one) for one in classes() if one.__name__ not in tables}
    parts = {"tables": {name: [_row(field) for field in found] for name, found in tables.items()}, "enums": enums}
    return "{\n" + ",\n".join(f'"{name}": {{\n{_lines(part)}\n}}' for name, part in parts.items()) + "\n}\n"


def _members(enum: type) -> dict[str, int]:
    members = {name: value for name, value in vars(enum).items() if isinstance(value, int)}
    return {**members, **_NEWER_MEMBERS.get(enum.__name__, {})}


def _row(field: Field) -> list[Any]:
    """The field's values, without those at the end that are as usual."""
    values = [field.name, field.slot, field.kind.value, field.format, field.size, field.default, field.target]
    usual = ["", 4, None, ""]
    while len(values) > 3 and values[-1] == usual[len(values) - 4]:
        values.pop()
    return values


def _lines(part: Mapping[str, Any]) -> str:
    return ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in sorted(part.items()))


if __name__ == "__main__":
    write_or_check(TARGET, document)

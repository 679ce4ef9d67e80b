"""The TFLite schema, worked out from the ``tflite`` package's accessor classes.

Each accessor is called once on a recording table: its calls state the field's slot, kind, element type,
default and, for sub-tables, their class. Nothing of the schema is written down here but which enumeration names the members
of a union, so a newer ``tflite`` package brings newer fields and options along.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import cache
from importlib import import_module
from types import FunctionType
from typing import Any

import tflite
from flatbuffers import number_types

from nnbridge.records import dataclass

UNION_ENUMS = {
    "builtin_options": "BuiltinOptions",
    "builtin_options2": "BuiltinOptions2",
    "details": "QuantizationDetails",
    "array_segments": "SparseIndexVector",
    "array_indices": "SparseIndexVector",
}
"""Union field → the enumeration whose members are table names."""

_NOT_FIELDS = re.compile(r"Init|GetRootAs.*|.*BufferHasIdentifier|.+(AsNumpy|Length|IsNone)")
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Kind(Enum):
    """The kind of a field's value."""

    SCALAR = "scalar"
    STRING = "string"
    TABLE = "table"
    UNION = "union"
    SCALARS = "scalars"
    STRINGS = "strings"
    TABLES = "tables"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a table."""

    name: str
    slot: int
    """Offset in the vtable, in bytes."""
    kind: Kind
    format: str = ""
    """NumPy's and struct's letter of a scalar or of the elements of a vector of scalars."""
    size: int = 4
    """Bytes of one element as it lies in the table or vector; offsets have 4."""
    default: Any = None
    target: str = ""
    """Table class of sub-tables, enumeration of a union."""


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
_NEWER_MEMBERS = {"QuantizationDetails": {2: "BlockwiseQuantization"}}
"""What the schema has that a ``tflite`` package may lack."""


@cache
def fields(table: str) -> tuple[Field, ...]:
    """The fields of a table class of the ``tflite`` package, in order of their slots."""
    if not hasattr(tflite, table):
        return _NEWER_TABLES[table]
    cls = getattr(tflite, table)
    accessors = [name for name, member in vars(cls).items() if isinstance(member, FunctionType)]
    found = [_field(cls, name) for name in accessors if not _NOT_FIELDS.fullmatch(name)]
    return tuple(sorted(found, key=lambda field: field.slot))


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


@cache
def enum_names(enum: str) -> dict[int, str]:
    """Value → name of an enumeration of the ``tflite`` package."""
    members = vars(getattr(import_module(f"tflite.{enum}"), enum))
    return {**_NEWER_MEMBERS.get(enum, {}), **{value: name for name, value in members.items() if isinstance(value, int)}}


@cache
def builtin_names() -> dict[int, str]:
    """BuiltinOperator code → name."""
    return enum_names("BuiltinOperator")


@cache
def builtin_codes() -> dict[str, int]:
    """BuiltinOperator name → code."""
    return {name: code for code, name in builtin_names().items()}


_OPTIONS: dict[str, str] = {
    "ARG_MAX": "ArgMaxOptions",
    "ARG_MIN": "ArgMinOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "BATCH_MATMUL": "BatchMatMulOptions",
    "BIDIRECTIONAL_SEQUENCE_LSTM": "BidirectionalSequenceLSTMOptions",
    "BIDIRECTIONAL_SEQUENCE_RNN": "BidirectionalSequenceRNNOptions",
    "CONV_2D": "Conv2DOptions",
    "STABLEHLO_COMPOSITE": "StableHLOCompositeOptions",
    "CONV_3D": "Conv3DOptions",
    "CONV_3D_TRANSPOSE": "Conv3DOptions",
    "MULTINOMIAL": "RandomOptions",
    "RANDOM_STANDARD_NORMAL": "RandomOptions",
    "RANDOM_UNIFORM": "RandomOptions",
    "LSH_PROJECTION": "LSHProjectionOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    "L2_POOL_2D": "Pool2DOptions",
    "LSTM": "LSTMOptions",
    "MAXIMUM": "MaximumMinimumOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "MEAN": "ReducerOptions",
    "MINIMUM": "MaximumMinimumOptions",
    "PADV2": "PadV2Options",
    "REDUCE_ALL": "ReducerOptions",
    "REDUCE_ANY": "ReducerOptions",
    "REDUCE_MAX": "ReducerOptions",
    "REDUCE_MIN": "ReducerOptions",
    "REDUCE_PROD": "ReducerOptions",
    "REVERSE_V2": "ReverseV2Options",
    "RFFT2D": "Rfft2dOptions",
    "RNN": "RNNOptions",
    "SELECT_V2": "SelectV2Options",
    "SPLIT_V": "SplitVOptions",
    "SUM": "ReducerOptions",
    "SVDF": "SVDFOptions",
    "TOPK_V2": "TopKV2Options",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "UnidirectionalSequenceLSTMOptions",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNNOptions",
    "BATCH_TO_SPACE_ND": "BatchToSpaceNDOptions",
    "SPACE_TO_BATCH_ND": "SpaceToBatchNDOptions",
}
"""Operators whose options table is not named after them."""


@cache
def options_table(operator: str) -> str | None:
    """The options table of an operator, or None if it has none."""
    name = _OPTIONS.get(operator) or "".join(part.capitalize() for part in operator.split("_")) + "Options"
    return name if hasattr(tflite, name) else None

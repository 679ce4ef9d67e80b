"""The TFLite schema as data.

``schema.json`` has each table's fields and each enumeration's members; ``scripts/documentation/make_schema.py`` works them out
from the classes of the ``tflite`` package.
"""

from __future__ import annotations

import json
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from nnbridge.records import dataclass

UNION_ENUMS = {
    "builtin_options": "BuiltinOptions",
    "builtin_options2": "BuiltinOptions2",
    "details": "QuantizationDetails",
    "array_segments": "SparseIndexVector",
    "array_indices": "SparseIndexVector",
}
"""Union field → the enumeration whose members are table names."""


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


@cache
def _schema() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("schema.json").read_bytes())
    return found


@cache
def fields(table: str) -> tuple[Field, ...]:
    """The fields of a table, in order of their slots."""
    return tuple(Field(name, slot, Kind(kind), *others) for name, slot, kind, *others in _schema()["tables"][table])


@cache
def enum_names(enum: str) -> dict[int, str]:
    """Value → name of an enumeration."""
    return {value: name for name, value in _schema()["enums"][enum].items()}


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
    return name if name in _schema()["tables"] else None

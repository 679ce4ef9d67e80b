"""Makes TFLite files for tests: tables packed by the schema that the ``tflite`` package's classes carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import tflite

from nnbridge_tflite.read.schema import Field, Kind, builtin_codes, enum_names, fields

TYPES = {
    "float32": "FLOAT32",
    "float16": "FLOAT16",
    "int32": "INT32",
    "uint8": "UINT8",
    "int64": "INT64",
    "bool": "BOOL",
    "int16": "INT16",
    "complex64": "COMPLEX64",
    "int8": "INT8",
    "float64": "FLOAT64",
    "uint32": "UINT32",
    "uint64": "UINT64",
}

OPTIONS: dict[str, str] = {
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


def options_table(operator: str) -> str | None:
    """The options table of an operator, or None if it has none."""
    name = OPTIONS.get(operator) or "".join(part.capitalize() for part in operator.split("_")) + "Options"
    return name if hasattr(tflite, name) else None


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
    offsets = [make(v) for v in value]
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _numbers(builder: flatbuffers.Builder, array: np.ndarray[Any, Any]) -> int:
    # Like real files: every vector of bytes starts at a multiple of 16.
    builder.StartVector(array.itemsize, array.size, 16 if array.itemsize == 1 else array.itemsize)
    builder.head -= array.nbytes
    builder.Bytes[builder.Head() : builder.Head() + array.nbytes] = array.tobytes()
    return int(builder.EndVector())


@dataclass
class TfliteBuilder:
    """One subgraph, built up tensor by tensor; the first one may have others beside it."""

    tensors: list[dict[str, Any]] = field(default_factory=list)
    buffers: list[dict[str, Any]] = field(default_factory=lambda: [{}])
    codes: list[dict[str, Any]] = field(default_factory=list)
    operators: list[dict[str, Any]] = field(default_factory=list)
    others: list[dict[str, Any]] = field(default_factory=list)

    def beside(self) -> TfliteBuilder:
        """Another subgraph of the same file; :meth:`add` it when it is done."""
        return TfliteBuilder(buffers=self.buffers, codes=self.codes)

    def add(self, subgraph: TfliteBuilder, inputs: Sequence[int], outputs: Sequence[int]) -> int:
        """Put a finished subgraph beside this one; its index."""
        self.others.append(subgraph.graph(inputs, outputs, f"subgraph {len(self.others) + 1}"))
        return len(self.others)

    def tensor(
        self,
        shape: Sequence[int],
        type: str = "float32",
        *,
        scale: float | Sequence[float] = 0.0,
        zero_point: int | Sequence[int] = 0,
        axis: int = 0,
        name: str = "",
        **more: Any,
    ) -> int:
        """A computed tensor; its index."""
        made: dict[str, Any] = {"shape": list(shape), "type": tensor_type(type), "name": name or f"t{len(self.tensors)}", **more}
        scales = [scale] if isinstance(scale, (int, float)) else list(scale)
        if any(scales):
            points = [zero_point] * len(scales) if isinstance(zero_point, int) else list(zero_point)
            made["quantization"] = {"scale": scales, "zero_point": points, "quantized_dimension": axis}
        self.tensors.append(made)
        return len(self.tensors) - 1

    def constant(self, array: Any, dtype: str | None = None, **more: Any) -> int:
        """A constant tensor; its index."""
        value = np.asarray(array, dtype)
        self.buffers.append({"data": np.frombuffer(value.tobytes(), np.uint8)})
        return self.tensor(value.shape, value.dtype.name, buffer=len(self.buffers) - 1, **more)

    def operator(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: Mapping[str, Any] | None = None,
        version: int = 1,
        custom: bytes | None = None,
        **more: Any,
    ) -> None:
        """An operator; a name that is not a builtin's is a custom operator's."""
        code = builtin_codes().get(name, builtin_codes()["CUSTOM"])
        self.codes.append(
            {
                "builtin_code": code,
                "deprecated_builtin_code": min(code, 127),
                "version": version,
                **({} if name in builtin_codes() else {"custom_code": name}),
            }
        )
        made: dict[str, Any] = {"opcode_index": len(self.codes) - 1, "inputs": list(inputs), "outputs": list(outputs), **more}
        table = options_table(name)
        if table is not None and options is not None:
            first = {v: k for k, v in enum_names("BuiltinOptions").items()}
            field_name = "builtin_options" if table in first else "builtin_options2"
            codes = first if table in first else {v: k for k, v in enum_names("BuiltinOptions2").items()}
            made.update({f"{field_name}_type": codes[table], field_name: dict(options)})
        if custom is not None:
            made["custom_options"] = np.frombuffer(custom, np.uint8)
        self.operators.append(made)

    def graph(self, inputs: Sequence[int], outputs: Sequence[int], name: str) -> dict[str, Any]:
        """The subgraph's table."""
        return {
            "tensors": self.tensors,
            "inputs": list(inputs),
            "outputs": list(outputs),
            "operators": self.operators,
            "name": name,
        }

    def content(self, inputs: Sequence[int], outputs: Sequence[int], **more: Any) -> bytes:
        """The file's bytes."""
        graphs = [self.graph(inputs, outputs, "main"), *self.others]
        model = {"version": 3, "operator_codes": self.codes, "subgraphs": graphs, "description": "test", "buffers": self.buffers}
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(pack(builder, "Model", {**model, **more}), b"TFL3")
        return bytes(builder.Output())

    def write(self, path: Path, inputs: Sequence[int], outputs: Sequence[int], **more: Any) -> Path:
        """Write the file."""
        path.write_bytes(self.content(inputs, outputs, **more))
        return path


def tensor_type(name: str) -> int:
    """TensorType code of an element type's name, NumPy's or TFLite's."""
    wanted = TYPES.get(name, name.upper())
    return next(code for code, known in enum_names("TensorType").items() if known == wanted)

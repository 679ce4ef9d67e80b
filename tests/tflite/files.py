"""Makes TFLite files for tests: tables packed by the schema that the ``tflite`` package's classes carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nnbridge_tflite.read.schema import builtin_codes, enum_names, options_table
from nnbridge_tflite.write import encode

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
        return encode({**model, **more})

    def write(self, path: Path, inputs: Sequence[int], outputs: Sequence[int], **more: Any) -> Path:
        """Write the file."""
        path.write_bytes(self.content(inputs, outputs, **more))
        return path


def tensor_type(name: str) -> int:
    """TensorType code of an element type's name, NumPy's or TFLite's."""
    type_name = TYPES.get(name, name.upper())
    return next(code for code, known in enum_names("TensorType").items() if known == type_name)

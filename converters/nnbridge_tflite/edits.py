"""Rewrites of single operators into others with the same answers, bit for bit: moves as other moves, one product as another.

A rewrite says for which operators it applies and what stands in their place; whether that helps on a device is decided by
planning the edited file, whether the answers stay by running both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nnbridge.converters import Edit
from nnbridge.errors import ConversionError, Reason
from nnbridge_tflite.read.flatbuffer import Decoder, Span
from nnbridge_tflite.read.metadata import with_archive
from nnbridge_tflite.read.reader import read
from nnbridge_tflite.read.schema import builtin_codes, builtin_names, enum_names
from nnbridge_tflite.write import encode, options_table

Table = dict[str, Any]
_ACTIVATIONS = {1: "RELU", 2: "RELU_N1_TO_1", 3: "RELU6"}
_MAX_PIECES = 64


def decoded(path: Path) -> Table:
    """A file's tables, which may be changed. ConversionError for files whose weights stand outside the tables."""
    file = read(path)
    model: Table = _plain(memoryview(file.pool.data), Decoder(file.pool.data).root("Model"))
    outside = next((k for k, buffer in enumerate(model["buffers"]) if buffer.get("offset", 0) > 1), None)
    if outside is not None:
        raise ConversionError(Reason("a file whose weights stand in its tables", f"buffer {outside} behind them", str(path)))
    return model


def _plain(data: memoryview, value: Any) -> Any:
    if isinstance(value, Span):
        return np.frombuffer(data, np.uint8, value.length, value.offset)
    if isinstance(value, dict):
        return {key: _plain(data, item) for key, item in value.items()}
    return [_plain(data, item) for item in value] if isinstance(value, tuple) else value


class _Graph:
    """One subgraph of a file while one of its operators is replaced."""

    def __init__(self, model: Table, subgraph: int, index: int) -> None:
        self.model = model
        self.subgraph = model["subgraphs"][subgraph]
        self.operator: Table = self.subgraph["operators"][index]
        self.placed: list[Table] = []

    def option(self, name: str, default: Any = 0) -> Any:
        found = (self.operator.get("builtin_options") or {}).get(name)
        return default if found is None else found

    def input(self, i: int) -> int:
        return int(self.operator["inputs"][i])

    @property
    def out(self) -> int:
        return int(self.operator["outputs"][0])

    def shape(self, tensor: int) -> tuple[int, ...]:
        found = self.subgraph["tensors"][tensor].get("shape")
        return () if found is None else tuple(int(d) for d in found)

    def type(self, tensor: int) -> str:
        return enum_names("TensorType")[self.subgraph["tensors"][tensor]["type"]]

    def fixed(self, *tensors: int) -> bool:
        """True if all dimensions are stated, none 0, and none may change."""
        signatures = (self.subgraph["tensors"][t].get("shape_signature") for t in tensors)
        return all(min(self.shape(t), default=0) > 0 for t in tensors) and not any(
            signature is not None and len(signature) and min(signature) < 0 for signature in signatures
        )

    def constant(self, tensor: int) -> Any | None:
        """The int32 numbers of a constant; None if it is computed or of another type."""
        data = self.model["buffers"][self.subgraph["tensors"][tensor]["buffer"]].get("data")
        return None if data is None or not len(data) or self.type(tensor) != "INT32" else data.view("<i4")

    def tensor(self, like: int, shape: Sequence[int], name: str) -> int:
        """A new computed tensor of another one's type and quantisation."""
        source = self.subgraph["tensors"][like]
        made = {**source, "shape": np.asarray(shape, "<i4"), "name": name, "buffer": 0, "shape_signature": None}
        self.subgraph["tensors"].append(made)
        return len(self.subgraph["tensors"]) - 1

    def data(self, array: Any, type: str, name: str) -> int:
        """A new constant."""
        array = np.asarray(array)
        self.model["buffers"].append({"data": np.frombuffer(array.tobytes(), np.uint8)})
        code = next(code for code, known in enum_names("TensorType").items() if known == type)
        made = {"shape": np.asarray(array.shape, "<i4"), "type": code, "name": name, "buffer": len(self.model["buffers"]) - 1}
        self.subgraph["tensors"].append(made)
        return len(self.subgraph["tensors"]) - 1

    def place(self, name: str, inputs: Sequence[int], outputs: Sequence[int], version: int = 1, **options: Any) -> None:
        """An operator in the place of the one that is replaced."""
        code = builtin_codes()[name]
        known = {"builtin_code": code, "deprecated_builtin_code": min(code, 127), "version": version}
        self.model["operator_codes"].append(known)
        made: Table = {"opcode_index": len(self.model["operator_codes"]) - 1}
        made |= {"inputs": np.asarray(inputs, "<i4"), "outputs": np.asarray(outputs, "<i4")}
        table = options_table(name)
        if table is not None:
            codes = {member: number for number, member in enum_names("BuiltinOptions").items()}
            made |= {"builtin_options_type": codes[table], "builtin_options": options}
        self.placed.append(made)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Operators of some names become others."""

    operators: tuple[str, ...]
    text: str
    replace: Callable[[_Graph], bool]
    """Places what stands instead; False if the rewrite does not apply."""


def _activation_apart(graph: _Graph) -> bool:
    fused = _ACTIVATIONS.get(graph.option("fused_activation_function"))
    if fused is None:
        return False
    before = graph.tensor(graph.out, graph.shape(graph.out), "before activation")
    same = dict(graph.operator, outputs=np.asarray([before], "<i4"))
    same["builtin_options"] = {**same["builtin_options"], "fused_activation_function": 0}
    graph.placed.append(same)
    graph.place(fused, [before], [graph.out], _version(graph, fused))
    return True


def _version(graph: _Graph, name: str) -> int:
    """The operator's version for 8-bit tensors, where float ones have the first."""
    return 2 if graph.type(graph.out) == "INT8" and name != "RELU_N1_TO_1" else 1


def _split_as_slices(graph: _Graph) -> bool:
    axis, data = graph.constant(graph.input(0)), graph.input(1)
    outputs = [int(t) for t in graph.operator["outputs"]]
    if axis is None or not graph.fixed(data, *outputs) or len(outputs) > _MAX_PIECES:
        return False
    at, begin = int(axis[0]) % len(graph.shape(data)), 0
    for output in outputs:
        _slice(graph, data, at, begin, output)
        begin += graph.shape(output)[at]
    return True


def _slice(graph: _Graph, data: int, axis: int, begin: int, output: int, size: int = 0) -> None:
    shape = graph.shape(data)
    first = [begin if k == axis else 0 for k in range(len(shape))]
    last = [begin + (size or graph.shape(output)[axis]) if k == axis else d for k, d in enumerate(shape)]
    numbers = [graph.data(np.asarray(v, "<i4"), "INT32", "slice") for v in (first, last, [1] * len(shape))]
    version = 2 if graph.type(data) == "INT8" else 1
    graph.place("STRIDED_SLICE", [data, *numbers], [output], version, begin_mask=0, end_mask=0, ellipsis_mask=0)


def _unpack_as_slices(graph: _Graph) -> bool:
    data, outputs = graph.input(0), [int(t) for t in graph.operator["outputs"]]
    shape = graph.shape(data)
    if not graph.fixed(data) or len(shape) < 2 or len(outputs) > _MAX_PIECES:
        return False
    axis = int(graph.option("axis")) % len(shape)
    for k, output in enumerate(outputs):
        piece = graph.tensor(data, [1 if i == axis else d for i, d in enumerate(shape)], "piece")
        _slice(graph, data, axis, k, piece)
        _reshape(graph, piece, output)
    return True


def _reshape(graph: _Graph, data: int, output: int) -> None:
    shape = np.asarray(graph.shape(output), "<i4")
    graph.place("RESHAPE", [data, graph.data(shape, "INT32", "shape")], [output], new_shape=shape)


def _as_reshape(graph: _Graph) -> bool:
    if not graph.fixed(graph.input(0), graph.out):
        return False
    _reshape(graph, graph.input(0), graph.out)
    return True


def _pack_as_concatenation(graph: _Graph) -> bool:
    inputs, shape = [int(t) for t in graph.operator["inputs"]], graph.shape(graph.out)
    if not graph.fixed(graph.out, *inputs) or len(inputs) > _MAX_PIECES:
        return False
    axis = int(graph.option("axis")) % len(shape)
    pieces = []
    for data in inputs:
        pieces.append(graph.tensor(data, [1 if k == axis else d for k, d in enumerate(shape)], "piece"))
        _reshape(graph, data, pieces[-1])
    graph.place("CONCATENATION", pieces, [graph.out], 2 if graph.type(graph.out) == "INT8" else 1, axis=axis)
    return True


def _slice_as_strided(graph: _Graph) -> bool:
    begin, size, data = graph.constant(graph.input(1)), graph.constant(graph.input(2)), graph.input(0)
    if begin is None or size is None or not graph.fixed(data, graph.out):
        return False
    last = [int(b) + d for b, d in zip(begin, graph.shape(graph.out), strict=True)]
    numbers = [graph.data(np.asarray(v, "<i4"), "INT32", "slice") for v in (begin, last, [1] * len(last))]
    graph.place("STRIDED_SLICE", [data, *numbers], [graph.out], 2 if graph.type(data) == "INT8" else 1)
    return True


def _square_as_product(graph: _Graph) -> bool:
    if graph.type(graph.out) != "FLOAT32":
        return False
    graph.place("MUL", [graph.input(0)] * 2, [graph.out], fused_activation_function=0)
    return True


def _difference_then_product(graph: _Graph) -> bool:
    if graph.type(graph.out) != "FLOAT32" or not graph.fixed(graph.out):
        return False
    difference = graph.tensor(graph.out, graph.shape(graph.out), "difference")
    graph.place("SUB", [graph.input(0), graph.input(1)], [difference], fused_activation_function=0)
    graph.place("MUL", [difference, difference], [graph.out], fused_activation_function=0)
    return True


def _leaky_as_prelu(graph: _Graph) -> bool:
    if graph.type(graph.out) != "FLOAT32" or not graph.fixed(graph.out):
        return False
    shape = [1] * (len(graph.shape(graph.out)) - 1)
    alpha = np.asarray(graph.option("alpha", 0.0), "<f4").reshape(shape)
    graph.place("PRELU", [graph.input(0), graph.data(alpha, "FLOAT32", "alpha")], [graph.out])
    return True


def _in_four_dimensions(graph: _Graph) -> bool:
    """An element-wise operator of more than four dimensions between RESHAPEs: the first ones become one."""
    shape, inputs = graph.shape(graph.out), [int(t) for t in graph.operator["inputs"]]
    whole = [t for t in inputs if graph.shape(t) == shape]
    alone = all(graph.shape(t) in ((), (1,)) for t in inputs if t not in whole)
    if len(shape) <= 4 or not graph.fixed(graph.out, *whole) or not alone:
        return False
    flat = (int(np.prod(shape[:-3])), *shape[-3:])
    within = {t: graph.tensor(t, flat, "four dimensions") for t in dict.fromkeys((*whole, graph.out))}
    for data in dict.fromkeys(whole):
        _reshape(graph, data, within[data])
    same = dict(graph.operator, outputs=np.asarray([within[graph.out]], "<i4"))
    graph.placed.append({**same, "inputs": np.asarray([within.get(t, t) for t in inputs], "<i4")})
    _reshape(graph, within[graph.out], graph.out)
    return True


_FUSING = ("ADD", "SUB", "MUL", "DIV", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "AVERAGE_POOL_2D", "MAX_POOL_2D")
_ELEMENTWISE: tuple[str, ...] = (
    "ADD",
    "SUB",
    "MUL",
    "DIV",
    "MAXIMUM",
    "MINIMUM",
    "ABS",
    "NEG",
    "EXP",
    "LOG",
    "SQRT",
    "RSQRT",
    "SIN",
    "FLOOR",
)
_ELEMENTWISE += ("RELU", "RELU6", "RELU_N1_TO_1", "LOGISTIC", "TANH", "ELU", "HARD_SWISH", "QUANTIZE", "DEQUANTIZE", "CAST")
REWRITES = (
    Rewrite((*_FUSING, "CONCATENATION", "L2_NORMALIZATION"), "its fused activation as an operator of its own", _activation_apart),
    Rewrite(_ELEMENTWISE, "the same in four dimensions, between RESHAPEs", _in_four_dimensions),
    Rewrite(("SPLIT",), "a STRIDED_SLICE for each part", _split_as_slices),
    Rewrite(("UNPACK",), "a STRIDED_SLICE and a RESHAPE for each part", _unpack_as_slices),
    Rewrite(("PACK",), "RESHAPEs, then CONCATENATION", _pack_as_concatenation),
    Rewrite(("SQUEEZE", "EXPAND_DIMS"), "RESHAPE to the dimensions that come out", _as_reshape),
    Rewrite(("SLICE",), "STRIDED_SLICE with steps of 1", _slice_as_strided),
    Rewrite(("SQUARE",), "MUL of the tensor with itself", _square_as_product),
    Rewrite(("SQUARED_DIFFERENCE",), "SUB, then MUL of the difference with itself", _difference_then_product),
    Rewrite(("LEAKY_RELU",), "PRELU with its alpha as a constant", _leaky_as_prelu),
)


def edits(path: Path) -> Iterator[Edit]:
    """Every rewrite that applies to an operator of a file."""
    model = decoded(path)
    for number, subgraph in enumerate(model["subgraphs"]):
        for index, operator in enumerate(subgraph["operators"]):
            name = _name(model, operator)
            for rewrite in REWRITES:
                if name in rewrite.operators and _replaced(decoded(path), number, index, rewrite) is not None:
                    yield Edit(number, index, name, rewrite.text, partial(_content, path, number, index, rewrite))


def _name(model: Table, operator: Mapping[str, Any]) -> str:
    code = model["operator_codes"][operator["opcode_index"]]
    number = max(code.get("builtin_code") or 0, code.get("deprecated_builtin_code") or 0)
    return builtin_names().get(number, "")


def _replaced(model: Table, subgraph: int, index: int, rewrite: Rewrite) -> Table | None:
    graph = _Graph(model, subgraph, index)
    if not rewrite.replace(graph):
        return None
    graph.subgraph["operators"][index : index + 1] = graph.placed
    return model


def _content(path: Path, subgraph: int, index: int, rewrite: Rewrite) -> bytes:
    model = _replaced(decoded(path), subgraph, index, rewrite)
    assert model is not None, "an edit that applied"
    return with_archive(encode(model), path)

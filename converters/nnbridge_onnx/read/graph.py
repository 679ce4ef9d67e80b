"""An ONNX model as plain, frozen data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Any

import numpy as np

from nnbridge.errors import ConversionError, Reason
from nnbridge.extensions import numpy_type
from nnbridge.model import Array
from nnbridge.records import dataclass

Dims = tuple[int, ...]

ELEMENT_TYPES: dict[int, tuple[str, int, str | None]] = {
    1: ("FLOAT", 4, "float32"),
    2: ("UINT8", 1, "uint8"),
    3: ("INT8", 1, "int8"),
    4: ("UINT16", 2, "uint16"),
    5: ("INT16", 2, "int16"),
    6: ("INT32", 4, "int32"),
    7: ("INT64", 8, "int64"),
    8: ("STRING", 1, None),
    9: ("BOOL", 1, "bool"),
    10: ("FLOAT16", 2, "float16"),
    11: ("DOUBLE", 8, "float64"),
    12: ("UINT32", 4, "uint32"),
    13: ("UINT64", 8, "uint64"),
    14: ("COMPLEX64", 8, "complex64"),
    15: ("COMPLEX128", 16, "complex128"),
    16: ("BFLOAT16", 2, "bfloat16"),
    17: ("FLOAT8E4M3FN", 1, "float8_e4m3fn"),
    18: ("FLOAT8E4M3FNUZ", 1, "float8_e4m3fnuz"),
    19: ("FLOAT8E5M2", 1, "float8_e5m2"),
    20: ("FLOAT8E5M2FNUZ", 1, "float8_e5m2fnuz"),
    21: ("UINT4", 1, "uint4"),
    22: ("INT4", 1, "int4"),
    23: ("FLOAT4E2M1", 1, "float4_e2m1fn"),
    24: ("FLOAT8E8M0", 1, "float8_e8m0fnu"),
    25: ("UINT2", 1, "uint2"),
    26: ("INT2", 1, "int2"),
    1001: ("SEQUENCE", 1, None),
    1002: ("OPTIONAL", 1, None),
    1003: ("MAP", 1, None),
}
"""``TensorProto.DataType`` → name, bytes of an element (small ones take a byte each), NumPy's or ml_dtypes' type.

The host extension's operand types have the same numbers. Sequences, optionals and maps, which are no elements, have further
ones."""

FLOAT, UINT8, INT8, INT32, INT64, STRING, BOOL, FLOAT16, BFLOAT16 = 1, 2, 3, 6, 7, 8, 9, 10, 16
SEQUENCE, OPTIONAL, MAP = 1001, 1002, 1003
MESSAGES = frozenset([STRING, SEQUENCE, OPTIONAL, MAP])
"""Types whose values exist as the bytes of a message (:mod:`nnbridge_onnx.host.messages`)."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """The known properties of a value: its type (a key of ELEMENT_TYPES; 0 = none that nnbridge can hold) and its shape.

    Dimensions that are not known are -1; a shape of None has no known rank.
    """

    type: int
    shape: Dims | None = None
    instead: str = ""
    """What it holds, where that is nothing that nnbridge can hold: a map, a sparse tensor, ..."""


@dataclass(frozen=True, eq=False)
class Node:
    """One node with its attributes as Python values."""

    index: int
    type: str
    name: str
    domain: str
    version: int
    """The opset version of the node's domain."""
    inputs: tuple[str, ...]
    """Names of the inputs; empty for an omitted one."""
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    proto: Any = field(repr=False)
    """The ``NodeProto``."""
    captured: tuple[str, ...] = ()
    """Outer values that the node's subgraphs read."""

    def name_of(self, i: int) -> str:
        """The name of input ``i``, empty where it is omitted."""
        return self.inputs[i] if i < len(self.inputs) else ""

    @property
    def operator(self) -> str:
        """The operator with its domain, unless that is ONNX's own."""
        return f"{self.domain}.{self.type}" if self.domain else self.type

    @property
    def results(self) -> list[str]:
        """The names of the outputs that are not omitted."""
        return [name for name in self.outputs if name]

    @property
    def label(self) -> str:
        """The node's name in messages."""
        return f"node {self.index} {self.type}" + (f" '{self.name}'" if self.name else "")

    @property
    def title(self) -> str:
        """The name of the operations that it becomes, in reports."""
        return f"{self.index}: {self.type} {self.outputs[0] if self.outputs else ''}".rstrip()


@dataclass(frozen=True, eq=False, slots=True)
class Fold:
    """The results of a node on the inputs of that time."""

    type: str
    inputs: Mapping[str, Array]
    results: Sequence[Array]


@dataclass(frozen=True)
class Graph:
    """A model's main graph."""

    name: str
    opsets: Mapping[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, Array]
    tensors: Mapping[str, Tensor]
    external: frozenset[str] = frozenset()
    """Names of constants that lie in other files."""
    overridable: frozenset[str] = frozenset()
    """Names of constants that a caller of ONNX Runtime may replace: inputs with a default value, from IR version 4 on."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Output of what an operator of com.microsoft was expanded into → that operator; all nodes' outputs of one that ONNX
    Runtime's provider does not know."""
    loops: bool = False
    """The file has a Loop or Scan, which a mapping may write out: another mapping needs another reading."""
    size: int = 0
    """Bytes of the file and of those that hold its constants."""
    refused: Reason | None = None
    """Why ONNX Runtime does not load the file."""
    ir_version: int = 0
    """The file's format; 0 for a model without a file."""
    without_kernel: Mapping[str, Reason] = field(default_factory=dict)
    """The first output of nodes that ONNX Runtime's CPU has no kernel for → why not: the provider may take them."""
    folds: dict[tuple[str, ...], Fold] = field(default_factory=dict, compare=False, repr=False)
    """What nodes that were folded so far computed, by their outputs."""

    @property
    def has_loops(self) -> bool:
        """True where a Loop or Scan is still one."""
        return any(node.type in ("Loop", "Scan") for node in self.nodes)


def type_name(type: int) -> str:
    """The name of a ``TensorProto.DataType``."""
    return ELEMENT_TYPES[type][0] if type in ELEMENT_TYPES else ("unknown" if type == 0 else f"elements of type {type}")


@cache
def dtype_of(type: int) -> np.dtype[Any] | None:
    """NumPy's element type of a ``TensorProto.DataType``, None for what are no numbers."""
    name = ELEMENT_TYPES[type][2] if type in ELEMENT_TYPES else None
    return None if name is None else numpy_type(name)


def attribute_values(node: Any) -> dict[str, Any]:
    """The attributes of a ``NodeProto`` by name, bytes as text."""
    from onnx import helper

    values = ((attribute.name, helper.get_attribute_value(attribute)) for attribute in node.attribute)
    return {name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value for name, value in values}


MAX_DEPTH = 32
"""The depth of nested subgraphs."""


def subgraphs(attribute: Any) -> Sequence[Any]:
    """The graphs that an attribute holds."""
    return [attribute.g] if attribute.HasField("g") else attribute.graphs


def free_names(graph: Any, depth: int = 0) -> Iterator[str]:
    """Names that a subgraph reads and does not write."""
    if depth > MAX_DEPTH:
        raise ConversionError(Reason(f"subgraphs of a depth of at most {MAX_DEPTH}", "more"))
    known = (
        {v.name for v in graph.input} | {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    )
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                yield name
        for attribute in node.attribute:
            for subgraph in subgraphs(attribute):
                yield from (name for name in free_names(subgraph, depth + 1) if name not in known)
        known.update(node.output)
    for value in graph.output:
        if value.name not in known:
            yield value.name

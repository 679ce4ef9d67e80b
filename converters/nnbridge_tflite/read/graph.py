"""A plain, frozen view of a TFLite file: tensors, operators, subgraphs, signatures, metadata."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np

from nnbridge.errors import Reason
from nnbridge.extensions import TYPES, Arg
from nnbridge.model import Array
from nnbridge.records import dataclass
from nnbridge_tflite.read.flatbuffer import Span

DISPATCH = "DISPATCH_OP"
"""The custom operator of a partition that LiteRT's compiler compiled for a device."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """One TensorType: its name, NumPy's element type (None: no fixed size) and the code in the file."""

    code: int
    name: str
    dtype: np.dtype[Any] | None
    bits: int = 0
    """Bits of an element in the file."""


_TYPES = """FLOAT32 f4, FLOAT16 f2, INT32 i4, UINT8 u1, INT64 i8, STRING, BOOL ?, INT16 i2, COMPLEX64 c8, INT8 i1, FLOAT64 f8,
COMPLEX128 c16, UINT64 u8, RESOURCE, VARIANT, UINT32 u4, UINT16 u2, INT4 i1, BFLOAT16 u2, INT2 i1, UINT4 u1,
FLOAT8_E4M3FN u1, FLOAT8_E5M2 u1"""
_PACKED = {"INT4": 4, "UINT4": 4, "INT2": 2}
"""Bits of integers of which a byte has several, the low ones first."""


def _element(code: int, listed: str) -> ElementType:
    name, *letters = listed.split()
    dtype = np.dtype(letters[0]) if letters else None
    return ElementType(code, name, dtype, _PACKED.get(name, 0 if dtype is None else dtype.itemsize * 8))


EXTENSION = "org.tensorflow.lite"
"""The host extension of operators and element types that NNAPI cannot express."""

ELEMENT_TYPES: Mapping[int, ElementType] = {code: _element(code, listed) for code, listed in enumerate(_TYPES.split(","))}
"""TensorType code → facts."""

_BY_DTYPE = {e.dtype: e for e in reversed(list(ELEMENT_TYPES.values())) if e.dtype is not None}
_BY_NAME = {e.name: e for e in ELEMENT_TYPES.values()}


def element_type(name: str) -> ElementType:
    """A TensorType by name."""
    return _BY_NAME[name]


def element_of(dtype: np.dtype[Any]) -> ElementType:
    """The TensorType of NumPy's element type; of several the first."""
    return _BY_DTYPE[dtype]


@dataclass(frozen=True, slots=True)
class Quantisation:
    """Scales and zero points; ``axis`` counts where there is more than one scale."""

    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    axis: int = 0
    stated: bool = False
    """The file has a table of parameters, if an empty one."""

    @property
    def scale(self) -> float:
        """The only scale, or 0 where there is none or one for each channel."""
        return self.scales[0] if len(self.scales) == 1 else 0.0

    @property
    def zero_point(self) -> int:
        """The first zero point."""
        return self.zero_points[0] if self.zero_points else 0

    @property
    def per_channel(self) -> bool:
        """One scale for each index along ``axis``."""
        return len(self.scales) > 1


@dataclass(frozen=True, slots=True)
class Blocks:
    """Integers of which each block of the last dimension has a scale of its own."""

    stored: ElementType
    scales: int
    """The tensor that holds the scales."""
    size: int
    """Elements in a block."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor. ``data`` is where its constant value lies in the file."""

    index: int
    name: str
    type: ElementType
    shape: tuple[int, ...]
    signature: tuple[int, ...] = ()
    """Dimensions with -1 where the model leaves them open; empty where the file says nothing."""
    data: Span | None = None
    quantisation: Quantisation = Quantisation()
    is_variable: bool = False
    sparsity: Mapping[str, Any] | None = None
    has_rank: bool = False
    """Without it, LiteRT's compiler does not read ``signature``."""
    blocks: Blocks | None = None
    """The constant's float32 numbers are stored as integers."""

    @property
    def label(self) -> str:
        """For messages: ``tensor 5 'conv/weights'``."""
        return f"tensor {self.index} {self.name!r}"

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes_needed(self) -> int | None:
        """Bytes that a constant of this shape and type has; None for types without a fixed size."""
        return None if self.type.dtype is None else -(-self.elements * self.type.bits // 8)

    def host_tensor(self, data: Array | None) -> Arg:
        """The tensor as host kernels see it."""
        dims = self.shape if data is None else data.shape
        # As in NNAPI, 8-bit integers have a scale, and truth values have none.
        scale = self.quantisation.scale or float(self.type.name in ("UINT8", "INT8"))
        return Arg(TYPES.code(EXTENSION, self.type.code), dims, scale, self.quantisation.zero_point, value=data)

    def __str__(self) -> str:
        return f"{self.type.name}{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator; -1 among the inputs is an omitted optional input."""

    index: int
    name: str
    """The builtin's name, or the custom operator's."""
    code: int
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    options: Mapping[str, Any]
    """The builtin options as plain values, by the schema's names."""
    custom: bool = False
    custom_options: bytes = b""
    ignored: str = ""
    """The options table of another operator that the file has instead of its own; TFLite ignores it."""

    @property
    def label(self) -> str:
        """For messages: ``operator 3 CONV_2D``."""
        return f"operator {self.index} {self.name}"


@dataclass(frozen=True)
class TfliteSubgraph:
    """One subgraph, its operators in run order."""

    name: str
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @cached_property
    def written(self) -> frozenset[int]:
        """Tensors that an operator writes."""
        return frozenset(i for operator in self.operators for i in operator.outputs)


@dataclass(frozen=True, slots=True)
class SubgraphSignature:
    """A named way of calling a subgraph: names → tensor indexes."""

    key: str
    subgraph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclass(frozen=True)
class Graph:
    """A whole file."""

    version: int
    description: str
    subgraphs: tuple[TfliteSubgraph, ...]
    signatures: tuple[SubgraphSignature, ...] = ()
    metadata: Mapping[str, Span] = field(default_factory=dict)
    refused: Reason | None = None
    """What TFLite refuses of the file before it looks at the graph: mostly its verifier of bytes does."""

    @property
    def main(self) -> TfliteSubgraph:
        """Subgraph 0, which a plain call runs."""
        return self.subgraphs[0]

    @cached_property
    def is_compiled(self) -> bool:
        """True for a file of which LiteRT's compiler compiled a part: LiteRT computes the rest itself."""
        operators = (operator for subgraph in self.subgraphs for operator in subgraph.operators)
        return any(operator.custom and operator.name == DISPATCH for operator in operators)

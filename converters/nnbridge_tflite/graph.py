"""A plain, frozen view of a TFLite file: tensors, operators, subgraphs, signatures, metadata."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from nnbridge_tflite.flat import Span


@dataclass(frozen=True, slots=True)
class ElementType:
    """One TensorType: its name, NumPy's element type (None: no fixed size) and the code in the file."""

    code: int
    name: str
    dtype: np.dtype[Any] | None
    bits: int = 0
    """Bits of an element in the file."""


def _types() -> Mapping[int, ElementType]:
    listed = {
        0: ("FLOAT32", "f4"),
        1: ("FLOAT16", "f2"),
        2: ("INT32", "i4"),
        3: ("UINT8", "u1"),
        4: ("INT64", "i8"),
        5: ("STRING", None),
        6: ("BOOL", "?"),
        7: ("INT16", "i2"),
        8: ("COMPLEX64", "c8"),
        9: ("INT8", "i1"),
        10: ("FLOAT64", "f8"),
        11: ("COMPLEX128", "c16"),
        12: ("UINT64", "u8"),
        13: ("RESOURCE", None),
        14: ("VARIANT", None),
        15: ("UINT32", "u4"),
        16: ("UINT16", "u2"),
        17: ("INT4", "i1"),
        18: ("BFLOAT16", "u2"),
    }
    made = {}
    for code, (name, letters) in listed.items():
        dtype = None if letters is None else np.dtype(letters)
        bits = 4 if name == "INT4" else 0 if dtype is None else dtype.itemsize * 8
        made[code] = ElementType(code, name, dtype, bits)
    return MappingProxyType(made)


ELEMENT_TYPES = _types()
"""TensorType code → facts."""


@dataclass(frozen=True, slots=True)
class Quantisation:
    """Scales and zero points; ``axis`` counts where there is more than one scale."""

    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    axis: int = 0

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

    @property
    def label(self) -> str:
        """For messages: ``operator 3 CONV_2D``."""
        return f"operator {self.index} {self.name}"


@dataclass(frozen=True)
class Subgraph:
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
class Signature:
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
    subgraphs: tuple[Subgraph, ...]
    signatures: tuple[Signature, ...] = ()
    metadata: Mapping[str, Span] = field(default_factory=dict)

    @property
    def main(self) -> Subgraph:
        """Subgraph 0, which a plain call runs."""
        return self.subgraphs[0]

"""A model file's own operators, before any mapping: what compilers and delegates that do not use NNAPI look at.

An importer fills these from a file (:attr:`nnbridge.converters.Converter.operators`). Types, operators and options have the
names of the file's format.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cached_property
from typing import Any

from nnbridge.errors import Reason
from nnbridge.model import Array
from nnbridge.records import dataclass

CUSTOM = "CUSTOM:"
"""Before the name of a custom operator."""


@dataclass(frozen=True)
class SourceInput:
    """An input in an operator's declaration."""

    name: str
    repeat: bool = False
    """It stands for any number of inputs."""


@dataclass(frozen=True)
class SourceDeclaration:
    """The parts of a format's operator: names of inputs, options with their defaults, and the format's element types."""

    name: str
    inputs: tuple[SourceInput, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    types: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class SourceTensor:
    """One tensor of the file."""

    index: int
    name: str
    type: str
    """The element type by the format's name, such as ``INT8``."""
    bits: int
    """Bits of an element; 0 for types without a fixed size."""
    shape: tuple[int, ...]
    open_dims: tuple[int, ...] = ()
    """Dimensions that the file leaves open."""
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    axis: int = 0
    """The dimension of the scales, where there are several."""
    quantised: bool = False
    """The file has quantisation parameters of this tensor, if empty ones."""
    variable: bool = False
    read: Callable[[], Array] | None = field(default=None, repr=False)
    """Returns the constant's value; None for tensors that are computed."""

    @property
    def constant(self) -> bool:
        """True if its value is in the file."""
        return self.read is not None

    @cached_property
    def value(self) -> Array | None:
        """The constant's value, read when it is first used."""
        return None if self.read is None else self.read()

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of the value."""
        return -(-self.elements * self.bits // 8)

    def __str__(self) -> str:
        return f"{self.type}{list(self.shape)}"


@dataclass(frozen=True, eq=False)
class SourceOperator:
    """One operator; None among the inputs is an optional one that is omitted."""

    index: int
    name: str
    """The operator's name; a custom operator's is ``CUSTOM:`` and its own."""
    version: int
    inputs: tuple[SourceTensor | None, ...]
    outputs: tuple[SourceTensor, ...]
    options: Mapping[str, Any]

    def input(self, number: int) -> SourceTensor | None:
        """Input ``number``; None if it is omitted."""
        return self.inputs[number] if number < len(self.inputs) else None

    @property
    def computed(self) -> tuple[SourceTensor, ...]:
        """Inputs that are no constants."""
        return tuple(tensor for tensor in self.inputs if tensor is not None and not tensor.constant)

    @property
    def label(self) -> str:
        """For messages: ``operator 3 CONV_2D``."""
        return f"operator {self.index} {self.name}"


@dataclass(frozen=True, eq=False)
class SourceGraph:
    """The graph that a conversion starts from, its operators in run order."""

    format: str
    """``tflite``."""
    name: str
    operators: tuple[SourceOperator, ...]
    inputs: tuple[SourceTensor, ...]
    outputs: tuple[SourceTensor, ...]
    subgraph: int = 0
    dynamic: Reason | None = None
    """The first tensor whose dimensions only a run computes; None if all are known when the file is loaded."""

    @cached_property
    def producers(self) -> Mapping[int, SourceOperator]:
        """Tensor index → the operator that writes it."""
        return {tensor.index: operator for operator in self.operators for tensor in operator.outputs}

    def delivers(self, tensor: SourceTensor) -> bool:
        """True for outputs of the graph."""
        return tensor.index in self._final

    @cached_property
    def _final(self) -> frozenset[int]:
        return frozenset(tensor.index for tensor in self.outputs)

    @cached_property
    def readers(self) -> Mapping[int, tuple[SourceOperator, ...]]:
        """Tensor index → the operators that read it, in run order."""
        found: dict[int, list[SourceOperator]] = {}
        for operator in self.operators:
            for index in dict.fromkeys(tensor.index for tensor in operator.inputs if tensor is not None):
                found.setdefault(index, []).append(operator)
        return {index: tuple(operators) for index, operators in found.items()}

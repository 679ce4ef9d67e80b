"""An importer's knowledge of the operators of its host extension: their tensors in the file, and parts of the file.

By this an inference runtime computes what a plan leaves to the host (:mod:`nnbridge.engines`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, TypeAlias

from nnbridge.model import Array, Model, Operation
from nnbridge.records import dataclass

Tensor: TypeAlias = "int | str"
"""An index (TFLite) or a name (ONNX) in the file's graph."""
GraphKey: TypeAlias = "tuple[int, tuple[int, ...]]"
"""A graph of the file: subgraph, and the operators that called it where it was inlined."""


@dataclass(frozen=True)
class Ends:
    """The tensors of an operator, by the operands of the operation that stands for it."""

    graph: GraphKey
    inputs: Collection[tuple[int, Tensor]]
    """Constants, and variables before the run, among them; an operand may stand for several tensors that are equal."""
    outputs: Mapping[int, Tensor]
    states: Mapping[int, Tensor]
    """Variables after the run."""


@dataclass(frozen=True)
class Piece:
    """Some operators as a file of its own."""

    content: bytes
    inputs: tuple[Tensor, ...]
    """Tensors of the original's, in the order of the piece's inputs."""
    outputs: tuple[Tensor, ...]
    variables: Mapping[Tensor, int]
    """A variable's index in the piece (TFLite)."""
    scalars: Collection[Tensor] = ()
    """Inputs that are scalars in the file, where NNAPI has vectors of one element."""


class SourceParts(Protocol):
    """A file of which parts are cut out."""

    def ends(self, model: Model, operation: Operation) -> Ends | None:
        """The tensors of a host operation; None for one that the importer added.

        ConversionError for an operator whose operands are others in the file, such as handles of tables.
        """

    def piece(
        self, graph: GraphKey, inputs: Collection[Tensor], outputs: Collection[Tensor], constants: Mapping[Tensor, Array]
    ) -> Piece:
        """A file of the operators that compute ``outputs`` from ``inputs``; ConversionError if there is none.

        ``constants``: tensors that the importer computed, for those that depend on more than the file's constants.
        """

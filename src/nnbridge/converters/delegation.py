"""What a running interpreter asks of an importer: which nodes of its graph NNAPI gets, and models of parts of the graph.

The file importer's rules decide, on the graph as the interpreter has it now: its dimensions, its groups of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from nnbridge.budget import WorkBudget
from nnbridge.converters.inspection import Mapped
from nnbridge.converters.mapping import MappingKind
from nnbridge.model import Model

Dims: TypeAlias = "Sequence[tuple[int, ...]]"
"""The dimensions of a subgraph's tensors, by index."""
Place: TypeAlias = "tuple[int, int]"
"""Offset and length in a file."""
Places: TypeAlias = "Sequence[Sequence[tuple[Place | None, Place | None]]]"
"""For each subgraph where its tensors' names and constants lie."""


@dataclass(frozen=True)
class Part:
    """Some nodes of a graph as a model."""

    model: Model
    inputs: tuple[int, ...]
    """The tensor of each of the model's inputs; variables are the last ones."""
    outputs: tuple[int, ...]
    """The tensor of each of the model's outputs, likewise."""
    variables: int = 0
    """How many of the inputs, and of the outputs, are variables."""
    lasting: bool = False
    """True for a model that stays when inputs are resized: what the file leaves open is open in it."""


def whole_or_nothing(outcomes: Iterable[Mapped]) -> bool:
    """True for graphs with float16 weights: the delegate hands them over if devices accept all that it maps, else nothing.

    It reads such weights in place of the DEQUANTIZE operators before them, and undoes that where an operator is refused.
    """
    return any(one.operator == "DEQUANTIZE" and one.mapping == MappingKind.FOLDED for one in outcomes)


HALVES_RULE = "devices that accept all that the delegate maps, as it requires for float16 weights"


@dataclass(frozen=True)
class DelegateTarget:
    """What a delegate compiles for."""

    feature_level: int
    """The lowest of its devices."""
    accelerated: bool = False
    """True for devices without NNAPI's CPU."""


class Delegation(Protocol):
    """A file whose nodes are handed over."""

    def subgraph_name(self, subgraph: int) -> str:
        """The name that the file has for a subgraph."""

    def codes(self, subgraph: int) -> tuple[int, ...]:
        """The builtin codes of a subgraph's operators."""

    def outcomes(self, subgraph: int, dims: Dims, target: DelegateTarget) -> tuple[Mapped, ...]:
        """The outcome of each operator; what the importer refuses is left to the interpreter."""

    def declared(self, subgraph: int, dims: Dims) -> Dims:
        """Dimensions with 0 for those that the file leaves open, so that one model serves inputs that are resized."""

    def part(
        self,
        subgraph: int,
        nodes: Sequence[int],
        inputs: Sequence[int],
        outputs: Sequence[int],
        dims: Dims,
        target: DelegateTarget,
    ) -> Part:
        """A model of some operators; ConversionError if they are none that NNAPI gets."""


@dataclass(frozen=True)
class InMemory:
    """How the graph of a running interpreter is read."""

    mark: tuple[int, bytes]
    """Where the format's mark lies, and what it is."""
    places: Callable[[memoryview, WorkBudget], Places | None]
    """Where the tensors' names and constants lie; None for what is no file of the format. Decoding spends tables."""
    open: Callable[[memoryview], Delegation]
    """Read the file; the bytes after it are passed over. ConversionError for a wrong one."""

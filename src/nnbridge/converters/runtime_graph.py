"""Questions of an inference runtime to an importer: which nodes of its graph NNAPI gets, and models of groups of them.

The file importer's rules decide, on the graph as the runtime has it now: after its own optimisations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from nnbridge.converters.inspection import Mapped
from nnbridge.errors import Reason
from nnbridge.model import Array, Model
from nnbridge.records import dataclass


@dataclass(frozen=True)
class RuntimeValue:
    """The type of a value, as the format numbers it, and its dimensions: -1 for open ones, None without a known rank."""

    type: int
    dims: tuple[int, ...] | None


@dataclass(frozen=True)
class RuntimeNode:
    """One node. Its index in the graph is its number here."""

    type: str
    name: str
    domain: str
    inputs: tuple[str, ...]
    """Names of the inputs; empty for an omitted one."""
    outputs: tuple[str, ...]
    attributes: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    """By name, the type as ONNX names it and the value: a number, bytes, a list of them, an array."""
    captured: tuple[str, ...] = ()
    """Outer values that the node's subgraphs read."""
    opaque: bool = False
    """True for what no one but the runtime can run: control flow, nodes of another provider."""


@dataclass(frozen=True)
class RuntimeGraph:
    """A main graph."""

    name: str
    version: int
    """The format's version of the file."""
    opsets: Mapping[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[RuntimeNode, ...]
    """In run order."""
    constants: Mapping[str, Array]
    external: frozenset[str]
    """Names of constants that lie in other files."""
    values: Mapping[str, RuntimeValue]


@dataclass(frozen=True)
class RuntimePart:
    """A group of nodes as a model."""

    model: Model
    inputs: tuple[str, ...]
    """The value of each of the model's inputs."""
    outputs: tuple[str, ...]
    """The value of each of the model's outputs."""
    constants: Mapping[str, Array]
    """Values of the group that are known without a run."""
    results: Mapping[str, tuple[Any, bool]]
    """For each output the runtime's element type (NumPy's), and whether it is a scalar there."""


class Claims(Protocol):
    """The nodes of a graph that NNAPI gets."""

    @property
    def outcomes(self) -> tuple[Mapped, ...]:
        """The outcome of each operator, after the importer's passes."""

    @property
    def supported(self) -> frozenset[int]:
        """Nodes that NNAPI gets."""

    @property
    def claimed(self) -> frozenset[int]:
        """These, and nodes that they read and that the importer computes."""

    @property
    def failing(self) -> Mapping[int, Reason]:
        """Nodes that NNAPI gets, and of which the model cannot be built, or run."""

    @property
    def units(self) -> Sequence[frozenset[int]]:
        """Nodes that must stay together: a node with its DequantizeLinear and QuantizeLinear nodes."""

    def part(self, nodes: frozenset[int]) -> RuntimePart:
        """A model of some nodes; ConversionError if they cannot be one."""


RuntimeReader = Callable[[RuntimeGraph, int, bool, "frozenset[str] | None"], Claims]
"""A graph, the feature level, whether images stay channels-first, the types of nodes that end NNAPI's part (None: the
provider's own). ConversionError for a graph that the importer refuses."""

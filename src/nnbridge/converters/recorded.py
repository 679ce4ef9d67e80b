"""A graph that LiteRT's MediaTek compiler passed by calls, and what an importer makes of it.

The calls are NNAPI's under another prefix, but operands and operations are the compiler's own, close to the file's operators:
the importer of the file's format reads them back, so that a file and its calls go the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

from nnbridge.errors import Reason
from nnbridge.model import Model
from nnbridge.records import dataclass


@dataclass(frozen=True, slots=True)
class RecordedOperand:
    """An operand as it was added: the compiler's type number, dimensions (-1 not known), quantisation, value."""

    type: int
    dims: tuple[int, ...] = ()
    scale: float = 0.0
    zero_point: int = 0
    scales: tuple[float, ...] = ()
    """One for each channel along ``channel_dim``."""
    zero_points: tuple[int, ...] = ()
    channel_dim: int = 0
    value: bytes | None = None
    """The bytes of a constant."""


@dataclass(frozen=True, slots=True)
class RecordedOperation:
    """An operation: its code, or one of an extension, and operands by index."""

    code: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Recording:
    """A finished model as it was passed."""

    name: str
    operands: tuple[RecordedOperand, ...]
    operations: tuple[RecordedOperation, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    extension: int = 0
    """The prefix of the codes of the compiler's extension; 0 where it has not asked for one."""


class Expressed(Protocol):
    """A graph as far as NNAPI can express it. Operations of models have the operator's index as ``source.index``."""

    @property
    def names(self) -> tuple[str, ...]:
        """The operators' names, empty for those that the compiler does not pass on."""

    @property
    def refused(self) -> Mapping[int, Reason]:
        """Operators that NNAPI's operations cannot express, by index, and why."""

    @property
    def constant(self) -> Mapping[int, tuple[int, ...]]:
        """Operators that compute only from constants, by index, and the operators that read them; -1 for the graph's outputs."""

    @property
    def open(self) -> Mapping[int, tuple[int, ...]]:
        """Operators that read tensors of open dimensions, by index, and the operators that write those.

        Compiled, an open dimension is 1, as files have it. Only a granted operator is known to write such a tensor.
        """

    def without(self, refused: Mapping[int, Reason]) -> Expressed:
        """The same graph, of which nothing is known of what these operators compute."""

    def question(self, operators: Collection[int] | None = None) -> Model | None:
        """One model of these operators, or of all, for devices to be asked about; None if nothing can be expressed."""

    def model(self) -> Model:
        """The whole graph as a model with the inputs and outputs as they were passed. ConversionError if it is not possible."""


@dataclass(frozen=True)
class Passed:
    """A file's subgraph as the compiler passes it on."""

    expressed: Expressed
    operators: tuple[str, ...]
    """The names of all operators."""
    lost: Mapping[int, Reason]
    """Operators that calls do not describe, or not in full, by index, and what is missing."""


class Route(Protocol):
    """A file format's part in LiteRT's MediaTek route."""

    def express(self, recording: Recording) -> Expressed:
        """The graph that calls passed."""

    def passed(self, path: Path) -> tuple[Passed, ...]:
        """The operators of each subgraph of a file that the compiler passes on."""

"""An ONNX model as plain, frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nnbridge.extensions import numpy_type

Array = npt.NDArray[Any]
Dims = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """What is known of a value: its ``TensorProto.DataType`` (0 = none that nnbridge can hold) and its shape.

    Dimensions that are not known are -1; a shape of None has no known rank.
    """

    type: int
    shape: Dims | None = None
    instead: str = ""
    """What it holds, where that is nothing that nnbridge can hold: strings, a sequence, ..."""


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

    @property
    def label(self) -> str:
        """How messages call the node."""
        return f"node {self.index} {self.type}" + (f" '{self.name}'" if self.name else "")

    @property
    def title(self) -> str:
        """How reports call the operations that come of it."""
        return f"{self.index}: {self.type} {self.outputs[0] if self.outputs else ''}".rstrip()


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
    origins: Mapping[str, str] = field(default_factory=dict)
    """Output of what an operator was spelt out into → that operator."""


def dtype_of(type: int) -> np.dtype[Any] | None:
    """NumPy's element type of a ``TensorProto.DataType``, None for what nnbridge cannot hold."""
    from nnbridge_onnx.extension import ELEMENT_TYPES

    name = ELEMENT_TYPES.get(type, ("", 0, None))[2]
    return None if name is None else numpy_type(name)

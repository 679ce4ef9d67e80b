"""How a faster kernel is bound to an operation whose shapes are known.

A binder takes a :class:`Binding` (the operation's call with constants and resolved outputs), decides everything that
can be decided, and gives a step: a function that reads and writes the arrays of a frame. It answers None where it has
nothing better than the reference kernel. Binders are registered under the operation's own code::

    @faster(OperationCode.CONV_2D)
    def conv_2d(binding: Binding) -> Step | None: ...
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnbridge.operations.call import Call
from nnbridge.types import OperationCode

Frame: TypeAlias = "list[Any]"
"""The arrays of one run, by operand index, then scratch buffers; None where nothing is held."""

Step: TypeAlias = "Callable[[Frame], None]"
Binder: TypeAlias = "Callable[[Binding], Step | None]"

FASTER: dict[int, Binder] = {}
"""Operation code → binder of its faster kernel."""


@dataclass
class Binding:
    """One operation to bind: its call, and the frame indexes of its operands."""

    call: Call
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    first_scratch: int
    buffers: list[tuple[tuple[int, ...], np.dtype[Any]]] = field(default_factory=list)
    """Shape and element type of the scratch buffers asked for so far."""
    fills: list[tuple[int, float]] = field(default_factory=list)
    """Frame index and value of scratch buffers that start filled and keep what the step leaves in them."""

    def index(self, name: str) -> int:
        """The frame index of a named input."""
        return next(i for i, arg in zip(self.inputs, self.call.args, strict=True) if arg.name == name)

    def scratch(self, shape: tuple[int, ...], dtype: npt.DTypeLike, fill: float | None = None) -> int:
        """A buffer that lives as long as the frame; gives its frame index.

        Without ``fill`` its content is undefined at each run and may be shared with other operations; with ``fill`` it
        is the operation's own.
        """
        index = self.first_scratch + len(self.buffers)
        self.buffers.append((shape, np.dtype(dtype)))
        if fill is not None:
            self.fills.append((index, fill))
        return index


def faster(code: OperationCode) -> Callable[[Binder], Binder]:
    """Register a binder for an operation."""

    def register(binder: Binder) -> Binder:
        assert code not in FASTER, f"{code.name} has two faster kernels"
        FASTER[code] = binder
        return binder

    return register


@dataclass(frozen=True, slots=True)
class Lease:
    """One buffer of the arena: its size in bytes, and the first and last step that need it."""

    index: int
    size: int
    first: int
    last: int


def plan_arena(leases: list[Lease], alignment: int = 64) -> tuple[dict[int, int], int]:
    """Offsets for buffers whose lifetimes are known, and the bytes that they take together.

    Greedy by size: each buffer goes to the lowest gap that no buffer alive at the same time occupies.
    """
    placed: list[tuple[int, int, Lease]] = []
    offsets: dict[int, int] = {}
    total = 0
    for lease in sorted(leases, key=lambda item: (-item.size, item.first)):
        size = math.ceil(lease.size / alignment) * alignment
        offset = 0
        for start, end, other in placed:
            if other.first <= lease.last and lease.first <= other.last and start < offset + size and offset < end:
                offset = end
        placed.append((offset, offset + size, lease))
        placed.sort(key=lambda item: item[0])
        offsets[lease.index] = offset
        total = max(total, offset + size)
    return offsets, total

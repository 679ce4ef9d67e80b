"""Kernels: how an operation computes.

A kernel is either a function of the whole :class:`Call` (it looks at values to decide what to compute) or *prepared*: in two
parts, as a driver has them. The first part, at ``prepareModel``, looks at types, parameters, dimensions and constants; the second
is a function of the data's arrays only.

Each operation has one kernel here, in NumPy: the one that its declaration decorates. It defines the operation's results. Compiled
kernels, which must equal it bit for bit in integers, are bound by :mod:`nnbridge.cpu.compiled.bindings`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from nnbridge.model import Array
from nnbridge.operations.call import Call
from nnbridge.records import dataclass

Function: TypeAlias = Callable[[Array], Array]
"""From one array to another."""

Compute: TypeAlias = "Callable[..., Array | Sequence[Array]]"
"""The second part of a prepared kernel: from the data's arrays, in the order of the arguments, to new arrays of results."""


@dataclass(frozen=True, slots=True)
class InPlace:
    """A second part that writes into buffers which the executor plans and reuses.

    ``write(buffers, *data)`` gets the outputs' arrays and then one array for each of ``scratch`` (shape and element type, of
    undefined content). It holds no state: threads share it.
    """

    write: Callable[..., None]
    scratch: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...] = ()

    def allocating(self, outs: Sequence[tuple[tuple[int, ...], Any]]) -> Compute:
        """The same as a function that allocates its buffers; ``outs`` are the shape and element type of each output."""
        count = len(outs)

        def compute(*data: Array) -> Sequence[Array]:
            buffers = [np.empty(*buffer) for buffer in (*outs, *self.scratch)]
            self.write(buffers, *data)
            return buffers[:count]

        return compute


@dataclass(frozen=True, slots=True)
class Prepared:
    """A kernel in two parts. ``data`` names the arguments of the second part, which threads may share."""

    prepare: Callable[[Call], Compute | InPlace]
    data: frozenset[str]

    def positions(self, call: Call) -> list[int]:
        """The positions of the data among the call's arguments."""
        return [i for i, (name, arg) in enumerate(zip(call.names, call.args, strict=True)) if arg.present and name in self.data]

    def ready(self, call: Call) -> bool:
        """True if everything but the data is known before a run."""
        pairs = zip(call.names, call.args, strict=True)
        return all(arg.constant or not arg.present or name in self.data for name, arg in pairs)

    def first_part(self, call: Call) -> Compute | InPlace:
        """Prepare for a call. The values of its data are hidden, so that what is prepared holds on to none of them."""
        pairs = zip(call.names, call.args, strict=True)
        args = tuple(arg.with_value(None, arg.dims) if name in self.data else arg for name, arg in pairs)
        return self.prepare(replace(call, args=args))


def prepared(*data: str) -> Callable[[Callable[[Call], Compute | InPlace]], Prepared]:
    """Declares the first part of a :class:`Prepared` kernel; ``data`` names the inputs that are arguments of the second part."""
    return lambda prepare: Prepared(prepare, frozenset(data))


Kernel: TypeAlias = "Prepared | Callable[[Call], Array | Sequence[Array]]"

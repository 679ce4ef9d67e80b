"""Kernels: how one computes, in which tiers an operation has one, and which of them an executor uses.

A kernel is either a function of the whole :class:`Call` (it looks at values to decide what to compute) or *prepared*: in two
parts, as a driver has them. The first part, at ``prepareModel``, looks at types, parameters, dimensions and constants; the second
is a function of the data's arrays alone.

Every operation has a kernel of the tier ``REFERENCE``, which its declaration registers. A higher tier adds prepared kernels and
need not cover everything::

    @kernel(OperationCode.FLOOR, Tier.COMPILED)
    @prepared("input")
    def fast_floor(call: Call) -> Function | None:
        return compiled_floor if call["input"].type == T.TENSOR_FLOAT32 else None

A first part that returns None, or raises, leaves the call to the next lower tier.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from nnbridge.errors import pass_shortage
from nnbridge.model import Array
from nnbridge.operations.call import Call


class Tier(enum.IntEnum):
    """How a kernel is implemented; a higher tier is preferred."""

    REFERENCE = 0
    """NumPy. Always there, and what every other tier must equal: bit for bit in integers."""
    COMPILED = 1
    """Machine code."""


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

    prepare: Callable[[Call], Compute | InPlace | None]
    data: frozenset[str]

    def positions(self, call: Call) -> list[int]:
        """Where the data stands among the call's arguments."""
        return [i for i, (name, arg) in enumerate(zip(call.names, call.args, strict=True)) if arg.present and name in self.data]

    def ready(self, call: Call) -> bool:
        """True if everything but the data is known before a run."""
        pairs = zip(call.names, call.args, strict=True)
        return all(arg.constant or not arg.present or name in self.data for name, arg in pairs)

    def first_part(self, call: Call) -> Compute | InPlace | None:
        """Prepare for a call. The values of its data are hidden, so that what is prepared holds on to none of them."""
        pairs = zip(call.names, call.args, strict=True)
        args = tuple(arg.with_value(None, arg.dims) if name in self.data else arg for name, arg in pairs)
        return self.prepare(replace(call, args=args))


def prepared(*data: str) -> Callable[[Callable[[Call], Compute | InPlace | None]], Prepared]:
    """Declares the first part of a :class:`Prepared` kernel; ``data`` names the inputs that are arguments of the second part."""
    return lambda prepare: Prepared(prepare, frozenset(data))


Kernel: TypeAlias = "Prepared | Callable[[Call], Array | Sequence[Array]]"

KERNELS: dict[int, dict[Tier, Kernel]] = {}
"""Operation code → its kernels by tier."""


def kernel(code: int, tier: Tier) -> Callable[[Kernel], Kernel]:
    """Register a kernel of an operation. Above ``REFERENCE`` it must be prepared."""

    def register(function: Kernel) -> Kernel:
        tiers = KERNELS.setdefault(code, {})
        assert tier not in tiers, f"operation {code} has two kernels of the tier {tier.name}"
        assert tier is Tier.REFERENCE or isinstance(function, Prepared), "a whole-call kernel of a higher tier"
        tiers[tier] = function
        return function

    return register


def select(call: Call, highest: Tier) -> tuple[Prepared, Compute | InPlace] | None:
    """The prepared kernel of the highest tier, up to this one, that computes a call, and its second part.

    None if there is none: values decide, or the call is refused, which the whole call reports when it runs.
    """
    tiers = KERNELS[call.definition.code]
    for tier in sorted(tiers, reverse=True):
        found = tiers[tier]
        if tier > highest or not isinstance(found, Prepared) or not found.ready(call):
            continue
        try:
            second = found.first_part(call)
        except Exception as error:
            pass_shortage(error)
            continue
        if second is not None:
            return found, second
    return None

"""Tables in place of arithmetic on 8-bit values.

Between two 8-bit values most of a quantised body dequantises, adds, multiplies, activates and quantises: functions of one or two
bytes, and of constants. Each is computed once for all bytes by the same functions, and looked up from then on: equal bit for bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from nnbridge.model import Array
from nnbridge.records import dataclass

Function: TypeAlias = Callable[..., Any]
"""From a node's arrays, parameters left out, to its result, or to a sequence of several results."""


@dataclass(frozen=True, slots=True)
class TableStep:
    """One node: the function of some inputs, by their places among the body's values."""

    kind: str
    compute: Function
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    elementwise: bool = False
    """True if each element of the result depends only on the same element of all inputs."""


_MOST_ENTRIES = 1 << 18
"""Of one table: a quarter of a megabyte, computed in some 10 ms."""
_MOST_LEAVES = 2


@dataclass(frozen=True)
class _Region:
    """The sources of a value: 8-bit values, and constants that broadcast to a shape."""

    leaves: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def fits(self) -> bool:
        """True if a table of it is small enough."""
        return 0 < len(self.leaves) <= _MOST_LEAVES and math.prod(self.shape) << 8 * len(self.leaves) <= _MOST_ENTRIES


class _Tables:
    def __init__(self, steps: Sequence[TableStep], constants: Sequence[Array | None], values: Sequence[Any]) -> None:
        self._constants, self._values = constants, values
        self._producers = {place: step for step in steps for place in step.outputs}

    def _is_byte(self, place: int) -> bool:
        value = self._values[place]
        return value is not None and value.dtype.itemsize == 1 and value.dtype.kind in "iu"

    def region(self, target: int, through: frozenset[int]) -> _Region | None:
        """The sources of a value, not stopping at bytes of ``through``; None if other values are among them."""
        leaves: dict[int, None] = {}
        shapes: list[tuple[int, ...]] = [()]
        open_places = [target]
        while open_places:
            place = open_places.pop()
            constant, step = self._constants[place], self._producers.get(place)
            if constant is not None:
                shapes.append(constant.shape)
            elif place != target and place not in through and self._is_byte(place):
                leaves[place] = None
            elif step is not None and step.elementwise:
                open_places += step.inputs
            else:
                return None
        return _Region(tuple(leaves), np.broadcast_shapes(*shapes))

    def widest(self, target: int, uses: Mapping[int, int]) -> tuple[_Region, frozenset[int]] | None:
        """The region of a value, beyond those bytes that nothing else reads, as far as its table stays small."""
        through: frozenset[int] = frozenset()
        found = self.region(target, through)
        if found is None or not found.fits:
            return None
        while True:
            for leaf in found.leaves:
                wider = self.region(target, through | {leaf}) if uses[leaf] == 1 else None
                if wider is not None and wider.fits:
                    found, through = wider, through | {leaf}
                    break
            else:
                return found, through

    def step(self, target: int, region: _Region) -> TableStep:
        """The look-up of a region."""
        count, shape = len(region.leaves), region.shape
        known: dict[int, Any] = {}
        for k, leaf in enumerate(region.leaves):
            every = np.arange(256, dtype=np.uint8).view(self._values[leaf].dtype)
            known[leaf] = every.reshape((1,) * (len(shape) + k) + (256,) + (1,) * (count - 1 - k))

        def value(place: int) -> Any:
            if place not in known:
                constant = self._constants[place]
                if constant is not None:
                    known[place] = constant.reshape((1,) * (len(shape) - constant.ndim) + constant.shape + (1,) * count)
                else:
                    step = self._producers[place]
                    known[place] = step.compute(*map(value, step.inputs))
            return known[place]

        with np.errstate(all="ignore"):
            table = np.ascontiguousarray(np.broadcast_to(value(target), (*shape, *(256,) * count)))
        rows = tuple(np.ogrid[tuple(slice(n) for n in shape)]) if shape else ()

        def look_up(*bytes_of: Any) -> Any:
            return table[rows + tuple([each.view(np.uint8) for each in bytes_of])]

        return TableStep("table", look_up, region.leaves, (target,))


def with_tables(
    steps: Sequence[TableStep], constants: Sequence[Array | None], values: Sequence[Any], outputs: Sequence[int]
) -> list[TableStep]:
    """The steps of a body with tables for its 8-bit regions; ``values`` are those of a run, for their types."""
    tables = _Tables(steps, constants, values)
    uses = Counter([i for step in steps for i in step.inputs] + list(outputs))
    found: list[TableStep] = []
    needed = set(outputs)
    for step in reversed(steps):
        target = step.outputs[0]
        if needed.isdisjoint(step.outputs):
            continue
        widest = tables.widest(target, uses) if step.kind == "QuantizeLinear" and step.elementwise else None
        chosen = step if widest is None else tables.step(target, widest[0])
        found.append(chosen)
        needed.update(chosen.inputs)
    return found[::-1]

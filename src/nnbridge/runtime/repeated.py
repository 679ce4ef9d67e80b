"""Small models that run again and again: runs that stay bound to arrays of their own.

What a run of a few operations costs is mostly what surrounds it: buffers, requests, the checks of answers. A combination of
inputs that came before is therefore copied into arrays that a bound run reads (see :meth:`PlanRunner.bound`), and its outputs
out of those that it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from nnbridge.devices.device import OutputShape
from nnbridge.model import Array, Model, input_name, output_name
from nnbridge.records import dataclass

_MOST_BYTES = 1 << 16
"""Of inputs and outputs: more take longer to copy than what is saved."""
MOST_KINDS = 16
"""Combinations of shapes that are remembered."""

Kind: TypeAlias = "tuple[Any, ...]"
"""Shapes and element types of all inputs."""


def kind_of(inputs: Sequence[Array | None]) -> Kind:
    """The kind of inputs that one bound run can compute."""
    return tuple([None if array is None else (array.shape, array.dtype.char) for array in inputs])


@dataclass(frozen=True, slots=True)
class BoundRun:
    """A run on arrays of its own, for one thread at a time."""

    inputs: Sequence[Array | None]
    outputs: Sequence[Array]
    shapes: tuple[OutputShape, ...]
    compute: Callable[[], None]

    def answers(self, inputs: Sequence[Array | None]) -> list[Array]:
        """Copies of the outputs; raises whatever the computation raises."""
        for place, array in zip(self.inputs, inputs, strict=True):
            if place is not None and array is not None:
                place[...] = array
        self.compute()
        return [array.copy() for array in self.outputs]


class RepeatedRuns:
    """A compilation's bound runs by their kind, and the names of its inputs and outputs."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._idle: dict[Kind, list[BoundRun] | None] = {}
        self.sizes: list[int | None] = [None] * len(model.main.outputs)
        """Bytes that outputs of open size needed last: the next run begins with as many, and computes nothing twice."""

    def __len__(self) -> int:
        """The number of remembered kinds."""
        return len(self._idle)

    @cached_property
    def inputs(self) -> list[str]:
        """Names of the inputs."""
        main = self._model.main
        return [input_name(main.operands[i], k) for k, i in enumerate(main.inputs)]

    @cached_property
    def outputs(self) -> list[tuple[int, str]]:
        """Numbers and names of the outputs that are no states."""
        main, own = self._model.main, set(self._model.own_outputs)
        return [(k, output_name(main.operands[i], k)) for k, i in enumerate(main.outputs) if i in own]

    def borrow(self, kind: Kind) -> BoundRun | None:
        """A bound run that no one computes, if there is one."""
        idle = self._idle.get(kind)
        try:
            return idle.pop() if idle else None
        except IndexError:  # Another thread was faster.
            return None

    def put(self, kind: Kind, run: BoundRun | None) -> None:
        """Bring a run back, or a new one; None to compute this kind the whole way from now on."""
        idle = self._idle.get(kind)
        if run is None:
            self._idle[kind] = None
        elif idle is not None:
            idle.append(run)

    def is_worthwhile(self, kind: Kind, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> bool:
        """True if a run that took the whole way is to be bound for its like: the kind came before, and is small."""
        idle = self._idle.get(kind, ())
        if idle != ():
            return idle is not None
        while len(self._idle) >= MOST_KINDS:
            # A list is made in one go, where an iterator would see the other threads' changes.
            self._idle.pop(next(iter(list(self._idle)), kind), None)
        size = sum(array.nbytes for array in (*inputs, *outputs) if array is not None)
        self._idle[kind] = [] if size <= _MOST_BYTES else None
        return False

"""Cutting a part out of a file's graph: the operators between tensors, whatever the format."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from nnbridge.records import dataclass

Tensor = TypeVar("Tensor", bound=Hashable)


@dataclass(frozen=True)
class Excerpt(Generic[Tensor]):
    """A part of a graph."""

    operators: tuple[int, ...]
    """In the graph's order."""
    inputs: tuple[Tensor, ...]
    """What the operators read that is not a constant and that none of them computes."""


def cut(
    outputs: Iterable[Tensor],
    inputs: Collection[Tensor],
    producers: Mapping[Tensor, int],
    reads: Sequence[Iterable[Tensor]],
    constant: Callable[[Tensor], bool],
) -> Excerpt[Tensor]:
    """The operators that compute ``outputs`` from ``inputs``; they go back to the graph's own inputs where those are not enough.

    ``producers``: tensor → operator; ``reads``: the tensors that each operator reads.
    """
    found: set[int] = set()
    read: dict[Tensor, None] = {}
    waiting = [producers[tensor] for tensor in outputs]
    while waiting:
        operator = waiting.pop()
        if operator in found:
            continue
        found.add(operator)
        for tensor in reads[operator]:
            if tensor not in inputs and tensor in producers:
                waiting.append(producers[tensor])
            elif not constant(tensor):
                read[tensor] = None
    return Excerpt(tuple(sorted(found)), tuple(tensor for tensor in read if producers.get(tensor) not in found))

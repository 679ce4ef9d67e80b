"""Searches over sets of operations, of which each test is a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

_Item = TypeVar("_Item")


def shortest_prefix(count: int, shows: Callable[[int], bool]) -> int | None:
    """The smallest k from 1 to ``count`` for which ``shows(k)``, as if it held from there on; None if there is none.

    ``shows`` is called ⌈log2(count + 1)⌉ times at most.
    """
    low, high = 0, count + 1
    while high - low > 1:
        middle = (low + high) // 2
        if shows(middle):
            high = middle
        else:
            low = middle
    return None if high > count else high


def minimised(items: Sequence[_Item], holds: Callable[[tuple[_Item, ...]], bool]) -> tuple[_Item, ...]:
    """Items without any of which ``holds`` is false, if it is true for all of them (Zeller and Hildebrandt's ddmin, 2002).

    The items keep their order; none is tested twice in the same company.
    """
    known: dict[tuple[_Item, ...], bool] = {}

    def test(chosen: tuple[_Item, ...]) -> bool:
        if chosen not in known:
            known[chosen] = bool(chosen) and holds(chosen)
        return known[chosen]

    left, pieces = tuple(items), 2
    while len(left) > 1:
        bounds = [len(left) * k // pieces for k in range(pieces + 1)]
        parts = [(left[a:b], left[:a] + left[b:]) for a, b in pairwise(bounds)]
        alone = next((inside for inside, _ in parts if test(inside)), None)
        without = None if alone is not None or pieces == 2 else next((outside for _, outside in parts if test(outside)), None)
        if alone is not None:
            left, pieces = alone, 2
        elif without is not None:
            left, pieces = without, max(pieces - 1, 2)
        elif pieces == len(left):
            break
        else:
            pieces = min(2 * pieces, len(left))
    return left

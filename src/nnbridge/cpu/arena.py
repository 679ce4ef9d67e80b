"""One block of memory for all buffers whose sizes and lifetimes are known before a run."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from nnbridge.model import Array

ALIGNMENT = 64

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Lease(Generic[Key]):
    """One buffer: its index or another key, its size in bytes, and the first and last step that need it."""

    index: Key
    size: int
    first: int
    last: int


def plan_arena(leases: Sequence[Lease[Key]]) -> tuple[dict[Key, int], int]:
    """The offset of each buffer by its index, and the bytes of all together.

    Greedy by size: each buffer goes to the lowest gap that no buffer alive at the same time occupies.
    """
    placed: list[tuple[int, int, int, Lease[Key]]] = []
    offsets: dict[Key, int] = {}
    for number, lease in enumerate(sorted(leases, key=lambda item: (-item.size, item.first))):
        size = math.ceil(lease.size / ALIGNMENT) * ALIGNMENT
        offset = 0
        for start, end, _, other in placed:
            if other.first <= lease.last and lease.first <= other.last and start < offset + size and offset < end:
                offset = end
        insort(placed, (offset, offset + size, number, lease))
        offsets[lease.index] = offset
    return offsets, max((end for _, end, *_ in placed), default=0)


def allocate(size: int, make: Callable[..., Array] = np.empty) -> Array:
    """An aligned array of so many bytes, of undefined content unless ``make`` is ``np.zeros``."""
    raw = make(size + ALIGNMENT, np.uint8)
    start = -raw.__array_interface__["data"][0] % ALIGNMENT
    return raw[start : start + size]

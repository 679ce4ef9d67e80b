"""One block of memory for all buffers whose sizes and lifetimes are known before a run."""

from __future__ import annotations

import ctypes
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from typing import Generic, TypeVar

import numpy as np

from nnbridge.model import Array
from nnbridge.records import dataclass

ALIGNMENT = 64
_MAX_PAIRS = 1 << 18
"""Of buffers that are alive at the same time: all of 700 buffers, or the neighbours in a chain of 100,000."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Lease(Generic[Key]):
    """One buffer: its index or another key, its size in bytes, and the first and last step that need it."""

    index: Key
    size: int
    first: int
    last: int


def plan_arena(leases: Sequence[Lease[Key]]) -> tuple[dict[Key, int], int]:
    """The offset of each buffer by its index, and the bytes of all together."""
    offsets, size = _placed(tuple([(lease.size, lease.first, lease.last) for lease in leases]))
    return {lease.index: offset for lease, offset in zip(leases, offsets, strict=True)}, size


@lru_cache(maxsize=32)
def _placed(leases: tuple[tuple[int, int, int], ...]) -> tuple[Sequence[int], int]:
    """Offsets of buffers of so many bytes, needed from a first to a last step, and the bytes of all together.

    Greedy by size: each buffer goes to the lowest gap that no buffer alive at the same time occupies. Where too many are alive
    at the same time for that, in the order of the steps.
    """
    sizes = [-(-size // ALIGNMENT) * ALIGNMENT for size, _, _ in leases]
    neighbours = _neighbours(leases)
    if neighbours is None:
        return _in_order(sizes, leases)
    offsets = [-1] * len(leases)
    for index in sorted(range(len(leases)), key=lambda i: (-leases[i][0], leases[i][1])):
        size, offset = sizes[index], 0
        for start, end in sorted((offsets[i], offsets[i] + sizes[i]) for i in neighbours[index] if offsets[i] >= 0):
            if start < offset + size and offset < end:
                offset = end
        offsets[index] = offset
    return offsets, max((offset + size for offset, size in zip(offsets, sizes, strict=True)), default=0)


def _neighbours(leases: Sequence[tuple[int, int, int]]) -> Sequence[Sequence[int]] | None:
    """For each buffer those that are alive at the same time; None for more than _MAX_PAIRS pairs."""
    found: list[list[int]] = [[] for _ in leases]
    alive: list[tuple[int, int]] = []
    """The last step and the index of buffers, those that end first in front."""
    left = _MAX_PAIRS
    for index in sorted(range(len(leases)), key=lambda i: leases[i][1]):
        _, first, last = leases[index]
        while alive and alive[0][0] < first:
            heappop(alive)
        left -= len(alive)
        if left < 0:
            return None
        for _, other in alive:
            found[index].append(other)
            found[other].append(index)
        heappush(alive, (last, index))
    return found


def _in_order(sizes: Sequence[int], leases: Sequence[tuple[int, int, int]]) -> tuple[Sequence[int], int]:
    """Offsets of buffers that are placed as steps need them: each into the smallest gap that it fits into, else at the end."""
    offsets = [0] * len(leases)
    gaps: list[tuple[int, int]] = []
    """Size and offset, the smallest first."""
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    """Where a gap begins → its size; where it ends → its size."""
    alive: list[tuple[int, int]] = []
    end = 0

    def take(offset: int, size: int) -> None:
        del gaps[bisect_left(gaps, (size, offset))], begins[offset], ends[offset + size]

    def give(offset: int, size: int) -> None:
        if offset in ends:
            before = ends[offset]
            take(offset - before, before)
            offset, size = offset - before, size + before
        if offset + size in begins:
            behind = begins[offset + size]
            take(offset + size, behind)
            size += behind
        insort(gaps, (size, offset))
        begins[offset] = ends[offset + size] = size

    for index in sorted(range(len(leases)), key=lambda i: (leases[i][1], -leases[i][0])):
        _, first, last = leases[index]
        while alive and alive[0][0] < first:
            _, ended = heappop(alive)
            if sizes[ended]:
                give(offsets[ended], sizes[ended])
        size, at = sizes[index], bisect_left(gaps, (sizes[index], 0))
        if not size:
            continue
        if at < len(gaps):
            gap, offsets[index] = gaps[at]
            take(offsets[index], gap)
            if gap > size:
                give(offsets[index] + size, gap - size)
        else:
            offsets[index], end = end, end + size
        heappush(alive, (last, index))
    return offsets, end


class _Interface(ctypes.Structure):
    """The record that an array's ``__array_struct__`` points to, as NumPy's array interface defines it."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("kind", ctypes.c_char),
        ("item_size", ctypes.c_int),
        ("flags", ctypes.c_int),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("data", ctypes.c_size_t),
    )


_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_interface_at = _Interface.from_address


def address_of(array: Array) -> int:
    """The address of an array's bytes, in a third of the time that ``array.ctypes`` or ``__array_interface__`` takes."""
    capsule = array.__array_struct__  # what it points to is freed with it
    address: int = _interface_at(_pointer(capsule, None)).data
    return address


def allocate(size: int, make: Callable[..., Array] = np.empty) -> Array:
    """An aligned array of so many bytes, of undefined content unless ``make`` is ``np.zeros``."""
    raw = make(size + ALIGNMENT, np.uint8)
    start = -address_of(raw) % ALIGNMENT
    return raw[start : start + size]

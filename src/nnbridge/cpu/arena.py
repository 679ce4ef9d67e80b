"""One block of memory for all buffers whose sizes and lifetimes are known before a run."""

from __future__ import annotations

import ctypes
from bisect import insort
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
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
    """The offset of each buffer by its index, and the bytes of all together."""
    offsets, size = _placed(tuple([(lease.size, lease.first, lease.last) for lease in leases]))
    return {lease.index: offset for lease, offset in zip(leases, offsets, strict=True)}, size


@lru_cache(maxsize=32)
def _placed(leases: tuple[tuple[int, int, int], ...]) -> tuple[Sequence[int], int]:
    """Offsets of buffers of so many bytes, needed from a first to a last step, and the bytes of all together.

    Greedy by size: each buffer goes to the lowest gap that no buffer alive at the same time occupies.
    """
    placed: list[tuple[int, int, int, int, int]] = []
    offsets = [0] * len(leases)
    for number, index in enumerate(sorted(range(len(leases)), key=lambda i: (-leases[i][0], leases[i][1]))):
        size, first, last = leases[index]
        size = -(-size // ALIGNMENT) * ALIGNMENT
        offset = 0
        for start, end, _, other_first, other_last in placed:
            if other_first <= last and first <= other_last and start < offset + size and offset < end:
                offset = end
        insort(placed, (offset, offset + size, number, first, last))
        offsets[index] = offset
    return offsets, max((end for _, end, *_ in placed), default=0)


class _Interface(ctypes.Structure):
    """What an array's ``__array_struct__`` points to, as NumPy's array interface lays it down."""

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
    """Where an array's bytes begin, in a third of the time that ``array.ctypes`` or ``__array_interface__`` takes."""
    capsule = array.__array_struct__  # what it points to is freed with it
    address: int = _interface_at(_pointer(capsule, None)).data
    return address


def allocate(size: int, make: Callable[..., Array] = np.empty) -> Array:
    """An aligned array of so many bytes, of undefined content unless ``make`` is ``np.zeros``."""
    raw = make(size + ALIGNMENT, np.uint8)
    start = -address_of(raw) % ALIGNMENT
    return raw[start : start + size]

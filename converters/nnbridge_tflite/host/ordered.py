"""Float arithmetic of TFLite's reference kernels: sums in their order, and the functions of the machine's C library.

TFLite's reference kernels add products one by one in float32, without fused multiply-add on x86-64, and call the C library's
``expf`` and its like. NumPy's matrix products and functions differ from these in the last bits.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache

import numpy as np

from nnbridge.model import Array

_ROWS = 2048
"""Rows of products that are summed at once: they stay in the processor's cache."""


def dots(left: Array, right: Array) -> Array:
    """``left @ right`` of float32 matrices, each element summed in order from 0."""
    if len(left) < right.shape[1]:
        return _outer_sums(left, right)
    sums = np.empty((right.shape[1], len(left)), np.float32)
    columns = np.ascontiguousarray(right.T)
    for start in range(0, len(left), _ROWS):
        sums[:, start : start + _ROWS] = _outer_sums(columns, left[start : start + _ROWS].T)
    return sums.T


def _outer_sums(left: Array, right: Array) -> Array:
    """The same, by outer products; fastest where ``right`` is wide."""
    steps, rows = np.ascontiguousarray(left.T)[:, :, np.newaxis], np.ascontiguousarray(right)
    sums = np.zeros((len(left), right.shape[1]), np.float32)
    product = np.empty_like(sums)
    for column, row in zip(steps, rows, strict=True):
        np.multiply(column, row, out=product)
        np.add(sums, product, out=sums)
    return sums


def total(terms: Array, axis: int = -1) -> Array:
    """Sums along an axis in order, from 0; the axis stays with size 1."""
    if not terms.shape[axis]:
        return np.zeros_like(terms, shape=tuple(1 if k == axis % terms.ndim else d for k, d in enumerate(terms.shape)))
    running: Array = np.add.accumulate(terms, axis, dtype=np.float32)
    return np.take(running, [-1], axis) + np.float32(0)


def function(name: str) -> Callable[..., Array]:
    """A function of the C library, such as ``expf``, of one float32 array or of two that broadcast."""

    def apply(*arrays: Array) -> Array:
        broadcast = np.broadcast_arrays(*(np.asarray(array, np.float32) for array in arrays))
        values = map(_of_c_library(name, len(broadcast)), *(array.ravel().tolist() for array in broadcast))
        return np.fromiter(values, np.float32, broadcast[0].size).reshape(broadcast[0].shape)

    return apply


@cache
def _of_c_library(name: str, count: int) -> Callable[..., float]:
    # What Python itself is linked with: its search for a library may run programs, a linker and a compiler.
    found = getattr(ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None), name)
    found.restype, found.argtypes = ctypes.c_float, [ctypes.c_float] * count
    return found


EXP, LOG, TANH, SIN, COS = map(function, ("expf", "logf", "tanhf", "sinf", "cosf"))
ERFC = function("erfcf")
POW, ATAN2 = function("powf"), function("atan2f")

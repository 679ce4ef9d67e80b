"""FarmHash's ``Fingerprint64`` (the portable "na" variant) of many byte strings of equal length at once.

Used by LSH_PROJECTION, whose results depend on this very function.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]

_K0, _K1, _K2 = (np.uint64(k) for k in (0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F))


def fingerprint64(rows: npt.NDArray[np.uint8]) -> U64:
    """Fingerprints of the rows of a byte matrix [count, length]."""
    rows = np.ascontiguousarray(rows)
    length = rows.shape[1]
    with np.errstate(over="ignore"):
        if length <= 16:
            return _up_to_16(rows, length)
        if length <= 32:
            return _up_to_32(rows, length)
        if length <= 64:
            return _up_to_64(rows, length)
        return _longer(rows, length)


def _word(rows: npt.NDArray[np.uint8], at: int, size: int = 8) -> U64:
    """The little-endian word at an offset of every row."""
    part = np.ascontiguousarray(rows[:, at : at + size])
    return part.view(f"<u{size}").reshape(-1).astype(np.uint64)


def _rotate(x: U64, bits: int) -> U64:
    return (x >> np.uint64(bits)) | (x << np.uint64(64 - bits))


def _mix(x: U64) -> U64:
    return x ^ (x >> np.uint64(47))


def _join(u: U64, v: U64, multiplier: U64 | np.uint64) -> U64:
    a = _mix((u ^ v) * multiplier)
    return _mix((v ^ a) * multiplier) * multiplier


def _multiplier(length: int) -> np.uint64:
    return np.uint64((int(_K2) + 2 * length) % 2**64)


def _up_to_16(rows: npt.NDArray[np.uint8], length: int) -> U64:
    multiplier = _multiplier(length)
    if length >= 8:
        a, b = _word(rows, 0) + _K2, _word(rows, length - 8)
        return _join(_rotate(b, 37) * multiplier + a, (_rotate(a, 25) + b) * multiplier, multiplier)
    if length >= 4:
        first = np.uint64(length) + (_word(rows, 0, 4) << np.uint64(3))
        return _join(first, _word(rows, length - 4, 4), multiplier)
    if length > 0:
        a, b, c = (rows[:, i].astype(np.uint64) for i in (0, length >> 1, length - 1))
        y, z = a + (b << np.uint64(8)), np.uint64(length) + (c << np.uint64(2))
        return _mix(y * _K2 ^ z * _K0) * _K2
    return np.full(len(rows), _K2)


def _ends(rows: npt.NDArray[np.uint8], length: int, first: np.uint64) -> tuple[U64, U64, U64, U64]:
    multiplier = _multiplier(length)
    return (_word(rows, 0) * first, _word(rows, 8), _word(rows, length - 8) * multiplier, _word(rows, length - 16) * _K2)


def _up_to_32(rows: npt.NDArray[np.uint8], length: int) -> U64:
    a, b, c, d = _ends(rows, length, _K1)
    return _join(_rotate(a + b, 43) + _rotate(c, 30) + d, a + _rotate(b + _K2, 18) + c, _multiplier(length))


def _up_to_64(rows: npt.NDArray[np.uint8], length: int) -> U64:
    multiplier = _multiplier(length)
    a, b, c, d = _ends(rows, length, _K2)
    y = _rotate(a + b, 43) + _rotate(c, 30) + d
    z = _join(y, a + _rotate(b + _K2, 18) + c, multiplier)
    e, f = _word(rows, 16) * multiplier, _word(rows, 24)
    g, h = (y + _word(rows, length - 32)) * multiplier, (z + _word(rows, length - 24)) * multiplier
    return _join(_rotate(e + f, 43) + _rotate(g, 30) + h, e + _rotate(f + a, 18) + g, multiplier)


def _weak(rows: npt.NDArray[np.uint8], at: int, a: U64, b: U64) -> tuple[U64, U64]:
    """Mix 32 bytes into two seeds."""
    w, x, y, z = (_word(rows, at + 8 * i) for i in range(4))
    a = a + w
    b = _rotate(b + a + z, 21)
    c = a
    a = a + x + y
    b = b + _rotate(a, 44)
    return a + z, b + c


def _round(
    rows: npt.NDArray[np.uint8], at: int, x: U64, y: U64, z: U64, v: tuple[U64, U64], w: tuple[U64, U64], last: U64 | None
) -> tuple[U64, U64, U64, tuple[U64, U64], tuple[U64, U64]]:
    """One block of 64 bytes; ``last`` is the multiplier of the final block."""
    multiplier: U64 | np.uint64 = _K1 if last is None else last
    nine = np.uint64(1 if last is None else 9)
    x = _rotate(x + y + v[0] + _word(rows, at + 8), 37) * multiplier
    y = _rotate(y + v[1] + _word(rows, at + 48), 42) * multiplier
    x = x ^ (w[1] * nine)
    y = y + v[0] * nine + _word(rows, at + 40)
    z = _rotate(z + w[0], 33) * multiplier
    v = _weak(rows, at, v[1] * multiplier, x + w[0])
    w = _weak(rows, at + 32, z + w[1], y + _word(rows, at + 16))
    return z, y, x, v, w


def _longer(rows: npt.NDArray[np.uint8], length: int) -> U64:
    def constant(value: int) -> U64:
        return np.full(len(rows), value % 2**64, np.uint64)

    seed = 81
    y = constant(seed * int(_K1) + 113)
    z = _mix(y * _K2 + np.uint64(113)) * _K2
    x = constant(seed) * _K2 + _word(rows, 0)
    v = w = (constant(0), constant(0))
    end = (length - 1) // 64 * 64
    for at in range(0, end, 64):
        x, y, z, v, w = _round(rows, at, x, y, z, v, w, None)
    multiplier = _K1 + ((z & np.uint64(0xFF)) << np.uint64(1))
    first_w = w[0] + np.uint64((length - 1) & 63)
    first_v = v[0] + first_w
    w, v = (first_w + first_v, w[1]), (first_v, v[1])
    x, y, z, v, w = _round(rows, length - 64, x, y, z, v, w, multiplier)
    left = _join(v[0], w[0], multiplier) + _mix(y) * _K0 + z
    return _join(left, _join(v[1], w[1], multiplier) + x, multiplier)

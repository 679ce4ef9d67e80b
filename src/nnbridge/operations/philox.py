"""The random numbers of RANDOM_MULTINOMIAL: Philox 4x32-10, seeded and read as TensorFlow does.

Philox (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011) maps a counter of four words and a key of
two into four random words, so that any stretch of the stream is one vectorised expression.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]

_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox(counters: npt.ArrayLike, key: tuple[int, int]) -> U64:
    """Random 32-bit words [..., 4] for counters [..., 4] of 32-bit words and a key of two."""
    words = np.asarray(counters, np.uint64)
    c0, c1, c2, c3 = (words[..., i] for i in range(4))
    for k in range(_ROUNDS):
        key0, key1 = (np.uint64((start + k * step) & 0xFFFFFFFF) for start, step in zip(key, _KEY_STEPS, strict=True))
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (second >> _32) ^ c1 ^ key0, second & _LOW, (first >> _32) ^ c3 ^ key1, first & _LOW
    return np.stack([c0, c1, c2, c3], axis=-1)


def uniform(count: int, seeds: tuple[int, int]) -> npt.NDArray[np.float64]:
    """The first ``count`` doubles in [0, 1) of the stream that two 64-bit seeds name (negative ones wrap).

    The first seed is the key, the second the upper half of the counter; two words are the 52 bits of a double.
    """
    low, high = (seed % 2**64 for seed in seeds)
    block = np.arange((count + 1) // 2, dtype=np.uint64)
    counters = np.empty((len(block), 4), np.uint64)
    counters[:, 0], counters[:, 1] = block & _LOW, block >> _32
    counters[:, 2], counters[:, 3] = high & 0xFFFFFFFF, high >> 32
    pairs = philox(counters, (low & 0xFFFFFFFF, low >> 32)).reshape(-1, 2)[:count]
    mantissa = ((pairs[:, 0] & np.uint64(0xFFFFF)) << _32) | pairs[:, 1]
    return mantissa * 2.0**-52

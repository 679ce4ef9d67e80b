"""Random numbers: the streams that two seeds name, as TFLite draws them; unpredictable without seeds."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np

from nnbridge.operations.philox import philox
from nnbridge_tflite.kernels import STATES, Array, Options, Tensors, given, integers, kernel


def _seeds(options: Options) -> tuple[int, int]:
    low, high = (_signed_32(int(options.get(name) or 0)) % 2**64 for name in ("seed", "seed2"))
    return (low, high) if low or high else (secrets.randbits(64), secrets.randbits(64))


def _signed_32(seed: int) -> int:
    """LiteRT keeps 32 bits of a file's 64."""
    return (seed + 2**31) % 2**32 - 2**31


def _start(inputs: Tensors, options: Options) -> int:
    """How many blocks of the stream earlier runs have used: the last input, where that is a state."""
    return int(given(inputs[-1]).reshape(-1)[0]) if options.get(STATES) else 0


def _words(start: int, blocks: int, seeds: tuple[int, int]) -> Array:
    """Random 32-bit words, four from each block."""
    low, high = seeds
    block = start + np.arange(blocks, dtype=np.uint64)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    upper = [np.full(blocks, part, np.uint64) for part in (high & 0xFFFFFFFF, high >> 32)]
    return philox(np.stack([block & mask, block >> half, *upper], axis=-1), (low & 0xFFFFFFFF, low >> 32)).reshape(-1)


def _floats(words: Array) -> Array:
    """Floats in [0, 1) of 23 random bits each."""
    return ((words & np.uint64(0x7FFFFF)) * 2.0**-23).astype(np.float32)


def _left(start: int, blocks: int) -> Array:
    return np.array([start + blocks], np.int64)


@kernel("RANDOM_UNIFORM")
def random_uniform(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Uniform numbers in [0, 1), and how much of the stream is used."""
    shape, start = integers(inputs[0]), _start(inputs, options)
    count = int(np.prod(shape))
    blocks = -(-count // 4)
    return [_floats(_words(start, blocks, _seeds(options)))[:count].reshape(shape), _left(start, blocks)]


@kernel("RANDOM_STANDARD_NORMAL")
def random_normal(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Normal numbers, by Box and Muller, and how much of the stream is used."""
    shape, start = integers(inputs[0]), _start(inputs, options)
    count = int(np.prod(shape))
    blocks = -(-count // 4)
    pairs = _floats(_words(start, blocks, _seeds(options))).reshape(-1, 2)
    radius = np.sqrt(-2 * np.log(np.maximum(pairs[:, 0], np.float32(1e-7))))
    angle = np.float32(2 * np.pi) * pairs[:, 1]
    normal = np.stack([np.sin(angle) * radius, np.cos(angle) * radius], axis=-1).reshape(-1)
    return [normal[:count].reshape(shape), _left(start, blocks)]


SKIPPED = 2 * 256
"""Blocks that LiteRT's MULTINOMIAL leaves behind for each sample, of which a run counts whole fours."""


@kernel("MULTINOMIAL")
def multinomial(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """For each row of logits so many classes, each as likely as its logit says; and how much of the stream is used."""
    logits, count, start = given(inputs[0]).astype(np.float64), integers(inputs[1])[0], _start(inputs, options)
    possible = np.where(np.isfinite(logits), logits, -np.inf)
    sums = np.cumsum(np.exp(possible - possible.max(axis=1, keepdims=True)), axis=1)
    wanted = len(logits) * count
    pairs = _words(start, -(-wanted // 2), _seeds(options)).reshape(-1, 2)[:wanted]
    # Two words make the 52 bits of a double.
    doubles = ((pairs[:, 0] & np.uint64(0xFFFFF)) * 2.0**32 + pairs[:, 1]) * 2.0**-52
    draws = doubles.reshape(len(logits), count) * sums[:, -1:]
    chosen = np.stack([np.searchsorted(row, drawn, "right") for row, drawn in zip(sums, draws, strict=True)])
    return [chosen, _left(start, len(logits) * ((count + 3) // 4 * 4) * SKIPPED)]

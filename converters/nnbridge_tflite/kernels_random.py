"""Random numbers: the streams that two seeds name, as TFLite draws them on its first run; unpredictable without seeds."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np

from nnbridge.operations.philox import philox, uniform
from nnbridge_tflite.kernels import Array, Options, Tensors, given, integers, kernel


def _seeds(options: Options) -> tuple[int, int]:
    low, high = (_signed_32(int(options.get(name) or 0)) % 2**64 for name in ("seed", "seed2"))
    return (low, high) if low or high else (secrets.randbits(64), secrets.randbits(64))


def _signed_32(seed: int) -> int:
    """LiteRT keeps 32 bits of a file's 64."""
    return (seed + 2**31) % 2**32 - 2**31


def _floats(count: int, seeds: tuple[int, int]) -> Array:
    """Floats in [0, 1) of 23 random bits each, in whole blocks of four."""
    low, high = seeds
    block = np.arange(-(-count // 4), dtype=np.uint64)
    halves = [np.full(len(block), part, np.uint64) for part in (high & 0xFFFFFFFF, high >> 32)]
    words = philox(np.stack([block, np.zeros_like(block), *halves], axis=-1), (low & 0xFFFFFFFF, low >> 32))
    return ((words.reshape(-1) & np.uint64(0x7FFFFF)) * 2.0**-23).astype(np.float32)


@kernel("RANDOM_UNIFORM")
def random_uniform(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Uniform numbers in [0, 1)."""
    shape = integers(inputs[0])
    count = int(np.prod(shape))
    return [_floats(count, _seeds(options))[:count].reshape(shape)]


@kernel("RANDOM_STANDARD_NORMAL")
def random_normal(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Normal numbers, by Box and Muller."""
    shape = integers(inputs[0])
    count = int(np.prod(shape))
    pairs = _floats(count, _seeds(options)).reshape(-1, 2)
    radius = np.sqrt(-2 * np.log(np.maximum(pairs[:, 0], np.float32(1e-7))))
    angle = np.float32(2 * np.pi) * pairs[:, 1]
    return [np.stack([np.sin(angle) * radius, np.cos(angle) * radius], axis=-1).reshape(-1)[:count].reshape(shape)]


@kernel("MULTINOMIAL")
def multinomial(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """For each row of logits so many classes, each as likely as its logit says."""
    logits, count = given(inputs[0]).astype(np.float64), integers(inputs[1])[0]
    possible = np.where(np.isfinite(logits), logits, -np.inf)
    sums = np.cumsum(np.exp(possible - possible.max(axis=1, keepdims=True)), axis=1)
    draws = uniform(len(logits) * count, _seeds(options)).reshape(len(logits), count) * sums[:, -1:]
    return [np.stack([np.searchsorted(row, drawn, "right") for row, drawn in zip(sums, draws, strict=True)])]

"""Files with random damage: a model or one of our errors, quickly."""

from __future__ import annotations

import contextlib
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from nnbridge.converters import ConversionOptions
from nnbridge.errors import ConversionError
from nnbridge_tflite.convert import convert
from nnbridge_tflite.reader import read
from tests.tflite.cases import cases
from tests.tflite.shared import FOLDER

REAL = ("hello_world_float", "micro_speech_quantized", "two_signature_keys", "split_concat", "mnist_lstm_float", "kws_ref_model")
LARGE = 256
"""Bytes; the inside of larger constants is left alone, because damage there changes nothing."""
SECONDS = 1.0
BATCHES, PER_BATCH = 20, 250


@cache
def _real(name: str) -> tuple[bytes, np.ndarray]:
    path = FOLDER / f"{name}.tflite"
    return path.read_bytes(), _structure(path)


def _structure(path: Path) -> np.ndarray:
    """Positions of bytes that are not inside a large constant."""
    file = read(path)
    kept = np.ones(path.stat().st_size, bool)
    for subgraph in file.graph.subgraphs:
        for tensor in subgraph.tensors:
            if tensor.data is not None and tensor.data.length > LARGE:
                kept[tensor.data.offset : tensor.data.offset + tensor.data.length] = False
    return np.flatnonzero(kept)


def _damaged(content: bytes, places: np.ndarray, rng: np.random.Generator) -> bytes:
    made = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.choice(places))
        kind = rng.integers(4)
        if kind == 0:
            made[at] = int(rng.integers(256))
        elif kind == 1:
            made[at] ^= 1 << int(rng.integers(8))
        elif kind == 2:
            word = int(rng.choice([0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, len(content)]))
            made[at : at + 4] = word.to_bytes(4, "little")
        else:
            source = int(rng.choice(places))
            made[at : at + 4] = made[source : source + 4]
    return bytes(made[: len(content)])


@pytest.mark.parametrize("batch", range(BATCHES))
def test_damaged_files_give_a_model_or_our_error(batch: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(batch)
    sources = [_real(name) for name in REAL if (FOLDER / f"{name}.tflite").is_file()]
    for case in rng.choice(np.array(cases(), dtype=object), 3):
        for type in case.types[:1]:
            path = case.write(tmp_path, type)
            sources.append((path.read_bytes(), _structure(path)))
    path = tmp_path / "damaged.tflite"
    for i in range(PER_BATCH):
        content, places = sources[i % len(sources)]
        path.write_bytes(_damaged(content, places, rng))
        started = time.perf_counter()
        with contextlib.suppress(ConversionError):
            convert(path, ConversionOptions(mapping=("wide", "delegate")[i % 2], feature_level=1 + i % 8))
        assert time.perf_counter() - started < SECONDS

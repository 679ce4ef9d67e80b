"""Damaged files: a model with a plan or one of our errors, quickly and in little memory."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.hostile import require_good
from tests.tflite.cases import cases
from tests.tflite.mutations import Source
from tests.tflite.shared import FOLDER

REAL = ("hello_world_float", "micro_speech_quantized", "two_signature_keys", "split_concat", "mnist_lstm_float", "kws_ref_model")
BATCHES, PER_BATCH = 20, 250


@cache
def _real() -> list[Source]:
    return [Source(path) for name in REAL if (path := FOLDER / f"{name}.tflite").is_file()]


@pytest.mark.parametrize("batch", range(BATCHES))
def test_damaged_files_give_a_model_or_our_error(batch: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(batch)
    sources = list(_real())
    typed = np.array([case for case in cases() if case.types], object)
    for i, case in enumerate(rng.choice(typed, 3)):
        (tmp_path / str(i)).mkdir()
        sources.append(Source(case.write(tmp_path / str(i), case.types[0])))
    require_good(sources, rng, tmp_path / "damaged.tflite", PER_BATCH)

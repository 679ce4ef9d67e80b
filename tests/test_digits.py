"""The models of the repository: every variant on every sample driver, against stored reference outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnbridge.compare import load_arrays, stored_samples
from nnbridge.devices import drivers
from nnbridge.file import load
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from tests.conftest import MODELS

VARIANTS = sorted(MODELS.glob("digits_*.tflite"))


def answers(path: Path, device: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """nnbridge's outputs, the reference's, and the labels."""
    model = load(path)
    compilation = Compilation.create(model, [drivers()[device]])
    compilation.finish()
    stored = path.with_name(f"{path.stem}.litert.npz")
    samples = list(stored_samples(model, stored))
    ours = [next(iter(Execution(compilation).run(s.inputs).values())) for s in samples]
    theirs = [next(iter(s.outputs.values())) for s in samples]  # type: ignore[union-attr]
    return np.stack(ours), np.stack(theirs), load_arrays(stored)["labels"]


@pytest.mark.parametrize("device", range(len(drivers())), ids=lambda i: drivers()[i].name)
@pytest.mark.parametrize("path", VARIANTS, ids=lambda p: p.stem)
def test_no_variant_loses_a_digit_against_litert(path: Path, device: int) -> None:
    ours, theirs, labels = answers(path, device)
    right = [(outputs.reshape(len(labels), -1).argmax(axis=1) == labels).sum() for outputs in (ours, theirs)]
    assert right[0] >= right[1]


@pytest.mark.parametrize("path", [p for p in VARIANTS if p.stem in ("digits_float32", "digits_uint8", "digits_int8")])
def test_answers_are_within_tolerance_of_litert(path: Path) -> None:
    ours, theirs, _ = answers(path, 0)
    if ours.dtype.kind == "f":
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    else:
        assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 1

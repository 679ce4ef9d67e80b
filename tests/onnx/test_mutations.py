"""Damaged ONNX files: a model with a plan or one of our errors, quickly and in little memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

from nnbridge.converters import ConversionOptions
from tests.conftest import MODELS, shared_folder
from tests.hostile import check_conversion, check_run, require_good
from tests.onnx.mutations import Source, operators

FILES = [
    MODELS / "digits_float32.onnx",
    MODELS / "digits_qdq.onnx",
    *(shared_folder() / "models" / "onnx" / f"{name}.onnx" for name in ("mnist_optimized", "qlstm_3-2-3_T3_S1")),
]
BATCHES, PER_BATCH = 8, 50
OPERATORS = 300


@pytest.mark.parametrize("batch", range(BATCHES))
def test_damaged_files_give_a_model_or_our_error(batch: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(batch)
    sources = [Source(path) for path in FILES if path.is_file()]
    require_good(sources, rng, tmp_path / "damaged.onnx", PER_BATCH)


def test_damaged_operators_give_a_model_or_our_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    models = operators()
    path = tmp_path / "operator.onnx"
    for n in range(OPERATORS):
        path.write_bytes(models[int(rng.integers(len(models)))])
        path.write_bytes(Source(path).altered(rng))
        options = ConversionOptions(mapping=("wide", "provider")[n % 2], layout=("nhwc", "nchw")[n // 2 % 2])
        verdict = check_conversion(path, options)
        assert verdict.good, (n, verdict)
        ran = check_run(path, options)
        assert ran.good, (n, ran)

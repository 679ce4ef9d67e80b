"""Random files beside ONNX Runtime: what scripts/differential_onnx.py runs, in short."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import differential_onnx as differential

SEED = 1


@pytest.mark.parametrize("mapping", ["wide", "provider"])
def test_random_files_agree_with_onnx_runtime(mapping: str, tmp_path: Path) -> None:
    reference = differential.Reference()
    names = sorted(differential.DRAWS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = [differential.evaluate(i, SEED, names, tmp_path, mapping, None, reference) for i in range(150)]
    finally:
        reference.close()
    assert [verdict for verdict in found if verdict.outcome in ("differs", "fails")] == []
    assert sum(verdict.outcome == "equal" for verdict in found) > 120

"""Random files beside ONNX Runtime: what scripts/nets/differential_onnx.py runs, in short."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.conftest import has_recent_onnx_runtime
from tests.onnx.differential import DRAWS, verdicts

SEED = 1
IMPRECISE = () if has_recent_onnx_runtime() else ("ms SkipLayerNormalization",)
"""What older ones compute with fewer digits."""


@pytest.mark.parametrize("mapping", ["wide", "provider"])
def test_random_files_agree_with_onnx_runtime(mapping: str) -> None:
    found = list(verdicts(range(150), SEED, sorted(DRAWS), mapping))
    assert [verdict for verdict in found if verdict.outcome in ("differs", "fails") and verdict.operator not in IMPRECISE] == []
    assert sum(verdict.outcome == "equal" for verdict in found) > 120

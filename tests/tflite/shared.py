"""Real models that tests may find beside the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("NNBRIDGE_SHARED") or Path(__file__).resolve().parents[2].parent / "shared") / "models" / "tflite"


def real_model(name: str) -> Path:
    """A real file; the test is skipped where the folder is absent."""
    path = FOLDER / f"{name}.tflite"
    if not path.is_file():
        pytest.skip("the folder of real models is not here (NNBRIDGE_SHARED)")
    return path

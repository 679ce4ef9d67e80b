"""What tests share: the folder of outside material, and small models."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("nnbridge", deadline=None)  # a busy machine is no fault of the code
settings.load_profile("nnbridge")

REPOSITORY = Path(__file__).resolve().parents[1]
MODELS = REPOSITORY / "models"


def shared_folder() -> Path:
    """Conformance cases and real models, which are not part of the repository."""
    return Path(os.environ.get("NNBRIDGE_SHARED", REPOSITORY.parent / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of outside material; skips where it is absent."""
    folder = shared_folder()
    if not folder.is_dir():
        pytest.skip(f"no outside material at {folder} (set NNBRIDGE_SHARED)")
    return folder


@pytest.fixture(scope="session")
def cases(shared: Path) -> Path:
    """Android's conformance cases."""
    folder = shared / "vts"
    if not folder.is_dir():
        pytest.skip(f"no conformance cases at {folder}")
    return folder


@pytest.fixture(scope="session")
def real_models(shared: Path) -> Path:
    """Real TFLite files."""
    folder = shared / "models" / "tflite"
    if not folder.is_dir():
        pytest.skip(f"no real models at {folder}")
    return folder

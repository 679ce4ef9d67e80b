"""Fixtures and folders that tests share. Conformance cases and published models are outside of the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("nnbridge", deadline=None)  # no failures on a busy machine
settings.load_profile("nnbridge")
os.environ.pop("COLUMNS", None)  # a terminal's width, by which reports would be laid out

REPOSITORY = Path(__file__).resolve().parents[1]
MODELS = REPOSITORY / "models"


def has_recent_onnx_runtime() -> bool:
    """False for one before 1.24, the last that Python 3.10 has packages of: it lacks kernels and differs in some."""
    onnxruntime = pytest.importorskip("onnxruntime")
    return tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 24)


def requires_recent_onnx_runtime() -> None:
    """Skip a test that older ones cannot judge."""
    if not has_recent_onnx_runtime():
        pytest.skip("ONNX Runtime is older than 1.24")


def shared_folder() -> Path:
    """The folder of conformance cases and published models: ``NNBRIDGE_SHARED``, or ``shared`` beside the repository."""
    return Path(os.environ.get("NNBRIDGE_SHARED", REPOSITORY.parent / "shared"))


def _folder(*names: str) -> Path:
    """A folder below the shared one; skips the test where it is absent."""
    folder = shared_folder().joinpath(*names)
    if not folder.is_dir():
        pytest.skip(f"needs {folder}, which is not part of the repository (NNBRIDGE_SHARED names another folder)")
    return folder


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of material outside of the repository."""
    return _folder()


@pytest.fixture(scope="session")
def cases() -> Path:
    """Android's conformance cases."""
    return _folder("vts")


@pytest.fixture(scope="session")
def real_models() -> Path:
    """Published TFLite files."""
    return _folder("models", "tflite")

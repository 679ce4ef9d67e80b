"""Fixtures and folders that tests share. Conformance cases and published models are outside of the repository."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from nnbridge.trust import decline_reports

decline_reports()
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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium as it is installed, driven by Playwright."""
    api = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install 'nnbridge[dev]'")
    path = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("needs Chromium, which is not installed")
    with api.sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        except api.Error as error:
            pytest.skip(f"Chromium does not start here: {error.message[:200]}")
        yield started
        started.close()

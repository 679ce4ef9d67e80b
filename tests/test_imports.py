"""Packages depend on each other in one direction, so each can be imported first; broken entry points are reported."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from nnbridge.entry_points import installed


@pytest.mark.parametrize("package", ["storage", "loading", "devices", "runtime.execution", "extensions", "operations", "ndk"])
def test_package_can_be_imported_first(package: str) -> None:
    subprocess.run([sys.executable, "-c", f"import nnbridge.{package}"], check=True, timeout=60)


def test_a_broken_entry_point_is_reported_and_the_others_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    package = tmp_path / "theirs-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[nnbridge.tried]\nbroken = no_such_module:X\ngood = math:pi\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert list(installed("nnbridge.tried")) == [3.141592653589793]
    assert caplog.messages == ["not loaded: broken = no_such_module:X: No module named 'no_such_module'"]

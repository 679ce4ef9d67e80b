"""Commands that write several files write all of them or none: the disk is full at each of them in turn."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from tests.commands import call
from tests.conftest import MODELS

DIGITS = MODELS / "digits_float32.tflite"
PLACES = "--devices", "nnapi-sample_all", "--store", "m.db", "--jobs", "1"

SEVERAL: dict[str, tuple[object, ...]] = {
    "page and overlay": ("report", DIGITS, "-o", "r.html", "--overlay", "o.json"),
    "overlays of one plan": ("report", DIGITS, "-o", "o.json", "--time"),
    "outputs, samples and trace": ("run", DIGITS, "--seed", "0", "-o", "a.npz", "--samples", "s.npz", "--trace", "t.json"),
    "tables": ("matrix", DIGITS, *PLACES, "--html", "m.html", "--csv", "m.csv", "--markdown", "m.md", "--junit", "m.xml"),
    "C source": ("convert", DIGITS, "-o", "digits.c"),
    "part and samples": ("convert", DIGITS, "--operators", "0", "-o", "e.tflite", "--samples", "s.npz"),
}


class FullDisk:
    """A disk on which so many files can be written."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left, self._sync = 0, os.fsync
        patch.setattr(os, "fsync", self.sync)

    def sync(self, descriptor: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._sync(descriptor)


@pytest.mark.parametrize("arguments", SEVERAL.values(), ids=SEVERAL)
def test_all_files_or_none(arguments: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    disk = FullDisk(monkeypatch)
    for files in range(20):
        disk.left = files
        done = call(*arguments)
        written = sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("m.db"))
        if done.exit_code == 0:
            break
        assert (done.exit_code, written) == (2, [])
        assert "no space is left" in done.output
    assert len(written) == files >= 2


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_library_and_its_header_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("build", "ndk", tmp_path / "first").exit_code == 0  # From here on it is in the cache.
    disk = FullDisk(monkeypatch)
    for files in range(2):
        disk.left = files
        done = call("build", "ndk", tmp_path / "second")
        assert (done.exit_code, list((tmp_path / "second").iterdir())) == (2, [])

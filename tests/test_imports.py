"""Rooms that stand on each other in one direction can be entered in any order."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("room", ["storage", "loading", "devices", "runtime.execution", "extensions", "operations", "ndk"])
def test_room_can_be_imported_first(room: str) -> None:
    subprocess.run([sys.executable, "-c", f"import nnbridge.{room}"], check=True, timeout=60)

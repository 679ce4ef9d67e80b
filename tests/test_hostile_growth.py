"""No small file takes the machine: what each reader expands and evaluates is bounded, and refused in one sentence beyond it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.hostile_growth import READERS

SECONDS, BYTES = 4.0, 256 << 20
"""Of processor time and memory for a file of a megabyte. Readers need half of the time; machines that others use need more."""


@pytest.mark.parametrize("reader", READERS)
def test_no_small_file_takes_the_machine(reader: str) -> None:
    if reader == "onnx":
        pytest.importorskip("onnx", reason="onnx is not installed")
    if reader == "images":
        pytest.importorskip("PIL", reason="Pillow is not installed")
    command = [sys.executable, "-m", "tests.hostile_growth", reader]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [verdict["name"] for verdict in verdicts] == list(READERS[reader].hostile), done.stderr
    assert all(verdict["size"] <= 2 << 20 for verdict in verdicts)
    bad = [v for v in verdicts if v["outcome"] not in ("model", "refused") or v["seconds"] > SECONDS or v["bytes"] > BYTES]
    assert not bad

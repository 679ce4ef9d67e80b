"""Files and conversations that coverage-guided fuzzing kept, because each reached code that no other did: read again.

The last of ONNX was found by damaged bytes: a quantised value whose type nothing states.
"""

from __future__ import annotations

import gc
import os
import zipfile
from pathlib import Path

import pytest

from nnbridge.converters import ConversionOptions
from tests.devices.conversations import KINDS, hold
from tests.hostile import check_conversion

CORPUS = Path(__file__).with_suffix(".zip")


@pytest.mark.parametrize(("format", "count"), [("tflite", 200), ("nnapi", 40), ("onnx", 201)])
def test_each_file_of_the_corpus_is_a_model_or_refused(format: str, count: int, tmp_path: Path) -> None:
    if format == "onnx":
        pytest.importorskip("onnx", reason="onnx is not installed")
    with zipfile.ZipFile(CORPUS) as corpus:
        names = [name for name in corpus.namelist() if name.startswith(format)]
        assert len(names) == count
        for name in names:
            path = tmp_path / Path(name).name
            path.write_bytes(corpus.read(name))
            verdict = check_conversion(path, ConversionOptions())
            assert verdict.outcome in ("model", "refused"), (name, verdict)


def test_each_conversation_of_the_corpus_ends_in_answers_or_nnbridges_errors() -> None:
    with zipfile.ZipFile(CORPUS) as corpus:
        names = [name for name in corpus.namelist() if name.startswith("wire")]
        before = len(os.listdir("/proc/self/fd")) if names else 0
        for name in names:
            hold(corpus.read(name))
    gc.collect()
    assert len(names) == 87
    assert len(os.listdir("/proc/self/fd")) <= before + len(KINDS)

"""TensorFlow Lite Micro as reference, where its wheel is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from nnbridge.compare import references
from nnbridge.compare.references import reference
from nnbridge.errors import InputError, PackageError
from tests.conftest import MODELS
from tests.tflite.files import TfliteBuilder

DIGITS = MODELS / "digits_float32.tflite"


def test_a_wheel_that_is_absent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "tflite_micro", None)
    with pytest.raises(PackageError, match="tflite-micro"):
        reference("tflm", DIGITS)


def test_outputs_are_those_of_the_reference_kernels() -> None:
    pytest.importorskip("tflite_micro")
    pytest.importorskip("ai_edge_litert")
    image = np.random.default_rng(0).integers(-128, 128, (1, 8, 8, 1)).astype(np.int8)
    ours, theirs = (reference(name, MODELS / "digits_int8.tflite").run({"image": image}) for name in ("tflm", "litert"))
    np.testing.assert_array_equal(ours[0], theirs[0])  # type: ignore[index]


def test_a_refusal_has_the_interpreters_words(tmp_path: Path) -> None:
    pytest.importorskip("tflite_micro")
    file = TfliteBuilder()
    value, out = file.tensor((2,)), file.tensor((2,))
    file.operator("COS", [value], [out], {})
    file.operator("RANK", [value], [scalar := file.tensor((), "int32")], {})
    with pytest.raises(InputError, match=r"TensorFlow Lite Micro runs, found .*RANK"):
        reference("tflm", file.write(tmp_path / "m.tflite", [value], [out, scalar]))

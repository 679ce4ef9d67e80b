"""`inspect` asks LiteRT whether it loads a file, and says so where nnbridge's rules differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import nnbridge
from tests.commands import call
from tests.tflite.files import TfliteBuilder

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

from nnbridge.engines.loading import litert_refusal, loading_disagreement


def product(path: Path, *, version: int = 1, constant: bool = False) -> Path:
    file = TfliteBuilder()
    x, y, out = (file.tensor((1, 4)) for _ in range(3))
    file.operator("MUL", [x, y], [out], {"fused_activation_function": 0}, version)
    return file.write(path, [x, y], [out])


def test_nothing_is_said_where_both_agree(tmp_path: Path) -> None:
    for version in (1, 9):  # LiteRT 2.3.0 has versions 1 to 8.
        found = nnbridge.inspect(product(tmp_path / "m.tflite", version=version))
        assert (found.loads, loading_disagreement(found)) == (version == 1, "")


def test_a_file_that_only_one_side_loads_is_reported(tmp_path: Path) -> None:
    good, bad = (nnbridge.inspect(product(tmp_path / f"{v}.tflite", version=v)) for v in (1, 9))
    assert "TFLite does not load this file; LiteRT 2" in loading_disagreement(replace(good, loads=False))
    sentence = loading_disagreement(replace(bad, loads=True))
    assert sentence.startswith("By nnbridge's rules TFLite loads this file; LiteRT 2")
    assert "Didn't find op for builtin opcode 'MUL' version '9'" in sentence


def test_the_words_of_litert_or_the_signal_that_ended_it_are_returned(tmp_path: Path) -> None:
    assert litert_refusal(product(tmp_path / "m.tflite")) == ""
    assert "MUL' version '9'" in litert_refusal(product(tmp_path / "m.tflite", version=9))
    file = TfliteBuilder()  # LiteRT 2.3.0 divides by the scale that int8 lacks.
    x, y, out = (file.tensor((1, 4), "int8") for _ in range(3))
    file.operator("ADD", [x, y], [out], {"fused_activation_function": 0}, 2)
    assert litert_refusal(file.write(tmp_path / "m.tflite", [x, y], [out])).startswith("LiteRT ended with signal SIG")


def test_what_a_damaged_file_lacks_comes_first(tmp_path: Path) -> None:
    file = TfliteBuilder()
    x, y = file.tensor((1, 4, 4, 1)), file.tensor((1, 2, 2, 1))
    options = {"padding": 1, "stride_w": 0, "stride_h": 2, "filter_width": 2, "filter_height": 2}
    file.operator("AVERAGE_POOL_2D", [x], [y], options)
    path = file.write(tmp_path / "m.tflite", [x], [y])
    lacks = "operator 0 AVERAGE_POOL_2D: TFLite requires stride_h, stride_w above 0, found 2, 0"
    assert call("inspect", str(path)).stdout.startswith(f"TFLite does not load this file: {lacks}.")
    failed = call("plan", str(path))
    assert (failed.exit_code, "expected a file that TFLite loads, with stride_h, stride_w above 0" in failed.stderr) == (2, True)

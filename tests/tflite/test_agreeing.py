"""Commands that show or run a file ask LiteRT whether it loads it, and say so where nnbridge's rules differ."""

from __future__ import annotations

from pathlib import Path

import pytest

import nnbridge
from tests.commands import call
from tests.tflite.files import TfliteBuilder

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

from nnbridge import apart
from nnbridge.compare.references import reference
from nnbridge.engines.loading import LoadingQuestion
from nnbridge.errors import InputError


def product(path: Path, *, version: int = 1, constant: bool = False) -> Path:
    file = TfliteBuilder()
    x, y, out = (file.tensor((1, 4)) for _ in range(3))
    file.operator("MUL", [x, y], [out], {"fused_activation_function": 0}, version)
    return file.write(path, [x, y], [out])


def asked(path: Path) -> LoadingQuestion:
    return LoadingQuestion(path, "tflite")


def test_nothing_is_said_where_both_agree(tmp_path: Path) -> None:
    for version in (1, 9):  # LiteRT 2.3.0 has versions 1 to 8.
        path = product(tmp_path / "m.tflite", version=version)
        found = nnbridge.inspect(path)
        assert (found.loads, asked(path).disagreement(found.loads)) == (version == 1, "")


def test_a_file_that_only_one_side_loads_is_reported(tmp_path: Path) -> None:
    good, bad = (product(tmp_path / f"{v}.tflite", version=v) for v in (1, 9))
    assert "TFLite does not load this file; LiteRT 2" in asked(good).disagreement(False)
    sentence = asked(bad).disagreement(True)
    assert sentence.startswith("By nnbridge's rules TFLite loads this file; LiteRT 2")
    assert "Didn't find op for builtin opcode 'MUL' version '9'" in sentence


def test_the_words_of_litert_or_the_signal_that_ended_it_are_returned(tmp_path: Path) -> None:
    assert asked(product(tmp_path / "m.tflite")).refusal() == ""
    assert "MUL' version '9'" in asked(product(tmp_path / "m.tflite", version=9)).refusal()
    file = TfliteBuilder()  # LiteRT 2.3.0 divides by the scale that int8 lacks.
    x, y, out = (file.tensor((1, 4), "int8") for _ in range(3))
    file.operator("ADD", [x, y], [out], {"fused_activation_function": 0}, 2)
    assert asked(file.write(tmp_path / "m.tflite", [x, y], [out])).refusal().startswith("LiteRT ended with signal SIG")


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


@pytest.mark.parametrize("door", ["plan", "run --seed 0", "inspect", "compare --reference litert"])
def test_each_door_says_where_the_two_differ(door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = product(tmp_path / "m.tflite")
    monkeypatch.setattr(LoadingQuestion, "refusal", lambda question: "it has other rules")
    command, *options = door.split()
    shown = call(command, str(path), *options).stderr
    assert "By nnbridge's rules TFLite loads this file; LiteRT 2" in shown
    assert shown.count("which was asked, does not: it has other rules") == 1


@pytest.mark.parametrize("door", ["plan", "run --seed 0", "inspect"])
def test_no_door_speaks_where_the_two_agree(door: str, tmp_path: Path) -> None:
    command, *options = door.split()
    assert "which was asked" not in call(command, str(product(tmp_path / "m.tflite")), *options).stderr


def test_files_of_custom_operators_are_loaded_by_their_app_and_nothing_is_asked(tmp_path: Path) -> None:
    file = TfliteBuilder()
    x, y = file.tensor((1, 4)), file.tensor((1, 4))
    file.operator("Own", [x], [y])
    path = file.write(tmp_path / "m.tflite", [x], [y])
    assert nnbridge.plan(path).loads is None
    assert "which was asked" not in call("plan", str(path)).stderr


@pytest.mark.parametrize("door", ["plan", "run --seed 0", "compare --reference litert", "compare --reference litert --layers"])
def test_one_process_of_litert_is_asked_and_computes(door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    start = apart._ApartProcess.__init__
    monkeypatch.setattr(apart._ApartProcess, "__init__", lambda self: start(self) or started.append(self))
    command, *options = door.split()
    assert call(command, str(product(tmp_path / "m.tflite")), "--host", "nnbridge", *options).exit_code == 0
    assert len(started) == 1


def test_a_reference_that_cannot_read_the_file_is_not_asked_whether_it_loads_it(tmp_path: Path) -> None:
    path = product(tmp_path / "m.tflite", version=9)
    begun = reference("litert", path, wait=False)
    question = LoadingQuestion(path, "tflite", begun)
    assert not begun.load()
    assert "MUL' version '9'" in question.refusal()
    with pytest.raises(InputError, match="a model that LiteRT runs"):
        begun.ready()

"""check_advice.py counts every advice once and sees what is wrong with one; rewrites are judged by engines."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.advice import Advice, FileAdvice
from nnbridge.converters.edits import Content, Edit
from nnbridge.errors import Reason
from nnbridge.file import ModelFile
from tests.conftest import MODELS, REPOSITORY
from tests.tflite.files import TfliteBuilder
from tests.tflite.shared import real_model

INT8 = MODELS / "digits_int8.tflite"
SETTING = ("--device", "aosp-float-fast", "--android", "10")
"""A device that accepts nothing of it, and all of it in float32."""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module."""
    pytest.importorskip("ai_edge_litert")
    pytest.importorskip("onnxruntime")
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts" / "comparisons"))
    return import_module("check_advice")


@pytest.fixture
def judge(script: Any) -> Any:
    """True if two files give the same outputs."""
    return import_module("advice.equality").judge


def first_edit(script: Any, path: Path) -> Advice:
    found = script.advised(FileAdvice(ModelFile(path)), SETTING[1], SETTING[3])
    return next(advice for advice in found if advice.edit is not None)


def conv(path: Path, width: int | str) -> Path:
    """An ONNX file of a window of 3 on a row."""
    onnx = pytest.importorskip("onnx")
    helper, type = onnx.helper, onnx.TensorProto.FLOAT
    weights = onnx.numpy_helper.from_array(np.ones((1, 1, 3), np.float32), "w")
    ends = [helper.make_tensor_value_info(name, type, [1, 1, size]) for name, size in (("x", width), ("y", None))]
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"])], "conv", ends[:1], ends[1:], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def copied(path: Path) -> Path:
    target = path.parent / "copies" / path.name
    target.parent.mkdir()
    return Path(shutil.copyfile(path, target))


# -- classes -------------------------------------------------------------------------------------------------------------------


def test_an_advice_is_as_predicted_by_its_kind(script: Any) -> None:
    advice = first_edit(script, INT8)
    assert script.check(INT8, SETTING, advice, 0, {}) == ("re-planned as predicted", advice.kind)


@pytest.mark.parametrize("name", ["elsewhere", "partitions", "steps", "multiply_adds"])
def test_each_figure_that_differs_is_a_failure(script: Any, name: str) -> None:
    advice = first_edit(script, INT8)
    other = frozenset({(0, 99)}) | advice.after.elsewhere if name == "elsewhere" else getattr(advice.after, name) + 1
    changed = replace(advice, after=replace(advice.after, **{name: other}))
    outcome, _ = script.check(INT8, SETTING, changed, 0, {})
    assert outcome == "planned, not as predicted"


def test_an_edited_file_that_cannot_be_planned_is_a_failure(script: Any) -> None:
    advice = first_edit(script, INT8)
    assert advice.edit is not None
    broken = replace(advice, edit=replace(advice.edit, content=lambda: Content.of(b"no model")))
    assert script.check(INT8, SETTING, broken, 0, {}) == ("cannot be planned", advice.kind)


def test_a_file_that_plan_plans_and_advice_refuses_is_a_failure(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    outcome, _ = script.refused_plan(INT8, SETTING, Reason("a number", "none"))
    assert outcome == "planned, but the advice on it is refused"
    assert "expected a number, found none" in capsys.readouterr().out


def test_the_classes_add_up_and_a_failure_among_them_shows(script: Any) -> None:
    plans = Counter({("planned, with advice", ""): 2, ("not planned", "expected a, found b"): 1})
    advices = Counter({("re-planned as predicted", "setting"): 3, ("re-planned as predicted", "round"): 1})
    fine = script.Tally(plans, advices)
    bad = script.Tally(advices=Counter({("cannot be planned", "setting"): 1}))
    assert list((fine + bad).lines()) == [
        "3 combinations of file, device and Android = 1 not planned + 2 planned, with advice",
        "  not planned: 1 expected a, found b",
        "5 advices = 1 cannot be planned + 4 re-planned as predicted",
        "  cannot be planned: 1 settings of the command, planned with them",
        "  re-planned as predicted: 1 edits that round otherwise",
        "  re-planned as predicted: 3 settings of the command, planned with them",
        "0 different rewrites run",
    ]
    assert (fine.failed, (fine + bad).failed) == (False, True)


@pytest.mark.parametrize(("outcome", "status"), [("re-planned as predicted", 0), ("cannot be planned", 1)])
def test_one_advice_that_fails_is_the_exit_status(
    script: Any, monkeypatch: pytest.MonkeyPatch, outcome: str, status: int
) -> None:
    monkeypatch.setattr(script, "check", lambda *_: (outcome, "change"))
    assert script.advise_all([INT8], [("aosp-float-fast", "10")], 0) == status


# -- answers -------------------------------------------------------------------------------------------------------------------


def test_a_change_of_the_answers_is_seen(judge: Any, tmp_path: Path) -> None:
    operator = ModelFile(INT8).adjustable(0, 0)
    assert operator is not None
    edited = tmp_path / "edited.tflite"
    operator.content({"kernel": 2}, False).write(edited)
    found = judge(INT8, edited, 1)
    assert (found.outcome, found.engines, found.wrong.endswith("with seed 0")) == ("failed", ("nnbridge", "LiteRT"), True)


def test_a_rewritten_file_that_does_not_run_is_a_failure(judge: Any, tmp_path: Path) -> None:
    edited = tmp_path / "edited.tflite"
    edited.write_bytes(b"no model")
    found = judge(INT8, edited, 1)
    assert (found.outcome, found.wrong.startswith("does not run: ")) == ("failed", True)


def test_an_input_that_is_the_output_s_dimensions_has_those_that_the_file_states(judge: Any, tmp_path: Path) -> None:
    file = TfliteBuilder()
    data, dims, out = file.tensor((2, 6)), file.tensor((2,), "int32"), file.tensor((3, 4))
    file.operator("RESHAPE", [data, dims], [out])
    path = file.write(tmp_path / "reshape.tflite", [data, dims], [out])
    assert judge(path, copied(path), 2).engines == ("nnbridge", "LiteRT")


def test_open_dimensions_grow_until_the_file_runs(judge: Any, tmp_path: Path) -> None:
    path = conv(tmp_path / "conv.onnx", "n")
    assert judge(path, copied(path), 2).engines == ("nnbridge", "ONNX Runtime")


def test_what_no_engine_runs_is_not_called_equal(judge: Any, tmp_path: Path) -> None:
    path = conv(tmp_path / "conv.onnx", 2)
    found = judge(path, copied(path), 1)
    assert (found.outcome, sorted(found.refused)) == ("not run", ["ONNX Runtime", "nnbridge"])


def test_an_original_that_does_not_run_on_a_later_input_says_nothing_of_the_rewrite(judge: Any, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, path = onnx.helper, tmp_path / "gather.onnx"
    # Random indexes are below 8; the first one, by NumPy's generator of seed 0, is 6.
    data = onnx.numpy_helper.from_array(np.arange(7, dtype=np.float32), "data")
    index = helper.make_tensor_value_info("index", onnx.TensorProto.INT64, [1])
    out = helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Gather", ["data", "index"], ["out"])], "gather", [index], [out], [data])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    other = copied(path)
    assert (judge(path, other, 1).outcome, judge(path, other, 64).outcome) == ("equal", "not run")


def test_states_of_both_files_begin_alike(judge: Any, tmp_path: Path) -> None:
    path = Path(shutil.copyfile(real_model("mnist_lstm_float"), tmp_path / "lstm.tflite"))
    assert judge(path, copied(path), 2).outcome == "equal"


@pytest.mark.parametrize(("change", "status"), [({}, 0), ({"kernel": 2}, 1)])
def test_one_rewrite_that_differs_is_the_exit_status(
    script: Any, monkeypatch: pytest.MonkeyPatch, change: dict[str, int], status: int
) -> None:
    operator = ModelFile(INT8).adjustable(0, 0)
    assert operator is not None
    edit = Edit(0, 0, "CONV_2D", "another", lambda: operator.content(change, False))
    monkeypatch.setattr(script, "exact_edits", lambda path: [edit])
    assert script.prove_all([INT8], 1) == status


def test_a_rewrite_that_nothing_runs_is_the_exit_status(script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = conv(tmp_path / "conv.onnx", 2)
    monkeypatch.setattr(script, "exact_edits", lambda path: [Edit(0, 0, "Conv", "itself", lambda: Content.of(path.read_bytes()))])
    assert script.prove_all([path], 1) == 1

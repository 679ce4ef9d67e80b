"""record_doors.py samples runs so that all pairs occur, masks what differs from run to run, and names what is different."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

FILES = ("a.tflite", "b.onnx", "c.nnapi")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts" / "comparisons"))
    return import_module("record_doors")


def pairs(script: Any, runs: list[Any]) -> set[Any]:
    return set().union(*(script.groups_of(run, 2) for run in runs))


def test_all_pairs_of_values_occur_that_can(script: Any) -> None:
    assert pairs(script, script.sample(FILES, 1)) == pairs(script, script.possible_runs(FILES))


def test_the_sample_is_the_same_each_time_without_repetition_and_as_long_as_asked(script: Any) -> None:
    runs = script.sample(FILES, 200)
    assert runs == script.sample(FILES, 200)
    assert len(set(runs)) == len(runs) == 200


def test_a_command_gets_only_settings_that_it_has_options_for(script: Any) -> None:
    runs = script.possible_runs(FILES)
    assert {run.setting for run in runs if run.door == "matrix"} == {"default", "wide"}
    assert not [run for run in runs if run.door == "bisect" and not run.device]


def test_a_run_is_a_command_line(script: Any) -> None:
    run = script.Run("matrix", "a.tflite", "arm-nn-21.11", "12", "wide")
    assert run.arguments() == [
        *("matrix", "--json", "--jobs", "1", "--store", "<output>.db", "a.tflite", "--devices", "arm-nn-21.11"),
        *("--android", "12", "--mapping", "wide"),
    ]


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ('{"milliseconds": 0.28, "runs": 3}', {"milliseconds": "<time>", "runs": 3}),
        ('{"runs_milliseconds": [0.28, 1]}', {"runs_milliseconds": ["<time>", "<time>"]}),
        ('{"estimated_ms": 0.28}', {"estimated_ms": 0.28}),
        ('{"note": "took 1,234.5 ms"}', {"note": "took <time>"}),
        ('{"note": "43 of 44 steps"}', {"note": "43 of 44 steps"}),
        ("process 1234 ended on 2024-05-06T07:08:09", "process <pid> ended on <date>"),
        ("/tmp/x1/output.html: written", "<temporary>/output.html: written"),
        ('{"written": "/tmp/x1/output.html"}', {"written": "<temporary>/output.html"}),
    ],
)
def test_what_differs_from_run_to_run_is_masked(script: Any, text: str, masked: object) -> None:
    assert script.masked_text(text, {"/tmp/x1": "<temporary>"}) == masked


def test_a_page_is_its_data(script: Any) -> None:
    assert script.page_data('<p></p><script type="application/json" id="data">{"a": 1}</script><p></p>') == '{"a": 1}'


def row(out: object, status: object = 0) -> dict[str, object]:
    return {"status": status, "out": out, "err": "", "files": {}}


def test_equal_changes_have_one_line(script: Any) -> None:
    old = row({"steps": [{"device": "a1"}, {"device": "a2"}], "gone": 1})
    new = row({"steps": [{"device": "b1"}, {"device": "b2"}]}, 2)
    assert script.row_differences(old, new) == ["out.gone: gone", "out.steps[].device: 'aN' => 'bN'", "status: N => N"]


def test_long_texts_are_shown_from_where_they_differ_on(script: Any) -> None:
    old, new = f"{'x' * 100} runs here", f"{'x' * 100} runs there"
    assert script.row_differences(row(old), row(new)) == ["out: ...xxxxxx runs here' => ...xxxxxx runs there'"]


def test_true_is_not_one(script: Any) -> None:
    assert script.row_differences(row({"of": 1}), row({"of": True})) == ["out.of: N => True"]


def test_rows_are_explained_only_if_all_their_lines_are(script: Any) -> None:
    one, other = (script.Run("plan", name, "arm-nn-18.05", "12", "default") for name in ("a.tflite", "b.tflite"))
    old = {one: row({"x": 1, "y": 1}), other: row({"x": 1, "y": 1})}
    new = {one: row({"x": 2, "y": 1}), other: row({"x": 2, "y": 2})}
    expected = [script.Expected(re.compile(r"^plan .* 12 default \| out\.x: "), "x is counted twice")]
    text, covered = script.compare(old, new, expected, 1)
    assert not covered
    assert text == [
        "2 and 2 runs: 0 equal, 0 absent from the second",
        "    1 expected: x is counted twice",
        "    1 different:",
        "          out.y: N => N",
        "       in plan b.tflite arm-nn-18.05 12 default",
    ]


def test_expected_differences_are_read_with_patterns_that_have_arrows(script: Any, tmp_path: Path) -> None:
    (tmp_path / "expected.txt").write_text("# what changed\n\nplace: 'NNAPI CPU' => 'TFLite' => what a phone does\n")
    (read,) = script.read_expected(tmp_path / "expected.txt")
    assert (read.pattern.pattern, read.explanation) == ("place: 'NNAPI CPU' => 'TFLite'", "what a phone does")


def test_a_recording_compared_with_itself_is_equal(script: Any) -> None:
    run = script.Run("plan", "a.tflite", "", "12", "default")
    assert script.compare({run: row({})}, {run: row({})}, [], 1) == (["1 and 1 runs: 1 equal, 0 absent from the second"], True)


def test_a_run_that_is_absent_is_no_success(script: Any) -> None:
    run = script.Run("plan", "a.tflite", "", "12", "default")
    assert script.compare({run: row({})}, {}, [], 1)[1] is False


def test_a_recording_is_continued_without_what_it_has(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(script, "outcome", lambda worker, run: asked.append(run) or {**vars(run), **row({})})
    runs = script.sample(FILES, 1)
    script.record(tmp_path / "runs.jsonl", None, runs[:2])
    script.record(tmp_path / "runs.jsonl", None, runs[:4])
    assert asked == runs[:4]
    assert list(script.read_rows(tmp_path / "runs.jsonl")) == runs[:4]

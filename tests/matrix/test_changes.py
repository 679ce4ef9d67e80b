"""Two runs side by side: what moved, what is worse, and builds that fail on it."""

from __future__ import annotations

import json
import sqlite3
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nnbridge.cli.commands import cli
from nnbridge.matrix import Cell, Store
from nnbridge.matrix.budget import MatrixLimit
from nnbridge.matrix.cells import MatrixSettings, tasks
from nnbridge.matrix.changes import change_lines, changes
from nnbridge.matrix.runner import run
from tests.conftest import MODELS
from tests.test_schemas import validator

ON = (("CONV_2D", "0: CONV_2D a"), ("ADD", "1: ADD b"), ("ADD", "2: ADD c"), ("SOFTMAX", "3: SOFTMAX d"))


def cell(**changed: Any) -> Cell:
    """A cell with four operations, all on the device, that equals its reference."""
    start = {"model": "m", "device": "d", "level": 8, "operations": 4, "on_device": 4, "partitions": 1, "placed": ON}
    compared = {"reference": "litert", "within": True, "difference": 0.0, "quantised": True, "tolerance": 1.0}
    return Cell(**{**start, **compared, **changed})


def worse(old: Cell, new: Cell, *limits: MatrixLimit) -> list[str]:
    """The changes for the worse of one cell."""
    return [line for change in changes([old], [new], limits).changes for line in change.worse]


REFUSED = {"on_device": 3, "refused": ((2, "ADD", "2: ADD c", "d: requires rank 4"),)}
FLOAT: Mapping[str, Any] = {"quantised": False, "tolerance": 1e-5}
IDLE: Mapping[str, Any] = {
    "on_device": 0,
    "refused": tuple((k, kind, name, "d: requires rank 4") for k, (kind, name) in enumerate(ON)),
}
NONE: Mapping[str, Any] = {"within": None, "difference": None, "reference": ""}


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ({}, REFUSED, "1 operation left the device"),
        ({}, {"operations": 5, "placed": (*ON, ("EXP", "4: EXP e")), "refused": ((4, "EXP", "4: EXP e", "no"),)},
         "operations off the device 0 → 1"),
        ({}, {"partitions": 2}, "partitions 1 → 2"),
        ({}, {"fallback": "a step failed"}, "the whole model falls back to the CPU: a step failed"),
        ({}, {"within": False, "difference": 3.0}, "within → outside tolerance (3 steps, outside tolerance)"),
        ({}, {"within": False, "difference": 3.0, "unknown": True},
         "within → outside tolerance (numbers unknown; as computed 3 steps, outside tolerance)"),
        ({"within": False, "difference": 3.0}, {"within": False, "difference": 5.0},
         "difference 3 steps, outside tolerance → 5 steps, outside tolerance"),
        ({**FLOAT, "difference": 1e-6}, {**FLOAT, "difference": 2e-5}, "difference 1e-06 → 2e-05"),
        ({}, {"difference": None}, "difference equal → no finite value"),
        ({}, NONE, "pass → not compared"),
        ({}, IDLE, "4 operations left the device"),
        (NONE, {"within": False, "difference": 3.0}, "not compared → outside tolerance"),
        ({}, {"error": "it ended"}, "an answer → failed (it ended)"),
        ({"inapplicable": "ONNX"}, {"error": "it ended"}, "n/a (ONNX) → failed (it ended)"),
        ({}, {"inapplicable": "ONNX"}, "an answer → n/a (ONNX)"),
    ],
)  # fmt: skip
def test_what_is_worse(old: dict[str, Any], new: dict[str, Any], line: str) -> None:
    assert worse(cell(**old), cell(**new)) == [line]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {}),
        (REFUSED, {}),
        ({"partitions": 2}, {}),
        ({"on_device": 0, "partitions": 0}, {}),  # the first partition is progress
        ({}, {"operations": 3, "on_device": 3, "placed": ON[:3]}),  # a smaller model, all of it on the device
        ({}, {"difference": 1.0}),  # a step is tolerated
        ({**FLOAT, "difference": 1e-6}, {**FLOAT, "difference": 1.1e-5}),
        ({**IDLE, **FLOAT}, {**FLOAT, "difference": 2e-5}),  # the numbers before were not the device's
        ({"within": False, "difference": 3.0}, {}),
        ({}, {"unknown": True}),
        (NONE, {}),
        ({"error": "x"}, {"error": "y"}),
        ({"error": "x"}, {"inapplicable": "ONNX"}),
        ({"error": "x"}, REFUSED),
        ({"estimated_ms": 10.0}, {"estimated_ms": 90.0}),  # no limit says how long it may take
    ],
)
def test_what_is_not_worse(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert worse(cell(**old), cell(**new)) == []


SLOW = MatrixLimit(limits={"estimated_ms": 20})


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (10.0, 30.0, ["estimated_ms: at most 20, found 30"]),
        (10.0, None, ["estimated_ms: at most 20, not measured"]),
        (10.0, 19.0, []),
        (30.0, 40.0, []),  # exceeded before
    ],
)
def test_a_limit_that_only_the_new_run_exceeds_is_worse(old: float, new: float | None, found: list[str]) -> None:
    assert worse(cell(estimated_ms=old), cell(estimated_ms=new), SLOW) == found


def test_a_limit_for_another_model_is_none() -> None:
    limit = MatrixLimit(models="other*", limits={"estimated_ms": 20})
    assert worse(cell(estimated_ms=10.0), cell(estimated_ms=30.0), limit) == []


def test_an_operation_is_the_same_on_the_host_and_under_another_index() -> None:
    host = cell(
        placed=(("EXP", "0: EXP new"), ("CONV_2D", "1: CONV_2D a"), ("org.tensorflow.lite.ADD", "2: ADD b"), *ON[2:]),
        operations=5,
        refused=((2, "org.tensorflow.lite.ADD", "2: ADD b", "TFLite's NNAPI delegate: requires float32"),),
    )
    (change,) = changes([cell()], [host]).changes
    assert [(move.name, move.before == "device", move.after == "device") for move in change.moves] == [
        ("0: EXP new", False, True),
        ("2: ADD b", True, False),
    ]


def test_models_devices_and_versions_of_one_run_only_are_named() -> None:
    both = [cell(device="d"), cell(device="e")]
    old = [*both, cell(model="gone", device="d"), cell(device="f"), cell(level=3), cell(model="n", device="e")]
    new = [*both, cell(model="n", device="d"), cell(model="n", device="e"), cell(model="new")]
    found = changes(old, new)
    assert found.removed == ("model gone", "device f", "Android 10")
    assert found.added == ("model new", "n on d, Android 13")
    text = "\n".join(change_lines(found))
    assert "Removed: model gone, device f, Android 10" in text
    assert "Added: model new, n on d, Android 13" in text
    assert found.worse == []


def test_the_worst_comes_first_long_lists_are_cut_and_the_verdict_is_last() -> None:
    old = [cell(model=f"m{i}") for i in range(9)]
    new = [cell(model=f"m{i}", transfers=1) for i in range(8)] + [cell(model="m8", partitions=2)]
    lines = change_lines(changes(old, new), top=3)
    assert lines[0] == "9 of 9 cells changed, 0 operations changed device"
    assert next(line for line in lines if line.startswith("m")) == "m8 on d, Android 13: partitions 1 → 2 (+1)"
    assert "… and 6 more (--top 9)" in lines
    assert lines[-1] == "Worse: 1 of 9 cells: m8 on d, Android 13 (partitions 1 → 2)."


def test_long_names_are_shortened_and_versions_with_the_same_changes_are_one_entry() -> None:
    name = f"2: ADD {'x' * 200}"
    placed = (*ON[:2], ("ADD", name), ON[3])
    old = [cell(placed=placed, level=level) for level in (3, 8)]
    new = [cell(placed=placed, level=level, on_device=3, refused=((2, "ADD", name, "d: no"),)) for level in (3, 8)]
    lines = change_lines(changes(old, new))
    assert [line for line in lines if line.startswith("m")] == ["m on d, Android 10, 13: operations on the device 4 → 3 (-1)"]
    (line,) = (line for line in lines if "left the device: " in line)
    assert len(line) < 80


def stored(path: Path, *cells: Cell) -> str:
    """A store with some cells."""
    with Store(path) as store:
        for number, each in enumerate(cells):
            store.add(str(number), each)
    return str(path)


def diff(old: str, new: str, *options: str) -> Result:
    return CliRunner().invoke(cli, ["matrix", "--diff", old, new, *options])


@pytest.mark.parametrize(("options", "status"), [(("--fail-on", "worse"), 1), ((), 0)])
def test_a_build_fails_on_what_is_worse_if_asked(options: tuple[str, ...], status: int, tmp_path: Path) -> None:
    old, new = stored(tmp_path / "old.db", cell()), stored(tmp_path / "new.db", cell(**REFUSED))
    result = diff(old, new, *options)
    assert result.exit_code == status
    assert result.stdout.splitlines()[-1] == "Worse: 1 of 1 cell: m on d, Android 13 (1 operation left the device)."
    assert diff(new, old, *options).exit_code == 0


def test_the_changes_for_the_worse_are_data_too(tmp_path: Path) -> None:
    old, new = stored(tmp_path / "old.db", cell()), stored(tmp_path / "new.db", cell(**REFUSED), cell(model="n"))
    found = json.loads(diff(old, new, "--json", "--fail-on", "worse").stdout)
    assert list(validator("matrix").iter_errors(found)) == []
    assert [change["worse"] for change in found["changes"]] == [["1 operation left the device"]]
    assert (found["removed"], found["added"]) == ([], ["model n"])


def test_a_model_that_is_gone_fails_a_build(tmp_path: Path) -> None:
    old, new = stored(tmp_path / "old.db", cell(), cell(model="n")), stored(tmp_path / "new.db", cell())
    result = diff(old, new, "--fail-on", "worse")
    assert result.exit_code == 1
    assert "Nothing got worse in 1 cell. Missing from the new run: model n." in result.stdout
    assert diff(old, new).exit_code == 0


def test_limits_count_beside_diff(tmp_path: Path) -> None:
    (tmp_path / "budget.toml").write_text("[[budget]]\nestimated_ms = 20\n")
    old = stored(tmp_path / "old.db", cell(estimated_ms=10.0))
    new = stored(tmp_path / "new.db", cell(estimated_ms=30.0))
    options = ("--fail-on", "worse")
    assert diff(old, new, *options).exit_code == 0
    result = diff(old, new, *options, "--budget", str(tmp_path / "budget.toml"))
    assert (result.exit_code, "estimated_ms: at most 20, found 30" in result.stdout) == (1, True)


def test_cells_of_older_stores_are_compared(tmp_path: Path) -> None:
    old = Path(stored(tmp_path / "old.db", cell()))
    with sqlite3.connect(old) as database:
        data = json.loads(database.execute("SELECT cell FROM cells").fetchone()[0])
        for key in ("inapplicable", "unknown", "notes", "tolerance", "verdict"):
            del data[key]
        database.execute("UPDATE cells SET cell = ?", (json.dumps(data),))
    database.close()
    new = stored(tmp_path / "new.db", cell(difference=3.0))
    assert diff(str(old), new, "--fail-on", "worse").exit_code == 1


def test_of_several_cells_of_a_store_the_one_that_was_asked_for_last_counts(tmp_path: Path) -> None:
    """A store keeps the cells of other settings and of former versions of a model."""
    models = {"m": MODELS / "digits_uint8.tflite"}
    fast, quant = (tasks(models, ["nnapi-sample_quant"], [8], MatrixSettings(preference=k)) for k in (1, 0))
    with Store(tmp_path / "m.db") as store:
        store.add(fast[0][0].key, cell())
        store.add(quant[0][0].key, cell(partitions=2))
        assert [each.partitions for each in store.all()] == [1, 2]
        run(fast, store)
        assert [each.partitions for each in store.all()] == [2, 1]


def test_junit_of_the_changes_fails_where_a_cell_got_worse(tmp_path: Path) -> None:
    """A test for each cell that both runs have: worse, the same, better, in no run, newly broken."""
    old = stored(
        tmp_path / "old.db",
        *(cell(model=name) for name in ("worse", "same", "gone")),
        cell(model="better", **REFUSED),
        cell(model="other format", inapplicable="of another format"),
        cell(model="broken"),
    )
    new = stored(
        tmp_path / "new.db",
        cell(model="worse", **REFUSED),
        *(cell(model=name) for name in ("same", "better")),
        cell(model="other format", inapplicable="of another format"),
        cell(model="broken", error="it ended"),
    )
    result = diff(old, new, "--junit", str(tmp_path / "worse.xml"))
    assert result.exit_code == 0, result.output
    suite = ElementTree.parse(tmp_path / "worse.xml").getroot()[0]
    assert [suite.get(key) for key in ("name", "tests", "failures", "errors", "skipped")] == ["d", "5", "2", "0", "1"]
    found = {test.get("name"): [(child.tag, child.get("message")) for child in test] for test in suite}
    assert found == {
        "worse": [("failure", "1 operation left the device")],
        "same": [],
        "better": [],
        "other format": [("skipped", "n/a (of another format)")],
        "broken": [("failure", "an answer → failed (it ended)")],
    }


def test_junit_of_the_changes_is_not_written_over_a_store(tmp_path: Path) -> None:
    old, new = (stored(tmp_path / name, cell()) for name in ("old.db", "new.db"))
    assert "expected a file other than a store" in diff(f"{old}@d", new, "--junit", old).output


def test_fail_on_belongs_to_diff(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["matrix", "m.tflite", "--devices", "hexagon", "--fail-on", "worse"])
    assert (result.exit_code, "--fail-on does nothing here: it belongs to --diff" in result.stderr) == (2, True)

"""Many models on many devices: cells, stores, processes, clusters, changes and limits."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner, Result

from nnbridge import storage
from nnbridge.cli.commands import cli
from nnbridge.errors import InputError
from nnbridge.matrix import Cell, Store, run
from nnbridge.matrix.budget import broken_limits, read_budgets, unused_limits
from nnbridge.matrix.cells import MatrixSettings, Task, compute_all, tasks
from nnbridge.matrix.changes import changes
from nnbridge.matrix.models import find_devices, find_models
from nnbridge.matrix.page import as_html
from nnbridge.matrix.tables import as_csv, as_junit, as_markdown, percent
from nnbridge.types import OperationCode
from tests.conftest import MODELS, REPOSITORY
from tests.graphs import add_then

FAST, QUANT = "nnapi-sample_float_fast", "nnapi-sample_quant"
DRIVERS = "tests.matrix.drivers"


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """Three small models in a folder."""
    folder = tmp_path / "zoo"
    folder.mkdir()
    for name, codes in (("a", ()), ("b", (OperationCode.FLOOR,)), ("c", (OperationCode.FLOOR, OperationCode.ABS))):
        storage.save(add_then(*codes), folder / f"{name}.nnapi")
    return folder


def groups_of(zoo: Path, *devices: str) -> list[list[Task]]:
    return tasks(find_models([str(zoo)], zoo / "cache"), devices, [8], MatrixSettings())


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["matrix", *arguments])


def test_a_cell_counts_operations_by_place(zoo: Path) -> None:
    ((task,),) = groups_of(zoo / "b.nnapi", "nnapi-sample_minimal")
    (cell,) = compute_all([task])
    assert (cell.operations, cell.on_device, cell.on_cpu, cell.partitions, cell.share) == (2, 1, 1, 1, 0.5)
    ((index, kind, _, why),) = cell.refused
    assert (index, kind) == (1, "FLOOR")
    assert why.startswith("nnapi-sample_minimal: requires ")


def test_what_stays_on_the_host_has_the_reason_why_it_was_not_handed_over(tmp_path: Path) -> None:
    found = find_models([str(MODELS / "digits_int8.tflite")], tmp_path)
    # Android 9's delegate hands over no int8.
    ((task,),) = tasks(found, [FAST], [2], MatrixSettings())
    (cell,) = compute_all([task])
    reasons = {why.partition(":")[0] for _, kind, _, why in cell.refused if kind.startswith("org.tensorflow.lite.")}
    assert reasons == {"TFLite's NNAPI delegate"}
    assert not any("host: " in why for *_, why in cell.refused)


def test_tables_are_equal_from_one_process_and_from_two(zoo: Path, tmp_path: Path) -> None:
    groups = groups_of(zoo, FAST, QUANT)
    one = run(groups, Store(tmp_path / "one.db"), jobs=1)
    assert [cell.model for cell in one] == ["a.nnapi", "a.nnapi", "b.nnapi", "b.nnapi", "c.nnapi", "c.nnapi"]
    assert run(groups, Store(tmp_path / "two.db"), jobs=2) == one


def test_a_dask_cluster_gives_the_same_tables(zoo: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    groups = groups_of(zoo, FAST, QUANT)
    here = run(groups, Store(tmp_path / "here.db"))
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        assert run(groups, Store(tmp_path / "there.db"), scheduler=cluster.scheduler_address) == here


def test_an_address_without_a_scheduler_is_bad_input(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed")
    with pytest.raises(InputError, match="expected the address of a Dask scheduler that answers, found nonsense"):
        run(groups_of(zoo, FAST), Store(tmp_path / "x.db"), scheduler="nonsense://x")


def test_what_the_store_has_is_not_computed_again(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups, store = groups_of(zoo, FAST), Store(tmp_path / "cells.db")
    first = run(groups, store)
    asked: list[object] = []
    monkeypatch.setattr("nnbridge.matrix.runner.compute", lambda groups, *_: asked.extend(groups) or iter(()))
    assert (run(groups, store), asked) == (first, [])


def test_a_changed_file_is_another_cell(zoo: Path) -> None:
    ((before,),) = groups_of(zoo / "a.nnapi", FAST)
    storage.save(add_then(OperationCode.EXP), zoo / "a.nnapi")
    ((after,),) = groups_of(zoo / "a.nnapi", FAST)
    assert before.key != after.key


def test_a_changed_profile_is_another_cell(zoo: Path) -> None:
    profile = zoo / "mine.toml"
    profile.write_text("one")
    ((task,),) = groups_of(zoo / "a.nnapi", str(profile))
    before = task.key
    profile.write_text("two")
    assert task.key != before


def test_a_driver_that_ends_its_process_or_never_answers_costs_its_cell_alone(zoo: Path, tmp_path: Path) -> None:
    groups = groups_of(zoo / "a.nnapi", f"{DRIVERS}:KILLED", f"{DRIVERS}:ENDLESS", FAST)
    killed, endless, fine = run(groups, Store(tmp_path / "cells.db"), jobs=1, timeout=10)
    assert killed.error == "the process was ended by SIGKILL, as systems do that lack memory"
    assert endless.error == "no answer within 10 seconds"
    assert (fine.error, fine.on_device) == ("", 1)


def test_a_file_that_is_no_model_is_a_cell_that_failed(tmp_path: Path) -> None:
    (tmp_path / "bad.tflite").write_bytes(b"not a model at all, but long enough")
    result = call(str(tmp_path / "bad.tflite"), "--devices", FAST, "--store", str(tmp_path / "x.db"), "--json")
    (cell,) = json.loads(result.output)["cells"]
    assert (result.exit_code, "bad.tflite" in cell["error"]) == (1, True)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_run_that_is_killed_continues_where_it_was(zoo: Path, tmp_path: Path) -> None:
    store = tmp_path / "cells.db"
    start = "from nnbridge.cli import main; main()"
    options = ("matrix", str(zoo), "--devices", "samples", "--store", str(store), "--jobs", "1")
    command = [sys.executable, "-c", start, *options]
    started = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (not store.is_file() or len(_cells(store)) < 3):
        time.sleep(0.02)
    started.send_signal(signal.SIGKILL)
    started.wait()
    kept = len(_cells(store))
    assert kept >= 3
    groups = groups_of(zoo, *find_devices(["samples"]))
    done: list[int] = []
    cells = run(groups, Store(store), progress=done.append)
    assert done[0] >= kept
    assert cells == run(groups, Store(tmp_path / "whole.db"))


def _cells(path: Path) -> list[Cell]:
    try:
        return Store.existing(path).all()
    except InputError:
        return []  # Between the file and its table.


def test_another_sqlite_file_is_left_alone(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "mine.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE mine (x)")
    with pytest.raises(InputError, match=r"expected a matrix's results, found another SQLite file"):
        Store(path)
    (tmp_path / "text.db").write_text("no database")
    with pytest.raises(InputError, match=r"expected a file of a matrix's results that can be used"):
        Store(tmp_path / "text.db")


def test_models_come_from_folders_patterns_and_addresses_under_names_that_distinguish_them(zoo: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    storage.save(add_then(OperationCode.LOG), other / "a.nnapi")
    assert list(find_models([str(zoo), str(tmp_path / "o*" / "*.nnapi")], tmp_path)) == [
        "zoo/a.nnapi",
        "b.nnapi",
        "c.nnapi",
        "other/a.nnapi",
    ]
    with pytest.raises(InputError, match="expected models"):
        find_models([str(tmp_path / "none*")], tmp_path)


def test_models_of_an_address_are_stored_once(zoo: Path, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    memory = fsspec.filesystem("memory")
    memory.pipe("/bucket/far.nnapi", (zoo / "a.nnapi").read_bytes())
    memory.pipe("/bucket/notes.txt", b"no model")
    (path,) = find_models(["memory://bucket/*"], tmp_path / "cache").values()
    assert path.read_bytes() == (zoo / "a.nnapi").read_bytes()
    with pytest.raises(InputError, match="expected an address that fsspec can read"):
        find_models(["nonsense://x/*"], tmp_path / "cache")


def test_devices_are_names_patterns_groups_and_pairs() -> None:
    assert find_devices(["nnapi-sample_float_*,nnapi-sample_quant", f"{FAST}+{QUANT}", FAST]) == [
        "nnapi-sample_float_fast",
        "nnapi-sample_float_slow",
        "nnapi-sample_quant",
        f"{FAST}+{QUANT}",
    ]
    assert len(find_devices(["profiles"])) > 10
    with pytest.raises(InputError, match="no device is called nonsense"):
        find_devices(["nonsense"])


def cell(**changed: object) -> Cell:
    start = {"model": "m", "device": "d", "level": 8, "operations": 4, "on_device": 4, "partitions": 1}
    return Cell.of({**start, "placed": [["ADD", "one"], ["ADD", ""], ["ADD", ""], ["CONV_2D", "two"]], **changed})


def test_changes_name_what_moved_with_the_reason_and_partitions_gained() -> None:
    worse = cell(on_device=3, partitions=2, refused=[[2, "ADD", "", "d: requires rank 4"]], device="d2")
    (change,) = changes([cell()], [worse]).changes
    (move,) = change.moves
    assert (move.index, move.type, move.before, move.after) == (2, "ADD", "device", "d: requires rank 4")
    assert change.lines == ["operations on the device 4 → 3 (-1)", "partitions 1 → 2 (+1)"]
    assert changes([cell()], [cell()]).changes == ()
    assert changes([cell(error="no file")], [cell(error="no file")]).changes == ()


def test_an_operation_that_a_new_version_of_a_model_has_is_named() -> None:
    newer = cell(
        operations=5, on_device=5, placed=[["RELU", "new"], ["ADD", "one"], ["ADD", ""], ["ADD", ""], ["CONV_2D", "two"]]
    )
    (change,) = changes([cell()], [newer]).changes
    assert [(move.name, move.before, move.after) for move in change.moves] == [("new", "not in the model", "device")]


def test_runs_without_a_cell_in_common_are_refused() -> None:
    with pytest.raises(InputError, match="expected two runs with a model, device and level in common"):
        changes([cell(model="x")], [cell()])


def test_diff_reads_two_stores(zoo: Path, tmp_path: Path) -> None:
    for name, device in (("old", "nnapi-sample_minimal"), ("new", FAST)):
        assert call(str(zoo), "--devices", device, "--store", str(tmp_path / f"{name}.db")).exit_code == 0
    result = call("--diff", str(tmp_path / "old.db"), str(tmp_path / f"new.db@{FAST}"), "--json")
    found = json.loads(result.output)
    assert (result.exit_code, found["cells"]) == (0, 3)
    assert [move["type"] for change in found["changes"] for move in change["moves"]] == ["FLOOR", "FLOOR", "ABS"]
    assert all(move["after"] == "device" for change in found["changes"] for move in change["moves"])


def test_the_store_is_one_file_when_a_command_ends(zoo: Path, tmp_path: Path) -> None:
    store, copy = tmp_path / "one.db", tmp_path / "copy.db"
    assert call(str(zoo), "--devices", FAST, "--store", str(store)).exit_code == 0
    copy.write_bytes(store.read_bytes())
    assert call("--diff", str(store), str(copy)).exit_code == 0
    assert sorted(path.name for path in tmp_path.glob("*.db*")) == ["copy.db", "one.db"]


def test_names_are_text_in_markdown_and_csv() -> None:
    cells = [cell(model="<img src=x onerror=alert(1)>|*a*.onnx", device="=1+1")]
    assert "| \\<img src=x onerror=alert(1)\\>\\|\\*a\\*.onnx |" in as_markdown(cells)
    assert [row["device"] for row in csv.DictReader(io.StringIO(as_csv(cells)))] == ["'=1+1"]


@pytest.mark.parametrize(
    ("limits", "broken"),
    [
        ("off_device = 1", []),
        ("off_device = 0", ["off_device: at most 0, found 1"]),
        ("share = 0.8", ["share: at least 0.8, found 0.75"]),
        ("partitions = 1\nmodels = 'other*'", []),
        ("difference = 1", ["difference: at most 1, not measured"]),
        ("within_tolerance = true", ["within_tolerance: not compared"]),
    ],
)
def test_limits(limits: str, broken: list[str], tmp_path: Path) -> None:
    (tmp_path / "budget.toml").write_text(f"[[budget]]\n{limits}\n")
    budgets = read_budgets(tmp_path / "budget.toml")
    assert broken_limits(budgets, [cell(on_device=3)]) == ({0: broken} if broken else {})


@pytest.mark.parametrize(
    ("pattern", "unused"),
    [
        ("models = 'mobilnet*'", "no cell has models 'mobilnet*' and devices '*'"),
        ("devices = 'arm-n-*'", "no cell has models '*' and devices 'arm-n-*'"),
        ("models = 'M.TFLITE'", "no cell has models 'M.TFLITE' and devices '*'"),
        ("", ""),
        ("models = '*'", ""),
    ],
)
def test_limits_that_concern_no_cell_are_reported(pattern: str, unused: str, tmp_path: Path) -> None:
    (tmp_path / "budget.toml").write_text(f"[[budget]]\npartitions = 1\n[[budget]]\n{pattern}\npartitions = 1\n")
    found = unused_limits(read_budgets(tmp_path / "budget.toml"), [cell()])
    assert found == ([f"--budget: table 2 limits nothing: {unused}"] if unused else [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[budget]]\npartition = 1", r"expected a key of a budget \(did you mean partitions\?\)"),
        ("[[budget]]\npartitions = true", "expected a number, found True"),
        ("[[budget]]\nmodels = 1", "expected a pattern, found 1"),
        ("budget = 1", r"expected only \[\[budget\]\] tables"),
        ("[[budget", "expected a budget in TOML"),
    ],
)
def test_mistakes_in_limits_are_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "budget.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        read_budgets(tmp_path / "budget.toml")


def test_a_broken_limit_fails_the_build_and_every_file_is_written(
    zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "budget.toml").write_text("[[budget]]\noff_device = 0\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    files = {suffix: str(tmp_path / f"out.{suffix}") for suffix in ("html", "csv", "markdown", "junit")}
    outputs = [part for suffix, file in files.items() for part in (f"--{suffix}", file)]
    budget = ("--budget", str(tmp_path / "budget.toml"), "--github", "--store", str(tmp_path / "x.db"))
    result = call(str(zoo), "--devices", "nnapi-sample_minimal", *outputs, *budget)
    assert result.exit_code == 1
    assert "Budget exceeded" in result.output
    assert result.output.endswith("Exit status 1: 2 limits exceeded.\n")
    assert Path(files["markdown"]).read_text() == (tmp_path / "summary.md").read_text().rstrip("\n") + "\n"
    rows = list(csv.DictReader(io.StringIO(Path(files["csv"]).read_text())))
    assert [row["on_device"] for row in rows] == ["1", "1", "1"]
    assert ElementTree.parse(files["junit"]).getroot().find("testsuite").get("failures") == "2"
    assert "✕ 1 limit exceeded" in Path(files["html"]).read_text()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({}, "outside tolerance of litert: off by 3 steps"),
        ({"difference": 0.25, "quantised": False}, "outside tolerance of litert: off by 0.25"),
        ({"difference": None}, "outside tolerance of litert: no finite value"),
        ({"unknown": True}, "outside tolerance of litert: off by 3 steps (numbers unknown; as computed)"),
        ({"on_device": 0}, "outside tolerance of litert: off by 3 steps (nothing on the device; as computed)"),
    ],
)
def test_junit_says_by_how_much_a_cell_is_outside_tolerance_and_whose_numbers_these_are(
    changed: dict[str, object], message: str
) -> None:
    found = cell(**{"reference": "litert", "within": False, "difference": 3.0, "quantised": True, **changed})
    suite = ElementTree.fromstring(as_junit([found], {}))
    assert [failure.get("message") for failure in suite.iter("failure")] == [message]


def test_names_of_strangers_do_no_harm_in_any_format() -> None:
    bad = '=1+1<script>alert("x")</script>|\x1b'
    cells = [cell(model=bad, device=bad, error=bad)]
    assert as_html(cells, {}).count("<script") == 1  # the page's own
    assert "mobilenet_<wbr>v2.<wbr>tflite" in as_html([Cell("mobilenet_v2.tflite", "d", 8)], {})
    ElementTree.fromstring(as_junit(cells, {}))
    (row,) = csv.DictReader(io.StringIO(as_csv(cells)))
    assert row["model"].startswith("'=")
    assert "\x1b" not in as_markdown(cells)
    assert "\\|" in as_markdown(cells)


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0%"), (1, "100%"), (0.99998, ">99.99%"), (0.00001, "<0.01%"), (0.995, "99.50%"), (0.5, "50%")]
)
def test_a_percentage_is_0_or_100_only_if_it_is_that(share: float, text: str) -> None:
    assert percent(share) == text


def test_a_reference_s_difference_is_in_the_cell(real_models: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    path = real_models / "kws_ref_model.tflite"
    ((task,),) = tasks({"kws": path}, [QUANT], [8], MatrixSettings(reference="auto", timed=True))
    (found,) = compute_all([task])
    assert (found.reference, found.passed, found.quantised) == ("litert", True, True)
    assert found.difference is not None
    assert found.time_ms is not None
    assert found.time_ms > 0


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path) -> Iterator[None]:
    """The default store is made where the command runs."""
    before = Path.cwd()
    os.chdir(tmp_path)
    yield
    os.chdir(before)


def test_a_compiler_s_device_answers_for_the_file_with_an_estimate_of_its_time(real_models: Path) -> None:
    path = real_models / "mobilenet_v2_1.0_224_quant.tflite"
    ((compiler, driver),) = tasks({"m": path}, ["ethos-u55-128", QUANT], [8], MatrixSettings())
    taken, not_estimated = compute_all([compiler, driver])
    assert (taken.on_device, taken.operations, taken.partitions) == (66, 66, 1)
    assert taken.estimated_ms == pytest.approx(14.86, rel=0.1)
    assert not_estimated.estimated_ms is None


@pytest.mark.parametrize("device", ["ethos-u55-128", "hexagon", f"hexagon+{FAST}", "{folder}/mine.toml#mine"])
@pytest.mark.parametrize("name", ["a.nnapi", "digits_float32.onnx"])
def test_a_device_for_files_of_another_format_does_not_apply_which_is_no_failure(zoo: Path, device: str, name: str) -> None:
    (zoo / "mine.toml").write_text('[[device]]\nname = "mine"\nlevel = "tflite"\noperations = { ADD = [] }\n')
    model = zoo / name if name == "a.nnapi" else MODELS / name
    result = call(
        str(model), "--devices", device.format(folder=zoo), "--reference", "auto", "--store", str(zoo / "m.db"), "--json"
    )
    assert result.exit_code == 0, result.output
    (cell,) = json.loads(result.stdout)["cells"]
    assert "a TFLite file, whose operators the device looks at, found the format" in cell["inapplicable"]
    assert (cell["verdict"], cell["error"], cell["operations"]) == ("n/a", "", 0)


def test_a_device_that_fails_on_the_file_s_format_still_fails(zoo: Path) -> None:
    (zoo / "bad.tflite").write_bytes((MODELS / "digits_int8.tflite").read_bytes()[:2000])
    ((task,),) = groups_of(zoo / "bad.tflite", "hexagon")
    (cell,) = compute_all([task])
    assert (cell.verdict, cell.inapplicable) == ("failed", "")


def test_photos_are_compared_in_place_of_drawn_inputs_and_other_photos_are_other_cells(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    images = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    (tmp_path / "photos").mkdir()
    models = [str(MODELS / f"digits_{kind}.tflite") for kind in ("uint8", "float32")]
    options = ("--device", QUANT, "--reference", "auto", "--jobs", "1")
    inputs = ("--input", "photos", "--resize", "fit", "--scale", "1/255")

    def compared(number: int) -> int:
        """Cells in the store after a run on a digit."""
        images.fromarray(np.load(MODELS / "digits_test.npz")["images"][number]).save(tmp_path / "photos" / "digit.png")
        result = call(*models, *options, *inputs, "--json")
        cells = json.loads(result.stdout)["cells"]
        assert [(cell["error"], cell["within"]) for cell in cells] == [("", True)] * 2
        return len(_cells(Path("matrix.db")))

    assert [compared(0), compared(0), compared(1)] == [2, 2, 4]


@pytest.mark.parametrize("options", [("--input", "a.npy"), ("--resize", "crop"), ("--seeds", "1")])
def test_options_of_inputs_without_use_are_refused(options: tuple[str, ...], zoo: Path) -> None:
    result = call(str(zoo), "--device", FAST, *options)
    assert (result.exit_code, f"{options[0]} does nothing here" in result.stderr) == (2, True)


def hrefs(page: Path) -> list[str]:
    """The addresses of a page's links to other files."""
    return [text.partition('"')[0] for text in page.read_text(encoding="utf-8").split('<a href="')[1:] if text[0] != "#"]


def test_the_page_has_links_to_the_reports_of_its_cells(zoo: Path, tmp_path: Path) -> None:
    page, reports = tmp_path / "pages" / "m 1.html", tmp_path / "reports & more"
    page.parent.mkdir()
    options = ("--store", str(tmp_path / "m.db"), "--html", str(page), "--jobs", "1")
    devices = ("--device", f"{FAST},hexagon")
    assert call(str(zoo), *devices, *options).exit_code == 0
    assert hrefs(page) == []
    assert call(str(zoo), *devices, *options, "--reports", str(reports)).exit_code == 0
    found = [(page.parent / unquote(href)).resolve() for href in hrefs(page)]
    assert sorted(found) == sorted(reports.iterdir())
    assert [path.name[: len(f"a.nnapi-{FAST}-Android_13-")] for path in found] == [f"{x}.nnapi-{FAST}-Android_13-" for x in "abc"]
    assert all("nnbridge report" in path.read_text(encoding="utf-8") for path in found)
    before = {path: path.stat().st_mtime_ns for path in found}
    found[1].unlink()
    assert call(str(zoo), *devices, *options, "--reports", str(reports)).exit_code == 0
    assert [path for path in found if path.stat().st_mtime_ns != before[path]] == [found[1]]


def test_a_report_that_cannot_be_written_costs_the_link_only(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((task,),) = tasks(find_models([str(zoo / "a.nnapi")], tmp_path), [FAST], [8], MatrixSettings(), str(tmp_path / "none"))
    (cell,) = compute_all([task])
    assert (cell.error, cell.on_device) == ("", 1)
    assert [note.partition(":")[0] for note in cell.notes] == ["no report"]


def test_warnings_of_a_file_are_said_once_and_not_in_the_progress(zoo: Path, tmp_path: Path, real_models: Path) -> None:
    command = (sys.executable, "-m", "nnbridge", "matrix", str(real_models / "two_signature_keys.tflite"), "--jobs", "1")
    options = ("--devices", "nnapi-sample_minimal,hexagon", "--store", str(tmp_path / "m.db"))
    for _ in range(2):  # a second run has its cells from the store
        result = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert result.stderr.count("the signatures model_one, model_two differ") == 1


def test_the_page_states_for_which_devices_times_are_estimated() -> None:
    assert "none of these devices has a cost model" in as_html([Cell("m", "d", 8)], {})
    assert "for devices that have a cost model" in as_html([Cell("m", "d", 8, estimated_ms=1.5)], {})


def test_options_of_a_run_are_refused_beside_diff(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["matrix", "--diff", "old.db", "new.db", "--html", str(tmp_path / "page.html")])
    assert result.exit_code == 2
    assert "--html does nothing here" in result.stderr

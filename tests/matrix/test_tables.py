"""A matrix at a terminal and in Markdown: columns that fit, verdicts that say what is known, lists that are cut."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from rich.console import Console

from nnbridge.cli.commands import cli
from nnbridge.matrix import Cell
from nnbridge.matrix.budget import MatrixLimit
from nnbridge.matrix.cells import MatrixSettings, compute_all, tasks
from nnbridge.matrix.models import evidence_of, find_models
from nnbridge.matrix.page import as_html
from nnbridge.matrix.tables import as_junit, as_markdown, matrix_tables, summary
from nnbridge.report.terminal import show
from nnbridge.storage import save
from tests.conftest import MODELS
from tests.graphs import add_then

INT8 = MODELS / "digits_int8.tflite"


def cell(**changed: Any) -> Cell:
    start = {"model": "m", "device": "d", "level": 8, "operations": 4, "on_device": 4, "partitions": 1}
    return Cell(**{**start, **changed})


def compared(**changed: Any) -> Cell:
    return cell(**{"reference": "litert", "within": True, "difference": 0.0, "quantised": True, **changed})


def shown(*cells: Cell, width: int = 200, **options: Any) -> str:
    """The output on a terminal of a width."""
    out = io.StringIO()
    show(matrix_tables(cells, **options), Console(file=out, width=width, force_terminal=True, color_system=None))
    return out.getvalue()


def zoo(models: int, devices: int, **changed: Any) -> list[Cell]:
    """Cells of many models with long names."""
    return [
        cell(
            model=f"mobilenet_v{i}_1.0_224_quantised.tflite",
            device=f"vsi-imx-android-12.{k}.0_1.0.0",
            transfers=1_234_567,
            **changed,
        )
        for i in range(models)
        for k in range(devices)
    ]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("size", [(2, 3), (20, 10), (1, 49)])
def test_tables_fit_and_no_heading_or_name_is_cut(width: int, size: tuple[int, int]) -> None:
    text = shown(*zoo(*size, within=False, difference=3.0, quantised=True, unknown=True, estimated_ms=12.3), width=width)
    assert max(map(len, text.splitlines())) <= width
    headings = [line for line in text.splitlines() if line.startswith("┃")]
    assert headings
    assert not any("…" in line for line in headings)
    names = {getattr(each, side) for each in zoo(*size) for side in ("model", "device")}
    rows = [line for line in text.splitlines() if line.startswith("│")]
    assert rows
    assert all(any(whole(row.split("│")[1].strip(), name) for name in names) for row in rows)


def whole(part: str, name: str) -> bool:
    """True for a part of a name that begins and ends where the name does, or at its separators."""
    start = name.find(part)
    return start >= 0 and (start == 0 or name[start - 1] in "_.-") and (name.endswith(part) or part[-1] in "_.-")


def test_columns_with_nothing_in_them_go() -> None:
    text = shown(cell(), cell(device="e"))
    assert "on device" in text
    assert not any(word in text.split("on device: ")[0] for word in ("verdict", "largest", "estimate", "moved", "model "))


def test_rows_of_versions_with_the_same_figures_are_one() -> None:
    text = shown(cell(level=3), cell(level=8), cell(device="e", level=3), cell(device="e", on_device=2))
    rows = [[part.strip() for part in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    assert rows == [["d", "10, 13", "4/4 in 1"], ["e", "10", "4/4 in 1"], ["e", "13", "2/4 in 1"]]


def test_where_nothing_was_compared_nothing_is_outside_tolerance_nor_within() -> None:
    text = shown(*zoo(5, 10))
    assert "50 with every operation on the device; not compared" in text
    assert text.rstrip().endswith("Exit status 0: no cell failed; not compared.")
    assert not any(word in text for word in ("│0 of", "within tolerance", "pass"))


@pytest.mark.parametrize("difference", [0.0, 1.0])
def test_numbers_that_nothing_emulates_are_unknown_in_every_format(difference: float) -> None:
    cells = [compared(unknown=True, difference=difference, device=name) for name in ("d", "e")]
    texts = [shown(*cells), as_markdown(cells), summary(cells), cells[0].verdict]
    assert all("numbers unknown" in text for text in texts)
    assert not any(word in text for text in texts for word in ("pass", "equal", "within tolerance", "✓"))


def test_numbers_that_nothing_emulates_and_that_are_wrong_say_both() -> None:
    text = shown(compared(unknown=True, within=False, difference=3.0), compared(device="e"))
    assert "numbers unknown (computed as NNAPI's CPU)" in text
    assert "3 steps outside" in text
    assert "Exit status 1: 1 outside tolerance, 1 of them as NNAPI's CPU computes." in text


IDLE = {"on_device": 0, "on_host": 4, "partitions": 0}


@pytest.mark.parametrize(
    "changed",
    [IDLE, {**IDLE, "on_cpu": 4, "on_host": 0}, {**IDLE, "fallback": "a step failed"}, {**IDLE, "device": "d+e"},
     {**IDLE, "difference": 0.5, "quantised": False}, {**IDLE, "passed_by": "matched boxes"}],
)  # fmt: skip
def test_what_others_computed_is_no_pass_of_a_device_on_which_nothing_runs(changed: dict[str, Any]) -> None:
    cells = [compared(**changed), compared(model="n", **changed)]
    page = as_html(cells).partition("<main")[2].partition("</main")[0]
    texts = [shown(*cells), shown(*cells, top=1), as_markdown(cells), page, summary(cells), cells[0].verdict]
    assert all("nothing on the device" in text for text in texts)
    assert not any(word in text for text in texts for word in ("pass", "equal", "within tolerance", "✓"))
    suite = ElementTree.fromstring(as_junit(cells, {})).find("testsuite")
    assert suite is not None
    assert [suite.get(key) for key in ("tests", "failures", "skipped")] == ["2", "0", "2"]


def test_unknown_numbers_are_no_test_that_passed() -> None:
    cells = [compared(unknown=True), compared(model="n", unknown=True, within=None), compared(model="o")]
    suite = ElementTree.fromstring(as_junit(cells, {})).find("testsuite")
    assert suite is not None
    assert [suite.get(key) for key in ("tests", "failures", "skipped")] == ["3", "0", "1"]
    assert suite.find("testcase/skipped").get("message") == "numbers unknown"  # type: ignore[union-attr]


def test_what_others_computed_wrongly_fails_and_says_both() -> None:
    text = shown(compared(**IDLE, within=False, difference=3.0), compared(device="e"))
    assert "Exit status 1: 1 outside tolerance, 1 of them with nothing on the device." in text
    assert "3 steps outside" in text


def test_nnapi_s_cpu_as_the_device_passes_by_what_it_computed() -> None:
    assert compared(device="nnapi-reference", on_device=0, on_cpu=4).verdict == "pass"
    assert compared(device="d+nnapi-reference", on_device=0, on_cpu=4).verdict == "pass"
    assert compared(device="nnapi-reference", on_device=0, on_host=4).verdict == "nothing on the device"


@pytest.mark.parametrize("limit", [{"within_tolerance": True}, {"difference": 1}])
def test_a_limit_on_numbers_is_exceeded_where_nothing_runs_on_the_device(limit: dict[str, Any]) -> None:
    assert MatrixLimit(limits=limit).broken(compared()) == []
    assert MatrixLimit(limits=limit).broken(compared(**IDLE))


def test_a_device_that_does_not_apply_is_neither_a_failure_nor_a_test_that_ran() -> None:
    cells = [cell(), *(cell(device=name, inapplicable="expected a TFLite file") for name in ("e", "f"))]
    text = shown(*cells)
    assert "n/a: m on e, f: for files of another format" in text
    assert "Exit status 0" in text
    suite = ElementTree.fromstring(as_junit(cells, {})).findall("testsuite")[1]
    assert [suite.get(key) for key in ("tests", "errors", "failures", "skipped")] == ["1", "0", "0", "1"]
    assert suite.find("testcase/skipped").get("message") == "expected a TFLite file"  # type: ignore[union-attr]


def test_limits_name_the_android_version() -> None:
    cells = [cell(level=3), cell(level=5), cell(level=8)]
    broken = {
        0: ["share: at least 0.9, found 0.25"],
        1: ["share: at least 0.9, found 0.25"],
        2: ["share: at least 0.9, found 0.6"],
    }
    text = shown(*cells, broken=broken).split("Budget exceeded")[1]
    assert "10, 12│share: at least 0.9, found 0.25" in text
    assert "    13│share: at least 0.9, found 0.6" in text
    assert "Exit status 1: 3 limits exceeded." in text
    assert "- Budget exceeded (Android 10, 12): m on d: share: at least 0.9, found 0.25" in as_markdown(cells, broken)


@pytest.mark.parametrize(("models", "devices", "first"), [(3, 2, "model"), (2, 3, "device"), (2, 2, "model")])
def test_the_longer_side_is_down(models: int, devices: int, first: str) -> None:
    cells = [cell(model=f"m{i}", device=f"d{k}") for i in range(models) for k in range(devices)]
    lines = as_markdown(cells).splitlines()
    (head,) = (line for line in lines if line.startswith(f"| {first} |"))
    assert head.count("|") == min(models, devices) + 2
    assert sum(line.startswith(f"| {first[0]}") for line in lines) == max(models, devices) + 1


def test_many_cells_are_summed_by_both_sides_and_the_worst_are_first() -> None:
    cells = zoo(20, 10)
    cells[57] = cell(model=cells[57].model, device=cells[57].device, error="it ended")
    text = shown(*cells, top=5)
    assert text.index("By model") < text.index("By device")
    by_model = text.split("By model")[1].split("By device")[0]
    assert "mobilenet_v5" in by_model.splitlines()[4]
    assert "the worst first, … and 15 more (--top 20)" in by_model
    assert "By model" not in shown(*cells, top=0)
    assert text.rstrip().splitlines()[-1] == "Exit status 1: 1 cell failed."


def test_sums_count_unknown_numbers_apart_from_those_within_tolerance() -> None:
    unknown = [compared(model=f"m{i}", unknown=True) for i in range(3)]
    cells = [*unknown, compared(model="m3", unknown=True, within=False, difference=9.0), compared(model="m4"), cell(model="m5")]
    text = shown(*cells, *(cell(model=each.model, device="e") for each in cells), top=2)
    rows = [[part.strip() for part in line.split("│")[1:-1]] for line in text.split("By device")[1].splitlines() if "│" in line]
    assert rows == [["d", "6", "6", "100%", "0 of 1", "4 (1 outside)"], ["e", "6", "6", "100%", "not compared", "-"]]


def test_lists_are_cut_with_a_line_that_says_how_many_more() -> None:
    cells = [cell(device=f"d{k}", error=f"error {k}") for k in range(9)]
    text = shown(*cells, evidence=[f"d{k}: rules" for k in range(9)], broken={}, top=4)
    assert text.count("… and 5 more (--top 9)") == 3  # rows, failures, evidence


def test_each_device_has_its_evidence_in_a_clause(tmp_path: Path) -> None:
    options = ("--devices", "arm-nn-18.05+vsi-nn-sl,ethos-u55-128", "--store", str(tmp_path / "m.db"), "--jobs", "1")
    result = CliRunner().invoke(cli, ["matrix", str(INT8), *options])
    lines = [line for line in result.stdout.splitlines() if ": rules: " in line]
    assert [line.partition(":")[0] for line in lines] == ["arm-nn-18.05", "vsi-nn-sl", "ethos-u55-128"]
    assert [each.clause for each in evidence_of(["vsi-nn-sl"])] == [lines[1].partition(": ")[2]]


def test_a_device_of_a_lower_level_gets_the_inputs_that_it_knows(tmp_path: Path) -> None:
    """Below level 4 NNAPI has no signed 8-bit type: the inputs are uint8, LiteRT's int8."""
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    (group,) = tasks({"m": INT8}, ["vsi-nn-sl", "arm-nn-18.05"], [8], MatrixSettings(reference="auto"))
    new, old = compute_all(group)
    assert (new.error, old.error) == ("", "")
    assert (new.passed, new.within, new.verdict) == (None, True, "numbers unknown (computed as NNAPI's CPU)")
    assert old.difference is not None


@pytest.mark.parametrize("reference", ["litert", "onnxruntime"])
def test_a_reference_that_does_not_read_the_format_compares_nothing(reference: str, tmp_path: Path) -> None:
    save(add_then(), tmp_path / "a.nnapi")
    found = find_models([str(tmp_path / "a.nnapi")], tmp_path)
    ((task,),) = tasks(found, ["nnapi-sample_float_fast"], [8], MatrixSettings(reference=reference))
    (only,) = compute_all([task])
    assert (only.error, only.verdict) == ("", "not compared")


def test_a_file_that_no_phone_loads_failed_unless_all_is_mapped(tmp_path: Path) -> None:
    """Stock LiteRT refuses 8-bit weights with another zero point than 0."""
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    from tests.tflite.test_loading import layer

    path = layer("CONV_2D", weights_point=5).write(tmp_path / "m.tflite", [0], [1])
    ((phone,), (wide,)) = (
        tasks({"m": path}, ["nnapi-sample_quant"], [8], MatrixSettings(mapping))[0] for mapping in ("phone", "wide")
    )
    (refused,), (mapped,) = compute_all([phone]), compute_all([wide])
    assert "expected a file that TFLite loads, with 8-bit weights with zero points of 0" in refused.error
    assert mapped.error == ""


def test_a_caption_explains_only_columns_that_are_there() -> None:
    plain, all_of_them = shown(cell(), cell(device="e")), shown(cell(transfers=9), compared(device="e", **IDLE))
    assert "moved:" not in plain
    assert "moved: across partition borders" in all_of_them
    assert "none:" not in shown(*zoo(5, 2), top=4)
    assert "none: nothing on the device" in shown(*zoo(5, 2, **IDLE), top=4)

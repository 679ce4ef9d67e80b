"""Output of commands on a terminal of 80 columns, and elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from rich.console import Console

from nnbridge import storage
from nnbridge.cli.sections import folded
from nnbridge.converters.inspection import Inspection
from nnbridge.model import Model
from nnbridge.report.inspection import inspection_tables
from nnbridge.report.outputs import output_lines
from nnbridge.report.terminal import Table as Block
from nnbridge.report.terminal import counted, short_name, show
from tests.commands import call
from tests.conftest import MODELS
from tests.graphs import constant_add
from tests.test_cli import TERMINAL
from tests.tflite.files import TfliteBuilder
from tests.tflite.shared import real_model

FLOAT32, REFERENCE = MODELS / "digits_float32.tflite", MODELS / "digits_float32.litert.npz"


def narrow(*arguments: Any) -> Result:
    """A command's result on a terminal of 80 columns."""
    return call(*arguments, env=TERMINAL)


def piped(*arguments: Any) -> Result:
    """A command's result where no terminal is."""
    return call(*arguments)


def test_an_output_of_another_shape_is_named_below_the_table(tmp_path: Path) -> None:
    wrong = {name: np.tile(array, 2) if name.startswith("output:") else array for name, array in np.load(REFERENCE).items()}
    np.savez(tmp_path / "wrong.npz", **wrong)
    result = narrow("compare", FLOAT32, "--reference", tmp_path / "wrong.npz")
    assert result.exit_code == 1
    for column in ("output", "type", "elements", "verdict"):
        assert f"┃{column}" in result.stdout
    assert "max diff" not in result.stdout
    assert "│PartitionedCall:0│float32│       0│FAIL" in result.stdout
    said, verdict = result.stdout.splitlines()[-2:]
    assert said == "PartitionedCall:0: float32[1, 20] in the reference, float32[1, 10] here"
    assert verdict == "Verdict: digits_float32 on nnapi-reference: FAIL"


def bordered(table: Block, width: int) -> list[list[str]]:
    """The cells of a table's lines on a terminal; every line fits it."""
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as capture:
        show([table], console)
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= width
    return [[cell.strip() for cell in line.strip("│┃").split("│" if "│" in line else "┃")] for line in lines if line[0] in "│┃"]


NAMES = (
    "process:add_class:AddDriver",
    "org.tensorflow.lite.COMPLEX_ABS×2 (host), CONV_2D",
    "TFLite_Detection_PostProcess:1",
    "Relu;BiasAdd;Conv2D;Const_11",
    "mobilenet_v1_1.0_224_quant.tflite",
)


@pytest.mark.parametrize("width", range(28, 80, 4))
@pytest.mark.parametrize("pair", list(pairwise(NAMES)))
def test_names_break_after_separators_and_never_in_a_word(width: int, pair: tuple[str, str]) -> None:
    cells = bordered(Block("", ("a", "b"), [pair]), width)[1:]
    for column, name in enumerate(pair):
        parts = [row[column] for row in cells if row[column]]
        assert "".join(parts).replace(" ", "") == name.replace(" ", "")
        assert all(part[-1] in ":;._,/" or name.endswith(part) or f"{part} " in name for part in parts), parts


@pytest.mark.parametrize("name", [NAMES[2], "PartitionedCall:0", "StatefulPartitionedCall:12", "Identity_1", "model/out/BiasAdd"])
def test_numbers_and_text_give_way_before_a_word_of_a_name_breaks(name: str) -> None:
    columns = ("output", "type", "elements", "max diff", "mean diff", "unequal", "allowed", "verdict")
    row = (name, "float32", "120", "2.38e-07", "1.8e-08", "86.67%", "4.2e-05 + 0.0001·|r|", "within tolerance")
    parts = [cells[0] for cells in bordered(Block("", columns, [row]), 80)[1:] if cells[0]]
    assert "".join(parts) == name
    assert all(one[-1] in ":;._/" or other[0].isupper() for one, other in pairwise(parts)), parts
    assert parts[-1] not in ("0", "1", "12")


def test_a_name_is_whole_where_the_table_is_not_much_higher_for_it() -> None:
    cells = bordered(Block("", ("name", "why"), [("a_name_that_has_30_characters_", "one two three four five " * 4)]), 80)
    assert cells[1][0] == "a_name_that_has_30_characters_"


def test_headings_are_never_cut() -> None:
    columns = ("operators off the device", "partitions", "multiply-adds on devices")
    heads = bordered(Block("", columns, [("3", "2", "728,036,496")] * 2), 40)
    words = " ".join(" ".join(cells) for cells in zip(*heads, strict=True))
    assert all(word in words for word in ("operators", "partitions", "multiply-adds"))


def shown(blocks: Sequence[Block | str], **settings: Any) -> list[str]:
    """Lines that :func:`show` prints where no terminal is."""
    console = Console(width=80)
    with console.capture() as capture:
        show(blocks, console, **settings)
    return capture.get().splitlines()


def test_columns_with_nothing_in_them_are_left_out() -> None:
    assert shown([Block("", ("a", "b", "c"), [("1", "", "-"), ("2", "", "")])]) == ["a", "1", "2"]
    assert shown([Block("", ("a", "b"), [])]) == ["a  b"]


def test_the_first_rows_are_shown_and_the_others_are_counted() -> None:
    table = Block("", ("a",), [(str(k),) for k in range(9)])
    assert shown([table], top=2) == ["a", "0", "1", "7 more rows: --top 0 shows all"]
    assert len(shown([table], top=0)) == 10
    assert shown([replace(table, first=4)], top=2) == ["a", "4", "5", "7 more rows (4 of them before these): --top 0 shows all"]
    assert shown([replace(table, first=8)], top=2)[1:3] == ["7", "8"]


def test_a_verdict_is_repeated_after_long_output_only() -> None:
    table = Block("", ("a",), [(str(k),) for k in range(60)])
    assert shown([table], verdict="pass")[-2:] == ["", "pass"]
    assert shown([table], verdict="pass", top=3)[-1] == "57 more rows: --top 0 shows all"


def test_a_list_of_numbers_wraps_and_a_number_does_not() -> None:
    console = Console(width=30, force_terminal=True)
    with console.capture() as capture:
        show([Block("", ("a", "b"), [(", ".join(map(str, range(20))), "12,345,678")])], console)
    assert "│12,345,678│" in capture.get()
    assert "…" not in capture.get()


def test_long_names_are_shown_by_their_last_two_levels() -> None:
    assert short_name("0: CONV_2D a/b/c/d/e") == "0: CONV_2D …/d/e"
    assert short_name("0: CONV_2D a/b/c") == "0: CONV_2D a/b/c"


def test_words_are_counted_as_a_reader_would() -> None:
    assert (counted(1, "step"), counted(0, "step"), counted(1001, "label")) == ("1 step", "0 steps", "1,001 labels")


def test_a_plan_does_not_offer_the_host_what_nnapi_has() -> None:
    yamnet = real_model("yamnet_wavin_quantized_mel_relu6")
    shown = narrow("plan", yamnet, "--device", "nnapi-sample_minimal").stdout
    assert "host extension" not in shown
    assert "org.tensorflow" not in shown
    assert "#" not in shown


def test_a_reason_names_an_operation_of_a_host_extension() -> None:
    yamnet = real_model("yamnet_wavin_quantized_mel_relu6")
    operations = json.loads(narrow("plan", yamnet, "--device", "nnapi-sample_minimal", "--json").stdout)["operations"]
    (hosted,) = (operation for operation in operations if operation["type"] == "org.tensorflow.lite.RFFT2D")
    assert hosted["reasons"][0]["found"] == "org.tensorflow.lite.RFFT2D"
    assert not [reason for operation in operations for reason in operation["reasons"] if "#" in reason.get("found", "")]


def test_a_plan_marks_what_the_delegate_would_not_hand_over() -> None:
    result = narrow("plan", MODELS / "digits_dynamic.tflite", "--mapping", "wide")
    assert "(wide): beyond what TFLite's delegate or ONNX Runtime's provider hands to NNAPI" in result.stdout
    assert "(wide)" not in narrow("plan", FLOAT32).stdout


def test_long_lists_of_metadata_are_counted() -> None:
    metadata = {"labels": {"l.txt": [f"label {i}" for i in range(1001)]}, "stats": {"max": [255.0]}}
    found = Inspection("m", "tflite", 1, 0, (), (), {"ADD": 1}, {"FLOAT32": 1}, metadata=metadata)
    *_, labels, stats = inspection_tables(found)
    assert labels == 'labels: {"l.txt": "1,001 values: see --json"}'
    assert stats == 'stats: {"max": [255.0]}'


def test_what_was_found_is_reported_without_pythons_marks() -> None:
    assert "('" not in narrow("inspect", MODELS / "digits_qdq.onnx").stdout


def test_a_long_output_takes_two_lines_of_run() -> None:
    item = {"name": "n" * 60, "type": "float32", "shape": [1], "min": 1 / 3, "max": 1.0, "mean": 0.5}
    assert output_lines(item) == [f"{'n' * 60}: float32[1]", "  min 0.333333, max 1, mean 0.5"]
    assert output_lines({**item, "name": "n"}) == ["n: float32[1] min 0.333333, max 1, mean 0.5"]


@pytest.mark.parametrize("group", [("devices",)])
def test_summaries_of_commands_are_whole_sentences(group: tuple[str, ...]) -> None:
    listed = narrow(*group, "--help").stdout.partition("Commands:\n")[2]
    assert listed
    assert all(line.endswith(".") and not line.endswith("...") for line in listed.splitlines())


def unnamed(model: Model) -> Model:
    """A model as clients of the NDK build it."""
    operands = tuple(replace(operand, name="") for operand in model.main.operands)
    return replace(model, name="", main=replace(model.main, operands=operands))


def test_an_unnamed_models_inputs_have_the_same_names_everywhere(tmp_path: Path) -> None:
    saved = tmp_path / "traced.model1.nnapi"
    storage.save(unnamed(constant_add(np.ones(3, np.float32))), saved)
    inspected = narrow("inspect", saved).stdout
    for name in ("input0", "output0"):
        assert f"│{name}" in inspected
    assert "Plan of traced.model1: 1 on NNAPI CPU" in " ".join(narrow("plan", saved).stdout.split())
    assert narrow("run", saved, "--seed", 0).stdout.startswith("output0: float32[3]")


def test_a_run_can_be_the_reference_of_a_comparison(tmp_path: Path) -> None:
    samples, saved = tmp_path / "cpu.npz", tmp_path / "m.nnapi"
    storage.save(constant_add(np.ones(3, np.float32)), saved)
    assert narrow("run", saved, "--seed", 0, "--samples", samples).exit_code == 0
    compared = narrow("compare", saved, "--reference", samples, "--device", "nnapi-sample_float_fast", "--json")
    assert (compared.exit_code, json.loads(compared.stdout)["samples"]) == (0, 1)
    assert narrow("run", saved, "--seed", 0, "-o", tmp_path / "outputs.npz").exit_code == 0
    wrong = narrow("compare", saved, "--reference", tmp_path / "outputs.npz")
    assert "expected input:x, output:y (run --samples writes such a file), found y" in wrong.stderr
    refused = narrow("run", saved, "--seed", 0, "--samples", samples, "--repeat", 2)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--samples: expected one run" in refused.stderr


def test_tables_in_a_pipe_are_plain_lines_with_whole_names(tmp_path: Path) -> None:
    long = "Stateful" * 30
    storage.save(replace(constant_add(np.ones(3, np.float32)), name=long), tmp_path / "m.nnapi")
    result = piped("plan", tmp_path / "m.nnapi", "--device", "nnapi-sample_minimal,nnapi-sample_float_slow").stdout
    lines = result.splitlines()
    assert lines[5] == f"Plan of {long}: 1 on device in 1 step"
    assert lines[6:8] == ["step  device                operations", "   0  nnapi-sample_minimal  ADD"]
    assert len(lines) == 8
    assert not set(result) & set("│┃─")


def test_only_v_says_which_device_is_slower(tmp_path: Path) -> None:
    storage.save(constant_add(np.ones(3, np.float32)), tmp_path / "m.nnapi")
    command = "plan", tmp_path / "m.nnapi", "--device", "nnapi-sample_minimal,nnapi-sample_float_slow"
    slower = "ADD         nnapi-sample_minimal  nnapi-sample_float_slow: relative execution time 1.3, "
    assert slower in piped(*command, "-v").stdout
    assert "execution time" not in piped(*command).stdout


def test_an_operation_of_the_host_has_no_reasons_of_drivers() -> None:
    yamnet = real_model("yamnet_wavin_quantized_mel_relu6")
    shown = piped("plan", yamnet, "--device", "nnapi-sample_minimal").stdout
    (line,) = (line for line in shown.splitlines() if line.startswith("RFFT2D, COMPLEX_ABS "))
    assert line.endswith("TFLite's NNAPI delegate: requires an operator that the delegate supports")


def test_a_failing_output_has_its_worst_element_and_counts_what_is_not_finite(tmp_path: Path) -> None:
    arrays = dict(np.load(REFERENCE))
    (name,) = (name for name in arrays if name.startswith("output:"))
    arrays[name][3, 0, 4] += 1
    arrays[name][5, 0, 2] = np.nan
    np.savez(tmp_path / "off.npz", **arrays)
    result = piped("compare", FLOAT32, "--reference", tmp_path / "off.npz")
    assert result.exit_code == 1
    assert "PartitionedCall:0: 1 element infinite or NaN on one side or both, 1 of them not the same" in result.stdout
    assert "2 of 640 elements beyond tolerance, the worst at [0, 2] of sample 5: " in result.stdout
    found = json.loads(piped("compare", FLOAT32, "--reference", tmp_path / "off.npz", "--json").stdout)["outputs"][0]
    assert found["max_abs_diff"] == pytest.approx(1, abs=1e-5)
    assert (found["non_finite"], found["non_finite_unequal"], found["beyond"]) == (1, 1, 2)
    assert (found["worst"]["sample"], found["worst"]["index"], found["worst"]["expected"]) == ("sample 5", [0, 2], None)


@pytest.mark.parametrize("width", [80, 120])
def test_examples_of_help_fit_and_continue_as_a_shell_has_it(width: int) -> None:
    for name in ("plan", "compare", "matrix", "reduce", "run", "report"):
        lines = call(name, "--help", env={"COLUMNS": str(width), "TERMINAL_WIDTH": str(width)}).stdout.splitlines()
        examples = lines[lines.index("  Examples:") :]
        assert max(map(len, examples)) <= width
    joined = re.sub(r" \\\n +", " ", folded("  nnbridge x --a 'b c' --d -\n  nnbridge y " + "--option value " * 9, 40))
    assert joined == "  nnbridge x --a 'b c' --d -\n  nnbridge y " + "--option value " * 9


def many_sizes(folder: Path) -> Path:
    """A TFLite file of six RELUs, each of another size."""
    file = TfliteBuilder()
    pairs = [(file.tensor((1, 2, 2, k + 2)), file.tensor((1, 2, 2, k + 2))) for k in range(6)]
    for into, out in pairs:
        file.operator("RELU", [into], [out])
    return file.write(folder / "m.tflite", [into for into, _ in pairs], [out for _, out in pairs])


def picky(folder: Path) -> Path:
    device = folder / "npu.toml"
    profile = '[[device]]\nname = "npu"\nfeature_level = 8\n[device.operations]\n'
    device.write_text(f'{profile}RELU = {{ rules = [{{ require = "input.c <= 1" }}] }}\n')
    return device


def test_many_findings_that_break_one_rule_are_one_row_with_the_first(tmp_path: Path) -> None:
    model, device = many_sizes(tmp_path), picky(tmp_path)
    short = narrow("plan", model, "--device", device, "--fallback", "cpu").stdout
    assert short.count("found") == 1
    assert "RELU×6" in short
    assert "and others" in " ".join(short.split())
    every = piped("plan", model, "--device", device, "--fallback", "cpu", "--full").stdout
    assert every.count(", found ") == 6


def test_operators_that_another_device_runs_are_not_on_the_host() -> None:
    shown = piped("plan", FLOAT32, "--device", "edgetpu,nnapi-sample_all").stdout
    assert "Operators of the file: 11 on nnapi-sample_all" in shown

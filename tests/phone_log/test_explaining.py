"""A phone's log, line by line: which rule, which operator, what next. Forms of lines are those of public reports."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import nnbridge
from nnbridge.cli.commands import cli
from nnbridge.errors import InputError
from nnbridge.phone_log.explaining import MAX_EXPLAINED, ExplainedLine
from tests.conftest import MODELS
from tests.phone_log.excerpts import EXCERPTS, Excerpt

UINT8 = str(MODELS / "digits_uint8.tflite")
REFUSED = "I/ExecutionPlan: Device arm-nn-18.05 can't do operation ADD:3\n"


def named(line: ExplainedLine) -> str:
    """The operators of a line, in words."""
    return ", ".join(map(str, line.operators))


def words(line: ExplainedLine) -> str:
    """The words for a reader beside the operators."""
    return f"{line.says}; {line.rule}; {line.next}"


@pytest.mark.parametrize("excerpt", EXCERPTS, ids=[excerpt.report for excerpt in EXCERPTS])
def test_lines_of_public_reports_name_operator_rule_and_remedy(excerpt: Excerpt, tmp_path: Path) -> None:
    found = nnbridge.explain_log(excerpt.file(tmp_path), excerpt.log.encode(), device=excerpt.device)
    assert [(line.pattern, named(line)) for line in found.lines] == [expected[:2] for expected in excerpt.expected]
    for line, (_, _, part) in zip(found.lines, excerpt.expected, strict=True):
        assert part in words(line)
        assert line.source


def test_lines_of_no_known_form_are_counted_where_they_are() -> None:
    found = nnbridge.explain_log(UINT8, b"one\ntwo\n" + REFUSED.encode() + b"\nthree\n", device="arm-nn-18.05")
    assert (found.total, found.missing, found.unmatched) == (4, 3, ((1, 2), (5, 5)))
    assert "3 lines of no known form" in found.sentence


def test_a_plans_own_log_is_explained_by_the_operators_that_it_was_printed_for() -> None:
    printed = CliRunner().invoke(cli, ["plan", UINT8, "--device", "arm-nn-18.05", "--fallback", "cpu", "-v"]).stderr
    found = nnbridge.explain_log(UINT8, printed.encode(), device="arm-nn-18.05", fallback="cpu")
    placed = [line for line in found.lines if line.pattern == "placed"]  # in the order that NNAPI sorts into
    assert [named(line).split(" ")[1] for line in placed] == ["0", "1", "2", "3", "5", "4", "6", "7", "8", "9", "10"]
    assert found.missing == 0
    assert found.own > 0


def test_partitions_of_a_delegate_are_known_by_their_operations() -> None:
    printed = CliRunner().invoke(cli, ["plan", UINT8, "--device", "arm-nn-18.05", "-v"]).stderr
    found = nnbridge.explain_log(UINT8, printed.encode(), device="arm-nn-18.05")
    placed = [named(line) for line in found.lines if line.pattern == "placed"]
    assert placed[3:] == ["operator 5 MAX_POOL_2D", "operator 4 AVERAGE_POOL_2D", "operator 7 CONV_2D", "operator 8 RESHAPE"]


def test_a_node_that_the_delegate_added_stands_for_the_operators_of_its_partition() -> None:
    found = nnbridge.explain_log(UINT8, b"Node number 12 (TfLiteNnapiDelegate) failed to prepare.\n", device="arm-nn-18.05")
    assert named(found.lines[0]) == "operator 4 AVERAGE_POOL_2D, operator 5 MAX_POOL_2D"
    assert found.lines[0].certain


def test_an_operation_that_the_file_does_not_have_is_of_another_file() -> None:
    log = b"I/ExecutionPlan: ModelBuilder::findBestDeviceForEachOperation(LSTM:0) = 0 (npu)\n"
    (line,) = nnbridge.explain_log(UINT8, log, device="arm-nn-18.05").lines
    assert line.operators == ()
    assert line.rule == "no operator of the file becomes LSTM: the log is about another file"


def test_an_operation_of_which_the_file_has_several_is_one_of_them() -> None:
    (line,) = nnbridge.explain_log(UINT8, b"Device npu can't do operation CONV_2D\n", device="arm-nn-18.05").lines
    assert named(line) == "operator 0 CONV_2D, operator 2 CONV_2D, operator 7 CONV_2D"
    assert not line.certain


def test_a_driver_that_the_plan_expects_to_accept_differs_from_its_profile() -> None:
    (line,) = nnbridge.explain_log(UINT8, b"Device arm-nn-18.05 can't do operation RESHAPE\n", device="arm-nn-18.05").lines
    assert "the phone's driver differs from the profile" in line.rule


TYPES = (
    *("CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D", "ADD", "MAX_POOL_2D", "AVERAGE_POOL_2D", "CONCATENATION", "CONV_2D"),
    *("RESHAPE", "FULLY_CONNECTED", "SOFTMAX"),
)
"""The NNAPI model of the digit classifier, in the order that NNAPI sorts it into."""
KEYS = (0, 1, 2, 3, 5, 4, 6, 7, 8, 9, 10)


def placed(thread: str = "1", types: tuple[str, ...] = TYPES, first: int = 0, indexed: bool = True) -> list[str]:
    """ExecutionPlan's lines of a model."""
    return [
        f"11-22 10:15:07.341  4711  {thread} I ExecutionPlan: ModelBuilder::findBestDeviceForEachOperation({kind}"
        f"{f':{first + i}' if indexed else ''}) = 0 (npu)"
        for i, kind in enumerate(types)
    ]


def indexes(lines: list[str]) -> list[int | None]:
    """The operator of each line, where there is one only."""
    found = nnbridge.explain_log(UINT8, "\n".join(lines).encode(), device="arm-nn-18.05").lines
    return [line.operators[0].index if line.certain and line.operators else None for line in found]


@pytest.mark.parametrize("indexed", [True, False])
def test_every_operation_of_a_model_is_found_by_its_place(indexed: bool) -> None:
    assert indexes(placed(indexed=indexed)) == list(KEYS)


def test_a_log_that_begins_in_the_middle_is_placed_by_its_indexes() -> None:
    assert indexes(placed(types=TYPES[4:], first=4)) == list(KEYS[4:])


def test_a_log_that_ends_in_the_middle_is_placed_too() -> None:
    assert indexes(placed(types=TYPES[:6])) == list(KEYS[:6])


def test_mixed_lines_of_two_threads_are_two_models() -> None:
    mixed = [line for pair in zip(placed("1"), placed("2"), strict=True) for line in pair]
    assert indexes(mixed) == [key for key in KEYS for _ in range(2)]


def test_a_model_that_is_compiled_twice_is_found_twice() -> None:
    assert indexes([*placed(), *placed()]) == [*KEYS, *KEYS]


@pytest.mark.parametrize("name", ["ADD", "SOFTMAX", "CONCATENATION", "FULLY_CONNECTED", "DEPTHWISE_CONV_2D"])
@pytest.mark.parametrize(
    "form",
    [
        "Device npu can't do operation {}",
        "Unsupported input tensor type for operation {}",
        "Validation failed for operation {}",
        "NN_RET_CHECK failed (a/b.cpp:1): Unsupported tensor type for operation {}",
        "Invalid number of input operands (9, expected 8) or output operands (1, expected 1) for operation {}",
        "Operator {} (v1) refused by NNAPI delegate: words",
        "No driver can do operation {}",
    ],
)
def test_other_operators_are_named_as_well(name: str, form: str) -> None:
    (line,) = nnbridge.explain_log(UINT8, form.format(name).encode(), device="nnapi-sample_all").lines
    assert [one.operator for one in line.operators] == [name]


def test_an_operation_whose_name_is_cut_is_one_of_those_that_begin_so() -> None:
    (line,) = nnbridge.explain_log(UINT8, b"E/ExecutionPlan: No driver can do operation DEPTHW", device="arm-nn-18.05").lines
    assert named(line) == "operator 1 DEPTHWISE_CONV_2D"


def test_a_driver_with_a_profile_needs_no_other_one() -> None:
    mine, other = nnbridge.explain_log(
        UINT8, (REFUSED + REFUSED.replace("arm-nn", "other")).encode(), device="arm-nn-18.05"
    ).lines
    assert mine.next.endswith("digits_uint8.tflite --device arm-nn-18.05 --advice has what to change")
    assert other.next.startswith("nnbridge devices learn log ")


def test_the_command_reads_standard_input_and_escapes_what_it_repeats() -> None:
    result = CliRunner().invoke(
        cli, ["plan", UINT8, "--explain-log", "-"], input=REFUSED.replace("arm-nn-18.05", "a\x1b[31m") + "\x1b]0;x\n"
    )
    assert result.exit_code == 0
    assert "operator 3 ADD" in result.stdout
    assert "\x1b" not in result.stdout


def test_json_has_each_line_and_the_counts(tmp_path: Path) -> None:
    (tmp_path / "phone.log").write_text(REFUSED + "other\n")
    options = ["plan", UINT8, "--device", "arm-nn-18.05", "--explain-log", str(tmp_path / "phone.log"), "--json"]
    found = json.loads(CliRunner().invoke(cli, options).stdout)
    assert found["counts"] == {"lines": 2, "explained": 1, "own": 0, "unmatched": 1}
    assert found["explained"][0]["operators"] == [{"subgraph": 0, "index": 3, "operator": "ADD"}]
    assert found["unmatched"] == [[2, 2]]


def test_a_missing_log_is_bad_input(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["plan", UINT8, "--explain-log", str(tmp_path / "none.log")])
    assert result.exit_code == 2
    assert "a readable log" in result.stderr


def test_more_lines_than_are_explained_are_refused() -> None:
    with pytest.raises(InputError, match=f"at most {MAX_EXPLAINED:,} lines"):
        nnbridge.explain_log(UINT8, REFUSED.encode() * (MAX_EXPLAINED + 1), device="arm-nn-18.05")


@pytest.mark.parametrize(
    "line",
    [
        "Device " + "x" * 500_000 + " can't do operation ADD",
        "Node number " + "9" * 5_000 + " (ADD) failed to prepare.",
        "NN API returned error " + "A: " * 100_000,
        "Node supported: [1] Operator type: [" * 20_000,
        "] as part of the NodeUnit type: [" * 20_000,
        "Operator A (v1) refused by " * 20_000,
        "opset [1] is only supported for opset [1, " * 20_000,
        "a" * 500_000 + " opset [",
    ],
)
def test_a_long_line_of_anything_is_explained_or_passed_over_in_bounded_time(line: str) -> None:
    started = time.process_time()
    nnbridge.explain_log(UINT8, f"{line}\n".encode() * 3)
    assert time.process_time() - started < 10

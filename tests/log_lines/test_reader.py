"""Every form of a line is known again in each format of logcat, in Android Studio's, on terminals, cut and wrapped."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from nnbridge.log_lines.patterns import BY_NAME, PATTERNS, Form, LinePattern
from nnbridge.log_lines.reader import ReadLine, decoded, log_lines, read_lines

VALUES = {
    "operation": "DEPTHWISE_CONV_2D",
    "device": "qti-default",
    "devices": "qti-default,nnapi-reference",
    "operator": "FULLY_CONNECTED",
    "action": "finalizing the model",
    "tensor_name": "model/conv/Relu",
    "file": "frameworks/ml/nn/common/operations/Softmax.cpp",
    **dict.fromkeys(("name", "unit"), "Conv_17"),
    **dict.fromkeys(("kind", "unit_kind"), "Conv"),
    "code": "ANEURALNETWORKS_OP_FAILED",
    "status": "GENERAL_FAILURE",
    "kernel": "TfLiteNnapiDelegate",
    "function": "AddOperation",
    "level": "1_3",
    **dict.fromkeys(("side", "side_again"), "input"),
    **dict.fromkeys(("found_type", "expected_type"), "TENSOR_INT32"),
    "rest": "beta > 0",
    "since": "HAL version 1.2",
    "source": "main",
    **dict.fromkeys(("value", "other"), "0.25"),
    "condition": "NumDimensions(input) != 4",
}
FORMS = [(pattern, form) for pattern in PATTERNS if not pattern.within for form in pattern.forms]
IDS = [f"{pattern.name}-{pattern.forms.index(form)}" for pattern, form in FORMS]
HEADERS: dict[str, Callable[[LinePattern, str], str]] = {
    "raw": lambda of, text: text,
    "brief": lambda of, text: f"{of.level}/{of.tag:<8}( 4711): {text}",
    "tag": lambda of, text: f"{of.level}/{of.tag:<8}: {text}",
    "process": lambda of, text: f"{of.level}( 4711) {text}  ({of.tag})",
    "thread": lambda of, text: f"{of.level}( 4711: 4715) {text}",
    "time": lambda of, text: f"11-22 10:15:07.341 {of.level}/{of.tag:<8}( 4711): {text}",
    "threadtime": lambda of, text: f"11-22 10:15:07.341  4711  4715 {of.level} {of.tag:<8}: {text}",
    "threadtime, year, zone and user": lambda of, text: (
        f"2026-11-22 10:15:07.341 +0100 u0_a1  4711  4715 {of.level} {of.tag}: {text}"
    ),
    "long": lambda of, text: f"[ 11-22 10:15:07.341  4711: 4715 {of.level}/{of.tag:<8} ]\n{text}\n",
    "Android Studio": lambda of, text: f"2026-11-22 10:15:07.341 4711-4715/com.app {of.level}/{of.tag}: {text}",
    "newer Android Studio": lambda of, text: (
        f"2026-11-22 10:15:07.341  4711-4715  {of.tag:<23} com.app                        {of.level}  {text}"
    ),
    "standard error": lambda of, text: f"ERROR: {text}",
    "a stack trace": lambda of, text: f"java.lang.IllegalArgumentException: Internal error: Failed to apply delegate: {text}",
    "a quotation": lambda of, text: f"> > 11-22 10:15:07.341  4711  4715 {of.level} {of.tag}: {text}",
    "colours": lambda of, text: f"\x1b[38;5;166m11-22 10:15:07.341  4711  4715 {of.level} {of.tag}: {text}\x1b[0m",
    "Flutter's console": lambda of, text: f"{of.level}/flutter ( 4711): [native] {text}",
    "carriage returns": lambda of, text: f"11-22 10:15:07.341  4711  4715 {of.level} {of.tag}: {text}\r",
}


def sample(form: Form) -> tuple[str, dict[str, str]]:
    """A line of a form, and its fields."""
    names = [name for _, name in form.pieces if name]
    fields = {name: VALUES.get(name, "7") for name in names}
    return form.format(fields), fields


def one(text: str) -> ReadLine:
    """The only line that has a pattern."""
    (found,) = [read for read in read_lines(decoded(text.encode(), "log")) if read.pattern is not None]
    return found


def wrapped(parts: list[str]) -> set[str]:
    """The patterns of lines."""
    return {read.pattern.name for read in read_lines("\n".join(parts)) if read.pattern is not None}


@pytest.mark.parametrize(("pattern", "form"), FORMS, ids=IDS)
def test_a_line_is_known_again_whatever_is_before_it(pattern: LinePattern, form: Form) -> None:
    text, fields = sample(form)
    for name, header in HEADERS.items():
        found = one(header(pattern, text) + "\n")
        assert (name, found.pattern, found.cut) == (name, pattern, False)
        different = {key for key, value in found.fields.items() if fields.get(key, value) != value}
        assert different <= ({"rest", "since", "tensor_name", "name"} if name == "process" else set())  # the tag follows there


BEGINS_WITH_A_PATH = "kernel-condition"
"""Its beginning has too few words of its own to look at the next line."""


@pytest.mark.parametrize(("pattern", "form"), FORMS, ids=IDS)
def test_a_line_that_a_terminal_wrapped_is_one_line(pattern: LinePattern, form: Form) -> None:
    line = f"E/tflite  : {sample(form)[0]}"
    for width in (40, 60, 72, 80, 100):
        parts = [line[i : i + width] for i in range(0, len(line), width)]
        if len(parts) <= 4 and pattern.name != BEGINS_WITH_A_PATH:
            assert (width, wrapped(parts)) == (width, {pattern.name})


@pytest.mark.parametrize(("pattern", "form"), FORMS, ids=IDS)
def test_a_line_that_a_mailer_wrapped_at_words_is_one_line(pattern: LinePattern, form: Form) -> None:
    words = sample(form)[0].split(" ")
    for count in (5, 7, 9):
        parts = [" ".join(words[i : i + count]) for i in range(0, len(words), count)]
        if len(parts) <= 4:
            assert (count, wrapped(parts)) == (count, {pattern.name})


@pytest.mark.parametrize(("pattern", "form"), FORMS, ids=IDS)
def test_a_line_without_its_end_is_known_by_its_beginning(pattern: LinePattern, form: Form) -> None:
    text, _ = sample(form)
    own = sum(len(piece) for piece, _ in form.pieces)
    for lost in (1, 3, 8):
        if own - lost >= 20 and pattern.name != BEGINS_WITH_A_PATH:
            (found,) = read_lines(f"E/tflite  : {text[:-lost]}")
            assert found.pattern is not None
            # A line that is cut may be of several patterns of the same program.
            assert found.pattern.writer is pattern.writer


def test_what_chatty_left_out_is_the_line_before_again() -> None:
    log = "".join(
        f"11-22 10:15:07.341  4711  {thread} I {text}\n"
        for thread, text in (
            ("1", "ExecutionPlan: Device a can't do operation ADD:0"),
            ("2", "other: a line"),
            ("1", "chatty  : uid=1 identical 3 lines"),
        )
    )
    assert [(line.text[-5:], line.times) for line in log_lines(log)] == [("ADD:0", "1"), (" line", "1"), ("ADD:0", "3")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_log_that_powershell_wrote_is_read(encoding: str) -> None:
    content = "Created TensorFlow Lite delegate for NNAPI.\r\n".encode(encoding)
    (found,) = read_lines(decoded(content, "log"))
    assert found.pattern is BY_NAME["delegate-created"]


def test_words_that_other_programs_use_too_are_no_pattern() -> None:
    lines = (
        "Device storage is low",
        "Node number five",
        "Operator precedence",
        "Replacing the battery",
        "ADD: x",
        "A must be",
        "",
    )
    assert [read.pattern for line in lines for read in read_lines(f"I/app: {line}")] == [None] * 7


@pytest.mark.parametrize("pattern", PATTERNS, ids=[pattern.name for pattern in PATTERNS])
def test_every_pattern_has_its_source_and_says_what_it_means(pattern: LinePattern) -> None:
    assert re.search(r"/|tflite|sepolicy", pattern.source)
    assert pattern.says
    assert pattern.level in "VDIWE"
    assert pattern.next or pattern.level == "I"


def test_names_of_patterns_are_the_tables_own() -> None:
    assert len(BY_NAME) == len(PATTERNS)
    source = Path(__file__).parents[2] / "src" / "nnbridge"
    used = {
        name
        for path in (*source.glob("phone_log/*.py"), source / "learning" / "logs.py")
        for name in re.findall(r'(?:line\(|BY_NAME\[|name == |kind == )"([\w-]+)"', path.read_text())
    }
    assert used <= BY_NAME.keys()

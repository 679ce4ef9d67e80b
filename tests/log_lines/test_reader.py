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


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize(("pattern", "form"), FORMS, ids=IDS)
def test_a_line_is_known_again_whatever_is_before_it(pattern: LinePattern, form: Form, header: str) -> None:
    text, fields = sample(form)
    found = one(HEADERS[header](pattern, text) + "\n")
    assert found.pattern is pattern
    assert not found.cut
    stated = {name: value for name, value in found.fields.items() if fields.get(name, value) != value}
    assert set(stated) <= ({"rest", "since", "tensor_name", "name"} if header == "process" else set())  # the tag follows there


@pytest.mark.parametrize("width", [40, 60, 72, 80, 100])
@pytest.mark.parametrize(("pattern", "form"), FORMS, ids=IDS)
def test_a_line_that_a_terminal_wrapped_is_one_line(pattern: LinePattern, form: Form, width: int) -> None:
    text, _ = sample(form)
    line = f"E/tflite  : {text}"
    wrapped = "\n".join(line[i : i + width] for i in range(0, len(line), width))
    if len(line) > 4 * width:
        pytest.skip("a form that no terminal shows in four lines")
    assert {read.pattern.name for read in read_lines(wrapped) if read.pattern is not None} == {pattern.name}


@pytest.mark.parametrize("words", [5, 7, 9])
@pytest.mark.parametrize(("pattern", "form"), FORMS, ids=IDS)
def test_a_line_that_a_mailer_wrapped_at_words_is_one_line(pattern: LinePattern, form: Form, words: int) -> None:
    text, _ = sample(form)
    parts = text.split(" ")
    if len(parts) > 4 * words:
        pytest.skip("a form of more than four lines")
    wrapped = "\n".join(" ".join(parts[i : i + words]) for i in range(0, len(parts), words))
    assert {read.pattern.name for read in read_lines(wrapped) if read.pattern is not None} == {pattern.name}


@pytest.mark.parametrize("lost", [1, 3, 8])
@pytest.mark.parametrize(("pattern", "form"), FORMS, ids=IDS)
def test_a_line_without_its_end_is_known_by_its_beginning(pattern: LinePattern, form: Form, lost: int) -> None:
    text, _ = sample(form)
    literal = sum(len(piece) for piece, _ in form.pieces)
    if literal - lost < 20 or not form.head:
        pytest.skip("a form with too few words of its own")
    (found,) = read_lines(f"E/tflite  : {text[:-lost]}")
    assert found.pattern is not None
    assert found.pattern.writer is pattern.writer
    same = [form.text.split("{")[0] for form in found.pattern.forms]
    assert any(text.startswith(start[:20]) for start in same)


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

"""Shapes of JSON that others wrote, budgets, and the writers of TOML, HTML and CSV that names of others pass through."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import nnbridge
from nnbridge.budget import parse_json, parsed
from nnbridge.compare.results import NotebookResult
from nnbridge.errors import InputError
from nnbridge.escaping import element, page, printable
from nnbridge.foreign import MAX_TEXT, ReadingBudget, checked, mismatch, shape_of
from nnbridge.report.csv_text import csv_text
from nnbridge.toml import TomlTable, parse, toml_text

MARKUP = (
    "<script>alert(1)</script>",
    "<meta http-equiv=refresh content='0;url=//evil'>",
    "<form action=//evil><button>log in</button></form>",
    "<base href=//evil>",
    '" onmouseover="alert(1)',
    "</style></title><img src=//evil>",
    "<!--",
    "&lt;b&gt;",
    "\x1b]0;x\x07\u202e",
)

MODELS, NNBRIDGE = Path(__file__).parents[1] / "models", Path(sys.executable).with_name("nnbridge")


@dataclass(frozen=True)
class _Record:
    name: str
    count: int | None = None
    rows: tuple[tuple[int, str], ...] = field(default=())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"name": 1}, "it.name: expected a text, found a whole number"),
        ({"name": "a", "count": True}, "it.count: expected a whole number or null, found true or false"),
        ({"name": "a", "count": 2**63}, "it.count: expected a number of at most 64 bits, found a larger one"),
        ({"name": "a", "rows": [[1, "b"], [2]]}, "it.rows[1]: expected a list of 2, found 1"),
        ({"name": "a", "rows": [["b", 1]]}, "it.rows[0][0]: expected a whole number, found a text"),
        ({"name": "x" * (MAX_TEXT + 1)}, "it.name: expected a text of at most 1,048,576 characters, found 1,048,577"),
        ({}, "it: expected an object with name, found an empty one"),
        ([], "it: expected an object, found a list"),
    ],
)
def test_what_does_not_have_the_shape_of_a_class_is_named_with_its_place(value: object, message: str) -> None:
    assert str(mismatch(value, shape_of(_Record), "it")) == message


def test_an_object_of_any_keys_has_one_shape_for_its_values() -> None:
    assert checked({"a": True, "b\n": False}, {str: bool}, "it") == {"a": True, "b\n": False}
    with pytest.raises(InputError, match=r"it\.b: expected true or false, found null"):
        checked({"a": True, "b": None}, {str: bool}, "it")


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "9" * 5_000, '"\x00"'])
def test_text_that_is_no_json_is_bad_input(text: str) -> None:
    with pytest.raises(InputError, match="it: expected a plan"):
        parsed(text, "a plan", "it")


def test_bytes_that_are_not_text_are_no_json() -> None:
    with pytest.raises(ValueError, match="not text in UTF-8"):
        parse_json(b"\xff")


def test_a_budget_is_spent_once() -> None:
    budget = ReadingBudget(3, "at most 3 lines", "log")
    budget.spend(2)
    with pytest.raises(InputError, match="log line 7: expected at most 3 lines, found more"):
        budget.spend(2, " line 7")


# -- writers -------------------------------------------------------------------------------------------------------------


_TEXT = st.text() | st.sampled_from(('"""', "'''", "a]\n[b]", "\x7f", "\x00", "\\u0041", "#", "= 1", "a.b", "\r", ""))
_SCALARS = _TEXT | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
_INLINE = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3), max_leaves=6
)


@given(st.dictionaries(_TEXT, _INLINE, max_size=4), _TEXT, _TEXT)
def test_toml_that_is_written_is_read_as_the_same(values: dict[str, Any], key: str, comment: str) -> None:
    assume(key not in values)
    tables = (TomlTable((key,), values, repeated=True, comments=dict.fromkeys(values, comment)), TomlTable((key, key), {}))
    assert parse(toml_text(tables)) == {key: [{**values, key: {}}]}


def test_half_a_character_which_toml_does_not_have_is_spelled_out() -> None:
    assert parse(toml_text([TomlTable(("a",), {"b": "\ud800"})])) == {"a": {"b": "\\ud800"}}


class _Reader(HTMLParser):
    """The elements and texts that a browser finds."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.names: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("text", MARKUP)
def test_text_in_html_is_text_inside_and_in_attributes(text: str) -> None:
    reader = _Reader()
    reader.feed(element("td", text, title=text, data_l=text).html)
    reader.close()
    assert (reader.tags, reader.names, "".join(reader.texts)) == (["td"], ["title", "data-l"], printable(text))


def test_a_page_may_request_nothing_and_lead_nowhere() -> None:
    policy = page("t", "p { color: red }", element("p")).partition('Content-Security-Policy" content="')[2].partition('"')[0]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.replace("&#x27;", "'").split(";"))
    assert {name: rules[name] for name in ("default-src", "base-uri", "form-action")} == dict.fromkeys(
        ("default-src", "base-uri", "form-action"), "'none'"
    )
    assert "unsafe" not in policy


@pytest.mark.parametrize("text", MARKUP)
def test_results_in_notebooks_hold_no_markup_of_names(text: str) -> None:
    class Result(NotebookResult):
        sentence = text  # type: ignore[assignment]

        def records(self) -> list[dict[str, str]]:
            return [{text: text}]

    reader = _Reader()
    reader.feed(Result()._repr_html_())
    assert set(reader.tags) == {"p", "table", "thead", "tbody", "tr", "th", "td"}


@pytest.mark.parametrize("name", ["<img src=x>", "a\u202eb", "&lt;b&gt;", "x' onload='y", "\x1b]0;t\x07"])
def test_a_plan_in_a_notebook_holds_no_markup_of_names(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.tflite"
    path.write_bytes((MODELS / "digits_int8.tflite").read_bytes())
    reader, text = _Reader(), nnbridge.plan(path)._repr_html_()
    reader.feed(text)
    assert set(reader.tags) <= {"p", "br", "table", "tr", "th", "td"}
    assert not set("\u202e\x1b\x07") & set(text)


@pytest.mark.parametrize("command", [("vts",), ("inspect",), ("plan",), ("devices", "check"), ("vts", "--json")])
def test_names_that_are_too_long_are_named_in_one_line_without_control_characters(command: tuple[str, ...]) -> None:
    name = "\x1b]0;title\x07\u202e" * 90
    done = subprocess.run([NNBRIDGE, *command, name], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert not set("\u202e\x1b\x07") & set(done.stderr + done.stdout)
    assert "\\x1b]0;title" in done.stderr


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-cmd|' /C calc'!A0", "'-cmd|' /C calc'!A0"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("  =1", "'  =1"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ("a;=1+1", "a;'=1+1"),
        ("a; b", "a; b"),
        ("\t=1", "\\t=1"),
        ("\r\n=1", "\\r\\n=1"),
        ("a-b", "a-b"),
    ],
)
def test_a_text_is_no_formula_in_spreadsheets(text: str, cell: str) -> None:
    assert list(csv.reader(io.StringIO(csv_text([[text, -1.5]])))) == [[cell, "-1.5"]]

"""The generated page of conditions: each has its kind, and each operator that the delegate looks at its lines in the source."""

from __future__ import annotations

import re

import pytest

from nnbridge.errors import Stage
from nnbridge_tflite.declaration import REGISTRY
from nnbridge_tflite.rules import DelegateRule
from nnbridge_tflite.validate_lines import VALIDATE_LINES
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "tflite-operators.md").read_text(encoding="utf-8")
ROWS = [tuple(part.strip() for part in line.strip("|").split("|")) for line in PAGE.partition("| where |")[2].splitlines()[2:]]
RULED = [declared for declared in REGISTRY if isinstance(declared.delegate, DelegateRule)]


@pytest.mark.parametrize("declared", RULED, ids=lambda declared: declared.name)
def test_each_condition_of_the_delegate_is_listed_with_its_lines(declared: object) -> None:
    rule, name = declared.delegate, declared.name
    rules = [rows[1] for rows in ROWS if rows[0] == name and rows[3] == Stage.DELEGATE and rows[4] == VALIDATE_LINES[name]]
    assert rules == [condition.rule for condition in rule.every]


def test_each_row_has_a_kind_and_a_place() -> None:
    assert len(ROWS) > 300
    assert all(re.fullmatch(r"\d+-\d+|`\w+`, \w+\.py", row[4]) for row in ROWS)
    assert {row[3] for row in ROWS} == {"delegate", "building", "running", "nnbridge"}


def test_lines_are_those_of_operators_that_the_delegate_maps() -> None:
    assert set(VALIDATE_LINES) == {declared.name for declared in RULED}

"""The generated page of conditions: each has its kind, and each operator that the delegate looks at its lines in the source."""

from __future__ import annotations

import re

import pytest

from nnbridge.errors import Stage
from nnbridge_tflite.declaration import REGISTRY, TfliteOperator
from nnbridge_tflite.rules import DelegateRule
from nnbridge_tflite.validate_lines import VALIDATE_LINES
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "tflite-operators.md").read_text(encoding="utf-8")
RULED = [declared for declared in REGISTRY if isinstance(declared.delegate, DelegateRule)]


def rows(heading: str) -> list[tuple[str, ...]]:
    """The cells of the table under a heading."""
    lines = PAGE.partition(f"### {heading}\n")[2].partition("\n#")[0].splitlines()
    table = [line for line in lines if line.startswith("| ")][1:]
    return [tuple(part.strip() for part in line.strip("|").split("|")) for line in table]


@pytest.mark.parametrize("declared", RULED, ids=lambda declared: declared.name)
def test_the_conditions_of_the_delegate_are_listed_with_their_lines(declared: TfliteOperator) -> None:
    place = f"{declared.name} {VALIDATE_LINES[declared.name]}"
    ((_, listed),) = (row for row in rows("Of the delegate") if place in row[0].split(", "))
    assert isinstance(declared.delegate, DelegateRule)
    conditions = "; ".join(condition.rule for condition in declared.delegate.conditions) or "none"
    assert re.sub(r" \[\d+\](?=;|$)", "", listed) == conditions


def test_each_condition_of_the_other_parts_has_a_kind() -> None:
    listed = rows("Of the other parts")
    assert len(listed) >= 50
    assert {row[1] for row in listed} == {Stage.BUILDING.value, Stage.RUNNING.value, Stage.OWN.value}


def test_lines_are_those_of_operators_that_the_delegate_maps() -> None:
    assert set(VALIDATE_LINES) == {declared.name for declared in RULED}

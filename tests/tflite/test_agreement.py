"""Every operator that is lowered, as a file of its own, against LiteRT's reference kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tflite.agreement import differences
from tests.tflite.cases import Case, cases

CASES = [
    pytest.param(case, type, id=f"{case.operator}-{type}-{case.variant}".rstrip("-")) for case in cases() for type in case.types
]


@pytest.mark.parametrize("calls", [2, 3])
@pytest.mark.parametrize("name", ["RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL"])
def test_streams_of_random_numbers_go_on(name: str, calls: int, tmp_path: Path) -> None:
    case = next(case for case in cases() if case.operator == name)
    found, _ = differences(case.write(tmp_path, case.types[0]), calls=calls)
    assert max(found) < 1e-6


@pytest.mark.parametrize(("case", "type"), CASES)
def test_operator_agrees_with_litert(case: Case, type: str, tmp_path: Path) -> None:
    path = case.write(tmp_path, type)
    found, placements = differences(path, kernels=case.kernels)
    assert [p.mapping for p in placements] == [case.place(type)], placements
    integer = type not in ("float32",) or case.exact
    for difference in found:
        assert difference <= (0 if case.exact else case.steps if integer else case.tolerance)

"""Drafted operations like earlier ones get what those got; what may differ is found anew."""

from __future__ import annotations

import numpy as np
import pytest

from nnbridge.converters import draft
from nnbridge.converters.assembly import Assembly
from nnbridge.converters.draft import Draft, Step, Unmappable, Value
from nnbridge.types import OperandCode, OperationCode

FLOAT, INT32 = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_INT32
RESHAPE = OperationCode.RESHAPE


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft, "_CHECKED", {})


def reshaped(to: tuple[int, ...], level: int = 8) -> Value:
    made = Draft(level)
    out = Value(FLOAT, (1,))
    made.add(Step(RESHAPE, (Value(FLOAT, (2, 6)), made.ints(to)), (out,)))
    return out


def test_a_second_operation_like_the_first_is_not_resolved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = reshaped((3, 4))
    monkeypatch.setattr(draft, "resolve", None)
    assert reshaped((3, 4)).dims == first.dims == (3, 4)


def test_small_constants_are_part_of_what_is_alike() -> None:
    assert (reshaped((3, 4)).dims, reshaped((4, 3)).dims) == ((3, 4), (4, 3))


def test_shapes_in_large_constants_are_read() -> None:
    for last in (2, 3):
        made, out = Draft(8), Value(FLOAT, (1,))
        dims = np.ones(40, np.int32)
        dims[-1] = last
        made.add(Step(RESHAPE, (Value(FLOAT, (last,)), Value(INT32, (40,), data=dims)), (out,)))
        assert out.dims == (1,) * 39 + (last,)


def test_each_draft_has_its_own_feature_level() -> None:
    def equal(level: int) -> Value:
        made, out = Draft(level), Value(OperandCode.TENSOR_BOOL8, (2,))
        made.add(Step(OperationCode.EQUAL, (Value(FLOAT, (2,)), Value(FLOAT, (2,))), (out,)))
        return out

    assert equal(3).dims == (2,)
    with pytest.raises(Unmappable, match="feature level 3 at least"):
        equal(2)


def test_a_verdict_holds_as_long_as_values_are_as_they_were() -> None:
    made = Draft(8)
    x, out = Value(FLOAT, (2, 6)), Value(FLOAT, (1,))
    made.add(Step(RESHAPE, (x, made.ints((3, 4))), (out,)))
    known = Assembly("m").build([x], [out], made.steps, made.checked)
    assert known.main.known["inferred"] == {0}
    x.dims = (12,)
    changed = Assembly("m").build([x], [out], made.steps, made.checked)
    assert changed.main.known["inferred"] == frozenset()

"""The smallest change of an operator that a device accepts: numbers, words, pairs, and a bound on the search."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest

from nnbridge.advice import AdjustmentSearch, Change
from nnbridge.converters.edits import Adjustable, Answers, Content, Parameter, Value
from nnbridge.errors import Why


def operator(*parameters: Parameter) -> Adjustable:
    old = {parameter.name: parameter.value for parameter in parameters}
    return Adjustable("CONV_2D", parameters, lambda changes, alone: Content.of(json.dumps({**old, **changes}).encode()))


def alone(adjustable: Adjustable, change: Change) -> bytes:
    (piece,) = adjustable.content(change.by_name, True).files("file", True)["file"]
    return bytes(piece)


def found(accepted: Callable[[Mapping[str, Value]], bool], *parameters: Parameter) -> list[str]:
    adjustable = operator(*parameters)
    changes, _ = AdjustmentSearch(alone, lambda content: accepted(json.loads(content))).changes(adjustable, ())
    return [str(change) for change in changes]


@pytest.mark.parametrize(
    ("old", "holds", "new"),
    [
        (100, lambda n: n * n <= 6400, 80),
        (17, lambda n: n % 16 == 0, 16),
        (3, lambda n: n in (1, 2), 2),
        (5000, lambda n: n <= 417, 417),
        (8, lambda n: n >= 1000, 1000),
    ],
)
def test_the_nearest_number_is_found(old: int, holds: Callable[[int], bool], new: int) -> None:
    assert found(lambda values: holds(int(values["n"])), Parameter("n", old)) == [f"n {old} → {new}"]


def test_numbers_stay_between_their_limits() -> None:
    assert found(lambda values: int(values["n"]) < 4, Parameter("n", 8, low=4)) == []


def test_a_change_that_leaves_the_answers_comes_before_a_smaller_one() -> None:
    exact = Parameter("channels", 10, low=10, answers=Answers.SAME)
    changes = found(lambda v: v["channels"] == 16 or v["stride"] == 1, exact, Parameter("stride", 2))
    assert changes == ["channels 10 → 16", "stride 2 → 1"]


def test_two_parameters_are_changed_where_one_is_not_enough() -> None:
    padding = Parameter("padding", "SAME", ("VALID",))
    assert found(lambda v: v["stride"] == 1 and v["padding"] == "VALID", Parameter("stride", 2), padding) == [
        "stride 2 → 1, padding SAME → VALID"
    ]


def test_only_parameters_that_the_refusal_concerns_are_tried() -> None:
    activation = Parameter("activation", "RELU", ("NONE",), kinds=frozenset({Why.ACTIVATION}))
    rank = Parameter("rank", 3, kinds=frozenset({Why.RANK}))
    changes, tried = AdjustmentSearch(alone, lambda content: False).changes(operator(activation, rank), {Why.ACTIVATION})
    assert (changes, tried) == ([], ("activation: NONE",))


def test_the_search_ends() -> None:
    plans: list[bytes] = []
    search = AdjustmentSearch(alone, lambda content: bool(plans.append(content)))
    for k in range(100):
        search.changes(operator(*(Parameter(f"p{k}_{i}", 500) for i in range(5))), ())
    assert len(plans) <= 600

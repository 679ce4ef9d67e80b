"""Columns of numbers leave out conditions that are certain to hold, and none that an operation breaks."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nnbridge.devices.rules import Fact, RuleErrors, Vocabulary, condition
from nnbridge.devices.rules.facts import LIST, NUMBER, OPERAND, TYPE, evaluations
from nnbridge.devices.rules.sifting import LEAST, sifted

VOCABULARY = Vocabulary(
    {"input": OPERAND, "stride": OPERAND},
    {"INT8": (TYPE, 14), "FLOAT32": (TYPE, 3), "sram": (NUMBER, 4096), "eight": (LIST, (5, 14))},
    {"area": "input.dims[0] * input.dims[1]", "small": "area <= 64"},
)


class Operation:
    """A tensor and a scalar, which is a number that only execution knows in every third operation."""

    def __init__(self, number: int) -> None:
        chance = random.Random(number)
        value = chance.choice((None, chance.randint(-4, 4), 2**60, float("nan"), (1, 2)))
        dims = tuple(chance.choice((1, 2, 3, 8, 2**31)) for _ in range(chance.randint(0, 4)))
        self.facts = {
            "input": Fact("input", chance.choice((3, 5, 14)), dims, scale=chance.choice((0.0, 0.1, 0.5)), zero_point=number % 5),
            "stride": Fact(type=1, tensor=False, constant=value is not None, read=lambda: value),
        }

    work = evaluations(1)

    def get(self, name: str) -> Any:
        return self.facts.get(name)


SUBJECTS = [Operation(number) for number in range(LEAST)]
LEAVES = (
    "input.rank",
    "input.dims[0]",
    "input.dims[1]",
    "input.scale",
    "input.zero_point",
    "stride",
    "area",
    "sram",
    "input.dims",
)
NUMBERS = st.sampled_from((*LEAVES, "0", "1", "2", "7", "0.5", "9007199254740993"))
SUMS = st.recursive(
    NUMBERS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(("+", "-", "*", "/", "//", "%")), inner).map(lambda p: f"({' '.join(p)})"),
        st.tuples(st.sampled_from(("max", "min")), inner, inner).map(lambda p: f"{p[0]}({p[1]}, {p[2]})"),
        inner.map(lambda text: f"-{text}"),
        inner.map(lambda text: f"abs({text})"),
    ),
    max_leaves=4,
)
COMPARISONS = st.one_of(
    st.tuples(SUMS, st.sampled_from(("==", "!=", "<", ">", "<=", ">=")), SUMS).map(" ".join),
    st.tuples(SUMS, st.sampled_from((" in ", " not in ")), SUMS, SUMS).map(lambda p: f"{p[0]}{p[1]}[{p[2]}, {p[3]}]"),
    st.sampled_from(("input.type in eight", "input.type == INT8", "small", "input.constant", "all(d < 3 for d in input.dims)")),
    st.sampled_from(("input.dims == [1, 2]", "0 < input.rank <= 2 < 3", "stride")),
)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from((" and ", " or ")), inner).map(lambda p: f"({''.join(p)})"),
        inner.map(lambda text: f"not ({text})"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
    ),
    max_leaves=4,
)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(CONDITIONS, st.one_of(st.just(""), CONDITIONS)), min_size=1, max_size=8))
def test_no_broken_condition_is_left_out(texts: list[tuple[str, str]]) -> None:
    made = []
    for text, when in texts:
        try:
            made.append(condition(text, VOCABULARY, when))
        except RuleErrors:
            continue
    if not made:
        return
    conditions = [made[i % len(made)] for i in range(LEAST)]
    for subject, found in zip(SUBJECTS, sifted(conditions, SUBJECTS), strict=True):
        assert all(any(each is other for other in found) for each in made if each.broken(subject))


def test_arithmetic_that_holds_is_left_out() -> None:
    texts = (
        "area < 2 * sram or area >= 2 * sram",
        "input.type in [INT8, FLOAT32, 5]",
        "not input.rank > 4",
        "input.rank % 2 < 2",
    )
    conditions = [condition(text, VOCABULARY) for text in texts] * (LEAST // 4)
    assert all(found == [] for found in sifted(conditions, SUBJECTS))


def test_integers_beyond_those_of_float64_are_left_to_the_condition() -> None:
    # 2**53 + 1 is no float64: as columns, the two sides would be equal.
    made = condition("input.zero_point * 0 + 9007199254740993 == 9007199254740992", VOCABULARY)
    assert all(len(found) == LEAST for found in sifted([made] * LEAST, SUBJECTS))


def test_few_conditions_are_not_sifted() -> None:
    made = condition("input.rank >= 0", VOCABULARY)
    assert list(sifted([made], SUBJECTS)) == [[made]] * len(SUBJECTS)

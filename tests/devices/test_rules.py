"""The language of rules: parsing, kinds, unknown values, mistakes, contradictions, sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnbridge.devices.rules import Fact, RuleErrors, Vocabulary, condition, contradictions
from nnbridge.devices.rules.facts import LIST, NUMBER, OPERAND, OPERANDS, TYPE, evaluations

NAMES = {"input": OPERAND, "filter": OPERAND, "stride_w": OPERAND, "stride_h": OPERAND, "paddings": OPERAND, "inputs": OPERANDS}
WORDS = {"FLOAT32": (TYPE, "f32"), "INT8": (TYPE, "i8"), "sram": (NUMBER, 4096)}
VOCABULARY = Vocabulary(NAMES, WORDS, {"square": "filter.h == filter.w"})


def scalar(value: object) -> Fact:
    return Fact(type="i32", tensor=False, constant=value is not None, read=lambda: value)


class Operation:
    """A convolution; ``stride_h`` is a value that only execution knows, ``paddings`` is a constant tensor."""

    facts: ClassVar[dict[str, Any]] = {
        "input": Fact("input", "f32", (1, 8, 6, 32), scale=0.5, identity=0),
        "filter": Fact("filter", "f32", (4, 3, 5, 32), scales=(0.25, 0.5), constant=True, identity=1),
        "stride_w": scalar(2),
        "stride_h": scalar(None),
        "paddings": Fact("paddings", "i32", (2, 2), constant=True, read=lambda: (0, 0, 1, 2)),
        "inputs": (Fact(scale=0.5, identity=3), Fact(scale=1.0, identity=3)),
    }

    work = evaluations(1)

    def get(self, name: str) -> Any:
        return self.facts.get(name)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("filter.h * filter.w <= 15", True),
        ("filter.h * filter.w < 15", False),
        ("input.c % 16 == 0 and input.w in [6, 7]", True),
        ("0 <= input.scale * most(filter.scales) / input.scale < 0.5", False),
        ("input.type == FLOAT32 and filter.type != INT8", True),
        ("paddings[0] == 0 and paddings[-1] == 2", True),
        ("paddings[9] == 0", None),
        ("all(p <= 1 for p in paddings)", False),
        ("all(x.scale == input.scale for x in inputs)", False),
        ("any(input.dims[i] == 6 for i in range(input.rank))", True),
        ("distinct(list(x.identity for x in inputs))", False),
        ("64 * input.c <= sram", True),
        ("square", False),
        ("stride_w == 1 if filter.h > 3 else stride_w == 2", True),
        ("stride_h == 2", None),
        ("paddings * 4000000000 == 1 or product([paddings, 4000000000]) == 1", None),
        ("stride_h == 2 or stride_w == 2", True),
        ("stride_h == 2 and stride_w == 1", False),
        ("not (stride_h == 2 and stride_w == 2)", None),
        ("input.h // (stride_w - 2) == 1", None),
        ("same_pad(input.h, 2, filter.h) == 1", True),
        ("bit(5, 2) and not bit(5, 1) and stride_w > 0", True),
        ("-input.h + 2 * 5 == 2", True),
        (" input.h == 8\n  and input.w == 6\n", True),
        ("filter.constant == stride_h.constant", False),
        ("input.dims[0] not in [1]", False),
    ],
)
def test_a_condition_is_evaluated(text: str, answer: object) -> None:
    assert condition(text, VOCABULARY).test(Operation()) is answer


def test_a_condition_with_a_condition_holds_only_there() -> None:
    assert not condition("stride_w == 1", VOCABULARY, when="filter.h > 3").broken(Operation())
    assert condition("stride_w == 1", VOCABULARY, when="filter.h == 3").broken(Operation())


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        ("strid_w == 1 and filter.hight == 1", ["(did you mean stride_w?)", "an attribute of an operand"]),
        ("filter.h *", ["found the end at character 11"]),
        ("input == FLOAT32 or input.rank == INT8", ["a type beside a type", "a type beside a type"]),
        ("filter.h + FLOAT32 in 3", ["a list"]),
        ("3 > 4", ["one that is always false"]),
        ("__import__('os')", ["a number, a name or an operator"]),
        ("input.__class__.rank == 1", ["an attribute of an operand"]),
        ("open(input) == 1", ["a function"]),
        ("max(1) == input.rank", ["2 arguments of max, found 1"]),
        ("((((" * 20, ["at most 40 levels"]),
        ("-" * 100 + "input.h", ["at most 40 levels"]),
        ("1" * 3000, ["at most 2000 characters"]),
        ("input.h", ["a condition, found a number"]),
        ("not " * 300 + "filter.constant", ["at most 40 levels"]),
        ("1 if square else " * 100 + "2", ["at most 40 levels"]),
        ("input.h" + " + 1" * 400 + " == 2", ["at most 40 levels"]),
        ("input" + ".h" * 900, ["at most 40 levels"]),
        ("input.h)", ["found ')' at character 8"]),
        ("input.h in [1, 2", ["expected ']', found the end at character 17"]),
        ("  input.h\n and and square", ["found 'and' at character 16"]),
        ("min(input.h input.w) == 1", ["one expression, found 'input.h input.w' at character 5"]),
        ("input.h == 0x10", ["found 'x' at character 13"]),
        ("input.h == 1_000", ["found '_' at character 13"]),
        ("input.h ** 2 == 4", ["conditions may have, found 'input.h ** 2'"]),
        ("input.h is square", ["conditions may have"]),
        ("input.h == True", ["conditions may have, found 'True' at character 12"]),
        ("(input.h, 1) == input.dims", ["conditions may have"]),
        ("input.h in [x for x in paddings]", ["conditions may have"]),
        ("all(x == 1 for x in paddings if x)", ["conditions may have"]),
        ("max(*paddings) == 1", ["conditions may have, found '*paddings'"]),
        ("max(input.h, key=square) == 1", ["conditions may have"]),
        ("paddings[0](1) == 1", ["conditions may have"]),
        ("(lambda: 1)()", ["a number, a name or an operator, found ':'"]),
        ("(y := 1) == 1", ["a number, a name or an operator, found ':'"]),
        ("input.h == 1 # taken", ["found '#' at character 14"]),
        ("\N{SNOWMAN} == 1", ["a number, a name or an operator"]),
        ("all(all(all(a == b for a in paddings) for b in paddings) for c in paddings)", ["at most 2 deep"]),
    ],
)
def test_all_mistakes_of_a_condition_are_found_with_their_places(text: str, mistakes: list[str]) -> None:
    with pytest.raises(RuleErrors) as error:
        condition(text, VOCABULARY)
    found = [str(mistake) for mistake in error.value.mistakes]
    assert len(found) >= len(mistakes) - 1
    assert all(any(expected in text for text in found) for expected in mistakes)


def test_a_condition_that_names_itself_is_a_mistake() -> None:
    endless = Vocabulary(NAMES, WORDS, {"one": "two", "two": "one"})
    with pytest.raises(RuleErrors, match="a condition without itself in it"):
        condition("one", endless)


@pytest.mark.parametrize(
    ("texts", "subject"),
    [
        (["stride_w <= 2", "stride_w >= 3"], "stride_w"),
        (["input.rank == 9"], "input.rank"),
        (["input.type == FLOAT32", "input.type == INT8"], "input.type"),
        (["stride_w in [1, 2] and stride_w > 2"], "stride_w"),
        (["input.c * 1 >= 0", "0 >= input.c"], "input.c"),
        (["input.h < sram", "input.h > sram"], "input.h"),
        (["stride_w <= 2", "stride_w >= 2"], None),
        (["stride_w < 2 or stride_w > 3"], None),
    ],
)
def test_conditions_that_nothing_can_meet_are_found(texts: list[str], subject: str | None) -> None:
    found = [about for _, about in contradictions([condition(text, VOCABULARY) for text in texts])]
    assert found == ([subject] if subject else [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("filter.h * filter.w <= 6400", "the height of filter × the width of filter is at most 6400"),
        ("not filter.constant", "filter is not a constant"),
        ("input.c % 16 == 0", "the channels of input is a multiple of 16"),
        ("all(x.rank <= 4 for x in inputs)", "the rank of each of the inputs is at most 4"),
    ],
)
def test_a_condition_has_a_sentence(text: str, words: str) -> None:
    assert condition(text, VOCABULARY).sentence == words


def test_what_was_found_lists_what_a_condition_reads() -> None:
    assert condition("filter.h * stride_w <= sram", VOCABULARY).found(Operation()) == "filter.h 3, stride_w 2"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("all(x.scale == input.scale for x in inputs)", "x.scale 1, input.scale 0.5"),
        ("all(x.scale >= 1 for x in inputs)", "x.scale 0.5"),
        ("all(p <= 1 for p in paddings)", "p 2"),
        ("all(x.scale < 1 and x.identity == 3 for x in inputs)", "x.scale 1, x.identity 3"),
        ("any(x.scale == 2 for x in inputs)", "inputs [[], []]"),
    ],
)
def test_of_a_list_the_first_member_that_breaks_a_condition_is_found(text: str, found: str) -> None:
    made = condition(text, VOCABULARY)
    assert made.broken(Operation())
    assert made.found(Operation()) == found


def test_a_requirement_lists_the_members_of_a_set_and_the_rule_names_it() -> None:
    made = condition(
        "all(x.type in known for x in inputs)", replace(VOCABULARY, words={**WORDS, "known": (LIST, ("INT8", "INT16"))})
    )
    assert made.sentence == "the type of each of the inputs is one of known"
    assert made.requirement == "the type of each of the inputs is one of INT8, INT16"


@given(st.text(alphabet="abinput.filter[]()+-*/%<>=!,0123456789 \n" + "andornotiforelse", max_size=60))
def test_any_text_is_a_condition_or_a_mistake(text: str) -> None:
    try:
        made = condition(text, VOCABULARY)
    except RuleErrors:
        return
    assert made.broken(Operation()) in (True, False)

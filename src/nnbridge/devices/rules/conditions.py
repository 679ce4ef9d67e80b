"""Conditions of device profiles: parsed once, checked against a vocabulary, evaluated for operations."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

from nnbridge.budget import WorkBudget
from nnbridge.devices.rules.compiling import RuleErrors, compiled, plain
from nnbridge.devices.rules.facts import ANY, LIST, Fact, Subject, Value, Vocabulary
from nnbridge.devices.rules.sentences import leaves, sentence
from nnbridge.devices.rules.syntax import (
    Attribute,
    Binary,
    ComparisonChain,
    Each,
    Expression,
    Listing,
    Logic,
    Name,
    Number,
    RuleError,
    Unary,
    parse,
    walk,
)
from nnbridge.errors import ExhaustedError
from nnbridge.records import dataclass

_SHOWN = 100
"""Characters of what was found that a reason shows."""
_LISTED = 12
"""Members of a list that a reason shows in place of its name."""
Conditional = Callable[[Subject], Value]


@dataclass(frozen=True)
class RuleCondition:
    """One condition of a rule."""

    text: str
    node: Expression = field(repr=False)
    test: Conditional = field(repr=False, compare=False)
    """True, False, or None where it is not known."""
    vocabulary: Vocabulary = field(repr=False, compare=False)
    when: RuleCondition | None = None
    """The condition under which this one holds; None for always."""
    says: str = ""
    """The driver's own words for the refusal."""
    source: str = ""
    uncertain: str = ""
    """Why it is open whether the device has this condition."""
    dies: bool = False
    """The driver dies where this is broken, when it is asked for its support."""
    fails_model: str = ""
    """``first``: a model that breaks it can not be read; ``last``: one that meets all others can not be compiled."""
    wording: str = ""
    """In words, where the tree's own are not the best ones."""

    def broken(self, subject: Subject) -> bool:
        """True if the operation does not meet the condition, as far as is known."""
        try:
            if self.when is not None and not self.when.test(subject):
                return False
            found = self.test(subject)
        except ExhaustedError as error:
            raise ExhaustedError(replace(error.reason, operand=self.text[:_SHOWN])) from error
        return found is not None and not found

    @cached_property
    def sentence(self) -> str:
        """The condition in words."""
        words = self.wording or sentence(self.node)
        return f"{words}, where {sentence(self.when.node)}" if self.when else words

    @cached_property
    def _leaves(self) -> Mapping[str, Conditional]:
        known = self.vocabulary.names
        read = {**leaves(self.node), **(leaves(self.when.node) if self.when else {})}
        mine = {text: leaf for text, leaf in read.items() if _first_name(leaf) in known}
        return {text: compiled(leaf, self.vocabulary, ANY) for text, leaf in mine.items()}

    @cached_property
    def requirement(self) -> str:
        """The condition in words, with the members of lists in place of their names."""
        lists = {name: value for name, (kind, value) in self.vocabulary.words.items() if kind == LIST}
        named = [lists[name] for name in re.findall(r"\w+", self.sentence) if name in lists]
        if not named or max(map(len, named)) > _LISTED:
            return self.sentence
        return re.sub(r"\w+", lambda m: ", ".join(map(str, lists[m[0]])) if m[0] in lists else m[0], self.sentence)

    @cached_property
    def _each(self) -> tuple[Conditional, Mapping[str, Conditional], Collection[str]] | None:
        """Of a condition on each member of a list: whether the members meet it, what it reads of them, the list's names."""
        node = self.node
        if not isinstance(node, Each) or node.function != "all":
            return None
        read = [part for part in walk(node.body) if isinstance(part, Attribute) and _is(part.of, node)]
        own: dict[str, Expression] = {f"{node.variable}.{part.name}": part for part in read}
        parts = own or {node.variable: Name(0, node.variable)}
        lists = {text: compiled(replace(node, function="list", body=part), self.vocabulary, ANY) for text, part in parts.items()}
        return compiled(replace(node, function="list"), self.vocabulary, ANY), lists, leaves(node.source).keys()

    def found(self, subject: Subject) -> str:
        """The operation's values for everything that the condition reads; of a list, those of the first member that breaks it."""
        if self._each is not None:
            met, members, gone_through = self._each
            answers, of_each = met(subject), {text: read(subject) for text, read in members.items()}
            first = next((k for k, each in enumerate(answers or ()) if each is not None and not each), None)
            if first is not None and all(values is not None for values in of_each.values()):
                others = {text: read(subject) for text, read in self._leaves.items() if text not in gone_through}
                return _listed({text: values[first] for text, values in of_each.items()} | others)
        return _listed({text: read(subject) for text, read in self._leaves.items()})


def _listed(values: Mapping[str, Value]) -> str:
    return ", ".join(f"{text} {shown(value)}" for text, value in values.items())[:_SHOWN]


def condition(text: str, vocabulary: Vocabulary, when: str = "", **remarks: Any) -> RuleCondition:
    """A checked condition; RuleErrors has all mistakes of its text. ``remarks``: other fields by name."""
    made = replace(checked(text, _parsed(text), vocabulary), **remarks)
    return replace(made, when=condition(when, vocabulary)) if when else made


def checked(text: str, node: Expression, vocabulary: Vocabulary) -> RuleCondition:
    """The condition of a tree; RuleErrors as :func:`condition` has them."""
    made = RuleCondition(text, node, compiled(node, vocabulary), vocabulary)
    if not any(isinstance(part, Name) for part in walk(node)):
        raise RuleErrors([RuleError("a condition about the operation", f"one that is always {_truth(made)}", 0)])
    return made


def _parsed(text: str) -> Expression:
    try:
        return parse(text)
    except RuleError as error:
        raise RuleErrors([error]) from error


def _truth(condition: RuleCondition) -> str:
    return "true" if condition.test(_Nobody(condition.vocabulary.work)) else "false"


class _Nobody:
    """No operation: what conditions say of their own constants. It is evaluated while a profile is read, and counted there."""

    def __init__(self, work: WorkBudget) -> None:
        self.work = work

    def get(self, name: str) -> Value:
        return None


def _is(part: Expression, each: Each) -> bool:
    """True for the variable of a loop."""
    return isinstance(part, Name) and part.name == each.variable


def _first_name(node: Expression) -> str:
    while not isinstance(node, Name):
        node = node.parts()[0]
    return node.name


def shown(value: Value) -> str:
    """A value as a reason shows it."""
    if isinstance(value, Fact):
        return shown(value.value) if not value.tensor or value.value is not None else f"{shown(value.dims)}"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(shown(v) for v in value[:8])}{', …' if len(value) > 8 else ''}]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "not known"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else str(plain(value))


# -- contradictions ------------------------------------------------------------------------------------------------------

_NATURAL: Mapping[str, tuple[float, float]] = {
    "rank": (0, 8),
    "elements": (0, math.inf),
    "bytes": (0, math.inf),
    "scale": (0, math.inf),
    **dict.fromkeys("nhwc", (1, math.inf)),
}
"""Attribute → the numbers that it can have at all."""
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}


@dataclass
class _Span:
    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False
    allowed: frozenset[Any] | None = None

    def empty(self) -> bool:
        if self.low > self.high or (self.low == self.high and (self.open_low or self.open_high)):
            return True
        return self.allowed is not None and not any(
            (self.low < a or (self.low == a and not self.open_low)) and (a < self.high or (a == self.high and not self.open_high))
            if isinstance(a, (int, float))
            else True
            for a in self.allowed
        )


def contradictions(conditions: Iterable[RuleCondition]) -> Iterator[tuple[RuleCondition, str]]:
    """Conditions that no operation can meet together with those before them, and what they are about."""
    spans: dict[str, _Span] = {}
    for made in conditions:
        if made.when is not None:
            continue
        for subject, sign, value in _bounds(made.node, made.vocabulary):
            span = spans.get(subject)
            if span is None:
                low, high = _NATURAL.get(subject.rpartition(".")[2], (-math.inf, math.inf)) if "." in subject else (None, None)
                span = spans[subject] = _Span() if low is None or high is None else _Span(low, high)
            _narrow(span, sign, value)
            if span.empty():
                yield made, subject
                return


def _narrow(span: _Span, sign: str, value: Any) -> None:
    if sign == "in":
        span.allowed = frozenset(value) if span.allowed is None else span.allowed & frozenset(value)
    elif sign == "==" and not isinstance(value, (int, float)):
        _narrow(span, "in", (value,))
    elif isinstance(value, (int, float)):
        if sign in ("<", "<=", "==") and (value, sign != "<") < (span.high, not span.open_high):
            span.high, span.open_high = value, sign == "<"
        if sign in (">", ">=", "==") and (-value, sign != ">") < (-span.low, not span.open_low):
            span.low, span.open_low = value, sign == ">"


def _bounds(node: Expression, vocabulary: Vocabulary) -> Iterator[tuple[str, str, Any]]:
    """The statement of a condition on one name or attribute: (its text, sign, constant)."""
    if isinstance(node, Logic) and node.sign == "and":
        for part in node.of:
            yield from _bounds(part, vocabulary)
    if isinstance(node, ComparisonChain):
        left = node.first
        for sign, right in node.rest:
            for one, other, way in ((left, right, sign), (right, left, _MIRRORED.get(sign, ""))):
                subject, constant = _subject(one, vocabulary), _constant(other, vocabulary)
                if subject and constant is not None and way:
                    yield subject, way, constant
            left = right


def _subject(node: Expression, vocabulary: Vocabulary) -> str:
    if isinstance(node, Name):
        return node.name if node.name in vocabulary.names else ""
    if isinstance(node, Attribute) and isinstance(node.of, Name) and node.of.name in vocabulary.names:
        return f"{node.of.name}.{node.name}"
    return ""


def _constant(node: Expression, vocabulary: Vocabulary) -> Any:
    """The value of a part that no operation changes; None for others."""
    if not isinstance(node, (Number, Name, Listing, Unary, Binary)):
        return None
    names: Sequence[Name] = [part for part in walk(node) if isinstance(part, Name)]
    if any(name.name not in vocabulary.words for name in names) or any(isinstance(p, (Attribute,)) for p in walk(node)):
        return None
    return compiled(node, vocabulary, ANY)(_Nobody(vocabulary.work))

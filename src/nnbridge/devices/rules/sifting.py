"""Many conditions for many operations at once: which of them are certain to hold, by whole columns of numbers.

A column has one number for each operation. What a column can not express exactly (lists, integers beyond those of float64, NaN)
is evaluated for each operation by the condition's own function, which decides every refusal: columns only leave out work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from nnbridge.devices.rules.compiling import compiled, plain
from nnbridge.devices.rules.conditions import RuleCondition
from nnbridge.devices.rules.facts import ANY, Subject, Vocabulary
from nnbridge.devices.rules.syntax import (
    Binary,
    ComparisonChain,
    Expression,
    FunctionCall,
    IfElse,
    Listing,
    Logic,
    Name,
    Number,
    Unary,
    parse,
)

Truths: TypeAlias = "npt.NDArray[np.bool_]"
Column: TypeAlias = "tuple[npt.NDArray[np.float64] | Truths, Truths | None]"
"""Numbers or truths, and where they are known; None for everywhere. What is not known is 0."""

Suspects: TypeAlias = "Mapping[tuple[int, int], Sequence[RuleCondition]]"
"""Conditions and an operation, both by identity → those of the conditions that it may break; no entry: all of them."""
T = TypeVar("T")
LEAST = 64
"""Conditions, and operations, from which on columns are quicker than one evaluation after the other."""
_CHUNK = 4_096
"""Operations of a column, which then stays in the processor's cache."""
_EXACT = 2.0**53
_ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "//": np.floor_divide, "%": np.remainder,
}  # fmt: skip
_COMPARED: Mapping[str, Callable[..., Any]] = {
    "==": np.equal, "!=": np.not_equal, "<": np.less, ">": np.greater, "<=": np.less_equal, ">=": np.greater_equal,
}  # fmt: skip
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": np.abs, "floor": np.floor, "ceil": np.ceil, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


class _Inexact(Exception):
    """A part that has no column."""


def sifted(conditions: Sequence[RuleCondition], subjects: Sequence[Subject]) -> Iterator[Sequence[RuleCondition]]:
    """For each subject, the conditions that it may break, in their order."""
    if len(conditions) < LEAST or len(subjects) < LEAST:
        yield from (conditions for _ in subjects)
        return
    for first in range(0, len(subjects), _CHUNK):
        columns = _Columns(subjects[first : first + _CHUNK])
        with np.errstate(all="ignore"):
            suspect = np.array([columns.suspect(each) for each in conditions])
        yield from ([conditions[int(i)] for i in np.flatnonzero(column)] for column in suspect.T)


def suspects(asked: Iterable[tuple[Sequence[RuleCondition], T]], subject: Callable[[T], Subject]) -> Suspects:
    """The conditions that operations may break, where it is quicker to find them for all operations together."""
    groups: dict[int, tuple[Sequence[RuleCondition], list[T]]] = {}
    for conditions, operation in asked:
        if len(conditions) >= LEAST:
            groups.setdefault(id(conditions), (conditions, []))[1].append(operation)
    return {
        (id(conditions), id(operation)): found
        for conditions, operations in groups.values()
        for operation, found in zip(operations, sifted(conditions, list(map(subject, operations))), strict=True)
    }


class _Columns:
    def __init__(self, subjects: Sequence[Subject]) -> None:
        self._subjects = subjects
        self._leaves: dict[Any, Column | None] = {}
        self._named: dict[tuple[int, str], Column | None] = {}
        """Columns of terms and common conditions; None for those that have none."""

    def suspect(self, condition: RuleCondition) -> Truths:
        """The subjects for which a condition may be broken."""
        try:
            broken = self._false(*self._column(condition.node, condition.vocabulary))
            if condition.when is not None:
                values, known = self._column(condition.when.node, condition.when.vocabulary)
                broken = broken & _true(values, known)
        except _Inexact:
            return np.ones(len(self._subjects), np.bool_)
        return broken

    def _false(self, values: Any, known: Truths | None) -> Truths:
        found: Truths = np.equal(values, 0) if known is None else known & np.equal(values, 0)
        return np.broadcast_to(found, len(self._subjects))

    def _column(self, node: Expression, words: Vocabulary) -> Column:
        try:
            found = self._computed(node, words)
        except _Inexact:
            found = None
        return found or self._leaf(node, words)

    def _computed(self, node: Expression, words: Vocabulary) -> Column | None:
        """The column of columns; None of a part that is evaluated for each subject."""
        match node:
            case Number():
                return _checked(np.float64(node.value), None)
            case Name():
                return self._name(node, words)
            case Unary():
                values, known = self._column(node.of, words)
                return (
                    (np.negative(values, dtype=np.float64), known)
                    if node.sign == "-"
                    else (_where_known(np.equal(values, 0), known), known)
                )
            case Binary():
                return self._arithmetic(node, words)
            case Logic():
                return _logic([self._column(part, words) for part in node.of], node.sign == "or")
            case ComparisonChain():
                left, pairs = node.first, []
                for sign, right in node.rest:
                    pairs.append(self._pair(sign, left, right, words))
                    left = right
                return _logic(pairs, False)
            case IfElse():
                (test, sure), yes, no = (self._column(part, words) for part in (node.condition, node.yes, node.no))
                chosen = np.not_equal(test, 0)
                known = np.where(chosen, True if yes[1] is None else yes[1], True if no[1] is None else no[1])
                known = _both(known if yes[1] is not None or no[1] is not None else None, sure)
                return _where_known(np.where(chosen, yes[0], no[0]), known), known
            case FunctionCall() if node.function in _FUNCTIONS:
                columns = [self._column(part, words) for part in node.arguments]
                known = _all_known(columns)
                return _where_known(_FUNCTIONS[node.function](*(values for values, _ in columns)), known), known
        return None

    def _name(self, node: Name, words: Vocabulary) -> Column | None:
        if node.name in words.names:
            return None
        if node.name in words.words:
            value = words.words[node.name][1]
            return _checked(np.float64(value), None) if isinstance(value, (int, float)) else None
        key = (id(words), node.name)
        if key not in self._named:
            try:
                self._named[key] = self._column(parse(words.conditions[node.name]), words)
            except _Inexact:
                self._named[key] = None
        found = self._named[key]
        if found is None:
            raise _Inexact
        return found

    def _arithmetic(self, node: Binary, words: Vocabulary) -> Column:
        (left, sure), (right, certain) = self._column(node.left, words), self._column(node.right, words)
        known = _both(sure, certain)
        if node.sign in ("/", "//", "%") and not np.all(right):
            known = _both(known, np.not_equal(right, 0))
        values = _ARITHMETIC[node.sign](left, right, dtype=np.float64)
        return _checked(_where_known(values, known), known)

    def _pair(self, sign: str, left: Expression, right: Expression, words: Vocabulary) -> Column:
        values, sure = self._column(left, words)
        if sign not in ("in", "not in"):
            others, certain = self._column(right, words)
            known = _both(sure, certain)
            return _where_known(_COMPARED[sign](values, others), known), known
        found, all_known = _logic([self._equal(values, item) for item in self._items(right, words)], True)
        known = _both(sure, all_known)
        return _where_known(found if sign == "in" else np.equal(found, 0), known), known

    def _equal(self, values: Any, item: Column) -> Column:
        return _where_known(np.equal(values, item[0]), item[1]), item[1]

    def _items(self, node: Expression, words: Vocabulary) -> list[Column]:
        """The columns of a list's items."""
        if isinstance(node, Listing) and node.of:
            return [self._column(part, words) for part in node.of]
        value = words.words.get(node.name, ("", ()))[1] if isinstance(node, Name) and node.name not in words.names else ()
        if not isinstance(value, tuple) or not value or not all(isinstance(each, (int, float)) for each in value):
            raise _Inexact
        return [_checked(np.float64(each), None) for each in value]

    def _leaf(self, node: Expression, words: Vocabulary) -> Column:
        """The answers of the part's own function for each subject; _Inexact where that is no exact number."""
        key = (id(words), _form(node))
        if key not in self._leaves:
            self._leaves[key] = self._read(node, words)
        found = self._leaves[key]
        if found is None:
            raise _Inexact
        return found

    def _read(self, node: Expression, words: Vocabulary) -> Column | None:
        read = compiled(node, words, ANY)
        values = [plain(read(subject)) for subject in self._subjects]
        if not all(value is None or isinstance(value, (int, float)) for value in values):
            return None
        if not all(value is None or abs(value) < _EXACT for value in values):
            return None
        known = np.array([value is not None for value in values])
        return np.array([value or 0 for value in values], np.float64), None if known.all() else known


def _form(part: Any) -> Any:
    """A tree without its positions."""
    if isinstance(part, Expression):
        return type(part), *(_form(getattr(part, each.name)) for each in fields(part) if each.name != "at")
    return tuple(map(_form, part)) if isinstance(part, tuple) else part


def _checked(values: Any, known: Truths | None) -> Column:
    if not np.all(np.abs(values) < _EXACT):
        raise _Inexact
    return values, known


def _where_known(values: Any, known: Truths | None) -> Any:
    return values if known is None else np.where(known, values, 0)


def _both(first: Truths | None, second: Truths | None) -> Truths | None:
    return second if first is None else first if second is None else first & second


def _all_known(columns: Sequence[Column]) -> Truths | None:
    known: Truths | None = None
    for _, each in columns:
        known = _both(known, each)
    return known


def _true(values: Any, known: Truths | None) -> Truths:
    return np.not_equal(values, 0) if known is None else known & np.not_equal(values, 0)


def _logic(columns: Sequence[Column], decides: bool) -> Column:
    """``or`` is True where a part is, ``and`` False where one is; else it is known where all parts are."""
    if len(columns) == 1:
        return columns[0]
    decided: Truths | None = None
    for values, known in columns:
        found = np.not_equal(values, 0) if decides else np.equal(values, 0)
        found = found if known is None else found & known
        decided = found if decided is None else decided | found
    assert decided is not None
    known = _all_known(columns)
    known = None if known is None else known | decided
    return _where_known(decided if decides else ~decided, known), known

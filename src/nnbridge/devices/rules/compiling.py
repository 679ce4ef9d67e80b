"""A tree → a function of an operation. Names and kinds are checked first; all mistakes of a condition are found at once.

What is not known (a scalar that only execution knows, a name that this form of the operation lacks, a division by zero) makes
a part unknown: ``and`` and ``or`` go on with what is known, everything else is unknown with it. A condition that is unknown is
not broken.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeAlias

from nnbridge.devices.rules.facts import (
    ANY,
    ATTRIBUTES,
    EACH,
    FUNCTIONS,
    KNOWN,
    LIST,
    MAX_ELEMENTS,
    NUMBER,
    OPERAND,
    OPERANDS,
    TRUTH,
    TYPE,
    Fact,
    Subject,
    Value,
    Vocabulary,
    nested,
    small,
)
from nnbridge.devices.rules.syntax import (
    MAX_DEPTH,
    Attribute,
    Binary,
    ComparisonChain,
    Each,
    Expression,
    FunctionCall,
    IfElse,
    Indexing,
    Listing,
    Logic,
    Name,
    Number,
    RuleError,
    Unary,
    parse,
    walk,
)
from nnbridge.errors import near

Function: TypeAlias = "Callable[[Any, tuple[Value, ...]], Value]"
"""A part of a condition, for a subject and the variables of ``for`` around it."""
Variables: TypeAlias = "tuple[tuple[str, str], ...]"
"""The variables of ``for`` around a part, with their kinds."""

_FITS: Mapping[str, tuple[str, ...]] = {
    NUMBER: (NUMBER, OPERAND, ANY, TRUTH),
    TRUTH: (TRUTH, OPERAND, ANY),
    LIST: (LIST, OPERAND, OPERANDS, ANY),
    OPERAND: (OPERAND, ANY),
    TYPE: (TYPE, ANY),
}
"""What is required → the kinds that fit."""
_SHOWN = {NUMBER: "a number", TRUTH: "a condition", LIST: "a list", OPERAND: "an operand", OPERANDS: "operands", TYPE: "a type"}
_MAX_NESTED = 2
"""``for`` within ``for``."""
_LIST_WEIGHT = 64
"""Parts of a condition that take as long as going through a list of MAX_ELEMENTS."""
_MAX_HEIGHT = MAX_DEPTH // 4
_MAX_INNER = 3
"""Mistakes of a term that are reported wherever it stands."""
_ARITHMETIC: Mapping[str, Callable[[Value, Value], Value]] = {
    "+": lambda a, b: _number(a) + _number(b),
    "-": lambda a, b: a - b,
    "*": lambda a, b: small(_number(a) * _number(b)),
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}
_COMPARED: Mapping[str, Callable[[Value, Value], Value]] = {
    "==": lambda a, b: _equal(a, b),
    "!=": lambda a, b: None if (found := _equal(a, b)) is None else not found,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "in": lambda a, b: _member(a, b),
    "not in": lambda a, b: None if (found := _member(a, b)) is None else not found,
}
_UNKNOWABLE = (ArithmeticError, ValueError, TypeError, IndexError)
"""What arithmetic over unforeseen values may raise: the part is then not known."""


class RuleErrors(Exception):
    """Every mistake of one condition."""

    def __init__(self, mistakes: list[RuleError]) -> None:
        super().__init__("; ".join(map(str, mistakes)))
        self.mistakes = mistakes


_COMPILED: dict[tuple[Any, ...], Callable[[Subject], Value]] = {}
_MAX_COMPILED = 400_000
"""Functions that are stored, with the rows of their lists. Releases of a driver share nearly all of their conditions."""
_STORED = [0]
"""Their number."""


def compiled(node: Expression, vocabulary: Vocabulary, required: str = TRUTH) -> Callable[[Subject], Value]:
    """A function of the subject: True, False or None (not known). RuleErrors has every mistake of the tree."""
    vocabulary.work.spend(_size(node), vocabulary.title)
    key = (node, required, _meanings(node, vocabulary))
    found = _COMPILED.get(key)
    if found is None:
        _STORED[0] += 1 + sum(len(value) for _, value in vocabulary.words.values() if isinstance(value, tuple))
        if _STORED[0] >= _MAX_COMPILED:
            _COMPILED.clear()
            _STORED[0] = 0
        found = _COMPILED[key] = _compiled(node, vocabulary, required)
    return found


@lru_cache(maxsize=4096)
def _size(node: Expression) -> int:
    return sum(1 for _ in walk(node))


@lru_cache(maxsize=4096)
def _names(node: Expression) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.name for part in walk(node) if isinstance(part, Name)))


def _meanings(node: Expression, vocabulary: Vocabulary) -> tuple[Any, ...]:
    """The meanings of the names of a tree, and of the conditions that it names: all that a vocabulary adds to it."""
    found: dict[str, Any] = {}
    left = list(_names(node))
    while left:
        name = left.pop()
        if name in found:
            continue
        text = vocabulary.conditions.get(name)
        found[name] = (name, vocabulary.names.get(name), vocabulary.words.get(name), text)
        if text is not None:
            with suppress(RuleError):
                inner = parse(text)
                vocabulary.work.spend(_size(inner), name)
                left += _names(inner)
    return tuple(found.values())


def _compiled(node: Expression, vocabulary: Vocabulary, required: str) -> Callable[[Subject], Value]:
    compiler = _Compiler(vocabulary)
    function = compiler.of(node, (), required)
    if compiler.mistakes:
        raise RuleErrors(compiler.mistakes)
    weight = _weight(node, vocabulary)

    def evaluate(subject: Subject) -> Value:
        try:
            if not weight:
                return function(subject, ())
            subject.work.spend(weight)
            return function(_Asked(subject), ())
        except _UNKNOWABLE:
            return None

    return evaluate


class _Asked:
    """A subject while one condition is evaluated for it: terms are evaluated once, and what loops evaluate is counted."""

    __slots__ = ("_found", "get", "spend")

    def __init__(self, subject: Subject) -> None:
        self.get, self.spend = subject.get, subject.work.spend
        self._found: dict[str, Value] = {}

    def once(self, name: str, function: Function, weight: int) -> Value:
        """The value of a term or condition that stands elsewhere."""
        found = self._found
        if name not in found:
            self.spend(weight)
            found[name] = function(self, ())
        return found[name]


def _weight(node: Expression, vocabulary: Vocabulary) -> int:
    """The work to evaluate a tree without its loops; 0 for one without lists, loops and terms."""
    parts = list(walk(node))
    lists = sum(_LIST_WEIGHT for part in parts if _goes_through(part))
    named = any(isinstance(part, Name) and part.name in vocabulary.conditions for part in parts)
    return lists + len(parts) if lists or named else 0


def _goes_through(part: Expression) -> bool:
    """True for a part that goes through a list."""
    if isinstance(part, ComparisonChain):
        return any(sign in ("in", "not in") for sign, _ in part.rest)
    return isinstance(part, Each) or (isinstance(part, FunctionCall) and LIST in _kinds_of(part.function))


def _kinds_of(function: str) -> tuple[str, ...]:
    kind, kinds, _, _ = FUNCTIONS.get(function, ("", (), 0, None))
    return (kind, *kinds)


def plain(value: Value) -> Value:
    """An operand's value; any other value itself."""
    return value.value if isinstance(value, Fact) else value


def _number(value: Value) -> Value:
    """The value; TypeError for a list, which Python would repeat or join."""
    if isinstance(value, tuple):
        raise TypeError
    return value


def _equal(first: Value, second: Value) -> Value:
    if isinstance(first, tuple) and isinstance(second, tuple) and (None in first or None in second):
        return None if len(first) == len(second) else False
    return first == second


def _member(value: Value, listed: Value) -> Value:
    if value in listed:
        return True
    return None if None in listed else False


class _Compiler:
    def __init__(self, vocabulary: Vocabulary, within: tuple[str, ...] = ()) -> None:
        self._vocabulary = vocabulary
        self._within = within
        """Names of the conditions around this one."""
        self.height = 0
        """Levels of named conditions in it."""
        self.mistakes: list[RuleError] = []

    def of(self, node: Expression, variables: Variables, required: str = ANY) -> Function:
        """The function of a node, whose value must be of the required kind."""
        kind, function = self._parts(node, variables)
        if required in _FITS and kind not in _FITS[required] and not (required == NUMBER and kind == TYPE):
            self._note(_SHOWN[required], _SHOWN.get(kind, kind), node)
        return function if required in (OPERAND, ANY) else _plain(function, kind)

    def _note(self, rule: str, found: str, node: Expression) -> tuple[str, Function]:
        self.mistakes.append(RuleError(rule, found, node.at))
        return self._nothing()

    def _nothing(self) -> tuple[str, Function]:
        """The placeholder for a part that has a mistake."""
        return ANY, _unknown

    def _parts(self, node: Expression, variables: Variables) -> tuple[str, Function]:
        return _PARTS[type(node)](self, node, variables)

    def _indexing(self, node: Indexing, variables: Variables) -> tuple[str, Function]:
        values, index = self.of(node.of, variables, LIST), self.of(node.index, variables, NUMBER)
        several = self._kind(node.of, variables) == OPERANDS
        return (OPERAND if several else NUMBER), lambda s, v: _item(values(s, v), index(s, v))

    def _unary(self, node: Unary, variables: Variables) -> tuple[str, Function]:
        kind = NUMBER if node.sign == "-" else TRUTH
        inner, change = self.of(node.of, variables, kind), operator.neg if kind == NUMBER else operator.not_
        return kind, lambda s, v: None if (x := inner(s, v)) is None else change(x)

    def _binary(self, node: Binary, variables: Variables) -> tuple[str, Function]:
        left, right = self.of(node.left, variables, NUMBER), self.of(node.right, variables, NUMBER)
        return NUMBER, _both(_ARITHMETIC[node.sign], left, right)

    def _junction(self, node: Logic, variables: Variables) -> tuple[str, Function]:
        parts = [self.of(part, variables, TRUTH) for part in node.of]
        return TRUTH, _logic(parts, node.sign == "or")

    def _choice(self, node: IfElse, variables: Variables) -> tuple[str, Function]:
        condition = self.of(node.condition, variables, TRUTH)
        (kind, yes), (other, no) = self._parts(node.yes, variables), self._parts(node.no, variables)
        if kind != other or kind != OPERAND:
            kind, yes, no = (kind if kind == other else ANY), _plain(yes, kind), _plain(no, other)
        return kind, lambda s, v: None if (x := condition(s, v)) is None else yes(s, v) if x else no(s, v)

    def _listing(self, node: Listing, variables: Variables) -> tuple[str, Function]:
        items = [_plain(self.of(part, variables), ANY) for part in node.of]
        return LIST, lambda s, v: nested([item(s, v) for item in items])

    def _kind(self, node: Expression, variables: Variables) -> str:
        """The kind of a node that has been checked already."""
        if not isinstance(node, Name):
            return ANY
        return dict(variables).get(node.name) or self._vocabulary.names.get(node.name, ANY)

    def _name(self, node: Name, variables: Variables) -> tuple[str, Function]:
        name, vocabulary = node.name, self._vocabulary
        for place in reversed(range(len(variables))):
            if variables[place][0] == name:
                return variables[place][1], _variable(place)
        if name in vocabulary.names:
            return vocabulary.names[name], lambda s, v: s.get(name)
        if name in vocabulary.words:
            kind, value = vocabulary.words[name]
            return kind, _constant(value)
        if name in vocabulary.conditions:
            return self._condition(node)
        known = [*(n for n, _ in variables), *vocabulary.names, *vocabulary.words, *vocabulary.conditions]
        hint = near(name, known) or f" ({', '.join(sorted(vocabulary.names))})"
        return self._note(f"a name of {vocabulary.title}{hint}", name, node)

    def _condition(self, node: Name) -> tuple[str, Function]:
        """A condition or term that stands elsewhere, by its name: compiled once, and evaluated once for each subject."""
        name, known, within = node.name, self._vocabulary.compiled, len(self._within)
        if name in self._within or within > _MAX_HEIGHT:
            return self._note("a condition without itself in it", name, node)
        if name not in known:
            known[name] = self._inner(name)
        kind, function, mistakes, height, weight = known[name]
        self.height = max(self.height, 1 + height)
        if within + height > _MAX_HEIGHT:
            return self._note(f"conditions in conditions, {_MAX_HEIGHT + 1} deep at most", name, node)
        self.mistakes += [RuleError(f"{m.rule} in {name}", m.found, node.at) for m in mistakes]
        return kind, lambda s, v: s.once(name, function, weight)

    def _inner(self, name: str) -> tuple[str, Function, list[RuleError], int, int]:
        """Kind, function, mistakes, height and weight of a condition that stands elsewhere."""
        inner = _Compiler(self._vocabulary, (*self._within, name))
        kind, function = self._nothing()
        weight = 0
        try:
            node = parse(self._vocabulary.conditions[name])
            weight = _weight(node, self._vocabulary)
            kind, function = inner._parts(node, ())
        except RuleError as error:
            inner.mistakes = [error]
        return kind, function, inner.mistakes[:_MAX_INNER], inner.height, weight

    def _attribute(self, node: Attribute, variables: Variables) -> tuple[str, Function]:
        holder = self.of(node.of, variables, OPERAND)
        if node.name not in ATTRIBUTES:
            hint = near(node.name, ATTRIBUTES) or f" ({', '.join(ATTRIBUTES)})"
            return self._note(f"an attribute of an operand{hint}", node.name, node)
        kind, read, _ = ATTRIBUTES[node.name]
        return kind, lambda s, v: read(x) if isinstance(x := holder(s, v), Fact) else None

    def _comparison(self, node: ComparisonChain, variables: Variables) -> Function:
        kinds = [self._parts(part, variables) for part in node.parts()]
        pairs = []
        for place, (sign, right) in enumerate(node.rest):
            (kind, first), (other, second) = kinds[place : place + 2]
            if sign in ("in", "not in"):
                if other not in _FITS[LIST]:
                    self._note("a list", _SHOWN.get(other, other), right)
            elif {kind, other} & {TYPE} and not {kind, other} <= {TYPE, ANY}:
                self._note("a type beside a type", _SHOWN.get(other if kind == TYPE else kind, ANY), right)
            elif {kind, other} == {LIST, NUMBER}:
                self._note("a list beside a list", "a number", right)
            pairs.append(_both(_COMPARED[sign], _plain(first, kind), _plain(second, other)))
        return pairs[0] if len(pairs) == 1 else _logic(pairs, False)

    def _call(self, node: FunctionCall, variables: Variables) -> tuple[str, Function]:
        if node.function in EACH or node.function not in FUNCTIONS:
            known = [*FUNCTIONS, *(f"{name}(… for … in …)" for name in EACH)]
            rule = "a function" if node.function not in EACH else f"{node.function}(condition for name in list)"
            hint = near(node.function, FUNCTIONS) or f" ({', '.join(known)})"
            return self._note(f"{rule}{hint}", node.function, node)
        kind, kinds, least, function = FUNCTIONS[node.function]
        if node.function == KNOWN and len(node.arguments) == 1:
            argument = self.of(node.arguments[0], variables)
            return TRUTH, lambda s, v: plain(argument(s, v)) is not None
        if not least <= len(node.arguments) <= len(kinds):
            count = str(least) if least == len(kinds) else f"{least} to {len(kinds)}"
            return self._note(f"{count} arguments of {node.function}", str(len(node.arguments)), node)
        arguments = [self.of(a, variables, required) for a, required in zip(node.arguments, kinds, strict=False)]

        def call(s: Subject, v: tuple[Value, ...]) -> Value:
            values = [argument(s, v) for argument in arguments]
            try:
                return None if None in values else function(*values)
            except _UNKNOWABLE:
                return None

        return kind, call

    def _each(self, node: Each, variables: Variables) -> tuple[str, Function]:
        if node.function not in EACH:
            return self._note(f"one of {', '.join(EACH)} before 'for'{near(node.function, EACH)}", node.function, node)
        if len(variables) >= _MAX_NESTED:
            return self._note(f"'for' at most {_MAX_NESTED} deep", "more", node)
        source = self.of(node.source, variables, LIST)
        several = self._kind(node.source, variables) == OPERANDS
        kind = EACH[node.function]
        inner = (*variables, (node.variable, OPERAND if several else NUMBER))
        body = self.of(node.body, inner, TRUTH if kind == TRUTH else ANY)
        either, listing = node.function == "any", kind == LIST
        weight = sum(_LIST_WEIGHT if _goes_through(part) else 1 for part in walk(node.body))

        def each(s: _Asked, v: tuple[Value, ...]) -> Value:
            items = source(s, v)
            if items is None or len(items) > MAX_ELEMENTS:
                return None
            s.spend(weight * len(items))
            if listing:
                return nested([plain(body(s, (*v, item))) for item in items])
            answer: Value = not either
            for item in items:
                found = body(s, (*v, item))
                if found is not None and bool(found) is either:
                    return either
                if found is None:
                    answer = None
            return answer

        return kind, each


_PARTS: Mapping[type[Expression], Callable[[_Compiler, Any, Variables], tuple[str, Function]]] = {
    Number: lambda compiler, node, variables: (NUMBER, _constant(node.value)),
    Name: _Compiler._name,
    Attribute: _Compiler._attribute,
    Indexing: _Compiler._indexing,
    Unary: _Compiler._unary,
    Binary: _Compiler._binary,
    Logic: _Compiler._junction,
    ComparisonChain: lambda compiler, node, variables: (TRUTH, compiler._comparison(node, variables)),
    IfElse: _Compiler._choice,
    Listing: _Compiler._listing,
    FunctionCall: _Compiler._call,
    Each: _Compiler._each,
}
"""The kind and the function of each node of a tree."""


def _unknown(subject: Subject, variables: tuple[Value, ...]) -> Value:
    return None


def _constant(value: Value) -> Function:
    return lambda s, v: value


def _variable(place: int) -> Function:
    return lambda s, v: v[place]


def _plain(function: Function, kind: str) -> Function:
    return (lambda s, v: plain(function(s, v))) if kind in (OPERAND, ANY) else function


def _item(values: Value, index: Value) -> Value:
    if values is None or index is None or not -len(values) <= index < len(values):
        return None
    return values[int(index)]


def _both(compute: Callable[[Value, Value], Value], left: Function, right: Function) -> Function:
    def both(s: Subject, v: tuple[Value, ...]) -> Value:
        a = left(s, v)
        b = right(s, v)
        if a is None or b is None:
            return None
        try:
            return compute(a, b)
        except _UNKNOWABLE:
            return None

    return both


def _logic(parts: list[Function], decides: bool) -> Function:
    """``or`` ends with the first True, ``and`` with the first False; else it is unknown if a part is."""

    def logic(s: Subject, v: tuple[Value, ...]) -> Value:
        answer: Value = not decides
        for part in parts:
            found = part(s, v)
            if found is None:
                answer = None
            elif bool(found) is decides:
                return decides
        return answer

    return logic

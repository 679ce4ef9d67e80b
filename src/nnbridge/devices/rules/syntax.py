"""The grammar of conditions in device profiles: text → tree with positions. Nothing in a text is ever executed.

::

    choice     = either ["if" either "else" choice]
    either     = both {"or" both}
    both       = inverted {"and" inverted}
    inverted   = "not" inverted | comparison
    comparison = sum {("==" | "!=" | "<=" | ">=" | "<" | ">" | ["not"] "in") sum}
    sum        = term {("+" | "-") term}
    term       = factor {("*" | "/" | "//" | "%") factor}
    factor     = "-" factor | primary
    primary    = atom {"." NAME | "[" choice "]"}
    atom       = NUMBER | NAME | NAME "(" arguments ")" | "(" choice ")" | "[" [choice {"," choice}] "]"
    arguments  = [choice {"," choice}] | choice "for" NAME "in" choice
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

MAX_CHARACTERS = 2_000
MAX_DEPTH = 40
"""Levels of a tree; a condition of a real driver has fewer than ten."""

COMPARISONS = ("==", "!=", "<=", ">=", "<", ">", "in", "not in")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<sign>==|!=|<=|>=|//|[-+*/%<>().,\[\]]))",
    re.ASCII,
)
KEYWORDS = frozenset({"and", "or", "not", "in", "if", "else", "for"})


class RuleError(Exception):
    """A mistake in a condition, at a character of its text (from 0)."""

    def __init__(self, rule: str, found: str, at: int) -> None:
        super().__init__(f"expected {rule}, found {found} at character {at + 1}")
        self.rule, self.found, self.at = rule, found, at


@dataclass(frozen=True, slots=True)
class Expression:
    """A part of a condition; ``at`` is where it starts in the text."""

    at: int

    def parts(self) -> tuple[Expression, ...]:
        """The nodes directly below."""
        return ()


@dataclass(frozen=True, slots=True)
class Number(Expression):
    """A number as it is written."""

    value: int | float


@dataclass(frozen=True, slots=True)
class Name(Expression):
    """An operand, a scalar, a number of the hardware, a type, a constant, or a variable of ``for``."""

    name: str


@dataclass(frozen=True, slots=True)
class Attribute(Expression):
    """``operand.name``."""

    of: Expression
    name: str

    def parts(self) -> tuple[Expression, ...]:
        return (self.of,)


@dataclass(frozen=True, slots=True)
class Indexing(Expression):
    """``list[index]``; a negative index counts from the end."""

    of: Expression
    index: Expression

    def parts(self) -> tuple[Expression, ...]:
        return (self.of, self.index)


@dataclass(frozen=True, slots=True)
class Unary(Expression):
    """``-`` or ``not``."""

    sign: str
    of: Expression

    def parts(self) -> tuple[Expression, ...]:
        return (self.of,)


@dataclass(frozen=True, slots=True)
class Binary(Expression):
    """Arithmetic."""

    sign: str
    left: Expression
    right: Expression

    def parts(self) -> tuple[Expression, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class Logic(Expression):
    """``and`` or ``or`` of two or more."""

    sign: str
    of: tuple[Expression, ...]

    def parts(self) -> tuple[Expression, ...]:
        return self.of


@dataclass(frozen=True, slots=True)
class ComparisonChain(Expression):
    """``left sign right``, or a chain of them: ``0 <= x < 8``."""

    first: Expression
    rest: tuple[tuple[str, Expression], ...]

    def parts(self) -> tuple[Expression, ...]:
        return (self.first, *(right for _, right in self.rest))


@dataclass(frozen=True, slots=True)
class IfElse(Expression):
    """``yes if condition else no``."""

    condition: Expression
    yes: Expression
    no: Expression

    def parts(self) -> tuple[Expression, ...]:
        return (self.condition, self.yes, self.no)


@dataclass(frozen=True, slots=True)
class Listing(Expression):
    """``[a, b]``."""

    of: tuple[Expression, ...]

    def parts(self) -> tuple[Expression, ...]:
        return self.of


@dataclass(frozen=True, slots=True)
class FunctionCall(Expression):
    """A function of nnbridge's list."""

    function: str
    arguments: tuple[Expression, ...]

    def parts(self) -> tuple[Expression, ...]:
        return self.arguments


@dataclass(frozen=True, slots=True)
class Each(Expression):
    """``function(body for variable in source)``."""

    function: str
    body: Expression
    variable: str
    source: Expression

    def parts(self) -> tuple[Expression, ...]:
        return (self.source, self.body)


def walk(node: Expression) -> Iterator[Expression]:
    """A node and all below it."""
    yield node
    for part in node.parts():
        yield from walk(part)


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """The tree of a condition; RuleError at its first mistake."""
    if len(text) > MAX_CHARACTERS:
        raise RuleError(f"a condition of at most {MAX_CHARACTERS} characters", str(len(text)), 0)
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._next = 0
        self._depth = 0

    def whole(self) -> Expression:
        node = self._choice()
        if self._kind != "end":
            raise self._error("an operator or the end")
        return node

    # -- tokens ------------------------------------------------------------------------------------------------------

    @property
    def _kind(self) -> str:
        return self._tokens[self._next][0]

    @property
    def _text(self) -> str:
        return self._tokens[self._next][1]

    @property
    def _at(self) -> int:
        return self._tokens[self._next][2]

    def _error(self, rule: str) -> RuleError:
        return RuleError(rule, repr(self._text) if self._kind != "end" else "the end", self._at)

    def _found(self, *texts: str) -> str:
        """The token's text, passed over, if it is one of these; else an empty text."""
        text = self._text
        if self._kind not in ("sign", "word") or text not in texts:
            return ""
        self._next += 1
        return text

    def _require(self, sign: str) -> None:
        if not self._found(sign):
            raise self._error(repr(sign))

    def _name(self) -> str:
        if self._kind != "name":
            raise self._error("a name")
        self._next += 1
        return self._tokens[self._next - 1][1]

    # -- grammar -----------------------------------------------------------------------------------------------------

    def _deeper(self, read: Callable[[], Expression]) -> Expression:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise RuleError(f"at most {MAX_DEPTH} levels", "more", self._at)
        node = read()
        self._depth -= 1
        return node

    def _choice(self) -> Expression:
        return self._deeper(self._choice_of)

    def _choice_of(self) -> Expression:
        at, yes = self._at, self._logic("or", lambda: self._logic("and", self._inverted))
        if not self._found("if"):
            return yes
        condition = self._logic("or", lambda: self._logic("and", self._inverted))
        self._require("else")
        return IfElse(at, condition, yes, self._choice())

    def _logic(self, sign: str, read: Callable[[], Expression]) -> Expression:
        at, nodes = self._at, [read()]
        while self._found(sign):
            nodes.append(read())
        return nodes[0] if len(nodes) == 1 else Logic(at, sign, tuple(nodes))

    def _inverted(self) -> Expression:
        at = self._at
        if self._found("not"):
            return Unary(at, "not", self._deeper(self._inverted))
        return self._comparison()

    def _comparison(self) -> Expression:
        at, first = self._at, self._sum()
        rest = []
        while sign := self._comparison_sign():
            rest.append((sign, self._sum()))
        return ComparisonChain(at, first, tuple(rest)) if rest else first

    def _comparison_sign(self) -> str:
        if self._kind == "word" and self._text == "not" and self._tokens[self._next + 1][1] == "in":
            self._next += 2
            return "not in"
        return self._found(*COMPARISONS)

    def _sum(self) -> Expression:
        return self._arithmetic(("+", "-"), lambda: self._arithmetic(("*", "/", "//", "%"), self._factor))

    def _arithmetic(self, signs: tuple[str, ...], read: Callable[[], Expression]) -> Expression:
        at, node, levels = self._at, read(), 0
        while sign := self._found(*signs):
            levels += 1
            if levels > MAX_DEPTH:
                raise RuleError(f"at most {MAX_DEPTH} terms", "more", self._at)
            node = Binary(at, sign, node, read())
        return node

    def _factor(self) -> Expression:
        at = self._at
        if self._found("-"):
            return Unary(at, "-", self._deeper(self._factor))
        return self._primary()

    def _primary(self) -> Expression:
        at, node = self._at, self._atom()
        for _ in range(MAX_DEPTH):
            if self._found("."):
                node = Attribute(at, node, self._name())
            elif self._found("["):
                node = Indexing(at, node, self._choice())
                self._require("]")
            else:
                return node
        raise RuleError(f"at most {MAX_DEPTH} levels", "more", self._at)

    def _atom(self) -> Expression:
        at, kind, text = self._at, self._kind, self._text
        if kind == "number":
            self._next += 1
            return Number(at, int(text) if text.isdigit() else float(text))
        if kind == "name":
            self._next += 1
            return self._call(at, text) if self._found("(") else Name(at, text)
        if self._found("("):
            node = self._choice()
            self._require(")")
            return node
        if self._found("["):
            return Listing(at, self._nodes("]"))
        raise self._error("a number, a name, '(' or '['")

    def _call(self, at: int, function: str) -> Expression:
        if self._found(")"):
            return FunctionCall(at, function, ())
        first = self._choice()
        if self._found("for"):
            variable = self._name()
            self._require("in")
            each = Each(at, function, first, variable, self._choice())
            self._require(")")
            return each
        return FunctionCall(at, function, (first, *(self._nodes(")") if self._found(",") else self._closed())))

    def _closed(self) -> tuple[Expression, ...]:
        self._require(")")
        return ()

    def _nodes(self, end: str) -> tuple[Expression, ...]:
        nodes: list[Expression] = []
        while not self._found(end):
            if nodes:
                self._require(",")
            nodes.append(self._choice())
        return tuple(nodes)


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise RuleError("a number, a name or an operator", repr(text[at]), at)
        kind = found.lastgroup
        word = found.group(kind)
        yield ("word" if word in KEYWORDS else kind), word, found.start(kind)
        at = found.end()
    yield "end", "", end

"""The language of conditions in device profiles: text → tree with positions. Nothing in a text is ever executed.

Conditions are Python expressions, which ``ast`` parses, of these parts: numbers, names, ``operand.attribute``, ``list[index]``,
``-``, ``+``, ``*``, ``/``, ``//``, ``%``, comparisons and chains of them, ``in``, ``and``, ``or``, ``not``, ``a if b else c``,
``[a, b]``, ``function(a, b)`` and ``function(a for name in b)``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from nnbridge.records import dataclass

MAX_CHARACTERS = 2_000
MAX_DEPTH = 40
"""Levels of a tree; a condition of a real driver has fewer than ten."""

_SIGNS: Mapping[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.USub: "-",
    ast.Not: "not",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.LtE: "<=",
    ast.GtE: ">=",
    ast.Lt: "<",
    ast.Gt: ">",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.And: "and",
    ast.Or: "or",
}
_NUMBER = re.compile(r"(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_FOREIGN = re.compile(r"[^\w\s.,<>=!+*/%()\[\]-]", re.ASCII)
_NUMBERS = re.compile(rf"(?<![\w.]){_NUMBER.pattern}", re.ASCII)
_PREFIXES = re.compile(rf"(?:(?:-|\bnot\b)\s*){{{MAX_DEPTH + 1}}}")
_BEFORE_OPERAND = re.compile(r"(?:^|[-+*/%<>=(\[,.]|\b(?:and|or|not|in|if|else|for))\s*$")
_OPERAND = "a number, a name, '(' or '['"


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
    if foreign := _FOREIGN.search(text):
        raise RuleError("a number, a name or an operator", repr(foreign[0]), foreign.start())
    for number in _NUMBERS.finditer(text):
        if re.match(r"\w", text[number.end() :], re.ASCII):
            raise RuleError("an operator or the end", repr(text[number.end()]), number.end())
    _check_nesting(text)
    # Blanks before the first token would be an indentation, line ends the end.
    stripped = re.sub(r"\s", " ", text).lstrip()
    before = len(text) - len(stripped)
    try:
        return _tree(ast.parse(stripped, mode="eval").body, text, before)
    except SyntaxError as error:
        raise _mistake(error, text, before) from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise RuleError(f"at most {MAX_DEPTH} levels", "more", 0) from error


def _check_nesting(text: str) -> None:
    """Find brackets that do not match, and levels that a parser would take recursion for."""
    ends: list[str] = []
    for at, character in enumerate(text):
        if character in "([":
            ends.append(")" if character == "(" else "]")
            if len(ends) > MAX_DEPTH:
                raise RuleError(f"at most {MAX_DEPTH} levels", "more", at)
        elif character in ")]" and (not ends or ends.pop() != character):
            raise RuleError("brackets in pairs", repr(character), at)
    if ends:
        raise RuleError(repr(ends[-1]), "the end", len(text.rstrip()))
    if many := _PREFIXES.search(text):
        raise RuleError(f"at most {MAX_DEPTH} levels", "more", many.end() - 1)


def _mistake(error: SyntaxError, text: str, before: int) -> RuleError:
    """The mistake at the token that Python stops at, or in the expression that Python's message is about."""
    at = (error.offset or 0) - 1 + before
    token = re.compile(r"\s*(\w+|[=!<>/]+|.)").match(text, at) if error.offset else None
    if token is None:
        return RuleError(_OPERAND, "the end", len(text.rstrip()))
    if error.msg != "invalid syntax":
        return RuleError("one expression", repr(text[at : (error.end_offset or 0) - 1 + before]), at)
    rule = _OPERAND if _BEFORE_OPERAND.search(text[:at]) else "an operator or the end"
    return RuleError(rule, repr(token[1]), token.start(1))


def _tree(node: ast.expr, text: str, before: int, depth: int = 1) -> Expression:
    """The tree of Python's tree; ``before``: characters of the text in front of what Python parsed."""
    at, source = node.col_offset + before, text[node.col_offset + before : (node.end_col_offset or 0) + before]
    if depth > MAX_DEPTH:
        raise RuleError(f"at most {MAX_DEPTH} levels", "more", at)

    def of(part: ast.expr) -> Expression:
        return _tree(part, text, before, depth + 1)

    match node:
        case ast.Constant(value=int() | float() as value) if _NUMBER.fullmatch(source):
            return Number(at, value)
        case ast.Name(id=name):
            return Name(at, name)
        case ast.Attribute(value=holder, attr=name):
            return Attribute(at, of(holder), name)
        case ast.Subscript(value=values, slice=index):
            return Indexing(at, of(values), of(index))
        case ast.List(elts=parts):
            return Listing(at, tuple(map(of, parts)))
        case ast.IfExp(test=test, body=yes, orelse=no):
            return IfElse(at, of(test), of(yes), of(no))
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]):
            return _call(at, name, parts, of)
        case ast.UnaryOp() | ast.BinOp() | ast.BoolOp() | ast.Compare():
            if (found := _operation(at, node, of)) is not None:
                return found
    raise RuleError("an expression that conditions may have", repr(source), at)


def _call(at: int, function: str, arguments: list[ast.expr], of: Callable[[ast.expr], Expression]) -> Expression:
    match arguments:
        case [
            ast.GeneratorExp(elt=body, generators=[ast.comprehension(target=ast.Name(id=name), iter=values, ifs=[], is_async=0)])
        ]:
            return Each(at, function, of(body), name, of(values))
    return FunctionCall(at, function, tuple(map(of, arguments)))


def _operation(
    at: int, node: ast.UnaryOp | ast.BinOp | ast.BoolOp | ast.Compare, of: Callable[[ast.expr], Expression]
) -> Expression | None:
    """The tree of an operator and its operands; None for one that conditions have not."""
    operators = node.ops if isinstance(node, ast.Compare) else [node.op]
    signs = [_SIGNS.get(type(operator), "") for operator in operators]
    if not all(signs):
        return None
    match node:
        case ast.UnaryOp(operand=operand):
            return Unary(at, signs[0], of(operand))
        case ast.BinOp(left=left, right=right):
            return Binary(at, signs[0], of(left), of(right))
        case ast.BoolOp(values=parts):
            return Logic(at, signs[0], tuple(map(of, parts)))
        case ast.Compare(left=left, comparators=rights):
            return ComparisonChain(at, of(left), tuple(zip(signs, map(of, rights), strict=True)))

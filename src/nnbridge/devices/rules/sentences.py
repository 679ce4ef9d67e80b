"""Conditions as English sentences, and what an operation has where one is broken."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nnbridge.devices.rules.facts import ATTRIBUTES, TRUTH
from nnbridge.devices.rules.syntax import (
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
    Unary,
)

_SIGNS = {
    "==": "is",
    "!=": "is not",
    "<=": "is at most",
    ">=": "is at least",
    "<": "is below",
    ">": "is above",
    "in": "is one of",
    "not in": "is none of",
}
_ARITHMETIC = {"*": "×", "//": "//", "%": "modulo", "+": "+", "-": "-", "/": "/"}
_CALLS: Mapping[str, str] = {
    "product": "the product of {}",
    "sum": "the sum of {}",
    "len": "the length of {}",
    "most": "the largest of {}",
    "least": "the smallest of {}",
    "distinct": "{} are all different",
    "broadcastable": "{} and {} can be broadcast together",
    "bit": "{} has bit {}",
    "abs": "|{}|",
    "floor": "{} rounded down",
    "ceil": "{} rounded up",
    "max": "the larger of {} and {}",
    "min": "the smaller of {} and {}",
    "extended": "{} with {} leading sides of 1 and trailing ones up to {} dimensions",
    "same_pad": "SAME's padding for side {}, stride {} and window {}",
    "range": "0 to {} - 1",
}
_NAMES = {
    "first_input": "the first input",
    "first_output": "the first output",
    "every_input": "the inputs",
    "every_output": "the outputs",
    "every_tensor": "the tensors",
}
_SOURCES = _NAMES | {
    "inputs": "the inputs",
    "outputs": "the outputs",
    "maps": "the feature maps",
    "unstated": "the tensors without a scale",
    "open_dims": "the open dimensions",
}
"""Names of lists that a condition goes through."""


def sentence(node: Expression) -> str:
    """A condition in words."""
    match node:
        case FunctionCall(function="distinct", arguments=(Each(body=Attribute(name="identity"), source=source),)):
            return f"no duplicates among {_value(source)}"
        case ComparisonChain():
            return _comparison(node)
        case Unary(sign="not", of=Attribute(name=name) as of) if ATTRIBUTES[name][0] == TRUTH:
            return _negated(sentence(of))
        case Unary(sign="not"):
            return f"not ({sentence(node.of)})"
        case Logic():
            joined = f" {node.sign} "
            return joined.join(f"({sentence(p)})" if isinstance(p, (Logic, IfElse)) else sentence(p) for p in node.of)
        case IfElse():
            return f"{sentence(node.yes)} where {sentence(node.condition)}, else {sentence(node.no)}"
        case Each():
            return _each(node)
        case Attribute(name=name) if name in ATTRIBUTES:
            return ATTRIBUTES[name][2].format(_value(node.of))
        case _:
            return _value(node)


def _comparison(node: ComparisonChain) -> str:
    match node:
        case ComparisonChain(first=Attribute(name=one), rest=(("==", Attribute(name=other)),)) if one == other and _is_truth(one):
            return f"{sentence(node.first)} if and only if {sentence(node.rest[0][1])}"
        case ComparisonChain(rest=((("==" | "!=") as sign, Number(value=0)),), first=Binary(sign="%", left=left, right=right)):
            text = f"{_value(left)} is a multiple of {_value(right)}"
            return text if sign == "==" else _negated(text)
    parts, last = [], node.first
    for way, right in node.rest:
        parts.append(f"{_value(last)} {_SIGNS[way]} {_value(right)}")
        last = right
    return " and ".join(parts)


def _each(node: Each) -> str:
    if node.function == "list":
        return f"{_value(node.body)} for every {node.variable} of {_value(node.source)}"
    quantity, one = ("every", "each") if node.function == "all" else ("some", "at least one")
    source = _SOURCES.get(node.source.name, node.source.name) if isinstance(node.source, Name) else _value(node.source)
    body, variable = sentence(node.body), re.compile(rf"\b{node.variable}\b")
    if isinstance(node.body, ComparisonChain) and len(variable.findall(body)) == 1:
        return variable.sub(lambda _: f"{one} of {source}", body)
    return f"for {quantity} {node.variable} of {source}: {body}"


def _is_truth(name: str) -> bool:
    return name in ATTRIBUTES and ATTRIBUTES[name][0] == TRUTH


def _negated(text: str) -> str:
    for verb in (" is ", " has "):
        if verb in text:
            return text.replace(verb, f"{verb}not " if verb == " is " else " has not ", 1)
    return f"not {text}"


def _value(node: Expression) -> str:
    match node:
        case Number():
            return f"{node.value:g}" if isinstance(node.value, float) else str(node.value)
        case Name():
            return _NAMES.get(node.name, node.name)
        case Attribute(name=name) if name in ATTRIBUTES:
            return ATTRIBUTES[name][2].format(_value(node.of))
        case Indexing():
            return f"{_value(node.of)}[{_value(node.index)}]"
        case Unary(sign="-"):
            return f"-{_value(node.of)}"
        case Binary():
            sides = (f"({_value(side)})" if isinstance(side, Binary) else _value(side) for side in (node.left, node.right))
            return f" {_ARITHMETIC[node.sign]} ".join(sides)
        case Listing():
            return ", ".join(f"[{_value(p)}]" if isinstance(p, Listing) else _value(p) for p in node.of)
        case FunctionCall():
            values = [_value(a) for a in node.arguments]
            return _CALLS[node.function].format(*values) if node.function in _CALLS else f"{node.function}({', '.join(values)})"
        case _:
            return sentence(node)


def leaves(node: Expression, variables: frozenset[str] = frozenset()) -> dict[str, Expression]:
    """The names of the operation that a condition reads, by the text that states them."""
    match node:
        case Name():
            return {} if node.name in variables else {node.name: node}
        case Attribute(of=Name(name=name)):
            return {} if name in variables else {f"{name}.{node.name}": node}
        case Indexing(of=of) if inner := leaves(of, variables):
            return inner
        case Each():
            return {**leaves(node.source, variables), **leaves(node.body, variables | {node.variable})}
        case _:
            return {text: leaf for part in node.parts() for text, leaf in leaves(part, variables).items()}

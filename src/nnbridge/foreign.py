"""Data that others wrote: JSON is held to a declared shape before anything reads it, and a budget bounds what it expands to.

Every mistake is one InputError that names the place. What leaves nnbridge again is escaped by the writer of its format
(:mod:`nnbridge.toml`, :mod:`nnbridge.report.markup`, :mod:`nnbridge.report.csv_text`, Python's own of JSON and XML).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from types import UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from nnbridge.errors import InputError, Reason
from nnbridge.records import dataclass

Shape: TypeAlias = "type | tuple[type, ...] | list[Any] | dict[Any, Any]"
"""A class or several; a list of one shape, or a row with one for each element; an object by its keys, of which those that end in
``?`` are optional and others are passed over; ``{str: shape}`` an object with any keys."""

NUMBER = (int, float)
MAX_TEXT = 1 << 20
"""Characters of one text."""
MAX_WHOLE = (1 << 63) - 1
"""The largest whole number: larger ones fit into no other type of numbers, and many can neither be divided nor printed."""
_SHOWN = 60
_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a whole number", float: "a number"}


@dataclass
class ReadingBudget:
    """The amount to which foreign data may still expand."""

    left: int
    rule: str
    """The limit, in words."""
    where: str

    def spend(self, count: int, place: str = "") -> None:
        """Count; InputError where it is more than is left."""
        self.left -= count
        if self.left < 0:
            raise InputError(Reason(self.rule, "more", operand=f"{self.where}{place}"))


def whole(value: int) -> bool:
    """True for a number of at most 64 bits."""
    return -MAX_WHOLE - 1 <= value <= MAX_WHOLE


def checked(value: object, shape: Shape, where: str) -> Any:
    """The value; InputError unless it has the shape."""
    wrong = mismatch(value, shape, where)
    if wrong is not None:
        raise InputError(wrong)
    return value


def mismatch(value: object, shape: Shape, where: str) -> Reason | None:
    """The first part of a value that does not have its shape; None if all have."""
    found = next(_mismatches(value, shape), None)
    return None if found is None else Reason(found.rule, found.shown, operand=where + "".join(reversed(found.path)))


@dataclass
class _Mismatch:
    rule: str
    shown: str
    path: list[str]
    """From the inside out."""


def _mismatches(value: object, shape: Shape) -> Iterator[_Mismatch]:
    kinds = (dict,) if isinstance(shape, dict) else (list,) if isinstance(shape, list) else shape
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    kind = type(value)
    if kind not in kinds and not (kind is int and float in kinds):
        yield _Mismatch(" or ".join(_KINDS.get(k, "null") for k in kinds), _KINDS.get(kind, "null"), [])
    elif isinstance(value, str) and len(value) > MAX_TEXT:
        yield _Mismatch(f"a text of at most {MAX_TEXT:,} characters", f"{len(value):,}", [])
    elif kind is int and not whole(value):  # type: ignore[arg-type]  # an int, as kind says
        yield _Mismatch("a number of at most 64 bits", "a larger one", [])
    elif isinstance(value, (dict, list)) and isinstance(shape, (dict, list)):
        yield from _inside(value, shape)


def _inside(value: dict[str, Any] | list[Any], shape: dict[Any, Any] | list[Any]) -> Iterator[_Mismatch]:
    if isinstance(shape, list) and len(shape) not in (1, len(value)):
        yield _Mismatch(f"a list of {len(shape)}", str(len(value)), [])
        return
    if isinstance(shape, dict):
        missing = [key for key in shape if key is not str and not key.endswith("?") and key not in value]
        if missing:
            yield _Mismatch(f"an object with {missing[0]}", ", ".join(map(repr, value))[:_SHOWN] or "an empty one", [])
            return
    for place, item, inner in _parts(value, shape):
        for wrong in _mismatches(item, inner):
            wrong.path.append(f".{place[:_SHOWN]}" if isinstance(place, str) else f"[{place}]")
            yield wrong


def _parts(value: Any, shape: dict[Any, Any] | list[Any]) -> Iterator[tuple[str | int, object, Shape]]:
    """The members of a list or object, each with its place and its shape."""
    if isinstance(shape, list):
        for i, item in enumerate(value):
            yield i, item, shape[i % len(shape)]
    elif str in shape:
        for key, item in value.items():
            yield key, item, shape[str]
    else:
        for key, inner in shape.items():
            name = key.removesuffix("?")
            if name in value:
                yield name, value[name], inner


def shape_of(declared: type) -> dict[str, Shape]:
    """The shape of a dataclass as JSON has it, from its annotations; fields with a default are optional."""
    hints = get_type_hints(declared)
    optional = {f.name for f in fields(declared) if f.default is not MISSING or f.default_factory is not MISSING}
    return {f.name + "?" * (f.name in optional): _shape(hints[f.name]) for f in fields(declared)}


def _shape(hint: Any) -> Any:
    inner = get_args(hint)
    if get_origin(hint) is tuple:
        return [_shape(each) for each in inner if each is not Ellipsis]
    return inner if get_origin(hint) in (Union, UnionType) else hint

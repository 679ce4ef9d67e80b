"""The form of a spec file's data, checked before any case of it is run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from nnbridge.errors import Reason
from nnbridge.types import OperandCode, OperationCode

Form: TypeAlias = "type | tuple[type, ...] | list[Form] | dict[str, Form]"
"""A class or several, a list of one form, or an object by its keys; a key that ends in ``?`` may be left out."""

SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""The numbers that JSON lacks."""

_NUMBER = (int, float)
_OPERAND: Form = {
    "type": str,
    "dims": [int],
    "lifetime": str,
    "scale?": _NUMBER,
    "zero_point?": int,
    "channel_quant?": {"scales": [_NUMBER], "channel_dim": int},
    "value?": (list, int),
}
_SUBGRAPH: dict[str, Form] = {
    "operands": [_OPERAND],
    "operations": [{"type": str, "inputs": [int], "outputs": [int]}],
    "inputs": [int],
    "outputs": [int],
}
_CASE: Form = {
    "name": str,
    "relaxed": bool,
    "expect_failure": bool,
    "multinomial_tolerance?": _NUMBER,
    "model": {**_SUBGRAPH, "referenced?": [_SUBGRAPH]},
    "inputs": [list],
    "outputs": [(list, type(None))],
}
_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a whole number", float: "a number"}


def fault(content: object) -> Reason | None:
    """What is wrong with the data of a spec file; None if its cases can be built."""
    return next(_faults(content), None)


def _faults(content: object) -> Iterator[Reason]:
    yield from _unlike(content, {"cases": [_CASE]}, "the file")
    assert isinstance(content, dict)
    for case in content["cases"]:
        model, place = case["model"], f"case {case['name']}"
        for subgraph in (model, *model.get("referenced", ())):
            yield from _wrong_names(subgraph, place)
        for role in ("inputs", "outputs"):
            if len(case[role]) != len(model[role]):
                yield Reason(f"values for the model's {len(model[role])} {role}", str(len(case[role])), operand=place)
            for values in case[role]:
                yield from _strange_values(values, place)


def _unlike(value: object, form: Form, place: str) -> Iterator[Reason]:
    """Where a value has another form."""
    kind = dict if isinstance(form, dict) else list if isinstance(form, list) else form
    # JSON's true is no number, although Python's is.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        rule = " or ".join(_KINDS.get(k, "null") for k in kinds)
        yield Reason(rule, "null" if value is None else _KINDS[type(value)], operand=place)
    elif isinstance(form, list) and isinstance(value, list):
        for i, item in enumerate(value):
            yield from _unlike(item, form[0], f"{place}[{i}]")
    elif isinstance(form, dict) and isinstance(value, dict):
        for key, inner in form.items():
            name = key.removesuffix("?")
            if name in value:
                yield from _unlike(value[name], inner, f"{place}.{name}")
            elif name == key:
                yield Reason(f"an object with {name}", ", ".join(map(repr, value)) or "an empty one", operand=place)


def _strange_values(values: object, place: str) -> Iterator[Reason]:
    """Values that are no numbers."""
    if isinstance(values, list) and not set(map(type, values)) <= {int, float, bool}:
        for value in values:
            if not isinstance(value, _NUMBER) and not (isinstance(value, str) and value in SPECIAL):
                yield Reason(f"numbers, {', '.join(SPECIAL)}", repr(value), operand=place)


def _wrong_names(subgraph: Mapping[str, Any], place: str) -> Iterator[Reason]:
    """Types that NNAPI does not have, and operands that are not there."""
    count = len(subgraph["operands"])
    for what, items, known in (
        ("operand", subgraph["operands"], (*OperandCode.__members__, "SUBGRAPH")),
        ("operation", subgraph["operations"], tuple(OperationCode.__members__)),
    ):
        for item in items:
            yield from _strange_values(item.get("value"), place)
            if item["type"] not in known:
                yield Reason(f"an {what} type of NNAPI's", item["type"], operand=place)
    for holder in (subgraph, *subgraph["operations"]):
        for index in (*holder["inputs"], *holder["outputs"]):
            if not 0 <= index < count:
                yield Reason(f"one of the {count} operands", str(index), operand=place)

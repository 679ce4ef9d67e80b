"""The schema of a spec file's data, checked before any case of it is run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from nnbridge.errors import Reason
from nnbridge.types import OperandCode, OperationCode

Schema: TypeAlias = "type | tuple[type, ...] | list[Schema] | dict[str, Schema]"
"""A class or several, a list of one schema, or an object by its keys; a key that ends in ``?`` is optional."""

SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""The numbers that JSON lacks."""

_NUMBER = (int, float)
_OPERAND: Schema = {
    "type": str,
    "dims": [int],
    "lifetime": str,
    "scale?": _NUMBER,
    "zero_point?": int,
    "channel_quant?": {"scales": [_NUMBER], "channel_dim": int},
    "value?": (list, int),
}
_SUBGRAPH: dict[str, Schema] = {
    "operands": [_OPERAND],
    "operations": [{"type": str, "inputs": [int], "outputs": [int]}],
    "inputs": [int],
    "outputs": [int],
}
_CASE: Schema = {
    "name": str,
    "relaxed": bool,
    "expect_failure": bool,
    "multinomial_tolerance?": _NUMBER,
    "model": {**_SUBGRAPH, "referenced?": [_SUBGRAPH]},
    "inputs": [list],
    "outputs": [(list, type(None))],
}
_QUESTION: Schema = {"model": {**_SUBGRAPH, "referenced?": [_SUBGRAPH]}, "relaxed?": bool}
_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a whole number", float: "a number"}


def schema_error(content: object) -> Reason | None:
    """What is wrong with the data of a spec file; None if its cases can be built."""
    return next(_errors(content), None)


def question_error(content: object) -> Reason | None:
    """What is wrong with an object that holds a model to ask a device about; None if it can be built."""
    wrong = next(_mismatches(content, _QUESTION, "the object"), None)
    return wrong or next(_model_errors(content["model"], "the model"), None)  # type: ignore[index]  # an object, as just checked


def _model_errors(model: Mapping[str, Any], where: str) -> Iterator[Reason]:
    for subgraph in (model, *model.get("referenced", ())):
        yield from _unknown_names(subgraph, where)


def _errors(content: object) -> Iterator[Reason]:
    yield from _mismatches(content, {"cases": [_CASE]}, "the file")
    assert isinstance(content, dict)
    for case in content["cases"]:
        model, where = case["model"], f"case {case['name']}"
        yield from _model_errors(model, where)
        for role in ("inputs", "outputs"):
            if len(case[role]) != len(model[role]):
                yield Reason(f"values for the model's {len(model[role])} {role}", str(len(case[role])), operand=where)
            for values in case[role]:
                yield from _not_numbers(values, where)


def _mismatches(value: object, schema: Schema, where: str) -> Iterator[Reason]:
    """Where a value does not match the schema."""
    kind = dict if isinstance(schema, dict) else list if isinstance(schema, list) else schema
    # JSON's true is no number, although Python's is.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        rule = " or ".join(_KINDS.get(k, "null") for k in kinds)
        yield Reason(rule, "null" if value is None else _KINDS[type(value)], operand=where)
    elif isinstance(schema, list) and isinstance(value, list):
        for i, item in enumerate(value):
            yield from _mismatches(item, schema[0], f"{where}[{i}]")
    elif isinstance(schema, dict) and isinstance(value, dict):
        for key, inner in schema.items():
            name = key.removesuffix("?")
            if name in value:
                yield from _mismatches(value[name], inner, f"{where}.{name}")
            elif name == key:
                yield Reason(f"an object with {name}", ", ".join(map(repr, value)) or "an empty one", operand=where)


def _not_numbers(values: object, where: str) -> Iterator[Reason]:
    """Values that are not numbers."""
    if isinstance(values, list) and not set(map(type, values)) <= {int, float, bool}:
        for value in values:
            if not isinstance(value, _NUMBER) and not (isinstance(value, str) and value in SPECIAL):
                yield Reason(f"numbers, {', '.join(SPECIAL)}", repr(value), operand=where)


def _unknown_names(subgraph: Mapping[str, Any], where: str) -> Iterator[Reason]:
    """Types that NNAPI does not have, and indices of operands that do not exist."""
    count = len(subgraph["operands"])
    for what, items, known in (
        ("operand", subgraph["operands"], (*OperandCode.__members__, "SUBGRAPH")),
        ("operation", subgraph["operations"], tuple(OperationCode.__members__)),
    ):
        for item in items:
            yield from _not_numbers(item.get("value"), where)
            if item["type"] not in known:
                yield Reason(f"an {what} type of NNAPI's", item["type"], operand=where)
    for holder in (subgraph, *subgraph["operations"]):
        for index in (*holder["inputs"], *holder["outputs"]):
            if not 0 <= index < count:
                yield Reason(f"one of the {count} operands", str(index), operand=where)

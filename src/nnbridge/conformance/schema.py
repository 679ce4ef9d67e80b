"""The schema of a spec file's data, checked before any case of it is run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from nnbridge.errors import Reason
from nnbridge.foreign import NUMBER, Shape, mismatch
from nnbridge.types import OperandCode, OperationCode

SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""The numbers that JSON lacks."""

_SCALE: Shape = (int, float, str)
"""A text is one of ``SPECIAL``: nothing but NNAPI's builder says which scales a model may have."""
_OPERAND: Shape = {
    "type": str,
    "dims": [int],
    "lifetime": str,
    "scale?": _SCALE,
    "zero_point?": int,
    "channel_quant?": {"scales": [_SCALE], "channel_dim": int},
    "value?": (list, int),
}
_SUBGRAPH: dict[str, Shape] = {
    "operands": [_OPERAND],
    "operations": [{"type": str, "inputs": [int], "outputs": [int]}],
    "inputs": [int],
    "outputs": [int],
}
_CASE: Shape = {
    "name": str,
    "relaxed": bool,
    "expect_failure": bool,
    "multinomial_tolerance?": NUMBER,
    "tolerances?": [[NUMBER]],
    "model": {**_SUBGRAPH, "referenced?": [_SUBGRAPH]},
    "inputs": [list],
    "outputs": [(list, type(None))],
}
_QUESTION: Shape = {"model": {**_SUBGRAPH, "referenced?": [_SUBGRAPH]}, "relaxed?": bool}


def schema_error(content: object) -> Reason | None:
    """The mistake in the data of a spec file; None if its cases can be built."""
    return next(_errors(content), None)


def question_error(content: object) -> Reason | None:
    """The mistake in an object that holds a model to ask a device about; None if it can be built."""
    wrong = mismatch(content, _QUESTION, "the object")
    return wrong or next(_model_errors(content["model"], "the model"), None)  # type: ignore[index]  # an object, as just checked


def _model_errors(model: Mapping[str, Any], where: str) -> Iterator[Reason]:
    for subgraph in (model, *model.get("referenced", ())):
        yield from _unknown_names(subgraph, where)


def _errors(content: object) -> Iterator[Reason]:
    wrong = mismatch(content, {"cases": [_CASE]}, "the file")
    if wrong is not None:
        yield wrong
        return
    assert isinstance(content, dict)
    for case in content["cases"]:
        model, where = case["model"], f"case {case['name']}"
        yield from _model_errors(model, where)
        tolerances = case.get("tolerances", [[0, 0]] * len(case["outputs"]))
        if [len(pair) for pair in tolerances] != [2] * len(case["outputs"]):
            yield Reason("tolerances, atol and rtol, for each output", str(tolerances), operand=where)
        for role in ("inputs", "outputs"):
            if len(case[role]) != len(model[role]):
                yield Reason(f"values for the model's {len(model[role])} {role}", str(len(case[role])), operand=where)
            for values in case[role]:
                yield from _not_numbers(values, where)


def _not_numbers(values: object, where: str) -> Iterator[Reason]:
    """Values that are not numbers."""
    if isinstance(values, list) and not set(map(type, values)) <= {int, float, bool}:
        for value in values:
            if not isinstance(value, NUMBER) and not (isinstance(value, str) and value in SPECIAL):
                yield Reason(f"numbers, {', '.join(SPECIAL)}", repr(value), operand=where)


def _unknown_names(subgraph: Mapping[str, Any], where: str) -> Iterator[Reason]:
    """Types that NNAPI does not have, and indices of operands that do not exist."""
    count = len(subgraph["operands"])
    for what, items, known in (
        ("operand", subgraph["operands"], (*OperandCode.__members__, "SUBGRAPH")),
        ("operation", subgraph["operations"], tuple(OperationCode.__members__)),
    ):
        for item in items:
            scales = item.get("channel_quant", {}).get("scales", [])
            for values in (item.get("value"), [item.get("scale", 0), *scales]):
                yield from _not_numbers(values, where)
            if item["type"] not in known:
                yield Reason(f"an {what} type of NNAPI's", item["type"], operand=where)
    for holder in (subgraph, *subgraph["operations"]):
        for index in (*holder["inputs"], *holder["outputs"]):
            if not 0 <= index < count:
                yield Reason(f"one of the {count} operands", str(index), operand=where)

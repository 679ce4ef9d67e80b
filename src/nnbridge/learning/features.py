"""Candidates for rules of a learned profile: expressions of the rule language over an operation, simple ones first."""

from __future__ import annotations

import keyword
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import combinations
from typing import Any

from nnbridge.devices.operation_facts import vocabulary
from nnbridge.devices.profile_conditions import short_name
from nnbridge.devices.rules import Fact, Subject
from nnbridge.devices.rules.compiling import compiled, plain
from nnbridge.devices.rules.facts import ANY, OPERAND, OPERANDS
from nnbridge.devices.rules.syntax import parse
from nnbridge.records import dataclass
from nnbridge.types import OperandCode

NUMBER, NOMINAL, TRUTH = "number", "nominal", "truth"
_MAX_PARAMETERS = 8
"""Elements of a constant tensor whose value is a feature: axes, permutations, pads."""
_MAX_RELATED = 6
"""Operands that relations are formed of."""
_ENUMERATED = frozenset({"activation", "padding", "nchw", "axis", "keep_dims", "merge_outputs", "mode", "type"})
"""Scalars whose numbers are names."""
_EACH_TENSOR = (("type", 2.0), ("constant", 2.5), ("rank", 3.0))
_LISTED = "list(t.{} for t in every_tensor)"
ALIKE = ("list(t.type", "unique(list(t.type", "first_input.rank")
"""How features begin that operations share of which one was refused as the others were, where none was supported."""


@dataclass(frozen=True)
class Feature:
    """One expression. ``cost``: of two explanations the one of lower cost is the simpler one."""

    text: str
    kind: str
    cost: float
    form: bool = False
    """True if an answer is open where it has a value that no one saw: types, ranks, constants, options."""
    reach: float = 0
    """An answer is open so many times above the largest number that was seen, and as far below the smallest; 0: nowhere."""


@cache
def _names(key: str) -> tuple[tuple[str, str], ...]:
    return tuple(vocabulary(key).names.items())


def features(key: str, subjects: Sequence[Subject]) -> list[Feature]:
    """The features of an operation, by what its names stand for among the subjects."""
    single: dict[str, Fact] = {}
    several: list[str] = []
    for name, kind in _names(key):
        if name.startswith(("every_", "first_")) or keyword.iskeyword(name):
            continue
        facts = [fact for subject in subjects if isinstance(fact := subject.get(name), Fact)]
        if kind == OPERAND and facts:
            single[name] = max(facts, key=lambda fact: len(fact.dims))
        if kind == OPERANDS and any(subject.get(name) for subject in subjects):
            several.append(name)
    scalars = [name for name, fact in single.items() if not fact.tensor]
    tensors = [name for name, fact in single.items() if fact.tensor]
    parameters = [name for name in tensors if _parameter(name, subjects)]
    maps = [name for name in tensors if name not in parameters]
    found = [*_common(bool(several)), *_of_scalars(scalars, {n for n in scalars if single[n].type == OperandCode.BOOL})]
    for name in several:
        found += _of_lists(name)
    for name in parameters:
        found += [Feature(f"{name}.value", NOMINAL, 2.5), Feature(f"len({name})", NUMBER, 2.5)]
    for name in tensors:
        found += _of_tensor(name, single[name])
    return list(dict.fromkeys([*found, *_relations(maps[:_MAX_RELATED])]))


def _parameter(name: str, subjects: Iterable[Subject]) -> bool:
    """True if a tensor's value says how to compute: a small constant of integers."""
    facts = [fact for subject in subjects if isinstance(fact := subject.get(name), Fact) and not fact.omitted]
    integers = (OperandCode.TENSOR_INT32, OperandCode.TENSOR_BOOL8)
    return bool(facts) and name != "bias" and all(f.type in integers and f.constant for f in facts)


def _common(several: bool) -> Iterator[Feature]:
    for attribute, cost in _EACH_TENSOR:
        text = _LISTED.format(attribute)
        yield Feature(f"unique({text})" if several else text, NOMINAL, cost + 1, several or attribute != "rank")
    yield Feature("first_input.type", NOMINAL, 1.0)
    yield Feature("first_output.type", NOMINAL, 1.2)
    yield Feature("first_input.rank", NUMBER, 1.4)
    yield Feature("first_input.rank", NOMINAL, 1.5)
    yield Feature("first_output.rank", NOMINAL, 1.8, True)
    yield Feature("len(every_input)", NOMINAL, 2.6, True)
    yield Feature("list(t.omitted for t in every_input)", NOMINAL, 2.9)
    yield Feature("any(t.omitted for t in every_input)", TRUTH, 1.7, True)
    yield Feature("all(t.known for t in every_tensor)", TRUTH, 1.6, True)
    yield Feature("any(t.per_channel for t in every_tensor)", TRUTH, 1.8)
    yield Feature("most(list(t.rank for t in every_tensor))", NUMBER, 1.9)
    yield Feature("most(list(t.elements for t in every_tensor))", NUMBER, 3.4, reach=4)
    yield Feature("most(list(t.bytes for t in every_tensor))", NUMBER, 3.5)
    yield Feature("distinct(list(t.identity for t in every_input))", TRUTH, 1.9, True)
    yield Feature("first_input.scale == first_output.scale", TRUTH, 2.4)
    yield Feature("first_input.zero_point == first_output.zero_point", TRUTH, 2.5)


def _of_scalars(names: Sequence[str], flags: Collection[str]) -> Iterator[Feature]:
    for name in names:
        chosen = name in _ENUMERATED or name in flags or name.endswith("mask")
        yield Feature(name, NOMINAL, 1.6 if chosen else 3.2, chosen)
        if not chosen:
            yield Feature(name, NUMBER, 1.6, reach=1)
        yield Feature(f"{name}.constant", TRUTH, 1.5)
    for first, second in combinations(names, 2):
        if first.rpartition("_")[0] == second.rpartition("_")[0] != "":
            yield Feature(f"{first} == {second}", TRUTH, 1.9)


def _of_lists(name: str) -> Iterator[Feature]:
    yield Feature(f"len({name})", NUMBER, 1.6)
    yield Feature(f"any(t.constant for t in {name})", TRUTH, 1.7)
    yield Feature(f"len(unique(list(t.scale for t in {name}))) == 1", TRUTH, 2.2)
    yield Feature(f"len(unique(list(t.zero_point for t in {name}))) == 1", TRUTH, 2.3)


def _of_tensor(name: str, fact: Fact) -> Iterator[Feature]:
    yield Feature(f"{name}.type", NOMINAL, 1.3)
    yield Feature(f"{name}.constant", TRUTH, 1.4)
    yield Feature(f"{name}.omitted", TRUTH, 1.5)
    yield Feature(f"{name}.rank", NOMINAL, 1.7, True)
    yield Feature(f"{name}.per_channel", TRUTH, 1.8)
    yield Feature(f"{name}.zero_point", NUMBER, 3.0)
    yield Feature(f"{name}.zero_point == 0", TRUTH, 2.8)
    yield Feature(f"{name}.scale", NUMBER, 4.0)
    if fact.dims:
        yield Feature(f"{name}.elements", NUMBER, 3.2)
        yield Feature(f"{name}.dims[-1]", NUMBER, 2.9)
        yield Feature(f"{name}.dims[0]", NUMBER, 2.7, reach=4)
    for side in "hwc" if len(fact.dims) == 4 else "":
        yield Feature(f"{name}.{side}", NUMBER, 2.4, reach=1 if name == "filter" and side != "c" else 0)
    if len(fact.dims) == 4:
        yield Feature(f"{name}.h * {name}.w", NUMBER, 2.9)
        for count in (4, 8, 16):
            yield Feature(f"{name}.c % {count} == 0", TRUTH, 3.6)


def _relations(names: Sequence[str]) -> Iterator[Feature]:
    for first, second in combinations(names, 2):
        yield Feature(f"{first}.type == {second}.type", TRUTH, 1.9)
        yield Feature(f"{first}.rank == {second}.rank", TRUTH, 2.0)
        yield Feature(f"{first}.dims == {second}.dims", TRUTH, 2.2)
        yield Feature(f"{first}.scale == {second}.scale", TRUTH, 2.4)
        yield Feature(f"{first}.zero_point == {second}.zero_point", TRUTH, 2.6)
        yield Feature(f"{first}.identity == {second}.identity", TRUTH, 3.3)
    if len(names) >= 3:
        first, second, last = names[0], names[1], names[-1]
        yield Feature(f"{first}.scale * {second}.scale / {last}.scale", NUMBER, 3.0)
        if len(names) >= 4:
            yield Feature(f"{first}.scale * {second}.scale == {names[2]}.scale", TRUTH, 3.1)


def values(key: str, found: Sequence[Feature], subject: Subject) -> list[Any]:
    """The value of each feature; None where it is not known."""
    words = vocabulary(key)
    read = [_plain(compiled(parse(feature.text), words, ANY)(subject)) for feature in found]
    return [_fits(feature, value) for feature, value in zip(found, read, strict=True)]


def _plain(value: Any) -> Any:
    value = plain(value)
    return tuple(map(_plain, value)) if isinstance(value, (tuple, list)) else value


def _fits(feature: Feature, value: Any) -> Any:
    """The value, if it is of the feature's kind; long lists are not known."""
    if feature.kind == NUMBER:
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) else None
    if isinstance(value, tuple) and ((feature.text.endswith(".value") and len(value) > _MAX_PARAMETERS) or None in value):
        return None
    return value


def written(value: Any) -> str:
    """A value as the rule language has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, OperandCode):
        return short_name(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(written, value))}]"
    return repr(value)

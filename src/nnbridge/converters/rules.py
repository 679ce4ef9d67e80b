"""Conditions, as data, under which Android's TFLite delegate, or ONNX Runtime's NNAPI provider, hands an operator to NNAPI.

Conditions state what the delegate or provider itself checks. What NNAPI does not accept is not repeated here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from nnbridge.errors import Reason, Stage, Why, listed
from nnbridge.records import dataclass

Node = TypeVar("Node")
"""What a condition looks at: an operator with its tensors and options, or a node unit."""


LAST_LEVEL = 99
"""Beyond every feature level."""


@dataclass(frozen=True)
class Condition(Generic[Node]):
    """A condition that must hold, and the text for what was found instead."""

    rule: str
    holds: Callable[[Node], object]
    found: Callable[[Node], object]
    below: int = LAST_LEVEL
    """Checked below this feature level only."""
    kind: Why = Why.OPERAND_VALUE
    stage: Stage | None = None
    """The part of a phone that has the condition, where it is not the client's check."""
    says: Callable[[Node], str] | None = None
    """The line in the phone's log."""
    since: str = ""
    """The first release of the runtime that checks it."""
    until: str = ""
    """The last release that checks it."""


def since(release: str, condition: Condition[Node]) -> Condition[Node]:
    """A condition that older releases do not have."""
    return replace(condition, since=release)


def until(release: str, condition: Condition[Node]) -> Condition[Node]:
    """A condition that newer releases do not have."""
    return replace(condition, until=release)


def _reason(condition: Condition[Node], node: Node, label: str, stage: Stage) -> Reason:
    """The reason of a condition that does not hold."""
    says = "" if condition.says is None else condition.says(node)
    return Reason(condition.rule, listed(condition.found(node)), label, "", condition.kind, says, condition.stage or stage)


def first_refusal(conditions: Sequence[Condition[Node]], node: Node, level: int, label: str, stage: Stage) -> Reason | None:
    """The reason of the first condition that does not hold at a feature level; None if all hold.

    ``stage``: the part of a phone that has conditions which name none.
    """
    for condition in conditions:
        if level < condition.below and not condition.holds(node):
            return _reason(condition, node, label, stage)
    return None


def broken(conditions: Sequence[Condition[Node]], node: Node, level: int, label: str, stage: Stage) -> Iterator[Reason]:
    """The reasons of all conditions that do not hold. One that presupposes another, which is broken, is not looked at."""
    count = 0
    for condition in conditions:
        try:
            holds = level >= condition.below or condition.holds(node)
        except (AttributeError, ArithmeticError, LookupError, TypeError, ValueError):
            if not count:
                raise
            continue
        if not holds:
            count += 1
            yield _reason(condition, node, label, stage)

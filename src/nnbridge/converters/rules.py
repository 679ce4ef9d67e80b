"""When Android's TFLite delegate, or ONNX Runtime's NNAPI provider, hands an operator to NNAPI: conditions as data.

Conditions state what the delegate or provider itself checks. What NNAPI does not accept is not repeated here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from nnbridge.errors import Reason, listed

Node = TypeVar("Node")
"""What a condition looks at: an operator with its tensors and options, or a node unit."""


@dataclass(frozen=True)
class Condition(Generic[Node]):
    """What must hold, and how to state what was found instead."""

    rule: str
    holds: Callable[[Node], object]
    found: Callable[[Node], object]
    below: int = 99
    """Checked below this feature level only."""


def first_refusal(conditions: Sequence[Condition[Node]], node: Node, level: int, label: str) -> Reason | None:
    """The reason of the first condition that does not hold at a feature level; None if all hold."""
    for condition in conditions:
        if level < condition.below and not condition.holds(node):
            return Reason(condition.rule, listed(condition.found(node)), label)
    return None

"""The smallest changes of an operator after which devices accept it: values near its own are tried, one parameter, then two.

Nothing of a device is known but its answers, so that profiles, drivers in Python and importers' rules are searched alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, islice, product
from typing import Any, TypeAlias

from nnbridge.converters.edits import Adjustable, Answers, Parameter, Value
from nnbridge.errors import NnbridgeError, Why

_NEAR = 8
_STEPS = (4, 16, 32, 64, 128, 256, 512, 1024, 4096)
"""Multiples of these are tried as well: hardware counts channels and widths so."""
_OCTAVES = 16
_IN_PAIRS = 3
"""Values of each of two parameters that are changed together."""
_MAX_PAIRS = 100
"""Pairs of values that are planned for an operator."""
_MAX_PLANS = 600
"""Operators alone that are planned for one file, a few milliseconds each."""


@dataclass(frozen=True)
class Change:
    """New values of parameters."""

    values: tuple[tuple[Parameter, Value], ...]

    @property
    def by_name(self) -> dict[str, Value]:
        """The new values by the names of their parameters."""
        return {parameter.name: value for parameter, value in self.values}

    @property
    def key(self) -> Hashable:
        """What changes of equal operators have in common."""
        return tuple(self.by_name.items())

    @property
    def answers(self) -> Answers:
        """What the change does to the answers."""
        return Answers.SAME if all(p.answers is Answers.SAME for p, _ in self.values) else Answers.CHANGE

    @property
    def order(self) -> tuple[bool, float]:
        """Changes that leave the answers first, then by octaves of numbers and places in lists of choices."""
        return self.answers is not Answers.SAME, sum(_size(parameter, value) for parameter, value in self.values)

    def __str__(self) -> str:
        return ", ".join(f"{p.name} {_text(p.value)} → {_text(value)}" for p, value in self.values)


Accepts: TypeAlias = "Callable[[Change], bool]"


def _text(value: Value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


class AdjustmentSearch:
    """The search for one file: operators that are equal are searched once, and all of them within one number of plans."""

    def __init__(self, alone: Callable[[Adjustable, Change], Hashable], accepted: Callable[[Any], bool]) -> None:
        self._alone = alone
        """Something that stands for a changed operator alone, such as a file; equal for equal ones."""
        self._accepted = accepted
        self._known: dict[Hashable, bool] = {}

    def changes(self, adjustable: Adjustable, kinds: Collection[Why], pairs: bool = True) -> tuple[list[Change], tuple[str, ...]]:
        """Changes that devices accept of the operator alone, the smallest first, and what was tried, in words."""
        concerned = [p for p in adjustable.parameters if not p.kinds or not kinds or p.kinds.intersection(kinds)]
        try:
            accepts = partial(self._accepts, adjustable, self._alone(adjustable, Change(())))
        except NnbridgeError:
            return [], ()
        if not concerned or accepts(Change(())):
            return [], ()
        found = [change for parameter in concerned if (change := _single(parameter, accepts)) is not None]
        if not found and pairs:
            found = list(_pairs(concerned, accepts))
        tried = tuple(_tried(parameter) for parameter in concerned) if len(self._known) < _MAX_PLANS else ()
        return sorted(found, key=lambda change: change.order), tried

    def _accepts(self, adjustable: Adjustable, unchanged: Hashable, change: Change) -> bool:
        """True if devices accept the changed operator alone; False for changes that cannot be made."""
        key = unchanged, change.key
        if key not in self._known:
            if len(self._known) >= _MAX_PLANS:
                return False
            try:
                changed = self._alone(adjustable, change)
            except NnbridgeError:
                return False
            self._known[key] = self._accepted(changed)
        return self._known[key]


def _single(parameter: Parameter, accepts: Accepts) -> Change | None:
    """The smallest change of one parameter."""
    refused: list[Value] = []
    for value in _candidates(parameter):
        if accepts(Change(((parameter, value),))):
            return Change(((parameter, _nearest(parameter, value, refused, accepts)),))
        refused.append(value)
    return None


def _nearest(parameter: Parameter, value: Value, refused: Sequence[Value], accepts: Accepts) -> Value:
    """The number next to the old one that is accepted, between an accepted and the last refused one on its side."""
    old = parameter.value
    if parameter.choices or not isinstance(value, int) or not isinstance(old, int):
        return value
    good, bad = value, next((n for n in reversed(refused) if isinstance(n, int) and (n > old) == (value > old)), old)
    while abs(good - bad) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if accepts(Change(((parameter, middle),))) else (good, middle)
    return good


def _pairs(parameters: Sequence[Parameter], accepts: Accepts) -> Iterator[Change]:
    """Changes of two parameters; the first pair that works."""
    changes = (
        Change(((one, a), (other, b)))
        for one, other in combinations(parameters, 2)
        for a, b in product(_candidates(one)[:_IN_PAIRS], _candidates(other)[:_IN_PAIRS])
    )
    yield from islice(filter(accepts, islice(changes, _MAX_PAIRS)), 1)


def _candidates(parameter: Parameter) -> list[Value]:
    """Values to try, the nearest first."""
    if parameter.choices or not isinstance(parameter.value, int):
        return list(parameter.choices)
    old = int(parameter.value)
    near = {old + k for k in range(-_NEAR, _NEAR + 1)}
    multiples = {m for step in _STEPS for m in (old // step * step, -(-old // step) * step)}
    octaves = {n for k in range(1, _OCTAVES) for n in (old >> k, old << k)}
    allowed = {n for n in near | multiples | octaves if parameter.low <= n <= parameter.high and n != old}
    return [*sorted(allowed, key=lambda n: (abs(n - old), n))]


def _size(parameter: Parameter, value: Value) -> float:
    old = parameter.value
    if isinstance(old, (int, float)) and isinstance(value, (int, float)) and old > 0 and value > 0:
        return parameter.parts * abs(math.log2(value / old))
    return 0.5 * (1 + parameter.choices.index(value)) if value in parameter.choices else 1.0


def _tried(parameter: Parameter) -> str:
    values = _candidates(parameter)
    numbers = [n for n in values if isinstance(n, int)]
    if parameter.choices or not numbers:
        return f"{parameter.name}: {', '.join(_text(value) for value in values)}"
    return f"{parameter.name}: {len(numbers)} numbers from {min(numbers)} to {max(numbers)}"

"""The smallest changes of an operator after which devices accept it: values near its own are tried, one parameter, then two.

Nothing of a device is known but its answers, so that profiles, drivers in Python and importers' rules are searched alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, islice, product

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
    """New values by the names of parameters, and what they do."""

    values: Mapping[str, Value]
    size: float
    """What changes are ordered by: octaves of numbers, places in lists of choices."""
    answers: Answers


def shown(adjustable: Adjustable, values: Mapping[str, Value]) -> str:
    """A change in words."""
    before = {parameter.name: parameter.value for parameter in adjustable.parameters}
    return ", ".join(f"{name} {_text(before[name])} → {_text(value)}" for name, value in values.items())


def _text(value: Value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


class Search:
    """The search for one file: operators that are equal are searched once, and all of them within one number of plans."""

    def __init__(self, accepted: Callable[[bytes], bool]) -> None:
        self._accepted = accepted
        self._plans = 0
        self._known: dict[bytes, bool] = {}

    def changes(self, adjustable: Adjustable, kinds: Collection[Why], pairs: bool = True) -> tuple[list[Change], tuple[str, ...]]:
        """Changes that devices accept of the operator alone, the smallest first, and what was tried, in words."""
        concerned = [p for p in adjustable.parameters if not p.kinds or not kinds or p.kinds.intersection(kinds)]
        operator = _Operator(adjustable, self._try)
        if not concerned or operator.accepts({}):
            return [], ()
        found = [change for parameter in concerned if (change := operator.single(parameter)) is not None]
        if not found and pairs:
            found = list(operator.pairs(concerned))
        ordered = sorted(found, key=lambda change: (change.answers is not Answers.SAME, change.size))
        return ordered, tuple(_tried(parameter) for parameter in concerned) if self._plans < _MAX_PLANS else ()

    def _try(self, content: bytes) -> bool:
        if content not in self._known:
            if self._plans >= _MAX_PLANS:
                return False
            self._plans += 1
            self._known[content] = self._accepted(content)
        return self._known[content]


@dataclass(frozen=True)
class _Operator:
    adjustable: Adjustable
    accepted: Callable[[bytes], bool]

    def accepts(self, values: Mapping[str, Value]) -> bool:
        """True if devices accept the changed operator; False for changes that cannot be made."""
        try:
            content = self.adjustable.content(values, True)
        except NnbridgeError:
            return False
        return self.accepted(content)

    def single(self, parameter: Parameter) -> Change | None:
        """The smallest change of one parameter."""
        refused: list[Value] = []
        for value in _candidates(parameter):
            if self.accepts({parameter.name: value}):
                return self._change({parameter.name: self._nearest(parameter, value, refused)})
            refused.append(value)
        return None

    def _nearest(self, parameter: Parameter, value: Value, refused: Sequence[Value]) -> Value:
        """The number next to the old one that is accepted, between an accepted and the last refused one on its side."""
        old = parameter.value
        if parameter.choices or not isinstance(value, int) or not isinstance(old, int):
            return value
        inner = [n for n in refused if isinstance(n, int) and (n > old) == (value > old)]
        bad: int = inner[-1] if inner else int(old)
        good: int = int(value)
        while abs(good - bad) > 1:
            middle = (good + bad) // 2
            if self.accepts({parameter.name: middle}):
                good = middle
            else:
                bad = middle
        return good

    def pairs(self, parameters: Sequence[Parameter]) -> Iterator[Change]:
        """Changes of two parameters; the first pair that works."""
        values = (
            {one.name: a, other.name: b}
            for one, other in combinations(parameters, 2)
            for a, b in product(_candidates(one)[:_IN_PAIRS], _candidates(other)[:_IN_PAIRS])
        )
        yield from islice((self._change(pair) for pair in islice(values, _MAX_PAIRS) if self.accepts(pair)), 1)

    def _change(self, values: Mapping[str, Value]) -> Change:
        changed = [(self._parameters[name], value) for name, value in values.items()]
        answers = Answers.SAME if all(p.answers is Answers.SAME for p, _ in changed) else Answers.CHANGE
        return Change(values, sum(_size(parameter, value) for parameter, value in changed), answers)

    @cached_property
    def _parameters(self) -> Mapping[str, Parameter]:
        return {parameter.name: parameter for parameter in self.adjustable.parameters}


def _candidates(parameter: Parameter) -> list[Value]:
    """Values to try, the nearest first."""
    if parameter.choices or not isinstance(parameter.value, int):
        return list(parameter.choices)
    old = int(parameter.value)
    near = {old + k for k in range(-_NEAR, _NEAR + 1)}
    multiples = {m for step in _STEPS for m in (old // step * step, -(-old // step) * step)}
    octaves = {n for k in range(1, _OCTAVES) for n in (old >> k, old << k)}
    allowed = {n for n in near | multiples | octaves if parameter.low <= n <= parameter.high and n != old}
    found: list[int] = sorted(allowed, key=lambda n: (abs(n - old), n))
    return list(found)


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

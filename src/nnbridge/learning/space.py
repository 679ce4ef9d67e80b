"""From answers to rules: all simple conditions that explain them, the simplest of them, and what they leave open.

A condition is a candidate if every supported operation meets it; it explains the refused operations that break it. A refused
operation whose simplest explanations are one condition decides that condition from its value on; what lies between the supported
and the refused values is open, and so is a form of an operation that no one saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import Any

from nnbridge.learning.features import ALIKE, NOMINAL, NUMBER, TRUTH, Feature, written
from nnbridge.records import dataclass

SLACK = 1.0
"""Explanations that cost at most this more than the simplest one count as well."""
_EACH_VALUE = 0.2
"""What a set costs more for each value after the first."""
_NEGATED = 1.0
"""What a condition costs more that requires a relation not to hold."""
_MAX_GUARDS = 40
_SHARE = 0.15
"""An explanation of more refusals is simpler, by this share of its cost for each doubling."""


@dataclass(frozen=True)
class Example:
    """One answer: the values of the features (None: not known), and where it was read."""

    values: tuple[Any, ...]
    supported: bool
    where: str = ""


@dataclass(frozen=True)
class Guard:
    """Only operations with this value."""

    feature: int
    value: Any


@dataclass(frozen=True)
class Atom:
    """A condition on one feature: at most, at least, or one of some values; with ``guard`` only where that holds."""

    feature: int
    way: str
    limit: Any
    guard: Guard | None = None

    def broken(self, values: Sequence[Any]) -> bool:
        """True if an operation does not meet the condition; what is not known breaks none."""
        if self.guard is not None and values[self.guard.feature] != self.guard.value:
            return False
        value = values[self.feature]
        if value is None:
            return False
        if self.way == "in":
            return value not in self.limit
        return bool(value > self.limit if self.way == "most" else value < self.limit)


@dataclass
class Rules:
    """The learned rules of one operation."""

    features: Sequence[Feature]
    never: bool = False
    blind: bool = False
    """True if answers came without operands, so that nothing says where they hold."""
    required: list[tuple[Atom, list[Example]]] = field(default_factory=list)
    """Conditions, each with the refusals that it explains."""
    refused: list[tuple[tuple[Atom, Any], ...]] = field(default_factory=list)
    """What is refused for sure: conditions that are all broken by as much as these values."""
    seen: list[Atom] = field(default_factory=list)
    """What was supported: outside of it an answer is open unless it is refused for sure."""
    unexplained: list[Example] = field(default_factory=list)
    """Refusals that no condition explains."""
    supported: int = 0
    refusals: int = 0

    # -- texts ---------------------------------------------------------------------------------------------------------

    def text(self, atom: Atom) -> str:
        """The condition in the rule language."""
        return _text(self.features[atom.feature], atom.way, atom.limit)

    def guard(self, atom: Atom) -> str:
        """The condition under which it holds; empty for always."""
        return "" if atom.guard is None else _text(self.features[atom.guard.feature], "in", (atom.guard.value,))

    def beyond(self, atom: Atom, value: Any) -> str:
        """A condition that operations meet which break ``atom`` by as much as a value."""
        ways = {"most": "least", "least": "most", "in": "in"}
        text = _text(self.features[atom.feature], ways[atom.way], (value,) if atom.way == "in" else value)
        return " and ".join(filter(None, (self.guard(atom), text)))


def _text(feature: Feature, way: str, limit: Any) -> str:
    text = feature.text
    if way == "most":
        return f"{text} <= {written(limit)}"
    if way == "least":
        return f"{text} >= {written(limit)}"
    if feature.kind == TRUTH and len(limit) == 1:
        negated = f"not ({text})" if " " in text else f"not {text}"
        return text if limit[0] else negated
    return f"{text} == {written(limit[0])}" if len(limit) == 1 else f"{text} in [{', '.join(map(written, limit))}]"


def learn(features: Sequence[Feature], examples: Sequence[Example]) -> Rules:
    """The simplest rules of one operation that explain all answers."""
    return _Learner(features, examples).rules()


class _Learner:
    def __init__(self, features: Sequence[Feature], examples: Sequence[Example]) -> None:
        self.features = features
        self.positive = [e for e in examples if e.supported]
        self.negative = [e for e in examples if not e.supported]

    def rules(self) -> Rules:
        known = [any(value is not None for value in e.values) for e in (*self.positive, *self.negative)]
        blind = not any(known) or (bool(self.positive) and not all(known[len(self.positive) :]))
        found = Rules(self.features, blind=blind, supported=len(self.positive), refusals=len(self.negative))
        if not self.positive:
            found.never = True
            alike = [atom for atom in self._atoms(self.negative, None) if atom.way == "in"]
            found.seen = [atom for atom in alike if self.features[atom.feature].text.startswith(ALIKE)]
            return found
        explained = self._explanations(self.negative, self._atoms(self.positive, None))
        rest = [i for i, atoms in enumerate(explained) if not atoms]
        for guard in self._guards([self.negative[i] for i in rest]):
            if not rest:
                break
            inside = [e for e in self.positive if e.values[guard.feature] == guard.value]
            if len(inside) == len(self.positive):
                continue
            within = self._explanations([self.negative[i] for i in rest], self._atoms(inside, guard))
            for i, atoms in zip(rest, within, strict=True):
                explained[i] = [*explained[i], *atoms]
        found.unexplained = [self.negative[i] for i, atoms in enumerate(explained) if not atoms]
        simplest = self._simplest(explained)
        found.required = self._cover(simplest)
        found.refused = list(self._certain(simplest))
        found.seen = [*self._form_of(self.positive), *self._sizes([atom for atom, _ in found.required])]
        return found

    # -- candidates ----------------------------------------------------------------------------------------------------

    def _atoms(self, examples: Sequence[Example], guard: Guard | None) -> list[Atom]:
        """Every condition on one feature that the examples meet, as narrow as it can be."""
        found = []
        for place, feature in enumerate(self.features):
            known = [value for e in examples if (value := e.values[place]) is not None]
            if not known:
                continue
            if feature.kind == NUMBER:
                found += [Atom(place, "most", max(known), guard), Atom(place, "least", min(known), guard)]
            elif feature.kind == NOMINAL or len(set(known)) == 1:
                found.append(Atom(place, "in", tuple(dict.fromkeys(known)), guard))
        return found

    def _guards(self, examples: Sequence[Example]) -> list[Guard]:
        """Values of the examples under which conditions may hold, the simplest ones first."""
        order = sorted(range(len(self.features)), key=lambda place: self.features[place].cost)
        kinds = (NOMINAL, TRUTH)
        found = [
            Guard(place, value)
            for place in order
            if self.features[place].kind in kinds
            for value in dict.fromkeys(e.values[place] for e in examples)
            if value is not None
        ]
        return found[:_MAX_GUARDS]

    @staticmethod
    def _explanations(examples: Sequence[Example], atoms: Sequence[Atom]) -> list[list[Atom]]:
        return [[atom for atom in atoms if atom.broken(e.values)] for e in examples]

    # -- choice --------------------------------------------------------------------------------------------------------

    def _cost(self, atom: Atom, count: int) -> float:
        cost = self.features[atom.feature].cost + (self.features[atom.guard.feature].cost if atom.guard else 0)
        cost += _EACH_VALUE * (len(atom.limit) - 1) if atom.way == "in" else 0
        cost += _NEGATED if atom.limit == (False,) else 0
        return cost * (1 - _SHARE) ** (count.bit_length() - 1)

    def _simplest(self, explained: Sequence[list[Atom]]) -> list[tuple[Atom, ...]]:
        """Of each refusal the explanations that cost little more than its simplest one."""
        counts: dict[Atom, int] = {}
        for atoms in explained:
            for atom in atoms:
                counts[atom] = counts.get(atom, 0) + 1
        costs = {atom: self._cost(atom, count) for atom, count in counts.items()}
        return [
            tuple(sorted((a for a in atoms if costs[a] <= min(costs[b] for b in atoms) + SLACK), key=costs.__getitem__))
            for atoms in explained
        ]

    def _cover(self, simplest: Sequence[tuple[Atom, ...]]) -> list[tuple[Atom, list[Example]]]:
        """The fewest conditions that explain every refusal: the one that explains most first, the simpler one among equals."""
        rest = {i for i, atoms in enumerate(simplest) if atoms}
        found = []
        while rest:
            counts: dict[Atom, int] = {}
            for i in rest:
                for atom in simplest[i]:
                    counts[atom] = counts.get(atom, 0) + 1
            best = max(counts, key=lambda atom: (counts[atom], -self._cost(atom, 1)))
            mine = [i for i in sorted(rest) if best in simplest[i]]
            found.append((best, [self.negative[i] for i in mine]))
            rest -= set(mine)
        return found

    def _certain(self, simplest: Sequence[tuple[Atom, ...]]) -> Iterator[tuple[tuple[Atom, Any], ...]]:
        """For each refusal the conditions that any explanation of it breaks, with its values; the widest ones only."""
        regions = {
            tuple((atom, e.values[atom.feature]) for atom in atoms)
            for e, atoms in zip(self.negative, simplest, strict=True)
            if atoms
        }
        for region in sorted(regions, key=lambda r: (len(r), repr(r))):
            if not any(_within(region, other) for other in regions if other != region):
                yield region

    # -- what was seen -------------------------------------------------------------------------------------------------

    def _form_of(self, examples: Sequence[Example]) -> Iterator[Atom]:
        """The forms among examples: types, ranks, constants, options."""
        for atom in self._atoms(examples, None):
            feature = self.features[atom.feature]
            if feature.form and atom.way == "in" and (feature.kind == TRUTH or len(atom.limit) <= _MAX_GUARDS):
                yield atom

    def _sizes(self, required: Sequence[Atom]) -> Iterator[Atom]:
        """The exact limits that required conditions set, and wide bounds of every other number."""
        exact = {(atom.feature, atom.way) for atom in required if atom.guard is None}
        for atom in self._atoms(self.positive, None):
            if atom.way == "in":
                continue
            reach = self.features[atom.feature].reach
            if (atom.feature, atom.way) in exact:
                continue
            if reach == 1:
                yield atom
            elif reach and atom.limit > 0:
                same = all(e.values[atom.feature] in (None, atom.limit) for e in self.positive)
                factor = 1 if same else reach
                yield replace(atom, limit=atom.limit * factor if atom.way == "most" else atom.limit / factor)
        yield from required


def _within(region: tuple[tuple[Atom, Any], ...], other: tuple[tuple[Atom, Any], ...]) -> bool:
    """True if all of a region lies in another one."""
    mine = dict(region)
    for atom, value in other:
        if atom not in mine:
            return False
        own = mine[atom]
        if not (own == value if atom.way == "in" else own >= value if atom.way == "most" else own <= value):
            return False
    return True

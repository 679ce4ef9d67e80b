"""What to change so that more of a model runs on its devices: every edit is planned before it is advised.

Edits are rewrites of the file that leave the answers as they are, the smallest changes of single operators that a device would
accept, and settings: a later Android, a higher limit on partitions. How a file is planned is the caller's: a function from a
path and changed options to an :class:`Outcome`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from nnbridge.converters.edits import WHOLE, Adjustable, Answers, Edit
from nnbridge.errors import NnbridgeError, Why
from nnbridge.model import Array
from nnbridge.smallest import Change, Search, shown
from nnbridge.types import RUNTIME_FEATURE_LEVEL, android_name

Key: TypeAlias = "tuple[int, int]"
"""An operator's subgraph and index in the file."""
Measure: TypeAlias = "Callable[[Path, Mapping[str, Any]], Outcome]"
Adjust: TypeAlias = "Callable[[Path, int, int], Adjustable | None]"
_ALONE: Mapping[str, Any] = {"shapes": (), "signature": ""}
"""Options that name parts of a file mean nothing to an operator alone."""
_MAX_VERIFIED = 3
"""Changes of an operator that are planned in the whole file."""
_NOT_EDITED = frozenset({Why.PERFORMANCE, Why.PARTITIONS, Why.FALLBACK})
"""Refusals that no edit of the operator concerns."""


@dataclass(frozen=True)
class Outcome:
    """What a plan comes to."""

    elsewhere: frozenset[Key]
    """Operators that do not run on a driver."""
    limited: int
    """Of these, operators beyond the limit on partitions."""
    partitions: int
    """Groups of operators that are handed to NNAPI."""
    steps: int
    multiply_adds: int
    """Of steps on drivers; those of open dimensions count nothing."""
    kinds: Mapping[Key, frozenset[Why]] = field(default_factory=dict)
    """Why the operators run elsewhere."""

    @property
    def figures(self) -> dict[str, int]:
        """What an edit is ranked by."""
        return {
            "elsewhere": len(self.elsewhere),
            "partitions": self.partitions,
            "steps": self.steps,
            "multiply_adds": self.multiply_adds,
        }

    def better_than(self, other: Outcome) -> bool:
        """True if more runs on drivers: fewer operators elsewhere with no less work there, or more work with no more of them."""
        fewer, less = len(self.elsewhere) - len(other.elsewhere), other.multiply_adds - self.multiply_adds
        return (fewer < 0 and less <= 0) or (fewer <= 0 and less < 0)


@dataclass(frozen=True)
class Advice:
    """One change and what it does."""

    text: str
    before: Outcome
    after: Outcome
    options: Mapping[str, Any] = field(default_factory=dict)
    """Changed options of the command; none for an edit."""
    edit: Edit | None = None

    @property
    def kind(self) -> str:
        """``setting``, ``rewrite``, or what an edit does to the answers."""
        if self.edit is None:
            return "setting"
        return "rewrite" if self.edit.answers is Answers.SAME else str(self.edit.answers)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        at = self.edit
        inside = at is not None and at.index != WHOLE
        operator = {"subgraph": at.subgraph, "index": at.index, "operator": at.operator} if at and inside else None
        figures = {"before": self.before.figures, "after": self.after.figures}
        exact = {"kind": self.kind, "exact": None if at is None else at.answers is Answers.SAME}
        return {
            "text": self.text,
            "rewrite": self.kind == "rewrite",
            "operator": operator,
            "options": dict(self.options),
            **figures,
            **exact,
        }


@dataclass(frozen=True)
class Unmoved:
    """An operator elsewhere that no change was found for."""

    subgraph: int
    index: int
    operator: str
    tried: tuple[str, ...]
    """What was changed, in words; empty if nothing of it can be, or the search was over."""
    alone: str = ""
    """A change after which the devices accept the operator alone, but the rest of the file does not fit it."""

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        at = {"subgraph": self.subgraph, "index": self.index, "operator": self.operator}
        return {"operator": at, "tried": list(self.tried), "alone": self.alone}


@dataclass(frozen=True)
class Advised:
    """Changes that help, the most effective first, and the operators that none of them is about."""

    advice: tuple[Advice, ...]
    unmoved: tuple[Unmoved, ...] = ()


def advise(
    path: Path, edits: Iterable[Edit], measure: Measure, level: int, shapes: Sequence[str] = (), adjust: Adjust | None = None
) -> Advised:
    """Changes that bring more of a file to its devices, the most effective first; of one operator the first that helps.

    ``shapes``: values of ``--shape`` that state open dimensions of the inputs. ``adjust``: what can be changed of an operator.
    """
    before = measure(path, {})
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / path.name
        rewrites = list(_rewrites(target, edits, before, measure))
        operators = list(_smallest(path, target, rewrites, before, measure, adjust)) if adjust else []
    found = [*_settings(path, before, measure, level, shapes), *rewrites, *(one for one in operators if isinstance(one, Advice))]
    return Advised(tuple(sorted(found, key=_rank)), tuple(one for one in operators if isinstance(one, Unmoved)))


_ORDER = ("rewrite", "setting", Answers.ROUND, Answers.CHANGE, Answers.CALIBRATE)


def _rank(advice: Advice) -> tuple[int, ...]:
    after = advice.after
    return len(after.elsewhere), after.partitions, after.steps, -after.multiply_adds, _ORDER.index(advice.kind)


def _settings(path: Path, before: Outcome, measure: Measure, level: int, shapes: Sequence[str]) -> Iterator[Advice]:
    if shapes:
        options = {"shapes": tuple(shapes)}
        try:
            after = measure(path, options)
        except NnbridgeError:
            after = before  # Dimensions that do not fit each other are no advice.
        if after.better_than(before):
            yield Advice(f"inputs of stated dimensions ({', '.join(shapes)})", before, after, options)
    for higher in range(level + 1, RUNTIME_FEATURE_LEVEL + 1):
        after = measure(path, {"feature_level": higher, "android": None})
        if after.better_than(before):
            yield Advice(f"feature level {higher} ({android_name(higher)})", before, after, {"feature_level": higher})
            break
    if before.limited:
        after = measure(path, {"max_partitions": 0})
        if after.better_than(before):
            yield Advice("no limit on partitions (the delegate's option)", before, after, {"max_partitions": 0})


def _planned(target: Path, content: Callable[[], bytes], measure: Measure, changed: Mapping[str, Any]) -> Outcome | None:
    """What an edited file comes to; None for an edit that cannot be made of it, or planned."""
    try:
        target.write_bytes(content())
        return measure(target, changed)
    except NnbridgeError:
        return None


def _rewrites(target: Path, edits: Iterable[Edit], before: Outcome, measure: Measure) -> Iterator[Advice]:
    helped: set[Key] = set()
    for edit in edits:
        key = edit.subgraph, edit.index
        if (key not in before.elsewhere and edit.index != WHOLE) or key in helped or not before.elsewhere:
            continue
        after = _planned(target, edit.content, measure, {})
        if after is not None and after.better_than(before):
            if edit.index != WHOLE:
                helped.add(key)
            place = f"{edit.index} {edit.operator}" if edit.index != WHOLE else "whole file"
            yield Advice(f"{place}: {edit.text}", before, after, edit=edit)


def _smallest(
    path: Path, target: Path, rewrites: Sequence[Advice], before: Outcome, measure: Measure, adjust: Adjust
) -> Iterator[Advice | Unmoved]:
    """The smallest change of each operator elsewhere that no rewrite moves; those that no edit of the file moves come first."""
    whole = [a for a in rewrites if a.edit and a.edit.index == WHOLE]
    own = {(a.edit.subgraph, a.edit.index) for a in rewrites if a.edit}
    own |= {key for a in whole if a.kind in ("rewrite", Answers.ROUND) for key in before.elsewhere - a.after.elsewhere}

    def accepted(content: bytes) -> bool:
        after = _planned(target, lambda: content, measure, _ALONE)
        return after is not None and not after.elsewhere

    search, moved = Search(accepted), {key for key in before.elsewhere if any(key not in a.after.elsewhere for a in whole)}
    for key in sorted(before.elsewhere - own, key=lambda key: (key in moved, key)):
        kinds = before.kinds.get(key, frozenset())
        if kinds & _NOT_EDITED:
            continue
        adjustable = adjust(path, *key)
        if adjustable is None:
            continue  # No operator of the file, or of a format of which nothing can be changed.
        found, tried = search.changes(adjustable, kinds, key not in moved)
        advice = next(_verified(target, key, adjustable, found[:_MAX_VERIFIED], before, measure), None)
        if advice:
            yield advice
        elif key not in moved:
            yield Unmoved(*key, adjustable.operator, tried, shown(adjustable, found[0].values) if found else "")


def _verified(
    target: Path, key: Key, adjustable: Adjustable, changes: Sequence[Change], before: Outcome, measure: Measure
) -> Iterator[Advice]:
    for change in changes:
        content = partial(adjustable.content, change.values, False)
        after = _planned(target, content, measure, {})
        if after is not None and after.better_than(before):
            text = shown(adjustable, change.values)
            edit = Edit(*key, adjustable.operator, text, content, change.answers)
            yield Advice(f"{key[1]} {adjustable.operator}: {text}", before, after, edit=edit)


def different_outputs(run: Callable[[Path, int], Mapping[str, Array]], path: Path, edited: Path, seeds: Iterable[int]) -> str:
    """The first output in which two files differ in a bit, by name and seed; empty if all answers are equal."""
    for seed in seeds:
        one, other = run(path, seed), run(edited, seed)
        for (name, a), b in zip(one.items(), other.values(), strict=True):
            if a.dtype != b.dtype or a.shape != b.shape or not np.array_equal(a.view(np.uint8), b.view(np.uint8)):
                return f"{name} with seed {seed}"
    return ""

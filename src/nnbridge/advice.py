"""What to change so that more of a model runs on its devices: every edit is planned before it is advised.

Edits are rewrites of the file that leave the answers as they are, the smallest changes of single operators that a device would
accept, and settings: a later Android, a higher limit on partitions. How a file is planned is the caller's: :class:`Planner`.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from nnbridge.converters.edits import WHOLE, Adjustable, Answers, Edit
from nnbridge.errors import NnbridgeError, Why
from nnbridge.model import Array
from nnbridge.smallest import AdjustmentSearch, Change
from nnbridge.types import RUNTIME_FEATURE_LEVEL, android_name

Key: TypeAlias = "tuple[int, int]"
"""An operator's subgraph and index in the file."""
Adjust: TypeAlias = "Callable[[Path, int, int], Adjustable | None]"
_MAX_VERIFIED = 3
"""Changes of an operator that are planned in the whole file."""
_NOT_EDITED = frozenset({Why.PERFORMANCE, Why.PARTITIONS, Why.FALLBACK})
"""Refusals that no edit of the operator concerns."""
_ACCEPTED = frozenset({Why.PERFORMANCE, Why.PARTITIONS})
"""Of these, refusals of operators that a device accepts."""


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
class Alone:
    """Devices' answers for an operator alone."""

    every: bool
    """They accept all of it."""
    some: bool
    """They accept a part of it."""
    kinds: frozenset[Why]
    """Why they refuse the rest."""


@dataclass(frozen=True)
class Planner:
    """How files are planned."""

    measure: Callable[[Path, Mapping[str, Any], bool], Outcome]
    """From a path, changed options of the command, and whether the steps are prepared, which is slow and may fail."""
    alone: Callable[[Path], Alone]
    """Devices' answers for a file of one operator, or of what stands in its place; nothing is prepared."""


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


class Editing:
    """A file and what can be changed of it; each edited file is written once, for any number of devices that are asked."""

    def __init__(self, path: Path, edits: Callable[[Path], Iterable[Edit]], adjust: Adjust) -> None:
        self.path = path
        self._edits, self._adjust = edits, adjust
        self._folder = tempfile.TemporaryDirectory()
        self._files: dict[bytes, Path] = {}
        self._known: dict[Hashable, Path | NnbridgeError] = {}

    @cached_property
    def edits(self) -> tuple[Edit, ...]:
        """Rewrites of operators and edits of the whole file."""
        return tuple(self._edits(self.path))

    @cached_property
    def adjustable(self) -> Callable[[int, int], Adjustable | None]:
        """What can be changed of an operator."""
        return cache(partial(self._adjust, self.path))

    def edited(self, edit: Edit, key: Hashable = ()) -> Path:
        """The edited file; ``key`` stands for the values of an edit that has such."""
        return self._written((edit.subgraph, edit.index, edit.text, key), edit.content)

    def replacement(self, edit: Edit) -> Path | None:
        """A file of what stands in an operator's place."""
        return None if edit.alone is None else self._written((edit.subgraph, edit.index, edit.text, "alone"), edit.alone)

    def alone(self, adjustable: Adjustable, change: Change) -> Path:
        """A file of a changed operator; equal operators have the same."""
        unchanged = self._written(adjustable.content, partial(adjustable.content, {}, True))
        if not change.values:
            return unchanged
        return self._written((unchanged, change.key), partial(adjustable.content, change.by_name, True))

    def _written(self, key: Hashable, content: Callable[[], bytes]) -> Path:
        if key not in self._known:
            try:
                self._known[key] = self._file(content())
            except NnbridgeError as error:
                self._known[key] = error
        known = self._known[key]
        if isinstance(known, NnbridgeError):
            raise known
        return known

    def _file(self, content: bytes) -> Path:
        digest = hashlib.blake2b(content, digest_size=16).digest()
        if digest not in self._files:
            self._files[digest] = Path(self._folder.name) / str(len(self._files)) / self.path.name
            self._files[digest].parent.mkdir()
            self._files[digest].write_bytes(content)
        return self._files[digest]


def advise(editing: Editing, planner: Planner, level: int, shapes: Sequence[str] = ()) -> Advised:
    """Changes that bring more of a file to its devices, the most effective first; of one operator the first that helps.

    ``shapes``: values of ``--shape`` that state open dimensions of the inputs.
    """
    advising = _Advising(editing, planner, planner.measure(editing.path, {}, True))
    rewrites = list(advising.rewrites())
    operators = list(advising.smallest(rewrites))
    found = [*advising.settings(level, shapes), *rewrites, *(one for one in operators if isinstance(one, Advice))]
    return Advised(tuple(sorted(found, key=_rank)), tuple(one for one in operators if isinstance(one, Unmoved)))


_ORDER = ("rewrite", "setting", Answers.ROUND, Answers.CHANGE, Answers.CALIBRATE)


def _rank(advice: Advice) -> tuple[int, ...]:
    after = advice.after
    return len(after.elsewhere), after.partitions, after.steps, -after.multiply_adds, _ORDER.index(advice.kind)


@dataclass(frozen=True)
class _Advising:
    editing: Editing
    planner: Planner
    before: Outcome

    def settings(self, level: int, shapes: Sequence[str]) -> Iterator[Advice]:
        """Options of the command that help, and the first feature level that does."""
        if shapes:
            yield from self._setting(f"inputs of stated dimensions ({', '.join(shapes)})", {"shapes": tuple(shapes)})
        for higher in range(level + 1, RUNTIME_FEATURE_LEVEL + 1):
            found = list(self._setting(f"feature level {higher} ({android_name(higher)})", {"feature_level": higher}))
            yield from found
            if found:
                break
        if self.before.limited:
            yield from self._setting("no limit on partitions (the delegate's option)", {"max_partitions": 0})

    def _setting(self, text: str, options: Mapping[str, Any]) -> Iterator[Advice]:
        after = self._improved(self.editing.path, options)
        if after is not None:
            yield Advice(text, self.before, after, options)

    def _improved(self, path: Path, options: Mapping[str, Any]) -> Outcome | None:
        """The outcome if it is better; steps, whose preparation can only fail, are prepared where the plan is."""
        try:
            if self.planner.measure(path, options, False).better_than(self.before):
                after = self.planner.measure(path, options, True)
                return after if after.better_than(self.before) else None
        except NnbridgeError:
            pass  # Dimensions that do not fit each other are no advice.
        return None

    def rewrites(self) -> Iterator[Advice]:
        """Edits that help: the first one of each operator elsewhere, and those of the whole file."""
        helped: set[Key] = set()
        for edit in self.editing.edits if self.before.elsewhere else ():
            key = edit.subgraph, edit.index
            refused = key in self.before.elsewhere and not self._accepted_in_vain(key)
            if edit.index == WHOLE or (refused and key not in helped and self._may_help(key, edit)):
                for advice in self._edited(edit):
                    helped.add(key)
                    yield advice

    def _accepted_in_vain(self, key: Key) -> bool:
        """True for an operator that devices accept, and that runs elsewhere for other reasons."""
        kinds = self.before.kinds.get(key, frozenset())
        return bool(kinds) and kinds <= _ACCEPTED

    def _may_help(self, key: Key, edit: Edit) -> bool:
        """False where the devices accept nothing of what stands in the operator's place, alone: the whole file is not planned.

        Alone counts only if the operator itself is refused alone for the reasons that it is refused for in the file.
        """
        adjustable = self.editing.adjustable(*key)
        if adjustable is None:
            return True
        try:
            unchanged = self.planner.alone(self.editing.alone(adjustable, Change(())))
            if unchanged.some or unchanged.kinds != self.before.kinds.get(key, frozenset()):
                return True
            replacement = self.editing.replacement(edit)
            return replacement is None or self.planner.alone(replacement).some
        except NnbridgeError:
            return True

    def _edited(self, edit: Edit, key: Hashable = ()) -> Iterator[Advice]:
        """The edit as advice, if it can be made of the file, can be planned and helps."""
        try:
            edited = self.editing.edited(edit, key)
        except NnbridgeError:
            return
        after = self._improved(edited, {})
        if after is not None:
            place = f"{edit.index} {edit.operator}" if edit.index != WHOLE else "whole file"
            yield Advice(f"{place}: {edit.text}", self.before, after, edit=edit)

    def smallest(self, rewrites: Sequence[Advice]) -> Iterator[Advice | Unmoved]:
        """The smallest change of each operator elsewhere that no rewrite moves; first of those that no edit of the file moves."""
        own = {(a.edit.subgraph, a.edit.index) for a in rewrites if a.edit}
        moved: set[Key] = set()
        for whole in (a for a in rewrites if a.edit and a.edit.index == WHOLE):
            gone = self.before.elsewhere - whole.after.elsewhere
            moved |= gone
            own |= gone if whole.kind in ("rewrite", Answers.ROUND) else set()
        search = AdjustmentSearch(self.editing.alone, self._accepted)
        for key in sorted(self.before.elsewhere - own, key=lambda key: (key in moved, key)):
            kinds = self.before.kinds.get(key, frozenset())
            adjustable = None if kinds & _NOT_EDITED else self.editing.adjustable(*key)
            if adjustable is None:
                continue  # Nothing to edit, no operator of the file, or a format of which nothing can be changed.
            changes, tried = search.changes(adjustable, kinds, key not in moved)
            advice = next(self._verified(key, adjustable, changes[:_MAX_VERIFIED]), None)
            if advice:
                yield advice
            elif key not in moved:
                yield Unmoved(*key, adjustable.operator, tried, str(changes[0]) if changes else "")

    def _accepted(self, path: Path) -> bool:
        try:
            return self.planner.alone(path).every
        except NnbridgeError:
            return False

    def _verified(self, key: Key, adjustable: Adjustable, changes: Sequence[Change]) -> Iterator[Advice]:
        for change in changes:
            content = partial(adjustable.content, change.by_name, False)
            yield from self._edited(Edit(*key, adjustable.operator, str(change), content, change.answers), change.key)


def different_outputs(run: Callable[[Path, int], Mapping[str, Array]], path: Path, edited: Path, seeds: Iterable[int]) -> str:
    """The first output in which two files differ in a bit, by name and seed; empty if all answers are equal."""
    for seed in seeds:
        one, other = run(path, seed), run(edited, seed)
        for (name, a), b in zip(one.items(), other.values(), strict=True):
            if a.dtype != b.dtype or a.shape != b.shape or not np.array_equal(a.view(np.uint8), b.view(np.uint8)):
                return f"{name} with seed {seed}"
    return ""

"""What to change so that more of a model runs on its devices: every edit is planned before it is advised.

Edits are rewrites of the file that leave the answers as they are, and settings: a later Android, a higher limit on partitions.
How a file is planned is the caller's: a function from a path and changed options to an :class:`Outcome`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from nnbridge.converters import Edit
from nnbridge.errors import NnbridgeError
from nnbridge.model import Array
from nnbridge.types import RUNTIME_FEATURE_LEVEL, android_name

Key: TypeAlias = "tuple[int, int]"
"""An operator's subgraph and index in the file."""
Measure: TypeAlias = "Callable[[Path, Mapping[str, Any]], Outcome]"


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
    """Changed options of the command; none for a rewrite."""
    edit: Edit | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        at = self.edit
        operator = None if at is None else {"subgraph": at.subgraph, "index": at.index, "operator": at.operator}
        figures = {"before": self.before.figures, "after": self.after.figures}
        return {"text": self.text, "rewrite": at is not None, "operator": operator, "options": dict(self.options), **figures}


def advise(path: Path, edits: Iterable[Edit], measure: Measure, level: int, shapes: Sequence[str] = ()) -> list[Advice]:
    """Changes that bring more of a file to its devices, the most effective first; of one operator the first that helps.

    ``shapes``: values of ``--shape`` that state open dimensions of the inputs.
    """
    before = measure(path, {})
    found = [*_settings(path, before, measure, level, shapes), *_rewrites(path, edits, before, measure)]
    return sorted(
        found, key=lambda a: (len(a.after.elsewhere), a.after.partitions, a.after.steps, -a.after.multiply_adds, a.edit is None)
    )


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


def _rewrites(path: Path, edits: Iterable[Edit], before: Outcome, measure: Measure) -> Iterator[Advice]:
    helped: set[Key] = set()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / path.name
        for edit in edits:
            key = edit.subgraph, edit.index
            if key not in before.elsewhere or key in helped:
                continue
            try:
                target.write_bytes(edit.content())
                after = measure(target, {})
            except NnbridgeError:
                continue  # An edit that cannot be planned is none.
            if after.better_than(before):
                helped.add(key)
                yield Advice(f"{edit.index} {edit.operator}: {edit.text}", before, after, edit=edit)


def different_outputs(run: Callable[[Path, int], Mapping[str, Array]], path: Path, edited: Path, seeds: Iterable[int]) -> str:
    """The first output in which two files differ in a bit, by name and seed; empty if all answers are equal."""
    for seed in seeds:
        one, other = run(path, seed), run(edited, seed)
        for (name, a), b in zip(one.items(), other.values(), strict=True):
            if a.dtype != b.dtype or a.shape != b.shape or not np.array_equal(a.view(np.uint8), b.view(np.uint8)):
                return f"{name} with seed {seed}"
    return ""

"""Differences between two runs: of a driver's releases, a model's versions, or nnbridge's; and which of them are worse."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

from nnbridge.compare.tolerance import DEFAULT_TOLERANCE
from nnbridge.errors import InputError, Reason
from nnbridge.extensions import plain_operation
from nnbridge.matrix.budget import MatrixLimit, broken_limits
from nnbridge.matrix.cells import Cell
from nnbridge.matrix.tables import JunitCase, androids, difference, first, junit
from nnbridge.records import dataclass
from nnbridge.report.terminal import counted, counted_kinds
from nnbridge.types import android_name

_ON = "device"
_GONE = "not in the model"
_INDEX = re.compile(r"^\d+: ")
_FEW = 3
"""Cells that the verdict names."""
_NAME = 40
"""Characters of an operation's name in a table: files have names of hundreds."""

_LEAST_TOLERANCE = 1e-7
"""The smallest tolerance of floating outputs, of cells that state none (docs/comparisons.md)."""


@dataclass(frozen=True)
class Move:
    """An operation that runs elsewhere than before."""

    index: int
    """In the new model, in the old one if it is gone."""
    type: str
    name: str
    before: str
    """Where it was: ``device``, or why it was not there."""
    after: str

    @property
    def refused(self) -> bool:
        """True if it was on the device and is not, though the model still has it."""
        return self.before == _ON and self.after not in (_ON, _GONE)


@dataclass(frozen=True)
class CellChange:
    """Two cells of one model."""

    model: str
    level: int
    old: Cell
    new: Cell
    moves: tuple[Move, ...]
    exceeded: tuple[str, ...] = ()
    """Limits that the new cell exceeds and the old one did not."""

    @property
    def lines(self) -> list[str]:
        """The changed figures, one line each."""
        old, new = self.old, self.new
        if not old.answered or not new.answered:
            return [] if _answer(old) == _answer(new) else [f"{_answer(old)} → {_answer(new)}"]
        return [f"{noun} {text(old)} → {text(new)}{more(old, new)}" for noun, text, more in _FIGURES if text(old) != text(new)]

    @property
    def worse(self) -> list[str]:
        """The changes for the worse, each in a line; docs/matrix.md lists the kinds."""
        old, new = self.old, self.new
        if not new.answered:
            return [f"{_answer(old)} → {_answer(new)}"] if old.answered or (new.error and not old.error) else []
        if not old.answered:
            return list(self.exceeded)
        return [*_worse_place(old, new, self.moves), *_worse_numbers(old, new), *self.exceeded]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        cells = {
            which: {k: v for k, v in cell.as_dict().items() if k not in ("refused", "placed")} for which, cell in self._both()
        }
        moves = [asdict(move) for move in self.moves]
        return {"model": self.model, "level": self.level, **cells, "moves": moves, "worse": self.worse}

    def _both(self) -> list[tuple[str, Cell]]:
        return [("old", self.old), ("new", self.new)]


@dataclass(frozen=True)
class Changes:
    """The differences between two runs."""

    pairs: tuple[CellChange, ...]
    """The cells that both runs have, also those that are the same."""
    removed: tuple[str, ...] = ()
    """Models, devices and Android versions that the new run does not have, in words."""
    added: tuple[str, ...] = ()

    @property
    def compared(self) -> int:
        """The number of cells that both runs have."""
        return len(self.pairs)

    @cached_property
    def changes(self) -> tuple[CellChange, ...]:
        """The cells that are not the same."""
        return tuple(change for change in self.pairs if change.moves or change.lines or change.worse)

    @property
    def worse(self) -> list[CellChange]:
        """The cells that got worse."""
        return [change for change in self.changes if change.worse]

    def as_dict(self) -> Mapping[str, Any]:
        """JSON-ready."""
        changed = [change.as_dict() for change in self.changes]
        return {"cells": self.compared, "changes": changed, "removed": list(self.removed), "added": list(self.added)}


def _answer(cell: Cell) -> str:
    """The answer of a cell that has no counts."""
    return f"failed ({cell.error})" if cell.error else f"n/a ({cell.inapplicable})" if cell.inapplicable else "an answer"


def _number(of: Callable[[Cell], int]) -> tuple[Callable[[Cell], str], Callable[[Cell, Cell], str]]:
    return lambda cell: f"{of(cell):,}", lambda old, new: f" ({of(new) - of(old):+,})"


def _text(of: Callable[[Cell], str]) -> tuple[Callable[[Cell], str], Callable[[Cell, Cell], str]]:
    return of, lambda old, new: ""


_FIGURES = (
    ("operations", *_number(lambda cell: cell.operations)),
    ("operations on the device", *_number(lambda cell: cell.on_device)),
    ("partitions", *_number(lambda cell: cell.partitions)),
    ("bytes across borders", *_number(lambda cell: cell.transfers)),
    ("verdict", *_text(lambda cell: cell.verdict)),
    ("difference", *_text(difference)),
    ("estimate", *_text(lambda cell: "none" if cell.estimated_ms is None else f"{cell.estimated_ms:.3g} ms")),
)
"""Figures that are compared: noun, text of a cell, what is added to the texts of two."""


def _worse_place(old: Cell, new: Cell, moves: Sequence[Move]) -> Iterator[str]:
    refused = sum(move.refused for move in moves)
    if refused:
        yield f"{counted(refused, 'operation')} left the device"
    off = new.operations - new.on_device
    if off > old.operations - old.on_device and off - refused > old.operations - old.on_device:
        yield f"operations off the device {old.operations - old.on_device:,} → {off:,}"
    if new.partitions > old.partitions > 0:
        yield f"partitions {old.partitions} → {new.partitions}"
    if new.fallback and not old.fallback:
        yield f"the whole model falls back to the CPU: {new.fallback}"


def _worse_numbers(old: Cell, new: Cell) -> Iterator[str]:
    if old.within is None:
        if new.within is False:
            yield f"{old.verdict} → outside tolerance"
        return
    if new.within is None:
        yield f"{old.verdict} → {new.verdict}"
    elif old.within and not new.within:
        yield f"within → outside tolerance ({difference(new)})"
    elif old.idle == new.idle and _grown(old, new):  # Else the numbers are of another device.
        yield f"difference {difference(old)} → {difference(new)}"


def _grown(old: Cell, new: Cell) -> bool:
    """True if the largest difference has grown by more than a comparison tolerates (docs/comparisons.md)."""
    if new.difference is None or old.difference is None:
        return new.difference is None and old.difference is not None
    if new.quantised != old.quantised:
        return False  # Steps and real numbers have no order.
    least = DEFAULT_TOLERANCE.steps if new.quantised else _LEAST_TOLERANCE
    return new.difference - old.difference > max(cell.tolerance or least for cell in (old, new))


def changes(old: Sequence[Cell], new: Sequence[Cell], limits: Sequence[MatrixLimit] = ()) -> Changes:
    """The differences, by model, device and level. A run with one device is compared with another's one device.

    ``limits``: those that only the new cell exceeds are worse. InputError where the runs have no cell in common.
    """
    devices = [list(dict.fromkeys(cell.device for cell in cells)) for cells in (old, new)]
    renamed = dict(zip(*devices, strict=True)) if all(len(names) == 1 for names in devices) else {}
    before = {(cell.model, renamed.get(cell.device, cell.device), cell.level): cell for cell in old}
    after = {(cell.model, cell.device, cell.level): cell for cell in new}
    pairs = [(before[key], cell) for key, cell in after.items() if key in before]
    if not pairs:
        rule = "two runs with a model, device and level in common (FILE@DEVICE names the device of each)"
        raise InputError(Reason(rule, f"{', '.join(devices[0])} and {', '.join(devices[1])}", operand="diff"))
    found = [
        CellChange(new.model, new.level, old, new, _moves(old, new), _newly_exceeded(old, new, limits)) for old, new in pairs
    ]
    return Changes(tuple(found), _only_in(before, after), _only_in(after, before))


def _newly_exceeded(old: Cell, new: Cell, limits: Sequence[MatrixLimit]) -> tuple[str, ...]:
    """Limits that the new cell exceeds, and the old one did not, whatever by how much."""
    exceeded, before = (broken_limits(limits, [cell]).get(0, []) for cell in (new, old))
    known = {line.partition(":")[0] for line in before}
    return tuple(line for line in exceeded if line.partition(":")[0] not in known)


_Key = tuple[str, str, int]


def _only_in(one: Mapping[_Key, Cell], other: Mapping[_Key, Cell]) -> tuple[str, ...]:
    """Models, devices and versions of one run that the other has not; then the single cells that are left."""
    words: list[str] = []
    left = [key for key in one if key not in other]
    for k, noun in enumerate(("model", "device", "")):
        there = {key[k] for key in other}
        gone = dict.fromkeys(key[k] for key in left if key[k] not in there)
        words += [f"{noun} {name}" if noun else android_name(int(name)) for name in gone]
        left = [key for key in left if key[k] in there]
    return (*words, *(f"{model} on {device}, {android_name(level)}" for model, device, level in left))


def _moves(old: Cell, new: Cell) -> tuple[Move, ...]:
    """Operations that came to the device or left it, or that only one of the models has."""
    if not old.answered or not new.answered:
        return ()
    was, now = _places(old), _places(new)
    found = []
    for key, (index, after) in now.items():
        before = was.get(key, (0, _GONE))[1]
        if (before == _ON) != (after == _ON) or before == _GONE:
            found.append(Move(index, *new.placed[index], before, after))
    found += [Move(index, *old.placed[index], before, _GONE) for key, (index, before) in was.items() if key not in now]
    return tuple(found)


def _places(cell: Cell) -> dict[tuple[str, int], tuple[int, str]]:
    """Operation and number among those alike → index, and ``device`` or why not.

    An operation is known by its operator's name without its index, which a new version of a model may change, else by its type;
    one that the host computes has the type of the format.
    """
    why = {index: reason for index, _, _, reason in cell.refused}
    seen: dict[str, int] = {}
    places: dict[tuple[str, int], tuple[int, str]] = {}
    for index, (kind, name) in enumerate(cell.placed):
        key = _INDEX.sub("", name) or plain_operation(kind)
        number = seen[key] = seen.get(key, -1) + 1
        places[key, number] = (index, why.get(index, _ON))
    return places


def change_lines(found: Changes, top: int = 0) -> list[str]:
    """Each change, the worse ones first: its figures, then the operations that moved, alike ones together; the verdict.

    ``top``: changes and rows of each at most; 0 for all.
    """
    moved = sum(len(change.moves) for change in found.changes)
    head = f"{len(found.changes)} of {counted(found.compared, 'cell')} changed, {counted(moved, 'operation')} changed device"
    only = [f"{word}: {', '.join(names)}" for word, names in (("Removed", found.removed), ("Added", found.added)) if names]
    groups: dict[tuple[Any, ...], list[CellChange]] = {}
    for change in found.changes:
        devices = " → ".join(dict.fromkeys((change.old.device, change.new.device)))
        groups.setdefault((change.model, devices, *map(tuple, (change.lines, change.worse, _moved(change)))), []).append(change)
    ordered = sorted(groups.items(), key=lambda group: not group[1][0].worse)
    blocks = [head if found.changes else f"no change in {counted(found.compared, 'cell')}", *only]
    for (model, devices, lines, worse, moves), members in ordered[:top] if top else ordered:
        blocks.append("")
        blocks.append(
            f"{model} on {devices}, {androids([change.new for change in members])}: {'; '.join(lines)}".removesuffix(": ")
        )
        blocks += [f"  worse: {line}" for line in worse]
        blocks += [f"  {line}" for line in first(moves, top)]
    return [*blocks, *first([""] * len(ordered), top)[top or len(ordered) :], "", verdict(found)]


def changes_as_junit(found: Changes) -> str:
    """A test for each cell that both runs have, which fails where the cell got worse; skipped where neither run has a result."""
    return junit("nnbridge matrix --diff", [_case(change) for change in found.pairs])


def _case(change: CellChange) -> JunitCase:
    if change.worse:
        return JunitCase(change.new, "failure", "; ".join(change.worse))
    return JunitCase(change.new) if change.new.answered else JunitCase(change.new, "skipped", _answer(change.new))


def _moved(change: CellChange) -> list[str]:
    """A line for the operations of a type that moved alike."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for move in change.moves:
        groups.setdefault((plain_operation(move.type), move.before, move.after), []).append(move.name or str(move.index))
    return [
        f"{counted_kinds([kind] * len(names))} {_way(before, after)} [{_names(names)}]"
        for (kind, before, after), names in groups.items()
    ]


def _way(before: str, after: str) -> str:
    """The places that operations moved to, and why they are not, or were not, on the device."""
    if _GONE in (before, after):
        word, place = ("new", after) if before == _GONE else ("gone", before)
        return f"{word}, on the device" if place == _ON else f"{word}, not on the device: {place}"
    return f"left the device: {after}" if before == _ON else f"came to the device; before: {before}"


def verdict(found: Changes) -> str:
    """The answer in one line, with the first cells that got worse."""
    worse = found.worse
    gone = f" Missing from the new run: {', '.join(found.removed)}." if found.removed else ""
    if not worse:
        return f"Nothing got worse in {counted(found.compared, 'cell')}.{gone}"
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for change in worse:
        groups.setdefault((change.model, change.new.device, change.worse[0]), []).append(change.new)
    named = [f"{model} on {device}, {androids(cells)} ({why})" for (model, device, why), cells in groups.items()][:_FEW]
    more = f"; and {len(groups) - _FEW} more" if len(groups) > _FEW else ""
    return f"Worse: {len(worse)} of {counted(found.compared, 'cell')}: {'; '.join(named)}{more}.{gone}"


def _names(names: Sequence[str]) -> str:
    """The first name, shortened in its middle, and how many more there are."""
    name = names[0] if len(names[0]) <= _NAME else f"{names[0][: _NAME // 2]}…{names[0][-_NAME // 2 + 1 :]}"
    return name + (f" and {len(names) - 1} more" if len(names) > 1 else "")

"""Changes between two runs: of a driver's releases, a model's versions, or nnbridge's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nnbridge.errors import InputError, Reason
from nnbridge.matrix.cells import Cell
from nnbridge.matrix.tables import difference
from nnbridge.report.terminal import Table, counted

_ON = "device"
_GONE = "not in the model"


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


@dataclass(frozen=True)
class CellChange:
    """Two cells of one model that are not the same."""

    model: str
    level: int
    old: Cell
    new: Cell
    moves: tuple[Move, ...]

    @property
    def lines(self) -> list[str]:
        """The changed figures, one line each."""
        old, new = self.old, self.new
        if old.error or new.error:
            return [] if old.error == new.error else [f"{old.error or 'an answer'} → {new.error or 'an answer'}"]
        found = []
        for noun, before, after in (
            ("operations", old.operations, new.operations),
            ("operations on the device", old.on_device, new.on_device),
            ("partitions", old.partitions, new.partitions),
            ("bytes across borders", old.transfers, new.transfers),
            ("difference", difference(old), difference(new)),
        ):
            if before != after:
                if isinstance(before, int) and isinstance(after, int):
                    found.append(f"{noun} {before:,} → {after:,} ({after - before:+,})")
                else:
                    found.append(f"{noun} {before} → {after}")
        return found

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        cells = {
            which: {k: v for k, v in cell.as_dict().items() if k not in ("refused", "placed")} for which, cell in self._both()
        }
        return {"model": self.model, "level": self.level, **cells, "moves": [asdict(move) for move in self.moves]}

    def _both(self) -> list[tuple[str, Cell]]:
        return [("old", self.old), ("new", self.new)]


def changes(old: Sequence[Cell], new: Sequence[Cell]) -> list[CellChange]:
    """The differences by model, device and level. A run with one device is compared with another's one device.

    InputError where the runs have no cell in common.
    """
    devices = [list(dict.fromkeys(cell.device for cell in cells)) for cells in (old, new)]
    renamed = dict(zip(*devices, strict=True)) if all(len(names) == 1 for names in devices) else {}
    before = {(cell.model, renamed.get(cell.device, cell.device), cell.level): cell for cell in old}
    pairs = [(before[key], cell) for cell in new if (key := (cell.model, cell.device, cell.level)) in before]
    if not pairs:
        rule = "two runs with a model, device and level in common (FILE@DEVICE names the device of each)"
        raise InputError(Reason(rule, f"{', '.join(devices[0])} and {', '.join(devices[1])}", operand="diff"))
    found = [CellChange(new.model, new.level, old, new, _moves(old, new)) for old, new in pairs]
    return [change for change in found if change.moves or change.lines]


def _moves(old: Cell, new: Cell) -> tuple[Move, ...]:
    """Operations whose place, or the reason why it is not the device, changed. They are matched by type and name."""
    was, now = _places(old), _places(new)
    found = []
    for key, (index, after) in now.items():
        before = was.get(key, (0, _GONE))[1]
        if (before == _ON) != (after == _ON) or (before == _GONE):
            found.append(Move(index, key[0], key[1], before, after))
    found += [Move(index, key[0], key[1], before, _GONE) for key, (index, before) in was.items() if key not in now]
    return () if old.error or new.error else tuple(found)


def _places(cell: Cell) -> dict[tuple[str, str, int], tuple[int, str]]:
    """Type, name and number among those alike → index, and ``device`` or why not."""
    why = {index: reason for index, _, _, reason in cell.refused}
    seen: dict[tuple[str, str], int] = {}
    places: dict[tuple[str, str, int], tuple[int, str]] = {}
    for index, key in enumerate(cell.placed):
        number = seen[key] = seen.get(key, -1) + 1
        places[key[0], key[1], number] = (index, why.get(index, _ON))
    return places


def change_tables(found: Sequence[CellChange], compared: int) -> list[Table | str]:
    """Each change: its figures, then the operations that moved, alike ones together."""
    moved = sum(len(change.moves) for change in found)
    blocks: list[Table | str] = [
        f"{len(found)} of {counted(compared, 'cell')} changed, {counted(moved, 'operation')} changed device"
    ]
    for change in found:
        devices = " → ".join(dict.fromkeys((change.old.device, change.new.device)))
        title = f"{change.model} on {devices}, level {change.level}: {'; '.join(change.lines)}"
        groups: dict[tuple[str, str, str], list[str]] = {}
        for move in change.moves:
            groups.setdefault((move.type, move.before, move.after), []).append(move.name or str(move.index))
        rows = [(f"{kind}×{len(names)}", before, after, _names(names)) for (kind, before, after), names in groups.items()]
        blocks.append(Table(title, ("operations", "before", "after", "names"), rows, ruled=True) if rows else title)
    return blocks


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def as_dict(found: Sequence[CellChange], compared: int) -> Mapping[str, Any]:
    """JSON-ready."""
    return {"cells": compared, "changes": [change.as_dict() for change in found]}

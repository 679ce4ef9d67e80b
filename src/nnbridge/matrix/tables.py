"""A matrix as tables: on a terminal, as CSV, Markdown and JUnit XML. :mod:`nnbridge.matrix.page` makes the HTML page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias
from xml.etree import ElementTree

from nnbridge.devices.evidence import IDLE, NUMBERS_UNKNOWN, next_step
from nnbridge.matrix.cells import FAILED, INAPPLICABLE, NOT_COMPARED, Cell
from nnbridge.records import dataclass
from nnbridge.report.csv_text import csv_text
from nnbridge.report.terminal import Table, counted, printable
from nnbridge.types import android_name

_COLUMNS = (
    "model",
    "device",
    "level",
    "mapping",
    "operations",
    "on_device",
    "on_cpu",
    "on_host",
    "share",
    "macs",
    "mac_share",
    "partitions",
    "transfers",
    "reference",
    "passed",
    "within",
    "difference",
    "quantised",
    "time_ms",
    "estimated_ms",
    "fallback",
    "error",
    "inapplicable",
    "verdict",
)
OUTSIDE = ", outside tolerance"
UNKNOWN = NUMBERS_UNKNOWN.partition(" (")[0]
"""``numbers unknown``, where what they were computed as is said beside."""
Broken: TypeAlias = Mapping[int, Sequence[str]]
"""The limits that cells exceed, by the cell's position."""
_FEW = 3
"""Devices and models that a line has by name."""
_NOTHING = "-"
_MARKS = re.compile(r"[\\`*\[\]<>&|]")
"""What Markdown, or the HTML in it, reads as more than a character."""


def percent(share: float | None) -> str:
    """A share that is 0 or 100 % only if it is that."""
    if share is None:
        return _NOTHING
    if 0 < share < 0.01 or 0.99 < share < 1:
        return f"{share:.2%}" if 0.0001 <= share <= 0.9999 else ("<0.01%" if share < 0.5 else ">99.99%")
    return f"{share:.0%}"


def difference(cell: Cell) -> str:
    """A cell's largest difference from the reference, with a mark where it is outside tolerance; not of unknown numbers."""
    if cell.within is None:
        return "-"
    reserved = reservation(cell)
    if cell.within and reserved:
        return reserved
    text = f"{reserved}; as computed {_largest(cell)}" if reserved else _largest(cell)
    return text if cell.within else f"{text}{OUTSIDE}"


def reservation(cell: Cell) -> str:
    """The reason why a comparison says nothing of the cell's device, in short; empty where it does."""
    return IDLE if cell.idle else UNKNOWN if cell.unknown else ""


def verdict_words(cell: Cell) -> str:
    """A cell's verdict with its sign: ``✓ equal``, ``✕ off by 3 steps``, ``numbers unknown``."""
    reserved = reservation(cell)
    if cell.within:
        return reserved or f"✓ {_largest(cell)}"
    return f"✕ {reserved}; as computed, {_off(cell)}" if reserved else f"✕ {_off(cell)}"


def _off(cell: Cell) -> str:
    """The distance of a cell that is outside tolerance."""
    return f"off by {_largest(cell)}" if cell.difference else _largest(cell)


def _largest(cell: Cell) -> str:
    if cell.difference is None:
        return "no finite value"
    by = f" by {cell.passed_by}" if cell.passed_by else ""
    if cell.quantised and cell.difference:
        return f"{cell.difference:.3g} step{'' if cell.difference == 1 else 's'}{by}"
    return (f"{cell.difference:.3g}" if cell.difference else "equal") + by


def size(number: int) -> str:
    """Bytes to three digits."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= scale:
            return f"{number / scale:.3g} {unit}"
    return f"{number} B"


def placed(cell: Cell) -> str:
    """The share of operations on the device, and in how many partitions; or ``n/a``, ``failed``."""
    if not cell.answered:
        return cell.verdict
    return f"{percent(cell.share)} in {cell.partitions}" if cell.partitions else percent(cell.share)


def androids(cells: Sequence[Cell]) -> str:
    """``Android 10, 13``: the versions of cells."""
    names = list(dict.fromkeys(cell.android for cell in sorted(cells, key=lambda cell: cell.level)))
    return ", ".join([*names[:1], *(name.removeprefix("Android ") for name in names[1:])])


def summary(cells: Sequence[Cell]) -> str:
    """The whole in one sentence."""
    models, devices = (_one_or_count([getattr(cell, side) for cell in cells], side) for side in ("model", "device"))
    text = f"{models} on {devices}, {androids(cells)}: "
    text += f"{counted(len(cells), 'cell')}, {sum(cell.whole for cell in cells)} with every operation on the device"
    verdicts = Counter(cell.verdict for cell in cells)
    return "; ".join(
        [text, compared(verdicts), *(f"{verdicts[word]} {word}" for word in (INAPPLICABLE, FAILED) if verdicts[word])]
    )


def _one_or_count(names: Sequence[str], noun: str) -> str:
    return names[0] if len(set(names)) == 1 else counted(len(set(names)), noun)


def compared(verdicts: Mapping[str, int]) -> str:
    """The number of cells of each verdict on numbers, or that nothing was compared."""
    words = {"pass": "within tolerance", "FAIL": "outside tolerance", NUMBERS_UNKNOWN: NUMBERS_UNKNOWN, IDLE: f"with {IDLE}"}
    found = [f"{verdicts[verdict]} {word}" for verdict, word in words.items() if verdicts.get(verdict)]
    if found and verdicts.get(NOT_COMPARED):
        found.append(f"{verdicts[NOT_COMPARED]} {NOT_COMPARED}")
    return ", ".join(found) or NOT_COMPARED


_SHORT = 2
"""The exit status of commands for shortages."""


def judgement(cells: Sequence[Cell], broken: Broken) -> tuple[int, str]:
    """The exit status, which is not 0 for a build that fails, and why."""
    short = sum(cell.shortage for cell in cells)
    outside = [cell for cell in cells if cell.within is False]
    verdicts, counts = Counter(cell.verdict for cell in cells), Counter(cell.verdict for cell in outside)
    words = {NUMBERS_UNKNOWN: "as NNAPI's CPU computes", IDLE: f"with {IDLE}"}
    computed = "".join(f", {counts[verdict]} of them {word}" for verdict, word in words.items() if counts[verdict])
    complaints = [
        *([f"{counted(short, 'cell')} for which this machine lacked something (run it again)"] if short else []),
        *([f"{counted(verdicts[FAILED] - short, 'cell')} failed"] if verdicts[FAILED] > short else []),
        *([f"{len(outside)} outside tolerance{computed}"] if outside else []),
        *([f"{counted(sum(map(len, broken.values())), 'limit')} exceeded"] if broken else []),
    ]
    return _SHORT if short else int(bool(complaints)), "; ".join(complaints) or f"no cell failed; {compared(verdicts)}"


def ending(cells: Sequence[Cell], broken: Broken) -> str:
    """The exit status, and why: the last line of a long output."""
    status, text = judgement(cells, broken)
    return f"Exit status {status}: {text}."


def matrix_tables(
    cells: Sequence[Cell], broken: Broken = MappingProxyType({}), evidence: Sequence[str] = (), top: int = 0
) -> list[Table | str]:
    """Every cell, or where they are more than ``top`` (0: no limit) a row for each device and for each model; what does not
    apply, failed or exceeds a limit; the evidence of devices; the exit status."""
    every = not top or len(cells) <= top
    tables = [_every(cells)] if every else _by_side(cells, top)
    lists = (_failures(cells), [_exceeded(cells, broken, top)] if broken else [])
    rest = [line for lines in (_inapplicable(cells), lists[0], evidence) for line in first(lines, top)]
    leads = [f"Next: {next_step()}"] if any(cell.unknown and cell.within is not None for cell in cells) else []
    return [summary(cells), *tables, *lists[1], *rest, *leads, ending(cells, broken)]


def first(lines: Sequence[str], top: int) -> list[str]:
    """The first lines, and how many more there are."""
    if not top or len(lines) <= top:
        return list(lines)
    return [*lines[:top], _more(len(lines), top)]


def _more(number: int, top: int) -> str:
    return f"… and {number - top:,} more (--top {number})"


def _where(cells: Iterable[Cell]) -> str:
    """Devices and Android versions of cells."""
    members = list(cells)
    devices = list(dict.fromkeys(cell.device for cell in members))
    return f"{', '.join(devices) if len(devices) <= _FEW else counted(len(devices), 'device')}, {androids(members)}"


def _failures(cells: Sequence[Cell]) -> list[str]:
    """The failures, with equal ones of a model together."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.error:
            groups.setdefault((cell.model, cell.error), []).append(cell)
    return [f"Failed: {model} on {_where(members)}: {error}" for (model, error), members in groups.items()]


def _inapplicable(cells: Sequence[Cell]) -> list[str]:
    """Devices that do not apply to models, those with the same devices together."""
    devices: dict[str, dict[str, None]] = {}
    for cell in cells:
        if cell.inapplicable:
            devices.setdefault(cell.model, {})[cell.device] = None
    groups: dict[tuple[str, ...], list[str]] = {}
    for model, names in devices.items():
        groups.setdefault(tuple(names), []).append(model)
    return [
        f"n/a: {_some(models, 'model')} on {_some(names, 'device')}: for files of another format"
        for names, models in groups.items()
    ]


def _some(names: Sequence[str], noun: str) -> str:
    return ", ".join(names) if len(names) <= _FEW else counted(len(names), noun)


def exceeded(cells: Sequence[Cell], broken: Broken) -> list[tuple[str, str, str, str]]:
    """Model, device, Android versions and limit of what cells exceed; the same under several versions together."""
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for i, lines in broken.items():
        for line in lines:
            groups.setdefault((cells[i].model, cells[i].device, line), []).append(cells[i])
    return [(model, device, androids(members), line) for (model, device, line), members in groups.items()]


def _exceeded(cells: Sequence[Cell], broken: Broken, top: int) -> Table:
    rows = [(model, device, _plain_version(android), line) for model, device, android, line in exceeded(cells, broken)]
    shown = rows[:top] if top else rows
    more = _more(len(rows), top) if len(shown) < len(rows) else ""
    return Table("Budget exceeded", ("model", "device", "Android", "limit"), shown, more)


_SHOWN = ("model", "device", "Android", "on device", "work", "moved", "verdict", "largest", "ms", "est. ms")
_SUMMED = ("Android", "cells", "complete", "share", "outside", "unknown", "none", "n/a", "failed")
_MEANINGS = {
    "on device": "on device: operations, in how many partitions",
    "work": "work: multiply-adds",
    "moved": "moved: across partition borders",
    "complete": "complete: every operation on the device",
    "share": "share: of operations",
    "outside": "outside: tolerance, of those compared",
    "unknown": f"unknown: {NUMBERS_UNKNOWN}",
    "none": f"none: {IDLE}",
    "est. ms": "est. ms: estimated, not measured",
}
"""The captions of columns whose headings do not say it."""


def _table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], caption: Sequence[str] = (), known: Sequence[str] = ()
) -> Table:
    """A table without columns that have nothing in them, and without ``known`` ones: the summary has what they have.

    ``caption``: lines, of which names of columns stand for their meanings where the column is there.
    """
    kept = [k for k, name in enumerate(columns) if name not in known and any(row[k] != _NOTHING for row in rows)]
    names = [columns[k] for k in kept]
    said = [_MEANINGS[text] if text in names else text for text in caption if text in names or text not in _MEANINGS]
    return Table(title, names, [[row[k] for k in kept] for row in rows], "; ".join(said))


def _known(cells: Sequence[Cell]) -> list[str]:
    """Columns that have the same in every row, as the summary says."""
    values = {"Android": "level", "model": "model", "device": "device"}
    same = [column for column, name in values.items() if len({getattr(cell, name) for cell in cells}) == 1]
    return same if any(cell.within is not None for cell in cells) else [*same, "outside"]


def _every(cells: Sequence[Cell]) -> Table:
    rows: dict[tuple[str, ...], list[str]] = {}
    for cell in cells:
        rows.setdefault((cell.model, cell.device, *_row(cell)), []).append(_version(cell))
    merged = [(model, device, ", ".join(versions), *figures) for (model, device, *figures), versions in rows.items()]
    meaning = list(_MEANINGS)
    meaning += [NUMBERS_UNKNOWN] if any(cell.unknown for cell in cells) else []
    return _table("", _SHOWN, merged, meaning, [] if len(cells) == 1 else _known(cells))


def _row(cell: Cell) -> tuple[str, ...]:
    if not cell.answered:
        return cell.verdict, *(_NOTHING,) * 6
    counts = f"{cell.on_device}/{cell.operations}" + (f" in {cell.partitions}" if cell.partitions else "")
    times = (_NOTHING if ms is None else f"{ms:.3g}" for ms in (cell.time_ms, cell.estimated_ms))
    moved = size(cell.transfers) if cell.transfers else _NOTHING
    reserved = reservation(cell)
    verdict = _NOTHING if cell.within is None else reserved or cell.verdict
    largest = _NOTHING if cell.within is None or (cell.within and reserved) else _largest(cell)
    largest = f"{largest} outside" if cell.within is False and reserved else largest
    return counts, percent(cell.mac_share), moved, verdict, largest, *times


def _version(cell: Cell) -> str:
    return _plain_version(cell.android)


def _plain_version(name: str) -> str:
    return name.removeprefix("Android ")


def _by_side(cells: Sequence[Cell], top: int) -> list[Table]:
    """A row for each device, and one for each model, of which there are several; the longer side first."""
    sides = [("device", {cell.device for cell in cells}), ("model", {cell.model for cell in cells})]
    sides.sort(key=lambda side: -len(side[1]))
    shown = [name for name, names in sides if len(names) > 1] or ["device"]
    meanings = [*_MEANINGS, "each cell: --top 0, --csv, --html"]
    return [_by(name, cells, top, meanings if name == shown[-1] else []) for name in shown]


def _by(side: str, cells: Sequence[Cell], top: int, caption: Sequence[str]) -> Table:
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((getattr(cell, side), _version(cell)), []).append(cell)
    found = list(groups.items())
    if top and len(found) > top:
        found.sort(key=lambda group: _badness(group[1]), reverse=True)
        caption = [f"the worst first, {_more(len(found), top)}", *caption]
    rows: dict[tuple[str, ...], list[str]] = {}
    for (name, version), members in found[:top] if top else found:
        rows.setdefault((name, *_counts(members)), []).append(version)
    merged = [(name, ", ".join(versions), *figures) for (name, *figures), versions in rows.items()]
    return _table(f"By {side}", (side, *_SUMMED), merged, caption, _known(cells))


def _badness(cells: Sequence[Cell]) -> tuple[int, int, float]:
    return sum(bool(cell.error) for cell in cells), sum(cell.within is False for cell in cells), -_share(cells)


def _share(cells: Sequence[Cell]) -> float:
    return sum(cell.on_device for cell in cells) / max(1, sum(cell.operations for cell in cells))


def _counts(cells: Sequence[Cell]) -> tuple[str, ...]:
    """The figures of a device or a model."""
    done = [cell for cell in cells if cell.answered]
    verdicts = Counter(cell.verdict for cell in cells)
    known = [cell for cell in done if cell.within is not None and not reservation(cell)]
    numbers = f"{sum(not cell.within for cell in known)} of {len(known)}" if known else _NOTHING
    if verdicts[NOT_COMPARED] and verdicts[NOT_COMPARED] == len(done) - verdicts[IDLE]:
        numbers = NOT_COMPARED
    unclear = (_reserved([cell for cell in done if cell.verdict == verdict]) for verdict in (NUMBERS_UNKNOWN, IDLE))
    others = (str(verdicts[word] or _NOTHING) for word in (INAPPLICABLE, FAILED))
    share = percent(_share(done)) if done else _NOTHING
    return str(len(cells)), str(sum(cell.whole for cell in done)), share, numbers, *unclear, *others


def _reserved(cells: Sequence[Cell]) -> str:
    outside = sum(cell.within is False for cell in cells)
    return f"{len(cells) or _NOTHING}" + (f" ({outside} outside)" if outside else "")


@dataclass(frozen=True)
class Grid:
    """The cells of one Android version as rows and columns: the longer side down."""

    level: int
    side: str
    """What a row is: ``model``, or ``device`` where there are more devices than models."""
    rows: list[str]
    columns: list[str]
    cells: Mapping[tuple[str, str], int]
    """Row and column → position of the cell."""


def grids(cells: Sequence[Cell]) -> list[Grid]:
    """A grid for each Android version, all with the same side down."""
    count = {side: len({getattr(cell, side) for cell in cells}) for side in ("model", "device")}
    side, other = ("device", "model") if count["device"] > count["model"] else ("model", "device")
    found = []
    for level in dict.fromkeys(cell.level for cell in cells):
        here = {(getattr(c, side), getattr(c, other)): i for i, c in enumerate(cells) if c.level == level}
        rows, columns = ([*dict.fromkeys(key[k] for key in here)] for k in (0, 1))
        found.append(Grid(level, side, rows, columns, here))
    return found


def as_csv(cells: Sequence[Cell]) -> str:
    """A row for each cell."""
    return csv_text([_COLUMNS, *([cell.as_dict()[column] for column in _COLUMNS] for cell in cells)])


def as_markdown(cells: Sequence[Cell], broken: Broken = MappingProxyType({}), evidence: Sequence[str] = ()) -> str:
    """A table for each Android version, the longer side of models and devices down; limits exceeded, failures, evidence."""
    lines = ["### Models on devices", "", f"{_plain(summary(cells))}.", ""]
    for grid in grids(cells):
        lines += [
            android_name(grid.level),
            "",
            _line([grid.side, *map(_plain, grid.columns)]),
            _line(["---", *("--:" for _ in grid.columns)]),
        ]
        for row in grid.rows:
            found = (grid.cells.get((row, column)) for column in grid.columns)
            lines.append(_line([_plain(row), *("" if i is None else _short(cells[i], broken.get(i, ())) for i in found)]))
        lines.append("")
    limits = [
        f"Budget exceeded ({android}): {model} on {device}: {line}" for model, device, android, line in exceeded(cells, broken)
    ]
    lines += [f"- {_plain(line)}" for line in (*limits, *_failures(cells), *_inapplicable(cells), *evidence)]
    return "\n".join([*lines, "", ending(cells, broken), ""])


def limit_lines(cells: Sequence[Cell], broken: Broken) -> list[str]:
    """A line for each limit that a cell exceeds."""
    return [f"{cells[i].model} on {cells[i].device}, {cells[i].android}: {line}" for i, lines in broken.items() for line in lines]


def _line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _plain(name: str) -> str:
    """A name as text of Markdown."""
    return _MARKS.sub(lambda found: f"\\{found[0]}", printable(name))


def _short(cell: Cell, broken: Sequence[str]) -> str:
    if not cell.answered:
        return cell.verdict
    unknown = [reservation(cell)] if reservation(cell) else []
    differs = [_off(cell)] if cell.within is False else []
    limits = [counted(len(broken), "limit") + " exceeded"] if broken else []
    return ", ".join([placed(cell), *unknown, *differs, *limits, *figures(cell)])


def figures(cell: Cell) -> list[str]:
    """The figures of a cell beside shares and partitions: multiply-adds where their share is another, bytes, times."""
    return [
        *([f"{percent(cell.mac_share)} of multiply-adds"] if cell.mac_share not in (None, cell.share) else []),
        *([f"{size(cell.transfers)} moved"] if cell.transfers else []),
        *([f"{cell.time_ms:.3g} ms here"] if cell.time_ms is not None else []),
        *([f"about {cell.estimated_ms:.3g} ms"] if cell.estimated_ms is not None else []),
    ]


@dataclass(frozen=True)
class JunitCase:
    """A cell as a test of JUnit."""

    cell: Cell
    outcome: str = ""
    """``error``, ``failure`` or ``skipped``; empty for a test that passed."""
    message: str = ""


def as_junit(cells: Sequence[Cell], broken: Broken) -> str:
    """A test suite for each device; failures are limits exceeded and differences, errors are cells that failed, and what does
    not apply, does not run on the device, or was compared on unknown numbers, is skipped."""
    return junit("nnbridge matrix", [_case(cell, broken.get(i, [])) for i, cell in enumerate(cells)])


_TOTALS = {"error": "errors", "failure": "failures", "skipped": "skipped"}
"""Outcome → the attribute of a suite that counts it."""


def junit(title: str, cases: Sequence[JunitCase]) -> str:
    """JUnit XML with a suite for each device."""
    suites: dict[str, list[JunitCase]] = {}
    for case in cases:
        suites.setdefault(case.cell.device, []).append(case)
    root = ElementTree.Element("testsuites", name=title)
    for device, members in suites.items():
        numbers = Counter(case.outcome for case in members)
        counts = {"tests": len(members), **{total: numbers[outcome] for outcome, total in _TOTALS.items()}}
        attributes = {"name": printable(device), **{key: str(number) for key, number in counts.items()}}
        suite = ElementTree.SubElement(root, "testsuite", attributes)
        for case in members:
            names = {"classname": printable(f"{device}.{case.cell.android}"), "name": printable(case.cell.model)}
            test = ElementTree.SubElement(suite, "testcase", names)
            if case.outcome:
                ElementTree.SubElement(test, case.outcome, message=printable(case.message))
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def _case(cell: Cell, broken: Sequence[str]) -> JunitCase:
    if cell.error:
        return JunitCase(cell, "error", cell.error)
    if cell.inapplicable:
        return JunitCase(cell, "skipped", cell.inapplicable)
    complaints = _complaints(cell, broken)
    if complaints:
        return JunitCase(cell, "failure", "; ".join(complaints))
    compared = cell.idle or cell.within is not None  # Without a reference the test is of the placement.
    return JunitCase(cell, "skipped", reserved) if compared and (reserved := reservation(cell)) else JunitCase(cell)


def _complaints(cell: Cell, broken: Sequence[str]) -> list[str]:
    reserved = f" ({reservation(cell)}; as computed)" if reservation(cell) else ""
    differs = f"outside tolerance of {cell.reference}: {_off(cell)}{reserved}"
    return [*([differs] if cell.within is False else []), *broken]

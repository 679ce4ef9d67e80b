"""A matrix as tables: on a terminal, as CSV, Markdown and JUnit XML. :mod:`nnbridge.matrix.page` makes the HTML page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree

from nnbridge.matrix.cells import Cell
from nnbridge.report.csv_text import csv_text
from nnbridge.report.terminal import Table, counted, printable

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
    "difference",
    "quantised",
    "time_ms",
    "estimated_ms",
    "fallback",
    "error",
)
OUTSIDE = ", outside tolerance"
_MOST_ROWS = 60
"""Cells that are listed one by one on a terminal."""
_FEW = 3
"""Devices that a failure is listed with by name."""
_MARKS = re.compile(r"[\\`*\[\]<>&|]")
"""What Markdown, or the HTML in it, reads as more than a character."""


def percent(share: float | None) -> str:
    """A share that is 0 or 100 % only if it is that."""
    if share is None:
        return "-"
    if 0 < share < 0.01 or 0.99 < share < 1:
        return f"{share:.2%}" if 0.0001 <= share <= 0.9999 else ("<0.01%" if share < 0.5 else ">99.99%")
    return f"{share:.0%}"


def difference(cell: Cell) -> str:
    """A cell's largest difference from the reference, with a mark where it is outside tolerance."""
    if cell.passed is None:
        return "-"
    if cell.difference is None:
        return "no finite value"
    text = "equal" if cell.difference == 0 else f"{cell.difference:.3g}" + (" steps" if cell.quantised else "")
    text += f", by {cell.passed_by}: {'pass' if cell.passed else 'FAIL'}" if cell.passed_by else ""
    return text if cell.passed else f"{text}{OUTSIDE}"


def size(number: int) -> str:
    """Bytes to three digits."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= scale:
            return f"{number / scale:.3g} {unit}"
    return f"{number} B"


def summary(cells: Sequence[Cell]) -> str:
    """The whole in one sentence."""
    models, devices = ({getattr(cell, key) for cell in cells} for key in ("model", "device"))
    errors = sum(bool(cell.error) for cell in cells)
    compared = [cell for cell in cells if cell.passed is not None]
    whole = sum(not cell.error and cell.on_device == cell.operations for cell in cells)
    text = f"{counted(len(models), 'model')} on {counted(len(devices), 'device')}: {counted(len(cells), 'cell')}"
    text += f", {whole} with every operation on the device"
    if compared:
        text += f", {sum(cell.passed is True for cell in compared)} of {len(compared)} within tolerance"
    return text + (f", {errors} failed" if errors else "")


def matrix_tables(cells: Sequence[Cell]) -> list[Table | str]:
    """Every cell, or a row for each device where they are many; then what failed."""
    table = _every(cells) if len(cells) <= _MOST_ROWS else _by_device(cells)
    return [summary(cells), table, *_failures(cells)]


def _failures(cells: Sequence[Cell]) -> list[str]:
    """What failed, alike failures of a model together."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.error:
            groups.setdefault((cell.model, cell.error), []).append(cell)
    lines = []
    for (model, error), members in groups.items():
        devices = list(dict.fromkeys(cell.device for cell in members))
        where = ", ".join(devices) if len(devices) <= _FEW else counted(len(devices), "device")
        lines.append(f"Failed: {model} on {where}: {error}")
    return lines


_SHOWN = ("model", "device", "level", "on device", "multiply-adds", "partitions", "transfers", "difference", "ms", "estimate")


def _every(cells: Sequence[Cell]) -> Table:
    return Table("", _SHOWN, [_row(cell) for cell in cells])


def _row(cell: Cell) -> tuple[str, ...]:
    start = (cell.model, cell.device, str(cell.level))
    if cell.error:
        return *start, "failed", *("-",) * 6
    counts = f"{cell.on_device}/{cell.operations}"
    times = ("-" if ms is None else f"{ms:.3g}" for ms in (cell.time_ms, cell.estimated_ms))
    moved = size(cell.transfers) if cell.transfers else "-"
    return *start, counts, percent(cell.mac_share), str(cell.partitions), moved, difference(cell), *times


def _by_device(cells: Sequence[Cell]) -> Table:
    groups: dict[tuple[str, int], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.device, cell.level), []).append(cell)
    rows = []
    for (device, level), members in groups.items():
        done = [cell for cell in members if not cell.error]
        whole = sum(cell.on_device == cell.operations for cell in done)
        share = sum(cell.on_device for cell in done) / max(1, sum(cell.operations for cell in done))
        beyond = sum(cell.passed is False for cell in done)
        rows.append(
            (device, str(level), *map(str, (len(done), whole)), percent(share), str(beyond), str(len(members) - len(done)))
        )
    columns = ("device", "level", "models", "fully on device", "operations", "outside tolerance", "failed")
    return Table("By device", columns, rows, "fully on device: every operation; --csv and --html have each cell")


def as_csv(cells: Sequence[Cell]) -> str:
    """A row for each cell."""
    return csv_text([_COLUMNS, *([cell.as_dict()[column] for column in _COLUMNS] for cell in cells)])


def as_markdown(cells: Sequence[Cell]) -> str:
    """A table for each level: a row for each model, a column for each device."""
    lines = ["### Models on devices", "", summary(cells) + ".", ""]
    for level in dict.fromkeys(cell.level for cell in cells):
        here = {(cell.model, cell.device): cell for cell in cells if cell.level == level}
        devices = list(dict.fromkeys(device for _, device in here))
        lines += [
            f"Feature level {level}",
            "",
            _line(["model", *map(_plain, devices)]),
            _line(["---", *("--:" for _ in devices)]),
        ]
        for model in dict.fromkeys(model for model, _ in here):
            lines.append(_line([_plain(model), *(_short(here.get((model, device))) for device in devices)]))
        lines.append("")
    return "\n".join(lines)


def _line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _plain(name: str) -> str:
    """A name as text of Markdown."""
    return _MARKS.sub(lambda found: f"\\{found[0]}", printable(name))


def _short(cell: Cell | None) -> str:
    if cell is None:
        return ""
    if cell.error:
        return "failed"
    differs = [f"differs by {difference(cell).removesuffix(OUTSIDE)}"] if cell.passed is False else []
    return ", ".join([f"{percent(cell.share)} in {cell.partitions}", *differs, *figures(cell)])


def figures(cell: Cell) -> list[str]:
    """What a cell has beside shares and partitions: multiply-adds where their share is another, bytes, times."""
    return [
        *([f"{percent(cell.mac_share)} of multiply-adds"] if cell.mac_share not in (None, cell.share) else []),
        *([f"{size(cell.transfers)} moved"] if cell.transfers else []),
        *([f"{cell.time_ms:.3g} ms here"] if cell.time_ms is not None else []),
        *([f"about {cell.estimated_ms:.3g} ms"] if cell.estimated_ms is not None else []),
    ]


def as_junit(cells: Sequence[Cell], broken: dict[int, list[str]]) -> str:
    """A test suite for each device; failures are broken limits and differences, errors are cells that failed.

    ``broken``: limits that a cell breaks, by its position.
    """
    root = ElementTree.Element("testsuites", name="nnbridge matrix")
    for device in dict.fromkeys(cell.device for cell in cells):
        members = [(i, cell) for i, cell in enumerate(cells) if cell.device == device]
        found = {i: _complaints(cell, broken.get(i, [])) for i, cell in members}
        numbers = Counter("errors" if cell.error else "failures" for i, cell in members if cell.error or found[i])
        counts = {"tests": len(members), "errors": numbers["errors"], "failures": numbers["failures"]}
        attributes = {"name": printable(device), **{key: str(number) for key, number in counts.items()}}
        suite = ElementTree.SubElement(root, "testsuite", attributes)
        for i, cell in members:
            names = {"classname": printable(f"{device}.level {cell.level}"), "name": printable(cell.model)}
            case = ElementTree.SubElement(suite, "testcase", names)
            if cell.error:
                ElementTree.SubElement(case, "error", message=printable(cell.error))
            elif found[i]:
                ElementTree.SubElement(case, "failure", message=printable("; ".join(found[i])))
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def _complaints(cell: Cell, broken: list[str]) -> list[str]:
    return [*([f"differs from {cell.reference} by {difference(cell)}"] if cell.passed is False else []), *broken]

"""A matrix as one HTML page that needs nothing else: no request, and no script but its own, which filters and sorts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.resources import files
from types import MappingProxyType
from typing import TypeAlias

from nnbridge import __version__
from nnbridge.devices.evidence import Evidence
from nnbridge.escaping import Markup, Part, element, page
from nnbridge.extensions import plain_operation
from nnbridge.matrix.cells import Cell
from nnbridge.matrix.tables import (
    UNKNOWN,
    Broken,
    Grid,
    exceeded,
    figures,
    grids,
    judgement,
    percent,
    placed,
    reservation,
    size,
    summary,
    verdict_words,
)
from nnbridge.report.terminal import counted
from nnbridge.types import android_name

_MOST_REASONS = 60
_LONG_WORD = 16
"""Characters of a name that goes to the next line as a whole."""
_MOST_KINDS = 5
"""Kinds of operations, and devices, that a row names."""
_Known: TypeAlias = "Mapping[str, tuple[str, Evidence]]"
"""Device → where the page has its evidence, and the evidence."""
_UNANSWERED = {"n/a": -1.0, "failed": -2.0}
"""What a column is sorted by where a cell has no share."""


def as_html(
    cells: Sequence[Cell],
    broken: Broken = MappingProxyType({}),
    evidence: Sequence[Evidence] = (),
    reports: Mapping[int, str] = MappingProxyType({}),
) -> str:
    """The page: a table for each Android version with the longer side of models and devices down, what failed, why operations
    stay off the devices, the evidence of the devices.

    ``reports``: the address of each cell's report, by the cell's position.
    """
    known = {each.device: (f"device-{number}", each) for number, each in enumerate(evidence)}
    failing, text = judgement(cells, broken)
    main = element(
        "main",
        element("h1", "Models on devices"),
        element("p", f"{summary(cells)}."),
        element("p", f"{text[:1].upper()}{text[1:]}.", class_="judgement bad" if failing else "judgement good"),
        *_legend(cells),
        *(_level(grid, cells, broken, known, reports) for grid in grids(cells)),
        *_complaints(cells, broken),
        *_reasons(cells),
        *_evidence(known),
        element("footer", f"Made by nnbridge {__version__}"),
    )
    style, script = ((files(__package__) / f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
    return page("Models on devices", style, main, script=script)


def _name(text: str) -> list[Part]:
    """A text whose long names break after their separators, and no other."""
    return [part for word in re.split(r"(\s+)", text) if word for part in _word(word)]


def _word(word: str) -> list[Part]:
    if len(word) <= _LONG_WORD:
        return [element("span", word, class_="word") if "-" in word else word]
    first, *rest = re.split(r"(?<=[_/+-])(?=\w)|(?<=\.)(?=[A-Za-z])", word)
    return [first, *(part for piece in rest for part in (element("wbr"), piece))]


def _legend(cells: Sequence[Cell]) -> list[Markup]:
    estimated = (
        "Estimates are shown for devices that have a cost model."
        if any(cell.estimated_ms is not None for cell in cells)
        else "No time is estimated: none of these devices has a cost model."
    )
    text = (
        "Each cell: share of operations on the device, and in how many partitions; the largest difference from the reference, "
        "where one was asked for; the share of multiply-adds, if different; bytes that cross borders; times. "
        f"{estimated} n/a: the device is for files of another format."
    )
    shades = ("0\xa0%", "to 50\xa0%", "to 90\xa0%", "below 100\xa0%", "100\xa0%")
    spans = (element("span", shade, class_=f"s{i}") for i, shade in enumerate(shades))
    return [element("p", text), element("p", *spans, class_="legend", aria_hidden="true")]


def _level(grid: Grid, cells: Sequence[Cell], broken: Broken, known: _Known, reports: Mapping[int, str]) -> Markup:
    other = "device" if grid.side == "model" else "model"
    head = (element("th", *_linked(column, known), scope="col") for column in grid.columns)
    rows = []
    for row in grid.rows:
        found = ((column, grid.cells.get((row, column))) for column in grid.columns)
        boxes = (_box(column, i, cells, broken, reports) for column, i in found)
        rows.append(element("tr", element("th", *_linked(row, known), scope="row"), *boxes))
    table = element(
        "table",
        element("caption", f"A row for each {grid.side}, a column for each {other}"),
        element("thead", element("tr", element("th", grid.side, scope="col"), *head)),
        element("tbody", *rows),
        class_="grid",
    )
    return _section(android_name(grid.level), table)


def _linked(name: str, known: _Known) -> list[Part]:
    """A model's name; a device's, each part of a pair, with a link to its evidence, and whether its numbers are emulated."""
    if not all(part in known for part in name.split("+")):
        return _name(name)
    found = [(part, *known[part]) for part in name.split("+")]
    links = [element("a", *_name(part), href=f"#{anchor}", title=each.clause) for part, anchor, each in found]
    unknown = any(not each.emulated for _, _, each in found)
    return [*[part for link in links for part in (" + ", link)][1:], element("small", UNKNOWN if unknown else "numbers emulated")]


def _section(title: str, table: Markup) -> Markup:
    box = element("div", table, class_="wide", tabindex="0", role="region", aria_label=title)
    return element("section", element("h2", title), box)


def _box(column: str, number: int | None, cells: Sequence[Cell], broken: Broken, reports: Mapping[int, str]) -> Markup:
    if number is None:
        return element("td", data_l=column)
    cell = cells[number]
    if not cell.answered:
        why, kind = (cell.error, "bad") if cell.error else (cell.inapplicable, "na")
        return element("td", cell.verdict, class_=kind, title=why, data_l=column, data_v=str(_UNANSWERED[cell.verdict]))
    counts = f"{cell.on_device} of {counted(cell.operations, 'operation')} in {counted(cell.partitions, 'partition')}"
    moved = [f"{size(cell.transfers)} across borders"] if cell.transfers else []
    work = [] if cell.mac_share is None else [f"{percent(cell.mac_share)} of multiply-adds"]
    title = "; ".join([counts, *work, *moved, *broken.get(number, ()), *([cell.fallback] if cell.fallback else [])])
    share: Part = placed(cell)
    inside: list[Part] = [element("a", share, href=reports[number]) if number in reports else share]
    if number in broken:
        inside.append(element("small", f"✕ {counted(len(broken[number]), 'limit')} exceeded", class_="bad"))
    if cell.within is not None:
        inside.append(element("small", verdict_words(cell), class_=_kind(cell)))
    inside += (element("small", line) for line in figures(cell))
    return element("td", *inside, class_=f"s{_shade(cell)}", title=title, data_l=column, data_v=f"{cell.share:.6f}")


def _kind(cell: Cell) -> str:
    return "bad" if not cell.within else "unknown" if reservation(cell) else "good"


def _shade(cell: Cell) -> int:
    """0: nothing on the device, 4: everything."""
    if cell.on_device in (0, cell.operations):
        return 4 if cell.on_device else 0
    return 1 + (cell.share > 0.5) + (cell.share > 0.9)


def _complaints(cells: Sequence[Cell], broken: Broken) -> Iterator[Markup]:
    failed = {i: [cell.error] for i, cell in enumerate(cells) if cell.error}
    alike: dict[tuple[str, str, str], dict[str, None]] = {}
    for model, device, android, what in (*exceeded(cells, failed), *exceeded(cells, broken)):
        alike.setdefault((model, android, what), {})[device] = None
    if alike:
        asked = len({cell.device for cell in cells})
        rows = [(model, _devices(devices, asked), android, what) for (model, android, what), devices in alike.items()]
        yield _table("Failures and limits exceeded", ("model", "devices", "Android", "what"), rows)


def _reasons(cells: Sequence[Cell]) -> Iterator[Markup]:
    """A row for each reason, with the devices and the operations that it keeps off them; the most frequent first."""
    counts: dict[str, Counter[str]] = {}
    devices: dict[str, dict[str, None]] = {}
    models: dict[str, set[str]] = {}
    for cell in cells:
        for _, kind, _, why in cell.refused:
            counts.setdefault(why, Counter())[plain_operation(kind)] += 1
            devices.setdefault(why, {})[cell.device] = None
            models.setdefault(why, set()).add(cell.model)
    if counts:
        frequent = sorted(counts, key=lambda why: -counts[why].total())
        asked = len({cell.device for cell in cells})
        rows = [
            (why, _listed(counts[why]), _devices(devices[why], asked), f"{counts[why].total():,}", f"{len(models[why]):,}")
            for why in frequent[:_MOST_REASONS]
        ]
        columns = ("why", "operations", "devices", "count", "models")
        yield _table("Why operations are not on the device", columns, rows)
        if len(counts) > _MOST_REASONS:
            yield element("p", f"{len(counts) - _MOST_REASONS:,} more reasons are in the JSON.")


def _devices(names: Collection[str], asked: int) -> str:
    """The names of devices; of many the first ones."""
    if len(names) <= _MOST_KINDS:
        return ", ".join(names)
    if len(names) == asked:
        return f"all {asked:,} devices"
    return f"{', '.join([*names][:_MOST_KINDS])} and {len(names) - _MOST_KINDS:,} more"


def _listed(kinds: Counter[str]) -> str:
    """Kinds of operations with their counts, the most frequent first."""
    named = [kind if count == 1 else f"{kind}\xa0×\xa0{count:,}" for kind, count in kinds.most_common(_MOST_KINDS)]
    return ", ".join(named) + (f" and {len(kinds) - _MOST_KINDS:,} more" if len(kinds) > _MOST_KINDS else "")


def _evidence(known: _Known) -> Iterator[Markup]:
    if known:
        evidence = [each for _, each in known.values()]
        texts = [(each.verified.removeprefix("verified: "), each.numbers.removeprefix("numbers ")) for each in evidence]
        rows = [(each.device, each.rules, *text) for each, text in zip(evidence, texts, strict=True)]
        columns = ("device", "rules", "verified", "numbers")
        anchors = [anchor for anchor, _ in known.values()]
        yield _table("Evidence: where each device's rules and numbers come from", columns, rows, anchors)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], anchors: Sequence[str] = ()) -> Markup:
    head = (element("th", column, scope="col") for column in columns)
    body = []
    for number, row in enumerate(rows):
        # Phones show the column of a cell beside it.
        boxes = (element("td", *_name(text), data_l=column) for column, text in zip(columns, row, strict=True))
        body.append(element("tr", *boxes, **({"id": anchors[number]} if anchors else {})))
    table = element("table", element("thead", element("tr", *head)), element("tbody", *body), class_="plain")
    return _section(title, table)

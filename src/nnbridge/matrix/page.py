"""A matrix as one HTML page that needs nothing else: no script, no request."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.resources import files

from nnbridge import __version__
from nnbridge.escaping import Markup, Part, element, page
from nnbridge.matrix.cells import Cell
from nnbridge.matrix.tables import OUTSIDE, difference, figures, percent, size, summary
from nnbridge.report.terminal import counted

_MOST_REASONS = 60


def as_html(cells: Sequence[Cell], broken: dict[int, list[str]]) -> str:
    """The page: a table for each feature level, what failed, why operations stay off the devices."""
    main = element(
        "main",
        element("h1", "Models on devices"),
        element("p", f"{summary(cells)}."),
        *_legend(cells),
        *(_level(level, cells, broken) for level in dict.fromkeys(cell.level for cell in cells)),
        *_complaints(cells, broken),
        *_reasons(cells),
        element("footer", f"Made by nnbridge {__version__}"),
    )
    return page("Models on devices", (files(__package__) / "page.css").read_text(), main)


def _name(text: str) -> list[Part]:
    """A name that breaks after its separators."""
    first, *rest = re.split(r"(?<=[_./-])(?=\w)", text)
    return [first, *(part for piece in rest for part in (element("wbr"), piece))]


def _legend(cells: Sequence[Cell]) -> list[Markup]:
    estimated = (
        "Estimates are shown for devices that have a cost model."
        if any(cell.estimated_ms is not None for cell in cells)
        else "No time is estimated: none of these devices has a cost model."
    )
    text = (
        "Each cell: share of operations on the device, and in how many partitions; below it the largest difference from the "
        "reference, where one was asked, the share of multiply-adds if it is different, bytes that cross borders, measured and "
        f"estimated times. {estimated} The host is what computes operations that are not handed to NNAPI."
    )
    shades = ("0\xa0%", "to 50\xa0%", "to 90\xa0%", "below 100\xa0%", "100\xa0%")
    spans = (element("span", shade, class_=f"s{i}") for i, shade in enumerate(shades))
    return [element("p", text), element("p", *spans, class_="legend", aria_hidden="true")]


def _level(level: int, cells: Sequence[Cell], broken: dict[int, list[str]]) -> Markup:
    here = {(cell.model, cell.device): (i, cell) for i, cell in enumerate(cells) if cell.level == level}
    devices = list(dict.fromkeys(device for _, device in here))
    head = (element("th", element("span", device), scope="col") for device in devices)
    rows = [
        element("tr", element("th", *_name(model), scope="row"), *(_box(here.get((model, device)), broken) for device in devices))
        for model in dict.fromkeys(model for model, _ in here)
    ]
    table = element(
        "table",
        element("caption", "Share of operations on each device"),
        element("thead", element("tr", element("td"), *head)),
        element("tbody", *rows),
    )
    return _section(f"Feature level {level}", table)


def _section(title: str, table: Markup) -> Markup:
    box = element("div", table, class_="wide", tabindex="0", role="region", aria_label=title)
    return element("section", element("h2", title), box)


def _box(found: tuple[int, Cell] | None, broken: dict[int, list[str]]) -> Markup:
    if found is None:
        return element("td")
    number, cell = found
    if cell.error:
        return element("td", "failed", class_="bad", title=cell.error)
    moved = f"; {size(cell.transfers)} across borders" if cell.transfers else ""
    work = "" if cell.mac_share is None else f"; {percent(cell.mac_share)} of multiply-adds"
    counts = f"{cell.on_device} of {counted(cell.operations, 'operation')} in {counted(cell.partitions, 'partition')}"
    limits = "".join(f"; {line}" for line in broken.get(number, ()))
    inside: list[Part] = [f"{percent(cell.share)} in {cell.partitions}"]
    if number in broken:
        inside += [" ", element("b", "✕ limit", class_="bad")]
    if cell.passed is not None:
        kind, sign = ("good", "✓") if cell.passed else ("bad", "✕")
        inside.append(element("small", f"{sign} {difference(cell).removesuffix(OUTSIDE)}", class_=kind))
    inside += (element("small", line) for line in figures(cell))
    title = counts + work + moved + limits + (f"; {cell.fallback}" if cell.fallback else "")
    return element("td", *inside, class_=f"s{_shade(cell)}", title=title)


def _shade(cell: Cell) -> int:
    """0: nothing on the device, 4: everything."""
    if cell.on_device in (0, cell.operations):
        return 4 if cell.on_device else 0
    return 1 + (cell.share > 0.5) + (cell.share > 0.9)


def _complaints(cells: Sequence[Cell], broken: dict[int, list[str]]) -> Iterator[Markup]:
    rows = [
        (cell.model, cell.device, str(cell.level), "; ".join([cell.error] if cell.error else broken.get(i, [])))
        for i, cell in enumerate(cells)
        if cell.error or i in broken
    ]
    if rows:
        yield _table("Failures and broken limits", ("model", "device", "level", "what"), rows)


def _reasons(cells: Sequence[Cell]) -> Iterator[Markup]:
    counts: Counter[tuple[str, str, str]] = Counter()
    models: dict[tuple[str, str, str], set[str]] = {}
    for cell in cells:
        for _, kind, _, why in cell.refused:
            key = cell.device, kind, why
            counts[key] += 1
            models.setdefault(key, set()).add(cell.model)
    if counts:
        rows = [(*key, str(number), str(len(models[key]))) for key, number in counts.most_common(_MOST_REASONS)]
        yield _table("Why operations are not on the device", ("device", "operation", "why", "operations", "models"), rows)
        if len(counts) > _MOST_REASONS:
            yield element("p", f"{len(counts) - _MOST_REASONS:,} more reasons are in the JSON.")


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    head = (element("th", column, scope="col") for column in columns)
    # Phones show the column of a cell beside it.
    body = (
        element("tr", *(element("td", text, data_l=column) for column, text in zip(columns, row, strict=True))) for row in rows
    )
    table = element("table", element("thead", element("tr", *head)), element("tbody", *body), class_="plain")
    return _section(title, table)

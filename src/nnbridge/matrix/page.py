"""A matrix as one HTML page that needs nothing else: no script, no request."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from nnbridge import __version__
from nnbridge.matrix.cells import Cell
from nnbridge.matrix.tables import OUTSIDE, difference, figures, percent, size, summary
from nnbridge.report.terminal import counted, printable

_MOST_REASONS = 60


def as_html(cells: Sequence[Cell], broken: dict[int, list[str]]) -> str:
    """The page: a table for each feature level, what failed, why operations stay off the devices."""
    style = (files(__package__) / "page.css").read_text()
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>Models on devices</title><style>{style}</style></head><body><main>",
        f"<h1>Models on devices</h1><p>{_text(summary(cells))}.</p>{_legend(cells)}",
        *(_level(level, cells, broken) for level in dict.fromkeys(cell.level for cell in cells)),
        *_complaints(cells, broken),
        *_reasons(cells),
        f"<footer>Made by nnbridge {__version__}</footer></main></body></html>\n",
    ]
    return "\n".join(parts)


def _text(text: str) -> str:
    return escape(printable(text))


def _name(text: str) -> str:
    """A name that breaks behind its separators."""
    return re.sub(r"(?<=[_./-])(?=\w)", "<wbr>", _text(text))


def _legend(cells: Sequence[Cell]) -> str:
    estimated = (
        "Estimated times stand in the cells of devices that have a cost model; the others have none."
        if any(cell.estimated_ms is not None for cell in cells)
        else "No time is estimated: none of these devices has a cost model."
    )
    return (
        "<p>Each cell: share of operations on the device, and in how many partitions; below it the largest difference from the "
        "reference, where one was asked, the share of multiply-adds where it is another, bytes that cross borders, measured and "
        f"estimated times. {estimated} The host is what computes operations that are not handed to NNAPI.</p>"
        '<p class="legend" aria-hidden="true"><span class="s0">0&nbsp;%</span><span class="s1">to 50&nbsp;%</span>'
        '<span class="s2">to 90&nbsp;%</span><span class="s3">below 100&nbsp;%</span><span class="s4">100&nbsp;%</span></p>'
    )


def _level(level: int, cells: Sequence[Cell], broken: dict[int, list[str]]) -> str:
    here = {(cell.model, cell.device): (i, cell) for i, cell in enumerate(cells) if cell.level == level}
    devices = list(dict.fromkeys(device for _, device in here))
    head = "".join(f'<th scope="col"><span>{_text(device)}</span></th>' for device in devices)
    rows = []
    for model in dict.fromkeys(model for model, _ in here):
        boxes = "".join(_box(here.get((model, device)), broken) for device in devices)
        rows.append(f'<tr><th scope="row">{_name(model)}</th>{boxes}</tr>')
    return (
        f'<section><h2>Feature level {level}</h2><div class="wide" tabindex="0" role="region" aria-label="Feature level {level}">'
        f"<table><caption>Share of operations on each device</caption><thead><tr><td></td>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def _box(found: tuple[int, Cell] | None, broken: dict[int, list[str]]) -> str:
    if found is None:
        return "<td></td>"
    number, cell = found
    if cell.error:
        return f'<td class="bad" title="{_text(cell.error)}">failed</td>'
    moved = f"; {size(cell.transfers)} across borders" if cell.transfers else ""
    work = "" if cell.mac_share is None else f"; {percent(cell.mac_share)} of multiply-adds"
    counts = f"{cell.on_device} of {counted(cell.operations, 'operation')} in {counted(cell.partitions, 'partition')}"
    limits = "".join(f"; {line}" for line in broken.get(number, ()))
    mark = ' <b class="bad">✕ limit</b>' if number in broken else ""
    compared = ""
    if cell.passed is not None:
        kind, sign = ("good", "✓") if cell.passed else ("bad", "✕")
        compared = f'<small class="{kind}">{sign} {_text(difference(cell).removesuffix(OUTSIDE))}</small>'
    more = "".join(f"<small>{_text(line)}</small>" for line in figures(cell))
    title = _text(counts + work + moved + limits + (f"; {cell.fallback}" if cell.fallback else ""))
    shown = f"{percent(cell.share)} in {cell.partitions}{mark}{compared}{more}"
    return f'<td class="s{_shade(cell)}" title="{title}">{shown}</td>'


def _shade(cell: Cell) -> int:
    """0: nothing on the device, 4: everything."""
    if cell.on_device in (0, cell.operations):
        return 4 if cell.on_device else 0
    return 1 + (cell.share > 0.5) + (cell.share > 0.9)


def _complaints(cells: Sequence[Cell], broken: dict[int, list[str]]) -> Iterator[str]:
    rows = [
        (cell.model, cell.device, str(cell.level), "; ".join([cell.error] if cell.error else broken.get(i, [])))
        for i, cell in enumerate(cells)
        if cell.error or i in broken
    ]
    if rows:
        yield _table("Failures and broken limits", ("model", "device", "level", "what"), rows)


def _reasons(cells: Sequence[Cell]) -> Iterator[str]:
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
            yield f"<p>{len(counts) - _MOST_REASONS:,} more reasons are in the JSON.</p>"


def _labelled(column: str, text: str) -> str:
    """A cell; phones show its column beside it."""
    return f'<td data-l="{_text(column)}">{_text(text)}</td>'


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{_text(column)}</th>' for column in columns)
    body = "".join(f"<tr>{''.join(map(_labelled, columns, row))}</tr>" for row in rows)
    return (
        f'<section><h2>{_text(title)}</h2><div class="wide" tabindex="0" role="region" aria-label="{_text(title)}">'
        f'<table class="plain"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>'
    )

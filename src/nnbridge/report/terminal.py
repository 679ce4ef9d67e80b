"""Text for people: tables and lines on a terminal or in a pipe.

Reports are built of :class:`Table` and strings. On a terminal, and where COLUMNS states a width, tables have borders and fit it;
elsewhere they are plain columns as wide as their content, one line for each row, so that no name is cut. What comes from files
and drivers is printed through :func:`printable` only.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from nnbridge.errors import counted as counted
from nnbridge.escaping import printable as printable
from nnbridge.records import dataclass

if TYPE_CHECKING:
    from rich.console import Console

Cell: TypeAlias = "str | Sequence[str]"
"""The text of a cell, or its lines."""

_NUMBERS = re.compile(r"[-+.,\d%/ ]*(e[-+]\d[-+.,\d%/ ]*)?(inf|nan)?")
"""No two repetitions of the same characters meet: names have any length."""
_PIECES = (
    re.compile(r"(?:[^:./#@;,|]|(?<=\d)\.(?=\d))*[:./#@;,|]+|[^:./#@;,|]+"),
    re.compile(r"[^_-]*[_-]+|[^_-]+"),
    re.compile(r"[A-Z]+(?![a-z])[^A-Za-z]*|.[^A-Z]*"),
)
"""What stays together of a name that is too long for a line, of a piece of it that still is, and so on: words come last."""
_TAIL = 2
"""Characters of a last piece that stays with the one before it."""
_TALLER = 1.25
"""How much higher a table may be for names that are not broken."""
_WIDEST = 400
"""Characters that a plain column is padded to; a longer cell moves what follows it in its row."""
_NUMBER = 24
"""Characters of the longest number in a column of numbers."""
_LEVELS = 3
"""Levels of names, such as ``Model/block/conv``, that are shown in full."""
_ROWS = 20
"""Rows of a table on a terminal, where no number is asked for."""
_LONG = 40
"""Lines after which the verdict is repeated."""
_VERDICTS = {"pass": "green", "FAIL": "bold red"}
"""The style of cells with nothing else in them, on terminals."""


def counted_kinds(kinds: Iterable[str], most: int | None = None) -> str:
    """``CONV_2D×3, ADD``, for each kind and how often it occurs; of more than ``most`` kinds the most frequent ones."""
    counts = Counter(kinds)
    shown = counts.items() if most is None else counts.most_common(most)
    return ", ".join(f"{kind}×{count}" if count > 1 else kind for kind, count in shown) + "…" * (len(counts) > len(shown))


def short_name(name: str) -> str:
    """``0: CONV_2D …/Conv2d_0/Relu6``: a name of many levels by its last two, which --json has in full."""
    kind, space, path = name.rpartition(" ")
    levels = path.split("/")
    return f"{kind}{space}…/{'/'.join(levels[-2:])}" if len(levels) > _LEVELS else name


@dataclass(frozen=True)
class Table:
    """A title, columns and rows; a column of numbers is aligned to the right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    ruled: bool = False
    """True for lines between rows."""
    first: int = 0
    """The row to begin with where not all are shown."""


def show(blocks: Iterable[Table | str], out: Console, top: int | None = None, verdict: str = "") -> None:
    """Print tables and lines.

    ``top``: rows of each table at most, 0 for all; None is 20 on a terminal and all elsewhere. Columns with nothing in them are
    left out. ``verdict`` is a line that is repeated after long output.
    """
    limited = out.is_terminal or "COLUMNS" in os.environ
    most = top if top is not None else _ROWS if limited else 0
    lines = 0
    for number, block in enumerate(blocks):
        if isinstance(block, str):
            out.print(printable(block), soft_wrap=not limited)
            lines += 1
            continue
        shown = _without_empty_columns(block)
        more = len(shown.rows) - most if most else 0
        if more > 0:
            begin = min(shown.first, more)
            shown = replace(shown, rows=shown.rows[begin : begin + most])
        if number:
            out.print()
        if shown.title:
            out.print(printable(shown.title), style="bold", soft_wrap=not limited)
        if limited:
            out.print(_bordered(shown, out.width))
        else:
            out.print("\n".join(_plain(shown)), soft_wrap=True)
        if more > 0:
            where = f" ({begin:,} of them before these)" if begin else ""
            out.print(f"{counted(more, 'more row')}{where}: --top 0 shows all", soft_wrap=not limited)
        if shown.caption:
            out.print(printable(shown.caption), soft_wrap=not limited)
        lines += len(shown.rows) + 3
    if verdict and lines > _LONG:
        out.print()
        out.print(printable(verdict), soft_wrap=not limited)


def _without_empty_columns(table: Table) -> Table:
    kept = [k for k in range(len(table.columns)) if not table.rows or any(set(row[k]) - {"", "-"} for row in table.rows)]
    rows = [[row[k] for k in kept] for row in table.rows]
    return replace(table, columns=[table.columns[k] for k in kept], rows=rows)


def _cells(table: Table) -> list[list[list[str]]]:
    """The printable lines of each cell."""
    return [[list(map(printable, [c] if isinstance(c, str) else c)) for c in row] for row in table.rows]


def _numeric(cells: Sequence[Sequence[Sequence[str]]], column: int) -> bool:
    """Numbers that fit a column; not lists of them, which wrap."""
    return all(len(line) <= _NUMBER and _NUMBERS.fullmatch(line) for row in cells for line in row[column])


def _bordered(table: Table, width: int) -> Any:
    """A table with borders that fits a width."""
    from rich.table import Table as Grid
    from rich.text import Text

    cells = _cells(table)
    numeric = [_numeric(cells, k) for k in range(len(table.columns))]
    texts = [[lines[0] if right else "\n".join(lines) for lines, right in zip(row, numeric, strict=True)] for row in cells]
    widths = _widths(table.columns, texts, numeric, width - len(table.columns) - 1)
    grid = Grid(show_lines=table.ruled, padding=(0, 0))
    for column, each, right in zip(table.columns, widths, numeric, strict=True):
        grid.add_column("\n".join(_broken(column, each)), justify="right" if right else "left", width=each)
    for row in texts:
        broken = ("\n".join(_broken(text, each)) for text, each in zip(row, widths, strict=True))
        grid.add_row(*(Text(part, _VERDICTS.get(text, ""), overflow="fold") for part, text in zip(broken, row, strict=True)))
    return grid


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool], available: int) -> list[int]:
    """The characters of each column: as many as its text needs, if all fit. Else names break after separators, and words only
    where nothing else is left; but for a table that is much higher, names are not kept whole."""
    every = [[column, *(row[k] for row in rows)] for k, column in enumerate(columns)]
    most = [max(len(line) for text in texts for line in text.split("\n")) for texts in every]
    if sum(most) <= available:
        return most
    found: tuple[float, list[int]] | None = None
    for level in range(len(_PIECES) + 1):
        least = [
            max(map(len, row_texts[1:]), default=0) if right else max(_longest(text, level) for text in row_texts)
            for row_texts, right in zip(every, numeric, strict=True)
        ]
        least = [max(own, _longest(column, len(_PIECES))) for own, column in zip(least, columns, strict=True)]
        if sum(least) <= available:
            widths = _shared(least, most, available)
            height = _height(rows, widths) * _TALLER**level
            if found is None or height < found[0]:
                found = height, widths
    if found is not None:
        return found[1]
    # Nothing fits: the widest columns give, whatever breaks.
    return _shared([min(own, max(1, available // len(most))) for own in least], most, available)


def _shared(least: Sequence[int], most: Sequence[int], available: int) -> list[int]:
    """Widths from ``least`` to ``most``, the columns below their most alike, that use up what is there."""
    low, high = 0, max(most)
    while low < high:
        level = (low + high + 1) // 2
        low, high = (level, high) if sum(_limited(least, most, level)) <= available else (low, level - 1)
    widths = _limited(least, most, low)
    for k in range(len(widths)):
        if sum(widths) < available and widths[k] < most[k]:
            widths[k] += 1
    return widths


def _limited(least: Sequence[int], most: Sequence[int], level: int) -> list[int]:
    return [min(upper, max(lower, level)) for lower, upper in zip(least, most, strict=True)]


def _height(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> int:
    return sum(max(sum(1 for _ in _broken(text, width)) for text, width in zip(row, widths, strict=True)) for row in rows)


def _plain(table: Table) -> Iterator[str]:
    cells = _cells(table)
    rows = [list(table.columns), *(["; ".join(lines) for lines in row] for row in cells)]
    # A name of a megabyte in one row must not make every row as long.
    widths = [max((len(row[k]) for row in rows if len(row[k]) <= _WIDEST), default=0) for k in range(len(table.columns))]
    right = [_numeric(cells, k) for k in range(len(table.columns))]
    for row in rows:
        padded = (c.rjust(width) if r else c.ljust(width) for c, width, r in zip(row, widths, right, strict=True))
        yield "  ".join(padded).rstrip()


def _split(text: str, level: int) -> list[str]:
    """A word in the pieces of a level; a short last one stays with the one before it."""
    pieces: list[str] = _PIECES[level].findall(text)
    return [*pieces[:-2], "".join(pieces[-2:])] if len(pieces) > 1 and len(pieces[-1]) <= _TAIL else pieces


def _longest(text: str, level: int) -> int:
    """Characters of the longest piece of a text, where its words are broken by the first ``level`` of :data:`_PIECES`."""
    pieces = text.split()
    for each in range(level):
        pieces = [part for piece in pieces for part in _split(piece, each)]
    return max(map(len, pieces), default=0)


def _pieces(word: str, width: int, level: int = 0) -> Iterator[str]:
    """The pieces of a word that fit a width, as large as they can be."""
    if len(word) <= width or level == len(_PIECES):
        yield from (word[k : k + width] for k in range(0, len(word), width)) if width else [word]
        return
    for piece in _split(word, level):
        yield from _pieces(piece, width, level + 1)


def _broken(text: str, width: int) -> Iterator[str]:
    """The lines of a text that fit a width: they break at spaces, and in longer words after the pieces of :data:`_PIECES`."""
    return (line for part in text.split("\n") for line in _lines(part, width))


def _lines(text: str, width: int) -> Iterator[str]:
    line = ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) <= width:
            line += f" {word}"
            continue
        if line:
            yield line
        line = ""
        # A word that is too long begins a separate line.
        for piece in _pieces(word, width):
            if line and len(line) + len(piece) > width:
                yield line
                line = ""
            line += piece
    yield line

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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from nnbridge.errors import counted as counted
from nnbridge.escaping import printable as printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.measure import Measurement

Cell: TypeAlias = "str | Sequence[str]"
"""The text of a cell, or its lines."""

_NUMBERS = re.compile(r"[-+.,\d%/ ]*(e[-+]\d[-+.,\d%/ ]*)?(inf|nan)?")
"""No two repetitions of the same characters meet: names have any length."""
_PIECES = re.compile(r"[^:./#@]*[:./#@]+|[^:./#@]+")
_SMALLER = re.compile(r"[^_-]*[_-]+|[^_-]+")
"""What stays together of a name that is too long for a line, and of a piece of it that is."""
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
            out.print(_bordered(shown))
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


def _bordered(table: Table) -> Any:
    from rich.table import Table as Grid

    cells = _cells(table)
    grid = Grid(show_lines=table.ruled, padding=(0, 0))
    numeric = [_numeric(cells, k) for k in range(len(table.columns))]
    for column, right in zip(table.columns, numeric, strict=True):
        grid.add_column(column, justify="right" if right else "left", no_wrap=right)
    for row in cells:
        grid.add_row(*(lines[0] if right else Names("\n".join(lines)) for lines, right in zip(row, numeric, strict=True)))
    return grid


def _plain(table: Table) -> Iterator[str]:
    cells = _cells(table)
    rows = [list(table.columns), *(["; ".join(lines) for lines in row] for row in cells)]
    # A name of a megabyte in one row must not make every row as long.
    widths = [max((len(row[k]) for row in rows if len(row[k]) <= _WIDEST), default=0) for k in range(len(table.columns))]
    right = [_numeric(cells, k) for k in range(len(table.columns))]
    for row in rows:
        padded = (c.rjust(width) if r else c.ljust(width) for c, width, r in zip(row, widths, right, strict=True))
        yield "  ".join(padded).rstrip()


@dataclass(frozen=True)
class Names:
    """A cell of a bordered table: text that breaks at spaces, and in names too long for the column after separators only."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines that fit."""
        from rich.text import Text

        lines = (line for text in self.text.split("\n") for line in _lines(text, options.max_width))
        yield Text("\n".join(lines), style=_VERDICTS.get(self.text, ""), overflow="fold")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """From the longest piece to the longest line."""
        from rich.measure import Measurement

        pieces = [piece for word in self.text.split() for piece in _PIECES.findall(word)]
        most = min(max(map(len, self.text.split("\n"))), options.max_width)
        return Measurement(min(max(map(len, pieces), default=0), most), most)


def _pieces(word: str, width: int) -> Iterator[str]:
    if len(word) <= width:
        yield word
        return
    for piece in _PIECES.findall(word):
        yield from [piece] if len(piece) <= width else _SMALLER.findall(piece)


def _lines(text: str, width: int) -> Iterator[str]:
    """Lines of a width at most, where no piece of a name is longer."""
    line = ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) <= width:
            line += f" {word}"
            continue
        if line:
            yield line
        line = ""
        # A word that is too long begins a line of its own.
        for piece in _pieces(word, width):
            if line and len(line) + len(piece) > width:
                yield line
                line = ""
            line += piece
    yield line

"""Words of reports on a terminal of 80 columns: names that break where a reader would break them, numbers with their nouns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.measure import Measurement

_PIECES = re.compile(r"[^:./#@]*[:./#@]+|[^:./#@]+")
_SMALLER = re.compile(r"[^_-]*[_-]+|[^_-]+")
"""What stays together of a name that is too long for a line, and of a piece of it that is."""


def counted(number: int, noun: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@dataclass(frozen=True)
class Names:
    """A cell of a table: text that breaks at spaces, and inside a name too long for its column behind a separator only."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines that fit."""
        from rich.text import Text

        lines = (line for given in self.text.split("\n") for line in _lines(given, options.max_width))
        yield Text("\n".join(lines), overflow="fold")

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

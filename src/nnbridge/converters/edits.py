"""Edits of a file: what an importer can change of one of its operators, or of all of it, and how many answers that changes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from os import SEEK_CUR
from pathlib import Path
from typing import IO, TypeAlias

from nnbridge.errors import Why
from nnbridge.records import dataclass

Value: TypeAlias = "int | float | str"
Key: TypeAlias = "tuple[int, int]"
"""An operator's subgraph and index in the file."""
WHOLE = -1
"""In place of an operator's index: the edit concerns the whole file."""


LARGE = 1 << 30
"""Bytes of a file with its weights from which on edited files are written in pieces, the weights out of the mapped original."""
_HOLE = 4096
"""Bytes up to which a piece of weights is written for plans, too: numbers that they may read, such as shapes."""

Chunk: TypeAlias = "bytes | memoryview"
Opened: TypeAlias = "Callable[[Path], AbstractContextManager[IO[bytes]]]"


def is_large(size: int) -> bool:
    """True for a file of which no edit is held in memory; ``size``: its bytes with all weights."""
    return size > LARGE


def _opened(path: Path) -> AbstractContextManager[IO[bytes]]:
    return path.open("wb")


@dataclass(frozen=True, slots=True)
class Content:
    """An edited file, and those beside it that hold its weights, before they are written."""

    files: Callable[[str, bool], Mapping[str, Sequence[Chunk]]]
    """The name of each file and its pieces, from the file's name, and False if weights are not written: pieces that are views."""

    @classmethod
    def of(cls, content: bytes) -> Content:
        """A file whose bytes are there."""
        return cls(lambda name, weights: {name: (content,)})

    def write(self, path: Path, *, weights: bool = True, opened: Opened = _opened) -> None:
        """Write the files, what is beside the file first; without ``weights``, which no plan reads, these are holes."""
        for name, pieces in reversed([*self.files(path.name, weights).items()]):
            with opened(path.with_name(name)) as file:
                for piece in pieces:
                    if weights or isinstance(piece, bytes) or len(piece) <= _HOLE:
                        file.write(piece)
                    else:
                        file.seek(len(piece), SEEK_CUR)
                if not weights:
                    file.truncate()

    def mark(self) -> bytes | None:
        """A checksum that equal files share; None for weights that are too large to be read for it."""
        digest = hashlib.blake2b(digest_size=16)
        for name, pieces in self.files("", True).items():
            digest.update(f"{name}\0".encode())
            for piece in pieces:
                if not isinstance(piece, bytes):
                    return None
                digest.update(piece)
        return digest.digest()


class Answers(str, Enum):
    """The effect of an edit on the model's outputs. Values are stable: JSON has them."""

    SAME = "same"
    """They stay, bit for bit."""
    ROUND = "round"
    """The network stays; sums may be rounded elsewhere, as where constants are folded into others."""
    CHANGE = "change"
    CALIBRATE = "calibrate"
    """The edited file shows a form of the model whose numbers must come from data, such as scales. It is planned, not written."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of one operator of a file, or of all of it."""

    subgraph: int
    index: int
    """:data:`WHOLE` for the whole file."""
    operator: str
    text: str
    """The replacement of the operator."""
    content: Callable[[], Content]
    """The edited file."""
    answers: Answers = Answers.SAME
    alone: Callable[[], Content] | None = None
    """A file of the replacement of the operator; None for edits of the whole file."""
    converter: str = ""
    """The option of the converter that does the same at the source, or the change of the model that does, in one sentence."""
    several: Callable[[Sequence[Key]], Content] | None = None
    """A file in which several operators are replaced so; None where each has a change for itself."""
    together: tuple[Key, ...] = ()
    """The operators of an edit of several of them."""

    @property
    def keys(self) -> tuple[Key, ...]:
        """The operators that it replaces; none for an edit of the whole file."""
        return self.together if self.index == WHOLE else ((self.subgraph, self.index),)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One property of an operator that can have another value."""

    name: str
    value: Value
    choices: tuple[Value, ...] = ()
    """Other values, the smallest change first; numbers have none: those around ``value`` are tried."""
    low: int = 1
    """The lowest number."""
    high: int = 1 << 16
    parts: int = 1
    """How many numbers have the value, such as both sides of a window."""
    answers: Answers = Answers.CHANGE
    kinds: frozenset[Why] = frozenset()
    """Refusals of which this may be the cause; empty for any."""
    converter: str = ""
    """The option of the converter that does the same at the source."""


@dataclass(frozen=True, slots=True)
class Adjustable:
    """An operator with all that can be changed of it."""

    operator: str
    parameters: tuple[Parameter, ...]
    content: Callable[[Mapping[str, Value], bool], Content]
    """``content(changes, alone)``: the edited file, or a file of only the operator; values by the names of parameters."""
    converter: str = ""
    """What may help at the source, where no edit of the file does."""

"""Edits of a file: what an importer can change of one of its operators, or of all of it, and how many answers that changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from nnbridge.errors import ConversionError, Reason, Why

Value: TypeAlias = "int | float | str"
Key: TypeAlias = "tuple[int, int]"
"""An operator's subgraph and index in the file."""
WHOLE = -1
"""In place of an operator's index: the edit concerns the whole file."""


MOST_EDITED = 1 << 30
"""Bytes of a file with its weights beyond which it is not edited: each edit would be a file of that size."""


def require_editable(size: int, path: Path) -> None:
    """ConversionError for a file that is too large to be edited; ``size``: its bytes with all weights."""
    if size > MOST_EDITED:
        raise ConversionError(Reason(f"at most {MOST_EDITED:,} bytes with all weights, to be edited", f"{size:,}", str(path)))


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
    content: Callable[[], bytes]
    """The bytes of the edited file."""
    answers: Answers = Answers.SAME
    alone: Callable[[], bytes] | None = None
    """A file of the replacement of the operator; None for edits of the whole file."""
    converter: str = ""
    """The option of the converter that does the same at the source, or the change of the model that does, in one sentence."""
    several: Callable[[Sequence[Key]], bytes] | None = None
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
    content: Callable[[Mapping[str, Value], bool], bytes]
    """``content(changes, alone)``: the edited file, or a file of only the operator; values by the names of parameters."""
    converter: str = ""
    """What may help at the source, where no edit of the file does."""

"""Display of comparisons: on a terminal by rich, in notebooks as HTML, as pandas' data frames.

A result is a frozen dataclass with a sentence, notes and records: dictionaries with the same keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nnbridge.devices.evidence import Evidence, reservation, unknown_numbers
from nnbridge.errors import PackageError
from nnbridge.escaping import element

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


class NotebookResult(ABC):
    """The result of a comparison, with its display in notebooks."""

    __slots__ = ()

    @property
    @abstractmethod
    def sentence(self) -> str:
        """The answer in one sentence."""

    @abstractmethod
    def records(self) -> Sequence[Mapping[str, Any]]:
        """One for each row of the result's table."""

    def __str__(self) -> str:
        return self.sentence

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.sentence})"

    def to_pandas(self) -> Any:
        """The records as a data frame; InputError without pandas."""
        try:
            import pandas
        except ImportError as error:
            raise PackageError.needed("pandas", "pandas", error, "to_pandas") from error
        return pandas.DataFrame.from_records([dict(record) for record in self.records()])

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        """Column names and rows, without columns that are empty everywhere."""
        records = self.records()
        names = list(dict.fromkeys(name for record in records for name in record))
        shown = [name for name in names if any(record.get(name) not in (None, "") for record in records)]
        return shown, [[_text(record.get(name)) for name in shown] for record in records]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The sentence and a table."""
        from rich.table import Table
        from rich.text import Text

        names, rows = self._cells()
        table = Table(*names)
        for row in rows:
            table.add_row(*map(Text, row))
        yield Text(self.sentence)
        yield table

    def _repr_html_(self) -> str:
        """The same for notebooks."""
        names, rows = self._cells()
        head = element("thead", element("tr", *(element("th", name) for name in names)))
        body = element("tbody", *(element("tr", *(element("td", cell) for cell in row)) for row in rows))
        return f"{element('p', self.sentence).html}\n{element('table', head, body).html}"


class DeviceResult(NotebookResult):
    """The result of a comparison of what devices compute, which says nothing of devices whose numbers are unknown."""

    __slots__ = ()
    evidence: tuple[Evidence, ...]
    """The evidence of each driver that ran something."""
    idle: tuple[str, ...]
    """The devices that were offered the model where none of them ran anything: others computed all that was compared."""

    @property
    def unknown(self) -> list[str]:
        """The devices that ran something and whose arithmetic nothing emulates: NNAPI's CPU computed in their place."""
        return unknown_numbers(self.evidence)

    @property
    def reservation(self) -> str:
        """The reason why the numbers say nothing of the devices; empty where they do."""
        return reservation(self.evidence, self.idle)

    def judged(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Data for JSON with ``within`` beside each ``pass`` in it: ``pass`` is of the devices, None where nothing is known of
        their numbers, ``within`` of what was computed."""
        found: dict[str, Any] = judged(data, bool(self.reservation))
        return found


def judged(data: Any, reserved: bool) -> Any:
    """:meth:`DeviceResult.judged`; ``reserved`` where nothing is known of the devices' numbers."""
    if isinstance(data, list):
        return [judged(item, reserved) for item in data]
    if not isinstance(data, Mapping):
        return data
    found = {}
    for key, value in data.items():
        found[key] = judged(value, reserved)
        if key == "pass":
            found |= {"pass": None if reserved else value, "within": value}
    return found


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""Values of one kind from the tables of a profile, each with a default where it is wrong; mistakes are noted, not raised."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from nnbridge.errors import InputError, Reason

_KINDS: Mapping[type, str] = {str: "texts", int: "whole numbers", dict: "tables"}
_K = TypeVar("_K")
_T = TypeVar("_T")
_MAX_MISTAKES = 100
"""Of a file; reading ends with the last one."""


class TableValues(ABC):
    """A reader of profiles."""

    _mistakes: dict[Reason, None]

    def _mistaken(self, mistake: Reason) -> None:
        """Record a mistake."""
        self._mistakes[mistake] = None
        if len(self._mistakes) >= _MAX_MISTAKES:
            raise InputError.of(self._mistakes)

    @abstractmethod
    def note(self, key: str, rule: str, found: object) -> None:
        """A mistake at a key of the file."""

    def _text_of(self, table: Mapping[str, Any], key: str) -> str:
        value = table.get(key, "")
        if isinstance(value, str) and value.isprintable():
            return value
        self.note(key, "a printable text", value)
        return ""

    def _table(self, table: Mapping[str, Any], key: str) -> dict[str, Any]:
        value = table.get(key, {})
        if isinstance(value, dict):
            return value
        self.note(key, "a table", value)
        return {}

    def _list(self, table: Mapping[str, Any], key: str, kind: type[_T]) -> list[_T]:
        value = table.get(key, [])
        if isinstance(value, list) and all(isinstance(v, kind) and not isinstance(v, bool) for v in value):
            return value
        self.note(key, f"a list of {_KINDS[kind]}", value)
        return []


class OnDemand(Mapping[_K, _T]):
    """Values that are read when they are asked for, each once: the rules of profiles that were checked before."""

    def __init__(self, reads: Mapping[_K, Callable[[], _T]], at_once: bool = False) -> None:
        self._reads = reads
        self._values = {key: read() for key, read in reads.items()} if at_once else {}

    def __getitem__(self, key: _K) -> _T:
        if key not in self._values:
            self._values[key] = self._reads[key]()
        return self._values[key]

    def __iter__(self) -> Iterator[_K]:
        return iter(self._reads)

    def __len__(self) -> int:
        return len(self._reads)

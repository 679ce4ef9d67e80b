"""Cells in an SQLite file: each is on the disk when it is done, so that a run that was killed continues where it was."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nnbridge.errors import InputError, Reason
from nnbridge.matrix.cells import Cell

_APPLICATION = 0x6E6E6272
"""``nnbr``: the file's ``application_id``."""
_BUSY = 30.0
"""Seconds to wait for another process that writes."""


class Store:
    """Cells by key. InputError for a file that is none of a matrix."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._checked():
            self._database = sqlite3.connect(path, timeout=_BUSY)
            (mark,) = self._database.execute("PRAGMA application_id").fetchone()
            tables = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if mark != _APPLICATION and (mark or tables):
            raise InputError(Reason("a matrix's results", "another SQLite file", operand=str(path)))
        with self._checked():
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute(f"PRAGMA application_id={_APPLICATION}")
            self._database.execute("CREATE TABLE IF NOT EXISTS cells (key TEXT PRIMARY KEY, cell TEXT NOT NULL)")
            self._database.commit()

    @classmethod
    def existing(cls, path: Path) -> Store:
        """A store that is there; InputError if it is not."""
        if not path.is_file():
            raise InputError(Reason("a file of a matrix's results", "none at this path", operand=str(path)))
        return cls(path)

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise InputError(
                Reason("a file of a matrix's results that can be used", str(error), operand=str(self.path))
            ) from error

    def add(self, key: str, cell: Cell) -> None:
        """Write a cell."""
        with self._checked(), self._database:
            self._database.execute("INSERT OR REPLACE INTO cells VALUES (?, ?)", (key, json.dumps(cell.as_dict())))

    def remove(self, keys: Iterable[str]) -> None:
        """Forget the cells of these keys."""
        with self._checked(), self._database:
            self._database.executemany("DELETE FROM cells WHERE key = ?", ((key,) for key in keys))

    def find(self, keys: Iterable[str]) -> dict[str, Cell]:
        """The cells of these keys that are there."""
        with self._checked():
            requested = set(keys)
            rows = self._database.execute("SELECT key, cell FROM cells").fetchall()
        return {key: self._read(text) for key, text in rows if key in requested}

    def all(self) -> list[Cell]:
        """Every cell, by model, device and level."""
        with self._checked():
            rows = self._database.execute("SELECT cell FROM cells").fetchall()
        return sorted((self._read(text) for (text,) in rows), key=lambda cell: (cell.model, cell.device, cell.level))

    def _read(self, text: str) -> Cell:
        try:
            return Cell.of(json.loads(text))
        except (ValueError, TypeError) as error:
            raise InputError(Reason("cells of this version of nnbridge", str(error), operand=str(self.path))) from error

    def close(self) -> None:
        """Close the file: what SQLite wrote beside it goes into it."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

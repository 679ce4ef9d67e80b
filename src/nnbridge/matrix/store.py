"""Cells in an SQLite file: each is on the disk when it is done, so that a run that was killed continues where it was.

A file may come from elsewhere, as ``matrix.db`` of a cloned repository. So it has the table of a store and nothing else (a view,
a trigger or a computed column would run what it says), its cells are checked one by one, and reading takes no more steps and
text than a file of its size can hold: pages of SQLite's trees may be named more than once.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from nnbridge.budget import parsed
from nnbridge.errors import NO_SUCH_FILE, InputError, Reason, ShortageError, pass_shortage
from nnbridge.foreign import ReadingBudget
from nnbridge.matrix.cells import Cell
from nnbridge.reading import open_file

_APPLICATION = 0x6E6E6272
"""``nnbr``: the file's ``application_id``."""
_BUSY = 30.0
"""Seconds to wait for another process that writes."""
_TABLE = "CREATE TABLE cells (key TEXT PRIMARY KEY, cell TEXT NOT NULL)"
_SCHEMA = {("table", "cells", "cells", _TABLE), ("index", "sqlite_autoindex_cells_1", "cells", None)}
"""All that the list of a store's tables has."""
MAX_CELL = 64 << 20
"""Bytes of a cell's JSON; that of a model of 30,000 operations has a sixteenth."""
_SLACK = 1 << 16
"""Characters that are read beyond the file's bytes: other processes write in the meantime."""
_SEVERAL = bytes.fromhex("d9d505f920a163d7")
"""How a journal ends that names the journal of a transaction on several files."""
_SHORT = ("disk I/O error", "database or disk is full", "out of memory")
"""SQLite's words for what the machine lacks, or may not have (``src/main.c``): Python before 3.11 has no codes."""
_SHOWN = 12
"""Characters of a key in messages."""
_STEPS = 10_000
"""Steps of SQLite's machine between two looks at the budget."""
_START = 1_000_000
"""Steps that are allowed beside one for each byte of the file."""
_SAFE = ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0")
"""What SQLite's authors advise for files that others wrote."""


class Store:
    """Cells by key. InputError for a file that is none of a matrix."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._steps = 0
        is_new = not os.path.lexists(path)
        with self._checked():
            self._refuse_journal()
            # Without a folder SQLite gives some names another meaning.
            self._database = sqlite3.connect(path.absolute(), timeout=_BUSY)
        try:
            self._open()
        except BaseException:
            self._database.close()
            if is_new:
                for name in (path, f"{path}-wal", f"{path}-shm"):
                    Path(name).unlink(missing_ok=True)
            raise

    def _open(self) -> None:
        with self._checked(), self._counted():
            if sys.version_info >= (3, 11):
                self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_CELL + 1024)
            for setting in _SAFE:
                self._database.execute(f"PRAGMA {setting}")
            (mark,) = self._database.execute("PRAGMA application_id").fetchone()
            listed = set(self._rows("SELECT type, name, tbl_name, sql FROM sqlite_master"))
        if mark != _APPLICATION and (mark or listed):
            raise InputError(Reason("a matrix's results", "another SQLite file", file=str(self.path)))
        if listed - _SCHEMA:
            (kind, name, *_) = min(listed - _SCHEMA, key=str)
            raise InputError(Reason("a matrix's results: its table of cells only", f"{kind} {name}", file=str(self.path)))
        with self._checked():
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute(f"PRAGMA application_id={_APPLICATION}")
            self._database.execute(_TABLE.replace("TABLE", "TABLE IF NOT EXISTS", 1))
            self._database.commit()

    @classmethod
    def existing(cls, path: Path) -> Store:
        """A store that is there; InputError if it is not."""
        if not os.path.isfile(path):
            raise InputError(Reason("a file of a matrix's results", NO_SUCH_FILE, file=str(path)))
        return cls(path)

    def _refuse_journal(self) -> None:
        """InputError for a journal of a transaction on several files: SQLite deletes the file that its last bytes name."""
        with suppress(FileNotFoundError), open_file(Path(f"{self.path}-journal")) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - len(_SEVERAL)))
            if file.read() == _SEVERAL:
                rule = "no journal of a transaction on several files beside a matrix's results (delete it)"
                raise InputError(Reason(rule, "one", operand=f"{self.path}-journal"))

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if str(error) in _SHORT:
                raise ShortageError(f"{self.path}: {error}") from error
            pass_shortage(error)
            found = "one that takes more steps than its size allows" if self._steps < 0 else str(error)
            raise InputError(Reason("a file of a matrix's results that can be used", found, file=str(self.path))) from error

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """A bound on the steps of statements that read what others wrote."""
        self._steps = 0
        self._database.set_progress_handler(self._step, _STEPS)
        try:
            yield
        finally:
            self._database.set_progress_handler(None, 0)

    def _size(self) -> int:
        """Bytes of the file, and of what SQLite wrote beside it and not yet into it."""
        size = 0
        for name in (self.path, f"{self.path}-wal"):
            with suppress(OSError):
                size += os.stat(name).st_size
        return size

    def _step(self) -> bool:
        """True ends a statement that takes more steps than a file of this size has use for."""
        self._steps += _STEPS
        if self._steps > _START and self._steps > _START + self._size():
            self._steps = -1
        return self._steps < 0

    def _rows(self, statement: str, *parameters: str) -> Iterator[tuple[str | None, ...]]:
        """The rows of a statement, while they hold no more than the file does."""
        with closing(self._database.execute(statement, parameters)) as cursor:
            budget = ReadingBudget(self._size() + _SLACK, "cells of no more text than the file has bytes", str(self.path))
            for row in cursor:
                if not all(value is None or isinstance(value, str) for value in row):
                    raise InputError(Reason("cells of text", "others", file=str(self.path)))
                budget.spend(sum(len(value or "") for value in row))
                yield row

    def add(self, key: str, cell: Cell) -> None:
        """Write a cell."""
        with self._checked(), self._database:
            self._database.execute("INSERT OR REPLACE INTO cells VALUES (?, ?)", (key, json.dumps(cell.as_dict())))

    def renew(self, keys: Iterable[str]) -> None:
        """Put the cells of these keys after all others: of several of one model, device and level the last one counts."""
        with self._checked(), self._counted(), self._database:
            statement = "INSERT OR REPLACE INTO cells SELECT key, cell FROM cells WHERE key = ?"
            self._database.executemany(statement, ((key,) for key in keys))

    def remove(self, keys: Iterable[str]) -> None:
        """Forget the cells of these keys."""
        with self._checked(), self._database:
            self._database.executemany("DELETE FROM cells WHERE key = ?", ((key,) for key in keys))

    def find(self, keys: Iterable[str]) -> dict[str, Cell]:
        """The cells of these keys that are there."""
        requested = set(keys)
        return dict(self._read("SELECT key, cell FROM cells", lambda key: key in requested))

    def all(self) -> list[Cell]:
        """Every cell, by model, device and level; of several alike the one that was asked for last comes last."""
        cells = [cell for _, cell in self._read("SELECT key, cell FROM cells ORDER BY rowid", lambda key: True)]
        return sorted(cells, key=lambda cell: (cell.model, cell.device, cell.level))

    def _read(self, statement: str, requested: Callable[[str], bool]) -> Iterator[tuple[str, Cell]]:
        with self._checked(), self._counted():
            for key, text in self._rows(statement):
                if key is not None and requested(key):
                    where = f"{self.path} cell {key[:_SHOWN]}"
                    yield key, Cell.of(parsed(text or "", "a cell in JSON", where), where)

    def close(self) -> None:
        """Close the file: what SQLite wrote beside it goes into it."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""Stores that others wrote: what is no plain table of cells is refused, what is one is read in bounds and written as text."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import sqlite3
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given

from nnbridge.errors import InputError
from nnbridge.json_data import json_ready
from nnbridge.matrix.budget import MatrixLimit, broken_limits
from nnbridge.matrix.cells import Cell
from nnbridge.matrix.changes import change_lines, changes
from nnbridge.matrix.page import as_html
from nnbridge.matrix.store import Store
from nnbridge.matrix.tables import as_csv, as_junit, as_markdown, matrix_tables
from tests.commands import call
from tests.conftest import MODELS
from tests.foreign import MUTATIONS, mutated

TABLE = "CREATE TABLE cells (key TEXT PRIMARY KEY, cell TEXT NOT NULL)"
INTACT = Cell(
    "m.tflite", "npu", 8, "delegate", "", 3, 2, 1, 0, 2, 900, 600, 64, "fell back", "litert", False, 1.5, True, 2.5, 3.5,
    ((1, "ADD", "a", "why"),), (("CONV_2D", "c"), ("ADD", "a"), ("MUL", "m")), "n/a", True, 1.0, "matched boxes", False,
    ("note",),
)  # fmt: skip
DATA = json.loads(json.dumps(INTACT.as_dict()))


def database(path: Path, *statements: str, page: int = 4096) -> Path:
    """An SQLite file with the mark of a store."""
    with sqlite3.connect(path) as made:
        for statement in (f"PRAGMA page_size={page}", "PRAGMA application_id=0x6E6E6272", *statements):
            made.execute(statement)
    made.close()
    return path


def read(path: Path) -> list[Cell]:
    """All cells of a file."""
    with Store.existing(path) as store:
        return store.all()


def row(cell: str) -> str:
    """A statement that adds a cell."""
    return f"INSERT INTO cells VALUES ('k', {cell})"


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS key, '{}' AS cell FROM c"


@pytest.mark.parametrize(
    "statements",
    [
        (f"CREATE VIEW cells AS {ENDLESS}",),
        (TABLE, f"CREATE VIEW more AS {ENDLESS}"),
        (TABLE, "CREATE TABLE more (a)"),
        (TABLE, "CREATE TRIGGER t AFTER INSERT ON cells BEGIN DELETE FROM cells; END"),
        (TABLE, "CREATE INDEX i ON cells (length(cell))"),
        ("CREATE TABLE cells (key TEXT PRIMARY KEY, cell TEXT NOT NULL AS (hex(zeroblob(100000000))))",),
        ("CREATE TABLE cells (key TEXT PRIMARY KEY, cell TEXT NOT NULL CHECK (length(randomblob(9)) > 0))",),
        ("CREATE TABLE cells (key TEXT PRIMARY KEY, cell TEXT NOT NULL) WITHOUT ROWID",),
        ("CREATE TABLE cells (key TEXT PRIMARY KEY, cell TEXT NOT NULL DEFAULT 'x')",),
        ("CREATE VIRTUAL TABLE cells USING fts5(key, cell)",),
    ],
)
def test_a_file_with_anything_but_the_table_of_a_store_is_refused(statements: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="its table of cells only, found"):
        read(database(tmp_path / "m.db", *statements))


@pytest.mark.parametrize(
    "cell",
    [
        "1",
        "x'7b7d'",
        "1.5",
        "''",
        "'{'",
        "'[]'",
        "'null'",
        "'{}'",
        f"'{'[' * 50_000}'",
        f"'{'9' * 5_000}'",
        "cast(x'ff' as text)",
    ],
)
def test_a_cell_that_is_none_is_bad_input(cell: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"m\.db"):
        read(database(tmp_path / "m.db", TABLE, row(cell)))


def test_a_key_that_is_no_text_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cells of text"):
        read(database(tmp_path / "m.db", TABLE, "INSERT INTO cells VALUES (x'00', '{}')"))


def repeated_pages(path: Path, cell: bytes, levels: int) -> Path:
    """A store whose tree of pages names one page 60 times on each level, down to a page with one cell."""
    size = 512
    database(path, TABLE, page=size)
    content = bytearray(path.read_bytes())
    root = 2
    first = len(content) // size + 1
    for level in range(levels):
        child = first + level
        number = root if level == 0 else first + level - 1
        at = size - 60 * 5
        head = struct.pack(">BHHHBI", 5, 0, 60, at, 0, child)
        pointers = b"".join(struct.pack(">H", at + 5 * i) for i in range(60))
        cells = b"".join(struct.pack(">IB", child, i + 1) for i in range(60))
        made = (head + pointers).ljust(at, b"\0") + cells
        content[(number - 1) * size : number * size] = made
    record = bytes([3, 15, 13 + 2 * len(cell)]) + b"k" + cell
    leaf = struct.pack(">BHHHBH", 13, 0, 1, size - len(record) - 2, 0, size - len(record) - 2)
    content += (leaf.ljust(size - len(record) - 2, b"\0") + bytes([len(record), 1]) + record).ljust(size, b"\0")
    content[28:32] = struct.pack(">I", len(content) // size)
    path.write_bytes(content)
    return path


def test_pages_that_are_named_again_and_again_are_read_no_more_than_the_file_is_long(tmp_path: Path) -> None:
    path = repeated_pages(tmp_path / "m.db", b"{}", 1)
    assert sqlite3.connect(path).execute("SELECT count(cell) FROM cells").fetchone() == (61,)
    path = repeated_pages(tmp_path / "n.db", b"{}", 5)
    started = time.process_time()
    with pytest.raises(InputError, match=r"n\.db"), Store.existing(path) as store:
        store.find(["other"])
    assert time.process_time() - started < 2


def test_a_journal_of_several_files_deletes_none(tmp_path: Path) -> None:
    path, other = database(tmp_path / "m.db", TABLE), tmp_path / "other.txt"
    other.write_text("mine")
    mark, name = bytes.fromhex("d9d505f920a163d7"), os.fsencode(other)
    head = (mark + struct.pack(">IIIII", 0, 0, path.stat().st_size // 4096, 512, 4096)).ljust(512, b"\0")
    tail = struct.pack(">I", 0x40000000 // 4096 + 1) + name + struct.pack(">II", len(name), sum(name)) + mark
    (tmp_path / "m.db-journal").write_bytes(head + tail)
    with pytest.raises(InputError, match="no journal of a transaction on several files"):
        Store(path)
    assert other.read_text() == "mine"


def test_what_a_store_has_under_a_key_is_shown_as_the_cell_that_was_asked_for(tmp_path: Path) -> None:
    from nnbridge.matrix.cells import MatrixSettings, tasks
    from nnbridge.matrix.runner import run
    from tests.conftest import MODELS

    groups = tasks({"m": MODELS / "digits_float32.tflite"}, ["nnapi-reference"], [8], MatrixSettings())
    with Store(tmp_path / "m.db") as store:
        store.add(groups[0][0].key, INTACT)
        (cell,) = run(groups, store)
    assert (cell.model, cell.device, cell.level) == ("m", "nnapi-reference", 8)


def test_a_cell_is_read_as_it_was_written() -> None:
    assert Cell.of(DATA) == INTACT


WRITERS: tuple[Callable[[list[Cell]], object], ...] = (
    lambda cells: as_html(cells, broken_limits([MatrixLimit(limits={"share": 1.0})], cells)).encode(),
    lambda cells: as_csv(cells).encode(),
    lambda cells: as_markdown(cells).encode(),
    lambda cells: as_junit(cells, {}).encode(),
    lambda cells: json.dumps(json_ready([cell.as_dict() for cell in cells]), allow_nan=False),
    matrix_tables,
    lambda cells: change_lines(changes([INTACT], cells, [MatrixLimit(limits={"share": 1.0})])),
    lambda cells: json.dumps(json_ready(changes(cells, [INTACT]).as_dict()), allow_nan=False),
)


@MUTATIONS
@given(mutated(DATA))
def test_any_value_in_place_of_any_value_is_a_cell_that_can_be_written_or_bad_input(data: Any) -> None:
    try:
        cells = [Cell.of(json.loads(json.dumps(data)))]
        written = [writer(cells) for writer in WRITERS[:6]]
    except InputError:
        return
    assert written[0].count(b"<script") == 1  # type: ignore[attr-defined]  # the page's own
    ElementTree.fromstring(written[3])  # type: ignore[arg-type]
    assert len(list(csv.reader(io.StringIO(written[1].decode())))) == 2  # type: ignore[attr-defined]
    if (cells[0].model, cells[0].level) == (INTACT.model, INTACT.level):
        for writer in WRITERS[6:]:
            writer(cells)


def test_models_of_equal_content_have_a_row_each(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        shutil.copy(MODELS / "digits_int8.tflite", tmp_path / name / "m.tflite")
    store = tmp_path / "m.db"
    assert call("matrix", tmp_path, "--devices", "nnapi-sample_minimal", "--store", store).exit_code == 0
    with Store(store) as found:
        assert sorted(cell.model for cell in found.all()) == ["a/m.tflite", "b/m.tflite"]

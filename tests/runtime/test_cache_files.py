"""The files of a compilation cache: damaged ones, several at once, and what else may stand in their place (fact C21)."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnbridge.devices.device import CacheFiles
from nnbridge.runtime.caching import StepCache

FILES = CacheFiles((b"model" * 20, b""), (bytes(range(64)),))


def written(folder: Path) -> StepCache:
    """The files of one entry, complete."""
    cache = StepCache(folder, bytes(range(32)), (2, 1))
    cache.write(FILES)
    assert cache.written
    return cache


@given(st.integers(0, 2), st.integers(0, 127 + 100), st.integers(1, 255))
@settings(deadline=None, max_examples=50)
def test_c21_no_change_of_a_byte_goes_unnoticed(which: int, place: int, change: int) -> None:
    with TemporaryDirectory() as folder:
        cache = written(Path(folder))
        path = sorted(Path(folder).iterdir())[which]
        data = bytearray(path.read_bytes())
        data[place % len(data)] ^= change
        path.write_bytes(data)
        assert cache.read() is None
        assert len(cache.notes) == 1


@given(st.integers(0, 2), st.binary(max_size=300))
@settings(deadline=None, max_examples=50)
def test_c21_no_other_file_is_taken_for_one_of_ours(which: int, data: bytes) -> None:
    with TemporaryDirectory() as folder:
        cache = written(Path(folder))
        sorted(Path(folder).iterdir())[which].write_bytes(data)
        assert cache.read() is None


def test_c21_many_at_once_read_whole_entries_or_none(tmp_path: Path) -> None:
    """Writers of different contents under one token, and readers in between: what is read was written together."""
    token, wrong, stop = bytes(32), [], threading.Event()

    def write(number: int) -> None:
        for _ in range(20):
            StepCache(tmp_path, token, (1, 1)).write(CacheFiles((bytes([number]) * 100,), (bytes([number]) * 50,)))

    def read() -> None:
        while not stop.is_set():
            found = StepCache(tmp_path, token, (1, 1)).read()
            if found is not None and set(bytes(found.model[0])) != set(bytes(found.data[0])):
                wrong.append(found)

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert not wrong
    assert {path.suffix for path in tmp_path.iterdir()} == {""}  # no temporary file is left


# -- what else may stand in a cache file's place -----------------------------------------------------------------------


def replaced(folder: Path, put: Callable[[Path], object]) -> StepCache:
    """An entry whose first file was removed and another thing put in its place."""
    cache = written(folder)
    first = sorted(folder.iterdir())[0]
    first.unlink()
    put(first)
    return cache


def enormous(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**42)


@pytest.mark.parametrize(
    ("put", "found"),
    [
        (os.mkfifo, "no regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "a symbolic link"),
        (Path.mkdir, "Is a directory"),
        (enormous, "a file of another program"),
    ],
    ids=["fifo", "link to a device", "folder", "4 TiB"],
)
def test_what_is_no_cache_file_is_noted_at_once(put: Callable[[Path], object], found: str, tmp_path: Path) -> None:
    cache = replaced(tmp_path, put)
    assert cache.read() is None
    assert [note.found for note in cache.notes] == [found]


def test_a_header_that_promises_what_memory_cannot_hold_is_noted(tmp_path: Path) -> None:
    cache = written(tmp_path)
    path = sorted(tmp_path.iterdir())[0]
    header, length = bytearray(path.read_bytes()[:128]), 2**42
    struct.pack_into("<Q", header, 104, length)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(128 + length)
    assert cache.read() is None
    assert [note.found for note in cache.notes] == [f"{length} bytes, more than {2**31}"]


@pytest.mark.parametrize("target", ["precious", "nothing"])
def test_a_link_in_a_cache_files_place_is_replaced_and_not_followed(target: str, tmp_path: Path) -> None:
    folder, victim = tmp_path / "cache", tmp_path / target
    folder.mkdir()
    (tmp_path / "precious").write_bytes(b"mine")
    cache = replaced(folder, lambda path: path.symlink_to(victim))
    cache.write(FILES)
    assert (tmp_path / "precious").read_bytes() == b"mine"
    assert not (tmp_path / "nothing").exists()
    assert cache.read() == FILES


def test_a_fifo_in_a_cache_files_place_is_replaced(tmp_path: Path) -> None:
    cache = replaced(tmp_path, os.mkfifo)
    cache.write(FILES)
    assert cache.read() == FILES

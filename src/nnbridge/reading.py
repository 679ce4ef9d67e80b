"""Reading files that a user names: never waiting for a pipe without a word, never more than a limit.

Each reader of files is one of two kinds: those that need a regular file (:func:`open_file`), and those that read text once, from
the beginning to the end, which may come from a pipe (:func:`read_at_most`).
"""

from __future__ import annotations

import errno
import logging
import os
import select
import stat
import struct
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_log = logging.getLogger(__name__)
MAX_BYTES = 16 << 30
"""Largest file that is read. A file may be of any size and hold nothing: what is not written of it takes no space on a disk."""
MAX_LISTING = 4 << 20
"""Bytes of the list of an archive's members, of which each takes 46 and its name, and 20 microseconds to read."""
_SILENT = 2.0
"""Seconds that a pipe is waited for without a word."""
_NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)


def open_file(path: Path, most: int = MAX_BYTES) -> IO[bytes]:
    """A regular file of at most so many bytes, which can be read from anywhere.

    OSError for a pipe, which opening would wait for, a device, a folder, and a larger file.
    """
    file: IO[bytes] = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
    found = os.fstat(file.fileno())
    if stat.S_ISREG(found.st_mode) and found.st_size <= most:
        return file
    file.close()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.ESPIPE, "a device or pipe", str(path))
    raise _too_large(path, found.st_size, most)


def _too_large(path: Path, size: int, most: int) -> OSError:
    return OSError(errno.EINVAL, f"{size:,} bytes, more than the {most:,} that are read of a file", str(path))


def read_file(path: Path, most: int = MAX_BYTES) -> bytes:
    """All bytes of a regular file of at most so many; OSError as of :func:`open_file`."""
    with open_file(path, most) as file:
        return file.read()


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """A ZIP archive, or that at the end of a file. OSError as of :func:`open_file`, and for one of more members than are listed;
    what zipfile raises for damaged ones."""
    with open_file(path) as file:
        check_listing(file, path)
        with zipfile.ZipFile(file) as archive:
            yield archive


def check_listing(file: IO[bytes], path: Path) -> None:
    """OSError for an archive whose list of members is longer than any that is read: zipfile reads all of it at once."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _LONGEST_END))
    tail = file.read()
    file.seek(0)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + 22 > len(tail):
        return  # no archive
    (listing,) = struct.unpack_from("<I", tail, at + 12)
    large = at - 76
    if large >= 0 and tail[large : large + 4] == b"PK\x06\x06":
        listing = max(0 if listing == 0xFFFFFFFF else listing, struct.unpack_from("<Q", tail, large + 40)[0])
    if listing > MAX_LISTING:
        found = f"a list of members of {listing:,} bytes, more than the {MAX_LISTING:,} that are read of an archive"
        raise OSError(errno.EINVAL, found, str(path))


_LONGEST_END = 65_535 + 22 + 76
"""Bytes of what ends an archive: a comment, and the records before it."""


def read_at_most(path: Path, most: int) -> bytes:
    """All bytes of a file, or of a pipe one more than ``most`` if there are more; OSError for a file that has more.

    A pipe with a writer is read to its end, as of ``<(command)`` in a shell; a line says so if nothing comes. OSError for one
    that no one writes to, and for a terminal.
    """
    with open(path, "rb", buffering=0, opener=_without_waiting) as file:
        parts = []
        left = most + 1
        if file.isatty():
            raise OSError(errno.ENOTTY, "a terminal", str(path))
        found = os.fstat(file.fileno())
        if stat.S_ISREG(found.st_mode) and found.st_size > most:
            raise _too_large(path, found.st_size, most)
        # Windows has no pipes among its files, nor set_blocking in every Python.
        if sys.platform != "win32" and stat.S_ISFIFO(found.st_mode):
            first = file.read(left)  # None: there is a writer, but no byte yet.
            if first == b"":
                raise OSError(errno.EPIPE, "a pipe without a writer", str(path))
            os.set_blocking(file.fileno(), True)
            parts.append(first or b"")
            left -= len(parts[0])
            if first is None:
                poll = select.poll()
                poll.register(file, select.POLLIN)
                if not poll.poll(_SILENT * 1000):
                    _log.warning("%s is a pipe: waiting for the program that writes to it", path)
        while left > 0 and (part := file.read(min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
    return b"".join(parts)


def _without_waiting(name: str, flags: int) -> int:
    return os.open(name, flags | _NO_WAIT)

"""Reading files that a user names: never waiting for a pipe without a writer, never more than a limit."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path
from typing import IO

_NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)


def open_file(path: Path) -> IO[bytes]:
    """A file that can be read from anywhere; OSError for a pipe, which opening would wait for, and for a device."""
    file: IO[bytes] = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.ESPIPE, "a device or pipe", str(path))
    return file


def read_at_most(path: Path, most: int) -> bytes:
    """All bytes of a file, or one more than ``most`` if there are more.

    A pipe with a writer is read to its end, as of ``<(command)`` in a shell; OSError for one that no one writes to.
    """
    with open(path, "rb", buffering=0, opener=_without_waiting) as file:
        parts = []
        left = most + 1
        # Windows has no pipes among its files, nor set_blocking in every Python.
        if sys.platform != "win32" and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            first = file.read(left)  # None: there is a writer, but no byte yet.
            if first == b"":
                raise OSError(errno.EPIPE, "a pipe without a writer", str(path))
            os.set_blocking(file.fileno(), True)
            parts.append(first or b"")
            left -= len(parts[0])
        while left > 0 and (part := file.read(min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
    return b"".join(parts)


def _without_waiting(name: str, flags: int) -> int:
    return os.open(name, flags | _NO_WAIT)

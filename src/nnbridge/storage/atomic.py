"""Writing files so that nobody ever sees half of one."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from nnbridge.errors import InputError, Reason


@contextmanager
def atomic_write(path: Path, mode: int | None = None) -> Iterator[IO[bytes]]:
    """A binary file that takes its name only when all is written; an error leaves what was there before.

    A symbolic link leads to its target; pipes and devices are written to directly. ``mode``: the file's permissions; None for
    those of the file that is there, or else what the umask leaves.
    """
    path = Path(os.path.realpath(path))
    there = _mode_of(path)
    if there is not None and not stat.S_ISREG(there):
        with _named(path), path.open("wb") as file:
            yield file
        return
    if mode is None:
        mode = _default_mode() if there is None else stat.S_IMODE(there)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise InputError(Reason("a folder that can be written to", error.strerror or str(error), operand=str(path))) from error
    try:
        with _named(path):
            with os.fdopen(handle, "wb") as file:
                yield file
            os.chmod(name, mode)
            os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """What goes wrong with the file, as InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(Reason("a file that can be written", error.strerror or str(error), operand=str(path))) from error


def _mode_of(path: Path) -> int | None:
    """The type and permissions of what is there; None if nothing is."""
    try:
        return path.stat().st_mode
    except OSError:
        return None


def _default_mode() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask

"""Writing files so that no one ever sees half of one."""

from __future__ import annotations

import errno
import hashlib
import io
import logging
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO

from nnbridge.errors import InputError, Reason, cannot_read
from nnbridge.reading import open_file

_log = logging.getLogger(__name__)
_STALE_AFTER = 3600.0
"""Seconds without a write after which a temporary file belongs to a writer that was killed."""

_CREATE: int = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""Flags of ``open``: O_CLOEXEC on Unix; O_BINARY on Windows, which would change line ends without it."""
_LONGEST = 200
"""Bytes of a name that a temporary name may have inside: file systems have 255 for all of it, or fewer where they encrypt."""
_REPLACED = (
    "a file that no program has open, as Windows replaces no other" if sys.platform == "win32" else "a file that can be written"
)


class _Sequential(io.FileIO):
    """A pipe or device, which is written from the beginning to the end: some devices allow to seek, and are nowhere then."""

    def seekable(self) -> bool:
        """False."""
        return False

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """OSError."""
        raise OSError(errno.ESPIPE, os.strerror(errno.ESPIPE))

    def tell(self) -> int:
        """OSError."""
        raise OSError(errno.ESPIPE, os.strerror(errno.ESPIPE))


def _opened(path: Path) -> int:
    """The descriptor of a pipe or device; one line says that a pipe has no reader yet, which opening waits for."""
    try:
        descriptor = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        if error.errno != errno.ENXIO or not stat.S_ISFIFO(path.stat().st_mode):
            raise
        _log.warning("%s is a pipe: waiting for a program that reads it", path)
        return os.open(path, os.O_WRONLY)
    if sys.platform != "win32":
        os.set_blocking(descriptor, True)
    return descriptor


@contextmanager
def atomic_write(path: Path, mode: int | None = None, *, follow_links: bool = True) -> Iterator[IO[bytes]]:
    """A binary file that gets its name when all is written and on the disk; an error leaves what was there before.

    A symbolic link leads to its target, or is itself replaced without ``follow_links``; pipes and devices are written to
    directly. ``mode``: the file's permissions; None for those of the file that is there, or else what the umask leaves.
    Temporary files that killed writers of the same file left are removed. InputError for what cannot be written.
    """
    path = Path(os.path.realpath(path)) if follow_links else path
    if follow_links and os.path.islink(path):
        raise InputError(Reason("a file that can be written", "links that lead to each other", file=str(path)))
    there = _mode_of(path, follow_links)
    if there is not None and not (stat.S_ISREG(there) or stat.S_ISLNK(there)):
        with _named(path, "a file that can be written"), io.BufferedWriter(_Sequential(_opened(path), "wb")) as file:
            yield file
        return
    if mode is None and there is not None and stat.S_ISREG(there):
        mode = stat.S_IMODE(there)
    _remove_stale(path)
    temporary = path.with_name(f".{_short(path.name)}.{secrets.token_hex(4)}")
    try:
        with _named(path, "a folder that can be written to"):
            # The kernel applies the umask, which belongs to the whole process.
            handle = os.open(temporary, _CREATE, 0o666 if mode is None else 0o600)
        with _named(path, "a file that can be written"), os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            if mode is not None:
                _change_mode(file.fileno(), temporary, mode)
            # Otherwise the new name may outlive a power failure and its content not.
            os.fsync(file.fileno())
        group = _GROUP.get()
        if group is None:
            _replace(temporary, path)
        else:
            group.append((temporary, path))
    except BaseException:
        _remove(temporary)
        raise


_GROUP: ContextVar[list[tuple[Path, Path]] | None] = ContextVar("_GROUP", default=None)
"""Temporary files that get their names together, and these names."""


@contextmanager
def written_together() -> Iterator[None]:
    """Files of :func:`atomic_write` get their names when all of them are written; an error leaves none of them.

    Inside of another one they get them with its own; an error, which that one may survive, leaves none of these.
    """
    outer = _GROUP.get()
    if outer is not None:
        count = len(outer)
        try:
            yield
        except BaseException:
            for temporary, _ in outer[count:]:
                _remove(temporary)
            del outer[count:]
            raise
        return
    files: list[tuple[Path, Path]] = []
    token = _GROUP.set(files)
    try:
        yield
        while files:
            _replace(*files[0])
            del files[0]
    finally:
        _GROUP.reset(token)
        for temporary, _ in files:
            _remove(temporary)


def _replace(temporary: Path, path: Path) -> None:
    with _named(path, _REPLACED):
        os.replace(temporary, path)


def _remove(temporary: Path) -> None:
    with suppress(OSError):  # Another process may have taken it for a stale one; the error that is on its way says more.
        temporary.unlink()


def _short(name: str) -> str:
    """The name for temporary files of a file: its name, of which the end is a checksum where it would become too long."""
    encoded = os.fsencode(name)
    if len(encoded) <= _LONGEST:
        return name
    return f"{os.fsdecode(encoded[: _LONGEST // 2]).encode(errors='ignore').decode()}-{hashlib.sha256(encoded).hexdigest()[:16]}"


@contextmanager
def _named(path: Path, rule: str) -> Iterator[None]:
    """Raise OSErrors as InputError with the file's name."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)  # of a descriptor none is known
        found = "no such folder" if isinstance(error, FileNotFoundError) else cannot_read(error)
        raise InputError(Reason(rule, found, file=str(path))) from error


def _change_mode(descriptor: int, path: Path, mode: int) -> None:
    if hasattr(os, "fchmod"):  # Windows has it since Python 3.13.
        os.fchmod(descriptor, mode)
    else:
        path.chmod(mode)


def _mode_of(path: Path, follow_links: bool) -> int | None:
    """The type and permissions of what is there; None if nothing is."""
    try:
        return path.stat(follow_symlinks=follow_links).st_mode
    except OSError:
        return None


def _remove_stale(path: Path) -> None:
    temporary = re.compile(rf"\.{re.escape(_short(path.name))}\.[0-9a-z_]{{8}}")
    with suppress(OSError):
        for found in path.parent.iterdir():
            if temporary.fullmatch(found.name) and time.time() - found.lstat().st_mtime > _STALE_AFTER:
                found.unlink()


_LONG = 1 << 30
"""Bytes of a file whose checksum takes seconds."""


def file_checksum(path: Path) -> str:
    """SHA-256 of a file's content, which may be larger than memory. InputError for what cannot be read, or is too large."""
    digest = hashlib.sha256()
    try:
        opened = open_file(path)
    except OSError as error:
        raise InputError(Reason("a file that can be read", cannot_read(error), file=str(path))) from error
    with opened as file:
        if (size := os.fstat(file.fileno()).st_size) > _LONG:
            _log.warning("%s: reading all of its %d MB for a checksum", path, size >> 20)
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()

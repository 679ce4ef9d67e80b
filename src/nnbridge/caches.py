"""Caches: folders with files that a later process reads again, machine code among them.

A file is used only if this user or root owns it and its folder, no one else may write to either, and neither is a link; it is a
regular file of limited size whose content is as it was stored. Everything else counts as missing. Files appear whole or not at
all, and a writer that fails leaves nothing.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from nnbridge.trust import foreign, foreign_way

_LOG = logging.getLogger("nnbridge.caches")
_DIGEST = hashlib.sha256().digest_size
_NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)
_FOLDER: int = os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_DIRECTORY", 0)
_BY_DESCRIPTOR = {os.open, os.rename, os.unlink} <= os.supports_dir_fd
"""False on Windows, where files are named by their paths."""
_STALE_AFTER = 3600.0
"""Seconds without a write after which a temporary file belongs to a writer that was killed."""


def user_folder(*names: str, variable: str = "") -> Path | None:
    """A folder in the user's cache, or the one that ``variable`` of the environment names; None where there is none.

    Relative paths are not used: they would be another folder in each current folder, as the standard of XDG_CACHE_HOME says.
    """
    named = os.environ.get(variable) if variable else None
    if named is not None:
        return _absolute(named, variable)
    base = _absolute(os.environ.get("XDG_CACHE_HOME", ""), "XDG_CACHE_HOME")
    if base is None:
        with suppress(RuntimeError):  # No home is known.
            home = _absolute(str(Path.home()), "HOME")
            base = home and home / ".cache"
    return base and base.joinpath(*names)


def _absolute(text: str, variable: str) -> Path | None:
    if not text or os.path.isabs(text):
        return Path(text) if text else None
    say_once(f"{variable} is not used: a relative path, {text!r}")
    return None


class UnsafeError(PermissionError):
    """A folder in which others decide what is read."""


def read(folder: Path, name: str, most: int) -> bytes | None:
    """Read the bytes stored under this name, at most so many; None if there are none that may be used.

    UnsafeError for a folder of others.
    """
    try:
        with _opened(folder) as at, open(_named(folder, name, at), "rb", opener=_opener(at)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > most + _DIGEST or foreign(status):
                return None
            stored = file.read(most + _DIGEST + 1)
    except UnsafeError:
        raise
    except OSError:
        return None
    content, digest = stored[:-_DIGEST], stored[-_DIGEST:]
    return content if hashlib.sha256(content).digest() == digest else None


def content(path: Path) -> bytes:
    """The content of a file that :func:`read` or :func:`store` has just checked."""
    return path.read_bytes()[:-_DIGEST]


def store(folder: Path, name: str, content: bytes) -> None:
    """Store a file for :func:`read`, in place of whatever has the name. UnsafeError for a folder of others, OSError for a fault.

    The content comes first in the file, so that what is loaded from there, as shared libraries are, can be.
    """
    _create(folder)
    with _opened(folder) as at:
        _remove_stale(folder)
        temporary = f".{secrets.token_hex(8)}.tmp"  # Not of the name, which may be as long as names can be.
        handle = os.open(_named(folder, temporary, at), os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW, 0o600, dir_fd=at)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content + hashlib.sha256(content).digest())
            source, target = _named(folder, temporary, at), _named(folder, name, at)
            os.replace(source, target, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            os.unlink(_named(folder, temporary, at), dir_fd=at)
            raise


def fault(folder: Path) -> str:
    """The reason why nothing can be stored in a folder; empty if it can."""
    name = f".{secrets.token_hex(8)}.tmp"
    try:
        store(folder, name, b"")
        with _opened(folder) as at:
            os.unlink(_named(folder, name, at), dir_fd=at)
    except OSError as error:
        return str(error)
    return ""


def folder_fault(folder: Path) -> str:
    """The reason why other users decide what is in a folder; empty if only this user and root do, and if there is no such
    folder."""
    try:
        with _opened(folder):
            return ""
    except UnsafeError as error:
        return str(error.strerror)
    except OSError:
        return ""


@contextmanager
def _opened(folder: Path) -> Iterator[int | None]:
    """A folder's descriptor, for this user's own folders; its files are then those of no other folder. UnsafeError for others."""
    if not _BY_DESCRIPTOR:
        yield None
        return
    if folder.is_symlink():
        raise UnsafeError(errno.EPERM, "it is a link", str(folder))
    at = os.open(folder, _FOLDER)
    try:
        why = foreign(os.fstat(at)) or foreign_way(folder)
        if why:
            raise UnsafeError(errno.EPERM, why, str(folder))
        yield at
    finally:
        os.close(at)


def _named(folder: Path, name: str, at: int | None) -> str:
    """A file's name for calls with ``dir_fd``."""
    return str(folder / name) if at is None else name


def _opener(at: int | None) -> Callable[[str, int], int]:
    return lambda name, flags: os.open(name, flags | _NO_WAIT | _NO_FOLLOW, dir_fd=at)


def _create(folder: Path) -> None:
    """Create a folder, and those above it, for this user only."""
    missing = []
    for part in (folder, *folder.parents):
        if part.exists() or part.is_symlink():
            break
        missing.append(part)
    for part in reversed(missing or [folder]):
        part.mkdir(mode=0o700, exist_ok=True)


@cache
def _remove_stale(folder: Path) -> None:
    """Remove what killed writers left, once for each process."""
    with suppress(OSError):
        for found in folder.glob(".*.tmp"):
            if len(found.name) == len("..tmp") + 16 and time.time() - found.lstat().st_mtime > _STALE_AFTER:
                found.unlink()


@cache
def say_once(message: str) -> None:
    """Warn, once for each process."""
    _LOG.warning("%s", message)

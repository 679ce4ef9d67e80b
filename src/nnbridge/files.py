"""Writing files so that nobody ever sees half of one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from nnbridge.errors import InputError, Reason


@contextmanager
def atomic_write(path: Path, mode: int | None = None) -> Iterator[IO[bytes]]:
    """A binary file that takes its name only when all is written; an error leaves what was there before.

    ``mode``: the file's permissions; None for what the umask leaves.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise InputError(Reason("a folder that can be written to", error.strerror or str(error), operand=str(path))) from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(name, _default_mode() if mode is None else mode)
        os.replace(name, path)
    except BaseException as error:
        os.unlink(name)
        if isinstance(error, OSError):
            raise InputError(Reason("a file that can be written", error.strerror or str(error), operand=str(path))) from error
        raise


def _default_mode() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask

"""Folders of temporary files, which never stay."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from weakref import finalize


class TemporaryFolder:
    """A folder, ``name``, that is removed with what is in it at the end of a ``with`` block, of this object or of the process.

    The descriptor that removing takes, to list a folder, is held from the start: the process may have used up all others.
    """

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp(prefix="nnbridge-")
        try:
            spare = os.open(os.devnull, os.O_RDONLY)
        except OSError:
            os.rmdir(self.name)
            raise
        self._remove = finalize(self, _remove, self.name, spare, os.getpid())

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self._remove()


def _remove(folder: str, spare: int, owner: int) -> None:
    if os.getpid() != owner:  # Processes that it forks use the folder too.
        return
    os.close(spare)
    for place, folders, files in os.walk(folder, topdown=False):
        for name in files:
            with suppress(OSError):
                os.unlink(os.path.join(place, name))
        for name in folders:
            path = os.path.join(place, name)
            with suppress(OSError):
                os.unlink(path) if os.path.islink(path) else os.rmdir(path)
    with suppress(OSError):
        os.rmdir(folder)

"""NumPy files: ``.npz`` and ``.npy``, read without unpickling anything and written atomically."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnbridge.budget import WorkBudget, unpacked_limit
from nnbridge.errors import InputError, Reason, cannot_read, first_line, pass_shortage
from nnbridge.reading import check_listing, open_file
from nnbridge.storage.atomic import atomic_write

Array = npt.NDArray[Any]

MAX_BYTES = 1 << 30
"""Largest file that is read."""
_MARKS = {".npy": b"\x93NUMPY", ".npz": b"PK"}
"""The first bytes of NumPy's files; NumPy itself takes everything else for a pickle, and says so."""


@contextmanager
def _numpy_file(path: Path, suffix: str, operand: str) -> Iterator[None]:
    """InputError for a file that does not begin as NumPy's, and for what NumPy raises while it is read."""
    rule = f"a {suffix} file of numbers"
    try:
        with open_file(path, MAX_BYTES) as file:
            head = file.read(8)
            if suffix == ".npz":
                check_listing(file, path)
    except OSError as error:
        raise InputError(Reason(rule, cannot_read(error), operand=operand, file=str(path))) from error
    if not head.startswith(_MARKS[suffix]):
        raise InputError(
            Reason(rule, f"a file that begins with {head!r}" if head else "an empty file", operand=operand, file=str(path))
        )
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        pass_shortage(error)
        # Damaged archives raise what zipfile, zlib and NumPy's reader of headers raise.
        raise InputError(Reason(rule, first_line(error), operand=operand, file=str(path))) from error


def load_arrays(path: Path, names: Collection[str] | None = None) -> dict[str, Array]:
    """The arrays of an ``.npz`` file by name; ``names``: these only.

    InputError for those that unpack to more than :func:`unpacked_limit`, before they are read: few bytes may unpack to many.
    """
    # NumPy would leave a damaged file open that it has opened itself.
    with _numpy_file(path, ".npz", str(path)), open_file(path) as opened, np.load(opened, allow_pickle=False) as file:
        chosen = [name for name in file.files if names is None or name in names]
        sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in file.zip.infolist()}
        left = WorkBudget(unpacked_limit(path.stat().st_size), "bytes of unpacked arrays")
        for name in chosen:
            left.spend(sizes.get(name, 0), f"{path} {name}")
        return {name: file[name] for name in chosen}


def array_names(path: Path) -> list[str]:
    """The names of an ``.npz`` file's arrays."""
    with _numpy_file(path, ".npz", str(path)), open_file(path) as opened, np.load(opened, allow_pickle=False) as file:
        return list(file.files)


def load_array(path: Path, option: str) -> Array:
    """The array of an ``.npy`` file that a command-line option names."""
    with _numpy_file(path, ".npy", f"{option} {path}"):
        array: Array = np.load(path, allow_pickle=False)
    return array


def save_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an ``.npz`` file."""
    with atomic_write(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # NumPy's stub takes the names for its own flags

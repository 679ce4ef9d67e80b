"""A model as something else than a saved model: C source that runs on a phone, a conformance case.

Kinds are found by the file's suffix in :data:`WRITERS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from nnbridge.errors import InputError, Reason
from nnbridge.records import dataclass

if TYPE_CHECKING:
    from nnbridge.model import Model


@dataclass(frozen=True, slots=True)
class ExportKind:
    """A kind of file that a model can be written as."""

    summary: str
    module: str
    """The module whose ``write(model, path, title)`` returns the bytes of each file it has written, ``path`` first."""


WRITERS: Mapping[str, ExportKind] = {
    ".nnapi": ExportKind("a saved model", "nnbridge.export.saved"),
    ".c": ExportKind("C source for the NDK", "nnbridge.export.c_source"),
    ".cpp": ExportKind("C++ source for the NDK", "nnbridge.export.c_source"),
    ".cc": ExportKind("C++ source for the NDK", "nnbridge.export.c_source"),
    ".json.gz": ExportKind("a conformance case for `nnbridge vts`", "nnbridge.export.cases"),
    ".mod.py": ExportKind("a spec of Android's test generator", "nnbridge.export.spec"),
}
"""Suffix → kind."""


def write(model: Model, path: Path, title: str) -> dict[Path, int]:
    """Write a model as its path's suffix asks, without one as a saved model; file → bytes, ``path`` first.

    ``title``: the path of the model's source. InputError for an unknown suffix, and for a model that the kind cannot express.
    """
    suffix = next((suffix for suffix in WRITERS if path.name.lower().endswith(suffix)), None)
    if suffix is None:
        if path.suffix and (os.path.isfile(path) or not os.path.exists(path)):  # A pipe or device may have any name.
            raise InputError(Reason(f"a file that ends in {', '.join(WRITERS)}", path.name, operand="output"))
        suffix = ".nnapi"
    writer: Callable[[Model, Path, str], dict[Path, int]] = import_module(WRITERS[suffix].module).write
    return writer(model, path, title)

"""TOML files: Python's own reader, or the package of the same content where Python is older."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from nnbridge.errors import InputError, Reason
from nnbridge.reading import read_at_most

if sys.version_info >= (3, 11):
    import tomllib as tomllib
else:
    import tomli as tomllib

__all__ = ["content_of", "read_toml", "table_of", "tomllib"]
_MAX_BYTES = 1 << 20


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The table of a file. InputError for what cannot be read, is larger than 1 MiB or is not TOML: ``what`` was expected."""
    return table_of(content_of(path, what), path, what)


def content_of(path: Path, what: str) -> bytes:
    """The bytes of a file."""
    try:
        content = read_at_most(path, _MAX_BYTES)
    except OSError as error:
        raise InputError(Reason(what, error.strerror or str(error), operand=str(path))) from error
    if len(content) > _MAX_BYTES:
        raise InputError(Reason(f"{what} of at most {_MAX_BYTES:,} bytes", "more", operand=str(path)))
    return content


def table_of(content: bytes, path: Path, what: str) -> dict[str, Any]:
    """The table of a file's bytes."""
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise InputError(Reason(what, str(error), operand=str(path))) from error

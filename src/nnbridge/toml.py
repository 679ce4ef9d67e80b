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

__all__ = ["content_of", "parse_toml", "read_toml", "table_of", "tomllib"]
_MAX_BYTES = 1 << 20
_MAX_DOTS = 10_000_000
"""Dots of a line times those that its keys may have, of all lines: TOML's reader looks up every beginning of a dotted key."""


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
        return parse_toml(content.decode())
    except ValueError as error:
        raise InputError(Reason(what, str(error), operand=str(path))) from error


def parse_toml(text: str) -> dict[str, Any]:
    """The table of a text. ValueError for what is no TOML, is nested too deep, or has dotted keys of too many parts."""
    lines = [(line.count("."), line) for line in text.splitlines() if "." in line]
    head = max((dots for dots, line in lines if line.lstrip().startswith("[")), default=0)
    if sum(dots * (dots + head) for dots, line in lines if not line.lstrip().startswith("#")) > _MAX_DOTS:
        raise ValueError("keys of too many parts between dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("tables or lists that are nested too deep") from None

"""TOML files: Python's own reader, or the package of the same content where Python is older; and a writer, which Python lacks."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from nnbridge.errors import InputError, Reason, cannot_read
from nnbridge.foreign import whole
from nnbridge.reading import read_at_most
from nnbridge.records import dataclass

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["TomlTable", "content_of", "parse", "read_toml", "table_of", "toml_text"]
_MAX_BYTES = 1 << 20
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class TomlTable:
    """A table to write: its path, as ``("device", "terms")``, and its values: texts, numbers, lists, and tables in one line."""

    path: tuple[str, ...]
    values: Mapping[str, Any]
    repeated: bool = False
    """True for one of several of this path."""
    comments: Mapping[str, str] = field(default_factory=dict)
    """By key."""


def toml_text(tables: Iterable[TomlTable]) -> str:
    """A file of tables, in their order. Reading returns the same texts, whatever they hold; half characters are spelled out."""
    return "\n".join(line for table in tables for line in _lines(table))


def _lines(table: TomlTable) -> Iterator[str]:
    name = ".".join(map(_key, table.path))
    yield f"[[{name}]]" if table.repeated else f"[{name}]"
    for key, value in table.values.items():
        comment = table.comments.get(key, "")
        yield f"{_key(key)} = {_value(value, lines=True)}" + (f"  # {_comment(comment)}" if comment else "")
    yield ""


def _key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _quoted(text)


def _quoted(text: str) -> str:
    # JSON's escapes are TOML's, but for one character that JSON does not escape, and halves of pairs, which TOML does not have.
    whole = text.encode("utf-8", "backslashreplace").decode()
    return json.dumps(whole, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


def _value(value: Any, lines: bool = False) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(key)} = {_value(item)}' for key, item in value.items())} }}" if value else "{}"
    if isinstance(value, (list, tuple)):
        if lines and any(isinstance(item, Mapping) for item in value):
            return "".join(["[\n", *(f"  {_value(item)},\n" for item in value), "]"])
        return f"[{', '.join(map(_value, value))}]"
    return str(value).lower() if isinstance(value, bool) else repr(value)


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
        raise InputError(Reason(what, cannot_read(error), file=str(path))) from error
    if len(content) > _MAX_BYTES:
        raise InputError(Reason(f"{what} of at most {_MAX_BYTES:,} bytes", "more", file=str(path)))
    return content


def parse(text: str) -> dict[str, Any]:
    """The table of a text.

    ValueError for what is no TOML or nested too deep, for dotted keys of too many parts, and for whole numbers of more than 64
    bits, which Python reads.
    """
    lines = [(line.count("."), line) for line in text.splitlines() if "." in line]
    head = max((dots for dots, line in lines if line.lstrip().startswith("[")), default=0)
    if sum(dots * (dots + head) for dots, line in lines if not line.lstrip().startswith("#")) > _MAX_DOTS:
        raise ValueError("keys of too many parts between dots")
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ValueError("tables or lists that are nested too deep") from None
    rest: list[Any] = [table]
    while rest:
        value = rest.pop()
        if isinstance(value, (dict, list)):
            rest += value.values() if isinstance(value, dict) else value
        elif isinstance(value, int) and not whole(value):
            raise ValueError("a whole number of more than 64 bits")
    return table


def table_of(content: bytes, path: Path, what: str) -> dict[str, Any]:
    """The table of a file's bytes."""
    try:
        return parse(content.decode())
    except ValueError as error:
        raise InputError(Reason(what, str(error), file=str(path))) from error

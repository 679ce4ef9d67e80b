"""Chips, boards and phones → profiles: ``hardware.toml``, and finding an entry by what a user types."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Any

from nnbridge import toml

_FILE = Path(__file__).with_name("hardware.toml")
_LEAST = 3
"""Characters that a part of a name has at least."""
_SIMILAR = 0.8
_MOST = 6


@dataclass(frozen=True)
class Hardware:
    """One chip, or a family of chips, boards and phones with the same answer."""

    name: str
    accelerator: str
    sources: tuple[str, ...]
    also: tuple[str, ...] = ()
    """Other names, of boards and phones with it and of its vendor."""
    driver: str = "not known"
    android: str = "not known"
    profiles: tuple[str, ...] = ()
    """Profiles of its driver or compiler, the one to try first before the others."""
    nearest: tuple[str, ...] = ()
    """Profiles that are not of it, where there is none."""
    unknown: str = ""
    """The part that no public rules are known of."""
    note: str = ""

    @property
    def sentence(self) -> str:
        """A sentence that names the profile to use, or says that nothing is known."""
        use = f"{self.name}: --device {self.profiles[0]}" if self.profiles else ""
        if not self.unknown:
            return use
        near = f"; the nearest is {' or '.join(self.nearest)}, which is not it" if self.nearest else ""
        unknown = f"no public rules are known for {self.unknown}{near}"
        return f"{use}; {unknown}" if use else f"{self.name}: {unknown}"


@cache
def hardware() -> tuple[Hardware, ...]:
    """All entries of the file."""
    listed = toml.parse(_FILE.read_text(encoding="utf-8"))["hardware"]
    entries: list[dict[str, Any]] = [{k: tuple(v) if isinstance(v, list) else v for k, v in e.items()} for e in listed]
    return tuple(Hardware(**entry) for entry in entries)


_LONGEST = 100
"""Letters of a text that is compared with names."""


def find(text: str) -> list[Hardware]:
    """The entries that a text names, the best first: by name, by a part of one, else by similar ones."""
    typed = _plain(text)
    if not 2 <= len(typed) <= _LONGEST:
        return []
    scores = {entry.name: max(_score(typed, name) for name in _names(entry)) for entry in hardware()}
    best = max(scores.values())
    least = next((least for least in (3.0, 2.0, 1.0) if best >= least), _SIMILAR)
    found = [entry for entry in hardware() if scores[entry.name] >= least]
    return sorted(found, key=lambda entry: -scores[entry.name])[:_MOST]


def _names(entry: Hardware) -> Iterable[str]:
    return map(_plain, (entry.name, *entry.also, *entry.profiles))


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _score(typed: str, name: str) -> float:
    """3 for the same name, from 2 where the text is a part of it, from 1 where it is a part of the text, else how similar they
    are; no number is cut, so that ``pixel 1`` is no part of ``Pixel 10``.
    """
    if typed == name:
        return 3
    short, long = sorted((typed, name), key=len)
    if len(short) >= _LEAST and re.search(rf"{_edge(short[0], '<')}{short}{_edge(short[-1], '')}", long):
        return (2 if short == typed else 1) + len(short) / len(long)
    if re.findall(r"\d+", typed) != re.findall(r"\d+", name):
        return 0  # Another number is another chip.
    return SequenceMatcher(None, typed, name).ratio()


def _edge(character: str, side: str) -> str:
    return rf"(?{side}!\d)" if character.isdigit() else ""

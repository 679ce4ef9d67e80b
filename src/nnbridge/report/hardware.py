"""Chips, boards and phones as lines: which profiles there are, and what is known of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nnbridge.devices import device
from nnbridge.devices.evidence import evidence
from nnbridge.devices.hardware import Hardware

_PROFILES = 3
"""Profiles whose evidence is printed; those of other releases are named."""


def hardware_as_dict(entry: Hardware) -> dict[str, Any]:
    """An entry for ``--json``, with the evidence of each profile."""
    texts = {key: getattr(entry, key) for key in ("name", "accelerator", "driver", "android", "unknown", "note", "sentence")}
    lists = {key: list(getattr(entry, key)) for key in ("also", "profiles", "nearest", "sources")}
    return {**texts, **lists, "evidence": [evidence(device(name)).as_dict() for name in (*entry.profiles, *entry.nearest)]}


def hardware_blocks(found: Iterable[Hardware]) -> Iterator[str]:
    """Of each entry its sentence, its parts, and the evidence of its profiles."""
    for entry in found:
        yield entry.sentence
        facts = {"accelerator": entry.accelerator, "driver": entry.driver, "Android": entry.android, "note": entry.note}
        yield from (f"  {key}: {text}" for key, text in facts.items() if text)
        yield from _profiles("profile", entry.profiles)
        yield from _profiles("nearest, not it", entry.nearest)
        yield from (f"  source: {source}" for source in entry.sources)


def _profiles(word: str, names: Sequence[str]) -> Iterator[str]:
    yield from (f"  {word}: {name}: {evidence(device(name)).clause}" for name in names[:_PROFILES])
    if names[_PROFILES:]:
        yield f"  {word}s of other releases or sizes: {', '.join(names[_PROFILES:])}"

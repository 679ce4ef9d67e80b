"""Chips, boards and phones as lines: which profiles there are, and what is known about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nnbridge.devices import device
from nnbridge.devices.evidence import evidence
from nnbridge.devices.hardware import Found, androids_of
from nnbridge.report.terminal import Table

_PROFILES = 3
"""Profiles whose evidence is printed; those of other releases are named."""
_LISTING = "`adb shell service list`"
_NAMED = f"{_LISTING} names the NNAPI drivers that it has, up to Android 12 `adb shell lshal`"


def hardware_as_dict(found: Found) -> dict[str, Any]:
    """An entry for ``--json``, with what was typed for it and the evidence of each profile."""
    entry = found.entry
    texts = {key: getattr(entry, key) for key in ("name", "accelerator", "driver", "android", "unknown", "unwritten", "note")}
    lists = {key: list(getattr(entry, key)) for key in ("lines", "chips", "also", "profiles", "nearest", "sources")}
    phone = found.phone and {"name": found.phone.name, "chip": found.phone.chip, "source": found.phone.source}
    return {
        **texts,
        "sentence": found.sentence,
        "exact": found.exact,
        "phone": phone,
        **lists,
        "androids": {name: list(androids_of(name)) for name in entry.profiles},
        "instead": list(entry.instead),
        "evidence": [evidence(device(name)).as_dict() for name in (*entry.profiles, *entry.nearest)],
    }


def hardware_blocks(listed: Iterable[Found]) -> Iterator[Table]:
    """Of each entry its sentence, its parts, and the evidence of its profiles."""
    for found in listed:
        entry = found.entry
        facts = {"accelerator": entry.accelerator, "driver": entry.driver, "Android": entry.android, "note": entry.note}
        sources = (*([found.phone.source] if found.phone else []), *entry.sources)
        rows = [
            *((key, text) for key, text in facts.items() if text),
            *_profiles("profile", entry.profiles),
            *_profiles("nearest, not it", entry.nearest),
            *(("instead", text) for text in entry.instead),
            *([("on the phone", _NAMED)] if entry.instead and entry.is_android and _LISTING not in entry.note else []),
            *(("source", source) for source in sources),
        ]
        yield Table(found.sentence, ("part", "what is known"), rows)


def _profiles(word: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield from ((word, f"{_dated(name)}: {evidence(device(name)).clause}") for name in names[:_PROFILES])
    if names[_PROFILES:]:
        yield "others", ", ".join(map(_dated, names[_PROFILES:]))


def _dated(name: str) -> str:
    """A profile with the Android versions that its release belongs to."""
    versions = androids_of(name)
    return f"{name} (Android {' and '.join(versions)})" if versions else name

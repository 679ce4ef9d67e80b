"""Names of commands of earlier releases: what they are called now.

They work as before, with their tables in files of defaults, are in no help, and print one line that names the new form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NEW_NAMES: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("ndk",): ("build",),
    ("ndk", "build"): ("build", "ndk"),
    ("ndk", "env"): ("build", "ndk-env"),
    ("delegate",): ("build",),
    ("delegate", "build"): ("build", "delegate"),
    ("provider",): ("build",),
    ("provider", "build"): ("build", "provider"),
    ("neuron",): ("build",),
    ("neuron", "build"): ("build", "neuron"),
    ("neuron", "compile"): ("build", "neuron-file"),
    ("warmup",): ("doctor", "--warm"),
    ("extract",): ("convert",),
    ("export-overlay",): ("report",),
}
"""Words that were typed → words that are typed instead."""
_FORMS: Mapping[tuple[str, ...], str] = {
    ("extract",): "convert MODEL --operations N[-N] (or --operators)",
    ("export-overlay",): "report MODEL -o FILE.json",
}
"""How the new form is printed where its words are not enough."""


def old_name(typed: Sequence[str]) -> tuple[str, ...]:
    """The old name that a command line begins with, the longest one; empty where there is none."""
    return max((name for name in NEW_NAMES if tuple(typed[: len(name)]) == name), key=len, default=())


def note(name: tuple[str, ...]) -> str:
    """The line that names the new form."""
    return f"nnbridge {' '.join(name)} is nnbridge {_FORMS.get(name, ' '.join(NEW_NAMES[name]))} now"


def with_new_names(table: Mapping[str, Any], typed: tuple[str, ...] = ()) -> dict[str, Any]:
    """A table of defaults without those of old names; those of the old name that was typed are defaults of the new one."""
    firsts = {name[0] for name in NEW_NAMES}
    found = {key: value for key, value in table.items() if not (key in firsts and isinstance(value, dict))}
    values: dict[str, Any] = {}
    inner: Any = table
    for word in typed:
        inner = inner.get(word, {}) if isinstance(inner, dict) else {}
        if isinstance(inner, dict):
            values |= {key: value for key, value in inner.items() if not isinstance(value, dict)}
    if values:
        words = [word for word in NEW_NAMES[typed] if not word.startswith("-")]
        found = _merged(found, words, values)
    return found


def _merged(table: Mapping[str, Any], words: Sequence[str], values: Mapping[str, Any]) -> dict[str, Any]:
    if not words:
        return {**table, **values}
    below = table.get(words[0], {})
    return {**table, words[0]: _merged(below if isinstance(below, dict) else {}, words[1:], values)}

"""Learned rules as a device profile in TOML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from nnbridge.devices.profile_file import MAX_BYTES
from nnbridge.learning.matching import Operators
from nnbridge.learning.space import Atom, Example, Rules
from nnbridge.toml import TomlTable, toml_text

_MAX_TEXT = 1_500
"""Characters of one condition; the language has a limit of 2,000."""
_MAX_TERMS = 2
"""Texts of one operation for what is refused for sure; fewer where a profile would be larger than it may be."""
_VERSION = "learned from logs"
_UNSEEN = "the logs have nothing like it"
_PERFORMANCE = {"other": [0.9, 0.9]}
_NOT_LOGGED = "not in a log: just better than the CPU's, so that the device gets what it supports"


def profile_text(devices: Mapping[str, Mapping[str, Rules]], source: str) -> str:
    """A profile file with one device for each name; operation → what was learned of it."""
    for count in range(_MAX_TERMS, -1, -1):
        text = toml_text(table for name, learned in devices.items() for table in _device(name, learned, source, count))
        if len(text.encode()) <= MAX_BYTES:
            break
    return text


def delegate_text(devices: Sequence[tuple[str, Mapping[str, Operators]]], source: str) -> str:
    """A profile file at the level of TFLite's operators. An operator that is always refused is not listed."""
    return toml_text(table for name, operators in devices for table in _delegate(name, operators, source))


def _delegate(name: str, table: Mapping[str, Operators], source: str) -> Iterator[TomlTable]:
    refused = [_said(key, each) for key, each in sorted(table.items()) if each.refused and not each.accepted and not each.open]
    head = {"name": name, "level": "tflite", "version": _VERSION, "source": source, "notes": refused}
    yield TomlTable(("device",), head, repeated=True)
    operations: dict[str, list[dict[str, str]]] = {}
    comments = {}
    for key, each in sorted(table.items()):
        if each.accepted and not each.refused and not each.open:
            operations[key], comments[key] = [], f"{each.accepted} taken"
        elif each.accepted or each.open:
            why = f"{each.accepted} supported, {each.refused} refused, {each.open} not known" + (
                f": {each.says}" if each.says else ""
            )
            operations[key] = [{"require": "version >= 1", "uncertain": why}]
    yield TomlTable(("device", "operations"), operations, comments=comments)


def _said(key: str, each: Operators) -> str:
    return f"{key} was refused {each.refused} times" + (f": {each.says}" if each.says else "")


def _device(name: str, learned: Mapping[str, Rules], source: str, count: int) -> Iterator[TomlTable]:
    terms: dict[str, str] = {}
    operations = {key: _operation(key, rules, terms, count) for key, rules in sorted(learned.items())}
    head = {"name": name, "source": source, "version": _VERSION, "performance": _PERFORMANCE}
    yield TomlTable(("device",), head, repeated=True, comments={"performance": _NOT_LOGGED})
    if terms:
        yield TomlTable(("device", "terms"), terms)
    others = {"never": "it is in no log", "uncertain": "it is in no log"}
    yield TomlTable(("device", "operations"), {"others": others})
    yield from (TomlTable(("device", "operations", key), values) for key, values in operations.items())


def _operation(key: str, rules: Rules, terms: dict[str, str], count: int) -> dict[str, Any]:
    values: dict[str, Any] = {"source": f"{rules.supported} supported, {rules.refusals} refused"}
    if rules.never:
        values["never"] = "refused wherever the logs have it"
    if rules.blind:
        values["uncertain"] = "the log does not say what its operands were"
    refused = list(_refused_terms(key, rules, terms, count))
    listed = [_required(rules, atom, explained) for atom, explained in rules.required]
    listed += _open(rules, refused)
    return values | ({"rules": listed} if listed else {})


def _required(rules: Rules, atom: Atom, explained: Sequence[Example]) -> dict[str, str]:
    guard = {"when": rules.guard(atom)} if atom.guard else {}
    first = next((e.where for e in explained if e.where), "")
    count = f"{len(explained)} refused" + (f", such as {first}" if first else "")
    return {"require": rules.text(atom), **guard, "source": count}


def _refused_terms(key: str, rules: Rules, terms: dict[str, str], count: int) -> Iterator[str]:
    """Names of terms that are true for what is refused for sure."""
    regions = [" and ".join(f"({rules.beyond(atom, value)})" for atom, value in region) for region in rules.refused]
    # The widest ones come first; what is left out is open instead.
    for number, text in enumerate(islice(_packed(regions, " or "), count)):
        name = f"refused_{key}" + (f"_{number + 1}" if number else "")
        terms[name] = text
        yield name


def _open(rules: Rules, refused: Sequence[str]) -> Iterator[dict[str, str]]:
    """The conditions under which answers are open: outside of what was seen, unless it is refused for sure."""
    unless = "".join(f" and not {name}" for name in refused)
    broken = [" and ".join(filter(None, (rules.guard(atom), f"not ({rules.text(atom)})"))) for atom in rules.seen]
    for text in _packed(broken, " or ", _MAX_TEXT - len(unless)):
        yield {"when": f"({text}){unless}", "uncertain": _UNSEEN}
    forms = [rules.features.index(f) for f in rules.features if f.form and f.text.startswith(("list(", "unique("))]
    alike = dict.fromkeys(
        " and ".join(rules.beyond(Atom(place, "in", ()), e.values[place]) for place in forms if e.values[place] is not None)
        for e in rules.unexplained
    )
    for text in _packed([f"({t})" for t in alike if t], " or "):
        yield {"when": text, "uncertain": "a like one was refused for a reason that the log does not show"}


def _packed(texts: Sequence[str], joint: str, limit: int = _MAX_TEXT) -> Iterator[str]:
    """Texts joined, as many as a condition may have; one that is longer than the limit is left out."""
    line = ""
    for text in texts:
        if len(text) > limit:
            continue
        if line and len(line) + len(joint) + len(text) > limit:
            yield line
            line = ""
        line = f"{line}{joint}{text}" if line else text
    if line:
        yield line

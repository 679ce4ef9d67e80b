"""Reading profiles of devices that look at a file's operators (``level = "tflite"``), all mistakes of a file at once."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from nnbridge.devices.rules import RuleCondition, RuleErrors, condition, contradictions
from nnbridge.devices.rules.facts import ENTRY_WEIGHT, LIST, NUMBER, RULE_WEIGHT, Vocabulary, expansions
from nnbridge.devices.source_facts import declarations, source_vocabulary
from nnbridge.devices.source_profiles import SourceProfile, SourceRules
from nnbridge.devices.table_values import OnDemand, TableValues
from nnbridge.errors import InputError, Reason, near
from nnbridge.estimate.reading import cost_of
from nnbridge.operations.numerics import EXACT, NUMERICS

LEVELS = ("tflite",)
"""The formats whose operators devices look at."""
_TEXTS = ("name", "like", "level", "version", "source", "verified", "numerics", "numerics_source", "app")
_TABLES = ("hardware", "sets", "conditions", "operations", "unpacks", "faults")
_KEYS = (*_TEXTS, *_TABLES, "rules", "static", "partitions", "max_partitions", "cost", "notes", "aliases")
_RULE_KEYS = ("require", "when", "says", "uncertain", "except", "only", "fails_model")
_PARTITIONS = ("all", "first")
_TURNS = ("first", "", "last")
"""What refuses a file when it is read comes before all placing, what refuses it when it is compiled after it."""
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SHOWN = 80


def source_profiles(path: Path, text: str, data: Mapping[str, Any], checked: bool = False) -> tuple[SourceProfile, ...]:
    """The devices of a file whose TOML was read already; InputError has every mistake with its line. Rules of a checked file
    are read when needed."""
    return _SourceProfileReader(path, text, checked).devices(data.get("device"))


class _SourceProfileReader(TableValues):
    def __init__(self, path: Path, text: str, checked: bool) -> None:
        self._path, self._text, self._checked = path, text, checked
        self._mistakes = {}
        self._work = expansions(self._too_much)

    def devices(self, listed: Any) -> tuple[SourceProfile, ...]:
        tables: dict[str, dict[str, Any]] = {}
        rules: dict[str, SourceRules] = {}
        found = []
        for table in listed if isinstance(listed, list) else []:
            name = self._text_of(table, "name")
            if not name or name in tables:
                self.note("name", "a device's name, each once", table.get("name"))
                continue
            base = tables.get(self._text_of(table, "like"))
            if table.get("like") and base is None:
                self.note("like", f"a device above ({', '.join(tables) or 'none'})", table["like"])
            for key in table:
                if key not in _KEYS:
                    self.note(key, f"one of {', '.join(_KEYS)} in [[device]]{near(key, _KEYS)}", key)
            tables[name] = whole = _merged(base, table)
            own = base is None or any(key in table for key in ("sets", "conditions", "operations", "unpacks", "faults", "rules"))
            rules[name] = self._rules(whole) if own else rules[table["like"]]
            found.append(self._device(name, whole, rules[name]))
        if self._mistakes:
            raise InputError.of(self._mistakes)
        return tuple(found)

    def _device(self, name: str, table: Mapping[str, Any], rules: SourceRules) -> SourceProfile:
        partitions = self._text_of(table, "partitions") or _PARTITIONS[0]
        if partitions not in _PARTITIONS:
            self.note("partitions", f"one of {', '.join(_PARTITIONS)}", partitions)
        return SourceProfile(
            name,
            rules,
            self._text_of(table, "version") or "profile",
            self._text_of(table, "source"),
            self._text_of(table, "verified"),
            tuple(self._list(table, "notes", str)),
            self._hardware(table),
            self._truth(table, "static"),
            partitions,
            self._limit(table),
            cost_of(self._table(table, "cost"), self.note) if table.get("cost", False) is not False else None,
            aliases=tuple(self._list(table, "aliases", str)),
            numerics=self._numerics(table),
            numerics_source=self._text_of(table, "numerics_source"),
            app=self._text_of(table, "app"),
        )

    def _numerics(self, table: Mapping[str, Any]) -> str:
        """The arithmetic, which needs a source."""
        name = self._text_of(table, "numerics") or EXACT.name
        if name not in NUMERICS:
            self.note("numerics", f"one of {', '.join(NUMERICS)}{near(name, tuple(NUMERICS))}", name)
        elif "numerics" in table and not self._text_of(table, "numerics_source"):
            self.note("numerics", "numerics_source, where the arithmetic is stated", table.get("numerics_source"))
        return name

    # -- rules -------------------------------------------------------------------------------------------------------

    def _rules(self, table: Mapping[str, Any]) -> SourceRules:
        level = self._text_of(table, "level")
        if level not in LEVELS:
            self.note("level", f"one of {', '.join(LEVELS)}", level)
        named = {key: list(self._entries(key, value, {})) for key, value in self._table(table, "conditions").items()}
        common = list(self._entries("rules", table.get("rules", []), named))
        listed = self._table(table, "sets")
        sets = {key: tuple(self._list(listed, key, str)) for key in listed}
        texts = {name: entries[0]["require"] for name, entries in named.items() if len(entries) == 1}

        def alternatives(key: str, value: Any, common: Sequence[dict[str, Any]]) -> tuple[tuple[RuleCondition, ...], ...]:
            words = self._vocabulary(level, key, sets, texts, table)
            return () if words is None else tuple(self._alternatives(key, value, words, common, named))

        operators, unpacks, faults = (
            OnDemand(
                {key: partial(alternatives, key, value, shared) for key, value in self._table(table, part).items()},
                at_once=not self._checked,
            )
            for part, shared in (("operations", common), ("unpacks", ()), ("faults", ()))
        )
        return SourceRules(level, operators, unpacks, faults)

    def _vocabulary(
        self, level: str, key: str, sets: Mapping[str, Sequence[str]], texts: Mapping[str, str], table: Mapping[str, Any]
    ) -> Vocabulary | None:
        """The words of an operator's conditions; None, with a note, for one that the format does not have."""
        known = declarations(level)
        if known and key not in known:
            self.note(key, f"an operator of {level}{near(key, known)}", key)
            return None
        self._work.spend(RULE_WEIGHT, key)
        return replace(_words(level, key, sets, tuple(self._hardware(table))), conditions=texts, work=self._work)

    def _alternatives(
        self,
        key: str,
        value: Any,
        words: Vocabulary,
        common: Sequence[dict[str, Any]],
        named: Mapping[str, list[dict[str, Any]]],
    ) -> Iterator[tuple[RuleCondition, ...]]:
        several = isinstance(value, list) and bool(value) and all(isinstance(v, list) for v in value)
        for alternative in value if several else [value]:
            entries = [e for e in (*common, *self._entries(key, alternative, named)) if self._applies(key, e)]
            made = tuple(c for e in entries for c in self._conditions(e, words))
            for contradicting, subject in contradictions(made):
                self.note(key, f"conditions on {subject} that some {key} can meet", contradicting.text)
            yield tuple(sorted(made, key=lambda each: _TURNS.index(each.fails_model)))

    def _entries(self, key: str, value: Any, named: Mapping[str, list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
        for item in value if isinstance(value, list) else [value]:
            self._work.spend(ENTRY_WEIGHT, key)
            entry = {"require": item} if isinstance(item, str) else item
            if not isinstance(entry, dict) or not isinstance(entry.get("require"), str):
                self.note(key, "a condition: a text or a table with require", item)
                continue
            for name in entry:
                if name not in _RULE_KEYS:
                    self.note(name, f"one of {', '.join(_RULE_KEYS)} in a condition{near(name, _RULE_KEYS)}", name)
            if entry["require"] in named:
                yield from ({**inner, **{k: v for k, v in entry.items() if k != "require"}} for inner in named[entry["require"]])
            else:
                yield entry

    def _applies(self, key: str, entry: Mapping[str, Any]) -> bool:
        only, excepted = self._list(entry, "only", str), self._list(entry, "except", str)
        return key not in excepted and (not only or key in only)

    def _conditions(self, entry: Mapping[str, Any], words: Vocabulary) -> Iterator[RuleCondition]:
        try:
            made = condition(entry["require"], words, self._text_of(entry, "when"))
        except RuleErrors as error:
            for mistake in error.mistakes:
                self.note(entry["require"], f"{mistake.rule} at character {mistake.at + 1}", mistake.found)
            return
        says, uncertain = self._text_of(entry, "says"), self._text_of(entry, "uncertain")
        fails = entry.get("fails_model", False)
        if fails not in (True, False, "last"):
            self.note("fails_model", "true (when the file is read) or last (when it is compiled)", fails)
        turn = "first" if fails is True else "last" if fails else ""
        yield replace(made, says=says, uncertain=uncertain, fails_model=turn)

    def _truth(self, table: Mapping[str, Any], key: str) -> bool:
        value = table.get(key, False)
        if not isinstance(value, bool):
            self.note(key, "true or false", value)
        return value is True

    def _limit(self, table: Mapping[str, Any]) -> int:
        value = table.get("max_partitions", 0)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31:
            return value
        self.note("max_partitions", "a whole number of at least 0", value)
        return 0

    # -- values ------------------------------------------------------------------------------------------------------

    def _hardware(self, table: Mapping[str, Any]) -> dict[str, float]:
        found = {}
        for key, value in self._table(table, "hardware").items():
            if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and _NAME.fullmatch(key):
                found[key] = value
            else:
                self.note(key, "a number", value)
        return found

    def note(self, key: str, rule: str, found: object) -> None:
        """A mistake at a key or text of the file."""
        place = self._text.find(key)
        line = self._text.count("\n", 0, max(place, 0)) + 1
        shown = json.dumps(found, ensure_ascii=False, default=str)[:_SHOWN]
        name = key[:_SHOWN]
        self._mistaken(Reason(rule, shown, operand=name if name.isprintable() else repr(name), file=str(self._path), line=line))

    def _too_much(self, rule: str, found: str, place: str) -> InputError:
        self._mistakes.clear()  # the others are of no use where there are so many conditions
        self.note(place, rule, found)
        return InputError.of(self._mistakes)


def _merged(base: Mapping[str, Any] | None, table: Mapping[str, Any]) -> dict[str, Any]:
    """A device's table over that of the one that it is like: tables are merged, rules are replaced."""
    if base is None:
        return dict(table)
    shared = [key for key in (*_TABLES, "cost") if isinstance(base.get(key), dict) and isinstance(table.get(key), dict)]
    return {**base, "aliases": [], **table, **{key: {**base[key], **table[key]} for key in shared}}


def _words(level: str, key: str, sets: Mapping[str, Sequence[str]], hardware: Sequence[str]) -> Vocabulary:
    words = source_vocabulary(level, key)
    return replace(
        words,
        names={**words.names, **dict.fromkeys(hardware, NUMBER)},
        words={**words.words, **{name: (LIST, tuple(values)) for name, values in sets.items()}},
    )

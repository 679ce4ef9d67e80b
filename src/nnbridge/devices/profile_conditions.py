"""The conditions of a profile's device: sets of types, numbers of the hardware, named conditions, and those of each operation."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache, cached_property
from itertools import product
from string import ascii_letters, digits
from typing import Any

from nnbridge.budget import WorkBudget
from nnbridge.devices.operation_facts import operand_vocabulary, reserved, type_words, vocabulary
from nnbridge.devices.rules import RuleCondition, RuleErrors, Vocabulary, condition, contradictions
from nnbridge.devices.rules.conditions import checked
from nnbridge.devices.rules.facts import ENTRY_WEIGHT, LIST, OPERAND, expansions
from nnbridge.devices.rules.syntax import MAX_DEPTH, Attribute, ComparisonChain, Listing, Name
from nnbridge.errors import near
from nnbridge.records import dataclass
from nnbridge.types import OperandCode

CONDITION_KEYS = ("require", "when", "says", "source", "uncertain", "dies", "at")
DEFINED = ("hardware", "sets", "terms", "conditions")
"""The tables of a device that define names."""
STAGES = ("support", "prepare")
"""When a condition on operands is evaluated."""
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MAX_ROWS = 4_000
_words = cache(type_words)
_STATES = {"": (False, True), "!": (True,), "~": (False,)}
"""What comes after a type in a row → whether the operand may be a constant."""
_NAME_CHARACTERS = f"{ascii_letters}{digits}_"

Note = Callable[..., None]
"""``note(key, rule, found)`` records a mistake; ``text=`` and ``at=`` are the condition's text and the character in it."""


@dataclass(frozen=True)
class Entry:
    """One condition as it is in a profile."""

    require: str
    when: str = ""
    says: str = ""
    source: str = ""
    uncertain: str = ""
    dies: bool = False
    at: str = STAGES[0]

    @property
    def as_text(self) -> str:
        """The condition as part of another one."""
        return f"(not ({self.when}) or ({self.require}))" if self.when else f"({self.require})"


@dataclass(frozen=True)
class Definitions:
    """The names that conditions of a device may refer to."""

    hardware: Mapping[str, int | float] = field(default_factory=dict)
    sets: Mapping[str, tuple[OperandCode, ...]] = field(default_factory=dict)
    conditions: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    terms: Mapping[str, str] = field(default_factory=dict)
    work: WorkBudget = field(default_factory=expansions, compare=False)

    def vocabulary(self, key: str) -> Vocabulary:
        """The names that conditions of an operation may use."""
        if key not in self._vocabularies:
            self._vocabularies[key] = vocabulary(key, self.hardware, self.sets, self._texts, self.work)
        return self._vocabularies[key]

    @cached_property
    def _texts(self) -> Mapping[str, str]:
        texts = {name: " and ".join(e.as_text for e in entries) for name, entries in self.conditions.items() if entries}
        return {**self.terms, **texts}

    @cached_property
    def _vocabularies(self) -> dict[str, Vocabulary]:
        return {}


class ConditionReader:
    """Reads the tables of one device. ``note`` records mistakes."""

    def __init__(self, note: Note, work: WorkBudget) -> None:
        self._note, self._work = note, work
        self.definitions = Definitions()
        self._raw: Mapping[str, Any] = {}
        self._resolved: dict[str, tuple[Entry, ...]] = {}
        self._within: list[str] = []
        """The conditions that are being looked up."""

    # -- definitions -------------------------------------------------------------------------------------------------

    def define(self, tables: Sequence[Mapping[str, Any]]) -> None:
        """Read the names that the device defines, each once and none that the language has: DEFINED's tables, in this order."""
        hardware, sets, terms, conditions = tables
        for name in (*hardware, *sets, *terms, *conditions):
            if not _NAME.fullmatch(name) or keyword.iskeyword(name) or reserved(name):
                self._note(name, "a name that the language does not have", name, quoted=False)
            elif sum(name in table for table in tables) > 1:
                self._note(name, "one meaning of a name", "several", quoted=False)
        numbers = {name: value for name, value in hardware.items() if self._number(name, value)}
        texts = {name: text for name, text in terms.items() if self._text(name, text)}
        types = {name: self._types(name, value) for name, value in sets.items()}
        self.definitions = Definitions(numbers, types, {}, texts, self._work)
        self._raw, self._resolved, self._within = conditions, {}, []
        for name in conditions:
            self._named(name)
        self.definitions = replace(self.definitions, conditions=self._resolved)

    def _named(self, name: str) -> tuple[Entry, ...]:
        """The conditions that a name stands for; names of others in them are looked up first."""
        if name in self._within:
            self._note(name, "a condition without itself in it", name, quoted=False)
            return ()
        if len(self._within) > MAX_DEPTH:
            self._note(name, f"conditions in conditions, {MAX_DEPTH} deep at most", "more", quoted=False)
            return ()
        if name not in self._resolved:
            self._within.append(name)
            self._resolved[name] = tuple(self.entries(name, self._raw[name]))
            self._within.pop()
        return self._resolved[name]

    def _number(self, name: str, value: object) -> bool:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and abs(value) < 2**63:
            return True
        self._note(name, "a number below 2**63", value)
        return False

    def _text(self, name: str, value: object) -> bool:
        if isinstance(value, str) and value.isprintable():
            return True
        self._note(name, "a printable text", value)
        return False

    def _types(self, name: str, value: object) -> tuple[OperandCode, ...]:
        if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
            self._note(name, "a list of types", value)
            return ()
        return tuple(dict.fromkeys(code for word in value for code in self.codes(name, word)))

    def codes(self, key: str, word: str) -> tuple[OperandCode, ...]:
        """The types that a word stands for: a type, or a set of them."""
        if word in self.definitions.sets:
            return self.definitions.sets[word]
        if word in _words():
            return (_words()[word][1],)
        self._note(key, f"a type or a set of types{near(word, (*self.definitions.sets, *_words()))}", word, text=word)
        return ()

    # -- conditions --------------------------------------------------------------------------------------------------

    def entries(self, key: str, value: object) -> Iterator[Entry]:
        """A text, a table, the name of a condition, or a list of these."""
        for item in value if isinstance(value, list) else [value]:
            self._work.spend(ENTRY_WEIGHT, key)
            if isinstance(item, str) and item in self._raw:
                found = self._named(item)
                self._work.spend(ENTRY_WEIGHT * len(found), key)
                yield from found
            elif isinstance(item, str) and item:
                yield Entry(item)
            elif isinstance(item, dict):
                yield from self._entry(key, item)
            else:
                self._note(key, "a condition: a text or a table with require", item)

    def _entry(self, key: str, table: Mapping[str, Any]) -> Iterator[Entry]:
        for name in table:
            if name not in CONDITION_KEYS:
                self._note(
                    name, f"one of {', '.join(CONDITION_KEYS)} in a condition{near(name, CONDITION_KEYS)}", name, quoted=False
                )
        texts = {name: table.get(name, "") for name in CONDITION_KEYS if name != "dies"}
        wrong = next((n for n, v in texts.items() if not isinstance(v, str) or not v.isprintable()), None)
        dies = table.get("dies", False)
        stage = texts.pop("at") or STAGES[0]
        if wrong is not None:
            self._note(wrong, "a printable text", table[wrong])
        elif not isinstance(dies, bool):
            self._note("dies", "true or false", dies)
        elif stage not in STAGES:
            self._note("at", f"one of {', '.join(STAGES)}", stage)
        elif not texts["require"] and not (texts["when"] and texts["uncertain"]):
            self._note(key, "a condition with require, or with when and uncertain", ", ".join(table) or None)
        elif _NAME.fullmatch(texts["require"]) and texts["require"] in self._raw:
            remarks = {name: value for name, value in texts.items() if value and name not in ("require", "when")}
            for inner in self._named(texts["require"]):
                self._work.spend(ENTRY_WEIGHT, key)
                both = " and ".join(f"({w})" for w in (texts["when"], inner.when) if w)
                yield replace(inner, when=both, **remarks)
        else:
            yield Entry(**texts, dies=dies, at=stage)

    def conditions(self, key: str, entries: Sequence[Entry]) -> tuple[RuleCondition, ...]:
        """The conditions of one operation, checked separately and together."""
        words = self.definitions.vocabulary(key)
        found = tuple(c for entry in entries if entry.require for c in self._checked(key, entry, words))
        for made, subject in contradictions(found):
            self._note(key, f"conditions on {subject} that some {key} can meet", made.text, text=made.text)
        return found

    def open_questions(self, key: str, entries: Sequence[Entry]) -> tuple[tuple[RuleCondition, str], ...]:
        """The questions that the source leaves open: (condition under which it does, why)."""
        words = self.definitions.vocabulary(key)
        opened = [(replace(e, require=e.when, when=""), e.uncertain) for e in entries if not e.require]
        return tuple((c, why) for entry, why in opened for c in self._checked(key, entry, words))

    def on_operands(self, entries: Sequence[Entry]) -> Mapping[str, tuple[RuleCondition, ...]]:
        """Stage → conditions on every operand of a model."""
        words = operand_vocabulary(self.definitions.hardware, self._work)
        return {
            stage: tuple(c for e in entries if e.at == stage and e.require for c in self._checked("operands", e, words))
            for stage in STAGES
        }

    def _checked(self, key: str, entry: Entry, words: Vocabulary) -> Iterator[RuleCondition]:
        for text in filter(None, (entry.when, entry.require)):
            try:
                made = condition(text, words)
            except RuleErrors as error:
                for mistake in error.mistakes:
                    self._note(key, mistake.rule, mistake.found, quoted=False, text=text, at=mistake.at)
                return
        remarks = {name: getattr(entry, name) for name in ("says", "source", "uncertain", "dies")}
        yield replace(made, when=condition(entry.when, words) if entry.when else None, **remarks)

    # -- joint types -------------------------------------------------------------------------------------------------

    def signatures(self, key: str, table: Mapping[str, Any], says: str) -> tuple[RuleCondition, ...]:
        """Operand names → rows of types that they may have together. A set in several columns is one type of it.

        ``!`` after a type requires a constant, ``~`` forbids one.
        """
        words = self.definitions.vocabulary(key)
        return tuple(
            made for header, rows in table.items() if (made := self._signature(key, header, rows, words, says)) is not None
        )

    def _signature(self, key: str, header: str, rows: object, words: Vocabulary, says: str) -> RuleCondition | None:
        names = header.split()
        operands = [name for name, kind in words.names.items() if kind == OPERAND]
        unknown = next((n for n in names if n not in operands), None)
        if unknown is not None or not names:
            self._note(key, f"operands of {key}{near(unknown or '', operands)}", unknown, text=header)
            return None
        if not isinstance(rows, list) or not rows or not all(isinstance(row, str) for row in rows):
            self._note(key, "a list of rows of types", rows, text=header)
            return None
        allowed: dict[tuple[Any, ...], None] = {}
        shown: list[str] = []
        for row in rows:
            columns = [(column.rstrip("!~"), _STATES.get(column.lstrip(_NAME_CHARACTERS))) for column in row.split()]
            if len(columns) != len(names) or None in (state for _, state in columns):
                self._note(key, f"{len(names)} types, one for each of {header}, each by itself or with ! or ~", row, text=row)
                continue
            variables = dict.fromkeys(word for word, _ in columns)
            options = [self.codes(key, word) for word in variables]
            states = [state for _, state in columns if state is not None]
            if math.prod(map(len, (*options, *states))) + len(allowed) > _MAX_ROWS:
                self._note(key, f"at most {_MAX_ROWS} rows", "more", text=row)
                return None
            for choice in product(*options):
                of = dict(zip(variables, choice, strict=True))
                types = tuple(of[word] for word, _ in columns)
                shown.append(
                    " ".join(
                        short_name(c) + m for c, m in zip(types, (c.lstrip(_NAME_CHARACTERS) for c in row.split()), strict=True)
                    )
                )
                allowed |= {(*types, *constants): None for constants in product(*states)}
        own = replace(words, words={**words.words, "signature": (LIST, tuple(allowed))})
        read = tuple(Attribute(0, Name(0, name), attribute) for attribute in ("type", "constant") for name in names)
        text = f"{header}: {'; '.join(dict.fromkeys(shown))}"
        condition = checked(text, ComparisonChain(0, Listing(0, read), (("in", Name(0, "signature")),)), own)
        return replace(condition, says=says, wording=f"types {text}")


def short_name(code: OperandCode) -> str:
    """A type's name in conditions."""
    return code.name.removeprefix("TENSOR_") if code.name.startswith("TENSOR_") else f"SCALAR_{code.name}"

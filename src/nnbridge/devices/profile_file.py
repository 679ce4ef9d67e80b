"""Reading device profiles from TOML. The mistakes of a file are reported at once, each with its line."""

from __future__ import annotations

import copy
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from nnbridge import toml
from nnbridge.devices.device import Capabilities, Performance, uniform_capabilities
from nnbridge.devices.profile_conditions import DEFINED, ConditionReader, Entry
from nnbridge.devices.profiles import SIDES, Faults, ProfileDevice, ProfileRule
from nnbridge.devices.rules.facts import RULE_WEIGHT, expansions
from nnbridge.devices.table_values import OnDemand, TableValues
from nnbridge.errors import InputError, Reason, cannot_read
from nnbridge.errors import near as _near
from nnbridge.extensions import Extension, ExtensionOperandType
from nnbridge.operations import definition
from nnbridge.operations.numerics import NUMERICS
from nnbridge.reading import read_at_most
from nnbridge.types import DeviceTypeCode, FuseCode, OperandCode, OperationCode

SUFFIX = ".toml"
SHIPPED = Path(__file__).parent / "data"
MAX_BYTES = 128 * 1024
"""Of a file; the largest profile that comes with nnbridge has half of it."""
_MAX_RANK = 8
_SHOWN = 80
"""Characters of a wrong value that a message shows."""
_MAX_DELAY_MS = 3_600_000
_OTHERS = "others"
"""The key for operations that are not named."""
_TEXT_KEYS = ("name", "like", "version", "source", "verified", "type", "numerics", "numerics_source")
_MERGED = ("operations", *DEFINED)
"""Tables that a device and the one that it is like have in common."""
_DEVICE_KEYS = (*_TEXT_KEYS, "aliases", "feature_level", "performance", *_MERGED, "operands", "rules", "faults", "extensions")
_BOUNDS = ("at_least", "at_most")
_LIMITS = ("values", *_BOUNDS, "zero_points")
_PLAIN_KEYS = ("types", "input", "ranks", "constant", *_LIMITS, "same_quantisation", "max_bytes", "max_side", "fixed_size")
_RULE_TEXTS = ("never", "says", "source", "uncertain")
_RULE_KEYS = (*_PLAIN_KEYS, "signatures", "rules", *_RULE_TEXTS)
_FAULT_KEYS = ("prepare", "dies_at", "fails_at", "delay_ms", "wrong_answers")
_PERFORMANCE_KEYS = ("other", "float32", "relaxed")
_SIGNED = ("axis", "value", "hidden_state_zero_point")
"""Scalars that may be negative."""
_DEVICE_TYPES = tuple(name for name, code in DeviceTypeCode.__members__.items() if code != DeviceTypeCode.UNKNOWN)
_OPERAND_TYPES = tuple(dict.fromkeys(name.removeprefix("TENSOR_") for name in OperandCode.__members__))
"""FLOAT32 is short for TENSOR_FLOAT32: rules nearly always concern tensors."""
_ELEMENTS = {"UINT8": "QUANT8_ASYMM", "INT8": "QUANT8_ASYMM_SIGNED", "INT16": "QUANT16_SYMM", "UINT16": "QUANT16_ASYMM"}
_ELEMENTS |= {"FLOAT": "FLOAT32", "FP32": "FLOAT32", "FP16": "FLOAT16", "HALF": "FLOAT16", "BOOL": "BOOL8"}
"""Element types of other formats → NNAPI's operand types."""
_EXTENSION_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")

_T = TypeVar("_T")


def load_profiles(path: Path, checked: bool = False) -> tuple[ProfileDevice, ...]:
    """The devices of a file; InputError names its mistakes with their lines. Rules of a checked file are read when needed."""
    return _ProfileReader(path, checked).devices()


def shipped() -> tuple[ProfileDevice, ...]:
    """The profiles that come with nnbridge."""
    return tuple(device for path in sorted(SHIPPED.glob(f"*{SUFFIX}")) for device in _shipped_file(path))


def shipped_device(name: str) -> ProfileDevice | None:
    """The shipped profile with this name or alias; only files that have it are read."""
    files = (path for path in sorted(SHIPPED.glob(f"*{SUFFIX}")) if f'"{name}"' in path.read_text(encoding="utf-8"))
    return next((d for path in files for d in _shipped_file(path) if name in (d.name, *d.aliases)), None)


@cache
def _shipped_file(path: Path) -> tuple[ProfileDevice, ...]:
    return load_profiles(path, checked=True)


class _ProfileReader(TableValues):
    """One file being read. Mistakes are collected; readers of values return a default for what is wrong."""

    def __init__(self, path: Path, checked: bool) -> None:
        self._path, self._checked = path, checked
        self._mistakes = {}
        self._work = expansions(self._too_much)
        self._inherits = False
        """The device in question is like another one, whose mistakes are reported where they are."""
        try:
            if os.path.exists(path) and not os.path.isfile(path):
                self._refuse("a profile's file", "something else")
            content = read_at_most(path, MAX_BYTES)
            if len(content) > MAX_BYTES:
                self._refuse(f"a profile of at most {MAX_BYTES} bytes", "more")
            self._text = content.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(Reason("a readable profile", cannot_read(error), file=str(path))) from error
        self._conditions = ConditionReader(self.note, self._work)
        """The definitions of the device in question."""
        self._start, self._end = 0, len(self._text)
        """Where the table in question begins and its device ends, for the lines of mistakes."""

    def _refuse(self, rule: str, found: str) -> NoReturn:
        raise InputError(Reason(rule, found, file=str(self._path)))

    def devices(self) -> tuple[ProfileDevice, ...]:
        data = self._parsed()
        self._only(data, ("device",), "the file")
        listed = data.get("device")
        if not isinstance(listed, list) or not listed or not all(isinstance(table, dict) for table in listed):
            self.note("device", "at least one [[device]] table", listed)
            listed = []
        headers = [m.start() for m in re.finditer(r"^[ \t]*\[\[[ \t]*device[ \t]*\]\]", self._text, re.MULTILINE)]
        headers = [*headers, len(self._text)] if len(headers) == len(listed) else []
        tables: dict[str, dict[str, Any]] = {}
        devices: list[ProfileDevice] = []
        for number, table in enumerate(listed):
            self._start, self._end = headers[number : number + 2] if headers else (0, len(self._text))
            self._inherits = False
            name = self._text_of(table, "name")
            if table.get("name", "") == "":
                self.note("name", "the device's name", None)
            for taken in {name, *self._list(table, "aliases", str)} & (tables.keys() | {a for d in devices for a in d.aliases}):
                self.note("name" if taken == name else "aliases", "each name once", taken)
            tables[name] = self._with_base(table, tables)
            devices.append(self._device(name, tables[name]))
            self._check_levels(table, devices[-1].feature_level)
        if self._mistakes:
            raise InputError.of(self._mistakes)
        return tuple(devices)

    def _parsed(self) -> dict[str, Any]:
        try:
            return toml.parse(self._text)
        except ValueError as error:  # numbers of thousands of digits as well
            raise InputError(Reason("a TOML file", str(error), file=str(self._path))) from error

    def _with_base(self, table: dict[str, Any], earlier: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """The table over that of the earlier device that it is like; operations are merged."""
        like = self._text_of(table, "like")
        if not like:
            return table
        if like not in earlier:
            self.note("like", f"a device above ({', '.join(earlier) or 'none'})", like)
            return {"operations": {_OTHERS: {}}, **table}
        self._inherits = True
        base = earlier[like]
        merged = {key: {**self._table(base, key), **self._table(table, key)} for key in _MERGED}
        return {**base, "aliases": [], **table, **{key: value for key, value in merged.items() if value}}

    def _device(self, name: str, table: dict[str, Any]) -> ProfileDevice:
        self._only(table, _DEVICE_KEYS, "[[device]]")
        operations = self._table(table, "operations")
        if not operations and not table.get("extensions") and isinstance(table.get("operations", {}), dict):
            self.note("operations", f"a table of operations ([device.operations]) of device {name}", None)
        self._conditions = conditions = ConditionReader(self.note, self._work)
        conditions.define([self._table(table, key) for key in DEFINED])
        common = tuple(conditions.entries("rules", table.get("rules", [])))
        reader = copy.copy(self) if self._checked else self  # has the definitions of this device when rules are read later
        reads = {key: partial(reader._operation, key, value, common) for key, value in operations.items()}
        rules = OnDemand(reads, at_once=not self._checked)
        return ProfileDevice(
            name=name,
            rules=OnDemand({OperationCode[k]: partial(rules.__getitem__, k) for k in rules if k in OperationCode.__members__}),
            capabilities=self._capabilities(self._table(table, "performance")),
            feature_level=self._whole(table, "feature_level", 1, 8, 8),
            type=DeviceTypeCode[self._one_of(table, "type", _DEVICE_TYPES, "ACCELERATOR")],
            version=self._text_of(table, "version") or "profile",
            source=self._text_of(table, "source"),
            numerics=self._one_of(table, "numerics", tuple(NUMERICS), "exact"),
            numerics_source=self._text_of(table, "numerics_source"),
            verified=self._text_of(table, "verified"),
            aliases=tuple(self._list(table, "aliases", str)),
            operands=conditions.on_operands(tuple(conditions.entries("operands", table.get("operands", [])))),
            faults=self._faults(self._table(table, "faults")),
            others=rules.get(_OTHERS, ()),
            extensions=dict(self._extension(item) for item in self._list(table, "extensions", dict)),
        )

    def _check_levels(self, table: dict[str, Any], level: int) -> None:
        """An operation above the device's level is never queried; those of the device above that it is like may be."""
        for key in self._table(table, "operations"):
            declared = definition(OperationCode[key]) if key in OperationCode.__members__ else None
            if declared is not None and declared.since > level:
                self.note(
                    key, f"an operation of the device's feature level {level}", f"one of {int(declared.since)}", quoted=False
                )

    # -- rules -------------------------------------------------------------------------------------------------------

    def _operation(self, key: str, value: Any, common: Sequence[Entry]) -> tuple[ProfileRule, ...]:
        return self._below(key, self._alternatives, key, value, common)

    def _alternatives(self, key: str, value: Any, common: Sequence[Entry]) -> tuple[ProfileRule, ...]:
        """A list of types, a table of rules, or a list of such tables."""
        if key != _OTHERS and key not in OperationCode.__members__:
            self.note(key, f"an operation of NNAPI{_near(key, OperationCode.__members__)}", key, quoted=False)
            return ()
        several = isinstance(value, list) and value and all(isinstance(v, dict) for v in value)
        self._work.spend(RULE_WEIGHT * (len(value) if several else 1), key)
        return tuple(self._rule(key, v, common) for v in (value if several else [value]))

    def _rule(self, key: str, value: Any, common: Sequence[Entry]) -> ProfileRule:
        table = {"types": value} if isinstance(value, list) else value
        if not isinstance(table, dict):
            self.note(key, "a list of types or a table of rules", value)
            return ProfileRule()
        self._only(table, _RULE_KEYS, key)
        for group in ("types", "ranks"):
            if table.get(group) == []:  # an empty list would allow everything
                self.note(group if group in value else key, f"at least one of {group}", None)
        names = _input_names(key)
        subject = self._text_of(table, "input")
        constant = tuple(self._list(table, "constant", str))
        for name in (*constant, *([subject] if subject else ()), *(n for group in _LIMITS for n in self._table(table, group))):
            if key != _OTHERS and name not in names:
                self.note(name, f"an input of {key} ({', '.join(sorted(names))}){_near(name, names)}", name, quoted=False)
        at_least, at_most = ({n: v[0] for n, v in self._numbers(table, group).items()} for group in _BOUNDS)
        for name in at_least.keys() & at_most.keys():
            if at_least[name] > at_most[name]:
                self.note(name, f"at_least up to at_most's {at_most[name]}", at_least[name])
        ranks = tuple(self._list(table, "ranks", int))
        if not all(0 <= rank <= _MAX_RANK for rank in ranks):
            self.note("ranks", f"ranks of 0 to {_MAX_RANK}", list(ranks))
        texts = {name: self._text_of(table, name) for name in _RULE_TEXTS}
        entries = (*common, *self._conditions.entries(key, table.get("rules", [])))
        signatures = self._conditions.signatures(key, self._table(table, "signatures"), texts["says"])
        return ProfileRule(
            types=frozenset(code for name in self._list(table, "types", str) for code in self._operand_types(name)),
            subject=subject,
            ranks=ranks,
            constant=constant,
            values=self._numbers(table, "values"),
            at_least=at_least,
            at_most=at_most,
            zero_points=self._numbers(table, "zero_points"),
            same_quantisation=self._flag(table, "same_quantisation"),
            max_bytes=self._whole(table, "max_bytes", 0, 2**40, 0),
            max_side=self._whole(table, "max_side", 0, 2**32, 0),
            fixed_size=self._flag(table, "fixed_size"),
            conditions=(*signatures, *self._conditions.conditions(key, entries)),
            open=self._conditions.open_questions(key, entries),
            **texts,
        )

    def _numbers(self, table: Mapping[str, Any], group: str) -> dict[str, tuple[int, ...]]:
        """Name → numbers, one for a bound; fused activations may be named."""
        found = {}
        for name, value in self._table(table, group).items():
            listed = value if isinstance(value, list) else [value]
            numbers = [FuseCode[v].value if isinstance(v, str) and v in FuseCode.__members__ else v for v in listed]
            single = group in _BOUNDS
            if not numbers or not all(map(_is_whole, numbers)) or (len(numbers) != 1 if single else not isinstance(value, list)):
                self.note(name, "a whole number" if single else "a list of whole numbers or fused activations", value)
                continue
            low, high = (-(2**15), 2**16 - 1) if group == "zero_points" else _range_of(name)
            if not all(low <= number <= high for number in numbers):
                self.note(name, f"{'a number' if single else 'numbers'} of {low} to {high}", value)
                continue
            found[name] = tuple(numbers)
        return found

    def _operand_types(self, name: str) -> tuple[OperandCode, ...]:
        """The type of this name, or those of the device's set of this name."""
        if name in self._conditions.definitions.sets:
            return self._conditions.definitions.sets[name]
        found = next((n for n in (f"TENSOR_{name}", name) if n in OperandCode.__members__), None)
        if found is not None:
            return (OperandCode[found],)
        near = _ELEMENTS.get(name.upper())
        hint = f" (did you mean {near}?)" if near else _near(name, _OPERAND_TYPES) or f" ({', '.join(_OPERAND_TYPES)})"
        self.note(name, f"an operand type of NNAPI{hint}", name, quoted=False)
        return ()

    # -- the other tables --------------------------------------------------------------------------------------------

    def _capabilities(self, table: Mapping[str, Any]) -> Capabilities:
        """``other``, ``float32``, ``relaxed`` and operand types: time and power relative to the CPU."""
        self._only(table, (*_PERFORMANCE_KEYS, *OperandCode.__members__), "performance")
        found = {key: self._performance(key, value) for key, value in table.items()}
        common = uniform_capabilities(found.get("other", Performance(1.0, 1.0)), found.get("float32"), found.get("relaxed"))
        single: dict[int, Performance] = {OperandCode[key]: pair for key, pair in found.items() if key in OperandCode.__members__}
        return replace(common, operands={**common.operands, **single})

    def _performance(self, key: str, value: Any) -> Performance:
        if isinstance(value, list) and len(value) == 2 and all(_is_number(v) and v > 0 for v in value):
            return Performance(float(value[0]), float(value[1]))
        self.note(key, "[execTime, powerUsage], both above 0", value)
        return Performance(1.0, 1.0)

    def _faults(self, table: Mapping[str, Any]) -> Faults:
        self._only(table, _FAULT_KEYS, "faults")
        delay = table.get("delay_ms", 0)
        if not _is_number(delay) or not 0 <= delay <= _MAX_DELAY_MS:
            self.note("delay_ms", f"milliseconds of 0 to {_MAX_DELAY_MS}", delay)
            delay = 0
        return Faults(
            prepare=self._flag(table, "prepare"),
            dies_at=self._whole(table, "dies_at", 1, 2**31, 0),
            fails_at=self._whole(table, "fails_at", 1, 2**31, 0),
            delay_ms=float(delay),
            wrong_answers=self._flag(table, "wrong_answers"),
        )

    def _extension(self, table: Mapping[str, Any]) -> tuple[Extension, tuple[int, ...]]:
        self._only(table, ("name", "operations", "operand_types"), "extensions")
        name = self._text_of(table, "name")
        if not _EXTENSION_NAME.fullmatch(name):
            self._below("extensions", self.note, "name", "an extension's name, a domain reversed (com.example.npu)", name)
        types = []
        for item in self._list(table, "operand_types", dict):
            self._only(item, ("number", "tensor", "bytes"), "operand_types")
            size = self._whole(item, "bytes", 1, 2**31, 1)
            types.append(ExtensionOperandType(self._whole(item, "number", 0, 0xFFFF, 0), self._flag(item, "tensor"), size))
        numbers = tuple(self._list(table, "operations", int))
        if not all(0 <= number <= 0xFFFF for number in numbers):
            self._below("extensions", self.note, "operations", "numbers of 0 to 65535", list(numbers))
        return Extension(name, tuple(types)), numbers

    # -- values of one kind ------------------------------------------------------------------------------------------

    def _one_of(self, table: Mapping[str, Any], key: str, allowed: Sequence[str], default: str) -> str:
        value = self._text_of(table, key) or default
        if value in allowed:
            return value
        self.note(key, f"one of {', '.join(allowed)}{_near(value, allowed)}", value)
        return default

    def _whole(self, table: Mapping[str, Any], key: str, low: int, high: int, default: int) -> int:
        if key not in table:
            return default
        value = table[key]
        if _is_whole(value) and low <= value <= high:
            return int(value)
        self.note(key, f"a whole number of {low} to {high}", value)
        return default

    def _flag(self, table: Mapping[str, Any], key: str) -> bool:
        value = table.get(key, False)
        if not isinstance(value, bool):
            self.note(key, "true or false", value)
        return value is True

    def _only(self, table: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
        for key in table:
            if key not in keys:
                listed = keys if where != "performance" else (*_PERFORMANCE_KEYS, "an operand type")
                self.note(key, f"one of {', '.join(listed)} in {where}{_near(key, keys)}", key, quoted=False)

    # -- mistakes ----------------------------------------------------------------------------------------------------

    def _below(self, key: str, read: Callable[..., _T], *arguments: Any) -> _T:
        """Read with the lines of mistakes counted from a key on."""
        before, self._start = self._start, self._place(key) or self._start
        try:
            return read(*arguments)
        finally:
            self._start = before

    def _place(self, key: str) -> int | None:
        found = re.compile(rf"(?<![\w-]){re.escape(key)}(?![\w-])").search(self._text, self._start, self._end)
        return found.start() if found else None

    def note(self, key: str, rule: str, found: object, *, quoted: bool = True, text: str = "", at: int = 0) -> None:
        """A mistake at a key, or at a character of a condition's text. ``found`` is shown as TOML writes it, None as nothing."""
        place = self._text_place(text, at) if text else self._place(key)
        if place is None and self._inherits:
            return
        place = self._start if place is None else place
        line = self._text.count("\n", 0, place) + 1
        column = place - self._text.rfind("\n", 0, place)
        shown = "nothing" if found is None else json.dumps(found, ensure_ascii=False, default=str) if quoted else str(found)
        name = key if key.isprintable() else repr(key)
        self._mistaken(Reason(rule, shown[:_SHOWN], operand=name, file=str(self._path), line=line, column=column if text else 0))

    def _too_much(self, rule: str, found: str, place: str) -> InputError:
        self._mistakes.clear()  # the others are of no use where there are so many conditions
        self._inherits = False
        self.note(place, rule, found, quoted=False)
        return InputError.of(self._mistakes)

    def _text_place(self, text: str, at: int) -> int | None:
        """The place of a character of a text in the file: of the operation's, the device's, or any place with this text."""
        places = (self._text.find(text, low, self._end) for low in (self._start, 0))
        found = next((place for place in places if place >= 0), self._place(text))
        return None if found is None else found + at


def _range_of(name: str) -> tuple[int, int]:
    """The values of a scalar or side that make sense."""
    if name == "activation":
        return min(FuseCode).value, max(FuseCode).value
    return (-(2**31) if name in _SIGNED else 1 if name in SIDES else 0), 2**31 - 1


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _input_names(key: str) -> set[str]:
    declared = definition(OperationCode[key]) if key != _OTHERS else None
    names = {i.name for s in declared.signatures for i in s.inputs} if declared else set()
    return names | {name for name, (tensor, _) in SIDES.items() if tensor in names}

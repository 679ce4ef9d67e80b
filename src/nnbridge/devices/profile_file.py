"""Reading device profiles from TOML. The first mistake of a file is told with its line."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from nnbridge.devices.device import Capabilities, Performance, uniform_capabilities
from nnbridge.devices.profiles import NUMERICS, SIDES, Faults, ProfileDevice, Rule
from nnbridge.errors import InputError, Reason
from nnbridge.extensions import Extension, ExtensionOperandType
from nnbridge.operations import definition
from nnbridge.types import DeviceTypeCode, FuseCode, OperandCode, OperationCode

SUFFIX = ".toml"
SHIPPED = Path(__file__).parent / "data"
_OTHERS = "others"
"""The key for operations that are not named."""

_DEVICE_KEYS = (
    "name",
    "like",
    "version",
    "feature_level",
    "type",
    "source",
    "numerics",
    "performance",
    "operations",
    "faults",
    "extensions",
)
_BOUNDS = ("at_least", "at_most")
_LIMITS = ("values", *_BOUNDS, "zero_points")
_NOT_EMPTY = ("types", "ranks")
"""Lists of a rule that would hold for everything if they were empty, which is not what they say."""
_TYPES = tuple(name for name, code in DeviceTypeCode.__members__.items() if code != DeviceTypeCode.UNKNOWN)
"""Types that drivers have."""
_RULE_KEYS = ("types", "input", "ranks", "constant", *_LIMITS, "same_quantisation", "max_bytes", "max_side", "fixed_size")
_FAULT_KEYS = ("prepare", "dies_at", "fails_at", "delay_ms", "wrong_answers")
_PERFORMANCE_KEYS = ("other", "float32", "relaxed")
_EXTENSION_KEYS = ("name", "operations", "operand_types")
_OPERAND_TYPE_KEYS = ("number", "tensor", "bytes")

_T = TypeVar("_T")


def load_profiles(path: Path) -> tuple[ProfileDevice, ...]:
    """The devices of a file; InputError tells the first mistake with its line."""
    return _Reader(path).devices()


@cache
def shipped() -> tuple[ProfileDevice, ...]:
    """The profiles that come with nnbridge."""
    return tuple(device for path in sorted(SHIPPED.glob(f"*{SUFFIX}")) for device in load_profiles(path))


class _Reader:
    """One file being read. ``_start`` is where the table at hand begins, for the lines of mistakes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(Reason("a readable profile", str(error), operand=str(path))) from error
        self._start = 0

    def devices(self) -> tuple[ProfileDevice, ...]:
        toml = _toml()
        try:
            data: dict[str, Any] = toml.loads(self._text)
        except toml.TOMLDecodeError as error:
            raise InputError(Reason("a TOML file", str(error), operand=str(self._path))) from error
        self._only(data, ("device",), "the file")
        listed = data.get("device")
        if not isinstance(listed, list) or not listed or not all(isinstance(table, dict) for table in listed):
            self._fail("device", "at least one [[device]] table", listed)
        headers = [m.start() for m in re.finditer(r"^\s*\[\[\s*device\s*\]\]", self._text, re.MULTILINE)]
        whole: dict[str, dict[str, Any]] = {}
        devices = []
        for number, table in enumerate(listed):
            self._start = headers[number] if number < len(headers) else 0
            name = self._text_of(table, "name", required=True)
            if name in whole:
                self._fail("name", "each name once", name)
            whole[name] = self._like(table, whole)
            devices.append(self._device(name, whole[name]))
            self._check_levels(table, devices[-1].feature_level)
        return tuple(devices)

    def _like(self, table: dict[str, Any], earlier: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """The table over that of the earlier device that it names; operations are merged."""
        like = self._text_of(table, "like")
        if not like:
            return table
        if like not in earlier:
            self._fail("like", f"a device above ({', '.join(earlier) or 'none'})", like)
        base = earlier[like]
        operations = {**base.get("operations", {}), **self._table(table, "operations")}
        return {**base, **table, "operations": operations}

    def _device(self, name: str, table: dict[str, Any]) -> ProfileDevice:
        self._only(table, _DEVICE_KEYS, "[[device]]")
        operations = self._table(table, "operations")
        if not operations and not table.get("extensions"):
            self._fail("operations", "a table of operations", operations)
        rules = {key: self._below(key, self._alternatives, key, value) for key, value in operations.items()}
        return ProfileDevice(
            name=name,
            rules={OperationCode[key]: alternatives for key, alternatives in rules.items() if key != _OTHERS},
            figures=self._figures(self._table(table, "performance")),
            feature_level=self._whole(table, "feature_level", 1, 8, 8),
            type=DeviceTypeCode[self._one_of(table, "type", _TYPES, "ACCELERATOR")],
            version=self._text_of(table, "version") or "profile",
            source=self._text_of(table, "source"),
            numerics=self._one_of(table, "numerics", NUMERICS, "exact"),
            faults=self._faults(self._table(table, "faults")),
            others=rules.get(_OTHERS, ()),
            extensions=dict(self._extension(item) for item in self._list(table, "extensions", dict)),
        )

    def _check_levels(self, table: dict[str, Any], level: int) -> None:
        """An operation above the device's level is never asked about; those of the device above that it is like may be."""
        for key in self._table(table, "operations"):
            declared = definition(OperationCode[key]) if key != _OTHERS else None
            if declared is not None and declared.since > level:
                self._fail(key, f"an operation of the device's feature level {level}", f"one of {int(declared.since)}")

    # -- rules -------------------------------------------------------------------------------------------------------

    def _alternatives(self, key: str, value: Any) -> tuple[Rule, ...]:
        """A list of types, a table of rules, or a list of such tables."""
        if key != _OTHERS and key not in OperationCode.__members__:
            self._fail(key, "an operation of NNAPI", key)
        several = isinstance(value, list) and value and all(isinstance(v, dict) for v in value)
        return tuple(self._rule(key, v) for v in (value if several else [value]))

    def _rule(self, key: str, value: Any) -> Rule:
        table = {"types": value} if isinstance(value, list) else value
        if not isinstance(table, dict):
            self._fail(key, "a list of types or a table of rules", value)
        self._only(table, _RULE_KEYS, key)
        for group in _NOT_EMPTY:
            if table.get(group) == []:
                self._fail(group if group in value else key, f"at least one of {group}", "none")
        names = _input_names(key)
        judged = self._text_of(table, "input")
        constant = self._list(table, "constant", str)
        for name in (*constant, *([judged] if judged else ()), *(n for g in _LIMITS for n in self._table(table, g))):
            if key != _OTHERS and name not in names:
                self._fail(name, f"an input of {key} ({', '.join(sorted(names))})", name)
        at_least, at_most = ({n: v[0] for n, v in self._numbers(table, group).items()} for group in _BOUNDS)
        for name in at_least.keys() & at_most.keys():
            if at_least[name] > at_most[name]:
                self._fail(name, f"at_least up to at_most's {at_most[name]}", str(at_least[name]))
        return Rule(
            types=frozenset(self._type(key, name) for name in self._list(table, "types", str)),
            judged=judged,
            ranks=tuple(self._list(table, "ranks", int)),
            constant=tuple(constant),
            values=self._numbers(table, "values"),
            at_least=at_least,
            at_most=at_most,
            zero_points=self._numbers(table, "zero_points"),
            same_quantisation=self._flag(table, "same_quantisation"),
            max_bytes=self._whole(table, "max_bytes", 0, 2**40, 0),
            max_side=self._whole(table, "max_side", 0, 2**32, 0),
            fixed_size=self._flag(table, "fixed_size"),
        )

    def _numbers(self, table: Mapping[str, Any], group: str) -> dict[str, tuple[int, ...]]:
        """Name → numbers; fused activations may be told by name."""
        found = {}
        for name, value in self._table(table, group).items():
            listed = value if isinstance(value, list) else [value]
            numbers = [FuseCode[v].value if v in FuseCode.__members__ else v for v in listed]
            single = group in _BOUNDS
            if not numbers or not all(_is_whole(v) for v in numbers) or (single and len(numbers) != 1):
                self._fail(name, "a whole number" if single else "whole numbers or fused activations", value)
            found[name] = tuple(numbers)
        return found

    def _type(self, key: str, name: str) -> OperandCode:
        # FLOAT32 is short for TENSOR_FLOAT32: rules judge tensors nearly always.
        found = next((n for n in (f"TENSOR_{name}", name) if n in OperandCode.__members__), None)
        if found is None:
            self._fail(name, "an operand type of NNAPI", name)
        return OperandCode[found]

    # -- the other tables --------------------------------------------------------------------------------------------

    def _figures(self, table: Mapping[str, Any]) -> Capabilities:
        """``other``, ``float32``, ``relaxed`` and operand types: time and power relative to the CPU."""
        for key in table:
            if key not in _PERFORMANCE_KEYS and key not in OperandCode.__members__:
                self._fail(key, f"{', '.join(_PERFORMANCE_KEYS)} or an operand type", key)
        figures = {key: self._pair(key, value) for key, value in table.items()}
        made = uniform_capabilities(figures.get("other", Performance(1.0, 1.0)), figures.get("float32"), figures.get("relaxed"))
        single: dict[int, Performance] = {
            OperandCode[key]: figure for key, figure in figures.items() if key in OperandCode.__members__
        }
        return Capabilities(
            {**made.operands, **single},
            made.relaxed_scalar,
            made.relaxed_tensor,
            made.if_performance,
            made.while_performance,
        )

    def _pair(self, key: str, value: Any) -> Performance:
        good = isinstance(value, list) and len(value) == 2 and all(isinstance(v, (int, float)) and v > 0 for v in value)
        if not good:
            self._fail(key, "[execTime, powerUsage], both above 0", value)
        return Performance(float(value[0]), float(value[1]))

    def _faults(self, table: Mapping[str, Any]) -> Faults:
        self._only(table, _FAULT_KEYS, "faults")
        delay = table.get("delay_ms", 0)
        if not isinstance(delay, (int, float)) or isinstance(delay, bool) or delay < 0:
            self._fail("delay_ms", "milliseconds", delay)
        return Faults(
            prepare=self._flag(table, "prepare"),
            dies_at=self._whole(table, "dies_at", 0, 2**31, 0),
            fails_at=self._whole(table, "fails_at", 0, 2**31, 0),
            delay_ms=float(delay),
            wrong_answers=self._flag(table, "wrong_answers"),
        )

    def _extension(self, table: Mapping[str, Any]) -> tuple[Extension, tuple[int, ...]]:
        self._only(table, _EXTENSION_KEYS, "extensions")
        name = self._text_of(table, "name", required=True)
        types = []
        for item in self._list(table, "operand_types", dict):
            self._only(item, _OPERAND_TYPE_KEYS, "operand_types")
            size = self._whole(item, "bytes", 1, 2**31, 1)
            types.append(ExtensionOperandType(self._whole(item, "number", 0, 0xFFFF, 0), self._flag(item, "tensor"), size))
        return Extension(name, tuple(types)), tuple(self._list(table, "operations", int))

    # -- values of one kind ------------------------------------------------------------------------------------------

    def _text_of(self, table: Mapping[str, Any], key: str, *, required: bool = False) -> str:
        value = table.get(key, "")
        if not isinstance(value, str) or (required and not value):
            self._fail(key, f"a text as {key}", value)
        return value

    def _one_of(self, table: Mapping[str, Any], key: str, allowed: Sequence[str], default: str) -> str:
        value = self._text_of(table, key) or default
        if value not in allowed:
            self._fail(key, f"one of {', '.join(allowed)}", value)
        return value

    def _whole(self, table: Mapping[str, Any], key: str, low: int, high: int, default: int) -> int:
        value = table.get(key, default)
        if not _is_whole(value) or not low <= value <= high:
            self._fail(key, f"a whole number of {low} to {high}", value)
        return int(value)

    def _flag(self, table: Mapping[str, Any], key: str) -> bool:
        value = table.get(key, False)
        if not isinstance(value, bool):
            self._fail(key, "true or false", value)
        return value

    def _table(self, table: Mapping[str, Any], key: str) -> dict[str, Any]:
        value = table.get(key, {})
        if not isinstance(value, dict):
            self._fail(key, "a table", value)
        return value

    def _list(self, table: Mapping[str, Any], key: str, kind: type[_T]) -> list[_T]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, kind) and not isinstance(v, bool) for v in value):
            self._fail(key, f"a list of {_KINDS[kind]}", value)
        return value

    def _only(self, table: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
        for key in table:
            if key not in keys:
                self._fail(key, f"one of {', '.join(keys)} in {where}", key)

    # -- lines -------------------------------------------------------------------------------------------------------

    def _below(self, key: str, read: Callable[..., _T], *arguments: Any) -> _T:
        """Read with the lines of mistakes counted from a key on."""
        before, self._start = self._start, self._place(key)
        try:
            return read(*arguments)
        finally:
            self._start = before

    def _place(self, key: str) -> int:
        found = re.compile(rf"(?<![\w-]){re.escape(key)}(?![\w-])").search(self._text, self._start)
        return found.start() if found else self._start

    def _fail(self, key: str, rule: str, found: object) -> NoReturn:
        line = self._text.count("\n", 0, self._place(key)) + 1
        raise InputError(Reason(rule, str(found), f"{self._path} line {line}", key))


_KINDS: Mapping[type, str] = {str: "texts", int: "whole numbers", dict: "tables"}


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _input_names(key: str) -> set[str]:
    declared = definition(OperationCode[key]) if key != _OTHERS else None
    names = {i.name for s in declared.signatures for i in s.inputs} if declared else set()
    return names | {name for name, (tensor, _) in SIDES.items() if tensor in names}


def _toml() -> Any:
    """The standard library's reader, or tomli where Python is older."""
    if sys.version_info >= (3, 11):
        import tomllib

        return tomllib
    import tomli

    return tomli

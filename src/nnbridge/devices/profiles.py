"""Device profiles: emulated drivers described in TOML, without a line of Python.

A file holds ``[[device]]`` tables; docs/drivers.md describes the keys. Every rule that an operation breaks is a reason; every
mistake in a file is told with its line.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from nnbridge.devices.cpu import CpuPreparedModel, check_deadline
from nnbridge.devices.device import Capabilities, Device, Performance, PreparedModel, Request, Result, Support
from nnbridge.errors import BadDataError, DeadObjectError, InputError, OpFailedError, Reason
from nnbridge.model import Model, Operation
from nnbridge.operations import definition
from nnbridge.operations.matching import match
from nnbridge.types import (
    DeviceTypeCode,
    OperandCode,
    OperationCode,
    PreferenceCode,
    PriorityCode,
    ResultCode,
    type_name,
)

SUFFIX = ".toml"
_CODES = frozenset(OperationCode)
_OTHERS = "others"
"""The key for operations that are not named."""
SHIPPED = Path(__file__).parent / "data"

_DEVICE_KEYS = ("name", "version", "feature_level", "type", "source", "numerics", "performance", "operations", "faults")
_RULE_KEYS = ("types", "ranks", "constant", "values", "at_most", "input", "fixed_size")
_FAULT_KEYS = ("prepare", "dies_at", "fails_at", "delay_ms", "wrong_answers")
_PERFORMANCE_KEYS = ("other", "float32", "relaxed")


@dataclass(frozen=True)
class Rule:
    """What a device takes of one operation."""

    types: frozenset[OperandCode] = frozenset()
    """Types of the operand that is judged; empty for all."""
    judged: str = ""
    """The name of the operand whose type and rank are judged; the first input without one."""
    ranks: tuple[int, ...] = ()
    constant: tuple[str, ...] = ()
    """Inputs that must be constants."""
    values: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Scalars that may have these values alone."""
    at_most: Mapping[str, int] = field(default_factory=dict)
    """Largest values of scalars."""
    fixed_size: bool = False
    """Every dimension of every operand must be known."""


@dataclass(frozen=True)
class Faults:
    """What goes wrong on purpose."""

    prepare: bool = False
    dies_at: int = 0
    """The execution, counted from 1, at which the driver dies (DEAD_OBJECT from then on)."""
    fails_at: int = 0
    """The execution that ends with GENERAL_FAILURE (OP_FAILED)."""
    delay_ms: float = 0.0
    wrong_answers: bool = False


@dataclass(frozen=True)
class ProfileDevice(Device):
    """A driver that a profile describes. It computes with the CPU executor."""

    name: str
    rules: Mapping[OperationCode, tuple[Rule, ...]]
    """Operation → alternatives, one of which must hold."""
    figures: Capabilities
    feature_level: int = 8
    type: DeviceTypeCode = DeviceTypeCode.ACCELERATOR
    version: str = "profile"
    source: str = ""
    """Where the rules were read."""
    numerics: str = "exact"
    faults: Faults = Faults()
    others: tuple[Rule, ...] = ()
    """Alternatives for operations that ``rules`` does not name; none: they are not taken."""

    @property
    def capabilities(self) -> Capabilities:
        """The profile's figures."""
        return self.figures

    def supported_operations(self, model: Model) -> Sequence[Support]:
        """The first rule that each operation breaks."""
        return [self._refusal(model, operation) or True for operation in model.main.operations]

    def _refusal(self, model: Model, operation: Operation) -> Reason | None:
        name = model.operation_name(operation)
        known = operation.type in _CODES
        alternatives = self.rules.get(OperationCode(operation.type), self.others) if known else ()
        if not alternatives:
            return Reason(f"an operation that {self.name} has", name, name)
        broken = [list(_broken(rule, model, operation, name)) for rule in alternatives]
        # The alternative that comes closest tells what is missing.
        return None if [] in broken else min(broken, key=len)[0]

    def prepare_model(
        self,
        model: Model,
        preference: int = PreferenceCode.FAST_SINGLE_ANSWER,
        priority: int = PriorityCode.MEDIUM,
        deadline: int | None = None,
    ) -> PreparedModel:
        """BAD_DATA if an operation is not supported; OP_FAILED where the profile says so."""
        check_deadline(deadline)
        if self.faults.prepare:
            raise OpFailedError(Reason("a driver that prepares models", "the fault 'prepare'", self.name))
        refused = next((r for o in model.main.operations if (r := self._refusal(model, o))), None)
        if refused is not None:
            raise BadDataError(refused)
        prepared = CpuPreparedModel(model, self.numerics)
        return prepared if self.faults == Faults() else _Faulty(prepared, self.faults, self.name)


class _Faulty(PreparedModel):
    """A prepared model with a profile's faults."""

    def __init__(self, inner: PreparedModel, faults: Faults, name: str) -> None:
        self._inner = inner
        self._faults = faults
        self._name = name
        self._count = 0

    def execute(self, request: Request) -> Result:
        """Count, then go wrong where the profile says so."""
        self._count += 1
        faults = self._faults
        if faults.delay_ms:
            time.sleep(faults.delay_ms / 1000)
        if faults.dies_at and self._count >= faults.dies_at:
            raise DeadObjectError(Reason("a driver that is alive", f"dead since execution {faults.dies_at}", self._name))
        if self._count == faults.fails_at:
            return Result(ResultCode.OP_FAILED, (), Reason("an execution without failure", "the fault 'fails_at'", self._name))
        result = self._inner.execute(request)
        if faults.wrong_answers:
            for buffer in request.outputs:
                if buffer.data is not None:
                    np.bitwise_xor(buffer.data, 1, out=buffer.data)
        return result


# -- rules -----------------------------------------------------------------------------------------------------------


def _broken(rule: Rule, model: Model, operation: Operation, name: str) -> Iterator[Reason]:
    """Every rule that an operation breaks."""
    operands = [model.main.operands[i] for i in operation.inputs]
    places = _places(model, operation)
    judged = operands[places.get(rule.judged, 0)] if operands else None
    if judged is not None and rule.types and judged.type not in rule.types:
        wanted = " or ".join(sorted(t.name for t in rule.types))
        yield Reason(wanted, type_name(judged.type), name, rule.judged or "input 0")
    if judged is not None and rule.ranks and len(judged.dims) not in rule.ranks:
        yield Reason(f"rank {' or '.join(map(str, rule.ranks))}", str(len(judged.dims)), name, rule.judged or "input 0")
    for wanted in rule.constant:
        if wanted in places and not operands[places[wanted]].is_constant:
            yield Reason("a constant", "a computed value", name, wanted)
    for scalar, allowed in rule.values.items():
        value = _scalar(model, operation, places, scalar)
        if value is not None and value not in allowed:
            yield Reason(f"one of {', '.join(map(str, allowed))}", str(value), name, scalar)
    for scalar, largest in rule.at_most.items():
        value = _scalar(model, operation, places, scalar)
        if value is not None and value > largest:
            yield Reason(f"{largest} at most", str(value), name, scalar)
    if rule.fixed_size:
        for operand in (*operands, *(model.main.operands[i] for i in operation.outputs)):
            if operand.is_tensor and (not operand.dims or 0 in operand.dims):
                yield Reason("known dimensions", str(list(operand.dims)), name, operand.name)


def _places(model: Model, operation: Operation) -> dict[str, int]:
    """Declared names of the inputs → positions."""
    declared = definition(operation.type)
    if declared is None:
        return {}
    operands = model.main.operands
    found = match(declared, [operands[i].type for i in operation.inputs], [operands[i].type for i in operation.outputs])
    if isinstance(found, Reason):
        return {}
    names = (input.name for input in found.signature.expand(len(operation.inputs)))
    return {name: position for position, name in reversed(list(enumerate(names)))}


def _scalar(model: Model, operation: Operation, places: Mapping[str, int], name: str) -> int | None:
    """A constant scalar's value; None where the form has none or it is computed. A filter's sides are named here too."""
    if name in places:
        operand = model.main.operands[operation.inputs[places[name]]]
        value = model.value(operand) if operand.is_constant else None
        return None if value is None or value.size != 1 else int(value.reshape(()).item())
    side = {"filter_h": 1, "filter_w": 2}.get(name)
    if side is not None and "filter" in places:
        dims = model.main.operands[operation.inputs[places["filter"]]].dims
        return dims[side] if len(dims) == 4 else None
    return None


# -- reading ---------------------------------------------------------------------------------------------------------


def load_profiles(path: Path) -> tuple[ProfileDevice, ...]:
    """The devices of a file; InputError tells the first mistake with its line."""
    return _Reader(path).devices()


@cache
def shipped() -> tuple[ProfileDevice, ...]:
    """The profiles that come with nnbridge."""
    return tuple(device for path in sorted(SHIPPED.glob(f"*{SUFFIX}")) for device in load_profiles(path))


class _Reader:
    """One file being read."""

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
        self._known(data, ("device",), "")
        listed = data.get("device")
        if not isinstance(listed, list) or not listed:
            self._fail("device", "at least one [[device]] table", "none")
        headers = [m.start() for m in re.finditer(r"^\s*\[\[device\]\]", self._text, re.MULTILINE)]
        devices = []
        for number, table in enumerate(listed):
            self._start = headers[number] if number < len(headers) else 0
            devices.append(self._device(table))
        names = [device.name for device in devices]
        for name in names:
            if names.count(name) > 1:
                self._fail(name, "each name once", name)
        return tuple(devices)

    def _device(self, table: dict[str, Any]) -> ProfileDevice:
        self._known(table, _DEVICE_KEYS, "[[device]]")
        name = self._string(table, "name", required=True)
        level = table.get("feature_level", 8)
        if not isinstance(level, int) or not 1 <= level <= 8:
            self._fail("feature_level", "a feature level of 1 to 8", level)
        kind = self._string(table, "type") or "ACCELERATOR"
        if kind not in DeviceTypeCode.__members__:
            self._fail("type", ", ".join(DeviceTypeCode.__members__), kind)
        numerics = self._string(table, "numerics") or "exact"
        if numerics not in ("exact", "float16"):
            self._fail("numerics", "exact or float16", numerics)
        operations = table.get("operations")
        if not isinstance(operations, dict) or not operations:
            self._fail("operations", "a table of operations", operations)
        rules = {key: self._alternatives(key, value) for key, value in operations.items()}
        return ProfileDevice(
            name,
            {self._operation(key): alternatives for key, alternatives in rules.items() if key != _OTHERS},
            self._figures(table.get("performance", {})),
            level,
            DeviceTypeCode[kind],
            self._string(table, "version") or "profile",
            self._string(table, "source"),
            numerics,
            self._faults(table.get("faults", {})),
            rules.get(_OTHERS, ()),
        )

    def _alternatives(self, key: str, value: Any) -> tuple[Rule, ...]:
        """A list of types, a table of rules, or a list of such tables."""
        if key != _OTHERS:
            self._operation(key)
        several = isinstance(value, list) and value and all(isinstance(v, dict) for v in value)
        return tuple(self._rule(key, v) for v in (value if several else [value]))

    def _operation(self, key: str) -> OperationCode:
        if key not in OperationCode.__members__:
            self._fail(key, "an operation of NNAPI", key)
        return OperationCode[key]

    def _rule(self, key: str, value: Any) -> Rule:
        if isinstance(value, list):
            value = {"types": value}
        if not isinstance(value, dict):
            self._fail(key, "a list of types or a table of rules", value)
        self._known(value, _RULE_KEYS, key)
        types = frozenset(self._type(key, name) for name in value.get("types", ()))
        names = {input.name for s in _signatures(key) for input in s.inputs} | {"filter_h", "filter_w"}
        for group in ("values", "at_most"):
            for name in value.get(group, {}):
                if name not in names:
                    self._fail(key, f"an input of {key} ({', '.join(sorted(names))})", name)
        for name in (*value.get("constant", ()), *([value["input"]] if "input" in value else ())):
            if name not in names:
                self._fail(key, f"an input of {key} ({', '.join(sorted(names))})", name)
        return Rule(
            types,
            value.get("input", ""),
            tuple(value.get("ranks", ())),
            tuple(value.get("constant", ())),
            {name: tuple(allowed) for name, allowed in value.get("values", {}).items()},
            dict(value.get("at_most", {})),
            bool(value.get("fixed_size", False)),
        )

    def _type(self, key: str, name: object) -> OperandCode:
        # FLOAT32 is short for TENSOR_FLOAT32: rules judge tensors nearly always.
        found = next((n for n in (f"TENSOR_{name}", name) if n in OperandCode.__members__), None)
        if found is None:
            self._fail(key, "an operand type of NNAPI", name)
        return OperandCode[str(found)]

    def _figures(self, table: Any) -> Capabilities:
        """``other``, ``float32``, ``relaxed`` and operand types: time and power relative to the CPU."""
        if not isinstance(table, dict):
            self._fail("performance", "a table of figures", table)
        for key in table:
            if key not in _PERFORMANCE_KEYS and key not in OperandCode.__members__:
                self._fail(key, f"{', '.join(_PERFORMANCE_KEYS)} or an operand type", key)
        figures = {key: self._pair(key, value) for key, value in table.items()}
        other = figures.get("other", Performance(1.0, 1.0))
        float32 = figures.get("float32", other)
        relaxed = figures.get("relaxed", float32)
        floats = (OperandCode.FLOAT32, OperandCode.TENSOR_FLOAT32)
        operands: dict[int, Performance] = {
            code: float32 if code in floats else other for code in OperandCode if code < OperandCode.MODEL
        }
        operands.update({OperandCode[key]: value for key, value in figures.items() if key in OperandCode.__members__})
        return Capabilities(operands, relaxed, relaxed, other, other)

    def _pair(self, key: str, value: Any) -> Performance:
        good = isinstance(value, list) and len(value) == 2 and all(isinstance(v, (int, float)) and v > 0 for v in value)
        if not good:
            self._fail(key, "[execTime, powerUsage], both above 0", value)
        return Performance(float(value[0]), float(value[1]))

    def _faults(self, table: Any) -> Faults:
        if not isinstance(table, dict):
            self._fail("faults", "a table of faults", table)
        self._known(table, _FAULT_KEYS, "faults")
        for key in ("dies_at", "fails_at"):
            if not isinstance(table.get(key, 0), int) or table.get(key, 0) < 0:
                self._fail(key, "the number of an execution, from 1", table[key])
        return Faults(
            bool(table.get("prepare", False)),
            table.get("dies_at", 0),
            table.get("fails_at", 0),
            float(table.get("delay_ms", 0)),
            bool(table.get("wrong_answers", False)),
        )

    def _string(self, table: Mapping[str, Any], key: str, *, required: bool = False) -> str:
        value = table.get(key, "")
        if not isinstance(value, str) or (required and not value):
            self._fail(key, "a text", value)
        return value

    def _known(self, table: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
        for key in table:
            if key not in keys:
                self._fail(key, f"one of {', '.join(keys)}" + (f" in {where}" if where else ""), key)

    def _fail(self, key: str, rule: str, found: object) -> NoReturn:
        place = re.compile(rf"^\s*(?:\[+device\.?)?{re.escape(key)}\b", re.MULTILINE).search(self._text, self._start)
        line = self._text.count("\n", 0, place.start() if place else self._start) + 1
        if place is not None:
            line += place.group().count("\n")
        raise InputError(Reason(rule, str(found), f"{self._path} line {line}", key))


def _signatures(name: str) -> Sequence[Any]:
    declared = definition(OperationCode[name]) if name != _OTHERS else None
    return () if declared is None else declared.signatures


def _toml() -> Any:
    """The standard library's reader, or tomli where Python is older."""
    if sys.version_info >= (3, 11):
        import tomllib

        return tomllib
    import tomli

    return tomli

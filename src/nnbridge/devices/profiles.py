"""Device profiles: emulated drivers described by data, without a line of Python.

Profiles are read from TOML by :mod:`nnbridge.devices.profile_file`; docs/profiles.md describes the keys. Every rule that an
operation breaks is a reason.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from nnbridge.devices.cpu import check_deadline
from nnbridge.devices.device import Capabilities, Device, PreparedModel, PrepareModelConfig, Request, Result, Support
from nnbridge.devices.operation_facts import ModelFacts, OperandFacts, OperationFacts
from nnbridge.devices.requantise import prepared_with
from nnbridge.devices.rules import RuleCondition, Subject, Suspects, suspects
from nnbridge.errors import BadDataError, OpFailedError, Reason, Why
from nnbridge.extensions import TYPES, Extension
from nnbridge.model import Model, Operand, Operation
from nnbridge.operations.matching import input_places
from nnbridge.records import dataclass
from nnbridge.types import (
    TYPE_FACTS,
    DeviceTypeCode,
    OperandCode,
    OperationCode,
    ResultCode,
    is_extension,
)

SIDES: Mapping[str, tuple[str, int]] = {
    "batch": ("input", 0),
    "channels": ("input", 3),
    "filter_h": ("filter", 1),
    "filter_w": ("filter", 2),
}
"""Names that rules have for dimensions of rank 4 tensors (NHWC) → the tensor and the dimension."""
_CODES = frozenset(OperationCode)
_AS_THE_CPU = Capabilities()


@dataclass(frozen=True)
class ProfileRule:
    """A device's rule for one operation."""

    types: frozenset[OperandCode] = frozenset()
    """Types of the subject; empty for all."""
    subject: str = ""
    """The name of the operand whose type and rank are checked; the first input without one."""
    ranks: tuple[int, ...] = ()
    constant: tuple[str, ...] = ()
    """Inputs that must be constants."""
    values: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Scalars and dimensions that may have these values only."""
    at_least: Mapping[str, int] = field(default_factory=dict)
    at_most: Mapping[str, int] = field(default_factory=dict)
    zero_points: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Zero points that an input may have."""
    same_quantisation: bool = False
    """The first input and the first output must have one scale and zero point."""
    max_bytes: int = 0
    """Bytes of the largest tensor; 0 for no limit."""
    max_side: int = 0
    """The longest dimension of any tensor; 0 for no limit."""
    fixed_size: bool = False
    """Every dimension of every operand must be known."""
    conditions: tuple[RuleCondition, ...] = ()
    """All of them must hold, after the rules above."""
    open: tuple[tuple[RuleCondition, str], ...] = ()
    """Where the source leaves the answer open: under which condition, and why."""
    never: str = ""
    """Why the device does not support the operation at all; empty if it does."""
    says: str = ""
    source: str = ""
    uncertain: str = ""
    """Why the whole rule is open."""

    @cached_property
    def has_keys(self) -> bool:
        """True if there is a rule with a key of its own, beside conditions."""
        return bool(
            self.types or self.ranks or self.constant or self.values or self.at_least or self.at_most or self.zero_points
        ) or bool(self.same_quantisation or self.max_bytes or self.max_side or self.fixed_size)


@dataclass(frozen=True)
class Faults:
    """Deliberate failures."""

    prepare: bool = False
    dies_at: int = 0
    """The execution, counted from 1, at which the driver dies (DEAD_OBJECT from then on)."""
    fails_at: int = 0
    """The execution that ends with GENERAL_FAILURE (OP_FAILED)."""
    delay_ms: float = 0.0
    wrong_answers: bool = False
    """The last bit of every byte of every output is flipped."""


@dataclass(frozen=True, repr=False)
class ProfileDevice(Device):
    """A driver that a profile describes. It computes with the CPU executor."""

    is_profile: ClassVar[bool] = True

    name: str
    rules: Mapping[OperationCode, tuple[ProfileRule, ...]]
    """Operation → alternatives, one of which must hold."""
    capabilities: Capabilities = _AS_THE_CPU
    feature_level: int = 8
    type: DeviceTypeCode = DeviceTypeCode.ACCELERATOR
    version: str = "profile"
    source: str = ""
    """Where the rules were read."""
    verified: str = ""
    """What the rules were compared with: whose answers, count, seed and date."""
    aliases: tuple[str, ...] = ()
    """Other names of the device."""
    operands: Mapping[str, tuple[RuleCondition, ...]] = field(default_factory=dict)
    """Stage (``support`` or ``prepare``) → conditions on every operand of a model."""
    numerics: str = "exact"
    faults: Faults = Faults()
    others: tuple[ProfileRule, ...] = ()
    """Alternatives for operations that ``rules`` does not name; none: they are not supported."""
    extensions: Mapping[Extension, tuple[int, ...]] = field(default_factory=dict)
    """Vendor extension → operations that are claimed. They can be planned, not computed."""
    numerics_source: str = ""
    """Where the arithmetic is stated; empty: nothing is public, and the CPU's is in."""

    def supported_extensions(self) -> Sequence[Extension]:
        """The profile's extensions."""
        return tuple(self.extensions)

    def supported_operations(self, model: Model) -> Sequence[Support]:
        """True, or the rules that the operation breaks."""
        answers = self._answers(model)
        dead = next((a for a in answers if a is not None and a.rule == _ALIVE), None)
        return [dead or answer or True for answer in answers]

    def uncertainties(self, model: Model) -> list[str]:
        """The reasons why the answer for each operation is open; empty where the source leaves no doubt."""
        facts = ModelFacts(model, self.name)
        return [self._doubt(facts, operation) for operation in model.main.operations]

    def _doubt(self, facts: ModelFacts, operation: Operation) -> str:
        subject = OperationFacts(facts, operation)
        for rule in self._alternatives(operation):
            if rule.uncertain:
                return rule.uncertain
            for made, why in (*rule.open, *((c, c.uncertain) for c in rule.conditions if c.uncertain)):
                if made.broken(subject) if made.uncertain and made in rule.conditions else made.test(subject):
                    return why
        return ""

    def _answers(self, model: Model) -> list[Reason | None]:
        """The reason why each operation is refused; None where it is not. One operand that the device does not know refuses
        all."""
        facts = ModelFacts(model, self.name)
        fault = self._operand_fault(facts, "support")
        operations = model.main.operations
        asked = ((rule.conditions, operation) for operation in operations for rule in self._alternatives(operation))
        left = suspects(asked, partial(OperationFacts, facts))
        return [fault or self._refusal(facts, operation, left) for operation in operations]

    def _operand_fault(self, facts: ModelFacts, stage: str) -> Reason | None:
        """The reason why the device refuses the whole model at a stage."""
        required = self.operands.get(stage, ())
        subjects = (OperandFacts(facts, i) for i in range(len(facts.model.main.operands))) if required else ()
        return next((_reason(c, s, "the model", s.name) for s in subjects for c in required if c.broken(s)), None)

    def _alternatives(self, operation: Operation) -> tuple[ProfileRule, ...]:
        known = operation.type in _CODES
        return self.rules.get(OperationCode(operation.type), self.others) if known else ()

    def _refusal(self, facts: ModelFacts, operation: Operation, left: Suspects) -> Reason | None:
        """The first broken rule of the only alternative; what each alternative requires where there are several."""
        model = facts.model
        name = model.operation_name(operation)
        unlisted = Reason("an operation that the profile lists", name, name, kind=Why.OPERATOR)
        extension = model.extension_of(operation.type)
        if extension is not None:
            claimed = next((numbers for e, numbers in self.extensions.items() if e.name == extension[0]), ())
            return None if extension[1] in claimed else unlisted
        alternatives = self._alternatives(operation)
        if not alternatives:
            return unlisted
        if len(alternatives) == 1:
            return next(_broken(alternatives[0], facts, operation, name, left), None)
        broken = [list(_broken(rule, facts, operation, name, left)) for rule in alternatives]
        if [] in broken:
            return None
        required = dict.fromkeys(" and ".join(f"{r.operand}: {r.rule}" for r in reasons) for reasons in broken)
        found = dict.fromkeys(f"{r.operand}: {r.found}" for reasons in broken for r in reasons)
        # The first broken rule of the alternative that fits longest names the kind.
        kind = min(broken, key=len)[0].kind
        return Reason("; or ".join(required), ", ".join(found), name, kind=kind)

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        """BAD_DATA if an operation is not supported; OP_FAILED with the fault ``prepare``."""
        check_deadline(config.deadline)
        if self.faults.prepare:
            raise OpFailedError(Reason("a driver that prepares models", "the fault 'prepare'", self.name))
        refused = next((r for r in self._answers(model) if r is not None), None)
        if refused is not None:
            raise BadDataError(refused)
        fault = self._operand_fault(ModelFacts(model, self.name), "prepare")
        if fault is not None:
            raise OpFailedError(fault)
        if any(is_extension(operation.type) for operation in model.main.operations):
            raise OpFailedError(Reason("operations that a profile can compute", "operations of a vendor extension", self.name))
        prepared = prepared_with(model, self.numerics)
        return prepared if self.faults == Faults() else _Faulty(prepared, self.faults, self.name)


class _Faulty(PreparedModel):
    """A prepared model with a profile's faults."""

    def __init__(self, inner: PreparedModel, faults: Faults, name: str) -> None:
        self._inner = inner
        self._faults = faults
        self._name = name
        self._count = 0
        self._lock = threading.Lock()

    def execute(self, request: Request) -> Result:
        """Execute, with the faults of the profile."""
        with self._lock:
            self._count += 1
            count = self._count
        faults = self._faults
        if faults.delay_ms:
            time.sleep(faults.delay_ms / 1000)
        if faults.dies_at and count >= faults.dies_at:
            dead = Reason("a driver that is alive", f"dead since execution {faults.dies_at}", self._name)
            return Result(ResultCode.DEAD_OBJECT, (), dead)
        if count == faults.fails_at:
            return Result(ResultCode.OP_FAILED, (), Reason("an execution without failure", "the fault 'fails_at'", self._name))
        result = self._inner.execute(request)
        if faults.wrong_answers:
            for buffer in request.outputs:
                if buffer.data is not None:
                    np.bitwise_xor(buffer.data, 1, out=buffer.data)
        return result


_ALIVE = "a driver that survives the question"


def _reason(condition: RuleCondition, subject: Subject, name: str, operand: str = "") -> Reason:
    """The reason that a broken condition gives for refusing an operation."""
    found = condition.found(subject)
    if condition.dies:
        died = f"one that dies where not: {condition.requirement} ({found})"
        return Reason(_ALIVE, died, name, operand, Why.INTERNAL, condition.says)
    return Reason(condition.requirement, found or "otherwise", name, operand, Why.OPERAND_VALUE, condition.says)


def _broken(rule: ProfileRule, facts: ModelFacts, operation: Operation, name: str, left: Suspects) -> Iterator[Reason]:
    """Every rule that an operation breaks."""
    if rule.never:
        yield Reason("an operation that the device supports", f"{name}: {rule.never}", name, kind=Why.OPERATOR, says=rule.says)
        return
    if rule.has_keys:
        yield from _broken_keys(rule, facts.model, operation, name)
    conditions = left.get((id(rule.conditions), id(operation)), rule.conditions)
    if conditions:
        subject = OperationFacts(facts, operation)
        for made in conditions:
            if made.broken(subject):
                yield _reason(made, subject, name)


def _broken_keys(rule: ProfileRule, model: Model, operation: Operation, name: str) -> Iterator[Reason]:
    """Every rule of a key of its own that an operation breaks: of operands by name, of numbers, of tensors."""
    inputs = [model.main.operands[i] for i in operation.inputs]
    outputs = [model.main.operands[i] for i in operation.outputs]
    positions = input_places(model, operation)
    if inputs:
        yield from _broken_subject(rule, inputs[positions.get(rule.subject, 0)], name)
    for key in rule.constant:
        if key in positions and not inputs[positions[key]].is_constant:
            yield Reason("a constant", "a computed value", name, key, Why.NOT_CONSTANT)
    for key in {**rule.values, **rule.at_least, **rule.at_most}:
        value = _number(model, inputs, positions, key)
        if value is not None:
            yield from _broken_number(rule, key, value, name)
    for key, points in rule.zero_points.items():
        if key in positions and (point := inputs[positions[key]].zero_point) not in points:
            yield Reason(f"a zero point of {' or '.join(map(str, points))}", str(point), name, key, Why.QUANTISATION_PARAMETERS)
    if rule.same_quantisation and inputs and _quantisation(inputs[0]) != _quantisation(outputs[0]):
        yield Reason(
            "the quantisation of the first input", _quantisation(outputs[0]), name, "output", Why.QUANTISATION_PARAMETERS
        )
    for tensor in (o for o in (*inputs, *outputs) if o.is_tensor):
        yield from _broken_size(rule, tensor, name)


def _broken_subject(rule: ProfileRule, subject: Operand, name: str) -> Iterator[Reason]:
    """Type and rank of the operand that a rule is about."""
    label = rule.subject or "input 0"
    if rule.types and subject.type not in rule.types:
        yield Reason(" or ".join(sorted(t.name for t in rule.types)), TYPES.readable(subject.type), name, label, Why.INPUT_TYPE)
    if rule.ranks and len(subject.dims) not in rule.ranks:
        yield Reason(f"rank {' or '.join(map(str, rule.ranks))}", str(len(subject.dims)), name, label, Why.RANK)


def _broken_number(rule: ProfileRule, key: str, value: int, name: str) -> Iterator[Reason]:
    """Values and bounds of a scalar or dimension."""
    if value not in rule.values.get(key, (value,)):
        yield Reason(f"one of {', '.join(map(str, rule.values[key]))}", str(value), name, key, Why.OPERAND_VALUE)
    if value < rule.at_least.get(key, value):
        yield Reason(f"at least {rule.at_least[key]}", str(value), name, key, Why.OPERAND_VALUE)
    if value > rule.at_most.get(key, value):
        yield Reason(f"at most {rule.at_most[key]}", str(value), name, key, Why.OPERAND_VALUE)


def _broken_size(rule: ProfileRule, tensor: Operand, name: str) -> Iterator[Reason]:
    """Limits of every tensor's dimensions and bytes."""
    if rule.fixed_size and (not tensor.dims or 0 in tensor.dims):
        yield Reason("known dimensions", str(list(tensor.dims)), name, tensor.name, Why.DYNAMIC_SHAPE)
    if rule.max_side and max(tensor.dims, default=0) > rule.max_side:
        yield Reason(f"sides of at most {rule.max_side}", str(list(tensor.dims)), name, tensor.name, Why.OPERAND_SIZE)
    dtype = TYPE_FACTS[tensor.type].dtype
    size = 0 if dtype is None else math.prod(tensor.dims) * dtype.itemsize
    if rule.max_bytes and size > rule.max_bytes:
        yield Reason(f"at most {rule.max_bytes} bytes", f"{size} bytes", name, tensor.name, Why.OPERAND_SIZE)


def _quantisation(operand: Operand) -> str:
    return f"scale {operand.scale:g}, zero point {operand.zero_point}"


def _number(model: Model, inputs: Sequence[Operand], positions: Mapping[str, int], key: str) -> int | None:
    """A constant scalar or a dimension; None where the form has none or it is not known before execution."""
    if key in positions:
        operand = inputs[positions[key]]
        value = model.value(operand) if operand.is_constant else None
        return None if value is None or value.size != 1 else int(value.reshape(()).item())
    tensor, side = SIDES.get(key, ("", 0))
    dims = inputs[positions[tensor]].dims if tensor in positions else ()
    return dims[side] or None if len(dims) == 4 else None

"""Device profiles: emulated drivers described by data, without a line of Python.

Profiles are read from TOML by :mod:`nnbridge.devices.profile_file`; docs/profiles.md describes the keys. Every rule that an
operation breaks is a reason.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from nnbridge.devices.cpu import check_deadline
from nnbridge.devices.device import Capabilities, Device, PreparedModel, Request, Result, Support
from nnbridge.devices.requantise import prepared_with
from nnbridge.errors import BadDataError, OpFailedError, Reason
from nnbridge.extensions import TYPES, Extension
from nnbridge.model import Model, Operand, Operation
from nnbridge.operations.matching import input_places
from nnbridge.types import (
    TYPE_FACTS,
    DeviceTypeCode,
    OperandCode,
    OperationCode,
    PreferenceCode,
    PriorityCode,
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
    """What a device supports of one operation."""

    types: frozenset[OperandCode] = frozenset()
    """Types of the subject; empty for all."""
    subject: str = ""
    """The name of the operand whose type and rank are checked; the first input without one."""
    ranks: tuple[int, ...] = ()
    constant: tuple[str, ...] = ()
    """Inputs that must be constants."""
    values: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Scalars and dimensions that may have these values alone."""
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


@dataclass(frozen=True)
class ProfileDevice(Device):
    """A driver that a profile describes. It computes with the CPU executor."""

    name: str
    rules: Mapping[OperationCode, tuple[ProfileRule, ...]]
    """Operation → alternatives, one of which must hold."""
    capabilities: Capabilities = _AS_THE_CPU
    feature_level: int = 8
    type: DeviceTypeCode = DeviceTypeCode.ACCELERATOR
    version: str = "profile"
    source: str = ""
    """Where the rules were read."""
    numerics: str = "exact"
    faults: Faults = Faults()
    others: tuple[ProfileRule, ...] = ()
    """Alternatives for operations that ``rules`` does not name; none: they are not supported."""
    extensions: Mapping[Extension, tuple[int, ...]] = field(default_factory=dict)
    """Vendor extension → operations that are claimed. They can be planned, not computed."""

    def supported_extensions(self) -> Sequence[Extension]:
        """The profile's extensions."""
        return tuple(self.extensions)

    def supported_operations(self, model: Model) -> Sequence[Support]:
        """True, or the rules that the operation breaks."""
        return [self._refusal(model, operation) or True for operation in model.main.operations]

    def _refusal(self, model: Model, operation: Operation) -> Reason | None:
        """The first broken rule of the only alternative; what each alternative requires where there are several."""
        name = model.operation_name(operation)
        unlisted = Reason("an operation that the profile lists", name, name)
        extension = model.extension_of(operation.type)
        if extension is not None:
            claimed = next((numbers for e, numbers in self.extensions.items() if e.name == extension[0]), ())
            return None if extension[1] in claimed else unlisted
        known = operation.type in _CODES
        alternatives = self.rules.get(OperationCode(operation.type), self.others) if known else ()
        if not alternatives:
            return unlisted
        broken = [list(_broken(rule, model, operation, name)) for rule in alternatives]
        if [] in broken:
            return None
        if len(broken) == 1:
            return broken[0][0]
        required = dict.fromkeys(" and ".join(f"{r.operand}: {r.rule}" for r in reasons) for reasons in broken)
        found = dict.fromkeys(f"{r.operand}: {r.found}" for reasons in broken for r in reasons)
        return Reason("; or ".join(required), ", ".join(found), name)

    def prepare_model(
        self,
        model: Model,
        preference: int = PreferenceCode.FAST_SINGLE_ANSWER,
        priority: int = PriorityCode.MEDIUM,
        deadline: int | None = None,
    ) -> PreparedModel:
        """BAD_DATA if an operation is not supported; OP_FAILED with the fault ``prepare``."""
        check_deadline(deadline)
        if self.faults.prepare:
            raise OpFailedError(Reason("a driver that prepares models", "the fault 'prepare'", self.name))
        refused = next((r for o in model.main.operations if (r := self._refusal(model, o))), None)
        if refused is not None:
            raise BadDataError(refused)
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


def _broken(rule: ProfileRule, model: Model, operation: Operation, name: str) -> Iterator[Reason]:
    """Every rule that an operation breaks."""
    inputs = [model.main.operands[i] for i in operation.inputs]
    outputs = [model.main.operands[i] for i in operation.outputs]
    positions = input_places(model, operation)
    subject = inputs[positions.get(rule.subject, 0)] if inputs else None
    label = rule.subject or "input 0"
    if subject is not None and rule.types and subject.type not in rule.types:
        yield Reason(" or ".join(sorted(t.name for t in rule.types)), TYPES.readable(subject.type), name, label)
    if subject is not None and rule.ranks and len(subject.dims) not in rule.ranks:
        yield Reason(f"rank {' or '.join(map(str, rule.ranks))}", str(len(subject.dims)), name, label)
    for key in rule.constant:
        if key in positions and not inputs[positions[key]].is_constant:
            yield Reason("a constant", "a computed value", name, key)
    for key in {**rule.values, **rule.at_least, **rule.at_most}:
        value = _number(model, inputs, positions, key)
        if value is None:
            continue
        if value not in rule.values.get(key, (value,)):
            yield Reason(f"one of {', '.join(map(str, rule.values[key]))}", str(value), name, key)
        if value < rule.at_least.get(key, value):
            yield Reason(f"at least {rule.at_least[key]}", str(value), name, key)
        if value > rule.at_most.get(key, value):
            yield Reason(f"at most {rule.at_most[key]}", str(value), name, key)
    for key, points in rule.zero_points.items():
        if key in positions and (point := inputs[positions[key]].zero_point) not in points:
            yield Reason(f"a zero point of {' or '.join(map(str, points))}", str(point), name, key)
    if rule.same_quantisation and inputs and _quantisation(inputs[0]) != _quantisation(outputs[0]):
        yield Reason("the quantisation of the first input", _quantisation(outputs[0]), name, "output")
    for tensor in (o for o in (*inputs, *outputs) if o.is_tensor):
        if rule.fixed_size and (not tensor.dims or 0 in tensor.dims):
            yield Reason("known dimensions", str(list(tensor.dims)), name, tensor.name)
        if rule.max_side and max(tensor.dims, default=0) > rule.max_side:
            yield Reason(f"sides of at most {rule.max_side}", str(list(tensor.dims)), name, tensor.name)
        dtype = TYPE_FACTS[tensor.type].dtype
        size = 0 if dtype is None else math.prod(tensor.dims) * dtype.itemsize
        if rule.max_bytes and size > rule.max_bytes:
            yield Reason(f"at most {rule.max_bytes} bytes", f"{size} bytes", name, tensor.name)


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

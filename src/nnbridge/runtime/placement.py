"""Placing operations as Android's partitioner does it: every device is asked, the best one gets the operation.

Everything that is decided here stays as data: for each operation what every device answered and at what performance, so
that a plan can be explained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nnbridge.devices.device import UNLISTED, Device
from nnbridge.errors import ExhaustedError, Reason, Why, pass_shortage, raised
from nnbridge.model import Model, Operation, Subgraph
from nnbridge.operations.control_flow import has_unknown_boundary
from nnbridge.records import dataclass
from nnbridge.runtime.driver_calls import checked_support
from nnbridge.runtime.feature_level_slices import Slices, requirements
from nnbridge.types import CONTROL_FLOW, FeatureLevel, OperationCode


@dataclass(frozen=True, slots=True)
class Answer:
    """One device's answer for one operation."""

    device: str
    performance: float | None
    """Relative time or power, by the preference; None if the device does not support the operation."""
    reason: Reason | None = None
    wrong: bool = False
    """True if the driver raised an exception, or returned what getSupportedOperations cannot."""

    @property
    def supported(self) -> bool:
        """True if the device accepts the operation."""
        return self.reason is None


@dataclass(frozen=True, slots=True)
class Placement:
    """The device of one operation, and every device's answer."""

    operation: int
    device: int | None
    """Index into the compilation's devices; None if no device supports the operation."""
    answers: tuple[Answer, ...]
    interpreted: bool = False
    """Control flow that the CPU wins, and that the runtime runs itself (fact P11)."""


def place(model: Model, devices: Sequence[Device], preference: int, *, interpret: bool = True) -> tuple[Placement, ...]:
    """The best device of every operation of the main subgraph (facts P1 to P13).

    Without ``interpret``, control flow that the CPU wins stays whole on the CPU, as when everything falls back to it.
    """
    slices = Slices(model)
    answers = [ask(device, model, slices) for device in devices]
    raters = [_Rater(model, device, preference) for device in devices]
    return tuple(_best(model, i, devices, raters, support, interpret) for i, support in enumerate(zip(*answers, strict=True)))


def ask(device: Device, model: Model, slices: Slices) -> list[Answer]:
    """A device's answers, without performance. A device below the model's feature level is asked about a slice only.

    A wrong answer (an exception, another number of answers) counts as "nothing supported" (fact D13).
    ExhaustedError for a profile whose conditions ask for too much.
    """
    part, main = slices.for_device(device), model.main
    others = part.refused
    if part.model is None:
        reason = Reason("a slice of the model at the device's feature level", "none that is valid", kind=Why.FEATURE_LEVEL)
        return [Answer(device.name, None, others.get(i, reason)) for i in range(len(main.operations))]
    accepted = Answer(device.name, None)
    answers = [Answer(device.name, None, others[i]) if i in others else accepted for i in range(len(main.operations))]
    try:
        supported = checked_support(device.supported_operations(part.model), len(part.included))
    except ExhaustedError:
        raise
    except (Exception, SystemExit) as error:
        pass_shortage(error)
        rule, found = "a valid reply to getSupportedOperations", raised(error)
        for i in part.included:
            reason = Reason(rule, found, model.operation_name(main.operations[i]), kind=Why.INTERNAL)
            answers[i] = Answer(device.name, None, reason, wrong=True)
        return answers
    for i, support in zip(part.included, supported, strict=True):
        if isinstance(support, Reason):
            stated = support if support.kind is not None else replace(support, kind=Why.UNSTATED)
            answers[i] = Answer(device.name, None, stated)
        elif not support:
            name = model.operation_name(main.operations[i])
            answers[i] = Answer(
                device.name, None, Reason("an operation that the device supports", operation=name, kind=Why.UNSTATED)
            )
    return answers


@dataclass(frozen=True, slots=True)
class Support:
    """A device's answers for a model: for each operation why it is refused (None: it is not) and why that is open."""

    reasons: tuple[Reason | None, ...]
    uncertain: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """The answers as JSON-ready data."""
        listed: dict[str, object] = {
            "supported": [reason is None for reason in self.reasons],
            "reasons": [None if reason is None else str(reason) for reason in self.reasons],
        }
        return {**listed, "uncertain": list(self.uncertain)} if any(self.uncertain) else listed


def answers_of(device: Device, model: Model) -> Support:
    """The operations of a model that a device supports, asked as a compilation asks it."""
    answers = ask(device, model, Slices(model))
    return Support(tuple(answer.reason for answer in answers), tuple(device.uncertainties(model)))


def _best(
    model: Model, i: int, devices: Sequence[Device], raters: Sequence[_Rater], answers: Sequence[Answer], interpret: bool
) -> Placement:
    """The lowest relative time or power; on a tie the CPU, else the earlier device."""
    operation = model.main.operations[i]
    control_flow = operation.type in CONTROL_FLOW
    cpu_only = control_flow and has_unknown_boundary(model, model.main, operation)
    best: tuple[np.float32, int] | None = None
    rated = []
    for k, (device, answer) in enumerate(zip(devices, answers, strict=True)):
        if cpu_only and device.kind != "cpu" and answer.supported:
            name = model.operation_name(operation)
            answer = Answer(
                device.name,
                None,
                Reason("control flow with operands of known size", "unknown size", name, kind=Why.DYNAMIC_SHAPE),
            )
        if answer.supported:
            answer, performance = raters[k].of(operation)
            if best is None or performance < best[0] or (performance == best[0] and device.kind == "cpu"):
                best = performance, k
        rated.append(answer)
    if best is None:
        return Placement(i, None, tuple(rated))
    interpreted = interpret and control_flow and not cpu_only and devices[best[1]].kind == "cpu"
    return Placement(i, best[1], tuple(rated), interpreted)


class _Rater:
    """A device's answers with performance for the operations of one model that it supports (facts P3 to P8)."""

    def __init__(self, model: Model, device: Device, preference: int) -> None:
        self._model = model
        self._name = device.name
        self._capabilities = device.capabilities
        self._preference = preference
        self._bodies: dict[int, np.float32] = {}
        self._by_type: dict[int, tuple[Answer, np.float32]] = {}

    def of(self, operation: Operation) -> tuple[Answer, np.float32]:
        """The answer for an operation of the main subgraph, and its performance as Android compares it."""
        if operation.type in CONTROL_FLOW or not operation.inputs:
            with np.errstate(over="ignore"):
                performance = self._performance(operation, self._model.main, self._model.relaxed)
                return Answer(self._name, performance), np.float32(performance)
        code = self._model.main.operands[operation.inputs[0]].type
        if code not in self._by_type:
            performance = self._performance(operation, self._model.main, self._model.relaxed)
            self._by_type[code] = Answer(self._name, performance), np.float32(performance)
        return self._by_type[code]

    def _performance(self, operation: Operation, subgraph: Subgraph, relaxed: bool) -> float:
        """By the first input's type; IF and WHILE add their bodies to their own."""
        if operation.type == OperationCode.IF:
            own = np.float32(self._capabilities.if_performance.value(self._preference))
            bodies = [self._body(subgraph, i) for i in operation.inputs[1:3]]
            return float(own + np.float32(0.5) * (bodies[0] + bodies[1]))
        if operation.type == OperationCode.WHILE:
            own = np.float32(self._capabilities.while_performance.value(self._preference))
            return float(own + self._body(subgraph, operation.inputs[0]) + self._body(subgraph, operation.inputs[1]))
        if not operation.inputs:
            return UNLISTED
        code = subgraph.operands[operation.inputs[0]].type
        return self._capabilities.of(code, relaxed).value(self._preference)

    def _body(self, subgraph: Subgraph, operand: int) -> np.float32:
        """The sum over a body's operations, computed once."""
        index = subgraph.operands[operand].location.offset
        if index not in self._bodies:
            inner = self._model.referenced[index]
            each = (self._performance(operation, inner, inner.relaxed) for operation in inner.operations)
            self._bodies[index] = np.float32(sum(map(np.float32, each), np.float32(0)))
        return self._bodies[index]


def required_level(model: Model) -> FeatureLevel:
    """The lowest feature level whose devices can be asked about the whole model."""
    return FeatureLevel(max((need.level for need in requirements(model)), default=1))

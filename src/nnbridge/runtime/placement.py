"""Placing operations as Android's partitioner does it: every device is asked, the best one takes the operation.

Everything that is decided here is kept as data: for each operation what every device answered and at what figure, so
that a plan can be explained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnbridge.devices.device import UNLISTED, Capabilities, Device, Support
from nnbridge.errors import Reason
from nnbridge.model import Model, Operation, Subgraph
from nnbridge.operations.control_flow import has_unknown_boundary
from nnbridge.runtime.driver_calls import checked_support
from nnbridge.runtime.feature_level_slices import Slices, requirements
from nnbridge.types import (
    CONTROL_FLOW,
    FeatureLevel,
    OperationCode,
)

RIGHT_ANSWER = "a right answer of getSupportedOperations"
"""The rule that a driver broke whose answer was an exception or none that could be."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one device answered for one operation."""

    device: str
    figure: float | None
    """The figure that the preference looks at; None if the device does not take the operation."""
    reason: Reason | None = None

    @property
    def supported(self) -> bool:
        """True if the device takes the operation."""
        return self.reason is None

    @property
    def wrong(self) -> bool:
        """True if this was no answer that a driver may give."""
        return self.reason is not None and self.reason.rule == RIGHT_ANSWER


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one operation goes, and what every device said."""

    operation: int
    device: int | None
    """Index into the compilation's devices; None if no device takes the operation."""
    answers: tuple[Answer, ...]
    interpreted: bool = False
    """Control flow that the CPU wins, and that the runtime runs itself (fact P11)."""


# -- the best device of each operation -------------------------------------------------------------------------------


def place(model: Model, devices: Sequence[Device], preference: int, *, interpret: bool = True) -> tuple[Placement, ...]:
    """The best device of every operation of the main subgraph (facts P1 to P13).

    Without ``interpret``, control flow that the CPU wins stays whole on the CPU, as when everything falls back to it.
    """
    slices = Slices(model)
    answers = [ask(device, model, slices) for device in devices]
    raters = [_Rater(model, device.capabilities, preference) for device in devices]
    return tuple(
        _best(model, i, devices, raters, [answer[i] for answer in answers], interpret) for i in range(len(model.main.operations))
    )


def ask(device: Device, model: Model, slices: Slices) -> list[Reason | None]:
    """A device's answers, None for yes. A device below the model's feature level is asked about a slice only.

    A wrong answer (an exception, another number of answers) counts as "nothing supported" (fact D13).
    """
    part, count = slices.for_device(device), len(model.main.operations)
    if part.model is None:
        gone = Reason("a slice of the model at the device's feature level", "none that is valid")
        return [part.refused.get(i, gone) for i in range(count)]
    answers: list[Reason | None] = [part.refused.get(i) for i in range(count)]
    try:
        given = checked_support(device.supported_operations(part.model), len(part.kept))
    except (Exception, SystemExit) as error:
        wrong = Reason(RIGHT_ANSWER, f"{type(error).__name__}: {error}")
        return [answer or replace(wrong, operation=_name(model, i)) for i, answer in enumerate(answers)]
    for i, answer in zip(part.kept, given, strict=True):
        answers[i] = _as_reason(answer, model, i)
    return answers


def _as_reason(answer: Support, model: Model, i: int) -> Reason | None:
    if isinstance(answer, Reason):
        return answer
    return None if answer else Reason("an operation that the device takes", operation=_name(model, i))


def _name(model: Model, i: int) -> str:
    return model.operation_name(model.main.operations[i])


def _best(
    model: Model,
    i: int,
    devices: Sequence[Device],
    raters: Sequence[_Rater],
    answers: Sequence[Reason | None],
    interpret: bool,
) -> Placement:
    """The lowest figure; on a tie the CPU, else the earlier device."""
    operation = model.main.operations[i]
    control_flow = operation.type in CONTROL_FLOW
    cpu_only = control_flow and has_unknown_boundary(model, model.main, operation)
    best: tuple[np.float32, int] | None = None
    given = []
    for k, (device, said) in enumerate(zip(devices, answers, strict=True)):
        if cpu_only and device.kind != "cpu" and said is None:
            said = Reason("control flow with operands of known size", "unknown size", _name(model, i))
        if said is not None:
            given.append(Answer(device.name, None, said))
            continue
        figure = raters[k].of(operation)
        given.append(Answer(device.name, figure))
        single = np.float32(figure)
        if best is None or single < best[0] or (single == best[0] and device.kind == "cpu"):
            best = single, k
    if best is None:
        return Placement(i, None, tuple(given))
    interpreted = interpret and control_flow and not cpu_only and devices[best[1]].kind == "cpu"
    return Placement(i, best[1], tuple(given), interpreted)


class _Rater:
    """A device's figures for one model's operations (facts P3 to P8); those of bodies are added up once."""

    def __init__(self, model: Model, capabilities: Capabilities, preference: int) -> None:
        self._model = model
        self._capabilities = capabilities
        self._preference = preference
        self._bodies: dict[int, np.float32] = {}

    def of(self, operation: Operation) -> float:
        """The figure for an operation of the main subgraph."""
        with np.errstate(over="ignore"):
            return self._figure(operation, self._model.main, self._model.relaxed)

    def _figure(self, operation: Operation, subgraph: Subgraph, relaxed: bool) -> float:
        """By the first input's type; IF and WHILE add their bodies to their own figure."""
        if operation.type == OperationCode.IF:
            own = np.float32(self._capabilities.if_performance.figure(self._preference))
            bodies = [self._body(subgraph, i) for i in operation.inputs[1:3]]
            return float(own + np.float32(0.5) * (bodies[0] + bodies[1]))
        if operation.type == OperationCode.WHILE:
            own = np.float32(self._capabilities.while_performance.figure(self._preference))
            return float(own + self._body(subgraph, operation.inputs[0]) + self._body(subgraph, operation.inputs[1]))
        if not operation.inputs:
            return UNLISTED
        code = subgraph.operands[operation.inputs[0]].type
        return self._capabilities.of(code, relaxed).figure(self._preference)

    def _body(self, subgraph: Subgraph, operand: int) -> np.float32:
        index = subgraph.operands[operand].location.offset
        if index not in self._bodies:
            inner = self._model.referenced[index]
            figures = (self._figure(operation, inner, inner.relaxed) for operation in inner.operations)
            self._bodies[index] = np.float32(sum(map(np.float32, figures), np.float32(0)))
        return self._bodies[index]


def required_level(model: Model) -> FeatureLevel:
    """The lowest feature level whose devices can be asked about the whole model."""
    return FeatureLevel(max((need.level for need in requirements(model)), default=1))

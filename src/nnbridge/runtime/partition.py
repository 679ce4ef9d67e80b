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
from nnbridge.runtime.answers import checked_support
from nnbridge.runtime.slicing import CONTROL_FLOW, Slices, requirements
from nnbridge.types import (
    FeatureLevel,
    OperationCode,
)


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
    capabilities = [device.capabilities for device in devices]
    return tuple(
        _best(model, i, devices, capabilities, [answer[i] for answer in answers], preference, interpret)
        for i in range(len(model.main.operations))
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
        wrong = Reason("a right answer of getSupportedOperations", f"{type(error).__name__}: {error}")
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
    capabilities: Sequence[Capabilities],
    answers: Sequence[Reason | None],
    preference: int,
    interpret: bool,
) -> Placement:
    """The lowest figure; on a tie the CPU, else the earlier device."""
    operation = model.main.operations[i]
    control_flow = operation.type in CONTROL_FLOW
    cpu_only = control_flow and has_unknown_boundary(model, model.main, operation)
    best: tuple[float, int] | None = None
    given = []
    for k, (device, said) in enumerate(zip(devices, answers, strict=True)):
        if cpu_only and device.kind != "cpu" and said is None:
            said = Reason("control flow with operands of known size", "unknown size", _name(model, i))
        if said is not None:
            given.append(Answer(device.name, None, said))
            continue
        figure = _figure(model, model.main, operation, capabilities[k], preference, model.relaxed)
        given.append(Answer(device.name, figure))
        if best is None or figure < best[0] or (figure == best[0] and device.kind == "cpu"):
            best = figure, k
    if best is None:
        return Placement(i, None, tuple(given))
    interpreted = interpret and control_flow and not cpu_only and devices[best[1]].kind == "cpu"
    return Placement(i, best[1], tuple(given), interpreted)


def _figure(
    model: Model, subgraph: Subgraph, operation: Operation, capabilities: Capabilities, preference: int, relaxed: bool
) -> float:
    """The device's figure for an operation: its first input's type; IF and WHILE add their bodies (facts P3 to P8)."""
    if operation.type not in CONTROL_FLOW:
        if not operation.inputs:
            return UNLISTED
        return capabilities.of(subgraph.operands[operation.inputs[0]].type, relaxed).figure(preference)

    def body(position: int) -> np.float32:
        inner = model.referenced[subgraph.operands[operation.inputs[position]].location.offset]
        figures = (_figure(model, inner, o, capabilities, preference, inner.relaxed) for o in inner.operations)
        return np.float32(sum(map(np.float32, figures), np.float32(0)))

    with np.errstate(over="ignore"):
        if operation.type == OperationCode.IF:
            own = np.float32(capabilities.if_performance.figure(preference))
            return float(own + np.float32(0.5) * (body(1) + body(2)))
        return float(np.float32(capabilities.while_performance.figure(preference)) + body(0) + body(1))


def required_level(model: Model) -> FeatureLevel:
    """The lowest feature level whose devices can be asked about the whole model."""
    return FeatureLevel(max((need.level for need in requirements(model)), default=1))

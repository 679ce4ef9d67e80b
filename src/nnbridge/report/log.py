"""The decisions of a compilation in the lines that Android's runtime writes to its log (tag ``ExecutionPlan``).

The form is that of logs which engineers publish, such as in tensorflow/tensorflow issue 43541; what nnbridge knows beyond them,
the operation's number and the reason, follows.
"""

from __future__ import annotations

from collections.abc import Iterator

from nnbridge.devices.host import HOST_NAME
from nnbridge.errors import BadStateError
from nnbridge.extensions import readable_operation
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.plan import INTERPRETER, Plan

_TAG = "ExecutionPlan:"


def decision_lines(compilation: Compilation) -> Iterator[str]:
    """Each device that cannot do an operation, the device that gets it, and what the plan comes to if there is one."""
    try:
        plan: Plan | None = compilation.plan
    except BadStateError:
        plan = None
    model = compilation.model
    for placement in compilation.placements if plan is None else plan.placements:
        operation = model.main.operations[placement.operation]
        kind = readable_operation(model, operation)
        for answer in placement.answers:
            if answer.reason is not None and answer.device != HOST_NAME:
                found = f", found {answer.reason.found}" if answer.reason.found else ""
                why = f"operation {placement.operation}: requires {answer.reason.rule}{found}"
                yield f"{_TAG} Device {answer.device} can't do operation {kind} ({why})"
        if placement.device is None:
            yield f"{_TAG} No driver can do the op (operation {placement.operation}, {kind})"
        else:
            name = INTERPRETER.name if placement.interpreted else placement.answers[placement.device].device
            yield f"{_TAG} ModelBuilder::findBestDeviceForEachOperation({kind}) = {placement.device} ({name})"
    if plan is not None:
        yield from _outcome(plan)


def _outcome(plan: Plan) -> Iterator[str]:
    if plan.fallback is not None:
        yield f"{_TAG} the whole model goes to the CPU: {plan.fallback}"
    used = sorted({step.device for step in plan.steps})
    names = ", ".join(plan.devices[number].name for number in used)
    if len(plan.steps) == 1:
        yield f"{_TAG} ModelBuilder::partitionTheWork: only one best device: {used[0]} = {names}"
    else:
        yield f"{_TAG} ModelBuilder::partitionTheWork: {len(plan.steps)} steps on {names}"

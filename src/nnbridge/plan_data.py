"""A plan as data: each operation with its device and why no other runs it, the steps, and the operators of the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nnbridge.converters.inspection import count_transposes, transposes_as_dict
from nnbridge.devices.evidence import evidences
from nnbridge.devices.source_profiles import BoundDevice
from nnbridge.errors import Why
from nnbridge.extensions import readable_operation
from nnbridge.model import Model, Operation
from nnbridge.runtime.caching import CacheRecord
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.partitioner import ExecutionStep, GotoStep, IfStep, LogicalStep
from nnbridge.runtime.placement import Placement
from nnbridge.runtime.plan import Plan
from nnbridge.target import PREFERENCES

PLACES = {"device": "device", "cpu": "NNAPI CPU", "host": "host", "runtime": "NNAPI runtime"}
"""Kind of device → kind of place. The runtime itself runs control flow whose bodies go to devices."""
PLACE_KEYS = {"device": "device", "cpu": "nnapi_cpu", "host": "host", "runtime": "nnapi_runtime"}
"""Kind of device → key of its count."""


def bound_devices(plan: Plan) -> list[BoundDevice]:
    """The devices of a plan that looked at the file."""
    return [device for device in plan.devices if isinstance(device, BoundDevice)]


def operators_as_dict(plan: Plan) -> dict[str, Any]:
    """``operators``: each operator of the file with its place, ``device`` or ``cpu``, and the reasons.

    Nothing without devices that look at the file. An operator that no operation came from, such as a reshaping that was
    folded, is where the device's answer puts it.
    """
    devices = bound_devices(plan)
    if not devices:
        return {}
    ran = dict(ran_on(plan))
    return {
        "operators": operators_of(devices, ran),
        "numerics": "; ".join(f"{e.device}: {e.numbers}" for e in evidences(devices)),
    }


def operators_of(devices: list[BoundDevice], ran: Mapping[int, str]) -> list[dict[str, Any]]:
    """Each operator of the file; ``ran``: operator → what its operations run on, where a plan has any of them."""
    rows = []
    for operator in devices[0].graph.operators:
        answers = {device.name: device.answer(operator.index) for device in devices}
        accepting = next((name for name, answer in answers.items() if answer is None), "")
        on = ran.get(operator.index, accepting)
        chosen = on if on in answers else ""
        reasons = [{"device": name, **reason.as_dict()} for name, reason in answers.items() if reason is not None]
        if accepting and not chosen:
            reasons.append({"device": accepting, "rule": "a partition that is delegated", "found": on})
        doubts = [d.claims[operator.index].uncertain for d in devices if d.claims[operator.index].uncertain]
        faults = [d.claims[operator.index].fault for d in devices if d.name == chosen and d.claims[operator.index].fault]
        rows.append(
            {
                "index": operator.index,
                "operator": operator.name,
                "place": "device" if chosen else "cpu",
                "device": chosen or "cpu",
                "reasons": reasons,
                **({"uncertain": doubts} if doubts else {}),
                **({"faults": faults} if faults else {}),
            }
        )
    return rows


def ran_on(plan: Plan) -> Iterator[tuple[int, str]]:
    """Operator → the device of its operations in the main graph."""
    for source, placement in plan.placed():
        operation = plan.partition.sources[source].model.main.operations[placement.operation]
        if source == 0 and operation.source is not None:
            at = operation.source
            yield (at.callers[0] if at.callers else at.index), plan.device_of(placement.operation, source).name


def plan_as_dict(compilation: Compilation) -> dict[str, Any]:
    """Every operation with its place and why the other devices do not run it; steps; counts by place.

    Operations of interpreted bodies come after the main subgraph's, with ``source`` and ``within``; ``index`` counts within
    the source. ``program`` is the plan's flat order: steps, and the jumps of control flow between them.
    """
    plan = compilation.plan
    sources = plan.partition.sources
    operations = []
    doubts = _Doubts(plan)
    for source, placement in plan.placed():
        device, model = plan.device_of(placement.operation, source), sources[source].model
        operation = model.main.operations[placement.operation]
        operations.append(
            {
                "index": placement.operation,
                "source": source,
                "within": plan.partition.within(source),
                "type": readable_operation(model, operation),
                "name": operation.name,
                "operator": operator_as_dict(operation),
                "mapping": operation.mapping,
                "place": PLACES[device.kind],
                "device": device.name,
                "reasons": reasons(plan, placement, source),
                **doubts.of(source, placement.operation),
            }
        )
    steps = []
    for step in plan.steps:
        device, operands = plan.devices[step.device], sources[step.source].model.main.operands
        inputs, outputs = ([operands[i].name or f"operand {i}" for i in side] for side in (step.inputs, step.outputs))
        listed = {"operations": list(step.operations), "inputs": inputs, "outputs": outputs}
        steps.append({"device": device.name, "place": PLACES[device.kind], "source": step.source, **listed})
    return {
        "evidence": [each.as_dict() for each in evidences(compilation.devices)],
        "model": compilation.model.name,
        "preference": compilation.preference,
        "preference_name": next(name for name, code in PREFERENCES.items() if code == compilation.preference),
        "max_partitions": compilation.max_partitions,
        "devices": [device.name for device in plan.devices],
        "operations": operations,
        **operators_as_dict(plan),
        "steps": steps,
        "program": [_logical_step_as_dict(item) for item in plan.partition.program],
        "counts": {
            **Counter(PLACE_KEYS[plan.device_of(p.operation, source).kind] for source, p in plan.placed()),
            **transposes_as_dict(count_transposes(compilation.model)),
        },
        "fallback": plan.fallback.as_dict() if plan.fallback else None,
        "cache": [cache_as_dict(record) for record in plan.cache],
    }


class _Doubts:
    """The reasons why answers of devices are open, where their profiles say so."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._known: dict[int, dict[str, Sequence[str]]] = {}

    def of(self, source: int, operation: int) -> dict[str, dict[str, str]]:
        """``uncertain``: device → why, for one operation; nothing where no answer is open."""
        if source not in self._known:
            model = self._plan.partition.sources[source].model
            self._known[source] = {device.name: device.uncertainties(model) for device in self._plan.devices}
        found = {name: texts[operation] for name, texts in self._known[source].items() if texts[operation]}
        return {"uncertain": found} if found else {}


def _logical_step_as_dict(item: LogicalStep) -> dict[str, Any]:
    if isinstance(item, ExecutionStep):
        return {"step": item.number}
    if isinstance(item, GotoStep):
        return {"goto": item.target}
    place = {"source": item.source, "operation": item.operation}
    if isinstance(item, IfStep):
        return {"if": place, "then": item.then.start, "else": item.otherwise.start}
    return {"while": place, "condition": item.condition.start, "body": item.body.start, "end": item.end}


def cache_as_dict(record: CacheRecord) -> dict[str, Any]:
    """The compilation cache's result for a step, and what was wrong with it."""
    notes = [note.as_dict() for note in record.notes]
    return {"device": record.device, "token": record.token, "result": record.result, "notes": notes}


def reasons(plan: Plan, placement: Placement, source: int = 0) -> list[dict[str, Any]]:
    """The reason why each device that does not run an operation does not: its own, or that its performance is worse.

    The runtime interprets control flow that the CPU won, at the CPU's performance.
    """
    chosen = plan.device_of(placement.operation, source).name
    winner = placement.answers[placement.device].device if placement.interpreted and placement.device is not None else chosen
    won = next((a.performance for a in placement.answers if a.device == winner), None)
    model = plan.partition.sources[source].model
    operation = model.main.operations[placement.operation]
    found: list[dict[str, Any]] = []
    for answer in placement.answers:
        if answer.device in (chosen, winner):
            continue
        if answer.reason is not None:
            shown = {key: _readable(model, operation, text) for key, text in answer.reason.as_dict().items()}
            found.append({"device": answer.device, **shown})
        elif plan.fallback is not None:
            found.append({"device": answer.device, "fallback": str(plan.fallback), "kind": Why.FALLBACK.value})
        else:
            rule = "better performance than the chosen device's"
            found.append(
                {
                    "device": answer.device,
                    "rule": rule,
                    "figure": answer.performance,
                    "winner": winner,
                    "best": won,
                    "kind": Why.PERFORMANCE.value,
                }
            )
    return found


def _readable(model: Model, operation: Operation, text: str) -> str:
    """A reason's text with the operation's readable name in place of its number within an extension."""
    return readable_operation(model, operation) if text == model.operation_name(operation) else text


def refusals_as_dict(compilation: Compilation) -> list[dict[str, Any]]:
    """Operations that no device of a compilation supports, after a finish that failed, with each device's reason."""
    model = compilation.model
    refused = []
    for placement in compilation.placements:
        if placement.device is None:
            operation = model.main.operations[placement.operation]
            said = [{"device": a.device, **a.reason.as_dict()} for a in placement.answers if a.reason is not None]
            named = {"type": readable_operation(model, operation), "name": operation.name}
            refused.append({"index": placement.operation, **named, "operator": operator_as_dict(operation), "reasons": said})
    return refused


def operator_as_dict(operation: Operation) -> dict[str, Any] | None:
    """The operator of the source file that an operation was converted from; None where it has none."""
    at = operation.source
    return None if at is None else {"index": at.index, "operator": at.operator, "subgraph": at.subgraph}

"""Slices of a model: what a device of a lower feature level than the model's is asked about.

A slice serves only the question which operations the device supports; what is compiled later are steps (facts S6 to S13).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nnbridge.devices.device import Device
from nnbridge.errors import BadDataError, Reason, Why
from nnbridge.model import Location, Model, Operand, Operation, Subgraph
from nnbridge.operations.validation import Verdict, operand_level, verdicts_of, with_bodies
from nnbridge.records import dataclass
from nnbridge.types import CONTROL_FLOW, WRITTEN, Lifetime

MAX_DEPTH = 100
"""How deep control flow may be nested; Android has no limit but its stack."""


def requirements(model: Model) -> list[Verdict]:
    """The requirements of each operation of the main subgraph, with everything that it depends on (fact S6).

    BAD_DATA for control flow nested deeper than :data:`MAX_DEPTH`.
    """
    known: dict[int, tuple[Verdict, int]] = {}

    def of(operation: Operation, own: Verdict, subgraph: Subgraph, depth: int) -> tuple[Verdict, int]:
        own = with_bodies(own, operation, model, subgraph)
        if operation.type not in CONTROL_FLOW:
            return own, 0
        indexes = [subgraph.operands[i].location.offset for i in operation.inputs if _is_model(subgraph.operands[i])]
        bodies = [of_body(index, depth + 1) for index in indexes]
        return _combined([own, *(verdict for verdict, _ in bodies)]), 1 + max(height for _, height in bodies)

    def of_body(index: int, depth: int) -> tuple[Verdict, int]:
        if index not in known:
            require(depth)
            inner = model.referenced[index]
            ends = [Verdict(operand_level(inner.operands[i])) for i in (*inner.inputs, *inner.outputs)]
            found = [of(*each, inner, depth) for each in zip(inner.operations, verdicts_of(inner), strict=True)]
            height = max((height for _, height in found), default=0)
            known[index] = _combined([*ends, *(verdict for verdict, _ in found)]), height
        require(depth + known[index][1])
        return known[index]

    def require(depth: int) -> None:
        if depth > MAX_DEPTH:
            raise BadDataError(Reason(f"control flow nested at most {MAX_DEPTH} deep", "deeper"))

    return [of(*each, model.main, 0)[0] for each in zip(model.main.operations, verdicts_of(model.main), strict=True)]


def _combined(verdicts: Sequence[Verdict]) -> Verdict:
    """The larger level and either one's mark (fact S1)."""
    reason = next((v.reason for v in verdicts if v.reason is not None), None)
    return Verdict(max((v.level for v in verdicts), default=1), reason, any(v.runtime_only for v in verdicts))


def _is_model(operand: Operand) -> bool:
    return operand.lifetime is Lifetime.SUBGRAPH


@dataclass(frozen=True)
class Slice:
    """The question to a device: the model (None where no valid slice exists), and which operations are left in it."""

    model: Model | None
    included: tuple[int, ...]
    refused: dict[int, Reason]


class Slices:
    """The slices of one model, each computed once (facts S6 to S12)."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._needs = requirements(model)
        self._made: dict[int, Slice] = {}

    def for_device(self, device: Device) -> Slice:
        """The whole model for the CPU, the host, and drivers that comply with all of it."""
        level = int(device.level) if device.kind == "device" else 0
        if level not in self._made:
            self._made[level] = self._make(level)
        return self._made[level]

    def _make(self, level: int) -> Slice:
        refused = {i: reason for i, need in enumerate(self._needs) if level and (reason := self._refusal(i, need, level))}
        included = tuple(i for i in range(len(self._needs)) if i not in refused)
        return Slice(slice_model(self._model, included) if refused else self._model, included, refused)

    def _refusal(self, i: int, need: Verdict, level: int) -> Reason | None:
        if need.level > level:
            name = self._model.operation_name(self._model.main.operations[i])
            return Reason(f"feature level {level} at most, the device's", f"level {need.level}", name, kind=Why.FEATURE_LEVEL)
        if need.runtime_only:
            name = self._model.operation_name(self._model.main.operations[i])
            return Reason("operands of known size at the loop's boundary", "unknown size", name, kind=Why.DYNAMIC_SHAPE)
        return None


def slice_model(model: Model, included: Sequence[int]) -> Model | None:
    """The model with only these operations; None where no valid slice exists (facts S7 to S12).

    Operands come as constants by first use, then inputs, then the results of operations. What dropped operations computed is an
    input; inputs of equal type are one operand. What only dropped operations read is an output, and so are the model's
    own. The slice is not relaxed and names no extensions.
    """
    main = model.main
    operations = [main.operations[i] for i in included]
    if not operations or any(_is_model(main.operands[i]) for o in operations for i in o.inputs):
        return None
    read = dict.fromkeys(i for o in operations for i in o.inputs)
    slicer = _Slicer(main)
    for i in read:
        if main.operands[i].lifetime not in (*WRITTEN, Lifetime.SUBGRAPH_INPUT):
            slicer.add(i, main.operands[i])
    for i in main.inputs:
        if i in read:
            slicer.add_input(i)
    remaining = set(included)
    for k, operation in enumerate(main.operations):
        if k in remaining:
            slicer.add_operation(operation, read)
        else:
            for i in operation.outputs:
                if i in read:
                    slicer.add_input(i)
    if not slicer.outputs:
        return None
    subgraph = Subgraph(tuple(slicer.operands), tuple(slicer.operations), tuple(slicer.inputs.values()), tuple(slicer.outputs))
    return replace(model, main=subgraph, referenced=(), relaxed=False, extensions={}, states=())


class _Slicer:
    """The slice as it grows."""

    def __init__(self, main: Subgraph) -> None:
        self._main = main
        self._index: dict[int, int] = {}
        self.operands: list[Operand] = []
        self.operations: list[Operation] = []
        self.inputs: dict[Operand, int] = {}
        self.outputs: list[int] = []

    def add(self, i: int, operand: Operand) -> int:
        self._index[i] = len(self.operands)
        self.operands.append(operand)
        return self._index[i]

    def add_input(self, i: int) -> None:
        """One operand stands for all inputs of equal type, dimensions, quantisation and extra parameters (fact S9)."""
        kind = replace(self._main.operands[i], lifetime=Lifetime.SUBGRAPH_INPUT, location=Location(), name="", source_type="")
        if kind in self.inputs:
            self._index[i] = self.inputs[kind]
        else:
            self.inputs[kind] = self.add(i, replace(kind, name=self._main.operands[i].name))

    def add_operation(self, operation: Operation, read: dict[int, None]) -> None:
        """The operation and its outputs; outputs that only dropped operations read are the slice's (fact S10)."""
        inputs = tuple(self._index[i] for i in operation.inputs)
        outputs = []
        for i in operation.outputs:
            operand = self._main.operands[i]
            if i not in read and self._main.consumers.get(i):
                operand = replace(operand, lifetime=Lifetime.SUBGRAPH_OUTPUT)
            outputs.append(self.add(i, operand))
            if operand.lifetime is Lifetime.SUBGRAPH_OUTPUT:
                self.outputs.append(outputs[-1])
        self.operations.append(replace(operation, inputs=inputs, outputs=tuple(outputs)))

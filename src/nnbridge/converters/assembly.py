"""From a draft to the finished model: operands for what is used, constants in place."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from nnbridge.builder import ModelBuilder
from nnbridge.converters.draft import Step, Value
from nnbridge.errors import Reason
from nnbridge.model import Model
from nnbridge.types import MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES

Node = TypeVar("Node")
Key = TypeVar("Key", bound=Hashable)


def live_steps(steps: Sequence[Step], outputs: Sequence[Value]) -> list[Step]:
    """The operations that an output depends on."""
    required = set(map(id, outputs))
    live = []
    for step in reversed(steps):
        if required.intersection(map(id, step.outputs)):
            live.append(step)
            required.update(map(id, step.inputs))
    return live[::-1]


def own_outputs(outputs: Sequence[Value], inputs: Sequence[Value], copy: Callable[[Value], Value]) -> list[Value]:
    """One written value for each output: inputs, constants and outputs that are listed twice are copied by ``copy``."""
    used = set(map(id, inputs))
    own = []
    for value in outputs:
        value = copy(value) if id(value) in used or value.constant or value.omitted else value
        used.add(id(value))
        own.append(value)
    return own


def needed(
    nodes: Sequence[Node],
    outputs: Iterable[Key],
    reads: Callable[[Node], Iterable[Key]],
    writes: Callable[[Node], Iterable[Key]],
    lasting: Callable[[Node], bool] = lambda node: False,
) -> list[Node]:
    """The operators of a file that an output depends on, in run order; ``lasting`` ones always belong to them."""
    alive, found = set(outputs), []
    for node in reversed(nodes):
        if lasting(node) or not alive.isdisjoint(writes(node)):
            found.append(node)
            alive.update(reads(node))
    return found[::-1]


def in_file(reason: Reason, source: object) -> Reason:
    """A reason with the file's name before the place in it."""
    return replace(reason, operation=f"{source} {reason.operation}".rstrip())


class Assembly:
    """One model being built from drafted values and operations."""

    def __init__(self, name: str) -> None:
        self._builder = ModelBuilder(name)
        self._indexes: dict[int, int] = {}
        self._names: dict[str, int] = {}
        """Names in use, and the number that was last tried for each."""

    def build(self, inputs: Sequence[Value], outputs: Sequence[Value], steps: Sequence[Step]) -> Model:
        """The finished model of these operations. Operands are made for what is used, constants stay where they are."""
        # The interface comes first so that its names stay as they are.
        interface = [*map(self._operand, inputs), *map(self._operand, outputs)]
        for step in steps:
            self._builder.add_operation(
                step.code,
                [self._operand(v) for v in step.inputs],
                [self._operand(v) for v in step.outputs],
                name=step.name,
                mapping=step.mapping,
                source=step.source,
            )
        self._builder.identify_inputs_and_outputs(interface[: len(inputs)], interface[len(inputs) :])
        return self._builder.finish()

    def _operand(self, value: Value) -> int:
        """The value's operand, added when it is first met."""
        index = self._indexes.get(id(value))
        if index is None:
            index = self._indexes[id(value)] = self._add(value)
        return index

    def _add(self, value: Value) -> int:
        builder = self._builder
        name = self._unique(value.name)
        index = builder.add_operand(
            value.type, value.dims, scale=value.scale, zero_point=value.zero_point, name=name, source_type=value.source_type
        )
        if value.channel_quant is not None:
            quant = value.channel_quant
            builder.set_operand_symm_per_channel_quant_params(index, quant.scales, quant.channel_dim)
        if value.model is not None:
            builder.set_operand_value_from_model(index, value.model)
        elif value.omitted:
            builder.set_operand_value(index, None)
        elif value.data is not None:
            self._set_value(index, value)
        return index

    def _set_value(self, index: int, value: Value) -> None:
        """Large constants of a file stay where they are; small and computed ones are copied."""
        assert value.data is not None
        at = value.region
        if at is not None and at.length > MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES:
            self._builder.set_operand_value_from_memory(index, at.pool, at.offset, at.length)
        elif value.data.nbytes <= MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES:
            self._builder.set_operand_value(index, value.data.tobytes())
        else:
            self._builder.set_operand_value(index, np.ascontiguousarray(value.data))

    def _unique(self, name: str) -> str:
        """The name, numbered if another operand has it."""
        if not name:
            return name
        n = self._names.get(name, 0) + 1
        while (unique := name if n == 1 else f"{name}#{n}") in self._names:
            n += 1
        self._names[name] = n
        self._names.setdefault(unique, 1)
        return unique

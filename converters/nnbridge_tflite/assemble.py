"""From the draft to the finished model: operands for what is used, constants in place, copies for outputs that need one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnbridge.builder import ModelBuilder
from nnbridge.errors import ConversionError, Reason
from nnbridge.model import Model
from nnbridge.types import MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES, OperationCode
from nnbridge_tflite.draft import Draft, Step, Unmappable, Value, extension_code, options_value
from nnbridge_tflite.graph import Subgraph
from nnbridge_tflite.reader import TfliteFile
from nnbridge_tflite.schema import builtin_codes
from nnbridge_tflite.values import Values


def assemble(file: TfliteFile, graph: Subgraph, values: Values, draft: Draft) -> Model:
    """Build the model of a drafted subgraph."""
    inputs = [values.value(i) for i in graph.inputs]
    outputs = _own_outputs(graph, values, draft, inputs)
    return _Assembly(file).build(inputs, outputs, _live(draft.steps, outputs))


def _own_outputs(graph: Subgraph, values: Values, draft: Draft, inputs: Sequence[Value]) -> list[Value]:
    """One written value for each output: inputs, constants and outputs listed twice are copied by a RESHAPE."""
    taken = set(map(id, inputs))
    outputs = []
    for i in graph.outputs:
        value = values.value(i)
        if id(value) in taken or value.constant:
            value = _copy(value, graph.tensors[i].label, draft)
        taken.add(id(value))
        outputs.append(value)
    return outputs


def _copy(value: Value, label: str, draft: Draft) -> Value:
    copy = value.like(name=value.name)
    if 0 in value.dims:
        raise ConversionError(Reason("known dimensions of an output that is a copy", str(list(value.dims)), label))
    shape, name = draft.ints(value.dims), f"copy {value.name}"
    try:
        draft.add(Step(OperationCode.RESHAPE, (value, shape), (copy,), name, "wide"))
    except Unmappable:
        code = extension_code(builtin_codes()["RESHAPE"])
        draft.add(Step(code, (value, shape, options_value(b"{}")), (copy,), name, "host"))
    return copy


def _live(steps: Sequence[Step], outputs: Sequence[Value]) -> list[Step]:
    """The operations that an output depends on."""
    wanted = set(map(id, outputs))
    live = []
    for step in reversed(steps):
        if wanted.intersection(map(id, step.outputs)):
            live.append(step)
            wanted.update(map(id, step.inputs))
    return live[::-1]


class _Assembly:
    """One model being built."""

    def __init__(self, file: TfliteFile) -> None:
        self._file = file
        self._builder = ModelBuilder(file.path.stem)
        self._indexes: dict[int, int] = {}
        self._names: set[str] = set()

    def build(self, inputs: Sequence[Value], outputs: Sequence[Value], steps: Sequence[Step]) -> Model:
        # The interface comes first so that its names stay as they are.
        interface = [*map(self._operand, inputs), *map(self._operand, outputs)]
        for step in steps:
            self._builder.add_operation(
                step.code,
                [self._operand(v) for v in step.inputs],
                [self._operand(v) for v in step.outputs],
                name=step.name,
                mapping=step.mapping,
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
        index = builder.add_operand(value.type, value.dims, scale=value.scale, zero_point=value.zero_point, name=name)
        if value.channel_quant is not None:
            quant = value.channel_quant
            builder.set_operand_symm_per_channel_quant_params(index, quant.scales, quant.channel_dim)
        if value.omitted:
            builder.set_operand_value(index, None)
        elif value.data is not None:
            self._set_value(index, value)
        return index

    def _set_value(self, index: int, value: Value) -> None:
        """Large constants of the file stay where they are; small and computed ones are handed over."""
        assert value.data is not None
        span = value.span
        if span is not None and span.length > MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES:
            self._builder.set_operand_value_from_memory(index, self._file.pool, span.offset, span.length)
        else:
            self._builder.set_operand_value(index, np.ascontiguousarray(value.data))

    def _unique(self, name: str) -> str:
        """The name, numbered if another operand has it."""
        if not name:
            return name
        unique, n = name, 1
        while unique in self._names:
            n += 1
            unique = f"{name}#{n}"
        self._names.add(unique)
        return unique

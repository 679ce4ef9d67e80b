"""From a draft to the finished model: operands for what is used, constants in place."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from nnbridge.builder import ModelBuilder
from nnbridge.converters.draft import Checked, Region, Step, Value, kinds_of
from nnbridge.errors import BadDataError, Reason
from nnbridge.model import INFERRED, Array, Location, Model
from nnbridge.types import CONTROL_FLOW, MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES, Lifetime, is_extension

if TYPE_CHECKING:
    from nnbridge.cpu.executor import Executor

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


class DraftedModel:
    """Drafted operations as a model, and its outputs by reference kernels, NNAPI's and the host's.

    ``inputs`` are computed values. NnapiError for operations that no model can have.
    """

    def __init__(self, steps: Sequence[Step], inputs: Sequence[Value], results: Sequence[Value]) -> None:
        self._inputs, self._results = inputs, results
        live = live_steps(steps, results)
        written = {id(value) for step in live for value in step.outputs}
        own = {id(value): value for value in results if id(value) in written}
        self._outputs = {key: n for n, key in enumerate(own)}
        self.passed = list(own) != list(map(id, results))
        """True if a result is an input, a constant, or listed twice."""
        self.model = Assembly("host").build(inputs, list(own.values()), live) if own else None

    @cached_property
    def _executor(self) -> Executor | None:
        from nnbridge.devices.host import mixed_executor

        return None if self.model is None else mixed_executor(self.model)

    def __call__(self, arrays: Sequence[Array | None]) -> list[Array]:
        """The results; ValueError for one that is nothing's."""
        computed = [] if self._executor is None else self._executor.run(arrays)
        known = {id(value): array for value, array in zip(self._inputs, arrays, strict=True)}
        found = [
            computed[self._outputs[id(value)]].data if id(value) in self._outputs else known.get(id(value), value.data)
            for value in self._results
        ]
        if any(array is None for array in found):
            raise ValueError("values that do not depend on inputs")
        return [array for array in found if array is not None]


def own_outputs(outputs: Sequence[Value], used: set[int], copy: Callable[[Value], Value]) -> list[Value]:
    """One written value for each output: inputs, constants and outputs that are listed twice are copied by ``copy``.

    ``used``: identities of inputs and of outputs before these; those of these are added.
    """
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
    return reason if reason.file else replace(reason, file=str(source))


_NOWHERE = Location()
NOTHING: Mapping[Step, Checked] = MappingProxyType({})


def _in_file(value: Value) -> Region | None:
    """The place of a large constant in a file; None for small and computed ones, which are copied."""
    region = value.region
    return region if region is not None and region.length > MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES else None


class Assembly:
    """One model being built from drafted values and operations."""

    def __init__(self, name: str) -> None:
        self._name = name

    def build(
        self, inputs: Sequence[Value], outputs: Sequence[Value], steps: Sequence[Step], checked: Mapping[Step, Checked] = NOTHING
    ) -> Model:
        """The finished model of these operations. Operands are made for what is used, constants stay where they are.

        ``checked``: what the draft found of operations, which holds if their values are as they were.
        """
        found = zip(steps, map(checked.get, steps), strict=True)
        self._found = [one if one is not None and one.kinds == kinds_of(step) else None for step, one in found]
        try:
            model = self._built(inputs, outputs, steps, checked=False)
        except BadDataError:
            # The call that brings what finish refuses names it.
            model = self._built(inputs, outputs, steps, checked=True)
        if checked:
            drafted = zip(model.main.operations, self._builder.run_order, strict=True)
            model.main.known[INFERRED] = frozenset(
                k
                for k, (operation, i) in enumerate(drafted)
                # Trailing inputs may be dropped.
                if (one := self._found[i]) is not None and one.inferred and len(operation.inputs) == len(steps[i].inputs)
            )
        return model

    def _built(self, inputs: Sequence[Value], outputs: Sequence[Value], steps: Sequence[Step], *, checked: bool) -> Model:
        """The model; ``checked``: each call checks what it gets, as well as the last one, which checks the whole."""
        self._checked = checked
        self._builder = builder = ModelBuilder(self._name)
        self._indexes: dict[int, int] = {}
        self._names: dict[str, int] = {}
        """Names in use, and the number that was last tried for each."""
        # The interface comes first so that its names stay as they are.
        interface = [*map(self._operand, inputs), *map(self._operand, outputs)]
        for step, found in zip(steps, self._found, strict=True):
            builder.add_operation(
                step.code,
                [self._operand(v) for v in step.inputs],
                [self._operand(v) for v in step.outputs],
                name=step.name,
                mapping=step.mapping,
                source=step.source,
                checked=checked or step.code in CONTROL_FLOW,
                verdict=None if checked or found is None else found.verdict,
            )
        builder.identify_inputs_and_outputs(interface[: len(inputs)], interface[len(inputs) :])
        return builder.finish()

    def _operand(self, value: Value) -> int:
        """The value's operand, added when it is first met."""
        index = self._indexes.get(id(value))
        if index is None:
            index = self._indexes[id(value)] = self._add(value)
        return index

    def _add(self, value: Value) -> int:
        builder = self._builder
        content = value.scalar
        if content is not None and not value.name and not self._checked:
            return builder.add_drafted_scalar(value.type, content)
        name = self._unique(value.name)
        place = None if self._checked else self._place(value)
        if place is not None:
            kind, quant = (value.type, value.dims, value.scale, value.zero_point), value.channel_quant
            return builder.add_drafted(*kind, *place, channel_quant=quant, name=name, source_type=value.source_type)
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
        elif (region := _in_file(value)) is not None:
            builder.set_operand_value_from_memory(index, region.pool, region.offset, region.length)
        elif value.data is not None:
            builder.set_operand_value(index, np.ascontiguousarray(value.data))
        return index

    def _place(self, value: Value) -> tuple[Lifetime, bytes | Location] | None:
        """The lifetime and the place of a value, or its bytes if these are copied; None for what is set by calls of their own."""
        quant = value.channel_quant
        if value.model is not None or is_extension(value.type):
            return None
        if quant is not None and not (
            len(quant.scales) == value.dims[quant.channel_dim] and (quant.sound or min(quant.scales) > 0 < sum(quant.scales))
        ):
            return None
        if value.omitted:
            return Lifetime.NO_VALUE, _NOWHERE
        if value.data is None:
            return Lifetime.TEMPORARY_VARIABLE, _NOWHERE
        if (region := _in_file(value)) is not None:
            return Lifetime.CONSTANT_REFERENCE, Location(self._builder.pool_number(region.pool), region.offset, region.length)
        if value.data.nbytes <= MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES:
            return Lifetime.CONSTANT_COPY, value.data.tobytes()
        return None

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

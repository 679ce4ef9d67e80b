"""A subgraph as far as NNAPI expresses it, by the same conversion as a file's; nothing of it goes to the host."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path

from nnbridge.converters import ConversionOptions
from nnbridge.converters.assembly import Assembly
from nnbridge.converters.draft import Draft, Step, Value
from nnbridge.converters.inspection import Mapped
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import ConversionError, NnapiError, Reason
from nnbridge.extensions import TYPES
from nnbridge.model import Model, Pool
from nnbridge.records import dataclass
from nnbridge.types import RUNTIME_FEATURE_LEVEL, is_extension
from nnbridge_tflite.declaration import definition_of
from nnbridge_tflite.host import HOST
from nnbridge_tflite.passes.assembly import model_with_states
from nnbridge_tflite.passes.conversion import Context
from nnbridge_tflite.passes.nodes import NodeConversion, budget_for
from nnbridge_tflite.passes.states import Variables
from nnbridge_tflite.read.graph import Graph, Operator, TfliteSubgraph
from nnbridge_tflite.read.reader import TfliteFile
from nnbridge_tflite.read.schema import builtin_codes

NAME = Path("compiler")
"""What models and errors call the file, of which the calls say nothing."""


def opaque(operator: Operator) -> Operator:
    """An operator that NNAPI cannot express, whatever it computes."""
    return replace(operator, name="CUSTOM", code=builtin_codes()["CUSTOM"], options={}, custom=True)


@dataclass
class NeuronGraph:
    """A graph as far as NNAPI expresses it (:class:`nnbridge.converters.recorded.Expressed`)."""

    subgraph: TfliteSubgraph
    pool: Pool
    unreadable: Mapping[int, Reason] = field(default_factory=dict)
    """Operators that were not passed on as what they are."""

    @cached_property
    def _conversion(self) -> NodeConversion:
        TYPES.register(HOST)
        options = ConversionOptions(RUNTIME_FEATURE_LEVEL, MappingKind.WIDE.value)
        draft = Draft(RUNTIME_FEATURE_LEVEL, budget_for(self.pool))
        file = TfliteFile(NAME, self.pool, Graph(3, "", (self.subgraph,)))
        main = NodeConversion(Context(file, options, 0), 0, self.subgraph, draft, Variables())
        main.values.make_inputs(self.subgraph.inputs)
        main.convert()
        return main

    @property
    def names(self) -> tuple[str, ...]:
        """The operators' names, empty for those that the compiler does not pass on."""
        return tuple("" if o.index in self.unreadable else o.name for o in self.subgraph.operators)

    def without(self, refused: Mapping[int, Reason]) -> NeuronGraph:
        """The same graph, of which nothing is known of what these operators compute."""
        operators = tuple(opaque(o) if o.index in refused else o for o in self.subgraph.operators)
        return NeuronGraph(replace(self.subgraph, operators=operators), self.pool, {**self.unreadable, **refused})

    @cached_property
    def refused(self) -> Mapping[int, Reason]:
        """Operators that NNAPI's operations cannot express, by index, and why."""
        found = dict(self.unreadable)
        for mapped in self._conversion.placements:
            reason = self._fault(mapped)
            if reason is not None:
                found.setdefault(mapped.index, reason)
        return found

    def _fault(self, mapped: Mapped) -> Reason | None:
        operator = self.subgraph.operators[mapped.index]
        if mapped.mapping not in (MappingKind.DELEGATE, MappingKind.WIDE, MappingKind.FOLDED):
            rule = "an operator that NNAPI can express" if mapped.mapping == MappingKind.HOST else "an operator that is used"
            return mapped.reasons[0] if mapped.reasons else Reason(rule, mapped.mapping, operator.label)
        hosted = next((step for step in self._steps.get(mapped.index, ()) if is_extension(step.code)), None)
        if hosted is not None:
            return Reason("only NNAPI operations", hosted.name, operator.label)
        declared = definition_of(operator)
        for i, name in enumerate(declared.inputs if declared is not None else ()):
            known = i >= len(operator.inputs) or self._conversion.values.constant(operator.inputs[i]) is not None
            if name.decides_shape and not known:
                return Reason(f"a constant {name.name}, which decides dimensions", "a computed one", operator.label)
        written = {id(value) for step in self._steps.get(mapped.index, ()) for value in step.outputs}
        for index in operator.outputs:
            if mapped.mapping != MappingKind.FOLDED and id(self._conversion.values.value(index)) not in written:
                return Reason("outputs that its own operations write", "another operator's value", operator.label)
            value, tensor = self._conversion.values.value(index), self.subgraph.tensors[index]
            dims = tensor.shape or (1,)
            if value.dims != dims:
                return Reason(f"an output of {list(value.dims)}, as NNAPI computes it", f"{list(dims)}", operator.label)
        return None

    @cached_property
    def _steps(self) -> Mapping[int, list[Step]]:
        """The operations of each operator."""
        found: dict[int, list[Step]] = {}
        for step in self._conversion.draft.steps:
            if step.source is not None:
                found.setdefault(step.source.index, []).append(step)
        return found

    @cached_property
    def constant(self) -> Mapping[int, tuple[int, ...]]:
        """Operators that compute only from constants, by index, and the operators that read them; -1 for the graph's outputs."""
        readers: dict[int, list[int]] = {i: [-1] for i in self.subgraph.outputs}
        for operator in self.subgraph.operators:
            for i in operator.inputs:
                readers.setdefault(i, []).append(operator.index)
        computed, found = set(self.subgraph.inputs), {}
        for operator in self.subgraph.operators:
            if computed.isdisjoint(operator.inputs) and operator.index not in self.unreadable:
                found[operator.index] = tuple(k for i in operator.outputs for k in readers.get(i, ()))
            else:
                computed.update(operator.outputs)
        return found

    @property
    def open(self) -> Mapping[int, tuple[int, ...]]:
        """Operators that read tensors of open dimensions, by index, and the operators that write those."""
        subgraph = self.subgraph
        writers = {
            i: operator.index for operator in subgraph.operators for i in operator.outputs if -1 in subgraph.tensors[i].signature
        }
        return {o.index: tuple(writers[i] for i in o.inputs if i in writers) for o in subgraph.operators}

    def question(self, operators: Collection[int] | None = None) -> Model | None:
        """One model of these operators, or of all, for devices to be asked about; None if nothing can be expressed."""
        asked = {o.index for o in self.subgraph.operators if operators is None or o.index in operators} - self.refused.keys()
        steps = [step for step in self._conversion.draft.steps if step.source is not None and step.source.index in asked]
        written = {id(value) for step in steps for value in step.outputs}
        read = {id(value): value for step in steps for value in step.inputs}
        inputs = [v for key, v in read.items() if key not in written and not v.constant and not v.omitted]
        outputs = [value for step in steps for value in step.outputs if id(value) not in read]
        return Assembly(str(NAME)).build(inputs, outputs, steps) if steps else None

    def model(self) -> Model:
        """The whole graph as a model with the inputs and outputs as they were passed. ConversionError if it is not possible."""
        for reason in self.refused.values():
            raise ConversionError(reason)
        inputs, outputs = (self._values(side) for side in (self.subgraph.inputs, self.subgraph.outputs))
        main = self._conversion
        try:
            return model_with_states(self.subgraph.name, inputs, outputs, main.draft, main.variables)
        except NnapiError as error:
            raise ConversionError(error.reason) from error

    def _values(self, side: Sequence[int]) -> list[Value]:
        return [self._conversion.values.value(i) for i in side]

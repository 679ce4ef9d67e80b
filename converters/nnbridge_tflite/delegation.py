"""The graph of a running interpreter through the same conversion as a file's: which nodes NNAPI gets, and models of parts.

Operators of the file have the indexes of the interpreter's nodes, tensors those of its tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nnbridge.converters import ConversionOptions
from nnbridge.converters.delegation import DelegateTarget, Dims, Part
from nnbridge.converters.draft import Draft
from nnbridge.converters.inspection import Mapped
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import ConversionError, NnapiError, Reason
from nnbridge.extensions import TYPES
from nnbridge.model import Pool
from nnbridge_tflite.convert import most_new_elements
from nnbridge_tflite.declaration import NO_SUBGRAPHS, TfliteOperator
from nnbridge_tflite.host import HOST
from nnbridge_tflite.passes.assembly import model_with_states
from nnbridge_tflite.passes.conversion import Context, Conversion
from nnbridge_tflite.passes.states import Key, Variables
from nnbridge_tflite.read.flatbuffer import Span
from nnbridge_tflite.read.graph import Graph, Operator, TfliteSubgraph
from nnbridge_tflite.read.reader import TfliteFile, read_pool

NAME = Path("interpreter")
"""What models and errors call the file, whose path an interpreter does not have."""


class NodeConversion(Conversion):
    """A subgraph of which the interpreter runs whatever NNAPI does not get: one refused operator never costs the others."""

    def check_operator(self, declared: TfliteOperator | None, operator: Operator) -> None:
        """Nothing is checked for all operators before each is placed."""

    def _place_safely(self, declared: TfliteOperator | None, operator: Operator) -> Mapped:
        steps = len(self.draft.steps)
        try:
            if declared is not None:
                declared.check_operator(operator)
            super().check_operator(declared, operator)
            return super()._place_safely(declared, operator)
        except NnapiError as error:
            reason = error.reason
        except ConversionError as error:
            reason = error.reason
        del self.draft.steps[steps:]
        return self.host(operator, [reason])

    def _place(self, declared: TfliteOperator | None, operator: Operator) -> Mapped:
        if declared is not None and declared.handler is not None:
            return self.host(operator, [Reason(NO_SUBGRAPHS, operator.name, operator.label)])
        return super()._place(declared, operator)

    def host(self, operator: Operator, reasons: Sequence[Reason] = (), memory: Key | None = None) -> Mapped:
        """Leave the operator to the interpreter: its outputs are values with the dimensions that the interpreter has for them."""
        for index in operator.outputs:
            self.values.commit(index, self.values.fresh_output(index))
        return Mapped(operator.index, operator.name, MappingKind.HOST, tuple(reasons))


@dataclass(frozen=True)
class TfliteDelegation:
    """A TFLite file in an interpreter's memory (:class:`nnbridge.converters.delegation.Delegation`)."""

    file: TfliteFile

    @classmethod
    def of(cls, data: memoryview) -> TfliteDelegation:
        """The file at the beginning of these bytes."""
        file = read_pool(NAME, Pool.of(data))
        return cls(replace(file, pool=Pool.of(data[: _end(file.graph)])))

    def subgraph_name(self, subgraph: int) -> str:
        """The name that the file has for a subgraph."""
        return self.file.graph.subgraphs[subgraph].name

    def codes(self, subgraph: int) -> tuple[int, ...]:
        """The builtin codes of a subgraph's operators."""
        return tuple(operator.code for operator in self.file.graph.subgraphs[subgraph].operators)

    def outcomes(self, subgraph: int, dims: Dims, target: DelegateTarget) -> tuple[Mapped, ...]:
        """The outcome of each operator of a subgraph."""
        return tuple(self._converted(subgraph, self._graph(subgraph, dims), target).placements)

    def declared(self, subgraph: int, dims: Dims) -> Dims:
        """Dimensions with 0 for those that the file leaves open."""
        return [
            tuple(0 if side < 0 else side for side in tensor.signature) if -1 in tensor.signature else known
            for tensor, known in zip(self.file.graph.subgraphs[subgraph].tensors, dims, strict=True)
        ]

    def part(
        self,
        subgraph: int,
        nodes: Sequence[int],
        inputs: Sequence[int],
        outputs: Sequence[int],
        dims: Dims,
        target: DelegateTarget,
    ) -> Part:
        """A model of some operators, and of what is computed from constants for them."""
        whole = self._graph(subgraph, dims)
        folded = {m.index for m in self.outcomes(subgraph, dims, target) if m.mapping == MappingKind.FOLDED}
        known = {i for operator in whole.operators if operator.index in folded for i in operator.outputs}
        members = {*nodes, *folded}
        tensors = whole.tensors
        passed = tuple(i for i in inputs if i not in known and tensors[i].data is None and not tensors[i].is_variable)
        graph = replace(
            whole,
            operators=tuple(operator for operator in whole.operators if operator.index in members),
            inputs=passed,
            outputs=tuple(outputs),
        )
        main = self._converted(subgraph, graph, target)
        outcome = {mapped.index: mapped for mapped in main.placements}
        for node in nodes:
            if outcome[node].mapping != MappingKind.DELEGATE:
                found = "; ".join(map(str, outcome[node].reasons)) or str(outcome[node].mapping)
                raise ConversionError(Reason("an operator that NNAPI gets", found, f"operator {node} {outcome[node].operator}"))
        read, computed = ([main.values.value(i) for i in side] for side in (graph.inputs, graph.outputs))
        model = model_with_states(f"{NAME}-{subgraph}", read, computed, main.draft, main.variables)
        variables = tuple(_tensor(key) for key in main.variables.starts if key in main.variables.changed)
        # The interpreter has the variables' values from run to run.
        return Part(replace(model, states=()), (*passed, *variables), (*outputs, *variables), len(variables))

    def _graph(self, subgraph: int, dims: Dims) -> TfliteSubgraph:
        """The file's subgraph with the interpreter's dimensions, constants apart."""
        graph = self.file.graph.subgraphs[subgraph]
        tensors = tuple(
            tensor if tensor.data is not None else replace(tensor, shape=tuple(shape))
            for tensor, shape in zip(graph.tensors, dims, strict=True)
        )
        return replace(graph, tensors=tensors)

    def _converted(self, number: int, graph: TfliteSubgraph, target: DelegateTarget) -> Conversion:
        TYPES.register(HOST)
        options = ConversionOptions(target.feature_level, MappingKind.DELEGATE.value, accelerated=target.accelerated)
        draft = Draft(target.feature_level, most_new_elements(self.file.pool))
        main = NodeConversion(Context(self.file, options, 0), number, graph, draft, Variables())
        main.values.make_inputs(graph.inputs)
        main.convert()
        return main


def _tensor(key: Key) -> int:
    """The tensor of a variable."""
    assert isinstance(key, tuple)
    return int(key[1])


def _end(graph: Graph) -> int:
    """The end of the last constant of a file, behind which nothing is read later."""
    tensors = [tensor for subgraph in graph.subgraphs for tensor in subgraph.tensors]
    spans = (span for tensor in tensors for span in _spans((tensor.data, tensor.sparsity)))
    return max((span.offset + span.length for span in spans), default=0)


def _spans(value: object) -> Iterator[Span]:
    """The bytes that a tensor and the description of its sparsity point at."""
    if isinstance(value, Span):
        yield value
    elif isinstance(value, tuple | Mapping):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _spans(part)

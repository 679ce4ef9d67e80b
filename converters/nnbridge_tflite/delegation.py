"""The graph of a running interpreter through the same conversion as a file's: which nodes NNAPI gets, and models of parts.

Operators of the file have the indexes of the interpreter's nodes, tensors those of its tensors.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nnbridge.converters.delegation import DelegateTarget, Dims, NodeGroup, Part
from nnbridge.converters.inspection import Mapped
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import ConversionError, Reason
from nnbridge.model import Pool
from nnbridge.records import dataclass
from nnbridge_tflite.passes.assembly import model_with_states
from nnbridge_tflite.passes.dynamic import first_dynamic, offered
from nnbridge_tflite.passes.nodes import NodeConversion, alone, of_nodes
from nnbridge_tflite.passes.states import Key
from nnbridge_tflite.read.flatbuffer import Span
from nnbridge_tflite.read.graph import Graph, Operator, TfliteSubgraph
from nnbridge_tflite.read.reader import TfliteFile, read_pool

NAME = Path("interpreter")
"""What models and errors call the file, whose path an interpreter does not have."""


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

    def graphs(self) -> tuple[int, ...]:
        """The subgraphs that TFLite offers to delegates."""
        return tuple(offered(self.file.graph))

    def stated(self, subgraph: int) -> Dims:
        """The dimensions of a subgraph's tensors as the file states them."""
        return [tensor.shape for tensor in self.file.graph.subgraphs[subgraph].tensors]

    def dynamic(self) -> Reason | None:
        """The reason why TFLite refuses a delegate that does not allow dynamic dimensions."""
        found = first_dynamic(self.file.graph)
        return None if found is None else found.reason()

    def dynamic_operator(self) -> tuple[int, int] | None:
        """The operator for whose output TFLite refuses such a delegate."""
        found = first_dynamic(self.file.graph)
        return None if found is None else (found.subgraph, found.operator.index)

    def weights(self, subgraph: int) -> dict[int, int]:
        """Outputs of DEQUANTIZE of float16 and of DENSIFY → the constants that they are computed from.

        The delegate lets nodes read the constants (``FP16GraphPartitionHelper``) or takes such operators with their readers.
        """
        return weights(self.file.graph.subgraphs[subgraph])

    def preview(self, subgraph: int, nodes: Sequence[int]) -> list[NodeGroup]:
        """Groups of nodes as TFLite's ``PartitionGraphIntoIndependentNodeSubsets`` makes them."""
        return groups(self.file.graph.subgraphs[subgraph], frozenset(nodes))

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

    def _converted(self, number: int, graph: TfliteSubgraph, target: DelegateTarget) -> NodeConversion:
        return alone(self.file, number, graph, of_nodes(target.feature_level, target.accelerated, target.tflite))


def weights(graph: TfliteSubgraph) -> dict[int, int]:
    """Tensors that are float16 or sparse constants in another form → those constants."""
    found: dict[int, int] = {}
    for operator in graph.operators:
        source = operator.inputs[0] if operator.name in ("DEQUANTIZE", "DENSIFY") and operator.inputs else -1
        if source < 0 or (operator.name == "DEQUANTIZE" and graph.tensors[source].type.name != "FLOAT16"):
            continue
        constant = found.get(source, source)
        if graph.tensors[constant].data is not None:
            found |= dict.fromkeys(operator.outputs, constant)
    return found


def groups(graph: TfliteSubgraph, nodes: frozenset[int]) -> list[NodeGroup]:
    """Nodes that run as one: groups that are handed over and groups that stay alternate, each of all that is ready.

    The first ready node decides which kind comes next; nodes that become ready join.
    """
    readers: dict[int, list[int]] = {}
    missing: dict[int, int] = {}
    ready: dict[bool, list[int]] = {True: [], False: []}
    effects = [operator.index for operator in graph.operators if _has_effects(graph, operator)]
    following = dict(itertools.pairwise(effects))
    written = graph.written - weights(graph).keys()
    for operator in graph.operators:
        needed = {i for i in operator.inputs if i in written}
        missing[operator.index] = len(needed) + (operator.index in effects[1:])
        for i in needed:
            readers.setdefault(i, []).append(operator.index)
        if not missing[operator.index]:
            ready[operator.index in nodes].append(operator.index)
    found = []
    while ready[True] or ready[False]:
        handed = not ready[False] or (bool(ready[True]) and ready[True][0] < ready[False][0])
        members = []
        while ready[handed]:
            node = heapq.heappop(ready[handed])
            members.append(node)
            after = [following[node]] if node in following else []
            for reader in (*after, *(reader for i in graph.operators[node].outputs for reader in readers.get(i, ()))):
                missing[reader] -= 1
                if missing[reader] == 0:
                    heapq.heappush(ready[reader in nodes], reader)
        if handed:
            found.append(_group(graph, members, readers))
    return found


def _has_effects(graph: TfliteSubgraph, operator: Operator) -> bool:
    """True for operators whose order TFLite keeps: those of resources, and control flow (``OpMightHaveSideEffect``)."""
    types = {graph.tensors[i].type.name for i in (*operator.inputs, *operator.outputs) if i >= 0}
    return "RESOURCE" in types or operator.name in ("IF", "WHILE", "CALL_ONCE")


def _group(graph: TfliteSubgraph, members: Sequence[int], readers: Mapping[int, Sequence[int]]) -> NodeGroup:
    inside = set(members)
    operators = [graph.operators[node] for node in sorted(members)]
    written = [i for operator in operators for i in operator.outputs]
    read = {i for operator in operators for i in operator.inputs if i >= 0} - set(written)
    passed = [i for i in written if i in graph.outputs or any(reader not in inside for reader in readers.get(i, ()))]
    return NodeGroup(tuple(sorted(members)), tuple(sorted(read)), tuple(sorted(passed)))


def _tensor(key: Key) -> int:
    """The tensor of a variable."""
    assert isinstance(key, tuple)
    return int(key[1])


def _end(graph: Graph) -> int:
    """The end of the last constant of a file, after which nothing is read later."""
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

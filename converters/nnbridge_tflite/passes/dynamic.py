"""Tensors whose dimensions TFLite leaves to the run, which make it refuse every delegate that does not allow them.

TFLite prepares a graph's nodes in order before it applies a delegate (``ModifyGraphWithDelegate`` in its ``subgraph.cc``). A
kernel that lacks a value which decides its output's dimensions makes the output dynamic; the first such tensor ends the attempt.
Which kernels do so, and which compute their outputs already then, is declared with each operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from nnbridge.errors import Reason, Stage, Why
from nnbridge.log_lines.patterns import BY_NAME
from nnbridge.records import dataclass
from nnbridge_tflite.declaration import TfliteOperator, definition_of
from nnbridge_tflite.read.graph import Graph, Operator, Tensor, TfliteSubgraph

MANAGED = ("STRING", "RESOURCE", "VARIANT")
"""Element types whose tensors have no size before they are computed."""
UNNAMED = ("RESHAPE",)
"""Operators whose kernel reports that the output's shape is not known, and marks no tensor: TFLite's log has tensor#-1
(``kTfLiteOutputShapeNotKnown``, ``reshape.cc:154`` of LiteRT)."""
MOST_KNOWN_PRODUCT = 8
"""The most elements of a REDUCE_PROD that its kernel computes when it is prepared (``reduce.cc``)."""
VALIDATION = "VALIDATION:"
"""How the names of subgraphs begin that no delegate is offered."""


@dataclass(frozen=True, slots=True)
class DynamicTensor:
    """The first dynamic tensor of a subgraph, and the operator that writes it."""

    subgraph: int
    operator: Operator
    tensor: Tensor
    inner: DynamicTensor | None = None
    """The one of a body, where that is why."""

    def reason(self) -> Reason:
        """The reason why TFLite refuses a delegate."""
        place = f" of subgraph {self.subgraph}" if self.subgraph else ""
        inner = f" (so has {self.inner.operator.label} of subgraph {self.inner.subgraph})" if self.inner is not None else ""
        return Reason(
            "a graph of static tensors, without which TFLite refuses the delegate (or allow_dynamic_dimensions)",
            f"{self.operator.label}{place} with an output of computed shape{inner}",
            kind=Why.DYNAMIC_GRAPH,
            stage=Stage.GRAPH,
            says=BY_NAME["dynamic-graph"].format(tensor=-1 if self.operator.name in UNNAMED else self.tensor.index),
        )


def first_dynamic(graph: Graph) -> DynamicTensor | None:
    """The tensor for which TFLite refuses a delegate for the file's interpreter; None if it does not.

    All subgraphs are offered to a delegate in turn, bodies and those of other signatures too.
    """
    prepared = _PreparedSubgraphs(graph)
    return next((found for number in offered(graph) if (found := prepared.dynamic(number)) is not None), None)


def dynamic_tensor(graph: Graph, number: int) -> DynamicTensor | None:
    """The first dynamic tensor of one subgraph, or of what it runs."""
    return _PreparedSubgraphs(graph).dynamic(number)


def first_dynamic_operators(graph: Graph) -> list[Operator | None]:
    """Of each subgraph the operator after which TFLite prepares none: it writes the first tensor that only a run sizes."""
    prepared = _PreparedSubgraphs(graph)
    found = (prepared.dynamic(number) for number in range(len(graph.subgraphs)))
    return [None if one is None else one.operator for one in found]


def offered(graph: Graph) -> list[int]:
    """The subgraphs that TFLite offers to a delegate, each by itself."""
    return [number for number, subgraph in enumerate(graph.subgraphs) if not subgraph.name.startswith(VALIDATION)]


def known_early(subgraph: TfliteSubgraph) -> set[int]:
    """The tensors that kernels compute when they are prepared."""
    known = {t.index for t in subgraph.tensors if t.data is not None}
    early: set[int] = set()
    for operator in subgraph.operators:
        outputs = [subgraph.tensors[i] for i in operator.outputs if i >= 0]
        if (declared := definition_of(operator)) is not None and _known(declared, operator, outputs, known | early):
            early.update(operator.outputs)
    return early


@dataclass
class _PreparedSubgraphs:
    """The subgraphs of a file as TFLite prepares them."""

    graph: Graph
    found: dict[int, DynamicTensor | None] = field(default_factory=dict)

    def dynamic(self, number: int) -> DynamicTensor | None:
        """The first dynamic tensor of a subgraph."""
        if number not in self.found:
            self.found[number] = None  # of a subgraph that calls itself, which TFLite refuses otherwise
            self.found[number] = self._dynamic(number, self.graph.subgraphs[number])
        return self.found[number]

    def _dynamic(self, number: int, subgraph: TfliteSubgraph) -> DynamicTensor | None:
        tensors = subgraph.tensors
        stored = {t.index for t in tensors if t.data is not None}
        known = set(stored)
        for operator in subgraph.operators:
            outputs = [tensors[i] for i in operator.outputs if i >= 0]
            declared = definition_of(operator)
            inner = self._inner(declared, operator)
            if outputs and (inner is not None or self._waits(declared, operator, subgraph, stored, known)):
                return DynamicTensor(number, operator, outputs[0], inner)
            if declared is not None and _known(declared, operator, outputs, known):
                known.update(operator.outputs)
        return None

    def _waits(
        self, declared: TfliteOperator | None, operator: Operator, subgraph: TfliteSubgraph, stored: set[int], known: set[int]
    ) -> bool:
        """True if the kernel lacks a value that decides dimensions."""
        tensors = subgraph.tensors
        if declared is None:
            return _managed(operator, tensors)
        needed = declared.dynamic_unless
        if needed is None:
            if _managed(operator, tensors) or (declared.bodies and self._bodies_differ(declared, operator, tensors)):
                return True
            needed = [i for i, one in enumerate(declared.inputs) if one.decides_shape]
        elif callable(needed):
            # The conversion refuses an operator that lacks operands.
            whole = len(operator.inputs) >= declared.input_counts[0] and -1 not in operator.inputs and operator.outputs
            needed = needed(operator, tensors) if whole else ()
        enough = stored if declared.dynamic_unless_stored else known
        return any(i < 0 or (i < len(operator.inputs) and operator.inputs[i] not in enough) for i in needed)

    def _bodies(self, declared: TfliteOperator, operator: Operator) -> list[int]:
        numbers = [int(operator.options.get(name) or 0) for name in declared.bodies]
        return [number for number in numbers if 0 < number < len(self.graph.subgraphs)]

    def _inner(self, declared: TfliteOperator | None, operator: Operator) -> DynamicTensor | None:
        """The first dynamic tensor of what an operator runs."""
        bodies = self._bodies(declared, operator) if declared is not None else []
        return next((found for number in bodies if (found := self.dynamic(number)) is not None), None)

    def _bodies_differ(self, declared: TfliteOperator, operator: Operator, tensors: Sequence[Tensor]) -> bool:
        """True if the outputs' dimensions depend on which body runs, or how often."""
        bodies = [self.graph.subgraphs[number] for number in self._bodies(declared, operator)]
        shapes = [[body.tensors[i].shape for i in body.outputs] for body in bodies]
        if declared.control == "while" and bodies:
            # The condition is not looked at; TFLite takes a scalar for a tensor of one element.
            before = [tensors[i].shape for i in operator.inputs]
            return any(a != b and sum((a[:1] or (0,)) + (b[:1] or (0,))) != 1 for a, b in zip(before, shapes[-1], strict=False))
        return any(other != shapes[0] for other in shapes[1:])


def _managed(operator: Operator, tensors: Sequence[Tensor]) -> bool:
    return any(tensors[i].type.name in MANAGED for i in operator.outputs if i >= 0)


def _known(declared: TfliteOperator, operator: Operator, outputs: Sequence[Tensor], known: set[int]) -> bool:
    """True if the kernel computes its outputs when it is prepared."""
    if declared.folded_from_shape is not None:
        return True
    if not declared.known_when_prepared or not all(i in known for i in operator.inputs):
        return False
    return operator.name != "REDUCE_PROD" or all(one.elements <= MOST_KNOWN_PRODUCT for one in outputs)

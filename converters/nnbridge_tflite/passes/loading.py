"""Files that TFLite itself does not load: its kernels refuse an operator when the graph is prepared, before any delegate sees it.

The operators' declarations have the conditions (``versions``, ``loads``). What makes a file wrong everywhere is an error of the
reader or of an operator's check.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain

import numpy as np

from nnbridge.converters.draft import Draft
from nnbridge.converters.rules import first_refusal
from nnbridge.errors import ConversionError, Reason, Stage, Why
from nnbridge.model import Array
from nnbridge.releases import NEWEST
from nnbridge.types import RUNTIME_FEATURE_LEVEL
from nnbridge_tflite.declaration import TfliteOperator, definition_of
from nnbridge_tflite.dims import OPEN
from nnbridge_tflite.kernel_versions import versions_of
from nnbridge_tflite.loads import PreparedOperator, Result
from nnbridge_tflite.passes.dynamic import first_dynamic_operators
from nnbridge_tflite.passes.folding import folded
from nnbridge_tflite.passes.nodes import budget_for
from nnbridge_tflite.passes.prepared import prepared_dims, with_written_types
from nnbridge_tflite.passes.values import TensorValues
from nnbridge_tflite.read.graph import Graph, Operator, Tensor, TfliteSubgraph, element_type
from nnbridge_tflite.read.reader import TfliteFile

_MOST_CALLS = 16
"""As often a graph is prepared with other dimensions."""
NAMELESS = "CUSTOM"
"""The name that the reader gives to custom operators without one."""
_SMALL = 1 << 16
"""Elements of a constant that a condition may read; such constants are axes, sizes and paddings."""


def not_loaded(file: TfliteFile, release: str = NEWEST) -> Reason | None:
    """The reason why TFLite does not load a file, as far as these conditions have it; None where they all hold.

    TFLite verifies the bytes, and looks for kernels of all operators. Of each graph it then prepares the operators up to the
    first one whose output's dimensions only the run knows. Of an older ``release``, the versions of its kernels are known; its
    kernels' conditions count as the newest one's.
    """
    if file.graph.refused is not None:
        return file.graph.refused
    found = chain(_with_numbers(file.graph), _without_kernel(file.graph, release), _Preparation(file).refusals())
    return next(found, None)


def _with_numbers(graph: Graph) -> Iterator[Reason]:
    """Variables that have stored numbers."""
    for subgraph in graph.subgraphs:
        for tensor in subgraph.tensors:
            if tensor.is_variable and tensor.data is not None:
                yield Reason("variables without stored numbers", str(tensor), tensor.label, stage=Stage.LOADING)


def _without_kernel(graph: Graph, release: str) -> Iterator[Reason]:
    for number, subgraph in enumerate(graph.subgraphs):
        for operator in subgraph.operators:
            declared = definition_of(operator)
            versions: tuple[int, int] | None = (operator.version, operator.version)
            if not operator.custom:
                versions = versions_of(operator.name, None if declared is None else declared.versions, release)
            if operator.custom and operator.name == NAMELESS:
                yield Reason("a custom operator with a name", "none", _label(operator, number), stage=Stage.LOADING)
            elif versions is None:
                required = f"an operator that {'it' if release == NEWEST else release} has a kernel for"
                yield Reason(required, operator.name, _label(operator, number), kind=Why.OPERATOR, stage=Stage.LOADING)
            elif not versions[0] <= operator.version <= versions[1]:
                first, last = versions
                required = (
                    f"version {first} of the operator" if first == last else f"a version from {first} to {last} of the operator"
                )
                found = str(operator.version)
                of_release = "" if release == NEWEST else f" in {release}"
                yield Reason(
                    f"{required}{of_release}",
                    found,
                    _label(operator, number),
                    kind=Why.OPERATOR_VERSION,
                    stage=Stage.LOADING,
                )


class _Preparation:
    """The graphs of a file as TFLite prepares them: each operator in turn, what it runs before itself."""

    def __init__(self, file: TfliteFile) -> None:
        self._file, self._graphs = file, file.graph.subgraphs
        self._last = first_dynamic_operators(file.graph)
        self._results: dict[int, list[Result]] = {}
        self._seen: dict[int, set[tuple[Result, ...]]] = {}

    def refusals(self) -> Iterator[Reason]:
        """The operators that TFLite does not prepare: of the main graph, those of signatures, and of all that they run."""
        for number in dict.fromkeys((0, *(signature.subgraph for signature in self._file.graph.signatures))):
            if 0 <= number < len(self._graphs):
                yield from self._graph(number, None, ())

    def _graph(self, number: int, passed: tuple[Result, ...] | None, callers: tuple[int, ...]) -> Iterator[Reason]:
        """``passed``: types and dimensions of the inputs, those of the file without."""
        seen = self._seen.setdefault(number, set())
        if number in callers or (passed or ()) in seen or len(seen) >= _MOST_CALLS:
            return
        seen.add(passed or ())
        graph, dims = _as_called(with_written_types(self._graphs[number]), passed)
        known = _PreparedValues(self._file, graph, number)
        for operator in graph.operators:
            declared = definition_of(operator)
            if declared is not None and _is_whole(graph, operator, declared):
                node = PreparedOperator(graph, operator, known.value, known.bytes_from, dims, self._graphs, self._results)
                if declared.bodies:
                    yield from self._bodies(declared, node, (*callers, number))
                reason = _first_refusal(declared, node, _label(operator, number))
                if reason is not None:
                    yield reason
                known.prepare(declared, operator)
                dims.update(zip(operator.outputs, self._outputs(declared, node), strict=False))
            else:
                dims.update(dict.fromkeys(operator.outputs))
            if operator is self._last[number]:
                break
        self._results[number] = [(graph.tensors[i].type.name, dims.get(i, graph.tensors[i].shape)) for i in graph.outputs]

    def _bodies(self, declared: TfliteOperator, node: PreparedOperator, callers: tuple[int, ...]) -> Iterator[Reason]:
        inputs = node.operator.inputs[1 if declared.control == "if" else 0 :]
        passed = tuple((node.graph.tensors[i].type.name, node.known_dims(node.graph.tensors[i])) for i in inputs if i >= 0)
        for name in (one for one in node.operator.options if one.endswith("subgraph_index")):
            body = node.runs(name)
            if body is not None and len(body.inputs) == len(inputs) == len(passed):
                yield from self._graph(int(node.option(name)), passed, callers)

    def _outputs(self, declared: TfliteOperator, node: PreparedOperator) -> list[tuple[int, ...] | None]:
        """The dimensions of an operator's outputs; None for those that are not known here."""
        outputs, found = node.operator.outputs, prepared_dims(declared, node) or ()
        listed: list[tuple[int, ...] | None] = [None if OPEN in one else one for one in found]
        if declared.bodies:
            results = [self._results.get(int(node.option(name)), ()) for name in declared.bodies]
            listed = [
                dims if all(dims == other for _, other in same) else None for (_, dims), *same in zip(*results, strict=False)
            ]
        return [*listed, *[None] * (len(outputs) - len(listed))]


def _as_called(
    graph: TfliteSubgraph, passed: tuple[Result, ...] | None
) -> tuple[TfliteSubgraph, dict[int, tuple[int, ...] | None]]:
    """A subgraph whose inputs have the types of what it is called with, and the dimensions that they get."""
    if passed is None:
        return graph, {}
    given = dict(zip(graph.inputs, passed, strict=True))
    changed = {i: type for i, (type, _) in given.items() if graph.tensors[i].type.name != type}
    if changed:
        tensors = (replace(t, type=element_type(changed[t.index])) if t.index in changed else t for t in graph.tensors)
        graph = with_written_types(replace(graph, tensors=tuple(tensors)))
    return graph, {i: dims for i, (_, dims) in given.items()}


class _PreparedValues:
    """The numbers of a subgraph's tensors that are known when it is prepared: small constants, and what kernels compute then."""

    def __init__(self, file: TfliteFile, graph: TfliteSubgraph, number: int) -> None:
        draft = Draft(RUNTIME_FEATURE_LEVEL, budget_for(file.pool))
        self._file, self._values = file, TensorValues(file, graph.tensors, graph.written, draft, subgraph=number)
        self._computed: set[int] = set()

    def value(self, tensor: Tensor) -> Array | None:
        """The numbers of a tensor, None if only a run knows them."""
        if tensor.index in self._computed:
            return self._values.known(tensor.index)
        if tensor.data is None or tensor.type.dtype is None or tensor.type.bits < 8 or tensor.sparsity is not None:
            return None
        if tensor.blocks is not None or tensor.elements > _SMALL or tensor.bytes_needed != tensor.data.length:
            return None
        return np.frombuffer(self._file.bytes_at(tensor.data), tensor.type.dtype).reshape(tensor.shape)

    def bytes_from(self, tensor: Tensor, length: int) -> bytes | None:
        """Bytes of the file from where a constant's begin, whatever its length; None for other tensors, or at the end."""
        if tensor.data is None or tensor.index in self._computed:
            return None
        found = bytes(self._file.pool.data[tensor.data.offset : tensor.data.offset + length])
        return found if len(found) == length else None

    def prepare(self, declared: TfliteOperator, operator: Operator) -> None:
        """Compute what the operator's kernel computes when it is prepared."""
        types = {self._values.tensors[i].type for i in (*operator.inputs, *operator.outputs) if i >= 0}
        if declared.folded_from_shape is None and (not declared.known_when_prepared or len(types) > 1):
            if declared.known_when_prepared and declared.elementwise:
                self._multiply(operator)
            return
        with suppress(ConversionError):
            for index, array in zip(operator.outputs, folded(declared, operator, self._values), strict=False):
                self._values.foresee(index, array)
                self._computed.add(index)

    def _multiply(self, operator: Operator) -> None:
        """The product of constants that MUL's kernel reads as numbers of the output's type, where that is an integer."""
        *inputs, out = (self._values.tensors[i] for i in (*operator.inputs, operator.outputs[0]) if i >= 0)
        if out.type.dtype is None or out.type.dtype.kind not in "iu" or any(self.value(one) is None for one in inputs):
            return
        found = [self.bytes_from(one, one.elements * out.type.dtype.itemsize) for one in inputs]
        arrays = [np.frombuffer(one, out.type.dtype) for one in found if one is not None]
        if len(arrays) == len(inputs) == 2:
            shapes = zip(arrays, inputs, strict=True)
            self._values.foresee(out.index, np.multiply(*(array.reshape(one.shape) for array, one in shapes)))
            self._computed.add(out.index)


def _first_refusal(declared: TfliteOperator, node: PreparedOperator, label: str) -> Reason | None:
    """The first condition that does not hold; the conversion refuses an operator that one of them cannot look at.

    A condition that reads a dimension or a number that there is not does not hold: the kernel reads beyond, too.
    """
    _, most = declared.input_counts
    count = len(node.operator.inputs)
    if most is not None and count > most:
        return Reason(f"{most} inputs at most", str(count), label, kind=Why.VARIANT, stage=Stage.LOADING)
    for condition in declared.loads:
        try:
            reason = first_refusal((condition,), node, RUNTIME_FEATURE_LEVEL, label, Stage.LOADING)
        except (IndexError, ZeroDivisionError):
            found = ", ".join(map(str, node.inputs))
            return Reason(condition.rule, found, label, kind=condition.kind, stage=Stage.LOADING)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            continue
        if reason is not None:
            return reason
    return None


def _label(operator: Operator, subgraph: int) -> str:
    return f"{operator.label} of subgraph {subgraph}" if subgraph else operator.label


def _is_whole(graph: TfliteSubgraph, operator: Operator, declared: TfliteOperator) -> bool:
    """True if an operator has an input and an output, if any are declared, and all its tensors exist; the conversion refuses
    others."""
    known = range(len(graph.tensors))
    read = [i for i in operator.inputs if i != -1]
    listed = (read or not declared.inputs) and (operator.outputs or not declared.outputs)
    return bool(listed) and all(i in known for i in (*read, *operator.outputs))

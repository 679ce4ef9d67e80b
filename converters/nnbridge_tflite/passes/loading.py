"""Files that TFLite itself does not load: its kernels refuse an operator when the graph is prepared, before any delegate sees it.

The operators' declarations have the conditions (``versions``, ``loads``). What makes a file wrong everywhere is an error of the
reader or of an operator's check.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain

import numpy as np

from nnbridge.converters.draft import Draft
from nnbridge.converters.rules import first_refusal
from nnbridge.errors import ConversionError, Reason, Stage, Why
from nnbridge.model import Array
from nnbridge.types import RUNTIME_FEATURE_LEVEL
from nnbridge_tflite.declaration import TfliteOperator, definition_of
from nnbridge_tflite.loads import PreparedOperator
from nnbridge_tflite.passes.dynamic import first_dynamic_operators
from nnbridge_tflite.passes.folding import folded
from nnbridge_tflite.passes.nodes import budget_for
from nnbridge_tflite.passes.values import TensorValues
from nnbridge_tflite.read.graph import Graph, Operator, Tensor, TfliteSubgraph
from nnbridge_tflite.read.reader import TfliteFile

Passed = tuple[Sequence[Tensor], Collection[int]]
NAMELESS = "CUSTOM"
"""The name that the reader gives to custom operators without one."""
_SMALL = 1 << 16
"""Elements of a constant that a condition may read; such constants are axes, sizes and paddings."""


def not_loaded(file: TfliteFile) -> Reason | None:
    """The reason why TFLite does not load a file, as far as these conditions have it; None where they all hold.

    TFLite verifies the bytes, and looks for kernels of all operators. Of each graph it then prepares the operators up to the
    first one whose output's dimensions only the run knows.
    """
    if file.graph.refused is not None:
        return file.graph.refused
    found = chain(_with_numbers(file.graph), _without_kernel(file.graph), _unprepared(file))
    return next(found, None)


def _with_numbers(graph: Graph) -> Iterator[Reason]:
    """Variables that have stored numbers."""
    for subgraph in graph.subgraphs:
        for tensor in subgraph.tensors:
            if tensor.is_variable and tensor.data is not None:
                yield Reason("variables without stored numbers", str(tensor), tensor.label, stage=Stage.LOADING)


def _without_kernel(graph: Graph) -> Iterator[Reason]:
    for number, subgraph in enumerate(graph.subgraphs):
        for operator in subgraph.operators:
            declared = definition_of(operator)
            versions = (None if declared is None else declared.versions) if not operator.custom else (operator.version,) * 2
            if operator.custom and operator.name == NAMELESS:
                yield Reason("a custom operator with a name", "none", _label(operator, number), stage=Stage.LOADING)
            elif versions is None:
                required = "an operator that it has a kernel for"
                yield Reason(required, operator.name, _label(operator, number), kind=Why.OPERATOR, stage=Stage.LOADING)
            elif not versions[0] <= operator.version <= versions[1]:
                first, last = versions
                required = (
                    f"version {first} of the operator" if first == last else f"a version from {first} to {last} of the operator"
                )
                found = str(operator.version)
                yield Reason(
                    f"{required} of the operator", found, _label(operator, number), kind=Why.OPERATOR_VERSION, stage=Stage.LOADING
                )


def _unprepared(file: TfliteFile) -> Iterator[Reason]:
    graph = file.graph
    called, last = _called(graph), first_dynamic_operators(graph)
    for number in sorted(_prepared(graph)):
        subgraph = graph.subgraphs[number]
        seen, inferred = _as_called(subgraph, called.get(number))
        dims: dict[int, tuple[int, ...] | None] = dict.fromkeys(inferred)
        known = _PreparedValues(file, seen, number)
        for operator in seen.operators:
            declared = definition_of(operator)
            if declared is not None and _is_whole(seen, operator):
                node = PreparedOperator(seen, operator, known.value, known.bytes_from, dims)
                reason = _first_refusal(declared, node, _label(operator, number))
                if reason is not None:
                    yield reason
                known.prepare(declared, operator)
                dims.update(dict.fromkeys(operator.outputs, _inferred(declared, node)))
            else:
                dims.update(dict.fromkeys(operator.outputs))
            if operator is last[number]:
                break


def _inferred(declared: TfliteOperator, node: PreparedOperator) -> tuple[int, ...] | None:
    """The dimensions of the outputs of what is computed element by element; None for other operators."""
    found = [node.known_dims(one) for one in node.inputs] if declared.elementwise else []
    known = [one for one in found if one is not None]
    with suppress(ValueError):
        return np.broadcast_shapes(*known) if known and len(known) == len(found) else None
    return None


def _prepared(graph: Graph) -> set[int]:
    """The main graph, those of signatures, and all that they run."""
    waiting, found = [0, *(signature.subgraph for signature in graph.signatures)], set[int]()
    while waiting:
        number = waiting.pop()
        if number in found or not 0 <= number < len(graph.subgraphs):
            continue
        found.add(number)
        for operator in graph.subgraphs[number].operators:
            named = (value for name, value in operator.options.items() if name.endswith("subgraph_index"))
            waiting += [value for value in named if isinstance(value, int)]
    return found


def _called(graph: Graph) -> dict[int, Passed]:
    """Subgraphs that an operator runs → the tensors that the first such operator passes to them, and those that are computed."""
    found: dict[int, Passed] = {}
    for subgraph in graph.subgraphs:
        for operator in subgraph.operators:
            declared = definition_of(operator)
            for name in () if declared is None else declared.bodies:
                passed = operator.inputs[1 if declared is not None and declared.control == "if" else 0 :]
                if all(0 <= i < len(subgraph.tensors) for i in passed):
                    found.setdefault(
                        int(operator.options.get(name) or 0), ([subgraph.tensors[i] for i in passed], subgraph.written)
                    )
    return found


def _as_called(graph: TfliteSubgraph, call: Passed | None) -> tuple[TfliteSubgraph, set[int]]:
    """A subgraph whose inputs have the types and dimensions of what it is called with, as TFLite prepares it.

    Beside it those of its inputs whose dimensions TFLite infers.
    """
    if call is None or len(call[0]) != len(graph.inputs):
        return graph, set(graph.inputs if call is not None else ())
    given = dict(zip(graph.inputs, call[0], strict=True))
    inferred = {i for i, one in given.items() if one.index in call[1]}
    same = all((graph.tensors[i].type, graph.tensors[i].shape) == (one.type, one.shape) for i, one in given.items())
    if same:
        return graph, inferred
    tensors = (replace(t, type=given[t.index].type, shape=given[t.index].shape) if t.index in given else t for t in graph.tensors)
    return replace(graph, tensors=tuple(tensors)), inferred


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
    """The first condition that does not hold; the conversion refuses an operator that one of them cannot look at."""
    for condition in declared.loads:
        with suppress(ArithmeticError, LookupError, TypeError, ValueError):
            reason = first_refusal((condition,), node, RUNTIME_FEATURE_LEVEL, label, Stage.LOADING)
            if reason is not None:
                return reason
    return None


def _label(operator: Operator, subgraph: int) -> str:
    return f"{operator.label} of subgraph {subgraph}" if subgraph else operator.label


def _is_whole(graph: TfliteSubgraph, operator: Operator) -> bool:
    """True if an operator has an input and an output and all its tensors exist; the conversion refuses others."""
    known = range(len(graph.tensors))
    read = [i for i in operator.inputs if i != -1]
    return bool(read and operator.outputs) and all(i in known for i in (*read, *operator.outputs))

"""Files that TFLite itself does not load: its kernels refuse an operator when the graph is prepared, before any delegate sees it.

The operators' declarations have the conditions (``versions``, ``loads``). What makes a file wrong everywhere is an error of the
reader or of an operator's check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import numpy as np

from nnbridge.converters.rules import first_refusal
from nnbridge.errors import Reason, Stage, Why
from nnbridge.model import Array
from nnbridge.types import RUNTIME_FEATURE_LEVEL
from nnbridge_tflite.declaration import TfliteOperator, definition_of
from nnbridge_tflite.loads import PreparedOperator
from nnbridge_tflite.passes.dynamic import first_dynamic_operator
from nnbridge_tflite.read.graph import Operator, Tensor, TfliteSubgraph
from nnbridge_tflite.read.reader import TfliteFile

Stored = Callable[[Tensor], Array | None]
_SMALL = 1 << 16
"""Elements of a constant that a condition may read; such constants are axes, sizes and paddings."""


def not_loaded(file: TfliteFile) -> Reason | None:
    """Why TFLite does not load a file, as far as these conditions have it; None where they all hold.

    TFLite looks for kernels of all operators first. Of each graph it then prepares the operators up to the first one whose
    output's dimensions only the run knows.
    """
    return next(_without_kernel(file), None) or next(_unprepared(file), None)


def _without_kernel(file: TfliteFile) -> Iterator[Reason]:
    for number, subgraph in enumerate(file.graph.subgraphs):
        for operator in subgraph.operators:
            declared = definition_of(operator)
            versions = (None if declared is None else declared.versions) if not operator.custom else (operator.version,) * 2
            if versions is None:
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
    stored = partial(_stored, file)
    for number, subgraph in enumerate(file.graph.subgraphs):
        last = first_dynamic_operator(file.graph, number)
        for operator in subgraph.operators:
            declared = definition_of(operator)
            if declared is not None and declared.loads and _is_whole(subgraph, operator):
                node = PreparedOperator(subgraph, operator, stored)
                reason = _first_refusal(declared, node, _label(operator, number))
                if reason is not None:
                    yield reason
            if operator is last:
                break


def _first_refusal(declared: TfliteOperator, node: PreparedOperator, label: str) -> Reason | None:
    """The first condition that does not hold; the conversion refuses an operator that one of them cannot look at."""
    for condition in declared.loads:
        with suppress(ArithmeticError, LookupError, TypeError, ValueError):
            reason = first_refusal((condition,), node, RUNTIME_FEATURE_LEVEL, label, Stage.LOADING)
            if reason is not None:
                return reason
    return None


def _stored(file: TfliteFile, tensor: Tensor) -> Array | None:
    """A small constant of the file."""
    if tensor.data is None or tensor.type.dtype is None or tensor.type.bits < 8 or tensor.sparsity is not None:
        return None
    if tensor.blocks is not None or tensor.elements > _SMALL or tensor.bytes_needed != tensor.data.length:
        return None
    return np.frombuffer(file.bytes_at(tensor.data), tensor.type.dtype).reshape(tensor.shape)


def _label(operator: Operator, subgraph: int) -> str:
    return f"{operator.label} of subgraph {subgraph}" if subgraph else operator.label


def _is_whole(graph: TfliteSubgraph, operator: Operator) -> bool:
    """True if an operator has an input and an output and all its tensors exist; the conversion refuses others."""
    known = range(len(graph.tensors))
    read = [i for i in operator.inputs if i != -1]
    return bool(read and operator.outputs) and all(i in known for i in (*read, *operator.outputs))

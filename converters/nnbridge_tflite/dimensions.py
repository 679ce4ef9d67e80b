"""A TFLite file's dimensions: stated where it leaves them open, and what is computed of them as constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np

from nnbridge.converters import ConversionOptions
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import ConversionError
from nnbridge.model import Array
from nnbridge.records import dataclass
from nnbridge_tflite.convert import drafted
from nnbridge_tflite.declaration import definition_of
from nnbridge_tflite.passes.conversion import Conversion
from nnbridge_tflite.read.graph import Graph, Operator, TfliteSubgraph
from nnbridge_tflite.read.reader import TfliteFile
from nnbridge_tflite.tables import Table, copied

Shapes: TypeAlias = "Mapping[str, tuple[int, ...]]"
_COUNTED = ("INT32", "INT64", "BOOL")
"""Types of what is computed of dimensions."""
_ROUNDED = ("ATAN2", "COS", "ELU", "EXP", "HARD_SWISH", "LOG", "LOGISTIC", "POW", "RSQRT", "SIN", "TANH")
"""Functions that two libraries round differently in the last bit: they stay computed."""


@dataclass(frozen=True)
class StatedDimensions:
    """Every dimension of a file that follows from its inputs', and the constants that follow from these."""

    shapes: Shapes
    """The inputs whose dimensions are others than the file states, or that it leaves open."""
    dims: Mapping[tuple[int, int], tuple[int, ...]]
    """By subgraph and tensor."""
    constants: Mapping[tuple[int, int], Array]
    """What operators compute of only dimensions, by subgraph and tensor."""
    folded: frozenset[tuple[int, int]]
    """These operators, by subgraph and index."""

    def resized(self, model: Table) -> Table:
        """The file with these dimensions; its operators stay."""
        changed = copied(model)
        for (subgraph, tensor), dims in self.dims.items():
            changed["subgraphs"][subgraph]["tensors"][tensor].update(shape=np.asarray(dims, "<i4"), shape_signature=None)
        return changed

    def applied(self, model: Table) -> Table:
        """The file with these dimensions, and constants in place of operators."""
        changed = self.resized(model)
        for (subgraph, tensor), array in self.constants.items():
            changed["buffers"].append({"data": np.frombuffer(array.tobytes(), np.uint8)})
            stored = {"shape": np.asarray(array.shape, "<i4"), "shape_signature": None, "buffer": len(changed["buffers"]) - 1}
            changed["subgraphs"][subgraph]["tensors"][tensor].update(stored)
        for number, graph in enumerate(changed["subgraphs"]):
            graph["operators"] = [one for k, one in enumerate(graph["operators"]) if (number, k) not in self.folded]
        return changed


def stated(file: TfliteFile, shapes: Shapes) -> StatedDimensions:
    """The dimensions of a file's graphs with some for its inputs, and 1 for each that is open and not among these.

    The main graph and those that signatures call. ConversionError for a main graph that nnbridge does not convert.
    """
    found, others = StatedDimensions({}, {}, {}, frozenset()), dict[str, tuple[int, ...]]()
    for number, key in _entries(file.graph).items():
        graph = file.graph.subgraphs[number]
        inputs = {graph.tensors[i].name: graph.tensors[i] for i in graph.inputs}
        still_open = {n: tuple(map(abs, t.signature)) for n, t in inputs.items() if min(t.signature, default=0) < 0}
        named = {**still_open, **{name: dims for name, dims in shapes.items() if name in inputs}}
        try:
            one = of_graph(file, key, named)
        except ConversionError:
            if number == 0:
                raise
            continue
        others |= named
        dims, constants = {**found.dims, **one.dims}, {**found.constants, **one.constants}
        found = StatedDimensions(others, dims, constants, found.folded | one.folded)
    return found


def computes_dimensions(graph: Graph) -> bool:
    """True if an operator of the file reads its input's dimensions, or the file leaves some open."""
    declared = (definition_of(operator) for subgraph in graph.subgraphs for operator in subgraph.operators)
    reads = any(one is not None and one.folded_from_shape is not None for one in declared)
    inputs = (subgraph.tensors[i].signature for subgraph in graph.subgraphs for i in subgraph.inputs)
    return reads or any(min(signature, default=0) < 0 for signature in inputs)


def _entries(graph: Graph) -> dict[int, str]:
    """The graphs that a program runs, with the signature of each."""
    return {0: "", **{signature.subgraph: signature.key for signature in reversed(graph.signatures)}}


def of_graph(file: TfliteFile, signature: str, shapes: Shapes) -> StatedDimensions:
    """The dimensions of the main graph, or of the one that a signature calls, with some for its inputs.

    OptionError for names that are no inputs.
    """
    main = drafted(file, ConversionOptions(mapping=MappingKind.WIDE, signature=signature, shapes=shapes))
    number, graph = main.number, main.graph
    dims = {(number, t): shape for t in range(len(graph.tensors)) if (shape := _dims(main, t)) is not None}
    folded: set[tuple[int, int]] = set()
    constants: dict[tuple[int, int], Array] = {}
    for operator in _foldable(main):
        arrays = {t: main.values.constant(t) for t in operator.outputs}
        if any(array is None or not array.size or t in graph.outputs for t, array in arrays.items()):
            continue
        folded.add((number, operator.index))
        constants |= {(number, t): array for t, array in arrays.items() if array is not None}
    return StatedDimensions(shapes, dims, constants, frozenset(folded))


def _dims(main: Conversion, tensor: int) -> tuple[int, ...] | None:
    """A computed tensor's dimensions where they are known and not those of the file, or not sure in it."""
    stated = main.graph.tensors[tensor]
    if stated.data is not None:
        return None
    found = main.values.shape(tensor)
    same = found == stated.shape and min(stated.signature, default=0) >= 0
    return None if found is None or same else found


def _foldable(main: Conversion) -> Iterator[Operator]:
    """Operators whose results follow from dimensions, or are integers that follow from constants."""
    folded = {one.index for one in main.placements if one.mapping == MappingKind.FOLDED}
    counted: set[int] = set()
    for operator in main.graph.operators:
        declared = definition_of(operator)
        if operator.index not in folded or declared is None or (declared.folding is not None and declared.folding.unlimited):
            continue
        types = {main.graph.tensors[t].type.name for t in operator.outputs}
        if _concerned(main.graph, operator, counted, types) and not (types - {*_COUNTED} and operator.name in _ROUNDED):
            counted.update(operator.outputs)
            yield operator


def _concerned(graph: TfliteSubgraph, operator: Operator, counted: set[int], types: set[str]) -> bool:
    inexact = [t for t in operator.inputs if t >= 0 and t in graph.written and t not in counted]
    declared = definition_of(operator)
    if declared is not None and declared.folded_from_shape is not None:
        return True
    return not inexact and (types <= {*_COUNTED} or any(t in counted for t in operator.inputs))

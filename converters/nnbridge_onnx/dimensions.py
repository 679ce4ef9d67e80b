"""An ONNX file's dimensions: stated where it leaves them open, and what is computed of them as constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nnbridge.converters import ConversionOptions
from nnbridge.converters.assembly import needed
from nnbridge.model import Array
from nnbridge.records import dataclass
from nnbridge_onnx.messages import copied, names_read, without_unread
from nnbridge_onnx.passes.folding import fold_constants
from nnbridge_onnx.read.graph import Graph, Node, dtype_of
from nnbridge_onnx.read.reader import read

_SOURCES = ("Shape", "Size")
_ROUNDED: tuple[str, ...] = (
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Cos",
    "Cosh",
    "Elu",
    "Erf",
    "Exp",
    "Gelu",
    "Log",
    "Pow",
)
_ROUNDED += ("Reciprocal", "Sigmoid", "Sin", "Sinh", "Softmax", "Softplus", "Sqrt", "Tan", "Tanh")
"""Functions that two libraries may round differently in the last bit: of floats they stay computed."""
_MAX_ELEMENTS = 1 << 16
"""Larger results stay computed: a file is to become simpler, not larger."""


@dataclass(frozen=True)
class StatedDimensions:
    """The inputs of a file with all their dimensions, and what nodes compute of only these."""

    shapes: Mapping[str, tuple[int, ...]]
    """Inputs whose dimensions the file leaves open, or that were requested."""
    constants: Mapping[str, Array]
    outputs: Mapping[str, tuple[int, ...]]
    """The graph's outputs whose dimensions are known then."""

    def applied(self, model: Any) -> Any:
        """The changed model: nodes that nothing needs any more are left out."""
        from onnx import numpy_helper

        changed = copied(model)
        graph = changed.graph
        for value in (*graph.input, *graph.output):
            dims = {**self.outputs, **self.shapes}.get(value.name)
            if dims is not None:
                value.type.tensor_type.shape.ClearField("dim")
                for size in dims:
                    value.type.tensor_type.shape.dim.add(dim_value=size)
        rest = [node for node in graph.node if not all(name in self.constants for name in node.output if name)]
        nodes = needed(rest, [value.name for value in graph.output], names_read, lambda node: node.output)
        del graph.node[:], graph.value_info[:]
        graph.node.extend(nodes)
        read = {name for node in nodes for name in names_read(node)}
        graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in self.constants.items() if name in read)
        # Before version 4 of the format, every initialiser is an input.
        changed.ir_version = max(changed.ir_version, 4)
        return without_unread(changed)


def stated(path: Path, model: Any, shapes: Mapping[str, tuple[int, ...]]) -> StatedDimensions | None:
    """The dimensions of a file with some for its inputs, and 1 for each that is open and not among these.

    None where nothing is open or computed of dimensions. ConversionError for files that nnbridge does not read.
    """
    named = {**_open(model), **shapes}
    if not named and not any(node.op_type in _SOURCES for node in model.graph.node):
        return None
    graph = read(path, ConversionOptions(shapes=named))
    known, _ = fold_constants(graph, frozenset(node.index for node in graph.nodes))
    constants = {name: known.constants[name] for name in _counted(graph, known.constants)}
    outputs = {
        name: found for name in graph.outputs if (found := known.tensors[name].shape) is not None and min(found, default=1) > 0
    }
    return StatedDimensions(named, constants, outputs) if named or constants else None


def _open(model: Any) -> dict[str, tuple[int, ...]]:
    """Inputs of which a dimension has no number, with 1 for it."""
    constants = {tensor.name for tensor in model.graph.initializer}
    found = {}
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        sizes = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in dims]
        if value.name not in constants and any(size < 0 for size in sizes):
            found[value.name] = tuple([1 if size < 0 else size for size in sizes])
    return found


def _counted(graph: Graph, constants: Mapping[str, Array]) -> Iterator[str]:
    """Results that follow from dimensions, those of the graph's outputs left out."""
    counted: set[str] = set()
    for node in graph.nodes:
        follows = node.type in _SOURCES or any(name in counted for name in node.inputs)
        if not follows or not _is_exact(graph, node) or any(name not in constants for name in node.results):
            continue
        if any(name in graph.outputs or constants[name].size > _MAX_ELEMENTS for name in node.results):
            continue
        counted.update(node.results)
        yield from node.results


def _is_exact(graph: Graph, node: Node) -> bool:
    kinds = [dtype_of(graph.tensors[name].type) for name in node.results if name in graph.tensors]
    return node.type not in _ROUNDED or all(kind is not None and kind.kind in "iub" for kind in kinds)

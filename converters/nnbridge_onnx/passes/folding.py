"""Constant folding: what is known without running the model is computed once, at conversion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from nnbridge.converters.folding import Folding
from nnbridge.errors import OpFailedError
from nnbridge.model import Array
from nnbridge_onnx.declaration import declared
from nnbridge_onnx.host.evaluator import run_node
from nnbridge_onnx.read.graph import Dims, Fold, Graph, Node, Tensor, dtype_of

MAX_ELEMENTS = 1 << 22
"""Constants larger than this are created at conversion only up to the elements of the file's own, :data:`_TIMES` times in all.

ONNX Runtime folds whatever is constant, such as weights that a file has as integers beside their scale.
"""
_TIMES = 3
_UNFOLDED = ("DequantizeLinear",)
"""What ONNX Runtime leaves, so that large weights stay as small as they are stored."""

_UNKNOWN = Tensor(0, instead="a value of a type that inference does not know")
_FEW = 64
"""Elements of arrays that are compared."""


class Known:
    """The known types, shapes and constants of a graph's values."""

    def __init__(self, graph: Graph) -> None:
        self.constants: dict[str, Array] = dict(graph.constants)
        self.opsets = graph.opsets
        self._tensors: dict[str, Tensor] = dict(graph.tensors)
        self._folds = graph.folds
        made = {name for outputs in graph.folds for name in outputs}
        self._held = sum(array.size for name, array in graph.constants.items() if name not in made)
        spent = sum(array.size for name, array in graph.constants.items() if name in made and array.size > MAX_ELEMENTS)
        self._large = _TIMES * self._held - spent
        """Elements of large constants that may still be created."""

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Types and shapes by name."""
        return self._tensors

    def tensor(self, name: str) -> Tensor:
        """Type and shape; neither known for a name that inference does not describe."""
        return self._tensors.get(name, _UNKNOWN)

    def shape(self, name: str) -> Dims | None:
        """The shape, None while a dimension is open."""
        shape = self.tensor(name).shape
        return None if shape is None or (shape and min(shape) < 0) else shape

    def results(self, node: Node, inputs: Mapping[str, Array]) -> Sequence[Array]:
        """The results of a node, once for the same inputs however often the graph is gone through. OP_FAILED if it has none."""
        found = self._folds.get(node.outputs)
        if found is None or found.type != node.type or not _same(found.inputs, inputs):
            computed = run_node(node, inputs, {name: self.tensor(name).type for name in inputs})
            found = self._folds[node.outputs] = Fold(node.type, inputs, computed)
        return found.results

    def fits(self, node: Node, folding: Folding, arrays: Sequence[Array]) -> bool:
        """True if a node's results are small enough to be computed at conversion; large ones are accounted for."""
        size = max((array.size for array in arrays), default=0)
        if size <= MAX_ELEMENTS and folding.fits(arrays, MAX_ELEMENTS):
            return True
        rank = max((array.ndim for array in arrays), default=0)
        if size > self._large or node.type in _UNFOLDED or not folding.fits(arrays, self._held * max(rank, 1)):
            return False
        self._large -= size
        return True

    def fold(self, name: str, array: Array, type: int) -> None:
        """A node's result is known now."""
        self.constants[name] = array
        self._tensors[name] = Tensor(type, array.shape)

    def describe(self, name: str, tensor: Tensor) -> None:
        """Type and shape of a value that the file does not have."""
        self._tensors[name] = tensor


def _same(arrays: Mapping[str, Array], others: Mapping[str, Array]) -> bool:
    """The very same arrays under the same names, or equal small ones."""
    return arrays.keys() == others.keys() and all(
        array is others[name] or (array.size <= _FEW and _content(array) == _content(others[name]))
        for name, array in arrays.items()
    )


def _content(array: Array) -> tuple[object, ...]:
    return array.dtype, array.shape, array.tobytes() if array.size <= _FEW else None


def fold_constants(graph: Graph, live: frozenset[int]) -> tuple[Graph, frozenset[int]]:
    """The graph with the results of live nodes whose inputs are known, and the indexes of these nodes."""
    known = Known(graph)
    folded = frozenset(node.index for node in graph.nodes if node.index in live and fold(node, known))
    return replace(graph, constants=known.constants, tensors=known.tensors), folded


def fold(node: Node, known: Known) -> bool:
    """Compute a node if that needs no computed value; True if it is done."""
    definition = None if node.domain or not node.outputs else declared(node)
    if definition is None:
        return False
    if definition.fold is not None and definition.fold(node, known):
        return True
    if definition.folding is None:
        return False
    names = [name for name in (*node.inputs, *node.captured) if name]
    for name in names:
        if name not in known.constants:
            return False
    if any(dtype_of(known.tensor(name).type) is None for name in node.results):
        return False
    arrays = [known.constants[name] for name in node.inputs if name]
    if not known.fits(node, definition.folding, arrays):
        return False
    try:
        results = known.results(node, {name: known.constants[name] for name in names})
    except OpFailedError:
        return False
    for name, result in zip(node.results, results, strict=True):
        type = known.tensor(name).type
        known.fold(name, np.asarray(result).astype(dtype_of(type), copy=False), type)
    return True

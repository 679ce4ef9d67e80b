"""Chains: what follows a node and needs no operation of its own.

Products and sums with one constant for each channel behind a convolution or matrix product, batch normalisation among them,
go into its weights and bias; RELU, RELU6 and RELU1 become the activation that NNAPI's operation computes with its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nnbridge.types import FuseCode
from nnbridge_onnx.graph import Array, Graph, Node
from nnbridge_onnx.values import Values

ACTIVATED = frozenset(["Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub", "Mul", "Div", "Sum", "MaxPool", "AveragePool"])
"""Operators whose NNAPI operations take an activation."""


@dataclass(frozen=True)
class Chain:
    """A node together with what follows it."""

    node: Node
    """The node with the chain's result as its output, and new constants as its inputs."""
    fused: tuple[int, ...]
    """Indexes of the nodes behind it that the chain stands for."""
    activation: FuseCode = FuseCode.NONE
    constants: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class _Affine:
    """``x * factor + offset`` for each channel, in float64."""

    factor: Array
    offset: Array


def activation_of(node: Node, constants: Mapping[str, Array]) -> FuseCode | None:
    """The activation that a node is, None if it is none of NNAPI's."""
    if node.type == "Relu" and not node.domain:
        return FuseCode.RELU
    if node.type != "Clip" or node.domain:
        return None
    bounds = tuple(_bound(node, name, i, constants) for i, name in enumerate(("min", "max"), 1))
    known: dict[tuple[float | None, ...], FuseCode] = {
        (0.0, 6.0): FuseCode.RELU6,
        (-1.0, 1.0): FuseCode.RELU1,
        (0.0, None): FuseCode.RELU,
    }
    return known.get(bounds)


def _bound(node: Node, attribute: str, position: int, constants: Mapping[str, Array]) -> float | None:
    """A bound of Clip: None where there is none, and not a number where it is computed."""
    if attribute in node.attributes:
        return float(node.attributes[attribute])
    name = node.inputs[position] if position < len(node.inputs) else ""
    array = constants.get(name)
    if array is None:
        return float("nan") if name else None
    return float(array.item()) if array.size == 1 else float("nan")


class ChainFinder:
    """Finds the chains of a graph whose constants are known."""

    def __init__(self, graph: Graph, values: Values) -> None:
        self._values = values
        self._outputs = frozenset(graph.outputs)
        self._readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in (*node.inputs, *node.captured):
                self._readers.setdefault(name, []).append(node)

    def chain(self, node: Node) -> Chain | None:
        """The chain that a node begins, None where nothing follows that it can take in."""
        if node.domain or node.type not in ACTIVATED or len(node.outputs) != 1:
            return None
        chain = self._with_constants(Chain(node, ()))
        reader = self._only_reader(chain.node.outputs[0])
        code = None if reader is None else activation_of(reader, self._values.constants)
        if reader is not None and code is not None:
            chain = replace(chain, node=replace(chain.node, outputs=reader.outputs), activation=code)
            chain = replace(chain, fused=(*chain.fused, reader.index))
        return chain if chain.fused else None

    def _only_reader(self, name: str) -> Node | None:
        readers = self._readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self._outputs else None

    def _with_constants(self, chain: Chain) -> Chain:
        """The chain with products and sums that follow in its weights."""
        product = _PRODUCTS.get(chain.node.type)
        weights = self._weights(chain.node)
        if product is None or weights is None:
            return chain
        node = chain.node
        bias = self._bias(node, product.channels(node, weights))
        if bias is None:
            return chain
        factor, offset, last, fused = np.ones(len(bias)), bias, node, chain.fused
        with np.errstate(all="ignore"):
            while (reader := self._only_reader(last.outputs[0])) is not None:
                affine = self._affine(reader, last.outputs[0], product.axis, len(offset))
                if affine is None:
                    break
                factor = factor * affine.factor
                offset = offset * affine.factor + affine.offset
                last, fused = reader, (*fused, reader.index)
            if last is node:
                return chain
            constants = {
                f"{node.inputs[1]} of node {node.index}": product.scale(node, weights, factor).astype(weights.dtype),
                f"bias of node {node.index}": offset.astype(weights.dtype),
            }
        if not all(np.isfinite(array).all() for array in constants.values()):
            return chain
        attributes = {**node.attributes, "beta": 1.0} if node.type == "Gemm" else node.attributes
        made = replace(node, inputs=(node.inputs[0], *constants), outputs=last.outputs, attributes=attributes)
        return Chain(made, fused, constants=constants)

    def _weights(self, node: Node) -> Array | None:
        array = self._values.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
        floating = array is not None and array.dtype in (np.float32, np.float16)
        matrix = node.type not in ("Gemm", "MatMul") or (array is not None and array.ndim == 2)
        return array if array is not None and array.size and array.ndim > 1 and floating and matrix else None

    def _bias(self, node: Node, count: int) -> Array | None:
        """One number for each channel, None where the node's bias is something else."""
        name = node.inputs[2] if len(node.inputs) > 2 else ""
        if not name:
            return np.zeros(count)
        array = self._values.constants.get(name)
        if array is None or array.size not in (1, count) or array.shape[-1:] not in ((), (1,), (count,)):
            return None
        beta = float(node.attributes.get("beta", 1.0)) if node.type == "Gemm" else 1.0
        return np.broadcast_to(np.ravel(array).astype(np.float64) * beta, (count,))

    def _affine(self, node: Node, name: str, axis: int, count: int) -> _Affine | None:
        """What a node does to each channel of its input ``name``, None if that is not a product and a sum."""
        if node.domain or len([n for n in node.outputs if n]) != 1:
            return None
        if node.type == "BatchNormalization":
            return self._batch_normalisation(node, name, count)
        kind = _ARITHMETIC.get(node.type)
        if kind is None or len(node.inputs) != 2 or node.inputs[0] == node.inputs[1]:
            return None
        first = node.inputs[0] == name
        shape = self._values.tensor(name).shape
        constant = self._values.constants.get(node.inputs[1 if first else 0])
        if constant is None or shape is None or (node.type == "Div" and not first):
            return None
        numbers = _by_channel(constant, len(shape), axis % len(shape), count)
        return None if numbers is None else kind(numbers, first)

    def _batch_normalisation(self, node: Node, name: str, count: int) -> _Affine | None:
        arrays = [self._values.constants.get(n) for n in node.inputs[1:5]]
        if node.attributes.get("training_mode", 0) or node.inputs[0] != name or len(arrays) != 4:
            return None
        if any(a is None or a.shape != (count,) for a in arrays):
            return None
        return batch_normalisation([a for a in arrays if a is not None], float(node.attributes.get("epsilon", 1e-5)))


def batch_normalisation(arrays: Sequence[Array], epsilon: float) -> _Affine:
    """Batch normalisation with constant scale, bias, mean and variance."""
    scale, bias, mean, variance = arrays
    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
    return _Affine(factor, bias.astype(np.float64) - mean.astype(np.float64) * factor)


def _by_channel(array: Array, rank: int, axis: int, count: int) -> Array | None:
    """An array that broadcasts against ``rank`` axes as one number for each channel, None if it varies along other axes."""
    if array.ndim > rank or array.dtype not in (np.float32, np.float16):
        return None
    shape = (1,) * (rank - array.ndim) + array.shape
    if any(d != 1 for i, d in enumerate(shape) if i != axis) or shape[axis] not in (1, count):
        return None
    return np.broadcast_to(array.astype(np.float64).reshape(-1), (count,))


_ARITHMETIC: Mapping[str, Callable[[Array, bool], _Affine]] = {
    "Add": lambda a, first: _Affine(np.ones_like(a), a),
    "Sub": lambda a, first: _Affine(np.ones_like(a), -a) if first else _Affine(-np.ones_like(a), a),
    "Mul": lambda a, first: _Affine(a, np.zeros_like(a)),
    "Div": lambda a, first: _Affine(1 / a, np.zeros_like(a)),
}
"""Operator → what it does with a constant, and with the value as its first operand or the second."""


@dataclass(frozen=True)
class _Product:
    """Where an operator's channels lie: in its result, and in its weights."""

    axis: int
    channels: Callable[[Node, Array], int]
    scale: Callable[[Node, Array, Array], Array]


def _groups(node: Node) -> int:
    return max(int(node.attributes.get("group", 1)), 1)


def _scale_transposed(node: Node, weights: Array, factor: Array) -> Array:
    """Weights [in, out / groups, …]: the channels of each group stand side by side."""
    groups = _groups(node)
    split = weights.reshape(groups, -1, *weights.shape[1:])
    scaled = split * factor.reshape(groups, 1, weights.shape[1], *[1] * (weights.ndim - 2))
    return scaled.reshape(weights.shape)


def _scale_matrix(node: Node, weights: Array, factor: Array) -> Array:
    return weights * (factor[:, None] if node.attributes.get("transB", 0) else factor)


_PRODUCTS: Mapping[str, _Product] = {
    "Conv": _Product(1, lambda n, w: w.shape[0], lambda n, w, f: w * f.reshape(-1, *[1] * (w.ndim - 1))),
    "ConvTranspose": _Product(1, lambda n, w: w.shape[1] * _groups(n), _scale_transposed),
    "Gemm": _Product(-1, lambda n, w: w.shape[0 if n.attributes.get("transB", 0) else 1], _scale_matrix),
    "MatMul": _Product(-1, lambda n, w: w.shape[1], _scale_matrix),
}

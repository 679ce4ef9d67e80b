"""Fusion: what follows a node and needs no operation of its own.

Products and sums with one constant for each channel behind a convolution or matrix product, batch normalisation among them,
go into its weights and bias; RELU, RELU6 and RELU1 become the activation that NNAPI's operation computes with its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from nnbridge.model import Array
from nnbridge.types import FuseCode
from nnbridge_onnx.declaration import Affine, Channels, attribute, declared
from nnbridge_onnx.passes.folding import Known
from nnbridge_onnx.passes.qdq import sole_readers
from nnbridge_onnx.read.graph import Graph, Node


@dataclass(frozen=True)
class Chain:
    """A node together with what follows it."""

    node: Node
    """The node with the chain's result as its output, and new constants as its inputs."""
    fused: tuple[int, ...]
    """Indexes of the nodes behind it that the chain stands for."""
    activation: FuseCode = FuseCode.NONE
    constants: Mapping[str, Array] = field(default_factory=dict)


class ChainFinder:
    """Finds the chains of a graph, by what is known when a node is lowered."""

    def __init__(self, graph: Graph, known: Known) -> None:
        self._known = known
        self._readers = sole_readers(graph)

    def chain(self, node: Node) -> Chain | None:
        """The chain that a node begins, None where nothing follows that it can take in."""
        definition = declared(node)
        if definition is None or node.domain or not definition.fuses_activation or len(node.outputs) != 1:
            return None
        chain = self._with_constants(Chain(node, ()))
        reader = self._readers.get(chain.node.outputs[0])
        behind = None if reader is None else declared(reader)
        if reader is not None and behind is not None and behind.activation is not None:
            code = behind.activation(reader, self._known.constants)
            if code is not None:
                node = replace(chain.node, outputs=reader.outputs)
                chain = replace(chain, node=node, activation=code, fused=(*chain.fused, reader.index))
        return chain if chain.fused else None

    def _with_constants(self, chain: Chain) -> Chain:
        """The chain with products and sums that follow in its weights."""
        node, definition = chain.node, declared(chain.node)
        product = None if definition is None else definition.product
        weights = self._weights(node)
        reader = self._readers.get(node.outputs[0])
        follows = None if reader is None else declared(reader)
        if product is None or weights is None or follows is None or follows.affine is None:
            return chain
        bias = self._bias(node, product.channels(node, weights))
        if bias is None:
            return chain
        factor, offset, last, fused = np.ones(len(bias)), bias, node, chain.fused
        with np.errstate(all="ignore"):
            while (reader := self._readers.get(last.outputs[0])) is not None:
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
        # The bias holds Gemm's beta already.
        attributes = {**node.attributes, "beta": 1.0} if "beta" in node.attributes else node.attributes
        fusing = replace(node, inputs=(node.inputs[0], *constants), outputs=last.outputs, attributes=attributes)
        return Chain(fusing, fused, constants=constants)

    def _weights(self, node: Node) -> Array | None:
        """Constant weights: of a matrix product, a matrix."""
        array = self._known.constants.get(node.name_of(1))
        if array is None or array.dtype not in (np.float32, np.float16) or not array.size or array.ndim < 2:
            return None
        definition = declared(node)
        matrix = definition is not None and definition.product is not None and definition.product.axis == -1
        return None if matrix and array.ndim != 2 else array

    def _bias(self, node: Node, count: int) -> Array | None:
        """One number for each channel, None where the node's bias is something else."""
        if not node.name_of(2):
            return np.zeros(count)
        array = self._known.constants.get(node.inputs[2])
        if array is None or array.size not in (1, count) or array.shape[-1:] not in ((), (1,), (count,)):
            return None
        return np.broadcast_to(np.ravel(array).astype(np.float64) * float(attribute(node, "beta", 1.0)), (count,))

    def _affine(self, node: Node, name: str, axis: int, count: int) -> Affine | None:
        """What a node does to each channel of its input ``name``, None if that is not a product and a sum."""
        definition = declared(node)
        if definition is None or definition.affine is None or len(node.results) != 1:
            return None
        return definition.affine(node, name, self._known.constants, Channels(count, axis, self._known.tensor(name).shape))

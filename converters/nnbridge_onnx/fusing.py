"""Quantised operators of graphs with QuantizeLinear and DequantizeLinear: a float node between them is one quantised operation.

A group is a node all of whose data comes out of DequantizeLinear and whose only reader is QuantizeLinear (after an activation,
maybe). It is lowered as the same operator on the 8-bit values themselves; where NNAPI cannot express that, it stays as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from nnbridge.types import FuseCode
from nnbridge_onnx.chains import activation_of
from nnbridge_onnx.graph import Array, Graph, Node
from nnbridge_onnx.values import INT8, UINT8, Quantisation

MOVING = frozenset(
    ["Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "MaxPool", "Concat", "Expand", "Tile", "DepthToSpace"]
)
"""Operators that hand 8-bit values on."""

COMPUTING = frozenset(
    [
        "Conv",
        "Gemm",
        "MatMul",
        "Add",
        "Sub",
        "Mul",
        "Sigmoid",
        "Tanh",
        "Softmax",
        "AveragePool",
        "GlobalAveragePool",
        "Relu",
        "Resize",
    ]
)
"""Operators that NNAPI computes on 8-bit values."""

DATA_INPUTS = {"Conv": 3, "Gemm": 3, "MatMul": 2, "Add": 2, "Sub": 2, "Mul": 2}
"""How many of the first inputs hold data; one for the others, all for Concat."""


@dataclass(frozen=True)
class Weights:
    """A constant behind DequantizeLinear: its name, and those of its scale and zero point, with the axis of several scales."""

    name: str
    scale: str
    zero_point: str
    axis: int


@dataclass(frozen=True)
class Group:
    """A node as it is on 8-bit values."""

    node: Node
    """The node with 8-bit values as inputs and output."""
    fused: tuple[int, ...]
    """Indexes of the nodes behind it that the group stands for."""
    activation: FuseCode
    constants: Mapping[int, Weights]
    """Inputs that are constants behind DequantizeLinear, by position."""


def find_groups(graph: Graph, quantisation: Mapping[str, Quantisation]) -> dict[int, Group]:
    """Groups by the index of their node."""
    readers: dict[str, list[Node]] = defaultdict(list)
    makers: dict[str, Node] = {}
    for node in graph.nodes:
        for name in (*node.inputs, *node.captured):
            readers[name].append(node)
        makers.update(dict.fromkeys(node.outputs, node))
    finder = _Finder(graph, quantisation, readers, makers)
    found = ((node.index, finder.group(node)) for node in graph.nodes if not node.domain)
    return {index: group for index, group in found if group is not None}


def linear_group(
    node: Node, constants: Mapping[str, Array], quantisation: Mapping[str, Quantisation]
) -> tuple[Group, dict[str, Array]] | None:
    """QLinearConv or QLinearMatMul as a group, and the constants that the group adds; None for what is no group."""
    if node.type not in ("QLinearConv", "QLinearMatMul") or node.domain:
        return None
    x, x_scale, _, w, w_scale, w_point = node.inputs[:6]
    if not {x, node.outputs[0]} <= quantisation.keys() or not (w in constants or w in quantisation):
        return None
    bias = node.inputs[8] if len(node.inputs) > 8 else ""
    added, weights = {}, {1: Weights(w, w_scale, w_point, 0)} if w in constants else {}
    if bias and x_scale in constants and w_scale in constants:
        # The bias counts in steps of both scales.
        scale = f"{bias} scale of node {node.index}"
        added[scale] = np.asarray(np.float32(constants[x_scale]) * constants[w_scale].astype(np.float32))
        weights[2] = Weights(bias, scale, "", 0)
    kind = {"QLinearConv": "Conv", "QLinearMatMul": "MatMul"}[node.type]
    inputs = (x, w, bias) if bias else (x, w)
    return Group(replace(node, type=kind, inputs=inputs), (), FuseCode.NONE, weights), added


class _Finder:
    def __init__(
        self,
        graph: Graph,
        quantisation: Mapping[str, Quantisation],
        readers: Mapping[str, list[Node]],
        makers: Mapping[str, Node],
    ) -> None:
        self._graph = graph
        self._quantisation = quantisation
        self._readers = readers
        self._makers = makers

    def group(self, node: Node) -> Group | None:
        if node.type not in MOVING | COMPUTING or len(node.outputs) != 1:
            return None
        target = self._quantised_output(node)
        if target is None:
            return None
        output, fused, activation = target
        count = len(node.inputs) if node.type == "Concat" else DATA_INPUTS.get(node.type, 1)
        inputs, constants = list(node.inputs), {}
        for i, name in enumerate(node.inputs[:count]):
            if not name:
                continue
            source = self._dequantised(name)
            if source is None:
                return None
            inputs[i] = source.name
            if source.name in self._graph.constants:
                constants[i] = source
            elif source.name not in self._quantisation:
                return None
        if 0 in constants:
            return None
        return Group(replace(node, inputs=tuple(inputs), outputs=(output,)), fused, activation, constants)

    def _quantised_output(self, node: Node) -> tuple[str, tuple[int, ...], FuseCode] | None:
        """The 8-bit value that the node's result becomes, the nodes on the way, and the activation among them."""
        reader = self._only_reader(node.outputs[0])
        activation, fused = FuseCode.NONE, []
        if reader is not None and node.type in ("Conv", "Gemm", "Add", "Mul", "Sub") and reader.type in ("Relu", "Clip"):
            code = activation_of(reader, self._graph.constants)
            if code is None:
                return None
            activation, fused = code, [reader.index]
            reader = self._only_reader(reader.outputs[0])
        if reader is None or reader.type != "QuantizeLinear" or reader.outputs[0] not in self._quantisation:
            return None
        return reader.outputs[0], (*fused, reader.index), activation

    def _only_reader(self, name: str) -> Node | None:
        readers = self._readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self._graph.outputs else None

    def _dequantised(self, name: str) -> Weights | None:
        """What lies before DequantizeLinear."""
        node = self._makers.get(name)
        if node is None or node.type != "DequantizeLinear" or node.domain:
            return None
        known = self._graph.tensors.get(node.inputs[0])
        computed = node.inputs[0] not in self._graph.constants
        if known is None or (computed and known.type not in (INT8, UINT8)) or node.inputs[1] not in self._graph.constants:
            return None
        point = node.inputs[2] if len(node.inputs) > 2 else ""
        if point and point not in self._graph.constants:
            return None
        return Weights(node.inputs[0], node.inputs[1], point, int(node.attributes.get("axis", 1)))

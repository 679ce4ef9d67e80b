"""Operators of ``com.microsoft`` that optimised and quantised files contain, written out in ONNX's own operators.

How each is written out is in its definition (:mod:`nnbridge_onnx.operators.contrib`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnbridge_onnx.declaration import CONTRIB, REGISTRY
from nnbridge_onnx.passes.inline import replace_nodes
from nnbridge_onnx.read.graph import MAX_DEPTH, subgraphs
from nnbridge_onnx.rules import Provider

TO_FIRST, TO_LAST = [0, 3, 1, 2], [0, 2, 3, 1]


class Skip(Exception):
    """The node cannot be written out."""


class Expansion:
    """One node while it is written out."""

    def __init__(self, onnx: Any, node: Any, opset: int, number: int) -> None:
        self._onnx = onnx
        self._proto = node
        self._prefix = f"{node.output[0]} {node.op_type} {number}"
        self._attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        self.opset = opset
        self.kind = str(node.op_type)
        self.count = len(node.input)
        self.outputs = len(node.output)
        self.nodes: list[Any] = []

    def input(self, i: int) -> str:
        """An input's name, empty if it is omitted."""
        return str(self._proto.input[i]) if i < len(self._proto.input) else ""

    def output(self, i: int = 0) -> str:
        """An output's name."""
        return str(self._proto.output[i]) if i < len(self._proto.output) else ""

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute's value."""
        value = self._attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def others(self, *names: str) -> dict[str, Any]:
        """The attributes that are not named."""
        return {name: value for name, value in self._attributes.items() if name not in names}

    def add(self, kind: str, *inputs: str, to: str = "", **attributes: Any) -> str:
        """Another node; its result's name."""
        name = to or f"{self._prefix} {len(self.nodes)}"
        present = list(inputs)
        while present and not present[-1]:
            present.pop()
        self.add_all(kind, present, [name], **attributes)
        return name

    def add_all(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        """Another node with several results."""
        self.nodes.append(self._onnx.helper.make_node(kind, inputs, outputs, name=self._proto.name, **attributes))

    def cast(self, value: str) -> str:
        """A value in float32."""
        name = f"{self._prefix} {len(self.nodes)}"
        self.add_all("Cast", [value], [name], to=self._onnx.TensorProto.FLOAT)
        return name

    def number(self, value: float, like: str) -> str:
        """A constant of the element type of another value; of float32 before opset 15."""
        tensor = self._onnx.helper.make_tensor("value", self._onnx.TensorProto.FLOAT, [], [value])
        name = self.add("Constant", value=tensor)
        return self.add("CastLike", name, like) if self.opset >= 15 else name

    def ints(self, values: Sequence[int]) -> str:
        """A constant of whole numbers."""
        tensor = self._onnx.helper.make_tensor("value", self._onnx.TensorProto.INT64, [len(values)], values)
        return self.add("Constant", value=tensor)

    def real(self, first: int) -> str:
        """The quantised input at ``first``, whose scale and zero point follow it."""
        return self.add("DequantizeLinear", *(self.input(first + i) for i in range(3)))

    def quantise(self, value: str, scale: int) -> None:
        """A value is the node's quantised output."""
        self.add("QuantizeLinear", value, self.input(scale), self.input(scale + 1), to=self.output())

    def channels_first(self, value: str) -> str:
        """An image in ONNX's order, if the node has another one."""
        return self.add("Transpose", value, perm=TO_FIRST) if self.attribute("channels_last", 0) else value


def expand_contrib(onnx: Any, model: Any, opset: int) -> dict[str, str]:
    """Write out what can be, in the model's graph and in those inside; original operators by the name of their output."""
    origins: dict[str, str] = {}
    _expand_graph(onnx, model.graph, opset, origins, 0)
    return origins


def _expand_graph(onnx: Any, graph: Any, opset: int, origins: dict[str, str], depth: int) -> None:
    nodes: list[Any] = []
    changed = False
    for number, node in enumerate(graph.node):
        for attribute in node.attribute:
            for subgraph in subgraphs(attribute) if depth < MAX_DEPTH else ():
                _expand_graph(onnx, subgraph, opset, origins, depth + 1)
        expanded = _expanded(onnx, node, opset, number)
        if expanded is None:
            nodes.append(node)
            continue
        changed = True
        # All nodes of one that the provider does not know stay with ONNX Runtime.
        known = isinstance(REGISTRY[f"{CONTRIB}.{node.op_type}"].provider, Provider)
        names = node.output[:1] if known else [name for one in expanded for name in one.output]
        origins.update(dict.fromkeys(names, node.op_type))
        nodes.extend(expanded)
    if changed:
        replace_nodes(onnx, graph, nodes)


def _expanded(onnx: Any, node: Any, opset: int, number: int) -> list[Any] | None:
    definition = REGISTRY.get(f"{CONTRIB}.{node.op_type}") if node.domain == CONTRIB else None
    if definition is None or definition.expand is None or not node.output:
        return None
    expansion = Expansion(onnx, node, opset, number)
    try:
        definition.expand(expansion)
    except (Skip, ValueError, TypeError):
        # What the node's attributes do not allow stays as it is, and is refused when it runs.
        return None
    return expansion.nodes

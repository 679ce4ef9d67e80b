"""Operators of ``com.microsoft`` that optimised and quantised files contain, spelt out in ONNX's own operators.

Quantised ones become the float operator between DequantizeLinear and QuantizeLinear, which is then one operation on 8-bit
values where NNAPI has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

DOMAIN = "com.microsoft"
_TO_FIRST, _TO_LAST = [0, 3, 1, 2], [0, 2, 3, 1]


class _Skip(Exception):
    """The node cannot be spelt out."""


class Expansion:
    """One node being spelt out."""

    def __init__(self, onnx: Any, node: Any, opset: int, number: int) -> None:
        self._onnx = onnx
        self._proto = node
        self._prefix = f"{node.output[0]} {node.op_type} {number}"
        self._attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        self.opset = opset
        self.kind = str(node.op_type)
        self.count = len(node.input)
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
        given = list(inputs)
        while given and not given[-1]:
            given.pop()
        self.nodes.append(self._onnx.helper.make_node(kind, given, [name], name=self._proto.name, **attributes))
        return name

    def cast(self, value: str) -> str:
        """A value in float32."""
        name = f"{self._prefix} {len(self.nodes)}"
        self.nodes.append(
            self._onnx.helper.make_node("Cast", [value], [name], name=self._proto.name, to=self._onnx.TensorProto.FLOAT)
        )
        return name

    def add_all(self, kind: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Another node with several results."""
        self.nodes.append(self._onnx.helper.make_node(kind, inputs, outputs, name=self._proto.name))

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
        return self.add("Transpose", value, perm=_TO_FIRST) if self.attribute("channels_last", 0) else value


# -- quantised operators -------------------------------------------------------------------------------------------------


def _pair(e: Expansion) -> None:
    e.quantise(e.add(e.kind.removeprefix("QLinear"), e.real(0), e.real(3)), 6)


def _unary(e: Expansion) -> None:
    e.quantise(e.add(e.kind.removeprefix("QLinear"), e.real(0), **e.others()), 3)


def _softmax(e: Expansion) -> None:
    axis = int(e.attribute("axis", -1))
    if axis != -1 and (int(e.attribute("opset", 13)) < 13) != (e.opset < 13):
        raise _Skip
    e.quantise(e.add("Softmax", e.real(0), axis=axis), 3)


def _pool(e: Expansion) -> None:
    image = e.channels_first(e.input(0))
    real = e.add("DequantizeLinear", image, e.input(1), e.input(2))
    made = e.add(e.kind.removeprefix("QLinear"), real, **e.others("channels_last"))
    if not e.attribute("channels_last", 0):
        e.quantise(made, 3)
        return
    e.add("Transpose", e.add("QuantizeLinear", made, e.input(3), e.input(4)), to=e.output(), perm=_TO_LAST)


def _mean(e: Expansion) -> None:
    axes, others = e.attribute("axes", []), e.others("axes")
    if e.opset < 18:
        made = e.add("ReduceMean", e.real(0), **e.others())
    else:
        made = e.add("ReduceMean", e.real(0), e.ints(axes) if axes else "", **others)
    e.quantise(made, 3)


def _concat(e: Expansion) -> None:
    made = e.add("Concat", *(e.real(i) for i in range(2, e.count, 3)), **e.others())
    e.quantise(made, 0)


def _convolution(e: Expansion) -> None:
    """ONNX's own QLinearConv, with channels first."""
    others = e.others("channels_last")
    if not e.attribute("channels_last", 0):
        e.add("QLinearConv", *(e.input(i) for i in range(e.count)), to=e.output(), **others)
        return
    image = e.channels_first(e.input(0))
    made = e.add("QLinearConv", image, *(e.input(i) for i in range(1, e.count)), **others)
    e.add("Transpose", made, to=e.output(), perm=_TO_LAST)


def _gemm(e: Expansion) -> None:
    if e.attribute("alpha", 1.0) != 1.0:
        raise _Skip
    transposed = int(e.attribute("transB", 0))
    weights = e.add("DequantizeLinear", *(e.input(i) for i in range(3, 6)), axis=0 if transposed else 1)
    bias = ""
    if e.input(6):
        # The bias counts in steps of both scales.
        bias = e.add("DequantizeLinear", e.input(6), e.add("Mul", e.input(1), e.input(4)), axis=0)
    result = e.output() if not e.input(7) else ""
    made = e.add("Gemm", e.real(0), weights, bias, to=result, **e.others("alpha"))
    if not result:
        e.quantise(made, 7)


def _integer_product(e: Expansion, x: str, scale: str, point: str, weights: Sequence[str], bias: str) -> None:
    """A product of 8-bit values that are counted in ``scale`` from ``point``."""
    values = e.add("Sub", e.cast(x), e.cast(point)) if point else e.cast(x)
    made = e.add("MatMul", values, e.add("DequantizeLinear", *weights, axis=1))
    made = e.add("Mul", made, scale, to="" if bias else e.output())
    if bias:
        e.add("Add", made, bias, to=e.output())


def _integer_to_float(e: Expansion) -> None:
    weights = [e.input(1), e.input(3), e.input(5)]
    _integer_product(e, e.input(0), e.input(2), e.input(4), weights, e.input(6))


def _dynamic(e: Expansion) -> None:
    x, scale, point = (f"{e.output()} {what}" for what in ("values", "scale", "zero point"))
    e.add_all("DynamicQuantizeLinear", [e.input(0)], [x, scale, point])
    _integer_product(e, x, scale, point, [e.input(1), e.input(2), e.input(3)], e.input(4))


def _same(e: Expansion) -> None:
    e.add(e.kind, *(e.input(i) for i in range(e.count)), to=e.output(), **e.others())


# -- fused float operators -----------------------------------------------------------------------------------------------


def _gelu_of(e: Expansion, x: str) -> None:
    inner = e.add("Erf", e.add("Mul", x, e.number(0.5**0.5, x)))
    half = e.add("Mul", x, e.number(0.5, x))
    e.add("Mul", half, e.add("Add", inner, e.number(1.0, x)), to=e.output())


def _gelu(e: Expansion) -> None:
    _gelu_of(e, e.add("Add", e.input(0), e.input(1)) if e.input(1) else e.input(0))


def _fast_gelu(e: Expansion) -> None:
    x = e.add("Add", e.input(0), e.input(1)) if e.input(1) else e.input(0)
    cube = e.add("Mul", e.add("Mul", e.add("Mul", x, x), x), e.number(0.044715, x))
    inner = e.add("Tanh", e.add("Mul", e.add("Add", x, cube), e.number(0.7978845608028654, x)))
    half = e.add("Mul", x, e.number(0.5, x))
    e.add("Mul", half, e.add("Add", inner, e.number(1.0, x)), to=e.output())


def _quick_gelu(e: Expansion) -> None:
    x = e.input(0)
    gate = e.add("Sigmoid", e.add("Mul", x, e.number(float(e.attribute("alpha", 1.702)), x)))
    e.add("Mul", x, gate, to=e.output())


_ACTIVATIONS = {"Relu": (), "Sigmoid": (), "Tanh": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}


def _activated(e: Expansion, value: str, parameters: Sequence[float]) -> None:
    """The activation that a fused operator ends with."""
    kind = e.attribute("activation", "")
    if kind == "Clip":
        bounds = (e.number(float(p), value) for p in parameters)
        e.add("Clip", value, *bounds, to=e.output())
        return
    if kind not in _ACTIVATIONS:
        raise _Skip
    e.add(kind, value, to=e.output(), **dict(zip(_ACTIVATIONS[kind], map(float, parameters), strict=False)))


def _fused_convolution(e: Expansion) -> None:
    others = e.others("activation", "activation_params")
    made = e.add("Conv", *(e.input(i) for i in range(3)), **others)
    _activated(e, e.add("Add", made, e.input(3)) if e.input(3) else made, e.attribute("activation_params", []))


def _fused_gemm(e: Expansion) -> None:
    names = [name for name in e.others() if name.startswith("activation")]
    parameters = [float(e.attribute(f"activation_{name}", 0)) for name in ("alpha", "beta")]
    _activated(e, e.add("Gemm", *(e.input(i) for i in range(3)), **e.others(*names)), parameters)


def _fused_product(e: Expansion) -> None:
    if any(e.attribute(name, 0) for name in ("transA", "transB", "transBatchA", "transBatchB")):
        raise _Skip
    alpha = float(e.attribute("alpha", 1.0))
    made = e.add("MatMul", e.input(0), e.input(1), to=e.output() if alpha == 1 else "")
    if alpha != 1:
        e.add("Mul", made, e.number(alpha, made), to=e.output())


def _skip_normalisation(e: Expansion) -> None:
    """A sum and its normalisation; the sum is output 3."""
    simple = "Simplified" in e.kind
    bias = e.input(3 if simple else 4)
    if e.output(1) or e.output(2):
        raise _Skip
    x = e.add("Add", e.input(0), e.input(1), to="" if bias else e.output(3))
    x = e.add("Add", x, bias, to=e.output(3)) if bias else x
    _normalised(e, x, e.input(2), "" if simple else e.input(3), centred=not simple)


def _normalised(e: Expansion, x: str, scale: str, bias: str, *, centred: bool) -> None:
    epsilon = float(e.attribute("epsilon", 1e-12))
    if centred:
        if e.opset < 17:
            raise _Skip
        e.add("LayerNormalization", x, scale, bias, to=e.output(), axis=-1, epsilon=epsilon)
        return
    square = e.add("Mul", x, x)
    mean = e.add("ReduceMean", square, e.ints([-1])) if e.opset >= 18 else e.add("ReduceMean", square, axes=[-1])
    root = e.add("Sqrt", e.add("Add", mean, e.number(epsilon, x)))
    e.add("Mul", e.add("Div", x, root), scale, to=e.output())


_EXPANSIONS: dict[tuple[str, str], Callable[[Expansion], None]] = {
    **{(DOMAIN, f"QLinear{name}"): _pair for name in ("Add", "Mul")},
    **{(DOMAIN, f"QLinear{name}"): _unary for name in ("Sigmoid", "LeakyRelu")},
    **{(DOMAIN, f"QLinear{name}"): _pool for name in ("AveragePool", "GlobalAveragePool")},
    (DOMAIN, "QLinearSoftmax"): _softmax,
    (DOMAIN, "QLinearReduceMean"): _mean,
    (DOMAIN, "QLinearConcat"): _concat,
    (DOMAIN, "QLinearConv"): _convolution,
    (DOMAIN, "QGemm"): _gemm,
    (DOMAIN, "MatMulIntegerToFloat"): _integer_to_float,
    (DOMAIN, "DynamicQuantizeMatMul"): _dynamic,
    (DOMAIN, "QuantizeLinear"): _same,
    (DOMAIN, "DequantizeLinear"): _same,
    (DOMAIN, "Gelu"): _gelu,
    (DOMAIN, "BiasGelu"): _gelu,
    (DOMAIN, "FastGelu"): _fast_gelu,
    (DOMAIN, "QuickGelu"): _quick_gelu,
    (DOMAIN, "FusedConv"): _fused_convolution,
    (DOMAIN, "FusedGemm"): _fused_gemm,
    (DOMAIN, "FusedMatMul"): _fused_product,
    (DOMAIN, "SkipLayerNormalization"): _skip_normalisation,
    (DOMAIN, "SkipSimplifiedLayerNormalization"): _skip_normalisation,
}


def expand(onnx: Any, model: Any, opset: int) -> dict[str, str]:
    """Spell out what can be, in the model's graph and in those inside; original operators by the name of their output."""
    origins: dict[str, str] = {}
    _expand_graph(onnx, model.graph, opset, origins, 0)
    return origins


_MAX_DEPTH = 32


def _expand_graph(onnx: Any, graph: Any, opset: int, origins: dict[str, str], depth: int) -> None:
    made: list[Any] = []
    changed = False
    for number, node in enumerate(graph.node):
        for attribute in node.attribute:
            inner = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs
            for subgraph in inner if depth < _MAX_DEPTH else ():
                _expand_graph(onnx, subgraph, opset, origins, depth + 1)
        spelt = _expanded(onnx, node, opset, number)
        if spelt is None:
            made.append(node)
            continue
        changed = True
        origins[node.output[0]] = node.op_type
        made.extend(spelt)
    if changed:
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in made]
        del graph.node[:]
        graph.node.extend(copies)


def _expanded(onnx: Any, node: Any, opset: int, number: int) -> list[Any] | None:
    spell = _EXPANSIONS.get((node.domain, node.op_type))
    if spell is None or not node.output:
        return None
    expansion = Expansion(onnx, node, opset, number)
    try:
        spell(expansion)
    except (_Skip, ValueError, TypeError):
        # What the node's attributes do not allow stays as it is, and is refused when it runs.
        return None
    return expansion.nodes

"""Sessions of ONNX Runtime whose integer products are exact on every processor.

On x86 processors without VNNI instructions, ONNX Runtime adds pairs of products of unsigned and signed bytes in 16 bits, which
saturate (https://github.com/microsoft/onnxruntime/pull/12088). No phone's processor does. With unsigned weights, whose zero point
is 128 more, the same products are exact, so files are written so there. ``session.x64quantprecision`` does it in a part of the
cases, and does not load files in which several nodes share a zero point.
"""

from __future__ import annotations

import functools
import itertools
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_UINT8, _INT8, _INT32 = 2, 3, 6


@dataclass(frozen=True, slots=True)
class _Product:
    """Where an operator has its signed weights with their zero points, and what they are multiplied with."""

    weights: Sequence[tuple[int, int]]
    left: Sequence[int] = ()
    """What has the type of the other factor; nothing where that is always unsigned."""


_MICROSOFT = "com.microsoft"
_PRODUCTS: Mapping[tuple[str, str], _Product] = {
    ("", "QLinearConv"): _Product([(3, 5)], (0, 2)),
    ("", "QLinearMatMul"): _Product([(3, 5)], (0, 2)),
    ("", "MatMulInteger"): _Product([(1, 3)], (0, 2)),
    (_MICROSOFT, "QGemm"): _Product([(3, 5)], (0, 2)),
    (_MICROSOFT, "QAttention"): _Product([(1, 7)], (0, 6)),
    (_MICROSOFT, "MatMulIntegerToFloat"): _Product([(1, 5)], (0, 4)),
    (_MICROSOFT, "DynamicQuantizeMatMul"): _Product([(1, 3)]),
    (_MICROSOFT, "DynamicQuantizeLSTM"): _Product([(1, 9), (2, 11)]),
}
_FUSED = ("Conv", "Gemm", "MatMul")
"""Operators on real numbers that ONNX Runtime makes products of bytes where a DequantizeLinear stands before their weights."""
_MOVES = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")
"""What may stand between the DequantizeLinear and the product: ONNX Runtime moves the weights instead."""
_SAME_TYPE = (*_MOVES, "Slice", "Split", "Concat", "Gather", "Pad", "Expand", "Tile", "MaxPool", "Relu", "Clip")
"""Operators whose results have the type of their first input."""
_FAR = 8
"""How many of them are followed; files may have rings of them."""


def open_session(model: str | bytes, options: Any = None) -> Any:
    """ONNX Runtime's ``InferenceSession`` on the CPU for a file, or a file's bytes; its errors have no common class."""
    import onnxruntime

    return onnxruntime.InferenceSession(_exact(model) if saturates() else model, options, providers=["CPUExecutionProvider"])


@functools.cache
def saturates() -> bool:
    """True if ONNX Runtime's products of unsigned and signed bytes saturate on this processor: whether one does."""
    import onnxruntime
    from onnx import helper

    left, right = helper.make_tensor("a", _UINT8, [1, 2], [255] * 2), helper.make_tensor("b", _INT8, [2, 1], [127] * 2)
    result = helper.make_tensor_value_info("y", _INT32, [1, 1])
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["a", "b"], ["y"])], "probe", [], [result], [left, right])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (found,) = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, {})
    return int(found[0, 0]) != 2 * 255 * 127


def _exact(model: str | bytes) -> str | bytes:
    """A file with unsigned weights; the same one if it has no products of unsigned and signed bytes."""
    import onnx

    proto = onnx.load(model) if isinstance(model, str) else onnx.load_model_from_string(model)
    if not with_unsigned_weights(proto):
        return model
    content: bytes = proto.SerializeToString()
    return content


def with_unsigned_weights(model: Any) -> bool:
    """Write a ``ModelProto``'s products of unsigned and signed bytes with unsigned weights; False if it has none.

    It knows them by the types that the graph states, or that its quantising operators give; bodies of functions are left.
    """
    return _Writer(model.graph, _Values().inside(model.graph), itertools.count()).write()


@dataclass(frozen=True, slots=True)
class _Values:
    """What is known of the values that a graph and those around it have."""

    types: ChainMap[str, int] = field(default_factory=ChainMap)
    constants: ChainMap[str, Any] = field(default_factory=ChainMap)
    """``TensorProto`` by name."""
    made: ChainMap[str, Any] = field(default_factory=ChainMap)
    """The node that gives a value."""

    def inside(self, graph: Any) -> _Values:
        """With those of a graph."""
        found = _Values(self.types.new_child(), self.constants.new_child(), self.made.new_child())
        tensors = {tensor.name: tensor for tensor in graph.initializer}
        for node in graph.node:
            found.made.update((name, node) for name in node.output if name)
            if node.op_type == "Constant":
                tensors.update((name, a.t) for name in node.output for a in node.attribute if a.name == "value")
        found.constants.update(tensors)
        found.types.update((value.name, value.type.tensor_type.elem_type) for value in (*graph.input, *graph.value_info))
        found.types.update((name, tensor.data_type) for name, tensor in tensors.items())
        for node in graph.node:
            found.types.update(_results(node, found.types))
        return found


def _results(node: Any, types: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    """The types of the results of operators that quantise, cast, or move what they read."""
    if node.op_type == "DynamicQuantizeLinear":
        return [(name, _UINT8) for name in (*node.output[:1], *node.output[2:])]
    if node.op_type == "QuantizeLinear":
        stated = next((a.i for a in node.attribute if a.name == "output_dtype" and a.i), _UINT8)
        return [(name, types.get(_input(node, 2), stated)) for name in node.output[:1]]
    if node.op_type == "Cast":
        return [(name, a.i) for name in node.output for a in node.attribute if a.name == "to"]
    known = types.get(_input(node, 0)) if node.op_type in _SAME_TYPE else None
    return [] if known is None else [(name, known) for name in node.output]


def _input(node: Any, place: int) -> str:
    return str(node.input[place]) if place < len(node.input) else ""


@dataclass(slots=True)
class _Writer:
    """The nodes of a graph as they become."""

    graph: Any
    values: _Values
    numbers: Iterator[int]
    nodes: list[Any] = field(default_factory=list)

    def write(self) -> bool:
        """Write its products, and those of the graphs inside; True if there are any."""
        found = False
        for node in self.graph.node:
            for attribute in node.attribute:
                for inner in (attribute.g, *attribute.graphs):
                    found |= _Writer(inner, self.values.inside(inner), self.numbers).write()
            found |= self._product(node) or self._fused(node)
            self.nodes.append(node)
        if len(self.nodes) > len(self.graph.node):
            copies = [type(node).FromString(node.SerializeToString()) for node in self.nodes]
            del self.graph.node[:]
            self.graph.node.extend(copies)
        return found

    def _product(self, node: Any) -> bool:
        """Write a product of bytes."""
        product = _PRODUCTS.get((node.domain if node.domain != "ai.onnx" else "", node.op_type))
        if product is None or any(self.values.types.get(_input(node, place)) != _INT8 for place, _ in product.weights):
            return False
        types = self.values.types
        if product.left and {types[name] for p in product.left if (name := _input(node, p)) in types} != {_UINT8}:
            return False
        for place, zero_point in product.weights:
            given = _input(node, zero_point)
            node.input.extend([""] * (zero_point + 1 - len(node.input)))
            node.input[place] = self._moved(node.input[place])
            node.input[zero_point] = self._moved(given) if given else self._constant(np.array(128, np.uint8))
        return True

    def _fused(self, node: Any) -> bool:
        """Write a product of real numbers whose weights are signed bytes behind a DequantizeLinear: it gets one of its own."""
        if node.op_type not in _FUSED or node.domain not in ("", "ai.onnx"):
            return False
        way: list[Any] = []
        source = self.values.made.get(_input(node, 1))
        while source is not None and source.op_type in _MOVES and len(way) < _FAR:
            way.append(source)
            source = self.values.made.get(_input(source, 0))
        if source is None or source.op_type != "DequantizeLinear" or self.values.types.get(_input(source, 0)) != _INT8:
            return False
        inputs = [self._moved(_input(source, 0)), _input(source, 1), self._zero_point(source)]
        last = self._copy(source, inputs)
        for step in reversed(way):
            last = self._copy(step, [last, *step.input[1:]])
        node.input[1] = last
        return True

    def _zero_point(self, node: Any) -> str:
        """A DequantizeLinear's, which has the shape of its scale."""
        if given := _input(node, 2):
            return self._moved(given)
        from onnx import numpy_helper

        value = numpy_helper.from_array(np.array([128], np.uint8))
        return self._node("ConstantOfShape", [self._node("Shape", [node.input[1]])], value=value)

    def _moved(self, name: str) -> str:
        """Signed bytes as unsigned ones, 128 more."""
        from onnx import numpy_helper

        if name in self.values.constants:
            return self._constant((numpy_helper.to_array(self.values.constants[name]).astype(np.int16) + 128).astype(np.uint8))
        offset = self._constant(np.array(128, np.int32))
        return self._node("Cast", [self._node("Add", [self._node("Cast", [name], to=_INT32), offset])], to=_UINT8)

    def _constant(self, array: Any) -> str:
        from onnx import numpy_helper

        return self._node("Constant", [], value=numpy_helper.from_array(array))

    def _node(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(kind, list(inputs), [self._name()], **attributes))
        return str(self.nodes[-1].output[0])

    def _copy(self, node: Any, inputs: Sequence[str]) -> str:
        """A node like another one."""
        made = type(node).FromString(node.SerializeToString())
        del made.input[:], made.output[:]
        made.name = ""
        made.input.extend(inputs)
        made.output.append(self._name())
        self.nodes.append(made)
        return str(made.output[0])

    def _name(self) -> str:
        """A name that no file has."""
        return f"nnbridge unsigned {next(self.numbers)}"

"""Sessions of ONNX Runtime whose integer products are exact on every processor.

On x86 processors without VNNI instructions, ONNX Runtime adds pairs of products of unsigned and signed bytes in 16 bits, which
saturate (https://github.com/microsoft/onnxruntime/pull/12088). No phone's processor does. With unsigned weights, whose zero point
is 128 more, the same products are exact. ONNX Runtime writes constant weights so with ``session.x64quantprecision``, at its
highest level of optimisation; what it would leave is written so here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_PRECISION = "session.x64quantprecision"
_UINT8, _INT8, _INT32 = 2, 3, 6


@dataclass(frozen=True, slots=True)
class _Product:
    """Where an operator has its signed weights, their zero point, and that of what they are multiplied with."""

    weights: int
    zero_point: int
    left_zero_point: int | None
    """None where that is always unsigned."""


_MICROSOFT = "com.microsoft"
_PRODUCTS: Mapping[tuple[str, str], _Product] = {
    ("", "QLinearConv"): _Product(3, 5, 2),
    ("", "QLinearMatMul"): _Product(3, 5, 2),
    ("", "MatMulInteger"): _Product(1, 3, 2),
    (_MICROSOFT, "QGemm"): _Product(3, 5, 2),
    (_MICROSOFT, "MatMulIntegerToFloat"): _Product(1, 5, 4),
    (_MICROSOFT, "DynamicQuantizeMatMul"): _Product(1, 3, None),
}


def open_session(model: str | bytes, options: Any = None) -> Any:
    """ONNX Runtime's ``InferenceSession`` on the CPU for a file, or a file's bytes; its errors have no common class."""
    import onnxruntime

    options = onnxruntime.SessionOptions() if options is None else options
    ask_for_exact_products(options)
    return onnxruntime.InferenceSession(_exact(model) if saturates() else model, options, providers=["CPUExecutionProvider"])


def ask_for_exact_products(options: Any) -> None:
    """Have ONNX Runtime make constant weights unsigned where products saturate, unless the ``SessionOptions`` say otherwise."""
    try:
        options.get_session_config_entry(_PRECISION)
    except RuntimeError:  # it has no such entry
        options.add_session_config_entry(_PRECISION, "1")


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

    proto = onnx.load_model_from_string(model) if isinstance(model, bytes) else onnx.load(model, load_external_data=False)
    if not with_unsigned_weights(proto):
        return model
    if isinstance(model, str):
        onnx.load_external_data_for_model(proto, str(Path(model).parent))
    content: bytes = proto.SerializeToString()
    return content


def with_unsigned_weights(model: Any) -> bool:
    """Write a ``ModelProto``'s products of unsigned and signed bytes with unsigned weights; False if it has none.

    It knows them by the types that the graph states, or that its quantising operators give; calls of functions are left.
    """
    return _rewrite(model.graph, {})


def _rewrite(graph: Any, outer: Mapping[str, int]) -> bool:
    types = {**outer, **_types(graph)}
    nodes: list[Any] = []
    found = False
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                found |= _rewrite(inner, types)
        product = _PRODUCTS.get((node.domain if node.domain != "ai.onnx" else "", node.op_type))
        if product is not None and _is_mixed(node, product, types):
            found = True
            nodes += _unsigned(node, product, len(nodes))
        nodes.append(node)
    if len(nodes) > len(graph.node):
        copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)
    return found


def _types(graph: Any) -> dict[str, int]:
    """The element types of values that state one, and of results of quantising operators."""
    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info)}
    types.update((tensor.name, tensor.data_type) for tensor in graph.initializer)
    for node in graph.node:
        types.update(_made(node, types))
    return types


def _made(node: Any, types: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    if node.op_type == "DynamicQuantizeLinear":
        return [(node.output[0], _UINT8), *((name, _UINT8) for name in node.output[2:])]
    if node.op_type == "QuantizeLinear":
        stated = next((a.i for a in node.attribute if a.name == "output_dtype" and a.i), _UINT8)
        return [(node.output[0], types.get(_input(node, 2), stated))]
    if node.op_type == "Constant":
        return [(node.output[0], a.t.data_type) for a in node.attribute if a.name == "value"]
    return []


def _input(node: Any, place: int) -> str:
    return str(node.input[place]) if place < len(node.input) else ""


def _is_mixed(node: Any, product: _Product, types: Mapping[str, int]) -> bool:
    """True for a product of unsigned bytes with signed weights."""
    places = [] if product.left_zero_point is None else [0, product.left_zero_point]
    left = {types[name] for place in places if (name := _input(node, place)) in types}
    return types.get(_input(node, product.weights)) == _INT8 and (not places or left == {_UINT8})


def _unsigned(node: Any, product: _Product, number: int) -> Sequence[Any]:
    """Nodes that make the weights and their zero point unsigned, which the node reads from now on."""
    from onnx import helper, numpy_helper

    made: list[Any] = []

    def add(kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = f"{node.output[0]} unsigned {number} {len(made)}"
        made.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def moved(name: str) -> str:
        offset = add("Constant", [], value=numpy_helper.from_array(np.array(128, np.int32)))
        return add("Cast", [add("Add", [add("Cast", [name], to=_INT32), offset])], to=_UINT8)

    zero_point = _input(node, product.zero_point)
    node.input.extend([""] * (product.zero_point + 1 - len(node.input)))
    node.input[product.weights] = moved(node.input[product.weights])
    given = numpy_helper.from_array(np.array(128, np.uint8))
    node.input[product.zero_point] = moved(zero_point) if zero_point else add("Constant", [], value=given)
    return made

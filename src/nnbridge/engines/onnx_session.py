"""Sessions of ONNX Runtime whose integer products are exact on every processor.

On x86 processors without VNNI instructions, ONNX Runtime adds pairs of products of unsigned and signed bytes in 16 bits, which
saturate (https://github.com/microsoft/onnxruntime/pull/12088). No phone's processor does. With unsigned weights, whose zero point
is 128 more, the same products are exact, so files are written so there. ``session.x64quantprecision`` does it in a part of the
cases, and does not load files in which several nodes share a zero point.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from nnbridge.records import dataclass
from nnbridge.trust import decline_reports

_UINT8, _INT8, _INT32 = 2, 3, 6
_MOST_BYTES = (1 << 31) - (1 << 20)
"""What a serialised message holds, less what the data's own fields take."""
_OVERRIDABLE_IR = 4
"""The IR version from which inputs may replace constants of their name."""


@dataclass(frozen=True, slots=True)
class _Product:
    """The place of an operator's signed factor, mostly weights, with its zero point, and the other factor."""

    weights: Sequence[tuple[int, int]]
    left: Sequence[int] = ()
    """What has the type of the other factor; nothing where that is always unsigned."""
    mixes: bool = False
    """Unsigned weights are multiplied with signed numbers, too, so that the other factor's type need not be known."""


_MICROSOFT = "com.microsoft"
_STANDARD = ("", "ai.onnx")
_KNOWN = (*_STANDARD, _MICROSOFT)
"""Domains whose operators of the same names do the same."""
_PRODUCTS: Mapping[tuple[str, str], _Product] = {
    ("", "QLinearConv"): _Product([(3, 5)], (0, 2)),
    ("", "QLinearMatMul"): _Product([(3, 5)], (0, 2)),
    ("", "MatMulInteger"): _Product([(1, 3)], (0, 2), mixes=True),
    # ONNX Runtime multiplies the filter with the data: it is signed data that saturate.
    ("", "ConvInteger"): _Product([(0, 2)], (1, 3)),
    (_MICROSOFT, "QLinearConv"): _Product([(3, 5)], (0, 2)),
    (_MICROSOFT, "QGemm"): _Product([(3, 5)], (0, 2)),
    (_MICROSOFT, "QAttention"): _Product([(1, 7)], (0, 6)),
    (_MICROSOFT, "MatMulIntegerToFloat"): _Product([(1, 5)], (0, 4)),
    (_MICROSOFT, "DynamicQuantizeMatMul"): _Product([(1, 3)]),
    (_MICROSOFT, "DynamicQuantizeLSTM"): _Product([(1, 9), (2, 11)]),
}
_FUSED = ("Conv", "Gemm", "MatMul")
"""Operators on real numbers that ONNX Runtime makes products of bytes where a DequantizeLinear is before their weights."""
_MOVES = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")
"""What may stand between the DequantizeLinear and the product: ONNX Runtime moves the weights instead."""
_SAME_TYPE = (*_MOVES, "Slice", "Split", "Concat", "Gather", "Pad", "Expand", "Tile", "MaxPool", "Relu", "Clip")
"""Operators whose results have the type of their first input."""
_LONGEST = 1024
"""Bytes of an option of ONNX Runtime."""
_FAR = 8
"""How many of them are followed; files may have rings of them."""

PROBE = bytes.fromhex(
    "08083a560a180a01610a0162120179220d4d61744d756c496e7465676572120570726f62652a0f0801080210022a04ff01ff014201612a0d"
    "0802080110032a027f7f42016262130a0179120e0a0c080612080a0208010a02080142040a00100a"
)
"""A file of one MatMulInteger, of 255 and 127 twice: the onnx package takes longer to import than all that asks."""


def open_session(model: str | bytes, options: Any = None, *, folder: str = "") -> Any:
    """ONNX Runtime's ``InferenceSession`` on the CPU for a file, or a file's bytes; its errors have no common class.

    ``folder``: where the external data of bytes lies.
    """
    decline_reports()
    import onnxruntime

    if saturates():
        folder = os.path.dirname(os.path.abspath(model)) if isinstance(model, str) else folder
        model = _exact(model, folder)
    if folder and not isinstance(model, str) and len(os.fsencode(folder)) <= _LONGEST:
        options = options or onnxruntime.SessionOptions()
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@functools.cache
def saturates() -> bool:
    """True if ONNX Runtime's products of unsigned and signed bytes saturate on this processor: whether one does."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (found,) = onnxruntime.InferenceSession(PROBE, options, providers=["CPUExecutionProvider"]).run(None, {})
    return int(found[0, 0]) != 2 * 255 * 127


def _exact(model: str | bytes, folder: str) -> str | bytes:
    """A file with unsigned weights; the same one if it has no products of unsigned and signed bytes."""
    import onnx

    proto = onnx.load(model, load_external_data=False) if isinstance(model, str) else onnx.load_model_from_string(model)
    if not with_unsigned_weights(proto, folder):
        return model
    return serialised(proto, folder)


def serialised(model: Any, folder: str) -> bytes:
    """A ``ModelProto`` without its external data, which lies in ``folder``, as bytes: with that data, as far as bytes hold it."""
    from onnx.external_data_helper import load_external_data_for_model

    places = {entry.value for t in model.graph.initializer for entry in t.external_data if entry.key == "location"}
    paths = [os.path.join(folder, place) for place in places]
    if model.ByteSize() + sum(os.path.getsize(path) for path in paths if os.path.isfile(path)) < _MOST_BYTES:
        # ONNX Runtime 1.19 does not optimise bytes whose data lies elsewhere.
        load_external_data_for_model(model, folder)
    content: bytes = model.SerializeToString()
    return content


def with_unsigned_weights(model: Any, folder: str = "") -> bool:
    """Write a ``ModelProto``'s products of unsigned and signed bytes with unsigned weights; False if it has none.

    It knows them by the types that the graph states, or that follow from its quantising operators and zero points; bodies of
    functions are left.
    ``folder``: where external data lies, of which only such weights are read.
    """
    values = _Values().inside(model.graph, fixed=model.ir_version < _OVERRIDABLE_IR)
    return _Writer(model.graph, values, itertools.count(), folder).write()


@dataclass(frozen=True, slots=True)
class _Values:
    """The known properties of the values of a graph and of those around it."""

    types: ChainMap[str, int] = field(default_factory=ChainMap)
    constants: ChainMap[str, Any] = field(default_factory=ChainMap)
    """``TensorProto`` by name."""
    producers: ChainMap[str, Any] = field(default_factory=ChainMap)
    """The node that computes a value."""

    def inside(self, graph: Any, *, fixed: bool = False) -> _Values:
        """With those of a graph. Constants that are inputs too are none, unless they are ``fixed``."""
        inputs = set() if fixed else {value.name for value in graph.input}
        found = _Values(self.types.new_child(), self.constants.new_child(), self.producers.new_child())
        tensors = {tensor.name: tensor for tensor in graph.initializer if tensor.name not in inputs}
        for node in graph.node:
            found.producers.update((name, node) for name in node.output if name)
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
    if node.domain not in _KNOWN:
        return []
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


def _names_read(nodes: Iterable[Any]) -> Iterator[str]:
    """The names that nodes read, those of the graphs inside included."""
    for node in nodes:
        yield from node.input
        for inner in _graphs(node):
            yield from _names_read(inner.node)
            yield from (value.name for value in inner.output)


def _graphs(node: Any) -> Iterator[Any]:
    """The graphs that a node's attributes have."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


@dataclass(slots=True)
class _Writer:
    """The nodes of a graph as they become."""

    graph: Any
    values: _Values
    numbers: Iterator[int]
    folder: str
    outer: _Writer | None = None
    nodes: list[Any] = field(default_factory=list)
    unsigned: dict[str, str] = field(default_factory=dict)
    """Values, of bytes or dequantised, by the names of their unsigned counterparts: all products of a value share one."""

    def write(self) -> bool:
        """Write its products, and those of the graphs inside; True if there are any."""
        found = False
        for node in self.graph.node:
            for inner in _graphs(node):
                found |= _Writer(inner, self.values.inside(inner), self.numbers, self.folder, self).write()
            found |= self._product(node) or self._fused(node)
            self.nodes.append(node)
        if len(self.nodes) > len(self.graph.node):
            self._replace()
        return found

    def _replace(self) -> None:
        """Make the nodes the graph's, without the weights that none of them reads any more: files end at 2 GiB."""
        unread = {name for name in self.unsigned if name in self.values.constants.maps[0]}
        unread -= {*_names_read(self.nodes), *(value.name for value in self.graph.output)}
        nodes = [node for node in self.nodes if node.op_type != "Constant" or not unread.intersection(node.output)]
        copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
        del self.graph.node[:]
        self.graph.node.extend(copies)
        for part in (self.graph.initializer, self.graph.input):
            for i in [i for i, value in enumerate(part) if value.name in unread][::-1]:
                del part[i]

    def _product(self, node: Any) -> bool:
        """Write a product of bytes."""
        product = _PRODUCTS.get((node.domain if node.domain != "ai.onnx" else "", node.op_type))
        if product is None or any(self._type(node, places) != _INT8 for places in product.weights):
            return False
        if product.left and self._type(node, product.left) not in ((_UINT8, None) if product.mixes else (_UINT8,)):
            return False
        for place, zero_point in product.weights:
            stated = _input(node, zero_point)
            node.input.extend([""] * (zero_point + 1 - len(node.input)))
            node.input[place] = self._moved(node.input[place])
            node.input[zero_point] = self._moved(stated) if stated else self._constant(np.array(128, np.uint8))
        return True

    def _type(self, node: Any, places: Sequence[int]) -> int | None:
        """The type of inputs that all have the same one."""
        return next((known for place in places if (known := self.values.types.get(_input(node, place)))), None)

    def _fused(self, node: Any) -> bool:
        """Write a product of real numbers whose weights are signed bytes after a DequantizeLinear: it gets one of its own."""
        if node.op_type not in _FUSED or node.domain not in _STANDARD:
            return False
        name = _input(node, 1)
        written = self.unsigned.get(name) or self._dequantised(name)
        if written:
            self.unsigned[name] = node.input[1] = written
        return bool(written)

    def _dequantised(self, name: str) -> str:
        """Real numbers by a DequantizeLinear of unsigned bytes; nothing for those that are none of signed bytes."""
        way: list[Any] = []
        source = self.values.producers.get(name)
        while source is not None and source.op_type in _MOVES and source.domain in _STANDARD and len(way) < _FAR:
            way.append(source)
            source = self.values.producers.get(_input(source, 0))
        if source is None or source.op_type != "DequantizeLinear" or source.domain not in _KNOWN:
            return ""
        if self._type(source, (0, 2)) != _INT8:
            return ""
        inputs = [self._moved(_input(source, 0)), _input(source, 1), self._zero_point(source)]
        last = self._copy(source, inputs)
        for step in reversed(way):
            last = self._copy(step, [last, *step.input[1:]])
        return last

    def _zero_point(self, node: Any) -> str:
        """A DequantizeLinear's, which has the shape of its scale."""
        if stated := _input(node, 2):
            return self._moved(stated)
        from onnx import numpy_helper

        value = numpy_helper.from_array(np.array([128], np.uint8))
        return self._node("ConstantOfShape", [self._node("Shape", [node.input[1]])], value=value)

    def _moved(self, name: str) -> str:
        """Signed bytes as unsigned ones, 128 more."""
        if name not in self.unsigned:
            self.unsigned[name] = self._written(name)
        return self.unsigned[name]

    def _written(self, name: str) -> str:
        from onnx import numpy_helper

        own, *_ = self.values.constants.maps
        if name in own:
            signed = numpy_helper.to_array(own[name], self.folder)
            return self._constant(signed.view(np.uint8) ^ np.uint8(128))
        if name in self.values.constants and self.outer is not None:
            return self.outer._moved(name)
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
        copy = type(node).FromString(node.SerializeToString())
        del copy.input[:], copy.output[:]
        copy.name = ""
        copy.input.extend(inputs)
        copy.output.append(self._name())
        self.nodes.append(copy)
        return str(copy.output[0])

    def _name(self) -> str:
        """A name that no file has."""
        return f"nnbridge unsigned {next(self.numbers)}"

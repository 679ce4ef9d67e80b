"""float64, which NNAPI does not have: left to the host, narrowed to float32, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnbridge.errors import ConversionError, Reason
from nnbridge_onnx.read.graph import MAX_DEPTH, subgraphs

CHOICES = ("host", "narrow", "refuse")
_TYPED = ("to", "dtype", "output_dtype", "stash_type", "softmax_precision")
"""Attributes that name an element type."""


def apply_float64(onnx: Any, model: Any, choice: str, source: str) -> None:
    """Do what was chosen. ConversionError where float64 is refused, or does not fit into float32."""
    if choice not in CHOICES:
        raise ConversionError(Reason(", ".join(CHOICES), choice, source, "--float64"))
    if choice == "refuse":
        found = next(_names(onnx, model.graph, 0), None)
        if found is not None:
            raise ConversionError(Reason("no float64 (--float64 narrow or host)", f"'{found}'", source))
    elif choice == "narrow":
        _Narrowing(onnx, source).graph(model.graph, 0)


def _names(onnx: Any, graph: Any, depth: int) -> Iterator[str]:
    """What is float64: values as far as they are described, constants, and what nodes turn into it."""
    double = onnx.TensorProto.DOUBLE
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.HasField("tensor_type") and value.type.tensor_type.elem_type == double:
            yield value.name
    yield from (tensor.name for tensor in graph.initializer if tensor.data_type == double)
    for node in graph.node:
        for attribute in node.attribute:
            named = attribute.name in _TYPED and attribute.type == onnx.AttributeProto.INT and attribute.i == double
            if named or (attribute.HasField("t") and attribute.t.data_type == double):
                yield node.output[0] if node.output else node.op_type
            if depth < MAX_DEPTH:
                for inner in subgraphs(attribute):
                    yield from _names(onnx, inner, depth + 1)


class _Narrowing:
    def __init__(self, onnx: Any, source: str) -> None:
        self._onnx = onnx
        self._source = source
        self._double, self._single = onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT

    def graph(self, graph: Any, depth: int) -> None:
        for value in (*graph.input, *graph.output, *graph.value_info):
            kind = value.type.tensor_type if value.type.HasField("tensor_type") else None
            if kind is not None and kind.elem_type == self._double:
                kind.elem_type = self._single
        for tensor in graph.initializer:
            self._tensor(tensor, tensor.name)
        for node in graph.node:
            for attribute in node.attribute:
                self._attribute(attribute, node.name or node.op_type, depth)

    def _attribute(self, attribute: Any, place: str, depth: int) -> None:
        typed = attribute.name in _TYPED and attribute.type == self._onnx.AttributeProto.INT
        if typed and attribute.i == self._double:
            attribute.i = self._single
        if attribute.HasField("t"):
            self._tensor(attribute.t, place)
        if depth < MAX_DEPTH:
            for inner in subgraphs(attribute):
                self.graph(inner, depth + 1)

    def _tensor(self, tensor: Any, place: str) -> None:
        if tensor.data_type != self._double:
            return
        if tensor.data_location == self._onnx.TensorProto.EXTERNAL:
            raise ConversionError(
                Reason("float64 constants inside the file, to be narrowed", "external data", self._source, place)
            )
        array = self._onnx.numpy_helper.to_array(tensor)
        with np.errstate(over="ignore"):
            single = array.astype(np.float32)
        if np.any(np.isinf(single) & np.isfinite(array)):
            found = array[np.isinf(single) & np.isfinite(array)][0]
            raise ConversionError(Reason("float64 constants that fit into float32", str(found), self._source, place))
        tensor.CopyFrom(self._onnx.numpy_helper.from_array(single, tensor.name))

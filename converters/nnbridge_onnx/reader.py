"""Reading an ONNX file through the ``onnx`` package: nodes, constants and inferred shapes as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from nnbridge.converters import ConversionOptions
from nnbridge.errors import ConversionError, InputError, Reason

OPSETS = range(7, 100)


@dataclass(frozen=True)
class Node:
    """One node with its attributes as Python values."""

    index: int
    type: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    def __str__(self) -> str:
        return f"node {self.index} {self.type}" + (f" '{self.name}'" if self.name else "")


@dataclass(frozen=True)
class Graph:
    """A model's main graph. Dimensions that are not known are 0."""

    source: str
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, npt.NDArray[Any]]
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, np.dtype[Any]]


def read(path: Path, options: ConversionOptions) -> Graph:
    """The file as data; ConversionError for whatever is wrong with it."""
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise InputError(Reason("the onnx package (pip install 'nnbridge[onnx]')", str(error), operand=str(path))) from error
    try:
        model = onnx.load_model(str(path), load_external_data=False)
        _set_shapes(model, options, path)
        model = onnx.shape_inference.infer_shapes(model, strict_mode=False)
        onnx.checker.check_model(model)
    except (DecodeError, OSError, ValueError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ConversionError(Reason("a valid ONNX model", str(error).splitlines()[0], str(path))) from error
    return _graph(model, str(path))


def _set_shapes(model: Any, options: ConversionOptions, path: Path) -> None:
    """Dimensions asked for by name."""
    inputs = {value.name: value.type.tensor_type.shape for value in model.graph.input}
    for name, dims in options.shapes.items():
        if name not in inputs or len(inputs[name].dim) != len(dims):
            known = ", ".join(f"{n}[{len(s.dim)} dimensions]" for n, s in inputs.items())
            raise ConversionError(Reason(f"an input ({known})", f"{name}={list(dims)}", str(path), "--shape"))
        for dimension, size in zip(inputs[name].dim, dims, strict=True):
            dimension.dim_value = size


def _graph(model: Any, source: str) -> Graph:
    import onnx

    def fail(rule: str, found: object, place: str = "") -> NoReturn:
        raise ConversionError(Reason(rule, str(found), source, place))

    opsets = {entry.domain: entry.version for entry in model.opset_import}
    opset = opsets.get("", opsets.get("ai.onnx", 0))
    if opset not in OPSETS:
        fail(f"opset {OPSETS.start} or later", opset)
    graph = model.graph
    constants: dict[str, npt.NDArray[Any]] = {}
    for tensor in graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            fail("constants inside the file", "external data", tensor.name)
        constants[tensor.name] = _array(tensor, fail)
    shapes: dict[str, tuple[int, ...]] = {}
    dtypes: dict[str, np.dtype[Any]] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        shapes[value.name] = tuple(max(0, int(d.dim_value)) for d in kind.shape.dim)
        if kind.elem_type and kind.elem_type != onnx.TensorProto.STRING:
            dtypes[value.name] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    nodes = []
    for index, node in enumerate(graph.node):
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        made = Node(index, node.op_type, node.name, tuple(node.input), tuple(node.output), attributes)
        if node.domain not in ("", "ai.onnx"):
            fail("an operator of the ai.onnx domain", f"{node.domain}.{node.op_type}", str(made))
        if node.op_type == "Constant" and "value" in attributes:
            constants[node.output[0]] = _array(attributes["value"], fail)
        else:
            nodes.append(made)
    names = tuple(value.name for value in graph.input if value.name not in constants)
    outputs = tuple(value.name for value in graph.output)
    return Graph(source, opset, names, outputs, tuple(nodes), constants, shapes, dtypes)


def _array(tensor: Any, fail: Any) -> npt.NDArray[Any]:
    from onnx import numpy_helper

    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError) as error:
        fail("a constant that NumPy can hold", str(error), tensor.name)
        raise

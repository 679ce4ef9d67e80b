"""From an ONNX graph to a model: one lowering function for each operator, by table.

Data keeps ONNX's channel-first order: convolutions and pooling carry NNAPI's NCHW flag (feature level 3). Nodes of quantised
graphs are taken literally: QuantizeLinear becomes QUANTIZE, DequantizeLinear DEQUANTIZE, and constants are dequantised now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from nnbridge.builder import ModelBuilder
from nnbridge.converters import ConversionOptions
from nnbridge.errors import ConversionError, NnapiError, Reason
from nnbridge.model import Model
from nnbridge.operations.validation import validate_model
from nnbridge.types import OperandCode, OperationCode
from nnbridge_onnx.reader import Graph, Node, read

Array = npt.NDArray[Any]
Lower: TypeAlias = "Callable[[_Conversion, Node], None]"

_TYPES = {
    "float32": OperandCode.TENSOR_FLOAT32,
    "float16": OperandCode.TENSOR_FLOAT16,
    "int32": OperandCode.TENSOR_INT32,
    "bool": OperandCode.TENSOR_BOOL8,
}
_QUANTISED = {"uint8": OperandCode.TENSOR_QUANT8_ASYMM, "int8": OperandCode.TENSOR_QUANT8_ASYMM_SIGNED}
LOWERINGS: dict[str, Lower] = {}
"""ONNX operator → lowering function."""


def convert(path: Path, options: ConversionOptions) -> Model:
    """An ONNX file as an NNAPI model. ConversionError names the node and what cannot be converted."""
    graph = read(path, options)
    try:
        model = _Conversion(graph, path.name).model()
    except NnapiError as error:
        raise ConversionError(replace(error.reason, operation=f"{path}: {error.reason.operation}")) from error
    level = validate_model(model).level
    if level > options.feature_level:
        raise ConversionError(Reason(f"a model of feature level {options.feature_level} at most", str(level), str(path)))
    return model


def lowers(*names: str) -> Callable[[Lower], Lower]:
    """Register a lowering function."""

    def register(function: Lower) -> Lower:
        LOWERINGS.update(dict.fromkeys(names, function))
        return function

    return register


class _Conversion:
    """A graph on its way into a builder."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph = graph
        self.builder = ModelBuilder(name)
        self.constants = dict(graph.constants)
        self._operands: dict[str, int] = {}
        self._quantisation: dict[str, tuple[float, int]] = {}

    def model(self) -> Model:
        """Lower every node, name inputs and outputs, finish."""
        for node in self.graph.nodes:
            self._find_quantisation(node)
        inputs = [self.operand(name) for name in self.graph.inputs]
        for node in self.graph.nodes:
            lower = LOWERINGS.get(node.type)
            if lower is None:
                known = ", ".join(sorted(LOWERINGS))
                self.fail(node, f"an operator that can be converted ({known})", node.type)
            lower(self, node)
        outputs = [self.operand(name) for name in self.graph.outputs]
        self.builder.identify_inputs_and_outputs(inputs, outputs)
        return self.builder.finish()

    def fail(self, node: Node | str, rule: str, found: object) -> NoReturn:
        """Refuse the file at this node."""
        raise ConversionError(Reason(rule, str(found), self.graph.source, str(node)))

    # -- operands ----------------------------------------------------------------------------------------------------

    def _find_quantisation(self, node: Node) -> None:
        """Scale and zero point of 8-bit tensors stand in the nodes that make or read them."""
        if node.type not in ("QuantizeLinear", "DequantizeLinear"):
            return
        tensor = node.outputs[0] if node.type == "QuantizeLinear" else node.inputs[0]
        if tensor in self.constants:
            return
        scale = self.constant(node, 1)
        if scale.size != 1:
            self.fail(node, "one scale for a computed tensor", scale.size)
        point = self.constants.get(node.inputs[2]) if len(node.inputs) > 2 else None
        self._quantisation[tensor] = float(scale.reshape(())), 0 if point is None else int(point.reshape(()))

    def operand(self, name: str) -> int:
        """The operand behind a value name; constants get their value."""
        if name not in self._operands:
            if name in self.constants:
                self._operands[name] = self.constant_operand(self.constants[name], name)
            else:
                self._operands[name] = self._computed(name)
        return self._operands[name]

    def _computed(self, name: str) -> int:
        dtype = str(self.graph.dtypes.get(name, "an unknown type"))
        dims = self.graph.shapes.get(name, ())
        if dtype in _QUANTISED:
            if name not in self._quantisation:
                self.fail(f"value '{name}'", "an 8-bit value with scale and zero point", dtype)
            scale, point = self._quantisation[name]
            return self.builder.add_operand(_QUANTISED[dtype], dims, scale=scale, zero_point=point, name=name)
        if dtype not in _TYPES:
            self.fail(f"value '{name}'", f"a value of {', '.join([*_TYPES, *_QUANTISED])}", dtype)
        return self.builder.add_operand(_TYPES[dtype], dims or (1,), name=name)

    def constant_operand(self, array: Array, name: str = "") -> int:
        """A constant tensor."""
        array = np.ascontiguousarray(array.reshape(array.shape or (1,)))
        if array.dtype == np.int64:
            array = self.narrowed(array, name)
        if str(array.dtype) not in _TYPES:
            self.fail(f"constant '{name}'", f"a constant of {', '.join(_TYPES)}", array.dtype)
        index = self.builder.add_operand(_TYPES[str(array.dtype)], array.shape, name=name)
        self.builder.set_operand_value(index, array)
        return index

    def narrowed(self, array: Array, name: str) -> Array:
        """int64 as int32; refused where a value does not fit."""
        if array.size and not (array.min() >= -(2**31) and array.max() < 2**31):
            self.fail(f"constant '{name}'", "values that fit into 32 bits", array.dtype)
        return array.astype(np.int32)

    def scalar(self, value: float, kind: OperandCode = OperandCode.INT32) -> int:
        """A constant scalar."""
        index = self.builder.add_operand(kind)
        self.builder.set_operand_value(index, value)
        return index

    def flag(self, value: bool) -> int:
        """A constant BOOL."""
        return self.scalar(value, OperandCode.BOOL)

    def constant(self, node: Node, position: int) -> Array:
        """An input that must be a constant."""
        if position >= len(node.inputs) or node.inputs[position] not in self.constants:
            self.fail(node, f"a constant as input {position}", "none" if position >= len(node.inputs) else "a computed value")
        return self.constants[node.inputs[position]]

    def shape(self, name: str) -> tuple[int, ...]:
        """Dimensions of a value."""
        return tuple(self.constants[name].shape) if name in self.constants else self.graph.shapes.get(name, ())

    def emit(self, node: Node, code: OperationCode, inputs: Sequence[int], output: int | None = None) -> None:
        """Add an operation that writes the node's first output unless told otherwise."""
        target = self.operand(node.outputs[0]) if output is None else output
        name = f"{node.index}: {node.type} {node.outputs[0]}"
        self.builder.add_operation(code, inputs, [target], name=name, mapping="wide")

    def temporary(self, dims: Sequence[int], name: str = "") -> int:
        """A float32 operand between two operations of one node."""
        return self.builder.add_operand(OperandCode.TENSOR_FLOAT32, dims, name=name)


# -- element-wise ----------------------------------------------------------------------------------------------------

_ARITHMETIC = {name: OperationCode[name.upper()] for name in ("Add", "Sub", "Mul", "Div")}
_UNARY = {
    "Relu": "RELU",
    "Sigmoid": "LOGISTIC",
    "Tanh": "TANH",
    "Abs": "ABS",
    "Neg": "NEG",
    "Exp": "EXP",
    "Log": "LOG",
    "Sqrt": "SQRT",
    "Floor": "FLOOR",
    "HardSwish": "HARD_SWISH",
}


@lowers(*_ARITHMETIC)
def _arithmetic(to: _Conversion, node: Node) -> None:
    inputs = [to.operand(name) for name in node.inputs]
    to.emit(node, _ARITHMETIC[node.type], [*inputs, to.scalar(0)])


@lowers(*_UNARY)
def _unary(to: _Conversion, node: Node) -> None:
    to.emit(node, OperationCode[_UNARY[node.type]], [to.operand(node.inputs[0])])


@lowers("Clip")
def _clip(to: _Conversion, node: Node) -> None:
    """RELU6, RELU1 or RELU where the bounds say so, else MINIMUM and MAXIMUM."""
    low, high = _bound(to, node, "min", 1), _bound(to, node, "max", 2)
    x = to.operand(node.inputs[0])
    known: dict[tuple[float | None, float | None], OperationCode] = {
        (0.0, 6.0): OperationCode.RELU6,
        (-1.0, 1.0): OperationCode.RELU1,
        (0.0, None): OperationCode.RELU,
    }
    if (low, high) in known:
        to.emit(node, known[low, high], [x])
        return
    steps = [(OperationCode.MAXIMUM, low), (OperationCode.MINIMUM, high)]
    bounds = [(code, value) for code, value in steps if value is not None]
    if not bounds:
        to.emit(node, OperationCode.MAXIMUM, [x, x])
    for k, (code, value) in enumerate(bounds):
        last = k == len(bounds) - 1
        target = None if last else to.temporary(to.shape(node.outputs[0]))
        to.emit(node, code, [x, to.constant_operand(np.array([value], np.float32))], target)
        x = x if target is None else target


def _bound(to: _Conversion, node: Node, attribute: str, position: int) -> float | None:
    if attribute in node.attributes:
        return float(node.attributes[attribute])
    if position < len(node.inputs) and node.inputs[position]:
        return float(to.constant(node, position).reshape(()))
    return None


@lowers("Softmax")
def _softmax(to: _Conversion, node: Node) -> None:
    """Along one axis; before opset 13 over all axes from it on, which is the same for the last one only."""
    rank = len(to.shape(node.inputs[0]))
    axis = int(node.attributes.get("axis", -1 if to.graph.opset >= 13 else 1))
    if to.graph.opset < 13 and axis % max(rank, 1) != rank - 1:
        to.fail(node, "the last axis (before opset 13)", axis)
    beta = to.scalar(1.0, OperandCode.FLOAT32)
    to.emit(node, OperationCode.SOFTMAX, [to.operand(node.inputs[0]), beta, to.scalar(axis)])


# -- convolutions, products, pooling ---------------------------------------------------------------------------------


def _spatial(to: _Conversion, node: Node, kernel: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Paddings (left, right, top, bottom), strides and dilations (width, height)."""
    if len(kernel) != 2:
        to.fail(node, "two spatial dimensions", len(kernel))
    strides = [int(s) for s in node.attributes.get("strides", [1, 1])]
    dilations = [int(d) for d in node.attributes.get("dilations", [1, 1])]
    auto = node.attributes.get("auto_pad", b"NOTSET").decode()
    if auto in ("NOTSET", "VALID"):
        top, left, bottom, right = (int(p) for p in node.attributes.get("pads", [0, 0, 0, 0]))
    else:
        sizes = to.shape(node.inputs[0])[2:]
        pads = []
        for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
            total = max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size)
            small, large = total // 2, total - total // 2
            pads.append((large, small) if auto == "SAME_LOWER" else (small, large))
        (top, bottom), (left, right) = pads
    return [left, right, top, bottom], strides[::-1], dilations[::-1]


@lowers("Conv")
def _conv(to: _Conversion, node: Node) -> None:
    """CONV_2D, DEPTHWISE_CONV_2D or GROUPED_CONV_2D with constant weights."""
    weights = to.constant(node, 1)
    if weights.ndim != 4:
        to.fail(node, "weights of rank 4", list(weights.shape))
    pads, strides, dilations = _spatial(to, node, weights.shape[2:])
    groups = int(node.attributes.get("group", 1))
    count = weights.shape[0]
    depthwise = groups > 1 and weights.shape[1] == 1
    moved = weights.transpose((1, 2, 3, 0) if depthwise else (0, 2, 3, 1))
    bias = to.constant(node, 2) if len(node.inputs) > 2 and node.inputs[2] else np.zeros(count, weights.dtype)
    head = [to.operand(node.inputs[0]), to.constant_operand(moved, node.inputs[1]), to.constant_operand(bias)]
    window = [to.scalar(v) for v in (*pads, *strides)]
    tail = [to.scalar(0), to.flag(True)]
    if depthwise:
        middle = [to.scalar(count // groups)]
        to.emit(node, OperationCode.DEPTHWISE_CONV_2D, [*head, *window, *middle, *tail, *(to.scalar(d) for d in dilations)])
    elif groups > 1:
        if dilations != [1, 1]:
            to.fail(node, "no dilation of a grouped convolution", dilations)
        to.emit(node, OperationCode.GROUPED_CONV_2D, [*head, *window, to.scalar(groups), *tail])
    else:
        to.emit(node, OperationCode.CONV_2D, [*head, *window, *tail, *(to.scalar(d) for d in dilations)])


_POOLS = {"MaxPool": OperationCode.MAX_POOL_2D, "AveragePool": OperationCode.AVERAGE_POOL_2D}


@lowers(*_POOLS)
def _pool(to: _Conversion, node: Node) -> None:
    kernel = [int(k) for k in node.attributes["kernel_shape"]]
    pads, strides, dilations = _spatial(to, node, kernel)
    if dilations != [1, 1] or node.attributes.get("ceil_mode") or len(node.outputs) > 1:
        to.fail(node, "pooling without dilation, ceil_mode and indexes", dict(node.attributes))
    if node.type == "AveragePool" and node.attributes.get("count_include_pad") and any(pads):
        to.fail(node, "averages that do not count padding", "count_include_pad")
    window = [to.scalar(v) for v in (*pads, *strides, kernel[1], kernel[0])]
    to.emit(node, _POOLS[node.type], [to.operand(node.inputs[0]), *window, to.scalar(0), to.flag(True)])


@lowers("GlobalAveragePool")
def _global_pool(to: _Conversion, node: Node) -> None:
    axes = to.constant_operand(np.array([2, 3], np.int32))
    to.emit(node, OperationCode.MEAN, [to.operand(node.inputs[0]), axes, to.scalar(1)])


@lowers("Gemm")
def _gemm(to: _Conversion, node: Node) -> None:
    """FULLY_CONNECTED; alpha and beta go into the constants."""
    if node.attributes.get("transA"):
        to.fail(node, "a first operand that is not transposed", "transA")
    weights = to.constant(node, 1)
    weights = weights if node.attributes.get("transB") else weights.T
    alpha, beta = (np.float32(node.attributes.get(name, 1.0)) for name in ("alpha", "beta"))
    bias = to.constant(node, 2) * beta if len(node.inputs) > 2 and node.inputs[2] else np.zeros(len(weights), np.float32)
    inputs = [to.operand(node.inputs[0]), to.constant_operand(weights * alpha, node.inputs[1])]
    full = np.broadcast_to(bias.reshape(-1), (len(weights),)).astype(np.float32)
    to.emit(node, OperationCode.FULLY_CONNECTED, [*inputs, to.constant_operand(full), to.scalar(0)])


@lowers("MatMul")
def _matmul(to: _Conversion, node: Node) -> None:
    """FULLY_CONNECTED for a constant matrix on the right of rank 2, else BATCH_MATMUL."""
    right = to.constants.get(node.inputs[1])
    if right is not None and right.ndim == 2 and len(to.shape(node.inputs[0])) == 2:
        inputs = [to.operand(node.inputs[0]), to.constant_operand(right.T, node.inputs[1])]
        zeros = to.constant_operand(np.zeros(right.shape[1], np.float32))
        to.emit(node, OperationCode.FULLY_CONNECTED, [*inputs, zeros, to.scalar(0)])
        return
    inputs = [to.operand(name) for name in node.inputs]
    to.emit(node, OperationCode.BATCH_MATMUL, [*inputs, to.flag(False), to.flag(False)])


# -- moving data -----------------------------------------------------------------------------------------------------


@lowers("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Dropout")
def _reshape(to: _Conversion, node: Node) -> None:
    """RESHAPE to the output's dimensions, which shape inference has found."""
    dims = to.shape(node.outputs[0])
    if not dims or 0 in dims:
        to.fail(node, "an output of known dimensions (see --shape)", list(dims))
    if node.inputs[0] in to.constants:
        to.constants[node.outputs[0]] = to.constants[node.inputs[0]].reshape(dims)
        return
    to.emit(node, OperationCode.RESHAPE, [to.operand(node.inputs[0]), to.constant_operand(np.array(dims, np.int32))])


@lowers("Transpose")
def _transpose(to: _Conversion, node: Node) -> None:
    rank = len(to.shape(node.inputs[0]))
    order = np.array(node.attributes.get("perm", range(rank)[::-1]), np.int32)
    to.emit(node, OperationCode.TRANSPOSE, [to.operand(node.inputs[0]), to.constant_operand(order)])


@lowers("Concat")
def _concat(to: _Conversion, node: Node) -> None:
    axis = int(node.attributes["axis"]) % len(to.shape(node.outputs[0]))
    to.emit(node, OperationCode.CONCATENATION, [*(to.operand(name) for name in node.inputs), to.scalar(axis)])


# -- quantisation ----------------------------------------------------------------------------------------------------


@lowers("QuantizeLinear")
def _quantize(to: _Conversion, node: Node) -> None:
    """QUANTIZE. NNAPI rounds halves away from zero, ONNX to even."""
    to.emit(node, OperationCode.QUANTIZE, [to.operand(node.inputs[0])])


@lowers("DequantizeLinear")
def _dequantize(to: _Conversion, node: Node) -> None:
    """A constant becomes float32 now, a computed value by DEQUANTIZE."""
    stored = to.constants.get(node.inputs[0])
    if stored is None:
        to.emit(node, OperationCode.DEQUANTIZE, [to.operand(node.inputs[0])])
        return
    scale = to.constant(node, 1).astype(np.float32)
    point = to.constants.get(node.inputs[2]) if len(node.inputs) > 2 else None
    if scale.size > 1:
        shape = [1] * stored.ndim
        shape[int(node.attributes.get("axis", 1)) % stored.ndim] = -1
        scale = scale.reshape(shape)
        point = None if point is None else point.reshape(shape)
    offset = np.int32(0) if point is None else point.astype(np.int32)
    to.constants[node.outputs[0]] = ((stored.astype(np.int32) - offset) * scale).astype(np.float32)

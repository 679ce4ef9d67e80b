"""Bodies of Loop and Scan, prepared once: their nodes in order, each by the lightest of what computes it.

Most nodes of a body are a single function of NumPy's on a few elements, and an evaluator's surroundings cost far more than that.
What the ``onnx`` package's evaluator computes for them is computed here by the same expressions. Other nodes have their host
kernel, or an evaluator each, with bodies of their own; bodies with other domains' operators are the evaluator's as a whole.

Regions of 8-bit values become tables in a body that runs often: see :mod:`nnbridge_onnx.host.byte_tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from nnbridge.model import Array
from nnbridge.records import dataclass
from nnbridge_onnx.host.byte_tables import Function, TableStep, with_tables
from nnbridge_onnx.host.halves import once, widened
from nnbridge_onnx.read.graph import attribute_values, dtype_of, free_names, subgraphs

OFTEN = 64
"""Runs after which tables are worth the milliseconds that they take."""
_FIRST_BLOCKED = 21
"""The first opset whose quantisation has blocks and types of its own."""


@dataclass(frozen=True)
class BodyNode:
    """A node of a body as functions see it."""

    kind: str
    attributes: Mapping[str, Any]
    version: int
    constants: Sequence[Array | None]
    """What is known of its inputs."""
    outputs: int

    def number(self, i: int) -> Any:
        """An input that is one constant number, as the evaluator reads it; None if it is not."""
        value = self.constants[i] if i < len(self.constants) else None
        return None if value is None or value.size != 1 else value[()] if value.ndim == 0 else value.reshape(-1)[0]


# -- light functions -----------------------------------------------------------------------------------------------------


def _same(function: Function) -> Function:
    """A function of two arrays of one type."""

    def checked(x: Array, y: Array) -> Array:
        if x.dtype != y.dtype:
            raise TypeError(f"operands of one type, found {x.dtype} and {y.dtype}")
        result: Array = function(x, y)
        return result

    return checked


def _always(function: Function, node: BodyNode) -> Function:
    """The same function for all nodes."""
    return function


@once
def _sigmoid(x: Array) -> Array:
    exponential = np.exp(x)
    return np.where(x > 0, 1.0 / (1.0 + np.exp(-x)), exponential / (1.0 + exponential)).astype(x.dtype)


def _cast(node: BodyNode) -> Function | None:
    dtype = dtype_of(int(node.attributes.get("to", 0)))
    return None if dtype is None or dtype.kind not in "biuf" else lambda x: x.astype(dtype)


def _quantise(node: BodyNode) -> Function | None:
    scale, zero = node.number(1), node.number(2)
    if scale is None or zero is None or node.version >= _FIRST_BLOCKED or zero.dtype.itemsize != 1:
        return None
    kind, wide = np.iinfo(zero.dtype), np.asarray(scale, np.float32)

    def compute(x: Array) -> Array:
        whole = np.rint(widened(x) / wide).astype(np.int32)
        whole += zero
        return np.minimum(np.maximum(whole, kind.min), kind.max).astype(zero.dtype)

    return compute


def _dequantise(node: BodyNode) -> Function | None:
    scale, zero = node.number(1), node.number(2)
    if scale is None or (zero is None and len(node.constants) > 2) or node.version >= _FIRST_BLOCKED:
        return None

    def compute(x: Array) -> Array:
        centred = x.astype(np.float32)
        if zero is not None:
            if x.dtype != zero.dtype:
                raise TypeError(f"a zero point of {x.dtype}, found {zero.dtype}")
            centred = centred - zero
        result: Array = (centred * scale).astype(scale.dtype)
        return result

    return compute


def _concat(node: BodyNode) -> Function | None:
    axis = node.attributes.get("axis")
    return None if axis is None else lambda *parts: np.concatenate(parts, axis)


def _split(node: BodyNode) -> Function | None:
    sizes = node.constants[1] if len(node.constants) > 1 else node.attributes.get("split")
    if sizes is None:
        return None
    ends, axis = np.cumsum(sizes).tolist(), int(node.attributes.get("axis", 0))
    before = (slice(None),) * axis if axis >= 0 else (...,)
    behind = () if axis >= 0 else (slice(None),) * (-1 - axis)
    parts = [(*before, slice(first, last), *behind) for first, last in zip([0, *ends], ends, strict=False)]

    def compute(x: Array) -> list[Array]:
        if ends[-1] != x.shape[axis]:
            raise ValueError(f"parts of {x.shape[axis]} elements, found {ends[-1]}")
        return [x[part] for part in parts]

    return compute if node.outputs > 1 else None


def _slice(node: BodyNode) -> Function | None:
    """Forwards, along axes that are counted from the first."""
    if node.version < 10 or any(value is None for value in node.constants[1:]):
        return None
    starts, ends, *rest = ([int(v) for v in np.ravel(value)] for value in node.constants[1:] if value is not None)
    axes = rest[0] if rest else list(range(len(starts)))
    steps = rest[1] if len(rest) > 1 else [1] * len(starts)
    if not axes or min(axes) < 0 or min(steps) < 1 or not len(starts) == len(ends) == len(axes) == len(steps):
        return None
    at = [slice(None)] * (max(axes) + 1)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        at[axis] = slice(start, end, step)
    index = tuple(at)
    return lambda x: x[index]


def _axes(node: BodyNode) -> tuple[int, ...] | None:
    """The axes of Unsqueeze or Squeeze, where they are known."""
    found = node.attributes.get("axes") if node.version < 13 else node.constants[1] if len(node.constants) > 1 else None
    return None if found is None else tuple(int(a) for a in np.ravel(found))


def _unsqueeze(node: BodyNode) -> Function | None:
    axes = _axes(node)
    if not axes or min(axes) < 0 or len(set(axes)) < len(axes):
        return None if axes is None else lambda x: np.expand_dims(x, axes)
    index = tuple(None if i in axes else slice(None) for i in range(max(axes) + 1))
    return lambda x: x[index]


def _squeeze(node: BodyNode) -> Function | None:
    axes = _axes(node)
    return None if axes is None else lambda x: np.squeeze(x, axes)


def _qlinear_conv(node: BodyNode) -> Function | None:
    """Convolution by one element of each channel: a matrix product of whole numbers, exact in float64."""
    attributes, weights, bias = node.attributes, node.constants[3], node.constants[8] if len(node.constants) > 8 else None
    plain = not any(attributes.get("pads") or ()) and attributes.get("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    numbers = [node.number(i) for i in (1, 2, 6, 7)]
    scales, zeros = node.constants[4], node.constants[5]
    if weights is None or scales is None or zeros is None or any(number is None for number in numbers):
        return None
    alone = weights.shape[2:].count(1) == weights.ndim - 2 and attributes.get("group", 1) == 1
    if not (plain and alone) or set(attributes.get("strides") or (1,)) != {1} or (bias is None and len(node.constants) > 8):
        return None
    scale, zero, out_scale, out_zero = numbers
    count = len(weights)
    matrix = (weights.astype(np.float64) - np.ravel(zeros).astype(np.float64).reshape(-1, *(1,) * (weights.ndim - 1))).reshape(
        count, -1
    )
    # All sums are whole numbers below 2**53: the zero point's share is exact, wherever it is added.
    added = -np.float64(zero) * matrix.sum(axis=1, keepdims=True)
    added = added if bias is None else added + bias.astype(np.float64).reshape(-1, 1)
    factor = np.ravel(scale * scales / out_scale).astype(np.float64).reshape(-1, 1)
    kind, centre = np.iinfo(out_zero.dtype), np.float64(out_zero)

    def compute(x: Array) -> Array:
        rows = x.astype(np.float64).reshape(len(x), matrix.shape[1], -1)
        found = matrix @ rows
        found += added
        found *= factor
        np.rint(found, out=found)
        if centre:
            found += centre
        np.maximum(found, kind.min, out=found)
        np.minimum(found, kind.max, out=found)
        return found.astype(out_zero.dtype).reshape(len(x), count, *x.shape[2:])

    return compute


@dataclass(frozen=True)
class _Light:
    """A function that computes a node, or None for a form that there is none of."""

    make: Callable[[BodyNode], Function | None]
    data: int | None = 1
    """The number of inputs that come with the run, the first ones; None for all."""
    elementwise: bool = False


_LIGHT: Mapping[str, _Light] = {
    **{
        name: _Light(partial(_always, _same(ufunc)), 2, elementwise=True)
        for name, ufunc in (("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply))
    },
    "Tanh": _Light(partial(_always, np.tanh), elementwise=True),
    "Sigmoid": _Light(partial(_always, _sigmoid), elementwise=True),
    "Relu": _Light(partial(_always, lambda x: np.maximum(x, 0).astype(x.dtype)), elementwise=True),
    "Neg": _Light(partial(_always, np.negative), elementwise=True),
    "Cast": _Light(_cast, elementwise=True),
    "QuantizeLinear": _Light(_quantise, elementwise=True),
    "DequantizeLinear": _Light(_dequantise, elementwise=True),
    "Concat": _Light(_concat, None),
    "Slice": _Light(_slice),
    "Split": _Light(_split),
    "Unsqueeze": _Light(_unsqueeze),
    "Squeeze": _Light(_squeeze),
    "Transpose": _Light(lambda node: lambda x: np.transpose(x, node.attributes.get("perm") or None)),
    "QLinearConv": _Light(_qlinear_conv),
}


# -- bodies --------------------------------------------------------------------------------------------------------------


RunNode: TypeAlias = "Callable[[Mapping[str, Array]], Sequence[Any]]"
"""A node's outputs, of its inputs by name."""


class Body:
    """A prepared body: from values by name to its outputs. Two threads may run it.

    ``prepare`` gives what runs a ``NodeProto`` of ONNX's own operators, of an opset, on inputs by name.
    """

    def __init__(self, graph: Any, version: int, prepare: Callable[[Any, int], RunNode]) -> None:
        from onnx import numpy_helper

        self._version, self._prepare = version, prepare
        self._places: dict[str, int] = {"": 0}
        self._values: list[Array | None] = [None]
        """Constants by their place; None for what a run provides or computes."""
        for tensor in graph.initializer:
            self._values[self._place(tensor.name)] = numpy_helper.to_array(tensor)
        self.steps: list[TableStep] = []
        """What a run computes, in order."""
        self._runs, self._has_tables = 0, False
        for proto in graph.node:
            self._add(proto)
        self._outputs = [self._place(value.name) for value in graph.output]

    def _place(self, name: str) -> int:
        found = self._places.setdefault(name, len(self._values))
        if found == len(self._values):
            self._values.append(None)
        return found

    def _add(self, proto: Any) -> None:
        """A step for a node, or its results where they are known."""
        if proto.op_type == "Identity" and proto.output[0] not in self._places:
            # Values are never written to: another name will do.
            self._places[proto.output[0]] = self._place(proto.input[0])
            return
        attributes = attribute_values(proto)
        captured = [name for name in _captured(proto) if name not in proto.input]
        inputs = [self._place(name) for name in (*proto.input, *captured)]
        outputs = tuple(self._place(name) for name in proto.output if name)
        node = BodyNode(proto.op_type, attributes, self._version, [self._values[i] for i in inputs], len(outputs))
        light = _LIGHT.get(proto.op_type) if len(outputs) == len(proto.output) else None
        compute = None if light is None else light.make(node)
        if light is not None and compute is not None:
            step = TableStep(node.kind, compute, tuple(inputs[: light.data]), outputs, light.elementwise)
        else:
            whole = _whole([*proto.input, *captured], self._prepare(proto, self._version), len(outputs))
            step = TableStep(node.kind, whole, tuple(i for i in inputs if i), outputs)
        known = compute is not None or node.kind == "Constant"
        if known and all(self._values[i] is not None for i in step.inputs):
            found = step.compute(*[self._values[i] for i in step.inputs])
            for i, result in zip(outputs, found if len(outputs) > 1 else [found], strict=True):
                self._values[i] = np.asarray(result)
        else:
            self.steps.append(step)

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The outputs, with values from outside and of the body's inputs."""
        values: list[Any] = self._values.copy()
        for name, value in feeds.items():
            place = self._places.get(name)
            if place is not None:
                values[place] = value
        for step in self.steps:
            found = step.compute(*[values[i] for i in step.inputs])
            outputs = step.outputs
            if len(outputs) == 1:
                values[outputs[0]] = found
            else:
                for i, result in zip(outputs, found, strict=True):
                    values[i] = result
        self._runs += 1
        if self._runs >= OFTEN and not self._has_tables and all(v is None or isinstance(v, np.ndarray) for v in values):
            self._has_tables = True
            self.steps = with_tables(self.steps, self._values, values, self._outputs)
        return [_held(values[i]) for i in self._outputs]


def _held(value: Any) -> Any:
    """A tensor as an array; sequences are lists, an optional without a value is None."""
    return value if value is None or isinstance(value, list) else np.asarray(value)


def _captured(node: Any) -> list[str]:
    """The values that a node's bodies read from outside."""
    graphs = (graph for attribute in node.attribute for graph in subgraphs(attribute))
    return list(dict.fromkeys(name for graph in graphs for name in free_names(graph)))


def _whole(names: Sequence[str], run: RunNode, outputs: int) -> Function:
    """A node by its host kernel or an evaluator."""
    names = [name for name in names if name]

    def compute(*values: Any) -> Any:
        results = run(dict(zip(names, map(_held, values), strict=True)))
        return results[0] if outputs == 1 else results

    return compute


def can_prepare(graph: Any) -> bool:
    """True for bodies of ONNX's own operators, in their own bodies as well."""
    for node in graph.node:
        if node.domain not in ("", "ai.onnx"):
            return False
        if not all(can_prepare(inner) for attribute in node.attribute for inner in subgraphs(attribute)):
            return False
    return not graph.sparse_initializer

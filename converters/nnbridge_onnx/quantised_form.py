"""Quantised ONNX files in another form: QLinear operators as ONNX's own on real values, int8 as uint8."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np

from nnbridge.model import Array
from nnbridge.records import dataclass
from nnbridge_onnx.declaration import CONTRIB
from nnbridge_onnx.messages import copied, without_unread
from nnbridge_onnx.passes import FIRST_OPSET, opset_of
from nnbridge_onnx.passes.contrib import expand_contrib
from nnbridge_onnx.weights import StoredWeights

_QUANTISED: tuple[str, ...] = ("QGemm", "QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearConv", "QLinearLeakyRelu")
_QUANTISED += ("QLinearGlobalAveragePool", "QLinearMatMul", "QLinearMul", "QLinearReduceMean", "QLinearSigmoid", "QLinearSoftmax")
"""Operators on 8-bit values, ONNX's own and ONNX Runtime's."""
_MOVES = ("Flatten", "Identity", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that leave the scale and zero point of 8-bit values as they are."""
_PRODUCTS = {"QLinearConv": ("Conv", 0), "QLinearMatMul": ("MatMul", 1)}
"""ONNX's own operators on 8-bit values → the operator on real ones, and the axis of the weights' scales."""
_PER_AXIS = 13
"""The first opset whose DequantizeLinear has a scale for each channel."""
_UNSIGNED_WEIGHTS = ("Gemm", "MatMul")
"""Operators whose 8-bit weights ONNX Runtime's provider requires to be uint8, or also accepts so."""


def as_qdq(model: Any, weights: StoredWeights) -> Any | None:
    """The file with QuantizeLinear and DequantizeLinear around ONNX's operators; None where no QLinear operator is."""
    import onnx

    if not any(node.op_type in _QUANTISED and node.domain in ("", CONTRIB) for node in model.graph.node):
        return None
    changed, opset = copied(model), opset_of(model) or FIRST_OPSET
    expand_contrib(onnx, changed, opset)
    form = _QdqForm(onnx, opset, {t.name: weights.array(t) for t in changed.graph.initializer})
    nodes = [made for node in changed.graph.node for made in form.written_out(node)]
    named: set[str] = set()
    for node in nodes:
        # All nodes of one that was written out have its name, which ONNX Runtime requires to be one node's.
        node.name = "" if node.name in named else node.name
        named.add(node.name)
    del changed.graph.node[:], changed.graph.value_info[:]
    changed.graph.node.extend(nodes)
    changed.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in form.made.items())
    return without_unread(changed)


@dataclass
class _QdqForm:
    onnx: Any
    opset: int
    constants: Mapping[str, Array]
    made: dict[str, Array] = field(default_factory=dict)
    """New constants."""
    parameters: dict[str, tuple[str, str]] = field(default_factory=dict)
    """8-bit values → the names of their scale and zero point."""
    count: int = 0

    def written_out(self, node: Any) -> Iterator[Any]:
        """The nodes in a node's place, in run order."""
        inputs = list(node.input)
        if node.op_type == "QuantizeLinear":
            self.parameters[node.output[0]] = inputs[1], inputs[2] if len(inputs) > 2 else ""
        if node.op_type in _PRODUCTS and self._has_known_scales(node):
            yield from self._product(node)
        elif node.op_type in _MOVES and not node.domain and inputs[0] in self.parameters and len(node.output) == 1:
            scale, point = self.parameters[inputs[0]]
            yield from self._around(
                node, node.op_type, [(inputs[0], scale, point, 1)], inputs[1:], (scale, point), node.attribute
            )
        else:
            yield node

    def _has_known_scales(self, node: Any) -> bool:
        """True if the scales are constants that DequantizeLinear can have."""
        scales = [self.constants.get(node.input[k]) for k in (1, 4, 6)]
        if any(scale is None for scale in scales):
            return False
        first, weights, last = (scale.size for scale in scales if scale is not None)
        return first == last == 1 and (weights == 1 or self.opset >= _PER_AXIS)

    def _product(self, node: Any) -> Iterator[Any]:
        kind, axis = _PRODUCTS[node.op_type]
        inputs, more = list(node.input), []
        real = [(inputs[0], inputs[1], inputs[2], 1), (inputs[3], inputs[4], inputs[5], axis)]
        if len(inputs) > 8 and inputs[8]:
            step = (self.constants[inputs[1]].astype(np.float32) * self.constants[inputs[4]].astype(np.float32)).reshape(-1)
            more = [(inputs[8], self._constant(f"{inputs[8]}_scale", step if step.size > 1 else step.reshape(())), "", 0)]
        yield from self._around(node, kind, [*real, *more], [], (inputs[6], inputs[7]), node.attribute)

    def _around(
        self,
        node: Any,
        kind: str,
        real: list[tuple[str, str, str, int]],
        rest: list[str],
        target: tuple[str, str],
        attributes: Any,
    ) -> Iterator[Any]:
        """An operator on real values; ``real``: 8-bit inputs with scale, zero point and axis."""
        names = []
        for value, scale, point, axis in real:
            names.append(self._name(f"{value}_real"))
            constant = self.constants.get(scale, self.made.get(scale))
            more = {"axis": axis} if constant is not None and constant.size > 1 else {}
            yield self.onnx.helper.make_node(
                "DequantizeLinear", [name for name in (value, scale, point) if name], names[-1:], **more
            )
        made = self.onnx.helper.make_node(kind, [*names, *rest], [self._name(f"{node.output[0]}_real")], name=node.name)
        made.attribute.extend(attributes)
        yield made
        yield self.onnx.helper.make_node("QuantizeLinear", [made.output[0], *filter(None, target)], node.output[:1])
        self.parameters[node.output[0]] = target

    def _name(self, near: str) -> str:
        self.count += 1
        return f"{near}_{self.count}"

    def _constant(self, near: str, array: Array) -> str:
        name = self._name(near)
        self.made[name] = np.asarray(array, np.float32)
        return name


def unsigned(model: Any, weights: StoredWeights) -> Any | None:
    """8-bit values between QuantizeLinear and DequantizeLinear as uint8: the same steps, 128 higher. None without such.

    The weights of matrix products, too, which ONNX Runtime's provider builds as uint8.
    """
    changed = copied(model)
    shift = _Shift(changed, weights)
    moved = [*(shift.values(node) for node in changed.graph.node), *(shift.weights(node) for node in changed.graph.node)]
    # Types that the file states for these values are inferred again.
    del changed.graph.value_info[:]
    return without_unread(changed) if any(moved) else None


def one_scale(model: Any, weights: StoredWeights) -> Any | None:
    """One scale for the weights of matrix products that have one for each channel, as uint8; None without such.

    ONNX Runtime's provider builds no others. The bias of a product counts in the steps of its weights.
    """
    changed = copied(model)
    graph = changed.graph
    constant = partial(_constant, {tensor.name: tensor for tensor in graph.initializer}, weights)
    makers = {node.output[0]: node for node in graph.node if node.op_type == "DequantizeLinear"}
    found = False
    for product in graph.node:
        maker = makers.get(product.input[1]) if product.op_type in _UNSIGNED_WEIGHTS and len(product.input) > 1 else None
        real = None if maker is None else _real(maker, constant)
        if maker is None or real is None or constant(maker.input[1]).size < 2:
            continue
        step = np.float32(max(np.abs(real).max() / 127, np.finfo(np.float32).tiny))
        _set_weights(changed, maker, np.clip(np.rint(real / step) + 128, 0, 255).astype(np.uint8), step, np.uint8(128))
        bias = makers.get(product.input[2]) if len(product.input) > 2 else None
        data = makers.get(product.input[0])
        if bias is not None and data is not None and (total := _real(bias, constant)) is not None:
            scale = constant(data.input[1]).reshape(()).astype(np.float32) * step
            _set_weights(changed, bias, np.rint(total / scale).astype(np.int32), scale, None)
        found = True
    if not found:
        return None
    del graph.value_info[:]
    return unsigned(changed, weights) or without_unread(changed)


def _constant(constants: Mapping[str, Any], weights: StoredWeights, name: str) -> Array:
    """A constant; without elements where there is none."""
    return weights.array(constants[name]) if name in constants else np.zeros(0)


def _real(node: Any, constant: Callable[[str], Array]) -> Array | None:
    """The real values that a DequantizeLinear makes of a constant of 8 or 32 bits; None where it is computed."""
    stored, scale = constant(node.input[0]), constant(node.input[1])
    if not stored.size or not scale.size or stored.dtype not in (np.int8, np.uint8, np.int32):
        return None
    point = constant(node.input[2]) if len(node.input) > 2 else np.zeros(1)
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1) % max(stored.ndim, 1)
    shape = [-1 if k == axis and scale.size > 1 else 1 for k in range(stored.ndim)]
    steps = stored.astype(np.float32) - point.astype(np.float32).reshape(shape if point.size > 1 else ())
    return np.asarray(steps * scale.reshape(shape if scale.size > 1 else ()), np.float32)


def _set_weights(model: Any, node: Any, steps: Array, scale: Any, point: Any) -> None:
    """Give a DequantizeLinear another constant with one scale."""
    from onnx import numpy_helper

    values = [steps, np.float32(scale), *([] if point is None else [point])]
    names = [f"{node.output[0]}_{what}" for what in ("steps", "scale", "zero_point")[: len(values)]]
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for v, n in zip(values, names, strict=True))
    rest = [attribute for attribute in node.attribute if attribute.name != "axis"]
    del node.input[:], node.attribute[:]
    node.input.extend(names)
    node.attribute.extend(rest)


class _Shift:
    """A model while its int8 values become uint8."""

    def __init__(self, model: Any, weights: StoredWeights) -> None:
        self._graph = model.graph
        self._weights = weights
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._ends = {value.name for value in model.graph.output}
        self._readers: dict[str, list[Any]] = {}
        for node in model.graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)

    def values(self, node: Any) -> bool:
        """Shift what a QuantizeLinear computes for DequantizeLinears only."""
        after = self._after(node)
        if node.op_type != "QuantizeLinear" or len(node.input) < 3 or node.output[0] in self._ends or not after:
            return False
        if not all(one.op_type == "DequantizeLinear" and self._parameters(one) == self._parameters(node) for one in after):
            return False
        point = self._shifted(node.input[2])
        for user in (node, *after) if point else ():
            user.input[2] = point
        return bool(point)

    def weights(self, node: Any) -> bool:
        """Shift constants that a DequantizeLinear reads for matrix products only, those with one scale."""
        after = self._after(node)
        if node.op_type != "DequantizeLinear" or len(node.input) < 3 or not after or self._array(node.input[2]).size != 1:
            return False
        if not all(one.op_type in _UNSIGNED_WEIGHTS and node.output[0] == one.input[1] for one in after):
            return False
        value, point = self._shifted(node.input[0]), self._shifted(node.input[2])
        if value and point:
            node.input[0], node.input[2] = value, point
        return bool(value and point)

    def _after(self, node: Any) -> list[Any]:
        return self._readers.get(node.output[0], [])

    def _array(self, name: str) -> Array:
        """A constant; without elements where there is none."""
        return _constant(self._constants, self._weights, name)

    def _parameters(self, node: Any) -> list[tuple[str, bytes]]:
        """The scale and zero point of a node, by value where they are constants."""
        names = list(node.input)[1:]
        return [("", self._array(name).tobytes()) if name in self._constants else (name, b"") for name in names]

    def _shifted(self, name: str) -> str:
        """The name of an int8 constant as uint8; empty for others."""
        from onnx import numpy_helper

        array, other = self._array(name), f"{name}_uint8"
        if array.dtype != np.int8:
            return ""
        if other not in self._constants:
            self._constants[other] = numpy_helper.from_array((array.astype(np.int16) + 128).astype(np.uint8), other)
            self._graph.initializer.append(self._constants[other])
        return other

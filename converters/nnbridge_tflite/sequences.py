"""RNNs and LSTMs over a sequence of known length, written out step by step in operators on matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np

from nnbridge.records import dataclass
from nnbridge_tflite.retyping import real_values
from nnbridge_tflite.tables import EditedGraph, Table, listed

_MAX_STEPS = 256
_ACTIVATIONS = {0: "", 1: "RELU", 2: "RELU_N1_TO_1", 3: "RELU6", 4: "TANH"}
_NORMS = range(20, 24)
"""The coefficients of a layer normalisation among the inputs of an LSTM."""
_EIGHT = ("INT8", "UINT8")

Step: TypeAlias = "Callable[[_Layer, int, tuple[int, ...]], tuple[int, ...]]"
"""From one element of the sequence and the states, none before the first step, to the states: the first is the output."""


@dataclass
class _Layer:
    """The operators of one direction while they are placed."""

    graph: EditedGraph
    operands: Sequence[int]
    """Weights, biases: the inputs that belong to the direction, in the operator's order."""
    constants: dict[int, int] = field(default_factory=dict)
    """Weights of 8 bits → the same in float32; of the others, below 0, a number of zeros each."""

    def has(self, k: int) -> bool:
        return self.operands[k] >= 0

    def size(self, k: int) -> int:
        """Rows of a matrix of weights."""
        return self.graph.shape(self.operands[k])[0]

    def operand(self, k: int) -> int:
        """A tensor of weights, in float32."""
        tensor = self.operands[k]
        if self.graph.type(tensor) not in _EIGHT:
            return tensor
        if tensor not in self.constants:
            self.constants[tensor] = self.graph.data(real_values(self.graph, tensor), "FLOAT32", "weights")
        return self.constants[tensor]

    def placed(self, name: str, inputs: Sequence[int], like: int, columns: int = 0, **options: Any) -> int:
        """The result of a new operator on matrices."""
        rows, width = self.graph.shape(like)
        made = self.graph.tensor(like, (rows, columns or width), "step")
        self.graph.place(name, inputs, [made], **options)
        return made

    def product(self, x: int, weights: int, bias: int = -1) -> int:
        """The rows of ``x`` times weights, plus a bias or zeros."""
        count = self.size(weights)
        stored = self.operand(bias) if bias >= 0 and self.has(bias) else self._zeros(count)
        options = {"fused_activation_function": 0, "weights_format": 0}
        return self.placed("FULLY_CONNECTED", [x, self.operand(weights), stored], x, count, **options)

    def _zeros(self, count: int) -> int:
        key = -count - 1
        if key not in self.constants:
            self.constants[key] = self.graph.data(np.zeros(count, "<f4"), "FLOAT32", "zeros")
        return self.constants[key]

    def binary(self, name: str, one: int, other: int, like: int | None = None) -> int:
        return self.placed(name, [one, other], one if like is None else like, fused_activation_function=0)

    def activated(self, x: int) -> int:
        """The layer's activation of a tensor."""
        name = _ACTIVATIONS[int(self.graph.option("fused_activation_function"))]
        return self.placed(name, [x], x) if name else x

    def clipped(self, x: int, option: str) -> int:
        """A tensor between the negative and the positive value of an option, which 0 switches off."""
        limit = float(self.graph.option(option, 0.0))
        for name, bound in (("MINIMUM", limit), ("MAXIMUM", -limit)) if limit > 0 else ():
            x = self.placed(name, [x, self.graph.data(np.float32(bound), "FLOAT32", "limit")], x)
        return x


def _rnn(layer: _Layer, x: int, states: tuple[int, ...]) -> tuple[int, ...]:
    """One step of a plain RNN: weights, recurrent weights, bias."""
    total = layer.product(x, 0, 2)
    if states:
        total = layer.binary("ADD", total, layer.product(states[0], 1))
    return (layer.activated(total),)


_INPUT, _FORGET, _CELL, _OUTPUT = range(4)
_RECURRENT, _BIASES, _PROJECTION = 4, 11, 15
_PEEPHOLES = {_INPUT: 8, _FORGET: 9, _OUTPUT: 10}


def _lstm(layer: _Layer, x: int, states: tuple[int, ...]) -> tuple[int, ...]:
    """One step of an LSTM: weights of four gates, recurrent ones, three peepholes, biases, a projection and its bias."""

    def gate(k: int, cell: int | None) -> int:
        total = layer.product(x, k, _BIASES + k)
        if states:
            total = layer.binary("ADD", total, layer.product(states[0], _RECURRENT + k))
        if cell is not None and k in _PEEPHOLES and layer.has(_PEEPHOLES[k]):
            total = layer.binary("ADD", total, layer.binary("MUL", cell, layer.operand(_PEEPHOLES[k])))
        return layer.activated(total) if k == _CELL else layer.placed("LOGISTIC", [total], total)

    before = states[1] if states else None
    forget = gate(_FORGET, before)
    if layer.has(_INPUT):
        entered = gate(_INPUT, before)
    else:
        entered = layer.binary("SUB", layer.graph.data(np.float32(1), "FLOAT32", "one"), forget, forget)
    cell = layer.binary("MUL", entered, gate(_CELL, None))
    if before is not None:
        cell = layer.binary("ADD", layer.binary("MUL", forget, before), cell)
    cell = layer.clipped(cell, "cell_clip")
    out = layer.binary("MUL", gate(_OUTPUT, cell), layer.activated(cell))
    if layer.has(_PROJECTION):
        out = layer.clipped(layer.product(out, _PROJECTION, _PROJECTION + 1), "proj_clip")
    return out, cell


@dataclass(frozen=True)
class _SequenceForm:
    """An operator on a sequence."""

    step: Step
    directions: tuple[range, ...]
    """The inputs of each direction; the second begins at the end of the sequence."""
    absent: Sequence[int] = ()
    """Inputs with which it stays as it is."""


_FORMS: Mapping[str, _SequenceForm] = {
    "UNIDIRECTIONAL_SEQUENCE_RNN": _SequenceForm(_rnn, (range(1, 4),)),
    "BIDIRECTIONAL_SEQUENCE_RNN": _SequenceForm(_rnn, (range(1, 4), range(5, 8)), range(9, 12)),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _SequenceForm(_lstm, (range(1, 18),), _NORMS),
    "BIDIRECTIONAL_SEQUENCE_LSTM": _SequenceForm(_lstm, (range(1, 18), range(18, 35)), range(39, 48)),
}
SEQUENCES = tuple(_FORMS)


INTEGER_LAYERS = ("UNIDIRECTIONAL_SEQUENCE_LSTM", "LSTM", "SVDF")
_VERSIONS = {"INT8": (2, 1), "INT16": (3, 2)}
"""Type of activations → the versions of DEQUANTIZE and QUANTIZE that have it."""


def in_float(graph: EditedGraph) -> bool:
    """Place an integer layer in float32, between DEQUANTIZE and QUANTIZE.

    TFLite's integer layers round gates and cells to 16 bits; neither NNAPI nor the other operators of TFLite have such
    arithmetic, so that nothing that replaces one is exact.
    """
    found = _in_float(graph)
    graph.placed.extend(found or ())
    return found is not None


def _in_float(graph: EditedGraph) -> tuple[Table, Table, Table] | None:
    """DEQUANTIZE, the layer of floats, QUANTIZE; None for other layers than integer ones whose weights are stored."""
    data, *others = listed(graph.operator["inputs"])
    outputs = listed(graph.operator["outputs"])
    versions = _VERSIONS.get(graph.type(data))
    if versions is None or not len(graph.scales(data)) or len(outputs) != 1 or not len(graph.scales(outputs[0])):
        return None
    x, y = (graph.float_tensor(t) for t in (data, outputs[0]))
    inputs = [x]
    for t in others:
        real = None if t < 0 else real_values(graph, t)
        variable = t >= 0 and bool(graph.subgraph["tensors"][t].get("is_variable"))
        if t >= 0 and real is None and not variable:
            return None
        inputs.append(t if t < 0 else graph.float_tensor(t) if real is None else graph.data(real, "FLOAT32", "weights"))
    options = {**(graph.operator.get("builtin_options") or {}), "asymmetric_quantize_inputs": False}
    layer = graph.made(graph.name, inputs, [y], **options)
    return graph.made("DEQUANTIZE", [data], [x], versions[0]), layer, graph.made("QUANTIZE", [y], outputs, versions[1])


def write_out(graph: EditedGraph) -> bool:
    """Place every step, of integer layers in float32; False for those of open length, and parts that few converters write."""
    found = _in_float(graph) if graph.type(graph.input(0)) in _VERSIONS else None
    if found is None:
        return _write_out(graph)
    before, graph.operator, after = found
    graph.placed.append(before)
    written = _write_out(graph)
    graph.placed.append(after)
    return written


def _write_out(graph: EditedGraph) -> bool:
    form, inputs = _FORMS[graph.name], listed(graph.operator["inputs"])
    outputs = listed(graph.operator["outputs"])
    data = inputs[0]
    shape, time = graph.shape(data), 0 if graph.option("time_major") else 1
    if len(shape) != 3 or not graph.fixed(data, *outputs) or shape[time] > _MAX_STEPS:
        return False
    if any(inputs[k] >= 0 for k in form.absent if k < len(inputs)) or graph.option("diagonal_recurrent_tensors"):
        return False
    if graph.name == "BIDIRECTIONAL_SEQUENCE_LSTM" and len(outputs) == 1 and time and shape[0] > 1:
        # TFLite's kernel finds the states of the later batches by the width of the output, which is that of both directions.
        return False
    layers = [_Layer(graph, [inputs[k] if k < len(inputs) else -1 for k in one]) for one in form.directions]
    if graph.type(data) != "FLOAT32" or not all(_is_known(graph, t) for one in layers for t in one.operands):
        return False
    if int(graph.option("fused_activation_function")) not in _ACTIVATIONS:
        return False
    elements = [_element(graph, data, time, k) for k in range(shape[time])]
    results = [_outputs(layer, elements if k == 0 else elements[::-1], form.step) for k, layer in enumerate(layers)]
    rows = [results[0], *(one[::-1] for one in results[1:])]
    if len(rows) > len(outputs):  # both directions in one output, side by side
        rows = [[_joined(graph, pair) for pair in zip(*rows, strict=True)]]
    for output, row in zip(outputs, rows, strict=True):
        _stacked(graph, row, time, output)
    return True


def _is_known(graph: EditedGraph, tensor: int) -> bool:
    if tensor < 0 or graph.type(tensor) == "FLOAT32":
        return True
    return graph.type(tensor) in _EIGHT and real_values(graph, tensor) is not None


def _element(graph: EditedGraph, data: int, time: int, k: int) -> int:
    """One element of the sequence as a matrix."""
    shape = graph.shape(data)
    if shape[time] > 1:
        piece = graph.tensor(data, [1 if axis == time else d for axis, d in enumerate(shape)], "element")
        graph.placed.append(graph.slice(data, [k if axis == time else 0 for axis in range(3)], piece))
        data = piece
    return _reshaped(graph, data, [d for axis, d in enumerate(shape) if axis != time])


def _reshaped(graph: EditedGraph, data: int, dims: Sequence[int], output: int | None = None) -> int:
    made = graph.tensor(data, dims, "reshaped") if output is None else output
    shape = np.asarray(dims, "<i4")
    graph.place("RESHAPE", [data, graph.data(shape, "INT32", "shape")], [made], new_shape=shape)
    return made


def _outputs(layer: _Layer, elements: Sequence[int], step: Step) -> list[int]:
    """The output of each step; states are zeros before the first one, and what they are multiplied by is left out there."""
    states: tuple[int, ...] = ()
    found = []
    for x in elements:
        states = step(layer, x, states)
        found.append(states[0])
    return found


def _joined(graph: EditedGraph, pair: Sequence[int]) -> int:
    """Two matrices, one beside the other."""
    rows, columns = graph.shape(pair[0])[0], sum(graph.shape(t)[1] for t in pair)
    made = graph.tensor(pair[0], (rows, columns), "both")
    graph.place("CONCATENATION", pair, [made], axis=1, fused_activation_function=0)
    return made


def _stacked(graph: EditedGraph, row: Sequence[int], time: int, output: int) -> None:
    """Matrices as the elements of a sequence."""
    shape = graph.shape(output)
    one = [1 if axis == time else d for axis, d in enumerate(shape)]
    if len(row) == 1:
        _reshaped(graph, row[0], one, output)
        return
    pieces = [_reshaped(graph, t, one) for t in row]
    graph.place("CONCATENATION", pieces, [output], axis=time, fused_activation_function=0)

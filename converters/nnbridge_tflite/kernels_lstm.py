"""TFLite's integer LSTM: 8-bit activations and weights, 16-bit cell state.

NNAPI's QUANTIZED_LSTM is its descendant but leaves out the gates' biases unless there is layer normalisation, so it cannot
stand for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnbridge.extensions import HostTensor
from nnbridge.operations.arithmetic import mbqm, quantize_multiplier, rdbp, saturate
from nnbridge.operations.fixedpoint import logistic16, tanh16
from nnbridge_tflite.kernels import STATES, Array, Options, Tensors, given, kernel

GATES = ("input", "forget", "cell", "output")
GATE_SCALE = 2.0**-12
"""Scale of a gate's sum before its sigmoid or tanh."""

_OUTPUT_STATE, _CELL_STATE, _PROJECTION, _PROJECTION_BIAS = 18, 19, 16, 17


@dataclass(frozen=True, slots=True)
class _Source:
    """What one gate adds up from one kind of input: centred weights, bias, multiplier."""

    weights: Array
    bias: Array | int
    multiplier: tuple[int, int]

    def add(self, total: Array, values: Array) -> Array:
        """The 16-bit sum with this source's products."""
        products = (values.astype(np.float64) @ self.weights.T).astype(np.int64) + self.bias
        return _sat16(total + mbqm(products, *self.multiplier))


def _sat16(values: Array) -> Array:
    return np.clip(values, -32768, 32767)


def _present(inputs: Tensors, i: int) -> HostTensor | None:
    return inputs[i] if i < len(inputs) and inputs[i].data is not None else None


def _centred(tensor: HostTensor) -> Array:
    return given(tensor).astype(np.int64) - tensor.zero_point


def _source(weights: HostTensor, activations: HostTensor, bias: HostTensor | None, scale: float) -> _Source:
    factor = float(np.float32(weights.scale) * np.float32(activations.scale) / np.float32(scale))
    return _Source(_centred(weights).astype(np.float64), 0 if bias is None else given(bias), quantize_multiplier(factor))


@kernel("UNIDIRECTIONAL_SEQUENCE_LSTM")
def sequence_lstm(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The whole sequence; states start as given."""
    cell = _integer_cell(inputs, outputs, options)
    data = _centred(inputs[0])
    steps = data if options.get("time_major") else np.swapaxes(data, 0, 1)
    made = np.stack([cell.step(values) for values in steps])
    return [made if options.get("time_major") else np.swapaxes(made, 0, 1), *cell.states()]


def _integer_cell(inputs: Tensors, outputs: Tensors, options: Options) -> _Cell:
    if any(_present(inputs, i) is not None for i in (9, 10, 11, 20, 21, 22, 23)):
        raise ValueError("an integer LSTM without peepholes and layer normalisation")
    if inputs[0].dtype.kind == "f":
        raise ValueError("integer activations")
    return _Cell(inputs, outputs[0], options)


class _Cell:
    """The state of one layer and how a step changes it."""

    def __init__(self, inputs: Tensors, out: HostTensor, options: Mapping[str, Any]) -> None:
        data, previous, state = inputs[0], inputs[_OUTPUT_STATE], inputs[_CELL_STATE]
        self._out = out
        self._output = _centred(previous)
        self._state = given(state).astype(np.int64)
        self._exponent = round(math.log2(state.scale))
        self._direct: dict[str, _Source] = {}
        self._recurrent: dict[str, _Source] = {}
        for i, gate in enumerate(GATES):
            own, again = _present(inputs, 1 + i), _present(inputs, 5 + i)
            if own is not None and again is not None:
                self._direct[gate] = _source(own, data, _present(inputs, 12 + i), GATE_SCALE)
                self._recurrent[gate] = _source(again, previous, None, GATE_SCALE)
        clip = options.get("cell_clip") or 0.0
        self._clip = int(min(max(clip / state.scale, -32768), 32767)) if clip > 0 else 0
        hidden = (options.get("intermediates") or [{}] * 5)[4]
        self._hidden_scale = float(hidden.get("scale") or previous.scale)
        self._hidden_point = int(hidden.get("zero_point") or 0)
        projection = _present(inputs, _PROJECTION)
        self._projection: _Source | None = None
        if projection is not None:
            like = HostTensor(None, (), np.dtype("i1"), self._hidden_scale, self._hidden_point)
            self._projection = _source(projection, like, _present(inputs, _PROJECTION_BIAS), previous.scale)
        self._previous = previous

    def _gate(self, gate: str, values: Array) -> Array:
        total = self._direct[gate].add(np.zeros(1, np.int64), values)
        return self._recurrent[gate].add(total, self._output)

    def step(self, values: Array) -> Array:
        """One time step: the output in its element type."""
        kept = logistic16(self._gate("forget", values)).astype(np.int64)
        opened = logistic16(self._gate("input", values)).astype(np.int64) if "input" in self._direct else 32767 - kept
        candidate = tanh16(self._gate("cell", values)).astype(np.int64)
        released = logistic16(self._gate("output", values)).astype(np.int64)
        state = _sat16(rdbp(kept * self._state, 15) + rdbp(opened * candidate, 30 + self._exponent))
        self._state = np.clip(state, -self._clip, self._clip) if self._clip else state
        shown = released * tanh16(self._state, 15 + self._exponent)
        factor = quantize_multiplier(float(np.float32(2.0**-30 / np.float32(self._hidden_scale))))
        hidden = np.clip(mbqm(shown, *factor) + self._hidden_point, -128, 127)
        if self._projection is not None:
            sums = self._projection.add(np.zeros(1, np.int64), hidden + self._hidden_point)
            hidden = np.clip(sums + self._signed_point(), -128, 127)
        self._output = hidden - self._signed_point()
        return saturate(self._output + self._out.zero_point, self._out.dtype)

    def states(self) -> list[Array]:
        """The output and cell state in their element types."""
        previous = self._previous
        return [saturate(self._output + previous.zero_point, previous.dtype), self._state.astype(np.int16)]

    def _signed_point(self) -> int:
        """The output state's zero point as int8 has it."""
        return self._previous.zero_point - (128 if self._previous.dtype == np.uint8 else 0)


BASIC = 1
"""LSTMKernelType of the cell with one matrix of weights."""


@kernel("LSTM")
def one_step(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """One step: the full kernel of integers, or the basic one of floats."""
    if options.get("kernel_type") == BASIC:
        return _basic(inputs, outputs, options)
    cell = _integer_cell(inputs, outputs, options)
    return [cell.step(_centred(inputs[0])), *cell.states()]


def _basic(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The cell with one matrix: the output, the state, and what TFLite shows of its work; then new states."""
    if inputs[0].dtype.kind != "f":
        raise ValueError("a basic LSTM of floats")
    data, previous, weights, biases, state = map(given, inputs[:5])
    joined = np.concatenate([data, previous], axis=-1)
    sums = joined @ weights.T + biases
    opened, candidate, kept, released = np.split(sums, 4, axis=-1)
    after = _sigmoid(opened) * np.tanh(candidate) + _sigmoid(kept) * state
    shown = _sigmoid(released) * np.tanh(after)
    work = [shown, after, joined, sums][: len(outputs) - len(options.get(STATES, ()))]
    return [*work, shown, after]


def _sigmoid(values: Array) -> Array:
    return 1 / (1 + np.exp(-values))

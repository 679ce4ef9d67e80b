"""TFLite's integer LSTM: 8-bit activations and weights, 16-bit cell state.

NNAPI's QUANTIZED_LSTM is its descendant but leaves out the gates' biases unless there is layer normalisation, so it cannot
stand for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from nnbridge.extensions import HostTensor
from nnbridge.operations.arithmetic import mbqm, quantize_multiplier, rdbp, saturate
from nnbridge.operations.fixedpoint import logistic16, tanh16
from nnbridge_tflite.host.numbers import Array, Options, Tensors, data_of

GATES = ("input", "forget", "output", "cell")
"""The gates with a sigmoid, then the one with a tanh."""
GATE_SCALE = 2.0**-12
"""Scale of a gate's sum before its sigmoid or tanh."""

_WEIGHTS = {"input": 1, "forget": 2, "cell": 3, "output": 4}
"""Where a gate's input weights stand; its recurrent weights stand 4 further, its bias 11 further."""
_OUTPUT_STATE, _CELL_STATE, _PROJECTION, _PROJECTION_BIAS = 18, 19, 16, 17


@dataclass(frozen=True, slots=True)
class _Source:
    """What gates add up from one kind of input: centred weights [rows, n], and of each row its bias and multiplier."""

    weights: Array
    bias: Array
    multiplier: Array
    shift: Array

    @classmethod
    def of(cls, weights: HostTensor, activations: HostTensor, bias: HostTensor | None, scale: float) -> _Source:
        """The source of one gate, whose sums have a scale."""
        rows = len(data_of(weights))
        factor = float(np.float32(weights.scale) * np.float32(activations.scale) / np.float32(scale))
        multiplier, shift = (np.full(rows, number) for number in quantize_multiplier(factor))
        added = np.zeros(rows, np.int64) if bias is None else data_of(bias).astype(np.int64)
        return cls(_centred(weights).astype(np.float64), added, multiplier, shift)

    @classmethod
    def joined(cls, sources: Sequence[_Source]) -> _Source:
        """The rows of several gates."""
        return cls(*(np.concatenate([getattr(source, field.name) for source in sources]) for field in fields(cls)))

    def products(self, values: Array) -> Array:
        """The rescaled products with centred values [..., n]."""
        sums = (values.astype(np.float64) @ self.weights.T).astype(np.int64) + self.bias
        return mbqm(sums, self.multiplier, self.shift)


# Arrays: NumPy creates one of each number on every call, and checks it against the values' type.
_LOW, _HIGH = np.array(-32768), np.array(32767)


def _sat16(values: Array) -> Array:
    return values.clip(_LOW, _HIGH)


def _present(inputs: Tensors, i: int) -> HostTensor | None:
    return inputs[i] if i < len(inputs) and inputs[i].data is not None else None


def _centred(tensor: HostTensor) -> Array:
    return data_of(tensor).astype(np.int64) - tensor.zero_point


def sequence(inputs: Tensors, outputs: Tensors, options: Options, *, time_major: bool) -> Sequence[Array]:
    """The outputs of a whole sequence, then the output and cell state; states start as they are read."""
    cell = _integer_cell(inputs, outputs, options)
    data = _centred(inputs[0])
    computed = cell.run(data if time_major else np.swapaxes(data, 0, 1))
    return [computed if time_major else np.swapaxes(computed, 0, 1), *cell.states()]


def step(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The output of one step, then the output and cell state."""
    cell = _integer_cell(inputs, outputs, options)
    return [cell.run(_centred(inputs[0])[None])[0], *cell.states()]


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
        self._state = data_of(state).astype(np.int64)
        self._exponent = round(math.log2(state.scale))
        gates = [_WEIGHTS[gate] for gate in GATES if _present(inputs, _WEIGHTS[gate]) is not None]
        self._direct = _Source.joined([_Source.of(inputs[i], data, _present(inputs, i + 11), GATE_SCALE) for i in gates])
        self._recurrent = _Source.joined([_Source.of(inputs[i + 4], previous, None, GATE_SCALE) for i in gates])
        clip = options.get("cell_clip") or 0.0
        self._clip = int(min(max(clip / state.scale, -32768), 32767)) if clip > 0 else 0
        hidden = (options.get("intermediates") or [{}] * 5)[4]
        hidden_scale = float(hidden.get("scale") or previous.scale)
        self._hidden_factor = quantize_multiplier(float(np.float32(2.0**-30 / np.float32(hidden_scale))))
        self._hidden_point = int(hidden.get("zero_point") or 0)
        projection = _present(inputs, _PROJECTION)
        self._projection: _Source | None = None
        if projection is not None:
            like = HostTensor(None, (), np.dtype("i1"), hidden_scale, self._hidden_point)
            self._projection = _Source.of(projection, like, _present(inputs, _PROJECTION_BIAS), previous.scale)
        self._previous = previous

    def run(self, data: Array) -> Array:
        """The outputs [steps, batch, units] in their element type, of centred inputs [steps, batch, size]."""
        sums = _sat16(self._direct.products(data))
        outputs = np.stack([self._step(of_step) for of_step in sums])
        return saturate(outputs + self._out.zero_point, self._out.dtype)

    def _step(self, sums: Array) -> Array:
        """One time step: the output less its zero point."""
        sums = _sat16(sums + self._recurrent.products(self._output))
        units = self._state.shape[-1]
        sigmoids = logistic16(sums[..., :-units]).astype(np.int64)
        forgotten, shown_part = sigmoids[..., -2 * units : -units], sigmoids[..., -units:]
        opened = sigmoids[..., :units] if sigmoids.shape[-1] > 2 * units else 32767 - forgotten
        candidate = tanh16(sums[..., -units:])
        state = _sat16(rdbp(forgotten * self._state, 15) + rdbp(opened * candidate, 30 + self._exponent))
        self._state = np.clip(state, -self._clip, self._clip) if self._clip else state
        shown = shown_part * tanh16(self._state, 15 + self._exponent)
        hidden = np.clip(mbqm(shown, *self._hidden_factor) + self._hidden_point, -128, 127)
        if self._projection is not None:
            projected = _sat16(self._projection.products(hidden + self._hidden_point))
            hidden = np.clip(projected + self._signed_point(), -128, 127)
        self._output = hidden - self._signed_point()
        return self._output

    def states(self) -> list[Array]:
        """The output and cell state in their element types."""
        previous = self._previous
        return [saturate(self._output + previous.zero_point, previous.dtype), self._state.astype(np.int16)]

    def _signed_point(self) -> int:
        """The output state's zero point as int8 has it."""
        return self._previous.zero_point - (128 if self._previous.dtype == np.uint8 else 0)

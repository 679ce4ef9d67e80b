"""TFLite's integer LSTM: 8-bit activations and weights, 16-bit cell state.

NNAPI's QUANTIZED_LSTM is its descendant but leaves out the gates' biases unless there is layer normalisation, so it cannot
stand for it. The arithmetic is here, below the importer, for the compiled kernels to see.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnbridge.extensions import Arg, StatedKernel
from nnbridge.model import Array
from nnbridge.operations.arithmetic import mbqm, quantize_multiplier, rdbp, saturate
from nnbridge.operations.fixedpoint import logistic16, tanh16
from nnbridge.records import dataclass
from nnbridge.types import OperandCode

Tensors: TypeAlias = Sequence[Arg]
Options: TypeAlias = Mapping[str, Any]

GATES = ("input", "forget", "output", "cell")
"""The gates with a sigmoid, then the one with a tanh."""
GATE_SCALE = 2.0**-12
"""Scale of a gate's sum before its sigmoid or tanh."""

_WEIGHTS = {"input": 1, "forget": 2, "cell": 3, "output": 4}
"""Where a gate's input weights stand; its recurrent weights stand 4 further, its bias 11 further."""
DATA, OUTPUT_STATE, CELL_STATE = 0, 18, 19
"""The inputs that runs provide: a step or a sequence, and the states."""
_PROJECTION, _PROJECTION_BIAS = 16, 17


@dataclass(frozen=True)
class GateSource:
    """The sums that gates take from one kind of input: centred weights [rows, n], and of each row its bias and multiplier."""

    weights: Array
    bias: Array
    multiplier: Array
    shift: Array

    @classmethod
    def of(cls, weights: Arg, activations: Arg, bias: Arg | None, scale: float) -> GateSource:
        """The source of one gate, whose sums have a scale."""
        rows = len(data_of(weights))
        factor = float(np.float32(weights.scale) * np.float32(activations.scale) / np.float32(scale))
        multiplier, shift = (np.full(rows, number) for number in quantize_multiplier(factor))
        added = np.zeros(rows, np.int64) if bias is None else data_of(bias).astype(np.int64)
        return cls(_centred(weights, np.int16 if weights.dtype.itemsize == 1 else np.int64), added, multiplier, shift)

    @classmethod
    def joined(cls, sources: Sequence[GateSource]) -> GateSource:
        """The rows of several gates."""
        return cls(*(np.concatenate([getattr(source, field.name) for source in sources]) for field in fields(cls)))

    @functools.cached_property
    def _exact(self) -> Array:
        """Columns as BLAS multiplies them; compiled kernels have no use for them."""
        return self.weights.astype(np.float64).T

    def products(self, values: Array) -> Array:
        """The rescaled products with centred values [..., n]."""
        sums = (values.astype(np.float64) @ self._exact).astype(np.int64) + self.bias
        return mbqm(sums, self.multiplier, self.shift)


# Arrays: NumPy creates one of each number on every call, and checks it against the values' type.
_LOW, _HIGH = np.array(-32768), np.array(32767)


def _sat16(values: Array) -> Array:
    return values.clip(_LOW, _HIGH)


def _present(inputs: Tensors, i: int) -> Arg | None:
    return inputs[i] if i < len(inputs) and inputs[i].value is not None else None


def data_of(tensor: Arg) -> Array:
    """A tensor's array; ValueError where it is not known."""
    if tensor.value is None:
        raise ValueError("constant weights")
    return tensor.value


def _centred(tensor: Arg, kind: npt.DTypeLike = np.int64) -> Array:
    return data_of(tensor).astype(kind) - tensor.zero_point


class IntegerLstm(StatedKernel):
    """One layer with its weights: computes a step [batch, size], or a sequence, with states from and to its caller."""

    places = (DATA, OUTPUT_STATE, CELL_STATE)

    def __init__(self, inputs: Tensors, outputs: Tensors, options: Options, *, time_major: bool = True) -> None:
        """ValueError for other cells, or where weights are not known."""
        if any(_present(inputs, i) is not None for i in (9, 10, 11, 20, 21, 22, 23)):
            raise ValueError("an integer LSTM without peepholes and layer normalisation")
        data, previous, state = (inputs[i] for i in (DATA, OUTPUT_STATE, CELL_STATE))
        if data.dtype.kind == "f":
            raise ValueError("integer activations")
        self.inputs, self.outputs = inputs, outputs
        self.time_major = time_major or len(data.dims) == 2
        """True where steps come before the members of a batch."""
        self.exponent = round(math.log2(state.scale))
        """Of the cell state's scale, a power of 2."""
        gates = [_WEIGHTS[gate] for gate in GATES if _present(inputs, _WEIGHTS[gate]) is not None]
        self.direct = GateSource.joined([GateSource.of(inputs[i], data, _present(inputs, i + 11), GATE_SCALE) for i in gates])
        self.recurrent = GateSource.joined([GateSource.of(inputs[i + 4], previous, None, GATE_SCALE) for i in gates])
        self.gates, self.units = len(gates), len(data_of(inputs[gates[0]]))
        clip = options.get("cell_clip") or 0.0
        self.clip = int(min(max(clip / state.scale, -32768), 32767)) if clip > 0 else 0
        """Of the cell state's integers; 0 for none."""
        hidden = (options.get("intermediates") or [{}] * 5)[4]
        hidden_scale = float(hidden.get("scale") or previous.scale)
        self.hidden_factor = quantize_multiplier(float(np.float32(2.0**-30 / np.float32(hidden_scale))))
        self.hidden_point = int(hidden.get("zero_point") or 0)
        projection = _present(inputs, _PROJECTION)
        self.projection: GateSource | None = None
        if projection is not None:
            like = Arg(OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, (), hidden_scale, self.hidden_point)
            self.projection = GateSource.of(projection, like, _present(inputs, _PROJECTION_BIAS), previous.scale)
        self.signed_point = previous.zero_point - (128 if previous.dtype == np.uint8 else 0)
        """The output state's zero point as int8 has it."""

    def __call__(self, arrays: Sequence[Array | None]) -> list[Array]:
        """The outputs in their element type, then the output and cell state, as many as are declared."""
        data, output, state = (
            _centred(tensor) if (array := arrays[i]) is None else array.astype(np.int64).reshape(tensor.dims) - tensor.zero_point
            for i, tensor in ((i, self.inputs[i]) for i in (DATA, OUTPUT_STATE, CELL_STATE))
        )
        steps = data[None] if data.ndim == 2 else data if self.time_major else np.swapaxes(data, 0, 1)
        rows = []
        for sums in _sat16(self.direct.products(steps)):
            output, state = self._step(sums, output, state)
            rows.append(output)
        out, previous = self.outputs[0], self.inputs[OUTPUT_STATE]
        computed = saturate(np.stack(rows, axis=0 if self.time_major else 1) + out.zero_point, out.dtype)
        results = [computed, saturate(output + previous.zero_point, previous.dtype), state.astype(np.int16)]
        return [result.reshape(o.dims or result.shape) for result, o in zip(results, self.outputs, strict=False)]

    def _step(self, sums: Array, output: Array, state: Array) -> tuple[Array, Array]:
        """One time step: the output less its zero point and the cell state."""
        sums, units = _sat16(sums + self.recurrent.products(output)), self.units
        sigmoids = logistic16(sums[..., :-units]).astype(np.int64)
        forgotten, shown_part = sigmoids[..., -2 * units : -units], sigmoids[..., -units:]
        opened = sigmoids[..., :units] if sigmoids.shape[-1] > 2 * units else 32767 - forgotten
        candidate = tanh16(sums[..., -units:])
        state = _sat16(rdbp(forgotten * state, 15) + rdbp(opened * candidate, 30 + self.exponent))
        state = np.clip(state, -self.clip, self.clip) if self.clip else state
        shown = shown_part * tanh16(state, 15 + self.exponent)
        hidden = np.clip(mbqm(shown, *self.hidden_factor) + self.hidden_point, -128, 127)
        if self.projection is not None:
            projected = _sat16(self.projection.products(hidden - self.hidden_point))
            hidden = np.clip(projected + self.signed_point, -128, 127)
        return hidden - self.signed_point, state

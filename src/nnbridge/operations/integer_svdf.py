"""TFLite's integer SVDF: 8-bit activations and weights of features, 16-bit weights in time and state.

NNAPI's SVDF is of real numbers. The arithmetic is here, below the importer, for the compiled kernels to see.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnbridge.extensions import Arg, StatedKernel
from nnbridge.model import Array
from nnbridge.operations.arithmetic import mbqm, quantize_multiplier, saturate
from nnbridge.operations.integer_lstm import data_of

DATA, STATE = 0, 4
"""Inputs by their position."""


class IntegerSvdf(StatedKernel):
    """One step of a layer with its weights: from the input and the state to the output and the new state."""

    places = (DATA, STATE)

    def __init__(self, inputs: Sequence[Arg], outputs: Sequence[Arg], rank: int) -> None:
        """``rank``: filters of one unit. ValueError for other numbers, or where weights are not known."""
        data, features, time, bias, state = inputs
        if data.scale == 0 or outputs[0].scale == 0 or data.dtype.kind == "f":
            raise ValueError("integer activations")
        self.inputs, self.outputs, self.rank = inputs, outputs, rank
        self.features, self.time = data_of(features), data_of(time)
        self.bias = np.zeros(len(self.features) // rank, np.int32) if bias.value is None else bias.value
        self.factors = [
            quantize_multiplier(float(np.float32(a.scale) * np.float32(b.scale) / np.float32(c.scale)))
            for a, b, c in ((data, features, state), (state, time, outputs[0]))
        ]
        """Multiplier and shift of the projections' sums, and of the units'."""

    def __call__(self, arrays: Sequence[Array | None]) -> list[Array]:
        """The output, then the new state."""
        x, state = arrays[DATA], arrays[STATE]
        if x is None or state is None:
            raise ValueError("an input and a state")
        centred = x.astype(np.int64) - self.inputs[DATA].zero_point
        sums = centred @ self.features.T.astype(np.int64)
        projected = saturate(mbqm(sums, *self.factors[0]), np.int16)
        memory = state.reshape(*projected.shape, -1)
        memory = np.concatenate([memory[..., 1:], projected[..., None]], axis=-1)
        sums = (memory.astype(np.int64) * self.time).sum(-1).reshape(len(memory), -1, self.rank).sum(-1) + self.bias
        out = self.outputs[0]
        shown = saturate(mbqm(sums, *self.factors[1]) + out.zero_point, out.dtype)
        return [shown.reshape(out.dims or shown.shape), memory.reshape(state.shape)]

"""Recurrent operators of floats beside 8-bit weights, on the host, against LiteRT's hybrid kernels: three calls, no reset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.converters.mapping import MappingKind
from tests.tflite.agreement import differences
from tests.tflite.files import TfliteBuilder

BATCH, STEPS, SIZE, CELLS, OUT = 2, 3, 5, 4, 3
AUXILIARY = {"BIDIRECTIONAL_SEQUENCE_RNN": (9,), "BIDIRECTIONAL_SEQUENCE_LSTM": (39,)}
"""Which input is the auxiliary sequence."""
ASYMMETRIC = pytest.mark.parametrize("asymmetric", [False, True])


class _Weights:
    """8-bit matrices and float vectors."""

    def __init__(self, builder: TfliteBuilder) -> None:
        self.builder, self._rng = builder, np.random.default_rng(6)

    def matrix(self, *shape: int) -> int:
        return self.builder.constant(self._rng.integers(-127, 128, shape), "int8", scale=float(self._rng.uniform(0.004, 0.01)))

    def vector(self, *shape: int) -> int:
        return self.builder.constant(self._rng.standard_normal(shape) * 0.5, "float32")

    def state(self, *shape: int) -> int:
        return self.builder.tensor(shape, is_variable=True)

    def rnn(self) -> list[int]:
        return [self.matrix(CELLS, SIZE), self.matrix(CELLS, CELLS), self.vector(CELLS), self.state(BATCH, CELLS)]

    def lstm(self, *, cifg: bool = False, peephole: bool = False, units: int = CELLS) -> list[int]:
        gates = [-1 if cifg else self.matrix(CELLS, SIZE), *(self.matrix(CELLS, SIZE) for _ in range(3))]
        again = [-1 if cifg else self.matrix(CELLS, units), *(self.matrix(CELLS, units) for _ in range(3))]
        looks = [self.matrix(CELLS) if peephole and not (cifg and i == 0) else -1 for i in range(3)]
        biases = [-1 if cifg else self.vector(CELLS), *(self.vector(CELLS) for _ in range(3))]
        return [
            *gates,
            *again,
            *looks,
            *biases,
            *([-1, -1] if units == CELLS else [self.matrix(units, CELLS), self.vector(units)]),
        ]


def _agrees(builder: TfliteBuilder, name: str, inputs: Sequence[int], outs: Sequence[int], options: Any, path: Path) -> None:
    builder.operator(name, inputs, outs, options, 3)
    computed = [inputs[0], *(inputs[i] for i in AUXILIARY.get(name, ()) if inputs[i] >= 0)]
    file = builder.write(path / "m.tflite", computed, outs)
    found, placements = differences(file, calls=3, mapping="delegate", feature_level=1)
    assert placements[0].mapping == MappingKind.HOST
    assert max(found) < 1e-6


@pytest.mark.parametrize("name", ["RNN", "UNIDIRECTIONAL_SEQUENCE_RNN"])
@ASYMMETRIC
def test_rnn_agrees(name: str, asymmetric: bool, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    lead = (BATCH,) if name == "RNN" else (BATCH, STEPS)
    data, out = builder.tensor((*lead, SIZE)), builder.tensor((*lead, CELLS))
    options = {"fused_activation_function": 4, "asymmetric_quantize_inputs": asymmetric}
    _agrees(builder, name, [data, *_Weights(builder).rnn()], [out], options, tmp_path)


@pytest.mark.parametrize("major", [False, True])
@pytest.mark.parametrize("auxiliary", ["none", "read by the second direction", "with weights"])
@ASYMMETRIC
def test_bidirectional_rnn_agrees(auxiliary: str, major: bool, asymmetric: bool, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    weights, lead = _Weights(builder), (STEPS, BATCH) if major else (BATCH, STEPS)
    data = builder.tensor((*lead, SIZE))
    more = -1 if auxiliary == "none" else builder.tensor((*lead, SIZE))
    extra = [weights.matrix(CELLS, SIZE) if auxiliary == "with weights" else -1 for _ in range(2)]
    outs = [builder.tensor((*lead, CELLS)) for _ in range(2)]
    options = {"time_major": major, "asymmetric_quantize_inputs": asymmetric}
    inputs = [data, *weights.rnn(), *weights.rnn(), more, *extra]
    _agrees(builder, "BIDIRECTIONAL_SEQUENCE_RNN", inputs, outs, options, tmp_path)


@pytest.mark.parametrize("name", ["LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"])
@pytest.mark.parametrize(("cifg", "peephole", "normed", "units"), [(0, 0, 0, 4), (1, 1, 0, 3), (0, 1, 1, 3), (1, 0, 1, 4)])
@ASYMMETRIC
def test_lstm_agrees(name: str, cifg: int, peephole: int, normed: int, units: int, asymmetric: bool, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    lead, weights = (BATCH,) if name == "LSTM" else (BATCH, STEPS), _Weights(builder)
    data, out = builder.tensor((*lead, SIZE)), builder.tensor((*lead, units))
    states = [weights.state(BATCH, units), weights.state(BATCH, CELLS)]
    norms = [-1 if cifg and i == 0 else weights.vector(CELLS) for i in range(4)] if normed else []
    options = {"fused_activation_function": 4, "cell_clip": 0.8, "proj_clip": 0.7, "asymmetric_quantize_inputs": asymmetric}
    inputs = [data, *weights.lstm(cifg=bool(cifg), peephole=bool(peephole), units=units), *states, *norms]
    _agrees(builder, name, inputs, [out], options, tmp_path)


@pytest.mark.parametrize("auxiliary", ["none", "read by the second direction", "with weights"])
@ASYMMETRIC
def test_bidirectional_lstm_agrees(auxiliary: str, asymmetric: bool, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    weights = _Weights(builder)
    data = builder.tensor((STEPS, BATCH, SIZE))
    more = -1 if auxiliary == "none" else builder.tensor((STEPS, BATCH, SIZE))
    extra = [weights.matrix(CELLS, SIZE) if auxiliary == "with weights" else -1 for _ in range(8)]
    states = [weights.state(BATCH, CELLS) for _ in range(4)]
    outs = [builder.tensor((STEPS, BATCH, CELLS)) for _ in range(2)]
    options = {"fused_activation_function": 4, "asymmetric_quantize_inputs": asymmetric, "time_major": True}
    inputs = [data, *weights.lstm(), *weights.lstm(), *states, more, *extra]
    _agrees(builder, "BIDIRECTIONAL_SEQUENCE_LSTM", inputs, outs, options, tmp_path)


@ASYMMETRIC
def test_svdf_agrees(asymmetric: bool, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    weights = _Weights(builder)
    data, out = builder.tensor((BATCH, SIZE)), builder.tensor((BATCH, CELLS))
    inputs = [data, weights.matrix(2 * CELLS, SIZE), weights.matrix(2 * CELLS, 6), -1, weights.state(BATCH, 2 * CELLS * 6)]
    _agrees(builder, "SVDF", inputs, [out], {"rank": 2, "asymmetric_quantize_inputs": asymmetric}, tmp_path)

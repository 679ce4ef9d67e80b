"""Recurrent operators against LiteRT's reference kernels, called once and three times without a reset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnbridge.types import OperationCode
from tests.tflite.agreement import converted, differences
from tests.tflite.files import TfliteBuilder

CALLS = pytest.mark.parametrize("calls", [1, 3])
BATCH, STEPS, SIZE, CELLS, OUT = 2, 3, 5, 4, 3


class _Weights:
    """Float constants in TFLite's order of an LSTM's inputs."""

    def __init__(self, builder: TfliteBuilder) -> None:
        self._builder = builder
        self._rng = np.random.default_rng(3)

    def make(self, *shape: int) -> int:
        return self._builder.constant(self._rng.standard_normal(shape) * 0.5, "float32")

    def lstm(self, *, cifg: bool, peephole: bool, projection: bool) -> list[int]:
        """Inputs 1 to 17."""
        units = OUT if projection else CELLS
        gates = [-1 if cifg else self.make(CELLS, SIZE), *(self.make(CELLS, SIZE) for _ in range(3))]
        again = [-1 if cifg else self.make(CELLS, units), *(self.make(CELLS, units) for _ in range(3))]
        looks = [self.make(CELLS) if peephole and not (cifg and i == 0) else -1 for i in range(3)]
        biases = [-1 if cifg else self.make(CELLS), *(self.make(CELLS) for _ in range(3))]
        tail = [self.make(OUT, CELLS), self.make(OUT)] if projection else [-1, -1]
        return [*gates, *again, *looks, *biases, *tail]


def _state(builder: TfliteBuilder, *shape: int) -> int:
    return builder.tensor(shape, is_variable=True)


FORMS = [(cifg, peephole, projection) for cifg in (False, True) for peephole in (False, True) for projection in (False, True)]


@pytest.mark.parametrize(("cifg", "peephole", "projection"), FORMS)
@pytest.mark.parametrize("name", ["LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"])
@CALLS
def test_lstm_agrees(name: str, cifg: bool, peephole: bool, projection: bool, calls: int, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    units = OUT if projection else CELLS
    lead = (BATCH,) if name == "LSTM" else (BATCH, STEPS)
    data = builder.tensor((*lead, SIZE))
    weights = _Weights(builder).lstm(cifg=cifg, peephole=peephole, projection=projection)
    states = [_state(builder, BATCH, units), _state(builder, BATCH, CELLS)]
    out = builder.tensor((*lead, units))
    options = {"fused_activation_function": 4, "cell_clip": 0.8, "proj_clip": 0.0}
    builder.operator(name, [data, *weights, *states], [out], options)
    found, placements = differences(builder.write(tmp_path / "m.tflite", [data], [out]), calls=calls)
    assert placements[0].mapping == ("delegate" if name == "LSTM" else "wide")
    assert max(found) < 1e-5


@pytest.mark.parametrize("merge", [False, True])
@CALLS
def test_bidirectional_lstm_agrees(merge: bool, calls: int, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data = builder.tensor((STEPS, BATCH, SIZE))
    weights = _Weights(builder)
    both = [w for _ in range(2) for w in weights.lstm(cifg=False, peephole=False, projection=False)]
    states = [_state(builder, BATCH, CELLS) for _ in range(4)]
    outs = [builder.tensor((STEPS, BATCH, CELLS * (2 if merge else 1))) for _ in range(1 if merge else 2)]
    options = {"fused_activation_function": 4, "merge_outputs": merge, "time_major": True}
    builder.operator("BIDIRECTIONAL_SEQUENCE_LSTM", [data, *both, *states, *[-1] * 9], outs, options)
    found, placements = differences(builder.write(tmp_path / "m.tflite", [data], outs), calls=calls)
    assert placements[0].mapping == "wide"
    assert max(found) < 1e-5


@pytest.mark.parametrize("name", ["RNN", "UNIDIRECTIONAL_SEQUENCE_RNN"])
@CALLS
def test_rnn_agrees(name: str, calls: int, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    weights = _Weights(builder)
    lead = (BATCH,) if name == "RNN" else (BATCH, STEPS)
    data, out = builder.tensor((*lead, SIZE)), builder.tensor((*lead, CELLS))
    inputs = [data, weights.make(CELLS, SIZE), weights.make(CELLS, CELLS), weights.make(CELLS), _state(builder, BATCH, CELLS)]
    builder.operator(name, inputs, [out], {"fused_activation_function": 1})
    found, placements = differences(builder.write(tmp_path / "m.tflite", [data], [out]), calls=calls)
    assert placements[0].mapping == ("delegate" if name == "RNN" else "wide")
    assert max(found) < 1e-5


@CALLS
@pytest.mark.parametrize("merge", [False, True])
def test_bidirectional_rnn_agrees(merge: bool, calls: int, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    weights = _Weights(builder)
    data = builder.tensor((BATCH, STEPS, SIZE))
    cells = [
        [weights.make(CELLS, SIZE), weights.make(CELLS, CELLS), weights.make(CELLS), _state(builder, BATCH, CELLS)]
        for _ in range(2)
    ]
    outs = [builder.tensor((BATCH, STEPS, CELLS * (2 if merge else 1))) for _ in range(1 if merge else 2)]
    options = {"fused_activation_function": 1, "merge_outputs": merge, "time_major": False}
    builder.operator("BIDIRECTIONAL_SEQUENCE_RNN", [data, *cells[0], *cells[1], -1, -1, -1], outs, options)
    found, placements = differences(builder.write(tmp_path / "m.tflite", [data], outs), calls=calls)
    assert placements[0].mapping == "wide"
    assert max(found) < 1e-5


@CALLS
@pytest.mark.parametrize("type", ["float32", "uint8"])
def test_basic_lstm_agrees(type: str, calls: int, tmp_path: Path) -> None:
    """One matrix of weights: floats on the host, 8-bit integers as QUANTIZED_16BIT_LSTM."""
    builder = TfliteBuilder()
    rng = np.random.default_rng(5)
    small = {"scale": 1 / 128, "zero_point": 128} if type == "uint8" else {}
    wide = {"scale": 16 / 32768} if type == "uint8" else {}
    gate = {"scale": 8 / 32768} if type == "uint8" else {}
    sixteen = "int16" if type == "uint8" else type
    data = builder.tensor((BATCH, SIZE), type, **small)
    previous = builder.tensor((BATCH, CELLS), type, is_variable=True, **small)
    shape = (4 * CELLS, SIZE + CELLS)
    if type == "uint8":
        matrix = builder.constant(rng.integers(0, 256, shape), type, scale=0.01, zero_point=128)
        biases = builder.constant(rng.integers(-3000, 3000, 4 * CELLS), "int32", scale=float(np.float32(0.01) / np.float32(128)))
    else:
        matrix, biases = (builder.constant(rng.standard_normal(s) * 0.5, type) for s in (shape, 4 * CELLS))
    state = builder.tensor((BATCH, CELLS), sixteen, is_variable=True, **wide)
    outs = [
        builder.tensor((BATCH, CELLS), type, **small),
        builder.tensor((BATCH, CELLS), sixteen, **wide),
        builder.tensor((BATCH, SIZE + CELLS), type, **small),
        builder.tensor((BATCH, 4 * CELLS), sixteen, **gate),
    ]
    options = {"fused_activation_function": 4, "kernel_type": 1}
    builder.operator("LSTM", [data, previous, matrix, biases, state], outs, options, version=2)
    found, placements = differences(builder.write(tmp_path / "m.tflite", [data], outs[:2]), calls=calls)
    assert placements[0].mapping == ("delegate" if type == "uint8" else "host")
    assert max(found) < (1.5 if type == "uint8" else 1e-5)


@CALLS
def test_svdf_agrees(calls: int, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    weights = _Weights(builder)
    memory, rank = 6, 2
    data, out = builder.tensor((BATCH, SIZE)), builder.tensor((BATCH, CELLS))
    kernels = [weights.make(CELLS * rank, SIZE), weights.make(CELLS * rank, memory), weights.make(CELLS)]
    state = _state(builder, BATCH, memory * CELLS * rank)
    builder.operator("SVDF", [data, *kernels, state], [out], {"rank": rank, "fused_activation_function": 0})
    found, placements = differences(builder.write(tmp_path / "m.tflite", [data], [out]), calls=calls)
    assert placements[0].mapping == "delegate"
    assert max(found) < 1e-5


def _integer_lstm(folder: Path, name: str, *, projection: bool) -> Path:
    """8-bit weights and activations, 16-bit cell state; intermediates lend their parameters."""
    builder = TfliteBuilder()
    rng = np.random.default_rng(9)
    units = OUT if projection else CELLS
    lead = (BATCH,) if name == "LSTM" else (BATCH, STEPS)
    data = builder.tensor((*lead, SIZE), "int8", scale=0.02, zero_point=3)

    def weights(*shape: int) -> int:
        return builder.constant(rng.integers(-127, 128, shape), "int8", scale=0.01)

    def bias(size: int, scale: float) -> int:
        return builder.constant(rng.integers(-2000, 2000, size), "int32", scale=scale)

    gates = [*(weights(CELLS, SIZE) for _ in range(4)), *(weights(CELLS, units) for _ in range(4)), -1, -1, -1]
    biases = [bias(CELLS, 0.01 * 0.02) for _ in range(4)]
    tail = [weights(OUT, CELLS), bias(OUT, 0.01 / 128)] if projection else [-1, -1]
    states = [
        builder.tensor((BATCH, units), "int8", is_variable=True, scale=1 / 128, zero_point=-5),
        builder.tensor((BATCH, CELLS), "int16", is_variable=True, scale=2.0**-11),
    ]
    out = builder.tensor((*lead, units), "int8", scale=1 / 128, zero_point=-5)
    lent = [builder.tensor((), "int16", scale=2.0**-12) for _ in range(4)]
    hidden = {"scale": 1 / 128, "zero_point": 21 if projection else -5}
    lent.append(builder.tensor((), "int8", **hidden))
    options = {"fused_activation_function": 4, "cell_clip": 0.0, "proj_clip": 0.0}
    inputs = [data, *gates, *biases, *tail, *states, -1, -1, -1, -1]
    builder.operator(name, inputs, [out], options, version=3, intermediates=lent)
    return builder.write(folder / "m.tflite", [data], [out])


@CALLS
@pytest.mark.parametrize("projection", [False, True])
@pytest.mark.parametrize("name", ["LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"])
def test_integer_lstm_agrees(name: str, projection: bool, calls: int, tmp_path: Path) -> None:
    found, placements = differences(_integer_lstm(tmp_path, name, projection=projection), calls=calls)
    assert placements[0].mapping == "host"
    assert max(found) <= 1


def test_the_delegate_accepts_an_integer_lstm_as_quantized_lstm_from_level_4(tmp_path: Path) -> None:
    path = _integer_lstm(tmp_path, "LSTM", projection=False)
    model, placements = converted(path, mapping="delegate")
    assert placements[0].mapping == "delegate"
    assert [operation.type for operation in model.main.operations] == [OperationCode.QUANTIZED_LSTM]
    assert len(model.states) == 2
    assert converted(path, mapping="delegate", feature_level=3)[1][0].mapping == "host"

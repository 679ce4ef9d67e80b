"""Recurrent cells of random sizes and parts, compiled against the reference kernels, with every instruction set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.routines import routine
from nnbridge.extensions import Arg
from nnbridge.operations.integer_lstm import CELL_STATE, DATA, OUTPUT_STATE, IntegerLstm
from nnbridge.types import OperationCode
from tests.compiled.models import F32, Tensor, check, model_of
from tests.graphs import NO_TENSOR, argument

SEEDS = range(4)
Cell = list[Any]


def weights(rng: np.random.Generator, *dims: int) -> Tensor:
    """A constant of float32."""
    return Tensor(F32, dims, value=(rng.normal(size=dims) / np.sqrt(dims[-1])).astype(np.float32))


def lstm_cell(rng: np.random.Generator, size: int, units: int, cifg: bool, peephole: bool) -> Cell:
    """Weights, peepholes, biases and no projection, in NNAPI's order."""
    first = [None] if cifg else []
    inputs = [*first, *(weights(rng, units, size) for _ in range(4 - cifg))]
    own = [*first, *(weights(rng, units, units) for _ in range(4 - cifg))]
    looks = [None] * 3 if not peephole else [*first, *(weights(rng, units) for _ in range(3 - cifg))]
    biases = [*first, *(weights(rng, units) for _ in range(4 - cifg))]
    return [*inputs, *own, *looks, *biases, None, None]


def rnn_cell(rng: np.random.Generator, size: int, units: int) -> Cell:
    return [weights(rng, units, size), weights(rng, units, units), weights(rng, units)]


class Sizes:
    """Random dimensions of a recurrent operation."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.batch, self.steps = int(rng.integers(1, 4)), int(rng.integers(1, 6))
        self.size, self.units = int(rng.choice([1, 3, 8, 21])), int(rng.choice([1, 5, 16, 20, 33]))
        self.cifg, self.peephole, self.major = (bool(rng.integers(0, 2)) for _ in range(3))
        self.activation = int(rng.choice([0, 1, 2, 3, 4, 4, 6]))
        self.clip = float(rng.choice([0.0, 0.25]))

    def state(self, units: int = 0) -> Tensor:
        return Tensor(F32, (self.batch, units or self.units))

    def sequence(self, size: int) -> Tensor:
        return Tensor(F32, (self.steps, self.batch, size) if self.major else (self.batch, self.steps, size))


@pytest.mark.parametrize("seed", SEEDS)
def test_lstm(isa: InstructionSet, seed: int) -> None:
    s = Sizes(seed)
    cell = lstm_cell(s.rng, s.size, s.units, s.cifg, s.peephole)
    inputs = [Tensor(F32, (s.batch, s.size)), *cell, s.state(), s.state(), s.activation, s.clip, 0.0]
    outputs = [s.state((4 - s.cifg) * s.units), s.state(), s.state(), s.state()]
    check(model_of(OperationCode.LSTM, inputs, outputs), isa, s.rng)


@pytest.mark.parametrize("seed", SEEDS)
def test_unidirectional_sequence_lstm(isa: InstructionSet, seed: int) -> None:
    s = Sizes(seed)
    cell = lstm_cell(s.rng, s.size, s.units, s.cifg, s.peephole)
    inputs = [s.sequence(s.size), *cell, s.state(), s.state(), s.activation, s.clip, 0.0, s.major, *[None] * 4]
    outputs = [s.sequence(s.units), s.state(), s.state()][: 3 if seed % 2 else 1]
    check(model_of(OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM, inputs, outputs), isa, s.rng)


@pytest.mark.parametrize("seed", SEEDS)
def test_bidirectional_sequence_lstm(isa: InstructionSet, seed: int) -> None:
    s = Sizes(seed)
    units, merge = (s.units, s.units + 3), bool(seed % 2)
    cells = [lstm_cell(s.rng, s.size, n, s.cifg, s.peephole) for n in units]
    states = [s.state(n) for n in units for _ in range(2)]
    inputs = [s.sequence(s.size), *cells[0], *cells[1], *states, *[None] * 9, s.activation, s.clip, 0.0, merge, s.major]
    sequences = [s.sequence(n) for n in ([sum(units)] if merge else units)]
    outputs = [*sequences, *(states if seed % 4 < 2 else [])]
    check(model_of(OperationCode.BIDIRECTIONAL_SEQUENCE_LSTM, [*inputs, *[None] * 8], outputs), isa, s.rng)


@pytest.mark.parametrize("seed", SEEDS)
def test_rnn_in_all_its_forms(isa: InstructionSet, seed: int) -> None:
    s = Sizes(seed)
    one = rnn_cell(s.rng, s.size, s.units)
    step = [Tensor(F32, (s.batch, s.size)), *one, s.state(), s.activation]
    check(model_of(OperationCode.RNN, step, [s.state(), s.state()]), isa, s.rng)
    sequence = [s.sequence(s.size), *one, s.state(), s.activation, int(s.major)]
    code = OperationCode.UNIDIRECTIONAL_SEQUENCE_RNN
    check(model_of(code, sequence, [s.sequence(s.units), s.state()][: 1 + seed % 2]), isa, s.rng)
    units, merge = (s.units, s.units + 3), bool(seed % 2)
    cells = [[*rnn_cell(s.rng, s.size, n), s.state(n)] for n in units]
    both = [s.sequence(s.size), *cells[0], *cells[1], None, None, None, s.activation, s.major, merge]
    sequences = [s.sequence(n) for n in ([sum(units)] if merge else units)]
    check(model_of(OperationCode.BIDIRECTIONAL_SEQUENCE_RNN, both, sequences), isa, s.rng)


@pytest.mark.parametrize("seed", SEEDS)
def test_integer_lstm(isa: InstructionSet, seed: int) -> None:
    s = Sizes(seed)
    layer = integer_layer(s)
    compiled = routine(layer, instructions=isa)
    assert compiled is not None
    for _ in range(3):
        arrays = [
            random_array(s.rng, t) if k in (DATA, OUTPUT_STATE, CELL_STATE) else t.value for k, t in enumerate(layer.inputs)
        ]
        for found, expected in zip(compiled(arrays), layer(arrays), strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


def integer_layer(s: Sizes) -> IntegerLstm:
    """A layer of random sizes, weights and scales."""
    rng, kind = s.rng, "i1" if s.peephole else "u1"
    point, state_point = (int(rng.integers(0, 256)) - (128 if kind == "i1" else 0) for _ in range(2))

    def tensor(dims: tuple[int, ...], dtype: str, scale: float, zero: int = 0, *, constant: bool = True) -> Arg:
        held = argument(dims, dtype, scale, zero)
        return replace(held, value=random_array(rng, held)) if constant else held

    def gates(*shape: int, dtype: str = "i1", scale: float = 0.01) -> list[Arg]:
        return [tensor(shape, dtype, scale) if not (s.cifg and k == 0) else NO_TENSOR for k in range(4)]

    inputs = [
        tensor(s.sequence(s.size).dims, kind, 0.02, point, constant=False),
        *gates(s.units, s.size, scale=float(rng.choice([0.0003, 0.01, 0.2]))),
        *gates(s.units, s.units),
        *[NO_TENSOR] * 3,
        *gates(s.units, dtype="i4", scale=0.0002),
        *[NO_TENSOR] * 2,
        tensor((s.batch, s.units), kind, 1 / 128, state_point, constant=False),
        tensor((s.batch, s.units), "i2", 2.0 ** -int(rng.integers(9, 13)), constant=False),
    ]
    outputs = [replace(inputs[OUTPUT_STATE], dims=s.sequence(s.units).dims), *inputs[OUTPUT_STATE : CELL_STATE + 1]]
    hidden = {"scale": 1 / 128, "zero_point": int(rng.integers(-128, 128))}
    options = {"cell_clip": s.clip, "intermediates": [{}] * 4 + [hidden]}
    return IntegerLstm(inputs, outputs, options, time_major=s.major)


def random_array(rng: np.random.Generator, tensor: Arg) -> Any:
    """Values over the type's whole range; biases of 32 bits within 20 bits, weights without -128."""
    low, high = {"i1": (-127, 128), "u1": (0, 256), "i2": (-32768, 32768), "i4": (-(1 << 20), 1 << 20)}[tensor.dtype.str[1:]]
    return rng.integers(low, high, tensor.dims).astype(tensor.dtype)

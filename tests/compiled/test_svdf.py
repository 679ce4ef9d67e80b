"""SVDF of real numbers and of integers, compiled against the reference kernels, with every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.routines import routine
from nnbridge.extensions import Arg
from nnbridge.operations.integer_svdf import IntegerSvdf
from nnbridge.types import OperandCode, OperationCode
from tests.compiled.models import F16, F32, Tensor, check, model_of, random_data
from tests.graphs import NO_TENSOR, argument

SIZES = [(1, 3, 1, 2, 10), (2, 40, 33, 1, 7), (3, 8, 5, 4, 1), (1, 17, 16, 2, 33)]
"""Batch, input, units, rank, memory."""


@pytest.mark.parametrize("kind", [F32, F16], ids=lambda kind: kind.name)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("activation", [0, 3])
def test_real_numbers(isa: InstructionSet, kind: OperandCode, sizes: tuple[int, ...], activation: int) -> None:
    rng, (batch, size, units, rank, memory) = np.random.default_rng(1), sizes

    def constant(*dims: int) -> Tensor:
        return Tensor(kind, dims, value=random_data(rng, kind, dims) / np.sqrt(dims[-1]).astype(kind_of(kind)))

    filters = units * rank
    bias = constant(units) if activation else Tensor(kind, (units,), value=np.zeros(units, kind_of(kind)))
    state = Tensor(kind, (batch, memory * filters))
    inputs = [Tensor(kind, (batch, size)), constant(filters, size), constant(filters, memory), bias, state, rank, activation]
    check(model_of(OperationCode.SVDF, inputs, [state, Tensor(kind, (batch, units))]), isa, rng)


def kind_of(kind: OperandCode) -> type:
    return np.float16 if kind == F16 else np.float32


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_integers(isa: InstructionSet, sizes: tuple[int, ...], seed: int) -> None:
    rng, (batch, size, units, rank, memory) = np.random.default_rng(seed), sizes
    filters, small = units * rank, 60_000 // (rank * memory)

    def tensor(dims: tuple[int, ...], dtype: str, scale: float, point: int = 0, most: int = 0) -> Arg:
        data = rng.integers(-most, most + 1, dims).astype(dtype) if most else None
        return argument(dims, dtype, scale, point, data)

    points = rng.integers(-128, 128, 2)
    x = tensor((batch, size), "i1", 0.05, int(points[0]))
    features, time = tensor((filters, size), "i1", 0.01, most=127), tensor((filters, memory), "i2", 0.001, most=min(small, 32767))
    bias = tensor((units,), "i4", 0.0, most=30_000) if seed else NO_TENSOR
    state = tensor((batch, filters * memory), "i2", float(rng.choice([0.0005, 0.01])))
    out = tensor((batch, units), "i1", float(rng.choice([0.001, 0.5])), int(points[1]))
    layer = IntegerSvdf([x, features, time, bias, state], [out, state], rank)
    compiled = routine(layer, instructions=isa)
    assert compiled is not None
    data, before = rng.integers(-128, 128, x.dims).astype(np.int8), rng.integers(-32768, 32768, state.dims, np.int16)
    arrays = [data, None, None, None, before]
    for found, expected in zip(compiled(arrays), layer(arrays), strict=True):
        np.testing.assert_array_equal(found, expected)

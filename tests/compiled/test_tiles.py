"""Products of bytes by matrix tiles, against the reference kernels: lengths and rows that no tile divides."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from nnbridge.cpu.compiled import instructions
from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.model import Model
from nnbridge.types import OperandCode, OperationCode
from tests.compiled.hybrid import Hybrid
from tests.compiled.models import I8, I32, U8, Tensor, check, model_of, random_data

BIAS_SCALE = float(np.float32(0.02) * np.float32(0.01))


def checked(model: Model, tiles: InstructionSet, rng: np.random.Generator) -> None:
    """Equal to the reference, and computed by tiles."""
    check(model, tiles, rng)
    assert "product_tiles" in {step.variant.kernel for step in Hybrid(model, tiles).plan.programs[0].steps}


def operand(
    rng: np.random.Generator, kind: OperandCode, dims: tuple[int, ...], scale: float, *, constant: bool = False
) -> Tensor:
    point = int(rng.integers(0, 256)) - (128 if kind == I8 else 0)
    return Tensor(kind, dims, scale, point, random_data(rng, kind, dims) if constant else None)


@pytest.mark.parametrize("kind", [U8, I8], ids=lambda kind: kind.name)
@pytest.mark.parametrize("rows", [16, 17, 32, 49])
@pytest.mark.parametrize("length", [96, 130])
def test_fully_connected(tiles: InstructionSet, kind: OperandCode, rows: int, length: int) -> None:
    rng = np.random.default_rng(rows + length)
    units = int(rng.choice([1, 5, 16, 33, 64, 130]))
    weights = operand(rng, kind, (units, length), 0.01, constant=True)
    bias = Tensor(I32, (units,), BIAS_SCALE, value=rng.integers(-9000, 9000, units).astype(np.int32))
    inputs = [operand(rng, kind, (rows, length), 0.02), weights, bias, int(rng.integers(0, 4))]
    out = operand(rng, kind, (rows, units), float(rng.choice([0.001, 0.01, 0.3])))
    checked(model_of(OperationCode.FULLY_CONNECTED, inputs, [out]), tiles, rng)


@pytest.mark.parametrize("stride", [1, 2])
def test_pixels_of_a_convolution_at_equal_distances(tiles: InstructionSet, stride: int) -> None:
    rng, size = np.random.default_rng(stride), 5 if stride == 1 else 1
    weights = operand(rng, U8, (24, 1, 1, 100), 0.01, constant=True)
    bias = Tensor(I32, (24,), BIAS_SCALE, value=np.zeros(24, np.int32))
    # With a stride of 2 in one column: every second pixel of it.
    inputs = [operand(rng, U8, (1, 8 * size * stride, size, 100), 0.02), weights, bias, 2, stride, stride, 1]
    model = model_of(OperationCode.CONV_2D, inputs, [operand(rng, U8, (1, 8 * size, size, 24), 0.5)])
    checked(model, tiles, rng) if stride == 1 else check(model, tiles, rng)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rows", [16, 33])
def test_matrices_that_are_both_computed(tiles: InstructionSet, rows: int, transposed: bool) -> None:
    rng = np.random.default_rng(rows)
    x, out = operand(rng, I8, (2, rows, 100), 0.02), operand(rng, I8, (2, rows, 37), 0.5)
    y = operand(rng, I8, (2, 37, 100) if transposed else (2, 100, 37), 0.03)
    checked(model_of(OperationCode.BATCH_MATMUL, [x, y, False, transposed], [out]), tiles, rng)


def test_a_system_that_permits_no_tiles_has_the_next_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def __init__(self, _: None) -> None: ...

        def syscall(self, *_: int) -> int:
            return -1

    monkeypatch.setattr(ctypes, "CDLL", Refusing)
    assert not any(isa.matrices for isa in instructions.host_sets.__wrapped__())

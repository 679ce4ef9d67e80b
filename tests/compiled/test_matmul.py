"""BATCH_MATMUL compiled: matrices that are both computed, transposed, broadcast, of lengths that no vector divides."""

from __future__ import annotations

import numpy as np
import pytest

from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.types import OperandCode, OperationCode
from tests.compiled.models import F32, I8, I32, Tensor, check, model_of, random_data

BATCHES = [((), ()), ((2,), (2,)), ((2, 1), (1, 3)), ((3,), (1,))]


@pytest.mark.parametrize("kind", [F32, I32, I8], ids=lambda kind: kind.name)
@pytest.mark.parametrize("seed", range(8))
def test_batch_matmul(isa: InstructionSet, kind: OperandCode, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, length, columns = (int(n) for n in rng.choice([1, 2, 3, 5, 13, 17, 40, 65, 100], 3))
    flags, batches = [bool(flag) for flag in rng.integers(0, 2, 2)], BATCHES[seed % 4]

    def operand(dims: tuple[int, ...], scale: float, *, constant: bool = False) -> Tensor:
        point = int(rng.choice([-128, 127, 0, int(rng.integers(-128, 128))])) if kind == I8 else 0
        value = random_data(rng, kind, dims) if constant else None
        return Tensor(kind, dims, scale if kind == I8 else 0.0, point, value)

    x = operand((*batches[0], *((length, rows) if flags[0] else (rows, length))), 0.02)
    y = operand((*batches[1], *((columns, length) if flags[1] else (length, columns))), 0.03, constant=seed % 5 == 0)
    out = operand((*np.broadcast_shapes(*batches), rows, columns), float(rng.choice([0.0003, 0.05, 0.5])))
    check(model_of(OperationCode.BATCH_MATMUL, [x, y, *flags], [out]), isa, rng)

"""What would take much memory while a program is planned is left to the reference kernels."""

from __future__ import annotations

import time

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from nnbridge.cpu.compiled.models import compile_model
from nnbridge.types import OperationCode
from tests.compiled.models import F32, I32, Tensor, model_of


def _ones(dims: tuple[int, ...]) -> Tensor:
    return Tensor(F32, dims, value=np.ones(dims, np.float32))


@pytest.mark.parametrize(
    ("code", "inputs", "out", "why"),
    [
        (OperationCode.MUL, [Tensor(F32, (1 << 26, 3)), Tensor(F32, (3,), value=np.float32([1, 2, 3])), 0], (1 << 26, 3), "rows"),
        (OperationCode.TRANSPOSE, [Tensor(F32, (1 << 24, 3)), Tensor(I32, (2,), value=[1, 0])], (3, 1 << 24), "elements"),
        (OperationCode.PAD, [Tensor(F32, (1 << 24,)), Tensor(I32, (1, 2), value=[[1, 0]])], ((1 << 24) + 1,), "elements"),
        (
            OperationCode.CONV_2D,
            [Tensor(F32, (1, 1 << 25, 1, 2)), *map(_ones, ((1, 1, 3, 2), (1,))), 2, 0, 0, 0, 1, 1, 0],
            (1, 1 << 25, 1, 1),
            "windows",
        ),
        (
            OperationCode.DEPTHWISE_CONV_2D,
            [Tensor(F32, (1, 1 << 22, 1, 2)), *map(_ones, ((1, 1, 1, 4), (4,))), 2, 1, 1, 2, 0],
            (1, 1 << 22, 1, 4),
            "elements",
        ),
    ],
)
def test_a_table_for_each_of_millions_of_pieces_is_not_made(
    code: OperationCode, inputs: list[Tensor | int], out: tuple[int, ...], why: str
) -> None:
    started = time.process_time()
    plan = compile_model(model_of(code, inputs, [Tensor(F32, out)]))
    assert why in next(iter(plan.left.values()))
    assert time.process_time() - started < 2

"""Planning a program takes bounded memory: what would take much is left to the reference kernels."""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from nnbridge.operations.fixedpoint import logistic, table16
from nnbridge.types import OperationCode
from tests.compiled.hybrid import compile_model
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
            OperationCode.GROUPED_CONV_2D,  # of a table for each of two groups
            [Tensor(F32, (1, (1 << 23) + 1, 1, 4)), *map(_ones, ((6, 1, 3, 2), (6,))), 2, 0, 0, 0, 1, 1, 2, 0, False],
            (1, (1 << 23) + 1, 1, 6),
            "windows",
        ),
        (
            OperationCode.DEPTHWISE_CONV_2D,
            [Tensor(F32, (1, 1 << 22, 1, 2)), *map(_ones, ((1, 1, 1, 4), (4,))), 2, 1, 1, 2, 0],
            (1, 1 << 22, 1, 4),
            "elements",
        ),
        (OperationCode.FULLY_CONNECTED, [Tensor(F32, (1 << 24, 1)), *map(_ones, ((1, 1), (1,))), 0], (1 << 24, 1), "rows"),
        (
            OperationCode.TRANSPOSE_CONV_2D,
            [
                Tensor(F32, (1, 1 << 13, 1 << 13, 1)),
                *map(_ones, ((1, 1, 1, 1), (1,))),
                Tensor(I32, (4,), value=np.int32([1, 1 << 13, 1 << 13, 1])),
                *(2, 1, 1, 0, False),
            ],
            (1, 1 << 13, 1 << 13, 1),
            "pixels",
        ),
        (OperationCode.CONCATENATION, [Tensor(F32, (1 << 22, 1)), Tensor(F32, (1 << 22, 2)), 1], (1 << 22, 3), "pieces"),
    ],
)
def test_a_table_for_each_of_millions_of_pieces_is_not_made(
    code: OperationCode, inputs: list[Tensor | int], out: tuple[int, ...], why: str
) -> None:
    started = time.process_time()
    plan = compile_model(model_of(code, inputs, [Tensor(F32, out)]))
    assert why in next(iter(plan.left.values()))
    assert time.process_time() - started < 2


def peak_of(work: Callable[[], object]) -> int:
    """Bytes that work takes at most beyond what was there."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_planning_a_transposition_takes_few_bytes_for_each_element() -> None:
    dims = (1, 3, 256, 256)
    model = model_of(
        OperationCode.TRANSPOSE, [Tensor(F32, dims), Tensor(I32, (4,), value=[0, 2, 3, 1])], [Tensor(F32, (1, 256, 256, 3))]
    )
    compile_model(model)
    assert peak_of(lambda: compile_model(model)) < 24 * math.prod(dims)


def test_tables_of_16_bit_functions_are_made_in_pieces() -> None:
    # 128 KiB of int16; all at once, what lies between takes 16 times as much.
    assert peak_of(lambda: table16(logistic, 3)) < 1 << 20

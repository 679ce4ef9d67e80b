"""The distance of compiled float sums from exact ones: the claim of docs/compiled-kernels.md, measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnbridge import Compilation, Execution
from nnbridge.builder import ModelBuilder
from nnbridge.types import OperandCode, OperationCode

pytest.importorskip("llvmlite")

UNIT = 2.0**-24
"""Half a unit in the last place of 1: what a sum loses at most of its size at each term."""


def products(weights: Any, x: Any, kernels: str) -> Any:
    """FULLY_CONNECTED without a bias."""
    builder = ModelBuilder("sums")
    data, matrix = (builder.add_operand(OperandCode.TENSOR_FLOAT32, array.shape) for array in (x, weights))
    bias = builder.add_operand(OperandCode.TENSOR_FLOAT32, (len(weights),))
    none = builder.add_operand(OperandCode.INT32)
    out = builder.add_operand(OperandCode.TENSOR_FLOAT32, (len(x), len(weights)))
    for operand, value in ((matrix, weights), (bias, np.zeros(len(weights), np.float32)), (none, np.int32(0))):
        builder.set_operand_value(operand, value)
    builder.add_operation(OperationCode.FULLY_CONNECTED, [data, matrix, bias, none], [out])
    builder.identify_inputs_and_outputs([data], [out])
    compilation = Compilation.create(builder.finish(), kernels=kernels)
    compilation.finish()
    [found] = Execution(compilation).run([x]).values()
    return found.astype(np.float64)


@pytest.mark.parametrize("length", [64, 512, 1024, 4096, 16384])
@pytest.mark.parametrize("numbers", ["normal", "positive", "large and small"])
@pytest.mark.parametrize("kernels", ["compiled", "reference"])
def test_sums_of_products_are_within_their_share_of_the_magnitudes(length: int, numbers: str, kernels: str) -> None:
    rng = np.random.default_rng(length)
    draw = {
        "normal": rng.standard_normal,
        "positive": rng.random,
        "large and small": lambda size: rng.standard_normal(size) * 10.0 ** rng.uniform(-4, 4, size),
    }[numbers]
    weights, x = draw((32, length)).astype(np.float32), draw((8, length)).astype(np.float32)
    exact = x.astype(np.float64) @ weights.T.astype(np.float64)
    magnitudes = np.abs(x).astype(np.float64) @ np.abs(weights.T).astype(np.float64)
    lost = np.abs(products(weights, x, kernels) - exact) / magnitudes / UNIT
    assert lost.max() <= (8 if numbers == "normal" else length + 1)
    assert lost.mean() <= np.sqrt(length)

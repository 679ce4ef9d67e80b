"""Random numbers, which the host draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnbridge.model import Array
from nnbridge_onnx.declaration import operator
from nnbridge_onnx.host.evaluator import HostCall
from nnbridge_onnx.read.graph import INT32, dtype_of

BERNOULLI = operator("Bernoulli", 16, "input -> output", "Draws that are 1 with the probability of the input.")
MULTINOMIAL = operator("Multinomial", 110, "input -> output", "Draws from unnormalised log probabilities.")
operator("RandomNormal", 129, "-> output", "Normally distributed numbers.")
operator("RandomNormalLike", 130, "input -> output", "Normally distributed numbers in the shape of the input.")
operator("RandomUniform", 131, "-> output", "Uniformly distributed numbers.")
operator("RandomUniformLike", 132, "input -> output", "Uniformly distributed numbers in the shape of the input.")


@BERNOULLI.host_kernel
def _run_bernoulli(call: HostCall) -> Sequence[Array]:
    """Numbers below 0 are never drawn, those above 1 always; the evaluator refuses them, ONNX Runtime does not."""
    share = np.clip(np.nan_to_num(call.input(0)), 0, 1)
    return call.node.evaluate({call.node.proto.input[0]: share})


@MULTINOMIAL.host_kernel
def _run_multinomial(call: HostCall) -> Sequence[Array]:
    """``sample_size`` classes for each row; the evaluator has no such operator."""
    rows, seed, dtype = call.input(0).astype(np.float64), call.option("seed"), dtype_of(int(call.option("dtype", INT32)))
    sums = np.exp(rows - rows.max(axis=1, keepdims=True)).cumsum(axis=1)
    draws = np.random.default_rng(None if seed is None else np.float32(seed).view(np.uint32)).random(
        (len(rows), int(call.option("sample_size", 1)))
    )
    classes = [np.searchsorted(row, draw * row[-1], side="right") for row, draw in zip(sums, draws, strict=True)]
    return [np.stack(classes).astype(dtype) if classes else np.zeros(draws.shape, dtype)]

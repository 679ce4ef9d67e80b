"""TFLite's quantised mean by a compiled kernel is equal to its reference bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.routines import routine
from nnbridge.operations.integer_mean import IntegerMean
from tests.graphs import argument


def mean_of(
    dims: tuple[int, ...], axes: tuple[int, ...], scales: tuple[float, float], points: tuple[int, int], kind: str
) -> IntegerMean:
    """A mean that keeps its axes."""
    left = tuple(1 if i in axes else d for i, d in enumerate(dims))
    x, out = (argument(d, kind, s, z) for d, s, z in zip((dims, left), scales, points, strict=True))
    return IntegerMean([x], [out], axes, keep=True)


def test_sums_are_rescaled_and_rounded() -> None:
    mean = mean_of((1, 2, 2, 1), (1, 2), (0.5, 0.25), (1, -2), "i1")
    # Half of 3 + 4 + 5 + 7 less 4 zero points of 1 is 7.5, a quarter of it 1.875, which is 7.5 steps of 0.25: away from zero.
    assert mean([np.array([3, 4, 5, 7], np.int8)])[0].tolist() == [[[[6]]]]


@pytest.mark.parametrize("seed", range(12))
def test_equal_to_the_reference(isa: InstructionSet, seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = "i1" if seed % 2 else "u1"
    limits = np.iinfo(kind)
    dims = tuple(int(d) for d in rng.integers(1, (4, 9, 9, 140)))
    first = int(rng.integers(0, 4))
    axes = tuple(range(first, int(rng.integers(first, 4)) + 1))
    # Left shifts and sums that saturate are among these.
    scales = float(10 ** rng.uniform(-3, 1)), float(10 ** rng.uniform(-3, 1))
    points = int(rng.integers(limits.min, limits.max + 1)), int(rng.integers(limits.min, limits.max + 1))
    mean = mean_of(dims, axes, scales, points, kind)
    compiled = routine(mean, instructions=isa)
    assert compiled is not None
    x = rng.integers(limits.min, limits.max + 1, dims).astype(kind)
    np.testing.assert_array_equal(compiled([x])[0], mean([x])[0])

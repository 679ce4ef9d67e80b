"""Random networks through the runtime: both tiers, threads, bound runs and batches give the same answers."""

from __future__ import annotations

import numpy as np
import pytest

from nnbridge import Compilation, Execution, Model
from nnbridge.runtime.batches import Batches
from nnbridge.types import OperandCode
from tests.compiled.models import F32, I8, U8, random_data
from tests.compiled.test_random_networks import Network


def finished(model: Model, kernels: str, threads: int = 1) -> Compilation:
    """A finished compilation on the CPU."""
    compilation = Compilation.create(model, [], kernels=kernels)
    compilation.threads = threads
    compilation.finish()
    return compilation


@pytest.mark.parametrize("kind", [F32, U8, I8], ids=lambda kind: kind.name)
def test_both_tiers_and_all_ways_to_run_agree(kind: OperandCode) -> None:
    for seed in range(1000, 1008):
        model = Network(seed, kind).finish()
        if model is None:
            continue
        dims = model.main.operands[model.main.inputs[0]].dims
        several = random_data(np.random.default_rng(seed), kind, (3 * dims[0], *dims[1:]))
        parts = [several[k * dims[0] : (k + 1) * dims[0]] for k in range(3)]
        compiled, reference = finished(model, "compiled", threads=2), finished(model, "reference")
        answers = [list(Execution(compiled).run([part]).values()) for part in parts]
        for part, answer in zip(parts, answers, strict=True):
            for found, expected in zip(answer, Execution(reference).run([part]).values(), strict=True):
                assert_alike(found, expected, kind)
        name = next(iter(Batches(compiled)._inputs))
        for k, batch in enumerate(Batches(compiled).run({name: several}).values()):
            # The same kernels on the same values: floats are the same as well.
            np.testing.assert_array_equal(batch, np.concatenate([answer[k] for answer in answers]))


def assert_alike(found: np.ndarray, expected: np.ndarray, kind: OperandCode) -> None:
    """Bit for bit in integers; errors of floats add up from operation to operation."""
    if kind == F32:
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * (1 + float(np.abs(expected).max())))
    else:
        np.testing.assert_array_equal(found, expected)

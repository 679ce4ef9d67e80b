"""Android's conformance cases on compiled programs, against the reference kernels: bit for bit in integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnbridge.conformance.cases import build, inputs_of, read_cases, spec_files
from nnbridge.cpu.compiled.instructions import InstructionSet, chosen, host_sets
from nnbridge.errors import NnapiError
from nnbridge.types import OperationCode
from tests.compiled.hybrid import Hybrid
from tests.compiled.models import assert_same

EVERY_FORM = (
    "conv",
    "depthwise",
    "fully_connected",
    "avg_pool",
    "max_pool",
    "softmax",
    "mul",
    "add_quant",
    "grouped",
    "batch_matmul",
    "reduce_sum",
    "reduce_prod",
    "quantize",
)
"""Specs that are run in every instruction set; the others on the best one."""


WHOLE = [
    "REDUCE_MAX",
    "REDUCE_MIN",
    "REDUCE_SUM",
    "REDUCE_PROD",
    "REDUCE_ANY",
    "REDUCE_ALL",
    "MEAN",
    "SOFTMAX",
    "BATCH_MATMUL",
    "SVDF",
    "CONV_2D",
    "DEPTHWISE_CONV_2D",
    "GROUPED_CONV_2D",
    "TRANSPOSE_CONV_2D",
    "FULLY_CONNECTED",
    "AVERAGE_POOL_2D",
    "MAX_POOL_2D",
    "L2_POOL_2D",
    "RESIZE_BILINEAR",
]
"""Operations that are compiled in all layouts and types."""
ALLOWED = ("requires constant parameters", "requires a bias scale", "requires an output scale")
"""Why the reference tier computes some of them all the same."""


def run_spec(path: Path, isa: InstructionSet) -> int:
    """The number of operations that were compiled for a spec's cases; all outputs are compared."""
    compiled = 0
    for case in read_cases(path):
        if case.expects_failure:
            continue
        try:
            model, inputs = build(case), inputs_of(case)
            hybrid = Hybrid(model, isa)
            expected = None if any(x is None for x in inputs) or not hybrid.plan.programs else hybrid.reference(inputs)
        except (NnapiError, ValueError):
            # Refused, or of dimensions that only the run knows.
            continue
        for index, reason in hybrid.plan.left.items():
            name = OperationCode(model.main.operations[index].type).name
            assert name not in WHOLE or reason.startswith(ALLOWED), f"{path.name}: {name} {reason}"
        if expected is None:
            continue
        compiled += len(hybrid.plan.covered)
        with np.errstate(invalid="ignore"):
            for found, reference in zip(hybrid.run(inputs), expected, strict=True):
                assert_same(found, reference)
    return compiled


def test_every_case(cases: Path) -> None:
    compiled = sum(run_spec(path, chosen()) for path in spec_files(cases))
    assert compiled > 7000, f"{compiled} operations were compiled"


@pytest.mark.parametrize("name", EVERY_FORM)
def test_every_instruction_set(cases: Path, name: str) -> None:
    for isa in host_sets()[1:]:
        assert sum(run_spec(path, isa) for path in spec_files(cases) if path.name.startswith(name)) > 0

"""Every operator that is lowered, as a file of its own, against LiteRT's reference kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnbridge.compare import named_inputs, named_outputs, seeded_inputs, sign_flipped
from tests.tflite.agreement import converted, differences, litert, run
from tests.tflite.cases import Case, cases

CASES = [
    pytest.param(case, type, id=f"{case.operator}-{type}-{case.variant}".rstrip("-")) for case in cases() for type in case.types
]


@pytest.mark.parametrize("calls", [2, 3])
@pytest.mark.parametrize("name", ["RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL"])
def test_streams_of_random_numbers_go_on(name: str, calls: int, tmp_path: Path) -> None:
    case = next(case for case in cases() if case.operator == name)
    found, _ = differences(case.write(tmp_path, case.types[0]), calls=calls)
    assert max(found) < 1e-6


SIGNED_ON_THE_HOST = ("FLOOR_DIV", "FLOOR_MOD", "RESIZE_BILINEAR", "CAST", "BITWISE_XOR")


@pytest.mark.parametrize("case", [case for case in cases() if case.operator in SIGNED_ON_THE_HOST and "int8" in case.types])
def test_the_host_computes_int8_that_android_10_has_as_uint8(case: Case, tmp_path: Path) -> None:
    path = case.write(tmp_path, "int8")
    model, (outcome,) = converted(path, mapping="delegate", feature_level=3)
    inputs = seeded_inputs(model, 0)
    if outcome.mapping != "host":
        pytest.skip("NNAPI computes it")
    flipped = [sign_flipped(operand, inputs[name]) for name, operand in named_inputs(model).items()]
    (operand,), (expected,) = named_outputs(model).values(), litert(path, flipped, case.kernels)
    assert np.array_equal(sign_flipped(operand, run(model, inputs)[0]), expected)


@pytest.mark.parametrize(("case", "type"), CASES)
def test_operator_agrees_with_litert(case: Case, type: str, tmp_path: Path) -> None:
    path = case.write(tmp_path, type)
    found, placements = differences(path, kernels=case.kernels)
    assert [p.mapping for p in placements] == [case.place(type)], placements
    integer = type not in ("float32",) or case.exact
    for difference in found:
        assert difference <= (0 if case.exact else case.steps if integer else case.tolerance)

"""8-bit LOGISTIC and TANH beyond the inputs that NNAPI's fixed point has."""

from __future__ import annotations

import pytest

from nnbridge.types import OperationCode
from tests.operations.calls import U8, output, run, tensor


@pytest.mark.parametrize(("name", "scale", "zero_point"), [("LOGISTIC", 1 / 256, 0), ("TANH", 1 / 128, 128)])
@pytest.mark.parametrize(("step", "of_zero"), [(7.9, 128), (8.0, 0), (300.0, 0)])
def test_zero_is_minus_infinity_from_steps_of_8_on(name: str, scale: float, zero_point: int, step: float, of_zero: int) -> None:
    # Facts N44 and N45: the radius is floor(15 / 2**k) steps of a scale below 2**k, and -radius has the lowest value already.
    x = tensor([9, 10, 11], U8, scale=step, zero_point=10)
    [y] = run(OperationCode[name], [x], output(U8, scale=scale, zero_point=zero_point))
    assert y.tolist() == [0, of_zero, 255]

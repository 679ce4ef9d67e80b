"""Dimensions left open in the model and given at execution: every pairing of TestUnspecifiedDimensions."""

from __future__ import annotations

import numpy as np
import pytest

from nnbridge.errors import BadDataError
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.types import OperationCode
from tests.graphs import unary_chain

X = np.array([[-1.5, 0.5], [1.5, 2.5]], np.float32)
MODEL = {"known": (2, 2), "dimension": (0, 2), "rank": ()}
GIVEN = {"known": (2, 2), "dimension": (2, 0), "rank": (), "no type": None}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("declared", MODEL)
def test_an_input_is_known_from_the_model_and_the_execution_together(declared: str, given: str) -> None:
    model, dims, out = MODEL[declared], GIVEN[given], np.zeros(4, np.float32)
    compilation = Compilation.create(unary_chain(OperationCode.FLOOR, dims=model), [])
    compilation.finish()
    execution = Execution(compilation)
    # What the model fixes must be repeated (fact E8), and nothing may stay open (fact E9).
    if given == "known" or (declared, given) == ("known", "no type"):
        execution.set_input_buffer(0, X, dims)
        execution.set_output(0, out)
        execution.compute()
        assert out.tolist() == [-2, 0, 1, 2]
        assert execution.output_dims(0) == (2, 2)
    else:
        with pytest.raises(BadDataError):
            execution.set_input_buffer(0, X, dims)


@pytest.mark.parametrize("dims", [(3, 2), (2, 3), (2, 2, 1)])
def test_bad_dimensions_are_refused_at_execution(dims: tuple[int, ...]) -> None:
    compilation = Compilation.create(unary_chain(OperationCode.FLOOR, dims=(2, 2)), [])
    compilation.finish()
    execution = Execution(compilation)
    with pytest.raises(BadDataError):
        execution.set_input_buffer(0, X, dims)
    with pytest.raises(BadDataError):
        execution.set_output(0, np.zeros(4, np.float32), dims)

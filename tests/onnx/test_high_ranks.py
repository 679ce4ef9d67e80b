"""Values of more than four axes, which NNAPI makes by RESHAPE and otherwise does not take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnbridge.file import load
from nnbridge.types import OperationCode, is_extension
from tests.onnx.test_convert import agrees, helper, model

C = OperationCode


@pytest.mark.parametrize(
    "order",
    [(2, 0, 3, 1, 4), (0, 2, 1, 3, 4), (4, 3, 2, 1, 0), (0, 1, 2, 3, 4), (3, 4, 0, 1, 2)],
    ids=lambda order: "".join(map(str, order)),
)
def test_five_axes_are_transposed_in_groups_that_stay_together(order: tuple[int, ...], tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["x", "five"], ["r"]), helper.make_node("Transpose", ["r"], ["y"], perm=order)]
    path = model(tmp_path, nodes, [1, 6, 20], {"five": np.array([1, 2, 3, 4, 5])})
    assert not any(is_extension(operation.type) for operation in load(path).main.operations)
    assert agrees(path)


@pytest.mark.parametrize("axis", [0, 2, 4])
@pytest.mark.parametrize("places", [1, [1, 0]])
def test_five_axes_are_gathered_from_as_three(axis: int, places: int | list[int], tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["x", "five"], ["r"]), helper.make_node("Gather", ["r", "places"], ["y"], axis=axis)]
    path = model(tmp_path, nodes, [2, 3, 12], {"five": np.array([2, 3, 2, 3, 2]), "places": np.array(places)})
    assert not any(is_extension(operation.type) for operation in load(path).main.operations)
    assert agrees(path)


def test_queries_keys_and_values_of_attention_stay_on_nnapi(tmp_path: Path) -> None:
    # As exporters write them: [batch, length, 3, heads, width] transposed to [3, batch, heads, length, width] and taken apart.
    nodes = [
        helper.make_node("Reshape", ["x", "five"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[2, 0, 3, 1, 4]),
        helper.make_node("Gather", ["t", "first"], ["q"], axis=0),
        helper.make_node("Gather", ["t", "second"], ["k"], axis=0),
        helper.make_node("Sub", ["q", "k"], ["y"]),
    ]
    constants = {"five": np.array([1, 5, 3, 2, 4]), "first": np.array(0), "second": np.array(1)}
    path = model(tmp_path, nodes, [1, 5, 24], constants)
    codes = [operation.type for operation in load(path).main.operations]
    assert codes.count(C.TRANSPOSE) == 1
    assert set(codes) == {C.RESHAPE, C.TRANSPOSE, C.GATHER, C.SUB}
    assert agrees(path)

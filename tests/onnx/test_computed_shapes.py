"""Shapes that are computed, but decided by folding and inference, leave an operator to NNAPI; what only a run knows does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge import Compilation, Execution, load
from nnbridge.converters import ConversionOptions
from tests.commands import call

onnx = pytest.importorskip("onnx")

from onnx import helper, numpy_helper  # noqa: E402

from nnbridge_onnx.passes.conversion import convert_proto  # noqa: E402

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
N = helper.make_node


def made(nodes: Sequence[Any], shape: Sequence[Any], constants: Mapping[str, Any], inputs: Sequence[Any] = ()) -> Any:
    """A model from ``x`` to ``y``."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, shape), *inputs],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def operations(model: Any) -> list[str]:
    return [model.operation_name(operation) for operation in model.main.operations]


ROWS = [N("Shape", ["x"], ["s"]), N("Slice", ["s", "zero", "one"], ["n"]), N("Concat", ["n", "rest"], ["to"], axis=0)]
ROW_CONSTANTS = {"zero": np.int64([0]), "one": np.int64([1]), "rest": np.int64([-1])}


@pytest.mark.parametrize("batch", [2, "n"])
def test_a_reshape_to_rows_is_nnapi_s_for_a_fixed_and_for_an_open_batch(batch: Any) -> None:
    rest = {**ROW_CONSTANTS, "rest": np.int64([12])}
    model = convert_proto(made([*ROWS, N("Reshape", ["x", "to"], ["y"])], [batch, 3, 4], rest))[0]
    assert operations(model) == ["RESHAPE"]
    compilation = Compilation.create(model, [])
    compilation.finish()
    assert Execution(compilation).run([np.zeros((2, 3, 4), np.float32)])["y"].shape == (2, 12)


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ([N("Unsqueeze", ["x", "a"], ["y"])], {"a": np.int64([2])}),
        ([N("Squeeze", ["x", "a"], ["y"])], {"a": np.int64([1])}),
        ([N("Flatten", ["x"], ["y"])], {}),
        ([N("Reshape", ["x", "a"], ["y"])], {"a": np.int64([0, -1])}),
    ],
)
def test_one_open_dimension_is_left_for_nnapi_to_compute(nodes: Any, constants: Any) -> None:
    assert operations(convert_proto(made(nodes, ["n", 1, 3], constants))[0]) == ["RESHAPE"]


def test_a_reshape_to_a_computed_value_that_folding_does_not_know_runs_on_the_host() -> None:
    shape = helper.make_tensor_value_info("s", INT64, [2])
    assert operations(convert_proto(made([N("Reshape", ["x", "s"], ["y"])], [2, 3], {}, [shape]))[0]) == ["ai.onnx#147"]


def resized(scale: float, size: int, **attributes: Any) -> list[str]:
    scales = np.float32([1, 1, scale, 1])
    options = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", **attributes}
    node = N("Resize", ["x", "", "k"], ["y"], **options)
    return operations(convert_proto(made([node], ["n", 3, size, 4], {"k": scales}))[0])


def test_a_resize_to_nearest_pixels_is_nnapi_s_for_an_open_batch() -> None:
    assert resized(2, 4) == ["TRANSPOSE", "RESIZE_NEAREST_NEIGHBOR", "TRANSPOSE"]


def test_a_resize_whose_pixels_nnapi_s_float32_factor_misses_is_not_its() -> None:
    # 41 * float32(2 / 82) is below 1: NNAPI repeats pixel 0 once more.
    assert "RESIZE_NEAREST_NEIGHBOR" not in resized(41, 2)


def test_an_input_of_any_shape_is_converted_and_takes_dimensions_that_are_stated(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    graph = helper.make_graph(
        [N("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", FLOAT, None)],
        [helper.make_tensor_value_info("y", FLOAT, ["n"])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    assert load(path).main.operands[0].dims == ()
    assert load(path, ConversionOptions(shapes={"x": (2,)})).main.operands[0].dims == (2,)


def test_a_failure_on_random_inputs_states_the_open_dimensions(tmp_path: Path) -> None:
    constants = {"w": np.ones((2, 3, 3, 3), np.float32)}
    onnx.save(made([N("Conv", ["x", "w"], ["y"])], ["n", 3, "h", 8], constants), tmp_path / "m.onnx")
    result = call("run", tmp_path / "m.onnx", "--seed", "0")
    assert result.exit_code == 2
    assert "input x leaves dimensions 0, 2 of [?, 3, ?, 8] open and 1 was used: state it with --shape x=N,3,N,8" in result.output

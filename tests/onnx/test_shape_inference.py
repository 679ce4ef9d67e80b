"""Shapes that follow from folded constants, and branches that are always taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnbridge.types import OperationCode

onnx = pytest.importorskip("onnx")

from nnbridge_onnx import backend  # noqa: E402
from nnbridge_onnx.passes.conversion import convert_proto  # noqa: E402

helper, FLOAT, INT64, BOOL = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
C = OperationCode


def model(nodes: list[Any], dims: list[int], constants: dict[str, Any]) -> Any:
    """A model from x to y."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, dims)],
        [helper.make_tensor_value_info("y", FLOAT, [None] * len(dims))],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def branch(nodes: list[Any], output: str = "r", **constants: Any) -> Any:
    """A branch of If with one result."""
    tensors = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    return helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info(output, FLOAT, None)], tensors)


def choice(condition: str, output: str, then: Any, other: Any) -> Any:
    return helper.make_node("If", [condition], [output], then_branch=then, else_branch=other)


def codes(made: Any) -> list[int]:
    """The operations that a model becomes."""
    return [operation.type for operation in convert_proto(made)[0].main.operations]


def scaled(factor: float) -> Any:
    return branch([helper.make_node("Mul", ["x", "f"], ["r"])], f=np.float32(factor))


def test_dimensions_that_folded_constants_decide_are_known_behind_them() -> None:
    # Padding that inference does not follow: ConstantOfShape, Concat, Reshape, Slice backwards.
    nodes = [
        helper.make_node("ConstantOfShape", ["two"], ["zeros"], value=onnx.numpy_helper.from_array(np.array([0], np.int64))),
        helper.make_node("Concat", ["zeros", "ends"], ["flat"], axis=0),
        helper.make_node("Reshape", ["flat", "square"], ["pairs"]),
        helper.make_node("Transpose", ["pairs"], ["transposed"], perm=[1, 0]),
        helper.make_node("Reshape", ["transposed", "all"], ["pads"]),
        helper.make_node("Pad", ["x", "pads"], ["p"]),
        helper.make_node("Shape", ["p"], ["s"]),
        helper.make_node("Slice", ["s", "one", "two"], ["width"]),
        helper.make_node("Concat", ["width", "one"], ["dims"], axis=0),
        helper.make_node("Reshape", ["p", "dims"], ["y"]),
    ]
    constants = {
        name: np.array(v) for name, v in (("two", [2]), ("ends", [0, 3]), ("square", [2, 2]), ("all", [-1]), ("one", [1]))
    }
    assert codes(model(nodes, [1, 4], constants)) == [C.PAD_V2, C.RESHAPE]


@pytest.mark.parametrize(("condition", "expected"), [(True, 6.0), (False, 15.0)])
def test_a_branch_that_is_always_taken_stands_in_place_of_if(condition: bool, expected: float) -> None:
    made = model([choice("c", "y", scaled(2), scaled(5))], [1], {"c": np.array(condition)})
    assert codes(made) == [C.MUL]
    assert backend.run_model(made, [np.float32([3])])[0] == [expected]


def test_a_condition_on_a_known_shape_is_known() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "first"], ["n"]),
        helper.make_node("Equal", ["n", "three"], ["c"]),
        choice("c", "y", scaled(2), scaled(5)),
    ]
    assert codes(model(nodes, [3, 2], {"first": np.array(0), "three": np.array(3)})) == [C.MUL]


def test_branches_that_name_their_values_alike_do_not_meet() -> None:
    nodes = [
        choice("c", "a", scaled(2), scaled(5)),
        choice("c", "b", scaled(7), scaled(5)),
        helper.make_node("Sub", ["b", "a"], ["y"]),
    ]
    made = model(nodes, [1], {"c": np.array(True)})
    assert backend.run_model(made, [np.float32([3])])[0] == [15.0]


def test_a_branch_in_a_branch() -> None:
    inner = branch([helper.make_node("Mul", ["x", "f"], ["m"]), choice("c", "r", hidden("m"), scaled(5))], f=np.float32(2))
    made = model([choice("c", "y", inner, scaled(5))], [1], {"c": np.array(True)})
    assert codes(made) == [C.MUL, C.NEG]
    assert backend.run_model(made, [np.float32([3])])[0] == [-6.0]


def hidden(captured: str) -> Any:
    return branch([helper.make_node("Neg", [captured], ["r"])])


def test_a_loop_in_a_branch_still_reads_the_branch_s_values() -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["state", "m"], ["next"])],
        "body",
        [helper.make_tensor_value_info(n, t, d) for n, t, d in (("i", INT64, []), ("go", BOOL, []), ("state", FLOAT, [1]))],
        [helper.make_tensor_value_info(n, t, d) for n, t, d in (("on", BOOL, []), ("next", FLOAT, [1]))],
    )
    nodes = [helper.make_node("Mul", ["x", "f"], ["m"]), helper.make_node("Loop", ["three", "", "x"], ["r"], body=body)]
    made = model([choice("c", "y", branch(nodes, f=np.float32(2)), scaled(5))], [1], {"c": np.array(True), "three": np.array(3)})
    assert backend.run_model(made, [np.float32([3])])[0] == [21.0]


def test_a_branch_may_give_a_constant_of_its_own() -> None:
    nodes = [choice("c", "a", branch([], "k", k=np.float32([4])), scaled(5)), helper.make_node("Mul", ["x", "a"], ["y"])]
    made = model(nodes, [1], {"c": np.array(True)})
    assert codes(made) == [C.MUL]
    assert backend.run_model(made, [np.float32([3])])[0] == [12.0]


def test_the_model_that_was_passed_stays_as_it_is() -> None:
    made = model([choice("c", "y", scaled(2), scaled(5))], [1], {"c": np.array(True)})
    before = made.SerializeToString(deterministic=True)
    convert_proto(made)
    assert made.SerializeToString(deterministic=True) == before


def test_a_spectrum_has_one_side_by_default() -> None:
    constants = {"step": np.array(4), "window": np.ones(8, np.float32)}
    made = model([helper.make_node("STFT", ["x", "step", "window"], ["y"])], [1, 32, 1], constants)
    del made.graph.output[0].type.tensor_type.shape.dim[:]
    made.graph.output[0].type.tensor_type.shape.dim.extend([onnx.TensorShapeProto.Dimension() for _ in range(4)])
    assert backend.run_model(made, [np.ones((1, 32, 1), np.float32)])[0].shape == (1, 7, 5, 2)


def test_a_declaration_that_inference_contradicts_does_not_count() -> None:
    made = model([helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Erf", ["h"], ["y"])], [2, 3], {})
    made.graph.value_info.append(helper.make_tensor_value_info("h", FLOAT, [5, 5]))
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, [7, 2, 3]))
    assert backend.run_model(made, [np.ones((2, 3), np.float32)])[0].shape == (2, 3)


def test_values_decide_over_declared_dimensions() -> None:
    # The file says [2, 3]; what the shape's numbers say at execution counts, and what follows from it as well.
    nodes = [helper.make_node("Expand", ["x", "shape"], ["wide"]), helper.make_node("Neg", ["wide"], ["y"])]
    made = model(nodes, [1], {})
    made.graph.input.append(helper.make_tensor_value_info("shape", INT64, [2]))
    made.graph.value_info.append(helper.make_tensor_value_info("wide", FLOAT, [2, 3]))
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, [2, 3]))
    assert backend.run_model(made, [np.float32([3]), np.array([4, 2])])[0].tolist() == [[-3.0, -3.0]] * 4


def test_declarations_complete_what_inference_leaves_open() -> None:
    nodes = [helper.make_node("Foo", ["x"], ["h"], domain="my.domain"), helper.make_node("Relu", ["h"], ["y"])]
    made = model(nodes, [2], {})
    made.opset_import.append(helper.make_opsetid("my.domain", 1))
    made.graph.value_info.append(helper.make_tensor_value_info("h", FLOAT, [3, 4]))
    converted = convert_proto(made)[0]
    assert converted.main.operands[converted.main.outputs[0]].dims == (3, 4)

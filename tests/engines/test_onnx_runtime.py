"""Nodes that stay with ONNX Runtime, by its own kernels: what `--host onnxruntime` computes is what a session on its CPU does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge import Compilation, Execution, devices
from nnbridge.converters import ConversionOptions
from nnbridge.converters.hosted import Piece
from nnbridge.engines import host_for
from nnbridge.engines.onnx_runtime import OnnxRuntimeEngine
from nnbridge.file import ModelFile, load
from nnbridge.runtime.compilation import PartitioningMode
from tests.provider.sessions import Array, alone, model, needs, node, session

needs()

RNG = np.random.default_rng(0)
IMAGE = RNG.standard_normal((1, 3, 8, 8)).astype(np.float32)


def hosted(path: Path, data: bytes, feeds: dict[str, Array], *, level: int = 8, mapping: str = "provider") -> list[Array]:
    """The outputs with ONNX Runtime as the host, on NNAPI's CPU."""
    path.write_bytes(data)
    asked = ConversionOptions(level, mapping=mapping)
    found = load(path, asked)
    compilation = Compilation.create(found, host_for("onnxruntime", ModelFile(path, asked)), PartitioningMode.WITHOUT_FALLBACK)
    compilation.finish()
    assert "host" in {compilation.plan.devices[step.device].name for step in compilation.plan.steps}
    return list(Execution(compilation).run(list(feeds.values())).values())


def same(ours: list[Array], theirs: list[Array]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(ours, theirs, strict=True))


def convolution(**settings: Any) -> bytes:
    """A convolution and a normalisation, which the optimiser may make one."""
    constants = {"w": RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)}
    constants |= {name: RNG.random(4).astype(np.float32) + 0.5 for name in ("scale", "bias", "mean", "variance")}
    nodes = [node("Conv", "x w", "c", group=1), node("BatchNormalization", "c scale bias mean variance", "y")]
    return model(nodes, {"x": IMAGE.shape}, ["y"], constants, **settings)


def test_constants_that_a_caller_may_replace_are_not_fused(tmp_path: Path) -> None:
    """From IR version 4 on an initialiser that is an input, too, is no constant to the provider or to the optimiser."""
    data = convolution(ir=8, overridable=True)
    assert same(hosted(tmp_path / "m.onnx", data, {"x": IMAGE}), alone(data, {"x": IMAGE}))


def test_values_in_other_types_and_layouts_are_converted_around_the_nodes(tmp_path: Path) -> None:
    """Between NNAPI's operations and nodes of the host stand casts and transposes that the file does not have."""
    nodes = [
        node("MaxPool", "x", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Hardmax", "p", "e"),
        node("ArgMax", "e", "i", axis=1),
        node("Cast", "i", "y", to=1),
    ]
    data = model(nodes, {"x": IMAGE.shape}, ["e", "y"])
    assert same(hosted(tmp_path / "m.onnx", data, {"x": IMAGE}, mapping="wide"), alone(data, {"x": IMAGE}))


def test_bodies_read_values_from_outside(tmp_path: Path) -> None:
    from onnx import helper

    def body(operator: str) -> Any:
        out = helper.make_tensor_value_info(operator, 1, [2, 3])
        return helper.make_graph([helper.make_node(operator, ["a"], [operator])], operator, [], [out])

    nodes = [
        node("Erf", "x", "a"),
        node("ReduceMax", "x", "m", keepdims=0),
        node("Greater", "m zero", "c"),
        node("If", "c", "y", then_branch=body("Sinh"), else_branch=body("Cosh")),
    ]
    data = model(nodes, {"x": [2, 3]}, ["y"], {"zero": np.array(0, np.float32)})
    for x in (RNG.random((2, 3)).astype(np.float32), -RNG.random((2, 3)).astype(np.float32)):
        assert same(hosted(tmp_path / "m.onnx", data, {"x": x}), alone(data, {"x": x}))


def test_between_partitions_of_a_device(tmp_path: Path) -> None:
    data = model([node("Relu", "x", "r"), node("Erf", "r", "e"), node("Relu", "e", "y")], {"x": [2, 3]}, ["y"])
    (tmp_path / "m.onnx").write_bytes(data)
    asked = ConversionOptions(mapping="provider")
    target = [devices.device("nnapi-sample_all"), *host_for("onnxruntime", ModelFile(tmp_path / "m.onnx", asked))]
    compilation = Compilation.create_for_devices(load(tmp_path / "m.onnx", asked), target)
    steps = compilation.finish().steps
    assert [compilation.devices[step.device].name for step in steps] == ["nnapi-sample_all", "host", "nnapi-sample_all"]
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    assert same(list(Execution(compilation).run([x]).values()), alone(data, {"x": x}))


def test_inputs_that_the_importer_narrowed(tmp_path: Path) -> None:
    data = model([node("Floor", "x", "e"), node("Exp", "e", "y")], {"x": [4]}, ["y"], dtype="float64")
    x = RNG.standard_normal(4)
    assert same(hosted(tmp_path / "m.onnx", data, {"x": x}), alone(data, {"x": x}))


@pytest.mark.parametrize("name", ["Gelu", "FusedMatMul"])
def test_operators_of_com_microsoft_that_the_importer_writes_out(name: str, tmp_path: Path) -> None:
    import onnx
    from onnx import helper

    made = helper.make_node(name, ["x"] if name == "Gelu" else ["x", "x"], ["g"], name="g", domain="com.microsoft")
    nodes = [made, helper.make_node("Erf", ["g"], ["y"], name="y")]
    ends = [[helper.make_tensor_value_info(n, 1, [3, 3])] for n in "xy"]
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    data = helper.make_model(helper.make_graph(nodes, "m", *ends), opset_imports=opsets, ir_version=8).SerializeToString()
    onnx.checker.check_model(data)
    x = RNG.standard_normal((3, 3)).astype(np.float32)
    (ours,), (theirs,) = hosted(tmp_path / "m.onnx", data, {"x": x}), alone(data, {"x": x})
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_a_branch_that_the_importer_chose(tmp_path: Path) -> None:
    """The nodes of an If of a constant condition stand in its place, as ONNX Runtime has them."""
    from onnx import helper

    def body(operator: str) -> Any:
        nodes = [helper.make_node(operator, ["a"], ["inner"]), helper.make_node("Sinh", ["inner"], [operator])]
        return helper.make_graph(nodes, operator, [], [helper.make_tensor_value_info(operator, 1, [2, 3])])

    nodes = [node("Abs", "x", "a"), node("If", "c", "y", then_branch=body("Erf"), else_branch=body("Cosh"))]
    data = model(nodes, {"x": [2, 3]}, ["y"], {"c": np.array(True)})
    x = RNG.random((2, 3)).astype(np.float32)
    assert same(hosted(tmp_path / "m.onnx", data, {"x": x}), alone(data, {"x": x}))


def test_weights_are_dequantised_where_the_file_does(tmp_path: Path) -> None:
    """ONNX Runtime makes one integer operator of the nodes between DequantizeLinear and QuantizeLinear."""
    scales = (RNG.random(64) * 0.01 + 0.001).astype(np.float32)  # by channel: the provider leaves such a Gemm
    constants: dict[str, Array] = {"w": RNG.integers(-127, 128, (256, 64), np.int8), "scales": scales}
    constants |= {"zeros": np.zeros(64, np.int8), "zero": np.array(128, np.uint8), "step": np.array(0.05, np.float32)}
    nodes = [
        node("QuantizeLinear", "x step zero", "q"),
        node("DequantizeLinear", "q step zero", "d"),
        node("DequantizeLinear", "w scales zeros", "v", axis=1),
        node("Gemm", "d v", "g"),
        node("QuantizeLinear", "g step zero", "r"),
        node("DequantizeLinear", "r step zero", "y"),
    ]
    data = model(nodes, {"x": (64, 256)}, ["y"], constants)
    x = RNG.standard_normal((64, 256)).astype(np.float32)
    assert same(hosted(tmp_path / "m.onnx", data, {"x": x}), alone(data, {"x": x}))


def test_a_node_runs_with_those_that_read_it(tmp_path: Path) -> None:
    """The second product is one integer operator, although what it reads first is known before NNAPI's answer."""
    constants: dict[str, Array] = {"step": np.array(0.3, np.float32), "zero": np.array(100, np.uint8)}
    constants |= {"fine": np.array(0.05, np.float32), "coarse": np.array(4, np.float32)}
    nodes = [
        node("QuantizeLinear", "x fine zero", "q"),
        node("DequantizeLinear", "q fine zero", "a"),
        node("DequantizeLinear", "q fine zero", "b"),
        node("MatMul", "a b", "product"),
        node("QuantizeLinear", "product step zero", "p"),
        node("DequantizeLinear", "p step zero", "c"),
        node("DequantizeLinear", "p step zero", "d"),
        node("AveragePool", "d", "mean", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),  # NNAPI's
        node("QuantizeLinear", "mean step zero", "m"),
        node("DequantizeLinear", "m step zero", "e"),
        node("MatMul", "c e", "second"),
        node("QuantizeLinear", "second coarse zero", "s"),
        node("DequantizeLinear", "s coarse zero", "y"),
    ]
    data = model(nodes, {"x": (1, 4, 64, 64)}, ["y"], constants)
    x = RNG.standard_normal((1, 4, 64, 64)).astype(np.float32)
    assert same(hosted(tmp_path / "m.onnx", data, {"x": x}), session(data, "nnapi-reference").run(None, {"x": x}))


def _scan_of_rows() -> tuple[list[Any], list[Any]]:
    """A Scan of two rows, which the importer writes out: Hardmax of each."""
    from onnx import helper

    ends = [helper.make_tensor_value_info(name, 1, [3]) for name in ("state", "row", "next", "left")]
    body = helper.make_graph(
        [helper.make_node("Add", ["state", "row"], ["next"]), helper.make_node("Hardmax", ["row"], ["left"])],
        "b",
        ends[:2],
        ends[2:],
    )
    scan = helper.make_node("Scan", ["start", "x"], ["last", "rows"], body=body, num_scan_inputs=1)
    return [scan, helper.make_node("Add", ["last", "rows"], ["y"])], []


def _loop_of_iterations() -> tuple[list[Any], list[Any]]:
    from onnx import helper

    value, number, flag = ((name, type, dims) for name, type, dims in (("v", 1, [2, 3]), ("i", 7, []), ("c", 9, [])))
    inner = [
        helper.make_node("Hardmax", ["v"], ["e"]),
        helper.make_node("Relu", ["e"], ["w"]),
        helper.make_node("Identity", ["c"], ["d"]),
    ]
    starts = [helper.make_tensor_value_info(*one) for one in (number, flag, value)]
    ends = [helper.make_tensor_value_info("d", 9, []), helper.make_tensor_value_info("w", 1, [2, 3])]
    return [helper.make_node("Loop", ["two", "", "x"], ["y"], body=helper.make_graph(inner, "b", starts, ends))], []


def _call(*inner: Any, attribute: Any = None) -> tuple[list[Any], list[Any]]:
    """A function of the file that is called twice."""
    from onnx import helper

    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "F", ["a"], ["b"], list(inner), opsets, [attribute] if attribute else [])
    more = {attribute: 0.25} if attribute else {}
    calls = [helper.make_node("F", ["x"], ["m"], domain="own", **more), helper.make_node("F", ["m"], ["y"], domain="own", **more)]
    return calls, [function]


def _function() -> tuple[list[Any], list[Any]]:
    return _call(node("Relu", "a", "r"), node("Hardmax", "r", "e"), node("Add", "e a", "b"))


def _function_with_a_constant() -> tuple[list[Any], list[Any]]:
    from onnx import numpy_helper

    value = numpy_helper.from_array(np.array([0.5], np.float32))
    return _call(
        node("Constant", "", "k", value=value), node("Add", "a k", "s"), node("Hardmax", "s", "e"), node("Add", "e a", "b")
    )


def _function_with_an_attribute() -> tuple[list[Any], list[Any]]:
    from onnx import AttributeProto

    made = node("Celu", "r", "e")
    made.attribute.append(AttributeProto(name="alpha", ref_attr_name="slope", type=AttributeProto.FLOAT))
    return _call(node("Relu", "a", "r"), made, node("Hardmax", "e", "f"), node("Add", "f e", "b"), attribute="slope")


def _function_with_a_branch() -> tuple[list[Any], list[Any]]:
    from onnx import helper

    def body(operator: str) -> Any:
        nodes = [node("Hardmax", "a", f"{operator}_in"), node(operator, f"{operator}_in", f"{operator}_out")]
        return helper.make_graph(nodes, operator, [], [helper.make_tensor_value_info(f"{operator}_out", 1, [2, 3])])

    choice = node("If", "c", "e", then_branch=body("Relu"), else_branch=body("Neg"))
    parts = [node("ReduceMax", "a", "m", keepdims=0), node("Greater", "m m", "c"), choice, node("Add", "e a", "b")]
    return _call(*parts)


def _branch_that_reads_less() -> tuple[list[Any], list[Any]]:
    """The branch that is never taken reads what the plan does not compute for the others."""
    from onnx import helper

    def body(operator: str, read: str) -> Any:
        out = helper.make_tensor_value_info(operator, 1, [2, 3])
        return helper.make_graph([helper.make_node(operator, [read], [operator])], operator, [], [out])

    choice = node("If", "yes", "c", then_branch=body("Hardmax", "h"), else_branch=body("Neg", "n"))
    return [node("Hardmax", "x", "h"), node("Neg", "x", "n"), choice, node("Add", "c n", "s"), node("Hardmax", "s", "y")], []


def _branch_that_reads_a_value_under_two_names() -> tuple[list[Any], list[Any]]:
    """The importer has one operand for a value and its copy."""
    from onnx import helper

    def body(operator: str) -> Any:
        nodes = [node("Hardmax", "x", f"{operator}_h"), helper.make_node(operator, [f"{operator}_h", "copy"], [operator])]
        return helper.make_graph(nodes, operator, [], [helper.make_tensor_value_info(operator, 1, [2, 3])])

    begins = [node("Identity", "x", "copy"), node("ReduceMax", "x", "m", keepdims=0), node("Greater", "m m", "c")]
    return [*begins, node("If", "c", "s", then_branch=body("Add"), else_branch=body("Sub")), node("Hardmax", "s", "y")], []


WRITTEN_OUT = {
    "a value under two names": _branch_that_reads_a_value_under_two_names,
    "a branch that reads less": _branch_that_reads_less,
    "a scan": _scan_of_rows, "a loop": _loop_of_iterations, "a function": _function,
    "a function with a constant": _function_with_a_constant, "a function with an attribute": _function_with_an_attribute,
    "a function with a branch": _function_with_a_branch,
}  # fmt: skip


@pytest.mark.parametrize("mapping", ["wide", "provider"])
@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_nodes_of_what_the_importer_wrote_out(name: str, mapping: str, tmp_path: Path) -> None:
    """Tensors between them are none of the file's: the part is cut from the nodes as the importer has them."""
    from onnx import helper, numpy_helper

    nodes, functions = WRITTEN_OUT[name]()
    held = [numpy_helper.from_array(np.int64(2), "two"), numpy_helper.from_array(np.array(True), "yes")]
    held += [numpy_helper.from_array(np.zeros(3, np.float32), "start")]
    ends = [helper.make_tensor_value_info(n, 1, [2, 3]) for n in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    made = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:], held), opset_imports=opsets, functions=functions, ir_version=8
    )
    data, x = made.SerializeToString(), RNG.standard_normal((2, 3)).astype(np.float32)
    (ours,), (theirs,) = hosted(tmp_path / "m.onnx", data, {"x": x}, mapping=mapping), alone(data, {"x": x})
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize(("scalar", "shape"), [(True, (1,)), (False, (1, 1))])
def test_a_value_of_any_rank_is_a_scalar_only_where_the_file_says_so(scalar: bool, shape: tuple[int, ...]) -> None:
    """ONNX Runtime states the shape [] for both."""
    from onnx import helper, numpy_helper

    ends = [helper.make_tensor_value_info(name, 1, None) for name in "xy"]
    held = [numpy_helper.from_array(np.int64([0]), "axes")]
    graph = helper.make_graph([helper.make_node("Unsqueeze", ["x", "axes"], ["y"])], "g", ends[:1], ends[1:], held)
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    run = OnnxRuntimeEngine(Path("m.onnx"), "default").open(Piece(content, ("x",), ("y",), {}, ["x"] if scalar else []), [(0,)])
    ((found,), _) = run([np.ones(1, np.float32)], {})
    assert found.shape == shape

"""Bodies of Loop and Scan, prepared: each node as the ``onnx`` package's evaluator computes it, also by tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge import Compilation, Execution, load
from nnbridge.converters import ConversionOptions
from nnbridge.converters.mapping import MappingKind
from nnbridge.engines.onnx_session import open_session
from nnbridge.file import ModelFile

pytest.importorskip("onnx")

import onnx
from onnx.reference import ReferenceEvaluator

from nnbridge_onnx.host.bodies import OFTEN, Body, can_prepare
from nnbridge_onnx.host.evaluator import of_body

helper, numpy_helper = onnx.helper, onnx.numpy_helper
make, info = helper.make_node, helper.make_tensor_value_info
INT8, UINT8, FLOAT = onnx.TensorProto.INT8, onnx.TensorProto.UINT8, onnx.TensorProto.FLOAT
BOOL = onnx.TensorProto.BOOL


class Network:
    """A random body on 8-bit values: x and s are its inputs."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.bytes = ["x", "s"]
        kind = np.int8 if seed % 2 else np.uint8
        self.zero = self.constant(np.array(self.rng.integers(-20, 20) if seed % 2 else self.rng.integers(100, 150), kind))
        for _ in range(self.rng.integers(3, 9)):
            self.bytes.append(self.quantised(self.real(2)))
        code = INT8 if seed % 2 else UINT8
        ends = [info(name, code, None) for name in self.rng.choice(self.bytes[2:], 2)]
        self.nodes += [make("Identity", [end.name], [f"out{k}"]) for k, end in enumerate(ends)]
        ends = [info(f"out{k}", code, None) for k in range(2)]
        starts = [info("x", code, [2, 3]), info("s", code, [1, 3])]
        self.graph = helper.make_graph(self.nodes, "body", starts, ends, self.constants)
        self.kind = kind

    def constant(self, value: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value), f"c{len(self.constants)}"))
        return str(self.constants[-1].name)

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(make(kind, list(inputs), [f"n{len(self.nodes)}"], **attributes))
        return str(self.nodes[-1].output[0])

    def scale(self) -> str:
        return self.constant(np.float32(self.rng.choice([0.0625, 0.01, 0.3])))

    def quantised(self, real: str) -> str:
        return self.add("QuantizeLinear", real, self.scale(), self.zero)

    def real(self, depth: int) -> str:
        """A float32 value: bytes dequantised, a vector, or a function of such."""
        choice = self.rng.integers(0, 7) if depth else 0
        if choice < 2:
            return self.add("DequantizeLinear", str(self.rng.choice(self.bytes)), self.scale(), self.zero)
        if choice == 2:
            vector = self.constant(self.rng.standard_normal(3).astype(np.float32))
            return self.add(str(self.rng.choice(["Add", "Mul", "Sub"])), vector, self.real(depth - 1))
        if choice < 5:
            return self.add(str(self.rng.choice(["Add", "Mul", "Sub"])), self.real(depth - 1), self.real(depth - 1))
        return self.add(str(self.rng.choice(["Sigmoid", "Tanh", "Relu", "Neg"])), self.real(depth - 1))


@pytest.mark.parametrize("seed", range(12))
def test_tables_are_bit_equal_to_the_arithmetic(seed: int) -> None:
    network = Network(seed)
    body = Body(network.graph, 19, of_body)
    evaluator = ReferenceEvaluator(helper.make_model(network.graph, opset_imports=[helper.make_opsetid("", 19)]))
    limits = np.iinfo(network.kind)
    for _ in range(OFTEN + 40):
        feeds = {
            name: network.rng.integers(limits.min, limits.max, shape, network.kind, endpoint=True)
            for name, shape in (("x", (2, 3)), ("s", (1, 3)))
        }
        for found, expected in zip(body.run(feeds), evaluator.run(None, feeds), strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
    assert any(step.kind == "table" for step in body.steps)


@pytest.mark.parametrize("seed", range(6))
def test_convolutions_by_one_element_are_bit_equal_to_the_nodes_own(seed: int) -> None:
    rng = np.random.default_rng(seed)
    units, size, places = rng.integers(1, 9, 3)
    each = int(rng.choice([1, units]))
    values = {
        "xs": np.float32(0.02), "xz": np.uint8(rng.integers(0, 255)), "w": rng.integers(-128, 128, (units, size, 1), np.int8),
        "ws": rng.uniform(0.01, 0.1, each).astype(np.float32), "wz": np.zeros(each, np.int8), "ys": np.float32(0.3),
        "yz": np.uint8(rng.integers(0, 255)), "b": rng.integers(-999, 999, units, np.int32),
    }  # fmt: skip
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]

    def convolution(**attributes: Any) -> Any:
        node = make("QLinearConv", ["x", *values], ["y"], **attributes)
        return helper.make_graph([node], "body", [info("x", UINT8, None)], [info("y", UINT8, None)], tensors)

    graphs = convolution(), convolution(pads=[1, 1])
    light, whole = (Body(graph, 10, of_body) for graph in graphs)
    x = rng.integers(0, 255, (2, size, places), np.uint8)
    np.testing.assert_array_equal(light.run({"x": x})[0], whole.run({"x": x})[0][:, :, 1:-1])


def test_nodes_of_bodies_without_a_function_of_their_own_are_the_evaluators() -> None:
    graph = helper.make_graph(
        [make("Constant", [], ["two"], value_float=2.0), make("Pow", ["x", "two"], ["y"]), make("Slice", ["y", "a", "b"], ["z"])],
        "body",
        [info("x", FLOAT, [4])],
        [info("z", FLOAT, [2])],
        [numpy_helper.from_array(np.array([value], np.int64), name) for name, value in (("a", -3), ("b", -1))],
    )
    np.testing.assert_array_equal(Body(graph, 13, of_body).run({"x": np.arange(4, dtype=np.float32)})[0], [1, 4])


def test_bodies_in_bodies_are_prepared_and_see_values_from_outside() -> None:
    branches = [
        helper.make_graph([make(operator, ["x"], ["t"])], operator, [], [info("t", FLOAT, [2])])
        for operator in ("Neg", "Identity")
    ]
    inner = make("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    graph = helper.make_graph([inner], "body", [info("c", BOOL, [])], [info("y", FLOAT, [2])])
    assert can_prepare(graph)
    body, x = Body(graph, 13, of_body), np.float32([1, 2])
    assert [body.run({"x": x, "c": np.asarray(c)})[0].tolist() for c in (True, False)] == [[-1, -2], [1, 2]]


def test_bodies_with_operators_of_other_domains_are_the_evaluators() -> None:
    foreign = make("Own", ["x"], ["t"], domain="own")
    branch = helper.make_graph([foreign], "branch", [], [info("t", FLOAT, [2])])
    inner = make("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    assert not can_prepare(helper.make_graph([inner], "body", [], []))
    assert not can_prepare(helper.make_graph([foreign], "body", [], []))
    assert can_prepare(helper.make_graph([make("Neg", ["x"], ["y"])], "body", [], []))


@pytest.mark.parametrize("backwards", [0, 1])
def test_a_scan_goes_along_its_axes_in_either_direction(tmp_path: Path, backwards: int) -> None:
    body = helper.make_graph(
        [make("Add", ["s", "r"], ["t"]), make("Identity", ["t"], ["y"])],
        "body",
        [info("s", FLOAT, [2]), info("r", FLOAT, [2])],
        [info("t", FLOAT, [2]), info("y", FLOAT, [2])],
    )
    node = make(
        "Scan", ["zero", "x"], ["last", "all"], body=body, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1],
        scan_input_directions=[backwards], scan_output_directions=[backwards],
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "graph", [info("x", FLOAT, [2, "rows"])], [info("all", FLOAT, [2, "rows"])],
        [numpy_helper.from_array(np.zeros(2, np.float32), "zero")],
    )  # fmt: skip
    path = tmp_path / "scan.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    compilation = Compilation.create(load(path), [])
    compilation.finish()
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    sums = np.cumsum(x[:, ::-1], axis=1)[:, ::-1] if backwards else np.cumsum(x, axis=1)
    np.testing.assert_array_equal(Execution(compilation).run([x])["all"], sums)


def test_a_quantised_lstm_without_shapes_is_bit_equal_to_onnx_runtime(shared: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = shared / "models/onnx/qlstm_3-2-3_T3_S1.onnx"
    session = open_session(str(path))
    compilation = Compilation.create(load(path), [])
    compilation.finish()
    rng = np.random.default_rng(0)
    for rows in (1, 20, 3, 40, 20, 1):
        x = (rng.standard_normal((rows, 3)) * 2).astype(np.float32)
        found = Execution(compilation).run({"input": x})["output"]
        np.testing.assert_array_equal(found, session.run(None, {"input": x})[0])


def test_results_whose_size_depends_on_values_are_right_each_time(tmp_path: Path) -> None:
    """Small models stay bound from the second run on; the host's answer then comes out otherwise than before."""
    nodes = [make("Relu", ["x"], ["r"]), make("NonZero", ["r"], ["n"]), make("Identity", ["n"], ["y"])]
    graph = helper.make_graph(nodes, "graph", [info("x", FLOAT, ["n"])], [info("y", onnx.TensorProto.INT64, [1, None])])
    path = tmp_path / "nonzero.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    compilation = Compilation.create(load(path), [])
    compilation.finish()
    for x in ([1, -1, 2], [1, 0, 2], [3, 4, 0], [-1, 5, -1], [2, 2, 2]):
        found = next(iter(Execution(compilation).run([np.array(x, np.float32)]).values()))
        np.testing.assert_array_equal(found, [np.flatnonzero(np.array(x) > 0)])


def test_bodies_beyond_what_a_file_may_have_converted_stay_on_the_host(tmp_path: Path) -> None:
    """Each body counts 64 KiB of the file's 32 MiB, those in bodies as well."""
    from tests.hostile_growth import _branches

    path = tmp_path / "m.onnx"
    path.write_bytes(_branches(10, "computed"))
    (found,) = [one for one in ModelFile(path, ConversionOptions()).mapped if one.operator == "If"]
    assert found.mapping == MappingKind.HOST
    assert "at most 33,554,432 bytes of bodies" in str(found.reasons[0])
    path.write_bytes(_branches(4, "computed"))
    assert {one.mapping for one in ModelFile(path, ConversionOptions()).mapped if one.operator == "If"} == {MappingKind.WIDE}


def test_a_file_without_loops_is_read_once_for_both_mappings(tmp_path: Path) -> None:
    from nnbridge_onnx import OnnxModelFile
    from tests.hostile_growth import _branches, _loop, _node

    (tmp_path / "m.onnx").write_bytes(_branches(2, "computed"))
    (tmp_path / "l.onnx").write_bytes(_loop(3, [_node("Relu", ["v"], ["w"])]))
    plain, looping = OnnxModelFile(tmp_path / "m.onnx"), OnnxModelFile(tmp_path / "l.onnx")
    asked = [ConversionOptions(mapping=mapping) for mapping in ("wide", "provider")]
    assert plain.graph(asked[0]) is plain.graph(asked[1])
    assert looping.graph(asked[0]) is not looping.graph(asked[1])

"""Files with open dimensions: a run with new dimensions prepares once for them, and what the plan says does not change."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnbridge
from nnbridge import Compilation, Execution, load

onnx = pytest.importorskip("onnx")

from onnx import helper, numpy_helper  # noqa: E402

FLOAT, FLOAT16, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.INT64
N = helper.make_node
CONV = [
    N("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
    N("Relu", ["c"], ["r"]),
    N("MaxPool", ["r"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
]
ROWS = [N("Shape", ["x"], ["s"]), N("Gather", ["s", "zero"], ["n"]), N("Concat", ["n", "rest"], ["to"], axis=0)]
ROWS += [N("Reshape", ["x", "to"], ["f"]), N("MatMul", ["f", "w"], ["m"]), N("Softmax", ["m"], ["y"])]
LSTM = [N("LSTM", ["x", "w", "u"], ["", "h"], hidden_size=2), N("Squeeze", ["h"], ["y"])]
QDQ = [N("QuantizeLinear", ["x", "s"], ["q"]), N("DequantizeLinear", ["q", "s"], ["d"]), N("MatMul", ["d", "w"], ["y"])]
HALF = [N("Softmax", ["x"], ["e"]), N("MatMul", ["e", "w"], ["y"])]
RNG = np.random.default_rng(0)


def weights(*shape: int, type: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(type)


KINDS: dict[str, tuple[Sequence[Any], dict[str, Any], Sequence[Any], int]] = {
    "convolutions": (CONV, {"w": weights(4, 3, 3, 3)}, ["n", 3, 6, 6], FLOAT),
    "open images": (CONV, {"w": weights(4, 3, 3, 3)}, ["n", 3, "h", "w"], FLOAT),
    "shapes computed": (
        ROWS,
        {"w": weights(12, 5), "zero": np.int64([0]), "rest": np.int64([12])},
        ["n", 3, 4],
        FLOAT,
    ),
    "recurrent": (LSTM, {"w": weights(1, 8, 3), "u": weights(1, 8, 2)}, ["t", "n", 3], FLOAT),
    "eight bits": (QDQ, {"s": np.float32(0.05), "w": weights(4, 3)}, ["n", 4], FLOAT),
    "float16": (HALF, {"w": weights(4, 3, type=np.float16)}, ["n", 4], FLOAT16),
    "no rank stated": (CONV, {"w": weights(4, 3, 3, 3)}, None, FLOAT),
}
SHAPES = {
    "convolutions": (1, 3, 6, 6),
    "open images": (1, 3, 4, 8),
    "shapes computed": (1, 3, 4),
    "recurrent": (5, 1, 3),
    "eight bits": (1, 4),
    "float16": (1, 4),
    "no rank stated": (1, 3, 6, 6),
}


@pytest.fixture(params=KINDS)
def kind(request: Any, tmp_path: Path) -> tuple[Path, tuple[int, ...], Any]:
    nodes, constants, shape, type = KINDS[request.param]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", type, shape)],
        [helper.make_tensor_value_info("y", type, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    path = tmp_path / "open.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path, SHAPES[request.param], helper.tensor_dtype_to_np_dtype(type)


def expected(path: Path, x: Any) -> Any:
    session = pytest.importorskip("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def test_runs_with_several_dimensions_give_onnx_runtime_s_results(kind: tuple[Path, tuple[int, ...], Any]) -> None:
    path, shape, type = kind
    planned = nnbridge.plan(path, host="nnbridge")
    for batch in (1, 3, 1, 2):
        x = RNG.standard_normal([batch if d == 1 else d for d in shape]).astype(type)
        found = planned.run({"x": x})["y"]
        assert np.allclose(found.reshape(expected(path, x).shape), expected(path, x), atol=4e-3 if type == np.float16 else 1e-5)


def test_the_plan_stays_what_it_was(kind: tuple[Path, tuple[int, ...], Any]) -> None:
    path, shape, type = kind
    planned = nnbridge.plan(path, host="nnbridge")
    before = planned.to_dict()
    execution = Execution(planned.compilation)
    execution.run({"x": np.zeros(shape, type)})
    assert planned.to_dict() == before
    assert set(execution.report.devices) <= {
        planned.compilation.plan.devices[s.device].name for s in planned.compilation.plan.steps
    }


def test_dimensions_are_prepared_for_once(kind: tuple[Path, tuple[int, ...], Any]) -> None:
    path, shape, _ = kind
    compilation = nnbridge.plan(path, host="nnbridge").compilation
    assert compilation.at([shape]) is compilation.at([shape])
    assert compilation.at([shape]) is not compilation.at([tuple(2 if d == 1 else d for d in shape)])


def _file(folder: Path) -> Path:
    nodes, constants, shape, _ = KINDS["convolutions"]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    path = folder / "open.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_convolution_with_an_open_batch_runs_as_one_step_of_known_dimensions(tmp_path: Path) -> None:
    compilation = Compilation.create(load(_file(tmp_path)), [])
    compilation.finish()
    resolved = compilation.at([(2, 3, 6, 6)])
    assert [operand.dims for i in resolved.model.main.outputs for operand in [resolved.model.main.operands[i]]] == [(2, 4, 3, 3)]
    assert len(resolved.plan.steps) == 1


def test_the_last_few_dimensions_are_kept(tmp_path: Path) -> None:
    compilation = nnbridge.plan(_file(tmp_path), host="nnbridge").compilation
    first = compilation.at([(1, 3, 6, 6)])
    for batch in range(2, 6):
        compilation.at([(batch, 3, 6, 6)])
    assert compilation.at([(1, 3, 6, 6)]) is not first


def test_dimensions_that_do_not_fit_are_refused_as_before(tmp_path: Path) -> None:
    planned = nnbridge.plan(_file(tmp_path), host="nnbridge")
    with pytest.raises(nnbridge.NnbridgeError):
        planned.run({"x": np.zeros((1, 3, 6), np.float32)})


def test_a_changed_copy_of_a_model_is_not_resolved(tmp_path: Path) -> None:
    model = load(_file(tmp_path))
    assert model.resolution is not None
    copy = model.with_main(model.main.operands, {})
    assert copy.resolved([(1, 3, 6, 6)]) is None
    assert pickle.loads(pickle.dumps(model)).resolution is None


def scanned(type: int, nodes: Sequence[Any]) -> Any:
    """A Scan over an open number of steps: from the state s and a step's x to n."""
    vector = [helper.make_tensor_value_info(name, type, [1, 3]) for name in ("s", "x", "n", "k")]
    body = helper.make_graph([*nodes, N("Identity", ["n"], ["k"])], "body", vector[:2], vector[2:])
    given, made = (helper.make_tensor_value_info(name, type, ["t", 1, 3]) for name in ("all", "y"))
    start = numpy_helper.from_array(np.zeros((1, 3), helper.tensor_dtype_to_np_dtype(type)), "start")
    w = numpy_helper.from_array(weights(3, 3, type=helper.tensor_dtype_to_np_dtype(type)), "w")
    scale = numpy_helper.from_array(np.float32(0.037), "scale")
    zero = numpy_helper.from_array(np.int8(3), "zero")
    unsigned = numpy_helper.from_array(np.uint8(99), "unsigned")
    scan = N("Scan", ["start", "all"], ["end", "y"], body=body, num_scan_inputs=1)
    graph = helper.make_graph([scan], "graph", [given], [made], [start, w, scale, zero, unsigned])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def rounded(zero: str) -> list[Any]:
    return [N("QuantizeLinear", ["a", "scale", zero], ["q"]), N("DequantizeLinear", ["q", "scale", zero], ["d"])]


SUM, PRODUCT = N("Add", ["s", "x"], ["a"]), N("MatMul", ["d", "w"], ["n"])
BODIES = {
    "a product of 8-bit numbers": (FLOAT, [SUM, *rounded("zero"), PRODUCT]),
    "a product of unsigned numbers": (FLOAT, [SUM, *rounded("unsigned"), PRODUCT]),
    "a quantised sum": (FLOAT, [SUM, *rounded("zero"), N("Add", ["d", "x"], ["n"])]),
    "float16": (FLOAT16, [SUM, N("Sigmoid", ["a"], ["d"]), PRODUCT]),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_of_rounded_numbers_are_the_host_s_with_known_dimensions_too(name: str, tmp_path: Path) -> None:
    type, nodes = BODIES[name]
    onnx.save(scanned(type, nodes), tmp_path / "m.onnx")
    loaded = load(tmp_path / "m.onnx")
    resolved = loaded.resolved([(7, 1, 3)])
    assert resolved is not None
    assert [one.type for one in resolved.main.operations] == [one.type for one in loaded.main.operations]
    x = weights(7, 1, 3).astype(helper.tensor_dtype_to_np_dtype(type))
    found = []
    for model in (loaded, replace(loaded, resolution=None)):
        compilation = Compilation.create(model, [])
        compilation.finish()
        found.append(Execution(compilation).run([x])["y"])
    np.testing.assert_array_equal(*found)


def test_a_body_of_float32_is_written_out_once_its_steps_are_known(tmp_path: Path) -> None:
    onnx.save(scanned(FLOAT, [SUM, N("Tanh", ["a"], ["n"])]), tmp_path / "m.onnx")
    loaded = load(tmp_path / "m.onnx")
    resolved = loaded.resolved([(7, 1, 3)])
    assert resolved is not None
    assert len(resolved.main.operations) > 7 * len(loaded.main.operations)

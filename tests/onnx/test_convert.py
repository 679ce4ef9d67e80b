"""ONNX files: convolutional networks against ONNX Runtime, and files that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.compare import compare, seeded_samples
from nnbridge.compare.onnx_runtime import OnnxRuntime
from nnbridge.converters import ConversionOptions
from nnbridge.converters.inspection import count_transposes
from nnbridge.devices import device
from nnbridge.errors import ConversionError, OpFailedError
from nnbridge.file import load
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.types import OperandCode, OperationCode
from tests.conftest import MODELS

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from nnbridge_onnx import backend  # noqa: E402
from nnbridge_onnx.dimensions import stated  # noqa: E402

helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT


def model(folder: Path, nodes: list[Any], dims: list[int], constants: dict[str, np.ndarray], opset: int = 17) -> Path:
    """A file with one input x and one output y."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, dims)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path = folder / "model.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(made), str(path))
    return path


def agrees(path: Path) -> bool:
    """True if nnbridge and ONNX Runtime agree on seeded inputs."""
    compilation = Compilation.create(load(path), [])
    compilation.finish()
    return compare(compilation, "onnxruntime", seeded_samples(compilation.model, OnnxRuntime(path), [0, 1])).passed


def test_the_digit_classifier_agrees_with_onnx_runtime() -> None:
    assert agrees(MODELS / "digits_float32.onnx")


def test_a_quantised_digit_classifier_has_quantised_tensors_between_its_float_operations() -> None:
    kinds = {operation.name.split()[1] for operation in load(MODELS / "digits_qdq.onnx").main.operations}
    assert {"QuantizeLinear", "DequantizeLinear", "Conv"} <= kinds


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("attributes", [{"pads": [1, 0, 2, 1]}, {"auto_pad": "SAME_LOWER"}, {"strides": [2, 1]}])
def test_convolutions(groups: int, attributes: dict[str, Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.normal(size=(4, 4 // groups, 3, 3)).astype(np.float32),
        "b": rng.normal(size=4).astype(np.float32),
    }
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], group=groups, **attributes)
    assert agrees(model(tmp_path, [node], [1, 4, 7, 6], constants))


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("Relu", {}),
        ("Sigmoid", {}),
        ("Tanh", {}),
        ("Softmax", {"axis": 1}),
        ("Transpose", {"perm": [0, 2, 3, 1]}),
        ("Flatten", {}),
        ("GlobalAveragePool", {}),
        ("MaxPool", {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [0, 1, 1, 1]}),
        ("AveragePool", {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0]}),
    ],
)
def test_operators_of_one_input(kind: str, attributes: dict[str, Any], tmp_path: Path) -> None:
    assert agrees(model(tmp_path, [helper.make_node(kind, ["x"], ["y"], **attributes)], [1, 4, 6, 6], {}))


@pytest.mark.parametrize("bounds", [(0, 6), (-1, 1), (-0.5, 0.25), (0, None), (None, 0.5)])
def test_clip_between_any_bounds(bounds: tuple[float | None, float | None], tmp_path: Path) -> None:
    constants = {name: np.float32(value) for name, value in zip(("low", "high"), bounds, strict=True) if value is not None}
    names = [name if name in constants else "" for name in ("low", "high")]
    arrays = {name: np.array(value, np.float32) for name, value in constants.items()}
    assert agrees(model(tmp_path, [helper.make_node("Clip", ["x", *names], ["y"])], [1, 4, 3, 3], arrays))


def test_gemm_with_factors(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    constants = {"w": rng.normal(size=(5, 3)).astype(np.float32), "b": rng.normal(size=3).astype(np.float32)}
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], alpha=0.5, beta=2.0)
    assert agrees(model(tmp_path, [node], [2, 5], constants))


def test_what_nnapi_cannot_express_goes_to_the_host(tmp_path: Path) -> None:
    path = model(tmp_path, [helper.make_node("Atan", ["x"], ["y"], name="angle")], [1, 4], {})
    compilation = Compilation.create(load(path), [])
    plan = compilation.finish()
    assert plan.device_of(0).name == "host"
    assert agrees(path)


def test_an_old_opset_is_brought_up_to_the_first_that_is_known(tmp_path: Path) -> None:
    assert agrees(model(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], [1, 4], {}, opset=6))


def test_an_opset_that_the_onnx_package_does_not_know_is_refused(tmp_path: Path) -> None:
    path = model(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], [1, 4], {})
    made = onnx.load(str(path))
    made.opset_import[0].version = 999
    path.write_bytes(made.SerializeToString())
    with pytest.raises(ConversionError, match="at most, found 999"):
        load(path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    content = (MODELS / "digits_float32.onnx").read_bytes()
    path = tmp_path / "half.onnx"
    for length in range(0, len(content), 997):
        path.write_bytes(content[:length])
        with pytest.raises(ConversionError, match=r"half\.onnx"):
            load(path)


def transposes(path: Path, layout: str) -> int:
    """The number of TRANSPOSEs that a conversion leaves."""
    operations = load(path, ConversionOptions(layout=layout)).main.operations
    return sum(operation.type == OperationCode.TRANSPOSE for operation in operations)


def network() -> tuple[list[Any], dict[str, np.ndarray]]:
    """Two convolutions with batch normalisation, a residual sum, pooling and a mean."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.normal(size=(4, 4, 3, 3)).astype(np.float32),
        "s": rng.uniform(0.5, 2, 4).astype(np.float32),
        "c": rng.normal(size=(1, 4, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "s", "s", "s", "s"], ["b"]),
        helper.make_node("Relu", ["b"], ["r"]),
        helper.make_node("Conv", ["r", "w"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["d", "r"], ["e"]),
        helper.make_node("Mul", ["e", "c"], ["f"]),
        helper.make_node("Concat", ["f", "r"], ["g"], axis=1),
        helper.make_node("MaxPool", ["g"], ["h"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["h"], ["m"]),
        helper.make_node("Flatten", ["m"], ["y"]),
    ]
    return nodes, constants


def test_channels_last_networks_transpose_their_input_and_nothing_between_convolutions(tmp_path: Path) -> None:
    # One for the input; the mean's [1, 1, 1, 8] is flattened as it is.
    nodes, constants = network()
    path = model(tmp_path, nodes, [1, 4, 6, 6], constants)
    assert transposes(path, "auto") == 1
    assert count_transposes(load(path)) == (0, 1)
    assert agrees(path)


def test_a_flattened_image_goes_into_a_product_as_it_is(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.normal(size=(3, 4, 2, 2)).astype(np.float32),
        "m": rng.normal(size=(75, 5)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Flatten", ["a"], ["f"]),
        helper.make_node("Gemm", ["f", "m"], ["y"]),
    ]
    path = model(tmp_path, nodes, [1, 4, 6, 6], constants)
    assert count_transposes(load(path)) == (0, 1)
    assert agrees(path)


def test_a_flattened_image_that_something_else_reads_too_is_transposed_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    constants = {"w": rng.normal(size=(3, 4, 2, 2)).astype(np.float32), "m": rng.normal(size=(75, 75)).astype(np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Reshape", ["a", "s"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["g"]),
        helper.make_node("Sub", ["g", "f"], ["y"]),
    ]
    path = model(tmp_path, nodes, [1, 4, 6, 6], {**constants, "s": np.array([1, -1])})
    assert agrees(path)


def test_channels_first_networks_have_no_transposes(tmp_path: Path) -> None:
    nodes, constants = network()
    path = model(tmp_path, nodes, [1, 4, 6, 6], constants)
    assert transposes(path, "nchw") == 0
    compilation = Compilation.create(load(path, ConversionOptions(layout="nchw")), [])
    compilation.finish()
    assert compare(compilation, "onnxruntime", seeded_samples(compilation.model, OnnxRuntime(path), [0])).passed


def test_open_dimensions_can_be_stated_or_left_open(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", FLOAT, ["n", 3])],
    )
    path = tmp_path / "open.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    left_open, given = load(path), load(path, ConversionOptions(shapes={"x": (5, 3)}))
    assert [m.main.operands[m.main.inputs[0]].dims for m in (left_open, given)] == [(0, 3), (5, 3)]
    compilation = Compilation.create(left_open, [])
    compilation.finish()
    assert Execution(compilation).run([np.full((2, 3), -1, np.float32)])["y"].tolist() == [[0] * 3] * 2


def test_an_input_without_elements_is_stated_by_the_file_and_not_open(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, [0, 3])],
        [helper.make_tensor_value_info("y", FLOAT, [0, 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "none.onnx"
    onnx.save(model, str(path))
    with pytest.raises(ConversionError, match="x with 0 where the file fixes it, found \\[2, 3\\]"):
        load(path, ConversionOptions(shapes={"x": (2, 3)}))
    assert stated(path, model, {}) is None


def external(folder: Path, location: str) -> Path:
    """A file whose constant lies elsewhere."""
    tensor = onnx.TensorProto(name="w", data_type=FLOAT, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "16"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", FLOAT, [1, 4])],
        [tensor],
    )
    path = folder / "external.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    return path


def test_external_data_is_read_from_the_models_folder(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(np.arange(8, dtype=np.float32).tobytes())
    compilation = Compilation.create(load(external(tmp_path, "weights.bin")), [])
    compilation.finish()
    assert Execution(compilation).run([np.zeros((1, 4), np.float32)])["y"].tolist() == [[4, 5, 6, 7]]


def test_external_data_outside_the_models_folder_is_refused(tmp_path: Path) -> None:
    inner = tmp_path / "model"
    inner.mkdir()
    (tmp_path / "weights.bin").write_bytes(bytes(32))
    with pytest.raises(ConversionError, match="outside"):
        load(external(inner, "../weights.bin"))


@pytest.mark.parametrize("dims", [(1 << 32, 1 << 32), (-1, -4), (0, 1 << 62, 4)])
def test_external_data_of_impossible_dimensions_is_refused(dims: tuple[int, ...], tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(32))
    path = external(tmp_path, "weights.bin")
    damaged = onnx.load(str(path), load_external_data=False)
    del damaged.graph.initializer[0].dims[:]
    damaged.graph.initializer[0].dims.extend(dims)
    for entry in damaged.graph.initializer[0].external_data:
        if entry.key == "length":
            entry.value = "0"
    path.write_bytes(damaged.SerializeToString())
    with pytest.raises(ConversionError):
        load(path)


@pytest.mark.parametrize("location", ["weights\0.bin", "x" * 5000, ""])
def test_external_data_in_a_file_that_cannot_be_is_refused(location: str, tmp_path: Path) -> None:
    with pytest.raises(ConversionError):
        load(external(tmp_path, location))


def test_a_cyclic_graph_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    nodes.append(helper.make_node("Relu", ["b"], ["y"]))
    info = [helper.make_tensor_value_info(name, FLOAT, [2]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "graph", info[:1], info[1:])
    path = tmp_path / "cyclic.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    with pytest.raises(ConversionError):
        load(path)


def test_damaged_files_end_in_a_model_or_a_conversion_error(tmp_path: Path) -> None:
    content = (MODELS / "digits_qdq.onnx").read_bytes()
    rng = np.random.default_rng(0)
    path = tmp_path / "damaged.onnx"
    refused = 0
    for _ in range(400):
        damaged = bytearray(content)
        for place in rng.integers(0, len(content), rng.integers(1, 6)):
            damaged[place] = rng.integers(0, 256)
        path.write_bytes(damaged)
        try:
            load(path)
        except ConversionError:
            refused += 1
    assert 0 < refused < 400


def quantised_network(*, per_channel: bool) -> tuple[list[Any], dict[str, np.ndarray]]:
    """A convolution with ReLU between DequantizeLinear and QuantizeLinear."""
    rng = np.random.default_rng(1)
    count = 6 if per_channel else 1
    constants = {
        "s": np.float32(0.05),
        "z": np.uint8(128),
        "w": rng.integers(-127, 128, (6, 4, 3, 3)).astype(np.int8),
        "ws": rng.uniform(0.005, 0.01, count).astype(np.float32).reshape(() if count == 1 else -1),
        "wz": np.zeros(count, np.int8).reshape(() if count == 1 else -1),
        "b": rng.integers(-500, 500, 6).astype(np.int32),
        "os": np.float32(0.1),
        "oz": np.uint8(0),
    }
    constants["bs"] = (constants["s"] * constants["ws"]).astype(np.float32)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "bs"], ["bd"], axis=0),
        helper.make_node("Conv", ["xd", "wd", "bd"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "os", "oz"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "os", "oz"], ["y"]),
    ]
    return nodes, constants


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_convolution_between_quantisations_is_one_quantised_operation(per_channel: bool, tmp_path: Path) -> None:
    nodes, constants = quantised_network(per_channel=per_channel)
    path = model(tmp_path, nodes, [1, 4, 5, 5], constants)
    converted = load(path)
    codes = [operation.type for operation in converted.main.operations]
    assert (codes.count(OperationCode.CONV_2D), codes.count(OperationCode.RELU)) == (1, 0)
    (conv,) = (o for o in converted.main.operations if o.type == OperationCode.CONV_2D)
    assert converted.main.operands[conv.inputs[0]].type == OperandCode.TENSOR_QUANT8_ASYMM
    compilation = Compilation.create(converted, [])
    compilation.finish()
    comparison = compare(compilation, "onnxruntime", seeded_samples(converted, OnnxRuntime(path), [0, 1, 2]))
    # A step of the output is 0.1.
    assert comparison.outputs[0].max_abs_diff < 0.1001


def test_a_quantised_driver_accepts_the_convolution_of_a_group(tmp_path: Path) -> None:
    nodes, constants = quantised_network(per_channel=True)
    compilation = Compilation.create_for_devices(
        load(model(tmp_path, nodes, [1, 4, 5, 5], constants)), [device("nnapi-sample_full")]
    )
    plan = compilation.finish()
    assert {plan.devices[step.device].name for step in plan.steps} == {"nnapi-sample_full"}


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_lines_of_channels_are_images_too(layout: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.normal(size=(6, 4, 3)).astype(np.float32),
        "d": rng.normal(size=(6, 1, 3)).astype(np.float32),
        "s": rng.normal(size=(6, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1], strides=[2]),
        helper.make_node("Sigmoid", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "d"], ["c"], group=6, dilations=[2], pads=[2, 2]),
        helper.make_node("Add", ["c", "s"], ["e"]),
        helper.make_node("Concat", ["e", "b"], ["f"], axis=1),
        helper.make_node("MaxPool", ["f"], ["g"], kernel_shape=[2], strides=[2]),
        helper.make_node("AveragePool", ["g"], ["h"], kernel_shape=[3], pads=[1, 1], count_include_pad=1),
        helper.make_node("GlobalAveragePool", ["h"], ["y"]),
    ]
    path = model(tmp_path, nodes, [1, 4, 16], constants)
    converted = load(path, ConversionOptions(layout=layout))
    assert count_transposes(converted) == ((0, 1) if layout == "nhwc" else (0, 0))
    compilation = Compilation.create(converted, [])
    compilation.finish()
    assert compare(compilation, "onnxruntime", seeded_samples(converted, OnnxRuntime(path), [0, 1])).passed


def test_operators_of_unknown_domains_on_strings_can_be_planned_and_are_refused_when_run() -> None:
    graph = helper.make_graph(
        [helper.make_node("Foo", ["x", "k"], ["y"], domain="my.domain")],
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, [2])],
        [helper.make_tensor_value_info("y", FLOAT, [2])],
        [helper.make_tensor("k", onnx.TensorProto.STRING, [2], [b"a", b"b"])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    prepared = backend.prepare(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    with pytest.raises(OpFailedError, match=r"my\.domain\.Foo: expected .* nnbridge's own host or ONNX Runtime computes"):
        prepared.run([np.ones(2, np.float32)])


@pytest.mark.parametrize("untyped", [[helper.ValueInfoProto(name="y")], [helper.make_tensor_value_info("y", FLOAT, None)]])
def test_nodes_out_of_order_are_sorted_and_types_of_outputs_are_inferred(untyped: list[Any]) -> None:
    nodes = [helper.make_node("Neg", ["h"], ["y"]), helper.make_node("Abs", ["x"], ["h"])]
    inputs = [helper.make_tensor_value_info("x", FLOAT, [2])]
    graph = helper.make_graph(nodes, "graph", inputs, untyped, value_info=[helper.ValueInfoProto(name="h")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert backend.run_model(made, [np.float32([1, -2])])[0].tolist() == [-1.0, -2.0]


def test_nodes_that_read_each_other_are_refused() -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Neg", ["a"], ["b"])]
    ends = [helper.make_tensor_value_info(name, FLOAT, [2]) for name in "xb"]
    made = helper.make_model(helper.make_graph(nodes, "graph", ends[:1], ends[1:]), ir_version=8)
    with pytest.raises(ConversionError, match="valid ONNX model"):
        backend.prepare(made)

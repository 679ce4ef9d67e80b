"""Quantised and fused operators of optimised files, beside ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.compare import compare, seeded_samples
from nnbridge.compare.onnx_runtime import OnnxRuntime
from nnbridge.converters import ConversionOptions
from nnbridge.file import ModelFile
from nnbridge.runtime.compilation import Compilation
from nnbridge.types import OperationCode as C

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT
make = helper.make_node
RNG = np.random.default_rng(5)
f, u, i = np.float32, np.uint8, np.int8


def contrib(kind: str, inputs: list[str], output: str, **attributes: Any) -> Any:
    """A node of ONNX Runtime's own domain."""
    return make(kind, inputs, [output], domain="com.microsoft", **attributes)


def saved(folder: Path, nodes: list[Any], dims: list[int], constants: dict[str, Any]) -> Path:
    """A file from x to y, of one rank."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, dims)],
        [helper.make_tensor_value_info("y", FLOAT, [None] * len(dims))],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


def codes_within(path: Path, step: float) -> set[int]:
    """The operations of a conversion that stays on NNAPI and is at most a step away from ONNX Runtime."""
    model, mapped = ModelFile(path, ConversionOptions()).converted
    assert "host" not in {m.mapping for m in mapped}
    compilation = Compilation.create(model, [])
    compilation.finish()
    comparison = compare(compilation, "onnxruntime", seeded_samples(model, OnnxRuntime(path), [0, 1]))
    assert comparison.outputs[0].max_abs_diff <= step
    return {operation.type for operation in model.main.operations}


PARAMETERS: dict[str, Any] = {"s": f(0.05), "z": u(128), "os": f(0.1), "oz": u(100)}
UNIT: dict[str, Any] = {**PARAMETERS, "os": f(1 / 256), "oz": u(0)}
IMAGE = [1, 3, 8, 8]
WEIGHTS = {"w": RNG.integers(-127, 128, (6, 8)).astype(i), "ws": f(0.01), "wz": i(0)}
BIAS = {"b": RNG.integers(-50, 50, 6).astype(np.int32)}
XS, YS = ["a", "s", "z"], ["os", "oz"]

QUANTISED: dict[str, tuple[Any, dict[str, Any], list[int], C]] = {
    "add": (contrib("QLinearAdd", [*XS, *XS, *YS], "c"), PARAMETERS, [2, 3, 8], C.ADD),
    "mul": (contrib("QLinearMul", [*XS, *XS, *YS], "c"), PARAMETERS, [2, 3, 8], C.MUL),
    "sigmoid": (contrib("QLinearSigmoid", [*XS, *YS], "c"), UNIT, [2, 8], C.LOGISTIC),
    "softmax": (contrib("QLinearSoftmax", [*XS, *YS], "c", axis=-1, opset=13), UNIT, [2, 8], C.SOFTMAX),
    "leaky": (contrib("QLinearLeakyRelu", [*XS, *YS], "c", alpha=0.1), PARAMETERS, [2, 8], C.PRELU),
    "concat": (contrib("QLinearConcat", [*YS, *XS, *XS], "c", axis=1), PARAMETERS, IMAGE, C.CONCATENATION),
    "mean": (contrib("QLinearGlobalAveragePool", [*XS, *YS], "c"), PARAMETERS, IMAGE, C.MEAN),
    "pool": (
        contrib("QLinearAveragePool", [*XS, *YS], "c", kernel_shape=[2, 2]), {**PARAMETERS, "os": f(0.05), "oz": u(128)}, IMAGE,
        C.AVERAGE_POOL_2D,
    ),
    "gemm": (
        contrib("QGemm", [*XS, "w", "ws", "wz", "b", *YS], "c", transB=1), {**PARAMETERS, **WEIGHTS, **BIAS}, [2, 8],
        C.FULLY_CONNECTED,
    ),
    "conv": (
        make("QLinearConv", [*XS, "k", "ws", "wz", *YS, "b"], ["c"]),
        {**PARAMETERS, **WEIGHTS, **BIAS, "k": RNG.integers(-127, 128, (6, 3, 3, 3)).astype(i)}, IMAGE, C.CONV_2D,
    ),
    "matmul": (
        make("QLinearMatMul", [*XS, "m", "ws", "mz", *YS], ["c"]),
        {**PARAMETERS, **WEIGHTS, "m": RNG.integers(0, 256, (8, 6)).astype(u), "mz": u(120)}, [2, 3, 8], C.FULLY_CONNECTED,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUANTISED)
def test_a_quantised_operator_is_nnapis(name: str, tmp_path: Path) -> None:
    node, constants, dims, code = QUANTISED[name]
    around = [make("QuantizeLinear", ["x", "s", "z"], ["a"]), node, make("DequantizeLinear", ["c", *YS], ["y"])]
    codes = codes_within(saved(tmp_path, around, dims, constants), float(constants["os"]) * 1.0001)
    assert code in codes


FUSED: dict[str, tuple[Any, dict[str, Any], list[int]]] = {
    "gelu": (contrib("Gelu", ["x"], "y"), {}, [2, 8]),
    "fast gelu": (contrib("FastGelu", ["x"], "y"), {}, [2, 8]),
    "quick gelu": (contrib("QuickGelu", ["x"], "y"), {}, [2, 8]),
    "bias gelu": (contrib("BiasGelu", ["x", "b"], "y"), {"b": RNG.normal(size=8).astype(f)}, [2, 8]),
    "conv": (
        contrib("FusedConv", ["x", "w"], "y", activation="LeakyRelu", activation_params=[0.1]),
        {"w": RNG.normal(size=(6, 3, 3, 3)).astype(f)}, IMAGE,
    ),
    "matmul": (contrib("FusedMatMul", ["x", "w"], "y", alpha=0.5), {"w": RNG.normal(size=(8, 6)).astype(f)}, [2, 8]),
    "gemm": (contrib("FusedGemm", ["x", "w"], "y", activation="Relu"), {"w": RNG.normal(size=(8, 6)).astype(f)}, [2, 8]),
    "skip": (
        contrib("SkipLayerNormalization", ["x", "x", "g", "b"], "y"),
        {"g": RNG.normal(size=8).astype(f), "b": RNG.normal(size=8).astype(f)}, [2, 3, 8],
    ),
    "simplified": (
        contrib("SkipSimplifiedLayerNormalization", ["x", "x", "g"], "y"), {"g": RNG.normal(size=8).astype(f)}, [2, 3, 8],
    ),
    "dynamic": (
        contrib("DynamicQuantizeMatMul", ["x", "m", "ws", "wz"], "y"),
        {**WEIGHTS, "m": RNG.integers(-127, 128, (8, 6)).astype(i)}, [2, 8],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUSED)
def test_a_fused_operator_is_spelt_out(name: str, tmp_path: Path) -> None:
    node, constants, dims = FUSED[name]
    assert codes_within(saved(tmp_path, [node], dims, constants), 1e-5)


@pytest.mark.parametrize(
    ("product", "weights", "dims"),
    [
        (make("MatMulInteger", ["q", "w", "qz", "wz"], ["p"]), RNG.integers(-127, 128, (8, 6)).astype(i), [2, 3, 8]),
        (make("ConvInteger", ["q", "w", "qz", "wz"], ["p"], pads=[1] * 4), RNG.integers(0, 256, (6, 3, 3, 3)).astype(u), IMAGE),
    ],
    ids=["matmul", "conv"],
)
def test_dynamic_quantisation_stays_on_nnapi(product: Any, weights: np.ndarray, dims: list[int], tmp_path: Path) -> None:
    nodes = [
        make("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
        product,
        make("Cast", ["p"], ["r"], to=FLOAT),
        make("Mul", ["r", "qs"], ["y"]),
    ]
    constants = {"w": weights, "wz": weights.dtype.type(3)}
    assert codes_within(saved(tmp_path, nodes, dims, constants), 1e-3)


def test_parameters_may_come_from_constant_nodes(tmp_path: Path) -> None:
    def constant(name: str, value: Any) -> Any:
        return make("Constant", [], [name], value=onnx.numpy_helper.from_array(np.asarray(value)))

    node = contrib("QLinearAdd", [*XS, *XS, *YS], "c")
    nodes = [constant(name, value) for name, value in PARAMETERS.items()]
    nodes += [make("QuantizeLinear", ["x", "s", "z"], ["a"]), node, make("DequantizeLinear", ["c", *YS], ["y"])]
    assert codes_within(saved(tmp_path, nodes, [2, 8], {}), 0.1001) == {C.QUANTIZE, C.ADD, C.DEQUANTIZE}


def test_arithmetic_on_bytes_is_not_taken_for_quantised_arithmetic(tmp_path: Path) -> None:
    nodes = [
        make("QuantizeLinear", ["x", "s", "z"], ["a"]),
        make("Add", ["a", "a"], ["c"]),
        make("Cast", ["c"], ["y"], to=FLOAT),
    ]
    _, mapped = ModelFile(saved(tmp_path, nodes, [2, 8], PARAMETERS), ConversionOptions()).converted
    assert {m.operator: m.mapping for m in mapped} == {"QuantizeLinear": "wide", "Add": "host", "Cast": "wide"}


def test_the_provider_knows_a_quantised_sigmoid_by_its_own_name(tmp_path: Path) -> None:
    node, constants, dims, _ = QUANTISED["sigmoid"]
    nodes = [make("QuantizeLinear", ["x", "s", "z"], ["a"]), node, make("DequantizeLinear", ["c", *YS], ["y"])]
    _, mapped = ModelFile(saved(tmp_path, nodes, dims, constants), ConversionOptions(mapping="provider")).converted
    assert {m.mapping for m in mapped} == {"provider"}

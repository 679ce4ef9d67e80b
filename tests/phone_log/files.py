"""Small files that cause the lines of public reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.conftest import MODELS
from tests.tflite.files import TfliteBuilder

Maker = Callable[[Path], Path]


def digits(folder: Path) -> Path:
    """The classifier of digits, with uint8 values."""
    return MODELS / "digits_uint8.tflite"


def computed_shape(folder: Path) -> Path:
    """A RESHAPE to a computed shape, after an ADD."""
    to = TfliteBuilder()
    x, shape = to.tensor((2, 3), name="x"), to.tensor((2,), "int32", name="shape")
    total, out = to.tensor((2, 3), name="sum"), to.tensor((3, 2), name="y")
    to.operator("ADD", [x, x], [total], {"fused_activation_function": 0})
    to.operator("RESHAPE", [total, shape], [out], {})
    return to.write(folder / "reshape.tflite", [x, shape], [out])


def where(folder: Path) -> Path:
    """A WHERE, whose output is as long as a run finds."""
    to = TfliteBuilder()
    x, out = to.tensor((4,), "bool", name="x"), to.tensor((4, 1), "int64", name="places")
    to.operator("WHERE", [x], [out], {})
    return to.write(folder / "where.tflite", [x], [out])


def turned_integers(folder: Path) -> Path:
    """A TRANSPOSE of INT32, which the delegate takes and NNAPI has not."""
    to = TfliteBuilder()
    x, out = to.tensor((2, 3), "int32", name="x"), to.tensor((3, 2), "int32", name="turned")
    to.operator("TRANSPOSE", [x, to.constant([1, 0], "int32", name="order")], [out], {})
    return to.write(folder / "transpose.tflite", [x], [out])


def dense_by_unit(folder: Path) -> Path:
    """A RESHAPE, then an int8 FULLY_CONNECTED with a scale for each unit, as TensorFlow's converter writes Dense layers."""
    to = TfliteBuilder()
    x = to.tensor((2, 2), "int8", scale=0.1, name="x")
    y = to.tensor((1, 4), "int8", scale=0.1, name="flat")
    weights = to.constant(np.ones((2, 4), np.int8), scale=[0.1, 0.2], axis=0, name="weights")
    out = to.tensor((1, 2), "int8", scale=0.5, name="logits")
    to.operator("RESHAPE", [x, to.constant([1, 4], "int32")], [y], {})
    to.operator("FULLY_CONNECTED", [y, weights, -1], [out], {}, version=4)
    return to.write(folder / "dense.tflite", [x], [out])


def power(folder: Path) -> Path:
    """A POW by a scalar constant."""
    to = TfliteBuilder()
    x, out = to.tensor((2, 3), name="x"), to.tensor((2, 3), name="mlp/Pow")
    to.operator("POW", [x, to.constant(np.float32(3), name="mlp/Pow/y")], [out], {})
    return to.write(folder / "pow.tflite", [x], [out])


def custom(folder: Path) -> Path:
    """An ABS, then an operator of someone's own."""
    to = TfliteBuilder()
    x, y, out = (to.tensor((2, 3), name=name) for name in ("x", "y", "z"))
    to.operator("ABS", [x], [y], {})
    to.operator("Mean", [y], [out], custom=b"")
    return to.write(folder / "custom.tflite", [x], [out])


def flex(folder: Path) -> Path:
    """An operator of TensorFlow's own."""
    to = TfliteBuilder()
    x, out = to.tensor((2, 3), name="x"), to.tensor((1,), "int32", name="size")
    to.operator("FlexSize", [x], [out], custom=b"")
    return to.write(folder / "flex.tflite", [x], [out])


def quantised_pair(folder: Path) -> Path:
    """Two QUANTIZE with a FAKE_QUANT between them."""
    to = TfliteBuilder()
    a = to.tensor((1, 4), name="a")
    b, c = (to.tensor((1, 4), "int8", scale=scale, name=name) for scale, name in ((0.1, "b"), (0.2, "c")))
    d = to.tensor((1, 4), name="d")
    e = to.tensor((1, 4), name="e")
    to.operator("QUANTIZE", [a], [b], {})
    to.operator("QUANTIZE", [b], [c], {}, version=2)
    to.operator("DEQUANTIZE", [c], [d], {}, version=2)
    to.operator("FAKE_QUANT", [d], [e], {"min": 0.0, "max": 6.0, "num_bits": 8})
    return to.write(folder / "quantize.tflite", [a], [e])


def onnx_file(
    name: str, nodes: list[tuple[str, list[str], list[str], str, Mapping[str, Any]]], opset: int = 17, **constants: Any
) -> Maker:
    """A file of nodes (operator, inputs, outputs, name, attributes) from x of 1×4×4 to the last output."""

    def made(folder: Path) -> Path:
        import onnx
        from onnx import helper, numpy_helper

        made = [helper.make_node(kind, read, written, name, **more) for kind, read, written, name, more in nodes]
        known = [numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items()]
        x = helper.make_tensor_value_info("x", 1, [1, 4, 4])
        y = helper.make_tensor_value_info(nodes[-1][2][-1], 1, None)
        graph = helper.make_graph(made, "g", [x], [y], known)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        onnx.save(model, str(folder / f"{name}.onnx"))
        return folder / f"{name}.onnx"

    return made


product = onnx_file(
    "product",
    [("Relu", ["x"], ["r"], "/act/Relu", {}), ("MatMul", ["r", "r"], ["y"], "/block.2/wi_1/MatMul", {})],
)
error_function = onnx_file("erf", [("Relu", ["x"], ["r"], "Relu_0", {}), ("Erf", ["r"], ["y"], "Erf_1362", {})])
parts = onnx_file(
    "split",
    [("Relu", ["x"], ["r"], "Relu_0", {}), ("Split", ["r", "sizes"], ["p", "q"], "Split_7", {"axis": 1})],
    opset=18,
    sizes=np.array([2, 2]),
)
turned = onnx_file("transpose", [("Transpose", ["x"], ["y"], "Transpose_2", {"perm": [0, 2, 1]})])

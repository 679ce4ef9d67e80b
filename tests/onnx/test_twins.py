"""A plain CNN as ONNX and as TFLite: the same operations, on the same devices, in as many steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.converters import ConversionOptions
from nnbridge.devices import drivers
from nnbridge.file import load
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.types import OperationCode
from tests.tflite.files import TfliteBuilder

onnx = pytest.importorskip("onnx")
helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT

RNG = np.random.default_rng(0)
CONV, DEPTHWISE, CLASSES = (RNG.normal(size=dims).astype(np.float32) for dims in ((4, 4, 3, 3), (4, 1, 3, 3), (5, 4)))
BIAS = RNG.normal(size=5).astype(np.float32)
IMAGE = RNG.normal(size=(1, 4, 9, 9)).astype(np.float32)


def as_onnx(folder: Path, layout: str) -> Model:
    """Convolution, depthwise convolution, residual sum, convolution of stride 2, pooling, mean, classifier."""
    around = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["image", "conv"], ["a"], **around),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "depthwise"], ["c"], group=4, **around),
        helper.make_node("Clip", ["c", "zero", "six"], ["d"]),
        helper.make_node("Add", ["b", "d"], ["e"]),
        helper.make_node("Conv", ["e", "conv"], ["f"], strides=[2, 2], **around),
        helper.make_node("MaxPool", ["f"], ["g"], kernel_shape=[3, 3], strides=[2, 2], **around),
        helper.make_node("GlobalAveragePool", ["g"], ["h"]),
        helper.make_node("Flatten", ["h"], ["i"]),
        helper.make_node("Gemm", ["i", "classes", "bias"], ["y"], transB=1),
    ]
    constants = {
        "conv": CONV,
        "depthwise": DEPTHWISE,
        "classes": CLASSES,
        "bias": BIAS,
        "zero": np.float32(0),
        "six": np.float32(6),
    }
    graph = helper.make_graph(
        nodes,
        "cnn",
        [helper.make_tensor_value_info("image", FLOAT, IMAGE.shape)],
        [helper.make_tensor_value_info("y", FLOAT, [1, 5])],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    path = folder / "cnn.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return load(path, ConversionOptions(layout=layout))


def as_tflite(folder: Path, *, channels_first: bool) -> Model:
    """The same; SAME padding of odd sides is 1 on every side."""
    file = TfliteBuilder()
    source = image = file.tensor(IMAGE.shape if channels_first else (1, 9, 9, 4))
    if channels_first:
        image = file.tensor((1, 9, 9, 4))
        file.operator("TRANSPOSE", [source, file.constant([0, 2, 3, 1], "int32")], [image], {})

    def step(name: str, inputs: list[int], side: int, **options: Any) -> int:
        made = file.tensor((1, side, side, 4))
        file.operator(name, inputs, [made], options)
        return made

    none = file.constant(np.zeros(4, np.float32))
    conv, depthwise = file.constant(CONV.transpose(0, 2, 3, 1).copy()), file.constant(DEPTHWISE.transpose(1, 2, 3, 0).copy())
    once, twice = {"padding": 0, "stride_w": 1, "stride_h": 1}, {"padding": 0, "stride_w": 2, "stride_h": 2}
    b = step("CONV_2D", [image, conv, none], 9, fused_activation_function=1, **once)
    d = step("DEPTHWISE_CONV_2D", [b, depthwise, none], 9, fused_activation_function=3, depth_multiplier=1, **once)
    e = step("ADD", [b, d], 9, fused_activation_function=0)
    f = step("CONV_2D", [e, conv, none], 5, **twice)
    g = step("MAX_POOL_2D", [f], 3, filter_width=3, filter_height=3, **twice)
    h, y = file.tensor((1, 4)), file.tensor((1, 5))
    file.operator("MEAN", [g, file.constant([1, 2], "int32")], [h], {"keep_dims": False})
    file.operator("FULLY_CONNECTED", [h, file.constant(CLASSES), file.constant(BIAS)], [y], {})
    return load(file.write(folder / "cnn.tflite", [source], [y]))


def steps(model: Model) -> dict[str, int]:
    """The number of the plan's steps, for each sample driver with NNAPI's CPU as fallback."""
    return {driver.name: len(Compilation.create(model, [driver]).finish().steps) for driver in drivers()}


def answer(model: Model, image: np.ndarray) -> np.ndarray:
    compilation = Compilation.create(model, [])
    compilation.finish()
    (result,) = Execution(compilation).run([image]).values()
    return result


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_nothing_runs_on_the_host_and_no_convolution_is_followed_by_a_transpose(layout: str, tmp_path: Path) -> None:
    model = as_onnx(tmp_path, layout)
    codes = [operation.type for operation in model.main.operations]
    assert all(isinstance(code, OperationCode) for code in codes)
    last = len(codes) - codes[::-1].index(OperationCode.CONV_2D)
    assert OperationCode.TRANSPOSE not in codes[codes.index(OperationCode.CONV_2D) : last]


@pytest.mark.parametrize(("layout", "channels_first"), [("nhwc", True), ("nchw", False)])
def test_each_driver_runs_it_in_as_many_steps_as_its_tflite_twin(layout: str, channels_first: bool, tmp_path: Path) -> None:
    assert steps(as_onnx(tmp_path, layout)) == steps(as_tflite(tmp_path, channels_first=channels_first))


def test_both_answer_alike(tmp_path: Path) -> None:
    one, other = as_onnx(tmp_path, "auto"), as_tflite(tmp_path, channels_first=True)
    np.testing.assert_allclose(answer(one, IMAGE), answer(other, IMAGE), rtol=1e-5, atol=1e-5)

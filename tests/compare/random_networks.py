"""Random small networks as files: TFLite with floats or 8 bits, ONNX with floats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.tflite.files import TfliteBuilder

_STEP = {"scale": 0.05, "zero_point": 3}
"""Of every 8-bit tensor."""
_SIDE = 8


class _TfliteNetwork:
    """A chain of operators on images [1, side, side, channels], with sums back to earlier ones."""

    def __init__(self, rng: np.random.Generator, quantised: bool) -> None:
        self.rng, self.quantised = rng, quantised
        self.type: dict[str, Any] = {"type": "int8", **_STEP} if quantised else {}
        self.file = TfliteBuilder()
        self.shape = (1, _SIDE, _SIDE, int(rng.integers(2, 6)))
        self.last = self.first = self.file.tensor(self.shape, name="image", **self.type)
        self.earlier: list[tuple[int, tuple[int, ...]]] = [(self.last, self.shape)]

    def then(self, name: str, shape: tuple[int, ...], inputs: list[int], options: dict[str, Any]) -> None:
        made = self.file.tensor(shape, name=f"{name.lower()} {len(self.earlier)}", **self.type)
        self.file.operator(name, [self.last, *inputs], [made], options)
        self.last, self.shape = made, shape
        self.earlier.append((made, shape))

    def weights(self, shape: tuple[int, ...], units: int) -> list[int]:
        if not self.quantised:
            real = self.rng.standard_normal(shape).astype(np.float32) / np.float32(np.sqrt(np.prod(shape) / units))
            return [self.file.constant(real), self.file.constant(self.rng.standard_normal(units).astype(np.float32) / 4)]
        steps = self.rng.integers(-127, 128, shape).astype(np.int8)
        scale = 2 / (127 * float(np.sqrt(np.prod(shape) / units)))
        bias = self.rng.integers(-100, 101, units).astype(np.int32)
        return [self.file.constant(steps, scale=scale), self.file.constant(bias, scale=scale * _STEP["scale"])]

    def convolution(self) -> None:
        units, side = int(self.rng.integers(2, 7)), int(self.rng.choice([1, 3]))
        parts = self.weights((units, side, side, self.shape[3]), units)
        options = {"padding": 0, "stride_w": 1, "stride_h": 1, "fused_activation_function": int(self.rng.choice([0, 1]))}
        options |= {"dilation_w_factor": 1, "dilation_h_factor": 1}
        self.then("CONV_2D", (*self.shape[:3], units), parts, options)

    def depthwise(self) -> None:
        depth = self.shape[3]
        options = {"padding": 0, "stride_w": 1, "stride_h": 1, "depth_multiplier": 1, "fused_activation_function": 0}
        options |= {"dilation_w_factor": 1, "dilation_h_factor": 1}
        self.then("DEPTHWISE_CONV_2D", self.shape, self.weights((1, 3, 3, depth), depth), options)

    def pool(self) -> None:
        name = str(self.rng.choice(["MAX_POOL_2D", "AVERAGE_POOL_2D"]))
        options = {
            "padding": 0,
            "stride_w": 1,
            "stride_h": 1,
            "filter_width": 2,
            "filter_height": 2,
            "fused_activation_function": 0,
        }
        self.then(name, self.shape, [], options)

    def sum(self) -> None:
        same = [tensor for tensor, shape in self.earlier if shape == self.shape]
        self.then("ADD", self.shape, [int(self.rng.choice(same))], {"fused_activation_function": 0})

    def product(self) -> None:
        same = [tensor for tensor, shape in self.earlier if shape == self.shape]
        self.then("MUL", self.shape, [int(self.rng.choice(same))], {"fused_activation_function": 0})

    def connected(self) -> None:
        units, size = int(self.rng.integers(3, 9)), int(np.prod(self.shape))
        flat = self.file.constant(np.int32([1, size]))
        self.then("RESHAPE", (1, size), [flat], {"new_shape": [1, size]})
        options = {"fused_activation_function": 0, "weights_format": 0, "keep_num_dims": False}
        self.then("FULLY_CONNECTED", (1, units), self.weights((units, size), units), options)


def tflite_network(path: Path, seed: int, quantised: bool) -> Path:
    """Write a network of 4 to 10 operators."""
    network = _TfliteNetwork(np.random.default_rng(seed), quantised)
    growth: list[Callable[[], None]] = [
        network.convolution,
        network.convolution,
        network.depthwise,
        network.pool,
        network.sum,
        network.product,
    ]
    for _ in range(int(network.rng.integers(3, 9))):
        growth[int(network.rng.integers(0, len(growth)))]()
    network.connected()
    return network.file.write(path, [network.first], [network.last])


def onnx_network(path: Path, seed: int) -> Path:
    """Write a network of 4 to 10 nodes."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(seed)
    nodes: list[Any] = []
    constants: list[Any] = []
    depth = int(rng.integers(2, 6))
    shape = (1, depth, _SIDE, _SIDE)
    last, earlier = "image", [("image", shape)]

    def constant(array: Any) -> str:
        name = f"c{len(constants)}"
        constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def then(operator: str, others: list[str], made: tuple[int, ...], **attributes: Any) -> None:
        nonlocal last, shape
        name = f"{operator.lower()} {len(nodes)}"
        nodes.append(helper.make_node(operator, [last, *others], [name], name=name, **attributes))
        last, shape = name, made  # type: ignore[assignment]
        earlier.append((last, shape))

    def convolution() -> None:
        units, side = int(rng.integers(2, 7)), int(rng.choice([1, 3]))
        real = rng.standard_normal((units, shape[1], side, side)).astype(np.float32) / np.float32(np.sqrt(shape[1] * side * side))
        bias = rng.standard_normal(units).astype(np.float32) / 4
        then("Conv", [constant(real), constant(bias)], (1, units, _SIDE, _SIDE), pads=[side // 2] * 4)

    def depthwise() -> None:
        real = rng.standard_normal((shape[1], 1, 3, 3)).astype(np.float32) / 3
        then("Conv", [constant(real)], shape, pads=[1, 1, 1, 1], group=shape[1])

    def pool() -> None:
        then(str(rng.choice(["MaxPool", "AveragePool"])), [], shape, kernel_shape=[3, 3], pads=[1, 1, 1, 1])

    def binary() -> None:
        same = [name for name, found in earlier if found == shape]
        then(str(rng.choice(["Add", "Mul", "Sub"])), [str(rng.choice(same))], shape)

    def unary() -> None:
        then(str(rng.choice(["Tanh", "Sigmoid", "Abs"])), [], shape)

    growth = [convolution, convolution, depthwise, pool, binary, unary]
    for _ in range(int(rng.integers(3, 9))):
        growth[int(rng.integers(0, len(growth)))]()
    size, units = int(np.prod(shape)), int(rng.integers(3, 9))
    then("Flatten", [], (1, size))
    real = rng.standard_normal((size, units)).astype(np.float32) / np.float32(np.sqrt(size))
    then("Gemm", [constant(real), constant(np.zeros(units, np.float32))], (1, units))
    ends = [
        helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, depth, _SIDE, _SIDE]),
        helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, units]),
    ]
    graph = helper.make_graph(nodes, "random", ends[:1], ends[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    return path

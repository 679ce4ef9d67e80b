"""Random 8- and 16-bit TFLite networks and single operators, as cases for what evaluates TFLite operators."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.tflite.files import TfliteBuilder

Shape = tuple[int, ...]


class Network:
    """A quantised network that grows operator by operator; ``last`` is what the next one reads."""

    def __init__(self, chance: random.Random, shape: Shape, element: str = "int8") -> None:
        self.chance, self.element = chance, element
        self.file = TfliteBuilder()
        self.numbers = np.random.default_rng(chance.getrandbits(32))
        self.shape = shape
        self.last = self.value(shape)
        self.inputs = [self.last]

    def value(self, shape: Shape, scale: float = 0.05, zero_point: int = 0) -> int:
        """A computed tensor."""
        return self.file.tensor(shape, self.element, scale=scale, zero_point=zero_point)

    def weights(self, shape: Shape, channels: int, axis: int) -> int:
        """Weights as training leaves them: normally distributed, some wider than others."""
        spread = self.chance.uniform(10, 40)
        array = np.clip(self.numbers.normal(0, spread, shape), -127, 127).astype(np.int8)
        return self.file.constant(array, scale=[0.01] * channels, zero_point=[0] * channels, axis=axis)

    def bias(self, channels: int) -> int:
        """A bias for each channel."""
        wide = "int64" if self.element == "int16" else "int32"
        array = self.numbers.integers(-1000, 1000, channels).astype(wide)
        return self.file.constant(array, scale=[0.0005] * channels, zero_point=[0] * channels)

    def apply(self, name: str, inputs: Sequence[int], shape: Shape, options: dict[str, Any] | None = None, **more: Any) -> int:
        """Add an operator that makes the new last value."""
        out = self.value(shape, **more)
        self.file.operator(name, list(inputs), [out], options or {})
        self.last, self.shape = out, shape
        return out

    def windows(self, kernel: int, stride: int, padding: int) -> tuple[int, int]:
        """Rows and columns of the output of a window."""
        sides = self.shape[1:3]
        found = [-(-s // stride) if padding == 0 else (s - kernel) // stride + 1 for s in sides]
        return found[0], found[1]

    def conv(self, channels: int, kernel: int = 3, stride: int = 1, padding: int = 0, activation: int = 1) -> int:
        """CONV_2D."""
        n, _, _, c = self.shape
        options = {"padding": padding, "stride_w": stride, "stride_h": stride, "fused_activation_function": activation}
        options |= {"dilation_w_factor": 1, "dilation_h_factor": 1}
        inputs = [self.last, self.weights((channels, kernel, kernel, c), channels, 0), self.bias(channels)]
        return self.apply("CONV_2D", inputs, (n, *self.windows(kernel, stride, padding), channels), options)

    def depthwise(self, kernel: int = 3, stride: int = 1, padding: int = 0) -> int:
        """DEPTHWISE_CONV_2D."""
        n, _, _, c = self.shape
        options = {"padding": padding, "stride_w": stride, "stride_h": stride, "depth_multiplier": 1}
        options |= {"fused_activation_function": 3, "dilation_w_factor": 1, "dilation_h_factor": 1}
        inputs = [self.last, self.weights((1, kernel, kernel, c), c, 3), self.bias(c)]
        return self.apply("DEPTHWISE_CONV_2D", inputs, (n, *self.windows(kernel, stride, padding), c), options)

    def pool(self, name: str, kernel: int, stride: int) -> int:
        """AVERAGE_POOL_2D or MAX_POOL_2D, without padding."""
        n, _, _, c = self.shape
        options = {"padding": 1, "stride_w": stride, "stride_h": stride, "filter_width": kernel, "filter_height": kernel}
        return self.apply(name, [self.last], (n, *self.windows(kernel, stride, 1), c), options)

    def unary(self, name: str, **options: Any) -> int:
        """An operator of one value that keeps its shape."""
        return self.apply(name, [self.last], self.shape, options, scale=1 / 256, zero_point=-128)

    def binary(self, name: str, other: int) -> int:
        """An operator of two values of one shape."""
        return self.apply(name, [self.last, other], self.shape, {"fused_activation_function": 0})

    def resize(self, name: str, factor: int) -> int:
        """RESIZE_BILINEAR or RESIZE_NEAREST_NEIGHBOR."""
        n, h, w, c = self.shape
        size = self.file.constant(np.array([h * factor, w * factor], np.int32))
        options = {"align_corners": False, "half_pixel_centers": factor == 2}
        return self.apply(name, [self.last, size], (n, h * factor, w * factor, c), options)

    def reshape(self, shape: Shape) -> int:
        """RESHAPE."""
        return self.apply(
            "RESHAPE", [self.last, self.file.constant(np.array(shape, np.int32))], shape, {"new_shape": list(shape)}
        )

    def dense(self, units: int) -> int:
        """FULLY_CONNECTED on the flattened value."""
        flat = int(np.prod(self.shape[1:]))
        if len(self.shape) != 2:
            self.reshape((self.shape[0], flat))
        inputs = [self.last, self.weights((units, flat), 1, 0), self.bias(units)]
        return self.apply("FULLY_CONNECTED", inputs, (self.shape[0], units), {"fused_activation_function": 0})

    def mean(self) -> int:
        """MEAN over rows and columns."""
        axes = self.file.constant(np.array([1, 2], np.int32))
        return self.apply("MEAN", [self.last, axes], (self.shape[0], 1, 1, self.shape[3]), {"keep_dims": True})

    def write(self, path: Path) -> Path:
        """Write the file."""
        return self.file.write(path, self.inputs, [self.last])


def network(seed: int) -> Network:
    """A classifier or decoder in one of the usual styles: depthwise blocks, residual blocks, plain convolutions."""
    chance = random.Random(seed)
    side, width = chance.choice((32, 48, 64, 96, 128, 160)), chance.choice((8, 12, 16, 24, 32))
    net = Network(chance, (1, side, chance.choice((side, side * 3 // 4)), chance.choice((1, 3))), "int8")
    net.conv(width, chance.choice((3, 5)), 2)
    style = chance.choice(("depthwise", "inverted", "residual", "plain"))
    for _ in range(chance.randint(3, 9)):
        stride = 2 if min(net.shape[1:3]) >= 8 and chance.random() < 0.45 else 1
        if stride == 2:
            width = min(256, width * chance.choice((1, 2, 2)))
        if style == "depthwise":
            net.depthwise(chance.choice((3, 3, 5)), stride)
            net.conv(width, 1)
        elif style == "inverted":
            before = net.last, net.shape
            net.conv(net.shape[3] * chance.choice((3, 4, 6)), 1)
            net.depthwise(3, stride)
            net.conv(width, 1, activation=0)
            if net.shape == before[1]:
                net.binary("ADD", before[0])
        elif style == "residual":
            net.conv(width, 3, stride)
            before = net.last, net.shape
            net.conv(width, 3)
            net.conv(width, 3, activation=0)
            net.binary("ADD", before[0])
        elif stride == 2:
            net.conv(width, chance.choice((3, 5)))
            net.pool("MAX_POOL_2D", 2, 2)
        else:
            net.conv(width, chance.choice((1, 3)))
        if chance.random() < 0.06:
            net.unary(chance.choice(("LOGISTIC", "HARD_SWISH", "TANH")))
    ending = chance.choice(("classifier", "classifier", "decoder"))
    if ending == "decoder":
        net.resize(chance.choice(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")), chance.choice((2, 4)))
        net.conv(chance.choice((1, 8, 21)), 1, activation=0)
        if chance.random() < 0.5:
            net.unary("LOGISTIC")
    else:
        if chance.random() < 0.5:
            net.mean()
        else:
            net.pool("AVERAGE_POOL_2D", min(net.shape[1:3]), 1)
        net.dense(chance.choice((2, 10, 100, 1000)))
        net.unary("SOFTMAX", beta=1.0)
    return net

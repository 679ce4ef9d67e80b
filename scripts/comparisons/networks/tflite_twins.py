"""The same plain CNNs as TFLite files, from the same weights with batch normalisation folded, for ``torch_models.py``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from networks.in_torch import SIDE, BasicBlock, InvertedResidual, MobileNetV2, Network, ResNet18
from torch import nn

from tests.tflite.files import TfliteBuilder

PLAIN = ("MobileNetV2", "ResNet18")
NONE, RELU, RELU6 = 0, 1, 3
"""TFLite's ActivationFunctionType."""
SAME = 0
"""TFLite's Padding."""
_ACTIVATIONS = {nn.ReLU: RELU, nn.ReLU6: RELU6}


def twin(network: Network, path: Path, *, channels_first: bool) -> Path:
    """Write the network; with ``channels_first`` its input has torch's layout, and the file transposes it."""
    with torch.no_grad():
        return _Writer(network.seeded()).write(path, channels_first)


class _Writer:
    """Writes one network."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._file = TfliteBuilder()

    def write(self, path: Path, channels_first: bool) -> Path:
        file, module = self._file, self._module
        source = file.tensor((1, 3, SIDE, SIDE) if channels_first else (1, SIDE, SIDE, 3), name="image")
        image = source
        if channels_first:
            image = file.tensor((1, SIDE, SIDE, 3))
            file.operator("TRANSPOSE", [source, file.constant([0, 2, 3, 1], "int32")], [image], {})
        assert isinstance(module, (MobileNetV2, ResNet18))
        for layer in module.features:
            image = self._layer(layer, image)
        channels = self._dims(image)[-1]
        means = file.tensor((1, channels))
        file.operator("MEAN", [image, file.constant([1, 2], "int32")], [means], {"keep_dims": False})
        weights = file.constant(module.classifier.weight.numpy())
        result = file.tensor((1, module.classifier.out_features), name="classes")
        inputs = [means, weights, file.constant(module.classifier.bias.numpy())]
        file.operator("FULLY_CONNECTED", inputs, [result], {})
        return file.write(path, [source], [result])

    def _dims(self, tensor: int) -> tuple[int, ...]:
        return tuple(self._file.tensors[tensor]["shape"])

    def _layer(self, layer: nn.Module, image: int) -> int:
        if isinstance(layer, InvertedResidual):
            inner = self._chain(layer.layers, image)
            return self._add(image, inner, NONE) if layer.residual else inner
        if isinstance(layer, BasicBlock):
            shortcut = image if isinstance(layer.shortcut, nn.Identity) else self._chain(nn.Sequential(layer.shortcut), image)
            return self._add(self._chain(layer.layers, image), shortcut, RELU)
        if isinstance(layer, nn.MaxPool2d):
            return self._pool(image)
        return self._chain(nn.Sequential(layer), image)

    def _chain(self, layers: nn.Sequential, image: int) -> int:
        for layer in layers:
            assert isinstance(layer, nn.Sequential)
            image = self._convolution(layer, image)
        return image

    def _convolution(self, layer: nn.Sequential, image: int) -> int:
        """Convolution, batch normalisation and activation as one operator."""
        conv, norm = layer[0], layer[1]
        assert isinstance(conv, nn.Conv2d)
        assert isinstance(norm, nn.BatchNorm2d)
        factor = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        weights = (conv.weight * factor[:, None, None, None]).numpy()
        bias = (norm.bias - norm.running_mean * factor).numpy()
        depthwise = conv.groups > 1
        order = (1, 2, 3, 0) if depthwise else (0, 2, 3, 1)
        inputs = [image, self._file.constant(np.ascontiguousarray(weights.transpose(order))), self._file.constant(bias)]
        activation = _ACTIVATIONS[type(layer[2])] if len(layer) > 2 else NONE
        stride = conv.stride[0]
        options = {"padding": SAME, "stride_w": stride, "stride_h": stride, "fused_activation_function": activation}
        if depthwise:
            options["depth_multiplier"] = 1
        output = self._file.tensor(self._smaller(image, stride, conv.out_channels))
        self._file.operator("DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", inputs, [output], options)
        return output

    def _smaller(self, image: int, stride: int, channels: int) -> tuple[int, ...]:
        _, height, width, _ = self._dims(image)
        return 1, -(-height // stride), -(-width // stride), channels

    def _pool(self, image: int) -> int:
        output = self._file.tensor(self._smaller(image, 2, self._dims(image)[-1]))
        options = {"padding": SAME, "stride_w": 2, "stride_h": 2, "filter_width": 3, "filter_height": 3}
        self._file.operator("MAX_POOL_2D", [image], [output], options)
        return output

    def _add(self, one: int, other: int, activation: int) -> int:
        output = self._file.tensor(self._dims(one))
        self._file.operator("ADD", [one, other], [output], {"fused_activation_function": activation})
        return output

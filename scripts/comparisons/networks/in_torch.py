"""Networks in plain torch with seeded random weights, for ``torch_models.py``: small, with the structure of the real ones.

Image sizes are 2**n + 1: for these, torch's symmetric padding and TFLite's SAME are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, library, nn
from torch.nn import functional as F

SIDE = 65
"""Height and width of images."""


def conv(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, activation: nn.Module | None = None
) -> nn.Sequential:
    """Convolution, batch normalisation, activation."""
    layers = [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([] if activation is None else [activation]))


class InvertedResidual(nn.Module):
    """MobileNetV2's block."""

    def __init__(self, inputs: int, outputs: int, stride: int, factor: int) -> None:
        super().__init__()
        hidden = inputs * factor
        expand = [conv(inputs, hidden, 1, activation=nn.ReLU6())] if factor > 1 else []
        self.layers = nn.Sequential(*expand, conv(hidden, hidden, 3, stride, hidden, nn.ReLU6()), conv(hidden, outputs, 1))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.residual else self.layers(x)


class MobileNetV2(nn.Module):
    """MobileNetV2 of width 0.25."""

    BLOCKS = ((1, 8, 1, 1), (6, 8, 2, 2), (6, 8, 3, 2), (6, 16, 4, 2), (6, 24, 3, 1), (6, 40, 3, 2), (6, 80, 1, 1))
    """Expansion factor, channels, repetitions, stride of the first."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv(3, 8, 3, 2, activation=nn.ReLU6())]
        channels = 8
        for factor, outputs, count, stride in self.BLOCKS:
            for i in range(count):
                layers.append(InvertedResidual(channels, outputs, stride if i == 0 else 1, factor))
                channels = outputs
        layers.append(conv(channels, 320, 1, activation=nn.ReLU6()))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(320, 100)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


class BasicBlock(nn.Module):
    """ResNet's block of two convolutions."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(conv(inputs, outputs, 3, stride, activation=nn.ReLU()), conv(outputs, outputs, 3))
        self.shortcut = conv(inputs, outputs, 1, stride) if stride > 1 or inputs != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.layers(x) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet18 with a quarter of the channels."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv(3, width, 7, 2, activation=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
        channels = width
        for stage in range(4):
            for i in range(2):
                layers.append(BasicBlock(channels, width << stage, 2 if stage and not i else 1))
                channels = width << stage
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, 100)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.pool(self.features(x)), 1))


class SqueezeExcite(nn.Module):
    """Channels scaled by a function of their means."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, hidden, 1), nn.Conv2d(hidden, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        means = F.adaptive_avg_pool2d(x, 1)
        return x * torch.sigmoid(self.expand(F.silu(self.reduce(means))))


class MBConv(nn.Module):
    """EfficientNet's block."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, factor: int) -> None:
        super().__init__()
        hidden = inputs * factor
        expand = [conv(inputs, hidden, 1, activation=nn.SiLU())] if factor > 1 else []
        depthwise = conv(hidden, hidden, kernel, stride, hidden, nn.SiLU())
        self.layers = nn.Sequential(*expand, depthwise, SqueezeExcite(hidden, max(1, inputs // 4)), conv(hidden, outputs, 1))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.residual else self.layers(x)


class EfficientNet(nn.Module):
    """EfficientNet's structure with few channels."""

    BLOCKS = ((16, 8, 3, 1, 1), (8, 12, 3, 2, 6), (12, 20, 5, 2, 6), (20, 20, 5, 1, 6), (20, 32, 3, 2, 6), (32, 32, 3, 1, 6))

    def __init__(self) -> None:
        super().__init__()
        blocks = [MBConv(*block) for block in self.BLOCKS]
        self.features = nn.Sequential(conv(3, 16, 3, 2, activation=nn.SiLU()), *blocks, conv(32, 128, 1, activation=nn.SiLU()))
        self.classifier = nn.Linear(128, 50)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(F.adaptive_avg_pool2d(self.features(x), 1), 1))


class EncoderLayer(nn.Module):
    """A transformer layer; normalised before (ViT) or after (BERT) its halves."""

    def __init__(self, width: int, heads: int, before: bool) -> None:
        super().__init__()
        self.heads, self.before = heads, before
        self.query_key_value, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.before:
            x = x + self.attend(self.norm1(x), mask)
            return x + self.mlp(self.norm2(x))
        x = self.norm1(x + self.attend(x, mask))
        return self.norm2(x + self.mlp(x))

    def attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Attention written out (ViT) or torch's own function (BERT)."""
        batch, length, width = x.shape
        parts = self.query_key_value(x).reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts[0], parts[1], parts[2]
        if mask is not None:
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        else:
            scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
            mixed = scores.softmax(-1) @ value
        return self.project(mixed.transpose(1, 2).reshape(batch, length, width))


class ViT(nn.Module):
    """A vision transformer of three layers."""

    def __init__(self, width: int = 48, patch: int = 8, side: int = 32) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, width))
        self.layers = nn.ModuleList(EncoderLayer(width, 4, True) for _ in range(3))
        self.norm, self.classifier = nn.LayerNorm(width), nn.Linear(width, 20)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.classifier(self.norm(x)[:, 0])


class Bert(nn.Module):
    """A BERT encoder of two layers over token numbers and a mask, with its pooler."""

    def __init__(self, width: int = 48, words: int = 64, length: int = 16) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(EncoderLayer(width, 4, False) for _ in range(2))
        self.pooler = nn.Linear(width, width)

    def forward(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        x = self.norm(self.words(tokens) + self.positions(torch.arange(tokens.shape[1])))
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, bias)
        return x, torch.tanh(self.pooler(x[:, 0]))


class Gru(nn.Module):
    """Two layers of GRU in both directions, with a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(12, 16, num_layers=2, bidirectional=True, batch_first=True)
        self.classifier = nn.Linear(32, 6)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.gru(x)
        return self.classifier(hidden)


class UNet(nn.Module):
    """A U-Net of three levels: one way up by a transposed convolution, one by bilinear resizing."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down1, self.down2 = self.twice(3, width), self.twice(width, 2 * width)
        self.bottom = self.twice(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.merge2, self.merge1 = self.twice(4 * width, 2 * width), self.twice(3 * width, width)
        self.classes = nn.Conv2d(width, 4, 1)

    @staticmethod
    def twice(inputs: int, outputs: int) -> nn.Sequential:
        """Two convolutions."""
        return nn.Sequential(conv(inputs, outputs, 3, activation=nn.ReLU()), conv(outputs, outputs, 3, activation=nn.ReLU()))

    def forward(self, x: Tensor) -> Tensor:
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        x = self.bottom(F.max_pool2d(second, 2))
        x = self.merge2(torch.cat([self.up2(x), second], 1))
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return self.classes(self.merge1(torch.cat([x, first], 1)))


class Detector(nn.Module):
    """Boxes around anchors on two scales, their scores, and which of them non-maximum suppression keeps."""

    def __init__(self, width: int = 12, classes: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, width, 3, 2, activation=nn.ReLU()), conv(width, width, 3, 2, activation=nn.ReLU()))
        self.coarse = conv(width, width, 3, 2, activation=nn.ReLU())
        self.offset = nn.ModuleList(nn.Conv2d(width, 4, 3, padding=1) for _ in range(2))
        self.score = nn.ModuleList(nn.Conv2d(width, classes, 3, padding=1) for _ in range(2))
        self.register_buffer("anchors", torch.cat([self.grid(side) for side in (17, 9)]))

    @staticmethod
    def grid(side: int) -> Tensor:
        """Centre and size of an anchor for each position of a grid, as shares of the image."""
        steps = (torch.arange(side) + 0.5) / side
        y, x = torch.meshgrid(steps, steps, indexing="ij")
        return torch.stack([y, x, torch.full_like(y, 2 / side), torch.full_like(x, 2 / side)], -1).reshape(-1, 4)

    @staticmethod
    def flat(heads: Iterable[nn.Module], maps: Sequence[Tensor]) -> Tensor:
        """The heads' values at every position of their maps, one row each."""
        pairs = zip(heads, maps, strict=True)
        return torch.cat([head(seen).permute(0, 2, 3, 1).flatten(1, 2) for head, seen in pairs], 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        fine = self.stem(x)
        maps = (fine, self.coarse(fine))
        offsets = self.flat(self.offset, maps)
        scores = self.flat(self.score, maps)
        centres = offsets[..., :2] * 0.1 * self.anchors[:, 2:] + self.anchors[:, :2]
        halves = torch.exp(offsets[..., 2:] * 0.2) * self.anchors[:, 2:] / 2
        boxes = torch.cat([centres - halves, centres + halves], -1)
        likely = torch.sigmoid(scores)
        return boxes, likely, keep(boxes, likely.transpose(1, 2))


@library.custom_op("nnbridge_scripts::keep", mutates_args=())
def keep(boxes: Tensor, scores: Tensor) -> Tensor:
    """Stands for ONNX's NonMaxSuppression, which torch itself does not have; exporters only ask for its type."""
    return boxes.new_zeros((1, 3), dtype=torch.int64)


@keep.register_fake
def _kept(boxes: Tensor, scores: Tensor) -> Tensor:
    return boxes.new_empty((library.get_ctx().new_dynamic_size(), 3), dtype=torch.int64)


@dataclass(frozen=True)
class Network:
    """A network and its inputs."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Mapping[str, tuple[int, ...]]
    integers: Mapping[str, int] = field(default_factory=dict)
    """Inputs of int64, and how many numbers they are drawn from, from 0 on."""
    quantised: Sequence[str] = ()
    """Operators to quantise; by default all that can be."""

    def seeded(self) -> nn.Module:
        """The network with the weights of seed 0.

        Variances of 1 keep a random network from being chaotic: with those that its layers really have, the last bit of a sum
        would decide the outputs of a quantised one, and ONNX Runtime's fused operators differ from the plain ones by 28 %.
        """
        torch.manual_seed(0)
        built = self.make()
        for module in built.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.75, 1.25)
                nn.init.normal_(module.bias, std=0.1)
                nn.init.normal_(module.running_mean, std=0.1)
                nn.init.uniform_(module.running_var, 0.75, 1.25)
        return built.eval()

    def example(self, seed: int = 0) -> tuple[Tensor, ...]:
        """Inputs of a seed."""
        generator = torch.Generator().manual_seed(seed)
        drawn = []
        for name, dims in self.inputs.items():
            bound = self.integers.get(name)
            drawn.append(
                torch.randn(dims, generator=generator) if bound is None else torch.randint(0, bound, dims, generator=generator)
            )
        return tuple(drawn)


KEPT = 20
"""The most boxes of a class that non-maximum suppression returns; the overlap and score thresholds are 0.5."""


def export(network: Network, path: Path, *, by_dynamo: bool) -> None:
    """Write a network as ONNX, by torch's exporter or by its older one."""
    settings: dict[str, Any] = {"input_names": list(network.inputs), "external_data": False, "verbose": False}
    if by_dynamo:
        from onnxscript import opset18 as op

        def kept(boxes, scores):  # type: ignore[no-untyped-def]  # annotations would be read as ONNX types
            share = op.Constant(value_floats=[0.5])
            return op.NonMaxSuppression(boxes, scores, op.Constant(value_ints=[KEPT]), share, share)

        settings.update(dynamo=True, opset_version=18, custom_translation_table={torch.ops.nnbridge_scripts.keep.default: kept})
    else:
        torch.onnx.register_custom_op_symbolic("nnbridge_scripts::keep", _older_keep, 17)
        settings.update(dynamo=False, opset_version=17)
    torch.onnx.export(network.seeded(), network.example(), str(path), **settings)


def _older_keep(graph: Any, boxes: Any, scores: Any) -> Any:
    numbers = (torch.tensor([KEPT]), torch.tensor([0.5]), torch.tensor([0.5]))
    return graph.op("NonMaxSuppression", boxes, scores, *(graph.op("Constant", value_t=number) for number in numbers))


PRODUCTS = ("Conv", "Gemm", "MatMul")
"""Operators that are quantised in transformers, as is usual: the others are sensitive and cost little."""
IMAGE = {"image": (1, 3, SIDE, SIDE)}
NETWORKS = (
    Network("MobileNetV2", MobileNetV2, IMAGE),
    Network("ResNet18", ResNet18, IMAGE),
    Network("EfficientNet", EfficientNet, IMAGE),
    Network("ViT", ViT, {"image": (1, 3, 32, 32)}, quantised=PRODUCTS),
    Network("BERT", Bert, {"tokens": (1, 16), "mask": (1, 16)}, {"tokens": 64, "mask": 2}, PRODUCTS),
    Network("GRU", Gru, {"sequence": (1, 10, 12)}),
    Network("U-Net", UNet, {"image": (1, 3, 48, 48)}),
    Network("detector", Detector, IMAGE),
)

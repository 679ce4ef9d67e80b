"""Convolutions and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnbridge.converters.draft import Value
from nnbridge.types import OperandCode, OperationCode
from nnbridge_onnx.graph import Array, Dims
from nnbridge_onnx.lowering import Lowerer, lowers
from nnbridge_onnx.values import LAST

C = OperationCode


@dataclass(frozen=True)
class Window:
    """Padding as NNAPI lists it (left, right, top, bottom), strides and dilations (width, height)."""

    pads: list[int]
    strides: list[int]
    dilations: list[int]


@dataclass(frozen=True)
class Plane:
    """An image of rank 4, which a line of rank 3 becomes with a height of 1."""

    x: Value
    shape: Dims
    """Batch, channels, height, width."""
    line: bool

    def pair(self, values: Sequence[int], one: int = 1) -> list[int]:
        """Numbers for height and width."""
        return [one, *values] if self.line else list(values)

    def output(self, to: Lowerer) -> Value:
        """What the operation on the plane makes."""
        declared = to.image_output()
        return declared.like() if self.line else declared

    def finish(self, to: Lowerer, made: Value) -> None:
        """The node's output: the plane, or the line that it was."""
        if self.line:
            dims = (made.dims[0], made.dims[2], made.dims[3]) if to.channels_last else (*made.dims[:2], made.dims[3])
            made = to.emit(C.RESHAPE, [made, to.vector(dims)], to.image_output())
        to.image_result(made)


def plane(to: Lowerer) -> Plane:
    """The first input as an image of rank 4."""
    shape, x = to.shape(), to.image()
    to.require(len(shape) in LAST and 0 not in shape, "an image of rank 3 or 4 with elements", list(shape))
    if len(shape) == 4:
        return Plane(x, shape, False)
    batch, channels, length = shape
    dims = (batch, 1, length, channels) if to.channels_last else (batch, channels, 1, length)
    return Plane(to.emit(C.RESHAPE, [x, to.vector(dims)], to.temporary(x)), (batch, channels, 1, length), True)


def window(to: Lowerer, image: Plane, kernel: Sequence[int]) -> Window:
    """The sliding window over an image."""
    to.require(len(kernel) == 2, "one or two spatial axes", len(kernel))
    sizes, one = image.shape[2:], [1] * (1 if image.line else 2)
    strides, dilations = (image.pair(to.ints(name, one)) for name in ("strides", "dilations"))
    to.require(len(strides) == len(dilations) == 2, "strides and dilations for each axis", [strides, dilations])
    to.require(min(*strides, *dilations) > 0, "strides and dilations above 0", [strides, dilations])
    auto = to.attribute("auto_pad", "NOTSET")
    if auto in ("NOTSET", "VALID"):
        given = to.ints("pads", [0] * 2 * len(one)) if auto == "NOTSET" else [0] * 2 * len(one)
        top, left, bottom, right = [*image.pair(given[: len(one)], 0), *image.pair(given[len(one) :], 0)]
    else:
        pads = []
        for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
            total = max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size)
            small, large = total // 2, total - total // 2
            pads.append((large, small) if auto == "SAME_LOWER" else (small, large))
        (top, bottom), (left, right) = pads
    to.require(min(top, left, bottom, right) >= 0, "paddings of at least 0", [top, left, bottom, right])
    return Window([left, right, top, bottom], strides[::-1], dilations[::-1])


def padded(to: Lowerer, x: Value, found: Window, kernel: Sequence[int]) -> tuple[Value, list[int]]:
    """NNAPI wants paddings below the dilated kernel; larger ones become a PAD of their own."""
    extents = [(k - 1) * d + 1 for k, d in zip(kernel[::-1], found.dilations, strict=True)]
    limits = [extents[0], extents[0], extents[1], extents[1]]
    if all(p < limit for p, limit in zip(found.pads, limits, strict=True)):
        return x, found.pads
    left, right, top, bottom = found.pads
    spatial = [[top, bottom], [left, right]]
    pads = [[0, 0], *spatial, [0, 0]] if to.channels_last else [[0, 0], [0, 0], *spatial]
    numbers = to.values.draft.ints([n for pair in pads for n in pair], (4, 2))
    return to.emit(C.PAD, [x, numbers], to.temporary(x)), [0, 0, 0, 0]


@lowers("Conv")
def _conv(to: Lowerer) -> None:
    """CONV_2D, DEPTHWISE_CONV_2D or GROUPED_CONV_2D with weights [out, in / groups, height, width]."""
    image, given = plane(to), to.shape(1)
    to.require(len(given) == len(to.shape()) and 0 not in given, "weights of the image's rank", list(given))
    dims, x = (*given[:2], *image.pair(given[2:])), image.x
    to.require(to.is_float(x), "floating images", OperandCode(x.type).name, x.name)
    order, weights = filter_order(to, dims), to.values.constants.get(to.name(1))
    if weights is not None:
        filter = to.real(weights.reshape(dims).transpose(order), x)
    else:
        filter = to.emit(C.TRANSPOSE, [to.operand(1, x, dims), to.vector(order)], to.temporary(x))
    bias = to.operand(2, x) if to.name(2) else to.real(np.zeros(dims[0]), x)
    image.finish(to, convolve(to, image, dims, filter, bias, image.output(to)))


def filter_order(to: Lowerer, weights: Sequence[int]) -> tuple[int, int, int, int]:
    """How ONNX's weights [out, in / groups, height, width] are turned for NNAPI."""
    return (1, 2, 3, 0) if _is_depthwise(to, weights) else (0, 2, 3, 1)


def _is_depthwise(to: Lowerer, weights: Sequence[int]) -> bool:
    return int(to.attribute("group", 1)) > 1 and weights[1] == 1


def convolve(to: Lowerer, image: Plane, weights: Sequence[int], filter: Value, bias: Value, output: Value) -> Value:
    """A convolution with weights of ONNX's shape, turned into ``filter``."""
    found, shape = window(to, image, weights[2:]), image.shape
    groups = int(to.attribute("group", 1))
    count = weights[0]
    to.require(groups > 0 and count % groups == 0 and weights[1] * groups == shape[1], "channels in whole groups", groups)
    x, pads = padded(to, image.x, found, weights[2:])
    head = [x, filter, bias]
    numbers = [to.scalar(v) for v in (*pads, *found.strides)]
    dilated = found.dilations != [1, 1]
    tail = [to.activation(), *to.layout(needed=dilated or (groups > 1 and not _is_depthwise(to, weights)))]
    dilations = [to.scalar(v) for v in found.dilations] if dilated else []
    if _is_depthwise(to, weights):
        return to.emit(C.DEPTHWISE_CONV_2D, [*head, *numbers, to.scalar(count // groups), *tail, *dilations], output)
    if groups > 1:
        to.require(not dilated, "no dilation of a grouped convolution", found.dilations)
        return to.emit(C.GROUPED_CONV_2D, [*head, *numbers, to.scalar(groups), *tail], output)
    return to.emit(C.CONV_2D, [*head, *numbers, *tail, *dilations], output)


@lowers("ConvTranspose")
def _conv_transpose(to: Lowerer) -> None:
    """TRANSPOSE_CONV_2D with explicit padding, one for each group; weights are [in, out / groups, height, width] in ONNX."""
    image, given = plane(to), to.constant(1)
    groups, x = int(to.attribute("group", 1)), image.x
    to.require(given.ndim == len(to.shape()) and groups > 0, "weights of the image's rank", list(given.shape))
    to.require(given.shape[0] == image.shape[1] and given.shape[0] % groups == 0, "channels in whole groups", groups)
    to.require(to.is_float(x), "floating images", OperandCode(x.type).name, x.name)
    one = [1] * (1 if image.line else 2)
    strides, dilations = (image.pair(to.ints(name, one)) for name in ("strides", "dilations"))
    weights = _spread(to, given.reshape(*given.shape[:2], *image.pair(given.shape[2:])), dilations)
    top, left, bottom, right = _transposed_pads(to, image, weights.shape[2:], strides)
    to.require(min(top, left, bottom, right) >= 0, "paddings of at least 0", [top, left, bottom, right])
    bias = to.optional_constant(2)
    bias = np.zeros(weights.shape[1] * groups) if bias is None else bias
    numbers = [to.scalar(v) for v in (left, right, top, bottom, strides[1], strides[0])]

    def part(source: Value, group: int, output: Value) -> Value:
        filter = np.split(weights, groups)[group].transpose(1, 2, 3, 0)
        operands = [source, to.real(filter, x), to.real(np.split(bias, groups)[group], x)]
        flags = [to.activation(), to.flag(not to.channels_last)]
        return to.emit(C.TRANSPOSE_CONV_2D, [*operands, *numbers, *flags], output)

    if groups == 1:
        image.finish(to, part(x, 0, image.output(to)))
        return
    axis = to.scalar(3 if to.channels_last else 1)
    sources = to.emit_all(C.SPLIT, [x, axis, to.scalar(groups)], [to.temporary(x) for _ in range(groups)])
    made = [part(source, i, to.temporary(x)) for i, source in enumerate(sources)]
    image.finish(to, to.emit(C.CONCATENATION, [*made, axis], image.output(to)))


def _spread(to: Lowerer, weights: Array, dilations: Sequence[int]) -> Array:
    """Weights with zeros between, as dilation means."""
    to.require(min(dilations) > 0, "dilations above 0", list(dilations))
    if list(dilations) == [1, 1]:
        return weights
    sizes = [(k - 1) * d + 1 for k, d in zip(weights.shape[2:], dilations, strict=True)]
    to.values.draft.spend(weights.shape[0] * weights.shape[1] * sizes[0] * sizes[1])
    spread = np.zeros((*weights.shape[:2], *sizes), weights.dtype)
    spread[:, :, :: dilations[0], :: dilations[1]] = weights
    return spread


def _transposed_pads(to: Lowerer, image: Plane, kernel: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Top, left, bottom, right."""
    count = 1 if image.line else 2
    extra = image.pair(to.ints("output_padding", [0] * count), 0)
    auto, wanted = to.attribute("auto_pad", "NOTSET"), to.ints("output_shape", [])[-count:]
    if auto == "NOTSET" and not wanted:
        given = to.ints("pads", [0] * 2 * count)
        top, left, bottom, right = [*image.pair(given[:count], 0), *image.pair(given[count:], 0)]
        return [top, left, bottom - extra[0], right - extra[1]]
    targets = image.pair(wanted) if wanted else [size * s for size, s in zip(image.shape[2:], strides, strict=True)]
    pairs = []
    for size, k, s, more, target in zip(image.shape[2:], kernel, strides, extra, targets, strict=True):
        total = 0 if auto == "VALID" else s * (size - 1) + more + k - target
        small = total // 2
        pairs.append((small, total - small - more) if auto == "SAME_UPPER" else (total - small, small - more))
    (top, bottom), (left, right) = pairs
    return [top, left, bottom, right]


# -- pooling ---------------------------------------------------------------------------------------------------------

_POOLS = {"MaxPool": C.MAX_POOL_2D, "AveragePool": C.AVERAGE_POOL_2D}


@lowers("MaxPool", "AveragePool", "LpPool")
def _pool(to: Lowerer) -> None:
    to.require(len([n for n in to.node.outputs if n]) == 1, "no indexes", "a second output")
    image = plane(to)
    kernel, shape, x = image.pair(to.ints("kernel_shape", [])), image.shape, image.x
    found = window(to, image, kernel)
    to.require(found.dilations == [1, 1], "no dilation", found.dilations)
    pads = _rounded_up(to, found, kernel, shape) if to.attribute("ceil_mode", 0) else found.pads
    counted = to.node.type == "AveragePool" and to.attribute("count_include_pad", 0) and any(found.pads)
    limits = [kernel[1], kernel[1], kernel[0], kernel[0]]
    to.require(all(p < k for p, k in zip(pads, limits, strict=True)), "paddings below the kernel", pads)
    if counted:
        # Averages over padding count zeros: they are put there first.
        to.require(pads == found.pads and to.is_float(x), "no ceil_mode with count_include_pad", "both")
        left, right, top, bottom = pads
        spatial = [top, bottom, left, right]
        numbers = [0, 0, *spatial, 0, 0] if to.channels_last else [0, 0, 0, 0, *spatial]
        x = to.emit(C.PAD, [x, to.values.draft.ints(numbers, (4, 2))], to.temporary(x))
        pads = [0, 0, 0, 0]
    window_inputs = [to.scalar(v) for v in (*pads, *found.strides, kernel[1], kernel[0])]
    if to.node.type == "LpPool":
        # NNAPI takes the root of the mean of squares, ONNX that of their sum.
        to.require(to.attribute("p", 2) == 2 and not any(pads), "p of 2 without padding", [to.attribute("p", 2), pads])
        means = to.emit(C.L2_POOL_2D, [x, *window_inputs, to.scalar(0), *to.layout()], to.temporary(x))
        root = to.real([math.sqrt(kernel[0] * kernel[1])], x)
        image.finish(to, to.emit(C.MUL, [means, root, to.activation()], image.output(to)))
        return
    image.finish(to, to.emit(_POOLS[to.node.type], [x, *window_inputs, to.activation(), *to.layout()], image.output(to)))


def _rounded_up(to: Lowerer, found: Window, kernel: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Padding at the ends that makes room for the last, partial window of ceil_mode."""
    left, right, top, bottom = found.pads
    ends = []
    for size, before, after, k, s in (
        (shape[3], left, right, kernel[1], found.strides[0]),
        (shape[2], top, bottom, kernel[0], found.strides[1]),
    ):
        count = math.ceil((size + before + after - k) / s) + 1
        if (count - 1) * s >= size + before:
            count -= 1
        ends.append(max(after, (count - 1) * s + k - size - before))
    return [left, ends[0], top, ends[1]]


@lowers("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(to: Lowerer) -> None:
    """MEAN or REDUCE_MAX over height and width, or length."""
    rank = to.rank()
    to.require(rank in LAST, "rank 3 or 4", rank)
    x = to.image()
    axes = to.vector(range(1, rank - 1) if to.channels_last else range(2, rank))
    if to.node.type == "GlobalAveragePool":
        to.finish_image(C.MEAN, [x, axes, to.scalar(1)])
    else:
        to.finish_image(C.REDUCE_MAX, [x, axes, to.flag(True)])

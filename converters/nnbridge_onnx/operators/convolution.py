"""Convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from nnbridge.converters.declaration import Option
from nnbridge.converters.draft import Value
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import Why
from nnbridge.model import Array
from nnbridge.operations import work
from nnbridge_onnx.declaration import WINDOW, Product, Quantised, QuantisedIo, attribute, operator
from nnbridge_onnx.host.evaluator import HostCall
from nnbridge_onnx.lowerer import C, Lowerer
from nnbridge_onnx.operands import FIRST
from nnbridge_onnx.operators.quantisation import Numbers, quantised_bias, quantised_filter, stored_weights
from nnbridge_onnx.operators.sampling import between, read_pixels
from nnbridge_onnx.operators.windows import Plane, WindowOptions, padding, plane, window, windows
from nnbridge_onnx.read.graph import Node
from nnbridge_onnx.rules import (
    CONSTANT_BIAS,
    CONSTANT_WEIGHTS,
    NCHW,
    Provider,
    Unit,
    condition,
    uint8_parameters,
    weights_of_bytes,
)

GROUP = Option("group", 1, "groups of channels that are convolved separately", at_least=1)


def _no_grouped_dilation(unit: Unit) -> bool:
    weights = unit.constant(1)
    depthwise = weights is not None and weights.shape[1:2] == (1,)
    return list(unit.attribute("dilations", [1, 1])) == [1, 1] or unit.attribute("group", 1) == 1 or depthwise


PROVIDER = Provider(
    2,
    conditions=(
        NCHW,
        weights_of_bytes("images"),
        uint8_parameters(1, per_channel=True),
        condition("the operator of ONNX's own domain", lambda u: not u.node.domain, lambda u: u.node.domain, kind=Why.OPERATOR),
        CONSTANT_WEIGHTS,
        condition("weights of rank 4", lambda u: len(u.shape(1)) == 4, lambda u: len(u.shape(1)), kind=Why.RANK),
        condition(
            "no dilation of a grouped convolution",
            _no_grouped_dilation,
            lambda u: u.attribute("dilations", []),
            kind=Why.ARGUMENT,
        ),
        condition(
            "feature level 3 for dilations",
            lambda u: set(u.attribute("dilations", [1])) == {1},
            lambda u: u.level,
            3, Why.FEATURE_LEVEL
        ),
        CONSTANT_BIAS,
    ),
    grouped=True,
)  # fmt: skip
CONV = operator(
    "Conv", 37, "X W B? -> Y", "Convolution of lines, planes or volumes; weights are [out, in / group, ...].",
    options=(GROUP, *WINDOW), provider=PROVIDER, quantised=Quantised(3, activation=True), fuses_activation=True,
    work=work.CONVOLUTION,
    product=Product(1, lambda node, w: w.shape[0], lambda node, w, factor: w * factor.reshape(-1, *[1] * (w.ndim - 1))),
)  # fmt: skip
QLINEAR_CONV = operator(
    "QLinearConv", 124, "x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point B? -> y", "Conv of 8-bit values.",
    work=work.convolution(3),
    options=(GROUP, *WINDOW), quantised_io=QuantisedIo(((0, 1, 2), (3, 4, 5), (8,)), (6, 7), computes="Conv"),
    provider=Provider(2, None, PROVIDER.conditions),
)  # fmt: skip


@CONV.lowering()
def _conv(to: Lowerer) -> None:
    """CONV_2D, DEPTHWISE_CONV_2D or GROUPED_CONV_2D with weights [out, in / groups, height, width]."""
    image, shape = plane(to), to.shape(1)
    to.require(len(shape) == len(to.shape()) and 0 not in shape, "weights of the image's rank", list(shape))
    dims, x = (*shape[:2], *image.pair(shape[2:])), image.x
    to.require_float(x)
    order, weights = filter_order(to, dims), to.known(1)
    if weights is not None:
        filter = to.float_tensor(weights.reshape(dims).transpose(order), x)
    else:
        filter = to.emit(C.TRANSPOSE, to.operand(1, x, dims), to.vector(order), like=x)
    bias = to.operand(2, x) if to.has(2) else to.float_tensor(np.zeros(dims[0]), x)
    image.finish(to, convolve(to, image, dims, filter, bias, image.output(to)))


@CONV.quantised_lowering
def _quantised_conv(to: Lowerer) -> None:
    """CONV_2D and its relatives; weights have a scale for each output where the file has one."""
    stored = stored_weights(to, 1)
    image = plane(to)
    to.require(stored.ndim == len(to.shape()), "weights of the image's rank", list(stored.shape))
    stored, x = stored.reshape(*stored.shape[:2], *image.pair(stored.shape[2:])), image.x
    filter, scales = quantised_filter(to, stored, x, filter_order(to, stored.shape))
    bias = quantised_bias(to, x, scales, stored.shape[0])
    image.finish(to, convolve(to, image, stored.shape, filter, bias, image.output(to)))


def filter_order(to: Lowerer, weights: Sequence[int]) -> tuple[int, int, int, int]:
    """The permutation of ONNX's weights [out, in / groups, height, width] for NNAPI."""
    return (1, 2, 3, 0) if _is_depthwise(to, weights) else (0, 2, 3, 1)


def _is_depthwise(to: Lowerer, weights: Sequence[int]) -> bool:
    return to.option("group") > 1 and weights[1] == 1


def convolve(to: Lowerer, image: Plane, weights: Sequence[int], filter: Value, bias: Value, output: Value) -> Value:
    """A convolution with weights of ONNX's shape, transposed into ``filter``."""
    found, shape = window(to, image, weights[2:]), image.shape
    groups = to.option("group")
    count = weights[0]
    to.require(groups > 0 and count % groups == 0 and weights[1] * groups == shape[1], "channels in whole groups", groups)
    x, pads = padded(to, image.x, found, weights[2:])
    head = [x, filter, bias]
    numbers = [to.scalar(v) for v in (*found.stated(pads), *found.strides)]
    dilated = found.dilations != [1, 1]
    tail = [to.activation(), *to.layout(needed=dilated or (groups > 1 and not _is_depthwise(to, weights)))]
    dilations = [to.scalar(v) for v in found.dilations] if dilated else []
    if _is_depthwise(to, weights):
        return to.emit(C.DEPTHWISE_CONV_2D, *head, *numbers, to.scalar(count // groups), *tail, *dilations, out=output)
    if groups > 1:
        to.require(not dilated, "no dilation of a grouped convolution", found.dilations)
        return to.emit(C.GROUPED_CONV_2D, *head, *numbers, to.scalar(groups), *tail, out=output)
    return to.emit(C.CONV_2D, *head, *numbers, *tail, *dilations, out=output)


def padded(to: Lowerer, x: Value, found: WindowOptions, kernel: Sequence[int]) -> tuple[Value, list[int]]:
    """NNAPI requires paddings below the dilated kernel; larger ones become a PAD of their own."""
    width, height = ((k - 1) * d + 1 for k, d in zip(kernel[::-1], found.dilations, strict=True))
    small = all(p < limit for p, limit in zip(found.pads, (width, width, height, height), strict=True))
    if small or to.mapping == MappingKind.PROVIDER:
        return x, found.pads
    return padding(to, x, found.pads), [0, 0, 0, 0]


@CONV.host_kernel
def _compute(call: HostCall) -> Sequence[Array] | None:
    data, weights, bias = call.input(0), call.input(1), call.optional(2)
    found = windows(call, data.shape[2:], weights.shape[2:])
    groups = call.option("group")
    if found is None or data.dtype.kind != "f" or data.shape[1] != weights.shape[1] * groups or len(weights) % groups:
        return None
    seen = found.of(data, 0.0)
    spatial = seen.shape[2 : data.ndim]
    depth, count = weights.shape[1] * math.prod(found.kernel), math.prod(spatial)
    # [batch, groups, places, numbers of a window] times [groups, numbers, outputs]
    apart = seen.reshape(len(data), groups, weights.shape[1], *seen.shape[2:])
    rows = np.moveaxis(apart, 2, 2 + len(spatial)).reshape(len(data), groups, count, depth)
    transposed = weights.reshape(groups, len(weights) // groups, depth).swapaxes(1, 2)
    made = (rows @ transposed).swapaxes(2, 3).reshape(len(data), len(weights), *spatial)
    return [made if bias is None else made + bias.reshape(-1, *(1,) * len(spatial))]


# -- transposed --------------------------------------------------------------------------------------------------------------


def _groups(node: Node) -> int:
    return max(int(attribute(node, "group")), 1)


def _scale_transposed(node: Node, weights: Array, factor: Array) -> Array:
    """Weights [in, out / groups, …]: the channels of each group stand side by side."""
    groups = _groups(node)
    split = weights.reshape(groups, -1, *weights.shape[1:])
    scaled = split * factor.reshape(groups, 1, weights.shape[1], *[1] * (weights.ndim - 2))
    return scaled.reshape(weights.shape)


CONV_TRANSPOSE = operator(
    "ConvTranspose", 39, "X W B? -> Y", "Transposed convolution; weights are [in, out / group, ...].",
    options=(
        GROUP, *WINDOW, Option("output_padding", None, "what is added after the result, 0 by default"),
        Option("output_shape", None, "size of the result, which decides the paddings"),
    ),
    fuses_activation=True, product=Product(1, lambda node, w: w.shape[1] * _groups(node), _scale_transposed),
    work=work.transposed_convolution(first=1, last=None),
)  # fmt: skip


@CONV_TRANSPOSE.lowering()
def _conv_transpose(to: Lowerer) -> None:
    """TRANSPOSE_CONV_2D with explicit padding, one for each group; weights are [in, out / groups, height, width] in ONNX."""
    image, weights = plane(to), to.constant(1)
    groups, x = to.option("group"), image.x
    to.require(weights.ndim == len(to.shape()) and groups > 0, "weights of the image's rank", list(weights.shape))
    to.require(weights.shape[0] == image.shape[1] and weights.shape[0] % groups == 0, "channels in whole groups", groups)
    to.require_float(x)
    one = [1] * (1 if image.line else 2)
    strides, dilations = (image.pair(to.option(name, one)) for name in ("strides", "dilations"))
    weights = _spread(to, weights.reshape(*weights.shape[:2], *image.pair(weights.shape[2:])), dilations)
    top, left, bottom, right = _transposed_pads(to, image, weights.shape[2:], strides)
    to.require(min(top, left, bottom, right) >= 0, "paddings of at least 0", [top, left, bottom, right])
    bias = to.optional(2)
    bias = np.zeros(weights.shape[1] * groups) if bias is None else bias
    numbers = [to.scalar(v) for v in (left, right, top, bottom, strides[1], strides[0])]

    def part(source: Value, group: int, output: Value) -> Value:
        filter = np.split(weights, groups)[group].transpose(1, 2, 3, 0)
        operands = [source, to.float_tensor(filter, x), to.float_tensor(np.split(bias, groups)[group], x)]
        flags = [to.activation(), to.flag(not to.channels_last)]
        return to.emit(C.TRANSPOSE_CONV_2D, *operands, *numbers, *flags, out=output)

    if groups == 1:
        image.finish(to, part(x, 0, image.output(to)))
        return
    axis = to.scalar(3 if to.channels_last else 1)
    sources = to.emit_all(C.SPLIT, [x, axis, to.scalar(groups)], [to.temporary(x) for _ in range(groups)])
    made = [part(source, i, to.temporary(x)) for i, source in enumerate(sources)]
    image.finish(to, to.emit(C.CONCATENATION, *made, axis, out=image.output(to)))


def _spread(to: Lowerer, weights: Array, dilations: Sequence[int]) -> Array:
    """Weights with zeros between, as dilation means."""
    to.require(min(dilations) > 0, "dilations above 0", list(dilations))
    if list(dilations) == [1, 1]:
        return weights
    sizes = [(k - 1) * d + 1 for k, d in zip(weights.shape[2:], dilations, strict=True)]
    to.draft.spend(weights.shape[0] * weights.shape[1] * sizes[0] * sizes[1])
    spread = np.zeros((*weights.shape[:2], *sizes), weights.dtype)
    spread[:, :, :: dilations[0], :: dilations[1]] = weights
    return spread


def _transposed_pads(to: Lowerer, image: Plane, kernel: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Top, left, bottom, right."""
    count = 1 if image.line else 2
    extra = image.pair(to.option("output_padding", [0] * count), 0)
    auto, requested = to.option("auto_pad"), to.option("output_shape", [])[-count:]
    if auto == "NOTSET" and not requested:
        pads = to.option("pads", [0] * 2 * count)
        top, left, bottom, right = [*image.pair(pads[:count], 0), *image.pair(pads[count:], 0)]
        return [top, left, bottom - extra[0], right - extra[1]]
    targets = image.pair(requested) if requested else [size * s for size, s in zip(image.shape[2:], strides, strict=True)]
    pairs = []
    for size, k, s, more, target in zip(image.shape[2:], kernel, strides, extra, targets, strict=True):
        total = 0 if auto == "VALID" else s * (size - 1) + more + k - target
        small = total // 2
        pairs.append((small, total - small - more) if auto == "SAME_UPPER" else (total - small, small - more))
    (top, bottom), (left, right) = pairs
    return [top, left, bottom, right]


# -- of integers -------------------------------------------------------------------------------------------------------------

CONV_INTEGER = operator(
    "ConvInteger", 38, "x w x_zero_point? w_zero_point? -> y", "Conv of bytes that counts from zero points.",
    options=(GROUP, *WINDOW), work=work.CONVOLUTION,
)  # fmt: skip


@CONV_INTEGER.lowering()
def _conv_integer(to: Lowerer) -> None:
    """CONV_2D and its relatives with constant weights, in float32."""
    floats, weights = Numbers(to), to.constant(1)
    to.require(weights.ndim == 4, "weights of rank 4", weights.ndim)
    count, point = weights.shape[0], to.optional(3)
    zero = np.zeros(1) if point is None else np.ravel(point).astype(np.float64)
    to.require(zero.size in (1, count), "one zero point, or one for each channel", zero.size)
    numbers = weights.astype(np.float64) - zero.reshape(-1, 1, 1, 1)
    found = plane(to)
    image = replace(found, x=floats.without(floats.whole(found.x), floats.point(2)))
    filter = to.float_tensor(numbers.transpose(filter_order(to, weights.shape)), floats.like)
    made = convolve(to, image, weights.shape, filter, to.float_tensor(np.zeros(count), floats.like), to.temporary(floats.like))
    if to.channels_last:
        # TRANSPOSE does not support INT32: the result in ONNX's own order is cast after it was transposed.
        transposed = floats.emit(C.TRANSPOSE, made, to.vector(FIRST[4]))
        to.finish(C.CAST, transposed)
    to.finish(C.CAST, made, images=True)


# -- the host's --------------------------------------------------------------------------------------------------------------

DEFORM_CONV = operator(
    "DeformConv", 45, "X W offset B? mask? -> Y", "Convolution whose windows' pixels are moved by offsets, weighted by a mask.",
    options=(GROUP, Option("offset_group", 1, "groups of channels that are moved together"), *WINDOW[1:]),
)  # fmt: skip


@QLINEAR_CONV.host_kernel
def _run_quantised(call: HostCall) -> Sequence[Array] | None:
    """Exact sums of whole numbers, rounded half to even; one scale for each channel of the weights, or one for all."""
    weights = call.input(3)
    found = windows(call, call.input(0).shape[2:], weights.shape[2:])
    if found is None:
        return None
    data = call.input(0).astype(np.float64) - np.float64(call.input(2))
    rank, count = data.ndim - 2, len(weights)
    tail = (-1,) + (1,) * rank
    filters = weights.astype(np.float64) - np.ravel(call.input(5)).astype(np.float64).reshape(-1, *(1,) * (rank + 1))
    seen, group = found.of(data, 0.0), call.option("group")
    out = seen.shape[2 : 2 + rank]
    # [group, places, numbers of a window] for each image.
    order = (0, *range(2, 2 + rank), 1, *range(2 + rank, 2 + 2 * rank))
    depth = weights.shape[1] * math.prod(found.kernel)
    rows = seen.transpose(order).reshape(len(data), math.prod(out), group, depth).swapaxes(1, 2)
    sums = (rows @ filters.reshape(group, count // group, -1).swapaxes(1, 2)).swapaxes(2, 3).reshape(len(data), count, *out)
    bias = call.optional(8)
    sums = sums if bias is None else sums + bias.astype(np.float64).reshape(tail)
    scale = np.ravel(call.input(1) * call.input(4) / call.input(6)).astype(np.float64).reshape(tail)
    kind = np.iinfo(call.input(0).dtype if call.optional(7) is None else call.input(7).dtype)
    return [np.clip(np.rint(sums * scale) + np.float64(call.input(7)), kind.min, kind.max).astype(kind.dtype)]


@CONV_TRANSPOSE.host_kernel
def _run_conv_transpose(call: HostCall) -> Sequence[Array] | None:
    """Each input pixel spread over a window, for any number of axes."""
    data, weights, bias = call.input(0), call.input(1), call.optional(2)
    rank, group = data.ndim - 2, call.option("group")
    if data.dtype.kind != "f" or rank < 1 or data.shape[1] != weights.shape[0] or data.shape[1] % group:
        return None
    ones, kernel = [1] * rank, weights.shape[2:]
    strides, dilations = (list(call.option(name) or ones) for name in ("strides", "dilations"))
    more, sizes = list(call.option("output_padding") or [0] * rank), call.option("output_shape")
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    full = [(n - 1) * s + r for n, s, r in zip(data.shape[2:], strides, reach, strict=True)]
    auto = call.option("auto_pad")
    if sizes or auto in ("SAME_UPPER", "SAME_LOWER"):
        sizes = list(sizes)[-rank:] if sizes else [n * s for n, s in zip(data.shape[2:], strides, strict=True)]
        total = [max(f + m - size, 0) for f, m, size in zip(full, more, sizes, strict=True)]
        begin = [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in total]
    else:
        pads = (call.option("pads") if auto == "NOTSET" else None) or [0] * 2 * rank
        begin = list(pads[:rank])
        sizes = [f + m - b - e for f, m, b, e in zip(full, more, begin, pads[rank:], strict=True)]
    space = [max(f, b + size) for f, b, size in zip(full, begin, sizes, strict=True)]
    many, each = weights.shape[1], data.shape[1] // group
    made = np.zeros((len(data), group, many, *space), data.dtype)
    grouped = data.reshape(len(data), group, each, math.prod(data.shape[2:])).swapaxes(2, 3)
    matrices = weights.reshape(group, each, many, *kernel)
    every = (slice(None), slice(None), slice(None))
    for offset in np.ndindex(*kernel):
        part = (grouped @ matrices[every + offset]).swapaxes(2, 3).reshape(len(data), group, many, *data.shape[2:])
        starts = [o * d for o, d in zip(offset, dilations, strict=True)]
        at = tuple(slice(b, b + (n - 1) * s + 1, s) for b, n, s in zip(starts, data.shape[2:], strides, strict=True))
        made[every + at] += part
    inside = tuple(slice(b, b + n) for b, n in zip(begin, sizes, strict=True))
    made = made.reshape(len(data), group * many, *space)[every[:2] + inside]
    return [made if bias is None else made + bias.reshape(-1, *ones)]


@DEFORM_CONV.host_kernel
def _deform_conv(call: HostCall) -> Sequence[Array] | None:
    """A convolution whose windows' pixels are moved by offsets and weighted by a mask."""
    data, weights, offset = (call.input(i) for i in range(3))
    bias, mask = call.optional(3), call.optional(4)
    groups, parts = (call.option(name) for name in ("group", "offset_group"))
    batch, channels = data.shape[:2]
    if data.ndim != 4 or data.dtype.kind != "f" or channels != weights.shape[1] * groups or channels % parts:
        return None
    kernel_size, out = weights.shape[2:], offset.shape[2:]
    strides, dilations = (call.option(name) or (1, 1) for name in ("strides", "dilations"))
    begin = (call.option("pads") or (0, 0, 0, 0))[:2]
    moved = offset.reshape(batch, parts, *kernel_size, 2, *out)
    weighed = (
        np.ones((batch, parts, *kernel_size, *out), data.dtype)
        if mask is None
        else mask.reshape(batch, parts, *kernel_size, *out)
    )
    # Where each pixel of each window lies without offsets: [kernel, kernel, out, out] for each axis.
    grids = [np.arange(k) * d for k, d in zip(kernel_size, dilations, strict=True)]
    starts = [np.arange(n) * s - b for n, s, b in zip(out, strides, begin, strict=True)]
    down = grids[0][:, None, None, None] + starts[0][None, None, :, None]
    across = grids[1][None, :, None, None] + starts[1][None, None, None, :]
    made = np.empty((batch, len(weights), *out), data.dtype)
    each = channels // parts
    transposed = weights.reshape(groups, len(weights) // groups, -1)
    for image in range(batch):
        seen = np.empty((channels, *kernel_size, *out), data.dtype)
        for part in range(parts):
            source = data[image, part * each : (part + 1) * each]
            at = [(down + moved[image, part, :, :, 0]).ravel(), (across + moved[image, part, :, :, 1]).ravel()]
            found = between(source, at, partial(read_pixels, source, padding="zeros"))
            seen[part * each : (part + 1) * each] = found.reshape(each, *kernel_size, *out) * weighed[image, part]
        made[image] = (transposed @ seen.reshape(groups, -1, math.prod(out))).reshape(-1, *out)
    return [made if bias is None else made + bias.reshape(-1, 1, 1)]


operator(
    "CausalConvWithState", 26, "input weight bias? past_state? -> output present_state", "Convolution over what came before."
)
operator("Col2Im", 31, "input image_shape! block_shape! -> output", "Windows of an image, added up where they overlap.")

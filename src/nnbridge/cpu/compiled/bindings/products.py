"""Convolutions and fully connected layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnbridge.cpu.compiled.bindings.binding import (
    BOUNDS,
    Binding,
    binds,
    constant_data,
    is_real,
    limits_of,
    require,
    require_at_most,
    require_nhwc,
    require_types,
    zero_of,
)
from nnbridge.cpu.compiled.bindings.moves import MOST_ELEMENTS, add_border, border_of, move_pieces
from nnbridge.cpu.compiled.constants import Constant
from nnbridge.cpu.compiled.kernels.depthwise import LARGEST, pack_depthwise
from nnbridge.cpu.compiled.kernels.products import pack_strips
from nnbridge.cpu.compiled.program import (
    Argument,
    Place,
    Unsupported,
)
from nnbridge.cpu.compiled.requantise import Inexact, Rescaling
from nnbridge.model import Array
from nnbridge.operations.arithmetic import (
    fused_activation,
    product_multiplier,
    product_scale,
    quantize_multiplier,
)
from nnbridge.operations.call import Arg
from nnbridge.operations.convolution import _transpose_padding as transpose_padding
from nnbridge.operations.correlation import multipliers
from nnbridge.operations.shapes import Window, windows
from nnbridge.types import OperationCode

_PRODUCTS_PER_US = {"bytes": 150_000.0, "real": 50_000.0}
"""Products that one core computes in a microsecond, by which work is cut into chunks."""
_MOST_WINDOWS = 1 << 24
"""Windows of a convolution whose places are written down; an image of 3,840 x 2,160 pixels has half as many."""


class _Left:
    """The left matrix of a product: where each output's row lies, and the segments that it is read in."""

    def __init__(self, source: Place | Array, rows: Array, segments: Array, length: int) -> None:
        self.source, self.rows, self.segments, self.length = source, rows, segments, length


class _Images:
    """The images that windows slide over: where they lie, their size without padding, and the windows with all of it."""

    def __init__(self, b: Binding, size: tuple[int, int]) -> None:
        x = b.call["input"]
        self.arg = x
        self.source: Place | Array = b.source(x)
        self.batch, self.height, self.width, self.depth = x.dims
        self.rows, self.columns = windows(b.call, self.height, self.width, *size)
        producer = None if x.constant else b.producers.get(b.operand(x))
        border = None if producer is None else border_of(producer.call)
        if producer is not None and border is not None:
            # A PAD before the windows is padding like theirs.
            (top, bottom), (left, right) = border
            self.source = Place(producer.inputs[0])
            _, self.height, self.width, _ = producer.call.args[0].dims
            self.rows, self.columns = _with_border(self.rows, top, bottom), _with_border(self.columns, left, right)

    @property
    def padded(self) -> bool:
        """True if windows reach over the images' borders."""
        return any((self.rows.before, self.rows.after, self.columns.before, self.columns.after))


def _with_border(window: Window, before: int, after: int) -> Window:
    return Window(window.size, window.stride, window.dilation, window.before + before, window.after + after)


def _windowed(b: Binding, size: tuple[int, int], channels: slice) -> _Left:
    """The left matrix of a convolution with filters of this size over some of the channels."""
    images = _Images(b, size)
    x, rows, columns = images.arg, images.rows, images.columns
    real, pairs = is_real(x), not is_real(x) and not b.instructions.quads
    batch, depth = images.batch, images.depth
    element = 4 if real else 2 if pairs else 1
    height, width = images.height, images.width
    source = images.source
    if images.padded or pairs:
        pads = (rows.before, rows.after, columns.before, columns.after)
        height, width = height + rows.before + rows.after, width + columns.before + columns.after
        target = b.scratch(batch * height * width * depth * element)
        add_border(b, x, (batch, images.height, images.width, depth), source, pads, target, widen=pairs)
        source = target
    out = rows.positions(images.height), columns.positions(images.width)
    return _rows_of(source, (batch, height, width, depth), rows, columns, out, channels, element)


def _rows_of(
    source: Place | Array,
    images: Sequence[int],
    rows: Window,
    columns: Window,
    out: tuple[int, int],
    channels: slice,
    element: int,
) -> _Left:
    """The rows that windows see in padded images [batch, height, width, depth] of elements of so many bytes."""
    batch, height, width, depth = images
    require_at_most(_MOST_WINDOWS, batch * out[0] * out[1], "windows")
    require(batch * height * width * depth * element < 2**31, "images below 2 GiB")
    image, y, k = (axis.astype(np.int32) for axis in np.ogrid[:batch, : out[0], : out[1]])
    pixels = (image * height + y * rows.stride) * width + k * columns.stride
    picked = channels.stop - channels.start
    if columns.dilation == 1 and picked == depth:
        segments, length = np.arange(rows.size) * rows.dilation * width * depth, columns.size * depth
    else:
        i, j = np.ogrid[: rows.size, : columns.size]
        segments, length = ((i * rows.dilation * width + j * columns.dilation) * depth).reshape(-1), picked
    starts = (pixels * depth + channels.start) * element
    return _Left(source, starts.reshape(-1), (segments * element).astype(np.int32), length)


@dataclass(frozen=True)
class _Weights:
    """8-bit weights as the dot product takes them."""

    stored: Array
    """[channels, segments, length], int8 or int16."""
    bias: Array
    """With everything that does not depend on the input's values."""
    factor: int
    """By which the sums of the left matrix's rows are multiplied and added; 0 for weights less their zero point."""
    largest: int
    """The largest magnitude that a sum may have."""


def _quantised_weights(b: Binding, x: Arg, weights: Array, zero: int, bias: Array) -> _Weights:
    """Weights [channels, segments, length] with their zero point, for products with ``x``.

    With ``ws`` the weights that are stored and ``zz`` their zero point, a product is ``sum(a * ws) - zz * sum(a)`` and constants.
    """
    flat = weights.reshape(len(weights), -1)
    count, za = flat.shape[1], zero_of(x)
    wide_bias = bias.astype(np.int64)
    low, high = int(flat.min()) - zero, int(flat.max()) - zero
    largest = count * max(za, 255 - za) * max(-low, high) + int(np.abs(wide_bias).max())
    if largest >= 2**31:
        exact = np.abs(flat.astype(np.int64) - zero).sum(axis=1)
        largest = int((exact * max(za, 255 - za) + np.abs(wide_bias)).max())
    require(largest < 2**31, "sums that 32 bits hold")
    # Sums of 32 bits take half the time.
    totals = flat.sum(axis=1, dtype=np.int32 if count < 2**23 else np.int64).astype(np.int64) - count * zero
    less_zero = (wide_bias - za * totals).astype(np.int32)
    if not b.instructions.quads:
        return _Weights(weights.astype(np.int16) - np.int16(zero), less_zero, 0, largest)
    if low >= -128 and high <= 127:
        # Bytes wrap to what the difference is.
        stored = weights.view(np.uint8) - np.uint8(zero & 0xFF)
        return _Weights(stored.view(np.int8), less_zero, 0, largest)
    shift = 128 if weights.dtype == np.uint8 else 0
    zz = zero - shift
    # sum(ws) is sum(w - zero) + count * zz; what wraps here wraps back in the sum.
    offset = wide_bias - za * (totals + count * zz) + count * za * zz
    stored = weights.view(np.uint8) ^ np.uint8(shift)
    return _Weights(stored.view(np.int8), offset.astype(np.int32), -zz, largest)


def _multiply(b: Binding, left: _Left, weights: Array, bias: Array, target: Place, out_row: int) -> None:
    """A matrix product [rows, channels] of float32; ``weights`` [channels, segments, length]."""
    low, high = BOUNDS[fused_activation(b.call)]
    strips = pack_strips(b.instructions, weights.astype(np.float32, copy=False), bias, None)
    arguments = _product_arguments(b, left, strips.block(4), strips.count, left.length, target, out_row)
    arguments.update(low=low, high=high)
    us = len(left.rows) * weights.size / _PRODUCTS_PER_US["real"]
    b.step("product", us, arguments, form="real", row_sums="", single=_single(b, left))


def _single(b: Binding, left: _Left) -> bool:
    return len(left.rows) < max(rows for _, rows in b.instructions.tiles)


def _product_arguments(
    b: Binding, left: _Left, block: Constant, strips: int, steps: int, target: Place, out_row: int
) -> dict[str, Argument]:
    return {
        "left": left.source,
        "rows": left.rows,
        "count": len(left.rows),
        "out": target,
        "out_stride": out_row,
        "segments": len(left.segments),
        "segment_table": left.segments,
        "steps": steps,
        "strips": block,
        "strip_count": strips,
        "by_strip": int(len(left.rows) < 8 * strips),
        "zero_point": 0,
        "factor": 0,
        "sums": 0,
    }


def _multiply_quantised(b: Binding, left: _Left, weights: _Weights, rescaling: Rescaling, target: Place, out_row: int) -> None:
    """A matrix product [rows, channels] of bytes."""
    low, high = limits_of(b.out, fused_activation(b.call))
    steps = -(-left.length // b.instructions.step_elements)
    row_sums = ""
    sums: Argument = 0
    if weights.factor:
        # Sums inside the tile take one product more for each row and step; a pass of its own pays for long rows.
        row_sums = "inner" if steps * len(left.segments) <= 8 or len(left.segments) > 1 else "table"
    if row_sums == "table":
        sums = b.scratch(4 * len(left.rows))
        arguments: dict[str, Argument] = {
            "left": left.source,
            "rows": left.rows,
            "count": len(left.rows),
            "length": left.length,
            "segments": len(left.segments),
            "segment_table": left.segments,
            "factor": weights.factor,
            "sums": sums,
        }
        b.step("row_sums", len(left.rows) * left.length / 30_000, arguments)
    strips = pack_strips(b.instructions, weights.stored, weights.bias, rescaling, ones=row_sums == "inner")
    arguments = _product_arguments(b, left, strips.block(1), strips.count, steps, target, out_row)
    arguments.update(zero_point=zero_of(b.out), low=low, high=high, factor=weights.factor, sums=sums)
    us = len(left.rows) * weights.stored.size / _PRODUCTS_PER_US["bytes"]
    b.step("product", us, arguments, form=rescaling.form, row_sums=row_sums, single=_single(b, left))


def _require_bias_scale(x: Arg, w: Arg, bias: Arg) -> None:
    """Where it is another, the reference kernel refuses the operation. Per-channel filters do not look at it."""
    product, declared = float(product_scale(x.scale, w.scale)), float(np.float32(bias.scale))
    same = abs(product - declared) <= 1e-6 * min(product, declared)
    require(w.channel_quant is not None or same, f"a bias scale of {product:g}")


def _filter_rescaling(b: Binding) -> Rescaling:
    """The requantisation of convolutions."""
    _require_bias_scale(b.call["input"], b.call["filter"], b.call["bias"])
    multiplier, exponent = multipliers(b.call)
    low, _ = limits_of(b.out, fused_activation(b.call))
    zero = zero_of(b.out)
    return Rescaling.twice(multiplier, exponent, zero, negative_clamped=low == zero)


def _convolve(b: Binding, weights: Array, bias: Array, groups: int = 1) -> None:
    """Convolutions with filters [channels, h, w, depth], in groups of channels."""
    call, x, out = b.call, b.call["input"], b.out
    real = require_types(x, out)
    require(call["filter"].constant and call["bias"].constant, "constant filter and bias")
    depth, each = x.dims[3] // groups, len(weights) // groups
    element = 4 if real else 1
    for g in range(groups):
        left = _windowed(b, (weights.shape[1], weights.shape[2]), slice(g * depth, (g + 1) * depth))
        part, part_bias = weights[g * each : (g + 1) * each], bias[g * each : (g + 1) * each]
        shaped = part.reshape(each, len(left.segments), left.length)
        target = Place(b.target().buffer, g * each * element)
        if real:
            _multiply(b, left, shaped, part_bias, target, out.dims[3] * 4)
            continue
        rescaling = _filter_rescaling(b)
        if groups > 1:
            rescaling = rescaling.for_channels(len(weights)).part(g * each, (g + 1) * each)
        stored = _quantised_weights(b, x, shaped, call["filter"].zero_point, part_bias)
        _multiply_quantised(b, left, stored, rescaling, target, out.dims[3])


@binds(OperationCode.CONV_2D)
def conv_2d(b: Binding) -> None:
    """CONV_2D."""
    require_nhwc(b.call)
    _convolve(b, constant_data(b.call["filter"]), constant_data(b.call["bias"]))


@binds(OperationCode.GROUPED_CONV_2D)
def grouped_conv_2d(b: Binding) -> None:
    """GROUPED_CONV_2D: a product for each group."""
    require_nhwc(b.call)
    groups = int(b.call.scalar("groups"))
    require(groups <= 16, "at most 16 groups")
    _convolve(b, constant_data(b.call["filter"]), constant_data(b.call["bias"]), groups)


@binds(OperationCode.TRANSPOSE_CONV_2D)
def transpose_conv_2d(b: Binding) -> None:
    """TRANSPOSE_CONV_2D: a convolution with the filter reversed along both axes, of images with gaps between their pixels."""
    call, x, out = b.call, b.call["input"], b.out
    require_nhwc(call)
    real = require_types(x, out)
    weights, bias = constant_data(call["filter"]), constant_data(call["bias"])
    (out_h, out_w), (top, _), (left_, _) = transpose_padding(call)
    units, size_h, size_w, depth = weights.shape
    batch, height, width, _ = x.dims
    # Where each pixel lies among what the windows see; the rest is filled with zero points.
    full = (batch, out_h + size_h - 1, out_w + size_w - 1, depth)
    index = np.full(full, -1, np.int64)
    at_y = np.arange(height) * int(call.scalar("stride_h")) + size_h - 1 - top
    at_x = np.arange(width) * int(call.scalar("stride_w")) + size_w - 1 - left_
    inside_y, inside_x = (at_y >= 0) & (at_y < full[1]), (at_x >= 0) & (at_x < full[2])
    pixels = np.arange(math.prod(x.dims)).reshape(x.dims)[:, inside_y][:, :, inside_x]
    index[:, at_y[inside_y][:, None], at_x[inside_x]] = pixels
    element = 4 if real else 1
    source = b.scratch(index.size * element)
    move_pieces(b, b.source(x), source, index, element, 0 if real else zero_of(x))
    if not real and not b.instructions.quads:
        wide = b.scratch(2 * index.size)
        add_border(b, x, full, source, (0, 0, 0, 0), wide, widen=True)
        source, element = wide, 2
    rows, columns = Window(size_h, 1, 1, 0, 0), Window(size_w, 1, 1, 0, 0)
    left = _rows_of(source, full, rows, columns, (out_h, out_w), slice(0, depth), element)
    shaped = np.ascontiguousarray(weights[:, ::-1, ::-1]).reshape(units, len(left.segments), left.length)
    if real:
        _multiply(b, left, shaped, bias, b.target(), units * 4)
        return
    stored = _quantised_weights(b, x, shaped, call["filter"].zero_point, bias)
    _multiply_quantised(b, left, stored, _filter_rescaling(b), b.target(), units)


@binds(OperationCode.DEPTHWISE_CONV_2D)
def depthwise_conv_2d(b: Binding) -> None:
    """DEPTHWISE_CONV_2D; of one input channel it is a convolution like any other."""
    call = b.call
    require_nhwc(call)
    x, out = call["input"], b.out
    weights, bias = constant_data(call["filter"])[0], constant_data(call["bias"])
    if x.dims[3] == 1:
        _convolve(b, np.ascontiguousarray(weights.transpose(2, 0, 1)[..., None]), bias)
        return
    real = require_types(x, out)
    images = _Images(b, (weights.shape[0], weights.shape[1]))
    batch, height, width, depth = images.batch, images.height, images.width, images.depth
    repeats = out.dims[3] // depth
    rows, columns = images.rows, images.columns
    require(weights.shape[0] * weights.shape[1] <= LARGEST, f"a filter of at most {LARGEST} taps")
    channels, element = out.dims[3], 4 if real else 1
    source = images.source
    if repeats > 1:
        # Each input channel as often as there are filters for it.
        require_at_most(MOST_ELEMENTS, batch * height * width * channels, "elements")
        index = np.arange(batch * height * width * depth).repeat(repeats)
        repeated = b.scratch(len(index) * element)
        move_pieces(b, source, repeated, index, element)
        source = repeated
    low: float
    high: float
    if real:
        low, high = BOUNDS[fused_activation(call)]
        form, fill = "real", 0
        strips, sets = pack_depthwise(b.instructions, weights, bias, None)
    else:
        exact = weights.astype(np.int16) - np.int16(call["filter"].zero_point)
        totals = exact.sum(axis=(0, 1), dtype=np.int64)
        largest = LARGEST * 255 * 255 + int(np.abs(bias.astype(np.int64)).max())
        require(largest < 2**31, "sums that 32 bits hold")
        rescaling = _filter_rescaling(b)
        low, high = limits_of(out, fused_activation(call))
        form, fill = rescaling.form, zero_of(x)
        packed_bias = (bias - zero_of(x) * totals).astype(np.int32)
        strips, sets = pack_depthwise(b.instructions, exact, packed_bias, rescaling)
    arguments: dict[str, Argument] = {
        "input": source,
        "height": height,
        "width": width,
        "pixel": channels * element,
        "row": width * channels * element,
        "image": height * width * channels * element,
        "out": b.target(),
        "out_height": out.dims[1],
        "out_width": out.dims[2],
        "out_pixel": channels * element,
        "images": batch,
        "top": rows.before,
        "left": columns.before,
        "outside": np.full(width * channels * element + 512, fill, np.uint8),
        "strips": strips.block(element),
        "strip_count": strips.count,
        "zero_point": 0 if real else zero_of(out),
        "low": low,
        "high": high,
    }
    us = math.prod(out.dims) * weights.shape[0] * weights.shape[1] / (15_000 if real else 40_000)
    size, stride = (weights.shape[0], weights.shape[1]), (rows.stride, columns.stride)
    b.step("depthwise", us, arguments, form=form, size=size, stride=stride, dilation=(rows.dilation, columns.dilation), sets=sets)


@binds(OperationCode.FULLY_CONNECTED)
def fully_connected(b: Binding) -> None:
    """FULLY_CONNECTED; 8-bit sums are rounded once."""
    call = b.call
    x, w, out = call["input"], call["weights"], b.out
    real = require_types(x, out)
    weights, bias = constant_data(w), constant_data(call["bias"])
    units, size = weights.shape
    count = math.prod(x.dims) // size
    shaped = weights.reshape(units, 1, size)
    source: Place | Array = b.source(x)
    element = 4 if real else 1
    if not real and not b.instructions.quads:
        wide = b.scratch(2 * count * size)
        add_border(b, x, (1, count, size, 1), source, (0, 0, 0, 0), wide, widen=True)
        source, element = wide, 2
    left = _Left(source, (np.arange(count) * size * element).astype(np.int32), np.zeros(1, np.int32), size)
    if real:
        _multiply(b, left, shaped, bias, b.target(), units * 4)
        return
    _require_bias_scale(x, w, call["bias"])
    multiplier, exponent = quantize_multiplier(product_multiplier(x.scale, w.scale, out.scale))
    stored = _quantised_weights(b, x, shaped, w.zero_point, bias)
    try:
        rescaling = Rescaling.once(multiplier, exponent, zero_of(out), stored.largest)
    except Inexact as error:
        raise Unsupported(f"requires {error}") from error
    _multiply_quantised(b, left, stored, rescaling, b.target(), units)

"""Convolutions and fully connected layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from nnbridge.cpu.arena import address_of
from nnbridge.cpu.compiled.bindings.binding import (
    BOUNDS,
    Binding,
    binds,
    constant_data,
    is_real,
    limits_of,
    require,
    require_at_most,
    require_types,
    window_arguments,
    zero_of,
)
from nnbridge.cpu.compiled.bindings.moves import MOST_ELEMENTS, add_border, border_of, move_pieces
from nnbridge.cpu.compiled.constants import Constant
from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.kernels.depthwise import LARGEST, pack_depthwise
from nnbridge.cpu.compiled.kernels.products import WORDS, pack_strips, strip_table, strips_of, tile_shapes
from nnbridge.cpu.compiled.kernels.tiles import DEPTH, SIDE, configuration
from nnbridge.cpu.compiled.objects import Variant, function, library
from nnbridge.cpu.compiled.program import (
    Argument,
    Place,
    Unsupported,
)
from nnbridge.cpu.compiled.requantise import Inexact, Rescaling, rows_of
from nnbridge.errors import NnapiError
from nnbridge.model import Array
from nnbridge.operations.arithmetic import (
    fused_activation,
    is_quant8,
    product_multiplier,
    quantize_multiplier,
    quantize_multipliers,
)
from nnbridge.operations.call import Arg, Call, NeedsValue
from nnbridge.operations.convolution import transpose_padding
from nnbridge.operations.correlation import bias_scale, multipliers, real_multipliers
from nnbridge.operations.shapes import Window, windows
from nnbridge.records import dataclass
from nnbridge.types import OperationCode


def pack_bytes(
    instructions: InstructionSet, weights: Array, bias: Array, rescaling: Rescaling, zero: int
) -> tuple[Constant, int]:
    """The packed bytes of int8 weights [columns, segments, elements] as :func:`pack_strips` makes them, in one call, and the
    number of strips.

    ``zero`` times the sum of each column's weights is taken from its bias. For instructions of products of four bytes.
    """
    count, segments, length = weights.shape
    steps = -(-length // 4)
    if 4 * steps != length:
        padded = np.zeros((count, segments, 4 * steps), np.int8)
        padded[:, :, :length] = weights
        weights = padded
    weights, bias = np.ascontiguousarray(weights), np.ascontiguousarray(bias, np.int32)
    table, size, strips, zeros = _layout(instructions, rescaling.form, count, segments * steps)
    made = Constant.of(size)
    made.data[: table.nbytes] = table
    listed = rescaling.multiplier, rescaling.constant, rescaling.shift, rescaling.correction, rescaling.left
    numbers = [np.ascontiguousarray(array, np.int64) for array in listed]
    row, each = 4 * segments * steps, 8 if len(numbers[0]) > 1 else 0
    first = [address_of(weights), row, segments * steps, count, address_of(zeros), address_of(bias), zero, each]
    entry = np.array([*first, *map(address_of, numbers), address_of(made.data), strips], np.int64)
    _packing(instructions, rescaling.form)(address_of(entry), 0, 1)
    return made, strips


@lru_cache(maxsize=256)
def _layout(instructions: InstructionSet, form: str, count: int, words: int) -> tuple[Array, int, int, Array]:
    """The table in front of strips of rows of so many words, the bytes of all, how many strips, and a row of zeros."""
    lanes = instructions.lanes
    block = rows_of(form) * 4 * lanes
    shapes = strips_of(tile_shapes(instructions, form), count)
    groups = tuple(
        (first, shape.width, strips, 4 * words * shape.width, shape.vectors * block) for shape, first, strips in shapes
    )
    table, _, size = strip_table(groups, count, 1)
    return table, size, sum(strips for _, _, strips, _, _ in groups), np.zeros(words, np.int32)


@lru_cache
def _packing(instructions: InstructionSet, form: str) -> Callable[[int, int, int], None]:
    return function(library(instructions).address(Variant("pack_constant", (("form", form),))))


_CONVOLUTIONS = (
    OperationCode.CONV_2D,
    OperationCode.GROUPED_CONV_2D,
    OperationCode.DEPTHWISE_CONV_2D,
    OperationCode.TRANSPOSE_CONV_2D,
)
_RESCALINGS = "rescalings"


def require_bias_scale(x: Arg, w: Arg, bias: Arg) -> None:
    """Require the products' scale for a bias: with another one the reference kernel refuses the operation. Per-channel filters
    are exempt."""
    if w.channel_quant is None:
        same, rule, _ = bias_scale(x, w, bias)
        require(same, rule)


def filter_rescaling(b: Binding) -> Rescaling:
    """The requantisation of convolutions."""
    require_bias_scale(b.call["input"], b.call["filter"], b.call["bias"])
    if _RESCALINGS not in b.shared.tables:
        b.shared.tables[_RESCALINGS] = _rescalings(b.shared.calls)
    found: Rescaling | None = b.shared.tables[_RESCALINGS].get(id(b.call))
    return found or Rescaling.twice(*multipliers(b.call), zero_of(b.out), negative_clamped=_negative_clamped(b.call))


def _negative_clamped(call: Call) -> bool:
    """True if negative results become the zero point."""
    low, _ = limits_of(call.out, fused_activation(call))
    return low == zero_of(call.out)


def _rescalings(calls: Sequence[Call]) -> Mapping[int, Rescaling]:
    """The requantisations of all convolutions, by the call's identity."""
    found = [call for call in calls if call.definition.code in _CONVOLUTIONS and is_quant8(call.out.type)]
    try:
        reals = [real_multipliers(call) for call in found]
        zeros, clamped = [zero_of(call.out) for call in found], [_negative_clamped(call) for call in found]
        ends = np.cumsum([len(real) for real in reals])
        rescalings = Rescaling.each(*quantize_multipliers(np.concatenate(reals)), ends, zeros, clamped)
    except (ArithmeticError, ValueError, NnapiError, NeedsValue):
        return {}  # Each by itself, so that the one that is refused is found.
    return {id(call): rescaling for call, rescaling in zip(found, rescalings, strict=True)}


_PRODUCTS_PER_US = {"tiles": 400_000.0, "bytes": 150_000.0, "real": 50_000.0}
"""Products that one core computes in a microsecond, by which work is cut into chunks."""
_MOST_WINDOWS = 1 << 24
"""Windows of a convolution whose places are written down; an image of 3,840 x 2,160 pixels has half as many."""
_MOST_ROWS = 1 << 22
"""Rows of a matrix whose places are written down: 12 bytes for each, while a program is planned."""


class Left:
    """The left matrix of a product: where each output's row lies, and the segments that it is read in."""

    def __init__(self, source: Place | Array, rows: Array, segments: Array, length: int) -> None:
        self.source, self.rows, self.segments, self.length = source, rows, segments, length

    def part(self, first: int, count: int) -> Left:
        """Some of the rows."""
        return Left(self.source, self.rows[first : first + count], self.segments, self.length)


class _Images:
    """The images that windows slide over: where they are, their size without padding, and the windows with all of it."""

    def __init__(self, b: Binding, size: tuple[int, int]) -> None:
        x = b.call["input"]
        self.arg = x
        self.source: Place | Array = b.source(x)
        self.batch, self.height, self.width, self.depth = x.dims
        self.rows, self.columns = windows(b.call, self.height, self.width, *size)
        producer = b.merged(x)
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


def _windowed(b: Binding, size: tuple[int, int], channels: slice) -> Left:
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
    return _rows_of(b, source, (batch, height, width, depth), rows, columns, out, channels, element)


def _rows_of(
    b: Binding,
    source: Place | Array,
    images: tuple[int, int, int, int],
    rows: Window,
    columns: Window,
    out: tuple[int, int],
    channels: slice,
    element: int,
) -> Left:
    """The rows that windows see in padded images [batch, height, width, depth] of elements of so many bytes."""
    picked = channels.start, channels.stop - channels.start
    key = images, rows, columns, out, picked, element
    found = b.shared.tables.get(key)
    if found is None:
        small = math.prod(out) * images[0] <= _FEW_WINDOWS
        found = b.shared.tables[key] = (_known_row_tables if small else _row_tables)(*key)
    return Left(source, *found)


def _row_tables(
    images: tuple[int, int, int, int],
    rows: Window,
    columns: Window,
    out: tuple[int, int],
    picked: tuple[int, int],
    element: int,
) -> tuple[Array, Array, int]:
    """The offsets of each row and its segments in bytes, and the length of a segment; ``picked``: the first channel and how
    many."""
    batch, height, width, depth = images
    # Each group of channels has a table.
    require_at_most(_MOST_WINDOWS, batch * out[0] * out[1] * max(1, depth // picked[1]), "windows")
    require(batch * height * width * depth * element < 2**31, "images below 2 GiB")
    pixel = depth * element
    starts: Array = np.arange(0, batch * height * width, height * width, dtype=np.int32)[:, None]
    for stride, count in ((rows.stride * width, out[0]), (columns.stride, out[1])):
        starts = (starts + np.arange(0, count * stride, stride, dtype=np.int32)).reshape(-1, 1)
    if columns.dilation == 1 and picked[1] == depth:
        segments, length = np.arange(rows.size) * (rows.dilation * width), columns.size * depth
    else:
        i, j = np.ogrid[: rows.size, : columns.size]
        segments, length = (i * rows.dilation * width + j * columns.dilation).reshape(-1), picked[1]
    return (starts.reshape(-1) * np.int32(pixel)) + np.int32(picked[0] * element), (segments * pixel).astype(np.int32), length


_FEW_WINDOWS = 1 << 14
"""Windows of convolutions whose tables are kept from one program to the next."""
_known_row_tables = lru_cache(maxsize=64)(_row_tables)


def rows_of_matrix(b: Binding, x: Arg, source: Place | Array, size: int, *, quantised: bool) -> Left:
    """The rows of ``size`` elements of 32 bits, or of bytes, that lie one after the other."""
    count, element = math.prod(x.dims) // size, 1 if quantised else 4
    require_at_most(_MOST_ROWS, count, "rows")
    if quantised and not b.instructions.quads:
        wide = b.scratch(2 * count * size)
        add_border(b, x, (1, count, size, 1), source, (0, 0, 0, 0), wide, widen=True)
        source, element = wide, 2
    require(count * size * element < 2**31, "operands below 2 GiB")
    return Left(source, (np.arange(count) * size * element).astype(np.int32), np.zeros(1, np.int32), size)


@dataclass(frozen=True)
class _Weights:
    """8-bit weights as the dot product takes them."""

    stored: Array
    """[channels, segments, length], int8 or int16."""
    bias: Array
    """With all that does not depend on the input's values, but for ``zero`` times the sums of weights, which packing takes."""
    factor: int
    """By which the sums of the left matrix's rows are multiplied and added; 0 for weights less their zero point."""
    largest: int
    """The largest magnitude that a sum may have."""
    zero: int = 0


def _quantised_weights(b: Binding, x: Arg, weights: Array, zero: int, bias: Array, *, measured: bool = False) -> _Weights:
    """Weights [channels, segments, length] with their zero point, for products with ``x``; ``measured``: ``largest`` is close.

    With ``ws`` the weights that are stored and ``zz`` their zero point, a product is ``sum(a * ws) - zz * sum(a)`` and constants.
    """
    flat = weights.reshape(len(weights), -1)
    count, za = flat.shape[1], zero_of(x)
    within = zero == 0 and weights.dtype == np.int8 and not measured
    low, high = (-128, 127) if within else (int(flat.min()) - zero, int(flat.max()) - zero)
    largest = count * max(za, 255 - za) * max(-low, high) + max(int(bias.max()), -int(bias.min()))
    if largest >= 2**31:
        exact = np.abs(flat.astype(np.int64) - zero).sum(axis=1)
        largest = int((exact * max(za, 255 - za) + np.abs(bias.astype(np.int64))).max())
    require(largest < 2**31, "sums that 32 bits hold")
    if b.instructions.quads and low >= -128 and high <= 127:
        # Bytes wrap to what the difference is. Packing sums them.
        stored = weights.view(np.uint8) - np.uint8(zero & 0xFF) if zero & 0xFF else weights
        return _Weights(stored.view(np.int8), bias, 0, largest, za)
    # Sums of 32 bits take half the time.
    wide_bias = bias.astype(np.int64)
    totals = np.add.reduce(flat, axis=1, dtype=np.int32 if count < 2**23 else np.int64).astype(np.int64)
    if zero:
        totals -= count * zero
    if not b.instructions.quads:
        less_zero = (wide_bias - za * totals).astype(np.int32)
        return _Weights(weights.astype(np.int16) - np.int16(zero), less_zero, 0, largest)
    shift = 128 if weights.dtype == np.uint8 else 0
    zz = zero - shift
    # sum(ws) is sum(w - zero) + count * zz; what wraps here wraps back in the sum.
    offset = wide_bias - za * (totals + count * zz) + count * za * zz
    stored = weights.view(np.uint8) ^ np.uint8(shift)
    return _Weights(stored.view(np.int8), offset.astype(np.int32), -zz, largest)


def multiply_words(
    b: Binding,
    left: Left,
    weights: Array,
    bias: Array,
    target: Place,
    out_row: int,
    bounds: tuple[float, float] = BOUNDS[None],
) -> None:
    """A matrix product [rows, channels] of float32, or of INT32, which wraps; ``weights`` [channels, segments, length]."""
    form = "integer" if weights.dtype == np.int32 else "real"
    if form == "integer":
        # Packing moves words, whatever they stand for.
        weights, bias = weights.view(np.float32), bias.view(np.float32)
    strips = pack_strips(b.instructions, weights.astype(np.float32, copy=False), bias, None)
    arguments = product_arguments(left, strips.block(4), strips.count, left.length, target, out_row)
    arguments.update(low=bounds[0], high=bounds[1])
    multiply(b, left, arguments, weights.size, 0, form=form, row_sums="")


def product_arguments(left: Left, block: Constant, strips: int, steps: int, target: Place, out_row: int) -> dict[str, Argument]:
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
        "weights": block,
        "by_strip": int(len(left.rows) < 8 * strips),
        "zero_point": 0,
        "factor": 0,
        "sums": 0,
    }


def _multiply_quantised(b: Binding, left: Left, weights: _Weights, rescaling: Rescaling, target: Place, out_row: int) -> None:
    """A matrix product [rows, channels] of bytes."""
    low, high = limits_of(b.out, fused_activation(b.call))
    steps, stored = -(-left.length // b.instructions.step_elements), weights.stored
    tall = tiles_of(b, left)
    row_sums = ""
    if weights.factor:
        # Sums inside the tile take one product more for each row and step; a pass of its own pays for long rows.
        inner = steps * len(left.segments) <= 8 or len(left.segments) > 1
        row_sums = "inner" if inner and not tall else "table"
    sums: Argument = sums_of_rows(b, left, weights.factor) if row_sums == "table" else 0
    if tall:
        steps = -(-left.length // DEPTH)
        if steps * DEPTH != left.length:
            stored = np.zeros((*stored.shape[:2], steps * DEPTH), stored.dtype)
            stored[:, :, : left.length] = weights.stored
    if b.instructions.quads and not weights.factor:
        block, count = pack_bytes(b.instructions, stored, weights.bias, rescaling, weights.zero)
    else:
        strips = pack_strips(b.instructions, stored, weights.bias, rescaling, ones=row_sums == "inner")
        block, count = strips.block(1), strips.count
    arguments = product_arguments(left, block, count, steps, target, out_row)
    arguments.update(zero_point=zero_of(b.out), low=low, high=high, factor=weights.factor, sums=sums)
    multiply(b, left, arguments, stored.size, tall, form=rescaling.form, row_sums=row_sums)


_LEAST_DEPTH = 96
"""Bytes of a row from which matrix tiles are faster."""


def tiles_of(b: Binding, left: Left) -> int:
    """Matrix tiles of rows that are summed together, 1 or 2; 0 where other instructions serve better."""
    count = len(left.rows)
    fits = len(left.segments) == 1 and left.length >= _LEAST_DEPTH and count >= SIDE
    if not (b.instructions.matrices and fits and _evenly(b, left.rows)):
        return 0
    return 2 if count >= 2 * SIDE else 1


def _evenly(b: Binding, rows: Array) -> bool:
    """True if all rows are at one distance."""
    table, found = b.shared.tables.get(id(rows), (None, False))
    if table is not rows:
        distances = np.diff(rows)
        found = bool((distances == distances[0]).all())
        b.shared.tables[id(rows)] = rows, found
    return found


def multiply(b: Binding, left: Left, arguments: dict[str, Argument], size: int, tall: int, **parameters: Any) -> None:
    """A product with a right matrix of so many elements, by matrix tiles if ``tall`` is not 0."""
    kind = "tiles" if tall else "real" if parameters["form"] in WORDS else "bytes"
    us = len(left.rows) * size / _PRODUCTS_PER_US[kind]
    if not tall:
        few = len(left.rows) < max(rows for _, rows in b.instructions.tiles)
        b.step("product", us, arguments, single=few, **parameters)
        return
    arguments.update(first=int(left.rows[0]), row=int(left.rows[1] - left.rows[0]), configuration=configuration())
    b.step("product_tiles", us, arguments, tall=tall, **{"column_sums": False, **parameters})


def sums_of_rows(b: Binding, left: Left, factor: int) -> Place:
    """``factor`` times the sum of each row's bytes."""
    sums = b.scratch(4 * len(left.rows))
    arguments: dict[str, Argument] = {
        "left": left.source,
        "rows": left.rows,
        "count": len(left.rows),
        "length": left.length,
        "segments": len(left.segments),
        "segment_table": left.segments,
        "factor": factor,
        "sums": sums,
    }
    b.step("row_sums", len(left.rows) * left.length / 30_000, arguments)
    return sums


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
            multiply_words(b, left, shaped, part_bias, target, out.dims[3] * 4, BOUNDS[fused_activation(call)])
            continue
        rescaling = filter_rescaling(b)
        if groups > 1:
            rescaling = rescaling.for_channels(len(weights)).part(g * each, (g + 1) * each)
        stored = _quantised_weights(b, x, shaped, call["filter"].zero_point, part_bias)
        _multiply_quantised(b, left, stored, rescaling, target, out.dims[3])


@binds(OperationCode.CONV_2D)
def conv_2d(b: Binding) -> None:
    """CONV_2D."""
    _convolve(b, constant_data(b.call["filter"]), constant_data(b.call["bias"]))


@binds(OperationCode.GROUPED_CONV_2D)
def grouped_conv_2d(b: Binding) -> None:
    """GROUPED_CONV_2D: a product for each group."""
    groups = int(b.call.scalar("groups"))
    require(groups <= 16, "at most 16 groups")
    _convolve(b, constant_data(b.call["filter"]), constant_data(b.call["bias"]), groups)


@binds(OperationCode.TRANSPOSE_CONV_2D)
def transpose_conv_2d(b: Binding) -> None:
    """TRANSPOSE_CONV_2D: a convolution with the filter reversed along both axes, of images with gaps between their pixels."""
    call, x, out = b.call, b.call["input"], b.out
    real = require_types(x, out)
    weights, bias = constant_data(call["filter"]), constant_data(call["bias"])
    (out_h, out_w), (top, _), (left_, _) = transpose_padding(call)
    units, size_h, size_w, depth = weights.shape
    # Weights meet the zeros between the pixels, where NNAPI multiplies nothing.
    require(not real or np.isfinite(weights).all(), "finite weights")
    batch, height, width, _ = x.dims
    # Where each pixel lies among what the windows see; the rest is filled with zero points.
    full = (batch, out_h + size_h - 1, out_w + size_w - 1, depth)
    require_at_most(MOST_ELEMENTS, math.prod(full[:3]), "pixels")
    index = np.full(full[:3], -1, np.int64)
    at_y = np.arange(height) * int(call.scalar("stride_h")) + size_h - 1 - top
    at_x = np.arange(width) * int(call.scalar("stride_w")) + size_w - 1 - left_
    inside_y, inside_x = (at_y >= 0) & (at_y < full[1]), (at_x >= 0) & (at_x < full[2])
    pixels = np.arange(batch * height * width).reshape(batch, height, width)[:, inside_y][:, :, inside_x]
    index[:, at_y[inside_y][:, None], at_x[inside_x]] = pixels
    element = 4 if real else 1
    source = b.scratch(math.prod(full) * element)
    move_pieces(b, b.source(x), source, index, depth * element, 0 if real else zero_of(x))
    if not real and not b.instructions.quads:
        wide = b.scratch(2 * math.prod(full))
        add_border(b, x, full, source, (0, 0, 0, 0), wide, widen=True)
        source, element = wide, 2
    rows, columns = Window(size_h, 1, 1, 0, 0), Window(size_w, 1, 1, 0, 0)
    left = _rows_of(b, source, full, rows, columns, (out_h, out_w), slice(0, depth), element)
    shaped = np.ascontiguousarray(weights[:, ::-1, ::-1]).reshape(units, len(left.segments), left.length)
    if real:
        multiply_words(b, left, shaped, bias, b.target(), units * 4, BOUNDS[fused_activation(call)])
        return
    stored = _quantised_weights(b, x, shaped, call["filter"].zero_point, bias)
    _multiply_quantised(b, left, stored, filter_rescaling(b), b.target(), units)


@binds(OperationCode.DEPTHWISE_CONV_2D)
def depthwise_conv_2d(b: Binding) -> None:
    """DEPTHWISE_CONV_2D; of one input channel it is a convolution like any other."""
    call = b.call
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
        zero = call["filter"].zero_point
        exact = weights if weights.dtype == np.int8 and not zero else weights.astype(np.int16) - np.int16(zero)
        totals = np.add.reduce(exact, axis=(0, 1), dtype=np.int32)
        largest = LARGEST * 255 * 255 + max(int(bias.max()), -int(bias.min()))
        require(largest < 2**31, "sums that 32 bits hold")
        rescaling = filter_rescaling(b)
        low, high = limits_of(out, fused_activation(call))
        form, fill = rescaling.form, zero_of(x)
        packed_bias = (bias - zero_of(x) * totals).astype(np.int32)
        strips, sets = pack_depthwise(b.instructions, exact, packed_bias, rescaling)
    arguments = {
        **window_arguments(source, b.target(), (batch, height, width), out.dims[1:3], channels * element, rows, columns),
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
    shaped = weights.reshape(units, 1, size)
    left = rows_of_matrix(b, x, b.source(x), size, quantised=not real)
    if real:
        multiply_words(b, left, shaped, bias, b.target(), units * 4, BOUNDS[fused_activation(call)])
        return
    require_bias_scale(x, w, call["bias"])
    multiplier, exponent = quantize_multiplier(product_multiplier(x.scale, w.scale, out.scale))
    stored = _quantised_weights(b, x, shaped, w.zero_point, bias, measured=True)
    try:
        rescaling = Rescaling.once(multiplier, exponent, zero_of(out), stored.largest)
    except Inexact as error:
        raise Unsupported(f"requires {error}") from error
    _multiply_quantised(b, left, stored, rescaling, b.target(), units)

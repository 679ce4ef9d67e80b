"""How operations become steps: one function for each family, found by operation code.

A binding looks at a call whose constants and dimensions are known, decides everything that can be decided (kernel, packed
weights, exact form of requantisation) and adds steps, or raises :class:`Unsupported` with what would be required. To add a
compiled kernel for an operation, write its kernel under :mod:`nnbridge.cpu.compiled.kernels` and a binding here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from nnbridge.cpu.compiled import kernels as _kernels  # noqa: F401 - declares them
from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.kernels.depthwise import LARGEST, pack_depthwise
from nnbridge.cpu.compiled.kernels.products import pack_strips
from nnbridge.cpu.compiled.kernels.resizing import POSITION_FIELDS
from nnbridge.cpu.compiled.library import Variant
from nnbridge.cpu.compiled.program import (
    Argument,
    Bound,
    Candidate,
    Join,
    Place,
    Scratch,
    Step,
    Unsupported,
    View,
    is_signed,
)
from nnbridge.cpu.compiled.requantise import Inexact, Rescaling
from nnbridge.model import Array
from nnbridge.operations.activations import _softmax_tables as softmax_tables
from nnbridge.operations.arithmetic import (
    activation_range,
    fused_activation,
    integer_range,
    is_quant8,
    product_multiplier,
    product_scale,
    quantize_multiplier,
)
from nnbridge.operations.call import Arg, Call
from nnbridge.operations.convolution import _transpose_padding as transpose_padding
from nnbridge.operations.convolution import multipliers
from nnbridge.operations.evaluate import run_kernel
from nnbridge.operations.resizing import _neighbours as neighbours
from nnbridge.operations.resizing import _neighbours_fixed as neighbours_fixed
from nnbridge.operations.shapes import Window, windows
from nnbridge.types import FuseCode, OperandCode, OperationCode

Binder: TypeAlias = "Callable[[Binding], None]"

BINDERS: dict[int, Binder] = {}
"""Operation code → its binding."""

_CHUNK_US, _MOST_CHUNKS = 8.0, 16
_MOST_PIECES = 1 << 20

_PRODUCTS_PER_US = {"bytes": 150_000.0, "real": 50_000.0}
"""Products that one core computes in a microsecond, by which work is cut into chunks."""


def binds(*codes: OperationCode) -> Callable[[Binder], Binder]:
    """Register a binding for operations."""

    def register(binder: Binder) -> Binder:
        for code in codes:
            assert code not in BINDERS, f"{code.name} has two bindings"
            BINDERS[code] = binder
        return binder

    return register


def bind(candidate: Candidate, producers: Mapping[int, Candidate], instructions: InstructionSet) -> list[Bound]:
    """The steps of an operation; raises :class:`Unsupported`, or the error that its call is refused with."""
    if candidate.resolved is None:
        raise Unsupported(candidate.reason)
    binder = BINDERS.get(candidate.call.definition.code)
    if binder is None:
        raise Unsupported("requires a compiled kernel, found none")
    binding = Binding(candidate, producers, instructions)
    for arg in (*candidate.call.args, *candidate.call.outs):
        require(arg.present, "operands that are present")
        require(bool(arg.constant) or 0 not in arg.dims, "tensors that hold something")
        # Tables of offsets have 32 bits.
        require(math.prod(arg.dims) < 2**29, "tensors of fewer than 2**29 elements")
    binder(binding)
    return binding.bound


def require(condition: object, what: str) -> None:
    """Leave the operation to the reference tier unless the condition holds."""
    if not condition:
        raise Unsupported(f"requires {what}")


class Binding:
    """One operation on its way to steps."""

    def __init__(self, candidate: Candidate, producers: Mapping[int, Candidate], instructions: InstructionSet) -> None:
        self.candidate, self.call, self.producers, self.instructions = candidate, candidate.call, producers, instructions
        self.bound: list[Bound] = []

    @property
    def out(self) -> Arg:
        """The first output."""
        return self.call.out

    def operand(self, arg: Arg) -> int:
        """The operand index of an argument."""
        return next(i for i, other in zip(self.candidate.inputs, self.call.args, strict=True) if other is arg)

    def source(self, arg: Arg) -> Place | Array:
        """Where a kernel reads an argument: in the arena, or a constant, whose bytes are unsigned."""
        if not arg.constant:
            return Place(self.operand(arg))
        data = np.ascontiguousarray(arg.data)
        return data.view(np.uint8) ^ np.uint8(0x80) if is_signed(arg) else data

    def target(self, k: int = 0) -> Place:
        """Where an output lies."""
        return Place(self.candidate.outputs[k])

    def scratch(self, size: int) -> Place:
        """A buffer for this operation alone."""
        return Place(Scratch(size))

    def step(self, kernel: str, us: float, arguments: Mapping[str, Argument], /, **parameters: Any) -> None:
        """A call of a kernel that takes about ``us`` microseconds."""
        chunks = min(max(round(us / _CHUNK_US), 1), _MOST_CHUNKS)
        variant = Variant(kernel, tuple(sorted(parameters.items())))
        places = [value.buffer for value in arguments.values() if isinstance(value, Place)]
        reads = tuple({buffer for buffer in places if isinstance(buffer, int)}.difference(self.candidate.outputs))
        self.bound.append(Step(variant, arguments, chunks, self.candidate.index, reads, self.candidate.outputs))

    def view(self, output: int, of: int, offset: int = 0) -> None:
        """The output is part of another operand's buffer."""
        self.bound.append(View(output, of, offset, self.candidate.index))


def offset_of(arg: Arg) -> int:
    """What is added to 8-bit values inside programs."""
    return 128 if is_signed(arg) else 0


def zero_of(arg: Arg) -> int:
    """A zero point inside programs."""
    return arg.zero_point + offset_of(arg)


def limits_of(out: Arg, activation: int) -> tuple[int, int]:
    """Clamps of 8-bit results inside programs."""
    low, high = activation_range(out, activation)
    return low + offset_of(out), high + offset_of(out)


_BOUNDS: dict[int, tuple[float, float]] = {
    FuseCode.NONE: (-math.inf, math.inf),
    FuseCode.RELU: (0.0, math.inf),
    FuseCode.RELU1: (-1.0, 1.0),
    FuseCode.RELU6: (0.0, 6.0),
}


def _is_real(arg: Arg) -> bool:
    return arg.type == OperandCode.TENSOR_FLOAT32


def _require_types(call: Call, *args: Arg) -> bool:
    """True for float32, False for 8-bit; other types are left to the reference tier."""
    for arg in args:
        require(_is_real(arg) or is_quant8(arg.type), "float32 or 8-bit operands")
    require(len({_is_real(arg) for arg in args}) == 1, "operands of one kind")
    return _is_real(args[0])


def _require_nhwc(call: Call) -> None:
    flag = call.get("nchw")
    require(flag is None or (flag.constant and not bool(call.scalar("nchw"))), "NHWC data")


# -- products --------------------------------------------------------------------------------------------------------


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
        border = None if producer is None else _border_of(producer.call)
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


def _border_of(call: Call) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Rows and columns that a PAD puts around images, with what windows pad with; None for other operations."""
    x, pads = call.args[0], call.get("paddings")
    if call.definition.code not in (OperationCode.PAD, OperationCode.PAD_V2) or x.constant or x.rank != 4:
        return None
    if pads is None or not pads.constant or not (_is_real(x) or is_quant8(x.type)):
        return None
    value = call.get("value")
    if value is not None and not (value.constant and float(value.data.reshape(())) == x.zero_point):
        return None
    batch, rows, columns, depth = ((int(before), int(after)) for before, after in pads.data)
    return None if any((*batch, *depth)) else (rows, columns)


def _border(
    b: Binding, x: Arg, images: Sequence[int], source: Place | Array, pads: Sequence[int], target: Place, *, widen: bool
) -> None:
    """Images [batch, height, width, depth] with ``pads`` (top, bottom, left, right) around them, written to ``target``."""
    batch, height, width, depth = images
    top, bottom, left, right = pads
    real = _is_real(x)
    inner, element = (4, 4) if real else (1, 2 if widen else 1)
    full_h, target_row = top + height + bottom, (left + width + right) * depth * element
    row = width * depth * inner
    arguments: dict[str, Argument] = {
        "source": source,
        "image": height * row,
        "row": row,
        "rows": height,
        "target": target,
        "target_image": full_h * target_row,
        "target_row": target_row,
        "target_rows": full_h,
        "images": batch,
        "top": top,
        "before": left * depth * element,
        "value": 0 if real else zero_of(x),
    }
    b.step("border", batch * full_h * target_row / 10_000, arguments, widen=widen and not real)


def _windowed(b: Binding, size: tuple[int, int], channels: slice) -> _Left:
    """The left matrix of a convolution with filters of this size over some of the channels."""
    images = _Images(b, size)
    x, rows, columns = images.arg, images.rows, images.columns
    real, pairs = _is_real(x), not _is_real(x) and not b.instructions.quads
    batch, depth = images.batch, images.depth
    element = 4 if real else 2 if pairs else 1
    height, width = images.height, images.width
    source = images.source
    if images.padded or pairs:
        pads = (rows.before, rows.after, columns.before, columns.after)
        height, width = height + rows.before + rows.after, width + columns.before + columns.after
        target = b.scratch(batch * height * width * depth * element)
        _border(b, x, (batch, images.height, images.width, depth), source, pads, target, widen=pairs)
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
    image, y, k = np.ogrid[:batch, : out[0], : out[1]]
    pixels = (image * height + y * rows.stride) * width + k * columns.stride
    picked = channels.stop - channels.start
    if columns.dilation == 1 and picked == depth:
        segments, length = np.arange(rows.size) * rows.dilation * width * depth, columns.size * depth
    else:
        i, j = np.ogrid[: rows.size, : columns.size]
        segments, length = ((i * rows.dilation * width + j * columns.dilation) * depth).reshape(-1), picked
    starts = (pixels * depth + channels.start) * element
    require(int(starts.max()) < 2**31, "images below 2 GiB")
    return _Left(source, starts.reshape(-1).astype(np.int32), (segments * element).astype(np.int32), length)


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
    totals = flat.sum(axis=1, dtype=np.int64) - count * zero
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
    low, high = _BOUNDS[fused_activation(b.call)]
    strips = pack_strips(b.instructions, weights.astype(np.float32, copy=False), bias, None)
    arguments = _product_arguments(b, left, strips.block(4), len(strips.width), left.length, target, out_row)
    arguments.update(low=low, high=high)
    us = len(left.rows) * weights.size / _PRODUCTS_PER_US["real"]
    b.step("product", us, arguments, form="real", row_sums="", single=_single(b, left))


def _single(b: Binding, left: _Left) -> bool:
    return len(left.rows) < max(rows for _, rows in b.instructions.tiles)


def _product_arguments(
    b: Binding, left: _Left, block: Array, strips: int, steps: int, target: Place, out_row: int
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
    arguments = _product_arguments(b, left, strips.block(1), len(strips.width), steps, target, out_row)
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
    real = _require_types(call, x, out)
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
        rescaling = _filter_rescaling(b).for_channels(len(weights)).part(g * each, (g + 1) * each)
        stored = _quantised_weights(b, x, shaped, call["filter"].zero_point, part_bias)
        _multiply_quantised(b, left, stored, rescaling, target, out.dims[3])


@binds(OperationCode.CONV_2D)
def conv_2d(b: Binding) -> None:
    """CONV_2D."""
    _require_nhwc(b.call)
    _convolve(b, _data(b.call["filter"]), _data(b.call["bias"]))


@binds(OperationCode.GROUPED_CONV_2D)
def grouped_conv_2d(b: Binding) -> None:
    """GROUPED_CONV_2D: a product for each group."""
    _require_nhwc(b.call)
    groups = int(b.call.scalar("groups"))
    require(groups <= 16, "at most 16 groups")
    _convolve(b, _data(b.call["filter"]), _data(b.call["bias"]), groups)


@binds(OperationCode.TRANSPOSE_CONV_2D)
def transpose_conv_2d(b: Binding) -> None:
    """TRANSPOSE_CONV_2D: a convolution with the filter turned over both axes, of images with gaps between their pixels."""
    call, x, out = b.call, b.call["input"], b.out
    _require_nhwc(call)
    real = _require_types(call, x, out)
    weights, bias = _data(call["filter"]), _data(call["bias"])
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
    _move_pieces(b, b.source(x), source, index, element, 0 if real else zero_of(x))
    if not real and not b.instructions.quads:
        wide = b.scratch(2 * index.size)
        _border(b, x, full, source, (0, 0, 0, 0), wide, widen=True)
        source, element = wide, 2
    rows, columns = Window(size_h, 1, 1, 0, 0), Window(size_w, 1, 1, 0, 0)
    left = _rows_of(source, full, rows, columns, (out_h, out_w), slice(0, depth), element)
    shaped = np.ascontiguousarray(weights[:, ::-1, ::-1]).reshape(units, len(left.segments), left.length)
    if real:
        _multiply(b, left, shaped, bias, b.target(), units * 4)
        return
    stored = _quantised_weights(b, x, shaped, call["filter"].zero_point, bias)
    _multiply_quantised(b, left, stored, _filter_rescaling(b), b.target(), units)


def _data(arg: Arg) -> Array:
    require(arg.constant, "constant parameters")
    return arg.data


@binds(OperationCode.DEPTHWISE_CONV_2D)
def depthwise_conv_2d(b: Binding) -> None:
    """DEPTHWISE_CONV_2D; of one input channel it is a convolution like any other."""
    call = b.call
    _require_nhwc(call)
    x, out = call["input"], b.out
    weights, bias = _data(call["filter"])[0], _data(call["bias"])
    if x.dims[3] == 1:
        _convolve(b, np.ascontiguousarray(weights.transpose(2, 0, 1)[..., None]), bias)
        return
    real = _require_types(call, x, out)
    images = _Images(b, (weights.shape[0], weights.shape[1]))
    batch, height, width, depth = images.batch, images.height, images.width, images.depth
    repeats = out.dims[3] // depth
    rows, columns = images.rows, images.columns
    require(weights.shape[0] * weights.shape[1] <= LARGEST, f"a filter of at most {LARGEST} taps")
    channels, element = out.dims[3], 4 if real else 1
    source = images.source
    if repeats > 1:
        # Each input channel as often as there are filters for it.
        index = np.arange(batch * height * width * depth).repeat(repeats)
        repeated = b.scratch(len(index) * element)
        _move_pieces(b, source, repeated, index, element)
        source = repeated
    low: float
    high: float
    if real:
        low, high = _BOUNDS[fused_activation(call)]
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
        "strip_count": len(strips.width),
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
    real = _require_types(call, x, out)
    weights, bias = _data(w), _data(call["bias"])
    units, size = weights.shape
    count = math.prod(x.dims) // size
    shaped = weights.reshape(units, 1, size)
    source: Place | Array = b.source(x)
    element = 4 if real else 1
    if not real and not b.instructions.quads:
        wide = b.scratch(2 * count * size)
        _border(b, x, (1, count, size, 1), source, (0, 0, 0, 0), wide, widen=True)
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


# -- element-wise ----------------------------------------------------------------------------------------------------


class _Rows:
    """Two operands broadcast against each other, seen as rows of a length."""

    def __init__(self, first: Arg, second: Arg, out: Arg) -> None:
        rank = len(out.dims)
        dims = [(1,) * (rank - len(arg.dims)) + tuple(arg.dims) for arg in (first, second)]
        split, modes = rank, [0, 0]
        # The longest tail of axes over which each operand advances (1) or repeats (2) all the time.
        while split > 0:
            axis = split - 1
            now = [0 if out.dims[axis] == 1 else 1 if d[axis] == out.dims[axis] else 2 for d in dims]
            if any(m and n and m != n for m, n in zip(modes, now, strict=True)):
                break
            modes = [m or n for m, n in zip(modes, now, strict=True)]
            split = axis
        self.repeats = (modes[0] == 2, modes[1] == 2)
        self.length = math.prod(out.dims[split:])
        self.rows = math.prod(out.dims[:split])
        self._steps = []
        for d, repeat in zip(dims, self.repeats, strict=True):
            tail = 1 if repeat else math.prod(d[split:])
            offsets = np.zeros((), np.int64)
            for axis in range(split):
                stride = 0 if d[axis] == 1 else math.prod(d[axis + 1 : split]) * tail
                offsets = offsets[..., None] + np.arange(out.dims[axis]) * stride
            self._steps.append(offsets.reshape(-1))
        if self.rows == 1:
            # One long row in pieces, for threads to share.
            pieces = next((n for n in (16, 8, 4, 2) if self.length % n == 0 and self.length // n >= 4096), 1)
            self.rows, self.length = pieces, self.length // pieces
            self._steps = [np.arange(pieces) * (0 if repeat else self.length) for repeat in self.repeats]

    def arguments(self, b: Binding, first: Arg, second: Arg, element: int) -> dict[str, Argument]:
        """What both kernels take."""
        tables = [(steps * element).astype(np.int32) for steps in self._steps]
        return {
            "first": b.source(first),
            "second": b.source(second),
            "target": b.target(),
            "rows": self.rows,
            "length": self.length,
            "first_table": tables[0],
            "second_table": tables[1],
        }


_SHORT = 64
"""Elements of a row below which a constant operand is stretched over more axes."""


def _stretched(arg: Arg, out: Arg) -> Arg:
    """A constant repeated over the last axes, as far as rows become long enough: it then advances with the other operand."""
    rank = len(out.dims)
    dims = [1] * (rank - len(arg.dims)) + list(arg.dims)
    for axis in range(rank - 1, -1, -1):
        dims[axis] = out.dims[axis]
        if math.prod(dims[axis:]) >= _SHORT:
            break
    if math.prod(dims) > 1 << 20:
        return arg
    value = np.ascontiguousarray(np.broadcast_to(arg.data, dims))
    return arg.replace(value=value, dims=tuple(dims))


_ARITHMETIC = {
    OperationCode.ADD: "add",
    OperationCode.SUB: "sub",
    OperationCode.MUL: "mul",
    OperationCode.DIV: "div",
    OperationCode.MAXIMUM: "maximum",
    OperationCode.MINIMUM: "minimum",
    OperationCode.PRELU: "prelu",
}


@binds(*_ARITHMETIC)
def combine(b: Binding) -> None:
    """Operations of two operands with broadcasting; 8-bit ones other than sums and products through a table of all pairs."""
    call, out = b.call, b.out
    first, second = call.args[0], call.args[1]
    operator = _ARITHMETIC[call.definition.code]
    require(not (first.constant and second.constant), "an operand that is not constant")
    activation = fused_activation(call) if call.get("activation") is not None else 0
    count = math.prod(out.dims)
    rows = _Rows(first, second, out)
    if rows.length < _SHORT and rows.rows > 1:
        first, second = (_stretched(arg, out) if arg.constant else arg for arg in (first, second))
        rows = _Rows(first, second, out)
    if out.type == OperandCode.TENSOR_INT32:
        require(operator in ("add", "sub", "mul", "div") and activation == 0, "sums, products or quotients of INT32")
        arguments = rows.arguments(b, first, second, 4)
        b.step("combine_integers", count / 2_000, arguments, operator=operator, repeats=rows.repeats)
        return
    real = _require_types(call, first, second, out)
    arguments = rows.arguments(b, first, second, 4 if real else 1)
    if real:
        low, high = _BOUNDS[activation]
        arguments.update(low=low, high=high)
        b.step("combine_real", count / 5_000, arguments, operator=operator, repeats=rows.repeats)
        return
    limits = limits_of(out, activation)
    if operator in ("add", "sub"):
        blocks, forms, left = _sum_parameters(b, first, second)
    elif operator == "mul":
        real_multiplier = product_multiplier(first.scale, second.scale, out.scale)
        require(real_multiplier < 1, "a product of input scales below the output scale")
        multiplier, exponent = quantize_multiplier(real_multiplier)
        one = Rescaling.twice(np.array([multiplier]), np.array([exponent]), zero_of(out))
        blocks, forms, left = [_uniform(b, one)], (one.form,), (0, 0)
    else:
        arguments["table"] = _every_pair(call, first, second, out)
        b.step("look_up_pairs", count / 500, arguments, repeats=rows.repeats)
        return
    arguments.update(
        parameters=np.concatenate([block.reshape(-1) for block in blocks]),
        first_zero=zero_of(first),
        second_zero=zero_of(second),
        zero_point=zero_of(out),
        low=limits[0],
        high=limits[1],
    )
    b.step("combine_bytes", count / 8_000, arguments, operator=operator, forms=forms, repeats=rows.repeats, left=left)


def _every_pair(call: Call, first: Arg, second: Arg, out: Arg) -> Array:
    """The reference kernel's results for all pairs of bytes, in the order and the form of bytes inside programs."""
    a, b = _every_value(first).reshape(256, 1), _every_value(second).reshape(1, 256)
    args = [arg.replace() for arg in call.args]
    args[0], args[1] = first.replace(value=a, dims=a.shape), second.replace(value=b, dims=b.shape)
    made = Call(call.definition, call.signature, tuple(args), (out.replace(dims=(256, 256)),))
    return _as_inside(_run_reference(made)[0], out)


def _uniform(b: Binding, rescaling: Rescaling) -> Array:
    """The parameter block of one for all lanes."""
    lanes = b.instructions.lanes
    return rescaling.packed(np.zeros(1, np.int64), np.zeros(lanes, np.int64), lanes)


def _sum_parameters(b: Binding, first: Arg, second: Arg) -> tuple[list[Array], tuple[str, ...], tuple[int, int]]:
    """Parameters of sums: both operands come to a common scale with 20 bits more, their sum to the output's (fact N40)."""
    twice_max = 2.0 * max(np.float32(first.scale), np.float32(second.scale))
    real_out = float(twice_max / float(np.float32(2**20) * np.float32(b.out.scale)))
    require(real_out < 1, "twice the larger input scale below 2**20 times the output scale")
    made, left = [], []
    for arg in (first, second):
        multiplier, exponent = quantize_multiplier(float(float(np.float32(arg.scale)) / twice_max))
        # The larger scale is exactly one half of the common one: one bit more on the left, and one on the right.
        half = exponent == 0
        made.append(Rescaling.twice(np.array([multiplier]), np.array([-1 if half else exponent]), 0))
        left.append(21 if half else 20)
    multiplier, exponent = quantize_multiplier(real_out)
    made.append(Rescaling.twice(np.array([multiplier]), np.array([exponent]), zero_of(b.out)))
    return [_uniform(b, one) for one in made], tuple(one.form for one in made), (left[0], left[1])


_FUNCTIONS: dict[OperationCode, tuple[str, int]] = {
    OperationCode.RELU: ("clamp", FuseCode.RELU),
    OperationCode.RELU1: ("clamp", FuseCode.RELU1),
    OperationCode.RELU6: ("clamp", FuseCode.RELU6),
    OperationCode.LOGISTIC: ("logistic", FuseCode.NONE),
    OperationCode.TANH: ("tanh", FuseCode.NONE),
    OperationCode.HARD_SWISH: ("hard_swish", FuseCode.NONE),
    OperationCode.EXP: ("exp", FuseCode.NONE),
    OperationCode.ABS: ("abs", FuseCode.NONE),
    OperationCode.NEG: ("neg", FuseCode.NONE),
    OperationCode.SQRT: ("sqrt", FuseCode.NONE),
    OperationCode.RSQRT: ("rsqrt", FuseCode.NONE),
    OperationCode.FLOOR: ("floor", FuseCode.NONE),
}
"""Operations of one operand: the float32 kernel's function, and the clamps after it."""


@binds(*_FUNCTIONS)
def map_values(b: Binding) -> None:
    """Functions of one operand; of bytes by a table of what the reference kernel makes of each."""
    call, x, out = b.call, b.call.args[0], b.out
    function, activation = _FUNCTIONS[OperationCode(call.definition.code)]
    count = math.prod(out.dims)
    arguments: dict[str, Argument] = {"source": b.source(x), "target": b.target(), "count": count}
    if _require_types(call, x, out):
        low, high = _BOUNDS[activation]
        arguments.update(low=low, high=high)
        b.step("map_real", count / 3_000, arguments, function=function)
    elif function == "clamp":
        limits = limits_of(x, activation)
        arguments.update(low=limits[0], high=limits[1])
        b.step("clamp_bytes", count / 20_000, arguments)
    else:
        arguments["table"] = _every_byte(call, x, out)
        b.step("look_up", count / 1_000, arguments)


def _every_byte(call: Call, x: Arg, out: Arg) -> Array:
    """The reference kernel's results for all bytes, in the order and the form of bytes inside programs."""
    return _as_inside(_reference(call, _every_value(x))[0], out)


def _every_value(x: Arg) -> Array:
    """All 256 values of an 8-bit operand, in the order of their bytes inside programs."""
    return (np.arange(256, dtype=np.uint8) ^ np.uint8(offset_of(x))).view(x.dtype)


def _as_inside(values: Array, arg: Arg) -> Array:
    """8-bit values as bytes inside programs."""
    return values.view(np.uint8) ^ np.uint8(offset_of(arg))


def _reference(call: Call, data: Array, kind: OperandCode | None = None) -> list[Array]:
    """The reference kernel on other data for the first argument; of one dimension, or with all operands of a type ``kind``."""
    first, *others = call.args
    outs = [out.replace() for out in call.outs]
    if kind is None:
        first, outs = first.replace(value=data, dims=data.shape), [out.replace(dims=data.shape) for out in outs]
    else:
        plain = {"type": kind, "scale": 0.0, "zero_point": 0}
        first, outs = first.replace(value=data, **plain), [out.replace(**plain) for out in outs]
    made = Call(call.definition, call.signature, (first, *(arg.replace() for arg in others)), tuple(outs))
    return _run_reference(made)


def _run_reference(call: Call) -> list[Array]:
    with np.errstate(all="ignore"):
        results: Sequence[Any] = run_kernel(call)
    return [result.data if isinstance(result, Arg) else result for result in results]


@binds(OperationCode.QUANTIZE)
def quantise(b: Binding) -> None:
    """QUANTIZE; of dequantised bytes by a table, which is nothing at all where each byte stays what it is."""
    call, x, out = b.call, b.call.args[0], b.out
    count = math.prod(out.dims)
    producer = b.producers.get(b.operand(x)) if not x.constant else None
    if producer is not None and producer.call.definition.code == OperationCode.DEQUANTIZE:
        origin = producer.call.args[0]
        if is_quant8(origin.type) and not origin.constant and _is_real(x):
            table = _through_real(producer.call, call, origin, out)
            operand = producer.inputs[0]
            if (table == np.arange(256)).all():
                b.view(b.candidate.outputs[0], operand)
                return
            steps: dict[str, Argument] = {"source": Place(operand), "target": b.target(), "count": count, "table": table}
            variant = Variant("look_up")
            b.bound.append(Step(variant, steps, 1, b.candidate.index, (operand,), b.candidate.outputs))
            return
    require(_is_real(x) and is_quant8(out.type), "float32 to 8-bit")
    low, high = integer_range(out)
    arguments: dict[str, Argument] = {
        "source": b.source(x),
        "target": b.target(),
        "count": count,
        "scale": float(np.float32(out.scale)),
        "low": float(low - out.zero_point),
        "high": float(high - out.zero_point),
        "lifting": float(3 * 2**22 + out.zero_point),
        "sticky": 0x200 | out.zero_point & 0xFF,
        "flip": offset_of(out),
    }
    b.step("quantise", count / 5_000, arguments)


def _through_real(first: Call, second: Call, x: Arg, out: Arg) -> Array:
    """All bytes dequantised and quantised again."""
    real = _reference(first, _every_value(x))[0]
    return _as_inside(_reference(second, real)[0], out)


@binds(OperationCode.DEQUANTIZE)
def dequantise(b: Binding) -> None:
    """DEQUANTIZE of 8-bit values with one scale."""
    x, out = b.call.args[0], b.out
    require(is_quant8(x.type) and _is_real(out), "8-bit to float32")
    count = math.prod(out.dims)
    arguments: dict[str, Argument] = {
        "source": b.source(x),
        "target": b.target(),
        "count": count,
        "scale": float(np.float32(x.scale)),
        "zero_point": zero_of(x),
    }
    b.step("dequantise", count / 5_000, arguments)


@binds(OperationCode.CAST)
def cast(b: Binding) -> None:
    """CAST of INT32 and unsigned bytes to wider types, and of any type to itself."""
    x, out = b.call.args[0], b.out
    if x.type == out.type and not x.constant:
        b.view(b.candidate.outputs[0], b.operand(x))
        return
    require(x.type in (OperandCode.TENSOR_INT32, OperandCode.TENSOR_QUANT8_ASYMM), "INT32 or unsigned bytes")
    require(out.type in (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_INT32), "float32 or INT32 as the result")
    count = math.prod(out.dims)
    arguments: dict[str, Argument] = {"source": b.source(x), "target": b.target(), "count": count}
    b.step("cast", count / 5_000, arguments, bytes_=x.type == OperandCode.TENSOR_QUANT8_ASYMM, real=_is_real(out))


# -- pooling, means, softmax -----------------------------------------------------------------------------------------

_POOLS = {
    OperationCode.AVERAGE_POOL_2D: "average",
    OperationCode.MAX_POOL_2D: "maximum",
    OperationCode.L2_POOL_2D: "l2",
}


def _pool(
    b: Binding, x: Arg, kind: str, images: tuple[int, int, int, int], rows: Window, columns: Window, activation: int
) -> None:
    """Windows over images [batch, height, width, depth]."""
    real = _require_types(b.call, x, b.out)
    batch, height, width, depth = images
    element = 4 if real else 1
    low: float
    high: float
    low, high = _BOUNDS[activation] if real else limits_of(b.out, activation)
    out_h, out_w = rows.positions(height), columns.positions(width)
    require(rows.size * columns.size * 255 < 2**30, "windows whose sums 32 bits hold")
    arguments: dict[str, Argument] = {
        "input": b.source(x),
        "height": height,
        "width": width,
        "pixel": depth * element,
        "row": width * depth * element,
        "image": height * width * depth * element,
        "out": b.target(),
        "out_height": out_h,
        "out_width": out_w,
        "out_pixel": depth * element,
        "images": batch,
        "channels": depth,
        "size_y": rows.size,
        "size_x": columns.size,
        "stride_y": rows.stride,
        "stride_x": columns.stride,
        "top": rows.before,
        "left": columns.before,
        "low": low,
        "high": high,
    }
    us = batch * out_h * out_w * depth * rows.size * columns.size / (4_000 if real else 8_000)
    b.step("pool", us, arguments, kind=kind, real=real, signed=is_signed(x))


@binds(*_POOLS)
def pool(b: Binding) -> None:
    """AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D."""
    call, x = b.call, b.call["input"]
    _require_nhwc(call)
    batch, height, width, depth = x.dims
    rows, columns = windows(call, height, width, int(call.scalar("filter_h")), int(call.scalar("filter_w")))
    images = (batch, height, width, depth)
    _pool(b, x, _POOLS[OperationCode(call.definition.code)], images, rows, columns, fused_activation(call))


@binds(OperationCode.MEAN)
def mean(b: Binding) -> None:
    """MEAN over neighbouring axes: one window for each position before them."""
    call, x = b.call, b.call["input"]
    axes = sorted({int(axis) % x.rank for axis in _data(call["axes"]).reshape(-1)})
    require(axes, "axes to reduce")
    require(axes == list(range(axes[0], axes[-1] + 1)), "neighbouring axes")
    before, inside = math.prod(x.dims[: axes[0]]), math.prod(x.dims[axes[0] : axes[-1] + 1])
    images = (before, inside, 1, math.prod(x.dims[axes[-1] + 1 :]))
    one = Window(1, 1, 1, 0, 0)
    _pool(b, x, "mean", images, Window(inside, 1, 1, 0, 0), one, FuseCode.NONE)


@binds(OperationCode.SOFTMAX)
def softmax(b: Binding) -> None:
    """SOFTMAX along the last axis that is not of size 1."""
    call, x, out = b.call, b.call["input"], b.out
    axis = call.axis("axis", x.rank)
    require(math.prod(x.dims[axis + 1 :]) == 1, "the last axis")
    length, rows = x.dims[axis], math.prod(x.dims[:axis])
    arguments: dict[str, Argument] = {"source": b.source(x), "target": b.target(), "rows": rows, "length": length}
    if _require_types(call, x, out):
        arguments["beta"] = float(call.scalar("beta"))
        lanes = b.instructions.lanes
        # Several rows to a vector, where one divides the other.
        together = length if 1 < length < lanes and lanes % length == 0 else 0
        us = rows * length / (4_000 if together else 1_500) + rows * (0.0 if together else 0.01)
        b.step("softmax_real", us, arguments, together=together)
        return
    require(length < 8192, "rows of fewer than 8192 values, whose sums 32 bits hold")
    exponentials, counted, terms = softmax_tables(call)
    arguments["exponentials"] = np.where(counted, exponentials, 0).astype(np.int32)
    arguments["terms"] = terms.astype(np.int32)
    b.step("softmax_bytes", rows * length / 500, arguments)


@binds(OperationCode.RESIZE_BILINEAR)
def resize_bilinear(b: Binding) -> None:
    """RESIZE_BILINEAR."""
    call, x, out = b.call, b.call["input"], b.out
    _require_nhwc(call)
    require(all(arg.constant for arg in call.args[1:]), "constant sizes")
    real = _require_types(call, x, out)
    element = 4 if real else 1
    batch, height, width, depth = x.dims
    find = neighbours_fixed if is_signed(x) else neighbours
    tables = []
    for axis, step in ((1, width * depth * element), (2, depth * element)):
        lower, upper, share = find(call, x.dims[axis], out.dims[axis])
        table = np.empty((len(lower), POSITION_FIELDS), np.int32)
        table[:, 0], table[:, 1] = lower * step, upper * step
        table[:, 2] = share.astype(np.int32 if is_signed(x) else np.float32).view(np.int32)
        tables.append(table)
    arguments: dict[str, Argument] = {
        "source": b.source(x),
        "image": height * width * depth * element,
        "target": b.target(),
        "images": batch,
        "out_height": out.dims[1],
        "out_width": out.dims[2],
        "out_pixel": depth * element,
        "channels": depth,
        "rows": tables[0],
        "columns": tables[1],
    }
    kind = "real" if real else "signed" if is_signed(x) else "unsigned"
    b.step("resize_bilinear", math.prod(out.dims) / 4_000, arguments, kind=kind)


# -- moving data -----------------------------------------------------------------------------------------------------


@binds(OperationCode.RESHAPE, OperationCode.SQUEEZE, OperationCode.EXPAND_DIMS)
def reshape(b: Binding) -> None:
    """The same buffer."""
    x = b.call.args[0]
    require(not x.constant, "an operand that is not constant")
    require(x.type == b.out.type, "operands of one type")
    b.view(b.candidate.outputs[0], b.operand(x))


def _move_pieces(b: Binding, source: Place | Array, target: Place, index: Array, element: int, fill: int = 0) -> None:
    """Elements by their index in the source, -1 for ``fill``, in pieces as long as neighbours stay together."""
    index = index.reshape(-1).astype(np.int64)
    same = (np.diff(index) == 1) | ((index[1:] < 0) & (index[:-1] < 0))
    breaks = np.flatnonzero(~same) + 1
    size = int(np.gcd.reduce(np.append(breaks, len(index))))
    starts = index[::size]
    require(len(starts) <= _MOST_PIECES, f"at most {_MOST_PIECES} pieces")
    arguments: dict[str, Argument] = {
        "source": source,
        "target": target,
        "size": size * element,
        "count": len(starts),
        "sources": (starts * element).astype(np.int32),
        "targets": 0,
    }
    scattered = bool((starts < 0).any())
    if scattered:
        inside = starts >= 0
        targets = np.arange(len(starts), dtype=np.int64)[inside] * size * element
        b.step("fill", 0.0, {"target": target, "size": len(index) * element, "value": fill})
        arguments.update(count=int(inside.sum()), sources=(starts[inside] * element).astype(np.int32))
        arguments["targets"] = targets.astype(np.int32)
    piece = size * element if size * element in (1, 2, 4, 8) else 0
    us = len(starts) * (0.002 + size * element / 20_000)
    b.step("move", us, arguments, piece=piece, scattered=scattered)


_MOVES = (
    OperationCode.TRANSPOSE,
    OperationCode.SLICE,
    OperationCode.STRIDED_SLICE,
    OperationCode.SPACE_TO_DEPTH,
    OperationCode.DEPTH_TO_SPACE,
    OperationCode.SPACE_TO_BATCH_ND,
    OperationCode.BATCH_TO_SPACE_ND,
    OperationCode.CHANNEL_SHUFFLE,
    OperationCode.RESIZE_NEAREST_NEIGHBOR,
    OperationCode.REVERSE,
    OperationCode.TILE,
    OperationCode.SPLIT,
)


@binds(*_MOVES)
def move(b: Binding) -> None:
    """Operations that move data without looking at it: the reference kernel, run on indexes, shows where each element goes."""
    call, x = b.call, b.call.args[0]
    require(not x.constant, "an operand that is not constant")
    require(all(arg.constant for arg in call.args[1:]), "parameters that are constant")
    element = x.dtype.itemsize
    count = math.prod(x.dims)
    # Counted from 1: what the operation adds of its own is 0.
    indexes = np.arange(1, count + 1, dtype=np.int32).reshape(x.dims)
    for k, index in enumerate(_reference(call, indexes, OperandCode.TENSOR_INT32)):
        flat = index.reshape(-1).astype(np.int64) - 1
        if flat[0] >= 0 and (np.diff(flat) == 1).all():
            b.view(b.candidate.outputs[k], b.operand(x), int(flat[0]) * element)
        else:
            require(element == 1 or (flat >= 0).all() or is_zero_fill(x), "zeros to fill with")
            _move_pieces(b, b.source(x), b.target(k), flat, element, zero_of(x) if is_quant8(x.type) else 0)


def is_zero_fill(x: Arg) -> bool:
    """True if what an operation fills with is made of zero bytes."""
    return not is_quant8(x.type)


@binds(OperationCode.PAD, OperationCode.PAD_V2)
def pad(b: Binding) -> None:
    """PAD and PAD_V2."""
    call, x = b.call, b.call["input"]
    require(not x.constant, "an operand that is not constant")
    require(x.dtype.itemsize in (1, 4), "elements of 1 or 4 bytes")
    value = 0.0
    if call.get("value") is not None:
        value = float(_data(call["value"]).reshape(()))
    fill = 0
    if is_quant8(x.type):
        fill = zero_of(x) if call.get("value") is None else (int(value) + offset_of(x)) & 0xFF
    else:
        require(value == 0 and not np.signbit(value), "zeros to fill with")
    border = _border_of(call)
    if border is not None:
        _border(b, x, x.dims, b.source(x), (*border[0], *border[1]), b.target(), widen=False)
        return
    index = np.arange(math.prod(x.dims), dtype=np.int64).reshape(x.dims)
    pairs = [(int(before), int(after)) for before, after in _data(call["paddings"])]
    padded = np.pad(index, pairs, constant_values=-1)
    _move_pieces(b, b.source(x), b.target(), padded, x.dtype.itemsize, fill)


@binds(OperationCode.PACK)
def pack(b: Binding) -> None:
    """PACK: parts in turn along the new axis."""
    call = b.call
    parts, axis = call.repeated("inputs"), call.axis("axis", len(b.out.dims))
    outer = math.prod(b.out.dims[:axis])
    _join(b, parts, outer, [math.prod(part.dims[axis:]) * part.dtype.itemsize for part in parts], [])


@binds(OperationCode.CONCATENATION)
def concatenation(b: Binding) -> None:
    """CONCATENATION. Parts that lie in one piece are written where they belong; bytes of other parameters go through tables."""
    call, out = b.call, b.out
    parts, axis = call.repeated("inputs"), int(call.scalar("axis"))
    require(all(part.dtype == out.dtype for part in parts), "operands of one type")
    outer = math.prod(out.dims[:axis])
    sizes = [math.prod(part.dims[axis:]) * out.dtype.itemsize for part in parts]
    _join(b, parts, outer, sizes, _joined_tables(b, parts))


def _join(b: Binding, parts: Sequence[Arg], outer: int, sizes: Sequence[int], tables: Sequence[Array]) -> None:
    """``outer`` times a piece of each part in turn, of these sizes in bytes, which go through tables if there are any."""
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).tolist()
    if outer == 1 and not tables and not any(part.constant for part in parts):
        joined = tuple((b.operand(part), at, size) for part, at, size in zip(parts, starts, sizes, strict=True))
        if len({operand for operand, _, _ in joined}) == len(joined):
            b.bound.append(Join(joined, b.candidate.outputs[0], b.candidate.index))
            return
    whole = sum(sizes)
    for k, (part, at, size) in enumerate(zip(parts, starts, sizes, strict=True)):
        source: Place | Array = b.source(part)
        if tables and (tables[k] != np.arange(256)).any():
            rescaled = b.scratch(outer * size)
            looked: dict[str, Argument] = {"source": source, "target": rescaled, "count": outer * size, "table": tables[k]}
            b.step("look_up", outer * size / 1_000, looked)
            source = rescaled
        arguments: dict[str, Argument] = {
            "source": source,
            "target": b.target(),
            "size": size,
            "count": outer,
            "sources": (np.arange(outer) * size).astype(np.int32),
            "targets": (np.arange(outer) * whole + at).astype(np.int32),
        }
        us = outer * (0.002 + size / 20_000)
        b.step("move", us, arguments, piece=size if size in (1, 2, 4, 8) else 0, scattered=True)


def _joined_tables(b: Binding, parts: Sequence[Arg]) -> list[Array]:
    """What becomes of each part's bytes; nothing where all have the output's parameters."""
    call, out = b.call, b.out
    if not is_quant8(out.type) or all((p.scale, p.zero_point) == (out.scale, out.zero_point) for p in parts):
        return []
    args = []
    for arg in call.args:
        part = any(arg is one for one in parts)
        args.append(arg.replace(value=_every_value(arg), dims=(256,)) if part else arg.replace(value=np.zeros((), np.int32)))
    made = Call(call.definition, call.signature, tuple(args), (out.replace(dims=(256 * len(parts),)),))
    return list(_as_inside(_run_reference(made)[0], out).reshape(-1, 256))

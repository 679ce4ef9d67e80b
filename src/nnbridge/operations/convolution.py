"""Convolutions: CONV_2D, DEPTHWISE_CONV_2D, GROUPED_CONV_2D, TRANSPOSE_CONV_2D.

Kernels see NHWC. Products of 8-bit values are summed by BLAS in floating point, which is exact while the sums stay
below the mantissa; see :func:`exact_dtype`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from nnbridge.errors import Reason
from nnbridge.model import Array
from nnbridge.operations.arithmetic import (
    FLOAT_RANGES,
    activation_range,
    fused_activation,
    integer_range,
    is_quant8,
    mbqm,
    mbqm_once,
    product_multiplier,
    product_scale,
    quantize_multipliers,
    wrap32,
)
from nnbridge.operations.call import Arg, Call
from nnbridge.operations.declaration import Input, Layout, Output, Signature, operation, rank, signature, types
from nnbridge.operations.kernels import Function, InPlace, prepared
from nnbridge.operations.numerics import current, real_product
from nnbridge.operations.shapes import Window, implicit_padding, windows
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode

_TYPES = [
    types(1, T=T.TENSOR_FLOAT32, F=T.TENSOR_FLOAT32, B=T.TENSOR_FLOAT32),
    types(3, T=T.TENSOR_FLOAT16, F=T.TENSOR_FLOAT16, B=T.TENSOR_FLOAT16),
    types(1, T=T.TENSOR_QUANT8_ASYMM, F=T.TENSOR_QUANT8_ASYMM, B=T.TENSOR_INT32),
    types(3, T=T.TENSOR_QUANT8_ASYMM, F=T.TENSOR_QUANT8_SYMM_PER_CHANNEL, B=T.TENSOR_INT32),
    types(4, T=T.TENSOR_QUANT8_ASYMM_SIGNED, F=T.TENSOR_QUANT8_ASYMM_SIGNED, B=T.TENSOR_INT32),
    types(4, T=T.TENSOR_QUANT8_ASYMM_SIGNED, F=T.TENSOR_QUANT8_SYMM_PER_CHANNEL, B=T.TENSOR_INT32),
]


def scalars(**roles: str) -> tuple[Input, ...]:
    """INT32 scalar inputs by name."""
    return tuple(Input(name, T.INT32, role) for name, role in roles.items())


EXPLICIT_PADDING = scalars(
    pad_left="padding before the width",
    pad_right="padding after the width",
    pad_top="padding before the height",
    pad_bottom="padding after the height",
)
IMPLICIT_PADDING = scalars(padding="padding scheme: 1 SAME, 2 VALID")
STRIDES = scalars(stride_w="stride over the width", stride_h="stride over the height")
ACTIVATION = scalars(activation="fused activation: 0 none, 1 RELU, 2 RELU1, 3 RELU6")
NCHW = Input("nchw", T.BOOL, "true: input 0 and the output are NCHW", default=False)
DILATIONS = (
    Input("dilation_w", T.INT32, "dilation over the width", default=1),
    Input("dilation_h", T.INT32, "dilation over the height", default=1),
)
LAYOUT = Layout(("input",))


def _tensors(depthwise: bool, *, build_rank: bool) -> tuple[Input, ...]:
    layout = "[1, h, w, depth_out]" if depthwise else "[depth_out, h, w, depth_in]"
    return (
        Input("input", "T", "images [batch, h, w, depth_in]", rank=rank(4, build=build_rank)),
        Input("filter", "F", f"filter {layout}", rank=rank(4, build=build_rank)),
        Input("bias", "B", "bias [depth_out]", rank=rank(1)),
    )


def padded_forms(head: Sequence[Input], tail: Sequence[Input], counts: Mapping[int, int]) -> list[Signature]:
    """The forms with explicit and implicit padding; ``counts``: how many of the last inputs may be left out → feature level."""
    forms = []
    for name, padding in (("explicit padding", EXPLICIT_PADDING), ("implicit padding", IMPLICIT_PADDING)):
        inputs = (*head, *padding, *STRIDES, *tail)
        forms.append(signature(inputs, {len(inputs) - omitted: level for omitted, level in counts.items()}, name=name))
    return forms


def _forms(depthwise: bool, *middle: Input) -> list[Signature]:
    """Both forms with an optional layout flag and dilations from level 3."""
    tail = (*middle, *ACTIVATION, NCHW, *DILATIONS)
    return padded_forms(_tensors(depthwise, build_rank=not depthwise), tail, {3: 1, 2: 3, 0: 3})


def channel_check(dimension: int) -> Any:
    """The build check on a per-channel filter's channel dimension."""

    def check(call: Call) -> Reason | None:
        quant = call["filter"].channel_quant
        if quant is None or quant.channel_dim == dimension:
            return None
        return Reason(f"channel dimension {dimension}", str(quant.channel_dim), call.definition.name, "filter")

    return check


def scale_level(call: Call) -> tuple[int, str] | None:
    """Level 3 unless the input scale exceeds input scale x filter scale.

    The documentation compares the output scale; Android's code reads the input's, and so does this.
    """
    x, w = call["input"], call["filter"]
    if x.type != T.TENSOR_QUANT8_ASYMM:
        return None
    if w.channel_quant is None and np.float32(x.scale) > product_scale(x.scale, w.scale):
        return None
    return 3, "a filter scale of 1 or more"


# -- shared arithmetic -----------------------------------------------------------------------------------------------


def exact_dtype(terms: int) -> type[np.float32] | type[np.float64]:
    """The floating type in which sums of this many products of 8-bit differences are exact integers."""
    return np.float32 if terms * 255 * 255 < 2**24 else np.float64


def sum_dtype(x: Arg, w: Array) -> type[np.float32] | type[np.float64]:
    """The floating type in which sums of 8-bit values, as they are, times these weights [outputs, terms] are exact integers."""
    if w.dtype.kind == "f":
        return np.float32
    largest = max(abs(bound) for bound in integer_range(x)) * int(np.abs(w.astype(np.int64)).sum(axis=1).max(initial=0))
    return np.float32 if largest < 2**24 else np.float64


def check_bias_scale(call: Call) -> None:
    """N8: the bias scale is the product of input and filter scale; per-channel filters do not look at it."""
    x, w, b = call["input"], call["filter"], call["bias"]
    if w.channel_quant is not None:
        return
    product, declared = float(product_scale(x.scale, w.scale)), float(np.float32(b.scale))
    rule = f"a bias scale of {product:g}"
    call.require(abs(product - declared) <= 1e-6 * min(product, declared), rule, f"{declared:g}", "bias")


def multipliers(call: Call) -> tuple[Array, Array]:
    """N7, N9: multiplier and shift of the products, one for all channels or one for each.

    Android rounds the product of input and per-channel scale to float32, TFLite computes it in double: about one output in a
    million differs by a step. Android's conformance cases admit both; this follows TFLite, so that answers agree.
    """
    x, w, out = call["input"], call["filter"], call.out
    if w.channel_quant is None:
        return quantize_multipliers([product_multiplier(x.scale, w.scale, out.scale)])
    scales = np.asarray(w.channel_quant.scales, np.float64)
    return quantize_multipliers(float(np.float32(x.scale)) * scales / float(np.float32(out.scale)))


def operand_values(arg: Arg) -> Array:
    """Values to multiply: real ones as they are, 8-bit ones less their zero point, as int16."""
    data = arg.data
    return data if data.dtype.kind == "f" else data.astype(np.int16) - np.int16(arg.zero_point)


_BLOCK = 1 << 14
"""Elements that an epilogue works on at a time: what stays in a core's cache in 64 bits."""

Epilogue: TypeAlias = Callable[[Array, Array], None]
"""Writes outputs for sums of products, both [..., channels]. Real sums may be the output's own array."""


def epilogue(call: Call, w: Array, *, centred: bool = False) -> Epilogue:
    """Bias, rescaling and the fused activation behind sums of products with the weights ``w`` [channels, terms].

    8-bit values are multiplied as they are, and their zero point times the weights is subtracted here, unless ``centred``.
    """
    x, out, bias = call["input"], call.out, call["bias"].data
    activation = fused_activation(call)
    if not is_quant8(out.type):
        return _by_blocks(_real_epilogue(activation, bias))
    check_bias_scale(call)
    multiplier, shift = multipliers(call)
    offset = bias.astype(np.int64)
    if not centred:
        offset = offset - x.zero_point * w.sum(axis=1, dtype=np.int64)
    limits = activation_range(out, activation)
    largest = max(abs(bound - x.zero_point) for bound in integer_range(x))
    furthest = largest * np.abs(w.astype(np.float64)).sum(axis=1) + np.abs(bias.astype(np.float64))
    rounding = current().rounding
    rescale = mbqm_once if rounding == "matrix" else mbqm
    twice = rounding in ("nnapi", "matrix", "double") and rescale is mbqm
    if twice and np.ldexp(furthest, np.maximum(shift, 0)).max(initial=0) < 2**31:
        return _by_blocks(_rescaled_in_doubles(out, offset, multiplier, shift, limits))

    def wrapping(sums: Array, target: Array) -> None:
        """Android's and LiteRT's sums wrap in 32 bits, and so does the shift to the left."""
        part = rescale(wrap32(sums.astype(np.int64) + offset), multiplier, shift)
        part += out.zero_point
        np.clip(part, *limits, out=part)
        target[...] = part

    return _by_blocks(wrapping)


def _by_blocks(finish: Epilogue) -> Epilogue:
    """Rows a few at a time, so that they stay in the cache."""

    def apply(sums: Array, out: Array) -> None:
        channels = out.shape[-1]
        rows, targets = sums.reshape(-1, channels), out.reshape(-1, channels)
        count = max(1, _BLOCK // channels)
        for start in range(0, len(rows), count):
            finish(rows[start : start + count], targets[start : start + count])

    return apply


def _real_epilogue(activation: int, bias: Array) -> Epilogue:
    low, high = FLOAT_RANGES.get(activation, (-math.inf, math.inf))

    def finish(sums: Array, out: Array) -> None:
        np.add(sums, bias, out=out)
        if high < math.inf:
            np.clip(out, low, high, out=out)
        elif low > -math.inf:
            np.maximum(out, low, out=out)

    return finish


def _rescaled_in_doubles(out: Arg, offset: Array, multiplier: Array, shift: Array, limits: tuple[int, int]) -> Epilogue:
    """Android's two roundings in one pass over doubles, for sums that wrap nowhere.

    Android rounds the product with the 31-bit multiplier to nearest (ties up), then its shift by e to nearest (ties away from
    zero). Nested floors combine to one: floor(y + 1/2 + 2**-(e+1)) for y >= 0 and floor(y + 1/2 - 2**-(e+1)) below, with y the
    exact product, which float64 holds to within 2**-53.
    """
    factor = np.ldexp(multiplier.astype(np.float64), (shift - 31).astype(np.int64))
    tie = np.where(shift < 0, np.ldexp(1.0, np.minimum(shift, 0).astype(np.int64) - 1), 0.0)
    # Unsigned bytes come from non-negative values, for which truncation is floor; signed ones from flipping a bit of these.
    signed = out.type == T.TENSOR_QUANT8_ASYMM_SIGNED
    lift = out.zero_point + (128 if signed else 0)
    low, high = (float(bound - out.zero_point + lift) for bound in limits)
    # Where values below the zero point are clamped away, the rounding of negative ones does not matter.
    one_sided = limits[0] >= out.zero_point
    added, rounding = offset * factor, 0.5 + lift
    if one_sided:
        added = added + (rounding + tie)

    def finish(sums: Array, target: Array) -> None:
        y = np.multiply(sums, factor, dtype=np.float64)
        y += added
        if not one_sided:
            y += np.copysign(tie, y)
            y += rounding
        np.clip(y, low, high, out=y)
        unsigned = target.view(np.uint8)
        np.copyto(unsigned, y, casting="unsafe")
        if signed:
            np.bitwise_xor(unsigned, 0x80, out=unsigned)

    return finish


def patches(x: Array, rows: Window, columns: Window, out_h: int, out_w: int) -> Array:
    """A view [batch, out_h, out_w, filter_h, filter_w, depth] of what each window sees."""
    b, h, w, c = x.strides
    shape = (x.shape[0], out_h, out_w, rows.size, columns.size, x.shape[3])
    strides = (b, h * rows.stride, w * columns.stride, h * rows.dilation, w * columns.dilation, c)
    return as_strided(x, shape, strides, writeable=False)


Buffer: TypeAlias = "tuple[tuple[int, ...], np.dtype[Any]]"
"""Shape and element type."""


@dataclass(frozen=True, slots=True)
class Product:
    """Sums of products of images and weights: ``write(images, sums, *scratch)`` with sums [batch, out_h, out_w, channels]."""

    dtype: np.dtype[Any]
    """The type of the sums; 8-bit values add up to exact integers in it."""
    write: Callable[..., None]
    scratch: tuple[Buffer, ...] = ()

    def __call__(self, images: Array, dims: tuple[int, ...]) -> Array:
        """The sums in a new array of these dimensions."""
        sums = np.empty(dims, self.dtype)
        self.write(images, sums, *(np.empty(*buffer) for buffer in self.scratch))
        return sums

    def then(self, call: Call, finish: Epilogue) -> InPlace:
        """The kernel of these sums and what follows them."""
        if not is_quant8(call.out.type):

            def real(buffers: Sequence[Array], images: Array) -> None:
                out, *scratch = buffers
                self.write(images, out, *scratch)
                finish(out, out)

            return InPlace(real, self.scratch)

        def quantised(buffers: Sequence[Array], images: Array) -> None:
            out, sums, *scratch = buffers
            self.write(images, sums, *scratch)
            finish(sums, out)

        return InPlace(quantised, ((call.out.dims, self.dtype), *self.scratch))


def padded(
    x: Arg, depth: int, rows: Window, columns: Window, dtype: np.dtype[Any]
) -> tuple[tuple[Buffer, ...], Callable[..., Array]]:
    """Images in the type that products are computed in, with their padding around them (for 8-bit values their zero point).

    The buffers that this needs, none or one, and a function of images and these buffers.
    """
    batch, height, width, _ = x.dims
    bottom, right = rows.before + height, columns.before + width
    shape = batch, bottom + rows.after, right + columns.after, depth
    sides = ((0, rows.before), (bottom, shape[1])), ((0, columns.before), (right, shape[2]))
    whole = slice(None)
    border = [(*[whole] * axis, slice(*side)) for axis, both in enumerate(sides, 1) for side in both if side[0] < side[1]]
    if not border and not is_quant8(x.type):
        return (), lambda images: images
    inside = whole, slice(rows.before, bottom), slice(columns.before, right)

    def fill(images: Array, wide: Array) -> Array:
        for side in border:
            wide[side] = x.zero_point
        np.copyto(wide[inside], images)
        return wide

    return ((shape, dtype),), fill


def correlation(call: Call, w: Array) -> Product:
    """Sums over windows of all input channels, with filters [depth_out, h, w, depth_in]."""
    x = call["input"]
    units, filter_h, filter_w, depth = w.shape
    rows, columns = windows(call, x.dims[1], x.dims[2], filter_h, filter_w)
    out_h, out_w = rows.positions(x.dims[1]), columns.positions(x.dims[2])
    terms, count = filter_h * filter_w * depth, x.dims[0] * out_h * out_w
    matrix = w.reshape(units, terms)
    dtype = np.dtype(sum_dtype(x, matrix))
    weights = np.ascontiguousarray(matrix.T, dtype)
    multiply = np.matmul if is_quant8(x.type) else real_product()
    buffers, pad = padded(x, depth, rows, columns, dtype)
    if rows.size == columns.size == rows.stride == columns.stride == 1 and (out_h, out_w) == x.dims[1:3]:

        def pointwise(images: Array, sums: Array, *scratch: Array) -> None:
            multiply(pad(images, *scratch).reshape(count, terms), weights, out=sums.reshape(count, units))

        return Product(dtype, pointwise, buffers)

    def gathered(images: Array, sums: Array, left: Array, *scratch: Array) -> None:
        seen = patches(pad(images, *scratch), rows, columns, out_h, out_w)
        np.copyto(left.reshape(seen.shape), seen)
        multiply(left, weights, out=sums.reshape(count, units))

    return Product(dtype, gathered, (((count, terms), dtype), *buffers))


# When a depthwise convolution is computed tap by tap. `python scripts/benchmark_depthwise.py` prints the times of both ways. With
# 28 outputs a side and more, taps take 0.2 to 0.8 of the time of windows for up to 32 channels, as long for 64 channels with a
# stride of 2 and for about 160 without, and longer beyond; with fewer than 14 outputs a side they take 2 to 4 times as long.
_FEW, _FEW_OF_ONE = 128, 900
"""Outputs for each channel, and 8 more for every channel, from which a filter is applied tap by tap; of a single channel more are
needed, because its windows are summed in longer loops."""
_NARROW, _NARROW_APART, _WIDE = 160, 64, 28
"""Up to how many channels: the first where rows have at least ``_WIDE`` outputs and no stride, else, with short rows or columns
that have to be put side by side first, the second."""
_MOST_WEIGHTS = 1 << 19
"""Weights of all taps, each repeated for a row of outputs, beyond which they are not worth their memory."""
_TAP_BLOCK = 1 << 15
"""Values that a tap works on at a time: what stays in a core's cache with what it is added to."""

Sum: TypeAlias = Callable[[Array, Array], None]
"""From padded images to sums of products, which are written to the second array [batch, out_h, out_w, depth]."""


def depthwise_sums(weights: Array, rows: Window, columns: Window, batch: int, out_h: int, out_w: int) -> Sum:
    """Sums of products with one filter for each channel, ``weights`` [h, w, depth]. Both ways add in the same order."""
    depth = weights.shape[2]
    many = batch * out_h * out_w >= (_FEW + 8 * depth if depth > 1 else _FEW_OF_ONE) and out_w > 1
    narrow = depth <= (_NARROW if columns.stride == 1 and out_w >= _WIDE else _NARROW_APART)
    way = by_taps if many and narrow and out_w * weights.size <= _MOST_WEIGHTS else by_windows
    return way(weights, rows, columns, out_h, out_w)


def by_windows(weights: Array, rows: Window, columns: Window, out_h: int, out_w: int) -> Sum:
    """A view of all windows times the filter."""

    def add_up(images: Array, sums: Array) -> None:
        np.einsum("bhwijc,ijc->bhwc", patches(images, rows, columns, out_h, out_w), weights, out=sums)

    return add_up


def by_taps(weights: Array, rows: Window, columns: Window, out_h: int, out_w: int) -> Sum:
    """Each of the filter's taps times all that it meets, in rows of outputs: what a window's columns have in common lies in one
    piece once columns that are a stride apart stand side by side.
    """
    depth, stride = weights.shape[2], columns.stride
    run = out_w * depth
    block = max(1, _TAP_BLOCK // run)
    images_at_once = max(1, _TAP_BLOCK // (run * out_h))
    taps = [
        (i * rows.dilation, *divmod(j * columns.dilation, stride), np.tile(weights[i, j], out_w))
        for i, j in product(range(rows.size), range(columns.size))
    ]

    def add_up(images: Array, sums: Array) -> None:
        batch, height = images.shape[:2]
        phases = [images[:, :, phase::stride].reshape(batch, height, -1) for phase in range(min(stride, images.shape[2]))]
        target = sums.reshape(batch, out_h, run)
        buffer = np.empty((min(images_at_once, batch), min(block, out_h), run), sums.dtype)
        for image, first in product(range(0, batch, images_at_once), range(0, out_h, block)):
            some = slice(image, image + images_at_once)
            part = target[some, first : first + block]
            work = part
            for down, across, phase, tap in taps:
                start = first * rows.stride + down
                met = slice(start, start + (part.shape[1] - 1) * rows.stride + 1, rows.stride)
                np.multiply(phases[phase][some, met, across * depth : across * depth + run], tap, out=work)
                if work is not part:
                    np.add(part, work, out=part)
                work = buffer[: len(part), : part.shape[1]]

    return add_up


def _spatial(call: Call, x: Arg, filter_h: int, filter_w: int) -> tuple[int, int]:
    """Height and width of the output; refused where a dimension but the batch is 0 or nothing fits."""
    call.require(0 not in x.dims[1:], "height, width and depth above 0", list(x.dims), "input")
    rows, columns = windows(call, x.dims[1], x.dims[2], filter_h, filter_w)
    size = rows.positions(x.dims[1]), columns.positions(x.dims[2])
    call.require(min(size) > 0, "a filter that fits into the padded input", list(x.dims), "filter")
    return size


def _check_bias(call: Call, depth_out: int) -> None:
    call.require(call["bias"].dims == (depth_out,), f"a bias of [{depth_out}]", list(call["bias"].dims), "bias")


def _conv_shape(call: Call) -> tuple[int, ...]:
    x, w = call["input"], call["filter"]
    call.require(w.dims[3] == x.dims[3], f"a filter depth of {x.dims[3]}", w.dims[3], "filter")
    _check_bias(call, w.dims[0])
    return (x.dims[0], *_spatial(call, x, w.dims[1], w.dims[2]), w.dims[0])


@operation(
    OperationCode.CONV_2D,
    since=1,
    summary="2-D convolution with bias and fused activation.",
    types=_TYPES,
    signatures=_forms(False),
    outputs=[Output("output", "T", "[batch, out_h, out_w, depth_out]")],
    shape=_conv_shape,
    level_rules=(scale_level,),
    build_checks=(channel_check(0),),
    layout=LAYOUT,
    zero_sized=True,
)
@prepared("input")
def conv_2d(call: Call) -> InPlace:
    """Sums over windows of all input channels."""
    w = operand_values(call["filter"])
    return correlation(call, w).then(call, epilogue(call, w.reshape(len(w), -1)))


def _depthwise_shape(call: Call) -> tuple[int, ...]:
    x, w = call["input"], call["filter"]
    multiplier = int(call.scalar("multiplier"))
    call.require(w.dims[0] == 1, "a filter of [1, h, w, depth_out]", list(w.dims), "filter")
    channels = x.dims[3] * multiplier
    call.require(w.dims[3] == channels, f"depth_in x multiplier = {channels} output channels", w.dims[3], "filter")
    _check_bias(call, w.dims[3])
    return (x.dims[0], *_spatial(call, x, w.dims[1], w.dims[2]), w.dims[3])


@operation(
    OperationCode.DEPTHWISE_CONV_2D,
    since=1,
    summary="2-D convolution of each input channel with its own filters.",
    types=_TYPES,
    signatures=_forms(True, *scalars(multiplier="depth multiplier: depth_out / depth_in")),
    outputs=[Output("output", "T", "[batch, out_h, out_w, depth_out]")],
    shape=_depthwise_shape,
    level_rules=(scale_level,),
    build_checks=(channel_check(3),),
    layout=LAYOUT,
    zero_sized=True,
)
@prepared("input")
def depthwise_conv_2d(call: Call) -> InPlace:
    """Output channel c * multiplier + q sees input channel c only."""
    x, w, dims = call["input"], operand_values(call["filter"])[0], call.out.dims
    filter_h, filter_w, units = w.shape
    finish, depth = epilogue(call, w.reshape(-1, units).T), x.dims[3]
    if depth == 1 and units > 1:
        # One channel that all filters see: a convolution like any other.
        return correlation(call, w.transpose(2, 0, 1)[..., None]).then(call, finish)
    rows, columns = windows(call, x.dims[1], x.dims[2], filter_h, filter_w)
    dtype = np.dtype(sum_dtype(x, w.reshape(-1, units).T))
    weights = np.ascontiguousarray(w, dtype)
    if not is_quant8(x.type) and current().sums != "blas":
        add_up = _in_order(weights, rows, columns)
    elif units == depth:
        add_up = depthwise_sums(weights, rows, columns, *dims[:3])
    else:
        add_up = _multiplied(weights.reshape(filter_h, filter_w, depth, -1), rows, columns)
    buffers, pad = padded(x, depth, rows, columns, dtype)
    return Product(dtype, lambda x, sums, *scratch: add_up(pad(x, *scratch), sums), buffers).then(call, finish)


def _multiplied(filters: Array, rows: Window, columns: Window) -> Sum:
    """Sums of products with several filters for each channel, [h, w, depth, multiplier]."""

    def add_up(images: Array, sums: Array) -> None:
        seen = patches(images, rows, columns, *sums.shape[1:3])
        np.einsum("bhwijc,ijcm->bhwcm", seen, filters, out=sums.reshape(*sums.shape[:3], *filters.shape[2:]))

    return add_up


def _in_order(weights: Array, rows: Window, columns: Window) -> Sum:
    """Sums of real products in the current order: channel by channel, each a matrix of windows times its filters."""
    multiply = real_product()
    size, units = weights.shape[0] * weights.shape[1], weights.shape[2]

    def add_up(images: Array, sums: Array) -> None:
        depth = images.shape[3]
        seen = patches(images, rows, columns, *sums.shape[1:3])
        left = np.ascontiguousarray(np.moveaxis(seen, -1, 0)).reshape(depth, -1, size)
        filters = weights.reshape(size, depth, units // depth).transpose(1, 0, 2)
        found = multiply(left, np.ascontiguousarray(filters))
        sums[...] = np.moveaxis(found, 0, 1).reshape(sums.shape)

    return add_up


def _grouped_shape(call: Call) -> tuple[int, ...]:
    x, w = call["input"], call["filter"]
    groups = int(call.scalar("groups"))
    call.require(groups > 0, "at least one group", groups, "groups")
    call.require(x.dims[3] == w.dims[3] * groups, f"{groups} groups of depth {w.dims[3]}", x.dims[3], "input")
    call.require(w.dims[0] % groups == 0, f"output channels divisible by {groups}", w.dims[0], "filter")
    _check_bias(call, w.dims[0])
    return (x.dims[0], *_spatial(call, x, w.dims[1], w.dims[2]), w.dims[0])


_GROUPED_TENSORS = (
    Input("input", "T", "images [batch, h, w, depth_in]", rank=rank(4)),
    Input("filter", "F", "filter [depth_out, h, w, depth_in / groups]", rank=rank(4)),
    Input("bias", "B", "bias [depth_out]", rank=rank(1)),
)
_FLAG = Input("nchw", T.BOOL, NCHW.role)
_LATER_TYPES = [types(max(3, t.level), **t.types) for t in _TYPES]


@operation(
    OperationCode.GROUPED_CONV_2D,
    since=3,
    summary="2-D convolution in which each group of output channels sees its own group of input channels.",
    types=_LATER_TYPES,
    signatures=padded_forms(_GROUPED_TENSORS, (*scalars(groups="number of groups"), *ACTIVATION, _FLAG), {0: 3}),
    outputs=[Output("output", "T", "[batch, out_h, out_w, depth_out]")],
    shape=_grouped_shape,
    handled="executor",
    build_checks=(channel_check(0),),
    layout=LAYOUT,
)
@prepared("input")
def grouped_conv_2d(call: Call) -> Function:
    """One convolution for each group."""
    w, groups, dims = operand_values(call["filter"]), int(call.scalar("groups")), call.out.dims
    products = [correlation(call, filters) for filters in np.split(w, groups, axis=0)]
    finish, part_dims = epilogue(call, w.reshape(len(w), -1)), (*dims[:3], dims[3] // groups)

    def convolve(x: Array) -> Array:
        parts = zip(products, np.split(x, groups, axis=3), strict=True)
        sums, out = np.concatenate([multiply(part, part_dims) for multiply, part in parts], axis=3), np.empty(dims, result)
        finish(sums, out)
        return out

    result = call.out.dtype if is_quant8(call.out.type) else np.dtype(np.float32)
    return convolve


def _transpose_padding(call: Call) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Output height and width, then padding before and after of each; N22: SAME may leave a negative tail."""
    x, w = call["input"], call["filter"]
    strides = int(call.scalar("stride_h")), int(call.scalar("stride_w"))
    for stride, name in zip(strides, ("stride_h", "stride_w"), strict=True):
        call.require(stride > 0, "a stride of at least 1", stride, name)
    sizes = (w.dims[1], w.dims[2])
    if call.get("padding") is None:
        top, bottom, left, right = (int(call.scalar(f"pad_{side}")) for side in ("top", "bottom", "left", "right"))
        pads = ((top, bottom), (left, right))
        for pair, size in zip(pads, sizes, strict=True):
            call.require(all(0 <= p < size for p in pair), f"paddings from 0 to below {size}", pair, "padding")
        size_h, size_w = ((x.dims[1 + k] - 1) * strides[k] + sizes[k] - sum(pads[k]) for k in range(2))
        return (size_h, size_w), *pads
    scheme = int(call.scalar("padding"))
    call.require(scheme in (1, 2), "a padding scheme of 1 (SAME) or 2 (VALID)", scheme, "padding")
    declared = call["output_shape"].data
    call.require(declared.shape == (4,), "an output shape of 4 values", list(declared.shape), "output_shape")
    # The operand's order is the client's: NCHW dimensions under the NCHW flag.
    height = 2 if call.scalar("nchw") else 1
    out = int(declared[height]), int(declared[height + 1])
    call.require(min(out) > 0, "an output height and width above 0", list(out), "output_shape")
    found = []
    for k in range(2):
        head = implicit_padding(out[k], sizes[k], strides[k], 1, scheme)[0]
        steps = -(-out[k] // strides[k])
        tail = (steps - 1) * strides[k] + sizes[k] - out[k] - head if scheme == 1 else 0
        found.append((head, tail))
    size_h, size_w = ((x.dims[1 + k] - 1) * strides[k] + sizes[k] - sum(found[k]) for k in range(2))
    return (size_h, size_w), found[0], found[1]


def _transpose_shape(call: Call) -> tuple[int, ...]:
    x, w = call["input"], call["filter"]
    call.require(w.dims[3] == x.dims[3], f"a filter depth of {x.dims[3]}", w.dims[3], "filter")
    _check_bias(call, w.dims[0])
    call.require(0 not in x.dims[1:], "height, width and depth above 0", list(x.dims), "input")
    size, _, _ = _transpose_padding(call)
    call.require(min(size) > 0, "an output height and width above 0", list(size), "output")
    return (x.dims[0], *size, w.dims[0])


def _transpose_forms() -> list[Signature]:
    tensors = _tensors(depthwise=False, build_rank=True)
    shape = Input("output_shape", T.TENSOR_INT32, "dimensions of the output, NHWC or NCHW as the flag says", rank=rank(1))
    explicit = (*tensors, *EXPLICIT_PADDING, *STRIDES, *ACTIVATION, _FLAG)
    implicit = (*tensors, shape, *IMPLICIT_PADDING, *STRIDES, *ACTIVATION, _FLAG)
    return [
        signature(explicit, {len(explicit): 3}, name="explicit padding"),
        signature(implicit, {len(implicit): 3}, name="implicit padding"),
    ]


@operation(
    OperationCode.TRANSPOSE_CONV_2D,
    since=3,
    summary="Transposed 2-D convolution.",
    types=_LATER_TYPES,
    signatures=_transpose_forms(),
    outputs=[Output("output", "T", "[batch, out_h, out_w, depth_out]")],
    shape=_transpose_shape,
    build_checks=(channel_check(0),),
    layout=LAYOUT,
    zero_sized=True,
)
@prepared("input")
def transpose_conv_2d(call: Call) -> Function:
    """Every input position adds its value times the filter to the output around it; what falls outside is dropped."""
    x, w = call["input"], operand_values(call["filter"])
    (out_h, out_w), (top, _), (left, _) = _transpose_padding(call)
    stride_h, stride_w = int(call.scalar("stride_h")), int(call.scalar("stride_w"))
    batch, height, width, depth = x.dims
    units, filter_h, filter_w, _ = w.shape
    dtype = np.float32 if w.dtype.kind == "f" else exact_dtype(depth * filter_h * filter_w)
    weights = w.reshape(-1, depth).astype(dtype, copy=False).T
    multiply = np.matmul if is_quant8(x.type) else real_product()
    full_h = max((height - 1) * stride_h + filter_h, top + out_h)
    full_w = max((width - 1) * stride_w + filter_w, left + out_w)
    finish, result = epilogue(call, w.reshape(units, -1), centred=True), call.out.dtype if is_quant8(call.out.type) else dtype

    def convolve(images: Array) -> Array:
        flat = images.reshape(-1, depth).astype(dtype, copy=False)
        if is_quant8(x.type):
            flat -= x.zero_point
        products = multiply(flat, weights).reshape(batch, height, width, units, filter_h, filter_w)
        full = np.zeros((batch, full_h, full_w, units), dtype)
        for i, j in product(range(filter_h), range(filter_w)):
            met = full[:, i : i + height * stride_h : stride_h, j : j + width * stride_w : stride_w]
            met[:, :height, :width] += products[..., i, j]
        sums = full[:, top : top + out_h, left : left + out_w]
        out = np.empty(sums.shape, result)
        finish(sums, out)
        return out

    return convolve

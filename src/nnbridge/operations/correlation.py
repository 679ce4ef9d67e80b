"""Sums of products over windows and what follows them: the arithmetic that convolutions and products of matrices share.

Images are NHWC. Products of 8-bit values are summed by BLAS in floating point, which is exact while the sums stay
below the mantissa; see :func:`exact_dtype`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from nnbridge.model import Array
from nnbridge.operations.arithmetic import (
    integer_range,
    is_quant8,
    product_multiplier,
    product_scale,
    quantize_multipliers,
)
from nnbridge.operations.call import Arg, Call
from nnbridge.operations.kernels import InPlace
from nnbridge.operations.numerics import real_product
from nnbridge.operations.shapes import Window, windows
from nnbridge.records import dataclass


def exact_dtype(terms: int) -> type[np.float32] | type[np.float64]:
    """The floating type in which sums of this many products of 8-bit differences are exact integers."""
    return np.float32 if terms * 255 * 255 < 2**24 else np.float64


def sum_dtype(x: Arg, w: Array) -> type[np.float32] | type[np.float64]:
    """The floating type in which sums of 8-bit values, as they are, times these weights [outputs, terms] are exact integers."""
    if w.dtype.kind == "f":
        return np.float32
    largest = max(abs(bound) for bound in integer_range(x)) * int(np.abs(w.astype(np.int64)).sum(axis=1).max(initial=0))
    return np.float32 if largest < 2**24 else np.float64


def bias_scale(x: Arg, w: Arg, bias: Arg) -> tuple[bool, str, str]:
    """N8: whether the bias scale is the product of both scales, the rule, and what is found. Per-channel filters do not look."""
    product, declared = float(product_scale(x.scale, w.scale)), float(np.float32(bias.scale))
    same = abs(product - declared) <= 1e-6 * min(product, declared)
    return w.channel_quant is not None or same, f"a bias scale of {product:g}", f"{declared:g}"


def real_multipliers(call: Call) -> Array:
    """N7, N9: what the products are multiplied with, one number for all channels or one for each.

    Android rounds the product of input and per-channel scale to float32, TFLite computes it in double: about one output in a
    million differs by a step. Android's conformance cases admit both; this follows TFLite, so that answers agree.
    """
    x, w, out = call["input"], call["filter"], call.out
    if w.channel_quant is None:
        return np.array([product_multiplier(x.scale, w.scale, out.scale)])
    scales = np.asarray(w.channel_quant.scales, np.float64)
    return float(np.float32(x.scale)) * scales / float(np.float32(out.scale))


def multipliers(call: Call) -> tuple[Array, Array]:
    """Multipliers and shifts of the products."""
    return quantize_multipliers(real_multipliers(call))


def operand_values(arg: Arg) -> Array:
    """Values to multiply: real ones as they are, 8-bit ones less their zero point, as int16."""
    data = arg.data
    return data if data.dtype.kind == "f" else data.astype(np.int16) - np.int16(arg.zero_point)


Epilogue: TypeAlias = Callable[[Array, Array], None]
"""Writes outputs for sums of products, both [..., channels]. Real sums may be the output's own array."""


def patches(x: Array, rows: Window, columns: Window, out_h: int, out_w: int) -> Array:
    """A view [batch, out_h, out_w, filter_h, filter_w, depth] of what each window sees."""
    b, h, w, c = x.strides
    shape = (x.shape[0], out_h, out_w, rows.size, columns.size, x.shape[3])
    strides = (b, h * rows.stride, w * columns.stride, h * rows.dilation, w * columns.dilation, c)
    return as_strided(x, shape, strides, writeable=False)


Buffer: TypeAlias = "tuple[tuple[int, ...], np.dtype[Any]]"
"""Shape and element type."""


@dataclass(frozen=True, slots=True)
class WindowProduct:
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


def correlation(call: Call, w: Array) -> WindowProduct:
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

        return WindowProduct(dtype, pointwise, buffers)

    def gathered(images: Array, sums: Array, left: Array, *scratch: Array) -> None:
        seen = patches(pad(images, *scratch), rows, columns, out_h, out_w)
        np.copyto(left.reshape(seen.shape), seen)
        multiply(left, weights, out=sums.reshape(count, units))

    return WindowProduct(dtype, gathered, (((count, terms), dtype), *buffers))


# When a depthwise convolution is computed tap by tap. `python scripts/benchmarks/benchmark_depthwise.py` prints the times of both
# ways. With 28 outputs a side and more, taps take 0.2 to 0.8 of the time of windows for up to 32 channels, as long for 64
# channels with a stride of 2 and for about 160 without, and longer beyond; with fewer than 14 outputs a side they take 2 to 4
# times as long.
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

"""Convolutions: CONV_2D, DEPTHWISE_CONV_2D, GROUPED_CONV_2D, TRANSPOSE_CONV_2D.

Kernels see NHWC. Products of 8-bit values are summed by BLAS in floating point, which is exact while the sums stay
below the mantissa; see :func:`exact_dtype`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from nnbridge.errors import Reason
from nnbridge.operations.arithmetic import (
    activate,
    activation_range,
    fused_activation,
    integer_range,
    is_quant8,
    mbqm,
    product_multiplier,
    product_scale,
    quantize_multipliers,
)
from nnbridge.operations.call import prepared
from nnbridge.operations.declaration import Input, Layout, Output, Signature, operation, rank, signature, types
from nnbridge.operations.shapes import Window, implicit_padding, windows
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode

if TYPE_CHECKING:
    from nnbridge.model import Array
    from nnbridge.operations.call import Arg, Call

Values = npt.NDArray[Any]

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


def _forms(tensors: tuple[Input, ...], middle: tuple[Input, ...]) -> list[Signature]:
    """The explicit and the implicit form, each with an optional layout flag and dilations from level 3."""
    made = []
    for name, padding in (("explicit padding", EXPLICIT_PADDING), ("implicit padding", IMPLICIT_PADDING)):
        inputs = (*tensors, *padding, *STRIDES, *middle, *ACTIVATION, NCHW, *DILATIONS)
        n = len(inputs)
        made.append(signature(inputs, {n - 3: 1, n - 2: 3, n: 3}, name=name))
    return made


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


def sum_dtype(x: Arg, w: Values) -> type[np.float32] | type[np.float64]:
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


def multipliers(call: Call) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """N7, N9: multiplier and shift of the products, one for all channels or one for each.

    Android rounds the product of input and per-channel scale to float32, TFLite keeps it in double: about one output in a
    million differs by a step. Android's conformance cases admit both; this follows TFLite, so that answers agree.
    """
    x, w, out = call["input"], call["filter"], call.out
    if w.channel_quant is None:
        return quantize_multipliers([product_multiplier(x.scale, w.scale, out.scale)])
    scales = np.asarray(w.channel_quant.scales, np.float64)
    return quantize_multipliers(float(np.float32(x.scale)) * scales / float(np.float32(out.scale)))


def operand_values(arg: Arg) -> npt.NDArray[Any]:
    """Values to multiply: real ones as they are, 8-bit ones less their zero point, as int16."""
    data = arg.data
    return data if data.dtype.kind == "f" else data.astype(np.int16) - np.int16(arg.zero_point)


_BLOCK = 1 << 15
"""Sums that are rescaled at a time: what stays in a core's cache in 64 bits."""


def epilogue(call: Call, totals: Values | int) -> Callable[[Values], Array]:
    """From sums of products, which it may use up, to the output: bias, rescaling and the fused activation; channels are last.

    ``totals`` are the sums of each channel's weights where 8-bit values were multiplied as they are: the input's zero point
    times them is taken off with the bias. It is 0 where the zero point was taken off before.
    """
    activation, bias, out = fused_activation(call), call["bias"].data, call.out
    if not is_quant8(out.type):

        def add(sums: Values) -> Array:
            sums += bias
            return activate(sums, activation, out=sums)

        return add
    check_bias_scale(call)
    multiplier, shift = multipliers(call)
    offset = bias.astype(np.int64) - call["input"].zero_point * totals
    zero_point, limits, dtype = out.zero_point, activation_range(out, activation), out.dtype

    def rescale(sums: Values) -> Array:
        result = np.empty(sums.shape, dtype)
        flat, target = sums.reshape(-1, sums.shape[-1]), result.reshape(-1, sums.shape[-1])
        rows = max(1, _BLOCK // sums.shape[-1])
        for start in range(0, len(flat), rows):
            part = mbqm(flat[start : start + rows].astype(np.int64) + offset, multiplier, shift)
            part += zero_point
            np.clip(part, *limits, out=part)
            target[start : start + rows] = part
        return result

    return rescale


def padded(x: Values, rows: Window, columns: Window, dtype: Any, fill: int = 0) -> Values:
    """The images with a border around them, in the type that products are computed in."""
    batch, height, width, depth = x.shape
    if not (rows.before or rows.after or columns.before or columns.after):
        return x.astype(dtype, copy=False)
    shape = batch, rows.before + height + rows.after, columns.before + width + columns.after, depth
    wide = np.full(shape, fill, dtype) if fill else np.zeros(shape, dtype)
    wide[:, rows.before : rows.before + height, columns.before : columns.before + width] = x
    return wide


def patches(x: npt.NDArray[Any], rows: Window, columns: Window, out_h: int, out_w: int) -> npt.NDArray[Any]:
    """A view [batch, out_h, out_w, filter_h, filter_w, depth] of what each window sees."""
    b, h, w, c = x.strides
    shape = (x.shape[0], out_h, out_w, rows.size, columns.size, x.shape[3])
    strides = (b, h * rows.stride, w * columns.stride, h * rows.dilation, w * columns.dilation, c)
    return as_strided(x, shape, strides, writeable=False)


Sum: TypeAlias = Callable[[Values, Values], None]
"""From padded images to sums of products, which are written to the second array [batch, out_h, out_w, depth]."""
_FEW, _FEW_OF_ONE = 128, 900
"""Outputs for each channel, and 8 more for every channel, from which a filter is taken tap by tap; of a single channel it takes
more of them, because its windows are summed in longer loops."""
_NARROW, _NARROW_APART, _WIDE = 160, 64, 28
"""Up to so many channels this is done: fewer of them where rows are short or, with a stride, columns have to be put side by
side first."""
_MOST_WEIGHTS = 1 << 19
"""Weights of all taps, each repeated for a row of outputs, beyond which they are not worth their memory."""
_TAP_BLOCK = 1 << 15
"""Values that a tap works on at a time: what stays in a core's cache with what it is added to."""


def depthwise_sums(weights: Values, rows: Window, columns: Window, batch: int, out_h: int, out_w: int) -> Sum:
    """Sums of products with one filter for each channel, ``weights`` [h, w, depth]. Both ways add in the same order."""
    depth = weights.shape[2]
    many = batch * out_h * out_w >= (_FEW + 8 * depth if depth > 1 else _FEW_OF_ONE) and out_w > 1
    narrow = depth <= (_NARROW if columns.stride == 1 and out_w >= _WIDE else _NARROW_APART)
    way = by_taps if many and narrow and out_w * weights.size <= _MOST_WEIGHTS else by_windows
    return way(weights, rows, columns, out_h, out_w)


def by_windows(weights: Values, rows: Window, columns: Window, out_h: int, out_w: int) -> Sum:
    """A view of all windows times the filter."""

    def add_up(images: Values, sums: Values) -> None:
        np.einsum("bhwijc,ijc->bhwc", patches(images, rows, columns, out_h, out_w), weights, out=sums)

    return add_up


def by_taps(weights: Values, rows: Window, columns: Window, out_h: int, out_w: int) -> Sum:
    """Each of the filter's taps times all that it meets, in rows of outputs: what a window's columns have in common lies in one
    piece once columns that are a stride apart stand side by side.
    """
    depth, stride = weights.shape[2], columns.stride
    run = out_w * depth
    block = max(1, _TAP_BLOCK // run)
    together = max(1, _TAP_BLOCK // (run * out_h))
    taps = [
        (i * rows.dilation, *divmod(j * columns.dilation, stride), np.tile(weights[i, j], out_w))
        for i, j in product(range(rows.size), range(columns.size))
    ]

    def add_up(images: Values, sums: Values) -> None:
        batch, height = images.shape[:2]
        sides = [images[:, :, phase::stride].reshape(batch, height, -1) for phase in range(min(stride, images.shape[2]))]
        target = sums.reshape(batch, out_h, run)
        room = np.empty((min(together, batch), min(block, out_h), run), sums.dtype)
        for image, first in product(range(0, batch, together), range(0, out_h, block)):
            some = slice(image, image + together)
            part = target[some, first : first + block]
            work = part
            for down, across, phase, tap in taps:
                start = first * rows.stride + down
                met = slice(start, start + (part.shape[1] - 1) * rows.stride + 1, rows.stride)
                np.multiply(sides[phase][some, met, across * depth : across * depth + run], tap, out=work)
                if work is not part:
                    np.add(part, work, out=part)
                work = room[: len(part), : part.shape[1]]

    return add_up


def correlation(call: Call, w: Values) -> Callable[[Values], Values]:
    """From images to sums of products [batch, out_h, out_w, depth_out] with filters [depth_out, h, w, depth_in].

    8-bit images are taken as they are, with their zero point around them.
    """
    x = call["input"]
    rows, columns = windows(call, x.dims[1], x.dims[2], w.shape[1], w.shape[2])
    out_h, out_w = rows.positions(x.dims[1]), columns.positions(x.dims[2])
    terms = w.shape[1] * w.shape[2] * w.shape[3]
    dtype = sum_dtype(x, w.reshape(len(w), terms))
    weights = w.reshape(len(w), terms).astype(dtype, copy=False).T
    pointwise = rows.size == columns.size == rows.stride == columns.stride == 1

    def multiply(images: Values) -> Values:
        wide = padded(images, rows, columns, dtype, x.zero_point)
        seen = wide if pointwise and wide.shape[1:3] == (out_h, out_w) else patches(wide, rows, columns, out_h, out_w)
        return (seen.reshape(-1, terms) @ weights).reshape(len(images), out_h, out_w, len(w))

    return multiply


# -- CONV_2D ---------------------------------------------------------------------------------------------------------


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
    signatures=_forms(_tensors(depthwise=False, build_rank=True), ()),
    outputs=[Output("output", "T", "[batch, out_h, out_w, depth_out]")],
    shape=_conv_shape,
    level_rules=(scale_level,),
    build_checks=(channel_check(0),),
    layout=LAYOUT,
    zero_sized=True,
)
@prepared("input")
def conv_2d(call: Call) -> Callable[[Array], Array]:
    """Sums over windows of all input channels."""
    w = operand_values(call["filter"])
    multiply, finish = correlation(call, w), epilogue(call, w.sum(axis=(1, 2, 3), dtype=np.int64))
    return lambda x: finish(multiply(x))


# -- DEPTHWISE_CONV_2D -----------------------------------------------------------------------------------------------


def _depthwise_shape(call: Call) -> tuple[int, ...]:
    x, w = call["input"], call["filter"]
    multiplier = int(call.scalar("multiplier"))
    call.require(w.dims[0] == 1, "a filter of [1, h, w, depth_out]", list(w.dims), "filter")
    want = x.dims[3] * multiplier
    call.require(w.dims[3] == want, f"depth_in x multiplier = {want} output channels", w.dims[3], "filter")
    _check_bias(call, w.dims[3])
    return (x.dims[0], *_spatial(call, x, w.dims[1], w.dims[2]), w.dims[3])


@operation(
    OperationCode.DEPTHWISE_CONV_2D,
    since=1,
    summary="2-D convolution of each input channel with its own filters.",
    types=_TYPES,
    signatures=_forms(_tensors(depthwise=True, build_rank=False), scalars(multiplier="depth multiplier: depth_out / depth_in")),
    outputs=[Output("output", "T", "[batch, out_h, out_w, depth_out]")],
    shape=_depthwise_shape,
    level_rules=(scale_level,),
    build_checks=(channel_check(3),),
    layout=LAYOUT,
    zero_sized=True,
)
@prepared("input")
def depthwise_conv_2d(call: Call) -> Callable[[Array], Array]:
    """Output channel c * multiplier + q sees input channel c only."""
    x, w = call["input"], operand_values(call["filter"])[0]
    finish = epilogue(call, w.sum(axis=(0, 1), dtype=np.int64))
    multiplier = w.shape[2] // x.dims[3]
    if x.dims[3] == 1:
        # One channel that all filters see: a convolution like any other.
        multiply = correlation(call, w.transpose(2, 0, 1)[..., None])
        return lambda images: finish(multiply(images))
    rows, columns = windows(call, x.dims[1], x.dims[2], w.shape[0], w.shape[1])
    out_h, out_w = rows.positions(x.dims[1]), columns.positions(x.dims[2])
    dtype = sum_dtype(x, w.reshape(-1, w.shape[2]).T)
    weights = w.astype(dtype, copy=False)
    if multiplier > 1:
        add_up = _multiplied(weights, x.dims[3], rows, columns)
    else:
        add_up = depthwise_sums(weights, rows, columns, x.dims[0], out_h, out_w)

    def convolve(images: Array) -> Array:
        sums = np.empty((len(images), out_h, out_w, w.shape[2]), dtype)
        add_up(padded(images, rows, columns, dtype, x.zero_point), sums)
        return finish(sums)

    return convolve


def _multiplied(weights: Values, depth: int, rows: Window, columns: Window) -> Sum:
    """Sums of products with several filters for each channel."""
    filters = weights.reshape(rows.size, columns.size, depth, -1)

    def add_up(images: Values, sums: Values) -> None:
        seen = patches(images, rows, columns, *sums.shape[1:3])
        np.einsum("bhwijc,ijcm->bhwcm", seen, filters, out=sums.reshape(*sums.shape[:3], depth, -1))

    return add_up


# -- GROUPED_CONV_2D -------------------------------------------------------------------------------------------------


def _grouped_shape(call: Call) -> tuple[int, ...]:
    x, w = call["input"], call["filter"]
    groups = int(call.scalar("groups"))
    call.require(groups > 0, "at least one group", groups, "groups")
    call.require(x.dims[3] == w.dims[3] * groups, f"{groups} groups of depth {w.dims[3]}", x.dims[3], "input")
    call.require(w.dims[0] % groups == 0, f"output channels divisible by {groups}", w.dims[0], "filter")
    _check_bias(call, w.dims[0])
    return (x.dims[0], *_spatial(call, x, w.dims[1], w.dims[2]), w.dims[0])


def _grouped_forms() -> list[Signature]:
    tensors = (
        Input("input", "T", "images [batch, h, w, depth_in]", rank=rank(4)),
        Input("filter", "F", "filter [depth_out, h, w, depth_in / groups]", rank=rank(4)),
        Input("bias", "B", "bias [depth_out]", rank=rank(1)),
    )
    flag = Input("nchw", T.BOOL, NCHW.role)
    made = []
    for name, padding in (("explicit padding", EXPLICIT_PADDING), ("implicit padding", IMPLICIT_PADDING)):
        inputs = (*tensors, *padding, *STRIDES, *scalars(groups="number of groups"), *ACTIVATION, flag)
        made.append(signature(inputs, {len(inputs): 3}, name=name))
    return made


_LATER_TYPES = [types(max(3, t.level), **t.types) for t in _TYPES]


@operation(
    OperationCode.GROUPED_CONV_2D,
    since=3,
    summary="2-D convolution in which each group of output channels sees its own group of input channels.",
    types=_LATER_TYPES,
    signatures=_grouped_forms(),
    outputs=[Output("output", "T", "[batch, out_h, out_w, depth_out]")],
    shape=_grouped_shape,
    handled="executor",
    build_checks=(channel_check(0),),
    layout=LAYOUT,
)
@prepared("input")
def grouped_conv_2d(call: Call) -> Callable[[Array], Array]:
    """One convolution for each group."""
    w, groups = operand_values(call["filter"]), int(call.scalar("groups"))
    multiply = [correlation(call, filters) for filters in np.split(w, groups, axis=0)]
    finish = epilogue(call, w.sum(axis=(1, 2, 3), dtype=np.int64))

    def convolve(x: Array) -> Array:
        parts = zip(multiply, np.split(x, groups, axis=3), strict=True)
        return finish(np.concatenate([product(part) for product, part in parts], axis=3))

    return convolve


# -- TRANSPOSE_CONV_2D -----------------------------------------------------------------------------------------------


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
    wanted = call["output_shape"].data
    call.require(wanted.shape == (4,), "an output shape of 4 values", list(wanted.shape), "output_shape")
    # The operand's order is the client's: NCHW dimensions under the NCHW flag.
    height = 2 if call.scalar("nchw") else 1
    out = int(wanted[height]), int(wanted[height + 1])
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
    flag = Input("nchw", T.BOOL, NCHW.role)
    shape = Input("output_shape", T.TENSOR_INT32, "dimensions of the output, NHWC or NCHW as the flag says", rank=rank(1))
    explicit = (*tensors, *EXPLICIT_PADDING, *STRIDES, *ACTIVATION, flag)
    implicit = (*tensors, shape, *IMPLICIT_PADDING, *STRIDES, *ACTIVATION, flag)
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
def transpose_conv_2d(call: Call) -> Array:
    """Every input position adds its value times the filter to the output around it; what falls outside is dropped."""
    x, w = operand_values(call["input"]), operand_values(call["filter"])
    (out_h, out_w), (top, _), (left, _) = _transpose_padding(call)
    stride_h, stride_w = int(call.scalar("stride_h")), int(call.scalar("stride_w"))
    batch, height, width, depth = x.shape
    count, filter_h, filter_w, _ = w.shape
    dtype = np.float32 if x.dtype.kind == "f" else exact_dtype(depth * filter_h * filter_w)
    flat = x.reshape(-1, depth).astype(dtype, copy=False)
    products = (flat @ w.reshape(-1, depth).astype(dtype, copy=False).T).reshape(batch, height, width, count, filter_h, filter_w)
    full_h = max((height - 1) * stride_h + filter_h, top + out_h)
    full_w = max((width - 1) * stride_w + filter_w, left + out_w)
    full = np.zeros((batch, full_h, full_w, count), dtype)
    for i in range(filter_h):
        for j in range(filter_w):
            full[:, i : i + height * stride_h : stride_h, j : j + width * stride_w : stride_w][:, :height, :width] += products[
                ..., i, j
            ]
    return epilogue(call, 0)(full[:, top : top + out_h, left : left + out_w])

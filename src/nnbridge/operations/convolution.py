"""Convolutions: CONV_2D, DEPTHWISE_CONV_2D, GROUPED_CONV_2D, TRANSPOSE_CONV_2D.

Kernels see NHWC. What they share, sums of products and what follows them, is :mod:`nnbridge.operations.correlation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from nnbridge.errors import Reason
from nnbridge.model import Array
from nnbridge.operations import work
from nnbridge.operations.arithmetic import (
    is_quant8,
    product_scale,
)
from nnbridge.operations.call import Arg, Call
from nnbridge.operations.correlation import (
    Sum,
    WindowProduct,
    correlation,
    depthwise_sums,
    exact_dtype,
    operand_values,
    padded,
    patches,
    sum_dtype,
)
from nnbridge.operations.declaration import Input, Layout, Output, Signature, operation, rank, signature, types
from nnbridge.operations.epilogue import epilogue
from nnbridge.operations.kernels import Function, InPlace, prepared
from nnbridge.operations.numerics import current, real_product
from nnbridge.operations.shapes import Window, implicit_padding, positions, require_pixels, windows
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


def _output(call: Call, units: int) -> tuple[int, ...]:
    """The output's dimensions, with so many channels."""
    x, (_, height, width, _) = call["input"], call["filter"].dims
    _check_bias(call, units)
    require_pixels(call)
    return (x.dims[0], *positions(call, windows(call, x.dims[1], x.dims[2], height, width), "a filter"), units)


def _check_bias(call: Call, depth_out: int) -> None:
    call.require(call["bias"].dims == (depth_out,), f"a bias of [{depth_out}]", list(call["bias"].dims), "bias")


def _check_depth(call: Call) -> tuple[Arg, Arg]:
    """The data, and a filter as deep as it is."""
    x, w = call["input"], call["filter"]
    call.require(w.dims[3] == x.dims[3], f"a filter depth of {x.dims[3]}", w.dims[3], "filter")
    return x, w


def _conv_shape(call: Call) -> tuple[int, ...]:
    _, w = _check_depth(call)
    return _output(call, w.dims[0])


@operation(
    OperationCode.CONV_2D,
    since=1,
    summary="2-D convolution with bias and fused activation.",
    work=work.CONVOLUTION,
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
    return _output(call, w.dims[3])


@operation(
    OperationCode.DEPTHWISE_CONV_2D,
    since=1,
    summary="2-D convolution of each input channel with its own filters.",
    work=work.DEPTHWISE,
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
    return WindowProduct(dtype, lambda x, sums, *scratch: add_up(pad(x, *scratch), sums), buffers).then(call, finish)


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
    return _output(call, w.dims[0])


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
    work=work.CONVOLUTION,
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


def transpose_padding(call: Call) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Output height and width, then padding before and after of each; N22: SAME may leave a negative tail."""
    x, w = call["input"], call["filter"]
    strides = int(call.scalar("stride_h")), int(call.scalar("stride_w"))
    for stride, name in zip(strides, ("stride_h", "stride_w"), strict=True):
        call.require(stride > 0, "a stride of at least 1", stride, name)
    sizes = (w.dims[1], w.dims[2])
    pads = (_explicit_pads if call.get("padding") is None else _implicit_pads)(call, sizes, strides)
    size_h, size_w = ((x.dims[1 + k] - 1) * strides[k] + sizes[k] - sum(pads[k]) for k in range(2))
    return (size_h, size_w), pads[0], pads[1]


def _explicit_pads(call: Call, sizes: Sequence[int], strides: Sequence[int]) -> Sequence[tuple[int, int]]:
    """As Android checks them: they may exceed the filter, and those at the end may be negative, which enlarges the output."""
    top, bottom, left, right = (int(call.scalar(f"pad_{side}")) for side in ("top", "bottom", "left", "right"))
    for name, padding in (("pad_top", top), ("pad_left", left)):
        call.require(padding >= 0, "a padding of at least 0", padding, name)
    return (top, bottom), (left, right)


def _implicit_pads(call: Call, sizes: Sequence[int], strides: Sequence[int]) -> Sequence[tuple[int, int]]:
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
    return found


def _transpose_shape(call: Call) -> tuple[int, ...]:
    x, w = _check_depth(call)
    _check_bias(call, w.dims[0])
    require_pixels(call)
    size, _, _ = transpose_padding(call)
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
    work=work.transposed_convolution(),
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
    (out_h, out_w), (top, _), (left, _) = transpose_padding(call)
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

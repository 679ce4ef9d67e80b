"""Normalisation: L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION, INSTANCE_NORMALIZATION."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnbridge.model import Array
from nnbridge.operations.arithmetic import integer_range, is_quant8, rdbp
from nnbridge.operations.call import Call
from nnbridge.operations.correlation import exact_dtype
from nnbridge.operations.declaration import Input, Layout, Output, fixed, operation, rank, tensors, types
from nnbridge.operations.fixedpoint import inverse_sqrt_multiplier
from nnbridge.operations.kernels import Function, prepared
from nnbridge.operations.reshaping import UP_TO_4
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode

_AXIS = Input("axis", T.INT32, "axis, counted from the end if negative", default=-1)


def _short_form_level(call: Call) -> tuple[int, str] | None:
    """Without an axis, only rank 4 was known below level 3."""
    if len(call.args) in (1, 5) and call["input"].rank != 4:
        return 3, "a rank other than 4"
    return None


def _along_axis(call: Call) -> tuple[int, ...]:
    call.axis("axis", call["input"].rank)
    return call["input"].dims


@operation(
    OperationCode.L2_NORMALIZATION,
    since=1,
    summary="x / sqrt(sum of x squared), along an axis.",
    types=tensors(FLOAT32=1, FLOAT16=3, QUANT8_ASYMM=3, QUANT8_ASYMM_SIGNED=4),
    inputs=[UP_TO_4, _AXIS],
    counts={1: 1, 2: 3},
    outputs=[
        Output(
            "output",
            "T",
            "result; 8-bit parameters are fixed",
            fixed({T.TENSOR_QUANT8_ASYMM: (1 / 128, 128), T.TENSOR_QUANT8_ASYMM_SIGNED: (1 / 128, 0)}),
        )
    ],
    shape=_along_axis,
    level_rules=(_short_form_level,),
)
@prepared("input")
def l2_normalization(call: Call) -> Callable[[Array], Array]:
    """N80, N81."""
    x, axis, out = call["input"], call.axis("axis", call["input"].rank), call.out
    if not is_quant8(x.type):
        return _l2_real(axis)
    late = x.type == T.TENSOR_QUANT8_ASYMM_SIGNED and axis == x.rank - 1
    return _l2_quantised(axis, x.zero_point, out.zero_point, integer_range(out), late=late)


def _l2_real(axis: int) -> Callable[[Array], Array]:
    smallest = np.array(1e-6, np.float32)

    def normalise(x: Array) -> Array:
        # Each row against itself: the product keeps an axis of size 1 where the row was.
        rows = x.swapaxes(axis, -1)
        norms = np.matmul(rows[..., None, :], rows[..., None])[..., 0].swapaxes(axis, -1)
        return x / np.maximum(np.sqrt(norms, out=norms), smallest)

    return normalise


_BLOCK = 1 << 14
"""Values that are rescaled at a time: what stays in a core's cache in 64 bits."""


def _l2_quantised(
    axis: int, zero_point: int, out_zero_point: int, limits: tuple[int, int], *, late: bool
) -> Callable[[Array], Array]:
    """Differences are multiplied by 128, one over the output's scale, before the first rounding or, ``late``, after it: Android
    has TFLite's kernel for signed values along their last axis.
    """

    def normalise(x: Array) -> Array:
        last = x.swapaxes(axis, -1)
        rows, result = last.reshape(-1, last.shape[-1]), np.empty(last.shape, x.dtype)
        target = result.reshape(rows.shape)
        real: Array = rows.astype(exact_dtype(rows.shape[1]))
        real -= zero_point
        multiplier, shift = inverse_sqrt_multiplier(np.matmul(real[:, None, :], real[:, :, None])[..., 0])
        if late:  # The 128 are 7 bits to the left, which come first where the shift to the right is less.
            multiplier, second, first = multiplier << np.maximum(shift + 7, 0), np.maximum(-7 - shift, 0), 31
        else:  # The shift is never to the left; 7 of 31 bits are those of the 128.
            second, first = -shift, 24
        # Multipliers are below 0.18 * 2**31, but for sums below 128, whose differences are small: the first of the two roundings
        # leaves less than 2**13, which 14 bits or more shift to 0. 16 bits hold that and the half that is added.
        right = np.minimum(second, 14)
        count = max(1, _BLOCK // rows.shape[1])
        for start in range(0, len(rows), count):
            part = slice(start, start + count)
            product: Array = real[part].astype(np.int64)
            product *= multiplier[part]
            product += (1 << first) >> 1
            product >>= first
            scaled = rdbp(product.astype(np.int16), right[part])
            scaled += out_zero_point
            target[part] = scaled.clip(*limits)
        return result.swapaxes(axis, -1)

    return normalise


@operation(
    OperationCode.LOCAL_RESPONSE_NORMALIZATION,
    since=1,
    summary="x / (bias + alpha * sum of neighbours squared) ** beta, along an axis.",
    types=[types(1, T=T.TENSOR_FLOAT32, S=T.FLOAT32), types(3, T=T.TENSOR_FLOAT16, S=T.FLOAT16)],
    inputs=[
        UP_TO_4,
        Input("radius", T.INT32, "neighbours on either side, at least 0"),
        Input("bias", "S", "added to the sum"),
        Input("alpha", "S", "factor of the sum"),
        Input("beta", "S", "exponent"),
        _AXIS,
    ],
    counts={5: 1, 6: 3},
    outputs=[Output("output", "T", "result")],
    shape=_along_axis,
    level_rules=(_short_form_level,),
)
@prepared("input")
def local_response_normalization(call: Call) -> Function:
    """N83: the window is cut at the ends."""
    axis, radius = call.axis("axis", call["input"].rank), int(call.scalar("radius"))
    call.require(radius >= 0, "a radius of at least 0", radius, "radius")
    bias, alpha, beta = (np.float32(call.scalar(name)) for name in ("bias", "alpha", "beta"))

    def normalise(x: Array) -> Array:
        squares = np.moveaxis(np.square(x), axis, -1)
        # Neighbours are added one by one: differences of running sums would lose small values next to large ones.
        window = squares.copy()
        for away in range(1, min(radius + 1, squares.shape[-1])):
            window[..., away:] += squares[..., :-away]
            window[..., :-away] += squares[..., away:]
        return x * np.moveaxis(np.power(bias + alpha * window, -beta), -1, axis)

    return normalise


@operation(
    OperationCode.INSTANCE_NORMALIZATION,
    since=3,
    summary="gamma * (x - mean) / sqrt(variance + epsilon) + beta for each batch and channel.",
    types=[types(3, T=T.TENSOR_FLOAT32, S=T.FLOAT32), types(3, T=T.TENSOR_FLOAT16, S=T.FLOAT16)],
    inputs=[
        Input("input", "T", "images [batch, h, w, depth]", rank=rank(4)),
        Input("gamma", "S", "factor, one for all channels"),
        Input("beta", "S", "offset, one for all channels"),
        Input("epsilon", "S", "added to the variance"),
        Input("nchw", T.BOOL, "true: input 0 and the output are NCHW"),
    ],
    outputs=[Output("output", "T", "result")],
    shape=lambda call: call["input"].dims,
    layout=Layout(("input",)),
)
@prepared("input")
def instance_normalization(call: Call) -> Function:
    """N84, over height and width, with the population variance."""
    gamma, beta, epsilon = (np.float32(call.scalar(name)) for name in ("gamma", "beta", "epsilon"))

    def normalise(x: Array) -> Array:
        centred = x - x.mean(axis=(1, 2), keepdims=True)
        variance = np.square(centred).mean(axis=(1, 2), keepdims=True)
        return gamma * centred / np.sqrt(variance + epsilon) + beta

    return normalise

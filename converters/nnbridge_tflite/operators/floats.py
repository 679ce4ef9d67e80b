"""Float kernels that compute bit for bit what TFLite's reference kernels do: sums in their order, the C library's functions.

Recurrent operators, ELU, GELU and RFFT2D are not here: TFLite has only optimised kernels, whose sums follow the processor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from nnbridge_tflite.declaration import TfliteOperator
from nnbridge_tflite.host.numbers import (
    Arg,
    Array,
    Options,
    Tensors,
    activated,
    axes,
    bounded,
    data_of,
    first,
    integers,
    optional,
)
from nnbridge_tflite.host.ordered import ATAN2, COS, EXP, LOG, POW, SIN, TANH, dots, total
from nnbridge_tflite.host.windows import framed, positions, taps, windows
from nnbridge_tflite.operators import activations, arithmetic, convolution, elementwise, matmul, normalisation, reductions
from nnbridge_tflite.operators.reshaping import RANGE
from nnbridge_tflite.operators.resizing import RESIZE_BILINEAR, interpolated

_PATCHES = 2**22
"""Most elements that a convolution gathers at once."""
_ONE = np.float32(1)
_LOGISTIC_ENDS = np.float32(-9), np.float32(16.619047164916992)
"""Below: e^x; above: 1."""
_LEAST_NORM = np.float32(1e-6)


def _real(tensor: Arg) -> Array:
    if tensor.dtype != np.float32:
        raise ValueError(f"float32, found {tensor.dtype}")
    return data_of(tensor)


def _finite(tensor: Arg) -> Array:
    """Weights: products with padding are zeros."""
    found = _real(tensor)
    if not np.isfinite(found).all():
        raise ValueError("finite weights")
    return found


def _finished(sums: Array, inputs: Tensors, bias: int, options: Options) -> list[Array]:
    units = optional(inputs, bias)
    return [activated(sums if units is None else sums + _real(units), options).astype(np.float32, copy=False)]


# -- functions of elements -----------------------------------------------------------------------------------------------------


def _logistic(data: Array) -> Array:
    low, high = _LOGISTIC_ENDS
    inside = _ONE / (_ONE + EXP(-np.maximum(data, low)))
    return np.where(data > high, _ONE, np.where(data < low, EXP(np.minimum(data, low)), inside))


def _each(function: Callable[..., Array]) -> Callable[[Tensors, Tensors, Options], list[Array]]:
    return lambda inputs, outputs, options: [function(*map(_real, inputs))]


def _rounded(data: Array) -> Array:
    """Halves to even; what is rounded up to zero is +0."""
    return np.rint(data) + np.float32(0) if data.size else data


_FUNCTIONS: Mapping[TfliteOperator, Callable[..., Array]] = {
    activations.LOGISTIC: _logistic,
    activations.TANH: TANH,
    arithmetic.ATAN2: ATAN2,
    arithmetic.POW: POW,
    elementwise.COS: COS,
    elementwise.EXP: EXP,
    elementwise.LOG: LOG,
    elementwise.ROUND: _rounded,
    elementwise.SIN: SIN,
}
for _operator, _function in _FUNCTIONS.items():
    _operator.float_kernel(_each(_function))


# -- the last dimension --------------------------------------------------------------------------------------------------------


@activations.SOFTMAX.float_kernel
def softmax(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data = _real(inputs[0])
    powers = EXP((data - data.max(-1, keepdims=True)) * np.float32(options["beta"]))
    return [powers / total(powers)]


@activations.LOG_SOFTMAX.float_kernel
def log_softmax(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    moved = _real(inputs[0]) - data_of(inputs[0]).max(-1, keepdims=True)
    return [moved - LOG(total(EXP(moved)))]


@normalisation.L2_NORMALIZATION.float_kernel
def l2_normalization(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data = _real(inputs[0])
    return [data / np.maximum(np.sqrt(total(data * data)), _LEAST_NORM)]


@normalisation.LOCAL_RESPONSE_NORMALIZATION.float_kernel
def local_response_normalization(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The window leaves out its last channel, and the power is one of float64, as in TFLite."""
    data, radius = _real(inputs[0]), int(options["radius"])
    bias, alpha, beta = (float(options[name]) for name in ("bias", "alpha", "beta"))
    squares = data * data
    near = [total(squares[..., max(0, c - radius) : c + radius]) for c in range(data.shape[-1])]
    powers = (bias + alpha * np.concatenate(near, -1).astype(np.float64)) ** -beta
    return [data * powers.astype(np.float32)]


# -- reductions ----------------------------------------------------------------------------------------------------------------


def _reduced(inputs: Tensors, options: Options) -> tuple[Array, int]:
    """Sums over axes, whose elements are added in the order of the input, and how many there are in each."""
    data = _real(inputs[0])
    over = axes(inputs[1], data.ndim)
    count = math.prod(data.shape[a] for a in over)
    left = [d for a, d in enumerate(data.shape) if a not in over]
    sums = total(np.moveaxis(data, over, range(data.ndim - len(over), data.ndim)).reshape(*left, count))
    retained = [1 if a in over else d for a, d in enumerate(data.shape)]
    return sums.reshape(retained if options["keep_dims"] else left), count


@reductions.SUM.float_kernel
def sums(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    return [_reduced(inputs, options)[0]]


@reductions.MEAN.float_kernel
def means(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    found, count = _reduced(inputs, options)
    return [found / np.float32(count)]


@reductions.CUMSUM.float_kernel
def cumulative_sums(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, axis = _real(inputs[0]), integers(inputs[1])[0]
    terms = np.moveaxis(np.flip(data, axis) if options["reverse"] else data, axis, 0)
    terms = np.concatenate([np.zeros_like(terms[:1]), terms])
    running = np.add.accumulate(terms, 0, dtype=np.float32)
    found = np.moveaxis(running[:-1] if options["exclusive"] else running[1:], 0, axis)
    return [np.flip(found, axis) if options["reverse"] else found]


@RANGE.float_kernel
def arithmetic_sequence(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Each number is the one before plus the step."""
    start, limit, delta = (first(t) for t in inputs if _real(t).size)
    count = max(0, int(np.ceil(np.abs((limit - start) / delta))))
    bounded([count])
    terms = np.full(count, delta, np.float32)
    terms[:1] = start
    return [np.add.accumulate(terms)]


# -- sums of products ----------------------------------------------------------------------------------------------------------


@matmul.FULLY_CONNECTED.float_kernel
def fully_connected(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, weights = _real(inputs[0]), _real(inputs[1])
    if options["weights_format"] or weights.ndim != 2:
        raise ValueError("weights in default format, of rank 2")
    found = _finished(dots(data.reshape(-1, weights.shape[1]), weights.T), inputs, 2, options)
    return [found[0].reshape(*data.shape[:-1], len(weights)) if options["keep_num_dims"] else found[0]]


@matmul.BATCH_MATMUL.float_kernel
def batch_matmul(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    left, right = _real(inputs[0]), _real(inputs[1])
    left = np.swapaxes(left, -1, -2) if options["adj_x"] else left
    right = np.swapaxes(right, -1, -2) if options["adj_y"] else right
    stack = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    found = np.empty((*stack, left.shape[-2], right.shape[-1]), np.float32)
    lefts, rights = (np.broadcast_to(side, (*stack, *side.shape[-2:])) for side in (left, right))
    for place in np.ndindex(*stack):
        found[place] = dots(lefts[place], rights[place])
    return [found]


def _blocks(counts: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """Positions along each axis, in blocks of not more than so many."""
    sides: list[list[slice]] = []
    for count in reversed(counts):
        step = max(1, min(count, most))
        sides.insert(0, [slice(at, at + step) for at in range(0, count, step)])
        most //= step
    return product(*sides)


def _convolved(data: Array, weights: Array, options: Options) -> Array:
    """Sums over a sliding window; ``weights`` have the channels in and out last, of the former those of a group.

    Cells that see only padding add zeros and are passed over.
    """
    *size, depth, units = weights.shape
    window, groups = windows(data.shape[1:-1], size, options), data.shape[-1] // depth
    frame = framed(data, window)
    sums = np.zeros((len(data), *positions(data, window), units), np.float32)
    if frame is None:
        return sums
    cells, view = frame
    flat = weights[tuple(slice(seen.start, seen.stop) for seen in cells)].reshape(-1, groups, units // groups)
    for block in _blocks(sums.shape[1:-1], _PATCHES // (len(flat) * groups)):
        for image, found in zip(view, sums, strict=True):
            patches = np.moveaxis(image[block], len(cells), -1)
            parts = (patches[..., g * depth : (g + 1) * depth].reshape(-1, len(flat)) for g in range(groups))
            rows = np.concatenate([dots(part, flat[:, g]) for g, part in enumerate(parts)], 1)
            found[block] = rows.reshape(found[block].shape)
    return sums


@convolution.CONV_2D.float_kernel
def conv_2d(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    return _finished(_convolved(_real(inputs[0]), np.moveaxis(_finite(inputs[1]), 0, -1), options), inputs, 2, options)


@convolution.CONV_3D.float_kernel
def conv_3d(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    return _finished(_convolved(_real(inputs[0]), _finite(inputs[1]), options), inputs, 2, options)


@convolution.DEPTHWISE_CONV_2D.float_kernel
def depthwise_conv_2d(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, weights = _real(inputs[0]), _finite(inputs[1])
    each = weights[0].reshape(*weights.shape[1:3], data.shape[-1], -1)
    found: Array | float = np.float32(0)
    for cell, seen in taps(data, windows(data.shape[1:-1], weights.shape[1:3], options)):
        found = found + seen[..., np.newaxis] * each[cell]
    return _finished(np.asarray(found).reshape(*np.shape(found)[:3], weights.shape[3]), inputs, 2, options)


def _spread(inputs: Tensors, weights: Array, options: Options) -> Array:
    """The sums of a transposed convolution; ``weights`` have the channels out and in last."""
    data = _real(inputs[2])
    if weights.shape[-1] != data.shape[-1]:
        raise ValueError(f"weights for {data.shape[-1]} channels, found {weights.shape[-1]}")
    return convolution.spread(integers(inputs[0]), data, weights, options, ordered=True)


@convolution.TRANSPOSE_CONV.float_kernel
def transpose_conv(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    return _finished(_spread(inputs, np.moveaxis(_finite(inputs[1]), 0, 2), options), inputs, 3, options)


@convolution.CONV_3D_TRANSPOSE.float_kernel
def conv_3d_transpose(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    return _finished(_spread(inputs, _finite(inputs[1]), options), inputs, 3, options)


# -- images --------------------------------------------------------------------------------------------------------------------


@RESIZE_BILINEAR.float_kernel
def resize_bilinear(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    return [interpolated(inputs, _real(inputs[0]), options)]

"""Float kernels that compute bit for bit what TFLite's reference kernels do: sums in their order, the C library's functions.

Recurrent operators, ELU, GELU and RFFT2D are not here: TFLite has optimised kernels alone, whose sums follow the processor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from nnbridge.operations.shapes import implicit_padding
from nnbridge_tflite.declaration import TfliteOperator
from nnbridge_tflite.host.numbers import Array, HostTensor, Options, Tensors, activated, axes, bounded, data_of, first, integers
from nnbridge_tflite.host.ordered import ATAN2, COS, EXP, LOG, POW, SIN, TANH, dots, total
from nnbridge_tflite.operators import activations, arithmetic, convolution, elementwise, matmul, normalisation, reductions
from nnbridge_tflite.operators.reshaping import RANGE
from nnbridge_tflite.operators.resizing import RESIZE_BILINEAR

_AXES = {2: "hw", 3: "dhw"}
_ONE = np.float32(1)
_LOGISTIC_ENDS = np.float32(-9), np.float32(16.619047164916992)
"""Below: e^x; above: 1."""
_LEAST_NORM = np.float32(1e-6)


def _real(tensor: HostTensor) -> Array:
    if tensor.dtype != np.float32:
        raise ValueError(f"float32, found {tensor.dtype}")
    return data_of(tensor)


def _finite(tensor: HostTensor) -> Array:
    """Weights: products with padding are zeros."""
    found = _real(tensor)
    if not np.isfinite(found).all():
        raise ValueError("finite weights")
    return found


def _finished(sums: Array, inputs: Tensors, bias: int, options: Options) -> list[Array]:
    units = inputs[bias] if len(inputs) > bias and inputs[bias].data is not None else None
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


class _Step(NamedTuple):
    """A window along one side: its cells, how it moves and spreads, and the padding in front and behind."""

    cells: int
    stride: int
    dilation: int
    before: int
    after: int

    def reached(self, cell: int, positions: int) -> slice:
        """Where one cell lies at each position."""
        start = cell * self.dilation
        return slice(start, start + (positions - 1) * self.stride + 1, self.stride)

    def span(self, positions: int) -> int:
        """From the first cell of the first position to the last one of the last."""
        return (positions - 1) * self.stride + (self.cells - 1) * self.dilation + 1

    def positions(self, size: int) -> int:
        """How many there are in a padded side."""
        return (self.before + size + self.after - self.span(1)) // self.stride + 1


def _steps(sizes: Sequence[int], cells: Sequence[int], options: Options) -> list[_Step]:
    """The windows over height and width, or depth, height and width."""
    found = []
    for axis, size, window in zip(_AXES[len(cells)], sizes, cells, strict=True):
        stride, dilation = (max(int(options.get(name) or 1), 1) for name in (f"stride_{axis}", f"dilation_{axis}_factor"))
        padding = implicit_padding(size, window, stride, dilation, options["padding"] + 1)
        found.append(_Step(window, stride, dilation, *padding))
    return found


def _within(slices: Iterable[slice]) -> tuple[slice, ...]:
    """Slices of the sides, behind all of the batch."""
    return (slice(None), *slices)


def _seen(data: Array, steps: Sequence[_Step]) -> Iterator[Array]:
    """What each cell of the window sees at every position, in the order of cells; zeros outside of the data."""
    wide = np.pad(data, [(0, 0), *((step.before, step.after) for step in steps), (0, 0)])
    outs = [step.positions(size) for step, size in zip(steps, data.shape[1:-1], strict=True)]
    for cell in product(*(range(step.cells) for step in steps)):
        yield wide[_within(step.reached(c, out) for step, c, out in zip(steps, cell, outs, strict=True))]


def _convolved(data: Array, weights: Array, options: Options) -> Array:
    """Sums over a sliding window; ``weights`` have the channels in and out last, of the former those of a group."""
    cells, (depth, units) = weights.shape[:-2], weights.shape[-2:]
    steps, groups = _steps(data.shape[1:-1], cells, options), data.shape[-1] // depth
    flat = weights.reshape(-1, groups, units // groups)
    found = []
    for image in data[:, np.newaxis]:
        patches = np.stack(list(_seen(image, steps)), -2)
        shape = patches.shape[1:-2]
        parts = (patches[..., g * depth : (g + 1) * depth].reshape(-1, len(flat)) for g in range(groups))
        found.append(np.concatenate([dots(part, flat[:, g]) for g, part in enumerate(parts)], 1).reshape(*shape, units))
    return np.stack(found)


@convolution.CONV_2D.float_kernel
def conv_2d(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    return _finished(_convolved(_real(inputs[0]), np.moveaxis(_finite(inputs[1]), 0, -1), options), inputs, 2, options)


@convolution.CONV_3D.float_kernel
def conv_3d(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    return _finished(_convolved(_real(inputs[0]), _finite(inputs[1]), options), inputs, 2, options)


@convolution.DEPTHWISE_CONV_2D.float_kernel
def depthwise_conv_2d(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, weights = _real(inputs[0]), _finite(inputs[1])
    each = weights.reshape(-1, data.shape[-1], weights.shape[3] // data.shape[-1])
    found: Array | float = np.float32(0)
    for seen, factors in zip(_seen(data, _steps(data.shape[1:-1], weights.shape[1:3], options)), each, strict=True):
        found = found + seen[..., np.newaxis] * factors
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


def _between(size: int, out: int, options: Options) -> tuple[Array, Array, Array]:
    """The two pixels that each of ``out`` pixels lies between, and how far it is from the first."""
    aligned = bool(options["align_corners"]) and out > 1
    scale = np.float32(size - 1) / np.float32(out - 1) if aligned else np.float32(size) / np.float32(out)
    positions = np.arange(out, dtype=np.float32)
    half = np.float32(0.5)
    positions = (positions + half) * scale - half if options["half_pixel_centers"] else positions * scale
    low = np.maximum(np.floor(positions).astype(np.int32), 0)
    return low, np.minimum(np.ceil(positions).astype(np.int32), size - 1), positions - low.astype(np.float32)


@RESIZE_BILINEAR.float_kernel
def resize_bilinear(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, sizes = _real(inputs[0]), integers(inputs[1])
    bounded([data.shape[0], *sizes, *data.shape[3:]])
    (top, bottom, down), (left, right, along) = (_between(data.shape[1 + i], size, options) for i, size in enumerate(sizes))
    down, along = down[:, np.newaxis, np.newaxis], along[:, np.newaxis]
    found: Array | float = np.float32(0)
    for columns, across in ((left, _ONE - along), (right, along)):
        for rows, weight in ((top, _ONE - down), (bottom, down)):
            found = found + data[:, rows][:, :, columns] * weight * across
    return [np.asarray(found)]

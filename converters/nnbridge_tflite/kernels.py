"""NumPy kernels of TFLite operators: run by the host where NNAPI has none, and by the converter to fold constants.

A kernel takes :class:`~nnbridge.extensions.HostTensor` inputs and outputs and the operator's options, and gives the output
arrays. Quantised tensors are computed in real numbers and quantised again where :func:`stored` is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnbridge.extensions import HostKernel, HostTensor

Array: TypeAlias = npt.NDArray[Any]
Tensors: TypeAlias = Sequence[HostTensor]
Options: TypeAlias = Mapping[str, Any]

CHANNELS, PARAMETERS = "channel_quantisation", "quantisation"
"""Options with the parameters that an operand of an extension type cannot carry: for each channel, and for whole tensors."""

SCALARS = "scalars"
"""Option with the places of inputs that have no dimensions in TFLite."""

STATES = "states"
"""Option with the places of inputs that are states; what they become follows the operator's own outputs."""

KERNELS: dict[str, HostKernel] = {}
"""Operator name → kernel."""


def kernel(*names: str) -> Callable[[HostKernel], HostKernel]:
    """Register a kernel."""

    def register(function: HostKernel) -> HostKernel:
        KERNELS.update(dict.fromkeys(names, function))
        return function

    return register


def given(tensor: HostTensor) -> Array:
    """A tensor's array; an omitted one is refused, an empty constant is an empty array."""
    if tensor.data is not None:
        return tensor.data
    if 0 in tensor.dims:
        return np.zeros(tensor.dims, tensor.dtype)
    raise ValueError("a required input is missing")


def quantised(tensor: HostTensor) -> bool:
    """True for 8- and 16-bit integers that stand for real numbers."""
    return tensor.scale > 0 and tensor.dtype.kind in "iu" and tensor.dtype.itemsize <= 2


def real(tensor: HostTensor) -> Array:
    """A tensor's numbers; quantised ones as float32."""
    data = given(tensor)
    if not quantised(tensor):
        return data
    return (data.astype(np.int32) - tensor.zero_point).astype(np.float32) * np.float32(tensor.scale)


def stored(array: Array, out: HostTensor) -> Array:
    """Numbers as the output's elements: quantised, or converted."""
    if array.dtype.kind == "c" and out.dtype.kind != "c":
        raise ValueError(f"real numbers, found {array.dtype}")
    if not quantised(out):
        return array.astype(out.dtype, copy=False)
    limits = np.iinfo(str(out.dtype))
    scaled = array.astype(np.float64) / out.scale
    # Half away from zero, as TFLite rounds.
    rounded = np.trunc(scaled + np.copysign(0.5, scaled)) + out.zero_point
    return np.clip(rounded, limits.min, limits.max).astype(out.dtype)


ACTIVATIONS: Mapping[int, Callable[[Array], Array]] = {
    0: lambda a: a,
    1: lambda a: np.maximum(a, 0),
    2: lambda a: np.clip(a, -1, 1),
    3: lambda a: np.clip(a, 0, 6),
}
"""TFLite's fused activations by code."""


def activated(array: Array, options: Options) -> Array:
    """An array after the operator's fused activation."""
    return ACTIVATIONS[options.get("fused_activation_function") or 0](array)


def integers(tensor: HostTensor) -> list[int]:
    """A tensor's values as a flat list of integers."""
    array = given(tensor)
    if array.dtype.kind not in "biu":
        raise ValueError(f"integers, found {array.dtype}")
    return [int(v) for v in array.reshape(-1)]


def _sigmoid(a: Array) -> Array:
    return 1 / (1 + np.exp(-a))


def _gelu_tanh(a: Array) -> Array:
    return 0.5 * a * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3)))


UNARY: Mapping[str, Callable[[Array], Array]] = {
    "ABS": np.abs,
    "CEIL": np.ceil,
    "COMPLEX_ABS": np.abs,
    "COS": np.cos,
    "ELU": lambda a: np.where(a > 0, a, np.expm1(np.minimum(a, 0))),
    "EXP": np.exp,
    "FLOOR": np.floor,
    "HARD_SWISH": lambda a: a * np.clip(a + 3, 0, 6) / 6,
    "IMAG": np.imag,
    "LOG": np.log,
    "LOGICAL_NOT": np.logical_not,
    "LOGISTIC": _sigmoid,
    "NEG": np.negative,
    "REAL": np.real,
    "RELU": lambda a: np.maximum(a, 0),
    "RELU6": lambda a: np.clip(a, 0, 6),
    "RELU_0_TO_1": lambda a: np.clip(a, 0, 1),
    "RELU_N1_TO_1": lambda a: np.clip(a, -1, 1),
    "ROUND": np.rint,
    "RSQRT": lambda a: 1 / np.sqrt(a),
    "SIGN": np.sign,
    "SIN": np.sin,
    "SQRT": np.sqrt,
    "SQUARE": np.square,
    "TANH": np.tanh,
    "ZEROS_LIKE": np.zeros_like,
}

BINARY: Mapping[str, Callable[[Array, Array], Array]] = {
    "ADD": np.add,
    "ATAN2": np.arctan2,
    "BITWISE_XOR": np.bitwise_xor,
    "EQUAL": np.equal,
    "FLOOR_DIV": np.floor_divide,
    "FLOOR_MOD": np.mod,
    "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal,
    "LESS": np.less,
    "LESS_EQUAL": np.less_equal,
    "LOGICAL_AND": np.logical_and,
    "LOGICAL_OR": np.logical_or,
    "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
    "MUL": np.multiply,
    "NOT_EQUAL": np.not_equal,
    "POW": np.power,
    "RIGHT_SHIFT": np.right_shift,
    "SQUARED_DIFFERENCE": lambda a, b: np.square(a - b),
    "SUB": np.subtract,
}


AS_STORED = frozenset({"BITWISE_XOR", "FLOOR_DIV", "FLOOR_MOD", "NEG", "RIGHT_SHIFT"})
"""Operators that take integers as they are stored, whatever they stand for."""


def _unary(function: Callable[[Array], Array]) -> HostKernel:
    def run(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
        return [stored(function(real(inputs[0])), outputs[0])]

    return run


def _binary(function: Callable[[Array, Array], Array]) -> HostKernel:
    def run(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
        return [stored(activated(function(real(inputs[0]), real(inputs[1])), options), outputs[0])]

    return run


def _as_stored(function: Callable[..., Array]) -> HostKernel:
    def run(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
        return [function(*map(given, inputs))]

    return run


KERNELS.update({name: _unary(function) for name, function in UNARY.items()})
KERNELS.update({name: _binary(function) for name, function in BINARY.items()})
KERNELS.update({name: _as_stored(BINARY.get(name) or UNARY[name]) for name in AS_STORED})


@kernel("LOG")
def logarithm(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Natural logarithms; where there is none, quantised tensors hold the lowest number."""
    a = real(inputs[0])
    return [stored(np.where(a > 0, np.log(a), -np.inf) if quantised(outputs[0]) else np.log(a), outputs[0])]


@kernel("DIV")
def divide(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Division; integers are rounded towards zero."""
    a, b = real(inputs[0]), real(inputs[1])
    if a.dtype.kind in "iu":
        if (b == 0).any():
            raise ZeroDivisionError("division by zero")
        return [stored(np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)), outputs[0])]
    return [stored(activated(a / b, options), outputs[0])]


@kernel("GELU")
def gelu(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """GELU: by tanh, or exactly with the error function."""
    a = real(inputs[0])
    if options.get("approximate"):
        return [stored(_gelu_tanh(a), outputs[0])]
    return [stored(0.5 * a * (1 + _erf(a / np.sqrt(2))), outputs[0])]


def _erf(a: Array) -> Array:
    """The error function; NumPy has none."""
    return np.vectorize(math.erf, otypes=[np.float64])(a)


@kernel("LEAKY_RELU")
def leaky_relu(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """max(x, 0) + alpha · min(x, 0)."""
    a = real(inputs[0])
    return [stored(np.where(a >= 0, a, a * np.float32(options.get("alpha") or 0)), outputs[0])]


@kernel("PRELU")
def prelu(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """max(x, 0) + alpha · min(x, 0) with an alpha for each channel."""
    a, alpha = real(inputs[0]), real(inputs[1])
    return [stored(np.where(a >= 0, a, a * alpha), outputs[0])]


@kernel("ADD_N")
def add_n(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The sum of all inputs."""
    total = real(inputs[0])
    for tensor in inputs[1:]:
        total = total + real(tensor)
    return [stored(total, outputs[0])]


@kernel("CAST")
def cast(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """A change of element type; quantised numbers are taken as they are stored."""
    data, dtype = given(inputs[0]), outputs[0].dtype
    return [(data.real if data.dtype.kind == "c" and dtype.kind != "c" else data).astype(dtype)]


@kernel("DEQUANTIZE", "QUANTIZE")
def requantise(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The same numbers with other parameters, or with none."""
    channels = options.get(CHANNELS, {}).get("0")
    if channels is None:
        return [stored(real(inputs[0]), outputs[0])]
    data = given(inputs[0])
    shape = [1] * data.ndim
    shape[channels["axis"]] = -1
    centred = data.astype(np.float32) - np.asarray(channels["zero_points"], np.float32).reshape(shape)
    return [stored(centred * np.asarray(channels["scales"], np.float32).reshape(shape), outputs[0])]


@kernel("FAKE_QUANT")
def fake_quantised(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Numbers that so many bits hold between two limits, which are moved so that zero is one of them."""
    low, high = np.float32(options.get("min") or 0), np.float32(options.get("max") or 0)
    first, last = np.float32(bool(options.get("narrow_range"))), np.float32((1 << int(options.get("num_bits") or 0)) - 1)
    scale = (high - low) / (last - first)
    point = np.clip(np.floor(first - low / scale + np.float32(0.5)), first, last)
    nudged, top = (first - point) * scale, (last - point) * scale
    steps = (np.clip(real(inputs[0]), nudged, top) - nudged) * (np.float32(1) / scale)
    return [stored(np.trunc(steps + np.float32(0.5)) * scale + nudged, outputs[0])]


@kernel("DENSIFY")
def densify(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The input: sparse constants are expanded when the file is read."""
    return [given(inputs[0])]


@kernel("SOFTMAX", "LOG_SOFTMAX")
def softmax(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Softmax over the last dimension; with no beta, its logarithm."""
    a = real(inputs[0])
    shifted = (a - a.max(-1, keepdims=True)) * np.float32(options.get("beta", 1.0))
    total = np.exp(shifted).sum(-1, keepdims=True)
    return [stored(np.exp(shifted) / total if "beta" in options else shifted - np.log(total), outputs[0])]


def axes(tensor: HostTensor, rank: int) -> tuple[int, ...]:
    """A tensor of axes, counted from the front."""
    return tuple(sorted({a % rank for a in integers(tensor)})) if rank else ()


REDUCTIONS: Mapping[str, Callable[..., Array]] = {
    "REDUCE_ALL": np.all,
    "REDUCE_ANY": np.any,
    "REDUCE_MAX": np.max,
    "REDUCE_MIN": np.min,
    "REDUCE_PROD": np.prod,
    "SUM": np.sum,
}


def _reduction(function: Callable[..., Array]) -> HostKernel:
    def run(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
        a = real(inputs[0])
        reduced = function(a, axis=axes(inputs[1], a.ndim), keepdims=bool(options.get("keep_dims")))
        return [stored(np.asarray(reduced), outputs[0])]

    return run


KERNELS.update({name: _reduction(function) for name, function in REDUCTIONS.items()})


def _extreme(function: Callable[..., Array]) -> HostKernel:
    def run(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
        return [function(given(inputs[0]), axis=integers(inputs[1])[0])]

    return run


KERNELS.update({"ARG_MAX": _extreme(np.argmax), "ARG_MIN": _extreme(np.argmin)})


@kernel("TOPK_V2")
def top_k(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The largest values of the last dimension and where they are; of equal ones the first."""
    data, count = given(inputs[0]), integers(inputs[1])[0]
    order = np.argsort(-data.astype(np.float64), axis=-1, kind="stable")[..., :count]
    return [np.take_along_axis(data, order, -1), order.astype(np.int32)]


@kernel("CUMSUM")
def cumulative_sum(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Sums of prefixes."""
    data, axis = given(inputs[0]), integers(inputs[1])[0]
    turned = np.flip(data, axis) if options.get("reverse") else data
    sums = np.cumsum(turned, axis, dtype=data.dtype)
    if options.get("exclusive"):
        sums = sums - turned
    return [np.flip(sums, axis) if options.get("reverse") else sums]


@kernel("RFFT2D")
def rfft_2d(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The Fourier transform of real images, cut or padded to a length."""
    return [np.fft.rfft2(given(inputs[0]), s=integers(inputs[1])).astype(np.complex64)]


@kernel("BATCH_MATMUL")
def batch_matmul(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Matrix products of stacks."""
    a, b = real(inputs[0]), real(inputs[1])
    a = np.swapaxes(a, -1, -2) if options.get("adj_x") else a
    b = np.swapaxes(b, -1, -2) if options.get("adj_y") else b
    return [stored(np.matmul(a, b), outputs[0])]

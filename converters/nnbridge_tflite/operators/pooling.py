"""Reductions of sliding windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnbridge.converters.declaration import Option, lowers
from nnbridge.errors import Why
from nnbridge.operations.shapes import Window
from nnbridge.types import OperationCode
from nnbridge_tflite import dims
from nnbridge_tflite.declaration import FUSED, PADDING, STRIDES, TfliteOperator, inputs
from nnbridge_tflite.host.numbers import Arg, Array, Options, Tensors, data_of, first, half_away, integers
from nnbridge_tflite.host.sixteen_bits import centred, clamped
from nnbridge_tflite.host.windows import positions, taps, windows
from nnbridge_tflite.loads import (
    SAME,
    PreparedOperator,
    Sliding,
    alike,
    not_typed,
    positive,
    ranked,
    requires,
    sized,
    typed,
    windowed,
)
from nnbridge_tflite.lowerer import Lowerer
from nnbridge_tflite.operators.convolution import padding, strides
from nnbridge_tflite.rules import FLOAT, FLOAT_QUANT8, QUANT8, Condition, DelegateRule, OperatorView, first_type, from_level


def _check(node: OperatorView) -> None:
    node.require_ranks({0: 4})


def _windows(node: PreparedOperator) -> list[Sliding]:
    sides = zip(node.shape(0)[1:3], ("height", "width"), "hw", strict=True)
    return [(d, int(node.option(f"filter_{side}")), int(node.option(f"stride_{axis}")), 1) for d, side, axis in sides]


_WINDOWED = windowed(_windows, lenient=True)
_OPTIONS = (
    PADDING,
    *STRIDES,
    Option("filter_width", 0, "columns of the window", at_least=1),
    Option("filter_height", 0, "rows of the window", at_least=1),
    FUSED,
)
AVERAGE_POOL_2D = TfliteOperator(
    "AVERAGE_POOL_2D",
    "The mean of each window.",
    options=_OPTIONS,
    delegate=DelegateRule(
        version=2,
        types=FLOAT_QUANT8,
        conditions=(
            Condition(
                "a window of at most 256 elements for 8-bit tensors on NNAPI's CPU",
                lambda node: (
                    node.accelerated
                    or node.type(0) not in QUANT8
                    or node.option("filter_width") * node.option("filter_height") <= 256
                ),
                first_type,
                kind=Why.OPERAND_SIZE,
            ),
        ),
    ),
    check=_check,
    versions=(1, 3),
    loads=(ranked(0, 4), SAME, positive("stride_h", "stride_w"), _WINDOWED),
    dims=dims.pooled,
)


def _window(data: Arg, options: Options) -> list[Window]:
    return windows(data.dims[1:3], [int(options[f"filter_{side}"]) for side in ("height", "width")], options)


@AVERAGE_POOL_2D.kernel_16_bit
def average_pool_16_bit(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Means of what lies within the image, halves away from zero."""
    data = replace(inputs[0], zero_point=0)
    sums, counts = (
        sum(part for _, part in taps(values, _window(data, options))) for values in (centred(data), np.ones(data.dims))
    )
    return [clamped(half_away(np.asarray(sums / counts)), outputs[0], options)]


L2_POOL_2D = TfliteOperator(
    "L2_POOL_2D",
    "The root of each window's mean of squares.",
    options=_OPTIONS,
    delegate=DelegateRule(
        version=1,
        types=FLOAT,
        conditions=(from_level(3, "a fused activation", lambda node: node.option("fused_activation_function") == 0),),
    ),
    check=_check,
    loads=(ranked(0, 4), SAME, not_typed(0, "UINT8", "INT8"), positive("stride_h", "stride_w"), _WINDOWED),
    dims=dims.pooled,
)
MAX_POOL_2D = TfliteOperator(
    "MAX_POOL_2D",
    "The maximum of each window.",
    options=_OPTIONS,
    delegate=DelegateRule(version=2, types=FLOAT_QUANT8),
    check=_check,
    versions=(1, 3),
    loads=(ranked(0, 4), SAME, positive("stride_h", "stride_w"), _WINDOWED),
    dims=dims.pooled,
)


@MAX_POOL_2D.kernel_16_bit
def max_pool_16_bit(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The largest number of what lies within the image."""
    data, lowest = replace(inputs[0], zero_point=0), -(2**15)
    # Counted from the lowest number, so that the zeros of the padding are never above one of the image.
    largest = np.maximum.reduce([part for _, part in taps(centred(data) - lowest, _window(data, options))])
    return [clamped(largest + lowest, outputs[0], options)]


def _spread(node: PreparedOperator) -> list[int] | None:
    steps = node.words(1)
    return steps and [(d - 1) * step + 1 for d, step in zip(node.shape(0), steps, strict=True)]


def _reduced(node: PreparedOperator) -> list[int]:
    """The dimensions of what windows reduce."""
    sizes, steps, dilations = (node.numbers(i) or [] for i in (2, 3, 4))
    sides = zip(node.shape(0), sizes, steps, dilations, strict=False)
    return [0 if d < (w - 1) * b + 1 else int((d - (w - 1) * b - 1) / s) + 1 for d, w, s, b in sides]


DILATE = TfliteOperator(
    "DILATE",
    "Elements moved apart, a value in between.",
    inputs("input", "dilations", "padding_value"),
    dynamic_unless=(1,),
    dynamic_unless_stored=True,
    kernel=lambda inputs, outputs, options: [dilated(data_of(inputs[0]), integers(inputs[1]), first(inputs[2]))],
    loads=(ranked(0, 1, 0), SAME, alike(0, 2), sized(_spread)),
)
REDUCE_WINDOW = TfliteOperator(
    "REDUCE_WINDOW",
    "Windows of a shape, with strides and dilations, by the function that the options name.",
    inputs("input", "init_value", "window_shape", "window_strides", "window_dilations"),
    options=(Option("reduce_function", 0, "1 ADD, 2 MUL, 3 MINIMUM, 4 MAXIMUM, 5 ALL, 6 ANY"),),
    loads=(
        requires("reduce_function 0 to 6", lambda node: 0 <= node.option("reduce_function") < 7),
        requires("stored windows, strides and dilations", lambda node: all(one.data for one in node.there((2, 3, 4)))),
        SAME,
        alike(0, 1),
        *(typed(i, "INT64") for i in (2, 3, 4)),
        ranked(0, 1, 6),
        requires("strides that are not 0, without which LiteRT ends the process", lambda node: 0 not in (node.numbers(3) or ())),
        sized(_reduced),
    ),
)


@lowers(AVERAGE_POOL_2D, L2_POOL_2D, MAX_POOL_2D)
def pool(to: Lowerer) -> None:
    """The pooling of the same meaning with implicit padding."""
    window = (to.scalar(to.option("filter_width")), to.scalar(to.option("filter_height")))
    to.finish_fused(OperationCode[to.name], to.input(), padding(to), *strides(to), *window)


def dilated(data: Array, steps: Sequence[int], filler: Any) -> Array:
    """An array whose elements lie so many positions apart, with a value in between."""
    sizes = [(n - 1) * s + 1 if n else 0 for n, s in zip(data.shape, steps, strict=True)]
    made = np.full(sizes, filler, data.dtype)
    made[tuple(slice(None, None, s) for s in steps)] = data
    return made


WINDOW_FUNCTIONS: Mapping[int, Callable[..., Array]] = {
    1: np.add,
    2: np.multiply,
    3: np.minimum,
    4: np.maximum,
    5: np.logical_and,
    6: np.logical_or,
}
"""ReduceWindowFunction → what gathers a window."""


def windows_reduced(
    data: Array,
    first: Any,
    function: Callable[..., Array],
    shape: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Array:
    """One element for each window that is inside the array, gathered from a first value on."""
    window = [Window(*parts, 0, 0) for parts in zip(shape, strides, dilations, strict=True)]
    images = data[None, ..., None]
    total = np.full([max(n, 0) for n in positions(images, window)], first, data.dtype)
    if total.size:
        for _, part in taps(images, window):
            total = function(total, part[0, ..., 0]).astype(data.dtype, copy=False)
    return total


@REDUCE_WINDOW.host_kernel
def host_reduce_window(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    function = WINDOW_FUNCTIONS.get(options["reduce_function"])
    if function is None:
        raise ValueError(f"a reduction of {', '.join(map(str, WINDOW_FUNCTIONS))}, found {options.get('reduce_function')}")
    shape, strides, dilations = (integers(tensor) for tensor in inputs[2:5])
    return [windows_reduced(data_of(inputs[0]), first(inputs[1]), function, shape, strides, dilations)]

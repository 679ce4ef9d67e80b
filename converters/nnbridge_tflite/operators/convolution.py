"""Convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from nnbridge.converters.declaration import Option
from nnbridge.converters.mapping import MappingKind
from nnbridge.converters.rules import since, until
from nnbridge.errors import Stage, Why
from nnbridge.operations import work
from nnbridge.operations.arithmetic import mbqm
from nnbridge.operations.shapes import Window
from nnbridge.types import FLOATS, OperandCode, OperationCode, PaddingCode
from nnbridge_tflite import dims
from nnbridge_tflite.declaration import FUSED, PADDING, STRIDES, TfliteOperator, inputs
from nnbridge_tflite.host.codes import CHANNELS
from nnbridge_tflite.host.hybrid import biased, centred_asymmetric, scales, symmetric
from nnbridge_tflite.host.numbers import (
    Arg,
    Array,
    Options,
    Tensors,
    activated,
    bounded,
    data_of,
    integers,
    optional,
    quantised,
    real,
    stored,
)
from nnbridge_tflite.host.sixteen_bits import centred, finished
from nnbridge_tflite.host.windows import positions, taps, windows
from nnbridge_tflite.loads import (
    ACTIVATED,
    OUT,
    QUANTISED,
    REALS,
    SAME,
    Prepare,
    PreparedOperator,
    Sliding,
    affine,
    alike,
    bias_for_each,
    bias_scaled,
    bias_typed,
    channelled,
    no_zero_point,
    parameters,
    positive,
    ranked,
    requires,
    stated_bias,
    typed,
    windowed,
    zero_centred,
)
from nnbridge_tflite.lowerer import FLOAT32, INT32, Lowerer, Value, real_numbers
from nnbridge_tflite.rules import NO_OLD_HYBRID, OLD_PRODUCTS, Condition, DelegateRule, OperatorView, Past, constant, from_level

_STEPS_2D = ("stride_h", "stride_w", "dilation_h_factor", "dilation_w_factor")
_STEPS_3D = ("stride_d", "stride_h", "stride_w", "dilation_d_factor", "dilation_h_factor", "dilation_w_factor")
_BIAS_TYPES = {"FLOAT32": ("FLOAT32",), "UINT8": ("INT32",), "INT8": ("INT32",), "INT16": ("INT32", "INT64")}


def _grouped(node: PreparedOperator) -> bool:
    """True if the channels of input and weights fit, for all of them or in groups."""
    data, filter = node.shape(0), node.shape(1)
    if not all(data[1:]) or not all(filter):
        return False
    return data[3] % filter[3] == 0 and filter[0] % (data[3] // filter[3]) == 0


def _depthwise_weights(node: PreparedOperator) -> bool:
    data, filter = node.type(0), node.type(1)
    return (data, filter) == ("FLOAT32", "INT8") or filter == data or data == "INT16" or filter == "INT4"


def _hybrid_channels(node: PreparedOperator) -> bool:
    """True if 8-bit weights beside floats have a scale for each channel of their axis."""
    filter = node.at(1)
    if node.type(0) != "FLOAT32" or filter is None or filter.type.name != "INT8":
        return True
    return len(filter.quantisation.scales) == filter.shape[filter.quantisation.axis]


_GROUPS = requires("input channels in a multiple of the weights' channels", _grouped, kind=Why.OPERAND_SIZE)
_WITH_BIAS = requires("a bias", lambda node: node.at(2) is not None, lambda node: "none", Why.MISSING_OPERAND)
_SHORT_STEPS = requires(
    "strides and dilations of at most 32767",
    lambda node: max(int(node.option(name)) for name in _STEPS_2D) < 1 << 15,
    lambda node: tuple(node.option(name) for name in _STEPS_2D),
)
_NO_GAP = requires("a bias, or no third input", lambda node: -1 not in node.operator.inputs[2:], lambda node: "an omitted one")
_BIAS_CENTRED = no_zero_point("a bias with a zero point of 0", ("INT32", "INT64"), 2)
_DEPTHWISE_WEIGHTS = requires("weights of a type that goes with the input's", _depthwise_weights, kind=Why.INPUT_TYPE)
_MULTIPLIED = requires(
    "weights [1, height, width, a multiple of the input's channels]",
    lambda node: all(node.shape(0)[1:]) and all(node.shape(1)) and node.shape(1)[0] == 1
    and node.shape(1)[3] % node.shape(0)[3] == 0,
    kind=Why.OPERAND_SIZE,
)  # fmt: skip
_HYBRID_CHANNELS = requires("a scale for each channel of 8-bit weights beside floats", _hybrid_channels, kind=Why.HYBRID)
_TRANSPOSED = {"FLOAT32": ("FLOAT32", "INT8"), "UINT8": ("UINT8",), "INT8": ("INT8",), "INT16": ("INT8",)}
_TRANSPOSED_WEIGHTS = requires(
    "weights of a type that goes with the input's",
    lambda node: node.type(1) in _TRANSPOSED.get(node.type(2), ()),
    kind=Why.INPUT_TYPE,
)
_HYBRID_TRANSPOSED = requires(
    "8-bit weights beside floats with one scale, or one for each channel of their axis",
    lambda node: node.type(2) != "FLOAT32" or node.type(1) != "INT8" or bool(node.there((1,))[0].quantisation.scales),
    kind=Why.HYBRID,
)
_CHANNELS_FIT = requires(
    "weights with as many channels as the input", lambda node: node.shape(2)[3] == node.shape(1)[3] and all(node.shape(1)[:3]),
    kind=Why.OPERAND_SIZE,
)  # fmt: skip
_CHANNELS_3D = requires(
    "weights with as many channels as the input, and no empty dimension",
    lambda node: node.shape(0)[4] == node.shape(1)[3] and all((*node.shape(0)[1:], *node.shape(1))),
    kind=Why.OPERAND_SIZE,
)

_CHANNELS_TRANSPOSED_3D = requires(
    "weights with as many channels as the input, and no empty dimension",
    lambda node: node.shape(2)[4] == node.shape(1)[4] and all((*node.shape(2)[1:], *node.shape(1))),
    kind=Why.OPERAND_SIZE,
)


def _is_stored(node: PreparedOperator) -> bool:
    shape = node.at(0)
    return shape is not None and shape.data is not None


def _known_shape(node: PreparedOperator) -> list[int] | None:
    """The output shape where the kernel looks at it when it is prepared: that of two dimensions looks at no computed one."""
    return node.numbers(0) if _is_stored(node) or len(node.shape(1)) > 4 else None


def _reverses(node: PreparedOperator, of: int, weights: Sequence[int], axes: str) -> bool:
    """True if known output dimensions are those whose convolution has the input's."""
    stored, filter, same = _known_shape(node), [node.shape(1)[i] for i in weights], node.option("padding") == 0
    steps = [(int(node.option(f"stride_{axis}")), int(node.option(f"dilation_{axis}_factor") or 1)) for axis in axes]
    if stored is None:
        return True
    found = [dims.steps_of(d, f, *step, same=same) for d, f, step in zip(stored[1:-1], filter, steps, strict=True)]
    return found == list(node.shape(of)[1:-1])


def _over(weights: Sequence[int], axes: str, *, transposed: bool = False) -> Prepare:
    """The condition on windows over the input, or over the output whose shape is input 0."""

    def windows(node: PreparedOperator) -> list[Sliding] | None:
        sizes = _known_shape(node) if transposed else node.shape(0)
        filter = [node.shape(1)[i] for i in weights]
        steps = [(int(node.option(f"stride_{a}")), int(node.option(f"dilation_{a}_factor") or 1)) for a in axes]
        return None if sizes is None else [(d, f, *step) for d, f, step in zip(sizes[1:-1], filter, steps, strict=True)]

    return windowed(windows)


_REVERSED = requires(
    "an output shape whose convolution has the input's",
    lambda node: _reverses(node, 2, (1, 2), "hw"),
    lambda node: f"{node.numbers(0)} for {node.at(2)}",
    Why.OPERAND_SIZE,
)
_REVERSED_3D = requires(
    "an output shape whose convolution has the input's",
    lambda node: (
        (dims := node.numbers(0)) is None
        or (_reverses(node, 2, (0, 1, 2), "dhw") and dims[0] == node.shape(2)[0] and dims[4] == node.shape(1)[3])
    ),
    lambda node: f"{node.numbers(0)} for {node.at(2)}",
    Why.OPERAND_SIZE,
)


def _of_numbers(count: int) -> Prepare:
    return requires(f"an output shape of {count} numbers", lambda node: node.shape(0) == (count,), kind=Why.OPERAND_SIZE)


_STORED_INT32 = requires(
    "a stored output shape of INT32",
    lambda node: not _is_stored(node) or node.type(0) == "INT32",
    lambda node: node.type(0),
    Why.INPUT_TYPE,
)

DILATIONS = (
    Option("dilation_w_factor", 1, "columns between the filter's cells", at_least=1),
    Option("dilation_h_factor", 1, "rows between the filter's cells", at_least=1),
)
_BIAS_TYPE = Option("quantized_bias_type", 0, "element type of a quantised bias; the bias itself states it")
_DILATIONS_FROM_LEVEL_3 = from_level(
    3, "dilations", lambda node: all(node.operator.options.get(f"dilation_{a}_factor", 1) == 1 for a in "wh")
)


def _check(node: OperatorView) -> None:
    node.require_ranks({0: 4, 1: 4})
    node.require_weights(0, 1, 2)


def _check_transposed(node: OperatorView) -> None:
    node.require_ranks({1: 4, 2: 4})
    node.require_weights(2, 1, 3)
    batch = node.values.value(node.operator.inputs[2]).dims[0]
    shape = node.values.constant(node.operator.inputs[0])
    if shape is None:
        return  # The host reads it.
    listed = shape.reshape(-1).tolist()
    if len(listed) != 4 or listed[0] != batch or min(listed) <= 0:
        node.refuse(f"an output shape with the input's batch, {batch}", listed)


def _one_group(node: OperatorView) -> bool:
    data, filter = node.input(0), node.input(1)
    return data is None or filter is None or data.shape[3:] == filter.shape[3:]


def _one_scale(node: OperatorView) -> bool:
    filter = node.input(1)
    return filter is None or not filter.quantisation.per_channel


_ONE_GROUP = Condition(
    "one group: releases before 2.9 hand over groups as CONV_2D",
    _one_group,
    lambda node: str(node.input(1)),
    stage=Stage.RUNNING,
)
CONV_2D = TfliteOperator(
    "CONV_2D",
    "Products over a sliding window; fewer channels in the filter than in the data make groups.",
    inputs("input", "filter", "bias?"),
    options=(PADDING, *STRIDES, *DILATIONS, FUSED, _BIAS_TYPE),
    delegate=DelegateRule(
        version=5,
        conditions=(
            NO_OLD_HYBRID,
            *OLD_PRODUCTS,
            Condition("a bias", lambda node: node.input(2) is not None, lambda node: "none", kind=Why.MISSING_OPERAND),
            _DILATIONS_FROM_LEVEL_3,
            since("2.9", from_level(3, "groups", _one_group)),
            until("2.8", _ONE_GROUP),
            from_level(3, "a scale for each channel", _one_scale),
        ),
        past=(Past(until="2.6", version=3),),
    ),
    check=_check,
    work=work.CONVOLUTION,
    versions=(1, 8),
    loads=(
        ranked(0, 4),
        ranked(1, 4),
        _GROUPS,
        typed(0, *REALS),
        SAME,
        affine(("INT8", "INT16"), 1),
        no_zero_point("8-bit weights with zero points of 0", ("INT8",), 1, beside=("INT8", "INT16"), each=True),
        positive(*_STEPS_2D),
        _WITH_BIAS,
        bias_typed(2, 0, _BIAS_TYPES),
        _BIAS_CENTRED,
        bias_for_each(0),
        zero_centred(0, OUT),
        stated_bias(2),
        affine(QUANTISED, 0, 1),
        channelled(0),
        bias_scaled(),
        _over((1, 2), "hw"),
        ACTIVATED,
        _SHORT_STEPS,
    ),
    dims=dims.convolved,
)
DEPTHWISE_CONV_2D = TfliteOperator(
    "DEPTHWISE_CONV_2D",
    "Depthwise convolution.",
    CONV_2D.inputs,
    options=(
        *CONV_2D.options[:-1],
        Option("depth_multiplier", 0, "filters of each channel; follows from the channels, as in LiteRT"),
    ),
    delegate=DelegateRule(version=3, conditions=(*OLD_PRODUCTS, _DILATIONS_FROM_LEVEL_3)),
    check=_check,
    work=work.DEPTHWISE,
    versions=(1, 7),
    loads=(
        ranked(0, 4),
        ranked(1, 4),
        positive(*_STEPS_2D),
        typed(0, *REALS),
        SAME,
        _DEPTHWISE_WEIGHTS,
        zero_centred(0, OUT),
        _MULTIPLIED,
        bias_typed(2, 0, {"FLOAT32": ("FLOAT32",), "UINT8": ("INT32",), "INT8": ("INT32",), "INT16": ("INT64",)}),
        _BIAS_CENTRED,
        ranked(2, 1),
        bias_for_each(3),
        affine(QUANTISED, 0, 1),
        channelled(3),
        bias_scaled(),
        _HYBRID_CHANNELS,
        _over((1, 2), "hw"),
        _NO_GAP,
        ACTIVATED,
        _SHORT_STEPS,
    ),
    dims=dims.convolved_apart,
)
TRANSPOSE_CONV = TfliteOperator(
    "TRANSPOSE_CONV",
    "Each input cell spread over a window of the output.",
    inputs("output_shape!", "filter", "input", "bias?"),
    options=(PADDING, *STRIDES, FUSED, _BIAS_TYPE),
    delegate=DelegateRule(
        version=4,
        level=3,
        conditions=(constant(0, "output shape"), constant(1, "filter")),
        past=(Past(until="2.4", version=1), Past(until="2.5", version=2), Past(until="2.14", version=3)),
    ),
    check=_check_transposed,
    work=work.transposed_convolution(2),
    dynamic_unless_stored=True,
    versions=(1, 5),
    loads=(
        ranked(0, 1),
        ranked(2, 4),
        ranked(1, 4),
        positive("stride_h", "stride_w"),
        typed(2, *REALS),
        _TRANSPOSED_WEIGHTS,
        bias_typed(3, 2, _BIAS_TYPES),
        replace(
            no_zero_point("a bias with a zero point of 0", ("INT32", "INT64"), 3),
            holds=lambda node: node.type(2) == "UINT8" or not (one := node.there((3,))) or not parameters(one[0])[1],
        ),
        bias_for_each(0, number=3),
        zero_centred(2, OUT),
        alike(2, OUT),
        _CHANNELS_FIT,
        _STORED_INT32,
        _of_numbers(4),
        affine(QUANTISED, 2, 1, at=2),
        channelled(0, data=2),
        _HYBRID_TRANSPOSED,
        bias_scaled(2, 1, 3),
        _over((1, 2), "hw", transposed=True),
        _REVERSED,
        stated_bias(3, 2),
        ACTIVATED,
        _SHORT_STEPS,
    ),
    dims=dims.stated_by(0),
)
_DEPTH = (
    Option("stride_d", 1, "planes", at_least=1),
    Option("dilation_d_factor", 1, "planes between the filter's cells", at_least=1),
)
CONV_3D = TfliteOperator(
    "CONV_3D",
    "[batch, depth, height, width, channels] by a filter [depth, height, width, channels, units].",
    inputs("input", "filter", "bias?"),
    options=(*CONV_2D.options[:-1], *_DEPTH),
    work=work.MultiplyAdds(work.CONVOLUTION.text, lambda i, o, names: math.prod(o[0]) * math.prod(i[1][:4])),
    loads=(
        ranked(0, 5),
        ranked(1, 5),
        typed(0, "FLOAT32"),
        typed(1, "FLOAT32"),
        SAME,
        typed(2, "FLOAT32"),
        bias_for_each(4),
        _CHANNELS_3D,
        positive(*_STEPS_3D),
        _over((0, 1, 2), "dhw"),
    ),
    dims=dims.convolved_3d,
)
CONV_3D_TRANSPOSE = TfliteOperator(
    "CONV_3D_TRANSPOSE",
    "The gradient of CONV_3D: output shape, filter [depth, height, width, units, channels], data.",
    TRANSPOSE_CONV.inputs,
    options=CONV_3D.options,
    work=work.transposed_convolution(2, last=4),
    loads=(
        ranked(0, 1),
        _of_numbers(5),
        ranked(2, 5),
        ranked(1, 5),
        typed(2, "FLOAT32"),
        typed(1, "FLOAT32"),
        alike(2, OUT),
        typed(0, "INT32"),
        typed(3, "FLOAT32"),
        bias_for_each(3, number=3),
        _CHANNELS_TRANSPOSED_3D,
        positive(*_STEPS_3D),
        _over((0, 1, 2), "dhw", transposed=True),
        _REVERSED_3D,
    ),
    dims=dims.stated_by(0),
)

PADDINGS = (PaddingCode.SAME, PaddingCode.VALID)
"""TFLite's paddings by code."""


def padding(to: Lowerer) -> Value:
    """The operator's padding as NNAPI's scheme."""
    code = to.option("padding")
    to.require(code in (0, 1), "padding SAME or VALID", code)
    return to.scalar(PADDINGS[code])


def strides(to: Lowerer) -> tuple[Value, Value]:
    """Strides over width and height."""
    return to.scalar(to.option("stride_w")), to.scalar(to.option("stride_h"))


def dilations(to: Lowerer) -> tuple[Value, ...]:
    """NHWC flag and dilations over width and height, where they are not 1."""
    wide, high = to.option("dilation_w_factor"), to.option("dilation_h_factor")
    return () if (wide, high) == (1, 1) else (to.flag(False), to.scalar(wide), to.scalar(high))


def bias(to: Lowerer, i: int, data: Value, filter: Value, units: int) -> Value:
    """Input ``i``, or zeros: float, or int32 with the scale that NNAPI requires, data's times filter's."""
    if not to.has(i):
        to.draft.spend(units)
    if data.type in FLOATS:
        return to.input(i) if to.has(i) else to.tensor(np.zeros(units, np.dtype("f4" if data.type == FLOAT32 else "f2")), data)
    scale = 0.0 if filter.channel_quant is not None else float(np.float32(data.scale) * np.float32(filter.scale))
    if not to.has(i):
        return Value(INT32, (units,), scale=scale, data=np.zeros(units, np.int32))
    stated = to.input(i)
    to.require(stated.type == INT32, "an int32 bias", to.declared(i), stage=Stage.BUILDING)
    if stated.scale == scale and stated.zero_point == 0:
        return stated
    if stated.data is None:  # What is computed has the scale that it has.
        to.require_known(stated, f"a constant bias, or one with a scale of {scale:g}")
    return stated.scaled(scale)


def weights(to: Lowerer, i: int, data: Value) -> Value:
    """A filter; 8-bit weights of float activations become float32, which is the only copy of weights."""
    filter = to.input(i)
    if data.type not in FLOATS or filter.type in FLOATS:
        return filter
    to.require_known(filter, "constant weights for float activations")
    if not to.free:
        # The delegate adds a DEQUANTIZE only for these; other operations get the weights as they are, which NNAPI refuses.
        return _dequantised_at_run(to, filter) if to.name in ("CONV_2D", "FULLY_CONNECTED", "LSTM") else filter
    to.mapping = MappingKind.WIDE
    to.draft.spend(math.prod(filter.dims))
    return Value(FLOAT32, filter.dims, name=filter.name, data=real_numbers(filter))


def _dequantised_at_run(to: Lowerer, filter: Value) -> Value:
    """Dequantise hybrid weights as the delegate does: symmetric 8-bit after a DEQUANTIZE."""
    if filter.channel_quant is not None:
        return to.emit(OperationCode.DEQUANTIZE, filter, out=Value(FLOAT32, filter.dims))
    centred = filter.zero_point == 0
    to.require(centred, "symmetric weights", f"zero point {filter.zero_point}", filter.name, stage=Stage.BUILDING)
    stored = replace(filter, type=OperandCode.TENSOR_QUANT8_SYMM)
    return to.emit(OperationCode.DEQUANTIZE, stored, out=Value(FLOAT32, filter.dims))


@CONV_2D.lowering()
def conv_2d(to: Lowerer) -> None:
    """CONV_2D with implicit padding."""
    data = to.input(0)
    filter = weights(to, 1, data)
    to.require(filter.rank == 4 and data.rank == 4, "rank 4", [data.rank, filter.rank])
    units = bias(to, 2, data, filter, filter.dims[0])
    to.require(data.dims[3] == filter.dims[3], "one group", f"{data.dims[3]} channels, filters of {filter.dims[3]}")
    tail = dilations(to)
    to.finish_fused(OperationCode.CONV_2D, data, filter, units, padding(to), *strides(to), *tail, at=6)


@CONV_2D.lowering()
def grouped_conv_2d(to: Lowerer) -> None:
    """GROUPED_CONV_2D."""
    data = to.input(0)
    filter = weights(to, 1, data)
    to.require(filter.rank == 4 and data.rank == 4 and filter.dims[3] > 0, "rank 4", [data.rank, filter.rank])
    groups, rest = divmod(data.dims[3], filter.dims[3])
    to.require(rest == 0 and groups > 1 and not dilations(to), "undilated groups", groups)
    units = bias(to, 2, data, filter, filter.dims[0])
    inputs = (data, filter, units, padding(to), *strides(to), to.scalar(groups), to.flag(False))
    to.finish_fused(OperationCode.GROUPED_CONV_2D, *inputs, at=7)


@DEPTHWISE_CONV_2D.lowering()
def depthwise_conv_2d(to: Lowerer) -> None:
    """DEPTHWISE_CONV_2D; the multiplier follows from the channels, as in LiteRT."""
    data = to.input(0)
    filter = weights(to, 1, data)
    to.require(filter.rank == 4 and data.rank == 4 and data.dims[3] > 0, "rank 4", [data.rank, filter.rank])
    # The delegate passes no zeros in its place.
    to.require(to.free or to.has(2), "a bias", "none", kind=Why.MISSING_OPERAND, stage=Stage.BUILDING)
    units = bias(to, 2, data, filter, filter.dims[3])
    multiplier = to.scalar(filter.dims[3] // data.dims[3])
    tail = dilations(to)
    to.finish_fused(OperationCode.DEPTHWISE_CONV_2D, data, filter, units, padding(to), *strides(to), multiplier, *tail, at=7)


@TRANSPOSE_CONV.lowering()
def transpose_conv(to: Lowerer) -> None:
    """TRANSPOSE_CONV_2D: TFLite has the output shape first and the data third."""
    data = to.input(2)
    filter = weights(to, 1, data)
    shape = to.integers(0)
    to.require(filter.rank == 4 and len(shape) == 4, "rank 4", [filter.rank, len(shape)])
    units = bias(to, 3, data, filter, filter.dims[0])
    inputs = (data, filter, units, to.vector(shape), padding(to), *strides(to), to.flag(False))
    to.finish_fused(OperationCode.TRANSPOSE_CONV_2D, *inputs, at=7)
    # NNAPI computes dimensions that the data reaches; TFLite's may be larger, such as where strides are larger than filters.
    to.require(0 in to.out.dims or to.out.dims == tuple(shape), f"an output shape of {list(to.out.dims)}", shape)


def _convolved(data: Array, weights: Array, options: Options) -> Array:
    """Exact sums over a sliding window; fewer channels in the weights than in the data make groups."""
    units, *size, depth = weights.shape
    window, groups = windows(data.shape[1:3], size, options), data.shape[3] // depth
    sums, share = np.zeros((len(data), *positions(data, window), units)), units // groups
    for (y, x), part in taps(data, window):
        for group in range(groups):
            read, written = slice(group * depth, (group + 1) * depth), slice(group * share, (group + 1) * share)
            sums[..., written] += part[..., read] @ weights[written, y, x].T
    return sums


def _convolved_by_channel(data: Array, weights: Array, options: Options) -> Array:
    """Exact sums over a sliding window, each channel of the data with weights of its own."""
    _, *size, units = weights.shape
    window = windows(data.shape[1:3], size, options)
    sums = np.zeros((len(data), *positions(data, window), units))
    for cell, part in taps(np.repeat(data, units // data.shape[3], axis=3), window):
        sums += part * weights[0][cell]
    return sums


def _declare_kernels(declared: TfliteOperator, sums_of: Callable[[Array, Array, Options], Array]) -> None:
    """The kernels of 16-bit activations, and of float ones beside 8-bit weights."""

    @declared.kernel_16_bit
    def sixteen_bits(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
        sums = sums_of(centred(inputs[0]), centred(inputs[1]), options)
        return [finished(sums, inputs, (0, 1, 2), outputs[0], options)]

    @declared.hybrid_kernel
    def hybrid(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
        """Each image in steps of its own, which have no zero point in CONV_2D with one scale."""
        data, factors = data_of(inputs[0]), scales(inputs[1], 1, options)
        rows, convolution = data.reshape(data.shape[0], -1), declared is CONV_2D
        numbers, steps = symmetric(rows) if convolution and CHANNELS not in options else centred_asymmetric(rows)
        sums = sums_of(numbers.reshape(data.shape), centred(inputs[1]), options).astype(np.float32)
        images = steps.reshape(-1, 1, 1, 1)
        apart = convolution and CHANNELS in options
        return [biased(sums * factors * images if apart else sums * (factors * images), inputs, 2, options)]


_declare_kernels(CONV_2D, _convolved)
_declare_kernels(DEPTHWISE_CONV_2D, _convolved_by_channel)


def spread(shape: Sequence[int], data: Array, weights: Array, options: Options, *, ordered: bool = False) -> Array:
    """The sums of a transposed convolution with weights [..., units, depth], in the dimensions that are stated.

    ``ordered``: as TFLite adds what each cell of the data contributes, one after the other: an output's terms begin with the
    window's last cell.
    """
    *size, units, _ = weights.shape
    if len(shape) != data.ndim or (shape[0], shape[-1]) != (len(data), units):
        dims = ", ".join(("height", "width") if data.ndim == 4 else ("depth", "height", "width"))
        raise ValueError(f"an output shape of [{len(data)}, {dims}, {units}], found {list(shape)}")
    bounded(shape)
    window, counts = windows(shape[1:-1], size, options), data.shape[1:-1]
    total = np.zeros(shape, data.dtype)
    sides = [_landings(*side) for side in zip(window, counts, shape[1:-1], strict=True)]
    for landed in product(*(side[:: -1 if ordered else 1] for side in sides)):
        cell, read, written = zip(*landed, strict=True)
        inside, seen = (slice(None), *written), (slice(None), *read)
        reached, part, factors = total[inside], data[seen], weights[cell].T
        for terms in (part[..., k, np.newaxis] * row for k, row in enumerate(factors)) if ordered else (part @ factors,):
            reached += terms
    return total


def _landings(window: Window, count: int, length: int) -> list[tuple[int, slice, slice]]:
    """The cells of a window that are inside the output at some positions of the data: the cell, these positions, and where."""
    found = []
    for cell in range(window.size):
        offset = cell * window.dilation - window.before
        first, last = max(0, -(offset // window.stride)), min(count - 1, (length - 1 - offset) // window.stride)
        if first <= last:
            start, end = (offset + position * window.stride for position in (first, last))
            found.append((cell, slice(first, last + 1), slice(start, end + 1, window.stride)))
    return found


def _planes(inputs: Tensors, read: Callable[[Arg], Array], options: Options) -> Array:
    """The sums of TRANSPOSE_CONV, each input cell spread over a window of the output."""
    return spread(integers(inputs[0]), read(inputs[2]), np.moveaxis(read(inputs[1]), 0, 2), options)


@TRANSPOSE_CONV.kernel_16_bit
def transpose_conv_16_bit(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    return [finished(_planes(inputs, centred, options), inputs, (2, 1, 3), outputs[0], options)]


@TRANSPOSE_CONV.host_kernel
def host_transpose_conv(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """For output shapes that NNAPI's operation cannot have: floats, or 8-bit integers as TFLite's reference kernel computes."""
    if quantised(inputs[2]):
        return [finished(_planes(inputs, centred, options), inputs, (2, 1, 3), outputs[0], options, mbqm)]
    return _biased(_planes(inputs, real, options), inputs, 3, outputs[0], options)


def _biased(sums: Array, inputs: Tensors, place: int, out: Arg, options: Options) -> list[Array]:
    """Sums with the bias, if there is one, and the fused activation."""
    units = optional(inputs, place)
    return [stored(activated(sums if units is None else sums + real(units), options), out)]


@CONV_3D.host_kernel
def host_conv_3d(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, weights = real(inputs[0]), real(inputs[1])
    window = windows(data.shape[1:4], weights.shape[:3], options)
    total = np.zeros((len(data), *positions(data, window), weights.shape[4]), data.dtype)
    for cell, part in taps(data, window):
        total += part @ weights[cell]
    return _biased(total, inputs, 2, outputs[0], options)


@CONV_3D_TRANSPOSE.host_kernel
def host_conv_3d_transpose(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    return _biased(spread(integers(inputs[0]), real(inputs[2]), real(inputs[1]), options), inputs, 3, outputs[0], options)

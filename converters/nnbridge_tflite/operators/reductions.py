"""Reductions over axes, sums of prefixes and of segments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnbridge.converters.declaration import Option
from nnbridge.converters.folding import Folding
from nnbridge.converters.mapping import MappingKind
from nnbridge.converters.rules import since, until
from nnbridge.errors import Why
from nnbridge.operations.arithmetic import quantize_multiplier, saturate
from nnbridge.operations.integer_mean import IntegerMean
from nnbridge.types import QUANT8, OperandCode, OperationCode
from nnbridge_tflite import dims
from nnbridge_tflite.declaration import KEEP_DIMS, NO_MAPPING, TfliteOperator, inputs
from nnbridge_tflite.host.numbers import (
    Array,
    Options,
    Tensors,
    axes,
    centred_integers,
    data_of,
    half_away,
    integers,
    is_truth,
    quantised,
    real,
    stored,
)
from nnbridge_tflite.host.sixteen_bits import by_upper_bits
from nnbridge_tflite.loads import (
    OUT,
    PreparedOperator,
    constant_axes,
    if_known,
    ranked,
    requires,
    single,
    sized,
    typed,
    zero_centred,
)
from nnbridge_tflite.lowerer import FLOAT32, Lowerer, Value, through_float
from nnbridge_tflite.rules import (
    FLOAT,
    FLOAT_QUANT8,
    MOST_4,
    NO_SCALAR_OUT,
    OLD_FLOATS,
    Condition,
    DelegateRule,
    OperatorView,
    Past,
    first_type,
)

_REDUCED = ("FLOAT32", "UINT8", "INT8", "INT16", "INT32", "INT64", "BOOL")


def _segments_fit(node: PreparedOperator) -> bool:
    """True if known numbers of segments are those of the data's first dimensions, and below the count."""
    numbers, count = node.numbers(1), node.numbers(2)
    if numbers is None or count is None:
        return True
    first = node.shape(0)[: len(node.shape(1))]
    return first == node.shape(1) and len(count) == 1 and max(numbers, default=-1) < count[0]


def _segmented(node: PreparedOperator) -> list[int] | None:
    count = node.numbers(2)
    return count and node.numbers(1) and [*count, *node.shape(0)[len(node.shape(1)) :]]


def _segments_rise(node: PreparedOperator) -> bool:
    """True if known numbers of segments begin at 0 and rise by one at most, a number for each row."""
    numbers, data = node.numbers(1), node.at(0)
    if numbers is None or data is None or node.stored(data) is None:
        return True
    steps = [b - a for a, b in zip([0, *numbers], numbers, strict=False)]
    return len(node.shape(1)) == 1 and node.shape(1) == data.shape[:1] and steps[:1] != [1] and set(steps) <= {0, 1}


_AXES = (typed(1, "INT32"), typed(0, *_REDUCED), zero_centred(0, OUT), constant_axes(1, 0))
_TRUTHS = (typed(0, "BOOL"), typed(1, "INT32"), constant_axes(1, 0))
_SEGMENTS = (
    typed(0, "FLOAT32", "INT32"),
    typed(1, "INT32"),
    typed(2, "INT32"),
    requires("segments of the data's first dimensions, below the count", _segments_fit),
    sized(_segmented, most=1 << 31),
)
_SIGNED_PRODUCTS = requires(
    "INT8 or INT16 where there is a scale",
    lambda node: not node.inputs[0].quantisation.scales or node.type(0) in ("INT8", "INT16"),
    lambda node: node.type(0),
    Why.INPUT_TYPE,
)

_AS_STORED = (OperationCode.REDUCE_ALL, OperationCode.REDUCE_ANY, OperationCode.REDUCE_PROD, OperationCode.REDUCE_SUM)
"""Reductions whose integers do not go through floats: booleans, and sums and products, which TFLite rounds differently."""


def _reduction(
    name: str,
    summary: str,
    function: Callable[..., Array],
    code: OperationCode,
    delegate: DelegateRule | str = NO_MAPPING,
    **facts: Any,
) -> TfliteOperator:
    declared = TfliteOperator(
        name,
        summary,
        inputs("input", "axes!"),
        options=(KEEP_DIMS,),
        folding=Folding(),
        delegate=delegate,
        dims=dims.reduced,
        **facts,
    )

    @declared.lowering()
    def same(to: Lowerer) -> None:
        """The operation of the same meaning; its flag is a BOOL."""
        to.finish(code, to.input(), to.vector(_axes(to)), to.flag(to.option("keep_dims")))

    if code not in _AS_STORED:
        through_float(declared)

    @declared.host_kernel
    def kernel(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
        a = real(inputs[0])
        reduced = np.asarray(function(a, axis=axes(inputs[1], a.ndim), keepdims=bool(options["keep_dims"])))
        return [stored(reduced != 0 if is_truth(outputs[0]) else reduced, outputs[0])]

    return declared


def _same_parameters(node: OperatorView) -> bool:
    data, out = node.input(0), node.output()
    return data is None or (data.quantisation.scale, data.quantisation.zero_point) == (
        out.quantisation.scale,
        out.quantisation.zero_point,
    )


_ONE_SCALE = Condition(
    "one scale and zero point for input and output", _same_parameters, first_type, kind=Why.QUANTISATION_PARAMETERS
)
_EXTREME = DelegateRule(
    version=2,
    level=3,
    types=FLOAT_QUANT8,
    conditions=(
        since("2.4", Condition("an input that is not a scalar", lambda n: n.rank(0), lambda n: "a scalar", kind=Why.RANK)),
        until("2.3", NO_SCALAR_OUT),
    ),
    past=(Past(until="2.3", version=1, types=()),),
)
SUM = _reduction(
    "SUM",
    "Sums.",
    np.sum,
    OperationCode.REDUCE_SUM,
    DelegateRule(version=1, level=3, types=FLOAT, conditions=(NO_SCALAR_OUT,)),
    versions=(1, 2),
    loads=_AXES,
)
REDUCE_PROD = _reduction(
    "REDUCE_PROD",
    "Products.",
    np.prod,
    OperationCode.REDUCE_PROD,
    DelegateRule(version=1, level=3, types=FLOAT, conditions=(NO_SCALAR_OUT,)),
    versions=(1, 2),
    loads=(*_AXES, *if_known(1, _SIGNED_PRODUCTS)),
)
REDUCE_PROD.known_when_prepared = True
REDUCE_MAX = _reduction("REDUCE_MAX", "Maxima.", np.max, OperationCode.REDUCE_MAX, _EXTREME, versions=(1, 3), loads=_AXES)
REDUCE_MIN = _reduction("REDUCE_MIN", "Minima.", np.min, OperationCode.REDUCE_MIN, _EXTREME, versions=(1, 3), loads=_AXES)
REDUCE_ALL = _reduction("REDUCE_ALL", "Whether all are true.", np.all, OperationCode.REDUCE_ALL, loads=_TRUTHS)
REDUCE_ANY = _reduction(
    "REDUCE_ANY",
    "Whether one is true.",
    np.any,
    OperationCode.REDUCE_ANY,
    DelegateRule(version=2, level=3, conditions=(NO_SCALAR_OUT,), past=(Past(until="2.3", version=1),)),
    loads=_TRUTHS,
)
MEAN = TfliteOperator(
    "MEAN",
    "Means; of quantised numbers the sum times a multiplier that the count divides.",
    inputs("input", "axes!"),
    options=(KEEP_DIMS,),
    delegate=DelegateRule(
        version=2,
        level=2,
        types=FLOAT_QUANT8,
        conditions=(NO_SCALAR_OUT, OLD_FLOATS, since("2.12", MOST_4), until("2.6", _ONE_SCALE)),
    ),
    versions=(1, 3),
    loads=_AXES,
    dims=dims.reduced,
)
CUMSUM = TfliteOperator(
    "CUMSUM",
    "Sums of prefixes.",
    inputs("input", "axis"),
    options=(Option("exclusive", False, "without the element itself"), Option("reverse", False, "from the end")),
    folding=Folding(),
    loads=(typed(0, "FLOAT32", "INT32", "INT64"), typed(1, "INT32"), single(1), ranked(0, 1, 0)),
    dims=dims.like(),
)
SEGMENT_SUM = TfliteOperator(
    "SEGMENT_SUM",
    "Sums of the slices with one segment number.",
    inputs("data", "segment_ids"),
    data_dependent=True,
    dynamic_unless=(0, 1),
    loads=(
        typed(0, "FLOAT32", "INT32"),
        typed(1, "INT32"),
        requires("segments that rise from 0 by one, one for each row", _segments_rise),
    ),
)


def _segments(name: str, summary: str, function: Any, empty: Callable[[np.dtype[Any]], Any]) -> TfliteOperator:
    """``function`` gathers a segment's slices; an empty segment is ``empty`` of the element type."""
    declared = TfliteOperator(
        name, summary, inputs("data", "segment_ids", "count"), dynamic_unless=(1, 2), loads=_SEGMENTS, dims=dims.segments
    )

    @declared.host_kernel
    def kernel(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
        data, segments, count = data_of(inputs[0]), data_of(inputs[1]), integers(inputs[2])[0]
        flat = data.reshape(segments.size, *data.shape[segments.ndim :])
        result = np.full((count, *flat.shape[1:]), empty(data.dtype), data.dtype)
        listed = segments.reshape(-1) >= 0
        function.at(result, segments.reshape(-1)[listed], flat[listed])
        return [result]

    return declared


def _limits(dtype: np.dtype[Any]) -> Any:
    return np.finfo(str(dtype)) if dtype.kind == "f" else np.iinfo(str(dtype))


UNSORTED_SEGMENT_MAX = _segments("UNSORTED_SEGMENT_MAX", "Maxima by segment.", np.maximum, lambda d: _limits(d).min)
UNSORTED_SEGMENT_MIN = _segments("UNSORTED_SEGMENT_MIN", "Minima by segment.", np.minimum, lambda d: _limits(d).max)
UNSORTED_SEGMENT_PROD = _segments("UNSORTED_SEGMENT_PROD", "Products by segment.", np.multiply, lambda d: 1)
UNSORTED_SEGMENT_SUM = _segments("UNSORTED_SEGMENT_SUM", "Sums by segment.", np.add, lambda d: 0)


def _axes(to: Lowerer) -> list[int]:
    return sorted({to.axis(a, to.input(0).rank) for a in to.integers(1)})


def _reduced(to: Lowerer, axes: Sequence[int]) -> tuple[int, ...]:
    """The dimensions that a reduction leaves."""
    shape = to.shape(0)
    if to.option("keep_dims"):
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)


@MEAN.lowering()
def mean(to: Lowerer) -> None:
    """MEAN; its flag is an INT32."""
    data, axes = to.input(0), _axes(to)
    keep = to.scalar(bool(to.option("keep_dims")))
    truncates = data.type in QUANT8 and to.mapping != MappingKind.DELEGATE
    to.require(not truncates, "a float mean (NNAPI's 8-bit mean truncates, TFLite's rounds)", to.declared(0))
    same = data.type not in QUANT8 or (data.scale, data.zero_point) == (to.out.scale, to.out.zero_point)
    to.require(same or not to.free, "one scale and zero point for input and output", [data.scale, to.out.scale])
    if same:
        to.finish(OperationCode.MEAN, data, to.vector(axes), keep)
        return
    # The delegate adds zero to change parameters.
    result = to.emit(OperationCode.MEAN, data, to.vector(axes), keep, dims=_reduced(to, axes) or (1,))
    zero = data.like(dims=(1,), scale=1.0, zero_point=0)
    zero.data = np.zeros(1, np.int8 if data.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED else np.uint8)
    to.finish(OperationCode.ADD, result, zero)


@MEAN.prepared_kernel
def prepared_mean(inputs: Tensors, outputs: Tensors, options: Options) -> IntegerMean:
    if not (quantised(inputs[0]) and quantised(outputs[0])):
        raise ValueError("quantised numbers")
    return IntegerMean(inputs, outputs, axes(inputs[1], len(inputs[0].dims)), keep=bool(options["keep_dims"]))


@MEAN.host_kernel
@MEAN.kernel_16_bit
def host_mean(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The mean over axes."""
    data = inputs[0]
    if quantised(data) and quantised(outputs[0]):
        return prepared_mean(inputs, outputs, options)([data_of(data)])
    over = axes(inputs[1], len(data.dims))
    return [stored(np.asarray(np.mean(real(data), over, keepdims=bool(options["keep_dims"]))), outputs[0])]


@SUM.integer_kernel
def host_sum(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Sums of stored integers times the quotient of the scales, in float32 as TFLite has them."""
    data, out = inputs[0], outputs[0]
    over, keep = axes(inputs[1], len(data.dims)), bool(options["keep_dims"])
    sums = np.asarray(data_of(data).astype(np.int32).sum(over, keepdims=keep, dtype=np.int32)).astype(np.float32)
    scale = np.float32(data.scale) / np.float32(out.scale)
    bias = np.float32(-data.zero_point) * scale * np.float32(math.prod(data.dims[a] for a in over))
    return [saturate(half_away(sums * scale + bias).astype(np.int64) + out.zero_point, out.dtype)]


@REDUCE_PROD.integer_kernel
def host_product(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Rescaled after each factor by the input's scale over the n-th root of the output's, so that 32 bits hold it.

    What has no scale is no real number: its products wrap.
    """
    data, out = inputs[0], outputs[0]
    over, keep = axes(inputs[1], len(data.dims)), bool(options["keep_dims"])
    if not quantised(data):
        return [np.asarray(data_of(data).prod(over, keepdims=keep, dtype=data.dtype))]
    steps = centred_integers(data)
    rest = tuple(a for a in range(steps.ndim) if a not in over)
    factors = steps.transpose(*rest, *over).reshape(*(steps.shape[a] for a in rest), -1)
    multiplier, shift = map(np.int64, quantize_multiplier(float(data.scale) / float(out.scale) ** (1 / factors.shape[-1])))
    product = factors[..., 0]
    for k in range(1, factors.shape[-1]):
        product = by_upper_bits(product * factors[..., k], multiplier, shift)
    product = by_upper_bits(product, multiplier, shift) + out.zero_point
    found = saturate(product, out.dtype)
    return [np.expand_dims(found, over) if keep else found]


@CUMSUM.lowering(wide=True)
def cumulative_sum(to: Lowerer) -> None:
    """Sums of prefixes along the last dimension as a product with a triangular matrix of ones."""
    data = to.input(0)
    to.require(data.type == FLOAT32 and to.axis(to.integer(1), data.rank) == data.rank - 1, "float32, the last axis", data.dims)
    size = data.dims[-1]
    to.require(0 < size <= 512, "1 to 512 elements", size)
    ones = np.tri(size, k=-1 if to.option("exclusive") else 0, dtype=np.float32)
    matrix = to.tensor(np.ascontiguousarray(ones.T if to.option("reverse") else ones), data)
    nothing = to.tensor(np.zeros(size, np.float32), data)
    rows = math.prod(data.dims[:-1])
    flat = to.emit(OperationCode.FULLY_CONNECTED, data, matrix, nothing, to.scalar(0), out=Value(FLOAT32, (rows, size)))
    to.reshaped(flat, data.dims, out=to.out)


@CUMSUM.host_kernel
def host_cumulative_sum(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, axis = data_of(inputs[0]), integers(inputs[1])[0]
    data_in_order = np.flip(data, axis) if options["reverse"] else data
    sums = np.cumsum(data_in_order, axis, dtype=data.dtype)
    if options["exclusive"]:
        sums = sums - data_in_order
    return [np.flip(sums, axis) if options["reverse"] else sums]


@SEGMENT_SUM.host_kernel
def host_segment_sum(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, segments = data_of(inputs[0]), data_of(inputs[1])
    result = np.zeros((int(segments.max()) + 1 if segments.size else 0, *data.shape[1:]), data.dtype)
    np.add.at(result, segments, data)
    return [result]

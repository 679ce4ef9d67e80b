"""Work of a TFLite operator on an array of multipliers: a kind, output and input sides, kernel, bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from nnbridge.estimate.blocks import part_kernel
from nnbridge.model import Array
from nnbridge.records import dataclass
from nnbridge.source import SourceOperator, SourceTensor

Sides: TypeAlias = "tuple[int, int, int, int]"
FLAT = 8
"""Values with fewer channels are computed as if they had another shape, where the shape does not matter."""
TABLES = frozenset(
    ("LOGISTIC", "TANH", "HARD_SWISH", "EXP", "ELU", "GELU", "LOG", "RSQRT", "LEAKY_RELU", "ABS", "NEG", "SQRT", "PRELU")
)
"""Functions of one 8-bit value, looked up in a table."""
CLAMPS = frozenset(("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1"))
VIEWS = frozenset(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"))
PARTS = frozenset(("SLICE", "SPLIT", "SPLIT_V", "STRIDED_SLICE", "UNPACK"))
"""Operators whose outputs are parts of their input."""
JOINS = frozenset(("CONCATENATION", "PACK"))
RESIZES = ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
SUMS, EXTREMES = ("ADD", "SUB"), ("MAXIMUM", "MINIMUM")
OVERWRITES = TABLES | CLAMPS | frozenset((*SUMS, *EXTREMES, "MUL", "QUANTIZE"))
"""Operators that may write their output over an input."""


@dataclass(frozen=True)
class Work:
    """One operator's work. Sides are batch, height, width, channels."""

    kind: str
    out: Sides
    channels: int = 0
    """Input channels of one output element."""
    kernel: tuple[int, int] = (1, 1)
    element_bytes: int = 1
    inputs: tuple[Sides, ...] = ()
    """Sides of the inputs that are computed."""
    stride: int = 1
    weight_bytes: int = 0
    encoded_bytes: int = 0
    """Of weights, as a Rice code with the best parameter stores them."""
    macs: int = 0
    form: str = ""
    """Within the kind: ``add``, ``mul``, ``other`` of elementwise operators; ``bilinear``, ``half pixel``, ``nearest``,
    ``one pixel`` of resizing; ``arg_max`` of a walk."""
    plain: tuple[bool, ...] = ()
    """For each input, then the output: stored as it is, as what the CPU reads or writes."""
    parts: tuple[Sides, ...] = ()
    """Of a copy: sides of the parts that are copied."""
    dilation: int = 1
    """Between elements of the kernel."""
    constants: int = 0
    """Of an elementwise operator: inputs that are constant and no scalars."""
    broadcast: bool = False
    """None of its inputs has the output's sides."""
    steps: int = 1
    """Repetitions: time steps of a recurrent operator."""


def sides(shape: tuple[int, ...]) -> Sides:
    """A shape as batch, height, width and channels; what is above rank 4 counts as batch."""
    padded = (1,) * (4 - len(shape)) + tuple(shape)
    return math.prod(padded[:-3]), padded[-3], padded[-2], padded[-1]


CODES, RUN_CODES = 6, 4
"""Parameters of the Rice codes of weights, and of runs of zeros."""
PALETTE = 32
"""Values that may come first; each takes a byte at the start."""
ENCODER_BYTES = 8
"""At the start and end of a stream of weights."""
Runs: TypeAlias = tuple[tuple[int, int], ...]
"""Runs of zeros that fill the steps of an array: lengths, each with the number of runs."""


def encoded_bytes(tensor: SourceTensor, runs: Runs = ()) -> int:
    """Bytes of a constant's integers in a Rice code, of the parameter that needs least.

    Zeros are weights of their own, or there is a second Rice code: the number of zeros after each weight that is none.
    """
    if tensor.value is None or not tensor.elements:
        return 0
    zero = tensor.zero_points[0] if tensor.zero_points else 0
    values = np.asarray(tensor.value).reshape(-1).astype(np.int64) - zero
    counts = np.bincount(2 * np.abs(values) - (values < 0))
    padded = np.append(counts[:1] + sum(length * number for length, number in runs), counts[1:])
    lengths = ((1, int(counts[0])), *runs)
    others = max(0, values.size - int(counts[0]) - sum(number for _, number in lengths))
    after = min(sum(number * (1 + k + (length >> k)) for length, number in ((0, others), *lengths)) for k in range(RUN_CODES))
    bits = min(_rice(padded), _rice(counts[1:]) + after)
    return ENCODER_BYTES + int(bits + 7) // 8


def _rice(counts: Array) -> int:
    """Bits of symbols, by how often each occurs. The most frequent ones come first if they are more than half of all."""
    palette = np.argsort(-counts, kind="stable")[:PALETTE]
    bits = 0
    if 2 * counts[palette].sum() > counts.sum():
        rest = counts.copy()
        rest[palette] = 0
        bits = 8 * int(np.count_nonzero(counts[palette]))
        counts = np.concatenate((counts[palette], rest))
    symbols = np.arange(len(counts))
    return bits + int(min((counts * (1 + k + (symbols >> k))).sum() for k in range(CODES)))


def work_of(operator: SourceOperator) -> Work | None:
    """An operator's work; None where no formula is known."""
    rule = _RULES.get(operator.name)
    return None if rule is None or not operator.outputs or not operator.inputs else rule(operator)


def _maps(operator: SourceOperator) -> tuple[Sides, ...]:
    return tuple(sides(t.shape) for t in operator.computed)


def _stride(operator: SourceOperator) -> int:
    return max(1, int(operator.options.get("stride_h") or 1))


def _dilation(operator: SourceOperator) -> int:
    return max(1, int(operator.options.get("dilation_h_factor") or 1))


def _weights(*tensors: SourceTensor | None, runs: Runs = ()) -> tuple[int, int]:
    """Bytes of constants, plain and encoded; ``runs``: the zeros between them."""
    found = [t for t in tensors if t is not None and t.constant]
    return sum(t.bytes for t in found), sum(encoded_bytes(t, runs) for t in found)


def _in_steps(elements: int, channels: int, units: int, by_part: bool = True, depthwise: bool = False) -> Runs:
    """The zeros that fill the steps: 8 output and 8 input channels, and 4 elements of the kernel where several are taken at once,
    or 32 input channels."""
    groups, lines = -(-units // FLAT), 1 if depthwise else -(-channels // FLAT)
    row = 1 if depthwise else FLAT
    runs = [] if depthwise or channels % FLAT == 0 else [(-channels % FLAT, units * elements)]
    if units % FLAT:
        runs.append((-units % FLAT * row, elements * lines))
    if by_part and elements % 4:
        runs.append((-elements % 4 * FLAT * row, groups * lines))
    elif not by_part and lines % 4:
        runs.append((-lines % 4 * FLAT * row, groups * elements))
    return tuple(runs)


def _first(operator: SourceOperator) -> SourceTensor:
    return next(t for t in operator.inputs if t is not None)


def _element(operator: SourceOperator) -> int:
    return max(1, operator.outputs[0].bits // 8)


def _conv(operator: SourceOperator, data: int = 0) -> Work | None:
    source, filter = operator.input(data), operator.input(1)
    if source is None or filter is None or len(filter.shape) != 4:
        return None
    out, channels = sides(operator.outputs[0].shape), filter.shape[3]
    kernel = filter.shape[1], filter.shape[2]
    bits = max(1, source.bits // 8)
    macs = math.prod(out) * channels * math.prod(kernel)
    maps, stride = _maps(operator), _stride(operator)
    weights = _weights(filter, runs=_in_steps(math.prod(kernel), channels, out[3], part_kernel(channels, kernel, bits)))
    return Work("conv", out, channels, kernel, bits, maps, stride, *weights, macs, dilation=_dilation(operator))


def _transpose_conv(operator: SourceOperator) -> Work | None:
    """A convolution over the input with zeros between its pixels."""
    return _conv(operator, 2)


def _depthwise(operator: SourceOperator) -> Work | None:
    source, filter = operator.input(0), operator.input(1)
    if source is None or filter is None or len(filter.shape) != 4:
        return None
    out, kernel = sides(operator.outputs[0].shape), (filter.shape[1], filter.shape[2])
    kind = "conv" if source.shape and source.shape[-1] == 1 else "depthwise"
    bits, macs = max(1, source.bits // 8), math.prod(out) * math.prod(kernel)
    maps, stride = _maps(operator), _stride(operator)
    weights = _weights(filter, runs=_in_steps(math.prod(kernel), 1, out[3], depthwise=kind == "depthwise"))
    return Work(kind, out, 1, kernel, bits, maps, stride, *weights, macs, dilation=_dilation(operator))


def _fully_connected(operator: SourceOperator) -> Work | None:
    weights = operator.input(1)
    if weights is None or len(weights.shape) < 2:
        return None
    units, channels = weights.shape[0], weights.shape[-1]
    rows = max(1, operator.outputs[0].elements // max(units, 1))
    out = (1, 1, rows, units)
    maps = ((1, 1, rows, channels),)
    macs = rows * units * channels
    return Work(
        "fully_connected",
        out,
        channels,
        (1, 1),
        _element(operator),
        maps,
        1,
        *_weights(weights, runs=_in_steps(1, channels, units, False)),
        macs,
    )


def _pool(operator: SourceOperator) -> Work:
    kernel = int(operator.options["filter_height"]), int(operator.options["filter_width"])
    out = sides(operator.outputs[0].shape)
    macs = math.prod(out) * math.prod(kernel)
    return Work("pool", out, 1, kernel, _element(operator), _maps(operator), _stride(operator), macs=macs, form=operator.name)


def _mean(operator: SourceOperator) -> Work | None:
    axes = operator.input(1)
    if axes is None or axes.value is None:
        return None
    source = _first(operator).shape
    reduced = {int(a) % max(len(source), 1) for a in np.atleast_1d(axes.value)}
    count = math.prod(source[a] for a in reduced)
    out = sides(tuple(1 if a in reduced else d for a, d in enumerate(source)))
    return Work("mean", out, 1, (1, count), _element(operator), _maps(operator), macs=math.prod(source))


def _walk(operator: SourceOperator) -> Work:
    return Work("walk", sides(operator.outputs[0].shape), 1, (1, 1), _element(operator), _maps(operator), form=operator.name)


def _arg_max(operator: SourceOperator) -> Work:
    return Work("walk", sides(_first(operator).shape), 1, (1, 1), _element(operator), _maps(operator), form="arg_max")


def _copy(operator: SourceOperator) -> Work:
    moved = operator.computed if operator.name in JOINS else operator.outputs
    out, parts = sides(operator.outputs[0].shape), tuple(sides(t.shape) for t in moved)
    return Work("copy", out, 1, (1, 1), _element(operator), _maps(operator), form=operator.name, parts=parts)


def _view(operator: SourceOperator) -> Work:
    return Work("view", sides(operator.outputs[0].shape))


def _resize(operator: SourceOperator) -> Work:
    source, out = sides(_first(operator).shape), sides(operator.outputs[0].shape)
    factor = max(out[1] // max(source[1], 1), out[2] // max(source[2], 1), 1)
    form = "nearest" if operator.name == "RESIZE_NEAREST_NEIGHBOR" else "bilinear"
    if source[1] == source[2] == 1:
        form = "one pixel"
    elif form == "bilinear" and operator.options.get("half_pixel_centers"):
        form = "half pixel"
    return Work("resize", out, 1, (factor, factor), _element(operator), _maps(operator), form=form)


def _elementwise(form: str) -> Callable[[SourceOperator], Work]:
    def rule(operator: SourceOperator) -> Work:
        out = sides(operator.outputs[0].shape)
        alike = all(t is not None and t.shape in ((), (1,), operator.outputs[0].shape) for t in operator.inputs)
        if alike and (out[3] < FLAT or any(t is not None and t.elements == 1 for t in operator.inputs)):
            # Where the shape does not matter, few channels are no loss: the value is one long row.
            out = (1, 1, 1, math.prod(out))
        full = [t for t in operator.inputs if t is not None and t.shape == operator.outputs[0].shape]
        constants = sum(t is not None and t.constant and t.elements > 1 for t in operator.inputs)
        maps, single = _maps(operator), any(t is not None and t.elements == 1 for t in operator.inputs)
        broadcast = not full and not single and len(operator.inputs) > 1
        bits = _element(operator)
        return Work("elementwise", out, 1, (1, 1), bits, maps, form=form, constants=constants, broadcast=broadcast)

    return rule


def _softmax(operator: SourceOperator) -> Work:
    return Work("softmax", sides(operator.outputs[0].shape), 1, (1, 1), _element(operator), _maps(operator))


def _lstm(operator: SourceOperator) -> Work | None:
    """Gates over ``steps`` time steps: each multiplies the input and the state."""
    source, recurrent = operator.input(0), operator.input(8)
    if source is None or recurrent is None or len(source.shape) != 3:
        return None
    units, channels = recurrent.shape[0], source.shape[-1]
    steps, batch = source.shape[1], source.shape[0]
    if operator.options.get("time_major"):
        steps, batch = batch, steps
    weights = _weights(*operator.inputs[1:9])
    macs = steps * batch * 4 * units * (channels + units)
    out, maps = (1, 1, batch, units), ((1, 1, batch, channels),)
    return Work("lstm", out, channels, (1, 1), _element(operator), maps, 1, *weights, macs, steps=steps)


_RULES: Mapping[str, Callable[[SourceOperator], Work | None]] = {
    "CONV_2D": _conv,
    "TRANSPOSE_CONV": _transpose_conv,
    "DEPTHWISE_CONV_2D": _depthwise,
    "FULLY_CONNECTED": _fully_connected,
    "AVERAGE_POOL_2D": _pool,
    "MAX_POOL_2D": _pool,
    "MEAN": _mean,
    "ARG_MAX": _arg_max,
    **dict.fromkeys(RESIZES, _resize),
    "SOFTMAX": _softmax,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
    **dict.fromkeys(SUMS, _elementwise("add")),
    "MUL": _elementwise("mul"),
    **dict.fromkeys(EXTREMES, _elementwise("other")),
    **dict.fromkeys(("QUANTIZE", *TABLES, *CLAMPS), _walk),
    **dict.fromkeys(VIEWS, _view),
    **dict.fromkeys((*PARTS, *JOINS, "PAD", "PADV2", "MIRROR_PAD", "TILE", "TRANSPOSE", "REVERSE_V2"), _copy),
}

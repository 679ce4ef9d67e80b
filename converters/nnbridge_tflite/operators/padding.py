"""Padding."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnbridge.converters.declaration import Lowering, Option
from nnbridge.converters.folding import Folding
from nnbridge.types import QUANT8, OperationCode
from nnbridge_tflite import dims
from nnbridge_tflite.declaration import TfliteOperator, inputs
from nnbridge_tflite.host.numbers import Array, Options, Tensors, bounded, data_of, first, padding_pairs
from nnbridge_tflite.loads import (
    INDEXES,
    OUT,
    QUANTISED,
    SAME,
    PreparedOperator,
    alike,
    ranked,
    requires,
    rows_per_dimension,
    same_parameters,
    single,
    sized,
    typed,
    zero_centred,
)
from nnbridge_tflite.lowerer import Lowerer, Value
from nnbridge_tflite.rules import FLOAT_QUANT8, NO_EMPTY, NUMBERS, OLD_FLOATS, DelegateRule


def _reflects(node: PreparedOperator) -> bool:
    """True if no padding is longer than what it repeats."""
    numbers, shape = node.numbers(1), node.shape(0)
    ends = [d - (node.option("mode") == 0) for d in shape for _ in range(2)]
    return numbers is None or all(0 <= n <= end for n, end in zip(numbers, ends, strict=True))


_REFLECTED = requires("paddings within the input's dimensions", _reflects, lambda node: f"{node.numbers(1)} for {node.at(0)}")
_NOT_NEGATIVE = requires(
    "paddings of 0 at least, below 2^31",
    lambda node: all(0 <= one < 1 << 31 for one in node.numbers(1) or ()),
    lambda node: str(node.numbers(1)),
)


def _padded_elements(data: Array, paddings: Array) -> float:
    widths = paddings.reshape(-1, 2).sum(-1).tolist()
    return math.prod(d + abs(int(w)) for d, w in zip(data.shape, widths, strict=False))


def _with_padding(node: PreparedOperator) -> list[int] | None:
    ends = node.numbers(1)
    return ends and [d + ends[2 * i] + ends[2 * i + 1] for i, d in enumerate(node.shape(0))]


_PADDED = (
    rows_per_dimension(1, 0),
    SAME,
    alike(0, 2),
    single(2),
    ranked(0, 0, 8),
    typed(1, "INT32", "INT64", "INT8", "INT16", "BOOL"),
    _NOT_NEGATIVE,
    sized(_with_padding),
)
"""Input 2, the value, is PADV2's."""
PAD = TfliteOperator(
    "PAD",
    "Padded with zeros.",
    inputs("input", "paddings!"),
    folding=Folding(_padded_elements, moves_only=True),
    delegate=DelegateRule(version=2, level=2, types=FLOAT_QUANT8, conditions=(OLD_FLOATS, NO_EMPTY)),
    lowerings=[Lowering(lambda to: to.finish(OperationCode.PAD, to.input(0), _paddings(to)))],
    versions=(1, 6),
    loads=_PADDED,
    dims=dims.padded,
)
PADV2 = TfliteOperator(
    "PADV2",
    "Padded with a value.",
    inputs("input", "paddings!", "value"),
    delegate=DelegateRule(version=2, level=3, types=FLOAT_QUANT8, conditions=(NO_EMPTY,)),
    versions=(1, 6),
    loads=_PADDED,
    dims=dims.padded,
)
MIRROR_PAD = TfliteOperator(
    "MIRROR_PAD",
    "Padded with mirror images.",
    PAD.inputs,
    options=(Option("mode", 0, "0 REFLECT, without the edge; 1 SYMMETRIC, with it"),),
    delegate=DelegateRule(version=2, level=7, types=NUMBERS, conditions=(NO_EMPTY,), since="2.8"),
    lowerings=[
        Lowering(lambda to: to.finish(OperationCode.MIRROR_PAD, to.input(0), _paddings(to), to.scalar(to.option("mode"))))
    ],
    versions=(1, 3),
    loads=(
        SAME,
        typed(1, *INDEXES),
        rows_per_dimension(1, 0, of_scalars=False),
        same_parameters(QUANTISED, 1),
        zero_centred(0, OUT),
        _REFLECTED,
        requires(
            "mode 0 or 1",
            lambda node: node.operator.options.get("mode") in (0, 1),
            lambda node: node.operator.options.get("mode", "none"),
        ),
    ),
    dims=dims.padded,
)


@PADV2.lowering()
def pad_v2(to: Lowerer) -> None:
    """PAD_V2; the value becomes a scalar, of 8-bit tensors the raw number."""
    data = to.input(0)
    to.require(to.constant(2).size == 1, "one value", to.constant(2).size)
    value = to.input(2)
    if data.type not in QUANT8:
        assert value.data is not None
        to.finish(OperationCode.PAD_V2, data, _paddings(to), to.float_scalar(float(value.data.reshape(-1)[0]), data))
        return
    to.require((value.scale, value.zero_point) == (data.scale, data.zero_point), "a value in the data's scale", value.scale)
    assert value.data is not None
    to.finish(OperationCode.PAD_V2, data, _paddings(to), to.scalar(int(value.data.reshape(-1)[0])))


def _paddings(to: Lowerer) -> Value:
    listed = to.integers(1)
    to.require(len(listed) % 2 == 0, "pairs of paddings", len(listed))
    return to.draft.ints(listed, (len(listed) // 2, 2))


@PAD.host_kernel
@PADV2.host_kernel
def host_pad(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Padded with a value, or with zero."""
    value = first(inputs[2]) if len(inputs) > 2 else inputs[0].zero_point
    return [np.pad(data_of(inputs[0]), _widths(inputs), constant_values=value)]


@MIRROR_PAD.host_kernel
def host_mirror_pad(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    return [np.pad(data_of(inputs[0]), _widths(inputs), mode="symmetric" if options["mode"] else "reflect")]


def _widths(inputs: Tensors) -> list[tuple[int, int]]:
    widths = padding_pairs(inputs[1])
    bounded([d + before + after for d, (before, after) in zip(data_of(inputs[0]).shape, widths, strict=True)])
    return widths

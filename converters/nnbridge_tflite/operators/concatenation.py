"""Operators that join tensors along an axis, and those that cut one into parts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnbridge.converters.declaration import Option
from nnbridge.converters.folding import Folding
from nnbridge.converters.mapping import MappingKind
from nnbridge.converters.rules import since, until
from nnbridge.errors import Why
from nnbridge.operations.arithmetic import saturate
from nnbridge.types import OperationCode
from nnbridge_tflite import dims
from nnbridge_tflite.declaration import AXIS, FUSED, TfliteOperator, inputs, outputs
from nnbridge_tflite.host.numbers import Arg, Array, Options, Tensors, data_of, half_away, integers, quantised
from nnbridge_tflite.loads import (
    INDEXES,
    NOT_ACTIVATED,
    ONE_SHAPE,
    ONE_TYPE,
    OUT,
    SAME,
    PreparedOperator,
    axis_within,
    constant_axes,
    if_known,
    no_zero_point,
    ranked,
    requires,
    same_parameters,
    sized,
    typed,
)
from nnbridge_tflite.lowerer import INT32, MAX_SLICES, Lowerer
from nnbridge_tflite.rules import (
    FLOAT_QUANT8,
    NUMBERS,
    NUMBERS_HALF,
    RANK_4,
    Condition,
    DelegateRule,
    OperatorView,
    Past,
    constant,
    first_type,
    from_level,
    input_in,
    input_rank,
    no_activation,
    type_in,
)

_JOINED = ("FLOAT32", "FLOAT16", "BFLOAT16", "UINT8", "INT8", "INT16", "INT32", "INT64", "BOOL", "UINT32", "INT4")
_SPLIT = ("FLOAT32", "UINT8", "INT8", "INT16", "INT32", "INT64")


def _without(shape: Sequence[int], axis: int) -> list[int]:
    """Dimensions but one."""
    return [d for i, d in enumerate(shape) if i != axis % max(len(shape), 1)]


def _are_indexes(node: PreparedOperator) -> bool:
    sizes = node.at(1)
    return sizes is None or sizes.data is None or node.words(2) is None or node.type(1) in INDEXES


_STORED_SIZES = requires("stored sizes of INT32 or INT64", _are_indexes, lambda node: node.type(1), Why.INPUT_TYPE)


def _parts(node: PreparedOperator) -> list[int] | None:
    """Sizes that SPLIT_V states; one may be -1."""
    sizes = node.numbers(1)
    return sizes and [size for size in sizes if size != -1]


def _count(node: PreparedOperator) -> int:
    return len(node.operator.outputs)


def _sizes_fit(node: PreparedOperator) -> bool:
    """True if the parts of a dimension, of which one may be -1, add up to it."""
    sizes, axis = node.numbers(1), node.words(2, least=1)
    if sizes is None or axis is None:
        return True
    if node.type(1) not in INDEXES:
        return True
    if not -len(node.shape(0)) <= axis[0] < len(node.shape(0)):
        return False
    total, rest = sum(size for size in sizes if size != -1), sizes.count(-1)
    whole = node.shape(0)[axis[0]]
    return rest < 2 and (total <= whole if rest else total == whole)


_SCALARS_STORED = requires(
    "scalars that are stored", lambda node: node.inputs[0].shape or all(node.stored(one) is not None for one in node.inputs)
)
_ONE_RANK = requires(
    "inputs that differ in one dimension only",
    lambda node: len({(len(one.shape), *_without(node.dims(one), int(node.option("axis")))) for one in node.inputs}) < 2,
    kind=Why.OPERAND_SIZE,
)
_COUNTED = requires(
    "as many inputs as values_count says",
    lambda node: len(node.inputs) == node.option("values_count"),
    lambda node: f"{len(node.inputs)} for {node.option('values_count')}",
)
_PARTS_COUNTED = requires(
    "as many outputs as num says", lambda node: _count(node) == node.option("num"),
    lambda node: f"{_count(node)} for {node.option('num')}",
)  # fmt: skip
_PARTS_TYPED = requires(
    "outputs of the input's type",
    lambda node: all(one.type == node.inputs[0].type for one in node.there([-1 - i for i in range(_count(node))])),
    kind=Why.OUTPUT_TYPE,
)
_PARTS_FIT = requires(
    "as many outputs as the dimension has elements, at least one",
    lambda node: node.shape(0)[int(node.option("axis"))] == node.option("num") and 0 not in node.shape(0),
    lambda node: f"{node.option('num')} of {node.at(0)}",
)
_OUTPUTS_COUNTED = requires(
    "as many outputs as num_splits says",
    lambda node: _count(node) == node.option("num_splits"),
    lambda node: f"{_count(node)} for {node.option('num_splits')}",
)
_SIZES_COUNTED = requires(
    "as many sizes as outputs",
    lambda node: math.prod(node.shape(1)) == _count(node),
    lambda node: f"{node.at(1)} for {_count(node)}",
    Why.OPERAND_SIZE,
)
_EVEN = requires(
    "a dimension that splits evenly",
    lambda node: not (axis := node.words(0, least=1)) or node.shape(1)[axis[0]] % _count(node) == 0,
    lambda node: f"{node.at(1)} in {_count(node)} parts",
)
_SIZES_FIT = requires("sizes that add up to the dimension", _sizes_fit, lambda node: f"{node.numbers(1)} of {node.at(0)}")

_MOVES = Folding(moves_only=True)


def _as_in(part: Arg, out: Arg) -> Array:
    """A part with the parameters of the whole, in float32; only uint8 may have others."""
    data = data_of(part)
    if data.dtype != np.uint8 or not quantised(part) or (part.scale, part.zero_point) == (out.scale, out.zero_point):
        return data
    factor = np.float32(part.scale) * (np.float32(1) / np.float32(out.scale))
    steps = half_away(data.astype(np.float32) * factor + np.float32(-part.zero_point) * factor)
    return saturate(steps.astype(np.int64) + out.zero_point, np.uint8)


def _sizes_above_0(node: OperatorView) -> bool:
    """Every size of SPLIT_V is above 0, also the one that is left open."""
    sizes = node.values.constant(node.operator.inputs[1])
    data, axis = node.input(0), node.values.constant(node.operator.inputs[2])
    if sizes is None or axis is None or data is None or not -len(data.shape) <= int(axis.reshape(-1)[0]) < len(data.shape):
        return False
    listed = [int(size) for size in sizes.reshape(-1)]
    rest = data.shape[int(axis.reshape(-1)[0])] - sum(size for size in listed if size > 0)
    return 0 not in listed and (-1 not in listed or rest != 0)


def _axis_before_last(*, new: bool, below: int = 99) -> Condition:
    """An axis of the input, or a new one among its axes, that is not the last; from level ``below`` on, any."""
    return Condition(
        "an axis before the last",
        lambda node: node.option("axis") not in (-1, node.rank(0) - (not new)),
        lambda node: node.option("axis"),
        below,
        Why.ARGUMENT,
    )


def _same_parameters(node: OperatorView) -> bool:
    parts = [node.values.tensors[i].quantisation for i in node.operator.inputs if i >= 0]
    return node.type(0) != "UINT8" or len({(part.scale, part.zero_point) for part in parts}) < 2


_ONE_SCALE = Condition(
    "one scale and zero point for all uint8 inputs below feature level 3",
    _same_parameters,
    first_type,
    3,
    Why.QUANTISATION_PARAMETERS,
)
CONCATENATION = TfliteOperator(
    "CONCATENATION",
    "Joined along an axis.",
    inputs("parts*"),
    options=(AXIS, FUSED),
    folding=_MOVES,
    known_when_prepared=True,
    delegate=DelegateRule(
        version=2,
        types=("FLOAT16", *FLOAT_QUANT8),
        conditions=(no_activation(NUMBERS_HALF), RANK_4, _ONE_SCALE),
        past=(Past(until="2.4", types=()),),
    ),
    kernel=lambda inputs, outputs, options: [np.concatenate([_as_in(t, outputs[0]) for t in inputs], options["axis"])],
    versions=(1, 7),
    loads=(
        axis_within(0),
        NOT_ACTIVATED,
        typed(0, *_JOINED),
        _SCALARS_STORED,
        ONE_TYPE,
        _ONE_RANK,
        SAME,
        same_parameters(("INT8",)),
        no_zero_point("16-bit inputs with a zero point of 0", ("INT16",)),
        no_zero_point("16-bit integers with a zero point of 0", ("INT16",), OUT),
    ),
    dims=dims.joined,
)
PACK = TfliteOperator(
    "PACK",
    "Joined along a new axis.",
    inputs("parts*"),
    options=(Option("values_count", 0, "the number of inputs"), AXIS),
    folding=_MOVES,
    delegate=DelegateRule(
        version=2,
        level=4,
        types=NUMBERS,
        conditions=(
            since("2.8", input_in("FLOAT32", "INT8", below=6)),
            since("2.8", _axis_before_last(new=True, below=6)),
            until("2.7", _axis_before_last(new=True)),
        ),
        since="2.6",
        past=(Past(until="2.7", types=("FLOAT32", "INT8", "INT32")),),
    ),
    kernel=lambda inputs, outputs, options: [np.stack([data_of(t) for t in inputs], options["axis"])],
    versions=(1, 5),
    loads=(
        _COUNTED,
        axis_within(0, beyond=1),
        typed(0, "FLOAT32", "UINT8", "UINT32", "INT8", "INT16", "INT32", "INT64"),
        ONE_SHAPE,
        ONE_TYPE,
        SAME,
        same_parameters(),
    ),
    needs_ranks=True,
    dims=dims.packed,
)
UNPACK = TfliteOperator(
    "UNPACK",
    "Cut into slices, without the axis.",
    outputs=outputs("parts*"),
    options=(Option("num", 0, "the number of outputs"), AXIS),
    folding=_MOVES,
    delegate=DelegateRule(
        version=2,
        level=4,
        types=FLOAT_QUANT8,
        conditions=(input_rank("an input of rank 2 to 4", 2, 3, 4), _axis_before_last(new=False)),
        since="2.8",
    ),
    versions=(1, 6),
    loads=(
        _PARTS_COUNTED,
        axis_within(0),
        typed(0, "FLOAT32", "FLOAT16", "BFLOAT16", "UINT8", "INT8", "INT16", "INT32", "BOOL"),
        _PARTS_FIT,
        _PARTS_TYPED,
        same_parameters(most=1),
        ranked(0, 1, 0),
    ),
    dims=dims.unpacked,
)
SPLIT = TfliteOperator(
    "SPLIT",
    "Cut into equal parts.",
    inputs("axis!", "input"),
    outputs("parts*"),
    options=(Option("num_splits", 0, "the number of outputs"),),
    folding=_MOVES,
    delegate=DelegateRule(
        version=3,
        level=3,
        types=NUMBERS,
        of=1,
        conditions=(type_in(0, "INT32"), constant(0, "axis"), from_level(4, "int8", lambda node: node.type(1) != "INT8")),
        past=(Past(until="2.3", types=("FLOAT32", "UINT8", "INT32")),),
    ),
    kernel=lambda inputs, outputs, options: np.split(data_of(inputs[1]), len(outputs), integers(inputs[0])[0]),
    versions=(1, 5),
    loads=(typed(1, *_SPLIT), _OUTPUTS_COUNTED, constant_axes(0, 1, most=1), _EVEN, *if_known(0, ranked(1, 1, 0))),
    dims=dims.split,
    writes_type=1,
    writes_all=True,
)
SPLIT_V = TfliteOperator(
    "SPLIT_V",
    "Cut into parts of stated sizes, one of which may be -1.",
    inputs("input", "sizes!", "axis!"),
    outputs("parts*"),
    options=SPLIT.options,
    folding=_MOVES,
    delegate=DelegateRule(
        version=2,
        level=4,
        types=NUMBERS,
        conditions=(
            constant(1, "sizes"),
            constant(2, "axis"),
            type_in(1, "INT32"),
            type_in(2, "INT32"),
            Condition("sizes above 0", _sizes_above_0, lambda node: node.type(0), kind=Why.OPERAND_VALUE),
        ),
        since="2.7",
    ),
    versions=(1, 3),
    loads=(
        typed(0, *_SPLIT),
        _OUTPUTS_COUNTED,
        _STORED_SIZES,
        ranked(1, 1),
        _SIZES_COUNTED,
        *if_known(1, constant_axes(2, 0, most=1)),
        _SIZES_FIT,
        *if_known(2, sized(_parts)),
    ),
    dims=dims.split_by_sizes,
    writes_type=0,
    writes_all=True,
)


@CONCATENATION.lowering()
def concatenation(to: Lowerer) -> None:
    """CONCATENATION; NNAPI has the axis last and fuses no activation."""
    fused = to.option("fused_activation_function")
    to.require(fused == 0, "no fused activation", fused)
    axis = to.axis(to.option("axis"), to.input(0).rank)
    to.finish(OperationCode.CONCATENATION, *to.inputs(), to.scalar(axis))


@CONCATENATION.lowering(wide=True)
def concatenation_by_pack(to: Lowerer) -> None:
    """Int32, which NNAPI packs but does not concatenate: slices of size 1, packed."""
    values = to.inputs()
    to.require(all(v.type == INT32 for v in values), "int32", to.declared(0))
    axis = to.axis(to.option("axis"), values[0].rank)
    to.require(sum(v.dims[axis] for v in values) <= MAX_SLICES, f"at most {MAX_SLICES} slices", "more")
    pieces = [piece for value in values for piece in to.slices(value, axis)]
    rest = values[0].dims[:axis] + values[0].dims[axis + 1 :]
    if not rest:
        stacked = to.emit(OperationCode.PACK, to.scalar(0), *pieces, like=pieces[0], dims=(len(pieces), 1))
        to.reshaped(stacked, (len(pieces),), out=to.out)
        return
    to.finish(OperationCode.PACK, to.scalar(axis), *(to.reshaped(piece, rest) for piece in pieces))


@PACK.lowering()
def pack(to: Lowerer) -> None:
    """PACK; NNAPI has the axis first. Scalars are vectors of one element and need a RESHAPE, which the delegate does not add."""
    shape = to.shape(0)
    axis = to.axis(to.option("axis"), len(shape) + 1)
    if shape:
        to.finish(OperationCode.PACK, to.scalar(axis), *to.inputs())
        return
    to.require(to.mapping != MappingKind.DELEGATE, "tensors that are not scalars", to.declared(0))
    packed = to.emit(OperationCode.PACK, to.scalar(0), *to.inputs(), like=to.input(0), dims=(to.count, 1))
    to.reshaped(packed, (to.count,), out=to.out)


@PACK.lowering()
def pack_by_concatenation(to: Lowerer) -> None:
    """Pack as the delegate does below feature level 6: CONCATENATION along the axis, then RESHAPE."""
    to.require(
        to.draft.feature_level < 6 or to.mapping != MappingKind.DELEGATE, "a feature level below 6", to.draft.feature_level
    )
    values = to.inputs()
    shape = to.shape(0)
    axis = to.axis(to.option("axis"), len(shape) + 1)
    to.require(axis < len(shape) and len(values) > 1, "an axis before the last, two tensors or more", axis)
    to.require(all(v.dims == values[0].dims for v in values), "tensors of one shape", [v.dims for v in values])
    joined = to.emit(OperationCode.CONCATENATION, *values, to.scalar(axis))
    to.reshaped(joined, (*shape[:axis], len(values), *shape[axis:]), out=to.out)


@PACK.lowering(wide=True)
def pack_expanded(to: Lowerer) -> None:
    """A new axis for each tensor, then CONCATENATION."""
    shape = to.shape(0)
    axis = to.axis(to.option("axis"), len(shape) + 1)
    dims = (*shape[:axis], 1, *shape[axis:])
    grown = [to.reshaped(value, dims) for value in to.inputs()]
    if len(grown) == 1:
        to.reshaped(grown[0], dims, out=to.out)
        return
    to.finish(OperationCode.CONCATENATION, *grown, to.scalar(axis))


@UNPACK.lowering()
def unpack_by_split(to: Lowerer) -> None:
    """Unpack as the delegate does: RESHAPE joins the axis with the next one, SPLIT cuts it."""
    data = to.input(0)
    axis = to.axis(to.option("axis"), data.rank)
    to.require(0 not in data.dims and axis < data.rank - 1, "known dimensions, an axis before the last", [data.dims, axis])
    to.require(data.dims[axis] == len(to.outputs), f"{len(to.outputs)} slices", data.dims[axis])
    joined = (*data.dims[:axis], data.dims[axis] * data.dims[axis + 1], *data.dims[axis + 2 :])
    parts = (to.reshaped(data, joined), to.scalar(axis), to.scalar(len(to.outputs)))
    to.emit_all(OperationCode.SPLIT, parts, to.outputs)


@UNPACK.lowering(wide=True)
def unpack(to: Lowerer) -> None:
    """SPLIT into slices of size 1, whose axis a RESHAPE removes."""
    data = to.input(0)
    axis = to.axis(to.option("axis"), data.rank)
    pieces = to.slices(data, axis)
    to.require(len(pieces) == len(to.outputs), f"{len(to.outputs)} slices", len(pieces))
    for piece, out in zip(pieces, to.outputs, strict=True):
        to.reshaped(piece, data.dims[:axis] + data.dims[axis + 1 :] or (1,), out=out)


@UNPACK.host_kernel
def host_unpack(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, axis = data_of(inputs[0]), options["axis"]
    return [np.take(data, i, axis) for i in range(data.shape[axis])]


@SPLIT.lowering()
def split(to: Lowerer) -> None:
    """SPLIT into equal parts; TFLite has the axis first."""
    axis = to.axis(to.integer(0), to.input(1).rank)
    to.emit_all(OperationCode.SPLIT, (to.input(1), to.scalar(axis), to.scalar(len(to.outputs))), to.outputs)


@SPLIT_V.lowering()
def split_v(to: Lowerer) -> None:
    """Parts of stated sizes, one SLICE each."""
    data, sizes = to.input(0), to.integers(1)
    axis = to.axis(to.integer(2), data.rank)
    to.require(len(sizes) == len(to.outputs) and sizes.count(-1) <= 1, f"{len(to.outputs)} sizes", sizes)
    if -1 in sizes:
        sizes[sizes.index(-1)] = data.dims[axis] - sum(s for s in sizes if s >= 0)
    start = 0
    for size, out in zip(sizes, to.outputs, strict=True):
        begin, extent = [0] * data.rank, list(data.dims)
        begin[axis], extent[axis] = start, size
        to.emit(OperationCode.SLICE, data, to.vector(begin), to.vector(extent), out=out)
        start += size


@SPLIT_V.host_kernel
def host_split_v(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, sizes, axis = data_of(inputs[0]), integers(inputs[1]), integers(inputs[2])[0]
    if -1 in sizes:
        sizes[sizes.index(-1)] = data.shape[axis] - sum(s for s in sizes if s >= 0)
    return np.split(data, np.cumsum(sizes)[:-1], axis)

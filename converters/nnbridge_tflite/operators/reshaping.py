"""Operators that move elements or compute shapes: reshaping, repeating, filling, reversing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnbridge.converters.declaration import Lowering, Option, lowers
from nnbridge.converters.folding import Folding, elements_of_shape
from nnbridge.converters.mapping import MappingKind
from nnbridge.converters.rules import since, until
from nnbridge.errors import Why
from nnbridge.types import OperationCode
from nnbridge_tflite import dims
from nnbridge_tflite.declaration import TfliteOperator, inputs
from nnbridge_tflite.host.numbers import Array, Options, Tensors, bounded, data_of, first, integers, optional
from nnbridge_tflite.loads import (
    INDEXES,
    OUT,
    SAME,
    PreparedOperator,
    alike,
    constant_axes,
    if_known,
    not_typed,
    parameters,
    ranked,
    requires,
    same_parameters,
    single,
    sized,
    typed,
    zero_centred,
)
from nnbridge_tflite.lowerer import INT32, Lowerer
from nnbridge_tflite.rules import (
    FLOAT_QUANT8,
    MOST_4,
    NUMBERS,
    NUMBERS_HALF,
    Condition,
    DelegateRule,
    OperatorView,
    Past,
    constant,
    input_in,
    type_in,
)


def _is_stored_index(node: PreparedOperator) -> bool:
    axis = node.at(1)
    return axis is None or axis.data is None or axis.type.name in INDEXES


def _permutes(node: PreparedOperator) -> bool:
    """True if the order, where it is known, names each dimension of the input once for each of its numbers."""
    order, rank = node.words(1), len(node.shape(0))
    return order is None or (node.shape(1) == (rank,) and all(-rank <= i < rank for i in order))


_MOST_LISTED = 8
"""As many dimensions an option may list."""


def _squeezes(node: PreparedOperator) -> bool:
    """True if the dimensions that are removed are 1."""
    shape, listed = node.shape(0), node.option("squeeze_dims")
    return (isinstance(listed, int) or len(listed) <= _MOST_LISTED) and all(
        -len(shape) <= i < len(shape) and shape[i] == 1 for i in (() if isinstance(listed, int) else map(int, listed))
    )


def _reaches(node: PreparedOperator) -> bool:
    """True if the input broadcasts to the stored dimensions."""
    dims, shape = node.numbers(1), node.shape(0)
    if dims is None:
        return True
    return len(shape) <= len(dims) and all(d in (1, end) for d, end in zip(shape[::-1], dims[::-1], strict=False))


_PERMUTED = requires("an order of the input's dimensions", _permutes, lambda node: f"{node.numbers(1)} for {node.at(0)}")
_SQUEEZED = requires("dimensions of 1 to remove", _squeezes, lambda node: f"{node.option('squeeze_dims')} of {node.at(0)}")
_REACHED = requires("dimensions that the input broadcasts to", _reaches, lambda node: f"{node.numbers(1)} for {node.at(0)}")
_STORED_INDEX = requires("a stored dimension of INT32 or INT64", _is_stored_index)
_VALUE_PARAMETERS = requires(
    "a value of the output's scale and zero point",
    lambda node: len({parameters(one) for one in node.there((1, OUT))}) < 2,
    kind=Why.QUANTISATION_PARAMETERS,
)
_TILED = requires(
    "a factor for each dimension",
    lambda node: (found := node.numbers(1)) is None or (len(found) == len(node.shape(0)) and min(found, default=0) >= 0),
    kind=Why.OPERAND_SIZE,
)
_TYPE_OF_SHAPE = requires(
    "out_type INT32 or INT64", lambda node: node.option("out_type") in (2, 4), lambda node: node.option("out_type")
)


def _ranges(node: PreparedOperator) -> bool:
    """True if stored numbers lead from the first to the last."""
    stored = [None if (one := node.at(i)) is None else node.stored(one) for i in range(3)]
    if any(one is None for one in stored):
        return True
    first, last, step = (np.ravel(one)[0] for one in stored if one is not None)
    return bool(step != 0 and ((first >= last and step < 0) or (first <= last and step > 0)))


_LEADS = requires("a step from the first number towards the last", _ranges)

_MOVES = Folding(moves_only=True)


def _stated(node: OperatorView) -> bool:
    listed = node.operator.options.get("new_shape")
    return len(node.operator.inputs) > 1 or (listed is not None and len(listed) > 0 and list(listed) != [0])


_OUT_MOST_4 = Condition(
    "an output of rank 4 at most", lambda node: len(node.output().shape) <= 4, lambda node: str(node.output()), kind=Why.RANK
)
_TWO_INPUTS = Condition(
    "two inputs", lambda node: len(node.operator.inputs) > 1, lambda node: len(node.operator.inputs), kind=Why.MISSING_OPERAND
)
_NO_COMPUTED_INT64 = Condition(
    "a constant where the value is INT64",
    lambda node: node.type(1) != "INT64" or node.constant(1),
    lambda node: "computed",
    kind=Why.INPUT_TYPE,
)
_STATED = Condition("new dimensions, in the options of one input", _stated, lambda node: "none", kind=Why.RANK)


_FEW_AXES = requires("as many axes as dimensions at most", lambda node: len(node.shape(0)) >= math.prod(node.shape(1)))


def _repeated(node: PreparedOperator) -> list[int] | None:
    times = node.numbers(1)
    return times and [d * n for d, n in zip(node.shape(0), times, strict=True)]


def _reshapes(node: PreparedOperator) -> bool:
    """True if the dimensions, where the file has them, hold the input's elements."""
    shape, stated = node.shape(0), node.at(1)
    if stated is not None and stated.type.name == "INT32" and len(stated.shape) == 1:
        dims = node.numbers(1)
    elif stated is not None and node.stored(stated) is None:
        return True
    else:
        dims = [int(one) for one in node.operator.options.get("new_shape") or ()]
    if dims is None:
        return True
    dims = [] if dims == [0] and math.prod(shape) == 1 else dims
    if min(dims, default=0) < -1:
        return False
    rest, known = dims.count(-1), math.prod(d for d in dims if d != -1)
    return rest < 2 and (math.prod(shape) % known == 0 if rest and known else math.prod(shape) == known)


_FEW_LISTED = requires(
    f"{_MOST_LISTED} dimensions at most as new_shape",
    lambda node: len(node.operator.options.get("new_shape") or ()) <= _MOST_LISTED,
    lambda node: len(node.operator.options["new_shape"]),
)
_RESHAPED = requires("dimensions that hold the input's elements", _reshapes, kind=Why.OPERAND_SIZE)
_STATED_SHAPE = requires(
    "a shape, or no second input, without which LiteRT ends the process",
    lambda node: -1 not in node.operator.inputs[1:],
    lambda node: "an omitted one",
    Why.MISSING_OPERAND,
)
RESHAPE = TfliteOperator(
    "RESHAPE",
    "The same elements in other dimensions.",
    inputs("input", "shape?!"),
    options=(Option("new_shape", (), "the dimensions, in old files without a second input"),),
    folding=_MOVES,
    known_when_prepared=True,
    delegate=DelegateRule(
        version=1,
        types=NUMBERS,
        conditions=(
            input_in(*FLOAT_QUANT8, below=6),
            since("2.9", MOST_4),
            since("2.9", _OUT_MOST_4),
            since("2.5", _STATED),
            until("2.4", _TWO_INPUTS),
            Condition(
                "a constant shape",
                lambda node: node.input(1) is None or node.constant(1),
                lambda node: "computed",
                kind=Why.NOT_CONSTANT,
            ),
        ),
        past=(Past(until="2.7", types=FLOAT_QUANT8),),
    ),
    loads=(_FEW_LISTED, _STATED_SHAPE, _RESHAPED),
    needs_ranks=True,
    dims=dims.reshaped,
)
SQUEEZE = TfliteOperator(
    "SQUEEZE",
    "Without the named dimensions of size 1, or without all.",
    options=(Option("squeeze_dims", (), "dimensions to remove; all of size 1 if there are none"),),
    folding=_MOVES,
    delegate=DelegateRule(
        version=1,
        level=2,
        conditions=(
            Condition(
                "dimensions to squeeze",
                lambda node: node.operator.options.get("squeeze_dims"),
                lambda node: "none",
                3,
                Why.ARGUMENT,
            ),
        ),
    ),
    versions=(1, 2),
    loads=(ranked(0, 0, 8), _SQUEEZED),
    dims=dims.squeezed,
)
EXPAND_DIMS = TfliteOperator(
    "EXPAND_DIMS",
    "With a new dimension of size 1.",
    inputs("input", "axis!"),
    folding=_MOVES,
    delegate=DelegateRule(version=1, level=3, types=NUMBERS_HALF, conditions=(type_in(1, "INT32"), constant(1, "axis"))),
    kernel=lambda inputs, outputs, options: [np.expand_dims(data_of(inputs[0]), integers(inputs[1])[0])],
    loads=(same_parameters(most=1), zero_centred(0), single(1, known=True), _STORED_INDEX, constant_axes(1, 0, beyond=1)),
    needs_ranks=True,
    dims=dims.expanded,
    writes_type=0,
)
TRANSPOSE = TfliteOperator(
    "TRANSPOSE",
    "With the dimensions in another order.",
    inputs("input", "permutation!"),
    folding=_MOVES,
    delegate=DelegateRule(version=2, level=2, conditions=(constant(1, "permutation"),)),
    lowerings=[Lowering(lambda to: to.finish(OperationCode.TRANSPOSE, to.input(0), to.vector(to.integers(1))))],
    kernel=lambda inputs, outputs, options: [data_of(inputs[0]).transpose(integers(inputs[1]))],
    versions=(1, 9),
    loads=(ranked(0, 0, 8), SAME, _PERMUTED),
    dims=dims.permuted,
)
TILE = TfliteOperator(
    "TILE",
    "Repeated along each axis.",
    inputs("input", "multiples!"),
    folding=Folding(lambda data, multiples: data.size * elements_of_shape(multiples), moves_only=True),
    known_when_prepared=True,
    delegate=DelegateRule(version=1, level=3, types=NUMBERS, conditions=(type_in(1, "INT32"),)),
    lowerings=[Lowering(lambda to: to.finish(OperationCode.TILE, to.input(0), to.vector(to.integers(1))))],
    versions=(1, 3),
    loads=(SAME, typed(1, *INDEXES), _TILED, sized(_repeated)),
    dims=dims.tiled,
)
BROADCAST_TO = TfliteOperator(
    "BROADCAST_TO",
    "Repeated where the size is 1.",
    inputs("input", "shape!"),
    folding=Folding(lambda data, shape: elements_of_shape(shape), moves_only=True),
    kernel=lambda inputs, outputs, options: [np.broadcast_to(data_of(inputs[0]), bounded(integers(inputs[1])))],
    versions=(2, 4),
    loads=(
        typed(1, *INDEXES),
        SAME,
        not_typed(0, "STRING"),
        *if_known(1, ranked(1, 1)),
        _REACHED,
        sized(lambda node: node.numbers(1)),
    ),
    dims=dims.stated_by(1),
)
BROADCAST_ARGS = TfliteOperator(
    "BROADCAST_ARGS",
    "The shape that two shapes broadcast to.",
    inputs("a!", "b!"),
    folding=_MOVES,
    dynamic_unless=(),
    known_when_prepared=True,
    loads=(typed(0, *INDEXES), alike(0, 1, OUT), ranked(0, 1), ranked(1, 1)),
    dims=dims.longest,
)
_SHAPE_TYPE = Option("out_type", 0, "the output's TensorType; the tensor itself states it")
SHAPE = TfliteOperator(
    "SHAPE",
    "The input's dimensions.",
    options=(_SHAPE_TYPE,),
    folded_from_shape=lambda shape: shape,
    kernel=lambda inputs, outputs, options: [np.array(inputs[0].dims, outputs[0].dtype)],
    loads=(_TYPE_OF_SHAPE,),
    dims=dims.vector,
    writes_type="out_type",
)
RANK = TfliteOperator(
    "RANK",
    "The input's number of dimensions.",
    folded_from_shape=len,
    needs_ranks=True,
    kernel=lambda inputs, outputs, options: [np.array(len(inputs[0].dims), np.int32)],
    dims=dims.scalar,
    writes_type="INT32",
)
FILL = TfliteOperator(
    "FILL",
    "One value everywhere.",
    inputs("dims!", "value"),
    folding=Folding(lambda dims, value: elements_of_shape(dims), moves_only=True),
    wide_constants=True,
    delegate=DelegateRule(
        version=1,
        level=4,
        types=("INT32", "INT64"),
        conditions=(
            constant(0, "dimensions"),
            Condition("an output that is not a scalar", lambda node: node.output().shape, lambda node: "a scalar", kind=Why.RANK),
            type_in(1, "FLOAT32", "INT32", "INT64"),
            until("2.5", _NO_COMPUTED_INT64),
        ),
    ),
    versions=(1, 5),
    loads=(ranked(0, 1), typed(0, *INDEXES), ranked(1, 0), _VALUE_PARAMETERS, sized(lambda node: node.numbers(0))),
    dims=dims.stated_by(0),
    writes_type=1,
)
RANGE = TfliteOperator(
    "RANGE",
    "Numbers from a start to before a limit in steps.",
    inputs("start", "limit", "delta"),
    folding=Folding(lambda start, limit, delta: min(abs((limit - start) / (delta or 1)).max(initial=0.0), 2.0**40)),
    data_dependent=True,
    dynamic_unless=(0, 1, 2),
    known_when_prepared=True,
    versions=(1, 2),
    loads=(alike(0, 1, 2), typed(0, "INT32", "INT64", "FLOAT32"), ranked(0, 0), ranked(1, 0), ranked(2, 0), _LEADS),
    dims=dims.range_of,
    writes_type=0,
)
REVERSE_V2 = TfliteOperator(
    "REVERSE_V2",
    "Backwards along the named axes.",
    inputs("input", "axes"),
    folding=_MOVES,
    delegate=DelegateRule(version=3, level=7, types=NUMBERS, since="2.8"),
    kernel=lambda inputs, outputs, options: [np.flip(data_of(inputs[0]), tuple(integers(inputs[1])))],
    versions=(1, 4),
    loads=(
        ranked(1, 1),
        ranked(0, 0, 8),
        typed(0, "FLOAT32", "UINT8", "INT8", "INT16", "INT32", "INT64", "BOOL", "FLOAT16", "BFLOAT16"),
        typed(1, "INT32"),
        SAME,
        _FEW_AXES,
    ),
    dims=dims.like(),
)
REVERSE_SEQUENCE = TfliteOperator(
    "REVERSE_SEQUENCE",
    "The first elements of each sequence backwards, as many as its length states.",
    inputs("input", "lengths"),
    options=(Option("seq_dim", 0, "the dimension of time"), Option("batch_dim", 0, "the dimension of sequences")),
    loads=(ranked(1, 1), typed(0, "FLOAT32", "INT32", "UINT8", "INT16", "INT64"), typed(1, *INDEXES), SAME),
    dims=dims.like(),
)
MATRIX_DIAG = TfliteOperator(
    "MATRIX_DIAG",
    "Matrices that are zero but for their diagonals.",
    inputs("diagonals"),
    loads=(ranked(0, 1, 0),),
    dims=dims.diagonal,
    writes_type=0,
)
MATRIX_SET_DIAG = TfliteOperator(
    "MATRIX_SET_DIAG",
    "Matrices with other diagonals.",
    inputs("matrices", "diagonals"),
    loads=(ranked(0, 2, 0),),
    dims=dims.like(),
    writes_type=0,
)


@RESHAPE.lowering()
def reshape(to: Lowerer) -> None:
    """RESHAPE; the shape comes from the second input or, in old files, from the options."""
    if to.has(1) and to.values.constant(to.operator.inputs[1]) is None:
        to.require(to.mapping != MappingKind.DELEGATE, "a constant shape", "a computed one")
        to.finish(OperationCode.RESHAPE, to.input(0), to.input(1))
        return
    to.reshaped(to.input(0), _new_shape(to), out=to.out)


def _new_shape(to: Lowerer) -> tuple[int, ...]:
    """The shape that a RESHAPE asks for, -1 filled in."""
    asked = to.integers(1) if to.has(1) else [int(d) for d in to.option("new_shape", ())]
    if asked == [0]:
        # How old files say "a scalar".
        return (1,)
    elements = math.prod(to.input(0).dims)
    if asked.count(-1) == 1 and elements:
        rest = -math.prod(asked)
        to.require(rest > 0 and elements % rest == 0, f"a shape of {elements} elements", asked)
        asked[asked.index(-1)] = elements // rest
    return tuple(asked) or (1,)


@RESHAPE.host_kernel
def host_reshape(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    shape = optional(inputs, 1)
    dims = [int(d) for d in options["new_shape"]] if shape is None else integers(shape)
    return [data_of(inputs[0]).reshape(dims)]


@SQUEEZE.lowering()
def squeeze(to: Lowerer) -> None:
    """SQUEEZE of named axes, or of all of size 1."""
    rank = to.input(0).rank
    axes = [to.axis(int(a), rank) for a in to.option("squeeze_dims", ())]
    to.finish(OperationCode.SQUEEZE, to.input(0), to.vector(axes) if axes else to.draft.omitted(INT32))


@SQUEEZE.host_kernel
def host_squeeze(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    axes = tuple(int(a) for a in options["squeeze_dims"])
    return [np.squeeze(data_of(inputs[0]), axes or None)]


@EXPAND_DIMS.lowering()
def expand_dims(to: Lowerer) -> None:
    """EXPAND_DIMS; a scalar is a vector of one element already, which Android's delegate passes on for the runtime to refuse."""
    shape = to.shape(0)
    to.require(shape, "a tensor that is not a scalar", to.declared(0))
    to.finish(OperationCode.EXPAND_DIMS, to.input(0), to.scalar(to.axis(to.integer(1), len(shape) + 1)))


@lowers(SQUEEZE, EXPAND_DIMS, wide=True)
def reshape_instead(to: Lowerer) -> None:
    """A RESHAPE to the dimensions that the operator computes."""
    shape = list(to.shape(0))
    if to.name == "EXPAND_DIMS":
        shape.insert(to.axis(to.integer(1), len(shape) + 1), 1)
    else:
        named = {to.axis(int(a), len(shape)) for a in to.option("squeeze_dims", ())}
        axes = named or {i for i, d in enumerate(shape) if d == 1}
        to.require(all(shape[a] == 1 for a in axes), "axes of size 1", shape)
        shape = [d for i, d in enumerate(shape) if i not in axes]
    to.reshaped(to.input(0), shape, out=to.out)


@TILE.host_kernel
def host_tile(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, multiples = data_of(inputs[0]), integers(inputs[1])
    bounded([d * m for d, m in zip(data.shape, multiples, strict=True)])
    return [np.tile(data, multiples)]


@BROADCAST_TO.lowering(wide=True)
def broadcast_to(to: Lowerer) -> None:
    """RESHAPE to the new rank, then TILE."""
    value = to.input(0)
    dims = tuple(to.integers(1))
    to.require(dims and value.dims != dims, "dimensions that grow", list(dims))
    aligned, multiples = to.tiling(value, dims)
    to.finish(OperationCode.TILE, aligned, to.vector(multiples))


@BROADCAST_ARGS.host_kernel
def host_broadcast_args(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    shapes = np.broadcast_shapes(tuple(integers(inputs[0])), tuple(integers(inputs[1])))
    return [np.array(shapes, outputs[0].dtype)]


@FILL.lowering()
def fill(to: Lowerer) -> None:
    """FILL with a constant."""
    value = to.constant(1).reshape(-1)
    to.require(value.size == 1, "one value", value.size)
    number = to.scalar(int(value[0])) if to.out.type == INT32 else to.float_scalar(float(value[0]), to.out)
    to.finish(OperationCode.FILL, to.vector(to.integers(0)), number)


@FILL.host_kernel
def host_fill(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    value = data_of(inputs[1]).reshape(-1)
    return [np.full(bounded(integers(inputs[0])), value[0], value.dtype)]


@RANGE.host_kernel
def host_range(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    start, limit, delta = (first(t) for t in inputs)
    count = max(0, int(np.ceil((limit - start) / delta)))
    bounded([count])
    return [(start + np.arange(count) * delta).astype(outputs[0].dtype)]


@REVERSE_V2.lowering()
def reverse(to: Lowerer) -> None:
    """One REVERSE for each axis; the delegate maps one axis."""
    axes = [to.axis(a, to.input(0).rank) for a in to.integers(1)]
    to.require(axes, "an axis", "none")
    to.require(to.mapping != MappingKind.DELEGATE or len(axes) == 1, "one axis", axes)
    value = to.input(0)
    for axis in axes[:-1]:
        value = to.emit(OperationCode.REVERSE, value, to.vector([axis]))
    to.finish(OperationCode.REVERSE, value, to.vector([axes[-1]]))


@REVERSE_SEQUENCE.host_kernel
def host_reverse_sequence(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, lengths = data_of(inputs[0]), integers(inputs[1])
    along, batch = options["seq_dim"], options["batch_dim"]
    longest = data.shape[along]
    if any(not 0 <= length <= longest for length in lengths):  # LiteRT would read and write beyond the tensor.
        raise ValueError(f"lengths from 0 to {longest}, found {list(lengths)}")
    moved = np.moveaxis(data, (batch, along), (0, 1)).copy()
    for i, length in enumerate(lengths):
        moved[i, :length] = moved[i, :length][::-1]
    return [np.moveaxis(moved, (0, 1), (batch, along))]


@MATRIX_DIAG.host_kernel
def host_matrix_diagonal(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data = data_of(inputs[0])
    return [np.where(np.eye(data.shape[-1], dtype=bool), data[..., None], data.dtype.type(0))]


@MATRIX_SET_DIAG.host_kernel
def host_matrix_set_diagonal(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    result, diagonal = data_of(inputs[0]).copy(), data_of(inputs[1])
    diagonal_indexes = np.arange(diagonal.shape[-1])
    result[..., diagonal_indexes, diagonal_indexes] = diagonal
    return [result]

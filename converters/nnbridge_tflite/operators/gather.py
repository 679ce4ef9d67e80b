"""Look-ups by index, and their inverse."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nnbridge.converters.declaration import Lowering, Option
from nnbridge.converters.folding import Folding, elements_of_shape
from nnbridge.converters.rules import since, until
from nnbridge.errors import Stage, Why
from nnbridge.operations.lookup import numbers_of_bits, projected_bits
from nnbridge.types import FLOATS, QUANT8, OperationCode
from nnbridge_tflite import dims
from nnbridge_tflite.declaration import NEVER_KNOWN, TfliteOperator, inputs, outputs
from nnbridge_tflite.host.numbers import Array, Options, Tensors, bounded, data_of, first, integers
from nnbridge_tflite.loads import (
    INDEXES,
    OUT,
    PreparedOperator,
    alike,
    axis_within,
    fits,
    ranked,
    requires,
    single,
    sized,
    typed,
)
from nnbridge_tflite.lowerer import BOOL8, FLOAT32, INT32, Lowerer, Value
from nnbridge_tflite.rules import NUMBERS_HALF, Condition, DelegateRule, OperatorView, Past, first_type, type_in

_HOT_AXIS = requires(
    "axis from -1 to the number of dimensions",
    lambda node: -1 <= int(node.option("axis")) <= len(node.shape(0)),
    lambda node: node.option("axis"),
)
_HOT = ("FLOAT32", "INT16", "INT32", "INT64", "INT8", "UINT8", "BOOL")
_GATHERED = ("FLOAT32", "FLOAT16", "BFLOAT16", "UINT8", "INT8", "INT16", "INT64", "INT32", "BOOL", "STRING")


def _batches(node: PreparedOperator) -> bool:
    """True if the first dimensions are those of batches."""
    data, positions = node.shape(0), node.shape(1)
    axis, batch = int(node.option("axis")), int(node.option("batch_dims"))
    axis, batch = axis + len(data) * (axis < 0), batch + len(positions) * (batch < 0)
    return 0 <= batch <= min(axis, len(positions)) and batch < len(data) and data[:batch] == positions[:batch]


def _row_scales(node: PreparedOperator) -> bool:
    """True if many scales are one for each row of a table of bytes, whose output is of floats."""
    table = node.at(1)
    if table is None or len(table.quantisation.scales) < 2:
        return True
    found = table.quantisation
    fits = found.axis == 0 and len(found.scales) == table.shape[0]
    return fits and table.type.name in _BYTES and node.type(OUT) in ("FLOAT32", "FLOAT16")


_BATCHES_SHARED = requires("batch_dims that input and positions share", _batches, kind=Why.OPERAND_SIZE)
_INDEX_FITS = requires(
    "indexes of as many numbers as the input has dimensions at most",
    lambda node: node.shape(1)[-1] <= len(node.shape(0)),
    kind=Why.OPERAND_SIZE,
)
_BYTES = ("UINT8", "INT8", "INT4", "INT2")
_CENTRED_ROWS = requires(
    "a table with a zero point of 0, whose output is of floats",
    lambda node: (
        node.type(OUT) != "FLOAT32" or node.type(1) not in _BYTES or not any(node.inputs[1].quantisation.zero_points[:1])
    ),
)
_ROW_SCALES = requires("one scale, or one for each row", _row_scales, kind=Why.QUANTISATION_TYPE)
_ROWS_MATCH = requires("as many keys as rows of values", lambda node: node.shape(1)[0] == node.shape(2)[0], kind=Why.OPERAND_SIZE)


def _sparse(node: PreparedOperator) -> bool:
    """True if the numbers of indexes, values and dimensions fit."""
    indexes, (dims,), values = node.shape(0), node.shape(1), node.shape(2)
    count = indexes[:1] or (1,)
    fits = dims == (indexes[1] if len(indexes) == 2 else 1)
    return fits and (not values or values == count)


_SPARSE_FITS = requires("indexes, values and dimensions whose numbers fit", _sparse, kind=Why.OPERAND_SIZE)

_PICKS = Folding(lambda data, indices: data.size * indices.size, moves_only=True)


def _is_projection(node: OperatorView) -> bool:
    return node.option("type") != 1 or (node.level >= 3 and len(node.operator.inputs) == 2)


_OLD_TYPES = ("FLOAT32", "FLOAT16", "INT32", "UINT8")
_ROWS = Condition("indices of rank 1 or more", lambda node: node.rank(1), lambda node: "a scalar", kind=Why.RANK)


def _scatters(node: PreparedOperator) -> bool:
    """True if updates and known dimensions fit the indexes."""
    indexes, updates, dims = node.shape(0), node.shape(1), node.numbers(2)
    if dims is None:
        return True
    inner = updates[len(indexes) - 1 :]
    return (
        node.type(0) == "INT32"
        and bool(indexes and updates)
        and updates[: len(indexes) - 1] == indexes[:-1]
        and len(inner) == len(dims) - indexes[-1]
        and list(inner) == dims[indexes[-1] :]
    )


_SCATTERED = (
    requires("updates that fit the indexes of INT32 and dimensions", _scatters, kind=Why.OPERAND_SIZE),
    sized(lambda node: node.numbers(2)),
)


def _hot(node: PreparedOperator) -> list[int] | None:
    depth = node.words(1)
    return depth and [*node.shape(0), *depth]


_STRINGS_IN_ROWS = requires("strings of rank 1", lambda node: node.type(0) != "STRING" or len(node.shape(0)) == 1, kind=Why.RANK)
GATHER = TfliteOperator(
    "GATHER",
    "Slices by index, with leading dimensions in common where there are batch dimensions.",
    inputs("params", "indices"),
    options=(
        Option("axis", 0, "the dimension of the indexes; counted from the end if negative"),
        Option("batch_dims", 0, "leading dimensions in common"),
    ),
    folding=_PICKS,
    known_when_prepared=True,
    delegate=DelegateRule(
        version=2,
        level=3,
        types=NUMBERS_HALF,
        conditions=(since("2.4", type_in(1, "INT32")), until("2.3", type_in(1, *_OLD_TYPES)), _ROWS),
        past=(Past(until="2.3", version=1, types=_OLD_TYPES),),
    ),
    needs_ranks=True,
    versions=(1, 8),
    loads=(typed(1, "INT64", "INT32", "INT16"), typed(0, *_GATHERED, "INT4"), _STRINGS_IN_ROWS, axis_within(0), _BATCHES_SHARED),
    dims=dims.gathered,
    writes_type=0,
)
GATHER_ND = TfliteOperator(
    "GATHER_ND",
    "Slices at tuples of indexes.",
    inputs("params", "indices"),
    folding=_PICKS,
    versions=(1, 6),
    loads=(typed(0, *_GATHERED), typed(1, "INT64", "INT32", "INT16"), ranked(0, 1, 0), ranked(1, 1, 0), _INDEX_FITS),
    dims=dims.gathered_nd,
    writes_type=0,
)
SCATTER_ND = TfliteOperator(
    "SCATTER_ND",
    "Slices added at tuples of indexes of a tensor of zeros.",
    inputs("indices", "updates", "shape!"),
    loads=(typed(1, "FLOAT32", "UINT8", "BOOL", "INT8", "INT64", "INT32"), alike(0, 2), *_SCATTERED),
    dims=dims.stated_by(2),
    writes_type=1,
)
ONE_HOT = TfliteOperator(
    "ONE_HOT",
    "Two values, one of them where the index states.",
    inputs("indices", "depth!", "on_value", "off_value"),
    options=(Option("axis", -1, "the new dimension; counted from the end if negative"),),
    folding=Folding(lambda indices, depth, on, off: indices.size * elements_of_shape(depth)),
    needs_ranks=True,
    loads=(typed(2, *_HOT), typed(0, *INDEXES), _HOT_AXIS, single(1), single(2), single(3), alike(2, 3), sized(_hot)),
    dims=dims.one_hot,
    writes_type=2,
)
SPARSE_TO_DENSE = TfliteOperator(
    "SPARSE_TO_DENSE",
    "Values at indexes of an array of one default value.",
    inputs("indices", "shape!", "values", "default_value"),
    options=(Option("validate_indices", False, "indexes in order and once each; not checked, as in LiteRT"),),
    versions=(1, 3),
    loads=(
        ranked(0, 0, 2),
        ranked(1, 1),
        ranked(2, 0, 1),
        single(3),
        typed(0, *INDEXES),
        typed(1, *INDEXES),
        typed(2, "FLOAT32", "INT32", "INT64", "INT8", "UINT8"),
        sized(lambda node: node.numbers(1)),
        alike(2, 3),
        _SPARSE_FITS,
    ),
    needs_ranks=True,
    dims=dims.stated_by(1),
    writes_type=2,
)
EMBEDDING_LOOKUP = TfliteOperator(
    "EMBEDDING_LOOKUP",
    "Rows of a table.",
    inputs("ids", "table"),
    delegate=DelegateRule(version=1, conditions=(type_in(1, "FLOAT32"),)),
    lowerings=[Lowering(lambda to: to.finish(OperationCode.EMBEDDING_LOOKUP, to.input(0), to.input(1)))],
    versions=(1, 5),
    loads=(ranked(0, 1), typed(0, "INT32"), ranked(1, 2, 0), _CENTRED_ROWS, _ROW_SCALES),
    dims=dims.rows_of,
)
EMBEDDING_LOOKUP_SPARSE = TfliteOperator(
    "EMBEDDING_LOOKUP_SPARSE",
    "Weighted rows of a table, added up by bucket: the leading indexes of a sparse tensor's entries.",
    inputs("ids", "indices", "shape", "weights", "table"),
    options=(Option("combiner", 0, "0 sum, 1 mean, 2 sum divided by the root of the sum of squared weights"),),
    dynamic_unless=NEVER_KNOWN,
    loads=(
        ranked(0, 1),
        ranked(1, 2),
        ranked(2, 1),
        ranked(3, 1),
        ranked(4, 2, 0),
        *(typed(i, "INT32") for i in range(3)),
        typed(3, "FLOAT32"),
        fits("n", "n k", "*", "n", "*"),
        typed(OUT, "FLOAT32"),
    ),
)
HASHTABLE_LOOKUP = TfliteOperator(
    "HASHTABLE_LOOKUP",
    "Values by key, and which keys were found.",
    inputs("lookups", "keys", "values"),
    outputs("output", "hits"),
    delegate=DelegateRule(
        version=1,
        conditions=(
            Condition("a float32 output", lambda node: node.output().type.name == "FLOAT32", first_type, kind=Why.OUTPUT_TYPE),
        ),
    ),
    lowerings=[Lowering(lambda to: to.emit_all(OperationCode.HASHTABLE_LOOKUP, to.inputs(), to.outputs))],
    loads=(
        ranked(0, 1),
        typed(0, "INT32"),
        ranked(1, 1),
        typed(1, "INT32"),
        ranked(2, 1, 0),
        _ROWS_MATCH,
        typed(-2, "UINT8"),
        alike(2, OUT),
    ),
)


def _projects(node: PreparedOperator) -> bool:
    """True if seeds, items and their weights fit."""
    seeds, items = node.shape(0), node.shape(1)
    fits = len(seeds) == 2 and seeds[1] <= 32 and bool(items) and items[0] > 0
    return fits and node.option("type") in (1, 2) and (node.at(2) is None or node.shape(2) == items[:1])


_PROJECTED = requires("seeds, items and weights that fit, and type 1 or 2", _projects, kind=Why.OPERAND_SIZE)
_NO_GAP = requires("weights, or no third input", lambda node: -1 not in node.operator.inputs, lambda node: "an omitted one")
LSH_PROJECTION = TfliteOperator(
    "LSH_PROJECTION",
    "Bits by the sign of the items' weighted fingerprints after each seed: one by one, or as one number for each hash.",
    inputs("seeds", "items", "weights?"),
    options=(Option("type", 0, "1 sparse (one number), 2 dense (bits)"),),
    delegate=DelegateRule(
        version=1,
        conditions=(
            Condition(
                "feature level 3 and no weights for sparse projections",
                _is_projection,
                lambda node: node.level,
                kind=Why.FEATURE_LEVEL,
            ),
        ),
    ),
    as_stored=True,
    loads=(_PROJECTED, _NO_GAP),
    dims=dims.hashed,
)


@GATHER.lowering()
def gather(to: Lowerer) -> None:
    """GATHER along an axis; NNAPI has the axis second."""
    # The delegate passes no batch dimensions, so that NNAPI computes another shape.
    to.require(to.option("batch_dims") == 0, "no batch dimensions", to.option("batch_dims"), stage=Stage.RUNNING)
    to.require(to.shape(1), "indices of rank 1 or more", "a scalar")
    axis = to.axis(to.option("axis"), to.input(0).rank)
    to.finish(OperationCode.GATHER, to.input(0), to.scalar(axis), _indices(to, 1))


@GATHER.lowering(wide=True)
def gather_scalar(to: Lowerer) -> None:
    """A scalar index: GATHER, then RESHAPE without the axis."""
    to.require(to.option("batch_dims") == 0 and not to.shape(1), "a scalar index", to.shape(1))
    data = to.input(0)
    axis = to.axis(to.option("axis"), data.rank)
    picked = to.emit(OperationCode.GATHER, data, to.scalar(axis), _indices(to, 1))
    to.reshaped(picked, data.dims[:axis] + data.dims[axis + 1 :] or (1,), out=to.out)


def _indices(to: Lowerer, i: int) -> Value:
    """Indices as int32; constant int64 ones that fit are converted."""
    value = to.input(i)
    if value.type == INT32:
        return value
    return to.draft.ints(to.integers(i), value.dims)


@GATHER.host_kernel
def host_gather(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, indices = data_of(inputs[0]), data_of(inputs[1])
    axis, batch = options["axis"], options["batch_dims"]
    batch = batch % (indices.ndim + 1) if batch < 0 else batch
    axis = axis % data.ndim
    if ((indices < 0) | (indices >= data.shape[axis])).any():
        raise IndexError(f"indices from 0 to {data.shape[axis] - 1}")
    if batch == 0:
        return [np.take(data, indices, axis)]
    lead = data.shape[:batch]
    flat = zip(data.reshape(-1, *data.shape[batch:]), indices.reshape(-1, *indices.shape[batch:]), strict=True)
    picked = np.stack([np.take(d, i, axis - batch) for d, i in flat])
    return [picked.reshape(*lead, *picked.shape[1:])]


@GATHER_ND.lowering(wide=True)
def gather_nd(to: Lowerer) -> None:
    """One index from each tuple (a weighted sum), then GATHER from the data seen flat."""
    data, indices = to.input(0), _indices(to, 1)
    depth = indices.dims[-1]
    to.require(0 not in (*data.dims, *indices.dims) and depth <= data.rank, "known dimensions", [data.dims, indices.dims])
    to.require(data.type in (*FLOATS, *QUANT8, INT32), "floats, 8-bit integers or int32", to.declared(0))
    weights = [math.prod(data.dims[k + 1 : depth]) for k in range(depth)]
    count = math.prod(indices.dims[:-1])
    if indices.data is not None:
        summed = (indices.data.astype(np.int64) * np.array(weights)).sum(-1).reshape(-1)
        flat = to.draft.ints([int(v) for v in summed])
    else:
        flat = _weighted_sum(to, to.reshaped(indices, (count, depth)), weights)
    rest = data.dims[depth:]
    seen = to.reshaped(data, (math.prod(data.dims[:depth]), math.prod(rest)))
    picked = to.emit(OperationCode.GATHER, seen, to.scalar(0), flat)
    to.reshaped(picked, (*indices.dims[:-1], *rest), out=to.out)


def _weighted_sum(to: Lowerer, tuples: Value, weights: list[int]) -> Value:
    count = tuples.dims[0]
    total: Value | None = None
    for column, weight in zip(to.slices(tuples, 1), weights, strict=True):
        part = column if weight == 1 else to.emit(OperationCode.MUL, column, to.fill(weight, column))
        total = part if total is None else to.emit(OperationCode.ADD, total, part)
    assert total is not None
    return to.reshaped(total, (count,))


@GATHER_ND.host_kernel
def host_gather_nd(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, indices = data_of(inputs[0]), data_of(inputs[1])
    limits = np.array(data.shape[: indices.shape[-1]])
    if ((indices < 0) | (indices >= limits)).any():
        raise IndexError(f"indices below {limits.tolist()}")
    return [data[tuple(np.moveaxis(indices, -1, 0))]]


@SCATTER_ND.host_kernel
def host_scatter_nd(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    indices, updates = data_of(inputs[0]), data_of(inputs[1])
    result = np.zeros(bounded(integers(inputs[2])), updates.dtype)
    np.add.at(result, tuple(np.moveaxis(indices, -1, 0)), updates)
    return [result]


@ONE_HOT.lowering(wide=True)
def one_hot(to: Lowerer) -> None:
    """Indices compared with 0, 1, … along a new axis, then SELECT of the two values."""
    indices = _indices(to, 0)
    shape, depth = to.shape(0), to.integer(1)
    axis = to.axis(to.option("axis"), len(shape) + 1)
    to.require(depth > 0 and to.out.type in (*FLOATS, *QUANT8, INT32), "a type that SELECT supports", to.declared_output())
    dims = (*shape[:axis], depth, *shape[axis:])
    to.draft.spend(depth)
    counted = np.arange(depth, dtype=np.int32).reshape((1,) * axis + (depth,) + (1,) * (len(shape) - axis))
    grown = to.reshaped(indices, (*shape[:axis], 1, *shape[axis:]))
    hit = to.emit(OperationCode.EQUAL, grown, to.tensor(counted, indices), out=Value(BOOL8, dims))
    on, off = (to.broadcast(to.input(i), dims) for i in (2, 3))
    to.finish(OperationCode.SELECT, hit, on, off)


@ONE_HOT.host_kernel
def host_one_hot(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    indices, depth = data_of(inputs[0]), integers(inputs[1])[0]
    on, off = (first(t) for t in inputs[2:4])
    made = np.full(bounded([*indices.shape, depth]), off)
    inside = (indices >= 0) & (indices < depth)
    places = (*np.nonzero(inside), indices[inside])
    made[places] = on
    return [np.moveaxis(made, -1, options["axis"])]


@HASHTABLE_LOOKUP.host_kernel
def host_hashtable_lookup(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Rows by key, whatever their type; 0 where there is no such key."""
    asked, keys, rows = map(data_of, inputs)
    at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    hits = keys[at] == asked
    found = np.where(hits.reshape(-1, *(1,) * (rows.ndim - 1)), rows[at], rows.dtype.type(0))
    return [found, hits.astype(np.uint8)]


@SPARSE_TO_DENSE.host_kernel
def host_sparse_to_dense(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    indices, shape = data_of(inputs[0]), integers(inputs[1])
    values, default = data_of(inputs[2]), first(inputs[3])
    result = np.full(shape, default, values.dtype)
    listed = indices.reshape(-1, len(shape)) if indices.ndim > 1 or len(shape) == 1 else indices.reshape(1, -1)
    result[tuple(listed.T)] = values
    return [result]


@EMBEDDING_LOOKUP.host_kernel
def host_lookup(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    ids, table = data_of(inputs[0]), inputs[1]
    if ids.size and not 0 <= ids.min() <= ids.max() < len(data_of(table)):
        raise ValueError(f"rows below {len(data_of(table))}, found {ids.min()} to {ids.max()}")
    rows = data_of(table)[ids]
    if outputs[0].dtype.kind != "f" or rows.dtype.kind == "f":
        return [rows]
    return [(rows.astype(np.float32) - table.zero_point) * np.float32(table.scale)]


_COMBINED: Mapping[int, Callable[[Array], Array]] = {0: np.ones_like, 1: lambda weights: weights, 2: np.square}
"""CombinerType (sum, mean, by the root of squares) → what a bucket's divisor gathers of its weights."""


@EMBEDDING_LOOKUP_SPARSE.host_kernel
def host_sparse_lookup(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    ids, indices, weights, table = (data_of(inputs[i]) for i in (0, 1, 3, 4))
    shape, combiner = integers(inputs[2])[:-1], int(options["combiner"])
    if ((ids < 0) | (ids >= len(table))).any():
        raise ValueError(f"rows below {len(table)}, found {ids.min()} to {ids.max()}")
    result = np.zeros((*shape, *table.shape[1:]), table.dtype)
    divisor = np.zeros(shape, table.dtype)
    buckets = tuple(indices[:, :-1].T)
    np.add.at(result, buckets, table[ids] * weights.reshape(-1, *[1] * (table.ndim - 1)))
    np.add.at(divisor, buckets, _COMBINED[combiner](weights))
    if combiner == 0:
        return [result]
    whole = np.where(divisor == 0, 1, np.sqrt(divisor) if combiner == 2 else divisor)
    return [result / whole.reshape(*shape, *[1] * (table.ndim - 1))]


_SPARSE, _DENSE = 1, 2
"""LSHProjectionType of numbers and of single bits."""


@LSH_PROJECTION.lowering()
def hash_projection(to: Lowerer) -> None:
    """LSH_PROJECTION: TFLite's sparse projections are NNAPI's of type 3, without weights."""
    kind = to.option("type")
    to.require(kind in (_SPARSE, _DENSE), "a sparse or dense projection", kind)
    # The delegate adds no operand in place of the weights of a dense projection, and the operation has too few.
    to.require(to.has(2) == (kind == _DENSE), "weights only for dense projections", to.count, stage=Stage.BUILDING)
    weights = to.optional(2, FLOAT32)
    to.finish(OperationCode.LSH_PROJECTION, to.input(0), to.input(1), weights, to.scalar(3 if kind == _SPARSE else kind))


@LSH_PROJECTION.host_kernel
def host_hash_projection(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    bits = projected_bits(data_of(inputs[0]), data_of(inputs[1]), inputs[2].value if len(inputs) > 2 else None)
    return [bits.reshape(-1) if options["type"] == _DENSE else numbers_of_bits(bits, offset=True)]

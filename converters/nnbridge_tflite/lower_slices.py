"""Slices and look-ups by index."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnbridge.converters.draft import Value
from nnbridge.types import OperationCode
from nnbridge_tflite.lower_elementwise import broadcast
from nnbridge_tflite.lower_shapes import units
from nnbridge_tflite.lowering import BOOL8, FLOAT32, FLOATS, INT32, QUANT8, Lowerer, lowers, product


@lowers("SLICE")
def slice_(x: Lowerer) -> None:
    """SLICE; a size of -1 means "to the end"."""
    shape, begin, size = x.shape(0), x.integers(1), x.integers(2)
    x.require(len(begin) == len(size) == len(shape), f"{len(shape)} begins and sizes", [begin, size])
    sizes = [d - b if s == -1 else s for d, b, s in zip(shape, begin, size, strict=True)]
    x.emit(OperationCode.SLICE, x.input(0), x.ints(begin), x.ints(sizes))


@dataclass(frozen=True, slots=True)
class Cut:
    """What a STRIDED_SLICE takes of one dimension."""

    begin: int
    size: int
    stride: int

    @property
    def end(self) -> int:
        """The first index that is not taken; below 0 where a backward cut reaches the front."""
        return self.begin + self.size * self.stride


@dataclass(frozen=True, slots=True)
class Cuts:
    """A STRIDED_SLICE with its masks worked out."""

    cuts: tuple[Cut, ...]
    shape: tuple[int, ...]
    """The result's dimensions: dropped axes gone, new ones in place."""

    @property
    def sizes(self) -> list[int]:
        """The result's size along each of the input's dimensions."""
        return [cut.size for cut in self.cuts]


def cuts(x: Lowerer) -> Cuts:
    """The ranges that a STRIDED_SLICE names, by Python's rules, with ellipsis and new axes."""
    shape = x.shape(0)
    begins, ends, steps = x.integers(1), x.integers(2), x.integers(3)
    x.require(len(begins) == len(ends) == len(steps) and 0 not in steps, "begins, ends and strides", [begins, ends, steps])
    masks = {name: x.option(f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    taken: list[Cut] = []
    result: list[int] = []

    def marked(mask: str, i: int) -> bool:
        return bool(masks[mask] >> i & 1)

    named = sum(not marked("new_axis", i) and not marked("ellipsis", i) for i in range(len(begins)))
    x.require(named <= len(shape), f"at most {len(shape)} ranges", named)
    skipped = len(shape) - named
    if not any(marked("ellipsis", i) for i in range(len(begins))):
        trailing, skipped = skipped, 0
    else:
        trailing = 0
    for i, (begin, end, step) in enumerate(zip(begins, ends, steps, strict=True)):
        if marked("ellipsis", i):
            for size in shape[len(taken) : len(taken) + skipped]:
                taken.append(Cut(0, size, 1))
                result.append(size)
            skipped = 0
            continue
        if marked("new_axis", i):
            result.append(1)
            continue
        size = shape[len(taken)]
        if marked("shrink_axis", i):
            at = begin + size if begin < 0 else begin
            x.require(0 <= at < size, f"an index in [{-size}, {size})", begin)
            taken.append(Cut(at, 1, 1))
            continue
        if x.option("offset", False):
            end += begin
        picked = range(size)[slice(None if marked("begin", i) else begin, None if marked("end", i) else end, step)]
        taken.append(Cut(picked.start, len(picked), step))
        result.append(len(picked))
    for size in shape[len(shape) - trailing :] if trailing else ():
        taken.append(Cut(0, size, 1))
        result.append(size)
    return Cuts(tuple(taken), tuple(result))


@lowers("STRIDED_SLICE")
def strided_slice(x: Lowerer) -> None:
    """STRIDED_SLICE with NNAPI's three masks."""
    for mask in ("ellipsis_mask", "new_axis_mask"):
        x.require(x.option(mask) == 0, f"no {mask}", x.option(mask))
    x.require(not x.option("offset", False), "ends that do not count from begin", "offset")
    # NNAPI takes the end of a dropped axis as it stands, which is before the last index where that is -1.
    from_end = any(begin < 0 and x.option("shrink_axis_mask") >> i & 1 for i, begin in enumerate(x.integers(1)))
    x.require(not from_end or 0 not in x.input(0).dims, "known dimensions for an index from the end", x.input(0).dims)
    ranges = [x.ints(x.integers(i)) for i in (1, 2, 3)]
    masks = [x.i32(x.option(name)) for name in ("begin_mask", "end_mask", "shrink_axis_mask")]
    x.emit(OperationCode.STRIDED_SLICE, x.input(0), *ranges, *masks)


@lowers("STRIDED_SLICE", wide=True)
def strided_slice_plain(x: Lowerer) -> None:
    """Ranges without masks, as SLICE where every stride is 1, then RESHAPE for dropped and new axes."""
    data, cut = x.input(0), cuts(x)
    x.require(0 not in cut.sizes, "a slice that is not empty", cut.sizes)
    if cut.sizes == list(data.dims) and all(c.stride == 1 for c in cut.cuts):
        x.reshaped(data, cut.shape, out=x.out)
        return
    target = x.out if tuple(cut.sizes) == (cut.shape or (1,)) else data.like(dims=tuple(cut.sizes))
    begins = x.ints([c.begin for c in cut.cuts])
    if all(c.stride == 1 for c in cut.cuts):
        x.emit(OperationCode.SLICE, data, begins, x.ints(cut.sizes), out=target)
    else:
        open_ends = sum(1 << i for i, c in enumerate(cut.cuts) if c.end < 0)
        ends, steps = x.ints([c.end for c in cut.cuts]), x.ints([c.stride for c in cut.cuts])
        none = x.i32(0)
        x.emit(OperationCode.STRIDED_SLICE, data, begins, ends, steps, none, x.i32(open_ends), none, out=target)
    if target is not x.out:
        x.reshaped(target, cut.shape, out=x.out)


@lowers("GATHER")
def gather(x: Lowerer) -> None:
    """GATHER along an axis; NNAPI has the axis second."""
    x.require(x.option("batch_dims") == 0, "no batch dimensions", x.option("batch_dims"))
    x.require(x.shape(1), "indices of rank 1 or more", "a scalar")
    axis = x.axis(x.option("axis"), x.input(0).rank)
    x.emit(OperationCode.GATHER, x.input(0), x.i32(axis), _indices(x, 1))


@lowers("GATHER", wide=True)
def gather_scalar(x: Lowerer) -> None:
    """A scalar index: GATHER, then RESHAPE without the axis."""
    x.require(x.option("batch_dims") == 0 and not x.shape(1), "a scalar index", x.shape(1))
    data = x.input(0)
    axis = x.axis(x.option("axis"), data.rank)
    picked = x.temp(OperationCode.GATHER, data, x.i32(axis), _indices(x, 1))
    x.reshaped(picked, data.dims[:axis] + data.dims[axis + 1 :] or (1,), out=x.out)


def _indices(x: Lowerer, i: int) -> Value:
    """Indices as int32; constant int64 ones that fit are converted."""
    value = x.input(i)
    if value.type == INT32:
        return value
    return x.draft.ints(x.integers(i), value.dims)


@lowers("GATHER_ND", wide=True)
def gather_nd(x: Lowerer) -> None:
    """One index from each tuple (a weighted sum), then GATHER from the data seen flat."""
    data, indices = x.input(0), _indices(x, 1)
    depth = indices.dims[-1]
    x.require(0 not in (*data.dims, *indices.dims) and depth <= data.rank, "known dimensions", [data.dims, indices.dims])
    x.require(data.type in (*FLOATS, *QUANT8, INT32), "floats, 8-bit integers or int32", x.tensor(0))
    weights = [product(data.dims[k + 1 : depth]) for k in range(depth)]
    count = product(indices.dims[:-1])
    if indices.data is not None:
        summed = (indices.data.astype(np.int64) * np.array(weights)).sum(-1).reshape(-1)
        flat = x.draft.ints([int(v) for v in summed])
    else:
        flat = _weighted_sum(x, x.reshaped(indices, (count, depth)), weights)
    rest = data.dims[depth:]
    seen = x.reshaped(data, (product(data.dims[:depth]), product(rest)))
    picked = x.temp(OperationCode.GATHER, seen, x.i32(0), flat)
    x.reshaped(picked, (*indices.dims[:-1], *rest), out=x.out)


def _weighted_sum(x: Lowerer, tuples: Value, weights: list[int]) -> Value:
    count = tuples.dims[0]
    total: Value | None = None
    for column, weight in zip(units(x, tuples, 1), weights, strict=True):
        part = column if weight == 1 else x.temp(OperationCode.MUL, column, x.fill(weight, column), x.i32(0))
        total = part if total is None else x.temp(OperationCode.ADD, total, part, x.i32(0))
    assert total is not None
    return x.reshaped(total, (count,))


@lowers("ONE_HOT", wide=True)
def one_hot(x: Lowerer) -> None:
    """Indices compared with 0, 1, … along a new axis, then SELECT of the two values."""
    indices = _indices(x, 0)
    shape, depth = x.shape(0), x.integer(1)
    axis = x.axis(x.option("axis", -1), len(shape) + 1)
    x.require(depth > 0 and x.out.type in (*FLOATS, *QUANT8, INT32), "a type that SELECT takes", x.output_tensor())
    dims = (*shape[:axis], depth, *shape[axis:])
    x.draft.spend(depth)
    counted = np.arange(depth, dtype=np.int32).reshape((1,) * axis + (depth,) + (1,) * (len(shape) - axis))
    grown = x.reshaped(indices, (*shape[:axis], 1, *shape[axis:]))
    hit = x.emit(OperationCode.EQUAL, grown, x.array(counted, indices), out=Value(BOOL8, dims))
    on, off = (broadcast(x, x.input(i), dims) for i in (2, 3))
    x.emit(OperationCode.SELECT, hit, on, off)


@lowers("LSH_PROJECTION")
def hash_projection(x: Lowerer) -> None:
    """LSH_PROJECTION: TFLite's sparse projections are NNAPI's of type 3, without weights."""
    sparse, dense = 1, 2
    kind = x.option("type")
    x.require(kind in (sparse, dense), "a sparse or dense projection", kind)
    x.require(x.has(2) == (kind == dense), "weights for dense projections alone", x.count)
    weights = x.optional(2, FLOAT32)
    x.emit(OperationCode.LSH_PROJECTION, x.input(0), x.input(1), weights, x.i32(3 if kind == sparse else dense))


@lowers("EMBEDDING_LOOKUP")
def embedding_lookup(x: Lowerer) -> None:
    """EMBEDDING_LOOKUP."""
    x.emit(OperationCode.EMBEDDING_LOOKUP, x.input(0), x.input(1))


@lowers("HASHTABLE_LOOKUP")
def hashtable_lookup(x: Lowerer) -> None:
    """HASHTABLE_LOOKUP."""
    x.emit(OperationCode.HASHTABLE_LOOKUP, *x.inputs(), out=x.outputs)


@lowers("ARG_MAX", "ARG_MIN")
def arg_extreme(x: Lowerer) -> None:
    """ARGMAX, ARGMIN; NNAPI answers int32."""
    code = OperationCode.ARGMAX if x.name == "ARG_MAX" else OperationCode.ARGMIN
    x.emit(code, x.input(0), x.i32(x.axis(x.integer(1), x.input(0).rank)))


@lowers("TOPK_V2")
def top_k(x: Lowerer) -> None:
    """TOPK_V2; of equal numbers NNAPI takes the last first, TFLite the first, which shows where there are few numbers."""
    x.require(x.input(0).type in FLOATS or not x.free, "floats", x.tensor(0))
    x.emit(OperationCode.TOPK_V2, x.input(0), x.i32(x.integer(1)), out=x.outputs)

"""Tables, hashes and random choice: EMBEDDING_LOOKUP, HASHTABLE_LOOKUP, LSH_PROJECTION, RANDOM_MULTINOMIAL."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from nnbridge.model import Array
from nnbridge.operations.call import Call
from nnbridge.operations.declaration import Input, Output, at_least, fixed, like, operation, rank, tensors, types
from nnbridge.operations.farmhash import fingerprint64
from nnbridge.operations.kernels import prepared
from nnbridge.operations.philox import uniform
from nnbridge.types import FLOATS, OperationCode
from nnbridge.types import OperandCode as T


@operation(
    OperationCode.EMBEDDING_LOOKUP,
    since=1,
    summary="Rows of a table by number.",
    types=tensors(FLOAT32=1, INT32=3, QUANT8_ASYMM=3, FLOAT16=4, QUANT8_ASYMM_SIGNED=4),
    inputs=[
        Input("lookups", T.TENSOR_INT32, "row numbers", rank=rank(1)),
        Input("values", "T", "the table, rows first", rank=at_least(2)),
    ],
    outputs=[Output("output", "T", "one row for each number", like("values"))],
    shape=lambda call: (call["lookups"].dims[0], *call["values"].dims[1:]),
    handled="executor",
    half="native",
)
@prepared("lookups", "values")
def embedding_lookup(call: Call) -> Callable[[Array, Array], Array]:
    """A number outside the table fails."""

    def look_up(rows: Array, table: Array) -> Array:
        try:
            # Seen without sign, negative numbers are outside as well.
            return table.take(rows.view(np.uint32), axis=0)
        except IndexError:
            outside = rows[rows.view(np.uint32) >= len(table)]
            call.fail(f"row numbers from 0 to {len(table) - 1}", outside[:1], "lookups")

    return look_up


def _hashtable_shape(call: Call) -> list[tuple[int, ...]]:
    lookups, values = call["lookups"].dims, call["values"].dims
    rule = "as many keys as values"
    call.require(call["keys"].dims[0] == values[0], rule, f"{call['keys'].dims[0]} and {values[0]}", "keys")
    return [(lookups[0], *values[1:]), lookups]


@operation(
    OperationCode.HASHTABLE_LOOKUP,
    since=1,
    summary="Rows of a table by key.",
    types=tensors(FLOAT32=1, INT32=1, QUANT8_ASYMM=1),
    inputs=[
        Input("lookups", T.TENSOR_INT32, "keys to look up", rank=rank(1)),
        Input("keys", T.TENSOR_INT32, "the table's keys in ascending order", rank=rank(1)),
        Input("values", "T", "the table, rows first", rank=at_least(1)),
    ],
    counts={3: 1},
    outputs=[
        Output("output", "T", "one row for each key; raw zeros for a miss", like("values")),
        Output("hits", T.TENSOR_QUANT8_ASYMM, "1 for a hit, 0 for a miss", fixed({T.TENSOR_QUANT8_ASYMM: (1.0, 0)})),
    ],
    shape=_hashtable_shape,
    handled="executor",
)
def hashtable_lookup(call: Call) -> Sequence[Array]:
    """Binary search (N174)."""
    lookups, keys, table = call["lookups"].data, call["keys"].data, call["values"].data
    index = np.minimum(np.searchsorted(keys, lookups), len(keys) - 1)
    hits = keys[index] == lookups
    rows = table[index]
    rows[~hits] = 0
    return rows, hits


_SPARSE_DEPRECATED, _DENSE, _SPARSE = 1, 2, 3


def _lsh_shape(call: Call) -> tuple[int, ...]:
    for name in ("hash", "input", "type"):
        call.require(call[name].present, "a value", "none", name)
    hashes, bits = call["hash"].dims
    kind, weight = int(call.scalar("type")), call.get("weight")
    call.require(bits <= 32, "at most 32 bits", bits, "hash")
    call.require(kind in (_SPARSE_DEPRECATED, _DENSE, _SPARSE), "a type of 1, 2 (dense) or 3 (sparse)", kind, "type")
    if kind == _DENSE:
        call.require(weight is not None, "a weight for the dense type", "none", "weight")
        assert weight is not None
        items = call["input"].dims[0]
        call.require(weight.dims == (items,), f"a weight of [{items}]", list(weight.dims), "weight")
        return (hashes * bits,)
    call.require(weight is None, "no weight for a sparse type", "one", "weight")
    return (hashes,)


@operation(
    OperationCode.LSH_PROJECTION,
    since=1,
    summary="Locality-sensitive hashes of an input's items.",
    types=[
        types(3 if T.TENSOR_FLOAT16 in (kind, seed) else 1, H=seed, T=kind)
        for seed in FLOATS
        for kind in (T.TENSOR_FLOAT16, T.TENSOR_FLOAT32, T.TENSOR_INT32, T.TENSOR_QUANT8_ASYMM)
    ],
    inputs=[
        Input("hash", "H", "seeds [hashes, bits], at most 32 bits", rank=rank(2)),
        Input("input", "T", "items, first dimension first", rank=at_least(1)),
        Input("weight", "H", "weight of each item, for the dense type", rank=rank(1), optional=True),
        Input("type", T.INT32, "1 sparse without offsets (deprecated), 2 dense, 3 sparse"),
    ],
    counts={4: 1},
    outputs=[Output("output", T.TENSOR_INT32, "one number a hash (sparse), or one bit an element (dense)")],
    shape=_lsh_shape,
    zero_sized=True,
    omitted=True,
    half="native",
)
def lsh_projection(call: Call) -> Array:
    """N173: a bit is the sign of the weighted sum of the items' fingerprints, each with the bit's seed in front."""
    weight, kind = call.get("weight"), int(call.scalar("type"))
    seeds = call["hash"].data.astype(np.float32)
    bits = projected_bits(seeds, call["input"].data, None if weight is None else weight.data)
    return bits.reshape(-1) if kind == _DENSE else numbers_of_bits(bits, offset=kind == _SPARSE)


def projected_bits(seeds: Array, items: Array, weights: Array | None) -> npt.NDArray[np.int64]:
    """The bit of each seed [hashes, bits]."""
    raw = np.ascontiguousarray(items.reshape(items.shape[0], math.prod(items.shape[1:]))).view(np.uint8)
    prefix = np.ascontiguousarray(seeds.reshape(-1, 1)).view(np.uint8)
    rows = np.concatenate([np.repeat(prefix, len(raw), axis=0), np.tile(raw, (len(prefix), 1))], axis=1)
    prints = fingerprint64(rows).view(np.int64).astype(np.float64).reshape(len(prefix), len(raw))
    weighted = prints if weights is None else prints * weights.astype(np.float64)
    return (weighted.sum(axis=1) > 0).reshape(seeds.shape).astype(np.int64)


def numbers_of_bits(bits: npt.NDArray[np.int64], *, offset: bool) -> npt.NDArray[np.int64]:
    """Each hash's bits as a number, the first bit highest; with an offset, no two hashes have a number in common."""
    count = bits.shape[1]
    numbers = bits @ (1 << np.arange(count - 1, -1, -1))
    return numbers + (np.arange(len(numbers)) << count) if offset else numbers


def _multinomial_shape(call: Call) -> tuple[int, ...]:
    samples = int(call.scalar("samples"))
    call.require(samples >= 0, "a number of samples of at least 0", samples, "samples")
    return call["logits"].dims[0], samples


def _first_above(sorted_rows: npt.NDArray[np.float64], targets: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """In each row, the first index whose value exceeds each target, or the row's length: a binary search of all at once."""
    low = np.zeros(targets.shape, np.int64)
    high = np.full(targets.shape, sorted_rows.shape[1])
    for _ in range(sorted_rows.shape[1].bit_length()):
        middle = (low + high) // 2
        # Where the search has ended, the middle may lie past the row; what is read there changes nothing.
        read = np.take_along_axis(sorted_rows, np.minimum(middle, sorted_rows.shape[1] - 1), axis=1)
        above, open_ = read > targets, low < high
        high = np.where(open_ & above, middle, high)
        low = np.where(open_ & ~above, middle + 1, low)
    return low


@operation(
    OperationCode.RANDOM_MULTINOMIAL,
    since=3,
    summary="Class numbers drawn with the probabilities of softmax(logits).",
    types=tensors(FLOAT32=3, FLOAT16=3),
    inputs=[
        Input("logits", "T", "unnormalised log-probabilities [batch, classes]", rank=rank(2)),
        Input("samples", T.INT32, "draws for each row"),
        Input("seeds", T.TENSOR_INT32, "two seeds; both 0: different draws each time", rank=rank(1)),
    ],
    outputs=[Output("output", T.TENSOR_INT32, "class numbers [batch, samples]")],
    shape=_multinomial_shape,
    handled="executor",
)
def random_multinomial(call: Call) -> Array:
    """N175: the draws of Android's CPU for the same seeds; infinite and NaN logits are never drawn."""
    logits, seeds = call["logits"].data.astype(np.float64), call["seeds"].data
    call.require(seeds.shape == (2,), "two seeds", list(seeds.shape), "seeds")
    first, second = (int(s) for s in seeds) if seeds.any() else (secrets.randbits(64), secrets.randbits(64))
    finite = np.isfinite(logits)
    largest = np.max(logits, axis=1, keepdims=True, where=finite, initial=-float(np.finfo(np.float32).max))
    cumulative = np.cumsum(np.where(finite, np.exp(logits - largest), 0), axis=1)
    batch, samples = call.out.dims
    targets = uniform(batch * samples, (first, second)).reshape(batch, samples) * cumulative[:, -1:]
    return _first_above(cumulative, targets)

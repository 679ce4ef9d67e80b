"""NumPy kernels of operators that choose, group or scatter: non-maximum suppression, segments, diagonals, buckets."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnbridge.extensions import HostKernel
from nnbridge.operations.farmhash import fingerprint64
from nnbridge_tflite.kernels import KERNELS, Array, Options, Tensors, given, integers, kernel, real


def _overlap(box: Array, others: Array) -> Array:
    """Intersection over union of one box with others; corners may come in any order."""
    low, high = np.minimum(box[:2], box[2:]), np.maximum(box[:2], box[2:])
    lows, highs = np.minimum(others[:, :2], others[:, 2:]), np.maximum(others[:, :2], others[:, 2:])
    shared = np.clip(np.minimum(high, highs) - np.maximum(low, lows), 0, None).prod(-1)
    areas = (high - low).prod(), (highs - lows).prod(-1)
    union = areas[0] + areas[1] - shared
    return np.where((areas[0] > 0) & (areas[1] > 0), shared / np.where(union > 0, union, 1), 0)


def _suppressed(boxes: Array, scores: Array, limit: int, overlap: float, least: float, sigma: float) -> list[tuple[int, float]]:
    """Greedy choice by score; with a sigma, overlapping boxes lose score instead of being dropped at once."""
    queue = [(-float(s), i, 0) for i, s in enumerate(scores) if s > least]
    heapq.heapify(queue)
    chosen: list[tuple[int, float]] = []
    while queue and len(chosen) < limit:
        score, i, seen = heapq.heappop(queue)
        shared = _overlap(boxes[i], boxes[[c for c, _ in chosen[seen:]]].reshape(-1, 4))[::-1]
        if (shared >= overlap).any():
            continue
        lowered = -score * float(np.exp(-0.5 / sigma * np.square(shared)).prod()) if sigma > 0 else -score
        if lowered == -score:
            chosen.append((i, -score))
        elif lowered > least:
            heapq.heappush(queue, (-lowered, i, len(chosen)))
    return chosen


@kernel("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Indices of the boxes that stay, padded with zeros, with their scores where they may change, and how many there are."""
    boxes, scores = real(inputs[0]), real(inputs[1])
    limit = integers(inputs[2])[0]
    overlap, least, *sigma = (float(given(t).reshape(-1)[0]) for t in inputs[3:])
    chosen = _suppressed(boxes, scores, limit, overlap, least, sigma[0] if sigma else 0.0)
    indices, kept = np.zeros(limit, np.int32), np.zeros(limit, np.float32)
    for place, (i, score) in enumerate(chosen):
        indices[place], kept[place] = i, score
    count = np.array(len(chosen), np.int32)
    return [indices, kept, count] if sigma else [indices, count]


_SEGMENTS: Mapping[str, tuple[Any, Callable[[np.dtype[Any]], Any]]] = {
    "UNSORTED_SEGMENT_MAX": (np.maximum, lambda d: np.finfo(str(d)).min if d.kind == "f" else np.iinfo(str(d)).min),
    "UNSORTED_SEGMENT_MIN": (np.minimum, lambda d: np.finfo(str(d)).max if d.kind == "f" else np.iinfo(str(d)).max),
    "UNSORTED_SEGMENT_PROD": (np.multiply, lambda d: 1),
    "UNSORTED_SEGMENT_SUM": (np.add, lambda d: 0),
}
"""Operator → how a segment gathers its slices, and what an empty one holds."""


def _segments(function: Any, empty: Callable[[np.dtype[Any]], Any]) -> HostKernel:
    def run(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
        data, segments, count = given(inputs[0]), given(inputs[1]), integers(inputs[2])[0]
        flat = data.reshape(segments.size, *data.shape[segments.ndim :])
        made = np.full((count, *flat.shape[1:]), empty(data.dtype), data.dtype)
        kept = segments.reshape(-1) >= 0
        function.at(made, segments.reshape(-1)[kept], flat[kept])
        return [made]

    return run


KERNELS.update({name: _segments(*how) for name, how in _SEGMENTS.items()})


@kernel("MATRIX_DIAG")
def matrix_diagonal(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Matrices that are zero but for their diagonals."""
    data = given(inputs[0])
    return [data[..., None] * np.eye(data.shape[-1], dtype=data.dtype)]


@kernel("MATRIX_SET_DIAG")
def matrix_set_diagonal(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Matrices with other diagonals."""
    made, diagonal = given(inputs[0]).copy(), given(inputs[1])
    places = np.arange(diagonal.shape[-1])
    made[..., places, places] = diagonal
    return [made]


@kernel("SPARSE_TO_DENSE")
def sparse_to_dense(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Values at indices of an array of one default value."""
    indices, shape = given(inputs[0]), integers(inputs[1])
    values, default = given(inputs[2]), given(inputs[3]).reshape(-1)[0]
    made = np.full(shape, default, values.dtype)
    listed = indices.reshape(-1, len(shape)) if indices.ndim > 1 or len(shape) == 1 else indices.reshape(1, -1)
    made[tuple(listed.T)] = values
    return [made]


@kernel("BUCKETIZE")
def bucketize(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Which of the intervals between boundaries each number lies in."""
    return [np.searchsorted(np.asarray(options.get("boundaries") or (), np.float32), given(inputs[0]), "right").astype(np.int32)]


@kernel("BITCAST")
def bitcast(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The same bytes as another type."""
    return [np.ascontiguousarray(given(inputs[0])).view(outputs[0].dtype)]


@kernel("HASHTABLE_FIND")
def table_values(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The values of keys in a table of numbers; a default for keys that it does not have."""
    if len(inputs) != 4:
        raise ValueError("a table of numbers; nnbridge's host holds no strings")
    keys, values, query, default = (given(tensor) for tensor in inputs)
    order = np.argsort(keys, kind="stable")
    places = np.searchsorted(keys, query, sorter=order).clip(0, keys.size - 1)
    chosen = order[places]
    return [np.where(keys[chosen] == query, values[chosen], default.reshape(-1)[0])]


@kernel("LSH_PROJECTION")
def hash_projection(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Bits by the sign of the items' weighted fingerprints behind each seed: one by one, or as one number for each hash."""
    seeds, items = given(inputs[0]), np.ascontiguousarray(given(inputs[1]))
    weights = given(inputs[2]).astype(np.float64) if len(inputs) > 2 and inputs[2].data is not None else 1.0
    raw = items.reshape(len(items), -1).view(np.uint8)
    prefix = np.ascontiguousarray(seeds.reshape(-1, 1)).view(np.uint8)
    rows = np.concatenate([np.repeat(prefix, len(raw), axis=0), np.tile(raw, (len(prefix), 1))], axis=1)
    prints = fingerprint64(rows).view(np.int64).astype(np.float64).reshape(len(prefix), len(raw))
    bits = ((prints * weights).sum(axis=1) > 0).reshape(seeds.shape).astype(np.int64)
    if options.get("type") == _DENSE:
        return [bits.reshape(-1)]
    count = seeds.shape[1]
    return [bits @ (1 << np.arange(count - 1, -1, -1)) + (np.arange(len(bits)) << count)]


_DENSE = 2
"""LSHProjectionType of single bits."""


@kernel("EMBEDDING_LOOKUP")
def lookup(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Rows of a table of any type; 8-bit rows as floats where the answer is floats."""
    ids, table = given(inputs[0]), inputs[1]
    if ids.size and not 0 <= ids.min() <= ids.max() < len(given(table)):
        raise ValueError(f"rows below {len(given(table))}, found {ids.min()} to {ids.max()}")
    rows = given(table)[ids]
    if outputs[0].dtype.kind != "f" or rows.dtype.kind == "f":
        return [rows]
    return [(rows.astype(np.float32) - table.zero_point) * np.float32(table.scale)]


_COMBINED: Mapping[int, Callable[[Array], Array]] = {
    0: np.ones_like,
    1: lambda weights: weights,
    2: np.square,
}
"""CombinerType (sum, mean, by the root of squares) → what a bucket's divisor gathers of its weights."""


@kernel("EMBEDDING_LOOKUP_SPARSE")
def sparse_lookup(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Weighted rows of a table, added up by bucket: the leading indices of a sparse tensor's entries."""
    ids, indices, weights, table = (given(inputs[i]) for i in (0, 1, 3, 4))
    shape, combiner = integers(inputs[2])[:-1], int(options.get("combiner") or 0)
    if ((ids < 0) | (ids >= len(table))).any():
        raise ValueError(f"rows below {len(table)}, found {ids.min()} to {ids.max()}")
    made = np.zeros((*shape, *table.shape[1:]), table.dtype)
    divisor = np.zeros(shape, table.dtype)
    buckets = tuple(indices[:, :-1].T)
    np.add.at(made, buckets, table[ids] * weights.reshape(-1, *[1] * (table.ndim - 1)))
    np.add.at(divisor, buckets, _COMBINED[combiner](weights))
    if combiner == 0:
        return [made]
    whole = np.where(divisor == 0, 1, np.sqrt(divisor) if combiner == 2 else divisor)
    return [made / whole.reshape(*shape, *[1] * (table.ndim - 1))]

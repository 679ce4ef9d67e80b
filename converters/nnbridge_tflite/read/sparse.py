"""Sparse constants (``SparsityParameters``) as dense arrays.

A sparse tensor is a tree with one level for each entry of ``traversal_order``: first the tensor's dimensions, divided by
their block sizes, then the blocks' own. A dense level has all its children, a compressed one (CSR) those that it lists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnbridge.errors import ConversionError, Reason
from nnbridge.records import dataclass
from nnbridge_tflite.read.flatbuffer import Span
from nnbridge_tflite.read.graph import Tensor

_DENSE = 0
Indexes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Level:
    """One level of the tree: how many children a node has at most, and how far apart they lie in the dense array."""

    limit: int
    stride: int
    size: int
    """Children of each node of a dense level."""
    segments: Indexes | None
    """Begin of each node's children in ``indices``; None for a dense level."""
    indices: Indexes


def dense(tensor: Tensor, raw: memoryview, bytes_at: Callable[[Span], memoryview]) -> npt.NDArray[Any]:
    """All elements of a sparse constant; ConversionError if its description does not fit its shape."""
    dtype = tensor.type.dtype
    assert dtype is not None
    _require(tensor, len(raw) % dtype.itemsize == 0, f"whole values of {dtype.itemsize} bytes", f"{len(raw)} bytes")
    values, levels = np.frombuffer(raw, dtype), _levels(tensor, bytes_at)
    _check_nodes(tensor, levels, len(values))
    places = np.zeros(1, np.int64)
    for level in levels:
        places = _descend(places, level)
    array = np.zeros(tensor.elements, dtype)
    array[places] = values
    return array.reshape(tensor.shape)


def _levels(tensor: Tensor, bytes_at: Callable[[Span], memoryview]) -> list[_Level]:
    """The levels in the order in which the tree has them."""
    sparsity, shape = tensor.sparsity, tensor.shape
    assert sparsity is not None
    tables, traversal, block_map = sparsity["dim_metadata"] or (), sparsity["traversal_order"], sparsity["block_map"]
    blocked = 0 if block_map is None else len(block_map)
    rank, depth = len(shape), 0 if traversal is None else len(traversal)
    _require(tensor, blocked <= rank, f"at most {rank} dimensions in blocks", blocked)
    _require(tensor, len(tables) == depth == rank + blocked, "one level for each dimension and block", len(tables))
    order, blocks = [int(d) for d in traversal] if depth else [], [int(d) for d in block_map] if blocked else []
    _require(tensor, sorted(order) == list(range(depth)), "a permutation as traversal order", order)
    within = len(set(blocks)) == blocked and all(0 <= b < rank for b in blocks)
    _require(tensor, within, f"blocks of different dimensions below {rank}", blocks)
    sizes = {d: int(tables[order.index(rank + b)]["dense_size"]) for b, d in enumerate(blocks)}
    for d, size in sizes.items():
        _require(tensor, size > 0 and shape[d] % size == 0, f"blocks that divide a dimension of {shape[d]}", size)
    strides = [math.prod(shape[d + 1 :]) for d in range(rank)]
    facts = [(shape[d] // sizes.get(d, 1), strides[d] * sizes.get(d, 1)) for d in range(rank)]
    facts += [(sizes[d], strides[d]) for d in blocks]
    return [_level(table, *facts[place], bytes_at) for table, place in zip(tables, order, strict=True)]


def _level(table: Any, limit: int, stride: int, bytes_at: Callable[[Span], memoryview]) -> _Level:
    if table["format"] == _DENSE:
        return _Level(limit, stride, int(table["dense_size"]), None, np.zeros(0, np.int64))
    return _Level(limit, stride, 0, _vector(table["array_segments"], bytes_at), _vector(table["array_indices"], bytes_at))


def _check_nodes(tensor: Tensor, levels: Sequence[_Level], values: int) -> None:
    """The tree has a leaf for each stored value. Nodes are counted before one is made: a few bytes may ask for many."""
    nodes = 1
    for level in levels:
        nodes = _children(tensor, level, nodes)
        _require(tensor, nodes <= tensor.elements, f"at most {tensor.elements} nodes", nodes)
    _require(tensor, nodes == values, f"{nodes} stored values", values)


def _children(tensor: Tensor, level: _Level, parents: int) -> int:
    """The number of nodes of a level."""
    segments, indices = level.segments, level.indices
    if segments is None:
        _require(tensor, 0 <= level.size <= level.limit, f"coordinates inside {list(tensor.shape)}", "others")
        return parents * level.size
    _require(tensor, len(segments) == parents + 1, f"{parents + 1} segments", len(segments))
    fits = bool((np.diff(segments) >= 0).all()) and segments[0] == 0 and segments[-1] == len(indices)
    _require(tensor, fits, "segments that divide the indices", f"{len(indices)} indices")
    inside = len(indices) == 0 or 0 <= indices.min() <= indices.max() < level.limit
    _require(tensor, inside, f"coordinates inside {list(tensor.shape)}", "others")
    return len(indices)


def _descend(parents: Indexes, level: _Level) -> Indexes:
    """The start of every node of the next level in the dense array."""
    if level.segments is None:
        return (parents[:, np.newaxis] + np.arange(level.size) * level.stride).reshape(-1)
    return np.repeat(parents, np.diff(level.segments)) + level.indices * level.stride


def _vector(table: Any, bytes_at: Callable[[Span], memoryview]) -> Indexes:
    """One of the three index vector tables, as int64."""
    values = (table or {}).get("values")
    if values is None:
        return np.zeros(0, np.int64)
    if isinstance(values, Span):
        values = np.frombuffer(bytes_at(values), np.uint8)
    return np.asarray(values, np.int64)


def _require(tensor: Tensor, condition: object, rule: str, found: object) -> None:
    if not condition:
        raise ConversionError(Reason(rule, str(found), "sparse", tensor.label))

"""Sparse constants (``SparsityParameters``) as dense arrays.

A sparse tensor is a tree with one level for each entry of ``traversal_order``: first the tensor's dimensions, divided by
their block sizes, then the blocks' own. A dense level has all its children, a compressed one (CSR) those that it lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnbridge.errors import ConversionError, Reason
from nnbridge_tflite.read.flatbuffer import Span
from nnbridge_tflite.read.graph import Tensor

_DENSE = 0
Indexes = npt.NDArray[np.int64]


def dense(tensor: Tensor, raw: memoryview, bytes_at: Callable[[Span], memoryview]) -> npt.NDArray[Any]:
    """All elements of a sparse constant; ConversionError if its description does not fit its shape."""
    sparsity, dtype = tensor.sparsity, tensor.type.dtype
    assert sparsity is not None
    assert dtype is not None
    levels = sparsity["dim_metadata"] or ()
    order = [int(d) for d in sparsity["traversal_order"]] if sparsity["traversal_order"] is not None else []
    blocks = [int(d) for d in sparsity["block_map"]] if sparsity["block_map"] is not None else []
    rank = len(tensor.shape)
    _require(tensor, len(levels) == len(order) == rank + len(blocks), "one level for each dimension and block", len(levels))
    _require(tensor, sorted(order) == list(range(len(order))), "a permutation as traversal order", order)
    _require(tensor, all(0 <= b < rank for b in blocks), f"blocks of dimensions below {rank}", blocks)
    coordinates = np.zeros((1, 0), np.int64)
    for level in levels:
        coordinates = _descend(tensor, coordinates, level, bytes_at)
    sizes = [int(level["dense_size"]) for level in levels]
    values = np.frombuffer(raw, dtype)
    _require(tensor, len(values) == len(coordinates), f"{len(coordinates)} stored values", len(values))
    array = np.zeros(tensor.shape, dtype)
    position = _dense_coordinates(tensor.shape, order, blocks, coordinates, sizes)
    inside = all((at >= 0).all() and (at < size).all() for at, size in zip(position, tensor.shape, strict=True))
    _require(tensor, inside, f"coordinates inside {list(tensor.shape)}", "others")
    array[position] = values
    return array


def _descend(tensor: Tensor, parents: Indexes, level: Any, bytes_at: Callable[[Span], memoryview]) -> Indexes:
    """Every node of the next level: its parents' coordinates and its own."""
    if level["format"] == _DENSE:
        size = int(level["dense_size"])
        _require(tensor, 0 <= len(parents) * size <= tensor.elements, f"at most {tensor.elements} nodes", len(parents) * size)
        own = np.tile(np.arange(size), len(parents))
        return np.column_stack([np.repeat(parents, size, axis=0), own])
    segments = _vector(level["array_segments"], bytes_at)
    indices = _vector(level["array_indices"], bytes_at)
    _require(tensor, len(segments) == len(parents) + 1, f"{len(parents) + 1} segments", len(segments))
    counts = np.diff(segments)
    fits = (counts >= 0).all() and segments[0] == 0 and segments[-1] == len(indices) and len(indices) <= tensor.elements
    _require(tensor, fits, "segments that divide the indices", f"{len(indices)} indices")
    return np.column_stack([np.repeat(parents, counts, axis=0), indices])


def _vector(table: Any, bytes_at: Callable[[Span], memoryview]) -> Indexes:
    """One of the three index vector tables, as int64."""
    values = (table or {}).get("values")
    if values is None:
        return np.zeros(0, np.int64)
    if isinstance(values, Span):
        values = np.frombuffer(bytes_at(values), np.uint8)
    return np.asarray(values, np.int64)


def _dense_coordinates(
    shape: Sequence[int], order: Sequence[int], blocks: Sequence[int], coordinates: Indexes, sizes: Sequence[int]
) -> tuple[Indexes, ...]:
    """The coordinates in the dense tensor: block times block size, plus the place inside the block."""
    rank = len(shape)
    level_of = {dimension: level for level, dimension in enumerate(order)}
    coordinates_of = [coordinates[:, level_of[d]] for d in range(rank)]
    for b, dimension in enumerate(blocks):
        level = level_of[rank + b]
        coordinates_of[dimension] = coordinates_of[dimension] * sizes[level] + coordinates[:, level]
    return tuple(coordinates_of)


def _require(tensor: Tensor, condition: object, rule: str, found: object) -> None:
    if not condition:
        raise ConversionError(Reason(rule, str(found), "sparse", tensor.label))

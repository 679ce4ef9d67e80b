"""Sparse tensors: DENSIFY."""

from __future__ import annotations

import numpy as np

from nnbridge.model import Array
from nnbridge.operations.call import Call
from nnbridge.operations.declaration import Input, Output, at_least, like, operation, rank, signature, types
from nnbridge.types import FeatureLevel, OperationCode
from nnbridge.types import OperandCode as T

_DENSE, _SPARSE = 0, 1


def _levels(call: Call) -> tuple[list[int], list[int], list[int], list[int]]:
    """Traversal order, block map, dimension formats and dimension sizes."""
    names = ("traversal", "block_map", "formats", "sizes")
    order, blocks, formats, sizes = (
        [] if (arg := call.get(name)) is None else [int(v) for v in arg.data.reshape(-1)] for name in names
    )
    depth = len(order)
    call.require(len(formats) == len(sizes) == depth, f"{depth} formats and sizes", f"{len(formats)}, {len(sizes)}")
    call.require(sorted(order) == list(range(depth)), f"a permutation of 0 to {depth - 1}", order, "traversal")
    call.require(len(call.repeated("metadata")) == 2 * depth, f"{2 * depth} segments and indexes", len(call.args) - 5)
    call.require(all(size >= 0 for size in sizes), "sizes of at least 0", sizes, "sizes")
    outer = depth - len(blocks)
    call.require(all(0 <= b < outer for b in blocks), f"block dimensions below {outer}", blocks, "block_map")
    return order, blocks, formats, sizes


def _densify_shape(call: Call) -> tuple[int, ...]:
    order, blocks, _, sizes = _levels(call)
    size_of = dict(zip(order, sizes, strict=True))
    outer = len(order) - len(blocks)
    dims = [size_of[d] for d in range(outer)]
    for k, dimension in enumerate(blocks):
        dims[dimension] *= size_of[outer + k]
    return tuple(dims)


_SPARSE_TYPES = (
    T.TENSOR_FLOAT32,
    T.TENSOR_FLOAT16,
    T.TENSOR_INT32,
    T.TENSOR_BOOL8,
    T.TENSOR_QUANT8_ASYMM,
    T.TENSOR_QUANT8_ASYMM_SIGNED,
    T.TENSOR_QUANT8_SYMM,
    T.TENSOR_QUANT16_ASYMM,
    T.TENSOR_QUANT16_SYMM,
)


@operation(
    OperationCode.DENSIFY,
    since=FeatureLevel.EXPERIMENTAL,
    summary="A dense tensor from a sparse one in TFLite's hybrid format (experimental).",
    types=[types(FeatureLevel.EXPERIMENTAL, T=kind) for kind in _SPARSE_TYPES],
    signatures=[
        signature(
            [
                Input("values", "T", "the stored values", rank=at_least(1)),
                Input("traversal", T.TENSOR_INT32, "order in which dimensions are walked, blocks last", rank=rank(1)),
                Input("block_map", T.TENSOR_INT32, "dimension that each block belongs to", rank=rank(1), optional=True),
                Input("formats", T.TENSOR_INT32, "0 dense, 1 compressed, for each walked dimension", rank=rank(1)),
                Input("sizes", T.TENSOR_INT32, "size of each walked dimension", rank=rank(1)),
                Input("metadata", T.TENSOR_INT32, "segments and indexes of each walked dimension", optional=True, repeat=True),
            ],
            {},
            minimum=5,
        )
    ],
    outputs=[Output("output", "T", "the dense tensor; what is not stored is zero", like("values"))],
    shape=_densify_shape,
    omitted=True,
    half="native",
)
def densify(call: Call) -> Array:
    """Walk the dimensions level by level; each level replaces every node by its children."""
    order, blocks, formats, sizes = _levels(call)
    metadata = call.repeated("metadata")
    parents = 1
    coordinates: list[Array] = []
    for level, (form, size) in enumerate(zip(formats, sizes, strict=True)):
        call.require(form in (_DENSE, _SPARSE), "a format of 0 (dense) or 1 (compressed)", form, "formats")
        if form == _DENSE:
            owner = np.repeat(np.arange(parents), size)
            here = np.tile(np.arange(size), parents)
        else:
            name, pair = f"metadata of dimension {level}", metadata[2 * level : 2 * level + 2]
            call.require(all(arg.present for arg in pair), "segments and indexes", "none", name)
            begin, here = (arg.data.reshape(-1) for arg in pair)
            counts = np.diff(begin)
            sound = len(begin) == parents + 1 and begin[0] == 0 and (counts >= 0).all() and begin[-1] == len(here)
            call.require(sound, f"{parents + 1} segments from 0 to the number of indexes", begin.tolist(), name)
            owner = np.repeat(np.arange(parents), counts)
            call.require(((here >= 0) & (here < size)).all(), f"indexes below {size}", here.tolist(), name)
        coordinates = [c[owner] for c in coordinates] + [here]
        parents = len(here)
    values = call["values"]
    call.require(values.data.size == parents, f"{parents} values", values.data.size, "values")
    position = dict(zip(order, coordinates, strict=True))
    size_of = dict(zip(order, sizes, strict=True))
    outer = len(order) - len(blocks)
    index = [position[d] for d in range(outer)]
    for k, dimension in enumerate(blocks):
        index[dimension] = index[dimension] * size_of[outer + k] + position[outer + k]
    dense = np.full(call.out.dims, values.zero_point, values.data.dtype)
    dense[tuple(index)] = values.data.reshape(-1)
    return dense

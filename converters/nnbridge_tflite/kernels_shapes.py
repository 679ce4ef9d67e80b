"""NumPy kernels of operators that move data or answer shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnbridge_tflite.kernels import Array, Options, Tensors, given, integers, kernel

MAX_ELEMENTS = 2**28
"""Most elements that a kernel makes from sizes that it reads as data."""


def _bounded(dims: Sequence[int]) -> Sequence[int]:
    count = 1
    for d in dims:
        if d < 0:
            raise ValueError(f"dimensions of at least 0, found {list(dims)}")
        count *= d
    if count > MAX_ELEMENTS:
        raise ValueError(f"at most {MAX_ELEMENTS} elements, found {list(dims)}")
    return dims


@kernel("SHAPE")
def shape(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The input's dimensions."""
    return [np.array(inputs[0].dims, outputs[0].dtype)]


@kernel("RANK")
def rank(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The input's number of dimensions."""
    return [np.array(len(inputs[0].dims), np.int32)]


@kernel("RESHAPE")
def reshape(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The same elements in other dimensions."""
    has_shape = len(inputs) > 1 and inputs[1].data is not None
    wanted = integers(inputs[1]) if has_shape else [int(d) for d in options.get("new_shape") or ()]
    return [given(inputs[0]).reshape(wanted)]


@kernel("SQUEEZE")
def squeeze(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Without the named dimensions of size 1, or without all."""
    axes = tuple(int(a) for a in options.get("squeeze_dims") or ())
    return [np.squeeze(given(inputs[0]), axes or None)]


@kernel("EXPAND_DIMS")
def expand_dims(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """With a new dimension of size 1."""
    return [np.expand_dims(given(inputs[0]), integers(inputs[1])[0])]


@kernel("TRANSPOSE")
def transpose(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """With the dimensions in another order."""
    return [given(inputs[0]).transpose(integers(inputs[1]))]


@kernel("CONCATENATION")
def concatenation(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Joined along an axis."""
    return [np.concatenate([given(t) for t in inputs], options.get("axis") or 0)]


@kernel("PACK")
def pack(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Joined along a new axis."""
    return [np.stack([given(t) for t in inputs], options.get("axis") or 0)]


@kernel("UNPACK")
def unpack(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Cut into slices, without the axis."""
    data, axis = given(inputs[0]), options.get("axis") or 0
    return [np.take(data, i, axis) for i in range(data.shape[axis])]


@kernel("SPLIT")
def split(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Cut into equal parts."""
    return np.split(given(inputs[1]), len(outputs), integers(inputs[0])[0])


@kernel("SPLIT_V")
def split_v(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Cut into parts of given sizes, one of which may be -1."""
    data, sizes, axis = given(inputs[0]), integers(inputs[1]), integers(inputs[2])[0]
    if -1 in sizes:
        sizes[sizes.index(-1)] = data.shape[axis] - sum(s for s in sizes if s >= 0)
    return np.split(data, np.cumsum(sizes)[:-1], axis)


@kernel("SLICE")
def slice_(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """A block; a size of -1 reaches the end."""
    data = given(inputs[0])
    ranges = zip(integers(inputs[1]), integers(inputs[2]), data.shape, strict=True)
    return [data[tuple(slice(b, d if s == -1 else b + s) for b, s, d in ranges)]]


@kernel("STRIDED_SLICE")
def strided_slice(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Python's slicing, spelled with masks."""
    begins, ends, steps = (integers(t) for t in inputs[1:4])
    masks = {m: options.get(f"{m}_mask") or 0 for m in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    index: list[Any] = []
    for i, (begin, end, step) in enumerate(zip(begins, ends, steps, strict=True)):
        bit = 1 << i
        stop = begin + end if options.get("offset") else end
        if masks["ellipsis"] & bit:
            index.append(Ellipsis)
        elif masks["new_axis"] & bit:
            index.append(None)
        elif masks["shrink_axis"] & bit:
            index.append(begin)
        else:
            index.append(slice(None if masks["begin"] & bit else begin, None if masks["end"] & bit else stop, step))
    return [np.asarray(given(inputs[0])[tuple(index)])]


@kernel("GATHER")
def gather(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Slices by index, with leading dimensions in common where there are batch dimensions."""
    data, indices = given(inputs[0]), given(inputs[1])
    axis, batch = options.get("axis") or 0, options.get("batch_dims") or 0
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


@kernel("GATHER_ND")
def gather_nd(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Slices by tuples of indices."""
    data, indices = given(inputs[0]), given(inputs[1])
    limits = np.array(data.shape[: indices.shape[-1]])
    if ((indices < 0) | (indices >= limits)).any():
        raise IndexError(f"indices below {limits.tolist()}")
    return [data[tuple(np.moveaxis(indices, -1, 0))]]


@kernel("SCATTER_ND")
def scatter_nd(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Slices added at tuples of indices of a tensor of zeros."""
    indices, updates = given(inputs[0]), given(inputs[1])
    made = np.zeros(_bounded(integers(inputs[2])), updates.dtype)
    np.add.at(made, tuple(np.moveaxis(indices, -1, 0)), updates)
    return [made]


@kernel("TILE")
def tile(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Repeated along each axis."""
    data, multiples = given(inputs[0]), integers(inputs[1])
    _bounded([d * m for d, m in zip(data.shape, multiples, strict=True)])
    return [np.tile(data, multiples)]


@kernel("BROADCAST_TO")
def broadcast_to(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Repeated where the size is 1."""
    return [np.broadcast_to(given(inputs[0]), _bounded(integers(inputs[1])))]


@kernel("BROADCAST_ARGS")
def broadcast_args(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The shape that two shapes broadcast to."""
    shapes = np.broadcast_shapes(tuple(integers(inputs[0])), tuple(integers(inputs[1])))
    return [np.array(shapes, outputs[0].dtype)]


@kernel("PAD", "PADV2", "MIRROR_PAD")
def pad(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Padded with a value, zero or mirror images."""
    data, pairs = given(inputs[0]), given(inputs[1]).reshape(-1, 2)
    widths = [(int(a), int(b)) for a, b in pairs]
    _bounded([d + a + b for d, (a, b) in zip(data.shape, widths, strict=True)])
    if "mode" in options:
        return [np.pad(data, widths, mode="symmetric" if options["mode"] else "reflect")]
    value = given(inputs[2]).reshape(-1)[0] if len(inputs) > 2 else inputs[0].zero_point
    return [np.pad(data, widths, constant_values=value)]


@kernel("FILL")
def fill(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """One value everywhere."""
    value = given(inputs[1]).reshape(-1)
    return [np.full(_bounded(integers(inputs[0])), value[0], value.dtype)]


@kernel("RANGE")
def range_(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Numbers from a start to before a limit in steps."""
    start, limit, delta = (given(t).reshape(-1)[0] for t in inputs)
    count = max(0, int(np.ceil((limit - start) / delta)))
    _bounded([count])
    return [(start + np.arange(count) * delta).astype(outputs[0].dtype)]


@kernel("REVERSE_V2")
def reverse(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Backwards along the named axes."""
    return [np.flip(given(inputs[0]), tuple(integers(inputs[1])))]


@kernel("REVERSE_SEQUENCE")
def reverse_sequence(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The first elements of each sequence backwards, as many as its length says."""
    data, lengths = given(inputs[0]), integers(inputs[1])
    along, batch = options.get("seq_dim") or 0, options.get("batch_dim") or 0
    moved = np.moveaxis(data, (batch, along), (0, 1)).copy()
    for i, length in enumerate(lengths):
        moved[i, :length] = moved[i, :length][::-1]
    return [np.moveaxis(moved, (0, 1), (batch, along))]


@kernel("ONE_HOT")
def one_hot(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Two values, one of them where the index says."""
    indices, depth = given(inputs[0]), integers(inputs[1])[0]
    on, off = (given(t).reshape(-1)[0] for t in inputs[2:4])
    axis = options.get("axis", -1)
    _bounded([*indices.shape, depth])
    hit = indices[..., None] == np.arange(depth)
    return [np.where(np.moveaxis(hit, -1, axis), on, off)]


@kernel("SELECT", "SELECT_V2")
def select(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Elements of the second input where the condition holds, of the third elsewhere."""
    condition, a, b = (given(t) for t in inputs)
    if condition.ndim == 1 and a.ndim > 1 and condition.shape[0] == a.shape[0] and condition.shape != a.shape[-1:]:
        condition = condition.reshape(-1, *[1] * (a.ndim - 1))
    return [np.where(condition.astype(bool), a, b)]


@kernel("WHERE")
def where(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The indices of elements that are not zero."""
    return [np.argwhere(given(inputs[0])).astype(np.int64)]


@kernel("SPACE_TO_DEPTH")
def space_to_depth(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Blocks of pixels as channels."""
    data, block = given(inputs[0]), int(options["block_size"])
    n, h, w, c = data.shape
    cut = data.reshape(n, h // block, block, w // block, block, c).transpose(0, 1, 3, 2, 4, 5)
    return [cut.reshape(n, h // block, w // block, -1)]


@kernel("DEPTH_TO_SPACE")
def depth_to_space(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Channels as blocks of pixels."""
    data, block = given(inputs[0]), int(options["block_size"])
    n, h, w, c = data.shape
    cut = data.reshape(n, h, w, block, block, c // block**2).transpose(0, 1, 3, 2, 4, 5)
    return [cut.reshape(n, h * block, w * block, -1)]


@kernel("SPACE_TO_BATCH_ND")
def space_to_batch(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Blocks of a padded array as batches."""
    blocks, pads = integers(inputs[1]), given(inputs[2]).reshape(-1, 2).tolist()
    count = len(blocks)
    zero = inputs[0].zero_point if inputs[0].scale > 0 else 0
    widths = [(0, 0), *pads, *[(0, 0)] * (len(inputs[0].dims) - count - 1)]
    _bounded([n + low + high for n, (low, high) in zip(inputs[0].dims, widths, strict=True)])
    data = np.pad(given(inputs[0]), widths, constant_values=zero)
    sizes = [n // b for n, b in zip(data.shape[1 : count + 1], blocks, strict=True)]
    cut = data.reshape(data.shape[0], *(k for pair in zip(sizes, blocks, strict=True) for k in pair), *data.shape[count + 1 :])
    order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2), *range(2 * count + 1, cut.ndim)]
    return [cut.transpose(order).reshape(data.shape[0] * math.prod(blocks), *sizes, *data.shape[count + 1 :])]


@kernel("BATCH_TO_SPACE_ND")
def batch_to_space(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Batches as blocks of an array, which is cropped."""
    data, blocks, crops = given(inputs[0]), integers(inputs[1]), given(inputs[2]).reshape(-1, 2).tolist()
    count, batch = len(blocks), data.shape[0] // math.prod(blocks)
    cut = data.reshape(*blocks, batch, *data.shape[1:])
    order = [count, *(k for i in range(count) for k in (count + 1 + i, i)), *range(2 * count + 1, cut.ndim)]
    sizes = [n * b for n, b in zip(data.shape[1 : count + 1], blocks, strict=True)]
    whole = cut.transpose(order).reshape(batch, *sizes, *data.shape[count + 1 :])
    kept = (slice(None), *(slice(low, n - high) for n, (low, high) in zip(sizes, crops, strict=True)))
    return [whole[kept]]


@kernel("RESIZE_NEAREST_NEIGHBOR")
def resize_nearest(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Images of another size, of the pixels that are nearest."""
    data, sizes = given(inputs[0]), integers(inputs[1])
    _bounded([data.shape[0], *sizes, *data.shape[3:]])
    rows, columns = (_nearest(data.shape[1 + i], size, options) for i, size in enumerate(sizes))
    return [data[:, rows][:, :, columns]]


def _nearest(size: int, out: int, options: Options) -> Array:
    """Where each of ``out`` pixels comes from."""
    aligned = bool(options.get("align_corners")) and out > 1
    scale = np.float32(size - 1) / np.float32(out - 1) if aligned else np.float32(size) / np.float32(out)
    places = (np.arange(out, dtype=np.float32) + np.float32(0.5 if options.get("half_pixel_centers") else 0)) * scale
    whole = np.floor(places + np.float32(0.5)) if options.get("align_corners") else np.floor(places)
    return whole.astype(np.int64).clip(0, size - 1)


@kernel("UNIQUE")
def unique(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The different values in order of first appearance, and for each element which one it is."""
    values, first, inverse = np.unique(given(inputs[0]).reshape(-1), return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return [values[order], place[inverse.reshape(-1)].astype(outputs[1].dtype)]


@kernel("SEGMENT_SUM")
def segment_sum(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Sums of the slices with one segment number."""
    data, segments = given(inputs[0]), given(inputs[1])
    made = np.zeros((int(segments.max()) + 1 if segments.size else 0, *data.shape[1:]), data.dtype)
    np.add.at(made, segments, data)
    return [made]


@kernel("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """A block replaced; the start is moved so that it fits."""
    data, update = given(inputs[0]).copy(), given(inputs[1])
    sizes = zip(integers(inputs[2]), data.shape, update.shape, strict=True)
    starts = [min(max(s, 0), d - u) for s, d, u in sizes]
    data[tuple(slice(s, s + u) for s, u in zip(starts, update.shape, strict=True))] = update
    return [data]

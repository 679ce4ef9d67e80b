"""Dimensions that TFLite's kernels give to their outputs when they are prepared, whatever a file states of them.

Each function has the dimensions of all outputs of an operator, from those of its inputs, its constants and its options; OPEN for
one that only a run knows. UnknownError where it needs more than is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from nnbridge_tflite.loads import PreparedOperator, UnknownError

OPEN = -1
Shape: TypeAlias = tuple[int, ...]
Dims: TypeAlias = Callable[[PreparedOperator], Sequence[Shape]]


def known(node: PreparedOperator, number: int) -> list[int]:
    """The numbers of a constant input."""
    found = node.numbers(number)
    if found is None:
        raise UnknownError(number)
    return found


def numbers_or_open(node: PreparedOperator, number: int, count: int) -> list[int]:
    """The numbers of an input, as many open ones where only a run knows them."""
    found = node.numbers(number)
    return [OPEN] * count if found is None else found


def like(number: int = 0) -> Dims:
    """All outputs have the dimensions of an input."""
    return lambda node: [node.shape(number)] * len(node.operator.outputs)


def broadcast(*numbers: int) -> Dims:
    """Dimensions that inputs broadcast to; all inputs without numbers."""

    def dims(node: PreparedOperator) -> list[Shape]:
        shapes = [node.shape(i) for i in numbers or range(len(node.operator.inputs))]
        return [np.broadcast_shapes(*shapes)]

    return dims


def vector(node: PreparedOperator) -> list[Shape]:
    """As many elements as the input has dimensions."""
    return [(len(node.shape(0)),)]


def scalar(node: PreparedOperator) -> list[Shape]:
    """No dimensions."""
    return [()]


def stated_by(number: int) -> Dims:
    """Dimensions that the numbers of an input are."""
    return lambda node: [tuple(numbers_or_open(node, number, math.prod(node.shape(number))))]


def _axis(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


def reduced(node: PreparedOperator) -> list[Shape]:
    """Without the axes that input 1 names, or 1 there."""
    shape, keep = node.shape(0), bool(node.option("keep_dims"))
    axes = node.numbers(1)
    if axes is None and keep:
        return [(OPEN,) * len(shape)]
    gone = {_axis(axis, len(shape)) for axis in known(node, 1)}
    return [tuple(1 if i in gone else d for i, d in enumerate(shape) if keep or i not in gone)]


def without_axis(node: PreparedOperator) -> list[Shape]:
    """Without the axis that input 1 names."""
    shape, axes = node.shape(0), node.numbers(1)
    if axes is None:
        return [(OPEN,) * (len(shape) - 1)]
    axis = _axis(axes[0], len(shape))
    return [shape[:axis] + shape[axis + 1 :]]


def joined(node: PreparedOperator) -> list[Shape]:
    """Inputs one after the other along an axis."""
    shapes = [node.shape(i) for i in range(len(node.operator.inputs))]
    axis = _axis(int(node.option("axis")), len(shapes[0]))
    return [(*shapes[0][:axis], sum(one[axis] for one in shapes), *shapes[0][axis + 1 :])]


def packed(node: PreparedOperator) -> list[Shape]:
    """Inputs beside each other along a new axis."""
    shape = node.shape(0)
    axis = _axis(int(node.option("axis")), len(shape) + 1)
    return [(*shape[:axis], len(node.operator.inputs), *shape[axis:])]


def unpacked(node: PreparedOperator) -> list[Shape]:
    """Parts without an axis."""
    shape = node.shape(0)
    axis = _axis(int(node.option("axis")), len(shape))
    return [shape[:axis] + shape[axis + 1 :]] * len(node.operator.outputs)


def split(node: PreparedOperator) -> list[Shape]:
    """Even parts along the axis that input 0 is."""
    shape, count, axes = node.shape(1), len(node.operator.outputs), node.numbers(0)
    if axes is None:
        return [(OPEN,) * len(shape)] * count
    axis = _axis(axes[0], len(shape))
    return [(*shape[:axis], shape[axis] // count, *shape[axis + 1 :])] * count


def split_by_sizes(node: PreparedOperator) -> list[Shape]:
    """Parts of the sizes in input 1 along the axis that input 2 is."""
    shape, count, sizes, axes = node.shape(0), len(node.operator.outputs), node.numbers(1), node.numbers(2)
    if sizes is None or axes is None:
        return [(OPEN,) * len(shape)] * count
    axis = _axis(axes[0], len(shape))
    rest = shape[axis] - sum(size for size in sizes if size != -1)
    return [(*shape[:axis], rest if size == -1 else size, *shape[axis + 1 :]) for size in sizes]


def permuted(node: PreparedOperator) -> list[Shape]:
    """Dimensions in the order that input 1 is."""
    shape = node.shape(0)
    order = node.numbers(1)
    return [(OPEN,) * len(shape) if order is None else tuple(shape[i] for i in order)]


def reshaped(node: PreparedOperator) -> list[Shape]:
    """Dimensions that input 1 or the options are; -1 for the rest of the elements."""
    shape, stated = node.shape(0), node.at(1)
    if stated is not None and stated.type.name == "INT32" and len(stated.shape) == 1:
        dims = numbers_or_open(node, 1, stated.shape[0])
        if node.numbers(1) is None:
            return [tuple(dims)]
    else:
        dims = [int(one) for one in node.operator.options.get("new_shape") or ()]
    dims = [] if dims == [0] and math.prod(shape) == 1 else dims
    others = math.prod(d for d in dims if d != -1)
    return [tuple(math.prod(shape) // max(others, 1) if d == -1 else d for d in dims)]


def squeezed(node: PreparedOperator) -> list[Shape]:
    """Without the dimensions of 1 that the options list, or without all."""
    shape, listed = node.shape(0), node.option("squeeze_dims")
    axes = () if isinstance(listed, int) else tuple(_axis(int(one), len(shape)) for one in listed)
    return [tuple(d for i, d in enumerate(shape) if (i not in axes if axes else d != 1))]


def expanded(node: PreparedOperator) -> list[Shape]:
    """With a new dimension of 1 where input 1 says."""
    shape, axes = node.shape(0), node.numbers(1)
    if axes is None:
        return [(OPEN,) * (len(shape) + 1)]
    axis = _axis(axes[0], len(shape) + 1)
    return [(*shape[:axis], 1, *shape[axis:])]


def tiled(node: PreparedOperator) -> list[Shape]:
    """Each dimension as often as input 1 says."""
    shape, times = node.shape(0), node.numbers(1)
    return [(OPEN,) * len(shape) if times is None else tuple(d * n for d, n in zip(shape, times, strict=True))]


def padded(node: PreparedOperator) -> list[Shape]:
    """With the paddings of input 1 around."""
    shape, ends = node.shape(0), node.numbers(1)
    return [(OPEN,) * len(shape) if ends is None else tuple(d + ends[2 * i] + ends[2 * i + 1] for i, d in enumerate(shape))]


def sliced(node: PreparedOperator) -> list[Shape]:
    """A block from input 1 of the size that input 2 is; -1 for up to the end."""
    shape, begins, sizes = node.shape(0), node.numbers(1), node.numbers(2)
    if begins is None or sizes is None:
        return [(OPEN,) * len(shape)]
    return [tuple(d - at if size == -1 else size for d, at, size in zip(shape, begins, sizes, strict=True))]


def gathered(node: PreparedOperator) -> list[Shape]:
    """Slices along an axis for each index."""
    shape, indexes = node.shape(0), node.shape(1)
    axis, batch = _axis(int(node.option("axis")), len(shape)), _axis(int(node.option("batch_dims")), len(indexes))
    return [shape[:axis] + indexes[batch:] + shape[axis + 1 :]]


def gathered_nd(node: PreparedOperator) -> list[Shape]:
    """Slices for each tuple of indexes."""
    shape, indexes = node.shape(0), node.shape(1)
    return [indexes[:-1] + shape[indexes[-1] :]]


def one_hot(node: PreparedOperator) -> list[Shape]:
    """A new dimension of input 1 elements."""
    shape, (depth, *_) = node.shape(0), numbers_or_open(node, 1, 1)
    axis = len(shape) if int(node.option("axis")) == -1 else int(node.option("axis"))
    return [(*shape[:axis], depth, *shape[axis:])]


def top(node: PreparedOperator) -> list[Shape]:
    """The last dimension of input 1 elements."""
    return [(*node.shape(0)[:-1], numbers_or_open(node, 1, 1)[0])] * 2


def coordinates(node: PreparedOperator) -> list[Shape]:
    """A row for each of some elements."""
    return [(OPEN, len(node.shape(0)))]


def diagonal(node: PreparedOperator) -> list[Shape]:
    """Rows as diagonals of matrices."""
    shape = node.shape(0)
    return [(*shape, shape[-1])]


def resized(node: PreparedOperator) -> list[Shape]:
    """The height and width that input 1 is."""
    batch, _, _, channels = node.shape(0)
    return [(batch, *numbers_or_open(node, 1, 2), channels)]


def into_blocks(node: PreparedOperator) -> list[Shape]:
    """Blocks of pixels as channels."""
    block, (batch, height, width, channels) = int(node.option("block_size")), node.shape(0)
    return [(batch, height // block, width // block, channels * block**2)]


def out_of_blocks(node: PreparedOperator) -> list[Shape]:
    """Channels as blocks of pixels."""
    block, (batch, height, width, channels) = int(node.option("block_size")), node.shape(0)
    return [(batch, height * block, width * block, channels // block**2)]


def steps_of(size: int, filter: int, stride: int, dilation: int, *, same: bool) -> int:
    """The steps of a window."""
    return -(-size // stride) if same else (size + stride - (filter - 1) * dilation - 1) // stride


def _windows(node: PreparedOperator, sizes: Sequence[int], filter: Sequence[int], axes: str) -> list[int]:
    steps = [(int(node.option(f"stride_{axis}")), int(node.option(f"dilation_{axis}_factor") or 1)) for axis in axes]
    same = node.option("padding") == 0
    return [steps_of(d, f, *step, same=same) for d, f, step in zip(sizes, filter, steps, strict=True)]


def convolved(node: PreparedOperator) -> list[Shape]:
    """The steps of a filter [units, height, width, channels]."""
    data, filter = node.shape(0), node.shape(1)
    return [(data[0], *_windows(node, data[1:3], filter[1:3], "hw"), filter[0])]


def convolved_apart(node: PreparedOperator) -> list[Shape]:
    """The steps of a filter [1, height, width, units]."""
    data, filter = node.shape(0), node.shape(1)
    return [(data[0], *_windows(node, data[1:3], filter[1:3], "hw"), filter[3])]


def convolved_3d(node: PreparedOperator) -> list[Shape]:
    """The steps of a filter [depth, height, width, channels, units]."""
    data, filter = node.shape(0), node.shape(1)
    return [(data[0], *_windows(node, data[1:4], filter[:3], "dhw"), filter[4])]


def pooled(node: PreparedOperator) -> list[Shape]:
    """The steps of a window."""
    batch, height, width, channels = node.shape(0)
    filter = [int(node.option("filter_height")), int(node.option("filter_width"))]
    return [(batch, *_windows(node, (height, width), filter, "hw"), channels)]


def multiplied(node: PreparedOperator) -> list[Shape]:
    """Rows by weights [units, length]; rows in as many dimensions as before, if the options say so."""
    data, (units, length) = node.shape(0), node.shape(1)
    return [(*data[:-1], units) if node.option("keep_num_dims") else (math.prod(data) // length, units)]


def matrices(node: PreparedOperator) -> list[Shape]:
    """Products of matrices, whose stacks broadcast."""
    left, right = node.shape(0), node.shape(1)
    rows = left[-1] if node.option("adj_x") else left[-2]
    columns = right[-2] if node.option("adj_y") else right[-1]
    return [(*np.broadcast_shapes(left[:-2], right[:-2]), rows, columns)]


def rows_of(node: PreparedOperator) -> list[Shape]:
    """A row of input 1 for each index."""
    return [(*node.shape(0), *node.shape(1)[1:])]


def spectrum(node: PreparedOperator) -> list[Shape]:
    """The frequencies of the lengths that input 1 is."""
    lengths = node.numbers(1)
    inner = (OPEN, OPEN) if lengths is None else (lengths[0], lengths[1] // 2 + 1)
    return [(*node.shape(0)[:-2], *inner)]


def segments(node: PreparedOperator) -> list[Shape]:
    """As many sums as input 2 says, of slices that input 1 numbers."""
    return [(numbers_or_open(node, 2, 1)[0], *node.shape(0)[len(node.shape(1)) :])]


def hashed(node: PreparedOperator) -> list[Shape]:
    """A number for each hash, or each of its bits."""
    hashes, bits = node.shape(0)
    return [(hashes,) if node.option("type") == 1 else (hashes * bits,)]


def longest(node: PreparedOperator) -> list[Shape]:
    """As many numbers as the longer of two shapes has."""
    return [(max(node.shape(0)[0], node.shape(1)[0]),)]


def range_of(node: PreparedOperator) -> list[Shape]:
    """The steps from a start to before a limit."""
    stored = [None if (one := node.at(i)) is None else node.stored(one) for i in range(3)]
    if any(one is None for one in stored):
        return [(OPEN,)]
    start, limit, step = (np.ravel(one)[0] for one in stored if one is not None)
    return [(math.ceil(abs((float(limit) - float(start)) / float(step))),)]

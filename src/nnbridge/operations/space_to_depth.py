"""Blocks of pixels moved between space, depth and batch."""

from __future__ import annotations

from functools import partial

import numpy as np

from nnbridge.model import Array
from nnbridge.operations.call import Call
from nnbridge.operations.declaration import Input, Layout, rank
from nnbridge.operations.kernels import Function, prepared
from nnbridge.operations.reshaping import moved_types, moves
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode

_IMAGES = Input("input", "T", "images [batch, h, w, depth]", rank=rank(4))
_BLOCK_SIZE = Input("block_size", T.INT32, "edge of a block, at least 1")
_BLOCK_SHAPE = Input("block_shape", T.TENSOR_INT32, "height and width of a block", rank=rank(1))
_NCHW = Input("nchw", T.BOOL, "true: input 0 and the output are NCHW", default=False)
_moves_blocks = partial(moves, layout=Layout(("input",)), handled="executor")
_moves_depth = partial(_moves_blocks, since=1, types=moved_types(1), inputs=[_IMAGES, _BLOCK_SIZE, _NCHW], counts={2: 1, 3: 3})


def _moving(split: tuple[int, ...], order: tuple[int, ...], depth: int, dims: tuple[int, ...]) -> Function:
    """Pixels, or parts of them, of this depth in another order; a part is moved as one element of as many bytes."""

    def move(x: Array) -> Array:
        whole = np.dtype(f"V{depth * x.itemsize}")
        parts = np.ascontiguousarray(x).reshape(-1).view(whole).reshape(split)
        return np.ascontiguousarray(parts.transpose(order)).reshape(-1).view(x.dtype).reshape(dims)

    return move


def _block_size(call: Call) -> int:
    block = int(call.scalar("block_size"))
    call.require(block > 0, "a block size of at least 1", block, "block_size")
    return block


def _space_to_depth_shape(call: Call) -> tuple[int, ...]:
    (b, h, w, c), block = call["input"].dims, _block_size(call)
    call.require(h % block == 0 and w % block == 0, f"height and width divisible by {block}", [h, w], "input")
    return b, h // block, w // block, c * block * block


@_moves_depth(
    OperationCode.SPACE_TO_DEPTH,
    summary="Moves blocks of pixels into the depth.",
    shape=_space_to_depth_shape,
)
@prepared("input")
def space_to_depth(call: Call) -> Function:
    """N97: depth index (row in block * block + column in block) * channels + channel."""
    (b, h, w, c), block, dims = call["input"].dims, _block_size(call), call.out.dims
    return _moving((b, h // block, block, w // block, block), (0, 1, 3, 2, 4), c, dims)


def _depth_to_space_shape(call: Call) -> tuple[int, ...]:
    (b, h, w, c), block = call["input"].dims, _block_size(call)
    call.require(c % (block * block) == 0, f"a depth divisible by {block * block}", c, "input")
    return b, h * block, w * block, c // (block * block)


@_moves_depth(
    OperationCode.DEPTH_TO_SPACE,
    summary="Moves blocks of channels into height and width.",
    shape=_depth_to_space_shape,
)
@prepared("input")
def depth_to_space(call: Call) -> Function:
    """The inverse of SPACE_TO_DEPTH."""
    (b, h, w, c), block, dims = call["input"].dims, _block_size(call), call.out.dims
    return _moving((b, h, w, block, block), (0, 1, 3, 2, 4), c // (block * block), dims)


def _block_shape(call: Call) -> tuple[int, int]:
    values = [int(v) for v in call["block_shape"].data]
    call.require(len(values) == 2 and min(values) > 0, "two block sizes of at least 1", values, "block_shape")
    return values[0], values[1]


def _paddings(call: Call) -> tuple[tuple[int, int], tuple[int, int]]:
    pads = call["paddings"].data
    call.require(pads.shape == (2, 2), "paddings of [2, 2]", list(pads.shape), "paddings")
    call.require((pads >= 0).all(), "paddings of at least 0", pads.tolist(), "paddings")
    (top, bottom), (left, right) = pads.tolist()
    return (top, bottom), (left, right)


def _space_to_batch_shape(call: Call) -> tuple[int, ...]:
    (b, h, w, c), (bh, bw) = call["input"].dims, _block_shape(call)
    (top, bottom), (left, right) = _paddings(call)
    height, width = h + top + bottom, w + left + right
    divisible = height % bh == 0 and width % bw == 0
    call.require(divisible, f"a padded size divisible by {bh}, {bw}", [height, width], "input")
    return b * bh * bw, height // bh, width // bw, c


def zero_point_level(call: Call) -> tuple[int, str] | None:
    """Below level 3 padding of 8-bit data was defined for a zero point of 0 only."""
    x = call["input"]
    if x.type == T.TENSOR_QUANT8_ASYMM and x.zero_point != 0:
        return 3, "a zero point other than 0"
    return None


@_moves_blocks(
    OperationCode.SPACE_TO_BATCH_ND,
    since=2,
    summary="Pads and moves blocks of pixels into the batch.",
    types=moved_types(2),
    inputs=[
        _IMAGES,
        _BLOCK_SHAPE,
        Input("paddings", T.TENSOR_INT32, "padding before and after height and width, [2, 2]", rank=rank(2)),
        _NCHW,
    ],
    counts={3: 2, 4: 3},
    shape=_space_to_batch_shape,
    level_rules=(zero_point_level,),
)
@prepared("input")
def space_to_batch_nd(call: Call) -> Function:
    """N98: batch index (row in block * block width + column in block) * batches + batch; padding is the zero point."""
    (b, h, w, c), (bh, bw), dims = call["input"].dims, _block_shape(call), call.out.dims
    (top, bottom), (left, right) = _paddings(call)
    wide, zero_point = (b, top + h + bottom, left + w + right, c), call["input"].zero_point
    move = _moving((b, wide[1] // bh, bh, wide[2] // bw, bw), (2, 4, 0, 1, 3), c, dims)
    if wide == (b, h, w, c):
        return move

    def pad_and_move(x: Array) -> Array:
        padded = np.full(wide, zero_point, x.dtype)
        padded[:, top : top + h, left : left + w] = x
        return move(padded)

    return pad_and_move


def _batch_to_space_shape(call: Call) -> tuple[int, ...]:
    (b, h, w, c), (bh, bw) = call["input"].dims, _block_shape(call)
    call.require(b % (bh * bw) == 0, f"a batch divisible by {bh * bw}", b, "input")
    return b // (bh * bw), h * bh, w * bw, c


@_moves_blocks(
    OperationCode.BATCH_TO_SPACE_ND,
    since=2,
    summary="Moves blocks of batches into height and width.",
    types=moved_types(2),
    inputs=[_IMAGES, _BLOCK_SHAPE, _NCHW],
    counts={2: 2, 3: 3},
    shape=_batch_to_space_shape,
)
@prepared("input")
def batch_to_space_nd(call: Call) -> Function:
    """The inverse of SPACE_TO_BATCH_ND without padding."""
    (b, h, w, c), (bh, bw), dims = call["input"].dims, _block_shape(call), call.out.dims
    return _moving((bh, bw, b // (bh * bw), h, w), (2, 3, 0, 4, 1), c, dims)

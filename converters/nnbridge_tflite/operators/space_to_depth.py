"""Blocks of pixels as channels or batches, and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from nnbridge.converters.declaration import Lowering, Option
from nnbridge.errors import Why
from nnbridge.types import OperationCode
from nnbridge_tflite import dims
from nnbridge_tflite.declaration import TfliteOperator, inputs
from nnbridge_tflite.dims import OPEN, Dims
from nnbridge_tflite.host.numbers import Array, Options, Tensors, bounded, data_of, integers
from nnbridge_tflite.loads import (
    OUT,
    QUANTISED,
    SAME,
    Prepare,
    PreparedOperator,
    positive,
    ranked,
    requires,
    same_parameters,
    sized,
    typed,
    zero_centred,
)
from nnbridge_tflite.lowerer import Lowerer
from nnbridge_tflite.rules import FLOAT_QUANT8, Condition, DelegateRule, OperatorView, constant

BatchDims: TypeAlias = Callable[[PreparedOperator], "list[int] | None"]


def _blocks(node: PreparedOperator) -> bool:
    """True if there are a block size and two numbers for each dimension between the first and the last."""
    if node.words(1) is None or node.words(2) is None:
        return True
    between = len(node.shape(0)) - 2
    return node.shape(1) == (between,) and node.shape(2) == (between, 2) and 0 not in (node.words(1) or ())


def _padded(node: PreparedOperator) -> bool:
    sizes, ends = node.words(1), node.words(2)
    if sizes is None or ends is None:
        return True
    return all((node.shape(0)[i + 1] + ends[2 * i] + ends[2 * i + 1]) % size == 0 for i, size in enumerate(sizes))


def _into_batches(node: PreparedOperator) -> list[int] | None:
    """The dimensions of SPACE_TO_BATCH_ND's output, and those of its padded input."""
    sizes, ends, (batches, *shape) = node.words(1), node.words(2), node.shape(0)
    if sizes is None or ends is None:
        return None
    padded = [d + ends[2 * i] + ends[2 * i + 1] for i, d in enumerate(shape[:-1])]
    return [
        batches * math.prod(sizes),
        *(d // size if d < 1 << 31 else -1 for d, size in zip(padded, sizes, strict=True)),
        shape[-1],
    ]


def _out_of_batches(node: PreparedOperator) -> list[int] | None:
    """The dimensions of BATCH_TO_SPACE_ND's output."""
    sizes, crops, (batches, *shape) = node.words(1), node.words(2), node.shape(0)
    if sizes is None or crops is None:
        return None
    cut = (d * size - crops[2 * i] - crops[2 * i + 1] for i, (d, size) in enumerate(zip(shape, sizes, strict=False)))
    return [batches // math.prod(sizes), *cut, shape[-1]]


def _split_batches(node: PreparedOperator) -> bool:
    sizes, crops, batches = node.words(1), node.words(2), node.shape(0)[0]
    if sizes is None or crops is None:
        return True
    return min(crops, default=0) >= 0 and batches % math.prod(sizes) == 0


_BLOCKS = requires("a block size and two numbers for each dimension between the outer ones", _blocks, kind=Why.OPERAND_SIZE)
_BLOCKS_FIT = requires("padded dimensions that the block sizes divide", _padded)
_BATCHES_SPLIT = requires("batches that the block sizes divide, and crops of 0 at least", _split_batches)
_WHOLE_BLOCKS = requires(
    "a height and width that the block size divides",
    lambda node: all(d % int(node.option("block_size")) == 0 for d in node.shape(0)[1:3]),
    kind=Why.OPERAND_SIZE,
)
_WHOLE_CHANNELS = requires(
    "channels that the square of the block size divides",
    lambda node: node.shape(0)[3] % int(node.option("block_size")) ** 2 == 0,
    kind=Why.OPERAND_SIZE,
)
_DEEP = typed(OUT, "FLOAT32", "UINT8", "INT8", "INT32", "INT64")


def _of_blocks(code: OperationCode, summary: str, version: int, fits: Prepare, given: Dims) -> TfliteOperator:
    return TfliteOperator(
        code.name,
        summary,
        options=(Option("block_size", 0, "pixels along each side of a block"),),
        delegate=DelegateRule(version=version, types=FLOAT_QUANT8),
        versions=(1, 2),
        loads=(ranked(0, 4), _DEEP, SAME, positive("block_size"), fits),
        lowerings=[Lowering(lambda to: to.finish(code, to.input(0), to.scalar(to.option("block_size"))))],
        dims=given,
    )


SPACE_TO_DEPTH = _of_blocks(OperationCode.SPACE_TO_DEPTH, "Blocks of pixels as channels.", 2, _WHOLE_BLOCKS, dims.into_blocks)
DEPTH_TO_SPACE = _of_blocks(
    OperationCode.DEPTH_TO_SPACE, "Channels as blocks of pixels.", 99, _WHOLE_CHANNELS, dims.out_of_blocks
)


def _uncropped(node: OperatorView) -> bool:
    crops = node.values.constant(node.operator.inputs[2])
    return crops is not None and crops.size == 4 and not crops.any()


def _of_batches(
    code: OperationCode, summary: str, ends: str, fit: Prepare, found: BatchDims, *conditions: Condition
) -> TfliteOperator:
    """Blocks of the dimensions between the first and the last, as batches, or back; ``ends``: the name of input 2."""

    def given(node: PreparedOperator) -> list[tuple[int, ...]]:
        dims = found(node)
        return [(OPEN,) * len(node.shape(0)) if dims is None else tuple(dims)]

    return TfliteOperator(
        code.name,
        summary,
        inputs("input", "block_shape!", f"{ends}!"),
        delegate=DelegateRule(version=2, level=2, conditions=conditions),
        versions=(1, 4),
        loads=(ranked(0, 3, 4), SAME, same_parameters(QUANTISED, 1), zero_centred(0, OUT), _BLOCKS, fit, sized(found)),
        dims=given,
    )


_NO_CROPS = Condition("two crops of 0", _uncropped, lambda node: node.input(2))
SPACE_TO_BATCH_ND = _of_batches(
    OperationCode.SPACE_TO_BATCH_ND, "Blocks of a padded array as batches.", "paddings", _BLOCKS_FIT, _into_batches
)
BATCH_TO_SPACE_ND = _of_batches(
    OperationCode.BATCH_TO_SPACE_ND,
    "Batches as blocks of an array, which is cropped.",
    "crops",
    _BATCHES_SPLIT,
    _out_of_batches,
    constant(2, "crops"),
    _NO_CROPS,
)


@SPACE_TO_DEPTH.host_kernel
def host_space_to_depth(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, block = data_of(inputs[0]), int(options["block_size"])
    n, h, w, c = data.shape
    cut = data.reshape(n, h // block, block, w // block, block, c).transpose(0, 1, 3, 2, 4, 5)
    return [cut.reshape(n, h // block, w // block, -1)]


@DEPTH_TO_SPACE.host_kernel
def host_depth_to_space(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, block = data_of(inputs[0]), int(options["block_size"])
    n, h, w, c = data.shape
    cut = data.reshape(n, h, w, block, block, c // block**2).transpose(0, 1, 3, 2, 4, 5)
    return [cut.reshape(n, h * block, w * block, -1)]


@SPACE_TO_BATCH_ND.lowering()
def space_to_batch(to: Lowerer) -> None:
    paddings = to.integers(2)
    to.finish(
        OperationCode.SPACE_TO_BATCH_ND, to.input(0), to.vector(to.integers(1)), to.draft.ints(paddings, (len(paddings) // 2, 2))
    )


@SPACE_TO_BATCH_ND.host_kernel
def host_space_to_batch(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    blocks, pads = integers(inputs[1]), data_of(inputs[2]).reshape(-1, 2).tolist()
    count = len(blocks)
    zero = inputs[0].zero_point if inputs[0].scale > 0 else 0
    widths = [(0, 0), *pads, *[(0, 0)] * (len(inputs[0].dims) - count - 1)]
    bounded([n + low + high for n, (low, high) in zip(inputs[0].dims, widths, strict=True)])
    data = np.pad(data_of(inputs[0]), widths, constant_values=zero)
    sizes = [n // b for n, b in zip(data.shape[1 : count + 1], blocks, strict=True)]
    cut = data.reshape(data.shape[0], *(k for pair in zip(sizes, blocks, strict=True) for k in pair), *data.shape[count + 1 :])
    order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2), *range(2 * count + 1, cut.ndim)]
    return [cut.transpose(order).reshape(data.shape[0] * math.prod(blocks), *sizes, *data.shape[count + 1 :])]


@BATCH_TO_SPACE_ND.lowering()
def batch_to_space(to: Lowerer) -> None:
    """BATCH_TO_SPACE_ND, which cannot crop."""
    to.require(not any(to.integers(2)), "no crops", to.integers(2))
    to.finish(OperationCode.BATCH_TO_SPACE_ND, to.input(0), to.vector(to.integers(1)))


@BATCH_TO_SPACE_ND.lowering(wide=True)
def batch_to_space_cropped(to: Lowerer) -> None:
    """BATCH_TO_SPACE_ND, then SLICE for the crops."""
    crops = to.integers(2)
    to.require(len(crops) == 4 and min(crops) >= 0, "crops of height and width", crops)
    whole = to.emit(OperationCode.BATCH_TO_SPACE_ND, to.input(0), to.vector(to.integers(1)))
    begin = [0, crops[0], crops[2], 0]
    size = [whole.dims[0], whole.dims[1] - crops[0] - crops[1], whole.dims[2] - crops[2] - crops[3], whole.dims[3]]
    to.finish(OperationCode.SLICE, whole, to.vector(begin), to.vector(size))


@BATCH_TO_SPACE_ND.host_kernel
def host_batch_to_space(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, blocks, crops = data_of(inputs[0]), integers(inputs[1]), data_of(inputs[2]).reshape(-1, 2).tolist()
    count, batch = len(blocks), data.shape[0] // math.prod(blocks)
    cut = data.reshape(*blocks, batch, *data.shape[1:])
    order = [count, *(k for i in range(count) for k in (count + 1 + i, i)), *range(2 * count + 1, cut.ndim)]
    sizes = [n * b for n, b in zip(data.shape[1 : count + 1], blocks, strict=True)]
    whole = cut.transpose(order).reshape(batch, *sizes, *data.shape[count + 1 :])
    inside = (slice(None), *(slice(low, n - high) for n, (low, high) in zip(sizes, crops, strict=True)))
    return [whole[inside]]

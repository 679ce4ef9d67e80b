"""Constant bytes packed by the kernel for it, in one call."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from nnbridge.cpu.arena import address_of
from nnbridge.cpu.compiled.constants import Constant
from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.kernels.products import strip_table, strips_of, tile_shapes
from nnbridge.cpu.compiled.objects import Variant, function, library
from nnbridge.cpu.compiled.requantise import Rescaling, rows_of
from nnbridge.model import Array


def pack_bytes(
    instructions: InstructionSet, weights: Array, bias: Array, rescaling: Rescaling, zero: int
) -> tuple[Constant, int]:
    """What :func:`pack_strips` makes of int8 weights [columns, segments, elements], in one call, and how many strips.

    ``zero`` times the sum of each column's weights is taken from its bias. For instructions of products of four bytes.
    """
    count, segments, length = weights.shape
    steps = -(-length // 4)
    if 4 * steps != length:
        padded = np.zeros((count, segments, 4 * steps), np.int8)
        padded[:, :, :length] = weights
        weights = padded
    weights, bias = np.ascontiguousarray(weights), np.ascontiguousarray(bias, np.int32)
    table, size, strips, zeros = _layout(instructions, rescaling.form, count, segments * steps)
    made = Constant.of(size)
    made.data[: table.nbytes] = table
    listed = rescaling.multiplier, rescaling.constant, rescaling.shift, rescaling.correction, rescaling.left
    numbers = [np.ascontiguousarray(array, np.int64) for array in listed]
    row, each = 4 * segments * steps, 8 if len(numbers[0]) > 1 else 0
    first = [address_of(weights), row, segments * steps, count, address_of(zeros), address_of(bias), zero, each]
    entry = np.array([*first, *map(address_of, numbers), address_of(made.data), strips], np.int64)
    _packing(instructions, rescaling.form)(address_of(entry), 0, 1)
    return made, strips


@lru_cache(maxsize=256)
def _layout(instructions: InstructionSet, form: str, count: int, words: int) -> tuple[Array, int, int, Array]:
    """The table in front of strips of rows of so many words, the bytes of all, how many strips, and a row of zeros."""
    lanes = instructions.lanes
    block = rows_of(form) * 4 * lanes
    shapes = strips_of(tile_shapes(instructions, form), count)
    groups = tuple(
        (first, shape.width, strips, 4 * words * shape.width, shape.vectors * block) for shape, first, strips in shapes
    )
    table, _, size = strip_table(groups, count, 1)
    return table, size, sum(strips for _, _, strips, _, _ in groups), np.zeros(words, np.int32)


@lru_cache
def _packing(instructions: InstructionSet, form: str) -> Callable[[int, int, int], None]:
    return function(library(instructions).address(Variant("pack_constant", (("form", form),))))

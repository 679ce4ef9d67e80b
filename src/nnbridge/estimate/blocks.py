"""Blocks in which an array of multipliers computes: the largest that fit its memory, and the cycles of one pass over an output.

The array multiplies one block while the output stage writes the one before, so that a pass takes the slower of the two for
each block, and the other once. Both wait for memory: short bursts move no more than a whole one. Facts of the search and of the
cycles: Arm's ethos-u-vela 5.2.0, ``architecture_features.py`` and ``regor/architecture/ethosu55`` (Apache-2.0).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from nnbridge.estimate.numbers import ArrayNumbers
from nnbridge.model import Array
from nnbridge.records import dataclass

SUB_KERNEL = 8
"""Larger kernels are computed in parts of this side."""
BLOCK_LIMIT = (32, 64, 128)
"""Rows, columns and channels of the largest block."""
SPLIT = 16
"""Channels of blocks of deep outputs are multiples of this."""
BANK = 1024
OUTPUT_BANKS = 2
"""Banks of the array's memory that hold outputs."""
SMALL = 4
"""Among blocks of equal cost, one with sides up to this is preferred if it covers more of the input."""

Plane = tuple[int, int, int]
"""Rows, columns, channels."""


@dataclass(frozen=True)
class Pass:
    """One pass of the array over an output."""

    form: str
    """``conv``, ``depthwise``, ``vector``, ``pool`` or ``elementwise``."""
    out: Plane
    source: Plane
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    dilation: int = 1
    element_bytes: int = 1
    second: Plane | None = None
    """The second input of an elementwise operator."""
    plain: tuple[bool, bool] = (False, False)
    """Input and output are stored row by row, not with channels in multiples."""
    per_output: float = 0.0
    """Cycles of the output stage for each element."""
    table_bytes: int = 0
    """Of a table that is looked up."""
    weighted: bool = False
    """There are weights and scales."""

    @property
    def wide(self) -> bool:
        """Accumulators of 40 bits."""
        return self.element_bytes == 2 and self.form not in ("pool", "elementwise")

    @property
    def equal_depth(self) -> bool:
        """Each output channel reads its own input channel."""
        return self.form in ("depthwise", "pool", "elementwise")


@dataclass(frozen=True)
class Block:
    """The outputs computed at once, the input that they need, and the order of a convolution."""

    out: Plane
    source: Plane
    part_kernel: bool


@dataclass(frozen=True)
class PassCost:
    """Cycles of a pass; bytes of maps that it moves, short bursts counted as whole ones; how often weights are read; channels of
    a block."""

    cycles: float
    moved: float
    rereads: int
    depth: int


def _ceil(a: float, b: float) -> int:
    return -int(-a // b)


def _rounded(a: int, b: int) -> int:
    return _ceil(a, b) * b


def part_kernel(channels: int, kernel: tuple[int, int], element_bytes: int) -> bool:
    """True if a convolution takes few channels and many kernel elements in one step: where this fills the step more."""
    elements = math.prod(kernel)
    depth, step = (32, 4) if element_bytes == 1 else (16, 2)
    by_part = channels / _rounded(channels, 8) * (elements / _rounded(elements, step))
    return channels <= 8 or by_part >= channels / _rounded(channels, depth)


@lru_cache(4096)
def block(work: Pass, numbers: ArrayNumbers) -> Block:
    """The block with the least input and weights to fetch for each output element, of those that fit."""
    rows, columns, depth_step = numbers.granule
    depth_step *= numbers.cores
    by_part = work.form == "conv" and part_kernel(work.source[2], work.kernel, work.element_bytes)
    limits = [_rounded(min(s, m), g) for s, m, g in zip(work.out, BLOCK_LIMIT, (rows, columns, depth_step), strict=True)]
    depths: list[int] = []
    depth = max(depth_step, min(limits[2], SPLIT))
    while True:
        depth = _rounded(depth, SPLIT) if depth < work.out[2] else depth
        if depth > limits[2] and depths:
            break
        depths.append(depth)
        depth += depth_step
    heights, widths = np.arange(rows, limits[0] + 1, rows), np.arange(columns, limits[1] + 1, columns)
    d, h, w = (axis.reshape(-1) for axis in np.meshgrid(depths, heights, widths, indexing="ij"))
    spans = [min((side - 1) * work.dilation + 1, SUB_KERNEL) for side in work.kernel]
    in_h = -(-((h - 1) * work.stride + spans[0]) // rows) * rows
    in_w = -(-((w - 1) * work.stride + spans[1]) // columns) * columns
    channels = min(work.source[2], 16 if by_part or work.element_bytes == 2 else 32)
    in_d = d if work.equal_depth else np.full_like(d, _rounded(channels, 4 if work.element_bytes == 2 else 8))
    flat = rows == 2 and work.out[0] == 1 and work.kernel[0] == 1
    used_h = np.minimum(h, 1) if flat else h
    fits = _fits(work, numbers, (used_h, w, d), (in_h, in_w, in_d))
    if not fits.any():
        fits[0] = True
    cost = _cost(work, (h, w, d), (used_h, w, d), (in_h, in_w, in_d))
    at = _chosen(work, np.where(fits, cost, np.float32(np.inf)), h, w, in_h, in_w)
    return Block((int(h[at]), int(w[at]), int(d[at])), (int(in_h[at]), int(in_w[at]), int(in_d[at])), by_part)


def _fits(work: Pass, numbers: ArrayNumbers, out: tuple[Array, ...], source: tuple[Array, ...]) -> Array:
    """True where both halves of input (two inputs) and accumulators find banks."""
    maps, wide_maps, accumulators, wide_accumulators = numbers.bank_granules
    per_bank = wide_maps if work.element_bytes == 4 else maps
    depth = source[2] * work.element_bytes
    inputs = source[0] * source[1] * (-(-depth // 8) * 8)
    banks = _banks(inputs, per_bank)
    end = numbers.banks - max(_ceil(work.table_bytes, BANK), 2 if numbers.banks > 16 else 0)
    if work.form == "elementwise":
        scalar = work.second is None or 1 in (math.prod(work.second), math.prod(work.source))
        return np.asarray(OUTPUT_BANKS + banks * (1 if scalar and work.element_bytes <= 2 else 2) <= end)
    bits, granule = (40, wide_accumulators) if work.wide else (32, accumulators)
    sums = out[0] * out[1] * (-(-out[2] // 8) * 8) * bits // 8
    return np.asarray(OUTPUT_BANKS + banks <= end - _banks(sums, granule))


def _banks(size: Array, granule: int) -> Array:
    """Banks of both halves of a double buffer."""
    return np.asarray((2 * -(-size // BANK) + granule - 1) // granule * granule)


def _cost(work: Pass, full: tuple[Array, ...], out: tuple[Array, ...], source: tuple[Array, ...]) -> Array:
    """The bytes fetched for each output element, in single precision as the compiler computes it."""
    single = np.float32
    elements = math.prod(work.out)
    if work.form == "elementwise":
        cost = single(elements) / (full[0] * full[1] * full[2]).astype(single)
    else:
        parts = [size / block.astype(single) for size, block in zip(map(single, work.out), out, strict=True)]
        whole = [-(-size // block) for size, block in zip(work.out, out, strict=True)]
        area = math.prod(work.kernel) if work.form in ("conv", "depthwise") else 0
        weights = (area * work.source[2] * whole[0] * whole[1]).astype(single)
        if work.form != "depthwise":
            weights = weights * (parts[2] * out[2].astype(single))
        spans = [(side - 1) * work.dilation + 1 for side in work.kernel]
        repeats = math.prod(_ceil(span, SUB_KERNEL) for span in spans)
        fetched = (source[0] * source[1] * work.source[2] * repeats).astype(single) * parts[0] * parts[1]
        if not work.equal_depth:
            fetched = fetched * whole[2].astype(single)
        cost = (fetched + weights) / single(elements)
    held = math.prod(work.source) < source[0] * source[1] * source[2] * 2
    return np.asarray(np.where(held, cost / single(2), cost))


def _chosen(work: Pass, cost: Array, h: Array, w: Array, in_h: Array, in_w: Array) -> int:
    """The first of least cost; among its equals a later small one if it covers more of the input."""
    equal = np.flatnonzero(cost == cost.min())
    small = [at for at in equal[1:] if h[at] <= SMALL and w[at] <= SMALL]
    if not small:
        return int(equal[0])
    plane = work.source[0] * work.source[1]
    covered = [plane // max(min(work.source[0], int(in_h[at])) * min(work.source[1], int(in_w[at])), 1) for at in small]
    return int(max(zip([-c for c in covered], small, strict=True))[1])


def _burst(numbers: ArrayNumbers, plain: bool, block: Plane, whole: Plane, element_bytes: int, *, writes: bool) -> float:
    """Times by which short bursts lengthen a transfer."""
    stride = whole[2] * element_bytes if plain else whole[1] * SPLIT * element_bytes
    line = element_bytes * block[1] * block[2]
    if plain and writes:
        joined = block[2] <= SPLIT and stride == block[2]
        one = line if joined else min(64, SPLIT * element_bytes * numbers.cores, block[2] * element_bytes)
    elif plain:
        one = line if stride == block[2] else element_bytes * block[2]
    else:
        one = line if stride == block[2] else SPLIT * element_bytes * block[1] * (numbers.cores if writes else 1)
    return numbers.burst / min(numbers.burst, max(one, 1))


def _within(whole: Plane, part: Plane) -> Plane:
    return min(whole[0], part[0]), min(whole[1], part[1]), min(whole[2], part[2])


def _least_memory(work: Pass, numbers: ArrayNumbers, found: Block) -> float:
    """Cycles to load one block's input and to store its output."""
    half, read = numbers.latency / 2, 0.0
    for each in (work.source, work.second):
        if each is not None:
            moved = math.prod(_within(each, found.source)) * work.element_bytes
            factor = _burst(numbers, work.plain[0], found.source, each, work.element_bytes, writes=False)
            read = max(read, half + moved * factor / numbers.bandwidth["maps"])
    stored = math.prod(_within(work.out, found.out)) * work.element_bytes
    factor = _burst(numbers, work.plain[1], found.out, work.out, work.element_bytes, writes=True)
    return read + half + stored * factor / numbers.bandwidth["maps"]


def _steps(work: Pass, numbers: ArrayNumbers, found: Block, granules: Plane, source_depth: int) -> float:
    """Cycles of the array for one block."""
    plane, total = granules[0] * granules[1], 0.0
    kernel_step = numbers.kernel_step[0]
    stall = numbers.stalls[1 if work.wide else 0]
    column = max(numbers.weight_floor, numbers.step_cycles * plane)
    heights, widths = ([min(SUB_KERNEL, side - k) for k in range(0, side, SUB_KERNEL)] for side in work.kernel)
    for elements in (a * b for a in heights for b in widths):
        groups = 1
        if work.form == "pool":
            steps = 1
            each = numbers.pool_step_cycles or numbers.step_cycles * work.element_bytes
            cycles = max(kernel_step, elements) * plane * granules[2] * each
        elif work.form == "depthwise":
            steps = _ceil(elements, kernel_step)
            cycles = max(numbers.weight_floor, numbers.step_cycles * plane * work.element_bytes) * steps * granules[2]
        elif work.form == "conv" and found.part_kernel:
            steps, groups = _ceil(elements, kernel_step // work.element_bytes), _ceil(source_depth, numbers.kernel_step[1])
            cycles = column * steps * granules[2] * groups
        else:
            steps = elements if work.form == "conv" else 1
            cycles = column * steps * granules[2]
        waits = 0 if plane > 1 else steps if granules[2] == 1 else (steps - 1) * granules[2]
        total += cycles + stall * waits * groups
    return total


def pass_cost(work: Pass, numbers: ArrayNumbers) -> PassCost:
    """Cycles and traffic of a pass."""
    found = block(work, numbers)
    out, source = _within(work.out, found.out), _within(work.source, found.source)
    rows, columns, depth = numbers.granule
    if rows == 2 and work.form in ("conv", "vector") and work.out[0] == 1 and work.out[1] % 2 == 0 and work.kernel[0] == 1:
        rows, columns, out = 1, 4, (1, *out[1:])
    blocks = tuple(_ceil(a, b) for a, b in zip(work.out, out, strict=True))
    # What is left over at the edges counts as part of a block.
    count, elements = math.prod(a / b for a, b in zip(work.out, out, strict=True)), math.prod(out)
    memory = _least_memory(work, numbers, found)
    if work.form == "elementwise":
        each = max(work.per_output, (memory / math.prod(found.out) + work.per_output) / 4)
        multiple = 1 if work.plain[1] else numbers.channel_multiple
        cycles = each * work.out[0] * work.out[1] * _rounded(work.out[2], multiple)
    else:
        granules = (_ceil(out[0], rows), _ceil(out[1], columns), _ceil(out[2], depth))
        array = _steps(work, numbers, found, granules, source[2])
        if not work.equal_depth:
            array *= _ceil(work.source[2], source[2])
        array //= numbers.cores
        output = work.per_output * elements
        if work.weighted:
            output = max(output, numbers.scale_bytes * out[2] * numbers.weight_latency / 256)
        least = (memory + output + array) / 4
        first, second = max(array, least), max(output, least)
        cycles = max(first, second) * count + min(first, second) + memory
    return PassCost(cycles, _moved(work, numbers, found, source, blocks), blocks[0] * blocks[1], found.out[2])


def _moved(work: Pass, numbers: ArrayNumbers, found: Block, source: Plane, blocks: tuple[int, ...]) -> float:
    """Bytes of maps in the whole pass."""
    size = work.element_bytes
    multiples = [1 if plain else numbers.channel_multiple for plain in work.plain]
    read = 0.0
    if work.form == "elementwise":
        for each in (work.source, work.second):
            if each is not None and math.prod(each) > 1:
                factor = _burst(numbers, work.plain[0], found.source, each, size, writes=False)
                read += work.out[0] * work.out[1] * _rounded(work.out[2], multiples[0]) * factor
    else:
        count = blocks[0] * blocks[1] * (1 if work.equal_depth else blocks[2])
        parts = math.prod(_ceil(side, SUB_KERNEL) for side in work.kernel)
        fetched = source[0] * source[1] * _rounded(work.source[2], multiples[0]) * parts * count
        read = fetched * _burst(numbers, work.plain[0], found.source, work.source, size, writes=False)
    stored = work.out[0] * work.out[1] * _rounded(work.out[2], multiples[1])
    return size * (read + stored * _burst(numbers, work.plain[1], found.out, work.out, size, writes=True))

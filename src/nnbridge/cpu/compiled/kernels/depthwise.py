"""Convolutions with one filter for each channel, 8-bit and float32, of any size, stride and dilation.

A strip of channels is computed for one row of outputs after the other. 8-bit products sum several rows of the filter at a time:
bytes of that many input rows are interleaved channel by channel, which makes a column. Columns that neighbouring outputs share
stay in registers. Rows and columns outside the image are read from a row of zero points.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from nnbridge.cpu.compiled.declared import Fields, kernel
from nnbridge.cpu.compiled.emitter import Emitter
from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.kernels.products import StripGroup, Strips, by_shape, strip_entry
from nnbridge.cpu.compiled.requantise import Narrowing, Rescaling, column_order, load_parameters, rescale, rows_of
from nnbridge.cpu.compiled.values import F32, I8, I16, I32, IrValue, vector
from nnbridge.model import Array

LARGEST = 49
"""Taps of a filter beyond which code would grow too long."""


class Shape(NamedTuple):
    """A strip's vectors and their lanes."""

    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        """Channels."""
        return self.vectors * self.lanes


def strip_shapes(instructions: InstructionSet, form: str) -> list[Shape]:
    """Shapes of strips, widest first. 8-bit strips have four vectors, whose lanes become one vector of bytes."""
    longest = instructions.lanes
    if form == "real":
        return [Shape(2, longest), Shape(1, longest), *([Shape(1, longest // 2)] if longest > 4 else [])]
    return [Shape(4, lanes) for lanes in (16, 8, 4) if lanes <= longest]


@kernel(
    "input height width pixel row image out out_height out_width out_pixel images top left outside strips strip_count"
    " zero_point low high"
)
def depthwise(
    e: Emitter,
    f: Fields,
    part: IrValue,
    parts: IrValue,
    *,
    form: str,
    size: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    sets: int = 1,
) -> None:
    """``out[y, x, c] = epilogue(sum of input[y * stride + i * dilation - top, ..., c] * weights[i, j, c])``.

    ``sets``: 8-bit weights less their zero point may have 9 bits and come as a sum of bytes, one set for each.
    """
    shapes = strip_shapes(e.instructions, form)
    first, last = e.share(f.images * f.out_height, part, parts)

    def output_row(index: IrValue) -> None:
        image = index // f.out_height
        y = (index - image * f.out_height) * stride[0] - f.top
        rows = [y + i * dilation[0] for i in range(size[0])]
        base = f.input + image * f.image

        def strip(number: IrValue) -> None:
            width, weights, parameters, column, columns = strip_entry(e, f, number)
            weights, parameters = f.strips + weights, f.strips + parameters
            sources = [e.select(at.below(f.height), base + at * f.row + column, f.outside) for at in rows]
            target = f.out + index * f.out_width * f.out_pixel + column

            def emit(shape: Shape) -> None:
                strip_ = _Strip(e, f, shape, form, size, stride, dilation, sets)
                strip_.emit(sources, weights, parameters, target, columns)

            by_shape(e, shapes, width, emit)

        e.loop(0, f.strip_count, strip)

    e.loop(first, last, output_row)


class _Strip:
    """One row of outputs of a strip of channels."""

    def __init__(
        self,
        e: Emitter,
        f: Fields,
        shape: Shape,
        form: str,
        size: tuple[int, int],
        stride: tuple[int, int],
        dilation: tuple[int, int],
        sets: int,
    ) -> None:
        self.e, self.f, self.form, self.sets = e, f, form, sets
        self.real = form == "real"
        self.vectors, self.lanes = shape
        self.size, self.stride, self.dilation = size, stride, dilation
        self.kind = vector(F32 if self.real else I32, self.lanes)
        self.groups = size[0] if self.real else -(-size[0] // e.instructions.step_elements)
        shared = size[1] - stride[1] if dilation[1] == 1 and not self.real else 0
        self.shared = shared if 0 < shared * self.groups * 4 <= 12 else 0

    def emit(self, sources: list[IrValue], weights: IrValue, parameters: IrValue, target: IrValue, columns: IrValue) -> None:
        e, f, lanes = self.e, self.f, self.lanes
        block = 4 * lanes * (1 if self.real else rows_of(self.form))
        bias = [e.load(parameters, self.kind, v * block) for v in range(self.vectors)]
        loaded = [] if self.real else [load_parameters(e, parameters + v * block, lanes, self.form) for v in range(4)]
        if self.real:
            low, high = (e.splat_real(bound, lanes) for bound in (f.low, f.high))
        else:
            narrowing = Narrowing(e, self.form, lanes, f.zero_point, f.low, f.high)
        taps = [self._taps(weights, j) for j in range(self.size[1])]
        start = -f.left

        def pixel(x: IrValue, place: IrValue, *shared: IrValue) -> list[IrValue]:
            per_column = self.groups * self.vectors
            seen = [list(shared[i : i + per_column]) for i in range(0, len(shared), per_column)]
            first = start + x * self.stride[1]
            seen += [self._column(sources, first + j * self.dilation[1]) for j in range(self.shared, self.size[1])]
            totals = self._sum(bias, taps, seen)
            if self.real:
                values = [e.clamp_real(total, low, high) for total in totals]
            else:
                values = [narrowing.bytes_of([rescale(e, t, p, self.form) for t, p in zip(totals, loaded, strict=True)])]
            e.store_rows([values], [place], columns)
            passed = seen[self.stride[1] :] if self.shared else []
            return [place + f.out_pixel, *(value for column in passed for value in column)]

        shared = [value for j in range(self.shared) for value in self._column(sources, start + j)]
        e.repeat(f.out_width, pixel, [target, *shared])

    def _taps(self, weights: IrValue, j: int) -> list[list[IrValue]]:
        """The weights of a filter column: for each set the vectors of all groups."""
        per_set = self.groups * self.vectors
        size = 4 * self.lanes
        return [
            [self.e.load(weights, self.kind, ((s * self.size[1] + j) * per_set + i) * size) for i in range(per_set)]
            for s in range(self.sets)
        ]

    def _sum(self, bias: list[IrValue], taps: list[list[list[IrValue]]], seen: list[list[IrValue]]) -> list[IrValue]:
        e = self.e
        if not self.real:
            totals = list(bias)
            for s in range(self.sets):
                for column, tap in zip(seen, taps, strict=True):
                    for i, (x, w) in enumerate(zip(column, tap[s], strict=True)):
                        totals[i % 4] = e.dot(totals[i % 4], x, w)
            return totals
        # One chain of additions for each filter row, which processors compute side by side.
        results = []
        for v in range(self.vectors):
            chains: list[IrValue | None] = [bias[v], *[None] * (self.groups - 1)]
            for column, tap in zip(seen, taps, strict=True):
                for i in range(self.groups):
                    x, w, total = column[i * self.vectors + v], tap[0][i * self.vectors + v], chains[i]
                    chains[i] = x * w if total is None else e.fma(x, w, total)
            whole = [chain for chain in chains if chain is not None]
            total = whole[0]
            for chain in whole[1:]:
                total = total + chain
            results.append(total)
        return results

    def _column(self, sources: list[IrValue], x: IrValue) -> list[IrValue]:
        """The vectors of each group that the filter's rows see in column ``x``."""
        e, f = self.e, self.f
        inside, offset = x.below(f.width), x * f.pixel
        places = [e.select(inside, source + offset, f.outside) for source in sources]
        if self.real:
            return [e.load(place, self.kind, v * 4 * self.lanes) for place in places for v in range(self.vectors)]
        kind = vector(I8, 4 * self.lanes)
        together = e.instructions.step_elements
        nothing = e.constant(kind, 0)
        made = []
        for first in range(0, len(places), together):
            rows = [e.load(place, kind) for place in places[first : first + together]]
            rows += [nothing] * (together - len(rows))
            pairs = [e.interleave(rows[0], rows[1], high) for high in (False, True)]
            if together == 4:
                others = [e.interleave(rows[2], rows[3], high) for high in (False, True)]
                wide = vector(I16, 2 * self.lanes)
                made += [
                    e.interleave(a.bits(wide), b.bits(wide), high).bits(self.kind)
                    for a, b in zip(pairs, others, strict=True)
                    for high in (False, True)
                ]
            else:
                made += [e.interleave(pair, nothing, high).bits(self.kind) for pair in pairs for high in (False, True)]
        return made


def pack_depthwise(instructions: InstructionSet, weights: Array, bias: Array, rescaling: Rescaling | None) -> tuple[Strips, int]:
    """Weights [h, w, channels] less their zero point in strips, and into how many sets of bytes they were split."""
    height, width, channels = weights.shape
    form = "real" if rescaling is None else rescaling.form
    if rescaling is None:
        sets = [weights.astype(np.float32)]
    elif not instructions.quads:
        sets = [weights.astype(np.int16)]
    else:
        sets, rest = [], weights
        # Differences of bytes: one set of bytes, two, or three where one is 255.
        while rest.dtype != np.int8 and (rest.min() < -128 or rest.max() > 127):
            sets.append(np.clip(rest, -128, 127).astype(np.int8))
            rest = rest - sets[-1]
        sets.append(rest.astype(np.int8, copy=False))
    together = 1 if rescaling is None else instructions.step_elements
    row_groups = -(-height // together)
    # One array of all taps: [sets, groups, rows together, width, channels and what a strip may have beyond].
    shapes = strip_shapes(instructions, form)
    taps = np.zeros((len(sets), row_groups * together, width, channels + shapes[0].width), sets[0].dtype)
    for part, target in zip(sets, taps, strict=True):
        target[:height, :, :channels] = part
    taps = taps.reshape(len(sets), row_groups, together, width, -1)
    groups = []
    for size, lanes, first, order, inside in _orders(instructions, form, channels):
        strips = len(order) // size
        block = taps[..., order].reshape(len(sets), row_groups, together, width, strips, size)
        ordered = block.transpose(4, 0, 3, 1, 5, 2)
        if rescaling is None:
            parameters = np.where(inside >= 0, bias[np.maximum(inside, 0)], 0).astype(np.float32)
        else:
            parameters = rescaling.packed(bias, inside, lanes)
        groups.append(StripGroup(size, first, ordered, parameters.reshape(strips, -1)))
    return Strips(groups, channels), len(sets)


@lru_cache(maxsize=256)
def _orders(instructions: InstructionSet, form: str, channels: int) -> Sequence[tuple[int, int, int, Array, Array]]:
    """Of the strips of one shape: channels of a strip, lanes, first channel, and the channel that each lane reads.

    In the second of these, -1 stands for channels that there are not.
    """
    shapes, found, first = strip_shapes(instructions, form), [], 0
    while first < channels:
        # Strips of one shape at a time: the widest as long as they are full, then the narrowest that takes what is left.
        left = channels - first
        shape = next((s for s in reversed(shapes) if s.width >= left), shapes[0])
        size, lanes = shape.width, shape.lanes
        strips = max(left // size, 1)
        single = np.arange(size) if form == "real" else column_order(4, lanes)
        order = (single + (np.arange(strips) * size)[:, None]).reshape(-1) + first
        found.append((size, lanes, first, order, np.where(order < channels, order, -1)))
        first += strips * size
    return found

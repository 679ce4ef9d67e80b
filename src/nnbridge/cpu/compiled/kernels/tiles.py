"""Products of bytes by matrix tiles (AMX): rows that lie at equal distances times the strips of :mod:`.products`.

A tile holds 16 rows of 64 bytes. Four of them sum 32 x 32 products; sums go through memory to be requantised.
"""

from __future__ import annotations

import numpy as np

from nnbridge.cpu.compiled.declared import Fields, kernel
from nnbridge.cpu.compiled.emitter import Emitter
from nnbridge.cpu.compiled.kernels.products import Tile, TileShape, by_shape, shares, strip_entry, tile_shapes
from nnbridge.cpu.compiled.values import I32, IrValue, vector

SIDE = 16
"""Rows of a tile."""
DEPTH = 64
"""Bytes of a tile's row, which rows of the left matrix and columns of the strips are multiples of."""
_TOGETHER = 4
"""Rows that are requantised at a time."""


def configuration() -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Eight tiles of 16 rows of 64 bytes, as the processor reads it."""
    made = np.zeros(64, np.uint8)
    made[0] = 1
    made[16:32].view(np.uint16)[:] = DEPTH
    made[48:56] = SIDE
    return made


@kernel(
    "left first row count out out_stride steps strips strip_count weights by_strip zero_point low high factor sums configuration"
)
def product_tiles(
    e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, form: str, row_sums: str, column_sums: bool, tall: int
) -> None:
    """As ``product`` for bytes, in ``steps`` of 64. ``first``: offset of the first row; ``row``: bytes from row to row.

    ``tall``: tiles of rows that are summed together, 1 or 2.
    """
    rows = SIDE * tall
    row0, row1, strip0, strip1 = shares(e, f, part, parts, rows)
    e.tile("ldtilecfg", f.configuration)

    def strip(index: IrValue) -> None:
        width, weights, parameters, column, columns = strip_entry(e, f, index)
        weights, parameters = f.weights + weights, f.strips + parameters

        def emit(shape: TileShape) -> None:
            kind, line = vector(I32, shape.lanes), 4 * shape.width
            sums = e.stack(rows * line)
            finishing = Tile(e, f, shape, _TOGETHER, form, row_sums, column_sums)
            packed = weights + (line if column_sums else 0)

            def block(at: IrValue) -> None:
                start = e.smin(at, f.count - rows)
                for first in range(0, shape.vectors, 2):
                    across = range(first, min(first + 2, shape.vectors))
                    _multiply(e, f, f.left + f.first + start * f.row, packed, sums, line, across, tall)

                def finish(r: IrValue) -> None:
                    bias = [e.load(parameters, kind, v * finishing.block) for v in range(shape.vectors)]
                    if column_sums:
                        bias = [b + e.load(weights, kind, 64 * v) for v, b in enumerate(bias)]
                    grouped = [
                        [b + e.load(sums + r * line, kind, i * line + 64 * v) for v, b in enumerate(bias)]
                        for i in range(_TOGETHER)
                    ]
                    finishing.finish(grouped, start + r, parameters, f.out + column, columns)

                e.loop(0, e.number(rows), finish, step=_TOGETHER)

            e.loop(row0, row1, block, step=rows)

        by_shape(e, tile_shapes(e.instructions, form), width, emit)

    e.loop(strip0, strip1, strip)
    e.tile("tilerelease")


def _multiply(e: Emitter, f: Fields, left: IrValue, packed: IrValue, sums: IrValue, line: int, across: range, tall: int) -> None:
    """``tall`` by ``len(across)`` tiles of sums, written where their columns belong."""
    totals = {(r, v): 2 * r + i for r in range(tall) for i, v in enumerate(across)}
    for tile in totals.values():
        e.tile("tilezero", tile)
    stride = e.number(line)

    def step(k: IrValue) -> None:
        for r in range(tall):
            e.tile("tileloadd64", 4 + r, left + f.row * (SIDE * r) + k * DEPTH, f.row)
        for i, v in enumerate(across):
            e.tile("tileloadd64", 6 + i, packed + k * (SIDE * line) + 64 * v, stride)
        for (r, v), tile in totals.items():
            e.tile("tdpbusd", tile, 4 + r, 6 + v - across[0])

    e.loop(0, f.steps, step)
    for (r, v), tile in totals.items():
        e.tile("tilestored64", tile, sums + (SIDE * r * line + 64 * v), stride)

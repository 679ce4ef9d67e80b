"""Bilinear resizing with tables of neighbours for each row and column."""

from __future__ import annotations

from nnbridge.cpu.compiled.declared import Fields, kernel
from nnbridge.cpu.compiled.emitter import Emitter
from nnbridge.cpu.compiled.values import F32, I8, I32, I64, IrValue, vector

POSITION_FIELDS = 3
"""32-bit fields of a position in the tables: offsets in bytes of its lower and upper neighbour, and the upper one's share."""

FIXED_BITS = 10
"""Binary places of shares for signed bytes."""


@kernel("source image target images out_height out_width out_pixel channels rows columns")
def resize_bilinear(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, kind: str) -> None:
    """``real``, ``unsigned`` or ``signed`` (which are offset bytes): each adds in the order of the reference kernel."""
    lanes = e.instructions.lanes
    element = 4 if kind == "real" else 1
    numbers = vector(I32 if kind == "signed" else F32, lanes)
    whole = e.constant(numbers, 1 << FIXED_BITS if kind == "signed" else 1)
    first, last = e.share(f.images * f.out_height, part, parts)

    def position(table: IrValue, index: IrValue) -> tuple[IrValue, IrValue, IrValue]:
        at = table + index * (4 * POSITION_FIELDS)
        lower, upper = (e.load(at, I32, 4 * i).signed(I64) for i in range(2))
        return lower, upper, e.splat(e.load(at, I32 if kind == "signed" else F32, 8), lanes)

    def read(address: IrValue) -> IrValue:
        if kind == "real":
            return e.load(address, numbers)
        values = e.load(address, vector(I8, lanes)).unsigned(I32)
        return values.real() if kind == "unsigned" else values - 128

    def mix(a: IrValue, b: IrValue, share: IrValue) -> IrValue:
        return a * (whole - share) + b * share

    def output_row(index: IrValue) -> None:
        image = f.source + index // f.out_height * f.image
        top, bottom, down = position(f.rows, index - index // f.out_height * f.out_height)

        def pixel(x: IrValue) -> None:
            left, right, across = position(f.columns, x)
            target = f.target + (index * f.out_width + x) * f.out_pixel

            def channels(at: IrValue) -> None:
                base = image + at * element
                tl, tr, bl, br = (read(base + y + side) for y in (top, bottom) for side in (left, right))
                if kind == "real":
                    result = mix(mix(tl, tr, across), mix(bl, br, across), down)
                elif kind == "unsigned":
                    sums = [
                        v * y * s
                        for s, pair in ((whole - across, (tl, bl)), (across, (tr, br)))
                        for v, y in zip(pair, (whole - down, down), strict=True)
                    ]
                    result = (((sums[0] + sums[1]) + sums[2]) + sums[3]).integer().truncated(I8)
                else:
                    upper, lower = (a * (whole - across) + b * across for a, b in ((tl, tr), (bl, br)))
                    total = upper * (whole - down) + lower * down
                    # To nearest, ties away from zero.
                    half = e.constant(numbers, 1 << (2 * FIXED_BITS - 1))
                    result = (((total + half + (total >> 31)) >> (2 * FIXED_BITS)) + 128).truncated(I8)
                remaining = f.channels - at
                place = target + at * element
                e.store_rest(result, place, remaining)

            e.loop(0, f.channels, channels, step=lanes)

        e.loop(0, f.out_width, pixel)

    e.loop(first, last, output_row)

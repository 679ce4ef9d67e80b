"""Sliding windows over images [batch, ..., channels] of one to any number of axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from nnbridge.operations.shapes import Window, implicit_padding
from nnbridge_tflite.host.numbers import Array, Options


def windows(dims: Sequence[int], size: Sequence[int], options: Options) -> list[Window]:
    """The window along each axis of the image, by an operator's options; the last axes are height and width."""
    found = []
    for axis, length, cells in zip("dhw"[-len(size) :], dims, size, strict=True):
        stride = max(int(options.get(f"stride_{axis}") or 1), 1)
        dilation = max(int(options.get(f"dilation_{axis}_factor") or 1), 1)
        padding = implicit_padding(length, cells, stride, dilation, options["padding"] + 1)
        found.append(Window(cells, stride, dilation, *padding))
    return found


def positions(data: Array, window: Sequence[Window]) -> list[int]:
    """How often the window fits along each axis."""
    return [w.positions(n) for w, n in zip(window, data.shape[1:-1], strict=True)]


def taps(data: Array, window: Sequence[Window]) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Each cell of the window with what it sees at every position; there are zeros around the images.

    Cells that see nothing but zeros are passed over, unless none sees more: work and memory follow from the image, however large
    window and padding are.
    """
    counts = positions(data, window)
    if min(counts) < 0:
        raise ValueError(f"a window that fits into the padded input, found {list(data.shape)}")
    seen = [_seen(w, length, n) for w, length, n in zip(window, data.shape[1:-1], counts, strict=True)]
    if not all(counts) or not all(seen):
        yield (0,) * len(seen), np.zeros((len(data), *counts, data.shape[-1]), data.dtype)
        return
    before = [max(0, w.before - cells[0] * w.dilation) for w, cells in zip(window, seen, strict=True)]
    after = [
        max(0, cells[-1] * w.dilation + (n - 1) * w.stride - w.before + 1 - length)
        for w, cells, n, length in zip(window, seen, counts, data.shape[1:-1], strict=True)
    ]
    padded = np.pad(data, ((0, 0), *zip(before, after, strict=True), (0, 0)))
    starts = [b - w.before for b, w in zip(before, window, strict=True)]
    for cell in product(*seen):
        yield cell, padded[spans(cell, counts, window, starts)]


def _seen(window: Window, length: int, count: int) -> range:
    """The cells of a window that see something of an axis at one of so many positions."""
    first = max(0, -((window.stride * (count - 1) - window.before) // window.dilation))
    return range(first, min(window.size, -(-(length + window.before) // window.dilation)))


def spans(
    cell: Sequence[int], counts: Sequence[int], window: Sequence[Window], starts: Sequence[int] | None = None
) -> tuple[slice, ...]:
    """Where one cell of the window stands at so many positions along each axis, for every image; the first cell at a start."""
    firsts = [s + k * w.dilation for k, w, s in zip(cell, window, starts or (0,) * len(window), strict=True)]
    return (slice(None), *(slice(a, a + n * w.stride, w.stride) for a, n, w in zip(firsts, counts, window, strict=True)))

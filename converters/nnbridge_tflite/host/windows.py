"""Sliding windows over images [batch, ..., channels] of one to any number of axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    """Each cell of the window with what it sees at every position; there are zeros around the images."""
    counts = positions(data, window)
    padded = np.pad(data, ((0, 0), *((w.before, w.after) for w in window), (0, 0)))
    for cell in np.ndindex(*(w.size for w in window)):
        yield cell, padded[spans(cell, counts, window)]


def spans(cell: Sequence[int], counts: Sequence[int], window: Sequence[Window]) -> tuple[slice, ...]:
    """Where one cell of the window stands at so many positions along each axis, for every image."""
    starts = [k * w.dilation for k, w in zip(cell, window, strict=True)]
    return (slice(None), *(slice(a, a + n * w.stride, w.stride) for a, n, w in zip(starts, counts, window, strict=True)))

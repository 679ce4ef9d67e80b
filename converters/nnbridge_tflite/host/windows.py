"""Sliding windows over images [batch, ..., channels] of one to any number of axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

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
    """The number of windows along each axis."""
    return [w.positions(n) for w, n in zip(window, data.shape[1:-1], strict=True)]


def framed(data: Array, window: Sequence[Window]) -> tuple[list[range], Array] | None:
    """The cells along each axis that see something, and a view [batch, positions ..., channels, cells ...] of what they see.

    There are as many zeros around the images as these cells reach: memory follows from the images, however large window and
    padding are. None where no cell sees anything but zeros.
    """
    counts = positions(data, window)
    if min(counts) < 0:
        raise ValueError(f"a window that fits into the padded input, found {list(data.shape)}")
    cells = [_seen(w, length, n) for w, length, n in zip(window, data.shape[1:-1], counts, strict=True)]
    if not all(counts) or not all(cells):
        return None
    firsts = [seen[0] * w.dilation - w.before for seen, w in zip(cells, window, strict=True)]
    extents = [(len(seen) - 1) * w.dilation + 1 for seen, w in zip(cells, window, strict=True)]
    ends = [f + (n - 1) * w.stride + e for f, n, w, e in zip(firsts, counts, window, extents, strict=True)]
    around = [(max(0, -f), max(0, e - length)) for f, e, length in zip(firsts, ends, data.shape[1:-1], strict=True)]
    reached = (slice(None), *(slice(max(0, f), e - min(0, f)) for f, e in zip(firsts, ends, strict=True)))
    padded = np.pad(data, ((0, 0), *around, (0, 0)))[reached]
    view = sliding_window_view(padded, extents, tuple(range(1, len(window) + 1)))
    strides, dilations = ([slice(None, None, getattr(w, step)) for w in window] for step in ("stride", "dilation"))
    steps = (slice(None), *strides, slice(None), *dilations)
    return cells, view[steps]


def taps(data: Array, window: Sequence[Window]) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Each cell of the window with what it sees at every position; there are zeros around the images.

    Cells that see nothing but zeros are passed over, unless none sees more.
    """
    frame = framed(data, window)
    if frame is None:
        yield (0,) * len(window), np.zeros((len(data), *positions(data, window), data.shape[-1]), data.dtype)
        return
    cells, view = frame
    for cell, place in zip(product(*cells), np.ndindex(*map(len, cells)), strict=True):
        at = (..., *place)
        yield cell, view[at]


def _seen(window: Window, length: int, count: int) -> range:
    """The cells of a window that see something of an axis at one of so many positions."""
    first = max(0, -((window.stride * (count - 1) - window.before) // window.dilation))
    return range(first, min(window.size, -(-(length + window.before) // window.dilation)))

"""Reading images between their pixels: GridSample, RoiAlign, and what is sampled for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from nnbridge.converters.declaration import Option
from nnbridge.model import Array
from nnbridge_onnx.declaration import operator
from nnbridge_onnx.host.evaluator import HostCall
from nnbridge_onnx.operators.resizing import cubic_far

_NO_HALF_PIXELS = 16
"""The first opset whose RoiAlign counts from the middle of pixels by default."""


def read_pixels(data: Array, places: Sequence[Array], padding: str) -> Array:
    """[channels, places] of [channels, ...] at whole places, which may be outside."""
    inside: Array = np.ones(places[0].shape, bool)
    found = []
    for place, size in zip(places, data.shape[1:], strict=True):
        if padding == "zeros":
            inside &= (place >= 0) & (place < size)
        found.append(np.clip(place, 0, size - 1).astype(np.int64))
    at: tuple[Any, ...] = (slice(None), *found)
    return np.where(inside, data[at], 0)


def between(data: Array, places: Sequence[Array], read: Callable[[Sequence[Array]], Array]) -> Array:
    """Linear interpolation between the pixels around each place."""
    low = [np.floor(place) for place in places]
    parts = [place - floor for place, floor in zip(places, low, strict=True)]
    made: Array = np.zeros((len(data), places[0].size), data.dtype)
    for corner in product((0, 1), repeat=len(places)):
        weight = np.prod([p if up else 1 - p for p, up in zip(parts, corner, strict=True)], axis=0)
        made += read([floor + up for floor, up in zip(low, corner, strict=True)]) * weight.astype(data.dtype)
    return made


def _between_cubic(data: Array, places: Sequence[Array], read: Callable[[Sequence[Array]], Array]) -> Array:
    """Cubic interpolation (a = -0.75) between four pixels along each axis."""
    low = [np.floor(place) for place in places]
    weights = [_cubic_weights(place - floor) for place, floor in zip(places, low, strict=True)]
    made: Array = np.zeros((len(data), places[0].size), data.dtype)
    for corner in product(range(4), repeat=len(places)):
        weight = np.prod([w[i] for w, i in zip(weights, corner, strict=True)], axis=0)
        made += read([floor + i - 1 for floor, i in zip(low, corner, strict=True)]) * weight.astype(data.dtype)
    return made


def _cubic_weights(part: Array) -> list[Array]:
    """Weights of the pixels at distances of 1 + part, part, 1 - part and 2 - part."""
    a = -0.75
    far = [cubic_far(t, a) for t in (1 + part, 2 - part)]
    near = [((a + 2) * t - (a + 3)) * t * t + 1 for t in (part, 1 - part)]
    return [far[0], *near, far[1]]


operator("AffineGrid", 5, "theta size! -> grid", "Where an affine map moves the pixels of an image.")
GRID_SAMPLE = operator(
    "GridSample", 72, "X grid -> Y", "Pixels at places of a grid.",
    options=(
        Option("align_corners", 0, "1 if -1 and 1 are the middles of the outer pixels"),
        Option("mode", "linear", "how pixels are interpolated"),
        Option("padding_mode", "zeros", "what is outside of the image"),
    ),
)  # fmt: skip


@GRID_SAMPLE.host_kernel
def _grid_sample(call: HostCall) -> Sequence[Array] | None:
    data, grid = call.input(0), call.input(1)
    mode, padding = call.option("mode"), call.option("padding_mode")
    if (
        mode not in ("linear", "bilinear", "nearest", "cubic", "bicubic")
        or data.dtype.kind != "f"
        or grid.shape[-1] != data.ndim - 2
    ):
        return None
    aligned, sizes = call.option("align_corners"), data.shape[2:]
    spans = [(0.0, s - 1.0) if aligned else (-0.5, s - 0.5) for s in sizes]

    def bounded(places: Sequence[Array]) -> list[Array]:
        if padding == "border":
            return [np.clip(p, 0, s - 1) for p, s in zip(places, sizes, strict=True)]
        if padding == "reflection":
            return [_reflected(p, *span) for p, span in zip(places, spans, strict=True)]
        return list(places)

    made = np.empty((len(data), data.shape[1], math.prod(grid.shape[1:-1])), data.dtype)
    for image, points, answer in zip(data, grid, made, strict=True):
        # The grid names the last axis first.
        shares = [points[..., -1 - axis].ravel() for axis in range(len(sizes))]
        places = [_denormalised(share, size, aligned) for share, size in zip(shares, sizes, strict=True)]

        def read(whole: Sequence[Array], image: Array = image) -> Array:
            return read_pixels(image, bounded(whole), padding)

        if mode == "nearest":
            answer[:] = read(bounded([np.rint(place) for place in places]))
        elif "cubic" in mode:
            # The border bounds each pixel that is read, not the place between them.
            answer[:] = _between_cubic(image, places, read)
        else:
            answer[:] = between(image, bounded(places), read)
    return [made.reshape(*data.shape[:2], *grid.shape[1:-1])]


def _denormalised(share: Array, size: int, aligned: bool) -> Array:
    """Places from -1 to 1 as pixels."""
    return (share + 1) / 2 * (size - 1) if aligned else ((share + 1) * size - 1) / 2


def _reflected(places: Array, low: float, high: float) -> Array:
    """Places thrown back at the borders until they lie between them."""
    span = high - low
    if span <= 0:
        return np.full_like(places, low)
    way = np.mod(places - low, 2 * span)
    return low + np.where(way > span, 2 * span - way, way)


ROI_ALIGN = operator(
    "RoiAlign", 150, "X rois batch_indices -> Y", "Averages over sampled points of each part of each region.",
    options=(
        Option("coordinate_transformation_mode", None, "whether regions count from the middle of pixels"),
        Option("mode", "avg", "avg or max"),
        Option("output_height", 1, "parts of a region"),
        Option("output_width", 1, "parts of a region"),
        Option("sampling_ratio", 0, "points of a part, 0 for as many as pixels"),
        Option("spatial_scale", 1.0, "from the regions' units to pixels"),
    ),
)  # fmt: skip


@ROI_ALIGN.host_kernel
def _roi_align(call: HostCall) -> Sequence[Array] | None:
    """Averages over sampled points of each part of each region."""
    data, regions, images = call.input(0), call.input(1), call.input(2)
    if call.option("mode") != "avg" or data.dtype.kind != "f":
        return None
    rows, columns = (int(call.option(f"output_{side}")) for side in ("height", "width"))
    usual = "half_pixel" if call.version >= _NO_HALF_PIXELS else "output_half_pixel"
    centred = call.option("coordinate_transformation_mode", usual) == "half_pixel"
    scaled = regions * np.float32(call.option("spatial_scale")) - (0.5 if centred else 0.0)
    made = np.zeros((len(regions), data.shape[1], rows, columns), data.dtype)
    for region, image, answer in zip(scaled, images, made, strict=True):
        axes = []
        for low, high, parts in ((region[1], region[3], rows), (region[0], region[2], columns)):
            extent = high - low if centred else max(high - low, 1.0)
            count = call.option("sampling_ratio") or math.ceil(extent / parts)
            axes.append((low + extent / parts * (np.arange(parts * count) + 0.5) / max(count, 1), count))
        (y, vertical), (x, horizontal) = axes
        if vertical > 0 and horizontal > 0:
            points = _sampled(data[int(image)], y, x).reshape(-1, rows, vertical, columns, horizontal)
            answer[:] = points.mean(axis=(2, 4))
    return [made]


def _sampled(image: Array, y: Array, x: Array) -> Array:
    """[channels, y, x]; what lies more than a pixel outside is 0."""
    height, width = image.shape[1:]
    down, across = np.meshgrid(y, x, indexing="ij")
    outside = (down < -1) | (down > height) | (across < -1) | (across > width)
    places = [np.clip(down, 0, height - 1).ravel(), np.clip(across, 0, width - 1).ravel()]
    found = between(image, places, partial(read_pixels, image, padding="border"))
    return np.where(outside, 0, found.reshape(len(image), len(y), len(x)))

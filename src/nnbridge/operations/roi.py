"""Regions of feature maps: ROI_ALIGN, ROI_POOLING, HEATMAP_MAX_KEYPOINT."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnbridge.model import Array
from nnbridge.operations.arithmetic import is_quant8, mbqm, quantise, quantize_multiplier, round_half_away, saturate
from nnbridge.operations.call import Call
from nnbridge.operations.declaration import Input, Layout, Output, fixed, like, operation, rank, types
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode

BOX_QUANTISATION = (0.125, 0)
BOXES_FIXED = fixed({T.TENSOR_QUANT16_ASYMM: BOX_QUANTISATION})

TYPES = [
    types(3, T=T.TENSOR_FLOAT32, B=T.TENSOR_FLOAT32, S=T.FLOAT32),
    types(3, T=T.TENSOR_FLOAT16, B=T.TENSOR_FLOAT16, S=T.FLOAT16),
    types(3, T=T.TENSOR_QUANT8_ASYMM, B=T.TENSOR_QUANT16_ASYMM, S=T.FLOAT32),
    types(4, T=T.TENSOR_QUANT8_ASYMM_SIGNED, B=T.TENSOR_QUANT16_ASYMM, S=T.FLOAT32),
]
_NCHW = Input("nchw", T.BOOL, "true: the feature maps and the output are NCHW")


def check_boxes(call: Call, name: str, columns: int = 4) -> None:
    """Boxes are [count, columns], and quantised ones have scale 1/8 and zero point 0."""
    boxes = call[name]
    call.require(boxes.dims[1] == columns, f"boxes of {columns} numbers", list(boxes.dims), name)
    if boxes.type == T.TENSOR_QUANT16_ASYMM:
        found = (boxes.scale, boxes.zero_point)
        call.require(found == BOX_QUANTISATION, "scale 0.125 and zero point 0", found, name)


def check_corners(call: Call, boxes: Array, name: str) -> None:
    """Every box [..., x1, y1, x2, y2] has x1 <= x2 and y1 <= y2."""
    sound = (boxes[..., 0] <= boxes[..., 2]) & (boxes[..., 1] <= boxes[..., 3])
    call.require(sound.all(), "corners with x1 <= x2 and y1 <= y2", boxes[~sound][:1].tolist(), name)


def _regions_shape(call: Call) -> tuple[int, ...]:
    x, rois = call["input"], call["rois"]
    check_boxes(call, "rois")
    call.require(call["batches"].dims == rois.dims[:1], "an image number for each region", call["batches"].dims, "batches")
    sizes = [int(call.scalar(name)) for name in ("out_height", "out_width")]
    for name in ("out_height", "out_width", "height_stride", "width_stride"):
        call.require(call.scalar(name) > 0, "a value above 0", call.scalar(name), name)
    call.require(0 not in x.dims, "feature maps without a dimension of 0", list(x.dims), "input")
    return (rois.dims[0], *sizes, x.dims[3])


def _regions(call: Call) -> tuple[Array, Array]:
    """Regions in feature-map coordinates [count, x1, y1, x2, y2] and their image numbers."""
    x, batches = call["input"], call["batches"].data
    rois = call["rois"].real
    check_corners(call, rois, "rois")
    call.require(((batches >= 0) & (batches < x.dims[0])).all(), f"image numbers below {x.dims[0]}", batches, "batches")
    # Times the reciprocals, as Android computes it: a quotient may be a last digit and, rounded, a cell off.
    scales = np.float32(1) / np.array([call.scalar("width_stride"), call.scalar("height_stride")] * 2, np.float32)
    regions = rois * scales
    inside = ((rois >= 0) & (regions <= np.array([x.dims[2], x.dims[1]] * 2, np.float32))).all()
    call.require(inside, "regions inside the image", rois.tolist(), "rois")
    return regions, batches


_REGION_INPUTS = [
    Input("input", "T", "feature maps [batch, h, w, depth]", rank=rank(4)),
    Input("rois", "B", "regions [count, 4]: x1, y1, x2, y2 in image coordinates", rank=rank(2)),
    Input("batches", T.TENSOR_INT32, "image number of each region", rank=rank(1)),
    Input("out_height", T.INT32, "height of the output"),
    Input("out_width", T.INT32, "width of the output"),
    Input("height_stride", "S", "image height / feature map height"),
    Input("width_stride", "S", "image width / feature map width"),
]


def _samples(start: float, end: float, bins: int, samples: int, size: int) -> tuple[int, Array, Array, Array]:
    """Samples per bin; for all samples along an axis the two neighbours and the share of the second (N165, N166).

    In float32 and Android's order, because the shares of 8-bit maps are rounded.
    """
    width = np.maximum(np.float32(end) - np.float32(start), np.float32(1)) / np.float32(bins)
    count = samples if samples > 0 else math.ceil(width)
    between = width / np.float32(count)
    first = width * np.arange(bins, dtype=np.float32) + np.float32(start) + between / np.float32(2)
    position = (first[:, None] + between * np.arange(count, dtype=np.float32)).reshape(-1)
    lower = np.floor(position).astype(np.int64)
    last = lower >= size - 1
    lower = np.where(last, size - 1, lower)
    share = np.where(last, np.float32(0), position - lower.astype(np.float32))
    return count, lower, np.where(last, lower, lower + 1), share


_STEP = np.float32(1) / np.float32(255)
"""Of the weights that samples of 8-bit maps have; a half is 127 such steps, because float32's is a little longer than 1/255."""


def _align_shape(call: Call) -> tuple[int, ...]:
    for name in ("height_samples", "width_samples"):
        call.require(call.scalar(name) >= 0, "a number of samples of at least 0", call.scalar(name), name)
    return _regions_shape(call)


@operation(
    OperationCode.ROI_ALIGN,
    since=3,
    summary="Regions of feature maps, averaged over bilinear samples.",
    types=TYPES,
    inputs=[
        *_REGION_INPUTS,
        Input("height_samples", T.INT32, "samples along the height of a bin; 0: as many as it has cells"),
        Input("width_samples", T.INT32, "samples along the width of a bin; 0: as many as it has cells"),
        _NCHW,
    ],
    outputs=[Output("output", "T", "[count, out_height, out_width, depth]; its scale and zero point are its own")],
    shape=_align_shape,
    layout=Layout(("input",)),
    zero_sized=True,
)
def roi_align(call: Call) -> Array:
    """Bilinear samples, summed over each bin."""
    x, out = call["input"], call.out
    (regions, batches), (_, height, width, depth) = _regions(call), out.dims
    samples = int(call.scalar("height_samples")), int(call.scalar("width_samples"))
    quantised = is_quant8(x.type)
    maps = x.centred.astype(np.int32) if quantised else x.data
    result = np.zeros(out.dims, np.float32 if not quantised else out.dtype)
    for k, ((x1, y1, x2, y2), image) in enumerate(zip(regions, batches, strict=True)):
        rows, top, bottom, dy = _samples(y1, y2, height, samples[0], x.dims[1])
        columns, left, right, dx = _samples(x1, x2, width, samples[1], x.dims[2])
        total = np.zeros((len(top), len(left), depth), maps.dtype if quantised else np.float32)
        for rows_at, wy in ((top, 1 - dy), (bottom, dy)):
            for columns_at, wx in ((left, 1 - dx), (right, dx)):
                weight = wy[:, None] * wx[None, :]
                weight = round_half_away(weight / _STEP).astype(np.int32) if quantised else weight
                total += weight[..., None] * maps[image][rows_at[:, None], columns_at[None, :]]
        sums = total.reshape(height, rows, width, columns, depth).sum(axis=(1, 3), dtype=total.dtype)
        count = rows * columns
        if not quantised:
            result[k] = sums / np.float32(count)
            continue
        real = float(np.float32(x.scale) * _STEP / np.float32(out.scale) / np.float32(count))
        call.require(real < 1, "input scale / 255 / output scale / samples below 1", real, "output")
        result[k] = saturate(mbqm(sums.astype(np.int64), *quantize_multiplier(real)) + out.zero_point, out.dtype)
    return result


def _bins(start: float, end: float, count: int, size: int) -> tuple[Array, Array]:
    """First and last + 1 cell of each bin along an axis (N168)."""
    first, last = int(round_half_away(np.float32(start))), int(round_half_away(np.float32(end)))
    width = np.float32(max(last - first + 1, 1)) / np.float32(count)
    index = np.arange(count, dtype=np.float32)
    low = np.floor(first + index * width).astype(np.int64)
    high = np.ceil(first + (index + 1) * width).astype(np.int64)
    return np.clip(low, 0, size), np.clip(high, 0, size)


def _reach(low: Array, high: Array, size: int) -> slice:
    """The cells of all bins, at least one."""
    first = min(int(low.min()), size - 1)
    return slice(first, max(int(high.max()), first + 1))


def _maxima(x: Array, low: Array, high: Array) -> Array:
    """Maximum of x[low:high] along the first axis, for every pair; of an empty range a value that the caller drops."""
    reach = np.arange(max(1, int((high - low).max())))
    index = np.minimum(low[:, None] + reach, np.maximum(low, high - 1)[:, None])
    return np.asarray(np.maximum.reduce(x[index.clip(0, len(x) - 1)], axis=1))


@operation(
    OperationCode.ROI_POOLING,
    since=3,
    summary="Maxima over the bins of regions of feature maps.",
    types=TYPES,
    inputs=[*_REGION_INPUTS, _NCHW],
    outputs=[Output("output", "T", "[count, out_height, out_width, depth]", like("input"))],
    shape=_regions_shape,
    layout=Layout(("input",)),
)
def roi_pooling(call: Call) -> Array:
    """The result of an empty bin is 0 (the zero point)."""
    x, (_, height, width, _) = call["input"], call.out.dims
    regions, batches = _regions(call)
    result = np.empty(call.out.dims, x.data.dtype)
    for k, ((x1, y1, x2, y2), image) in enumerate(zip(regions, batches, strict=True)):
        top, bottom = _bins(y1, y2, height, x.dims[1])
        left, right = _bins(x1, x2, width, x.dims[2])
        down, across = _reach(top, bottom, x.dims[1]), _reach(left, right, x.dims[2])
        rows = _maxima(x.data[image, down, across], top - down.start, bottom - down.start)
        cells = _maxima(rows.swapaxes(0, 1), left - across.start, right - across.start).swapaxes(0, 1)
        empty = (top >= bottom)[:, None] | (left >= right)[None, :]
        result[k] = np.where(empty[..., None], x.data.dtype.type(x.zero_point), cells)
    return result


def _heatmap_shape(call: Call) -> list[tuple[int, ...]]:
    (count, height, width, keypoints), boxes = call["heatmaps"].dims, call["boxes"]
    check_boxes(call, "boxes")
    call.require(height == width and height >= 2, "square heatmaps of at least 2 x 2", [height, width], "heatmaps")
    call.require(boxes.dims[0] == count, f"{count} boxes", boxes.dims[0], "boxes")
    return [(count, keypoints), (count, keypoints, 2)]


@operation(
    OperationCode.HEATMAP_MAX_KEYPOINT,
    since=3,
    summary="Where heatmaps are highest, to a fraction of a cell, in image coordinates.",
    types=[types(s.level, **{k: v for k, v in s.types.items() if k != "S"}) for s in TYPES],
    inputs=[
        Input("heatmaps", "T", "[boxes, size, size, keypoints]", rank=rank(4)),
        Input("boxes", "B", "[boxes, 4]: x1, y1, x2, y2", rank=rank(2)),
        Input("nchw", T.BOOL, "true: the heatmaps are NCHW"),
    ],
    outputs=[
        Output("scores", "T", "[boxes, keypoints]; its scale and zero point are its own"),
        Output("keypoints", "B", "[boxes, keypoints, 2]: x, y", BOXES_FIXED),
    ],
    shape=_heatmap_shape,
    layout=Layout(("heatmaps",), outputs=()),
)
def heatmap_max_keypoint(call: Call) -> Sequence[Array]:
    """N169: the highest cell, moved to the top of a quadratic through its 3 x 3 neighbourhood."""
    maps, boxes = call["heatmaps"].real, call["boxes"].real
    check_corners(call, boxes, "boxes")
    count, size, _, keypoints = maps.shape
    flat = maps.transpose(0, 3, 1, 2).reshape(count, keypoints, size * size)
    square = flat.reshape(count, keypoints, size, size)
    row, column = np.divmod(flat.argmax(axis=-1), size)
    grid = _neighbourhood(square, row, column)
    if np.isnan(grid[..., 1, 1]).any():
        # N35: NaN is never above what was seen before.
        row, column = np.divmod(np.where(np.isnan(flat), -np.inf, flat).argmax(axis=-1), size)
        grid = _neighbourhood(square, row, column)
    tolerance = 1e-3 if call["heatmaps"].type == T.TENSOR_FLOAT16 else 1e-5
    offset, scores = _summit(grid, np.float32(tolerance))
    start, extent = boxes[:, None, :2], boxes[:, None, 2:] - boxes[:, None, :2]
    cell = np.stack([column, row], axis=-1).astype(np.float32)
    points = (cell + offset + np.float32(0.5)) / np.float32(size) * extent + start
    if not is_quant8(call.outs[0].type):
        return scores, points
    return quantise(scores, call.outs[0]), quantise(points, call.outs[1])


def _neighbourhood(maps: Array, row: Array, column: Array) -> Array:
    """The cells around each summit, [boxes, keypoints, 3, 3]; outside the map its border mirrors."""
    size = maps.shape[-1]

    def around(centre: Array) -> Array:
        index = np.abs(centre[..., None] + np.arange(-1, 2))
        return np.where(index >= size, 2 * size - 2 - index, index)

    box = np.arange(maps.shape[0])[:, None, None, None]
    keypoint = np.arange(maps.shape[1])[None, :, None, None]
    return maps[box, keypoint, around(row)[..., :, None], around(column)[..., None, :]]


def _summit(grid: Array, tolerance: np.float32) -> tuple[Array, Array]:
    """Offset (x, y) of a quadratic's top from the centre cell, and its height."""
    centre = grid[..., 1, 1]
    slope = np.stack([grid[..., 1, 0] - grid[..., 1, 2], grid[..., 0, 1] - grid[..., 2, 1]], axis=-1) / 2
    xx = grid[..., 1, 0] - 2 * centre + grid[..., 1, 2]
    yy = grid[..., 0, 1] - 2 * centre + grid[..., 2, 1]
    xy = (grid[..., 2, 2] - grid[..., 2, 0] - grid[..., 0, 2] + grid[..., 0, 0]) / 4
    determinant = xx * yy - xy * xy
    flat = np.abs(determinant) < tolerance + tolerance * (xx * yy)
    safe = np.where(flat, 1, determinant)
    offset = np.stack(
        [(yy * slope[..., 0] - xy * slope[..., 1]) / safe, (xx * slope[..., 1] - xy * slope[..., 0]) / safe], axis=-1
    )
    offset = np.where(flat[..., None], 0, offset)
    largest = np.abs(offset).max(axis=-1, keepdims=True)
    offset = np.where(largest > 1.5, offset * (np.float32(1.5) / np.maximum(largest, 1.5)), offset).astype(np.float32)
    dx, dy = offset[..., 0], offset[..., 1]
    curve = (xx * dx + xy * dy) * dx + (xy * dx + yy * dy) * dy
    height = centre - slope[..., 0] * dx - slope[..., 1] * dy + curve / 2
    return offset, np.where(flat, centre, height).astype(np.float32)

"""Boxes: AXIS_ALIGNED_BBOX_TRANSFORM, BOX_WITH_NMS_LIMIT, GENERATE_PROPOSALS, DETECTION_POSTPROCESSING.

Quantised forms are computed on real numbers and quantised at the end, as Android does.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any, TypeAlias

import numpy as np

from nnbridge.model import Array
from nnbridge.operations.arithmetic import quantise
from nnbridge.operations.call import Arg, Call
from nnbridge.operations.declaration import DATA_DEPENDENT, Input, Layout, Output, like, operation, rank, types
from nnbridge.operations.kernels import prepared
from nnbridge.operations.roi import BOX_QUANTISATION, BOXES_FIXED, TYPES, check_boxes, check_corners
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode


def _as_declared(values: Array, out: Arg) -> Array:
    """Real numbers in an output's type."""
    return quantise(values, out) if out.dtype.kind in "iu" else values


def transformed(boxes: Array, deltas: Array, image: Array) -> Array:
    """N150, N151: boxes [..., 4] moved and scaled by deltas [..., 4], clipped to the image [..., (height, width)]."""
    size = boxes[..., 2:] - boxes[..., :2]
    centre = (boxes[..., :2] + boxes[..., 2:]) / 2 + deltas[..., :2] * size
    half = np.exp(deltas[..., 2:]) * size / 2
    limit = image[..., ::-1]
    corners = [np.clip(corner, 0, limit) for corner in (centre - half, centre + half)]
    return np.concatenate(corners, axis=-1).astype(np.float32)


Suppress: TypeAlias = Callable[[Array, Array], Array]
"""From the overlaps of boxes with a pick and their scores, which it may lower in place, to the boxes that are out."""


def suppression(corners: Array, scores: Array, suppress: Suppress) -> Iterator[tuple[int, float]]:
    """N152: boxes, as rows of corners [4, n], by falling score; each pick suppresses others. Yields indexes and scores.

    The order of what is left is Android's, for it decides between equal scores: a pick is swapped with the head of the
    list, what falls out is replaced from the end. Nothing is computed before it is asked for.
    """
    indexes = np.arange(len(scores))
    left = np.empty((6, len(scores)), np.float32)
    left[:4], left[5] = corners, scores
    np.multiply(left[2] - left[0], left[3] - left[1], out=left[4])
    # NumPy finds minima and maxima of two arrays twice as fast as those of an array and a number.
    picks, nothing = np.empty((4, len(scores)), np.float32), np.zeros((2, len(scores)), np.float32)
    while len(indexes):
        best = int(left[5].argmax())
        pick = left[:, best, None].copy()
        yield int(indexes[best]), float(pick[5, 0])
        left[:, best], indexes[best] = left[:, 0], indexes[0]
        left, indexes = left[:, 1:], indexes[1:]
        picks, nothing = picks[:, : len(indexes)], nothing[:, : len(indexes)]
        picks[...] = pick[:4]
        sides = np.minimum(left[2:4], picks[2:])
        sides -= np.maximum(left[:2], picks[:2])
        down, across = np.maximum(sides, nothing, out=sides)
        common = np.multiply(down, across, out=down)
        union = left[4] + pick[4, 0]
        union -= common
        # Nothing by nothing, of two empty boxes, is not above any threshold.
        out = suppress(np.divide(common, union, out=common), left[5])
        count = len(indexes) - int(np.count_nonzero(out))
        if count < len(indexes):
            gaps, fillers = out[:count].nonzero()[0], count + (~out[count:]).nonzero()[0][::-1]
            left[:, gaps], indexes[gaps] = left[:, fillers], indexes[fillers]
            left, indexes = left[:, :count], indexes[:count]


def hard(threshold: float) -> Suppress:
    """N153: whatever overlaps a pick by the threshold or more is out."""
    return lambda overlap, scores: overlap >= threshold


_FOREMOST = 64
"""Boxes of the best scores, which nearly always hold all picks."""


def first_picks(corners: Corners, scores: Array, floor: np.float32, threshold: float, limit: int) -> list[int]:
    """As many picks of hard suppression, of boxes that score more than a floor: among the foremost boxes, if these are enough,
    and if no equal scores leave it to the order of Android's list who comes first.
    """
    if 4 * limit < _FOREMOST < len(scores):
        foremost = np.argpartition(scores, -_FOREMOST)[-_FOREMOST:]
        foremost = foremost[scores[foremost].argsort()[::-1]]
        ranked = scores[foremost]
        # The last one is left out: all others score as it does at most.
        if ranked[-2] > floor and (ranked[1:] < ranked[:-1]).all():
            picks = _picked(corners(foremost[:-1]), threshold, limit)
            if len(picks) == limit:
                return [int(box) for box in foremost[picks]]
    found = np.flatnonzero(scores > floor)
    return [int(found[k]) for k, _ in islice(suppression(corners(found), scores[found], hard(threshold)), limit)]


def _picked(corners: Array, threshold: float, limit: int) -> list[int]:
    """Picks among boxes [4, n] that come by falling score."""
    low, high = corners[:2], corners[2:]
    down, across = high - low
    areas, out, picks = down * across, np.zeros(corners.shape[1], bool), list[int]()
    while len(picks) < limit and not out[pick := int(out.argmin())]:
        picks.append(pick)
        one = slice(pick, pick + 1)
        sides = np.minimum(high, high[:, one])
        sides -= np.maximum(low, low[:, one])
        down, across = np.maximum(sides, 0, out=sides)
        common = np.multiply(down, across, out=down)
        out |= common / (areas[one] + areas - common) >= threshold
        out[pick] = True
    return picks


def soft(kernel: int, threshold: float, sigma: float, floor: float) -> Suppress:
    """N154: scores are lowered by the overlap with each pick, and are out below the floor. Of empty boxes, whose overlap is not a
    number, only the hard kernel suppresses anything.
    """

    def suppress(overlap: Array, scores: Array) -> Array:
        factor = _KERNELS[kernel](overlap, threshold, sigma).astype(np.float32)
        np.copyto(factor, 1, where=np.isnan(factor))
        scores *= factor
        return scores < floor

    return suppress


_KERNELS = (
    lambda overlap, threshold, sigma: np.where(overlap < threshold, 1, 0),
    lambda overlap, threshold, sigma: np.where(overlap < threshold, 1, 1 - overlap),
    lambda overlap, threshold, sigma: np.exp(-np.square(overlap) / sigma),
)

Detection: TypeAlias = tuple[int, int, float]
"""A box's index, its class and its score."""


Corners: TypeAlias = Callable[[Array], Array]
"""From indexes of boxes to their corners [4, n]."""


def _of_class(label: int, corners: Corners, scores: Array, threshold: np.float32, suppress: Suppress) -> Iterator[Detection]:
    """A class's detections among the boxes that score more than the threshold."""
    found = np.flatnonzero(scores > threshold)
    for k, score in suppression(corners(found), scores[found], suppress):
        yield int(found[k]), label, score


def _best(scores: Array, threshold: np.float32, start: Callable[[int], Iterator[Detection]]) -> Iterator[Detection]:
    """The detections of all classes but the background by falling score; of equal ones the lower class comes first.

    ``start`` begins those of a class, when its best score among all [classes, boxes] is the next.
    """
    bests = enumerate(np.fmax.reduce(scores, axis=1).tolist())
    heap: list[tuple[float, int, Detection | None]] = [
        (-best, label, None) for label, best in bests if label and best > threshold
    ]
    heapq.heapify(heap)
    classes: dict[int, Iterator[Detection]] = {}
    while heap:
        _, label, detection = heap[0]
        if detection is None:
            classes[label] = start(label)
            detection = next(classes[label])
        yield detection
        following = next(classes[label], None)
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (-following[2], label, following))


def _best_of_all(scores: Array, start: Callable[[int], Iterator[Detection]], limit: int) -> list[Detection]:
    """The result of :func:`_best` where a class has to be known as a whole, because scores rise when they are lowered: negative
    ones, or all where a width is.
    """
    found = [detection for label in range(1, len(scores)) for detection in _limited(start(label), limit)]
    return list(_limited(iter(sorted(found, key=lambda detection: -detection[2])), limit))


def _limited(found: Iterator[Any], limit: int) -> Iterator[Any]:
    """As many as the limit, all if it is negative."""
    return found if limit < 0 else islice(found, limit)


def _transform_shape(call: Call) -> tuple[int, ...]:
    rois, deltas, info = call["rois"], call["deltas"], call["image_info"]
    check_boxes(call, "rois")
    call.require(deltas.dims[1] % 4 == 0 and deltas.dims[1] > 0, "4 deltas for each class", deltas.dims[1], "deltas")
    call.require(deltas.dims[0] == rois.dims[0], f"deltas for {rois.dims[0]} boxes", deltas.dims[0], "deltas")
    call.require(call["batches"].dims == rois.dims[:1], "an image number for each box", call["batches"].dims, "batches")
    check_boxes(call, "image_info", 2)
    call.require(info.dims[0] > 0, "at least one image", info.dims[0], "image_info")
    return rois.dims[0], deltas.dims[1]


@operation(
    OperationCode.AXIS_ALIGNED_BBOX_TRANSFORM,
    since=3,
    summary="Boxes moved and scaled by predicted deltas, clipped to their images.",
    types=[
        types(3, T=T.TENSOR_FLOAT32, D=T.TENSOR_FLOAT32),
        types(3, T=T.TENSOR_FLOAT16, D=T.TENSOR_FLOAT16),
        types(3, T=T.TENSOR_QUANT16_ASYMM, D=T.TENSOR_QUANT8_ASYMM),
        types(4, T=T.TENSOR_QUANT16_ASYMM, D=T.TENSOR_QUANT8_ASYMM_SIGNED),
    ],
    inputs=[
        Input("rois", "T", "boxes [count, 4]: x1, y1, x2, y2", rank=rank(2)),
        Input("deltas", "D", "[count, 4 * classes]: dx, dy, dw, dh", rank=rank(2)),
        Input("batches", T.TENSOR_INT32, "image number of each box", rank=rank(1)),
        Input("image_info", "T", "[images, 2]: height, width", rank=rank(2)),
    ],
    outputs=[Output("output", "T", "[count, 4 * classes]", BOXES_FIXED)],
    shape=_transform_shape,
    zero_sized=True,
)
def axis_aligned_bbox_transform(call: Call) -> Array:
    """One box for each class."""
    rois, deltas, batches, info = call["rois"].real, call["deltas"].real, call["batches"].data, call["image_info"].real
    check_corners(call, rois, "rois")
    call.require(((batches >= 0) & (batches < len(info))).all(), f"image numbers below {len(info)}", batches, "batches")
    moved = transformed(rois[:, None, :], deltas.reshape(len(rois), -1, 4), info[batches][:, None, :])
    return _as_declared(moved.reshape(call.out.dims), call.out)


def _nms_shape(call: Call) -> list[tuple[int, ...]]:
    scores, rois = call["scores"], call["rois"]
    count, classes = scores.dims
    call.require(classes > 1, "more than the background class", classes, "scores")
    check_boxes(call, "rois", 4 * classes)
    call.require(rois.dims[0] == count, f"{count} boxes", rois.dims[0], "rois")
    call.require(call["batches"].dims == (count,), f"{count} image numbers", call["batches"].dims, "batches")
    kernel = int(call.scalar("nms_kernel"))
    call.require(kernel in (0, 1, 2), "a kernel of 0 (hard), 1 (linear) or 2 (gaussian)", kernel, "nms_kernel")
    return [(DATA_DEPENDENT,), (DATA_DEPENDENT, 4), (DATA_DEPENDENT,), (DATA_DEPENDENT,)]


@operation(
    OperationCode.BOX_WITH_NMS_LIMIT,
    since=3,
    summary="The best boxes of each image and class after (soft) non-maximum suppression.",
    types=TYPES,
    inputs=[
        Input("scores", "T", "[boxes, classes]; class 0 is the background", rank=rank(2)),
        Input("rois", "B", "[boxes, 4 * classes]: x1, y1, x2, y2", rank=rank(2)),
        Input("batches", T.TENSOR_INT32, "image number of each box; boxes of an image are contiguous", rank=rank(1)),
        Input("score_threshold", "S", "boxes must score more"),
        Input("max_detections", T.INT32, "boxes retained for each image; negative: all"),
        Input("nms_kernel", T.INT32, "0 hard, 1 linear, 2 gaussian"),
        Input("iou_threshold", "S", "overlap from which scores are lowered (hard and linear kernel)"),
        Input("sigma", "S", "width of the gaussian kernel"),
        Input("nms_score_threshold", "S", "boxes whose lowered score is less are dropped"),
    ],
    outputs=[
        Output("scores_out", "T", "lowered scores [detections]", like("scores")),
        Output("rois_out", "B", "boxes [detections, 4]", BOXES_FIXED),
        Output("classes_out", T.TENSOR_INT32, "classes [detections]"),
        Output("batches_out", T.TENSOR_INT32, "image numbers [detections]"),
    ],
    shape=_nms_shape,
    zero_sized=True,
)
def box_with_nms_limit(call: Call) -> Sequence[Array]:
    """N155, N156: by image, then class, then falling score."""
    scores, boxes, batches = call["scores"].real, call["rois"].real, call["batches"].data
    count, classes = scores.shape
    boxes = boxes.reshape(count, classes, 4)
    check_corners(call, boxes, "rois")
    limit, kernel = int(call.scalar("max_detections")), int(call.scalar("nms_kernel"))
    names = ("score_threshold", "iou_threshold", "sigma", "nms_score_threshold")
    threshold, overlap, sigma, floor = (np.float32(call.scalar(name)) for name in names)
    suppress = soft(kernel, overlap, sigma, floor)
    detections: list[Detection] = []
    bounds = [*np.flatnonzero(np.diff(batches, prepend=batches[:1] - 1)), count] if count else []
    for first, last in pairwise(bounds):
        some, by_label = boxes[first:last], scores[first:last].T

        def start(label: int, some: Array = some, by_label: Array = by_label) -> Iterator[Detection]:
            return _of_class(label, lambda chosen: some[chosen, label].T, by_label[label], threshold, suppress)

        if threshold < 0 or sigma < 0:
            picks = _best_of_all(by_label, start, limit)
        else:
            picks = list(_limited(_best(by_label, threshold, start), limit))
        found = [(first + box, label, score) for box, label, score in picks]
        detections += sorted(found, key=lambda detection: (detection[1], -detection[2]))
    index = np.array([box for box, _, _ in detections], np.int64)
    labels = np.array([label for _, label, _ in detections], np.int64)
    best = np.array([score for _, _, score in detections], np.float32)
    raw = call["rois"].data.reshape(count, classes, 4)[index, labels]
    return _as_declared(best, call.outs[0]), raw, labels, batches[index]


def _proposals_shape(call: Call) -> list[tuple[int, ...]]:
    (batch, height, width, count), anchors, info = call["scores"].dims, call["anchors"].dims, call["image_info"].dims
    expected = (batch, height, width, 4 * count)
    call.require(call["deltas"].dims == expected, f"deltas of {list(expected)}", list(call["deltas"].dims), "deltas")
    call.require(anchors == (count, 4), f"anchors of [{count}, 4]", list(anchors), "anchors")
    call.require(info == (batch, 2), f"image information of [{batch}, 2]", list(info), "image_info")
    for name in ("height_stride", "width_stride"):
        call.require(call.scalar(name) > 0, "a stride above 0", call.scalar(name), name)
    if call["scores"].type == T.TENSOR_QUANT8_ASYMM:  # Android does not look at those of signed scores.
        call.require(call["anchors"].scale == BOX_QUANTISATION[0], "scale 0.125", call["anchors"].scale, "anchors")
        check_boxes(call, "image_info", 2)
    return [(DATA_DEPENDENT,), (DATA_DEPENDENT, 4), (DATA_DEPENDENT,)]


@operation(
    OperationCode.GENERATE_PROPOSALS,
    since=3,
    summary="Region proposals from anchors, scores and deltas.",
    types=[
        types(3, T=T.TENSOR_FLOAT32, A=T.TENSOR_FLOAT32, M=T.TENSOR_FLOAT32, S=T.FLOAT32),
        types(3, T=T.TENSOR_FLOAT16, A=T.TENSOR_FLOAT16, M=T.TENSOR_FLOAT16, S=T.FLOAT16),
        types(3, T=T.TENSOR_QUANT8_ASYMM, A=T.TENSOR_QUANT16_SYMM, M=T.TENSOR_QUANT16_ASYMM, S=T.FLOAT32),
        types(4, T=T.TENSOR_QUANT8_ASYMM_SIGNED, A=T.TENSOR_QUANT16_SYMM, M=T.TENSOR_QUANT16_ASYMM, S=T.FLOAT32),
    ],
    inputs=[
        Input("scores", "T", "[batch, h, w, anchors]", rank=rank(4)),
        Input("deltas", "T", "[batch, h, w, 4 * anchors]", rank=rank(4)),
        Input("anchors", "A", "[anchors, 4]: x1, y1, x2, y2", rank=rank(2)),
        Input("image_info", "M", "[batch, 2]: height, width", rank=rank(2)),
        Input("height_stride", "S", "image height / feature map height"),
        Input("width_stride", "S", "image width / feature map width"),
        Input("pre_nms_max", T.INT32, "boxes that go into suppression; not above 0: all"),
        Input("post_nms_max", T.INT32, "boxes that come out for each image; negative: all"),
        Input("iou_threshold", "S", "overlap from which a box is suppressed"),
        Input("min_size", "S", "boxes must be larger"),
        Input("nchw", T.BOOL, "true: scores and deltas are NCHW"),
    ],
    outputs=[
        Output("scores_out", "T", "scores [detections]", like("scores")),
        Output("rois_out", "M", "boxes [detections, 4]", BOXES_FIXED),
        Output("batches_out", T.TENSOR_INT32, "image numbers [detections]"),
    ],
    shape=_proposals_shape,
    layout=Layout(("scores", "deltas"), outputs=()),
)
def generate_proposals(call: Call) -> Sequence[Array]:
    """N157: image by image, in the order of suppression."""
    scores, deltas, anchors, info = (call[name].real for name in ("scores", "deltas", "anchors", "image_info"))
    batch, height, width, _ = scores.shape
    y = np.arange(height, dtype=np.float32)[:, None] * np.float32(call.scalar("height_stride"))
    x = np.arange(width, dtype=np.float32)[None, :] * np.float32(call.scalar("width_stride"))
    shift = np.stack(np.broadcast_arrays(x, y, x, y), axis=-1)[:, :, None, :]
    shifted = (shift + anchors).reshape(-1, 4)
    check_corners(call, shifted, "anchors")
    before, after = int(call.scalar("pre_nms_max")), int(call.scalar("post_nms_max"))
    overlap, smallest = np.float32(call.scalar("iou_threshold")), np.float32(call.scalar("min_size"))
    detections: list[tuple[Array, Array, Array]] = []
    for image in range(batch):
        score = scores[image].reshape(-1)
        order = np.arange(len(score))
        if 0 < before < len(score):
            order = np.argsort(-score, kind="stable")[:before]
        boxes = transformed(shifted[order], deltas[image].reshape(-1, 4)[order], info[image])
        size = boxes[:, 2:] - boxes[:, :2]
        centre = boxes[:, :2] + size / 2
        sound = (size > smallest).all(axis=1) & (centre < info[image][::-1]).all(axis=1)
        boxes, score = boxes[sound], score[order][sound]
        picks = [pick for pick, _ in _limited(suppression(boxes.T, score, hard(float(overlap))), after)]
        detections.append((score[picks], boxes[picks], np.full(len(picks), image)))
    best, boxes, images = (np.concatenate(parts) for parts in zip(*detections, strict=True))
    return _as_declared(best, call.outs[0]), _as_declared(boxes, call.outs[1]), images


def _detections(call: Call) -> int:
    count = int(call.scalar("max_detections"))
    return count if call.scalar("regular_nms") else count * int(call.scalar("max_classes_per_detection"))


def _postprocessing_shape(call: Call) -> list[tuple[int, ...]]:
    (batch, count, classes), deltas, anchors = call["scores"].dims, call["deltas"].dims, call["anchors"].dims
    call.require(classes > 1, "more than the background class", classes, "scores")
    call.require(deltas[:2] == (batch, count) and deltas[2] >= 4, f"deltas of [{batch}, {count}, 4]", list(deltas), "deltas")
    call.require(anchors == (count, 4), f"anchors of [{count}, 4]", list(anchors), "anchors")
    for name in ("scale_y", "scale_x", "scale_h", "scale_w"):
        call.require(call.scalar(name) > 0, "a scale above 0", call.scalar(name), name)
    for name in ("score_threshold", "iou_threshold"):
        call.require(call.scalar(name) >= 0, "a threshold of at least 0", call.scalar(name), name)
    used = "max_detections_per_class" if call.scalar("regular_nms") else "max_classes_per_detection"
    for name in ("max_detections", used):
        call.require(call.scalar(name) > 0, "a limit above 0", call.scalar(name), name)
    count = _detections(call)
    return [(batch, count), (batch, count, 4), (batch, count), (batch,)]


@operation(
    OperationCode.DETECTION_POSTPROCESSING,
    since=3,
    summary="Detections from anchors, scores and deltas, as SSD models end.",
    types=[types(3, T=T.TENSOR_FLOAT32, S=T.FLOAT32), types(3, T=T.TENSOR_FLOAT16, S=T.FLOAT16)],
    inputs=[
        Input("scores", "T", "[batch, anchors, classes]; class 0 is the background", rank=rank(3)),
        Input("deltas", "T", "[batch, anchors, 4 or more]: dy, dx, dh, dw", rank=rank(3)),
        Input("anchors", "T", "[anchors, 4]: centre y, centre x, height, width", rank=rank(2)),
        *(Input(f"scale_{axis}", "S", f"scale of d{axis}") for axis in "yxhw"),
        Input("regular_nms", T.BOOL, "true: suppression by class, false: all classes at once"),
        Input("max_detections", T.INT32, "boxes that come out"),
        Input("max_classes_per_detection", T.INT32, "classes for each box (all at once)"),
        Input("max_detections_per_class", T.INT32, "boxes for each class (by class)"),
        Input("score_threshold", "S", "boxes must score more"),
        Input("iou_threshold", "S", "overlap from which a box is suppressed"),
        Input("background_in_labels", T.BOOL, "true: labels count the background class"),
    ],
    outputs=[
        Output("scores_out", "T", "[batch, detections]; unused entries are 0"),
        Output("boxes_out", "T", "[batch, detections, 4]: y1, x1, y2, x2"),
        Output("classes_out", T.TENSOR_INT32, "[batch, detections]"),
        Output("detections_out", T.TENSOR_INT32, "number of detections of each image"),
    ],
    shape=_postprocessing_shape,
)
@prepared("scores", "deltas")
def detection_postprocessing(call: Call) -> Callable[[Array, Array], Sequence[Array]]:
    """N158 to N160."""
    anchors = np.ascontiguousarray(call["anchors"].data.T)
    scales = np.array([[call.scalar(f"scale_{axis}")] for axis in "yxhw"], np.float32)
    outs, first_label = [out.dims for out in call.outs], 0 if call.scalar("background_in_labels") else 1
    pick = _by_class(call) if call.scalar("regular_nms") else _by_box(call)

    def postprocess(scores: Array, deltas: Array) -> Sequence[Array]:
        results = [np.zeros(dims, np.float32 if k < 2 else np.int32) for k, dims in enumerate(outs)]
        for image, (by_label, moves) in enumerate(zip(scores.swapaxes(1, 2), deltas, strict=True)):

            def corners(boxes: Array, moves: Array = moves) -> Array:
                return _corners(anchors[:, boxes], np.divide(moves[boxes, :4].T, scales, order="C"))

            found = pick(corners, by_label)
            if found:
                boxes, labels, best = zip(*found, strict=True)
                parts = best, corners(np.array(boxes)).T, np.subtract(labels, first_label)
                for result, part in zip(results, parts, strict=False):
                    result[image, : len(found)] = part
                results[3][image] = len(found)
        return results

    return postprocess


def _corners(anchors: Array, deltas: Array) -> Array:
    """N158: y1, x1, y2, x2 of anchors moved and scaled, one row each."""
    centre = anchors[:2] + deltas[:2] * anchors[2:]
    half = np.exp(deltas[2:]) * anchors[2:] / 2
    return np.concatenate([centre - half, centre + half])


Pick: TypeAlias = Callable[[Corners, Array], list[Detection]]
"""From the corners of an image's boxes and their scores [classes, boxes] to its detections."""


def _by_class(call: Call) -> Pick:
    """Suppression by class, then the best of all (N159)."""
    threshold, suppress = np.float32(call.scalar("score_threshold")), hard(call.scalar("iou_threshold"))
    each, limit = int(call.scalar("max_detections_per_class")), int(call.scalar("max_detections"))

    def pick(corners: Corners, scores: Array) -> list[Detection]:
        def start(label: int) -> Iterator[Detection]:
            return islice(_of_class(label, corners, scores[label], threshold, suppress), each)

        return list(islice(_best(scores, threshold, start), limit))

    return pick


def _by_box(call: Call) -> Pick:
    """Suppression by each box's best class, then its best classes (N160)."""
    threshold, overlap = np.float32(call.scalar("score_threshold")), call.scalar("iou_threshold")
    limit, classes = int(call.scalar("max_detections")), int(call.scalar("max_classes_per_detection"))

    def pick(corners: Corners, scores: Array) -> list[Detection]:
        foreground = scores[1:]
        first = foreground.argmax(axis=0)
        best = foreground[first, np.arange(len(first))]
        found: list[Detection] = []
        for box in first_picks(corners, best, threshold, overlap, limit):
            order = first[box, None] if classes == 1 else np.argsort(-foreground[:, box], kind="stable")[:classes]
            found += [(box, label + 1, float(foreground[label, box])) for label in order.tolist()]
        return found

    return pick

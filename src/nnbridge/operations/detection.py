"""Boxes: AXIS_ALIGNED_BBOX_TRANSFORM, BOX_WITH_NMS_LIMIT, GENERATE_PROPOSALS, DETECTION_POSTPROCESSING.

Quantised forms are computed on real numbers and quantised at the end, as Android does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nnbridge.operations.arithmetic import quantise
from nnbridge.operations.declaration import DATA_DEPENDENT, Input, Layout, Output, like, operation, rank, types
from nnbridge.operations.regions import BOXES_FIXED, TYPES, check_boxes, check_corners
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode

if TYPE_CHECKING:
    from nnbridge.model import Array
    from nnbridge.operations.call import Arg, Call

Values = npt.NDArray[Any]


def _as_declared(values: Values, out: Arg) -> Values:
    """Real numbers in an output's type."""
    return quantise(values, out) if out.dtype.kind in "iu" else values


def transformed(boxes: Values, deltas: Values, image: Values) -> Values:
    """N150, N151: boxes [..., 4] moved and scaled by deltas [..., 4], clipped to the image [..., (height, width)]."""
    size = boxes[..., 2:] - boxes[..., :2]
    centre = (boxes[..., :2] + boxes[..., 2:]) / 2 + deltas[..., :2] * size
    half = np.exp(deltas[..., 2:]) * size / 2
    limit = image[..., ::-1]
    corners = [np.clip(corner, 0, limit) for corner in (centre - half, centre + half)]
    return np.concatenate(corners, axis=-1).astype(np.float32)


def overlaps(box: Values, boxes: Values) -> Values:
    """N152: intersection over union of one box [4] with others [n, 4]; no overlap where both are empty."""
    low, high = np.maximum(box[:2], boxes[:, :2]), np.minimum(box[2:], boxes[:, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=1)
    area = np.prod(box[2:] - box[:2])
    union = area + np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) - common
    with np.errstate(invalid="ignore", divide="ignore"):
        return common / union


def hard_nms(boxes: Values, scores: Values, threshold: float, limit: int) -> list[int]:
    """N153: indexes of boxes picked by falling score; whatever overlaps a pick by the threshold or more is out."""
    alive = np.arange(len(scores))
    picked: list[int] = []
    while len(alive) and (limit < 0 or len(picked) < limit):
        best = int(np.argmax(scores[alive]))
        chosen = int(alive[best])
        picked.append(chosen)
        # The list is Android's: the pick changes places with the head, what falls out is replaced from the end.
        alive[best] = alive[0]
        alive = _compacted(alive[1:], ~(overlaps(boxes[chosen], boxes[alive[1:]]) >= threshold))
    return picked


def _compacted(items: Values, keep: Values) -> Values:
    """Items without those to drop, each gap filled with the last item that stays."""
    count = int(keep.sum())
    gaps = np.flatnonzero(~keep[:count])
    fillers = count + np.flatnonzero(keep[count:])[::-1]
    result = items[:count].copy()
    result[gaps] = items[fillers]
    return result


def soft_nms(
    boxes: Values, scores: Values, kernel: int, threshold: float, sigma: float, floor: float, limit: int
) -> tuple[list[int], list[float]]:
    """N154: picks by falling score; the others' scores are lowered by their overlap with each pick."""
    alive, scores = np.arange(len(scores)), scores.copy()
    picked: list[int] = []
    lowered: list[float] = []
    while len(alive) and (limit < 0 or len(picked) < limit):
        best = int(np.argmax(scores[alive]))
        chosen = int(alive[best])
        picked.append(chosen)
        lowered.append(float(scores[chosen]))
        alive[best] = alive[0]
        rest = alive[1:]
        overlap = overlaps(boxes[chosen], boxes[rest])
        scores[rest] *= _KERNELS[kernel](overlap, threshold, sigma).astype(np.float32)
        alive = _compacted(rest, ~(scores[rest] < floor))
    return picked, lowered


_KERNELS = (
    lambda overlap, threshold, sigma: np.where(overlap < threshold, 1, 0),
    lambda overlap, threshold, sigma: np.where(overlap < threshold, 1, 1 - overlap),
    lambda overlap, threshold, sigma: np.exp(-np.square(overlap) / sigma),
)


# -- AXIS_ALIGNED_BBOX_TRANSFORM -------------------------------------------------------------------------------------


def _transform_shape(call: Call) -> tuple[int, ...]:
    rois, deltas, info = call["rois"], call["deltas"], call["image_info"]
    check_boxes(call, rois)
    call.require(deltas.dims[1] % 4 == 0 and deltas.dims[1] > 0, "4 deltas for each class", deltas.dims[1], "deltas")
    call.require(deltas.dims[0] == rois.dims[0], f"deltas for {rois.dims[0]} boxes", deltas.dims[0], "deltas")
    call.require(call["batches"].dims == rois.dims[:1], "an image number for each box", call["batches"].dims, "batches")
    check_boxes(call, info, 2)
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


# -- BOX_WITH_NMS_LIMIT ----------------------------------------------------------------------------------------------


def _nms_shape(call: Call) -> list[tuple[int, ...]]:
    scores, rois = call["scores"], call["rois"]
    count, classes = scores.dims
    call.require(classes > 1, "more than the background class", classes, "scores")
    check_boxes(call, rois, 4 * classes)
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
        Input("batches", T.TENSOR_INT32, "image number of each box; boxes of an image stand together", rank=rank(1)),
        Input("score_threshold", "S", "boxes must score more"),
        Input("max_detections", T.INT32, "boxes kept for each image; negative: all"),
        Input("nms_kernel", T.INT32, "0 hard, 1 linear, 2 gaussian"),
        Input("iou_threshold", "S", "overlap from which scores are lowered (hard and linear kernel)"),
        Input("sigma", "S", "width of the gaussian kernel"),
        Input("nms_score_threshold", "S", "boxes whose lowered score is less are dropped"),
    ],
    outputs=[
        Output("scores_out", "T", "lowered scores [kept]", like("scores")),
        Output("rois_out", "B", "boxes [kept, 4]", BOXES_FIXED),
        Output("classes_out", T.TENSOR_INT32, "classes [kept]"),
        Output("batches_out", T.TENSOR_INT32, "image numbers [kept]"),
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
    kept: list[tuple[int, int, float]] = []
    bounds = [*np.flatnonzero(np.diff(batches, prepend=batches[:1] - 1)), count] if count else []
    for first, last in pairwise(bounds):
        found: list[tuple[int, int, float]] = []
        for label in range(1, classes):
            candidates = first + np.flatnonzero(scores[first:last, label] > threshold)
            picks, lowered = soft_nms(boxes[candidates, label], scores[candidates, label], kernel, overlap, sigma, floor, limit)
            found += [(int(candidates[p]), label, s) for p, s in zip(picks, lowered, strict=True)]
        found.sort(key=lambda item: -item[2])
        kept += sorted(found if limit < 0 else found[:limit], key=lambda item: (item[1], -item[2]))
    index = np.array([box for box, _, _ in kept], np.int64)
    labels = np.array([label for _, label, _ in kept], np.int64)
    best = np.array([score for _, _, score in kept], np.float32)
    raw = call["rois"].data.reshape(count, classes, 4)[index, labels]
    return _as_declared(best, call.outs[0]), raw, labels, batches[index]


# -- GENERATE_PROPOSALS ----------------------------------------------------------------------------------------------


def _proposals_shape(call: Call) -> list[tuple[int, ...]]:
    (batch, height, width, count), anchors, info = call["scores"].dims, call["anchors"].dims, call["image_info"].dims
    want = (batch, height, width, 4 * count)
    call.require(call["deltas"].dims == want, f"deltas of {list(want)}", list(call["deltas"].dims), "deltas")
    call.require(anchors == (count, 4), f"anchors of [{count}, 4]", list(anchors), "anchors")
    call.require(info == (batch, 2), f"image information of [{batch}, 2]", list(info), "image_info")
    for name in ("height_stride", "width_stride"):
        call.require(call.scalar(name) > 0, "a stride above 0", call.scalar(name), name)
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
        Output("scores_out", "T", "scores [kept]", like("scores")),
        Output("rois_out", "M", "boxes [kept, 4]", BOXES_FIXED),
        Output("batches_out", T.TENSOR_INT32, "image numbers [kept]"),
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
    before, after = int(call.scalar("pre_nms_max")), int(call.scalar("post_nms_max"))
    overlap, smallest = np.float32(call.scalar("iou_threshold")), np.float32(call.scalar("min_size"))
    kept: list[tuple[Values, Values, Values]] = []
    for image in range(batch):
        score = scores[image].reshape(-1)
        order = np.arange(len(score))
        if 0 < before < len(score):
            order = np.argsort(-score, kind="stable")[:before]
        boxes = transformed(shifted[order], deltas[image].reshape(-1, 4)[order], info[image])
        size, centre = boxes[:, 2:] - boxes[:, :2], (boxes[:, 2:] + boxes[:, :2]) / 2
        sound = (size > smallest).all(axis=1) & (centre < info[image][::-1]).all(axis=1)
        boxes, score = boxes[sound], score[order][sound]
        picks = hard_nms(boxes, score, float(overlap), after)
        kept.append((score[picks], boxes[picks], np.full(len(picks), image)))
    best, boxes, images = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    return _as_declared(best, call.outs[0]), _as_declared(boxes, call.outs[1]), images


# -- DETECTION_POSTPROCESSING ----------------------------------------------------------------------------------------


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
    kept = _detections(call)
    return [(batch, kept), (batch, kept, 4), (batch, kept), (batch,)]


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
def detection_postprocessing(call: Call) -> Sequence[Array]:
    """N158 to N160."""
    scores, deltas, anchors = (call[name].data for name in ("scores", "deltas", "anchors"))
    sy, sx, sh, sw = (np.float32(call.scalar(f"scale_{axis}")) for axis in "yxhw")
    size = anchors[:, 2:]
    centre = anchors[:, :2] + deltas[..., :2] / np.array([sy, sx]) * size
    half = np.exp(deltas[..., 2:4] / np.array([sh, sw])) * size / 2
    boxes = np.concatenate([centre - half, centre + half], axis=-1).astype(np.float32)
    results = [np.zeros(out.dims, np.float32 if k < 2 else np.int32) for k, out in enumerate(call.outs)]
    pick = _regular if call.scalar("regular_nms") else _fast
    for image in range(len(scores)):
        found = pick(call, boxes[image], scores[image])
        for k, (box, label, score) in enumerate(found):
            results[0][image, k], results[1][image, k], results[2][image, k] = score, boxes[image, box], label
        results[3][image] = len(found)
    return results


def _label(call: Call, label: int) -> int:
    return label if call.scalar("background_in_labels") else label - 1


def _regular(call: Call, boxes: Values, scores: Values) -> list[tuple[int, int, float]]:
    """Suppression by class, then the best of all (N159)."""
    found: list[tuple[int, int, float]] = []
    for label in range(1, scores.shape[1]):
        candidates = np.flatnonzero(scores[:, label] > np.float32(call.scalar("score_threshold")))
        limit = int(call.scalar("max_detections_per_class"))
        picks = hard_nms(boxes[candidates], scores[candidates, label], call.scalar("iou_threshold"), limit)
        found += [(int(candidates[p]), _label(call, label), float(scores[candidates[p], label])) for p in picks]
    found.sort(key=lambda item: -item[2])
    return found[: int(call.scalar("max_detections"))]


def _fast(call: Call, boxes: Values, scores: Values) -> list[tuple[int, int, float]]:
    """Suppression by each box's best class, then its best classes (N160)."""
    best = scores[:, 1:].max(axis=1)
    candidates = np.flatnonzero(best > np.float32(call.scalar("score_threshold")))
    limit = int(call.scalar("max_detections"))
    picks = hard_nms(boxes[candidates], best[candidates], call.scalar("iou_threshold"), limit)
    classes = min(scores.shape[1] - 1, int(call.scalar("max_classes_per_detection")))
    found: list[tuple[int, int, float]] = []
    for box in candidates[picks]:
        order = np.argsort(-scores[box, 1:], kind="stable")[:classes] + 1
        found += [(int(box), _label(call, int(label)), float(scores[box, label])) for label in order]
    return found

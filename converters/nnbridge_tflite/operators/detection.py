"""Boxes: non-maximum suppression, and the custom operator of object detectors."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from nnbridge.converters.assembly import DraftedModel
from nnbridge.converters.draft import Draft, Step, Unmappable
from nnbridge.errors import ConversionError, Reason, Why, first_line
from nnbridge.types import RUNTIME_FEATURE_LEVEL, OperandCode, OperationCode
from nnbridge_tflite.declaration import TfliteOperator, inputs, outputs
from nnbridge_tflite.host.numbers import MAX_ELEMENTS, Array, Options, Tensors, first, integers, real
from nnbridge_tflite.loads import PreparedOperator, UnknownError, fits, requires, typed
from nnbridge_tflite.lowerer import FLOAT32, INT32, Lowerer, Value
from nnbridge_tflite.rules import Shape

_BOXES = (
    *(typed(i, "FLOAT32") for i in (0, 1, 3, 4, 5)),
    typed(2, "INT32"),
    fits("n k", "n", "", "", "", ""),
    requires("boxes of 4 corners", lambda node: node.shape(0)[1] == 4, kind=Why.OPERAND_SIZE),
    requires("a limit of 0 at least", lambda node: min(node.numbers(2) or [0]) >= 0, lambda node: str(node.numbers(2))),
)
NON_MAX_SUPPRESSION_V4 = TfliteOperator(
    "NON_MAX_SUPPRESSION_V4",
    "Indexes of the boxes that stay, padded with zeros, and how many there are.",
    inputs("boxes", "scores", "max_output_size", "iou_threshold", "score_threshold"),
    outputs("indices", "count"),
    dynamic_unless=(2,),
    loads=_BOXES,
)
NON_MAX_SUPPRESSION_V5 = TfliteOperator(
    "NON_MAX_SUPPRESSION_V5",
    "NON_MAX_SUPPRESSION_V4 that lowers the scores of overlapping boxes, and returns the scores.",
    (*NON_MAX_SUPPRESSION_V4.inputs, *inputs("soft_nms_sigma")),
    outputs("indices", "scores", "count"),
    dynamic_unless=(2,),
    loads=_BOXES,
)


def _detected(node: PreparedOperator) -> Sequence[Shape]:
    """The dimensions of boxes, classes, scores and counts, which files leave out; UnknownError for a wrong number of them."""
    batch = node.shape(1)[0]
    limit = flexbuffer(node.operator.custom_options, node.operator.label).get("max_detections")
    if not isinstance(limit, int) or not 0 < limit <= MAX_ELEMENTS:
        raise UnknownError(limit)
    return (batch, limit, 4), (batch, limit), (batch, limit), (batch,)


DETECTION = TfliteOperator(
    "TFLite_Detection_PostProcess",
    "Boxes, classes and scores of an SSD; its options are a flexbuffer.",
    inputs("deltas", "scores", "anchors"),
    outputs("boxes", "classes", "scores", "count"),
    delegate="Android's delegate maps no custom operator",
    custom=True,
    dims=_detected,
)
CUSTOM = TfliteOperator(
    "CUSTOM",
    "An operator that its custom code names.",
    inputs("operands?*"),
    outputs("results?*"),
    delegate=DETECTION.delegate,
    refusal="a custom operator that nnbridge computes",
)


def _overlap(box: Array, others: Array) -> Array:
    """Intersection over union of one box with others; corners may come in any order."""
    low, high = np.minimum(box[:2], box[2:]), np.maximum(box[:2], box[2:])
    lows, highs = np.minimum(others[:, :2], others[:, 2:]), np.maximum(others[:, :2], others[:, 2:])
    shared = np.clip(np.minimum(high, highs) - np.maximum(low, lows), 0, None).prod(-1)
    areas = (high - low).prod(), (highs - lows).prod(-1)
    union = areas[0] + areas[1] - shared
    return np.where((areas[0] > 0) & (areas[1] > 0), shared / np.where(union > 0, union, 1), 0)


def _suppressed(boxes: Array, scores: Array, limit: int, overlap: float, least: float, sigma: float) -> list[tuple[int, float]]:
    """Greedy choice by score; with a sigma, overlapping boxes lose score instead of being dropped at once."""
    queue = [(-float(s), i, 0) for i, s in enumerate(scores) if s > least]
    heapq.heapify(queue)
    chosen: list[tuple[int, float]] = []
    while queue and len(chosen) < limit:
        score, i, seen = heapq.heappop(queue)
        shared = _overlap(boxes[i], boxes[[c for c, _ in chosen[seen:]]].reshape(-1, 4))[::-1]
        if (shared >= overlap).any():
            continue
        lowered = -score * float(np.exp(-0.5 / sigma * np.square(shared)).prod()) if sigma > 0 else -score
        if lowered == -score:
            chosen.append((i, -score))
        elif lowered > least:
            heapq.heappush(queue, (-lowered, i, len(chosen)))
    return chosen


@NON_MAX_SUPPRESSION_V4.host_kernel
@NON_MAX_SUPPRESSION_V5.host_kernel
def host_non_max_suppression(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Indices of the boxes that stay, padded with zeros, with their scores where they may change, and how many there are."""
    boxes, scores = real(inputs[0]), real(inputs[1])
    limit = integers(inputs[2])[0]
    overlap, least, *sigma = (float(first(t)) for t in inputs[3:])
    chosen = _suppressed(boxes, scores, limit, overlap, least, sigma[0] if sigma else 0.0)
    indices, lowered = np.zeros(limit, np.int32), np.zeros(limit, np.float32)
    for k, (i, score) in enumerate(chosen):
        indices[k], lowered[k] = i, score
    count = np.array(len(chosen), np.int32)
    return [indices, lowered, count] if sigma else [indices, count]


_SCALES = ("y_scale", "x_scale", "h_scale", "w_scale")


def flexbuffer(content: bytes, label: str) -> dict[str, Any]:
    """A custom operator's options from their flexbuffer; ConversionError if it is not a map."""
    try:
        options = flexbuffers.Loads(content)
    except (ValueError, IndexError, KeyError, TypeError, struct.error, RecursionError, MemoryError, OverflowError) as error:
        raise ConversionError(Reason("custom options as a flexbuffer", first_line(error), label)) from error
    if not isinstance(options, dict):
        raise ConversionError(Reason("custom options as a map", type(options).__name__, label))
    return options


@DETECTION.lowering()
def detection_postprocess(to: Lowerer) -> None:
    """DETECTION_POSTPROCESSING; TFLite returns boxes first, and classes and counts as floats."""
    options = flexbuffer(to.operator.custom_options, to.label)
    deltas, scores, anchors = (to.dequantised(to.input(i)) for i in range(3))
    to.require(scores.rank == 3 and 0 not in scores.dims, "scores of rank 3", scores.dims)
    classes_scored = int(_number(options, "num_classes")) + 1
    to.require(scores.dims[2] == classes_scored, f"{classes_scored} scores, the first of the background", scores.dims[2])
    boxes_out, classes_out, scores_out, count_out = to.outputs
    classes, count = _results(scores, options)
    inputs = _operands(to.draft, options, scores, deltas, anchors)
    to.emit_all(OperationCode.DETECTION_POSTPROCESSING, inputs, [scores_out, boxes_out, classes, count])
    to.emit(OperationCode.CAST, classes, out=classes_out)
    per_box = _per_box(options)
    if per_box == 1:
        to.emit(OperationCode.CAST, count, out=count_out)
        return
    detections = to.emit(OperationCode.CAST, count, like=count_out)
    to.emit(OperationCode.DIV, detections, to.fill(per_box, count_out), to.scalar(0), out=count_out)


def _results(scores: Value, options: Mapping[str, Any]) -> tuple[Value, Value]:
    """Classes and counts."""
    batch, limit = scores.dims[0], int(_number(options, "max_detections"))
    return Value(INT32, (batch, limit)), Value(INT32, (batch,))


def _operands(draft: Draft, options: Mapping[str, Any], scores: Value, deltas: Value, anchors: Value) -> list[Value]:
    """The operands of DETECTION_POSTPROCESSING, of floats."""
    type = OperandCode.FLOAT16 if scores.type == OperandCode.TENSOR_FLOAT16 else OperandCode.FLOAT32
    flag, number = OperandCode.BOOL, OperandCode.INT32
    return [
        scores,
        deltas,
        anchors,
        *(draft.scalar(type, _number(options, name)) for name in _SCALES),
        draft.scalar(flag, bool(options.get("use_regular_nms", False))),
        draft.scalar(number, int(_number(options, "max_detections"))),
        draft.scalar(number, int(_number(options, "max_classes_per_detection"))),
        draft.scalar(number, int(options.get("detections_per_class", 100))),
        draft.scalar(type, _number(options, "nms_score_threshold")),
        draft.scalar(type, _number(options, "nms_iou_threshold")),
        # Labels do not count the background, which is the first score of each box.
        draft.scalar(flag, False),
    ]


def _number(options: Mapping[str, Any], name: str) -> float:
    value = options.get(name)
    if not isinstance(value, (int, float)):
        raise Unmappable(Reason(f"a number {name}", str(value), DETECTION.name))
    return value


@DETECTION.integer_kernel
@DETECTION.host_kernel
def host_detection(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Detections as LiteRT orders them: NNAPI's kernel gets the ranks of scores, of which no two are equal.

    Score thresholds below 0, which NNAPI does not have, become ranks, too.
    """
    numbers = flexbuffer(bytes.fromhex(options["custom_options"]), DETECTION.name)
    deltas, scores, anchors = map(real, inputs)
    by_score = _ranked(scores, by_class=bool(numbers.get("use_regular_nms", False)))
    ordered = scores.ravel()[by_score]
    ranks = np.empty(scores.size)
    ranks[by_score] = np.arange(1, scores.size + 1)
    numbers["nms_score_threshold"] = float(np.searchsorted(ordered, _number(numbers, "nms_score_threshold"))) + 0.5
    arrays = [a.astype(np.float32, copy=False) for a in (ranks.reshape(scores.shape), deltas, anchors)]
    operands = [Value(FLOAT32, a.shape) for a in arrays]
    results = [Value(FLOAT32, outputs[2].dims), Value(FLOAT32, outputs[0].dims), *_results(operands[0], numbers)]
    draft = Draft(RUNTIME_FEATURE_LEVEL)
    draft.add(Step(OperationCode.DETECTION_POSTPROCESSING, tuple(_operands(draft, numbers, *operands)), tuple(results)))
    best, _, classes, count = DraftedModel(draft.steps, operands, results)(arrays)
    found, at = best > 0, np.maximum(best.astype(np.int64) - 1, 0)
    # Each rank is one box's: its corners are LiteRT's, which has more digits on the way than NNAPI.
    image, box, _ = np.unravel_index(by_score[at], scores.shape)
    boxes = np.where(found[..., None], _corners(deltas, anchors, numbers)[image, box], np.float32(0))
    best = np.where(found, ordered[at], 0)
    return [boxes, classes.astype(np.float32), best.astype(np.float32), count.astype(np.float32) / _per_box(numbers)]


def _corners(deltas: Array, anchors: Array, numbers: Mapping[str, Any]) -> Array:
    """The corners [batch, boxes, 4] of all boxes: centres and half sizes in double precision, rounded before they are added."""
    scales = np.array([_number(numbers, name) for name in _SCALES], np.float32)
    deltas, at = (a.astype(np.float32).astype(np.float64) for a in (deltas, anchors))
    moved = deltas[..., :4] / scales
    centre = (moved[..., :2] * at[..., 2:] + at[..., :2]).astype(np.float32)
    half = (0.5 * np.exp(moved[..., 2:]) * at[..., 2:]).astype(np.float32)
    return np.concatenate([centre - half, centre + half], axis=-1)


def _ranked(scores: Array, *, by_class: bool) -> Array:
    """Positions of scores [batch, boxes, classes] by rising score; of equal ones the first box or class comes last."""
    images, boxes, classes = (-axis.ravel() for axis in np.indices(scores.shape))
    return np.lexsort((boxes, classes, images, scores.ravel()) if by_class else (classes, boxes, images, scores.ravel()))


def _per_box(options: Mapping[str, Any]) -> int:
    """Detections of each chosen box, which TFLite counts once."""
    classes = min(int(_number(options, "max_classes_per_detection")), int(_number(options, "num_classes")))
    return 1 if options.get("use_regular_nms", False) else max(classes, 1)

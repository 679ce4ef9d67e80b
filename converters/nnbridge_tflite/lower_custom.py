"""Custom operators that NNAPI has."""

from __future__ import annotations

import struct
from typing import Any

from flatbuffers import flexbuffers

from nnbridge.converters.draft import Value
from nnbridge.errors import ConversionError, Reason
from nnbridge.types import OperationCode
from nnbridge_tflite.graph import Operator
from nnbridge_tflite.lowering import INT32, Lowerer, lowers

_SCALES = ("y_scale", "x_scale", "h_scale", "w_scale")


def flexbuffer(operator: Operator) -> dict[str, Any]:
    """A custom operator's options from their flexbuffer; ConversionError if it is not a map."""
    try:
        options = flexbuffers.Loads(operator.custom_options)
    except (ValueError, IndexError, KeyError, TypeError, struct.error, RecursionError, MemoryError, OverflowError) as error:
        raise ConversionError(Reason("custom options as a flexbuffer", str(error), operator.label)) from error
    if not isinstance(options, dict):
        raise ConversionError(Reason("custom options as a map", type(options).__name__, operator.label))
    return options


@lowers("custom:TFLite_Detection_PostProcess")
def detection_postprocess(x: Lowerer) -> None:
    """DETECTION_POSTPROCESSING; TFLite answers boxes first, and classes and counts as floats."""
    options = flexbuffer(x.operator)
    x.require(x.count == 3 and len(x.outputs) == 4, "3 inputs and 4 outputs", [x.count, len(x.outputs)])
    deltas, scores, anchors = (x.dequantised(x.input(i)) for i in range(3))
    x.require(scores.rank == 3 and 0 not in scores.dims, "scores of rank 3", scores.dims)
    classes_scored = int(_number(x, options, "num_classes")) + 1
    x.require(scores.dims[2] == classes_scored, f"{classes_scored} scores, the first of the background", scores.dims[2])
    batch, limit = scores.dims[0], int(_number(x, options, "max_detections"))
    classes = Value(INT32, (batch, limit))
    count = Value(INT32, (batch,))
    boxes_out, classes_out, scores_out, count_out = x.outputs
    x.emit(
        OperationCode.DETECTION_POSTPROCESSING,
        scores,
        deltas,
        anchors,
        *(x.real(_number(x, options, name), scores) for name in _SCALES),
        x.flag(options.get("use_regular_nms", False)),
        x.i32(limit),
        x.i32(int(_number(x, options, "max_classes_per_detection"))),
        x.i32(int(options.get("detections_per_class", 100))),
        x.real(_number(x, options, "nms_score_threshold"), scores),
        x.real(_number(x, options, "nms_iou_threshold"), scores),
        # Labels do not count the background, which is the first score of each box.
        x.flag(False),
        out=[scores_out, boxes_out, classes, count],
    )
    x.emit(OperationCode.CAST, classes, out=classes_out)
    x.emit(OperationCode.CAST, count, out=count_out)


def _number(x: Lowerer, options: dict[str, Any], name: str) -> float:
    value = options.get(name)
    x.require(isinstance(value, (int, float)), f"a number {name}", value)
    assert isinstance(value, (int, float))
    return value

"""A whole TFLite file in another element type: float32 in 8 bits, int8 as uint8, 8 bits in float32.

What is quantised here has scales that stand for those of a calibration: such a file shows what a device would accept, and
answers nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from nnbridge.converters.edits import Answers
from nnbridge.records import dataclass
from nnbridge_tflite.read.schema import enum_names
from nnbridge_tflite.tables import LETTERS, EditedGraph, Table, copied, is_constant, listed

_BIAS = {"CONV_2D": 2, "DEPTHWISE_CONV_2D": 2, "FULLY_CONNECTED": 2, "TRANSPOSE_CONV": 3}
"""Operator → its bias among the inputs."""
_MIDDLE = {"INT8": 0, "UINT8": 128}
_STEP = 1 / 256
"""The scale that SOFTMAX and LOGISTIC must have; all tensors have it, so that those that must share theirs do."""
_MEASURED = 1 << 24
"""Bytes of constants up to which scales are those of the values; a file that is planned only needs no values of larger ones."""
_SIGNED = ("TANH", "L2_NORMALIZATION")
"""Operators whose output must have a scale of 1/128 around zero."""
_EIGHT = ("INT8", "UINT8")


@dataclass(frozen=True, slots=True)
class Retyping:
    """One change of type of a whole file."""

    text: str
    answers: Answers
    types: tuple[str, ...]
    """Types of which an operator's output must have one, for the change to apply."""
    retype: Callable[[EditedGraph], None]
    """Changes a subgraph, seen from one of its operators."""
    converter: str
    """What does the same in TFLite's converter."""

    def applies(self, model: Table) -> bool:
        """True if the file has one graph, and computes values of these types."""
        if len(model["subgraphs"]) != 1 or not model["subgraphs"][0]["operators"]:
            return False
        graph = EditedGraph(model, 0, 0)
        return any(graph.type(t) in self.types for o in graph.subgraph["operators"] for t in listed(o["outputs"]))

    def applied(self, model: Table) -> Table:
        """The changed file."""
        changed = copied(model)
        self.retype(EditedGraph(changed, 0, 0))
        return changed


def _operators(graph: EditedGraph) -> list[EditedGraph]:
    return [EditedGraph(graph.model, 0, k) for k in range(len(graph.subgraph["operators"]))]


def _set(graph: EditedGraph, tensor: int, type: str, array: Any | None, scales: Any, zero_points: Any) -> None:
    """Another type of a tensor, with its value where it is a constant."""
    found = graph.subgraph["tensors"][tensor]
    found["type"] = next(code for code, name in enum_names("TensorType").items() if name == type)
    if array is not None:
        graph.model["buffers"].append({"data": np.frombuffer(array.astype(LETTERS[type]).tobytes(), np.uint8)})
        found["buffer"] = len(graph.model["buffers"]) - 1
    if len(scales):
        graph.quantise(tensor, scales, zero_points)
    else:
        found["quantization"] = None


def _biases(graph: EditedGraph) -> dict[int, EditedGraph]:
    """Tensor → an operator whose bias it is."""
    found = {}
    for one in _operators(graph):
        inputs, place = listed(one.operator["inputs"]), _BIAS.get(one.name, 99)
        if place < len(inputs) and inputs[place] >= 0:
            found[inputs[place]] = one
    return found


def _bias_step(graph: EditedGraph) -> Any:
    """The scale of an operator's bias: that of its image times that of its filter."""
    image, filter = (2, 1) if graph.name == "TRANSPOSE_CONV" else (0, 1)
    return graph.scales(graph.input(image))[:1] * graph.scales(graph.input(filter))[:1]


def _quantised(type: str, graph: EditedGraph) -> None:
    low, biases = (-128, -127) if type == "INT8" else (0, 1), _biases(graph)
    signed = {t for one in _operators(graph) if one.name in _SIGNED for t in listed(one.operator["outputs"])}
    tensors = [t for t in range(len(graph.subgraph["tensors"])) if graph.type(t) == "FLOAT32"]
    for t in tensors:
        values = graph.values(t)
        if values is not None and t not in biases and values.nbytes > _MEASURED:
            _set(graph, t, type, None, [_STEP], [_MIDDLE[type]])
            graph.model["buffers"].append({"data": np.zeros(values.size, np.uint8)})
            graph.subgraph["tensors"][t]["buffer"] = len(graph.model["buffers"]) - 1
        elif values is not None and t not in biases:
            step = max(float(np.max(np.abs(values), initial=0)) / 127, 1e-6)
            steps = np.clip(np.rint(values / step), -127, 127) + _MIDDLE[type]
            _set(graph, t, type, steps, [step], [_MIDDLE[type]])
        elif t not in biases or not is_constant(graph.model, graph.subgraph["tensors"][t]):
            _set(graph, t, type, None, *(([1 / 128], [_MIDDLE[type]]) if t in signed else ([_STEP], [low[0]])))
    for t in tensors:
        values = graph.values(t) if t in biases else None
        if values is not None:
            step = _bias_step(biases[t])
            steps = np.clip(np.rint(values / step), -(2**30), 2**30)
            _set(graph, t, "INT32", steps, step, [0])


def _unsigned(graph: EditedGraph) -> None:
    biases, tensors = _biases(graph), range(len(graph.subgraph["tensors"]))
    real = {t: real_values(graph, t) for t in biases}
    for t in tensors:
        if graph.type(t) != "INT8" or not len(graph.scales(t)):
            continue
        values, scales = graph.values(t), graph.scales(t)
        if len(scales) > 1 and values is not None:
            step = scales.max()
            values, scales = np.clip(np.rint(real_values(graph, t) / step), -127, 127), scales.max(keepdims=True)
        _set(graph, t, "UINT8", None if values is None else values.astype("<i4") + 128, scales, [graph.zero_point(t) + 128])
    for t, one in biases.items():
        if real[t] is not None and graph.type(t) == "INT32":
            step = _bias_step(one)
            _set(graph, t, "INT32", np.rint(real[t] / step), step, [0])


def real_values(graph: EditedGraph, tensor: int) -> Any | None:
    """A quantised constant's real values; None for others."""
    values, scales = graph.values(tensor), graph.scales(tensor)
    if values is None or not len(scales):
        return None
    shape = [1] * values.ndim
    if len(scales) > 1:
        shape[graph.axis(tensor)] = -1
    return (values.astype("<f4") - np.float32(graph.zero_point(tensor))) * scales.reshape(shape)


def one_scale(graph: EditedGraph) -> None:
    """Give an operator's filter, which has a scale for each channel, the largest one for all, and its bias that scale."""
    inputs = listed(graph.operator["inputs"])
    values, scales = graph.values(inputs[1]), graph.scales(inputs[1])
    assert values is not None, "a constant"
    shape, axis = [1] * values.ndim, graph.axis(inputs[1])
    shape[axis] = -1
    steps = np.clip(np.rint(values * (scales.reshape(shape) / scales.max())), -127, 127).astype(values.dtype)
    stored = graph.values(inputs[2]) if len(inputs) > 2 and inputs[2] >= 0 else None
    bias = inputs[2] if stored is not None and graph.type(inputs[2]) in ("INT32", "INT64") else None
    inputs[1] = graph.data(steps, graph.type(inputs[1]), "one scale")
    graph.quantise(inputs[1], [scales.max()], [0])
    if bias is not None and stored is not None:
        inputs[2] = graph.data(np.rint(stored * (scales / scales.max())).astype(stored.dtype), graph.type(bias), "bias")
        graph.quantise(inputs[2], graph.scales(inputs[0])[:1] * scales.max(), [0])
    graph.operator["inputs"] = np.asarray(inputs, "<i4")


def _in_float(graph: EditedGraph) -> None:
    for t in range(len(graph.subgraph["tensors"])):
        if graph.type(t) in (*_EIGHT, "INT16", "INT32") and len(graph.scales(t)):
            _set(graph, t, "FLOAT32", real_values(graph, t), (), ())
    for k, one in enumerate(_operators(graph)):
        if one.name in ("QUANTIZE", "DEQUANTIZE") and graph.type(one.input(0)) == "FLOAT32":
            shape = np.asarray(one.shape(one.out), "<i4")
            target = one.data(shape, "INT32", "shape")
            graph.subgraph["operators"][k] = one.made("RESHAPE", [one.input(0), target], [one.out], new_shape=shape)


_BY_DATA = "optimizations = [tf.lite.Optimize.DEFAULT], a representative_dataset and TFLITE_BUILTINS_INT8 as supported_ops"
_UINT8 = "inference_type = tf.uint8 of tf.compat.v1.lite.TFLiteConverter, for a model trained with fake quantisation"
RETYPINGS = (
    Retyping("uint8 in place of int8, one scale for each filter", Answers.CHANGE, ("INT8",), _unsigned, _UINT8),
    Retyping("float32 in place of 8 bits", Answers.CHANGE, _EIGHT, _in_float, "no optimizations and no representative_dataset"),
    Retyping("quantised to int8", Answers.CALIBRATE, ("FLOAT32",), partial(_quantised, "INT8"), _BY_DATA),
    Retyping("quantised to uint8", Answers.CALIBRATE, ("FLOAT32",), partial(_quantised, "UINT8"), _UINT8),
)

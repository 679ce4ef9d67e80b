"""Nodes and values as the ``onnx`` package's inference is given them, where it has no rule for an operator or a wrong one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from nnbridge_onnx.read.graph import FLOAT, INT64, STRING

SMALL = 4096
"""Constants of more elements are weights, which decide no shapes."""
MAX_PROPAGATED = 1 << 16
"""Elements of a vector that inference follows."""


class TypedNode(Protocol):
    """The fields of a ``NodeProto`` that are read here without its message."""

    @property
    def type(self) -> str:
        """The operator's name."""

    @property
    def domain(self) -> str:
        """Empty for ONNX's own."""


def sizes_of(value: Any) -> list[int] | None:
    """A tensor's dimensions; None if one of them is open, or their number."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    dims = tensor.shape.dim
    sizes = [d.dim_value for d in dims]  # 0 where the field is not set
    return None if 0 in sizes and not all(d.HasField("dim_value") for d in dims) else sizes


def _without_values(onnx: Any, node: Any, graph: Any) -> list[Any] | None:
    """A Range as inference sees it: it would follow its numbers, or those of what reads it, however many they are.

    One of computed or of many numbers becomes a vector of the same type and of any size; None for one that may stay.
    """
    if _range_size(onnx, node, graph) <= MAX_PROPAGATED:
        return None
    one, count = f"{node.output[0]} start", f"{node.output[0]} size"
    graph.initializer.append(onnx.numpy_helper.from_array(np.ones(1, np.int64), f"{one} shape"))
    graph.input.append(onnx.helper.make_tensor_value_info(count, INT64, [1]))
    return [
        onnx.helper.make_node("Reshape", [node.input[0], f"{one} shape"], [one]),
        onnx.helper.make_node("Tile", [one, count], [node.output[0]]),
    ]


def _range_size(onnx: Any, node: Any, graph: Any) -> float:
    """The number of numbers of a Range; infinite if its bounds are computed."""
    tensors = [next((t for t in graph.initializer if t.name == name), None) for name in node.input]
    if len(tensors) != 3 or any(t is None or t.external_data for t in tensors):
        return np.inf
    start, limit, delta = (float(np.ravel(onnx.numpy_helper.to_array(t))[0]) for t in tensors)
    return (limit - start) / delta if delta else np.inf


def _without_numbers(onnx: Any, node: Any, graph: Any) -> list[Any] | None:
    """A Constant of more numbers than decide dimensions as a value of its type, as weights are; None for one that may stay."""
    tensor = next((attribute.t for attribute in node.attribute if attribute.name == "value"), None)
    if tensor is None or math.prod(tensor.dims) <= SMALL or any(value.name == node.output[0] for value in graph.output):
        return None
    graph.input.append(onnx.helper.make_tensor_value_info(node.output[0], tensor.data_type, list(tensor.dims)))
    return []


def _like_its_input(onnx: Any, node: Any, graph: Any) -> list[Any]:
    """An operator that the package has no rule for, whose result is of its first input's type and shape."""
    return [onnx.helper.make_node("Identity", node.input[:1], node.output[:1])]


def _normalised(onnx: Any, node: Any, graph: Any) -> list[Any] | None:
    """A normalisation of rows, which a file may have before ONNX does; None for one with further outputs."""
    return _like_its_input(onnx, node, graph) if len(node.output) == 1 else None


def _layer(onnx: Any, node: Any, graph: Any) -> list[Any]:
    """ONNX Runtime's LSTM with 8-bit weights: results are as those of ONNX's own, whose rule looks at no weight."""
    written = onnx.helper.make_node("LSTM", node.input[:3], node.output)
    written.attribute.extend(node.attribute)
    return [written]


def _onesided(onnx: Any, node: Any, graph: Any) -> list[Any] | None:
    """An STFT that states the operator's default, which inference takes for 0; None for one that states it itself."""
    if any(attribute.name == "onesided" for attribute in node.attribute):
        return None
    written = type(node)()
    written.CopyFrom(node)
    written.attribute.append(onnx.helper.make_attribute("onesided", 1))
    return [written]


def _some_elements(onnx: Any, node: Any, graph: Any) -> list[Any]:
    """A Compress, which the package has no rule for before opset 11: as many elements along its axis as another input has."""
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), None)
    flat, which = f"{node.output[0]} flat", f"{node.output[0]} indexes"
    graph.input.append(onnx.helper.make_tensor_value_info(which, INT64, [None]))
    if axis is not None:
        return [onnx.helper.make_node("Gather", [node.input[0], which], node.output[:1], axis=axis)]
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1]), f"{flat} shape"))
    return [
        onnx.helper.make_node("Reshape", [node.input[0], f"{flat} shape"], [flat]),
        onnx.helper.make_node("Gather", [flat, which], node.output[:1]),
    ]


def _real(onnx: Any, node: Any, graph: Any) -> list[Any]:
    """An operator of ``ai.onnx.ml``, for which the package has no rule: float32 in the shape of its input."""
    return [onnx.helper.make_node("Cast", node.input[:1], node.output[:1], to=FLOAT)]


def _scores(onnx: Any, node: Any, graph: Any) -> None:
    """Likewise one with a row of float32 for each row of its input, and maybe a label before it."""
    known = {value.name for value in (*graph.value_info, *graph.output)}
    text = any(attribute.name == "classlabels_strings" and attribute.strings for attribute in node.attribute)
    types = [FLOAT] if len(node.output) == 1 else [STRING if text else INT64, FLOAT]
    for name, kind in zip(node.output, types, strict=False):
        if name and name not in known:
            graph.value_info.append(onnx.helper.make_tensor_value_info(name, kind, [None] * (2 if kind == FLOAT else 1)))


WRITTEN: Mapping[str, Callable[[Any, Any, Any], list[Any] | None]] = {
    "Constant": _without_numbers,
    "Range": _without_values,
    "Compress": _some_elements,
    "GroupNormalization": _like_its_input,
    "LayerNormalization": _normalised,
    "RMSNormalization": _normalised,
    "STFT": _onesided,
    "com.microsoft.DynamicQuantizeLSTM": _layer,
    "ai.onnx.ml.Scaler": _real,
    "ai.onnx.ml.Normalizer": _real,
    "ai.onnx.ml.Imputer": _like_its_input,
    "ai.onnx.ml.FeatureVectorizer": _scores,
    "ai.onnx.ml.LinearRegressor": _scores,
    "ai.onnx.ml.SVMRegressor": _scores,
    "ai.onnx.ml.SVMClassifier": _scores,
}
"""Operators as inference sees them: others in their place, or None if it sees the node."""


def correct_pool(onnx: Any, seen: Any, body: Sequence[TypedNode], inferred: Any) -> bool:
    """Write the first pooling whose size is rounded up wrongly with the paddings that give its size; False if there is none.

    Before their last versions, inference counts a window that would start after the input and its first padding.
    """
    pools = [
        node
        for node, step in zip(seen.graph.node, body, strict=True)
        if step.type in ("MaxPool", "AveragePool", "LpPool") and not step.domain and _rounds_up(node)
    ]
    if not pools:
        return False
    values = {value.name: value for value in (*seen.graph.input, *inferred.value_info, *inferred.output)}
    for node in pools:
        options = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        value = values.get(node.input[0])
        if value is None or (known := sizes_of(value)) is None:
            continue
        sizes = known[2:]
        ones = [1] * len(sizes)
        auto = options.get("auto_pad", b"NOTSET")
        stated = options.get("pads", []) if auto == b"NOTSET" else []
        pads = list(stated or [0] * 2 * len(sizes))
        steps, dilations = options.get("strides", ones), options.get("dilations", ones)
        if min(steps, default=1) < 1:  # its conversion refuses it
            continue
        wrong = False
        for i, (size, k, s, d) in enumerate(zip(sizes, options["kernel_shape"], steps, dilations, strict=True)):
            free = size + pads[i] + pads[len(sizes) + i] - (k - 1) * d - 1
            last = -(-free // s)
            if auto in (b"SAME_UPPER", b"SAME_LOWER"):
                last, wrong = -(-size // s) - 1, True
            elif last * s >= size + pads[i]:
                last, wrong = last - 1, True
            pads[len(sizes) + i] += max(last * s - free, 0)
        if wrong:
            for name in ("auto_pad", "ceil_mode", "pads"):
                for a in [a for a in node.attribute if a.name == name]:
                    node.attribute.remove(a)
            node.attribute.append(onnx.helper.make_attribute("pads", pads))
            return True
    return False


def _rounds_up(node: Any) -> bool:
    """True for a pooling whose size is rounded up."""
    return any(attribute.name == "ceil_mode" and attribute.i for attribute in node.attribute)


def correct_einsum(onnx: Any, seen: Any, body: Sequence[TypedNode], inferred: Any) -> bool:
    """Have the first Einsum with operands of size 1 along a longer axis read ones as long; False if there is none.

    Inference takes the size of the first operand that has a letter.
    """
    sums = [node for node, step in zip(seen.graph.node, body, strict=True) if step.type == "Einsum" and not step.domain]
    if not sums:
        return False
    values = {value.name: value for value in (*seen.graph.input, *inferred.value_info, *inferred.output)}
    for node in sums:
        terms = (
            next((a.s.decode() for a in node.attribute if a.name == "equation"), "").replace(" ", "").split("->")[0].split(",")
        )
        shapes = [None if name not in values else sizes_of(values[name]) for name in node.input]
        pairs = [
            (term, shape) for term, shape in zip(terms, shapes, strict=False) if shape is not None and len(term) == len(shape)
        ]
        if len(pairs) != len(node.input):
            continue
        longest = {letter: max(s[t.index(letter)] for t, s in pairs if letter in t) for term, _ in pairs for letter in term}
        for k, (term, shape) in enumerate(pairs):
            wide = [longest[letter] if size == 1 else size for letter, size in zip(term, shape, strict=True)]
            if wide != shape:
                type, name = values[node.input[k]].type.tensor_type.elem_type, f"{node.output[0]} operand {k}"
                seen.graph.input.append(onnx.helper.make_tensor_value_info(name, type, wide))
                node.input[k] = name
                return True
    return False

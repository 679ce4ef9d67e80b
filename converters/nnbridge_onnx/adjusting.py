"""Changes of an ONNX node: attributes, windows, constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from nnbridge.converters.edits import Adjustable, Content, Parameter, Value
from nnbridge.errors import Why
from nnbridge_onnx.messages import EditedOnnxGraph, loaded

Apply: TypeAlias = "Callable[[EditedOnnxGraph, Value], None]"
Found: TypeAlias = "Iterator[tuple[Parameter, Apply]]"

_LISTS = {"strides": 1, "dilations": 1, "kernel_shape": 1, "pads": 0}
"""Attributes that are lists of numbers → the lowest number."""
_NUMBERS = {"blocksize": 1, "group": 1, "axis": 0}
_FLAGS = ("ceil_mode", "count_include_pad", "keepdims", "transA", "transB", "allowzero", "spatial", "exclude_outside")
_FLOATS = {"alpha": (1.0,), "beta": (1.0,)}
_POSITIONS = ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel")
_WORDS = {
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    "mode": ("nearest", "linear", "cubic", "DCR", "CRD", "constant", "reflect", "edge"),
    "coordinate_transformation_mode": _POSITIONS,
    "nearest_mode": ("floor", "round_prefer_floor", "round_prefer_ceil", "ceil"),
}
_LETTERS = {"FLOAT": np.float32, "INT64": np.int64, "INT32": np.int32, "UINT8": np.uint8, "INT8": np.int8, "BOOL": np.bool_}
_ARGUMENT = frozenset({Why.ARGUMENT, Why.OPERAND_VALUE, Why.RANGE, Why.OPERAND_SIZE, Why.UNSTATED, Why.VARIANT, Why.RANK})
_CONSTANT = frozenset({Why.NOT_CONSTANT, Why.OPERAND_VALUE, Why.UNSTATED})
_QUANTISED_WINDOW = ("Conv", "ConvTranspose")

_AT_SOURCE = dict.fromkeys(
    ("GRU", "LSTM", "Loop", "RNN", "Scan"),
    "a loop over the time steps in the model (torch.nn.LSTMCell), which the exporter writes out",
) | {"If": "the model split at the node: a file of what is before it, of each branch and of what is after it"}
"""Operators → what helps at the source."""


def adjustable(path: Path, subgraph: int, index: int) -> Adjustable | None:
    """A node's parameters; None for nodes of bodies."""
    facts, graphs = loaded(path)
    if subgraph or index >= len(facts.model.graph.node):
        return None
    graph = graphs(index)
    found = {parameter.name: (parameter, apply) for make in _PARAMETERS for parameter, apply in make(graph)}
    applied = {name: apply for name, (_, apply) in found.items()}
    return Adjustable(
        graph.node.op_type,
        tuple(parameter for parameter, _ in found.values()),
        partial(_content, graphs, index, applied),
        _AT_SOURCE.get(graph.node.op_type, ""),
    )


def _content(
    graphs: Callable[[int], EditedOnnxGraph], index: int, applied: Mapping[str, Apply], changes: Mapping[str, Value], alone: bool
) -> Content:
    graph = graphs(index)
    for name, value in changes.items():
        applied[name](graph, value)
    return graph.finished(alone=alone)


def _set(name: str, graph: EditedOnnxGraph, value: Value) -> None:
    graph.set_attribute(graph.node, name, value)


def _set_list(name: str, places: tuple[int, ...], graph: EditedOnnxGraph, value: Value) -> None:
    old = graph.attribute(name, [])
    graph.set_attribute(graph.node, name, [int(value) if k in places else int(d) for k, d in enumerate(old)])


def _attributes(graph: EditedOnnxGraph) -> Found:
    stated = {attribute.name for attribute in graph.node.attribute}
    for name, low in _LISTS.items():
        values = [int(v) for v in graph.attribute(name, [])]
        if not values or (name == "kernel_shape" and graph.node.op_type in _QUANTISED_WINDOW):
            continue
        labels = {name: tuple(range(len(values)))} | (
            {f"{name}[{k}]": (k,) for k in range(len(values))} if len(values) > 1 else {}
        )
        for label, places in labels.items():
            side = max(values[k] for k in places)
            yield Parameter(label, side, low=low, parts=len(places), kinds=_ARGUMENT), partial(_set_list, name, places)
    for name, low in _NUMBERS.items():
        if name in stated:
            yield Parameter(name, int(graph.attribute(name, 0)), low=low, high=64, kinds=_ARGUMENT), partial(_set, name)
    for name in _FLAGS:
        if name in stated:
            flag = int(graph.attribute(name, 0))
            yield Parameter(name, flag, (1 - flag,), kinds=_ARGUMENT), partial(_set, name)
    for name, choices in _FLOATS.items():
        if name in stated and graph.attribute(name, 1.0) not in choices:
            yield Parameter(name, float(graph.attribute(name, 1.0)), choices, kinds=_ARGUMENT), partial(_set, name)
    for name, words in _WORDS.items():
        word = graph.attribute(name, b"").decode() if name in stated else ""
        others = tuple(other for other in words if other != word)
        if word or graph.node.op_type == "Resize":
            yield Parameter(name, word or "default", others, kinds=_ARGUMENT), partial(_set, name)


def _windows(graph: EditedOnnxGraph) -> Found:
    weights = graph.value(graph.node.input[1]) if graph.node.op_type in _QUANTISED_WINDOW else None
    if weights is None or weights.ndim < 3:
        return
    side = max(weights.shape[2:])
    yield Parameter("kernel", side, high=2 * side + 8, kinds=_ARGUMENT), _set_window


def _set_window(graph: EditedOnnxGraph, value: Value) -> None:
    """All sides of the window: cut or filled with zeros around its centre."""
    weights = graph.value(graph.node.input[1])
    assert weights is not None, "a constant"
    for axis in range(2, weights.ndim):
        missing = int(value) - weights.shape[axis]
        first = abs(missing) // 2
        if missing < 0:
            weights = np.take(weights, range(first, first + int(value)), axis)
        else:
            weights = np.pad(weights, [(first, missing - first) if k == axis else (0, 0) for k in range(weights.ndim)])
    graph.node.input[1] = graph.constant(weights)
    if graph.attribute("kernel_shape", None) is not None:
        graph.set_attribute(graph.node, "kernel_shape", [int(value)] * (weights.ndim - 2))


def _constants(graph: EditedOnnxGraph) -> Found:
    """Inputs after the first as constants: zeros, which stand for what is known."""
    for i, name in enumerate(graph.node.input):
        if i and name and graph.value(name) is None and graph.shape(name) is not None and graph.type(name) in _LETTERS:
            yield Parameter(f"input {i}", "computed", ("constant",), kinds=_CONSTANT), partial(_freeze, i)


def _freeze(i: int, graph: EditedOnnxGraph, value: Value) -> None:
    name = graph.node.input[i]
    graph.node.input[i] = graph.constant(np.zeros(graph.shape(name) or (), _LETTERS[graph.type(name)]))


_PARAMETERS: tuple[Callable[[EditedOnnxGraph], Found], ...] = (_attributes, _windows, _constants)

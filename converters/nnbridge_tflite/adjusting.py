"""Changes of a TFLite operator: options, windows, quantisation, constants, type, channels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from nnbridge.converters.edits import Adjustable, Answers, Content, Parameter, Value
from nnbridge.errors import Why
from nnbridge_tflite.retyping import one_scale, real_values
from nnbridge_tflite.tables import LETTERS, EditedGraph, Table, alone, is_constant, listed
from nnbridge_tflite.written import written

Apply: TypeAlias = "Callable[[EditedGraph, Value], None]"
Found: TypeAlias = "Iterator[tuple[Parameter, Apply]]"

_NUMBERS = {
    "strides": ("stride_h", "stride_w"),
    "dilation": ("dilation_h_factor", "dilation_w_factor"),
    "window": ("filter_height", "filter_width"),
    "block size": ("block_size",),
    "radius": ("radius",),
}
"""Options that are changed together, under one name; those of a pair also one by one."""
_TRUTHS: tuple[str, ...] = ("align_corners", "half_pixel_centers", "keep_dims", "keep_num_dims", "adj_x", "adj_y")
_TRUTHS += ("exclusive", "reverse", "asymmetric_quantize_inputs")
_CODED = {
    "padding": {0: "SAME", 1: "VALID"},
    "fused_activation_function": {0: "NONE", 1: "RELU", 3: "RELU6", 2: "RELU_N1_TO_1"},
}
_FUSED = ("fused_activation_function",)
_WINDOWED = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV")
_EIGHT = ("INT8", "UINT8")
_ARGUMENT = frozenset({Why.ARGUMENT, Why.OPERAND_VALUE, Why.RANGE, Why.OPERAND_SIZE, Why.UNSTATED, Why.VARIANT})
_QUANTISATION = frozenset(
    {Why.QUANTISATION_PARAMETERS, Why.RESTRICTED_SCALE, Why.QUANTISATION_TYPE, Why.OPERAND_VALUE, Why.UNSTATED}
)
_TYPE = frozenset({Why.INPUT_TYPE, Why.OUTPUT_TYPE, Why.HYBRID, Why.OPERAND_VALUE, Why.FEATURE_LEVEL, Why.UNSTATED})
_CONSTANT = frozenset({Why.NOT_CONSTANT, Why.OPERAND_VALUE, Why.UNSTATED})

_UNROLLED = (
    "unroll=True of the Keras layer, with a fixed number of time steps: operators that NNAPI has in place of one for a sequence"
)
_SPLIT = (
    "the model split at the operator: a file of what is before it, of each of its bodies, and of what is after it, and the "
    "program in place of the operator"
)
_AT_SOURCE = dict.fromkeys(
    (
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        "BIDIRECTIONAL_SEQUENCE_RNN",
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        "UNIDIRECTIONAL_SEQUENCE_RNN",
    ),
    _UNROLLED,
) | {"WHILE": f"{_UNROLLED}; or {_SPLIT}", "IF": _SPLIT, "CALL_ONCE": _SPLIT}
"""Operators → what helps at the source."""


def adjustable(model: Table, path: Path, subgraph: int, index: int) -> Adjustable | None:
    """An operator's parameters, given its file's tables; None for operators that TFLite does not define."""
    if subgraph >= len(model["subgraphs"]) or index >= len(model["subgraphs"][subgraph]["operators"]):
        return None
    graph = EditedGraph(model, subgraph, index)
    if not graph.name:
        return None
    found = {parameter.name: (parameter, apply) for make in _PARAMETERS for parameter, apply in make(graph)}
    operator = cache(partial(alone, model, subgraph, index))

    def content(changes: Mapping[str, Value], single: bool) -> Content:
        edited = EditedGraph.fork(operator(), 0, 0) if single else EditedGraph.fork(model, subgraph, index)
        for name, value in changes.items():
            found[name][1](edited, value)
        edited.finish(0 if single else index)
        if not single:
            return written(edited.model, path)
        # What became a constant is no input any more.
        main, tensors = edited.subgraph, edited.subgraph["tensors"]
        read = {t for o in main["operators"] for t in listed(o["inputs"])}
        rest = [t for t in listed(main["inputs"]) if t in read and not is_constant(edited.model, tensors[t])]
        main["inputs"] = np.asarray(rest, "<i4")
        return written(edited.model)

    source = _AT_SOURCE.get(graph.name, "")
    return Adjustable(graph.label, tuple(parameter for parameter, _ in found.values()), content, source)


# -- options -------------------------------------------------------------------------------------------------------------------


def _set_options(names: tuple[str, ...], graph: EditedGraph, value: Value) -> None:
    graph.operator["builtin_options"] = {**(graph.operator.get("builtin_options") or {}), **dict.fromkeys(names, value)}


def _options(graph: EditedGraph) -> Found:
    stated = graph.operator.get("builtin_options") or {}
    for name, members in _NUMBERS.items():
        known = [member for member in members if member in stated]
        for label, names in {**({name: members} if known == [*members] else {}), **{k: (k,) for k in known}}.items():
            value = max(int(stated[member]) for member in names)
            yield Parameter(label, value, parts=len(names), kinds=_ARGUMENT), partial(_set_options, names)
    for name in _TRUTHS:
        if name in stated:
            words = ("false", "true")
            yield from _word(name, int(stated[name]), dict(enumerate(words)), _ARGUMENT | {Why.RANK})
    for name, codes in _CODED.items():
        if stated.get(name) in codes and not (name in _FUSED and not stated[name]):
            yield from _word(name, stated[name], codes, _ARGUMENT | {Why.ACTIVATION})


def _word(name: str, code: int, codes: Mapping[int, str], kinds: frozenset[Why]) -> Found:
    """An option whose numbers have names."""
    others = tuple(word for other, word in codes.items() if other != code)
    numbers = {word: number for number, word in codes.items()}
    label = name.removesuffix("_function").replace("_", " ")
    yield Parameter(label, codes[code], others, kinds=kinds), partial(_set_word, name, numbers)


def _set_word(name: str, numbers: Mapping[str, int], graph: EditedGraph, value: Value) -> None:
    _set_options((name,), graph, numbers[str(value)])


# -- windows and channels ------------------------------------------------------------------------------------------------------


def _resized(graph: EditedGraph, tensor: int, shape: list[int], centred: bool) -> int:
    """A constant with other sides, cut or filled with zeros; around its centre, or at the end."""
    values = graph.values(tensor)
    assert values is not None, "a constant"
    for axis, size in enumerate(shape):
        missing = size - values.shape[axis]
        if missing < 0:
            first = -missing // 2 if centred else 0
            values = np.take(values, range(first, first + size), axis)
        else:
            first = missing // 2 if centred else 0
            around = [(first, missing - first) if k == axis else (0, 0) for k in range(values.ndim)]
            values = np.pad(values, around, constant_values=graph.zero_point(tensor))
    made = graph.data(values, graph.type(tensor), "resized")
    scales = graph.scales(tensor)
    if len(scales):
        axis = graph.axis(tensor)
        count = shape[axis] if len(scales) > 1 else 1
        padded = np.pad(scales, (0, max(count - len(scales), 0)), mode="edge")[:count]
        graph.quantise(made, padded, np.full(count, graph.zero_point(tensor)), axis)
    return made


def _set_input(graph: EditedGraph, i: int, tensor: int) -> None:
    inputs = listed(graph.operator["inputs"])
    inputs[i] = tensor
    graph.operator["inputs"] = np.asarray(inputs, "<i4")


def _set_window(axes: tuple[int, ...], graph: EditedGraph, value: Value) -> None:
    shape = [int(value) if k in axes else d for k, d in enumerate(graph.shape(graph.input(1)))]
    _set_input(graph, 1, _resized(graph, graph.input(1), shape, True))


def _windows(graph: EditedGraph) -> Found:
    if graph.name not in _WINDOWED or graph.values(graph.input(1)) is None:
        return
    shape = graph.shape(graph.input(1))
    for label, axes in (("kernel", (1, 2)), ("kernel height", (1,)), ("kernel width", (2,))):
        side = max(shape[a] for a in axes)
        yield Parameter(label, side, high=2 * side + 8, parts=len(axes), kinds=_ARGUMENT), partial(_set_window, axes)


def _pad(graph: EditedGraph, data: int, count: int) -> int:
    """A tensor with more channels, which are zeros."""
    shape = graph.shape(data)
    wide = graph.tensor(data, (*shape[:-1], count), "padded")
    sides = graph.data(np.asarray([*[(0, 0)] * (len(shape) - 1), (0, count - shape[-1])], "<i4"), "INT32", "paddings")
    graph.before.append(graph.made("PAD", [data, sides], [wide], 2 if graph.type(data) == "INT8" else 1))
    return wide


def _cut(graph: EditedGraph, count: int) -> None:
    """The operator computes more channels than its output has; the rest is cut off."""
    out, shape = graph.out, graph.shape(graph.out)
    wide = graph.tensor(out, (*shape[:-1], count), "padded")
    graph.operator["outputs"] = np.asarray([wide], "<i4")
    graph.after.append(graph.slice(wide, [0] * len(shape), out))


def _more_outputs(graph: EditedGraph, value: Value) -> None:
    for i in (1, 2):
        shape = graph.shape(graph.input(i))
        _set_input(graph, i, _resized(graph, graph.input(i), [int(value), *shape[1:]], False))
    _cut(graph, int(value))


def _more_inputs(graph: EditedGraph, value: Value) -> None:
    shape = graph.shape(graph.input(1))
    _set_input(graph, 1, _resized(graph, graph.input(1), [*shape[:-1], int(value)], False))
    _set_input(graph, 0, _pad(graph, graph.input(0), int(value)))


def _more_channels(graph: EditedGraph, value: Value) -> None:
    _more_inputs(graph, value)
    if graph.name == "DEPTHWISE_CONV_2D":
        _set_input(graph, 2, _resized(graph, graph.input(2), [int(value)], False))
    _cut(graph, int(value))


def _channels(graph: EditedGraph) -> Found:
    """More channels, by zeros that are sliced off afterwards: the outputs stay the same."""
    inputs = listed(graph.operator["inputs"])
    if graph.name not in ("CONV_2D", "DEPTHWISE_CONV_2D") or len(inputs) != 3 or not graph.fixed(inputs[0], graph.out):
        return
    if graph.values(inputs[1]) is None or inputs[2] < 0 or graph.values(inputs[2]) is None:
        return
    filter = graph.shape(inputs[1])
    forms: list[tuple[str, int, Apply]] = []
    if graph.name == "CONV_2D":
        forms.append(("output channels, sliced off afterwards", filter[0], _more_outputs))
    if filter[-1] == graph.shape(inputs[0])[-1]:
        forms.append(
            ("input channels, zeros", filter[-1], _more_inputs)
            if forms
            else ("channels, sliced off afterwards", filter[-1], _more_channels)
        )
    for label, count, apply in forms:
        yield Parameter(label, count, low=count, high=2 * count + 64, answers=Answers.SAME, kinds=_ARGUMENT), apply


# -- quantisation, constants, type ---------------------------------------------------------------------------------------------


def _requantise(side: str, place: int, scale: bool, graph: EditedGraph, value: Value) -> None:
    tensor = listed(graph.operator[side])[place]
    scales, points = graph.scales(tensor), [graph.zero_point(tensor)]
    graph.quantise(tensor, [value] if scale else scales, points if scale else [value])


def _one_scale(graph: EditedGraph, value: Value) -> None:
    one_scale(graph)


def _quantisation(graph: EditedGraph) -> Found:
    outputs, inputs = listed(graph.operator["outputs"]), [t for t in listed(graph.operator["inputs"]) if t >= 0]
    eight = [t for t in (*inputs, *outputs) if graph.type(t) in _EIGHT and len(graph.scales(t)) == 1]
    steps, points = [float(graph.scales(t)[0]) for t in eight], [graph.zero_point(t) for t in eight]
    product = float(np.prod([float(graph.scales(t).max()) for t in inputs[:2] if len(graph.scales(t))] or [0.0]))
    for side in ("outputs", "inputs"):
        for k, t in enumerate(listed(graph.operator[side])):
            if t not in eight or (side == "inputs" and is_constant(graph.model, graph.subgraph["tensors"][t])):
                continue
            scales = _near_scales(float(graph.scales(t)[0]), (product * 1.001, *steps))
            low, high = (-128, 127) if graph.type(t) == "INT8" else (0, 255)
            allowed = _near_points(graph.zero_point(t), (*points, -128, 0, 127, 128, 255), low, high)
            label, change = f"{side[:-1]} {k}", partial(_requantise, side, k)
            yield Parameter(f"{label} scale", float(graph.scales(t)[0]), scales, kinds=_QUANTISATION), partial(change, True)
            yield Parameter(f"{label} zero point", graph.zero_point(t), allowed, kinds=_QUANTISATION), partial(change, False)
    if len(inputs) > 1 and len(graph.scales(inputs[1])) > 1 and graph.values(inputs[1]) is not None:
        count = f"{len(graph.scales(inputs[1]))} scales"
        yield Parameter("filter quantisation", count, ("one scale",), kinds=_QUANTISATION | _TYPE), _one_scale


def _near_scales(old: float, others: tuple[float, ...]) -> tuple[float, ...]:
    near = {*others, old * 1.01, old * 2, old / 2, 1 / 128, 1 / 256} - {old}
    return tuple(sorted((scale for scale in near if scale > 0), key=lambda scale: abs(np.log(scale / old))))


def _near_points(old: int, others: tuple[int, ...], low: int, high: int) -> tuple[int, ...]:
    return tuple(sorted({p for p in others if low <= p <= high} - {old}, key=lambda p: abs(p - old)))


def _constants(graph: EditedGraph) -> Found:
    """Inputs after the first as constants: those of RESHAPE as they are computed, others zeros in place of what is known."""
    inputs = listed(graph.operator["inputs"])
    for i, t in enumerate(inputs):
        if i == 0 or t < 0 or is_constant(graph.model, graph.subgraph["tensors"][t]) or not graph.fixed(t):
            continue
        if graph.type(t) not in LETTERS:
            continue
        yield Parameter(f"input {i}", "computed", ("constant",), kinds=_CONSTANT), partial(_freeze, i)


def _freeze(i: int, graph: EditedGraph, value: Value) -> None:
    t = graph.input(i)
    shape, type = graph.shape(t), graph.type(t)
    is_shape = graph.name == "RESHAPE" and graph.fixed(graph.out)
    made = graph.data(np.asarray(graph.shape(graph.out) if is_shape else np.zeros(shape), LETTERS[type]), type, "constant")
    if len(graph.scales(t)):
        graph.quantise(made, graph.scales(t), [graph.zero_point(t)])
    _set_input(graph, i, made)


_CASTS = {"INT8": ("DEQUANTIZE", "QUANTIZE"), "UINT8": ("DEQUANTIZE", "QUANTIZE"), "INT32": ("CAST", "CAST")}


def _types(graph: EditedGraph) -> Found:
    inputs = [t for t in listed(graph.operator["inputs"]) if t >= 0]
    if not inputs or graph.name in ("QUANTIZE", "DEQUANTIZE", "CAST") or graph.type(inputs[0]) not in _CASTS:
        return
    yield Parameter("element type", graph.type(inputs[0]), ("FLOAT32",), kinds=_TYPE), _in_float


def _in_float(graph: EditedGraph, value: Value) -> None:
    """The operator in float32: its tensors of the first input's type are converted before and after."""
    type = graph.type(graph.input(0))
    to, back = _CASTS[type]
    floats: dict[int, int] = {}

    def twin(t: int) -> int:
        if t not in floats:
            floats[t] = graph.tensor(t, graph.shape(t), "in float32")
            tensor = graph.subgraph["tensors"][floats[t]]
            tensor.update(type=0, quantization=None)
        return floats[t]

    inputs = listed(graph.operator["inputs"])
    for i, t in enumerate(inputs):
        whole = i == 0 or type != "INT32"
        if t >= 0 and (graph.type(t) == type or len(graph.scales(t))) and whole:
            constant = real_values(graph, t) if t not in floats else None
            if constant is not None:
                floats[t] = graph.data(constant.astype("<f4"), "FLOAT32", "in float32")
            elif t not in floats:
                graph.before.append(graph.made(to, [t], [twin(t)], 2 if type == "INT8" else 1))
            inputs[i] = twin(t)
    graph.operator["inputs"] = np.asarray(inputs, "<i4")
    outputs = listed(graph.operator["outputs"])
    for t in [t for t in outputs if graph.type(t) == type]:
        graph.after.append(graph.made(back, [twin(t)], [t]))
    graph.operator["outputs"] = np.asarray([floats.get(t, t) for t in outputs], "<i4")


_PARAMETERS: tuple[Callable[[EditedGraph], Found], ...] = (_options, _windows, _channels, _quantisation, _constants, _types)

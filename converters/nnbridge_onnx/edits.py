"""Rewrites of an ONNX file: single nodes as others with the same answers; initialisers as constants, uint8, a newer opset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from nnbridge.converters.edits import WHOLE, Answers, Content, Edit, Key
from nnbridge.errors import ConversionError, Reason, first_line
from nnbridge.records import dataclass
from nnbridge_onnx import native
from nnbridge_onnx.dimensions import stated
from nnbridge_onnx.messages import EditedOnnxGraph, copied, edited, inferred, loaded, together
from nnbridge_onnx.quantised_form import as_qdq, one_scale, unsigned
from nnbridge_onnx.weights import StoredWeights

Change: TypeAlias = "Callable[[Any, StoredWeights], Any | None]"
_MAX_PIECES = 64
_OPSET = 13
"""The opset that older files are brought to: from here on, axes and bounds are inputs."""
_EXACT: tuple[str, ...] = ("Abs", "Neg", "Sqrt", "Floor", "Relu", "LeakyRelu", "Add", "Sub", "Mul", "Div", "Min", "Max")
_EXACT += ("Exp", "Log", "Sin", "Elu", "LogSoftmax")
_ROUNDED = ("Sigmoid", "Tanh", "Pow", "Softmax")
"""Functions that the host and NNAPI's kernels round differently in the last bit: a rewrite moves them from one to the other."""
_ROWS = ("Softmax", "LogSoftmax")


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Nodes of some types become others."""

    operators: tuple[str, ...]
    text: str
    replace: Callable[[EditedOnnxGraph], bool]
    """Places what stands instead; False if the rewrite does not apply."""
    converter: str
    """What does the same at the source: an option of the exporter or the quantiser, or of the model."""
    answers: Answers = Answers.SAME


@dataclass(frozen=True, slots=True)
class ModelChange:
    """A change of the whole file."""

    text: str
    change: Change
    """From a model and its weights to a changed one; None if the change does not apply."""
    converter: str
    """What does the same at the source."""
    answers: Answers = Answers.ROUND


def _as_reshape(graph: EditedOnnxGraph) -> bool:
    shape = graph.shape(graph.out)
    if shape is None or graph.reads_numbers:
        return False
    graph.place("Reshape", [graph.node.input[0], graph.constant(np.asarray(shape, np.int64))], [graph.out])
    return True


def _in_rank(rank: int, graph: EditedOnnxGraph) -> bool:
    """An operator on single elements or on rows, between Reshapes: axes before the last ones become one, or 1s are added."""
    shape, inputs = graph.shape(graph.out), list(graph.node.input)
    whole = [name for name in inputs if graph.shape(name) == shape]
    alone = all(graph.shape(name) in ((), (1,)) for name in inputs if name not in whole)
    if not shape or len(shape) == rank or not whole or not alone:
        return False
    if graph.node.op_type in _ROWS and graph.attribute("axis", -1 if graph.opset >= 13 else 1) % len(shape) != len(shape) - 1:
        return False
    rows = shape[-rank + 1 :]
    flat = (int(np.prod(shape[: -rank + 1])), *rows) if len(shape) > rank else (*[1] * (rank - len(shape)), *shape)
    within = {name: graph.reshaped(name, flat) for name in dict.fromkeys(whole)}
    result = graph.name(f"{graph.out}_rank{rank}")
    same = graph.same([within.get(name, name) for name in inputs], [result])
    if graph.node.op_type in _ROWS:
        graph.set_attribute(same, "axis", rank - 1)
    graph.shaped_as(result, graph.out, shape)
    return True


def _split_as_slices(graph: EditedOnnxGraph) -> bool:
    outputs, shapes = list(graph.node.output), [graph.shape(name) for name in graph.node.output]
    if graph.opset < 10 or None in shapes or len(outputs) > _MAX_PIECES or graph.reads_numbers:
        return False
    axis, begin = graph.attribute("axis", 0), 0
    for name, shape in zip(outputs, shapes, strict=True):
        assert shape is not None
        numbers = [graph.constant(np.asarray([k], np.int64)) for k in (begin, begin + shape[axis], axis)]
        graph.place("Slice", [graph.node.input[0], *numbers], [name])
        begin += shape[axis]
    return True


def _clip_as_extremes(graph: EditedOnnxGraph) -> bool:
    if graph.type(graph.out) != "FLOAT" or graph.opset < 8 or graph.reads_numbers:
        return False
    bounds = [
        (operator, bound)
        for i, (operator, attribute) in enumerate((("Max", "min"), ("Min", "max")), 1)
        if (bound := graph.bound(i, attribute)) is not None
    ]
    data = graph.node.input[0]
    for k, (operator, bound) in enumerate(bounds):
        out = graph.out if k == len(bounds) - 1 else graph.name(f"{graph.out}_bounded")
        graph.place(operator, [data, graph.constant(np.float32(bound))], [out])
        data = out
    return bool(bounds)


def _square_as_product(graph: EditedOnnxGraph) -> bool:
    exponent = graph.value(graph.node.input[1])
    if exponent is None or exponent.size != 1 or exponent.item() != 2 or graph.type(graph.out) != "FLOAT":
        return False
    graph.place("Mul", [graph.node.input[0]] * 2, [graph.out])
    return True


def _leaky_as_prelu(graph: EditedOnnxGraph) -> bool:
    if graph.type(graph.out) != "FLOAT":
        return False
    slope = graph.constant(np.asarray([graph.attribute("alpha", 0.01)], np.float32))
    graph.place("PRelu", [graph.node.input[0], slope], [graph.out])
    return True


def _of_two_matrices(graph: EditedOnnxGraph) -> bool:
    """A MatMul of one matrix of weights for all batches, as one product of two matrices."""
    data, weights = graph.node.input
    shape, sides, out = graph.shape(data), graph.shape(weights), graph.shape(graph.out)
    if not shape or not out or not sides or len(sides) < 2 or any(d != 1 for d in sides[:-2]):
        return False
    if len(shape) == 2 == len(sides):
        return False
    if len(sides) > 2:
        matrix = graph.value(weights)
        if matrix is None:
            return False
        weights = graph.constant(matrix.reshape(sides[-2:]))
    result = graph.name(f"{graph.out}_matrix")
    graph.same([graph.reshaped(data, [int(np.prod(shape[:-1])), shape[-1]]), weights], [result])
    graph.shaped_as(result, graph.out, out)
    return True


def _bias_written_out(graph: EditedOnnxGraph) -> bool:
    """A bias of one element for all channels."""
    inputs = list(graph.node.input)
    bias = graph.value(inputs[2]) if len(inputs) > 2 and inputs[2] else None
    out = graph.shape(graph.out)
    if bias is None or bias.size != 1 or out is None or out[1] == 1:
        return False
    graph.same([*inputs[:2], graph.constant(np.repeat(bias.reshape(1), out[1]))], [graph.out])
    return True


def _sum_as_additions(graph: EditedOnnxGraph) -> bool:
    inputs = list(graph.node.input)
    if len(inputs) < 2 or len(inputs) > _MAX_PIECES:
        return False
    data = inputs[0]
    for k, name in enumerate(inputs[1:], 2):
        out = graph.out if k == len(inputs) else graph.name(f"{graph.out}_{k}")
        graph.place("Add", [data, name], [out])
        data = out
    return True


MATRICES = "MatMul of two matrices, between Reshapes"
_MATRICES_THERE = "in the model: x.reshape(-1, features) before torch.nn.Linear, and back after it"
_RESHAPED = "in the model: x.reshape to four dimensions before the operator, and back after it"
REWRITES = (
    Rewrite(
        ("Squeeze", "Unsqueeze", "Flatten"),
        "Reshape to the output's dimensions",
        _as_reshape,
        "in the model: x.reshape in place of squeeze, unsqueeze or flatten",
    ),
    Rewrite(_EXACT, "the same in four dimensions, between Reshapes", partial(_in_rank, 4), _RESHAPED),
    Rewrite(_ROUNDED, "the same in four dimensions, between Reshapes", partial(_in_rank, 4), _RESHAPED, Answers.ROUND),
    Rewrite(("Split",), "a Slice for each part", _split_as_slices, "in the model: x[:, a:b] for each part of split or chunk"),
    Rewrite(("Clip",), "Max, then Min", _clip_as_extremes, "in the model: torch.maximum, then torch.minimum"),
    Rewrite(("Pow",), "Mul of the tensor with itself", _square_as_product, "in the model: x * x in place of x ** 2"),
    Rewrite(
        ("LeakyRelu",),
        "PRelu with its alpha as a constant",
        _leaky_as_prelu,
        "in the model: torch.nn.PReLU with the slope as its init, not trained",
    ),
    Rewrite(
        ("MatMul",),
        MATRICES,
        _of_two_matrices,
        _MATRICES_THERE,
        Answers.ROUND,
    ),
    Rewrite(
        ("Conv", "ConvTranspose"),
        "a bias for each output channel in place of one for all",
        _bias_written_out,
        "in the model: a bias with as many elements as there are output channels, as torch.nn.Conv2d with bias=True has",
    ),
    Rewrite(("Sum",), "Adds, one after the other", _sum_as_additions, "in the model: a + b + c in place of one sum"),
)


def _constants_only(model: Any, weights: StoredWeights) -> Any | None:
    constants = {tensor.name for tensor in model.graph.initializer}
    rest = [value for value in model.graph.input if value.name not in constants]
    if len(rest) == len(model.graph.input):
        return None
    changed = copied(model)
    del changed.graph.input[:]
    changed.graph.input.extend(rest)
    # Only from version 4 of the format on, initialisers need not be inputs.
    changed.ir_version = max(changed.ir_version, 4)
    return changed


def _with_constants_inside(model: Any, weights: StoredWeights) -> Any | None:
    return model if weights.were_beside else None


def _newer_opset(model: Any, weights: StoredWeights) -> Any | None:
    import onnx

    if any(not entry.domain and entry.version >= _OPSET for entry in model.opset_import):
        return None
    # The version converter requires constants that are inputs or a recent format; it reads no metadata.
    prepared = _constants_only(model, weights) or model
    try:
        return native.convert_version(onnx, prepared, _OPSET)
    except RuntimeError as error:
        raise ConversionError(Reason(f"a graph that onnx can bring to opset {_OPSET}", first_line(error))) from error


def _in_turn(*changes: Change) -> Change:
    """Changes of quantised files one after the other, all of which must apply.

    Products of batches are of two matrices then: without that, none of the changes would help those of 8 bits.
    """

    def change(model: Any, weights: StoredWeights) -> Any | None:
        changed: Any | None = model
        for one in changes:
            changed = None if changed is None else one(changed, weights)
        return None if changed is None else _in_matrices(changed, weights)

    return change


def _in_matrices(model: Any, weights: StoredWeights) -> Any:
    facts, names = inferred(model, weights), set[str]()
    products = [k for k, node in enumerate(model.graph.node) if node.op_type == "MatMul"]
    found = [one for k in products if _of_two_matrices(one := EditedOnnxGraph(facts, k, names))]
    return edited(found) if found else model


UNSIGNED = "uint8 in place of int8 between QuantizeLinear and DequantizeLinear"
QDQ = "ONNX's operators between DequantizeLinear and QuantizeLinear in place of QLinear operators"
_QUANTISER = "onnxruntime.quantization.quantize_static with"
ONE_SCALE = "one scale for the weights of matrix products, as uint8"
WHOLE_FILE = (
    ModelChange(
        "initialisers as constants, not as inputs",
        _constants_only,
        "torch.onnx.export with keep_initializers_as_inputs=False",
    ),
    ModelChange(
        "constants inside the file",
        _with_constants_inside,
        "torch.onnx.export with external_data=False; of a file: onnx.save(onnx.load(path), …) without save_as_external_data",
        Answers.SAME,
    ),
    ModelChange(UNSIGNED, _in_turn(unsigned), f"{_QUANTISER} activation_type=QuantType.QUInt8"),
    ModelChange(QDQ, _in_turn(as_qdq), f"{_QUANTISER} quant_format=QuantFormat.QDQ"),
    ModelChange(
        f"{QDQ}, with uint8 in place of int8", _in_turn(as_qdq, unsigned), f"{_QUANTISER} QuantFormat.QDQ and QuantType.QUInt8"
    ),
    ModelChange(
        f"{QDQ}, with {ONE_SCALE}",
        _in_turn(as_qdq, one_scale),
        f"{_QUANTISER} QuantFormat.QDQ, per_channel=False and QuantType.QUInt8",
        Answers.CHANGE,
    ),
    ModelChange(ONE_SCALE, _in_turn(one_scale), f"{_QUANTISER} per_channel=False and QuantType.QUInt8", Answers.CHANGE),
    ModelChange(f"opset {_OPSET}, by onnx's version converter", _newer_opset, f"torch.onnx.export with opset_version={_OPSET}"),
)
"""Changes of the whole file, which return None where they do not apply.

What is constant can be folded, and what is quantised as a device requires runs in its arithmetic: roundings differ then.
"""


def edits(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Edit]:
    """Every rewrite that applies to a node of a file, then those of the whole file.

    ``shapes``: of inputs, for the edit that states all dimensions.
    """
    facts, whole = loaded(path)
    model = facts.model
    for index, node in enumerate(model.graph.node):
        for rewrite in REWRITES:
            if node.op_type in rewrite.operators and not node.domain and _replaced(whole, index, rewrite) is not None:
                content, single = (partial(_content, path, index, rewrite, one) for one in (False, True))
                several = partial(_several, path, rewrite)
                yield Edit(0, index, node.op_type, rewrite.text, content, rewrite.answers, single, rewrite.converter, several)
    yield from _dimensions(path, model, shapes)
    for row in WHOLE_FILE:
        if row.change is _newer_opset or row.change(model, facts.weights) is not None:
            content = partial(_changed, path, row.text, row.change)
            yield Edit(0, WHOLE, "", row.text, content, row.answers, converter=row.converter)


FIXED = "numbers computed from dimensions as constants"
"""The edit that states every dimension, in words; before it the dimensions of inputs that the file leaves open."""
_FIXED_THERE = (
    "torch.onnx.export without dynamic_axes and dynamic_shapes; of a file: "
    "onnxruntime.tools.make_dynamic_shape_fixed, then onnxsim"
)


def _dimensions(path: Path, model: Any, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Edit]:
    try:
        found = stated(path, model, shapes)
    except ConversionError:
        return  # a graph whose dimensions nnbridge does not infer
    if found is not None:
        fixed = found.applied
        inputs = ", ".join(f"{name}={','.join(map(str, dims))}" for name, dims in found.shapes.items())
        text = " and ".join([f"inputs of only these dimensions ({inputs})"] * bool(inputs) + [FIXED] * bool(found.constants))
        content = partial(_changed, path, text, lambda model, _: fixed(model))
        yield Edit(0, WHOLE, "", text, content, Answers.ROUND, converter=_FIXED_THERE)
        if any(node.op_type == "MatMul" for node in model.graph.node):
            # Only products of stated dimensions can be others.
            content = partial(_changed, path, text, lambda model, weights: _in_matrices(fixed(model), weights))
            text = f"{text}; {MATRICES}"
            yield Edit(0, WHOLE, "", text, content, Answers.ROUND, converter=f"{_FIXED_THERE}; {_MATRICES_THERE}")


def _replaced(graphs: Callable[[int], EditedOnnxGraph], index: int, rewrite: Rewrite) -> EditedOnnxGraph | None:
    graph = graphs(index)
    return graph if rewrite.replace(graph) else None


def _several(path: Path, rewrite: Rewrite, keys: Sequence[Key]) -> Content:
    graphs, names = loaded(path)[1], set[str]()
    replaced = [graphs(index, names) for _, index in keys]
    for graph in replaced:
        assert rewrite.replace(graph), "an edit that applied"
    return together(replaced)


def _content(path: Path, index: int, rewrite: Rewrite, alone: bool) -> Content:
    graph = _replaced(loaded(path)[1], index, rewrite)
    assert graph is not None, "an edit that applied"
    return graph.finished(alone=alone)


def _changed(path: Path, text: str, change: Change) -> Content:
    facts = loaded(path)[0]
    changed = change(facts.model, facts.weights)
    if changed is None:
        raise ConversionError(Reason(f"an applicable edit: {text}", "a file where it is already applied", file=str(path)))
    return facts.weights.content(changed)

"""Rewrites of single operators into others, bit for bit where nothing else is said: moves as other moves, a product as another.

A rewrite says for which operators it applies and what replaces them; whether that helps on a device is decided by
planning the edited file, whether the answers stay by running both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from nnbridge.converters.edits import WHOLE, Answers, Content, Edit, Key
from nnbridge.errors import ConversionError
from nnbridge.records import dataclass
from nnbridge_tflite import engine_edits
from nnbridge_tflite.dimensions import Shapes, StatedDimensions, computes_dimensions, stated
from nnbridge_tflite.passes.values import unpacked
from nnbridge_tflite.read.reader import TfliteFile
from nnbridge_tflite.retyping import RETYPINGS, Retyping, one_scale
from nnbridge_tflite.sequences import INTEGER_LAYERS, SEQUENCES, in_float, write_out
from nnbridge_tflite.tables import LETTERS, EditedGraph, Table, alone, listed, operator_label, operator_name
from nnbridge_tflite.unrolling import branch, decomposition, unroll, without_unread_bodies
from nnbridge_tflite.written import written

_ACTIVATIONS = {1: "RELU", 2: "RELU_N1_TO_1", 3: "RELU6"}
_MAX_PIECES = 64


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Operators of some names become others."""

    operators: tuple[str, ...]
    """Empty for all."""
    text: str
    replace: Callable[[EditedGraph], bool]
    """Places what stands instead; False if the rewrite does not apply."""
    converter: str
    """What does the same at the source: an option of TFLite's converter, or of the model."""
    answers: Answers = Answers.SAME
    by_itself: bool = True
    """False if what is around the operator decides, so that a file of the operator only has nothing to try."""


def _activation_apart(graph: EditedGraph) -> bool:
    fused = _ACTIVATIONS.get(graph.option("fused_activation_function"))
    if fused is None:
        return False
    before = graph.tensor(graph.out, graph.shape(graph.out), "before activation")
    same = dict(graph.operator, outputs=np.asarray([before], "<i4"))
    same["builtin_options"] = {**same["builtin_options"], "fused_activation_function": 0}
    graph.placed.append(same)
    graph.place(fused, [before], [graph.out], _version(graph, fused))
    return True


def _version(graph: EditedGraph, name: str) -> int:
    """The operator's version for 8-bit tensors, where float ones have the first."""
    return 2 if graph.type(graph.out) == "INT8" and name != "RELU_N1_TO_1" else 1


def _split_as_slices(graph: EditedGraph) -> bool:
    axis, data = graph.constant(graph.input(0)), graph.input(1)
    outputs = [int(t) for t in graph.operator["outputs"]]
    if axis is None or not graph.fixed(data, *outputs) or len(outputs) > _MAX_PIECES:
        return False
    at, begin = int(axis[0]) % len(graph.shape(data)), 0
    for output in outputs:
        _slice(graph, data, at, begin, output)
        begin += graph.shape(output)[at]
    return True


def _slice(graph: EditedGraph, data: int, axis: int, begin: int, output: int) -> None:
    first = [begin if k == axis else 0 for k in range(len(graph.shape(data)))]
    graph.placed.append(graph.slice(data, first, output))


def _unpack_as_slices(graph: EditedGraph) -> bool:
    data, outputs = graph.input(0), [int(t) for t in graph.operator["outputs"]]
    shape = graph.shape(data)
    if not graph.fixed(data) or len(shape) < 2 or len(outputs) > _MAX_PIECES:
        return False
    axis = int(graph.option("axis")) % len(shape)
    for k, output in enumerate(outputs):
        piece = graph.tensor(data, [1 if i == axis else d for i, d in enumerate(shape)], "piece")
        _slice(graph, data, axis, k, piece)
        _reshape(graph, piece, output)
    return True


_reshape = engine_edits.reshape


def _as_reshape(graph: EditedGraph) -> bool:
    if not graph.fixed(graph.input(0), graph.out):
        return False
    _reshape(graph, graph.input(0), graph.out)
    return True


def _pack_as_concatenation(graph: EditedGraph) -> bool:
    inputs, shape = [int(t) for t in graph.operator["inputs"]], graph.shape(graph.out)
    if not graph.fixed(graph.out, *inputs) or len(inputs) > _MAX_PIECES:
        return False
    axis = int(graph.option("axis")) % len(shape)
    pieces = []
    for data in inputs:
        pieces.append(graph.tensor(data, [1 if k == axis else d for k, d in enumerate(shape)], "piece"))
        _reshape(graph, data, pieces[-1])
    graph.place("CONCATENATION", pieces, [graph.out], 2 if graph.type(graph.out) == "INT8" else 1, axis=axis)
    return True


def _slice_as_strided(graph: EditedGraph) -> bool:
    begin, size, data = graph.constant(graph.input(1)), graph.constant(graph.input(2)), graph.input(0)
    if begin is None or size is None or not graph.fixed(data, graph.out):
        return False
    graph.placed.append(graph.slice(data, begin, graph.out))
    return True


def _square_as_product(graph: EditedGraph) -> bool:
    if graph.type(graph.out) != "FLOAT32":
        return False
    graph.place("MUL", [graph.input(0)] * 2, [graph.out], fused_activation_function=0)
    return True


def _difference_then_product(graph: EditedGraph) -> bool:
    if graph.type(graph.out) != "FLOAT32" or not graph.fixed(graph.out):
        return False
    difference = graph.tensor(graph.out, graph.shape(graph.out), "difference")
    graph.place("SUB", [graph.input(0), graph.input(1)], [difference], fused_activation_function=0)
    graph.place("MUL", [difference, difference], [graph.out], fused_activation_function=0)
    return True


def _leaky_as_prelu(graph: EditedGraph) -> bool:
    if graph.type(graph.out) != "FLOAT32" or not graph.fixed(graph.out):
        return False
    shape = [1] * (len(graph.shape(graph.out)) - 1)
    alpha = np.asarray(graph.option("alpha", 0.0), "<f4").reshape(shape)
    graph.place("PRELU", [graph.input(0), graph.data(alpha, "FLOAT32", "alpha")], [graph.out])
    return True


def _in_four_dimensions(graph: EditedGraph) -> bool:
    """An operator on elements or rows, between RESHAPEs: dimensions before the last three become one, or 1s are added."""
    shape, inputs = graph.shape(graph.out), [int(t) for t in graph.operator["inputs"]]
    whole = [t for t in inputs if graph.shape(t) == shape]
    alone = all(graph.shape(t) in ((), (1,)) for t in inputs if t not in whole)
    if len(shape) in (0, 4) or not graph.fixed(graph.out, *whole) or not alone:
        return False
    if all(graph.stored(t) for t in inputs):
        # What is computed only from constants is constant; between RESHAPEs the delegate would see no constant.
        return False
    flat = (int(np.prod(shape[:-3])), *shape[-3:]) if len(shape) > 4 else (*[1] * (4 - len(shape)), *shape)
    within = {t: graph.tensor(t, flat, "four dimensions") for t in dict.fromkeys((*whole, graph.out))}
    for data in dict.fromkeys(whole):
        _reshape(graph, data, within[data])
    same = dict(graph.operator, outputs=np.asarray([within[graph.out]], "<i4"))
    graph.placed.append({**same, "inputs": np.asarray([within.get(t, t) for t in inputs], "<i4")})
    _reshape(graph, within[graph.out], graph.out)
    return True


def _is_hybrid(graph: EditedGraph) -> bool:
    inputs = listed(graph.operator["inputs"])
    return (
        len(inputs) > 1 and graph.type(inputs[0]) == "FLOAT32" and inputs[1] >= 0 and graph.type(inputs[1]) in ("INT8", "UINT8")
    )


def _first_version(hybrid: bool, graph: EditedGraph) -> bool:
    if _is_hybrid(graph) is not hybrid:
        return False
    code = graph.model["operator_codes"][graph.operator["opcode_index"]]
    if (code.get("version") or 1) == 1:
        return False
    graph.model["operator_codes"].append({**code, "version": 1})
    graph.placed.append({**graph.operator, "opcode_index": len(graph.model["operator_codes"]) - 1})
    return True


def _bias_of_zeros(graph: EditedGraph) -> bool:
    inputs = [int(t) for t in graph.operator["inputs"]]
    if (len(inputs) > 2 and inputs[2] >= 0) or not graph.fixed(inputs[1]):
        return False
    count = graph.shape(inputs[1])[-1 if graph.name == "DEPTHWISE_CONV_2D" else 0]
    type = _BIAS_TYPES.get(graph.type(inputs[0]), "FLOAT32")
    bias = graph.data(np.zeros(count, LETTERS[type]), type, "bias")
    if graph.type(inputs[0]) == "FLOAT32":
        pass
    elif graph.type(inputs[0]) in _BIAS_TYPES and len(graph.scales(inputs[0])) and len(graph.scales(inputs[1])):
        step = np.float32(graph.scales(inputs[0])[0]) * graph.scales(inputs[1])
        graph.quantise(bias, step, np.zeros(len(step), "<i8"))
    else:
        return False
    graph.placed.append({**graph.operator, "inputs": np.asarray([*inputs[:2], bias], "<i4")})
    return True


def _in_fewer_dimensions(graph: EditedGraph) -> bool:
    """A TRANSPOSE between RESHAPEs: dimensions of 1 go, and those that stay side by side become one."""
    order, data = graph.constant(graph.input(1)), graph.input(0)
    shape = graph.shape(data)
    if order is None or not graph.fixed(data, graph.out):
        return False
    groups: list[list[int]] = []
    for axis in (int(a) for a in order if shape[int(a)] > 1):
        between = range(groups[-1][-1] + 1, axis) if groups else ()
        beside = bool(groups) and axis > groups[-1][-1] and all(shape[k] == 1 for k in between)
        groups = [*groups[:-1], [*groups[-1], axis]] if beside else [*groups, [axis]]
    if not 1 < len(groups) < len(shape):
        return False
    ranks = sorted(range(len(groups)), key=lambda k: groups[k][0])
    sizes = [int(np.prod([shape[a] for a in group])) for group in groups]
    few = graph.tensor(data, [sizes[k] for k in ranks], "fewer dimensions")
    transposed = graph.tensor(graph.out, sizes, "fewer dimensions")
    _reshape(graph, data, few)
    order = graph.data(np.asarray([ranks.index(k) for k in range(len(groups))], "<i4"), "INT32", "order")
    graph.placed.append({**graph.operator, "inputs": np.asarray([few, order], "<i4"), "outputs": np.asarray([transposed], "<i4")})
    _reshape(graph, transposed, graph.out)
    return True


def _as_fully_connected(graph: EditedGraph) -> bool:
    """A BATCH_MATMUL by one constant matrix, as FULLY_CONNECTED of rows."""
    data, weights = graph.input(0), graph.input(1)
    matrix, shape, out = graph.values(weights), graph.shape(data), graph.shape(graph.out)
    if matrix is None or graph.type(data) != "FLOAT32" or matrix.dtype != np.float32 or graph.option("adj_x"):
        return False
    if matrix.ndim < 2 or any(d != 1 for d in matrix.shape[:-2]) or not graph.fixed(data, graph.out):
        return False
    matrix = matrix.reshape(matrix.shape[-2:])
    rows = np.ascontiguousarray(matrix if graph.option("adj_y") else matrix.T)
    flat = graph.tensor(data, [int(np.prod(shape[:-1])), shape[-1]], "rows")
    product = graph.tensor(graph.out, [int(np.prod(out[:-1])), len(rows)], "rows")
    _reshape(graph, data, flat)
    inputs = [flat, graph.data(rows, "FLOAT32", "weights"), graph.data(np.zeros(len(rows), "<f4"), "FLOAT32", "bias")]
    graph.place("FULLY_CONNECTED", inputs, [product], fused_activation_function=0, weights_format=0)
    _reshape(graph, product, graph.out)
    return True


def _from_the_front(graph: EditedGraph) -> bool:
    """A STRIDED_SLICE whose dropped dimensions are counted from the end: NNAPI fails to find one element from -1 to 0."""
    data, places = graph.input(0), [graph.constant(t) for t in listed(graph.operator["inputs"])[1:4]]
    begin, end, steps = places
    if begin is None or end is None or steps is None or not graph.fixed(data) or len(begin) != len(graph.shape(data)):
        return False
    dropped = [k for k in range(len(begin)) if int(graph.option("shrink_axis_mask")) >> k & 1]
    shape = graph.shape(data)
    if graph.option("ellipsis_mask") or graph.option("new_axis_mask") or not any(begin[k] < 0 for k in dropped):
        return False
    first, last = [int(n) for n in begin], [int(n) for n in end]
    for k in dropped:
        first[k] %= shape[k]
        last[k] = first[k] + 1
    numbers = [graph.data(np.asarray(v, "<i4"), "INT32", "slice") for v in (first, last)]
    graph.placed.append({**graph.operator, "inputs": np.asarray([data, *numbers, graph.input(3)], "<i4")})
    return True


def _one_scale(graph: EditedGraph) -> bool:
    filter = graph.input(1)
    if len(graph.scales(filter)) < 2 or graph.values(filter) is None:
        return False
    one_scale(graph)
    return True


def _bias_written_out(graph: EditedGraph) -> bool:
    """A bias of one element for all channels, which some converters write and no kernel of TFLite repeats."""
    inputs, place = listed(graph.operator["inputs"]), 3 if graph.name == "TRANSPOSE_CONV" else 2
    stored = graph.values(inputs[place]) if place < len(inputs) and inputs[place] >= 0 else None
    count = graph.shape(inputs[1])[-1 if graph.name == "DEPTHWISE_CONV_2D" else 0]
    if stored is None or stored.size != 1 or count == 1 or len(graph.scales(inputs[place])) > 1:
        return False
    bias = graph.data(np.repeat(stored.reshape(1), count), graph.type(inputs[place]), "bias")
    if len(scales := graph.scales(inputs[place])):
        graph.quantise(bias, scales, [graph.zero_point(inputs[place])])
    inputs[place] = bias
    graph.placed.append({**graph.operator, "inputs": np.asarray(inputs, "<i4")})
    return True


def _eight_bits(graph: EditedGraph) -> bool:
    """Weights of 4 bits in 8: the same numbers, of a type that NNAPI has."""
    inputs = listed(graph.operator["inputs"])
    raw = graph.raw(inputs[1])
    if graph.type(inputs[1]) != "INT4" or raw is None or not len(raw):
        return False
    old = graph.subgraph["tensors"][inputs[1]]
    quantisation = old.get("quantization") or {}
    if quantisation.get("details") is not None or old.get("sparsity") is not None or not len(graph.scales(inputs[1])):
        return False
    steps = unpacked(memoryview(raw), graph.shape(inputs[1]), 4)
    inputs[1] = graph.data(steps, "INT8", "8 bits")
    graph.subgraph["tensors"][inputs[1]]["quantization"] = quantisation
    graph.placed.append({**graph.operator, "inputs": np.asarray(inputs, "<i4")})
    return True


def _in_float(graph: EditedGraph) -> bool:
    """Weights whose blocks of a row have a scale each, as the numbers that they stand for: NNAPI has no such type."""
    inputs = listed(graph.operator["inputs"])
    old = graph.subgraph["tensors"][inputs[1]]
    details = (old.get("quantization") or {}).get("details") or {}
    raw, bits = graph.raw(inputs[1]), {"INT4": 4, "INT8": 8}.get(graph.type(inputs[1]))
    if "block_size" not in details or raw is None or bits is None or graph.type(inputs[0]) != "FLOAT32":
        return False
    steps = unpacked(memoryview(raw), graph.shape(inputs[1]), 4) if bits == 4 else raw.view("i1")
    stored = graph.raw(details["scales"])
    if stored is None:
        return False
    scales = stored.view("<f2" if graph.type(details["scales"]) == "FLOAT16" else "<f4").astype("<f4")
    real = steps.reshape(-1, details["block_size"]).astype("<f4") * scales.reshape(-1, 1)
    inputs[1] = graph.data(real.reshape(graph.shape(inputs[1])), "FLOAT32", "real numbers")
    # Versions after the fifth, which has keep_num_dims, are those of types.
    code = graph.model["operator_codes"][graph.operator["opcode_index"]]
    graph.model["operator_codes"].append({**code, "version": 5 if graph.option("keep_num_dims") else 1})
    changed = {"opcode_index": len(graph.model["operator_codes"]) - 1, "inputs": np.asarray(inputs, "<i4")}
    graph.placed.append({**graph.operator, **changed})
    return True


_FUSING = ("ADD", "SUB", "MUL", "DIV", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "AVERAGE_POOL_2D", "MAX_POOL_2D")
_ELEMENTWISE: tuple[str, ...] = ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "ABS", "NEG", "EXP", "LOG", "SQRT", "RSQRT")
_ELEMENTWISE += ("SIN", "FLOOR", "RELU", "RELU6", "RELU_N1_TO_1", "LOGISTIC", "TANH", "ELU", "HARD_SWISH")
_ELEMENTWISE += ("QUANTIZE", "DEQUANTIZE", "CAST", "SOFTMAX", "LOG_SOFTMAX")
_BIASED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
_BIAS_TYPES = {"INT8": "INT32", "UINT8": "INT32", "INT16": "INT64"}
"""Type of the activations → that of a quantised bias."""
_VERSIONS = "no option of tf.lite.TFLiteConverter, which writes the lowest version that the operator's form needs"
UNROLLED = "unroll=True of the Keras layer, with a fixed number of time steps; in PyTorch a loop over the steps"
REWRITES = (
    Rewrite(
        (*_FUSING, "CONCATENATION", "L2_NORMALIZATION"),
        "its fused activation as a separate operator",
        _activation_apart,
        "no option of tf.lite.TFLiteConverter, which fuses activations wherever an operator can have one",
    ),
    Rewrite(
        _ELEMENTWISE,
        "the same in four dimensions, between RESHAPEs",
        _in_four_dimensions,
        "in the model: tf.reshape to four dimensions before the operator, and back after it",
    ),
    Rewrite(
        engine_edits.ELEMENTWISE,
        "both inputs in four dimensions, between RESHAPEs",
        engine_edits.in_rank_4,
        "in the model: tf.reshape of both inputs to four dimensions, and of the result back",
    ),
    Rewrite(
        engine_edits.PADDING,
        "padding in four dimensions, between RESHAPEs",
        engine_edits.padded_in_rank_4,
        "in the model: tf.reshape to four dimensions before tf.pad, and back after it",
    ),
    Rewrite(
        engine_edits.ALONG_AXES,
        "the same axis of four dimensions, between RESHAPEs",
        engine_edits.axes_in_rank_4,
        "in the model: tf.reshape to four dimensions before the operator, and back after it",
    ),
    Rewrite(
        ("REVERSE_V2",),
        "a last dimension of 1 more, between RESHAPEs",
        engine_edits.reversed_before_one,
        "in the model: tf.reshape with a last dimension of 1 before tf.reverse, and back after it",
    ),
    Rewrite(
        ("DEPTH_TO_SPACE", "SPACE_TO_DEPTH"),
        "one image of all rows, between RESHAPEs",
        engine_edits.batches_as_rows,
        "in the model: tf.reshape of the batch into the rows before the operator, and back after it",
    ),
    Rewrite(("CONCATENATION",), "RESHAPE of its only part", engine_edits.one_part, "in the model: no tf.concat of one tensor"),
    Rewrite(
        engine_edits.MERGED,
        "a copy of it as the file's output",
        engine_edits.output_copied,
        "in the model: tf.identity is removed by the converter; tf.reshape to the same dimensions is not",
        by_itself=False,
    ),
    Rewrite(
        ("DEQUANTIZE",),
        "float32 numbers as a constant",
        engine_edits.dequantised_constant,
        "no quantisation of these weights (converter.optimizations)",
        by_itself=False,
    ),
    Rewrite(
        ("FULLY_CONNECTED",),
        "rows by a RESHAPE before it",
        engine_edits.flattened_rows,
        "in the model: tf.reshape or a Flatten layer before the Dense layer",
    ),
    Rewrite(
        ("BATCH_MATMUL",),
        "the transposed product, with the constant on the right",
        engine_edits.constant_right,
        "in the model: tf.transpose(tf.matmul(b, a, transpose_a=True, transpose_b=True)) in place of tf.matmul(a, b)",
        Answers.ROUND,
    ),
    Rewrite(("SPLIT",), "a STRIDED_SLICE for each part", _split_as_slices, "in the model: x[..., a:b] for each part of tf.split"),
    Rewrite(
        ("UNPACK",),
        "a STRIDED_SLICE and a RESHAPE for each part",
        _unpack_as_slices,
        "in the model: x[:, i] in place of tf.unstack",
    ),
    Rewrite(
        ("PACK",),
        "RESHAPEs, then CONCATENATION",
        _pack_as_concatenation,
        "in the model: tf.concat of tensors with one more dimension in place of tf.stack",
    ),
    Rewrite(
        ("SQUEEZE", "EXPAND_DIMS"),
        "RESHAPE to the output's dimensions",
        _as_reshape,
        "in the model: tf.reshape in place of tf.squeeze or tf.expand_dims",
    ),
    Rewrite(("SLICE",), "STRIDED_SLICE with steps of 1", _slice_as_strided, "in the model: x[a:b] in place of tf.slice"),
    Rewrite(
        ("SQUARE",),
        "MUL of the tensor with itself",
        _square_as_product,
        "no option: TensorFlow's graph optimiser makes a square of x * x (ReplaceMulWithSquare)",
    ),
    Rewrite(
        ("SQUARED_DIFFERENCE",),
        "SUB, then MUL of the difference with itself",
        _difference_then_product,
        "in the model: a subtraction and a product in place of tf.math.squared_difference",
    ),
    Rewrite(
        ("LEAKY_RELU",),
        "PRELU with its alpha as a constant",
        _leaky_as_prelu,
        "in the model: tf.keras.layers.PReLU with shared_axes, its alpha not trained",
    ),
    Rewrite(
        ("TRANSPOSE",),
        "TRANSPOSE of fewer dimensions, between RESHAPEs",
        _in_fewer_dimensions,
        "in the model: tf.reshape before and after tf.transpose, so that it has at most four dimensions",
    ),
    Rewrite(_BIASED, "a bias of zeros", _bias_of_zeros, "in the model: use_bias=True of the Keras layer, bias=True in PyTorch"),
    Rewrite(
        (*_BIASED, "TRANSPOSE_CONV"),
        "a bias for each output channel in place of one for all",
        _bias_written_out,
        "in the model: a bias with as many elements as there are output channels, such as the layer's own (use_bias=True)",
    ),
    Rewrite(
        _BIASED,
        "weights of 8 bits in place of 4",
        _eight_bits,
        "num_bits=8 in the TensorQuantizationConfig of the weights (ai-edge-quantizer)",
    ),
    Rewrite(
        ("FULLY_CONNECTED",),
        "weights in float32 in place of integers by blocks",
        _in_float,
        "TensorQuantizationConfig of the weights (ai-edge-quantizer): granularity=QuantGranularity.CHANNELWISE and num_bits=8; "
        "or no quantisation",
        Answers.CHANGE,
    ),
    Rewrite(("WHILE",), "its body for each step", unroll, UNROLLED, Answers.ROUND),
    Rewrite(
        ("IF",),
        "the branch that its condition, which never changes, chooses",
        branch,
        "a condition of Python in place of tf.cond, torch.cond or jax.lax.cond",
    ),
    Rewrite(
        ("STABLEHLO_COMPOSITE",),
        "its decomposition",
        decomposition,
        "no composite around the function: litert_torch's and jax's composites are for delegates that have them as one operator",
    ),
    Rewrite(
        SEQUENCES,
        "operators for each step, from zero states in every run",
        write_out,
        f"{UNROLLED}; a stateful layer has its states as inputs and outputs then",
        Answers.CHANGE,
    ),
    Rewrite(
        INTEGER_LAYERS,
        "the layer in float32, between DEQUANTIZE and QUANTIZE",
        in_float,
        "tf.lite.experimental.QuantizationDebugOptions(denylisted_ops=[...]), then get_nondebug_quantized_model(); in "
        "ai-edge-quantizer a recipe without the layer",
        Answers.CHANGE,
    ),
    Rewrite(
        ("STRIDED_SLICE",),
        "STRIDED_SLICE from an index counted from the front",
        _from_the_front,
        "in the model: x[:, n - 1] in place of x[:, -1]",
    ),
    Rewrite(
        ("BATCH_MATMUL",),
        "FULLY_CONNECTED of rows, between RESHAPEs",
        _as_fully_connected,
        "in the model: tf.keras.layers.Dense, or tf.matmul of a tensor of two dimensions, by the constant matrix",
        Answers.ROUND,
    ),
    Rewrite(
        ("FULLY_CONNECTED",),
        "one scale for the filter",
        _one_scale,
        "converter._experimental_disable_per_channel_quantization_for_dense_layers = True",
        Answers.CHANGE,
    ),
    Rewrite(
        (),
        "the operator's first version",
        partial(_first_version, False),
        _VERSIONS,
    ),
    Rewrite(
        _BIASED,
        "its first version, of float activations and 8-bit weights",
        partial(_first_version, True),
        _VERSIONS,
        Answers.ROUND,
    ),
)


def edits(model: Table, file: TfliteFile, shapes: Shapes) -> Iterator[Edit]:
    """Every rewrite that applies to an operator of a file, given its tables, then those of the whole file.

    ``shapes``: of inputs, for the edit that states all dimensions.
    """
    path = file.path
    for number, subgraph in enumerate(model["subgraphs"]):
        for index, operator in enumerate(subgraph["operators"]):
            name = operator_name(model, operator)
            for rewrite in REWRITES:
                if name not in rewrite.operators and rewrite.operators:
                    continue
                changed = _replaced(model, number, index, rewrite)
                if changed is not None:
                    content = partial(written, changed, path)
                    single = partial(_alone, model, number, index, rewrite) if rewrite.by_itself else None
                    several, label = partial(_several, model, path, rewrite), operator_label(model, operator)
                    yield Edit(number, index, label, rewrite.text, content, rewrite.answers, single, rewrite.converter, several)
    yield from _dimensions(model, file, shapes)
    if any(_amended(model["subgraphs"][0]["tensors"])):
        yield Edit(0, WHOLE, "", AXES, partial(_with_axes, model, path), Answers.SAME, converter=_AXES_THERE)
    for retyping in RETYPINGS:
        if retyping.applies(model):
            content = partial(_retyped, retyping, model, path)
            yield Edit(0, WHOLE, "", retyping.text, content, retyping.answers, converter=retyping.converter)


AXES = "scales along a dimension that their tensor has, and a zero point for each"
_AXES_THERE = "a newer tf.lite.TFLiteConverter, which states a dimension that the tensor has for each bias"


def _amended(tensors: Sequence[Table]) -> Iterator[tuple[int, Table]]:
    """Tensors whose quantisation TFLite does not load though TFLite Micro does, with one that both load."""
    for index, tensor in enumerate(tensors):
        found = tensor.get("quantization") or {}
        scales, points, shape = (
            [] if v is None else v for v in (found.get("scale"), found.get("zero_point"), tensor.get("shape"))
        )
        axis = found.get("quantized_dimension") or 0
        if len(scales) and (axis >= max(len(shape), 1) or len(points) == 1 < len(scales)):
            zeros = np.repeat(np.asarray(points, "<i8"), len(scales)) if len(points) == 1 else points
            amended = {**found, "quantized_dimension": min(axis, max(len(shape) - 1, 0)), "zero_point": zeros}
            yield index, {**tensor, "quantization": amended}


def _with_axes(model: Table, path: Path) -> Content:
    graphs = [{**graph, "tensors": list(graph["tensors"])} for graph in model["subgraphs"]]
    for graph in graphs:
        for index, tensor in _amended(graph["tensors"]):
            graph["tensors"][index] = tensor
    return written({**model, "subgraphs": graphs}, path)


FIXED = "numbers computed from dimensions as constants"
"""The edit that states every dimension, in words; before it the dimensions of inputs that the file leaves open."""
_FIXED_THERE = (
    "tf.function(input_signature=[tf.TensorSpec([1, …])]) or tf.keras.Input(batch_size=1) before TFLiteConverter; "
    "in litert_torch.convert no dynamic_shapes"
)


def _dimensions(model: Table, file: TfliteFile, shapes: Shapes) -> Iterator[Edit]:
    try:
        found = stated(file, shapes) if computes_dimensions(file.graph) else None
    except ConversionError:
        return  # a graph whose dimensions nnbridge does not infer
    if found is not None and (found.shapes or found.folded):
        inputs = ", ".join(f"{name}={','.join(map(str, dims))}" for name, dims in found.shapes.items())
        text = " and ".join([f"inputs of only these dimensions ({inputs})"] * bool(inputs) + [FIXED] * bool(found.folded))
        yield Edit(0, WHOLE, "", text, partial(_with_dimensions, found, None, model, file.path), converter=_FIXED_THERE)
        # NPUs that take only 8 bits, and only stated dimensions, accept nothing after one of the two.
        for one in RETYPINGS if found.shapes else ():
            if one.applies(model):
                content = partial(_with_dimensions, found, one, model, file.path)
                both = f"{_FIXED_THERE}; {one.converter}"
                yield Edit(0, WHOLE, "", f"{text}; {one.text}", content, one.answers, converter=both)


def _with_dimensions(found: StatedDimensions, retyping: Retyping | None, model: Table, path: Path) -> Content:
    changed = found.applied(model)
    return written(changed if retyping is None else retyping.applied(changed), path)


def _replaced(model: Table, subgraph: int, index: int, rewrite: Rewrite) -> Table | None:
    graph = EditedGraph.fork(model, subgraph, index)
    if not rewrite.replace(graph):
        return None
    graph.finish(index)
    return graph.model if len(graph.model["subgraphs"]) == 1 else without_unread_bodies(graph.model, model)


def _several(model: Table, path: Path, rewrite: Rewrite, keys: Sequence[Key]) -> Content:
    """The file with several operators replaced, the last first: the others keep their indexes."""
    for key in sorted(keys, reverse=True):
        changed = _replaced(model, *key, rewrite)
        assert changed is not None, "an edit that applied"
        model = changed
    return written(model, path)


def _alone(model: Table, subgraph: int, index: int, rewrite: Rewrite) -> Content:
    changed = _replaced(alone(model, subgraph, index), 0, 0, rewrite)
    assert changed is not None, "an edit that applied"
    return written(changed)


def _retyped(retyping: Retyping, model: Table, path: Path) -> Content:
    return written(retyping.applied(model), path)

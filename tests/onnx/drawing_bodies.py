"""Bodies, functions, values without elements, small types, quantisation in blocks, sequences and text, drawn at random."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.onnx.drawing import I8, I32, I64, U8, B, Case, F, H, draws


def _chain(case: Case, x: str, outer: str, count: int, prefix: str) -> tuple[list[Any], str]:
    """Nodes of a body: from a value, and one from outside, to a value of the same shape."""
    nodes: list[Any] = []
    for i in range(count):
        kind, name = case.pick("Relu", "Sigmoid", "Neg", "Add", "Mul", "Sub", "Max", "Softmax", "Identity"), f"{prefix}{i}"
        pair = [x, outer] if case.chance(0.7) else [outer, x]
        options = {"axis": -1} if kind == "Softmax" else {}
        nodes.append(helper.make_node(kind, pair if kind in ("Add", "Mul", "Sub", "Max") else [x], [name], **options))
        x = name
    return nodes, x


def _described(name: str, type: int, shape: Any) -> Any:
    return helper.make_tensor_value_info(name, type, shape)


@draws("If body")
def branches(case: Case) -> None:
    case.opset = case.pick(11, 13, 16, 19, 21)
    shape = case.dims(1, 3)
    x, y = case.data(shape), case.value(case.values(shape))
    graphs = []
    for side in ("then", "else"):
        nodes, last = _chain(case, x, y, case.whole(1, 3), side)
        stated = case.pick(list(shape), [None] * len(shape), None)
        inner = [numpy_helper.from_array(case.values(shape), f"{side} constant")] if case.chance(0.3) else []
        if inner:
            nodes.append(helper.make_node("Add", [last, f"{side} constant"], [f"{side} last"]))
            last = f"{side} last"
        graphs.append(helper.make_graph(nodes, side, [], [_described(last, TensorProto.FLOAT, stated)], inner))
    condition = case.value(np.asarray(case.chance(0.5)) if case.chance(0.5) else np.array([case.chance(0.5)]))
    case.node([condition], operator="If", then_branch=graphs[0], else_branch=graphs[1])


@draws("Loop body")
def loops(case: Case) -> None:
    case.opset = case.pick(11, 13, 16, 19, 21)
    shape = case.dims(1, 3)
    x, outer = case.data(shape), case.value(case.values(shape))
    scanned, counted = case.chance(0.5), case.chance(0.6)
    nodes, last = _chain(case, "state", outer, case.whole(1, 3), "b")
    if case.chance(0.3):
        nodes += [helper.make_node("Cast", ["i"], ["real"], to=TensorProto.FLOAT), helper.make_node("Add", [last, "real"], ["t"])]
        last = "t"
    limit = case.whole(0, 4)
    if counted:
        nodes.append(helper.make_node("Identity", ["going"], ["more"]))
    else:
        nodes += [
            helper.make_node("Constant", [], ["limit"], value=numpy_helper.from_array(np.int64(limit))),
            helper.make_node("Less", ["i", "limit"], ["more"]),
        ]
    outputs = [_described("more", TensorProto.BOOL, []), _described(last, TensorProto.FLOAT, list(shape))]
    if scanned:
        nodes.append(helper.make_node("Neg", ["state"], ["row"]))
        outputs.append(_described("row", TensorProto.FLOAT, list(shape)))
    inputs = [_described("i", TensorProto.INT64, []), _described("going", TensorProto.BOOL, [])]
    body = helper.make_graph(nodes, "body", [*inputs, _described("state", TensorProto.FLOAT, list(shape))], outputs)
    trips = case.value(np.int64(case.whole(int(scanned), 4))) if counted or case.chance(0.3) else ""
    going = case.value(np.asarray(case.chance(0.9))) if case.chance(0.5) or not trips else ""
    case.node([trips, going, x], 1 + scanned, operator="Loop", body=body)


@draws("Scan body")
def scans(case: Case) -> None:
    case.opset = case.pick(9, 11, 16, 19)
    inner, rows = case.dims(1, 2, 4), case.whole(1, 4)
    axis = case.whole(0, len(inner)) if case.chance(0.4) else 0
    start = case.value(case.values(inner))
    xs = case.data((*inner[:axis], rows, *inner[axis:]))
    nodes, last = _chain(case, "state", "x", case.whole(1, 3), "b")
    nodes.append(helper.make_node(case.pick("Neg", "Relu", "Identity"), [last], ["row"]))
    dims = list(inner)
    body = helper.make_graph(
        nodes,
        "body",
        [_described(n, TensorProto.FLOAT, dims) for n in ("state", "x")],
        [_described(n, TensorProto.FLOAT, dims) for n in (last, "row")],
    )
    options: dict[str, Any] = {"num_scan_inputs": 1, "scan_input_axes": [axis] if axis or case.chance(0.3) else None}
    options["scan_input_directions"] = case.maybe([case.whole(0, 1)])
    options["scan_output_directions"] = case.maybe([case.whole(0, 1)])
    case.node([start, xs], 2, operator="Scan", body=body, **options)


IMAGES: dict[str, tuple[tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    "Conv": (((3, 2, 3, 3), (3,)), {}), "ConvTranspose": (((2, 3, 3, 3), (3,)), {}), "MaxPool": ((), {"kernel_shape": [2, 2]}),
    "AveragePool": ((), {"kernel_shape": [2, 2]}), "GlobalAveragePool": ((), {}), "GlobalMaxPool": ((), {}),
    "LpPool": ((), {"kernel_shape": [2, 2]}), "BatchNormalization": (((2,),) * 4, {}),
    "InstanceNormalization": (((2,), (2,)), {}),
    "DepthToSpace": ((), {"blocksize": 1}), "SpaceToDepth": ((), {"blocksize": 2}), "LRN": ((), {"size": 1}),
    "LayerNormalization": (((4,), (4,)), {}), "LogSoftmax": ((), {"axis": 1}), "Hardmax": ((), {"axis": 1}),
    "PRelu": (((2, 1, 1),), {}), "Einsum": ((), {"equation": "abcd->abc"}), "Trilu": ((), {}), "Mish": ((), {}), "Gelu": ((), {}),
    "GlobalLpPool": ((), {}), "MeanVarianceNormalization": ((), {}), "ReduceSumSquare": ((), {}), "Elu": ((), {}),
    "HardSwish": ((), {}),
}  # fmt: skip
"""Operators on images of which there is none: shapes of further inputs, attributes."""
EMPTY = (
    "Relu", "Neg", "Sigmoid", "Add", "Mul", "Equal", "Where", "Concat", "Transpose", "Reshape", "ReduceSum", "ReduceMax",
    "ReduceMean", "MatMul", "Gather", "Slice", "Expand", "Tile", "Cast", "Softmax", "Squeeze", "Unsqueeze", "Shape", "Split",
    "Pad", "CumSum", "NonZero", "Flatten", "ArgMax", "TopK", "ScatterND", "GatherND", "Unique", "Compress", *IMAGES,
)  # fmt: skip


@draws(*(f"empty {name}" for name in EMPTY))
def empties(case: Case) -> None:
    name = case.operator.split()[1]
    case.opset = case.pick(13, 16, 19, 21)
    if name in IMAGES:
        shapes, options = IMAGES[name]
        case.opset = max(case.opset, 20 if name == "Gelu" else 18 if name == "Mish" else 0)
        images = case.data((0, 2, 4, 4))
        further = [case.value(np.abs(case.values(s)) + np.float32(0.1), True) for s in shapes]
        case.node([images, *further], operator=name, **options)
        return
    shape = list(case.dims(2, 4, 3))
    hole = case.whole(0, len(shape) - 1)
    shape[hole] = 0
    x = case.data(shape, case.pick(F, F, F, H, I32, I64, U8) if name not in ("Softmax", "Sigmoid", "Conv", "MatMul") else F)
    type, other = str(case.feeds[x].dtype), (hole + 1) % len(shape)
    inputs, options, count = [x], {}, 1
    if name in ("Add", "Mul", "Equal"):
        inputs.append(case.value(case.values([1 if case.chance(0.3) else d for d in shape], type)))
    elif name == "Where":
        inputs = [case.value(case.values(shape, B)), x, case.value(case.values([1], type))]
    elif name == "Concat":
        full = case.values([2 if i == hole else d for i, d in enumerate(shape)], type)
        inputs, options = [x, case.value(full)], {"axis": hole}
    elif name == "Reshape":
        inputs.append(case.parameter([0, -1] if shape[0] else [3, 0], I64))
        options = {"allowzero": 1} if not shape[0] and case.opset >= 14 else {}
    elif name.startswith("Reduce"):
        if name == "ReduceSum":
            inputs.append(case.parameter([other]))
        else:
            options = {"axes": [other]} if case.opset < 18 else {}
            inputs += [case.parameter([other])] if case.opset >= 18 else []
        options["keepdims"] = case.whole(0, 1)
    elif name == "MatMul":
        inputs.append(case.value(case.values((shape[-1], 2))))
    elif name == "Gather":
        inputs, options = [x, case.value(case.rng.integers(0, shape[other], (2,)))], {"axis": other}
    elif name == "Slice":
        inputs += [case.parameter([0]), case.parameter([5]), case.parameter([hole])]
    elif name == "Expand":
        inputs.append(case.parameter([2, *shape]))
    elif name == "Tile":
        inputs.append(case.parameter([2] * len(shape)))
    elif name == "Cast":
        options = {"to": case.pick(TensorProto.FLOAT, TensorProto.INT64, TensorProto.FLOAT16)}
    elif name in ("Softmax", "ArgMax"):
        options = {"axis": other}
    elif name == "Unsqueeze":
        inputs.append(case.parameter([0]))
    elif name == "Split":
        inputs, options, count = [x, case.parameter([1, shape[other] - 1])], {"axis": other}, 2
    elif name == "Pad":
        inputs.append(case.parameter([1] * (2 * len(shape))))
    elif name == "CumSum":
        inputs.append(case.parameter(case.pick(hole, other)))
    elif name == "TopK":
        inputs, options, count = [x, case.parameter([1])], {"axis": other}, 2
    elif name == "ScatterND":
        case.feeds.clear()
        inputs = [case.data((3, 2), type), case.value(np.zeros((0, 1), np.int64)), case.value(np.zeros((0, 2), type))]
    elif name == "GatherND":
        case.feeds.clear()
        inputs = [case.data((3, 2)), case.value(np.zeros((0, 1), np.int64))]
    elif name == "Compress":
        inputs, options = [x, case.value(np.zeros(shape[other], bool))], {"axis": other}
    case.node(inputs, count, operator=name, **options)


SMALL = ("int4", "uint4", "int16", "uint16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", I8, U8)


def _small(name: str) -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name)) if name not in ("int16", "uint16", I8, U8) else np.dtype(name)


@draws("small Quantize", "small Dequantize", "small round trip")
def small_types(case: Case) -> None:
    """Scales for each element of an axis, or for blocks of it."""
    kind = case.operator.split()[1]
    name = case.pick(*SMALL)
    dtype, case.opset, case.quantised = _small(name), case.pick(21, 23), name in (I8, U8)
    shape = [case.whole(1, 3), case.pick(2, 4, 6), case.whole(1, 3)]
    axis, way = 1, case.pick("tensor", "axis", "block")
    size = {"tensor": [], "axis": [shape[1]], "block": [shape[0], shape[1] // 2, shape[2]]}[way]
    # Powers of two: quotients are exact, and ties are met.
    scale = np.asarray(2.0 ** case.rng.integers(-4, 2, size), F)
    number = case.rng.integers(0 if name.startswith("uint") else -3, 4, size)
    zero = np.zeros(size, dtype) if "float" in name else np.asarray(number).astype(dtype)
    options = {"axis": case.pick(axis, axis - 3), "block_size": 2 if way == "block" else None}
    scales, zeros = case.value(scale, not case.chance(0.2)), case.value(zero, True)
    if kind == "Dequantize":
        values = np.asarray(case.rng.integers(-8 if not name.startswith("uint") else 0, 8, shape)).astype(dtype)
        case.node([case.value(values, True), scales, zeros], operator="DequantizeLinear", **options)
        add = case.data(shape)
        case.node([case.outputs[0], add], operator="Add")
        return
    # 8-bit values beside a half: NNAPI rounds halves away from zero where ONNX rounds them to even.
    values = np.round(case.values(shape) * 8) / np.float32(8) + np.float32(0.003 if case.quantised else 0)
    (made,) = case.node([case.value(values, False), scales, zeros], operator="QuantizeLinear", **options)
    if kind == "round" or name not in ("int16", "uint16", I8, U8):
        case.node([made, scales, zeros], operator="DequantizeLinear", **options)


@draws("function")
def functions(case: Case) -> None:
    """Functions of the file's own, one within the other."""
    case.opset = case.pick(13, 16, 19)
    shape = case.dims(1, 3)
    x, y = case.data(shape), case.value(case.values(shape))
    nodes, last = _chain(case, "a", "b", case.whole(1, 3), "f")
    opsets = [helper.make_opsetid("", case.opset), helper.make_opsetid("own", 1)]
    case.functions = [helper.make_function("own", "Inner", ["a", "b"], [last], nodes, opsets)]
    nodes, last = _chain(case, "p", "q", case.whole(1, 2), "g")
    call = helper.make_node("Inner", [last, "q"], ["r"], domain="own")
    case.functions.append(helper.make_function("own", "Outer", ["p", "q"], ["r"], [*nodes, call], opsets))
    case.node([x, y], operator=case.pick("Inner", "Outer"), domain="own")
    if case.chance(0.5):
        case.node([case.outputs[0], y], operator=case.pick("Inner", "Outer"), domain="own")


@draws("own Normalization")
def own_normalisations(case: Case) -> None:
    """Those that ONNX Runtime's optimiser writes into ONNX's own domain."""
    simple = case.chance(0.5)
    case.opset = case.pick(11, 13, 15, 19) if simple else case.pick(11, 13, 14, 16)
    shape, type = case.dims(2, 3), case.pick(F, F, H)
    axis = case.pick(-1, len(shape) - 1)
    rows = [case.value(case.values(shape[-1:], type)) for _ in range(1 if simple or case.chance(0.5) else 2)]
    name = "SimplifiedLayerNormalization" if simple else "LayerNormalization"
    case.node([case.data(shape, type), *rows], operator=name, axis=case.maybe(axis), epsilon=case.maybe(1e-3))


@draws("text")
def text(case: Case) -> None:
    """A text that becomes numbers again."""
    case.opset = case.pick(20, 21)
    words = np.array(["a", "b", "ab", "", "ba b", "é"], object)
    shape = case.dims(1, 2)
    left, right = (words[case.rng.integers(0, len(words), shape)] for _ in range(2))
    x = case.data(shape)
    (joined,) = case.node([case.value(left, True), case.value(right, True)], operator="StringConcat")
    (same,) = case.node([joined, case.value(np.asarray(case.pick("ab", "", "aa"), object), True)], operator="Equal")
    case.node([same, x, case.value(np.float32(0), True)], operator="Where")


@draws("sequence")
def sequences(case: Case) -> None:
    case.opset = case.pick(11, 13, 17, 21)
    shape = case.dims(1, 3)
    parts = [case.value(case.values(shape), None if i else False) for i in range(case.whole(1, 4))]
    (made,) = case.node(parts, operator="SequenceConstruct")
    if case.chance(0.4):
        (made,) = case.node([made, parts[0], *([case.value(np.int64(0))] if case.chance(0.5) else [])], operator="SequenceInsert")
    if case.chance(0.3):
        (made,) = case.node([made, case.parameter(-1)], operator="SequenceErase") if len(parts) > 1 else [made]
    way = case.pick("concat", "stack", "at", "length")
    if way == "at":
        case.node([made, case.value(np.int64(0))], operator="SequenceAt")
    elif way == "length":
        case.node([made], operator="SequenceLength")
    else:
        case.node([made], operator="ConcatFromSequence", axis=0, new_axis=1 if way == "stack" else None)


LIES = ("Relu", "Reshape", "Concat", "MatMul", "Transpose", "ReduceSum", "OneHot", "Slice", "NonZero", "Tile")


@draws(*(f"declared {name}" for name in LIES))
def declarations(case: Case) -> None:
    """Values on the way are described: as they are, as open, or as something that computed sizes contradict."""
    name = case.operator.split()[1]
    case.opset = case.pick(13, 17, 21)
    shape = case.dims(2, 3)
    x = case.data(shape)
    (y,) = case.node([x], operator="Neg")
    inputs = {
        "Reshape": [y, case.parameter([-1, shape[-1]])], "Concat": [y, y], "MatMul": [y, case.value(case.values((shape[-1], 2)))],
        "ReduceSum": [y, case.parameter([0])], "Slice": [y, *(case.parameter([n]) for n in (0, 1, 0))],
        "Tile": [y, case.parameter([2] * len(shape))],
    }.get(name, [y])  # fmt: skip
    if name == "OneHot":
        inputs = [case.value(case.rng.integers(0, 3, shape)), case.parameter(4), case.value(case.values((2,)))]
    (z,) = case.node(inputs, operator=name, **({"axis": 0} if name == "Concat" else {}))
    rank = {"MatMul": len(shape), "Reshape": 2}.get(name, len(shape))
    stated = [case.pick(None, 1, 2, "n", 7) for _ in range(rank)]
    if case.chance(0.5):
        case.stated.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, [case.pick(d, None) for d in shape]))
    elif name not in ("OneHot", "NonZero"):
        case.stated.append(helper.make_tensor_value_info(z, TensorProto.FLOAT, stated))
    if name != "NonZero":
        case.node([z], operator="Abs")

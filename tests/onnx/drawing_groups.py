"""Attention, losses, quantisation, ONNX Runtime's own operators, and chains, drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.onnx.drawing import I8, MICROSOFT, U8, B, Case, F, H, draws


@draws("Attention", "RotaryEmbedding")
def attention(case: Case) -> None:
    type, heads, width = case.pick(F, F, F, H), case.pick(2, 4), case.pick(2, 4)
    batch, queries, keys = case.whole(1, 2), case.whole(1, 4), case.whole(1, 5)
    if case.operator == "RotaryEmbedding":
        flat = case.chance(0.3)
        x = case.data((batch, queries, heads * width) if flat else (batch, heads, queries, width), type)
        tables = [case.value(case.values((8, width // 2), type)) for _ in range(2)]
        places = case.value(case.rng.integers(0, 8, (batch, queries)))
        case.node([x, *tables, places], interleaved=case.maybe(case.whole(0, 1)), num_heads=heads if flat else None)
        return
    groups = case.pick(heads, heads, heads // 2)
    flat, wide = case.chance(0.3), case.pick(width, 3)

    def operand(many: int, length: int, size: int) -> str:
        return case.data((batch, length, many * size) if flat else (batch, many, length, size), type)

    inputs = [operand(heads, queries, width), operand(groups, keys, width), operand(groups, keys, wide)]
    past = case.chance(0.2)
    total = keys + (2 if past else 0)
    mask = ""
    if case.chance(0.4):
        shape = case.pick((queries, total), (batch, 1, queries, total), (batch, heads, queries, total))
        array = case.values(shape, case.pick(B, type))
        if array.dtype == bool:
            array[..., 0] = True
        mask = case.value(array)
    inputs.append(mask)
    if past:
        inputs += [case.data((batch, groups, 2, width), type), case.data((batch, groups, 2, wide), type)]
    more: dict[str, Any] = {
        "is_causal": None if past else case.maybe(case.whole(0, 1)),
        "scale": 0.3 if case.chance(0.3) else None,
    }
    more["softcap"] = 2.0 if case.chance(0.2) else None
    if flat:
        more |= {"q_num_heads": heads, "kv_num_heads": groups}
    scores = case.chance(0.25)
    more["qk_matmul_output_mode"] = case.whole(0, 3) if scores else None
    outputs = 4 if scores else 3 if past else 1
    case.node(inputs, outputs, **more)
    if scores and not past:
        node = case.nodes[-1]
        node.output[1] = node.output[2] = ""
        case.outputs = [node.output[0], node.output[3]]


@draws("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def losses(case: Case) -> None:
    batch, classes, more = case.whole(1, 3), case.whole(2, 4), case.dims(0, 2, 3)
    x = case.data((batch, classes, *more), F)
    labels = case.value(case.rng.integers(0, classes, (batch, *more)))
    weights = case.value(np.abs(case.values((classes,), F)) + np.float32(0.1)) if case.chance(0.4) else ""
    case.node([x, labels, weights], reduction=case.maybe(case.pick("none", "sum", "mean")), ignore_index=case.maybe(0))


# -- quantisation ------------------------------------------------------------------------------------------------------------


def step(case: Case) -> np.ndarray:
    return np.float32(case.pick(0.02, 1.0, 0.5, 1 / 3, 10.0 ** case.rng.uniform(-3, 0), 2.0 ** case.whole(-6, 1), 0.999999))


def point(case: Case, type: str) -> np.ndarray:
    low, high = (0, 255) if type == U8 else (-128, 127)
    return np.asarray(case.pick(low, high, (low + high + 1) // 2, case.whole(low, high)), type)


@draws("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
def quantisation(case: Case) -> None:
    case.quantised, type, name = True, case.pick(U8, I8), case.operator
    case.opset = max(case.opset, 10)
    shape = case.dims(1, 4)
    if name == "DynamicQuantizeLinear":
        case.node([case.data(shape)], 3)
        return
    many = case.opset >= 13 and case.chance(0.3)
    axis = case.axis(len(shape))
    steps = np.array([step(case) for _ in range(shape[axis])], F) if many else step(case)
    points = np.array([point(case, type) for _ in range(shape[axis])], type) if many else point(case, type)
    x = case.data(shape, F) if name == "QuantizeLinear" else case.data(shape, type)
    left = name == "QuantizeLinear" and type == I8
    inputs = [x, case.parameter(steps, F), case.value(points, True) if left or case.chance(0.8) else ""]
    if name == "DequantizeLinear" and not inputs[2] and type == I8:
        inputs[2] = case.value(points, True)
    case.node(inputs, axis=axis if many else None)


GROUPED = (
    "Add", "Mul", "Sub", "Relu", "Sigmoid", "Tanh", "Softmax", "LeakyRelu", "MaxPool", "AveragePool", "GlobalAveragePool", "Conv",
    "MatMul", "Gemm", "Concat", "Reshape", "Transpose", "Clip", "Resize", "Pad", "Slice", "ReduceMean", "HardSwish", "Elu",
)  # fmt: skip


@draws(*(f"QDQ {name}" for name in GROUPED))
def group(case: Case) -> None:
    name = case.operator.split()[1]
    case.quantised, case.opset = True, case.pick(13, 14, 17, 19, 21)
    type = case.pick(U8, I8)
    signed = type

    def dequantised(shape: Sequence[int], kind: str = "", constant: bool = False, like: Sequence[str] = ()) -> list[str]:
        kind = kind or signed
        zero = np.asarray(0, kind) if constant and kind == I8 else point(case, kind)
        pair = list(like) or [case.value(step(case), True), case.value(zero, True)]
        return [*case.node([case.value(case.values(shape, kind), constant), *pair], operator="DequantizeLinear"), *pair]

    shape = (case.whole(1, 2), case.whole(1, 4), case.whole(2, 5), case.whole(2, 5))
    x, *pair = dequantised(shape)
    out: list[str] = []
    if name in ("Add", "Mul", "Sub"):
        other = tuple(1 if case.chance(0.3) else d for d in shape)
        y, *_ = dequantised(other, constant=case.chance(0.3))
        (y,) = case.node([x, y], operator=name)
    elif name == "Concat":
        more = [dequantised(shape, like=pair if case.chance(0.5) else ())[0] for _ in range(case.whole(1, 2))]
        (y,) = case.node([x, *more], operator=name, axis=case.axis(4))
    elif name == "Conv":
        many = case.whole(1, 3)
        w, *_ = dequantised((many, shape[1], case.whole(1, 2), case.whole(1, 2)), case.pick(signed, I8), True)
        (y,) = case.node([x, w], operator=name, pads=[case.whole(0, 1)] * 4)
    elif name in ("MatMul", "Gemm"):
        if name == "Gemm":
            case.__init__(case.rng, case.operator, case.opset)  # type: ignore[misc]  # drawn anew, with inputs of rank 2
            case.quantised = True
            x, *pair = dequantised(shape[2:])
        w, *_ = dequantised((shape[3], case.whole(1, 4)), case.pick(signed, I8), case.chance(0.8))
        (y,) = case.node([x, w], operator=name)
    elif name == "Reshape":
        (y,) = case.node([x, case.value(np.array([shape[0], -1]), True)], operator=name)
        out = pair
    elif name in ("Clip", "Pad", "Slice", "Resize"):
        inputs = {
            "Clip": [case.value(np.float32(0), True), case.value(np.float32(6), True)],
            "Pad": [case.value(np.array([0, 0, 1, 1, 0, 0, 0, 2]), True)],
            "Slice": [case.value(np.array([1]), True), case.value(np.array([9]), True), case.value(np.array([2]), True)],
            "Resize": ["", "", case.value(np.array([*shape[:2], case.whole(1, 7), case.whole(1, 7)]), True)],
        }[name]
        more = {"mode": case.pick("nearest", "linear")} if name == "Resize" else {}
        (y,) = case.node([x, *inputs], operator=name, **more)
        out = pair if case.chance(0.6) else []
    else:
        options = {
            "MaxPool": {"kernel_shape": [2, 2]}, "AveragePool": {"kernel_shape": [2, 2]}, "Transpose": {"perm": [0, 2, 3, 1]},
            "ReduceMean": {"axes": [2, 3], "keepdims": case.whole(0, 1)} if case.opset < 18 else {},
        }  # fmt: skip
        (y,) = case.node([x], operator=name, **options.get(name, {}))
        out = pair if name in ("MaxPool", "Transpose") and case.chance(0.8) else []
    out = out or [case.value(step(case), True), case.value(point(case, signed), True)]
    if name in ("Sigmoid", "Softmax") and case.chance(0.6):
        out = [case.value(np.float32(1 / 256), True), case.value(np.asarray(0 if signed == U8 else -128, signed), True)]
    case.node([y, *out], operator="QuantizeLinear")


# -- operators of com.microsoft -------------------------------------------------------------------------------------------------


MICROSOFTS = (
    "Gelu", "FastGelu", "QuickGelu", "BiasGelu", "FusedMatMul", "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu",
    "SkipLayerNormalization",
)  # fmt: skip


@draws(*(f"ms {name}" for name in MICROSOFTS))
def microsoft(case: Case) -> None:
    name = case.operator.split()[1]
    case.opset = case.whole(12, 20)
    shape = case.dims(2, 4)
    if name.startswith("QLinear"):
        case.quantised, type = True, case.pick(U8, I8)
        operands = []
        for i in range(3 if name in ("QLinearAdd", "QLinearMul") else 2):
            operands += [] if i + 1 == (3 if name in ("QLinearAdd", "QLinearMul") else 2) else [case.data(shape, type)]
            operands += [case.value(step(case), True), case.value(point(case, type), True)]
        case.node(operands, operator=name, domain=MICROSOFT)
    elif name == "FusedMatMul":
        n, k, m = (case.whole(1, 4) for _ in range(3))
        flips = case.whole(0, 1), case.whole(0, 1)
        a, b = case.data((k, n) if flips[0] else (n, k)), case.value(case.values((m, k) if flips[1] else (k, m)))
        case.node([a, b], operator=name, domain=MICROSOFT, transA=flips[0], transB=flips[1], alpha=case.maybe(0.5))
    elif name == "SkipLayerNormalization":
        shape = case.dims(3, 3)
        rows = [case.value(case.values(shape[-1:])) for _ in range(case.whole(1, 3))]
        case.node([case.data(shape), case.data(shape), *rows], operator=name, domain=MICROSOFT, epsilon=1e-5)
    else:
        bias = [case.value(case.values(shape[-1:]))] if name == "BiasGelu" or (name == "FastGelu" and case.chance(0.5)) else []
        case.node([case.data(shape), *bias], operator=name, domain=MICROSOFT, **({"alpha": 1.7} if name == "QuickGelu" else {}))


# -- chains ------------------------------------------------------------------------------------------------------------------


@draws("chain", "chain of images")
def chain(case: Case) -> None:
    shape = (
        case.dims(1, 4) if case.operator == "chain" else (case.whole(1, 2), case.whole(1, 4), case.whole(3, 6), case.whole(3, 6))
    )
    case.opset = case.pick(9, 11, 13, 17, 20)
    kinds = ["unary", "add", "transpose", "reshape", "softmax", "concat", "twice"]
    kinds += ["conv", "pool", "norm", "conv"] if case.operator != "chain" else ["matmul"]
    x = case.data(shape, F)
    for _ in range(case.whole(2, 4)):
        kind = case.pick(*kinds)
        if kind == "unary":
            (x,) = case.node([x], operator=case.pick("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Identity", "Floor"))
        elif kind == "add":
            other = case.value(case.values(tuple(1 if case.chance(0.4) else d for d in shape)))
            pair = [x, other] if case.chance(0.7) else [other, x]
            (x,) = case.node(pair, operator=case.pick("Add", "Mul", "Sub", "Max"))
        elif kind == "twice":
            (y,) = case.node([x], operator=case.pick("Relu", "Sigmoid"))
            (x,) = case.node([x, y], operator=case.pick("Mul", "Add"))
        elif kind == "transpose":
            order = [int(a) for a in case.rng.permutation(len(shape))]
            (x,) = case.node([x], operator="Transpose", perm=order)
            shape = tuple(shape[a] for a in order)
        elif kind == "reshape":
            new = tuple(int(d) for d in case.rng.permutation(shape))
            (x,) = case.node([x, case.value(np.array(new, np.int64))], operator="Reshape")
            shape = new
        elif kind == "softmax":
            (x,) = case.node([x], operator="Softmax", axis=case.axis(len(shape), negative=case.opset >= 11))
        elif kind == "concat":
            axis = case.axis(len(shape), negative=case.opset >= 11)
            (x,) = case.node([x, x], operator="Concat", axis=axis)
            shape = tuple(2 * d if i == axis % len(shape) else d for i, d in enumerate(shape))
        elif kind == "matmul" and len(shape) > 1:
            many = case.whole(1, 4)
            (x,) = case.node([x, case.value(case.values((shape[-1], many)))], operator="MatMul")
            shape = (*shape[:-1], many)
        elif kind == "conv" and len(shape) == 4:
            many = case.whole(1, 4)
            weights = case.value(case.values((many, shape[1], 3, 1)), True)
            (x,) = case.node([x, weights], operator="Conv", pads=[1, 0, 1, 0])
            shape = (shape[0], many, *shape[2:])
        elif kind == "pool" and len(shape) == 4:
            options = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
            (x,) = case.node([x], operator=case.pick("MaxPool", "AveragePool"), **options)
        elif kind == "norm" and len(shape) == 4:
            numbers = [case.value(np.abs(case.values((shape[1],))) + np.float32(0.1), True) for _ in range(4)]
            (x,) = case.node([x, *numbers], operator="BatchNormalization")
    if not case.nodes:
        case.node([x], operator="Relu")

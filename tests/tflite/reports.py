"""Small files that show what public reports are about, one for each kind of report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from tests.tflite.files import TfliteBuilder

Made = tuple[list[int], list[int]]
Make = Callable[[TfliteBuilder], Made]

NONE = {"fused_activation_function": 0}
MASKS = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
WINDOW = {"padding": 0, "stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
Q8, Q16 = {"scale": 0.1, "zero_point": 3}, {"scale": 0.001}
IMAGE = (1, 4, 4, 2)


def ones(*shape: int, type: str = "float32") -> np.ndarray:
    return np.ones(shape, type)


def one(name: str, shapes: Any, outs: Any, *constants: Any, type: str = "float32", version: int = 1, front: bool = False,
        of: dict[str, Any] | None = None, to: dict[str, Any] | None = None, **options: Any) -> Make:  # fmt: skip
    """An operator of computed inputs, then constants (``front``: before them); a constant is an array, or one and what it has."""

    def make(b: TfliteBuilder) -> Made:
        computed = [b.tensor(shape, type, **(of or {})) for shape in (shapes if isinstance(shapes, list) else [shapes])]
        known = [b.constant(c[0], **c[1]) if isinstance(c, tuple) else -1 if c is None else b.constant(c) for c in constants]
        out = [b.tensor(shape, **{"type": type} | (of or {} if to is None else to)) for shape in
               (outs if isinstance(outs, list) else [outs])]  # fmt: skip
        b.operator(name, [*known, *computed] if front else [*computed, *known], out, options, version)
        return computed, out

    return make


def after(first: Make, *then: Callable[[TfliteBuilder, int], int]) -> Make:
    """Operators one after the other, each on the first output of the one before."""

    def make(b: TfliteBuilder) -> Made:
        inputs, (out, *_) = first(b)
        for step in then:
            out = step(b, out)
        return inputs, [out]

    return make


def lstm(b: TfliteBuilder) -> Made:
    """An int8 UNIDIRECTIONAL_SEQUENCE_LSTM of the integer kernel's types, as TensorFlow writes it."""
    x, y = b.tensor((1, 3, 2), "int8", scale=0.05), b.tensor((1, 3, 4), "int8", scale=1 / 128)
    gates = [b.constant(ones(4, n, type="int8"), scale=0.01) for n in (2,) * 4 + (4,) * 4]
    biases = [b.constant(np.zeros(4, np.int32), scale=0.0005) for _ in range(4)]
    states = [
        b.tensor((1, 4), "int8", scale=1 / 128, is_variable=True),
        b.tensor((1, 4), "int16", scale=2**-11, is_variable=True),
    ]
    between = [b.tensor((), "int16", scale=2**-12) for _ in range(4)] + [b.tensor((), "int8", scale=1 / 128)]
    options = {"fused_activation_function": 4, "cell_clip": 0.0, "proj_clip": 0.0, "time_major": False}
    operands = [x, *gates, -1, -1, -1, *biases, -1, -1, *states, -1, -1, -1, -1]
    b.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, [y], options, 1, intermediates=between)
    return [x], [y]


def dynamic(b: TfliteBuilder) -> Made:
    """MUL, then RESHAPE to dimensions that only a run knows."""
    x, shape, m, y = b.tensor((2, 4)), b.tensor((2,), "int32"), b.tensor((2, 4)), b.tensor((4, 2), shape_signature=[-1, -1])
    b.operator("MUL", [x, b.constant(np.float32(2))], [m], NONE)
    b.operator("RESHAPE", [m, shape], [y], {})
    return [x, shape], [y]


def loop(b: TfliteBuilder) -> Made:
    """A WHILE of a MUL and an ADD, as long as the sum is small, then a MUL."""
    test, body = b.beside(), b.beside()
    i, least, o = test.tensor((1, 2)), test.tensor((1,)), test.tensor((1,), "bool")
    test.operator("SUM", [i, test.constant(np.int32([1]))], [least], {"keep_dims": False})
    test.operator("LESS", [least, test.constant(np.float32([10]))], [o], {})
    p, q, r = (body.tensor((1, 2)) for _ in range(3))
    body.operator("MUL", [p, p], [q], NONE)
    body.operator("ADD", [q, p], [r], NONE)
    numbers = b.add(test, [i], [o]), b.add(body, [p], [r])
    x, y, z = (b.tensor((1, 2)) for _ in range(3))
    b.operator("WHILE", [x], [y], {"cond_subgraph_index": numbers[0], "body_subgraph_index": numbers[1]})
    b.operator("MUL", [y, y], [z], NONE)
    return [x], [z]


def halves(b: TfliteBuilder) -> Made:
    """CONV_2D with weights of float16 behind a DEQUANTIZE, then an ARG_MAX."""
    x, y, w = b.tensor(IMAGE), b.tensor(IMAGE), b.tensor((2, 1, 1, 2))
    z = b.tensor((1, 4, 4), "int32")
    b.operator("DEQUANTIZE", [b.constant(ones(2, 1, 1, 2, type="float16"))], [w], {}, 3)
    b.operator("CONV_2D", [x, w, b.constant(np.zeros(2, np.float32))], [y], WINDOW)
    b.operator("ARG_MAX", [y, b.constant(np.int32(3))], [z], {"output_type": 2})
    return [x], [z]


def transposed_conv(type: str) -> Make:
    """TRANSPOSE_CONV by a stride of 2: version 2, or 1 of floats."""

    def make(b: TfliteBuilder) -> Made:
        of = Q8 if type == "int8" else {}
        x, y = b.tensor((1, 2, 2, 2), type, **of), b.tensor((1, 4, 4, 2), type, **of)
        w = b.constant(ones(2, 2, 2, 2, type=type), **({"scale": 0.01} if of else {}))
        options = {"padding": 0, "stride_w": 2, "stride_h": 2}
        b.operator("TRANSPOSE_CONV", [b.constant(np.int32([1, 4, 4, 2])), w, x], [y], options, 2 if of else 1)
        return [x], [y]

    return make


def attention(b: TfliteBuilder) -> Made:
    """int8 scores of a query and a key, SOFTMAX of them, and the product with a value."""
    query, key, value = (b.tensor((1, 2, 4, 8), "int8", scale=0.1) for _ in range(3))
    scores, weights = b.tensor((1, 2, 4, 4), "int8", scale=0.1), b.tensor((1, 2, 4, 4), "int8", scale=1 / 256, zero_point=-128)
    out = b.tensor((1, 2, 4, 8), "int8", scale=0.1)
    b.operator("BATCH_MATMUL", [query, key], [scores], {"adj_x": False, "adj_y": True}, 3)
    b.operator("SOFTMAX", [scores], [weights], {"beta": 1.0}, 2)
    b.operator("BATCH_MATMUL", [weights, value], [out], {"adj_x": False, "adj_y": False}, 3)
    return [query, key, value], [out]


def computed_reshape(b: TfliteBuilder) -> Made:
    """int8: RELU, and RESHAPE to what SHAPE, STRIDED_SLICE and PACK compute of an open batch."""
    q = {"scale": 0.1}
    x, r = (b.tensor((1, 2, 2, 2), "int8", shape_signature=[-1, 2, 2, 2], **q) for _ in range(2))
    y = b.tensor((1, 8), "int8", shape_signature=[-1, 8], **q)
    shape, batch, both = b.tensor((4,), "int32"), b.tensor((), "int32"), b.tensor((2,), "int32")
    b.operator("RELU", [x], [r], {}, 2)
    b.operator("SHAPE", [r], [shape], {"out_type": 2})
    b.operator(
        "STRIDED_SLICE", [shape, *(b.constant(np.int32([n])) for n in (0, 1, 1))], [batch], {**MASKS, "shrink_axis_mask": 1}
    )
    b.operator("PACK", [batch, b.constant(np.int32(8))], [both], {"values_count": 2, "axis": 0})
    b.operator("RESHAPE", [r, both], [y], {})
    return [x], [y]


def tail(b: TfliteBuilder) -> Made:
    """The end of a detector: parts by SPLIT_V, the largest by TOPK_V2, their places by FLOOR_DIV and FLOOR_MOD."""
    x, p, r = b.tensor((1, 8)), b.tensor((1, 2)), b.tensor((1, 6))
    values, places, rows, columns = b.tensor((1, 2)), *(b.tensor((1, 2), "int32") for _ in range(3))
    b.operator("SPLIT_V", [x, b.constant(np.int32([2, 6])), b.constant(np.int32(1))], [p, r], {"num_splits": 2})
    b.operator("TOPK_V2", [r, b.constant(np.int32(2))], [values, places], {})
    two = b.constant(np.int32([[2, 2]]))
    b.operator("FLOOR_DIV", [places, two], [rows], {})
    b.operator("FLOOR_MOD", [places, two], [columns], {})
    return [x], [p, values, rows, columns]


def sums(b: TfliteBuilder) -> Made:
    """The mean of an image as its sum, by a number."""
    x, total, y = b.tensor((1, 256, 256, 1)), b.tensor((1, 1, 1, 1)), b.tensor((1, 1, 1, 1))
    b.operator("SUM", [x, b.constant(np.int32([1, 2]))], [total], {"keep_dims": True})
    b.operator("MUL", [total, b.constant(np.float32(1 / 65536))], [y], NONE)
    return [x], [y]


def normalised(b: TfliteBuilder) -> Made:
    """A root mean square normalisation of int8: MUL, MEAN, ADD, RSQRT, MUL."""
    zeros = {0.02: -128, 0.07: -128}
    x, square, mean, more, root, y = (
        b.tensor((1, n), "int8", scale=scale, zero_point=zeros.get(scale, 0))
        for n, scale in ((16, 0.05), (16, 0.06), (1, 0.06), (1, 0.07), (1, 0.02), (16, 0.04))
    )
    b.operator("MUL", [x, x], [square], NONE, 2)
    b.operator("MEAN", [square, b.constant(np.int32([1]))], [mean], {"keep_dims": True}, 2)
    b.operator("ADD", [mean, b.constant(np.int8([[1]]), scale=0.01)], [more], NONE, 2)
    b.operator("RSQRT", [more], [root], {}, 2)
    b.operator("MUL", [x, root], [y], NONE, 2)
    return [x], [y]


def composite(b: TfliteBuilder) -> Made:
    """MUL, a composite of a SOFTMAX, as its own graph, and MUL."""
    attributes = flexbuffers.Builder()
    with attributes.Map():
        attributes.Int("axis", -1)
    given = np.frombuffer(bytes(attributes.Finish()), np.uint8)
    body, x, m, y = b.beside(), b.tensor((1, 8)), b.tensor((1, 8)), b.tensor((1, 8))
    i, o = body.tensor((1, 8)), body.tensor((1, 8))
    body.operator("SOFTMAX", [i], [o], {"beta": 1.0}, 2)
    options = {"name": "odml.softmax", "decomposition_subgraph_index": b.add(body, [i], [o]), "version": 1}
    b.operator("MUL", [x, x], [m], NONE)
    b.operator("STABLEHLO_COMPOSITE", [m], [y], {**options, "composite_attributes": given})
    return [x], [y]

"""Random single operators of TFLite, most of them within what TFLite's own checks accept, as cases for compilers' rules."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from vela.random_quantised import TfliteBuilder

Shape = tuple[int, ...]
TYPES = ("int8", "int8", "int8", "uint8", "int16", "int32", "float32", "int64")
SIDES = (1, 1, 2, 3, 4, 7, 8, 16, 17, 33, 64, 127, 128, 130)
UNARY = ("ABS", "NEG", "EXP", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "RELU", "RELU6", "RELU_N1_TO_1", "TANH", "ELU", "GELU")
UNARY += ("LOG", "RSQRT", "QUANTIZE", "SQRT", "SIN", "ROUND")
COMPARISONS = ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")
BINARY = ("ADD", "SUB", "MUL", "SQUARED_DIFFERENCE", "MAXIMUM", "MINIMUM", "PRELU", "FLOOR_DIV")


class Draw:
    """One operator being drawn into a file."""

    def __init__(self, chance: random.Random, file: TfliteBuilder) -> None:
        self.chance, self.file = chance, file
        self.type = chance.choice(TYPES)
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        """Tensors that are the model's."""

    def shape(self, least: int = 1, most: int = 4) -> Shape:
        """A random shape; batches are mostly 1."""
        rank = self.chance.randint(least, most)
        found = [self.chance.choice(SIDES) for _ in range(rank)]
        if rank == 4 and self.chance.random() < 0.8:
            found[0] = 1
        return tuple(found)

    def parameters(self, type: str) -> dict[str, Any]:
        """Quantisation as converters write it, rarely none."""
        if type == "float32" or self.chance.random() < 0.03:
            return {}
        if type in ("int32", "int64") and self.chance.random() < 0.6:
            return {"quantization": {}} if self.chance.random() < 0.5 else {}
        symmetric = type in ("int16", "int32", "int64") and self.chance.random() < 0.95
        point = 0 if symmetric else self.chance.choice((0, 3, 10))
        return {"scale": self.chance.choice((0.5, 0.05, 0.05, 0.02)), "zero_point": point}

    def computed(self, shape: Shape, type: str = "", **parameters: Any) -> int:
        """An input of the model."""
        index = self.file.tensor(shape, type or self.type, **(parameters or self.parameters(type or self.type)))
        self.inputs.append(index)
        return index

    def constant(self, array: Any, dtype: str = "int32", likely: float = 0.93, **parameters: Any) -> int:
        """A constant, or rarely a computed tensor of its shape."""
        value = np.asarray(array, dtype)
        if self.chance.random() < likely:
            return self.file.constant(value, **parameters)
        return self.computed(value.shape, value.dtype.name, **parameters)

    def truths(self, shape: Shape) -> int:
        """A computed tensor of BOOL, rarely of another type."""
        return self.computed(shape, "bool", quantization={}) if self.chance.random() < 0.97 else self.computed(shape)

    def weights(self, shape: Shape, axis: int) -> int:
        """Weights, mostly 8-bit, with one scale or one for each channel."""
        type = self.chance.choice(("int8", "int8", "int8", "int8", "uint8", "int16"))
        channels = shape[axis] if self.chance.random() < 0.5 else 1
        numbers = np.random.default_rng(self.chance.getrandbits(32))
        array = numbers.integers(0 if type == "uint8" else -127, 127, shape)
        return self.constant(
            array, type, 0.95, scale=[0.01] * channels, zero_point=[0] * channels, axis=axis if channels > 1 else 0
        )

    def bias(self, channels: int) -> int:
        """A bias, rarely omitted, computed or of an odd type."""
        if self.chance.random() < 0.1:
            return -1
        type = self.chance.choice(("int32", "int32", "int32", "int64"))
        top = 2**41 if type == "int64" and self.chance.random() < 0.2 else 1000
        return self.constant([top] * channels, type, 0.93, scale=[0.0005], zero_point=[0])

    def apply(
        self,
        name: str,
        inputs: list[int],
        shape: Shape,
        options: dict[str, Any] | None = None,
        type: str = "",
        **parameters: Any,
    ) -> None:
        """The operator with an output of a shape."""
        out = self.file.tensor(shape, type or self.type, **(parameters or self.parameters(type or self.type)))
        self.outputs.append(out)
        self.file.operator(name, inputs, [out], options if options is not None else {})


def unary(draw: Draw) -> None:
    name, shape = draw.chance.choice(UNARY), draw.shape()
    if name == "HARD_SWISH" and draw.chance.random() < 0.98:
        draw.type = "int8"
    other = draw.chance.choice(("int8", "int16", "uint8", "int32")) if name == "QUANTIZE" or draw.chance.random() < 0.05 else ""
    draw.apply(name, [draw.computed(shape)], shape, {}, other)


def binary(draw: Draw) -> None:
    name, shape = draw.chance.choice(BINARY), draw.shape()
    small = tuple(1 if draw.chance.random() < 0.3 else s for s in shape)
    same = draw.parameters(draw.type) if draw.chance.random() < 0.6 else {}
    out = draw.file.tensor(shape, draw.type, **(same or draw.parameters(draw.type)))
    inputs = [draw.computed(shape, **same), draw.computed(small if draw.chance.random() < 0.5 else shape, **same)]
    draw.outputs.append(out)
    draw.file.operator(name, inputs, [out], {"fused_activation_function": draw.chance.choice((0, 0, 1, 3))})


def window(draw: Draw) -> tuple[dict[str, Any], tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Options, kernel, input and output sides of a sliding window."""
    kernel = tuple(draw.chance.choice((1, 2, 3, 5, 7, 9)) for _ in "hw")
    strides = tuple(draw.chance.choice((1, 1, 2, 3, 4, 5)) for _ in "hw")
    padding = draw.chance.randint(0, 1)
    sides = tuple(max(k, draw.chance.choice((4, 8, 9, 16, 33))) for k in kernel)
    outs = tuple(-(-s // t) if padding == 0 else (s - k) // t + 1 for s, k, t in zip(sides, kernel, strides, strict=True))
    options = {"padding": padding, "stride_h": strides[0], "stride_w": strides[1]}
    options["fused_activation_function"] = draw.chance.choice((0, 0, 1, 2, 3))
    return options, kernel, sides, outs  # type: ignore[return-value]  # tuples of two


def pool(draw: Draw) -> None:
    options, kernel, sides, outs = window(draw)
    batch, channels = draw.chance.choice((1, 1, 2)), draw.chance.choice(SIDES)
    options |= {"filter_height": kernel[0], "filter_width": kernel[1]}
    name = draw.chance.choice(("AVERAGE_POOL_2D", "MAX_POOL_2D"))
    draw.apply(name, [draw.computed((batch, *sides, channels))], (batch, *outs, channels), options)


def conv(draw: Draw) -> None:
    options, kernel, sides, outs = window(draw)
    channels, filters = draw.chance.choice((1, 3, 8, 16)), draw.chance.choice((1, 8, 12))
    dilation = draw.chance.choice((1, 1, 1, 2)) if options["padding"] == 0 else 1
    options |= {"dilation_h_factor": dilation, "dilation_w_factor": dilation}
    inputs = [draw.computed((1, *sides, channels)), draw.weights((filters, *kernel, channels), 0), draw.bias(filters)]
    draw.apply("CONV_2D", inputs, (1, *outs, filters), options)


def depthwise(draw: Draw) -> None:
    options, kernel, sides, outs = window(draw)
    channels, multiplier = draw.chance.choice((1, 3, 8)), draw.chance.choice((1, 1, 2, 3))
    filters = channels * multiplier
    options |= {"depth_multiplier": multiplier, "dilation_h_factor": 1, "dilation_w_factor": 1}
    inputs = [draw.computed((1, *sides, channels)), draw.weights((1, *kernel, filters), 3), draw.bias(filters)]
    draw.apply("DEPTHWISE_CONV_2D", inputs, (1, *outs, filters), options)


def transpose_conv(draw: Draw) -> None:
    stride_h, stride_w = draw.chance.choice(((1, 1), (2, 2), (2, 2), (1, 2), (2, 1), (3, 3)))
    kernel_h, kernel_w = draw.chance.choice(((3, 3), (2, 2), (1, 3), (4, 4), (3, 1)))
    h, w, channels, filters = draw.chance.choice((1, 5, 8)), draw.chance.choice((1, 4, 8)), 8, draw.chance.choice((4, 16))
    padding = draw.chance.randint(0, 1)
    oh, ow = (h * stride_h, w * stride_w) if padding == 0 else ((h - 1) * stride_h + kernel_h, (w - 1) * stride_w + kernel_w)
    size = draw.file.constant(np.array([1, oh, ow, filters], np.int32))
    inputs = [size, draw.weights((filters, kernel_h, kernel_w, channels), 0), draw.computed((1, h, w, channels))]
    options = {"padding": padding, "stride_h": stride_h, "stride_w": stride_w, "fused_activation_function": 0}
    draw.apply("TRANSPOSE_CONV", [*inputs, draw.bias(filters)], (1, oh, ow, filters), options)


def dense(draw: Draw) -> None:
    rows, channels, units = draw.chance.choice((1, 1, 4)), draw.chance.choice((3, 16, 70)), draw.chance.choice((1, 10, 33))
    inputs = [draw.computed((rows, channels)), draw.weights((units, channels), 0), draw.bias(units)]
    draw.apply("FULLY_CONNECTED", inputs, (rows, units), {"fused_activation_function": draw.chance.choice((0, 1))})


def matmul(draw: Draw) -> None:
    batch, rows, inner, columns = draw.chance.choice((1, 3)), 5, draw.chance.choice((4, 32)), draw.chance.choice((1, 8))
    inputs = [draw.computed((1, batch, rows, inner)), draw.computed((1, batch, inner, columns))]
    draw.apply("BATCH_MATMUL", inputs, (1, batch, rows, columns), {"adj_x": False, "adj_y": False})


def reduced(draw: Draw) -> None:
    name, shape = draw.chance.choice(("MEAN", "MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN")), draw.shape(2)
    axes = sorted(draw.chance.sample(range(len(shape)), draw.chance.randint(1, min(2, len(shape)))))
    stated = [a - len(shape) if draw.chance.random() < 0.3 else a for a in axes]
    out = tuple(1 if a in axes else s for a, s in enumerate(shape))
    draw.apply(name, [draw.computed(shape), draw.constant(stated)], out, {"keep_dims": True})


def arg_max(draw: Draw) -> None:
    draw.type = draw.chance.choice(("int8", "uint8")) if draw.chance.random() < 0.98 else draw.type
    shape = draw.shape(2)
    axis = draw.chance.choice((-1, len(shape) - 1, len(shape) - 1, 0, 1))
    out = tuple(s for k, s in enumerate(shape) if k != axis % len(shape))
    draw.apply("ARG_MAX", [draw.computed(shape), draw.constant(axis, likely=1.0)], out, {"output_type": 2}, "int32")


def softmax(draw: Draw) -> None:
    shape = draw.chance.choice((draw.shape(), (1, 256, 256, 3), (1, 255, 256, 4)))
    draw.apply("SOFTMAX", [draw.computed(shape)], shape, {"beta": 1.0})


def resize(draw: Draw) -> None:
    h, w = draw.chance.choice((1, 2, 5, 8)), draw.chance.choice((1, 3, 8))
    align, half = draw.chance.choice(((False, False), (False, True), (True, False)))
    fh = draw.chance.choice((1, 2, 4, 8, 3))
    fw = fh if draw.chance.random() < 0.7 else draw.chance.choice((1, 2, 4))
    oh, ow = ((h - 1) * fh + 1, (w - 1) * fw + 1) if align else (h * fh, w * fw)
    name = draw.chance.choice(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"))
    inputs = [draw.computed((1, h, w, 8)), draw.constant([oh, ow], likely=1.0)]
    draw.apply(name, inputs, (1, oh, ow, 8), {"align_corners": align, "half_pixel_centers": half})


def pad(draw: Draw) -> None:
    shape = draw.shape(2)
    pads = [[draw.chance.choice((0, 0, 1)), draw.chance.choice((0, 1))] for _ in shape]
    out = tuple(s + sum(p) for s, p in zip(shape, pads, strict=True))
    name = draw.chance.choice(("PAD", "PAD", "MIRROR_PAD"))
    if name == "MIRROR_PAD" and any(s < 3 for s in shape):
        name = "PAD"
    inputs = [draw.computed(shape), draw.constant(pads, draw.chance.choice(("int32", "int32", "int64")))]
    draw.apply(name, inputs, out, {"mode": 0} if name == "MIRROR_PAD" else {})


def transpose(draw: Draw) -> None:
    shape = draw.shape(2)
    if draw.chance.random() < 0.1:
        shape = draw.chance.choice(((1, 300, 4, 300), (1, 2, 70000, 3), (20000, 3, 20), (300, 300, 2, 3)))
    order = list(range(len(shape)))
    draw.chance.shuffle(order)
    draw.apply("TRANSPOSE", [draw.computed(shape), draw.constant(order)], tuple(shape[k] for k in order))


def concatenation(draw: Draw) -> None:
    shape = draw.shape()
    axis = draw.chance.randrange(len(shape))
    count = draw.chance.randint(2, 3)
    out = tuple(s * count if k == axis else s for k, s in enumerate(shape))
    options = {"axis": axis, "fused_activation_function": 0}
    draw.apply("CONCATENATION", [draw.computed(shape) for _ in range(count)], out, options)


def split(draw: Draw) -> None:
    shape = draw.shape()
    axis = draw.chance.randrange(len(shape))
    count = draw.chance.choice([k for k in (1, 2, 4) if shape[axis] % k == 0])
    out = tuple(s // count if k == axis else s for k, s in enumerate(shape))
    source = draw.computed(shape)
    outs = [draw.file.tensor(out, draw.type, **draw.parameters(draw.type)) for _ in range(count)]
    draw.outputs.extend(outs)
    draw.file.operator("SPLIT", [draw.constant(axis, likely=1.0), source], outs, {"num_splits": count})


def slice(draw: Draw) -> None:
    shape = draw.shape()
    begin = [draw.chance.randrange(s) for s in shape]
    size = [draw.chance.randint(1, s - b) for s, b in zip(shape, begin, strict=True)]
    draw.apply("SLICE", [draw.computed(shape), draw.constant(begin), draw.constant(size)], tuple(size))


def strided_slice(draw: Draw) -> None:
    shape = draw.shape()
    strides = [draw.chance.choice((1, 1, 1, 2)) for _ in shape]
    begin = [draw.chance.randrange(s) for s in shape]
    out = tuple(-(-(s - b) // t) for s, b, t in zip(shape, begin, strides, strict=True))
    inputs = [draw.computed(shape), *(draw.constant(v) for v in (begin, list(shape), strides))]
    masks = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    draw.apply("STRIDED_SLICE", inputs, out, dict.fromkeys(masks, 0))


def moved(draw: Draw) -> None:
    shape = draw.shape()
    name = draw.chance.choice(
        ("RESHAPE", "EXPAND_DIMS", "TILE", "PACK", "UNPACK", "REVERSE_V2", "CAST", "GATHER", "SPACE_TO_DEPTH")
    )
    same = draw.parameters(draw.type) if draw.chance.random() < 0.98 else {}
    if name == "RESHAPE":
        new = (1, int(np.prod(shape)))
        shaped = draw.constant(list(new), likely=1.0)
        draw.apply(name, [draw.computed(shape, **same), shaped], new, {"new_shape": list(new)}, **same)
    elif name == "EXPAND_DIMS":
        draw.apply(name, [draw.computed(shape, **same), draw.constant(0, likely=1.0)], (1, *shape), **same)
    elif name == "TILE":
        times = [draw.chance.choice((1, 2)) for _ in shape]
        out = tuple(s * t for s, t in zip(shape, times, strict=True))
        draw.apply(name, [draw.computed(shape), draw.constant(times, likely=1.0)], out)
    elif name == "PACK":
        draw.apply(name, [draw.computed(shape), draw.computed(shape)], (2, *shape), {"values_count": 2, "axis": 0})
    elif name == "REVERSE_V2":
        draw.apply(name, [draw.computed(shape), draw.constant([draw.chance.randrange(len(shape))], likely=1.0)], shape)
    elif name == "UNPACK":
        shape = (2, *shape[:3])
        outs = [draw.file.tensor(shape[1:], draw.type, **draw.parameters(draw.type)) for _ in range(2)]
        draw.outputs.extend(outs)
        draw.file.operator(name, [draw.computed(shape)], outs, {"num": 2, "axis": 0})
    elif name == "CAST":
        draw.apply(name, [draw.computed(shape)], shape, {}, "int32")
    elif name == "GATHER":
        draw.apply(name, [draw.computed(shape), draw.constant([0], likely=1.0)], (1, *shape[1:]), {"axis": 0, "batch_dims": 0})
    else:
        draw.apply(name, [draw.computed((1, 4, 4, 3))], (1, 2, 2, 12), {"block_size": 2})


def comparison(draw: Draw) -> None:
    name, shape = draw.chance.choice(COMPARISONS), draw.shape()
    same = draw.parameters(draw.type) if draw.chance.random() < 0.6 else {}
    small = tuple(1 if draw.chance.random() < 0.3 else s for s in shape)
    other = draw.chance.choice((shape, small))
    inputs = [draw.computed(shape, **same), draw.computed(other, "" if draw.chance.random() < 0.95 else "int8", **same)]
    draw.apply(name, inputs[:: draw.chance.choice((1, -1))], shape, {}, "bool" if draw.chance.random() < 0.95 else "int8")


def logical(draw: Draw) -> None:
    shape = draw.shape()
    small = tuple(1 if draw.chance.random() < 0.2 else s for s in shape)
    name = draw.chance.choice(("LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT"))
    inputs = [draw.truths(shape), draw.truths(draw.chance.choice((shape, small)))]
    draw.apply(name, inputs[: 1 if name == "LOGICAL_NOT" else 2], shape, {}, "bool")


def any_or_all(draw: Draw) -> None:
    shape = draw.shape(2)
    axes = sorted(draw.chance.sample(range(len(shape)), draw.chance.randint(1, min(2, len(shape)))))
    out = tuple(1 if a in axes else s for a, s in enumerate(shape))
    inputs = [draw.truths(shape), draw.constant(axes)]
    draw.apply(draw.chance.choice(("REDUCE_ANY", "REDUCE_ALL")), inputs, out, {"keep_dims": True}, "bool")


def select(draw: Draw) -> None:
    name, shape = draw.chance.choice(("SELECT", "SELECT_V2")), draw.shape()
    same = draw.parameters(draw.type) if draw.chance.random() < 0.7 else {}
    small = [tuple(1 if draw.chance.random() < 0.3 else s for s in shape) if name == "SELECT_V2" else shape for _ in range(3)]
    shapes = [each if draw.chance.random() < 0.3 else shape for each in small]
    if name == "SELECT" and draw.chance.random() < 0.2:
        shapes[0] = shape[:1]
    condition = draw.truths(shapes[0])
    draw.apply(name, [condition, *(draw.computed(each, **same) for each in shapes[1:])], shape, **same)


def scatter_nd(draw: Draw) -> None:
    rows, width = draw.chance.choice((4, 8, 17)), draw.chance.choice(((), (1,), (3,), (4, 5), (2, 3, 16)))
    count, depth = draw.chance.choice((1, 2, 4)), 1 if draw.chance.random() < 0.9 or not width else 2
    numbers = [draw.chance.randrange(rows) for _ in range(count)] if draw.chance.random() < 0.15 else range(count)
    indices = draw.constant([[number] + [0] * (depth - 1) for number in numbers])
    shape = (rows, *width)
    updates = draw.computed((count, *shape[depth:]))
    draw.apply("SCATTER_ND", [indices, updates, draw.constant(list(shape))], shape)


def split_v(draw: Draw) -> None:
    shape = draw.shape()
    axis = draw.chance.randrange(len(shape))
    first = draw.chance.randint(1, shape[axis])
    sizes = [first, shape[axis] - first] if first < shape[axis] else [first]
    stated = [*sizes[:-1], -1] if draw.chance.random() < 0.2 else sizes
    source = draw.computed(shape)
    same = draw.parameters(draw.type)
    outs = [draw.file.tensor(tuple(size if k == axis else s for k, s in enumerate(shape)), draw.type, **same) for size in sizes]
    draw.outputs.extend(outs)
    at = draw.constant(axis - len(shape) if draw.chance.random() < 0.3 else axis, likely=1.0)
    draw.file.operator("SPLIT_V", [source, draw.constant(stated), at], outs, {"num_splits": len(sizes)})


def division(draw: Draw) -> None:
    shape = draw.shape()
    small = tuple(1 if draw.chance.random() < 0.2 else s for s in shape)
    inputs = [draw.computed(shape), draw.computed(draw.chance.choice((shape, small)))]
    draw.apply("DIV", inputs, shape, {"fused_activation_function": draw.chance.choice((0, 0, 1, 3))})


def padded(draw: Draw) -> None:
    shape, same = draw.shape(2), draw.parameters(draw.type)
    pads = [[draw.chance.choice((0, 0, 1)), draw.chance.choice((0, 1))] for _ in shape]
    out = tuple(s + sum(p) for s, p in zip(shape, pads, strict=True))
    value = draw.constant([1], draw.type, **same)
    draw.apply("PADV2", [draw.computed(shape, **same), draw.constant(pads), value], out, {}, **same)


def lstm(draw: Draw) -> None:
    draw.type = draw.chance.choice(("int8", "int8", "int8", "int16", "uint8", "float32"))
    batch, steps, width, cells = (draw.chance.choice(sides) for sides in ((1, 1, 2), (1, 3), (4, 16), (1, 8)))
    major = draw.chance.random() < 0.3
    front = (steps, batch) if major else (batch, steps)
    kind = draw.chance.choice(("int8", "int8", "int8", "int8", "int16"))

    def matrix(columns: int) -> int:
        return draw.constant(np.ones((cells, columns)), kind, 0.99, scale=0.01)

    biases = [draw.constant([1000] * cells, "int32", 0.99, scale=0.0005) for _ in range(4)]
    states = [
        draw.file.tensor((batch, cells), element, scale=scale, is_variable=draw.chance.random() < 0.97)
        for element, scale in ((draw.type, 0.05), ("int16", 2**-11))
    ]
    inputs = [draw.computed((*front, width)), *(matrix(width) for _ in range(4)), *(matrix(cells) for _ in range(4))]
    extra = draw.chance.choice((-1, -1, -1, -1, 0, 1, 2))  # without, or with peepholes, a projection, normalised layers
    inputs += [draw.constant([1] * cells, "int16", scale=0.01) if extra == 0 else -1 for _ in range(3)]
    inputs += [*biases, matrix(cells) if extra == 1 else -1, -1, *states]
    inputs += [draw.constant([1] * cells, "int16", scale=0.01) if extra == 2 else -1 for _ in range(4)]
    if draw.chance.random() < 0.05:
        inputs[1] = -1  # the input gate is coupled
    out = draw.file.tensor((*front, cells), draw.type, **draw.parameters(draw.type))
    between = [draw.file.tensor((0,), "int16", scale=2**-12) for _ in range(4)] + [draw.file.tensor((0,), draw.type, scale=0.05)]
    draw.outputs.append(out)
    options = {"fused_activation_function": draw.chance.choice((4, 4, 4, 0, 1)), "time_major": major}
    options |= {"cell_clip": draw.chance.choice((0.0, 0.0, 2.0)), "proj_clip": 0.0}
    draw.file.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [out], options, intermediates=between)


DRAWS: Mapping[str, Callable[[Draw], None]] = {
    each.__name__: each
    for each in (
        unary, binary, pool, conv, depthwise, transpose_conv, dense, matmul, reduced, arg_max, softmax, resize, pad, transpose,
        concatenation, split, slice, strided_slice, moved,
    )
}  # fmt: skip
"""The kinds that are drawn unless others are stated: seeds of published runs stand for these."""
OTHERS: Mapping[str, Callable[[Draw], None]] = {
    each.__name__: each for each in (comparison, logical, any_or_all, select, scatter_nd, split_v, division, padded, lstm)
}
"""More kinds."""


def operators(seeds: Sequence[int], kinds: Sequence[str] = tuple(DRAWS)) -> tuple[TfliteBuilder, list[int], list[int]]:
    """A file of unconnected operators of these kinds, one for each seed, with its inputs and outputs."""
    draws = {**DRAWS, **OTHERS}
    file = TfliteBuilder()
    inputs: list[int] = []
    outputs: list[int] = []
    for seed in seeds:
        chance = random.Random(seed)
        draw = Draw(chance, file)
        draws[chance.choice(kinds)](draw)
        inputs += draw.inputs
        outputs += draw.outputs
    return file, inputs, outputs

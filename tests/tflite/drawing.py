"""Single-operator TFLite files drawn at random: types, shapes, options, scales, zero points and constants.

``DRAWS`` has a function for each operator; scripts/nets/differential_tflite.py compares what files compute here and in LiteRT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.differential import Draws

F, U8, I8, I16, I32, I64, B = "float32", "uint8", "int8", "int16", "int32", "int64", "bool"
REAL = (F, F, U8, I8, I8)
F16, F64 = "float16", "float64"
RANGES = {U8: (0, 255), I8: (-128, 127), I16: (-32768, 32767)}
Rng = np.random.Generator


@dataclass
class Tensor:
    """An operand of a case: computed, or constant with an array of stored values."""

    shape: tuple[int, ...]
    type: str
    scale: float | list[float] = 0.0
    zero_point: int = 0
    axis: int = 0
    value: Any = None
    feed: Any = None
    """What a computed tensor holds, where random values do not fit."""
    variable: bool = False
    """True for a state, which holds zeros at first."""
    open: tuple[int, ...] | None = None
    """The shape with -1 for dimensions that the file leaves open."""


@dataclass
class Case:
    """One operator with its operands; the outputs' shapes are those that LiteRT allocates."""

    operator: str
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    options: dict[str, Any] = field(default_factory=dict)
    version: int = 3

    def __str__(self) -> str:
        operands = ", ".join("-" if t is None else f"{t.type}{list(t.shape)}" for t in self.inputs)
        return f"{self.operator}({operands}) {self.options}"


def pick(rng: Rng, *options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def dims(rng: Rng, rank: int, most: int = 6) -> tuple[int, ...]:
    return tuple(int(d) for d in rng.integers(1, most + 1, rank))


def scale(rng: Rng) -> float:
    kinds = (0.02, 1.0, 0.5, 1 / 3, 10.0 ** rng.uniform(-4, 1), 2.0 ** int(rng.integers(-8, 2)), 0.999999)
    return float(np.float32(pick(rng, *kinds)))


def point(rng: Rng, type: str) -> int:
    low, high = RANGES[type]
    return 0 if type == I16 else int(pick(rng, low, high, (low + high + 1) // 2, rng.integers(low, high + 1)))


def tensor(rng: Rng, shape: Sequence[int], type: str, like: Tensor | None = None) -> Tensor:
    """A tensor with parameters of its own, or with those of another."""
    if type not in RANGES:
        return Tensor(tuple(shape), type)
    if like is not None:
        return Tensor(tuple(shape), type, like.scale, like.zero_point)
    return Tensor(tuple(shape), type, scale(rng), point(rng, type))


def values(rng: Rng, shape: Sequence[int], type: str) -> Any:
    if type in (F, F16, F64, "complex64"):
        return (rng.standard_normal(shape) * pick(rng, 1.0, 1.0, 10.0)).astype(type)
    if type == B:
        return rng.integers(0, 2, shape).astype(bool)
    low, high = RANGES.get(type, (-20, 20))
    ends = pick(rng, None, None, None, low, high)
    return (rng.integers(low, high + 1, shape) if ends is None else np.full(shape, ends)).astype(type)


def constant(array: Any, type: str = I32) -> Tensor:
    array = np.asarray(array, type)
    return Tensor(array.shape, type, value=array)


def same(rng: Rng, type: str, x: Tensor) -> Tensor:
    """An output with the input's parameters."""
    return tensor(rng, (), type, like=x)


Draw = Callable[[Rng, str], Case]
DRAWS: Draws[Draw] = Draws()
draws = DRAWS.of


FIXED = {"LOGISTIC": {U8: (1 / 256, 0), I8: (1 / 256, -128), I16: (1 / 32768, 0)}}
FIXED["SOFTMAX"] = FIXED["LOGISTIC"]
FIXED["TANH"] = {U8: (1 / 128, 128), I8: (1 / 128, 0), I16: (1 / 32768, 0)}
FIXED["L2_NORMALIZATION"] = {U8: (1 / 128, 128), I8: (1 / 128, 0)}
FIXED["LOG_SOFTMAX"] = {U8: (16 / 256, 255), I8: (16 / 256, 127)}

UNARY = {
    "ABS": (F, I8, I16),
    "CEIL": (F,),
    "COS": (F,),
    "ELU": (F, I8),
    "EXP": (F, I8, I16),
    "FLOOR": (F,),
    "HARD_SWISH": REAL,
    "LOG": (F, I8, I16),
    "LOGICAL_NOT": (B,),
    "LOGISTIC": (*REAL, I16),
    "LOG_SOFTMAX": (F, I8),
    "L2_NORMALIZATION": (F, U8, I8),
    "NEG": (F, I32, I64),
    "RELU": (*REAL, I16),
    "RELU6": (*REAL, I16),
    "RELU_N1_TO_1": REAL,
    "ROUND": (F,),
    "RSQRT": (F, I8),
    "SIN": (F,),
    "SOFTMAX": (*REAL, I16),
    "SQRT": (F,),
    "SQUARE": (F,),
    "TANH": (*REAL, I16),
}


@draws(*UNARY)
def unary(rng: Rng, name: str) -> Case:
    type = pick(rng, *UNARY[name])
    x = tensor(rng, dims(rng, int(rng.integers(1, 5))), type)
    y = tensor(rng, x.shape, type)
    if type in FIXED.get(name, {}):
        y.scale, y.zero_point = FIXED[name][type]
    if name == "SOFTMAX" and type in (U8, I8) and rng.random() < 0.3:
        y.type, y.scale, y.zero_point = I16, 1 / 65536, -32768
    return Case(name, [x], [y], {"beta": float(pick(rng, 1.0, 0.5, 2.0))} if name == "SOFTMAX" else {}, 2)


BINARY = {
    "ADD": (*REAL, I16, I32, I64),
    "SUB": (*REAL, I16, I32, I64),
    "MUL": (*REAL, I16, I32, I64),
    "DIV": (F, I32),
    "MAXIMUM": (*REAL, I16, I32, I64),
    "MINIMUM": (*REAL, I16, I32, I64),
    "SQUARED_DIFFERENCE": (F, I8, I32),
    "FLOOR_DIV": (F, I32),
    "FLOOR_MOD": (F, I32, I64),
    "POW": (F, I32),
    "EQUAL": (*REAL, I32, I64, B),
    "NOT_EQUAL": (*REAL, I32, I64, B),
    "GREATER": (*REAL, I32),
    "GREATER_EQUAL": (*REAL, I32),
    "LESS": (*REAL, I32),
    "LESS_EQUAL": (*REAL, I32),
    "LOGICAL_AND": (B,),
    "LOGICAL_OR": (B,),
}
FUSED = ("ADD", "SUB", "MUL", "DIV")
TRUTH = ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "LOGICAL_AND", "LOGICAL_OR")


@draws(*BINARY)
def binary(rng: Rng, name: str) -> Case:
    type = pick(rng, *BINARY[name])
    shape = dims(rng, int(rng.integers(1, 5)), 5)
    other = tuple(1 if rng.random() < 0.3 else d for d in shape)[int(rng.integers(len(shape))) if rng.random() < 0.3 else 0 :]
    pair = [tensor(rng, shape, type), tensor(rng, other, type)]
    if name in ("MAXIMUM", "MINIMUM") and type in RANGES:
        pair[1] = tensor(rng, other, type, like=pair[0])
    if rng.random() < 0.3:
        pair[1].value = values(rng, other, type)
        if type in (I32, I64):
            pair[1].value = np.where(pair[1].value == 0, 3, pair[1].value).astype(type)
    elif type in (I32, I64) and name in ("DIV", "FLOOR_DIV", "FLOOR_MOD"):
        pair[1].value = np.where((v := values(rng, other, type)) == 0, 3, v).astype(type)
    if name == "POW" and type == I32:  # numbers that int32 holds: beyond them C leaves the answer open
        pair[1].value, pair[1].feed = None, rng.integers(0, 6, other).astype(I32)
        pair[0].feed = rng.integers(-20, 21, shape).astype(I32)
    elif rng.random() < 0.5:
        pair = pair[::-1] if name not in ("DIV", "FLOOR_DIV", "FLOOR_MOD") else pair
    y = Tensor((), B) if name in TRUTH else tensor(rng, (), type)
    if name in ("MAXIMUM", "MINIMUM") and type in RANGES:
        y = same(rng, type, pair[0])
    options = {"fused_activation_function": int(pick(rng, 0, 0, 1, 2, 3))} if name in FUSED and type not in (I32, I64) else {}
    return Case(name, list(pair), [y], options, 2)


@draws("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED")
def convolution(rng: Rng, name: str) -> Case:
    type = pick(rng, F, U8, I8, I8, I16)
    depth, units, batch = int(rng.integers(1, 7)), int(rng.integers(1, 7)), int(rng.integers(1, 3))
    height, width = dims(rng, 2, 9)
    kernel = dims(rng, 2, 5)
    strides, dilations = dims(rng, 2, 3), dims(rng, 2, 3) if rng.random() < 0.4 else (1, 1)
    multiplier = int(rng.integers(1, 4))
    connected, transposed = name == "FULLY_CONNECTED", name == "TRANSPOSE_CONV"
    if name == "DEPTHWISE_CONV_2D":
        units = depth * multiplier
    shape = {
        "CONV_2D": (units, *kernel, depth),
        "DEPTHWISE_CONV_2D": (1, *kernel, units),
        "TRANSPOSE_CONV": (units, *kernel, depth),
        "FULLY_CONNECTED": (units, depth * 3),
    }[name]
    x = tensor(rng, (batch, depth * 3) if connected else (batch, height, width, depth), type)
    y = tensor(rng, (), type)
    per_channel = (type in (I8, I16) and not connected) or (type == I8 and rng.random() < 0.5)
    axis = 3 if name == "DEPTHWISE_CONV_2D" else 0
    if type == F:
        weights, bias = constant(rng.standard_normal(shape), F), constant(rng.standard_normal(units), F)
    else:
        scales = [scale(rng) for _ in range(units)] if per_channel else [scale(rng)]
        stored, (low, high) = (U8, (0, 255)) if type == U8 else (I8, (-127, 127))
        drawn = pick(rng, rng.integers(low, high + 1, shape), rng.integers(low, high + 1, shape), np.full(shape, high))
        weights = constant(drawn, stored)
        weights.scale, weights.axis, weights.zero_point = scales, axis, point(rng, U8) if type == U8 else 0
        most = int(pick(rng, 100, 5000, 10**6, 2**30))
        bias = constant(rng.integers(-most, most, units), I64 if type == I16 else I32)
        bias.scale = [float(x.scale) * s for s in scales]  # type: ignore[arg-type]  # x has one scale
    options: dict[str, Any] = {"fused_activation_function": 0 if transposed else int(pick(rng, 0, 0, 1, 2, 3))}
    if connected:
        return Case(name, [x, weights, pick(rng, bias, bias, None)], [y], {**options, "keep_num_dims": bool(rng.integers(2))})
    padding = int(rng.integers(2))
    options |= {"padding": padding, "stride_h": strides[0], "stride_w": strides[1]}
    if transposed:
        sides = (n * s + (0 if padding == 0 else max(k - s, 0)) for n, s, k in zip((height, width), strides, kernel, strict=True))
        target = constant((batch, *sides, units))
        return Case(name, [target, weights, x, *pick(rng, [bias], [])], [y], options)
    options |= {"dilation_h_factor": dilations[0], "dilation_w_factor": dilations[1]}
    if name == "DEPTHWISE_CONV_2D":
        options["depth_multiplier"] = multiplier
    return Case(name, [x, weights, bias], [y], options)


@draws("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
def pooling(rng: Rng, name: str) -> Case:
    type = F if name == "L2_POOL_2D" else pick(rng, *REAL, I16)
    x = tensor(rng, (int(rng.integers(1, 3)), *dims(rng, 2, 9), int(rng.integers(1, 5))), type)
    (fh, fw), (sh, sw) = dims(rng, 2, 4), dims(rng, 2, 3)
    options = {"padding": int(rng.integers(2)), "stride_h": sh, "stride_w": sw, "filter_height": fh, "filter_width": fw}
    options["fused_activation_function"] = int(pick(rng, 0, 0, 1, 3))
    return Case(name, [x], [same(rng, type, x)], options, 2)


@draws("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL", "ARG_MAX", "ARG_MIN")
def reduction(rng: Rng, name: str) -> Case:
    truth, extreme = name in ("REDUCE_ANY", "REDUCE_ALL"), name.startswith("ARG")
    types: tuple[str, ...] = (B,) if truth else REAL if extreme else (*REAL, I16, I32)
    if name in ("SUM", "REDUCE_PROD"):  # LiteRT's sums of int8 and int16 are no sums, quantised products of uint8 it refuses.
        types = (F, I32, U8) if name == "SUM" else (F, I8, I16, I32)
    type = pick(rng, *types)
    rank = int(rng.integers(1, 5))
    x = tensor(rng, dims(rng, rank), type)
    if extreme:
        if type == F and rng.random() < 0.4:  # no NaN, of which LiteRT's kernels make other things for other sizes
            x.feed = np.where(rng.random(x.shape) < 0.3, pick(rng, np.inf, -np.inf), values(rng, x.shape, F)).astype(F)
        return Case(name, [x, constant(int(rng.integers(-rank, rank)))], [Tensor((), I32)], {"output_type": 2}, 2)
    chosen = rng.permutation(rank)[: int(rng.integers(1, rank + 1))] - (rank if rng.random() < 0.3 else 0)
    y = tensor(rng, (), type, like=None if name in ("MEAN", "SUM", "REDUCE_PROD") and rng.random() < 0.5 else x)
    return Case(name, [x, constant(chosen)], [y], {"keep_dims": bool(rng.integers(2))}, 2)


MOVING = (F, U8, I8, I16, I32, I64, B)


def source(rng: Rng, rank: int | None = None, types: Sequence[str] = (F, U8, I8, I16, I32, I64, B), most: int = 5) -> Tensor:
    return tensor(rng, dims(rng, rank or int(rng.integers(1, 5)), most), pick(rng, *types))


@draws("TRANSPOSE", "REVERSE_V2", "EXPAND_DIMS", "TILE", "CUMSUM", "GATHER", "ONE_HOT")
def by_axis(rng: Rng, name: str) -> Case:
    x = source(rng, types=(F, I32, I64) if name == "CUMSUM" else MOVING)
    rank, y = len(x.shape), same(rng, x.type, x)
    axis = int(rng.integers(-rank, rank))
    if name == "TRANSPOSE":
        return Case(name, [x, constant(rng.permutation(rank))], [y])
    if name == "REVERSE_V2":
        return Case(name, [x, constant([axis])], [y])
    if name == "EXPAND_DIMS":
        return Case(name, [x, constant([int(rng.integers(-rank - 1, rank + 1))])], [y])
    if name == "TILE":
        return Case(name, [x, constant(rng.integers(1, 4, rank))], [y])
    if name == "CUMSUM":
        return Case(name, [x, constant(axis)], [y], {"exclusive": bool(rng.integers(2)), "reverse": bool(rng.integers(2))})
    if name == "GATHER":
        indices = constant(rng.integers(0, x.shape[axis], dims(rng, int(rng.integers(1, 3)), 4)))
        return Case(name, [x, indices], [y], {"axis": axis}, 2)
    depth = int(rng.integers(1, 6))
    on, off = (constant(values(rng, (), x.type), x.type) for _ in range(2))
    on.scale = off.scale = x.scale
    on.zero_point = off.zero_point = x.zero_point
    indices = constant(rng.integers(-1, depth + 1, x.shape))
    return Case(name, [indices, constant(depth), on, off], [y], {"axis": int(rng.integers(-1, rank + 1))})


@draws("RESHAPE", "SQUEEZE", "PACK", "UNPACK", "CONCATENATION", "SPLIT", "SPLIT_V", "BROADCAST_TO", "SELECT_V2", "SELECT")
def arrangement(rng: Rng, name: str) -> Case:
    x = source(rng)
    rank, y = len(x.shape), same(rng, x.type, x)
    axis = int(rng.integers(0, rank))
    if name == "RESHAPE":
        return Case(name, [x, constant(pick(rng, [-1], [int(np.prod(x.shape))], [*x.shape, 1], [1, -1, x.shape[-1]]))], [y])
    if name == "SQUEEZE":
        x = tensor(rng, (1, *x.shape, 1)[:4], x.type, like=x)
        return Case(name, [x], [y], {"squeeze_dims": pick(rng, [0], [])})
    if name == "BROADCAST_TO":
        x = tensor(rng, tuple(1 if rng.random() < 0.5 else d for d in x.shape), x.type, like=x)
        return Case(name, [x, constant(tuple(4 if d == 1 else d for d in x.shape))], [y])
    if name in ("SELECT_V2", "SELECT"):
        y.shape = x.shape
        shape = x.shape if name == "SELECT" else tuple(1 if rng.random() < 0.3 else d for d in x.shape)
        return Case(name, [Tensor(shape, B), x, tensor(rng, x.shape, x.type, like=x)], [y])
    if name == "UNPACK":
        return Case(name, [x], [same(rng, x.type, x) for _ in range(x.shape[axis])], {"axis": axis, "num": x.shape[axis]})
    if name in ("PACK", "CONCATENATION"):
        several = [x, *(tensor(rng, x.shape, x.type, like=x) for _ in range(int(rng.integers(0, 3))))]
        if name == "CONCATENATION" and x.type in RANGES and rng.random() < 0.5 and x.type == U8:
            several[1:] = [tensor(rng, x.shape, x.type) for _ in several[1:]]
        counted = {"values_count": len(several)} if name == "PACK" else {}
        return Case(name, list(several), [y], {"axis": axis, **counted}, 2)
    count = int(rng.integers(1, 4))
    if name == "SPLIT":
        x = tensor(rng, tuple(d * count if i == axis else d for i, d in enumerate(x.shape)), x.type, like=x)
        return Case(name, [constant(axis), x], [same(rng, x.type, x) for _ in range(count)], {"num_splits": count})
    sizes = rng.integers(1, 4, count)
    x = tensor(rng, tuple(int(sizes.sum()) if i == axis else d for i, d in enumerate(x.shape)), x.type, like=x)
    return Case(name, [x, constant(sizes), constant(axis)], [same(rng, x.type, x) for _ in range(count)], {"num_splits": count})


@draws("PAD", "PADV2", "MIRROR_PAD", "SLICE", "STRIDED_SLICE", "GATHER_ND", "TOPK_V2")
def windows(rng: Rng, name: str) -> Case:
    x = source(rng, types=MOVING if name != "TOPK_V2" else (F, U8, I8, I16, I32, I64))
    rank, y = len(x.shape), same(rng, x.type, x)
    if name in ("PAD", "PADV2"):
        more = []
        if name == "PADV2":
            more = [constant(values(rng, (), x.type), x.type)]
            more[0].scale, more[0].zero_point = x.scale, x.zero_point
        return Case(name, [x, constant(rng.integers(0, 4, (rank, 2))), *more], [y], {}, 2)
    if name == "MIRROR_PAD":
        mode = int(rng.integers(2))
        widths = [[int(rng.integers(0, max(d - (1 - mode), 0) + 1)) for _ in range(2)] for d in x.shape]
        return Case(name, [x, constant(widths)], [y], {"mode": mode})
    if name == "SLICE":
        begins = [int(rng.integers(0, d)) for d in x.shape]
        sizes = [pick(rng, -1, int(rng.integers(1, d - b + 1))) for b, d in zip(begins, x.shape, strict=True)]
        y.shape = (1,) * rank
        return Case(name, [x, constant(begins), constant(sizes)], [y])
    if name == "STRIDED_SLICE":
        begins, ends = (rng.integers(-6, 7, rank) for _ in range(2))
        strides = [int(pick(rng, 1, 1, 2, -1, -2)) for _ in range(rank)]
        masks = {f"{m}_mask": int(rng.integers(0, 2**rank)) for m in ("begin", "end")}
        axis = int(rng.integers(rank))
        masks |= {"shrink_axis_mask": int(pick(rng, 0, 0, 1 << axis)), "ellipsis_mask": 0, "new_axis_mask": 0}
        if masks["shrink_axis_mask"]:  # LiteRT leaves the output unwritten for indexes beyond the end and backward strides.
            begins[axis], strides[axis] = min(begins[axis], x.shape[axis] - 1), abs(strides[axis])
        if rng.random() < 0.2:  # Beyond the dimension, and with an end_mask, LiteRT reads and writes behind the tensors.
            begins = np.array([int(rng.integers(0, d)) for d in x.shape])
            ends = np.array([int(rng.integers(1, d - b + 1)) for b, d in zip(begins, x.shape, strict=True)])
            strides, masks["begin_mask"], masks["end_mask"], masks["offset"] = [abs(s) for s in strides], 0, 0, True
        return Case(name, [x, *map(constant, (begins, ends, strides))], [y], masks, 2)
    if name == "TOPK_V2":
        if x.type == I64:  # numbers that float64 does not tell apart
            x.feed = (pick(rng, 0, 1 << 60, -(1 << 60)) + rng.integers(-9, 9, x.shape)).astype(I64)
        return Case(name, [x, constant(int(rng.integers(1, x.shape[-1] + 1)))], [y, Tensor((), I32)])
    depth = int(rng.integers(1, rank + 1))
    indices = [[int(rng.integers(0, d)) for d in x.shape[:depth]] for _ in range(int(rng.integers(1, 5)))]
    return Case(name, [x, constant(indices)], [y])


@draws("SPACE_TO_DEPTH", "DEPTH_TO_SPACE", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def images(rng: Rng, name: str) -> Case:
    type, block = pick(rng, *REAL), int(rng.integers(1, 4))
    batch, (height, width), depth = int(rng.integers(1, 3)), dims(rng, 2, 5), int(rng.integers(1, 4))
    if name.startswith("RESIZE"):
        x = tensor(rng, (batch, height, width, depth), type)
        mode = pick(rng, (False, False), (True, False), (False, True))
        options = dict(zip(("align_corners", "half_pixel_centers"), mode, strict=True))
        return Case(name, [x, constant(rng.integers(1, 12, 2))], [same(rng, type, x)], options, 3)
    many = block * block
    shape = {
        "SPACE_TO_DEPTH": (batch, height * block, width * block, depth),
        "DEPTH_TO_SPACE": (batch, height, width, depth * many),
        "SPACE_TO_BATCH_ND": (batch, height * block, width * block, depth),
        "BATCH_TO_SPACE_ND": (batch * many, height + 2, width + 2, depth),
    }[name]
    x = tensor(rng, shape, type)
    if name in ("SPACE_TO_DEPTH", "DEPTH_TO_SPACE"):
        return Case(name, [x], [same(rng, type, x)], {"block_size": block}, 2)
    edges = rng.integers(0, 2, (2, 2)) * (block if name.startswith("SPACE") else 1)
    return Case(name, [x, constant([block, block]), constant(edges)], [same(rng, type, x)], {}, 2)


@draws("QUANTIZE", "DEQUANTIZE", "CAST", "PRELU", "LEAKY_RELU", "BATCH_MATMUL", "LOCAL_RESPONSE_NORMALIZATION", "ADD_N")
def others(rng: Rng, name: str) -> Case:
    shape = dims(rng, int(rng.integers(2, 5)), 5)
    if name == "QUANTIZE":
        kinds = pick(rng, (F, U8), (F, I8), (F, I16), (U8, I8), (I8, U8), (I8, I8), (U8, U8), (I16, I8), (I8, I16), (I16, I32))
        y = tensor(rng, (), kinds[1])
        if kinds[1] == I32:
            y.scale, y.zero_point = scale(rng), 0
        return Case(name, [tensor(rng, shape, kinds[0])], [y])
    if name == "DEQUANTIZE":
        return Case(name, [tensor(rng, shape, pick(rng, U8, I8, I16))], [Tensor((), F)])
    if name == "CAST":
        first, second = (pick(rng, F, I8, I16, I32, I64, B, U8) for _ in range(2))
        return Case(name, [Tensor(shape, first)], [Tensor((), second)])
    if name == "BATCH_MATMUL":
        type = pick(rng, F, I8, I16)
        shape = (*dims(rng, int(rng.integers(2)), 3), *shape)
        n, k, m = dims(rng, 3)
        adj_x, adj_y = bool(rng.integers(2)), bool(rng.integers(2))
        a = (*shape[:-2], *((k, n) if adj_x else (n, k)))
        b = (*shape[:-2], *((m, k) if adj_y else (k, m)))
        pair = [tensor(rng, a, type), tensor(rng, b, type)]
        y = tensor(rng, (), type if type != I8 or rng.random() < 0.8 else I32)
        return Case(name, list(pair), [y], {"adj_x": adj_x, "adj_y": adj_y}, 2)
    if name == "LOCAL_RESPONSE_NORMALIZATION":
        options = {"radius": int(rng.integers(1, 4)), "bias": 1.0, "alpha": 0.5, "beta": 0.5}
        return Case(name, [Tensor(dims(rng, 4, 5), F)], [Tensor((), F)], options, 1)
    type = F if name == "ADD_N" else pick(rng, *REAL, I16)
    x = tensor(rng, shape, type)
    if name == "ADD_N":
        return Case(name, [x, *(Tensor(shape, F) for _ in range(int(rng.integers(1, 4))))], [Tensor((), F)])
    if name == "LEAKY_RELU":
        return Case(name, [x], [tensor(rng, (), type)], {"alpha": float(pick(rng, 0.1, 0.5, -0.3, 0.0, 1.5))}, 2)
    # LiteRT reads the alphas of 16-bit numbers as 8-bit ones, whatever they are.
    alpha = tensor(rng, tuple(1 if rng.random() < 0.5 else d for d in shape[1:]), I8 if type == I16 else type)
    alpha.value = values(rng, alpha.shape, alpha.type)
    return Case(name, [x, alpha], [tensor(rng, (), type)])

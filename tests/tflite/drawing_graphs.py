"""Small graphs drawn at random: operators of the single-operator drawing, each fitted to a tensor that the graph has."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.tflite.drawing import DRAWS, I8, I32, RANGES, U8, Case, F, Rng, Tensor, constant, dims, pick, tensor, values

CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
BINARY = ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM")
ACTIVATIONS = ("RELU", "RELU6", "RELU_N1_TO_1", "HARD_SWISH")
JOINTS: tuple[tuple[str, ...], ...] = (
    *((name,) for name in (*CONVOLUTIONS, *BINARY, *ACTIVATIONS) * 2),
    *((name,) for name in ("PRELU", "LEAKY_RELU", "SOFTMAX", "LOGISTIC", "TANH", "L2_NORMALIZATION", "ABS", "NEG", "RSQRT")),
    *((name,) for name in ("RESHAPE", "TRANSPOSE", "PAD", "SPLIT", "UNPACK", "CONCATENATION", "PACK", "SLICE", "EXPAND_DIMS")),
    *((name,) for name in ("MEAN", "SUM", "REDUCE_MAX", "AVERAGE_POOL_2D", "MAX_POOL_2D", "SPACE_TO_DEPTH", "RESIZE_BILINEAR")),
    *((name,) for name in ("CAST", "QUANTIZE", "DEQUANTIZE", "RESIZE_NEAREST_NEIGHBOR", "GATHER", "ARG_MAX", "REVERSE_V2")),
    ("PAD", "CONV_2D"),
    ("PAD", "DEPTHWISE_CONV_2D"),
    ("FULLY_CONNECTED", "RESHAPE", "FULLY_CONNECTED"),
    ("RESHAPE", "RESHAPE"),
    ("RESHAPE", "FULLY_CONNECTED"),
    ("TRANSPOSE", "TRANSPOSE"),
    ("TRANSPOSE", "CONV_2D", "TRANSPOSE"),
    ("QUANTIZE", "DEQUANTIZE"),
    ("DEQUANTIZE", "QUANTIZE"),
    ("QUANTIZE", "QUANTIZE"),
    *((name, after) for name in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "MUL") for after in ACTIVATIONS),
    *((name, "ADD") for name in CONVOLUTIONS),
    ("SPLIT", "CONCATENATION"),
    ("UNPACK", "PACK"),
)
"""Operators that follow one another."""
DATA = {"SPLIT": 1}
"""Which input is the data, if not the first."""
MOST_NODES, MOST_ELEMENTS, TRIES = 6, 4096, 40


@dataclass
class Graph:
    """Operators in run order; a tensor that two of them have is one object."""

    nodes: list[Case] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)

    def __str__(self) -> str:
        numbers: dict[int, int] = {}

        def named(one: Tensor | None) -> str:
            if one is None:
                return "-"
            kind = "c" if one.value is not None else "t"
            scale = one.scale if not isinstance(one.scale, list) else "channels"
            return f"{kind}{numbers.setdefault(id(one), len(numbers))}:{one.type}{list(one.shape)}/{scale}/{one.zero_point}"

        lines = [
            f"{', '.join(map(named, n.outputs))} = {n.operator}({', '.join(map(named, n.inputs))}) {n.options}"
            for n in self.nodes
        ]
        return "\n  ".join(["", *lines, f"outputs {', '.join(map(named, self.outputs))}"])


def beginning(rng: Rng) -> Tensor:
    """The first tensor."""
    rank = int(pick(rng, 4, 4, 4, 2, 2, 3))
    return tensor(rng, dims(rng, rank, 6), pick(rng, F, U8, I8, I8))


def names(rng: Rng) -> list[str]:
    """The operators of a graph in turn."""
    count, listed = int(rng.integers(2, MOST_NODES + 1)), list[str]()
    while len(listed) < count:
        listed += pick(rng, *JOINTS)
    return listed[:count]


def joined(rng: Rng, name: str, present: Sequence[Tensor]) -> list[Case] | None:
    """An operator that reads one of the tensors (mostly the last one), perhaps behind one that unpacks its weights."""
    read = present[-1] if rng.random() < 0.7 else pick(rng, *present)
    for _ in range(TRIES):
        case = DRAWS[name](rng, name)
        at = DATA.get(name, 0)
        if name in BINARY and (case.inputs[0] is None or case.inputs[0].value is not None):
            at = 1
        drawn = case.inputs[at]
        if drawn is not None and drawn.type == read.type and bool(read.scale) == (read.type in RANGES):
            break
    else:
        return None
    for one in (*case.inputs, *case.outputs):
        if one is not None and one is not drawn and one.type in RANGES and _parameters(one) == _parameters(drawn):
            one.scale, one.zero_point = read.scale, read.zero_point
    if name in ACTIVATIONS and rng.random() < 0.5:
        case.outputs[0].scale, case.outputs[0].zero_point = read.scale, read.zero_point
    case.inputs[at] = read
    fit = FITS.get(name)
    if fit is not None and not fit(rng, case, read, present):
        return None
    return [*_unpacking(rng, case), case]


def _parameters(one: Tensor) -> tuple[Any, ...]:
    return one.type, one.scale, one.zero_point


def _unpacking(rng: Rng, case: Case) -> list[Case]:
    """DEQUANTIZE in front of an operator with float weights, at times."""
    weights = case.inputs[1] if case.operator in CONVOLUTIONS else None
    if weights is None or weights.type != F or rng.random() < 0.6:
        return []
    kind = pick(rng, I8, U8, "float16")
    packed = constant(weights.value, kind) if kind == "float16" else constant(values(rng, weights.shape, kind), kind)
    if kind != "float16":
        packed.scale, packed.zero_point = 0.02, int(pick(rng, 0, 3))
    case.inputs[1] = Tensor(weights.shape, F)
    return [Case("DEQUANTIZE", [packed], [case.inputs[1]])]


def _resized(one: Tensor, shape: Sequence[int]) -> None:
    one.shape, one.value = tuple(shape), np.resize(one.value, shape)


def _fit_weights(rng: Rng, case: Case, read: Tensor, present: Sequence[Tensor]) -> bool:
    """Weights for the depth of what is read, and a bias of the product of the scales."""
    weights, bias = case.inputs[1:3]
    assert weights is not None
    connected = case.operator == "FULLY_CONNECTED"
    if not read.shape or (len(read.shape) != 4 and not connected):
        return False
    depth = read.shape[-1] * case.options.get("depth_multiplier", 1)
    _resized(weights, (*weights.shape[:-1], depth))
    units = depth if "depth_multiplier" in case.options else weights.shape[0]
    scales = weights.scale if isinstance(weights.scale, list) else [weights.scale]
    if len(scales) > 1:
        weights.scale = scales = [float(s) for s in np.resize(scales, units)]
    if bias is not None:
        _resized(bias, [units])
        bias.scale = [float(read.scale) * s for s in scales] if bias.scale else 0.0  # type: ignore[arg-type]  # one scale
    return True


def _fit_pair(rng: Rng, case: Case, read: Tensor, present: Sequence[Tensor]) -> bool:
    """The other operand: the same tensor, another of the graph, a constant or an input."""
    [at] = [i for i, one in enumerate(case.inputs) if one is not read]
    other, alike = case.inputs[at], [one for one in present if (one.type, one.shape) == (read.type, read.shape)]
    assert other is not None
    if case.operator in ("MAXIMUM", "MINIMUM"):  # LiteRT compares the stored numbers.
        alike = [one for one in alike if _parameters(one) == _parameters(read)]
    if rng.random() < 0.6:
        case.inputs[at] = pick(rng, read, *alike)
        return True
    shape = tuple(1 if rng.random() < 0.3 else d for d in read.shape)
    other.shape = shape[int(rng.integers(len(shape))) if shape and rng.random() < 0.3 else 0 :]
    if other.value is not None:
        other.value = np.resize(other.value, other.shape)
    return True


def _fit_list(rng: Rng, case: Case, read: Tensor, present: Sequence[Tensor]) -> bool:
    """Several tensors of one shape, one of them twice at times."""
    alike = [one for one in present if (*_parameters(one), one.shape) == (*_parameters(read), read.shape)]
    case.inputs = [pick(rng, read, *alike) for _ in case.inputs] if rng.random() < 0.7 else [read, read]
    if case.operator == "PACK":
        case.options["values_count"] = len(case.inputs)
    case.options["axis"] %= max(len(read.shape), 1)
    return bool(read.shape)


def _fit_pieces(rng: Rng, case: Case, read: Tensor, present: Sequence[Tensor]) -> bool:
    """Outputs for the pieces of one dimension."""
    axes = [i for i, d in enumerate(read.shape) if d > 1]
    if not axes:
        return False
    axis = int(pick(rng, *axes))
    count = read.shape[axis]
    if case.operator == "SPLIT":
        count = int(pick(rng, *(n for n in range(2, count + 1) if count % n == 0)))
        case.inputs[0], case.options = constant(axis), {"num_splits": count}
    else:
        case.options = {"axis": axis, "num": count}
    case.outputs = [Tensor((), read.type, read.scale, read.zero_point) for _ in range(count)]
    return True


def _list_of(made: Callable[[Rng, tuple[int, ...]], Any]) -> Callable[..., bool]:
    """The second input is a list of int32 made for the shape that is read."""

    def fit(rng: Rng, case: Case, read: Tensor, present: Sequence[Tensor]) -> bool:
        if not read.shape:
            return False
        case.inputs[1] = constant(made(rng, read.shape))
        return True

    return fit


def _new_shape(rng: Rng, shape: tuple[int, ...]) -> Any:
    sides = [math.prod(shape[:-1]), shape[-1]]
    flat = [1, 1, *sides]
    return pick(rng, [-1], sides, sides[::-1], [*shape, 1], [1, -1], flat, flat, [1, shape[0], -1, 1])


def _fit_slice(rng: Rng, case: Case, read: Tensor, present: Sequence[Tensor]) -> bool:
    begins = [int(rng.integers(0, d)) for d in read.shape]
    sizes = [int(rng.integers(1, d - b + 1)) for b, d in zip(begins, read.shape, strict=True)]
    case.inputs[1:], case.outputs[0].shape = [constant(begins), constant(sizes)], (1,) * len(begins)
    return bool(begins)


def _fit_gather(rng: Rng, case: Case, read: Tensor, present: Sequence[Tensor]) -> bool:
    if not read.shape:
        return False
    axis = case.options["axis"] = case.options["axis"] % len(read.shape)
    case.inputs[1] = constant(rng.integers(0, read.shape[axis], dims(rng, 1, 4)))
    return True


def _fit_slopes(rng: Rng, case: Case, read: Tensor, present: Sequence[Tensor]) -> bool:
    slopes = case.inputs[1]
    assert slopes is not None
    _resized(slopes, tuple(1 if rng.random() < 0.5 else d for d in read.shape[1:]))
    return len(read.shape) > 1


_AXES = _list_of(lambda rng, shape: rng.permutation(len(shape))[: int(rng.integers(1, len(shape) + 1))])
FITS: dict[str, Callable[[Rng, Case, Tensor, Sequence[Tensor]], bool]] = {
    **dict.fromkeys(CONVOLUTIONS, _fit_weights),
    **dict.fromkeys(BINARY, _fit_pair),
    **dict.fromkeys(("CONCATENATION", "PACK"), _fit_list),
    **dict.fromkeys(("SPLIT", "UNPACK"), _fit_pieces),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX"), _AXES),
    "ARG_MAX": _list_of(lambda rng, shape: int(rng.integers(-len(shape), len(shape)))),
    "EXPAND_DIMS": _list_of(lambda rng, shape: [int(rng.integers(-len(shape) - 1, len(shape) + 1))]),
    "REVERSE_V2": _list_of(lambda rng, shape: [int(rng.integers(len(shape)))]),
    "RESHAPE": _list_of(_new_shape),
    "TRANSPOSE": _list_of(lambda rng, shape: rng.permutation(len(shape))),
    "PAD": _list_of(lambda rng, shape: _edges(rng, len(shape))),
    "SLICE": _fit_slice,
    "GATHER": _fit_gather,
    "PRELU": _fit_slopes,
}
"""Operator -> what changes of a drawn case when it reads another tensor; False if it cannot read that one."""


def _edges(rng: Rng, rank: int) -> Any:
    """Mostly paddings of images' height and width."""
    widths = rng.integers(0, 3, (rank, 2))
    if rank == 4 and rng.random() < 0.8:
        widths[[0, 3]] = 0
    return widths


def chosen_outputs(rng: Rng, nodes: Sequence[Case]) -> list[Tensor]:
    """The outputs: values that nothing reads, of several outputs of one operator not always all; at times an inner value, or a
    constant."""
    read = {id(one) for node in nodes for one in node.inputs}
    ends = [[one for one in node.outputs if id(one) not in read] for node in nodes]
    chosen = [one for several in ends for one in several if len(several) == 1 or rng.random() < 0.6]
    inner = [one for node in nodes for one in node.outputs if id(one) in read]
    constants = [
        one for node in nodes for one in node.inputs if one is not None and one.value is not None and one.type in (F, I32)
    ]
    if inner and (not chosen or rng.random() < 0.3):
        chosen.append(pick(rng, *inner))
    if constants and rng.random() < 0.05:
        chosen.append(pick(rng, *constants))
    return chosen or [nodes[-1].outputs[0]]
